"""What the course tests share: a sandbox or a clear word, a small class, and a look into its gradebook."""

import datetime
import importlib.util
import os

import pytest
from nbgrader.api import Gradebook

from course import demo, grading, planting, sandbox, settings, text

DUE = datetime.datetime(2030, 1, 31, 22, 0)
FIRST = text.names()[0]


def needs_sandbox():
    """Skip where bubblewrap is missing, and say how to install it; in CI that is an error."""
    try:
        sandbox.check()
    except sandbox.SandboxError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def needs_packages(name):
    """Skip where what an assignment uses is not there (Triton has no build for every machine)."""
    missing = [package for package in text.load(name).uses if importlib.util.find_spec(package) is None]
    if missing and os.environ.get("CI") == "true":
        raise AssertionError(f"{name} needs {missing}")
    if missing:
        pytest.skip(f"{name} needs {' and '.join(missing)}: pip install -r requirements.txt")


def small_class(root, submissions, name=FIRST, when=DUE):
    """A class folder where each of `submissions` (student → notebook, or bytes of a file) is handed in."""
    grading.new_class(root, [name])
    grading.set_due(root, name, DUE)
    for student, notebook in submissions.items():
        hand_in(root, student, notebook, name, when)
    return root


def hand_in(root, student, notebook, name=FIRST, when=DUE):
    if isinstance(notebook, bytes):
        demo.hand_in(root, student, name, planting.submission(text.load(name)), when)
        (root / settings.HANDED_IN / student / name / f"{name}.ipynb").write_bytes(notebook)
    else:
        demo.hand_in(root, student, name, notebook, when)


def solved(name=FIRST, **answers):
    return planting.submission(text.load(name), answers)


def untouched(name=FIRST):
    return planting.submission(text.load(name), solved=False)


def full(name=FIRST):
    """All points that the grader gives."""
    return sum(text.load(name).properties.values())


def marks(root, student, name=FIRST):
    """What the gradebook says: grade cell → (auto_score, manual_score, needs_manual_grade)."""
    config = settings.load(root)
    with Gradebook(config.CourseDirectory.db_url) as book:
        notebook = book.find_submission_notebook(name, name, student)
        return {
            grade.name: (grade.auto_score, grade.manual_score, grade.needs_manual_grade)
            for grade in notebook.grades
        }


def auto_sum(root, student, name=FIRST):
    return sum(auto or 0.0 for auto, _, _ in marks(root, student, name).values())


def use_texts_and(folder, then, *arguments):
    """Take assignments from another folder; a worker process does not see what a test changes."""
    text.FOLDER = folder
    then(*arguments)

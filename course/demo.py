"""A demonstration class, from release to ``grades.csv``, in one command: ``make course``."""

import datetime
import shutil
from pathlib import Path

from nbgrader.api import Gradebook

from . import export, grading, planting, settings, text

FOLDER = settings.REPOSITORY / "_build" / "course" / "class"


def show(root=None, name=None, say=print):
    """Release an assignment, hand in three submissions, grade, mark by hand, write feedback and grades."""
    # Made afresh each time; any other folder is somebody's, and must be new or empty.
    if root is None and FOLDER.exists():
        shutil.rmtree(FOLDER)
    root = Path(root or FOLDER).resolve()
    name = name or text.names()[0]
    say(f"1. A class folder, and {name} released to it")
    grading.new_class(root, [name])
    due = datetime.datetime(2030, 1, 31, 22, 0)
    grading.set_due(root, name, due)
    say("2. Three hand in: Ada with everything right, Ben late and with mistakes, Cem before he had begun")
    assignment = text.load(name)
    mistakes, _ = planting.planted(name)
    for student, notebook, hours in (
        ("ada", planting.submission(assignment), -5),
        ("ben", planting.submission(assignment, _three(mistakes)), 20),
        ("cem", planting.submission(assignment, solved=False), -1),
    ):
        hand_in(root, student, name, notebook, due + datetime.timedelta(hours=hours))
    say("3. Each is run in the sandbox, and the verdict taken outside it")
    grading.grade_class(root, name, say=lambda line: say(f"   {line}"))
    say("4. The written questions are marked by hand (here: Ada's and Ben's, full points each)")
    for student in ("ada", "ben"):
        for question, points in assignment.written.items():
            mark_by_hand(root, name, student, question, points, "Clear and complete.")
    say("5. Feedback pages and grades")
    pages = grading.feedback(root, name)
    path = export.write(root, name, root / "grades.csv")
    say("")
    for row in export.rows(root, name):
        total = "no mark" if row["total"] == "" else f"{row['total']:g}"
        say(f"   {row['student']}: {total} of {row['of']:g}")
    say("")
    say(f"Everything is in {_short(root)}:")
    say("   release/      what students get          handed_in/   what they gave back")
    say("   autograded/   as the grader ran it       feedback/    what they read: open")
    say(f"   {_short(pages[1])}")
    say(f"   {path.name}    the marks                  {settings.GRADEBOOK}     nbgrader's gradebook")
    say(f"To mark by hand in the browser: python -m course marking {_short(root)}")
    return path


def _three(mistakes):
    """Three mistakes in three different answers."""
    chosen = {}
    # Spread over the list, so that not all of them are in the first part.
    for one in mistakes[len(mistakes) // 4 :: max(len(mistakes) // 4, 1)]:
        if not set(one.answers) & set(chosen):
            chosen |= one.answers
        if len(chosen) >= 3:
            break
    return chosen


def hand_in(root, student, name, notebook, when):
    """File a submission as the exchange or an LMS would."""
    folder = Path(root) / settings.HANDED_IN / student / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.ipynb").write_text(text.dump(notebook), encoding="utf-8")
    (folder / "timestamp.txt").write_text(f"{when:%Y-%m-%d %H:%M:%S} UTC\n", encoding="utf-8")


def mark_by_hand(root, name, student, question, points, comment=None):
    """What a marker does in the formgrader page: points and a comment for one written question."""
    config = settings.load(root)
    with Gradebook(config.CourseDirectory.db_url) as book:
        grade = book.find_grade(question, name, name, student)
        grade.manual_score, grade.needs_manual_grade = float(points), False
        if comment:
            book.find_comment(question, name, name, student).manual_comment = comment
        book.db.commit()


def _short(path):
    try:
        return str(Path(path).relative_to(settings.REPOSITORY))
    except ValueError:
        return str(path)

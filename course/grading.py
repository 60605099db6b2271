"""Grade a class: student by student, each failure its own, resumable, in parallel, showing progress."""

import concurrent.futures
import functools
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import threading
import time
import warnings
from pathlib import Path

import nbformat
from dateutil.tz import gettz
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import capture_log, parse_utc

from . import CourseError, hooks, intake, sandbox, settings, text

DONE = "graded"
# What the exchange puts beside a notebook: the date, and the word with which it names a feedback page.
BESIDE = ("timestamp.txt", "submission_secret.txt")
# What nbgrader reads as it is meant: of other words it leaves out what it does not know, PM too.
DATE = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d([.,]\d+)?)?"
    r"( ?(?![AP]M)[A-Z]{1,5}|[+-](0\d|1[0-4]):?[0-5]\d)?",
    re.ASCII,
)
# Modules of the course that no mark hangs on; any other, a new one too, is the grader.
AROUND = ("__main__", "demo", "export", "feedback", "feedback_style", "harmless", "lms", "matrix", "planting")


def new_class(root, names=None):
    """Make a class folder: settings, a secret of its own, and the assignments released; all of it or nothing.

    Raises
    ------
    ConfigError
        If the folder exists and has something in it, or has a name that nbgrader cannot work with.
    """
    root = Path(root).resolve()
    for name in names or ():
        text.load(name)
    settings.check_folder(root)
    if root.exists() and any(root.iterdir()):
        raise settings.ConfigError(f"{root.name} is not empty; a class begins in a new folder")
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    try:
        _fill(root, names)
    except BaseException:
        # Else the next try would find a folder that is not empty.
        for path in [made[-1]] if made else list(root.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _fill(root, names):
    # Hidden tests, marks and students' work: for the owner's eyes.
    root.chmod(0o700)
    (root / settings.SECRET).write_text(os.urandom(16).hex() + "\n")
    (root / settings.CONFIG).write_text(
        "# Settings of this class; what may be changed is in the instructor's guide.\n"
        "import sys\nfrom pathlib import Path\n\n"
        f"sys.path.insert(0, {str(settings.REPOSITORY)!r})\n\n"
        "from course import settings  # noqa: E402\n\n"
        "c = get_config()  # noqa: F821\n"
        "settings.configure(c, Path(__file__).parent)\n",
        encoding="utf-8",
    )
    for name in names or text.names():
        release(root, name)


def release(root, name):
    """Put one assignment into the gradebook and its student notebook into ``release/``."""
    root = Path(root).resolve()
    config = settings.load(root)
    source = root / "source" / name / f"{name}.ipynb"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text.released(text.load(name)), encoding="utf-8", newline="\n")
    _nbgrader(GenerateAssignment, config, assignment_id=name, student_id=".")


def set_due(root, name, when):
    """Set when an assignment is due (UTC)."""
    config = settings.load(root)
    with Gradebook(config.CourseDirectory.db_url) as book:
        book.update_or_create_assignment(name, duedate=when)


def students(root, name, only=None):
    """Who has handed in; or of these, `only` some, all of whom must be there."""
    found = sorted(path.parent.name for path in (Path(root) / settings.HANDED_IN).glob(f"*/{name}"))
    if unknown := set(only or ()) - set(found):
        raise settings.ConfigError(f"nothing was handed in by {', '.join(map(intake.said, sorted(unknown)))}")
    return [student for student in found if not only or student in only]


def _fault(student):
    """Why this cannot be the name of a student's folder, or nothing: nbgrader finds files by pattern."""
    if _is_long(student):
        return f"the student's name {intake.said(student)!r} is too long for a folder here"
    if set(student) & set("*?[]") or not student.isprintable():
        return f"the student's name {intake.said(student)!r} cannot be the name of a folder here"
    return ""


def grade_class(root, name, *, only=None, again=False, jobs=None, shard=None, say=print):
    """Grade all that was handed in for one assignment and is not graded yet.

    Parameters
    ----------
    root : path
    name : str
    only : list of str, optional
        These students.
    again : bool
        Grade also what was graded already (a changed submission is graded again anyway).
    jobs : int, optional
        How many at a time; as many as the machine has cores if not given.
    shard : (int, int), optional
        ``(k, n)``: every n-th student from the k-th on, for n machines or terminals at once.
    say : callable
        Takes a line of progress.

    Returns
    -------
    list of dict
        One record per student: see :func:`grade_student`.

    Raises
    ------
    SandboxError, ConfigError
        Before anything is graded, if it cannot be done safely.
    """
    root = Path(root).resolve()
    settings.load(root)
    text.load(name)
    sandbox.check()
    if not students(root, name):
        raise settings.ConfigError(f"nothing was handed in for {name}")
    chosen = students(root, name, only)
    if shard:
        if not 1 <= shard[0] <= shard[1]:
            raise settings.ConfigError(f"shard {shard[0]}/{shard[1]}, wanted K/N with K from 1 to N")
        chosen = chosen[shard[0] - 1 :: shard[1]]
    waiting = [student for student in chosen if again or not is_done(root, name, student)]
    # Before the others are graded, which may take an hour.
    for fault in filter(None, map(_fault, waiting)):
        say(f"{fault}; it has no mark")
    if len(waiting) < len(chosen):
        say(f"{len(chosen) - len(waiting)} of {len(chosen)} are graded already")
    records, began = [], time.monotonic()
    workers = min(jobs or os.cpu_count() or 1, max(len(waiting), 1))
    for record in _graded(root, name, waiting, workers):
        records.append(record)
        left = (time.monotonic() - began) / len(records) * (len(waiting) - len(records))
        say(f"[{len(records)}/{len(waiting)}] {_line(record)}; about {left:.0f} s left")
    return sorted(records, key=lambda record: record["student"])


def _graded(root, name, waiting, workers):
    """The records of those who wait, each as soon as it is there."""
    if workers == 1:
        yield from (grade_student(root, name, student) for student in waiting)
        return
    # Fresh processes: a fork would share this one's open gradebook.
    context = multiprocessing.get_context("spawn")
    start = {"mp_context": context, "initializer": _end_with, "initargs": (os.getpid(),)}
    with concurrent.futures.ProcessPoolExecutor(workers, **start) as pool:
        running = [pool.submit(grade_student, root, name, student) for student in waiting]
        try:
            for future in concurrent.futures.as_completed(running):
                yield future.result()
        except BaseException:
            # What is done stays done; the rest waits for the next call.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with(parent):
    """In a worker: end when the process that started it is gone, however it went."""

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _line(record):
    points = (
        f"{record['points']:g}/{record['of']:g}" if record["status"] == "graded" else record["status"].upper()
    )
    words = f": {record['reason']}" if record["reason"] else ""
    marked = f", {len(record['flags'])} flags" if record["flags"] else ""
    return f"{intake.said(record['student'])}: {points}{words}{marked} ({record['seconds']:.1f} s)"


def grade_student(root, name, student):
    """Grade one submission, and write down how it went.

    Returns
    -------
    dict
        ``student``; ``status`` ("graded", "refused": the file cannot be read, marked 0 with the reason, or
        "failed": no mark at all, the reason says why); ``reason``; ``points`` and ``of`` by the grader;
        ``flags`` for the instructor; ``notes`` for the student; ``seconds``.
    """
    root, began = Path(root).resolve(), time.monotonic()
    config = settings.load(root)
    try:
        return _grade_student(root, name, student, config, began)
    except (sandbox.SandboxError, settings.ConfigError):
        raise
    except Exception as error:
        # Whatever one submission does, the others are graded, and no old record of it stays.
        _done_path(root, name, student).unlink(missing_ok=True)
        if student.isprintable():
            hooks.forget_marks(config.CourseDirectory.db_url, name, student)
        record = {"student": student, "status": "failed", "reason": str(error), "flags": [], "notes": []}
        record |= {"points": 0.0, "of": 0.0, "seconds": time.monotonic() - began}
        # Kept for the list of grades; without the file's digest it counts as not done.
        if student.isprintable():
            _write_down(root, name, record | {"of_file": ""})
        return record


def _grade_student(root, name, student, config, began):
    handed_in = root / settings.HANDED_IN / student / name / f"{name}.ipynb"
    if fault := _fault(student):
        raise GradingFailed(fault)
    if any(path.is_symlink() for path in (*handed_in.parents[:2], *map(handed_in.with_name, BESIDE))):
        raise GradingFailed("the folder, or a file in it, is a link to another one")
    _done_path(root, name, student).unlink(missing_ok=True)
    # Before it is read: what comes while this runs must not pass for graded.
    digest = _digest(handed_in, name)
    db_url = config.CourseDirectory.db_url
    before = hooks.forget_marks(db_url, name, student)
    record = {"student": student, "status": "graded", "reason": "", "flags": [], "notes": []}
    no_date = _no_date(handed_in.with_name("timestamp.txt"))
    try:
        notebook, notes = intake.read(handed_in)
        if no_date:
            raise intake.Refused(*no_date)
    except intake.Refused as error:
        record |= {"status": "refused", "reason": str(error)}
        notebook, notes = text.student_notebook(text.load(name)), [f"Your file could not be graded: {error}"]
    notes += _strays(handed_in)
    notebook.metadata["course"] = {"notes": notes}
    checked = root / settings.CHECKED / student / name
    shutil.rmtree(checked, ignore_errors=True)
    checked.mkdir(parents=True)
    (checked / f"{name}.ipynb").write_text(text.dump(notebook), encoding="utf-8")
    for beside in BESIDE:
        if (file := handed_in.with_name(beside)).is_file() and not (no_date and beside == "timestamp.txt"):
            shutil.copy(file, checked)
    config.CourseDirectory.submitted_directory = settings.CHECKED
    _nbgrader(Autograde, config, assignment_id=name, student_id=student, force=True)
    graded = nbformat.read(root / "autograded" / student / name / f"{name}.ipynb", as_version=4)
    about = graded.metadata["course"]
    record["points"] = float(sum(mark["points"] for mark in about["marks"].values()))
    record["of"] = float(sum(mark["of"] for mark in about["marks"].values()))
    record["flags"], record["notes"] = list(about["flags"]), list(about["notes"])
    if before is not None and record["points"] < before:
        record["flags"].append(f"was {before:g} points before this run, now {record['points']:g}")
    record["seconds"] = time.monotonic() - began
    _write_down(root, name, record | {"of_file": digest})
    return record


def _write_down(root, name, record):
    path = _done_path(root, name, record["student"])
    path.parent.mkdir(parents=True, exist_ok=True)
    # Last and in one piece: a run that is killed leaves no half record.
    spare = path.with_suffix(".part")
    spare.write_text(json.dumps(record, indent=1), encoding="utf-8")
    spare.replace(path)


class GradingFailed(CourseError):
    """nbgrader could not grade a submission; the text is for the instructor."""


def _nbgrader(converter, config, *, force=True, **which):
    directory = CourseDirectory(config=config)
    for key, value in which.items():
        setattr(directory, key, value)
    app = converter(coursedir=directory, config=config)
    app.force = force
    app.log.propagate = False
    with warnings.catch_warnings():
        # SQLAlchemy's remarks on nbgrader's own way with sessions.
        warnings.simplefilter("ignore")
        result = capture_log(app)
    if not result["success"]:
        log = result.get("log", "") + result.get("error", "")
        if "KeyboardInterrupt" in result.get("error", ""):
            raise KeyboardInterrupt
        if "SandboxError" in log:
            sandbox.check()
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        causes = [line for line in lines if "Error" in line.split(":")[0] and not line.startswith("File")]
        raise GradingFailed((causes or lines or ["nbgrader gave no reason"])[0][:300])


def _no_date(file):
    """What is wrong with a date of handing in, for :class:`intake.Refused`; nbgrader would stop, or guess."""
    if not file.exists():
        return None
    try:
        if not file.is_file():
            raise OSError
        with file.open(encoding="utf-8") as lines:
            words = lines.read(10_000).strip()
        if DATE.fullmatch(words) and all(map(gettz, words.split()[2:])) and parse_utc(words):
            return None
    except (ValueError, OverflowError, TypeError, OSError):
        words = "something that cannot be read"
    return (
        f"When it was handed in is not known: its timestamp.txt says {intake.said(words)!r}.",
        "Tell your instructor, who can put it right: your notebook is not to blame.",
        "Wanted: a date such as 2027-02-01 21:00:00 UTC.",
    )


def _strays(handed_in):
    found = sorted(
        intake.said(path.name)
        for path in handed_in.parent.glob("*")
        if path.name not in (handed_in.name, *BESIDE)
    )
    return (
        [f"other files were ignored: {', '.join(found[:5])}{' and more' if len(found) > 5 else ''}"]
        if found
        else []
    )


def _done_path(root, name, student):
    if _is_long(student):
        student = hashlib.sha256(student.encode("utf-8", "replace")).hexdigest()
    return root / DONE / name / f"{student}.json"


def _is_long(student):
    """Whether the name of a folder leaves no room for what the names of files add to it."""
    return len(student.encode("utf-8", "replace")) > 200


def record_of(root, name, student):
    """The record that grading left, None if the submission waits for it."""
    path = _done_path(Path(root), name, student)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def is_done(root, name, student):
    """Whether what lies there now is what was graded."""
    record = record_of(root, name, student)
    handed_in = Path(root) / settings.HANDED_IN / student / name / f"{name}.ipynb"
    return record is not None and record["of_file"] == _digest(handed_in, name)


def _digest(handed_in, name):
    """Of all that a mark hangs on: file, date, text, secret and grader; if one changes, the mark is old."""
    digest = hashlib.sha256(_grader())
    digest.update((text.FOLDER / f"{name}.myst.md").read_bytes())
    secret = handed_in.parents[3] / settings.SECRET
    for path in (handed_in, handed_in.with_name("timestamp.txt"), secret):
        digest.update(path.read_bytes() if path.is_file() else b"missing")
    return digest.hexdigest()


@functools.cache
def _grader():
    """Of the code that decides a mark: the course's modules, and the library that is the oracle."""
    course = [path for path in sandbox.HERE.glob("*.py") if path.stem not in AROUND]
    digest = hashlib.sha256()
    for path in sorted([*course, *sandbox.ATTNLIB.rglob("*.py")]):
        digest.update(f"{path.relative_to(sandbox.HERE.parent)}\n".encode() + path.read_bytes())
    return digest.digest()


def feedback(root, name, only=None):
    """Write a feedback page for everybody who was graded; returns their paths."""
    root = Path(root).resolve()
    config = settings.load(root)
    paths = []
    for student in students(root, name, only):
        if (root / "autograded" / student / name).is_dir():
            penalise(config, name, student)
            _nbgrader(GenerateFeedback, config, assignment_id=name, student_id=student)
            paths.append(root / "feedback" / student / name / f"{name}.html")
    return paths


def penalise(config, name, student):
    """Compute the late penalty again: when the grader ran, the marks given by hand were not there yet."""
    with Gradebook(config.CourseDirectory.db_url) as book:
        try:
            notebook = book.find_submission_notebook(name, name, student)
        except MissingEntry:
            return
        late = notebook.assignment.total_seconds_late
        plugin = config.AssignLatePenalties.plugin_class(config=config)
        notebook.late_submission_penalty = (
            plugin.late_submission_penalty(student, notebook.score, late) if late > 0 else None
        )
        book.db.commit()

"""Marks as a CSV file that a spreadsheet or a learning management system takes."""

import csv
import re
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry

from . import grading, settings, text


def rows(root, name):
    """One dictionary per student who handed in, the columns in order.

    Returns
    -------
    list of dict
        ``student``, ``name`` (as given, if filed under another), ``status``, one column per property and
        question (empty: not marked yet), ``points``, ``late_penalty``, ``total``, ``of``,
        ``to_mark_by_hand``, ``flags``, ``reason``.
    """
    root = Path(root).resolve()
    config = settings.load(root)
    assignment = text.load(name)
    names = _names(root)
    for student in grading.students(root, name):
        grading.penalise(config, name, student)
    with Gradebook(config.CourseDirectory.db_url) as book:
        return [_row(book, assignment, root, student, names) for student in grading.students(root, name)]


def _row(book, assignment, root, student, names):
    record = grading.record_of(root, assignment.name, student) or {
        "status": "not graded",
        "reason": "grade it first",
        "flags": [],
    }
    row = {"student": student, "name": names.get(student, ""), "status": record["status"]}
    worth = assignment.properties | assignment.written
    scores, penalty = dict.fromkeys(worth), 0.0
    if record["status"] in ("graded", "refused"):
        try:
            notebook = book.find_submission_notebook(assignment.name, assignment.name, student)
        except MissingEntry:
            row["status"] = "not graded"
        else:
            for grade in notebook.grades:
                marked = grade.manual_score is not None or grade.auto_score is not None
                scores[grade.name] = float(grade.score) if marked else None
            penalty = float(notebook.late_submission_penalty or 0)
    row |= {key: "" if score is None else score for key, score in scores.items()}
    points = sum(score for score in scores.values() if score is not None)
    row["points"], row["late_penalty"] = points, penalty
    row["total"], row["of"] = max(points - penalty, 0.0), float(sum(worth.values()))
    row["to_mark_by_hand"] = sum(scores[key] is None for key in assignment.written)
    if row["status"] not in ("graded", "refused"):
        # A platform would take a 0 for a mark.
        row |= dict.fromkeys(("points", "late_penalty", "total"), "")
    flags = list(record["flags"])
    if row["status"] in ("graded", "refused") and not grading.is_done(root, assignment.name, student):
        flags.append("handed in again, or the assignment or the grader changed, after this was graded")
    row["flags"], row["reason"] = " | ".join(flags), record["reason"]
    return row


def write(root, name, path=None):
    """Write ``grades.csv`` (or `path`) and return its path. UTF-8 with a mark, as spreadsheets expect it."""
    path = Path(path or Path(root) / f"grades_{name}.csv")
    table = rows(root, name)
    if not table:
        raise settings.ConfigError(f"nothing was handed in for {name}, so there are no grades to write")
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows({key: _safe(value) for key, value in row.items()} for row in table)
    return path


def _safe(value):
    """A spreadsheet must not take a name for a formula; in some languages it begins a cell at a semicolon."""
    if isinstance(value, str):
        return re.sub(r"(^\s*|[;\t]\s*)(?=[=+@＝＋－＠-])", r"\1'", value)
    return f"{value:g}" if isinstance(value, float) else value


def _names(root):
    from . import lms

    return lms.names_of(root)

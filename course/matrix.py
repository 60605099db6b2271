"""The kill matrix: submissions made on purpose, handed in, and exactly what each must lose."""

import json
from typing import NamedTuple

from . import planting, text, verdict


class Row(NamedTuple):
    """One submission made on purpose: `kind` is "solved", "untouched", "mistake" or "variant"."""

    name: str
    says: str
    kind: str
    loses: frozenset
    answers: dict

    def notebook(self, assignment):
        return planting.submission(assignment, self.answers, solved=self.kind != "untouched")


def rows(name):
    """Every submission of one assignment's matrix."""
    assignment = text.load(name)
    mistakes, variants = planting.planted(name)
    everything = frozenset(assignment.properties)
    return [
        Row("solved", "The solutions.", "solved", frozenset(), {}),
        Row("untouched", "The notebook as released.", "untouched", everything, {}),
        *(Row(one.name, one.says, "mistake", frozenset(one.loses), one.answers) for one in mistakes),
        *(Row(one.name, one.says, "variant", frozenset(), one.answers) for one in variants),
    ]


def judge(name, row, secret):
    """The verdict on one submission of the matrix."""
    assignment = text.load(name)
    return verdict.grade(assignment, verdict.student_cells(row.notebook(assignment)), secret)


def table(name, secret):
    """One assignment's matrix as plain data: what each submission really loses."""
    assignment = text.load(name)
    listed = []
    for row in rows(name):
        found = judge(name, row, secret)
        lost = [one for one in assignment.properties if one in found.lost]
        listed.append(
            {"name": row.name, "says": row.says, "kind": row.kind, "lost": lost, "points": found.points}
            | {"as_wanted": found.lost == row.loses}
        )
    return {
        "assignment": name,
        "title": assignment.title,
        "about": assignment.about,
        "minutes": assignment.minutes,
        "seconds": assignment.seconds,
        "uses": assignment.uses,
        "properties": assignment.properties,
        "written": assignment.written,
        "submissions": listed,
    }


def dump(tables):
    return json.dumps(tables, indent=1, ensure_ascii=False) + "\n"

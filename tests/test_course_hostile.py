"""The hostile class: what each submission tries is in course_attacks.py; here it is handed in, graded, looked at."""

import json
import os
import re
import socket
import threading
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

import course_attacks as attacks
from course import grading, planting, settings, text, verdict
from course.sandbox import Limits
from course_attacks import ALL, ATTACKS, MARK, NAME
from course_stage import auto_sum, hand_in, marks, needs_sandbox, small_class, solved, untouched

# Enough for anything honest on a busy machine, and little for what never ends.
USUAL = Limits(seconds=60, cell_seconds=20, call_seconds=20, memory_mb=1500)
HASTY = Limits(seconds=14, cell_seconds=2, call_seconds=3, memory_mb=1500)
SURVIVOR = f"hostile-survivor-{os.getpid()}"


class Class:
    """A class folder with an honest student in it, and what a hostile one may look for on this machine."""

    def __init__(self, root, house):
        self.root, self.house = root, house

    def grade(self, student, notebook):
        hand_in(self.root, student, notebook, NAME)
        return Seen(self.root, student, grading.grade_student(self.root, NAME, student))

    def fill(self, code):
        for name, value in self.house.items():
            code = code.replace(f"@{name}@", str(value))
        return code


class Seen:
    """One graded submission, as the instructor has it."""

    def __init__(self, root, student, record):
        self.student, self.record = student, record
        self.path = root / "autograded" / student / NAME / f"{NAME}.ipynb"
        self.notebook = nbformat.read(self.path, as_version=4)
        about = self.notebook.metadata["course"]
        self.earned = {name for name, mark in about["marks"].items() if mark["points"]}
        reasons = [f"{name}: {mark['reason']}" for name, mark in about["marks"].items()]
        self.words = "\n".join([record["reason"], *record["flags"], *record["notes"], *reasons])
        outputs = [output for cell in self.notebook.cells for output in cell.get("outputs", [])]
        self.printed = "".join(output.get("text", "") for output in outputs)


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A class, its secret known, and things of the house with a mark that no submission may bring out."""
    needs_sandbox()
    patch = pytest.MonkeyPatch()
    texts = tmp_path_factory.mktemp("texts")
    (texts / f"{NAME}.myst.md").write_text(attacks.MINI, encoding="utf-8")
    patch.setattr(text, "FOLDER", texts)
    patch.setattr(verdict, "limits_of", lambda assignment: USUAL)
    patch.setenv("HOSTILE_SECRET", MARK)
    root = small_class(tmp_path_factory.mktemp("class") / "class", {}, NAME)
    (root / settings.SECRET).write_text(f"{MARK}-and-more\n")
    house = tmp_path_factory.mktemp("house")
    (house / "letter.txt").write_text(MARK)
    left_open = os.open(house / "letter.txt", os.O_RDONLY)
    os.set_inheritable(left_open, True)
    abstract = f"hostile-{os.getpid()}"
    servers = [
        _server(socket.AF_INET, ("127.0.0.1", 0)),
        _server(socket.AF_UNIX, f"\0{abstract}"),
        _server(socket.AF_UNIX, str(house / "socket")),
    ]
    found = Class(
        root,
        {
            "ROOT": root,
            "FILE": house / "letter.txt",
            "SOCKET": house / "socket",
            "REPOSITORY": settings.REPOSITORY,
            "PORT": servers[0].getsockname()[1],
            "ABSTRACT": abstract,
            "PID": os.getpid(),
            "SURVIVOR": SURVIVOR,
        },
    )
    honest = solved(NAME)
    question(honest).source = f"Because: {MARK}."
    found.ada = found.grade("ada", honest)
    assert found.ada.earned == ALL and found.ada.words.count(":") == len(ALL)
    found.honest = marks(root, "ada", NAME), found.ada.path.read_bytes()
    yield found
    for server in servers:
        server.close()
    os.close(left_open)
    patch.undo()


def question(notebook):
    (cell,) = (cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "why")
    return cell


def _server(family, address):
    """Somebody who listens on this machine, and would tell."""
    server = socket.socket(family)
    server.bind(address)
    server.listen()

    def serve():
        while True:
            try:
                caller, _ = server.accept()
            except OSError:
                return
            with caller:
                caller.send(MARK.encode())

    threading.Thread(target=serve, daemon=True).start()
    return server


def submission(room, attack):
    answers = {name: room.fill(code) for name, code in attack.answers.items()}
    notebook = planting.submission(text.load(NAME), answers, solved=attack.solved)
    notebook.cells[:0] = [nbformat.v4.new_code_cell(room.fill(code)) for code in attack.code]
    return attack.edit(notebook) if attack.edit else notebook


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_an_attack_gains_nothing_and_gets_a_reason(room, attack, monkeypatch):
    if not attack.patient:
        monkeypatch.setattr(verdict, "limits_of", lambda assignment: HASTY)
    seen = room.grade(attack.name, submission(room, attack))
    assert seen.record["status"] == "graded", seen.record
    if attack.earns is not None:
        assert seen.earned == attack.earns, seen.words
    assert re.search(attack.says, seen.words), seen.words
    if attack.looks:
        assert re.findall(r"LOOT (.*)", seen.printed) == ["[]"]
    assert seen.record["points"] == auto_sum(room.root, attack.name, NAME) <= 10
    # Nothing of the house in what comes out, and nothing that a file or a page cannot hold.
    assert MARK not in seen.path.read_text(encoding="utf-8")
    assert seen.path.stat().st_size < 4_000_000 and max(map(len, seen.words.split("\n"))) < 2000
    # Nothing happened to the neighbour, nor to the class.
    assert (marks(room.root, "ada", NAME), room.ada.path.read_bytes()) == room.honest
    assert MARK in (room.root / settings.SECRET).read_text()
    assert _running(SURVIVOR) == []


def _running(word):
    """Processes of this machine that have `word` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue  # it ended meanwhile
    return found

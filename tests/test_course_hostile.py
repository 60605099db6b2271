"""The hostile class: what each submission tries is in course_attacks.py; here it is handed in and graded."""

import concurrent.futures
import html.parser
import json
import os
import re
import resource
import socket
import struct
import threading
from pathlib import Path

import course_attacks as attacks
import nbformat
import numpy as np
import pytest
from course_attacks import ALL, ATTACKS, MARK, NAME, ODDITIES
from course_stage import auto_sum, hand_in, marks, needs_sandbox, small_class, solved, use_texts_and
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbgrader.server_extensions.formgrader import handlers

from course import grading, hooks, planting, sandbox, settings, text, verdict, wire
from course.sandbox import Limits

# Enough for anything that ends, on a busy machine.
USUAL = Limits(seconds=90, cell_seconds=40, call_seconds=20, memory_mb=1500)
SURVIVOR = f"hostile-survivor-{os.getpid()}"


class Class:
    """A class folder with an honest student in it, and what a hostile one may look for on this machine."""

    def __init__(self, root, house):
        self.root, self.house = root, house

    def grade(self, student, notebook, place=None):
        hand_in(self.root, student, notebook, NAME)
        if place:
            place(self.file(student), self.file("ada"))
        return Seen(self.root, student, grading.grade_student(self.root, NAME, student))

    def file(self, student):
        return self.root / settings.HANDED_IN / student / NAME / f"{NAME}.ipynb"

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
    # Undone even if the class cannot be made: other tests use the same modules.
    with pytest.MonkeyPatch.context() as patch:
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
    if attack.edit:
        attack.edit(notebook)
    return notebook


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_an_attack_gains_nothing_and_gets_a_reason(room, attack, monkeypatch):
    if attack.within:
        monkeypatch.setattr(verdict, "limits_of", lambda assignment: attack.within)
    seen = room.grade(attack.name, submission(room, attack), attack.place)
    assert seen.record["status"] == ("refused" if attack.refused else "graded"), seen.record
    if attack.earns is not None:
        assert seen.earned == attack.earns, seen.words
    assert [words for words in attack.says if not re.search(words, seen.words)] == [], seen.words
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


# Without those that find files open to root, who stands behind the namespace here: such a file is not open to
# an ordinary user.
LOOKING = [attack for attack in ATTACKS if attack.looks and attack.name not in ("system_files", "devices")]


@pytest.mark.skipif(os.geteuid() != 0, reason="all of this file runs as an ordinary user")
@pytest.mark.parametrize("attack", LOOKING, ids=[attack.name for attack in LOOKING])
def test_the_sandbox_of_an_ordinary_user_shows_no_more(room, attack, monkeypatch):
    # Root locks students in without a user namespace, everybody else with one.
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: 1000)
    seen = room.grade(f"user_{attack.name}", submission(room, attack), attack.place)
    assert re.findall(r"LOOT (.*)", seen.printed) == ["[]"]
    assert seen.earned == attack.earns, seen.words


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


@pytest.mark.parametrize("one", ODDITIES, ids=[one.name for one in ODDITIES])
def test_an_honest_oddity_costs_nothing(room, one):
    notebook = planting.submission(text.load(NAME), one.answers)
    notebook.cells[:0] = [nbformat.v4.new_code_cell(code) for code in one.before]
    notebook.cells += [nbformat.v4.new_code_cell(code) for code in one.after]
    if one.change:
        one.change(notebook)
    seen = room.grade(f"honest_{one.name}", notebook)
    assert seen.record["status"] == "graded" and seen.earned == ALL, seen.words
    assert seen.record["flags"] == [] and seen.record["points"] == 10, seen.words
    assert not re.search("longer|stopped|did not run|ended", seen.words), seen.words


class _Runs(html.parser.HTMLParser):
    """Gathers what a browser would run of a student's."""

    def __init__(self):
        super().__init__()
        self.found, self.inside = [], None

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        for name, value in attributes:
            is_code = name.startswith("on") or "script:" in re.sub(r"\s", "", value or "").lower()
            if is_code and "4711" in (value or ""):
                self.found.append(f"{tag} {name}")

    def handle_data(self, data):
        if self.inside in ("script", "style") and "4711" in data:
            self.found.append(self.inside)

    def handle_endtag(self, tag):
        self.inside = None


def runs(page):
    parser = _Runs()
    parser.feed(page)
    return parser.found


def test_what_runs_is_found():
    page = "<b>alert(4711)</b><script>alert(4711)</script><a href='Java script:alert(4711)'>"
    page += "<img src=x onerror=alert(4711)>"
    assert runs(page) == ["script", "a href", "img onerror"]


# --- many at once -------------------------------------------------------------------------------------------


def test_the_worst_of_a_class_stop_nobodys_grading(room, tmp_path, monkeypatch):
    # Worker processes are fresh ones: they are told where the texts are.
    def pool(workers, *, initializer, initargs, executor=concurrent.futures.ProcessPoolExecutor, **options):
        arguments = (text.FOLDER, initializer, *initargs)
        return executor(workers, initializer=use_texts_and, initargs=arguments, **options)

    monkeypatch.setattr(grading.concurrent.futures, "ProcessPoolExecutor", pool)
    mean = ("exits", "forged_in_calls", "many_memories", "scripts", "pipe")
    chosen = {attack.name: attack for attack in ATTACKS if attack.name in mean}
    root = small_class(
        tmp_path / "class", {name: submission(room, one) for name, one in chosen.items()}, NAME
    )
    chosen["pipe"].place(root / settings.HANDED_IN / "pipe" / NAME / f"{NAME}.ipynb", None)
    for student in ("ada", "zoe"):
        hand_in(root, student, solved(NAME), NAME)
    lines = []
    records = grading.grade_class(root, NAME, jobs=2, say=lines.append)
    found = {record["student"]: (record["status"], record["points"]) for record in records}
    assert found == {
        "ada": ("graded", 10),
        "exits": ("graded", 10),
        "forged_in_calls": ("graded", 0),
        "many_memories": ("graded", 10),
        "pipe": ("refused", 0),
        "scripts": ("graded", 0),
        "zoe": ("graded", 10),
    }
    assert len(lines) == len(records) == 7
    # The feedback of the one with the scripts: all is there to read, and nothing to run.
    (page,) = grading.feedback(root, NAME, ["scripts"])
    shown = page.read_text(encoding="utf-8")
    assert "alert(4711)" in shown
    assert runs(shown) == [] and "\x1b" not in shown
    kinds = {
        kind
        for cell in nbformat.read(
            root / "autograded" / "scripts" / NAME / f"{NAME}.ipynb", as_version=4
        ).cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }
    assert kinds == {"text/plain"}


@pytest.mark.parametrize("student", ["Zoë Ångström", "нина", "CON", "o'neil & co", "--force", "a+b%20c"])
def test_any_name_is_a_name(room, student):
    seen = room.grade(student, solved(NAME))
    assert seen.record["status"] == "graded" and seen.earned == ALL
    assert auto_sum(room.root, student, NAME) == 10


@pytest.mark.parametrize("student", ["*", "x[1]", os.fsdecode(b"\xff\xfe")])
def test_a_name_that_is_a_pattern_or_no_text_gets_a_reason(room, student):
    folder = room.root / settings.HANDED_IN / student
    try:
        hand_in(room.root, student, solved(NAME), NAME)
        (record,) = grading.grade_class(
            room.root, NAME, only=[student], jobs=1, say=lambda line: line.encode()
        )
        assert record["status"] == "failed" and "cannot be the name" in record["reason"]
        assert (marks(room.root, "ada", NAME), room.ada.path.read_bytes()) == room.honest
    finally:
        grading.shutil.rmtree(folder)


def test_stray_files_are_ignored_with_a_note(room):
    hand_in(room.root, "stray", solved(NAME), NAME)
    folder = room.file("stray").parent
    for name in ("desktop.ini", ".DS_Store", "numpy.py", "second.ipynb", os.fsdecode(b"\xff.txt")):
        (folder / name).write_text("raise SystemExit")
    (folder / "__pycache__").mkdir()
    (record,) = grading.grade_class(room.root, NAME, only=["stray"], jobs=1, say=lambda line: None)
    assert (record["status"], record["points"], record["flags"]) == ("graded", 10, [])
    assert any("other files were ignored" in note and "desktop.ini" in note for note in record["notes"])


def test_a_folder_that_is_a_link_is_not_followed(room):
    link = room.root / settings.HANDED_IN / "linked"
    link.symlink_to(room.root / settings.HANDED_IN / "ada")
    try:
        (record,) = grading.grade_class(room.root, NAME, only=["linked"], jobs=1, say=lambda line: None)
        assert (record["status"], record["points"]) == ("failed", 0) and "link" in record["reason"]
    finally:
        link.unlink()


def test_the_page_for_marking_runs_nothing_that_a_student_wrote(room):
    notebook = solved(NAME)
    attacks.scripted(notebook)
    question(notebook).source += "\n\n**bold** and $a < b$"
    config = settings.load(room.root)
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    names = (
        "assignment_id notebook_id submission_id base_url student last_name first_name notebook_path".split()
    )
    resources = dict.fromkeys(names, "x") | {"index": 0, "total": 1}
    page, _ = HTMLExporter(config=config).from_notebook_node(notebook, resources=resources)
    assert "<strong>bold</strong>" in page and "alert(4711)" in page
    assert runs(page) == []


@pytest.mark.parametrize(
    ("source", "shows", "never"),
    [
        (r"[x](javascript\:alert(1))", "alert(1)", 'href="javascript'),
        ("[x][y]\n\n[y]: JavaScript\\:alert(1)", "alert(1)", 'href="JavaScript'),
        (r"[x](data\:text/html,1)", "text/html,1", 'href="data'),
        ("![who looks](http://example.org/a.png)", "who looks", "<img"),
        ("![a [b][c]\n\n[c]: http://example.org/a.png", "example.org", "<img"),
        # A picture of a kind that is not kept, as a GIF, ended nbconvert, and nobody could mark the answer.
        ("![gone](attachment:a.gif)", "gone", "<img"),
        ("$i<j$ and `k<l`", "<code>k&lt; l</code>", "&amp;lt;"),
        ("<b onclick='alert(1)'>x", "&lt; b", "<b"),
        (r"<\!-- <\/p> <\?x", "--", "<!"),
        (r"[x](&#106;avascript&#58;alert(1)) &lt;i>", "alert", 'href="java'),
        ("![mine](attachment:my%20own.png) and words", 'src="data:image/png;base64,AAAA"', "&#33;"),
    ],
)
def test_an_answer_for_marking_has_its_own_pictures_and_no_harmful_link(source, shows, never):
    cell = nbformat.v4.new_markdown_cell(source, attachments={"my own.png": {"image/png": "AAAA"}})
    cell, _ = hooks.AsText().preprocess_cell(cell, {}, 0)
    page = IPythonRenderer(escape=False, attachments=cell.attachments)
    page = MarkdownWithMath(renderer=page).render(cell.source)
    assert shows in page and never not in page


# --- the wire, frame by frame -------------------------------------------------------------------------------


def frame(text, arrays=b""):
    return struct.pack(">I", len(text)) + text + arrays


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff" * 8,
        frame(b"{"),
        frame(b"[" * 10**5),
        frame(b"NaN"),
        frame(b"1e999"),
        frame(b'{"float": "no"}'),
        frame(b'{"private": 1}'),
        frame(b'{"list": 3}'),
        frame(b'{"dict": [1]}'),
        frame(b'{"list": [], "dict": {}}'),
        frame(b'{"array": ["O", [1]]}', bytes(8)),
        frame(b'{"array": ["V1000000000", [1]]}'),
        frame(b'{"array": ["<f16", [1]]}', bytes(16)),
        frame(b'{"array": ["<c16", [1]]}', bytes(16)),
        frame(b'{"array": ["f8,f8", [1]]}', bytes(16)),
        frame(b'{"array": [["f8"], [1]]}', bytes(8)),
        frame(b'{"array": ["<f8", [-1]]}', bytes(8)),
        frame(b'{"array": ["<f8", [99999999999, 99999999999]]}', bytes(8)),
        frame(b'{"array": ["<f8", [2]]}', bytes(8)),
        frame(b'{"array": ["<f8", [1]]}', bytes(16)),
        frame(b'{"array": ["<f8", [' + b"1," * 99 + b"1]]}", bytes(8)),
        frame(b'"' + b"x" * (wire.LARGEST_TEXT + 1) + b'"'),
    ],
)
def test_a_frame_that_is_no_value_is_refused_without_repeating_it(body):
    with pytest.raises(wire.WireError) as caught:
        wire.unpack(body)
    assert "private" not in str(caught.value) and len(str(caught.value)) < 100


def test_numpy_is_given_no_long_list_of_types(monkeypatch):
    # It would make a type of a million parts of it, in half a minute.
    asked = []
    monkeypatch.setattr(wire.np, "dtype", asked.append)
    with pytest.raises(wire.WireError):
        wire.unpack(frame(b'{"array": ["' + b"(1,)i1," * 500_000 + b'", [1]]}', bytes(8)))
    assert asked == []


@pytest.mark.parametrize(
    "values",
    [
        (np.array(10**6),),
        (np.array([[10**6]], dtype=np.uint32),),
        (np.zeros((4097,)),),
        (np.zeros((1,) * 7),),
        (np.zeros((64, 1, 64, 1)), np.zeros((1, 64, 64, 1))),
        (np.zeros((4096, 1)), np.zeros((4096, 1))),
        (np.zeros((0, 10**9)),),
        ([np.zeros((1024, 1)), np.zeros((1, 4096))],),
        (10**6,),
        (float("nan"),),
        ("x" * 1000,),
        ([0] * 65,),
        ({"a": 1},),
    ],
)
def test_the_grader_lends_no_function_to_huge_work(values):
    called = []
    answer = verdict._served(
        {"lent": lambda *args: called.append(args)}, {"ask": "lent", "args": values, "kwargs": {}}
    )
    assert set(answer) == {"raise"} and called == []


@pytest.mark.parametrize("size", [30000.0, np.array(30000.0), np.array([3e4])])
def test_a_lent_function_takes_little_memory_whatever_says_the_size(size):
    def lent(n):
        return np.ones((int(np.ravel(n)[0]), 30000), dtype=bool)

    before = resource.getrlimit(resource.RLIMIT_AS)
    answer = verdict._served({"lent": lent}, {"ask": "lent", "args": [size], "kwargs": {}})
    assert "Unable to allocate" in answer["raise"]
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_the_grader_lends_to_honest_work():
    sizes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7))
    values = [np.ones(size) for size in sizes]
    answer = verdict._served(
        {"lent": lambda *args: 1.0}, {"ask": "lent", "args": values, "kwargs": {"heads": 3}}
    )
    assert set(answer) == {"raise"} and "heads" in answer["raise"]
    assert verdict._served({"lent": lambda *args: 1.0}, {"ask": "lent", "args": values, "kwargs": {}}) == {
        "answer": 1.0
    }


@pytest.mark.parametrize("name", [path.name.split(".")[0] for path in sorted(text.FOLDER.glob("*.myst.md"))])
def test_no_composition_lends_what_can_be_made_of_the_function_under_test(name, monkeypatch):
    monkeypatch.setattr(text, "FOLDER", settings.REPOSITORY / "course" / "assignments")
    assignment = text.load(name)
    order = [
        found
        for cell in assignment.of_kind("answer")
        for found in re.findall(r"^def (\w+)", cell.source, re.M)
    ]
    for cases in verdict.cases(assignment, "any").values():
        for case in cases:
            lent = [order.index(piece) for piece in case.stand_ins if piece in order]
            assert case.name not in order or max(lent, default=-1) < order.index(case.name), case.name


def test_a_test_is_not_asked_property_by_property():
    # After the first property it would know all that is right.
    assignment = text.load(NAME)
    judged = verdict.cases(assignment, "any")["judged"]
    questions = {"count": verdict.cases(assignment, "any")["count"], "one": judged * 4, "two": judged * 4}
    asked = verdict._mixed(questions, "any")
    assert asked[0][0] == "count" and asked == verdict._mixed(questions, "any")
    names = [name for name, _ in asked[1:]]
    assert names.count("one") == names.count("two") == 12 and len(set(names[:12])) == 2
    assert all(any(case is one for one in questions[name]) for name, case in asked)


FRAME = """
import gc, sys, wire
import numpy as np
quiet = getattr(sys.modules.get("attnlib.show"), "__all__", None) == []
stream = next(thing for thing in gc.get_objects() if type(thing).__name__ == "BufferedRWPair")
if {when}:
    wire.send(stream, {frame})
"""


@pytest.mark.parametrize(
    ("when", "frame"),
    [
        ("not quiet", "{'cell': 0.0, 'outputs': '[]'}"),
        ("True", "{'cell': np.zeros(3), 'outputs': '[]', 'starts': np.zeros(3)}"),
        ("not quiet", "{'cell': 0, 'outputs': np.zeros(3), 'note': np.zeros(3)}"),
        ("not quiet", "{'again': 0, 'outputs': '[]'}"),
        ("quiet", "{'cell': 0, 'problem': 5}"),
        ("quiet", "{'cell': 0, 'problem': np.ones(3)}"),
    ],
)
def test_a_frame_of_odd_types_ends_the_students_process_and_not_the_grading(room, when, frame):
    notebook = solved(NAME)
    code = FRAME.replace("{when}", when).replace("{frame}", frame)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(code))
    assert room.grade("odd-frames", notebook).record["status"] == "graded"


def test_a_reply_is_a_value_or_an_error():
    assert verdict._reply({"value": 1, "error": 5}) == {"value": 1}


def test_an_exit_status_tells_the_student_nothing(room):
    exits = "def softmax(x):\n    import os\n    os._exit(int(abs(x.flat[0]) * 100) % 200 + 1)"
    seen = room.grade("telling", solved(NAME, softmax=exits))
    assert seen.notebook.metadata["course"]["marks"]["rows"]["reason"] == "it ended the Python process"


def shown(*outputs):
    return hooks._outputs(json.dumps(outputs))


def test_outputs_are_text_and_pictures_of_bounded_size():
    both = {"text/plain": "x", "text/html": "<script>", "image/png": 'AA"><script>', "image/jpeg": "AAAA"}
    (kept,) = shown({"output_type": "display_data", "data": both, "metadata": {"x": 1}})
    assert kept == {
        "output_type": "display_data",
        "data": {"text/plain": "x", "image/jpeg": "AAAA"},
        "metadata": {},
    }
    (kept,) = shown({"output_type": "stream", "name": "stdout", "text": "half \ud800"})
    assert kept["text"] == "half ?"
    assert shown({"output_type": "points", "points": 10}, ["no"], None) == []
    for listing in ("x" * (hooks.CELL_ROOM + 1), json.dumps(["x" * hooks.CELL_ROOM]), "[" * 10**5, "{", "3"):
        (kept,) = hooks._outputs(listing)
        assert kept["text"].startswith("[this cell's output could not be read]")
    for kind in (
        {"output_type": "stream", "name": "stdout", "text": [""] * 10},
        {"output_type": "error", "ename": "E", "evalue": "", "traceback": [""] * 1000},
    ):
        (kept,) = shown(kind)
        assert kept["text"].startswith("[this cell's output could not be read]")
    for damaged in ({"data": []}, {"data": {"image/png": ["AA"]}}, {"data": {"text/plain": {"a": 1}}}):
        (kept,) = shown({"output_type": "display_data", **damaged})
        assert kept.get("text", "").startswith("[this cell") or kept["data"] == {}, kept


# --- the table ----------------------------------------------------------------------------------------------


def test_the_guide_shows_this_table():
    assert json.loads(attacks.RECORD.read_text(encoding="utf-8")) == attacks.table()


def test_every_kind_of_attack_is_there():
    kinds = {attack.kind for attack in ATTACKS}
    wanted = (
        "reading, gradebook, network, escape, survivors, memory, disk, processes, endless loops, exits, "
        "shadowed modules, replaced functions, hooks, forged points, forged frames, edited checks, "
        "huge output, script in answers, damaged files"
    )
    assert kinds >= set(wanted.split(", "))
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 30
    assert all(one.tries.endswith(".") and one.stopped_by.endswith(".") for one in ATTACKS)


# --- what a mark hangs on -----------------------------------------------------------------------------------


def test_a_given_function_that_is_defined_again_is_flagged(monkeypatch):
    monkeypatch.setattr(text, "FOLDER", settings.REPOSITORY / "course" / "assignments")
    assignment = text.load("5_triton_kernel")
    notebook = planting.submission(assignment)
    assert hooks.replaced(assignment, notebook, {"softmax_rows", "flash_rows"}) == []
    notebook.cells.append(
        nbformat.v4.new_code_cell("flash_rows = torch.softmax\ndef x(softmax_rows=1): pass")
    )
    for cell in notebook.cells:
        if attacks.grading(cell).get("grade_id") == "answer-softmax_kernel":
            cell.source = cell.source.replace("@triton.jit", "@Fake")
    assert hooks.replaced(assignment, notebook, {"softmax_rows", "flash_rows"}) == [
        "answer `softmax_kernel`: the line @triton.jit is gone",
        "flash_rows, which is given, is defined again",
    ]

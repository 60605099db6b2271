"""Files that students hand in: read without trust, and what was not the student's to change put back.

:func:`read` makes a sound notebook of an untrusted file or says, to the student, why it cannot. Then
:func:`restore` makes it an answer to an assignment: texts, given cells and checks as released.
"""

import copy
import itertools
import json
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from . import text

MOST_MB = 25
# No honest notebook comes near these; together they bound the time and memory that one file can cost.
MOST_CELLS, MOST_CHARACTERS, MOST_DEPTH, MOST_PARTS = 2000, 2_000_000, 100, 1_000_000
WANTED = f"Wanted: a Jupyter notebook (a file .ipynb, format 4, UTF-8, at most {MOST_MB} MB)."
AGAIN = "Open your notebook in JupyterLab, save it, and hand in that .ipynb file."
MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "an empty zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
}
TYPES = ("code", "markdown", "raw")
OUTPUTS = ("display_data", "error", "execute_result", "stream")
# What the grader reads of a cell's metadata, beside its name.
GRADING = ("grade", "locked", "points", "solution", "task")
IDENTITY = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SURROGATES = re.compile("[\ud800-\udfff]")
PICTURES = ("image/png", "image/jpeg")
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


class Refused(Exception):
    """A file that cannot be graded; the text tells the student what was got, what was wanted, what to do."""

    def __init__(self, got, do=AGAIN, wanted=WANTED):
        super().__init__(f"{got} {wanted} {do}")


# --- reading --------------------------------------------------------------------------------------------


def read(path):
    """A notebook out of an untrusted file.

    Parameters
    ----------
    path : path

    Returns
    -------
    notebook : NotebookNode
        Valid, of format 4.5, for the kernel python3; without outputs, and of the cells' metadata only what
        names them to the grader.
    notes : list of str
        What had to be mended, in words for the student; empty for a notebook as Jupyter saves it.

    Raises
    ------
    Refused
        If the file is no notebook, or too large or too damaged to be read as one.
    """
    try:
        return _notebook(_content(Path(path)))
    except (RecursionError, MemoryError):
        raise Refused("The file is nested too deeply or is too large to be read.") from None


def _content(path):
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise Refused(f"{path.name} is a folder or a link, not a file.")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_MB * 2**20 + 1)
    except FileNotFoundError:
        raise Refused(f"There is no file {path.name}.", "Hand in your notebook under this name.") from None
    except OSError as error:
        raise Refused(f"{path.name} cannot be read: {error.strerror}.") from None
    if len(content) > MOST_MB * 2**20:
        do = (
            "Clear the outputs (in JupyterLab: Edit, Clear Outputs of All Cells), save, and hand it in again."
        )
        raise Refused(f"The file has more than {MOST_MB} MB.", do)
    return content


def _notebook(content):
    notes = []
    data = _parsed(_decoded(content, notes))
    if not isinstance(data, dict) or type(data.get("nbformat")) is not int:
        raise Refused("The file is JSON, and no notebook: it does not say its notebook format.")
    version, minor = data["nbformat"], data.get("nbformat_minor")
    if version != 4:
        older = (
            "Open it in a current JupyterLab, which turns it into format 4; save it, and hand it in again."
        )
        raise Refused(f"The notebook is of format {said(version)}.", older if version < 4 else AGAIN)
    if not isinstance(data.get("cells"), list):
        raise Refused("The notebook has no list of cells.")
    if len(data["cells"]) > MOST_CELLS:
        raise Refused(f"The notebook has {len(data['cells'])} cells; at most {MOST_CELLS} can be graded.")
    if type(minor) is not int or minor < 0 or minor > 5:
        notes.append(f"The notebook's format is said to be 4.{said(minor)}; it was read as 4.5.")
        minor = 5
    elif minor < 5:
        notes.append(f"The notebook is of the older format 4.{minor}; its cells were given ids.")
    _metadata(data, notes)
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": text.KERNEL, "language_info": {"name": "python"}}
    )
    mended = {}
    notebook.cells = [_cell(cell, number, mended) for number, cell in enumerate(data["cells"], 1)]
    if (length := sum(len(cell.source) for cell in notebook.cells)) > MOST_CHARACTERS:
        do = "Take out what is not needed (pasted data, pictures as text), save, and hand it in again."
        raise Refused(f"Its cells hold {length} characters; at most {MOST_CHARACTERS} can be graded.", do)
    used = set()
    for number, (cell, source) in enumerate(zip(notebook.cells, data["cells"], strict=True), 1):
        cell.id = _fresh(source.get("id"), used)
        if minor >= 5 and cell.id != source.get("id"):
            mended.setdefault("had no id of its own and was given one", []).append(number)
    notes += [f"Cell {few(numbers)} {what}." for what, numbers in mended.items()]
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError:
        raise Refused("The notebook is damaged.") from None
    return notebook, notes


def _decoded(content, notes):
    for magic, kind in MAGIC.items():
        if content.startswith(magic):
            raise Refused(
                f"The file is {kind}, whatever its name says.", "Hand in the notebook itself, as it is."
            )
    encoding = json.detect_encoding(content)
    try:
        words = content.decode(encoding)
    except UnicodeDecodeError:
        raise Refused("The file's characters are not UTF-8.") from None
    if not words.strip():
        raise Refused("The file is empty.")
    if not encoding.startswith("utf-8"):
        notes.append(f"The file was in {encoding.upper()}; it was read as if saved in UTF-8.")
    return words


def _parsed(words):
    if words.count("[") + words.count("{") > MOST_PARTS:
        raise Refused("The file has more parts than any notebook.")
    try:
        data = json.loads(words)
    except ValueError as error:
        raise Refused(*_instead(words, error)) from None
    # Level by level, not by recursion: this is what must not end in a RecursionError later.
    level = [data]
    for _ in range(MOST_DEPTH):
        inner = (
            part.values() if isinstance(part, dict) else part
            for part in level
            if isinstance(part, (dict, list))
        )
        level = [part for parts in inner for part in parts]
    if level:
        raise Refused(f"The file is nested more than {MOST_DEPTH} levels deep.")
    return data


def _instead(words, error):
    """What a file is that is not JSON, and what to do about it."""
    start = words.lstrip()[:200].lower()
    if re.search(r"^(<<<<<<<|>>>>>>>) ", words, re.M):
        return "The file has the marks of a merge conflict (<<<<<<<).", "Settle the conflict; then: " + AGAIN
    if start.startswith(("<!doctype html", "<html")):
        return (
            "The file is a web page (HTML), not the notebook.",
            "Download the notebook as .ipynb and hand that in.",
        )
    if start.startswith(("{", "[")):
        if not isinstance(error, json.JSONDecodeError):
            return ("The file has a number with thousands of digits.",)
        if error.pos >= len(words.rstrip()) or error.msg.startswith("Unterminated"):
            return "The file ends in the middle: the upload was cut off.", "Hand it in again. " + AGAIN
        return (f"The file is damaged in line {error.lineno} (it is not JSON there).",)
    if re.search(r"^(import |from \w+ import |def |class |# %%)", words, re.M):
        return "The file is a Python program.", "Hand in the notebook, not code exported from it."
    return (f"The file is no notebook; it begins with {said(start)!r}.",)


def _metadata(data, notes):
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        kind = "is missing" if metadata is None else f"is a {type(metadata).__name__}"
        notes.append(f"The notebook's metadata {kind}; it was replaced.")
        return
    kernel = metadata.get("kernelspec")
    name = kernel.get("name") if isinstance(kernel, dict) else kernel
    if name not in (None, text.KERNEL["name"]):
        notes.append(f"The notebook names the kernel {said(name)}; it is run with {text.KERNEL['name']}.")


def _cell(cell, number, mended):
    def mend(what):
        mended.setdefault(what, []).append(number)

    if not isinstance(cell, dict):
        raise Refused(f"Cell {number} of the notebook is no cell.")
    kind, source, metadata = cell.get("cell_type"), cell.get("source"), cell.get("metadata")
    if kind not in TYPES:
        raise Refused(f"Cell {number} is of the type {said(kind)}, which is none of {', '.join(TYPES)}.")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise Refused(f"Cell {number} holds no text.")
    # IPython's own commands take no other line ends.
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    if SURROGATES.search(source):
        source = SURROGATES.sub("\ufffd", source)
        mend("had broken characters, which were replaced")
    if not isinstance(metadata, dict):
        mend("had no sound metadata, which was dropped")
    made = _empty(kind, source)
    if grading := _grading(cell):
        made.metadata.nbgrader = NotebookNode(grading)
    if kind == "code" and not _sound(cell.get("outputs")):
        mend("had damaged outputs, which do not count anyway")
    if kind == "markdown" and (pictures := _pictures(cell.get("attachments"))):
        made.attachments = nbformat.from_dict(pictures)
    return made


def _empty(kind, source):
    more = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return NotebookNode(cell_type=kind, source=source, metadata=NotebookNode(), **more)


def _grading(cell):
    """What nbgrader's part of a cell's metadata says, as far as it is text, numbers or truth values."""
    metadata = cell.get("metadata")
    grading = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    if not isinstance(grading, dict):
        return {}
    keys = ("grade_id", *GRADING)
    values = {key: grading[key] for key in keys if isinstance(grading.get(key), (str, int, float))}
    return {
        key: SURROGATES.sub("\ufffd", value) if isinstance(value, str) else value
        for key, value in values.items()
    }


def _sound(outputs):
    return isinstance(outputs, list) and all(
        isinstance(output, dict) and output.get("output_type") in OUTPUTS for output in outputs
    )


def _pictures(attachments):
    """Pasted pictures stay: a written answer may be a photograph of a page."""
    kept = {}
    for name, bundle in attachments.items() if isinstance(attachments, dict) else ():
        for kind in PICTURES if isinstance(bundle, dict) else ():
            if isinstance(bundle.get(kind), str) and BASE64.fullmatch(bundle[kind]):
                kept[SURROGATES.sub("\ufffd", name)] = {kind: bundle[kind]}
    return kept


def _fresh(identity, used):
    """This id if it is one and nobody has it, else a new one; either is used from now on."""
    if not (isinstance(identity, str) and IDENTITY.fullmatch(identity) and identity not in used):
        identity = next(name for n in itertools.count(1) if (name := f"cell-{n}") not in used)
    used.add(identity)
    return identity


def said(value, most=40):
    """What somebody wrote, fit to be quoted in a note: short, and nothing that is not seen."""
    words = "".join(letter if letter.isprintable() else "?" for letter in str(value)[: most + 1])
    return words if len(words) <= most else f"{words[: most - 3]}..."


def few(things, most=5):
    """A list in words; the end of a long one is only counted."""
    things = [str(thing) for thing in things]
    shown = ", ".join(things[:most])
    return shown if len(things) <= most else f"{shown} and {len(things) - most} more"


# --- restoring ------------------------------------------------------------------------------------------


def restore(assignment, notebook):
    """Make a student's notebook an answer to `assignment`, in place.

    Afterwards every text, given cell and check stands there exactly once, as released. Answers and written
    answers keep the student's text, extra cells and the order stay, and no cell has metadata but what was
    released. A missing answer cell is not put back: its stub would replace a function written elsewhere.

    Parameters
    ----------
    assignment : text.Assignment
    notebook : NotebookNode
        From :func:`read`, or from nbformat; its metadata becomes the released one.

    Returns
    -------
    list of str
        What was put back, in words for the student; empty if nothing but answers was changed.
    """
    released = text.student_notebook(assignment)
    wanted = {cell.metadata.nbgrader.grade_id: cell for cell in released.cells}
    cells = list(notebook.cells)
    found, by_text = _matched(wanted, cells), {}
    if not any(map(_name, cells)):
        by_text = _matched_by_text(wanted, cells, found)
        found |= by_text
    notes = [] if found else [f"No cell of “{assignment.title}” was recognised: is this the right notebook?"]
    if by_text:
        notes.append(
            "The cells had lost their names, as in some editors they do; they were known by their text"
        )
    notes += _extras(wanted, cells, set(found.values()))
    there = {}
    for name, position in found.items():
        there[name] = cells[position]
        if changes := _changes(cells[position], wanted[name]):
            notes.append(f"{label(wanted[name])} was {' and '.join(changes)} and has been put back")
        _put_back(cells[position], wanted[name])
    before = None
    for name, release in wanted.items():
        if name not in there:
            is_answer = _role(release) == "answer"
            if found:
                gone = "has no cell of its own any more; what other cells define counts"
                notes.append(f"{label(release)} {gone if is_answer else 'was missing and has been put back'}")
            if is_answer:
                continue
            there[name] = copy.deepcopy(release)
            place = next((place for place, cell in enumerate(cells, 1) if cell is before), 0)
            cells.insert(place, there[name])
        before = there[name]
    used = {cell.id for cell in there.values()}
    ours = {id(cell) for cell in there.values()}
    for cell in cells:
        if id(cell) not in ours:
            cell.id = _fresh(cell.get("id"), used)
    notebook.cells = cells
    notebook.metadata = copy.deepcopy(released.metadata)
    notebook.nbformat, notebook.nbformat_minor = released.nbformat, released.nbformat_minor
    return notes


def label(release):
    """What a released cell is called in a note."""
    name = release.metadata.nbgrader.grade_id
    role = _role(release)
    if role in ("answer", "check", "question"):
        return f"{role} `{name.removeprefix('answer-') if role == 'answer' else name}`"
    begins = next((line.strip("# ") for line in release.source.split("\n") if line.strip("# ")), name)
    return f"the {role} that begins “{said(begins)}”"


def _role(release):
    grading = release.metadata.nbgrader
    if grading.solution:
        return "question" if grading.grade else "answer"
    return "check" if grading.grade else "given code" if release.cell_type == "code" else "text"


def _matched(wanted, cells):
    """Released name → position of the student's cell for it."""
    named, unnamed = {}, {}
    for position, cell in enumerate(cells):
        name = _name(cell)
        if name is None:
            unnamed.setdefault(cell.get("id"), position)
        else:
            named.setdefault(name, []).append(position)
    found = {}
    for name, release in wanted.items():
        if name in named:
            # Of several, the first that looks most like it.
            found[name] = max(
                named[name], key=lambda position, release=release: _fit(cells[position], release)
            )
        elif release.id in unnamed:
            # Some editors drop metadata and keep ids. A changed locked cell may be the student's own text.
            cell = cells[unnamed[release.id]]
            if release.metadata.nbgrader.solution or _bare(cell.source) == _bare(release.source):
                found[name] = unnamed[release.id]
    return found


def _matched_by_text(wanted, cells, found):
    """The rest of :func:`_matched`, where a notebook was saved without names and ids, as by Colab.

    Locked cells are those with just their text, an answer the first cell that defines its names, and a
    written answer what stands in its place.
    """
    free = [position for position in range(len(cells)) if position not in found.values()]
    new, below = {}, -1

    def take(name, fits):
        position = next((position for position in free if fits(position, cells[position])), None)
        if position is not None:
            free.remove(position)
            new[name] = position

    for name, release in wanted.items():
        if name not in found and not release.metadata.nbgrader.solution:
            take(name, lambda _, cell, release=release: _bare(cell.source) == _bare(release.source))
    # One text at least: else it is another notebook.
    for name, release in wanted.items() if new else ():
        role = _role(release)
        if name not in found and role == "answer":
            names = "|".join(re.findall(r"^(?:def +)?(\w+)(?= *[=(])", release.source, re.M)) or "$."
            defines = re.compile(rf"^(def +)?({names}) *[=(,]", re.M)
            take(
                name,
                lambda _, cell, defines=defines: cell.cell_type == "code" and defines.search(cell.source),
            )
        elif name not in found and role == "question":
            take(name, lambda at, cell, low=below: at == low + 1 and cell.cell_type == "markdown")
        below = (found | new).get(name, below)
    return new


def _name(cell):
    name = _grading(cell).get("grade_id")
    return name if isinstance(name, str) else None


def _fit(cell, release):
    typed = cell.cell_type == release.cell_type
    same = _bare(cell.source) == _bare(release.source)
    worked = bool(cell.source.strip()) and not same
    role = _role(release)
    return (typed, worked) if role == "answer" else (worked, typed) if role == "question" else (same, typed)


def _bare(source):
    """A cell's text without what editors change by themselves: line ends and spaces before them."""
    return "\n".join(line.rstrip() for line in source.split("\n")).strip("\n")


def _changes(cell, release):
    """What was done to a released cell, in words."""
    changes = []
    if _role(release) not in ("answer", "question") and _bare(cell.source) != _bare(release.source):
        changes.append("changed")
    if cell.cell_type != release.cell_type:
        changes.append(f"made a {cell.cell_type} cell")
    # A cell known by its id alone has lost all of this, by no fault of the student's.
    is_now, was = _grading(cell), release.metadata.nbgrader
    if is_now and any(is_now.get(key) != was.get(key) for key in GRADING):
        changes.append(
            "given other points" if is_now.get("points") != was.get("points") else "marked otherwise"
        )
    return changes


def _put_back(cell, release):
    if not release.metadata.nbgrader.solution:
        cell.clear()
        cell.update(copy.deepcopy(release))
        return
    if cell.cell_type != release.cell_type:
        source = cell.source
        cell.clear()
        cell.update(_empty(release.cell_type, source))
    cell.id, cell.metadata = release.id, copy.deepcopy(release.metadata)


def _extras(wanted, cells, taken):
    """Make every other cell an ordinary one; what is said about those that claimed to be more."""
    twice, unknown = {}, []
    for position, cell in enumerate(cells):
        if position in taken:
            continue
        name = _name(cell)
        if name in wanted:
            twice[name] = twice.get(name, 1) + 1
        elif _grading(cell):
            unknown.append(f"`{said(name)}`" if name else "one without a name")
        cell.metadata = NotebookNode()
    notes = [
        f"{label(wanted[name])} was there {count} times; all but one count as ordinary cells"
        for name, count in twice.items()
    ]
    if unknown:
        notes.append(f"cells that are not of this assignment count as ordinary ones: {few(unknown)}")
    return notes

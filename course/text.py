"""One text per assignment, and the notebooks made from it: for students, for nbgrader, for instructors.

The same text gives the same bytes. Solutions stand only in the text and in the solved notebook, and so do
hidden cases, which the grader reads from the text: neither is in a notebook that a student or nbgrader gets.
"""

import ast
import collections
import difflib
import functools
import hashlib
import importlib
import io
import math
import re
import textwrap
import tokenize
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
import numpy as np
from nbgrader.utils import compute_checksum

from . import CourseError

FOLDER = Path(__file__).resolve().parent / "assignments"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
# nbgrader's other markers have cells of their own here: hidden, and rubric.
MARKED = ("solution", "hiddentests", "markscheme")
MARKERS = [edge + what for edge in ("begin", "end") for what in MARKED] + ["autotest", "hashedautotest"]
KINDS = ("setup", "answer", "check", "hidden", "written", "rubric", "choice")
KEYS = {*KINDS, "points", "answers", "tags"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
LETTERS = "abcdefgh"
PLACEHOLDER = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
FROM_ATTNLIB = "core cost counter examples heads masks mistakes online tiled tiled_mistakes".split()


class TextError(CourseError):
    """An assignment's text breaks a rule; the message gives the file, the cell and the rule."""


class Cell(NamedTuple):
    """One cell of an assignment: `kind` is one of :data:`KINDS`, "given" or "text".

    "setup" cells define names for placeholders and hidden cases; they are in no notebook.
    """

    kind: str
    id: str
    source: str
    points: int = 0
    answers: tuple = ()


class Assignment(NamedTuple):
    """An assignment as its text describes it, placeholders computed."""

    name: str
    title: str
    minutes: int
    about: str
    uses: tuple
    seconds: float
    memory_mb: int
    cells: tuple

    @property
    def properties(self):
        """Points of what is graded by the grader: property → points."""
        return {cell.id: cell.points for cell in self.cells if cell.kind in ("check", "choice")}

    @property
    def written(self):
        """Points of what is marked by hand: question → points."""
        return {cell.id: cell.points for cell in self.cells if cell.kind == "written"}

    def of_kind(self, kind):
        return [cell for cell in self.cells if cell.kind == kind]


def names():
    """The assignments, in order."""
    return sorted(path.name.removesuffix(".myst.md") for path in FOLDER.glob("*.myst.md"))


@functools.cache
def load(name):
    """Read and check one assignment's text."""
    path = FOLDER / f"{name}.myst.md"
    if not NAME.fullmatch(name) or not path.exists():
        raise TextError(f"there is no assignment {name!r}; there are {', '.join(names())}")
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="md:myst")
    about = notebook.metadata.get("course", {})
    for key in ("title", "minutes", "about"):
        if key not in about:
            raise TextError(f"{path.name}: the front matter has no course: {key}")
    cells, space = [], dict(namespace())
    for number, cell in enumerate(notebook.cells, 1):
        cells.append(_read_cell(cell, f"{path.name}, cell {number}", space))
    _check(path.name, cells)
    return Assignment(
        name,
        about["title"],
        about["minutes"],
        about["about"],
        tuple(about.get("uses", ())),
        float(about.get("seconds", 60)),
        int(about.get("memory_mb", 2048)),
        tuple(cells),
    )


def _read_cell(cell, where, space):
    def fill_in(source):
        return fill(source, where, space)

    _check_markers(cell, where)
    kinds = [kind for kind in KINDS if kind in cell.metadata]
    if unknown := set(cell.metadata) - KEYS:
        # Misspelled, it would be a given cell: what is hidden would be handed out.
        raise TextError(f"{where}: {', '.join(sorted(unknown))} is no kind of cell: {', '.join(KINDS)}")
    if len(kinds) > 1:
        raise TextError(f"{where} is both {kinds[0]} and {kinds[1]}")
    if not kinds:
        return Cell("given" if cell.cell_type == "code" else "text", "", fill_in(cell.source))
    (kind,) = kinds
    if kind == "setup":
        exec(compile(cell.source, where, "exec"), space)  # the course's own text
        return Cell("setup", "", cell.source)
    identity, points = str(cell.metadata[kind]), int(cell.metadata.get("points", 0))
    if not re.fullmatch(r"[a-z][a-z0-9_]*", identity):
        raise TextError(f"{where}: {identity!r} is no name: small letters, digits and _")
    if (kind in ("check", "written", "choice")) != (points > 0):
        raise TextError(f"{where}: a {kind} cell {'needs' if points <= 0 else 'has no'} points")
    if (cell.cell_type == "code") != (kind in ("answer", "check", "hidden")):
        raise TextError(f"{where}: a {kind} cell cannot be {cell.cell_type}")
    answers = ()
    if kind == "choice":
        answers = tuple(
            (fill_in(str(text)), fill_in(why) if why else None) for text, why in cell.metadata["answers"]
        )
        if sum(why is None for _, why in answers) != 1:
            raise TextError(f"{where}: {identity} needs exactly one right answer (null)")
        if len({text for text, _ in answers}) != len(answers):
            raise TextError(
                f"{where}: {identity} offers the same answer twice: {[text for text, _ in answers]}"
            )
    source = cell.source if kind in ("hidden", "answer") else fill_in(cell.source)
    return Cell(kind, identity, source, points, answers)


def _check_markers(cell, where):
    """Refuse every marker but pairs of :data:`BEGIN` and :data:`END`, each a comment alone on its line."""
    lines, is_answer = cell.source.split("\n"), "answer" in cell.metadata and cell.cell_type == "code"
    found = [number for number, line in enumerate(lines) if _is_marker(line, cell.cell_type == "code")]
    for number in found:
        line = lines[number].strip()
        place = f"{where}, line {number + 1}: {line[:60]!r}"
        if not is_answer:
            raise TextError(f"{place} stands outside an answer cell, so it would hide nothing")
        if line not in (BEGIN, END):
            raise TextError(f"{place} is no marker; wanted {BEGIN} or {END}, alone on its line")
    if not is_answer:
        return
    comments = _comments(cell.source, where)
    if inside := [number for number in found if number not in comments]:
        raise TextError(f"{where}, line {inside[0] + 1}: {lines[inside[0]].strip()!r} stands inside a text")
    if not found:
        raise TextError(f"{where}: {cell.metadata['answer']} needs {BEGIN} and {END}")
    for turn, number in enumerate([*found, None]):
        wanted = (BEGIN, END)[turn % 2]
        if number is None and wanted is END:
            raise TextError(f"{where}, line {found[-1] + 1}: no {END} comes after this {BEGIN}")
        if number is not None and lines[number].strip() != wanted:
            raise TextError(f"{where}, line {number + 1}: {lines[number].strip()}, wanted {wanted} here")
    for begin, end in zip(found[::2], found[1::2], strict=True):
        if _indent(lines[begin]) != _indent(lines[end]):
            raise TextError(f"{where}, line {end + 1}: {END} is not indented as its {BEGIN} is")
        if not any(line.strip() for line in lines[begin + 1 : end]):
            raise TextError(f"{where}, line {end + 1}: nothing stands between {BEGIN} and {END}")
    try:
        ast.parse(stub(cell.source))
    except SyntaxError as error:
        what = f"without its solution the cell is no Python: {error.msg} (line {error.lineno})"
        raise TextError(f"{where}, line {found[0] + 1}: {what}") from None


def _is_marker(line, is_code):
    """Whether a line has a marker in it, or something that was meant to be one.

    In code that is every line that begins with ``###``, and every short comment on a solution.
    """
    letters, comment = _letters(line), _letters(line.partition("#")[2]) if is_code else ""
    return (
        is_code
        and line.strip().startswith("###")
        or any(marker in letters for marker in MARKERS[:-2])
        or ("solution" in comment and len(comment) < 24)
        or any(difflib.get_close_matches(words, MARKERS, 1, 0.8) for words in (letters, comment))
    )


def _letters(line):
    return "".join(letter for letter in line.lower() if letter.isalpha())


def _comments(source, where):
    """The numbers, from 0, of the lines on which a comment stands alone."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        ast.parse(source)
    except (SyntaxError, tokenize.TokenError) as error:
        raise TextError(f"{where} is no Python: {error.args[0]}") from None
    comments = (token for token in tokens if token.type == tokenize.COMMENT)
    return {token.start[0] - 1 for token in comments if token.line.strip() == token.string.strip()}


def _indent(line):
    return line[: len(line) - len(line.lstrip())]


def _check(name, cells):
    for kinds in (("answer", "choice"), ("check", "choice", "written"), ("rubric",)):
        found = [cell.id for cell in cells if cell.kind in kinds]
        twice = sorted({identity for identity in found if found.count(identity) > 1})
        if twice:
            raise TextError(f"{name}: more than one {kinds[0]} cell is called {', '.join(twice)}")
    ids = {kind: {cell.id for cell in cells if cell.kind == kind} for kind in KINDS}
    if missing := ids["check"] ^ ids["hidden"]:
        raise TextError(
            f"{name}: a check without hidden cases, or the other way round: {', '.join(sorted(missing))}"
        )
    if missing := ids["written"] ^ ids["rubric"]:
        raise TextError(
            f"{name}: a question without a rubric, or the other way round: {', '.join(sorted(missing))}"
        )


# --- numbers computed when a notebook is made -----------------------------------------------------------


def fill(source, where, space):
    """Put the value of each ``{{ expression }}`` in its place; setup cells before it give the names."""

    def value(match):
        try:
            return str(eval(match[1].strip(), space))  # the course's own text
        except Exception as error:
            raise TextError(f"{where}: {{{{{match[1]}}}}}: {type(error).__name__}: {error}") from None

    return PLACEHOLDER.sub(value, source)


@functools.cache
def namespace():
    """What placeholders and hidden cases may use."""
    import attnlib

    space = {name: importlib.import_module(f"attnlib.{name}") for name in FROM_ATTNLIB}
    everything = space["mistakes"].MISTAKES | space["tiled_mistakes"].MISTAKES
    space |= {"attnlib": attnlib, "np": np, "math": math, "r": rounded}
    space["wrong"] = lambda name: everything[name].numbers()[1]
    space["right"] = lambda name: everything[name].numbers()[0]
    return space


def rounded(x, digits=4):
    """A number or an array as a literal: rounded, no -0.0."""
    values = np.round(np.asarray(x, dtype=np.float64), digits) + 0.0
    return (
        repr(values.tolist())
        .replace("-inf", "-np.inf")
        .replace("inf", "np.inf")
        .replace("np.np.", "np.")
        .replace("nan", "np.nan")
    )


# --- notebooks ------------------------------------------------------------------------------------------


def student_notebook(assignment):
    """What a student gets, and what nbgrader releases: no solution, no hidden case, no output."""
    notebook = _notebook(assignment, solved=False)
    _guard(assignment, notebook)
    return notebook


def _guard(assignment, notebook):
    """The last look before anything leaves: no marker is left, and no line that stood between two."""
    shown = {cell.metadata.nbgrader.grade_id: cell.source.split("\n") for cell in notebook.cells}
    for cell in notebook.cells:
        for line in cell.source.split("\n"):
            if _is_marker(line, cell.cell_type == "code"):
                raise TextError(
                    f"{assignment.name}: {line.strip()[:60]!r} would stand in a student's notebook"
                )
    for cell in assignment.of_kind("answer"):
        # By another rule than :func:`stub`: from a line that has the one word to a line that has the other.
        between, outside, hidden = False, [], []
        for line in cell.source.split("\n"):
            between = between or "beginsolution" in _letters(line)
            (hidden if between else outside).append(line.strip())
            between = between and "endsolution" not in _letters(line)
        made = re.compile(r"raise NotImplementedError\(.*\)|\w+ = None|")
        left = collections.Counter(line.strip() for line in shown[f"answer-{cell.id}"])
        left -= collections.Counter(outside)
        if kept := [line for line in hidden if left[line] and not made.fullmatch(line)]:
            raise TextError(f"{assignment.name}: {cell.id} would show students its solution: {kept[0]!r}")


def solved_notebook(assignment):
    """For instructors: solutions, model answers, rubrics and hidden cases."""
    return _notebook(assignment, solved=True)


def released(assignment):
    """The student notebook's bytes."""
    return dump(student_notebook(assignment))


def dump(notebook):
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4) + "\n"


def stub(source):
    """An answer cell without its solutions: functions raise, names are None."""

    def replace(match):
        indent, body = match[1], textwrap.dedent(match[2])
        if indent:
            return f"{indent}raise NotImplementedError({_before(source, match.start())!r})"
        targets = [
            name.id
            for statement in ast.parse(body).body
            if isinstance(statement, (ast.Assign, ast.AnnAssign))
            for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
            for name in ast.walk(target)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        ]
        return "\n".join(f"{name} = None" for name in targets)

    region = re.compile(
        rf"^([ \t]*){re.escape(BEGIN)}[^\n]*\n(.*?)^[ \t]*{re.escape(END)}[^\n]*$", re.M | re.S
    )
    return region.sub(replace, source)


def _before(source, position):
    """What an unfinished function says: its own name."""
    functions = re.findall(r"^[ \t]*def (\w+)", source[:position], re.M)
    return f"{functions[-1] if functions else 'this part'} is not written yet"


def solution(source):
    """An answer cell with its solutions, without the markers."""
    return "\n".join(line for line in source.split("\n") if line.strip() not in (BEGIN, END))


def _notebook(assignment, solved):
    notebook = nbformat.v4.new_notebook()
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    count = 0
    for cell in assignment.cells:
        for cell_type, source, metadata in _shown(cell, count, solved):
            digest = hashlib.sha256(f"{count}:{cell_type}:{source}".encode()).hexdigest()
            make = nbformat.v4.new_code_cell if cell_type == "code" else nbformat.v4.new_markdown_cell
            made = make(source, id=f"c{count:03d}-{digest[:8]}", metadata=metadata)
            if "nbgrader" in metadata:
                made.metadata["nbgrader"] |= {"cell_type": cell_type, "checksum": compute_checksum(made)}
            notebook.cells.append(made)
            count += 1
    return notebook


def _shown(cell, count, solved):
    """The notebook cells, ``(type, source, metadata)``, that stand for one cell of the text."""
    if cell.kind == "text":
        yield "markdown", cell.source, _locked(f"text-{count:03d}")
    elif cell.kind == "given":
        yield "code", cell.source, _locked(f"given-{count:03d}")
    elif cell.kind == "answer":
        yield "code", (solution if solved else stub)(cell.source), _meta(f"answer-{cell.id}", solution=True)
    elif cell.kind == "check":
        yield "code", cell.source, _locked(cell.id, cell.points)
    elif cell.kind == "written":
        source = cell.source if solved else "*Your answer here.*"
        yield "markdown", source, _meta(cell.id, solution=True, points=cell.points)
    elif cell.kind == "choice":
        options = "\n".join(
            f"- **{letter})** {text}" for letter, (text, _) in zip(LETTERS, cell.answers, strict=False)
        )
        statement = f"{cell.source}\n\n{options}"
        yield "markdown", statement, _locked(f"text-{count:03d}")
        letters = LETTERS[: len(cell.answers)]
        offered = ", ".join(f'"{letter}"' for letter in letters[:-1]) + f' or "{letters[-1]}"'
        value = f'"{right_letter(cell)}"' if solved else "None"
        yield "code", f"{cell.id} = {value}  # {offered}", _meta(f"answer-{cell.id}", solution=True)
        check = (
            f"assert {cell.id} in {tuple(letters)!r}, (\n"
            f'    f"{cell.id} is {{{cell.id}!r}}, wanted the letter of your answer between quotes"\n)'
        )
        yield "code", check, _locked(cell.id, cell.points)
    elif solved and cell.kind == "rubric":
        yield "markdown", f"**Rubric** ({cell.id})\n\n{cell.source}", {}
    elif solved and cell.kind in ("hidden", "setup"):
        fence = f"Hidden cases of `{cell.id}`, run by the grader outside the student's process:\n\n"
        if cell.kind == "setup":
            fence = "Names that hidden cases and computed numbers use; in no student's notebook:\n\n"
        yield "markdown", f"{fence}```python\n{cell.source}\n```", {}


def right_letter(cell):
    return LETTERS[[why is None for _, why in cell.answers].index(True)]


def _meta(identity, *, locked=False, solution=False, points=None):
    grading = {
        "grade": points is not None,
        "grade_id": identity,
        "locked": locked,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    if points is not None:
        grading["points"] = points
    return {"nbgrader": grading}


def _locked(identity, points=None):
    metadata = _meta(identity, locked=True, points=points)
    return metadata | {"deletable": False, "editable": False}


def write(folder, name):
    """Write the student and the solved notebook of one assignment; returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    assignment, paths = load(name), []
    for notebook, suffix in ((student_notebook(assignment), ""), (solved_notebook(assignment), "_solved")):
        path = folder / f"{name}{suffix}.ipynb"
        path.write_text(dump(notebook), encoding="utf-8", newline="\n")
        paths.append(path)
    return paths

"""What nbgrader calls while it grades: put read-only cells back, run in the sandbox, take the verdict."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbgrader import utils
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import NbGraderPreprocessor, SaveAutoGrades

from . import intake, text, verdict
from .sandbox import Ended, Sandbox

OUTPUT_TYPES = {"stream", "display_data", "execute_result", "error"}
# What one cell and one notebook may show, in letters of JSON.
CELL_ROOM, NOTEBOOK_ROOM = 2_000_000, 20_000_000


class Restore(NbGraderPreprocessor):
    """Put the released cells back where a student changed them, and note what was changed."""

    def preprocess(self, notebook, resources):
        where = resources["nbgrader"]
        forget_marks(where["db_url"], where["assignment"], where["student"])
        assignment = text.load(where["assignment"])
        about = notebook.metadata.get("course")
        earlier = about.get("notes") if isinstance(about, dict) else None
        earlier = [str(note) for note in earlier] if isinstance(earlier, list) else []
        notes = intake.restore(assignment, notebook)
        notebook.metadata["course"] = {"notes": [*earlier, *notes]}
        return notebook, resources


class Run(NbGraderPreprocessor):
    """Run the notebook in the sandbox for its outputs, and take the verdict on private inputs."""

    def preprocess(self, notebook, resources):
        assignment = text.load(resources["nbgrader"]["assignment"])
        secret = secret_of(resources["nbgrader"]["db_url"])
        # The points come first; the page has the time that is left.
        found = verdict.grade(assignment, verdict.student_cells(notebook), secret)
        notes = run(assignment, notebook, found)
        about = notebook.metadata.setdefault("course", {})
        about["assignment"], about["title"] = assignment.name, assignment.title
        about["marks"] = {
            name: {"points": mark.points, "of": mark.of, "reason": mark.reason}
            for name, mark in found.marks.items()
        }
        about["notes"] = [*about.get("notes", []), *notes, *found.problems]
        about["flags"] = flags(notebook, found, verdict.told_only_by_the_verdict(assignment, secret))
        asked = {case.name for listed in verdict.cases(assignment, secret).values() for case in listed}
        about["flags"] += replaced(assignment, notebook, asked)
        return notebook, resources


class SaveVerdict(SaveAutoGrades):
    """Write the verdict's points into the gradebook; what is marked by hand stays nbgrader's business."""

    def preprocess(self, notebook, resources):
        self._marks = notebook.metadata["course"]["marks"]
        return super().preprocess(notebook, resources)

    def _add_score(self, cell, resources):
        mark = self._marks.get(cell.metadata["nbgrader"]["grade_id"])
        if mark is None:
            return super()._add_score(cell, resources)
        grade = self.gradebook.find_grade(
            cell.metadata["nbgrader"]["grade_id"], self.notebook_id, self.assignment_id, self.student_id
        )
        grade.auto_score = float(mark["points"])
        # A mark given by hand earlier is kept, and shown to the marker again.
        grade.needs_manual_grade = grade.manual_score is not None
        self.gradebook.db.commit()


class AsText(Preprocessor):
    """For nbgrader's page for marking: what a student wrote is text there, never HTML and never a script."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" and not cell.metadata.get("nbgrader", {}).get("locked"):
            # Before a space neither sign begins anything, and in formulas and code &lt; would show.
            plain = re.sub(r"([<&])(?=[\w/!?#\\])", r"\1 ", cell.source)
            # Markdown takes a backslash before a colon away.
            plain = re.sub(r"(javascript|vbscript|data|file)[\s\\]*:", r"\1&#58; ", plain, flags=re.I)
            cell.cell_type = "markdown"
            cell.source, cell.attachments = _own_pictures(plain, cell.get("attachments", {}))
        return cell, resources


def _own_pictures(source, attachments):
    """Markdown whose only pictures are those that came along; others become links.

    A picture of the web would tell its owner who is looking, and one that is not there ends nbconvert.
    """
    kept = {}

    def own(match):
        pictures = attachments.get(unquote(match["name"] or ""))
        if not pictures:
            return "&#33;" + match[0][1:]
        name = f"picture-{len(kept)}"
        kept[name] = pictures
        return f"![{match['words']}](attachment:{name})"

    picture = r"!\[(?P<words>[^\]\n]*)\]\(attachment:(?P<name>[^\s()<>]+)\)|!(?=\[)"
    return re.sub(picture, own, source), NotebookNode(kept)


def secret_of(db_url):
    """The class's secret lies beside its gradebook."""
    return (Path(db_url.removeprefix("sqlite:///")).parent / "secret.txt").read_text().strip()


def forget_marks(db_url, assignment, student):
    """Take back the grader's earlier marks: what was once reached must not stand if grading now fails.

    Marks and comments given by hand stay. Returns the sum that stood there, None if there was none.
    """
    with Gradebook(db_url) as book:
        try:
            submission = book.find_submission(assignment, student)
        except MissingEntry:
            return None
        grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
        before = [grade.auto_score for grade in grades if grade.auto_score is not None]
        for grade in grades:
            grade.auto_score, grade.needs_manual_grade = None, True
        book.db.commit()
    return sum(before) if before else None


def page_limits(limits, used):
    """What the run for a page may take: what is left of a hand-in's seconds, and a sixth of them at least."""
    seconds = max(limits.seconds - used, limits.seconds / 6)
    return limits._replace(seconds=seconds, cell_seconds=min(limits.cell_seconds, seconds))


def run(assignment, notebook, found):
    """Run all code cells in the sandbox; outputs go into `notebook`, notes for the student come back.

    What had to be stopped when the verdict was `found` is not run a second time.
    """
    limits = page_limits(verdict.limits_of(assignment), found.seconds)
    code = [position for position, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    for position in code:
        notebook.cells[position].outputs, notebook.cells[position].execution_count = [], None
    notes, said, done, again, room = [], {}, set(), set(), NOTEBOOK_ROOM
    for number, why in found.stopped.items():
        notebook.cells[code[number]].metadata["course_note"] = verdict.said(why)[:200]
        done.add(code[number])
    checks = [position for position in code if verdict.is_check(notebook.cells[position])]
    try:
        with Sandbox(limits, assignment.uses) as box:
            cells = [
                [position, notebook.cells[position].source, position in checks]
                for position in code
                if position not in done
            ]
            box.send({"do": "run", "cell_seconds": limits.cell_seconds, "cells": cells})
            while True:
                reply = box.receive(limits.seconds)
                if not isinstance(reply, dict) or "done" in reply:
                    break
                once_more = "again" in reply
                position = reply["again"] if once_more else reply.get("cell")
                # An array is equal to nothing and to everything.
                if type(position) is not int or position not in code or (position in done) != once_more:
                    raise Ended("it answered out of turn")
                if position in again or (once_more and notebook.cells[position].execution_count is None):
                    raise Ended("it answered out of turn")
                (again if once_more else done).add(position)
                cell = notebook.cells[position]
                listing = reply["outputs"] if isinstance(reply.get("outputs"), str) else ""
                room -= min(len(listing), CELL_ROOM)
                cell.outputs = _outputs(listing if room > 0 else "")
                cell.execution_count = cell.execution_count or len(done) - len(found.stopped)
                if isinstance(reply.get("note"), str):
                    cell.metadata["course_note"] = verdict.said(reply["note"])[:200]
                    if not once_more:
                        said.setdefault(cell.metadata["course_note"], []).append(code.index(position) + 1)
    except Ended as error:
        at = next((number for number, place in enumerate(code, 1) if place not in done), len(code))
        notes.append(f"code cell {at}: the run for this page was stopped, {error}")
    notes[:0] = [f"code cell {intake.few(cells)}: {words}" for words, cells in said.items()]
    if again:
        cells = intake.few(code.index(position) + 1 for position in sorted(again))
        notes.append(f"code cell {cells}: run again at the end, since what it uses stands below it")
    missing = [position for position in code if position not in done]
    if missing:
        notes.append(
            f"{len(missing)} of {len(code)} code cells did not run for this page; points do not depend on it"
        )
    return notes


def _outputs(listing):
    """Outputs from an untrusted process: known kinds, valid, of bounded size; anything else is left out."""
    kept = []
    try:
        if not len(listing) <= CELL_ROOM:
            raise ValueError("too large")
        for output in json.loads(listing)[:200]:
            if not isinstance(output, dict) or output.get("output_type") not in OUTPUT_TYPES:
                continue
            if output["output_type"] in ("display_data", "execute_result"):
                output["metadata"] = {}
                output["data"] = {
                    kind: value for kind, value in output["data"].items() if _shown(kind, value)
                }
            if output["output_type"] == "execute_result":
                output["execution_count"] = None
            # nbformat takes a list of lines for a text, and looks at every line of it, at every step.
            if isinstance(output.get("text"), list) or len(output.get("traceback", ())) > 100:
                raise ValueError("too many parts")
            # Halves of characters, which no file can hold, become question marks.
            words = json.dumps(output, ensure_ascii=False).encode("utf-8", "replace")
            output = nbformat.from_dict(json.loads(words))
            nbformat.validator.validate(output, ref="output", version=4, version_minor=5)
            kept.append(output)
    except Exception:
        kept.append(
            nbformat.v4.new_output("stream", name="stdout", text="[this cell's output could not be read]\n")
        )
    return kept


def _shown(kind, value):
    """Text and pictures only: a page for marking shows the rest as it is, and HTML may hold a script."""
    if not isinstance(value, str):
        raise ValueError("too many parts")
    return kind == "text/plain" or kind in intake.PICTURES and bool(intake.BASE64.fullmatch(value))


def flags(notebook, found, told):
    """For the instructor: where a notebook's own check and the verdict disagree, those `told` by it aside."""
    listed = []
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name not in found.marks or name in told or utils.is_solution(cell):
            continue
        # Errors only: a warning on stderr is no failure.
        ran = cell.execution_count is not None
        passed = ran and not any(output.output_type == "error" for output in cell.outputs)
        mark = found.marks[name]
        right = mark.points == mark.of
        if passed and not right:
            listed.append(
                f"{name}: its own check passes, the verdict does not ({mark.reason}; {mark.detail})"
            )
        elif right and ran and not passed:
            listed.append(f"{name}: its own check fails, the verdict passes")
    return listed


def replaced(assignment, notebook, asked):
    """For the instructor: given functions, `asked` for, that are defined again; decorators that are gone."""
    listed, own = [], []
    released = {cell.metadata.nbgrader.grade_id: cell for cell in text.student_notebook(assignment).cells}
    for cell in notebook.cells:
        release = released.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        if cell.cell_type != "code" or release is not None and release.metadata.nbgrader.locked:
            continue
        own.append(cell.source)
        for line in re.findall(r"^@.*$", release.source if release else "", re.M):
            if line not in cell.source:
                listed.append(f"{intake.label(release)}: the line {line} is gone")
    for name in re.findall(r"^def (\w+)", "\n".join(c.source for c in assignment.of_kind("given")), re.M):
        if name in asked and re.search(rf"^\s*(def\s+{name}\b|{name}\s*=[^=])", "\n".join(own), re.M):
            listed.append(f"{name}, which is given, is defined again")
    return listed

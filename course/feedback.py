"""The page a student gets back: points, reasons and the notebook as it was graded, in one file.

What a student wrote comes into an instructor's browser here. So the page has no script, loads nothing, and
has a content policy that forbids both; text is escaped, and only pictures that were checked come along.
"""

import math
from typing import NamedTuple

from nbconvert.exporters import Exporter
from nbgrader.api import Gradebook, MissingEntry
from traitlets import List, default

from .feedback_style import HEAD, POLICY, STYLE
from .harmless import PICTURES, Markdown, as_dict, code_box, esc, image, joined, text_box

RICH_LIMIT = 300_000  # characters of the cells that are read as Markdown or coloured; reading can be slow
PAGE_LIMIT = 16_000_000  # characters of HTML of the whole notebook
ALT = "picture made by this cell"


class FeedbackExporter(Exporter):
    """An autograded notebook as a page; nbgrader's `GetGrades` must have put the scores in."""

    output_mimetype = "text/html"
    # Nothing that a configuration could switch on: no preprocessor of nbconvert's may run the cells again.
    default_preprocessors = List([])

    @default("file_extension")
    def _file_extension_default(self):
        return ".html"

    def from_notebook_node(self, nb, resources=None, **kw):
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        about = as_dict(resources.get("nbgrader"))
        return page(nb, about, by_hand(about)), resources


class Grade(NamedTuple):
    """One graded cell: what it reached of how many points, and why."""

    name: str
    position: int | None
    written: bool
    score: float | None
    of: float | None
    waits: bool
    reason: str
    passes: bool

    @property
    def state(self):
        if self.waits:
            return "waits"
        if self.score is None or self.of is None:
            return "unknown"
        return "right" if self.score >= self.of else "part" if self.score > 0 else "lost"


def by_hand(about):
    """What only the gradebook knows: graded cell → (waits for marking, the mark given by hand or None)."""
    where = [about.get(key) for key in ("notebook", "assignment", "student")]
    if not about.get("db_url"):
        return {}
    with Gradebook(about["db_url"]) as book:
        try:
            notebook = book.find_submission_notebook(*where)
        except MissingEntry:
            return {}
        return {grade.name: (grade.needs_manual_grade, grade.manual_score) for grade in notebook.grades}


def page(notebook, about, hand=None):
    """The whole page as text.

    Parameters
    ----------
    notebook : NotebookNode
        With ``metadata.course`` of the grader and nbgrader's scores and comments in its cells.
    about : dict
        nbgrader's own: ``student``, ``assignment``, ``score``, ``max_score``, ``late_penalty``.
    hand : dict, optional
        As :func:`by_hand` gives it; without it, a written answer without points or comment waits.

    Returns
    -------
    str
        The same input gives the same text.
    """
    course = as_dict(notebook.metadata.get("course"))
    grades = _grades(notebook, as_dict(course.get("marks")), hand)
    title = course.get("title") if isinstance(course.get("title"), str) else ""
    title = title or str(about.get("assignment") or about.get("notebook") or "Assignment")
    student = str(about.get("student") or "")
    notes = course.get("notes")
    notes = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    body = [
        _top(title, student),
        '<main id="main">',
        _points(grades, about),
        _table(grades),
        _comments(notebook),
        _notes(notes),
        _notebook(notebook, grades),
        "</main>",
    ]
    head = HEAD.format(
        policy=POLICY, style=STYLE, title=esc(f"Feedback: {title}" + (f", {student}" if student else ""))
    )
    return head + "\n".join(part for part in body if part) + "\n</body>\n</html>\n"


def _value(number):
    """A finite number, or None."""
    fits = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
    return number if fits else None


def _number(number):
    return "–" if _value(number) is None else f"{round(number, 2) + 0.0:g}"


def _count(number, one, many=None):
    return f"{_number(number)} {one if number == 1 else many or one + 's'}"


def sentence(reason):
    """A grader's reason as a sentence."""
    reason = reason.strip()
    if reason == "it raises NotImplementedError":
        return "It is not written yet."
    if not reason:
        return ""
    return reason[0].upper() + reason[1:] + ("" if reason[-1] in ".!?…" else ".")


# --- points ---------------------------------------------------------------------------------------------


UNCHANGED = "You left this as it was."


def _grading(cell):
    return as_dict(as_dict(cell.get("metadata")).get("nbgrader"))


def _comment(cell):
    """The gradebook's words on an answer: the marker's, or nbgrader's own for an unchanged cell."""
    grading = _grading(cell)
    words = grading.get("comment") if grading.get("solution") or grading.get("task") else None
    words = words.strip() if isinstance(words, str) else ""
    return UNCHANGED if words == "No response." else words


def _grades(notebook, marks, hand):
    found = []
    for position, cell in enumerate(notebook.cells):
        grading = _grading(cell)
        if grading.get("grade") or grading.get("task"):
            found.append(_grade(cell, position, marks, hand))
    seen = {grade.name for grade in found}
    for name, mark in marks.items():
        if name not in seen and isinstance(mark, dict):
            score, of = _value(mark.get("points")), _value(mark.get("of"))
            found.append(Grade(name, None, False, score, of, False, _reason(mark, score, of), False))
    return found


def _grade(cell, position, marks, hand):
    grading = _grading(cell)
    name = str(grading.get("grade_id"))
    written = bool(grading.get("solution") or grading.get("task"))
    score, of = _value(grading.get("score")), _value(grading.get("points"))
    if hand is not None and name in hand:
        waits, given = hand[name]
    else:
        waits, given = written and not score and not _comment(cell), None
    if written:
        reason = _comment(cell)
        if waits:
            reason = f"Still to be marked by hand. {reason}".strip()
        elif not reason:
            reason = "Full points." if score is not None and score == of else "Marked by hand."
    else:
        reason = _checked(as_dict(marks.get(name)), score, of, waits, given)
    return Grade(name, position, written, score, of, bool(waits), reason, _passes(cell))


def _checked(mark, score, of, waits, given):
    """Why a check has its points, where a mark given by hand may stand over the grader's."""
    automatic = _value(mark.get("points"))
    by_hand = given is not None or (not waits and None not in (automatic, score) and automatic != score)
    if not by_hand:
        return "Not graded yet." if waits else _reason(mark, score, of)
    said = ["Your instructor set this mark."]
    if automatic is not None:
        said.append(f"The grader gave {_number(automatic)} of {_number(of)}.")
    if mark.get("reason"):
        said.append(_reason(mark, score, of))
    if waits:
        said.append("It will be looked at once more.")
    return " ".join(said)


def _reason(mark, score, of):
    words = mark.get("reason")
    if isinstance(words, str) and words.strip():
        return sentence(words)
    return "Right." if score is not None and of is not None and score >= of else "No reason was recorded."


def _passes(cell):
    """Whether a check ran in the notebook without complaint."""
    if cell.get("cell_type") != "code" or cell.get("execution_count") is None:
        return False
    return not any(as_dict(output).get("output_type") == "error" for output in cell.get("outputs", []))


def _label(name):
    return esc(name.replace("_", " "))


def _link(grade):
    if grade.position is None:
        return _label(grade.name)
    return f'<a href="#cell-{grade.position + 1}">{_label(grade.name)}</a>'


def _of(grade):
    return f"{'–' if grade.waits and not grade.score else _number(grade.score)} of {_number(grade.of)}"


def _top(title, student):
    skip = '<a class="skip" href="#notebook">Skip to your notebook</a>'
    who = f'\n<p class="who">Feedback for <bdi>{esc(student)}</bdi></p>' if student else ""
    return f"{skip}\n<header>\n<h1>{esc(title)}</h1>{who}\n</header>"


def _points(grades, about):
    waiting = [grade for grade in grades if grade.waits]
    score, of, late = (_value(about.get(key)) for key in ("score", "max_score", "late_penalty"))
    total = f"<strong>{_number(score)}</strong> of {_count(of, 'point')}{' so far' if waiting else ''}"
    said = [f'<p class="total">{total}</p>', _bar(grades), f"<p>{_summary(grades)}</p>"]
    if late:
        said.append(
            f"<p>You earned {_count((score or 0) + late, 'point')}; <strong>{_number(late)}</strong> "
            f"{'was' if late == 1 else 'were'} taken off because the work came in late.</p>"
        )
    if waiting:
        points = _count(sum(grade.of or 0 for grade in waiting), "point")
        said.append(
            f"<p>Still to be marked by hand: {points} in {_count(len(waiting), 'place')} "
            f"({', '.join(map(_link, waiting))}). Your total can still rise.</p>"
        )
    return _section("points", "Your points", "\n".join(part for part in said if part))


def _section(name, title, inside):
    return (
        f'<section id="{name}" aria-labelledby="{name}-title" tabindex="-1">\n'
        f'<h2 id="{name}-title">{title}</h2>\n{inside}\n</section>'
    )


def _bar(grades):
    """One piece for each graded cell, as wide as its points; the words beside it say the same."""
    wide = [max(1, min(12, round(grade.of or 1))) for grade in grades]
    pieces = "".join(f'<i class="w{n} {grade.state}"></i>' for n, grade in zip(wide, grades, strict=True))
    return f'<div class="bar" aria-hidden="true">{pieces}</div>' if grades else ""


def _summary(grades):
    checked = [grade for grade in grades if not grade.written and not grade.waits]
    lost = [grade for grade in checked if grade.state != "right"]
    right = len(checked) - len(lost)
    if not checked:
        return "No check is graded yet."
    if not lost:
        many = f"All {right} checks are" if right > 1 else "The one check is"
        return f"{many} right, also on numbers and sizes that the notebook does not show. Well done."
    if not right:
        many = f"None of the {len(checked)} checks is" if len(checked) > 1 else "The one check is not"
        return f"{many} right yet. Begin with {_link(lost[0])}."
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return (
        f"{right} of {len(checked)} checks are right. Look next at {', '.join(map(_link, lost[:3]))}{more}."
    )


SIGNS = {"right": "✓", "part": "◐", "lost": "✗", "waits": "…", "unknown": "?"}


def _table(grades):
    if not grades:
        return ""
    rows = "\n".join(
        f'<tr><th scope="row">{_link(grade)}</th><td class="figure">{_of(grade)}</td>'
        f'<td class="{grade.state}"><span class="sign" aria-hidden="true">{SIGNS[grade.state]}</span> '
        f'<span class="words">{esc(grade.reason)}</span></td></tr>'
        for grade in grades
    )
    lost = any(grade.state in ("lost", "part") and not grade.written for grade in grades)
    return _section(
        "table",
        "Point by point",
        '<table class="marks">\n<thead><tr><th scope="col">What</th><th scope="col">Points</th>'
        f'<th scope="col">Why</th></tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>'
        + (f"\n<p>{HELP}</p>" if lost else ""),
    )


HELP = (
    "Each check stands for one property and gives all of its points or none. In the notebook it uses some of "
    "the book's numbers; grading calls your functions on other numbers, sizes and masks as well. To find a "
    "mistake, try your function with a batch, with several heads, with more keys than queries, and on a row "
    "that sees one key."
)


def _comments(notebook):
    rows = []
    for position, cell in enumerate(notebook.cells):
        words = _comment(cell)
        if words and words != UNCHANGED and not _grading(cell).get("grade"):
            name = str(_grading(cell).get("grade_id", "")).removeprefix("answer-")
            link = f'<a href="#cell-{position + 1}">{_label(name)}</a>'
            rows.append(f'<li>{link}: <span class="words">{esc(words)}</span></li>')
    return _section("comments", "Comments on your code", _list(rows)) if rows else ""


def _notes(notes):
    rows = [f'<li class="words">{esc(sentence(note))}</li>' for note in notes if note.strip()]
    return _section("notes", "Handing in and running", _list(rows)) if rows else ""


def _list(rows):
    return "<ul>\n" + "\n".join(rows) + "\n</ul>"


# --- the notebook ---------------------------------------------------------------------------------------


def _notebook(notebook, grades):
    graded = {grade.position: grade for grade in grades}
    parts, markdown, left, codes, read = [], Markdown(), PAGE_LIMIT, 0, 0
    for position, cell in enumerate(notebook.cells):
        codes += cell.get("cell_type") == "code"
        read += len(joined(cell.get("source")))
        shown = _cell(cell, position, graded.get(position), markdown, codes, read <= RICH_LIMIT)
        left -= len(shown)
        if left < 0:
            rest = _count(len(notebook.cells) - position, "cell")
            parts.append(f'<p class="note">The page is full: {rest} more not shown.</p>')
            break
        parts.append(shown)
    return _section("notebook", "Your notebook, as it was graded", "\n".join(parts))


def _cell(cell, position, grade, markdown, codes, rich):
    grading, parts = _grading(cell), []
    kind = "given"
    if grade:
        kind = f"graded {grade.state}"
    elif grading.get("solution"):
        kind = "answer"
    elif not grading.get("locked"):
        kind = "added"
    if cell.get("cell_type") == "code":
        name = f"Code cell {codes}"
        parts.append(f'<p class="what">{name}{WHAT.get(kind, "")}</p>')
        parts.append(_mark(grade))
        parts.append(code_box(joined(cell.get("source")), f"{name}, code", rich))
        note = as_dict(cell.get("metadata")).get("course_note")
        parts.append(
            f'<p class="note">{esc(sentence(note))}</p>' if isinstance(note, str) and note.strip() else ""
        )
        parts += _outputs(cell.get("outputs", []), name)
    else:
        if kind != "given":
            parts.append(f'<p class="what">Text{WHAT.get(kind, " · your answer")}</p>')
        parts.append(_mark(grade))
        source = joined(cell.get("source"))
        if cell.get("cell_type") == "markdown":
            text = markdown(source, as_dict(cell.get("attachments")), rich)
            parts.append(f'<div class="text">\n{text}</div>')
        else:
            parts.append(text_box(source, f"cell {position + 1}"))
    if _comment(cell) and not grade:
        parts.append(f'<p class="comment words"><strong>Comment:</strong> {esc(_comment(cell))}</p>')
    inside = "\n".join(part for part in parts if part)
    return f'<div class="cell {kind}" id="cell-{position + 1}">\n{inside}\n</div>'


WHAT = {"given": " · given", "answer": " · your answer", "added": " · added by you"}


def _mark(grade):
    if not grade:
        return ""
    seen = ""
    if grade.state == "lost" and not grade.written and grade.passes:
        seen = " Its check below passes, but grading looks at more than it does."
    return (
        f'<p class="mark {grade.state}"><strong>{_label(grade.name)}: {_of(grade)}</strong> '
        f'<span class="sign" aria-hidden="true">{SIGNS[grade.state]}</span> '
        f'<span class="words">{esc(grade.reason)}</span>{seen} <a href="#points">All points</a></p>'
    )


def _outputs(outputs, name):
    parts, left = [], PAGE_LIMIT // 4
    for number, output in enumerate(outputs, 1):
        shown = _output(as_dict(output), f"{name}, output {number}")
        left -= len(shown) + 100
        if left < 0:
            parts.append(f'<p class="note">{_count(len(outputs) - number + 1, "more output")} not shown.</p>')
            break
        parts.append(shown)
    return parts


def _output(output, label):
    kind = output.get("output_type")
    if kind == "stream":
        stream = " message" if output.get("name") == "stderr" else ""
        return text_box(joined(output.get("text")), label, stream)
    if kind == "error":
        trace = output.get("traceback")
        lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
        # What went wrong first, readable on a phone; where it happened below.
        message = text_box(
            f"{output.get('ename')}: {output.get('evalue')}", f"{label}, message", " error wrapped"
        )
        return message + text_box("\n".join(lines), label)
    data = as_dict(output.get("data"))
    said = ""
    for mime in PICTURES:
        if mime in data:
            picture, problem = image(joined(data[mime]), mime, ALT)
            if picture:
                return picture
            said = f'<p class="note">A picture is not shown: {problem}.</p>'
    if "text/plain" in data:
        return said + text_box(joined(data["text/plain"]), label)
    return said or '<p class="note">An output that has no text form is not shown.</p>'

"""The page a student gets back: points, reasons and the notebook as it was graded, in one file.

What a student wrote comes into an instructor's browser here. So the page has no script, loads nothing, and
has a content policy that forbids both; text is escaped, and only pictures that were checked come along.
"""

import base64
import binascii
import hashlib
import html
import math
import re
import struct
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbconvert.exporters import Exporter
from nbgrader.api import Gradebook, MissingEntry
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from traitlets import List, default

from attnlib.palette import ROLES

ROOT = Path(__file__).resolve().parent.parent
TEXT_LIMIT = 20_000  # characters of one output or one cell
PICTURE_LIMIT = 1_000_000  # bytes of one picture
PIXEL_LIMIT = 40_000_000  # a small file can unpack to more than a browser holds
RICH_LIMIT = 300_000  # characters of the cells that are read as Markdown or coloured; reading can be slow
PAGE_LIMIT = 16_000_000  # characters of HTML of the whole notebook
PICTURES = ("image/png", "image/jpeg")
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
        about = _dict(resources.get("nbgrader"))
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
    course = _dict(notebook.metadata.get("course"))
    grades = _grades(notebook, _dict(course.get("marks")), hand)
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


# --- text that nobody can do anything with but read -----------------------------------------------------

ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|[\x1b\x9b]\[?[0-?]*[ -/]*[@-~]"  # colours, movements
)
# What has no picture of its own or turns the order of what follows. Joiners stay: some scripts need them.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
PATH = re.compile(re.escape(str(ROOT)) + r"(?!\w)")


def plain(text):
    """`text` without terminal codes and this machine's paths, with every unseen character made visible."""
    text = ESCAPES.sub("", text).replace("\r\n", "\n")
    return UNSEEN.sub(_seen, PATH.sub("…", text))


def _seen(match):
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


def esc(text):
    return html.escape(plain(text))


def _cut(text):
    """``(what is shown, note about the rest)`` of a long text."""
    more = len(text) - TEXT_LIMIT
    if more <= 0:
        return text, ""
    return text[:TEXT_LIMIT], f'<p class="note">Cut here: {more:,} more characters are not shown.</p>'


def _joined(value):
    """Text as notebooks store it: one string or a list of lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _dict(value):
    return value if isinstance(value, dict) else {}


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
    return _dict(_dict(cell.get("metadata")).get("nbgrader"))


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
        reason = _checked(_dict(marks.get(name)), score, of, waits, given)
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
    return not any(_dict(output).get("output_type") == "error" for output in cell.get("outputs", []))


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
    parts, markdown, left, codes, read = [], _Markdown(), PAGE_LIMIT, 0, 0
    for position, cell in enumerate(notebook.cells):
        codes += cell.get("cell_type") == "code"
        read += len(_joined(cell.get("source")))
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
        parts.append(_code(_joined(cell.get("source")), f"{name}, code", rich))
        note = _dict(cell.get("metadata")).get("course_note")
        parts.append(
            f'<p class="note">{esc(sentence(note))}</p>' if isinstance(note, str) and note.strip() else ""
        )
        parts += _outputs(cell.get("outputs", []), name)
    else:
        if kind != "given":
            parts.append(f'<p class="what">Text{WHAT.get(kind, " · your answer")}</p>')
        parts.append(_mark(grade))
        source = _joined(cell.get("source"))
        if cell.get("cell_type") == "markdown":
            text = markdown(source, _dict(cell.get("attachments")), rich)
            parts.append(f'<div class="text">\n{text}</div>')
        else:
            parts.append(_text(source, f"cell {position + 1}"))
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


def _box(inside, label, kind=""):
    """Preformatted text that scrolls in its own box, which the keyboard reaches."""
    return f'<pre tabindex="0" role="group" aria-label="{html.escape(label)}"{kind}>{inside}</pre>'


COLOURS = {
    Keyword: "k", Operator.Word: "k", Name.Function: "f", Name.Class: "f", Name.Decorator: "f",
    String: "s", Number: "n", Comment: "c",
}  # fmt: skip


def _code(source, label, rich=True):
    source, more = _cut(plain(source))
    pieces = []
    for kind, piece in (
        PythonLexer(stripnl=False, ensurenl=False).get_tokens(source) if rich else [(None, source)]
    ):
        while kind and kind not in COLOURS:
            kind = kind.parent
        piece = html.escape(piece)
        pieces.append(f'<span class="{COLOURS[kind]}">{piece}</span>' if kind else piece)
    return _box("".join(pieces), label) + more


def _outputs(outputs, name):
    parts, left = [], PAGE_LIMIT // 4
    for number, output in enumerate(outputs, 1):
        shown = _output(_dict(output), f"{name}, output {number}")
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
        return _text(_joined(output.get("text")), label, stream)
    if kind == "error":
        trace = output.get("traceback")
        lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
        # What went wrong first, readable on a phone; where it happened below.
        message = _text(
            f"{output.get('ename')}: {output.get('evalue')}", f"{label}, message", " error wrapped"
        )
        return message + _text("\n".join(lines), label)
    data = _dict(output.get("data"))
    said = ""
    for mime in PICTURES:
        if mime in data:
            picture, problem = _picture(_joined(data[mime]), mime, ALT)
            if picture:
                return picture
            said = f'<p class="note">A picture is not shown: {problem}.</p>'
    if "text/plain" in data:
        return said + _text(_joined(data["text/plain"]), label)
    return said or '<p class="note">An output that has no text form is not shown.</p>'


def _text(text, label, kind=""):
    text, more = _cut(plain(text).rstrip("\n"))
    if not text:
        return ""
    # One line is prose, or short; in several, columns must keep their places.
    wrapped = " wrapped" if "\n" not in text and "wrapped" not in kind else ""
    return _box(html.escape(text), label, f' class="output{kind}{wrapped}"') + more


def _picture(text, mime, alt):
    """``(img element, "")``, or ``("", why not)``, of a picture in base64."""
    text = re.sub(r"\s+", "", text)
    if len(text) > PICTURE_LIMIT * 4 // 3 + 4:
        return "", "it has more than 1 MB"
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "", "it is damaged"
    if len(content) > PICTURE_LIMIT:
        return "", "it has more than 1 MB"
    size = (_png_size if mime == "image/png" else _jpeg_size)(content)
    if size is None or 0 in size:
        return "", f"it is no {mime.removeprefix('image/').upper()} picture"
    width, height = size
    if width * height > PIXEL_LIMIT:
        return "", "it has too many pixels"
    again = base64.b64encode(content).decode("ascii")
    return f'<img src="data:{mime};base64,{again}" alt="{esc(alt)}" width="{width}" height="{height}">', ""


def _png_size(content):
    if len(content) < 24 or content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR":
        return None
    return struct.unpack(">II", content[16:24])


def _jpeg_size(content):
    """Width and height from the frame header, found by going from segment to segment."""
    if content[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        marker, (length,) = content[at + 1], struct.unpack(">H", content[at + 2 : at + 4])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return None


# --- what students write in Markdown --------------------------------------------------------------------

ALLOWED = re.compile(r"(https?://|mailto:)[^\s]+", re.IGNORECASE)


class _Markdown:
    """Markdown as HTML of few kinds: nothing raw, no foreign picture, formulas as they were typed."""

    def __init__(self):
        self.parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False, "maxNesting": 40})
        self.parser.enable(["table", "strikethrough"])
        self.parser.disable("reference")  # a cell full of them takes minutes
        self.parser.use(dollarmath_plugin, allow_labels=False, double_inline=True).use(amsmath_plugin)
        self.parser.validateLink = lambda address: True  # decided below, where words can take its place
        rules = dict.fromkeys(("math_inline", "math_inline_double"), self._formula)
        rules |= dict.fromkeys(("math_block", "amsmath", "fence", "code_block"), self._block)
        rules |= {"table_open": self._table, "table_close": self._table, "image": self._image}
        self.parser.renderer.rules.update(rules)
        self.level = 2

    def __call__(self, source, attachments, rich=True):
        source, more = _cut(plain(source))
        level = self.level
        try:
            if more or not rich:
                raise ValueError("too long to be read as Markdown")
            tokens = self.parser.parse(source)
            self._headings(tokens)
            self._cells(tokens)
            for token in tokens:
                if token.type == "inline":
                    token.children = self._links(token.children)
                elif token.nesting == 1 and token.level >= 6:
                    token.attrJoin("class", "deep")
            return self.parser.renderer.render(tokens, self.parser.options, {"attachments": attachments})
        except Exception:  # a page must come out whatever a cell holds; what was written is shown as it is
            self.level = level
            return f'<p class="words">{html.escape(source)}</p>\n{more}'

    def _headings(self, tokens):
        """Under the page's own headings, and never more than one level deeper than the heading before."""
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                if not _words(tokens[at + 1].children):
                    token.tag = tokens[at + 2].tag = "p"
                    continue
                self.level = min(int(token.tag[1]) + 2, self.level + 1, 6)
                token.tag = tokens[at + 2].tag = f"h{self.level}"

    def _cells(self, tokens):
        """Table cells without inline styles, which the policy forbids, and no header cell without words."""
        for at, token in enumerate(tokens):
            if token.type in ("th_open", "td_open"):
                side = str(token.attrs.get("style", "")).removeprefix("text-align:")
                token.attrs = {"class": f"at-{side}"} if side else {}
                if token.type == "th_open" and not _words(tokens[at + 1].children):
                    token.tag = tokens[at + 2].tag = "td"

    def _links(self, children):
        """Links to the web and to mail addresses; of any other only the words stay."""
        kept, open_links = [], []
        for at, token in enumerate(children):
            if token.type == "link_open":
                address = str(token.attrs.get("href", ""))
                good = ALLOWED.fullmatch(address) is not None and True not in open_links
                open_links.append(good)
                if good:
                    token.attrs = {"href": address, "rel": "nofollow noreferrer noopener"}
                    kept.append(token)
                    if not _words(children[at + 1 : _end(children, at)]):
                        kept.append(Token("text", "", 0, content=address))
            elif token.type == "link_close":
                if open_links.pop():
                    kept.append(token)
            else:
                kept.append(token)
        return kept

    def _formula(self, tokens, at, options, env):
        return f"<code>{html.escape(tokens[at].content)}</code>"

    def _table(self, tokens, at, options, env):
        if tokens[at].nesting < 0:
            return "</table>\n</div>\n"
        return '<div class="wide" tabindex="0" role="group" aria-label="table">\n<table>\n'

    def _block(self, tokens, at, options, env):
        return _box(html.escape(tokens[at].content.strip("\n")), "formula or code") + "\n"

    def _image(self, tokens, at, options, env):
        token = tokens[at]
        alt = self.parser.renderer.renderInlineAsText(token.children or [], options, env)
        name = unquote(str(token.attrs.get("src", ""))).removeprefix("attachment:")
        for mime, content in _dict(env["attachments"].get(name)).items():
            if mime in PICTURES:
                picture, _problem = _picture(_joined(content), mime, alt or "picture in this text")
                if picture:
                    return picture
        return f'<span class="note">[picture not shown{": " if alt else ""}{html.escape(alt)}]</span>'


def _words(children):
    """Whether anything is there to read."""
    return any(child.content.strip() or child.type == "image" for child in children or [])


def _end(children, at):
    """Where the link that opens at `at` closes; links do not nest."""
    return next(n for n in range(at, len(children)) if children[n].type == "link_close")


# --- the page's frame -----------------------------------------------------------------------------------


def _colours(side):
    roles = {"right": "value", "lost": "mistake", "waits": "active", "k": "query", "s": "value", "n": "key"}
    roles |= {"f": "output", "c": "masked"}
    return " ".join(f"--{name}: {ROLES[role][side]};" for name, role in roles.items())


STYLE = (
    ":root { color-scheme: light dark; --page: #ffffff; --box: #f5f6f8; --ink: #222832; --quiet: #4b5565; "
    f"--line: #c9ced6; --link: #0a6577; {_colours(0)} }}\n"
    "@media (prefers-color-scheme: dark) { :root { --page: #14181e; --box: #222832; --ink: #d5dbe3; "
    f"--quiet: #a9b2bf; --line: #48505c; --link: #6cc7d8; {_colours(1)} }} }}\n"
    + """
* { box-sizing: border-box; }
html { background: var(--page); color: var(--ink); -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 48rem; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere;
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 0.18em; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
section:focus { outline: 0; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 0.5rem; padding: 0.4rem 0.8rem; background: var(--page); }
h1, h2, h3, h4, h5, h6 { line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; text-wrap: balance; }
h1 { font-size: clamp(1.7rem, 1.3rem + 2vw, 2.2rem); margin: 0.5rem 0 0; }
h2 { font-size: 1.45rem; margin: 2.5rem 0 0.75rem; }
h3 { font-size: 1.3rem; margin: 1.5rem 0 0.5rem; }
h4 { font-size: 1.15rem; margin: 1.5rem 0 0.5rem; }
h5, h6 { font-size: 1rem; margin: 1.25rem 0 0.5rem; }
p, ul, ol, blockquote { margin: 0.75rem 0; }
.who { margin: 0.25rem 0 0; color: var(--quiet); }
main > section:first-child h2 { margin-top: 1.75rem; }
.total { font-size: 1.35rem; margin: 0 0 0.5rem; }
.total strong { font-size: 2.4rem; line-height: 1.1; letter-spacing: -0.02em; }
.bar { display: flex; gap: 3px; height: 0.9rem; margin: 0 0 1rem; }
.bar i { flex: 1 1 0; border-radius: 2px; border: 2px solid var(--quiet); min-width: 2px; }
.bar .right { background: var(--right); border-color: var(--right); }
.bar .part { border-color: var(--lost);
  background: linear-gradient(to top, var(--lost) 50%, transparent 50%); }
.bar .lost { border-color: var(--lost); }
.bar .waits { border: 2px dotted var(--waits); }
"""
    + "".join(f".bar .w{n} {{ flex-grow: {n}; }}\n" for n in range(2, 13))
    + """.words { white-space: pre-line; }
table { border-collapse: collapse; font-size: 1rem; }
th, td { padding: 0.4rem 0.7rem 0.4rem 0; text-align: left; vertical-align: baseline;
  border-bottom: 1px solid var(--line); }
td:last-child, th:last-child { padding-right: 0; }
th { font-weight: 600; }
.marks { width: 100%; table-layout: fixed; }
.marks th:first-child { width: 30%; }
.marks th:nth-child(2) { width: 5.5rem; }
.marks tbody th { font-weight: 500; }
.marks .figure { font-variant-numeric: tabular-nums; }
.marks thead th { color: var(--quiet); font-size: 0.9rem; }
.right > .sign { color: var(--right); }
:is(.lost, .part) > .sign { color: var(--lost); }
.waits > .sign { color: var(--waits); }
.cell { margin: 1.5rem 0; scroll-margin-top: 1rem; }
.what { margin: 0 0 0.3rem; font-size: 0.85rem; color: var(--quiet); }
.mark, .comment { margin: 0 0 0.5rem; padding: 0.5rem 0.8rem; background: var(--box);
  border-radius: 0.3rem; border-left: 0.3rem solid var(--quiet); }
.comment { margin: 0.5rem 0 0; border-left-color: var(--link); }
.mark.right { border-left-color: var(--right); }
.mark:is(.lost, .part) { border-left-color: var(--lost); }
.mark.waits { border-left-color: var(--waits); }
.note { color: var(--quiet); font-size: 0.95rem; }
.text { overflow: clip; overflow-clip-margin: 0.5rem; }
:is(.answer, .graded, .added) > .text { padding: 0 0.9rem; border: 1px solid var(--line);
  border-radius: 0.4rem; }
.text :is(ul, ol) { padding-left: 1.5rem; }
blockquote { margin-left: 0; padding-left: 0.9rem; border-left: 3px solid var(--line); }
.text .deep { margin-left: 0; padding-left: 0; border: 0; list-style-position: inside; }
.text hr { border: 0; border-top: 1px solid var(--line); }
code, pre { font: 0.875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
code { font-size: 0.9em; background: var(--box); padding: 0.05em 0.25em; border-radius: 0.2rem; }
pre { margin: 0.4rem 0; padding: 0.8rem 1rem; background: var(--box); border-radius: 0.4rem; overflow: auto;
  max-height: 36rem; white-space: pre; overflow-wrap: normal; tab-size: 4; unicode-bidi: isolate; }
.answer > pre:first-of-type { border-left: 0.3rem solid var(--link); border-radius: 0.3rem; }
.output { background: none; border: 1px solid var(--line); max-height: 24rem; }
.output.error { border-color: var(--lost); }
.wrapped { white-space: pre-wrap; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; margin: 0.5rem 0; background: #ffffff;
  border-radius: 0.3rem; }
.wide { overflow-x: auto; overflow-wrap: normal; }
.wide table { font-size: 0.95rem; }
.at-right { text-align: right; }
.at-center { text-align: center; }
.k { color: var(--k); } .s { color: var(--s); } .n { color: var(--n); }
.f { color: var(--f); } .c { color: var(--c); }
@media (max-width: 30rem) {
  body { font-size: 1rem; }
  .marks { font-size: 0.95rem; }
  .marks th:nth-child(2) { width: 4.2rem; }
  th, td { padding-right: 0.5rem; }
}
@media print {
  body { max-width: none; padding: 0; }
  pre { max-height: none; white-space: pre-wrap; overflow-wrap: anywhere; }
  .skip, .mark a { display: none; }
}
"""
)
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode("utf-8")).digest()).decode("ascii")
POLICY = (
    f"default-src 'none'; img-src data:; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
)
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
"""

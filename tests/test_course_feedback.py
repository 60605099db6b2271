"""The feedback page: whatever a notebook holds, only known elements, no request; exact points and words."""

import base64
import hashlib
import http.server
import os
import re
import struct
import sys
import threading
import zlib
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from traitlets.config import Config

pytest.importorskip("nbgrader")

from nbgrader.api import Gradebook
from nbgrader.preprocessors import GetGrades
from widget_checks import axe_source

from course import feedback, harmless

ROOT = Path(__file__).resolve().parent.parent

# --- a strict reader of the page --------------------------------------------------------------------------

ANYWHERE = {"class", "id"}
ALLOWED = {
    **dict.fromkeys("head title style body header main p strong em s i bdi br hr".split(), ""),
    **dict.fromkeys("h1 h2 h3 h4 h5 h6 ul li blockquote code table thead tbody tr td".split(), ""),
    "html": "lang", "meta": "charset name content http-equiv", "a": "href rel", "ol": "start",
    "section": "aria-labelledby tabindex", "div": "tabindex role aria-label aria-hidden", "th": "scope",
    "pre": "tabindex role aria-label", "span": "aria-hidden", "img": "src alt width height",
}  # fmt: skip
VOID = {"meta", "br", "hr", "img"}
PICTURE = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
LINK = re.compile(r"(?i:https?://\S+|mailto:\S+)|#(cell-\d+|points|notebook)")


class Reader(HTMLParser):
    """Reads a page and fails on anything that is not on the lists above."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words, self.style = [], [], [], ""
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED, f"<{tag}>"
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        for name, value in attrs:
            assert name in ANYWHERE | set(ALLOWED[tag].split()), f"<{tag} {name}>"
            assert value is not None
            if name == "href":
                assert LINK.fullmatch(value), value
            if name == "src":
                assert PICTURE.fullmatch(value), value[:80]
            if name == "class":
                assert re.fullmatch(r"[a-z0-9 -]+", value), value
        given = dict(attrs)
        if tag == "a" and not given["href"].startswith("#"):
            assert given.get("rel") == "nofollow noreferrer noopener"
        if tag == "img":
            assert given["alt"]
        if tag == "a":
            assert "a" not in self.open, "a link in a link"
        self.elements.append((tag, given, len(self.words)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        raise AssertionError(f"<{tag} />")

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data[:60]}")

    def unknown_decl(self, data):
        raise AssertionError(f"a declaration: {data[:60]}")

    handle_pi = unknown_decl

    @property
    def text(self):
        return "".join(self.words)

    def all(self, tag, **attrs):
        return [
            given
            for kind, given, _ in self.elements
            if kind == tag and all(given.get(name) == value for name, value in attrs.items())
        ]


def inside(page, opening):
    """The text of the first element whose start tag matches the pattern `opening`, tags taken out."""
    start = re.search(opening, page)
    assert start, opening
    tag = re.match(r"<(\w+)", start[0])[1]
    depth, at = 1, start.end()
    for piece in re.finditer(rf"<(/?){tag}\b[^>]*>", page[start.end() :]):
        depth += -1 if piece[1] else 1
        if not depth:
            at = start.end() + piece.start()
            break
    return re.sub(r"\s+", " ", Reader("<div>" + page[start.end() : at] + "</div>").text).strip()


@pytest.mark.parametrize(
    "bad",
    [
        "<script>1</script>", "<img src=x alt=a onload=a>", "<svg></svg>", "<p style='a'>b</p>", "<!-- a -->",
        "<iframe></iframe>", "<a href='javascript:1' rel='nofollow noreferrer noopener'>a</a>", "<p>",
        "</p>",
        "<a href='http://a.b'>no rel</a>", "<img src='https://a.b/c.png' alt='a'>", "<object></object>",
        "<img src='data:image/svg+xml;base64,AAAA' alt='a'>", "<form></form>", "<p onclick=a>b</p>", "<b>",
        "<?a ?>", "<br />",
        "<img src='data:image/png;base64,AAAA' alt=''>", "<p class='&lt;'>a</p>", "<link rel=a>",
        "<![CDATA[a]]>",
    ],
)  # fmt: skip
def test_the_reader_bites(bad):
    with pytest.raises(AssertionError):
        Reader(bad)


# --- notebooks made by hand -------------------------------------------------------------------------------


def check(name, points, score, source="assert True", outputs=(), ran=1, **more):
    grading = {"grade": True, "solution": False, "locked": True, "task": False, "grade_id": name}
    grading |= {"points": points, "score": score, "schema_version": 3}
    cell = new_code_cell(source, metadata={"nbgrader": grading, **more}, outputs=list(outputs))
    cell.execution_count = ran
    return cell


def written(name, points, score, comment=None, source="My answer.", **more):
    grading = {"grade": True, "solution": True, "locked": False, "task": False, "grade_id": name}
    grading |= {"points": points, "score": score, "comment": comment, "schema_version": 3}
    return new_markdown_cell(source, metadata={"nbgrader": grading}, **more)


def answer(name, source="pass", comment=None, outputs=(), **more):
    grading = {"grade": False, "solution": True, "locked": False, "task": False, "grade_id": f"answer-{name}"}
    grading |= {"comment": comment, "schema_version": 3}
    return new_code_cell(source, metadata={"nbgrader": grading, **more}, outputs=list(outputs))


def notebook(*cells, **course):
    made = new_notebook(cells=list(cells), metadata={"course": {"assignment": "1_one_head", **course}})
    for number, cell in enumerate(made.cells):
        cell.id = f"c{number}"
    return made


def render(*cells, student="anna", about=(), hand=None, **course):
    page = feedback.page(notebook(*cells, **course), {"student": student, **dict(about)}, hand)
    Reader(page)
    page.encode("utf-8")
    return page


def stream(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def shown(**data):
    return new_output("display_data", data={key.replace("__", "/"): value for key, value in data.items()})


def png(width=3, height=2, extra=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" + b"\x40\x80\xc0" * width for _ in range(min(height, 9))))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    note = chunk(b"tEXt", b"a\0" + b"b" * extra) if extra else b""
    return b"\x89PNG\r\n\x1a\n" + header + note + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg(width=5, height=4):
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8\xff\xe0\x00\x10" + b"JFIF\0" + bytes(9) + b"\xff\xc0" + frame + b"\xff\xd9"


def b64(content):
    return base64.b64encode(content).decode("ascii")


# --- hostile text, everywhere -----------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "</title><body onload=alert(1)>",
    "</pre></code></div></main><iframe src=//a.b></iframe>",
    "<!--", "-->", "<![CDATA[", "]]>", "<?php", "&lt;script&gt;&#60;script&#62;", "{{7*7}}{title}%s",
    "[a](javascript:alert(1)) ![b](javascript:alert(1)) <javascript:alert(1)>",
    "<details open ontoggle=alert(1)>", "<a href=javascript:alert(1)>x</a>", "<math><mtext></math>",
    "\x00\x1b[31mred\x1b[0m\x08\x7f\x85\u202eevil\u2066\ufeff\ud800\ufffe\U000e0041",
]  # fmt: skip


@pytest.mark.parametrize("bad", HOSTILE)
def test_hostile_text_is_only_text(bad):
    one = new_code_cell(bad, metadata={"course_note": bad, "evil": bad, "tags": [bad]})
    one.outputs = [
        stream(bad), stream(bad, "stderr"),
        new_output("error", ename=bad, evalue=bad, traceback=[bad, bad]),
        shown(text__plain=bad, text__html=bad, image__png=bad),
        shown(**{"image/svg+xml": bad}), shown(text__latex=bad),
        shown(**{bad: bad}), new_output("execute_result", data={"text/plain": [bad, bad]}, execution_count=1),
    ]  # fmt: skip
    cells = [
        check(bad, 2, 0, bad), written(bad, 2, 1, bad, bad), answer(bad, bad, bad), one,
        new_markdown_cell(bad), new_raw_cell(bad),
        new_markdown_cell(f"`{bad}`\n\n```{bad}\n{bad}\n```\n\n# {bad}\n\n> - {bad}\n\n$${bad}$$"),
        new_markdown_cell(f"![{bad}](http://a.b '{bad}') [{bad}](http://a.b '{bad}') <http://{bad}>"),
        new_markdown_cell(f"| {bad} | a |\n|:-:|-:|\n| {bad} | $x{bad}$ |"),
        new_markdown_cell(f"![{bad}](attachment:a)", attachments={"a": {"image/png": bad, bad: bad}}),
    ]  # fmt: skip
    marks = {bad: {"points": 0, "of": 2, "reason": bad}, bad + "2": {"points": 0, "of": 2, "reason": bad}}
    made = notebook(*cells, title=bad, marks=marks, notes=[bad], flags=[bad])
    for number, cell in enumerate(made.cells):
        cell.id = f"{bad}{number}"
    page = feedback.page(made, {"student": bad, "score": 1, "max_score": 4})
    page.encode("utf-8")
    words = Reader(page).text
    assert words.count(harmless.plain(bad).strip()) >= 12  # shown, and as it was written
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)


def test_one_style_sheet_and_a_policy_that_allows_only_it():
    page = render(written("</style>", 1, 0))
    reader = Reader(page)
    assert page.count("<style>") == page.count("</style>") == 1
    (policy,) = [given["content"] for given in reader.all("meta") if "http-equiv" in given]
    digest = b64(hashlib.sha256(reader.style.encode()).digest())
    assert policy.split("; ")[:3] == ["default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'"]
    assert "url(" not in reader.style and "@import" not in reader.style
    assert page.index("Content-Security-Policy") < page.index("<title>") < page.index("<style>")
    for name in {name for given in reader.all("i") for name in given["class"].split()}:
        assert f".{name}" in reader.style


def test_whole_document():
    page = render(check("scale", 2, 2), title="One head", student="Zoë")
    reader = Reader(page)
    assert page.startswith("<!DOCTYPE html>\n") and reader.all("html", lang="en")
    assert inside(page, "<title>") == "Feedback: One head, Zoë"
    assert "<bdi>Zoë</bdi>" in page
    assert inside(page, "<h1>") == "One head" and len(reader.all("h1")) == 1
    first = next(given for tag, given, _ in reader.elements if tag == "a")
    assert first == {"class": "skip", "href": "#notebook"} and reader.all("section", id="notebook")
    for link in reader.all("a"):
        assert any(given.get("id") == link["href"][1:] for _, given, _ in reader.elements), link


def test_same_notebook_same_bytes():
    cells = [check("scale", 2, 0), written("why", 2, 1, "ok"), new_markdown_cell("a *b* [c](http://d.e)")]
    pages = {
        render(*cells, marks={"scale": {"points": 0, "of": 2, "reason": "no"}}, notes=["n"]) for _ in "12"
    }
    assert len(pages) == 1


def test_damaged_metadata_still_makes_a_page():
    made = notebook(check("scale", 2, 0), new_code_cell("1"), new_markdown_cell("a"))
    made.metadata["course"] = ["no"]
    made.cells[1].metadata = nbformat.from_dict({"nbgrader": "no", "course_note": 3})
    made.cells[2]["attachments"] = ["no"]
    Reader(feedback.page(made, {}))
    for marks in (3, ["scale"], {"scale": 3}, {"scale": {"points": "x", "reason": 7}}, {"other": 7}):
        made.metadata["course"] = nbformat.from_dict({"marks": marks, "notes": 3, "title": 4})
        assert "No reason was recorded." in Reader(feedback.page(made, {})).text
    made.cells[0].metadata.nbgrader["score"] = float("nan")
    assert "– of 2" in feedback.page(made, {"score": float("inf"), "max_score": None, "late_penalty": "x"})


# --- links and Markdown -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, address",
    [
        ("[a b](https://example.org/x?y=1&z=2)", "https://example.org/x?y=1&z=2"),
        ("[a b](HTTP://example.org)", "HTTP://example.org"),
        ("[a b](mailto:a@example.org)", "mailto:a@example.org"),
        ("<https://example.org>", "https://example.org"),
        ("[](https://example.org/empty)", "https://example.org/empty"),
        ("[a b <https://example.org> c](https://example.com)", "https://example.com"),
        ("[a b](javascript:alert(1))", None),
        ("[a b](JaVaScRiPt:alert(1))", None),
        ("[a b](&#x6A;avascript:alert(1))", None),
        ("[a b](java&#10;script:alert(1))", None),
        ("[a b](vbscript:x)", None),
        ("[a b](data:text/html;base64,PHNjcmlwdD4=)", None),
        ("[a b](file:///etc/passwd)", None),
        ("[a b](//example.org/x)", None),
        ("[a b](other.html)", None),
        ("[a b](#cell-1)", None),
        ("[a b](https:)", None),
        ("[a b]( \x01javascript:alert(1))", None),
        ("<javascript:alert(1)>", None),
        ("[a b][c]\n\n[c]: javascript:alert(1)", None),
    ],
)
def test_links_lead_to_the_web_or_to_mail_only(source, address):
    page = render(new_markdown_cell(source))
    links = [given for given in Reader(page).all("a") if not given["href"].startswith("#")]
    assert [given["href"] for given in links] == ([address] if address else [])
    words = inside(page, r'<div class="text">')
    assert words and ("a b" in words or "[a b]" not in source)
    if address:
        assert not source.startswith("[](") or words == address


def test_markdown_is_read_but_html_is_not():
    page = render(
        new_markdown_cell(
            "# One\n\n#### Deep\n\n#\n\nwords *em* **strong** ~~gone~~ `code` <b>bold</b>\n\n1. a\n2. b\n\n"
            "| l | r | |\n|:-|-:|-|\n| 1 | 2 | 3 |\n\n> said\n\n---\n\n```python\nx_1 * y_2 * z\n```"
        ),
        new_markdown_cell("## Two"),
    )
    reader = Reader(page)
    for tag in ("em", "strong", "s", "ol", "blockquote", "hr"):
        assert reader.all(tag), tag
    assert "<b>bold</b>" in reader.text
    levels = [tag for tag, _, _ in reader.elements if re.fullmatch(r"h\d", tag)]
    assert levels[-3:] == ["h3", "h4", "h4"]  # under the page's h2, no level skipped, none empty
    assert reader.all("td", **{"class": "at-right"}) and len(reader.all("th")) - 2 == 0 + 0
    assert "x_1 * y_2 * z" in inside(page, r"<pre[^>]*formula or code[^>]*>")


def test_formulas_stay_as_they_were_typed():
    tex = r"\frac{a_1 * b_2}{c_3 * d} < \sqrt{d_h} \\ e"
    page = render(
        new_markdown_cell(
            f"so ${tex}$ and\n\n$$\n{tex}\n$$\n\n"
            f"\\begin{{align}}\n{tex}\n\\end{{align}}\n\na $$b_1 * c_2 * d$$"
        )
    )
    assert Reader(page).text.count(tex) == 3 and not Reader(page).all("em")
    assert f"<code>{tex.replace('<', '&lt;')}</code>" in page and "<code>b_1 * c_2 * d</code>" in page


def test_what_takes_long_to_read_is_shown_as_it_is(monkeypatch):
    page = render(new_markdown_cell("**" + "a" * harmless.TEXT_LIMIT))
    assert "**aaa" in page and "Cut here: 2 more characters are not shown." in page
    page = render(new_markdown_cell("[a]: b\n" * 2800))  # reference definitions: minutes, if they are read
    assert "[a]: b" in page
    monkeypatch.setattr(feedback, "RICH_LIMIT", 40)
    page = render(
        new_markdown_cell("**one**"), new_code_cell("x = 12"), new_markdown_cell("**two**" + " " * 30)
    )
    assert "<strong>one</strong>" in page and '<span class="n">12</span>' in page and "**two**" in page
    assert 'span class="n"' not in render(new_code_cell("x = 12  " + "#" * 40))


def test_a_cell_that_cannot_be_read_is_shown_as_it_is(monkeypatch):
    def fails(*_):
        raise RecursionError

    monkeypatch.setattr(harmless.Markdown, "_links", fails)
    assert "*words* &lt;b&gt;" in render(new_markdown_cell("*words* <b>"))


def test_deep_nesting_stays_on_the_page():
    page = render(new_markdown_cell(">" * 15 + " quoted"), new_markdown_cell("- " * 12 + "listed"))
    assert "quoted" in page and "listed" in page and Reader(page).all("blockquote", **{"class": "deep"})


# --- pictures and other outputs ---------------------------------------------------------------------------


def outputs(*made):
    cell = new_code_cell("x")
    cell.outputs = list(made)
    page = render(cell)
    return page, Reader(page).all("img")


@pytest.mark.parametrize(
    "mime, content, size", [("image/png", png(3, 2), ("3", "2")), ("image/jpeg", jpeg(5, 4), ("5", "4"))]
)
def test_good_pictures_are_shown(mime, content, size):
    folded = "\n".join(re.findall(".{1,40}", b64(content)))
    for data in (b64(content), folded, folded.splitlines(keepends=True)):
        made = new_output("display_data", data={mime: data, "text/plain": "<Figure>", "text/html": "<b>"})
        page, (img,) = outputs(made)
        assert (
            img["src"] == f"data:{mime};base64,{b64(content)}" and img["alt"] == "picture made by this cell"
        )
        assert (img["width"], img["height"]) == size and "Figure" not in page


@pytest.mark.parametrize(
    "mime, data, why",
    [
        ("image/png", "not base64!", "damaged"),
        ("image/png", b64(png())[:-3], "damaged"),
        ("image/png", b64(png()) + '" onerror="alert(1)', "damaged"),
        ("image/png", "é" * 8, "damaged"),
        ("image/png", b64(b"<svg onload=alert(1)></svg>" + bytes(40)), "no PNG"),
        ("image/png", b64(jpeg()), "no PNG"),
        ("image/png", b64(png()[:20]), "no PNG"),
        ("image/png", b64(b"\0" * 8 + png()[8:]), "no PNG"),
        ("image/png", b64(png(0, 4)), "no PNG"),
        ("image/png", "", "no PNG"),
        ("image/jpeg", b64(png()), "no JPEG"),
        ("image/jpeg", b64(b"\xff\xd8\xff\xe0\x00\x00" * 3), "no JPEG"),
        ("image/jpeg", b64(b"\xff\xd8" + b"\xff\xe1\xff\xff" + bytes(70_000)), "no JPEG"),
        ("image/png", b64(png(extra=1_000_000)), "more than 1 MB"),
        ("image/png", b64(png(100_000, 100_000)), "too many pixels"),
        ("image/jpeg", b64(jpeg(65_000, 65_000)), "too many pixels"),
    ],
)
def test_bad_pictures_are_left_out(mime, data, why):
    data = {mime: data, "text/plain": "<Figure>"}
    page, images = outputs(nbformat.from_dict({"output_type": "display_data", "data": data, "metadata": {}}))
    assert images == [] and why in inside(page, r'<p class="note">')
    assert "<Figure>" in Reader(page).text


def test_a_picture_just_small_enough():
    room = 1_000_000 - len(png(extra=1)) + 1
    assert len(outputs(shown(image__png=b64(png(extra=room))))[1]) == 1
    assert outputs(shown(image__png=b64(png(extra=room + 1))))[1] == []


@pytest.mark.parametrize(
    "mime",
    ["text/html", "image/svg+xml", "application/javascript", "text/latex", "text/markdown", "image/gif",
     "application/vnd.jupyter.widget-view+json", "application/json", "application/pdf"],
)  # fmt: skip
def test_other_kinds_show_their_text(mime):
    page, images = outputs(
        new_output("display_data", data={mime: "<b>rich</b>", "text/plain": "the <plain> form"})
    )
    assert images == [] and "the <plain> form" in Reader(page).text and "rich" not in page
    page, _ = outputs(new_output("display_data", data={mime: "<b>rich</b>"}))
    assert "An output that has no text form is not shown." in page and "rich" not in page


def test_pictures_in_text():
    good, name = b64(png()), "my photo.png"
    held = {name: {"image/png": good}, "bad": {"image/png": "x"}, "svg": {"image/svg+xml": "<svg onload=a>"}}
    page = render(
        new_markdown_cell(
            "![my sum](attachment:my%20photo.png) ![one](attachment:bad) ![two](attachment:svg) "
            "![](attachment:no)\n\n"
            "![three](https://example.org/x.png) ![four](data:image/png;base64,AAAA) ![](x.png)\n\n"
            f"[![five](https://example.org/y.png)](https://example.org) "
            f"![<b>](attachment:{name.replace(' ', '%20')})",
            attachments=held,
        )
    )
    images = Reader(page).all("img")
    assert [img["alt"] for img in images] == ["my sum", "<b>"] and {img["src"] for img in images} == {
        f"data:image/png;base64,{good}"
    }
    words = inside(page, r'<div class="text">')
    for alt in ("one", "two", "three", "four", "five"):
        assert f"[picture not shown: {alt}]" in words
    assert words.count("[picture not shown]") == 2 and "x.png" not in page and "y.png" not in page


def test_terminal_codes_go_and_unseen_characters_are_seen():
    page, _ = outputs(
        stream(
            "\x1b[1;31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x1b\\ "
            "\x9b2Kcleared \x1bMup\r\nnext\rover"
        ),
        stream("a\x00b\x07c\x7fd\x85e\u202ef\u2066g\u200bh\ufeffi\u2028j\ud83dk\U000e0041l\u200dm\u00e9n\to"),
    )
    words = Reader(page).text
    assert "red link cleared up\nnext␍over" in words and "evil" not in words
    seen = "a␀b␇c␡d[U+0085]e[U+202E]f[U+2066]g[U+200B]h[U+FEFF]i[U+2028]j[U+D83D]k[U+E0041]l\u200dm\u00e9n\to"
    assert seen in words


def test_terminal_codes_without_end_cost_no_time():
    for bad in ("\x1b[", "\x1b]", "\x1b[1;"):
        assert len(harmless.plain(bad * 300_000)) < 900_001


def test_this_machines_paths_are_not_shown():
    where = f'File "{ROOT}/course/x.py", {ROOT}, \x1b[32m{ROOT}\x1b[0m/a'
    cells = [
        new_code_cell(f"# {ROOT}", metadata={"course_note": where}, outputs=[
            stream(where), new_output("error", ename="E", evalue=where, traceback=[where]),
            shown(text__plain=where)
        ]),
        new_markdown_cell(where), written("w", 1, 0, where), check("c", 1, 0),
    ]  # fmt: skip
    page = render(*cells, notes=[where], marks={"c": {"points": 0, "of": 1, "reason": where}})
    assert str(ROOT) not in page and 'File "…/course/x.py", …, …/a' in Reader(page).text
    assert harmless.plain(f"{ROOT}stay") == f"{ROOT}stay"


@pytest.mark.parametrize("extra", [0, 1, 180_000])
def test_long_outputs_are_cut_with_a_note(extra):
    page, _ = outputs(stream("x" * (20_000 + extra)))
    assert page.count("x" * 20_000) == 1 and len(re.findall("x{20001}", page)) == 0
    note = f"Cut here: {extra:,} more characters are not shown."
    assert (note in page) is bool(extra) and ("Cut here" in page) is bool(extra)
    cut = render(new_code_cell("#" + "y" * 20_000))
    assert "Cut here: 1 more characters are not shown." in cut


def test_a_page_has_an_end(monkeypatch):
    monkeypatch.setattr(feedback, "PAGE_LIMIT", 60_000)
    page = render(new_code_cell("x", outputs=[stream("a"), *[stream("b" * 1000)] * 30]))
    assert re.search(r"1\d more outputs not shown\.", page)
    page = render(*[new_code_cell("x" * 9_000) for _ in range(20)])
    assert re.search(r"The page is full: 14 cells more not shown\.", page) and len(page) < 80_000


def test_errors_say_first_what_went_wrong():
    page, _ = outputs(
        new_output("error", ename="ValueError", evalue="too <big>", traceback=["\x1b[31mline 1", "line 2"])
    )
    assert inside(page, r'<pre [^>]*class="output error wrapped"[^>]*>') == "ValueError: too <big>"
    assert "line 1\nline 2" in Reader(page).text


# --- points and reasons -----------------------------------------------------------------------------------


def rows(page):
    found = re.findall(
        r'(?s)<tr><th scope="row">(.*?)</th><td class="figure">(.*?)</td><td class="(\w+)">(.*?)</td></tr>',
        page,
    )
    return {
        re.sub("<.*?>", "", name): (points, state, Reader(f"<p>{why}</p>").text.split(" ", 1)[1])
        for name, points, state, why in found
    }


ERROR = new_output("error", ename="AssertionError", evalue="row 3", traceback=["t"])


def realistic(**about):
    cells = [
        new_markdown_cell(
            "# Given", metadata={"nbgrader": {"locked": True, "grade": False, "solution": False}}
        ),
        answer("softmax", "def softmax(x): ...", "Neat, but <slow>."),
        check("row_sums", 3, 3),
        check("empty_rows", 2, 0, outputs=[stream("warned", "stderr")]),
        check("merge", 2, 0, outputs=[ERROR]),
        answer("merge", comment="No response."),
        written("why_scale", 4, 0),
        written("blind_test", 2, 1, "Half of it.\nSee chapter 9."),
        new_code_cell("print(1)", metadata={"course_note": "stopped after 20 s", "SECRET_META": "hidden"}),
    ]
    marks = {
        "row_sums": {"points": 3, "of": 3, "reason": ""},
        "empty_rows": {"points": 0, "of": 2, "reason": "the result has NaN"},
        "merge": {"points": 0, "of": 2, "reason": "it raises NotImplementedError"},
    }
    about = {"score": 3.5, "max_score": 13, "late_penalty": 0.5} | about
    return render(
        *cells, about=about, title="One head", marks=marks, notes=["the check of merge was put back"],
        flags=["SECRET_FLAG"], other="SECRET_OTHER",
    )  # fmt: skip


def test_each_property_and_question_has_a_row():
    page = realistic()
    assert rows(page) == {
        "row sums": ("3 of 3", "right", "Right."),
        "empty rows": ("0 of 2", "lost", "The result has NaN."),
        "merge": ("0 of 2", "lost", "It is not written yet."),
        "why scale": ("– of 4", "waits", "Still to be marked by hand."),
        "blind test": ("1 of 2", "part", "Half of it.\nSee chapter 9."),
    }
    for name, number in (("row sums", 3), ("blind test", 8)):
        assert f'<tr><th scope="row"><a href="#cell-{number}">{name}</a></th>' in page
        assert inside(page, rf'<div class="[a-z ]+" id="cell-{number}">').find(f"{name}: ") >= 0


def test_the_total_says_what_came_off_and_what_may_come():
    words = inside(realistic(), r'<section id="points"[^>]*>')
    assert words.startswith("Your points 3.5 of 13 points so far")
    assert "1 of 3 checks are right. Look next at empty rows, merge." in words
    assert "You earned 4 points; 0.5 were taken off because the work came in late." in words
    assert "Still to be marked by hand: 4 points in 1 place (why scale). Your total can still rise." in words
    on_time = inside(realistic(late_penalty=0, score=4), r'<section id="points"[^>]*>')
    assert "4 of 13 points so far" in on_time and "late" not in on_time
    assert "<strong>1</strong> was taken off" in realistic(late_penalty=1)


def test_marks_stand_in_the_notebook_too():
    page = realistic()
    assert "empty rows: 0 of 2 ✗ The result has NaN. Its check below passes" in inside(
        page, r'<p class="mark lost">'
    )
    assert (
        page.count("Its check below passes") == 1
    )  # not where the check itself failed, nor for what is right
    assert inside(page, r'<div class="cell graded waits" id="cell-7">').startswith(
        "Text · your answer why scale: – of 4"
    )
    assert "Code cell 6 Stopped after 20 s." in inside(page, r'<div class="cell added" id="cell-9">').replace(
        " · added by you print(1)", ""
    )
    assert "Comment: Neat, but <slow>." in inside(page, r'<div class="cell answer" id="cell-2">')
    assert "Comment: You left this as it was." in inside(page, r'<div class="cell answer" id="cell-6">')


def test_comments_and_notes_are_listed_and_nothing_else_of_the_metadata():
    page = realistic()
    assert inside(page, r'<section id="comments"[^>]*>') == "Comments on your code softmax: Neat, but <slow>."
    assert inside(page, r'<section id="notes"[^>]*>').endswith("The check of merge was put back.")
    assert "SECRET" not in page and "schema_version" not in page
    bare = render(check("a", 1, 1))
    assert 'id="comments"' not in bare and 'id="notes"' not in bare


@pytest.mark.parametrize(
    "cells, says",
    [
        ([check("a", 1, 1), check("b", 1, 1)], "All 2 checks are right, also on numbers and sizes"),
        ([check("a", 1, 1)], "The one check is right, also"),
        ([check("a", 1, 0)], "The one check is not right yet. Begin with a."),
        ([check("a", 1, 0), check("b", 1, 0)], "None of the 2 checks is right yet. Begin with a."),
        (
            [check(n, 1, int(n == "e")) for n in "abcde"],
            "1 of 5 checks are right. Look next at a, b, c and 1 more.",
        ),
        ([check(n, 1, int(n in "de")) for n in "abcde"], "2 of 5 checks are right. Look next at a, b, c."),
        ([written("w", 2, 2)], "No check is graded yet."),
        ([], "No check is graded yet."),
    ],
)
def test_summary(cells, says):
    page = render(*cells, about={"score": 1, "max_score": 5})
    assert says in inside(page, r'<section id="points"[^>]*>')
    assert ("one property" in page) is any(
        c.cell_type == "code" and c.metadata.nbgrader.score == 0 for c in cells
    )


def test_the_bar_has_a_piece_for_each():
    pieces = [given["class"] for given in Reader(realistic()).all("i")]
    assert pieces == ["w3 right", "w2 lost", "w2 lost", "w4 waits", "w2 part"]
    assert [g["class"] for g in Reader(render(check("a", 99, 1), check("b", 0.2, 0))).all("i")] == [
        "w12 part",
        "w1 lost",
    ]


SET = "Your instructor set this mark. The grader gave 0 of 2. The numbers differ."


@pytest.mark.parametrize(
    "score, hand, row",
    [
        (0, {}, ("0 of 2", "lost", "The numbers differ.")),
        (0, {"a": (False, None)}, ("0 of 2", "lost", "The numbers differ.")),
        (2, {"a": (False, 2.0)}, ("2 of 2", "right", SET)),
        (1.25, {}, ("1.25 of 2", "part", SET)),
        (0, {"a": (False, 0.0)}, ("0 of 2", "lost", SET)),
        (2, {"a": (True, 2.0)}, ("2 of 2", "waits", SET + " It will be looked at once more.")),
        (0, {"a": (True, None)}, ("– of 2", "waits", "Not graded yet.")),
    ],
)  # fmt: skip
def test_marks_by_hand_stand_over_the_graders(score, hand, row):
    page = render(
        check("a", 2, score), hand=hand, marks={"a": {"points": 0, "of": 2, "reason": "the numbers differ"}}
    )
    assert rows(page) == {"a": row}


@pytest.mark.parametrize(
    "score, comment, hand, row",
    [
        (0, None, None, ("– of 2", "waits", "Still to be marked by hand.")),
        (0, None, {"w": (True, None)}, ("– of 2", "waits", "Still to be marked by hand.")),
        (1, "Good.", {"w": (True, 1.0)}, ("1 of 2", "waits", "Still to be marked by hand. Good.")),
        (0, None, {"w": (False, 0.0)}, ("0 of 2", "lost", "Marked by hand.")),
        (2, None, {"w": (False, 2.0)}, ("2 of 2", "right", "Full points.")),
        (0, "No response.", None, ("0 of 2", "lost", "You left this as it was.")),
        (2.5, "Bonus!", None, ("2.5 of 2", "right", "Bonus!")),
    ],
)
def test_written_answers(score, comment, hand, row):
    assert rows(render(written("w", 2, score, comment), hand=hand)) == {"w": row}


def test_marks_by_hand_where_the_grader_gave_none():
    assert rows(render(check("a", 2, 1), hand={"a": (False, 1.0)})) == {
        "a": ("1 of 2", "part", "Your instructor set this mark.")
    }
    code = check("b", 2, 0)
    code.metadata.nbgrader["solution"] = True  # code that a person marks has no check
    page = render(code)
    assert rows(page)["b"] == ("– of 2", "waits", "Still to be marked by hand.")
    assert "Its check below passes" not in render(code, hand={"b": (False, 0.0)})
    assert "Its check below passes" in render(check("c", 2, 0))
    assert "Its check below passes" not in render(check("c", 2, 0, ran=None))  # stopped before it ran


def test_a_mark_without_its_cell_is_still_told():
    page = render(check("a", 1, 1), marks={"gone": {"points": 0, "of": 3, "reason": "the cell is missing!"}})
    assert rows(page)["gone"] == ("0 of 3", "lost", "The cell is missing!")
    assert '<th scope="row">gone</th>' in page


# --- through nbconvert and nbgrader -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own way with its database
def test_the_exporter_takes_scores_from_the_gradebook(tmp_path, monkeypatch):
    # nbgrader calls a program of its own environment by name.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    url = f"sqlite:///{tmp_path / 'marks.db'}"
    with Gradebook(url) as book:
        book.add_assignment("hw")
        book.add_notebook("hw", "hw")
        book.add_grade_cell("scale", "hw", "hw", max_score=3, cell_type="code")
        book.add_grade_cell("mask", "hw", "hw", max_score=2, cell_type="code")
        book.add_grade_cell("why", "hw", "hw", max_score=4, cell_type="markdown")
        book.add_grade_cell("how", "hw", "hw", max_score=1, cell_type="markdown")
        for name in ("why", "how", "answer-scale"):
            book.add_solution_cell(name, "hw", "hw")
        book.add_student("anna")
        book.add_submission("hw", "anna")
        for name, auto, manual, needs in (
            ("scale", 3, None, False), ("mask", 0, 1.5, False),
            ("why", None, None, True), ("how", None, 0, False)
        ):  # fmt: skip
            grade = book.find_grade(name, "hw", "hw", "anna")
            grade.auto_score, grade.manual_score, grade.needs_manual_grade = auto, manual, needs
        book.find_comment("answer-scale", "hw", "hw", "anna").manual_comment = "Well <named>."
        book.db.commit()
    # Scores that a student typed into the file do not count.
    made = notebook(
        check("scale", 3, 99), check("mask", 2, 99), written("why", 4, 99), written("how", 1, 99),
        answer("scale", comment="forged"), title="HW",
        marks={"scale": {"points": 3, "of": 3, "reason": ""},
               "mask": {"points": 0, "of": 2, "reason": "they differ"}},
    )  # fmt: skip
    exporter = feedback.FeedbackExporter()
    exporter.register_preprocessor(GetGrades, enabled=True)
    about = {"notebook": "hw", "assignment": "hw", "student": "anna", "db_url": url}
    page, resources = exporter.from_notebook_node(made, {"nbgrader": about})
    Reader(page)
    assert resources["output_extension"] == ".html"
    assert rows(page) == {
        "scale": ("3 of 3", "right", "Right."),
        "mask": ("1.5 of 2", "part", "Your instructor set this mark. The grader gave 0 of 2. They differ."),
        "why": ("– of 4", "waits", "Still to be marked by hand."),
        "how": ("0 of 1", "lost", "Marked by hand."),
    }
    assert "4.5 of 10 points so far" in inside(page, r'<p class="total">')
    assert "Well <named>." in Reader(page).text and "forged" not in page and str(tmp_path) not in page
    assert feedback.by_hand({**about, "student": "nobody"}) == {} and feedback.by_hand({}) == {}


def test_no_setting_makes_the_exporter_run_a_notebook():
    config = Config()
    config.ExecutePreprocessor.enabled = True
    config.FeedbackExporter.optimistic_validation = False
    exporter = feedback.FeedbackExporter(config=config)
    page, _ = exporter.from_notebook_node(notebook(new_code_cell("print(6 * 7)")))
    assert "42" not in inside(page, r'<section id="notebook"[^>]*>') and exporter.file_extension == ".html"


# --- in a browser -----------------------------------------------------------------------------------------


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page from a file; collects what it asks for and what the console says."""
    contexts, faults = [], []

    def visit(page, width=1000, scheme="light"):
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: faults.append(message.text))
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on(
            "request",
            lambda asked: (
                asked.url.startswith(("data:image/", path.as_uri())) or faults.append(asked.url[:200])
            ),
        )
        tab.goto(path.as_uri(), wait_until="load")
        return tab

    visit.faults = faults
    yield visit
    for context in contexts:
        context.close()


def full():
    long = "a_very_long_name_" * 12
    return render(
        new_markdown_cell(
            "# Given\n\n#### Deep\n\n#\n\n| a | b | |\n|-|-|-|\n" + "| wide_wide_wide " * 3 + "|\n"
            + "\n| only | a head |\n|-|-|\n\n" + ">" * 12 + f" {long}\n\n" + "- " * 14 + f"{long}\n\n"
            f"${long}$ $${long}$$\n\n[](https://example.org) [a link](https://example.org) "
            f"![no](https://example.org/a.png)\n\n```\n{long}\n```"
        ),
        answer("softmax", comment="Good.\nVery.",
               source=f"def f(x):\n    # {long}\n    return 'a' + str(1.5)\n\n@f\nclass A: pass"),
        check("row_sums", 3, 3),
        check(long, 12, 0, outputs=[ERROR, stream(long + "\n" + long, "stderr"), stream("y" * 30_000)]),
        check("merge", 2, 0),
        written("why_scale", 4, 0, source="![mine](attachment:a)",
                attachments={"a": {"image/png": b64(png(900, 9))}}),
        written("blind_test", 2, 1, long),
        new_code_cell("1", outputs=[shown(image__png=b64(png(1200, 9))), shown(text__html="<b>")],
                      metadata={"course_note": "stopped after 20 s"}),
        new_code_cell("\n".join(HOSTILE), outputs=[stream(bad) for bad in HOSTILE]),
        *map(new_markdown_cell, HOSTILE),
        new_raw_cell(long),
        title="One head, by hand and in code", student=long, notes=[long, "the check of merge was put back"],
        about={"score": 3.5, "max_score": 13, "late_penalty": 0.5},
        marks={"merge": {"points": 0, "of": 2, "reason": "the numbers differ"}},
    )  # fmt: skip


@pytest.mark.browser
def test_in_a_browser(visit):
    page = full()
    for width, scheme in ((1000, "light"), (1000, "dark"), (390, "light"), (390, "dark"), (320, "light")):
        tab = visit(page, width, scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, width
        lost = tab.evaluate(
            """width => [...document.querySelectorAll("main :is(p, li, h2, h3, th, td, img, pre, .wide)")]
                 .filter(item => item.getBoundingClientRect().right > width + 1
                   && !item.parentElement.closest(".wide")
               ).map(item => item.outerHTML.slice(0, 100))""",
            width,
        )
        assert lost == []
        pictures = tab.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
        assert pictures == [900, 1200]
        dark = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 24, 30)"
        assert dark is (scheme == "dark")
        scrolls = tab.evaluate(
            """() => [...document.querySelectorAll("main *")].filter(
                 box => box.scrollWidth > box.clientWidth + 1
                   && ["auto", "scroll"].includes(getComputedStyle(box).overflowX)).map(b => b.tabIndex)"""
        )
        assert len(scrolls) >= 3 and set(scrolls) == {0}
        if width in (1000, 390):
            tab.evaluate(axe_source())
            found = tab.evaluate("axe.run(document)")
            assert len(found["passes"]) > 20
            problems = [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]]
            assert problems == [], (width, scheme)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to your notebook"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "notebook"
    assert visit.faults == []


class Counter(http.server.BaseHTTPRequestHandler):
    """Another host; it counts who asks."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def other_host():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.browser
@pytest.mark.parametrize("policy", [True, False])
def test_the_policy_holds_if_the_escaping_did_not(visit, other_host, policy):
    host = f"http://127.0.0.1:{other_host.server_port}"
    evil = (
        f'<p id="p" style="color: rgb(1, 2, 3)">a</p><link rel="stylesheet" href="{host}/style">'
        f'<script>document.title = "ran"</script><img src="{host}/image" alt="a">'
        f'<script src="{host}/script"></script>'
        f'<iframe src="{host}/frame"></iframe><form action="{host}/form" target="f"></form>'
    )
    page = realistic().replace("</main>", evil + "</main>")
    if not policy:  # the attack works where nothing forbids it
        page = page.replace("Content-Security-Policy", "x")
    tab = visit(page)
    coloured = tab.evaluate("getComputedStyle(document.querySelector('#p')).color") == "rgb(1, 2, 3)"
    tab.evaluate("document.querySelector('form').submit()")
    tab.wait_for_timeout(300)
    asked = {path.rstrip("?") for path in other_host.asked} - {"/favicon.ico"}
    if policy:
        assert asked == set() and not coloured and tab.title() == "Feedback: One head, anna"
        assert any("Content Security Policy" in fault for fault in visit.faults)
    else:
        assert (
            asked == {"/style", "/image", "/script", "/frame", "/form"} and coloured and tab.title() == "ran"
        )

"""What a student wrote, as HTML with which nobody can do anything but read.

Text is escaped and cut, unseen characters are made visible, pictures are checked before they come along, and
Markdown keeps only what needs no trust.
"""

import base64
import binascii
import html
import re
import struct
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

ROOT = Path(__file__).resolve().parent.parent
TEXT_LIMIT = 20_000  # characters of one output or one cell
PICTURE_LIMIT = 1_000_000  # bytes of one picture
PIXEL_LIMIT = 40_000_000  # a small file can unpack to more than a browser holds
PICTURES = ("image/png", "image/jpeg")

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


def joined(value):
    """Text as notebooks store it: one string or a list of lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def as_dict(value):
    return value if isinstance(value, dict) else {}


# --- boxes of text ---------------------------------------------------------------------------------------


def box(inside, label, kind=""):
    """Preformatted text that scrolls in its own box, which the keyboard reaches."""
    return f'<pre tabindex="0" role="group" aria-label="{html.escape(label)}"{kind}>{inside}</pre>'


COLOURS = {
    Keyword: "k", Operator.Word: "k", Name.Function: "f", Name.Class: "f", Name.Decorator: "f",
    String: "s", Number: "n", Comment: "c",
}  # fmt: skip


def code_box(source, label, rich=True):
    source, more = _cut(plain(source))
    pieces = []
    for kind, piece in (
        PythonLexer(stripnl=False, ensurenl=False).get_tokens(source) if rich else [(None, source)]
    ):
        while kind and kind not in COLOURS:
            kind = kind.parent
        piece = html.escape(piece)
        pieces.append(f'<span class="{COLOURS[kind]}">{piece}</span>' if kind else piece)
    return box("".join(pieces), label) + more


def text_box(text, label, kind=""):
    text, more = _cut(plain(text).rstrip("\n"))
    if not text:
        return ""
    # One line is prose, or short; in several, columns must keep their places.
    wrapped = " wrapped" if "\n" not in text and "wrapped" not in kind else ""
    return box(html.escape(text), label, f' class="output{kind}{wrapped}"') + more


# --- pictures --------------------------------------------------------------------------------------------


def image(text, mime, alt):
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


class Markdown:
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
        return box(html.escape(tokens[at].content.strip("\n")), "formula or code") + "\n"

    def _image(self, tokens, at, options, env):
        token = tokens[at]
        alt = self.parser.renderer.renderInlineAsText(token.children or [], options, env)
        name = unquote(str(token.attrs.get("src", ""))).removeprefix("attachment:")
        for mime, content in as_dict(env["attachments"].get(name)).items():
            if mime in PICTURES:
                picture, _problem = image(joined(content), mime, alt or "picture in this text")
                if picture:
                    return picture
        return f'<span class="note">[picture not shown{": " if alt else ""}{html.escape(alt)}]</span>'


def _words(children):
    """Whether anything is there to read."""
    return any(child.content.strip() or child.type == "image" for child in children or [])


def _end(children, at):
    """Where the link that opens at `at` closes; links do not nest."""
    return next(n for n in range(at, len(children)) if children[n].type == "link_close")

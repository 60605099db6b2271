"""From a matplotlib figure to inline SVG that belongs to the page: its theme, font and security policy.

What matplotlib writes is a file of its own: black ink, a font list, style attributes, ids that clash as soon
as a page holds two figures. Here it becomes part of a page: ink is ``currentColor``, each role of the palette
is the page's own variable, no style attribute is left, and the text alternative is inside.
"""

import base64
import hashlib
import html
import io
import re
import struct
import warnings
import xml.etree.ElementTree as ET
import zlib
from contextlib import contextmanager
from operator import index

import numpy as np

from attnlib.errors import AttnError
from attnlib.palette import PAGE, ROLES

from ._arrays import wording
from ._style import carried

COLOURS = {role: light for role, (light, _) in ROLES.items()}
PAPER = "#FEFDFC"  # stands for the page's background
NIGHT = (
    "#010101"  # black text on a coloured cell: the cell keeps its colour in the dark, so the text stays black
)
UNIT = 4 / 3  # CSS pixels in one point, matplotlib's unit
WIDE = 440  # pixels; a wider picture keeps its size and scrolls in its own box on a phone

# what a colour in the figure becomes on the page
THEMED = {light.lower(): f"var(--attn-{role}, {light})" for role, light in COLOURS.items()}
THEMED |= {"#000000": "currentColor", PAPER.lower(): f"var(--attn-paper, {PAGE['paper'][0]})"}
PAINTS = ("fill", "stroke", "stop-color")
GEOMETRY = ("d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "transform", "points")

OURS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnlib",
    "font.size": 10.5,
    "hatch.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.5,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


@contextmanager
def settings(what):
    """Matplotlib with its own defaults and ours on top, whatever the user has set; or one clear message."""
    try:
        import matplotlib
    except ImportError:
        raise AttnError(f"{what} needs matplotlib: pip install matplotlib") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(OURS)
        yield


class Picture:
    """A figure with its words: shown as inline SVG, as text where there is no picture.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
        Not known to pyplot, so figures do not pile up.
    alt : str
        The text alternative.
    caption : str
        The line below the picture, plain text.
    """

    def __init__(self, figure, alt, caption="", *, tables="", originals=None):
        alt, caption = wording(alt, "alt"), wording(caption, "caption")
        if not alt.strip():
            raise AttnError(
                "the picture has an empty alt text: say in alt= what the axes are, their range and the point"
            )
        self.figure, self.alt, self.caption = figure, alt, caption
        self._tables, self._originals = tables, originals or {}

    @property
    def svg(self):
        """The picture as one ``<svg>`` element, the same bytes on every call."""
        return render(self.figure, self.alt, self._originals)

    @property
    def html(self):
        """The picture, its caption and, for small matrices, its numbers as a folded table."""
        svg = self.svg
        if float(re.search(r'width="([\d.]+)"', svg)[1]) > WIDE:
            name = html.escape(self.caption or "picture")
            svg = f'<div class="attn-scroll" tabindex="0" role="group" aria-label="{name}">{svg}</div>'
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<figure class="attn-figure">{svg}{caption}{self._tables}</figure>'

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.alt, "text/html": carried(self.html)}

    def __repr__(self):
        return self.alt


def picture(figure, *, alt, caption=""):
    """Any matplotlib figure as a `Picture`.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Black in it follows the page's ink, the colours of `COLOURS` follow the page's theme.
    alt : str
        What the axes are, their range, and the point. Not empty.
    caption : str
        The line below the picture.

    Returns
    -------
    Picture

    Raises
    ------
    AttnError
        If `alt` is empty or `figure` cannot be drawn.
    """
    if not hasattr(figure, "savefig"):
        raise AttnError(f"picture got a {type(figure).__name__}, wanted a figure: pass ax.figure, not ax")
    return Picture(figure, alt, caption)


def axes(width=6.4, height=3.2, nrows=1, ncols=1):
    """An empty figure for line plots, in the book's style.

    Parameters
    ----------
    width, height : float
        Inches of the whole figure; 6.4 fills the text column.
    nrows, ncols : int
        Number of panels.

    Returns
    -------
    (matplotlib.figure.Figure, Axes or array of Axes)
        Lines take the colours of query, key, value, output in turn, each with its own dashes.

    Examples
    --------
    >>> figure, ax = axes()
    >>> _ = ax.plot([1, 2, 3], [1, 4, 9])
    >>> picture(figure, alt="y is x squared: 1, 4, 9.").alt
    'y is x squared: 1, 4, 9.'
    """
    try:
        fits = all(0.1 <= float(side) <= 100 for side in (width, height))
        fits = fits and all(1 <= index(count) <= 100 for count in (nrows, ncols))
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise AttnError(
            f"axes got width={width!r:.40}, height={height!r:.40}, nrows={nrows!r:.40}, ncols={ncols!r:.40}: "
            "wanted inches from 0.1 to 100 and 1 to 100 panels each way"
        )
    with settings("axes"):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), dpi=72, layout="constrained")
        panels = figure.subplots(int(nrows), int(ncols))
        for ax in np.ravel(panels):
            ax.set_prop_cycle(
                color=[COLOURS[role] for role in ("query", "key", "value", "output")],
                linestyle=["-", "--", "-.", ":"],
            )
            ax.grid(True, color=COLOURS["masked"], alpha=0.25, linewidth=0.6)
            ax.set_axisbelow(True)
    return figure, panels


def render(figure, alt, originals):
    """Draw `figure` and make the result part of a page."""
    with settings("picture"), warnings.catch_warnings():
        # the words are drawn by the browser, in the reader's fonts: what DejaVu lacks does not matter
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font", category=UserWarning)
        drawn = io.BytesIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(drawn, format="svg", transparent=True, metadata=metadata)
    root = ET.fromstring(drawn.getvalue().decode("utf-8"))
    _plain_names(root)
    for element in root.iter():
        _style_to_attributes(element)
        _theme(element)
        for name in GEOMETRY:
            if name in element.attrib:
                element.set(name, _short(element.get(name)))
    _words(root, originals)
    _strip(root)
    width, height = (round(float(side) * UNIT) for side in root.get("viewBox").split()[2:])
    inside = "".join(ET.tostring(child, encoding="unicode") for child in root)
    _own_ids(root, hashlib.sha256((alt + inside).encode("utf-8")).hexdigest()[:8])
    whole = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": alt})
    whole.attrib |= {"width": str(width), "height": str(height), "viewBox": root.get("viewBox")}
    whole.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    whole.extend(list(root))
    return ET.tostring(whole, encoding="unicode")


def _plain_names(root):
    """HTML knows no namespaces: drop them, and what is not drawn."""
    for parent in list(root.iter()):
        parent.tag = parent.tag.rsplit("}", 1)[-1]
        for name in list(parent.attrib):
            if "}" in name:
                parent.set(name.rsplit("}", 1)[-1], parent.attrib.pop(name))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)


def _style_to_attributes(element):
    """A strict policy forbids ``style="..."``; the same properties as attributes are allowed."""
    for part in filter(None, element.attrib.pop("style", "").split(";")):
        name, value = (side.strip() for side in part.split(":", 1))
        if name == "font":  # [style] [weight] size[/line] family
            before, size = re.match(r"(.*?)([\d.]+)px", value).groups()
            element.set("font-size", size)
            for word in before.split():
                kind = "font-weight" if word.isdigit() or word.startswith("bold") else "font-style"
                element.set(kind, word)
        elif name == "font-size":
            element.set(name, _short(value.removesuffix("px")))
        elif name == "image-rendering":
            element.set(name, "pixelated")
        elif name != "font-family":  # the page's own font
            element.set(name, value)


def _theme(element):
    if element.tag == "text" and "fill" not in element.attrib:
        element.set("fill", "#000000")  # matplotlib leaves black out
    for name in PAINTS:
        paint = element.get(name, "").lower()
        if paint == "#ffffff" and element.tag != "text":
            paint = PAPER.lower()
        if paint in THEMED:
            element.set(name, THEMED[paint])


def _short(value):
    """Two decimals are a fiftieth of a pixel; more are only bytes."""

    def cut(match):
        shown = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
        return "0" if shown == "-0" else shown

    value = re.sub(r"-?\d+\.\d+(?:e-?\d+)?", cut, value)
    value = re.sub(r"\s+", " ", value).strip()
    return re.sub(r"(?<=[A-Za-z]) | (?=[A-Za-z])", "", value) if value[:1] in "Mm" else value


def _words(root, originals):
    """Isolate labels from the page's direction; one that stands for other characters says so on hover."""
    for group in root.iter("g"):
        name = group.get("id", "")
        if not name.startswith("attn-"):
            continue
        group.attrib.pop("id")
        if name.startswith("attn-cell-"):
            group.set("data-cell", name.removeprefix("attn-cell-").replace("-", " "))
            continue
        group.set("data-part", name.removeprefix("attn-").replace("-", " "))
        for words in group.iter("text"):
            words.set("direction", "ltr")
            words.set("unicode-bidi", "isolate")
            if name in originals:
                title = ET.SubElement(words, "title")
                title.text = originals[name]
    for words in root.iter("text"):
        if words.get("transform", "").startswith("rotate(0"):
            words.attrib.pop("transform")
    for image in root.iter("image"):
        image.set("href", _same_png(image.get("href")))


def _strip(root):
    """Drop ids nobody points at, then groups that say nothing."""
    everything = ET.tostring(root, encoding="unicode")
    used = set(re.findall(r"url\(#([^)]+)\)", everything)) | set(re.findall(r'href="#([^"]+)"', everything))
    for element in root.iter():
        element.tail = None
        if element.tag not in ("text", "title", "tspan"):
            element.text = None
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    _unwrap(root)


def _unwrap(parent):
    children = []
    for child in list(parent):
        _unwrap(child)
        if child.tag in ("g", "defs") and not len(child):
            continue
        invisible = child.tag == "path" and child.get("fill") == "none" and "stroke" not in child.attrib
        if invisible and parent.tag != "clipPath":
            continue
        if child.tag == "g" and not child.attrib:
            children.extend(child)
        else:
            children.append(child)
    for child in list(parent):
        parent.remove(child)
    parent.extend(children)


def _own_ids(root, prefix):
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, f"a{prefix}-{value}")
            elif name == "href" and value.startswith("#"):
                element.set(name, f"#a{prefix}-{value[1:]}")
            elif "url(#" in value and name not in ("aria-label",):
                element.set(name, value.replace("url(#", f"url(#a{prefix}-"))


def _same_png(href):
    """The same image in bytes that no machine's compressor changes: indexed colours, stored."""
    from PIL import Image

    data = base64.b64decode(re.sub(r"\s", "", href.split(",", 1)[1]))
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
    colours, index = np.unique(pixels.reshape(-1, 4), axis=0, return_inverse=True)
    if len(colours) > 256:  # a photograph, not a matrix: leave it
        return "data:image/png;base64," + base64.b64encode(data).decode()
    height, width = pixels.shape[:2]
    lines = index.reshape(height, width).astype(np.uint8)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    blocks = [raw[at : at + 65535] for at in range(0, len(raw), 65535)]
    stored = b"".join(
        struct.pack("<BHH", at == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for at, block in enumerate(blocks)
    )
    packed = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(raw))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", colours[:, :3].tobytes()),
            (b"tRNS", colours[:, 3].tobytes()),
            (b"IDAT", packed),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()

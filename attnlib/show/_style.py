"""What an output carries, to look right wherever a notebook is opened; and how a page of ours drops it.

JupyterLab and VS Code show all outputs in one page, Colab puts each into a frame of its own, and a notebook
that is not trusted loses its styles and its inline SVG: the text inside would be all that is left of a
picture. So a picture travels as an image, which is kept, with its own colours, and each output brings the few
rules it needs. A page that has show.css and the palette wants neither: `bare` gives the plain HTML back.
"""

import re
from functools import cache
from pathlib import Path

from attnlib.palette import css

STYLE = re.compile(r'<style class="attn-style">.*?</style>', re.S)
SVG = re.compile(
    r'<svg (xmlns="[^"]*") role="img" aria-label="([^"]*)" (width="\d+" height="\d+")(.*?)</svg>', re.S
)
IMAGE = re.compile(r"""<img class="attn-image" alt="([^"]*)" [^']*src='data:image/svg\+xml,([^']*)'>""")
LEFT = re.compile(r'<p class="attn-unseen attn-instead" aria-hidden="true">[^<]*</p>')
# The rest may stand in an address as it is, and keeps its length.
CODES = {ord(char): f"%{ord(char):02X}" for char in "%#&'<>\t\n\r"}
# An image knows nothing of its page but the theme; its paper is for where even that does not reach it.
INSIDE = (
    "svg{color-scheme:light dark;color:var(--attn-ink);background:var(--attn-paper);"
    "font-family:system-ui,sans-serif}"
)


@cache
def _parts():
    """The rules of show.css by the class that wants them."""
    sheet = (Path(__file__).parents[1] / "show.css").read_text(encoding="utf-8")
    _, *found = re.split(r"/\* === ([\w-]+) === \*/", sheet)
    return {name: _small(rules) for name, rules in zip(found[::2], found[1::2], strict=True)}


def _small(rules):
    rules = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", rules, flags=re.S))
    return re.sub(r" ?([{};,>]) ?", r"\1", rules).replace(";}", "}").strip()


def _named(*texts):
    return set(re.findall(r"--attn-(\w+)", " ".join(texts)))


def carried(page):
    """An output's HTML with all that it needs elsewhere."""
    page = SVG.sub(_as_image, page)
    rules = "".join(part for name, part in _parts().items() if name in page)
    if not rules:
        return page
    # Last, because a cleaner that drops the tag may leave its text.
    return f'{page}<style class="attn-style">{_small(css(_named(rules)))}{rules}</style>'


def bare(page):
    """The same HTML for a page that has our style sheets: pictures inline, nothing carried."""
    return STYLE.sub("", LEFT.sub("", IMAGE.sub(_as_svg, page)))


def _as_image(match):
    space, alt, size, rest = match.groups()
    head, drawn = rest.split(">", 1)
    colours = _small(css(_named(rest, INSIDE)).splitlines()[0])
    whole = f"<svg {space} {size}{head}><style>{colours}{INSIDE}</style>{drawn}</svg>"
    source = f"data:image/svg+xml,{whole.translate(CODES)}"
    image = f'<img class="attn-image" alt="{alt}" {size} src=\'{source}\'>'
    # Where images are dropped too, a picture without a caption leaves its words behind.
    captioned = "<figcaption>" in match.string[match.end() : match.end() + 30]
    instead = f'<p class="attn-unseen attn-instead" aria-hidden="true">{alt}</p>'
    return image if captioned else image + instead


def _as_svg(match):
    from urllib.parse import unquote

    alt, source = match.groups()
    drawn = re.sub("<style>.*?</style>", "", unquote(source), count=1)
    return drawn.replace(" width=", f' role="img" aria-label="{alt}" width=', 1)

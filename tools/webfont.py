"""Fonts of the site, cut down to the characters in use (woff2); none of them is committed."""

import logging
import re

from fontTools.subset import Options, Subsetter, load_font, save_font

# Sphinx lets every library speak; this one reports each table of each font.
logging.getLogger("fontTools").setLevel(logging.WARNING)

# Signs that a later chapter may use without a full build.
SAFE = (
    "".join(map(chr, range(0x20, 0x7F)))
    + "°±·×÷ℓℝ∂∇∈∉∑∏−∓√∞∧∨∩∪≈≠≡≤≥≪≫⊙⊕⊗⊤⊥⋅⋯⋮⋱…′″←→↔⇒⇔↦⟨⟩⌊⌋⌈⌉‖∣⏞⏟∼∝¬ˆ˜¯αβγδεθλμπρστφχψωΔΣΩ"
)
# Latin and Greek letters in italic: what <mi> shows for a single letter.
ITALIC = [*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C), 0x210E]
BOLD = range(0x1D400, 0x1D434)


def math_characters(pages):
    """The code points that the formulas of some pages need, with a safe base set.

    Parameters
    ----------
    pages : iterable of str
        HTML of the pages.

    Returns
    -------
    set of int
    """
    found = {ord(char) for char in SAFE} | set(ITALIC) | set(BOLD)
    for page in pages:
        for formula in re.findall(r"<math\b.*?</math>", page, re.DOTALL):
            found |= {ord(char) for char in re.sub(r"<[^>]*>", "", formula)}
    return found


def icon_rules(css, names):
    """Keep only the icon rules in use, and only the font file that holds them.

    Parameters
    ----------
    css : str
        The theme's style sheet.
    names : set of str
        Icon classes on the pages, such as ``fa-sun``.

    Returns
    -------
    tuple of (str, set of int)
        The shorter style sheet and the code points of the icons left in it.
    """

    def rule(match):
        used = [
            part for part in match[1].split(",") if part.removeprefix(".").removesuffix(":before") in names
        ]
        return ",".join(used) + match[2] if used else ""

    css = re.sub(r"((?:\.fa-[a-z0-9-]+:before,?)+)(\{content:\"\\?[^\"]{1,6}\"\})", rule, css)
    css = re.sub(r"@font-face\{[^}]*fa-(?:regular|brands)-400[^}]*\}", "", css)
    css = re.sub(r",url\([^)]*\.ttf\) format\(\"truetype\"\)", "", css)
    icons = {int(code, 16) for code in re.findall(r"\"\\([0-9a-f]{4})\"", css)}
    icons |= {ord(char) for char in re.findall(r"\"([\ue000-\uf8ff])\"", css)}
    return css, icons


def subset(source, characters, target):
    """Write ``target`` (woff2) with the glyphs of ``characters`` and all that mathematics needs of them."""
    options = Options(
        flavor="woff2",
        layout_features=[
            "ssty",
            "dtls",
            "flac",
            "ccmp",
            "mark",
            "mkmk",
            "kern",
        ],  # no alternate letter shapes
        name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14],  # the licence stays in the file
        notdef_outline=True,
        hinting=False,
        recalc_timestamp=False,
    )
    font = load_font(str(source), options)
    cutter = Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    save_font(font, str(target), options)

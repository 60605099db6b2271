"""TeX formulas to MathML, in pure Python: latex2mathml, then the repairs that browsers need.

Browsers draw MathML Core. It knows no ``columnalign``, and ``mathvariant`` only as ``normal``; it reads the
form of a sign from its place alone. ``to_mathml`` puts that right, gives the letters of Q, K, V and O the
class of their role, and refuses a formula of which any part was not understood.
"""

import html
import importlib.util
import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree as ET

from fontTools.ttLib import TTFont
from latex2mathml import commands
from latex2mathml.converter import Converter

ROLES = {"q": "query", "k": "key", "v": "value", "o": "output"}
# Names of functions: upright, a thin space beside a letter, none before a bracket.
FUNCTIONS = set(
    "arccos arcsin arctan argmax argmin cos cosh cot csc deg det dim exp gcd hom inf ker lg lim liminf "
    "limsup ln log max min Pr sec sin sinh sup tan tanh".split()
)
# Their subscript stands below in a displayed formula.
LIMITED = {"argmax", "argmin", "det", "gcd", "inf", "lim", "liminf", "limsup", "max", "min", "sup", "Pr"}
PARTS = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}
LONG_SIGNS = {"⏟": "brace-below", "⏞": "brace-above", "―": "line-above"}
# What latex2mathml calls an operator and a reader reads as a quantity.
QUANTITIES = set("∞⊤⊥∂∇∅ℓℏ°%…′″∀∃")
OPENING, CLOSING = set("([{⟨⌊⌈"), set(")]}⟩⌋⌉")
ENVIRONMENTS = {
    "aligned": "align*",
    "align": "align*",
    "split": "align*",
    "gathered": "matrix",
    "gather": "matrix",
}
ENVIRONMENTS |= {"gather*": "matrix", "equation": "", "equation*": ""}
KNOWN = {name.lstrip("\\") for name in commands.MATRICES} | {"array"}
SPACES = {"negativethinmathspace": "-0.167em", "negativemediummathspace": "-0.222em"}
# First code point of each styled alphabet: capitals, small letters, digits (0 where there is none).
ALPHABETS = {
    "bold": (0x1D400, 0x1D41A, 0x1D7CE),
    "bold-italic": (0x1D468, 0x1D482, 0x1D7CE),
    "double-struck": (0x1D538, 0x1D552, 0x1D7D8),
    "sans-serif": (0x1D5A0, 0x1D5BA, 0x1D7E2),
    "monospace": (0x1D670, 0x1D68A, 0x1D7F6),
}
# The font comes in the package ziamath, which is not imported: its import warns.
FONT = Path(importlib.util.find_spec("ziamath").origin).parent / "fonts" / "STIXTwoMath-Regular.ttf"
HOLES = dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))  # double-struck capitals that Unicode had before


class FormulaError(ValueError):
    """A formula, or a part of it, that could not be turned into MathML."""


def to_mathml(tex, *, display=False):
    """Turn one TeX formula into a ``<math>`` element.

    Parameters
    ----------
    tex : str
        The formula without dollar signs.
    display : bool
        True for a formula on a line of its own.

    Returns
    -------
    str
        MathML for HTML5, with the TeX kept in ``alttext``.

    Raises
    ------
    FormulaError
        If the formula is empty, an environment or command is unknown, or something else is left over.

    Examples
    --------
    >>> to_mathml("Q")
    '<math alttext="Q"><mi class="role-query">Q</mi></math>'
    """
    source = " ".join(tex.split())
    if not source:
        raise FormulaError("the formula is empty")
    try:
        math = Converter(display="block" if display else "inline").convert_to_element(_environments(source))
    except FormulaError:
        raise
    except Exception as error:  # latex2mathml raises many kinds, most of them without a message
        raise FormulaError(f"{type(error).__name__} {error}".strip()) from error
    _repair(math)
    if display:
        for element in math.iter():
            _limits(element)
    else:
        _fit_roots(math)
    _refuse_leftovers(math, source)
    body = math[0] if len(math) == 1 and math[0].tag == "mrow" and len(math[0]) == 1 else math
    out = ET.Element("math", {"display": "block"} if display else {})
    out.set("alttext", source)
    out.extend(list(body))
    return ET.tostring(out, encoding="unicode", short_empty_elements=False)


def plain(tex):
    r"""The letters and signs of a formula as one line of text, for places that hold no mark-up.

    Examples
    --------
    >>> plain(r"\sqrt{d_h}")
    '√dh'
    """
    root = ET.fromstring(to_mathml(tex))
    for element in root.iter("msqrt"):
        element.text = "√" + (element.text or "")
    return "".join(root.itertext())


def _environments(tex):
    """Replace the environments that latex2mathml lacks by ones that it has."""

    def swap(match):
        word, name = match.groups()
        if name not in ENVIRONMENTS and name not in KNOWN:
            raise FormulaError(f"unknown environment {name}")
        name = ENVIRONMENTS.get(name, name)
        return rf"\{word}{{{name}}}" if name else ""

    tex = re.sub(r"\\(begin|end)\s*\{([^}]*)\}", swap, tex)
    return re.sub(r"\\not\s*=", r"\\ne ", re.sub(r"\\not\s*\\in\b", r"\\notin ", tex))


def _repair(math):
    # Character references are still text here; one that stands for a Latin letter marks an upright letter.
    for element in math.iter():
        if not element.text:
            continue
        if element.tag == "mi" and re.fullmatch(r"&#x0*[46571-9A-Fa-f]{2};", element.text):
            if html.unescape(element.text).isalpha():
                element.set("mathvariant", "normal")
        element.text = html.unescape(element.text)
    for element in math.iter():
        _repair_token(element)
        _repair_table(element)
    for parent in list(math.iter()):
        _merge(parent)
        _primes_and_braces(parent)
    for parent in list(math.iter()):
        _space(parent)
    for element in math.iter("mi"):
        role = ROLES.get(_base_letter(element.text or ""))
        if role:
            element.set("class", f"role-{role}")
    # A row around one thing only costs bytes.
    for parent in list(math.iter()):
        for index, child in enumerate(list(parent)):
            if child.tag == "mrow" and len(child) == 1 and not child.attrib:
                parent[index] = child[0]


def _repair_token(element):
    text = element.text or ""
    variant = element.get("mathvariant")
    if variant and variant != "normal":
        del element.attrib["mathvariant"]
        if element.tag == "mtext":  # words keep their letters, the style sheet sets the face
            element.set("class", f"text-{variant}")
        else:
            element.text = text = "".join(_styled(char, variant) for char in text)
    if element.tag == "mo":
        if text in QUANTITIES:
            element.tag = "mi"
            element.attrib.clear()
        elif len(text) > 1 and text.replace("\u2009", "").replace("\u2006", "").isalpha():
            element.tag = "mi"
            element.attrib.clear()
            element.text = text.replace("\u2009", "").replace("\u2006", "")
            element.set("class", "function")
    elif element.tag == "mi":
        if text in FUNCTIONS:
            element.set("class", "function")
        elif len(text) == 1 and text not in QUANTITIES and not _is_letter(text):
            element.tag = "mo"
            element.text = {"~": "∼"}.get(text, text)
            if text in OPENING | CLOSING:
                element.set("form", "prefix" if text in OPENING else "postfix")
                element.set("stretchy", "false")
            elif text in "|∣‖":
                element.attrib |= {"stretchy": "false", "lspace": "0", "rspace": "0"}
            elif text == ":":
                element.attrib |= {"lspace": "0", "rspace": "0.167em"}
    if element.tag == "mover" and len(element) == 2 and (element[1].text or "") in set("^~¯ˆ˜→⃗˙¨"):
        element.set("accent", "true")
        if len("".join(element[0].itertext())) == 1:  # a mark over one letter must not grow
            element[1].set("stretchy", "false")
            element[1].text = {"^": "ˆ", "~": "˜"}.get(element[1].text, element[1].text)
    if element.tag == "mspace":
        element.set("width", SPACES.get(element.get("width"), element.get("width") or "0"))


def _repair_table(element):
    if element.tag != "mtable":
        return
    lines = (element.attrib.pop("columnlines", "") or "").split()
    pairs = element.get("columnspacing") == "0em 2em" or element.get("displaystyle") == "true"
    for name in ("columnspacing", "rowspacing", "rowlines"):
        element.attrib.pop(name, None)
    if pairs:
        element.set("class", "aligned")
    for row in element:
        for index, cell in enumerate(row):
            classes = [f"cell-{cell.attrib.pop('columnalign', 'center')}"]
            if 0 < index <= len(lines) and lines[index - 1] != "none":
                classes.append("cell-line")
            if classes != ["cell-center"]:
                cell.set("class", " ".join(classes))


def _merge(parent):
    """Join ``h e a d`` into one upright word, and ``1 , 000`` into one number."""
    children = list(parent)
    index = 0
    while index < len(children) - 1:
        here, after = children[index], children[index + 1]
        if all(item.tag == "mi" and item.get("mathvariant") == "normal" for item in (here, after)):
            here.text += after.text
            parent.remove(children.pop(index + 1))
        elif (
            index + 2 < len(children)
            and (here.tag, after.tag, children[index + 2].tag) == ("mn", "mrow", "mn")
            and "".join(after.itertext()) == ","
        ):
            here.text += "," + children[index + 2].text
            parent.remove(children.pop(index + 2))
            parent.remove(children.pop(index + 1))
        else:
            index += 1
    for child in parent:
        if child.tag == "mi" and len(child.text or "") > 1:
            child.attrib.pop("mathvariant", None)  # a word is upright by itself


def _primes_and_braces(parent):
    """Primes at their own height; braces and overlines as a class, since browsers draw long signs in part."""
    for index, child in enumerate(list(parent)):
        if child.tag == "msup" and set(child[1].text or "x") <= set("′″‴"):
            row = ET.Element("mrow")
            row.extend([child[0], ET.Element("mi", mathvariant="normal")])
            row[1].text = child[1].text
            parent[index] = row
        elif child.tag in {"munder", "mover"} and (child[1].text or "") in LONG_SIGNS:
            row = ET.Element("mrow", {"class": LONG_SIGNS[child[1].text]})
            row.append(child[0])
            parent[index] = row


def _fit_roots(math):
    """State the width of plain roots in running text.

    A browser keeps room for its widest root sign there, which leaves a gap before the next word.
    """
    for parent in list(math.iter()):
        for index, child in enumerate(list(parent)):
            width = _width(child) if child.tag == "msqrt" else None
            if width:
                box = ET.Element("mpadded", width=f"{width:.3f}em")
                box.append(child)
                parent[index] = box


def _width(element, scale=1.0):
    """Width in em of letters, numbers, their subscripts and a root over them; None for anything else."""
    advance, script = _metrics()
    if element.tag in {"mi", "mn"} and element.text:
        text = element.text
        if element.tag == "mi" and len(text) == 1 and not element.get("mathvariant"):
            text = unicodedata.normalize("NFC", _italic(text))
        widths = [advance.get(ord(char)) for char in text]
    elif element.tag == "msub":
        widths = [_width(element[0]), _width(element[1], script), 0.041]  # the font's space after a script
    elif element.tag in {"mrow", "msqrt"}:
        widths = [_width(child) for child in element] + (
            [advance[ord("√")]] if element.tag == "msqrt" else []
        )
    else:
        return None
    return None if None in widths else scale * sum(widths)


def _italic(char):
    if char == "h":
        return "ℎ"
    if char.isascii() and char.isalpha():
        return chr((0x1D434 if char.isupper() else 0x1D44E) + ord(char) - ord("A" if char.isupper() else "a"))
    return char


@lru_cache(1)
def _metrics():
    """Advance widths in em by code point, and the scale of subscripts."""
    with TTFont(FONT, lazy=True) as font:
        names, widths, em = font.getBestCmap(), font["hmtx"].metrics, font["head"].unitsPerEm
        script = font["MATH"].table.MathConstants.ScriptPercentScaleDown / 100
    return {code: widths[name][0] / em for code, name in names.items()}, script


def _limits(element):
    below = {"msub": "munder", "msubsup": "munderover"}
    if element.tag in below and (element[0].text or "") in LIMITED and element[0].get("class") == "function":
        element.tag = below[element.tag]


def _core(element):
    """The thing that scripts hang on."""
    while element.tag in {"msub", "msup", "msubsup", "munder", "mover", "munderover", "mrow"} and len(
        element
    ):
        if element.tag == "mrow" and len(element) > 1:
            break
        element = element[0]
    return element


def _space(parent):
    """Give each sign after another sign its prefix form, and each function name its thin spaces."""
    if parent.tag not in {"mrow", "mtd", "math", "mstyle", "msqrt", "mphantom", "mpadded"}:
        return
    out, before = [], None
    for child in list(parent):
        core = _core(child)
        text = core.text or ""
        function = core.get("class") == "function"
        after_sign = before is None or (
            before.tag == "mo"
            and before.get("form") != "postfix"
            and (before.text or "") not in CLOSING | set("|‖!")
        )
        if core.tag == "mo" and text in "−+±-¬" and after_sign:
            core.set("form", "prefix")
        quantity = core.tag not in {"mo", "mspace"} or text in "∑∏∫"
        if before is not None and (function and not after_sign or _is_function(before) and quantity):
            if not (before.tag == "mspace" or child.tag == "mspace" or _opens(child)):
                out.append(ET.Element("mspace", width="0.167em"))
        out.append(child)
        before = core
    if len(out) != len(parent):
        for child in list(parent):
            parent.remove(child)
        parent.extend(out)


def _is_function(element):
    return element.get("class") == "function"


def _opens(element):
    """True for a bracket, and for a row that starts with one."""
    while element.tag in {"mrow", "msub", "msup", "msubsup"} and len(element):
        element = element[0]
    return element.tag == "mo" and (element.text or "") in OPENING


def _is_letter(char):
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Mn"


def _styled(char, variant):
    if variant == "double-struck" and char in HOLES:
        return HOLES[char]
    starts = ALPHABETS.get(variant)
    if starts is None or not char.isascii() or not char.isalnum():
        return char
    start, first = next(
        (start, first) for start, first, end in zip(starts, "Aa0", "Zz9", strict=True) if first <= char <= end
    )
    return chr(start + ord(char) - ord(first))


def _base_letter(text):
    """The plain small letter of an italic or bold Q, K, V or O; script letters (the O of orders) stay out."""
    if len(text) != 1:
        return ""
    code = ord(text)
    if 0x1D400 <= code < 0x1D49C:  # bold, italic, bold italic
        text = unicodedata.normalize("NFKD", text)
    return text.lower() if text.isascii() else ""


def _refuse_leftovers(math, source):
    for element in math.iter():
        text = element.text or ""
        if "\\" in text or "$" in text:
            raise FormulaError(f"not understood: {text}")
        if text == "&" and r"\&" not in source:
            raise FormulaError("a column mark & outside a table")
        if element.tag == "mspace" and element.get("linebreak"):
            raise FormulaError(r"a line break \\ outside an environment: use aligned or gathered")
        if element.tag in PARTS and len(element) != PARTS[element.tag]:
            raise FormulaError(f"{element.tag} has {len(element)} parts, needs {PARTS[element.tag]}")
        if element.tag == "merror":
            raise FormulaError("an error element in the result")
    if not "".join(math.itertext()).strip():
        raise FormulaError("the result is empty")

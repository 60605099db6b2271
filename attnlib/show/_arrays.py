"""What every picture needs to know about its input: arrays of any library, and labels as literal text."""

import unicodedata

import numpy as np

from attnlib.errors import AttnError, MaskError, ShapeError

# A token is text, whatever it holds. What the eye cannot see gets a mark; tokenizers' byte-level marks
# (U+0120 and U+2581 for a space, U+010A for a new line) get the mark of what they stand for.
SPACE, LINE, TAB, EMPTY = "\u2423", "\u23ce", "\u21e5", "\u2205"
MARKS = {"\n": LINE, "\r": "\u240d", "\t": TAB, "\u0120": SPACE, "\u2581": SPACE, "\u010a": LINE}
JOINERS = {"\u200c", "\u200d"}  # invisible, but letters and emoji around them change shape without them


def to_numpy(array, name="array"):
    """`array` as NumPy: booleans and integers as they are, every float type as float64.

    Parameters
    ----------
    array : array_like
        NumPy, torch (also on a GPU, with gradients, or bfloat16), or nested lists of numbers.
    name : str
        What a refusal calls it.

    Returns
    -------
    numpy.ndarray
        dtype bool, an integer type, or float64.

    Raises
    ------
    ShapeError
        If rows differ in length or the entries are not real numbers.
    """
    if hasattr(array, "detach"):  # a torch tensor: NumPy has no bfloat16, float64 holds each of its values
        array = array.detach().cpu()
        array = array.double() if array.is_floating_point() else array
    try:
        array = np.asarray(array)
    except (TypeError, ValueError):
        lengths = sorted({len(row) for row in array if hasattr(row, "__len__")}) if _is_list(array) else []
        found = f"rows of {lengths[0]} and {lengths[-1]} entries" if len(lengths) > 1 else "mixed entries"
        raise ShapeError(f"{name} has {found}: give every row the same number of entries") from None
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind not in "biu":
        raise ShapeError(f"{name} holds {array.dtype} entries, wanted real numbers or booleans: convert it")
    return array


def to_list(given, name):
    """What may be any sequence, as a list."""
    if given is None or isinstance(given, (int, float, bytes)) or not hasattr(given, "__iter__"):
        raise ShapeError(f"{name} is {given!r:.60}, wanted a list of entries, as in {name}=[...]")
    try:
        return list(given)
    except TypeError:  # an array without axes says only now that it has none
        raise ShapeError(f"{name} has no entries, wanted a list of them, as in {name}=[...]") from None


def index_hint(array, name, most=2):
    """The fix that gives `array` two axes (or no more than `most`)."""
    if array.ndim < 2:
        return f"use {name}[{', '.join(['None'] * (2 - array.ndim) + [':'] * array.ndim)}] for one row"
    return f"index the extra axes, as in {name}[{', '.join(['0'] * (array.ndim - most))}]"


def wording(given, name):
    """A title, a caption: as it is written, but for characters that nothing can show."""
    if given is None:
        return ""
    if not isinstance(given, (str, int, float)):
        raise AttnError(f"{name} is a {type(given).__name__}, wanted a text, as in {name}='...'")
    given = str(given)
    kept = (char if unicodedata.category(char) == "Zs" else _mark(given, at) for at, char in enumerate(given))
    return "".join(kept)


def _is_list(array):
    return isinstance(array, (list, tuple))


def to_matrices(matrices, kind):
    """One 2-D array, a stack of them, or a list of them, as a list of 2-D NumPy arrays."""
    if _is_list(matrices) and len(matrices) and all(_ndim(m) == 2 for m in matrices):
        found = [to_numpy(matrix, f"matrix {n}") for n, matrix in enumerate(matrices, 1)]
    else:
        array = to_numpy(matrices, "matrix")
        if array.ndim not in (2, 3) or (array.ndim == 3 and len(array) == 0):
            fix = index_hint(array, "x", most=3) if array.ndim != 3 else "give at least one matrix"
            raise ShapeError(f"the matrix has shape {array.shape}, {array.ndim} axes, wanted 2 (or 3): {fix}")
        found = [array] if array.ndim == 2 else list(array)
    for matrix in found:
        if 0 in matrix.shape:
            raise ShapeError(f"the matrix has shape {matrix.shape}, wanted at least 1 row and 1 column")
        if kind == "mask" and matrix.dtype != bool:
            raise MaskError(
                f"a mask of {matrix.dtype} was given, wanted bool: use mask > 0 (True = may attend), "
                "or kind='scores' for an additive mask"
            )
    return found


def _ndim(array):
    if hasattr(array, "ndim"):
        return array.ndim
    return 1 + _ndim(array[0]) if _is_list(array) and len(array) else int(_is_list(array))


def to_allowed(allowed, matrices):
    """The boolean `allowed` of every matrix, broadcast to its shape; all True where none is given."""
    if allowed is None:
        return [np.ones(matrix.shape, dtype=bool) for matrix in matrices]
    allowed = to_numpy(allowed, "allowed")
    if allowed.dtype != bool:
        raise MaskError(f"allowed holds {allowed.dtype}, wanted bool: use allowed > 0 (True = may attend)")
    found = []
    for n, matrix in enumerate(matrices):
        own = (
            allowed[n % len(allowed)] if allowed.ndim == 3 and len(allowed) in (1, len(matrices)) else allowed
        )
        try:
            found.append(np.broadcast_to(own, matrix.shape))
        except ValueError:
            raise ShapeError(
                f"allowed has shape {allowed.shape}, the matrix {matrix.shape}: "
                "give one boolean per query (row) and key (column)"
            ) from None
    return found


def label(token):
    """A token as literal, visible, one-line text.

    Parameters
    ----------
    token : object
        Usually a str; anything else is shown as ``str(token)``.

    Returns
    -------
    str
        Never empty, legal in XML, without invisible characters except joiners inside a word.

    Examples
    --------
    >>> ascii(label("a b")), ascii(label("")), ascii(label("\\x00"))
    ("'a b'", "'\\\\u2205'", "'U+0000'")
    """
    token = str(token)
    if not token:
        return EMPTY
    shown = "".join(_mark(token, at) for at in range(len(token)))
    # a mark that sits on the letter before it needs a letter: the dotted circle is Unicode's stand-in
    return "\u25cc" + shown if unicodedata.category(token[0]).startswith("M") else shown


def _mark(token, at):
    char = token[at]
    if char in MARKS:
        return MARKS[char]
    inside = 0 < at < len(token) - 1
    if char == " ":  # one space between two words is plain to see
        return " " if inside and token[at - 1] != " " and token[at + 1] != " " else SPACE
    category = unicodedata.category(char)
    if category == "Zs":
        return SPACE
    flag_tag = 0xE0020 <= ord(char) <= 0xE007F
    if category == "Cf" and (flag_tag or (char in JOINERS and len(token) > 1)):
        return char
    if category in ("Cc", "Cf", "Cs", "Zl", "Zp") or ord(char) & 0xFFFE == 0xFFFE:
        return f"U+{ord(char):04X}"
    return char


TOKENS = ("query", "key", "token", "row", "column", "output")  # axes whose labels carry their number


def to_labels(labels, count, axis, name):
    """``(shown, original)`` for one axis of `count` entries: "3 tea" for tokens, "3" where none are given.

    On an axis whose `name` starts with none of `TOKENS` the labels stand alone; so do labels that are not
    strings, and strings that already start with their own number.
    """
    if labels is None:
        return [str(n) for n in range(1, count + 1)], [None] * count
    labels = to_list(labels, "rows" if axis == "rows" else "cols")
    if len(labels) != count:
        raise ShapeError(
            f"{len(labels)} labels for {count} {axis}: give exactly one label per "
            f"{'row (query)' if axis == 'rows' else 'column (key)'}"
        )
    shown = []
    for n, token in enumerate(labels, 1):
        alone = not isinstance(token, str) or token == str(n) or token.startswith(f"{n} ")
        alone = alone or not name.startswith(TOKENS)
        shown.append(label(token) if alone else f"{n} {label(token)}")
    return shown, [str(token) for token in labels]


def hidden_cells(matrix, allowed, kind):
    """Which cells no query may use: forbidden by `allowed`, False in a mask, or -inf in scores."""
    if kind == "mask":
        return ~(matrix & allowed)
    minus = np.isneginf(matrix) if matrix.dtype.kind == "f" else np.zeros(matrix.shape, dtype=bool)
    return ~allowed | minus

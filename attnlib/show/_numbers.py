"""The one printer of numbers. What it prints is ASCII, and the same on every machine.

Two machines may differ in the last bit of a sum. So a number is first cut to 12 digits: 1 - 2**-53 is then 1
everywhere, and a tie such as 0.03125 is rounded the same way everywhere.
"""

import sys

import numpy as np

from attnlib.errors import AttnError, ShapeError

from ._arrays import to_numpy

LONG = 400  # more entries than this are summed up, not printed
WIDE = 96  # characters in a line
MOST_DIGITS = 40  # more than any number has


def snap(x):
    """`x` cut to 12 significant digits; what is below 1e-13 is the rounding error of a 0."""
    x = float(x)
    if not np.isfinite(x):
        return x
    return 0.0 if abs(x) < 1e-13 else float(f"{x:.12g}")


def formatter(array, digits=4):
    """A function that prints the entries of `array`, all with the same number of decimals."""
    if not isinstance(digits, int) or digits is True or not 0 <= digits <= MOST_DIGITS:
        raise ShapeError(
            f"digits is {digits!r}, wanted a whole number from 0 to {MOST_DIGITS}, as in digits=4"
        )
    array = np.asarray(array)
    if array.dtype.kind == "b":
        return lambda x: str(bool(x))
    if array.dtype.kind in "iu":
        return lambda x: str(int(x))
    finite = [snap(x) for x in array.ravel() if np.isfinite(x)]
    whole = all(x == round(x) and abs(x) < 1e15 for x in finite)

    def one(x):
        x = snap(x)
        if np.isnan(x):
            return "nan"
        if np.isinf(x):
            return "inf" if x > 0 else "-inf"
        if whole:
            return str(int(x))
        shown = f"{x:.{digits}e}" if abs(x) >= 1e6 else f"{x:.{digits}f}"
        return shown[1:] if shown.startswith("-") and float(shown) == 0 else shown

    return one


def number(x, digits=4):
    """One number as text.

    Parameters
    ----------
    x : float, int, bool, or array of one entry
        What to print.
    digits : int
        Decimals, unless `x` is whole. From a million on, decimals of the power-of-ten form.

    Returns
    -------
    str
        ASCII; never "-0".

    Raises
    ------
    ShapeError
        If `x` is not one real number.

    Examples
    --------
    >>> number(0.84379), number(2.0), number(-0.00001), number(float("-inf"))
    ('0.8438', '2', '0.0000', '-inf')
    """
    if isinstance(x, int):  # also past 64 bits
        return str(x)
    array = to_numpy(x, "the number")
    if array.size != 1:
        raise ShapeError(f"number got {array.size} numbers of shape {array.shape}, wanted 1: use text")
    return formatter(array, digits)(array.ravel()[0])


def compact(x, digits=4):
    """One number with no zeros at its end, for short vectors inside a table: 1, 0.5."""
    shown = number(x, digits)
    if "." in shown and "e" not in shown:
        shown = shown.rstrip("0").rstrip(".")
    return shown


def vector(entries, digits=4):
    """A short vector as ``(1, 0.5)``."""
    inside = ", ".join(
        entry
        if isinstance(entry, str)
        else vector(entry, digits)
        if isinstance(entry, (tuple, list)) or np.ndim(entry)
        else compact(entry, digits)
        for entry in entries
    )
    return f"({inside},)" if isinstance(entries, tuple) and len(entries) == 1 else f"({inside})"


def text(array, digits=4):
    """An array as aligned rows in brackets.

    Parameters
    ----------
    array : array_like
        Any number of axes. Masked scores print as ``-inf``.
    digits : int
        Decimals, unless every finite entry is whole.

    Returns
    -------
    str
        ASCII. Beyond 400 entries: shape, smallest and largest entry instead of the digits.

    Raises
    ------
    ShapeError
        If the entries are not real numbers or rows differ in length.

    Examples
    --------
    >>> print(text([[2, 0, 6], [1, 0.5, float("-inf")]]))
    [[2.0000 0.0000 6.0000]
     [1.0000 0.5000   -inf]]
    """
    array = to_numpy(array)
    if array.size == 0:
        return f"[] (shape {_shape(array)})"
    if array.size > LONG:
        return summary(array, digits)
    one = formatter(array, digits)
    if array.ndim == 0:
        return one(array[()])
    width = max(len(one(x)) for x in array.ravel())
    return _brackets(array, lambda x: one(x).rjust(width), width, 0)


def _brackets(array, one, width, indent):
    if array.ndim == 1:
        per_line = max(1, (WIDE - indent) // (width + 1))
        lines = [" ".join(map(one, array[at : at + per_line])) for at in range(0, len(array), per_line)]
        return "[" + ("\n" + " " * (indent + 1)).join(lines) + "]"
    between = "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + between.join(_brackets(block, one, width, indent + 1) for block in array) + "]"


def _shape(array):
    return " x ".join(map(str, array.shape)) + (" entries" if array.ndim == 1 else "")


def summary(array, digits=4):
    """Shape and range of an array too large to print, as one ASCII line."""
    if array.dtype == bool:
        return f"{_shape(array)}: {int(array.sum())} True, {int((~array).sum())} False"
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        return f"{_shape(array)}: no finite entry"
    ends = np.asarray([finite.min(), finite.max()])
    least, most = map(formatter(ends, digits), ends)
    nan, hidden = int(np.isnan(array).sum()), int(np.isneginf(array).sum())
    more = (f", {hidden} entries -inf" if hidden else "") + (f", {nan} entries nan" if nan else "")
    return f"{_shape(array)}: min {least}, max {most}{more}"


def values(mapping=None, /, *, digits=4, **named):
    """Print each value after its name.

    Parameters
    ----------
    mapping : dict, optional
        Names that are no Python names, as in ``{"row sums": sums}``. Printed first.
    digits : int
        As in `text`.
    **named : array_like, str, tuple or None
        Scalars, strings and vectors stand on one line; a matrix starts on the next.

    Examples
    --------
    >>> values(S=[[3, 0], [6, 3]], shape=(2, 2), lse=3.16984)
    S =
      [[3 0]
       [6 3]]
    shape = (2, 2)
    lse = 3.1698
    """
    if not isinstance(mapping, dict | None):
        raise AttnError(f"values got a {type(mapping).__name__}, wanted a dict of names to arrays, or x=...")
    for name, value in {**(mapping or {}), **named}.items():
        shown = _value(value, digits)
        _print(f"{name} =\n  " + shown.replace("\n", "\n  ") if "\n" in shown else f"{name} = {shown}")


def _value(value, digits):
    if value is None or isinstance(value, (str, type, np.dtype)):
        return str(value)
    if isinstance(value, (list, tuple)) and any(isinstance(entry, str) for entry in value):
        return str(value)
    if isinstance(value, tuple) and all(np.ndim(entry) == 0 for entry in value):
        return vector(value, digits)
    if isinstance(value, int):
        return number(value)
    try:
        return text(value, digits)
    except ShapeError:
        if isinstance(value, (list, tuple)) or hasattr(value, "dtype"):
            raise
        return str(value)  # a dtype, a device, a class: not numbers, but it prints


def _print(line):
    # a Windows console may know no Greek and no emoji: print their code rather than stop
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))

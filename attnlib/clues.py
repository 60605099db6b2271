"""What the visible checks of the assignments say: they name a suspect, never the answer."""

import numpy as np


def compare(got, right, suspects=None, *, what="the answer", atol=5e-4):
    """Say what is wrong with `got`, or nothing if it is right.

    Parameters
    ----------
    got : array, number or None
        What the student's code gave.
    right : array or number
        What was wanted; rounded numbers will do.
    suspects : dict, optional
        A sentence → the wrong numbers that this mistake gives. The first that fits is named.
    what : str
        How the messages call `got`, with its article.
    atol : float
        How far a number may be off: for numbers rounded to 4 digits, 5e-4.

    Raises
    ------
    AssertionError
        If `got` is missing, not an array of numbers, of another shape, NaN where `right` is not, or not
        the same; the message gives the place and what stands there, never what belongs there.

    Notes
    -----
    NaN never passes where `right` has a number. Infinities must stand in the same places.

    Examples
    --------
    >>> compare([0.5, 0.5], [0.5, 0.5])
    >>> scaled = {"the scale was left out": [0.018, 0.002, 0.98]}
    >>> compare([0.018, 0.002, 0.98], [0.114, 0.042, 0.844], scaled, what="row 3")
    Traceback (most recent call last):
    ...
    AssertionError: row 3: the scale was left out
    """
    if got is None:
        raise AssertionError(
            f"{what}: got None; is it filled in, does the function return?"
        )
    if got is ...:
        raise AssertionError(f"{what}: got ..., wanted numbers")
    try:
        # A copy: what the student returned may be a view that changes later.
        numbers = np.array(got, dtype=np.float64)
    except (TypeError, ValueError):
        raise AssertionError(
            f"{what}: got {type(got).__name__}, wanted an array of numbers"
        ) from None
    right = np.asarray(right, dtype=np.float64)
    if numbers.shape != right.shape:
        raise AssertionError(
            f"{what}: got shape {numbers.shape}, wanted {right.shape}"
        )
    if _same(numbers, right, atol):
        return
    for sentence, wrong in (suspects or {}).items():
        wrong = np.asarray(wrong, dtype=np.float64)
        if wrong.shape == numbers.shape and _same(
            numbers, wrong, atol, nan=True
        ):
            raise AssertionError(f"{what}: {sentence}")
    far = ~_close(numbers, right, atol)
    place = tuple(int(i) for i in np.argwhere(far)[0])
    raise AssertionError(
        f"{what}: {int(far.sum())} of {far.size} numbers are not right; the first is "
        f"{numbers[place]:.4g}{_where(place)}"
    )


def _close(a, b, atol, nan=False):
    with np.errstate(invalid="ignore"):
        close = np.abs(a - b) <= atol
    same = a == b  # infinities
    return close | same | (np.isnan(a) & np.isnan(b) if nan else False)


def _same(a, b, atol, nan=False):
    return bool(np.all(_close(a, b, atol, nan)))


def _where(place):
    if not place:
        return ""
    if len(place) == 1:
        return f" at place [{place[0]}]"
    head = f"head {place[-3]}, " if len(place) > 2 else ""
    return f" at {head}row {place[-2]}, column {place[-1]} (counted from 0)"


__all__ = ["compare"]

"""What every floor needs to know about arrays: which library, which precision."""

import operator

import array_api_compat
import numpy as np

from .errors import ShapeError


def namespace(**arrays):
    """The array library that all `arrays` share.

    Parameters
    ----------
    **arrays : array
        Named so that a refusal can say which one is not an array.

    Returns
    -------
    module
        The library's array API namespace (NumPy, torch, ...).

    Raises
    ------
    ShapeError
        If one is no array, or if two belong to different libraries.
    """
    for name, array in arrays.items():
        if not array_api_compat.is_array_api_obj(array):
            raise ShapeError(
                f"{name} is a {type(array).__name__}, wanted an array: "
                f"wrap it, as in numpy.asarray({name}, dtype=float)"
            )
    try:
        return array_api_compat.array_namespace(*arrays.values())
    except TypeError:
        kinds = ", ".join(
            f"{name}: {type(array).__module__}"
            for name, array in arrays.items()
        )
        raise ShapeError(
            f"arrays of different libraries ({kinds}), wanted one: convert them first"
        ) from None


def statistics_dtype(xp, dtype):
    """The type that scores and softmax are computed in: `dtype`, at least float32; integers are refused."""
    if not xp.isdtype(dtype, "real floating"):
        raise ShapeError(
            f"got type {dtype}, wanted floating point: convert it, as in array * 1.0"
        )
    return xp.float32 if xp.finfo(dtype).bits < 32 else dtype


def constant(xp, number, like):
    """`number` as a 0-d array of `like`'s type and device."""
    return xp.asarray(
        number, dtype=like.dtype, device=array_api_compat.device(like)
    )


def to_library(array, like):
    """A NumPy `array` on the library and device of `like` (unchanged if `like` is None)."""
    if like is None:
        return array
    xp = namespace(like=like)
    return xp.asarray(array, device=array_api_compat.device(like))


def whole_number(number, name):
    """`number` as an int of at least 1; anything else is refused under its `name`."""
    try:
        whole = (
            0 if isinstance(number, bool | np.bool_) else operator.index(number)
        )
    except TypeError:
        whole = 0
    if whole < 1:
        raise ShapeError(
            f"{name} is {number!r}, wanted a whole number of at least 1"
        )
    return whole

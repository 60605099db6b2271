"""What every floor needs to know about arrays: which library, which precision."""

import math
import operator

import array_api_compat
import numpy as np

from ._torch import full_precision
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
        # A masked array's own mask would be forgotten by some of the steps, and not by others.
        masked = isinstance(array, np.ma.MaskedArray)
        if masked or not array_api_compat.is_array_api_obj(array):
            raise ShapeError(
                f"{name} is a {type(array).__name__}, wanted an array{_how_to_wrap(array, arrays)}"
            )
    try:
        return array_api_compat.array_namespace(*arrays.values())
    except TypeError:
        kinds = ", ".join(
            f"{name}: {type(array).__module__}"
            for name, array in arrays.items()
        )
        torch = any(map(array_api_compat.is_torch_array, arrays.values()))
        numpy = [n for n, a in arrays.items() if isinstance(a, np.ndarray)]
        fix = f", as in torch.asarray({numpy[0]})" if torch and numpy else ""
        raise ShapeError(
            f"arrays of different libraries ({kinds}), wanted one: convert them first{fix}"
        ) from None


def _how_to_wrap(thing, arrays):
    """The words that say how to make an array of `thing` beside its neighbours; none where nothing would."""
    try:
        kind = np.asarray(thing).dtype.kind
    except (TypeError, ValueError):  # rows of different lengths
        return ""
    if kind not in "biuf" or isinstance(thing, np.ma.MaskedArray):
        return ""
    name = next(name for name, array in arrays.items() if array is thing)
    there = [
        (name, array)
        for name, array in arrays.items()
        if array_api_compat.is_array_api_obj(array)
    ]
    library = type(there[0][1] if there else np.empty(0)).__module__
    library = library.split(".")[0]
    # Whole numbers are meant as numbers, except 0 and 1 in a mask, where they are meant as no and yes.
    is_mask = "mask" in name or name == "allowed"
    if kind == "b" or (
        is_mask and kind in "iu" and np.isin(thing, (0, 1)).all()
    ):
        dtype = "bool" if library == "numpy" else "torch.bool"
    else:
        dtype = f"{there[0][0]}.dtype" if there else "float"
    return (
        f": wrap it, as in {library}.asarray({name.split()[0]}, dtype={dtype})"
    )


def statistics_dtype(xp, dtype):
    """The type that scores and softmax are computed in: `dtype`, at least float32; integers are refused."""
    require_floating(xp, dtype, "array")
    # The common type of two is in this machine's byte order, whatever the one had.
    return (
        xp.float32
        if xp.finfo(dtype).bits < 32
        else xp.result_type(dtype, dtype)
    )


def require_same_device(name, array, other_name, other):
    """Refuse an array that lies elsewhere than the one it meets."""
    here, there = map(array_api_compat.device, (array, other))
    if here != there:
        raise ShapeError(
            f"{name} is on {here}, {other_name} on {there}, wanted one device: move it, as in "
            f"{other_name}.to({name}.device)"
        )


def require_floating(xp, dtype, name):
    """Refuse an array called `name` whose type is not floating."""
    if xp.isdtype(dtype, "real floating"):
        if xp.finfo(dtype).bits >= 16:
            return
        raise ShapeError(
            f"{name} has type {dtype}, wanted floating point of at least 16 bits: convert it"
        )
    # Complex numbers have no order, so there is no way out to name.
    fix = xp.isdtype(dtype, "complex floating")
    fix = "" if fix else f": convert it, as in {name} * 1.0"
    raise ShapeError(f"{name} has type {dtype}, wanted floating point{fix}")


def common_dtype(xp, **arrays):
    """The floating type that holds the numbers of all `arrays`; integers and booleans are refused."""
    for name, array in arrays.items():
        require_floating(xp, array.dtype, name)
    return xp.result_type(*(array.dtype for array in arrays.values()))


def product(xp, left, right):
    """The matrix product, in the type of its factors whatever torch's autocast says."""
    with full_precision(left):
        return xp.matmul(left, right)


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


def is_truth(number):
    """Whether `number` is True or False, in any library: they count as 1 and 0, which nobody means."""
    return isinstance(number, bool) or str(
        getattr(number, "dtype", "")
    ).endswith("bool")


def positive_number(number, name):
    """`number` as a float above 0; anything else is refused under its `name`."""
    try:
        unread = is_truth(number) or isinstance(number, str | bytes)
        size = math.nan if unread else float(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        size = math.nan
    if not 0 < size < math.inf:
        raise ShapeError(f"{name} is {number!r}, wanted a positive number")
    return size


def whole_number(number, name, least=1):
    """`number` as an int of at least `least`; anything else is refused under its `name`."""
    try:
        if is_truth(number):
            raise TypeError
        whole = operator.index(number)  # Python, NumPy and torch integers alike
    except TypeError:
        whole = least - 1
    if whole < least:
        raise ShapeError(
            f"{name} is {number!r}, wanted a whole number of at least {least}"
        )
    return whole

"""Masks: who may look at whom. A boolean mask says True where query i may attend to key j.

Rows are queries, columns are keys. torch's ``scaled_dot_product_attention`` reads a boolean mask the same
way; ``torch.nn.MultiheadAttention`` reads it the other way round (True = ignore): see :func:`to_ignore`.
"""

import math
import operator

import numpy as np
from array_api_compat import device
from array_api_compat import is_array_api_obj as is_array

from ._arrays import (
    constant,
    is_truth,
    namespace,
    require_floating,
    require_same_device,
    to_library,
)
from .errors import MaskError

ALIGNMENTS = ("top_left", "bottom_right")


def check_align(align, n_q, n_k, argument="align"):
    """How far the diagonal is moved to the right: query i stands at key position i + offset.

    Parameters
    ----------
    align : {None, "top_left", "bottom_right"}
        ``"top_left"``: query 0 stands at key 0 (torch's ``is_causal``). ``"bottom_right"``: the last
        query stands at the last key (FlashAttention from 2.1 on; decoding with a cache).
    n_q, n_k : int
        Numbers of queries and keys.
    argument : str
        The caller's name for `align`, for messages.

    Returns
    -------
    int
        0 for top-left or equal lengths, ``n_k - n_q`` for bottom-right.

    Raises
    ------
    MaskError
        If the word is unknown, or if it is missing although the lengths differ.
    """
    if align is not None and not (
        isinstance(align, str) and align in ALIGNMENTS
    ):
        raise MaskError(
            f"{argument} is {align!r}, wanted 'top_left' or 'bottom_right'"
        )
    if align is None and n_q != n_k:
        raise MaskError(
            f"{n_q} queries and {n_k} keys: which corner does the diagonal start from? Say "
            f"{argument}='top_left' (query 1 stands at key 1) or {argument}='bottom_right' "
            f"(the last query stands at the last key)"
        )
    return n_k - n_q if align == "bottom_right" else 0


def causal_mask(n_q, n_k, *, align=None, like=None):
    """Each query sees its own position and everything before it.

    Parameters
    ----------
    n_q, n_k : int
        Numbers of queries and keys.
    align : {None, "top_left", "bottom_right"}
        Needed when `n_q` and `n_k` differ; see :func:`check_align`.
    like : array, optional
        Build the mask on this array's library and device.

    Returns
    -------
    boolean array, shape (n_q, n_k)
        True = may attend.

    Raises
    ------
    MaskError
        Unknown `align`, missing `align` with `n_q` != `n_k`, or a negative length.

    Notes
    -----
    With ``"bottom_right"`` and more queries than keys the first ``n_q - n_k`` rows are empty.

    Examples
    --------
    >>> causal_mask(3, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    >>> causal_mask(2, 4, align="bottom_right").astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    behind, _ = _distance(n_q, n_k, align)
    return to_library(behind >= 0, like)


def sliding_window_mask(n_q, n_k, window, *, align=None, like=None):
    """A causal mask that forgets: each query sees the last `window` tokens, **its own included**.

    Parameters
    ----------
    n_q, n_k : int
        Numbers of queries and keys.
    window : int
        How many tokens a query sees at most, counting the current one; at least 1.
    align, like
        As in :func:`causal_mask`.

    Returns
    -------
    boolean array, shape (n_q, n_k)
        True = may attend.

    Raises
    ------
    MaskError
        `window` below 1, or as in :func:`causal_mask`.

    Notes
    -----
    Source: Beltagy et al. 2020 (Longformer). Libraries that count only *earlier* tokens call the same
    mask ``window - 1``.

    Examples
    --------
    >>> sliding_window_mask(4, 4, 2).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    if _whole(window, "window") < 1:
        raise MaskError(
            f"window is {window}, wanted at least 1: it counts the current token"
        )
    behind, _ = _distance(n_q, n_k, align)
    return to_library((behind >= 0) & (behind < window), like)


def prefix_mask(n_q, n_k, prefix, *, align=None, like=None):
    """Every query sees the first `prefix` keys; beyond them the mask is causal.

    Parameters
    ----------
    n_q, n_k : int
        Numbers of queries and keys.
    prefix : int
        From 0 (plain causal) to `n_k` (everything visible).
    align, like
        As in :func:`causal_mask`.

    Returns
    -------
    boolean array, shape (n_q, n_k)
        True = may attend.

    Raises
    ------
    MaskError
        `prefix` below 0 or above `n_k`, or as in :func:`causal_mask`.

    Notes
    -----
    Source: Raffel et al. 2020 (T5), "causal with prefix".

    Examples
    --------
    >>> prefix_mask(4, 4, 2).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    behind, key = _distance(n_q, n_k, align)
    if not 0 <= _whole(prefix, "prefix") <= n_k:
        raise MaskError(
            f"prefix is {prefix}, wanted a number from 0 to the {n_k} keys"
        )
    return to_library((behind >= 0) | (key < prefix), like)


def padding_mask(lengths, n_k, *, like=None):
    """Hide the padding at the end of each sequence of a batch.

    Parameters
    ----------
    lengths : sequence of int
        Real tokens in each sequence, from 0 to `n_k`.
    n_k : int
        Keys in the padded batch.
    like : array, optional
        Build the mask on this array's library and device.

    Returns
    -------
    boolean array, shape (batch, 1, 1, n_k)
        True = may attend; the two axes of 1 broadcast over heads and queries.

    Raises
    ------
    MaskError
        If a length is negative, not whole, or beyond `n_k`.

    Notes
    -----
    It hides *keys*. The rows of padded *queries* still get an output, which means nothing: drop it
    later. Hiding those rows too would only empty them.

    Examples
    --------
    >>> padding_mask([2, 3], 3)[:, 0, 0].astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    column = _checked_lengths(lengths, 0, n_k)[:, None]
    return to_library(
        (np.arange(n_k)[None, :] < column)[:, None, None, :], like
    )


def decoding_mask(n_q, lengths, n_k, *, like=None):
    """The newest tokens of each text against a padded cache in which every text has a length of its own.

    Parameters
    ----------
    n_q : int
        New tokens, the same number for each text.
    lengths : sequence of int
        Real keys of each text, its new tokens included: from `n_q` to `n_k`.
    n_k : int
        Keys in the padded cache.
    like : array, optional
        Build the mask on this array's library and device.

    Returns
    -------
    boolean array, shape (batch, 1, n_q, n_k)
        True = may attend.

    Raises
    ------
    MaskError
        A length that is not whole, below `n_q` or beyond `n_k`.

    Notes
    -----
    New token i of text b stands at position ``lengths[b] - n_q + i`` and sees the keys up to its own. A
    causal mask with ``align="bottom_right"`` counts from the end of the *padded* cache instead: combined
    with :func:`padding_mask` it shows the new tokens of a shorter text to one another.

    Examples
    --------
    >>> decoding_mask(2, [4, 6], 6)[:, 0].astype(int)
    array([[[1, 1, 1, 0, 0, 0],
            [1, 1, 1, 1, 0, 0]],
    <BLANKLINE>
           [[1, 1, 1, 1, 1, 0],
            [1, 1, 1, 1, 1, 1]]])
    """
    n_q = _length(n_q, "n_q")
    lengths = _checked_lengths(lengths, n_q, n_k, "new tokens")
    position = lengths[:, None] - n_q + np.arange(n_q)
    mask = np.arange(n_k) <= position[..., None]
    return to_library(mask[:, None], like)


def document_mask(ids_q, ids_k=None, *, like=None):
    """Packed documents: a query sees only keys of its own document.

    Parameters
    ----------
    ids_q : array of int, shape (..., n_q)
        Document number of each query.
    ids_k : array of int, shape (..., n_k), optional
        Document number of each key; `ids_q` if not given.
    like : array, optional
        Put the mask on this array's library and device; where the numbers are, if not given.

    Returns
    -------
    boolean array, shape (..., n_q, n_k)
        True = may attend. Combine it with a causal mask for a decoder.

    Raises
    ------
    MaskError
        If the numbers are not whole.

    Examples
    --------
    >>> document_mask([1, 1, 2]).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    given = {"ids_q": ids_q}
    if ids_k is not None:
        given["ids_k"] = ids_k
    arrays = {name: ids for name, ids in given.items() if is_array(ids)}
    xp, where = np, {}
    if arrays:
        xp = namespace(**arrays)
        for name, ids in arrays.items():
            require_same_device("ids_q", next(iter(arrays.values())), name, ids)
        where["device"] = device(next(iter(arrays.values())))
    for name, ids in given.items():
        try:
            ids = ids if name in arrays else xp.asarray(ids, **where)
        except (TypeError, ValueError) as problem:
            raise MaskError(
                f"{name} is no array of whole numbers, wanted shape (..., tokens): {problem}"
            ) from None
        whole = (
            np.issubdtype(ids.dtype, np.integer)
            if xp is np
            else (xp.isdtype(ids.dtype, "integral"))
        )
        if ids.ndim < 1 or (math.prod(ids.shape) and not whole):
            raise MaskError(
                f"{name} has shape {tuple(ids.shape)} and type {ids.dtype}, wanted whole numbers "
                f"(..., tokens)"
            )
        given[name] = ids
    ids_q, ids_k = given["ids_q"], given.get("ids_k", given["ids_q"])
    try:
        np.broadcast_shapes(ids_q.shape[:-1], ids_k.shape[:-1])
    except ValueError as problem:
        raise MaskError(
            f"ids_q and ids_k do not fit, wanted shape (..., tokens): {problem}"
        ) from None
    return to_library(ids_q[..., :, None] == ids_k[..., None, :], like)


def combine_masks(*masks):
    """What all boolean masks allow: a key is visible only if every mask says True.

    Parameters
    ----------
    *masks : boolean arrays
        Shapes that broadcast together; one library.

    Returns
    -------
    boolean array
        True = may attend.

    Raises
    ------
    MaskError
        No mask, one that is not boolean, or shapes that do not broadcast.

    Notes
    -----
    Combine booleans, not additive masks: two large negative numbers added together can overflow. What a
    bias adds would be lost; put −∞ into the bias where a mask says False.

    Examples
    --------
    >>> combine_masks(causal_mask(3, 3), document_mask([1, 1, 2])).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    if not masks:
        raise MaskError("no mask given, wanted at least one")
    if isinstance(masks[0], list | tuple) and any(map(is_array, masks[0])):
        raise MaskError(
            f"mask 1 is a {type(masks[0]).__name__} of masks, wanted them one by one: combine_masks(*masks)"
        )
    xp = namespace(
        **{f"mask {place}": mask for place, mask in enumerate(masks, 1)}
    )
    combined = None
    for place, mask in enumerate(masks, 1):
        require_boolean(xp, mask, f"mask {place}")
        require_same_device("mask 1", masks[0], f"mask {place}", mask)
        try:
            combined = mask if combined is None else combined & mask
        except (ValueError, RuntimeError):
            raise MaskError(
                f"mask {place} has shape {tuple(mask.shape)}, which does not broadcast with "
                f"{tuple(combined.shape)}, the shape of those before it"
            ) from None
    return combined


def to_additive(mask, *, dtype=None):
    """The same mask as numbers to add to the scores: 0 where allowed, −∞ where not.

    Parameters
    ----------
    mask : boolean array
        True = may attend.
    dtype : type of the mask's library, optional
        A floating type; float64 on NumPy, the default floating type elsewhere.

    Returns
    -------
    array of `dtype`, same shape

    Raises
    ------
    MaskError
        If `mask` is not boolean or `dtype` not floating.

    Examples
    --------
    >>> to_additive(causal_mask(2, 2))
    array([[  0., -inf],
           [  0.,   0.]])
    """
    xp = namespace(mask=mask)
    require_boolean(xp, mask, "mask")
    try:
        dtype = xp.zeros(1, dtype=dtype or xp.asarray(0.0).dtype).dtype
        floating = xp.isdtype(dtype, "real floating")
    except (TypeError, ValueError):  # another library's
        floating = False
    if not floating:
        raise MaskError(
            f"dtype is {dtype}, wanted a floating type of the mask's library: -inf is no integer"
        )
    allowed = xp.zeros_like(mask, dtype=dtype)
    return xp.where(mask, allowed, constant(xp, -math.inf, allowed))


def to_ignore(mask):
    """Turn the polarity round: True = may attend becomes True = ignore, and back again.

    Parameters
    ----------
    mask : boolean array

    Returns
    -------
    boolean array, same shape
        What ``torch.nn.MultiheadAttention`` wants for `attn_mask` and `key_padding_mask`.

    Raises
    ------
    MaskError
        If `mask` is not boolean.

    Examples
    --------
    >>> to_ignore(causal_mask(2, 2)).astype(int)
    array([[0, 1],
           [0, 0]])
    """
    xp = namespace(mask=mask)
    require_boolean(xp, mask, "mask")
    return ~mask


def read_mask(attn_mask, shape, dtype):
    """Split a mask into what it allows and what it adds, after checking that it fits the scores.

    Parameters
    ----------
    attn_mask : array
        Boolean (True = may attend), or floating point (added to the scaled scores; −∞ hides).
    shape : tuple of int
        The scores' shape (..., Tq, Tk).
    dtype : type of the mask's library
        The scores' type, floating.

    Returns
    -------
    allowed : boolean array, shape of the mask
    bias : array of `dtype`, or None
        0 where hidden; None for a boolean mask.

    Raises
    ------
    MaskError
        An integer mask, or a shape that does not fit. A mask always has a key axis of Tk; its query
        axis and any axis before it may be 1, and must agree otherwise.

    Notes
    -----
    In a floating mask the lowest finite number of its type, or of the scores' type, hides as −∞ does:
    libraries write masks that way, and an empty row must be known from the mask. No other finite
    number hides: −1e9 is a bias.
    """
    xp = namespace(attn_mask=attn_mask)
    floating = xp.isdtype(attn_mask.dtype, "real floating")
    if not (floating or xp.isdtype(attn_mask.dtype, "bool")):
        raise MaskError(
            f"attn_mask has type {attn_mask.dtype}, wanted boolean (True = may attend) or floating point "
            f"(added to the scores): a 0/1 mask would be read two ways; convert it with `attn_mask == 1` "
            f"if 1 means may attend"
        )
    check_fits(tuple(attn_mask.shape), tuple(shape))
    if not floating:
        return attn_mask, None
    require_floating(xp, attn_mask.dtype, "attn_mask")
    lowest = max(
        float(xp.finfo(attn_mask.dtype).min), float(xp.finfo(dtype).min)
    )
    # NaN compares as False, so "not hidden" keeps a NaN visible instead of hiding the mistake.
    allowed = ~(attn_mask <= lowest)
    bias = xp.astype(
        xp.where(allowed, attn_mask, constant(xp, 0.0, attn_mask)), dtype
    )
    # Half the range is left to the scores: a sum that overflows would hide a key that the mask shows.
    half = float(xp.finfo(dtype).max) / 2
    return allowed, xp.clip(bias, -half, None)


def check_fits(mask_shape, scores_shape):
    """A mask broadcasts over any axis but the keys'; nothing broadcasts over the mask."""
    problem = None
    if not mask_shape:
        problem = "it has no key axis"
    elif len(mask_shape) > len(scores_shape):
        problem = f"it has {len(mask_shape)} axes, the scores have {len(scores_shape)}"
    else:
        for axis in range(-1, -len(mask_shape) - 1, -1):
            got, wanted = mask_shape[axis], scores_shape[axis]
            if got != wanted and (axis == -1 or got != 1):
                name = {-1: "keys", -2: "queries"}.get(axis, "heads or batch")
                either = "" if axis == -1 else " or 1"
                problem = f"its axis {axis} ({name}) is {got}, wanted {wanted}{either}"
                break
    if problem:
        raise MaskError(
            f"attn_mask has shape {mask_shape}, the scores have shape {scores_shape}: {problem}; the last "
            f"two axes are read as (queries, keys), so a (batch, keys) mask is written mask[:, None, None, :]"
        )


def _distance(n_q, n_k, align):
    """How far key j lies behind query i, shape (n_q, n_k), and the key indices, shape (1, n_k)."""
    n_q, n_k = _length(n_q, "n_q"), _length(n_k, "n_k")
    offset = check_align(align, n_q, n_k)
    key = np.arange(n_k)[None, :]
    return np.arange(n_q)[:, None] + offset - key, key


def _checked_lengths(lengths, least, n_k, what=""):
    """The lengths of a padded batch as an array, each from `least` (so many of `what`) to `n_k`."""
    n_k = _length(n_k, "n_k")
    if not np.iterable(lengths):
        raise MaskError(
            f"lengths is {lengths!r}, wanted one length per sequence, as in [{lengths!r}]"
        )
    checked = []
    for place, length in enumerate(lengths):
        if not least <= _whole(length, f"lengths[{place}]") <= n_k:
            raise MaskError(
                f"lengths[{place}] is {length}, wanted a number from {f'the {least} {what}' if what else 0} "
                f"to the {n_k} keys"
            )
        checked.append(int(length))
    return np.asarray(checked, dtype=np.int64)


def _whole(number, name):
    try:
        if is_truth(number):
            raise TypeError
        return operator.index(number)  # Python, NumPy and torch integers alike
    except TypeError:
        raise MaskError(
            f"{name} is {number!r}, wanted a whole number"
        ) from None


def _length(number, name):
    if _whole(number, name) < 0:
        raise MaskError(f"{name} is {number}, wanted 0 or more")
    return int(number)


def require_boolean(xp, mask, name):
    if not xp.isdtype(mask.dtype, "bool"):
        fix = "convert it with `mask == 1` if 1 means that a query may attend"
        if xp.isdtype(mask.dtype, "real floating"):
            # `mask == 0` would hide every key that a bias lifts or lowers.
            fix = (
                "convert it with `mask == 1` if it holds 1 and 0, with `mask == 0` if it holds 0 and -inf; "
                "a bias stays a bias: put another mask into it with `where(other, mask, -inf)`"
            )
        raise MaskError(
            f"{name} has type {mask.dtype}, wanted boolean (True = may attend); {fix}"
        )


__all__ = [
    "causal_mask",
    "combine_masks",
    "decoding_mask",
    "document_mask",
    "padding_mask",
    "prefix_mask",
    "sliding_window_mask",
    "to_additive",
    "to_ignore",
]

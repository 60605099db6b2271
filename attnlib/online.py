"""The softmax of a row that arrives in pieces: three numbers per row are enough, and the result is exact.

The state of one query row is m (the largest score so far), ℓ (the sum of ``exp(score - m)`` so far) and o
(the sum of the value rows so far, each times its ``exp(score - m)``). A new block of keys updates the state,
two states of the same rows merge into one, and o/ℓ is the output. Leading axes are free: ``(..., Tq)`` rows.
"""

import math
from typing import Any, NamedTuple

from array_api_compat import device

from . import masks
from ._arrays import (
    common_dtype,
    constant,
    namespace,
    product,
    statistics_dtype,
)
from .errors import ShapeError


class OnlineState(NamedTuple):
    """What is known of each row after some of its keys.

    Attributes
    ----------
    row_max : array, shape (..., Tq)
        m, the largest score seen; −∞ before the first, since nothing is larger than every score.
    row_sum : array, shape (..., Tq)
        ℓ, the sum of ``exp(score - m)``; 0 before the first.
    accumulator : array, shape (..., Tq, d_v)
        o, the sum of ``exp(score - m) * value``; not divided by ℓ yet.
    seen : boolean array, shape (..., Tq)
        Whether the mask has shown the row any key at all. The numbers alone cannot tell.
    """

    row_max: Any
    row_sum: Any
    accumulator: Any
    seen: Any


def start(rows, width, *, like):
    """The state of `rows` that have seen no key: m = −∞, ℓ = 0, o = 0.

    Parameters
    ----------
    rows : tuple of int
        Shape (..., Tq).
    width : int
        d_v, the width of a value row.
    like : floating array
        Gives library, device and type; the state is kept in at least float32.

    Returns
    -------
    OnlineState

    Raises
    ------
    ShapeError
        If `like` is no floating array.

    Examples
    --------
    >>> import numpy as np
    >>> start((2,), 1, like=np.zeros(1)).row_max
    array([-inf, -inf])
    """
    xp = namespace(like=like)
    how = {
        "dtype": statistics_dtype(xp, like.dtype),
        "device": device(like),
    }
    return OnlineState(
        xp.full(rows, -math.inf, **how),
        xp.zeros(rows, **how),
        xp.zeros((*rows, width), **how),
        xp.zeros(rows, dtype=xp.bool, device=device(like)),
    )


def update(state, scores, value, allowed=None):
    """The state after one more block of keys.

    Parameters
    ----------
    state : OnlineState
    scores : floating array, shape (..., Tq, keys)
        Scaled scores of this block; any number of keys, 0 included.
    value : floating array, shape (..., keys, d_v)
        The value rows of this block.
    allowed : boolean array, broadcasts to `scores`, optional
        True = may attend; everything, if not given.

    Returns
    -------
    OnlineState

    Raises
    ------
    ShapeError
        If there is not one value row per score, not one row of scores per row of the state, or if the state
        is of a narrower type than the numbers that it would take in.
    MaskError
        If `allowed` is not boolean, or does not fit the scores.

    Notes
    -----
    ``2 * Tq * keys * d_v`` FLOPs for the product, and about ``5 * Tq * keys`` others.
    Source: Milakov and Gimelshein 2018, algorithm 3; with values, Dao et al. 2022, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> state = start((1,), 1, like=np.zeros(1))
    >>> state = update(state, np.array([[1.0]]), np.array([[1.0]]))
    >>> state = update(state, np.array([[3.0]]), np.array([[0.0]]))
    >>> state.row_sum.round(4), state.accumulator.round(4)
    (array([1.1353]), array([[0.1353]]))
    """
    xp = namespace(state=state.row_max, scores=scores, value=value)
    if scores.ndim < 2 or value.ndim < 2:
        raise ShapeError(
            f"scores have shape {tuple(scores.shape)}, value {tuple(value.shape)}: wanted "
            f"(..., Tq, keys) and (..., keys, d_v)"
        )
    if scores.shape[-1] != value.shape[-2]:
        raise ShapeError(
            f"scores have {scores.shape[-1]} columns (keys), value has {value.shape[-2]} rows: wanted one "
            f"value row per key"
        )
    dtype = state.row_max.dtype
    common = common_dtype(xp, scores=scores, value=value)
    if xp.result_type(dtype, common) != dtype:
        raise ShapeError(
            f"the state is kept in {dtype}, scores or value come in {common}, wanted a state at least as "
            f"wide: start it like the wider of the two"
        )
    _require_same_rows(
        state, (*scores.shape[:-1], value.shape[-1]), "scores and value"
    )
    if scores.shape[-1] == 0:
        return state
    scores, value = xp.astype(scores, dtype), xp.astype(value, dtype)
    seen = xp.ones_like(state.seen)
    if allowed is not None:
        scores, value = _hide(xp, scores, value, allowed)
        seen = xp.any(allowed, axis=-1)
    row_max = larger(state.row_max, xp.max(scores, axis=-1))
    powers = xp.exp(scores - _anchor(row_max)[..., None])
    factor = rescaling(state.row_max, row_max)
    return OnlineState(
        row_max,
        factor * state.row_sum + xp.sum(powers, axis=-1),
        factor[..., None] * state.accumulator + product(xp, powers, value),
        state.seen | seen,
    )


def merge(first, second):
    """The state of rows that have seen the keys of both states. The order does not matter.

    Parameters
    ----------
    first, second : OnlineState
        States of the same rows after different keys.

    Returns
    -------
    OnlineState

    Raises
    ------
    ShapeError
        If the states differ in rows, or their values in width.

    Notes
    -----
    Associative and commutative up to rounding, so the keys of one row may be split over any number of
    workers. The state of :func:`start` changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> one = from_result(np.array([[0.7311]]), np.array([1.3133]))
    >>> two = from_result(np.array([[0.0]]), np.array([3.0]))
    >>> output, lse = finish(merge(one, two))
    >>> output.round(4), lse.round(2)
    (array([[0.1142]]), array([3.17]))
    """
    _require_same_rows(first, second.accumulator.shape, "the other state")
    row_max = larger(first.row_max, second.row_max)
    a, b = (rescaling(s.row_max, row_max) for s in (first, second))
    return OnlineState(
        row_max,
        a * first.row_sum + b * second.row_sum,
        a[..., None] * first.accumulator + b[..., None] * second.accumulator,
        first.seen | second.seen,
    )


def finish(state):
    """Divide: the output of each row, and its log-sum-exp.

    Parameters
    ----------
    state : OnlineState

    Returns
    -------
    output : array, shape (..., Tq, d_v)
        o/ℓ; 0 for a row that was shown no key.
    lse : array, shape (..., Tq)
        m + ln ℓ; −∞ for a row that was shown no key.

    Raises
    ------
    ShapeError
        If `state` holds something else than arrays.

    Examples
    --------
    >>> import numpy as np
    >>> finish(start((1,), 2, like=np.zeros(1)))
    (array([[0., 0.]]), array([-inf]))
    """
    xp = namespace(row_sum=state.row_sum)
    one = constant(xp, 1.0, state.row_sum)
    row_sum = xp.where(state.seen, state.row_sum, one)
    output = xp.where(
        state.seen[..., None],
        state.accumulator / row_sum[..., None],
        constant(xp, 0.0, row_sum),
    )
    return output, state.row_max + xp.log(row_sum)


def from_result(output, lse):
    """A finished result as a state again: m = lse, ℓ = 1, o = output. So results of parts can merge.

    Parameters
    ----------
    output : floating array, shape (..., Tq, d_v)
    lse : floating array, shape (..., Tq)
        −∞ only for rows that saw no key, as :func:`finish` returns it.

    Returns
    -------
    OnlineState

    Raises
    ------
    ShapeError
        If there is not one lse per output row.
    """
    xp = namespace(output=output, lse=lse)
    if tuple(output.shape[:-1]) != tuple(lse.shape):
        raise ShapeError(
            f"output has shape {tuple(output.shape)}, lse {tuple(lse.shape)}: wanted one lse per row"
        )
    seen = lse != -math.inf
    output = xp.astype(output, statistics_dtype(xp, lse.dtype))
    return OnlineState(lse, xp.astype(seen, output.dtype), output, seen)


def _hide(xp, scores, value, allowed):
    """−∞ for hidden scores, and 0 for values that no row sees: their weight 0 would not remove a NaN."""
    namespace(scores=scores, allowed=allowed)
    masks.require_boolean(xp, allowed, "allowed")
    masks.check_fits(tuple(allowed.shape), tuple(scores.shape))
    table = allowed if allowed.ndim > 1 else allowed[None, :]
    visible = xp.any(table, axis=-2)[..., None]
    return (
        xp.where(allowed, scores, constant(xp, -math.inf, scores)),
        xp.where(visible, value, constant(xp, 0.0, value)),
    )


def _require_same_rows(state, shape, name):
    """Refuse another number of rows or another width of the values: neither is stretched in silence."""
    mine, shape = tuple(state.accumulator.shape), tuple(shape)
    if mine[-2:] != shape[-2:]:
        raise ShapeError(
            f"the state has {mine[-2]} rows of width {mine[-1]}, {name} {shape[-2]} of width {shape[-1]}: "
            f"wanted the same rows"
        )


def larger(row_max, block_max):
    """The new m: the larger of the old one and the block's."""
    return namespace(row_max=row_max).maximum(row_max, block_max)


def rescaling(old_max, new_max):
    """``exp(m_old - m_new)``: the factor for everything gathered under the old maximum; at most 1."""
    return namespace(old_max=old_max).exp(old_max - _anchor(new_max))


def _anchor(row_max):
    """`row_max`, and 0 where nothing visible came yet: −∞ − (−∞) is not a number."""
    xp = namespace(row_max=row_max)
    return xp.where(row_max == -math.inf, constant(xp, 0.0, row_max), row_max)


__all__ = [
    "OnlineState",
    "finish",
    "from_result",
    "merge",
    "start",
    "update",
]

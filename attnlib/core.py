"""Attention, one step at a time: scores, scale, mask, softmax, weighted sum.

The same lines run on NumPy arrays, on torch tensors (which differentiate through them) and on a GPU.
Layout ``(..., heads, tokens, width)``; rows are queries i, columns are keys j. A "score" is what stands
there before the softmax, a "weight" what stands there after it.
"""

import math
from typing import Any, NamedTuple

from array_api_compat import device, is_torch_array
from numpy import broadcast_shapes

from . import heads, masks
from ._arrays import (
    common_dtype,
    constant,
    is_truth,
    namespace,
    product,
    require_floating,
    require_same_device,
    statistics_dtype,
    whole_number,
)
from .errors import AttnError, MaskError, ShapeError


class AttentionSteps(NamedTuple):
    """Every intermediate of one attention call, in the order in which it arises.

    Attributes
    ----------
    scores : array, shape (..., Tq, Tk)
        S = QKᵀ, not scaled; at least float32.
    scaled : array, shape (..., Tq, Tk)
        ``S * scale``; at least float32.
    masked : array, shape (..., Tq, Tk)
        `scaled` with −∞ where query i may not see key j; equals `scaled` if there is no mask.
    weights : array, shape (..., Tq, Tk)
        P, each row in [0, 1] with sum 1, or all 0 for a row that may see nothing; the input's type.
    output : array, shape (..., Tq, d_v)
        O = PV; the input's type.
    lse : array, shape (..., Tq)
        Natural logarithm of the sum of ``exp(masked)`` over the keys; −∞ for an empty row; at least
        float32.
    """

    scores: Any
    scaled: Any
    masked: Any
    weights: Any
    output: Any
    lse: Any


def scores(query, key):
    """All dot products of queries with keys, S = QKᵀ, not scaled.

    Parameters
    ----------
    query : floating array, shape (..., Tq, d_h)
    key : floating array, shape (..., Tk, d_h)

    Returns
    -------
    array, shape (..., Tq, Tk)
        Entry (i, j) is query i · key j; the wider of the two types, at least float32.

    Raises
    ------
    ShapeError
        If the widths differ, or one is not floating.

    Notes
    -----
    2 · Tq · Tk · d_h FLOPs. Not symmetric: queries and keys come from different projections.
    Source: Vaswani et al. 2017, equation 1.

    Examples
    --------
    >>> from attnlib.examples import three_tokens
    >>> q, k, _ = three_tokens().head(1)
    >>> scores(q, k)[2]
    array([2., 0., 6.])
    """
    xp = namespace(query=query, key=key)
    require_same_device("query", query, "key", key)
    _require_rows(query=query, key=key)
    _require_leading_axes(query=query, key=key)
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"query has width {query.shape[-1]}, key has width {key.shape[-1]}: a dot product needs equal "
            f"widths; split both into the same number of heads"
        )
    dtype = statistics_dtype(xp, common_dtype(xp, query=query, key=key))
    query, key = xp.astype(query, dtype), xp.astype(key, dtype)
    return product(xp, query, xp.matrix_transpose(key))


def default_scale(width):
    """1/√width, the factor that keeps the variance of a score independent of the head width.

    Parameters
    ----------
    width : int
        d_h, the width of one head's queries and keys (not the model's width d).

    Returns
    -------
    float
        A Python float: dividing a float32 array by ``numpy.sqrt(width)`` would promote it to float64.

    Raises
    ------
    ShapeError
        If `width` is no whole number of at least 1: there is no 1/√0.

    Notes
    -----
    Source: Vaswani et al. 2017, section 3.2.1.

    Examples
    --------
    >>> default_scale(4)
    0.5
    """
    return 1.0 / math.sqrt(whole_number(width, "the width of query and key"))


def scale_scores(x, scale):
    """Multiply by the scale: the scores themselves, or the queries before the product.

    Parameters
    ----------
    x : floating array
        S (..., Tq, Tk), or Q (..., Tq, d_h): (scale · Q)Kᵀ = scale · QKᵀ.
    scale : float
        Usually ``default_scale(d_h)``; any finite number, negative and 0 included.

    Returns
    -------
    array, same shape and type as `x`

    Raises
    ------
    AttnError
        If `scale` is not a finite number.

    Examples
    --------
    >>> import numpy as np
    >>> scale_scores(np.array([2.0, 0.0, 6.0]), default_scale(4))
    array([1., 0., 3.])
    """
    return x * finite_scale(scale, _largest(namespace(x=x), x))


def apply_mask(scaled, attn_mask=None):
    """Put −∞ where a query may not look.

    Parameters
    ----------
    scaled : floating array, shape (..., Tq, Tk)
    attn_mask : array or None
        Boolean (True = may attend) or floating (added; −∞ hides); shape (Tk,), (Tq, Tk) or more axes,
        each 1 or as in `scaled`, the key axis always Tk.

    Returns
    -------
    array, same shape and type as `scaled`

    Raises
    ------
    MaskError
        An integer mask, or one that does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> apply_mask(np.array([[3.0, 1.5, -1.0]]), np.array([[True, True, False]]))
    array([[ 3. ,  1.5, -inf]])
    """
    if attn_mask is None:
        return scaled
    xp = namespace(scaled=scaled, attn_mask=attn_mask)
    require_same_device("scaled", scaled, "attn_mask", attn_mask)
    require_floating(xp, scaled.dtype, "scaled")
    allowed, bias = masks.read_mask(attn_mask, scaled.shape, scaled.dtype)
    hidden = constant(xp, -math.inf, scaled)
    return xp.where(allowed, scaled if bias is None else scaled + bias, hidden)


def softmax(masked, attn_mask=None, *, return_lse=False):
    """Turn each row of scores into weights: exp, divided by the row's sum. Always over the keys.

    Parameters
    ----------
    masked : floating array, shape (..., Tq, Tk)
    attn_mask : array or None
        The mask that made `masked`. A row is empty if *this* allows nothing in it; without it no row
        counts as empty, and a row of nothing but −∞ gives NaN.
    return_lse : bool
        Also return the log-sum-exp of each row.

    Returns
    -------
    weights : array, shape (..., Tq, Tk)
        Rows sum to 1; an empty row is all 0. Type of `masked`, at least float32.
    lse : array, shape (..., Tq)
        Only with `return_lse`; −∞ for an empty row.

    Raises
    ------
    MaskError
        As :func:`apply_mask`.

    Notes
    -----
    The row's maximum is subtracted first: it cancels, and no exponential exceeds 1. Empty rows are
    filled with 0 *before* the exponential, so that no gradient becomes NaN.

    Examples
    --------
    >>> import numpy as np
    >>> softmax(np.array([[1.0, 0.0, 3.0]])).round(4)
    array([[0.1142, 0.042 , 0.8438]])
    """
    xp = namespace(masked=masked)
    if attn_mask is not None:
        namespace(masked=masked, attn_mask=attn_mask)
        require_same_device("masked", masked, "attn_mask", attn_mask)
    require_floating(xp, masked.dtype, "masked")
    if not masked.ndim:
        raise ShapeError(
            "masked has shape (), wanted at least 1 axis: the keys"
        )
    x = xp.astype(masked, statistics_dtype(xp, masked.dtype))
    zero, one = constant(xp, 0.0, x), constant(xp, 1.0, x)
    empty = _empty_rows(xp, x, attn_mask)
    x = xp.where(empty, zero, x)
    # Without keys there is no maximum; the sum, 0, keeps the result attached to torch's graph.
    row_max = (xp.max if x.shape[-1] else xp.sum)(x, axis=-1, keepdims=True)
    exponentials = xp.exp(x - row_max)
    row_sum = xp.where(empty, one, xp.sum(exponentials, axis=-1, keepdims=True))
    weights = xp.where(empty, zero, exponentials / row_sum)
    if not return_lse:
        return weights
    lse = xp.where(empty, constant(xp, -math.inf, x), row_max + xp.log(row_sum))
    return weights, xp.squeeze(lse, axis=-1)


def weighted_sum(weights, value):
    """O = PV: each output row is the mean of the value rows, weighted by that query's weights.

    Parameters
    ----------
    weights : floating array, shape (..., Tq, Tk)
    value : floating array, shape (..., Tk, d_v)

    Returns
    -------
    array, shape (..., Tq, d_v)
        The wider of the two types.

    Raises
    ------
    ShapeError
        If there is not one value row per weight, or one is not floating.

    Notes
    -----
    2 · Tq · Tk · d_v FLOPs. Source: Vaswani et al. 2017, equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> weighted_sum(np.array([[0.25, 0.75]]), np.array([[4.0, 0.0], [0.0, 4.0]]))
    array([[1., 3.]])
    """
    xp = namespace(weights=weights, value=value)
    require_same_device("weights", weights, "value", value)
    _require_rows(weights=weights, value=value)
    _require_leading_axes(weights=weights, value=value)
    if weights.shape[-1] != value.shape[-2]:
        raise ShapeError(
            f"weights have {weights.shape[-1]} columns (keys), value has {value.shape[-2]} rows: wanted one "
            f"value row per key"
        )
    dtype = common_dtype(xp, weights=weights, value=value)
    return product(xp, xp.astype(weights, dtype), xp.astype(value, dtype))


def attention(
    query,
    key,
    value,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
):
    """softmax(scale · QKᵀ + mask) V, for every head at once.

    Parameters
    ----------
    query : floating array, shape (..., heads, Tq, d_h) or (Tq, d_h)
    key : floating array, shape (..., heads, Tk, d_h)
    value : floating array, shape (..., heads, Tk, d_v)
        One type for all three. Leading axes agree or are 1.
    attn_mask : array or None
        Boolean, **True = may attend**, or floating, added to the scaled scores (−∞ hides). Its key axis
        is Tk; every other axis is 1 or agrees with the scores (..., heads, Tq, Tk).
    is_causal : bool
        Query i sees key j only up to its own position. Not together with `attn_mask`: combine the two
        with :func:`attnlib.masks.combine_masks`.
    causal_align : {None, "top_left", "bottom_right"}
        Needed for `is_causal` with Tq ≠ Tk: where the diagonal starts.
    scale : float, optional
        1/√d_h if not given.
    enable_gqa : bool
        Let query heads share key/value heads: each key/value head serves consecutive query heads.

    Returns
    -------
    array, shape (..., heads, Tq, d_v)
        The input's type. A row that may see nothing is 0, with gradient 0.

    Raises
    ------
    ShapeError
        Sizes or types that do not fit, integers, or Tk differing between key and value.
    MaskError
        A mask that can be read in two ways; see `attn_mask`, `is_causal` and `causal_align`.

    Notes
    -----
    2 · Tq · Tk · (d_h + d_v) FLOPs per head; holds the whole Tq × Tk matrix. Scores and softmax are in at
    least float32 whatever the input's type. What a key hidden from every query holds, NaN included,
    reaches neither outputs nor gradients; a NaN in something visible shows.
    There is no dropout. Source: Vaswani et al. 2017, equation 1.

    Examples
    --------
    >>> from attnlib.examples import three_tokens
    >>> attention(*three_tokens().head(1), is_causal=True).round(4)
    array([[1.    , 0.    , 0.    , 1.    ],
           [0.8176, 0.1824, 0.    , 1.    ],
           [0.1142, 0.042 , 0.8438, 1.    ]])
    """
    inputs = _prepare(
        query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
    )
    return _attend(*inputs)[2]


def attention_steps(
    query,
    key,
    value,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
):
    """The same as :func:`attention`, with every intermediate kept.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
        As in :func:`attention`.

    Returns
    -------
    AttentionSteps
        ``scores``, ``scaled``, ``masked``, ``weights``, ``output``, ``lse``.

    Raises
    ------
    ShapeError, MaskError
        As :func:`attention`.

    Notes
    -----
    `scores` and `scaled` show hidden keys too, as they are; `masked` and all after it do not. It forms
    QKᵀ up to three times: a function to learn from, not to train with.

    Examples
    --------
    >>> from attnlib.examples import three_tokens
    >>> steps = attention_steps(*three_tokens().head(1), is_causal=True)
    >>> steps.masked
    array([[ 1.5, -inf, -inf],
           [ 3. ,  1.5, -inf],
           [ 1. ,  0. ,  3. ]])
    >>> steps.lse.round(4)
    array([1.5   , 3.2014, 3.1698])
    """
    inputs = _prepare(
        query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
    )
    query, key, _, _, scale = inputs
    return AttentionSteps(
        scores(query, key), scaled_scores(query, key, scale), *_attend(*inputs)
    )


def _attend(query, key, value, mask, scale):
    """Masked scores, weights, output and lse of inputs that :func:`_prepare` has checked."""
    xp = namespace(query=query)
    dtype = query.dtype
    if mask is not None:
        query, key, value = forget_unseen(xp, query, key, value, mask)
    masked = apply_mask(scaled_scores(query, key, scale), mask)
    weights, lse = softmax(masked, mask, return_lse=True)
    output = weighted_sum(weights, value)
    return masked, xp.astype(weights, dtype), xp.astype(output, dtype), lse


def scaled_scores(query, key, scale):
    """QKᵀ of queries scaled beforehand, in the statistics type: large half-precision scores stay finite."""
    xp = namespace(query=query)
    return scores(
        scale_scores(
            xp.astype(query, statistics_dtype(xp, query.dtype)), scale
        ),
        key,
    )


def forget_unseen(xp, query, key, value, mask):
    """Put 0 in keys and values that no query sees and in queries that see nothing.

    Their weights are 0, but 0 · NaN is NaN, in the output and in the gradients.
    """
    allowed = masks.read_mask(
        mask, scores_shape(query, key), statistics_dtype(xp, query.dtype)
    )[0]
    if allowed.ndim == 1:
        allowed = allowed[None, :]
    seen = xp.any(allowed, axis=-2)[..., None]
    seeing = xp.any(allowed, axis=-1, keepdims=True)
    zero = constant(xp, 0.0, query)
    return (
        xp.where(seeing, query, zero),
        xp.where(seen, key, zero),
        xp.where(seen, value, zero),
    )


def _empty_rows(xp, x, attn_mask):
    """True, shape (..., Tq, 1), where the mask leaves a row of `x` nothing to see."""
    no_keys = x.shape[-1] == 0
    empty = xp.full(
        (*x.shape[:-1], 1), no_keys, dtype=xp.bool, device=device(x)
    )
    if attn_mask is None or no_keys:
        return empty
    allowed = masks.read_mask(attn_mask, x.shape, x.dtype)[0]
    return empty | ~xp.any(allowed, axis=-1, keepdims=True)


def _largest(xp, x):
    """The largest scale for `x`: half the range of its scores' type; 2^s for e^s takes 1.44 times as much."""
    return float(xp.finfo(statistics_dtype(xp, x.dtype)).max) / 2


def finite_scale(scale, largest):
    """`scale` as a Python float that the type of the scores can hold.

    Parameters
    ----------
    scale : float
        Anything else than one real number is refused; so is a tensor that wants a gradient, which a float
        would not send back.
    largest : float
        The largest number of that type.

    Returns
    -------
    float

    Raises
    ------
    AttnError
        As said.
    """
    if getattr(scale, "requires_grad", False):
        raise AttnError(
            "scale is a tensor that wants a gradient, wanted a number: multiply the query by it, and give "
            "scale=1.0"
        )
    try:
        # To float() a bool, a text and an array of one entry are numbers, too; nobody means them.
        dtype = str(getattr(scale, "dtype", ""))
        unread = (
            is_truth(scale)
            or isinstance(scale, str | bytes)
            or getattr(scale, "ndim", 0) != 0
            or any(kind in dtype for kind in ("complex", "U", "S"))
        )
        factor = math.nan if unread else float(scale)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        factor = math.nan
    if not (math.isfinite(factor) and abs(factor) <= largest):
        raise AttnError(
            f"scale is {scale!r}, wanted one finite number such as 1 / sqrt(d_h), at most {largest:.2g}"
        )
    return factor


def _require_leading_axes(**arrays):
    """Refuse arrays whose axes before the last two do not broadcast."""
    try:
        broadcast_shapes(*(array.shape[:-2] for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(
            f"{name} {tuple(array.shape)}" for name, array in arrays.items()
        )
        raise ShapeError(
            f"{shapes}: the axes before the last two must agree or be 1; fewer "
            f"key/value heads than query heads need attention(..., enable_gqa=True)"
        ) from None


def _require_rows(**arrays):
    for name, array in arrays.items():
        if array.ndim < 2:
            raise ShapeError(
                f"{name} has shape {tuple(array.shape)}, wanted at least 2 axes: (..., tokens, width)"
            )


def scores_shape(query, key):
    return (
        *broadcast_shapes(query.shape[:-2], key.shape[:-2]),
        query.shape[-2],
        key.shape[-2],
    )


def _prepare(
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
):
    """Check everything that can be wrong, repeat grouped heads, and settle mask and scale."""
    query, key, value, scale = check_inputs(
        query, key, value, scale, enable_gqa
    )
    check_mask(query, key, attn_mask, is_causal, causal_align)
    if is_causal:
        n_q, n_k = query.shape[-2], key.shape[-2]
        attn_mask = masks.causal_mask(n_q, n_k, align=causal_align, like=query)
    return query, key, value, attn_mask, scale


def check_inputs(query, key, value, scale=None, enable_gqa=False):
    """Queries, keys and values that fit together, grouped heads repeated, and the scale.

    Parameters
    ----------
    query, key, value, scale, enable_gqa
        As in :func:`attention`.

    Returns
    -------
    query, key, value, scale

    Raises
    ------
    ShapeError
        As :func:`attention`.
    """
    xp = namespace(query=query, key=key, value=value)
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    _require_rows(query=query, key=key, value=value)
    common_dtype(xp, query=query, key=key, value=value)
    for name, array in (("key", key), ("value", value)):
        require_same_device("query", query, name, array)
        if array.dtype != query.dtype:
            raise ShapeError(
                f"{name} has type {array.dtype}, query has {query.dtype}: wanted one type for all"
            )
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"{shapes}: key has {key.shape[-2]} tokens, value has {value.shape[-2]}; "
            f"wanted one value row per key"
        )
    if enable_gqa:
        key, value = _share_heads(query, key, value)
    _require_leading_axes(query=query, key=key, value=value)
    if scale is None:
        return query, key, value, default_scale(query.shape[-1])
    return query, key, value, finite_scale(scale, _largest(xp, query))


def check_mask(query, key, attn_mask, is_causal, causal_align):
    """Refuse a mask that does not fit the scores of `query` and `key`, or two masks at once.

    Parameters
    ----------
    query, key, attn_mask, is_causal, causal_align
        As in :func:`attention`; heads already repeated.

    Raises
    ------
    MaskError
        As :func:`attention`.
    """
    xp = namespace(query=query, key=key)
    n_q, n_k = query.shape[-2], key.shape[-2]
    if is_causal or causal_align is not None:
        masks.check_align(causal_align, n_q, n_k, "causal_align")
    if is_causal and attn_mask is not None:
        namespace(query=query, attn_mask=attn_mask)
        align = "" if causal_align is None else f", align={causal_align!r}"
        causal = f"causal_mask({n_q}, {n_k}{align}, like=query)"
        # A bias has no "and": what it adds stays where the other mask allows.
        library = "torch" if is_torch_array(query) else "numpy"
        both = f"{library}.where({causal}, attn_mask, -{library}.inf)"
        if not xp.isdtype(attn_mask.dtype, "real floating"):
            both = f"combine_masks(attn_mask, {causal})"
        raise MaskError(
            f"attn_mask and is_causal=True together could mean two things; combine them yourself: "
            f"attn_mask={both}"
        )
    if attn_mask is not None:
        namespace(query=query, attn_mask=attn_mask)
        require_same_device("query", query, "attn_mask", attn_mask)
        masks.read_mask(
            attn_mask,
            scores_shape(query, key),
            statistics_dtype(xp, query.dtype),
        )


def _share_heads(query, key, value):
    """Repeat key and value heads so that each query head finds its own."""
    if min(query.ndim, key.ndim, value.ndim) < 3:
        raise ShapeError(
            "enable_gqa needs a head axis: wanted (..., heads, tokens, width)"
        )
    n_q, n_kv, n_value = query.shape[-3], key.shape[-3], value.shape[-3]
    if n_kv != n_value:
        raise ShapeError(
            f"key has {n_kv} heads, value has {n_value}: wanted the same number"
        )
    if 0 in (n_q, n_kv) or n_q % n_kv:
        raise ShapeError(
            f"{n_q} query heads cannot share {n_kv} key/value heads: wanted a multiple, "
            f"so that each key/value head serves the same number of query heads"
        )
    return heads.repeat_heads(key, n_q // n_kv), heads.repeat_heads(
        value, n_q // n_kv
    )

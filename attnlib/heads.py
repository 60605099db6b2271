"""From token vectors to heads and back: projections, splitting, merging, grouped heads."""

from ._arrays import (
    common_dtype,
    namespace,
    product,
    require_same_device,
    whole_number,
)
from .errors import ShapeError


def project(x, weight):
    """Multiply every token's row by a weight matrix: ``x @ weight``.

    Parameters
    ----------
    x : array, shape (..., T, d_in)
        One row per token.
    weight : array, shape (d_in, d_out)

    Returns
    -------
    array, shape (..., T, d_out)
        The inputs' type; the wider one where they differ.

    Raises
    ------
    ShapeError
        If the width of `x` is not the number of rows of `weight`, or if one of two types is not floating.

    Notes
    -----
    2 · T · d_in · d_out FLOPs. torch's ``nn.Linear`` stores the transpose of `weight`.
    """
    xp = namespace(x=x, weight=weight)
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[0]:
        raise ShapeError(
            f"x has shape {tuple(x.shape)} and weight {tuple(weight.shape)}: wanted x (..., T, d_in) and "
            f"weight (d_in, d_out) with the same d_in; a torch nn.Linear weight must be transposed first"
        )
    require_same_device("x", x, "weight", weight)
    if x.dtype != weight.dtype:
        dtype = common_dtype(xp, x=x, weight=weight)
        x, weight = xp.astype(x, dtype), xp.astype(weight, dtype)
    return product(xp, x, weight)


def split_heads(x, n_heads):
    """Cut every token's row into `n_heads` pieces and put the heads in front of the tokens.

    Row t of the result's head h holds components ``h*d_h`` to ``(h+1)*d_h - 1`` of row t of `x`.

    Parameters
    ----------
    x : array, shape (..., T, n_heads * d_h)
    n_heads : int
        At least 1; must divide the width of `x`.

    Returns
    -------
    array, shape (..., n_heads, T, d_h)
        A rearrangement: the same numbers in the same type.

    Raises
    ------
    ShapeError
        If the width is not a multiple of `n_heads`.

    Notes
    -----
    Reshape to (..., T, n_heads, d_h), *then* swap the two middle axes. Reshaping straight to
    (..., n_heads, T, d_h) has the right shape and mixes tokens (chapter 1).
    Source: Vaswani et al. 2017, section 3.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> x = 10.0 * np.arange(3)[:, None] + np.arange(4)     # component c of token t is 10t + c
    >>> split_heads(x, 2)[1]
    array([[ 2.,  3.],
           [12., 13.],
           [22., 23.]])
    """
    xp = namespace(x=x)
    if x.ndim < 2:
        raise ShapeError(
            f"x has shape {tuple(x.shape)}, wanted at least (T, n_heads * d_h)"
        )
    n_heads = whole_number(n_heads, "n_heads")
    *lead, n_tokens, width = x.shape
    if width % n_heads:
        raise ShapeError(
            f"width {width} is not a multiple of n_heads {n_heads}: {width} = "
            f"{width // n_heads} x {n_heads} + {width % n_heads}; choose n_heads that divides {width}"
        )
    pieces = xp.reshape(x, (*lead, n_tokens, n_heads, width // n_heads))
    return xp.permute_dims(pieces, _swap_middle(len(lead)))


def merge_heads(x):
    """Put the heads' rows side by side again, token by token: the inverse of :func:`split_heads`.

    Parameters
    ----------
    x : array, shape (..., n_heads, T, d_h)

    Returns
    -------
    array, shape (..., T, n_heads * d_h)
        Head 1's components first. The same numbers in the same type.

    Raises
    ------
    ShapeError
        If `x` has fewer than three axes.

    Notes
    -----
    Concatenation only places values; the output projection after it is what mixes heads.
    Source: Vaswani et al. 2017, section 3.2.2 (Concat).

    Examples
    --------
    >>> import numpy as np
    >>> merge_heads(np.array([[[1., 2.], [3., 4.]], [[5., 6.], [7., 8.]]]))
    array([[1., 2., 5., 6.],
           [3., 4., 7., 8.]])
    """
    xp = namespace(x=x)
    if x.ndim < 3:
        raise ShapeError(
            f"x has shape {tuple(x.shape)}, wanted at least (n_heads, T, d_h)"
        )
    *lead, n_heads, n_tokens, width = x.shape
    side_by_side = xp.permute_dims(x, _swap_middle(len(lead)))
    return xp.reshape(side_by_side, (*lead, n_tokens, n_heads * width))


def repeat_heads(x, times):
    """Serve each key/value head to `times` query heads, consecutively: 0,0,1,1 for two heads, twice.

    Parameters
    ----------
    x : array, shape (..., n_kv_heads, T, d_h)
    times : int
        Query heads per key/value head.

    Returns
    -------
    array, shape (..., n_kv_heads * times, T, d_h)

    Raises
    ------
    ShapeError
        If `x` has fewer than three axes, or `times` is below 1.

    Notes
    -----
    Source: Ainslie et al. 2023 (grouped-query attention); order as torch's ``enable_gqa``.

    Examples
    --------
    >>> import numpy as np
    >>> repeat_heads(np.array([[[0.]], [[1.]]]), 2)[:, 0, 0]
    array([0., 0., 1., 1.])
    """
    xp = namespace(x=x)
    if x.ndim < 3:
        raise ShapeError(
            f"x has shape {tuple(x.shape)}, wanted at least (n_kv_heads, T, d_h)"
        )
    return xp.repeat(x, whole_number(times, "times"), axis=-3)


def _swap_middle(n_lead):
    """Axes of (..., a, b, c) reordered to (..., b, a, c)."""
    return (*range(n_lead), n_lead + 1, n_lead, n_lead + 2)

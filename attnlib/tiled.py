"""FlashAttention by hand: the same attention, one tile of the score matrix at a time, forward and backward.

The score matrix never exists as a whole. Each tile of `block_q` queries by `block_k` keys updates the state
of its rows (:mod:`attnlib.online`), and the backward pass computes the tiles again from the inputs and `lse`.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device, is_torch_array
from numpy import broadcast_shapes

from . import core, masks, online
from ._arrays import (
    common_dtype,
    constant,
    namespace,
    product,
    require_same_device,
    statistics_dtype,
    to_library,
    whole_number,
)
from ._torch import refuse_second_derivative, refuse_transforms
from .errors import ShapeError


class TileStep(NamedTuple):
    """What happened at one tile.

    Attributes
    ----------
    rows, cols : slice
        Queries and keys of the tile.
    kind : {"whole", "masked", "skipped"}
        All of it visible, part of it, or nothing: a skipped tile is neither loaded nor computed.
    scores : array, shape (..., rows, cols), or None
        Scaled scores with −∞ where hidden; None for a skipped tile.
    state : attnlib.online.OnlineState
        The rows' state after this tile.
    """

    rows: slice
    cols: slice
    kind: str
    scores: Any
    state: online.OnlineState


class Gradients(NamedTuple):
    """Gradients of a loss with respect to the inputs of attention, each of its input's shape and type.

    Attributes
    ----------
    query, key, value : array
    attn_mask : array or None
        None unless the mask was floating.
    """

    query: Any
    key: Any
    value: Any
    attn_mask: Any


class Visibility(NamedTuple):
    """Who sees whom, asked for one tile at a time: a causal mask is never built as a whole.

    Attributes
    ----------
    attn_mask : array or None
    offset : int or None
        Of the causal diagonal: query i sees keys up to i + offset. None if not causal.
    """

    attn_mask: Any
    offset: Any

    def kind(self, rows, cols):
        """What the causal diagonal makes of a tile: "skipped", "masked" or "whole"."""
        if self.offset is None:
            return "whole"
        if cols.start > rows.stop - 1 + self.offset:
            return "skipped"
        return "masked" if cols.stop - 1 > rows.start + self.offset else "whole"

    def tile(self, rows, cols, query, key):
        """``(kind, allowed, bias)`` of a tile; `allowed` is None where all is visible."""
        xp = namespace(query=query)
        if self.attn_mask is None:
            kind, allowed = self.kind(rows, cols), None
            if kind == "masked":
                allowed = causal_tile(rows, cols, self.offset, query)
            return kind, allowed, None
        allowed, bias = masks.read_mask(
            _mask_tile(self.attn_mask, rows, cols),
            core.scores_shape(query[..., rows, :], key[..., cols, :]),
            statistics_dtype(xp, query.dtype),
        )
        if bool(xp.all(allowed)):
            return "whole", None, bias
        return "masked" if bool(xp.any(allowed)) else "skipped", allowed, bias


def flash_attention(
    query,
    key,
    value,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
    block_q=128,
    block_k=128,
    return_lse=False,
):
    """What :func:`attnlib.attention` returns, computed tile by tile without the score matrix.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
        As in :func:`attnlib.attention`.
    block_q, block_k : int
        Rows (queries) and columns (keys) of a tile, at least 1; the last ones may be smaller.
    return_lse : bool
        Also return the log-sum-exp of each row.

    Returns
    -------
    output : array, shape (..., heads, Tq, d_v)
        The input's type; equal to plain attention up to rounding.
    lse : array, shape (..., heads, Tq)
        Only with `return_lse`; at least float32, −∞ for a row that may see nothing.

    Raises
    ------
    ShapeError, MaskError
        As :func:`attnlib.attention`; a block size below 1.

    Notes
    -----
    The FLOPs of plain attention, less the skipped tiles; memory for one tile instead of Tq × Tk. Tiles
    that a mask hides from all their queries are skipped. torch differentiates it through
    :func:`flash_attention_backward`, so the backward pass stores no tile either.
    Source: Dao et al. 2022, algorithm 1; with queries in the outer loop, Dao 2023, algorithm 1.

    Examples
    --------
    >>> from attnlib.examples import three_tokens
    >>> q, k, v = three_tokens().head(1)
    >>> flash_attention(q, k, v, is_causal=True, block_q=1, block_k=2).round(4)
    array([[1.    , 0.    , 0.    , 1.    ],
           [0.8176, 0.1824, 0.    , 1.    ],
           [0.1142, 0.042 , 0.8438, 1.    ]])
    """
    how = {
        "is_causal": is_causal,
        "causal_align": causal_align,
        "scale": scale,
        "enable_gqa": enable_gqa,
        "block_q": block_q,
        "block_k": block_k,
    }
    arrays = (query, key, value, attn_mask)
    refuse_transforms("flash_attention", *arrays)
    if any(is_torch_array(a) and a.requires_grad for a in arrays):
        output, lse = _torch_function().apply(*arrays, how)
    else:
        output, lse = _forward(*arrays, **how)
    return (output, lse) if return_lse else output


def flash_attention_steps(query, key, value, attn_mask=None, **how):
    """The tiles of :func:`flash_attention` one after the other, for looking on.

    Parameters
    ----------
    query, key, value, attn_mask
        As in :func:`attnlib.attention`.
    **how
        The other arguments of :func:`flash_attention`, without `return_lse`.

    Returns
    -------
    iterator of TileStep
        Row of tiles after row of tiles; the skipped ones too.

    Raises
    ------
    ShapeError, MaskError
        As :func:`flash_attention`, at the first step.

    Examples
    --------
    >>> from attnlib.examples import three_tokens
    >>> steps = flash_attention_steps(*three_tokens().head(1), is_causal=True, block_q=1, block_k=2)
    >>> [step.kind for step in steps]
    ['masked', 'skipped', 'whole', 'skipped', 'whole', 'whole']
    """
    plan = _plan(query, key, value, attn_mask, **how)
    for rows in blocks(plan.query.shape[-2], plan.block_q):
        yield from _row_of_tiles(plan, rows)


def flash_attention_backward(
    query,
    key,
    value,
    output,
    lse,
    grad_output,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
    block_q=128,
    block_k=128,
    grad_lse=None,
):
    """Gradients of attention, tile by tile, from its inputs, its output and `lse` alone.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa, block_q, block_k
        As in :func:`flash_attention`.
    output : array, shape (..., heads, Tq, d_v)
        What the forward pass returned.
    lse : array, shape (..., heads, Tq)
        Likewise.
    grad_output : array, shape (..., heads, Tq, d_v)
        dO, the gradient of the loss with respect to `output`.
    grad_lse : array, shape (..., heads, Tq), optional
        The gradient with respect to `lse`, if the loss uses it.

    Returns
    -------
    Gradients
        ``query``, ``key``, ``value``: a key/value head that serves several query heads gets their sum;
        so does anything that was broadcast. ``attn_mask``: for a floating mask only.

    Raises
    ------
    ShapeError, MaskError
        As :func:`flash_attention`; `output`, `lse` or `grad_output` of another shape.

    Notes
    -----
    Two passes over the tiles, so that each gradient is written once: dQ row by row, then dK and dV column
    by column. Seven products a tile against two in the forward pass; sharing the tiles would take five.
    Source: Dao et al. 2022, appendix B.2 and algorithm 4; Dao 2023, algorithm 2.
    """
    plan = _plan(
        query,
        key,
        value,
        attn_mask,
        is_causal=is_causal,
        causal_align=causal_align,
        scale=scale,
        enable_gqa=enable_gqa,
        block_q=block_q,
        block_k=block_k,
    )
    given = {"output": output, "grad_output": grad_output, "lse": lse}
    if grad_lse is not None:
        given["grad_lse"] = grad_lse
    xp = namespace(query=query, **given)
    refuse_transforms("flash_attention_backward", *given.values())
    common_dtype(xp, **given)
    for name, array in given.items():
        require_same_device("query", query, name, array)
    shape = (*plan.lead, plan.query.shape[-2], plan.value.shape[-1])
    for name, array, wanted in (
        ("output", output, shape),
        ("grad_output", grad_output, shape),
        ("lse", lse, shape[:-1]),
        ("grad_lse", lse if grad_lse is None else grad_lse, shape[:-1]),
    ):
        if tuple(array.shape) != wanted:
            raise ShapeError(
                f"{name} has shape {tuple(array.shape)}, wanted {wanted} as the forward pass returned it"
            )
    # An empty row never moves, whatever the loss makes of it: 0/0 there must not reach the other rows.
    empty, zero = lse == -math.inf, constant(xp, 0.0, grad_output)
    grad_output = xp.where(empty[..., None], zero, grad_output)
    delta = row_delta(output, grad_output, lse)
    if grad_lse is not None:
        delta = delta - xp.where(empty, constant(xp, 0.0, lse), grad_lse)
    saved = (grad_output, lse, delta)
    grad_query, grad_mask = _query_pass(xp, plan, saved)
    grad_key, grad_value = _key_pass(xp, plan, saved)
    n_heads = key.shape[-3] if enable_gqa else None
    return Gradients(
        _as_input(xp, grad_query, query),
        _as_input(xp, sum_groups(grad_key, n_heads), key),
        _as_input(xp, sum_groups(grad_value, n_heads), value),
        None if grad_mask is None else xp.astype(grad_mask, attn_mask.dtype),
    )


# --- one tile --------------------------------------------------------------------------------------------


def blocks(n, size):
    """``[slice(0, size), slice(size, 2 * size), ...]`` over `n` tokens; the last may be shorter."""
    return [slice(a, min(a + size, n)) for a in range(0, n, size)]


def causal_tile(rows, cols, offset, like):
    """The causal mask of one tile: query i sees keys up to i + offset."""
    i = np.arange(rows.start, rows.stop)[:, None]
    j = np.arange(cols.start, cols.stop)[None, :]
    return to_library(j <= i + offset, like)


def row_delta(output, grad_output, lse):
    """D = rowsum(dO ∘ O): the mean of dP in each row, weighted by P, without P."""
    xp = namespace(output=output, grad_output=grad_output)
    product = xp.astype(output, lse.dtype) * xp.astype(grad_output, lse.dtype)
    return xp.sum(product, axis=-1)


def score_gradient(weights, grad_weights, delta):
    """dS = P ∘ (dP − D): the softmax backwards; each row sums to 0."""
    return weights * (grad_weights - delta[..., None])


def weights_again(scores, lse):
    """P = exp(S − lse), recomputed: no maximum and no sum is needed any more.

    An empty row has lse −∞ and only hidden scores; exp(−∞ − 0) is the 0 that it needs.
    """
    xp = namespace(scores=scores)
    lse = xp.where(lse == -math.inf, constant(xp, 0.0, lse), lse)
    return xp.exp(scores - lse[..., None])


def unscaled_gradient(grad_scores, scale):
    """The gradient with respect to QKᵀ, from that with respect to scale · QKᵀ."""
    return scale * grad_scores


def to_keys(tile, rows):
    """Each key collects from all queries: the transposed tile times the queries' rows."""
    xp = namespace(tile=tile)
    return product(xp, xp.matrix_transpose(tile), rows)


def sum_groups(gradient, n_heads):
    """The sum over the query heads that share a key/value head; unchanged if `n_heads` is None."""
    if n_heads is None:
        return gradient
    xp = namespace(gradient=gradient)
    *lead, n_q_heads, n_k, width = gradient.shape
    group = (*lead, n_heads, n_q_heads // n_heads, n_k, width)
    return xp.sum(xp.reshape(gradient, group), axis=-3)


def _tile_scores(plan, rows, cols):
    """Kind of the tile; its queries, keys, values, and scores with −∞ where hidden, or None for each."""
    kind, allowed, bias = plan.sight.tile(rows, cols, plan.query, plan.key)
    if kind == "skipped":
        return kind, None, None, None, None, None
    xp = namespace(query=plan.query)
    q = plan.query[..., rows, :]
    k, v = plan.key[..., cols, :], plan.value[..., cols, :]
    if allowed is not None:
        q, k, v = core.forget_unseen(xp, q, k, v, allowed)
    scores = core.scaled_scores(q, k, plan.scale)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = core.apply_mask(scores, allowed)
    return kind, allowed, q, k, v, scores


def _row_of_tiles(plan, rows):
    """The steps of one row of tiles, from left to right."""
    n_rows = rows.stop - rows.start
    state = online.start(
        (*plan.lead, n_rows), plan.value.shape[-1], like=plan.value
    )
    for cols in blocks(plan.key.shape[-2], plan.block_k):
        kind, allowed, _, _, v, scores = _tile_scores(plan, rows, cols)
        if kind != "skipped":
            state = online.update(state, scores, v, allowed)
        yield TileStep(rows, cols, kind, scores, state)


def _forward(query, key, value, attn_mask, **how):
    """Output and lse."""
    plan = _plan(query, key, value, attn_mask, **how)
    xp = namespace(query=query)
    n_q, d_v = plan.query.shape[-2], plan.value.shape[-1]
    empty = online.start((*plan.lead, n_q), d_v, like=plan.value)
    output, lse = online.finish(empty)
    output = xp.astype(output, query.dtype)
    for rows in blocks(n_q, plan.block_q):
        state = None
        for step in _row_of_tiles(plan, rows):
            state = step.state
        if state is not None:
            o, lse[..., rows] = online.finish(state)
            output[..., rows, :] = xp.astype(o, query.dtype)
    return output, lse


# --- backward --------------------------------------------------------------------------------------------


def _tile_gradients(plan, saved, rows, cols):
    """P, dS, and the q, k, dO of one tile, recomputed from lse; None for a skipped tile."""
    _, allowed, q, k, v, scores = _tile_scores(plan, rows, cols)
    if scores is None:
        return None
    xp = namespace(query=q)
    grad_output, lse, delta = (
        saved[0][..., rows, :],
        saved[1][..., rows],
        saved[2][..., rows],
    )
    weights = weights_again(scores, lse)
    g, v, q, k = (xp.astype(a, scores.dtype) for a in (grad_output, v, q, k))
    grad_weights = product(xp, g, xp.matrix_transpose(v))
    return weights, score_gradient(weights, grad_weights, delta), q, k, g


def _query_pass(xp, plan, saved):
    """dQ, one row of tiles at a time, and the gradient of a floating mask."""
    n_q, n_k = plan.query.shape[-2], plan.key.shape[-2]
    grad_query = _zeros(xp, (*plan.lead, n_q, plan.query.shape[-1]), saved[1])
    mask, grad_mask = plan.sight.attn_mask, None
    if mask is not None and xp.isdtype(mask.dtype, "real floating"):
        grad_mask = _zeros(xp, mask.shape, saved[1])
    for rows in blocks(n_q, plan.block_q):
        for cols in blocks(n_k, plan.block_k):
            tile = _tile_gradients(plan, saved, rows, cols)
            if tile is None:
                continue
            _, grad_scores, _, k, _ = tile
            grad_query[..., rows, :] += product(
                xp, unscaled_gradient(grad_scores, plan.scale), k
            )
            if grad_mask is not None:
                piece = _mask_tile(grad_mask, rows, cols)
                piece += _sum_to(xp, grad_scores, piece.shape)
    return grad_query, grad_mask


def _key_pass(xp, plan, saved):
    """dK and dV, one column of tiles at a time."""
    n_q, n_k = plan.query.shape[-2], plan.key.shape[-2]
    grad_key = _zeros(xp, (*plan.lead, n_k, plan.key.shape[-1]), saved[1])
    grad_value = _zeros(xp, (*plan.lead, n_k, plan.value.shape[-1]), saved[1])
    for cols in blocks(n_k, plan.block_k):
        for rows in blocks(n_q, plan.block_q):
            tile = _tile_gradients(plan, saved, rows, cols)
            if tile is None:
                continue
            weights, grad_scores, q, _, g = tile
            grad_value[..., cols, :] += to_keys(weights, g)
            grad_key[..., cols, :] += to_keys(
                unscaled_gradient(grad_scores, plan.scale), q
            )
    return grad_key, grad_value


def _as_input(xp, gradient, array):
    return xp.astype(_sum_to(xp, gradient, array.shape), array.dtype)


def _sum_to(xp, gradient, shape):
    """What was broadcast in the forward pass is summed in the backward pass."""
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + place
        for place, size in enumerate(shape)
        if size == 1 != gradient.shape[extra + place]
    )
    if axes:
        gradient = xp.sum(gradient, axis=axes, keepdims=True)
    return xp.reshape(gradient, tuple(shape))


@cache
def _torch_function():
    """The two passes as a function that torch differentiates; made when first needed."""
    import torch

    class FlashAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value, attn_mask, how):
            output, lse = _forward(query, key, value, attn_mask, **how)
            ctx.save_for_backward(query, key, value, output, lse, attn_mask)
            ctx.set_materialize_grads(False)
            ctx.how = how
            return output, lse

        @staticmethod
        def backward(ctx, grad_output, grad_lse):
            refuse_second_derivative("flash_attention")
            query, key, value, output, lse, attn_mask = ctx.saved_tensors
            if grad_output is None:
                grad_output = torch.zeros_like(output)
            gradients = flash_attention_backward(
                query,
                key,
                value,
                output,
                lse,
                grad_output,
                attn_mask,
                **ctx.how,
                grad_lse=grad_lse,
            )
            return *gradients, None

    return FlashAttention


# --- preparation -----------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """Checked inputs: everything that one tile needs."""

    query: Any
    key: Any
    value: Any
    scale: float
    sight: Visibility
    lead: tuple
    block_q: int
    block_k: int


def _plan(
    query,
    key,
    value,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
    block_q=128,
    block_k=128,
):
    refuse_transforms("flash_attention", query, key, value, attn_mask)
    query, key, value, scale = core.check_inputs(
        query, key, value, scale, enable_gqa
    )
    # Widths that differ are refused even where no tile is computed.
    core.scores(query[..., :0, :], key[..., :0, :])
    core.check_mask(query, key, attn_mask, is_causal, causal_align)
    n_q, n_k = query.shape[-2], key.shape[-2]
    offset = None
    if is_causal:
        offset = masks.check_align(causal_align, n_q, n_k, "causal_align")
    return _Plan(
        query,
        key,
        value,
        scale,
        Visibility(attn_mask, offset),
        broadcast_shapes(*(a.shape[:-2] for a in (query, key, value))),
        whole_number(block_q, "block_q"),
        whole_number(block_k, "block_k"),
    )


def _mask_tile(attn_mask, rows, cols):
    """The part of a mask that belongs to a tile; an axis of 1 stays, since it broadcasts."""
    if attn_mask.ndim == 1:
        return attn_mask[cols]
    if attn_mask.shape[-2] == 1:
        rows = slice(0, 1)
    return attn_mask[..., rows, cols]


def _zeros(xp, shape, like):
    return xp.zeros(tuple(shape), dtype=like.dtype, device=device(like))


__all__ = [
    "Gradients",
    "TileStep",
    "Visibility",
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_steps",
]

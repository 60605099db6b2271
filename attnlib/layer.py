"""A whole multi-head attention layer: project, split, attend, merge, project."""

from typing import Any, NamedTuple

from . import core, heads


class LayerSteps(NamedTuple):
    """Every intermediate of one layer, in the order in which it arises.

    Attributes
    ----------
    query, key, value : array, shape (..., n_heads, T, d_h)
        What the heads receive.
    attention : attnlib.core.AttentionSteps
        The steps inside the heads.
    merged : array, shape (..., Tq, n_heads * d_h)
        H: the heads' outputs side by side.
    output : array, shape (..., Tq, d)
        ``H @ w_o``, before it is added to the residual stream.
    """

    query: Any
    key: Any
    value: Any
    attention: core.AttentionSteps
    merged: Any
    output: Any


def multi_head_attention(
    x,
    w_q,
    w_k,
    w_v,
    w_o,
    n_heads,
    attn_mask=None,
    *,
    memory=None,
    is_causal=False,
    causal_align=None,
):
    """One attention layer without biases and without dropout, with every intermediate kept.

    Parameters
    ----------
    x : floating array, shape (..., Tq, d)
        The tokens that ask.
    w_q, w_k, w_v : array, shape (d, n_heads * d_h)
        Projections; `w_v` may be (d, n_heads * d_v).
    w_o : array, shape (n_heads * d_v, d_out)
        Output projection.
    n_heads : int
    attn_mask, is_causal, causal_align
        As in :func:`attnlib.core.attention`.
    memory : floating array, shape (..., Tk, d), optional
        The tokens that answer, if they are others than `x` (cross-attention).

    Returns
    -------
    LayerSteps
        ``output`` is the layer's result. It does not include the residual: add `x` yourself.

    Raises
    ------
    ShapeError, MaskError
        As the functions it calls.

    Notes
    -----
    torch's ``nn.MultiheadAttention`` keeps the transposes of these weights and reads boolean masks the
    other way round. Source: Vaswani et al. 2017, section 3.2.2.

    Examples
    --------
    >>> from attnlib.examples import three_tokens
    >>> t = three_tokens()
    >>> steps = multi_head_attention(t.x, t.w_q, t.w_k, t.w_v, t.w_o, t.n_heads, is_causal=True)
    >>> steps.merged[0]
    array([ 1.,  0.,  0.,  1.,  0.,  2.,  0., -1.])
    """
    memory = x if memory is None else memory
    query = heads.split_heads(heads.project(x, w_q), n_heads)
    key = heads.split_heads(heads.project(memory, w_k), n_heads)
    value = heads.split_heads(heads.project(memory, w_v), n_heads)
    attended = core.attention_steps(
        query,
        key,
        value,
        attn_mask,
        is_causal=is_causal,
        causal_align=causal_align,
    )
    merged = heads.merge_heads(attended.output)
    return LayerSteps(
        query, key, value, attended, merged, heads.project(merged, w_o)
    )

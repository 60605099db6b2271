"""Attention on torch: which device, torch's own kernel under our conventions, and our own fastest tiles."""

import math
import os
from functools import cache
from typing import Any, NamedTuple

from numpy import broadcast_shapes, ndindex

from . import core, heads, masks
from ._arrays import (
    namespace,
    require_same_device,
    statistics_dtype,
    whole_number,
)
from ._torch import (
    above_zero,
    full_precision,
    is_transformed,
    refuse_second_derivative,
    refuse_transforms,
)
from .errors import AttnError, ShapeError

try:
    import torch
    from torch.nn.attention.bias import causal_lower_right
except ImportError:  # the functions say so when they are called
    torch = None

BLOCK_Q, BLOCK_K = 2048, 256
"""Tall tiles: one product gets many rows, so that little time goes into starting it, and 256 keys with their
values stay in the cache. The fastest of the sizes tried; fewer queries get wider tiles."""

SMALL_SCORE = 40.0
"""While no |score| exceeds this, in powers of two, every exponential lies between 2^-40 and 2^40: float32
holds the sums of 2^48 of them, so the softmax needs no maximum."""


def device():
    """The device to compute on: the variable ``ATTNLIB_DEVICE``, else CUDA, else Apple's GPU, else the CPU.

    Returns
    -------
    torch.device

    Raises
    ------
    AttnError
        If the variable names a device that is unknown or not there.
    """
    _require_torch()
    there = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }
    asked = os.environ.get("ATTNLIB_DEVICE", "").strip()
    if not asked:
        return torch.device(
            next(kind for kind, count in there.items() if count)
        )
    try:
        wanted = torch.device(asked)
        found = (wanted.index or 0) < there.get(wanted.type, 0)
    except RuntimeError:
        found = False
    if not found:
        names = [f"{k}:{n}" for k, count in there.items() for n in range(count)]
        raise AttnError(
            f"ATTNLIB_DEVICE is {asked!r}; this machine has {', '.join(names)}: name one of them"
        )
    return wanted


def sdpa(
    query,
    key,
    value,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
    return_lse=False,
):
    """torch's ``scaled_dot_product_attention`` under the conventions of :func:`attnlib.attention`.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
        As in :func:`attnlib.attention`; torch tensors.
    return_lse : bool
        Also return the log-sum-exp of each row.

    Returns
    -------
    output : tensor, shape (..., heads, Tq, d_v)
        The input's type.
    lse : tensor, shape (..., heads, Tq)
        Only with `return_lse`; at least float32, −∞ for a row that may see nothing.

    Raises
    ------
    ShapeError, MaskError
        As :func:`attnlib.attention`; arrays that are not torch's.

    Notes
    -----
    What torch does otherwise is converted: keys nobody sees and queries that see nothing become 0 first,
    the lowest number of a type in a mask becomes −∞, a negative scale goes into the query, and whatever the
    loss makes of an empty row moves nothing. Grouped heads are repeated. ``bottom_right`` with more keys than
    queries makes torch build the mask on a CPU. torch returns its lse on a CPU only, without gradient and
    with d_v = d_h; elsewhere our tiles compute it.
    """
    scale, offset = _check(
        query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
    )
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (
            heads.repeat_heads(key, times),
            heads.repeat_heads(value, times),
        )
    seeing, n_blind = None, 0
    if return_lse:
        refuse_transforms("sdpa with return_lse", query, key, value, attn_mask)
    how = {}
    if attn_mask is not None:
        query, key, value = _forget_unseen(query, key, value, attn_mask)
        how["attn_mask"], seeing = _torch_mask(attn_mask, query.dtype)
    lead = broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    q, k, v = (x.expand(*lead, *x.shape[-2:]) for x in (query, key, value))
    q, how["scale"] = above_zero(q, scale)
    if offset is not None:
        n_blind, n_k = max(0, -offset), _n_seen(offset, q, k)
        q, k, v = q[..., n_blind:, :], k[..., :n_k, :], v[..., :n_k, :]
        how["is_causal"] = offset <= 0
        if offset > 0:
            how["attn_mask"] = causal_lower_right(q.shape[-2], n_k)
    if seeing is None and _hides_nan(q, k, scale):
        inputs = (query, key, value, None)
        options = _options(query, None, scale, offset)
        output, lse = _autograd_function().apply(*inputs, options)
        return (output, lse) if return_lse else output
    with full_precision(q):
        output, lse = _torch_attention(q, k, v, how, return_lse)
    if n_blind:  # even a padding of nothing would copy
        output = torch.nn.functional.pad(output, (0, 0, n_blind, 0))
    if seeing is not None:
        output = torch.where(seeing, output, 0.0)
    if not return_lse:
        return output
    if lse is None:
        inputs = (query, key, value[..., :0], attn_mask)
        options = _options(query, attn_mask, scale, offset)
        return output, _autograd_function().apply(*inputs, options)[1]
    return output, torch.nn.functional.pad(lse, (n_blind, 0), value=-math.inf)


def fast_attention(
    query,
    key,
    value,
    attn_mask=None,
    *,
    is_causal=False,
    causal_align=None,
    scale=None,
    enable_gqa=False,
    return_lse=False,
    block_q=None,
    block_k=None,
):
    """What :func:`attnlib.attention` returns, by our own fastest tiles; torch's attention is not called.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
        As in :func:`attnlib.attention`; torch tensors.
    return_lse : bool
        Also return the log-sum-exp of each row.
    block_q, block_k : int, optional
        Rows (queries) and columns (keys) of a tile, at least 1; chosen for speed if not given.

    Returns
    -------
    output : tensor, shape (..., heads, Tq, d_v)
        The input's type; equal to plain attention up to rounding.
    lse : tensor, shape (..., heads, Tq)
        Only with `return_lse`; at least float32, −∞ for a row that may see nothing.

    Raises
    ------
    ShapeError, MaskError
        As :func:`attnlib.attention`; arrays that are not torch's; a block size below 1.

    Notes
    -----
    Beside the result it holds one head in float32, one tile (2 MiB) and a few numbers per row. Grouped heads
    are not repeated. Every head is a loop in Python: many short sequences are slow. Statistics are in at
    least float32; in bfloat16, where the processor multiplies it, the weights are rounded to it before they
    meet the values. The backward pass computes the tiles again, once: five products a tile. It cannot be
    differentiated twice.
    Source: Dao 2023, algorithms 1 and 2; Milakov and Gimelshein 2018.

    Examples
    --------
    >>> import torch
    >>> from attnlib.examples import three_tokens
    >>> q, k, v = (torch.asarray(array) for array in three_tokens().head(1))
    >>> fast_attention(q, k, v, is_causal=True).numpy().round(4)
    array([[1.    , 0.    , 0.    , 1.    ],
           [0.8176, 0.1824, 0.    , 1.    ],
           [0.1142, 0.042 , 0.8438, 1.    ]])
    """
    scale, offset = _check(
        query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
    )
    options = _options(query, attn_mask, scale, offset, block_q, block_k)
    inputs = (query, key, value, attn_mask)
    refuse_transforms("fast_attention", *inputs)
    if enable_gqa:
        inputs = _grouped(*inputs)
    if attn_mask is not None:
        inputs = (*_forget_unseen(*inputs), inputs[-1])
    output, lse = _autograd_function().apply(*inputs, options)
    if enable_gqa:
        output, lse = output.flatten(-4, -3), lse.flatten(-3, -2)
    return (output, lse) if return_lse else output


# --- checks and conversions ------------------------------------------------------------------------------


def _require_torch():
    if torch is None:
        raise AttnError("attnlib.torch_path needs torch: pip install torch")


def _check(
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
):
    """Scale and causal offset, after the checks of plain attention, made on tensors without data."""
    _require_torch()
    namespace(query=query, key=key, value=value)
    if not isinstance(query, torch.Tensor):
        raise ShapeError(
            f"query is a {type(query).__name__}, wanted a torch tensor: torch.asarray(query), or "
            f"attnlib.tiled.flash_attention, which takes other arrays too"
        )
    others = {"key": key, "value": value}
    if attn_mask is not None:
        namespace(query=query, attn_mask=attn_mask)
        others["attn_mask"] = attn_mask
    for name, array in others.items():
        require_same_device("query", query, name, array)
    q, k, v, mask = (
        None if x is None else x.detach().to("meta")
        for x in (query, key, value, attn_mask)
    )
    q, k, v, scale = core.check_inputs(q, k, v, scale, enable_gqa)
    core.check_mask(q, k, mask, is_causal, causal_align)
    core.scores(q[..., :0, :], k[..., :0, :])  # compares the widths
    if not is_causal:
        return scale, None
    return scale, masks.check_align(
        causal_align, q.shape[-2], k.shape[-2], "causal_align"
    )


def _n_seen(offset, query, key):
    """How many keys a causal mask shows to the last query; nobody sees those after them."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    return n_k if offset is None else min(n_k, max(0, n_q + offset))


def _forget_unseen(query, key, value, attn_mask):
    """Zeros for what the mask shows to nobody, if it holds what a weight of 0 might not remove."""
    # A transform has no one answer to compare.
    transformed = is_transformed(query, key, value, attn_mask)
    if not transformed and _tame(query, key, value):
        return query, key, value
    return core.forget_unseen(
        namespace(query=query), query, key, value, attn_mask
    )


def _tame(*tensors):
    """Whether all numbers are so small that no product of two overflows; NaN is not."""
    dtype = statistics_dtype(namespace(query=tensors[0]), tensors[0].dtype)
    limit = torch.finfo(dtype).max ** 0.25
    norms = (torch.linalg.vector_norm(x.detach(), dtype=dtype) for x in tensors)
    return all(norm <= limit for norm in norms)


def _grouped(query, key, value, attn_mask):
    """Views with one more axis, in which each key/value head broadcasts to its group of query heads."""
    n_kv, n_q_heads = key.shape[-3], query.shape[-3]
    query = query.unflatten(-3, (n_kv, n_q_heads // n_kv))
    if attn_mask is not None and attn_mask.ndim > 2:
        split = (1, 1) if attn_mask.shape[-3] == 1 else query.shape[-4:-2]
        attn_mask = attn_mask.unflatten(-3, split)
    return query, key.unsqueeze(-3), value.unsqueeze(-3), attn_mask


# --- torch's own attention -------------------------------------------------------------------------------


def _torch_mask(attn_mask, dtype):
    """The mask as torch reads it, and which rows see something."""
    mask = attn_mask if attn_mask.ndim > 1 else attn_mask[None]
    dtype = statistics_dtype(namespace(mask=mask), dtype)
    allowed, bias = masks.read_mask(mask, mask.shape, dtype)
    seeing = allowed.any(-1, keepdim=True)
    if bias is not None:
        allowed = torch.where(allowed, bias, -math.inf)
    return allowed, seeing


def _hides_nan(query, key, scale):
    """Whether torch's CPU kernel could return 0 for a row with a visible NaN, or with nothing but −∞.

    It takes such a row for one that may see nothing. Our tiles show what is there.
    """
    if query.device.type != "cpu" or is_transformed(query, key):
        return False
    if not query.numel() or not key.numel():
        return False
    # What is tame after it has grown was tame before.
    return not _tame(query * scale if abs(scale) > 1 else query, key)


def _torch_attention(query, key, value, how, return_lse):
    """torch's output, and its lse where it gives one."""
    # Without a batch its CPU kernel divides by 0, and the process is gone.
    if 0 in (*query.shape[:-1], key.shape[-2]):
        return (
            query @ key.mT
        ) @ value, None  # zeros that stay attached to the graph
    # Its kernels read the numbers of a row side by side, and some of them do not look whether they lie so.
    query, key, value = (
        x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value)
    )
    trained = torch.is_grad_enabled() and any(
        x.requires_grad for x in (query, key, value)
    )
    plain = query.ndim == 4 and query.shape[-1] == value.shape[-1]
    if return_lse and plain and not trained and "attn_mask" not in how:
        if query.device.type == "cpu":
            kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
            return kernel(query, key, value, **how)
    attend = torch.nn.functional.scaled_dot_product_attention
    try:
        return attend(query, key, value, **how), None
    except NotImplementedError as problem:  # a forward-mode derivative
        raise AttnError(
            f"torch's own kernel cannot do it ({str(problem).splitlines()[0]}): use attnlib.attention"
        ) from None


# --- our tiles -------------------------------------------------------------------------------------------


class _Options(NamedTuple):
    scale: float
    offset: Any  # of the causal diagonal; None if not causal
    unit: float  # stretches the scores: log2(e) to take 2^x of them, 1 to take e^x
    block_q: int
    block_k: int


def _options(query, attn_mask, scale, offset, block_q=None, block_k=None):
    """The settings of one call; sizes of tiles that were not asked for are chosen."""
    # torch's 2^x takes 0.4 of the time of its e^x; an added mask could overflow when it is stretched.
    stretch = query.dtype != torch.float64 and not _adds(attn_mask)
    unit = 1 / math.log(2) if stretch else 1.0
    n_q = max(1, query.shape[-2])
    if block_q is None:
        block_q = BLOCK_Q
    if block_k is None:
        # Few queries leave room for more keys, but the diagonal of a causal mask wastes half a wide tile.
        wide = offset is None or n_q <= BLOCK_K
        block_k = BLOCK_K * (max(1, BLOCK_Q // n_q) if wide else 1)
    sizes = whole_number(block_q, "block_q"), whole_number(block_k, "block_k")
    return _Options(scale, offset, unit, *sizes)


def _adds(attn_mask):
    return attn_mask is not None and attn_mask.dtype != torch.bool


class _Head(NamedTuple):
    """One head, ready for its tiles: in the statistics type, the queries scaled and stretched."""

    query: Any
    key: Any
    value: Any  # bfloat16 where the processor multiplies that
    mask: Any  # (Tq or 1, Tk), or None


def _heads(query, key, value, attn_mask, options):
    """``(place, head)`` one after the other; what is broadcast or shared is looked at again, not copied."""
    xp = namespace(query=query)
    dtype = value_dtype = statistics_dtype(xp, query.dtype)
    if query.dtype == torch.bfloat16 and _multiplies_bfloat16(query.device):
        value_dtype = torch.bfloat16
    factor = options.scale * options.unit
    n_k = _n_seen(options.offset, query, key)
    lead = _lead(query, key, value)
    for at in ndindex(*lead):
        q, k, v = (_part(x, lead, at) for x in (query, key, value))
        yield (
            at,
            _Head(
                q.to(dtype) * factor,
                k[:n_k].to(dtype).contiguous(),
                v[:n_k].to(value_dtype).contiguous(),
                None if attn_mask is None else _part(attn_mask, lead, at),
            ),
        )


def _multiplies_bfloat16(device):
    if device.type != "cpu":
        return False
    return torch.cpu.get_capabilities().get("avx512_bf16", False)


def _lead(*tensors):
    return broadcast_shapes(*(x.shape[:-2] for x in tensors))


def _part(tensor, lead, at):
    """The matrix that serves the head at this place: a view, so that adding to it adds to `tensor`."""
    tensor = tensor if tensor.ndim > 1 else tensor[None]
    return tensor.expand(*lead, *tensor.shape[-2:])[at]


class _Tile(NamedTuple):
    rows: slice
    keys: slice
    hidden: Any  # True where not visible, for the first len(hidden) rows; None if nothing is hidden
    bias: Any
    seeing: Any  # which rows see something of a given mask


def _tiles(head, options):
    """The tiles of one head, each without the rows at its top and bottom that see nothing of it."""
    n_q, n_k = len(head.query), len(head.key)
    for top in range(0, n_q, options.block_q):
        rows = slice(top, min(top + options.block_q, n_q))
        for left in range(0, n_k, options.block_k):
            keys = slice(left, min(left + options.block_k, n_k))
            if head.mask is not None:
                tile = _masked_tile(head.mask, rows, keys, head.query.dtype)
            elif options.offset is not None:
                tile = _causal_tile(rows, keys, options.offset, head.query)
            else:
                tile = _Tile(rows, keys, None, None, None)
            if tile is not None:
                yield tile


def _causal_tile(rows, keys, offset, like):
    """Row i sees keys up to i + offset, so only rows at the top of the tile have something hidden."""
    first = max(rows.start, keys.start - offset)
    if first >= rows.stop:
        return None
    hidden, n_cut = None, min(rows.stop, keys.stop - 1 - offset) - first
    if n_cut > 0:
        shape = (n_cut, keys.stop - keys.start)
        hidden = torch.ones(shape, dtype=torch.bool, device=like.device)
        hidden = hidden.triu(first + offset - keys.start + 1)
    return _Tile(slice(first, rows.stop), keys, hidden, None, None)


def _masked_tile(mask, rows, keys, dtype):
    """What a given mask leaves of a tile."""
    mask = mask[_in_mask(rows, mask), keys]
    allowed, bias = masks.read_mask(mask, mask.shape, dtype)
    seeing = allowed.any(1, keepdim=True)
    if not seeing.any():
        return None
    if len(mask) > 1:
        places = seeing[:, 0].nonzero()
        cut = slice(int(places[0]), int(places[-1]) + 1)
        rows = slice(rows.start + cut.start, rows.start + cut.stop)
        allowed, seeing = allowed[cut], seeing[cut]
        bias = None if bias is None else bias[cut]
    hidden = None
    if not allowed.all():
        hidden = (~allowed).expand(rows.stop - rows.start, -1)
    return _Tile(rows, keys, hidden, bias, seeing)


def _in_mask(rows, mask):
    """The same rows of a mask, whose query axis may be 1."""
    return rows if len(mask) > 1 else slice(0, 1)


def _buffer(query, key, options):
    """Room for one tile; every tile is written over the one before."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    dtype = statistics_dtype(namespace(query=query), query.dtype)
    size = min(options.block_q, n_q) * min(options.block_k, n_k)
    return torch.empty(size, dtype=dtype, device=query.device)


def _scores(head, tile, buffer):
    """Scaled scores of one tile, −∞ where hidden, in the buffer."""
    q, k = head.query[tile.rows], head.key[tile.keys]
    scores = buffer[: len(q) * len(k)].view(len(q), len(k))
    torch.mm(q, k.T, out=scores)
    if tile.bias is not None:
        scores.add_(tile.bias)
    if tile.hidden is not None:
        scores[: len(tile.hidden)].masked_fill_(tile.hidden, -math.inf)
    return scores


def _power_(scores, options):
    return scores.exp_() if options.unit == 1.0 else scores.exp2_()


def _small_scores(head):
    """Whether |q · k| <= |q| |k| proves that the softmax needs no maximum; see :data:`SMALL_SCORE`."""
    if _adds(head.mask) or 0 in (len(head.query), len(head.key)):
        return False
    norm, dtype = torch.linalg.vector_norm, head.key.dtype
    score = norm(head.query, dim=1).amax() * norm(head.key, dim=1).amax()
    largest = norm(head.value, dtype=dtype) * len(head.key) * 2**SMALL_SCORE
    # Compared this way round, NaN is not small.
    return bool((score <= SMALL_SCORE) & (largest < torch.finfo(dtype).max))


def _forward(query, key, value, attn_mask, options):
    """Output and lse; for the way back row_max, row_sum (0 and 1 in an empty row), and which rows see."""
    lead, n_q = _lead(query, key, value), query.shape[-2]
    buffer = _buffer(query, key, options)
    output = query.new_zeros((*lead, n_q, value.shape[-1]))
    row_max, row_sum = buffer.new_zeros((2, *lead, n_q, 1))
    # Which rows see something: the mask says so, never the numbers.
    seen = torch.zeros_like(row_max, dtype=torch.bool)
    if attn_mask is None and key.shape[-2]:
        seen[..., max(0, -(options.offset or 0)) :, :] = True
    for at, head in _heads(query, key, value, attn_mask, options):
        o = output[at].to(buffer.dtype)
        state = (row_max[at], row_sum[at], o)
        _forward_head(head, options, buffer, state, seen[at])
        output[at].copy_(o.div_(row_sum[at]))
    lse = row_max / options.unit + row_sum.log()
    if not seen.all():
        output.masked_fill_(~seen, 0.0)
        lse.masked_fill_(~seen, -math.inf)
        row_max.masked_fill_(~seen, 0.0)
        row_sum.masked_fill_(~seen, 1.0)
    return output, lse.squeeze(-1), row_max, row_sum, seen


def _forward_head(head, options, buffer, state, seen):
    """Fill in the state (m, ℓ, o) of every row, as :mod:`attnlib.online` does, tile by tile."""
    row_max, row_sum, o = state
    # Where the bound holds, m = 0 does for every row, and nothing is ever rescaled.
    bounded = _small_scores(head)
    if not bounded:
        row_max.fill_(-math.inf)
    for tile in _tiles(head, options):
        rows, scores = tile.rows, _scores(head, tile, buffer)
        if tile.seeing is not None:
            seen[rows] |= tile.seeing
        if not bounded:
            new_max = torch.maximum(row_max[rows], scores.amax(1, keepdim=True))
            # A row that has seen nothing yet needs exp(-inf - 0), not exp(-inf + inf).
            shift = new_max.masked_fill(~seen[rows], 0.0)
            kept = _power_(row_max[rows] - shift, options)
            row_sum[rows] *= kept
            o[rows] *= kept
            row_max[rows] = new_max
            scores.sub_(shift)
        weights = _power_(scores, options)
        row_sum[rows] += weights.sum(1, keepdim=True)
        value = head.value[tile.keys]
        if value.dtype == weights.dtype:
            o[rows].addmm_(weights, value)
        else:
            o[rows] += weights.to(value.dtype) @ value


def _backward(saved, grad_output, grad_lse, options, mask_too):
    """Gradients of queries, keys, values and, if `mask_too`, of the mask: the tiles once more."""
    query, key, value, attn_mask, output, row_max, row_sum, seen = saved
    lead, dtype = _lead(query, key, value), row_max.dtype
    buffers = [_buffer(query, key, options) for _ in range(2)]
    given = (query, key, value) + ((attn_mask,) if mask_too else ())
    grads = [query.new_zeros(x.shape, dtype=dtype) for x in given]
    for at, head in _heads(query, key, value, attn_mask, options):
        # Whatever the loss makes of an empty row's 0 and -inf, NaN included, it moves nothing.
        grad = grad_output[at].to(dtype).where(seen[at], 0.0)
        delta = (grad * output[at]).sum(1, keepdim=True)
        if grad_lse is not None:
            delta -= grad_lse[at][:, None].where(seen[at], 0.0)
        # P = exp(S - m) / ℓ: dividing dO and D by ℓ is cheaper than dividing every tile.
        above = (grad / row_sum[at], delta / row_sum[at], row_max[at])
        parts = [_part(x, lead, at) for x in grads]
        _backward_head(head, options, buffers, above, *parts)
    return [grad.to(x.dtype) for grad, x in zip(grads, given, strict=True)]


def _backward_head(
    head, options, buffers, above, d_query, d_key, d_value, d_mask=None
):
    """Add one head's gradients, tile by tile; what is shared or broadcast is added to again."""
    grad, delta, row_max = above
    value = head.value.to(grad.dtype)
    for tile in _tiles(head, options):
        rows, keys = tile.rows, tile.keys
        scores = _scores(head, tile, buffers[0]).sub_(row_max[rows])
        weights = _power_(scores, options)
        d_value[keys].addmm_(weights.T, grad[rows])
        d_scores = buffers[1][: weights.numel()].view(weights.shape)
        torch.mm(grad[rows], value[keys].T, out=d_scores)
        d_scores.sub_(delta[rows]).mul_(weights)
        d_query[rows].addmm_(d_scores, head.key[keys], alpha=options.scale)
        # The head's queries carry scale and unit already.
        back = 1 / options.unit
        d_key[keys].addmm_(d_scores.T, head.query[rows], alpha=back)
        if d_mask is not None:
            part = d_mask[_in_mask(rows, d_mask), keys]
            part += d_scores.sum_to_size(part.shape)


@cache
def _autograd_function():
    """The two passes as a function that torch differentiates; made when torch is first needed."""

    class FastAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value, attn_mask, options):
            inputs = (query, key, value, attn_mask)
            with full_precision(query):
                output, lse, *state = _forward(*inputs, options)
            ctx.save_for_backward(*inputs, output, *state)
            ctx.set_materialize_grads(False)
            ctx.options = options
            return output, lse

        @staticmethod
        def backward(ctx, grad_output, grad_lse):
            refuse_second_derivative("fast_attention")
            saved, mask_too = ctx.saved_tensors, ctx.needs_input_grad[3]
            if grad_output is None:
                grad_output = torch.zeros_like(saved[4])
            with full_precision(grad_output):
                grads = _backward(
                    saved, grad_output, grad_lse, ctx.options, mask_too
                )
            return *grads, *([None] if mask_too else [None, None])

    return FastAttention


__all__ = ["device", "fast_attention", "sdpa"]

"""Attention on torch: which device, torch's own kernel under our conventions, and our own fastest tiles."""

import math
import os
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from . import core, masks
from ._arrays import namespace, statistics_dtype, whole_number
from .errors import AttnError, ShapeError

try:
    import torch
except ImportError:  # the functions say so when they are called
    torch = None

BLOCK_Q, BLOCK_K = 2048, 256
"""Tall tiles: one product gets many rows, so that little time goes into starting it, while 256 keys and
values stay in the cache. The fastest of those measured (chapter 10); rows a tile hides are cut off."""

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
        return torch.device(next(kind for kind, count in there.items() if count))
    try:
        wanted = torch.device(asked)
        found = (wanted.index or 0) < there.get(wanted.type, 0)
    except RuntimeError:
        found = False
    if not found:
        names = [f"{k}:{n}" for k, count in there.items() for n in range(count)]
        raise AttnError(
            f"ATTNLIB_DEVICE is {asked!r}; this machine has {', '.join(names)}: name one of these, or unset it"
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
    the lowest number of a type in a mask becomes −∞, a negative scale goes into the query, empty rows are
    opened for torch and zeroed after it. Grouped heads are repeated. ``bottom_right`` with more keys than
    queries makes torch build the mask on a CPU. torch returns its lse on a CPU only, without gradient and
    with d_v = d_h; elsewhere our tiles compute it.
    """
    plan = _plan(query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa)
    if enable_gqa:
        key, value = core._share_heads(query, key, value)
    if attn_mask is not None:
        query, key, value = _forget_unseen(query, key, value, attn_mask)
    q, k, v = (x.expand(*plan.lead, *x.shape[-2:]) for x in (query, key, value))
    n_q, n_k, scale = q.shape[-2], k.shape[-2], plan.scale
    if scale < 0:
        q, scale = -q, -scale
    how, top = {"scale": scale}, 0
    seeing = None
    if is_causal:
        # Queries in front of the first key see nothing; keys behind the last query are seen by nobody.
        top, n_k = max(0, -plan.offset), min(n_k, max(0, n_q + plan.offset))
        q, k, v = q[..., top:, :], k[..., :n_k, :], v[..., :n_k, :]
        if plan.offset > 0:
            from torch.nn.attention.bias import causal_lower_right

            how["attn_mask"] = causal_lower_right(n_q, n_k)
        else:
            how["is_causal"] = True
    elif attn_mask is not None:
        how["attn_mask"], seeing = _torch_mask(attn_mask, plan)
    if 0 in (q.shape[-2], n_k):
        output, lse = (q @ k.mT) @ v, None  # zeros, attached to the graph
    else:
        output, lse = _run_sdpa(q, k, v, how, return_lse)
    if seeing is not None:
        output = torch.where(seeing, output, 0.0)
    output = torch.nn.functional.pad(output, (0, 0, top, 0))
    if not return_lse:
        return output
    if lse is None or top:
        mask = (attn_mask,) if attn_mask is not None else ()
        options = {"is_causal": is_causal, "causal_align": causal_align, "scale": plan.scale}
        lse = fast_attention(query, key, value[..., :0], *mask, **options, return_lse=True)[1]
    elif seeing is not None:
        lse = torch.where(seeing[..., 0], lse, -math.inf)
    return output, lse

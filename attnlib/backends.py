"""torch's own fast attentions, one at a time: each of SDPA's kernels by name, FlexAttention, and who ran."""

import math
import re
import warnings
from functools import cache, lru_cache

from . import heads, kernels, masks, torch_path
from ._arrays import namespace, statistics_dtype
from ._torch import above_zero, full_precision, refuse_transforms
from .errors import AttnError

try:
    import torch
    import torch.nn.attention.flex_attention
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:  # the functions say so when they are called
    torch = None

# torch's name of each kernel, and where torch has it; on other devices it would run another one silently.
KERNELS = {
    "flash": ("FLASH_ATTENTION", ("cuda", "cpu")),
    "efficient": ("EFFICIENT_ATTENTION", ("cuda",)),
    "cudnn": ("CUDNN_ATTENTION", ("cuda",)),
    "math": ("MATH", None),
}


def sdpa_backend(
    name,
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
    """torch's ``scaled_dot_product_attention`` by one of its kernels and no other, our conventions.

    Parameters
    ----------
    name : {"flash", "efficient", "cudnn", "math"}
        FlashAttention-2 (on a CPU torch's own tiles), xFormers' memory-efficient kernel, NVIDIA's cuDNN,
        or plain products, softmax and products.
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
        As in :func:`attnlib.torch_path.sdpa`.

    Returns
    -------
    tensor, shape (..., heads, Tq, d_v)
        The input's type.

    Raises
    ------
    AttnError
        An unknown `name`; or the kernel does not take these inputs on this machine: says why.
    ShapeError, MaskError
        As :func:`attnlib.attention`.

    Notes
    -----
    The fused kernels want four axes and rows of neighbours: other inputs are viewed with four, and copied
    where the last stride is not 1. Without queries or keys nothing is computed and no kernel runs.
    For lse see :func:`attnlib.torch_path.sdpa`.
    """
    output, reason = _try(
        name,
        query,
        key,
        value,
        attn_mask,
        is_causal=is_causal,
        causal_align=causal_align,
        scale=scale,
        enable_gqa=enable_gqa,
    )
    if reason is not None:
        raise AttnError(
            f"torch's {name!r} kernel refuses these inputs here: {reason}"
        )
    return output


def why_not(name, query, key, value, attn_mask=None, **options):
    """Why one of SDPA's kernels does not take these inputs on this machine.

    Parameters
    ----------
    name, query, key, value, attn_mask
        As in :func:`sdpa_backend`.
    **options
        Its other options.

    Returns
    -------
    str or None
        torch's reason, in one line; None if the kernel takes them.

    Raises
    ------
    AttnError, ShapeError, MaskError
        As :func:`sdpa_backend`, but not for the refusal that is asked about.

    Notes
    -----
    It runs the forward pass: some refusals (cuDNN's) are known only then. Inputs that want gradients are
    judged as such.

    Examples
    --------
    >>> import torch
    >>> q = torch.ones(1, 1, 2, 4)
    >>> why_not("math", q, q, q)
    >>> print(why_not("flash", q, q, q[..., :3])[:62])
    Flash attention requires q,k,v to have the same last dimension
    """
    return _try(name, query, key, value, attn_mask, **options)[1]


def which_ran(call, *arguments, **options):
    """Run `call` and tell which attention kernel did its work.

    Parameters
    ----------
    call : callable
        Anything that reaches ``scaled_dot_product_attention``, or our GPU kernel.
    *arguments, **options
        What it is called with.

    Returns
    -------
    str
        "flash", "efficient", "cudnn", "math", or "ours" for :func:`attnlib.kernels.flash_attention`.

    Raises
    ------
    AttnError
        If no attention ran.

    Notes
    -----
    It looks at the operators that torch executes, so it tells what happened, not what should. "math" is
    any softmax that is not inside a fused kernel. Not for compiled functions.

    Examples
    --------
    >>> import torch
    >>> q = torch.ones(1, 1, 2, 4)
    >>> which_ran(torch_path.sdpa, q, q, q)
    'flash'
    >>> which_ran(sdpa_backend, "math", q, q, q)
    'math'
    """
    torch_path._require_torch()
    operators = []

    class Listener(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            operators.append(str(operator))
            return operator(*args, **(kwargs or {}))

    with Listener():
        call(*arguments, **options)
    known = {
        r"^attnlib\.flash_attention\b": "ours",
        r"cudnn_attention": "cudnn",
        r"_efficient_attention": "efficient",
        r"_flash_attention": "flash",
        r"softmax": "math",
    }
    for operator in operators:
        for pattern, name in known.items():
            if re.search(pattern, operator):
                return name
    raise AttnError(
        f"no attention ran: torch executed {', '.join(operators) or 'nothing'}"
    )


def flex_attention(
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
    compiled=None,
):
    """torch's FlexAttention under the conventions of :func:`attnlib.attention`.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, causal_align, scale, enable_gqa
        As in :func:`attnlib.attention`; torch tensors.
    return_lse : bool
        Also return the log-sum-exp of each row.
    compiled : bool, optional
        Through ``torch.compile``, which makes one kernel of it; without, the whole score matrix is
        built. Compiled on a GPU and not on a CPU if not given.

    Returns
    -------
    output : tensor, shape (..., heads, Tq, d_v)
        The input's type.
    lse : tensor, shape (..., heads, Tq)
        Only with `return_lse`; at least float32, −∞ for a row that may see nothing.

    Raises
    ------
    AttnError
        Gradients on a CPU or Apple's GPU, which torch does not have; compiled, heads below 16 wide.
    ShapeError, MaskError
        As :func:`attnlib.attention`.

    Notes
    -----
    A causal mask becomes a rule about two indices (``mask_mod``), so that hidden tiles are skipped and no
    mask is read. A given mask becomes a rule that looks it up; what it adds becomes a ``score_mod``. The
    list of visible tiles is made once per causal shape and on every call for a given mask: it costs one
    look at all Tq · Tk places.
    Source: Dong et al. 2024, "Flex Attention".
    """
    options = {
        "is_causal": is_causal,
        "causal_align": causal_align,
        "scale": scale,
        "enable_gqa": enable_gqa,
    }
    scale, offset = torch_path._check(query, key, value, attn_mask, **options)
    refuse_transforms("flex_attention", query, key, value, attn_mask)
    compiled = query.device.type != "cpu" if compiled is None else compiled
    _require_flex(query, key, value, compiled)
    if attn_mask is not None:
        if enable_gqa:  # a mask may treat the heads of a group differently
            times = query.shape[-3] // key.shape[-3]
            key, value = (
                heads.repeat_heads(key, times),
                heads.repeat_heads(value, times),
            )
            enable_gqa = False
        query, key, value = torch_path._forget_unseen(
            query, key, value, attn_mask
        )
    q, k, v, lead = kernels._four_axes(query, key, value, enable_gqa)
    n_blind = 0
    if offset is not None:  # rows that see nothing, and keys nobody sees
        n_blind, n_k = max(0, -offset), torch_path._n_seen(offset, q, k)
        q, k, v = q[..., n_blind:, :], k[..., :n_k, :], v[..., :n_k, :]
    if 0 in (q.numel(), k.numel()):
        return torch_path.sdpa(
            query,
            key,
            value,
            attn_mask,
            **options | {"scale": scale, "enable_gqa": enable_gqa},
            return_lse=return_lse,
        )
    q, scale = above_zero(q, scale)
    how = {"scale": scale, "enable_gqa": enable_gqa}
    if offset is not None:
        how["block_mask"] = _causal_tiles(
            q.shape[-2], n_k, max(0, offset), q.device
        )
    elif attn_mask is not None:
        how |= _rules(_four_axis_mask(attn_mask, lead), q, k)
    with full_precision(q):
        output, lse = _flex(compiled)(q, k, v, **how)
    pad = torch.nn.functional.pad
    if n_blind:  # padding copies
        output = pad(output, (0, 0, n_blind, 0))
        lse = pad(lse, (n_blind, 0), value=-torch.inf)
    output = output.reshape(*lead, *output.shape[-2:])
    if not return_lse:
        return output
    return output, lse.reshape(*lead, lse.shape[-1])


# --- one kernel of SDPA ----------------------------------------------------------------------------------


def only(name):
    """A ``with`` block in which torch's attention may use one of :data:`KERNELS` and no other."""
    return sdpa_kernel(getattr(SDPBackend, KERNELS[name][0]))


def _try(name, query, key, value, attn_mask=None, **options):
    """``(output, None)``, or ``(None, reason)`` where the kernel refuses."""
    torch_path._require_torch()
    if name not in KERNELS:
        raise AttnError(
            f"there is no kernel called {name!r}, wanted one of {', '.join(KERNELS)}"
        )
    wanted = {
        "is_causal": False,
        "causal_align": None,
        "scale": None,
        "enable_gqa": False,
    } | options
    torch_path._check(query, key, value, attn_mask, **wanted)
    backend, places = KERNELS[name]
    where = query.device.type
    if places is not None and where not in places:
        return (
            None,
            f"torch has it for {' and '.join(places)} only, and these tensors are on {where}",
        )
    *arrays, lead = kernels._four_axes(query, key, value, wanted["enable_gqa"])
    if attn_mask is not None:
        attn_mask = _four_axis_mask(attn_mask, lead)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with only(name):
                output = torch_path.sdpa(*arrays, attn_mask, **options)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as problem:
            reason = _reason(backend, problem, heard)
            if reason is None:
                raise
            return None, reason
    return output.reshape(*lead, *output.shape[-2:]), None


def _reason(backend, problem, heard):
    """What torch said about this kernel, in one line; None if `problem` is not a refusal."""
    refusals = r"No available kernel|No viable backend|cudnn|No execution plan"
    if not re.search(refusals, str(problem), re.IGNORECASE):
        return None
    said = [_clean(str(warning.message)) for warning in heard]
    kernel = backend.split("_")[0].lower().replace("efficient", "memory eff")
    mine, reasons = False, []
    for line in said:  # a heading for each kernel, then its reasons
        if re.search("not used because", line):
            mine = line.lower().startswith(kernel)
        elif mine and "disabled" not in line and line not in reasons:
            reasons.append(line)
    return " ".join(reasons) or _clean(str(problem))


def _clean(text):
    """A message of torch's without the place in its source, on one line."""
    text = re.sub(r"\(Triggered internally at [^)]*\)", "", text)
    return " ".join(text.split())


def _four_axis_mask(attn_mask, lead):
    """The mask with the four axes (batch, heads, Tq, Tk) that fit :func:`kernels._four_axes`."""
    mask = attn_mask if attn_mask.ndim > 1 else attn_mask[None]
    own, tail = mask.shape[:-2], mask.shape[-2:]
    if len(own) > 1 and len(lead) > 2:  # all batch axes become one
        mask = mask.expand(*lead, *tail)
        return mask.reshape(math.prod(lead[:-1]), lead[-1], *tail)
    return mask[(None,) * (2 - len(own))]


# --- FlexAttention ---------------------------------------------------------------------------------------


def _require_flex(query, key, value, compiled):
    if query.device.type in ("cpu", "mps") and any(
        x.requires_grad for x in (query, key, value)
    ):
        raise AttnError(
            f"torch's FlexAttention has no gradients on {query.device.type}: detach() the inputs, or use "
            f"attnlib.torch_path.sdpa"
        )
    narrowest = min(query.shape[-1], value.shape[-1])
    if compiled and narrowest < 16:
        raise AttnError(
            f"a head is {narrowest} wide, compiled FlexAttention wants at least 16: pad it with zeros, "
            f"or compiled=False"
        )


def _rules(mask, query, key):
    """A given mask as FlexAttention reads one: what is visible, and what is added."""
    dtype = statistics_dtype(namespace(mask=mask), query.dtype)
    allowed, bias = masks.read_mask(mask, mask.shape, dtype)
    n_batch, n_heads, *_ = mask.shape
    # An axis of 1 serves every index: times 0.
    b, h, i = (int(n > 1) for n in mask.shape[:3])

    def visible(batch, head, row, column):
        return allowed[batch * b, head * h, row * i, column]

    def added(score, batch, head, row, column):
        return score + bias[batch * b, head * h, row * i, column]

    tiles = torch.nn.attention.flex_attention.create_block_mask(
        visible,
        n_batch if n_batch > 1 else None,
        n_heads if n_heads > 1 else None,
        query.shape[-2],
        key.shape[-2],
        device=query.device,
    )
    return {"block_mask": tiles} | (
        {} if bias is None else {"score_mod": added}
    )


@lru_cache(maxsize=8)
def _causal_tiles(n_q, n_k, offset, device):
    def visible(batch, head, row, column):
        return column <= row + offset

    return torch.nn.attention.flex_attention.create_block_mask(
        visible, None, None, n_q, n_k, device=device
    )


@cache
def _flex(compiled):
    """FlexAttention as ``(output, lse)``; compiled or not."""
    module = torch.nn.attention.flex_attention
    attend = module.flex_attention
    if compiled:
        # fullgraph: an error instead of a silent way back to the slow path.
        attend = torch.compile(attend, fullgraph=True)
    both = module.AuxRequest(lse=True)

    def call(query, key, value, **how):
        with warnings.catch_warnings():
            # That it is slow without the compiler, our docstring says.
            warnings.filterwarnings("ignore", "flex_attention called without")
            output, more = attend(query, key, value, return_aux=both, **how)
        return output, more.lse

    return call


__all__ = ["flex_attention", "sdpa_backend", "which_ran", "why_not"]

"""FlashAttention on the GPU: Triton kernels behind :func:`flash_attention`, as an operator that torch knows.

The kernels are in ``attnlib/_triton.py`` and follow chapter 10's loop. Triton is an optional extra. With
``TRITON_INTERPRET=1`` set before Python starts, the same kernels run on a CPU: slowly, for stepping through
and for tests.
"""

import math
from functools import cache

from . import core, masks
from ._arrays import namespace, require_same_device
from ._torch import (
    above_zero,
    refuse_second_derivative,
    refuse_transforms,
)
from .errors import AttnError, MaskError, ShapeError

try:
    import torch
except ImportError:  # said when it is needed
    torch = None

LARGEST_WIDTH = 128
LOG2_E = math.log2(math.e)
# What is tried when a kernel meets new sizes: queries and keys in a tile, warps, stages of the pipeline.
TILES = {
    "forward": [
        (128, 128, 8, 3),
        (128, 64, 8, 3),
        (64, 64, 4, 3),
        (64, 32, 4, 2),
    ],
    "backward_query": [(128, 64, 8, 3), (64, 64, 4, 3), (64, 32, 4, 2)],
    "backward_key": [(64, 128, 8, 3), (64, 64, 8, 2), (32, 128, 8, 2)],
}
# For float32, which uses no tensor cores, and for GPUs with little shared memory.
SMALL_TILES = [(32, 32, 4, 1), (16, 32, 4, 1)]


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
    return_lse=False,
):
    """What :func:`attnlib.attention` returns, by the book's own Triton kernel.

    Parameters
    ----------
    query, key, value : torch tensors, shapes as in :func:`attnlib.attention`
        float32, float16 or bfloat16, on one GPU; heads at most 128 wide. Any strides.
    attn_mask : None
        A mask other than causal is refused.
    is_causal, causal_align, scale, enable_gqa
        As in :func:`attnlib.attention`.
    return_lse : bool
        Also return the log-sum-exp of each row, float32.

    Returns
    -------
    output : tensor, shape (..., heads, Tq, d_v)
        The input's type.
    lse : tensor, shape (..., heads, Tq)
        Only with `return_lse`.

    Raises
    ------
    AttnError
        Without torch or Triton, or where there is neither a GPU nor the interpreter.
    ShapeError
        As :func:`attnlib.attention`; float64, or a head wider than 128.
    MaskError
        As :func:`attnlib.attention`; any `attn_mask`.

    Notes
    -----
    Statistics and sums in float32. Differentiable once, by two passes without atomics: the same gradients
    on every run. Usable under ``torch.compile``. New lengths take seconds the first time, while tile sizes
    are tried out. Products run on tensor cores from compute capability 8.0 on (not on a T4), except in
    float32: there all digits are kept.
    Source: Dao 2023, algorithms 1 and 2.
    """
    if torch is None:
        raise AttnError("the GPU kernels need torch: pip install torch")
    if attn_mask is not None:
        raise MaskError(
            "the Triton kernel takes no attn_mask, only is_causal: use attnlib.torch_path.sdpa or "
            "attnlib.flash_attention for other masks"
        )
    # torch.compile cannot follow these checks; there the operator makes them.
    if not torch.compiler.is_compiling():
        _check(query, key, value, is_causal, causal_align, enable_gqa)
    offset = 0
    if is_causal:
        offset = masks.check_align(
            causal_align, query.shape[-2], key.shape[-2], "causal_align"
        )
    if scale is None:
        scale = core.default_scale(query.shape[-1])
    largest = torch.finfo(torch.float32).max / 2
    query, scale = above_zero(query, core.finite_scale(scale, largest))
    q, k, v, lead = _four_axes(query, key, value, enable_gqa)
    output, lse = _OPERATOR(q, k, v, scale, is_causal, offset)
    output = output.reshape(*lead, *output.shape[-2:])
    return (output, lse.reshape(*lead, lse.shape[-1])) if return_lse else output


def interpreting():
    """Whether the kernels run in Triton's interpreter, on the CPU.

    Triton decides when it is imported: set ``TRITON_INTERPRET=1`` before Python starts.
    """
    made = _device_code().forward
    return not isinstance(made, _need_triton().runtime.JITFunction)


def _check(query, key, value, is_causal, causal_align, enable_gqa):
    """Refuse what does not fit together, and what the kernels cannot do."""
    arrays = {"query": query, "key": key, "value": value}
    namespace(**arrays)
    refuse_transforms("the Triton kernel", *arrays.values())
    if not isinstance(query, torch.Tensor):
        raise ShapeError(
            f"query is a {type(query).__name__}, wanted a torch tensor"
        )
    # Shapes and types are all that is looked at, so nothing is copied.
    q, k, v = (torch.empty_like(a, device="meta") for a in arrays.values())
    _, k, *_ = core.check_inputs(q, k, v, 1.0, enable_gqa)
    core.check_mask(q, k, None, is_causal, causal_align)
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"query has width {query.shape[-1]}, key has width {key.shape[-1]}: wanted equal widths"
        )
    for name, array in arrays.items():
        require_same_device("query", query, name, array)
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ShapeError(
            f"query has type {query.dtype}, wanted float32, float16 or bfloat16: the kernel has no other"
        )
    widest = max(query.shape[-1], value.shape[-1])
    if widest > LARGEST_WIDTH:
        raise ShapeError(
            f"a head is {widest} wide, wanted at most {LARGEST_WIDTH}"
        )


# --- the operator ----------------------------------------------------------------------------------------


def _register():
    """``attnlib::flash_attention`` as torch knows it: shapes without data, and a derivative."""

    @torch.library.custom_op("attnlib::flash_attention", mutates_args=())
    def forward(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        is_causal: bool,
        offset: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _need_device(query)
        return _run_forward(query, key, value, scale, is_causal, offset)

    @forward.register_fake
    def _(query, key, value, scale, is_causal, offset):
        _check(query, key, value, is_causal, "top_left", True)
        return _empty_results(query, value)

    @torch.library.custom_op(
        "attnlib::flash_attention_backward", mutates_args=()
    )
    def backward(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        output: torch.Tensor,
        lse: torch.Tensor,
        grad_output: torch.Tensor,
        grad_lse: torch.Tensor,
        scale: float,
        is_causal: bool,
        offset: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        saved = (query, key, value, output, lse)
        how = (scale, is_causal, offset)
        return _run_backward(saved, grad_output, grad_lse, how)

    @backward.register_fake
    def _(query, key, value, *rest):
        return tuple(a.new_empty(a.shape) for a in (query, key, value))

    def keep(ctx, inputs, output):
        query, key, value, *ctx.how = inputs
        ctx.save_for_backward(query, key, value, *output)

    def differentiate(ctx, grad_output, grad_lse):
        refuse_second_derivative("the Triton kernel")
        gradients = backward(
            *ctx.saved_tensors, grad_output, grad_lse, *ctx.how
        )
        return *gradients, None, None, None

    forward.register_autograd(differentiate, setup_context=keep)
    return forward


_OPERATOR = None if torch is None else _register()


def _empty_results(query, value):
    rows = query.shape[:-1]
    output = query.new_empty((*rows, value.shape[-1]))
    return output, query.new_empty(rows, dtype=torch.float32)


def _run_forward(query, key, value, scale, is_causal, offset):
    (batch, n_heads, n_q, _), n_kv = query.shape, key.shape[1]
    output, lse = _empty_results(query, value)
    if not lse.numel():
        return output, lse
    query, key, value, result = map(_for_kernel, (query, key, value, output))
    _launch(
        "forward",
        (n_q, "BLOCK_Q", batch * n_heads),
        *(query, key, value, result, lse),
        *(a.stride() for a in (query, key, value, result)),
        *(scale * LOG2_E, offset),
        *(n_q, _n_seen(query, key, is_causal, offset)),
        *(n_heads, n_heads // n_kv),
        CAUSAL=is_causal,
        WIDTH=query.shape[-1],
        WIDTH_V=value.shape[-1],
    )
    return output if result is output else output.copy_(result), lse


def _run_backward(saved, grad_output, grad_lse, how):
    (query, key, value, output, lse), (scale, is_causal, offset) = saved, how
    (batch, n_heads, n_q, _), (_, n_kv, n_k, _) = query.shape, key.shape
    grads = tuple(a.new_empty(a.shape) for a in (query, key, value))
    if not lse.numel() or not n_k:
        return tuple(a.zero_() for a in grads)
    lse, grad_lse = lse.contiguous(), grad_lse.contiguous()
    d = lse.new_empty(lse.shape)
    query, key, value, output, grad_output, *results = map(
        _for_kernel, (query, key, value, output, grad_output, *grads)
    )
    _launch(
        "delta",
        (n_q, "BLOCK_Q", batch * n_heads),
        *(output, grad_output, grad_lse, d),
        *(output.stride(), grad_output.stride()),
        *(n_q, n_heads),
        WIDTH_V=value.shape[-1],
    )
    inputs = (query, key, value, grad_output)
    strides = [a.stride() for a in inputs]
    n_seen = _n_seen(query, key, is_causal, offset)
    scale = scale * LOG2_E
    _launch(
        "backward_query",
        (n_q, "BLOCK_Q", batch * n_heads),
        *(*inputs, lse, d, results[0]),
        *(*strides, results[0].stride()),
        *(scale, offset, n_q, n_seen, n_heads, n_heads // n_kv),
        CAUSAL=is_causal,
        WIDTH=query.shape[-1],
        WIDTH_V=value.shape[-1],
    )
    _launch(
        "backward_key",
        (n_k, "BLOCK_K", batch * n_kv),
        *(*inputs, lse, d, *results[1:]),
        *(*strides, results[1].stride(), results[2].stride()),
        *(scale, offset, n_q, n_k, n_seen, n_heads, n_heads // n_kv),
        CAUSAL=is_causal,
        WIDTH=query.shape[-1],
        WIDTH_V=value.shape[-1],
    )
    for grad, result in zip(grads, results, strict=True):
        if result is not grad:
            grad.copy_(result)
    return grads


def _launch(name, programs, *arguments, **constants):
    """Run a kernel: one program for each tile, of every head."""
    kernel, fixed = _launcher(name, arguments[0].dtype)
    n, block, heads = programs

    def grid(sizes):
        return (-(-n // sizes[block]) * heads,)

    kernel[grid](*arguments, **constants, **fixed)


@cache
def _launcher(name, dtype):
    """A kernel and its tile sizes, if they are fixed; else it finds the fastest of a few, once per sizes."""
    kernel = getattr(_device_code(), name)
    if name == "delta":
        return kernel, {"BLOCK_Q": 64}
    if interpreting():
        return kernel, {"BLOCK_Q": 32, "BLOCK_K": 32}
    triton = _need_triton()
    large = [] if dtype == torch.float32 else TILES[name]
    configs = [
        triton.Config(
            {"BLOCK_Q": q, "BLOCK_K": k}, num_warps=warps, num_stages=stages
        )
        for q, k, warps, stages in [*large, *SMALL_TILES]
    ]
    key = ["n_q", "n_k", "CAUSAL", "WIDTH", "WIDTH_V"]
    return triton.autotune(configs, key)(kernel), {}


def _for_kernel(array):
    """The array as the kernel can read it: itself, nearly always.

    Within a tile offsets have 32 bits; and the interpreter has no bfloat16 arithmetic, so that there
    bfloat16 is float32 and rounded at the end.
    """
    if array.dtype == torch.bfloat16 and interpreting():
        array = array.float()
    if 128 * (array.stride(-2) + array.stride(-1)) >= 2**31:
        array = array.contiguous()
    return array


def _n_seen(query, key, is_causal, offset):
    """How many keys some query sees; those beyond are never loaded, whatever they hold."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    return min(n_k, max(0, n_q + offset)) if is_causal else n_k


def _four_axes(query, key, value, enable_gqa):
    """Views of shape (batch, heads, tokens, width), and the leading axes of the result."""
    arrays = [a if a.ndim > 2 else a[None] for a in (query, key, value)]
    rank = max(a.ndim for a in arrays)
    arrays = [a[(None,) * (rank - a.ndim)] for a in arrays]
    batch = torch.broadcast_shapes(*(a.shape[:-3] for a in arrays))
    if enable_gqa:
        heads = [a.shape[-3] for a in arrays]
    else:
        heads = [
            torch.broadcast_shapes(*(a.shape[-3:-2] for a in arrays))[0]
        ] * 3
    lead = (
        (*batch, heads[0])
        if max(a.ndim for a in (query, key, value)) > 2
        else ()
    )
    arrays = [
        a.expand(*batch, h, *a.shape[-2:]).reshape(
            -1 if a.numel() else math.prod(batch), h, *a.shape[-2:]
        )
        for a, h in zip(arrays, heads, strict=True)
    ]
    return *arrays, lead


# --- what is there ---------------------------------------------------------------------------------------


@cache
def _need_triton():
    try:
        import triton
    except ImportError:
        raise AttnError(
            "the GPU kernels need Triton: pip install triton (Linux); without it, "
            "attnlib.torch_path.fast_attention does the same on a CPU"
        ) from None
    return triton


def _need_device(tensor):
    if not interpreting() and tensor.device.type != "cuda":
        raise AttnError(
            f"the inputs are on {tensor.device}, and the compiled kernels run on a GPU: "
            f"move them there with .to('cuda'); or start Python with TRITON_INTERPRET=1 to run the kernels "
            f"on a CPU, slowly; or use attnlib.torch_path.fast_attention"
        )


def _device_code():
    _need_triton()
    from . import _triton

    return _triton


__all__ = ["flash_attention", "interpreting"]

"""The Triton kernels in Triton's interpreter, on the CPU, against plain attention in float64."""

import importlib.util
import itertools
import os

import pytest
import torch
from oracle import close, plain_formula, to_numpy, worst
from pairwise import pairwise
from test_package import BLOCKER, python

import attnlib
from attnlib import AttnError, MaskError, ShapeError, kernels
from attnlib.kernels import flash_attention

if importlib.util.find_spec("triton") is None and os.environ.get("CI") != "true":
    pytest.skip("no Triton: pip install triton (Linux) to test the kernels", allow_module_level=True)

import triton
import triton.language as tl

from attnlib import _triton

NAN = float("nan")
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LENGTHS = [(100, 100), (37, 100), (100, 37), (1, 65), (17, 17)]
CASES = pairwise(
    dtype=TYPES,
    causal=[None, "top_left", "bottom_right"],
    lengths=LENGTHS,
    width=[16, 40, 64, 128],
    width_v=["same", 24, 80],
    heads=[(1, 1), (4, 2), (3, 1)],
    layout=["packed", "strided", "tokens first", "expanded"],
)


def name(case):
    return "-".join(str(x).replace(" ", "") for x in case.values())


# --- red zones --------------------------------------------------------------------------------------------


class Zone:
    """A tensor whose memory lies among NaNs, before, after and, by its layout, in between."""

    def __init__(self, shape, dtype, layout="packed"):
        batch, heads, n, width = shape
        around = 300
        if layout == "tokens first":  # (tokens, batch, heads, width), a gap after each row
            by = (heads * (width + 8), width + 8, batch * heads * (width + 8), 1)
        elif layout == "strided":  # every third number, every second row
            by = (heads * n * 6 * width, n * 6 * width, 6 * width, 3)
        elif layout == "expanded":  # one text, seen by the whole batch; width before tokens
            by = (0, (n + 5) * width, 1, n + 5)
        else:
            by = (heads * n * width, n * width, width, 1)
        size = sum(max(s - 1, 0) * b for s, b in zip(shape, by, strict=True)) + 1
        self.memory = torch.full((size + 2 * around,), NAN, dtype=dtype)
        self.inside = self.memory.as_strided(shape, by, around)

    def fill(self, numbers):
        for one in range(len(self.inside)):
            self.inside[one] = numbers[one]
        return self.inside

    def still_red(self):
        """Whether every number outside the tensor is still NaN."""
        mine = torch.zeros(len(self.memory), dtype=torch.bool)
        mine.as_strided(self.inside.shape, self.inside.stride(), self.inside.storage_offset()).fill_(True)
        return bool(self.memory[~mine].isnan().all())


@pytest.fixture
def zones(monkeypatch):
    """Every buffer that the kernels' code makes lies in a red zone; after the test all must be intact."""
    made, new_empty = [], torch.Tensor.new_empty

    def zoned(self, *shape, **how):
        shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if "device" in how or len(shape) < 3:
            return new_empty(self, shape, **how)
        made.append(Zone((1,) * (4 - len(shape)) + shape, how.get("dtype", self.dtype)))
        return made[-1].inside.reshape(shape)

    monkeypatch.setattr(torch.Tensor, "new_empty", zoned)
    yield made
    for zone in made:
        assert zone.still_red(), "a kernel wrote outside of its tensor"


def inputs(
    seed, n_q, n_k, width, width_v=None, *, batch=1, heads=(1, 1), dtype=torch.float32, layout="packed"
):
    """Queries, keys, values and a gradient of the output, rounded to `dtype`, each in its red zone."""
    generator = torch.Generator().manual_seed(seed)
    width_v = width if width_v in (None, "same") else width_v
    shapes = [
        (batch, heads[0], n_q, width),
        (batch, heads[1], n_k, width),
        (batch, heads[1], n_k, width_v),
        (batch, heads[0], n_q, width_v),
    ]
    made = []
    for shape in shapes:
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        if layout == "expanded":
            numbers = numbers[:1].expand(shape)
        made.append(Zone(shape, dtype, layout).fill(numbers))
    return made


def mask_of(n_q, n_k, causal):
    if causal is None:
        return None
    return torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q if causal == "bottom_right" else 0)


def how_of(causal):
    return {"is_causal": causal is not None, "causal_align": causal}


def run(function, arrays, grad, grad_lse=None):
    """Output, lse and the three gradients."""
    leaves = [a.detach().requires_grad_() for a in arrays]
    output, lse = function(*leaves)
    results, grads = [output], [grad]
    if grad_lse is not None:
        results, grads = [*results, lse], [*grads, grad_lse]
    return output.detach(), lse.detach(), *torch.autograd.grad(results, leaves, grads)


def ours(**how):
    return lambda *arrays: flash_attention(*arrays, return_lse=True, **how)


def exact(arrays, grad, grad_lse=None, **how):
    """The same by attnlib.attention, in float64."""

    def function(*leaves):
        steps = attnlib.attention_steps(*leaves, **how)
        return steps.output, steps.lse

    grad_lse = None if grad_lse is None else grad_lse.double()
    return run(function, [a.double() for a in arrays], grad.double(), grad_lse)


def plain(arrays, grad, mask, group):
    """The plain formula in the inputs' own precision; the rows that see nothing, on top, are left out."""
    query, key, value = arrays
    empty = 0 if mask is None else int((~mask.any(1)).sum())

    def function(query, key, value):
        key, value = (a.repeat_interleave(group, 1) for a in (key, value))
        output = plain_formula(query[:, :, empty:], key, value, None if mask is None else mask[empty:])
        return torch.nn.functional.pad(output, (0, 0, empty, 0)), query.new_zeros(())

    output, _, *grads = run(function, arrays, grad)
    return output, *grads


def check(case, got, want, yardstick):
    """The design's 2 x and 3 x rules, and a quarter of the type's step."""
    step = torch.finfo(got[0].dtype).eps
    close(got[1], want[1], rtol=2e-6, atol=2e-6)
    got, want = (got[0], *got[2:]), (want[0], *want[2:])
    for what, factor, a, b, c in zip("oqkv", (2, 3, 3, 3), got, want, yardstick, strict=True):
        bound = factor * worst(c, b) + step / 4 * max(1.0, float(b.abs().max()))
        assert worst(a, b) <= bound, f"{what} of {case}: {worst(a, b):.3g}, allowed {bound:.3g}"


# --- the matrix -------------------------------------------------------------------------------------------


def test_pairwise_leaves_no_pair_out():
    options = {"a": [0, 1, 2], "b": "xy", "c": [None, (1, 2)], "d": range(5)}
    cases = pairwise(**options)
    for one, two in itertools.combinations(options, 2):
        met = {(case[one], case[two]) for case in cases}
        assert met == set(itertools.product(options[one], options[two]))
    assert len(cases) <= 18


@pytest.mark.parametrize("case", CASES, ids=name)
def test_N25_the_matrix(case, zones):
    n_q, n_k = case["lengths"]
    causal, heads = case["causal"], case["heads"]
    *arrays, grad = inputs(
        3,
        n_q,
        n_k,
        case["width"],
        case["width_v"],
        batch=2 if case["layout"] == "expanded" or heads == (1, 1) else 1,
        heads=heads,
        dtype=TYPES[case["dtype"]],
        layout=case["layout"],
    )
    how = how_of(causal) | {"enable_gqa": heads[0] != heads[1]}
    got = run(ours(**how), arrays, grad)
    want = exact(arrays, grad, **how)
    assert [a.shape for a in got] == [a.shape for a in want]
    assert [a.dtype for a in got] == [TYPES[case["dtype"]], torch.float32] + [TYPES[case["dtype"]]] * 3
    check(case, got, want, plain(arrays, grad, mask_of(n_q, n_k, causal), heads[0] // heads[1]))
    assert len(zones) >= 6  # output, lse, d and three gradients
    assert not any(zone.inside.isnan().any() for zone in zones), "a kernel left a number unwritten"


TILES = [(16, 16), (16, 64), (64, 16), (128, 64), (64, 128)]


def use_tiles(monkeypatch, block_q, block_k):
    def launcher(kernel, dtype):
        sizes = {"BLOCK_Q": block_q, "BLOCK_K": block_k}
        return real(kernel, dtype)[0], {"BLOCK_Q": block_q} if kernel == "delta" else sizes

    real = kernels._launcher
    monkeypatch.setattr(kernels, "_launcher", launcher)


def test_the_diagonal_in_every_place(monkeypatch):
    use_tiles(monkeypatch, 16, 16)
    how = how_of("bottom_right")
    for n_k in (4, 5, 18, 19, 20, 21, 22, 34, 35, 36, 37):  # where tiles begin or cease to be whole
        *arrays, grad = inputs(n_k, 20, n_k, 16)
        for got, want in zip(run(ours(**how), arrays, grad), exact(arrays, grad, **how), strict=True):
            close(got, want, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right"])
def test_the_size_of_tiles_changes_nothing(tiles, causal, monkeypatch):
    use_tiles(monkeypatch, *tiles)
    for n_q, n_k in ((70, 45), (45, 70), (33, 33)):
        *arrays, grad = inputs(4, n_q, n_k, 16, heads=(2, 1))
        how = how_of(causal) | {"enable_gqa": True}
        for got, want in zip(run(ours(**how), arrays, grad), exact(arrays, grad, **how), strict=True):
            close(got, want, rtol=2e-6, atol=4e-6)


# --- what hides, and what must not matter -----------------------------------------------------------------


@pytest.mark.parametrize(("causal", "n_q", "n_k"), [("top_left", 37, 100), ("bottom_right", 100, 37)])
def test_what_nothing_sees_may_be_nan(causal, n_q, n_k, zones):
    *arrays, grad = inputs(5, n_q, n_k, 16, heads=(2, 1))
    how = how_of(causal) | {"enable_gqa": True}
    grad_lse = torch.linspace(-1, 1, 2 * n_q).reshape(1, 2, n_q)
    want = run(ours(**how), arrays, grad, grad_lse)
    if causal == "top_left":
        arrays[1][:, :, n_q:] = NAN
        arrays[2][:, :, n_q:] = float("inf")
    else:
        arrays[0][:, :, : n_q - n_k] = NAN
        grad[:, :, : n_q - n_k] = NAN
        grad_lse[:, :, : n_q - n_k] = NAN
    for got, wanted in zip(run(ours(**how), arrays, grad, grad_lse), want, strict=True):
        assert torch.equal(got, wanted)
    if causal == "top_left":
        assert not want[3][:, :, n_q:].any() and not want[4][:, :, n_q:].any()
    else:
        assert not want[0][:, :, : n_q - n_k].any() and not want[2][:, :, : n_q - n_k].any()
        assert (want[1][:, :, : n_q - n_k] == -float("inf")).all()


def test_a_nan_that_is_seen_shows():
    *arrays, _ = inputs(6, 40, 40, 16)
    arrays[1][0, 0, 20, 3] = NAN
    output, lse = flash_attention(*arrays, is_causal=True, return_lse=True)
    assert not output[0, 0, :20].isnan().any() and output[0, 0, 20:].isnan().all()
    assert not lse[0, 0, :20].isnan().any() and lse[0, 0, 20:].isnan().all()


def test_no_key_from_the_future():
    *arrays, _ = inputs(7, 70, 70, 16)
    want = flash_attention(*arrays, is_causal=True)
    arrays[1][:, :, 50:] += 9
    arrays[2][:, :, 50:] -= 9
    got = flash_attention(*arrays, is_causal=True)
    assert torch.equal(got[:, :, :50], want[:, :, :50])
    assert (got[:, :, 50:] != want[:, :, 50:]).any(-1).all()


def test_a_hidden_score_beyond_all_powers_moves_nothing():
    """Its power overflows when the backward pass computes it again, and 0 times infinity is NaN."""
    *arrays, grad = inputs(7, 40, 40, 16)
    arrays[1][:, :, -1] *= 1e4  # seen by the last query only, whose gradient is 0
    grad[:, :, -1] = 0
    got, want = (f(arrays, grad, is_causal=True) for f in (lambda *a, **how: run(ours(**how), *a), exact))
    for a, b in zip(got, want, strict=True):
        close(a, b, rtol=2e-6, atol=4e-6)


def test_lse_has_a_gradient_too():
    *arrays, grad = inputs(8, 37, 65, 16, 24, heads=(4, 2))
    grad_lse = torch.randn(1, 4, 37, generator=torch.Generator().manual_seed(1))
    how = how_of("bottom_right") | {"enable_gqa": True}
    pairs = zip(
        run(ours(**how), arrays, grad, grad_lse.mT.contiguous().mT),
        exact(arrays, grad, grad_lse, **how),
        strict=True,
    )
    for got, want in pairs:
        close(got, want, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("scale", [-0.7, 0.0, 1e-3, 3.0])
def test_any_scale(scale):
    *arrays, grad = inputs(9, 40, 33, 16)
    how = how_of("bottom_right") | {"scale": scale}
    for got, want in zip(run(ours(**how), arrays, grad), exact(arrays, grad, **how), strict=True):
        close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_large_scores_stay_finite(dtype):
    *arrays, grad = inputs(10, 33, 40, 64, dtype=dtype)
    arrays[0].mul_(100)  # scores of several thousand: over float16's range before they are scaled
    arrays[1].mul_(100)
    got, want = run(ours(), arrays, grad), exact(arrays, grad)
    close(got[0], want[0], rtol=2e-3, atol=2e-3)
    close(got[1], want[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_the_same_bits_on_every_run(dtype):
    *arrays, grad = inputs(11, 70, 45, 16, heads=(4, 2), dtype=dtype)
    how = how_of("bottom_right") | {"enable_gqa": True}
    first, second = run(ours(**how), arrays, grad), run(ours(**how), arrays, grad)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((5, 3), (7, 3), (7, 2)),
        ((2, 5, 3), (2, 7, 3), (2, 7, 2)),
        ((2, 1, 3, 5, 3), (1, 2, 1, 7, 3), (3, 7, 2)),
        ((1, 5, 3), (4, 7, 3), (4, 7, 2)),
        ((2, 2, 5, 3), (7, 3), (7, 1)),
        ((2, 2, 5, 3), (2, 2, 0, 3), (2, 2, 0, 2)),
        ((2, 2, 0, 3), (2, 2, 7, 3), (2, 2, 7, 2)),
        ((0, 2, 5, 3), (0, 2, 7, 3), (0, 2, 7, 2)),
        ((0, 3, 2, 5, 3), (1, 3, 2, 7, 3), (7, 2)),
        ((2, 0, 5, 3), (2, 0, 7, 3), (2, 0, 7, 2)),
        ((2, 5, 3), (2, 7, 3), (2, 7, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [None, "bottom_right"])
def test_any_leading_axes_and_nothing_at_all(query, key, value, causal):
    generator = torch.Generator().manual_seed(12)
    arrays = [torch.randn(shape, generator=generator) for shape in (query, key, value)]
    want = attnlib.attention(*arrays, **how_of(causal))
    grad = torch.randn(want.shape, generator=generator)
    got, want = run(ours(**how_of(causal)), arrays, grad), exact(arrays, grad, **how_of(causal))
    for a, b in zip(got, want, strict=True):
        close(a, b, rtol=2e-6, atol=4e-6)


# --- large tensors ----------------------------------------------------------------------------------------


@triton.jit
def places(Base, Out, by, batch, head, start, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    at = _triton.tile_at(_triton.head_at(Base, by, batch, head), by, start, BLOCK, WIDTH)
    place = tl.arange(0, BLOCK)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(Out + place, at.to(tl.int64) - Base.to(tl.int64))


@pytest.mark.parametrize(
    ("by", "batch", "head", "start"),
    [
        ((2**40, 2**30, 4096, 1), 3, 5, 17),
        ((2**20, 128, 2**20, 1), 5000, 1, 2**14),
        ((2**31, 2**31, 2, 2**20), 1, 2, 2**31 - 128),
    ],
    ids=str,
)
def test_N29_offsets_beyond_32_bits(by, batch, head, start):
    """No such tensor fits here: the kernels' own address arithmetic on one that need not exist."""
    out = torch.zeros(128, 16, dtype=torch.int64)
    base = torch.zeros(1, dtype=torch.float16)
    places[(1,)](base, out, by, batch, head, start, 128, 16)
    row, column = torch.arange(start, start + 128)[:, None], torch.arange(16)[None, :]
    assert torch.equal(out, 2 * (batch * by[0] + head * by[1] + row * by[2] + column * by[3]))


def test_N29_strides_too_large_for_a_tile_are_copied():
    def stride(token, width):
        array = torch.empty_strided((1, 1, 200, 16), (0, 0, token, width), device="meta")
        return kernels._for_kernel(array).stride()[2:]

    assert stride(2**24, 1) == stride(1, 2**24) == (16, 1)
    assert stride(2**24 - 2, 1) == (2**24 - 2, 1)


def test_programs_lie_along_the_axis_that_is_long_enough(monkeypatch):
    asked = []

    class Kernel:
        def __getitem__(self, grid):
            asked.append(grid({"BLOCK_Q": 32}))
            return lambda *a, **k: None

    monkeypatch.setattr(kernels, "_launcher", lambda *_: (Kernel(), {}))
    flash_attention(*(torch.empty(2**14, 8, n, 1) for n in (33, 1, 1)))
    assert asked == [(2**18,)]  # a GPU takes 2^31 - 1 along the first axis, 65535 along the others


# --- torch ------------------------------------------------------------------------------------------------


def test_torch_accepts_both_operators():
    generator = torch.Generator().manual_seed(13)
    query, key, value = (
        torch.randn(shape, generator=generator, requires_grad=True)
        for shape in ((2, 4, 18, 8), (2, 2, 21, 8), (2, 2, 21, 5))
    )
    how = (0.3, True, 3)
    torch.library.opcheck(torch.ops.attnlib.flash_attention.default, (query, key, value, *how))
    saved = [a.detach() for a in (query, key, value, *kernels._OPERATOR(query, key, value, *how))]
    grads = [torch.randn(a.shape, generator=generator).mT.contiguous().mT for a in saved[3:]]
    torch.library.opcheck(torch.ops.attnlib.flash_attention_backward.default, (*saved, *grads, *how))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # inductor's own
def test_under_torch_compile(backend):
    *arrays, grad = inputs(14, 20, 33, 16, heads=(2, 1))

    def function(query, key, value):
        output, lse = flash_attention(
            query * 2,
            key,
            value,
            is_causal=True,
            causal_align="bottom_right",
            enable_gqa=True,
            return_lse=True,
        )
        return output + 1, lse

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for got, want in zip(run(compiled, arrays, grad), run(function, arrays, grad), strict=True):
        close(got, want, rtol=1e-6, atol=1e-6)


def test_torch_compile_refuses_as_the_call_does():
    torch.compiler.reset()
    arrays = [torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 7, 8), torch.zeros(1, 2, 7, 129)]
    compiled = torch.compile(flash_attention, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="wanted at most 128"):
        compiled(*arrays)
    with pytest.raises(Exception, match="no attn_mask"):
        compiled(*arrays, torch.ones(5, 7, dtype=torch.bool))


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"query": torch.zeros(1, 2, 5, 8).double()}, ShapeError, "one type for all"),
        (
            {n: torch.zeros(1, 2, 5, 8).double() for n in ("query", "key", "value")},
            ShapeError,
            "float64, wanted",
        ),
        (
            {n: torch.zeros(1, 2, 5, 129) for n in ("query", "key")},
            ShapeError,
            "129 wide, wanted at most 128",
        ),
        ({"value": torch.zeros(1, 2, 5, 160)}, ShapeError, "160 wide, wanted at most 128"),
        (
            {"key": torch.zeros(1, 2, 5, 8, device="meta")},
            ShapeError,
            "query is on cpu, key on meta, wanted one device",
        ),
        ({"query": [[1.0]]}, ShapeError, "query is a list"),
        (
            {n: to_numpy(torch.zeros(2, 2)) for n in ("query", "key", "value")},
            ShapeError,
            "wanted a torch tensor",
        ),
        ({"value": to_numpy(torch.zeros(1, 2, 5, 8))}, ShapeError, "different libraries"),
        ({"key": torch.zeros(1, 3, 5, 8)}, ShapeError, "axes before the last two"),
        ({"key": torch.zeros(1, 2, 4, 8)}, ShapeError, "one value row per key"),
        ({"key": torch.zeros(1, 2, 5, 7)}, ShapeError, "width 7"),
        ({"attn_mask": torch.ones(5, 5, dtype=torch.bool)}, MaskError, "takes no attn_mask"),
        ({"query": torch.zeros(1, 2, 4, 8), "is_causal": True}, MaskError, "causal_align"),
        ({"is_causal": True, "causal_align": "left"}, MaskError, "top_left"),
        ({"scale": NAN}, AttnError, "scale is nan"),
        ({"scale": "big"}, AttnError, "scale is 'big'"),
        ({"enable_gqa": True, "query": torch.zeros(1, 3, 5, 8)}, ShapeError, "cannot share"),
    ],
    ids=lambda x: "" if isinstance(x, dict | type) else x,
)
def test_one_clear_message(change, error, message):
    good = {n: torch.zeros(1, 2, 5, 8) for n in ("query", "key", "value")}
    flash_attention(**good)
    with pytest.raises(error, match=message):
        flash_attention(**(good | change))


CALL = """
import attnlib.kernels as kernels
try:
    import torch
    arrays = [torch.zeros(1, 1, 2, 4)] * 3
except ImportError:
    arrays = [None] * 3
try:
    kernels.flash_attention(*arrays)
except kernels.AttnError as refusal:
    print(refusal)
"""


def test_without_torch_or_triton_or_gpu_one_message_says_what_to_do():
    assert "need torch: pip install torch" in python(BLOCKER + CALL)
    only_triton = BLOCKER.replace("'torch', ", "")
    assert only_triton != BLOCKER
    said = python(only_triton + CALL)
    assert "need Triton: pip install triton (Linux)" in said and len(said.splitlines()) == 1
    if not torch.cuda.is_available():
        said = python(CALL, TRITON_INTERPRET="0")
        assert "on cpu" in said and "TRITON_INTERPRET=1" in said


def test_importing_the_module_needs_no_triton_and_loads_none():
    assert python("import sys, attnlib.kernels; print('triton' in sys.modules)").strip() == "False"


def test_the_interpreter_is_what_runs_here():
    assert kernels.interpreting()

"""What every function that computes attention owes, tried over all of them: no side path skips a guard.

An entry is one way to call one of them. What an entry does not take (a mask, a type) it must refuse in words
of ours; whatever it does take must come out as plain loops in float64 have it.
"""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import close, plain_attention, random_qkv, to_numpy
from test_tiled import MASKS

from attnlib import AttnError, MaskError, attention, attention_steps, backends, kernels, online, torch_path
from attnlib.layer import multi_head_attention
from attnlib.masks import causal_mask
from attnlib.tiled import flash_attention, flash_attention_steps

SINGLE = ("float32", "float16", "bfloat16")


def _steps(*arrays, **how):
    steps = attention_steps(*arrays, **how)
    return steps.output, steps.lse


def _tile_steps(query, key, value, *mask, **how):
    """The last state of the only row of tiles, finished."""
    *_, last = flash_attention_steps(query, key, value, *mask, block_q=64, block_k=3, **how)
    output, lse = online.finish(last.state)
    return output, lse


@dataclass(frozen=True)
class Entry:
    """One way to call attention. `call` returns the output, and lse unless `lse` is False."""

    name: str
    call: Callable
    lse: bool = True
    torch_only: bool = True
    masks: bool = True
    gradients: bool = True
    second: bool = False  # derivatives of derivatives
    dtypes: tuple = ("float64", *SINGLE)
    transforms: tuple = ()  # of torch.func, natively

    def __call__(self, *arrays, **how):
        result = self.call(*arrays, **how)
        return result if self.lse else (result, None)


def _lse(function, **fixed):
    return lambda *arrays, **how: function(*arrays, **how, **fixed, return_lse=True)


def _kernel(name):
    return lambda *arrays, **how: backends.sdpa_backend(name, *arrays, **how)


EVERYTHING = ("grad", "vmap", "jvp", "hessian")
ENTRIES = [
    Entry("attention", attention, lse=False, torch_only=False, second=True, transforms=EVERYTHING),
    Entry("attention_steps", _steps, torch_only=False, second=True, transforms=EVERYTHING),
    Entry("flash_attention", _lse(flash_attention), torch_only=False),
    Entry("flash_attention in tiles", _lse(flash_attention, block_q=2, block_k=3), torch_only=False),
    Entry("flash_attention_steps", _tile_steps, torch_only=False, second=True),
    Entry("fast_attention", _lse(torch_path.fast_attention)),
    Entry("fast_attention in tiles", _lse(torch_path.fast_attention, block_q=2, block_k=3)),
    Entry("sdpa", torch_path.sdpa, lse=False),
    Entry("sdpa with lse", _lse(torch_path.sdpa)),
    Entry("sdpa_backend math", _kernel("math"), lse=False),
    Entry("sdpa_backend flash", _kernel("flash"), lse=False),
    Entry("flex_attention", _lse(backends.flex_attention), gradients=False),
    Entry("kernels.flash_attention", _lse(kernels.flash_attention), masks=False, dtypes=SINGLE),
]
IDS = [entry.name.replace(" ", "-") for entry in ENTRIES]
every = pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
NEAR = {
    "float64": {"rtol": 1e-12, "atol": 1e-12},
    "float32": {"rtol": 1e-5, "atol": 1e-5},
    "float16": {"rtol": 4e-3, "atol": 4e-3},
    "bfloat16": {"rtol": 3e-2, "atol": 3e-2},
}


# --- strides ------------------------------------------------------------------------------------------------


def every_second_column(x):
    """Between the numbers stands NaN, which whoever reads neighbours will find."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def columns_first(x):
    return np.asfortranarray(x)


def heads_last(x):
    return np.ascontiguousarray(np.moveaxis(x, -3, -1)).swapaxes(-1, -1).transpose(0, 3, 1, 2)


def tokens_last(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def inside_nan(x):
    """A window of a larger array of NaN, at an odd place."""
    big = np.full(tuple(n + 3 for n in x.shape), np.nan, x.dtype)
    place = tuple(slice(1, n + 1) for n in x.shape)
    big[place] = x
    return big[place]


LAYOUTS = [every_second_column, columns_first, heads_last, tokens_last, inside_nan]


def to_torch(x, dtype="float64"):
    """A tensor with the very strides of the array."""
    if dtype == "float64":
        return torch.from_numpy(x)
    base = x
    while base.base is not None:
        base = base.base
    flat = torch.from_numpy(base.ravel(order="K")).to(getattr(torch, dtype))
    offset = (x.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // x.itemsize
    return flat.as_strided(x.shape, [s // x.itemsize for s in x.strides], offset)


@every
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_N12_any_strides_give_what_packed_copies_give(entry, layout):
    packed = random_qkv(1, (2, 3), 5, 7, 4, 4)
    for dtype, which in itertools.product(entry.dtypes, [(0, 1, 2), (0,), (1,), (2,)]):
        arrays = [layout(a) if place in which else a for place, a in enumerate(packed)]
        given = [to_torch(a, dtype) for a in arrays]
        rounded = [to_numpy(a) for a in given]
        want = plain_attention(*rounded)
        output, lse = entry(*given)
        close(output, want[0], **NEAR[dtype])
        if lse is not None:
            close(lse, want[2], **NEAR[dtype])
        if not entry.torch_only and dtype == "float64":
            close(entry(*arrays)[0], want[0])


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.torch_only], ids=lambda e: e.name)
def test_negative_strides_of_numpy(entry):
    packed = random_qkv(2, (2, 3), 5, 7, 4, 3)
    turned = [a[..., ::-1, ::-1] for a in packed]
    close(entry(*turned)[0], plain_attention(*turned)[0])


@every
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_overlapping_and_broadcast_memory(entry, dtype):
    if dtype not in entry.dtypes:
        dtype = "float32"
    line = torch.linspace(-1, 1, 40, dtype=getattr(torch, dtype))
    windows = line.as_strided((2, 5, 4), (3, 1, 1))  # row t starts one number after row t - 1
    same = line[:4].expand(2, 7, 4)  # one row, seven times
    column = line[:7, None].expand(2, 7, 4)  # one number, four times: a last stride of 0
    for key, value in ((same, column), (column, same), (column, column)):
        output, lse = entry(windows, key, value)
        want = plain_attention(*(to_numpy(a) for a in (windows, key, value)))
        close(output, want[0], **NEAR[dtype])
        if lse is not None:
            close(lse, want[2], **NEAR[dtype])


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.masks], ids=lambda e: e.name)
@pytest.mark.parametrize("additive", [False, True], ids=["bool", "bias"])
def test_any_strides_of_a_mask(entry, additive):
    arrays = random_qkv(3, (2, 3), 5, 7, 4, 4)
    allowed = np.random.default_rng(4).random((2, 3, 5, 7)) < 0.7
    bias = np.where(allowed, np.random.default_rng(5).standard_normal(allowed.shape), -np.inf)
    mask = bias if additive else allowed
    views = [columns_first(mask), tokens_last(mask), mask[:, :, :, ::-1][:, :, :, ::-1]]
    if additive:
        views += [every_second_column(mask), inside_nan(mask)]
    given = [torch.from_numpy(a) for a in arrays]
    want = plain_attention(*arrays, mask)[0]
    for view in views:
        close(entry(*given, torch.from_numpy(view))[0], want)
    one = torch.from_numpy(mask[:, :, :1, :]).expand(2, 3, 5, 7)  # a query axis of stride 0
    close(entry(*given, one)[0], plain_attention(*arrays, mask[:, :, :1, :])[0])
    same = torch.from_numpy(mask[..., :1].copy()).expand(2, 3, 5, 7)  # a key axis of stride 0
    close(entry(*given, same)[0], plain_attention(*arrays, np.broadcast_to(mask[..., :1], mask.shape))[0])


# --- masks --------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("kind", [kind for kind in MASKS if kind != "none"])
def test_N02_every_form_of_mask_is_right_or_refused(entry, kind):
    n_q, n_k = 5, 7
    query, key, value = random_qkv(11, (2, 3), n_q, n_k, 4, 4)
    mask = MASKS[kind](np.random.default_rng(12), n_q, n_k)
    asked = torch.from_numpy(np.array(mask))
    given = [torch.from_numpy(a).to(getattr(torch, entry.dtypes[0])) for a in (query, key, value)]
    if not entry.masks:
        with pytest.raises(MaskError, match="takes no attn_mask"):
            entry(*given, asked)
        return
    floating = mask.dtype != bool
    hidden = mask <= np.finfo(np.float64).min if floating else ~mask
    want, _, want_lse = plain_attention(
        query, key, value, np.where(hidden, -np.inf, mask) if floating else mask
    )
    seen = np.broadcast_to(~hidden, (2, 3, n_q, n_k)).any(-2)[..., None]
    for dirty in (False, True):
        if dirty:  # what nobody sees may hold anything
            given[1:] = (torch.from_numpy(np.where(seen, a, np.nan)) for a in (key, value))
        output, lse = entry(*given, asked)
        close(output, want)
        if lse is not None:
            close(lse, want_lse)


@every
def test_a_visible_nan_and_scores_that_overflow_show(entry):
    """torch's CPU kernel takes such a row for one that may see nothing, and returns 0."""
    dtype = getattr(torch, entry.dtypes[0])
    large = torch.finfo(dtype).max ** 0.5
    for how in ({}, {"is_causal": True, "causal_align": "bottom_right"}):
        query, key, value = (torch.from_numpy(a).to(dtype) for a in random_qkv(15, (1, 1), 3, 5, 4, 4))
        query[..., 1, 0] = math.nan
        output, lse = entry(query, key, value, **how)
        assert output[..., 1, :].isnan().all() and not output[..., [0, 2], :].isnan().any()
        assert lse is None or (lse[..., 1].isnan().all() and not lse[..., [0, 2]].isnan().any())
        if entry.name.startswith(("flex", "kernels")):
            continue  # FlexAttention gives 0 there, and Triton's interpreter warns of the overflow
        query = torch.full_like(query, 10 * large)
        assert entry(query, -query[..., :1, :].expand_as(key), value, **how)[0].isnan().all()


REFUSED = {
    "which corner does the diagonal start from": {"is_causal": True},
    "wanted 'top_left' or 'bottom_right'": {"is_causal": True, "causal_align": "left"},
    "combine them yourself": {"attn_mask": (3, 5), "is_causal": True, "causal_align": "top_left"},
    "has type torch.int64, wanted boolean": {"attn_mask": torch.ones(3, 5, dtype=torch.int64)},
    "axis -1 .keys. is 4, wanted 5": {"attn_mask": (3, 4)},
    "attn_mask is a list": {"attn_mask": [[True] * 5] * 3},
    "attn_mask has shape .*it has no key axis": {"attn_mask": ()},
    "cannot share 3 key/value heads": {"enable_gqa": True, "key": (3, 5, 4), "value": (3, 5, 4)},
    "query has type .*int64, wanted floating": {"query": torch.ones(2, 3, 4, dtype=torch.int64)},
    "wanted one type": {"value": torch.ones(2, 5, 4, dtype=torch.bfloat16)},
    "key has width 3": {"key": (2, 5, 3)},
    "wanted one value row per key": {"value": (2, 4, 4)},
    "the axes before the last two must agree": {"key": (3, 5, 4), "value": (3, 5, 4)},
    "at least 2 axes": {"query": (4,)},
    "query is a ndarray|different libraries": {"query": np.ones((2, 3, 4))},
    "wanted one device": {"key": torch.ones(2, 5, 4, device="meta")},
}


@every
@pytest.mark.parametrize("words", REFUSED)
def test_what_no_entry_takes_is_refused_by_each_in_the_same_words(entry, words):
    dtype = getattr(torch, entry.dtypes[0])
    given = {"query": (2, 3, 4), "key": (2, 5, 4), "value": (2, 5, 4)} | REFUSED[words]
    for name in set(given) & {"query", "key", "value", "attn_mask"}:
        if isinstance(given[name], tuple):
            given[name] = torch.ones(given[name], dtype=torch.bool if name == "attn_mask" else dtype)
    if given["key"].device.type == "meta":
        given["key"] = given["key"].to(dtype)
    if "attn_mask" in given and not entry.masks:
        words = "takes no attn_mask"
    arrays = [given.pop(name) for name in ("query", "key", "value")]
    with pytest.raises(AttnError, match=words):
        entry(*arrays, **given)


@every
@pytest.mark.parametrize(
    "how", [{}, {"is_causal": True, "causal_align": "bottom_right"}], ids=["all", "causal"]
)
def test_N14_empty_axes(entry, how):
    dtype = entry.dtypes[0]
    for lead, n_q, n_k in (((0,), 3, 2), ((2, 0), 3, 2), ((2,), 0, 3), ((2,), 3, 0), ((1,), 0, 0)):
        arrays = [
            torch.from_numpy(a).to(getattr(torch, dtype)).requires_grad_(entry.gradients)
            for a in random_qkv(14, lead, n_q, n_k, 4, 4)
        ]
        if entry.call is _tile_steps and 0 in (n_q, n_k):
            assert not list(flash_attention_steps(*arrays, **how))
            continue
        output, lse = entry(*arrays, **how)
        mask = causal_mask(n_q, n_k, align="bottom_right") if how else None
        want, _, want_lse = plain_attention(*map(to_numpy, arrays), mask)
        close(output, want, **NEAR[dtype])
        if lse is not None:
            close(lse, want_lse, **NEAR[dtype])
        if entry.gradients:
            for gradient, array in zip(torch.autograd.grad(output.sum(), arrays), arrays, strict=True):
                assert gradient.shape == array.shape and not gradient.isnan().any()


# --- the scale ----------------------------------------------------------------------------------------------

SCALES = [0.0, -0.0, -0.7, 1e-30, -1e-30, 1e-46, -1e-46, 1e-320, np.float32(0.5), np.float64(-2)]


def hows(entry):
    yield {}, None
    for n_q, n_k, align in ((5, 7, "top_left"), (5, 7, "bottom_right"), (7, 5, "bottom_right"), (5, 5, None)):
        yield {"is_causal": True, "causal_align": align}, (n_q, n_k)
    if entry.masks:
        yield {"attn_mask": "bool"}, None
        yield {"attn_mask": "bias"}, None


@every
@pytest.mark.parametrize("scale", SCALES, ids=repr)
def test_F2_any_finite_scale_with_any_mask(entry, scale):
    dtype = entry.dtypes[0]
    for how, lengths in hows(entry):
        n_q, n_k = lengths or (5, 7)
        arrays = random_qkv(6, (2,), n_q, n_k, 4, 4)
        how, mask = dict(how), None
        if "attn_mask" in how:
            mask = np.random.default_rng(7).random((n_q, n_k)) < 0.6
            mask[2] = False
            if how["attn_mask"] == "bias":
                mask = np.where(mask, 0.5, -np.inf)
            how["attn_mask"] = torch.from_numpy(mask).to(
                getattr(torch, dtype) if mask.dtype != bool else None
            )
        elif how:
            mask = causal_mask(n_q, n_k, align=how["causal_align"])
        given = [
            torch.from_numpy(a).to(getattr(torch, dtype)).requires_grad_(entry.gradients) for a in arrays
        ]
        want, _, want_lse = plain_attention(*(to_numpy(a) for a in given), mask, scale=float(scale))
        output, lse = entry(*given, **how, scale=scale)
        close(output, want, **NEAR[dtype])
        if lse is not None:
            close(lse, want_lse, **NEAR[dtype])
        if entry.gradients:
            full = [a.detach().double().requires_grad_() for a in given]
            plain = attention(*full, None if mask is None else torch.from_numpy(mask), scale=float(scale))
            wanted = torch.autograd.grad(plain.square().sum(), full)
            for got, good in zip(torch.autograd.grad(output.square().sum(), given), wanted, strict=True):
                close(got, good, **{k: 10 * v for k, v in NEAR[dtype].items()})


@every
@pytest.mark.parametrize(
    "scale",
    [math.inf, math.nan, "0.5", b"0.5", [1.0, 2.0], 1e39, True, torch.tensor(True), np.complex128(1 + 2j)],
    ids=repr,
)
def test_a_scale_that_is_no_number_of_that_type_is_refused(entry, scale):
    arrays = [torch.ones(1, 2, 3)] * 3
    with pytest.raises(AttnError, match="scale is"):
        entry(*arrays, scale=scale)


@every
def test_the_largest_scale_that_is_taken(entry):
    zero, key = torch.zeros(1, 2, 4), torch.randn(1, 3, 4)
    close(
        entry(zero, key, key, scale=1.7e38)[0],
        key.mean(1, keepdim=True).expand(1, 2, 4),
        rtol=1e-6,
        atol=1e-6,
    )


# --- autocast -----------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_autocast_changes_nothing(entry, half):
    for dtype, causal in itertools.product(entry.dtypes, (False, True)):
        made = [torch.from_numpy(a).to(getattr(torch, dtype)) for a in random_qkv(8, (2,), 5, 5, 8, 8)]
        runs = []
        for inside in (False, True):
            given = [a.clone().requires_grad_(entry.gradients) for a in made]
            with torch.autocast("cpu", dtype=half, enabled=inside):
                output, lse = entry(*given, is_causal=causal)
            run = [output, lse]
            if entry.gradients:
                run += torch.autograd.grad(output.float().square().sum(), given)
            runs.append([x for x in run if x is not None])
        for got, want in zip(*runs, strict=True):
            assert got.dtype == want.dtype
            assert torch.equal(got, want)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_F4_large_scores_under_autocast(half):
    with torch.autocast("cpu", dtype=half):
        big = torch.full((1, 1, 2, 64), 300.0)
        for entry in ENTRIES:
            close(entry(big, big, big)[0], np.full((1, 1, 2, 64), 300.0))
        assert attention_steps(big, big, big).scores.dtype == torch.float32
        layer = multi_head_attention(big[0], *[torch.eye(64) * 3] * 4, 2)
        assert layer.output.dtype == layer.query.dtype == torch.float32
        close(layer.output, np.full((1, 2, 64), 2700.0), rtol=1e-6)


# --- derivatives --------------------------------------------------------------------------------------------

LOSSES = {
    "a constant gradient": lambda output, lse: output.sum(),
    "a square": lambda output, lse: output.square().sum(),
    "the log-sum-exp": lambda output, lse: lse.sum(),
}


@pytest.mark.parametrize(
    "entry, loss",
    [
        pytest.param(e, loss, id=f"{e.name}, {loss}")
        for e, loss in itertools.product(ENTRIES, LOSSES)
        if e.gradients and (e.lse or loss != "the log-sum-exp")
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["query", "key", "value"])
def test_F3_a_second_derivative_is_right_or_refused(entry, loss, place):
    arrays = random_qkv(9, (2,), 3, 4, 4, 4)
    dtype = torch.float64 if "float64" in entry.dtypes else torch.float32

    def penalty(call):
        given = [torch.from_numpy(a).to(dtype).requires_grad_() for a in arrays]
        made = LOSSES[loss](*call(*given))
        (gradient,) = torch.autograd.grad(made, given[place], create_graph=True, materialize_grads=True)
        return torch.autograd.grad(gradient.square().sum(), given, materialize_grads=True)

    # For torch's own kernels torch says it.
    refusal = "has no second derivative|is not implemented"
    try:
        got = penalty(entry)
    except (AttnError, RuntimeError) as problem:
        assert not entry.second
        assert entry.name.startswith("sdpa") or isinstance(problem, AttnError)
        assert re.search(refusal, str(problem)), problem
    else:
        for a, b in zip(got, penalty(_steps), strict=True):
            close(a, b)


def _transforms(call, arrays):
    def loss(query):
        return call(query, *arrays[1:])[0].square().sum()

    query = arrays[0]
    return {
        "grad": lambda: torch.func.grad(loss)(query),
        "vmap": lambda: torch.func.vmap(lambda q: call(q, *arrays[1:])[0])(torch.stack([query, 2 * query])),
        "jvp": lambda: torch.func.jvp(loss, (query,), (query,))[1],
        "hessian": lambda: torch.func.hessian(loss)(query),
        "forward mode": lambda: _forward_mode(loss, query),
    }


def _forward_mode(loss, query):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        return forward_ad.unpack_dual(loss(forward_ad.make_dual(query, query))).tangent


# torch's first jvp warns of a compiler of its own that it still uses.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["grad", "vmap", "jvp", "hessian", "forward mode"])
@pytest.mark.parametrize(
    "entry, masked",
    [
        pytest.param(e, masked, id=e.name + ", masked" * masked)
        for e, masked in itertools.product(ENTRIES, (False, True))
        if e.masks or not masked
    ],
)
def test_torch_func_is_right_or_refused(entry, name, masked):
    dtype = torch.float64 if "float64" in entry.dtypes else torch.float32
    arrays = [torch.from_numpy(a).to(dtype) for a in random_qkv(10, (2,), 3, 4, 4, 4)]
    if masked:
        arrays.append(torch.tensor([[True, True, False, True]]))
    want = _transforms(_steps, arrays)[name]()
    assert want is not None
    try:
        got = _transforms(entry, arrays)[name]()
    except AttnError as refusal:
        assert "attnlib.attention" in str(refusal), refusal
        assert name not in entry.transforms
    else:
        close(got, want, rtol=1e-5, atol=1e-5)


# --- said once ----------------------------------------------------------------------------------------------


def test_the_reference_says_what_the_entries_do():
    text = (Path(__file__).parents[1] / "book" / "reference.md").read_text(encoding="utf-8")
    section = text.split("## One set of rules for every attention")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if "| `" in line
    ]
    said = {name.split(".")[-1]: row for row in rows for name in re.findall(r"`([\w.]+)`", row[0])}
    said["kernels"] = next(row for row in rows if "kernels." in row[0])
    said["flash_attention"] = next(row for row in rows if row[0] == "`flash_attention`")
    for entry in ENTRIES:
        arrays, types, masks, derivatives = said[re.match(r"\w+", entry.name)[0]][1:]
        assert arrays == ("torch" if entry.torch_only else "any library"), entry.name
        assert (masks == "all") == entry.masks, entry.name
        assert ("float64" in entry.dtypes) == (types != ", ".join(SINGLE)), entry.name
        if entry.second:
            assert derivatives.startswith(("yes", "second")), entry.name
        assert (derivatives == "yes") == (entry.transforms == EVERYTHING), entry.name
        assert ("no gradients" in derivatives) == (not entry.gradients), entry.name

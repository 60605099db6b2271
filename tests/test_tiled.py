"""Tiled attention, forward and backward: the same numbers as plain attention, whatever the tiles."""

import inspect
import math
import tracemalloc
from functools import partial

import numpy as np
import pytest
import torch
from oracle import (
    LIBRARIES,
    close,
    plain_attention,
    plain_formula,
    random_qkv,
    sdpa,
    to_numpy,
    torch_attention,
    worst,
)
from test_core import GOOD, ZERO, torch_view, views
from torch.utils._python_dispatch import TorchDispatchMode

from attnlib import (
    AttnError,
    MaskError,
    ShapeError,
    attention,
    attention_steps,
    causal_mask,
    combine_masks,
    document_mask,
    online,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
    tiled,
    to_additive,
)
from attnlib.examples import all_sizes_differ, three_tokens
from attnlib.tiled import (
    flash_attention,
    flash_attention_backward,
    flash_attention_steps,
)

# The design's lengths, each once as queries and once as keys, never equal, with a width and another d_v.
SIZES = [
    (1, 7, 1, 3),
    (2, 65, 3, 8),
    (3, 2, 8, 40),
    (7, 127, 40, 1),
    (16, 3, 64, 3),
    (17, 129, 1, 8),
    (33, 16, 3, 40),
    (65, 1, 8, 64),
    (127, 33, 40, 8),
    (129, 17, 64, 1),
]
BLOCKS = [(1, 1), (3, 16), (16, 3), (64, 64), (200, 200), (1, 64), (16, 1), (3, 200), (64, 16), (200, 3)]
FEW_TILES = 300  # tiles of one key are for short sequences: each tile takes the time of a Python loop


def block_sizes(n_q, n_k, place):
    """The next pair of tile sizes, from `place` on, that leaves a bearable number of tiles."""
    for shift in range(len(BLOCKS)):
        block_q, block_k = BLOCKS[(place + shift) % len(BLOCKS)]
        if -(-n_q // block_q) * -(-n_k // block_k) <= FEW_TILES:
            return {"block_q": block_q, "block_k": block_k}


def random_mask(*shape):
    return lambda rng, n_q, n_k: rng.random([{"q": n_q, "k": n_k}.get(s, s) for s in shape]) < 0.6


def bias(*shape):
    def make(rng, n_q, n_k):
        numbers = rng.standard_normal([{"q": n_q, "k": n_k}.get(s, s) for s in shape])
        return np.where(rng.random(numbers.shape) < 0.7, numbers, -np.inf)

    return make


def lowest(rng, n_q, n_k):
    """A floating mask that hides with the lowest number of its type, and empties the first row."""
    mask = np.where(rng.random((n_q, n_k)) < 0.6, rng.standard_normal((n_q, n_k)), np.finfo(np.float64).min)
    mask[0] = np.finfo(np.float64).min
    return mask


# Batch 2, heads 3: every kind of mask in every form that fits.
MASKS = {
    "none": lambda rng, n_q, n_k: None,
    "causal_mask top_left": lambda rng, n_q, n_k: causal_mask(n_q, n_k, align="top_left"),
    "causal_mask bottom_right": lambda rng, n_q, n_k: causal_mask(n_q, n_k, align="bottom_right"),
    "window": lambda rng, n_q, n_k: sliding_window_mask(n_q, n_k, 5, align="bottom_right"),
    "prefix": lambda rng, n_q, n_k: prefix_mask(n_q, n_k, n_k // 2, align="top_left"),
    "padding": lambda rng, n_q, n_k: padding_mask([n_k // 2, n_k], n_k),
    "an item of padding only": lambda rng, n_q, n_k: padding_mask([n_k, 0], n_k),
    "documents": lambda rng, n_q, n_k: document_mask(np.arange(n_q) // 4, np.arange(n_k) // 5),
    "padding and window": lambda rng, n_q, n_k: combine_masks(
        padding_mask([n_k // 2, n_k], n_k), sliding_window_mask(n_q, n_k, 9, align="top_left")
    ),
    "nothing": lambda rng, n_q, n_k: np.zeros((n_q, n_k), bool),
    "(Tk,)": random_mask("k"),
    "(1, Tk)": random_mask(1, "k"),
    "(Tq, Tk)": random_mask("q", "k"),
    "(B, 1, 1, Tk)": random_mask(2, 1, 1, "k"),
    "(1, H, Tq, Tk)": random_mask(1, 3, "q", "k"),
    "(H, 1, Tk)": random_mask(3, 1, "k"),
    "(B, H, Tq, Tk)": random_mask(2, 3, "q", "k"),
    "additive causal": lambda rng, n_q, n_k: to_additive(causal_mask(n_q, n_k, align="top_left")),
    "lowest number": lowest,
    "bias (Tk,)": bias("k"),
    "bias (1, Tk)": bias(1, "k"),
    "bias (Tq, Tk)": bias("q", "k"),
    "bias (B, 1, 1, Tk)": bias(2, 1, 1, "k"),
    "bias (1, H, Tq, Tk)": bias(1, 3, "q", "k"),
    "bias (B, H, Tq, Tk)": bias(2, 3, "q", "k"),
}
CAUSAL = {
    f"is_causal {align}": {"is_causal": True, "causal_align": align} for align in ("top_left", "bottom_right")
}
KINDS = [*MASKS, *CAUSAL]


def case(kind, place, n_q, n_k, width, d_v):
    """Arrays, mask, and the other arguments of one case; every third one with grouped heads or a scale."""
    rng = np.random.default_rng(place)
    arrays = random_qkv(place, (2, 3), n_q, n_k, width, d_v)
    mask = MASKS[kind](rng, n_q, n_k) if kind in MASKS else None
    how = dict(CAUSAL.get(kind, {}))
    if place % 3 == 1:
        arrays = (arrays[0], arrays[1][:, :1], arrays[2][:, :1])
        how["enable_gqa"] = True
    if place % 3 == 2:
        how["scale"] = -0.7 if place % 2 else 0
    return arrays, mask, how


def flash(block_q, block_k):
    """:func:`flash_attention` in tiles of one size: what it must share with plain attention, it is asked."""
    return partial(flash_attention, block_q=block_q, block_k=block_k)


BOTH = [
    pytest.param(attention, id="attention"),
    pytest.param(flash(2, 2), id="tiles-2x2"),
    pytest.param(flash(1, 3), id="tiles-1x3"),
    pytest.param(flash_attention, id="one-tile"),
]
both = pytest.mark.parametrize("call", BOTH)


# --- forward: the whole matrix -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_equal_plain_attention(kind):
    for place, size in enumerate(SIZES):
        at = place + 7 * KINDS.index(kind)
        arrays, mask, how = case(kind, at, *size)
        want = attention_steps(*arrays, mask, **how)
        output, lse = flash_attention(
            *arrays, mask, **how, **block_sizes(*size[:2], at // 3), return_lse=True
        )
        close(output, want.output)
        close(lse, want.lse)


@pytest.mark.parametrize("kind", KINDS)
def test_every_library_gives_the_same_numbers_in_its_own_arrays(kind, lib):
    for shift in (0, 5):
        at = KINDS.index(kind) + shift
        size = [SIZES[i] for i in (2, 3, 4, 6)][at % 4]
        arrays, mask, how = case(kind, at, *size)
        want = attention_steps(*arrays, mask, **how)
        given = [lib.array(a) for a in arrays] + ([] if mask is None else [lib.array(mask)])
        blocks = {"block_q": (3, 16, 64)[at % 3], "block_k": (16, 64, 3)[at % 3]}
        output, lse = flash_attention(*given, **how, **blocks, return_lse=True)
        close(output, want.output)
        close(lse, want.lse)
        assert lib.owns(output) and lib.owns(lse)
        assert lib.owns(flash_attention(*given, **how, **blocks))


@pytest.mark.parametrize(
    "block_q, block_k", [(a, b) for a in (1, 3, 16, 64, 200) for b in (1, 3, 16, 64, 200)]
)
def test_every_pair_of_tile_sizes(block_q, block_k):
    """Against torch, so that tiles and plain attention cannot share a mistake."""
    query, key, value = random_qkv(1, (2,), 17, 33, 8, 3)
    got = flash_attention(query, key, value, block_q=block_q, block_k=block_k)
    close(got, torch_attention(query, key, value))
    got = flash(block_q, block_k)(query, key, value, is_causal=True, causal_align="top_left")
    close(got, torch_attention(query, key, value, is_causal=True))


def test_nothing_given_means_tiles_of_128():
    query, key, value = random_qkv(2, (2,), 130, 257, 4, 3)
    close(flash_attention(query, key, value), torch_attention(query, key, value))
    steps = list(flash_attention_steps(query, key, value))
    assert [(s.rows.stop, s.cols.stop) for s in steps] == [
        (rows, cols) for rows in (128, 130) for cols in (128, 256, 257)
    ]


@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 3), (2, 1, 2)], ids=str)
def test_any_leading_axes(lead, lib):
    query, key, value = random_qkv(3, lead, 4, 5, 3, 2)
    mask = causal_mask(4, 5, align="bottom_right")
    output, lse = flash(3, 2)(*(lib.array(a) for a in (query, key, value)), lib.array(mask), return_lse=True)
    wanted = plain_attention(query, key, value, mask)
    close(output, wanted[0])
    close(lse, wanted[2])


def test_worked_example(lib):
    for h in (1, 2):
        arrays = [lib.array(a) for a in three_tokens().head(h)]
        want = attention_steps(*three_tokens().head(h), is_causal=True)
        output, lse = flash(2, 1)(*arrays, is_causal=True, return_lse=True)
        close(output, want.output)
        close(lse, want.lse)
    arrays = [lib.array(a) for a in three_tokens().head(1)]
    output, lse = flash(1, 1)(*arrays, is_causal=True, return_lse=True)
    close(output[2, :], [0.1142, 0.0420, 0.8438, 1], rtol=0, atol=5.1e-5)
    close(lse, [1.5, 3.2014, 3.1698], rtol=0, atol=5.1e-5)


# --- the conventions, asked of both functions --------------------------------------------------------------


def test_the_same_arguments_with_the_same_defaults():
    plain = dict(inspect.signature(attention).parameters)
    tiles = dict(inspect.signature(flash_attention).parameters)
    own = {name: tiles.pop(name) for name in ("block_q", "block_k", "return_lse")}
    assert list(plain.items()) == list(tiles.items())
    assert {p.kind for p in own.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert [p.default for p in own.values()] == [128, 128, False]
    backward = inspect.signature(flash_attention_backward).parameters
    assert [backward[name].default for name in ("block_q", "block_k")] == [128, 128]
    assert set(plain) | {"block_q", "block_k"} == set(backward) - {"output", "lse", "grad_output", "grad_lse"}


@both
@pytest.mark.parametrize("additive", [False, True])
def test_N01_a_row_that_sees_nothing_is_zero(call, additive, lib):
    query, key = lib.array([[1.0, 0], [0, 1]]), lib.array([[1.0, 0], [0, 1], [1, 1]])
    value = lib.array([[1.0, 2], [3, 4], [5, 6]])
    mask = np.array([[False, False, False], [True, True, False]])
    got = call(query, key, value, lib.array(np.where(mask, 0.0, -np.inf) if additive else mask))
    close(got, [[0, 0], [2.3395, 3.3395]], rtol=0, atol=5.1e-5)
    close(got[0, :], [0, 0], rtol=0, atol=0)


@both
def test_N02_true_means_may_attend(call):
    value = np.array([[1.0], [2.0], [3.0]])
    got = call(np.zeros((3, 1)), np.zeros((3, 1)), value, np.tri(3, dtype=bool))
    close(got, [[1], [1.5], [2]])


@both
@pytest.mark.parametrize(
    "n_q, n_k, align, want",
    [
        (2, 5, "bottom_right", [1.5, 2.0]),
        (2, 5, "top_left", [0, 0.5]),
        (5, 2, "bottom_right", [0, 0, 0, 0, 0.5]),
        (5, 2, "top_left", [0, 0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_N03_N04_causal_with_other_lengths(call, n_q, n_k, align, want, lib):
    arrays = [lib.array(np.zeros((n, 1))) for n in (n_q, n_k)]
    value = lib.array(np.arange(float(n_k))[:, None])
    got = call(*arrays, value, is_causal=True, causal_align=align)
    close(got[:, 0], want)


@both
@pytest.mark.parametrize("number", [40.0, 300.0])
@pytest.mark.parametrize("kind", ["numpy", "float16", "bfloat16"])
def test_N05_half_precision_scores_do_not_overflow(call, number, kind):
    query, key = np.full((2, 64), number), np.full((3, 64), number)
    key[2] /= 2
    value = np.array([[1.0], [2.0], [4.0]])
    if kind == "numpy":
        arrays = [a.astype(np.float16) for a in (query, key, value)]
    else:
        arrays = [torch.asarray(a).to(getattr(torch, kind)) for a in (query, key, value)]
    close(call(*arrays), [[1.5], [1.5]])


@both
def test_N08_query_heads_share_their_key_head_consecutively(call, lib):
    query, key = lib.array(np.zeros((4, 2, 3))), lib.array(np.zeros((2, 5, 3)))
    value = lib.array(np.broadcast_to(np.array([0.0, 1.0])[:, None, None], (2, 5, 1)))
    close(call(query, key, value, enable_gqa=True)[:, 0, 0], [0, 0, 1, 1])


@both
@pytest.mark.parametrize("width", [1, 3, 16, 40, 63, 111, 128, 256])
def test_N10_any_width(call, width):
    query, key, value = (np.zeros((4, width)), np.zeros((5, width)), np.arange(5.0)[:, None])
    at = min(100, width - 1)
    query[:, at], key[:, at] = 1.0, np.arange(5.0)
    close(call(query, key, value), torch_attention(query, key, value))


@both
@pytest.mark.parametrize("n_q, n_k, width", [(1, 20, 128), (1, 1, 3), (3, 799, 16)])
def test_N11_one_query_against_many_keys(call, n_q, n_k, width):
    query, key, value = random_qkv(3, (1, 2), n_q, n_k, width, 5)
    got = call(query, key, value)
    close(got, torch_attention(query, key, value))
    if n_k == 1:
        close(got, value, atol=0, rtol=0)


@pytest.mark.parametrize("which", range(5), ids=[name for name, _ in views(np.zeros((1, 1, 1)))])
def test_N12_views_equal_packed_copies_and_nothing_is_modified(which, lib):
    viewed = [list(views(array))[which][1] for array in random_qkv(7, (2, 3), 4, 5, 6, 7)]
    copies = [np.array(view, order="C") for view in viewed]
    mask = np.random.default_rng(8).random((5, 4)).T < 0.7
    if lib.name == "torch" and min(viewed[0].strides) < 0:
        pytest.skip("torch has no negative strides")
    viewed = [torch_view(v) if lib.name == "torch" else lib.wrap(v) for v in viewed]
    before = [to_numpy(v).copy() for v in viewed]
    output, lse = flash(3, 2)(*viewed, lib.array(mask), return_lse=True)
    close(output, plain_attention(*copies, mask)[0])
    weighting = np.cos(
        np.arange(output.size if lib.name != "torch" else output.numel()).reshape(output.shape)
    )
    weighting = weighting.transpose(1, 0, 3, 2).copy().transpose(1, 0, 3, 2)  # a view too
    got = flash_attention_backward(
        *viewed, output, lse, lib.array(weighting), lib.array(mask), block_q=3, block_k=2
    )
    want = autograd(copies, mask, weighting)
    for name in ("query", "key", "value"):
        close(getattr(got, name), want[name])
    assert all(np.array_equal(to_numpy(v), b) for v, b in zip(viewed, before, strict=True))


@both
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_N13_what_a_hidden_key_holds_reaches_no_output(call, poison, lib):
    query, key, value = random_qkv(5, (2, 1), 3, 4, 2, 3)
    mask = padding_mask([3, 4], 4)
    clean = plain_attention(query, key, value, mask)[0]
    key[0, 0, 3] = value[0, 0, 3] = poison
    for form in (mask, to_additive(mask)):
        close(call(*(lib.array(a) for a in (query, key, value)), lib.array(form)), clean)


@both
def test_a_causal_query_does_not_see_what_later_tokens_hold(call):
    """Key 0 and value 0 hidden from every query; and a query that sees nothing may hold NaN."""
    query, key, value = random_qkv(6, (), 4, 6, 2, 3)
    mask = causal_mask(4, 6, align="top_left")  # keys 4 and 5 are hidden from all
    clean = plain_attention(query, key, value, mask)[0]
    key[4:] = value[4:] = math.nan
    close(call(query, key, value, is_causal=True, causal_align="top_left"), clean)
    query, key, value = random_qkv(6, (), 5, 3, 2, 3)
    clean = plain_attention(query, key, value, causal_mask(5, 3, align="bottom_right"))[0]
    query[:2] = math.nan
    close(call(query, key, value, is_causal=True, causal_align="bottom_right"), clean)


@both
@pytest.mark.parametrize("lead, n_q, n_k", ZERO, ids=str)
@pytest.mark.parametrize("how", ["plain", "bool", "additive", "causal"])
def test_N14_zero_lengths(call, lead, n_q, n_k, how, lib):
    arrays = [lib.array(a) for a in random_qkv(1, lead, n_q, n_k, 4, 5)]
    kwargs = {"is_causal": True, "causal_align": "bottom_right"} if how == "causal" else {}
    if how in ("bool", "additive"):
        ones = np.ones((n_q, n_k), bool)
        kwargs["attn_mask"] = lib.array(ones if how == "bool" else np.zeros((n_q, n_k)))
    got = call(*arrays, **kwargs)
    assert got.shape == (*lead, n_q, 5) and lib.owns(got)
    if n_k == 0:
        close(got, np.zeros((*lead, n_q, 5)), atol=0)
    if call is not attention:
        lse = call(*arrays, **kwargs, return_lse=True)[1]
        assert lse.shape == (*lead, n_q)
        assert n_k or np.isneginf(to_numpy(lse)).all()


@both
def test_N18_a_row_of_the_lowest_number_is_empty_and_minus_1e9_is_a_bias(call, lib):
    zeros, value = lib.array(np.zeros((1, 1))), lib.array([[1.0], [3.0]])
    keys = lib.array(np.zeros((2, 1)))
    for low in (np.finfo(np.float64).min, -np.inf):
        close(call(zeros, keys, value, lib.array([[low, low]])), [[0]], atol=0)
    close(call(zeros, keys, value, lib.array([[-1e9, -1e9]])), [[2]])
    half = np.full((1, 2), np.finfo(np.float16).min, np.float16)
    arrays = [np.zeros((1, 1), np.float16), np.zeros((2, 1), np.float16), np.ones((2, 1), np.float16)]
    close(call(*arrays, half), [[0]], atol=0)


@both
def test_N28_N40_leading_axes_broadcast_and_the_output_is_as_wide_as_the_values(call, lib):
    query, key, value = random_qkv(5, (4, 1), 3, 5, 8, 3)
    for q, k, v in (
        (query, key[:1], value[:1]),
        (query, key[0, 0], value[0, 0]),
        (query[:1], key, value),
        (query[:1], key[:1], value),
        (query, key, value[0]),
    ):
        got = call(lib.array(q), lib.array(k), lib.array(v))
        assert got.shape == (4, 1, 3, 3)
        close(got, plain_attention(q, k, v)[0])
    mask = padding_mask([2, 4, 5, 0], 5)  # a mask per item over shared keys
    got = call(lib.array(query), lib.array(key[0, 0]), lib.array(value[0, 0]), lib.array(mask))
    close(got, plain_attention(query, key[0, 0], value[0, 0], mask)[0])


@both
@pytest.mark.parametrize("where", range(3), ids=["query", "key", "value"])
def test_a_nan_in_something_visible_shows(call, where, lib):
    arrays = random_qkv(9, (2,), 3, 4, 5, 2)
    arrays[where][0, 0, 0] = np.nan
    with np.errstate(invalid="ignore"):
        got = to_numpy(call(*(lib.array(a) for a in arrays)))
    if where == 2:
        got = got[..., :1]  # only the NaN's own column
    shows = np.isnan(got[0])
    assert shows.all() if where else (shows[0].all() and not shows[1:].any())
    assert not np.isnan(got[1]).any()


@both
def test_a_row_of_visible_minus_infinities_shows(call):
    value = np.array([[1.0], [3.0]])
    for mask in (None, np.ones((1, 2), bool), np.zeros((1, 2))):
        with np.errstate(invalid="ignore", divide="ignore"):
            got = call(np.ones((1, 1)), np.full((2, 1), -np.inf), value, mask)
        assert np.isnan(got).all()


@both
@pytest.mark.parametrize("scale", [0, 1, -1.5, 1e-3, np.float64(0.5), np.float32(0.5)], ids=repr)
def test_any_finite_scale_and_the_inputs_type(call, scale, lib):
    query, key, value = random_qkv(1, (2,), 3, 4, 5, 2)
    got = call(*(lib.array(a, "float32") for a in (query, key, value)), scale=scale)
    assert lib.dtype(got) == "float32"
    close(got, plain_attention(query, key, value, scale=float(scale))[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_results_come_in_the_inputs_type_and_lse_in_at_least_single(dtype):
    at_least_single = "float64" if dtype == "float64" else "float32"
    for library in LIBRARIES[:3]:
        if dtype in ("float16", "bfloat16") and library.name == "strict":
            continue
        if dtype == "bfloat16":
            if library.name == "numpy":
                continue
            arrays = [torch.asarray(a).bfloat16() for a in random_qkv(18, (2,), 3, 4, 5, 2)]
        else:
            arrays = [library.array(a, dtype) for a in random_qkv(18, (2,), 3, 4, 5, 2)]
        mask = library.array([[0.5, 0.0, -np.inf, 1.0]])
        output, lse = flash(2, 3)(*arrays, mask, return_lse=True)
        assert library.dtype(output) == dtype and library.dtype(lse) == at_least_single
        empty = flash(2, 3)(*arrays, library.array(np.zeros((3, 4), bool)), return_lse=True)
        assert [library.dtype(a) for a in empty] == [dtype, at_least_single]
        got = flash_attention_backward(*arrays, output, lse, output, mask, block_q=2, block_k=3)
        assert [library.dtype(a) for a in got] == [dtype] * 3 + ["float64"]


BAD = {
    "width": lambda call, q, k, v: call(q, k[..., :3], v),
    "width, no keys": lambda call, q, k, v: call(q, k[..., :0, :3], v[..., :0, :]),
    "width, all hidden": lambda call, q, k, v: call(q, k[..., :3], v, np.zeros((3, 4), bool)),
    "tokens": lambda call, q, k, v: call(q, k, v[..., :2, :]),
    "axes": lambda call, q, k, v: call(q[0, 0], k, v),
    "batch": lambda call, q, k, v: call(q, np.concatenate([k, k[:1]]), v),
    "integers": lambda call, q, k, v: call(q, np.ones(k.shape, int), v),
    "types": lambda call, q, k, v: call(q, k.astype(np.float32), v),
    "no array": lambda call, q, k, v: call(q.tolist(), k, v),
    "libraries": lambda call, q, k, v: call(q, torch.asarray(k), v),
    "scale": lambda call, q, k, v: call(q, k, v, scale=math.nan),
    "width 0": lambda call, q, k, v: call(q[..., :0], k[..., :0], v),
    "heads": lambda call, q, k, v: call(np.ones((5, 3, 5)), k, v, enable_gqa=True),
    "no head axis": lambda call, q, k, v: call(q[0], k[0], v[0], enable_gqa=True),
    "no alignment": lambda call, q, k, v: call(q, k, v, is_causal=True),
    "unknown alignment": lambda call, q, k, v: call(q, q, q, is_causal=True, causal_align="left"),
    "both masks": lambda call, q, k, v: call(q, q, q, np.ones((3, 3), bool), is_causal=True),
    "integer mask": lambda call, q, k, v: call(q, k, v, np.ones((3, 4), int)),
    "(Tq, 1) mask": lambda call, q, k, v: call(q, k, v, np.ones((3, 1), bool)),
    "mask per nobody": lambda call, q, k, v: call(q, k, v, np.ones((5, 3, 4), bool)),
    "mask of too many axes": lambda call, q, k, v: call(q, k, v, np.ones((1, 1, 3, 4), bool)),
    "mask without keys": lambda call, q, k, v: call(q, k, v, np.array(True)),
}


@pytest.mark.parametrize("name", BAD)
def test_what_attention_refuses_tiles_refuse_in_the_same_words(name):
    words = []
    for call in (
        attention,
        flash(2, 2),
        lambda *a, **k: list(flash_attention_steps(*a, **k)),
        lambda q, k, v, *a, **how: flash_attention_backward(q, k, v, None, None, None, *a, **how),
    ):
        with pytest.raises(AttnError) as refusal:
            BAD[name](call, *GOOD)
        words.append((type(refusal.value), str(refusal.value)))
    assert set(words) == {words[0]}


def test_N22_mask_and_causal_together_are_refused():
    arrays = random_qkv(1, (), 3, 3, 2, 2)
    with pytest.raises(MaskError, match="combine"):
        flash_attention(*arrays, np.array([False, True, True]), is_causal=True)


@pytest.mark.parametrize("name", ["block_q", "block_k"])
@pytest.mark.parametrize("size", [0, -1, 1.5, True, None, "2"], ids=repr)
def test_tile_sizes_below_one_and_other_things_are_refused(name, size):
    with pytest.raises(ShapeError, match=f"{name} is .*, wanted a whole number of at least 1"):
        flash_attention(*GOOD, **{name: size})


def test_a_refusal_reaches_the_caller_through_torch_too():
    arrays = [torch.asarray(a).requires_grad_() for a in GOOD]
    with pytest.raises(ShapeError, match="width 5, key has width 3"):
        flash_attention(arrays[0], arrays[1][..., :3], arrays[2])


def test_mistaken_results_of_the_forward_pass_are_refused():
    output, lse = flash_attention(*GOOD, return_lse=True)
    for name, wrong in (
        ("output", (output[:1], lse, output)),
        ("lse", (output, lse[..., None], output)),
        ("lse", (output, lse[:1], output)),
        ("grad_output", (output, lse, output[..., :1])),
    ):
        with pytest.raises(ShapeError, match=f"^{name} has shape .*, wanted .* as the forward pass"):
            flash_attention_backward(*GOOD, *wrong)


# --- sizes and masks that people tripped over --------------------------------------------------------------


@pytest.mark.parametrize("block_k", [15, 16, 17, 32, 64, 128])
def test_N09_padding_to_a_whole_tile_never_counts(block_k):
    lengths = (1, 2, 15, 16, 17, 31, 33, 63, 65, 127, 128, 129, 1023, 1025)
    for place, n_k in enumerate(lengths):
        n_q = lengths[(place + 5) % 9]
        key, value = np.full((n_k, 1), -5.0), np.ones((n_k, 1))
        close(flash(block_k, block_k)(np.ones((n_q, 1)), key, value, scale=1.0), np.ones((n_q, 1)))
        value[-1] = 0.0  # the last key counts like any other
        got = flash(block_k, block_k)(np.ones((n_q, 1)), key, value, scale=1.0)
        close(got, np.full((n_q, 1), 1 - 1 / n_k))


def test_N19_lse_has_one_number_per_query_and_parts_merge(lib):
    query, key, value = random_qkv(12, (2, 3), 4, 5, 6, 7)
    zero = flash(3, 2)(*(lib.array(a) for a in (0 * query, key, value)), return_lse=True)
    close(zero[1], np.full((2, 3, 4), math.log(5)))
    parts = [
        online.from_result(
            *flash(3, 2)(
                lib.array(query), lib.array(key[..., s, :]), lib.array(value[..., s, :]), return_lse=True
            )
        )
        for s in (slice(0, 2), slice(2, 5))
    ]
    output, lse = online.finish(online.merge(*parts))
    want = attention_steps(query, key, value)
    close(output, want.output)
    close(lse, want.lse)


def test_N30_seventy_thousand_keys_of_which_the_last_is_visible():
    query, key, value = random_qkv(1, (), 1, 70_000, 2, 3)
    mask = np.zeros((1, 70_000), bool)
    mask[0, -1] = True
    close(flash_attention(query, key, value, mask, block_k=512), value[-1:], atol=0)
    kinds = [s.kind for s in flash_attention_steps(query, key, value, mask, block_k=4096)]
    assert kinds == ["skipped"] * 17 + ["masked"]


def test_N31_a_window_whose_first_tile_is_hidden(lib):
    query, key, value = random_qkv(2, (), 600, 600, 4, 3)
    mask = sliding_window_mask(600, 600, 10)
    got = flash_attention(*(lib.array(a) for a in (query, key, value)), lib.array(mask))
    close(got, torch_attention(query, key, value, mask))
    kinds = [s.kind for s in flash_attention_steps(query, key, value, mask)]
    assert kinds == ["masked" if c in (r, r - 1) else "skipped" for r in range(5) for c in range(5)]


def test_N33_a_window_as_long_as_the_sequence_is_causal():
    arrays = random_qkv(3, (), 65, 65, 4, 3)
    window = sliding_window_mask(65, 65, 65)
    close(flash(16, 16)(*arrays, window), flash(16, 16)(*arrays, is_causal=True))


@pytest.mark.parametrize("score", [-200.0, -20000.0, -60000.0])
def test_very_negative_rows_are_ordinary_rows(score, lib):
    query, key = lib.array([[1.0], [0.0]]), lib.array(np.full((5, 1), score))
    value = lib.array(np.arange(5.0)[:, None])
    mask = np.ones((2, 5), bool)
    mask[:, 1:3] = False  # hidden keys in between
    output, lse = flash(2, 2)(query, key, value, lib.array(mask), scale=1.0, return_lse=True)
    close(output, [[7 / 3], [7 / 3]])
    close(lse, [score + math.log(3), math.log(3)])


# --- tiles: which, and what of them ------------------------------------------------------------------------


def kinds_by_looking(mask, block_q, block_k):
    """The kinds of all tiles from the whole mask, shape (..., Tq, Tk)."""
    kinds = []
    for a in range(0, mask.shape[-2], block_q):
        for b in range(0, mask.shape[-1], block_k):
            tile = mask[..., a : a + block_q, b : b + block_k]
            kinds.append("whole" if tile.all() else "masked" if tile.any() else "skipped")
    return kinds


@pytest.mark.parametrize("block_q, block_k", [(1, 1), (2, 2), (3, 2), (2, 5), (4, 3), (9, 9)])
@pytest.mark.parametrize("n_q, n_k", [(8, 8), (7, 7), (5, 8), (8, 5), (1, 6), (6, 1)])
def test_kinds_of_tiles(n_q, n_k, block_q, block_k):
    arrays = random_qkv(1, (2,), n_q, n_k, 3, 2)
    blocks = {"block_q": block_q, "block_k": block_k}
    for align in ("top_left", "bottom_right"):
        mask = causal_mask(n_q, n_k, align=align)
        want = kinds_by_looking(mask, block_q, block_k)
        causal = flash_attention_steps(*arrays, is_causal=True, causal_align=align, **blocks)
        assert [s.kind for s in causal] == want
        assert [s.kind for s in flash_attention_steps(*arrays, mask, **blocks)] == want
    mask = np.random.default_rng(n_q).random((2, n_q, n_k)) < 0.4
    for form in (mask, np.where(mask, 0.5, -np.inf)):
        got = [s.kind for s in flash_attention_steps(*arrays, form, **blocks)]
        assert got == kinds_by_looking(mask, block_q, block_k)
    got = [s.kind for s in flash_attention_steps(*arrays, mask[0, :1], **blocks)]
    assert got == kinds_by_looking(np.broadcast_to(mask[0, :1], (n_q, n_k)), block_q, block_k)
    assert {s.kind for s in flash_attention_steps(*arrays, **blocks)} == {"whole"}


def test_steps_show_scores_and_states(lib):
    query, key, value = random_qkv(2, (2,), 5, 7, 3, 2)
    arrays = [lib.array(a) for a in (query, key, value)]
    how = {"is_causal": True, "causal_align": "bottom_right"}
    want = attention_steps(query, key, value, **how)
    output, lse = np.full((2, 5, 2), np.nan), np.full((2, 5), np.nan)
    visits = np.zeros((5, 7), int)
    for step in flash_attention_steps(*arrays, **how, block_q=2, block_k=3):
        visits[step.rows, step.cols] += 1
        if step.kind == "skipped":
            assert step.scores is None
        else:
            assert lib.owns(step.scores)
            close(step.scores, want.masked[:, step.rows, step.cols])
        seen = slice(0, step.cols.stop)
        close(step.state.row_max, want.masked[:, step.rows, seen].max(axis=-1))
        o, row_lse = online.finish(step.state)
        output[:, step.rows], lse[:, step.rows] = to_numpy(o), to_numpy(row_lse)
    assert (visits == 1).all()
    close(output, want.output)
    close(lse, want.lse)


def test_steps_in_the_order_of_the_replay():
    steps = list(flash_attention_steps(*random_qkv(1, (), 3, 4, 2, 2), block_q=2, block_k=3))
    assert [(s.rows, s.cols) for s in steps] == [
        (slice(0, 2), slice(0, 3)),
        (slice(0, 2), slice(3, 4)),
        (slice(2, 3), slice(0, 3)),
        (slice(2, 3), slice(3, 4)),
    ]
    assert list(flash_attention_steps(*random_qkv(1, (), 3, 0, 2, 2))) == []


@pytest.mark.parametrize("form", ["is_causal", "mask"])
def test_hidden_tiles_are_neither_computed_nor_touched(form, monkeypatch):
    query, key, value = random_qkv(3, (), 8, 8, 4, 3)
    clean = attention(query, key, value, is_causal=True)
    key[6:] = value[6:] = math.nan  # rows 0 to 5 never meet the tiles of these
    shapes, masked = [], []
    right = tiled.core.scaled_scores, tiled.core.apply_mask

    def scaled_scores(q, k, scale):
        shapes.append((q.shape[-2], k.shape[-2]))
        return right[0](q, k, scale)

    def apply_mask(scores, mask):
        masked.append(mask)
        return right[1](scores, mask)

    monkeypatch.setattr(tiled.core, "scaled_scores", scaled_scores)
    monkeypatch.setattr(tiled.core, "apply_mask", apply_mask)
    how = {"is_causal": True} if form == "is_causal" else {"attn_mask": causal_mask(8, 8)}
    output, lse = flash(2, 2)(query, key, value, **how, return_lse=True)
    assert shapes == [(2, 2)] * 10 and len(masked) == 4
    close(output[:6], clean[:6])
    assert np.isnan(output[6:]).all()
    shapes.clear()
    grad = np.ones((8, 3))
    grad[6:] = 0  # what the poisoned rows say is NaN; only the other tiles are looked at
    got = flash_attention_backward(query, key, value, output, lse, grad, **how, block_q=2, block_k=2)
    assert shapes == [(2, 2)] * 20  # two passes
    assert np.isfinite(got.query[:6]).all()


def test_emptiness_comes_from_the_mask_tile_by_tile(lib):
    """Row 0 sees keys 4 and 5 only, row 1 nothing, row 2 keys 0 and 5."""
    query, key, value = random_qkv(4, (), 3, 8, 2, 2)
    mask = np.zeros((3, 8), bool)
    mask[0, 4:6] = mask[2, [0, 5]] = True
    for block_k in (1, 2, 3, 5):
        output, lse = flash(3, block_k)(
            *(lib.array(a) for a in (query, key, value)), lib.array(mask), return_lse=True
        )
        wanted = plain_attention(query, key, value, mask)
        close(output, wanted[0])
        close(lse, wanted[2])


# --- backward ----------------------------------------------------------------------------------------------


def leaves(arrays):
    return [torch.asarray(np.array(a, dtype=np.float64)).requires_grad_() for a in arrays]


def autograd(arrays, mask, weighting, lse_weighting=None, **how):
    """Gradients by torch through plain attention: by name, and of the mask where it is floating."""
    query, key, value = leaves(arrays)
    inputs = {"query": query, "key": key, "value": value}
    if mask is not None:
        mask = torch.asarray(np.array(mask))
        if mask.is_floating_point():
            inputs["attn_mask"] = mask.requires_grad_()
    steps = attention_steps(query, key, value, mask, **how)
    loss = (steps.output * torch.asarray(np.array(weighting))).sum()
    if lse_weighting is not None:
        loss = loss + torch.where(steps.lse == -math.inf, 0.0, steps.lse * torch.asarray(lse_weighting)).sum()
    return dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))


def weightings(place, lead, n_q, d_v):
    rng = np.random.default_rng(1000 + place)
    return rng.standard_normal((*lead, n_q, d_v)), rng.standard_normal((*lead, n_q))


def check_backward(lib, arrays, mask, how, blocks, place, *, with_lse=True):
    """Our backward pass in `lib` against torch's through plain attention."""
    lead = np.broadcast_shapes(*(a.shape[:-2] for a in arrays)) if "enable_gqa" not in how else (2, 3)
    weighting, of_lse = weightings(place, lead, arrays[0].shape[-2], arrays[2].shape[-1])
    want = autograd(arrays, mask, weighting, of_lse if with_lse else None, **how)
    given = [lib.array(a) for a in arrays]
    mask = None if mask is None else lib.array(mask)
    if lib.name == "torch":
        inputs = [a.requires_grad_() for a in given]
        if mask is not None and mask.is_floating_point():
            inputs.append(mask.requires_grad_())
        output, lse = flash_attention(*given, mask, **how, **blocks, return_lse=True)
        loss = (output * lib.array(weighting)).sum()
        if with_lse:
            loss = loss + torch.where(lse == -math.inf, 0.0, lse * lib.array(of_lse)).sum()
        got = dict(zip(want, torch.autograd.grad(loss, inputs), strict=True))
    else:
        output, lse = flash_attention(*given, mask, **how, **blocks, return_lse=True)
        extra = {"grad_lse": lib.array(of_lse)} if with_lse else {}
        got = flash_attention_backward(
            *given, output, lse, lib.array(weighting), mask, **how, **blocks, **extra
        )._asdict()
        assert ("attn_mask" in want) == (got["attn_mask"] is not None)
    for name, wanted in want.items():
        assert lib.owns(got[name])
        close(got[name], wanted)


BACKWARD_SIZES = [(3, 7, 4, 5), (17, 16, 8, 3), (16, 33, 3, 8), (33, 2, 1, 40), (1, 17, 40, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_torchs_through_plain_attention(kind):
    for shift, size in enumerate(BACKWARD_SIZES):
        at = KINDS.index(kind) + shift
        arrays, mask, how = case(kind, at, *size)
        blocks = block_sizes(*size[:2], at)
        check_backward(LIBRARIES[0], arrays, mask, how, blocks, at, with_lse=at % 2 == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_every_library(kind, lib):
    at = KINDS.index(kind) + LIBRARIES.index(lib)
    size = BACKWARD_SIZES[at % 3]
    arrays, mask, how = case(kind, at, *size)
    check_backward(lib, arrays, mask, how, {"block_q": 7, "block_k": 8}, at)
    arrays, mask, how = case(kind, at + 1, 4, 3, 2, 3)
    check_backward(lib, arrays, mask, how, {"block_q": 3, "block_k": 2}, at, with_lse=False)


@pytest.mark.parametrize("block_q, block_k", [(1, 1), (3, 1), (1, 3), (3, 16), (16, 3), (64, 64)])
def test_gradients_for_every_tile_size(block_q, block_k, lib):
    arrays = random_qkv(1, (2, 3), 7, 17, 4, 5)
    how = {"is_causal": True, "causal_align": "top_left"}
    check_backward(lib, arrays, None, how, {"block_q": block_q, "block_k": block_k}, 1)


@pytest.mark.parametrize(
    "how",
    [{}, {"is_causal": True, "causal_align": "bottom_right"}, {"scale": -0.7}, {"scale": 0}],
    ids=str,
)
@pytest.mark.parametrize("lead", [(), (2, 1)], ids=str)
def test_finite_differences(lead, how):
    arrays = leaves(random_qkv(1, lead, 4, 3, 2, 3))  # bottom-right: the first row is empty
    assert torch.autograd.gradcheck(lambda *a: flash(2, 2)(*a, **how), arrays)


def test_finite_differences_of_lse_of_a_bias_and_of_shared_heads():
    arrays = leaves(random_qkv(2, (2,), 3, 4, 2, 3))
    assert torch.autograd.gradcheck(lambda *a: flash(2, 3)(*a, return_lse=True), arrays)
    for shape in ((4,), (1, 4), (3, 4), (2, 1, 4), (2, 3, 4)):
        bias = leaves([np.random.default_rng(3).standard_normal(shape)])[0]
        fixed = [a.detach() for a in arrays]
        assert torch.autograd.gradcheck(lambda b, a=fixed: flash(2, 3)(*a, b, return_lse=True), (bias,))
    query = leaves([np.random.default_rng(4).standard_normal((4, 3, 2))])[0]
    assert torch.autograd.gradcheck(
        lambda *a: flash(2, 3)(*a, enable_gqa=True), (query, arrays[1], arrays[2])
    )


def test_worked_gradients_of_token_3(lib):
    query, key, value = (lib.array(a) for a in three_tokens().head(1))
    d_output = np.zeros((3, 4))
    d_output[2, 0] = 1
    how = {"is_causal": True, "block_q": 1, "block_k": 1}
    output, lse = flash_attention(query, key, value, **how, return_lse=True)
    got = flash_attention_backward(query, key, value, output, lse, lib.array(d_output), **how)
    printed = {"rtol": 0, "atol": 5.1e-5}
    close(tiled.row_delta(output, lib.array(d_output), lse)[2], 0.1142, **printed)
    close(got.query[2, :], [0.1493, -0.0458, 0.0988, -0.0458], **printed)
    close(
        got.key,
        [
            [-0.0506, 0.0506, 0.0506, 0.1012],
            [0.0024, -0.0024, -0.0024, -0.0048],
            [0.0482, -0.0482, -0.0482, -0.0964],
        ],
        **printed,
    )
    close(got.value[:, 0], [0.1142, 0.0420, 0.8438], **printed)
    close(got.query[:2, :], np.zeros((2, 4)))
    assert got.attn_mask is None


def test_gradients_by_differences_of_the_output_alone():
    """Neither torch nor our core: plain loops, one number moved at a time."""
    arrays = random_qkv(5, (2,), 3, 4, 2, 3)
    mask = np.array([[True, False, True, True], [False] * 4, [True] * 4])
    weighting = weightings(5, (2,), 3, 3)[0]
    output, lse = flash(2, 3)(*arrays, mask, return_lse=True)
    got = flash_attention_backward(*arrays, output, lse, weighting, mask, block_q=2, block_k=3)
    for place in range(3):
        for at in np.ndindex(*arrays[place].shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [a.copy() for a in arrays]
                moved[place][at] += step
                ends.append((plain_attention(*moved, mask)[0] * weighting).sum())
            close(got[place][at], (ends[0] - ends[1]) / 2e-5, atol=1e-8, rtol=1e-7)


def n01():
    query, key = [[1.0, 0], [0, 1]], [[1.0, 0], [0, 1], [1, 1]]
    mask = torch.tensor([[False, False, False], [True, True, False]])
    return leaves([query, key, [[1.0, 2], [3, 4], [5, 6]]]), mask


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("rows", ["row 1", "all"])
def test_N17_an_empty_row_has_gradient_zero_and_spoils_nothing(rows, additive):
    arrays, mask = n01()
    form = to_additive(mask, dtype=torch.float64) if additive else mask

    def loss(*inputs):
        output = flash(2, 2)(*inputs, form)
        return (output[1] if rows == "row 1" else output).sum()

    got = torch.autograd.grad(loss(*arrays), arrays)
    close(got[0][0], [0, 0], atol=0)
    close(got[1][2], [0, 0], atol=0)
    close(got[2][2], [0, 0], atol=0)
    assert all(torch.isfinite(g).all() for g in got) and got[0][1].abs().max() > 0.1
    assert torch.autograd.gradcheck(loss, arrays)


LOSSES = {  # each makes nonsense of a row of zeros, or of an lse of -inf; the other rows must not hear of it
    "direction of the output": lambda output, lse: (output / output.norm(dim=-1, keepdim=True))[:, 0].sum(),
    "logarithm of the output": lambda output, lse: output.abs().sum(-1).log().sum(),
    "square of lse": lambda output, lse: (lse**2).sum(),
    "inverse of lse": lambda output, lse: (lse - lse).sum(),
    "exponential of lse": lambda output, lse: lse.exp().sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_N17_whatever_the_loss_makes_of_an_empty_row_moves_nothing(name):
    arrays, mask = n01()
    got = torch.autograd.grad(
        LOSSES[name](*flash(2, 2)(*arrays, mask, return_lse=True)), arrays, allow_unused=True
    )
    rest = [a.detach().clone().requires_grad_() for a in arrays]
    steps = attention_steps(rest[0][1:], *rest[1:], mask[1:])
    want = torch.autograd.grad(
        LOSSES[name](steps.output, steps.lse), rest, allow_unused=True, materialize_grads=True
    )
    for mine, wanted in zip(got, want, strict=True):
        close(mine, wanted)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_N13_what_a_hidden_key_holds_reaches_no_gradient(poison, lib):
    arrays = random_qkv(5, (2, 1), 3, 4, 2, 3)
    mask = padding_mask([3, 4], 4)
    weighting = lib.array(weightings(5, (2, 1), 3, 3)[0])

    def gradients(arrays, mask):
        given = [lib.array(a) for a in arrays]
        output, lse = flash(2, 2)(*given, lib.array(mask), return_lse=True)
        return flash_attention_backward(*given, output, lse, weighting, lib.array(mask), block_q=2, block_k=2)

    clean = gradients(arrays, mask)
    for array in arrays[1:]:
        array[0, 0, 3] = poison
    for form in (mask, to_additive(mask)):
        dirty = gradients(arrays, form)
        for one, other in zip(dirty[:3], clean[:3], strict=True):
            close(one, other, atol=0, rtol=0)
        close(dirty.key[0, 0, 3, :], [0, 0], atol=0)
        close(dirty.value[0, 0, 3, :], [0, 0, 0], atol=0)


def test_a_query_that_sees_nothing_has_gradient_zero_even_if_it_is_nan():
    arrays = random_qkv(6, (), 3, 3, 2, 3)
    mask = torch.tensor([[True], [False], [True]]).expand(3, 3)
    clean = leaves(arrays)
    clean = torch.autograd.grad(flash(2, 2)(*clean, mask).sum(), clean)
    arrays[0][1] = np.nan
    dirty = leaves(arrays)
    dirty = torch.autograd.grad(flash(2, 2)(*dirty, mask).sum(), dirty)
    close(dirty[0][1], [0, 0], atol=0)
    for one, other in zip(dirty, clean, strict=True):
        close(one, other, atol=0, rtol=0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e3])
def test_gradients_are_never_nan_where_plain_attentions_are_finite(seed, spread):
    """Saturated weights, rows that see little or nothing, in random tiles."""
    rng = np.random.default_rng(seed)
    arrays = random_qkv(seed, (2,), 5, 6, 3, 2, spread=spread)
    mask = rng.random((2, 5, 6)) < 0.35
    mask[0, seed % 5] = False
    if seed % 2:
        mask = np.where(mask, spread * rng.standard_normal(mask.shape), -np.inf)
    blocks = {"block_q": 1 + seed % 4, "block_k": 1 + seed % 3}
    weighting, of_lse = weightings(seed, (2,), 5, 2)
    want = autograd(arrays, mask, weighting, of_lse)
    output, lse = flash_attention(*arrays, mask, **blocks, return_lse=True)
    got = flash_attention_backward(*arrays, output, lse, weighting, mask, **blocks, grad_lse=of_lse)
    for name, wanted in want.items():
        # scores of spread² carry that many times the rounding of scores of 1
        bound = 1e-12 * max(1.0, spread**2)
        close(getattr(got, name), wanted, atol=bound * spread, rtol=bound)


@pytest.mark.parametrize(
    "lead, n_q, n_k", [((), 3, 0), ((2, 1), 3, 0), ((), 0, 3), ((0, 2), 3, 2), ((2,), 0, 0)], ids=str
)
@pytest.mark.parametrize("how", ["plain", "mask", "additive"])
def test_N14_zero_lengths_stay_attached_with_gradient_zero(lead, n_q, n_k, how):
    arrays = leaves(random_qkv(7, lead, n_q, n_k, 2, 3))
    mask = {"plain": None, "mask": torch.ones(n_q, n_k, dtype=torch.bool), "additive": torch.zeros(n_q, n_k)}[
        how
    ]
    output, lse = flash(2, 2)(*arrays, mask, return_lse=True)
    assert output.requires_grad and lse.requires_grad
    for gradient, array in zip(torch.autograd.grad(output.sum(), arrays), arrays, strict=True):
        close(gradient, torch.zeros_like(array), atol=0)


@pytest.mark.parametrize("n_q, n_kv", [(4, 2), (6, 2), (3, 1)])
def test_grouped_heads_gather_their_gradients(n_q, n_kv):
    rng = np.random.default_rng(8)
    shapes = (2, n_q, 3, 4), (2, n_kv, 5, 4), (2, n_kv, 5, 2)
    arrays = leaves(rng.standard_normal(shape) for shape in shapes)
    weighting = torch.asarray(rng.standard_normal((2, n_q, 3, 2)))
    want = torch.autograd.grad((sdpa(*arrays, enable_gqa=True) * weighting).sum(), arrays)
    got = torch.autograd.grad((flash(2, 2)(*arrays, enable_gqa=True) * weighting).sum(), arrays)
    for mine, torchs in zip(got, want, strict=True):
        assert mine.shape == torchs.shape
        close(mine, torchs)


def test_what_was_broadcast_is_summed(lib):
    query, key, value = random_qkv(9, (4, 2), 3, 5, 2, 3)
    for at, arrays in enumerate(
        (
            (query, key[:1], value[:1]),
            (query, key[0, 0], value[0, 0]),
            (query[:1, :1], key, value),
            (query[0, 0], key[:, :1], value[0]),
        )
    ):
        check_backward(lib, arrays, padding_mask([2, 5, 0, 4], 5), {}, {"block_q": 2, "block_k": 2}, at)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 3), (1, 2)], ids=str)
def test_torch_asks_for_some_gradients_only(wanted):
    arrays = [torch.asarray(a) for a in (*random_qkv(10, (2,), 3, 4, 2, 3), np.ones((1, 4)))]
    for place in wanted:
        arrays[place].requires_grad_()
    inputs = [arrays[place] for place in wanted]
    got = torch.autograd.grad(flash(2, 2)(*arrays).square().sum(), inputs)
    want = torch.autograd.grad(attention(*arrays).square().sum(), inputs)
    for mine, theirs in zip(got, want, strict=True):
        close(mine, theirs)
    # one function of ours, whichever input asks: through the tiles' own steps torch would keep every tile
    assert flash(2, 2)(*arrays).grad_fn.name() == "FlashAttentionBackward"
    with torch.no_grad():
        assert not flash(2, 2)(*arrays).requires_grad
    assert not flash(2, 2)(*(a.detach() for a in arrays)).requires_grad


def test_a_loss_of_lse_alone():
    arrays = leaves(random_qkv(11, (2,), 3, 4, 2, 3))
    lse = flash(2, 2)(*arrays, return_lse=True)[1]
    got = torch.autograd.grad(lse.square().sum(), arrays)
    other = leaves(random_qkv(11, (2,), 3, 4, 2, 3))
    want = torch.autograd.grad(
        attention_steps(*other).lse.square().sum(), other, allow_unused=True, materialize_grads=True
    )
    for mine, theirs in zip(got, want, strict=True):
        close(mine, theirs)
    assert got[2].abs().max() == 0


def test_N34_repeated_calls_are_bit_equal():
    arrays = [torch.asarray(a).float() for a in random_qkv(13, (2, 3), 33, 65, 8, 5)]
    runs = []
    for _ in range(5):
        inputs = [a.clone().requires_grad_() for a in arrays]
        output, lse = flash(16, 16)(*inputs, return_lse=True)
        gradients = torch.autograd.grad(output.square().sum() + lse.sum(), inputs)
        runs.append((output.detach(), lse.detach(), *gradients))
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


# --- memory ------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any torch operation returns."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("call, bounded", [(flash(64, 64), True), (attention, False)], ids=["tiles", "plain"])
def test_no_tensor_of_a_training_step_is_larger_than_a_tile_or_an_input(call, bounded):
    arrays = [torch.randn(1024, 8, requires_grad=True) for _ in range(3)]
    kept = []

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    with Largest() as largest, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call(*arrays, is_causal=True).sum().backward()
    assert (largest.entries <= 1024 * 8) == bounded
    assert (max(kept) <= 1024 * 8) == bounded
    if bounded:
        assert sum(kept) == 4 * 1024 * 8 + 1024  # Q, K, V, O and lse


def test_numpy_holds_no_matrix_at_4096_tokens():
    arrays = [a.astype(np.float32) for a in random_qkv(14, (), 4096, 4096, 8, 8)]
    tracemalloc.start()
    try:
        output, lse = flash_attention(*arrays, is_causal=True, block_q=256, block_k=256, return_lse=True)
        flash_attention_backward(*arrays, output, lse, output, is_causal=True, block_q=256, block_k=256)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 9 arrays of 4096 x 8, and a handful of tiles of 256 x 256; one matrix would take 64 MiB
    assert peak < 5 * 2**20


# --- low precision -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize(
    "n_q, n_k, width, d_v, masked", [(17, 33, 64, 40, False), (65, 65, 40, 8, True), (3, 129, 8, 64, True)]
)
def test_low_precision_errs_at_most_twice_the_plain_formula(dtype, block, n_q, n_k, width, d_v, masked):
    arrays = [torch.asarray(a).to(dtype) for a in random_qkv(17, (2, 3), n_q, n_k, width, d_v, spread=2.0)]
    mask = causal_mask(n_q, n_k, align="bottom_right", like=arrays[0]) if masked else None
    exact = sdpa(*(a.double() for a in arrays), mask)
    ours = flash(block, block)(*arrays, mask)
    assert ours.dtype == dtype
    assert worst(ours, exact) <= 2 * worst(plain_formula(*arrays, mask), exact)
    if dtype != torch.float32:
        # statistics in float32, one rounding at the end: half a step of the type, and a little
        step = torch.finfo(dtype).eps * exact.abs().clamp_min(torch.finfo(dtype).tiny)
        assert bool(((ours.double() - exact).abs() <= 0.51 * step + 1e-5).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n_q, n_k, width, d_v", [(17, 33, 64, 40), (65, 65, 40, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_low_precision_gradients_err_at_most_three_times_the_plain_formulas(
    dtype, n_q, n_k, width, d_v, masked
):
    data = [torch.asarray(a).to(dtype) for a in random_qkv(9, (2, 3), n_q, n_k, width, d_v)]
    mask = causal_mask(n_q, n_k, align="bottom_right", like=data[0]) if masked else None
    weighting = torch.asarray(weightings(9, (2, 3), n_q, d_v)[0]).to(dtype)

    def gradients(call, arrays):
        return torch.autograd.grad((call(*arrays) * weighting.to(arrays[0].dtype)).sum(), arrays)

    low = [a.clone().requires_grad_() for a in data]
    exact = gradients(lambda *a: sdpa(*a, mask), [a.double().requires_grad_() for a in data])
    plain = gradients(lambda *a: plain_formula(*a, mask), low)
    for mine, theirs, right in zip(
        gradients(lambda *a: flash(16, 16)(*a, mask), low), plain, exact, strict=True
    ):
        assert mine.dtype == dtype
        assert worst(mine, right) <= 3 * worst(theirs, right)


@pytest.mark.parametrize("block_k", [16, 128])
def test_N32_bfloat16_with_half_the_keys_masked(block_k):
    query, key, value = (torch.asarray(5 * a).bfloat16() for a in random_qkv(20, (1, 1), 1, 1000, 64, 64))
    mask = torch.arange(1000)[None, :] < 580
    exact = sdpa(query.double(), key[:, :, :580].double(), value[:, :, :580].double())
    plain = plain_formula(query, key[:, :, :580], value[:, :, :580])
    assert worst(flash(16, block_k)(query, key, value, mask), exact) <= 2 * worst(plain, exact)


def test_a_long_sum_in_half_precision_is_kept_in_single():
    """4096 values of 1 with equal weights: a running sum in bfloat16 stops at 256."""
    ones = torch.ones(4096, 1, dtype=torch.bfloat16)
    close(flash(1, 64)(ones[:1], ones, ones), [[1.0]], atol=0)
    close(flash(1, 64)(ones[:1], ones, ones, return_lse=True)[1], [1 + math.log(4096)], rtol=1e-6)


# --- properties --------------------------------------------------------------------------------------------


def test_a_shift_of_a_whole_row_moves_lse_and_nothing_else(lib):
    arrays = [lib.array(a) for a in random_qkv(14, (2,), 3, 4, 5, 2)]
    before = flash(2, 3)(*arrays, return_lse=True)
    for shift in (-700.0, 1.0, 1e4):
        after = flash(2, 3)(*arrays, lib.array(np.full((1, 4), shift)), return_lse=True)
        close(after[0], to_numpy(before[0]), atol=1e-11)
        close(after[1], to_numpy(before[1]) + shift, rtol=1e-11)


def test_permuting_keys_with_their_values_changes_nothing():
    query, key, value = random_qkv(15, (2, 3), 4, 17, 5, 2)
    mask = np.random.default_rng(1).random((4, 17)) < 0.4
    order = np.random.default_rng(2).permutation(17)
    before = flash(3, 4)(query, key, value, mask)
    close(flash(3, 4)(query, key[..., order, :], value[..., order, :], mask[:, order]), before)
    assert worst(flash(3, 4)(query, key[..., order, :], value, mask), before) > 1e-2


@pytest.mark.parametrize("token", range(4))
def test_perturbing_a_token_moves_exactly_the_rows_that_see_it(token):
    query, key, value = random_qkv(16, (2,), 4, 4, 5, 2)
    before = flash(2, 2)(query, key, value, is_causal=True)
    key[:, token] += 5
    value[:, token] -= 3
    after = flash(2, 2)(query, key, value, is_causal=True)
    moved = (np.abs(after - before) > 1e-9).any(axis=(0, 2))
    assert moved.tolist() == [i >= token for i in range(4)]


def test_the_set_whose_sizes_all_differ(lib):
    query, key, value = all_sizes_differ()
    got = flash(3, 2)(*(lib.array(a) for a in (query, key, value)))
    close(got, plain_attention(query, key, value)[0])


def test_a_gradient_of_lse_of_another_shape_is_refused():
    query, key, value = random_qkv(1, (2,), 3, 4, 5, 6)
    output, lse = flash_attention(query, key, value, return_lse=True)
    with pytest.raises(ShapeError, match=r"grad_lse has shape \(3,\), wanted \(2, 3\)"):
        flash_attention_backward(query, key, value, output, lse, output, grad_lse=lse[0])

"""Scores, scale, mask, softmax, weighted sum, and the whole: values, types, sizes, refusals, properties."""

import inspect
import math

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

import attnlib
from attnlib import (
    AttnError,
    ShapeError,
    apply_mask,
    attention,
    attention_steps,
    causal_mask,
    default_scale,
    padding_mask,
    scale_scores,
    scores,
    softmax,
    weighted_sum,
)
from attnlib.examples import all_sizes_differ

LENGTHS = [1, 2, 3, 7, 16, 17, 33, 65, 127, 129]
WIDTHS = [1, 3, 8, 40, 64]


# --- the comparison itself must be able to fail -----------------------------------------------------------


@pytest.mark.parametrize(
    "got, want",
    [
        ([1.0, math.nan], [1.0, 2.0]),
        ([1.0, math.nan], [1.0, math.nan]),  # a NaN reference proves nothing
        ([1.0, math.inf], [1.0, 2.0]),
        ([1.0, -math.inf], [1.0, math.inf]),
        ([1.0, 2.0], [1.0, -math.inf]),
        ([1.0, 2.0], [1.0, 2.001]),
        ([1.0, 2.0], [[1.0, 2.0]]),
        ([1.0], 1.0),
    ],
    ids=str,
)
def test_close_refuses(got, want):
    with pytest.raises(AssertionError):
        close(np.asarray(got), np.asarray(want))


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(len(LENGTHS)), ids=lambda i: f"T={LENGTHS[i]}")
def test_every_length_equals_torch(place, lib):
    n_q, n_k = LENGTHS[place], LENGTHS[(7 * place + 3) % 10]  # all ten lengths of keys too, none equal
    assert n_q != n_k
    width, d_v = WIDTHS[place % 5], WIDTHS[(place + 2) % 5]
    query, key, value = random_qkv(place, (2, 3), n_q, n_k, width, d_v)
    arrays = [lib.array(a) for a in (query, key, value)]
    close(attention(*arrays), torch_attention(query, key, value))
    steps = attention_steps(*arrays, is_causal=True, causal_align="top_left")
    close(steps.output, torch_attention(query, key, value, is_causal=True))
    assert steps.output.shape == (2, 3, n_q, d_v) and steps.lse.shape == (2, 3, n_q)
    square = random_qkv(place, (2, 1), n_q, n_q, width, d_v)
    close(
        attention(*(lib.array(a) for a in square), is_causal=True), torch_attention(*square, is_causal=True)
    )


@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 3), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("n_q, n_k, width, d_v", [(1, 1, 1, 3), (3, 2, 3, 1), (2, 7, 8, 3), (7, 3, 40, 8)])
def test_every_step_equals_the_plain_loops(n_q, n_k, width, d_v, lead, lib):
    query, key, value = random_qkv(n_q, lead, n_q, n_k, width, d_v)
    arrays = [lib.array(a) for a in (query, key, value)]
    mask = causal_mask(n_q, n_k, align="bottom_right")
    steps = attention_steps(*arrays, lib.array(mask))
    output, weights, lse = plain_attention(query, key, value, mask)
    raw = np.einsum("...id,...jd->...ij", query, key)
    close(steps.scores, raw)
    close(steps.scaled, raw / math.sqrt(width))
    close(steps.masked, np.where(mask, raw / math.sqrt(width), -np.inf))
    close(steps.weights, weights)
    close(steps.output, output)
    close(steps.lse, lse)
    assert all(lib.owns(array) for array in steps)
    close(attention(*arrays, lib.array(mask)), output)
    close(attention(*arrays, scale=-0.3), plain_attention(query, key, value, scale=-0.3)[0])


def test_the_steps_called_one_by_one_give_the_whole(lib):
    query, key, value = (lib.array(a) for a in all_sizes_differ())
    mask = causal_mask(4, 5, align="bottom_right", like=query)
    s = scores(query, key)
    scaled = scale_scores(s, default_scale(6))
    masked = apply_mask(scaled, mask)
    weights, lse = softmax(masked, mask, return_lse=True)
    output = weighted_sum(weights, value)
    steps = attention_steps(query, key, value, mask)
    for one, other in zip((s, scaled, masked, weights, output, lse), steps, strict=True):
        close(one, to_numpy(other))
    close(softmax(masked, mask), to_numpy(weights))
    assert steps._fields == ("scores", "scaled", "masked", "weights", "output", "lse")


def test_without_a_mask_masked_is_scaled_and_scores_are_unscaled(lib):
    query, key, value = all_sizes_differ()
    steps = attention_steps(*(lib.array(a) for a in (query, key, value)), scale=0.25)
    close(steps.masked, to_numpy(steps.scaled))
    close(steps.scores, query @ np.swapaxes(key, -1, -2))
    close(steps.scaled, query @ np.swapaxes(key, -1, -2) * 0.25)
    same = lib.array([[1.0, 2.0]])
    close(apply_mask(same), [[1, 2]])
    close(apply_mask(same, None), [[1, 2]])


@pytest.mark.parametrize("scale", [0, 1, -1.5, 1e-3, np.float64(0.5), np.float32(0.5)], ids=repr)
def test_any_finite_scale(scale, lib):
    query, key, value = random_qkv(1, (2,), 3, 4, 5, 2)
    got = attention(*(lib.array(a, "float32") for a in (query, key, value)), scale=scale)
    assert lib.dtype(got) == "float32"  # NumPy's own float64 would promote it
    close(got, plain_attention(query, key, value, scale=float(scale))[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, "half", [1.0, 2.0], 1j], ids=repr)
def test_a_scale_that_is_no_finite_number_is_refused(scale):
    query, key, value = random_qkv(1, (), 2, 2, 2, 2)
    for call in (lambda: attention(query, key, value, scale=scale), lambda: scale_scores(query, scale)):
        with pytest.raises(AttnError, match="wanted one finite number such as 1 / sqrt"):
            call()


@pytest.mark.parametrize("width", [1, 4, 6, 64, 1024])
def test_default_scale(width):
    assert (
        default_scale(width) == pytest.approx(width**-0.5, rel=1e-15) and type(default_scale(width)) is float
    )


def test_zero_width_needs_a_scale(lib):
    query, key, value = (lib.array(a) for a in random_qkv(1, (), 2, 3, 0, 2))
    with pytest.raises(ShapeError, match="width of query and key is 0, wanted a whole number of at least 1"):
        attention(query, key, value)
    close(attention(query, key, value, scale=1.0), np.tile(to_numpy(value).mean(axis=0), (2, 1)))


# --- sizes that are zero, leading axes, views -------------------------------------------------------------


ZERO = [((0,), 3, 2), ((0, 2), 3, 2), ((2, 0), 3, 2), ((), 0, 3), ((2,), 3, 0), ((2, 3), 0, 0), ((), 1, 0)]


@pytest.mark.parametrize("lead, n_q, n_k", ZERO, ids=str)
@pytest.mark.parametrize("how", ["plain", "bool", "additive", "causal"])
def test_N14_zero_lengths(lead, n_q, n_k, how, lib):
    query, key, value = (lib.array(a) for a in random_qkv(1, lead, n_q, n_k, 4, 5))
    kwargs = {"is_causal": True, "causal_align": "bottom_right"} if how == "causal" else {}
    if how in ("bool", "additive"):
        ones = np.ones((n_q, n_k), bool)
        kwargs["attn_mask"] = lib.array(ones if how == "bool" else np.zeros((n_q, n_k)))
    steps = attention_steps(query, key, value, **kwargs)
    assert steps.weights.shape == (*lead, n_q, n_k)
    if n_k == 0:
        close(steps.output, np.zeros((*lead, n_q, 5)))
        close(steps.lse, np.full((*lead, n_q), -np.inf))
    else:
        assert steps.output.shape == (*lead, n_q, 5) and steps.lse.shape == (*lead, n_q)
    assert attention(query, key, value, **kwargs).shape == (*lead, n_q, 5)


def test_N14_zero_length_sequences_in_a_padded_batch(lib):
    query, key, value = random_qkv(2, (4, 1), 2, 2, 3, 5)
    steps = attention_steps(
        *(lib.array(a) for a in (query, key, value)), lib.array(padding_mask([0, 1, 0, 2], 2))
    )
    got = to_numpy(steps.output)
    close(got[[0, 2]], np.zeros((2, 1, 2, 5)))
    close(got[1], np.broadcast_to(value[1, :, :1], (1, 2, 5)))
    close(got[3], plain_attention(query[3], key[3], value[3])[0])
    assert np.isneginf(to_numpy(steps.lse)[[0, 2]]).all()


@pytest.mark.parametrize("n_q, n_k, width", [(1, 20, 128), (1, 1, 3), (3, 799, 16)])
def test_N11_one_query_against_many_keys(n_q, n_k, width, lib):
    query, key, value = random_qkv(3, (1, 2), n_q, n_k, width, 5)
    got = attention(*(lib.array(a) for a in (query, key, value)))
    close(got, torch_attention(query, key, value))
    if n_k == 1:
        close(got, value, atol=0, rtol=0)


@pytest.mark.parametrize("d, d_v", [(8, 3), (3, 8), (1, 64), (64, 1)])
def test_N40_the_output_is_as_wide_as_the_values(d, d_v, lib):
    query, key, value = random_qkv(4, (2,), 3, 4, d, d_v)
    got = attention(*(lib.array(a) for a in (query, key, value)))
    assert got.shape == (2, 3, d_v)
    close(got, torch_attention(query, key, value))


def test_N28_leading_axes_broadcast_or_are_refused(lib):
    query, key, value = random_qkv(5, (4, 1), 3, 5, 2, 6)
    one = [lib.array(a) for a in (query, key[:1], value[:1])]
    close(attention(*one), plain_attention(query, key[:1], value[:1])[0])
    no_batch = [lib.array(a) for a in (query, key[0, 0], value[0, 0])]
    close(attention(*no_batch), plain_attention(query, key[:1], value[:1])[0])
    close(
        attention(lib.array(query[:1]), *(lib.array(a) for a in (key, value))),
        plain_attention(query[:1], key, value)[0],
    )
    three = [lib.array(a) for a in (query, key[:3], value[:3])]
    with pytest.raises(ShapeError, match=r"query \(4, 1, 3, 2\), key \(3, 1, 5, 2\)"):
        attention(*three)
    with pytest.raises(ShapeError, match=r"value \(3, 1, 5, 6\)"):
        attention(*(lib.array(a) for a in (query, key, value[:3])))


def test_a_mask_per_batch_item_over_shared_keys(lib):
    query, key, value = random_qkv(6, (2, 3), 4, 5, 2, 6)
    mask = padding_mask([2, 4], 5)
    arrays = [lib.array(a) for a in (query, key[0, 0], value[0, 0])]
    close(attention(*arrays, lib.array(mask)), plain_attention(query, key[0, 0], value[0, 0], mask)[0])


def views(array):
    """The same (..., tokens, width) data in memory that is not packed, one way after the other."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]))
    wide[..., ::2] = array
    yield "every second column", wide[..., ::2]
    yield "transposed", np.ascontiguousarray(np.swapaxes(array, -1, -2)).swapaxes(-1, -2)
    yield "reversed", np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    yield "heads inside", np.ascontiguousarray(np.swapaxes(array, -3, -2)).swapaxes(-3, -2)
    yield "broadcast", np.broadcast_to(array[..., :1, :1, :], array.shape)


@pytest.mark.parametrize("which", range(5), ids=[name for name, _ in views(np.zeros((1, 1, 1)))])
def test_N12_views_equal_packed_copies_and_nothing_is_modified(which, lib):
    packed = random_qkv(7, (2, 3), 4, 5, 6, 7)
    viewed = [list(views(array))[which][1] for array in packed]
    assert not any(view.flags.c_contiguous for view in viewed)
    copies = [np.array(view, order="C") for view in viewed]
    mask = np.random.default_rng(8).random((5, 4)).T < 0.7  # a mask with odd strides too
    if lib.name == "torch" and min(viewed[0].strides) < 0:
        pytest.skip("torch has no negative strides")
    viewed = [torch_view(v) if lib.name == "torch" else lib.wrap(v) for v in viewed]
    before = [to_numpy(v).copy() for v in viewed]
    mask_before = mask.copy()
    got = attention_steps(*viewed, lib.array(mask))
    close(got.output, plain_attention(*copies, mask)[0])
    close(got.output, to_numpy(attention(*(lib.array(c) for c in copies), lib.array(mask))))
    assert all(np.array_equal(to_numpy(v), b) for v, b in zip(viewed, before, strict=True))
    assert np.array_equal(mask, mask_before)


def torch_view(view):
    """A torch tensor with the strides of a NumPy view."""
    base = torch.asarray(np.array(view))
    strides = [s // view.itemsize for s in view.strides]
    room = torch.full((1 + sum(s * (n - 1) for s, n in zip(strides, view.shape, strict=True)),), math.nan)
    room = room.to(base.dtype)
    result = room.as_strided(view.shape, strides)
    if 0 in strides:
        kept = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        result[kept] = base[kept]
    else:
        result.copy_(base)
    assert not result.is_contiguous()
    return result


# --- empty rows, NaN, infinities --------------------------------------------------------------------------


def test_N01_a_row_that_sees_nothing_is_zero(lib):
    query, key = lib.array([[1.0, 0], [0, 1]]), lib.array([[1.0, 0], [0, 1], [1, 1]])
    value = lib.array([[1.0, 2], [3, 4], [5, 6]])
    mask = np.array([[False, False, False], [True, True, False]])
    for form in (mask, np.where(mask, 0.0, -np.inf)):
        steps = attention_steps(query, key, value, lib.array(form))
        close(steps.output, [[0, 0], [2.3395, 3.3395]], rtol=0, atol=5.1e-5)
        close(steps.weights[0, :], [0, 0, 0], rtol=0, atol=0)
        close(steps.lse[0], -np.inf)
        close(steps.masked[0, :], [-np.inf] * 3)
        close(attention(query, key, value, lib.array(form))[0, :], [0, 0], rtol=0, atol=0)


def test_emptiness_is_read_from_the_mask_never_from_the_numbers(lib):
    value = lib.array([[1.0], [3.0]])
    # scores of -1e300 are numbers: their row is not empty
    close(attention(lib.array([[1e150]]), lib.array([[-1e150], [-1e150]]), value, scale=1.0), [[2]])
    # a row of -inf without a mask is somebody's mistake, and shows
    with np.errstate(invalid="ignore"):
        assert np.isnan(to_numpy(softmax(lib.array([[-np.inf, -np.inf]])))).all()
    # and so it does with a mask, where that mask allows the keys
    for mask in (np.ones((1, 2), bool), np.zeros((1, 2))):
        with np.errstate(invalid="ignore"):
            got = attention(lib.array([[1.0]]), lib.array([[-np.inf], [-np.inf]]), value, lib.array(mask))
        assert np.isnan(to_numpy(got)).all()
    # an empty row is empty whatever its query holds
    mask = lib.array(np.array([[False, False], [True, True]]))
    for poison in (math.nan, math.inf, 1e300):
        query, key = lib.array([[poison, poison], [0, 0]]), lib.array([[1.0, 2], [3, 4]])
        close(attention(query, key, value, mask), [[0], [2]])


@pytest.mark.parametrize("where", ["query", "key", "value"])
def test_a_nan_in_something_visible_shows(where, lib):
    arrays = dict(zip(("query", "key", "value"), random_qkv(9, (2,), 3, 4, 5, 2), strict=True))
    clean = plain_attention(*arrays.values(), causal_mask(3, 4, align="top_left"))[0]
    arrays[where][0, 1, 0] = np.nan
    got = attention(*(lib.array(a) for a in arrays.values()), is_causal=True, causal_align="top_left")
    shows = np.zeros((2, 3, 2), bool)
    shows[0, 1] = True
    if where != "query":
        shows[0, 2] = True  # the later query sees token 1 as well
    if where == "value":
        shows[0, :, 1] = False  # only the NaN's own column
        got = got[:, 1:, :]  # 0 x NaN: what row 0 shows of a value that others see is not promised
        clean, shows = clean[:, 1:], shows[:, 1:]
    close(got, clean, nan_at=shows)


def test_an_infinite_key_that_is_visible_shows(lib):
    query, key, value = lib.array([[1.0]]), lib.array([[np.inf], [0.0]]), lib.array([[1.0], [2.0]])
    with np.errstate(invalid="ignore"):
        assert np.isnan(to_numpy(attention(query, key, value))).all()


def test_steps_show_hidden_keys_in_scores_and_scaled_only(lib):
    query, key, value = random_qkv(10, (), 2, 3, 2, 2)
    key[1] = value[1] = np.nan
    mask = np.array([[True, False, True]])
    steps = attention_steps(*(lib.array(a) for a in (query, key, value)), lib.array(mask))
    assert np.isnan(to_numpy(steps.scores)[:, 1]).all() and np.isnan(to_numpy(steps.scaled)[:, 1]).all()
    for array in steps[2:]:
        assert not np.isnan(to_numpy(array)).any()


# --- softmax by itself ------------------------------------------------------------------------------------


def test_softmax_survives_large_scores(lib):
    close(softmax(lib.array([[100.0, 101, 102]])), [[0.0900, 0.2447, 0.6652]], rtol=0, atol=5.1e-5)
    weights, lse = softmax(lib.array([[88.8, 0.0]], "float32"), return_lse=True)  # exp(88.8) > float32's top
    close(weights, [[1, 0]], atol=1e-7)
    close(lse, [88.8], rtol=1e-6)
    close(softmax(lib.array([[8e307, -8e307]]), return_lse=True)[0], [[1, 0]])


def test_N23_softmax_runs_over_the_keys(lib):
    steps = attention_steps(*(lib.array(a) for a in random_qkv(11, (1,), 2, 3, 4, 5)))
    weights = to_numpy(steps.weights)
    close(weights.sum(axis=-1), np.ones((1, 2)))
    assert np.abs(weights.sum(axis=-2) - 1).min() > 1e-3
    assert np.abs(weights.sum(axis=0) - 1).min() > 1e-3


def test_softmax_without_keys_and_with_a_mask_that_empties(lib):
    weights, lse = softmax(lib.array(np.zeros((2, 0))), return_lse=True)
    assert weights.shape == (2, 0)
    close(lse, [-np.inf, -np.inf])
    mask = lib.array(np.array([[True, False], [False, False]]))
    weights, lse = softmax(apply_mask(lib.array([[2.0, 7.0], [1.0, 1.0]]), mask), mask, return_lse=True)
    close(weights, [[1, 0], [0, 0]])
    close(lse, [2, -np.inf])


def test_N19_lse_has_one_number_per_query_and_merges_partial_results(lib):
    query, key, value = random_qkv(12, (2, 3), 4, 5, 6, 7)
    zero = attention_steps(lib.array(0 * query), lib.array(key), lib.array(value))
    close(zero.lse, np.full((2, 3, 4), math.log(5)))  # natural logarithm: 1.6094
    whole = attention_steps(*(lib.array(a) for a in (query, key, value)))
    parts = [
        attention_steps(lib.array(query), lib.array(key[..., keys, :]), lib.array(value[..., keys, :]))
        for keys in (slice(0, 2), slice(2, 5))
    ]
    lse = np.logaddexp(to_numpy(parts[0].lse), to_numpy(parts[1].lse))
    close(lse, to_numpy(whole.lse))
    merged = sum(np.exp(to_numpy(p.lse) - lse)[..., None] * to_numpy(p.output) for p in parts)
    close(merged, to_numpy(whole.output))


def test_lse_is_torchs():
    q, k, v = (torch.asarray(a).float() for a in random_qkv(13, (1, 2), 5, 7, 8, 8))
    _, want = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    close(attention_steps(q, k, v).lse, want, rtol=1e-5, atol=1e-5)


# --- properties -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(4))
def test_rows_sum_to_one_or_zero(n, lib):
    query, key, value = random_qkv(n, (2, 3), 4, 7, 5, 2, spread=4.0)
    mask = np.random.default_rng(n).random((2, 1, 4, 7)) < 0.3
    weights = to_numpy(attention_steps(*(lib.array(a) for a in (query, key, value)), lib.array(mask)).weights)
    assert ((weights >= 0) & (weights <= 1)).all()
    close(weights.sum(axis=-1), np.broadcast_to(mask.any(axis=-1), (2, 3, 4)).astype(float))
    assert (weights[~np.broadcast_to(mask, weights.shape)] == 0).all()


def test_a_shift_of_a_whole_row_changes_nothing(lib):
    query, key, value = random_qkv(14, (2,), 3, 4, 5, 2)
    arrays = [lib.array(a) for a in (query, key, value)]
    before = attention_steps(*arrays)
    for shift in (-700.0, 1.0, 1e4):
        close(softmax(before.masked + shift), to_numpy(before.weights), atol=1e-11)
        row = lib.array(np.full((1, 4), shift))
        after = attention_steps(*arrays, row)
        close(after.weights, to_numpy(before.weights), atol=1e-11)
        close(after.lse, to_numpy(before.lse) + shift, rtol=1e-11)
    same_for_all = lib.array(key + np.random.default_rng(0).standard_normal(5))  # adds q . u to a whole row
    close(attention(arrays[0], same_for_all, arrays[2]), to_numpy(before.output))


def test_permuting_keys_with_their_values_changes_nothing(lib):
    query, key, value = random_qkv(15, (2, 3), 4, 7, 5, 2)
    mask = np.random.default_rng(1).random((4, 7)) < 0.6
    order = np.random.default_rng(2).permutation(7)
    before = attention(*(lib.array(a) for a in (query, key, value)), lib.array(mask))
    shuffled = (query, key[..., order, :], value[..., order, :])
    close(attention(*(lib.array(a) for a in shuffled), lib.array(mask[:, order])), to_numpy(before))
    only_keys = attention(*(lib.array(a) for a in (query, key[..., order, :], value)), lib.array(mask))
    assert worst(only_keys, before) > 1e-2


@pytest.mark.parametrize("token", range(4))
def test_perturbing_a_token_moves_exactly_the_rows_that_see_it(token, lib):
    query, key, value = random_qkv(16, (2,), 4, 4, 5, 2)
    before = to_numpy(attention(*(lib.array(a) for a in (query, key, value)), is_causal=True))
    key[:, token] += 5
    value[:, token] -= 3
    after = to_numpy(attention(*(lib.array(a) for a in (query, key, value)), is_causal=True))
    moved = (np.abs(after - before) > 1e-9).any(axis=(0, 2))
    assert moved.tolist() == [i >= token for i in range(4)]


# --- precision --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "n_q, n_k, width, d_v, masked", [(17, 33, 64, 40, False), (65, 65, 40, 8, True), (3, 129, 8, 64, True)]
)
def test_low_precision_errs_at_most_twice_the_plain_formula(dtype, n_q, n_k, width, d_v, masked):
    arrays = [torch.asarray(a).to(dtype) for a in random_qkv(17, (2, 3), n_q, n_k, width, d_v, spread=2.0)]
    mask = causal_mask(n_q, n_k, align="bottom_right", like=arrays[0]) if masked else None
    exact = sdpa(*(a.double() for a in arrays), mask)
    ours = attention(*arrays, mask)
    assert ours.dtype == dtype
    assert worst(ours, exact) <= 2 * worst(plain_formula(*arrays, mask), exact)
    if dtype != torch.float32:
        # statistics in float32, one rounding at the end: half a step of the type, and a little
        step = torch.finfo(dtype).eps * exact.abs().clamp_min(torch.finfo(dtype).tiny)
        assert bool(((ours.double() - exact).abs() <= 0.51 * step + 1e-5).all())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_results_come_in_the_inputs_type_and_lse_in_at_least_single(dtype):
    for library in LIBRARIES[:3]:
        if dtype == "float16" and library.name == "strict":
            continue  # the standard has no half precision
        arrays = [library.array(a, dtype) for a in random_qkv(18, (2,), 3, 4, 5, 2)]
        mask = library.array([[0.5, 0.0, -np.inf, 1.0]])  # its own type, float64, changes no result's
        steps = attention_steps(*arrays, mask)
        at_least_single = "float64" if dtype == "float64" else "float32"
        for name, array in steps._asdict().items():
            wanted = dtype if name in ("weights", "output") else at_least_single
            assert library.dtype(array) == wanted, name
        assert library.dtype(attention(*arrays)) == dtype
        assert library.dtype(scores(*arrays[:2])) == library.dtype(softmax(steps.masked)) == at_least_single
        assert library.dtype(softmax(arrays[0])) == at_least_single


def test_bfloat16_types():
    arrays = [torch.asarray(a).bfloat16() for a in random_qkv(19, (2,), 3, 4, 5, 2)]
    steps = attention_steps(*arrays, torch.zeros(3, 4, dtype=torch.bfloat16))
    assert [a.dtype for a in steps] == [torch.float32] * 3 + [torch.bfloat16] * 2 + [torch.float32]


@pytest.mark.parametrize("number", [40.0, 300.0])
@pytest.mark.parametrize("kind", ["numpy", "float16", "bfloat16"])
def test_N05_half_precision_scores_do_not_overflow(number, kind):
    query, key = np.full((2, 64), number), np.full((3, 64), number)
    key[2] /= 2
    value = np.array([[1.0], [2.0], [4.0]])
    if kind == "numpy":
        arrays = [a.astype(np.float16) for a in (query, key, value)]
    else:
        arrays = [torch.asarray(a).to(getattr(torch, kind)) for a in (query, key, value)]
    steps = attention_steps(*arrays)
    assert all(np.isfinite(to_numpy(array)).all() for array in steps)
    close(steps.output, [[1.5], [1.5]])
    close(steps.scaled[:, 0], [8 * number**2] * 2)


def test_N32_bfloat16_with_half_the_keys_masked():
    query, key, value = (torch.asarray(5 * a).bfloat16() for a in random_qkv(20, (1, 1), 1, 1000, 64, 64))
    mask = torch.arange(1000)[None, :] < 580
    exact = sdpa(query.double(), key[:, :, :580].double(), value[:, :, :580].double())
    plain = plain_formula(query, key[:, :, :580], value[:, :, :580])
    assert worst(attention(query, key, value, mask), exact) <= 2 * worst(plain, exact)


def test_N06_the_scale_uses_the_width_of_one_head(lib):
    # model width 8, two heads of 4
    query, key = lib.array([[2.0, 0, 0, 0]]), lib.array([[2.0, 0, 0, 0], [0, 0, 0, 0]])
    value = lib.array([[1.0], [0.0]])
    four = {"rtol": 0, "atol": 5.1e-5}
    close(attention(query, key, value), [[0.8808]], **four)
    close(attention(query, key, value, scale=8**-0.5), [[0.8044]], **four)
    close(attention(query, key, value, scale=1), [[0.9820]], **four)


def test_N07_there_is_no_dropout_to_forget():
    for call in (attention, attention_steps):
        assert not [name for name in inspect.signature(call).parameters if "drop" in name or "train" in name]
    assert "no dropout" in attention.__doc__
    arrays = random_qkv(21, (2,), 3, 4, 5, 2)
    assert np.array_equal(attention(*arrays), attention(*arrays))


# --- refusals ---------------------------------------------------------------------------------------------

GOOD = random_qkv(22, (2,), 3, 4, 5, 6)


def refuse(words, *arrays, call=attention, **how):
    with pytest.raises(ShapeError, match=f"(?s){words}") as refusal:
        call(*arrays, **how)
    assert str(refusal.value).isascii()  # a Windows console must be able to print it (B24)


def test_shapes_that_do_not_fit_name_both_numbers(lib):
    query, key, value = (lib.array(a) for a in GOOD)
    refuse("query has width 5, key has width 3.*equal widths", query, key[..., :3], value)
    refuse(r"key has 4 tokens, value has 2.*one value row per key", query, key, value[..., :2, :])
    refuse(r"query \(2, 3, 5\), key \(2, 4, 5\), value \(2, 2, 6\)", query, key, value[..., :2, :])
    refuse(r"query has shape \(5,\), wanted at least 2 axes", query[0, 0, :], key, value)
    refuse(r"value has shape \(\), wanted at least 2 axes", query, key, value[0, 0, 0])
    refuse("width 5, key has width 3", query, key[..., :3], call=scores)
    refuse(r"key has shape \(5,\)", query, key[0, 0, :], call=scores)
    refuse(
        "weights have 5 columns .*, value has 4 rows.*one value row per key", query, value, call=weighted_sum
    )
    refuse(r"value has shape \(6,\)", query, value[0, 0, :], call=weighted_sum)


@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize("kind", ["int64", "int8", "bool", "complex128"])
def test_types_that_are_not_floating_are_refused(kind, place, lib):
    arrays = [lib.array(a) for a in GOOD]
    arrays[place] = lib.array(np.ones(GOOD[place].shape, kind))
    name = ("query", "key", "value")[place]
    for call in (attention, attention_steps):
        fix = "$" if kind == "complex128" else f": convert it, as in {name}"
        refuse(rf"{name} has type .*{kind}, wanted floating point{fix}", *arrays, call=call)


def test_the_single_steps_refuse_integers_too(lib):
    whole = lib.array(np.ones((2, 2), int))
    refuse("query has type .*int64, wanted floating point", whole, whole, call=scores)
    refuse("masked has type .*int64, wanted floating point", whole, call=softmax)


def test_mixed_types_and_libraries_are_refused(lib):
    query, key, value = (lib.array(a) for a in GOOD)
    refuse(
        "key has type .*float32, query has .*float64: wanted one type",
        query,
        lib.array(GOOD[1], "float32"),
        value,
    )
    refuse("value has type .*float32, query has .*float64", query, key, lib.array(GOOD[2], "float32"))
    other = np.asarray(GOOD[1]) if lib.name == "torch" else torch.asarray(GOOD[1])
    refuse("different libraries .*convert them first", query, other, value)
    library = {"numpy": "numpy", "torch": "torch"}.get(lib.name, "array_api_strict")
    for bad in (GOOD[0].tolist(), 1.0):
        wrap = rf"{library}.asarray\(query, dtype=key.dtype\)$"
        refuse(rf"query is a \w+, wanted an array: wrap it, as in {wrap}", bad, key, value)
    for bad in (None, "query", [[1.0], [1.0, 2.0]]):  # what nothing makes numbers of is told no way out
        refuse(r"query is a \w+, wanted an array$", bad, key, value)


def test_F8_values_keep_the_digits_that_weights_lack(lib):
    whole = lib.array(np.eye(2, dtype=int))
    value = lib.array(np.array([[0.7], [0.2]]))
    refuse(
        "weights has type .*int64, wanted floating point: convert it, as in weights",
        whole,
        value,
        call=weighted_sum,
    )
    refuse("value has type .*int64, wanted floating point", lib.array(np.eye(2)), whole, call=weighted_sum)
    refuse("weights has type .*bool", lib.array(np.eye(2, dtype=bool)), value, call=weighted_sum)
    narrow = lib.array(np.eye(2), "float32")
    close(weighted_sum(narrow, value * 1e300), [[0.7e300], [0.2e300]])
    assert lib.dtype(weighted_sum(narrow, value)) == "float64"
    wide = scores(narrow, lib.array(np.array([[1e300, 0.0]])))
    assert lib.dtype(wide) == "float64" and float(wide[0, 0]) == 1e300


def test_F27_a_bias_that_would_overflow_hides_nothing(lib):
    """One visible key has weight 1 whatever its score; sums beyond float32 must not hide it."""
    query, key, value = (lib.array(np.array([[n]]), "float32") for n in (-1e19, 1e19, 5.0))
    low = lib.array(np.array([[-3e38]]), "float32")
    close(attention(query, key, value, low, scale=1.0), [[5.0]])


def test_F25_numbers_without_an_axis_and_masks_on_integers_are_refused(lib):
    refuse("masked has shape .*, wanted at least 1 axis", lib.array(np.array(1.0)), call=softmax)
    whole = lib.array(np.ones((2, 2), int))
    refuse(
        "scaled has type .*int64, wanted floating", whole, lib.array(np.ones((2, 2), bool)), call=apply_mask
    )
    for width in (-1, 0, 2.5, True, "4"):
        refuse(
            "the width of query and key is .*, wanted a whole number of at least 1", width, call=default_scale
        )


def test_a_learned_scale_is_refused_instead_of_never_learning():
    query, key, value = (torch.from_numpy(a) for a in GOOD)
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    with pytest.raises(AttnError, match="multiply the query by it, and give scale=1.0"):
        attention(query, key, value, scale=scale)
    attention(query * scale, key, value, scale=1.0).sum().backward()
    assert scale.grad != 0
    close(attention(query, key, value, scale=scale.detach()), attention(query, key, value, scale=0.5))


def test_everything_attention_takes_attention_steps_takes():
    assert inspect.signature(attention) == inspect.signature(attention_steps)
    names = list(inspect.signature(attention).parameters)
    torchs = ["query", "key", "value", "attn_mask", "is_causal", "scale", "enable_gqa"]
    assert [n for n in names if n != "causal_align"] == torchs
    kinds = {p.kind for n, p in inspect.signature(attention).parameters.items() if n not in torchs[:4]}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert attnlib.attention is attention


def test_batch_axes_that_disagree_are_named_in_every_function():
    q, k = np.zeros((4, 2, 3)), np.zeros((3, 2, 3))
    with pytest.raises(ShapeError, match=r"\(4, 2, 3\).*\(3, 2, 3\)"):
        attnlib.scores(q, k)
    with pytest.raises(ShapeError, match=r"\(4, 2, 2\).*\(3, 2, 3\)"):
        attnlib.weighted_sum(np.zeros((4, 2, 2)), k)

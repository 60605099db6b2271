"""Masks: who may look at whom, in every builder, form, library and refusal."""

import math

import numpy as np
import pytest
import torch
from oracle import close, plain_attention, random_qkv, sdpa, to_numpy, torch_attention

from attnlib import (
    AttnError,
    MaskError,
    ShapeError,
    apply_mask,
    attention,
    attention_steps,
    causal_mask,
    combine_masks,
    decoding_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
    to_additive,
    to_ignore,
)
from attnlib.masks import check_align

SIZES = [(1, 1), (3, 3), (2, 5), (5, 2), (1, 4), (4, 1), (7, 16), (0, 3), (3, 0), (0, 0)]
ALIGNED = [(n_q, n_k, align) for n_q, n_k in SIZES for align in ("top_left", "bottom_right")]


def table(n_q, n_k, align, rule):
    """A mask from a rule about (position of the query among the keys, j), one cell at a time."""
    shift = n_k - n_q if align == "bottom_right" else 0
    want = np.zeros((n_q, n_k), dtype=bool)
    for i in range(n_q):
        for j in range(n_k):
            want[i, j] = rule(i + shift, j)
    return want


def same(got, want):
    got = to_numpy(got)
    assert got.dtype == bool and got.shape == want.shape and np.array_equal(got, want), f"{got}\n{want}"


# --- builders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_q, n_k, align", ALIGNED)
def test_causal_window_and_prefix_follow_their_rule(n_q, n_k, align):
    same(causal_mask(n_q, n_k, align=align), table(n_q, n_k, align, lambda i, j: j <= i))
    for window in (1, 2, 3, 100):
        want = table(n_q, n_k, align, lambda i, j, w=window: i - w < j <= i)
        same(sliding_window_mask(n_q, n_k, window, align=align), want)
    for prefix in range(n_k + 1):
        want = table(n_q, n_k, align, lambda i, j, p=prefix: j <= i or j < p)
        same(prefix_mask(n_q, n_k, prefix, align=align), want)


def test_equal_lengths_need_no_alignment_and_both_words_agree():
    for build in (causal_mask, lambda a, b, **k: sliding_window_mask(a, b, 2, **k)):
        for align in ("top_left", "bottom_right"):
            same(build(4, 4), build(4, 4, align=align))


@pytest.mark.parametrize(
    "build",
    [causal_mask, lambda *a, **k: sliding_window_mask(*a, 2, **k), lambda *a, **k: prefix_mask(*a, 1, **k)],
    ids=["causal", "window", "prefix"],
)
def test_builders_make_no_silent_guess(build):
    with pytest.raises(MaskError, match="2 queries and 5 keys.*align='top_left'.*align='bottom_right'"):
        build(2, 5)
    with pytest.raises(MaskError, match="'left', wanted 'top_left' or 'bottom_right'"):
        build(3, 3, align="left")  # refused although the lengths agree
    for n_q, n_k in ((-1, 3), (3, -1)):
        with pytest.raises(MaskError, match="-1, wanted 0 or more"):
            build(n_q, n_k, align="top_left")
    for bad in (2.0, True, "2", None):
        with pytest.raises(MaskError, match="wanted a whole number"):
            build(bad, 2, align="top_left")


def test_check_align_gives_the_offset_and_names_its_argument():
    assert check_align(None, 4, 4) == check_align("top_left", 2, 5) == 0
    assert check_align("bottom_right", 2, 5) == 3 and check_align("bottom_right", 5, 2) == -3
    with pytest.raises(MaskError, match="causal_align is 'up'"):
        check_align("up", 3, 3, "causal_align")


@pytest.mark.parametrize("lengths", [[2, 3], [0, 4], [4], []])
def test_padding_hides_the_end_of_each_sequence(lengths):
    got = padding_mask(lengths, 4)
    assert got.shape == (len(lengths), 1, 1, 4)
    for item, length in enumerate(lengths):
        same(got[item, 0, 0], np.array([j < length for j in range(4)]))


def test_padding_lengths_may_come_from_any_library(lib):
    same(padding_mask(lib.array(np.array([1, 3])), 3), np.array([[1, 0, 0], [1, 1, 1]], bool)[:, None, None])


def test_padding_refusals():
    for bad in (5, -1):
        with pytest.raises(MaskError, match=rf"lengths\[1\] is {bad}, .*0 to the 4 keys"):
            padding_mask([2, bad], 4)
    for bad in (2.0, True, np.True_, [2]):
        with pytest.raises(MaskError, match=r"lengths\[0\] .*whole number"):
            padding_mask([bad], 4)
    with pytest.raises(MaskError, match="n_k is -1"):
        padding_mask([], -1)


def test_document_mask():
    same(document_mask([7, 7, 2]), np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool))
    same(document_mask([1, 2], [2, 2, 1]), np.array([[0, 0, 1], [1, 1, 0]], bool))
    ids_q, ids_k = np.array([[[1, 2]], [[1, 1]]]), np.array([[[1, 1, 2]], [[2, 2, 1]]])  # (batch, 1, tokens)
    got = document_mask(ids_q, ids_k)
    assert got.shape == (2, 1, 2, 3)
    same(got[0, 0], np.array([[1, 1, 0], [0, 0, 1]], bool))
    same(got[1, 0], np.array([[0, 0, 1], [0, 0, 1]], bool))
    assert document_mask([]).shape == (0, 0)


def test_document_refusals():
    with pytest.raises(MaskError, match="ids_k .*float64.*whole numbers"):
        document_mask([1, 2], [1.0, 2.0])
    for ids in (3, [True, False]):
        with pytest.raises(MaskError, match="ids_q .*whole numbers"):
            document_mask(ids)
    with pytest.raises(MaskError, match=r"\(2,\) and arg 1 with shape \(3,\)"):
        document_mask(np.zeros((2, 4), int), np.zeros((3, 4), int))
    with pytest.raises(MaskError, match="ids_q is no array of whole numbers"):
        document_mask([[1, 2], [1]])


@pytest.mark.parametrize(
    "bad, words", [(0, "window is 0"), (-1, "window is -1"), (1.5, "whole"), (True, "whole")]
)
def test_window_below_one_or_not_whole_is_refused(bad, words):
    with pytest.raises(MaskError, match=words):
        sliding_window_mask(3, 3, bad)


@pytest.mark.parametrize(
    "bad, words", [(-1, "-1.*0 to the 3"), (4, "4.*0 to the 3"), (1.5, "whole"), (True, "whole")]
)
def test_prefix_outside_the_keys_is_refused(bad, words):
    with pytest.raises(MaskError, match=words):
        prefix_mask(3, 3, bad)


def test_like_builds_on_the_arrays_library_and_device(lib):
    like = lib.array([1.0])
    for build in (
        lambda **k: causal_mask(2, 3, align="bottom_right", **k),
        lambda **k: sliding_window_mask(3, 3, 2, **k),
        lambda **k: prefix_mask(3, 3, 2, **k),
        lambda **k: padding_mask([1, 2], 2, **k),
        lambda **k: document_mask([1, 1, 2], **k),
    ):
        got = build(like=like)
        assert lib.owns(got)
        same(got, build())
        assert isinstance(build(), np.ndarray)


# --- combining and converting -----------------------------------------------------------------------------


def test_combine_allows_only_what_all_allow(lib):
    masks = causal_mask(4, 4), document_mask([1, 1, 2, 2]), padding_mask([3, 4], 4)
    got = combine_masks(*(lib.array(m) for m in masks))
    assert lib.owns(got)
    same(got, masks[0] & masks[1] & masks[2])
    same(combine_masks(lib.array(masks[0])), masks[0])


def test_combine_refusals(lib):
    causal = lib.array(causal_mask(3, 3))
    with pytest.raises(MaskError, match="no mask"):
        combine_masks()
    with pytest.raises(MaskError, match=r"mask 2 has shape \(1, 2\).*\(3, 3\)"):
        combine_masks(causal, lib.array(np.ones((1, 2), bool)))
    for wrong in (np.ones((3, 3)), np.ones((3, 3), int)):
        with pytest.raises(MaskError, match="mask 2 .*wanted boolean.*mask == 1"):
            combine_masks(causal, lib.array(wrong))


def test_to_additive_is_zero_or_minus_infinity(lib):
    mask = lib.array(causal_mask(2, 3, align="top_left"))
    got = to_additive(mask)
    assert lib.owns(got)
    close(got, [[0, -np.inf, -np.inf], [0, 0, -np.inf]])
    half = to_additive(mask, dtype=lib.array([1.0], "float32").dtype)
    assert lib.dtype(half) == "float32"


def test_to_additive_default_types():
    assert to_additive(causal_mask(2, 2)).dtype == np.float64
    assert to_additive(torch.ones(2, 2, dtype=torch.bool)).dtype == torch.get_default_dtype()


def test_to_ignore_turns_the_polarity_round(lib):
    mask = lib.array(causal_mask(3, 3))
    same(to_ignore(mask), ~causal_mask(3, 3))
    same(to_ignore(to_ignore(mask)), causal_mask(3, 3))
    assert lib.owns(to_ignore(mask))


@pytest.mark.parametrize("convert", [to_additive, to_ignore])
def test_conversions_refuse_what_is_not_boolean(convert, lib):
    for wrong in (np.zeros((2, 2)), np.ones((2, 2), int)):
        with pytest.raises(MaskError, match="wanted boolean"):
            convert(lib.array(wrong))


# --- every mask in every form -----------------------------------------------------------------------------

B, H, TQ, TK = 2, 3, 4, 5
FORMS = [
    shape[drop:]
    for shape in np.ndindex(2, 2, 2)
    for shape in [(*(n if one else 1 for n, one in zip((B, H, TQ), shape, strict=True)), TK)]
    for drop in range(4)
    if all(n == 1 for n in shape[:drop])
]


def test_all_fifteen_forms_are_tried():
    assert len(FORMS) == len(set(FORMS)) == 15 and {(TK,), (1, TK), (TQ, TK), (B, 1, 1, TK)} < set(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_broadcast_form_boolean_and_additive(form, lib):
    query, key, value = random_qkv(3, (B, H), TQ, TK, 6, 7)
    rng = np.random.default_rng(sum(form))
    allowed = rng.random(form) < 0.6
    allowed[..., 0] = True
    allowed[(0,) * (len(form) - 1)] = False  # where the form can say so, one row (or more) is empty
    bias = np.where(allowed, rng.standard_normal(form), -np.inf)
    arrays = [lib.array(a) for a in (query, key, value)]
    for mask in (allowed, bias):
        want = plain_attention(query, key, value, mask)
        steps = attention_steps(*arrays, lib.array(mask))
        close(steps.output, want[0])
        close(steps.weights, want[1])
        close(steps.lse, want[2])
        close(attention(*arrays, lib.array(mask)), want[0])
        full = np.array(np.broadcast_to(mask, (B, H, TQ, TK)))
        close(attention(*arrays, lib.array(full)), want[0])
        close(torch_attention(query, key, value, full), want[0])


@pytest.mark.parametrize(
    "mask",
    [
        causal_mask(TQ, TK, align="top_left"),
        causal_mask(TQ, TK, align="bottom_right"),
        sliding_window_mask(TQ, TK, 2, align="top_left"),
        sliding_window_mask(TQ, TK, 2, align="bottom_right"),
        prefix_mask(TQ, TK, 3, align="bottom_right"),
        document_mask([1, 1, 2, 3], [1, 2, 2, 4, 4]),
        document_mask(
            np.array([[[1, 1, 2, 2]], [[1, 2, 2, 2]]]), np.array([[[1, 1, 2, 2, 9]], [[1, 2, 2, 3, 9]]])
        ),
        padding_mask([2, 5], TK),
        combine_masks(causal_mask(TQ, TK, align="bottom_right"), padding_mask([0, 3], TK)),
    ],
    ids="top_left bottom_right window window_right prefix document documents padding combined".split(),
)
def test_every_builder_in_every_form_it_can_take(mask, lib):
    query, key, value = random_qkv(4, (B, H), TQ, TK, 3, 2)
    arrays = [lib.array(a) for a in (query, key, value)]
    want = plain_attention(query, key, value, mask)[0]
    ones = (1,) * (4 - mask.ndim)
    forms = {mask.shape, ones + mask.shape, (B, H, TQ, TK), (1, H, TQ, TK)[4 - mask.ndim :]}
    if mask.ndim == 2:
        forms |= {(1, TQ, TK), (H, TQ, TK), (1, H, TQ, TK), (B, 1, TQ, TK)}
    else:
        forms |= {(B, 1, TQ, TK), (B, H, *mask.shape[-2:])}
        forms -= {(1, H, TQ, TK)}  # one batch item more than it has
    for form in forms:
        formed = np.array(np.broadcast_to(mask.reshape(ones + mask.shape)[(0,) * (4 - len(form))], form))
        close(attention(*arrays, lib.array(formed)), want)
        close(attention(*arrays, to_additive(lib.array(formed))), want)


@pytest.mark.parametrize(
    "shape, wanted",
    [
        ((), "no key axis"),
        ((4,), r"axis -1 \(keys\) is 4, wanted 5"),
        ((1,), r"axis -1 \(keys\) is 1, wanted 5"),
        ((4, 1), r"axis -1 \(keys\) is 1, wanted 5"),
        ((5, 5), r"axis -2 \(queries\) is 5, wanted 4 or 1"),
        (
            (2, 5),
            r"axis -2 \(queries\) is 2, wanted 4 or 1.*\(batch, keys\).* mask\[:, None, None, :\]",
        ),
        ((2, 4, 5), r"axis -3 \(heads or batch\) is 2, wanted 3 or 1"),
        ((3, 3, 4, 5), r"axis -4 \(heads or batch\) is 3, wanted 2 or 1"),
        ((1, 2, 3, 4, 5), "5 axes, the scores have 4"),
        ((0, 1, 1, 5), r"axis -4 \(heads or batch\) is 0, wanted 2 or 1"),
    ],
    ids=str,
)
def test_masks_that_do_not_fit_are_refused(shape, wanted, lib):
    query, key, value = (lib.array(a) for a in random_qkv(5, (B, H), TQ, TK, 6, 7))
    for dtype in (bool, float):
        mask = lib.array(np.ones(shape, dtype))
        with pytest.raises(MaskError, match=rf"(?s)\(2, 3, 4, 5\).*{wanted}"):
            attention(query, key, value, mask)
        with pytest.raises(MaskError, match=wanted):
            apply_mask(query @ lib.array(np.ones((6, 5))), mask)


def test_a_key_axis_of_one_fits_one_key(lib):
    query, key, value = (lib.array(a) for a in random_qkv(6, (), 3, 1, 2, 2))
    close(attention(query, key, value, lib.array(np.array([[True], [False], [True]])))[1, :], [0, 0])


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_integer_masks_are_refused_and_the_fix_named(dtype, lib):
    query, key, value = (lib.array(a) for a in random_qkv(7, (), 2, 2, 2, 2))
    mask = lib.array(np.ones((2, 2), dtype))
    with pytest.raises(MaskError, match=rf"{dtype}.*wanted boolean.*mask == 1"):
        attention(query, key, value, mask)
    with pytest.raises(MaskError, match=dtype):
        apply_mask(query, mask)


def test_a_list_or_another_librarys_mask_is_refused():
    query, key, value = (torch.asarray(a) for a in random_qkv(8, (), 2, 2, 2, 2))
    with pytest.raises(ShapeError, match="attn_mask is a list, wanted an array"):
        attention(query, key, value, [[True, False], [True, True]])
    with pytest.raises(ShapeError, match="different libraries.*query: torch, attn_mask: numpy"):
        attention(query, key, value, causal_mask(2, 2))


def test_mask_and_causal_flag_together_are_refused_with_the_way_out(lib):
    query, key, value = (lib.array(a) for a in random_qkv(9, (), 3, 3, 2, 2))
    mask = lib.array(causal_mask(3, 3))
    with pytest.raises(MaskError, match="combine_masks"):
        attention(query, key, value, mask, is_causal=True)
    fixed = combine_masks(mask, causal_mask(3, 3, like=query))  # what the message says to do
    close(attention(query, key, value, fixed), attention(query, key, value, is_causal=True))


def test_causal_flag_asks_for_the_corner(lib):
    query, key, value = random_qkv(10, (2,), 2, 5, 3, 2)
    arrays = [lib.array(a) for a in (query, key, value)]
    with pytest.raises(
        MaskError, match="2 queries and 5 keys.*causal_align='top_left'.*causal_align='bottom_right'"
    ):
        attention(*arrays, is_causal=True)
    for is_causal in (True, False):  # an unknown word is refused whatever else is said
        for n_k in (2, 5):
            with pytest.raises(MaskError, match="causal_align is 'lower'"):
                attention(
                    arrays[0],
                    arrays[1][:, :n_k, :],
                    arrays[2][:, :n_k, :],
                    is_causal=is_causal,
                    causal_align="lower",
                )
    for align in ("top_left", "bottom_right"):
        want = torch_attention(query, key, value, table(2, 5, align, lambda i, j: j <= i))
        close(attention(*arrays, is_causal=True, causal_align=align), want)
    close(
        attention(*arrays, is_causal=True, causal_align="top_left"),
        torch_attention(query, key, value, is_causal=True),
    )


def test_bottom_right_is_torchs_causal_lower_right():
    from torch.nn.attention.bias import causal_lower_right

    q, k, v = (torch.asarray(a) for a in random_qkv(11, (1, 2), 3, 7, 8, 8))
    want = sdpa(q, k, v, attn_mask=causal_lower_right(3, 7))
    close(attention(q, k, v, is_causal=True, causal_align="bottom_right"), want)


# --- what a mask hides, and what it does not --------------------------------------------------------------


def test_a_large_negative_number_is_a_bias_not_a_mask(lib):
    query, key = lib.array([[1.0, 0.0]]), lib.array([[1.0, 0.0], [0.0, 1.0]])
    value = lib.array([[1.0], [3.0]])
    # every key carries the same -1e9: it cancels, and the row is not empty
    want = plain_attention([[1, 0]], [[1, 0], [0, 1]], [[1], [3]], np.full((1, 2), -1e9))[0]
    close(attention(query, key, value, lib.array(np.full((1, 2), -1e9))), want, atol=1e-6)


@pytest.mark.parametrize("mask_dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_lowest_finite_number_hides_and_bias_does_not_in_every_type(dtype, mask_dtype):
    rng = np.random.default_rng(12)
    query, key, value = (rng.standard_normal((3, 4)).astype(dtype) for _ in range(3))
    lowest = np.finfo(mask_dtype).min
    mask = np.zeros((3, 3), mask_dtype)
    mask[0, :] = lowest  # an empty row
    mask[1, 1:] = lowest
    mask[2, :] = -3e4  # a bias, the same on all keys
    for convert in (np.asarray, torch.asarray):
        steps = attention_steps(*(convert(a) for a in (query, key, value)), convert(mask))
        assert str(steps.output.dtype).endswith(dtype)
        close(steps.output[0], np.zeros(4))
        close(steps.lse[0], -np.inf)
        close(steps.masked[0], np.full(3, -np.inf))
        close(steps.output[1], value[0], rtol=1e-6)
        want = plain_attention(query[2:], key, value)[0][0]
        close(steps.output[2], want, atol=2e-2 if dtype != "float64" else 1e-9)  # -3e4 costs float32 digits


def test_the_scores_lowest_number_hides_in_a_wider_mask_too(lib):
    arrays = [lib.array(a, "float32") for a in ([[1.0], [1.0]], [[1.0], [2.0]], [[1.0], [3.0]])]
    lowest = float(np.finfo(np.float32).min)
    mask = lib.array([[lowest, lowest], [0.0, lowest]])  # float64
    close(attention(*arrays, mask), [[0], [1]])


def test_half_queries_with_a_single_precision_bias_keep_their_keys():
    # -1e9 lies below float16's range but not below the scores', which are float32: a bias all the same
    query, key, value = np.ones((1, 2), "f2"), np.ones((2, 2), "f2"), np.array([[1.0], [3.0]], "f2")
    for dtype in ("float32", "float64"):
        close(attention(query, key, value, np.full((1, 2), -1e9, dtype)), [[2.0]])


def test_a_nan_in_a_mask_shows(lib):
    query, key, value = (lib.array(a) for a in random_qkv(13, (), 2, 2, 2, 2))
    mask = lib.array(np.array([[0.0, np.nan], [0.0, 0.0]]))
    got = to_numpy(attention(query, key, value, mask))
    assert np.isnan(got[0]).all() and not np.isnan(got[1]).any()


def test_the_mask_is_not_modified(lib):
    query, key, value = (lib.array(a) for a in random_qkv(14, (), 2, 3, 2, 2))
    for mask in (np.array([[True, False, True], [False] * 3]), np.array([[0, -np.inf, 1.0], [-np.inf] * 3])):
        mine = lib.array(mask.copy())
        attention_steps(query, key, value, mine)
        assert np.array_equal(to_numpy(mine), mask)


# --- field reports ----------------------------------------------------------------------------------------


def zero_scores(n_q, values):
    """Zero queries and keys of width 1: every visible key weighs the same. Values one number each."""
    values = np.asarray(values, dtype=float)[:, None]
    return np.zeros((n_q, 1)), np.zeros_like(values), values


def test_N02_true_means_may_attend(lib):
    arrays = [lib.array(a) for a in zero_scores(3, [1, 2, 3])]
    mask = lib.array(np.tril(np.ones((3, 3), bool)))
    for got in (
        attention(*arrays, mask),
        attention(*arrays, is_causal=True),
        attention(*arrays, causal_mask(3, 3, like=arrays[0])),
        attention(*arrays, to_additive(mask)),
        attention_steps(*arrays, mask).output,
        attention(*arrays, sliding_window_mask(3, 3, 3, like=arrays[0])),
        attention(*arrays, prefix_mask(3, 3, 0, like=arrays[0])),
    ):
        close(got, [[1], [1.5], [2]])
    close(attention(*arrays, to_ignore(mask)), [[2.5], [3], [0]])  # the reversed reading, on purpose


def test_N03_fewer_queries_than_keys(lib):
    arrays = [lib.array(a) for a in zero_scores(2, range(5))]
    close(attention(*arrays, is_causal=True, causal_align="bottom_right"), [[1.5], [2]])
    close(attention(*arrays, is_causal=True, causal_align="top_left"), [[0], [0.5]])
    with pytest.raises(MaskError):
        attention(*arrays, is_causal=True)


def test_N04_more_queries_than_keys(lib):
    arrays = [lib.array(a) for a in zero_scores(5, range(2))]
    close(attention(*arrays, is_causal=True, causal_align="bottom_right"), [[0], [0], [0], [0], [0.5]])
    close(attention(*arrays, is_causal=True, causal_align="top_left"), [[0], [0.5], [0.5], [0.5], [0.5]])


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_N13_what_a_hidden_key_holds_never_arrives(poison, lib):
    query, key, value = random_qkv(15, (2,), 3, 4, 5, 2)
    mask = np.ones((2, 1, 4), bool)
    mask[0, :, 1] = mask[1, :, 3] = False  # another key in each item
    clean = attention_steps(*(lib.array(a) for a in (query, key, value)), lib.array(mask))
    for array in (key, value):
        array[0, 1] = array[1, 3] = poison
    for form in (mask, np.where(mask, 0.0, -np.inf)):
        dirty = attention(*(lib.array(a) for a in (query, key, value)), lib.array(form))
        assert np.array_equal(to_numpy(dirty), to_numpy(clean.output))


def test_N15_the_window_counts_the_current_token(lib):
    arrays = [lib.array(a) for a in zero_scores(5, range(5))]
    close(attention(*arrays, sliding_window_mask(5, 5, 2, like=arrays[0])), [[0], [0.5], [1.5], [2.5], [3.5]])
    for bad in (0, -1):
        with pytest.raises(MaskError):
            sliding_window_mask(5, 5, bad)


def test_N18_two_very_negative_masks():
    causal, padding = causal_mask(3, 3), np.array([[False, True, False]])
    lowest = np.float16(np.finfo(np.float16).min)
    filled = [np.where(m, np.float16(0), lowest) for m in (causal, padding)]
    with np.errstate(over="ignore"):
        summed = filled[0] + filled[1]
    assert np.isneginf(summed[:2, 2]).all()  # min + min overflows where both hide
    value = np.array([[1.0], [2.0], [4.0]], np.float16)
    zeros = np.zeros((3, 1), np.float16)
    want = [[0], [2], [2]]  # query 0 sees nothing; never the mean over all keys
    for mask in (combine_masks(causal, padding), summed, np.maximum(summed, lowest)):
        close(attention(zeros, zeros, value, mask), want)


@pytest.mark.parametrize("kept, masked", [(0.0, 0.0), (0.0, 12.0)])
def test_N20_a_masked_key_weighs_exactly_nothing(kept, masked, lib):
    query, key, value = lib.array([[1.0]]), lib.array([[kept], [masked]]), lib.array([[1.0], [9.0]])
    weights = attention_steps(query, key, value, lib.array(np.array([[True, False]]))).weights
    assert to_numpy(weights).tolist() == [[1.0, 0.0]]
    moderate = attention_steps(query, key, value, lib.array(np.array([[0.0, -10.0]]))).weights
    close(moderate[0, 1], 1 / (1 + math.exp(10 - masked)))  # what -10 does instead: a bias


def test_N21_integer_masks_and_other_float_types():
    arrays = zero_scores(1, [1, 9])
    with pytest.raises(MaskError, match="int64"):
        attention(*arrays, np.array([[1, 0]]))
    for convert in (np.asarray, torch.asarray):
        half = [convert(a.astype(np.float16)) for a in arrays]
        got = attention(*half, convert(np.array([[0.0, -np.inf]])))
        assert str(got.dtype).endswith("float16")
        close(got, [[1.0]])


def test_N22_mask_and_flag_are_never_both_taken():
    arrays = zero_scores(3, [1, 2, 3])
    with pytest.raises(MaskError):
        attention(*arrays, np.array([[False, True, True]]), is_causal=True)
    both = combine_masks(np.array([[False, True, True]]), causal_mask(3, 3))
    close(attention(*arrays, both), [[0], [2], [2.5]])


def test_N26_each_batch_item_keeps_its_own_padding(lib):
    query, key, value = random_qkv(16, (2, 2), 3, 4, 5, 2)
    mask = padding_mask([2, 4], 4)
    batched = to_numpy(attention(*(lib.array(a) for a in (query, key, value)), lib.array(mask)))
    flat = [lib.array(a.reshape(4, *a.shape[2:])) for a in (query, key, value)]
    flattened = to_numpy(attention(*flat, lib.array(np.repeat(mask[:, 0], 2, axis=0))))
    for item in range(2):
        for head in range(2):
            n_k = (2, 4)[item]
            want = plain_attention(query[item, head], key[item, head, :n_k], value[item, head, :n_k])[0]
            close(batched[item, head], want)
            close(flattened[2 * item + head], want)


def test_N27_two_axes_are_always_queries_and_keys(lib):
    # batch = queries = keys = 3: both readings fit, only one is taken
    query, key, value = random_qkv(17, (3,), 3, 3, 2, 2)
    arrays = [lib.array(a) for a in (query, key, value)]
    mask = np.ones((3, 3), bool)
    mask[1, 2] = False
    close(attention(*arrays, lib.array(mask)), plain_attention(query, key, value, mask)[0])
    per_item = plain_attention(query, key, value, mask[:, None, :])[0]
    close(attention(*arrays, lib.array(mask[:, None, :])), per_item)
    assert np.abs(per_item - plain_attention(query, key, value, mask)[0]).max() > 1e-3


def test_N30_one_kept_key_among_seventy_thousand():
    rng = np.random.default_rng(18)
    key, value = rng.standard_normal((70_000, 2)), rng.standard_normal((70_000, 3))
    mask = np.zeros((1, 70_000), bool)
    mask[0, -1] = True
    close(attention(np.ones((1, 2)), key, value, mask), value[-1:])


def test_N31_a_band_that_leaves_the_first_tiles_empty():
    query, key, value = random_qkv(19, (1, 1), 600, 600, 8, 5)
    band = sliding_window_mask(600, 600, 10)
    assert band.any(axis=1).all() and not band[137:, :128].any()
    close(attention(query, key, value, band), torch_attention(query, key, value, band))


def test_N39_padding_hides_keys_and_leaves_the_padded_query_its_row(lib):
    query, key, value = random_qkv(20, (1, 1), 4, 4, 3, 2)
    arrays = [lib.array(a) for a in (query, key, value)]
    keys_only = padding_mask([3], 4)
    got = to_numpy(attention(*arrays, lib.array(keys_only)))
    close(got[0, 0], plain_attention(query[0, 0], key[0, 0, :3], value[0, 0, :3])[0])
    assert np.abs(got[0, 0, 3]).min() > 0  # meaningless, but there
    rows_too = keys_only & np.swapaxes(keys_only, -1, -2)
    emptied = to_numpy(attention(*arrays, lib.array(rows_too)))
    close(emptied[0, 0, :3], got[0, 0, :3])
    close(emptied[0, 0, 3], np.zeros(2))


def test_every_mask_refusal_is_an_attnerror_and_a_valueerror():
    assert issubclass(MaskError, AttnError) and issubclass(AttnError, ValueError)


def test_one_length_without_a_list_is_refused_with_the_fix():
    with pytest.raises(MaskError, match=r"lengths is 3.*\[3\]"):
        padding_mask(3, 3)


def test_an_additive_mask_of_integers_is_refused():
    with pytest.raises(MaskError, match="int"):
        to_additive(causal_mask(2, 2), dtype=int)


# --- caches ----------------------------------------------------------------------------------------------


def test_F13_new_tokens_against_caches_of_their_own_length(lib):
    like = lib.array([1.0])
    got = decoding_mask(2, [4, 6], 6, like=like)
    assert lib.owns(got) and tuple(got.shape) == (2, 1, 2, 6)
    want = [["111000", "111100"], ["111110", "111111"]]
    assert ["".join(map(str, row)) for item in to_numpy(got).astype(int)[:, 0] for row in item] == sum(
        want, []
    )


def test_F13_decoding_in_a_padded_cache_equals_each_text_alone(lib):
    lengths, rng = [4, 6, 2], np.random.default_rng(1)
    q, k, v = (rng.standard_normal((3, 2, n, 5)) for n in (2, 6, 6))
    for item, length in enumerate(lengths):
        k[item, :, length:] = v[item, :, length:] = np.nan
    mask = decoding_mask(2, lengths, 6, like=lib.array([1.0]))
    got = to_numpy(attention(*(lib.array(a) for a in (q, k, v)), mask))
    for item, length in enumerate(lengths):
        alone = (q[item], k[item, :, :length], v[item, :, :length])
        close(got[item], attention(*alone, is_causal=True, causal_align="bottom_right"))


@pytest.mark.parametrize(
    "n_q, lengths, words",
    [
        (2, [1, 6], r"lengths\[0\] is 1, wanted a number from the 2 new tokens to the 6 keys"),
        (2, [4, 7], r"lengths\[1\] is 7"),
        (2, [4.0], "whole"),
        (-1, [4], "n_q is -1"),
        (2, 4, "wanted one length per sequence"),
    ],
)
def test_lengths_that_no_cache_has_are_refused(n_q, lengths, words):
    with pytest.raises(MaskError, match=words):
        decoding_mask(n_q, lengths, 6)


# --- where the numbers are -------------------------------------------------------------------------------


def test_B4_document_numbers_may_lie_in_any_library_and_on_any_device(lib):
    ids = lib.array(np.array([[1, 1, 2], [3, 4, 4]]))
    got = document_mask(ids)
    assert lib.owns(got)
    close(to_numpy(got).astype(int), document_mask(to_numpy(ids)).astype(int))
    assert lib.owns(document_mask(ids, [[1, 2]]))
    # A device from which NumPy can read nothing, as from a GPU.
    far = document_mask(torch.ones(2, 3, dtype=torch.int64, device="meta"))
    assert far.device.type == "meta" and far.shape == (2, 3, 3)
    assert isinstance(document_mask([1, 2], like=torch.ones(1)), torch.Tensor)


def test_to_additive_refuses_a_type_of_another_library():
    with pytest.raises(
        MaskError, match="dtype is torch.float32, wanted a floating type of the mask's library"
    ):
        to_additive(causal_mask(2, 2), dtype=torch.float32)

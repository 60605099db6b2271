"""Projections, splitting, merging, grouped heads: which component of which token goes where."""

import numpy as np
import pytest
import torch
from oracle import close, plain_attention, random_qkv, sdpa, to_numpy, torch_attention

from attnlib import (
    ShapeError,
    attention,
    attention_steps,
    causal_mask,
    merge_heads,
    padding_mask,
    project,
    repeat_heads,
    scores,
    split_heads,
    to_ignore,
    weighted_sum,
)
from attnlib.examples import three_tokens


def test_N24_heads_are_split_with_the_axes_swapped(lib):
    x = lib.array(10.0 * np.arange(3)[:, None] + np.arange(4))
    got = split_heads(x, 2)
    close(got[0, ...], [[0, 1], [10, 11], [20, 21]])
    close(got[1, ...], [[2, 3], [12, 13], [22, 23]])  # a plain reshape gives [[12, 13], [20, 21], [22, 23]]


def test_N25_heads_are_merged_with_the_axes_swapped_back(lib):
    heads = lib.array([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]])
    close(merge_heads(heads), [[1, 2, 5, 6], [3, 4, 7, 8]])  # without the swap token 0 is [1, 2, 3, 4]


@pytest.mark.parametrize("lead", [(), (2,), (2, 5), (0,)], ids=str)
@pytest.mark.parametrize("n_heads, n_tokens, width", [(1, 3, 4), (3, 4, 5), (2, 1, 7), (4, 0, 2)])
def test_split_and_merge_undo_each_other(lead, n_heads, n_tokens, width, lib):
    data = np.arange(np.prod((*lead, n_tokens, n_heads * width)), dtype=float)
    data = data.reshape(*lead, n_tokens, n_heads * width)
    got = split_heads(lib.array(data, "float32"), n_heads)
    assert lib.owns(got) and lib.dtype(got) == "float32"
    assert got.shape == (*lead, n_heads, n_tokens, width)
    for h in range(n_heads):
        close(got[..., h, :, :], data[..., h * width : (h + 1) * width])
    close(merge_heads(got), data)
    close(split_heads(merge_heads(got), n_heads), to_numpy(got))


def test_split_and_merge_views_without_touching_them():
    base = np.arange(48.0).reshape(4, 12)
    kept = base.copy()
    for view in (base[:, ::2], base.T[:6].T, base[::-1, ::-1][:, :6]):
        close(merge_heads(split_heads(view, 3)), view.copy())
        close(split_heads(view, 3), split_heads(view.copy(), 3))
    assert np.array_equal(base, kept)


def test_split_refusals(lib):
    x = lib.array(np.zeros((3, 8)))
    with pytest.raises(
        ShapeError, match="width 8 .*n_heads 3: 8 = 2 x 3 [+] 2; choose n_heads that divides 8"
    ):
        split_heads(x, 3)
    for bad in (0, -2, 2.0, True, "2", None):
        with pytest.raises(ShapeError, match="n_heads is .*, wanted a whole number of at least 1"):
            split_heads(x, bad)
    with pytest.raises(ShapeError, match=r"x has shape \(8,\), wanted at least \(T, n_heads \* d_h\)"):
        split_heads(lib.array(np.zeros(8)), 2)
    close(split_heads(x, np.int64(2)), np.zeros((2, 3, 4)))  # NumPy's whole numbers are whole numbers


def test_merge_and_repeat_refusals(lib):
    flat = lib.array(np.zeros((3, 8)))
    with pytest.raises(ShapeError, match=r"\(3, 8\), wanted at least \(n_heads, T, d_h\)"):
        merge_heads(flat)
    with pytest.raises(ShapeError, match=r"\(3, 8\), wanted at least \(n_kv_heads, T, d_h\)"):
        repeat_heads(flat, 2)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ShapeError, match="times is .*at least 1"):
            repeat_heads(lib.array(np.zeros((1, 3, 8))), bad)
    for bad in ([[1.0]], 3.0, None):
        with pytest.raises(ShapeError, match="x is a .*, wanted an array"):
            split_heads(bad, 1)


def test_project_is_the_matrix_product(lib):
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 4))
    got = project(lib.array(x, "float32"), lib.array(weight, "float32"))
    assert lib.owns(got) and lib.dtype(got) == "float32"
    close(got, np.einsum("btd,de->bte", x, weight), rtol=1e-5, atol=1e-5)
    # torch's nn.Linear holds the transpose
    linear = torch.nn.Linear(5, 4, bias=False, dtype=torch.float64)
    close(project(torch.asarray(x), linear.weight.T), linear(torch.asarray(x)))


@pytest.mark.parametrize(
    "x, weight", [((3, 5), (4, 5)), ((5,), (5, 4)), ((3, 5), (5,)), ((3, 5), (2, 5, 4))], ids=str
)
def test_project_refuses_with_both_shapes(x, weight):
    with pytest.raises(ShapeError, match="x has shape .* and weight .*same d_in.*transposed") as refusal:
        project(np.zeros(x), np.zeros(weight))
    assert str(x) in str(refusal.value) and str(weight) in str(refusal.value)


# --- grouped heads ----------------------------------------------------------------------------------------


def test_N08_grouped_heads_repeat_consecutively(lib):
    value = np.stack([np.zeros((3, 1)), np.ones((3, 1))])
    arrays = lib.array(np.zeros((4, 3, 1))), lib.array(np.zeros((2, 3, 1))), lib.array(value)
    close(attention(*arrays, enable_gqa=True)[:, 0, 0], [0, 0, 1, 1])  # tiling would give 0, 1, 0, 1
    with pytest.raises(ShapeError, match="5 query heads cannot share 2 key/value heads: wanted a multiple"):
        attention(lib.array(np.zeros((5, 3, 1))), *arrays[1:], enable_gqa=True)


@pytest.mark.parametrize("n_q, n_kv", [(4, 2), (6, 3), (6, 2), (3, 3), (5, 1)])
def test_grouped_heads_equal_torch_and_the_loops(n_q, n_kv, lib):
    rng = np.random.default_rng(n_q)
    query = rng.standard_normal((2, n_q, 3, 4))
    key, value = rng.standard_normal((2, n_kv, 5, 4)), rng.standard_normal((2, n_kv, 5, 2))
    arrays = [lib.array(a) for a in (query, key, value)]
    mask = causal_mask(3, 5, align="bottom_right")
    got = attention_steps(*arrays, lib.array(mask), enable_gqa=True)
    close(got.output, torch_attention(query, key, value, mask, enable_gqa=True))
    group = n_q // n_kv
    want = [plain_attention(query[:, h], key[:, h // group], value[:, h // group], mask) for h in range(n_q)]
    for place, result in enumerate((got.output, got.weights, got.lse)):
        close(result, np.stack([w[place] for w in want], axis=1))
    close(repeat_heads(arrays[1], group), np.stack([key[:, h // group] for h in range(n_q)], axis=1))


def test_one_key_value_head_serves_all_by_broadcasting(lib):
    query, key, value = random_qkv(1, (2, 1), 3, 5, 4, 2)
    query = np.concatenate([query, 2 * query, -query], axis=1)
    arrays = [lib.array(a) for a in (query, key, value)]
    got = attention(*arrays)
    close(got, plain_attention(query, key, value)[0])
    close(attention(*arrays, enable_gqa=True), to_numpy(got))
    close(attention(arrays[0], arrays[1][:, 0, ...][:, None, ...], arrays[2]), to_numpy(got))


@pytest.mark.parametrize(
    "heads, words",
    [
        ((2, 4, 4), "2 query heads cannot share 4 key/value heads"),
        ((4, 2, 1), "key has 2 heads, value has 1"),
        ((4, 0, 0), "4 query heads cannot share 0"),
        ((0, 2, 2), "0 query heads cannot share 2"),
    ],
    ids=str,
)
def test_grouped_heads_that_do_not_divide(heads, words):
    with pytest.raises(ShapeError, match=words):
        attention(*(np.zeros((n, 3, 2)) for n in heads), enable_gqa=True)


def test_grouped_heads_need_a_head_axis_and_the_flag():
    with pytest.raises(ShapeError, match="enable_gqa needs a head axis"):
        attention(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2)), enable_gqa=True)
    with pytest.raises(ShapeError, match=r"\(4, 3, 2\).*\(2, 3, 2\).*enable_gqa=True"):
        attention(np.zeros((4, 3, 2)), np.zeros((2, 3, 2)), np.zeros((2, 3, 2)))


# --- a whole layer against torch's ------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["none", "causal", "padding"])
def test_a_layer_of_these_pieces_is_torchs_multihead_attention(which):
    torch.manual_seed(0)
    n_tokens, width, n_heads = 5, 12, 3
    layer = torch.nn.MultiheadAttention(width, n_heads, bias=False, batch_first=True, dtype=torch.float64)
    x = torch.randn(2, n_tokens, width, dtype=torch.float64)
    mask = {
        "none": None,
        "causal": causal_mask(n_tokens, n_tokens, like=x),
        "padding": padding_mask([3, 5], n_tokens, like=x),
    }[which]
    w_q, w_k, w_v = (w.T for w in layer.in_proj_weight.chunk(3))
    heads = (split_heads(project(x, w), n_heads) for w in (w_q, w_k, w_v))
    steps = attention_steps(*heads, mask)
    ours = project(merge_heads(steps.output), layer.out_proj.weight.T)
    how = {}
    if which == "causal":
        how["attn_mask"] = to_ignore(mask)  # the other polarity
    if which == "padding":
        how["key_padding_mask"] = to_ignore(mask)[:, 0, 0]
    theirs, weights = layer(x, x, x, average_attn_weights=False, **how)
    close(ours, theirs)
    close(steps.weights, weights)


def test_N38_weights_keep_their_head_axis(lib):
    # head 0 attends to the left key, head 1 to the right one: the average would show neither
    query = lib.array([[[50.0, 0]], [[0, 50.0]]])
    key = lib.array([[[1.0, 0], [0, 1]]] * 2)
    weights = attention_steps(query, key, key).weights
    assert weights.shape == (2, 1, 2)
    close(weights, [[[1, 0]], [[0, 1]]])


def test_heads_never_meet(lib):
    example = three_tokens()
    arrays = [lib.array(a) for a in (example.query, example.key, example.value)]
    both = to_numpy(attention(*arrays, is_causal=True))
    for h in range(2):
        close(both[h], to_numpy(attention(*(a[h, ...] for a in arrays), is_causal=True)))
    assert np.abs(both[0] - both[1]).max() > 0.1


def test_concatenation_only_places_and_the_projection_mixes():
    example = three_tokens()
    merged = merge_heads(attention(example.query, example.key, example.value, is_causal=True))
    merged_without_head_2 = merged.copy()
    merged_without_head_2[:, 4:] = 0
    assert (merged_without_head_2[:, :4] == merged[:, :4]).all()
    moved = project(merged, example.w_o) != project(merged_without_head_2, example.w_o)
    assert moved.any(axis=0).sum() > 4  # columns of both halves


def test_sdpa_itself_is_the_same_function_on_the_layers_heads():
    example = three_tokens()
    q, k, v = (torch.asarray(a) for a in (example.query, example.key, example.value))
    close(attention(q, k, v, is_causal=True), sdpa(q, k, v, is_causal=True))


def test_two_types_give_the_wider_one(lib):
    got = project(lib.array([[1.0]], "float32"), lib.array([[1e300]]))
    assert lib.dtype(got) == "float64" and float(got[0, 0]) == 1e300
    with pytest.raises(ShapeError, match="weight has type .*int64, wanted floating"):
        project(lib.array([[1.0]]), lib.array(np.array([[2]])))


def test_no_step_reads_another_devices_memory():
    """On a CPU torch multiplies with a tensor that has no memory at all, and returns what lay about."""
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="meta")
    for call in (project, scores, weighted_sum):
        for pair in ((here, there), (there, here)):
            with pytest.raises(ShapeError, match="wanted one device"):
                call(*pair)

"""torch's attention under our conventions, and our fastest tiles: the numbers of plain attention, fast."""

import importlib.util
import inspect
import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import close, plain_attention, plain_formula, random_qkv, torch_attention, worst
from oracle import sdpa as torch_sdpa
from test_core import GOOD, ZERO, torch_view, views
from test_package import BLOCKER, python
from test_tiled import (
    BAD,
    KINDS,
    LOSSES,
    SIZES,
    Largest,
    autograd,
    block_sizes,
    case,
    leaves,
    n01,
    weightings,
)

from attnlib import (
    AttnError,
    ShapeError,
    attention,
    attention_steps,
    causal_mask,
    padding_mask,
    sliding_window_mask,
    to_additive,
    torch_path,
)
from attnlib.torch_path import fast_attention, sdpa

ROOT = Path(__file__).parents[1]


def tiles(block_q, block_k):
    return partial(fast_attention, block_q=block_q, block_k=block_k)


def with_maxima(*arrays, **how):
    """Our tiles, made to keep a maximum per row although the scores are small."""
    small, torch_path.SMALL_SCORE = torch_path.SMALL_SCORE, -1.0
    try:
        return fast_attention(*arrays, **({"block_q": 3, "block_k": 2} | how))
    finally:
        torch_path.SMALL_SCORE = small


CALLS = {"sdpa": sdpa, "fast": fast_attention, "tiles-2x2": tiles(2, 2), "maxima": with_maxima}
every = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
ours = pytest.mark.parametrize("call", list(CALLS.values())[1:], ids=list(CALLS)[1:])


def tensors(*arrays):
    return [None if a is None else torch.asarray(np.array(a)) for a in arrays]


# --- values and gradients: the whole matrix ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["sdpa", "fast", "tiles", "maxima"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_equal_plain_attentions(kind, name):
    for place, size in enumerate(SIZES):
        at = place + 7 * KINDS.index(kind)
        arrays, mask, how = case(kind, at, *size)
        call = {"sdpa": sdpa, "fast": fast_attention, "tiles": fast_attention, "maxima": with_maxima}[name]
        own = block_sizes(*size[:2], at // 3) if name in ("tiles", "maxima") else {}
        want = attention_steps(*arrays, mask, **how)
        inputs = leaves(arrays)
        if mask is not None:
            (mask_tensor,) = tensors(mask)
            inputs.append(mask_tensor.requires_grad_() if mask.dtype.kind == "f" else mask_tensor)
        output, lse = call(*inputs, **how, **own, return_lse=True)
        close(output, want.output)
        close(lse, want.lse)
        close(call(*(x.detach() for x in inputs), **how, **own, return_lse=True)[1], want.lse)
        weighting, of_lse = weightings(at, (2, 3), size[0], size[3])
        trained = [x for x in inputs if x.requires_grad]

        def gradients(output, lse, trained=trained, weighting=weighting, of_lse=of_lse):
            loss = (output * torch.asarray(weighting)).sum()
            loss = loss + torch.where(lse == -math.inf, 0.0, lse * torch.asarray(of_lse)).sum()
            return torch.autograd.grad(loss, trained)

        right = attention_steps(*inputs, **how)
        got, wanted = gradients(output, lse), gradients(right.output, right.lse)
        for mine, theirs in zip(got, wanted, strict=True):
            close(mine, theirs)


@pytest.mark.parametrize(
    "block_q, block_k", [(a, b) for a in (1, 3, 16, 64, 200) for b in (1, 3, 16, 64, 200)]
)
def test_every_pair_of_tile_sizes(block_q, block_k):
    """Against torch, so that tiles and plain attention cannot share a mistake."""
    arrays = random_qkv(1, (2,), 17, 33, 8, 3)
    close(tiles(block_q, block_k)(*tensors(*arrays)), torch_attention(*arrays))
    how = {"is_causal": True, "causal_align": "top_left"}
    got = tiles(block_q, block_k)(*tensors(*arrays), **how)
    close(got, torch_attention(*arrays, is_causal=True))


@pytest.mark.parametrize("n_q, n_k", [(2100, 300), (300, 600), (1, 3000)])
@pytest.mark.parametrize("how", [{}, {"is_causal": True, "causal_align": "bottom_right"}], ids=str)
def test_the_tiles_that_are_chosen_on_more_than_one_of_them(n_q, n_k, how):
    arrays = tensors(*random_qkv(2, (1,), n_q, n_k, 4, 3))
    close(fast_attention(*arrays, **how), attention(*arrays, **how))


@every
@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 3), (2, 1, 2)], ids=str)
def test_any_leading_axes(call, lead):
    query, key, value = random_qkv(3, lead, 4, 5, 3, 2)
    mask = causal_mask(4, 5, align="bottom_right")
    output, lse = call(*tensors(query, key, value, mask), return_lse=True)
    wanted = plain_attention(query, key, value, mask)
    close(output, wanted[0])
    close(lse, wanted[2])


# --- conventions --------------------------------------------------------------------------------------------


def test_the_same_arguments_with_the_same_defaults():
    plain = list(inspect.signature(attention).parameters.values())
    for function, own in ((sdpa, ["return_lse"]), (fast_attention, ["return_lse", "block_q", "block_k"])):
        mine = list(inspect.signature(function).parameters.values())
        assert mine[: len(plain)] == plain
        assert [p.name for p in mine[len(plain) :]] == own
        assert {p.kind for p in mine[4:]} == {inspect.Parameter.KEYWORD_ONLY}


@every
@pytest.mark.parametrize("name", BAD)
def test_what_attention_refuses_is_refused_in_the_same_words(name, call):
    words = []
    for asked in (attention, call):

        def on_torch(*arrays, asked=asked, **how):
            return asked(*(torch.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays), **how)

        with pytest.raises(AttnError) as refusal:
            BAD[name](attention if name == "libraries" and asked is attention else on_torch, *GOOD)
        words.append((type(refusal.value), str(refusal.value)))
    if name != "libraries":  # of which there is only one here
        assert words[0] == words[1]


BAD = {name: bad for name, bad in BAD.items() if name != "libraries"} | {
    "libraries": lambda call, q, k, v: attention(q, torch.asarray(k), v)
}


@every
def test_other_arrays_are_refused_with_the_way_out(call):
    with pytest.raises(ShapeError, match=r"query is a ndarray, wanted a torch tensor: torch\.asarray"):
        call(*GOOD)
    with pytest.raises(ShapeError, match="different libraries"):
        call(*tensors(*GOOD), np.ones((3, 4), bool))


@pytest.mark.parametrize("name", ["block_q", "block_k"])
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"], ids=repr)
def test_tile_sizes_below_one_and_other_things_are_refused(name, size):
    with pytest.raises(ShapeError, match=f"{name} is .*, wanted a whole number of at least 1"):
        fast_attention(*tensors(*GOOD), **{name: size})


@every
@pytest.mark.parametrize("additive", [False, True])
def test_N01_a_row_that_sees_nothing_is_zero(call, additive):
    arrays = tensors([[1.0, 0], [0, 1]], [[1.0, 0], [0, 1], [1, 1]], [[1.0, 2], [3, 4], [5, 6]])
    mask = torch.tensor([[False, False, False], [True, True, False]])
    output, lse = call(*arrays, to_additive(mask) if additive else mask, return_lse=True)
    close(output, [[0, 0], [2.3395, 3.3395]], rtol=0, atol=5.1e-5)
    close(output[0], [0, 0], rtol=0, atol=0)
    assert lse[0] == -math.inf and math.isfinite(lse[1])


@every
@pytest.mark.parametrize("additive", [False, True])
def test_N17_an_empty_row_has_gradient_zero_and_spoils_nothing(call, additive):
    arrays, mask = n01()
    form = to_additive(mask, dtype=torch.float64) if additive else mask
    for loss in (lambda *a: call(*a, form)[1].sum(), lambda *a: call(*a, form).sum()):
        got = torch.autograd.grad(loss(*arrays), arrays)
        close(got[0][0], [0, 0], atol=0)
        close(got[1][2], [0, 0], atol=0)
        close(got[2][2], [0, 0], atol=0)
        assert all(torch.isfinite(g).all() for g in got) and got[0][1].abs().max() > 0.1
        assert torch.autograd.gradcheck(loss, arrays)


@every
@pytest.mark.parametrize("name", LOSSES)
def test_N17_whatever_the_loss_makes_of_an_empty_row_moves_nothing(name, call):
    arrays, _ = n01()
    arrays[0] = torch.tensor([[1.0, 0], [2, 1], [0, 1]]).double().requires_grad_()
    mask = torch.tensor([[True, True, False], [False] * 3, [True, False, False]])  # row 1 within a tile
    got = torch.autograd.grad(LOSSES[name](*call(*arrays, mask, return_lse=True)), arrays, allow_unused=True)
    rest = [a.detach().clone().requires_grad_() for a in arrays]
    steps = attention_steps(rest[0][[0, 2]], *rest[1:], mask[[0, 2]])
    want = torch.autograd.grad(
        LOSSES[name](steps.output, steps.lse), rest, allow_unused=True, materialize_grads=True
    )
    for mine, wanted in zip(got, want, strict=True):
        close(torch.zeros_like(wanted) if mine is None else mine, wanted)


@every
def test_N02_true_means_may_attend(call):
    zeros, value = torch.zeros(3, 1), torch.tensor([[1.0], [2.0], [3.0]])
    close(call(zeros, zeros, value, torch.ones(3, 3).tril().bool()), [[1], [1.5], [2]], rtol=1e-6)


@every
@pytest.mark.parametrize(
    "n_q, n_k, align, want",
    [
        (2, 5, "bottom_right", [1.5, 2.0]),
        (2, 5, "top_left", [0, 0.5]),
        (5, 2, "bottom_right", [0, 0, 0, 0, 0.5]),
        (5, 2, "top_left", [0, 0.5, 0.5, 0.5, 0.5]),
        (1, 4, "bottom_right", [1.5]),
        (3, 3, None, [0, 0.5, 1.0]),
    ],
)
def test_N03_N04_causal_with_other_lengths(call, n_q, n_k, align, want):
    arrays = tensors(np.zeros((n_q, 1)), np.zeros((n_k, 1)), np.arange(float(n_k))[:, None])
    output, lse = call(*arrays, is_causal=True, causal_align=align, return_lse=True)
    close(output[:, 0], want)
    offset = n_k - n_q if align == "bottom_right" else 0
    close(lse, [math.log(m) if (m := min(n_k, i + 1 + offset)) > 0 else -math.inf for i in range(n_q)])


@every
@pytest.mark.parametrize("number", [40.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_N05_half_precision_scores_do_not_overflow(call, number, dtype):
    query, key = torch.full((2, 64), number, dtype=dtype), torch.full((3, 64), number, dtype=dtype)
    key[2] /= 2
    value = torch.tensor([[1.0], [2.0], [4.0]], dtype=dtype)
    output, lse = call(query, key, value, return_lse=True)
    close(output, [[1.5], [1.5]])
    assert output.dtype == dtype and lse.dtype == torch.float32


@every
@pytest.mark.parametrize("score", [-200.0, -20000.0, -60000.0, 200.0, 0.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_rows_of_one_score_whatever_it_is(call, score, dtype):
    query = torch.tensor([[1.0], [0.0]], dtype=dtype)
    key, value = torch.full((5, 1), score, dtype=dtype), torch.arange(5.0, dtype=dtype)[:, None]
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[:, 1:3] = False  # hidden keys in between
    output, lse = call(query, key, value, mask, scale=1.0, return_lse=True)
    rtol = 1e-12 if dtype == torch.float64 else 1e-6
    close(output, [[7 / 3], [7 / 3]], rtol=rtol)
    close(lse, [score + math.log(3), math.log(3)], rtol=rtol)
    bias = torch.full((2, 5), score, dtype=dtype).masked_fill(~mask, -math.inf)
    output, lse = call(query, 0 * key, value, bias, return_lse=True)
    close(output, [[7 / 3], [7 / 3]], rtol=rtol)
    close(lse, [score + math.log(3)] * 2, rtol=rtol)


@ours
def test_a_bias_near_the_end_of_the_range_is_a_bias(call):
    """Stretched by log2(e) it would be infinite."""
    arrays = [torch.zeros(1, 1), torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])]
    close(call(*arrays, torch.full((1, 2), -3e38)), [[2.0]])


def test_the_bound_on_scores_decides_which_way_is_taken(monkeypatch):
    """Just below it no maximum is kept, just above it one is; NaN and huge values keep one."""
    taken, right = [], torch_path._small_scores
    monkeypatch.setattr(torch_path, "_small_scores", lambda head: taken.append(right(head)) or taken[-1])
    limit = torch_path.SMALL_SCORE * math.log(2)
    for number, value, small in (
        (0.99 * limit, 1.0, True),
        (1.01 * limit, 1.0, False),
        (-0.99 * limit, 1.0, True),
        (-1.01 * limit, 1.0, False),
        (1.0, 3e38, False),
    ):
        query, key = torch.tensor([[1.0], [0.5]]), torch.tensor([[number], [-number]])
        values = torch.tensor([[value], [0.0]])
        got, lse = fast_attention(query, key, values, scale=1.0, return_lse=True)
        steps = attention_steps(query.double(), key.double(), values.double(), scale=1.0)
        close(got / value, steps.output / value, rtol=1e-5, atol=1e-30)
        close(lse, steps.lse, rtol=1e-6)
        assert taken.pop() is small and not taken
    with_nan = fast_attention(torch.tensor([[math.nan], [1.0]]), *[torch.ones(2, 1)] * 2)
    assert taken == [False] and with_nan.isnan().tolist() == [[True], [False]]


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 30.0])
def test_single_precision_errs_at_most_twice_the_plain_formula_on_both_ways(spread):
    arrays = [torch.asarray(a).float() for a in random_qkv(17, (2,), 200, 300, 64, 64, spread=spread)]
    exact = torch_sdpa(*(a.double() for a in arrays))
    for call in (fast_attention, with_maxima, sdpa):
        assert worst(call(*arrays), exact) <= 2 * worst(plain_formula(*arrays), exact)


@every
def test_N08_query_heads_share_their_key_head_consecutively(call):
    query, key = torch.zeros(4, 2, 3), torch.zeros(2, 5, 3)
    value = torch.tensor([0.0, 1.0])[:, None, None].expand(2, 5, 1)
    close(call(query, key, value, enable_gqa=True)[:, 0, 0], [0, 0, 1, 1])


def test_grouped_heads_are_not_copied():
    class OfData(Largest):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            before = self.entries
            result = super().__torch_dispatch__(function, types, args, kwargs)
            if isinstance(result, torch.Tensor) and result.is_meta:  # has a size and no memory
                self.entries = before
            return result

    query, key = torch.randn(64, 4, 8), torch.randn(1, 4096, 8)
    for mask in (None, torch.ones(64, 1, 4096, dtype=torch.bool)):
        with OfData() as largest:
            fast_attention(query, key, key, mask, enable_gqa=True)
        assert largest.entries <= 64 * 4096  # the mask; the keys of all 64 heads are eight times that


@every
@pytest.mark.parametrize("n_q, n_kv", [(4, 2), (6, 2), (3, 1)])
def test_grouped_heads_gather_their_gradients(call, n_q, n_kv):
    rng = np.random.default_rng(8)
    shapes = (2, n_q, 3, 4), (2, n_kv, 5, 4), (2, n_kv, 5, 2)
    arrays = leaves(rng.standard_normal(shape) for shape in shapes)
    weighting = torch.asarray(rng.standard_normal((2, n_q, 3, 2)))
    mask = torch.asarray(rng.random((2, n_q, 3, 5)) < 0.7)
    want = torch.autograd.grad((torch_sdpa(*arrays, mask, enable_gqa=True) * weighting).sum(), arrays)
    got = torch.autograd.grad((call(*arrays, mask, enable_gqa=True) * weighting).sum(), arrays)
    for mine, wanted in zip(got, want, strict=True):
        close(mine, wanted)


@every
@pytest.mark.parametrize("n_q, n_k, width", [(1, 20, 128), (1, 1, 3), (3, 799, 16)])
def test_N11_one_query_against_many_keys(call, n_q, n_k, width):
    arrays = random_qkv(3, (1, 2), n_q, n_k, width, 5)
    close(call(*tensors(*arrays)), torch_attention(*arrays))


@pytest.mark.parametrize("block_k", [2, 64, 127, 128, 192, 4096])
def test_N09_a_tile_that_is_not_full_counts_no_more_keys(block_k):
    """All scores are -5: a padded key with score 0 would weigh more than all real ones."""
    query, key = torch.ones(3, 1), torch.full((193, 1), -5.0)
    value = torch.ones(193, 1)
    output, lse = tiles(2, block_k)(query, key, value, scale=1.0, return_lse=True)
    close(output, np.ones((3, 1)), rtol=1e-6)
    close(lse, np.full(3, math.log(193) - 5), rtol=1e-6)


@every
@pytest.mark.parametrize("which", [0, 1, 3, 4], ids=[views(np.zeros((1, 1, 1))) and str(w) for w in range(4)])
def test_N12_views_equal_packed_copies_and_nothing_is_modified(call, which):
    viewed = [list(views(array))[which][1] for array in random_qkv(7, (2, 3), 4, 5, 6, 7)]
    copies = [np.array(view, order="C") for view in viewed]
    mask = torch.asarray(np.random.default_rng(8).random((5, 4)) < 0.7).T
    inputs = [torch_view(v).requires_grad_() for v in viewed]
    weighting = torch.asarray(np.cos(np.arange(2 * 3 * 4 * 7.0)).reshape(3, 2, 7, 4)).permute(1, 0, 3, 2)
    output = call(*inputs, mask)
    close(output, plain_attention(*copies, mask.numpy())[0])
    want = autograd(copies, mask.numpy(), weighting.numpy())
    got = torch.autograd.grad((output * weighting).sum(), inputs)
    for mine, wanted in zip(got, want.values(), strict=True):
        close(mine, wanted)
    for before, after in zip(copies, inputs, strict=True):
        close(after, before, atol=0, rtol=0)


@every
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_N13_what_a_hidden_key_holds_reaches_neither_output_nor_gradient(call, poison, dtype):
    arrays = [torch.asarray(a).to(dtype) for a in random_qkv(5, (2, 1), 3, 4, 2, 3)]
    mask = padding_mask([3, 4], 4, like=arrays[0])
    for form in (mask, to_additive(mask)):

        def run(arrays, form=form):
            inputs = [a.clone().requires_grad_() for a in arrays]
            output, lse = call(*inputs, form, return_lse=True)
            return output.detach(), lse.detach(), *torch.autograd.grad(output.square().sum(), inputs)

        clean = run(arrays)
        poisoned = [a.clone() for a in arrays]
        poisoned[1][0, 0, 3] = poisoned[2][0, 0, 3] = poison
        for one, other in zip(run(poisoned), clean, strict=True):
            close(one, other, atol=1e-6, rtol=1e-6)


@every
def test_N13_causal_masks_hide_what_lies_beyond_them(call):
    query, key, value = tensors(*random_qkv(6, (), 4, 6, 2, 3))
    clean = call(query, key, value, is_causal=True, causal_align="top_left")
    key[4:] = value[4:] = math.nan
    close(call(query, key, value, is_causal=True, causal_align="top_left"), clean)
    query, key, value = tensors(*random_qkv(6, (), 5, 3, 2, 3))
    clean = call(query, key, value, is_causal=True, causal_align="bottom_right")
    query[:2] = math.nan
    inputs = [a.requires_grad_() for a in (query, key, value)]
    got, lse = call(*inputs, is_causal=True, causal_align="bottom_right", return_lse=True)
    close(got, clean)
    assert lse[:2].isneginf().all() and lse[2:].isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(got.sum(), inputs))


@every
@pytest.mark.parametrize("where", ["query", "key", "value"])
def test_a_nan_in_something_visible_shows(call, where):
    arrays = dict(zip(("query", "key", "value"), tensors(*random_qkv(9, (), 3, 4, 2, 2)), strict=True))
    arrays[where][1] = math.nan
    got = call(**arrays)
    rows = [False, True, False] if where == "query" else [True] * 3
    close(got, attention(**arrays).nan_to_num(), nan_at=np.array(rows)[:, None])


@every
@pytest.mark.parametrize("lead, n_q, n_k", ZERO, ids=str)
@pytest.mark.parametrize("how", ["plain", "bool", "additive", "causal"])
def test_N14_zero_lengths(call, lead, n_q, n_k, how):
    arrays = leaves(random_qkv(1, lead, n_q, n_k, 4, 5))
    kwargs = {"is_causal": True, "causal_align": "bottom_right"} if how == "causal" else {}
    if how in ("bool", "additive"):
        kwargs["attn_mask"] = torch.ones(n_q, n_k, dtype=torch.bool if how == "bool" else torch.float64)
    output, lse = call(*arrays, **kwargs, return_lse=True)
    assert output.shape == (*lead, n_q, 5) and lse.shape == (*lead, n_q) and output.requires_grad
    assert n_k or (output == 0).all() and lse.isneginf().all()
    for gradient, array in zip(torch.autograd.grad(output.sum(), arrays), arrays, strict=True):
        assert gradient.shape == array.shape and gradient.isfinite().all()


@every
def test_N18_a_row_of_the_lowest_number_is_empty_and_minus_1e9_is_a_bias(call):
    arrays = [torch.zeros(1, 1), torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])]
    for low in (torch.finfo(torch.float32).min, -math.inf):
        close(call(*arrays, torch.full((1, 2), low)), [[0]], atol=0)
    close(call(*arrays, torch.full((1, 2), -1e9)), [[2]])
    half = torch.full((1, 2), torch.finfo(torch.float16).min, dtype=torch.float16)
    close(call(*(a.half() for a in arrays), half), [[0]], atol=0)


@every
def test_N19_lse_has_one_number_per_query(call):
    query, key, value = tensors(*random_qkv(12, (2, 3), 4, 5, 7, 7))
    lse = call(0 * query, key, value, return_lse=True)[1]
    close(lse, np.full((2, 3, 4), math.log(5)))
    close(call(query, key, value, return_lse=True)[1], attention_steps(query, key, value).lse)


@every
def test_N22_mask_and_causal_together_are_refused(call):
    with pytest.raises(AttnError, match="combine"):
        call(*tensors(*random_qkv(1, (), 3, 3, 2, 2)), torch.ones(3, 3, dtype=torch.bool), is_causal=True)


@every
def test_N28_leading_axes_broadcast_and_gather_their_gradients(call):
    query, key, value = random_qkv(5, (4, 1), 3, 5, 8, 3)
    mask = padding_mask([2, 4, 5, 0], 5)
    for q, k, v, m in (
        (query, key[:1], value[:1], None),
        (query, key[0, 0], value[0, 0], mask),
        (query[:1], key, value, None),
        (query[:1], key[:1], value, None),
        (query, key, value[0], mask),
    ):
        inputs = leaves((q, k, v))
        (mask_tensor,) = tensors(m)
        output = call(*inputs, mask_tensor)
        close(output, plain_attention(q, k, v, m)[0])
        weighting = weightings(5, (4, 1), 3, 3)[0]
        got = torch.autograd.grad((output * torch.asarray(weighting)).sum(), inputs)
        for mine, wanted in zip(got, autograd((q, k, v), m, weighting).values(), strict=True):
            close(mine, wanted)


@pytest.mark.parametrize("call", [sdpa, fast_attention], ids=["sdpa", "fast"])
def test_N30_seventy_thousand_keys_of_which_the_last_is_visible(call):
    query, key, value = tensors(*random_qkv(1, (), 1, 70_000, 2, 3))
    mask = torch.zeros(1, 70_000, dtype=torch.bool)
    mask[0, -1] = True
    close(call(query, key, value, mask), value[-1:], atol=1e-15)


@every
def test_N31_a_window_whose_first_tiles_are_hidden(call):
    arrays = random_qkv(2, (), 300, 300, 4, 3)
    mask = sliding_window_mask(300, 300, 10)
    close(call(*tensors(*arrays, mask)), torch_attention(*arrays, mask))


@pytest.mark.parametrize("call", [sdpa, fast_attention, tiles(16, 16)], ids=["sdpa", "fast", "tiles"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "n_q, n_k, width, d_v, masked", [(17, 33, 64, 40, False), (65, 65, 40, 8, True), (3, 129, 8, 64, True)]
)
def test_N32_low_precision_errs_at_most_two_and_three_times_the_plain_formula(
    call, dtype, n_q, n_k, width, d_v, masked
):
    arrays = [torch.asarray(a).to(dtype) for a in random_qkv(17, (2, 3), n_q, n_k, width, d_v, spread=2.0)]
    mask = causal_mask(n_q, n_k, align="bottom_right", like=arrays[0]) if masked else None
    weighting = torch.asarray(weightings(9, (2, 3), n_q, d_v)[0]).to(dtype)

    def both(function, arrays):
        inputs = [a.clone().requires_grad_() for a in arrays]
        output = function(*inputs, mask)
        assert output.dtype == inputs[0].dtype
        loss = (output * weighting.to(output.dtype)).sum()
        return output.detach(), *torch.autograd.grad(loss, inputs)

    exact = both(torch_sdpa, [a.double() for a in arrays])
    mine, plain = both(call, arrays), both(plain_formula, arrays)
    for factor, got, theirs, right in zip((2, 3, 3, 3), mine, plain, exact, strict=True):
        assert got.dtype == dtype
        assert worst(got, right) <= factor * worst(theirs, right)


def test_a_long_sum_in_half_precision_is_kept_in_single():
    """4096 values of 1 with equal weights: a running sum in bfloat16 stops at 256."""
    ones = torch.ones(4096, 1, dtype=torch.bfloat16)
    for call in (fast_attention, tiles(1, 64), sdpa):
        close(call(ones[:1], ones, ones), [[1.0]], atol=0)
        close(call(ones[:1], ones, ones, return_lse=True)[1], [1 + math.log(4096)], rtol=1e-6)


def test_N33_N34_repeated_calls_are_bit_equal_and_equivalent_masks_are_near():
    arrays = [torch.asarray(a).float() for a in random_qkv(13, (2, 3), 65, 65, 8, 5)]
    runs = []
    for _ in range(5):
        inputs = [a.clone().requires_grad_() for a in arrays]
        output, lse = tiles(16, 16)(*inputs, is_causal=True, return_lse=True)
        gradients = torch.autograd.grad(output.square().sum() + lse.sum(), inputs)
        runs.append((output.detach(), lse.detach(), *gradients))
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))
    window = sliding_window_mask(65, 65, 65, like=arrays[0])
    close(tiles(16, 16)(*arrays, window), runs[0][0], rtol=1e-5, atol=1e-6)


@ours
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_torch_asks_for_some_gradients_only(call, wanted):
    arrays = [a.requires_grad_(place in wanted) for place, a in enumerate(tensors(*GOOD))]
    full = leaves(GOOD)
    want = torch.autograd.grad(attention(*full).square().sum(), full)
    got = torch.autograd.grad(call(*arrays).square().sum(), [arrays[place] for place in wanted])
    for place, gradient in zip(wanted, got, strict=True):
        close(gradient, want[place])


# --- tiles that need not be computed ------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["is_causal", "mask"])
def test_hidden_tiles_and_rows_are_not_computed(form, monkeypatch):
    arrays, shapes, right = tensors(*random_qkv(3, (), 8, 8, 4, 3)), [], torch_path._scores

    def scores(head, tile, buffer):
        result = right(head, tile, buffer)
        shapes.append(tuple(result.shape))
        return result

    monkeypatch.setattr(torch_path, "_scores", scores)
    how = {"is_causal": True} if form == "is_causal" else {"attn_mask": causal_mask(8, 8, like=arrays[0])}
    inputs = [a.requires_grad_() for a in arrays]
    output = tiles(4, 2)(*inputs, **how)
    # Of eight tiles of 4 x 2, six show something; two of them lose the two rows above the diagonal.
    assert shapes == [(4, 2), (2, 2), (4, 2), (4, 2), (4, 2), (2, 2)]
    output.sum().backward()
    assert len(shapes) == 12  # the backward pass computes each once


# --- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_of_a_training_step_is_larger_than_a_tile_or_an_input(causal):
    arrays = [torch.randn(1024, 8, requires_grad=True) for _ in range(3)]
    kept = []
    with (
        Largest() as largest,
        torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
        ),
    ):
        tiles(64, 64)(*arrays, is_causal=causal).sum().backward()
    assert largest.entries <= 1024 * 8
    assert sum(kept) == 4 * 1024 * 8 + 3 * 1024  # Q, K, V, O; row_max, row_sum, which rows see
    with Largest() as largest:
        attention(*arrays, is_causal=causal)
    assert largest.entries >= 1024**2  # the ruler measures


def test_extra_memory_at_8192_tokens_stays_below_32_mib():
    bench = _bench()
    found = bench.probe("memory", "fast", 8192)
    assert found["output_bytes"] == 16 * 2**20 <= found["peak_bytes"] + 2**20
    assert found["extra_bytes"] <= 32 * 2**20


# --- the benchmark ------------------------------------------------------------------------------------------


def _bench():
    spec = importlib.util.spec_from_file_location("bench_cpu", ROOT / "tools" / "bench_cpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_runs_and_writes_what_it_promises(tmp_path):
    file = tmp_path / "attention.json"
    command = [sys.executable, str(ROOT / "tools" / "bench_cpu.py"), "--quick", "--out", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    text = file.read_text(encoding="utf-8")
    result = json.loads(text)
    assert text == json.dumps(result, indent=1, sort_keys=True) + "\n"
    assert set(result) == {
        "command", "date", "machine", "memory", "page_faults", "rows", "settings", "versions"
    }  # fmt: skip
    assert {row["method"] for row in result["rows"]} == set(_bench().METHODS)
    assert all(row["ratio"] == 1 for row in result["rows"] if row["method"] == "sdpa")
    assert all(("reason" in row) != ("ratio" in row) for row in result["rows"])
    assert {row["allocator"] for row in result["page_faults"]} == {"default", "kept"}
    assert str(ROOT) not in text and str(tmp_path) not in text


def test_N36_the_benchmark_refuses_impossible_rates_and_wrong_results():
    bench = _bench()
    row = {"method": "fast", "tokens": 512, "dtype": "float32", "seconds": 1.0, "gflops": 90.0, "ratio": 1.0}
    result = {"machine": {"gemm_gflops": {"float32": 100.0}}, "rows": [row, row | {"reason": "too large"}]}
    bench.refuse_impossible(result)
    for wrong in ({"gflops": 101.0}, {"seconds": math.nan}, {"ratio": 0.0}, {"ratio": -1.0}):
        with pytest.raises(SystemExit, match="fast at 512 tokens"):
            bench.refuse_impossible(result | {"rows": [row | wrong]})
    bench.METHODS["fast"] = lambda q, k, v, causal: sdpa(q, k, v) * 1.01
    with pytest.raises(SystemExit, match="fast is off by"):
        list(bench.time_rows(128, torch.float32, False, 1))


def test_the_recorded_results_are_complete_and_possible():
    bench = _bench()
    result = json.loads(bench.OUT.read_text(encoding="utf-8"))
    bench.refuse_impossible(result)
    assert result["command"] == "python tools/bench_cpu.py"
    there = {(row["method"], row["tokens"], row["dtype"], row["causal"]) for row in result["rows"]}
    assert there >= {
        (method, tokens, dtype, False)
        for method in bench.METHODS
        for tokens in bench.SIZES
        for dtype in ("float32", "bfloat16")
    }


# --- devices, and no torch ----------------------------------------------------------------------------------


def test_the_device_is_the_one_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for asked in (None, "", "cpu", " cpu ", "cpu:0"):
        if asked is None:
            monkeypatch.delenv("ATTNLIB_DEVICE", raising=False)
        else:
            monkeypatch.setenv("ATTNLIB_DEVICE", asked)
        assert torch_path.device().type == "cpu"
    for asked in ("gpu", "cuda", "cuda:0", "mps", "meta", "cpu:1", "cuda:x", "3"):
        monkeypatch.setenv("ATTNLIB_DEVICE", asked)
        with pytest.raises(AttnError, match=f"ATTNLIB_DEVICE is '{asked}'; this machine has cpu:0: name"):
            torch_path.device()


def test_without_being_asked_the_fastest_device_there_is(monkeypatch):
    monkeypatch.delenv("ATTNLIB_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert torch_path.device().type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_path.device().type == "cuda"
    monkeypatch.setenv("ATTNLIB_DEVICE", "cuda:1")
    assert torch_path.device() == torch.device("cuda:1")
    monkeypatch.setenv("ATTNLIB_DEVICE", "cuda:2")
    with pytest.raises(AttnError, match="this machine has cuda:0, cuda:1, mps:0, cpu:0"):
        torch_path.device()


def test_without_torch_one_clear_message_when_a_function_is_called():
    code = """
from attnlib import AttnError, torch_path
for call in (torch_path.device, lambda: torch_path.sdpa(1, 2, 3), lambda: torch_path.fast_attention(1, 2, 3)):
    try:
        call()
    except AttnError as refusal:
        print(refusal)
"""
    assert (
        python(BLOCKER + code, "-W", "error").splitlines()
        == ["attnlib.torch_path needs torch: pip install torch"] * 3
    )

"""Gradients through attnlib on torch: against torch's own in float64, finite differences, the hard rows."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracle import close, plain_formula, random_qkv, sdpa, worst

from attnlib import (
    attention,
    attention_steps,
    causal_mask,
    padding_mask,
    repeat_heads,
    sliding_window_mask,
    to_additive,
)
from attnlib.examples import three_tokens


def leaves(arrays, dtype=torch.float64):
    return [torch.asarray(np.array(a)).to(dtype).requires_grad_() for a in arrays]


def gradients(call, arrays, seed=0):
    """Gradients of a fixed random weighting of `call`'s output."""
    output = call(*arrays)
    weighting = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.autograd.grad((output * weighting.to(output.dtype)).sum(), arrays)


SIZES = [(1, 1, 1, 3), (2, 3, 3, 1), (3, 2, 8, 40), (7, 16, 40, 64), (17, 7, 64, 8), (33, 65, 8, 3)]


@pytest.mark.parametrize("n_q, n_k, width, d_v", SIZES)
@pytest.mark.parametrize("kind", ["none", "causal", "window", "padding", "additive"])
def test_gradients_equal_torchs(n_q, n_k, width, d_v, kind):
    arrays = leaves(random_qkv(n_q, (2, 3), n_q, n_k, width, d_v))
    mask = {
        "none": lambda: None,
        "causal": lambda: causal_mask(n_q, n_k, align="bottom_right", like=arrays[0]),
        "window": lambda: sliding_window_mask(n_q, n_k, 2, align="top_left", like=arrays[0]),
        "padding": lambda: padding_mask([n_k, 0], n_k, like=arrays[0]),
        "additive": lambda: torch.asarray(np.random.default_rng(1).standard_normal((3, 1, n_k))),
    }[kind]()
    ours = gradients(lambda *a: attention(*a, mask), arrays)
    theirs = gradients(lambda *a: sdpa(*a, mask), arrays)
    for mine, torchs in zip(ours, theirs, strict=True):
        close(mine, torchs)


@pytest.mark.parametrize(
    "how", [{}, {"is_causal": True, "causal_align": "bottom_right"}, {"scale": -0.7}], ids=str
)
@pytest.mark.parametrize("lead", [(), (2, 1)], ids=str)
def test_finite_differences(lead, how):
    arrays = leaves(random_qkv(1, lead, 4, 3, 2, 3))  # bottom-right: the first row is empty
    assert torch.autograd.gradcheck(lambda *a: attention(*a, **how), arrays)


def test_finite_differences_of_every_step():
    arrays = leaves(random_qkv(2, (2,), 3, 4, 2, 3))
    mask = torch.tensor([[True, False, True, True], [True] * 4, [False, False, True, True]])

    def finite_steps(*inputs):
        steps = attention_steps(*inputs, mask)
        return steps.scores, steps.scaled, steps.weights, steps.output, steps.lse

    assert torch.autograd.gradcheck(finite_steps, arrays)


def test_a_learned_bias_is_differentiated():
    arrays = leaves(random_qkv(3, (2,), 3, 4, 2, 3))
    bias = leaves([np.random.default_rng(3).standard_normal((2, 1, 4))])[0]
    assert torch.autograd.gradcheck(lambda b, *a: attention(*a, b), (bias, *arrays))
    # where it hides, it moves nothing
    hiding = torch.tensor([[0.5, -math.inf, 0.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    gradient = gradients(lambda b: attention(*arrays, b), [hiding])[0]
    close(gradient[0, [1, 3]], [0, 0], atol=0)
    assert gradient[0, [0, 2]].abs().min() > 1e-6


def test_second_derivatives():
    arrays = leaves(random_qkv(4, (), 2, 3, 2, 2))
    mask = causal_mask(2, 3, align="bottom_right", like=arrays[0])
    assert torch.autograd.gradgradcheck(lambda *a: attention(*a, mask), arrays)


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
        output = attention(*inputs, form)
        return (output[1] if rows == "row 1" else output).sum()

    got = torch.autograd.grad(loss(*arrays), arrays)
    close(got[0][0], [0, 0], atol=0)
    close(got[1][2], [0, 0], atol=0)  # key 2 is hidden from both
    close(got[2][2], [0, 0], atol=0)
    assert all(torch.isfinite(g).all() for g in got) and got[0][1].abs().max() > 0.1
    assert torch.autograd.gradcheck(loss, arrays)


def test_an_empty_row_is_zero_in_every_step_backward():
    arrays, mask = n01()
    steps = attention_steps(*arrays, mask)
    for number in (steps.weights[0].sum(), steps.output[0].sum(), torch.where(mask, steps.masked, 0.0).sum()):
        assert all(
            g is None or torch.isfinite(g).all()
            for g in torch.autograd.grad(number, arrays, retain_graph=True, allow_unused=True)
        )
    # lse of an empty row is -inf and stands still
    for gradient in torch.autograd.grad(steps.lse[0], arrays[:2]):
        close(gradient, torch.zeros_like(gradient), atol=0)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_N13_what_a_hidden_key_holds_reaches_no_gradient(poison):
    data = random_qkv(5, (2, 1), 3, 4, 2, 3)
    mask = padding_mask([3, 4], 4, like=torch.zeros(1))
    clean = gradients(lambda *a: attention(*a, mask), leaves(data))
    for array in data[1:]:
        array[0, 0, 3] = poison
    for form in (mask, to_additive(mask)):
        dirty = gradients(lambda *a, form=form: attention(*a, form), leaves(data))
        for one, other in zip(dirty, clean, strict=True):
            close(one, other, atol=0, rtol=0)
        close(dirty[1][0, 0, 3], [0, 0], atol=0)
        close(dirty[2][0, 0, 3], [0, 0, 0], atol=0)


def test_a_query_that_sees_nothing_has_gradient_zero_even_if_it_is_nan():
    data = random_qkv(6, (), 2, 3, 2, 3)
    mask = torch.tensor([[False], [True]]).expand(2, 3)
    clean = gradients(lambda *a: attention(*a, mask), leaves(data))
    data[0][0] = np.nan
    dirty = gradients(lambda *a: attention(*a, mask), leaves(data))
    close(dirty[0][0], [0, 0], atol=0)
    for one, other in zip(dirty, clean, strict=True):
        close(one, other, atol=0, rtol=0)


@pytest.mark.parametrize(
    "lead, n_q, n_k", [((), 3, 0), ((2, 1), 3, 0), ((), 0, 3), ((0, 2), 3, 2), ((2,), 0, 0)], ids=str
)
@pytest.mark.parametrize("how", ["plain", "mask", "additive"])
def test_N14_zero_lengths_stay_attached_with_gradient_zero(lead, n_q, n_k, how):
    arrays = leaves(random_qkv(7, lead, n_q, n_k, 2, 3))
    mask = {"plain": None, "mask": torch.ones(n_q, n_k, dtype=torch.bool), "additive": torch.zeros(n_q, n_k)}[
        how
    ]
    steps = attention_steps(*arrays, mask)
    assert steps.output.requires_grad and steps.weights.requires_grad
    for gradient, array in zip(torch.autograd.grad(steps.output.sum(), arrays), arrays, strict=True):
        close(gradient, torch.zeros_like(array), atol=0)


@pytest.mark.parametrize("n_q, n_kv", [(4, 2), (6, 2), (3, 1)])
def test_grouped_heads_gather_their_gradients(n_q, n_kv):
    rng = np.random.default_rng(8)
    shapes = (2, n_q, 3, 4), (2, n_kv, 5, 4), (2, n_kv, 5, 2)
    arrays = leaves(rng.standard_normal(shape) for shape in shapes)
    ours = gradients(lambda *a: attention(*a, enable_gqa=True), arrays)
    theirs = gradients(lambda *a: sdpa(*a, enable_gqa=True), arrays)
    for mine, torchs in zip(ours, theirs, strict=True):
        close(mine, torchs)
    if n_kv == 1:  # the same by broadcasting
        for mine, torchs in zip(gradients(attention, arrays), theirs, strict=True):
            close(mine, torchs)
    assert torch.autograd.gradcheck(lambda x: repeat_heads(x, 2), (arrays[1],))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n_q, n_k, width, d_v", [(17, 33, 64, 40), (65, 65, 40, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_low_precision_gradients_err_at_most_three_times_the_plain_formulas(
    dtype, n_q, n_k, width, d_v, masked
):
    data = [torch.asarray(a).to(dtype) for a in random_qkv(9, (2, 3), n_q, n_k, width, d_v)]
    mask = causal_mask(n_q, n_k, align="bottom_right", like=data[0]) if masked else None
    low = [a.clone().requires_grad_() for a in data]
    high = [a.double().requires_grad_() for a in data]
    exact = gradients(lambda *a: sdpa(*a, mask), high)
    plain = gradients(lambda *a: plain_formula(*a, mask), low)
    for mine, theirs, right in zip(gradients(lambda *a: attention(*a, mask), low), plain, exact, strict=True):
        assert mine.dtype == dtype
        assert worst(mine, right) <= 3 * worst(theirs, right)


# --- the worked example, backward -------------------------------------------------------------------------

PRINTED = {"rtol": 0, "atol": 5.1e-5}


@pytest.fixture
def backward():
    query, key, value = leaves(three_tokens().head(1))
    steps = attention_steps(query, key, value, is_causal=True)
    d_output = torch.zeros(3, 4, dtype=torch.float64)
    d_output[2, 0] = 1
    (d_scaled,) = torch.autograd.grad(steps.output, steps.masked, d_output, retain_graph=True)
    d_query, d_key, d_value = torch.autograd.grad(steps.output, (query, key, value), d_output)
    return steps, d_output, d_scaled, d_query, d_key, d_value


def test_worked_gradients_of_token_3(backward):
    steps, d_output, d_scaled, d_query, d_key, d_value = backward
    close((d_output * steps.output).sum(-1)[2], 0.1142, **PRINTED)  # D
    close(d_scaled[2], [0.1012, -0.0048, -0.0964], **PRINTED)
    close(d_scaled[2].sum(), 0)
    close(d_query[2], [0.1493, -0.0458, 0.0988, -0.0458], **PRINTED)
    close(
        d_key,
        [
            [-0.0506, 0.0506, 0.0506, 0.1012],
            [0.0024, -0.0024, -0.0024, -0.0048],
            [0.0482, -0.0482, -0.0482, -0.0964],
        ],
        **PRINTED,
    )
    close(d_value[:, 0], [0.1142, 0.0420, 0.8438], **PRINTED)
    close(d_query[:2], np.zeros((2, 4)))
    close(d_value[:, 1:], np.zeros((3, 3)))


def test_the_jacobian_of_row_3():
    steps = attention_steps(*leaves(three_tokens().head(1)), is_causal=True)
    p = steps.weights[2].detach().numpy()
    want = np.diag(p) - np.outer(p, p)
    for i, j in itertools.product(range(3), repeat=2):
        (gradient,) = torch.autograd.grad(steps.weights[2, i], steps.masked, retain_graph=True)
        close(gradient[2, j], want[i, j])

"""The online softmax: worked numbers, any split, any order, and rows that leave nothing to the numbers."""

import functools
import itertools
import math
import random

import numpy as np
import pytest
import torch
from oracle import LIBRARIES, close, to_numpy

from attnlib import MaskError, ShapeError, online, softmax
from attnlib.examples import three_tokens
from attnlib.online import OnlineState, finish, from_result, merge, start, update

PRINTED = {"rtol": 0, "atol": 5.1e-5}
ROW = [1.0, 0.0, 3.0]


def after(lib, scores, value, blocks, allowed=None, dtype="float64"):
    """The state of all rows of `scores` after these blocks of keys."""
    value = lib.array(value, dtype)
    scores = lib.array(scores, dtype)
    state = start(scores.shape[:-1], value.shape[-1], like=value)
    for keys in blocks:
        visible = None if allowed is None else lib.array(allowed)[..., keys]
        state = update(state, scores[..., keys], value[..., keys, :], visible)
    return state


def cut(n, size):
    return [slice(a, min(n, a + size)) for a in range(0, n, size)]


def plain(scores, value, allowed=None):
    """Output and lse of all keys at once, in NumPy."""
    shown = np.ones(scores.shape, bool) if allowed is None else np.broadcast_to(allowed, scores.shape)
    masked = np.where(shown, scores, -np.inf)
    top = np.max(np.where(np.isneginf(masked), np.finfo(float).min, masked), axis=-1, keepdims=True)
    powers = np.exp(masked - top)
    total = powers.sum(axis=-1, keepdims=True)
    empty = ~shown.any(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        output = np.where(empty[..., None], 0, powers @ value / total)
        lse = np.where(empty, -np.inf, (top + np.log(total))[..., 0])
    return output, lse


def same_state(got, want, **how):
    for mine, wanted in zip(got, want, strict=True):
        close(mine, wanted, **how)


# --- the worked row ---------------------------------------------------------------------------------------


def test_row_3_one_key_at_a_time(lib):
    value = three_tokens().head(1)[2]
    wanted = [
        (1, 1, [1, 0, 0, 1]),
        (1, 1.3679, [1, 0.3679, 0, 1.3679]),
        (3, 1.1851, [0.1353, 0.0498, 1, 1.1851]),
    ]
    state = start((1,), 4, like=lib.array(value))
    for j, (row_max, row_sum, accumulator) in enumerate(wanted):
        state = update(state, lib.array([[ROW[j]]]), lib.array(value[j : j + 1]))
        close(state.row_max, [row_max], **PRINTED)
        close(state.row_sum, [row_sum], **PRINTED)
        close(state.accumulator, [accumulator], **PRINTED)
        assert to_numpy(state.seen).tolist() == [True]
    output, lse = finish(state)
    close(output, [[0.1142, 0.0420, 0.8438, 1]], **PRINTED)
    close(lse, [3.1698], **PRINTED)
    assert all(lib.owns(array) for array in (*state, output, lse))


def test_the_factor_of_the_worked_row(lib):
    close(online.rescaling(lib.array([1.0]), lib.array([3.0])), [0.1353], **PRINTED)
    close(online.rescaling(lib.array([3.0]), lib.array([3.0])), [1])
    close(online.rescaling(lib.array([-np.inf]), lib.array([3.0])), [0])
    close(online.rescaling(lib.array([-np.inf]), lib.array([-np.inf])), [0])
    close(online.larger(lib.array([1.0, 3.0]), lib.array([2.0, -np.inf])), [2, 3])


def test_merging_keys_1_and_2_with_key_3(lib):
    value = three_tokens().head(1)[2]
    parts = []
    for keys in (slice(0, 2), slice(2, 3)):
        parts.append(finish(after(lib, [ROW], value, [keys])))
    close(parts[0][0], [[0.7311, 0.2689, 0, 1]], **PRINTED)
    close(parts[0][1], [1.3133], **PRINTED)
    close(parts[1][0], [[0, 0, 1, 1]], **PRINTED)
    close(parts[1][1], [3])
    merged = merge(from_result(*parts[0]), from_result(*parts[1]))
    a, b = (float(np.exp(to_numpy(p[1])[0] - 3.1698)) for p in parts)
    close([a, b], [0.1562, 0.8438], rtol=0, atol=2e-4)
    output, lse = finish(merged)
    close(output, [[0.1142, 0.0420, 0.8438, 1]], **PRINTED)
    close(lse, [3.1698], **PRINTED)
    average = (to_numpy(parts[0][0]) + to_numpy(parts[1][0])) / 2
    close(average, [[0.3655, 0.1345, 0.5, 1]], **PRINTED)  # what a plain average would give


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_every_order_of_the_three_keys(order, lib):
    value = three_tokens().head(1)[2]
    state = after(lib, np.array([ROW])[:, order], value[list(order)], cut(3, 1))
    same_state(state, after(lib, [ROW], value, [slice(0, 3)]))


# --- any split, any order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 18, 200])
@pytest.mark.parametrize("lead", [(), (2,), (2, 1, 3)], ids=str)
def test_blocks_of_any_size(size, lead, lib):
    rng = np.random.default_rng(size)
    scores, value = 3 * rng.standard_normal((*lead, 5, 17)), rng.standard_normal((*lead, 17, 3))
    allowed = rng.random((*lead, 5, 17)) < 0.5
    allowed[..., 0, :] = False
    allowed[..., 1, :16] = False
    for mask in (None, allowed, allowed[..., :1, :]):
        state = after(lib, scores, value, cut(17, size), mask)
        assert state.row_max.shape == state.row_sum.shape == state.seen.shape == (*lead, 5)
        assert state.accumulator.shape == (*lead, 5, 3)
        for got, want in zip(finish(state), plain(scores, value, mask), strict=True):
            close(got, want)


@pytest.mark.parametrize("seed", range(6))
def test_random_splits_and_trees(seed, lib):
    rng = np.random.default_rng(seed)
    scores, value = 5 * rng.standard_normal((4, 23)), rng.standard_normal((23, 2))
    allowed = rng.random((4, 23)) < 0.6
    allowed[seed % 4] = False
    ends = [0, *sorted(rng.choice(np.arange(1, 23), 6, replace=False).tolist()), 23]
    blocks = [slice(a, b) for a, b in itertools.pairwise(ends)]
    states = [after(lib, scores, value, [keys], allowed) for keys in blocks]
    shuffle = random.Random(seed)
    while len(states) > 1:  # any two of them next: every tree and every order can come up
        one, other = (states.pop(shuffle.randrange(len(states))) for _ in range(2))
        states.append(merge(one, other))
    same_state(states[0], after(lib, scores, value, [slice(0, 23)], allowed), rtol=1e-13)
    for got, want in zip(finish(states[0]), plain(scores, value, allowed), strict=True):
        close(got, want)


def four_states(lib):
    """Different rows: ordinary, very negative, shown nothing at first, shown nothing at all."""
    rng = np.random.default_rng(4)
    scores, value = rng.standard_normal((4, 8)), rng.standard_normal((8, 3))
    scores[1] = -60000.0
    allowed = np.ones((4, 8), bool)
    allowed[2, :5] = False
    allowed[3] = False
    return [after(lib, scores, value, [keys], allowed) for keys in cut(8, 2)], plain(scores, value, allowed)


def test_merge_is_commutative_and_associative(lib):
    states, (output, lse) = four_states(lib)
    for one, other in itertools.permutations(states, 2):
        same_state(merge(one, other), merge(other, one), rtol=0, atol=0)
    a, b, c, _ = states
    same_state(merge(merge(a, b), c), merge(a, merge(b, c)), rtol=1e-15, atol=1e-15)
    for order in itertools.permutations(states):
        got = finish(functools.reduce(merge, order))
        close(got[0], output)
        close(got[1], lse)


def test_the_state_of_nothing_is_neutral(lib):
    for state in four_states(lib)[0]:
        nothing = start((4,), 3, like=state.row_max)
        same_state(merge(state, nothing), state, rtol=0, atol=0)
        same_state(merge(nothing, state), state, rtol=0, atol=0)
    twice = merge(nothing, start((4,), 3, like=nothing.row_max))
    same_state(twice, nothing, rtol=0, atol=0)
    close(nothing.row_max, [-np.inf] * 4)
    close(nothing.row_sum, [0] * 4, atol=0)
    close(nothing.accumulator, np.zeros((4, 3)), atol=0)
    assert not to_numpy(nothing.seen).any()


def test_a_block_without_keys_changes_nothing(lib):
    for state in four_states(lib)[0]:
        empty = lib.array(np.zeros((4, 0))), lib.array(np.zeros((0, 3)))
        assert update(state, *empty) is state
        assert update(state, *empty, lib.array(np.zeros((4, 0), bool))) is state


def test_a_block_that_is_hidden_changes_nothing(lib):
    block = lib.array(np.full((4, 2), 7.0)), lib.array(np.ones((2, 3)))
    for state in (*four_states(lib)[0], start((4,), 3, like=block[0])):
        same_state(update(state, *block, lib.array(np.zeros((4, 2), bool))), state, rtol=0, atol=0)
        same_state(update(state, *block, lib.array(np.zeros(2, bool))), state, rtol=0, atol=0)


def test_results_become_states_again(lib):
    states, wanted = four_states(lib)
    results = [from_result(*finish(state)) for state in states]
    for state, result in zip(states, results, strict=True):
        close(result.row_max, to_numpy(finish(state)[1]))
        close(result.row_sum, to_numpy(state.seen).astype(float))
        assert np.array_equal(to_numpy(result.seen), to_numpy(state.seen))
        for got, want in zip(finish(result), finish(state), strict=True):
            close(got, to_numpy(want), rtol=1e-15)
    for got, want in zip(finish(functools.reduce(merge, results)), wanted, strict=True):
        close(got, want)
    # results and states may be mixed, and a state may go on with more keys
    mixed = merge(results[0], merge(states[1], merge(results[2], states[3])))
    close(finish(mixed)[0], wanted[0])


# --- hard rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("score", [-200.0, -20000.0, -60000.0, -1e300])
def test_very_negative_scores_are_exact(score, block, lib):
    value = np.array([[3.0], [6.0], [9.0], [1e9], [12.0]])
    scores = np.full((1, 5), score)
    allowed = np.array([[True, True, True, False, True]])
    output, lse = finish(after(lib, scores, value, cut(5, block), allowed))
    close(output, [[7.5]], rtol=1e-15)
    close(lse, [score + math.log(4)], rtol=1e-15)
    alone = finish(after(lib, scores[:, :1], value[:1], [slice(0, 1)]))
    close(alone[0], [[3]], atol=0)
    close(alone[1], [score], atol=0, rtol=0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_very_negative_scores_mixed(order, lib):
    scores = np.array([[-200.0, -20000.0, -60000.0, -201.0], [-60000.0, -60000.0, -60001.0, -20000.0]])
    value = np.array([[1.0, 0], [0, 1], [2, 2], [3, 5]])
    got = finish(after(lib, scores[:, order], value[list(order)], cut(4, 1)))
    for mine, want in zip(got, plain(scores, value), strict=True):
        close(mine, want)


@pytest.mark.parametrize("score", [-200.0, -20000.0, -60000.0])
def test_very_negative_scores_in_half_and_single_precision(score):
    value = torch.tensor([[3.0], [6.0], [9.0]])
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        state = start((1,), 1, like=value.to(dtype))
        for j in range(3):
            state = update(state, torch.tensor([[score]]).to(dtype), value[j : j + 1].to(dtype))
        output, lse = finish(state)
        close(output, [[6.0]], rtol=1e-6)
        close(lse, [float(torch.tensor(score).to(dtype)) + math.log(3)], rtol=1e-6)


@pytest.mark.parametrize("block", [1, 2, 4])
def test_visible_minus_infinities_are_as_in_the_plain_softmax(block, lib):
    """They weigh nothing beside a finite score, before it and after it."""
    inf = -np.inf
    scores = np.array(
        [[inf, inf, 2.0, 1.0], [2.0, 1.0, inf, inf], [inf, 2.0, inf, 1.0], [2.0, inf, inf, inf]]
    )
    value = np.array([[1.0, 0], [0, 1], [2, 2], [3, 5]])
    got = finish(after(lib, scores, value, cut(4, block)))
    want = to_numpy(softmax(lib.array(scores))) @ value
    close(got[0], want)
    close(got[1], np.log(np.exp(scores).sum(axis=-1)))


@pytest.mark.parametrize("allowed", [None, [[True, True]], [[False, True]]], ids=str)
def test_nothing_but_visible_minus_infinities_shows(allowed, lib):
    allowed = None if allowed is None else np.array(allowed)
    for block in (1, 2):
        state = after(lib, [[-np.inf, -np.inf]], [[1.0], [2.0]], cut(2, block), allowed)
        assert to_numpy(state.seen).all()  # the mask says so, whatever the numbers say
        with np.errstate(invalid="ignore", divide="ignore"):
            assert np.isnan(to_numpy(finish(state)[0])).all()


def test_an_empty_row_is_zero_whatever_its_blocks_hold(lib):
    scores = np.array([[np.nan, np.inf, 1e300]] * 2)
    allowed = np.array([[False] * 3, [False, False, True]])
    for block in (1, 2, 3):
        output, lse = finish(after(lib, scores, np.arange(3.0)[:, None], cut(3, block), allowed))
        close(output, [[0], [2]], atol=0)
        close(lse, [-np.inf, 1e300], atol=0)


@pytest.mark.parametrize("what", ["score", "value", "infinite score"])
@pytest.mark.parametrize("place", range(3))
def test_what_is_visible_and_not_a_number_shows(what, place, lib):
    scores, value = np.array([ROW, ROW]), np.arange(6.0).reshape(3, 2)
    if what == "value":
        value[place, 0] = np.nan
    else:
        scores[0, place] = np.nan if what == "score" else np.inf
    for block in (1, 2, 3):
        with np.errstate(invalid="ignore"):
            output, lse = finish(after(lib, scores, value, cut(3, block)))
        shows = np.isnan(to_numpy(output))
        if what == "value":
            assert shows[:, 0].all() and not shows[:, 1].any()
        else:
            assert shows[0].all() and not shows[1].any()
            assert what == "infinite score" or np.isnan(to_numpy(lse)[0])


def test_a_hidden_score_that_is_not_a_number_does_not_show(lib):
    value = np.arange(6.0).reshape(3, 2)
    allowed = np.array([[True, False, True]])
    for poison in (np.nan, np.inf, -np.inf, 1e300):
        for block in (1, 2, 3):
            got = finish(after(lib, [[1.0, poison, 3.0]], value, cut(3, block), allowed))
            for mine, want in zip(got, plain(np.array([ROW]), value, allowed), strict=True):
                close(mine, want)


def test_large_scores_never_overflow(lib):
    scores, value = np.array([[700.0, 8e307, -8e307, 1000.0]]), np.arange(4.0)[:, None]
    output, lse = finish(after(lib, scores, value, cut(4, 1)))
    close(output, [[1]])
    close(lse, [8e307])


# --- types, shapes, torch ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype, kept", [("float16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_the_state_is_kept_in_at_least_single_precision(dtype, kept):
    for library in LIBRARIES[:3]:
        if dtype == "float16" and library.name == "strict":
            continue  # the standard has no half precision
        value = np.ones((4096, 1))
        state = start((1,), 1, like=library.array(value, dtype))
        for keys in cut(4096, 64):
            state = update(state, library.array(np.zeros((1, 64)), dtype), library.array(value[keys], dtype))
        assert [library.dtype(a) for a in state] == [kept] * 3 + ["bool"]
        close(state.row_sum, [4096], atol=0)  # float16 would stop at 2048
        output, lse = finish(state)
        assert [library.dtype(a) for a in (output, lse)] == [kept] * 2
        again = from_result(library.array([[1.0]], dtype), lse)
        assert [library.dtype(a) for a in again] == [kept] * 3 + ["bool"]
        assert [library.dtype(a) for a in merge(state, again)] == [kept] * 3 + ["bool"]


def test_bfloat16_keeps_single_precision():
    ones = torch.ones(4096, 1, dtype=torch.bfloat16)
    state = start((1,), 1, like=ones)
    for keys in cut(4096, 64):
        state = update(state, torch.zeros(1, 64, dtype=torch.bfloat16), ones[keys])
    assert [a.dtype for a in state] == [torch.float32] * 3 + [torch.bool]
    close(state.row_sum, [4096], atol=0)  # bfloat16 would stop at 256
    assert from_result(ones[:1], torch.zeros(1)).accumulator.dtype == torch.float32


def test_single_precision_stays_close_over_many_blocks():
    rng = np.random.default_rng(7)
    scores, value = 3 * rng.standard_normal((3, 4096)), rng.standard_normal((4096, 2))
    output, lse = finish(after(LIBRARIES[0], scores, value, cut(4096, 16), dtype="float32"))
    want = plain(scores, value)
    close(output, want[0], rtol=0, atol=1e-6)
    close(lse, want[1], rtol=1e-6)


def test_torch_differentiates_through_blocks_and_merges():
    def call(scores, value, size):
        allowed = torch.tensor(
            [[True, True, False, True, True], [False] * 5, [False, False, True, True, True]]
        )
        states = []
        for keys in cut(5, size):
            state = start((3,), 2, like=value)
            states.append(update(state, scores[:, keys], value[keys], allowed[:, keys]))
        output, lse = finish(functools.reduce(merge, states))
        return output, lse[[0, 2]]

    rng = np.random.default_rng(8)
    inputs = [torch.asarray(rng.standard_normal(shape)).requires_grad_() for shape in ((3, 5), (5, 2))]
    for size in (1, 2, 5):
        assert torch.autograd.gradcheck(lambda *a, size=size: call(*a, size), inputs)
    # and through one state that is updated, as through the softmax at once
    state = start((3,), 2, like=inputs[1])
    for keys in cut(5, 2):
        state = update(state, inputs[0][:, keys], inputs[1][keys])
    got = torch.autograd.grad(finish(state)[0].square().sum(), inputs)
    want = torch.autograd.grad((torch.softmax(inputs[0], -1) @ inputs[1]).square().sum(), inputs)
    for mine, torchs in zip(got, want, strict=True):
        close(mine, torchs)


def test_nothing_is_modified(lib):
    scores, value = lib.array([ROW]), lib.array(np.eye(3))
    state = start((1,), 3, like=value)
    before = [to_numpy(a).copy() for a in state]
    second = update(state, scores, value)
    kept = [to_numpy(a).copy() for a in second]
    update(second, scores, value)
    merge(second, second)
    finish(second)
    for array, was in zip((*state, *second, scores), (*before, *kept, [ROW]), strict=True):
        assert np.array_equal(to_numpy(array), was)


def test_shapes_that_do_not_fit_are_refused():
    state = start((2,), 3, like=np.zeros(1))
    with pytest.raises(ShapeError, match="scores have 4 columns .*, value has 5 rows: wanted one value row"):
        update(state, np.zeros((2, 4)), np.zeros((5, 3)))
    with pytest.raises(ShapeError, match="scores have 0 columns .*, value has 1 rows"):
        update(state, np.zeros((2, 0)), np.zeros((1, 3)))
    with pytest.raises(ShapeError, match="2 rows of width 3, the other state 2 of width 4: wanted the same"):
        merge(state, start((2,), 4, like=np.zeros(1)))
    with pytest.raises(ShapeError, match=r"output has shape \(2, 3\), lse \(3,\): wanted one lse per row"):
        from_result(np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(ShapeError, match="wanted floating point"):
        start((2,), 3, like=np.zeros(1, int))
    with pytest.raises(ShapeError, match="like is a list, wanted an array"):
        start((2,), 3, like=[1.0])
    with pytest.raises(ShapeError, match="row_sum is a int, wanted an array"):
        finish(OnlineState(0, 0, 0, True))
    with pytest.raises(ShapeError, match="different libraries"):
        update(state, np.zeros((2, 1)), torch.zeros(1, 3))


def test_what_is_allowed_is_boolean_and_fits(lib):
    scores, value = lib.array(np.ones((2, 3))), lib.array(np.ones((3, 1)))
    state = start((2,), 1, like=value)
    for wrong, words in (
        (np.zeros((2, 3)), "wanted boolean"),
        (np.ones((2, 3), int), "wanted boolean"),
        (np.ones((4, 2, 3), bool), "3 axes"),
        (np.ones((2, 2), bool), "axis -1"),
    ):
        with pytest.raises(MaskError, match=words):
            update(state, scores, value, lib.array(wrong))


def test_N13_what_a_hidden_key_holds_stays_hidden(lib):
    value = np.array([[1.0], [np.nan], [3.0]])
    allowed = np.array([[True, False, True]] * 2)
    state = start((2,), 1, like=lib.array(value))
    state = update(state, lib.array(np.zeros((2, 3))), lib.array(value), lib.array(allowed))
    close(finish(state)[0], [[2.0], [2.0]])


def test_a_state_takes_in_no_wider_numbers_and_no_other_rows(lib):
    state = start((2,), 1, like=lib.array([1.0], "float32"))
    with pytest.raises(ShapeError, match="start it like the wider of the two"):
        update(state, lib.array(np.zeros((2, 3))), lib.array(np.zeros((3, 1))))
    with pytest.raises(ShapeError, match="the state has 2 rows"):
        update(state, lib.array(np.zeros((1, 3)), "float32"), lib.array(np.zeros((3, 1)), "float32"))

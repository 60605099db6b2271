"""The worked examples: the data, and every number that the book's sources print for chapters 0 to 7."""

import numpy as np
import pytest
from oracle import close, plain_attention

from attnlib import attention, attention_steps, causal_mask, merge_heads, project, split_heads
from attnlib.examples import all_sizes_differ, cat_sleeps, three_tokens

PRINTED = {"rtol": 0, "atol": 5.1e-5}  # numbers given to four decimals
THREE = {"rtol": 0, "atol": 5.1e-4}
TWO = {"rtol": 0, "atol": 5.1e-3}

S = [[3, 0, -2], [6, 3, -2], [2, 0, 6]]


def test_head_1_is_the_source_documents():
    query, key, value = three_tokens().head(1)
    close(query, [[1, 0, 1, 0], [1, -1, 2, 0], [-1, 1, 1, 2]])
    close(key, [[1, -1, 2, 1], [-1, -2, 1, 0], [-2, 0, 0, 2]])
    close(value, [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]])
    close(query @ key.T, S)


def test_no_two_rows_of_any_head_agree():
    example = three_tokens()
    rows = np.concatenate([a.reshape(-1, 4) for a in (example.query, example.key, example.value)])
    assert len({tuple(row) for row in rows}) == 18


def test_sizes_of_the_examples():
    example = three_tokens()
    assert len(example.tokens) == 3 and example.x.shape == (3, 8) and example.n_heads == 2
    assert example.query.shape == example.key.shape == example.value.shape == (2, 3, 4)
    assert [w.shape for w in (example.w_q, example.w_k, example.w_v, example.w_o)] == [(8, 8)] * 4
    assert cat_sleeps().tokens == ("The", "cat", "sleeps") and cat_sleeps().query.shape == (1, 3, 2)
    sizes = [a.shape for a in all_sizes_differ()]
    assert sizes == [(2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)]
    assert all(a.dtype == np.float64 for a in (*all_sizes_differ(), *example[1:6], *cat_sleeps()[1:6]))


def test_the_examples_heads_are_the_librarys_heads():
    for example in (three_tokens(), cat_sleeps()):
        for mine, weight in (
            (example.query, example.w_q),
            (example.key, example.w_k),
            (example.value, example.w_v),
        ):
            close(split_heads(project(example.x, weight), example.n_heads), mine)


def test_output_projection_mixes_both_heads_in_every_column():
    w_o = three_tokens().w_o
    assert (w_o[:4].any(axis=0) & w_o[4:].any(axis=0)).all()


@pytest.mark.parametrize("number", [0, 3, -1])
def test_head_numbers_outside_are_refused(number):
    with pytest.raises(IndexError, match=f"head {number} .* 1 to 2"):
        three_tokens().head(number)


def test_examples_are_fresh_each_time():
    three_tokens().x[:] = 99
    all_sizes_differ().query[:] = 99
    assert three_tokens().x.max() == 2 and all_sizes_differ().query.max() == 2


def test_ragged_example_is_halves_without_equal_rows():
    for array in all_sizes_differ():
        assert np.array_equal(array * 2, np.round(array * 2)) and np.abs(array).max() <= 2
        rows = array.reshape(-1, array.shape[-1])
        assert len({tuple(row) for row in rows}) == len(rows)


# --- source one: core attention on three tokens -----------------------------------------------------------


@pytest.fixture
def head_1(lib):
    return [lib.array(a) for a in three_tokens().head(1)]


def test_every_step_of_head_1(head_1):
    steps = attention_steps(*head_1, is_causal=True)
    inf = np.inf
    close(steps.scores, S)
    close(steps.scaled, [[1.5, 0, -1], [3, 1.5, -1], [1, 0, 3]])
    close(steps.masked, [[1.5, -inf, -inf], [3, 1.5, -inf], [1, 0, 3]])
    close(steps.weights, [[1, 0, 0], [0.8176, 0.1824, 0], [0.1142, 0.0420, 0.8438]], **PRINTED)
    close(steps.output, [[1, 0, 0, 1], [0.8176, 0.1824, 0, 1], [0.1142, 0.0420, 0.8438, 1]], **PRINTED)
    close(steps.lse, [1.5, 3.2014, 3.1698], **PRINTED)


def test_row_3_cannot_show_a_causal_mask_but_rows_1_and_2_do(head_1):
    weights = attention_steps(*head_1).weights
    want = [[0.7662, 0.1710, 0.0629], [0.8055, 0.1797, 0.0148], [0.1142, 0.0420, 0.8438]]
    close(weights, want, **PRINTED)


@pytest.mark.parametrize(
    "scale, weight", [(1.0, 0.9796), (None, 0.8438), (8**-0.5, 0.7337), (1 / 4, 0.6285)], ids=str
)
def test_each_divisor_names_itself_in_row_3(scale, weight):
    steps = attention_steps(*three_tokens().head(1), is_causal=True, scale=scale)
    close(steps.weights[2, 2], weight, **PRINTED)


def test_partial_results_merge_through_their_lse(head_1):
    query, key, value = head_1
    query = query[2:, :]
    first, second = (
        attention_steps(query, key[:2, :], value[:2, :]),
        attention_steps(query, key[2:, :], value[2:, :]),
    )
    close(first.output, [[0.7311, 0.2689, 0, 1]], **PRINTED)
    close(first.lse, [1.3133], **PRINTED)
    close(second.output, [[0, 0, 1, 1]], **PRINTED)
    close(second.lse, [3], **PRINTED)


def test_both_heads_together_equal_the_plain_loops(lib):
    example = three_tokens()
    got = attention(*(lib.array(a) for a in (example.query, example.key, example.value)), is_causal=True)
    want = plain_attention(example.query, example.key, example.value, causal_mask(3, 3))[0]
    close(got, want)
    close(merge_heads(got), np.concatenate([want[0], want[1]], axis=1))


# --- source two: one head of three words ------------------------------------------------------------------


def test_the_cat_sleeps_projections_and_scores():
    query, key, value = cat_sleeps().head(1)
    close(query, [[1, 0.5], [0, 1], [1, 1.5]])
    close(key, [[0.5, 1], [1, 0], [1.5, 1]])
    close(value, [[1, -1], [0.5, 1], [1.5, 0]])
    close(attention_steps(query, key, value).scores, [[1, 1, 2], [1, 0, 1], [2, 1, 3]])


@pytest.mark.parametrize(
    "token, causal, weights, output",
    [
        (0, True, [1, 0, 0], [1, -1]),
        (0, False, [0.248, 0.248, 0.503], [1.13, 0]),
        (1, True, [0.670, 0.330, 0], [0.83, -0.34]),
        (1, False, [0.401, 0.198, 0.401], [1.10, -0.20]),
        (2, True, [0.284, 0.140, 0.576], [1.22, -0.14]),
        (2, False, [0.284, 0.140, 0.576], [1.22, -0.14]),
    ],
)
def test_the_six_states_of_the_cat_sleeps(token, causal, weights, output):
    steps = attention_steps(*cat_sleeps().head(1), is_causal=causal)
    close(steps.weights[token], weights, **THREE)
    close(steps.output[token], output, **TWO)


def test_cat_causal_is_rounded_after_summing():
    steps = attention_steps(*cat_sleeps().head(1), is_causal=True)
    close(steps.masked[1], [0.7071, 0, -np.inf], **PRINTED)
    close(steps.output[1], [0.8349, -0.3395], **PRINTED)
    products = steps.weights[1][:, None] * cat_sleeps().head(1)[2]
    close(products, [[0.67, -0.67], [0.17, 0.33], [0, 0]], **TWO)
    assert products.round(2).sum(axis=0)[0].round(2) == 0.84  # and not .83: the sum of rounded products

"""Checks of the online softmax, of tiles, and of the backward pass; as :mod:`attnlib.checks` for one head.

The references are plain loops (:func:`attnlib.checks.by_hand`) and finite differences of them: neither shares
a line with what is checked.
"""

import math

import numpy as np

from . import masks, online, tiled
from .checks import by_hand, same
from .examples import all_sizes_differ, three_tokens


def _row():
    """Row 3 of the worked example, [1, 0, 3], and the values of head 1."""
    return np.array([[1.0, 0.0, 3.0]]), three_tokens().head(1)[2]


def check_one_key_at_a_time():
    """The worked row, one key per block: m, ℓ and o after each key, and the output."""
    scores, value = _row()
    state = online.start((1,), 4, like=value)
    for j in range(3):
        state = online.update(state, scores[:, : j + 1][:, j:], value[j][None])
        seen = scores[0, : j + 1]
        powers = np.exp(seen - seen.max())
        same(state.row_max, [seen.max()], f"m after key {j + 1}")
        same(state.row_sum, [powers.sum()], f"l after key {j + 1}")
        same(
            state.accumulator,
            [powers @ value[: j + 1]],
            f"o after key {j + 1}",
        )
    output, lse = online.finish(state)
    weights = np.exp([1, 0, 3]) / np.exp([1, 0, 3]).sum()
    same(output, [weights @ value], "output")
    same(lse, [math.log(np.exp([1, 0, 3]).sum())], "lse")


def check_falling_scores():
    """The largest score first: the maximum must stay when smaller scores follow."""
    scores, value = _row()
    order = [2, 0, 1]
    state = online.start((1,), 4, like=value)
    for j in order:
        state = online.update(state, scores[:, j : j + 1], value[j : j + 1])
    same(state.row_max, [3.0], "m")
    same(state.row_sum, [np.exp(scores - 3).sum()], "l")


def check_merge():
    """The results of keys {1, 2} and {3} merge into the result of all three."""
    scores, value = _row()
    parts = []
    for piece in (slice(0, 2), slice(2, 3)):
        state = online.start((1,), 4, like=value)
        state = online.update(state, scores[:, piece], value[piece])
        parts.append(online.from_result(*online.finish(state)))
    powers = np.exp(scores)
    same(
        online.finish(online.merge(*parts))[0],
        powers @ value / powers.sum(),
        "merged output",
    )


def check_tiles_of_the_worked_example():
    """Both heads, causal, for every tile size from 1 to 4, against plain loops."""
    t, past = three_tokens(), np.tri(3, dtype=bool)
    for block_q in (1, 2, 3, 4):
        for block_k in (1, 2, 3, 4):
            output = tiled.flash_attention(
                t.query,
                t.key,
                t.value,
                is_causal=True,
                block_q=block_q,
                block_k=block_k,
            )
            for h in range(2):
                wanted = by_hand(t.query[h], t.key[h], t.value[h], past)[1]
                same(output[h], wanted, f"head {h + 1}, {block_q} x {block_k}")


def check_ragged_tiles():
    """Sizes that no tile size divides, without a mask, against plain loops."""
    r = all_sizes_differ()
    for block_q, block_k in ((3, 2), (3, 4), (4, 3)):
        output = tiled.flash_attention(*r, block_q=block_q, block_k=block_k)
        for b, h in np.ndindex(2, 3):
            wanted = by_hand(r.query[b, h], r.key[b, h], r.value[b, h])[1]
            same(output[b, h], wanted, f"item {b}, head {h}")


def check_low_scores():
    """17 keys that all score -5 and hold 1, in tiles of 16: the answer is 1."""
    query, key, value = (
        np.ones((1, 1)),
        np.full((17, 1), -5.0),
        np.ones((17, 1)),
    )
    output = tiled.flash_attention(query, key, value, scale=1.0, block_k=16)
    same(output, [[1.0]], "mean of ones")


def check_lse():
    """The log-sum-exp that the backward pass needs, and −∞ for a row that sees nothing."""
    q, k, v = three_tokens().head(1)
    mask = np.array([[False] * 3, [True, True, False], [True] * 3])
    lse = tiled.flash_attention(q, k, v, mask, block_k=2, return_lse=True)[1]
    scores = q @ k.T / 2
    same(
        lse[1:],
        [
            math.log(np.exp(scores[1, :2]).sum()),
            math.log(np.exp(scores[2]).sum()),
        ],
        "lse",
    )
    assert lse[0] == -math.inf, f"lse of the empty row is {lse[0]}, wanted -inf"


def check_empty_row():
    """A row that may see nothing: output 0, and gradients without NaN."""
    q, k, v = three_tokens().head(1)
    mask = np.array([[False] * 3, [True, True, False], [True] * 3])
    output, lse = tiled.flash_attention(q, k, v, mask, return_lse=True)
    same(output[0], np.zeros(4), "output of the empty row")
    gradients = tiled.flash_attention_backward(
        q, k, v, output, lse, np.ones((3, 4)), mask
    )
    same(gradients.query[0], np.zeros(4), "dQ of the empty row")
    for name in ("query", "key", "value"):
        assert np.isfinite(getattr(gradients, name)).all(), f"d{name}"


def check_very_negative_rows():
    """A row whose every visible score is −20000 is an ordinary row: equal scores, equal weights."""
    query, key = np.full((2, 1), -1.0), np.full((3, 1), 2e4)
    value = np.array([[3.0], [6.0], [9.0]])
    output = tiled.flash_attention(query, key, value, scale=1.0, block_k=2)
    same(output, [[6.0], [6.0]], "mean of the values")


def check_alignment():
    """Four queries, five keys, causal from either corner, tiles of 2 × 2, against plain loops."""
    q, k, v = (a[0, 0] for a in all_sizes_differ())
    for align, shift in (("top_left", 0), ("bottom_right", 1)):
        output = tiled.flash_attention(
            q, k, v, is_causal=True, causal_align=align, block_q=2, block_k=2
        )
        wanted = by_hand(q, k, v, np.tri(4, 5, shift, dtype=bool))[1]
        same(output, wanted, f"output, {align}")


def _gradients_by_differences(loss, arrays):
    """Central differences of `loss`, one number at a time."""
    h, gradients = 1e-5, []
    for place, array in enumerate(arrays):
        gradient = np.zeros(array.shape)
        for at in np.ndindex(*array.shape):
            ends = []
            for step in (h, -h):
                moved = [np.array(a, dtype=float) for a in arrays]
                moved[place][at] += step
                ends.append(loss(*moved))
            gradient[at] = (ends[0] - ends[1]) / (2 * h)
        gradients.append(gradient)
    return gradients


def _check_gradients(arrays, grad_output, allowed=None, *, block, **how):
    """Every gradient against differences of plain loops; they err by about 1e-9 here."""

    def loss(query, key, value):
        total = 0.0
        groups = query.shape[0] // key.shape[0]
        for h in range(query.shape[0]):
            kv = h // groups
            output = by_hand(query[h], key[kv], value[kv], allowed)[1]
            total += (output * grad_output[h]).sum()
        return total

    output, lse = tiled.flash_attention(
        *arrays, block_q=block, block_k=block, return_lse=True, **how
    )
    got = tiled.flash_attention_backward(
        *arrays, output, lse, grad_output, block_q=block, block_k=block, **how
    )
    for name, wanted in zip(
        ("query", "key", "value"),
        _gradients_by_differences(loss, arrays),
        strict=True,
    ):
        # h = 1e-5 errs by h² times a third derivative of size 1, and by 1e-16 / h.
        same(getattr(got, name), wanted, f"d{name}", bound=1e-8)


def check_gradients():
    """dQ, dK, dV of the worked head, causal, in tiles of 2, against finite differences."""
    arrays = [a[None] for a in three_tokens().head(1)]
    grad_output = np.array([[[0.0, 1, 0, 2], [1, -1, 0.5, 0], [1, 0, 2, -1]]])
    _check_gradients(
        arrays, grad_output, np.tri(3, dtype=bool), block=2, is_causal=True
    )


def check_gradients_of_ragged_sizes():
    """The same with every size different and no mask."""
    arrays = [a[0] for a in all_sizes_differ()]
    grad_output = np.cos(np.arange(3 * 4 * 7.0)).reshape(3, 4, 7)
    _check_gradients(arrays, grad_output, block=3)


def check_gradients_of_shared_heads():
    """Two query heads share one key/value head, whose gradient is the sum of both."""
    t = three_tokens()
    arrays = [t.query, t.key[:1], t.value[:1]]
    grad_output = np.sin(np.arange(2 * 3 * 4.0)).reshape(2, 3, 4)
    _check_gradients(arrays, grad_output, block=2, enable_gqa=True)


def check_window():
    """A window mask whose first tile is hidden from the later rows."""
    q, k, v = three_tokens().head(1)
    mask = masks.sliding_window_mask(3, 3, 1)
    output = tiled.flash_attention(q, k, v, mask, block_q=2, block_k=1)
    same(output, by_hand(q, k, v, mask)[1], "output with a window of 1")


CHECKS = {
    name.removeprefix("check_"): function
    for name, function in list(globals().items())
    if name.startswith("check_")
}
"""Every check by name."""

"""Checks of attention code. Each takes no argument, returns nothing, and raises where something is wrong.

They look at attnlib as it stands at that moment, so :func:`attnlib.mistakes.planted` can prove what each of
them sees. The reference is :func:`by_hand`: plain loops over Python floats, sharing no line with the library.
"""

import math

import numpy as np

from . import core, layer, masks, mistakes
from .examples import all_sizes_differ, three_tokens
from .probe import recover_mask


def by_hand(query, key, value, allowed=None):
    """Attention of one head in plain loops over Python floats.

    Parameters
    ----------
    query, key, value : sequences of rows of numbers
        (Tq, d_h), (Tk, d_h), (Tk, d_v).
    allowed : boolean rows, (Tq, Tk), optional
        True = may attend.

    Returns
    -------
    weights, output : arrays of float64, shapes (Tq, Tk) and (Tq, d_v)
    """
    weights = np.zeros((len(query), len(key)))
    output = np.zeros((len(query), len(value[0])))
    for i, q in enumerate(query):
        seen = [j for j in range(len(key)) if allowed is None or allowed[i][j]]
        dots = [
            sum(float(a) * float(b) for a, b in zip(q, key[j], strict=True))
            for j in seen
        ]
        largest = max(dots, default=0.0)
        powers = [math.exp((dot - largest) / math.sqrt(len(q))) for dot in dots]
        for j, power in zip(seen, powers, strict=True):
            weights[i, j] = power / math.fsum(powers)
            output[i] += weights[i, j] * np.asarray(value[j], dtype=float)
    return weights, output


def same(got, wanted, what, *, bound=1e-12):
    """Raise AssertionError unless `got` equals `wanted` up to `bound`; a NaN is never equal.

    Every number compared is of size 1 and comes from at most some dozen float64 operations, each off by at
    most 1.1e-16 relative: 1e-12 leaves room for the order of sums and none for a mistake.
    """
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    assert got.shape == wanted.shape, (
        f"{what}: shape {got.shape}, wanted {wanted.shape}"
    )
    off = ~(np.abs(got - wanted) <= bound)
    if off.any():
        first = tuple(int(n) for n in np.argwhere(off)[0])
        raise AssertionError(
            f"{what}: at {first} got {got[first]:.4f}, wanted {wanted[first]:.4f}"
        )


def _worked(**options):
    t = three_tokens()
    return layer.multi_head_attention(
        t.x, t.w_q, t.w_k, t.w_v, t.w_o, t.n_heads, **options
    )


def check_worked_example():
    """Both heads of the three tokens, causal, and what W_O makes of them, against plain loops."""
    t, steps, past = (
        three_tokens(),
        _worked(is_causal=True),
        np.tri(3, dtype=bool),
    )
    merged = np.zeros((3, 8))
    for h, columns in enumerate((slice(0, 4), slice(4, 8))):
        q, k, v = (t.x @ w[:, columns] for w in (t.w_q, t.w_k, t.w_v))
        weights, merged[:, columns] = by_hand(q, k, v, past)
        same(steps.attention.weights[h], weights, f"weights of head {h + 1}")
    same(steps.merged, merged, "merged heads")
    same(steps.output, merged @ t.w_o, "output")


def check_rows_sum_to_one():
    """Without a mask, every row of weights sums to 1."""
    weights = core.attention_steps(*all_sizes_differ()).weights
    same(weights.sum(axis=-1), np.ones(weights.shape[:-1]), "row sums")


def check_future_is_hidden():
    """The leak test: changing the value of a later token moves nothing before it."""
    q, k, v = three_tokens().head(1)
    seen = recover_mask(
        lambda value: core.attention(q, k, value, is_causal=True), v
    )
    same(seen, np.tri(3), "who sees whom")


def check_all_sizes_differ():
    """Batch, heads, queries, keys and widths all different, against plain loops."""
    r, steps = all_sizes_differ(), core.attention_steps(*all_sizes_differ())
    for b in range(2):
        for h in range(3):
            weights, output = by_hand(r.query[b, h], r.key[b, h], r.value[b, h])
            same(steps.weights[b, h], weights, f"weights of item {b}, head {h}")
            same(steps.output[b, h], output, f"output of item {b}, head {h}")


def check_alignment():
    """Four queries, five keys, causal from either corner, against plain loops."""
    q, k, v = (a[0, 0] for a in all_sizes_differ())
    for align, shift in (("top_left", 0), ("bottom_right", 1)):
        steps = core.attention_steps(
            q, k, v, is_causal=True, causal_align=align
        )
        same(
            steps.weights,
            by_hand(q, k, v, np.tri(4, 5, shift, dtype=bool))[0],
            f"weights, {align}",
        )


def check_window():
    """A window of 2 shows a token itself and the one before it."""
    allowed = [[j in (i - 1, i) for j in range(5)] for i in range(5)]
    same(masks.sliding_window_mask(5, 5, 2), allowed, "window of 2")


def check_empty_row():
    """A row that may see nothing: weights 0, output 0, lse −∞."""
    mask = np.tri(3, dtype=bool)
    mask[0, 0] = False
    steps = core.attention_steps(*three_tokens().head(1), mask)
    same(steps.weights[0], np.zeros(3), "weights of the empty row")
    same(steps.output[0], np.zeros(4), "output of the empty row")
    assert steps.lse[0] == -math.inf, (
        f"lse of the empty row is {steps.lse[0]}, wanted -inf"
    )


def check_large_scores():
    """Scores in the thousands give weights, not NaN; in float16 too."""
    q, k, v = three_tokens().head(1)
    same(
        core.attention_steps(1000 * q, k, v).weights,
        by_hand(1000 * q, k, v)[0],
        "weights of large scores",
    )
    half = core.attention_steps(
        *(np.asarray(300 * a, dtype=np.float16) for a in (q, k, v))
    )
    same(
        half.weights,
        by_hand(300 * q, 300 * k, v)[0],
        "weights of large scores in float16",
    )


def check_padding_may_hold_anything():
    """NaN in a key and value that nobody may see changes nothing."""
    q, k, v = three_tokens().head(1)
    clean = by_hand(q, k[:2], v[:2])[1]
    k[2] = v[2] = np.nan
    same(
        core.attention(q, k, v, masks.padding_mask([2], 3)[0, 0]),
        clean,
        "output beside NaN padding",
    )


def check_grouped_heads():
    """Four query heads over two key/value heads: 1 and 2 use the first, 3 and 4 the second."""
    t = three_tokens()
    four = np.concatenate([t.query, t.query])
    shared = core.attention(four, t.key, t.value, enable_gqa=True)
    for h in range(4):
        same(
            shared[h],
            by_hand(four[h], t.key[h // 2], t.value[h // 2])[1],
            f"query head {h + 1}",
        )


def check_order_of_keys():
    """Keys and values shuffled together: the same output."""
    q, k, v = (a[0, 0] for a in all_sizes_differ())
    order = [3, 0, 4, 2, 1]
    same(
        core.attention(q, k[order], v[order]),
        core.attention(q, k, v),
        "output after shuffling",
    )


def check_log_sum_exp():
    """exp(masked − lse) gives back the weights."""
    steps = core.attention_steps(*three_tokens().head(1), is_causal=True)
    same(
        np.exp(steps.masked - steps.lse[:, None]),
        steps.weights,
        "exp(masked - lse)",
    )


CHECKS = {
    name.removeprefix("check_"): function
    for name, function in list(globals().items())
    if name.startswith("check_")
}
"""Every check by name."""


def kill_matrix(checks=None, planting=None):
    """Which check catches which mistake.

    Parameters
    ----------
    checks : dict, optional
        Name → check; :data:`CHECKS` if not given.
    planting : dict, optional
        Name → mistake; :data:`attnlib.mistakes.MISTAKES` if not given.

    Returns
    -------
    dict
        Name of each mistake → dict of check name → True if the check raised with the mistake planted.
    """
    checks = CHECKS if checks is None else checks
    planting = mistakes.MISTAKES if planting is None else planting
    return {
        name: {check: _catches(checks[check], mistake) for check in checks}
        for name, mistake in planting.items()
    }


def _catches(check, mistake):
    with mistakes.planted(mistake), np.errstate(all="ignore"):
        try:
            check()
        except Exception:
            return True
    return False

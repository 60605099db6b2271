"""The scaling lab: what the width of a head does to its scores, and a divisor to that."""

import math

import numpy as np

from attnlib import core, show

from ._base import make
from ._limits import number, one_of, whole

WIDTHS = tuple(2**n for n in range(11))
N_QUERIES, N_KEYS = 64, 16


def scaling_lab(width=64, *, divisor="none", size=1.0, n_heads=8, seed=1):
    """Random queries and keys of a chosen width: their scores, and the weights for four divisors.

    Parameters
    ----------
    width : int
        d_h, a power of two from 1 to 1024.
    divisor : {"none", "root_d_h", "root_d", "d_h"}
        What the scores are divided by at first; only ``"root_d_h"`` is right.
    size : float
        What every query and key is multiplied by, 0.25 to 4.
    n_heads : int
        For the mistake of dividing by √d: d = n_heads · d_h; 1 to 64.
    seed : int
        Of the sample, 0 to 999999.

    Returns
    -------
    anywidget
        ``state``: width, divisor, size, nHeads, seed. ``result``: for every divisor the spread of the
        scores, measured and predicted, the mean largest weight, the keys in use and the median reaction;
        the histogram's counts; scores and weights of query 1; the mistakes made.

    Raises
    ------
    AttnError
        If an argument is out of range, or anywidget is not installed.

    Notes
    -----
    The sample is made by mulberry32 and the Box-Muller transform, here and in the browser.
    """
    width = one_of("width", width, WIDTHS)
    size = float(number("size", size, 0.25, 4))
    n_heads = whole("n_heads", n_heads, 1, 64)
    seed = whole("seed", seed, 0, 999_999)
    divisors = {
        "none": 1.0,
        "root_d_h": math.sqrt(width),
        "root_d": math.sqrt(n_heads * width),
        "d_h": float(width),
    }
    divisor = one_of("divisor", divisor, divisors)
    state = {
        "width": width,
        "divisor": divisor,
        "size": size,
        "nHeads": n_heads,
        "seed": seed,
    }
    query, key = random_head(seed, width)
    raw = core.scores(size * query, size * key)
    kept = {
        name: measures(core.scale_scores(raw, 1 / by))
        for name, by in divisors.items()
    }
    columns = zip(*kept.values(), strict=True)
    spread, largest, in_use, reaction = map(list, columns)
    static = show.table(
        {
            "spread of scores": spread,
            "predicted": [
                math.sqrt(width) * size**2 / by for by in divisors.values()
            ],
            "largest weight": largest,
            "keys in use": in_use,
            "reaction": reaction,
        },
        rows=["nothing", "√d_h (right)", "√d", "d_h"],
        corner="divided by",
        digits=3,
        caption=f"{N_QUERIES} random queries and {N_KEYS} random keys of width {width}, by four divisors.",
    )
    return make("scaling_lab", state, static)


def mulberry32(seed, count):
    """Uniform numbers from 0 to 1, as the browser's arithmetic makes them."""
    # Products stay below 2**64 and only their low 32 bits count, so uint64 needs no care.
    low = np.uint64(0xFFFFFFFF)
    steps = np.arange(1, count + 1, dtype=np.uint64)
    mixed = (np.uint64(seed) + steps * np.uint64(0x6D2B79F5)) & low
    mixed = ((mixed ^ (mixed >> np.uint64(15))) * (mixed | np.uint64(1))) & low
    shifted = (mixed ^ (mixed >> np.uint64(7))) * (mixed | np.uint64(61)) & low
    mixed ^= (mixed + shifted) & low
    return (mixed ^ (mixed >> np.uint64(14))) / 2.0**32


def random_head(seed, width):
    """Normal queries (64, width) and keys (16, width), by Box and Muller from one stream."""
    count = (N_QUERIES + N_KEYS) * width
    u = mulberry32(seed, count + count % 2).reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    rows = pairs.reshape(-1)[:count].reshape(-1, width)
    return rows[:N_QUERIES], rows[N_QUERIES:]


def measures(scores):
    """Spread of the scores, mean largest weight, keys in use, median reaction."""
    p = core.softmax(scores)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)
    return (
        float(scores.std()),
        float(p.max(axis=-1).mean()),
        float(np.exp(entropy.mean())),
        float(np.median((p * (1 - p)).max(axis=-1))),
    )

"""Heads: where 24 numbers go when they are split and merged."""

import numpy as np

from attnlib import examples, show
from attnlib import heads as layout

from ._base import make
from ._limits import one_of

N_TOKENS, WIDTH = 3, 8


def heads(n_heads=2, *, split="swap", merge="swap"):
    """A grid of 3 tokens by 8 components, split into heads and merged, with the swap of axes or without.

    Parameters
    ----------
    n_heads : {1, 2, 4, 8}
        Heads at first.
    split, merge : {"swap", "reshape"}
        The first settings: with the swap of axes (right), or by reshape alone (wrong).

    Returns
    -------
    anywidget
        ``state``: tokens, nHeads, split, merge. ``result``: x, heads, merged, how many numbers are in
        place in the heads and after the merge, and the mistakes made.

    Raises
    ------
    AttnError
        If a setting is not one of those above, or anywidget is not installed.
    """
    n_heads = one_of("n_heads", n_heads, (1, 2, 4, 8))
    split, merge = (
        one_of(name, way, ("swap", "reshape"))
        for name, way in (("split", split), ("merge", merge))
    )
    state = {
        "tokens": list(examples.three_tokens().tokens),
        "nHeads": int(n_heads),
        "split": split,
        "merge": merge,
    }
    return make("heads", state, _static(int(n_heads)))


def _static(n_heads):
    x = 10 * np.arange(N_TOKENS)[:, None] + np.arange(WIDTH)
    right = layout.split_heads(x, n_heads)
    wrong = x.reshape(right.shape)
    # The first head and the last say it all. A row of numbers is one cell.
    which = sorted({0, n_heads - 1})
    places = int((right == wrong).sum())
    return show.table(
        {
            "reshape, then swap": [
                tuple(row.tolist()) for r in which for row in right[r]
            ],
            "reshape alone": [
                tuple(row.tolist()) for r in which for row in wrong[r]
            ],
        },
        rows=[f"head {r + 1}, row {t}" for r in which for t in range(N_TOKENS)],
        caption=f"10t + c is component c of token t, both from 0. "
        f"By reshape alone, {places} of {x.size} numbers are in place.",
    )

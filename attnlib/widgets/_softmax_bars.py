"""Softmax bars: one row from scores to weights, in three precisions."""

import numpy as np

from attnlib import core, examples, show
from attnlib.errors import AttnError

from ._base import make, rows
from ._limits import whole


def softmax_bars(*, example=None, row=2):
    """One row of scores on sliders: its powers of e, its weights, and what overflows without the maximum.

    Parameters
    ----------
    example : attnlib.examples.Example, optional
        Its head 1 gives the row and the table; the three tokens if not given. At most 6 tokens.
    row : int
        The query whose scores the sliders start with, from 0.

    Returns
    -------
    anywidget
        ``state``: row, hidden, subtract, precision, temperature, shift, softmax (the axis of the table).
        ``result``: given, moved, powers, total, weights and lse of the row, infinite ones and NaN as words;
        table, rowSums and columnSums; the mistakes made.

    Raises
    ------
    AttnError
        If the example has more than 6 tokens or no such row, or anywidget is not installed.
    """
    example = examples.three_tokens() if example is None else example
    n = len(example.tokens)
    if n > 6:
        raise AttnError(f"the example has {n} tokens, wanted at most 6")
    row = whole("row", row, 0, n - 1)
    scaled = core.attention_steps(*example.head(1)).scaled
    state = {
        "tokens": list(example.tokens),
        "row": rows(scaled)[row],
        "hidden": [False] * n,
        "scaled": rows(scaled),
        "subtract": True,
        "precision": "float64",
        "temperature": 1,
        "shift": 0,
        "softmax": "over_keys",
    }
    scores = scaled[row]
    large = np.float32(100 + np.arange(n))
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(large)
        naive = powers / powers.sum()
    static = show.table(
        {
            "score": scores,
            "minus maximum": scores - scores.max(),
            "e to that": np.exp(scores - scores.max()),
            "weight": core.softmax(scores[None])[0],
            "large score": large.astype(float),
            "no maximum, float32": naive.astype(float),
            "with maximum": core.softmax(large[None].astype(float))[0],
        },
        rows=example.tokens,
        corner="key j",
        digits=3,
        caption=f"Row {row + 1} from scores to weights, and three large scores with and without the maximum.",
    )
    return make("softmax_bars", state, static)

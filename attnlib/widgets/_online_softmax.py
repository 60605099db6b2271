"""Online softmax: one row that reads its keys a few at a time."""

import numpy as np

from attnlib import core, examples, online, show
from attnlib.errors import AttnError

from ._base import make, rows
from ._limits import whole


def online_softmax(*, example=None, row=2, at=0):
    """One row read key by key: m, ℓ and o after each step, with right and wrong factors.

    Parameters
    ----------
    example : attnlib.examples.Example, optional
        Its head 1 gives scores and values; the three tokens if not given. At most 3 tokens.
    row : int
        The query whose scaled scores are read, from 0.
    at : int
        How many keys are read at first.

    Returns
    -------
    anywidget
        ``state``: tokens, scores, values, hidden, order, block (keys at a time), at (steps done) and rule.
        ``result``: the steps done so far (keys, max, factor, sum, out); output, lse and the right ones at the
        end; the mistakes made. Infinite numbers are words.

    Raises
    ------
    AttnError
        If the example has more than 3 tokens, there is no such row or step, or anywidget is not installed.
    """
    example = examples.three_tokens() if example is None else example
    n = len(example.tokens)
    if n > 3:
        raise AttnError(f"the example has {n} tokens, wanted at most 3")
    row, at = whole("row", row, 0, n - 1), whole("at", at, 0, n)
    query, key, value = example.head(1)
    scores = core.attention_steps(query, key, value).scaled[row]
    state = {
        "tokens": list(example.tokens),
        "scores": rows(scores[None])[0],
        "values": rows(value),
        "hidden": [False] * n,
        "order": list(range(n)),
        "block": 1,
        "at": at,
        "rule": "right",
    }
    return make("online_softmax", state, _static(example.tokens, scores, value))


def _static(tokens, scores, value):
    width = value.shape[1]
    state = online.start((1,), width, like=value)
    lines = []
    for j, score in enumerate(scores):
        old = state.row_max
        state = online.update(state, scores[None, j : j + 1], value[j : j + 1])
        factor = np.exp(old - state.row_max)
        lines.append(
            [
                score,
                *state.row_max,
                *factor,
                *state.row_sum,
                *state.accumulator[0],
            ]
        )
    output, lse = online.finish(state)
    names = ["score", "m", "factor", "ℓ", *(f"o {c + 1}" for c in range(width))]
    result = ", ".join(show.number(x) for x in output[0])
    return show.table(
        dict(zip(names, np.array(lines).T, strict=True)),
        rows=tokens,
        corner="key read",
        caption=f"One key at a time; at the end o/ℓ = [{result}] and lse = {show.number(lse[0])}.",
    )

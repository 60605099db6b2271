"""The backward strip: one head, and the gradients of the same matrices below it."""

import numpy as np

from attnlib import core, examples, show
from attnlib.errors import AttnError

from ._base import make, rows
from ._limits import whole


def backward_strip(*, example=None, row=2):
    """One head forwards, and mirrored below it the gradients, with switches for right and wrong settings.

    Parameters
    ----------
    example : attnlib.examples.Example, optional
        The three tokens if not given. At most 4 tokens, and heads of width 4.
    row : int
        The query row selected at first, from 0; the gradient given at first is 1 in its component 1.

    Returns
    -------
    anywidget
        ``state``: tokens, query, key, value (one row per token, heads side by side), head, row, causal,
        gradient (of the output) and the settings. ``result``: scores, scaled, weights, output, dWeights,
        delta, dScores (of the scaled scores), dQuery, dKey, dValue, rowSums of dScores, and the mistakes.

    Raises
    ------
    AttnError
        If the example is too large, there is no such row, or anywidget is not installed.
    """
    example = examples.three_tokens() if example is None else example
    n = len(example.tokens)
    query, key, value = example.head(1)
    width = value.shape[1]
    if n > 4 or width > 4:
        raise AttnError(
            f"the example has {n} tokens and heads of width {width}, wanted at most 4 and 4"
        )
    row = whole("row", row, 0, n - 1)
    gradient = np.zeros((n, width))
    gradient[row, 0] = 1
    state = {
        "tokens": list(example.tokens),
        "query": rows(example.x @ example.w_q),
        "key": rows(example.x @ example.w_k),
        "value": rows(example.x @ example.w_v),
        "nHeads": example.n_heads,
        "head": 0,
        "row": row,
        "causal": True,
        "gradient": rows(gradient),
    }
    steps = core.attention_steps(query, key, value, is_causal=True)
    d_weights = gradient @ value.T
    delta = (gradient * steps.output).sum(axis=1, keepdims=True)
    d_scores = steps.weights * (d_weights - delta)
    given = ", ".join(show.number(x) for x in gradient[row])
    static = show.heatmap(
        [steps.masked, steps.weights, d_scores],
        kind="scores",
        rows=example.tokens,
        cols=example.tokens,
        digits=3,
        titles=["masked S", "weights P", "gradient dS"],
        caption=f"Head 1, and the gradient of its scores for dO = [{given}] at token {row + 1}.",
    )
    return make("backward_strip", state, static)

"""The strip: one head from scores to output."""

from attnlib import core, examples, show

from ._base import make, rows
from ._limits import whole


def strip(step="", *, example=None, row=2):
    """One head of an example from scores to output, with switches for right and wrong settings.

    Parameters
    ----------
    step : {"", "scores", "scaled", "masked", "weights", "output"}
        The matrix to light.
    example : attnlib.examples.Example, optional
        The three tokens if not given.
    row : int
        The query row selected at first, from 0.

    Returns
    -------
    anywidget
        ``state``: tokens, query, key, value (one row per token, heads side by side), head, row and the
        settings. ``result``: scores, scaled, masked, weights, output, lse, and the mistakes made.

    Raises
    ------
    AttnError
        If there is no such step or row, the example is too large (8 tokens of at most 24 letters, widths up
        to 16, numbers up to 1000), or anywidget is not installed.
    """
    example = examples.three_tokens() if example is None else example
    row = whole("row", row, 0, len(example.tokens) - 1)
    state = {
        "tokens": list(example.tokens),
        "query": rows(example.x @ example.w_q),
        "key": rows(example.x @ example.w_k),
        "value": rows(example.x @ example.w_v),
        "nHeads": example.n_heads,
        "head": 0,
        "row": row,
        "step": step,
    }
    steps = core.attention_steps(*example.head(1), is_causal=True)
    static = show.heatmap(
        [steps.scores, steps.scaled, steps.masked, steps.weights],
        kind="scores",
        rows=example.tokens,
        cols=example.tokens,
        titles=["scores S", "scaled", "masked", "weights P"],
        caption="Head 1 from scores to weights, with the right settings.",
    )
    return make("strip", state, static)

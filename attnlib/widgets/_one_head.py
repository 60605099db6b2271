"""One head of three words: every vector, and every step of one query."""

import numpy as np

from attnlib import core, examples, masks, show
from attnlib.errors import ShapeError

from ._base import make, rows
from ._limits import one_of, whole

MASKS = ("causal", "bidirectional", "padding")


def one_head(example=None, *, row=1, mask="causal"):
    """A head with all its vectors, and for one query all steps from dot products to output.

    Parameters
    ----------
    example : attnlib.examples.Example, optional
        With one head, at most 6 tokens and widths of at most 4; *The cat sleeps* if not given.
    row : int
        The query selected at first, from 0.
    mask : {"causal", "bidirectional", "padding"}
        With "padding" the last token is padding, so no query may attend to it.

    Returns
    -------
    anywidget
        ``state``: tokens and x (both can be changed by the reader), the projections wQ, wK, wV, row and
        mask. ``result``: query, key, value, scores, scaled, masked, weights and output of all rows, and
        for the chosen row products (weight × value by key) and roundedAfter (whether the products, printed
        with two decimals, add to something else than the printed sum).

    Raises
    ------
    ShapeError
        If the example has more than one head, or is too large.
    AttnError
        If row or mask is not one of the choices, or anywidget is not installed.
    """
    example = examples.cat_sleeps() if example is None else example
    n, width = example.x.shape
    widths = [width, *(w.shape[1] for w in (example.w_q, example.w_v))]
    if example.n_heads != 1 or not 1 <= n <= 6 or max(widths) > 4:
        raise ShapeError(
            f"the example has {example.n_heads} heads, {n} tokens and widths {widths}: "
            "wanted 1 head, at most 6 tokens, widths up to 4"
        )
    row, mask = whole("row", row, 0, n - 1), one_of("mask", mask, MASKS)
    state = {
        "tokens": list(example.tokens),
        "x": rows(example.x),
        "wQ": rows(example.w_q),
        "wK": rows(example.w_k),
        "wV": rows(example.w_v),
        "row": row,
        "mask": mask,
    }
    return make("one_head", state, _still(example, row, mask))


def _still(example, row, mask):
    """The same two tables, for where no script runs."""
    query, key, value = example.head(1)
    n = len(query)
    allowed = {
        "causal": masks.causal_mask(n, n),
        "bidirectional": np.ones((n, n), dtype=bool),
        "padding": np.arange(n) < np.full((n, 1), n - 1),
    }[mask]
    steps = core.attention_steps(query, key, value, allowed)
    weights = steps.weights[row]
    vectors = show.table(
        {"x": example.x, "Q": query, "K": key, "V": value},
        rows=example.tokens,
        corner="token",
        roles={"Q": "query", "K": "key", "V": "value"},
        caption="Each token's input, and its query, key and value.",
    )
    story = show.table(
        {
            "Q·K": [*steps.scores[row], None],
            f"÷ √{query.shape[-1]}, masked": [*steps.masked[row], None],
            "weight": [*weights, weights.sum()],
            "V": [*value, None],
            "weight × V": [*(weights[:, None] * value), steps.output[row]],
        },
        rows=[*example.tokens, "sum"],
        corner="key j",
        digits=3,
        roles={"V": "value"},
        caption=f"{example.tokens[row]} asks, {mask}: the sum is the head's output.",
    )
    return show.Table(
        vectors.html + story.html, f"{vectors.text}\n\n{story.text}"
    )

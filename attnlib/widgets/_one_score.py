"""One score: a query row and a key column, multiplied term by term."""

from attnlib import core, examples, show
from attnlib.errors import ShapeError

from ._base import make, rows
from ._limits import whole


def one_score(example=None, *, row=2, column=0):
    """The scores of one head; a chosen cell is taken apart, component by component.

    Parameters
    ----------
    example : attnlib.examples.Example, optional
        At most 8 heads, 8 tokens, heads of width 8; the three tokens if not given. The asymmetric example
        with 4 queries and 5 keys can be chosen in its place.
    row, column : int
        The cell chosen at first, from 0.

    Returns
    -------
    anywidget
        ``state``: data (names, query and key of both examples, by head), example, head, row, column, and
        product ("right" or "swapped"). ``result``: scores, row, column, terms, score, mistakes.

    Raises
    ------
    ShapeError
        If the example is too large.
    AttnError
        If there is no such row or column, or anywidget is not installed.
    """
    example = examples.three_tokens() if example is None else example
    n_heads, n, width = example.query.shape
    if not (1 <= n_heads <= 8 and 1 <= n <= 8 and 1 <= width <= 8):
        raise ShapeError(
            f"the example has {n_heads} heads, {n} tokens, width {width}: wanted at most 8 of each"
        )
    row, column = (
        whole(name, place, 0, n - 1)
        for name, place in (("row", row), ("column", column))
    )
    ragged = examples.all_sizes_differ()
    state = {
        "data": [
            {
                "name": f"{n} tokens",
                "queries": list(example.tokens),
                "keys": list(example.tokens),
                "query": [rows(q) for q in example.query],
                "key": [rows(k) for k in example.key],
            },
            {
                "name": "4 queries, 5 keys",
                "queries": [],
                "keys": [],
                "query": [rows(q) for q in ragged.query[0, :2]],
                "key": [rows(k) for k in ragged.key[0, :2]],
            },
        ],
        "example": 0,
        "head": 0,
        "row": row,
        "column": column,
        "product": "right",
    }
    return make("one_score", state, _still(example, row, column))


def _still(example, row, column):
    """All scores of head 1, and the chosen one term by term, for where no script runs."""
    query, key, _ = example.head(1)
    asks, answers = example.tokens[row], example.tokens[column]
    scores = show.table(
        core.scores(query, key),
        rows=example.tokens,
        columns=[f"{j + 1} {token}" for j, token in enumerate(example.tokens)],
        corner="query i, key j",
        caption="The scores of head 1.",
    )
    q, k = query[row], key[column]
    terms = show.table(
        {
            f"query of {asks}": [*q, None],
            f"key of {answers}": [*k, None],
            "product": [*(q * k), q @ k],
        },
        rows=[*(f"component {c + 1}" for c in range(len(q))), "sum"],
        roles={f"query of {asks}": "query", f"key of {answers}": "key"},
        caption=f"Row {row + 1}, column {column + 1}, term by term.",
    )
    return show.Table(
        scores.html + terms.html, f"{scores.text}\n\n{terms.text}"
    )

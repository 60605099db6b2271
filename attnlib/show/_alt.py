"""The one helper that puts a matrix into words, for those who do not see the picture."""

import numpy as np

from attnlib.errors import AttnError, ShapeError

from ._arrays import hidden_cells, to_allowed, to_labels, to_matrices, wording
from ._numbers import formatter

KINDS = {"scores": "scores", "weights": "attention weights", "mask": "a mask", "values": "values"}
SMALL = 8  # up to this many rows or columns every label and every row is named


LEGEND = ("may attend", "hidden")  # of a mask


def check_kind(kind):
    """Refuse a kind of picture that does not exist."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise AttnError(f"kind is {kind!r}, wanted one of {', '.join(KINDS)}")


def describe(
    matrix, *, kind, rows=None, cols=None, allowed=None, row_name="query i", col_name="key j", point=""
):
    """Alt text of one matrix: what it is, its axes, its range, what is hidden, then the point.

    Parameters
    ----------
    matrix : array_like, shape (n_rows, n_cols)
        Numbers, or booleans for ``kind="mask"``.
    kind : {"scores", "weights", "mask", "values"}
        What the numbers are.
    rows, cols : sequence of str, optional
        Token labels; without them rows and columns are counted from 1.
    allowed : array_like of bool, optional
        True = may attend; broadcasts to the matrix.
    row_name, col_name : str
        What rows and columns are.
    point : str
        What the reader should see, as a sentence.

    Returns
    -------
    str
        One line, numbers in ASCII.

    Raises
    ------
    ShapeError, MaskError
        If sizes differ or a mask is not boolean.

    Examples
    --------
    >>> describe([[1, 0], [0.25, 0.75]], kind="weights", point="Row 2 prefers key 2.")
    'Heatmap of attention weights, 2 rows by 2 columns. Rows are query i: 1, 2. Columns are key j: 1, 2. \
Values from 0.00 to 1.00. Largest weight: row 1 gives 1.00 to key 1; row 2 gives 0.75 to key 2. \
Row 2 prefers key 2.'
    """
    check_kind(kind)
    row_name, col_name = wording(row_name, "row_name"), wording(col_name, "col_name")
    found = to_matrices(matrix, kind)
    if len(found) != 1:
        raise ShapeError(f"{len(found)} matrices were given, wanted 1: describe each, as in describe(x[0])")
    (matrix,) = found
    (allowed,) = to_allowed(allowed, [matrix])
    return _describe([(matrix, allowed, "")], kind, rows, cols, row_name, col_name, [wording(point, "point")])


def describe_all(panels, *, kind, rows, cols, row_name, col_name, more, legend=LEGEND):
    """Alt text of several ``(matrix, allowed, title)``; what all have in common is said once."""
    if len({matrix.shape for matrix, _, _ in panels}) == 1:
        return _describe(panels, kind, rows, cols, row_name, col_name, more, legend)
    said = []
    for n, (matrix, allowed, title) in enumerate(panels, 1):
        own = _describe([(matrix, allowed, "")], kind, rows, cols, row_name, col_name, [], legend)
        said.append(f"{title or f'Picture {n}'}: {own}")
    return " ".join([f"{len(panels)} pictures.", *said, *more])


def _describe(panels, kind, rows, cols, row_name, col_name, more, legend=LEGEND):
    n_rows, n_cols = panels[0][0].shape
    row_labels, _ = to_labels(rows, n_rows, "rows", row_name)
    col_labels, _ = to_labels(cols, n_cols, "columns", col_name)
    many = len(panels) > 1
    what = f"{len(panels)} heatmaps of {KINDS[kind]}, each" if many else f"Heatmap of {KINDS[kind]},"
    said = [
        f"{what} {_count(n_rows, 'row')} by {_count(n_cols, 'column')}.",
        f"Rows are {row_name}{_names(row_labels)}. Columns are {col_name}{_names(col_labels)}.",
    ]
    for n, (matrix, allowed, title) in enumerate(panels, 1):
        facts = _facts(matrix, hidden_cells(matrix, allowed, kind), kind, row_labels, col_labels, legend)
        said.append(f"{title or f'Picture {n}'}: {facts}" if many else facts)
    return " ".join([*said, *(words for words in more if words)])


def _facts(matrix, hidden, kind, rows, cols, legend):
    if kind == "mask" and legend != LEGEND:
        return f"{legend[0].capitalize()}: {int((~hidden).sum())} cells; {legend[1]}: {int(hidden.sum())}."
    if kind == "mask":
        parts = [f"{int((~hidden).sum())} cells may be attended to, {int(hidden.sum())} are hidden."]
        if len(rows) <= SMALL:
            counts = (f"row {row} sees {int((~line).sum())}" for row, line in zip(rows, hidden, strict=True))
            parts.append(f"Of the keys, {'; '.join(counts)}.")
        return " ".join(parts)
    parts = [_range(matrix[~hidden])]
    if hidden.any():
        parts.append(f"{int(hidden.sum())} of {matrix.size} cells are hidden by the mask.")
    if kind == "weights" and len(rows) <= SMALL:
        parts.append(_largest(matrix, hidden, rows, cols))
    return " ".join(parts)


def _count(n, noun):
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _names(labels):
    if len(labels) <= SMALL:
        return ": " + ", ".join(labels)
    return f", from {labels[0]} to {labels[-1]}"


def _range(seen):
    if seen.size == 0:
        return "Every cell is hidden."
    nan = int(np.isnan(seen).sum()) if seen.dtype.kind == "f" else 0
    seen = seen[~np.isnan(seen)] if nan else seen
    if seen.size == 0:
        return "Every visible cell is NaN."
    ends = np.asarray([seen.min(), seen.max()])
    least, most = map(formatter(seen[:10_000] if seen.size > 10_000 else seen, 2), ends)
    spread = f"Every value is {least}." if least == most else f"Values from {least} to {most}."
    return spread + (f" {_count(nan, 'cell')} NaN, which is a mistake." if nan else "")


def _largest(weights, hidden, rows, cols):
    one = formatter(weights, 2)
    said = []
    for row, line, dark in zip(rows, weights, hidden, strict=True):
        line = np.where(dark, -np.inf, line)
        if dark.all() or np.isnan(line).any():
            said.append(f"row {row} {'sees nothing' if dark.all() else 'holds NaN'}")
            continue
        best = [cols[j] for j in np.flatnonzero(line >= line.max() - 1e-12)]
        where = f"key {' and '.join(best)}" if len(best) <= 3 else f"each of {len(best)} keys"
        said.append(f"row {row} gives {one(line.max())} to {where}")
    return f"Largest weight: {'; '.join(said)}."

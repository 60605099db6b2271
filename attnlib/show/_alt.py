"""The one helper that puts a matrix into words, for those who do not see the picture."""

import numpy as np

from attnlib.errors import AttnError

from ._arrays import hidden_cells, to_allowed, to_labels, to_matrices
from ._numbers import formatter

KINDS = {"scores": "scores", "weights": "attention weights", "mask": "a mask", "values": "values"}
SMALL = 8  # up to this many rows or columns every label and every row is named


def check_kind(kind):
    """Refuse a kind of picture that does not exist."""
    if kind not in KINDS:
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
Values from 0.00 to 1.00. Largest weight: row 1 gives 1.00 to column 1; row 2 gives 0.75 to column 2. \
Row 2 prefers key 2.'
    """
    check_kind(kind)
    (matrix,) = to_matrices([matrix], kind)
    (allowed,) = to_allowed(allowed, [matrix])
    row_labels, _ = to_labels(rows, matrix.shape[0], "rows")
    col_labels, _ = to_labels(cols, matrix.shape[1], "columns")
    hidden = hidden_cells(matrix, allowed, kind)
    parts = [
        f"Heatmap of {KINDS[kind]}, {_count(matrix.shape[0], 'row')} by {_count(matrix.shape[1], 'column')}.",
        f"Rows are {row_name}{_names(row_labels)}. Columns are {col_name}{_names(col_labels)}.",
    ]
    if kind == "mask":
        parts.append(f"{int((~hidden).sum())} cells may be attended to, {int(hidden.sum())} are hidden.")
        parts.append(_visible(row_labels, hidden))
    else:
        parts.append(_range(matrix[~hidden]))
        if hidden.any():
            parts.append(f"{int(hidden.sum())} of {matrix.size} cells are hidden by the mask.")
    if kind == "weights" and len(row_labels) <= SMALL:
        parts.append(_largest(matrix, hidden, row_labels, col_labels))
    return " ".join(part for part in [*parts, point] if part)


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


def _visible(rows, hidden):
    if len(rows) > SMALL:
        return ""
    counts = "; ".join(f"row {row}: {int((~line).sum())}" for row, line in zip(rows, hidden, strict=True))
    return f"Visible in each row: {counts}."


def _largest(weights, hidden, rows, cols):
    one = formatter(weights, 2)
    said = []
    for row, line, dark in zip(rows, weights, hidden, strict=True):
        line = np.where(dark, -np.inf, line)
        if dark.all() or np.isnan(line).any():
            said.append(f"row {row} {'sees nothing' if dark.all() else 'holds NaN'}")
            continue
        best = [cols[j] for j in np.flatnonzero(line >= line.max() - 1e-12)]
        where = " and ".join(best) if len(best) <= 3 else f"{len(best)} columns alike"
        said.append(
            f"row {row} gives {one(line.max())} to {'column' if len(best) < 4 else ''} {where}".replace(
                "  ", " "
            )
        )
    return f"Largest weight: {'; '.join(said)}."

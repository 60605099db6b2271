"""Matrices as pictures: rows are queries, columns are keys, row 0 on top."""

from operator import index

import numpy as np

from attnlib.errors import AttnError, ShapeError

from ._alt import LEGEND, check_kind, describe_all
from ._arrays import hidden_cells, to_allowed, to_labels, to_list, to_matrices, wording
from ._draw import FLOOR, draw, label_step
from ._html import folded_tables
from ._numbers import formatter
from ._svg import Picture, settings

WRITTEN = 8  # up to this many rows and columns the numbers stand in the cells
BOUND = 128  # no image is larger than this


def heatmap(
    matrices,
    *,
    kind="scores",
    rows=None,
    cols=None,
    allowed=None,
    titles=None,
    row_name="query i",
    col_name="key j",
    digits=2,
    caption="",
    point="",
    sums=False,
    outline=(),
    log=False,
    shared=True,
    legend=LEGEND,
):
    """One or more matrices side by side, on one range with one colour bar.

    Parameters
    ----------
    matrices : array_like, shape (n_rows, n_cols) or (n_panels, n_rows, n_cols), or a list of matrices
        ``matrices[i][j]`` is drawn in row i from the top, column j from the left.
    kind : {"scores", "weights", "mask", "values"}
        Scores and values: two-ended colours centred on 0. Weights: one-ended, 0 to 1. Masks: booleans, True =
        may attend.
    rows, cols : sequence of str, optional
        Token labels, shown as literal text after their number: "3 tea". Without them only the number.
    allowed : array_like of bool, optional
        True = may attend; broadcasts to each matrix. Hidden cells are grey and hatched.
    titles : sequence of str, optional
        One short label above each matrix.
    row_name, col_name : str
        What rows and columns are.
    digits : int
        Decimals in the cells, which are written up to 8 x 8.
    caption, point : str
        The line below the picture; the sentence that ends its alt text.
    sums : bool
        Write row sums at the right and column sums below, over visible cells.
    outline : sequence of (i, j), ("row", i) or ("col", j)
        Cells, rows, columns to outline, counted from 0.
    log : bool
        Weights only: a log scale, labelled, that ends at 0.0001.
    shared : bool
        False gives each matrix its own range and bar.
    legend : pair of str
        Masks only: what a ticked and a hatched cell mean.

    Returns
    -------
    Picture

    Raises
    ------
    ShapeError
        If labels, titles or `allowed` do not fit the matrix, or it is not 2-D.
    MaskError
        If a mask is not boolean.
    AttnError
        If `kind` is unknown, `log` is asked for anything but weights, or matplotlib is missing.

    Examples
    --------
    >>> picture = heatmap([[2, 0, 6]], rows=["tea"], cols=["the", "cat", "tea"])
    >>> picture.alt
    'Heatmap of scores, 1 row by 3 columns. Rows are query i: 1 tea. Columns are key j: 1 the, 2 cat, 3 tea. \
Values from 0 to 6.'
    """
    check_kind(kind)
    if log and kind != "weights":
        raise AttnError(f"log=True was given for {kind}, wanted weights: other numbers may be 0 or negative")
    matrices = to_matrices(matrices, kind)
    allowed = to_allowed(allowed, matrices)
    names = [""] * len(matrices) if titles is None else to_list(titles, "titles")
    if len(names) != len(matrices):
        raise ShapeError(f"{len(names)} titles for {len(matrices)} matrices: give one title per matrix")
    names = [wording(title, "a title") for title in names]
    row_name, col_name = wording(row_name, "row_name"), wording(col_name, "col_name")
    caption, point = wording(caption, "caption"), wording(point, "point")
    legend = tuple(wording(one, "legend") for one in to_list(legend, "legend"))
    if len(legend) != 2:
        raise ShapeError(f"legend has {len(legend)} entries, wanted 2: for ticked and for hatched cells")
    panels = [
        _Panel(matrix, visible, name, kind, (rows, row_name), (cols, col_name), digits, log)
        for matrix, visible, name in zip(matrices, allowed, names, strict=True)
    ]
    outline = [_checked(which, panels) for which in to_list(outline, "outline")]
    _set_limits(panels, kind, log, shared)

    notes = _notes(panels, kind, log)
    alt = describe_all(
        [(panel.full, panel.full_allowed, panel.title) for panel in panels],
        kind=kind, rows=rows, cols=cols, row_name=row_name, col_name=col_name, more=[*notes, point],
        legend=legend,
    )  # fmt: skip
    with settings("heatmap"):
        figure, originals = draw(panels, kind, row_name, col_name, sums, outline, log, shared, legend)
    tables = folded_tables(
        [(panel.shown_numbers(), panel.row_labels, panel.col_labels, panel.title) for panel in panels]
        if all(panel.written for panel in panels)
        else []
    )
    if notes and caption and caption[-1] not in ".!?:":
        caption += "."
    return Picture(figure, alt, " ".join([caption, *notes]).strip(), tables=tables, originals=originals)


class _Panel:
    """One matrix, made ready to draw: bounded in size, hidden cells known, labels chosen."""

    def __init__(self, matrix, allowed, title, kind, rows, cols, digits, log):
        self.full, self.full_allowed, self.title, self.kind = matrix, allowed, title, kind
        self.row_labels, self.row_tokens = to_labels(rows[0], matrix.shape[0], "rows", rows[1])
        self.col_labels, self.col_tokens = to_labels(cols[0], matrix.shape[1], "columns", cols[1])
        hidden = hidden_cells(matrix, allowed, kind)
        self.steps = tuple(-(-side // BOUND) for side in matrix.shape)  # cells of the matrix in one drawn
        self.numbers, self.hidden = _reduced(matrix, hidden, self.steps, kind, log)
        self.written = max(matrix.shape) <= WRITTEN
        self.digits = digits

    @property
    def shape(self):
        return self.numbers.shape

    def shown_numbers(self):
        """What the table beside the picture holds: the numbers as the picture reads them."""
        if self.kind == "mask":
            return ~self.hidden
        if self.kind == "scores":
            return np.where(self.hidden, -np.inf, self.numbers)
        return self.numbers

    def cell_texts(self):
        """The text of each cell, as a list of rows."""
        if self.kind == "mask":
            return [["" if dark else "\u2713" for dark in line] for line in self.hidden]
        one = formatter(self.numbers[~self.hidden] if self.kind == "scores" else self.numbers, self.digits)
        return [
            [self._cell_text(x, dark, one) for x, dark in zip(line, darks, strict=True)]
            for line, darks in zip(self.numbers, self.hidden, strict=True)
        ]

    def _cell_text(self, x, dark, one):
        if dark and self.kind == "scores":
            return "\u2212\u221e"
        if dark and (x == 0 or np.isneginf(x)):
            return "0" if self.kind == "weights" else "\u2212\u221e" if np.isneginf(x) else "0"
        return one(x).replace("nan", "NaN").replace("inf", "\u221e").replace("-", "\u2212")

    def sums(self, axis):
        """Sums of the visible cells, as text."""
        numbers = np.where(
            self.hidden & ((self.kind == "scores") | np.isneginf(self.numbers)), 0, self.numbers
        )
        total = np.asarray(numbers.sum(axis=axis))
        one = formatter(total, self.digits)
        return [one(x).replace("nan", "NaN").replace("inf", "\u221e").replace("-", "\u2212") for x in total]


def _reduced(matrix, hidden, steps, kind, log):
    """The matrix in blocks of `steps` cells: mean of the visible cells (largest on a log scale)."""
    numbers = matrix.astype(float)
    if steps == (1, 1):
        return numbers, hidden
    starts = [np.arange(0, side, step) for side, step in zip(matrix.shape, steps, strict=True)]

    def blocks(array, how):
        return how.reduceat(how.reduceat(array, starts[0], axis=0), starts[1], axis=1)

    seen = blocks((~hidden).astype(float), np.add)
    if log or kind == "mask":
        numbers = blocks(np.where(hidden, -np.inf, numbers), np.maximum)
        return np.where(seen == 0, 0.0, numbers), seen == 0
    return blocks(np.where(hidden, 0.0, numbers), np.add) / np.maximum(seen, 1), seen == 0


def _checked(which, panels):
    """One entry of `outline` as (first row, rows, first column, columns) for each panel, or a refusal."""
    boxes = []
    for panel in panels:
        n_rows, n_cols = panel.full.shape
        try:
            first, second = which
            if isinstance(first, str):
                second = index(second)
                box = {"row": (second, 1, 0, n_cols), "col": (0, n_rows, second, 1)}[first]
            else:
                box = (index(first), 1, index(second), 1)
        except (TypeError, ValueError, KeyError):
            raise ShapeError(f"outline holds {which!r}, wanted (i, j), ('row', i) or ('col', j)") from None
        if not (0 <= box[0] < n_rows and 0 <= box[2] < n_cols):
            raise ShapeError(f"outline {which!r} lies outside the {n_rows} x {n_cols} matrix: count from 0")
        boxes.append((box[0] / panel.steps[0], box[1], box[2] / panel.steps[1], box[3]))
    return boxes


def _set_limits(panels, kind, log, shared):
    """Colour limits: symmetric about 0 for scores and values, 0 to 1 for weights."""
    for panel in panels:
        group = panels if shared else [panel]
        if kind == "weights" and (shared or log):
            panel.limits = (FLOOR if log else 0.0, 1.0)
        else:
            seen = np.concatenate([np.abs(p.numbers[~p.hidden]) for p in group])
            seen = seen[np.isfinite(seen)]
            most = float(seen.max()) if seen.size and seen.max() > 0 else 1.0
            panel.limits = (0.0 if kind == "weights" else -most, most)


def _notes(panels, kind, log):
    """What the picture leaves out, in words."""
    notes = []
    for panel in panels:
        n_rows, n_cols = panel.full.shape
        if panel.steps != (1, 1):
            how = "largest" if log else "mean"
            if kind == "mask":
                drawn = "a cell is hidden where all of"
            else:
                drawn = f"each cell drawn is the {how} of the visible ones among"
            notes.append(
                f"{n_rows} x {n_cols} cells drawn as {panel.shape[0]} x {panel.shape[1]}: {drawn} "
                f"{panel.steps[0]} x {panel.steps[1]}."
            )
        by_row, by_col = map(label_step, panel.full.shape)
        if by_row == by_col > 1:
            notes.append(f"One row and one column in {by_row} are labelled.")
        elif by_row > 1 or by_col > 1:
            steps = [f"one {noun} in {n}" for noun, n in (("row", by_row), ("column", by_col)) if n > 1]
            notes.append(f"Labels: {', '.join(steps)}.")
        if kind == "weights":
            seen = panel.numbers[~panel.hidden]
            if np.any(seen > 1 + 1e-9) or np.any(seen < -1e-9):
                notes.append("Numbers outside 0 to 1 have the colour of the nearer end.")
    if log:
        notes.append(f"Log scale: weights of {FLOOR} and less share the darkest colour.")
    return list(dict.fromkeys(notes))

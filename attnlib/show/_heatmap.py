"""Matrices as pictures: rows are queries, columns are keys, row 0 on top."""

import unicodedata

import numpy as np

from attnlib.errors import AttnError, ShapeError
from attnlib.palette import SCORE_MAP, WEIGHT_MAP

from ._alt import check_kind, describe
from ._arrays import hidden_cells, to_allowed, to_labels, to_matrices
from ._html import folded_table
from ._numbers import formatter
from ._svg import COLOURS, NIGHT, PAPER, Picture, settings

WRITTEN = 8  # up to this many rows and columns the numbers stand in the cells
VECTOR = 16  # up to this many, each cell is a shape of its own; beyond, the matrix is an image
LABELLED = 24  # up to this many, each row has a label
BOUND = 128  # no image is larger than this
FLOOR = 1e-4  # where the log scale of weights ends
COLUMN = 690  # pixels of a page's text column

HIDDEN_FILL, HIDDEN_LINE, HIDDEN_TEXT = "#E2E2E2", "#B4B4B4", "#202020"
ALLOWED_FILL = "#D6E8F5"
GRID = "#808080"
BAR_NAMES = {"scores": "score", "weights": "weight", "values": "value"}


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
    if titles is not None and len(titles) != len(matrices):
        raise ShapeError(f"{len(titles)} titles for {len(matrices)} matrices: give one title per matrix")
    names = [str(title) for title in titles] if titles is not None else [""] * len(matrices)
    panels = [
        _Panel(matrix, visible, name, kind, rows, cols, digits, log)
        for matrix, visible, name in zip(matrices, allowed, names, strict=True)
    ]
    outline = [_checked(which, panels) for which in outline]
    _set_limits(panels, kind, log, shared)

    words = []
    for n, panel in enumerate(panels, 1):
        said = describe(
            panel.full,
            kind=kind,
            rows=rows,
            cols=cols,
            allowed=panel.full_allowed,
            row_name=row_name,
            col_name=col_name,
        )
        if len(panels) > 1:
            said = f"Picture {n} of {len(panels)}{', ' + panel.title if panel.title else ''}: {said}"
        words.append(said)
    notes = _notes(panels, kind, log)
    alt = " ".join([*words, *notes] + ([point] if point else []))

    with settings("heatmap"):
        figure, originals = _draw(panels, kind, row_name, col_name, sums, outline, log, shared)
    tables = "".join(
        folded_table(panel.shown_numbers(), panel.row_labels, panel.col_labels, panel.title or caption)
        for panel in panels
        if panel.written
    )
    return Picture(figure, alt, " ".join([caption, *notes]).strip(), tables=tables, originals=originals)


class _Panel:
    """One matrix, made ready to draw: bounded in size, hidden cells known, labels chosen."""

    def __init__(self, matrix, allowed, title, kind, rows, cols, digits, log):
        self.full, self.full_allowed, self.title, self.kind = matrix, allowed, title, kind
        self.row_labels, self.row_tokens = to_labels(rows, matrix.shape[0], "rows")
        self.col_labels, self.col_tokens = to_labels(cols, matrix.shape[1], "columns")
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
        numbers = np.where(self.hidden & ((self.kind == "scores") | np.isneginf(self.numbers)), 0, self.numbers)
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
            box = {"row": lambda n=second: (n, 1, 0, n_cols), "col": lambda n=second: (0, n_rows, n, 1)}
            box = box[first]() if isinstance(first, str) else (int(first), 1, int(second), 1)
        except (TypeError, ValueError, KeyError):
            raise ShapeError(f"outline holds {which!r}, wanted (i, j), ('row', i) or ('col', j)") from None
        if not (0 <= box[0] < n_rows and 0 <= box[2] < n_cols):
            raise ShapeError(
                f"outline {which!r} lies outside the {n_rows} x {n_cols} matrix: count rows and columns from 0"
            )
        boxes.append((box[0] / panel.steps[0], box[1], box[2] / panel.steps[1], box[3]))
    return boxes


def _set_limits(panels, kind, log, shared):
    """Colour limits: symmetric about 0 for scores and values, 0 to 1 for weights."""
    for panel in panels:
        group = panels if shared else [panel]
        if kind == "weights":
            panel.limits = (FLOOR if log else 0.0, 1.0)
        else:
            seen = np.concatenate([np.abs(p.numbers[~p.hidden]) for p in group])
            seen = seen[np.isfinite(seen)]
            most = float(seen.max()) if seen.size and seen.max() > 0 else 1.0
            panel.limits = (-most, most)


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
        every = [_label_step(side) for side in panel.full.shape]
        for step, noun in zip(every, ("row", "column"), strict=True):
            if step > 1:
                notes.append(f"One {noun} in {step} is labelled.")
        if kind == "weights":
            seen = panel.numbers[~panel.hidden]
            if np.any(seen > 1 + 1e-9) or np.any(seen < -1e-9):
                notes.append("Numbers outside 0 to 1 have the colour of the nearer end.")
    if log:
        notes.append(f"Log scale: weights of {FLOOR} and less share the darkest colour.")
    return list(dict.fromkeys(notes))


def _label_step(count):
    """Label every 1st, 2nd, 5th, 10th, ... row, so that at most 24 have one."""
    steps = (base * 10**power for power in range(9) for base in (1, 2, 5))
    return next(step for step in steps if -(-count // step) <= LABELLED)


# --- drawing -------------------------------------------------------------------------------------------------

TEXT, SMALL = 14, 12.5  # pixels
GAP, BAR = 26, 12


def _em(words):
    """About how wide `words` are, in units of the font size: the reader's font is not known here."""
    wide = {"W": 1.05, "F": 1.05}
    return sum(
        0 if unicodedata.combining(char) else wide.get(unicodedata.east_asian_width(char), 0.58) for char in words
    )


def _clip(words, limit=24):
    return words if len(words) <= limit else words[: limit - 1] + "\u2026"


class _Layout:
    """Where everything goes, in pixels from the top left corner."""

    def __init__(self, panels, kind, sums, shared):
        n_rows = max(panel.shape[0] for panel in panels)
        n_cols = max(panel.shape[1] for panel in panels)
        self.per_bar = 0 if kind == "mask" else BAR + 56
        # rows of panels line up: the first in each line carries the labels for all, unless they differ
        self.row_labels = max(_em(_clip(words)) for panel in panels for words in panel.row_labels) * SMALL + 10
        self.same_rows = len({tuple(panel.row_labels) for panel in panels}) == 1
        longest = max(_em(_clip(words)) for panel in panels for words in panel.col_labels) * SMALL
        self.title = 24 if any(panel.title for panel in panels) else 0
        written = any(panel.written for panel in panels)
        texts = [words for panel in panels if panel.written for line in panel.cell_texts() for words in line]
        widest = max(map(_em, texts), default=0) * TEXT + 10
        most = 52 if written and max(n_rows, n_cols) <= 4 else 46 if written else 26
        least = max(widest, 36) if written else 280 / max(n_rows, n_cols)
        self.sum_width = 58 if sums else 0
        right = self.per_bar if shared else 0
        for per_line in range(min(4, len(panels)), 0, -1):
            labels = 1 if self.same_rows else per_line
            free = COLUMN - 22 - labels * self.row_labels - right - (per_line - 1) * GAP
            free -= per_line * (self.sum_width + (0 if shared else self.per_bar))
            self.cell = min(most, free / (per_line * n_cols), 460 / n_rows)
            if self.cell >= least or per_line == 1:
                break
        self.cell = max(self.cell, 36.0 if written else 150 / max(n_rows, n_cols))
        if not written:
            self.cell = max(self.cell, min(16.0, 400 / max(n_rows, n_cols)))
        self.per_line = per_line
        drawn_cols = -(-n_cols // _label_step(max(panel.full.shape[1] for panel in panels)))
        self.turned = longest > min(self.cell * n_cols / drawn_cols, 400) - 6 and longest > self.cell - 6
        slant = 0.72 if self.cell >= 22 else 1.0
        self.angle = 0 if not self.turned else 45 if slant < 1 else 90
        self.head = self.title + 18 + (longest * slant + 12 if self.turned else SMALL + 10)
        overhang = longest * slant if self.angle == 45 else 0
        self.inner = (n_rows * self.cell, n_cols * self.cell)
        self.line_height = self.head + self.inner[0] + (26 if sums else 6) + 14
        first = 22 + self.row_labels
        step = self.inner[1] + self.sum_width + GAP + (0 if self.same_rows else self.row_labels)
        step += 0 if shared else self.per_bar
        self.left = [first + n * step for n in range(per_line)]
        edge = self.left[-1] + self.inner[1] + self.sum_width
        self.bar_at = edge + 18
        beyond = max(self.bar_at + self.per_bar, edge + overhang) if self.per_bar else edge + max(overhang, 8)
        if kind == "mask":
            beyond = max(beyond, edge + 18 + 96)
        self.lines = -(-len(panels) // per_line)
        self.width, self.height = beyond, self.lines * self.line_height
        self.height = max(self.height, self.head + 110) if kind != "mask" else self.height


def _draw(panels, kind, row_name, col_name, sums, outline, log, shared):
    import matplotlib
    from matplotlib.figure import Figure

    at = _Layout(panels, kind, sums, shared)
    pixel = 1 / 96  # inches
    figure = Figure(figsize=(at.width * pixel, at.height * pixel), dpi=72)
    colours = matplotlib.colormaps[WEIGHT_MAP if kind == "weights" else SCORE_MAP].resampled(254)
    originals = {}

    def box(left, top, width, height):
        return figure.add_axes(
            [left / at.width, 1 - (top + height) / at.height, width / at.width, height / at.height]
        )

    for n, panel in enumerate(panels):
        line, place = divmod(n, at.per_line)
        n_rows, n_cols = panel.shape
        top, left = line * at.line_height + at.head, at.left[place]
        ax = box(left, top, n_cols * at.cell, n_rows * at.cell)
        ax.set(xlim=(-0.5, n_cols - 0.5), ylim=(n_rows - 0.5, -0.5), xticks=[], yticks=[])
        ax.set_label(f"panel {n + 1}")
        ax.spines[:].set_visible(False)
        _cells(ax, panel, n, colours, log, at.cell)
        _labels(ax, panel, n, at, place == 0 or not at.same_rows, row_name, col_name, originals)
        if sums:
            _sums(ax, panel, n, at, place == 0 or not at.same_rows)
        for boxes in outline:
            _outline(ax, boxes[n])
        last = n == len(panels) - 1 if shared else True
        if kind == "mask":
            if last:
                _key(box, at, at.left[min(at.per_line, len(panels)) - 1] + at.inner[1], kind)
        elif last or not shared:
            hidden = any(p.hidden.any() for p in (panels if shared else [panel]))
            where = (at.bar_at, at.head) if shared else (left + n_cols * at.cell + at.sum_width + 16, top)
            _bar(box, where, at, panel, colours, kind, log, hidden)
    return figure, originals


def _scaled(panel, log):
    """Numbers as 0 to 1 along the colour map."""
    least, most = panel.limits
    numbers = np.clip(np.nan_to_num(panel.numbers, nan=0.0, posinf=most, neginf=least), least, most)
    if log:
        return np.log(numbers / least) / np.log(most / least)
    return (numbers - least) / (most - least)


def _luminance(rgb):
    rgb = np.asarray(rgb[:3])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def _ink(rgb):
    """Black or white, whichever can be read better on `rgb`; the better one always reaches 4.5 : 1."""
    light = _luminance(rgb) + 0.05
    return NIGHT if light / 0.05 > 1.05 / light else "#ffffff"


def _cells(ax, panel, n, colours, log, cell):
    from matplotlib.colors import to_hex, to_rgb
    from matplotlib.patches import Rectangle

    n_rows, n_cols = panel.shape
    nan = np.isnan(panel.numbers) & ~panel.hidden
    scaled = _scaled(panel, log)
    if max(panel.shape) > VECTOR:
        if panel.hidden.any():
            ax.add_patch(_hatched(-0.5, -0.5, n_cols, n_rows))
        rgba = colours(scaled) if panel.kind != "mask" else np.tile((*to_rgb(ALLOWED_FILL), 1), (n_rows, n_cols, 1))
        rgba[nan] = (*to_rgb(COLOURS["mistake"]), 1)
        rgba[panel.hidden] = (0, 0, 0, 0)  # the hatched ground shows through
        ax.imshow(rgba, interpolation="none", aspect="auto")
        ax.add_patch(Rectangle((-0.5, -0.5), n_cols, n_rows, fill=False, edgecolor=GRID, lw=0.6, clip_on=False))
        ax.set(xlim=(-0.5, n_cols - 0.5), ylim=(n_rows - 0.5, -0.5))
        if cell >= 8:
            for side, count in (("x", n_cols), ("y", n_rows)):
                draw = ax.axvline if side == "x" else ax.axhline
                for edge in range(1, count):
                    draw(edge - 0.5, color=GRID, lw=0.4, clip_on=False)
        return
    texts = panel.cell_texts() if panel.written else None
    for i in range(n_rows):
        for j in range(n_cols):
            gid, ink = f"attn-cell-{n}-{i}-{j}", HIDDEN_TEXT
            if panel.hidden[i, j]:
                patch = _hatched(j - 0.5, i - 0.5, 1, 1, gid)
            else:
                fill = to_hex(colours(scaled[i, j])) if panel.kind != "mask" else ALLOWED_FILL
                ink = _ink(to_rgb(fill))
                if nan[i, j]:
                    fill, ink = (PAPER, COLOURS["mistake"]) if texts else (COLOURS["mistake"], None)
                patch = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=fill, edgecolor=GRID, lw=0.6, gid=gid)
            patch.set_clip_on(False)
            ax.add_patch(patch)
            if texts and texts[i][j]:
                size = min(TEXT, (cell - 6) / max(_em(texts[i][j]), 1))
                words = _say(ax, j, i, texts[i][j], size, color=ink, weight="bold" if nan[i, j] else "normal")
                words.set_gid(f"attn-number-{n}-{i}-{j}")


def _hatched(x, y, width, height, gid=None):
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x, y), width, height, facecolor=HIDDEN_FILL, edgecolor=GRID, hatch="//", hatchcolor=HIDDEN_LINE,
        lw=0.6, clip_on=False, gid=gid,
    )  # fmt: skip


def _say(ax, x, y, words, size, **more):
    """Literal text, centred unless told otherwise; `size` in pixels."""
    more = {"ha": "center", "va": "center_baseline", "color": "#000000"} | more
    return ax.text(x, y, words, size=size * 0.75, parse_math=False, clip_on=False, **more)


def _labels(ax, panel, n, at, with_rows, row_name, col_name, originals):
    n_rows, n_cols = panel.shape
    px = 1 / at.cell  # one pixel in units of cells

    def token(gid, where, labels, tokens, index, **how):
        shown = _clip(labels[index])
        _say(ax, *where, shown, SMALL, gid=gid, **how)
        original = tokens[index]
        if original is not None and not shown.endswith(original):
            originals[gid] = original if original.isprintable() else ascii(original)

    for i in range(0, panel.full.shape[0], _label_step(panel.full.shape[0])) if with_rows else ():
        where = (-0.5 - 7 * px, i // panel.steps[0])
        token(f"attn-row-{n}-{i}", where, panel.row_labels, panel.row_tokens, i, ha="right")
    for j in range(0, panel.full.shape[1], _label_step(panel.full.shape[1])):
        where = (j // panel.steps[1], -0.5 - 8 * px)
        how = {"va": "baseline"}
        if at.turned:
            how |= {"rotation": at.angle, "rotation_mode": "anchor", "ha": "left"}
            shift = 4 * px
            how["va"] = "baseline"
            where = (where[0] + shift, where[1] + 2 * px)
        token(f"attn-col-{n}-{j}", where, panel.col_labels, panel.col_tokens, j, **how)
    over = -0.5 - (at.head - at.title - 14) * px
    _say(ax, (n_cols - 1) / 2, over, col_name, SMALL, va="baseline", gid=f"attn-colname-{n}")
    if with_rows:
        aside = -0.5 - (at.row_labels + 10) * px
        _say(ax, aside, (n_rows - 1) / 2, row_name, SMALL, rotation=90, rotation_mode="anchor",
             va="center_baseline", gid=f"attn-rowname-{n}")  # fmt: skip
    if panel.title:
        _say(ax, (n_cols - 1) / 2, -0.5 - (at.head - 14) * px, panel.title, TEXT, weight="bold", va="baseline",
             gid=f"attn-title-{n}")  # fmt: skip


def _sums(ax, panel, n, at, with_rows):
    n_rows, n_cols = panel.shape
    px = 1 / at.cell
    if panel.steps != (1, 1) or max(panel.shape) > LABELLED:
        return
    right = n_cols - 0.5 + (at.sum_width - 4) * px
    _say(ax, right, -0.5 - 8 * px, "row sum", SMALL, ha="right", va="baseline", gid=f"attn-sumname-{n}")
    for i, total in enumerate(panel.sums(1)):
        _say(ax, right, i, total, TEXT, ha="right", gid=f"attn-rowsum-{n}-{i}")
    below = n_rows - 0.5 + 18 * px
    for j, total in enumerate(panel.sums(0)):
        _say(ax, j, below, total, TEXT, va="baseline", gid=f"attn-colsum-{n}-{j}")
    if with_rows:
        _say(ax, -0.5 - 7 * px, below, "sum", SMALL, ha="right", va="baseline", gid=f"attn-sumname-{n}")


def _outline(ax, where):
    from matplotlib.patches import Rectangle

    i, n_rows, j, n_cols = where
    for colour, width in ((PAPER, 4.2), (COLOURS["active"], 2.4)):  # a rim of paper parts it from any cell
        ax.add_patch(
            Rectangle(
                (j - 0.5, i - 0.5), n_cols, n_rows, fill=False, edgecolor=colour, lw=width, clip_on=False,
                zorder=5, joinstyle="round", gid="attn-outline",
            )
        )  # fmt: skip


def _bar(box, where, at, panel, colours, kind, log, hidden):
    left, top = where
    height = min(max(panel.shape[0] * at.cell, 96), 200)
    ax = box(left, top, BAR, height)
    ax.set_label("colour bar")
    ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color=GRID, linewidth=0.6)
    ax.imshow(colours(np.linspace(1, 0, 64))[:, None], extent=(0, 1, 0, 1), aspect="auto", interpolation="none")
    least, most = panel.limits
    if log:
        ticks = {1.0: "1", 0.75: "0.1", 0.5: "0.01", 0.25: "0.001", 0.0: "0.0001"}
    elif kind == "weights":
        ticks = {1.0: "1", 0.5: "0.5", 0.0: "0"}
    else:
        one = formatter(np.asarray([least, most]), 2)
        ticks = {1.0: one(most), 0.5: "0", 0.0: one(least).replace("-", "\u2212")}
    for y, words in ticks.items():
        _say(ax, 1 + 5 / BAR, y, words, SMALL, ha="left", gid="attn-tick")
    name = BAR_NAMES[kind] + (" (log)" if log else "")
    _say(ax, 0, 1 + 10 / height, name, SMALL, ha="left", va="baseline", gid="attn-barname")
    if hidden and top + height + 40 <= at.height:
        _swatch(box, left, top + height + 18, "hidden", None)


def _key(box, at, left, kind):
    _swatch(box, left + 18, at.head + 4, "may attend", ALLOWED_FILL)
    _swatch(box, left + 18, at.head + 28, "hidden", None)


def _swatch(box, left, top, words, fill):
    from matplotlib.patches import Rectangle

    ax = box(left, top, 14, 14)
    ax.set_label("key")
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    if fill is None:
        ax.add_patch(_hatched(0, 0, 1, 1))
    else:
        ax.add_patch(Rectangle((0, 0), 1, 1, facecolor=fill, edgecolor=GRID, lw=0.6, clip_on=False))
    _say(ax, 1.45, 0.5, words, SMALL, ha="left", gid="attn-key")

"""The drawing of a heatmap: where everything goes, in pixels, and each part of it."""

import math
import unicodedata

import numpy as np

from attnlib.palette import SCORE_MAP, WEIGHT_MAP

from ._numbers import formatter
from ._svg import COLOURS, NIGHT, PAPER

VECTOR = 16  # up to this many rows and columns each cell is a shape of its own; beyond, an image
LABELLED = 24  # up to this many, each row has a label
FLOOR = 1e-4  # where the log scale of weights ends
COLUMN = 664  # pixels, a little less than a page's text column

HIDDEN_FILL, HIDDEN_LINE, HIDDEN_TEXT = "#E2E2E2", "#B4B4B4", "#202020"
ALLOWED_FILL = "#D6E8F5"
GRID = "#808080"
BAR_NAMES = {"scores": "score", "weights": "weight", "values": "value"}

TEXT, SMALL = 14, 12.5  # pixels
GAP, BAR = 26, 12
STRIPES = 16  # of the colour bar


def label_step(count):
    """Label every 1st, 2nd, 5th, 10th, ... row, so that at most 24 have one."""
    steps = (base * 10**power for power in range(9) for base in (1, 2, 5))
    return next(step for step in steps if -(-count // step) <= LABELLED)


def _em(words):
    """About how wide `words` are, in units of the font size: the reader's font is not known here."""
    wide = {"W": 1.05, "F": 1.05}
    return sum(
        0 if unicodedata.combining(char) else wide.get(unicodedata.east_asian_width(char), 0.58)
        for char in words
    )


def _clip(words, limit=24):
    return words if len(words) <= limit else words[: limit - 1] + "\u2026"


class _Layout:
    """Where everything goes, in pixels from the top left corner."""

    def __init__(self, panels, kind, sums, shared, legend):
        n_rows = max(panel.shape[0] for panel in panels)
        n_cols = max(panel.shape[1] for panel in panels)
        self.per_bar = 0 if kind == "mask" else BAR + 56
        self.hidden = any(panel.hidden.any() for panel in panels)
        # rows of panels line up: the first in each line carries the labels for all, unless they differ
        self.row_labels = (
            max(_em(_clip(words)) for panel in panels for words in panel.row_labels) * SMALL + 10
        )
        self.same_rows = len({tuple(panel.row_labels) for panel in panels}) == 1
        longest = max(_em(_clip(words)) for panel in panels for words in panel.col_labels) * SMALL
        self.title = 24 if any(panel.title for panel in panels) else 0
        written = any(panel.written for panel in panels)
        texts = [words for panel in panels if panel.written for line in panel.cell_texts() for words in line]
        widest = max(map(_em, texts), default=0) * TEXT + 5
        most = 52 if written and max(n_rows, n_cols) <= 4 else 46 if written else 26
        least = max(widest, 36) if written else 280 / max(n_rows, n_cols)
        self.sum_width = 68 if sums else 0
        beside_mask = 18 + 28 + max(map(_em, legend)) * SMALL if kind == "mask" else 0
        right = beside_mask or (self.per_bar + 18 if shared else 0)
        for per_line in range(min(4, len(panels)), 0, -1):
            labels = 1 if self.same_rows else per_line
            free = COLUMN - 22 - labels * self.row_labels - right - (per_line - 1) * GAP
            free -= per_line * (self.sum_width + (0 if shared else self.per_bar + 18))
            self.cell = min(most, free / (per_line * n_cols), 460 / n_rows)
            if self.cell >= least or per_line == 1:
                break
        if per_line > 2 and len(panels) == per_line + 1:
            per_line -= 1  # four panels are two and two, not three and one
        self.cell = max(self.cell, 36.0 if written else 150 / max(n_rows, n_cols))
        if not written:
            self.cell = max(self.cell, min(16.0, 400 / max(n_rows, n_cols)))
        self.per_line = per_line
        drawn_cols = -(-n_cols // label_step(max(panel.full.shape[1] for panel in panels)))
        self.turned = longest > min(self.cell * n_cols / drawn_cols, 400) - 6 and longest > self.cell - 6
        slant = 0.72 if self.cell >= 22 else 1.0
        self.angle = 0 if not self.turned else 45 if slant < 1 else 90
        self.head = self.title + 18 + (longest * slant + 12 if self.turned else SMALL + 10)
        overhang = longest * slant if self.angle == 45 else 0
        self.inner = (n_rows * self.cell, n_cols * self.cell)
        self.line_height = self.head + self.inner[0] + (26 if sums else 4) + 14
        first = 22 + self.row_labels
        step = self.inner[1] + self.sum_width + GAP + (0 if self.same_rows else self.row_labels)
        step += 0 if shared else self.per_bar
        self.left = [first + n * step for n in range(per_line)]
        edge = self.left[-1] + self.inner[1] + self.sum_width
        self.bar_at = edge + 18
        beyond = max(self.bar_at + self.per_bar, edge + overhang) if self.per_bar else edge + max(overhang, 8)
        if kind == "mask":
            beyond = max(beyond, edge + beside_mask)
        self.lines = -(-len(panels) // per_line)
        self.bar_height = min(max(self.inner[0], 96), 200)
        beside = 52 if kind == "mask" else self.bar_height + (38 if self.hidden else 8)
        if not shared:
            self.line_height = max(self.line_height, self.head + beside)
        self.width = math.ceil(beyond)
        self.height = math.ceil(max(self.lines * self.line_height - 10, self.head + beside))


def draw(panels, kind, row_name, col_name, sums, outline, log, shared, legend):
    import matplotlib
    from matplotlib.figure import Figure

    at = _Layout(panels, kind, sums, shared, legend)
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
                _key(box, at, at.left[min(at.per_line, len(panels)) - 1] + at.inner[1], legend)
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


def _bytes(rgba):
    """Colours in 256 steps, rounded as those of single cells are (matplotlib would cut them off)."""
    return np.round(rgba * 255).astype(np.uint8)


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
    fills = colours(_scaled(panel, log))
    if panel.kind == "mask":
        fills[...] = (*to_rgb(ALLOWED_FILL), 1)
    if max(panel.shape) > VECTOR:
        fills[nan] = (*to_rgb(COLOURS["mistake"]), 1)
        _image(ax, fills, panel.hidden, cell)
        return
    texts = panel.cell_texts() if panel.written else None
    for i in range(n_rows):
        for j in range(n_cols):
            gid, ink = f"attn-cell-{n}-{i}-{j}", HIDDEN_TEXT
            if panel.hidden[i, j]:
                patch = _hatched(j - 0.5, i - 0.5, 1, 1, gid)
            else:
                fill = to_hex(fills[i, j])
                ink = _ink(to_rgb(fill))
                if nan[i, j]:
                    fill, ink = (PAPER, COLOURS["mistake"]) if texts else (COLOURS["mistake"], None)
                patch = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=fill, edgecolor=GRID, lw=0.6, gid=gid)
            patch.set_clip_on(False)
            ax.add_patch(patch)
            if texts and texts[i][j]:
                size = min(TEXT, (cell - 6) / max(_em(texts[i][j]), 1))
                weight = "bold" if nan[i, j] else "normal"
                _say(ax, j, i, texts[i][j], size, color=ink, weight=weight, gid=f"attn-number-{n}-{i}-{j}")


def _image(ax, fills, hidden, cell):
    """Cells too many to be single shapes, on a hatched ground that shows through hidden ones."""
    n_rows, n_cols = hidden.shape
    if hidden.any():
        ax.add_patch(_hatched(-0.5, -0.5, n_cols, n_rows))
    fills[hidden] = 0
    # above the ground, below the lines
    ax.imshow(_bytes(fills), interpolation="none", aspect="auto", zorder=2)
    ax.set(xlim=(-0.5, n_cols - 0.5), ylim=(n_rows - 0.5, -0.5))
    inner = cell >= 8  # finer lines would be all there is to see
    for draw, count in ((ax.axvline, n_cols), (ax.axhline, n_rows)):
        for edge in range(count + 1) if inner else (0, count):
            draw(edge - 0.5, color=GRID, lw=0.5, clip_on=False, zorder=3)


def _hatched(x, y, width, height, gid=None):
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    patch = Rectangle(
        (x, y), width, height, facecolor=HIDDEN_FILL, edgecolor=GRID, hatch="//",
        lw=0.6, clip_on=False, gid=gid,
    )  # fmt: skip
    if hasattr(patch, "set_hatchcolor"):
        patch.set_hatchcolor(HIDDEN_LINE)
    else:  # before matplotlib 3.11 there is no public way to hatch in another colour than the edge's
        patch._hatch_color = to_rgba(HIDDEN_LINE)
    return patch


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

    for i in range(0, panel.full.shape[0], label_step(panel.full.shape[0])) if with_rows else ():
        where = (-0.5 - 7 * px, i // panel.steps[0])
        token(f"attn-row-{n}-{i}", where, panel.row_labels, panel.row_tokens, i, ha="right")
    for j in range(0, panel.full.shape[1], label_step(panel.full.shape[1])):
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
        _say(ax, (n_cols - 1) / 2, -0.5 - (at.head - 14) * px, panel.title, TEXT, weight="bold",
             va="baseline", gid=f"attn-title-{n}")  # fmt: skip


def _sums(ax, panel, n, at, with_rows):
    n_rows, n_cols = panel.shape
    px = 1 / at.cell
    if panel.steps != (1, 1) or max(panel.shape) > LABELLED:
        return
    right = n_cols - 0.5 + 38 * px
    _say(ax, right, -0.5 - 8 * px, "row sum", SMALL, va="baseline", gid=f"attn-sumname-{n}")
    for i, total in enumerate(panel.sums(1)):
        _say(ax, right, i, total, TEXT, gid=f"attn-rowsum-{n}-{i}")
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
    from matplotlib.colors import to_hex
    from matplotlib.patches import Rectangle

    left, top = where
    height = at.bar_height
    ax = box(left, top, BAR, height)
    ax.set_label("colour bar")
    ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color=GRID, linewidth=0.6)
    # Stripes, not an image: a page that forbids images in its text still shows them. Each reaches under the
    # next, so that no gap shines through.
    for n, shade in enumerate(colours(np.linspace(0, 1, STRIPES))):
        stripe = (0, n / STRIPES), 1, 1 - n / STRIPES
        ax.add_patch(Rectangle(*stripe, facecolor=to_hex(shade), lw=0, clip_on=False))
    least, most = panel.limits
    if log:
        ticks = {1.0: "1", 0.75: "0.1", 0.5: "0.01", 0.25: "0.001", 0.0: "0.0001"}
    elif kind == "weights":
        ticks = {y: f"{y * most:.3g}" for y in ((1.0, 0.5, 0.0) if most == 1 else (1.0, 0.0))}
    else:
        one = formatter(np.asarray([least, most]), 2)
        ticks = {1.0: one(most), 0.5: "0", 0.0: one(least).replace("-", "\u2212")}
    for y, words in ticks.items():
        _say(ax, 1 + 5 / BAR, y, words, SMALL, ha="left", gid="attn-tick")
    name = BAR_NAMES[kind] + (" (log)" if log else "")
    _say(ax, 0, 1 + 10 / height, name, SMALL, ha="left", va="baseline", gid="attn-barname")
    if hidden:
        _swatch(box, left, top + height + 18, "hidden", None)


def _key(box, at, left, legend):
    _swatch(box, left + 18, at.head + 4, legend[0], ALLOWED_FILL)
    _swatch(box, left + 18, at.head + 28, legend[1], None)


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

"""attnlib.show: numbers, alt text, pictures, tables, the pipeline strip, shown source."""

import functools
import hashlib
import html.parser
import io
import os
import re
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch

import attnlib
from attnlib import palette, show
from attnlib.errors import AttnError, MaskError, ShapeError
from attnlib.examples import three_tokens

ROOT = Path(__file__).parents[1]
TOKENS = ["the", "cat", "tea"]
Q, K, V = three_tokens().head(1)
SCORES = Q @ K.T
CAUSAL = np.tril(np.ones((3, 3), dtype=bool))
STEPS = attnlib.attention_steps(Q, K, V, CAUSAL)
# sphinx-book-theme on pydata-sphinx-theme 0.17: page, code blocks, admonitions
BACKGROUNDS = {"light": ["#ffffff", "#f3f4f5"], "dark": ["#14181e", "#222832", "#29313d"]}
HOSTILE = [
    "<s>", "</td>", "&lt;", "US$5", "$10", "$$", "\\", "_^", "a*b_c", "\"q'", " ", "\n", "\t", "", " tea",
    "\u0120tea", "\u2581tea", "\u010a", "\u6ce8\u610f", "\u0645\u0631\u062d\u0628\u0627", "\u05b8",
    "\U0001f642", "\x00", "\u202e",
]  # fmt: skip


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


class Drawn:
    """What an SVG shows, read back from its elements."""

    def __init__(self, picture):
        self.root = ET.fromstring(picture.svg)
        name = "{http://www.w3.org/2000/svg}"
        assert self.root.tag == f"{name}svg"
        self.cells, self.parts = {}, {}
        for group in self.root.iter(f"{name}g"):
            if "data-cell" in group.attrib:
                path = group.find(f"{name}path")
                numbers = [float(x) for x in re.findall(r"-?[\d.]+", path.get("d"))]
                key = tuple(map(int, group.get("data-cell").split()))
                self.cells[key] = (path.get("fill"), np.mean(numbers[0:8:2]), np.mean(numbers[1:8:2]))
            if "data-part" in group.attrib:
                kind, *where = group.get("data-part").split()
                words = group.find(f"{name}text")
                if words is not None:
                    self.parts.setdefault(kind, {})[tuple(map(int, where))] = words

    def text(self, kind):
        return {where: words.text for where, words in self.parts.get(kind, {}).items()}

    def at(self, kind, *where):
        """Position of a label: its x and y, or where it is moved to."""
        words = self.parts[kind][where]
        if "x" in words.attrib:
            return float(words.get("x")), float(words.get("y"))
        return tuple(
            map(float, re.match(r"translate\(([\d.-]+)[ ,]([\d.-]+)\)", words.get("transform")).groups())
        )


class Page(html.parser.HTMLParser):
    """Tags, attributes and texts of a page, as a browser reads them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


# --- numbers ---


@pytest.mark.parametrize(
    "x, shown",
    [
        (0.84379, "0.8438"),
        (0.5, "0.5000"),
        (2.0, "2"),
        (-7, "-7"),
        (-0.0, "0"),
        (-0.00001, "0.0000"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
        (True, "True"),
        (2**80, str(2**80)),
        (1e30, "1.0000e+30"),
        (-1234567.5, "-1.2346e+06"),
        (1 - 2**-53, "1"),  # one machine's sum of weights
        (0.03125, "0.0312"),  # a tie, and the same tie with another machine's rounding error
        (np.nextafter(0.03125, 1), "0.0312"),
        (np.float32(0.1), "0.1000"),
        (np.float16("-inf"), "-inf"),
        (torch.tensor(0.25, dtype=torch.bfloat16), "0.2500"),
    ],
)
def test_number(x, shown):
    assert show.number(x) == shown


def test_number_refuses():
    with pytest.raises(ShapeError, match=r"2 numbers of shape \(2,\), wanted 1"):
        show.number([1, 2])
    with pytest.raises(ShapeError, match="complex128"):
        show.number(1j)
    with pytest.raises(ShapeError, match="digits is -1"):
        show.number(1.5, digits=-1)


def test_text_is_aligned():
    assert (
        show.text([[2, 0, 6], [1, 0.5, float("-inf")]]) == "[[2.0000 0.0000 6.0000]\n [1.0000 0.5000   -inf]]"
    )
    assert show.text(SCORES) == "[[ 3  0 -2]\n [ 6  3 -2]\n [ 2  0  6]]"
    assert show.text([True, False]) == "[ True False]"
    assert show.text(STEPS.weights[2], digits=3) == "[0.114 0.042 0.844]"
    assert show.text(np.zeros((0, 3))) == "[] (shape 0 x 3)"
    assert show.text(3.5) == "3.5000"
    assert show.text(np.arange(8).reshape(2, 2, 2)) == "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"


def test_text_of_many_numbers_is_short():
    """B26: an array of 512 x 512 must not fill the page."""
    array = np.arange(512 * 512.0).reshape(512, 512)
    array[0, :2] = -np.inf, np.nan
    assert show.text(array) == "512 x 512: min 2, max 262143, 1 entries -inf, 1 entries nan"
    assert show.text(np.ones((21, 20), dtype=bool)) == "21 x 20: 420 True, 0 False"
    assert max(map(len, show.text(np.linspace(0, 1, 400)).splitlines())) <= 100


def test_values(capsys):
    show.values(
        {"row sums": STEPS.weights.sum(axis=-1)},
        S=SCORES,
        shape=Q.shape,
        mean=0.5,
        tokens=TOKENS,
        name="x",
        n=None,
    )
    assert capsys.readouterr().out == (
        "row sums = [1 1 1]\nS =\n  [[ 3  0 -2]\n   [ 6  3 -2]\n   [ 2  0  6]]\nshape = (3, 4)\n"
        "mean = 0.5000\ntokens = ['the', 'cat', 'tea']\nname = x\nn = None\n"
    )


def test_values_on_a_console_without_unicode(monkeypatch):
    """B24: a cp1252 console knows no Greek; printing must not stop a script."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252", write_through=True))
    show.values({"\u03b1": [1, 2]}, token="\u6ce8")
    assert raw.getvalue().replace(b"\r", b"") == b"\\u03b1 = [1 2]\ntoken = \\u6ce8\n"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_torch_arrays_of_every_type(dtype):
    tensor = torch.tensor([[1.0, -2.0], [0.0, 3.0]]).to(dtype)
    if tensor.is_floating_point():
        tensor.requires_grad_()
    wanted = show.heatmap([[1, -2], [0, 3]])
    assert show.text(tensor) == "[[ 1 -2]\n [ 0  3]]"
    assert show.heatmap(tensor).svg == wanted.svg
    assert show.table(tensor).text == show.table([[1, -2], [0, 3]]).text


# --- alt text ---


def test_describe_says_axes_range_hidden_and_point():
    """B34, V22."""
    said = show.describe(
        STEPS.weights, kind="weights", rows=TOKENS, cols=TOKENS, allowed=CAUSAL, point="Row 3 likes tea."
    )
    for words in (
        "attention weights, 3 rows by 3 columns",
        "Rows are query i: 1 the, 2 cat, 3 tea. Columns are key j: 1 the",
        "Values from 0.04 to 1.00",
        "3 of 9 cells are hidden",
        "row 2 cat gives 0.82 to key 1 the",
        "row 3 tea gives 0.84 to key 3 tea",
    ):
        assert words in said
    assert said.endswith("Row 3 likes tea.")


def test_describe_of_unusual_matrices():
    empty = show.describe(np.zeros((2, 2)), kind="weights", allowed=[[False, False], [True, True]])
    assert "row 1 sees nothing" in empty and "row 2 gives 0 to key 1 and 2" in empty
    assert "Every cell is hidden" in show.describe([[-np.inf]], kind="scores")
    assert "1 cell NaN, which is a mistake" in show.describe([[np.nan, 1]], kind="scores")
    assert "3 hidden" not in show.describe(CAUSAL, kind="mask")
    assert "6 cells may be attended to, 3 are hidden" in show.describe(CAUSAL, kind="mask")
    assert "Rows are query i, from 1 to 30." in show.describe(np.ones((30, 2)), kind="weights")


def test_alt_text_is_on_every_picture():
    picture = show.heatmap(SCORES, rows=TOKENS, cols=TOKENS, point='The 6 is "large" & <right>.')
    root = ET.fromstring(picture.svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == picture.alt
    assert picture.alt.endswith('The 6 is "large" & <right>.')
    assert picture._repr_mimebundle_()["text/plain"] == picture.alt
    many = show.heatmap([SCORES, STEPS.scaled], titles=["before", "after"]).alt
    assert "2 heatmaps of scores" in many and "before: Values from -2 to 6." in many
    assert "after: Values from -1.00 to 3.00." in many
    figure, _ = show.axes()
    with pytest.raises(AttnError, match="empty alt"):
        show.picture(figure, alt=" ")


# --- where things stand ---


def test_the_bright_cell_is_where_the_number_is():
    """V04, V03: read from what is drawn, not from the data."""
    drawn = Drawn(show.heatmap([[0, 0, 1], [0, 0, 0]], kind="weights"))
    brightest = max(drawn.cells, key=lambda where: luminance(drawn.cells[where][0]))
    _, x, y = drawn.cells[brightest]
    assert y == min(cell[2] for cell in drawn.cells.values())  # top row
    assert x == max(cell[1] for cell in drawn.cells.values())  # third from the left
    assert drawn.text("row") == {(0, 0): "1", (0, 1): "2"}
    assert drawn.text("col") == {(0, 0): "1", (0, 1): "2", (0, 2): "3"}
    assert drawn.text("rowname") == {(0,): "query i"} and drawn.text("colname") == {(0,): "key j"}
    assert drawn.at("col", 0, 2)[0] == pytest.approx(x, abs=0.05)
    assert drawn.at("row", 0, 0)[1] == pytest.approx(y, abs=6)
    assert drawn.at("row", 0, 1)[1] - drawn.at("row", 0, 0)[1] > 20


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (1, 1), (1, 8), (7, 3), (16, 4)])
def test_rectangles_keep_their_shape(shape):
    """V05, V06, V08, V20: one label per row and column, at the middle of its cells, nothing cut off."""
    picture = show.heatmap(np.arange(np.prod(shape)).reshape(shape))
    drawn = Drawn(picture)
    assert len(drawn.cells) == np.prod(shape)
    assert len(drawn.text("row")) == shape[0] and len(drawn.text("col")) == shape[1]
    for (_, i, j), (_, x, y) in drawn.cells.items():
        assert drawn.at("col", 0, j)[0] == pytest.approx(x, abs=0.05)
        assert drawn.at("row", 0, i)[1] == pytest.approx(y, abs=6)
    ax = picture.figure.axes[0]
    assert ax.get_xlim() == (-0.5, shape[1] - 0.5)
    assert ax.get_ylim() == (shape[0] - 0.5, -0.5)
    if max(shape) <= 8:
        assert drawn.text("number") == {
            (0, i, j): str(i * shape[1] + j) for i in range(shape[0]) for j in range(shape[1])
        }


def test_image_has_row_0_on_top():
    numbers = np.zeros((40, 30))
    numbers[0, 29] = 1
    ax = show.heatmap(numbers, kind="weights").figure.axes[0]
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 29.5), (39.5, -0.5))
    (image,) = ax.images
    assert image.origin == "upper" and tuple(image.get_extent()) == (-0.5, 29.5, 39.5, -0.5)
    light = image.get_array()[..., :3].sum(axis=-1)
    assert np.unravel_index(light.argmax(), light.shape) == (0, 29)


def test_hidden_cells_of_an_image_are_holes_over_a_hatched_ground():
    allowed = np.tril(np.ones((20, 20), dtype=bool))
    picture = show.heatmap(np.ones((20, 20)), kind="weights", allowed=allowed)
    opaque = picture.figure.axes[0].images[0].get_array()[..., 3]
    assert np.array_equal(opaque == 255, allowed) and np.array_equal(opaque == 0, ~allowed)
    drawn = list(ET.fromstring(picture.svg).iter())
    ground = next(n for n, e in enumerate(drawn) if e.get("fill", "").startswith("url(#"))
    image = next(n for n, e in enumerate(drawn) if e.tag.endswith("image"))
    assert ground < image, "what is drawn later covers what is drawn before"


@pytest.mark.parametrize("count, step", [(10, 1), (24, 1), (30, 2), (100, 5), (128, 10), (512, 50)])
def test_long_axes_are_thinned_regularly(count, step):
    """V07: never a wrong pairing, and the picture says what it leaves out."""
    picture = show.heatmap(np.ones((count, 3)), kind="weights", rows=[f"w{i}" for i in range(count)])
    drawn = Drawn(picture)
    rows = drawn.text("row")
    assert [i for _, i in rows] == list(range(0, count, step))
    assert rows[0, step] == f"{step + 1} w{step}"
    heights = np.diff([drawn.at("row", *where)[1] for where in rows])
    assert heights.min() * 4 / 3 >= 11  # pixels: no two labels touch
    stated = f"one row in {step}" in picture.caption and f"one row in {step}" in picture.alt
    assert stated == (step > 1)


def test_large_matrix_is_a_bounded_image():
    """V01, V02, B26."""
    rng = np.random.default_rng(0)
    numbers = rng.random((2048, 2048))
    numbers /= numbers.sum(axis=1, keepdims=True)
    picture = show.heatmap(numbers, kind="weights", log=True)
    assert picture.figure.axes[0].images[0].get_array().shape[:2] == (128, 128)
    assert "2048 x 2048 cells drawn as 128 x 128" in picture.caption and "largest" in picture.caption
    assert "16 x 16" in picture.alt
    assert len(picture.html) < 60_000
    assert "<table" not in picture.html and "data-cell" not in picture.html


def test_blocks_are_means_of_visible_cells():
    numbers = np.zeros((256, 256))
    numbers[0, 1], numbers[255, 255] = 4, np.nan
    allowed = np.ones((256, 256), dtype=bool)
    allowed[0, 0] = allowed[2:4, 0:2] = False
    allowed[1, :2] = False
    panel = show._heatmap._Panel(numbers, allowed, "", "scores", (None, "query"), (None, "key"), 2, False)
    assert panel.numbers[0, 0] == 4 and not panel.hidden[0, 0]  # the only visible cell of its block
    assert panel.hidden[1, 0] and panel.hidden.sum() == 1
    assert np.isnan(panel.numbers[127, 127])
    mask = np.zeros((200, 200), dtype=bool)
    mask[0, 0] = True
    assert (
        show._heatmap._Panel(
            mask, ~np.zeros_like(mask), "", "mask", (None, "query"), (None, "key"), 2, False
        ).hidden.sum()
        == 9_999
    )


# --- colours ---


def test_weights_grow_lighter_evenly():
    """V09, V21: read in grey, a larger weight is lighter, in both themes alike."""
    drawn = Drawn(show.heatmap(np.linspace(0, 1, 16)[None], kind="weights"))
    light = [luminance(drawn.cells[0, 0, j][0]) for j in range(16)]
    assert np.all(np.diff(light) > 0)


def test_scores_are_centred_on_zero():
    """V10."""
    picture = show.heatmap([[-1, 0, 9]])
    ticks = [words.text for words in ET.fromstring(picture.svg).iter() if words.text in ("9", "0", "\u22129")]
    assert {"9", "0", "\u22129"} <= set(ticks)
    drawn = Drawn(picture)
    red, green, blue = (int(drawn.cells[0, 0, 1][0][at : at + 2], 16) for at in (1, 3, 5))
    assert max(red, green, blue) - min(red, green, blue) <= 8  # 0 has no hue
    weak, strong = (luminance(drawn.cells[0, 0, j][0]) for j in (0, 2))
    assert weak > 5 * strong  # -1 is pale beside 9


def bars(picture):
    return [ax for ax in picture.figure.axes if ax.get_label() == "colour bar"]


def test_one_range_and_one_bar():
    """V12."""
    small, large = [[0.2, 0.1]], [[1.0, 0.0]]
    together = Drawn(show.heatmap([small, large], kind="weights"))
    assert together.cells[0, 0, 0][0] != together.cells[1, 0, 0][0]
    assert len(bars(show.heatmap([small, large], kind="weights"))) == 1
    own = show.heatmap([small, large], kind="weights", shared=False)
    assert len(bars(own)) == 2
    assert Drawn(own).cells[0, 0, 0][0] == Drawn(own).cells[1, 0, 0][0]
    assert {"0.2", "1"} <= set(ET.fromstring(own.svg).itertext())
    for kind in ("scores", "values", "weights"):
        assert len(bars(show.heatmap([[[1.0, 0.5]]] * 6, kind=kind))) == 1
    assert not bars(show.heatmap(CAUSAL, kind="mask"))


def test_log_scale_shows_what_a_sink_hides():
    """V11."""
    sink = [[0.97, 0.01, 0.01, 0.005, 0.005, 0.0]]
    plain, log = show.heatmap(sink, kind="weights"), show.heatmap(sink, kind="weights", log=True)
    apart = [
        abs(luminance(Drawn(p).cells[0, 0, 1][0]) - luminance(Drawn(p).cells[0, 0, 5][0]))
        for p in (plain, log)
    ]
    assert apart[1] > 10 * apart[0]
    assert "log" in log.svg and "Log scale" in log.caption and "Log scale" in log.alt
    assert Drawn(log).text("number")[0, 0, 0] == "0.97"  # only the colours are on the log scale
    with pytest.raises(AttnError, match="log=True was given for scores"):
        show.heatmap(sink, log=True)


def test_F10_an_older_matplotlib_draws_the_same_hidden_cells(monkeypatch):
    from matplotlib import patches

    class Old(patches.Rectangle):
        """As before 3.11: no colour of a hatch can be asked for."""

        def __init__(self, *args, **more):
            assert "hatchcolor" not in more
            super().__init__(*args, **more)
            self.made = True

        def __getattribute__(self, name):
            if name == "set_hatchcolor" and "made" in self.__dict__:
                raise AttributeError(name)
            return super().__getattribute__(name)

    matrix = [[0.5, -np.inf], [1.0, 2.0]]
    wanted = show.heatmap(matrix).svg
    monkeypatch.setattr(patches, "Rectangle", Old)
    assert show.heatmap(matrix).svg == wanted


def test_hidden_cells_are_grey_and_hatched():
    drawn = Drawn(show.heatmap(STEPS.masked))
    hidden = [where for where in drawn.cells if drawn.cells[where][0].startswith("url(#")]
    assert hidden == [(0, 0, 1), (0, 0, 2), (0, 1, 2)]
    assert {drawn.text("number")[where] for where in hidden} == {"\u2212\u221e"}
    by_mask = Drawn(show.heatmap(STEPS.scaled, allowed=CAUSAL))
    assert by_mask.text("number") == drawn.text("number")
    weights = Drawn(show.heatmap(STEPS.weights, kind="weights", allowed=CAUSAL))
    assert weights.text("number")[0, 0, 1] == "0" and weights.text("number")[0, 2, 1] == "0.04"
    # a weight where none may be is a mistake to be seen, not to be painted over
    leak = Drawn(show.heatmap([[0.5, 0.5]], kind="weights", allowed=[[True, False]]))
    assert leak.text("number")[0, 0, 1] == "0.50"
    mask = Drawn(show.heatmap(CAUSAL, kind="mask"))
    assert len({mask.cells[where][0] for where in mask.cells}) == 2
    assert mask.text("number") == {(0, i, j): "\u2713" for i in range(3) for j in range(i + 1)}
    assert {"may attend", "hidden"} <= set(mask.root.itertext())


def test_nan_is_in_the_mistake_colour():
    drawn = Drawn(show.heatmap([[np.nan, 1.0, np.inf]]))
    words = drawn.parts["number"][0, 0, 0]
    assert words.text == "NaN" and words.get("fill") == f"var(--attn-mistake, {show.COLOURS['mistake']})"
    assert drawn.text("number")[0, 0, 2] == "\u221e"
    assert drawn.cells[0, 0, 2][0] == drawn.cells[0, 0, 1][0]  # infinite: the end of the range, which is 1


def test_numbers_can_be_read_on_their_cells():
    rng = np.random.default_rng(1)
    pictures = [
        show.heatmap(rng.normal(size=(8, 8)) * s, kind=kind) for s in (1, 5) for kind in ("scores", "values")
    ]
    pictures += [
        show.heatmap(np.linspace(0, 1, 64).reshape(8, 8), kind="weights", log=log) for log in (False, True)
    ]
    pictures.append(show.heatmap(CAUSAL, kind="mask"))
    seen = 0
    for picture in pictures:
        drawn = Drawn(picture)
        for where, words in drawn.parts["number"].items():
            ink = words.get("fill")
            assert re.fullmatch("#[0-9a-f]{6}", ink), "cell text must not follow the theme: its cell does not"
            assert contrast(ink, drawn.cells[where][0]) >= 4.5
            seen += 1
    assert seen == 6 * 64 + 6
    for ground in (show._draw.HIDDEN_FILL, show._draw.HIDDEN_LINE):
        assert contrast(show._draw.HIDDEN_TEXT, ground) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_roles_can_be_read_in_both_themes(theme):
    """B18: text colours of figures, tables and the strip against every background of the theme."""
    side = ("light", "dark").index(theme)
    values = {name: pair[side] for name, pair in (palette.ROLES | palette.PAGE).items()}
    assert values["paper"] == BACKGROUNDS[theme][0]
    for role in palette.ROLES:
        for ground in [*BACKGROUNDS[theme], values["paper"], values["wash"]]:
            assert contrast(values[role], ground) >= 4.5, (role, ground)
    assert all(contrast(values["ink"], ground) >= 4.5 for ground in [*BACKGROUNDS[theme], values["wash"]])
    assert contrast(values["line"], values["paper"]) >= 3


def test_no_colour_of_a_cell_is_a_colour_of_the_theme():
    """A cell that happened to have a role's colour would change with the theme."""
    import matplotlib

    themed = set(show._svg.THEMED) | {"#ffffff", show._svg.NIGHT}
    for name in (palette.SCORE_MAP, palette.WEIGHT_MAP):
        colours = matplotlib.colormaps[name].resampled(254)
        assert not themed & {matplotlib.colors.to_hex(colours(n)) for n in range(254)}


# --- tokens ---


def shown(token):
    return show._arrays.label(token)


def test_marks_for_what_cannot_be_seen():
    """V06, V13, V14."""
    marks = {" ": "\u2423", "\n": "\u23ce", "\t": "\u21e5", "": "\u2205", "\u0120tea": "\u2423tea",
             "\u010a": "\u23ce",
             "\u2581tea": "\u2423tea", "a b": "a b", " a  b": "\u2423a\u2423\u2423b", "\x00": "U+0000",
             "\ud800": "U+D800", "\u202eabc": "U+202Eabc", "\u05b8": "\u25cc\u05b8", "<s>": "<s>",
             "\xa0": "\u2423",
             "\U0001f469\u200d\U0001f467": "\U0001f469\u200d\U0001f467", "\ufffe": "U+FFFE"}  # fmt: skip
    assert {token: shown(token) for token in marks} == marks


def test_tokens_are_literal_in_the_picture(recwarn):
    """V13 to V17, B15: what is parsed back from the SVG is the token, and nothing warns."""
    count = len(HOSTILE)
    picture = show.heatmap(np.eye(count), kind="weights", rows=HOSTILE, cols=HOSTILE)
    drawn = Drawn(picture)
    for kind in ("row", "col"):
        assert drawn.text(kind) == {(0, i): f"{i + 1} {shown(token)}" for i, token in enumerate(HOSTILE)}
    for words in drawn.parts["row"].values():
        assert (words.get("unicode-bidi"), words.get("direction")) == ("isolate", "ltr")
    xs = [drawn.at("col", 0, j)[0] for j in range(count)]
    assert xs == sorted(xs)  # token order, also for right-to-left words
    (title,) = drawn.parts["row"][0, HOSTILE.index("\n")]
    assert title.text == "'\\n'"
    title = drawn.parts["row"][0, HOSTILE.index("\u0120tea")][0]
    assert title.text == "\u0120tea"  # the original, on hover
    assert len(drawn.parts["row"][0, HOSTILE.index("$$")]) == 0
    page = Page(picture.html)
    assert not {"s", "b"} & {tag for tag, _ in page.tags}
    assert not recwarn.list, "a warning for each character the drawing font lacks"


def test_tokens_are_literal_in_tables():
    small = HOSTILE[:8]
    folded = Page(show.heatmap(np.eye(8), rows=small, cols=small).html)
    table = Page(
        show.table({"token": HOSTILE, "<b>": list(range(len(HOSTILE)))}, rows=HOSTILE, caption="<i>&").html
    )
    for page, tokens in ((folded, [f"{i} {token}" for i, token in enumerate(small, 1)]), (table, HOSTILE)):
        assert not {"s", "b", "i"} & {tag for tag, _ in page.tags}
        assert {shown(token) for token in tokens} <= set(page.texts)
    assert "<b>" in table.texts and "<i>&" in table.texts
    assert sum(tag == "bdi" for tag, _ in table.tags) == 2 * len(HOSTILE) + 2


def test_labels_count_from_one():
    drawn = Drawn(show.heatmap(SCORES, rows=TOKENS, cols=["1", "2", "3"]))
    assert list(drawn.text("row").values()) == ["1 the", "2 cat", "3 tea"]
    assert list(drawn.text("col").values()) == ["1", "2", "3"]
    drawn = Drawn(show.heatmap(SCORES, rows=["1 the", "2 cat", "3 tea"], cols=range(3)))
    assert list(drawn.text("row").values()) == ["1 the", "2 cat", "3 tea"]
    assert list(drawn.text("col").values()) == ["0", "1", "2"]


# --- sums, outlines, several matrices ---


def test_sums():
    weights = Drawn(show.heatmap(STEPS.weights, kind="weights", sums=True))
    assert list(weights.text("rowsum").values()) == ["1", "1", "1"]
    assert list(weights.text("colsum").values()) == ["1.93", "0.22", "0.84"]
    assert weights.at("rowsum", 0, 2)[1] == pytest.approx(weights.cells[0, 2, 0][2], abs=6)
    assert weights.at("colsum", 0, 1)[0] == pytest.approx(weights.cells[0, 0, 1][1], abs=0.05)
    scores = Drawn(show.heatmap(STEPS.scaled, sums=True, allowed=CAUSAL))
    assert list(scores.text("rowsum").values()) == ["1.50", "4.50", "4.00"]  # -inf is left out


def test_outline():
    picture = show.heatmap(SCORES, outline=[(2, 0), ("row", 1), ("col", 2)])
    active = f"var(--attn-active, {show.COLOURS['active']})"
    paths = [e for e in ET.fromstring(picture.svg).iter() if e.get("stroke") == active]
    assert len(paths) == 3
    cell = Drawn(picture).cells[0, 2, 0]
    numbers = [float(x) for x in re.findall(r"-?[\d.]+", paths[0].get("d"))]
    assert np.mean(numbers[0:8:2]) == pytest.approx(cell[1], abs=0.05)
    assert np.mean(numbers[1:8:2]) == pytest.approx(cell[2], abs=0.05)
    for wrong in [(3, 0), ("row", 3), ("col", -1)]:
        with pytest.raises(ShapeError, match="outside the 3 x 3 matrix"):
            show.heatmap(SCORES, outline=[wrong])
    with pytest.raises(ShapeError, match="outline holds"):
        show.heatmap(SCORES, outline=[("line", 1)])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_panels_wrap_and_fit_the_column(count):
    picture = show.heatmap(
        [SCORES] * count, rows=TOKENS, cols=TOKENS, titles=[f"head {n}" for n in range(count)]
    )
    drawn = Drawn(picture)
    assert {panel for panel, _, _ in drawn.cells} == set(range(count))
    assert float(drawn.root.get("width")) <= 672
    tops = [drawn.cells[n, 0, 0][2] for n in range(count)]
    assert max(tops.count(top) for top in tops) <= 4
    lefts = {round(drawn.cells[n, 0, 0][1]) for n in range(count)}
    # row labels stand once in each line of panels, beside its first panel
    assert {panel for panel, _ in drawn.text("row")} == {
        n for n in range(count) if round(drawn.cells[n, 0, 0][1]) == min(lefts)
    }
    boxes = [ax.get_position() for ax in picture.figure.axes]
    assert not any(a.overlaps(b) for at, a in enumerate(boxes) for b in boxes[:at])
    assert all(0 <= box.x0 and box.x1 <= 1 and 0 <= box.y0 and box.y1 <= 1 for box in boxes)


def test_cells_are_large_and_text_is_not_small():
    drawn = Drawn(show.heatmap(SCORES, rows=TOKENS, cols=TOKENS))
    assert (drawn.cells[0, 0, 1][1] - drawn.cells[0, 0, 0][1]) * 4 / 3 == pytest.approx(52, abs=0.5)
    for picture in (
        show.heatmap(SCORES, rows=TOKENS),
        show.heatmap([np.eye(8)] * 4, titles=list("abcd"), sums=True),
        show.heatmap(np.eye(128), kind="weights"),
    ):
        for words in ET.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text"):
            assert float(words.get("font-size")) * 4 / 3 >= 10


def test_a_stack_of_heads_is_several_matrices():
    assert show.heatmap(np.stack([SCORES, SCORES.T])).svg == show.heatmap([SCORES, SCORES.T]).svg
    assert len(Drawn(show.heatmap([Q, SCORES])).cells) == 12 + 9


# --- refusals ---


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: show.heatmap(SCORES, rows=["a", "b"]), ShapeError, r"2 labels for 3 rows.*row \(query\)"),
        (lambda: show.heatmap(SCORES, cols=list("abcd")), ShapeError, r"4 labels for 3 columns.*\(key\)"),
        (lambda: show.heatmap([1, 2, 3]), ShapeError, r"shape \(3,\), 1 axes, wanted 2.*x\[None, :\]"),
        (lambda: show.heatmap(np.ones((1, 2, 3, 3))), ShapeError, r"4 axes, wanted 2.*x\[0\]"),
        (lambda: show.heatmap([[1, 2], [3]]), ShapeError, "rows of 1 and 2 entries"),
        (lambda: show.heatmap(np.ones((0, 3))), ShapeError, r"\(0, 3\), wanted at least 1 row"),
        (lambda: show.heatmap([["a"]]), ShapeError, "wanted real numbers"),
        (lambda: show.heatmap(SCORES, allowed=np.ones((2, 5), bool)), ShapeError, r"\(2, 5\).*\(3, 3\)"),
        (lambda: show.heatmap(SCORES, allowed=np.ones((3, 3))), MaskError, "float64, wanted bool"),
        (lambda: show.heatmap(SCORES, kind="mask"), MaskError, "wanted bool"),
        (lambda: show.heatmap(SCORES, titles=["a", "b"]), ShapeError, "2 titles for 1 matrices"),
        (lambda: show.heatmap(SCORES, kind="score"), AttnError, "scores, weights, mask, values"),
        (lambda: show.table([1, 2]), ShapeError, "1 axes, wanted 2"),
        (lambda: show.table({"a": [1], "b": [1, 2]}), ShapeError, "'a' has 1 entries, 'b' has 2"),
        (lambda: show.table(SCORES, rows=["a"]), ShapeError, "1 row headers for 3 rows"),
        (lambda: show.table(SCORES, columns=["a"]), ShapeError, "1 column headers for 3 columns"),
        (lambda: show.table({"a": [1]}, columns=["b"]), ShapeError, "no column 'b'"),
        (lambda: show.table({"a": [1]}, roles={"a": "quary"}), AttnError, "a role of query, key"),
        (lambda: show.table(np.ones((21, 20))), ShapeError, "420 entries, more than the 400"),
        (lambda: show.pipeline("soft"), AttnError, "no step is called 'soft'.*x, qkv, scores, scale, mask"),
        (lambda: show.source(len), AttnError, "no source found for len"),
        (lambda: show.picture("figure", alt="x"), AttnError, "got a str, wanted a figure"),
    ],
)  # fmt: skip
def test_refusals_name_both_numbers(call, error, words):
    """V20, and the rule for every message: what came, what was wanted, what to do."""
    with pytest.raises(error, match=words):
        call()


def advice(call):
    """The index that a refusal tells the reader to use."""
    with pytest.raises(ShapeError) as refused:
        call()
    return re.search(r"(?:x|data)(\[[^]]*\])", str(refused.value))[1]


@pytest.mark.parametrize("axes", [0, 1, 3, 4, 5, 6])
def test_the_advice_of_a_refusal_can_be_followed(axes):
    """F24: whatever the number of axes, the index that the message names gives a picture, and a table."""
    array = np.ones((2,) * axes)
    if axes != 3:  # three axes are a stack of matrices
        found = advice(lambda: show.heatmap(array))
        assert show.heatmap(eval(f"x{found}", {"x": array})).alt, found
    found = advice(lambda: show.table(array))
    assert show.table(eval(f"x{found}", {"x": array})).text, found


@pytest.mark.parametrize(
    "bad, shown_as", [("a\x00b", "aU+0000b"), ("\ud800", "U+D800"), ("\u202ex", "U+202Ex")]
)
def test_what_cannot_be_shown_is_named_everywhere(bad, shown_as):
    """F26: titles, names, legends, captions, corners, headers, as in tokens; spaces stay."""
    bad, shown_as = f"one {bad} two", f"one {shown_as} two"
    tokens = {"row_name": bad, "col_name": bad, "rows": [bad, "b"], "cols": [bad, "b"]}
    picture = show.heatmap([np.eye(2)] * 2, titles=[bad, "x"], caption=bad, point=bad, **tokens)
    mask = show.heatmap(np.eye(2, dtype=bool), kind="mask", legend=(bad, bad))
    table = show.table({bad: [bad, 2]}, rows=[bad, "b"], caption=bad, corner=bad)
    said = show.describe(np.eye(2), kind="scores", point=bad, **tokens)
    figure, _ = show.axes()
    for made in (picture, mask, table, show.picture(figure, alt=bad, caption=bad)):
        for text in made._repr_mimebundle_().values():
            assert text.encode("utf-8") and "\x00" not in text and shown_as in text
    assert shown_as in said and said.encode("utf-8")
    assert {words.text for words in Drawn(picture).parts["title"].values()} == {shown_as, "x"}
    assert Drawn(picture).text("rowname") == {(0,): shown_as}


def odd_calls():
    """Every public function with what is no array, no list, no text, no number."""
    matrix, two = np.array([[1.0, 2], [3, 4]]), {"a": [1, 2], "b": [3, 4]}
    inner = [[1], [1, 2]]
    data = [
        1.0, np.array(1.0), np.zeros((2, 2, 2, 2)), [[1, 2], [3]], [1, [2]], "text", b"x", None, 1j, [[1j]],
        [[object()]], object(), True, [], [[]], np.zeros((0, 3)), np.zeros((0, 2, 2)), [[np.nan]], {},
        {"a": 1}, {"a": "xy"}, {"a": [object()]}, {"a": [1j]}, {"a": [np.zeros((2, 2, 2))]}, {"a": [inner]},
        {1: [1], "1": [2]}, {1, 2}, np.datetime64("2020"), [np.eye(2), np.zeros(2)], [np.eye(2), None], len,
        lambda: 0, np.zeros((2, 2), dtype=[("a", int)]), 10**400, [[10**400]], -1, float("nan"),
    ]  # fmt: skip
    words = [
        5,
        None,
        object(),
        ["a"],
        ["a", "b", "c"],
        b"ab",
        iter(["a", "b"]),
        [None, None],
        {"a": 1},
        [["x"], 1],
    ]
    for x in data:
        for kind in ("scores", "mask"):
            yield lambda x=x, kind=kind: show.describe(x, kind=kind)
        yield from (
            lambda x=x: show.heatmap(x), lambda x=x: show.heatmap(x, kind="weights"),
            lambda x=x: show.table(x), lambda x=x: show.text(x),
            lambda x=x: show.number(x), lambda x=x: show.values(x),
            lambda x=x: show.values(x=x), lambda x=x: show.pipeline(x), lambda x=x: show.pipeline([x]),
            lambda x=x: show.source(x), lambda x=x: show.picture(x, alt="x"), lambda x=x: show.axes(x),
            lambda x=x: show.axes(nrows=x), lambda x=x: show.describe(matrix, kind="scores", allowed=x),
            lambda x=x: show.describe(matrix, kind=x), lambda x=x: show.table(matrix, digits=x),
            lambda x=x: show.number(1.5, digits=x), lambda x=x: show.text(matrix, digits=x),
            lambda x=x: show.table(two, roles=x), lambda x=x: show.table(two, roles={"a": x}),
            lambda x=x: show._heatmap._checked(x, [show._heatmap._Panel(matrix, matrix > 0, "", "scores",
                (None, "a"), (None, "b"), 2, False)]),
        )  # fmt: skip
    for w in words:
        for name in ("rows", "cols", "row_name", "col_name", "point"):
            yield lambda w=w, name=name: show.describe(matrix, kind="scores", **{name: w})
        for name in ("rows", "columns", "caption", "corner"):
            yield lambda w=w, name=name: show.table(matrix, **{name: w})
            yield lambda w=w, name=name: show.table(two, **{name: w})
        for name in ("titles", "caption", "legend", "outline"):
            yield lambda w=w, name=name: show.heatmap([matrix > 1] * 2, kind="mask", **{name: w})
    yield lambda: show.table(two, columns=["a", "a"])
    yield lambda: show.axes(width=-1)


def test_odd_inputs_are_drawn_or_refused_in_our_own_words(capsys):
    accepted, refused = 0, 0
    for n, call in enumerate(odd_calls()):
        try:
            call()
            accepted += 1
        except AttnError as error:
            refused += 1
            assert len(str(error)) > 20
        except Exception as error:
            pytest.fail(f"call {n} raised {type(error).__name__}: {error}")
    assert accepted > 50 and refused > 500


# --- the SVG as a part of the page ---


def line_plot():
    figure, ax = show.axes()
    for n, role in enumerate(("query", "key", "value"), 1):
        ax.plot([1, 2, 3], [n, 2 * n, n * n], label=role, color=show.COLOURS[role])
    ax.set(xlabel="width d_h", ylabel="spread")
    ax.legend()
    return show.picture(figure, alt="Three lines.", caption="Lines.")


@functools.cache
def all_pictures():
    big = np.linspace(-1, 1, 40 * 40).reshape(40, 40)
    return [
        show.heatmap(SCORES, rows=TOKENS, cols=TOKENS, outline=[(0, 0)], sums=True, caption="a"),
        show.heatmap(STEPS.weights, kind="weights", allowed=CAUSAL, caption="b"),
        show.heatmap(CAUSAL, kind="mask", caption="c"),
        show.heatmap([Q, K, V], kind="values", titles=list("QKV"), caption="d"),
        show.heatmap(big, allowed=big < 0.5, caption="e"),
        show.heatmap([[np.nan, -np.inf, 1]]),
        line_plot(),
    ]


@functools.cache
def all_html(pictures=None):
    shown = [picture.html for picture in pictures or all_pictures()]
    shown += [
        show.table(SCORES, rows=TOKENS, columns=TOKENS, caption="S").html,
        show.table({"t": TOKENS, "v": [(1, 0.5)] * 3}, roles={"v": "value"}).html,
        show.pipeline(["scores", "mask"]).html,
        show.source(attnlib.softmax).html,
    ]
    return shown


def test_no_inline_style_no_script_no_other_host():
    """B33."""
    for page in all_html():
        for tag, attributes in Page(page).tags:
            assert tag != "script"
            assert tag != "style" or attributes == {"class": "attn-style"}
            assert not [name for name in attributes if name == "style" or name.startswith("on")]
            for name in ("src", "href"):
                assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,"))
        assert "url(http" not in page and "@import" not in page
        assert "<?xml" not in page and "<!DOCTYPE" not in page and "metadata" not in page


def test_svg_follows_the_theme():
    """B18: no black ink, no white ground, every role by its variable, the page's own font."""
    for picture in all_pictures():
        for element in ET.fromstring(picture.svg).iter():
            assert "font-family" not in element.attrib and "font" not in element.attrib
            for name in ("fill", "stroke"):
                paint = element.get(name, "")
                assert paint != "#000000"
                assert paint.lower() not in {colour.lower() for colour in show.COLOURS.values()}
                if paint == "#ffffff":
                    assert element.tag.endswith("text")  # a number on a dark cell
            if element.tag.endswith("}text"):
                assert element.get("fill")
    lines = line_plot().svg
    for role in ("query", "key", "value"):
        assert f'stroke="var(--attn-{role}, {show.COLOURS[role]})"' in lines
    assert 'stroke="currentColor"' in lines and 'fill="currentColor"' in lines


def test_ids_do_not_clash_and_links_lead_somewhere():
    ids = []
    for picture in all_pictures():
        root = ET.fromstring(picture.svg)
        own = [element.get("id") for element in root.iter() if "id" in element.attrib]
        links = re.findall(r"url\(#([^)]+)\)", picture.svg) + re.findall(r'href="#([^"]+)"', picture.svg)
        assert set(links) == set(own)
        ids += own
    assert len(ids) == len(set(ids)) and len(ids) >= 4


def test_same_bytes_whatever_the_user_has_set():
    """B12, B15: another call, another process, other settings: the same bytes."""
    import matplotlib

    first = all_html()
    lines = line_plot()
    loud = {"font.size": 30, "svg.fonttype": "path", "savefig.dpi": 300, "savefig.bbox": "tight",
            "hatch.linewidth": 9, "axes.facecolor": "red", "text.color": "white", "figure.autolayout": True,
            "image.cmap": "jet", "text.parse_math": True, "axes.unicode_minus": False,
            "lines.linewidth": 9}  # fmt: skip
    with matplotlib.rc_context(loud):
        again = all_html.__wrapped__(all_pictures.__wrapped__())
        # a reader's own plot (the last picture) is drawn with the reader's settings
        assert again[:6] + again[7:] == first[:6] + first[7:]
        assert lines.html == first[6]  # but one that is finished stays as it is
        assert matplotlib.rcParams["font.size"] == 30  # and theirs are left alone
    code = "import hashlib, test_show as t; print(hashlib.sha256(repr(t.all_html()).encode()).hexdigest())"
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.decode().strip() == hashlib.sha256(repr(first).encode()).hexdigest()


def test_coordinates_are_short_and_bytes_few():
    for picture in all_pictures():
        for element in ET.fromstring(picture.svg).iter():
            for name in ("d", "x", "y", "transform", "viewBox"):
                assert not re.search(r"\.\d{3}", element.get(name, "")), (name, element.get(name))
        assert len(picture.svg) < 25_000


def test_image_bytes_do_not_depend_on_a_compressor():
    """Other builds of zlib pack the same pixels differently; a baked notebook must not notice."""
    import base64

    from PIL import Image

    picture = show.heatmap(np.linspace(0, 1, 400).reshape(20, 20), kind="weights", allowed=np.eye(20) < 1)
    images = [base64.b64decode(data) for data in re.findall(r'base64,([^"]+)"', picture.svg)]
    large = max((Image.open(io.BytesIO(data)) for data in images), key=lambda image: image.size)
    assert large.size == (20, 20)
    at = max(images, key=len).index(b"IDAT") + 4
    assert max(images, key=len)[at : at + 3] == b"\x78\x01\x01"  # zlib header, one stored block
    drawn = picture.figure.axes[0].images[0].get_array()
    assert np.array_equal(np.asarray(large.convert("RGBA")), drawn)


def test_figures_do_not_pile_up():
    """V19."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    for picture in all_pictures.__wrapped__():
        assert picture.html
    assert plt.get_fignums() == before


def test_html_of_a_picture():
    narrow, wide = show.heatmap(SCORES, caption="a < b"), show.heatmap([SCORES] * 3, titles=["<b>", "x", "y"])
    assert re.match(r'<figure class="attn-figure"><svg ', narrow.html)
    assert "<figcaption>a &lt; b</figcaption>" in narrow.html
    assert '<details class="attn-data"><summary>The numbers as a table</summary>' in narrow.html
    root = ET.fromstring(narrow.html)
    cells = ["".join(td.itertext()) for td in root.iter("td")]
    assert [cell for cell in cells if cell] == ["3", "0", "-2", "6", "3", "-2", "2", "0", "6"]
    # V22, B25: a wide picture scrolls in its own box, which the keyboard reaches
    assert re.match(
        r'<figure class="attn-figure"><div class="attn-scroll" tabindex="0" role="group"', wide.html
    )
    assert wide.html.count("<table") == 3
    root = ET.fromstring(show.heatmap(STEPS.scaled, allowed=CAUSAL).html)
    assert ["".join(td.itertext()) for td in root.iter("td")].count("-inf") == 3
    assert "<table" not in show.heatmap(np.eye(9)).html


# --- matplotlib is optional ---


def test_import_needs_no_matplotlib():
    code = "import sys, attnlib.show; print(any(name.split('.')[0] == 'matplotlib' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_one_message_without_matplotlib(monkeypatch):
    """B35: what needs no picture still works."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AttnError, match=r"heatmap needs matplotlib: pip install matplotlib"):
        show.heatmap(SCORES)
    with pytest.raises(AttnError, match="axes needs matplotlib"):
        show.axes()
    assert show.table(SCORES).text and show.pipeline("x").text and show.text(SCORES)


def test_source_without_pygments(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygments", None)
    shown = show.source(attnlib.softmax)
    assert shown.html.startswith('<div class="attn-source highlight"><pre>def softmax(')
    assert "".join(Page(shown.html).texts) == shown.text


# --- tables, strip, source ---


def test_table():
    made = show.table(
        {"token": ["The", "cat"], "score": [1.0, 0.0], "w \u00d7 V": [(0.67, -0.67), np.array([0.25, 0.0])],
         "seen": [True, np.False_], "n": [np.int64(3), None]},
        rows=["a", "b"], caption="Query cat", corner="i", digits=2, roles={"score": "query"},
    )  # fmt: skip
    assert made.text.splitlines() == [
        "i  token  score          w \u00d7 V  seen   n",
        "a  The        1  (0.67, -0.67)  True   3",
        "b  cat        0      (0.25, 0)  False",
    ]
    root = ET.fromstring(made.html)
    assert root.attrib == {
        "class": "attn-scroll",
        "tabindex": "0",
        "role": "region",
        "aria-label": "Query cat",
    }
    (table,) = root
    assert table.get("class") == "attn-table" and table.find("caption").text == "Query cat"
    assert [th.get("scope") for th in table.iter("th")] == ["col"] * 6 + ["row"] * 2
    assert {td.get("class") for td in table.iter("td")} >= {"attn-number attn-role-query", "attn-words"}
    assert made._repr_mimebundle_() == {"text/plain": made.text, "text/html": show._style.carried(made.html)}
    unnamed = ET.fromstring(show.table(SCORES).html)
    assert unnamed.get("role") == "group" and unnamed.get("aria-label")
    assert show.table(SCORES, columns=TOKENS).text.splitlines()[0].split() == TOKENS
    assert show.table({"a": [1], "b": [2]}, columns=["b"]).text == "b\n2"


def test_a_sentence_in_a_table_may_take_several_lines():
    long = "The scores are not divided by the root of the width."
    html = show.table({"word": ["tea", long], "n": [1, 2]}).html
    assert html.count("attn-sentence") == 1 and '<td class="attn-words attn-sentence"><bdi>The' in html


def test_table_columns_keep_their_own_decimals():
    made = show.table({"score": [2, 0, 6], "weight": [0.114, 0.042, 0.844]})
    assert made.text.splitlines()[1:] == ["    2  0.1140", "    0  0.0420", "    6  0.8440"]


@pytest.mark.parametrize("step", [*show._html.STEPS, None, ["scores", "softmax"]])
def test_pipeline(step):
    lit = [step] if isinstance(step, str) else step or []
    strip = show.pipeline(step)
    (steps,) = ET.fromstring(strip.html)
    assert steps.tag == "ol" and steps.get("class") == "attn-pipeline" and len(steps) == 9
    here = [
        word for word, item in zip(show._html.STEPS, steps, strict=True) if item.get("aria-current") == "step"
    ]
    assert here == lit
    # colour is not the only carrier: a lit step has a mark
    assert [len(item.findall("span[@class='attn-mark']")) for item in steps] == [
        int(w in lit) for w in show._html.STEPS
    ]
    assert strip.text.isascii() and "\n" not in strip.text
    assert re.findall(r"\[(.*?)\]", strip.text) == [show._html.STEPS[word][1] for word in here]
    shapes = ["".join(item.find("span[@class='attn-shape']").itertext()) for item in steps]
    assert shapes == [s.replace("x", "\u00d7") for s in "3x8 2x(3x4) 3x3 3x3 3x3 3x3 3x4 3x8 3x8".split()]


def test_style_sheet_is_self_contained():
    sheet = (ROOT / "attnlib" / "show.css").read_text(encoding="utf-8")
    assert sheet.count("{") == sheet.count("}")
    assert "url(" not in sheet and "@import" not in sheet and "<" not in sheet
    used = set(re.findall(r'class="([^"]+)"', "".join(all_html())))
    ours = {name for names in used for name in names.split() if name.startswith("attn-")} - {"attn-style"}
    styled = set(re.findall(r"\.(attn-[\w-]+)", sheet))
    assert ours - styled <= {"attn-words", "attn-symbol"}, "a class without a rule"
    assert set(show._style._parts()) == set(re.findall(r"=== ([\w-]+) ===", sheet))


def test_an_output_carries_what_it_needs_and_a_page_of_ours_drops_it():
    """Each output has its own palette and rules (Colab frames each one), at its end, where stripping a tag
    leaves their text; what the site makes of it is the plain HTML, byte for byte."""
    for plain in all_html():
        carried = show._style.carried(plain)
        assert show._style.bare(carried) == plain
        assert "<svg" not in carried and carried.count("<style") == ("attn-" in plain)
        if "attn-" in plain:
            sheet = carried[carried.index("<style") :]
            assert sheet.endswith("</style>") and len(sheet) < 4_500
            assert set(re.findall(r"var\(--attn-(\w+)\)", sheet)) <= set(re.findall(r"--attn-(\w+):", sheet))


class Cleaned(html.parser.HTMLParser):
    """What is left of an output where its tags are cleaned away: texts, without those of styles."""

    def __init__(self, page, drops=("style",)):
        super().__init__()
        self.text, self.inside, self.drops = "", 0, drops
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.inside += tag in self.drops

    def handle_endtag(self, tag):
        self.inside -= tag in self.drops

    def handle_data(self, data):
        self.text += "" if self.inside else data


def test_a_picture_leaves_a_sentence_where_its_drawing_is_cleaned_away():
    """A6: an untrusted notebook, GitHub: no digits run together, but caption or alt text, then the table."""
    for picture in all_pictures():
        left = Cleaned(picture._repr_mimebundle_()["text/html"]).text
        words = picture.caption or picture.alt
        assert left.startswith(words), left[:200]
        table = left.removeprefix(words).removeprefix("The numbers as a table")
        assert not table or "attn-data" in picture.html
    strip = Cleaned(show.pipeline()._repr_mimebundle_()["text/html"]).text
    assert "X 3\u00d78" in strip and "2\u00d7(3\u00d74)" in strip


def test_a_picture_of_any_tokens_survives_as_an_image():
    picture = show.heatmap(np.eye(len(HOSTILE)), kind="weights", rows=HOSTILE, cols=HOSTILE)
    carried = picture._repr_mimebundle_()["text/html"]
    (image,) = [attributes for tag, attributes in Page(carried).tags if tag == "img"]
    assert image["alt"] == picture.alt
    head, svg = image["src"].split(",", 1)
    root = ET.fromstring(urllib.parse.unquote(svg))
    name = "{http://www.w3.org/2000/svg}"
    assert head == "data:image/svg+xml" and root.tag == f"{name}svg"
    texts = [words.text for words in root.iter(f"{name}text")]
    assert texts == [words.text for words in ET.fromstring(picture.svg).iter(f"{name}text")]


def test_source_is_the_file_without_the_docstring():
    shown = show.source(attnlib.softmax)
    lines = (ROOT / "attnlib" / "core.py").read_text(encoding="utf-8").splitlines()
    assert shown.text.startswith("def softmax(") and '"""' not in shown.text
    assert all(line in lines for line in shown.text.splitlines())
    assert "".join(Page(shown.html).texts).strip() == shown.text
    assert 'class="attn-source highlight"' in shown.html
    whole = show.source(ShapeError).text
    assert whole.startswith(
        "class ShapeError(AttnError):"
    )  # only a docstring: it stays, or it would be no code
    compile(whole, "x", "exec")


def test_only_tokens_are_numbered():
    factors = show.heatmap(np.eye(2), kind="weights", rows=["x 0", "x 4"], row_name="factor", cols=["a", "b"])
    assert "Rows are factor: x 0, x 4." in factors.alt
    assert "Columns are key j: 1 a, 2 b." in factors.alt


def test_legend_of_a_mask_says_what_its_cells_mean():
    moved = show.heatmap(np.eye(2, dtype=bool), kind="mask", legend=("moves", "stays"))
    assert "moves" in moved.svg and "stays" in moved.svg and "may attend" not in moved.svg
    assert "Moves: 2 cells; stays: 2." in moved.alt


def test_numbers_with_thousands_marks_stand_at_the_right():
    html = show.table({"n": ["16,777,216", "0"], "word": ["a", "1,2"]})._repr_mimebundle_()["text/html"]
    assert html.count('<td class="attn-number">16,777,216') == 1
    assert '<td class="attn-words"><bdi>1,2' in html


def test_four_wide_panels_stand_two_and_two():
    left = [axes.get_position().x0 for axes in show.heatmap([np.ones((3, 4))] * 4, sums=True).figure.axes[:4]]
    assert left[0] == left[2] < left[1] == left[3]

"""Softmax bars in the browser against NumPy's own float16 and float32, and against attnlib."""

import warnings

import numpy as np
import pytest
from stage import call, result, settle, state
from widget_checks import answers_in_time, axe_clean, copied_link, fits, refuses, said, still_without_script

from attnlib import core, masks, widgets
from attnlib.errors import AttnError
from attnlib.examples import cat_sleeps, three_tokens
from attnlib.mistakes import planted

pytestmark = pytest.mark.browser
BOUND = 1e-9
ROW = [1.0, 0.0, 3.0]


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(widgets.softmax_bars(), arithmetic=True)


@pytest.fixture
def page(one):
    one.get_by_role("button", name="Reset").click()
    settle(one)
    return one


def numbers(words):
    """Python hears of ∞ and NaN as words."""
    return np.array([float(x) for x in words])


def same(got, wanted, relative=0.0):
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    assert got.shape == wanted.shape
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wanted) <= np.maximum(BOUND, relative * np.abs(wanted))
    assert np.all((got == wanted) | near | (np.isnan(got) & np.isnan(wanted))), f"{got} is not {wanted}"


def test_float16_is_numpys(one):
    rng = np.random.default_rng(0)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(float)
    every = every[np.isfinite(every)]
    halfway = (every[:-1] + every[1:]) / 2
    edges = [65504, 65519.999, 65520, -65520, 1e300, -1e300, 2**-24, 2**-25, 2**-25 * 1.0001, 5e-324, 0.0]
    free = rng.normal(size=3000) * 10.0 ** rng.uniform(-9, 6, size=3000)
    given = np.concatenate([every[::7], halfway[::5], edges, free])
    with np.errstate(over="ignore"):
        wanted = given.astype(np.float16).astype(float)
    assert np.array_equal(np.array(call(one, "(A, all) => all.map(A.toFloat16)", given)), wanted)
    assert call(one, "(A) => [Infinity, -Infinity].map(A.toFloat16)") == [np.inf, -np.inf]
    assert np.isnan(call(one, "(A) => A.toFloat16(NaN)"))


def emulated(row, *, hidden=None, temperature=1, shift=0, subtract=True, precision="float64"):
    """The steps with NumPy, every result in the precision; exp itself comes from float64."""
    kind = np.dtype(precision).type
    with np.errstate(all="ignore"):
        given = np.array([kind(kind(kind(x) / kind(temperature)) + kind(shift)) for x in row])
        given[np.array(hidden, dtype=bool) if hidden else []] = -np.inf
        moved = given - given.max() if subtract else given
        powers = np.exp(moved.astype(float)).astype(kind)
        total = kind(0)
        for x in powers:
            total = kind(total + x)
        return {"given": given, "moved": moved, "powers": powers, "total": total, "weights": powers / total}


@pytest.mark.parametrize("precision", ["float64", "float32", "float16"])
@pytest.mark.parametrize("subtract", [True, False])
def test_each_step_in_each_precision(one, precision, subtract):
    rng = np.random.default_rng(3)
    rows = [ROW, [100, 101, 102], [1, 1, 1], [1000, -1000, 0], [-1000, -999, -998], [11, 11, 11], [0, 0, 12]]
    rows += [(rng.normal(size=n) * 10).tolist() for n in (1, 2, 5, 6)]
    for n, row in enumerate(rows):
        options = {"subtract": subtract, "precision": precision, "temperature": [1, 0.25, 3][n % 3]}
        options |= {"shift": [0, 40, -100][n // 3 % 3], "hidden": [len(row) > 1, *[False] * (len(row) - 1)]}
        # The browser's exp may differ from NumPy's in its last bit, and the rounded result in one step.
        step = {"float64": 1e-15, "float32": 2**-23, "float16": 2**-10}[precision]
        got, wanted = call(one, "(A, x, o) => A.softmaxSteps(x, o)", row, options), emulated(row, **options)
        for key, numbers_wanted in wanted.items():
            same(got[key], numbers_wanted, step)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_float64_is_attnlib(one, n):
    row = np.random.default_rng(n).normal(size=n) * 5
    hidden = [j % 2 == 1 for j in range(n)]
    allowed = ~np.array([hidden])
    weights, lse = core.softmax(np.where(allowed, row / 2 + 7, -np.inf), allowed, return_lse=True)
    options = {"hidden": hidden, "temperature": 2, "shift": 7}
    got = call(one, "(A, x, o) => A.softmaxSteps(x, o)", row, options)
    same(got["weights"], weights[0])
    same(got["lse"], lse[0])
    empty = call(one, "(A, x, o) => A.softmaxSteps(x, o)", row, {"hidden": [True] * n})
    same(empty["weights"], np.zeros(n))
    assert empty["lse"] == -np.inf


@pytest.mark.parametrize("example", [three_tokens, cat_sleeps])
def test_both_examples(shared_stage, example):
    t = example()
    page = shared_stage.open(widgets.softmax_bars(example=t, row=1))
    got, steps = result(page), core.attention_steps(*t.head(1))
    same(numbers(got["weights"]), steps.weights[1])
    same(numbers([got["lse"]]), [steps.lse[1]])
    same(got["table"], core.attention_steps(*t.head(1), is_causal=True).weights)
    assert got["mistakes"] == []
    page.close()


def cells(page):
    """The words of the table of steps, row by row."""
    return page.eval_on_selector_all(
        ".attn-bars-steps tbody tr",
        "all => all.map(r => [...r.querySelectorAll('td')].map(d => d.textContent))",
    )


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    settle(page)


def check(page, name):
    page.get_by_label(name, exact=True).check()
    settle(page)


def test_the_row_of_the_chapter(page):
    assert cells(page) == [
        ["1", "0", "3", ""],
        ["1", "0", "3", ""],
        ["−2", "−3", "0", ""],
        ["0.135", "0.050", "1", "1.185"],
        ["0.114", "0.042", "0.844", "1"],
    ]
    assert "tea takes 0.844" in said(page)
    drawn = page.eval_on_selector_all(
        ".attn-bars-chart:nth-child(2) .attn-bars-bar",
        "all => all.map(b => Number(b.getAttribute('height')))",
    )
    # Heights are in proportion to the weights.
    assert np.allclose(np.array(drawn) / sum(drawn), core.softmax(np.array([ROW]))[0], rtol=0, atol=1e-6)
    label = page.locator(".attn-bars-chart:nth-child(2) svg").get_attribute("aria-label")
    assert label == "Weights: 1 we 0.114, 2 like 0.042, 3 tea 0.844."


def test_overflow_and_its_cure(page):
    press(page, "[100, 101, 102]")
    assert state(page)["row"] == [100, 101, 102]
    check(page, "no")
    assert "No weight has changed" in said(page) and result(page)["mistakes"] == ["no_maximum"]
    check(page, "float32")
    row = np.float32([[100, 101, 102]])
    with planted("no_maximum"), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wrong = core.softmax(row)
    got = result(page)
    assert np.isnan(wrong).all() and got["weights"] == ["NaN"] * 3
    assert got["powers"] == ["Infinity"] * 3 and got["total"] == "Infinity"
    assert cells(page)[4][2] == "≠ NaN instead of 0.665" and cells(page)[3] == ["∞"] * 4
    words = said(page)
    assert "e to 102 overflows float32" in words and "88.7" in words and "tea gets 0.665" in words
    assert page.locator(".attn-bars-outline").count() == 6
    assert page.locator(".attn-bars-legend").evaluate("p => getComputedStyle(p).visibility") == "visible"
    check(page, "yes")
    assert result(page)["mistakes"] == []
    same(numbers(result(page)["weights"]), core.softmax(np.array([[100.0, 101, 102]]))[0], 1e-6)
    assert page.locator(".attn-bars-outline").count() == 0


@pytest.mark.parametrize(
    ("precision", "fits_still", "too_large"),
    [("float64", 709, 710), ("float32", 88, 89), ("float16", 11, 11.5)],
)
def test_where_each_precision_ends(page, precision, fits_still, too_large):
    check(page, "no")
    check(page, precision)
    for x, overflows in ((fits_still, False), (too_large, True)):
        page.get_by_label("score of key 3 tea, as a number").fill(str(x))
        settle(page)
        with np.errstate(over="ignore"):
            assert np.isinf(np.exp(np.array(x, dtype=precision))) == overflows
        assert (result(page)["powers"][2] == "Infinity") == overflows
        assert ("overflows" in said(page)) == overflows


def test_underflow_and_a_sum_that_overflows(page):
    check(page, "no")
    for n, token in enumerate(["1 we", "2 like", "3 tea"]):
        page.get_by_label(f"score of key {token}, as a number").fill(str(-1000 + n))
    settle(page)
    assert "0 / 0 is NaN" in said(page) and result(page)["weights"] == ["NaN"] * 3
    check(page, "float16")
    for token in ["1 we", "2 like", "3 tea"]:
        page.get_by_label(f"score of key {token}, as a number").fill("11")
    settle(page)
    assert "their sum overflows" in said(page)
    assert numbers(result(page)["weights"]).tolist() == [0, 0, 0]


def test_presets(page):
    press(page, "all equal")
    assert "0.333 each" in said(page)
    press(page, "one hidden (−∞)")
    assert state(page)["hidden"] == [False, False, True] and "exactly 0" in said(page)
    same(numbers(result(page)["weights"]), [*core.softmax(np.array([[1.0, 0.0]]))[0], 0])
    assert cells(page)[0][2] == "−∞" and cells(page)[4][2] == "0"
    assert page.get_by_label("score of key 3 tea", exact=True).is_disabled()
    for token in ["1 we", "2 like"]:
        page.get_by_label(f"−∞: key {token} is hidden").check()
    settle(page)
    assert "all weights are 0" in said(page) and numbers(result(page)["weights"]).tolist() == [0, 0, 0]
    press(page, "row 3")
    assert state(page)["row"] == ROW and state(page)["hidden"] == [False] * 3


def slide(page, label, keys):
    page.get_by_role("slider", name=label).first.focus()
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def test_sliders_by_keyboard(page):
    slide(page, "add a constant", ["ArrowRight"] * 3)
    assert state(page)["shift"] == 3 and "changed no weight" in said(page)
    same(numbers(result(page)["weights"]), core.softmax(np.array([ROW]))[0])
    slide(page, "add a constant", ["ArrowLeft"] * 3)
    slide(page, "temperature", ["Home"])
    assert state(page)["temperature"] == 0.25 and "sharpens" in said(page)
    same(numbers(result(page)["weights"]), core.softmax(4 * np.array([ROW]))[0])
    slide(page, "temperature", ["End"])
    assert "flattens" in said(page)
    slide(page, "score of key 1 we", ["End"])
    assert state(page)["row"] == [10, 0, 3]
    assert page.get_by_label("score of key 1 we, as a number").input_value() == "10"


@pytest.mark.parametrize("bad", ["", "abc", "1e9", "1001", "NaN"])
def test_a_bad_number_leaves_the_picture(page, bad):
    before = cells(page)
    field = page.get_by_label("score of key 2 like, as a number")
    field.fill(bad)
    settle(page)
    message = page.locator(".attn-entries-message")
    assert "score of key 2 like" in message.inner_text() and "last valid" in message.inner_text()
    assert field.get_attribute("aria-invalid") == "true" and cells(page) == before
    field.fill("−2,5")
    settle(page)
    assert state(page)["row"] == [1, -2.5, 3] and message.inner_text() == ""
    field.fill(bad)
    press(page, "row 3")
    assert message.inner_text() == "" and field.input_value() == "0"


def test_the_axis(page):
    check(page, "over queries")
    with planted("softmax_over_queries"):
        wrong = core.attention_steps(*three_tokens().head(1), is_causal=True).weights
    got = result(page)
    same(got["table"], wrong)
    same(got["rowSums"], wrong.sum(axis=1))
    same(got["columnSums"], wrong.sum(axis=0))
    assert got["mistakes"] == ["softmax_over_queries"]
    assert f"row 1 sums to {wrong.sum(axis=1)[0]:.3f} and every column to 1" in said(page)
    sums = page.locator(".attn-matrix tbody td.attn-total .attn-value").all_inner_texts()
    assert sums == [f"≠ {x:.3f}" for x in wrong.sum(axis=1)]
    hidden = page.locator(".attn-matrix td.attn-hidden").count()
    assert hidden == (~masks.causal_mask(3, 3)).sum()
    page.locator(".attn-matrix tbody tr:nth-child(3) td").first.focus()
    assert page.locator(".attn-pointed").inner_text() == "query 3 tea asks key 1 we"
    assert page.locator(".attn-matrix th.attn-lit").all_inner_texts() == ["1 we", "3 tea"]


def test_nothing_jumps_and_answers_come_in_time(page):
    def places():
        return page.evaluate("""() => ['.attn-bars-charts', '.attn-bars-axis', '.attn-actions']
            .map((part) => document.querySelector('.attn-live ' + part).getBoundingClientRect().top)
            .map((top) => Math.round(top + scrollY))""")

    before = places()
    press(page, "[100, 101, 102]")
    for name in ("no", "float32", "over queries", "float16"):
        check(page, name)
        assert places() == before, name
    answers_in_time(page, page.get_by_role("slider", name="score of key 1 we"), ["-10", "10"] * 6)


def test_links(page, shared_stage):
    first = state(page)
    press(page, "one hidden (−∞)")
    check(page, "no")
    check(page, "float16")
    slide(page, "temperature", ["End"])
    here, words = state(page), said(page)
    again = shared_stage.open(widgets.softmax_bars(), link=copied_link(page))
    assert state(again) == here and said(again) == words
    wrong = {
        "row": [99, [1, 2], [1, 2, 3, 4], [1, 2, 1e4], [1, 2, "3"], [[1], [2], [3]], {"length": 3}],
        "tokens": ["abc", [1, 2, 3], ["a", "b"], ["a" * 25, "b", "c"], {"length": 3}],
        "hidden": [True, [0, 1, 0], [True]],
        "scaled": [[[1, 2, 3]], 7, [[1, 2, None]] * 3],
        "subtract": ["yes", 1],
        "precision": ["float8", "__proto__", ["float16"]],
        "temperature": [0, -1, 5, "2"],
        "shift": [0.5, 101, None],
        "softmax": ["twice", "constructor"],
    }
    refuses(again, "softmax_bars", [{key: bad} for key, all_bad in wrong.items() for bad in all_bad], first)
    again.close()


def test_tokens_are_literal(shared_stage):
    odd = ("<b>x</b>", "</script>\"'&", " \n")
    page = shared_stage.open(widgets.softmax_bars(example=three_tokens()._replace(tokens=odd)))
    assert page.locator(".attn-live b").count() == 0
    heads = page.locator(".attn-bars-steps thead bdi").all_inner_texts()
    assert heads == ["1 <b>x</b>", "2 </script>\"'&", "3 ␣⏎"]
    assert "␣⏎ takes 0.844" in said(page)
    assert page.locator(".attn-bars text", has_text="<b>x</b>").count() == 2
    page.close()


def test_looks(shared_stage):
    for width, scheme in ((900, "light"), (390, "dark"), (390, "light"), (900, "dark"), (320, "light")):
        page = shared_stage.open(widgets.softmax_bars(), width=width, scheme=scheme)
        press(page, "[100, 101, 102]")
        for name in ("no", "float32", "over queries"):
            check(page, name)
        fits(page)
        if width != 320:
            axe_clean(page)
        page.close()


def test_without_script_and_on_paper(shared_stage):
    still_without_script(shared_stage, widgets.softmax_bars(), "0.114", "0.042", "0.844", "0.665")


def test_arguments_are_checked():
    with pytest.raises(AttnError, match="row is 3"):
        widgets.softmax_bars(row=3)
    seven = three_tokens()._replace(tokens=tuple("abcdefg"))
    with pytest.raises(AttnError, match="7 tokens"):
        widgets.softmax_bars(example=seven)

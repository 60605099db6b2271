"""The scaling lab in the browser against NumPy and attnlib."""

import math

import numpy as np
import pytest
from stage import call, result, settle, state
from widget_checks import (
    answers_in_time,
    axe_clean,
    copied_link,
    fits,
    refuses,
    said,
    still_without_script,
)

from attnlib import core, widgets
from attnlib.errors import AttnError
from attnlib.mistakes import planted
from attnlib.widgets import _scaling_lab as python

pytestmark = pytest.mark.browser
BOUND = 1e-9
DIVISORS = ["none", "root_d_h", "root_d", "d_h"]
MISTAKES = {"none": "no_scale", "root_d": "scale_by_model_width", "d_h": "scale_by_width"}
NAMES = {"none": "nothing", "root_d_h": "√d_h", "root_d": "√d", "d_h": "d_h"}


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(widgets.scaling_lab(), arithmetic=True)


@pytest.fixture
def page(one):
    one.get_by_role("button", name="Reset").click()
    settle(one)
    return one


def close(got, wanted):
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    assert got.shape == wanted.shape
    assert np.all(np.abs(got - wanted) <= BOUND * np.maximum(1, np.abs(wanted)))


def mulberry32(seed, count):
    """The generator as its author wrote it, in Python's whole numbers: a third, slow witness."""
    numbers, low = [], 0xFFFFFFFF
    for n in range(1, count + 1):
        t = (seed + n * 0x6D2B79F5) & low
        t = ((t ^ (t >> 15)) * (t | 1)) & low
        t ^= (t + ((t ^ (t >> 7)) * (t | 61) & low)) & low
        numbers.append((t ^ (t >> 14)) / 2**32)
    return numbers


@pytest.mark.parametrize("seed", [0, 1, 999_999])
def test_the_generator_is_the_same_everywhere(one, seed):
    uniform = call(
        one, "(A, seed) => { const next = A.mulberry32(seed); return Array.from({length: 99}, next); }", seed
    )
    assert uniform == mulberry32(seed, 99) == python.mulberry32(seed, 99).tolist()
    for width in (1, 3, 64):
        got = call(one, "(A, seed, width) => A.randomHead(seed, width, 64, 16)", seed, width)
        query, key = python.random_head(seed, width)
        close(got["query"], query)
        close(got["key"], key)


def test_the_generator_is_normal(one):
    numbers = np.array(call(one, "(A) => A.normals(7, 40001)"))
    assert len(numbers) == 40001
    # Standard errors: 0.005 of the mean, 0.007 of the variance, 0.05 of the fourth moment.
    assert abs(numbers.mean()) < 0.02 and abs(numbers.var() - 1) < 0.03
    assert abs((numbers**4).mean() - 3) < 0.2
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 4), (64, 16)])
def test_the_measures(one, shape):
    scores = np.random.default_rng(shape[0]).normal(size=shape) * 3
    p = core.softmax(scores)
    close(call(one, "(A, t) => A.spread(t)", scores), scores.std())
    close(call(one, "(A, t) => A.median(t)", scores[:, 0]), np.median(scores[:, 0]))
    got = call(one, "(A, t) => A.softmax(t).weights.map(A.sharing)", scores)
    close([x["largest"] for x in got], p.max(axis=1))
    close([x["inUse"] for x in got], np.exp(-(p * np.log(p)).sum(axis=1)))
    close([x["reaction"] for x in got], (p * (1 - p)).max(axis=1))
    counts = call(one, "(A, t) => A.binned(t, 4)", scores)
    inner = np.histogram(np.clip(scores, -4, 4), np.arange(-4.5, 5))[0]
    assert counts == inner.tolist()


def test_a_row_that_uses_one_key(one):
    got = call(one, "(A) => A.sharing([1, 0, 0])")
    assert got == {"largest": 1, "inUse": 1, "reaction": 0}


def slide(page, label, keys):
    """Move a slider by keyboard."""
    page.get_by_role("slider", name=label).focus()
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def heights(page):
    """Where the parts of the widget start: must not change, whatever is clicked."""
    return page.evaluate("""() => ['.attn-bars-charts', '.attn-matrix-box', '.attn-actions']
        .map((part) => document.querySelector('.attn-live ' + part).getBoundingClientRect().top)
        .map((top) => Math.round(top + scrollY))""")


def wanted(seed, width, size, n_heads):
    query, key = python.random_head(seed, width)
    raw = core.scores(size * query, size * key)
    by = dict(zip(DIVISORS, [1, math.sqrt(width), math.sqrt(n_heads * width), width], strict=True))
    return {name: core.scale_scores(raw, 1 / x) for name, x in by.items()}


@pytest.mark.parametrize(
    ("width", "size", "n_heads"), [(1, 1, 8), (2, 0.25, 1), (4, 1, 2), (64, 1, 8), (1024, 4, 64)]
)
def test_what_is_told_to_python(shared_stage, width, size, n_heads):
    widget = widgets.scaling_lab(width, divisor="d_h", size=size, n_heads=n_heads, seed=5)
    page = shared_stage.open(widget)
    got = result(page)
    tables = wanted(5, width, size, n_heads)
    for name, table in tables.items():
        one = got["measured"][name]
        close([one[k] for k in ("spread", "largest", "inUse", "reaction")], python.measures(table))
    close(got["measured"]["none"]["predicted"], math.sqrt(width) * size**2)
    close(got["measured"]["d_h"]["predicted"], size**2 / math.sqrt(width))
    close(got["scores"], tables["d_h"][0])
    close(got["weights"], core.softmax(tables["d_h"])[0])
    page.close()


@pytest.mark.parametrize("divisor", MISTAKES)
def test_wrong_divisors_are_the_librarys_mistakes(shared_stage, divisor):
    page = shared_stage.open(widgets.scaling_lab(16, divisor=divisor, n_heads=2, seed=2))
    got = result(page)
    query, key = python.random_head(2, 16)
    with planted(MISTAKES[divisor]):
        steps = core.attention_steps(query, key, key)
    assert got["mistakes"] == [MISTAKES[divisor]]
    close(got["weights"], steps.weights[0])
    page.close()


def measure_cells(page):
    return page.eval_on_selector_all(
        ".attn-lab-table tbody tr",
        "rows => rows.map(r => [...r.querySelectorAll('td')].map(d => d.innerText))",
    )


def test_divisors_by_mouse(page):
    names = page.locator(".attn-choice label.attn-wrong")
    assert [text.strip() for text in names.all_inner_texts()] == ["nothing", "√d", "d_h"]
    tables = wanted(1, 64, 1, 8)
    for name in DIVISORS:
        page.get_by_label(NAMES[name], exact=True).check()
        settle(page)
        assert state(page)["divisor"] == name
        got = result(page)
        assert got["mistakes"] == ([MISTAKES[name]] if name in MISTAKES else [])
        assert f"{tables[name].std():.2f}" in said(page)
        assert f"{core.softmax(tables[name])[0].max():.3f}" in said(page)
        chosen = page.locator(".attn-lab-table th.attn-lab-now").inner_text()
        assert chosen.split()[0] == NAMES[name]
        counts = np.array(got["counts"])
        assert counts.sum() == 64 * 16
        drawn = page.eval_on_selector_all(
            ".attn-bars-chart:first-child .attn-bars-bar",
            "all => all.map(b => Number(b.getAttribute('height')))",
        )
        close(np.array(drawn) * counts.max(), counts * max(drawn))
    spreads, _, _, in_use, _ = measure_cells(page)
    assert spreads == [f"{t.std():.2f}" for t in tables.values()]
    assert in_use == [f"{python.measures(t)[2]:.1f}" for t in tables.values()]


def test_width_and_size_by_keyboard(page):
    page.get_by_label("√d_h", exact=True).focus()
    page.keyboard.press("Space")
    slide(page, "head width d_h", ["End"])
    assert state(page)["width"] == 1024
    assert page.get_by_role("slider", name="head width d_h").get_attribute("aria-valuetext") == "1024"
    spread = wanted(1, 1024, 1, 8)["root_d_h"].std()
    assert f"spread by {spread:.2f} (predicted: 1)" in said(page)
    slide(page, "size of the inputs", ["ArrowRight"] * 4)
    assert state(page)["size"] == 2
    assert "predicted: 4" in said(page) and "2 · 2 = 4" in said(page)
    slide(page, "head width d_h", ["Home"])
    page.get_by_label("nothing", exact=True).check()
    settle(page)
    assert "cannot be seen" in said(page)
    slide(page, "size of the inputs", ["Home"])
    assert state(page)["size"] == 0.25


def test_tiny_numbers_are_not_called_nothing(page):
    slide(page, "size of the inputs", ["End"])
    slide(page, "head width d_h", ["End"])
    assert python.measures(wanted(1, 1024, 4, 8)["none"])[3] < 1e-4
    assert measure_cells(page)[4][0] == "< 0.001"


def test_another_sample_and_the_numbers_of_the_pictures(page):
    before = result(page)
    page.get_by_role("button", name="Another sample").click()
    settle(page)
    after = result(page)
    assert state(page)["seed"] == 2 and after["scores"] != before["scores"]
    page.locator("summary").last.click()
    tables = page.locator(".attn-lab-numbers table")
    counts = tables.nth(0).locator("tbody td").all_inner_texts()
    assert [int(x) for x in counts] == after["counts"]
    shown = tables.nth(1).locator("tbody tr:first-child td").all_inner_texts()
    best = int(np.argmax(after["weights"]))
    assert shown[0] == str(best + 1) and shown[2] == f"{after['weights'][best]:.3f}"
    label = page.locator(".attn-bars-chart:nth-child(2) svg").get_attribute("aria-label")
    assert f"key {best + 1} {after['weights'][best]:.3f}" in label


def test_reset(page):
    before = said(page)
    page.get_by_label("d_h", exact=True).check()
    slide(page, "head width d_h", ["ArrowLeft"])
    assert said(page) != before
    page.get_by_role("button", name="Reset").click()
    settle(page)
    assert said(page) == before and state(page)["width"] == 64
    assert page.get_by_text("Back to the start.").is_visible()


def test_nothing_jumps_and_redraws_are_quick(page):
    places = heights(page)
    for name in DIVISORS:
        page.get_by_label(NAMES[name], exact=True).check()
        settle(page)
        assert heights(page) == places
    # New samples at widths up to 1024 are the worst case; coming back to one is free.
    answers_in_time(page, page.get_by_role("slider", name="head width d_h"), ["9", "10", "8", "10"] * 6)


def test_links(page, shared_stage):
    first = state(page)
    page.get_by_label("√d", exact=True).check()
    slide(page, "head width d_h", ["ArrowRight"])
    page.get_by_role("button", name="Another sample").click()
    settle(page)
    here, words = state(page), said(page)
    assert (here["width"], here["divisor"], here["seed"]) == (128, "root_d", 2)
    again = shared_stage.open(widgets.scaling_lab(), link=copied_link(page))
    assert state(again) == here and said(again) == words
    wrong = {
        "width": [3, "4", 2048, None, [4]],
        "size": [0, 1e9, "1", {}],
        "divisor": ["__proto__", ["none"], "<script>window.pwned = 1</script>"],
        "nHeads": [0, 0.5, 65],
        "seed": [-1, 1e6, {"a": 1}],
    }
    refuses(again, "scaling_lab", [{key: bad} for key, all_bad in wrong.items() for bad in all_bad], first)
    again.close()


def test_looks(shared_stage):
    for width, scheme in ((900, "light"), (390, "dark"), (390, "light"), (900, "dark"), (320, "light")):
        page = shared_stage.open(widgets.scaling_lab(), width=width, scheme=scheme)
        page.locator("summary").last.click()
        fits(page)
        if width != 320:
            axe_clean(page)
        page.close()


def test_without_script_and_on_paper(shared_stage):
    spreads = [f"{t.std():.3f}" for t in wanted(1, 64, 1, 8).values()]
    still_without_script(shared_stage, widgets.scaling_lab(), "√d_h (right)", *spreads)


def test_arguments_are_checked():
    for bad in ({"width": 3}, {"size": 5}, {"n_heads": 0}, {"seed": -1}, {"divisor": "two"}):
        with pytest.raises(AttnError, match=next(iter(bad))):
            widgets.scaling_lab(**bad)

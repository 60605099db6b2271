"""The mask painter in Chromium: masks, weights, leaks and code against attnlib; mouse, keys, links."""

import itertools

import numpy as np
import pytest
from stage import result, settle, state
from widget_checks import (
    answers_in_time,
    axe_clean,
    copied_link,
    fits,
    refuses,
    said,
    still_without_script,
    visit,
)

import attnlib
from attnlib import core, masks, mistakes, probe, widgets
from attnlib.widgets._mask_painter import PRESETS, fixed_scores

pytestmark = pytest.mark.browser
BOUND = 1e-9  # both sides are float64; only the last digit of exp may differ


@pytest.fixture(scope="module")
def shared(shared_stage):
    """One page for all that leave it as they found it."""
    return shared_stage.open(widgets.mask_painter())


@pytest.fixture
def page(shared):
    shared.get_by_role("button", name="Reset").click()
    settle(shared)
    return shared


def put(page, many):
    """Set each of `many` states, as Python would; the results and the sentences, one of each per state."""
    return page.evaluate(
        """async (many) => {
          const model = document.querySelector('.attn-widget').model;
          const base = model.get('state');
          const found = [];
          for (const changes of many) {
            const drawn = new Promise((done) => {
              const listen = () => { model.off('change:result', listen); done(); };
              model.on('change:result', listen);
            });
            model.set('state', { ...base, ...changes });
            await drawn;
            const said = document.querySelector('.attn-sentence').textContent;
            found.push({ ...model.get('result'), said });
          }
          model.set('state', base);
          return found;
        }""",
        many,
    )


def numbers(page, panel):
    """What the cells of one panel show, row by row."""
    return page.locator(f'[data-panel="{panel}"] tbody tr').evaluate_all(
        """(rows) => rows.map((row) =>
        [...row.querySelectorAll('td:not(.attn-total)')].map((cell) => cell.innerText.trim()))"""
    )


def cell(page, i, j):
    return page.get_by_label(f"query q{i} may see key k{j}", exact=True)


def press(page, name):
    page.locator(".attn-live").get_by_label(name, exact=True).check()
    settle(page)


def ids(starts, positions):
    return [0 if p < 0 else 1 + sum(start - 1 <= p for start in starts) for p in positions]


def wanted_mask(s):
    """The mask that a state stands for, by attnlib."""
    n_q, n_k, align = s["nQ"], s["nK"], s["align"]
    shift = n_k - n_q if align == "bottom_right" else 0
    window = s["window"] + (s["counting"] == "earlier")
    documents = masks.document_mask(ids(s["starts"], range(shift, n_q + shift)), ids(s["starts"], range(n_k)))
    mask = {
        "nothing": np.zeros((n_q, n_k), dtype=bool),
        "everything": np.ones((n_q, n_k), dtype=bool),
        "causal": masks.causal_mask(n_q, n_k, align=align),
        "window": masks.sliding_window_mask(n_q, n_k, window, align=align),
        "prefix": masks.prefix_mask(n_q, n_k, s["prefix"], align=align),
        "documents": documents,
        "padding": np.broadcast_to(masks.padding_mask([s["length"]], n_k)[0, 0], (n_q, n_k)),
    }[s["preset"]]
    if s["preset"] in ("documents", "padding") and s["alsoCausal"]:
        mask = mask & masks.causal_mask(n_q, n_k, align=align)
    mask = mask.copy()
    for i, j in s["flips"]:
        mask[i, j] ^= True
    return mask


def states():
    """Every preset on square and ragged sizes with all its options, then random ones, painted over."""
    base = {
        "nQ": 5, "nK": 5, "align": "top_left", "window": 2, "counting": "with_current", "prefix": 2,
        "starts": [4], "length": 3, "alsoCausal": True, "flips": [], "polarity": "attend", "equal": False,
        "token": None,
    }  # fmt: skip
    options = {
        "window": [{"window": w, "counting": c} for w in (1, 3) for c in ("with_current", "earlier")],
        "prefix": [{"prefix": 0}, {"prefix": 3}],
        "documents": [{"starts": s, "alsoCausal": a} for s in ([], [2, 4]) for a in (True, False)],
        "padding": [{"length": n, "alsoCausal": a} for n in (0, 2) for a in (True, False)],
    }
    sizes = [(5, 5, "top_left"), (3, 6, "top_left"), (3, 6, "bottom_right"), (7, 4, "bottom_right")]
    for preset, (n_q, n_k, align) in itertools.product(PRESETS, sizes):
        for more in options.get(preset, [{}]):
            yield {**base, "preset": preset, "nQ": n_q, "nK": n_k, "align": align, **more}
    rng = np.random.default_rng(8)
    for n in range(40):
        n_q, n_k = (int(x) for x in rng.integers(1, 9, 2))
        painted = np.argwhere(rng.random((n_q, n_k)) < rng.random()).tolist()
        yield {
            **base,
            "preset": PRESETS[n % len(PRESETS)],
            "nQ": n_q,
            "nK": n_k,
            "align": str(rng.choice(["top_left", "bottom_right"])),
            "prefix": int(rng.integers(0, n_k + 1)),
            "length": int(rng.integers(0, n_k + 1)),
            "starts": sorted(int(x) for x in rng.choice(range(2, 9), 2, replace=False)),
            "window": int(rng.integers(1, 9)),
            "counting": str(rng.choice(["with_current", "earlier"])),
            "alsoCausal": bool(rng.integers(2)),
            "flips": painted,
            "polarity": str(rng.choice(["attend", "ignore"])),
            "equal": bool(rng.integers(2)),
            "scores": np.round(rng.normal(scale=4, size=(8, 8)), 3).tolist(),
        }


def test_masks_weights_leaks_and_code_are_attnlibs(page):
    many = list(states())
    empty = painted = 0
    for s, got in zip(many, put(page, many), strict=True):
        mask = wanted_mask(s)
        assert np.array_equal(got["mask"], mask), s
        seen = mask if s["polarity"] == "attend" else ~mask
        scores = np.asarray(s.get("scores", fixed_scores()))[: s["nQ"], : s["nK"]] * (not s["equal"])
        weights = core.softmax(np.where(seen, scores, -np.inf), seen)
        assert np.abs(np.asarray(got["weights"]) - weights).max() <= BOUND
        assert np.abs(np.asarray(got["rowSums"]) - weights.sum(axis=1)).max() <= BOUND
        assert np.abs(np.asarray(got["columnSums"]) - weights.sum(axis=0)).max() <= BOUND
        assert got["emptyRows"] == np.flatnonzero(~seen.any(axis=1)).tolist()
        empty += len(got["emptyRows"])
        moves = probe.recover_mask(lambda v, w=weights: w @ v, np.eye(s["nK"]))
        assert got["leaks"] == [np.flatnonzero(column).tolist() for column in moves.T]
        names = {}
        exec(got["code"], names)
        assert names["mask"].dtype == bool and names["mask"].shape == mask.shape
        assert np.array_equal(names["mask"], mask), got["code"]
        assert np.array_equal(names["ignore"], ~mask)
        assert np.array_equal(names["added"], np.where(mask, 0.0, -np.inf))
        assert ("np.array" in got["code"]) == bool(s["flips"])
        painted += bool(s["flips"])
        if got["emptyRows"]:
            assert "NaN" in got["said"] and "empty" in got["said"]
    assert empty > 20 and painted > 20


def test_planted_mistakes_agree_with_the_library(page):
    base = {**state(page), "scores": fixed_scores().tolist()}
    wide, inverted = put(
        page,
        [
            {**base, "preset": "window", "counting": "earlier"},
            {**base, "preset": "causal", "polarity": "ignore"},
        ],
    )
    scores = fixed_scores()[:5, :5]

    # Queries and keys whose scores are the painter's: the steps of the library then make the mistake.
    def steps(mask):
        return attnlib.attention_steps(scores, np.eye(5), np.eye(5), mask, scale=1.0).weights

    with mistakes.planted("window_one_too_wide"):
        wanted = steps(masks.sliding_window_mask(5, 5, 2))
    assert wide["mistakes"] == ["window_one_too_wide"]
    assert np.abs(np.asarray(wide["weights"]) - wanted).max() <= BOUND
    # The number that the library looks at as well: the first key's weight in row 3.
    assert f"row 3 see 3 keys: it gives {wanted[2, 0]:.3f} to key 1" in wide["said"]
    with mistakes.planted("mask_inverted"):
        wanted = steps(masks.causal_mask(5, 5))
    assert inverted["mistakes"] == ["mask_inverted"]
    assert np.abs(np.asarray(inverted["weights"]) - wanted).max() <= BOUND
    assert f"row 1 gives {wanted[0, 1]:.3f} to key 2, which the mask hides" in inverted["said"]
    settle(page)
    assert result(page)["mistakes"] == []


def test_a_click_paints_and_everything_follows(page):
    right = core.softmax(np.where(np.tri(5, dtype=bool), fixed_scores()[:5, :5], -np.inf))
    assert [[float(x) for x in row] for row in numbers(page, "weights")] == np.round(right, 3).tolist()
    cell(page, 3, 4).click()
    settle(page)
    mask = np.tri(5, dtype=bool)
    mask[2, 3] = True
    weights = core.softmax(np.where(mask, fixed_scores()[:5, :5], -np.inf))
    assert result(page)["mask"] == mask.tolist() and state(page)["flips"] == [[2, 3]]
    assert [[float(x) for x in row] for row in numbers(page, "weights")] == np.round(weights, 3).tolist()
    assert numbers(page, "ignore") == [[str(not x) for x in row] for row in mask.tolist()]
    assert numbers(page, "added") == [["0" if x else "−∞" for x in row] for row in mask.tolist()]
    assert f"Query 3 now sees key 4 and gives it {weights[2, 3]:.3f}" in said(page)
    assert "Rows 1 to 5 see 1, 2, 4, 4 and 5 keys. 1 cell differs from the preset “causal”." in said(page)
    assert cell(page, 3, 4).is_checked()
    # The leak test: the arrow, its row in the table, and what a screen reader hears of the picture.
    assert page.locator(".attn-arrow.attn-late").count() == 1
    assert page.locator(".attn-arrow").count() == mask.sum()
    row = page.locator(".attn-leaks tbody tr").nth(3)
    assert row.locator("td").all_inner_texts() == ["3 4 5", "3"]
    assert "token 4 reaches outputs 3, 4 and 5" in page.locator(".attn-leak").get_attribute("aria-label")
    page.get_by_role("button", name="change 4").click()
    settle(page)
    assert "When token 4 changes, outputs 3, 4 and 5 move; output 3 stands before it." in said(page)
    assert page.locator(".attn-arrow-lit").count() == 3
    # Hidden again: what it had goes to the others, and nothing is left of the painting.
    cell(page, 3, 4).click()
    settle(page)
    assert f"Query 3 no longer sees key 4: its {weights[2, 3]:.3f} goes to the others" in said(page)
    assert state(page)["flips"] == [] and "differ" not in said(page)


def test_each_control_changes_what_it_should(page):
    press(page, "sliding window")
    assert numbers(page, "easel")[4] == ["", "", "", "✓", "✓"]
    press(page, "only earlier tokens")
    assert numbers(page, "easel")[4] == ["", "", "≠ ✓", "✓", "✓"]
    assert page.locator('[data-panel="easel"] .attn-changed').count() == 3
    page.get_by_role("slider", name="window").fill("4")
    settle(page)
    assert result(page)["code"].count("sliding_window_mask(5, 5, 5)") == 1
    press(page, "prefix")
    page.get_by_role("slider", name="prefix length").fill("3")
    settle(page)
    assert result(page)["mask"] == masks.prefix_mask(5, 5, 3).tolist()
    press(page, "padding")
    page.get_by_role("slider", name="real tokens").fill("1")
    page.get_by_label("and causal", exact=True).last.uncheck()
    settle(page)
    assert result(page)["mask"] == [[True, False, False, False, False]] * 5
    press(page, "documents")
    press(page, "token 3 starts a document")
    assert state(page)["starts"] == [3, 4] and not state(page)["alsoCausal"]
    assert result(page)["mask"] == masks.document_mask([1, 1, 2, 3, 3]).tolist()
    press(page, "everything")
    press(page, "equal scores")
    assert np.abs(np.asarray(result(page)["weights"]) - 0.2).max() <= BOUND
    assert "gives each 0.200" in said(page)
    press(page, "causal")
    # With equal lengths there is one diagonal; with others the corner matters.
    assert page.get_by_role("radio", name="bottom right").is_disabled()
    page.get_by_role("slider", name="queries").fill("2")
    press(page, "bottom right")
    assert result(page)["mask"] == masks.causal_mask(2, 5, align="bottom_right").tolist()
    assert 'causal_mask(2, 5, align="bottom_right")' in result(page)["code"]
    page.get_by_role("slider", name="keys").fill("1")
    settle(page)
    assert "Row 1 is empty: its weights are 0, decided by the mask, not NaN." in said(page)
    assert result(page)["weights"] == [[0], [1]] and state(page)["length"] == 1
    press(page, "nothing")
    assert "All 2 rows see nothing." in said(page) and "Rows 1 and 2 are empty" in said(page)
    page.get_by_role("button", name="Reset").click()
    settle(page)
    assert result(page)["mask"] == masks.causal_mask(5, 5).tolist() and not state(page)["equal"]


def test_the_wrong_polarity_is_marked(page):
    press(page, "ignore")
    assert numbers(page, "easel")[0][0] == "✓"  # what was written stays; what was read turns round
    assert numbers(page, "added")[0][0].split() == ["≠", "−∞", "instead", "of", "0"]
    assert page.locator('[data-panel="weights"] tbody td.attn-changed:not(.attn-total)').count() == 25
    assert "Rows 1 to 5 see 4, 3, 2, 1 and 0 keys. Row 5 is empty" in said(page)
    press(page, "may attend")
    assert page.locator(".attn-changed").count() == 0


def test_keys_alone(page):
    """One stop in the grid, arrows inside it, Enter and Space paint; the pair under the focus is lit."""
    grid = page.locator(".attn-easel input")
    assert grid.evaluate_all("(boxes) => boxes.filter((box) => box.tabIndex === 0).length") == 1
    page.get_by_role("radio", name="causal").focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.attn-easel input')"):
            break
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("query q")
    page.keyboard.press("Home")
    for key in ["ArrowUp"] * 5 + ["ArrowRight", "ArrowRight", "ArrowDown"]:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "query q2 may see key k3"
    for panel in ("easel", "weights", "ignore", "added"):
        lit = page.locator(f'[data-panel="{panel}"] .attn-lit')
        assert lit.count() == 3 and lit.and_(page.locator("th")).all_inner_texts() == ["k3", "q2"], panel
    assert page.locator(".attn-pointed").inner_text() == "query 2 does not see key 3, weight 0"
    for key, flips in (("Enter", [[1, 2]]), ("Space", []), ("Enter", [[1, 2]])):
        page.keyboard.press(key)
        settle(page)
        assert state(page)["flips"] == flips, key
    assert page.locator(".attn-pointed").inner_text().startswith("query 2 sees key 3, weight 0.")
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")  # the edge is an edge
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "query q2 may see key k5"
    assert grid.evaluate_all("(boxes) => boxes.filter((box) => box.tabIndex === 0).length") == 1
    page.get_by_role("radio", name="causal").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert state(page)["preset"] == "window" and state(page)["flips"] == []


def test_the_code_is_shown_and_can_be_copied(page):
    page.locator("summary", has_text="The mask as code").click()
    cell(page, 1, 2).click()
    settle(page)
    area = page.get_by_label("The mask as Python code")
    assert area.input_value() == result(page)["code"] and "[1, 1, 0, 0, 0]," in area.input_value()
    assert area.get_attribute("readonly") is not None
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('closed')); }")
    page.get_by_role("button", name="Copy code").click()
    page.locator(".attn-copied", has_text="Selected").wait_for()
    assert page.evaluate("getSelection().toString()") == result(page)["code"]
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    page.get_by_role("button", name="Copy code").click()
    page.locator(".attn-copied", has_text="Copied.").wait_for()
    assert page.evaluate("window.copied") == result(page)["code"]
    page.locator("summary", has_text="The mask as code").click()


def test_nothing_jumps_and_answers_come_in_time(page):
    """Presets, painting and switches move nothing; only another size may."""
    places = """() => [...document.querySelectorAll('.attn-easel, .attn-after, .attn-live > .attn-actions')]
        .map((e) => Math.round(e.getBoundingClientRect().top + scrollY))"""
    first = page.evaluate(places)
    for name in ("sliding window", "only earlier tokens", "ignore", "documents", "padding", "nothing"):
        press(page, name)
        assert page.evaluate(places) == first, name
    cell(page, 2, 2).click()
    page.get_by_role("button", name="change 2").click()
    settle(page)
    assert page.evaluate(places) == first
    answers_in_time(page, page.get_by_role("slider", name="keys"), [str(1 + n % 8) for n in range(24)])
    page.get_by_role("slider", name="keys").evaluate(
        """(field) => [3, 8, 6].forEach((x) => {
          field.value = x;
          field.dispatchEvent(new Event('input'));
        })"""
    )
    settle(page)
    assert state(page)["nK"] == 6 and len(result(page)["mask"][0]) == 6


def test_links(shared):
    page = shared
    visit(page, "")
    first = state(page)
    press(page, "documents")
    page.get_by_role("slider", name="queries").fill("3")
    press(page, "bottom right")
    cell(page, 1, 5).click()
    settle(page)
    wanted, mask = state(page), result(page)["mask"]
    hash_ = copied_link(page)
    visit(page, "")
    assert state(page) == first
    visit(page, hash_)
    assert state(page) == wanted and result(page)["mask"] == mask
    many = [[i, j] for i in range(5) for j in range(5)]
    refuses(
        page,
        "mask_painter",
        [
            {"nQ": 9},
            {"nK": 0},
            {"nQ": 2.5},
            {"nQ": "5"},
            {"nK": 1e308},
            {"nK": 2, "prefix": 3},
            {"nK": 1},  # the default's prefix and length do not fit one key
            {"preset": "constructor"},
            {"preset": ["causal"]},
            {"align": "<img src=x onerror=window.pwned=1>"},
            {"starts": [4, 3]},
            {"starts": [1]},
            {"starts": "4"},
            {"starts": {"length": 1, "0": 2}},
            {"flips": [[0, 5]]},
            {"flips": [[0, 0], [0, 0]]},
            {"flips": [[0]]},
            {"flips": [[0, 1, 2]]},
            {"flips": ["00"]},
            {"flips": [*many, [0, 0]]},
            {"token": 5},
            {"token": False},
            {"equal": 1},
            {"alsoCausal": "true"},
            {"polarity": None},
            {"counting": "both"},
            {"scores": [[1]]},
            {"scores": [[1e9] * 8] * 8},
            {"scores": [[None] * 8] * 8},
            {"window": 0},
            {"tokens": ["<script>window.pwned=1</script>"]},
        ],
        first,
    )
    visit(page, "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_and_small_screens(stage, scheme):
    page = stage.open(widgets.mask_painter("window"), scheme=scheme)
    page.locator("summary", has_text="The mask as code").click()
    press(page, "only earlier tokens")
    press(page, "ignore")
    cell(page, 2, 4).click()
    page.get_by_role("button", name="change 2").click()
    settle(page)
    axe_clean(page)
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        fits(page)
        if width == 390:
            axe_clean(page)
    for name in ("queries", "keys"):
        page.get_by_role("slider", name=name).fill("8")
    settle(page)
    fits(page)
    # On the narrowest page each of 64 cells can still be hit.
    sizes = page.locator(".attn-spot").evaluate_all(
        "(all) => all.map((e) => [e.getBoundingClientRect().width, e.getBoundingClientRect().height])"
    )
    assert len(sizes) == 64 and np.min(sizes) >= 24


def test_touch_paints(browser, stage):
    page = stage.open(widgets.mask_painter(), width=390)
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    stage.contexts.append(context)
    page = context.new_page()
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    page.goto(f"{stage.address}/index.html")
    page.locator(".attn-widget.attn-started").wait_for()
    cell(page, 1, 5).tap()
    settle(page)
    assert state(page)["flips"] == [[0, 4]]


def test_without_script_and_on_paper(stage):
    still_without_script(stage, widgets.mask_painter(), "causal", "window of 2", "Hatched")


@pytest.mark.parametrize("preset", PRESETS)
def test_first_states_of_python(page, preset):
    widget = widgets.mask_painter(preset, n_q=1, n_k=8)
    html = widget._repr_mimebundle_()["text/html"]
    assert 'data-widget="mask_painter"' in html and "attn-static" in html
    (got,) = put(page, [dict(widget.state)])
    assert len(got["mask"]) == 1 and len(got["mask"][0]) == 8
    assert state(page)["preset"] == "causal"


def test_what_python_refuses():
    with pytest.raises(attnlib.MaskError, match="preset is 'diagonal'"):
        widgets.mask_painter("diagonal")
    for sizes in ({"n_q": 0}, {"n_k": 9}, {"n_q": 2.5}):
        with pytest.raises(attnlib.MaskError, match="from 1 to 8"):
            widgets.mask_painter(**sizes)


def test_the_fixed_scores_have_no_two_rows_or_columns_alike():
    scores = fixed_scores()
    assert len(np.unique(scores, axis=0)) == len(np.unique(scores, axis=1)) == 8
    assert scores.min() == -2 and scores.max() == 2

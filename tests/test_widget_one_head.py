"""One head of three words: against attnlib, against the source's printed numbers, and by hand."""

import decimal

import numpy as np
import pytest
from stage import call, result, same, settle, state
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

from attnlib import core, masks, widgets
from attnlib.errors import AttnError, ShapeError
from attnlib.examples import cat_sleeps, three_tokens

pytestmark = pytest.mark.browser
STEPS = ("scores", "scaled", "masked", "weights", "output")

# What the source prints: (query, mask) → weights, output.
PRINTED = {
    ("The", "causal"): (["1", "0", "0"], "(1, −1)"),
    ("The", "bidirectional"): (["0.248", "0.248", "0.503"], "(1.13, 0)"),
    ("cat", "causal"): (["0.670", "0.330", "0"], "(0.83, −0.34)"),
    ("cat", "bidirectional"): (["0.401", "0.198", "0.401"], "(1.10, −0.20)"),
    ("sleeps", "causal"): (["0.284", "0.140", "0.576"], "(1.22, −0.14)"),
    ("sleeps", "bidirectional"): (["0.284", "0.140", "0.576"], "(1.22, −0.14)"),
}


def allowed(mask, n):
    return {
        "causal": masks.causal_mask(n, n),
        "bidirectional": np.ones((n, n), dtype=bool),
        "padding": np.broadcast_to(masks.padding_mask([n - 1], n)[0, 0], (n, n)),
    }[mask]


@pytest.fixture(scope="module")
def page(shared_stage):
    """One page for all that leave it as they found it."""
    return shared_stage.open(widgets.one_head(), arithmetic=True)


@pytest.fixture
def fresh(page):
    yield page
    page.get_by_role("button", name="Reset").click()
    settle(page)


def pick(page, name):
    page.get_by_role("radio", name=name, exact=True).check()


def story(page):
    """The table of the chosen query: the text that can be seen of each cell."""
    rows = page.locator(".attn-story tr:not(thead tr)").all()
    return [
        [cell.removesuffix("hidden").strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in rows
    ]


# --- arithmetic ---


@pytest.mark.parametrize("mask", ["causal", "bidirectional", "padding"])
def test_every_mask_on_the_example_and_on_random_ragged_inputs(page, mask):
    c = cat_sleeps()
    cases = [(c.x, c.w_q, c.w_k, c.w_v)]
    rng = np.random.default_rng(3)
    for n, d, inner, wide in ((1, 1, 1, 2), (2, 3, 1, 4), (5, 2, 4, 1), (6, 4, 3, 2)):
        cases.append((rng.normal(size=(n, d)), *(rng.normal(size=(d, w)) for w in (inner, inner, wide))))
    for x, w_q, w_k, w_v in cases:
        steps = core.attention_steps(x @ w_q, x @ w_k, x @ w_v, allowed(mask, len(x)))
        got = call(
            page,
            "(M, x, wQ, wK, wV, mask) => M.headOf({ x, wQ, wK, wV, mask })",
            x,
            w_q,
            w_k,
            w_v,
            mask,
            module="one_head",
        )
        for step in STEPS:
            same(got[step], getattr(steps, step))
        for name, w in (("query", w_q), ("key", w_k), ("value", w_v)):
            same(got[name], x @ w)
        gifts = call(page, "(M, w, v) => M.gifts(w, v)", steps.weights[0], x @ w_v, module="one_head")
        same(gifts, steps.weights[0][:, None] * (x @ w_v))


def test_a_misprint_is_found_as_decimal_arithmetic_finds_it(page):
    cent = decimal.Decimal("0.01")

    def printed(x):
        return decimal.Decimal(x).quantize(cent, rounding=decimal.ROUND_HALF_UP)

    rng = np.random.default_rng(4)
    found = 0
    for _ in range(40):
        products = rng.normal(size=(3, 2))
        total = products.sum(axis=0)
        got = call(page, "(M, p, s) => M.misprint(p, s)", products, total, module="one_head")
        off = [c for c in range(2) if sum(map(printed, products[:, c])) != printed(total[c])]
        assert (None if got is None else got["component"]) == (off[0] if off else None)
        found += bool(off)
    assert 5 < found < 35


# --- what is seen ---


def test_the_six_states_are_the_sources(fresh):
    c = cat_sleeps()
    for (token, mask), (weights, output) in PRINTED.items():
        row = c.tokens.index(token)
        pick(fresh, f"{row + 1} {token}")
        pick(fresh, mask)
        settle(fresh)
        table = story(fresh)
        assert [line[3] for line in table] == [*weights, "1"]
        assert table[3][5] == output
        steps = core.attention_steps(*c.head(1), allowed(mask, 3))
        got = result(fresh)
        for step in STEPS:
            same(got[step], getattr(steps, step))
        same(got["products"], steps.weights[row][:, None] * c.value[0])
        assert got["roundedAfter"] == ("rounded after" in fresh.locator(".attn-remark").inner_text().lower())
        words = said(fresh)
        assert output in words and f"position {row + 1}, not a next-token probability" in words
        best = max(steps.weights[row])
        for j, w in enumerate(steps.weights[row]):
            named = f"from {c.tokens[j]}" in words or f"and {c.tokens[j]}" in words or "only itself" in words
            assert named == (best - w < 1e-12) or "only itself" in words
    # the future's share is named where it is a leak
    pick(fresh, "2 cat")
    settle(fresh)
    assert "later tokens sum to 0.401" in said(fresh)


def test_cat_causal_in_full(page):
    assert story(page) == [
        ["1 The", "1", "0.707", "0.670", "(1, −1)", "(0.67, −0.67)"],
        ["2 cat", "0", "0", "0.330", "(0.5, 1)", "(0.17, 0.33)"],
        ["3 sleeps", "1", "−∞", "0", "(1.5, 0)", "(0, 0)"],
        ["sum", "", "", "1", "", "(0.83, −0.34)"],
    ]
    assert page.locator(".attn-remark").inner_text() == (
        "Rounded after summing: in component 1 the printed products add to 0.84, "
        "but the sum is 0.8349, printed as 0.83."
    )
    assert said(page) == (
        "cat takes most from The, with weight 0.670. "
        "The output (0.83, −0.34) is a vector for position 2, not a next-token probability."
    )
    rows = page.locator(".attn-vectors tbody tr").all()
    assert [row.locator("th, td").all_inner_texts() for row in rows] == [
        ["1 The", "(1, 0)", "(1, 0.5)", "(0.5, 1)", "(1, −1)"],
        ["2 cat", "(0, 1)", "(0, 1)", "(1, 0)", "(0.5, 1)"],
        ["3 sleeps", "(1, 1)", "(1, 1.5)", "(1.5, 1)", "(1.5, 0)"],
    ]
    projections = [t.split() for t in page.locator(".attn-projection tbody").all_inner_texts()]
    assert projections == [["1", "0.5", "0", "1"], ["0.5", "1", "1", "0"], ["1", "−1", "0.5", "1"]]
    # hidden is more than a colour
    hidden = page.locator(".attn-story td.attn-hidden")
    assert hidden.count() == 2 and all("hidden" in text for text in hidden.all_text_contents())
    assert "repeating-linear-gradient" in hidden.first.evaluate("(e) => getComputedStyle(e).backgroundImage")


def test_padding_hides_the_last_token_from_all(fresh):
    pick(fresh, "last token is padding")
    settle(fresh)
    assert story(fresh)[2][2:4] == ["−∞", "0"] and "The padding, sleeps, gets weight 0." in said(fresh)
    pick(fresh, "3 sleeps")
    settle(fresh)
    assert story(fresh)[2][2:4] == ["−∞", "0"] and "padding itself" in said(fresh)


def test_x_can_be_changed_and_a_bad_entry_changes_nothing(fresh):
    field = fresh.get_by_label("x of token 1, component 2")
    message = fresh.locator(".attn-given + .attn-message")
    c = cat_sleeps()
    for text, number in (("2", 2), ("-1.5", -1.5), ("−0,25", -0.25), ("1000", 1000)):
        field.fill(text)
        settle(fresh)
        x = c.x.copy()
        x[0, 1] = number
        steps = core.attention_steps(x @ c.w_q, x @ c.w_k, x @ c.w_v, is_causal=True)
        same(result(fresh)["output"], steps.output)
        assert message.inner_text() == ""
    before = story(fresh), said(fresh), result(fresh)
    for text, words in (
        ("", "is empty"),
        ("cat", "wanted a number"),
        ("1e9", "from −1000 to 1000"),
        ("NaN", "wanted"),
    ):
        field.fill(text)
        settle(fresh)
        assert words in message.inner_text() and "x of token 1, component 2" in message.inner_text()
        assert field.get_attribute("aria-invalid") == "true"
        assert field.get_attribute("aria-describedby") == message.get_attribute("id")
        assert (story(fresh), said(fresh), result(fresh)) == before
    field.fill("1")
    settle(fresh)
    assert field.get_attribute("aria-invalid") == "false" and message.inner_text() == ""


def test_tokens_can_be_changed_and_stay_literal(fresh):
    field = fresh.get_by_label("Text of token 2")
    for text in ("<img/onerror=pwned=1>", "&amp;", "\u202egnol", "</script>", "حرف"):
        field.fill(text)
        settle(fresh)
        assert story(fresh)[1][0] == f"2 {text}" and state(fresh)["tokens"][1] == text
        assert fresh.locator(".attn-vectors tbody th").nth(1).text_content() == f"2 {text}"
        assert fresh.locator(".attn-choice label").nth(1).text_content() == f"2 {text}"
        assert f"\u2068{text}\u2069 takes most from" in fresh.locator(".attn-sentence").text_content()
    assert fresh.locator(".attn-live img").count() == 0 and fresh.evaluate("window.pwned") is None
    field.fill("a b")
    settle(fresh)
    assert story(fresh)[1][0] == "2 a␣b"
    for text, words in (("", "is empty"), ("x" * 25, "more than 24")):
        field.fill(text)
        settle(fresh)
        assert words in fresh.locator(".attn-given + .attn-message").inner_text()
        assert state(fresh)["tokens"][1] == "a b" and story(fresh)[1][0] == "2 a␣b"


def test_by_keyboard_alone(fresh):
    fresh.locator("h1").click()
    fresh.keyboard.press("Tab")
    assert fresh.evaluate("document.activeElement.type") == "radio"
    fresh.keyboard.press("ArrowDown")
    settle(fresh)
    assert state(fresh)["row"] == 2
    fresh.keyboard.press("Tab")
    fresh.keyboard.press("ArrowRight")
    settle(fresh)
    assert state(fresh)["mask"] == "bidirectional"
    for _ in range(2):
        fresh.keyboard.press("Tab")
    fresh.keyboard.type("9")  # into x of token 1, whose text is selected by Tab
    settle(fresh)
    assert state(fresh)["x"][0][0] == 9
    for _ in range(15):
        fresh.keyboard.press("Tab")
        if fresh.evaluate("document.activeElement.matches('.attn-story th')"):
            break
    pointed = fresh.locator(".attn-pointed")
    assert "asks key 1 The: 1 × 4.5 + 1.5 × 9 = 18" in pointed.inner_text()
    fresh.keyboard.press("ArrowDown")
    fresh.keyboard.press("ArrowDown")
    assert pointed.inner_text() == "Query 3 sleeps asks key 3 sleeps: 1 × 1.5 + 1.5 × 1 = 3"
    lit = fresh.locator(".attn-vectors td.attn-lit")
    assert lit.all_inner_texts() == ["(1, 1.5)", "(1.5, 1)", "(1.5, 0)"]
    fresh.keyboard.press("ArrowUp")
    assert "key 2 cat" in pointed.inner_text()
    fresh.locator("h1").click()
    assert lit.count() == 0


def test_pointing_names_the_two_that_meet(page):
    page.locator(".attn-story tbody tr").nth(0).hover()
    assert page.locator(".attn-pointed").inner_text() == "Query 2 cat asks key 1 The: 0 × 0.5 + 1 × 1 = 1"
    lit = page.locator(".attn-vectors td.attn-lit").all_inner_texts()  # from the top: rows 1, 1, 2
    assert lit == ["(0.5, 1)", "(1, −1)", "(0, 1)"]
    page.locator("h1").hover()


def test_reset_link_and_hostile_links(stage):
    page = stage.open(widgets.one_head())
    first, words = state(page), said(page)
    page.get_by_label("Text of token 3").fill("日本 \u2066x")
    page.get_by_label("x of token 3, component 1").fill("0.125")
    pick(page, "1 The")
    pick(page, "bidirectional")
    settle(page)
    changed, sentence = state(page), said(page)
    assert changed != first and sentence != words
    hash_ = copied_link(page)
    page.get_by_label("x of token 1, component 1").fill("no")
    page.get_by_role("button", name="Reset").click()
    settle(page)
    assert state(page) == first and said(page) == words
    assert page.get_by_label("x of token 1, component 1").input_value() == "1"
    assert page.locator("[aria-invalid=true]").count() == 0
    visit(page, hash_)
    assert state(page) == changed and said(page) == sentence
    visit(page, "")
    assert state(page) == first
    x, tokens = first["x"], first["tokens"]
    refuses(
        page,
        "one_head",
        [
            {"row": 3},
            {"row": -1},
            {"row": 0.5},
            {"row": "1"},
            {"row": None},
            {"mask": "toString"},
            {"mask": ["causal"]},
            {"x": [[1e300, 0], [0, 1], [1, 1]]},
            {"x": [[None, 0], [0, 1], [1, 1]]},
            {"x": [["1", 0], [0, 1], [1, 1]]},
            {"x": x[:2], "tokens": tokens[:2]},
            {"x": [[0] * 2] * 7, "tokens": ["a"] * 7},
            {"x": [[0] * 2000] * 3},
            {"x": {"length": 3}},
            {"wQ": [[1, 0]]},
            {"wV": [[[1]]]},
            {"tokens": "abc"},
            {"tokens": ["<script>window.pwned = 1</script>", "b", "c"]},
            {"tokens": [["a"], "b", "c"]},
        ],
        first,
    )


def test_python_sets_and_reads(fresh):
    set_ = "(x) => { const m = document.querySelector('.attn-widget').model; m.set('state', x); }"
    first = state(fresh)
    fresh.evaluate(set_, {**first, "row": 0, "mask": "bidirectional"})
    settle(fresh)
    assert story(fresh)[3][5] == "(1.13, 0)"
    fresh.evaluate(set_, {**first, "row": 7})
    settle(fresh)
    assert "last valid one stays" in fresh.locator(".attn-actions + .attn-message").inner_text()
    assert story(fresh)[3][5] == "(1.13, 0)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(stage, scheme):
    page = stage.open(widgets.one_head(mask="bidirectional"), scheme=scheme)
    for width in (900, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        fits(page)
        if width > 320:
            axe_clean(page)
        heights = set()
        for mask in ("causal", "bidirectional", "last token is padding"):
            for row in ("1 The", "2 cat", "3 sleeps"):
                pick(page, mask)
                pick(page, row)
                settle(page)
                heights.add(page.locator(".attn-live").evaluate("(e) => e.offsetHeight"))
        assert len(heights) == 1  # nothing jumps


def test_without_script_and_on_paper(stage):
    still_without_script(stage, widgets.one_head(), "0.670", "-inf", "cat asks, causal")


def test_in_time(fresh):
    texts = [str(n / 7) for n in range(30)]
    answers_in_time(fresh, fresh.get_by_label("x of token 1, component 1"), texts)
    settle(fresh)
    assert state(fresh)["x"][0][0] == 29 / 7


def test_what_the_figure_cannot_show_is_refused():
    with pytest.raises(ShapeError, match="2 heads, 3 tokens"):
        widgets.one_head(three_tokens())
    for wrong in ({"row": 3}, {"row": -1}, {"mask": "diagonal"}):
        with pytest.raises(AttnError, match="wanted (a whole number from 0 to 2|one of causal)"):
            widgets.one_head(**wrong)

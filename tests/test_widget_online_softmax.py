"""Online softmax in the browser against attnlib.online: every state, every order, every wrong factor."""

import itertools

import numpy as np
import pytest
from stage import call, result, same, settle, state
from widget_checks import answers_in_time, axe_clean, copied_link, fits, refuses, said, still_without_script

from attnlib import core, online, widgets
from attnlib.errors import AttnError
from attnlib.examples import cat_sleeps, three_tokens
from attnlib.tiled_mistakes import MISTAKES, planted

pytestmark = pytest.mark.browser

FACTORS = {
    "right": "e^(m_old − m)",
    "wrong_sign": "e^(m − m_old)",
    "no_rescale": "1, nothing rescaled",
    "block_max": "e^(m_old − m), m of the block alone",
}
MISTAKEN = {"wrong_sign": "wrong_sign", "no_rescale": "no_rescale", "block_max": "max_reset"}
READ = "(A, x, v, o) => A.readInBlocks(x, v, o)"


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(widgets.online_softmax(), arithmetic=True)


@pytest.fixture
def page(one):
    one.get_by_role("button", name="Reset").click()
    settle(one)
    return one


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    settle(page)


def check(page, group, label):
    page.get_by_role("group", name=group).get_by_label(label, exact=True).check()
    settle(page)


def given():
    query, key, value = three_tokens().head(1)
    return core.attention_steps(query, key, value).scaled[2], value


def states(scores, value, order, block, hidden):
    """The library's states after each block, from the start."""
    allowed = ~np.array(hidden, dtype=bool)
    now = online.start((1,), value.shape[1], like=value)
    yield now
    for at in range(0, len(order), block):
        keys = list(order[at : at + block])
        now = online.update(now, scores[None, keys], value[keys], allowed[None, keys])
        yield now


def agree(got, wanted):
    """One state of arith.js is the library's."""
    same(got["max"], wanted.row_max[0])
    same(got["sum"], wanted.row_sum[0])
    same(got["out"], wanted.accumulator[0])
    output, lse = online.finish(wanted)
    same(got["output"], output[0])
    same(got["lse"], lse[0])
    assert got["seen"] == bool(wanted.seen[0])


@pytest.mark.parametrize("hidden", list(itertools.product([False, True], repeat=3)))
def test_every_order_block_and_mask(one, hidden):
    rng = np.random.default_rng(5)
    rows = [given()[0], rng.normal(size=3) * 5, np.array([1000.0, -1000, 999.5])]
    for (n, scores), order in itertools.product(enumerate(rows), itertools.permutations(range(3))):
        block, value = 1 + n, rng.normal(size=(3, 2 + n))
        got = call(one, READ, scores, value, {"order": order, "block": block, "hidden": hidden})
        wanted = list(states(scores, value, order, block, hidden))
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            agree(a, b)
        same(np.sum(got[-1]["shares"]), got[-1]["sum"])
        # The end is the row's attention, whatever came first.
        allowed = ~np.array([hidden])
        weights = core.softmax(np.where(allowed, scores, -np.inf), allowed)
        same(got[-1]["output"], (weights @ value)[0])


@pytest.mark.parametrize("n", [1, 2, 7])
def test_ragged_blocks(one, n):
    rng = np.random.default_rng(n)
    scores, value, order = rng.normal(size=n) * 9, rng.normal(size=(n, 3)), rng.permutation(n).tolist()
    for block in (1, 2, 3, 9):
        got = call(one, READ, scores, value, {"order": order, "block": block})
        for a, b in zip(got, states(scores, value, order, block, [False] * n), strict=True):
            agree(a, b)


@pytest.mark.parametrize("rule", ["wrong_sign", "no_rescale", "block_max"])
def test_wrong_factors_are_the_librarys_mistakes(one, rule):
    rng = np.random.default_rng(6)
    for hidden in itertools.product([False, True], repeat=4):
        scores, value = rng.normal(size=4) * 3, rng.normal(size=(4, 2))
        options = {"order": rng.permutation(4).tolist(), "block": 1 + sum(hidden) % 2, "hidden": hidden}
        got = call(one, READ, scores, value, {**options, "rule": rule})
        with planted(MISTAKES[MISTAKEN[rule]]), np.errstate(invalid="ignore"):
            wanted = list(states(scores, value, **options))
        for a, b in zip(got, wanted, strict=True):
            same(a["max"], b.row_max[0])
            same(a["sum"], b.row_sum[0])
            same(a["out"], b.accumulator[0])


def cells(page):
    """The trace as it stands in the table, line by line."""
    return page.eval_on_selector_all(
        ".attn-trace tbody tr",
        "all => all.map(r => [...r.querySelectorAll('td:not([hidden])')].map(d => d.textContent))",
    )


def test_the_worked_row_step_by_step(page):
    assert said(page).startswith("Nothing is read yet") and cells(page)[1] == ["−∞", "", "", "", ""]
    assert result(page)["output"] is None
    press(page, "Step →")
    assert said(page).startswith("we comes first: m = 1")
    press(page, "Step →")
    assert "nothing above m = 1" in said(page) and "0.3679 is added to ℓ, which is 1.3679" in said(page)
    press(page, "Step →")
    assert cells(page) == [
        ["", "1", "0", "3", ""],
        ["−∞", "1", "1", "3", ""],
        ["", "0", "1", "0.1353", ""],
        ["0", "1", "1.3679", "1.1851", ""],
        ["0", "1", "1", "0.1353", "0.1142"],
        ["0", "0", "0.3679", "0.0498", "0.0420"],
        ["0", "0", "0", "1", "0.8438"],
        ["0", "1", "1.3679", "1.1851", "1"],
    ]
    assert "multiplied by e^(1 − 3) = 0.1353" in said(page)
    assert "o / ℓ = [0.1142, 0.0420, 0.8438, 1], lse = 3.1698" in said(page)
    scores, value = given()
    wanted = list(states(scores, value, range(3), 1, [False] * 3))
    for got, one_state in zip(result(page)["steps"], wanted, strict=True):
        same(float(got["max"]), one_state.row_max[0])
        same(got["sum"], one_state.row_sum[0])
        same(got["out"], one_state.accumulator[0])
    output, lse = online.finish(wanted[-1])
    same(result(page)["output"], output[0])
    same(result(page)["lse"], lse[0])
    assert page.locator(".attn-changed").count() == 0 and result(page)["mistakes"] == []
    # At the end the button says that it does nothing, but keeps the focus.
    page.get_by_role("button", name="Step →").click(force=True)
    settle(page)
    assert state(page)["at"] == 3
    press(page, "← Step back")
    assert state(page)["at"] == 2 and cells(page)[3] == ["0", "1", "1.3679", "", ""]
    press(page, "Rewind")
    assert state(page)["at"] == 0
    press(page, "To the end")
    assert state(page)["at"] == 3


def test_bars_shrink_when_a_larger_score_comes(page):
    press(page, "To the end")
    label = page.locator(".attn-live svg").get_attribute("aria-label")
    assert label == "What each key counts for in ℓ: 1 we 0.1353, 2 like 0.0498, 3 tea 1."
    press(page, "← Step back")
    label = page.locator(".attn-live svg").get_attribute("aria-label")
    assert label == "What each key counts for in ℓ: 1 we 1, 2 like 0.3679, 3 tea not read yet."


def test_orders_and_blocks(page):
    press(page, "To the end")
    right = result(page)["output"]
    check(page, "order", "3 1 2")
    same(result(page)["output"], right)
    assert cells(page)[2] == ["", "0", "1", "1", ""]
    check(page, "keys at a time", "2")
    assert state(page)["at"] == 2 and len(cells(page)[1]) == 4
    same(result(page)["output"], right)
    heads = page.locator(".attn-trace thead th:not([hidden])").all_inner_texts()
    assert [head.split() for head in heads[1:3]] == [["3", "tea", "1", "we"], ["2", "like"]]
    check(page, "keys at a time", "3")
    assert state(page)["at"] == 1
    same(result(page)["lse"], online.finish(list(states(*given(), range(3), 3, [False] * 3))[-1])[1][0])


def test_hidden_keys(page):
    press(page, "To the end")
    page.get_by_label("hidden: key 3 tea").check()
    settle(page)
    assert "tea is hidden" in said(page) and cells(page)[0][3] == "−∞"
    same(result(page)["output"], [*core.softmax(np.array([[1.0, 0.0]]))[0], 0, 1])
    for token in ("1 we", "2 like"):
        page.get_by_label(f"hidden: key {token}").check()
    settle(page)
    assert "the output is 0 and lse = −∞" in said(page)
    assert result(page)["output"] == [0] * 4 and result(page)["lse"] == "-inf"
    assert page.get_by_label("scores, 1 we, score", exact=True).is_disabled()
    for rule in FACTORS:
        check(page, "factor", FACTORS[rule])
        assert result(page)["output"] == [0] * 4 and page.locator(".attn-changed").count() == 0


@pytest.mark.parametrize("rule", ["wrong_sign", "no_rescale"])
def test_a_wrong_factor_is_marked_and_named(page, rule):
    press(page, "To the end")
    check(page, "factor", FACTORS[rule])
    scores, value = given()
    right = online.finish(list(states(scores, value, range(3), 1, [False] * 3))[-1])[0][0]
    with planted(MISTAKES[MISTAKEN[rule]]):
        output, lse = online.finish(list(states(scores, value, range(3), 1, [False] * 3))[-1])
    got = result(page)
    same(got["output"], output[0])
    same(got["lse"], lse[0])
    same(got["right"]["output"], right)
    assert got["mistakes"] == [MISTAKEN[rule]]
    assert f"tea has {output[0][2]:.4f} of ℓ instead of {right[2]:.4f}" in said(page)
    assert cells(page)[6][4] == f"≠ {output[0][2]:.4f} instead of {right[2]:.4f}"
    press(page, "← Step back")
    assert said(page).startswith("No result has changed") and page.locator(".attn-changed").count() == 0


def test_the_maximum_of_the_block_alone(page):
    check(page, "factor", FACTORS["block_max"])
    press(page, "Step →")
    press(page, "Step →")
    assert "m fell to 0 and the factor rose to 2.7183, yet o / ℓ is right" in said(page)
    press(page, "To the end")
    same(result(page)["output"], result(page)["right"]["output"])
    press(page, "the first is 1000")
    assert "overflowed earlier" in said(page) and "ℓ is ∞ instead of 1" in said(page)
    press(page, "← Step back")
    assert "e^(1000 − 0) overflows: ℓ is ∞ instead of 1" in said(page)
    press(page, "row as given")
    page.get_by_label("hidden: key 2 like").check()
    settle(page)
    assert "its maximum is −∞: lse is −∞ instead of 1" in said(page)
    press(page, "To the end")
    assert "tea has 1 of ℓ instead of 0.8808" in said(page)


def test_scores_can_be_changed_and_bad_ones_change_nothing(page):
    press(page, "To the end")
    field = page.get_by_label("scores, 2 like, score", exact=True)
    field.fill("−2,5")
    settle(page)
    assert state(page)["scores"] == [1, -2.5, 3]
    wanted = list(states(np.array([1, -2.5, 3]), given()[1], range(3), 1, [False] * 3))[-1]
    same(result(page)["output"], online.finish(wanted)[0][0])
    before = cells(page)
    for bad in ("", "abc", "1e9", "NaN"):
        field.fill(bad)
        settle(page)
        assert field.get_attribute("aria-invalid") == "true" and cells(page) == before
        assert "scores, 2 like, score" in page.locator(".attn-editor .attn-message").inner_text()
    press(page, "all equal")
    assert page.locator(".attn-editor .attn-message").inner_text() == ""
    assert state(page)["scores"] == [1, 1, 1] and field.input_value() == "1"
    assert cells(page)[2] == ["", "0", "1", "1", ""]


def test_keyboard_alone(page):
    page.get_by_role("button", name="Step →").focus()
    for _ in range(4):
        page.keyboard.press("Enter")
        settle(page)
    assert state(page)["at"] == 3
    assert page.evaluate("document.activeElement.textContent") == "Step →"
    page.get_by_label("1 2 3").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert state(page)["order"] == [0, 2, 1]


def test_nothing_jumps_and_answers_come_in_time(page):
    def places():
        parts = [".attn-online-steps", ".attn-online-set", ".attn-actions"]
        return page.evaluate(
            "(parts) => parts.map((p) => Math.round(document.querySelector('.attn-live ' + p).offsetTop))",
            parts,
        )

    before = places()
    for name in ("Step →", "Step →", "Step →", "the first is 1000", "row as given"):
        press(page, name)
        assert places() == before, name
    for label in FACTORS.values():
        check(page, "factor", label)
        assert places() == before, label
    answers_in_time(page, page.get_by_label("scores, 1 we, score", exact=True), ["-10", "10"] * 6)


def test_links(page, shared_stage):
    first = state(page)
    check(page, "order", "2 3 1")
    check(page, "keys at a time", "2")
    check(page, "factor", FACTORS["no_rescale"])
    press(page, "To the end")
    here, words = state(page), said(page)
    again = shared_stage.open(widgets.online_softmax(), link=copied_link(page))
    assert state(again) == here and said(again) == words
    wrong_values = {
        "scores": [99, [1, 2], [1, 2, 1e4], [1, 2, "3"], {"length": 3}],
        "values": [[], [[]], [[1]] * 3, [[1] * 9] * 3, "abc", [[1, 2, 3, None]] * 3],
        "tokens": ["abc", [1, 2, 3], ["a", "b"], ["a" * 25, "b", "c"], {"length": 3}],
        "hidden": [True, [0, 1, 0], [True]],
        "order": [[0, 0, 1], [0, 1], [0, 1, 3], ["0", "1", "2"], "012"],
        "block": [0, 4, 1.5, "1"],
        "at": [-1, 4, None, 0.5],
        "rule": ["none", "__proto__", ["right"]],
        "extra": [1],
    }
    hostile = [{key: bad} for key, all_bad in wrong_values.items() for bad in all_bad]
    refuses(again, "online_softmax", [*hostile, {"block": 3, "at": 2}], first)
    again.close()


def test_tokens_are_literal_and_another_example(shared_stage):
    odd = ("<b>x</b>", "</script>\"'&", " \n")
    page = shared_stage.open(widgets.online_softmax(example=three_tokens()._replace(tokens=odd), at=3))
    assert page.locator(".attn-live b").count() == 0
    heads = page.locator(".attn-trace thead bdi").all_inner_texts()
    assert heads == ["1 <b>x</b>", "2 </script>\"'&", "3 ␣⏎"]
    page.close()
    page = shared_stage.open(widgets.online_softmax(example=cat_sleeps(), row=1, at=3))
    query, key, value = cat_sleeps().head(1)
    steps = core.attention_steps(query, key, value)
    same(result(page)["output"], steps.output[1])
    same(result(page)["lse"], steps.lse[1])
    page.close()


def test_looks(shared_stage):
    for width, scheme in ((900, "light"), (390, "dark"), (390, "light"), (900, "dark"), (320, "light")):
        page = shared_stage.open(widgets.online_softmax(), width=width, scheme=scheme)
        page.get_by_label("hidden: key 2 like").check()
        press(page, "To the end")
        check(page, "factor", FACTORS["wrong_sign"])
        fits(page)
        if width != 320:
            axe_clean(page)
        page.close()


def test_without_script_and_on_paper(shared_stage):
    words = ("0.1353", "1.3679", "1.1851", "0.8438", "3.1698")
    still_without_script(shared_stage, widgets.online_softmax(), *words)


def test_arguments_are_checked():
    with pytest.raises(AttnError, match="row is 3"):
        widgets.online_softmax(row=3)
    with pytest.raises(AttnError, match="at is 4"):
        widgets.online_softmax(at=4)
    with pytest.raises(AttnError, match="4 tokens"):
        widgets.online_softmax(example=three_tokens()._replace(tokens=tuple("abcd")))

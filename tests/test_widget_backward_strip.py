"""The backward strip in the browser against attnlib's own backward and torch's autograd."""

import numpy as np
import pytest
import torch
from stage import call, result, same, settle, state
from widget_checks import answers_in_time, axe_clean, copied_link, fits, refuses, said, still_without_script

from attnlib import core, tiled, widgets
from attnlib.errors import AttnError
from attnlib.examples import all_sizes_differ, cat_sleeps, three_tokens
from attnlib.tiled_mistakes import MISTAKES, planted

pytestmark = pytest.mark.browser

STEPS = """(A, q, k, v, g, allowed, set) =>
  A.backwardSteps(A.headSteps(q, k, v, { allowed }), g, set)"""
# The page's switches: group, label, state, and the library's mistake (None: the library has no such one).
SWITCHES = [
    ("D", "missing", {"delta": "missing"}, "missing_delta"),
    ("D", "rowsum(dP)", {"delta": "unweighted"}, None),
    ("scale in dQ, dK", "missing", {"scale": "missing"}, "gradient_not_scaled"),
    ("dK, dV", "dS Q, P dO", {"keys": "untransposed"}, "tile_not_transposed"),
]


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(widgets.backward_strip(), arithmetic=True)


@pytest.fixture
def page(one):
    one.get_by_role("button", name="Reset").click()
    settle(one)
    return one


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    settle(page)


def check(page, group, label):
    page.get_by_role("group", name=group, exact=True).get_by_label(label, exact=True).check()
    settle(page)


def gradients(q, k, v, grad, allowed):
    """dQ, dK, dV of the library, in one tile."""
    output, lse = tiled.flash_attention(q, k, v, allowed, return_lse=True)
    return tiled.flash_attention_backward(q, k, v, output, lse, grad, allowed)


def agree(got, wanted):
    for name, gradient in (("dQuery", "query"), ("dKey", "key"), ("dValue", "value")):
        same(got[name], getattr(wanted, gradient))


def first_gradient():
    grad = np.zeros((3, 4))
    grad[2, 0] = 1
    return grad


@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (3, 3), (2, 5), (5, 2), (4, 4)])
def test_random_inputs_are_the_librarys_and_autograds(one, n_q, n_k):
    rng = np.random.default_rng(10 * n_q + n_k)
    q, k, v = rng.normal(size=(n_q, 3)), rng.normal(size=(n_k, 3)), rng.normal(size=(n_k, 5))
    grad, allowed = rng.normal(size=(n_q, 5)), rng.random((n_q, n_k)) < 0.7
    allowed[0] = n_q == 1  # an empty row, unless it is the only one
    got = call(one, STEPS, q, k, v, grad, allowed, {})
    agree(got, gradients(q, k, v, grad, allowed))
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    steps = core.attention_steps(*tensors, torch.tensor(allowed))
    steps.output.backward(torch.tensor(grad))
    for name, tensor in zip(("dQuery", "dKey", "dValue"), tensors, strict=True):
        same(got[name], tensor.grad)
    # The same from the scaled scores on, so that their gradient can be read.
    scaled, seen = steps.scaled.detach().requires_grad_(), torch.tensor(allowed)
    weights = core.softmax(torch.where(seen, scaled, -torch.inf), seen)
    (weights @ tensors[2].detach()).backward(torch.tensor(grad))
    same(got["dScores"], scaled.grad)
    same(got["dWeights"], grad @ v.T)
    same(got["delta"], (grad * steps.output.detach().numpy()).sum(axis=1))
    same(np.sum(got["dScores"], axis=1), np.zeros(n_q))


def test_all_sizes_differ(one):
    r = all_sizes_differ()
    q, k, v = r.query[1, 2], r.key[1, 2], r.value[1, 2]
    grad = np.random.default_rng(1).normal(size=(q.shape[0], v.shape[1]))
    allowed = np.ones((len(q), len(k)), dtype=bool)
    agree(call(one, STEPS, q, k, v, grad, allowed, {}), gradients(q, k, v, grad, allowed))


@pytest.mark.parametrize(("setting", "mistake"), [(s, m) for _, _, s, m in SWITCHES if m])
def test_wrong_settings_are_the_librarys_mistakes(one, setting, mistake):
    rng = np.random.default_rng(4)
    q, k, v, grad = (rng.normal(size=(4, 3)) for _ in range(4))
    allowed = np.tri(4, dtype=bool)
    with planted(MISTAKES[mistake]):
        wanted = gradients(q, k, v, grad, allowed)
    agree(call(one, STEPS, q, k, v, grad, allowed, setting), wanted)
    (name, option), *_ = setting.items()
    assert call(one, "(A) => A.BACKWARD")[name][option] == mistake


def test_the_unweighted_sum(one):
    rng = np.random.default_rng(4)
    q, k, v, grad = (rng.normal(size=(4, 3)) for _ in range(4))
    allowed = np.tri(4, dtype=bool)
    got = call(one, STEPS, q, k, v, grad, allowed, {"delta": "unweighted"})
    d_weights = grad @ v.T
    weights = core.attention_steps(q, k, v, allowed).weights
    same(got["delta"], d_weights.sum(axis=1))
    same(got["dScores"], weights * (d_weights - d_weights.sum(axis=1, keepdims=True)))


def cells(page, panel):
    """The numbers of one panel as they stand in its cells, the column at the right included."""
    return page.eval_on_selector_all(
        f"[data-panel={panel}] tbody tr",
        "all => all.map(r => [...r.querySelectorAll('td .attn-value')].map(d => d.textContent))",
    )


def test_first_picture_is_the_worked_example(page):
    assert cells(page, "scaled") == [["1.500", "−∞", "−∞"], ["3", "1.500", "−∞"], ["1", "0", "3"]]
    assert cells(page, "weights")[2] == ["0.114", "0.042", "0.844"]
    assert cells(page, "output")[2] == ["0.114", "0.042", "0.844", "1"]
    assert cells(page, "gradient")[2] == ["1", "0", "0", "0"]
    assert cells(page, "dWeights")[2] == ["1", "0", "0", "0.114"]
    assert cells(page, "dScores")[2] == ["0.101", "−0.005", "−0.096", "0"]
    assert cells(page, "dQuery") == [["0"] * 4, ["0"] * 4, ["0.149", "−0.046", "0.099", "−0.046"]]
    assert cells(page, "dKey") == [
        ["−0.051", "0.051", "0.051", "0.101"],
        ["0.002", "−0.002", "−0.002", "−0.005"],
        ["0.048", "−0.048", "−0.048", "−0.096"],
    ]
    assert [line[0] for line in cells(page, "dValue")] == ["0.114", "0.042", "0.844"]
    got = result(page)
    agree(got, gradients(*three_tokens().head(1), first_gradient(), np.tri(3, dtype=bool)))
    same(np.round(got["dQuery"][2], 4), [0.1493, -0.0458, 0.0988, -0.0458])
    same(np.round(got["dScores"][2], 4), [0.1012, -0.0048, -0.0964])
    assert np.round(got["delta"][2], 4) == 0.1142
    assert "D = 0.114 is the mean of dP" in said(page) and "−0.096 for tea; its sum is 0" in said(page)
    assert got["mistakes"] == [] and page.locator(".attn-changed").count() == 0


def test_every_wrong_switch_is_marked_and_named(page):
    q, k, v = three_tokens().head(1)
    right = gradients(q, k, v, first_gradient(), np.tri(3, dtype=bool))
    words = [
        "Without D row 3 of dS sums to 0.114 instead of 0",
        "With rowsum(dP) = 1 for D = 0.114 row 3 of dS sums to −0.886 instead of 0",
        f"dQ of tea has {2 * right.query[2, 0]:.3f} instead of {right.query[2, 0]:.3f} in component 1",
        f"dK of we has 0 instead of {right.key[0, 3]:.3f} in component 4",
    ]
    for (group, label, setting, mistake), wanted in zip(SWITCHES, words, strict=True):
        check(page, group, label)
        got = result(page)
        assert got["mistakes"] == [mistake or "delta_unweighted"]
        assert wanted in said(page)
        assert page.locator(".attn-changed").count() > 0
        assert setting.items() <= state(page).items()
        if mistake:
            with planted(MISTAKES[mistake]):
                agree(got, gradients(q, k, v, first_gradient(), np.tri(3, dtype=bool)))
        same(got["rowSums"], np.sum(got["dScores"], axis=1))
        press(page, "Reset")
        assert page.locator(".attn-changed").count() == 0
    check(page, "D", "missing")
    check(page, "scale in dQ, dK", "missing")
    assert "Without D" in said(page) and "dQ of tea has" in said(page)
    assert result(page)["mistakes"] == ["missing_delta", "gradient_not_scaled"]
    # The right number stands below the wrong one.
    assert (
        page.locator("[data-panel=dWeights] tr:nth-child(3) td.attn-total small")
        .inner_text()
        .endswith("0.114")
    )


def test_heads_masks_and_presets(page):
    press(page, "all ones")
    check(page, "head", "2")
    check(page, "mask", "none")
    got = result(page)
    agree(got, gradients(*three_tokens().head(2), np.ones((3, 4)), np.ones((3, 3), dtype=bool)))
    assert page.locator(".attn-hidden").count() == 0
    check(page, "mask", "causal")
    assert page.locator(".attn-hidden").count() == 4 * 3
    press(page, "2 like only")
    grad = np.zeros((3, 4))
    grad[1] = 1
    assert state(page)["row"] == 1
    agree(result(page), gradients(*three_tokens().head(2), grad, np.tri(3, dtype=bool)))
    press(page, "3 tea, component 1")
    assert state(page)["gradient"] == first_gradient().tolist() and state(page)["row"] == 2


def test_rows_that_have_no_gradient_say_why(page):
    check(page, "query row", "1 we")
    assert said(page).startswith("Nothing arrives at row 1")
    press(page, "all ones")
    assert "Row 1 sees one key, so P is 1" in said(page)
    same(result(page)["dScores"][0], [0, 0, 0])
    # All values of head 1 sum to 2: every key would serve equally well.
    check(page, "query row", "3 tea")
    assert "so dS is 0" in said(page)
    check(page, "D", "missing")
    assert "sums to 2 instead of 0" in said(page)
    press(page, "Reset")
    check(page, "query row", "1 we")
    check(page, "D", "missing")
    assert "D is 0 either way" in said(page)


def test_numbers_can_be_changed_and_bad_ones_change_nothing(page):
    page.get_by_text("Change dO").click()
    field = page.get_by_label("dO, 2 like, 3", exact=True)
    field.fill("−1,5")
    settle(page)
    grad = first_gradient()
    grad[1, 2] = -1.5
    agree(result(page), gradients(*three_tokens().head(1), grad, np.tri(3, dtype=bool)))
    before = result(page)
    for bad in ("", "x<b>", "1e9", "NaN"):
        field.fill(bad)
        settle(page)
        assert field.get_attribute("aria-invalid") == "true" and result(page) == before
        assert "dO, 2 like, 3" in page.locator(".attn-editor .attn-message").inner_text()
    press(page, "all ones")
    assert field.input_value() == "1" and page.locator(".attn-editor .attn-message").inner_text() == ""
    answers_in_time(page, field, ["-10", "10"] * 6)
    page.get_by_text("Change dO").click()


def test_keyboard_and_clicks(page):
    cell = page.locator("[data-panel=dScores] tbody td").first
    cell.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator(".attn-pointed").inner_text() == "query 2 like, key 2 like"
    # The same cell is lit in S, P, dP and dS.
    assert page.locator("td.attn-lit").count() == 4
    page.keyboard.press("Enter")
    settle(page)
    assert state(page)["row"] == 1
    page.locator("[data-panel=gradient] tbody td").first.click()
    settle(page)
    assert state(page)["row"] == 0
    page.locator("[data-panel=dKey] tbody tr:nth-child(3) td").first.click()
    settle(page)
    assert state(page)["row"] == 0  # a row of dK belongs to a key


def test_the_work_is_read_from_dO_to_dQ(page):
    order = page.eval_on_selector_all("[data-panel]", "all => all.map(p => p.dataset.panel)")
    assert order[6:9] == ["gradient", "dWeights", "dScores"]
    left = [page.locator(f"[data-panel={p}]").bounding_box()["x"] for p in order]
    assert left[:3] == left[3:6] == left[6:9][::-1] == left[9:]
    up = [page.locator(f"[data-panel={p}]").bounding_box()["y"] for p in order]
    assert len(set(up)) == 4


def test_nothing_jumps(page):
    def places():
        return page.evaluate(
            """() => [...document.querySelectorAll('.attn-live :is([data-panel], .attn-actions)')]
            .map((part) => [Math.round(part.offsetTop), Math.round(part.offsetLeft)])"""
        )

    before = places()
    for group, label, *_ in SWITCHES:
        check(page, group, label)
        assert places() == before, label
    press(page, "all ones")
    assert places() == before


def test_links(page, shared_stage):
    first = state(page)
    press(page, "all ones")
    check(page, "D", "rowsum(dP)")
    check(page, "head", "2")
    here, words = state(page), said(page)
    again = shared_stage.open(widgets.backward_strip(), link=copied_link(page))
    assert state(again) == here and said(again) == words
    wrong = {
        "tokens": [
            "abc",
            [1, 2, 3],
            ["a", "b"],
            ["<img onerror=window.pwned=1>" * 3, "b", "c"],
            {"length": 3},
        ],
        "query": [[], [[]], "x", [[1e308] * 8] * 3, [[None] * 8] * 3, [[1] * 9] * 3],
        "gradient": [[[1] * 4] * 2, [[1] * 8] * 3, [[1, 2, 3, "4"]] * 3, [[1e4] * 4] * 3, 7],
        "head": [2, -1, "0", 0.5],
        "nHeads": [0, 3, 1, 8],
        "row": [3, "1", None],
        "causal": ["causal", 1],
        "delta": ["none", "__proto__", ["right"]],
        "scale": ["constructor", 0],
        "keys": [None],
        "extra": [1],
    }
    refuses(again, "backward_strip", [{k: bad} for k, all_bad in wrong.items() for bad in all_bad], first)
    again.close()


def test_tokens_are_literal_and_another_example(shared_stage):
    odd = ("<b>x</b>", "</script>\"'&", " \n")
    page = shared_stage.open(widgets.backward_strip(example=three_tokens()._replace(tokens=odd)))
    assert page.locator(".attn-live b").count() == 0 and "for ␣⏎" in said(page)
    page.close()
    page = shared_stage.open(widgets.backward_strip(example=cat_sleeps(), row=1))
    grad = np.array([[0, 0], [1, 0], [0, 0]], dtype=float)
    agree(result(page), gradients(*cat_sleeps().head(1), grad, np.tri(3, dtype=bool)))
    assert page.get_by_role("group", name="head", exact=True).count() == 0
    page.close()


def test_looks(shared_stage):
    for width, scheme in ((900, "light"), (390, "dark"), (390, "light"), (900, "dark"), (320, "light")):
        page = shared_stage.open(widgets.backward_strip(), width=width, scheme=scheme)
        for group, label, *_ in SWITCHES[1:]:
            check(page, group, label)
        page.get_by_text("Change dO").click()
        fits(page)
        if width != 320:
            axe_clean(page)
        page.close()


def test_without_script_and_on_paper(shared_stage):
    still_without_script(shared_stage, widgets.backward_strip(), "0.114", "0.101", "−0.096")


def test_arguments_are_checked():
    with pytest.raises(AttnError, match="row is 3"):
        widgets.backward_strip(row=3)
    with pytest.raises(AttnError, match="5 tokens"):
        widgets.backward_strip(example=three_tokens()._replace(tokens=tuple("abcde")))

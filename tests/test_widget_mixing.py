"""Mixing: weights, contributions and output are attnlib's; a wrong setting says by how much it is off."""

import numpy as np
import pytest
from stage import result, settle, state
from test_widget_arithmetic import arith, page, same  # noqa: F401
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

from attnlib import core, widgets
from attnlib.errors import AttnError
from attnlib.examples import cat_sleeps, three_tokens
from attnlib.mistakes import MISTAKES, planted

pytestmark = pytest.mark.browser
CALL = "(A, s, v, hidden, how) => A.mixPoints(s, v, hidden, how)"


def by_attnlib(scores, values, hidden, way="softmax"):
    """The same row by attnlib: its mask is applied to scores that are already scaled."""
    scores, values = np.asarray([scores], dtype=float), np.asarray(values, dtype=float)
    visible = ~np.asarray([hidden])
    if way == "softmax":
        weights = core.softmax(np.where(visible, scores, -np.inf), visible)
    elif way == "after_softmax":
        weights = core.softmax(scores) * visible
    else:
        weights = scores * visible
    return weights[0], core.weighted_sum(weights, values)[0]


@pytest.mark.parametrize("way", ["softmax", "after_softmax", "none"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_random_rows(arith, way, count):  # noqa: F811
    rng = np.random.default_rng(count)
    scores, values = rng.normal(size=count) * 3, rng.normal(size=(count, 2))
    some = rng.random(count) < 0.5
    for hidden in (some, np.zeros(count, dtype=bool), np.ones(count, dtype=bool)):
        weights, output = by_attnlib(scores, values, hidden, way)
        got = arith(CALL, scores, values, hidden, way)
        same(got["weights"], weights)
        same(got["output"], output)
        same(got["sum"], weights.sum())
        lengths = np.linalg.norm(values, axis=1)
        same(got["lengths"], lengths)
        same(got["contributions"], np.abs(weights) * lengths)
        same(got["parts"], weights[:, None] * values)


@pytest.mark.parametrize("example", [three_tokens, cat_sleeps])
def test_every_row_of_both_examples(arith, example):  # noqa: F811
    q, k, v = example().head(1)
    steps = core.attention_steps(q, k, v, is_causal=True)
    for i in range(3):
        got = arith(CALL, steps.scaled[i], v, [j > i for j in range(3)], "softmax")
        same(got["weights"], steps.weights[i])
        same(got["output"], steps.output[i])


def test_the_librarys_mistake(arith):  # noqa: F811
    q, k, v = three_tokens().head(1)
    scaled = core.attention_steps(q, k, v).scaled
    with planted("mask_after_softmax"):
        wrong = core.attention_steps(q, k, v, is_causal=True)
    got = arith(CALL, scaled[1], v, [False, False, True], "after_softmax")
    same(got["weights"], wrong.weights[1])
    same(got["output"], wrong.output[1])
    same(got["sum"], MISTAKES["mask_after_softmax"].numbers()[1])


def nearest(point, corners, steps=400):
    """Distance to the hull by trying weights on a fine grid, which is never too small."""
    a = np.linspace(0, 1, steps + 1)
    one, two = np.meshgrid(a, a)
    keep = one + two <= 1 + 1e-12
    shares = np.stack([one[keep], two[keep], 1 - one[keep] - two[keep]], axis=1)
    corners = np.asarray([corners[n % len(corners)] for n in range(3)], dtype=float)
    return np.linalg.norm(shares @ corners - point, axis=1).min()


def test_distance_to_the_hull(arith):  # noqa: F811
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 3, 3):
        corners, point = rng.normal(size=(count, 2)), rng.normal(size=2)
        got = arith("(A, p, c) => A.distanceToHull(p, c)", point, corners)
        coarse = nearest(point, corners)
        assert got <= coarse + 1e-9 and coarse - got < 0.02
    triangle = [[0, 0], [1, 0], [0, 1]]
    for point, wanted in [
        ([0.2, 0.2], 0),
        ([1, 1], 0.5**0.5),
        ([-3, -4], 5),
        ([0.5, 0.5], 0),
        ([0.5, -1], 1),
    ]:
        same(arith("(A, p, c) => A.distanceToHull(p, c)", point, triangle), wanted)
        same(arith("(A, p, c) => A.distanceToHull(p, c)", point, triangle[::-1]), wanted)
    # Three corners on one line are a segment.
    same(arith("(A, p, c) => A.distanceToHull(p, c)", [5, 0], [[0, 0], [1, 0], [2, 0]]), 3)
    same(arith("(A, p, c) => A.distanceToHull(p, c)", [1, 0], [[0, 0], [1, 0], [2, 0]]), 0)


def click(page, name):  # noqa: F811
    page.get_by_role("button", name=name, exact=True).click()
    settle(page)


def table(page):  # noqa: F811
    rows = page.locator(".attn-mix-table tbody tr").all()
    return [[cell.inner_text().strip() for cell in row.locator("td").all()] for row in rows]


def agrees(page):  # noqa: F811
    now = state(page)
    weights, output = by_attnlib(now["scores"], now["values"], now["hidden"], now["way"])
    same(result(page)["weights"], weights)
    same(result(page)["output"], output)


def test_first_picture_and_presets(stage):
    page = stage.open(widgets.mixing())  # noqa: F811
    steps = core.attention_steps(*three_tokens().head(1), is_causal=True)
    same(result(page)["output"], steps.output[2][:2])
    assert table(page)[2] == ["0.844", "0", "0", "(0, 0)"]
    assert "tea has the largest weight, 0.844, but its value is short" in said(page)
    click(page, "row 2 of head 1")
    same(result(page)["output"], steps.output[1][:2])
    assert state(page)["hidden"] == [False, False, True]
    click(page, "large weight, short value")
    same(result(page)["weights"], [0.8, 0.15, 0.05])
    assert [row[2] for row in table(page)] == ["0.080", "0.335", "0.158"]
    assert "contributes 0.080, while like contributes 0.335" in said(page)
    # The bars of weight and contribution have one scale.
    wide = page.locator(".attn-mix-table tbody tr").first.locator(".attn-bar")
    assert [bar.evaluate("(e) => e.style.width") for bar in wide.all()] == ["80%", "8%"]
    click(page, "one key takes all")
    assert result(page)["weights"][1] > 0.9999
    click(page, "equal")
    assert table(page)[0][0] == "0.333" and "plain mean" in said(page)
    click(page, "Reset")
    same(result(page)["output"], steps.output[2][:2])


def test_sliders_hiding_and_an_empty_row(stage):
    page = stage.open(widgets.mixing())  # noqa: F811
    slider = page.get_by_label("score of 1 we")
    assert slider.get_attribute("aria-valuetext") == "1"
    slider.focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert state(page)["scores"] == [1.05, 0, 3] and slider.get_attribute("aria-valuetext") == "1.05"
    agrees(page)
    for name in ("hide 1 we", "hide 3 tea"):
        page.get_by_label(name).check()
        settle(page)
        agrees(page)
    same(result(page)["output"], [0, 1])
    page.get_by_label("hide 2 like").check()
    settle(page)
    agrees(page)
    assert result(page)["output"] == [0, 0] and said(page).startswith("Nothing is visible")


def test_wrong_settings_say_by_how_much(stage):
    page = stage.open(widgets.mixing())  # noqa: F811
    page.get_by_label("mask after softmax").check()
    settle(page)
    assert said(page).startswith("No number has changed")
    page.get_by_label("hide 3 tea").check()
    settle(page)
    agrees(page)
    got = result(page)
    assert got["mistakes"] == ["mask_after_softmax"]
    assert f"sum to {got['sum']:.3f} instead of 1" in said(page)
    # The visible values are (1, 0) and (0, 1): every mean of them lies on x + y = 1.
    same(got["outside"], (1 - got["sum"]) / 2**0.5)
    assert f"{got['outside']:.3f} outside the hull" in said(page)
    assert page.locator("tfoot .attn-bad").count() == 2
    assert page.locator(".attn-plane-ghost.attn-gone").count() == 0
    page.get_by_label("no softmax").check()
    page.get_by_label("hide 3 tea").uncheck()
    settle(page)
    agrees(page)
    assert "They sum to 4 instead of 1, and the output is (1, 0) instead of (0.114, 0.042)" in said(page)
    page.get_by_label("mask, then softmax").check()
    settle(page)
    assert page.locator(".attn-mixing ~ * .attn-bad").count() == 0 and result(page)["mistakes"] == []


def test_points_move_by_keys_and_by_dragging(stage):
    page = stage.open(widgets.mixing())  # noqa: F811
    point = page.get_by_role("slider", name="value of 2 like")
    point.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    settle(page)
    assert state(page)["values"][1] == [0.1, 2]
    assert point.get_attribute("aria-valuetext") == "x 0.100, y 2"
    agrees(page)
    for _ in range(4):
        page.keyboard.press("Shift+ArrowUp")
    settle(page)
    assert state(page)["values"][1] == [0.1, 3]
    box = point.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 60)
    page.mouse.up()
    settle(page)
    assert state(page)["values"][1][0] == 0.1 and 1 < state(page)["values"][1][1] < 3
    agrees(page)
    assert page.get_by_label("values (x, y), 2 like, y").input_value() == str(state(page)["values"][1][1])
    # Where the middle of the drawn point is, the output's marker and the numbers agree too.
    click(page, "equal")
    marker = page.locator(".attn-plane-output").get_attribute("transform")
    assert marker.startswith("translate(") and "NaN" not in marker


def test_fields_and_their_messages(stage):
    page = stage.open(widgets.mixing())  # noqa: F811
    field = page.get_by_label("values (x, y), 1 we, x")
    field.fill("-2.5")
    settle(page)
    assert state(page)["values"][0] == [-2.5, 0]
    agrees(page)
    before = result(page)
    for bad, complaint in [
        ("3.1", "from −3 to 3"),
        ("", "is empty"),
        ("<b>", "wanted a number"),
        ("1e9", "−3"),
    ]:
        field.fill(bad)
        settle(page)
        assert field.get_attribute("aria-invalid") == "true" and result(page) == before
        assert complaint in page.locator(".attn-editor .attn-message").inner_text()
    click(page, "row 3 of head 1")
    assert field.input_value() == "1" and field.get_attribute("aria-invalid") == "false"
    answers_in_time(page, field, [str(n / 10) for n in range(-20, 20)])
    assert state(page)["values"][0][0] == 1.9


def test_link_comes_back_a_hostile_one_does_not(stage):
    page = stage.open(widgets.mixing())  # noqa: F811
    first = state(page)
    click(page, "large weight, short value")
    page.get_by_label("no softmax").check()
    settle(page)
    wanted, address = state(page), copied_link(page)
    visit(page, address)
    assert state(page) == wanted
    refuses(
        page,
        "mixing",
        [
            {"values": [[4, 0], [0, 0], [0, 0]]},
            {"values": [[0, 0]] * 64},
            {"values": [["1", 0], [0, 0], [0, 0]]},
            {"scores": [1e9, 0, 0]},
            {"scores": "000"},
            {"scores": [0, 0]},
            {"hidden": [0, 1, 0]},
            {"hidden": [False] * 4},
            {"way": "toString"},
            {"exampleScores": [[0] * 3] * 2},
            {"exampleValues": None},
            {"tokens": ["<img src=x onerror=window.pwned=1>", "a", "b"]},
        ],
        first,
    )


def test_tokens_are_literal(stage):
    hostile = ("<s>", '"$5" & <b>', "\u202eevil")
    page = stage.open(widgets.mixing(example=three_tokens()._replace(tokens=hostile)))  # noqa: F811
    heads = page.locator(".attn-mix-table tbody th bdi").all_inner_texts()
    assert heads == ["1 <s>", '2 "$5"␣&␣<b>', "3 \u202eevil"]
    assert page.locator(".attn-live b, .attn-live s").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_and_narrow_pages(stage, scheme):
    page = stage.open(widgets.mixing(row=1), scheme=scheme)  # noqa: F811
    page.get_by_label("mask after softmax").check()
    for width in (900, 390):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        axe_clean(page)
    page.set_viewport_size({"width": 320, "height": 900})
    settle(page)
    fits(page)
    box = page.locator(".attn-plane-handle").first.bounding_box()
    assert box["width"] >= 24 and box["height"] >= 24


def test_without_script_and_on_paper(stage):
    still_without_script(stage, widgets.mixing(), "0.1142 of we", "(0.1142, 0.0420)")


def test_another_example_and_what_does_not_fit(stage):
    page = stage.open(widgets.mixing(example=cat_sleeps(), row=2))  # noqa: F811
    steps = core.attention_steps(*cat_sleeps().head(1), is_causal=True)
    same(result(page)["output"], steps.output[2][:2])
    t = three_tokens()
    for bad in (
        {"row": 3},
        {"row": True},
        {"example": t._replace(w_v=9 * t.w_v)},
        {"example": t._replace(w_q=9 * t.w_q)},
    ):
        with pytest.raises(AttnError, match="wanted"):
            widgets.mixing(**bad)

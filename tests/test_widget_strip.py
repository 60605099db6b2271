"""The strip: every switch moves the numbers that attnlib says, and says so."""

import numpy as np
import pytest
from stage import result, same, settle, state
from test_widget_arithmetic import SETTINGS
from widget_checks import axe_clean, copied_link, fits, refuses, said, still_without_script, visit

from attnlib import widgets
from attnlib.examples import cat_sleeps, three_tokens
from attnlib.layer import multi_head_attention
from attnlib.mistakes import MISTAKES, planted

pytestmark = pytest.mark.browser

LABELS = {
    "scale": {"none": "none", "root_d": "1/√d", "d_h": "1/d_h"},
    "mask": {
        "none": "none",
        "strictly_past": "strictly past",
        "inverted": "inverted",
        "after_softmax": "after softmax",
        "minus_1e9": "−1e9 for −∞",
    },
    "softmax": {"over_queries": "over queries", "twice": "twice"},
    "products": {"swapped": "KQᵀ"},
    "split": {"reshape": "reshape alone"},
}
LEGENDS = {"scale": "scale", "mask": "mask", "softmax": "softmax", "products": "product", "split": "heads"}


def cells(page, caption):
    """The numbers of one matrix as they stand in its cells."""
    table = page.locator("table.attn-matrix", has=page.locator("caption", has_text=caption))
    rows = table.locator("tbody tr").all()
    return [
        [cell.inner_text() for cell in row.locator("td:not(.attn-total) .attn-value").all()] for row in rows
    ]


def pick(page, setting, label):
    page.get_by_role("group", name=LEGENDS[setting]).get_by_label(label, exact=True).check()
    settle(page)


def layer():
    t = three_tokens()
    return multi_head_attention(t.x, t.w_q, t.w_k, t.w_v, t.w_o, 2, is_causal=True).attention


def test_first_picture_is_the_worked_example(stage):
    page = stage.open(widgets.strip("weights"))
    assert cells(page, "scores S") == [["3", "0", "−2"], ["6", "3", "−2"], ["2", "0", "6"]]
    assert cells(page, "masked") == [["1.500", "−∞", "−∞"], ["3", "1.500", "−∞"], ["1", "0", "3"]]
    assert cells(page, "weights P") == [["1", "0", "0"], ["0.818", "0.182", "0"], ["0.114", "0.042", "0.844"]]
    assert cells(page, "output O")[2] == ["0.114", "0.042", "0.844", "1"]
    assert page.locator(".attn-changed").count() == 0
    assert page.locator(".attn-panel.attn-step").get_attribute("data-step") == "weights"
    assert said(page).startswith("All settings are right. Row 3, tea, takes 0.114 of we")


def test_every_wrong_switch_is_marked_and_named(stage):
    page = stage.open(widgets.strip())
    for setting, options in LABELS.items():
        for option, label in options.items():
            name = SETTINGS[setting][option]
            pick(page, setting, label)
            assert result(page)["mistakes"] == [name]
            with planted(name), np.errstate(all="ignore"):
                wanted = layer()
            same(result(page)["weights"], wanted.weights[0])
            same(result(page)["output"], wanted.output[0])
            if name == "minus_1e9_on_empty_row":
                assert said(page).startswith("No number has changed")
            else:
                assert page.locator(".attn-changed").count() > 0
                assert any(char.isdigit() for char in said(page))
            page.get_by_role("button", name="Reset").click()
            settle(page)
            assert result(page)["mistakes"] == []
            assert page.locator(".attn-changed").count() == 0


@pytest.mark.parametrize("name", ["no_scale", "scale_by_model_width", "scale_by_width"])
def test_sentence_names_the_number_that_gives_the_mistake_away(stage, name):
    page = stage.open(widgets.strip())
    option = next(option for option, mistake in SETTINGS["scale"].items() if mistake == name)
    pick(page, "scale", LABELS["scale"][option])
    right, wrong = MISTAKES[name].numbers()
    assert f"gives tea {wrong:.3f} instead of {right:.3f}" in said(page)


def test_an_empty_row(stage):
    page = stage.open(widgets.strip())
    page.get_by_label("row 1 may see nothing").check()
    settle(page)
    assert cells(page, "weights P")[0] == ["0", "0", "0"]
    pick(page, "mask", LABELS["mask"]["minus_1e9"])
    assert cells(page, "weights P")[0] == ["≠ 0.333", "≠ 0.333", "≠ 0.333"]
    assert "0.333" in said(page) and "mean of the hidden values" in said(page)


def test_rows_and_heads_can_be_chosen(stage):
    page = stage.open(widgets.strip())
    page.get_by_role("group", name="query row").get_by_label("2 like").check()
    page.get_by_role("group", name="head").get_by_label("2", exact=True).check()
    settle(page)
    assert state(page)["row"] == 1 and state(page)["head"] == 1
    same(result(page)["weights"], layer().weights[1])
    assert "Row 2, like" in said(page)
    # A click on a cell chooses its row too.
    page.locator("table.attn-matrix tbody td:not(.attn-total)").first.click()
    settle(page)
    assert state(page)["row"] == 0


def test_numbers_can_be_changed_and_bad_ones_change_nothing(stage):
    page = stage.open(widgets.strip())
    page.get_by_text("Change Q, K and V").click()
    field = page.get_by_label("Q, 3 tea, 4", exact=True)
    field.fill("0")
    settle(page)
    q, k, _ = three_tokens().head(1)
    q[2, 3] = 0
    same(result(page)["scores"], q @ k.T)
    before = result(page)
    for bad, complaint in [
        ("", "is empty"),
        ("x<b>", "wanted a number"),
        ("1e9", "from −1000 to 1000"),
        ("NaN", "wanted"),
    ]:
        field.fill(bad)
        settle(page)
        assert field.get_attribute("aria-invalid") == "true"
        assert complaint in page.locator(".attn-editor .attn-message").first.inner_text()
        assert result(page) == before
    field.fill("−1.5")
    settle(page)
    assert field.get_attribute("aria-invalid") == "false"
    q[2, 3] = -1.5
    same(result(page)["scores"], q @ k.T)
    page.get_by_role("button", name="Reset").click()
    settle(page)
    assert field.input_value() == "2"


def test_keyboard_alone(stage):
    page = stage.open(widgets.strip())
    cell = page.locator("table.attn-matrix tbody td").first
    cell.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "query 2 like asks key 2 like" in page.locator(".attn-pointed").inner_text()
    lit = page.locator("table.attn-matrix").first.locator("th.attn-lit").all_inner_texts()
    assert lit == ["2 like", "2 like"]
    page.keyboard.press("Enter")
    settle(page)
    assert state(page)["row"] == 1
    page.get_by_label("causal").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert state(page)["mask"] == "none"


def test_link_brings_the_state_back_and_a_hostile_one_does_not(stage):
    page = stage.open(widgets.strip())
    first = state(page)
    pick(page, "mask", "inverted")
    link = copied_link(page)
    wanted = state(page)
    visit(page, link)
    assert state(page) == wanted
    refuses(
        page,
        "strip",
        [
            {"row": 3},
            {"row": "2"},
            {"mask": "constructor"},
            {"tokens": ["<img src=x onerror=window.pwned=1>" * 9, "a", "b"]},
            {"query": [[1e308] * 8] * 3},
            {"query": [[None] * 8] * 3},
            {"tokens": ["a"] * 8, "query": [[1] * 8] * 8, "key": [[1] * 8] * 8, "value": [[1] * 8] * 8},
            {"nHeads": 0},
        ],
        first,
    )


def test_tokens_are_literal(stage):
    hostile = ("<s>", '"$5" & <b>', "\u202eevil")
    page = stage.open(widgets.strip(example=three_tokens()._replace(tokens=hostile)))
    heads = page.locator("table.attn-matrix").first.locator("thead th bdi").all_inner_texts()
    assert heads == ["1 <s>", '2 "$5"␣&␣<b>', "3 \u202eevil"]
    assert page.locator(".attn-live b, .attn-live s").count() == 0


def test_another_example(stage):
    page = stage.open(widgets.strip(example=cat_sleeps(), row=1))
    assert cells(page, "weights P")[1] == ["0.670", "0.330", "0"]
    assert page.get_by_role("group", name="heads").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [900, 390])
def test_axe_finds_nothing(stage, scheme, width):
    page = stage.open(widgets.strip(), scheme=scheme, width=width)
    pick(page, "mask", "inverted")
    page.get_by_text("Change Q, K and V").click()
    axe_clean(page)


def test_it_fits_a_phone(stage):
    page = stage.open(widgets.strip(), width=320)
    fits(page)


def test_without_script_and_on_paper(stage):
    still_without_script(stage, widgets.strip(), "scores S", "weights P")

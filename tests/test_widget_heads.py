"""The heads: what is split and merged stands where attnlib puts it, and the sentence says what is lost."""

import numpy as np
import pytest
from stage import link, result, settle, state
from widget_checks import axe_clean, copied_link, fits, refuses, said, still_without_script, visit

from attnlib import heads as layout
from attnlib import widgets
from attnlib.errors import AttnError
from attnlib.mistakes import planted

pytestmark = pytest.mark.browser
X = 10 * np.arange(3)[:, None] + np.arange(8)
WAYS = {"split": {"swap": "reshape, then swap"}, "merge": {"swap": "swap, then reshape"}}


def expected(n_heads, split, merge):
    """Heads and merged grid as attnlib makes them, with its own planted mistakes."""
    if split == "reshape":
        with planted("split_without_transpose"):
            heads = layout.split_heads(X, n_heads)
    else:
        heads = layout.split_heads(X, n_heads)
    if merge == "reshape":
        with planted("merge_without_transpose"):
            return heads, layout.merge_heads(heads)
    return heads, layout.merge_heads(heads)


def pick(page, group, label):
    page.get_by_role("group", name=group, exact=True).get_by_label(label, exact=True).check()
    settle(page)


def shown(page, stage_name):
    rows = page.locator(f"[data-stage={stage_name}] tbody tr").all()
    return [[int(text) for text in row.locator(".attn-value").all_inner_texts()] for row in rows]


def test_every_setting_is_what_attnlib_gives(stage):
    page = stage.open(widgets.heads())
    for n_heads in (1, 2, 4, 8):
        pick(page, "heads", str(n_heads))
        for split in ("swap", "reshape"):
            pick(page, "split", WAYS["split"].get(split, "reshape alone"))
            for merge in ("swap", "reshape"):
                pick(page, "merge", WAYS["merge"].get(merge, "reshape alone"))
                heads, merged = expected(n_heads, split, merge)
                got = result(page)
                assert np.array_equal(got["heads"], heads) and np.array_equal(got["merged"], merged)
                assert got["inHeads"] == (heads == layout.split_heads(X, n_heads)).sum()
                assert got["inMerged"] == (merged == X).sum()
                assert got["mistakes"] == [
                    f"{name}_without_transpose"
                    for name, way in (("split", split), ("merge", merge))
                    if way == "reshape"
                ]
                # What is drawn is the same: the heads side by side, then the merged grid.
                assert shown(page, "heads") == np.concatenate(list(heads), axis=1).tolist()
                assert shown(page, "merged") == merged.tolist()
                off = page.locator("[data-stage=merged] td.attn-misplaced").count()
                assert off == (merged != X).sum()
                assert (
                    f"{got['inMerged']} of 24" in page.locator("[data-stage=merged] .attn-count").inner_text()
                )
                assert str(got["inMerged"]) in said(page)


def test_sentence_names_what_is_lost_and_why_the_round_trip_sees_nothing(stage):
    page = stage.open(widgets.heads(split="reshape"))
    assert "only 8 of 24" in said(page)
    assert "head 2 holds token 2 twice, token 0 has vanished from it" in said(page)
    pick(page, "merge", "reshape alone")
    assert "24 of 24 numbers are in place again, so a round trip sees nothing" in said(page)
    verdicts = page.locator(".attn-checks td").all_inner_texts()
    assert [text.split()[-1] for text in verdicts] == ["passes", "passes", "passes", "fails", "fails"]
    pick(page, "split", "reshape, then swap")
    assert "row 0 holds 4 numbers of token 0 and 4 of token 1" in said(page)
    pick(page, "heads", "8")
    assert "row 0 holds 3 numbers of token 0 and 3 of token 1 and 2 of token 2" in said(page)
    pick(page, "heads", "1")
    assert "no test with one head can catch it" in said(page)
    pick(page, "heads", "4")
    pick(page, "merge", "swap, then reshape")
    assert "All 24 numbers" in said(page) and "row 2 of head 4 is token 2, components 6 to 7" in said(page)


def test_keyboard_follows_a_number_and_reset_goes_back(stage):
    page = stage.open(widgets.heads(split="reshape"))
    first = state(page)
    page.locator("[data-stage=heads] tbody td").first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    # Row 1 of head 1, component 1 holds 5: component 5 of token 0, whose place is head 2, row 0.
    assert "05 is component 5 of token 0" in page.locator(".attn-pointed").inner_text()
    assert "(right: head 2, row 0, component 1)" in page.locator(".attn-pointed").inner_text()
    lit = page.locator("td.attn-lit .attn-value").all_inner_texts()
    assert lit == ["05", "05", "05"]
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert name == "head 1, row 1, component 1: 05, token 0, right is 11"
    page.get_by_role("group", name="heads", exact=True).get_by_label("2", exact=True).focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert state(page)["nHeads"] == 4 and len(result(page)["heads"]) == 4
    page.get_by_role("button", name="Reset").click()
    settle(page)
    assert state(page) == first
    assert np.array_equal(result(page)["heads"], expected(2, "reshape", "swap")[0])


def test_no_layout_jump(stage):
    page = stage.open(widgets.heads())

    def below():
        return page.get_by_role("button", name="Reset").bounding_box()["y"]

    before = below()
    for group, label in [
        ("heads", "8"),
        ("split", "reshape alone"),
        ("merge", "reshape alone"),
        ("heads", "1"),
    ]:
        pick(page, group, label)
        assert below() == before


def test_link_comes_back_a_hostile_one_does_not(stage):
    page = stage.open(widgets.heads())
    first = state(page)
    pick(page, "heads", "4")
    pick(page, "split", "reshape alone")
    wanted, address = state(page), copied_link(page)
    visit(page, address)
    assert state(page) == wanted
    refuses(
        page,
        "heads",
        [
            {"nHeads": 3},
            {"nHeads": "2"},
            {"nHeads": 16},
            {"nHeads": 2.5},
            {"split": "constructor"},
            {"merge": ["swap"]},
            {"merge": None},
            {"tokens": ["a"] * 4},
            {"tokens": "abc"},
            {"tokens": ["<img src=x onerror=window.pwned=1>", "a", "b"]},
        ],
        first,
    )


def test_tokens_are_literal(stage):
    tokens = ["<b>", '"$5" & <s>', "\u202eevil"]
    page = stage.open(widgets.heads(), link=link("heads", {"tokens": tokens}))
    heads = page.locator("[data-stage=x] tbody th bdi").all_inner_texts()
    assert heads == ["0 <b>", '1 "$5"␣&␣<s>', "2 \u202eevil"]
    assert page.locator(".attn-live b, .attn-live s").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_and_narrow_pages(stage, scheme):
    page = stage.open(widgets.heads(split="reshape"), scheme=scheme)
    for width in (900, 390):
        page.set_viewport_size({"width": width, "height": 900})
        axe_clean(page)
    page.set_viewport_size({"width": 320, "height": 900})
    fits(page)
    # All eight columns are seen without scrolling, in every board.
    hidden = (
        "() => [...document.querySelectorAll('.attn-matrix-box')].map((b) => b.scrollWidth - b.clientWidth)"
    )
    assert page.evaluate(hidden) == [0, 0, 0]


def test_without_script_and_on_paper(stage):
    still_without_script(stage, widgets.heads(), "8 of 24", "head 2, row 0", "reshape alone")


@pytest.mark.parametrize("bad", [{"n_heads": 3}, {"n_heads": True}, {"split": "x"}, {"merge": None}])
def test_settings_that_do_not_exist_are_refused(bad):
    with pytest.raises(AttnError, match="wanted"):
        widgets.heads(**bad)

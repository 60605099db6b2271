"""One score, term by term: against attnlib, both examples, right and swapped."""

import itertools

import numpy as np
import pytest
from stage import result, same, settle, state
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
from attnlib.errors import AttnError, ShapeError
from attnlib.examples import all_sizes_differ, cat_sleeps, three_tokens
from attnlib.mistakes import planted

pytestmark = pytest.mark.browser
NAMES = {"three": "3 tokens", "ragged": "4 queries, 5 keys"}


def vectors(example, head):
    """(Q, K) of one head of the example that the widget calls so."""
    if example == "three":
        return three_tokens().head(head)[:2]
    r = all_sizes_differ()
    return r.query[0, head - 1], r.key[0, head - 1]


def read(text):
    return float(text.replace("−", "-"))


@pytest.fixture(scope="module")
def page(shared_stage):
    """One page for all that leave it as they found it."""
    return shared_stage.open(widgets.one_score(), arithmetic=True)


@pytest.fixture
def fresh(page):
    yield page
    page.get_by_role("button", name="Reset").click()
    settle(page)


def pick(page, group, name):
    page.get_by_role("group", name=group, exact=True).get_by_role("radio", name=name, exact=True).check()
    settle(page)


def numbers(page, table):
    """What can be seen in the cells of a table, row by row, small print left out."""
    return page.locator(f".attn-view:visible {table} tbody").evaluate(
        """(body) => [...body.rows].map((row) => [...row.querySelectorAll('td')].map((cell) =>
        (cell.querySelector('.attn-value') ?? cell).textContent.replace('≠ ', '')))"""
    )


# --- arithmetic ---


def test_terms_on_random_inputs_and_none(page):
    rng = np.random.default_rng(5)
    for width in (0, 1, 3, 8):
        a, b = rng.normal(size=(2, width))
        got = page.evaluate(
            "async ([a, b]) => (await import('./one_score.js')).terms(a, b)", [a.tolist(), b.tolist()]
        )
        same(got, a * b)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ([-1, -1, 2, 2], "−1 − 1 + 2 + 2 = 2"),
        ([0, -0.5, 1 / 3], "0 − 0.5 + 0.333 = −0.167"),
        ([-0.0, 10, -1000], "0 + 10 − 1000 = −990"),
        ([7], "7 = 7"),
    ],
)
def test_the_sum_in_words(page, terms, words):
    got = page.evaluate(
        "async ([a, s]) => (await import('./one_score.js')).sumInWords(a, s)", [terms, sum(terms)]
    )
    assert got == words


# --- what is seen ---


def test_at_first_it_is_the_score_of_the_chapter(page):
    assert said(page) == "−1 − 1 + 2 + 2 = 2: row 3, column 1. The query of tea meets the key of we."
    assert numbers(page, ".attn-matrix") == [["3", "0", "−2"], ["6", "3", "−2"], ["2", "0", "6"]]
    assert numbers(page, ".attn-terms") == [
        ["−1", "1", "1", "2", ""],
        ["1", "−1", "2", "1", ""],
        ["−1", "−1", "2", "2", "2"],
    ]
    assert "3 × 4 times 4 × 3 gives 3 × 3" in page.locator(".attn-view:visible .attn-formula").inner_text()


@pytest.mark.parametrize("example", NAMES)
@pytest.mark.parametrize("head", [1, 2])
@pytest.mark.parametrize("product", ["QKᵀ", "KQᵀ"])
def test_every_switch_every_cell(fresh, example, head, product):
    pick(fresh, "example", NAMES[example])
    pick(fresh, "head", str(head))
    fresh.get_by_role("radio", name=product).check()
    settle(fresh)
    query, key = vectors(example, head)
    swapped = product == "KQᵀ"
    rows, columns = (key, query) if swapped else (query, key)
    right = core.scores(query, key)
    if swapped:
        with planted("query_and_key_swapped"):
            wanted = core.scores(query, key)
    else:
        wanted = right
    same(result(fresh)["scores"], wanted)
    seen = [[read(x) for x in line] for line in numbers(fresh, ".attn-matrix")]
    same(seen, np.round(wanted, 2))
    same([[read(x) for x in line] for line in numbers(fresh, ".attn-flat")], rows)
    same([[read(x) for x in line] for line in numbers(fresh, ".attn-upright")], columns.T)
    assert result(fresh)["mistakes"] == (["query_and_key_swapped"] if swapped else [])
    changed = fresh.locator(".attn-view:visible td.attn-changed")
    square = len(query) == len(key)
    assert changed.count() == (np.sum(wanted != right) if square else 0)
    cells = fresh.locator(".attn-view:visible .attn-matrix tbody tr")
    for i, j in itertools.product(range(len(rows)), range(len(columns))):
        if example == "ragged" and (i + j) % 3:
            continue  # a third of the larger table is enough
        cells.nth(i).locator("td").nth(j).click()
        settle(fresh)
        got = result(fresh)
        same(got["terms"], rows[i] * columns[j])
        same(got["score"], wanted[i, j])
        table = numbers(fresh, ".attn-terms")
        same([read(x) for x in table[0][:-1]], rows[i])
        same([read(x) for x in table[1][:-1]], columns[j])
        same([read(x) for x in table[2]], [*(rows[i] * columns[j]), wanted[i, j]])
        words = said(fresh)
        assert f": row {i + 1}, column {j + 1}." in words and f"= {table[2][-1]}:" in words
        if not swapped:
            assert "mirror" not in words and "shape" not in words
        elif not square:
            assert "KQᵀ is 5 × 4, wanted 4 × 5" in words
        elif wanted[i, j] != right[i, j]:
            assert f"It should be {right[i, j]:.0f}".replace("-", "−") in words and "mirror image" in words
        else:
            assert "happens to agree" in words
        chosen = fresh.locator(".attn-view:visible td[aria-current]")
        assert chosen.count() == 1 and chosen.get_attribute("class").count("attn-chosen") == 1


def test_zero_scores_say_why(fresh):
    pick(fresh, "column", "2 like")
    assert "they cancel" in said(fresh) and result(fresh)["score"] == 0
    fresh.locator(".attn-edit summary").click()
    for c in range(4):
        fresh.get_by_label(f"Q, 3 tea, {c + 1}").fill("0")
    settle(fresh)
    assert "Every product is 0." in said(fresh)


def test_switching_to_fewer_rows_keeps_a_cell_that_exists(fresh):
    pick(fresh, "example", NAMES["ragged"])
    pick(fresh, "column", "key 5")
    pick(fresh, "row", "query 4")
    fresh.get_by_role("radio", name="KQᵀ").check()
    settle(fresh)
    assert (state(fresh)["row"], state(fresh)["column"]) == (3, 3)
    pick(fresh, "example", NAMES["three"])
    assert (state(fresh)["row"], state(fresh)["column"]) == (2, 2)


@pytest.mark.parametrize("example", NAMES)
def test_entries_can_be_changed_and_a_bad_one_changes_nothing(fresh, example):
    pick(fresh, "example", NAMES[example])
    pick(fresh, "head", "2")
    if fresh.locator(".attn-edit").get_attribute("open") is None:
        fresh.locator(".attn-edit summary").click()
    row, column = ("3 tea", "1 we") if example == "three" else ("query 3", "key 1")
    query, key = (a.copy() for a in vectors(example, 2))
    editors = fresh.locator(".attn-editors:visible")
    for text, number in (("2.5", 2.5), ("−0,125", -0.125), ("1000", 1000)):
        editors.get_by_label(f"Q, {row}, 2").fill(text)
        editors.get_by_label(f"K, {column}, 1").fill(text)
        settle(fresh)
        query[2, 1], key[0, 0] = number, number
        same(result(fresh)["scores"], core.scores(query, key))
        same(result(fresh)["terms"], query[2] * key[0])
    message = editors.locator(".attn-message").first
    before = said(fresh), result(fresh)
    for text, words in (("", "is empty"), ("tea", "wanted a number"), ("-2000", "from −1000 to 1000")):
        editors.get_by_label(f"Q, {row}, 2").fill(text)
        settle(fresh)
        assert words in message.inner_text() and (said(fresh), result(fresh)) == before
    # the other head is untouched, and a bad entry does not outlive the switch to it
    pick(fresh, "head", "1")
    assert message.inner_text() == ""
    same(result(fresh)["scores"], core.scores(*vectors(example, 1)))
    assert read(editors.get_by_label(f"Q, {row}, 2").input_value()) == vectors(example, 1)[0][2, 1]


def test_by_keyboard_alone(fresh):
    fresh.locator("h1").click()
    for _ in range(3):  # example, product, head
        fresh.keyboard.press("Tab")
    fresh.keyboard.press("ArrowRight")
    settle(fresh)
    assert state(fresh)["head"] == 1
    fresh.keyboard.press("ArrowLeft")
    settle(fresh)
    for _ in range(6):
        fresh.keyboard.press("Tab")
        if fresh.evaluate("document.activeElement.matches('td')"):
            break
    name = "document.activeElement.getAttribute('aria-label')"
    assert fresh.evaluate(name) == "query 1 we, key 1 we: 3"
    fresh.keyboard.press("ArrowRight")
    fresh.keyboard.press("ArrowDown")
    assert fresh.evaluate(name) == "query 2 like, key 2 like: 3"
    # exactly the two that meet are lit
    lit = ".attn-view:visible :is(.attn-side, .attn-matrix) th.attn-lit"
    assert fresh.locator(lit).all_inner_texts() == ["2 like"] * 4
    assert "row 2, column 2" in fresh.locator(".attn-view:visible .attn-pointed").inner_text()
    fresh.keyboard.press("Enter")
    settle(fresh)
    assert (state(fresh)["row"], state(fresh)["column"]) == (1, 1)
    fresh.keyboard.press("ArrowUp")
    fresh.keyboard.press("Space")
    settle(fresh)
    assert (state(fresh)["row"], state(fresh)["column"]) == (0, 1)
    for _ in range(3):
        fresh.keyboard.press("Tab")
        if fresh.evaluate("document.activeElement.type") == "radio":
            break
    fresh.keyboard.press("ArrowDown")
    settle(fresh)
    assert state(fresh)["row"] == 1


def test_a_row_or_a_column_alone_can_be_clicked(fresh):
    fresh.locator(".attn-view:visible .attn-flat tbody tr").nth(1).locator("td").nth(2).click()
    fresh.locator(".attn-view:visible .attn-upright tbody tr").nth(3).locator("td").nth(2).click()
    settle(fresh)
    assert (state(fresh)["row"], state(fresh)["column"]) == (1, 2)


def test_tokens_stay_literal(stage):
    nasty = ("<img src=x onerror=a>", '"&amp;', "\u202egnol")
    page = stage.open(widgets.one_score(three_tokens()._replace(tokens=nasty)))
    heads = page.locator(".attn-view:visible .attn-matrix tbody th").all_text_contents()
    assert heads == [f"{n + 1} {token.replace(' ', '␣')}" for n, token in enumerate(nasty)]
    assert "query of \u2068\u202egnol\u2069 meets" in page.locator(".attn-sentence").text_content()
    assert page.locator(".attn-live img").count() == 0
    cell = page.locator(".attn-view:visible .attn-matrix td[tabindex]").nth(1)
    assert cell.get_attribute("aria-label").startswith('query 1 <img␣src=x␣onerror=a>, key 2 "&amp;:')


def test_reset_link_and_hostile_links(stage):
    page = stage.open(widgets.one_score())
    first, words = state(page), said(page)
    page.locator(".attn-edit summary").click()
    page.get_by_label("K, 2 like, 3").fill("0.3")
    pick(page, "head", "2")
    pick(page, "row", "2 like")
    page.get_by_role("radio", name="KQᵀ").check()
    settle(page)
    changed, sentence = state(page), said(page)
    assert changed["data"][0]["key"][0][1][2] == 0.3
    hash_ = copied_link(page)
    page.get_by_role("button", name="Reset").click()
    settle(page)
    assert state(page) == first and said(page) == words
    visit(page, hash_)
    assert state(page) == changed and said(page) == sentence
    visit(page, "")
    assert state(page) == first
    three, ragged = first["data"]
    refuses(
        page,
        "one_score",
        [
            {"row": 3},
            {"column": -1},
            {"row": 1.5},
            {"row": "2"},
            {"example": 2},
            {"example": True},
            {"head": 2},
            {"product": "constructor"},
            {"data": []},
            {"data": [three]},
            {"data": [three] * 5},
            {"data": {"length": 2}},
            {"data": [three, {**ragged, "key": ragged["key"][:1]}]},
            {"data": [{**three, "query": [[[1e9] * 4] * 3] * 2}, ragged]},
            {"data": [{**three, "query": [[[None] * 4] * 3] * 2}, ragged]},
            {"data": [{**three, "query": [[["1"] * 4] * 3] * 2}, ragged]},
            {"data": [{**three, "queries": ["<script>window.pwned = 1</script>", "a", "b"]}, ragged]},
            {"data": [{**three, "queries": [1, 2, 3]}, ragged]},
            {"data": [{**three, "queries": "abc"}, ragged]},
            {"data": [{**three, "name": "x" * 41}, ragged]},
            {"data": [ragged, three]},
        ],
        first,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(stage, scheme):
    page = stage.open(widgets.one_score(), scheme=scheme)
    page.locator(".attn-edit summary").click()
    page.get_by_role("radio", name="KQᵀ").check()
    for example, width in (("three", 900), ("ragged", 390), ("ragged", 320), ("three", 320)):
        page.set_viewport_size({"width": width, "height": 900})
        pick(page, "example", NAMES[example])
        fits(page)
        if width > 320:
            axe_clean(page)
        heights = set()
        for product, row in itertools.product(("QKᵀ", "KQᵀ"), (0, 2)):
            page.get_by_role("radio", name=product).check()
            settle(page)
            page.get_by_role("group", name="row", exact=True).get_by_role("radio").nth(row).check()
            settle(page)
            heights.add(page.locator(".attn-live").evaluate("(e) => e.offsetHeight"))
        assert len(heights) == 1 or example == "ragged"  # nothing jumps while the sizes stay


def test_without_script_and_on_paper(stage):
    still_without_script(stage, widgets.one_score(), "Row 3, column 1, term by term", "query of tea")


def test_in_time(fresh):
    texts = [str(n / 7) for n in range(30)]
    answers_in_time(fresh, fresh.get_by_label("Q, 3 tea, 1"), texts)
    settle(fresh)
    assert state(fresh)["data"][0]["query"][0][2][0] == 29 / 7


def test_one_head_is_enough_and_what_cannot_be_shown_is_refused(stage):
    page = stage.open(widgets.one_score(cat_sleeps(), row=1, column=2))
    assert said(page) == "0 + 1 = 1: row 2, column 3. The query of cat meets the key of sleeps."
    assert not page.get_by_role("group", name="head", exact=True).is_visible()
    t = three_tokens()
    with pytest.raises(ShapeError, match="9 tokens"):
        widgets.one_score(t._replace(x=np.ones((9, 8)), tokens=tuple("abcdefghi")))
    for wrong in ({"row": 3}, {"column": -1}):
        with pytest.raises(AttnError, match="wanted a whole number from 0 to 2"):
            widgets.one_score(**wrong)

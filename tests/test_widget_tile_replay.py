"""The tile replay against attnlib: tiles, traffic by formula and step by step, and the state of each row."""

import numpy as np
import pytest
from stage import call, result, same, settle, state
from widget_checks import answers_in_time, axe_clean, copied_link, fits, refuses, said, still_without_script

from attnlib import core, cost, online, tiled, widgets
from attnlib.counter import FastMemory, flash1_forward, flash2_forward
from attnlib.errors import AttnError, ShapeError
from attnlib.examples import cat_sleeps, three_tokens
from attnlib.widgets._tile_replay import made_scores

pytestmark = pytest.mark.browser
SIZES = [(2, 1, 2), (3, 2, 1), (7, 3, 5), (8, 2, 2), (16, 5, 3), (16, 16, 1), (16, 1, 1)]


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(widgets.tile_replay(), arithmetic=True)


@pytest.fixture
def page(one):
    one.get_by_role("button", name="Reset").click()
    settle(one)
    return one


def numbers(words):
    """Python hears of −∞ as a word."""
    return np.array([float(x) for x in words])


def tile_steps(scores, values, **how):
    """attnlib's own steps on given scores: with the identity as keys, the queries are the scores."""
    return list(tiled.flash_attention_steps(scores, np.eye(len(scores)), values, scale=1.0, **how))


class Watched(FastMemory):
    """The counter, which notes its traffic after every tile; a row of tiles ends with storing its output."""

    after = ()

    def drop(self, *names):
        super().drop(*names)
        if "S" in names:
            self.after = (*self.after, self.traffic)
        elif "o" in names:
            self.after = (*self.after[:-1], self.traffic)


def moved_by(n, d, algorithm, **how):
    """The counter's (loads, stores) after every visited tile, run in a memory that holds just one tile."""
    memory = Watched(cost.fast_memory(how["block_q"], how["block_k"], d))
    run = {"flash1": flash1_forward, "flash2": flash2_forward}[algorithm]
    run(memory, *np.random.default_rng(0).normal(size=(3, n, d)), **how)
    return list(map(tuple, memory.after))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("algorithm", ["flash2", "flash1"])
@pytest.mark.parametrize(("n", "block_q", "block_k"), SIZES)
def test_walk_and_traffic(one, n, block_q, block_k, algorithm, causal):
    rng = np.random.default_rng(n)
    scores, values = rng.normal(size=(n, n)) * 4, rng.normal(size=(n, 1))
    how = {"block_q": block_q, "block_k": block_k, "is_causal": causal}
    settings = {
        "n": n,
        "d": 5,
        "blockQ": block_q,
        "blockK": block_k,
        "causal": causal,
        "algorithm": algorithm,
    }
    given = settings | {"scores": scores.tolist(), "values": values.tolist()}
    got = call(one, "(M, given) => { const r = M.replayOf(given); return r; }", given, module="tile_replay")
    steps = tile_steps(scores, values, **how)
    if algorithm == "flash1":
        steps.sort(key=lambda step: (step.cols.start, step.rows.start))
    places = [[[t.rows.start, t.rows.stop], [t.cols.start, t.cols.stop], t.kind] for t in steps]
    assert [[t["rows"], t["cols"], t["kind"]] for t in got["tiles"]] == places

    counts = [(c["loads"], c["stores"]) for c in got["counts"]]
    assert counts[1:] == moved_by(n, 5, algorithm, **how)
    assert counts[-1] == tuple(cost.traffic(algorithm, n, n, 5, **how))
    assert got["counts"][-1]["flops"] == cost.executed_flops(algorithm, n, n, 5, **how)
    assert call(one, "(A, s) => A.tileMemory(s)", settings) == cost.fast_memory(block_q, block_k, 5)
    plain = call(one, "(A, s) => A.plainTraffic(s)", settings)
    assert (plain["loads"], plain["stores"]) == tuple(cost.traffic("plain", n, n, 5))

    # Row by row, the keys arrive from left to right in both orders: the states are attnlib's.
    now = online.start((n,), 1, like=scores)
    m, row_sum, o = (np.array(x) for x in now[:3])
    visited = [step for step in steps if step.kind != "skipped"]
    assert len(got["rows"]) == len(visited) + 1
    for step, rows in zip([None, *visited], got["rows"], strict=True):
        if step is not None:
            m[step.rows], row_sum[step.rows], o[step.rows] = step.state[:3]
        # Playwright hands over infinities as they are.
        same([row["max"] for row in rows], m)
        same([row["sum"] for row in rows], row_sum)
        same([row["out"] for row in rows], o)
    right = core.attention(scores, np.eye(n), values, scale=1.0, is_causal=causal)
    same(got["attention"], right[:, 0])
    same(o / row_sum[:, None], right)


def test_online_rows(one):
    got = call(
        one,
        """(A) => [[1, 0], [3]].reduce(
            (state, row) => A.takeBlock(state, row, row.map(() => [1])), A.stateOfNothing(1))""",
    )
    same([got["max"], got["sum"], got["factor"]], [3, np.exp([-2, -3, 0]).sum(), np.exp(-2)])
    hidden = call(one, "(A) => A.takeBlock(A.stateOfNothing(2), [-Infinity, -Infinity], [[1, 2], [3, 4]])")
    assert (hidden["max"], hidden["sum"], hidden["out"]) == (-np.inf, 0, [0, 0])


@pytest.mark.parametrize("n", [2, 8, 16])
def test_made_up_numbers_are_the_same_everywhere(one, n):
    scores, values = made_scores(n)
    same(call(one, "(M, n) => M.madeScores(n)", n, module="tile_replay"), scores)
    same(call(one, "(M, n) => M.madeValues(n)", n, module="tile_replay"), values)
    assert len({tuple(row) for row in scores}) == n


def press(page, *names):
    for name in names:
        page.get_by_role("button", name=name, exact=True).click()
        settle(page)


def slide(page, label, *keys):
    page.get_by_role("slider", name=label).focus()
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def column(page, table, n):
    return page.eval_on_selector_all(
        f".{table} tbody tr", f"rows => rows.map(r => r.querySelectorAll('td')[{n}].innerText.trim())"
    )


def cells(page, kind):
    """Places of the grid's cells of a class, as (query, key) from 0."""
    return set(
        map(
            tuple,
            page.evaluate(
                """(kind) => [...document.querySelectorAll('.attn-replay-grid tbody tr')].flatMap((tr, i) =>
              [...tr.cells].slice(1).flatMap((td, j) => td.classList.contains(kind) ? [[i, j]] : []))""",
                kind,
            ),
        )
    )


def places(step):
    return {
        (i, j) for i in range(step.rows.start, step.rows.stop) for j in range(step.cols.start, step.cols.stop)
    }


def test_the_facts_step_by_step(page):
    scores, values = made_scores(8)
    steps = tile_steps(scores, values, block_q=2, block_k=2, is_causal=True)
    visited = [step for step in steps if step.kind != "skipped"]
    moved = moved_by(8, 4, "flash2", block_q=2, block_k=2, is_causal=True)
    assert result(page)["tiles"] == {"all": 16, "visited": 10, "masked": 4, "skipped": 6}
    assert "6 of 16 tiles" in said(page) and "4 of the other 10" in said(page)
    hidden = set().union(*(places(s) for s in steps if s.kind == "skipped"))
    for n, step in enumerate(visited, start=1):
        press(page, "Step")
        seen = {(i, j) for i, j in places(step) if j <= i}
        assert cells(page, "attn-tile-now") == seen and cells(page, "attn-tile-skipped") == hidden
        assert cells(page, "attn-tile-done") == {
            (i, j) for s in visited[: n - 1] for i, j in places(s) if j <= i
        }
        got = result(page)
        assert (
            got["tile"]["queries"] == [step.rows.start, step.rows.stop] and got["tile"]["kind"] == step.kind
        )
        loads, stores = moved[n - 1]
        assert column(page, "attn-replay-counts", 0)[:3] == [str(x) for x in (loads, stores, loads + stores)]
        same(numbers(got["m"])[step.rows], step.state.row_max)
        same(np.array(got["l"])[step.rows], step.state.row_sum)
        same(np.array(got["o"])[step.rows], step.state.accumulator[:, 0])
        lit = page.locator(".attn-replay-state tr.attn-selected th").all_inner_texts()
        assert lit == [str(i + 1) for i in range(step.rows.start, step.rows.stop)]
        if n < 10:
            assert said(page).startswith(f"Tile {n} of 10") and f"{loads + stores} entries moved" in said(
                page
            )
    same(result(page)["output"], result(page)["attention"])
    assert "Done. 232 entries moved where plain attention moves 384, 1.66 times" in said(page)
    assert all(text.endswith("✓") for text in column(page, "attn-replay-state", 3))
    assert column(page, "attn-replay-counts", 1) == ["192", "40", "232", "640", "10", "4", "6"]
    assert column(page, "attn-replay-counts", 2)[:4] == ["224", "160", "384", "1,024"]
    for name in ("Step", "To the end"):
        assert page.get_by_role("button", name=name).is_disabled()
    press(page, "Back")
    assert result(page)["step"] == 9
    press(page, "Rewind")
    assert result(page)["step"] == 0 and cells(page, "attn-tile-done") == set()
    press(page, "To the end")
    assert result(page)["step"] == 10


def test_the_largest_rescaling_is_named(page):
    page.get_by_label("the three tokens").check()
    settle(page)
    slide(page, "queries per tile", "Home")
    slide(page, "keys per tile", "Home")
    press(page, *["Step"] * 5)
    assert "No larger score comes" in said(page)
    press(page, "Step", "Back", "Step")
    got, steps = result(page), core.attention_steps(*three_tokens().head(1), is_causal=True)
    same(got["output"], steps.output[:, 0])
    assert page.locator(".attn-replay-state th[scope=row]").all_inner_texts() == ["1 we", "2 like", "3 tea"]
    slide(page, "queries per tile", "End")
    press(page, *["Step"] * 2)
    assert "Query 3" not in said(page)
    page.get_by_role("checkbox", name="causal").uncheck()
    slide(page, "keys per tile", "ArrowRight")
    press(page, "Step")
    assert result(page)["tile"]["keys"] == [0, 2]


def test_a_larger_score(shared_stage):
    page = shared_stage.open(widgets.tile_replay(example=three_tokens(), block_q=3, block_k=2, step=1))
    press(page, "Step")
    assert result(page)["step"] == 2 and "Done." in said(page)
    page.close()
    page = shared_stage.open(
        widgets.tile_replay(example=three_tokens(), block_q=2, block_k=1, algorithm="flash1", step=4)
    )
    # Keys outside: the last tile is query 3 and key 3, so step 4 of 5 is query 3 and key 2.
    assert "query 3 and key 2" in said(page)
    page.close()
    wide = shared_stage.open(
        widgets.tile_replay(8, block_q=8, block_k=1, is_causal=False, fast_memory=256, step=2)
    )
    first, second = tile_steps(*made_scores(8), block_q=8, block_k=1)[:2]
    factor = online.rescaling(first.state.row_max, second.state.row_max)
    query = int(np.argmin(factor))
    assert f"Query {query + 1} meets a larger score" in said(
        wide
    ) and f"multiplied by {factor[query]:.3f}" in said(wide)
    wide.close()


def test_settings(page):
    slide(page, "tokens T", "End")
    assert (
        state(page)["n"] == 16 and result(page)["steps"] == cost.tiles(16, 16, 2, 2, is_causal=True).visited
    )
    slide(page, "tokens T", "Home")
    assert state(page)["n"] == 2 and result(page)["tiles"]["all"] == 1
    slide(page, "tokens T", *["ArrowRight"] * 5)
    page.get_by_role("checkbox", name="causal").uncheck()
    slide(page, "keys per tile", "ArrowRight")
    page.get_by_label("keys outside (FlashAttention-1)").check()
    settle(page)
    got = result(page)
    wanted = cost.traffic("flash1", 7, 7, 4, block_q=2, block_k=3)
    assert (got["atTheEnd"]["loads"], got["atTheEnd"]["stores"]) == tuple(wanted)
    assert "stored first" in said(page)
    press(page, "To the end")
    assert "gain nothing" in said(page) and got["ratio"] < 1
    slide(page, "head width d", "ArrowLeft")
    got = result(page)
    assert state(page)["d"] == 3 and got["step"] == 0
    assert got["needed"] == cost.fast_memory(2, 3, 3)
    page.locator("summary").click()
    assert column(page, "attn-replay-tiles", 2) == ["whole"] * 12
    press(page, "Step", "Step")
    assert column(page, "attn-replay-tiles", 5)[:3] == ["done", "in fast memory", "waits"]
    page.locator("summary").click()


def test_what_does_not_fit_is_refused(page):
    press(page, "Step")
    before, words = state(page), said(page)
    slide(page, "queries per tile", *["ArrowRight"] * 3)
    message = page.locator(".attn-replay-refusal")
    needed = cost.fast_memory(5, 2, 4)
    assert (
        needed > 64
        and f"needs {needed} entries" in message.inner_text()
        and "holds 64" in message.inner_text()
    )
    slider = page.get_by_role("slider", name="queries per tile")
    assert slider.input_value() == "4" and state(page)["blockQ"] == 4
    slide(page, "queries per tile", "ArrowLeft", "ArrowLeft")
    assert message.inner_text() == ""
    press(page, "Step")
    assert (state(page), said(page)) == (before, words)
    slide(page, "fast memory", *["ArrowLeft"])
    assert (
        "needs 40 entries" in message.inner_text()
        and state(page)["memory"] == 64
        and state(page)["step"] == 1
    )
    assert page.get_by_role("slider", name="fast memory").get_attribute("aria-valuetext") == "64 entries"
    slide(page, "fast memory", "ArrowRight")
    slide(page, "queries per tile", *["ArrowRight"] * 3)
    assert state(page)["memory"] == 128 and state(page)["blockQ"] == 5


def until(page, step):
    for _ in range(100):
        if result(page)["step"] == step:
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"step {step} never came, it is {result(page)['step']}")


def test_play_and_pause(page):
    page.get_by_label("5", exact=True).check()
    play = page.locator(".attn-replay-play")
    sentence = page.locator(".attn-sentence")
    assert result(page)["step"] == 0, "nothing plays by itself"
    play.focus()
    page.keyboard.press("Enter")
    assert play.inner_text() == "Pause" and sentence.get_attribute("aria-live") == "off"
    until(page, 2)
    play.click()
    settle(page)
    at = result(page)["step"]
    assert play.inner_text() == "Play" and sentence.get_attribute("aria-live") == "polite"
    page.wait_for_timeout(450)
    assert result(page)["step"] == at
    play.click()
    # A hidden tab pauses; the page says that it is hidden as a browser does.
    page.evaluate(
        """() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true });
                   document.dispatchEvent(new Event('visibilitychange')); delete document.hidden; }"""
    )
    assert play.inner_text() == "Play"
    page.get_by_role("button", name="To the end").click()
    settle(page)
    play.click()
    until(page, 1)
    press(page, "To the end")
    assert play.inner_text() == "Play" and result(page)["step"] == 10
    press(page, "Back", "Back")
    play.click()
    until(page, 10)
    assert play.inner_text() == "Play"
    page.wait_for_timeout(300)
    assert result(page)["step"] == 10


def heights(page):
    return page.evaluate(
        """() => ['.attn-replay-panels', '.attn-replay-counts', '.attn-actions']
            .map((part) => document.querySelector('.attn-live ' + part).getBoundingClientRect().top)
            .map((top) => Math.round(top + scrollY))"""
    )


def test_nothing_jumps_and_redraws_are_quick(page):
    before = heights(page)
    for _ in range(10):
        press(page, "Step")
        assert heights(page) == before
    slide(page, "queries per tile", "End")
    assert page.locator(".attn-replay-refusal").inner_text() and heights(page) == before
    press(page, "Reset")
    slide(page, "queries per tile", "Home")
    slide(page, "keys per tile", "Home")
    took = answers_in_time(page, page.get_by_role("slider", name="tokens T"), ["16", "15"] * 4)
    print(took)


def test_links(page, shared_stage):
    first = state(page)
    slide(page, "tokens T", "ArrowLeft")
    page.get_by_label("keys outside (FlashAttention-1)").check()
    press(page, "Step", "Step")
    here, words = state(page), said(page)
    link = copied_link(page)
    assert len(link) < 700
    again = shared_stage.open(widgets.tile_replay(), link=link)
    assert state(again) == here and said(again) == words
    worked = first["worked"]
    wrong = {
        "example": ["four", None, ["made"]],
        "n": [1, 17, 2.5, "8", None],
        "d": [0, 65, "4"],
        "blockQ": [0, 9, 1.5],
        "blockK": [0, 9, "2"],
        "causal": [1, "true", None],
        "algorithm": ["flash3", "__proto__"],
        "memory": [16, 63, 1e9, "64"],
        "step": [-1, 11, 0.5],
        "speed": [3, "2", 1000],
        "worked": [
            None,
            [],
            worked | {"tokens": ["a"]},
            worked | {"scores": [[1]]},
            worked | {"tokens": ["<script>window.pwned = 1</script>"] * 3},
        ],
    }
    contents = [{key: bad} for key, all_bad in wrong.items() for bad in all_bad]
    refuses(again, "tile_replay", [*contents, {"example": "three"}, {"other": 1}], first)
    again.close()


def test_looks(shared_stage):
    for width, scheme in ((900, "light"), (390, "dark"), (390, "light"), (900, "dark"), (320, "light")):
        page = shared_stage.open(widgets.tile_replay(step=5), width=width, scheme=scheme)
        page.locator("summary").click()
        fits(page)
        if width != 320:
            axe_clean(page)
        page.close()
    page = shared_stage.open(widgets.tile_replay(16, step=30), width=320)
    fits(page)
    page.close()


def test_without_script_and_on_paper(shared_stage):
    still_without_script(
        shared_stage, widgets.tile_replay(), "plain attention", "384", "232", "tiles skipped"
    )


def test_arguments_are_checked():
    for bad in (
        {"n": 17},
        {"block_q": 0},
        {"block_k": 9},
        {"d": 65},
        {"algorithm": "x"},
        {"fast_memory": 100},
        {"step": 11},
    ):
        with pytest.raises(AttnError, match=next(iter(bad))):
            widgets.tile_replay(**bad)
    with pytest.raises(AttnError, match="needs 88 entries, fast_memory holds 64"):
        widgets.tile_replay(block_q=4, block_k=4)
    with pytest.raises(ShapeError, match="wanted 3"):
        widgets.tile_replay(example=cat_sleeps()._replace(tokens=("a", "b")))

"""The roofline explorer against attnlib.cost."""

import numpy as np
import pytest
from stage import call, result, settle, state
from widget_checks import answers_in_time, axe_clean, copied_link, fits, refuses, said, still_without_script

from attnlib import cost, widgets
from attnlib.errors import AttnError
from attnlib.widgets import _base
from attnlib.widgets._roofline import GPUS, LENGTHS

pytestmark = pytest.mark.browser
MIB = 2**20


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(widgets.roofline(), arithmetic=True)


@pytest.fixture
def page(one):
    one.get_by_role("button", name="Reset").click()
    settle(one)
    return one


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("n", "d", "block"), [(1, 1, 64), (128, 32, 256), (200, 3, 64), (384, 64, 128), (1536, 8, 64)]
)
def test_costs_are_the_librarys(one, n, d, block, causal, direction):
    how = {"direction": direction, "is_causal": causal}
    given = {"n": n, "d": d, "block": block, "causal": causal, "direction": direction}
    for algorithm in ("plain", "flash2"):
        got = call(one, "(A, given) => A.costOf(given)", given | {"algorithm": algorithm})
        sizes = (algorithm, n, n, d)
        tiles = {"block_q": block, "block_k": block}
        assert (got["loads"], got["stores"]) == tuple(cost.traffic(*sizes, **tiles, **how))
        assert got["flops"] == cost.executed_flops(*sizes, **tiles, **how)
        assert got["memory"] == cost.extra_memory(algorithm, n, n, direction=direction)
    conventional = call(one, "(A, given) => A.conventionalFlops(given)", given)
    assert abs(conventional - cost.flops(n, n, d, **how)) <= 0.5  # the library counts whole FLOPs
    work = {"flops": 7.5e9, "bytes": 3.2e8 / n}
    got = call(one, "(A, work) => A.rooflineOf(work, {peak: 65e12, bandwidth: 3e11})", work)
    limit = cost.roofline(work["flops"], work["bytes"], peak=65e12, bandwidth=3e11)
    assert got["limit"] == limit.limited_by
    np.testing.assert_allclose(
        [got["intensity"], got["ridge"], got["seconds"]], limit[:3], rtol=1e-12, atol=0
    )


def test_units(one, shared_stage):
    shared_stage.write("look.js", _base.read("look.js"))
    given = [(8589934592, "FLOP", 1000), (138412032, "B", 1024), (41.3e-6, "s", 1000), (999.6, "B", 1000)]
    given += [(0, "s", 1000), (1023.9, "B", 1024), (0.25, "s", 1000), (1, "B", 1024), (2e22, "FLOP", 1000)]
    got = [call(one, "(M, ...given) => M.withUnit(...given)", *x, module="look") for x in given]
    assert got == [
        "8.59 GFLOP",
        "132 MiB",
        "41.3 µs",
        "1 kB",
        "0 s",
        "1,020 B",
        "250 ms",
        "1 B",
        "20,000 EFLOP",
    ]


def slide(page, label, *keys):
    page.get_by_role("slider", name=label).focus()
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def pick(page, group, label):
    page.get_by_role("group", name=group).get_by_label(label, exact=True).check()
    settle(page)


def column(page, n):
    rows = page.locator(".attn-roof-table tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").nth(n).inner_text() for row in rows}


def test_the_facts(page):
    assert said(page).startswith(
        "Plain attention moves 132 MiB for 8.59 GFLOP: 62 FLOP per byte, below this chip's ridge at 295: "
        "the memory is the limit. In tiles of 128 queries 66 MiB are moved, 2.0 times fewer"
    )
    plain, tiles = column(page, 0), column(page, 1)
    assert plain["bytes moved"] == "132 MiB" and tiles["bytes moved"] == "66 MiB"
    assert (
        plain["memory beside in- and outputs"] == "64 MiB"
        and tiles["memory beside in- and outputs"] == "8 KiB"
    )
    pick(page, "queries per tile", "64")
    assert "no gain" in said(page) and "again for every 64 queries. Take larger tiles." in said(page)
    pick(page, "pass", "backward")
    pick(page, "queries per tile", "256")
    pick(page, "head width d", "256")
    pick(page, "pass", "forward")
    assert "Take larger" not in said(page)
    pick(page, "queries per tile", "64")
    pick(page, "pass", "backward")
    assert "more than that: the queries and their gradients travel again for every 64 keys" in said(page)
    page.get_by_role("button", name="Reset").click()
    settle(page)
    pick(page, "queries per tile", "64")
    ratio = result(page)["plain"]["bytes"] / result(page)["tiles"]["bytes"]
    assert 0.99 < ratio < 1.05
    pick(page, "queries per tile", "128")
    pick(page, "head width d", "64")
    assert "3.9 times fewer" in said(page)
    # The storage of one score matrix at two bytes an entry.
    for keys, words in (([], "32 MiB"), (["ArrowRight"] * 2, "128 MiB"), (["ArrowRight"] * 2, "512 MiB")):
        slide(page, "tokens n", *keys)
        assert (
            f"One score matrix of one head takes {words}." in page.locator(".attn-roof-remark").inner_text()
        )


def wanted(algorithm, s, machine):
    how = {
        "direction": s["direction"],
        "is_causal": s["causal"],
        "block_q": s["block"],
        "block_k": s["block"],
    }
    sizes = (algorithm, s["n"], s["n"], s["d"])
    flops = s["heads"] * cost.executed_flops(*sizes, **how)
    moved = s["heads"] * s["bytes"] * cost.traffic(*sizes, **how).total
    return flops, moved, cost.roofline(flops, moved, peak=machine[0], bandwidth=machine[1])


def agrees(page, machine):
    got, s = result(page), state(page)
    for name, algorithm in (("plain", "plain"), ("tiles", "flash2")):
        flops, moved, limit = wanted(algorithm, s, machine)
        assert (got[name]["flops"], got[name]["bytes"], got[name]["limit"]) == (
            flops,
            moved,
            limit.limited_by,
        )
        np.testing.assert_allclose(
            [got[name][k] for k in ("intensity", "ridge", "seconds")], limit[:3], rtol=1e-9, atol=0
        )
        assert column(page, ["plain", "tiles"].index(name))["the limit"] == limit.limited_by


def test_every_control(page):
    agrees(page, GPUS["H100"])
    for group, label, key, value in (
        ("head width d", "32", "d", 32),
        ("bytes an entry", "4", "bytes", 4),
        ("pass", "backward", "direction", "backward"),
        ("queries per tile", "256", "block", 256),
    ):
        pick(page, group, label)
        assert state(page)[key] == value
        agrees(page, GPUS["H100"])
    assert "peak is for 2-byte numbers" in page.locator(".attn-roof-remark").inner_text()
    page.get_by_role("checkbox", name="causal").check()
    slide(page, "heads", *["ArrowRight"] * 2)
    slide(page, "tokens n", *["ArrowLeft"] * 3)
    assert (state(page)["n"], state(page)["heads"], state(page)["causal"]) == (1536, 3, True)
    agrees(page, GPUS["H100"])
    for name, machine in GPUS.items():
        pick(page, "chip", name)
        agrees(page, machine)
    slide(page, "tokens n", "Home")
    agrees(page, GPUS["T4"])
    slide(page, "tokens n", "End")
    assert state(page)["n"] == max(LENGTHS) == 131072


def test_a_chip_of_your_own(page):
    pick(page, "chip", "your own")
    agrees(page, (1e11, 2e10))
    assert "the arithmetic is the limit" in said(page) and "The least time stays 85.9 ms" in said(page)
    peak = page.get_by_label("your own, TFLOP/s, number")
    words, before = said(page), state(page)
    for bad in ("0", "-3", "", "x", "1e9"):
        peak.fill(bad)
        settle(page)
        message = page.locator(".attn-editor .attn-message").inner_text()
        assert "The last valid number stays" in message and peak.get_attribute("aria-invalid") == "true"
        assert (said(page), state(page)) == (words, before)
    peak.fill("50")
    page.get_by_label("your own, GB/s, number").fill("1,5")
    settle(page)
    agrees(page, (5e13, 1.5e9))
    # This ridge lies outside the picture: it has no line.
    assert page.locator("line.attn-roof-ridge.attn-gone").count() == 1
    pick(page, "chip", "A100")
    peak.fill("7")
    settle(page)
    assert state(page)["chip"] == "your own", "typing a number chooses it"


def marks(page):
    """Where the two points stand, and the corner of the roof, in the picture's units."""
    return page.evaluate(
        """() => {
          const find = (kind) => document.querySelector('.attn-roof-' + kind);
          const pairs = (text) => text.match(/[\\d.]+ [\\d.]+/g).map((pair) => pair.split(' ').map(Number));
          const at = (kind) => pairs(find(kind).getAttribute('transform'))[0];
          return [at('plain'), at('tiles'), pairs(find('line').getAttribute('d'))];
        }"""
    )


def test_the_picture(page):
    for gpu in ("H100", "T4"):
        pick(page, "chip", gpu)
        got = result(page)
        plain, tiles, (left, corner, right) = marks(page)
        # Both axes are logarithmic with equal steps for equal ratios; the points lie on the roof.
        per_decade = (right[0] - left[0]) / 3
        for point, name in ((plain, "plain"), (tiles, "tiles")):
            x = left[0] + per_decade * np.log10(got[name]["intensity"])
            assert abs(point[0] - x) < 0.2
            y = left[1] + (corner[1] - left[1]) * (point[0] - left[0]) / (corner[0] - left[0])
            assert abs(point[1] - y) < 0.2
        assert abs(corner[0] - left[0] - per_decade * np.log10(got["plain"]["ridge"])) < 0.2
        assert corner[1] == right[1] < left[1]
        label = page.locator("svg.attn-roof").get_attribute("aria-label")
        assert f"meet at {got['plain']['ridge']:.0f} FLOP per byte" in label
        texts = page.locator("svg.attn-roof text").all_text_contents()
        assert f"plain {got['plain']['intensity']:.0f}" in texts
        assert f"ridge {got['plain']['ridge']:.0f}" in texts


def heights(page):
    return page.evaluate(
        """() => ['.attn-roof', '.attn-roof-table', '.attn-actions']
            .map((part) => document.querySelector('.attn-live ' + part).getBoundingClientRect().top)
            .map((top) => Math.round(top + scrollY))"""
    )


def test_nothing_jumps_and_redraws_are_quick(page):
    before = heights(page)
    for group, label in (
        ("queries per tile", "64"),
        ("chip", "your own"),
        ("bytes an entry", "4"),
        ("chip", "A100"),
    ):
        pick(page, group, label)
        assert heights(page) == before
    pick(page, "queries per tile", "64")
    took = answers_in_time(page, page.get_by_role("slider", name="tokens n"), ["20", "19"] * 4)
    print(took)


def test_links(page, shared_stage):
    first = state(page)
    pick(page, "chip", "T4")
    slide(page, "tokens n", "ArrowRight")
    here, words = state(page), said(page)
    link = copied_link(page)
    assert len(link) < 700
    again = shared_stage.open(widgets.roofline(), link=link)
    assert state(again) == here and said(again) == words
    wrong = {
        "n": [0, 129, "4096", 262144, None],
        "d": [1, "64"],
        "heads": [0, 129, 1.5, "2"],
        "bytes": [1, "2"],
        "causal": [1, None],
        "direction": ["sideways", "__proto__"],
        "block": [1, 512],
        "chip": ["B200", "<script>window.pwned = 1</script>", None],
        "own": [None, {"peak": 0, "bandwidth": 1}, {"peak": 1}, {"peak": "1", "bandwidth": 1}],
        "chips": [
            None,
            [],
            [{"name": "H100"}] * 4,
            "H100",
            [{"name": "x" * 99, "peak": 1, "bandwidth": 1}] * 4,
        ],
    }
    refuses(
        again, "roofline", [{"z": 1}, *({key: bad} for key, many in wrong.items() for bad in many)], first
    )
    again.close()


def test_looks(shared_stage):
    for width, scheme in ((900, "light"), (390, "dark"), (390, "light"), (900, "dark"), (320, "light")):
        page = shared_stage.open(widgets.roofline(), width=width, scheme=scheme)
        fits(page)
        if width != 320:
            axe_clean(page)
        page.close()


def test_without_script_and_on_paper(shared_stage):
    still_without_script(shared_stage, widgets.roofline(), "132.0", "66.0", "memory", "ridge stands at 295")
    # 4 heads of half the length: 4 · 4 · 2048² · 64 FLOPs, and S and P of each.
    text = widgets.roofline(2048, d=64, heads=4).static.text
    assert "4.29" in text and "64.00" in text


def test_arguments(shared_stage):
    page = shared_stage.open(widgets.roofline(2048, d=64, heads=4, peak=2e11, bandwidth=3e10))
    agrees(page, (2e11, 3e10))
    page.close()
    for bad in (
        {"n": 100},
        {"d": 5},
        {"heads": 0},
        {"bytes_per_entry": 3},
        {"direction": "x"},
        {"block_q": 1},
        {"gpu": "x"},
    ):
        with pytest.raises(AttnError, match=next(iter(bad))):
            widgets.roofline(**bad)
    for bad in ({"peak": 1e12}, {"peak": 0, "bandwidth": 1e9}, {"peak": 1e12, "bandwidth": float("nan")}):
        with pytest.raises(AttnError, match="peak|bandwidth"):
            widgets.roofline(**bad)

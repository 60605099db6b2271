"""The GPU explorer, with a recording made up here and without any, against attnlib.cost."""

import copy
import json

import numpy as np
import pytest
from stage import call, link, result, settle, state
from widget_checks import answers_in_time, axe_clean, copied_link, fits, refuses, said, still_without_script

from attnlib import bench, cost, widgets
from attnlib.errors import AttnError
from attnlib.widgets._gpu_explorer import METHODS, TOKENS
from attnlib.widgets._roofline import GPUS

pytestmark = pytest.mark.browser
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# TFLOP/s by length; the plain formula needs too much memory from 8192 on. Made up.
RATES = {
    "ours": (100, 200, 300, 350, 380, 400),
    "sdpa": (150, 250, 320, 352, 500, 520),
    "plain": (220, 60, 55, 54, None, None),
}
REASON = "its scores need 192.0 GiB, the limit is 69.5 GiB"


def made_up(name="NVIDIA H200"):
    rows = []
    for direction, slower in (("forward", 1), ("backward", 0.5)):
        for method, rates in RATES.items():
            for tokens, rate in zip(LENGTHS, rates, strict=True):
                row = {"method": method, "direction": direction, "tokens": tokens, "width": 128}
                row |= {"dtype": "bfloat16", "causal": True, "batch": 16384 // tokens, "heads": 16}
                if rate is None:
                    rows.append(row | {"reason": REASON})
                    continue
                flops = (
                    row["batch"] * 16 * cost.flops(tokens, tokens, 128, direction=direction, is_causal=True)
                )
                seconds = flops / (rate * slower * 1e12)
                times = {"seconds": seconds, "low": seconds / 1.1, "high": seconds * 1.25}
                rows.append(row | times | {"repeats": 20, "tflops": rate * slower, "ratio": 1.0})
    return {
        "machine": {"kind": "cuda", "name": name},
        "date": "2026-12-01",
        "commit": "0123456789abcdef",
        "command": "python tools/record_gpu.py",
        "versions": {"torch": "2.13.0", "triton": "3.7.1", "cuda": None},
        "settings": {"interpreter": False},
        "rows": rows,
    }


def recorded(**how):
    return widgets.gpu_explorer([made_up()], **how)


def published(**how):
    return widgets.gpu_explorer([], **how)


@pytest.fixture(scope="module")
def one(shared_stage):
    return shared_stage.open(recorded(), arithmetic=True)


@pytest.fixture(scope="module")
def other(shared_stage):
    return shared_stage.open(published())


def reset(page):
    page.get_by_role("button", name="Reset").click()
    settle(page)
    return page


@pytest.fixture
def page(one):
    return reset(one)


@pytest.fixture
def paper(other):
    return reset(other)


def pick(page, group, label):
    page.get_by_role("group", name=group).get_by_label(label, exact=True).check()
    settle(page)


def slide(page, *keys):
    page.get_by_role("slider", name="tokens T").focus()
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def rows(page):
    found = page.locator(".attn-gpu-table tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in found}


def wanted(s, block, peak, bandwidth):
    """TFLOP/s by the papers' count under the roofline, tiles of `block` loaded from memory."""
    how = {"direction": s["direction"], "is_causal": s["causal"]}
    sizes = ("flash2", s["tokens"], s["tokens"], s["d"])
    flops = cost.executed_flops(*sizes, block_q=s["block"], block_k=s["block"], **how)
    moved = cost.traffic(*sizes, block_q=block, block_k=block, **how).total
    bytes_each = 4 if s["dtype"] == "float32" else 2
    limit = cost.roofline(flops, bytes_each * moved, peak=peak, bandwidth=bandwidth)
    return cost.flops(*sizes[1:], **how) / limit.seconds / 1e12, limit


def agrees(page, chip):
    s, bounds = state(page), result(page)["bounds"]
    peak = bench.PEAKS[chip][s["dtype"]]
    assert bounds["peak"] == peak / 1e12
    for name, block in (("tiles", s["block"]), ("once", s["tokens"])):
        rate, limit = wanted(s, block, peak, GPUS[chip][1])
        np.testing.assert_allclose(bounds[name]["rate"], rate, rtol=1e-9, atol=0)
        assert bounds[name]["limit"] == limit.limited_by


# --- arithmetic ------------------------------------------------------------------------------------------


def test_who_is_ahead(one, shared_stage):
    # Imports of the module are resolved beside it: the widget's own file holds all of it.
    lines = [
        {"method": "a", "rates": [[1, 10], [2, 10], [4, 10], [8, 5]]},
        {"method": "b", "rates": [[1, 10.1], [2, 9], [8, 7]]},
    ]
    maps = "(M, lines) => M.leadersOf(lines.map((one) => ({ ...one, rates: new Map(one.rates) })))"
    assert call(one, maps, lines, module="gpu_explorer") == [
        {"from": 1, "to": 1, "methods": ["a", "b"]},  # 1 % apart: level
        {"from": 2, "to": 4, "methods": ["a"]},
        {"from": 8, "to": 8, "methods": ["b"]},
    ]
    ahead = "(M, a, b) => M.aheadOf(new Map(a), new Map(b))"
    a, b = (line["rates"] for line in lines)
    assert call(one, ahead, a, b, module="gpu_explorer") == {"both": [1, 2, 8], "ranges": [[2, 2]]}
    assert call(one, ahead, b, a, module="gpu_explorer")["ranges"] == [[8, 8]]
    assert call(one, ahead, [], a, module="gpu_explorer") == {"both": [], "ranges": []}
    assert call(one, maps, [], module="gpu_explorer") == []


# --- without a recording ---------------------------------------------------------------------------------


def test_published_figures_are_called_that(paper):
    assert said(paper).startswith(
        "No GPU has been recorded for this book yet: these figures are published ones, not measured here. "
        "FlashAttention-3, the fastest, is 1.84 times FlashAttention-2 and reaches 62 % of this chip's peak."
    )
    assert "tiles of 128 queries would allow 419 TFLOP/s (the memory is the limit): FlashAttention-3" in said(
        paper
    )
    assert "is above that" in said(paper)
    got = result(paper)
    assert got["kind"] == "published" and got["matching"]
    assert got["rates"] == {
        "FlashAttention-2": 335,
        "Triton kernel": 378,
        "cuDNN": 539,
        "FlashAttention-3": 616,
    }
    agrees(paper, "H100")
    assert rows(paper)["FlashAttention-3"] == ["616", "1.84", "62 %"]
    assert rows(paper)["the chip's peak"] == ["989", "2.95", "100 %"]
    assert "Shah et al. 2024" in paper.locator(".attn-gpu-note").inner_text()
    assert paper.locator(".attn-gpu-lines").is_hidden() and paper.locator("details").is_hidden()
    assert paper.get_by_role("group", name="results").count() == 0
    label = paper.locator(".attn-gpu-bars").get_attribute("aria-label")
    assert "published for T = 16,384, d = 128, causal, forward" in label and "cuDNN 539" in label
    widths = paper.locator(".attn-gpu-track > span").evaluate_all(
        "(all) => all.map((e) => e.getBoundingClientRect().width)"
    )
    shown = [*got["rates"].values(), got["bounds"]["tiles"]["rate"], got["bounds"]["once"]["rate"], 989]
    np.testing.assert_allclose(np.array(widths) / widths[-1], np.array(shown) / 989, atol=0.01)


def test_other_settings_have_no_published_figure(paper):
    before = heights(paper)
    for act in (
        lambda: pick(paper, "head width d", "64"),
        lambda: pick(paper, "pass", "backward"),
        lambda: pick(paper, "numbers", "float32"),
        lambda: paper.get_by_role("checkbox", name="causal").uncheck(),
        lambda: slide(paper, "ArrowLeft"),
    ):
        reset(paper)
        act()
        settle(paper)
        assert not result(paper)["matching"]
        assert "for your settings there is none, only a bound" in said(paper)
        assert "hold for T = 16,384, d = 128, causal, forward" in said(paper)
        assert "bounds for your settings" in paper.locator(".attn-gpu-table caption").inner_text()
        assert paper.locator(".attn-gpu-bars.attn-gpu-apart").count() == 1
        # The figures themselves stay what they are; bounds of other settings are not compared with them.
        assert rows(paper)["FlashAttention-3"][:2] == ["616", "1.84"]
        assert rows(paper)["bound: each number loaded once"][1] == "–"
        agrees(paper, "H100")
    assert heights(paper)[0] == before[0]
    reset(paper)
    pick(paper, "numbers", "float16")
    assert result(paper)["matching"], "published for 16 bits, either kind"
    pick(paper, "compare with", "cuDNN")
    assert rows(paper)["FlashAttention-3"][1] == "1.14" and "1.14 times cuDNN" in said(paper)
    pick(paper, "compare with", "FlashAttention-3")
    assert "the fastest, reaches 62 %" in said(paper)
    for block in ("64", "256"):
        pick(paper, "bound for tiles of", block)
        agrees(paper, "H100")
    assert "FlashAttention-3 reaches 75 % of it" in said(paper)
    assert paper.locator(".attn-gpu-apart").count() == 0
    for _ in TOKENS:
        slide(paper, "ArrowLeft")
        agrees(paper, "H100")
    assert state(paper)["tokens"] == 128


# --- with one --------------------------------------------------------------------------------------------


def test_a_recording(page):
    assert said(page).startswith(
        "Recorded on NVIDIA H200. At T = 16,384 our kernel makes 400 TFLOP/s, 0.77 times SDPA's default, "
        "40 % of the chip's peak; the fastest is SDPA's default with 520. If every tile came from the "
    )
    assert (
        page.locator(".attn-gpu-words")
        .inner_text()
        .startswith(
            "Fastest: the plain formula at T = 512; SDPA's default from T = 1,024 to 2,048; "
            "our kernel and SDPA's default at T = 4,096; SDPA's default from T = 8,192 up."
        )
    )
    assert rows(page)["our kernel"] == ["400", "0.77", "40 %"]
    assert rows(page)["the plain formula"] == ["–"] * 3
    assert f"Not measured: the plain formula ({REASON})." in page.locator(".attn-gpu-words").inner_text()
    assert (
        "2026-12-01, torch 2.13.0, Triton 3.7.1, commit 01234567"
        in page.locator(".attn-gpu-note").inner_text()
    )
    agrees(page, "H200")
    for n, tokens in reversed(list(enumerate(LENGTHS))):
        assert state(page)["tokens"] == tokens
        rates = {METHODS[name][0]: line[n] for name, line in RATES.items() if line[n]}
        assert result(page)["rates"] == rates
        base = rates["SDPA's default"]
        assert result(page)["ratios"] == pytest.approx({name: x / base for name, x in rates.items()})
        slide(page, "ArrowLeft")
    assert "Nothing was recorded for T = 256, d = 128, causal, forward, bfloat16" in said(page)
    assert not result(page)["matching"]
    reset(page)
    assert (
        "ahead of SDPA's default: the plain formula at T = 512."
        in page.locator(".attn-gpu-words").inner_text()
    )
    pick(page, "compare with", "the plain formula")
    ahead = page.locator(".attn-gpu-words").inner_text()
    assert "the plain formula: our kernel from T = 1,024 up; SDPA's default from T = 1,024 up." in ahead
    assert rows(page)["our kernel"][1] == "–", "nothing to compare with at this length"
    pick(page, "compare with", "our kernel")
    assert "SDPA's default up to T = 2,048 and from T = 8,192 up; the plain formula at T = 512." in (
        page.locator(".attn-gpu-words").inner_text()
    )
    pick(page, "pass", "backward")
    assert result(page)["rates"]["our kernel"] == 200 and "tiles of 128 keys" in said(page)
    agrees(page, "H200")
    for group, label in (("head width d", "64"), ("numbers", "float32")):
        reset(page)
        pick(page, group, label)
        assert result(page)["rates"] == {} and "Nothing was recorded for" in said(page)
        agrees(page, "H200")
    assert "the chip's peak (TF32)" in rows(page)


def test_the_lines(page):
    marks = page.evaluate(
        """() => [...document.querySelectorAll('path.attn-gpu-mark')].map((mark) =>
            [...mark.getAttribute('transform').matchAll(/[\\d.]+/g)].map(Number))"""
    )
    flat = [(t, r) for line in RATES.values() for t, r in zip(LENGTHS, line, strict=True) if r is not None]
    assert len(marks) == len(flat)
    x, y = np.array(marks).T
    tokens, rates = np.array(flat, dtype=float).T
    # Equal steps for equal ratios of T; height in proportion to the rate.
    for got, asked in ((x, np.log2(tokens)), (y, rates)):
        slope, start = np.polyfit(asked, got, 1)
        assert abs(slope * asked + start - got).max() < 0.15
    texts = page.locator("svg.attn-gpu-lines text").all_text_contents()
    assert {"ours", "SDPA", "plain", "peak 989", "bound: tiles of 128"} <= set(texts)
    ends = sorted(
        page.locator(".attn-gpu-end").evaluate_all("(all) => all.map((e) => Number(e.getAttribute('y')))")
    )
    assert min(np.diff(ends)) >= 25, "names do not touch"
    assert page.locator(".attn-gpu-here").count() == 1
    slide(page, "Home")
    assert page.locator(".attn-gpu-here").count() == 0
    # All of it as a table too.
    page.locator("summary").press("Enter")
    cells = page.locator(".attn-gpu-all tbody tr").nth(0).locator("td").all_inner_texts()
    assert cells[-1] == "400 (320 – 440)" and len(cells) == len(LENGTHS)
    page.locator("summary").press("Enter")


def test_from_one_source_to_the_other(page):
    pick(page, "results", "H100 SXM5, published")
    assert said(page).startswith("Published figures, not measured for this book. FlashAttention-3")
    assert state(page)["baseline"] == "FlashAttention-2" and page.locator(".attn-gpu-lines").is_hidden()
    assert page.get_by_role("group", name="compare with").count() == 1
    agrees(page, "H100")
    pick(page, "results", "NVIDIA H200, recorded")
    assert state(page)["baseline"] == "SDPA's default" and page.locator(".attn-gpu-bars").is_hidden()


def test_a_chip_that_nobody_knows(shared_stage):
    page = shared_stage.open(
        widgets.gpu_explorer([made_up("Some GPU"), made_up("NVIDIA H100 PCIe"), made_up("Some GPU")])
    )
    assert "This chip's peak is not known here." in said(page)
    assert rows(page)["the chip's peak"] == ["–"] * 3 and rows(page)["our kernel"] == ["400", "0.77", "–"]
    pick(page, "results", "NVIDIA H100 PCIe, recorded")
    assert "The memory's speed of this chip is not known here" in said(page)
    assert result(page)["bounds"] == {"peak": 756, "tiles": None, "once": None}
    pick(page, "results", "Some GPU, recorded (3)")
    page.close()


# --- what every widget holds -----------------------------------------------------------------------------


def heights(page):
    return page.evaluate(
        """() => ['.attn-gpu-table', '.attn-actions']
            .map((part) => document.querySelector('.attn-live ' + part).getBoundingClientRect().top)
            .map((top) => Math.round(top + scrollY))"""
    )


def test_nothing_jumps_and_redraws_are_quick(page, paper):
    for tab in (page, paper):
        before = heights(tab)
        for group, label in (
            ("head width d", "64"),
            ("bound for tiles of", "256"),
            ("pass", "backward"),
            ("head width d", "128"),
        ):
            pick(tab, group, label)
            assert heights(tab) == before
        reset(tab)
    print(answers_in_time(page, page.get_by_role("slider", name="tokens T"), ["4", "5"] * 4))


def test_links(page, shared_stage):
    first = state(page)
    pick(page, "pass", "backward")
    pick(page, "compare with", "the plain formula")
    slide(page, "ArrowLeft")
    here, words = state(page), said(page)
    address = copied_link(page)
    assert len(address) < 300, "the results are not in it"
    again = shared_stage.open(recorded(), link=address)
    assert state(again) == here and said(again) == words
    # A link cannot bring results of its own, not even right ones.
    faked = copy.deepcopy(first["sources"])
    faked[0]["series"][0]["points"][0][1] = 900
    wrong = {
        "source": ["H200", None, "<script>window.pwned = 1</script>"],
        "tokens": [0, 100, "4096", 262144, None],
        "d": [1, "64"],
        "causal": [1, None],
        "direction": ["sideways", "__proto__"],
        "dtype": ["int8", None],
        "block": [1, 512],
        "baseline": ["FlashAttention-3", "cuDNN", None],
        "recorded": [0, 1, 9],
        "sources": [None, [], "x", faked[:1], first["sources"][1:]],
    }
    refuses(
        again, "gpu_explorer", [{"z": 1}, *({key: bad} for key, many in wrong.items() for bad in many)], first
    )
    again.close()
    # Nor can a link made where there was a recording name it where there is none.
    bare = shared_stage.open(published(), link=link("gpu_explorer", {"source": first["source"]}))
    assert result(bare)["kind"] == "published"
    bare.close()


def test_state_of_the_wrong_shape():
    """What the page itself brings is checked in Python as well as, in test_widget_limits, in the browser."""
    broken = recorded()
    sources = copy.deepcopy(broken.state["sources"])
    sources[0]["series"][0]["points"][0] = [512, 1e9, 1, 1]
    with pytest.raises(AttnError, match="a rate is 1000000000.0, wanted a number from 0 to"):
        broken.state = broken.state | {"sources": sources}


def test_looks(shared_stage):
    for make in (recorded, published):
        for width, scheme in ((900, "light"), (390, "dark"), (320, "light")):
            page = shared_stage.open(make(), width=width, scheme=scheme)
            if make is recorded:
                page.locator("summary").click()
            fits(page)
            if width != 320:
                axe_clean(page)
            page.close()


def test_without_script_and_on_paper(shared_stage):
    still_without_script(
        shared_stage, published(), "616", "1.84", "419", "989", "Published, not measured", "Shah et al. 2024"
    )
    text = recorded(tokens=512).static._repr_mimebundle_()["text/html"]
    assert "Recorded: NVIDIA H200" in text and "220" in text and "0.67" in text


# --- Python ----------------------------------------------------------------------------------------------


def test_files(tmp_path):
    assert widgets.gpu_explorer(folder=tmp_path / "nowhere").state["recorded"] == 0
    (tmp_path / "a.json").write_text(json.dumps(made_up()), encoding="utf-8")
    (tmp_path / "b.json").write_text(
        json.dumps(made_up("Tesla T4") | {"rows": made_up()["rows"][-2:]}), encoding="utf-8"
    )
    found = widgets.gpu_explorer(folder=tmp_path).state
    assert [one["name"] for one in found["sources"]] == [
        "NVIDIA H200, recorded",
        "Tesla T4, recorded",
        "H100 SXM5, published",
    ]
    assert found["recorded"] == 2 and found["source"] == "NVIDIA H200, recorded"
    (tmp_path / "c.json").write_text("{", encoding="utf-8")
    with pytest.raises(AttnError, match=r"c\.json is not JSON"):
        widgets.gpu_explorer(folder=tmp_path)


def test_recordings_that_are_not_to_be_believed():
    def changed(**parts):
        return [made_up() | parts]

    row = made_up()["rows"][0]
    for bad, why in (
        (changed(machine={"kind": "cpu", "name": "x"}), "not recorded on a GPU"),
        (changed(settings={"interpreter": True}), "not recorded on a GPU"),
        (changed(fault="ours is off by 3"), "ended by a fault: ours is off by 3"),
        (changed(rows=[row | {"tflops": 1500}]), "above its chip's 989"),
        (changed(rows=[row | {"tflops": float("nan")}]), "is no rate"),
        (changed(rows=[row | {"low": 0}]), "not a recording"),
        (changed(rows=[row | {"method": "magic"}]), "unknown method"),
        (changed(rows=[]), "no rows"),
        ([{}], "not a recording"),
        ([7], "not a recording"),
        ([made_up()] * 8, "at most 7"),
    ):
        with pytest.raises(AttnError, match=why):
            widgets.gpu_explorer(bad)
    for bad in ({"tokens": 100}, {"d": 5}, {"direction": "x"}, {"dtype": "int8"}, {"block_q": 1}):
        with pytest.raises(AttnError, match=next(iter(bad))):
            published(**bad)

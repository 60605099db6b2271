"""The built site in Chromium: no word to another host, axe clean, whole if small, dark or without script."""

import functools
import http.server
import json
import os
import threading
from pathlib import Path

import check_site
import pytest
from widget_checks import axe_source

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.browser

SITE = Path(os.environ.get("SITE_DIR", ROOT / "_build" / "html"))
NAMES = check_site.read_contents(ROOT)
WITH_WIDGETS = [
    f"{name}.html"
    for name in NAMES
    if (ROOT / f"{name}.ipynb").is_file()
    and "data-widget" in (ROOT / f"{name}.ipynb").read_text(encoding="utf-8")
]
PAGES = [f"{name}.html" for name in NAMES] + ["search.html?q=softmax", "404.html"]
# The tightest policy under which the site works; a violation is an error in the console, and fails the test.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"
)
AXE_OPTIONS = {"rules": {"label-content-name-mismatch": {"enabled": True}}, "resultTypes": ["violations"]}


class Handler(http.server.SimpleHTTPRequestHandler):
    """A plain file server with the policy above and the site's own page for what is not there."""

    def end_headers(self):
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def send_error(self, code, message=None, explain=None):
        body = (SITE / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    if not (SITE / "404.html").is_file():
        pytest.fail(
            f"no built site at {SITE}: run `make book` (or `jupyter-book build .`) first", pytrace=False
        )
    handler = functools.partial(Handler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def visit(browser, address):
    """Open a page; on leaving, no request may have gone to another host and the console must be quiet."""
    contexts, faults = [], []

    def watch(route):
        if route.request.url.startswith((address, "data:")):
            route.continue_()
        else:
            faults.append(f"asked another host: {route.request.url}")
            route.abort()

    def visit(page, width=1280, scheme="light", script=True, height=900):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=script,
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.route("**/*", watch)
        tab = context.new_page()
        tab.on(
            "console", lambda message: message.type in {"error", "warning"} and faults.append(message.text)
        )
        tab.on(
            "response", lambda answer: answer.status >= 400 and faults.append(f"{answer.status} {answer.url}")
        )
        tab.on("pageerror", lambda error: faults.append(f"script error: {error}"))
        tab.goto(f"{address}/{page}", wait_until="load")
        return tab

    visit.faults = faults
    yield visit
    for context in contexts:
        context.close()
    assert faults == []


# Colours are the slow rule: two thousand spans of code on a page, in a dozen styles. One element of each
# combination of text colour, size, weight and background stands for all; AXE_FULL=1 looks at every one.
MARK_STYLES = """() => {
  const seen = new Set();
  for (const item of document.querySelectorAll("body *")) {
    item.removeAttribute("data-style-sample");
    if (![...item.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    if (!item.checkVisibility()) continue;
    const style = getComputedStyle(item), key = [style.color, style.fontSize, style.fontWeight];
    for (let box = item; box; box = box.parentElement) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(box);
      key.push(backgroundColor, backgroundImage, opacity);
    }
    const name = key.join();
    if (!seen.has(name)) item.setAttribute("data-style-sample", "");
    seen.add(name);
  }
  return seen.size;
}"""


def violations(tab, *, structure=True):
    """What axe finds on the page as it stands, a line for each element; structure on demand."""
    if not tab.evaluate("typeof axe !== 'undefined'"):
        tab.evaluate(axe_source())
    if os.environ.get("AXE_FULL"):
        runs = [("document", AXE_OPTIONS)]
    else:
        assert tab.evaluate(MARK_STYLES) > 0
        runs = [("{ include: [['[data-style-sample]']] }", {"runOnly": ["color-contrast"]})]
        if structure:
            off = {"color-contrast": {"enabled": False}}
            runs.append(("document", {**AXE_OPTIONS, "rules": {**AXE_OPTIONS["rules"], **off}}))
    found = []
    for where, options in runs:
        found += tab.evaluate(f"options => axe.run({where}, options)", options)["violations"]
    return [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]]


def open_folds(tab):
    tab.evaluate("for (const part of document.querySelectorAll('main details')) part.open = true")
    tab.evaluate("document.fonts.ready")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", PAGES)
def test_axe_in_both_themes(visit, page, width):
    tab = visit(page, width)
    open_folds(tab)
    for theme in ("light", "dark"):
        tab.emulate_media(color_scheme=theme)
        if page != "404.html":
            tab.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
        assert violations(tab, structure=theme == "light") == [], theme


@pytest.mark.parametrize("page", PAGES)
def test_nothing_scrolls_sideways_on_a_phone(visit, page):
    tab = visit(page, width=320, height=700)
    open_folds(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    stuck = tab.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(box =>
             box.scrollWidth > box.clientWidth + 1 && box.clientWidth > 0
             && ["auto", "scroll"].includes(getComputedStyle(box).overflowX)
             && box.tabIndex < 0 && !box.querySelector("a, button, [tabindex='0']")
           ).map(box => box.outerHTML.slice(0, 120))"""
    )
    assert stuck == []  # each box that scrolls is reached by keyboard
    lost = tab.evaluate(
        """() => [...document.querySelectorAll(
             "main :is(p, li, h1, h2, h3, figcaption, td, summary, math, svg)")].filter(item => {
             const right = item.getBoundingClientRect().right;
             if (right <= 321 || item.getBoundingClientRect().width === 0) return false;
             for (let box = item.parentElement; box; box = box.parentElement)
               if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return false;
             return true;
           }).map(item => item.outerHTML.slice(0, 120))"""
    )
    assert lost == []  # nothing is cut off at the edge either
    broken = tab.evaluate(
        """() => [...document.querySelectorAll("main table.table code .pre")]
             .filter(word => word.getClientRects().length > 1).map(word => word.textContent)"""
    )
    assert broken == []  # names in tables stay in one piece


def test_a_phone_shows_each_download_at_once(visit):
    tab = visit("book/assignments.html", width=390, height=800)
    links = tab.locator("main table a.download")
    assert links.count() == 5
    for link in links.all():
        box = link.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


@pytest.mark.parametrize("page", [f"{name}.html" for name in NAMES])
def test_complete_without_script(visit, page):
    tab = visit(page, script=False)
    assert tab.locator("main h1").is_visible()
    assert tab.locator(".pst-js-only:visible").count() == 0
    hidden = tab.evaluate(
        """() => [...document.querySelectorAll(
             "main :is(p, math, svg[role=img], table, .cell_output)")].filter(item => {
             if (item.parentElement.closest("details:not([open])") || !item.innerHTML.trim()) return false;
             if (item.querySelector(":scope > .visually-hidden")) return false;
             const box = item.getBoundingClientRect();
             return box.width === 0 || box.height === 0;
           }).map(item => item.outerHTML.slice(0, 120))"""
    )
    assert hidden == []


def test_formulas_use_the_font_of_the_site(visit):
    tab = next(tab for tab in (visit(f"{name}.html") for name in NAMES) if tab.locator("main math").count())
    tab.evaluate("document.fonts.ready")
    loaded = tab.evaluate(
        "[...document.fonts].filter(font => font.status === 'loaded').map(font => font.family)"
    )
    assert any("STIX Two Math" in family for family in loaded)


def test_theme_switch(visit):
    tab = visit(PAGES[0])
    button = tab.locator(".theme-switch-button:visible").first
    seen = set()
    for _ in range(3):
        button.click()
        seen.add(
            (
                tab.evaluate("document.documentElement.dataset.mode"),
                tab.evaluate("document.documentElement.dataset.theme"),
            )
        )
    assert seen == {("light", "light"), ("dark", "dark"), ("auto", "light")}
    while tab.evaluate("document.documentElement.dataset.mode") != "dark":
        button.click()
    assert "dark" in button.get_attribute("aria-label")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 30)"
    tab.reload()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"  # the choice is kept


def test_search_finds_softmax(visit):
    tab = visit(PAGES[0])
    tab.keyboard.press("Control+k")
    tab.locator("#pst-search-dialog input").fill("softmax")
    tab.keyboard.press("Enter")
    result = tab.locator("#search-results li a").first
    result.wait_for(timeout=10_000)
    result.click()
    tab.wait_for_load_state()
    assert "softmax" in tab.locator("main").inner_text().lower()


def test_folds_open_by_keyboard(visit):
    for name in NAMES:
        tab = visit(f"{name}.html")
        if tab.locator("main details summary").count():
            break
    else:
        pytest.fail("no page has a fold: where are the solutions?")
    fold = tab.locator("main details").first
    fold.locator("summary").first.focus()
    before = fold.evaluate("part => part.open")
    tab.keyboard.press("Enter")
    assert fold.evaluate("part => part.open") is not before


def test_contents_open_on_a_phone(visit):
    tab = visit(PAGES[0], width=390, height=800)
    link = tab.locator("nav.bd-links a").last
    assert not link.is_visible()
    tab.locator(".primary-toggle").click()
    link.wait_for(state="visible")
    tab.keyboard.press("Escape")
    assert not link.is_visible()


def test_code_wraps_on_paper(visit):
    for name in NAMES:
        tab = visit(f"{name}.html", width=700)
        if tab.locator("main pre").count():
            break
    tab.emulate_media(media="print")
    wide = tab.evaluate(
        "[...document.querySelectorAll('main pre')].filter(p => p.scrollWidth > p.clientWidth + 1).length"
    )
    assert wide == 0
    assert tab.locator(".article-header-buttons").is_hidden()


def test_missing_page_leads_home(visit):
    tab = visit("no/such/page.html")
    visit.faults[:] = [
        fault for fault in visit.faults if "404" not in fault
    ]  # the browser reports the status
    assert tab.locator("h1").is_visible()
    tab.locator("main a").first.click()
    tab.wait_for_load_state()
    assert tab.url.endswith(f"{NAMES[0]}.html")
    assert tab.locator("main h1").is_visible()


# The checks bite


def test_a_word_to_another_host_is_found(visit):
    tab = visit(PAGES[0])
    tab.evaluate("document.body.append(Object.assign(new Image(), { src: 'https://example.org/a.png' }))")
    tab.wait_for_timeout(300)
    assert any("example.org" in fault for fault in visit.faults)
    visit.faults.clear()


def test_an_axe_fault_is_found(visit):
    tab = visit("404.html")
    tab.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any(line.startswith("button-name") for line in violations(tab))


def test_a_pale_word_is_found(visit):
    tab = visit(PAGES[0])
    tab.evaluate("document.querySelector('main p').innerHTML += '<b style=\"color: #aaa\">pale</b>'")
    assert any("color-contrast" in line and "pale" in line for line in violations(tab, structure=False))


@pytest.mark.parametrize("page", WITH_WIDGETS)
def test_every_widget_of_a_page_starts(visit, page):
    tab = visit(page)
    places = tab.locator(".attn-widget[data-widget]")
    assert places.count() >= 1
    for n in range(places.count()):
        place = places.nth(n)
        place.locator("section.attn-live .attn-sentence").wait_for()
        assert place.locator(".attn-sentence").inner_text().strip()
        assert not place.locator(".attn-static").is_visible()
    # Each widget brings its own copy of the controls: their names and ids must not meet.
    groups = tab.locator(".attn-choice:visible")
    assert groups.count() > 1
    for n in range(groups.count()):
        assert groups.nth(n).locator("input:checked").count() == 1, groups.nth(n).inner_text()
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((item) => item.id)")
    assert len(ids) == len(set(ids)), sorted(name for name in ids if ids.count(name) > 1)
    # One that listens: the strip answers to a wrong scale.
    strip = tab.locator('.attn-widget[data-widget="strip"]')
    if strip.count():
        strip.get_by_role("group", name="scale").get_by_label("none", exact=True).check()
        strip.locator(".attn-sentence", has_text="0.980 instead of 0.844").wait_for()


def test_pages_without_a_widget_load_none_of_their_code(visit):
    for page in PAGES:
        if page in WITH_WIDGETS:
            continue
        tab = visit(page)
        loaded = tab.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert not [name for name in loaded if "/widgets/" in name], page


def test_without_script_each_widget_is_a_still_figure(visit):
    for page in WITH_WIDGETS:
        tab = visit(page, script=False)
        stills = tab.locator(".attn-widget .attn-static")
        assert stills.count() >= 1
        for n in range(stills.count()):
            assert stills.nth(n).is_visible() and stills.nth(n).inner_text().strip()


@pytest.mark.parametrize("page", WITH_WIDGETS)
def test_widgets_live_on_a_page_opened_as_a_file(browser, page):
    context = browser.new_context()
    tab = context.new_page()
    faults = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto((SITE / page).resolve().as_uri())
    wanted = tab.locator(".attn-widget").count()
    assert wanted >= 1
    tab.locator("section.attn-live .attn-sentence").nth(wanted - 1).wait_for()
    assert tab.locator("section.attn-live").count() == wanted
    assert faults == []
    context.close()


def test_the_downloaded_notebook_knows_where_it_came_from(visit, address):
    """A3, F19: its install line needs nothing filled in; without script it is the file as it was baked."""
    tab = visit("book/03_scaling.html")
    for _ in range(2):  # the second time it is there already
        with tab.expect_download() as download:
            tab.locator(".notebook-button").first.click()
        assert download.value.suggested_filename == "03_scaling.ipynb"
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert f"attnlib[widgets] @ {address}/attnlib-" in text and "SITE" not in text
    baked = (ROOT / "book" / "03_scaling.ipynb").read_text(encoding="utf-8")
    assert len(json.loads(text)["cells"]) == len(json.loads(baked)["cells"])


def test_the_page_that_says_how_to_run_it_has_the_address(visit, address):
    lines = visit("book/run_it_yourself.html").locator("main pre", has_text="attnlib[widgets]")
    assert lines.count() == 2
    assert all(f"{address}/attnlib-" in line for line in lines.all_inner_texts())
    assert "https://SITE/" in visit("book/run_it_yourself.html", script=False).locator("main").inner_text()

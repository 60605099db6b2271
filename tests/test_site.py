"""The built HTML: what a reader gets, checked without a browser. Build the site first (make book)."""

import doctest
import os
import re
from pathlib import Path

import check_site
import pytest
import texmath
import webfont

ROOT = Path(__file__).resolve().parent.parent

SITE = Path(os.environ.get("SITE_DIR", ROOT / "_build" / "html"))
NAMES = check_site.read_contents(ROOT)
PAGES = [f"{name}.html" for name in NAMES] + ["search.html", "404.html", "index.html"]
HEAD = (
    '<html lang="en"><head><title>A page</title>'
    '<meta name="description" content="A page about one step of attention."></head><body>'
)


@pytest.fixture(scope="session")
def pages():
    if not (SITE / "404.html").is_file():
        pytest.fail(
            f"no built site at {SITE}: run `make book` (or `jupyter-book build .`) first", pytrace=False
        )
    built = (SITE / "404.html").stat().st_mtime  # every build writes this file
    sources = [
        *ROOT.glob("_*.yml"),
        *ROOT.glob("book/*.ipynb"),
        *ROOT.glob("book/[!0-9]*.md"),
        *ROOT.glob("tools/*site*"),
    ]
    newest = max(sources, key=lambda file: file.stat().st_mtime)
    if "SITE_DIR" not in os.environ and newest.stat().st_mtime > built:
        pytest.fail(
            f"the site is older than {newest.relative_to(ROOT)}: build it again (make book)", pytrace=False
        )
    return check_site.read_pages(SITE)


# The built site


@pytest.mark.parametrize("name", PAGES)
def test_page(pages, name):
    assert name in pages, f"{name} was not built"
    assert check_site.page_faults(pages[name]) == []


def test_no_page_beside_the_contents(pages):
    """The edited sources, the README and the like are not built."""
    assert sorted(pages) == sorted(PAGES)


def test_contents_and_neighbours(pages):
    assert check_site.contents_faults(pages, NAMES) == []


def test_B23_a_chapter_carries_the_number_of_its_file(pages):
    numbered = {name: re.search(r"book/(\d+)_", name) for name in pages}
    for name, number in numbered.items():
        if number and int(number[1]):
            heading = re.search(r'<h1><span class="section-number">(\d+)\.', pages[name])
            assert heading and int(heading[1]) == int(number[1]), name


def test_links_and_anchors(pages):
    assert check_site.dead_links(SITE, pages) == []


def test_style_sheets_and_scripts(pages):
    assert check_site.asset_faults(SITE) == []


def test_notebooks(pages):
    assert check_site.notebook_faults(SITE, pages, NAMES, ROOT) == []


def test_weights(pages):
    heavy = {
        name: size for name, size in check_site.weights(SITE, pages).items() if size > check_site.PAGE_BUDGET
    }
    assert heavy == {}


def test_chapters_are_built_from_their_notebooks(pages):
    """Outputs are stored in the notebook; a page without any came from the wrong file."""
    for name in NAMES:
        if (ROOT / f"{name}.ipynb").is_file():
            page = check_site.parse(pages[f"{name}.html"])
            assert page.select(".cell_output"), f"{name}: no outputs"
            assert (SITE / "_sources" / f"{name}.ipynb").is_file()


def test_library_styles_come_from_the_library(pages):
    from attnlib import palette

    assert (SITE / "_static" / "palette.css").read_text(encoding="utf-8") == palette.css()
    (show,) = (ROOT / "attnlib").rglob("show.css")
    assert (SITE / "_static" / "show.css").read_bytes() == show.read_bytes()
    for name in NAMES:
        (link,) = check_site.parse(pages[f"{name}.html"]).select("link[rel=stylesheet]")
        joined = (SITE / f"{name}.html").parent.joinpath(link["href"]).read_text(encoding="utf-8")
        for sheet in ("palette.css", "show.css", "book.css"):
            assert sheet in link["data-parts"].split()
        assert palette.css().strip() in joined and show.read_text(encoding="utf-8").strip() in joined


def test_citations_lead_to_their_works(pages):
    """Each says what it cites, as before, when notebooks still had roles: 93 of them."""
    works = check_site.parse(pages["book/bibliography.html"])
    links = [
        link
        for name in NAMES
        for link in check_site.parse(pages[f"{name}.html"]).select('main a[href*="bibliography.html#"]')
    ]
    assert len(links) >= 93
    for link in links:
        work = works.find(id=link["href"].split("#")[1])
        name = re.match(r"[\w-]+", link.get_text())[0]
        words = "".join(work.get_text().split())
        assert name in words and "".join(link["title"].split()) in words, link
    assert len(works.select(".citation")) == 30


def test_exercises_are_no_headings_of_a_page(pages):
    """In a notebook they are, because a heading ends the fold above it; a page's contents would swell."""
    page = check_site.parse(pages["book/03_scaling.html"])
    assert not [h for h in page.find_all(["h3", "h4"]) if re.match("Exercise|Solution", h.get_text())]
    exercises = page.select("main p > strong:first-child")
    assert [e.get_text() for e in exercises if "Exercise" in e.get_text()] == [
        f"Exercise {n}." for n in range(1, 6)
    ]
    assert not page.find(string=re.compile("To run this notebook"))


def test_assignments_are_offered_as_files(pages):
    page = check_site.parse(pages["book/assignments.html"])
    files = [SITE / "book" / link["href"] for link in page.select('main a[href*="_downloads"]')]
    assert len(files) == 5 and all(file.is_file() for file in files)


def test_theme_leftovers_are_gone(pages):
    left = [
        path.name
        for pattern in ("fontawesome.js", "bootstrap.js", "*.map", "*.ttf")
        for path in SITE.rglob(pattern)
    ]
    assert left == []


def test_not_found_page_stands_alone(pages):
    """Served at any depth: nothing relative, nothing to load, and a way home."""
    page = check_site.parse(pages["404.html"])
    assert not page.find_all(["script", "img"]) and not page.select("link[rel=stylesheet]")
    links = [tag["href"] for tag in page.find_all("a")]
    assert len(links) == len(NAMES) and all(link.startswith("/") for link in links)
    assert links[0].endswith(f"{NAMES[0]}.html")


def test_math_font_has_every_sign(pages):
    from fontTools.ttLib import TTFont

    with TTFont(SITE / "_static" / "stix-two-math.woff2") as font, TTFont(texmath.FONT) as whole:
        have, possible = font.getBestCmap(), whole.getBestCmap()
        needed = webfont.math_characters(pages.values())
        assert "MATH" in font
        assert {chr(code) for code in needed if code in possible and code not in have} == set()


# The checks bite: one planted fault each


def test_a_good_page_has_no_fault():
    assert (
        check_site.page_faults(HEAD + "<main><h1>A</h1><h2>B</h2><p>Cost: $5.</p></main></body></html>") == []
    )


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "another host"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "another host"),
        ('<img src="http://example.org/a.png" alt="a">', "another host"),
        ('<img srcset="https://example.org/a.png 2x" src="a.png" alt="a">', "another host"),
        ("<style>@import 'https://example.org/a.css';</style>", "another host"),
        ('<p style="background: url(https://example.org/a.png)">a</p>', "another host"),
        ('<script>import("https://example.org/a.mjs")</script>', "another host"),
        ("<script>let a = 1</script>", "inline script"),
        ('<button onclick="go()">a</button>', "inline handler"),
        ('<img src="a.png">', "without alt"),
        ('<svg role="img" aria-label=" "></svg>', "without aria-label"),
        ("<svg></svg>", "neither"),
        ('<div class="cell_output"><pre>Traceback (most recent call last):</pre></div>', "failure"),
        ('<div class="cell_output"><pre>ValueError: no</pre></div>', "failure"),
        ('<div class="output stderr"><pre>x</pre></div>', "stderr"),
        (r"<p>so \frac{1}{2}</p>", "raw TeX"),
        ("<p>so $d_h$ is</p>", "raw TeX"),
        ("<math><merror><mtext>x</mtext></merror></math>", "merror"),
        ("<math><mrow></mrow></math>", "empty formula"),
        ("<h1>again</h1>", "2 h1"),
        ("<h3>too deep</h3>", "jumps"),
        ("<p>/home/me/book/a.py</p>", "path of a machine"),
        ("<p>/tmp/x</p>", "path of a machine"),
        ('<p id="a">a</p><p id="a">b</p>', "id used 2 times"),
        ('<style class="attn-style">p{}</style>', "style sheet of an output"),
    ],
)
def test_planted_fault_is_found(fault, says):
    faults = check_site.page_faults(HEAD + f"<main><h1>A</h1>{fault}</main></body></html>")
    assert any(says in line for line in faults), faults


@pytest.mark.parametrize("cut", [' lang="en"', "<title>A page</title>", 'name="description"'])
def test_incomplete_head_is_found(cut):
    assert check_site.page_faults(HEAD.replace(cut, "") + "<main><h1>A</h1></main></body></html>")


def test_code_and_tokens_may_hold_tex_signs():
    text = r"<main><h1>A</h1><pre>\frac $x$</pre><code>\top</code><bdi>$5</bdi> and <bdi>$6</bdi></main>"
    assert check_site.raw_tex(check_site.parse(text)) == []


def _site(tmp_path, **files):
    for name, text in files.items():
        file = tmp_path / name.replace("__", "/").replace("_html", ".html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path, check_site.read_pages(tmp_path)


def test_dead_links_are_found(tmp_path):
    text = '<a href="b.html#x">x</a><a href="b.html#y">y</a><a href="c.html">c</a><a href="https://example.org">e</a>'
    faults = check_site.dead_links(*_site(tmp_path, a_html=text, b_html='<p id="x"></p>'))
    assert [line.rsplit(" ", 1)[1] for line in faults] == ["b.html#y", "c.html"]


def test_contents_faults_are_found(tmp_path):
    def page(links, after):
        nav = "".join(f'<a class="reference" href="{link}.html">{link}</a>' for link in links)
        return f'<nav class="bd-links">{nav}</nav>{after}'

    to_b, to_a = '<a rel="next" href="b.html">b</a>', '<a rel="prev" href="a.html">a</a>'
    _, good = _site(tmp_path, a_html=page("ab", to_b), b_html=page("ab", to_a))
    assert check_site.contents_faults(good, ["a", "b"]) == []
    assert check_site.contents_faults({**good, "b.html": page("a", to_a)}, ["a", "b"])  # a list from before
    assert check_site.contents_faults({**good, "a.html": page("ab", "")}, ["a", "b"])  # no way on
    assert check_site.contents_faults({"a.html": good["a.html"]}, ["a", "b"])  # a page is missing


def test_asset_faults_are_found(tmp_path):
    folder = tmp_path / "_static"
    folder.mkdir()
    (folder / "a.css").write_text(
        "p{background:url(gone.png)} q{background:url('https://example.org/a.png')}"
    )
    (folder / "b.js").write_text(
        'import x from "https://example.org/x.mjs"; // https://example.org is fine here'
    )
    assert len(check_site.asset_faults(tmp_path)) == 3


@pytest.mark.parametrize(
    "text", ["not json", '{"nbformat": 3}', '{"nbformat": 4, "path": "/home/me/a"}', "[]"]
)
def test_notebook_faults_are_found(tmp_path, text):
    (tmp_path / "a.ipynb").write_text(text)
    pages = {"a.html": '<a class="notebook-button" href="a.ipynb">a</a>'}
    assert check_site.notebook_faults(tmp_path, pages, ["a"], tmp_path)
    assert check_site.notebook_faults(tmp_path, {"a.html": "<p>no link</p>"}, ["a"], tmp_path)


def test_weight_counts_what_a_page_loads(tmp_path):
    noise = os.urandom(5000).hex()
    site, pages = _site(tmp_path, a_html='<link rel="stylesheet" href="a.css"><p>a</p>')
    bare = check_site.weights(site, pages)["a.html"]
    (tmp_path / "a.css").write_text("@font-face{src:url(a.woff2)}")
    (tmp_path / "a.woff2").write_text(noise)
    assert check_site.weights(site, pages)["a.html"] > bare + 4000


# Formulas


def test_examples_in_docstrings():
    assert doctest.testmod(texmath).failed == 0 < doctest.testmod(texmath).attempted


@pytest.mark.parametrize(
    "tex", ["", r"\nosuchcommand", r"\begin{nosuch}a\end{nosuch}", r"a & b", r"a \\ b", r"\frac{a}"]
)
def test_formula_that_is_not_understood_is_refused(tex):
    with pytest.raises(texmath.FormulaError):
        texmath.to_mathml(tex, display=True)


@pytest.mark.parametrize(
    ("tex", "part"),
    [
        ("Q", '<mi class="role-query">Q</mi>'),
        ("k_j", '<mi class="role-key">k</mi>'),
        (r"\mathbf{v}", '<mi class="role-value">𝐯</mi>'),
        ("W_O", '<mi class="role-output">O</mi>'),
        (r"\mathcal{O}(n^2)", "<mi>𝒪</mi>"),
        (r"K^\top", "<mi>⊤</mi>"),
        (r"x = -1", '<mo form="prefix">−</mo>'),
        (r"a - 1", "<mo>−</mo>"),
        (r"\mathrm{head}_1", "<mi>head</mi>"),
        (r"\mathrm{d}x", '<mi mathvariant="normal">d</mi>'),
        ("1{,}024", "<mn>1,024</mn>"),
        (r"\operatorname{softmax}(x)", '<mi class="function">softmax</mi><mo stretchy="false">(</mo>'),
        (
            r"2\log x",
            '<mspace width="0.167em"></mspace><mi class="function">log</mi><mspace width="0.167em"></mspace>',
        ),
        (r"\mathbb{R}^{T \times d}", "<mi>ℝ</mi>"),
        (r"\max_j s_j", '<munder><mi class="function">max</mi>'),
        (r"\begin{aligned} a &= b \\ &= c \end{aligned}", '<mtable displaystyle="true" class="aligned">'),
        (
            r"\begin{cases} 0 & j \le i \\ -\infty & j > i \end{cases}",
            '<mtd class="cell-left"><mo form="prefix">−</mo>',
        ),
        (r"\underbrace{a + b}_{c}", '<mrow class="brace-below">'),
        (r"a < b", 'alttext="a &lt; b"'),
    ],
)
def test_formula(tex, part):
    assert part in texmath.to_mathml(tex, display=True)


def test_root_in_running_text_states_its_width():
    """Without it a browser leaves a gap of 0.4 em before the next word."""
    assert '<mpadded width="1.' in texmath.to_mathml(r"\sqrt{d_h}")
    assert "mpadded" not in texmath.to_mathml(r"\sqrt{d_h}", display=True)

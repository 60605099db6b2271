"""Style sheets lose what cannot match, and nothing else."""

import pytest
from stylesheet import join, lean, names_in_use

NAMES = {"kept", "own", "x"}


@pytest.mark.parametrize(
    ("style", "wanted"),
    [
        (".kept { color: red }", ".kept{color: red}\n"),
        (".gone { color: red }", ""),
        ("p.kept > b, .gone b, #own { top: 0 }", "p.kept > b,#own{top: 0}\n"),
        (".kept.gone { top: 0 }", ""),
        ("#gone { top: 0 }", ""),
        # What is asked to be absent, or stands among others in brackets, decides nothing.
        (".kept:not(.gone) { top: 0 }", ".kept:not(.gone){top: 0}\n"),
        (":is(.gone, b) i, a[href='.gone'] { top: 0 }", ':is(.gone, b) i,a[href=".gone"]{top: 0}\n'),
        ("p{width:1.5em}", "p{width:1.5em}\n"),
        ("/* .a */ p /* b */ { top: 0 }", "p{top: 0}\n"),
        ("@media print { .gone { top: 0 } .kept { top: 0 } }", "@media print {.kept{top: 0}\n}\n"),
        ("@media print { .gone { top: 0 } }", ""),
        (
            "@supports (top: 0) { @media print { .x { top: 0 } } }",
            "@supports (top: 0) {@media print {.x{top: 0}\n}\n}\n",
        ),
        ("@font-face { src: url(a.woff2) }", "@font-face { src: url(a.woff2) }\n"),
        ("@keyframes gone { from { top: 0 } }", "@keyframes gone { from { top: 0 } }\n"),
        ("@layer a, b;", "@layer a, b;\n"),
        ("@import url(b.css);", "@import url(b.css);\n"),
    ],
)
def test_a_rule_stays_if_a_selector_of_it_can_match(style, wanted):
    assert lean(style, NAMES) == wanted
    assert lean(wanted, NAMES).split() == wanted.split()  # a second build changes nothing


def test_a_style_sheet_that_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="line 2"):
        lean("p { top: 0 }\np", NAMES)


def test_names_come_from_pages_and_from_scripts():
    pages = ['<p class="a b-c" id=d>class=e</p>', "<b class='f'>"]
    scripts = ["box.classList.add('g-h', `i--${side}`)"]
    found = names_in_use(pages, scripts)
    assert {"a", "b-c", "d", "f", "g-h", "i--"} <= found
    assert "j" not in found


@pytest.fixture
def site(tmp_path):
    """Two pages, one of them in a folder, with two style sheets each."""
    (tmp_path / "_static" / "deep").mkdir(parents=True)
    (tmp_path / "_static" / "a.css").write_text("a { top: 0 }")
    deep = (
        "b { background: url(../x.png) } i { src: url('data:font/woff2,AA') } u { src: url(\"f.woff2#g\") }"
    )
    (tmp_path / "_static" / "deep" / "b.css").write_text(deep)
    (tmp_path / "book").mkdir()
    for page, way in (("index.html", ""), ("book/one.html", "../")):
        links = [
            f'<link rel="stylesheet" type="text/css" href="{way}_static/{name}?v=1" />' for name in NAMED
        ]
        (tmp_path / page).write_text("<head>\n  {}\n  {}\n</head>\n<p>é".format(*links), encoding="utf-8")
    return tmp_path


NAMED = ("a.css", "deep/b.css")


def test_a_page_gets_one_style_sheet_with_all_in_their_order(site):
    join(site)
    (joined,) = (site / "_static").glob("site-*.css")
    assert joined.read_text() == (
        "a { top: 0 }\nb { background: url(\"x.png\") } i { src: url('data:font/woff2,AA') } "
        'u { src: url("deep/f.woff2#g") }\n'
    )
    for page, way in (("index.html", ""), ("book/one.html", "../")):
        link = f'  <link rel="stylesheet" href="{way}_static/{joined.name}" data-parts="a.css deep/b.css">'
        assert (site / page).read_text(encoding="utf-8") == f"<head>\n{link}\n</head>\n<p>é"


def test_a_page_that_is_not_built_again_gets_the_new_style_sheet(site):
    join(site)
    before = {page: page.read_bytes() for page in site.rglob("*.html")}
    join(site)
    assert before == {page: page.read_bytes() for page in site.rglob("*.html")}
    (old,) = (site / "_static").glob("site-*.css")
    (site / "_static" / "a.css").write_text("a { top: 1px }")
    join(site)
    (new,) = (site / "_static").glob("site-*.css")
    assert new != old and new.read_text().startswith("a { top: 1px }\nb {")
    assert all(new.name in page.read_text(encoding="utf-8") for page in before)


def test_a_style_sheet_that_cannot_be_joined_is_an_error(site):
    (site / "_static" / "a.css").write_text("@import url(c.css);")
    with pytest.raises(ValueError, match=r"a\.css imports another"):
        join(site)
    (site / "_static" / "a.css").unlink()
    with pytest.raises(FileNotFoundError):
        join(site)

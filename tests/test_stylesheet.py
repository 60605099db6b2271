"""Style sheets lose what cannot match, and nothing else."""

import pytest
from stylesheet import lean, names_in_use

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

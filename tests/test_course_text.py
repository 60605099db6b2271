"""Texts of assignments: which markers they may have, and that nothing between two of them gets out."""

import itertools

import pytest

from course import text

HEAD = """---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
course: {title: "Tiny", minutes: 5, about: "For tests."}
---
# Tiny

```{code-cell} ipython3
import numpy as np
```
"""
CHECK = "```{code-cell} ipython3\n:check: one\n:points: 1\nassert one\n```\n"
HIDDEN = "```{code-cell} ipython3\n:hidden: one\nequals('one', 1)\n```\n"
B, E = text.BEGIN, text.END
COUNT = itertools.count()


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Loads an assignment whose answer cell is this code, or that has this cell more."""
    monkeypatch.setattr(text, "FOLDER", tmp_path)

    def make(code=f"{B}\none = 1\n{E}", more=""):
        name = f"tiny_{next(COUNT)}"
        answer = f"```{{code-cell}} ipython3\n:answer: one\n{code}\n```\n"
        (tmp_path / f"{name}.myst.md").write_text(HEAD + answer + CHECK + HIDDEN + more, encoding="utf-8")
        return text.load(name)

    return make


def released(assignment):
    return "\n".join(cell.source for cell in text.student_notebook(assignment).cells)


FUNCTION = f"def one():\n    {B}\n    return SECRET\n    {E}"


@pytest.mark.parametrize(
    "code",
    [
        FUNCTION,
        f"{FUNCTION}\n\n\ndef two():\n    x = 1\n    {B}\n    x = SECRET\n    {E}\n    return x",
        f"{B}   \none = SECRET\n{E}\t",
        f"def one():\n\t{B}\n\treturn SECRET\n\t{E}",
        f"{B}\none, (two, three) = SECRET\n{E}\n# and more",
    ],
)
def test_pairs_alone_on_their_lines_are_taken_out(made, code):
    assignment = made(code)
    assert "SECRET" not in released(assignment) and "#" not in released(assignment).split("one")[1][:9]
    (answer,) = assignment.of_kind("answer")
    assert "SECRET" in text.solution(answer.source) and "###" not in text.solution(answer.source)


WRONG = [
    "return SECRET  {B}\n    {E}",
    "{B}\n    return SECRET  {E}",
    "{B}\n    return SECRET\n    x = 1  {E}\n    {E}",
    "{E}\n    return SECRET\n    {B}",
    "{B}\n    {B}\n    return SECRET\n    {E}\n    {E}",
    "{B}\n    return SECRET\n    {B}\n    {E}",
    "{B}\n    return SECRET",
    "return SECRET\n    {E}",
    "return SECRET",
    "{B}\n    x = 1\n    {E}\n    {E}\n    return SECRET",
    "{B}\n    {E}\n    return SECRET",
    "{B}\n    return SECRET\n{E}",
    "x = '''\n    {B}\n    '''\n    return SECRET\n    {E}",
    "x = '''\n    {B}\n    SECRET\n    {E}\n    '''",
    "x = [\n    {B}\n    SECRET,\n    {E}\n    ]",
    *(
        f"{{B}}\n    x = 1\n    {{E}}\n    {begin}\n    return SECRET\n    {end}"
        for begin, end in (
            ("###BEGIN SOLUTION", "###END SOLUTION"),
            ("### Begin solution", "### End solution"),
            ("### BEGIN  SOLUTION", "### END  SOLUTION"),
            ("###\tBEGIN SOLUTION", "###\tEND SOLUTION"),
            ("### BEGIN\u00a0SOLUTION", "### END\u00a0SOLUTION"),
            ("## BEGIN SOLUTION", "## END SOLUTION"),
            ("# BEGIN SOLUTION", "# END SOLUTION"),
            ("#BEGIN_SOLUTION", "#END_SOLUTION"),
            ("# BEGIN SOLUTON", "# END SOLUTON"),
            ("### BEGIN SOLUTIONS", "### END SOLUTIONS"),
            ("### BEGIN SOLUTION:", "### END SOLUTION."),
            ("### BEGN SOLUTION", "### EDN SOLUTION"),
            ("### START SOLUTION", "### STOP SOLUTION"),
            ("# start of the solution", "# end of the solution"),
            ("# SOLUTION", "x = 2"),
            ("#### BEGIN SOLUTION", "#### END SOLUTION"),
            ("### B\u0415GIN SOLUTI\u041eN", "### \u0415ND SOLUTI\u041eN"),
            ("### BEGIN ANSWER", "### END ANSWER"),
            ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"),
            ("# begin hidden test", "# end hidden test"),
            ("### BEGIN MARK SCHEME", "### END MARK SCHEME"),
            ("### AUTOTEST one", "### HASHED AUTOTEST one"),
        )
    ),
]


@pytest.mark.parametrize("body", WRONG)
def test_any_other_marker_is_refused_with_its_cell_and_line(made, body):
    with pytest.raises(text.TextError, match=r"\.myst\.md, cell 3(, line \d|: one needs|.* is no Python)"):
        made("def one():\n    " + body.replace("{B}", B).replace("{E}", E))


@pytest.mark.parametrize("kind", ["", ":hidden: one", ":setup: one", ":check: two\n:points: 1"])
@pytest.mark.parametrize("marker", [B, "### BEGIN HIDDEN TESTS", "# begin solution"])
def test_no_code_cell_but_an_answer_has_a_marker(made, kind, marker):
    with pytest.raises(text.TextError, match=r"cell 6, line 1: .* outside an answer cell"):
        made(more=f"```{{code-cell}} ipython3\n{kind}\n{marker}\nSECRET = 1\n```\n")


@pytest.mark.parametrize("kind", ["", '+++ {"written": "why", "points": 1}', '+++ {"rubric": "why"}'])
@pytest.mark.parametrize("marker", [B, "`### end solution`", "BEGIN SOLUTON", "<!-- BEGIN MARK SCHEME -->"])
def test_no_words_have_a_marker(made, kind, marker):
    with pytest.raises(text.TextError, match=r"line 1: .* outside an answer cell"):
        made(more=f"{kind}\n\n{marker}\n\nSECRET\n\n+++\n")


@pytest.mark.parametrize("key", ["anwser", "hiden", "solution", "Hidden"])
def test_a_misspelled_kind_is_no_given_cell(made, key):
    with pytest.raises(text.TextError, match=rf"cell 6: {key} is no kind of cell"):
        made(more=f"```{{code-cell}} ipython3\n:{key}: one\nSECRET = 1\n```\n")


@pytest.mark.parametrize("name", text.names())
def test_what_survives_between_markers_is_never_written(name, tmp_path, monkeypatch):
    assignment = text.load(name)
    for broken in (lambda source: source, text.solution, lambda source: "\n".join(source.split("\n")[2:])):
        monkeypatch.setattr(text, "stub", broken)
        with pytest.raises(text.TextError, match="would s"):
            text.write(tmp_path / "new", name)
        assert not list(tmp_path.rglob("*.ipynb"))
    monkeypatch.undo()
    text.released(assignment)


@pytest.mark.parametrize(
    "name", ["../assignments/1_one_head", "1_one_head.myst.md/..", "*", "[1]_one_head", "", "a\nb"]
)
def test_an_assignment_has_a_plain_name(name):
    with pytest.raises(text.TextError, match="there is no assignment"):
        text.load(name)

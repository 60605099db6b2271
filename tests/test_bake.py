"""Baking: the same bytes each time, and no notebook that says other than its source."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from bake import disagreements, main, source_notebook

ROOT = Path(__file__).resolve().parents[1]

SOURCE = """# A small chapter

```{code-cell} ipython3
import numpy as np

from attnlib import show

P = np.array([[1.0, 0.0], [0.25, 0.75]])
show.heatmap(P, kind="weights")
```

Some words.

**Exercise 1.** What is the sum?

```{code-cell} ipython3
:tags: [hide-cell]

print(P.sum())
```
"""


@pytest.fixture(scope="module")
def baked_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bake")
    source = folder / "01_small.myst.md"
    source.write_text(SOURCE, encoding="utf-8")
    main([str(source)])
    return folder


@pytest.fixture
def chapter(baked_once, tmp_path):
    """A source and its notebook, to be spoiled."""
    for path in baked_once.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path / "01_small.myst.md", tmp_path / "01_small.ipynb"


def write(path, text):
    path.write_text(text, encoding="utf-8")


def change(path, edit):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    edit(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def test_two_bakes_give_the_same_bytes(baked_once, tmp_path):
    main([str(baked_once / "01_small.myst.md"), "--into", str(tmp_path)])
    assert (tmp_path / "01_small.ipynb").read_bytes() == (baked_once / "01_small.ipynb").read_bytes()


def test_what_a_bake_stores(chapter):
    notebook = nbformat.read(chapter[1], as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2]
    assert "data:image/svg+xml" in code[0].outputs[0].data["text/html"]
    assert code[1].outputs[0].text == "2.0\n"
    assert "execution" not in code[0].metadata
    assert disagreements(chapter[0]) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda nb: nb["cells"][2].update(execution_count=None, outputs=[]),
        lambda nb: nb["cells"][2].update(source=["1"]),
        lambda nb: nb["cells"][0].update(source=["# Another title"]),
        lambda nb: nb["cells"][6]["metadata"].update(tags=[]),
        lambda nb: nb["cells"].pop(),
        lambda nb: nb["cells"][0].update(id="other"),
        lambda nb: nb["metadata"]["kernelspec"].update(name="other"),
    ],
    ids=["stripped", "code", "words", "tags", "cells", "id", "kernel"],
)
def test_a_changed_notebook_disagrees(chapter, edit):
    change(chapter[1], edit)
    assert disagreements(chapter[0])
    with pytest.raises(SystemExit, match=r"01_small\.ipynb"):
        main(["--check", str(chapter[0])])


def test_a_changed_source_disagrees(chapter):
    write(chapter[0], SOURCE.replace("Some words.", "Other words."))
    assert disagreements(chapter[0]) == [
        "01_small.ipynb, cell 4: source is not what its source says",
        "01_small.ipynb, cell 4: id is not what its source says",
    ]


def test_a_missing_notebook_disagrees(chapter):
    chapter[1].unlink()
    assert disagreements(chapter[0]) == ["01_small.ipynb is missing"]


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import sys\nprint('x', file=sys.stderr)", "stderr"),
        ("print(object())", "address"),
        ("print('/home' + '/someone/x')", "path"),
    ],
)
def test_bad_cells_stop_the_bake_by_name(tmp_path, code, complaint):
    source = tmp_path / "02_bad.myst.md"
    write(source, f"# Bad\n\n```{{code-cell}} ipython3\n{code}\n```\n")
    with pytest.raises(SystemExit, match=rf"(?s)02_bad\.myst\.md.*{complaint}"):
        main([str(source)])
    assert not source.with_name("02_bad.ipynb").exists()


def test_the_book_agrees_with_its_sources():
    problems = [problem for source in (ROOT / "book").glob("*.myst.md") for problem in disagreements(source)]
    assert problems == []


def is_fold(cell):
    return "hide-cell" in cell.metadata.get("tags", [])


def test_no_fold_is_lost():
    """A4: what the site folds lies under a folded heading in JupyterLab, up to the next heading."""
    folds = 0
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        for before, cell, after in zip(cells, cells[1:], cells[2:], strict=False):
            if is_fold(cell) and not is_fold(before):
                folds += 1
                assert before.source == "#### Solution", path.name
                assert before.metadata["jp-MarkdownHeadingCollapsed"] is True
                assert before.metadata.tags == ["remove-cell"]  # the page has a fold of its own
                assert "jupyter" not in cell.metadata  # one click opens it all
            if is_fold(cell) and not is_fold(after):
                assert re.match("##+ ", after.source), f"{path.name}: the fold swallows {after.source[:60]!r}"
    assert folds > 60


def test_words_after_a_solution_belong_to_it(tmp_path):
    source = tmp_path / "03_words.myst.md"
    write(source, SOURCE + "\nSo it is 2.\n\n**Exercise 2.** And now?\n")
    cells = [cell.source for cell in source_notebook(source).cells]
    assert cells[-3:] == ["print(P.sum())", "So it is 2.", "### Exercise 2\n\nAnd now?"]

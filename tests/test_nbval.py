"""The comparison of stored outputs bites: one changed digit, one stripped output, one planted mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bake import main
from check_all import STEPS

SOURCE = """# A small chapter

```{code-cell} ipython3
from attnlib import attention_steps, show
from attnlib.examples import three_tokens

steps = attention_steps(*three_tokens().head(1), is_causal=True)
show.values(weights=steps.weights)
```

```{code-cell} ipython3
show.heatmap(steps.weights, kind="weights")
```
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    source = tmp_path_factory.mktemp("nbval") / "01_small.myst.md"
    source.write_text(SOURCE, encoding="utf-8")
    main([str(source)])
    return source.with_name("01_small.ipynb")


def nbval(path):
    """Run the very command of `make test` over one notebook, in its own process."""
    (command,) = STEPS["notebooks"]
    serial = [word for word in command if word not in ("-n", "2", "--dist", "loadfile")]
    command = [str(path) if word == "book" else word for word in serial]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True)


def spoiled(notebook, tmp_path, edit):
    content = json.loads(notebook.read_text(encoding="utf-8"))
    edit([cell for cell in content["cells"] if cell["cell_type"] == "code"])
    path = tmp_path / "01_small.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def digit(cells):
    cells[0]["outputs"][0]["text"] = [
        line.replace("0.8438", "0.8439") for line in cells[0]["outputs"][0]["text"]
    ]


def digit_in_picture(cells):
    data = cells[1]["outputs"][0]["data"]
    data["text/html"] = [line.replace("0.84", "0.85") for line in data["text/html"]]


def stripped(cells):
    cells[0]["outputs"] = []


def planted(cells):
    cells[0]["source"] = [
        "from attnlib import core\n",
        "core.default_scale = lambda width: 1.0\n",
        *cells[0]["source"],
    ]


def test_an_unchanged_notebook_passes(notebook):
    run = nbval(notebook)
    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout


@pytest.mark.parametrize("edit", [digit, digit_in_picture, stripped, planted])
def test_a_changed_output_fails(notebook, tmp_path, edit):
    path = spoiled(notebook, tmp_path, edit)
    assert path.read_bytes() != notebook.read_bytes()
    run = nbval(path)
    assert run.returncode == 1, run.stdout
    assert "1 failed" in run.stdout or "2 failed" in run.stdout


def test_command_covers_the_whole_book():
    (command,) = STEPS["notebooks"]
    assert "book" in command and "--nbval" in command and "--nbval-lax" not in command
    assert Path(command[0]) == Path(sys.executable)

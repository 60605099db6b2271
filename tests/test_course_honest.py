# What students write is read more easily where its lines are not cut.
# ruff: noqa: E501
"""What real notebooks contain beside right answers: in no assignment does it cost a point or raise a flag."""

import ast
import json
import re

import nbformat
import pytest
from course_stage import needs_packages, needs_sandbox

from course import hooks, intake, planting, sandbox, text, verdict

# What students put on top of a cell, or into one of their own: each works on their machine, not while grading.
LINES = [
    "%matplotlib inline",
    "%config InlineBackend.figure_format = 'retina'",
    "%load_ext autoreload\n%autoreload 2",
    "%load_ext memory_profiler",
    "%no_such_magic at all",
    "%pip install -q seaborn",
    "!pip install -q seaborn",
    "files = !ls",
    "%cd /content/drive/MyDrive",
    "%timeit -n 100000 -r 9 sum(range(1000))",
    "%time sum(range(10))",
    "np?",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    "import matplotlib.pyplot as plt\nplt.style.use('nonesuch')",
    "import pandas as pd\ntable = pd.DataFrame({'a': [1]})\ntable['b'] = 2\nprint(len(table), table + 1)",
    "import seaborn as sns\nsns.set_theme()\nwith sns.axes_style('dark'):\n    pass",
    "import tensorflow as tf\nprint(tf.__version__)",
    "import jax.numpy as jnp\nprint(np.allclose(jnp.ones(3), 1))",
    "from scipy import special as sp, stats\nprint(sp.softmax([1.0]) @ stats.norm())",
    "from google.colab import drive, files as theirs\ndrive.mount('/content/drive')",
    "try:\n    import google.colab\n    IN_COLAB = True\nexcept ImportError:\n    IN_COLAB = False\nassert not IN_COLAB",
    "try:\n    import tensorflow\nexcept ImportError:\n    tensorflow = None\nassert tensorflow is None",
    "from attnlib import attention as library\nprint(library(1))\ncompared = library",
    "import attnlib.core\nfrom attnlib.core import softmax as theirs",
    "from numba import njit\n@njit(parallel=True)\ndef faster(x):\n    return x + 1\nassert faster(1) == 2",
    "from jaxtyping import Float\ndef typed(x: Float[np.ndarray, 'a b'] | None) -> None: pass",
    "import keras.layers as layers\nclass Net(layers.Layer):\n    pass\nassert not isinstance(3, layers.Layer)",
    "from tqdm.auto import tqdm, trange\nfor step in tqdm(range(3)):\n    pass\nassert step == 2 and list(trange(2))",
    "from ipywidgets import interact\ninteract(lambda x: x, x=3)",
    "who = input('Who are you? ') or 'me'",
    "size = int(input('How many? ') or 3)",
    "while input('more? ') != 'no':\n    pass",
    "get_ipython().run_line_magic('matplotlib', 'notebook')\nget_ipython().kernel.do_shutdown(True)",
    "from IPython.display import Image, Markdown, display\ndisplay(Markdown('x'))\ndisplay(Image('picture.png'))",
    "data = np.loadtxt('data.csv')\nprint(data.mean())",
    "import os\nos.chdir('/content')",
    "import requests\nrequests.get('http://192.0.2.1', timeout=1)",
    "import sys\nsys.path.append('/content')\nfrom my_helpers import *",
    "import warnings\nwarnings.warn('careful')\nnp.log(np.zeros(1))",
    "np.random.seed(0)",
    "if __name__ == '__main__':\n    print('main')",
    "assert np.ones(2).sum() == 2",
    "exit()",
    "quit()",
]
# The same, where what follows in the cell uses what is not there.
USED = [
    "n = int(input())",
    "gpu = !nvidia-smi -L\nprint(gpu[0])",
    "r = %memit -o 1\nprint(r.mem_usage)",
    "from tqdm import tqdm\nbar = tqdm(range(3))\nfor i in bar:\n    bar.set_description('x')\nassert i == 2",
    "from numba import prange\nassert [i for i in prange(3)] == [0, 1, 2]",
    "def compared():\n    import torch\n    return torch.zeros(3) + 1\ncompared()",
    "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', 'x'])",
    "breakpoint()",
    "try:\n    from numba import njit\nexcept ImportError:\n    %pip install numba\n    from numba import njit\n@njit\ndef faster(x):\n    return x\nassert faster(1) == 1",
]
# Cells of their own, before all others and after them.
BEFORE = [
    "from __future__ import annotations\ndef noted(x: Unknown) -> Nothing: pass",
    "",
    "# my notes",
    "%%writefile helpers.py\ndef half(x):\n    return x / 2",
    "from helpers import half\nhalf(4)",
]
AFTER = [
    "1 / 0",
    "raise SystemExit",
    "import sys\nsys.exit(1)",
    "this is no Python",
    "%%timeit -n 5000\nsum(range(1000))",
    "%%capture\nprint('unseen')",
    "%%time\nprint('timed')",
    "%%bash\necho hello",
    "%%html\n<b>hello</b>",
    "%%memit\nlate = 1",
    "assert late == 1",
    "import os\nos._exit(0)",
    "print('after the end')",
]
CHATTY = """
import pandas as pd
import matplotlib.pyplot as plt
for line in range(LINES):
    print(line, "and more")
print(pd.DataFrame([1]).head(), input() or "nobody")
"""


@pytest.fixture(autouse=True)
def _sandbox():
    needs_sandbox()


def test_each_line_that_cannot_work_is_left_out_alone():
    """Each in a cell of its own with a line after it, which is reached; and no cell has a problem."""
    cells = ["import numpy as np", *(f"{line}\nreached_{n} = {n}" for n, line in enumerate([*LINES, *USED]))]
    with sandbox.Sandbox() as box:
        box.send({"do": "serve", "cells": cells})
        problems = {}
        while "loaded" not in (reply := box.receive(60)):
            if reply.get("problem"):
                problems[cells[reply["cell"]]] = reply["problem"]
        assert problems == {}
        for n, line in enumerate([*LINES, *USED]):
            box.send({"do": "get", "name": f"reached_{n}"})
            assert box.receive(20).get("value") == n, line


def test_a_cell_that_ran_in_part_is_run_again_only_when_its_name_is_there():
    with sandbox.Sandbox() as box:
        box.send({"do": "serve", "cells": ["W = [1, 2, 3]", "W.pop()\nprint(typo)"]})
        while "loaded" not in box.receive(60):
            pass
        box.send({"do": "get", "name": "W"})
        assert box.receive(20).get("value") == [1, 2]


def test_what_is_not_there_makes_nothing_right():
    cells = [
        "import torch\ndef f(x):\n    return torch.softmax(torch.tensor(x), -1)\ndef g(x):\n    return 1 / 0"
    ]
    with sandbox.Sandbox() as box:
        box.send({"do": "serve", "cells": cells})
        while "loaded" not in box.receive(60):
            pass
        for name in "fg":
            box.send({"do": "call", "name": name, "args": [1.0], "kwargs": {}, "pieces": []})
            assert "error" in box.receive(20)


def graded(name, notebook, tmp_path):
    """The notebook after reading it as a file, restoring and running; and its record."""
    file = tmp_path / f"{name}.ipynb"
    file.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook), encoding="utf-8")
    (tmp_path / "secret.txt").write_text("b")
    where = {"assignment": name, "student": "ada", "db_url": f"sqlite:///{tmp_path}/marks.db"}
    read, notes = intake.read(file)
    notes += intake.restore(text.load(name), read)
    read.metadata["course"] = {"notes": notes}
    read, _ = hooks.Run().preprocess(read, {"nbgrader": where})
    return read, read.metadata["course"]


def full(about):
    lost = {name: mark["reason"] for name, mark in about["marks"].items() if mark["points"] < mark["of"]}
    assert lost == {} and about["flags"] == [], about["notes"]


def chatty(source, lines):
    """The same code, whose functions print so many lines, draw, ask and import."""
    code = CHATTY.replace("LINES", str(lines))
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            start = int(bool(ast.get_docstring(node)))
            node.body[start:start] = ast.parse(code).body
    return ast.unparse(tree)


def busy(notebook, uses):
    """With all of the above in its answer cells and around them."""
    lines = [line for line in LINES if not any(f"import {package}" in line for package in uses)]
    answers = [
        cell for cell in notebook.cells if cell.cell_type == "code" and cell.metadata.nbgrader.solution
    ]
    for number, cell in enumerate(answers):
        cell.source = "\n".join(
            [*lines[number :: len(answers)], chatty(cell.source, 20_000 if number == 4 else 200)]
        )
    notebook.cells[:0] = map(nbformat.v4.new_code_cell, BEFORE)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("My *notes*."))
    notebook.cells += map(nbformat.v4.new_code_cell, [chatty("def told():\n    pass\n", 9), "told()", *AFTER])
    return notebook


def colab(notebook):
    """As Colab and others save it: other metadata, no ids, no names, Windows line ends."""
    data = json.loads(nbformat.writes(notebook))
    data["nbformat_minor"], data["metadata"] = 0, {"colab": {"provenance": []}, "accelerator": "GPU"}
    for number, cell in enumerate(data["cells"]):
        del cell["id"]
        cell["metadata"] = {"id": f"x{number}", "outputId": "y", "vscode": {"languageId": "python"}}
        cell["source"] = [line.replace("\n", "\r\n") for line in cell["source"]]
    return data


def moved(notebook):
    """Every cell above what it uses, the first last."""
    notebook.cells = notebook.cells[::-1]
    return notebook


@pytest.mark.parametrize("name", text.names())
def test_a_right_notebook_full_of_what_cannot_work_has_full_points(name, tmp_path):
    needs_packages(name)
    assignment = text.load(name)
    notebook = busy(planting.submission(assignment), assignment.uses)
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = "My words."
    read, about = graded(name, colab(notebook), tmp_path)
    full(about)
    notes = "\n".join(about["notes"])
    for words in ("lost their names", "nobody answers input()", "pandas is not there while it is graded"):
        assert words in notes, notes
    assert not re.search("put back|no cell of its own", notes), notes
    words = [cell for cell in read.cells if cell.source == "My words."]
    assert len(words) == len(assignment.written) and all(cell.metadata.nbgrader.grade for cell in words)


@pytest.mark.parametrize("name", text.names())
def test_a_right_notebook_turned_round_has_full_points(name, tmp_path):
    needs_packages(name)
    _, about = graded(name, moved(planting.submission(text.load(name))), tmp_path)
    full(about)
    assert len(about["notes"]) <= 1, about["notes"]


def test_a_cell_that_ends_python_when_it_is_run_again_costs_nothing(tmp_path):
    name = text.names()[0]
    notebook = planting.submission(text.load(name))
    notebook.cells.insert(
        0, nbformat.v4.new_code_cell("w = softmax(np.zeros((2, 2)))\nimport os\nos._exit(0)")
    )
    full(graded(name, notebook, tmp_path)[1])


@pytest.mark.parametrize(("used", "left"), [(12.0, 48.0), (55.0, 10.0), (66.0, 10.0)])
def test_the_page_has_the_seconds_that_a_hand_in_has_left(used, left):
    limits = hooks.page_limits(sandbox.Limits(seconds=60.0), used)
    assert limits.seconds == left and limits.cell_seconds == min(20.0, left)


def test_a_cell_that_was_stopped_once_is_not_run_a_second_time():
    assignment = text.load(text.names()[0])
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in ("1", "while True:\n    pass", "print(2)")]
    found = verdict.Verdict({}, (), 0.0, {1: "it took longer than 20 s"})
    assert hooks.run(assignment, notebook, found) == []
    assert [cell.execution_count for cell in notebook.cells] == [1, None, 2]
    assert notebook.cells[1].metadata.course_note == "it took longer than 20 s"

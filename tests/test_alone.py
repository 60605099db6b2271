"""A chapter on its own: what a reader has who downloaded one notebook from the site, and nothing else."""

import ast
import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pack
import pytest
import readers
from nbclient import NotebookClient
from sphinxcontrib.bibtex.style.referencing import PersonStyle

import attnlib
from attnlib import AttnError, records

ROOT = Path(__file__).resolve().parents[1]
SITE = Path(os.environ.get("SITE_DIR", ROOT / "_build" / "html"))
NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))
# Text that reaches somebody; the tests, this one above all, quote what must not be said.
SHIPPED = [
    path
    for suffix in ("py", "md", "ipynb", "js", "html", "txt", "toml", "yml")
    for path in ROOT.rglob(f"*.{suffix}")
    if not {".venv", "_build", "tests", ".git", "build"} & set(path.relative_to(ROOT).parts)
]
# `attnlib[show]` or `pip install attnlib` without an address or a file: that asks a registry.
FROM_A_REGISTRY = re.compile(
    r"attnlib\[\w+(,\w+)*\](?! @ )|pip install\s(?:[^\n`]*?[\s'\"])?attnlib(?![\w.\-\[/])"
)


def cells(path, kind):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def by_name(path):
    return path.stem


# --- where attnlib comes from ----------------------------------------------------------------------------


def test_nothing_tells_anybody_to_get_attnlib_from_a_registry():
    """F19, A3: the name is free there; whoever takes it would run code on every reader's machine."""
    assert len(SHIPPED) > 100
    found = {
        str(path.relative_to(ROOT)): match.group()
        for path in SHIPPED
        if (match := FROM_A_REGISTRY.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'attnlib[torch]'",
        "pip install attnlib",
        'python -m pip install "attnlib[show]" jupyterlab',
    ],
)
def test_such_advice_is_noticed(text):
    assert FROM_A_REGISTRY.search(text)
    for good in (readers.WHEEL, f'pip install "attnlib[show] @ {readers.WHEEL}"', 'pip install -e ".[show]"'):
        assert not FROM_A_REGISTRY.search(good)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_the_line_above_the_first_code_cell_says_what_to_install(path):
    notebook = nbformat.read(path, as_version=4)
    first = next(at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    note = notebook.cells[first - 1]
    assert note.source == readers.install_note(notebook.cells) and len(note.source.splitlines()) == 1
    assert f'%pip install "attnlib[widgets] @ {readers.WHEEL}"' in note.source
    assert note.metadata.tags == ["remove-cell"]  # a reader of the page has nothing to install
    uses_torch = any(re.search(r"\btorch\b", cell.source) for cell in cells(path, "code"))
    assert ("%pip install torch" in note.source) == uses_torch


def test_which_cells_need_torch():
    sources = [
        "import numpy as np\nx = np.ones(2)\nimport torch\nt = torch.ones(2)\ndef f(x):\n    return t + x",
        "x + 1",
        "def g():\n    return t",  # made here, called below
        "g()",
        "t = x\nt",  # another t, from NumPy
        "[t for t in (1, 2)], attnlib.torch_path.device",
        "from attnlib import bench, show\nshow",
        "bench.rate(1, 1)",
    ]
    assert readers.torch_cells(sources) == [1, 4, 6, 8]
    note = readers.install_note([nbformat.v4.new_code_cell(source) for source in ["1", *sources[:1], "f(2)"]])
    assert "Code cells [2] to [3] need torch too" in note
    assert "from the first cell on" in readers.install_note([nbformat.v4.new_code_cell(sources[0])])


@pytest.fixture(scope="module")
def wheel():
    found = list(SITE.glob("*.whl"))
    if len(found) != 1:
        pytest.fail(
            f"{len(found)} wheels in {SITE.name}, wanted 1: build the site (make book)", pytrace=False
        )
    return found[0]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with attnlib, installed by pip from the site as the line in the notebooks says."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    folder = tmp_path_factory.mktemp("installed")
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = re.search(r'%pip install "(.*?)"', readers.install_note([]))[1]
        what = line.replace("https://SITE", f"http://127.0.0.1:{server.server_port}")
        # What it needs besides is in this environment; no index is asked.
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--target",
            folder,
        ]
        done = subprocess.run([*command, what.replace("[widgets]", "")], capture_output=True, text=True)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_of_the_site_is_this_checkout(wheel, tmp_path):
    again = pack.build(tmp_path)
    assert again.name == wheel.name == readers.WHEEL.rsplit("/", 1)[1]
    assert again.read_bytes() == wheel.read_bytes()


def shown(cell):
    texts = [output.get("text") or output.get("data", {}).get("text/plain") for output in cell.outputs]
    return [text for text in texts if text]


@pytest.mark.parametrize("name", ["08_cost", "kill_matrix"])
def test_a_notebook_runs_alone_in_an_empty_folder(name, installed, tmp_path, monkeypatch):
    """A3: these stopped at `FileNotFoundError: data/...`. The library is the one that the site serves."""
    stored = nbformat.read(ROOT / "book" / f"{name}.ipynb", as_version=4)
    notebook = nbformat.from_dict(stored)
    notebook.cells = [*notebook.cells, nbformat.v4.new_code_cell("import attnlib; print(attnlib.__file__)")]
    monkeypatch.setenv("PYTHONPATH", str(installed))
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.extra_arguments = ["--log-level=ERROR"]
    before = [shown(cell) for cell in cells(ROOT / "book" / f"{name}.ipynb", "code")]
    client.execute()
    *after, where = [shown(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert str(installed) in where[0]
    assert after == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_no_notebook_reads_a_file_beside_it(path):
    for cell in cells(path, "code"):
        for call in (node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            named = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            opens = name in ("open", "Path", "load", "loadtxt", "genfromtxt", "read_csv") and named
            asked = ast.unparse(call.func) == "records.load"
            assert not opens or asked, f"{ast.unparse(call)} finds nothing where a reader is: attnlib.records"
            assert not asked or not named or named[0] in records.names()


def test_records_are_shipped_and_named():
    assert {"cpu/attention.json", "course/kill_matrix.json"} <= set(records.names())
    assert records.names("course") == [name for name in records.names() if name.startswith("course/")]
    with pytest.raises(
        AttnError, match=r"no record is called '../errors.py'; there are .*cpu/attention.json"
    ):
        records.load("../errors.py")


# --- plain Markdown ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_notebooks_are_plain_markdown(path):
    """A8: MyST's roles, directives and targets are raw signs wherever MyST is not."""
    text = "\n\n".join(cell.source for cell in cells(path, "markdown"))
    text = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.M | re.S)
    assert not re.search(
        r"\{[\w:-]+\}`|^ *[`~:]{3,}\s*\{|^\([\w-]+\)=|^:::|^%|(?<!`)\{\{|\$\$ *\(", text, flags=re.M
    )


@pytest.mark.parametrize(
    "text",
    [
        "{term}`mask`",
        "```{note}\nx\n```",
        ":::{tip}\nx\n:::",
        "(here)=\n# A",
        "$$\nx\n$$ (one)",
        "{cite:t}`x`",
    ],
)
def test_what_only_the_site_understands_stops_the_bake(text):
    with pytest.raises(SystemExit, match=r"a\.myst\.md: "):
        readers.plain(text, "a.myst.md")
    assert readers.plain("```text\n{note}`x`\n```", "a.myst.md")


def test_citations_read_as_the_site_printed_them():
    """The names and years by sphinxcontrib-bibtex's own rule, which the pages used before."""
    style = PersonStyle()
    database = readers.parse_file(readers.REFERENCES)
    assert len(database.entries) == len(readers.works()) >= 30
    backend = readers.find_plugin("pybtex.backends", "text")()
    for key, entry in database.entries.items():
        context = {"entry": entry, "style": SimpleNamespace(person=style), "bib_data": database}
        for person in entry.persons["author"]:
            person.text = style.style_plugin.format(person, style.abbreviate)
        names = style.author_or_editor_or_title(full=False).format_data(context).render(backend)
        year = entry.fields["year"]
        t, p = (readers.plain(f"{{cite:{kind}}}`{key}`", "x") for kind in "tp")
        assert t.replace("*", "").startswith(f"[{names} ({year})](bibliography.md#{key} ")
        assert p.replace("*", "").startswith(f"([{names}, {year}](bibliography.md#{key} ")
        assert (
            key in ("elhage2021mathematical",)
            or re.sub("[{}]", "", entry.fields["title"].split()[-1]).lower() in p.lower()
        )


def test_two_works_in_one_citation_and_one_that_is_not_there():
    text = readers.plain("{cite:p}`jain2019attention, wiegreffe2019attention`", "x")
    assert text.startswith("([Jain and Wallace, 2019](") and "; [Wiegreffe and Pinter, 2019](" in text
    with pytest.raises(
        SystemExit, match=r"03_x\.myst\.md: no work is called 'nobody2020' in references\.bib"
    ):
        readers.plain("{cite:t}`nobody2020`", "03_x.myst.md")


def test_version_of_the_wheel_is_written_once():
    text = (ROOT / "book" / "run_it_yourself.myst.md").read_text(encoding="utf-8")
    assert set(re.findall(r"attnlib-([\d.]+)-py3", text)) == {attnlib.__version__}

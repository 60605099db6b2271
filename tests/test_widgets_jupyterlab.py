"""JupyterLab: widgets draw there, react and tell Python; solutions stay shut when everything is run."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from test_hosts import outputs, readable, rgb

from attnlib import palette, show, widgets

BOOK = Path(__file__).resolve().parents[1] / "book"

pytestmark = pytest.mark.browser


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab over a folder of its own; yields (folder, address)."""
    folder = tmp_path_factory.mktemp("lab")
    port = free_port()
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
        "IPYTHONDIR": str(folder / ".ipython"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{address}/api/status").close()
                    break
                except OSError:
                    assert server.poll() is None, (folder / "log").read_text()
                    time.sleep(0.25)
            else:
                pytest.fail((folder / "log").read_text())
            yield folder, address
        finally:
            server.terminate()
            server.wait()


def notebook(*cells):
    """Of sources, or one that is complete; a cell that is no source is an output, stored as it is on disk."""
    if isinstance(cells[0], nbformat.NotebookNode):
        return nbformat.writes(cells[0])
    made = nbformat.v4.new_notebook()
    for cell in cells:
        shown = (
            []
            if isinstance(cell, str)
            else [nbformat.v4.new_output("display_data", cell._repr_mimebundle_())]
        )
        made.cells.append(nbformat.v4.new_code_cell("" if shown else cell, outputs=shown))
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.writes(made)


@pytest.fixture
def open_notebook(lab, browser):
    folder, address = lab
    contexts = []

    def open_notebook(name, *cells):
        (folder / name).write_text(notebook(*cells), encoding="utf-8")
        context = browser.new_context(viewport={"width": 1280, "height": 1400})
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{address}/lab/tree/{name}?reset")
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for(timeout=60_000)
        return page

    yield open_notebook
    for context in contexts:
        context.close()


def run(page, n):
    """Run the n-th cell, and wait until it has run."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(n)
    prompt = cell.locator(".jp-InputPrompt").first
    before = prompt.inner_text()
    for _ in range(6):
        # On a busy machine JupyterLab may still be setting up its shortcuts, and the keys go nowhere.
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        for tenth in range(600):
            page.wait_for_timeout(100)
            now = prompt.inner_text()
            if now != before and re.fullmatch(r"\[\d+\]:", now.strip()):
                return cell
            if now == before and tenth > 50:
                break
    pytest.fail(f"cell {n} did not run: {prompt.inner_text()}")


def test_strip_draws_reacts_and_reaches_python(open_notebook):
    page = open_notebook(
        "strip.ipynb",
        "from attnlib import widgets\nw = widgets.strip()\nw",
        "print(w.state['scale'], w.result['mistakes'], round(w.result['weights'][2][2], 4))",
        "w.state = {**w.state, 'scale': 'd_h'}",
    )
    first = run(page, 0)
    live = first.locator("section.attn-live")
    live.wait_for(timeout=60_000)
    assert live.count() == 1
    live.get_by_label("none", exact=True).first.check()
    page.wait_for_timeout(300)
    assert "0.980 instead of 0.844" in live.locator(".attn-sentence").inner_text()
    assert run(page, 1).locator(".jp-OutputArea-output").inner_text().strip() == "none ['no_scale'] 0.9796"

    # The other way: Python sets the state, and the view follows.
    run(page, 2)
    page.wait_for_timeout(300)
    assert "0.629 instead of 0.844" in live.locator(".attn-sentence").inner_text()

    # Running the cell again puts a new view in the place of the old one.
    run(page, 0)
    page.wait_for_timeout(1000)
    assert first.locator("section.attn-live").count() == 1


def test_every_widget_draws(open_notebook):
    names = list(widgets.NAMES)
    page = open_notebook("all.ipynb", "from attnlib import widgets", *(f"widgets.{name}()" for name in names))
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    run(page, 0)
    for n, name in enumerate(names, 1):
        live = run(page, n).locator("section.attn-live")
        live.wait_for(timeout=30_000)
        assert live.locator(".attn-sentence").inner_text().strip(), name
    assert faults == []


@pytest.fixture
def dark(lab):
    """The same JupyterLab in its dark theme."""
    settings = lab[0] / ".config/lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('{"theme": "JupyterLab Dark"}', encoding="utf-8")
    yield
    settings.unlink()


def test_a_widget_alone_can_be_read_in_the_dark(dark, open_notebook):
    """B2: no other output has brought a colour."""
    page = open_notebook(
        "dark.ipynb",
        "from attnlib import core, show, widgets\nwidgets.softmax_bars()",
        "show.source(core.softmax)",
    )
    run(page, 0).locator("section.attn-live").wait_for(timeout=60_000)
    assert page.locator("body").get_attribute("data-jp-theme-light") == "false"
    readable(page, "JupyterLab in the dark", "document.querySelector('section.attn-live')")
    bar = page.locator(".attn-bars [class^=attn-role-]").first
    role = bar.get_attribute("class").removeprefix("attn-role-")
    assert bar.evaluate("(e) => getComputedStyle(e).color") == rgb(palette.ROLES[role][1])
    run(page, 1)
    readable(page, "source", "document.querySelector('.attn-source')")


def test_what_an_untrusted_notebook_shows(dark, open_notebook):
    """A6: each notebook that was downloaded and not yet run: pictures, sentences, tables, no loose digits."""
    shown = outputs()
    page = open_notebook("untrusted.ipynb", *shown)
    cells = page.locator(".jp-OutputArea-output.jp-RenderedHTMLCommon")
    cells.nth(len(shown) - 1).wait_for()
    assert cells.locator("style, svg").count() == 0, "it was trusted"
    for n, one in enumerate(shown):
        if not isinstance(one, show.Source):  # without our rules, comments have JupyterLab's own colour
            readable(page, "untrusted", f"document.querySelectorAll('.jp-RenderedHTMLCommon')[{n}]")
        if isinstance(one, show.Picture):
            image = cells.nth(n).locator("img")
            assert image.evaluate("(e) => e.complete && e.naturalWidth") == int(image.get_attribute("width"))
            assert image.get_attribute("alt") == one.alt
            assert cells.nth(n).inner_text().startswith(one.caption)
    page.screenshot(path=os.environ.get("SHOT", os.devnull), type="png")


def test_run_all_leaves_the_solutions_shut(open_notebook, lab):
    """A4: JupyterLab uncovers the hidden outputs of a cell when it runs; a folded heading it leaves alone."""
    book = nbformat.read(BOOK / "06_weighted_sum.ipynb", as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []
    page = open_notebook("solutions.ipynb", book)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    for _ in range(240):
        page.keyboard.press("Control+s")
        page.wait_for_timeout(1000)
        cells = nbformat.read(lab[0] / "solutions.ipynb", as_version=4).cells
        if all(cell.execution_count for cell in cells if cell.cell_type == "code"):
            break
    else:
        pytest.fail("not every cell ran within four minutes")
    # Cells are drawn as they come into view, and a heading folds what is below it when it is drawn.
    shown = page.evaluate("""async () => {
        const notebook = document.querySelector(".jp-WindowedPanel-outer");
        for (let y = 0; y < notebook.scrollHeight; y += 500) {
            notebook.scrollTop = y;
            await new Promise((then) => setTimeout(then, 100));
        }
        return [...document.querySelectorAll(".jp-Notebook .jp-Cell")].map((cell) => cell.checkVisibility());
    }""")
    folds = ["hide-cell" in cell.metadata.get("tags", []) for cell in cells]
    assert sum(folds) == 5 and shown == [not fold for fold in folds]
    assert page.locator(".jp-showHiddenCellsButton:visible").count() == 5

"""Bake chapters: execute `NN_name.myst.md` in a fresh kernel and write `NN_name.ipynb` beside it.

    python tools/bake.py                    bake every chapter whose source changed
    python tools/bake.py book/03_x.myst.md  bake these, changed or not
    python tools/bake.py --all              bake every chapter
    python tools/bake.py --check            change nothing; fail if a notebook and its source disagree

The same source gives the same bytes: cell ids come from position and content, execution counts are 1 to n,
and neither times, addresses nor paths are stored. A cell that raises or writes to stderr stops the bake.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
import readers
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

BOOK = Path(__file__).resolve().parents[1] / "book"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SECONDS_PER_CELL = 120
NOT_REPRODUCIBLE = re.compile(
    r"(?<![\w.])(?:/(?:home|root|tmp|work|Users|usr)/\w|[A-Z]:\\)|\bat 0x[0-9a-f]{6,}"
)


def source_notebook(source):
    """The notebook that a source file describes, without outputs, ids settled."""
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="md:myst")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.cells = readers.cells(notebook.cells, source.name)
    count = 0
    for position, cell in enumerate(notebook.cells):
        digest = hashlib.sha256(f"{position}:{cell.cell_type}:{cell.source}".encode()).hexdigest()
        cell.id = f"c{position:03d}-{digest[:8]}"
        if cell.cell_type == "code":
            count += 1
            cell.execution_count, cell.outputs = count, []
    return notebook


def execute(source, notebook):
    """Run all cells in a fresh kernel whose folder is the book, and clean what they put out."""
    # One thread: sums do not depend on how many cores the machine has.
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM")}
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(threads, IPYTHONDIR=home, PYTHONHASHSEED="0", PYDEVD_DISABLE_FILE_VALIDATION="1")
        client = NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name=KERNEL["name"],
            record_timing=False,
            coalesce_streams=True,  # a busy machine hands one print over in two pieces
            resources={"metadata": {"path": str(source.parent)}},
        )
        # ipykernel warns about its sockets on stderr; errors still show.
        client.extra_arguments = ["--log-level=ERROR"]
        try:
            client.execute()
        except CellExecutionError as error:
            raise SystemExit(f"{source.name}: a cell raised\n{error}") from None
    # A widget's first state lies in its HTML; the kernel's own record of it has ids that differ every time.
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"], notebook.metadata["language_info"] = KERNEL, {"name": "python"}
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.metadata.pop("execution", None)
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = count
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
        complain_about(source, count, cell)
    return notebook


def complain_about(source, count, cell):
    """Refuse outputs that a reader should not see or that differ between machines."""
    where = f"{source.name}, code cell {count}"
    for output in cell.outputs:
        text = "".join(output.get("text", "")) + "".join(map(str, output.get("data", {}).values()))
        if output.output_type == "stream" and output.name == "stderr":
            raise SystemExit(f"{where}: wrote to stderr:\n{text}")
        found = NOT_REPRODUCIBLE.search(text)
        if found:
            raise SystemExit(f"{where}: a path or an address in the output: {found.group()!r}")


def dump(notebook):
    """The notebook's bytes as they lie on disk."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4) + "\n"


def disagreements(source):
    """What is wrong between one source and its notebook, as sentences; empty if nothing."""
    baked = source.with_name(source.name.replace(".myst.md", ".ipynb"))
    if not baked.exists():
        return [f"{baked.name} is missing"]
    try:
        got = nbformat.reads(baked.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(got)
    except Exception as error:
        return [f"{baked.name} is not a valid notebook: {str(error).splitlines()[0]}"]
    wanted, problems = source_notebook(source), []
    if got.metadata.get("kernelspec") != KERNEL:
        problems.append(f"{baked.name}: kernel is {got.metadata.get('kernelspec')}, wanted {KERNEL}")
    if len(got.cells) != len(wanted.cells):
        problems.append(f"{baked.name}: {len(got.cells)} cells, its source has {len(wanted.cells)}")
    for position, (g, w) in enumerate(zip(got.cells, wanted.cells, strict=False)):
        for part in ("cell_type", "source", "metadata", "id", "execution_count"):
            if g.get(part) != w.get(part):
                problems.append(f"{baked.name}, cell {position + 1}: {part} is not what its source says")
    return problems


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--into", type=Path, help="write the notebooks into this folder instead")
    options = parser.parse_args(arguments)
    sources = [path.resolve() for path in options.sources] or sorted(BOOK.glob("*.myst.md"))
    if not sources:
        raise SystemExit(f"no *.myst.md in {BOOK.name}/")
    if options.check:
        orphans = sorted(
            path.name for path in BOOK.glob("*.ipynb") if not path.with_suffix(".myst.md").exists()
        )
        problems = [problem for source in sources for problem in disagreements(source)]
        problems += [f"{name} has no source beside it" for name in orphans if not options.sources]
        if problems:
            raise SystemExit("\n".join([*problems, "run: python tools/bake.py"]))
        print(f"{len(sources)} notebooks agree with their sources")
        return
    if not (options.all or options.sources):
        sources = [source for source in sources if disagreements(source)]
    for source in sources:
        folder = options.into or source.parent
        target = folder / source.name.replace(".myst.md", ".ipynb")
        text = dump(execute(source, source_notebook(source)))
        target.write_text(text, encoding="utf-8", newline="\n")
        print(f"baked {target.name}")
    if not sources:
        print("nothing to bake")


if __name__ == "__main__":
    sys.exit(main())

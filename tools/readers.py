"""What a notebook needs to stand alone, made from the plain source of a chapter.

Outside the site there is no MyST, no bibliography and perhaps no attnlib. So citations become links with the
work's title in them, each exercise gets a heading and its solution a folded one, and a line above the first
code cell says how to install what is missing. What only a notebook needs carries the tag `remove-cell`, which
keeps it off the pages.
"""

import ast
import re
from dis import get_instructions
from functools import cache
from pathlib import Path
from types import CodeType

import nbformat
from pybtex.database import parse_file
from pybtex.plugin import find_plugin

import attnlib

REFERENCES = Path(__file__).resolve().parents[1] / "book" / "references.bib"
CITATION = re.compile(r"\{cite:([tp])\}`([^`]+)`")
DOWNLOAD = re.compile(r"\{download\}`([^<`]+?)\s*<([^>`]+)>`")
EXERCISE = re.compile(r"^\*\*Exercise (\d+)\.\*\* ", re.M)
FENCE = re.compile(r"^(`{3,}|~{3,})[^{\n]*\n.*?^\1[`~]*$", re.M | re.S)
MYST = re.compile(r"\{[a-z][a-z:-]*\}`|^ *(?:`{3,}|~{3,}|:{3,})\{|^\([\w-]+\)=$|^\$\$ *\([\w-]+\)$", re.M)
# Modules that cannot work without torch; Triton brings nothing without it.
TORCH = {"torch", "triton", "torch_path", "backends", "bench", "kernels"}
WHEEL = f"https://SITE/attnlib-{attnlib.__version__}-py3-none-any.whl"


def cells(source_cells, where):
    """The cells of a chapter's source as its notebook has them."""
    found = []
    for cell in source_cells:
        if cell.cell_type != "markdown":
            if "hide-cell" in cell.metadata.get("tags", []) and not _folded(found):
                found.append(_for_notebooks("#### Solution", **{"jp-MarkdownHeadingCollapsed": True}))
            found.append(cell)
            continue
        # An exercise starts a cell: in JupyterLab the heading of a cell ends the fold above it.
        for part in re.split(r"^(?=\*\*Exercise )", cell.source, flags=re.M):
            if part.strip():
                text = EXERCISE.sub(r"### Exercise \1\n\n", plain(part.strip(), where))
                found.append(nbformat.v4.new_markdown_cell(text, metadata=cell.metadata))
    first = next((at for at, cell in enumerate(found) if cell.cell_type == "code"), None)
    if first is not None:
        found.insert(first, _for_notebooks(install_note(found)))
    return found


def _folded(cells):
    return bool(cells) and "hide-cell" in cells[-1].metadata.get("tags", [])


def _for_notebooks(text, **metadata):
    return nbformat.v4.new_markdown_cell(text, metadata={**metadata, "tags": ["remove-cell"]})


def plain(text, where):
    """Markdown that every notebook program shows: MyST's roles resolved, or refused by name."""
    text = DOWNLOAD.sub(r"[\1](\2)", text)
    text = CITATION.sub(lambda match: _cite(match[1], match[2].split(","), where), text)
    left = MYST.search(FENCE.sub("", text))
    if left:
        raise SystemExit(
            f"{where}: only the site understands {left.group().strip()!r}; write plain Markdown or HTML"
        )
    return text


# --- citations -------------------------------------------------------------------------------------------


def _cite(kind, keys, where):
    """{cite:t} as Vaswani et al. (2017), {cite:p} as (Vaswani et al., 2017): links into the bibliography."""
    links = []
    for key in map(str.strip, keys):
        if key not in works():
            raise SystemExit(f"{where}: no work is called {key!r} in {REFERENCES.name}")
        names, year, full = works()[key]
        words = f"{names} ({year})" if kind == "t" else f"{names}, {year}"
        links.append(f'[{words}](bibliography.md#{key} "{full}")')
    return ", ".join(links) if kind == "t" else f"({'; '.join(links)})"


@cache
def works():
    """Of each work: its authors in short, the year, and its whole line in the bibliography."""
    database = parse_file(REFERENCES)
    style, backend = (
        find_plugin("pybtex.style.formatting", "plain")(),
        find_plugin("pybtex.backends", "text")(),
    )
    lines = {entry.key: entry.text.render(backend) for entry in style.format_bibliography(database)}
    found = {}
    for key, entry in database.entries.items():
        last = [" ".join(map(str, person.rich_last_names)) for person in entry.persons["author"]]
        names = f"{last[0]} *et al.*" if len(last) > 2 else " and ".join(last)
        # A quotation mark would end the link's title, and a bar the cell of a table.
        full = lines[key].replace('"', "'").replace("|", "/")
        found[key] = names, entry.fields["year"], full
    return found


# --- what a notebook needs -------------------------------------------------------------------------------


def install_note(cells):
    """The line above the first code cell."""
    note = (
        "**To run this notebook** you need `attnlib`. If the next cell ends with "
        "`No module named 'attnlib'`, run this first: "
        f'`%pip install "attnlib[widgets] @ {WHEEL}"` (for SITE, write the address of the '
        "site that offers this notebook)."
    )
    numbers = torch_cells([cell.source for cell in cells if cell.cell_type == "code"])
    if numbers and numbers[0] == 1:
        note += " It needs torch too, from the first cell on: `%pip install torch`."
    elif numbers:
        note += f" Code cells {_listed(numbers)} need torch too: `%pip install torch`."
    return note


def _listed(numbers):
    """[1, 2, 3, 7] as "[1] to [3], [7]"."""
    runs = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"[{run[0]}] to [{run[-1]}]" if len(run) > 1 else f"[{run[0]}]" for run in runs)


def torch_cells(sources):
    """The numbers, from 1, of the code cells that go wrong where torch is not installed."""
    missing, numbers = set(TORCH), []
    for number, source in enumerate(sources, 1):
        fails = False
        for statement in ast.parse(source).body:
            code = compile(ast.Module([statement], []), "cell", "exec")
            reads, binds = (
                set(_reads(code)),
                {i.argval for i in get_instructions(code) if i.opname == "STORE_NAME"},
            )
            # A function fails when it is called, not where it is written.
            fails = fails or bool(reads & missing and not isinstance(statement, ast.FunctionDef))
            missing = missing | binds if reads & missing or fails else missing - (binds - TORCH)
        if fails:
            numbers.append(number)
    return numbers


def _reads(code):
    """The names that code takes from outside itself, those of modules among them."""
    for step in get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"):
            if not step.opname.endswith(("ATTR", "METHOD")) or step.argval in TORCH:
                yield step.argval
        elif step.opname == "IMPORT_NAME":
            yield step.argval.split(".")[0]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _reads(inner)

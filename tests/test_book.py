"""The chapters: form, hygiene, and where their numbers come from."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))
CHAPTERS = [path for path in NOTEBOOKS if re.match(r"(0[1-9]|1[0-2])_", path.name)]
LARGEST = 1_000_000  # bytes of one notebook; a 512 x 512 list printed by accident is beyond it


def by_name(path):
    return path.stem


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def markdown(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


class _Text(HTMLParser):
    """The text of an HTML output, each piece apart from the next."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def handle_data(self, data):
        self.pieces.append(data)


def output_text(notebook):
    """Everything that a reader can see in the outputs of a notebook, as one text."""
    pieces = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            pieces.append(output.get("text", ""))
            pieces.append(output.get("data", {}).get("text/plain", ""))
            html = _Text()
            html.feed(output.get("data", {}).get("text/html", ""))
            pieces += html.pieces
    return "\n".join(pieces)


# --- where the numbers come from -----------------------------------------------------------------------

CODE_SPAN = re.compile(r"`[^`\n]*`")
LINK_TARGET = re.compile(r"\]\([^)\"]*(?:\"[^\"]*\")?\)")  # its title too
NUMBER = re.compile(
    r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\d,]\d)|(?<![\w.])\d*\.\d+(?!\w|\.\d)|(?<![\w.,])\d{4,}(?!\w|\.\d)"
)
YEAR = re.compile(r"(19|20)\d\d")


def quoted_numbers(text):
    """Decimals, and whole numbers from 1,000 on, that prose quotes (code, link targets and years aside)."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = LINK_TARGET.sub("]", CODE_SPAN.sub("", text)).replace(r"\,", "").replace("{,}", ",")
    return [number for number in NUMBER.findall(text) if not YEAR.fullmatch(number)]


def appears(number, text):
    """Is `number` printed in `text` with just these digits (or with more 0s in front or thousands marks)?"""
    bare = number.replace(",", "")
    spellings = {number, bare, f"{int(bare):,}" if bare.isdigit() else "0" + bare.removeprefix("0")}
    return any(re.search(rf"(?<![\d.]){re.escape(spelling)}(?![\d])(?!\.\d)", text) for spelling in spellings)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_numbers_in_prose_come_from_executed_cells(path):
    notebook = read(path)
    text = output_text(notebook)
    typed = [number for number in quoted_numbers(markdown(notebook)) if not appears(number, text)]
    assert not typed, f"{path.name} quotes {typed}, which no output prints"


def test_a_typed_number_is_noticed():
    assert quoted_numbers("It is 0.8438, of 16,777,216 or 4096; in 2017; row 3; `0.5`; [x](a_0.1.ipynb)") == [
        "0.8438",
        "16,777,216",
        "4096",
    ]
    # At the end of a sentence too.
    assert quoted_numbers("It is 0.25. Or 4096. Or 1,024. Version 1.2.3") == ["0.25", "4096", "1,024"]
    assert appears("0.8438", "P = [0.1142 0.0420 0.8438]")
    assert appears(".8438", "0.8438")
    assert appears("16777216", "16,777,216")
    assert not appears("0.84", "0.8438")
    assert not appears("0.8437", "0.8438")
    assert not appears("1.5", "11.5")


# Numbers of the mission's facts, by the chapter that has to show them, as printed there to four decimals.
FACTS = {
    "00_read_a_table": ["0.8349", "-0.3395"],
    "01_heads": [],
    "02_scores": ["16,777,216", "67,108,864", "268,435,456"],
    "03_scaling": ["0.9796", "0.8438", "0.7337", "0.6285"],
    "04_masking": ["0.7662", "0.1710", "0.0629", "0.8055", "0.1797", "0.0148", "0.8176", "0.1824"],
    "05_softmax": ["0.1142", "0.0420", "0.8438", "0.8176", "0.1824", "1.5000", "3.2014", "3.1698"],
    "06_weighted_sum": ["0.1142", "0.0420", "0.8438", "0.8176", "0.1824"],
    "07_whole_head": [
        *["0.6698", "0.3302", "0.8349", "-0.3395", "0.2483", "0.5035", "1.1276", "0.4011", "0.1978"],
        *["0.2840", "0.1400", "0.5760", "0.9796", "0.7337", "0.6285"],
    ],
    "08_cost": ["16,777,216", "67,108,864", "268,435,456", "32 MiB", "128 MiB", "512 MiB"],
    "09_online_softmax": [
        *["0.1353", "1.3679", "1.1851", "0.3679", "0.0498", "0.1142", "0.0420", "0.8438", "3.1698"],
        *["0.7311", "0.2689", "1.3133", "0.1562", "0.3655", "0.1345", "0.5000"],
    ],
    "10_tiles": ["10 of 16", "36 of 64", "2,080 of 4,096", "132", "66", "2.0", "3.9"],
    "11_backward": [
        *["0.1142", "0.1012", "-0.0048", "-0.0964", "0.1493", "-0.0458", "0.0988", "-0.0506", "0.0506"],
        *["0.0024", "-0.0024", "0.0482", "-0.0482", "0.0420", "0.8438"],
    ],
    "12_gpu": ["0.1142", "0.0420", "0.8438", "3.1698"],
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_are_shown(name):
    text = output_text(read(BOOK / f"{name}.ipynb"))
    missing = [
        number for number in FACTS[name] if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text)
    ]
    assert not missing, f"{name} does not show {missing}"


# --- form ------------------------------------------------------------------------------------------------

SECTIONS = [
    "What you will do",
    "By hand",
    "The formula",
    "In code",
    "The library's version",
    "See it",
    "Play",
    "What goes wrong",
    "What it costs",
    "Takeaways",
    "Exercises",
    "Further reading",
]


@pytest.mark.parametrize("path", CHAPTERS, ids=by_name)
def test_sections_stand_in_order(path):
    headings = re.findall(r"^## (.+?)\s*$", markdown(read(path)), flags=re.M)
    assert [heading for heading in headings if heading in SECTIONS] == SECTIONS


@pytest.mark.parametrize("path", CHAPTERS, ids=by_name)
def test_first_cell_lights_the_pipeline(path):
    first = code_cells(read(path))[0]
    assert "show.pipeline(" in first.source
    assert 'aria-current="step"' in "".join(o.get("data", {}).get("text/html", "") for o in first.outputs)


@pytest.mark.parametrize("path", CHAPTERS, ids=by_name)
def test_every_exercise_has_a_folded_solution(path):
    notebook = read(path)
    exercises = re.findall(r"^### Exercise (\d+)$", markdown(notebook), flags=re.M)
    assert exercises == [str(n) for n in range(1, len(exercises) + 1)]
    assert len(exercises) >= 4
    solutions = [cell for cell in code_cells(notebook) if "hide-cell" in cell.metadata.get("tags", [])]
    assert len(solutions) >= len(exercises)
    assert all(cell.outputs for cell in solutions), "a solution that shows nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_link_text_names_the_chapter_it_leads_to(path):
    for number, target in re.findall(r"\[[Cc]hapter (\d+)\]\((\w+)\.ipynb", markdown(read(path))):
        assert target.startswith(f"{int(number):02d}_"), f"'chapter {number}' leads to {target}"


def test_contents_list_every_notebook_and_nothing_else():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [toc["root"]] + [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    assert len(files) == len(set(files))
    for file in files:
        assert (ROOT / f"{file}.ipynb").exists() or (ROOT / f"{file}.md").exists(), f"{file} does not exist"
    assert {f"book/{path.stem}" for path in NOTEBOOKS} <= set(files)


# --- hygiene ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_notebook_is_valid_and_clean(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size <= LARGEST
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [cell.id for cell in notebook.cells]
    assert len(ids) == len(set(ids))
    raw = path.read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|root|tmp|work|Users)/\w", raw), "a machine path"
    assert "https://cdn" not in raw and "<script" not in raw
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", cell.source


# B13: a cell that teaches has at most LINES lines. These are whole things, tagged `long-cell`, and no more
# may come: drawings, a kernel beside its original, solutions that measure.
LINES, LONGEST = 15, 22
LONG = {
    "00_read_a_table": {29: "a solution: box, mistake and both counts"},
    "07_whole_head": {42: "words of a table, cut to its width"},
    "08_cost": {12: "a drawing", 15: "a drawing", 28: "a drawing", 39: "a solution that measures"},
    "09_online_softmax": {43: "a solution: the lazy loop and its mistake"},
    "10_tiles": {13: "a drawing", 39: "a drawing"},
    "12_gpu": {
        8: "the kernel in NumPy, line by line beside Triton's",
        16: "the real kernel, watched while it runs",
        20: "a drawing",
        24: "a drawing",
        40: "a drawing",
        62: "a solution that measures",
    },
}


def is_long(cell):
    return "long-cell" in cell.metadata.get("tags", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_long_cells_are_named_and_needed(path):
    numbered = {n: cell for n, cell in enumerate(code_cells(read(path)), 1) if is_long(cell)}
    assert list(numbered) == list(LONG.get(path.stem, {}))
    assert sum(map(len, LONG.values())) == 15
    assert all(len(cell.source.splitlines()) > LINES for cell in numbered.values()), (
        "no longer long: untag it"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_code_is_fit_to_be_read(path):
    for cell in code_cells(read(path)):
        lines = cell.source.splitlines()
        assert len(lines) <= (LONGEST if is_long(cell) else LINES), f"{len(lines)} lines:\n{cell.source}"
        assert all(len(line) <= 80 for line in lines), cell.source
        assert not cell.source.rstrip().endswith(";")
        assert not re.search(r"^\s*[!%]", cell.source, flags=re.M), "a shell or magic line"
        assert not re.search(r"import \*", cell.source)
        assert not re.search(r"default_rng\(\)|np\.random\.(?!default_rng|Generator)", cell.source), "no seed"
        assert not re.search(r"torch\.(rand|randn|randint)\(", cell.source), "unseeded torch numbers"
        ignored = {"nbval-ignore-output", "nbval-skip"} & set(cell.metadata.get("tags", []))
        assert not ignored, f"{ignored}: no output of these chapters may go uncompared"


def test_hostile_notebook_forms_are_refused_with_a_name(tmp_path):
    """B11, B16, B17: another kernel, ids twice, an old format: named, not crashed on."""
    source = tmp_path / "x.myst.md"
    source.write_text(
        jupytext.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), fmt="md:myst")
    )
    baked = tmp_path / "x.ipynb"
    from bake import disagreements

    good = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", id="a")])
    good.metadata["kernelspec"] = {"display_name": "foo", "language": "python", "name": "conda-env-foo-py"}
    baked.write_text(nbformat.writes(good))
    assert any("conda-env-foo-py" in problem for problem in disagreements(source))
    twice = json.loads(nbformat.writes(good))
    twice["cells"] *= 2
    baked.write_text(json.dumps(twice))
    assert any("x.ipynb" in problem for problem in disagreements(source))
    for text in ('{"nbformat": 3, "worksheets": []}', "[]", "not json", '{"metadata": []}'):
        baked.write_text(text)
        assert any("x.ipynb" in problem for problem in disagreements(source)), text

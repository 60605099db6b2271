"""Files that students hand in: read without trust, restored to their assignment, taken out of a zip."""

import csv
import datetime
import io
import json
import os
import re
import stat
import struct
import zipfile
from pathlib import Path

import nbformat
import pytest

from course import intake, lms, text, verdict
from course.intake import Refused, read, restore

NAME = "0_tiny"
TEXT = '''---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
course: {title: "Tiny", minutes: 5, about: "Double it."}
---
# Tiny

Double a number.

```{code-cell} ipython3
import numpy as np
```

```{code-cell} ipython3
:answer: double
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
```

```{code-cell} ipython3
:check: doubles
:points: 2
assert double(3) == 6
```

```{code-cell} ipython3
:hidden: doubles
expect("double", (np.array(4.0),), lambda x: 2 * x)
```

+++ {"choice": "letter", "points": 1, "answers": [["one", null], ["two", "No."]]}

Which?

+++

Why?

+++ {"written": "why", "points": 3}

Because.

+++ {"rubric": "why"}

Three points.

+++

The end.
'''
CHECK = "assert double(3) == 6"
STUB = "*Your answer here.*"
ORDER = [
    "text-000",
    "given-001",
    "answer-double",
    "doubles",
    "text-004",
    "answer-letter",
    "letter",
    "text-007",
    "why",
    "text-009",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assignments")
    (folder / f"{NAME}.myst.md").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "FOLDER", folder)
        text.load.cache_clear()
        yield text.load(NAME)
    text.load.cache_clear()


@pytest.fixture
def released(tiny):
    return text.student_notebook(tiny)


# --- reading ------------------------------------------------------------------------------------------------


def cell(source="x = 1", **other):
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    } | other


def book(*cells, **other):
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [
        {"id": f"id{number}"} | one if isinstance(one, dict) else one for number, one in enumerate(cells)
    ]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells} | other


def without(thing, key):
    return {name: value for name, value in thing.items() if name != key}


@pytest.fixture
def reading(tmp_path):
    """Read what stands in a file: bytes, text, or anything as JSON."""

    def of(content):
        if not isinstance(content, (bytes, str)):
            content = json.dumps(content)
        path = tmp_path / "x.ipynb"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        notebook, notes = read(path)
        nbformat.validate(json.loads(nbformat.writes(notebook)))
        assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
        assert notebook.metadata == {"kernelspec": text.KERNEL, "language_info": {"name": "python"}}
        return notebook, notes

    return of


def sources(notebook):
    return [one.source for one in notebook.cells]


def test_a_released_notebook_is_read_without_a_note(released, reading):
    notebook, notes = reading(text.dump(released))
    assert notes == []
    assert sources(notebook) == sources(released)
    assert [one.id for one in notebook.cells] == [one.id for one in released.cells]


def test_what_jupyter_adds_on_saving_is_worth_no_note(reading):
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]
    metadata = {"tags": ["a"], "scrolled": True, "execution": {"iopub.status.busy": "2026"}}
    saved = book(cell(["x = 1\n", "x"], outputs=outputs, execution_count=3, metadata=metadata))
    saved["metadata"] |= {"language_info": {"name": "python", "version": "3.13.1"}, "widgets": {"a": 1}}
    saved["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    notebook, notes = reading(saved)
    assert notes == []
    (one,) = notebook.cells
    assert one == {
        "cell_type": "code",
        "id": "id0",
        "metadata": {},
        "source": "x = 1\nx",
        "outputs": [],
        "execution_count": None,
    }


WEB = "<!DOCTYPE html>\n<html><body>Log in</body></html>"
CUT = json.dumps(book(cell("a" * 100)))
REFUSED = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\n", "is empty"),
    "only-a-bom": (b"\xef\xbb\xbf", "is empty"),
    "web-page": (WEB, "web page"),
    "html": ("\n  <HTML><head>", "web page"),
    "xml": ("<?xml version='1.0'?>", "no notebook"),
    "zip": (b"PK\x03\x04rest", "zip archive"),
    "empty-zip": (b"PK\x05\x06" + bytes(18), "zip archive"),
    "gzip": (b"\x1f\x8b\x08", "gzip"),
    "pdf": (b"%PDF-1.7", "a PDF"),
    "png": (b"\x89PNG\r\n", "picture"),
    "jpeg": (b"\xff\xd8\xff\xe0", "picture"),
    "python": ("import numpy as np\n\ndef f():\n    pass\n", "Python program"),
    "python-with-a-comment": ("# %% [markdown]\n# hello\n", "Python program"),
    "words": ("Dear teacher, I could not", "begins with 'dear teacher"),
    "latin-1": ('{"nbformat": "é"}'.encode("latin-1"), "not UTF-8"),
    "noise": (bytes(range(128, 256)), "not UTF-8"),
    "cut": (CUT[:100], "upload was cut off"),
    "cut-in-text": (CUT[: CUT.index("aaa") + 5], "upload was cut off"),
    "cut-after-comma": (CUT[: CUT.index('"cells"')], "upload was cut off"),
    "damaged": ('{"nbformat": 4,\n"cells": [}', "damaged in line 2"),
    "conflict": ('{"nbformat": 4,\n<<<<<<< HEAD\n"cells": []}', "merge conflict"),
    "many-digits": ('{"nbformat": ' + "1" * 5000 + "}", "thousands of digits"),
    "a-list": ([book()], "no notebook"),
    "a-number": ("4", "no notebook"),
    "no-format": (without(book(), "nbformat"), "no notebook"),
    "format-true": (book(nbformat=True), "no notebook"),
    "format-text": (book(nbformat="4"), "no notebook"),
    "format-3": (
        {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": []},
        "format 3.*turns it into",
    ),
    "format-2": ({"nbformat": 2, "worksheets": []}, "format 2"),
    "format-5": (book(nbformat=5), "format 5[^;]*$"),
    "no-cells": (without(book(), "cells"), "no list of cells"),
    "cells-a-dict": (book(cells={"0": cell()}), "no list of cells"),
    "cell-a-text": (book(cell(), "x = 1"), "Cell 2 .* is no cell"),
    "cell-null": (book(None), "Cell 1 .* is no cell"),
    "heading": (book(cell(cell_type="heading")), "type heading"),
    "no-type": (book(without(cell(), "cell_type")), "type None"),
    "type-a-list": (book(cell(cell_type=["code"])), "Cell 1"),
    "source-missing": (book(without(cell(), "source")), "Cell 1 holds no text"),
    "source-a-number": (book(cell(), cell(5)), "Cell 2 holds no text"),
    "source-null": (book(cell(None)), "holds no text"),
    "source-a-dict": (book(cell({"a": "b"})), "holds no text"),
    "source-list-of-numbers": (book(cell(["x", 1])), "holds no text"),
    "source-nested": (book(cell([["x"]])), "holds no text"),
    "much-text": (book(cell("x" * 1_000_001), cell("y" * 1_000_000)), "2000001 characters"),
    "many-cells": (book(*[cell("")] * 2001), "2001 cells"),
    "nested-101": ('{"nbformat": 4, "a": ' + "[" * 100 + "]" * 100 + "}", "nested"),
    "nested-in-metadata": (
        json.dumps(book(cell())).replace("{}", '{"a":' * 200 + "1" + "}" * 200, 1),
        "nested",
    ),
    "nested-100000": ("[" * 100_000, "nested"),
    "nested-objects": ('{"a":' * 50_000, "nested"),
    "many-parts": ("[" + "[]," * 1_000_000 + "[]]", "more parts"),
}


@pytest.mark.parametrize("content, words", REFUSED.values(), ids=REFUSED)
def test_what_is_no_notebook_is_refused_in_words(reading, content, words):
    with pytest.raises(Refused, match=f"(?s){words}") as refused:
        reading(content)
    said = str(refused.value)
    assert "Wanted: a Jupyter notebook" in said
    assert re.search("hand|Hand", said)
    assert len(said) < 500
    assert said.isprintable()
    # No trace of what Python thought of it.
    assert refused.value.__cause__ is None and refused.value.__suppress_context__ == bool(
        refused.value.__context__
    )


def test_a_hundred_levels_are_read(reading):
    deep = json.dumps(book(cell())).replace('"metadata"', '"a": ' + "[" * 99 + "]" * 99 + ', "metadata"', 1)
    assert reading(deep)[1] == []


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(reading, monkeypatch):
    monkeypatch.setattr(intake.json, "loads", lambda _: pytest.fail("parsed"))
    with pytest.raises(Refused, match="more than 25 MB.*Clear the outputs"):
        reading(b" " * (25 * 2**20 + 1))


def test_a_file_of_just_the_size_allowed_is_read(reading):
    content = json.dumps(book(cell())).encode()
    assert sources(reading(content + b" " * (25 * 2**20 - len(content)))[0]) == ["x = 1"]


def test_memory_that_runs_out_is_refused(reading, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(intake.json, "loads", full)
    with pytest.raises(Refused, match="too large"):
        reading(book())


def test_no_file_no_notebook(tmp_path):
    with pytest.raises(Refused, match="no file x.ipynb"):
        read(tmp_path / "x.ipynb")
    with pytest.raises(Refused, match="no file x.ipynb"):
        read(str(tmp_path / "nowhere" / "x.ipynb"))


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.ipynb").mkdir()
    with pytest.raises(Refused, match="x.ipynb is a folder"):
        read(tmp_path / "x.ipynb")


@pytest.mark.parametrize("target", ["real.ipynb", "missing.ipynb"])
def test_a_link_is_not_followed(tmp_path, target):
    (tmp_path / "real.ipynb").write_text(json.dumps(book(cell())))
    (tmp_path / "x.ipynb").symlink_to(tmp_path / target)
    with pytest.raises(Refused, match="link"):
        read(tmp_path / "x.ipynb")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.ipynb")
    with pytest.raises(Refused, match="not a file"):
        read(tmp_path / "x.ipynb")


def test_a_file_that_cannot_be_opened_is_refused(tmp_path, monkeypatch):
    def closed(*_):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "x.ipynb").write_text("{}")
    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(Refused, match="cannot be read: Permission denied"):
        read(tmp_path / "x.ipynb")


def test_a_byte_order_mark_is_no_matter(reading):
    notebook, notes = reading(json.dumps(book(cell("π = 3"))).encode("utf-8-sig"))
    assert (sources(notebook), notes) == (["π = 3"], [])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_unicode_is_read_with_a_note(reading, encoding):
    notebook, notes = reading(json.dumps(book(cell("π = 3")), ensure_ascii=False).encode(encoding))
    assert sources(notebook) == ["π = 3"]
    assert len(notes) == 1 and "UTF-" in notes[0]


@pytest.mark.parametrize("minor", [0, 1, 2, 3, 4])
def test_older_notebooks_are_given_ids(reading, minor):
    old = book(nbformat_minor=minor, cells=[cell("a"), cell("b", cell_type="markdown")])
    notebook, notes = reading(old)
    assert sources(notebook) == ["a", "b"]
    assert len({one.id for one in notebook.cells}) == 2
    assert notes == [f"The notebook is of the older format 4.{minor}; its cells were given ids."]


@pytest.mark.parametrize("minor", [6, 99, -1, None, "5", 4.5, True])
def test_an_odd_minor_format_is_read_with_a_note(reading, minor):
    notebook, notes = reading(book(cell(), nbformat_minor=minor))
    assert sources(notebook) == ["x = 1"]
    assert notes == [f"The notebook's format is said to be 4.{minor}; it was read as 4.5."]


def test_missing_double_and_impossible_ids_are_mended(reading):
    ids = ["good", "good", None, 7, "with space", "x" * 65, "", "line\n", "cell-1", ["good"]]
    notebook, notes = reading(
        book(*[cell(str(n), id=identity) for n, identity in enumerate(ids)], without(cell(), "id"))
    )
    made = [one.id for one in notebook.cells]
    assert len(set(made)) == len(ids) + 1
    assert made[0] == "good"
    assert all(re.fullmatch(r"[\w-]{1,64}", identity, re.ASCII) for identity in made)
    (note,) = notes
    assert note.startswith("Cell 2, 3, 4, 5, 6 and 4 more had no id")


def test_a_missing_id_alone_is_named(reading):
    one, two = book(cell("a"), cell("b"))["cells"]
    notebook, notes = reading(book(cells=[one, without(two, "id")]))
    assert [cell.id for cell in notebook.cells] == ["id0", "cell-1"]
    assert notes == ["Cell 2 had no id of its own and was given one."]


def test_mended_ids_are_the_same_each_time(reading):
    double = book(cell("a", id="i"), cell("b", id="i"))
    assert reading(double)[0] == reading(double)[0]


@pytest.mark.parametrize("name", ["conda-env-foo-py", "ir", "python", "", 7, ["python3"]])
def test_any_kernel_becomes_python3(reading, name):
    notebook, notes = reading(book(cell(), metadata={"kernelspec": {"name": name, "display_name": "x"}}))
    assert notebook.metadata.kernelspec.name == "python3"
    (note,) = notes
    assert intake.said(name) in note and "python3" in note


def test_no_kernel_or_its_display_name_are_no_matter(reading):
    for metadata in ({}, {"kernelspec": None}, {"kernelspec": {"name": "python3", "display_name": 3}}):
        assert reading(book(cell(), metadata=metadata))[1] == []


def test_a_kernel_that_is_a_text_is_noted(reading):
    assert "`" not in reading(book(metadata={"kernelspec": "julia"}))[1][0]


@pytest.mark.parametrize(
    "metadata, what", [([], "list"), ([{"kernelspec": 1}], "list"), ("x", "str"), (3, "int")]
)
def test_metadata_of_another_kind_is_replaced(reading, metadata, what):
    notebook, notes = reading(book(cell(), metadata=metadata))
    assert sources(notebook) == ["x = 1"]
    assert notes == [f"The notebook's metadata is a {what}; it was replaced."]


def test_missing_metadata_is_replaced(reading):
    assert reading(without(book(cell()), "metadata"))[1] == [
        "The notebook's metadata is missing; it was replaced."
    ]


def test_cells_without_sound_metadata_are_mended(reading):
    notebook, notes = reading(
        book(cell(), cell(metadata=[]), without(cell(), "metadata"), cell(metadata="x"))
    )
    assert [one.metadata for one in notebook.cells] == [{}] * 4
    assert notes == ["Cell 2, 3, 4 had no sound metadata, which was dropped."]


def test_of_metadata_only_the_grading_stays(reading):
    grading = {"grade_id": "a", "grade": True, "points": 9.5, "solution": False, "locked": 1, "task": "x"}
    odd = {"checksum": "c", "extra": {"deep": []}, "schema_version": 3}
    notebook, notes = reading(
        book(cell(metadata={"nbgrader": grading | odd, "tags": ["t"], "editable": False}))
    )
    assert notebook.cells[0].metadata == {"nbgrader": grading}
    assert notes == []


@pytest.mark.parametrize(
    "grading", [[], "x", 4, None, {"grade_id": ["a"], "points": {"a": 1}, "grade": None}]
)
def test_grading_that_is_none_is_dropped(reading, grading):
    assert reading(book(cell(metadata={"nbgrader": grading})))[0].cells[0].metadata == {}


@pytest.mark.parametrize(
    "outputs", [None, "x", {}, [3], [{}], [{"output_type": "widget"}], [{"output_type": ["error"]}]], ids=repr
)
def test_damaged_outputs_are_dropped_with_a_note(reading, outputs):
    notebook, notes = reading(book(cell(), cell(outputs=outputs)))
    assert notebook.cells[1].outputs == []
    assert notes == ["Cell 2 had damaged outputs, which do not count anyway."]


def test_outputs_and_counts_are_dropped(reading):
    outputs = [
        {
            "output_type": "execute_result",
            "execution_count": 2,
            "data": {"text/html": "<script>"},
            "metadata": {},
        }
    ]
    notebook, notes = reading(book(cell(outputs=outputs, execution_count="x")))
    assert (notebook.cells[0].outputs, notebook.cells[0].execution_count) == ([], None)
    assert notes == []


def test_markdown_and_raw_cells_have_no_outputs(reading):
    notebook, notes = reading(book(cell(cell_type="markdown"), cell(cell_type="raw")))
    assert [sorted(one) for one in notebook.cells] == [["cell_type", "id", "metadata", "source"]] * 2
    assert notes == []


def test_halves_of_characters_are_replaced(reading):
    content = json.dumps(book(cell("a \ud800 b"), cell("\U0001f600"), cell(["\udfff"])))
    notebook, notes = reading(content)
    assert sources(notebook) == ["a \ufffd b", "\U0001f600", "\ufffd"]
    assert notes == ["Cell 1, 3 had broken characters, which were replaced."]


def test_a_halved_character_in_a_grading_name_can_be_written(reading):
    notebook, _ = reading(book(cell(metadata={"nbgrader": {"grade_id": "\ud800"}})))
    assert notebook.cells[0].metadata.nbgrader.grade_id == "\ufffd"


def test_pasted_pictures_stay_in_words_and_nothing_else_does(reading):
    attachments = {
        "image.png": {"image/png": "aGVsbG8=", "text/html": "<script>"},
        "photo\ud800": {"image/jpeg": "aGk="},
        "bad.png": {"image/png": '"><script>'},
        "x.svg": {"image/svg+xml": "<svg onload=x>"},
        "list": [],
        "number": {"image/png": 4},
    }
    words, code = cell(cell_type="markdown", attachments=attachments), cell(attachments=attachments)
    notebook, _ = reading(book(words, code))
    assert notebook.cells[0].attachments == {
        "image.png": {"image/png": "aGVsbG8="},
        "photo\ufffd": {"image/jpeg": "aGk="},
    }
    assert "attachments" not in notebook.cells[1]
    assert "attachments" not in reading(book(cell(cell_type="markdown", attachments=[1])))[0].cells[0]


def test_what_is_quoted_is_short_and_seen():
    assert intake.said("a\u202eb\x1b[31m\n") == "a?b?[31m?"
    assert intake.said("x" * 40) == "x" * 40
    assert intake.said("x" * 41) == "x" * 37 + "..."
    assert intake.few(range(5)) == "0, 1, 2, 3, 4"
    assert intake.few(range(7)) == "0, 1, 2, 3, 4 and 2 more"


# --- restoring ----------------------------------------------------------------------------------------------


def named(notebook, name):
    (one,) = (one for one in notebook.cells if one.metadata.get("nbgrader", {}).get("grade_id") == name)
    return one


def order(notebook):
    return [one.metadata.get("nbgrader", {}).get("grade_id", one.source) for one in notebook.cells]


def extra(source, name=None, kind="code", identity="mine", **grading):
    make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    metadata = {"nbgrader": {"grade_id": name} | grading} if name is not None or grading else {}
    return make(source, id=identity, metadata=metadata)


def restored(tiny, notebook):
    """Restore, and check what must hold whatever was handed in."""
    notes = restore(tiny, notebook)
    nbformat.validate(json.loads(nbformat.writes(notebook)))
    fresh = text.student_notebook(tiny)
    assert notebook.metadata == fresh.metadata
    there = order(notebook)
    for one in fresh.cells:
        grading = one.metadata.nbgrader
        if grading.locked:
            assert named(notebook, grading.grade_id) == one
        elif grading.grade_id in there:
            mine = named(notebook, grading.grade_id)
            assert (mine.id, mine.cell_type, mine.metadata) == (one.id, one.cell_type, one.metadata)
    assert "why" in there
    assert all(not one.metadata for one in notebook.cells if "nbgrader" not in one.metadata)
    assert len(notes) == len(set(notes))
    return notes


def test_the_tiny_assignment_is_what_these_tests_think(released):
    assert order(released) == ORDER
    assert named(released, "why").source == STUB


def test_an_untouched_release_gives_no_notes(tiny, released):
    before = text.dump(released)
    assert restored(tiny, released) == []
    assert text.dump(released) == before


def test_what_nbgrader_and_jupyterlab_add_gives_no_notes(tiny, released, reading):
    for one in released.cells:
        one.metadata.nbgrader |= {"checksum": "abc", "cell_type": one.cell_type}
        one.metadata |= {"tags": [], "trusted": True, "ExecuteTime": {}, "editable": True}
    named(released, "doubles").metadata.nbgrader.points = 2.0
    named(released, "why").source = "Because of the sum."
    named(released, "answer-double").source = "def double(x):\n    return x + x"
    notebook, notes = reading(text.dump(released))
    assert notes + restored(tiny, notebook) == []
    assert named(notebook, "why").source == "Because of the sum."
    assert named(notebook, "answer-double").source == "def double(x):\n    return x + x"


def test_answers_and_the_order_stay(tiny, released):
    named(released, "answer-double").source = "double = lambda x: 2 * x"
    released.cells.reverse()
    released.cells.insert(3, extra("helper = 1"))
    assert restored(tiny, released) == []
    assert order(released) == [*ORDER[::-1][:3], "helper = 1", *ORDER[::-1][3:]]
    assert named(released, "answer-double").source == "double = lambda x: 2 * x"


@pytest.mark.parametrize("name, says", [("doubles", "check `doubles`"), ("letter", "check `letter`")])
def test_an_edited_check_is_put_back(tiny, released, name, says):
    named(released, name).source = "assert True"
    assert restored(tiny, released) == [f"{says} was changed and has been put back"]


def test_edited_texts_and_given_cells_are_put_back_and_named(tiny, released):
    named(released, "text-000").source = "# Mine"
    named(released, "given-001").source += "\nnp.exp = None"
    assert restored(tiny, released) == [
        "the text that begins “Tiny” was changed and has been put back",
        "the given code that begins “import numpy as np” was changed and has been put back",
    ]


def test_spaces_that_an_editor_trims_are_not_called_a_change(tiny, released):
    named(released, "given-001").source = "import numpy as np  \n"
    named(released, "text-000").source = "# Tiny \r\n\r\nDouble a number."
    named(released, "doubles").source = "  " + CHECK
    assert restored(tiny, released) == ["check `doubles` was changed and has been put back"]


@pytest.mark.parametrize("name", ["doubles", "given-001", "text-000"])
@pytest.mark.parametrize("kind", ["code", "markdown", "raw"])
def test_a_retyped_cell_is_put_back(tiny, released, name, kind):
    one = named(released, name)
    if one.cell_type == kind:
        return
    one.cell_type = kind
    (note,) = restored(tiny, released)
    assert note.endswith(f"was made a {kind} cell and has been put back")


def test_a_retyped_answer_and_question_keep_their_words(tiny, released):
    answer, why = named(released, "answer-double"), named(released, "why")
    answer.source, answer.cell_type = "def double(x): return 2 * x", "raw"
    why.source, why.cell_type, why.outputs, why.execution_count = "Mine", "code", [], None
    answer.attachments = {}
    assert restored(tiny, released) == [
        "answer `double` was made a raw cell and has been put back",
        "question `why` was made a code cell and has been put back",
    ]
    assert named(released, "answer-double").source == "def double(x): return 2 * x"
    assert named(released, "why").source == "Mine"


@pytest.mark.parametrize("points", [0, 100, -1, "2", None])
@pytest.mark.parametrize("name, says", [("doubles", "check `doubles`"), ("why", "question `why`")])
def test_other_points_are_put_back(tiny, released, points, name, says):
    named(released, name).metadata.nbgrader.points = points
    assert restored(tiny, released) == [f"{says} was given other points and has been put back"]


@pytest.mark.parametrize(
    "key, value", [("grade", False), ("locked", False), ("solution", True), ("task", True)]
)
def test_a_check_marked_as_something_else_is_put_back(tiny, released, key, value):
    named(released, "doubles").metadata.nbgrader[key] = value
    assert restored(tiny, released) == ["check `doubles` was marked otherwise and has been put back"]


def test_an_answer_cannot_be_made_a_graded_check(tiny, released):
    named(released, "answer-double").metadata.nbgrader |= {"grade": True, "points": 50, "solution": False}
    assert restored(tiny, released) == ["answer `double` was given other points and has been put back"]


def test_several_changes_stand_in_one_note(tiny, released):
    check = named(released, "doubles")
    check.source, check.cell_type, check.metadata.nbgrader.points = "pass", "markdown", 9
    (note,) = restored(tiny, released)
    assert note == (
        "check `doubles` was changed and made a markdown cell and given other points and has been put back"
    )


@pytest.mark.parametrize("name", [name for name in ORDER if not name.startswith("answer-")])
def test_a_deleted_cell_is_put_back_in_its_place(tiny, released, name):
    released.cells.remove(named(released, name))
    (note,) = restored(tiny, released)
    assert note.endswith(" was missing and has been put back")
    assert order(released) == ORDER


def test_a_deleted_question_is_put_back_empty(tiny, released):
    named(released, "why").source = "Mine"
    released.cells.remove(named(released, "why"))
    assert restored(tiny, released) == ["question `why` was missing and has been put back"]
    assert named(released, "why").source == STUB


def test_a_deleted_answer_is_not_put_back(tiny, released):
    released.cells.remove(named(released, "answer-double"))
    released.cells.insert(0, extra("def double(x): return 2 * x"))
    (note,) = restored(tiny, released)
    assert note == "answer `double` has no cell of its own any more; what other cells define counts"
    assert order(released) == [
        "def double(x): return 2 * x",
        *(name for name in ORDER if name != "answer-double"),
    ]


def test_deleted_cells_come_after_the_predecessor_that_is_left(tiny, released):
    released.cells = [named(released, name) for name in ("text-009", "answer-double", "text-000")]
    released.cells.insert(2, extra("mine"))
    notes = restored(tiny, released)
    assert order(released) == [
        "text-009",
        "answer-double",
        "doubles",
        "text-004",
        "letter",
        "text-007",
        "why",
        "mine",
        "text-000",
        "given-001",
    ]
    assert len(notes) == 7


def test_without_a_predecessor_it_comes_first(tiny, released):
    released.cells = [extra("mine"), *released.cells[2:]]
    restored(tiny, released)
    assert order(released) == [*ORDER[:2], "mine", *ORDER[2:]]


def test_a_second_cell_of_a_name_is_an_ordinary_one(tiny, released):
    copy = nbformat.from_dict(named(released, "doubles"))
    released.cells.append(copy)
    assert restored(tiny, released) == [
        "check `doubles` was there 2 times; all but one count as ordinary cells"
    ]
    assert order(released) == [*ORDER, CHECK]
    assert released.cells[-1].metadata == {} and released.cells[-1].id != released.cells[3].id


def test_of_two_checks_the_untouched_one_stays(tiny, released):
    released.cells.insert(0, extra("assert True", "doubles", grade=True, points=2))
    assert restored(tiny, released) == [
        "check `doubles` was there 2 times; all but one count as ordinary cells"
    ]
    assert order(released) == ["assert True", *ORDER]


def test_of_two_questions_the_one_with_words_stays(tiny, released):
    blank, mine = (nbformat.from_dict(named(released, "why")) for _ in range(2))
    blank.source, mine.source = " \n", "Because I say so."
    blank.id, mine.id = "blank", "mine"
    released.cells += [blank, mine]
    assert restored(tiny, released) == [
        "question `why` was there 3 times; all but one count as ordinary cells"
    ]
    assert order(released) == [STUB if name == "why" else name for name in ORDER] + [" \n", "why"]
    assert named(released, "why").source == "Because I say so."


def test_of_two_answers_the_one_of_code_stays(tiny, released):
    released.cells.insert(0, extra("my draft", "answer-double", "markdown", solution=True))
    named_code = released.cells[3]
    restored(tiny, released)
    assert named(released, "answer-double") is named_code
    assert released.cells[0].source == "my draft" and released.cells[0].cell_type == "markdown"


def test_of_two_answers_the_one_that_was_worked_on_stays(tiny, released):
    released.cells.append(extra("double = lambda x: x + x", "answer-double", solution=True))
    restored(tiny, released)
    assert named(released, "answer-double") is released.cells[-1]


def test_of_two_alike_the_first_stays(tiny, released):
    one, two = (extra(source, "answer-double", identity=source) for source in ("one", "two"))
    released.cells += [one, two]
    restored(tiny, released)
    assert named(released, "answer-double").source == "one"


def test_forged_names_and_points_make_ordinary_cells(tiny, released):
    released.cells += [
        extra("a = 1", "bonus", identity="a", grade=True, points=1000, locked=True, solution=False),
        extra("b = 1", "<script>\u202e" + "x" * 99, identity="b"),
        extra("c = 1", identity="c", grade=True, points=3),
        extra("d = 1", "bonus", "markdown", identity="d", task=True),
    ]
    released.cells[-1].metadata.tags = ["x"]
    (note,) = restored(tiny, released)
    assert note.startswith(
        "cells that are not of this assignment count as ordinary ones: `bonus`, `<script>?xxx"
    )
    assert "one without a name" in note and "\u202e" not in note and len(note) < 250
    assert order(released) == [*ORDER, "a = 1", "b = 1", "c = 1", "d = 1"]


def test_a_thousand_forged_cells_make_a_short_note(tiny, released):
    released.cells += [extra("x", f"forged-{n}", identity=f"f{n}") for n in range(1000)]
    (note,) = restored(tiny, released)
    assert note.endswith("and 995 more")


@pytest.mark.parametrize(
    "grading", [[], "x", None, {"grade_id": ["doubles"]}, {"grade_id": 3}, {"grade_id": {}}]
)
def test_grading_of_a_wrong_kind_is_survived(tiny, released, grading):
    one = extra("x = 1")
    one.metadata["nbgrader"] = grading
    released.cells.append(one)
    assert len(restored(tiny, released)) == (grading == {"grade_id": 3})
    assert order(released) == [*ORDER, "x = 1"]


def test_an_ordinary_cell_cannot_hide_from_the_grader(tiny, released):
    released.cells.append(extra("x = 1", grade=True, solution=False))
    restored(tiny, released)
    assert verdict.student_cells(released)[-1] == "x = 1"
    assert CHECK not in verdict.student_cells(released)


def test_extra_cells_with_released_ids_get_others(tiny, released):
    gone = named(released, "doubles")
    released.cells.remove(gone)
    released.cells.insert(0, extra("mine", identity=gone.id))
    restored(tiny, released)
    assert released.cells[0].source == "mine" and released.cells[0].id != gone.id


def test_a_cell_that_lost_its_metadata_is_known_by_its_id(tiny, released):
    for one in released.cells:
        one.metadata = nbformat.from_dict({})
    named_why = released.cells[8]
    named_why.source = "Mine"
    assert restored(tiny, released) == []
    assert order(released) == ORDER
    assert named(released, "why").source == "Mine"


def test_a_changed_cell_is_not_known_by_its_id_alone(tiny, released):
    one = named(released, "text-009")
    one.source, one.metadata = "My own words.", nbformat.from_dict({})
    assert restored(tiny, released) == ["the text that begins “The end.” was missing and has been put back"]
    assert "My own words." in order(released)


def test_metadata_lists_are_read_and_restored(tiny, released, reading):
    data = json.loads(text.dump(released))
    data["metadata"] = []
    for one in data["cells"]:
        one["metadata"] = []
    notebook, notes = reading(data)
    assert len(notes) == 2
    assert restored(tiny, notebook) == []
    assert order(notebook) == ORDER


def nameless(notebook):
    """As Colab saves it, read again: no ids, no names."""
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.NotebookNode()
    return notebook


def test_cells_without_names_and_ids_are_known_by_their_text_and_place(tiny, released):
    wanted = order(released)
    named(released, "answer-double").source = "%matplotlib inline\r\ndef double(x):\r\n    return x + x"
    named(released, "why").source = "Since it is."
    released.cells.insert(1, extra("def halve(x): return x / 2"))
    (note,) = restored(tiny, nameless(released))
    assert "known by their text" in note
    assert [name for name in order(released) if name in ORDER] == wanted
    assert "return x + x" in named(released, "answer-double").source
    assert named(released, "why").source == "Since it is."


def test_without_names_a_changed_check_is_the_students_own(tiny, released):
    named(released, "doubles").source = "assert True"
    notes = restored(tiny, nameless(released))
    assert "known by their text" in notes[0] and "check `doubles` was missing" in notes[1]
    assert "assert True" in order(released)


def test_another_notebook_is_called_so_and_can_be_graded(tiny):
    other = nbformat.v4.new_notebook(cells=[extra("def double(x): return 2 * x")])
    other.metadata.course = {"marks": {"doubles": {"points": 99}}}
    assert restored(tiny, other) == ["No cell of “Tiny” was recognised: is this the right notebook?"]
    assert order(other)[-1] == "def double(x): return 2 * x"
    assert [name for name in order(other) if name in ORDER] == [
        n for n in ORDER if not n.startswith("answer-")
    ]


def test_an_empty_notebook_is_restored(tiny):
    assert len(restored(tiny, nbformat.v4.new_notebook())) == 1


def test_restoring_twice_changes_nothing_more(tiny, released):
    released.cells = [extra("mine"), *released.cells[3:]]
    restored(tiny, released)
    before = text.dump(released)
    assert restored(tiny, released) == [
        "answer `double` has no cell of its own any more; what other cells define counts"
    ]
    assert text.dump(released) == before


# --- a platform's zip ---------------------------------------------------------------------------------------

A = "1_one_head"
BOOK = json.dumps(book(cell())).encode()
NOON = (2026, 11, 30, 12, 0, 0)


class Zip:
    """A zip as a platform, or somebody with other intentions, makes it."""

    def __init__(self, path):
        self.path, self.file = path, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)

    def add(self, name, content=BOOK, date=NOON, mode=stat.S_IFREG | 0o644, extra=b""):
        info = zipfile.ZipInfo("placeholder", date)
        info.filename = info.orig_filename = name
        info.external_attr, info.extra, info.compress_type = mode << 16, extra, zipfile.ZIP_DEFLATED
        self.file.writestr(info, content)
        return self

    def patch(self, old, new):
        """Change bytes of the finished file."""
        self.file.close()
        content = self.path.read_bytes()
        assert old in content
        self.path.write_bytes(content.replace(old, new))
        return self


@pytest.fixture
def packed(tmp_path):
    return Zip(tmp_path / "all.zip")


@pytest.fixture
def room(tmp_path):
    return tmp_path / "class"


def collect(packed, room, **options):
    """Collect, and check that nothing lies where it should not."""
    packed.file.close()
    before = {path for path in room.parent.rglob("*") if room not in path.parents and path != room}
    reports = lms.collect(packed.path, room, A, **options)
    after = {path for path in room.parent.rglob("*") if room not in path.parents and path != room}
    assert after == before
    for path in room.rglob("*"):
        assert re.fullmatch(
            r"(students|codes)\.csv|handed_in(_before)?(/[a-z0-9_-]+(/1_one_head(/[\dTZ+-]+)?(/.+)?)?)?",
            path.relative_to(room).as_posix(),
        ), path
        assert not path.is_symlink()
    return reports


def handed_in(room):
    return {
        path.parent.parent.name: path.read_bytes() for path in sorted(room.glob(f"handed_in/*/{A}/{A}.ipynb"))
    }


def table(path):
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))


def only(reports):
    (report,) = reports
    return report


MOODLE = "Ada Lovelace_1234567_assignsubmission_file_"


@pytest.mark.parametrize(
    "name, student",
    [
        (f"{MOODLE}/{A}.ipynb", "ada-lovelace"),
        (f"{MOODLE}/folder/{A}.ipynb", "ada-lovelace"),
        (f"{MOODLE[:-1]}/{A}.ipynb", "ada-lovelace"),
        (f"{MOODLE}{A}.ipynb", "ada-lovelace"),
        (f"{MOODLE}/whatever.ipynb", "ada-lovelace"),
        (f"lovelaceada_12345_67890_{A}-3.ipynb", "lovelaceada_12345"),
        (f"lovelaceada_12345_67890_{A}.ipynb", "lovelaceada_12345"),
        ("lovelaceada_12345_67890_a_1_assignsubmission_file_b.ipynb", "lovelaceada_12345"),
        (f"ada/{A}.ipynb", "ada"),
        (f"ada/{A}/{A}.ipynb", "ada"),
        (f"ada/{A.upper()}.IPYNB", "ada"),
        (f"Größe Ærø/{A}.ipynb", "grosse-aero"),
    ],
)
def test_the_layouts_are_recognised(packed, room, name, student):
    report = only(collect(packed.add(name), room))
    assert report == lms.Report(student, name, True)
    assert handed_in(room) == {student: BOOK}
    stamp = (room / "handed_in" / student / A / "timestamp.txt").read_text()
    assert stamp == "2026-11-30T12:00:00+00:00\n"


def test_canvas_says_who_was_late(packed, room):
    packed.add(f"a_LATE_1_2_{A}.ipynb").add(f"b_1_2_{A}.ipynb")
    one, two = collect(packed, room)
    assert (one.student, one.notes) == ("a_1", ("handed in late, says the platform",))
    assert (two.student, two.notes) == ("b_1", ())


def test_a_layout_can_be_said(packed, room):
    packed.add(f"{MOODLE}/{A}.ipynb")
    assert only(collect(packed, room, names="plain")).student == "ada-lovelace_1234567_assigns"
    with pytest.raises(lms.ZipRefused, match="no platform is called 'blackboard'"):
        collect(packed, room, names="blackboard")


def test_one_student_cannot_change_the_layout(packed, room):
    packed.add(f"a_1_2_{A}.ipynb").add(f"b_1_2_{A}.ipynb").add("c_1_assignsubmission_file_x.ipynb")
    assert [report.student for report in collect(packed, room)] == ["a_1", "b_1", ""]


def test_two_moodle_students_of_one_name_are_told_apart(packed, room):
    for number in (1, 2):
        packed.add(f"Ada L_{number}_assignsubmission_file_/x.ipynb", b"%d" % number)
    collect(packed.add("Bo_3_assignsubmission_file_/x.ipynb"), room)
    assert handed_in(room) == {"ada-l-1": b"1", "ada-l-2": b"2", "bo": BOOK}
    assert ["ada-l-1", "Ada L (1)"] in table(room / "students.csv")


UNSAFE = [
    "../evil/x.ipynb",
    "ada/../../evil.ipynb",
    "ada/..",
    "/etc/x.ipynb",
    "//host/x.ipynb",
    "C:/x/y.ipynb",
    "c:x/y.ipynb",
    "..\\evil\\x.ipynb",
    "ada\\x.ipynb",
    "ada/a\\b.ipynb",
    "ada/a\nb.ipynb",
    "ada/x.ipynb\0.txt",
    "./x.ipynb",
    "x.ipynb",
    " /x.ipynb",
]


@pytest.mark.parametrize("name", UNSAFE)
def test_names_that_lead_elsewhere_are_nobodys(packed, room, name):
    nobody, bo = sorted(collect(packed.add(name).add("bo/x.ipynb"), room))
    assert (nobody.student, nobody.taken) == ("", False)
    assert "STUDENT/FILE" in nobody.reason and nobody.file.isprintable()
    assert handed_in(room) == {"bo": BOOK}
    assert table(room / "students.csv")[1:] == [["bo", "bo"]]


@pytest.mark.parametrize("file", ["/../../../x.ipynb", "/a\\..\\x.ipynb", "/a\x1b.ipynb"])
def test_unsafe_files_of_a_moodle_student_are_refused_by_name(packed, room, file):
    report = only(collect(packed.add(MOODLE + file), room))
    assert (report.student, report.taken) == ("ada-lovelace", False)
    assert "its name" in report.reason and report.reason.isprintable() and report.file.isprintable()
    assert handed_in(room) == {}


@pytest.mark.parametrize("end", ["\r", "\n", "\x0b", "\x85"])
def test_a_name_with_a_line_end_is_nobodys_and_spoils_no_table(packed, room, end):
    packed.add(f"A{end}b_1_assignsubmission_file_/x.ipynb").add("Bo_2_assignsubmission_file_/x.ipynb")
    for _ in range(2):
        bo, nobody = collect(packed, room)
        assert (bo.student, bo.taken, nobody.student) == ("bo", True, "")
    assert table(room / "students.csv")[1:] == [["bo", "Bo"]]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_links_and_devices_are_refused(packed, room, kind):
    packed.add("ada/x.ipynb", b"/etc/passwd", mode=kind | 0o777).add("bo/x.ipynb")
    ada, bo = collect(packed, room)
    assert not ada.taken and "link" in ada.reason
    assert handed_in(room) == {"bo": BOOK}


def test_encrypted_files_are_refused(packed, room):
    packed.add("ada/x.ipynb").add("bo/y.ipynb")
    packed.file.filelist[0].flag_bits |= 1
    ada, bo = collect(packed, room)
    assert "encrypted" in ada.reason and bo.taken


def test_a_large_file_is_refused_by_what_it_says(packed, room, monkeypatch):
    monkeypatch.setattr(lms, "MOST_MB", 1)
    packed.add("ada/x.ipynb", bytes(2**20 + 1)).add("bo/x.ipynb", bytes(2**20))
    ada, bo = collect(packed, room)
    assert "more than 1 MB; clear the outputs" in ada.reason
    assert bo.taken


def test_a_bomb_that_lies_about_its_size_is_cut_short(packed, room, monkeypatch):
    packed.add("ada/x.ipynb", bytes(3 * 2**20)).add("bo/x.ipynb")
    # The lie stands in both headers; what comes out is not believed either.
    packed.patch(struct.pack("<L", 3 * 2**20), struct.pack("<L", 1000))
    ada, bo = collect(packed, room)
    assert not ada.taken and "damaged" in ada.reason
    assert handed_in(room) == {"bo": BOOK}


def test_more_than_announced_is_never_written(packed, room, monkeypatch):
    monkeypatch.setattr(lms, "MOST_MB", 1)
    monkeypatch.setattr(lms, "_fault", lambda *_: "")
    ada = only(collect(packed.add("ada/x.ipynb", bytes(2**20 + 1)), room))
    assert not ada.taken and "more than 1 MB" in ada.reason
    assert handed_in(room) == {}


def test_all_together_have_a_limit(packed, room, monkeypatch):
    monkeypatch.setattr(lms, "MOST_ALL_MB", 2)
    for name in "abc":
        packed.add(f"{name}/x.ipynb", bytes(2**20))
    a, b, c = collect(packed, room)
    assert (a.taken, b.taken, c.taken) == (True, True, False)
    assert "together" in c.reason


def test_what_is_ignored_does_not_count_for_the_limit(packed, room, monkeypatch):
    monkeypatch.setattr(lms, "MOST_ALL_MB", 2)
    packed.add("a/film.mp4", bytes(5 * 2**20)).add("a/x.ipynb").add("b/x.ipynb")
    assert [report.taken for report in collect(packed, room)] == [True, True]


def test_too_many_entries_are_refused(packed, room, monkeypatch):
    monkeypatch.setattr(lms, "MOST_ENTRIES", 3)
    for number in range(4):
        packed.add(f"s{number}/x.ipynb")
    with pytest.raises(lms.ZipRefused, match="more than 3 entries"):
        collect(packed, room)


def test_thousands_of_files_by_one_student_make_a_short_report(packed, room):
    for number in range(3000):
        packed.add(f"ada/junk{number}.txt", b"")
    packed.add("ada/x.ipynb")
    report = only(collect(packed, room))
    assert report.taken and len(report.notes[0]) < 200 and report.notes[0].endswith("and 2995 more")


def test_a_large_zip_is_refused(packed, room, monkeypatch):
    monkeypatch.setattr(lms, "MOST_ZIP_MB", 0)
    with pytest.raises(lms.ZipRefused, match="all.zip has more than 0 MB"):
        collect(packed.add("a/x.ipynb"), room)


@pytest.mark.parametrize("content", [b"", b"no zip", BOOK, b"PK\x03\x04" + bytes(30)])
def test_what_is_no_zip_is_refused(tmp_path, content):
    (tmp_path / "all.zip").write_bytes(content)
    with pytest.raises(lms.ZipRefused, match="all.zip is no sound zip"):
        lms.collect(tmp_path / "all.zip", tmp_path, A)


def test_no_zip_is_refused(tmp_path):
    with pytest.raises(lms.ZipRefused, match="cannot be read: No such file"):
        lms.collect(tmp_path / "all.zip", tmp_path, A)


def test_a_name_that_is_not_the_utf_8_it_says_is_refused(packed, room):
    packed.add("é/x.ipynb").patch("é".encode(), b"\xff\xfe")
    with pytest.raises(lms.ZipRefused, match="not UTF-8"):
        collect(packed, room)


@pytest.mark.parametrize("file", ["work.zip", "Work.ZIP", "a/b.7z", "x.tar.gz"])
def test_an_archive_instead_of_a_notebook_is_refused(packed, room, file):
    ada, bo = collect(packed.add(f"ada/{file}").add("bo/x.ipynb"), room)
    assert not ada.taken and "archive" in ada.reason and f"{A}.ipynb" in ada.reason
    assert bo.taken


def test_an_archive_beside_a_notebook_is_ignored(packed, room):
    report = only(collect(packed.add("ada/work.zip").add("ada/x.ipynb"), room))
    assert report.taken and report.notes == ("ignored: work.zip",)


@pytest.mark.parametrize("files", [["a.pdf", "b.txt"], ["x.py"], ["xipynb"], [".ipynb"]])
def test_no_notebook_is_said_with_what_there_is(packed, room, files):
    for file in files:
        packed.add(f"ada/{file}")
    report = only(collect(packed, room))
    assert not report.taken and report.reason.startswith("no notebook") and files[0] in report.reason


def test_an_empty_folder_is_reported(packed, room):
    report = only(collect(packed.add("ada/", b"", mode=stat.S_IFDIR | 0o755), room))
    assert report == lms.Report("ada", "", False, f"no notebook (no file); wanted {A}.ipynb")


STRAY = [
    ".DS_Store",
    "._x.ipynb",
    ".ipynb_checkpoints/x-checkpoint.ipynb",
    "desktop.ini",
    "Thumbs.db",
    "__MACOSX/x.ipynb",
]


@pytest.mark.parametrize("file", STRAY)
def test_stray_files_are_ignored_with_a_note(packed, room, file):
    report = only(collect(packed.add(f"ada/{file}", b"stray").add("ada/x.ipynb"), room))
    assert report.taken and report.notes == (f"ignored: {file.rpartition('/')[2]}",)
    assert handed_in(room) == {"ada": BOOK}


@pytest.mark.parametrize("file", STRAY)
def test_stray_files_alone_are_no_hand_in(packed, room, file):
    report = only(collect(packed.add(f"ada/{file}"), room))
    assert (report.student, report.taken) == ("ada", False)


def test_stray_files_of_nobody_are_one_report(packed, room):
    packed.add("ada/x.ipynb").add("__MACOSX/ada/._x.ipynb").add(".DS_Store").add("desktop.ini")
    ada, nobody = collect(packed.add("__MACOSX/", b""), room)
    assert ada.taken and ada.notes == ()
    assert nobody == lms.Report(
        "", "__MACOSX/ada/._x.ipynb, .DS_Store, desktop.ini", False, "stray files, ignored"
    )


CHOICES = [
    (["other.ipynb", f"{A}.ipynb"], f"{A}.ipynb"),
    ([f"{A}.ipynb", f"{A}-2.ipynb"], f"{A}.ipynb"),
    ([f"{A.upper()}.ipynb", "other.ipynb"], f"{A.upper()}.ipynb"),
    (["mine.ipynb", "notes.pdf"], "mine.ipynb"),
    (["x.ipynb", "x-1.ipynb", "x-10.ipynb", "x-9.ipynb"], "x-10.ipynb"),
    (["x (1).ipynb", "X.ipynb"], "x (1).ipynb"),
    (["x.ipynb", "y.ipynb"], None),
    (["x-1.ipynb", "y-2.ipynb"], None),
    (["x.ipynb", "X.ipynb"], None),
    ([f"a/{A}.ipynb", f"b/{A}.ipynb"], None),
    ([f"{A}.ipynb", f"{A.upper()}.ipynb"], None),
]


@pytest.mark.parametrize("files, wanted", CHOICES)
def test_of_several_notebooks_one_is_taken_or_all_are_named(packed, room, files, wanted):
    for file in files:
        packed.add(f"ada/{file}", file.encode())
    report = only(collect(packed, room))
    if wanted:
        assert report.file == f"ada/{wanted}"
        assert handed_in(room) == {"ada": wanted.encode()}
        assert all(file in report.notes[0] for file in files if file != wanted)
    else:
        assert not report.taken and handed_in(room) == {}
        assert all(file in report.reason for file in files)
        assert f"{A}.ipynb" in report.reason


def test_canvas_numbers_the_attempts(packed, room):
    for file in (f"{A}.ipynb", f"{A}-2.ipynb", f"{A}-1.ipynb", "other-7.ipynb"):
        packed.add(f"a_1_2_{file}", file.encode())
    assert only(collect(packed, room)).taken
    assert handed_in(room) == {"a_1": f"{A}-2.ipynb".encode()}


def test_a_notebook_that_cannot_be_taken_leaves_the_other(packed, room):
    packed.add(f"ada/{A}.ipynb", mode=stat.S_IFLNK | 0o777).add("ada/x.ipynb", b"mine")
    assert only(collect(packed, room)).taken
    assert handed_in(room) == {"ada": b"mine"}


def test_damage_in_one_file_stops_nobody(packed, room):
    for name in ("ada", "bo", "cy"):
        packed.add(f"{name}/x.ipynb", f"{name * 50}".encode())
    packed.file.close()
    content = bytearray(packed.path.read_bytes())
    content[content.index(b"bo/x.ipynb") + 12] ^= 0xFF
    packed.path.write_bytes(content)
    ada, bo, cy = collect(packed, room)
    assert (ada.taken, bo.taken, cy.taken) == (True, False, True)
    assert "damaged" in bo.reason and set(handed_in(room)) == {"ada", "cy"}
    assert sorted(path.name for path in room.iterdir()) == ["handed_in", "students.csv"]


def test_an_unknown_compression_stops_nobody(packed, room):
    packed.add("ada/x.ipynb").add("bo/x.ipynb")
    packed.file.filelist[0].compress_type = 97
    ada, bo = collect(packed, room)
    assert not ada.taken and ada.reason and bo.taken


def test_a_folder_that_cannot_be_written_stops_nobody(packed, room):
    room.mkdir()
    (room / "handed_in").mkdir()
    (room / "handed_in" / "ada").write_text("in the way")
    ada, bo = collect(packed.add("ada/x.ipynb").add("bo/x.ipynb"), room)
    assert not ada.taken and "stored" in ada.reason and bo.taken


def test_a_report_is_a_line_of_words():
    taken = lms.Report("ada", "ada/x\x1b.ipynb", True, notes=("ignored: y", "late"))
    assert str(taken) == "ada: ada/x?.ipynb taken; ignored: y; late"
    assert str(lms.Report("", "x", False, "stray")) == "nobody: NOT taken (x): stray"


# Dates.


def stamp(room, student="ada"):
    return (room / "handed_in" / student / A / "timestamp.txt").read_text().strip()


def test_dates_of_the_zip_are_in_the_zone_that_is_said(packed, room):
    zone = datetime.timezone(datetime.timedelta(hours=2))
    collect(packed.add("ada/x.ipynb"), room, zone=zone)
    assert stamp(room) == "2026-11-30T10:00:00+00:00"


def test_a_date_in_utc_wins_over_the_zips_own(packed, room):
    seconds = int(datetime.datetime(2026, 11, 29, 8, 0, 1, tzinfo=datetime.UTC).timestamp())
    other = struct.pack("<HHL", 0x9999, 4, 7)
    collect(packed.add("ada/x.ipynb", extra=other + struct.pack("<HHBl", 0x5455, 5, 1, seconds)), room)
    assert stamp(room) == "2026-11-29T08:00:01+00:00"


@pytest.mark.parametrize(
    "extra", [struct.pack("<HHBl", 0x5455, 5, 2, 1), struct.pack("<HHB", 0x5455, 1, 1), b"\x55\x54\x01"]
)
def test_a_broken_date_in_utc_does_not_count(packed, room, extra):
    collect(packed.add("ada/x.ipynb", extra=extra), room)
    assert stamp(room) == "2026-11-30T12:00:00+00:00"


@pytest.mark.parametrize("date", [(1980, 1, 1, 0, 0, 0), (1980, 0, 0, 0, 0, 0), (2026, 13, 31, 12, 0, 0)])
def test_a_file_without_a_date_counts_as_handed_in_now(packed, room, date):
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    packed.add("ada/x.ipynb")
    packed.file.filelist[0].date_time = date
    report = only(collect(packed, room))
    assert before <= datetime.datetime.fromisoformat(stamp(room)) <= datetime.datetime.now(datetime.UTC)
    assert "no date" in report.notes[0]


def test_dates_can_be_said_for_one_or_for_all(packed, room, tmp_path):
    when = datetime.datetime(2026, 12, 1, 9, 30)
    packed.add("Ada L/x.ipynb").add("bo/x.ipynb").add("cy/x.ipynb")
    collect(packed, room, dates={"Ada L": when, "bo": when.replace(day=2, tzinfo=datetime.UTC)})
    assert [stamp(room, name) for name in ("ada-l", "bo", "cy")] == [
        "2026-12-01T09:30:00+00:00",
        "2026-12-02T09:30:00+00:00",
        "2026-11-30T12:00:00+00:00",
    ]
    lms.collect(packed.path, tmp_path / "other", A, dates=when)
    assert stamp(tmp_path / "other", "cy") == "2026-12-01T09:30:00+00:00"


# Handing in again.


def again(room, content, date, **options):
    packed = Zip(room.parent / "all.zip").add("ada/x.ipynb", content, date)
    return only(collect(packed, room, **options))


def test_an_earlier_hand_in_is_kept(room):
    kept = room / "handed_in_before" / "ada" / A
    again(room, b"first", (2026, 11, 1, 0, 0, 0))
    (room / "handed_in" / "ada" / A / "notes.txt").write_text("more")
    report = again(room, b"second", (2026, 11, 2, 0, 0, 0))
    before = f"handed_in_before/ada/{A}/2026-11-01T00-00-00+00-00"
    assert report.notes == (f"what was handed in 2026-11-01T00:00:00+00:00 is now in {before}",)
    assert handed_in(room) == {"ada": b"second"}
    assert stamp(room) == "2026-11-02T00:00:00+00:00"
    (old,) = kept.iterdir()
    assert sorted(path.name for path in old.iterdir()) == [f"{A}.ipynb", "notes.txt", "timestamp.txt"]
    assert (old / f"{A}.ipynb").read_bytes() == b"first"
    again(room, b"third", (2026, 11, 3, 0, 0, 0))
    assert len(list(kept.iterdir())) == 2


def test_an_older_zip_is_noticed(room):
    again(room, b"new", (2026, 11, 2, 0, 0, 0))
    assert "later than this one" in again(room, b"old", (2026, 11, 1, 0, 0, 0)).notes[1]


def test_two_hand_ins_of_one_second_are_both_kept(room):
    for content in (b"a", b"b", b"c", b"d"):
        again(room, content, NOON)
    kept = sorted((room / "handed_in_before" / "ada" / A).iterdir())
    assert [(path / f"{A}.ipynb").read_bytes() for path in kept] == [b"a", b"b", b"c"]
    assert handed_in(room) == {"ada": b"d"}


def test_the_same_again_changes_nothing(room):
    again(room, b"same", NOON)
    assert again(room, b"same", NOON).notes == ("the same file had been collected before",)
    assert not (room / "handed_in_before").exists()


def test_the_same_file_at_another_time_is_another_hand_in(room):
    again(room, b"same", NOON)
    again(room, b"same", (2026, 11, 30, 13, 0, 0))
    assert stamp(room) == "2026-11-30T13:00:00+00:00"
    assert (room / "handed_in_before" / "ada" / A).is_dir()


def test_a_hand_in_without_a_date_is_kept_too(room):
    old = room / "handed_in" / "ada" / A
    old.mkdir(parents=True)
    (old / f"{A}.ipynb").write_bytes(b"by hand")
    again(room, b"new", NOON)
    assert (room / "handed_in_before" / "ada" / A / "no-time" / f"{A}.ipynb").read_bytes() == b"by hand"


def test_a_timestamp_is_no_path(room):
    old = room / "handed_in" / "ada" / A
    old.mkdir(parents=True)
    (old / "timestamp.txt").write_text("../../../../evil")
    collected = again(room, b"new", NOON)
    assert collected.taken
    assert [path.name for path in (room / "handed_in_before" / "ada" / A).iterdir()] == ["------------evil"]


def test_a_damaged_file_leaves_the_earlier_hand_in(room):
    again(room, b"first" * 100, NOON)
    packed = Zip(room.parent / "all.zip").add("ada/x.ipynb", b"second" * 100)
    packed.file.filelist[0].CRC ^= 1
    assert not only(collect(packed, room)).taken
    assert handed_in(room) == {"ada": b"first" * 100}


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x.y", ".", "-x", "é", "a b"])
def test_an_assignment_has_a_plain_name(packed, room, name):
    with pytest.raises(lms.ZipRefused, match="no name of an assignment"):
        lms.collect(packed.path, room, name)
    assert not room.exists()


# Who is who.


@pytest.mark.parametrize(
    "name, student",
    [
        ("Ada Lovelace", "ada-lovelace"),
        ("ADA", "ada"),
        ("Zoë Müller-Łoś", "zoe-muller-los"),
        ("O'Brien, Tim", "o-brien-tim"),
        ("S1234567", "s1234567"),
        ("CON", "student-con"),
        ("lpt1", "student-lpt1"),
        ("Aux.", "student-aux"),
        ("com0x", "com0x"),
        ("李", "student"),
        ("...", "student"),
        ("-rf", "rf"),
        ("x" * 99, "x" * 28),
        ("a" * 27 + " b", "a" * 27),
        ("İıß", "iiss"),
        ("a__b", "a__b"),
    ],
)
def test_ids_are_safe(name, student):
    assert lms.safe(name) == student
    assert lms.ID.fullmatch(student)


def test_names_in_any_script_get_ids_that_lead_back(packed, room):
    names = ["Анна", "李", "Zoë", "Ada", "ada", "ADA", "=cmd|x", "'t Hooft", 'Q "x", y', "Nul"]
    for name in names:
        packed.add(f"{name}/x.ipynb", name.encode())
    reports = collect(packed, room)
    ids = {report.student for report in reports}
    assert len(ids) == len({student.lower() for student in ids}) == len(names)
    back = lms.names_of(room)
    assert {student: name.encode() for student, name in back.items()} == handed_in(room)
    assert back["zoe"] == "Zoë" and back["student-nul"] == "Nul"
    assert ["cmd-x", "'=cmd|x"] in table(room / "students.csv")


def test_ids_stay_when_others_come(packed, room):
    collect(packed.add("Zoe/x.ipynb", b"first"), room)
    packed = Zip(room.parent / "all.zip")
    for name in ("ZOE", "Zoe", "zOE"):
        packed.add(f"{name}/x.ipynb", name.encode())
    collect(packed, room)
    assert lms.names_of(room) == {"zoe": "Zoe", "zoe-2": "ZOE", "zoe-3": "zOE"}
    assert handed_in(room) == {"zoe": b"Zoe", "zoe-2": b"ZOE", "zoe-3": b"zOE"}


def test_a_folder_may_be_named_by_the_id(packed, room):
    collect(packed.add(f"{MOODLE}/x.ipynb", b"in time"), room)
    collect(Zip(room.parent / "all.zip").add("ada-lovelace/x.ipynb", b"late"), room)
    assert handed_in(room) == {"ada-lovelace": b"late"}
    # A platform's names are the students' own: nobody becomes somebody by a name.
    collect(Zip(room.parent / "all.zip").add("ada-lovelace_9_assignsubmission_file_/x.ipynb", b"other"), room)
    assert handed_in(room) == {"ada-lovelace": b"late", "ada-lovelace-2": b"other"}


def test_the_table_can_be_edited(packed, room):
    room.mkdir()
    (room / "students.csv").write_text("id,name\nM4711,Ada Lovelace\nM4711,Ada King\nM1,Bo\n")
    packed.add("Ada King/x.ipynb").add("Cy/x.ipynb").add("M1/x.ipynb", b"by id").file.close()
    assert [report.student for report in lms.collect(packed.path, room, A)] == ["M1", "M4711", "cy"]
    assert table(room / "students.csv")[1:] == [
        ["M1", "Bo"],
        ["M4711", "Ada King"],
        ["M4711", "Ada Lovelace"],
        ["cy", "Cy"],
    ]
    assert set(lms.names_of(room)) == {"M1", "M4711", "cy"}


def test_two_names_of_one_student_are_one_hand_in(packed, room):
    room.mkdir()
    (room / "students.csv").write_text("id,name\na,One\na,Two\n")
    report = only(collect(packed.add("One/x.ipynb").add("Two/x.ipynb"), room))
    assert report.student == "a" and "several" in report.reason


def test_a_made_id_is_never_a_used_one_in_other_letters(packed, room):
    room.mkdir()
    (room / "students.csv").write_text("id,name\nADA,Somebody\n")
    packed.add("ada/x.ipynb")
    assert only(collect(packed, room)).student == "ada-2"


@pytest.mark.parametrize(
    "content",
    ["id,name\n../x,Ada\n", "id,name\n,Ada\n", "id,name\nada\n", "id,name\ncon,Ada\n", 'id,name\n"a,b\n']
    + ["id,name\n*,Ada\n", 'id,name\nada,"A\nB"\n', 'id,name\n"a\nb",Ada\n', "id,name\nx[1],Ada\n"],
)
def test_a_broken_table_is_refused(packed, room, content):
    room.mkdir()
    (room / "students.csv").write_text(content)
    with pytest.raises(lms.ZipRefused, match="students.csv"):
        collect(packed.add("bo/x.ipynb"), room)
    assert (room / "students.csv").read_text() == content


@pytest.mark.parametrize("student", ["M4711", "s-1_a", "ann.b@example.org", "7"])
def test_ids_of_many_kinds_are_ids(room, student):
    assert lms.names_of(room) == {}
    code = lms.codes(room, [student])[student]
    assert lms.names_of(room) == {code: student}


@pytest.mark.parametrize(
    "student", ["", ".", "..", "a/b", "../a", "a.", ".a", "-a", "nul", "CON.x", "a b", "é", "a\n"]
)
def test_what_is_no_id_gets_no_code(room, student):
    with pytest.raises(lms.ZipRefused, match="no ids of students"):
        lms.codes(room, ["ok", student])
    assert not (room / "codes.csv").exists()


def test_a_table_of_a_spreadsheet_in_another_encoding_is_refused(packed, room):
    room.mkdir()
    (room / "students.csv").write_bytes("id,name\nzoe,Zoë\n".encode("cp1252"))
    with pytest.raises(lms.ZipRefused, match="UTF-8"):
        collect(packed.add("bo/x.ipynb"), room)


def test_tables_are_for_their_owner_only(packed, room):
    collect(packed.add("ada/x.ipynb"), room, anonymous=True)
    assert [stat.S_IMODE((room / f"{name}.csv").stat().st_mode) for name in ("students", "codes")] == [
        0o600
    ] * 2


@pytest.mark.parametrize(
    "raw",
    ["Zo\u00eb".encode(), "Zo\u00eb".encode("cp437"), "Zoe\u0308".encode()],
    ids=["utf-8 unsaid", "cp437", "decomposed"],
)
def test_names_however_encoded_are_one_name(packed, room, raw):
    placeholder = b"#" * len(raw)
    packed.add(f"{placeholder.decode()}/x.ipynb").patch(placeholder, raw)
    assert only(collect(packed, room)).student == "zoe"
    assert lms.names_of(room) == {"zoe": "Zo\u00eb"}


def test_windows_names_and_case_collisions_end_in_folders_of_their_own(packed, room):
    for name in ("con", "CON", "Con.", "aux", "com1"):
        packed.add(f"{name}/x.ipynb")
    students = [report.student for report in collect(packed, room)]
    assert students == ["student-aux", "student-com1", "student-con", "student-con-2", "student-con-3"]


# Anonymous marking.


def test_codes_stand_for_students_and_lead_back(packed, room):
    packed.add("Ada L/x.ipynb", b"a").add("Bo/x.ipynb", b"b")
    reports = collect(packed, room, anonymous=True)
    names = lms.names_of(room)
    assert {names[code]: content for code, content in handed_in(room).items()} == {"Ada L": b"a", "Bo": b"b"}
    assert {report.student for report in reports} == set(handed_in(room))
    assert names["ada-l"] == "Ada L"
    assert not {"ada-l", "bo"} & set(handed_in(room))


def test_codes_are_stable_and_differ(room):
    first = lms.codes(room, ["ada", "bo"])
    more = lms.codes(room, {"ada", "cy"})
    assert list(first) == ["ada", "bo"] and set(more) == {"ada", "cy"}
    assert more["ada"] == first["ada"]
    assert len({*first.values(), *more.values()}) == 3
    assert table(room / "codes.csv")[0] == ["student", "code"]
    assert lms.codes(room, ["bo"]) == {"bo": first["bo"]}


def test_codes_cannot_be_guessed(room, tmp_path):
    students = [f"s{number}" for number in range(300)]
    one, two = lms.codes(room, students), lms.codes(tmp_path / "other", students)
    assert len(set(one.values())) == 300
    assert not set(one.values()) & set(two.values())
    assert all(re.fullmatch("[b-df-hj-np-tv-xz][b-df-hj-np-tv-xz2-9]{7}", code) for code in one.values())
    # Neither the order of the table nor that of the codes is the students'.
    rows = table(room / "codes.csv")[1:]
    assert [code for _, code in rows] == sorted(one.values())
    assert [student for student, _ in rows] != sorted(students)


def test_a_code_is_no_students_id_and_nobody_elses(room, monkeypatch):
    made = iter(["bo", "code1", "code1", "ada", "code2"])
    monkeypatch.setattr(lms, "_code", lambda: next(made))
    assert lms.codes(room, ["ada", "bo"]) == {"ada": "code1", "bo": "code2"}


def test_a_student_without_a_name_is_the_id(room):
    code = lms.codes(room, ["hubstudent"])["hubstudent"]
    assert lms.names_of(room) == {code: "hubstudent"}
    assert lms.names_of(room / "nowhere") == {}


def test_an_anonymous_hand_in_comes_to_the_same_folder_again(room):
    again(room, b"one", (2026, 11, 1, 0, 0, 0), anonymous=True)
    again(room, b"two", (2026, 11, 2, 0, 0, 0), anonymous=True)
    assert list(handed_in(room).values()) == [b"two"]
    assert len(list((room / "handed_in_before").iterdir())) == 1


def test_what_is_collected_can_be_read(packed, room):
    collect(packed.add("ada/x.ipynb"), room)
    notebook, notes = read(room / "handed_in" / "ada" / A / f"{A}.ipynb")
    assert (sources(notebook), notes) == (["x = 1"], [])

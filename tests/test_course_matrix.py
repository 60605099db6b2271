"""The kill matrix: each planted mistake loses exactly its points, right variants lose none."""

import json

import pytest
from course_stage import needs_packages, needs_sandbox

from course import matrix, planting, text, verdict

RECORDED = text.FOLDER.parents[1] / "attnlib" / "data" / "course" / "kill_matrix.json"
ROWS = [(name, row) for name in text.names() for row in matrix.rows(name)]
# Another one than recorded: what a submission loses must not hang on which private inputs were drawn.
SECRET = "the tests' own secret"


@pytest.fixture(autouse=True)
def _sandbox():
    needs_sandbox()


@pytest.mark.parametrize(("name", "row"), [pytest.param(*one, id=f"{one[0]}-{one[1].name}") for one in ROWS])
def test_a_submission_loses_exactly_the_points_of_what_it_breaks(name, row):
    needs_packages(name)
    found = matrix.judge(name, row, SECRET)
    reasons = {gone: found.marks[gone].reason for gone in found.lost}
    assert found.lost == row.loses, reasons
    total = sum(text.load(name).properties.values())
    assert found.points == total - sum(found.marks[gone].of for gone in row.loses)
    assert all(reasons.values()), "every lost property has a reason"


def test_there_are_enough_of_each_kind():
    kinds = [row.kind for _, row in ROWS]
    assert kinds.count("mistake") >= 40
    assert kinds.count("variant") >= 10
    for name in text.names():
        assert [row.kind for row in matrix.rows(name)].count("variant") >= 2


def test_every_property_is_lost_by_a_mistake_of_its_own():
    for name in text.names():
        alone = {
            next(iter(row.loses))
            for row in matrix.rows(name)
            if row.kind == "mistake" and len(row.loses) == 1
        }
        choices = {cell.id for cell in text.load(name).of_kind("choice")}
        # A property that no mistake breaks alone would be a check that nothing tests.
        missing = set(text.load(name).properties) - alone - choices
        broken = {one for row in matrix.rows(name) if row.kind == "mistake" for one in row.loses}
        assert missing <= broken, f"{name}: no mistake breaks {missing - broken}"


def test_no_two_mistakes_are_the_same():
    for name in text.names():
        rows = [row for row in matrix.rows(name) if row.kind in ("mistake", "variant")]
        assert len({row.name for row in rows}) == len(rows)
        assert len({tuple(sorted(row.answers.items())) for row in rows}) == len(rows)


def test_the_recorded_matrix_is_that_of_the_present_assignments():
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert [table["assignment"] for table in recorded] == text.names()
    for table in recorded:
        name = table["assignment"]
        assignment = text.load(name)
        assert table["properties"] == assignment.properties
        assert table["written"] == assignment.written
        wanted = [(row.name, row.says, row.kind, sorted(row.loses)) for row in matrix.rows(name)]
        got = [(row["name"], row["says"], row["kind"], sorted(row["lost"])) for row in table["submissions"]]
        assert got == wanted


def test_a_mistake_that_names_no_answer_is_refused(monkeypatch, tmp_path):
    (tmp_path / "1_one_head_mistakes.py").write_text(
        "from course.planting import Planted\nVARIANTS = []\n"
        "MISTAKES = [Planted('m', 'says', {'no_such_answer': 'x = 1'}, {'no_such_property'})]\n"
    )
    assignment = text.load("1_one_head")
    monkeypatch.setattr(text, "FOLDER", tmp_path)
    monkeypatch.setattr(text, "load", lambda name: assignment)
    with pytest.raises(text.TextError, match="no_such_answer"):
        planting.planted("1_one_head")


@pytest.mark.parametrize("name", text.names())
def test_other_private_inputs_give_the_solutions_full_points(name):
    needs_packages(name)
    # And a third in test_course_honest.py.
    (solved,) = [row for row in matrix.rows(name) if row.kind == "solved"]
    assert matrix.judge(name, solved, "a").lost == set()


def test_the_verdict_is_on_the_code_alone_not_on_checks():
    notebook = planting.submission(text.load("1_one_head"))
    checks = [
        cell for cell in notebook.cells if cell.metadata["nbgrader"]["grade"] and cell.cell_type == "code"
    ]
    cells = verdict.student_cells(notebook)
    assert checks and not {cell.source for cell in checks} & set(cells)

"""Grading a class: the whole cycle, what stops it, regrading, resuming, and that nothing secret leaves."""

import contextlib
import csv
import datetime
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time

import nbformat
import pytest
from course_stage import (
    DUE,
    FIRST,
    auto_sum,
    full,
    hand_in,
    marks,
    needs_sandbox,
    small_class,
    solved,
    untouched,
)

from course import demo, export, feedback, grading, hooks, matrix, sandbox, settings, text
from course.__main__ import main

ROOT = settings.REPOSITORY


@pytest.fixture(autouse=True)
def _sandbox():
    needs_sandbox()


def run(*command, cwd=ROOT, **environment):
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def cycle(tmp_path_factory):
    """The demonstration class, once for all tests that only look at it."""
    needs_sandbox()
    root, said = tmp_path_factory.mktemp("demo") / "class", io.StringIO()
    with contextlib.redirect_stdout(said):
        main(["demo", "--into", str(root)])
    return root, root / "grades.csv", said.getvalue().splitlines()


def test_the_demonstration_marks_each_student_as_he_deserves(cycle):
    root, path, lines = cycle
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    by_hand = sum(text.load(FIRST).written.values())
    assert float(rows["ada"]["total"]) == full() + by_hand == float(rows["ada"]["of"])
    assert float(rows["cem"]["total"]) == 0
    # Ben is 20 hours late: one day's share of everything, what was marked by hand later included.
    found = matrix.verdict.grade(
        text.load(FIRST),
        matrix.verdict.student_cells(demo.planting.submission(text.load(FIRST), _ben())),
        "any",
    )
    assert 0 < found.points < full()
    assert float(rows["ben"]["points"]) == found.points + by_hand
    assert float(rows["ben"]["late_penalty"]) == pytest.approx(0.1 * (found.points + by_hand))
    assert float(rows["ben"]["total"]) == pytest.approx(0.9 * (found.points + by_hand))
    assert {row["status"] for row in rows.values()} == {"graded"}
    assert rows["ada"]["to_mark_by_hand"] == "0"
    assert any("grades.csv" in line for line in lines)


def _ben():
    return demo._three(demo.planting.planted(FIRST)[0])


def test_every_page_of_feedback_says_what_was_lost_and_why(cycle):
    root, _, _ = cycle
    for student in ("ada", "ben", "cem"):
        record = grading.record_of(root, FIRST, student)
        page = (root / "feedback" / student / FIRST / f"{FIRST}.html").read_text(encoding="utf-8")
        graded = nbformat.read(root / "autograded" / student / FIRST / f"{FIRST}.ipynb", as_version=4)
        assert "marks" in graded.metadata["course"]
        for mark in graded.metadata["course"]["marks"].values():
            assert feedback.sentence(mark["reason"]) in html.unescape(page)
        for flag in record["flags"]:
            assert flag not in html.unescape(page)


def test_the_demonstration_makes_nothing_afresh_where_something_of_somebodys_lies(cycle):
    with pytest.raises(SystemExit, match="not empty"):
        main(["demo", "--into", str(cycle[0])])


# --- what is released, byte for byte --------------------------------------------------------------------


@pytest.mark.parametrize("name", text.names())
def test_what_nbgrader_releases_is_what_the_site_offers(name, tmp_path):
    grading.new_class(tmp_path / "class", [name])
    released = (tmp_path / "class" / "release" / name / f"{name}.ipynb").read_bytes()
    offered = (ROOT / "book" / "assignments" / f"{name}.ipynb").read_bytes()
    assert released == offered == text.released(text.load(name)).encode()


def test_the_same_text_gives_the_same_bytes_in_a_fresh_process(tmp_path):
    for folder in ("one", "two"):
        assert (
            run(
                "course",
                "build",
                FIRST,
                "--into",
                tmp_path / folder,
                PYTHONHASHSEED=folder[0] == "o" and "1" or "2",
            ).returncode
            == 0
        )
    for file in (f"{FIRST}.ipynb", f"{FIRST}_solved.ipynb"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


# --- secrets --------------------------------------------------------------------------------------------


def lines_of(*sources):
    """The telling lines: short ones such as "return x", imports and signatures are in every program."""
    lines = {line.strip() for source in sources for line in source.splitlines()}
    common = ("import ", "from ", "with np.", "def ")
    return {line for line in lines if len(line) >= 30 and not line.startswith(common)}


def sources(name, *kinds):
    return [cell.source for cell in text.load(name).cells if cell.kind in kinds]


def secret_lines(name):
    """Telling lines of solutions, model answers, rubrics and hidden cases that no released text may have."""
    region = re.compile(f"{text.BEGIN}\n(.*?){text.END}", re.DOTALL)
    solutions = [one for source in sources(name, "answer") for one in region.findall(source)]
    secrets = lines_of(*solutions, *sources(name, "rubric", "written"))
    # A hidden case or a setup cell may use a function or data that the notebook shows on purpose.
    return secrets | lines_of(*sources(name, "hidden", "setup")) - lines_of(*sources(name, "given", "check"))


@pytest.mark.parametrize("name", text.names())
def test_no_released_notebook_has_a_solution_or_a_hidden_case(name):
    released = nbformat.reads(text.released(text.load(name)), as_version=4)
    everything = "\n".join(cell.source for cell in released.cells)
    assert len(secret_lines(name)) > 10
    assert [line for line in secret_lines(name) if line in everything] == []
    assert "BEGIN SOLUTION" not in everything and "expect(" not in everything


@pytest.mark.parametrize("name", text.names())
def test_the_site_has_neither(name):
    site = ROOT / "_build" / "html"
    if not site.is_dir():
        pytest.skip("the site is not built: run `make book` first")
    pages = [
        path for path in site.rglob("*") if path.suffix in (".html", ".ipynb", ".js", ".txt", ".json", ".md")
    ]
    # What the book teaches and the library does is no secret, though a solution may say it in the same words.
    taught = [*(ROOT / "book").glob("*.myst.md"), *(ROOT / "attnlib").glob("*.py")]
    secrets = secret_lines(name) - lines_of(*(path.read_text(encoding="utf-8") for path in taught))
    assert len(secrets) > 10
    assert any(path.name == f"{name}.ipynb" for path in pages), "the student notebook is offered"
    for path in pages:
        words = path.read_text(encoding="utf-8", errors="replace")
        plain = html.unescape(re.sub(r"<[^>]+>", "", words)) if path.suffix == ".html" else words
        if path.suffix == ".ipynb":
            plain += "\n".join("".join(cell["source"]) for cell in json.loads(words)["cells"])
        found = [line for line in secrets if line in plain]
        assert found == [], f"{path.name} has {found}"


def test_feedback_has_neither(cycle):
    root, _, _ = cycle
    # Ada's page shows her own right answers, which are the solutions; hidden cases and rubrics are in none.
    hidden = lines_of(*sources(FIRST, "hidden", "rubric")) - lines_of(*sources(FIRST, "answer"))
    assert len(hidden) > 10
    for student, forbidden in (("ada", hidden), ("ben", hidden), ("cem", secret_lines(FIRST))):
        page = html.unescape(
            (root / "feedback" / student / FIRST / f"{FIRST}.html").read_text(encoding="utf-8")
        )
        plain = re.sub(r"<[^>]+>", "", page)
        assert [line for line in forbidden if line in plain] == []
        assert (root / "secret.txt").read_text().strip() not in page


def test_no_machine_path_is_shipped(cycle):
    root, _, _ = cycle
    shipped = [*(root / "feedback").rglob("*.html"), *(root / "release").rglob("*.ipynb")]
    for path in shipped:
        words = path.read_text(encoding="utf-8")
        assert str(ROOT) not in words and str(root) not in words


# --- fail closed ----------------------------------------------------------------------------------------


def test_a_broken_configuration_grades_nothing(tmp_path):
    root = small_class(tmp_path / "class", {"ada": solved()})
    config = root / settings.CONFIG
    config.write_text(config.read_text() + "\nraise RuntimeError('a slip of the pen')\n")
    with pytest.raises(settings.ConfigError, match="a slip of the pen"):
        grading.grade_class(root, FIRST)
    done = run("course", "grade", root, FIRST)
    assert done.returncode and "nothing was graded" in done.stderr
    # nbgrader itself only logs the error and goes on with its defaults: it must find nothing to grade.
    done = run("nbgrader", "autograde", FIRST, cwd=root)
    assert done.returncode
    assert (
        not (root / "autograded").exists() and not (root / "gradebook.db").exists() or not _has_scores(root)
    )


def _has_scores(root):
    return any((root / "autograded").rglob("*.ipynb"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("c.Autograde.autograde_preprocessors = []", "sandbox"),
        ("c.Autograde.sanitize_preprocessors = []", "sandbox"),
        (
            "from nbgrader.preprocessors import Execute\n"
            "c.Autograde.autograde_preprocessors = [Execute, *c.Autograde.autograde_preprocessors]",
            "outside the sandbox",
        ),
    ],
)
def test_a_configuration_without_the_sandbox_is_refused(line, complaint, tmp_path):
    root = small_class(tmp_path / "class", {})
    config = root / settings.CONFIG
    config.write_text(config.read_text() + line + "\n")
    with pytest.raises(settings.ConfigError, match=complaint):
        settings.load(root)


def test_a_missing_secret_grades_nothing(tmp_path):
    root = small_class(tmp_path / "class", {})
    (root / settings.SECRET).write_text("short\n")
    with pytest.raises(settings.ConfigError, match=r"secret\.txt"):
        settings.load(root)


def test_without_bubblewrap_nothing_is_graded_and_the_message_says_what_to_install(tmp_path):
    root = small_class(tmp_path / "class", {"ada": solved()})
    done = run("course", "grade", root, FIRST, PATH=str(tmp_path))
    assert done.returncode
    assert "bubblewrap" in done.stderr and "apt-get install bubblewrap" in done.stderr
    assert not (root / "autograded").exists()
    assert grading.record_of(root, FIRST, "ada") is None


def test_a_bubblewrap_that_does_not_isolate_is_not_used(tmp_path, monkeypatch):
    # A program of that name that runs the command as it is: the trial must see through it.
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sandbox.check.cache_clear()
    try:
        with pytest.raises(sandbox.SandboxError):
            sandbox.check()
    finally:
        sandbox.check.cache_clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands student code to another user")
def test_a_clone_that_is_closed_to_other_users_is_named(tmp_path, monkeypatch):
    for name in ("launch.py", "worker.py", "wire.py", "forgiving.py"):
        shutil.copy(sandbox.HERE / name, tmp_path)
    shutil.copy(sandbox.HERE / "sandboxed.py", tmp_path)
    monkeypatch.setattr(sandbox, "HERE", tmp_path)
    sandbox.check.cache_clear()
    try:
        sandbox.check()
        sandbox.check.cache_clear()
        (tmp_path / "worker.py").chmod(0o600)
        with pytest.raises(sandbox.SandboxError, match=r"Permission denied: '/opt/grader/worker\.py'"):
            sandbox.check()
    finally:
        sandbox.check.cache_clear()


@pytest.mark.parametrize("home", ["/home/student", "/"])
def test_a_grader_may_be_called_student_or_have_no_home(monkeypatch, home):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sandbox.Path, "home", lambda: sandbox.Path(home))
    monkeypatch.setattr(sandbox, "_font_list", lambda: None)
    sandbox.check.cache_clear()
    try:
        sandbox.check()
    finally:
        sandbox.check.cache_clear()


def test_without_a_place_to_keep_the_list_of_fonts_the_sandbox_still_starts(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    sandbox._font_list.cache_clear()
    try:
        with sandbox.Sandbox() as box:
            box.send({"do": "serve", "cells": []})
            assert box.receive(20.0) == {"loaded": True}
    finally:
        sandbox._font_list.cache_clear()


def test_the_environment_need_not_be_activated(tmp_path, monkeypatch):
    # nbgrader calls alembic by name; CI and many instructors call .venv/bin/python and activate nothing.
    here = os.path.dirname(sys.executable)
    others = [part for part in os.environ["PATH"].split(os.pathsep) if part != here]
    monkeypatch.setenv("PATH", os.pathsep.join(others))
    assert small_class(tmp_path / "class", {}).is_dir()


def test_a_class_folder_may_be_moved(tmp_path):
    root = small_class(tmp_path / "class", {"ada": untouched()})
    moved = root.rename(tmp_path / "elsewhere")
    assert grading.grade_student(moved, FIRST, "ada")["status"] == "graded"
    assert auto_sum(moved, "ada") == 0


def test_nothing_is_begun_with_an_unknown_assignment(tmp_path):
    with pytest.raises(text.TextError, match="no assignment 'one_head'"):
        grading.new_class(tmp_path / "class", ["one_head"])
    assert not (tmp_path / "class").exists()


@pytest.mark.parametrize("shard", [(0, 2), (3, 2)])
def test_a_shard_that_is_none_is_refused(shard, tmp_path):
    root = small_class(tmp_path / "class", {"ada": untouched()})
    with pytest.raises(settings.ConfigError, match="from 1 to N"):
        grading.grade_class(root, FIRST, shard=shard)


def test_a_date_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="Feb 1"):
        main(["due", str(small_class(tmp_path / "class", {})), FIRST, "Feb 1"])
    with pytest.raises(SystemExit, match="no assignment"):
        main(["due", str(tmp_path / "class"), "one_head", "2027-02-01T22:00"])
    main(["due", str(tmp_path / "class"), FIRST, "2027-02-01T22:00"])
    main(["due", str(tmp_path / "class"), FIRST, "2027-02-01T22:00+02:00"])
    first, second = capsys.readouterr().out.splitlines()
    assert "2027-02-01 at 22:00 UTC" in first and "2027-02-01 at 20:00 UTC" in second


def test_a_class_folder_is_not_begun_where_something_lies(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(settings.ConfigError, match="not empty"):
        grading.new_class(tmp_path)


ODD = ["c[a]", "c*", "c?q", "c%20x", "100%", "c$HOME", "two\nlines", "a\x1bb", "up[1]/class"]


@pytest.mark.parametrize("name", ODD)
def test_a_class_folder_that_nbgrader_takes_for_a_pattern_is_refused_and_not_begun(name, tmp_path):
    with pytest.raises(SystemExit, match="choose a name without"):
        main(["new", str(tmp_path / name), FIRST])
    assert list(tmp_path.iterdir()) == []
    # Nor is one used that was moved there.
    (tmp_path / name).mkdir(parents=True)
    for command in (["due", FIRST, "2027-02-01"], ["release", FIRST], ["grade", FIRST], ["feedback", FIRST]):
        with pytest.raises(SystemExit, match="choose a name without"):
            main([command[0], str(tmp_path / name), *command[1:]])


def test_other_odd_names_of_a_class_work(tmp_path, monkeypatch):
    name = "--our class' #1 {x} (a+b); ~é&!"
    monkeypatch.chdir(tmp_path)
    root = small_class(tmp_path / name / "and below", {"ada": untouched()})
    assert grading.grade_student(root, FIRST, "ada")["status"] == "graded"
    assert auto_sum(root, "ada") == 0 and (root / settings.GRADEBOOK).is_file()


@pytest.mark.parametrize("there", [False, True])
def test_a_class_that_cannot_be_made_leaves_nothing(there, tmp_path, monkeypatch):
    root = tmp_path / "deep" / "class"
    if there:
        root.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(grading, "_nbgrader", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "disk full")))
        with pytest.raises(SystemExit, match="disk full"):
            main(["new", str(root), FIRST])
    assert (list(root.iterdir()) if there else list(tmp_path.iterdir())) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["new", "{file}/class"], "Not a directory"),
        (["grade", "{class}", FIRST, "--jobs", "0"], "wanted 1 or more"),
        (["grade", "{class}", FIRST, "--student", "*"], r"handed in by \*"),
        (["feedback", "{class}", FIRST, "--student", "*"], r"handed in by \*"),
        (["collect", "{class}", FIRST, "x.zip", "--utc-offset", "99"], "hours between"),
        (["collect", "{class}", FIRST, "x.zip", "--utc-offset", "nan"], "hours between"),
        (["collect", "{class}", "../1_one_head", "x.zip"], "there is no assignment"),
        (["grades", "{class}", FIRST, "--to", "{file}/x.csv"], "Not a directory"),
        (["build", FIRST, "--into", "{file}"], "exists"),
        (["try", FIRST, "--only", "solvd"], "no submission is called solvd; there are .*solved"),
        (["marking", "{class}/no"], "no class folder"),
    ],
)
def test_what_a_command_cannot_use_is_named(words, says, seldom):
    with pytest.raises(SystemExit, match=says):
        main([word.format_map(seldom) for word in words])


@pytest.fixture(scope="module")
def seldom(tmp_path_factory):
    needs_sandbox()
    folder = tmp_path_factory.mktemp("seldom")
    (folder / "file").write_text("")
    return {"file": folder / "file", "class": small_class(folder / "class", {"ada": untouched()})}


# --- regrading ------------------------------------------------------------------------------------------


def test_an_old_mark_never_survives_a_failed_regrade(tmp_path, monkeypatch):
    root = small_class(tmp_path / "class", {"ada": solved()})
    assert grading.grade_student(root, FIRST, "ada")["points"] == full()
    # She hands in again, and the file is damaged.
    hand_in(root, "ada", b"{ this is no notebook")
    record = grading.grade_student(root, FIRST, "ada")
    assert record["status"] == "refused" and record["points"] == 0
    assert any(f"was {full():g} points" in flag for flag in record["flags"])
    assert auto_sum(root, "ada") == 0
    # The machine fails in the middle of a regrade.
    hand_in(root, "ada", solved())
    assert grading.grade_student(root, FIRST, "ada")["points"] == full()
    monkeypatch.setattr(hooks, "run", lambda *_: (_ for _ in ()).throw(RuntimeError("the disk is full")))
    record = grading.grade_student(root, FIRST, "ada")
    assert record["status"] == "failed" and "the disk is full" in record["reason"]
    assert {auto for auto, _, _ in marks(root, "ada").values()} == {None}
    assert all(needed for _, _, needed in marks(root, "ada").values())
    (row,) = export.rows(root, FIRST)
    assert row["status"] == "failed" and row["points"] == "" and "the disk is full" in row["reason"]


def test_marks_are_taken_back_when_the_last_step_fails(tmp_path, monkeypatch):
    root = small_class(tmp_path / "class", {"ada": solved()})
    nbgrader = grading._nbgrader

    def and_then_fails(*arguments, **options):
        nbgrader(*arguments, **options)
        assert auto_sum(root, "ada") == full()
        raise OSError("the disk is full")

    monkeypatch.setattr(grading, "_nbgrader", and_then_fails)
    assert grading.grade_student(root, FIRST, "ada")["status"] == "failed"
    assert {auto for auto, _, _ in marks(root, "ada").values()} == {None}


def test_marks_by_hand_survive_a_regrade_and_are_shown_again(tmp_path):
    root = small_class(tmp_path / "class", {"ada": solved()})
    grading.grade_student(root, FIRST, "ada")
    question, points = next(iter(text.load(FIRST).written.items()))
    demo.mark_by_hand(root, FIRST, "ada", question, points, "Good.")
    grading.grade_class(root, FIRST, again=True, jobs=1, say=lambda _: None)
    _, manual, review = marks(root, "ada")[question]
    assert manual == points and review


def test_a_mark_by_hand_on_what_the_grader_marks_is_kept_and_shown_again(tmp_path):
    root = small_class(tmp_path / "class", {"ada": untouched()})
    grading.grade_student(root, FIRST, "ada")
    name = next(iter(text.load(FIRST).properties))
    demo.mark_by_hand(root, FIRST, "ada", name, 1)
    assert marks(root, "ada")[name] == (0.0, 1.0, False)
    grading.grade_student(root, FIRST, "ada")
    assert marks(root, "ada")[name] == (0.0, 1.0, True)


def test_the_late_penalty_counts_what_was_marked_by_hand_later(tmp_path):
    root = small_class(tmp_path / "class", {})
    hand_in(root, "ada", solved(), when=DUE + datetime.timedelta(hours=20))
    grading.grade_student(root, FIRST, "ada")
    question, points = next(iter(text.load(FIRST).written.items()))
    demo.mark_by_hand(root, FIRST, "ada", question, points)
    (row,) = export.rows(root, FIRST)
    assert row["late_penalty"] == pytest.approx(0.1 * (full() + points))
    demo.mark_by_hand(root, FIRST, "ada", question, 0)
    (page,) = grading.feedback(root, FIRST)
    assert f"<strong>{0.1 * full():g}</strong> were taken off" in page.read_text(encoding="utf-8")


def test_an_unanswered_question_needs_no_marking(tmp_path):
    root = small_class(tmp_path / "class", {"cem": untouched()})
    grading.grade_student(root, FIRST, "cem")
    for question in text.load(FIRST).written:
        assert marks(root, "cem")[question] == (0.0, None, False)


def test_after_a_fix_of_the_grader_its_marks_are_old(tmp_path, monkeypatch):
    for folder in ("course", "attnlib"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    root = small_class(tmp_path / "class", {"ada": untouched()})
    record = {
        "student": "ada",
        "status": "graded",
        "reason": "",
        "flags": [],
        "points": 0,
        "of": 1,
        "seconds": 0.0,
    }
    file = root / settings.HANDED_IN / "ada" / FIRST / f"{FIRST}.ipynb"
    grading._write_down(root, FIRST, record | {"of_file": grading._digest(file, FIRST)})

    def after(path, words):
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "HERE", tmp_path / "course")
            patch.setattr(sandbox, "ATTNLIB", tmp_path / "attnlib")
            kept = (tmp_path / path).read_text(encoding="utf-8") if (tmp_path / path).exists() else None
            (tmp_path / path).write_text((kept or "") + words, encoding="utf-8")
            grading._grader.cache_clear()
            done = grading.is_done(root, FIRST, "ada")
            (tmp_path / path).unlink() if kept is None else (tmp_path / path).write_text(kept)
        grading._grader.cache_clear()
        return done

    assert after("course/verdict.py", "")
    for path in (
        "course/verdict.py",
        "course/worker.py",
        "course/new.py",
        "attnlib/core.py",
        "attnlib/show/x.py",
    ):
        assert not after(path, "# fixed\n"), path
    assert after("course/feedback.py", "# fixed\n")
    # The command grades again by itself.
    monkeypatch.setattr(grading, "grade_student", lambda root, name, student: record)
    assert grading.grade_class(root, FIRST, jobs=1, say=lambda _: None) == []
    monkeypatch.setattr(grading, "_grader", lambda: b"another")
    assert grading.grade_class(root, FIRST, jobs=1, say=lambda _: None) == [record]


# --- late -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "share"), [(-60, 0.0), (600, 0.0), (901, 0.1), (86400, 0.1), (3 * 86400, 0.3), (30 * 86400, 1.0)]
)
def test_a_late_day_costs_a_tenth(late, share):
    penalty = settings.LatePerDay().late_submission_penalty("ada", 20.0, late)
    assert (penalty or 0.0) == pytest.approx(20.0 * share)


STAMPS = [
    "yesterday",
    "",
    "Monday",
    "7",
    "2027-13-45 10:00",
    "2027-02-01 99:99 UTC",
    "99999-01-01",
    "2027-02-01",
    # nbgrader leaves out what it does not know, and a point of a late student with it
    "2030-01-31 09:00 PM",
    "2030-01-31 21:00:00 +0100",
    "2030-01-31 21:00:00 +01:00",
    "2030-01-31 21:00:00 UTC -5",
    "2030-01-31 21:00:00+99:00",
    "2030-01-31 21:00:00 PST",
    "2030-01-31 21:00 foo",
    "2030-01-31 21:00" + 300 * " " + "garbage",
]


@pytest.mark.parametrize("stamp", [*(words.encode() for words in STAMPS), b"\xff\xfe\x00", b"9" * 10**6])
def test_a_date_that_nobody_can_read_is_no_date(stamp, tmp_path):
    (tmp_path / "timestamp.txt").write_bytes(stamp)
    got, _, wanted = grading._no_date(tmp_path / "timestamp.txt")
    assert "timestamp.txt says" in got and "2027-02-01 21:00:00 UTC" in wanted and len(got) < 200


@pytest.mark.parametrize(
    "stamp", ["2027-02-01 21:00:00 UTC", "2027-02-01T21:00:00+01:00", "2015-02-02 15:58:23.948203 CET", None]
)
def test_a_date_as_platforms_write_it_is_one(stamp, tmp_path):
    if stamp:
        (tmp_path / "timestamp.txt").write_text(f"{stamp}\n")
    assert grading._no_date(tmp_path / "timestamp.txt") is None


def test_a_folder_whose_name_leaves_no_room_for_a_files_stops_nobody(tmp_path):
    name = "n" * 252
    assert "is too long" in grading._fault(name) and not grading._fault("n" * 200)
    assert len(grading._done_path(tmp_path, "1_one_head", name).name) < 100


def test_a_hand_in_without_a_date_that_can_be_read_is_refused_and_told(tmp_path):
    root = small_class(tmp_path / "class", {"ada": untouched(), "cem": b"{ damaged"})
    for student in ("ada", "cem"):
        (root / settings.HANDED_IN / student / FIRST / "timestamp.txt").write_text("yesterday")
    hand_in(root, "ben", untouched())
    records = grading.grade_class(root, FIRST, jobs=1, say=lambda _: None)
    assert [record["status"] for record in records] == ["refused", "graded", "refused"]
    assert "yesterday" in records[0]["reason"] and "damaged" in records[2]["reason"]
    (page,) = grading.feedback(root, FIRST, ["ada"])
    assert "its timestamp.txt says" in page.read_text(encoding="utf-8")


# --- many students --------------------------------------------------------------------------------------


def test_a_run_that_is_killed_goes_on_where_it_stopped(tmp_path):
    names = [f"student{number}" for number in range(5)]
    root = small_class(tmp_path / "class", {name: untouched() for name in names})
    command = [sys.executable, "-m", "course", "grade", str(root), FIRST, "--jobs", "2"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout.readline().startswith("[1/5] student")
    process.kill()
    process.stdout.close()
    process.wait()
    time.sleep(0.5)
    done = [name for name in names if grading.record_of(root, FIRST, name)]
    assert 1 <= len(done) < 5
    lines = []
    records = grading.grade_class(root, FIRST, jobs=2, say=lines.append)
    assert lines[0].endswith("are graded already")
    assert len(records) <= 5 - len(done)
    assert all(grading.record_of(root, FIRST, name)["status"] == "graded" for name in names)
    # A changed submission is graded again, an unchanged one is not.
    hand_in(root, names[0], solved())
    records = grading.grade_class(root, FIRST, jobs=2, say=lines.append)
    assert [(record["student"], record["points"]) for record in records] == [(names[0], full())]


def test_what_comes_while_a_submission_is_graded_is_graded_next(tmp_path, monkeypatch):
    root = small_class(tmp_path / "class", {"ada": untouched()})
    read = grading.intake.read

    def read_before_it_changes(path):
        found = read(path)
        hand_in(root, "ada", b"")
        return found

    monkeypatch.setattr(grading.intake, "read", read_before_it_changes)
    (first,) = grading.grade_class(root, FIRST, jobs=1)
    monkeypatch.setattr(grading.intake, "read", read)
    assert first["status"] == "graded"
    (row,) = export.rows(root, FIRST)
    assert row["flags"].endswith("after this was graded")
    assert [record["status"] for record in grading.grade_class(root, FIRST, jobs=1)] == ["refused"]
    (row,) = export.rows(root, FIRST)
    assert row["flags"] == ""


def test_shards_take_every_student_once(tmp_path, monkeypatch):
    root = small_class(tmp_path / "class", {f"s{number}": untouched() for number in range(7)})
    taken = []
    monkeypatch.setattr(
        grading,
        "grade_student",
        lambda root, name, student: (
            taken.append(student)
            or {
                "student": student,
                "status": "graded",
                "points": 0,
                "of": 1,
                "reason": "",
                "flags": [],
                "seconds": 0.0,
            }
        ),
    )
    for shard in (1, 2, 3):
        grading.grade_class(root, FIRST, jobs=1, shard=(shard, 3), say=lambda _: None)
    assert sorted(taken) == [f"s{number}" for number in range(7)]


def test_an_unknown_student_is_named(tmp_path):
    root = small_class(tmp_path / "class", {"ada": untouched()})
    with pytest.raises(settings.ConfigError, match="zoe"):
        grading.grade_class(root, FIRST, only=["zoe"])


# --- export ---------------------------------------------------------------------------------------------


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path, monkeypatch):
    root = small_class(tmp_path / "class", {"ada": untouched()})
    monkeypatch.setattr(export, "_names", lambda root: {"ada": '=HYPERLINK("http://x")'})
    path = export.write(root, FIRST)
    with path.open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["name"].startswith("'=") and row["status"] == "not graded"


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        ("=1", "'=1"),
        (" @x", " '@x"),
        ("＝1", "'＝1"),
        # Where the comma stands in numbers, spreadsheets begin a cell at a semicolon.
        ("rows: wrong (softmax; =1+1; -2)", "rows: wrong (softmax; '=1+1; '-2)"),
        ("rows: wrong (it differs; softmax)", "rows: wrong (it differs; softmax)"),
    ],
)
def test_no_cell_of_a_table_begins_a_formula(words, safe):
    assert export._safe(words) == safe


def test_no_grades_are_written_where_nothing_was_handed_in(tmp_path):
    root = small_class(tmp_path / "class", {})
    with pytest.raises(settings.ConfigError, match="nothing was handed in"):
        export.write(root, FIRST)

"""The course's commands: ``python -m course --help``."""

import argparse
import datetime
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

from . import CourseError, matrix, text
from .sandbox import check

BOOK = Path(__file__).resolve().parents[1] / "book"
MATRIX = Path(__file__).resolve().parents[1] / "attnlib" / "data" / "course" / "kill_matrix.json"
BUILT = Path(__file__).resolve().parents[1] / "_build" / "course"


def build(options):
    """Write the student and the solved notebooks."""
    for name in options.names or text.names():
        for path in text.write(options.into, name):
            print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


def try_out(options):
    """Hand in every submission made on purpose, and say whether each loses exactly what it should."""
    wrong = 0
    names = options.names or text.names()
    known = {row.name for name in names for row in matrix.rows(name)}
    if unknown := set(options.only or ()) - known:
        raise CourseError(
            f"no submission is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
        )
    for name in names:
        assignment = text.load(name)
        total, by_hand = sum(assignment.properties.values()), sum(assignment.written.values())
        print(f"{name}: {len(assignment.properties)} properties, {total} points, and {by_hand} by hand")
        for row in matrix.rows(name):
            if options.only and row.name not in options.only:
                continue
            found = matrix.judge(name, row, "try")
            right = found.lost == row.loses
            wrong += not right
            print(
                f"  {'ok   ' if right else 'WRONG'} {row.name}: {found.points}/{total}, {found.seconds:.2f} s"
            )
            if not right or options.verbose:
                for line in _differences(row, found):
                    print(f"        {line}")
    if wrong:
        sys.exit(f"{wrong} submissions were not graded as they should be")


def _differences(row, found):
    for kept in sorted(row.loses - found.lost):
        yield f"keeps {kept}, which it should lose"
    for gone in sorted(found.lost - row.loses):
        yield f"loses {gone}: {found.marks[gone].reason} ({found.marks[gone].detail})"
    yield from found.problems


def publish(options):
    """Write what the book offers and shows: student notebooks, and the kill matrix, run afresh."""
    offered = options.book / "assignments"
    offered.mkdir(exist_ok=True)
    for name in text.names():
        (offered / f"{name}.ipynb").write_text(text.released(text.load(name)), encoding="utf-8", newline="\n")
    if options.notebooks_only:
        return
    tables = [matrix.table(name, "publish") for name in text.names()]
    MATRIX.write_text(matrix.dump(tables), encoding="utf-8", newline="\n")
    submissions = [row for table in tables for row in table["submissions"]]
    print(f"{len(submissions)} submissions; now bake the pages: python tools/bake.py")
    if wrong := [row["name"] for row in submissions if not row["as_wanted"]]:
        sys.exit(f"not graded as they should be: {', '.join(wrong)}")


def new(options):
    """Make a class folder and release assignments into it."""
    from . import grading

    grading.new_class(options.folder, options.names)
    print(f"{options.folder} is ready; student notebooks are in its folder release/")


def due(options):
    """Set when an assignment is due, in UTC: 2027-02-01T22:00."""
    from . import grading

    text.load(options.name)
    try:
        when = datetime.datetime.fromisoformat(options.when)
    except ValueError:
        raise CourseError(f"{options.when!r} is no date; wanted one like 2027-02-01T22:00, in UTC") from None
    # The gradebook keeps no time zone.
    when = when.astimezone(datetime.UTC).replace(tzinfo=None) if when.tzinfo else when
    grading.set_due(options.folder, options.name, when)
    print(f"{options.name} is due on {when:%Y-%m-%d at %H:%M} UTC")


def release(options):
    """Release one more assignment into a class folder."""
    from . import grading

    grading.release(options.folder, options.name)
    print(f"{options.name} is in {options.folder / 'release' / options.name}")


def collect(options):
    """Take in a zip file from a learning management system."""
    from . import lms, settings

    text.load(options.name)
    settings.load(options.folder)
    try:
        zone = datetime.timezone(datetime.timedelta(hours=options.utc_offset))
    except (ValueError, OverflowError):
        raise CourseError(f"--utc-offset {options.utc_offset:g}, wanted hours between -24 and 24") from None
    for report in lms.collect(
        options.zip, options.folder, options.name, anonymous=options.anonymous, zone=zone
    ):
        print(report)


def grade(options):
    """Grade what was handed in and is not graded yet, in the sandbox."""
    from . import grading

    if options.jobs is not None and options.jobs < 1:
        raise CourseError(f"--jobs {options.jobs}, wanted 1 or more")
    shard = re.fullmatch(r"(\d+)/(\d+)", options.shard or "1/1")
    if not shard:
        raise CourseError(f"--shard {options.shard}, wanted K/N such as 1/3")
    records = grading.grade_class(
        options.folder,
        options.name,
        only=options.student,
        again=options.again,
        jobs=options.jobs,
        shard=tuple(map(int, shard.groups())),
        say=functools.partial(print, flush=True),
    )
    bad = [record["student"] for record in records if record["status"] == "failed"]
    if bad:
        sys.exit(f"{len(bad)} without a mark: {', '.join(bad)}")


def feedback(options):
    """Write feedback pages."""
    from . import grading

    print(f"{len(grading.feedback(options.folder, options.name, options.student))} pages in feedback/")


def grades(options):
    """Write the marks as CSV."""
    from . import export

    print(export.write(options.folder, options.name, options.to))


def marking(options):
    """Open nbgrader's page for marking by hand, on this machine only."""
    from . import settings

    settings.load(options.folder)
    # A broken settings file must stop it, not be skipped.
    environment = os.environ | {"TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR": "1"}
    command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", "--LabApp.default_url=/formgrader"]
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    raise SystemExit(subprocess.run(command, cwd=options.folder, env=environment).returncode)


def demonstrate(options):
    """Show the whole cycle on a class of three."""
    from . import demo

    demo.show(options.into, options.name)


def sandboxed(options):
    """Say whether the sandbox works here."""
    check()
    print(
        "the sandbox works: student code sees Python and /usr, nothing else of this machine, and no network"
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m course", description="Assignments, and their graders.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, name=None):
        words = function.__doc__.splitlines()[0]
        added = commands.add_parser(name or function.__name__, help=words, description=words)
        added.set_defaults(run=function)
        return added

    one = command(build)
    one.add_argument("names", nargs="*", metavar="NAME")
    one.add_argument("--into", type=Path, default=BUILT / "notebooks")
    one = command(try_out, "try")
    one.add_argument("names", nargs="*", metavar="NAME")
    one.add_argument("--only", action="append", metavar="SUBMISSION")
    one.add_argument("--verbose", action="store_true")
    one = command(publish)
    one.add_argument("--book", type=Path, default=BOOK)
    one.add_argument("--notebooks-only", action="store_true")
    command(sandboxed, "sandbox")
    one = command(demonstrate, "demo")
    one.add_argument("name", nargs="?", metavar="NAME")
    one.add_argument("--into", type=Path, help="a new or empty folder, instead of _build/course/class")
    one = command(new)
    one.add_argument("folder", type=Path)
    one.add_argument("names", nargs="*", metavar="NAME")
    command(marking).add_argument("folder", type=Path)
    for function in (release, due, collect, grade, feedback, grades):
        one = command(function)
        one.add_argument("folder", type=Path)
        one.add_argument("name", metavar="NAME")
        if function is due:
            one.add_argument("when")
        if function is collect:
            one.add_argument("zip", type=Path)
            one.add_argument("--anonymous", action="store_true", help="file under codes instead of names")
            hours = "the clock that the zip's dates are from, in hours east of UTC"
            one.add_argument("--utc-offset", type=float, default=0.0, metavar="HOURS", help=hours)
        if function in (grade, feedback):
            one.add_argument("--student", action="append")
        if function is grade:
            one.add_argument("--again", action="store_true", help="also what is graded already")
            one.add_argument("--jobs", type=int, help="how many at a time")
            one.add_argument("--shard", metavar="K/N", help="every N-th student from the K-th on")
        if function is grades:
            one.add_argument("--to", type=Path)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except CourseError as error:
        sys.exit(str(error))
    except OSError as error:
        # A path that is no folder, may not be written, or is not there.
        sys.exit(f"{error.filename or options.run.__name__}: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit("stopped; what is graded stays graded, and the same command goes on with the rest")


if __name__ == "__main__":
    main()

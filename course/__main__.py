"""The course's commands: ``python -m course --help``."""

import argparse
import sys
from pathlib import Path

from . import planting, text, verdict
from .sandbox import SandboxError

BUILT = Path(__file__).resolve().parents[1] / "_build" / "course"


def build(options):
    """Write the student and the solved notebooks."""
    for name in options.names or text.names():
        for path in text.write(options.into, name):
            print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


def tried(name, only=None, secret="try"):
    """Yield ``(submission, lost, wanted, verdict)`` for one assignment's submissions made on purpose."""
    assignment = text.load(name)
    mistakes, variants = planting.planted(name)
    rows = [("solved", set(), {}, True), ("untouched", set(assignment.properties), {}, False)]
    rows += [(one.name, set(one.loses), one.answers, True) for one in (*mistakes, *variants)]
    for label, wanted, answers, solved in rows:
        if only and label not in only:
            continue
        notebook = planting.submission(assignment, answers, solved=solved)
        found = verdict.grade(assignment, verdict.student_cells(notebook), secret)
        yield label, found.lost, wanted, found


def try_out(options):
    """Hand in every submission made on purpose, and say whether each loses exactly what it should."""
    wrong = 0
    for name in options.names or text.names():
        assignment = text.load(name)
        total = sum(assignment.properties.values())
        by_hand = sum(assignment.written.values())
        print(f"{name}: {len(assignment.properties)} properties, {total} points, and {by_hand} by hand")
        for label, lost, wanted, found in tried(name, options.only):
            right = lost == wanted
            wrong += not right
            print(f"  {'ok   ' if right else 'WRONG'} {label}: {found.points}/{total}, {found.seconds:.2f} s")
            if not right:
                for kept in sorted(wanted - lost):
                    print(f"        keeps {kept}, which it should lose")
                for gone in sorted(lost - wanted):
                    mark = found.marks[gone]
                    print(f"        loses {gone}: {mark.reason} ({mark.detail})")
            if not right or options.verbose:
                for problem in found.problems:
                    print(f"        {problem}")
    if wrong:
        sys.exit(f"{wrong} submissions were not graded as they should be")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m course", description="Assignments, and their graders.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("build", help=build.__doc__)
    command.add_argument("names", nargs="*", metavar="NAME")
    command.add_argument("--into", type=Path, default=BUILT / "notebooks")
    command.set_defaults(run=build)
    command = commands.add_parser("try", help=try_out.__doc__)
    command.add_argument("names", nargs="*", metavar="NAME")
    command.add_argument("--only", action="append", metavar="SUBMISSION")
    command.add_argument("--verbose", action="store_true")
    command.set_defaults(run=try_out)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except (SandboxError, text.TextError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

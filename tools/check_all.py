"""Run every check of the book in order, print the time of each step, stop at the first that fails.

python tools/check_all.py            all of them: what `make test` runs
python tools/check_all.py --list     say which steps there are
python tools/check_all.py lint site  only these
python tools/check_all.py ranges     the library on the versions that pyproject.toml promises; not among "all"
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
# The one beside this interpreter, whatever the PATH says.
JUPYTER_BOOK = str(Path(PYTHON).with_name("jupyter-book" + Path(PYTHON).suffix))
# The kernels and browsers of one step share the machine's cores, so each gets one thread for its sums.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

COURSE_TESTS = sorted(f"tests/{path.name}" for path in (ROOT / "tests").glob("test_course_*.py"))

STEPS = {
    "lint": [
        [PYTHON, "-m", "ruff", "check", "."],
        [PYTHON, "-m", "ruff", "format", "--check", "attnlib", "course", "tests", "tools"],
    ],
    "bake": [[PYTHON, "tools/bake.py", "--check"]],
    # Strict: every number of every stored output is computed again and compared.
    "notebooks": [
        # Student notebooks have gaps and no outputs; tests/test_course_*.py fill and grade them.
        [
            PYTHON,
            "-m",
            "pytest",
            "--nbval",
            "book",
            "--ignore=book/assignments",
            "-n",
            "2",
            "--dist",
            "loadfile",
            "-q",
        ]
        + ["--nbval-cell-timeout=120", "-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider"]
    ],
    "site": [
        # All of it: a page that was read before is not read again, and its warnings stay unsaid.
        [JUPYTER_BOOK, "clean", ".", "--all"],
        [JUPYTER_BOOK, "build", ".", "-W", "-n", "--keep-going", "-q"],
    ],
    # The graders under test: kill matrix, hostile class, hub.
    "course": [[PYTHON, "-m", "pytest", "-q", *COURSE_TESTS, "-n", "2", "--durations=5"]],
    # Last, so that the closing lines of the whole run are pytest's.
    "tests": [
        [PYTHON, "-m", "pytest", "-q", "--ignore-glob=*/test_course_*", "-n", "2", "--dist", "loadfile"]
        + ["--cov", "--cov-report=term", "--durations=5"]
    ],
}
# Only when named: the library on the oldest and the newest versions that pyproject.toml promises.
ON_REQUEST = {"ranges": [[PYTHON, "tools/check_ranges.py"]]}


def shown(command):
    return " ".join([Path(command[0]).stem, *command[1:]])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="all of them if none is named")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    known = STEPS | ON_REQUEST
    unknown = [step for step in options.steps if step not in known]
    if unknown:
        parser.error(f"no step called {', '.join(unknown)}; there are {', '.join(known)}")
    if options.list:
        for step, commands in known.items():
            for command in commands:
                print(f"{step}: {shown(command)}")
        return
    steps = options.steps or list(STEPS)
    if not importlib.util.find_spec("torch") and set(steps) - {"lint", "site"}:
        sys.exit(
            "PyTorch is not installed, and only lint and site do without; README.md: which machines have it"
        )
    for step in steps:
        start = time.perf_counter()
        for command in known[step]:
            print(f"== {step}: {shown(command)}", flush=True)
            status = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT).returncode
            if status:
                sys.exit(f"== {step} FAILED after {time.perf_counter() - start:.0f} s (exit status {status})")
        if step != "tests":
            print(f"== {step}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()

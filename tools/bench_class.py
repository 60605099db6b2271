"""Grade a class of synthetic submissions and record how long it takes: attnlib/data/course/class200.json.

python tools/bench_class.py             200 students, all cores
python tools/bench_class.py --students 20 --jobs 2 --to /tmp/x.json

Half of the class is right, the other half makes one planted mistake each; one in twenty never began. The
run is killed once on the way and resumed, as it would be on a machine that goes down.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from course import demo, grading, planting, text  # noqa: E402  (the path comes first)

RECORD = ROOT / "attnlib" / "data" / "course" / "class200.json"


def synthetic(name, number):
    """One submission, the same for the same number."""
    assignment = text.load(name)
    mistakes, variants = planting.planted(name)
    if number % 20 == 19:
        return planting.submission(assignment, solved=False)
    chosen = (mistakes if number % 2 else variants)[number // 2 % len(mistakes if number % 2 else variants)]
    return planting.submission(assignment, chosen.answers)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--to", type=Path, default=RECORD)
    options = parser.parse_args()
    name = text.names()[0]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "class"
        grading.new_class(root, [name])
        for number in range(options.students):
            demo.hand_in(root, f"s{number:03d}", name, synthetic(name, number), datetime.datetime(2030, 1, 1))
        began = time.perf_counter()
        kill_at = options.students // 3
        first = _run(root, name, options.jobs, kill_at)
        resumed = _run(root, name, options.jobs, None)
        seconds = time.perf_counter() - began
        records = [grading.record_of(root, name, student) for student in grading.students(root, name)]
    assert len(records) == options.students and all(record["status"] == "graded" for record in records)
    # What the workers finished while the command was being killed is in neither count.
    assert kill_at <= first < options.students and 0 < resumed <= options.students - first
    found = {
        "assignment": name,
        "students": options.students,
        "cores": options.jobs,
        "seconds": round(seconds, 1),
        "seconds_per_submission": round(seconds / options.students, 2),
        "killed_after": first,
    }
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


def _run(root, name, jobs, kill_at):
    """Grade as an instructor would; kill it after `kill_at` students. Returns how many it graded."""
    command = [sys.executable, "-u", "-m", "course", "grade", str(root), name, "--jobs", str(jobs)]
    graded = 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            graded += line.startswith("[")
            print(line, end="", flush=True)
            if kill_at and graded >= kill_at:
                process.kill()
                break
    return graded


if __name__ == "__main__":
    main()

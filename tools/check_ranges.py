"""Run the library's tests on the oldest and the newest versions that pyproject.toml promises: some minutes.

python tools/check_ranges.py           both; `python tools/check_all.py ranges` does the same
python tools/check_ranges.py oldest    or newest

The versions are uv's choice from pyproject.toml. They are laid into a folder that goes before this
environment's own packages, so that PyTorch need not be fetched again: torch and Triton stay those of
requirements-lab.txt, and their floors in pyproject.toml are these.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("show", "widgets")
CHOICE = {"oldest": "lowest-direct", "newest": "highest"}
MODULES = """core masks heads online tiled cost clues examples mistakes gradients show torch_path backends
kernels package widget_arithmetic widgets_jupyterlab""".split()


def run(age):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable]
        command += ["--target", folder, "--resolution", CHOICE[age], "-r", "pyproject.toml"]
        subprocess.run(command + [f"--extra={extra}" for extra in EXTRAS], cwd=ROOT, check=True)
        found = sorted(f"{d.metadata['Name']} {d.version}" for d in distributions(path=[folder]))
        print(f"== {age}: {', '.join(found)}", flush=True)
        # Old releases use what newer ones of their own helpers are about to drop: not ours to answer for.
        manners = ["-W", "ignore::DeprecationWarning"] if age == "oldest" else []
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *manners]
        command += [f"tests/test_{module}.py" for module in MODULES] + ["attnlib"]
        # The second: JupyterLab's half of anywidget, in the same version as Python's.
        first = {"PYTHONPATH": folder, "JUPYTER_PATH": str(Path(folder, "share", "jupyter"))}
        return subprocess.run(command, cwd=ROOT, env=os.environ | first).returncode


if __name__ == "__main__":
    sys.exit(max(run(age) for age in sys.argv[1:] or CHOICE))

"""attnlib as one file that pip installs from any address: built from this checkout, without a network."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def _copy(source, target):
    """The contents alone: neither permissions nor dates of this machine."""
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)


def build(folder):
    """Write the wheel into `folder`; the same checkout gives the same bytes."""
    with tempfile.TemporaryDirectory() as copy:  # setuptools leaves build folders beside what it builds
        for path in ROOT.iterdir():
            if path.is_file() and not path.name.startswith("."):
                _copy(path, Path(copy, path.name))
        skip = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / "attnlib", Path(copy, "attnlib"), ignore=skip, copy_function=_copy)
        done = subprocess.run(
            [sys.executable, "-c", BUILD, str(Path(folder).resolve())],
            cwd=copy,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1577836800"},
            umask=0o022,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"attnlib's wheel cannot be built:\n{done.stderr}")
    return Path(folder, done.stdout.split()[-1])


if __name__ == "__main__":
    print(build(sys.argv[1] if len(sys.argv) > 1 else "."))

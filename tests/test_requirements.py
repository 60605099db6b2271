"""The pins resolve on every machine that README.md names, and what is promised beside them is true.

uv resolves for another machine and Python from metadata alone: nothing is downloaded but lists, and neither
pip's settings nor a folder of wheels on this machine can make a broken pin pass.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OLDEST, NEWEST = "3.11", "3.14"
# README.md: Linux with glibc 2.28, macOS 14; uv's names for them.
MACHINES = {
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
    "Windows x86_64": "x86_64-pc-windows-msvc",
    # without PyTorch
    "macOS x86_64": "x86_64-apple-darwin",
    "Windows arm64": "aarch64-pc-windows-msvc",
    "musl x86_64": "x86_64-unknown-linux-musl",
    "musl aarch64": "aarch64-unknown-linux-musl",
}
BOOK, LAB = ("requirements-book.txt",), ("requirements-lab.txt",)


def everything():
    """What `make test` installs."""
    recipe = re.search(r"^\.venv/for-everything:.*\n\t(.*)", text("Makefile"), re.MULTILINE)[1]
    return tuple(re.findall(r"-r (\S+)", recipe))


SERVED = [(machine, python) for machine in list(MACHINES)[:4] for python in (OLDEST, NEWEST)]
# PyYAML 6.0.4 has wheels for Windows on ARM from Python 3.12.
TORCHLESS = [
    ("macOS x86_64", OLDEST),
    ("macOS x86_64", NEWEST),
    ("Windows arm64", "3.12"),
    ("Windows arm64", NEWEST),
]
SITE_ONLY = [(machine, python) for machine in ("musl x86_64", "musl aarch64") for python in (OLDEST, NEWEST)]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pins(*names):
    """Name to version, of every line with a pin."""
    lines = (line.split(";")[0].strip() for name in names for line in text(name).splitlines())
    return {
        canonicalize_name(name): version
        for name, version in (line.split("==") for line in lines if "==" in line and line[0] not in "#-")
    }


def uv(machine, python, files, stdin=None):
    command = [sys.executable, "-m", "uv", "pip", "compile", "--no-config", "--native-tls", "-q"]
    command += files
    command += ["--no-header", "--no-annotate", "--only-binary=:all:"]
    command += ["--python-platform", MACHINES[machine], "--python-version", python]
    own = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    own |= {"UV_PYTHON_DOWNLOADS": "never", "MACOSX_DEPLOYMENT_TARGET": "14.0"}
    return subprocess.run(
        command, cwd=ROOT, env=own, input=stdin, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="session")
def resolved():
    """A function: what the files bring to a machine, name to version, or uv's reason why not."""
    if uv("Linux x86_64", OLDEST, ["-"], stdin="packaging").returncode:
        message = "the package registry does not answer: the pins were resolved for no other machine"
        pytest.fail(message, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(message)

    def resolve(case):
        done = uv(*case)
        return pins_of(done.stdout) if done.returncode == 0 else done.stderr

    def pins_of(output):
        lines = (line.split("==") for line in output.splitlines() if "==" in line)
        return {canonicalize_name(name): version.split(" ")[0] for name, version in lines}

    cases = [(*case, everything()) for case in SERVED] + [(*case, BOOK + LAB) for case in TORCHLESS]
    cases += [(*case, BOOK) for case in SITE_ONLY]
    with ThreadPoolExecutor(8) as pool:  # most of the time is waiting for the registry
        known = dict(zip(cases, pool.map(resolve, cases), strict=True))
    return lambda machine, python, files: known[machine, python, files]


@pytest.mark.parametrize(("machine", "python"), SERVED)
def test_E07_E50_everything_resolves_to_wheels(resolved, machine, python):
    # A part of these files resolves where all of them do.
    found = resolved(machine, python, everything())
    assert isinstance(found, dict), found
    assert found["torch"] == pins("requirements-lab.txt")["torch"]


@pytest.mark.parametrize(("machine", "python"), SERVED)
def test_nothing_is_left_to_the_day_of_the_installation(resolved, machine, python):
    pinned = pins("constraints.txt", *everything(), *BOOK, *LAB)
    # torch says itself which of these it needs, and takes gigabytes of them: they are not ours to repeat.
    brought = {
        n: v
        for n, v in resolved(machine, python, everything()).items()
        if not n.startswith(("nvidia-", "cuda-"))
    }
    assert {name: version for name, version in brought.items() if pinned.get(name) != version} == {}


@pytest.mark.parametrize(("machine", "python"), TORCHLESS)
def test_where_torch_has_no_wheel_the_chapters_open_without_it(resolved, machine, python):
    found = resolved(machine, python, BOOK + LAB)
    assert isinstance(found, dict), found
    assert "torch" not in found and {"jupyter-book", "jupyterlab", "matplotlib", "anywidget"} <= set(found)


@pytest.mark.parametrize(("machine", "python"), SITE_ONLY)
def test_where_that_cannot_be_the_site_can_be_built(resolved, machine, python):
    found = resolved(machine, python, BOOK)
    assert isinstance(found, dict), found
    assert "torch" not in found and "jupyter-book" in found


def test_every_file_is_among_those_resolved():
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("requirements*.txt")}
    files |= {str(path.relative_to(ROOT)) for path in ROOT.glob("course/**/requirements.txt")}
    included = {"requirements.txt", *re.findall(r"^-r (\S+)", text("requirements.txt"), re.MULTILINE)}
    assert files == included | set(everything())


def test_two_files_pin_a_package_alike():
    for name in ("constraints.txt", ".binder/requirements.txt", *BOOK, *LAB, *everything()):
        for package, version in pins(name).items():
            assert pins("constraints.txt").get(package, version) == version, f"{name}: {package}"
    named = re.findall(r"(torch|triton)==([\d.]+)", text("course/requirements.txt") + text("README.md"))
    assert named and set(named) <= set(pins("requirements-lab.txt").items())


def test_this_environment_is_the_pinned_one():
    # Else a check may pass here, on versions that nobody else gets. "2.13.0+cpu" is a build of 2.13.0.
    # Only what pip laid there: setuptools, once imported, shows the packages inside itself too.
    have = {
        canonicalize_name(d.metadata["Name"]): d.version.split("+")[0]
        for d in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
    }
    pinned = pins("constraints.txt", *everything(), *BOOK, *LAB)
    other = {
        name: f"{have[name]}, pinned is {pinned[name]}"
        for name in have.keys() & pinned
        if have[name] != pinned[name]
    }
    assert other == {}, (
        "pip install -r requirements.txt -r course/requirements.txt -r course/hub/requirements.txt"
    )


# --- what stands in words -----------------------------------------------------------------------------------


@cache
def project():
    return tomllib.loads(text("pyproject.toml"))["project"]


def test_the_pythons_named_are_those_that_resolve():
    assert project()["requires-python"] == f">={OLDEST}"
    for name in ("Makefile", "README.md"):
        assert f"Python {OLDEST} to {NEWEST}" in text(name), name
    runtime = text(".binder/runtime.txt").strip().removeprefix("python-")
    assert int(OLDEST.split(".")[1]) <= int(runtime.split(".")[1]) <= int(NEWEST.split(".")[1])


def test_F16_the_readme_names_every_machine_that_is_not_served():
    for words in ("Intel Mac", "Windows on ARM", "Alpine", "glibc 2.28", "macOS 14"):
        assert words in text("README.md"), words


def test_what_is_promised_is_what_is_run():
    # Torch and Triton are run in the pinned version only, so that is the oldest that may be promised. The
    # others are run by `check_all.py ranges`, which reads its versions from pyproject.toml.
    extras = {r.name: r for r in map(Requirement, sum(project()["optional-dependencies"].values(), []))}
    for name in ("torch", "triton"):
        floor = re.search(r">=([\d.]+)$", str(extras.pop(name).specifier))[1]
        pinned = pins("requirements-lab.txt")[name]
        assert (pinned + ".").startswith(floor + "."), f"{name}>={floor}, run on {pinned}"
    import check_ranges

    promised = {Requirement(r).name for r in project()["dependencies"]} | set(extras)
    ran = {
        Requirement(r).name
        for extra in check_ranges.EXTRAS
        for r in project()["optional-dependencies"][extra]
    }
    assert promised == ran | {Requirement(r).name for r in project()["dependencies"]}


def test_binder_has_no_pins_of_its_own():
    lines = [line for line in text(".binder/requirements.txt").splitlines() if not line.startswith("#")]
    assert lines == ["--extra-index-url https://download.pytorch.org/whl/cpu", "-r ../requirements-lab.txt"]


# --- the makefile -------------------------------------------------------------------------------------------


def recipe(target, *settings):
    done = subprocess.run(["make", "-n", target, *settings], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="there is no make")


@needs_make
def test_clean_keeps_the_environment():
    assert recipe("clean").split() == ["rm", "-rf", "_build"]
    assert "rm -rf .venv" in recipe("distclean").splitlines()


@needs_make
def test_lab_opens_for_root_too_and_without_the_courses_menus():
    assert ("--allow-root" in recipe("lab")) == (os.name == "posix" and os.geteuid() == 0)
    assert "--no-browser" in recipe("lab", "LAB=--no-browser")
    rule = re.search(r"^\.venv/for-lab:.*\n(.*)", text("Makefile"), re.MULTILINE)[1]
    assert "course" not in rule and "nbgrader" not in "".join(map(text, LAB))


@needs_make
def test_a_changed_file_is_installed_again():
    for stamp, files in re.findall(r"^(\.venv/for-\w+): (.*)", text("Makefile"), re.MULTILINE):
        steps = re.search(rf"^{re.escape(stamp)}:.*\n\t(.*)", text("Makefile"), re.MULTILINE)[1]
        read, seen = list(re.findall(r"-r (\S+)", steps)), set()
        while read:
            seen.add(name := read.pop())
            read += re.findall(r"^-[rc] (\S+)", text(name).replace("../", ""), re.MULTILINE)
        assert seen <= set(files.split()), f"{stamp} does not wait for {seen - set(files.split())}"

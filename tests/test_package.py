"""The package as installed: what it imports, who may import whom, its names, its docstrings."""

import ast
import doctest
import graphlib
import importlib
import importlib.metadata
import inspect
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import attnlib
from attnlib import AttnError, MaskError, ShapeError, palette

PACKAGE = Path(attnlib.__file__).parent
ROOT = Path(__file__).parents[1]

# The design's floors. A module not listed here fails the test: give it its floor first.
FLOORS = {
    "errors": 0,
    "examples": 0,
    "palette": 0,
    "_torch": 0.3,
    "_arrays": 0.5,
    "records": 0.5,
    "clues": 1,
    "masks": 1,
    "heads": 1,
    "core": 2,
    "layer": 3,
    "probe": 3,
    "checks": 3,
    "mistakes": 3,
    "online": 3,
    "tiled": 4,
    "cost": 4,
    "counter": 4,
    "tiled_mistakes": 4,
    "tiled_checks": 4,
    "torch_path": 5,
    "backends": 5,
    "bench": 5,
    "kernels": 5,
    "_triton": 5,
    "show": 6,
    "widgets": 7,
}
MODULES = [name for name, floor in FLOORS.items() if floor <= 4]
PUBLIC = [getattr(attnlib, name) for name in attnlib.__all__]
PUBLIC += [
    getattr(importlib.import_module(f"attnlib.{module}"), name)
    for module in ("online", "tiled", "cost", "counter")
    for name in importlib.import_module(f"attnlib.{module}").__all__
]

BLOCKED = ("torch", "matplotlib", "ipywidgets", "anywidget", "triton", "IPython", "PIL")
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
sys.meta_path.insert(0, Blocker())
"""


def python(code, *options, **environment):
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


# --- imports ----------------------------------------------------------------------------------------------


def test_the_blocker_blocks():
    code = "try:\n    import torch\nexcept ModuleNotFoundError: print('blocked')"
    assert python(BLOCKER + code).strip() == "blocked"


def test_N37_everything_of_floors_0_to_4_works_without_torch_and_matplotlib():
    code = """
import numpy as np
import attnlib
from attnlib import checks, cost, counter, layer, online, probe, tiled, tiled_checks, tiled_mistakes
from attnlib.examples import all_sizes_differ, cat_sleeps, three_tokens
from attnlib import palette
steps = attnlib.attention_steps(*three_tokens().head(1), is_causal=True)
attnlib.attention(*all_sizes_differ(), attnlib.to_additive(attnlib.causal_mask(4, 5, align="top_left")))
attnlib.merge_heads(attnlib.split_heads(np.zeros((3, 8)), 2))
palette.css()
q, k, v = three_tokens().head(1)
output, lse = tiled.flash_attention(q, k, v, is_causal=True, block_q=2, block_k=2, return_lse=True)
tiled.flash_attention_backward(q, k, v, output, lse, output, is_causal=True)
counter.flash2_forward(counter.FastMemory(), q, k, v, block_q=2, block_k=2)
assert [c() for c in tiled_checks.CHECKS.values()] and np.allclose(output, steps.output)
print(steps.output[2].round(4).tolist())
"""
    assert python(BLOCKER + code, "-W", "error").strip() == "[0.1142, 0.042, 0.8438, 1.0]"


def test_N37_importing_loads_none_of_the_heavy_packages():
    code = f"import sys, attnlib; print([n for n in {BLOCKED!r} if n in sys.modules])"
    assert python(code).strip() == "[]"


def test_importing_is_silent_when_warnings_are_errors():
    assert python("import attnlib", "-W", "error") == ""


def test_B24_importing_and_printing_work_on_a_console_that_knows_no_unicode():
    code = """
import attnlib
try:
    attnlib.causal_mask(2, 5)
except attnlib.MaskError as refusal:
    print(refusal)
"""
    assert "2 queries" in python(code, PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0", LC_ALL="C")


def test_the_package_asks_for_numpy_and_array_api_compat_only():
    requires = importlib.metadata.requires("attnlib")
    needed = {r.split(">")[0].split("=")[0].strip() for r in requires if "extra ==" not in r}
    assert needed == {"numpy", "array-api-compat"}


def test_every_package_folder_is_packaged():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {
        ".".join(("attnlib", *init.parent.relative_to(PACKAGE).parts))
        for init in PACKAGE.rglob("__init__.py")
    }
    listed = settings["tool"]["setuptools"]["packages"]
    assert isinstance(listed, dict) or found <= set(listed), f"pyproject.toml forgets {found - set(listed)}"
    assert importlib.metadata.version("attnlib") == attnlib.__version__ == settings["project"]["version"]


def test_every_pinned_package_runs_on_the_oldest_python_that_the_readme_allows():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = settings["project"]["requires-python"].removeprefix(">=") + ".0"
    wanted = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        try:
            wanted[line] = importlib.metadata.metadata(line.split("==")[0])["Requires-Python"] or ""
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue  # a comment, or for another kind of machine
    assert len(wanted) > 100
    assert {line: words for line, words in wanted.items() if oldest not in SpecifierSet(words)} == {}


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_half_an_environment_is_not_taken_for_one(tmp_path):
    # Debian's Python without the package python3-venv ends in the middle of it.
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\n[ "$1" = -c ] && exit\nmkdir -p "$3/bin" && touch "$3/bin/python"; exit 1\n')
    fake.chmod(0o755)
    command = ["make", "-f", ROOT / "Makefile", f"PYTHON={fake}", ".venv/bin/python"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode
    assert not (tmp_path / ".venv").exists()


# --- floors -----------------------------------------------------------------------------------------------


def module_of(path):
    """The module of floor fame that a source file belongs to: show/_svg.py is part of show."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def arrows(tree, own):
    """Sibling modules that a source file imports, at the top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            depth = node.level - len(own) + 1  # dots up to the package itself
            if node.level and depth == 1:
                names = [node.module.split(".")[0]] if node.module else [a.name for a in node.names]
                yield from names
            elif not node.level and (node.module or "").split(".")[0] == "attnlib":
                parts = node.module.split(".")[1:]
                yield from parts[:1] or [a.name for a in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "attnlib":
                    yield (alias.name.split(".") + ["attnlib itself"])[1]


def graph():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts
        name = module_of(path)
        if name != "__init__":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found.setdefault(name, set()).update(set(arrows(tree, own)) - {name})
    return found


def test_every_module_has_a_floor():
    assert set(graph()) <= set(FLOORS) and set(MODULES) <= set(graph())


def test_arrows_point_downwards():
    for name, targets in graph().items():
        for target in targets:
            # Modules of floor 3 and up may use a neighbour; that makes no cycle, says the next test.
            level = FLOORS[name] >= 3 and FLOORS[target] == FLOORS[name]
            assert FLOORS[target] < FLOORS[name] or level, f"{name} imports {target}"
    assert graph()["core"] >= {"masks", "heads", "_arrays", "errors"}  # the reader of imports does see them


def test_there_are_no_cycles():
    assert tuple(graphlib.TopologicalSorter(graph()).static_order())


def test_show_computes_no_attention():
    assert not graph().get("show", set()) & {"core", "masks", "heads", "layer"}


def test_modules_import_nothing_heavy_at_the_top():
    for name in MODULES:
        for node in ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
                for top in (
                    [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                ):
                    known = {"numpy", "array_api_compat"} | set(sys.stdlib_module_names)
                    assert top.split(".")[0] in known, f"{name} imports {top}"


# --- names and docstrings ---------------------------------------------------------------------------------


def test_public_names_exist_once_and_sorted():
    assert len(set(attnlib.__all__)) == len(attnlib.__all__) and attnlib.__all__ == sorted(attnlib.__all__)
    wanted = "attention attention_steps scores scale_scores apply_mask softmax weighted_sum causal_mask"
    assert set(wanted.split()) < set(attnlib.__all__)


def test_errors_form_one_family():
    assert issubclass(AttnError, ValueError)
    assert issubclass(ShapeError, AttnError) and issubclass(MaskError, AttnError)
    assert not issubclass(ShapeError, MaskError) and not issubclass(MaskError, ShapeError)


@pytest.mark.parametrize("member", [m for m in PUBLIC if inspect.isfunction(m)], ids=lambda m: m.__name__)
def test_docstrings_have_their_sections_and_name_every_parameter(member):
    text = inspect.getdoc(member)
    for section in ("Parameters", "Returns", "Raises"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text, section
    head = text.split("\nReturns\n")[0]
    for name in inspect.signature(member).parameters:
        assert name in head, f"{name} is not described"
    assert text.splitlines()[0].endswith((".", "`", ":"))


@pytest.mark.parametrize("name", MODULES)
def test_doctests_pass_and_are_there(name):
    module = importlib.import_module(f"attnlib.{name}")
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    assert result.attempted > 0 or name in (
        "errors",
        "_arrays",
        "_torch",
        "checks",
        "tiled_checks",
        "tiled_mistakes",
    )


def test_pytest_runs_the_doctests_and_turns_warnings_into_errors():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
        "ini_options"
    ]
    assert "--doctest-modules" in options["addopts"] and "attnlib" in options["testpaths"]
    assert options["filterwarnings"][0] == "error"


# --- palette ----------------------------------------------------------------------------------------------


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("role", palette.ROLES)
def test_colours_can_be_read_on_both_pages(role):
    light, dark = palette.ROLES[role]
    assert (luminance("#FFFFFF") + 0.05) / (luminance(light) + 0.05) >= 4.5
    assert (luminance(dark) + 0.05) / (luminance("#121212") + 0.05) >= 4.5


def test_the_style_sheet_defines_every_role_twice():
    variables, dark, light = palette.css().strip().splitlines()
    for role, (day, night) in palette.ROLES.items():
        assert f"--attn-{role}: light-dark({day}, {night});" in variables
    assert "color-scheme: dark" in dark and "color-scheme: light" in light
    assert len({colour for pair in palette.ROLES.values() for colour in pair}) == 2 * len(palette.ROLES)

"""The Triton kernels compiled for sm_90, on a machine that need not have such a GPU."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("triton") is None and os.environ.get("CI") != "true":
    pytest.skip("no Triton: pip install triton (Linux) to compile the kernels", allow_module_level=True)

TOOLS = Path(__file__).parents[1] / "tools"


def python(*arguments, **environment):
    """What a Python without the interpreter of Triton prints."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TOOLS}:{env.get('PYTHONPATH', '')}"} | environment
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    code, out, err = python(
        TOOLS / "compile_report.py", "--json", TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("compiled"))
    )
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_every_kernel_is_reported(report):
    wanted = {
        (kernel, dtype, width, causal)
        for kernel in ("forward", "backward_query", "backward_key")
        for dtype in ("bfloat16", "float16")
        for width in (64, 128)
        for causal in (True, False)
    }
    assert {(r["kernel"], r["dtype"], r["width"], r["causal"]) for r in report} == wanted


def test_no_spills_and_tensor_cores_on_hopper(report):
    for row in report:
        assert row["wgmma"] > 0 and row["mma"] == 0, row
        assert row["spilled"] == 0, row
        assert row["shared"] <= 227 * 1024, row
        assert row["registers"] * 32 * row["warps"] <= 65536, row


ODD = """
import compile_report as report
from attnlib import kernels

report.set_target(90)
kernels.TILES = {name: tiles[-1:] for name, tiles in kernels.TILES.items()}
for sizes in (
    {"n_q": 1, "n_k": 1, "n_heads": 1, "n_kv": 1, "width": 1},
    {"n_q": 65, "n_k": 1, "n_heads": 4, "width": 16, "n_kv": 1},
    {"n_q": 37, "n_k": 38, "width": 40},
    {"n_q": 16, "n_k": 0, "width": 16, "backward": False},
):
    for causal in (False, True):
        run = report.attention("float16", causal=causal, **sizes)
        print(*(report.figures(made)["registers"] for *_, made in report.compiled(run)))
"""


def test_sizes_that_the_compiler_treats_apart_compile_too(tmp_path):
    """1 becomes a constant, multiples of 16 are told to it: the interpreter shows neither."""
    code, out, err = python("-c", ODD, TRITON_CACHE_DIR=str(tmp_path))
    assert code == 0, err
    assert [len(line.split()) for line in out.splitlines()] == [4] * 6 + [1] * 2


def test_float32_multiplies_in_full(tmp_path):
    """No tensor cores, whose tf32 would keep 10 bits; so small tiles, and they fit any GPU."""
    code = """
import compile_report as report
from attnlib import kernels

report.set_target(90)
kernels.TILES = dict.fromkeys(kernels.TILES, kernels.SMALL_TILES[-1:])
for *_, made in report.compiled(report.attention("float32", 128, True)):
    figures = report.figures(made)
    assert figures["wgmma"] == figures["mma"] == 0, figures
    assert figures["shared"] <= 64 * 1024, figures
"""
    code, _, err = python("-c", code, TRITON_CACHE_DIR=str(tmp_path))
    assert code == 0, err


def test_the_tuner_tells_apart_what_matters():
    code = """
import torch
import compile_report
from attnlib import kernels

compile_report.set_target(90)
for name, tiles in kernels.TILES.items():
    tuned, fixed = kernels._launcher(name, torch.bfloat16)
    small, _ = kernels._launcher(name, torch.float32)
    assert fixed == {} and set(tuned.keys) <= set(tuned.arg_names), tuned.keys
    assert {"n_q", "n_k", "WIDTH", "WIDTH_V", "CAUSAL"} <= set(tuned.keys), tuned.keys
    assert len(small.configs) == len(kernels.SMALL_TILES) == len(tuned.configs) - len(tiles)
"""
    code, _, err = python("-c", code)
    assert code == 0, err


def test_the_report_refuses_to_run_in_the_interpreter():
    code, _, err = python(TOOLS / "compile_report.py", TRITON_INTERPRET="1")
    assert code == 1 and "TRITON_INTERPRET is set" in err

"""Compile the Triton kernels for a GPU that need not be there, and say what came out.

python tools/compile_report.py                    for sm_90 (H100, H200): bfloat16, float16, widths 64 and 128
python tools/compile_report.py --arch 80 --dtype float32

Columns: registers a thread, bytes spilled to slow memory, KiB of shared memory, tensor-core instructions
(wgmma from sm_90 on, mma before). The tiles are those that `attnlib.kernels.TILES` tries on a GPU, called
through the library's own launch code. Needs Triton and torch, no GPU; TRITON_INTERPRET must not be set.
"""

import argparse
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget

from attnlib import kernels

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
# Bytes of shared memory that one block may use, by architecture.
SHARED = {75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10}
LINE = (
    "{kernel:15}{dtype:>9}{width:>5} {causal:7}{tile:>8}{warps:>6}{stages:>7}{registers:>10}{spilled:>8}"
    "{shared:>7}{wgmma:>6}{mma:>6}"
)
COLUMNS = "kernel dtype width causal tile warps stages registers spilled shared wgmma mma".split()
HEAD = LINE.format(**{name: name for name in COLUMNS})


class NoDevice:
    """Stands in for Triton's driver: it knows what to compile for, and cannot launch."""

    def __init__(self, arch):
        self.target = GPUTarget("cuda", arch, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.target.arch  # the number under which compiled kernels are kept

    def get_current_stream(self, device):
        return 0


def compiled(run, *, first_only=False):
    """What every kernel that `run` launches compiles to, for each of its tile sizes.

    Parameters
    ----------
    run : callable
        Calls the operator's own code; no kernel runs, so its results mean nothing.
    first_only : bool
        Only the first of the tile sizes.

    Yields
    ------
    name, (block_q, block_k, warps, stages), triton.compiler.CompiledKernel
    """
    found = []

    def launch(name, programs, *arguments, **constants):
        kernel = getattr(kernels._device_code(), name)
        for q, k, warps, stages in kernels.TILES.get(name, [(64, None, 4, 3)])[: 1 if first_only else None]:
            sizes = {"BLOCK_Q": q} | ({} if k is None else {"BLOCK_K": k})
            options = {"num_warps": warps, "num_stages": stages, "grid": (1,)}
            made = kernel.warmup(*arguments, **constants, **sizes, **options)
            found.append((name, (q, k, warps, stages), made))

    saved, kernels._launch = kernels._launch, launch
    try:
        run()
    finally:
        kernels._launch = saved
    return found


def attention(dtype, width, causal, *, n_q=1024, n_k=1024, n_heads=2, n_kv=2, batch=1, backward=True):
    """A function that calls the operator's code on inputs of such sizes."""

    def run():
        query, key, value = (
            torch.empty(batch, heads, n, width, dtype=getattr(torch, dtype))
            for heads, n in ((n_heads, n_q), (n_kv, n_k), (n_kv, n_k))
        )
        how = (1 / math.sqrt(width), causal, n_k - n_q if causal else 0)
        output, lse = kernels._run_forward(query, key, value, *how)
        if backward:
            kernels._run_backward((query, key, value, output, lse), output, lse, how)

    return run


def figures(made):
    """Registers, spilled bytes, shared bytes and tensor-core instructions of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [CUOBJDUMP, "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = {name: int(n) for name, n in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    ptx = made.asm["ptx"]
    return {
        "registers": usage["REG"],
        "spilled": usage["STACK"] + usage["LOCAL"],
        "shared": made.metadata.shared,
        "wgmma": ptx.count("wgmma.mma_async"),
        "mma": ptx.count("mma.sync"),
    }


def set_target(arch):
    """Compile for this architecture from now on."""
    if kernels.interpreting():
        sys.exit("TRITON_INTERPRET is set: nothing would be compiled; unset it")
    triton.runtime.driver.set_active(NoDevice(arch))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", type=int, default=90, choices=SHARED)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float16"])
    parser.add_argument("--width", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--json", action="store_true", help="one object a line, for programs")
    options = parser.parse_args()
    set_target(options.arch)
    if not options.json:
        print(f"sm_{options.arch}, Triton {triton.__version__}\n{HEAD}")
    for dtype, width, causal in itertools.product(options.dtype, options.width, (True, False)):
        for name, (q, k, warps, stages), made in compiled(attention(dtype, width, causal)):
            if k is None:  # delta multiplies nothing
                continue
            row = {"kernel": name, "dtype": dtype, "width": width, "causal": causal, "tile": f"{q}x{k}"}
            row |= {"warps": warps, "stages": stages} | figures(made)
            if options.json:
                print(json.dumps(row), flush=True)
                continue
            fits = row["shared"] <= SHARED[options.arch]
            row |= {"causal": str(causal), "shared": f"{row['shared'] / 1024:.0f}"}
            print(LINE.format(**row) + ("" if fits else "  does not fit"), flush=True)


if __name__ == "__main__":
    main()

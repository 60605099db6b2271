"""Time and memory of attention on one CPU thread: torch's own, ours, and the plain formula, in one run.

`python tools/bench_cpu.py` writes `attnlib/data/cpu/attention.json`, which the chapters read; it takes some
minutes and wants a quiet machine. What is compared is the CPU time of calls made in turn, never wall time.
"""

import argparse
import datetime
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

for name in ("OMP", "MKL", "OPENBLAS"):  # read when the libraries are loaded
    os.environ[f"{name}_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402

import attnlib  # noqa: E402
from attnlib import bench, records, tiled, torch_path  # noqa: E402

OUT = records.FOLDER / "cpu" / "attention.json"
HEADS, WIDTH, SEED, BLOCK = 8, 64, 0, 128
SIZES = (512, 1024, 2048, 4096, 8192, 16384)
REPEATS = {512: 15, 1024: 11, 2048: 7, 4096: 5, 8192: 3, 16384: 2}
CAUSAL_SIZES = (512, 2048, 8192)
# What the plain ones hold at their highest, in score matrices of float32; measured, see "memory".
MATRICES, MATRIX_LIMIT = {"formula": 2, "plain": 5}, 12 * 2**30
SHORT = 4096  # the slow ones are left out above this many tokens where they would only repeat themselves
MEMORY_SIZES = {
    "sdpa": SIZES,
    "fast": SIZES,
    "tiles": SIZES[:-1],
    "tiles_numpy": SIZES[1:4],
    "formula": SIZES,
    "plain": SIZES,
}
FAULT_SIZES = (2048, 4096)
# malloc gives large blocks back to the system and is given fresh pages, one fault each, for the next. These
# settings of glibc make it keep them.
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**28),
}


def sdpa(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def fast(q, k, v, causal):
    return torch_path.fast_attention(q, k, v, is_causal=causal)


def tiles(q, k, v, causal):
    return tiled.flash_attention(q, k, v, is_causal=causal, block_q=BLOCK, block_k=BLOCK)


def tiles_numpy(q, k, v, causal):
    q, k, v = (x.numpy() for x in (q, k, v))
    return torch.from_numpy(tiles(q, k, v, causal))


def formula(q, k, v, causal):
    """The plain formula in the fewest lines of torch."""
    scores = (q / WIDTH**0.5) @ k.mT
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores.masked_fill_(hidden, -math.inf)
    return torch.softmax(scores, -1) @ v


def plain(q, k, v, causal):
    """attnlib's plain attention, written to be read: every step is a matrix of its own."""
    return attnlib.attention(q, k, v, is_causal=causal)


METHODS = {f.__name__: f for f in (sdpa, fast, tiles, tiles_numpy, formula, plain)}


def inputs(tokens, dtype):
    torch.manual_seed(SEED)
    return [torch.randn(1, HEADS, tokens, WIDTH).to(dtype) for _ in range(3)]


def too_large(method, tokens):
    """The reason not to run this, or None."""
    need = MATRICES.get(method, 0) * HEADS * tokens**2 * 4
    if need > MATRIX_LIMIT:
        return f"scores need {need / 2**30:.0f} GiB, the limit is {MATRIX_LIMIT / 2**30:.0f} GiB"
    return None


def why_not(method, tokens, dtype, causal):
    """The reason not to time this, or None."""
    if method == "tiles_numpy" and dtype == torch.bfloat16:
        return "NumPy has no bfloat16"
    slow = method in ("plain", "tiles_numpy") or method == "formula" and (causal or dtype == torch.bfloat16)
    if (reason := too_large(method, tokens)) is None and slow and tokens > SHORT:
        reason = f"left out above {SHORT} tokens to keep the run short"
    return reason


# --- time ------------------------------------------------------------------------------------------------


def cpu_seconds(call, *args):
    start = time.process_time()
    call(*args)
    return time.process_time() - start


def gemm_gflops(dtype):
    return bench.measured_peak(dtype) / 1e9


def time_rows(tokens, dtype, causal, repeats):
    """One row per method: all methods in turn, `repeats` times, after one call of each on less."""
    kind = str(dtype).removeprefix("torch.")
    runs = {m: f for m, f in METHODS.items() if why_not(m, tokens, dtype, causal) is None}
    warm = inputs(min(tokens, 1024), dtype)
    wanted = sdpa(*warm, causal).float()
    for method, run in runs.items():
        off = float((run(*warm, causal).float() - wanted).abs().max())
        if not off < (1e-4 if dtype == torch.float32 else 0.1):
            raise SystemExit(f"{method} is off by {off} from sdpa: not worth timing")
    qkv = inputs(tokens, dtype)
    seconds = {m: [] for m in runs}
    for _ in range(repeats):
        for method, run in runs.items():
            seconds[method].append(cpu_seconds(run, *qkv, causal))
    flops = 4 * tokens**2 * WIDTH * HEADS / (2 if causal else 1)
    for method in METHODS:
        row = {"method": method, "tokens": tokens, "dtype": kind, "causal": causal}
        if method not in runs:
            yield row | {"reason": why_not(method, tokens, dtype, causal)}
            continue
        ratios = [a / b for a, b in zip(seconds[method], seconds["sdpa"], strict=True)]
        median = statistics.median(seconds[method])
        yield row | {
            "repeats": repeats,
            "seconds": median,
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "gflops": flops / median / 1e9,
        }


# --- memory and page faults, each in a process of its own --------------------------------------------------


def probe(what, method, tokens, dtype="float32", environment=None):
    """Run this file's `_probe_...` in a fresh process and return what it prints."""
    command = [sys.executable, __file__, "--probe", what, method, str(tokens), dtype]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **(environment or {})}
    )
    return json.loads(done.stdout)


def _probe_memory(method, tokens, dtype):
    """Highest resident size during one call, less the size just before it."""
    run = METHODS[method]
    run(*inputs(256, dtype), False)  # loads the libraries' code and their own buffers
    qkv = inputs(tokens, dtype)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = _status("VmRSS")
    out = run(*qkv, False)
    peak = _status("VmHWM") - before
    own = out.numel() * out.element_size()
    return {"peak_bytes": peak, "output_bytes": own, "extra_bytes": max(0, peak - own)}


def _status(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"this system does not tell {field}: memory can be measured on Linux only")


def _probe_faults(method, tokens, dtype):
    """Time and minor page faults of a call, the median of three after one that is not counted."""
    qkv, seen = inputs(tokens, dtype), []
    METHODS[method](*qkv, False)
    for _ in range(3):
        a = resource.getrusage(resource.RUSAGE_SELF)
        METHODS[method](*qkv, False)
        b = resource.getrusage(resource.RUSAGE_SELF)
        system = b.ru_stime - a.ru_stime
        seen.append((b.ru_utime - a.ru_utime + system, system, b.ru_minflt - a.ru_minflt))
    names = ("seconds", "system_seconds", "minor_faults")
    return dict(zip(names, map(statistics.median, zip(*seen, strict=True)), strict=True))


# --- the file --------------------------------------------------------------------------------------------


def machine():
    found = bench.machine("cpu")
    return {"cpu": found["name"], "cores": found["cores"], "l2_bytes": found["l2_bytes"]}


def refuse_impossible(result):
    """Raise where a rate exceeds what the same machine reached on matrix products (field report N36)."""
    peaks = result["machine"]["gemm_gflops"]
    for row in result["rows"]:
        if "reason" in row:
            continue
        what = f"{row['method']} at {row['tokens']} tokens, {row['dtype']}"
        numbers = [value for value in row.values() if isinstance(value, float)]
        if not all(math.isfinite(n) and n > 0 for n in numbers):
            raise SystemExit(f"{what}: a time or rate is not a positive number: {row}")
        peak = peaks[row["dtype"]]
        if row["gflops"] > peak:
            raise SystemExit(
                f"{what}: {row['gflops']:.0f} GFLOP/s, but this machine's matrix products reach {peak:.0f}: "
                f"the clock or the count of operations is wrong"
            )


def measure(quick=False):
    """Everything that the file holds."""
    torch.set_num_threads(1)
    sizes = (256,) if quick else SIZES
    kinds = (torch.float32, torch.bfloat16)
    peaks = {str(kind).removeprefix("torch."): gemm_gflops(kind) for kind in kinds}
    rows = []
    for dtype in kinds:
        for causal in (False, True):
            for tokens in sizes:
                if causal and not quick and tokens not in CAUSAL_SIZES:
                    continue
                rows += time_rows(tokens, dtype, causal, 2 if quick else REPEATS[tokens])
                print(*(summary(row) for row in rows[-len(METHODS) :]), sep="\n", file=sys.stderr)
    memory = []
    for method, tokens in [("fast", 512)] if quick else [(m, n) for m in METHODS for n in MEMORY_SIZES[m]]:
        row = {"method": method, "tokens": tokens, "dtype": "float32", "causal": False}
        reason = too_large(method, tokens)
        memory.append(row | ({"reason": reason} if reason else probe("memory", method, tokens)))
    faults = []
    for method, tokens in [("formula", 512)] if quick else [(m, n) for m in MATRICES for n in FAULT_SIZES]:
        for allocator, environment in (("default", {}), ("kept", KEPT)):
            row = {"method": method, "tokens": tokens, "allocator": allocator}
            faults.append(row | probe("faults", method, tokens, environment=environment))
    for kind in kinds:  # once more: the machine may have been busy at the start
        name = str(kind).removeprefix("torch.")
        peaks[name] = max(peaks[name], gemm_gflops(kind))
    return {
        "command": "python tools/bench_cpu.py" + (" --quick" if quick else ""),
        "date": datetime.date.today().isoformat(),
        "machine": {**machine(), "gemm_gflops": peaks, "sgemm_gflops": peaks["float32"]},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "attnlib": attnlib.__version__,
        },
        "settings": {
            "batch": 1,
            "heads": HEADS,
            "width": WIDTH,
            "threads": 1,
            "clock": "time.process_time",
            "seed": SEED,
            "warm_up": 1,
            "tiles_block": BLOCK,
            "plain_limit_bytes": MATRIX_LIMIT,
        },
        "rows": rows,
        "memory": memory,
        "page_faults": faults,
    }


def summary(row):
    head = f"{row['method']:12} {row['tokens']:6} {row['dtype']:9}{' causal' if row['causal'] else ''}"
    if "reason" in row:
        return f"{head}: {row['reason']}"
    return f"{head}: {row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only, to see that it works")
    parser.add_argument("--out", type=Path, default=OUT, help="the file to write")
    parser.add_argument("--probe", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.probe:
        torch.set_num_threads(1)
        what, method, tokens, dtype = options.probe
        found = globals()[f"_probe_{what}"](method, int(tokens), getattr(torch, dtype))
        print(json.dumps(found))
        return
    result = bench.rounded(measure(options.quick))
    refuse_impossible(result)
    bench.write_json(options.out, result)


if __name__ == "__main__":
    main()

"""Check and time the book's GPU kernel on this machine's GPU, beside torch's own, in under five minutes.

python tools/record_gpu.py                     writes attnlib/data/gpu/<device>.json
python tools/record_gpu.py --quick --out DIR   the same steps at tiny sizes, in Triton's interpreter

Correctness comes first, in processes of their own, while others compile what is timed later. Every step has a
share of the time; what does not fit is left out with that reason.
"""

import argparse
import functools
import itertools
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

if "--quick" in sys.argv:  # Triton reads it when it is imported, which torch may do
    os.environ["TRITON_INTERPRET"] = "1"

import torch

import attnlib
from attnlib import backends, bench, heads, kernels, records, torch_path

OUT = records.FOLDER / "gpu"
SEED, LIMIT, WORKERS = 0, 270.0, 4
TOTAL, MODEL = 16384, 2048  # batch x tokens, and heads x width, of every timing
SIZES, WIDTHS = (16384, 8192, 4096, 2048, 1024, 512), (128, 64)
LONGEST = 65536
# Seconds that methods may take over all timings, so that none crowds out the others.
SHARES = {"flex": 60, "plain": 25, "math": 25}
LENGTHS = ((100, 100), (37, 100), (100, 37), (1, 65), (17, 17))
KINDS = ("float32", "float16", "bfloat16")
LATE = "left out: the five minutes were over"


class Case(dict):
    """One input for the kernel, by its sizes and options."""

    @property
    def options(self):
        how = {"enable_gqa": self["heads"] != self["kv_heads"]}
        if self["causal"]:
            how |= {"is_causal": True, "causal_align": self["causal"]}
        return how

    def inputs(self, device):
        """Queries, keys, values and an output's gradient."""
        draw = torch.Generator().manual_seed(SEED)
        shapes = (
            (self["heads"], self["n_q"], self["width"]),
            (self["kv_heads"], self["n_k"], self["width"]),
            (self["kv_heads"], self["n_k"], self["value_width"]),
            (self["heads"], self["n_q"], self["value_width"]),
        )
        dtype = getattr(torch, self["dtype"])
        return [torch.randn((self["batch"], *shape), generator=draw).to(device, dtype) for shape in shapes]


def case(n_q, n_k, width, dtype, causal=None, *, value_width=None, batch=1, n_heads=2, kv_heads=2):
    return Case(
        n_q=n_q,
        n_k=n_k,
        width=width,
        value_width=value_width or width,
        dtype=dtype,
        causal=causal,
        batch=batch,
        heads=n_heads,
        kv_heads=kv_heads,
    )


def cases():
    """Every length with every width; types, masks and groups of heads take turns."""
    masks = itertools.cycle((None, "bottom_right", "top_left"))
    kinds = itertools.cycle(KINDS)
    for place, ((n_q, n_k), width) in enumerate(itertools.product(LENGTHS, (16, 40, 64, 128))):
        more = {}
        if place % 5 == 1:
            more = {"n_heads": 4, "kv_heads": 2, "batch": 2}
        if place % 5 == 3:
            more = {"value_width": 24 if width < 64 else 40}
        yield case(n_q, n_k, width, next(kinds), next(masks), **more)
        if place % 4 == 3:
            next(masks)  # otherwise the same types would always meet the same masks
    yield case(8192, 8192, 128, "bfloat16", "top_left", n_heads=1, kv_heads=1)


# --- correctness -----------------------------------------------------------------------------------------


def check(one, device):
    """Output, lse and gradients of one case against float64, by the rules of the book.

    The error is at most 2 times (gradients 3 times) that of the plain formula in the same precision.
    """
    *arrays, grad = one.inputs(device)
    exact = [a.double().requires_grad_() for a in arrays]
    steps = attnlib.attention_steps(*exact, **one.options)
    wanted = [steps.output.detach(), *torch.autograd.grad(steps.output, exact, grad.double())]
    lse_wanted = steps.lse.detach()
    del steps
    ours = [a.clone().requires_grad_() for a in arrays]
    output, lse = kernels.flash_attention(*ours, return_lse=True, **one.options)
    got = [output.detach(), *torch.autograd.grad(output, ours, grad)]
    simple = [a.clone().requires_grad_() for a in arrays]
    output = plain_formula(*simple, one)
    plain = [output.detach(), *torch.autograd.grad(output, simple, grad)]
    names = ("output", "query", "key", "value")
    errors, fine = {}, True
    for name, a, b, want in zip(names, got, plain, wanted, strict=True):
        mine, theirs = (float((x.double() - want).abs().max()) for x in (a, b))
        unit = 8 * torch.finfo(torch.float32).eps * max(1.0, float(want.abs().max()))
        errors[name] = [mine, theirs]
        fine &= mine <= (2 if name == "output" else 3) * theirs + unit  # NaN is not below anything
    off = (lse.detach().double() - lse_wanted).abs()
    errors["lse"] = float(off.where(lse != lse_wanted, 0.0).max())
    fine &= errors["lse"] <= 2e-5 * max(1.0, float(lse_wanted.where(lse_wanted.isfinite(), 0.0).abs().max()))
    return {**one, "errors": errors, "fine": bool(fine)}


def plain_formula(query, key, value, one):
    """softmax(QKᵀ/√d) V in the inputs' own precision; a row that sees nothing gives 0."""
    times = one["heads"] // one["kv_heads"]
    key, value = heads.repeat_heads(key, times), heads.repeat_heads(value, times)
    scores = query @ key.mT / math.sqrt(one["width"])
    if not one["causal"]:
        return torch.softmax(scores, -1) @ value
    mask = attnlib.causal_mask(one["n_q"], one["n_k"], align=one["causal"], like=query)
    seeing = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~(mask | ~seeing), -math.inf)
    return (torch.softmax(scores, -1) @ value) * seeing


def far(device, quick):
    """Inputs whose last numbers lie beyond 2^31 places from the first: bit-equal to packed ones (N29)."""
    n, width = (32, 16) if quick else (8192, 64)
    beyond = 2**12 if quick else 2**31
    one = case(n, n, width, "bfloat16", "top_left", batch=2, n_heads=1, kv_heads=1)
    query, key, value, grad = one.inputs(device)
    row = beyond // n + 2 * width
    spread = [
        # Keys: row by row, the two batches side by side. Values: the second batch far behind the first.
        _spread(key, (width, width, row, 1)),
        _spread(value, (beyond + 8, width, width, 1)),
    ]
    results = []
    for arrays in ((query, key, value), (query, *spread)):
        arrays = [a.detach().requires_grad_() for a in arrays]
        output, lse = kernels.flash_attention(*arrays, return_lse=True, **one.options)
        results.append([output, lse, *torch.autograd.grad(output, arrays, grad)])
    furthest = min(sum((n - 1) * s for n, s in zip(a.shape, a.stride(), strict=True)) for a in spread)
    fine = all(map(torch.equal, *results)) and not any(a.isnan().any() for a in results[0])
    return {"furthest": furthest, "fine": fine}


def _spread(array, strides):
    size = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    places = torch.empty(size, dtype=array.dtype, device=array.device)
    return places.as_strided(array.shape, strides).copy_(array)


def race(device, quick):
    """The same call again and again: bit-equal results, gradients included, or threads are racing."""
    one = case(*(32, 32, 16) if quick else (1024, 1024, 64), "bfloat16", "top_left", n_heads=4, kv_heads=2)
    repeats = 3 if quick else 50
    *arrays, grad = one.inputs(device)
    arrays = [a.requires_grad_() for a in arrays]
    first, equal = None, {"output": True, "lse": True, "gradients": True}
    for _ in range(repeats):
        output, lse = kernels.flash_attention(*arrays, return_lse=True, **one.options)
        now = [[output], [lse], torch.autograd.grad(output, arrays, grad)]
        first = first or now
        for name, a, b in zip(equal, first, now, strict=True):
            equal[name] &= all(map(torch.equal, a, b))
    return {"repeats": repeats, **equal, "fine": all(equal.values())}


# --- time and memory -------------------------------------------------------------------------------------


def timings(device, quick, deadline):
    """Rows of `bench.table_rows` for all sizes, those that matter most first."""
    spent = dict.fromkeys(bench.METHODS, 0.0)
    sizes, widths = ((32,), (16,)) if quick else (SIZES, WIDTHS)
    for width, causal in itertools.product(widths, (True, False)):
        torch.compiler.reset()  # torch compiles a function for a few shapes only, then refuses
        for tokens in sizes:
            shape = {
                "tokens": tokens,
                "batch": 1 if quick else TOTAL // tokens,
                "heads": 1 if quick else MODEL // width,
                "width": width,
            }
            late = time.monotonic() > deadline
            methods = [m for m in spent if not late and spent[m] <= SHARES.get(m, math.inf)]
            yield from left_out({**shape, "causal": causal}, [m for m in spent if m not in methods])
            if late:
                continue
            rows = bench.table_rows(**shape, is_causal=causal, device=device, methods=methods)
            for row, seconds in timed(rows):
                spent[row["method"]] += seconds
                yield row
            if device.type == "cuda":
                torch.cuda.empty_cache()


def timed(rows):
    """Each row with the seconds that it took to come."""
    start = time.monotonic()
    for row in rows:
        yield row, time.monotonic() - start
        start = time.monotonic()


def left_out(shape, methods):
    for method, direction in itertools.product(methods, ("forward", "backward")):
        yield {**shape, "method": method, "direction": direction, "dtype": "bfloat16", "reason": LATE}


def memory(device, quick):
    """Bytes of a forward pass of one head beyond its result, at a length where all fit and at a long one."""
    dtype = torch.float32 if quick else torch.bfloat16
    limit = bench.machine(device).get("memory_bytes", 2**31) // 2
    for tokens in (64,) if quick else (8192, LONGEST):
        arrays = [
            torch.randn(1, 1, tokens, 16 if quick else 128, device=device, dtype=dtype) for _ in range(3)
        ]
        for method, attend in bench.METHODS.items():
            row = {"method": method, "tokens": tokens, "heads": 1, "dtype": str(dtype).removeprefix("torch.")}
            scores = 4 * bench.PLAIN_MATRICES * tokens**2
            if method in ("plain", "math") and scores > limit:
                need, most = f"{scores / 2**30:.0f} GiB", f"{limit / 2**30:.0f} GiB"
                yield row | {"reason": f"its scores need {need}, the limit is {most}"}
                continue
            refusal = method in backends.KERNELS and backends.why_not(method, *arrays)
            if refusal:
                yield row | {"reason": refusal}
                continue
            try:
                call = functools.partial(attend, *arrays, is_causal=False)
                output = call().nbytes
                peak = bench.memory_peak(call, device=device)
                yield row | {"output_bytes": output, "extra_bytes": max(0, peak - output)}
            except Exception as failure:
                yield row | {"reason": reason(failure)}


def reason(failure):
    """What may stand in the record: our own words, or the kind of somebody else's error."""
    print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
    return str(failure) if isinstance(failure, attnlib.AttnError) else f"failed with {type(failure).__name__}"


# --- processes of their own ------------------------------------------------------------------------------


def job_check(part):
    """A share of the cases: one line of JSON for each."""
    device = torch_path.device()
    sizes, small = kernels.TILES, kernels.SMALL_TILES
    for one in list(cases())[int(part) :: WORKERS]:
        if one["n_q"] < 1000:  # one tile size: trying all for every shape would take minutes
            kernels.TILES = dict.fromkeys(sizes, [(64, 64, 4, 2)])
            kernels.SMALL_TILES = small[:1] if one["dtype"] == "float32" else []
        else:
            kernels.TILES, kernels.SMALL_TILES = sizes, small
        kernels._launcher.cache_clear()
        try:
            found = check(one, device)
        except Exception as failure:
            found = {**one, "fine": False, "reason": reason(failure)}
        print(json.dumps(found), flush=True)


def job_compile(width, causal):
    """Compile what the timings need; Triton and torch keep it on disk for the next process."""
    device, width, causal = torch_path.device(), int(width), causal == "True"
    for tokens in SIZES[:2]:  # torch compiles again for a second length, then for all
        shape = (TOTAL // tokens, MODEL // width, tokens, width)
        arrays = [torch.randn(shape, device=device).to(torch.bfloat16).requires_grad_() for _ in range(3)]
        for method in ("ours", "flex"):
            try:
                with torch.no_grad():
                    bench.METHODS[method](*arrays, is_causal=causal)
                bench.METHODS[method](*arrays, is_causal=causal).sum().backward()
            except Exception as failure:
                reason(failure)


def start_jobs():
    jobs = {("check", str(part)): None for part in range(WORKERS)}
    jobs |= {("compile", str(w), str(c)): None for w, c in itertools.product(WIDTHS, (True, False))}
    for job in jobs:
        command = [sys.executable, __file__, "--job", *job]
        output = subprocess.PIPE if job[0] == "check" else subprocess.DEVNULL
        jobs[job] = subprocess.Popen(command, stdout=output, text=True)
    return jobs


def finish_jobs(jobs, seconds):
    """What the checks printed; a job that takes too long is stopped, and what it owes is missing."""
    end, lines = time.monotonic() + seconds, []
    for job, process in jobs.items():
        try:
            output, _ = process.communicate(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            print(f"stopped after {seconds:.0f} s: {' '.join(job)}", file=sys.stderr)
        lines += (output or "").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


# --- the file --------------------------------------------------------------------------------------------


def measure(device, quick):
    """Everything that the file holds."""
    start = time.monotonic()
    wanted = list(cases())[:20:7] if quick else list(cases())
    if quick:
        checks = [check(one, device) for one in wanted]
    else:
        checks = finish_jobs(start_jobs(), 0.45 * LIMIT)
    for one in checks:
        if not one["fine"]:
            print("WRONG", one, file=sys.stderr)
    parts = {
        "correctness": {"wanted": len(wanted), "cases": checks},
        "far": step(far, device, quick),
        "race": step(race, device, quick),
        "memory": list(memory(device, quick)),
    }
    rows = []
    try:
        for row in timings(device, quick, start + LIMIT):
            print(summary(row), file=sys.stderr, flush=True)
            rows.append(row)
    except attnlib.AttnError as fault:  # a wrong or impossible result: nothing after it is to be believed
        parts["fault"] = str(fault)
        print("WRONG", fault, file=sys.stderr)
    settings = {
        "clock": "device events" if device.type == "cuda" else "time.process_time, one thread",
        "repeats": bench.LEAST_REPEATS,
        "flops": "4 T^2 d per head forward, 2.5 times that backward, half if causal",
        "ratio": "seconds over those of torch's own choice (sdpa)",
        "interpreter": kernels.interpreting(),
        "seconds_in_all": time.monotonic() - start,
    }
    command = "python tools/record_gpu.py" + (" --quick" if quick else "")
    return bench.record(command, device, settings=settings, rows=rows, **parts)


def step(function, device, quick):
    try:
        return function(device, quick)
    except Exception as failure:
        return {"fine": False, "reason": reason(failure)}


def is_fine(result):
    """Whether all checks were made and none failed."""
    checks = result["correctness"]
    every = [*checks["cases"], result["far"], result["race"]]
    return (
        len(checks["cases"]) == checks["wanted"]
        and all(one["fine"] for one in every)
        and "fault" not in result
    )


def summary(row):
    head = f"{row['method']:10}{row['direction']:9} {row['tokens']:6} x {row['width']:3}"
    head += " causal" if row["causal"] else ""
    if "reason" in row:
        return f"{head}: {row['reason']}"
    return f"{head}: {row['tflops']:.4g} TFLOP/s, {row['ratio']:.3f} of sdpa's time"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes in Triton's interpreter, on the CPU")
    parser.add_argument("--out", type=Path, help="the folder to write into; attnlib/data/gpu if not given")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        what, *words = options.job
        return {"check": job_check, "compile": job_compile}[what](*words)
    if options.quick:
        if options.out is None:
            parser.error("--quick needs --out: what it finds is not for the book")
        device = torch.device("cpu")
    else:
        device = torch_path.device()
        if device.type != "cuda":
            raise SystemExit(
                f"no GPU here (the device is {device}): nothing is recorded. With --quick --out DIR the same "
                f"steps run at tiny sizes on the CPU"
            )
    result = measure(device, options.quick)
    name = re.sub(r"[^a-z0-9]+", "-", result["machine"]["name"].lower()).strip("-")
    fine = is_fine(result)
    file = (options.out or OUT) / f"{name}{'' if fine else '-failed'}.json"
    bench.write_json(file, result)
    print(f"{'all checks passed' if fine else 'SOME CHECKS FAILED'}; wrote {file.name}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

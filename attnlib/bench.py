"""Measuring attention honestly: seconds of a device or of one CPU thread, rates, memory, and their record.

What goes wrong when a GPU is timed by hand, and what is done here: the call returns before the device is
done (:func:`measure` waits); the first call compiles (it warms up); inputs lie in the cache from the last
call (it takes others in turn); Python is slower than a short kernel (the device is kept busy meanwhile); a
wrong count of operations gives an impossible rate (:func:`rate` refuses it).
"""

import datetime
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import time
import traceback
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import backends, core, cost, kernels, torch_path
from ._arrays import positive_number, whole_number
from .errors import AttnError

try:
    import torch
except ImportError:  # the functions say so when they are called
    torch = None

PEAKS = {
    "T4": {"float16": 65e12, "bfloat16": 65e12, "float32": 8.1e12},
    "A100": {"float16": 312e12, "bfloat16": 312e12, "float32": 156e12},
    "H100 PCIe": {"float16": 756e12, "bfloat16": 756e12, "float32": 378e12},
    "H100 NVL": {"float16": 835e12, "bfloat16": 835e12, "float32": 418e12},
    "H100": {"float16": 989e12, "bfloat16": 989e12, "float32": 495e12},
    "H200 NVL": {"float16": 835e12, "bfloat16": 835e12, "float32": 418e12},
    "H200": {"float16": 989e12, "bfloat16": 989e12, "float32": 495e12},
}
"""FLOP/s of matrix products, dense, as NVIDIA's data sheets give them; the first name that a device's name
contains counts. float32: in TF32, which nothing in float32 exceeds. A T4 has no bfloat16 of its own."""

LEAST_REPEATS = 20
HEAD_START = 2_000_000  # clock cycles, about a millisecond: Python's time to prepare one call
PLAIN_MATRICES = (
    6  # score matrices in float32 that plain attention may hold at once
)


class Seconds(NamedTuple):
    """Times of one call.

    Attributes
    ----------
    median, low, high : float
        Of all repeats; low and high are the fastest and the slowest.
    each : list of float
        All of them, in order.
    clock : str
        What was read: ``"device events"``, ``"time.process_time, one thread"`` or
        ``"time.perf_counter, with a wait"``.
    """

    median: float
    low: float
    high: float
    each: list
    clock: str


def measure(
    function,
    inputs,
    *,
    device=None,
    repeats=LEAST_REPEATS,
    warm_up=3,
    prepare=None,
):
    """Seconds of ``function(*inputs)``, measured so that they mean something.

    Parameters
    ----------
    function : callable
    inputs : sequence of tensors
        Copied until the copies are twice as large as the cache, at most one copy per call; the calls take
        them in turn.
    device : torch.device or str, optional
        Where the work happens; :func:`attnlib.torch_path.device` if not given.
    repeats, warm_up : int
        Calls that count, at least 20, and calls before them, at least 1: the first one may compile.
    prepare : callable, optional
        Called on each copy, not timed; `function` gets what it returns, a sequence. For a backward pass
        it does the forward pass.

    Returns
    -------
    Seconds

    Raises
    ------
    AttnError
        Fewer repeats or warm-up calls, or without torch.

    Notes
    -----
    On CUDA two events in the device's own queue enclose each call: Python's time before the launch is not
    in it. On Apple's GPU wall time with a wait on both sides; it is. On a CPU the process's own CPU time
    with torch on one thread: other programs do not count.
    """
    torch_path._require_torch()
    device = torch.device(torch_path.device() if device is None else device)
    for name, number, least in (
        ("repeats", repeats, LEAST_REPEATS),
        ("warm_up", warm_up, 1),
    ):
        if whole_number(number, name) < least:
            raise AttnError(f"{name} is {number}, wanted at least {least}")
    least_bytes, n_calls = 2 * _cache_bytes(device), warm_up + repeats
    copies = _copies(inputs, least_bytes, n_calls)
    if prepare is not None:
        copies = [prepare(*copy) for copy in copies]
    if len(copies) == n_calls:
        # No call meets its inputs again, but making them left them in the cache: write over it.
        torch.zeros(least_bytes, dtype=torch.uint8, device=device)
    clock, read = _clock(device)
    calls = [
        partial(function, *copies[n % len(copies)]) for n in range(n_calls)
    ]
    each = read(calls[:warm_up], calls[warm_up:], device)
    return Seconds(statistics.median(each), min(each), max(each), each, clock)


def rate(seconds, flops, peak=None):
    """FLOP/s; refused where no machine could have done it (field report N36).

    Parameters
    ----------
    seconds : float
    flops : float
        Operations of one call, by :func:`attention_flops`.
    peak : float, optional
        FLOP/s that the machine cannot exceed: :func:`published_peak` or :func:`measured_peak`.

    Returns
    -------
    float
        FLOP/s.

    Raises
    ------
    AttnError
        A time or count that is not a positive number; a rate above `peak`.

    Examples
    --------
    >>> rate(0.002, 8e9, peak=5e12) / 1e12
    4.0
    """
    result = positive_number(flops, "flops") / positive_number(
        seconds, "seconds"
    )
    if peak is not None and not result <= peak:
        raise AttnError(
            f"{result / 1e12:.4g} TFLOP/s, but this machine does at most {peak / 1e12:.4g}: the clock or "
            f"the count of operations is wrong (did the clock wait for the device? is a causal mask half "
            f"the work?)"
        )
    return result


def attention_flops(query, key, value, *, direction="forward", is_causal=False):
    """Multiplications and additions by the field's convention, over all heads of the batch.

    Parameters
    ----------
    query, key, value : arrays, shapes as in :func:`attnlib.attention`
        Only their shapes matter; key/value heads may be fewer.
    direction, is_causal
        As in :func:`attnlib.cost.flops`.

    Returns
    -------
    int

    Raises
    ------
    AttnError
        An unknown `direction`.

    Examples
    --------
    >>> q = np.zeros((2, 4, 1024, 64))
    >>> attention_flops(q, q, q) == 4 * 2 * 4 * 1024 * 1024 * 64
    True
    """
    one = cost.flops(
        query.shape[-2],
        key.shape[-2],
        query.shape[-1],
        value.shape[-1],
        direction=direction,
        is_causal=is_causal,
    )
    return one * math.prod(query.shape[:-2])


def published_peak(name, dtype):
    """FLOP/s of matrix products that the maker states for a device.

    Parameters
    ----------
    name : str
        As torch gives it: ``torch.cuda.get_device_name()``.
    dtype : torch type or str

    Returns
    -------
    float or None
        None for a device or type that :data:`PEAKS` does not know.

    Raises
    ------
    None

    Examples
    --------
    >>> published_peak("NVIDIA H100 80GB HBM3", "bfloat16") / 1e12
    989.0
    """
    # A whole word: "T4" is not in "T400".
    padded = f" {name.replace('-', ' ').lower()} "
    for chip, peaks in PEAKS.items():
        words = chip.lower().split()
        if all(f" {word} " in padded for word in words):
            return peaks.get(_dtype_name(dtype))
    return None


@cache
def measured_peak(dtype, device="cpu"):
    """The best rate of large matrix products on this machine: nothing built from products beats it by much.

    Parameters
    ----------
    dtype : torch type
    device : torch.device or str

    Returns
    -------
    float
        FLOP/s; on a CPU of one thread.

    Raises
    ------
    AttnError
        Without torch.
    """
    torch_path._require_torch()
    _, read = _clock(torch.device(device))
    best = 0.0
    for n in (1024, 2048) if str(device) == "cpu" else (4096, 8192):
        a, b = torch.randn(2, n, n, device=device).to(dtype)
        product = partial(torch.mm, a, b, out=torch.empty_like(a))
        seconds = min(read([product], 5 * [product], device))
        best = max(best, 2 * n**3 / seconds)
    return best


def memory_peak(function, *, device=None):
    """Bytes that ``function()`` holds at its fullest, beyond those held before; its result included.

    Parameters
    ----------
    function : callable
        Without arguments. Call it once before: a first call loads code.
    device : torch.device or str, optional
        :func:`attnlib.torch_path.device` if not given.

    Returns
    -------
    int

    Raises
    ------
    AttnError
        On a CPU without Linux's ``/proc``, and on Apple's GPU.

    Notes
    -----
    On CUDA torch's own count, exact. On a CPU the growth of the process's resident memory, which misses
    what fits into pages that the process has already: measure in a fresh process.
    """
    torch_path._require_torch()
    device = torch.device(torch_path.device() if device is None else device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = function()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device)
    else:
        if device.type != "cpu":
            raise AttnError(f"memory cannot be measured on {device.type}")
        _forget_high_water()
        before = _resident("VmRSS")
        result = function()
        peak = _resident("VmHWM")
    del result
    return max(0, peak - before)


def table(tokens, **options):
    """All rows of :func:`table_rows` in a list.

    Parameters
    ----------
    tokens, **options
        As there.

    Returns
    -------
    list of dict

    Raises
    ------
    AttnError
        As there.
    """
    return list(table_rows(tokens, **options))


def table_rows(
    tokens,
    *,
    batch=1,
    heads=1,
    width=64,
    dtype=None,
    is_causal=False,
    device=None,
    methods=None,
    directions=cost.DIRECTIONS,
    repeats=LEAST_REPEATS,
    plain_limit=None,
    seed=0,
):
    """One row per method and direction, side by side: ours, torch's, FlexAttention, the plain formula.

    Parameters
    ----------
    tokens, batch, heads, width : int
        As many keys as queries; values as wide as keys.
    dtype : torch type, optional
        bfloat16 on a GPU and float32 on a CPU if not given.
    is_causal : bool
    device : torch.device or str, optional
        :func:`attnlib.torch_path.device` if not given.
    methods : sequence of str, optional
        Some of :data:`METHODS`; all if not given. ``"sdpa"`` is always there: torch's own choice, to
        which the others are compared.
    directions : sequence of {"forward", "backward"}
    repeats : int
        As in :func:`measure`.
    plain_limit : int, optional
        Bytes that score matrices may take: the plain formula and torch's "math" are left out above it.
        Half of the device's memory if not given; 1 GiB on a CPU.
    seed : int

    Returns
    -------
    iterator of dict
        Each row as soon as it is measured.
        ``method``, ``direction``, the sizes, ``dtype``, ``causal``; ``seconds`` (median), ``low``, ``high``,
        ``repeats``, ``tflops`` by the field's convention and ``ratio``, its seconds over those of
        ``"sdpa"``; for ``"sdpa"`` also ``ran``, the kernel it chose. Or ``reason``, why it was not measured.

    Raises
    ------
    AttnError
        An unknown method; a result that is wrong (compared with ``"sdpa"``) or impossibly fast.

    Notes
    -----
    The compiled kernels are warm when they are timed. Gradients are timed alone, through a forward pass
    done before.
    """
    torch_path._require_torch()
    device = torch.device(torch_path.device() if device is None else device)
    on_cpu = device.type == "cpu"
    if dtype is None:
        dtype = torch.float32 if on_cpu else torch.bfloat16
    if plain_limit is None:
        plain_limit = (
            2**30 if on_cpu else machine(device).get("memory_bytes", 2**31) // 2
        )
    methods = tuple(METHODS if methods is None else methods)
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise AttnError(
            f"no method called {', '.join(unknown)}, wanted some of {', '.join(METHODS)}"
        )
    # First torch's choice, which the others are compared with.
    methods = ("sdpa", *(name for name in methods if name != "sdpa"))
    peak = published_peak(machine(device)["name"], dtype)
    if peak is None:
        peak = measured_peak(dtype, device)
    inputs = _inputs((batch, heads, tokens, width), dtype, device, seed)
    scores = PLAIN_MATRICES * 4 * batch * heads * tokens**2
    sdpa_seconds, wanted = {}, None
    for name in methods:
        call = partial(METHODS[name], is_causal=is_causal)
        reason = None
        if name in ("plain", "math") and scores > plain_limit:
            reason = f"its scores need {scores / 2**30:.1f} GiB, the limit is {plain_limit / 2**30:.1f} GiB"
        elif name in backends.KERNELS:
            reason = backends.why_not(name, *inputs[:3], is_causal=is_causal)
        if reason is None:
            got, reason = _or_reason(call, *inputs[:3])
        if reason is None:
            wanted = got if wanted is None else wanted
            _require_near(name, got, wanted)
        got = None
        for direction in directions:
            row = {
                "method": name,
                "direction": direction,
                "batch": batch,
                "heads": heads,
                "tokens": tokens,
                "width": width,
                "dtype": _dtype_name(dtype),
                "causal": is_causal,
            }
            why = reason
            if why is None:
                times, why = _or_reason(
                    _times, call, inputs, direction, device, repeats
                )
            if why is not None:
                yield row | {"reason": why}
                continue
            sdpa_seconds.setdefault(direction, times.median)
            if name == "sdpa":
                row["ran"] = backends.which_ran(call, *inputs[:3])
            flops = attention_flops(
                *inputs[:3], direction=direction, is_causal=is_causal
            )
            yield row | {
                "seconds": times.median,
                "low": times.low,
                "high": times.high,
                "repeats": repeats,
                "tflops": rate(times.median, flops, peak) / 1e12,
                "ratio": times.median / sdpa_seconds[direction],
            }


def machine(device=None):
    """What the numbers were measured on: no names of hosts or users.

    Parameters
    ----------
    device : torch.device or str, optional
        :func:`attnlib.torch_path.device` if not given.

    Returns
    -------
    dict
        ``name`` of the chip, ``kind`` ("cuda", "cpu", ...), and its sizes where known.

    Raises
    ------
    AttnError
        Without torch.
    """
    torch_path._require_torch()
    device = torch.device(torch_path.device() if device is None else device)
    if device.type == "cuda":
        chip = torch.cuda.get_device_properties(device)
        return {
            "kind": "cuda",
            "name": chip.name,
            "capability": f"{chip.major}.{chip.minor}",
            "memory_bytes": chip.total_memory,
            "l2_bytes": chip.L2_cache_size,
            "multiprocessors": chip.multi_processor_count,
        }
    name, info = (
        platform.processor() or platform.machine(),
        Path("/proc/cpuinfo"),
    )
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.split(":")[1].strip()
                break
    result = {"kind": device.type, "name": name, "cores": os.cpu_count()}
    if device.type == "cpu":
        result["l2_bytes"] = torch.cpu.get_capabilities().get("l2_cache_size")
    return result


def record(command, device=None, **parts):
    """A result with all that is needed to judge it and to get it again.

    Parameters
    ----------
    command : str
        What to type, from the repository's root.
    device : torch.device or str, optional
        :func:`attnlib.torch_path.device` if not given.
    **parts
        What was measured: settings, rows.

    Returns
    -------
    dict
        With ``command``, ``date``, ``commit`` ("unknown" outside a repository, a "+" behind it if files
        were changed since), ``machine``, ``versions``, and the parts.

    Raises
    ------
    AttnError
        Without torch.
    """
    torch_path._require_torch()
    versions = {
        "attnlib": importlib.metadata.version("attnlib"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
    }
    try:
        import triton

        versions["triton"] = triton.__version__
    except ImportError:
        pass
    return {
        "command": command,
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "machine": machine(device),
        "versions": versions,
        **parts,
    }


def write_json(path, result):
    """Write a record: sorted keys, floats to four digits, which is more than any clock deserves.

    Parameters
    ----------
    path : path-like
    result : dict

    Returns
    -------
    None

    Raises
    ------
    AttnError
        NaN or an infinity; the name of this host, or a path of this machine, in it.
    """
    try:
        text = json.dumps(
            rounded(result), indent=1, sort_keys=True, allow_nan=False
        )
    except ValueError as problem:
        raise AttnError(f"not a result to keep: {problem}") from None
    private = {
        str(Path.cwd()),
        str(Path.home()),
        str(Path(path).parent.resolve()),
    }
    for secret in {place for place in private if len(place) > 1}:
        if f"{secret}/" in text or f'{secret}"' in text:
            raise AttnError("a path of this machine stands in the result")
    if len(host := platform.node()) > 3 and host in text:
        raise AttnError("the name of this host stands in the result")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def rounded(tree):
    """The same lists and dicts with every float cut to four significant digits.

    Parameters
    ----------
    tree : dict, list or anything else

    Returns
    -------
    the same kind

    Raises
    ------
    None

    Examples
    --------
    >>> rounded({"seconds": [0.123456, 7]})
    {'seconds': [0.1235, 7]}
    """
    if isinstance(tree, dict):
        return {key: rounded(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [rounded(value) for value in tree]
    return float(f"{tree:.4g}") if isinstance(tree, float) else tree


# --- methods ---------------------------------------------------------------------------------------------


def _torch_attention(name, query, key, value, is_causal):
    """torch's attention as it is, without the conversions of ours, which take time on a GPU."""
    attend = torch.nn.functional.scaled_dot_product_attention
    if name == "sdpa":
        return attend(query, key, value, is_causal=is_causal)
    with backends.only(name):
        return attend(query, key, value, is_causal=is_causal)


_TORCHS = ("sdpa", *backends.KERNELS)
METHODS = {
    "ours": kernels.flash_attention,
    **{name: partial(_torch_attention, name) for name in _TORCHS},
    "flex": backends.flex_attention,
    "plain": core.attention,
}
"""What :func:`table` compares: our kernel, torch's choice, each of its kernels, FlexAttention, plain."""


def _inputs(shape, dtype, device, seed):
    """Queries, keys, values and an output's gradient."""
    draw = torch.Generator(device).manual_seed(seed)
    return [
        torch.randn(shape, generator=draw, device=device).to(dtype)
        for _ in range(4)
    ]


def _require_near(name, got, wanted):
    """Refuse to time a wrong result; whether it is as near as it should be, tests say."""
    fine = 1e-3 if wanted.dtype in (torch.float32, torch.float64) else 0.05
    off = float((got.float() - wanted.float()).abs().max())
    if not off <= fine * float(wanted.float().abs().max()):
        raise AttnError(
            f"{name} is off by {off:.3g} from torch's attention: not worth timing"
        )


def _or_reason(call, *arguments):
    """``(result, None)``, or ``(None, why there is none)``: one method's failure does not end the others."""
    try:
        return call(*arguments), None
    except AttnError as refusal:
        return None, str(refusal)
    except Exception as failure:
        if isinstance(failure, torch.OutOfMemoryError):
            return None, "out of memory"
        traceback.print_exc()  # its text may hold paths, which have no place in a record
        return None, f"failed with {type(failure).__name__}"


def _times(call, inputs, direction, device, repeats):
    if direction == "forward":
        with torch.no_grad():
            return measure(call, inputs[:3], device=device, repeats=repeats)

    def forward(query, key, value, grad):
        arrays = [a.requires_grad_() for a in (query, key, value)]
        return call(*arrays), arrays, grad

    backward = partial(torch.autograd.grad, retain_graph=True)
    return measure(
        backward, inputs, device=device, repeats=repeats, prepare=forward
    )


# --- clocks ----------------------------------------------------------------------------------------------


def _clock(device):
    """What the times are, and the function that reads them."""
    if device.type == "cuda":
        return "device events", _cuda_seconds
    if device.type == "cpu":
        return "time.process_time, one thread", _cpu_seconds
    return "time.perf_counter, with a wait", _wall_seconds


def _cuda_seconds(warm_up, calls, device):
    """Times between two events in the device's queue around each call."""
    for call in warm_up:
        call()
    torch.cuda.synchronize(device)
    pairs = []
    for call in calls:
        # While the device sleeps, Python prepares the call: the device never waits for Python.
        torch.cuda._sleep(HEAD_START)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize(device)  # without it there is nothing to read yet
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]


def _wall_seconds(warm_up, calls, device):
    """Wall time of each call, with a wait for the device before it starts and until it is done."""
    wait = getattr(torch, device.type).synchronize
    for call in warm_up:
        call()
    each = []
    for call in calls:
        wait()
        start = time.perf_counter()
        call()
        wait()
        each.append(time.perf_counter() - start)
    return each


def _cpu_seconds(warm_up, calls, device):
    """CPU time of this process, torch on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for call in warm_up:
            call()
        each = []
        for call in calls:
            start = time.process_time()
            call()
            each.append(time.process_time() - start)
        return each
    finally:
        torch.set_num_threads(threads)


def _cache_bytes(device, caches=Path("/sys/devices/system/cpu/cpu0/cache")):
    """The size of the largest cache that a call may find its inputs in.

    A GPU's is its L2. A CPU's is its last, which Linux tells; torch knows the L2 only, and that stands in
    where nothing better is known.
    """
    sizes = [machine(device).get("l2_bytes") or 0]
    if torch.device(device).type == "cpu":
        # "1024K"; a folder of cores without a cache has no such file
        sizes += [
            int(size.read_text("ascii").strip().removesuffix("K")) * 1024
            for size in caches.glob("index*/size")
        ]
    return max(sizes)


def _copies(inputs, least_bytes, most):
    """Enough copies of the inputs to fill `least_bytes`; no more than `most`, one for each call."""
    size = sum(a.numel() * a.element_size() for a in inputs)
    n = min(most, -(-least_bytes // max(1, size)))
    return [[a.detach().clone() for a in inputs] for _ in range(max(1, n))]


# --- what stands beside a number -------------------------------------------------------------------------


def _dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def _commit():
    """The commit of the source; "unknown" where git cannot say."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head, changed = (
            subprocess.run(
                [*git, *words], capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ("rev-parse", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no", "."),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _forget_high_water():
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        raise AttnError(
            "memory of a CPU can be measured on Linux only"
        ) from None


def _resident(field):
    for line in (
        Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    ):
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AttnError(f"this system does not tell {field}")


__all__ = [
    "Seconds",
    "attention_flops",
    "machine",
    "measure",
    "measured_peak",
    "memory_peak",
    "published_peak",
    "rate",
    "record",
    "rounded",
    "table",
    "table_rows",
    "write_json",
]

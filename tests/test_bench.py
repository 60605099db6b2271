"""The clock waits, the rate is possible, the record is complete; and the script for a GPU, without one."""

import datetime
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import record_gpu
import torch
from test_package import BLOCKER, python

from attnlib import AttnError, bench, cost, kernels

ROOT = Path(__file__).parents[1]
try:
    import triton  # noqa: F401

    TRITON = True
except ImportError:
    TRITON = False
# In CI the tests run without it too, and fail.
needs_triton = pytest.mark.skipif(
    not TRITON and os.environ.get("CI") != "true", reason="no Triton: pip install triton (Linux)"
)


# --- clocks -----------------------------------------------------------------------------------------------


class Device:
    """A device that works through a queue while Python goes on, in its own seconds."""

    def __init__(self):
        self.now, self.queue, self.waits, self.slept = 0.0, [], 0, []

    def launch(self, seconds):
        self.queue.append(lambda: setattr(self, "now", self.now + seconds))

    def sleep(self, cycles):
        self.slept.append(cycles)
        self.launch(cycles / 2e9)

    def synchronize(self, device=None):
        self.waits += 1
        for work in self.queue:
            work()
        self.queue = []


class Event:
    device = None

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.time = None

    def record(self):
        self.device.queue.append(lambda: setattr(self, "time", self.device.now))

    def elapsed_time(self, other):
        if self.time is None or other.time is None:
            raise RuntimeError("the event has not happened: nobody waited")
        return (other.time - self.time) * 1e3


@pytest.fixture
def gpu(monkeypatch):
    """torch.cuda as far as the clock uses it."""
    device = Device()
    monkeypatch.setattr(Event, "device", device)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(torch.cuda, "_sleep", device.sleep)
    monkeypatch.setattr(bench, "_cache_bytes", lambda _: 0)
    monkeypatch.setattr(torch, "zeros", lambda *shape, **how: None)  # what overwrites the cache
    return device


def test_N35_a_device_that_returns_at_once_is_waited_for(gpu):
    work = iter([5.0, 5.0, 5.0, *(0.001 * n for n in range(1, 21))])  # the first calls compile

    def call(x):
        gpu.launch(next(work))

    start = time.perf_counter()
    call(None)
    assert time.perf_counter() - start < 0.1  # 5 s of work: a clock that does not wait sees nothing of it
    gpu.queue.clear()
    work = iter([5.0, 5.0, 5.0, *(0.001 * n for n in range(1, 21))])
    seconds = bench.measure(
        call, [torch.ones(4)], device="cuda"
    )  # fmt: skip
    assert seconds.each == pytest.approx([0.001 * n for n in range(1, 21)])
    assert (seconds.median, seconds.low, seconds.high) == pytest.approx((0.0105, 0.001, 0.02))
    assert seconds.clock == "device events" and gpu.waits == 2
    assert gpu.slept == [bench.HEAD_START] * 20 and bench.HEAD_START > 0  # Python is slow, not the device


def test_N35_on_other_devices_wall_time_has_a_wait_on_both_sides(monkeypatch):
    device, clock = Device(), iter(range(1000))
    log = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: log.append("wait"))
    monkeypatch.setattr(time, "perf_counter", lambda: log.append("clock") or next(clock))
    each = bench._wall_seconds([device.synchronize], [lambda: log.append("call")] * 2, torch.device("mps"))
    assert each == [1, 1] and device.waits == 1
    assert log == ["wait", "clock", "call", "wait", "clock"] * 2
    assert bench._clock(torch.device("mps")) == ("time.perf_counter, with a wait", bench._wall_seconds)


def test_on_a_cpu_the_process_alone_is_timed_on_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    seen = []

    def call(x):
        seen.append(torch.get_num_threads())
        time.sleep(0.01)  # other programs' time

    seconds = bench.measure(call, [torch.ones(4)], device="cpu", repeats=20, warm_up=1)
    assert torch.get_num_threads() == 2 and set(seen) == {1} and len(seen) == 21
    torch.set_num_threads(threads)
    assert len(seconds.each) == 20 and 0 <= seconds.low <= seconds.median <= seconds.high
    assert seconds.median < 0.008 and seconds.clock == "time.process_time, one thread"


def test_inputs_are_taken_in_turn_until_they_exceed_the_cache(monkeypatch):
    monkeypatch.setattr(bench, "_cache_bytes", lambda _: 10_000)
    for size, copies in (
        (1000, 5),
        (2500, 2),
        (2501, 2),
        (5000, 1),
        (10**5, 1),
        (1, 23),
        (217, 23),
        (400, 13),
    ):
        seen = []
        given = torch.ones(size)  # 4 bytes each, the copies hold 20 000
        bench.measure(lambda x, seen=seen: seen.append(x), [given], device="cpu")
        places = [x.data_ptr() for x in seen]
        assert len(set(places)) == copies and places == (places[:copies] * 23)[:23]
        assert given.data_ptr() not in places and all(x.equal(given) for x in seen)


def test_the_cache_to_exceed_is_a_cpus_last(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "machine", lambda _: {"l2_bytes": 2**20})
    assert bench._cache_bytes("cpu", tmp_path) == 2**20  # a system that tells nothing
    for index, size in enumerate(("32K", "32K", "1024K", "32768K")):  # as Linux has it: L1 twice, L2, L3
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert bench._cache_bytes("cpu", tmp_path) == 32 * 2**20
    assert bench._cache_bytes("cuda", tmp_path) == 2**20


def test_what_is_prepared_is_not_timed_and_done_once_per_copy(monkeypatch):
    monkeypatch.setattr(bench, "_cache_bytes", lambda _: 2000)
    made = []

    def prepare(x):
        made.append(sum(i for i in range(100_000)))  # some milliseconds
        return x, 7

    seconds = bench.measure(lambda x, n: x + n, [torch.ones(500)], device="cpu", prepare=prepare)
    assert len(made) == 2 and seconds.median < 0.001


@pytest.mark.parametrize("how", [{"repeats": 19}, {"repeats": 0}, {"warm_up": 0}, {"repeats": 20.5}], ids=str)
def test_too_few_calls_are_refused(how):
    with pytest.raises(AttnError, match=next(iter(how))):
        bench.measure(torch.sum, [torch.ones(4)], device="cpu", **how)


# --- rates ------------------------------------------------------------------------------------------------


def test_N36_operations_by_the_fields_formula():
    q, k = torch.empty(1, 1, 1024, 64), torch.empty(3, 2, 10, 64)
    assert bench.attention_flops(q, q, q) == 4 * 1024 * 1024 * 64 == 268_435_456
    assert bench.attention_flops(q, q, q, is_causal=True) == 134_217_728
    assert bench.attention_flops(q, q, q, direction="backward") == 671_088_640
    grouped = torch.empty(3, 8, 7, 64)
    assert bench.attention_flops(grouped, k, k[..., :5]) == 3 * 8 * cost.flops(7, 10, 64, 5)


def test_N36_a_rate_above_the_peak_is_refused():
    assert bench.rate(1.0, 5e12, peak=5e12) == 5e12 and bench.rate(0.5, 1e12) == 2e12
    with pytest.raises(
        AttnError, match="1.2e.04 TFLOP/s, but this machine does at most 989: the clock or the"
    ):
        bench.rate(1.0, 12e15, peak=989e12)
    for seconds, flops in ((0.0, 1), (-1, 1), (math.nan, 1), (math.inf, 1), (1, 0), (1, math.nan)):
        with pytest.raises(AttnError, match="wanted a positive number"):
            bench.rate(seconds, flops)
    with pytest.raises(AttnError):
        bench.rate(1.0, 1e12, peak=math.nan)


@pytest.mark.parametrize("name, tflops", [
    ("Tesla T4", 65), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA A100-PCIE-40GB", 312), ("NVIDIA H200", 989),
    ("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756), ("NVIDIA H100 NVL", 835),
    ("NVIDIA H200 NVL", 835), ("NVIDIA T400", None), ("NVIDIA A10", None), ("AMD EPYC", None),
])  # fmt: skip
def test_published_peaks_by_the_devices_name(name, tflops):
    for dtype in (torch.bfloat16, torch.float16, "bfloat16"):
        assert bench.published_peak(name, dtype) == (None if tflops is None else tflops * 1e12)
    assert bench.published_peak(name, torch.int8) is None
    if tflops is not None:
        assert bench.published_peak(name, torch.float32) < tflops * 1e12


def test_the_measured_peak_is_that_of_this_machines_products(monkeypatch):
    bench.measured_peak.cache_clear()
    monkeypatch.setattr(bench, "_cpu_seconds", lambda warm, calls, device: [2.0] * len(calls))
    assert bench.measured_peak(torch.float32) == 2 * 2048**3 / 2
    bench.measured_peak.cache_clear()


# --- memory -----------------------------------------------------------------------------------------------


def test_memory_on_a_cpu_in_a_fresh_process():
    code = """
import torch
from attnlib import bench
work = lambda: torch.ones(2**24) + 1  # two arrays of 64 MiB, one of which is the result
work()
print(bench.memory_peak(work, device="cpu") / 2**26)
"""
    assert 1.8 < float(python(code, MALLOC_TRIM_THRESHOLD_="0")) < 2.3


def test_memory_on_a_gpu_is_the_growth_of_torchs_own_count(monkeypatch):
    held = {"now": 100, "peak": 900}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: held["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: held["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: held.update(peak=held["now"]))
    assert bench.memory_peak(lambda: held.update(peak=350), device="cuda") == 250
    with pytest.raises(AttnError, match="memory cannot be measured on mps"):
        bench.memory_peak(int, device="mps")


# --- the table --------------------------------------------------------------------------------------------


@pytest.fixture
def slow_peak(monkeypatch):
    monkeypatch.setattr(bench, "measured_peak", lambda dtype, device: 1e15)


def test_the_table_puts_every_method_beside_torchs_own(slow_peak):
    rows = bench.table(32, heads=2, width=16, is_causal=True, device="cpu", plain_limit=10**9)
    assert [(row["method"], row["direction"]) for row in rows] == [
        (method, direction)
        for method in ("sdpa", "ours", "flash", "efficient", "cudnn", "math", "flex", "plain")
        for direction in ("forward", "backward")
    ]
    by = {(row["method"], row["direction"]): row for row in rows}
    for row in rows:
        assert (row["tokens"], row["heads"], row["width"], row["batch"], row["causal"]) == (
            32,
            2,
            16,
            1,
            True,
        )
        if "reason" in row:
            assert "seconds" not in row
            continue
        torchs = by["sdpa", row["direction"]]
        assert row["low"] <= row["seconds"] <= row["high"] and row["repeats"] == 20
        assert row["ratio"] == row["seconds"] / torchs["seconds"]
        work = 4 * 2 * 32 * 32 * 16 / 2 * (1 if row["direction"] == "forward" else 2.5)
        assert row["tflops"] == pytest.approx(work / row["seconds"] / 1e12)
    assert by["sdpa", "forward"]["ran"] == "flash"
    only_cuda = "torch has it for cuda only, and these tensors are on cpu"
    assert by["cudnn", "forward"]["reason"] == by["efficient", "backward"]["reason"] == only_cuda
    assert "no gradients on cpu" in by["flex", "backward"]["reason"] and "seconds" in by["flex", "forward"]
    assert ("seconds" in by["ours", "backward"]) == TRITON


def test_the_table_leaves_out_what_does_not_fit_and_says_so(slow_peak, monkeypatch):
    def full(*arrays, is_causal):
        raise torch.OutOfMemoryError("/a/path: out of memory")

    def broken(*arrays, is_causal):
        raise RuntimeError("/a/path: broken")

    monkeypatch.setitem(bench.METHODS, "flex", full)
    monkeypatch.setitem(bench.METHODS, "ours", broken)
    methods = ("plain", "flex", "ours", "flash")
    rows = bench.table(
        64, device="cpu", plain_limit=6 * 4 * 64 * 64 - 1, methods=methods, directions=["forward"]
    )
    assert [row["method"] for row in rows] == ["sdpa", *methods]
    reasons = [row.get("reason") for row in rows]
    assert reasons[2:4] == ["out of memory", "failed with RuntimeError"] and "GiB" in reasons[1]
    assert "seconds" in rows[0] and "seconds" in rows[-1]
    rows = bench.table(
        64, device="cpu", plain_limit=6 * 4 * 64 * 64, methods=["plain"], directions=["forward"]
    )
    assert "seconds" in rows[1]


def test_N36_the_table_refuses_wrong_results_and_impossible_rates(monkeypatch):
    monkeypatch.setattr(bench, "measured_peak", lambda dtype, device: 1.0)
    with pytest.raises(AttnError, match="the count of operations is wrong"):
        bench.table(32, device="cpu", methods=[])
    monkeypatch.setattr(bench, "measured_peak", lambda dtype, device: 1e15)
    right = bench.METHODS["plain"]
    for wrong in (1.01, math.nan):
        monkeypatch.setitem(bench.METHODS, "plain", lambda *qkv, x=wrong, **how: x * right(*qkv, **how))
        with pytest.raises(AttnError, match="plain is off by"):
            bench.table(32, device="cpu", methods=["plain"])
    with pytest.raises(AttnError, match="no method called fast, wanted some of ours, sdpa"):
        bench.table(32, device="cpu", methods=["fast"])


# --- the record -------------------------------------------------------------------------------------------


def test_a_record_says_where_it_comes_from(tmp_path):
    result = bench.record("python tools/x.py", "cpu", rows=[{"seconds": 0.123456789}], settings={"n": 123456})
    file = tmp_path / "deep" / "x.json"
    bench.write_json(file, result)
    text = file.read_text(encoding="utf-8")
    kept = json.loads(text)
    assert text == json.dumps(kept, indent=1, sort_keys=True) + "\n"
    assert kept["rows"] == [{"seconds": 0.1235}] and kept["settings"] == {"n": 123456}
    assert kept["command"] == "python tools/x.py" and kept["versions"]["torch"] == torch.__version__
    assert kept["date"] == datetime.date.today().isoformat() and kept["machine"]["kind"] == "cpu"
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    assert kept["commit"].rstrip("+") == (head or "unknown")


def test_outside_a_repository_the_commit_is_unknown(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert bench._commit() == "unknown"


def test_paths_hosts_and_numbers_that_are_none_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(bench.platform, "node", lambda: "annas-laptop")
    secrets = {"paths": str(tmp_path / "x"), "home": f"{Path.home()}/x", "here": str(Path.cwd()),
               "host": "on annas-laptop"}  # fmt: skip
    for secret in secrets.values():
        with pytest.raises(AttnError, match="of this"):
            bench.write_json(tmp_path / "x.json", {"rows": [secret]})
    for number in (math.nan, math.inf):
        with pytest.raises(AttnError, match="not a result to keep"):
            bench.write_json(tmp_path / "x.json", {"rows": [number]})
    assert not (tmp_path / "x.json").exists()


def test_N37_without_torch_one_clear_message_when_a_function_is_called():
    code = """
from attnlib import AttnError, bench
print(bench.rate(2.0, 8.0))
for call in (lambda: bench.measure(int, []), lambda: bench.memory_peak(int), bench.machine,
             lambda: bench.table(3), lambda: bench.record("x"), lambda: bench.measured_peak("float32")):
    try:
        call()
    except AttnError as refusal:
        print(refusal)
"""
    message = "attnlib.torch_path needs torch: pip install torch"
    assert python(BLOCKER + code, "-W", "error").splitlines() == ["4.0", *[message] * 6]


# --- tools/record_gpu.py ----------------------------------------------------------------------------------


def run_script(*words, **environment):
    command = [sys.executable, str(ROOT / "tools" / "record_gpu.py"), *words]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": ":".join([str(ROOT), *sys.path]),
        **environment,
    }
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=ROOT)


def test_without_a_gpu_one_clear_message(capsys):
    done = run_script(ATTNLIB_DEVICE="cpu")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.strip() == (
        "no GPU here (the device is cpu): nothing is recorded. With --quick --out DIR the same steps run at "
        "tiny sizes on the CPU"
    )
    with pytest.raises(SystemExit, match="2"):
        record_gpu.main(["--quick"])
    assert "--quick needs --out: what it finds is not for the book" in capsys.readouterr().err


@needs_triton
def test_the_same_steps_in_the_interpreter(tmp_path):
    gpu_folder = record_gpu.OUT
    before = sorted(gpu_folder.glob("*")) if gpu_folder.exists() else None
    done = run_script("--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    result = json.loads(file.read_text(encoding="utf-8"))
    assert (sorted(gpu_folder.glob("*")) if gpu_folder.exists() else None) == before
    assert result["settings"]["interpreter"] and result["machine"]["kind"] == "cpu"
    assert result["command"] == "python tools/record_gpu.py --quick"
    assert record_gpu.is_fine(result) and "failed" not in file.name
    assert {one["dtype"] for one in result["correctness"]["cases"]} == set(record_gpu.KINDS)
    assert result["far"]["fine"] and result["far"]["furthest"] > 2**12
    assert result["race"] == {"fine": True, "repeats": 3, "output": True, "lse": True, "gradients": True}
    assert {row["method"] for row in result["rows"]} == set(bench.METHODS)
    assert {row["method"] for row in result["memory"]} == set(bench.METHODS)
    assert {(row["causal"], row["direction"]) for row in result["rows"] if "seconds" in row} == {
        (causal, direction) for causal in (True, False) for direction in ("forward", "backward")
    }


def test_the_cases_cover_the_matrix():
    every = list(record_gpu.cases())
    seen = {(one["n_q"], one["n_k"], one["width"]) for one in every}
    assert seen >= {(*lengths, d) for lengths in record_gpu.LENGTHS for d in (16, 40, 64, 128)}
    small = every[:-1]
    for width in (16, 40, 64, 128):
        assert {one["dtype"] for one in small if one["width"] == width} == set(record_gpu.KINDS)
    for dtype in record_gpu.KINDS:
        there = {one["causal"] for one in small if one["dtype"] == dtype}
        assert there == {None, "top_left", "bottom_right"}
    assert any(one["heads"] != one["kv_heads"] for one in small)
    assert any(one["width"] != one["value_width"] for one in small)
    # Empty rows: more queries than keys, aligned at the bottom.
    assert any(one["causal"] == "bottom_right" and one["n_q"] > one["n_k"] for one in small)
    assert every[-1]["n_q"] == 8192


def changed(part, number):
    """The kernel, but with a small mistake in its output, its lse or a gradient."""
    right = kernels.flash_attention

    def wrong(query, key, value, **how):
        output, lse = right(query, key, value, **how)
        if part == "output":
            output = output + number
        elif part == "lse":
            lse = lse + number
        else:
            output = output + (number * value.sum() - (number * value.sum()).detach())
        return output, lse

    return wrong


@needs_triton
@pytest.mark.parametrize("part", ["output", "lse", "gradient"])
def test_a_mistake_in_the_kernel_is_found(part, monkeypatch):
    one = record_gpu.case(17, 9, 16, "float32", "bottom_right")
    assert record_gpu.check(one, torch.device("cpu"))["fine"]
    for number in (1e-3, math.nan):
        monkeypatch.setattr(kernels, "flash_attention", changed(part, number))
        assert not record_gpu.check(one, torch.device("cpu"))["fine"]
        monkeypatch.undo()


@needs_triton
def test_N29_offsets_and_races_are_found(monkeypatch):
    device = torch.device("cpu")
    assert record_gpu.far(device, True)["fine"] and record_gpu.race(device, True)["fine"]
    right, calls = kernels.flash_attention, []

    def wrong(query, key, value, **how):
        calls.append(1)
        output, lse = right(query, key, value, **how)
        return output + (len(calls) > 1), lse

    monkeypatch.setattr(kernels, "flash_attention", wrong)
    assert not record_gpu.far(device, True)["fine"]
    calls.clear()
    found = record_gpu.race(device, True)
    assert not found["output"] and not found["fine"] and found["lse"]


def test_N29_the_far_inputs_lie_beyond_32_bits():
    """Sizes only: what the GPU step allocates, without allocating it."""
    places = torch.empty(0, dtype=torch.bfloat16, device="meta")
    for shape, strides in (
        ((2, 1, 8192, 64), (64, 64, 2**31 // 8192 + 128, 1)),
        ((2, 1, 8192, 64), (2**31 + 8, 64, 64, 1)),
    ):
        array = record_gpu._spread(places.new_empty(shape), strides)
        assert array.stride() == strides
        assert sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) > 2**31


@needs_triton
def test_a_job_prints_what_it_checked_and_survives_a_failure(monkeypatch, capsys):
    every = [record_gpu.case(9, 9, 16, "float32"), record_gpu.case(9, 9, 16, "bfloat16", "top_left")]
    monkeypatch.setattr(record_gpu, "cases", lambda: every)
    monkeypatch.setattr(record_gpu, "WORKERS", 1)
    monkeypatch.setattr(kernels, "TILES", dict(kernels.TILES))
    monkeypatch.setattr(kernels, "SMALL_TILES", list(kernels.SMALL_TILES))
    record_gpu.job_check("0")
    assert [json.loads(line)["fine"] for line in capsys.readouterr().out.splitlines()] == [True, True]
    monkeypatch.setattr(kernels, "flash_attention", lambda *a, **h: 1 / 0)
    record_gpu.job_check("0")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["reason"] for one in found] == ["failed with ZeroDivisionError"] * 2
    assert not any(one["fine"] for one in found)
    kernels._launcher.cache_clear()


def test_jobs_are_gathered_and_slow_ones_stopped(capfd):
    def job(code):
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)

    first = "print('{\"a\": 1}', flush=True); "
    jobs = {("check", "0"): job(first), ("check", "1"): job(first + "import time; time.sleep(60)")}
    start = time.perf_counter()
    assert record_gpu.finish_jobs(jobs, 3) == [{"a": 1}] * 2
    assert time.perf_counter() - start < 20
    assert "stopped after 3 s: check 1" in capfd.readouterr().err


def test_missing_and_failed_checks_make_the_record_a_failed_one():
    good = {
        "correctness": {"wanted": 1, "cases": [{"fine": True}]},
        "far": {"fine": True},
        "race": {"fine": True},
    }
    assert record_gpu.is_fine(good)
    for change in (
        {"correctness": {"wanted": 2, "cases": [{"fine": True}]}},
        {"correctness": {"wanted": 1, "cases": [{"fine": False}]}},
        {"far": {"fine": False}},
        {"race": {"fine": False}},
        {"fault": "impossible"},
    ):
        assert not record_gpu.is_fine(good | change)


def test_what_does_not_fit_into_five_minutes_is_left_out_by_name(monkeypatch):
    asked = []

    def rows(tokens, *, methods, batch, heads, **shape):
        asked.append((tokens, batch, heads, tuple(methods)))
        yield from ({"method": method} for method in methods)

    monkeypatch.setattr(bench, "table_rows", rows)
    cpu = torch.device("cpu")
    late = list(record_gpu.timings(cpu, False, time.monotonic() - 1))
    assert len(late) == 24 * 16 and {row["reason"] for row in late} == {record_gpu.LATE} and asked == []
    monkeypatch.setattr(record_gpu, "SHARES", {"flex": -1.0})
    found = list(record_gpu.timings(cpu, False, time.monotonic() + 60))
    assert len(asked) == 24 and all("flex" not in methods for *_, methods in asked)
    assert [(t, b * t, h) for t, b, h, _ in asked[:6]] == [(t, 16384, 16) for t in record_gpu.SIZES]
    assert {h for _, _, h, _ in asked} == {16, 32}
    assert sum(row.get("reason") == record_gpu.LATE for row in found) == 24 * 2

"""How fast attention is on a GPU: what was recorded or published, beside what the chip allows."""

import json
from pathlib import Path

from attnlib import cost, records, show
from attnlib.errors import AttnError

from ._base import make
from ._limits import flag, one_of
from ._roofline import DIRECTIONS, GPUS

TOKENS = tuple(2**k for k in range(7, 18))
WIDTHS = (32, 64, 128, 256)
BLOCKS = (64, 128, 256)
DTYPES = ("bfloat16", "float16", "float32")
# What the recordings call a method: its name in the table, and the short one in the picture.
METHODS = {
    "ours": ("our kernel", "ours"),
    "sdpa": ("SDPA's default", "SDPA"),
    "flash": ("SDPA flash", "flash"),
    "efficient": ("SDPA efficient", "efficient"),
    "cudnn": ("SDPA cuDNN", "cuDNN"),
    "math": ("SDPA math", "math"),
    "flex": ("FlexAttention", "flex"),
    "plain": ("the plain formula", "plain"),
}
# Shah et al. 2024, the figure of forward speed at head width 128 with a causal mask, at 16k tokens.
PUBLISHED = {
    "name": "H100 SXM5, published",
    "chip": "NVIDIA H100 80GB HBM3",
    "note": "Source: Shah et al. 2024 (FlashAttention-3), forward in 16 bits on an H100 SXM5, batch × T = "
    "16,384, heads × d = 2,048. Published there, not measured for this book.",
    "tokens": 16384,
    "d": 128,
    "causal": True,
    "direction": "forward",
    "tflops": {
        "FlashAttention-2": (335, "Flash-2"),
        "Triton kernel": (378, "Triton"),
        "cuDNN": (539, "cuDNN"),
        "FlashAttention-3": (616, "Flash-3"),
    },
}
MOST_RECORDINGS = 7


def gpu_explorer(
    recordings=None,
    *,
    folder=None,
    tokens=16384,
    d=128,
    is_causal=True,
    direction="forward",
    dtype="bfloat16",
    block_q=128,
):
    """Rates of attention on a GPU beside the chip's peak and the bound of its memory.

    Parameters
    ----------
    recordings : sequence of dict, optional
        What ``tools/record_gpu.py`` wrote, at most 7; the JSON files of `folder` if not given.
    folder : path-like, optional
        attnlib's own records if not given. Need not exist: without a recording the published figures are
        shown, as such.
    tokens : int
        A power of two from 128 to 131072.
    d : {32, 64, 128, 256}
        Width of queries, keys and values.
    is_causal : bool
    direction : {"forward", "backward"}
    dtype : {"bfloat16", "float16", "float32"}
    block_q : {64, 128, 256}
        Queries per tile, and keys, that the bound is drawn for.

    Returns
    -------
    anywidget
        ``state``: the arguments, and the results in ``sources``. ``result``: ``kind`` ("published" or
        "recorded"), ``matching`` (whether they are for these settings), ``rates`` in TFLOP/s, ``ratios`` to
        the chosen method, ``bounds``, and ``leaders``, who is fastest at which lengths.

    Raises
    ------
    AttnError
        If an argument is out of range, a recording is not one of a GPU, was ended by a wrong result or is
        faster than its chip, or anywidget is not installed.

    Notes
    -----
    Rates count FLOPs as papers do (:func:`attnlib.cost.flops`); bounds hold for the FLOPs executed.
    """
    tokens, d = one_of("tokens", tokens, TOKENS), one_of("d", d, WIDTHS)
    direction = one_of("direction", direction, DIRECTIONS)
    dtype, block_q = (
        one_of("dtype", dtype, DTYPES),
        one_of("block_q", block_q, BLOCKS),
    )
    is_causal = flag("is_causal", is_causal)
    named = _read(folder) if recordings is None else _given(recordings)
    if len(named) > MOST_RECORDINGS:
        raise AttnError(
            f"{len(named)} recordings, wanted at most {MOST_RECORDINGS}"
        )
    sources = []
    for name, recording in named:
        source = _source(name, recording)
        if any(other["name"] == source["name"] for other in sources):
            source["name"] = f"{source['name']} ({len(sources) + 1})"
        sources.append(source)
    sources.append(_published())
    first = sources[0]
    tags = {tag: method for method, tag in first["methods"]}
    state = {
        "source": first["name"],
        "tokens": tokens,
        "d": d,
        "causal": is_causal,
        "direction": direction,
        "dtype": dtype,
        "block": block_q,
        "baseline": tags.get("SDPA", first["methods"][0][0]),
        "recorded": len(sources) - 1,
        "sources": sources,
    }
    return make("gpu_explorer", state, _still(state, first))


# --- results ---------------------------------------------------------------------------------------------


def _read(folder):
    """The recordings of a folder with the names of their files."""
    found = []
    for path in sorted(Path(folder or records.FOLDER / "gpu").glob("*.json")):
        try:
            found.append(
                (path.name, json.loads(path.read_text(encoding="utf-8")))
            )
        except ValueError as fault:
            raise AttnError(f"{path.name} is not JSON: {fault}") from None
    return found


def _given(recordings):
    return [
        (f"recording {n}", one) for n, one in enumerate(recordings, start=1)
    ]


def _chip(name):
    """Peaks in TFLOP/s and bandwidth in GB/s, None where a chip of this name is not known for sure."""
    # Imported late: the other widgets need nothing of torch's side of the library.
    from attnlib import bench

    peaks = {dtype: bench.published_peak(name, dtype) for dtype in DTYPES}
    kinds = {
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA H200": "H200",
        "Tesla T4": "T4",
    }
    bandwidth = GPUS[kinds[name]][1] / 1e9 if name in kinds else None
    return {
        "peak": {
            dtype: peak and round(peak / 1e12, 6)
            for dtype, peak in peaks.items()
        },
        "bandwidth": bandwidth and round(bandwidth, 6),
    }


def _published():
    given = PUBLISHED
    setting = {name: given[name] for name in ("d", "causal", "direction")}
    return {
        "name": given["name"],
        "kind": "published",
        "note": given["note"],
        "chip": _chip(given["chip"]),
        "methods": [
            [method, tag] for method, (_, tag) in given["tflops"].items()
        ],
        "series": [
            {
                "method": method,
                "dtype": "16-bit",
                **setting,
                "points": [[given["tokens"], rate, rate, rate]],
            }
            for method, (rate, _) in given["tflops"].items()
        ],
    }


def _source(name, recording):
    """A recording as the browser wants it; refused if it is not to be believed."""
    try:
        machine, date, rows = (
            recording[key] for key in ("machine", "date", "rows")
        )
        if machine["kind"] != "cuda" or recording.get("settings", {}).get(
            "interpreter"
        ):
            raise AttnError(f"{name} was not recorded on a GPU")
        if "fault" in recording:
            raise AttnError(
                f"{name} was ended by a fault: {recording['fault']}"
            )
        chip = _chip(machine["name"])
        versions = recording.get("versions", {})
        parts = [
            f"{word} {versions[word.lower()]}"
            for word in ("torch", "Triton", "CUDA")
            if versions.get(word.lower())
        ]
        made = ", ".join(
            [str(date), *parts, f"commit {str(recording['commit'])[:8]}"]
        )
        series, used = {}, []
        for row in rows:
            if row["method"] not in METHODS:
                raise AttnError(
                    f"{name} has an unknown method, {row['method']!r}"
                )
            key = tuple(
                row[part]
                for part in (
                    "method",
                    "dtype",
                    "width",
                    "causal",
                    "direction",
                )
            )
            if row["method"] not in used:
                used.append(row["method"])
            series.setdefault(key, []).append(
                _point(name, row, chip["peak"].get(row["dtype"]))
            )
        source = {
            "name": f"{machine['name'][:40]}, recorded",
            "kind": "recorded",
            "note": f"Recorded {made}, by {recording['command']}. Medians; the strokes go from the slowest "
            f"call to the fastest."[:200],
            "chip": chip,
            "methods": [
                list(names)
                for method, names in METHODS.items()
                if method in used
            ],
            "series": [
                {
                    "method": METHODS[method][0],
                    "dtype": dtype,
                    "d": width,
                    "causal": causal,
                    "direction": direction,
                    "points": sorted(points),
                }
                for (
                    method,
                    dtype,
                    width,
                    causal,
                    direction,
                ), points in series.items()
            ],
        }
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as fault:
        raise AttnError(
            f"{name} is not a recording of tools/record_gpu.py: {type(fault).__name__} {fault}"
        ) from None
    if not used:
        raise AttnError(f"{name} has no rows")
    return source


def _point(name, row, peak):
    """Tokens and TFLOP/s: median, slowest, fastest; or tokens and why there is none."""
    if "reason" in row:
        return [row["tokens"], str(row["reason"])[:120]]
    rates = [
        row["tflops"],
        row["tflops"] * row["seconds"] / row["high"],
        row["tflops"] * row["seconds"] / row["low"],
    ]
    if not all(0 < rate < 1e6 for rate in rates):
        raise AttnError(
            f"{name}: {row['tflops']} TFLOP/s of {row['method']} is no rate"
        )
    if peak and row["tflops"] > peak:
        raise AttnError(
            f"{name}: {row['tflops']} TFLOP/s of {row['method']} is above its chip's {peak}"
        )
    return [row["tokens"], *(float(f"{rate:.4g}") for rate in rates)]


# --- where no script runs --------------------------------------------------------------------------------


def _bound(state, chip, block):
    """TFLOP/s by the papers' count if every tile of `block` queries comes from the memory."""
    n, d = state["tokens"], state["d"]
    how = {"direction": state["direction"], "is_causal": state["causal"]}
    tiles = dict.fromkeys(("block_q", "block_k"), state["block"])
    flops = cost.executed_flops("flash2", n, n, d, **tiles, **how)
    moved = cost.traffic(
        "flash2", n, n, d, **dict.fromkeys(tiles, block), **how
    )
    size = 4 if state["dtype"] == "float32" else 2
    limit = cost.roofline(
        flops,
        size * moved.total,
        peak=chip["peak"][state["dtype"]] * 1e12,
        bandwidth=chip["bandwidth"] * 1e9,
    )
    return cost.flops(n, n, d, **how) / limit.seconds / 1e12


def _still(state, source):
    """The table of the first settings."""
    published = source["kind"] == "published"
    if published:
        setting = PUBLISHED
        what = "Published, not measured for this book"
    else:
        setting, what = state, "Recorded"
    rates = {method: None for method, _ in source["methods"]}
    for one in source["series"]:
        fits = all(
            one[key] == setting[key] for key in ("d", "causal", "direction")
        ) and (published or one["dtype"] == state["dtype"])
        for tokens, rate, *spread in one["points"]:
            if fits and tokens == setting["tokens"] and spread:
                rates[one["method"]] = rate
    chip, base = source["chip"], rates.get(state["baseline"])
    peak = chip["peak"][state["dtype"]]
    limits = {}
    if peak and chip["bandwidth"]:
        limits = {
            f"bound: tiles of {state['block']} from memory": _bound(
                state, chip, state["block"]
            ),
            "bound: each number loaded once": _bound(
                state, chip, state["tokens"]
            ),
        }
    if peak:
        limits["the chip's peak"] = peak
    every = rates | limits
    return show.table(
        {
            "TFLOP/s": [_or_dash(x, "{:,.0f}") for x in every.values()],
            f"times {state['baseline']}": [
                _or_dash(x and base and x / base, "{:.2f}")
                for x in every.values()
            ],
            "of the peak": [
                _or_dash(x and peak and 100 * x / peak, "{:.0f} %")
                for x in every.values()
            ],
        },
        rows=list(every),
        caption=f"{what}: {source['name']}, T = {setting['tokens']:,}, d = {setting['d']}, "
        f"{'causal' if setting['causal'] else 'not causal'}, {setting['direction']}. {source['note']}",
    )


def _or_dash(x, form):
    return form.format(x) if x else "–"

"""The roofline: what attention computes and moves, and which limit of a chip holds it back."""

from attnlib import cost, show
from attnlib.errors import AttnError

from ._base import make
from ._limits import flag, number, one_of, whole

LENGTHS = tuple(
    sorted([2**k for k in range(7, 18)] + [3 * 2**k for k in range(6, 16)])
)
# Peak FLOP/s of dense 16-bit products, and bytes/s of the memory, as the makers' data sheets give them.
GPUS = {
    # NVIDIA A100 80GB SXM data sheet, 2021
    "A100": (312e12, 2.039e12),
    # NVIDIA H100 SXM data sheet, 2023: half of the figure with sparsity
    "H100": (989e12, 3.35e12),
    # NVIDIA H200 SXM data sheet, 2024: likewise
    "H200": (989e12, 4.8e12),
    # NVIDIA T4 data sheet, 2019: float16, no bfloat16
    "T4": (65e12, 0.32e12),
}
OWN = "your own"
DIRECTIONS = ("forward", "backward")


def roofline(
    n=4096,
    *,
    d=128,
    heads=1,
    bytes_per_entry=2,
    is_causal=False,
    direction="forward",
    block_q=128,
    gpu="H100",
    peak=None,
    bandwidth=None,
):
    """Plain attention and attention in tiles under the roofline of a chip.

    Parameters
    ----------
    n : int
        Tokens: a power of two from 128 to 131072, or three quarters of one.
    d : {32, 64, 128, 256}
        Width of queries, keys and values.
    heads : int
        1 to 128.
    bytes_per_entry : {2, 4}
    is_causal : bool
    direction : {"forward", "backward"}
    block_q : {64, 128, 256}
        Queries per tile, and keys.
    gpu : {"A100", "H100", "H200", "T4"}
        The chip at first; not looked at if `peak` is given.
    peak, bandwidth : float, optional
        FLOP/s and bytes/s of a machine of your own, both or neither.

    Returns
    -------
    anywidget
        ``state``: the arguments. ``result``: for ``plain`` and ``tiles`` the flops, bytes, memory,
        intensity, ridge, seconds (arithmetic, transfer, and the larger one) and limit.

    Raises
    ------
    AttnError
        If an argument is out of range, or anywidget is not installed.

    Notes
    -----
    The counts of :mod:`attnlib.cost`; FLOPs are those executed, hidden scores in visited tiles included.
    """
    n = one_of("n", n, LENGTHS)
    d = one_of("d", d, (32, 64, 128, 256))
    bytes_per_entry = one_of("bytes_per_entry", bytes_per_entry, (2, 4))
    direction = one_of("direction", direction, DIRECTIONS)
    block_q = one_of("block_q", block_q, (64, 128, 256))
    gpu = one_of("gpu", gpu, tuple(GPUS))
    heads = whole("heads", heads, 1, 128)
    is_causal = flag("is_causal", is_causal)
    if (peak is None) != (bandwidth is None):
        raise AttnError("peak and bandwidth belong together: give both")
    own = (1e11, 2e10) if peak is None else (peak, bandwidth)
    own = (
        number("peak in FLOP/s", own[0], 1e9, 1e18),
        number("bandwidth in bytes/s", own[1], 1e6, 1e15),
    )
    state = {
        "n": n,
        "d": d,
        "heads": heads,
        "bytes": bytes_per_entry,
        "causal": is_causal,
        "direction": direction,
        "block": block_q,
        "chip": gpu if peak is None else OWN,
        "own": _speeds(*own),
        "chips": [
            {"name": name, **_speeds(*speeds)} for name, speeds in GPUS.items()
        ],
    }
    machine = GPUS[gpu] if peak is None else own
    return make("roofline", state, _still(state, machine))


def _speeds(peak, bandwidth):
    """In TFLOP/s and GB/s, as the browser shows them."""
    return {
        "peak": round(peak / 1e12, 6),
        "bandwidth": round(bandwidth / 1e9, 6),
    }


def _still(state, machine):
    """The same table, for where no script runs."""
    sizes = {"direction": state["direction"], "is_causal": state["causal"]}
    n, d, heads = (state[name] for name in ("n", "d", "heads"))
    columns = {}
    for name, algorithm in (("plain", "plain"), ("tiles", "flash2")):
        tiles = dict.fromkeys(("block_q", "block_k"), state["block"])
        given = (algorithm, n, n, d)
        flops = heads * cost.executed_flops(*given, **tiles, **sizes)
        traffic = cost.traffic(*given, **tiles, **sizes).total
        memory = cost.extra_memory(
            algorithm, n, n, direction=sizes["direction"]
        )
        moved, held = (heads * state["bytes"] * x for x in (traffic, memory))
        limit = cost.roofline(
            flops, moved, peak=machine[0], bandwidth=machine[1]
        )
        columns[name] = [
            f"{flops / 1e9:,.2f}",
            f"{moved / 2**20:,.1f}",
            f"{limit.intensity:,.0f}",
            limit.limited_by,
            f"{limit.seconds * 1e6:,.1f}",
            f"{held / 2**20:,.2f}",
        ]
    return show.table(
        columns,
        rows=[
            "GFLOP done",
            "MiB moved",
            "FLOP per byte",
            "the limit",
            "least time, µs",
            "MiB beside in- and outputs",
        ],
        caption=f"{heads} × {n:,} tokens, d = {d}, {state['bytes']} bytes an entry, tiles of "
        f"{state['block']} queries, {state['direction']}, {state['chip']}: the ridge stands at "
        f"{limit.ridge:,.0f} FLOP per byte.",
    )

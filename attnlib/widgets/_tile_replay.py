"""The tile replay: FlashAttention one tile at a time."""

import numpy as np

from attnlib import core, cost, examples, show
from attnlib.errors import AttnError, ShapeError

from ._base import make, rows
from ._limits import flag, one_of, whole

MOST = 16
MEMORIES = tuple(2**n for n in range(3, 14))
ALGORITHMS = ("flash2", "flash1")


def tile_replay(
    n=8,
    *,
    block_q=2,
    block_k=2,
    d=4,
    is_causal=True,
    algorithm="flash2",
    fast_memory=64,
    example=None,
    step=0,
):
    """The tiles of one head, step by step: which are loaded, what they move, and the state of each row.

    Parameters
    ----------
    n : int
        Number of tokens, 2 to 16; 3 with an `example`.
    block_q, block_k : int
        Queries and keys of a tile, 1 to `n`.
    d : int
        Width of queries, keys and values, 1 to 64. It enters the counts only.
    is_causal : bool
    algorithm : {"flash2", "flash1"}
        Queries or keys in the outer loop.
    fast_memory : int
        Entries that the fast memory holds, a power of two from 8 to 8192.
    example : attnlib.examples.Example, optional
        Three tokens whose head 1 is replayed; without it, made-up scores are.
    step : int
        How many tiles have been visited at first.

    Returns
    -------
    anywidget
        ``state``: the arguments and the speed. ``result``: ``soFar``, ``atTheEnd`` and ``plain`` (loads,
        stores, flops), ``tiles``, the current ``tile``, m, l, o and output of each row, and plain
        ``attention``.

    Raises
    ------
    AttnError
        If an argument is out of range, a tile does not fit, or anywidget is not installed.
    ShapeError
        If the example has not three tokens.
    """
    three = examples.three_tokens() if example is None else example
    if len(three.tokens) != 3:
        raise ShapeError(
            f"the example has {len(three.tokens)} tokens, wanted 3"
        )
    if example is not None:
        n = 3
    n = whole("n", n, 2, MOST)
    block_q = whole("block_q", block_q, 1, n)
    block_k = whole("block_k", block_k, 1, n)
    d, is_causal = whole("d", d, 1, 64), flag("is_causal", is_causal)
    algorithm = one_of("algorithm", algorithm, ALGORITHMS)
    fast_memory = one_of("fast_memory", fast_memory, MEMORIES)
    needed = cost.fast_memory(block_q, block_k, d)
    if needed > fast_memory:
        raise AttnError(
            f"a tile needs {needed} entries, fast_memory holds {fast_memory}: take smaller tiles"
        )
    tiles = cost.tiles(n, n, block_q, block_k, is_causal=is_causal)
    step = whole("step", step, 0, tiles.visited)
    query, key, value = three.head(1)
    state = {
        "example": "made" if example is None else "three",
        "n": n,
        "d": d,
        "blockQ": block_q,
        "blockK": block_k,
        "causal": is_causal,
        "algorithm": algorithm,
        "memory": fast_memory,
        "step": step,
        "speed": 2,
        "worked": {
            "tokens": list(three.tokens),
            "scores": rows(core.attention_steps(query, key, value).scaled),
            "values": rows(value[:, :1]),
        },
    }
    return make("tile_replay", state, _still(state, tiles))


def made_scores(n):
    """Scaled scores (n, n) and values (n, 1) by a fixed rule, the same as in the browser."""
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    scores = (4 * i + 3 * j**2 + 5 * i * j) % 17 / 2 - 4
    return scores, (5 * j.T + 2) % 9 / 2 - 2


def _still(state, tiles):
    """What the replay ends with, for where no script runs."""
    n, d = state["n"], state["d"]
    plain = cost.traffic("plain", n, n, d)
    tiled = cost.traffic(
        state["algorithm"],
        n,
        n,
        d,
        block_q=state["blockQ"],
        block_k=state["blockK"],
        is_causal=state["causal"],
    )
    return show.table(
        {
            "plain attention": [*plain, plain.total, None, None, None],
            "in tiles": [
                *tiled,
                tiled.total,
                tiles.visited,
                tiles.masked,
                tiles.total - tiles.visited,
            ],
        },
        rows=[
            "entries loaded",
            "entries stored",
            "entries moved",
            "tiles visited",
            "of these with a mask",
            "tiles skipped",
        ],
        digits=0,
        caption=f"{n} tokens, d = {d}, tiles of {state['blockQ']} queries by {state['blockK']} keys, "
        f"{'causal' if state['causal'] else 'not causal'}: what moves between slow and fast memory.",
    )

"""What attention costs, by formula: FLOPs, traffic between slow and fast memory, memory held.

Everything is counted, nothing is timed. Traffic and memory are in entries (numbers); bytes are entries times
bytes per entry. :mod:`attnlib.counter` runs the algorithms and must arrive at the same integers.
"""

from typing import NamedTuple

from . import masks
from ._arrays import positive_number, whole_number
from .errors import AttnError
from .tiled import Visibility, blocks

ALGORITHMS = ("plain", "flash1", "flash2", "two_pass")
DIRECTIONS = ("forward", "backward")


class Traffic(NamedTuple):
    """Entries moved between the large slow memory and the small fast one, for one head.

    Attributes
    ----------
    loads, stores : int
        Into and out of the fast memory.
    """

    loads: int
    stores: int

    @property
    def total(self):
        """Loads and stores together."""
        return self.loads + self.stores


class Tiles(NamedTuple):
    """How many tiles there are, are visited, and need a mask."""

    total: int
    visited: int
    masked: int


class Limit(NamedTuple):
    """Which of two limits holds on a machine.

    Attributes
    ----------
    intensity : float
        FLOPs per byte of the work.
    ridge : float
        FLOPs per byte at which the machine's two limits meet.
    seconds : float
        The least time that both limits allow.
    limited_by : {"memory", "arithmetic"}
    """

    intensity: float
    ridge: float
    seconds: float
    limited_by: str


def flops(n_q, n_k, d_h, d_v=None, *, direction="forward", is_causal=False):
    """Multiplications and additions of one head, by the convention of the field.

    Parameters
    ----------
    n_q, n_k : int
        Numbers of queries and keys.
    d_h, d_v : int
        Widths of queries and values; `d_v` is `d_h` if not given.
    direction : {"forward", "backward"}
        Backward is five products of that size against two: 2.5 times the forward pass.
    is_causal : bool
        Half, as if exactly half the scores were visible.

    Returns
    -------
    int

    Raises
    ------
    AttnError
        An unknown `direction`; a size that is no whole number, or negative.

    Notes
    -----
    Counts the products only; softmax adds about 5 operations per score. An implementation that
    recomputes does more than this and gets no credit for it.
    Source: Dao 2023, section 4.1.

    Examples
    --------
    >>> flops(1024, 1024, 64), flops(1024, 1024, 64, is_causal=True)
    (268435456, 134217728)
    """
    _one_of(direction, DIRECTIONS, "direction")
    d_v = d_h if d_v is None else d_v
    n_q, n_k, d_h, d_v = _counts(n_q=n_q, n_k=n_k, d_h=d_h, d_v=d_v)
    forward = 2 * n_q * n_k * (d_h + d_v)
    whole = forward if direction == "forward" else 5 * forward // 2
    return whole // 2 if is_causal else whole


def tiles(n_q, n_k, block_q, block_k, *, is_causal=False, causal_align=None):
    """How many tiles the score matrix falls into, and how many a causal mask leaves.

    Parameters
    ----------
    n_q, n_k, block_q, block_k : int
    is_causal, causal_align
        As in :func:`attnlib.attention`.

    Returns
    -------
    Tiles
        Without `is_causal` all tiles are visited and none needs a mask.

    Raises
    ------
    AttnError
        A size that is no whole number, or negative.
    MaskError
        As :func:`attnlib.causal_mask`.

    Examples
    --------
    >>> tiles(8, 8, 2, 2, is_causal=True)
    Tiles(total=16, visited=10, masked=4)
    """
    n_q, n_k, block_q, block_k = _counts(
        n_q=n_q, n_k=n_k, block_q=block_q, block_k=block_k
    )
    visited = _visited(n_q, n_k, block_q, block_k, is_causal, causal_align)
    total = len(blocks(n_q, block_q)) * len(blocks(n_k, block_k))
    return Tiles(total, visited.tiles, visited.masked)


def traffic(
    algorithm,
    n_q,
    n_k,
    d_h,
    d_v=None,
    *,
    block_q=None,
    block_k=None,
    direction="forward",
    is_causal=False,
    causal_align=None,
):
    """Entries that one head moves between slow and fast memory, by formula.

    Parameters
    ----------
    algorithm : {"plain", "flash1", "flash2", "two_pass"}
        ``"plain"``: each product and the softmax read their input once and write their result.
        ``"flash1"``: keys in the outer loop, so that the rows' state travels once per tile.
        ``"flash2"``: queries in the outer loop. ``"two_pass"``: attnlib's own; backward, it computes each
        tile twice instead of sending dQ through the slow memory once per tile.
    n_q, n_k, d_h, d_v : int
        As in :func:`flops`.
    block_q, block_k : int
        Tile sizes; needed except for ``"plain"``.
    direction : {"forward", "backward"}
    is_causal, causal_align
        As in :func:`attnlib.attention`. Plain attention computes and stores hidden scores too.

    Returns
    -------
    Traffic

    Raises
    ------
    AttnError
        An unknown word, a missing block size, a size that is no whole number, or negative.

    Notes
    -----
    One entry per row for each of lse, m, ℓ and D. A causal mask moves nothing: it follows from the
    indices. Left out: the inputs' first arrival, caches that keep a tile for the next row of tiles, and
    everything that happens inside the fast memory.
    Source: Dao et al. 2022, algorithms 0, 1, 3 and 4; Dao 2023, algorithms 1 and 2.

    Examples
    --------
    >>> plain = traffic("plain", 4096, 4096, 128)
    >>> flash = traffic("flash2", 4096, 4096, 128, block_q=128, block_k=128)
    >>> plain.total * 2 / 2**20, round(plain.total / flash.total, 2)
    (132.0, 2.0)
    """
    _one_of(algorithm, ALGORITHMS, "algorithm")
    _one_of(direction, DIRECTIONS, "direction")
    d_v = d_h if d_v is None else d_v
    n_q, n_k, d_h, d_v = _counts(n_q=n_q, n_k=n_k, d_h=d_h, d_v=d_v)
    if algorithm == "plain":
        return _plain_traffic(n_q, n_k, d_h, d_v, direction)
    tile = _visited(n_q, n_k, block_q, block_k, is_causal, causal_align)
    width = d_h + d_v
    if direction == "forward":
        if algorithm == "flash1":
            return Traffic(
                tile.seen_cols * width + tile.rows * (width + 2),
                n_q * (d_v + 2) + tile.rows * (d_v + 2),
            )
        return Traffic(
            tile.seen_rows * d_h + tile.cols * width, n_q * (d_v + 1)
        )
    # dQ starts at 0 in the slow memory and is loaded and stored once a tile, except in two passes.
    start, stores = n_q * d_h, n_k * width
    loads = tile.seen_cols * width
    if algorithm == "flash1":
        return Traffic(
            loads + tile.rows * (2 * width + 2),
            start + stores + tile.rows * d_h,
        )
    delta = Traffic(2 * n_q * d_v, n_q)
    if algorithm == "flash2":
        return Traffic(
            delta.loads + loads + tile.rows * (d_h + width + 2),
            delta.stores + start + stores + tile.rows * d_h,
        )
    loads += tile.seen_rows * (width + 2) + tile.cols * width
    return Traffic(
        delta.loads + loads + tile.rows * (width + 2),
        delta.stores + n_q * d_h + stores,
    )


def executed_flops(
    algorithm,
    n_q,
    n_k,
    d_h,
    d_v=None,
    *,
    block_q=None,
    block_k=None,
    direction="forward",
    is_causal=False,
    causal_align=None,
):
    """Multiplications and additions of the products that one head really executes.

    Parameters
    ----------
    algorithm, n_q, n_k, d_h, d_v, block_q, block_k, direction, is_causal, causal_align
        As in :func:`traffic`.

    Returns
    -------
    int
        2 · rows · columns · width for each product of each visited tile: hidden scores inside a masked
        tile are computed too. Plain attention computes the whole matrix.

    Raises
    ------
    AttnError
        As :func:`traffic`.

    Notes
    -----
    Products a tile: forward 2; backward 4 for plain attention, which kept P; 5 for one pass, which
    computes S again; 7 for two passes, which compute S and dP twice.

    Examples
    --------
    >>> executed_flops("flash2", 8, 8, 4, block_q=2, block_k=2, is_causal=True)
    640
    """
    _one_of(algorithm, ALGORITHMS, "algorithm")
    _one_of(direction, DIRECTIONS, "direction")
    d_v = d_h if d_v is None else d_v
    n_q, n_k, d_h, d_v = _counts(n_q=n_q, n_k=n_k, d_h=d_h, d_v=d_v)
    if algorithm == "plain":
        area = n_q * n_k
    else:
        area = _visited(
            n_q, n_k, block_q, block_k, is_causal, causal_align
        ).area
    if direction == "forward":
        return 2 * area * (d_h + d_v)
    again = {"plain": 0, "flash1": 1, "flash2": 1, "two_pass": 2}[algorithm]
    grad_weights = 2 if algorithm == "two_pass" else 1
    # S again, dP, dV, dQ and dK.
    return 2 * area * (again * d_h + grad_weights * d_v + d_v + 2 * d_h)


def extra_memory(algorithm, n_q, n_k, *, direction="forward"):
    """Entries of slow memory that one head needs beside its inputs, outputs and gradients.

    Parameters
    ----------
    algorithm, direction
        As in :func:`traffic`.
    n_q, n_k : int

    Returns
    -------
    int
        Forward: S and P for plain attention; m and ℓ, or lse. Backward: what the forward pass kept, and
        dP and dS, or D.

    Raises
    ------
    AttnError
        An unknown word; a size that is no whole number, or negative.

    Examples
    --------
    >>> extra_memory("plain", 8192, 8192) // extra_memory("flash2", 8192, 8192)
    16384
    """
    _one_of(algorithm, ALGORITHMS, "algorithm")
    _one_of(direction, DIRECTIONS, "direction")
    n_q, n_k = _counts(n_q=n_q, n_k=n_k)
    if algorithm == "plain":
        return (2 if direction == "forward" else 3) * n_q * n_k
    per_row = {
        "flash1": {"forward": 2, "backward": 2},
        "flash2": {"forward": 1, "backward": 2},
        "two_pass": {"forward": 1, "backward": 2},
    }
    return per_row[algorithm][direction] * n_q


def fast_memory(block_q, block_k, d_h, d_v=None, *, direction="forward"):
    """Entries that a tile holds in fast memory at its fullest.

    Parameters
    ----------
    block_q, block_k, d_h, d_v : int
    direction : {"forward", "backward"}
        Backward means ``"flash2"``'s single pass.

    Returns
    -------
    int
        Forward: Q, K and V of the tile, its scores (the weights take their place), and o, m and ℓ of its
        rows. Backward: Q, K, V, dO, dQ, dK, dV, lse and D, and two tiles, P and dS.

    Raises
    ------
    AttnError
        An unknown `direction`; a size that is no whole number, or negative.

    Examples
    --------
    >>> fast_memory(128, 128, 128) * 2 / 2**10
    160.5
    """
    _one_of(direction, DIRECTIONS, "direction")
    d_v = d_h if d_v is None else d_v
    block_q, block_k, d_h, d_v = _counts(
        block_q=block_q, block_k=block_k, d_h=d_h, d_v=d_v
    )
    area, width = block_q * block_k, d_h + d_v
    if direction == "forward":
        return block_q * (width + 2) + block_k * width + area
    return block_q * (d_h + width + 2) + 2 * block_k * width + 2 * area


def roofline(work_flops, work_bytes, *, peak, bandwidth):
    """Which limit holds: arithmetic or memory.

    Parameters
    ----------
    work_flops, work_bytes : float
        What there is to do, and to move.
    peak : float
        FLOP/s of the machine.
    bandwidth : float
        Bytes/s of its slow memory.

    Returns
    -------
    Limit

    Raises
    ------
    AttnError
        A number that is not positive.

    Notes
    -----
    A bound, not a forecast: it supposes that arithmetic and transfers overlap completely and that
    nothing else takes time. Source: Williams et al. 2009.

    Examples
    --------
    >>> roofline(8.6e9, 132 * 2**20, peak=989e12, bandwidth=3.35e12).limited_by
    'memory'
    """
    work_flops = positive_number(work_flops, "work_flops")
    work_bytes = positive_number(work_bytes, "work_bytes")
    peak = positive_number(peak, "peak")
    bandwidth = positive_number(bandwidth, "bandwidth")
    arithmetic, memory = work_flops / peak, work_bytes / bandwidth
    return Limit(
        work_flops / work_bytes,
        peak / bandwidth,
        max(arithmetic, memory),
        "memory" if memory > arithmetic else "arithmetic",
    )


# --- tiles -----------------------------------------------------------------------------------------------


def tile_kinds(n_q, n_k, block_q, block_k, is_causal=False, causal_align=None):
    """``(rows, cols, kind)`` of every tile, row of tiles by row of tiles.

    Parameters
    ----------
    n_q, n_k, block_q, block_k, is_causal, causal_align
        As in :func:`tiles`.

    Returns
    -------
    list of (slice, slice, str)
        The kind is "whole", "masked" or "skipped".

    Raises
    ------
    MaskError, ShapeError
        As :func:`tiles`.
    """
    n_q, n_k, block_q, block_k = _counts(
        n_q=n_q, n_k=n_k, block_q=block_q, block_k=block_k
    )
    offset = None
    if is_causal:
        offset = masks.check_align(causal_align, n_q, n_k, "causal_align")
    sight = Visibility(None, offset)
    return [
        (rows, cols, sight.kind(rows, cols))
        for rows in blocks(n_q, block_q)
        for cols in blocks(n_k, block_k)
    ]


class _Visited(NamedTuple):
    """Sums over the visited tiles: how many, masked, rows, columns, entries; rows and columns met at all."""

    tiles: int
    masked: int
    rows: int
    cols: int
    area: int
    seen_rows: int
    seen_cols: int


def _visited(n_q, n_k, block_q, block_k, is_causal, causal_align):
    """Row of tiles by row of tiles, without listing every tile: a long text has millions."""
    n_q, n_k, block_q, block_k = _counts(
        n_q=n_q, n_k=n_k, block_q=block_q, block_k=block_k
    )
    offset = n_k
    if is_causal:
        offset = masks.check_align(causal_align, n_q, n_k, "causal_align")
    per_row = []
    for rows in blocks(n_q, block_q):
        # Some query of these rows sees `some` keys, every one of them sees `all_see`.
        some = min(max(rows.stop + offset, 0), n_k)
        all_see = min(max(rows.start + 1 + offset, 0), n_k)
        visited = -(-some // block_k)
        whole = visited if all_see == n_k else all_see // block_k
        per_row.append(
            (_size(rows), visited, whole, min(visited * block_k, n_k))
        )
    return _Visited(
        sum(visited for _, visited, _, _ in per_row),
        sum(visited - whole for _, visited, whole, _ in per_row),
        sum(size * visited for size, visited, _, _ in per_row),
        sum(cols for *_, cols in per_row),
        sum(size * cols for size, *_, cols in per_row),
        sum(size for size, visited, _, _ in per_row if visited),
        max((cols for *_, cols in per_row), default=0),
    )


def _plain_traffic(n_q, n_k, d_h, d_v, direction):
    matrix, width = n_q * n_k, d_h + d_v
    if direction == "forward":
        # S = QK^T is stored; softmax loads S and stores P; PV loads P.
        return Traffic(
            n_q * d_h + n_k * width + 2 * matrix, 2 * matrix + n_q * d_v
        )
    # dV loads P; dP is stored; dS loads P and dP and is stored; dQ and dK load dS.
    return Traffic(
        5 * matrix + 2 * n_q * d_v + n_k * d_v + n_k * d_h + n_q * d_h,
        2 * matrix + n_q * d_h + n_k * width,
    )


def _size(piece):
    return piece.stop - piece.start


def _counts(**numbers):
    """Sizes as Python's own ints, which never overflow; 0 tokens cost nothing, but a tile has one."""
    return (
        whole_number(number, name, least=int(name.startswith("block")))
        for name, number in numbers.items()
    )


def _one_of(word, words, name):
    if word not in words:
        raise AttnError(f"{name} is {word!r}, wanted one of {', '.join(words)}")


__all__ = [
    "Limit",
    "Tiles",
    "Traffic",
    "executed_flops",
    "extra_memory",
    "fast_memory",
    "flops",
    "roofline",
    "tile_kinds",
    "tiles",
    "traffic",
]

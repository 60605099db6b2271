"""A small fast memory that counts: each algorithm run against it must move what the formula says.

The programs compute one head in float64. They compute with nothing that they have not put into the fast
memory, and what comes out is attention itself: the counted algorithm is the real one.
"""

import math

import numpy as np

from . import core, masks, online
from .cost import Traffic, tile_kinds
from .errors import AttnError, ShapeError
from .tiled import causal_tile, row_delta, score_gradient


class FastMemory:
    """A fast memory of `capacity` entries that counts loads and stores, and refuses what does not fit.

    Parameters
    ----------
    capacity : int, optional
        Entries; without it everything fits, and the peak is still counted.

    Attributes
    ----------
    loads, stores : int
        Entries moved in and out so far.
    flops : int
        Multiplications and additions of the matrix products so far.
    held, peak : int
        Entries held now, and at the fullest moment.

    Raises
    ------
    AttnError
        From :meth:`load` and :meth:`keep`, if something does not fit; from ``memory[name]``, if nothing
        of that name is held.

    Examples
    --------
    >>> memory = FastMemory(4)
    >>> memory.load(x=np.ones(3))
    >>> memory.held, memory.traffic
    (3, Traffic(loads=3, stores=0))
    """

    def __init__(self, capacity=None):
        self.capacity = capacity
        self.loads = self.stores = self.flops = self.held = self.peak = 0
        self._arrays = {}

    def load(self, **arrays):
        """Copy arrays from the slow memory, each under its name."""
        self.keep(**arrays)
        self.loads += sum(self._arrays[name].size for name in arrays)

    def keep(self, **arrays):
        """Hold results that were computed here, in the place of what had their names."""
        for name, array in arrays.items():
            array = np.array(array, dtype=float)
            before = self._arrays[name].size if name in self._arrays else 0
            if (
                self.capacity is not None
                and self.held - before + array.size > self.capacity
            ):
                raise AttnError(
                    f"{name} takes {array.size} entries, but {self.held - before} of the {self.capacity} are "
                    f"taken: make the tiles smaller or the fast memory larger"
                )
            self._arrays[name] = array
            self.held += array.size - before
            self.peak = max(self.peak, self.held)

    def __getitem__(self, name):
        if name not in self._arrays:
            raise AttnError(
                f"{name} is not in the fast memory, only {', '.join(self._arrays) or 'nothing'}"
            )
        return self._arrays[name]

    def multiply(self, left, right):
        """The product of two matrices, or of rows, counted."""
        self.flops += 2 * left.size * right.shape[-1]
        return left @ right

    def store(self, name, target):
        """Copy what is held under `name` to `target`, a part of an array in the slow memory."""
        target[...] = self[name]
        self.stores += self[name].size

    def drop(self, *names):
        """Forget."""
        for name in names:
            self.held -= self[name].size
            del self._arrays[name]

    @property
    def traffic(self):
        """What was moved so far, as :func:`attnlib.cost.traffic` gives it."""
        return Traffic(self.loads, self.stores)


# --- forward ---------------------------------------------------------------------------------------------


def plain_forward(
    memory, query, key, value, *, is_causal=False, causal_align=None
):
    """Plain attention: three steps, each of which stores all that the next one loads.

    Parameters
    ----------
    memory : FastMemory
        Must hold all keys, then all values, beside one row, as the formula supposes.
    query, key, value : arrays of float64, shapes (Tq, d_h), (Tk, d_h), (Tk, d_v)
    is_causal, causal_align
        As in :func:`attnlib.attention`.

    Returns
    -------
    output : array, shape (Tq, d_v)
    weights : array, shape (Tq, Tk)

    Raises
    ------
    AttnError
        If something does not fit.
    """
    _require_one_head(query, key, value)
    n_q, n_k = len(query), len(key)
    scale = core.default_scale(query.shape[-1])
    allowed = np.ones((n_q, n_k), dtype=bool)
    if is_causal:
        allowed = masks.causal_mask(n_q, n_k, align=causal_align)
    scores, weights = np.empty((n_q, n_k)), np.empty((n_q, n_k))
    output = np.empty((n_q, value.shape[-1]))
    memory.load(K=key)
    for i in range(n_q):
        memory.load(q=query[i : i + 1])
        memory.keep(s=scale * memory.multiply(memory["q"], memory["K"].T))
        memory.store("s", scores[i : i + 1])
        memory.drop("q", "s")
    memory.drop("K")
    for i in range(n_q):
        row = allowed[i : i + 1]
        memory.load(s=scores[i : i + 1])
        memory.keep(s=core.softmax(core.apply_mask(memory["s"], row), row))
        memory.store("s", weights[i : i + 1])
        memory.drop("s")
    memory.load(V=value)
    for i in range(n_q):
        memory.load(p=weights[i : i + 1])
        memory.keep(o=memory.multiply(memory["p"], memory["V"]))
        memory.store("o", output[i : i + 1])
        memory.drop("p", "o")
    memory.drop("V")
    return output, weights


def flash2_forward(
    memory,
    query,
    key,
    value,
    *,
    block_q,
    block_k,
    is_causal=False,
    causal_align=None,
):
    """FlashAttention with queries in the outer loop: the rows' state never leaves the fast memory.

    Parameters
    ----------
    memory : FastMemory
        Must hold :func:`attnlib.cost.fast_memory` entries.
    query, key, value, is_causal, causal_align
        As in :func:`plain_forward`.
    block_q, block_k : int

    Returns
    -------
    output : array, shape (Tq, d_v)
    lse : array, shape (Tq,)

    Raises
    ------
    AttnError
        If something does not fit.

    Notes
    -----
    Source: Dao 2023, algorithm 1.
    """
    tiles, offset = _tiles(
        query, key, value, block_q, block_k, is_causal, causal_align
    )
    output, lse = np.empty((len(query), value.shape[-1])), np.empty(len(query))
    for rows, visited in _visits(tiles, 0):
        state = online.start(_lengths(rows), value.shape[-1], like=output)
        _keep_state(memory, state)
        if visited:
            memory.load(Q=query[rows])
        for cols in visited:
            memory.load(K=key[cols], V=value[cols])
            state = _step(memory, state, rows, cols, offset)
            memory.drop("K", "V", "S")
        o, row_lse = online.finish(state)
        memory.keep(o=o, m=row_lse)
        memory.store("o", output[rows])
        memory.store("m", lse[rows])
        memory.drop("o", "m", "l", *(["Q"] if visited else []))
    return output, lse


def flash1_forward(
    memory,
    query,
    key,
    value,
    *,
    block_q,
    block_k,
    is_causal=False,
    causal_align=None,
):
    """FlashAttention with keys in the outer loop: each tile loads and stores its rows' state.

    Parameters
    ----------
    memory, query, key, value, block_q, block_k, is_causal, causal_align
        As in :func:`flash2_forward`.

    Returns
    -------
    output : array, shape (Tq, d_v)
    lse : array, shape (Tq,)

    Raises
    ------
    AttnError
        If something does not fit.

    Notes
    -----
    Source: Dao et al. 2022, algorithm 1.
    """
    tiles, offset = _tiles(
        query, key, value, block_q, block_k, is_causal, causal_align
    )
    n_q, d_v = len(query), value.shape[-1]
    output = np.zeros((n_q, d_v))
    row_max, row_sum = np.full(n_q, -math.inf), np.zeros(n_q)
    memory.stores += output.size + row_max.size + row_sum.size
    for cols, visited in _visits(tiles, 1):
        if visited:
            memory.load(K=key[cols], V=value[cols])
        for rows in visited:
            memory.load(Q=query[rows], o=output[rows])
            memory.load(m=row_max[rows], l=row_sum[rows])
            # The slow memory holds o divided by l, as the paper does.
            state = online.OnlineState(
                memory["m"],
                memory["l"],
                memory["o"] * memory["l"][:, None],
                memory["l"] != 0,
            )
            state = _step(memory, state, rows, cols, offset)
            memory.keep(o=online.finish(state)[0])
            memory.store("o", output[rows])
            memory.store("m", row_max[rows])
            memory.store("l", row_sum[rows])
            memory.drop("Q", "o", "m", "l", "S")
        if visited:
            memory.drop("K", "V")
    with np.errstate(divide="ignore"):
        return output, row_max + np.log(row_sum)


# --- backward --------------------------------------------------------------------------------------------


def plain_backward(memory, query, key, value, weights, grad_output):
    """Gradients from the stored weights: every step stores a whole matrix for the next.

    Parameters
    ----------
    memory : FastMemory
        Must hold what one product reads whole, as the formula supposes.
    query, key, value
        As in :func:`plain_forward`.
    weights : array, shape (Tq, Tk)
        P, as the forward pass stored it.
    grad_output : array, shape (Tq, d_v)

    Returns
    -------
    grad_query, grad_key, grad_value : arrays

    Raises
    ------
    AttnError
        If something does not fit.

    Notes
    -----
    Source: Dao et al. 2022, algorithm 3.
    """
    _require_one_head(query, key, value)
    scale = core.default_scale(query.shape[-1])
    grad_weights, grad_scores = np.empty_like(weights), np.empty_like(weights)
    grads = [np.empty(a.shape) for a in (query, key, value)]

    def product(target, left, right, factor=1.0):
        memory.load(a=left, b=right)
        memory.keep(c=factor * memory.multiply(memory["a"], memory["b"]))
        memory.store("c", target)
        memory.drop("a", "b", "c")

    product(grads[2], weights.T, grad_output)
    product(grad_weights, grad_output, value.T)
    for i in range(len(query)):
        memory.load(p=weights[i], dp=grad_weights[i])
        delta = (memory["p"] * memory["dp"]).sum(keepdims=True)
        memory.keep(
            ds=score_gradient(memory["p"][None], memory["dp"][None], delta)
        )
        memory.store("ds", grad_scores[i : i + 1])
        memory.drop("p", "dp", "ds")
    product(grads[0], grad_scores, key, scale)
    product(grads[1], grad_scores.T, query, scale)
    return tuple(grads)


def flash1_backward(memory, query, key, value, output, lse, grad_output, **how):
    """One pass with keys outside; each tile computes D again from O and dO, and updates dQ in slow memory.

    Parameters
    ----------
    memory : FastMemory
    query, key, value
        As in :func:`plain_forward`.
    output, lse
        As :func:`flash1_forward` returns them.
    grad_output : array, shape (Tq, d_v)
    **how
        block_q, block_k, is_causal, causal_align, as in :func:`flash2_forward`.

    Returns
    -------
    grad_query, grad_key, grad_value : arrays

    Raises
    ------
    AttnError
        If something does not fit.

    Notes
    -----
    The paper loads m and ℓ; lse stands for both here, and is counted as the two.
    Source: Dao et al. 2022, algorithm 4.
    """

    def load_row(rows):
        memory.load(dO=grad_output[rows], O=output[rows], lse=lse[rows])
        memory.loads += len(lse[rows])  # m and l, not their one lse
        memory.keep(D=row_delta(memory["O"], memory["dO"], memory["lse"]))
        memory.drop("O")

    return _one_pass(memory, query, key, value, load_row, how)


def flash2_backward(memory, query, key, value, output, lse, grad_output, **how):
    """D first; then one pass with keys outside, in which each tile updates dQ in slow memory.

    Parameters
    ----------
    memory, query, key, value, output, lse, grad_output, **how
        As in :func:`flash1_backward`; the memory must hold
        ``fast_memory(..., direction="backward")`` entries.

    Returns
    -------
    grad_query, grad_key, grad_value : arrays

    Raises
    ------
    AttnError
        If something does not fit.

    Notes
    -----
    Source: Dao 2023, algorithm 2.
    """
    delta = _delta_pass(memory, output, lse, grad_output)

    def load_row(rows):
        memory.load(dO=grad_output[rows], lse=lse[rows], D=delta[rows])

    return _one_pass(memory, query, key, value, load_row, how)


def two_pass_backward(
    memory, query, key, value, output, lse, grad_output, **how
):
    """As :func:`attnlib.tiled.flash_attention_backward`: dQ by rows, then dK and dV by columns.

    Parameters
    ----------
    memory, query, key, value, output, lse, grad_output, **how
        As in :func:`flash2_backward`.

    Returns
    -------
    grad_query, grad_key, grad_value : arrays

    Raises
    ------
    AttnError
        If something does not fit.
    """
    delta = _delta_pass(memory, output, lse, grad_output)
    tiles, offset = _tiles(query, key, value, **how)
    grads = tuple(np.zeros(a.shape) for a in (query, key, value))

    def load_row(rows):
        memory.load(Q=query[rows], dO=grad_output[rows])
        memory.load(lse=lse[rows], D=delta[rows])

    for rows, visited in _visits(tiles, 0):
        if visited:
            load_row(rows)
        memory.keep(dQ=grads[0][rows])
        for cols in visited:
            memory.load(K=key[cols], V=value[cols])
            _recompute(memory, rows, cols, offset)
            memory.keep(
                dQ=memory["dQ"] + memory.multiply(memory["dS"], memory["K"])
            )
            memory.drop("K", "V", "P", "dS")
        memory.store("dQ", grads[0][rows])
        memory.drop("dQ", *(["Q", "dO", "lse", "D"] if visited else []))
    for cols, visited in _visits(tiles, 1):
        if visited:
            memory.load(K=key[cols], V=value[cols])
        memory.keep(dK=grads[1][cols], dV=grads[2][cols])
        for rows in visited:
            load_row(rows)
            _recompute(memory, rows, cols, offset)
            _key_gradients(memory)
            memory.drop("Q", "dO", "lse", "D", "P", "dS")
        memory.store("dK", grads[1][cols])
        memory.store("dV", grads[2][cols])
        memory.drop("dK", "dV", *(["K", "V"] if visited else []))
    return grads


# --- what the programs share -----------------------------------------------------------------------------


def _require_one_head(query, key, value):
    """Refuse what attention refuses, and what is not one head in NumPy."""
    core.check_inputs(query, key, value)
    core.scores(query[..., :0, :], key[..., :0, :])  # compares the widths
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not isinstance(array, np.ndarray) or array.ndim != 2:
            raise ShapeError(
                f"{name} is a {type(array).__name__} of shape {tuple(array.shape)}, wanted one head as a "
                f"NumPy array (tokens, width)"
            )


def _tiles(
    query, key, value, block_q, block_k, is_causal=False, causal_align=None
):
    """Every tile with its kind, and the offset of the diagonal; without one, a diagonal beyond all keys."""
    _require_one_head(query, key, value)
    n_q, n_k = len(query), len(key)
    if 0 in (n_q, n_k):
        raise AttnError(
            f"{n_q} queries and {n_k} keys, wanted at least one of each: there is nothing to count"
        )
    tiles = tile_kinds(n_q, n_k, block_q, block_k, is_causal, causal_align)
    if not is_causal:
        return tiles, n_k
    return tiles, masks.check_align(causal_align, n_q, n_k, "causal_align")


def _visits(tiles, outer):
    """Each row of tiles (outer 0) or column (outer 1), with the columns or rows of its visited tiles."""
    visits = {}
    for tile in tiles:
        group = visits.setdefault(tile[outer].start, (tile[outer], []))
        if tile[2] != "skipped":
            group[1].append(tile[1 - outer])
    return visits.values()


def _lengths(piece):
    return (piece.stop - piece.start,)


def _keep_state(memory, state):
    memory.keep(m=state.row_max, l=state.row_sum, o=state.accumulator)


def _scores(memory, rows, cols, offset):
    """Scaled scores of the tile and what of them is visible."""
    scale = core.default_scale(memory["Q"].shape[-1])
    scores = scale * memory.multiply(memory["Q"], memory["K"].T)
    return scores, causal_tile(rows, cols, offset, None)


def _step(memory, state, rows, cols, offset):
    """The state after one tile whose Q, K and V are in the fast memory."""
    scores, allowed = _scores(memory, rows, cols, offset)
    memory.keep(S=scores)
    state = online.update(state, memory["S"], memory["V"], allowed)
    memory.flops += 2 * memory["S"].size * memory["V"].shape[-1]  # P V
    _keep_state(memory, state)
    return state


def _recompute(memory, rows, cols, offset):
    """P and dS of the tile, from lse; dS with respect to Q K^T before scaling."""
    scores, allowed = _scores(memory, rows, cols, offset)
    row_lse = np.where(np.isinf(memory["lse"]), 0.0, memory["lse"])[:, None]
    memory.keep(P=np.exp(core.apply_mask(scores, allowed) - row_lse))
    grad_weights = memory.multiply(memory["dO"], memory["V"].T)
    scale = core.default_scale(memory["Q"].shape[-1])
    memory.keep(
        dS=scale * score_gradient(memory["P"], grad_weights, memory["D"])
    )


def _key_gradients(memory):
    memory.keep(
        dV=memory["dV"] + memory.multiply(memory["P"].T, memory["dO"]),
        dK=memory["dK"] + memory.multiply(memory["dS"].T, memory["Q"]),
    )


def _delta_pass(memory, output, lse, grad_output):
    """D of every row, stored."""
    delta = np.empty(len(lse))
    for i in range(len(lse)):
        memory.load(O=output[i : i + 1], dO=grad_output[i : i + 1])
        memory.keep(D=row_delta(memory["O"], memory["dO"], lse[i : i + 1]))
        memory.store("D", delta[i : i + 1])
        memory.drop("O", "dO", "D")
    return delta


def _one_pass(memory, query, key, value, load_row, how):
    tiles, offset = _tiles(query, key, value, **how)
    grads = tuple(np.zeros(a.shape) for a in (query, key, value))
    memory.stores += grads[0].size  # dQ starts at 0 there
    for cols, visited in _visits(tiles, 1):
        if visited:
            memory.load(K=key[cols], V=value[cols])
        memory.keep(dK=grads[1][cols], dV=grads[2][cols])
        for rows in visited:
            memory.load(Q=query[rows])
            load_row(rows)
            _recompute(memory, rows, cols, offset)
            _key_gradients(memory)
            memory.load(dQ=grads[0][rows])
            memory.keep(
                dQ=memory["dQ"] + memory.multiply(memory["dS"], memory["K"])
            )
            memory.store("dQ", grads[0][rows])
            memory.drop("Q", "dO", "lse", "D", "P", "dS", "dQ")
        memory.store("dK", grads[1][cols])
        memory.store("dV", grads[2][cols])
        memory.drop("dK", "dV", *(["K", "V"] if visited else []))
    return grads


__all__ = [
    "FastMemory",
    "flash1_backward",
    "flash1_forward",
    "flash2_backward",
    "flash2_forward",
    "plain_backward",
    "plain_forward",
    "two_pass_backward",
]

"""Mistakes that people really make in FlashAttention code, planted as those of :mod:`attnlib.mistakes`."""

import numpy as np

from . import online, tiled
from ._arrays import namespace
from .examples import three_tokens
from .mistakes import _BY_NAME, Mistake, planted

_RIGHT = {
    "start": online.start,
    "update": online.update,
    "finish": online.finish,
    "blocks": tiled.blocks,
    "causal_tile": tiled.causal_tile,
}


# --- where to look ---------------------------------------------------------------------------------------


def _state_after(n_keys, field):
    """A number of the state of row 3, scores [1, 0, 3], after its first keys."""

    def look():
        value = three_tokens().head(1)[2]
        state = online.start((1,), 4, like=value)
        for j in range(n_keys):
            score = np.array([[(1.0, 0.0, 3.0)[j]]])
            state = online.update(state, score, value[j : j + 1])
        return float(getattr(state, field)[0])

    letter = {"row_max": "m", "row_sum": "l"}[field]
    return f"{letter} of row 3 after {n_keys} of its keys", look


def _output(i, c, **how):
    """Component `c` of row `i` of head 1, causal, tiled."""

    def look():
        options = {"is_causal": True, "block_q": 1, "block_k": 1, **how}
        return float(
            tiled.flash_attention(*three_tokens().head(1), **options)[
                i - 1, c - 1
            ]
        )

    size = f"{how.get('block_q', 1)} × {how.get('block_k', 1)}"
    return f"component {c} of row {i} of head 1's output, tiles {size}", look


def _lse(i):
    def look():
        lse = tiled.flash_attention(
            *three_tokens().head(1), is_causal=True, return_lse=True
        )[1]
        return float(lse[i - 1])

    return f"log-sum-exp of row {i}, head 1", look


def _merged():
    def look():
        one = online.from_result(
            np.array([[0.7310585786300049]]), np.array([1.3132616875182228])
        )
        two = online.from_result(np.array([[0.0]]), np.array([3.0]))
        return float(online.finish(online.merge(one, two))[0][0, 0])

    return "component 1 of row 3, merged from keys {1, 2} and {3}", look


def _low_scores():
    def look():
        ones = np.ones((17, 1))
        return float(
            tiled.flash_attention(
                np.ones((1, 1)), -5.0 * ones, ones, scale=1.0, block_k=16
            )[0, 0]
        )

    return "the mean of 17 ones whose keys all score -5, in tiles of 16", look


def _hidden_first_tile():
    def look():
        mask = np.eye(3, dtype=bool)
        output = tiled.flash_attention(
            *three_tokens().head(1), mask, block_q=3, block_k=1
        )
        return float(output[2, 2])

    return (
        "component 3 of row 3 when it sees only key 3, in tiles of 1 key",
        look,
    )


def _very_negative():
    def look():
        query, key = np.full((1, 1), -1.0), np.full((2, 1), 2e4)
        value = np.array([[2.0], [4.0]])
        output = tiled.flash_attention(query, key, value, scale=1.0)
        return float(output[0, 0])

    return "the mean of 2 and 4 when both scores are -20000", look


def _gradient(which, i, c, block=2):
    """Component `c` of row `i` of a gradient for dO = [1, 0, 0, 0] at token 3 of head 1, causal."""

    def look():
        q, k, v = three_tokens().head(1)
        grad_output = np.zeros((3, 4))
        grad_output[2, 0] = 1.0
        how = {"is_causal": True, "block_q": block, "block_k": block}
        output, lse = tiled.flash_attention(q, k, v, **how, return_lse=True)
        gradients = tiled.flash_attention_backward(
            q, k, v, output, lse, grad_output, **how
        )
        return float(getattr(gradients, which)[i - 1, c - 1])

    letter = {"query": "dQ", "key": "dK", "value": "dV"}[which]
    return (
        f"component {c} of row {i} of {letter}, dO = [1, 0, 0, 0] at row 3",
        look,
    )


def _shared_gradient():
    def look():
        t = three_tokens()
        arrays = (t.query, t.key[:1], t.value[:1])
        how = {"is_causal": True, "enable_gqa": True}
        output, lse = tiled.flash_attention(*arrays, **how, return_lse=True)
        gradients = tiled.flash_attention_backward(
            *arrays, output, lse, np.ones((2, 3, 4)), **how
        )
        return float(gradients.value[0, 0, 0])

    return (
        "component 1 of row 1 of dV when two query heads share one head",
        look,
    )


# --- the wrong functions ---------------------------------------------------------------------------------


def _exp(x):
    return namespace(x=x).exp(x)


def _wrong_sign(old_max, new_max):
    # Without a first maximum the factor would be infinite, and 0 · ∞ NaN: real code starts at 1 there.
    xp = namespace(old_max=old_max)
    first = old_max == -np.inf
    return xp.where(first, xp.ones_like(old_max), _exp(new_max - old_max))


def _no_rescale(old_max, new_max):
    return namespace(old_max=old_max).ones_like(old_max)


def _finite_start(rows, width, *, like):
    state = _RIGHT["start"](rows, width, like=like)
    xp = namespace(like=state.row_max)
    return state._replace(row_max=-1e4 * xp.ones_like(state.row_max))


def _no_anchor(row_max):
    return row_max


def _rescale_sum_only(state, scores, value, allowed=None):
    right = _RIGHT["update"](state, scores, value, allowed)
    factor = online.rescaling(state.row_max, right.row_max)[..., None]
    return right._replace(
        accumulator=right.accumulator + (1 - factor) * state.accumulator
    )


def _block_max(row_max, block_max):
    return block_max


def _pad_to_four(state, scores, value, allowed=None):
    xp = namespace(scores=scores)
    missing = -scores.shape[-1] % 4
    shape = (*scores.shape[:-1], missing)
    scores = xp.concat([scores, xp.zeros(shape, dtype=scores.dtype)], axis=-1)
    shape = (*value.shape[:-2], missing, value.shape[-1])
    value = xp.concat([value, xp.zeros(shape, dtype=value.dtype)], axis=-2)
    if allowed is not None:
        visible = xp.ones((*allowed.shape[:-1], missing), dtype=xp.bool)
        allowed = xp.concat([allowed, visible], axis=-1)
    return _RIGHT["update"](state, scores, value, allowed)


def _never_divided(state):
    return state.accumulator, _RIGHT["finish"](state)[1]


def _lse_without_sum(state):
    return _RIGHT["finish"](state)[0], state.row_max


def _averaged(first, second):
    xp = namespace(first=first.row_max)
    half = 0.5 * (
        first.accumulator / first.row_sum[..., None]
        + second.accumulator / second.row_sum[..., None]
    )
    ones = xp.ones_like(first.row_sum)
    return online.OnlineState(first.row_max, ones, half, first.seen)


def _whole_tiles_only(n, size):
    return [slice(a, a + size) for a in range(0, n - size + 1, size)] or _RIGHT[
        "blocks"
    ](n, size)


def _strictly_below(rows, cols, offset, like):
    return _RIGHT["causal_tile"](rows, cols, offset - 1, like)


def _one_above(rows, cols, offset, like):
    return _RIGHT["causal_tile"](rows, cols, offset + 1, like)


def _all_visible(rows, cols, offset, like):
    return _RIGHT["causal_tile"](rows, cols, cols.stop, like)


def _offset_in_the_tile(rows, cols, offset, like):
    here = slice(0, rows.stop - rows.start), slice(0, cols.stop - cols.start)
    return _RIGHT["causal_tile"](*here, offset, like)


def _sum_of_grad_output(output, grad_output, lse):
    return namespace(grad_output=grad_output).sum(grad_output, axis=-1)


def _no_softmax_gradient(weights, grad_weights, delta):
    return weights * grad_weights


def _delta_added(weights, grad_weights, delta):
    return weights * (grad_weights + delta[..., None])


def _not_scaled(grad_scores, scale):
    return grad_scores


def _not_transposed(tile, rows):
    return namespace(tile=tile).matmul(tile, rows)


def _maximum_for_lse(scores, lse):
    xp = namespace(scores=scores)
    return xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))


def _first_of_the_group(gradient, n_heads):
    if n_heads is None:
        return gradient
    return gradient[..., :: gradient.shape[-3] // n_heads, :, :]


def _mistake(name, says, wrong, place):
    where, look = place
    return name, Mistake(name, says, wrong, where, look)


MISTAKES = dict(
    [
        # online softmax
        _mistake(
            "wrong_sign",
            "The factor is e^(m_new − m_old) instead of e^(m_old − m_new).",
            {"online.rescaling": _wrong_sign},
            _state_after(3, "row_sum"),
        ),
        _mistake(
            "no_rescale",
            "What was gathered under the old maximum is not rescaled.",
            {"online.rescaling": _no_rescale},
            _state_after(3, "row_sum"),
        ),
        _mistake(
            "sum_rescaled_alone",
            "ℓ is rescaled, o is forgotten.",
            {"online.update": _rescale_sum_only},
            _output(3, 1),
        ),
        _mistake(
            "max_reset",
            "m becomes the maximum of the last block alone.",
            {"online.larger": _block_max},
            _state_after(2, "row_max"),
        ),
        _mistake(
            "starts_at_minus_ten_thousand",
            "m starts at −10000 instead of −∞, so that lower scores vanish.",
            {"online.start": _finite_start},
            _very_negative(),
        ),
        _mistake(
            "hidden_tile_is_nan",
            "A row that has seen only hidden keys so far computes −∞ − (−∞).",
            {"online._anchor": _no_anchor},
            _hidden_first_tile(),
        ),
        _mistake(
            "never_divided",
            "o is returned without dividing by ℓ.",
            {"online.finish": _never_divided},
            _output(3, 1),
        ),
        _mistake(
            "lse_without_sum",
            "lse is m; ln ℓ is missing.",
            {"online.finish": _lse_without_sum},
            _lse(3),
        ),
        _mistake(
            "parts_averaged",
            "Partial results are averaged instead of weighted by their sums.",
            {"online.merge": _averaged},
            _merged(),
        ),
        # tiles
        _mistake(
            "ragged_tile_dropped",
            "The last tile is left out if it is not full.",
            {"tiled.blocks": _whole_tiles_only},
            _output(3, 3, block_q=1, block_k=2),
        ),
        _mistake(
            "padded_keys_counted",
            "A short tile is padded to a multiple of 4 keys, and the padding counts as score 0.",
            {"online.update": _pad_to_four},
            _low_scores(),
        ),
        _mistake(
            "diagonal_hidden",
            "Inside the diagonal tiles a token may not see itself.",
            {"tiled.causal_tile": _strictly_below},
            _output(2, 1, block_q=2, block_k=2),
        ),
        _mistake(
            "diagonal_one_too_far",
            "Inside the diagonal tiles a token sees the next one.",
            {"tiled.causal_tile": _one_above},
            _output(1, 1, block_q=2, block_k=2),
        ),
        _mistake(
            "diagonal_tile_unmasked",
            "Hidden tiles are skipped, but the tiles on the diagonal are not masked.",
            {"tiled.causal_tile": _all_visible},
            _output(1, 1, block_q=3, block_k=3),
        ),
        _mistake(
            "mask_starts_in_every_tile",
            "The causal mask of a tile counts from the tile's corner, not from the matrix's.",
            {"tiled.causal_tile": _offset_in_the_tile},
            _output(2, 1, block_q=1, block_k=3),
        ),
        # backward
        _mistake(
            "missing_delta",
            "D is left out: dS = P ∘ dP.",
            {"tiled.score_gradient": _no_softmax_gradient},
            _gradient("query", 3, 1),
        ),
        _mistake(
            "delta_of_grad_output",
            "D is the row sum of dO, without O.",
            {"tiled.row_delta": _sum_of_grad_output},
            _gradient("query", 3, 1),
        ),
        _mistake(
            "delta_added",
            "D is added instead of subtracted.",
            {"tiled.score_gradient": _delta_added},
            _gradient("query", 3, 1),
        ),
        _mistake(
            "gradient_not_scaled",
            "dQ and dK lack the factor 1/√d_h.",
            {"tiled.unscaled_gradient": _not_scaled},
            _gradient("query", 3, 1),
        ),
        _mistake(
            "tile_not_transposed",
            "dK and dV use dS and P where dSᵀ and Pᵀ belong; square tiles hide it.",
            {"tiled.to_keys": _not_transposed},
            _gradient("value", 1, 1, block=3),
        ),
        _mistake(
            "maximum_for_lse",
            "The weights are recomputed with the tile's maximum instead of lse.",
            {"tiled.weights_again": _maximum_for_lse},
            _gradient("value", 3, 1),
        ),
        _mistake(
            "group_not_summed",
            "A shared key/value head gets the gradient of its first query head only.",
            {"tiled.sum_groups": _first_of_the_group},
            _shared_gradient(),
        ),
    ]
)
"""Every mistake by name."""
_BY_NAME.update(MISTAKES)

__all__ = ["MISTAKES", "planted"]

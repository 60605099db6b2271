"""Mistakes that people really make in attention code, by name, each with the wrong number it gives.

A mistake is planted by putting a wrong function in the place of a right one, for as long as a ``with`` block
lasts. A check that still passes then is a check that cannot see this mistake.
"""

import contextlib
import importlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import core, heads, masks
from ._arrays import constant, namespace
from .examples import three_tokens
from .layer import multi_head_attention

_MODULES = {"core": core, "heads": heads, "masks": masks}
# The right functions, kept from before anything is planted.
_RIGHT = {
    f"{module}.{name}": getattr(_MODULES[module], name)
    for module, names in {
        "core": "default_scale scores apply_mask softmax weighted_sum statistics_dtype forget_unseen",
        "heads": "project split_heads merge_heads repeat_heads",
        "masks": "causal_mask sliding_window_mask check_align read_mask",
    }.items()
    for name in names.split()
}


class Mistake(NamedTuple):
    """One wrong way to write attention.

    Attributes
    ----------
    name : str
    says : str
        What was done wrong, one sentence.
    wrong : dict
        ``"module.function"`` → the wrong function that takes its place.
    where : str
        Which number of the worked example betrays it.
    look : callable
        Returns that number: the right one as the library stands, the wrong one while planted.
    """

    name: str
    says: str
    wrong: dict
    where: str
    look: Callable

    def numbers(self):
        """``(right, wrong)``: the telling number without and with the mistake; the wrong one may be NaN."""
        right = self.look()
        with planted(self), np.errstate(all="ignore"):
            return right, self.look()


# Every mistake that can be planted by its name, those of other modules too.
_BY_NAME = {}


@contextlib.contextmanager
def planted(mistake):
    """Within the block, attnlib makes this mistake; afterwards it is right again.

    Parameters
    ----------
    mistake : str or Mistake
        A name from :data:`MISTAKES` or, once that module is imported, from
        :data:`attnlib.tiled_mistakes.MISTAKES`; or a mistake of your own.

    Raises
    ------
    KeyError
        If there is no such mistake; the message lists the names.

    Notes
    -----
    Not for threads: the functions are replaced for the whole process.

    Examples
    --------
    >>> with planted("no_scale"):
    ...     print(core.attention_steps(*three_tokens().head(1)).weights[2].round(4))
    [0.0179 0.0024 0.9796]
    """
    if not isinstance(mistake, Mistake):
        if mistake not in _BY_NAME:
            raise KeyError(
                f"no mistake called {mistake!r}; there are {', '.join(_BY_NAME)}"
            )
        mistake = _BY_NAME[mistake]
    before = {}
    try:
        for place, function in mistake.wrong.items():
            before[place] = _put(place, function)
        yield mistake
    finally:
        for place, function in before.items():
            _put(place, function)


def _put(place, function):
    """Put `function` in its place, and return what stood there."""
    name, attribute = place.split(".")
    module = importlib.import_module(f"attnlib.{name}")
    before = getattr(module, attribute)
    setattr(module, attribute, function)
    return before


# --- where to look -----------------------------------------------------------------------------------


def _layer(**options):
    t = three_tokens()
    options = options or {"is_causal": True}
    return multi_head_attention(
        t.x, t.w_q, t.w_k, t.w_v, t.w_o, t.n_heads, **options
    )


def _weight(i, j, head=1):
    def look():
        return float(_layer().attention.weights[head - 1, i - 1, j - 1])

    return f"weight of key {j} in row {i}, head {head}", look


def _row_sum(i):
    return f"sum of row {i} of the weights, head 1", lambda: float(
        _layer().attention.weights[0, i - 1].sum()
    )


def _merged(i, c):
    return f"component {c} of row {i} of the merged heads", lambda: float(
        _layer().merged[i - 1, c - 1]
    )


def _output(i, c):
    return f"component {c} of row {i} of the layer's output", lambda: float(
        _layer().output[i - 1, c - 1]
    )


def _lse(i):
    return f"log-sum-exp of row {i}, head 1", lambda: float(
        _layer().attention.lse[0, i - 1]
    )


def _empty_row():
    def look():
        mask = np.tri(3, dtype=bool)
        mask[0, 0] = False
        return float(core.attention(*three_tokens().head(1), mask)[0, 0])

    return (
        "component 1 of row 1 of head 1's output when row 1 may see nothing",
        look,
    )


def _last_query():
    def look():
        q, k, v = three_tokens().head(1)
        steps = core.attention_steps(
            q[2:], k, v, is_causal=True, causal_align="bottom_right"
        )
        return float(steps.weights[0, 2])

    return (
        "weight of key 3 when only query 3 asks, aligned at the bottom right",
        look,
    )


def _window():
    def look():
        mask = masks.sliding_window_mask(3, 3, 2)
        return float(
            core.attention_steps(*three_tokens().head(1), mask).weights[2, 0]
        )

    return "weight of key 1 in row 3, head 1, with a window of 2 tokens", look


def _times_1000():
    def look():
        q, k, v = three_tokens().head(1)
        return float(
            core.attention_steps(1000 * q, k, v, is_causal=True).weights[1, 0]
        )

    return (
        "weight of key 1 in row 2, head 1, when the queries are 1000 times as long",
        look,
    )


def _half():
    def look():
        q, k, v = (
            np.asarray(a * 300, dtype=np.float16)
            for a in three_tokens().head(1)
        )
        return float(
            core.attention_steps(q, k, v / 300, is_causal=True).weights[1, 0]
        )

    return (
        "weight of key 1 in row 2, head 1, in float16 with queries and keys 300 times as long",
        look,
    )


def _padded_nan():
    def look():
        q, k, v = three_tokens().head(1)
        v[2] = np.nan
        return float(
            core.attention(q, k, v, np.asarray([True, True, False]))[0, 0]
        )

    return (
        "component 1 of row 1 of head 1's output when key 3 is padding and its value NaN",
        look,
    )


def _grouped():
    def look():
        t = three_tokens()
        four = np.concatenate([t.query, t.query])
        return float(
            core.attention(
                four, t.key, t.value, is_causal=True, enable_gqa=True
            )[1, 0, 3]
        )

    return (
        "component 4 of row 1 of query head 2 when four query heads share two key/value heads",
        look,
    )


# --- the wrong functions -------------------------------------------------------------------------------


def _mask_with(number):
    def apply_mask(scaled, attn_mask=None):
        if attn_mask is None:
            return scaled
        xp = namespace(scaled=scaled)
        allowed, _ = masks.read_mask(attn_mask, scaled.shape, scaled.dtype)
        return xp.where(allowed, scaled, constant(xp, number, scaled))

    return apply_mask


def _unmasked(scaled, attn_mask=None):
    return scaled


def _strictly_past(n_q, n_k, *, align=None, like=None):
    mask = np.tri(n_q, n_k, masks.check_align(align, n_q, n_k) - 1, dtype=bool)
    return masks.to_library(mask, like)


def _sees_next(n_q, n_k, *, align=None, like=None):
    mask = np.tri(n_q, n_k, masks.check_align(align, n_q, n_k) + 1, dtype=bool)
    return masks.to_library(mask, like)


def _inverted(attn_mask, shape, dtype):
    allowed, bias = _RIGHT["masks.read_mask"](attn_mask, shape, dtype)
    return ~allowed, bias


def _added_as_ones(attn_mask, shape, dtype):
    allowed, _ = _RIGHT["masks.read_mask"](attn_mask, shape, dtype)
    xp = namespace(allowed=allowed)
    return xp.ones_like(allowed), xp.astype(allowed, dtype)


def _always_top_left(align, n_q, n_k, argument="align"):
    _RIGHT["masks.check_align"](align, n_q, n_k, argument)
    return 0


def _window_plus_one(n_q, n_k, window, *, align=None, like=None):
    return _RIGHT["masks.sliding_window_mask"](
        n_q, n_k, window + 1, align=align, like=like
    )


def _softmax_by(weights_of):
    """A softmax whose weights come from `weights_of(xp, masked, attn_mask)` and whose lse is right."""

    def softmax(masked, attn_mask=None, *, return_lse=False):
        xp = namespace(masked=masked)
        weights = weights_of(xp, masked, attn_mask)
        if not return_lse:
            return weights
        return weights, _RIGHT["core.softmax"](
            masked, attn_mask, return_lse=True
        )[1]

    return softmax


def _then_masked(xp, scaled, attn_mask):
    weights = _RIGHT["core.softmax"](scaled)
    if attn_mask is None:
        return weights
    allowed, _ = masks.read_mask(attn_mask, scaled.shape, scaled.dtype)
    return xp.where(allowed, weights, constant(xp, 0.0, weights))


def _over_queries(xp, masked, attn_mask):
    return xp.matrix_transpose(
        _RIGHT["core.softmax"](xp.matrix_transpose(masked))
    )


def _over_everything(xp, masked, attn_mask):
    exponentials = xp.exp(masked - xp.max(masked, axis=(-2, -1), keepdims=True))
    return exponentials / xp.sum(exponentials, axis=(-2, -1), keepdims=True)


def _twice(xp, masked, attn_mask):
    return _RIGHT["core.softmax"](
        _RIGHT["core.softmax"](masked, attn_mask), attn_mask
    )


def _without_maximum(xp, masked, attn_mask):
    exponentials = xp.exp(masked)
    return exponentials / xp.sum(exponentials, axis=-1, keepdims=True)


def _base_two(xp, masked, attn_mask):
    return _RIGHT["core.softmax"](masked * math.log(2), attn_mask)


def _mask_unknown(xp, masked, attn_mask):
    return _RIGHT["core.softmax"](masked)


def _lse_without_maximum(masked, attn_mask=None, *, return_lse=False):
    weights, lse = _RIGHT["core.softmax"](masked, attn_mask, return_lse=True)
    if not return_lse:
        return weights
    return weights, lse - namespace(masked=masked).max(masked, axis=-1)


def _keys_ask(query, key):
    return _RIGHT["core.scores"](key, query)


def _transposed_weights(weights, value):
    return _RIGHT["core.weighted_sum"](
        namespace(weights=weights).matrix_transpose(weights), value
    )


def _averaged_heads(weights, value):
    xp = namespace(weights=weights)
    mean = (
        xp.mean(weights, axis=-3, keepdims=True)
        if weights.ndim > 2
        else weights
    )
    return _RIGHT["core.weighted_sum"](
        xp.broadcast_to(mean, weights.shape), value
    )


def _transposed_projection(x, weight):
    return _RIGHT["heads.project"](
        x, namespace(weight=weight).matrix_transpose(weight)
    )


def _split_by_reshape(x, n_heads):
    *lead, n_tokens, width = x.shape
    return namespace(x=x).reshape(
        x, (*lead, n_heads, n_tokens, width // n_heads)
    )


def _split_interleaved(x, n_heads):
    return namespace(x=x).stack(
        [x[..., h::n_heads] for h in range(n_heads)], axis=-3
    )


def _merge_by_reshape(x):
    *lead, n_heads, n_tokens, width = x.shape
    return namespace(x=x).reshape(x, (*lead, n_tokens, n_heads * width))


def _merge_backwards(x):
    return _RIGHT["heads.merge_heads"](namespace(x=x).flip(x, axis=-3))


def _tiled_heads(x, times):
    return namespace(x=x).concat([x] * times, axis=-3)


def _input_dtype(xp, dtype):
    return dtype


def _forget_nothing(xp, query, key, value, mask):
    return query, key, value


def _mistake(name, says, wrong, place):
    where, look = place
    return name, Mistake(name, says, wrong, where, look)


MISTAKES = dict(
    [
        # scale
        _mistake(
            "no_scale",
            "The scores are not divided by √d_h.",
            {"core.default_scale": lambda width: 1.0},
            _weight(3, 3),
        ),
        _mistake(
            "scale_by_model_width",
            "The scores are divided by √d, the width of both heads together.",
            {"core.default_scale": lambda width: 1.0 / math.sqrt(2 * width)},
            _weight(3, 3),
        ),
        _mistake(
            "scale_by_width",
            "The scores are divided by d_h, not by its root.",
            {"core.default_scale": lambda width: 1.0 / width},
            _weight(3, 3),
        ),
        # mask
        _mistake(
            "no_mask",
            "The mask is never applied.",
            {"core.apply_mask": _unmasked},
            _weight(1, 1),
        ),
        _mistake(
            "strictly_past",
            "The diagonal is hidden too: a token may not see itself.",
            {"masks.causal_mask": _strictly_past},
            _weight(2, 1),
        ),
        _mistake(
            "sees_next",
            "The diagonal is off by one: every token sees the next one.",
            {"masks.causal_mask": _sees_next},
            _weight(1, 2),
        ),
        _mistake(
            "mask_inverted",
            "True is read as 'ignore'.",
            {"masks.read_mask": _inverted},
            _weight(2, 3),
        ),
        _mistake(
            "mask_added_as_ones",
            "The boolean mask is added to the scores as ones and zeros.",
            {"masks.read_mask": _added_as_ones},
            _weight(2, 3),
        ),
        _mistake(
            "mask_after_softmax",
            "Hidden weights are set to 0 after the softmax, and nothing renormalises the row.",
            {
                "core.apply_mask": _unmasked,
                "core.softmax": _softmax_by(_then_masked),
            },
            _row_sum(2),
        ),
        _mistake(
            "mask_by_zero",
            "Hidden scores are set to 0 instead of −∞.",
            {"core.apply_mask": _mask_with(0.0)},
            _weight(1, 1),
        ),
        _mistake(
            "mask_by_minus_ten",
            "Hidden scores are set to −10 instead of −∞.",
            {"core.apply_mask": _mask_with(-10.0)},
            _weight(1, 2),
        ),
        _mistake(
            "minus_1e9_on_empty_row",
            "Hidden scores are set to −1e9, so an empty row becomes the mean of the hidden values.",
            {
                "core.apply_mask": _mask_with(-1e9),
                "core.softmax": _softmax_by(_mask_unknown),
            },
            _empty_row(),
        ),
        _mistake(
            "empty_row_is_nan",
            "The softmax does not know the mask, so an empty row is 0/0.",
            {"core.softmax": _softmax_by(_mask_unknown)},
            _empty_row(),
        ),
        _mistake(
            "top_left_when_decoding",
            "The causal diagonal starts at the first key although the queries are the last tokens.",
            {"masks.check_align": _always_top_left},
            _last_query(),
        ),
        _mistake(
            "window_one_too_wide",
            "The window counts the tokens before the current one.",
            {"masks.sliding_window_mask": _window_plus_one},
            _window(),
        ),
        # softmax
        _mistake(
            "softmax_over_queries",
            "The softmax runs down the columns.",
            {"core.softmax": _softmax_by(_over_queries)},
            _weight(3, 3),
        ),
        _mistake(
            "softmax_over_everything",
            "One softmax over the whole table.",
            {"core.softmax": _softmax_by(_over_everything)},
            _row_sum(3),
        ),
        _mistake(
            "softmax_twice",
            "The weights go through a second softmax.",
            {"core.softmax": _softmax_by(_twice)},
            _weight(3, 3),
        ),
        _mistake(
            "softmax_base_two",
            "Powers of 2 where powers of e belong.",
            {"core.softmax": _softmax_by(_base_two)},
            _weight(3, 3),
        ),
        _mistake(
            "no_maximum",
            "The row's maximum is not subtracted, so large scores overflow.",
            {"core.softmax": _softmax_by(_without_maximum)},
            _times_1000(),
        ),
        _mistake(
            "lse_without_maximum",
            "The maximum that was subtracted is not added back to the log-sum-exp.",
            {"core.softmax": _lse_without_maximum},
            _lse(3),
        ),
        _mistake(
            "statistics_in_half",
            "Scores and softmax are computed in float16.",
            {"core.statistics_dtype": _input_dtype},
            _half(),
        ),
        # products
        _mistake(
            "query_and_key_swapped",
            "S is KQᵀ instead of QKᵀ.",
            {"core.scores": _keys_ask},
            _weight(3, 1),
        ),
        _mistake(
            "weights_transposed",
            "The values are mixed with Pᵀ.",
            {"core.weighted_sum": _transposed_weights},
            _merged(3, 1),
        ),
        _mistake(
            "hidden_nan_leaks",
            "A hidden value is multiplied by 0 instead of being left out, and 0 · NaN is NaN.",
            {"core.forget_unseen": _forget_nothing},
            _padded_nan(),
        ),
        # heads
        _mistake(
            "split_without_transpose",
            "The heads are split by reshape alone, which mixes tokens.",
            {"heads.split_heads": _split_by_reshape},
            _merged(3, 1),
        ),
        _mistake(
            "split_interleaved",
            "Every second component goes to the same head.",
            {"heads.split_heads": _split_interleaved},
            _merged(3, 1),
        ),
        _mistake(
            "merge_without_transpose",
            "The heads are merged by reshape alone, which mixes tokens.",
            {"heads.merge_heads": _merge_by_reshape},
            _merged(2, 1),
        ),
        _mistake(
            "merge_backwards",
            "Head 2 is put before head 1.",
            {"heads.merge_heads": _merge_backwards},
            _merged(3, 1),
        ),
        _mistake(
            "heads_averaged",
            "All heads use the mean of their weights.",
            {"core.weighted_sum": _averaged_heads},
            _merged(3, 3),
        ),
        _mistake(
            "grouped_heads_tiled",
            "Shared key/value heads are repeated 0,1,0,1 instead of 0,0,1,1.",
            {"heads.repeat_heads": _tiled_heads},
            _grouped(),
        ),
        _mistake(
            "weight_transposed",
            "The projections use the transposed weight matrices.",
            {"heads.project": _transposed_projection},
            _output(3, 1),
        ),
    ]
)
"""Every mistake by name."""
_BY_NAME.update(MISTAKES)

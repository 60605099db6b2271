"""The mask painter: presets and free painting, and what follows from a mask."""

import numpy as np

from attnlib import masks, show
from attnlib.errors import AttnError, MaskError

from ._base import make, rows
from ._limits import one_of, whole

MOST = 8
PRESETS = (
    "nothing",
    "everything",
    "causal",
    "window",
    "prefix",
    "documents",
    "padding",
)


def fixed_scores():
    """Scaled scores for the painter, shape (8, 8): multiples of 1/2 from −2 to 2, no two rows alike."""
    i, j = np.arange(MOST)[:, None], np.arange(MOST)[None, :]
    return (2 * i + 5 * j + 3 * i * j) % 9 / 2 - 2


def mask_painter(preset="causal", *, n_q=5, n_k=5):
    """Paint a mask cell by cell, or start from a preset, and see the weights that follow.

    Parameters
    ----------
    preset : {"nothing", "everything", "causal", "window", "prefix", "documents", "padding"}
        The mask at first.
    n_q, n_k : int
        Numbers of queries and keys, from 1 to 8.

    Returns
    -------
    anywidget
        ``state``: sizes nQ and nK, preset, its options, and the flips, cells [i, j] (from 0) that differ
        from the preset. ``result``: mask (True = may attend), seen (as it was read), weights, row and
        column sums, empty rows, leaks (the outputs that move with each token), code, mistakes.

    Raises
    ------
    MaskError
        If there is no such preset, or a size is not from 1 to 8.
    AttnError
        If anywidget is not installed.
    """
    try:
        preset = one_of("preset", preset, PRESETS)
        n_q, n_k = whole("n_q", n_q, 1, MOST), whole("n_k", n_k, 1, MOST)
    except AttnError as refused:
        raise MaskError(str(refused)) from None
    state = {
        "nQ": int(n_q),
        "nK": int(n_k),
        "preset": preset,
        "prefix": min(2, n_k),
        "length": min(3, n_k),
        "scores": rows(fixed_scores()),
    }
    panels = _panels(preset, n_q, n_k)
    static = show.heatmap(
        list(panels.values()),
        kind="mask",
        titles=list(panels),
        caption="Four masks to start from. Tick: may attend. Hatched: hidden.",
        point="A hidden key has weight 0, and each row that sees anything sums to 1.",
    )
    return make("mask_painter", state, static)


def _panels(preset, n_q, n_k):
    """The preset asked for, then others up to four, by name."""
    causal = masks.causal_mask(n_q, n_k, align="top_left")
    ids = [1 + (place >= 3) for place in range(MOST)]
    every = {
        "causal": ("causal", causal),
        "window": (
            "window of 2",
            masks.sliding_window_mask(n_q, n_k, 2, align="top_left"),
        ),
        "documents": (
            "documents & causal",
            causal & masks.document_mask(ids[:n_q], ids[:n_k]),
        ),
        "padding": (
            "padding & causal",
            causal & masks.padding_mask([min(3, n_k)], n_k)[0, 0],
        ),
        "prefix": (
            "prefix of 2",
            masks.prefix_mask(n_q, n_k, min(2, n_k), align="top_left"),
        ),
        "everything": ("everything", np.ones((n_q, n_k), dtype=bool)),
        "nothing": ("nothing", np.zeros((n_q, n_k), dtype=bool)),
    }
    order = [preset, *(name for name in every if name != preset)]
    return dict(every[name] for name in order[:4])

"""Mixing: values as points, weights as masses, the output as their centre."""

import numpy as np

from attnlib import core, examples, show
from attnlib.errors import AttnError
from attnlib.show._arrays import label

from ._base import make, rows
from ._limits import whole

SPAN, LARGEST_SCORE = 3, 6


def mixing(*, example=None, row=2):
    """Three values as points of a plane, three scores to set, and the output as the centre of the masses.

    Parameters
    ----------
    example : attnlib.examples.Example, optional
        Three tokens, with values of head 1 from -3 to 3 and scaled scores from -6 to 6; the three tokens
        of the book if not given. Components 1 and 2 of each value are drawn.
    row : {0, 1, 2}
        The query whose scores stand on the sliders at first; it sees no later token.

    Returns
    -------
    anywidget
        ``state``: tokens, values, scores, hidden, way. ``result``: weights, lengths, contributions, output,
        the right output, the sum of the weights, the distance to the hull, and the mistakes made.

    Raises
    ------
    AttnError
        If the example or the row does not fit, or anywidget is not installed.
    """
    example = examples.three_tokens() if example is None else example
    query, key, value = example.head(1)
    points = value[:, :2]
    if points.shape != (3, 2) or np.abs(points).max() > SPAN:
        raise AttnError(
            f"values of head 1 have shape {value.shape}: wanted 3 tokens with 2 components "
            f"or more, the first two from -{SPAN} to {SPAN}"
        )
    row = whole("row", row, 0, 2)
    steps = core.attention_steps(query, key, value, is_causal=True)
    if np.abs(steps.scaled).max() > LARGEST_SCORE:
        raise AttnError(
            f"the scaled scores reach {np.abs(steps.scaled).max():.3g}, wanted at most {LARGEST_SCORE}"
        )
    state = {
        "tokens": list(example.tokens),
        "values": rows(points),
        "scores": rows(steps.scaled)[row],
        "hidden": [j > row for j in range(3)],
        "way": "softmax",
        "exampleValues": rows(points),
        "exampleScores": rows(steps.scaled),
    }
    return make(
        "mixing",
        state,
        _static(example.tokens, steps.weights[row], points, row),
    )


def _static(tokens, weights, points, row):
    parts = weights[:, None] * points
    tips = np.vstack([np.zeros(2), parts.cumsum(axis=0)])
    output = tips[-1]
    fig, ax = show.axes(width=4.8, height=4.2)
    ax.plot(*points[[0, 1, 2, 0]].T, "-", color=show.COLOURS["value"], lw=1)
    ax.scatter(
        *points.T, s=40 + 900 * weights, color=show.COLOURS["value"], alpha=0.35
    )
    for start, part in zip(tips[:-1], parts, strict=True):
        if np.hypot(*part) > 0:
            ax.annotate(
                "",
                start + part,
                start,
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": show.COLOURS["value"],
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
            )
    ax.plot(*output, "D", color=show.COLOURS["output"])
    ax.annotate(
        "output",
        output,
        (9, 9),
        textcoords="offset points",
        color=show.COLOURS["output"],
    )
    for token, point in zip(tokens, points, strict=True):
        ax.annotate(
            f"value of {label(token)}",
            point,
            (0, -26),
            textcoords="offset points",
            ha="center",
            parse_math=False,
        )
    low, high = points.min(axis=0), points.max(axis=0)
    ax.set(
        xlabel="component 1",
        ylabel="component 2",
        xlim=(low[0] - 0.45, high[0] + 0.45),
        ylim=(low[1] - 0.4, high[1] + 0.35),
    )
    shares = ", ".join(
        f"{show.number(w)} of {label(token)}"
        for w, token in zip(weights, tokens, strict=True)
    )
    place = ", ".join(show.number(x) for x in output)
    return show.picture(
        fig,
        caption=f"Query {row + 1} mixes {shares}: the output is their centre, ({place}).",
        alt=f"Three values as points, the area of each its weight: {shares}. Arrows, weight times value, "
        f"lead tip to tail from 0 to the output at ({place}).",
    )

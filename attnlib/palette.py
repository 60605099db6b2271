"""The book's colours, in one place: figures, formulas, widgets and the site's CSS all read them here.

Every role stands with its letter or a mark; a colour is never the only carrier of a meaning.
"""

# role: (on a light page, on a dark page); contrast at least 4.5 : 1 on page and code backgrounds of each
ROLES = {
    "query": ("#0067A5", "#6CB6F2"),
    "key": ("#B34700", "#FF9D5C"),
    "value": ("#00734F", "#4CCB9F"),
    "output": ("#9C2F74", "#F09AC8"),
    "mistake": ("#B00020", "#FF8A80"),
    "masked": ("#6B6B6B", "#A8A8A8"),
    "active": ("#8A5A00", "#F2C14E"),
}

# Scores are drawn on a two-ended map centred on 0, weights on a one-ended, perceptually even map from 0 to 1.
SCORE_MAP = "RdBu_r"
WEIGHT_MAP = "cividis"


def css():
    """CSS that defines ``--attn-<role>`` for light and dark, on the site and in JupyterLab.

    Returns
    -------
    str
        A style sheet. Light values hold unless the page says it is dark.

    Examples
    --------
    >>> css().splitlines()[0]
    ':root { --attn-query: #0067A5; --attn-key: #B34700; --attn-value: #00734F; \
--attn-output: #9C2F74; --attn-mistake: #B00020; --attn-masked: #6B6B6B; --attn-active: #8A5A00; }'
    """
    light, dark = (
        " ".join(
            f"--attn-{role}: {pair[side]};" for role, pair in ROLES.items()
        )
        for side in (0, 1)
    )
    return f':root {{ {light} }}\nhtml[data-theme="dark"], body[data-jp-theme-light="false"] {{ {dark} }}\n'

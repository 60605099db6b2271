"""The book's colours, in one place: figures, formulas, widgets and the site's CSS all read them here.

Every role stands with its letter or a mark; a colour is never the only carrier of a meaning.
"""

# name: (on a light page, on a dark page); contrast at least 4.5 : 1 on page and code backgrounds of each
ROLES = {
    "query": ("#0067A5", "#6CB6F2"),
    "key": ("#B34700", "#FF9D5C"),
    "value": ("#00734F", "#4CCB9F"),
    "output": ("#9C2F74", "#F09AC8"),
    "mistake": ("#B00020", "#FF8A80"),
    "masked": ("#6B6B6B", "#A8A8A8"),
    "active": ("#8A5A00", "#F2C14E"),
}
PAGE = {
    "paper": ("#ffffff", "#14181e"),
    "ink": ("#222832", "#d5dbe3"),
    "line": ("#8a8f98", "#7d8694"),
    "wash": ("#f3f4f5", "#222832"),
}

# Scores are drawn on a two-ended map centred on 0, weights on a one-ended, perceptually even map from 0 to 1.
SCORE_MAP = "RdBu_r"
WEIGHT_MAP = "cividis"

# Who says whether a page is dark: this site, Colab, JupyterLab, VS Code (whose kinds end in dark, light,
# high-contrast and high-contrast-light). Where nobody does, the page's own color-scheme holds.
HOSTS = {
    "dark": (
        'html[data-theme="dark"]',
        'html[theme="dark"]',
        'body[data-jp-theme-light="false"]',
        'body[data-vscode-theme-kind$="dark"]',
        'body[data-vscode-theme-kind$="contrast"]',
    ),
    "light": (
        'html[data-theme="light"]',
        'html[theme="light"]',
        'body[data-jp-theme-light="true"]',
        'body[data-vscode-theme-kind$="light"]',
    ),
}


def css(names=None):
    """CSS that defines ``--attn-<name>`` for light and dark, in every host that shows an output.

    Parameters
    ----------
    names : collection of str, optional
        Which colours; all of :data:`ROLES` and :data:`PAGE` if not given.

    Returns
    -------
    str
        A style sheet: the variables, then a line for each theme that a host can name.

    Examples
    --------
    >>> print(css(["query"]).splitlines()[0])
    :root { --attn-query: light-dark(#0067A5, #6CB6F2); }
    """
    colours = {
        name: f"light-dark({light}, {dark})"
        for name, (light, dark) in {**ROLES, **PAGE}.items()
    }
    # What text stands on is the host's own ground where it has a name for it.
    colours["paper"] = (
        f"var(--jp-layout-color0, var(--vscode-editor-background, {colours['paper']}))"
    )
    names = colours if names is None else names
    variables = " ".join(
        f"--attn-{name}: {colours[name]};" for name in colours if name in names
    )
    lines = [f":root {{ {variables} }}"]
    lines += [
        f':is({", ".join(hosts)}) [class^="attn-"] {{ color-scheme: {theme}; }}'
        for theme, hosts in HOSTS.items()
    ]
    return "\n".join(lines) + "\n"

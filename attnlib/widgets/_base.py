"""What all widgets share: their modules put together, and the Python side of anywidget."""

import html
import json
import re
from functools import cache
from importlib.resources import files

from attnlib import palette
from attnlib.errors import AttnError
from attnlib.show._style import carried

from . import _limits

NAMES = (
    "strip",
    "one_head",
    "one_score",
    "heads",
    "scaling_lab",
    "mask_painter",
    "softmax_bars",
    "mixing",
    "online_softmax",
    "backward_strip",
    "tile_replay",
    "roofline",
    "gpu_explorer",
)
IMPORT = re.compile(
    r"^import\s*\{[^}]*\}\s*from\s*\"\./(\w+)\.js\";\n", re.M | re.S
)


def read(name):
    return files("attnlib.widgets").joinpath(name).read_text(encoding="utf-8")


@cache
def style():
    """All that a widget looks like: the palette, what it shares with the pictures, and its own."""
    shared = files("attnlib").joinpath("show.css").read_text(encoding="utf-8")
    return palette.css() + shared + read("widgets.css")


@cache
def module(name):
    """The ES module of one widget, complete in itself: shared arithmetic, shared look, then the widget.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.

    Returns
    -------
    str
        What JupyterLab and the static page load, byte for byte the same.

    Raises
    ------
    AttnError
        If there is no such widget.
    """
    if name not in NAMES:
        raise AttnError(
            f"no widget called {name!r}, wanted one of {', '.join(NAMES)}"
        )
    done, parts = set(), []

    def add(part, shared):
        if part in done:
            return
        done.add(part)
        text = read(f"{part}.js")
        for other in IMPORT.findall(text):
            add(other, True)
        text = IMPORT.sub("", text)
        parts.append(
            re.sub(r"^export (?!default)", "", text, flags=re.M)
            if shared
            else text
        )

    add(name, False)
    return "\n".join(parts)


def plain_script(name):
    """The same code for pages opened as files, where browsers import no modules.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.

    Returns
    -------
    str
        A script that puts the widget into ``globalThis.attnWidgets``.

    Raises
    ------
    AttnError
        As :func:`module`.
    """
    code = re.sub(
        r"^export default ",
        f"(globalThis.attnWidgets ??= {{}}).{name} = ",
        module(name),
        flags=re.M,
    )
    # What a module exports for tests stays inside the braces.
    code = re.sub(r"^export ", "", code, flags=re.M)
    return f"{{\n{code}}}\n"


@cache
def _class():
    """The widget class; made when first needed, so that importing attnlib needs no anywidget."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise AttnError(
            "widgets need anywidget: pip install anywidget matplotlib"
        ) from None

    class Widget(anywidget.AnyWidget):
        """A widget of the book: `state` goes both ways, `result` comes from the browser."""

        state = traitlets.Dict().tag(sync=True)
        result = traitlets.Dict().tag(sync=True)

        @traitlets.validate("state")
        def _readable(self, proposal):
            """What Python sets is refused here; what the browser sends back has been accepted there."""
            return _limits.checked(self.name, proposal["value"])

        def __init__(self, name, state, static):
            self._esm = module(name)
            self._css = style()
            self.name, self.static = name, static
            super().__init__(state=_limits.checked(name, state))

        def _repr_mimebundle_(self, **kwargs):
            view = super()._repr_mimebundle_(**kwargs)
            bundle = view[0] if isinstance(view, tuple) else view
            state = html.escape(json.dumps(self.state, ensure_ascii=False))
            page = (
                f'<div class="attn-widget" data-widget="{self.name}" data-state="{state}">'
                f'<div class="attn-static">{self.static.html}</div></div>'
            )
            return {
                **(bundle or {}),
                "text/html": carried(page),
                "text/plain": repr(self.static),
            }

    return Widget


def make(name, state, static):
    """A widget called `name` in its first `state`; `static` is what is seen where no script runs.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    state : dict
        What its module's ``accept`` takes; NumPy's numbers and arrays become plain ones.
    static : attnlib.show.Picture or Table
        The figure that tells the same story with the first settings.

    Returns
    -------
    anywidget

    Raises
    ------
    AttnError
        If anywidget is not installed, there is no such widget, or it cannot read the state.
    """
    return _class()(name, state, static)


def rows(array):
    """A 2-D array as lists of Python numbers, whole where they are whole."""
    return [
        [int(x) if float(x).is_integer() else float(x) for x in row]
        for row in array
    ]

"""Tables, the pipeline strip and shown source, as HTML that needs no script and no inline style."""

import ast
import html
import inspect
import re
import textwrap

import numpy as np

from attnlib.errors import AttnError, ShapeError
from attnlib.palette import ROLES

from ._arrays import index_hint, label, to_list, to_numpy, wording
from ._numbers import LONG, formatter, summary, vector
from ._style import carried

SENTENCE = 36


class _Shown:
    """Something with an HTML form and a text form of the same content."""

    def __init__(self, html, text):
        self.html, self.text = html, text

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.text, "text/html": carried(self.html)}

    def __repr__(self):
        return self.text


class Table(_Shown):
    """What `table` returns: attributes ``html`` and ``text``."""


class Strip(_Shown):
    """What `pipeline` returns: attributes ``html`` and ``text``."""


class Source(_Shown):
    """What `source` returns: attributes ``html`` and ``text``."""


WRITTEN = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?|nan|-?inf")  # a number as its author wrote it


def _escape(words):
    return html.escape(str(words))


def _bdi(token):
    """A token as literal text that cannot turn the direction of what stands beside it."""
    shown = label(token)
    original = "" if shown == token else f' title="{_escape(token if token.isprintable() else ascii(token))}"'
    return f"<bdi{original}>{_escape(shown)}</bdi>"


# --- tables ---


def table(data, *, rows=None, columns=None, caption="", digits=4, corner="", roles=None):
    """Numbers as a real table.

    Parameters
    ----------
    data : array_like, shape (n_rows, n_columns), or dict of str to sequence
        A dict holds one list per column: numbers, strings, booleans, or short vectors such as ``(1, 0.5)``.
    rows : sequence of str, optional
        Row headers; an array without them has its rows counted from 1.
    columns : sequence of str, optional
        Column headers of an array; for a dict, which of its columns to show, in which order.
    caption : str
        Stands above the table and names it.
    digits : int
        Decimals; a column of whole numbers (an array of them) has none.
    corner : str
        Text of the top left cell.
    roles : dict of str to str, optional
        Column header to role of the palette, which colours the column.

    Returns
    -------
    Table

    Raises
    ------
    ShapeError
        If headers and data differ in number.
    AttnError
        If a role is not one of the palette's.

    Examples
    --------
    >>> table({"score": [2, 0, 6], "weight": [0.114, 0.042, 0.844]}, rows=["the", "cat", "tea"])
         score  weight
    the      2  0.1140
    cat      0  0.0420
    tea      6  0.8440
    """
    heads, cells, rows = _grid(data, rows, columns, digits)
    caption, corner = wording(caption, "caption"), wording(corner, "corner")
    roles = {} if roles is None else roles
    if not isinstance(roles, dict):
        raise AttnError(f"roles is a {type(roles).__name__}, wanted a dict of column header to role")
    for column, role in roles.items():
        if not isinstance(role, str) or role not in ROLES or column not in heads:
            raise AttnError(
                f"roles has {column!r}: {role!r}, wanted a column of {', '.join(heads)} "
                f"and a role of {', '.join(ROLES)}"
            )
    return Table(
        _table_html(heads, cells, rows, caption, corner, roles), _table_text(heads, cells, rows, corner)
    )


def _grid(data, rows, columns, digits):
    """Headers, cells as ``(text, is a number)`` row by row, and row headers or None."""
    if isinstance(data, dict):
        heads = [str(name) for name in (data if columns is None else to_list(columns, "columns"))]
        by_name = {str(name): to_list(column, f"column {name!r}") for name, column in data.items()}
        if len(by_name) < len(data) or len(set(heads)) < len(heads):
            raise ShapeError(f"two columns have one name, of {', '.join(heads)}: give each its own")
        missing = [name for name in heads if name not in by_name]
        if missing:
            raise ShapeError(f"no column {missing[0]!r} in the data: it has {', '.join(by_name)}")
        lengths = {name: len(by_name[name]) for name in heads}
        if len(set(lengths.values())) > 1:
            shortest, longest = min(lengths, key=lengths.get), max(lengths, key=lengths.get)
            raise ShapeError(
                f"column {shortest!r} has {lengths[shortest]} entries, {longest!r} has {lengths[longest]}: "
                "give every column one entry per row"
            )
        made = [_column(by_name[name], name, digits) for name in heads]
        cells = [list(line) for line in zip(*made, strict=True)]
    else:
        array = to_numpy(data, "data")
        if array.ndim != 2:
            raise ShapeError(
                f"data has shape {array.shape}, {array.ndim} axes, wanted 2: {index_hint(array, 'data')}"
            )
        if array.size > LONG:
            raise ShapeError(
                f"data has {array.size} entries, more than the {LONG} a table holds: show data[:8, :8]"
            )
        heads = range(1, array.shape[1] + 1) if columns is None else to_list(columns, "columns")
        heads = list(map(str, heads))
        if len(heads) != array.shape[1]:
            raise ShapeError(f"{len(heads)} column headers for {array.shape[1]} columns: give one per column")
        one = formatter(array, digits)
        cells = [[(one(x), True) for x in line] for line in array]
        rows = [str(n) for n in range(1, array.shape[0] + 1)] if rows is None else rows
    rows = None if rows is None else list(map(str, to_list(rows, "rows")))
    if rows is not None and len(rows) != len(cells):
        raise ShapeError(f"{len(rows)} row headers for {len(cells)} rows: give exactly one per row")
    return heads, cells, rows


def _column(entries, name, digits):
    entries = [entry.item() if hasattr(entry, "item") and np.ndim(entry) == 0 else entry for entry in entries]
    plain = [entry for entry in entries if isinstance(entry, (int, float)) and not isinstance(entry, bool)]
    one = formatter(
        np.asarray(plain, dtype=float if any(isinstance(x, float) for x in plain) else None), digits
    )
    made = []
    for entry in entries:
        if entry is None:
            made.append(("", True))
        elif isinstance(entry, (str, bool)):
            made.append((str(entry), bool(WRITTEN.fullmatch(str(entry)))))
        elif isinstance(entry, (int, float)):
            made.append((one(entry), True))
        elif isinstance(entry, (tuple, list)) or np.ndim(entry):
            array = entry if isinstance(entry, (tuple, list)) else to_numpy(entry, name)
            # a long vector would be a wall of digits: say what it is instead
            short = getattr(array, "size", len(array)) <= 16
            made.append((vector(tuple(array), digits) if short else summary(to_numpy(array), digits), True))
        else:
            made.append((str(entry), False))
    return made


def _table_html(heads, cells, rows, caption, corner, roles, landmark=True):
    def role(column):
        return f" attn-role-{roles[column]}" if column in roles else ""

    numeric = [all(is_number for _, is_number in column) for column in zip(*cells, strict=True)]
    numeric += [False] * (len(heads) - len(numeric))
    line = []
    if rows is not None:
        line.append(f'<th scope="col">{_escape(corner)}</th>' if corner else "<td></td>")
    for head, is_number in zip(heads, numeric, strict=True):
        classes = f"{'attn-number' if is_number else 'attn-words'}{role(head)}"
        line.append(f'<th scope="col" class="{classes}">{_bdi(head)}</th>')
    body = []
    for n, entries in enumerate(cells):
        row = [] if rows is None else [f'<th scope="row">{_bdi(rows[n])}</th>']
        for head, (words, is_number) in zip(heads, entries, strict=True):
            inside = _escape(words) if is_number else _bdi(words)
            kind = "attn-number" if is_number else "attn-words"
            # A sentence takes several lines; what is shorter stays in one.
            kind += " attn-sentence" if len(words) > SENTENCE else ""
            row.append(f'<td class="{kind}{role(head)}">{inside}</td>')
        body.append(f"<tr>{' '.join(row)}</tr>")
    named = f"<caption>{_escape(caption)}</caption>" if caption else ""
    # a region is a landmark: only what stands on its own and has a name is one
    where = (
        f'role="{"region" if caption and landmark else "group"}" aria-label="{_escape(caption or "table")}"'
    )
    return (
        f'<div class="attn-scroll" tabindex="0" {where}><table class="attn-table">{named}'
        f"<thead><tr>{' '.join(line)}</tr></thead><tbody>{' '.join(body)}</tbody></table></div>"
    )


def _table_text(heads, cells, rows, corner):
    lines = [[label(head) for head in heads]]
    lines += [[words if is_number else label(words) for words, is_number in row] for row in cells]
    flags = [all(row[at][1] for row in cells) for at in range(len(heads))]
    if rows is not None:
        lines = [[corner, *lines[0]]] + [
            [label(row), *line] for row, line in zip(rows, lines[1:], strict=True)
        ]
        flags = [False, *flags]
    widths = [max(len(line[at]) for line in lines) for at in range(len(flags))]
    return "\n".join(
        "  ".join(
            words.rjust(width) if flag else words.ljust(width)
            for words, width, flag in zip(line, widths, flags, strict=True)
        ).rstrip()
        for line in lines
    )


def folded_tables(pictures):
    """The numbers of each ``(numbers, rows, columns, title)``, folded away below the picture."""
    made = []
    for numbers, rows, columns, title in pictures:
        heads, cells, rows = _grid(numbers, rows, columns, 4)
        made.append(_table_html(heads, cells, rows, title, "", {}, landmark=False))
    inside = "".join(made)
    summary_line = "<summary>The numbers as a table</summary>"
    return f'<details class="attn-data">{summary_line}{inside}</details>' if made else ""


# --- the pipeline ---


def _role(role, letter):
    return f'<b class="attn-role-{role}">{letter}</b>'


_Q, _K, _V = _role("query", "Q"), _role("key", "K"), _role("value", "V")

# word: (symbol as HTML, as ASCII, shape on the worked example: T = 3, d = 8, h = 2, d_h = 4)
STEPS = {
    "x": ("X", "X", "3\u00d78"),
    "qkv": (f"{_Q} {_K} {_V}", "Q K V", "2\u00d7(3\u00d74)"),
    "scores": (f"{_Q}{_K}<sup>\u22a4</sup>", "QK^T", "3\u00d73"),
    "scale": ("\u00f7\u2009\u221ad<sub>h</sub>", "/ sqrt(d_h)", "3\u00d73"),
    "mask": ("+\u2009mask", "+ mask", "3\u00d73"),
    "softmax": ("softmax", "softmax", "3\u00d73"),
    "pv": (f"\u00d7\u2009{_V}", "x V", "3\u00d74"),
    "concat": ("concat", "concat", "3\u00d78"),
    "w_o": ("W<sub>O</sub>", "W_O", "3\u00d78"),
}


def pipeline(step=None):
    """The way from X to the output, with one step or several lit.

    Parameters
    ----------
    step : str or list of str, optional
        Of "x", "qkv", "scores", "scale", "mask", "softmax", "pv", "concat", "w_o".

    Returns
    -------
    Strip

    Raises
    ------
    AttnError
        If a word is not one of the nine.

    Examples
    --------
    >>> pipeline("scores")
    X -> Q K V -> [QK^T] -> / sqrt(d_h) -> + mask -> softmax -> x V -> concat -> W_O
    """
    lit = [] if step is None else [step] if isinstance(step, str) else to_list(step, "step")
    for word in lit:
        if not isinstance(word, str) or word not in STEPS:
            raise AttnError(f"no step is called {word!r}: use one of {', '.join(STEPS)}")
    items, words = [], []
    for word, (symbol, plain, shape) in STEPS.items():
        here = ' aria-current="step"' if word in lit else ""
        mark = '<span class="attn-mark" aria-hidden="true">\u25bc</span>' if word in lit else ""
        inside = f'<span class="attn-symbol">{symbol}</span> <span class="attn-shape">{shape}</span>'
        items.append(f"<li{here}>{mark}{inside}</li>")
        words.append(f"[{plain}]" if word in lit else plain)
    steps = f'<ol class="attn-pipeline" role="list" aria-label="The steps of attention">{"".join(items)}</ol>'
    return Strip(f'<div class="attn-strip">{steps}</div>', " -> ".join(words))


# --- source ---


def source(function):
    """The source of a function, read from its file, without its docstring.

    Parameters
    ----------
    function : function or class
        Written in Python, in a file.

    Returns
    -------
    Source
        HTML with highlighting (Pygments' classes; plain without Pygments), and the same as text.

    Raises
    ------
    AttnError
        If Python finds no source.

    Examples
    --------
    >>> print(source(_escape).text)
    def _escape(words):
        return html.escape(str(words))
    """
    try:
        code = textwrap.dedent(inspect.getsource(function))
        code = _without_docstring(code)
    except (OSError, TypeError, SyntaxError, AttributeError):  # a lambda in the middle of a line has no body
        name = getattr(function, "__name__", type(function).__name__)
        raise AttnError(
            f"no source found for {name}: give a function or class that is written in a file"
        ) from None
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        shown = f'<div class="attn-source highlight"><pre>{_escape(code)}</pre></div>'
    else:
        shown = highlight(code, PythonLexer(), HtmlFormatter(cssclass="attn-source highlight")).strip()
    return Source(shown, code)


def _without_docstring(code):
    """Cut the docstring's lines; every other line, comments too, stays as it is written."""
    node = ast.parse(code).body[0]
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    lines = code.splitlines()
    if is_docstring and len(node.body) > 1:
        rest = lines[first.end_lineno :]
        while rest and not rest[0].strip():
            rest = rest[1:]
        lines = lines[: first.lineno - 1] + rest
    return "\n".join(lines).rstrip()

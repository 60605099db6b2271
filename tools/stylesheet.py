"""Style sheets cut down to what a site's pages can use, and joined to one file for each page.

A theme brings rules for hundreds of things that a book does not have. A rule stays if one of its selectors
names only classes and ids that occur in a page or in a script; all others cannot match, and go.
"""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import tinycss2

NAMES = re.compile(r"""\b(?:class|id)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
WORDS = re.compile(r"[\w-]+")
LINK = re.compile(r'[ \t]*<link rel="stylesheet"[^>]*\bhref="([^"]*)"[^>]*>\n?')
PARTS = re.compile(r'\bdata-parts="([^"]*)"')
ADDRESS = re.compile(r"""url\(\s*(?:"([^"]*)"|'([^']*)'|([^)"']*?))\s*\)""")
GROUPS = ("media", "supports", "layer", "container")


def names_in_use(pages, scripts):
    """Every class and id of the pages, and every word of the scripts, which may set it as a class later.

    Parameters
    ----------
    pages, scripts : iterables of str

    Returns
    -------
    set of str
    """
    found = set()
    for page in pages:
        for value in NAMES.findall(page):
            found.update("".join(value).split())
    for script in scripts:
        found.update(WORDS.findall(script))
    return found


def lean(style, names):
    """A style sheet without comments, and without the rules that no class or id of `names` can reach.

    Raises
    ------
    ValueError
        If it cannot be read.
    """
    return "".join(_kept(tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True), names))


def _kept(rules, names):
    for rule in rules:
        if rule.type == "error":
            raise ValueError(f"line {rule.source_line}: {rule.message}")
        if rule.type == "qualified-rule":
            selectors = [part for part in _split(rule.prelude) if _reachable(part, names)]
            if selectors:
                heads = ",".join(tinycss2.serialize(part).strip() for part in selectors)
                yield f"{heads}{{{tinycss2.serialize(rule.content).strip()}}}\n"
        elif rule.lower_at_keyword in GROUPS and rule.content is not None:
            inside = "".join(
                _kept(tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True), names)
            )
            if inside:
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inside}}}\n"
        else:
            yield rule.serialize() + "\n"


def _split(prelude):
    """The selectors of a list; commas inside brackets do not part them."""
    parts = [[]]
    for token in prelude:
        if token == ",":
            parts.append([])
        elif token.type != "comment":
            parts[-1].append(token)
    return parts


def _reachable(selector, names):
    # What stands in brackets is left alone: `:not(.x)` asks for the absence of a name.
    asked = [token.value for token in selector if token.type == "hash"]
    asked += [
        name.value
        for dot, name in zip(selector, selector[1:], strict=False)
        if dot == "." and name.type == "ident"
    ]
    return all(name in names for name in asked)


def join(site):
    """Give each page of a built site one style sheet, which holds those that the page named, in their order.

    A phone waits for each of them in turn. The joined file's name has its digest, and the page keeps the list
    of parts: a later build that leaves a page alone still finds them.

    Parameters
    ----------
    site : Path
        The folder with the pages; its ``_static`` holds the style sheets.

    Raises
    ------
    FileNotFoundError
        If a page names a style sheet that is not there.
    ValueError
        If a style sheet imports another: that counts at the head of a file only.
    """
    static = site / "_static"
    styles, made = {}, {}
    for page in sorted(site.rglob("*.html")):
        html = page.read_text(encoding="utf-8")
        links = list(LINK.finditer(html))
        if not links:
            continue
        before = PARTS.search(links[0][0])
        named = [urlsplit(link[1]).path for link in links]
        names = tuple(before[1].split() if before else [name.partition("_static/")[2] for name in named])
        if names not in styles:
            styles[names] = "".join(_from_static(static / name, static) for name in names)
        style = styles[names]
        joined = f"site-{hashlib.sha256(style.encode()).hexdigest()[:10]}.css"
        made[joined] = style
        folder = named[0].partition("_static/")[0]
        link = f'  <link rel="stylesheet" href="{folder}_static/{joined}" data-parts="{" ".join(names)}">\n'
        start, end = links[0].span()
        page.write_text(html[:start] + link + LINK.sub("", html[end:]), encoding="utf-8")
    for old in static.glob("site-*.css"):
        if old.name not in made:
            old.unlink()
    for name, style in made.items():
        (static / name).write_text(style, encoding="utf-8")


def _from_static(path, static):
    """A style sheet's text, its addresses told from the folder `static`."""

    def moved(match):
        address = "".join(part or "" for part in match.groups())
        if urlsplit(address).scheme or address.startswith(("#", "/")):
            return match[0]
        return f'url("{Path(os.path.relpath(path.parent / address, static)).as_posix()}")'

    text = path.read_text(encoding="utf-8")
    if "@import" in text:
        raise ValueError(f"{path.name} imports another style sheet")
    return ADDRESS.sub(moved, text).rstrip() + "\n"

"""Style sheets cut down to what a site's pages can use.

A theme brings rules for hundreds of things that a book does not have. A rule stays if one of its selectors
names only classes and ids that occur in a page or in a script; all others cannot match, and go.
"""

import re

import tinycss2

NAMES = re.compile(r"""\b(?:class|id)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
WORDS = re.compile(r"[\w-]+")
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

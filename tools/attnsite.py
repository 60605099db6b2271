"""Sphinx extension of the book's site: formulas as MathML, folds without script, nothing from another host.

What it does, in the order of a build:

1. gives the pages attnlib's own style sheets (palette and ``attnlib.show``), read from the library;
2. turns formulas into MathML, folded admonitions into ``<details>``, and drops the style sheets that cell
   outputs carry for JupyterLab;
3. takes back what only a notebook needs (an exercise's heading), leads a citation to its entry, and gives
   each page a description, a notebook link, and only the scripts that it uses: the widgets' code goes to
   pages that have a widget;
4. lays attnlib's wheel beside the pages, so that a downloaded notebook can be run;
5. writes ``404.html``, removes theme files that nobody loads, and cuts the two fonts down to the signs in use
   and the theme's style sheets to the rules in use.
"""

import re
import sys
from pathlib import Path

import pack
from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from myst_nb.sphinx_ import HideCodeCellNode
from pybtex.plugin import find_plugin
from sphinx import addnodes
from sphinx.locale import admonitionlabels
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.util.nodes import make_refnode
from stylesheet import join, lean, names_in_use
from texmath import FONT, FormulaError, plain, to_mathml
from webfont import icon_rules, math_characters, subset

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).resolve().parent / "site_theme"
LOG = logging.getLogger(__name__)
REGION = re.compile(r'role="region" aria-label="([^"]*)"')
TRAIL = re.compile(r"[^\s\w(\[“‘]+|s\b|-\w+")
WIDGET = 'class="attn-widget"'
DESCRIPTION_LENGTH = 155
OWN_STYLES = ("palette.css", "show.css", "widgets.css", "book.css")
# Theme files that no page of this book asks for.
UNUSED = (
    "scripts/fontawesome.js*",
    "scripts/bootstrap.js*",
    "vendor/**/*.ttf",
    "vendor/**/fa-brands*",
    "**/*.map",
)
UNUSED += (
    "vendor/**/fa-regular*",
    "locales/**/*",
    "images/logo_*",
    "sbt-webpack-macros.html",
    "webpack-macros.html",
)
UNUSED += ("sphinx-thebe*", ".gitignore")


# Formulas


def _formula(translator, node, display):
    try:
        return to_mathml(node.astext(), display=display)
    except FormulaError as error:
        page = translator.builder.current_docname
        LOG.warning("formula %r: %s", node.astext(), error, location=(page, node.line), type="attnsite")
        return f'<code class="formula-error">{translator.encode(node.astext())}</code>'


def visit_math(translator, node):
    formula = _formula(translator, node, display=False)
    if node.get("trail"):
        formula = f'<span class="joined">{formula}{translator.encode(node["trail"])}</span>'
    translator.body.append(formula)
    raise nodes.SkipNode


def visit_math_block(translator, node):
    body = translator.body
    body.append(translator.starttag(node, "div", CLASS="math-block"))
    body.append('<div class="math-scroll" tabindex="0" role="group" aria-label="Formula">')
    body.append(_formula(translator, node, display=True) + "</div>")
    if node["number"]:
        body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, "Link to this formula")
        body.append("</span>")
    body.append("</div>\n")
    raise nodes.SkipNode


# What notebooks have otherwise


class Exercises(SphinxTransform):
    """`### Exercise 2`, which ends a fold in JupyterLab, is on a page the first words of the exercise."""

    default_priority = 400

    def apply(self, **_):
        for section in list(self.document.findall(nodes.section)):
            title, *rest = section.children
            if re.fullmatch(r"Exercise \d+", title.astext()):
                lead = nodes.strong("", title.astext() + ".")
                if not isinstance(rest[0], nodes.paragraph):
                    rest.insert(0, nodes.paragraph())
                rest[0].insert(0, [lead, nodes.Text(" ")])
                section.replace_self(rest)


class Downloads(SphinxTransform):
    """A link to a notebook that is no page offers the file."""

    default_priority = 400

    def apply(self, **_):
        for node in list(self.document.findall(addnodes.pending_xref)):
            page = node.get("reftarget")
            if node.get("refdomain") == "doc" and page not in self.env.found_docs:
                target = f"/{page}.ipynb"
                node.replace_self(addnodes.download_reference("", "", *node.children, reftarget=target))


class Citations(SphinxPostTransform):
    """A link to `bibliography.md#key` leads to the entry, whatever its id there, and says what it is."""

    default_priority = 4  # before MyST looks for headings of that name, and before the entries are made

    def run(self, **_):
        entries = {entry.key: entry for entry in self.env.get_domain("cite").citations}
        for node in list(self.document.findall(addnodes.pending_xref)):
            entry = entries.get(node.get("reftargetid"))
            if entry and node.get("reftarget") == entry.bibliography_key.docname:
                page, words = self.env.docname, node[0].deepcopy()
                title = entry.formatted_entry.text.render(find_plugin("pybtex.backends", "text")())
                node.replace_self(
                    make_refnode(self.app.builder, page, node["reftarget"], entry.citation_id, words, title)
                )


# Citations


def visit_citation(translator, node):
    """One item of the list of works; the role that docutils gives it is no longer one."""
    if not isinstance(node.previous_sibling(), nodes.citation):
        translator.body.append('<div role="list" class="citation-list">\n')
    translator.body.append(translator.starttag(node, "div", CLASS="citation", role="listitem"))


def depart_citation(translator, node):
    translator.body.append("</div>\n")
    if not isinstance(node.next_node(descend=False, siblings=True), nodes.citation):
        translator.body.append("</div>\n")


# Folds


class details(nodes.General, nodes.Element):
    """A part that the reader unfolds, with or without JavaScript."""


class summary(nodes.General, nodes.TextElement):
    """The line of a fold that stays visible."""


def visit_details(translator, node):
    translator.body.append(translator.starttag(node, "details", CLASS="fold"))


def visit_summary(translator, node):
    translator.body.append(translator.starttag(node, "summary", suffix=""))


class FoldAdmonitions(SphinxPostTransform):
    """``:class: dropdown`` on an admonition becomes a native fold."""

    default_priority = 400
    formats = ("html",)

    def run(self, **_):
        for node in list(self.document.findall(nodes.Admonition)):
            if "dropdown" not in node.get("classes", []):
                continue
            fold = details("", ids=node["ids"], names=node["names"])
            fold["classes"] = [name for name in node["classes"] if name != "dropdown"]
            children = list(node.children)
            line = summary()
            if children and isinstance(children[0], nodes.title):
                line += children.pop(0).children
            else:
                line += nodes.Text(admonitionlabels.get(node.tagname, node.tagname.capitalize()))
            fold += [line, *children]
            node.replace_self(fold)


def visit_hidden_cell(translator, node):
    """A cell with a ``hide-*`` tag: what stands on the fold is its name, open or closed."""
    line = node["prompt_show"]
    line = "Show the solution" if line == "Show the content" else line
    translator.body.append(
        f'<details class="fold hidden-cell"><summary>{translator.encode(line)}</summary>\n'
    )


def clean_outputs(app, doctree, docname):
    """Drop what outputs carry for other hosts, and let no two landmarks have one name."""
    from attnlib.show._style import bare

    names = set()

    def landmark(match):
        role = "group" if match[1] in names else "region"
        names.add(match[1])
        return f'role="{role}" aria-label="{match[1]}"'

    for node in list(doctree.findall(nodes.raw)):
        text = REGION.sub(landmark, bare(node.astext()))
        if text != node.astext():
            node.replace_self(nodes.raw(text, text, **node.attributes))


def join_punctuation(app, doctree, docname):
    """Keep a formula and the comma after it on one line."""
    if app.builder.format != "html":
        return
    for node in list(doctree.findall(nodes.math)):
        siblings = node.parent.children
        index = siblings.index(node) + 1
        after = siblings[index] if index < len(siblings) else None
        trail = TRAIL.match(after.astext()) if isinstance(after, nodes.Text) else None
        if trail:
            node["trail"] = trail[0]
            node.parent.replace(after, nodes.Text(after.astext()[len(trail[0]) :]))


def name_empty_headers(app, doctree, docname):
    """The corner of a Markdown table has no text; a header without a name is read as a blank."""
    for head in doctree.findall(nodes.thead):
        for cell in head.findall(nodes.entry):
            if not cell.astext().strip():
                cell.clear()
                cell += nodes.paragraph("", "", nodes.inline("", "Row", classes=["visually-hidden"]))


# Pages


def describe(doctree):
    """The first paragraph that is running text, as one line of at most 155 characters."""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):
            text = " ".join("".join(_words(paragraph)).split())
            if len(text) > DESCRIPTION_LENGTH:
                text = text[:DESCRIPTION_LENGTH].rsplit(" ", 1)[0].rstrip(",;:") + " …"
            if text:
                return text
    return ""


def _words(node):
    for child in node.children:
        if isinstance(child, nodes.math):
            try:
                yield plain(child.astext())
            except FormulaError:
                yield ""  # the page itself reports it
        elif isinstance(child, nodes.Text):
            yield child.astext()
        elif not isinstance(child, nodes.raw):
            yield from _words(child)


def fill_page(app, pagename, templatename, context, doctree):
    """Description, notebook link and scripts of one page."""
    if doctree is not None and 'name="description"' not in (context.get("metatags") or ""):
        context["attn_description"] = describe(doctree)
        if not context["attn_description"]:
            LOG.warning("no paragraph to describe the page with", location=pagename, type="attnsite")
    elif pagename == "search":
        context["attn_description"] = f"Search every page of {app.config.html_title}, without a network."
    if context.get("page_source_suffix") == ".ipynb":
        context["attn_notebook"] = context["pathto"](f"_sources/{context['sourcename']}", 1)
    body = context.get("body") or ""
    unused = set() if WIDGET in body else {"host.js", "widgets.css"}
    if "sd-tab-set" not in body:
        unused.add("design-tabs.js")
    if "<pre" not in body:
        unused |= {"clipboard.min.js", "copybutton.js"}
    # Scripts written into the page only serve a version menu and search-as-you-type, which this site has not.
    kept = [script for script in context["script_files"] if getattr(script, "filename", None)]
    kept = [script for script in kept if script.filename.rsplit("/", 1)[-1] not in unused]
    for script in kept:
        script.attributes["defer"] = "defer"
    context["script_files"] = kept
    context["css_files"] = [
        style for style in context["css_files"] if str(style.filename).rsplit("/", 1)[-1] not in unused
    ]


# Files


def write_library_styles(app):
    """Put attnlib's style sheets among the static files; the library keeps the only copy."""
    if app.builder.format != "html":
        return
    from attnlib import palette

    folder = Path(app.doctreedir) / "attnsite_static"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "palette.css").write_text(palette.css(), encoding="utf-8")
    styles = sorted(Path(palette.__file__).parent.rglob("show.css"))
    if styles:
        (folder / "show.css").write_bytes(styles[0].read_bytes())
    else:
        LOG.warning("attnlib has no show.css", type="attnsite")
    _write_widgets(folder / "widgets")
    app.config.html_static_path.append(str(folder))
    for name in ("palette.css", "show.css", "widgets/widgets.css", "book.css"):
        app.add_css_file(name, priority=900)
    app.add_js_file("book.js", priority=900)
    app.add_js_file("widgets/host.js", priority=900)


def _write_widgets(folder):
    """Each widget as the module that JupyterLab loads too, and as a script for pages opened as files."""
    from attnlib import widgets
    from attnlib.widgets._base import read

    folder.mkdir(exist_ok=True)
    for name in widgets.NAMES:
        (folder / f"{name}.js").write_text(widgets.module(name), encoding="utf-8")
        (folder / f"{name}.plain.js").write_text(widgets.plain_script(name), encoding="utf-8")
    for name in ("host.js", "widgets.css"):
        (folder / name).write_text(read(name), encoding="utf-8")


def finish(app, exception):
    if exception or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pack.build(out)
    _write_not_found(app, out)
    _write_front_door(app, out)
    for pattern in UNUSED:
        for path in (out / "_static").glob(pattern):
            if path.is_file():
                path.unlink()
    _cut_fonts(out)
    _cut_styles(out)


def _write_not_found(app, out):
    """A page for any missing address: it is served at any depth, so every link starts at the site's root."""
    from attnlib import palette

    base = "/" + app.config.attnsite_base_path.strip("/") + "/"
    site_map = app.config.external_site_map
    parts = [
        {
            "caption": tree.caption or "Chapters",
            "pages": [
                {"link": app.builder.get_target_uri(str(item)), "title": app.env.titles[str(item)].astext()}
                for item in tree.items
                if str(item) in app.env.titles
            ],
        }
        for tree in site_map.root.subtrees
    ]
    page = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=False).get_template("404.html")
    html = page.render(
        base=base.replace("//", "/"),
        home=app.builder.get_target_uri(app.config.root_doc),
        title=app.config.html_title,
        palette=palette.css(["ink", "paper", "masked"]).splitlines()[0] + "\n",
        parts=parts,
    )
    (out / "404.html").write_text(html, encoding="utf-8")


def _write_front_door(app, out):
    """The site's root leads to the first page, which lives one folder down."""
    home = app.builder.get_target_uri(app.config.root_doc)
    if home == "index.html":
        return
    title = app.config.html_title
    html = (
        f'<!DOCTYPE html>\n<html lang="{app.config.language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="description" content="{title}: go to the first page.">\n'
        f'<meta http-equiv="refresh" content="0; url={home}">\n<link rel="canonical" href="{home}">\n'
        f"<title>{title}</title>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f'<p><a href="{home}">Go to the first page</a></p>\n</main>\n</body>\n</html>\n'
    )
    (out / "index.html").write_text(html, encoding="utf-8")


def _cut_fonts(out):
    static = out / "_static"
    pages = [path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.html"))]
    subset(FONT, math_characters(pages), static / "stix-two-math.woff2")
    names = set(re.findall(r"\bfa-[a-z-]+", " ".join(pages)))
    style = static / "styles" / "pydata-sphinx-theme.css"
    text, icons = icon_rules(style.read_text(encoding="utf-8"), names)
    style.write_text(text, encoding="utf-8")
    solid = static / "vendor/fontawesome/webfonts/fa-solid-900.woff2"
    subset(solid, icons, solid)


def _cut_styles(out):
    """A theme's rules for what no page and no script has are most of it, and each costs time on a phone."""
    static = out / "_static"
    scripts = {path: path.read_text(encoding="utf-8") for path in static.rglob("*.js")}
    pages = (path.read_text(encoding="utf-8") for path in out.rglob("*.html"))
    names = names_in_use(pages, scripts.values())
    for path in static.rglob("*.css"):
        if path.name not in OWN_STYLES and not path.name.startswith("site-"):
            path.write_text(lean(path.read_text(encoding="utf-8"), names), encoding="utf-8")
    join(out)
    for path, text in scripts.items():
        path.write_text(re.sub(r"//# sourceMappingURL=.*", "", text), encoding="utf-8")


def setup(app):
    # attnlib is read from this checkout; the small environment of the site does not install it.
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    app.add_config_value("attnsite_base_path", "/", "html", [str])
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.add_node(details, html=(visit_details, lambda translator, _: translator.body.append("</details>\n")))
    app.add_node(summary, html=(visit_summary, lambda translator, _: translator.body.append("</summary>\n")))
    app.add_node(
        HideCodeCellNode,
        override=True,
        html=(visit_hidden_cell, lambda translator, _: translator.body.append("</details>\n")),
    )
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    app.add_transform(Exercises)
    app.add_transform(Downloads)
    app.add_post_transform(Citations)
    app.add_post_transform(FoldAdmonitions)
    app.connect("builder-inited", write_library_styles)
    app.connect("doctree-resolved", clean_outputs)
    app.connect("doctree-resolved", join_punctuation)
    app.connect("doctree-resolved", name_empty_headers)
    # After the theme's own handlers, which add scripts.
    app.connect("html-page-context", fill_page, priority=900)
    # After the theme, which writes the colours of code at the end.
    app.connect("build-finished", finish, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

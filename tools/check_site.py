"""Checks over the built HTML: what Sphinx does not look at, without a browser, in a second or two.

Run ``python tools/check_site.py [_build/html]``: a line for each fault, exit status 1 if there is one. Every
check is a function from text or a folder to a list of faults, so that tests can plant a fault in few words.
"""

import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
PAGE_BUDGET = 400 * 1024  # bytes, gzipped, with everything that the page loads
REMOTE = re.compile(r"^(?:https?:)?//", re.IGNORECASE)
LOADING_LINKS = {
    "stylesheet",
    "preload",
    "modulepreload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "icon",
    "manifest",
}
CSS_URL = re.compile(r"url\(\s*[\"']?([^\"')]+)[\"']?\s*\)|@import\s+[\"']([^\"']+)[\"']")
JS_LOAD = re.compile(
    r"(?:\bimport\s*\(?|\bfrom|\bfetch\(|importScripts\(|\.src\s*=|\bnew Worker\()"
    r"\s*[\"'`]((?:https?:)?//[^\"'`]+)"
)
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|tmp|home|Users)/[\w.]|[A-Za-z]:\\{1,2}Users\b")
TEX = re.compile(r"\\[A-Za-z]{2,}|\\[()\[\]]|\$[^$\s][^$\n]*\$")
# An error of the library may be shown as a lesson; one that was raised comes with its traceback.
FAILURE = re.compile(r"Traceback \(most recent call last\)|\b(?!Attn|Shape|Mask)[A-Z]\w*(?:Error|Warning):")


def parse(html):
    return BeautifulSoup(html, "html.parser")


# One page


def remote_loads(page):
    """Addresses on other hosts that opening the page would ask for."""
    found = []
    for tag in page.find_all(
        ["script", "img", "iframe", "source", "video", "audio", "embed", "track", "input"]
    ):
        found += [
            tag.get("src"),
            *(part.split()[0] for part in (tag.get("srcset") or "").split(",") if part.split()),
        ]
    for tag in page.find_all(["object", "image", "use", "form"]):
        found += [tag.get(name) for name in ("data", "href", "xlink:href", "action")]
    for tag in page.find_all("link", href=True):
        if LOADING_LINKS & {word.lower() for word in tag.get("rel", [])}:
            found.append(tag["href"])
    for tag in page.find_all("meta", attrs={"http-equiv": re.compile("refresh", re.I)}):
        found.append(tag.get("content", "").partition("=")[2])
    for tag in page.find_all(True, style=True):
        found += css_addresses(tag["style"])
    for tag in page.find_all("style"):
        found += css_addresses(tag.get_text())
    for tag in page.find_all("script", src=False):
        found += JS_LOAD.findall(tag.get_text())
    return [
        f"loads from another host: {address}"
        for address in found
        if address and REMOTE.match(address.strip())
    ]


def css_addresses(css):
    return [one or two for one, two in CSS_URL.findall(css)]


def inline_scripts(page):
    """Scripts written into the page: a strict content policy forbids them."""
    faults = [f"inline script: {tag.get_text()[:40]!r}" for tag in page.find_all("script", src=False)]
    for tag in page.find_all(True):
        faults += [f"inline handler {name} on <{tag.name}>" for name in tag.attrs if name.startswith("on")]
    return faults


def missing_alternatives(page):
    faults = []
    for tag in page.find_all("img"):
        decorative = tag.get("alt") == "" and tag.find_parent("a", class_="logo")
        if not (tag.get("alt") or "").strip() and not decorative:
            faults.append(f"image without alt: {tag.get('src', '')[:60]}")
    for tag in page.find_all("svg"):
        hidden = tag.get("aria-hidden") == "true" or tag.find_parent(attrs={"aria-hidden": "true"})
        inside_button = tag.find_parent("button") or tag.find_parent("summary")
        if tag.get("role") == "img" and not (tag.get("aria-label") or "").strip():
            faults.append("svg role=img without aria-label")
        elif tag.get("role") != "img" and not hidden and not inside_button:
            faults.append("svg that is neither role=img nor hidden")
    return faults


def failed_outputs(page):
    faults = []
    for output in page.select(".cell_output, .output"):
        match = FAILURE.search(output.get_text())
        if match:
            faults.append(f"output shows a failure: {match[0]}")
    faults += ["output on stderr" for _ in page.select(".output.stderr")]
    return sorted(set(faults))


def raw_tex(page):
    """TeX that was not turned into MathML, and formulas that went wrong."""
    faults = ["MathML merror" for _ in page.find_all("merror")]
    faults += [f"formula not converted: {tag.get_text()}" for tag in page.select(".formula-error")]
    faults += ["empty formula" for tag in page.find_all("math") if not tag.get_text(strip=True)]
    main = parse(str(page.find("main") or page))
    # Code, pictures and token labels hold backslashes and dollar signs as they are.
    for tag in main.find_all(["pre", "code", "script", "style", "svg", "bdi", "kbd"]):
        tag.decompose()
    title = page.title.get_text() if page.title else ""
    for text in [title, *main.stripped_strings]:
        faults += [f"raw TeX in the text: {match}" for match in TEX.findall(text)]
    return faults


def headings(page):
    """Exactly one h1, and no level left out on the way down."""
    levels = [int(tag.name[1]) for tag in page.find_all(re.compile(r"^h[1-6]$"))]
    faults = [] if levels.count(1) == 1 else [f"{levels.count(1)} h1 elements, want 1"]
    for before, after in zip([0, *levels], levels, strict=False):
        if after > before + 1:
            faults.append(f"heading level jumps from h{before} to h{after}")
    return faults


def head(page):
    faults = []
    if not page.html or page.html.get("lang") != "en":
        faults.append("html has no lang=en")
    if not page.title or not page.title.get_text(strip=True):
        faults.append("no title")
    descriptions = [
        tag.get("content", "").strip() for tag in page.find_all("meta", attrs={"name": "description"})
    ]
    if len(descriptions) != 1 or not 10 <= len(descriptions[0]) <= 200:
        faults.append(f"want one description of 10 to 200 characters, have {descriptions}")
    return faults


def repeated_ids(page):
    counts = Counter(tag["id"] for tag in page.find_all(True, id=True))
    return [f"id used {count} times: {name}" for name, count in counts.items() if count > 1]


def machine_paths(text):
    return [f"path of a machine: {match}" for match in sorted(set(MACHINE_PATH.findall(text)))]


def output_styles(page):
    return ["style sheet of an output left in the page" for _ in page.select("style.attn-style")]


def page_faults(html):
    """All faults of one page, from its text alone."""
    page = parse(html)
    checks = (remote_loads, inline_scripts, missing_alternatives, failed_outputs, raw_tex, headings, head)
    faults = [fault for check in (*checks, repeated_ids, output_styles) for fault in check(page)]
    return faults + machine_paths(html)


# The whole site


def contents(toc):
    """Page names in reading order, from a parsed ``_toc.yml``."""
    chapters = [item["file"] for part in toc.get("parts", [toc]) for item in part["chapters"]]
    return [toc["root"], *chapters]


def read_contents(root=ROOT):
    return contents(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))


def read_pages(site):
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(site.rglob("*.html"))
    }


def _target(site, name, address):
    """The file and fragment that an internal address on a page leads to."""
    parts = urlsplit(address)
    path = unquote(parts.path)
    if path.startswith("/"):
        file = site / path.lstrip("/")
    else:
        file = (site / name).parent / path if path else site / name
    return (file / "index.html" if file.is_dir() else file).resolve(), unquote(parts.fragment)


def dead_links(site, pages):
    """Internal links, images, styles and scripts that lead nowhere, and anchors that do not exist."""
    parsed = {(site / name).resolve(): (name, parse(html)) for name, html in pages.items()}
    ids = {
        file: {
            tag.get("id") or tag.get("name")
            for tag in page.find_all(True)
            if tag.get("id") or tag.get("name")
        }
        for file, (_, page) in parsed.items()
    }
    faults = []
    for name, page in parsed.values():
        for tag in page.find_all(["a", "link", "img", "script", "source", "form"]):
            address = tag.get("href") or tag.get("src") or tag.get("action") or ""
            if (
                not address
                or re.match(r"^[a-z][a-z0-9+.-]*:|^//", address, re.I)
                or tag.get("rel") == ["canonical"]
            ):
                continue
            file, fragment = _target(site, name, address)
            if not file.is_file():
                faults.append(f"{name}: leads nowhere: {address}")
            elif fragment and file in ids and fragment not in ids[file]:
                faults.append(f"{name}: no such anchor: {address}")
    return faults


def asset_faults(site):
    """Style sheets and scripts that load from another host or from a file that is missing."""
    faults = []
    for file in sorted((site / "_static").rglob("*.css")):
        for address in css_addresses(file.read_text(encoding="utf-8")):
            if address.startswith(("data:", "#")):
                continue
            if REMOTE.match(address):
                faults.append(f"{file.name}: loads from another host: {address}")
            elif not (file.parent / unquote(urlsplit(address).path)).is_file():
                faults.append(f"{file.name}: leads nowhere: {address}")
    for file in sorted(site.rglob("*.js")):
        faults += [
            f"{file.name}: loads from another host: {a}"
            for a in JS_LOAD.findall(file.read_text(encoding="utf-8"))
        ]
    return faults


def contents_faults(pages, names):
    """Every page of the contents list is there and shows the same list and the right neighbours."""
    faults, lists = [], {}
    for index, name in enumerate(names):
        file = f"{name}.html"
        if file not in pages:
            faults.append(f"{file}: missing")
            continue
        page = parse(pages[file])
        nav = page.select_one("nav.bd-links")
        if nav is None:
            faults.append(f"{file}: no contents list")
            continue
        here = Path("/" + file)
        lists[file] = [
            (link.get_text(" ", strip=True), str(_join(here, link["href"])))
            for link in nav.select("a.reference")
        ]
        shown = [address.removesuffix(".html").lstrip("/") for _, address in lists[file]]
        if shown != names:
            faults.append(f"{file}: contents list has {len(shown)} pages in another order than _toc.yml")
        for rel, other in (("prev", index - 1), ("next", index + 1)):
            want = f"/{names[other]}.html" if 0 <= other < len(names) else None
            link = page.select_one(f"a[rel~={rel}]")
            have = str(_join(here, link["href"])) if link else None
            if have != want:
                faults.append(f"{file}: {rel} leads to {have}, want {want}")
    counts = Counter(map(tuple, lists.values()))
    if len(counts) > 1:
        common = counts.most_common(1)[0][0]
        faults += [
            f"{file}: another contents list" for file, shown in lists.items() if tuple(shown) != common
        ]
    return faults


def _join(here, address):
    path = urlsplit(address).path
    parts = list(here.parent.parts) if path else list(here.parts)
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return Path(*parts)


def notebook_faults(site, pages, names, root=ROOT):
    """Each chapter offers its notebook, which is valid and names no machine."""
    faults = []
    for name in names:
        if not (root / f"{name}.ipynb").is_file() or f"{name}.html" not in pages:
            continue
        link = parse(pages[f"{name}.html"]).select_one("a.notebook-button")
        if link is None:
            faults.append(f"{name}: no notebook to download")
            continue
        file, _ = _target(site, f"{name}.html", link["href"])
        try:
            text = file.read_text(encoding="utf-8")
            if json.loads(text)["nbformat"] < 4:
                faults.append(f"{name}: notebook of an old format")
        except (OSError, ValueError, KeyError, TypeError) as error:
            faults.append(f"{name}: notebook cannot be read: {type(error).__name__}")
            continue
        faults += [f"{name}: notebook holds a {fault}" for fault in machine_paths(text)]
    return faults


def weights(site, pages):
    """Gzipped bytes of each page with the style sheets, scripts, pictures and fonts that it can load."""
    sizes = {}

    def packed(file):
        if file not in sizes:
            sizes[file] = len(gzip.compress(file.read_bytes(), 6))
        return sizes[file]

    result = {}
    for name, html in pages.items():
        todo, seen = [site / name], set()
        page = parse(html)
        for tag in page.find_all(["script", "link", "img"]):
            address = tag.get("src") or (tag.get("href") if LOADING_LINKS & set(tag.get("rel", [])) else None)
            if address and not REMOTE.match(address) and not address.startswith("data:"):
                todo.append(_target(site, name, address)[0])
        while todo:
            file = todo.pop().resolve()
            if file in seen or not file.is_file():
                continue
            seen.add(file)
            if file.suffix == ".css":
                for address in css_addresses(file.read_text(encoding="utf-8")):
                    if not address.startswith(("data:", "#")) and not REMOTE.match(address):
                        todo.append(file.parent / unquote(urlsplit(address).path))
        result[name] = sum(packed(file) for file in seen)
    return result


def site_faults(site, root=ROOT):
    """All faults of a built site."""
    pages = read_pages(site)
    names = read_contents(root)
    faults = [f"{name}: {fault}" for name, html in pages.items() for fault in page_faults(html)]
    faults += contents_faults(pages, names) + dead_links(site, pages) + asset_faults(site)
    faults += notebook_faults(site, pages, names, root)
    faults += [
        f"{name}: {size / 1024:.0f} KiB gzipped, at most {PAGE_BUDGET // 1024}"
        for name, size in weights(site, pages).items()
        if size > PAGE_BUDGET
    ]
    for name in ("404.html", "search.html", "index.html"):
        if name not in pages:
            faults.append(f"{name}: missing")
    return faults


def main(arguments):
    site = Path(arguments[0]) if arguments else ROOT / "_build" / "html"
    if not site.is_dir():
        print(f"no site at {site}: build it first (make book)")
        return 1
    faults = site_faults(site)
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults in {len(list(site.rglob('*.html')))} pages")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

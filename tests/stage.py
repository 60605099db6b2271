"""A bare page with one widget on it, served under a strict content policy, for the tests of the widgets."""

import contextlib
import functools
import http.server
import json
import threading

import numpy as np

from attnlib import widgets
from attnlib.show._style import bare
from attnlib.widgets import _base

# No inline script, no inline style, no other host: what our own parts must live with.
POLICY = "default-src 'self'"
PAGE = """<!doctype html>
<html lang="en" data-theme="{scheme}"><head><meta charset="utf-8"><title>Stage</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="stage.css"><script src="host.js" defer></script></head>
<body><main><h1>Stage</h1>{widget}</main></body></html>"""
STYLE = """html { background: var(--attn-paper); color: var(--attn-ink); }
html[data-theme="dark"] { color-scheme: dark; }
body { font: 16px/1.6 "Liberation Sans", sans-serif; max-width: 44rem; margin: auto; padding: 0 1rem; }
"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_):
        pass


class Stage:
    """Puts widgets on a page in Chromium; see the fixture ``stage``."""

    def __init__(self, browser, folder, address):
        self.browser, self.folder, self.address = browser, folder, address
        self.faults, self.contexts = [], []

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def open(self, widget, *, width=900, scheme="light", script=True, link="", arithmetic=False):
        """Show `widget`; returns the Playwright page when the widget has started."""
        for name in widgets.NAMES:
            with contextlib.suppress(FileNotFoundError):
                self.write(f"{name}.js", widgets.module(name))
        self.write("host.js", _base.read("host.js"))
        self.write("stage.css", _base.style() + STYLE)
        html = bare(widget._repr_mimebundle_()["text/html"]) if widget else ""
        self.write("index.html", PAGE.format(scheme=scheme, widget=html))
        if arithmetic:
            self.write("arith.js", _base.read("arith.js"))
            self.write("look.js", _base.read("look.js"))
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.faults.append(said.text))
        page.route(
            lambda url: not url.startswith(self.address),
            lambda route: (self.faults.append(f"asked {route.request.url}"), route.abort()),
        )
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
        page.goto(f"{self.address}/index.html{link}")
        if widget and script:
            page.locator(".attn-widget.attn-started").wait_for()
        return page


def result(page):
    """What the widget would tell Python."""
    return page.evaluate("document.querySelector('.attn-widget').model.get('result')")


def state(page):
    return page.evaluate("document.querySelector('.attn-widget').model.get('state')")


def settle(page):
    """Wait until the frame after the last input has been drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@contextlib.contextmanager
def served(folder):
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def link(name, content):
    """The address part that carries `content` (anything JSON can say, or raw text) to the widget `name`."""
    import base64

    text = content if isinstance(content, str) else json.dumps(content)
    return f"#{name}=" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


BOUND = 1e-9  # both sides are float64; only the order of sums and the last digit of exp may differ


def same(got, wanted):
    """Numbers of the browser against numbers of Python; infinities must be the same, a NaN never is."""
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    assert got.shape == wanted.shape
    with np.errstate(invalid="ignore"):  # inf - inf, where both are the same infinity
        equal = (got == wanted) | (np.abs(got - wanted) <= BOUND)
    assert equal.all(), f"{got} is not {wanted}"


def call(page, expression, *arguments, module="arith"):
    """The value of a JavaScript function of (the module, arguments): arrays go over as lists."""
    plain = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
    return page.evaluate(f"async (given) => ({expression})(await import('./{module}.js'), ...given)", plain)

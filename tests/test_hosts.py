"""Outputs in the pages of their hosts: whatever says that a page is dark, every text can be read.

The pages are imitated: what a host sets on its page, its ground and its ink. The real JupyterLab is opened in
test_widgets_jupyterlab.py.
"""

import io
import urllib.parse

import pytest
from PIL import Image
from test_show import line_plot

from attnlib import core, palette, show, widgets
from attnlib.examples import three_tokens

pytestmark = pytest.mark.browser

LAB, CODE = "--jp-layout-color0", "--vscode-editor-background"
FOLLOWS = {"style": "color-scheme: light dark"}


def code(kind):
    older = " vscode-high-contrast" if kind == "high-contrast-light" else ""
    return {"class": f"vscode-{kind}{older}", "data-vscode-theme-kind": f"vscode-{kind}"}


# What it sets on html and body, its name for its ground, ground and ink, the machine's theme, the side meant.
HOSTS = {
    "VS Code dark": ({}, code("dark"), CODE, "#1f1f1f", "#cccccc", "light", 1),
    "VS Code light": ({}, code("light"), CODE, "#ffffff", "#3b3b3b", "dark", 0),
    "VS Code high contrast": ({}, code("high-contrast"), CODE, "#000000", "#ffffff", "light", 1),
    "VS Code high contrast light": ({}, code("high-contrast-light"), CODE, "#ffffff", "#292929", "dark", 0),
    "Colab dark": ({"theme": "dark"}, {}, "", "#383838", "#e3e3e3", "light", 1),
    "Colab light": ({"theme": "light"}, {}, "", "#ffffff", "#1f1f1f", "dark", 0),
    "JupyterLab dark": ({}, {"data-jp-theme-light": "false"}, LAB, "#111111", "#ffffff", "light", 1),
    "JupyterLab light": ({}, {"data-jp-theme-light": "true"}, LAB, "#ffffff", "#212121", "dark", 0),
    "page that follows a dark machine": (FOLLOWS, {}, "", "Canvas", "CanvasText", "dark", 1),
    "white page on a dark machine": ({}, {}, "", "#ffffff", "#000000", "dark", 0),
    "white page": ({}, {}, "", "#ffffff", "#000000", "light", 0),
}

# Every visible text with its contrast, from computed styles: its colour over all that is painted below it.
MEASURE = """(root) => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = {};
  const rgba = (colour) => [...(known[colour] ??= read(colour))];
  const read = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = '#000';
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => below.map((x, n) => (n < 3 ? top[n] * top[3] + x * (1 - top[3]) : 1));
  const linear = (x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4);
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]) + 0.05;
  const opacity = (e) => (e ? Number(getComputedStyle(e).opacity) * opacity(e.parentElement) : 1);
  const canvas = document.createElement('i');
  canvas.style.color = 'Canvas';
  document.documentElement.append(canvas);
  const blank = rgba(getComputedStyle(canvas).color);
  canvas.remove();
  // All colours that a thing may paint at a place: a hatched one has two.
  const paints = (e) => {
    if (!(e instanceof SVGElement) || e.tagName === 'svg') return [rgba(getComputedStyle(e).backgroundColor)];
    const style = getComputedStyle(e);
    const pattern = /url\\("?#([^")]+)/.exec(style.fill);
    if (pattern)
      return [...document.getElementById(pattern[1]).querySelectorAll('*')]
        .flatMap((part) => [getComputedStyle(part).fill, getComputedStyle(part).stroke])
        .filter((c) => c !== 'none')
        .map(rgba);
    if (style.fill === 'none' || ['text', 'g', 'image', 'line'].includes(e.tagName)) return [[0, 0, 0, 0]];
    const own = rgba(style.fill);
    own[3] *= Number(style.fillOpacity) * opacity(e);
    return [own];
  };
  const found = [];
  const judge = (element, box, words) => {
    const style = getComputedStyle(element);
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    let stack = document.elementsFromPoint(x, y);
    const at = stack.indexOf(element);
    if (at < 0) for (let e = ((stack = []), element); e; e = e.parentElement) stack.push(e);
    else stack = stack.slice(at);
    let grounds = [blank];
    for (const e of stack.reverse()) {
      const layers = paints(e);
      if (e === element && e instanceof SVGElement) continue;
      grounds = grounds.flatMap((ground) => layers.map((layer) => over(layer, ground)));
    }
    // A rim of paper around the letters is what they stand on.
    if (style.paintOrder.startsWith('stroke') && style.stroke !== 'none') grounds = [rgba(style.stroke)];
    const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
    ink[3] *= opacity(element);
    for (const ground of grounds) {
      const [a, b] = [light(over(ink, ground)), light(ground)].sort((p, q) => q - p);
      found.push([a / b, words.slice(0, 30), `${element.tagName} ${element.className}`, `${ink}, ${ground}`]);
    }
  };
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest('style, script, title, .attn-unseen, :disabled')) continue;
    if (!parent.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width > 1) judge(parent, box, node.data.trim());
  }
  for (const field of root.querySelectorAll('input[type=text], textarea'))
    if (field.checkVisibility() && !field.disabled) judge(field, field.getBoundingClientRect(), field.value);
  return found;
}"""


def outputs():
    t = three_tokens()
    steps = core.attention_steps(*t.head(1), is_causal=True)
    tokens = {"rows": t.tokens, "cols": t.tokens}
    return [
        show.pipeline(["scores", "mask"]),
        show.table({"v": [(1, 0.5)] * 3, "n": [1, 2, 3]}, rows=t.tokens, roles={"v": "value", "n": "query"}),
        show.source(core.softmax),
        show.heatmap([steps.masked, steps.scaled], outline=[(0, 0)], sums=True, caption="a", **tokens),
        show.heatmap(steps.weights, kind="weights", caption="b", **tokens),
        line_plot(),
    ]


def readable(page, where, root="document.body"):
    found = page.evaluate(f"() => ({MEASURE})({root})")
    assert found, where
    bad = [entry for entry in found if entry[0] < 4.5]
    assert bad == [], f"{where}: {sorted(bad)[:8]}"
    return len(found), min(entry[0] for entry in found)


def blank(browser, height):
    page = browser.new_page(viewport={"width": 1000, "height": height})
    page.set_content("<!doctype html><html><head><style id=host></style></head><body></body></html>")
    return page


def move_to(page, host):
    """Make the page that of `host`; returns which side of the palette is meant."""
    html, body, name, ground, ink, machine, side = HOSTS[host]
    page.emulate_media(color_scheme=machine)
    own = f"html {{ {f'{name}: {ground};' if name else ''} }}"
    page.evaluate(
        """([html, body, style]) => {
          for (const [element, wanted] of [[document.documentElement, html], [document.body, body]]) {
            for (const { name } of [...element.attributes]) element.removeAttribute(name);
            for (const [name, value] of Object.entries(wanted)) element.setAttribute(name, value);
          }
          document.getElementById('host').textContent = style;
        }""",
        [html, body, f"{own} body {{ background: {ground}; color: {ink}; }}"],
    )
    return side


@pytest.fixture(scope="module")
def carried():
    return [one._repr_mimebundle_()["text/html"] for one in outputs()]


@pytest.fixture(scope="module")
def output_page(browser, carried):
    """Outputs as notebooks put them into their page, with nothing else."""
    page = blank(browser, 2500)
    for html in carried:
        page.evaluate("(html) => document.body.insertAdjacentHTML('beforeend', `<div>${html}</div>`)", html)
    yield page
    page.close()


@pytest.fixture(scope="module")
def widget_page(browser):
    """Every widget, started as anywidget starts it, with nothing else on the page."""
    page = blank(browser, 16_000)
    for name in widgets.NAMES:
        widget = getattr(widgets, name)()
        page.add_style_tag(content=widget._css)
        page.add_script_tag(content=widgets.plain_script(name))
        page.evaluate(
            """([name, state]) => {
              const nothing = () => {};
              const get = (key) => (key === 'state' ? state : {});
              const model = { get, set: nothing, save_changes: nothing, on: nothing, off: nothing };
              const el = document.createElement('div');
              document.body.append(el);
              attnWidgets[name].render({ model, el });
            }""",
            [name, widget.state],
        )
    page.evaluate("() => document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    yield page
    page.close()


@pytest.mark.parametrize("host", HOSTS)
def test_every_output_can_be_read(output_page, host):
    side = move_to(output_page, host)
    readable(output_page, host)
    assert output_page.locator("img.attn-image").count() == 3
    # A picture stands on paper of the theme that its host names, else on white; its inks are measured below.
    named = palette.PAGE["paper"][0 if "page" in host else side]
    assert {corner(image) for image in output_page.locator("img.attn-image").all()} == {named}
    # Where the host names its ground, nothing glows at the edges of a box that scrolls.
    painted = output_page.locator(".attn-scroll").first.evaluate("(e) => getComputedStyle(e).backgroundImage")
    assert not HOSTS[host][2] or rgb(HOSTS[host][3]) in painted


@pytest.mark.parametrize("host", HOSTS)
def test_every_widget_can_be_read_without_any_other_output(widget_page, host):
    """B2: in a notebook that holds widgets and nothing else."""
    side = move_to(widget_page, host)
    readable(widget_page, host)
    bar = widget_page.locator(".attn-bars [class^=attn-role-]").first
    role = bar.get_attribute("class").removeprefix("attn-role-")
    assert bar.evaluate("(e) => getComputedStyle(e).color") == rgb(palette.ROLES[role][side])


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[n : n + 2], 16)) for n in (1, 3, 5))})"


def corner(image):
    pixels = Image.open(io.BytesIO(image.screenshot())).convert("RGB")
    return "#" + "".join(f"{part:02x}" for part in pixels.getpixel((2, 2)))


@pytest.mark.parametrize("machine", ["light", "dark"])
def test_pictures_can_be_read_in_both_of_their_themes(browser, carried, machine):
    """As a document of its own an image follows the machine, as it follows its page where it is an image."""
    page = browser.new_page(viewport={"width": 1000, "height": 1000}, color_scheme=machine)
    texts = 0
    for html in carried:
        for part in html.split("data:image/svg+xml,")[1:]:
            svg = urllib.parse.unquote(part.split("'", 1)[0])
            page.set_content(f"<html style='color-scheme: light dark'><body>{svg}</body></html>")
            texts += readable(page, f"{machine}: {svg[:80]}", "document.querySelector('svg')")[0]
    assert texts > 60
    page.close()

"""What every widget must hold, whatever it shows: called by the tests of the single widgets."""

import functools
from pathlib import Path

from stage import link, settle, state

DEFAULT = "could not be used; this is the default"


def said(page):
    """The widget's sentence, without the marks that keep a token's direction to itself."""
    return page.locator(".attn-sentence").inner_text().replace("\u2068", "").replace("\u2069", "")


@functools.cache
def axe_source():
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def axe_clean(page):
    page.evaluate(axe_source())
    found = page.evaluate("async () => (await axe.run(document)).violations")
    faults = [(v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in found]
    assert faults == []


def fits(page):
    """Nothing scrolls sideways but what has its own box; every control is large enough to be hit."""
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    small = page.evaluate(
        """() => [...document.querySelectorAll('.attn-live :is(button, input, label, summary, [tabindex="0"])'
        )]
        .filter((e) => e.offsetParent && !(e.matches('input') && e.closest('label')))
        .map((e) => [e.outerHTML.slice(0, 80), e.getBoundingClientRect()])
        .filter(([, box]) => box.width < 24 || box.height < 24).map(([html]) => html)"""
    )
    assert small == []


def copied_link(page):
    """The part of the address that "Copy link" gives, where the clipboard is closed."""
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('closed')); }")
    page.get_by_role("button", name="Copy link").click()
    field = page.get_by_label("Link to this state")
    field.wait_for()
    return "#" + field.input_value().split("#")[1]


def visit(page, hash_):
    page.evaluate("(hash) => { location.hash = hash; }", hash_)
    page.reload()
    page.locator(".attn-widget.attn-started").wait_for()
    settle(page)


# Renders the widget anew under another address, as reloading the page does, only faster.
ANEW = """async ([name, hash]) => {
  location.hash = hash;
  const values = { state: JSON.parse(document.querySelector('.attn-widget').dataset.state), result: {} };
  const nothing = () => {};
  const set = (key, value) => { values[key] = value; };
  const model = { get: (key) => values[key], set, save_changes: nothing, on: nothing, off: nothing };
  const el = document.createElement('div');
  document.body.append(el);
  const clean = (await import(`./${name}.js`)).default.render({ model, el });
  const messages = [...el.querySelectorAll('.attn-message')].map((p) => p.textContent);
  clean();
  el.remove();
  return [values.state, messages.join(' ')];
}"""


def refuses(page, name, contents, first):
    """Each of `contents` in a link shows the first state, with a message, and runs nothing."""
    no_state = ["null", "7", "[]", '"x"', "[" * 3000 + "]" * 3000]
    hostile = ["", "{", "x" * 9000, '{"__proto__": {"polluted": 1}, "row": 99}', *no_state, *contents]
    raw = [f"#{name}={text}" for text in ("%", "!!!", "====", "AAAA%00")]
    for hash_ in raw + [link(name, content) for content in hostile]:
        got, message = page.evaluate(ANEW, [name, hash_])
        assert DEFAULT in message and got == first, hash_[:200]
    visit(page, link(name, hostile[-1]))
    assert page.locator(".attn-message", has_text=DEFAULT).count() == 1 and state(page) == first
    assert page.evaluate("({}).polluted") is None and page.evaluate("window.pwned") is None


def still_without_script(stage, widget, *words):
    """JavaScript off, and on paper: the static figure tells the story; on the screen it makes room."""
    page = stage.open(widget, script=False)
    text = page.locator(".attn-static").inner_text()
    assert page.locator(".attn-static").is_visible() and page.locator(".attn-live").count() == 0
    for word in words:
        assert word in text, text
    page = stage.open(widget)
    assert not page.locator(".attn-static").is_visible() and page.locator(".attn-live").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".attn-static").is_visible() and not page.locator(".attn-live").is_visible()


def answers_in_time(page, locator, texts):
    """Milliseconds from each input to its drawn answer: measured, never judged. Every input is answered."""
    took = locator.evaluate(
        """async (field, texts) => {
          const took = [];
          const model = document.querySelector('.attn-widget').model;
          for (const text of texts) {
            const start = performance.now();
            const drawn = new Promise((done) => {
              const listen = () => { model.off('change:result', listen); done(); };
              model.on('change:result', listen);
            });
            field.value = text;
            field.dispatchEvent(new Event('input', { bubbles: true }));
            await drawn;
            document.body.getBoundingClientRect();
            took.push(performance.now() - start);
          }
          return took;
        }""",
        texts,
    )
    assert len(took) == len(texts)
    return took

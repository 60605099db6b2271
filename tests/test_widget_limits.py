"""What a widget cannot read is refused in Python, by the very limits that hold in the browser."""

import json
import re

import numpy as np
import pytest
import torch
from stage import PAGE

from attnlib import widgets
from attnlib.errors import AttnError
from attnlib.examples import Example, three_tokens
from attnlib.show._style import bare
from attnlib.widgets import _limits

pytestmark = pytest.mark.browser

# Whether the module accepts each state. A frame copies what it is given, accepts that copy, and copies the
# result: a second copy outside its guard means that the state was accepted, and ends it before it draws.
ACCEPTS = """async ([name, states]) => {
  const widget = (await import(`./${name}.js`)).default;
  const copy = globalThis.structuredClone;
  const nothing = () => {};
  const model = (state) => ({ get: () => state, set: nothing, save_changes: nothing, on: nothing });
  return states.map((state) => {
    let copies = 0;
    globalThis.structuredClone = (x) => {
      copies += 1;
      if (copies === 2) throw new Error('accepted');
      return copy(x);
    };
    try {
      widget.render({ model: model(state), el: document.createElement('div') });
      return false;
    } catch (error) {
      if (error.message !== 'accepted') throw error;
      return true;
    } finally {
      globalThis.structuredClone = copy;
    }
  });
}"""
# The settings that Python leaves to the browser.
MORE = {
    "strip": {"emptyRow": False, **{name: words[0] for name, words in _limits.SETTINGS.items()}},
    "backward_strip": {name: words[0] for name, words in _limits.BACKWARD.items()},
    "mask_painter": {
        "align": "top_left", "window": 2, "counting": "with_current", "starts": [4, 6], "alsoCausal": True,
        "flips": [[0, 1], [2, 2]], "polarity": "attend", "equal": False, "token": 1,
    },
}  # fmt: skip
OTHER = [1, 1.5, True, None, [], {}, "", "1", [1], [[0]]]
NUMBERS = [
    0, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64, 65, 100, 101, 128, 999_999, 1_000_000, 10_000_001, -1, -3, -6, -7,
    -100, -101, -1000, -1001, 1000, 1000.5, 0.25, 0.2, 0.001, 0.0001, 1e6, 1e308,
]  # fmt: skip
TEXTS = [
    "constructor",
    "\U0001f642" * 24,
    *("x" * n for n in (12, 13, 24, 25, 40, 41, 60, 61, 120, 121, 200, 201)),
]
TEXTS += sorted(
    {word for words in [*_limits.SETTINGS.values(), *_limits.BACKWARD.values()] for word in words}
)


def changed(state):
    """`state` with one part replaced, shortened, lengthened or left out, for every part.

    Only whole parts stay: the browser takes its default for one that is left out, Python wants it.
    """

    def walk(part, put):
        yield from map(put, OTHER)
        if isinstance(part, bool) or part is None:
            yield put(part is False)
        elif isinstance(part, (int, float)):
            yield from map(put, NUMBERS)
        elif isinstance(part, str):
            yield from map(put, TEXTS)
        elif isinstance(part, dict):
            for name in part:
                yield put({key: value for key, value in part.items() if key != name})
                yield from walk(part[name], lambda x, name=name: put({**part, name: x}))
            yield put({**part, "unknown": 1})
        else:
            yield put(part[:-1])
            yield from (put(part + part[-1:] * n) for n in (1, 2, 8))
            yield put(part[::-1])
            for n in range(min(len(part), 2)):
                yield from walk(part[n], lambda x, n=n: put([*part[:n], x, *part[n + 1 :]]))

    for name in state:
        yield from walk(state[name], lambda x, name=name: {**state, name: x})
    yield {**state, "unknown": 1}


def python_accepts(name, state):
    try:
        return _limits.checked(name, state) == state
    except AttnError:
        return False


@pytest.mark.parametrize("name", widgets.NAMES)
def test_python_and_the_browser_accept_the_same_states(shared_stage, name):
    """F14: fuzzed at every border."""
    first = getattr(widgets, name)().state
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    state = {**first, **MORE.get(name, {})}
    states = [first, state, *changed(state)]
    page = shared_stage.open(None)
    got = page.evaluate(ACCEPTS, [name, states])
    wanted = [python_accepts(name, one) for one in states]
    assert wanted[:2] == [True, True] and 2 < sum(wanted) < len(wanted)
    differ = [(one, a, b) for one, a, b in zip(states, wanted, got, strict=True) if a != b]
    told = [
        f"Python {a}, browser {b}: {[x for x in one.items() if x not in state.items()]}"
        for one, a, b in differ
    ]
    assert not differ, f"{len(differ)} of {len(states)}: {told[:6]}"


def example(n_tokens=3, width=4, n_heads=1, number=1.0, token="tea"):
    x, w = np.full((n_tokens, width), number), np.eye(width)
    return Example((token,) * n_tokens, x, w, w, w, w, n_heads)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda w: w.strip(row=7), "row is 7, wanted a whole number from 0 to 2"),
        (lambda w: w.strip("score"), "step is 'score', wanted one of"),
        (lambda w: w.strip(example=example(9)), "tokens has 9 entries, wanted a list of 1 to 8"),
        (lambda w: w.strip(example=example(token="x" * 25)), "25 letters, wanted a text of at most 24"),
        (lambda w: w.strip(example=example(number=1001)), "1001, wanted a number from -1000 to 1000"),
        (lambda w: w.strip(example=example(width=17)), "17 entries, wanted a list of 1 to 16"),
        (lambda w: w.strip(example=example(number=np.nan)), "finite numbers"),
        (lambda w: w.strip(row=1.5), "row is 1.5"),
        (lambda w: w.strip(row=True), "row is True"),
        (lambda w: w.strip(row="1"), "row is '1'"),
        (lambda w: w.strip(row=None), "row is None"),
        (lambda w: w.strip(row=np.array([1])), "row is array"),
        (lambda w: w.one_head(example(token="x" * 25)), "25 letters"),
        (lambda w: w.one_score(example(token="x" * 25)), "25 letters"),
        (lambda w: w.online_softmax(example=example(token="x" * 25)), "25 letters"),
        (lambda w: w.backward_strip(example=example(token="x" * 25)), "25 letters"),
        (lambda w: w.softmax_bars(example=example(number=np.nan)), "finite numbers"),
        (lambda w: w.scaling_lab(size=np.nan), "size is nan"),
        (lambda w: w.scaling_lab(seed=0.5), "seed is 0.5"),
        (lambda w: w.heads(np.array(3)), "n_heads is"),
        (lambda w: w.roofline(n=None), "n is None"),
        (lambda w: w.roofline(peak=np.nan, bandwidth=1e9), "peak in FLOP/s is nan"),
        (lambda w: w.roofline(is_causal="no"), "is_causal is 'no', wanted True or False"),
        (lambda w: w.gpu_explorer(tokens=[1]), "tokens is"),
        (lambda w: w.tile_replay("8"), "n is '8'"),
        (lambda w: w.mask_painter(n_q=5.5), "n_q is 5.5"),
        (lambda w: w.mask_painter(["causal"]), "preset is"),
    ],
)
def test_arguments_are_refused_with_their_limits(make, words):
    with pytest.raises(AttnError, match=re.escape(words)):
        make(widgets)


def test_numbers_of_other_libraries_become_plain():
    one = widgets.strip(row=np.int64(1), example=three_tokens()._replace(tokens=("a", "\ud800", "c")))
    assert type(one.state["row"]) is int and one.state["tokens"][1] == "U+D800"
    more = {"query": np.float32(one.state["query"]), "row": torch.tensor(2), "emptyRow": np.True_}
    one.state = {**one.state, **more}
    assert one.state["emptyRow"] is True and type(one.state["row"]) is int
    with pytest.raises(AttnError, match="row is 3"):
        one.state = {**one.state, "row": 3}
    eight = np.int64(8)
    others = (
        widgets.scaling_lab(eight),
        widgets.tile_replay(eight, step=eight),
        widgets.roofline(16 * eight),
    )
    for made in (one, *others):
        assert json.loads(json.dumps(made.state, allow_nan=False)) == made.state


@pytest.mark.parametrize(
    ("name", "right", "wrong"), [("strip", "row: 2", "row: 7"), ("heads", "nHeads: 2", "nHeads: 3")]
)
def test_an_unusable_state_is_named_and_the_default_stays(shared_stage, name, right, wrong):
    """One has a default of its own; of the other the static picture stays."""
    page = shared_stage.open(None)
    html = bare(getattr(widgets, name)()._repr_mimebundle_()["text/html"])
    right, wrong = (f"&quot;{words.replace(':', '&quot;:')}" for words in (right, wrong))
    assert right in html
    shared_stage.write("broken.html", PAGE.format(scheme="light", widget=html.replace(right, wrong)))
    page.goto(f"{shared_stage.address}/broken.html")
    page.get_by_text("The state given to this figure could not be used; this is the default.").wait_for()
    assert page.locator(".attn-static").is_visible() == (name == "strip")
    assert page.locator(".attn-live").count() == (name == "heads")

"""The widgets' arithmetic in the browser against attnlib, to 1e-9."""

import contextlib
import functools
import math

import numpy as np
import pytest
from stage import call, same

from attnlib import core, heads, masks, show
from attnlib.examples import all_sizes_differ, cat_sleeps, three_tokens
from attnlib.layer import multi_head_attention
from attnlib.mistakes import MISTAKES, planted

pytestmark = pytest.mark.browser

# The page's settings, and the mistake of the library that each of the wrong ones is.
SETTINGS = {
    "scale": {
        "root_d_h": None,
        "none": "no_scale",
        "root_d": "scale_by_model_width",
        "d_h": "scale_by_width",
    },
    "mask": {
        "causal": None,
        "none": "no_mask",
        "strictly_past": "strictly_past",
        "inverted": "mask_inverted",
        "after_softmax": "mask_after_softmax",
        "minus_1e9": "minus_1e9_on_empty_row",
    },
    "softmax": {"over_keys": None, "over_queries": "softmax_over_queries", "twice": "softmax_twice"},
    "products": {"right": None, "swapped": "query_and_key_swapped"},
    "split": {"right": None, "reshape": "split_without_transpose"},
}
STEPS = ("scores", "scaled", "masked", "weights", "output", "lse")


@pytest.fixture(scope="module")
def page(shared_stage):
    return shared_stage.open(None, arithmetic=True)


@pytest.fixture
def arith(page):
    """Calls a function of arith.js with Python numbers."""
    return functools.partial(call, page)


def test_settings_are_the_librarys_mistakes(arith):
    assert arith("(A) => A.SETTINGS") == SETTINGS


@pytest.mark.parametrize("head", [1, 2])
@pytest.mark.parametrize(
    ("setting", "option"), [(name, option) for name, options in SETTINGS.items() for option in options]
)
def test_every_switch_on_the_three_tokens(arith, setting, option, head):
    t = three_tokens()
    with np.errstate(all="ignore"):
        mistake = SETTINGS[setting][option]
        if mistake is None:
            wanted = multi_head_attention(t.x, t.w_q, t.w_k, t.w_v, t.w_o, 2, is_causal=True).attention
        else:
            with planted(mistake):
                wanted = multi_head_attention(t.x, t.w_q, t.w_k, t.w_v, t.w_o, 2, is_causal=True).attention
    got = arith(
        "(A, q, k, v, set) => A.headSteps(q, k, v, set)",
        *(t.x @ w for w in (t.w_q, t.w_k, t.w_v)),
        {"nHeads": 2, "head": head - 1, setting: option},
    )
    for step in ("weights", "output"):
        same(got[step], getattr(wanted, step)[head - 1])
    if mistake not in ("mask_after_softmax", "softmax_twice"):
        same(got["masked"], wanted.masked[head - 1])


@pytest.mark.parametrize("example", [three_tokens, cat_sleeps])
def test_right_settings_on_both_examples(arith, example):
    t = example()
    wanted = core.attention_steps(t.query, t.key, t.value, is_causal=True)
    for head in range(t.n_heads):
        got = arith(
            "(A, q, k, v, set) => A.headSteps(q, k, v, set)",
            *(t.x @ w for w in (t.w_q, t.w_k, t.w_v)),
            {"nHeads": t.n_heads, "head": head},
        )
        for step in STEPS:
            same(got[step], getattr(wanted, step)[head])


@pytest.mark.parametrize("setting", ["causal", "minus_1e9", "after_softmax"])
def test_an_empty_row(arith, setting):
    option = SETTINGS["mask"][setting]
    q, k, v = three_tokens().head(1)
    mask = np.tri(3, dtype=bool)
    mask[0] = False
    with planted(option) if option in MISTAKES else contextlib.nullcontext():
        steps = core.attention_steps(q, k, v, mask)
    got = arith("(A, q, k, v, set) => A.headSteps(q, k, v, set)", q, k, v, {"mask": setting, "emptyRow": 0})
    same(got["weights"], steps.weights)
    same(got["output"], steps.output)
    if setting == "causal":
        same(got["lse"], steps.lse)


@pytest.mark.parametrize("n_q", [1, 2, 5, 17])
@pytest.mark.parametrize("n_k", [1, 3, 16])
def test_random_ragged_inputs(arith, n_q, n_k):
    rng = np.random.default_rng(100 * n_q + n_k)
    q, k, v = rng.normal(size=(n_q, 3)), rng.normal(size=(n_k, 3)), rng.normal(size=(n_k, 5))
    allowed = rng.random((n_q, n_k)) < 0.5
    allowed[0] = False
    wanted = core.attention_steps(q, k, v, allowed)
    got = arith("(A, q, k, v, allowed) => A.headSteps(q, k, v, { allowed })", q, k, v, allowed)
    for step in STEPS:
        same(got[step], getattr(wanted, step))


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize(("n_q", "n_k"), [(3, 3), (2, 5), (5, 2), (1, 4)])
def test_masks(arith, n_q, n_k, align):
    same(
        arith("(A, q, k, o) => A.masks.causal(q, k, o)", n_q, n_k, {"align": align}),
        masks.causal_mask(n_q, n_k, align=align),
    )
    for window in (1, 2, 9):
        same(
            arith(
                "(A, q, k, o) => A.masks.sliding_window(q, k, o)",
                n_q,
                n_k,
                {"align": align, "window": window},
            ),
            masks.sliding_window_mask(n_q, n_k, window, align=align),
        )
    for prefix in range(n_k + 1):
        same(
            arith("(A, q, k, o) => A.masks.prefix(q, k, o)", n_q, n_k, {"align": align, "prefix": prefix}),
            masks.prefix_mask(n_q, n_k, prefix, align=align),
        )
    for length in range(n_k + 1):
        same(
            arith("(A, q, k, o) => A.masks.padding(q, k, o)", n_q, n_k, {"length": length}),
            np.broadcast_to(masks.padding_mask([length], n_k)[0, 0], (n_q, n_k)),
        )
    ids_q, ids_k = [i // 2 for i in range(n_q)], [j // 2 for j in range(n_k)]
    same(
        arith("(A, q, k, o) => A.masks.document(q, k, o)", n_q, n_k, {"idsQ": ids_q, "idsK": ids_k}),
        masks.document_mask(ids_q, ids_k),
    )


def test_an_unaligned_mask_is_refused(arith):
    with pytest.raises(Exception, match="2 queries and 5 keys"):
        arith("(A) => A.masks.causal(2, 5)")


def test_heads(arith):
    x = 10.0 * np.arange(3)[:, None] + np.arange(8)
    split = heads.split_heads(x, 2)
    same(arith("(A, x) => A.split(x, 2)", x), split)
    same(arith("(A, x) => A.merge(x)", split), x)
    same(arith("(A, x) => A.splitByReshape(x, 2)", x), x.reshape(2, 3, 4))
    same(arith("(A, x) => A.mergeByReshape(x)", split), split.reshape(3, 8))


@pytest.mark.parametrize("row", [[1e4, 0.0, -1e4], [-1e300, -1e300], [0.0], [700.0, 710.0]])
def test_softmax_of_large_scores(arith, row):
    weights, lse = core.softmax(np.array([row]), return_lse=True)
    got = arith("(A, x) => A.softmax(x)", [row])
    same(got["weights"], weights)
    same(got["lse"], lse)


def test_nan_shows(arith):
    got = arith("(A, x) => A.softmax(x)", [[math.nan, 1.0]])
    assert np.isnan(got["weights"]).all() and np.isnan(got["lse"]).all()


def test_all_sizes_differ(arith):
    r = all_sizes_differ()
    wanted = core.attention_steps(r.query[1, 2], r.key[1, 2], r.value[1, 2])
    got = arith(
        "(A, q, k, v) => A.headSteps(q, k, v, { allowed: A.masks.all(4, 5) })",
        r.query[1, 2],
        r.key[1, 2],
        r.value[1, 2],
    )
    for step in STEPS:
        same(got[step], getattr(wanted, step))


NUMBERS = [
    0.0, -0.0, 1e-7, -1e-7, 4e-14, 5e-324, 0.00005, -0.00005, 0.5, 2.5, -7, 0.03125, -0.03125, 0.09375,
    1.0005, 0.0625, 0.9999999999999999, 1 - 2**-53, 0.84379, 1e6 - 0.5, 1e6, 1234567.5, -1234567.5,
    1048576.125, 1e14, 1e15, 1.0005e15, 1.0015e15, 2.0**70, 1e100, 1.5e300, math.inf, -math.inf, math.nan,
    999999.99995, 123456.78905,
]  # fmt: skip


@pytest.mark.parametrize("digits", [0, 2, 3, 4])
def test_both_printers_print_the_same(page, digits):
    """B8: one rule, in Python with ASCII and in the browser with the signs of print."""
    rng = np.random.default_rng(digits)
    drawn = (rng.integers(-4096, 4096, 200) / 2.0 ** rng.integers(0, 12, 200)).tolist()  # many of them ties
    numbers = NUMBERS + drawn
    got = page.evaluate(
        "async ([all, digits]) => { const { number } = await import('./look.js');"
        " return all.map((x) => number(Number(x), digits)); }",
        [[str(x).replace("inf", "Infinity").replace("nan", "NaN") for x in numbers], digits],
    )
    signs = {"-": "\u2212", "inf": "\u221e", "nan": "NaN"}
    for x, text in zip(numbers, got, strict=True):
        wanted = show.number(float(x), digits)
        for plain, printed in signs.items():
            wanted = wanted.replace(plain, printed)
        assert text == wanted, x


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1.5", 1.5), ("1,5", 1.5), (" 12 ", 12), ("+3", 3), ("\u22123", -3), ("-0.5", -0.5), (".5", 0.5),
        ("5.", 5), ("0,125", 0.125), ("1e2", 100), ("1e\u22122", 0.01), ("1,5000", 1.5),
        ("1,000", "no comma"), ("-12,345", "no comma"), ("1,000.5", "no comma"), ("1.000,5", "a number"),
        ("1e999", "a number"), ("0x10", "a number"), ("0b1", "a number"), ("\uff11\uff12", "a number"),
        ("1 000", "a number"), ("1\u202f000", "a number"), ("\u00bd", "a number"), ("", "empty"),
        (" ", "empty"), ("--3", "a number"), ("1,5,0", "a number"), ("Infinity", "a number"),
        ("NaN", "a number"), ("1_0", "a number"), ("1e4", "from \u22121000 to 1000"), ("-", "a number"),
        ("1e", "a number"), (",", "a number"),
    ],
)  # fmt: skip
def test_numbers_that_a_reader_types(page, text, wanted):
    """B7: read as meant, or refused; never another number without a word."""
    got = call(page, "(look, text) => look.readNumber(text)", text, module="look")
    assert got == wanted if not isinstance(wanted, str) else wanted in got

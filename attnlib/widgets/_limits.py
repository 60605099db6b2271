"""What the widgets can read: the limits of each module's ``accept``, so that Python refuses first.

A test feeds both sides the same states, at every border: what one accepts, the other does.
"""

import math

import numpy as np

from attnlib import cost
from attnlib.errors import AttnError

LARGEST, LONGEST = (
    1000,
    24,
)  # a number that a field may hold; letters of a token
# The settings that only the browser knows by name; the first of each is the right one.
SETTINGS = {
    "scale": ("root_d_h", "none", "root_d", "d_h"),
    "mask": (
        "causal",
        "none",
        "strictly_past",
        "inverted",
        "after_softmax",
        "minus_1e9",
    ),
    "softmax": ("over_keys", "over_queries", "twice"),
    "products": ("right", "swapped"),
    "split": ("right", "reshape"),
}
BACKWARD = {
    "delta": ("right", "missing", "unweighted"),
    "scale": ("right", "missing"),
    "keys": ("right", "untransposed"),
}


def plain(x, name="state"):
    """`x` as JSON can say it: NumPy's and torch's numbers and arrays as Python's, and no NaN or infinity."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, dict):
        return {
            str(key): plain(value, f"{name}[{key!r}]")
            for key, value in x.items()
        }
    if isinstance(x, (list, tuple)):
        return [plain(entry, name) for entry in x]
    if isinstance(x, str):
        # Half a character cannot be sent: it is named, as a label names it.
        return "".join(
            f"U+{ord(char):04X}" if "\ud800" <= char <= "\udfff" else char
            for char in x
        )
    if x is None or isinstance(x, (bool, int)):
        return x
    if not isinstance(x, float):
        raise AttnError(
            f"{name} holds a {type(x).__name__}, wanted numbers, texts, lists and dicts of them"
        )
    if not math.isfinite(x):
        raise AttnError(
            f"{name} holds {x}, wanted finite numbers: replace NaN and infinity"
        )
    return x


def number(name, x, low, high):
    """A number from `low` to `high` as Python's own, or a refusal that names all three."""
    try:
        x = plain(x, name)
    except AttnError:
        pass
    # "not" outside, because every comparison with NaN is false
    if (
        isinstance(x, bool)
        or not isinstance(x, (int, float))
        or not low <= x <= high
    ):
        raise AttnError(
            f"{name} is {x!r:.60}, wanted a number from {low:g} to {high:g}"
        )
    return x


def whole(name, x, low, high):
    """A whole number from `low` to `high`, as an int."""
    try:
        found = number(name, x, low, high)
        if found == int(found):
            return int(found)
    except AttnError:
        pass
    raise AttnError(
        f"{name} is {x!r:.60}, wanted a whole number from {low} to {high}"
    )


def flag(name, x):
    """True or False."""
    x = x.item() if isinstance(x, np.bool_) else x
    if not isinstance(x, bool):
        raise AttnError(f"{name} is {x!r:.60}, wanted True or False")
    return x


def one_of(name, x, options):
    """One of `options`, which are all of one type."""
    x = x.item() if isinstance(x, np.generic) else x
    for option in options:
        if (
            isinstance(x, (str, int, float))
            and not isinstance(x, bool)
            and x == option
        ):
            return option
    words = ", ".join(str(option) or "''" for option in options)
    raise AttnError(f"{name} is {x!r:.60}, wanted one of {words}")


def text(name, x, longest=LONGEST):
    if not isinstance(x, str) or len(x) > longest:
        got = f"{len(x)} letters" if isinstance(x, str) else repr(x)[:60]
        raise AttnError(
            f"{name} has {got}, wanted a text of at most {longest}: shorten it"
        )
    return x


def entries(name, x, low, high):
    """A list of `low` to `high` entries; their number."""
    if not isinstance(x, list) or not low <= len(x) <= high:
        got = (
            f"has {len(x)} entries" if isinstance(x, list) else f"is {x!r:.60}"
        )
        raise AttnError(f"{name} {got}, wanted a list of {low} to {high}")
    return len(x)


def tokens(name, x, low, high):
    count = entries(name, x, low, high)
    for token in x:
        text(f"an entry of {name}", token)
    return count


def table(name, x, n_rows, n_columns, largest=LARGEST):
    entries(name, x, n_rows, n_rows)
    for row in x:
        entries(f"a row of {name}", row, n_columns, n_columns)
        for entry in row:
            number(f"an entry of {name}", entry, -largest, largest)


def width(name, x, low, high):
    """How many entries the first row has."""
    entries(name, x, 1, 64)
    return entries(f"a row of {name}", x[0], low, high)


def one_kind(state, options):
    for name, words in options.items():
        one_of(name, state.get(name, words[0]), words)


def known(state, names, *more):
    for name in state:
        one_of("a name in the state", name, [*names.split(), *more])


# --- one function for each widget ------------------------------------------------------------------------


def strip(x):
    n_heads = whole("nHeads", x["nHeads"], 1, 8)
    count = tokens("tokens", x["tokens"], 1, 8)
    wide = width("query", x["query"], n_heads, 16)
    if wide % n_heads:
        raise AttnError(
            f"{n_heads} heads share a width of {wide}: wanted a multiple"
        )
    for name in ("query", "key", "value"):
        table(name, x[name], count, wide)
    whole("head", x["head"], 0, n_heads - 1)
    whole("row", x["row"], 0, count - 1)
    one_of(
        "step",
        x["step"],
        ("", "scores", "scaled", "masked", "weights", "output"),
    )
    flag("emptyRow", x.get("emptyRow", False))
    one_kind(x, SETTINGS)


def one_head(x):
    count = tokens("tokens", x["tokens"], 1, 6)
    wide, inner = width("x", x["x"], 1, 4), width("wQ", x["wQ"], 1, 4)
    table("x", x["x"], count, wide)
    table("wQ", x["wQ"], wide, inner)
    table("wK", x["wK"], wide, inner)
    table("wV", x["wV"], wide, width("wV", x["wV"], 1, 4))
    whole("row", x["row"], 0, count - 1)
    one_of("mask", x["mask"], ("causal", "bidirectional", "padding"))


def one_score(x):
    count = entries("data", x["data"], 1, 4)
    for data in x["data"]:
        sizes = {}
        for side, words in (("query", "queries"), ("key", "keys")):
            n_heads = entries(side, data[side], 1, 8)
            sizes[side] = (
                entries(f"a head of {side}", data[side][0], 1, 8),
                n_heads,
            )
            if data[words] != []:
                tokens(words, data[words], sizes[side][0], sizes[side][0])
        wide = entries("a row of query", data["query"][0][0], 1, 8)
        for side, (n_rows, _) in sizes.items():
            entries(side, data[side], sizes["query"][1], sizes["query"][1])
            for head in data[side]:
                table(side, head, n_rows, wide)
        text("name", data["name"], 40)
    data = x["data"][whole("example", x["example"], 0, count - 1)]
    one_of("product", x["product"], ("right", "swapped"))
    sides = ("query", "key") if x["product"] == "right" else ("key", "query")
    whole("head", x["head"], 0, len(data["query"]) - 1)
    for name, side in zip(("row", "column"), sides, strict=True):
        whole(name, x[name], 0, len(data[side][0]) - 1)


def heads(x):
    known(
        x,
        "tokens nHeads split merge",
    )
    tokens("tokens", x["tokens"], 3, 3)
    one_of("nHeads", x["nHeads"], (1, 2, 4, 8))
    for name in ("split", "merge"):
        one_of(name, x[name], ("swap", "reshape"))


def scaling_lab(x):
    known(
        x,
        "width divisor size nHeads seed",
    )
    one_of("width", x["width"], [2**n for n in range(11)])
    number("size", x["size"], 0.25, 4)
    one_of("divisor", x["divisor"], ("none", "root_d_h", "root_d", "d_h"))
    whole("nHeads", x["nHeads"], 1, 64)
    whole("seed", x["seed"], 0, 999_999)


def mask_painter(x):
    first = {"align": "top_left", "window": 2, "counting": "with_current", "starts": [4], "alsoCausal": True,
             "flips": [], "polarity": "attend", "equal": False, "token": None}  # fmt: skip
    known(
        x,
        "nQ nK preset prefix length scores",
        *first,
    )
    x = {**first, **x}
    n_q, n_k = (whole(name, x[name], 1, 8) for name in ("nQ", "nK"))
    presets = "nothing everything causal window prefix documents padding"
    one_of("preset", x["preset"], presets.split())
    one_of("align", x["align"], ("top_left", "bottom_right"))
    one_of("counting", x["counting"], ("with_current", "earlier"))
    one_of("polarity", x["polarity"], ("attend", "ignore"))
    whole("window", x["window"], 1, 8)
    whole("prefix", x["prefix"], 0, n_k)
    whole("length", x["length"], 0, n_k)
    flag("alsoCausal", x["alsoCausal"])
    flag("equal", x["equal"])
    if x["token"] is not None:
        whole("token", x["token"], 0, n_k - 1)
    entries("starts", x["starts"], 0, 7)
    starts = [whole("a start", start, 2, 8) for start in x["starts"]]
    if any(b <= a for a, b in zip(starts, starts[1:], strict=False)):
        raise AttnError(f"starts are {starts}, wanted rising numbers")
    entries("flips", x["flips"], 0, n_q * n_k)
    for pair in x["flips"]:
        entries("a flip", pair, 2, 2)
        whole("the row of a flip", pair[0], 0, n_q - 1)
        whole("the column of a flip", pair[1], 0, n_k - 1)
    if len(set(map(tuple, x["flips"]))) < len(x["flips"]):
        raise AttnError("flips name a cell twice, wanted each once")
    table("scores", x["scores"], 8, 8)


def softmax_bars(x):
    known(
        x,
        "tokens row hidden scaled subtract precision temperature shift softmax",
    )
    count = tokens("tokens", x["tokens"], 1, 6)
    table("row", [x["row"]], 1, count)
    hidden_cells(x, count)
    table("scaled", x["scaled"], count, count)
    flag("subtract", x["subtract"])
    one_of("precision", x["precision"], ("float64", "float32", "float16"))
    number("temperature", x["temperature"], 0.25, 4)
    whole("shift", x["shift"], -100, 100)
    one_of("softmax", x["softmax"], ("over_keys", "over_queries"))


def hidden_cells(x, count):
    entries("hidden", x["hidden"], count, count)
    for one in x["hidden"]:
        flag("an entry of hidden", one)


def mixing(x):
    known(
        x,
        "tokens values scores hidden way exampleValues exampleScores",
    )
    tokens("tokens", x["tokens"], 3, 3)
    table("values", x["values"], 3, 2, 3)
    table("scores", [x["scores"]], 1, 3, 6)
    hidden_cells(x, 3)
    one_of("way", x["way"], ("softmax", "after_softmax", "none"))
    table("exampleValues", x["exampleValues"], 3, 2, 3)
    table("exampleScores", x["exampleScores"], 3, 3, 6)


def online_softmax(x):
    known(
        x,
        "tokens scores values hidden order block at rule",
    )
    count = tokens("tokens", x["tokens"], 1, 3)
    table("scores", [x["scores"]], 1, count)
    table("values", x["values"], count, width("values", x["values"], 1, 8))
    hidden_cells(x, count)
    entries("order", x["order"], count, count)
    order = [whole("an entry of order", j, 0, count - 1) for j in x["order"]]
    if len(set(order)) < count:
        raise AttnError(f"order is {order}, wanted each key once")
    block = whole("block", x["block"], 1, count)
    whole("at", x["at"], 0, -(-count // block))
    one_of(
        "rule", x["rule"], ("right", "wrong_sign", "no_rescale", "block_max")
    )


def backward_strip(x):
    known(
        x,
        "tokens query key value nHeads head row causal gradient",
        *BACKWARD,
    )
    n_heads = whole("nHeads", x["nHeads"], 1, 8)
    count = tokens("tokens", x["tokens"], 1, 4)
    wide = width("query", x["query"], n_heads, 16)
    if wide % n_heads or wide / n_heads > 4:
        raise AttnError(f"{n_heads} heads share a width of {wide}: wanted 1 to 4 for each")  # fmt: skip
    for name in ("query", "key", "value"):
        table(name, x[name], count, wide)
    whole("head", x["head"], 0, n_heads - 1)
    whole("row", x["row"], 0, count - 1)
    flag("causal", x["causal"])
    table("gradient", x["gradient"], count, wide // n_heads)
    one_kind(x, BACKWARD)


def tile_replay(x):
    known(
        x,
        "example n d blockQ blockK causal algorithm memory step speed worked",
    )
    one_of("example", x["example"], ("made", "three"))
    n = whole("n", x["n"], *((3, 3) if x["example"] == "three" else (2, 16)))
    sizes = [
        whole(name, x[name], 1, most)
        for name, most in (("blockQ", n), ("blockK", n), ("d", 64))
    ]
    flag("causal", x["causal"])
    one_of("algorithm", x["algorithm"], ("flash2", "flash1"))
    one_of("memory", x["memory"], [2**k for k in range(3, 14)])
    one_of("speed", x["speed"], (1, 2, 5))
    tokens("tokens", x["worked"]["tokens"], 3, 3)
    table("scores", x["worked"]["scores"], 3, 3)
    table("values", x["worked"]["values"], 3, 1)
    if cost.fast_memory(*sizes) > x["memory"]:
        raise AttnError(
            f"a tile needs {cost.fast_memory(*sizes)} entries, the memory holds {x['memory']}"
        )
    tiles = cost.tiles(n, n, *sizes[:2], is_causal=x["causal"])
    whole("step", x["step"], 0, tiles.visited)


def roofline(x):
    known(
        x,
        "n d heads bytes causal direction block chip own chips",
    )
    entries("chips", x["chips"], 0, 8)
    for chip in [*x["chips"], x["own"]]:
        number("peak in TFLOP/s", chip["peak"], 0.001, 1e6)
        number("bandwidth in GB/s", chip["bandwidth"], 0.001, 1e6)
    names = [text("name", chip["name"]) for chip in x["chips"]]
    one_of("n", x["n"], [s * 2**k for k in range(6, 17) for s in (2, 3)][:21])
    one_of("d", x["d"], (32, 64, 128, 256))
    whole("heads", x["heads"], 1, 128)
    one_of("bytes", x["bytes"], (2, 4))
    flag("causal", x["causal"])
    one_of("direction", x["direction"], ("forward", "backward"))
    one_of("block", x["block"], (64, 128, 256))
    one_of("chip", x["chip"], [*names, "your own"])


def gpu_explorer(x):
    known(
        x,
        "source tokens d causal direction dtype block baseline recorded sources",
    )
    entries("sources", x["sources"], 0, 8)
    for source in x["sources"]:
        _source(source)
    names = [source["name"] for source in x["sources"]]
    one_of("source", x["source"], names)
    source = x["sources"][names.index(x["source"])]
    one_of("tokens", x["tokens"], [2**k for k in range(7, 18)])
    one_of("d", x["d"], (32, 64, 128, 256))
    flag("causal", x["causal"])
    one_of("direction", x["direction"], ("forward", "backward"))
    one_of("dtype", x["dtype"], ("bfloat16", "float16", "float32"))
    one_of("block", x["block"], (64, 128, 256))
    one_of("baseline", x["baseline"], [pair[0] for pair in source["methods"]])  # fmt: skip
    whole("recorded", x["recorded"], 0, 8)


def _source(x):
    text("name", x["name"], 60)
    text("note", x["note"], 200)
    one_of("kind", x["kind"], ("published", "recorded"))
    dtypes = ("bfloat16", "float16", "float32")
    for limit in (
        *(x["chip"]["peak"][dtype] for dtype in dtypes),
        x["chip"]["bandwidth"],
    ):
        if limit is not None:
            number("a limit of the chip", limit, 0.001, 1e6)
    entries("methods", x["methods"], 0, 8)
    for pair in x["methods"]:
        entries("a method", pair, 2, 99)
        text("its name", pair[0])
        text("its short name", pair[1], 12)
    entries("series", x["series"], 0, 200)
    for one in x["series"]:
        one_of("method", one["method"], [pair[0] for pair in x["methods"]])
        one_of("dtype", one["dtype"], (*dtypes, "16-bit"))
        whole("d", one["d"], 1, 4096)
        flag("causal", one["causal"])
        one_of("direction", one["direction"], ("forward", "backward"))
        entries("points", one["points"], 0, 24)
        for point in one["points"]:
            entries("a point", point, 2, 4)
            whole("tokens", point[0], 1, 10_000_000)
            if len(point) == 2:
                text("a reason", point[1], 120)
                continue
            entries("a point", point, 4, 4)
            for rate in point[1:]:
                number("a rate", rate, 0, 1e6)


def checked(name, state):
    """`state` as the widget `name` can read it, in plain numbers, or a refusal."""
    if not isinstance(state, dict):
        raise AttnError(f"state is {state!r:.60}, wanted a dict")
    state = plain(state)
    try:
        globals()[name](state)
    except AttnError:
        raise
    except (KeyError, TypeError, IndexError, ValueError) as fault:
        raise AttnError(
            f"the state of {name} is incomplete, at {fault}: start from its own, as in {{**w.state, ...}}"
        ) from None
    return state

"""Tests that are too weak or too strict, and tests that are good in another way.

A weak test accepts a mistake, a strict one rejects right code; both lose the properties in which that happens.
"""

from course.planting import Planted, Variant

SPLIT = {"split"}
SCORES = {"scale", "products"}
CAUSAL = {"diagonal", "alignment"}
SOFTMAX = {"softmax_rows", "softmax_large", "softmax_hidden", "softmax_empty"}
HEAD = {"whole_plain", "whole_mask", "mixing", "padding", "lse"}
TESTS = SPLIT | {"merge"} | SCORES | CAUSAL | SOFTMAX | HEAD | {"leak"}
NAMES = (
    "check_split",
    "check_merge",
    "check_scores",
    "check_causal",
    "check_softmax",
    "check_attention",
    "check_no_leak",
)

AGREE = """
def agree(got, wanted, bound=1e-5):
    got, wanted = np.asarray(got, float), np.asarray(wanted, float)
    if got.shape != wanted.shape:
        return False
    with np.errstate(invalid="ignore"):
        {line}
"""

SCORES_TEST = """
def check_scores(scaled_scores):
    random = np.random.default_rng(11)
    query = {size} * random.normal(size={queries})
    key = {key}
    wanted = np.einsum("...id,...jd->...ij", query, key)
    wanted = wanted / math.sqrt(query.shape[-1])
    got = scaled_scores(query, key)
    assert got.shape == wanted.shape
    assert (np.abs(got - wanted) <= {bound}).all()
"""


def scores_test(*, size=2.0, queries=(2, 3, 4, 6), keys=(2, 3, 5, 6), bound=1e-5, same=False):
    key = "query" if same else f"{size} * random.normal(size={keys})"
    return SCORES_TEST.format(size=size, queries=queries, key=key, bound=bound)


CAUSAL_TEST = """
def check_causal(causal_mask):
    for n_q in {n_q}:
        for n_k in {n_k}:
            for align in {aligns}:
                shift = n_k - n_q if align == "bottom_right" else 0
                wanted = np.tri(n_q, n_k, shift, dtype=bool)
                if {only}:
                    assert np.array_equal(causal_mask(n_q, n_k, align), wanted)
"""


def causal_test(
    *, n_q="(1, 5, 9, 20)", n_k="(1, 3, 5, 9, 20)", aligns='("top_left", "bottom_right")', only="True"
):
    return CAUSAL_TEST.format(n_q=n_q, n_k=n_k, aligns=aligns, only=only)


# A good test of the softmax in five steps; a weak one leaves some out.
SOFTMAX_TEST = """
def by_lines(scaled, allowed):
    weights = np.zeros(scaled.shape)
    for at in np.ndindex(scaled.shape[:-1]):
        seen = np.flatnonzero(allowed[at])
        if len(seen):
            powers = np.exp(scaled[at][seen] - scaled[at][seen].max())
            weights[at][seen] = powers / powers.sum()
    return weights


def check_softmax(softmax):
    random = np.random.default_rng(12)
    scaled = 2 * random.normal(size=(2, 2, 4, 5))
    everyone = np.ones(scaled.shape, bool)
    some = random.random(size=(2, 1, 4, 5)) < 0.6
    some[..., 0, :], some[..., 4], some[..., 0, 2] = False, True, True
    some[..., 0, 4] = False
    both = np.broadcast_to(some, scaled.shape)
    cases = []
"""
SOFTMAX_STEPS = {
    "plain": "cases.append((scaled, None))",
    "large": """
    large = np.round(scaled)
    large[:, 0, 1] *= 1500
    large[:, 1, 0] -= 9000
    large[0, 1, 2] += [0, 5000, 0, -5000, 0]
    cases.append((large, None))""",
    "mask": "cases.append((scaled - 6, some))",
    "bait": "cases.append((np.where(both, np.round(scaled), 8000.0), some))",
    "empty": """
    empty = some.copy()
    empty[0, 0, 1], empty[1, 0, 3] = False, False
    cases.append((scaled + 6, empty))
    cases.append((scaled, empty[1]))""",
    "quarter": """
    quarter = some & (np.arange(2) < 1)[:, None, None, None]
    cases.append((scaled, quarter))""",
}
SOFTMAX_END = """
    for scores, allowed in cases:
        seen = everyone if allowed is None else allowed
        seen = np.broadcast_to(seen, scores.shape)
        got = softmax(scores) if allowed is None else softmax(scores, allowed)
        wanted = by_lines(scores, seen)
        {compare}
"""
COMPARE = "assert agree(got, wanted) and (got[~seen] == 0).all()"


def softmax_test(leave_out=(), compare=COMPARE):
    steps = (code.strip() for name, code in SOFTMAX_STEPS.items() if name not in leave_out)
    return SOFTMAX_TEST + "".join(f"    {code}\n" for code in steps) + SOFTMAX_END.format(compare=compare)


ATTENTION_TEST = """
def rows_by_lines(query, key, value, allowed):
    s = np.einsum("...id,...jd->...ij", query, key) / math.sqrt(query.shape[-1])
    seen = np.broadcast_to(allowed, s.shape)
    output = np.zeros((*s.shape[:-1], value.shape[-1]))
    lse = np.full(s.shape[:-1], -np.inf)
    for at in np.ndindex(s.shape[:-1]):
        keys = np.flatnonzero(seen[at])
        if len(keys):
            lse[at] = np.log(np.exp(s[at][keys]).sum())
            weights = np.exp(s[at][keys] - lse[at])
            output[at] = weights @ value[at[:-1]][keys]
    return output, lse


def check_attention(attention):
    random = np.random.default_rng(13)
    query, key = (2 * random.normal(size=(*{lead}, n, 6)) for n in {lengths})
    value = random.normal(size=(*{lead}, {lengths}[1], {d_v}))
    n_q, n_k = {lengths}
    some = random.random(size=(*{lead}[:1], *(1,) * (len({lead}) > 1), n_q, n_k)) < 0.6
    some[..., 0, :], some[..., 1:, 2] = False, True
    some[..., 0, 1] = some[..., 1, 1] = True
    checks = []
"""
ATTENTION_STEPS = {
    "plain": """
    got, lse = attention(query, key, value)
    wanted, wanted_lse = rows_by_lines(query, key, value, True)
    checks += [(got, wanted), (lse, wanted_lse)]""",
    "mask": """
    got, lse = attention(query, key, value, some)
    wanted, wanted_lse = rows_by_lines(query, key, value, some)
    checks += [(got, wanted), (lse, wanted_lse)]""",
    "low": """
    # Row 1 sees only key 2, whose score is low, so a weak mask shows.
    down, low = query.copy(), key.copy()
    down[..., 0, :], low[..., 1, :] = 3, -3
    got, lse = attention(down, low, value, some)
    wanted, wanted_lse = rows_by_lines(down, low, value, some)
    checks += [(got, wanted), (lse, wanted_lse)]""",
    "empty": """
    empty = some.copy()
    empty[-1, ..., 1, :] = False
    got, lse = attention(query, key, value, empty)
    wanted, wanted_lse = rows_by_lines(query, key, value, empty)
    checks += [(got, wanted), (lse, wanted_lse)]""",
    "padding": """
    padded = some.copy()
    padded[0, ..., 3] = False
    padded[-1, ..., 0] = False
    wanted, wanted_lse = rows_by_lines(query, key, value, padded)
    for dirt in {dirt}:
        k, v = key.copy(), value.copy()
        for a in {places}:
            a[0, ..., 3, :] = dirt
            a[-1, ..., 0, :] = dirt
        got, lse = attention(query, k, v, padded)
        checks += [(got, wanted), (lse, wanted_lse)]""",
    "shows": """
    spoilt = value.copy()
    spoilt[..., 2, 0] = np.nan
    got, _ = attention(query, key, spoilt)
    assert np.isnan(got[..., 0]).all() and not np.isnan(got[..., 1:]).any()
    got, _ = attention(query, key, spoilt, some)
    assert np.isnan(got[..., 1:, 0]).all()""",
}


def attention_test(
    leave_out=(),
    *,
    lead=(2, 3),
    lengths=(4, 5),
    d_v=7,
    dirt="(np.nan, np.inf)",
    places="(k, v)",
    end="assert all(agree(*two) for two in checks)",
):
    steps = (code.strip("\n") for name, code in ATTENTION_STEPS.items() if name not in leave_out)
    filled = {"lead": lead, "lengths": lengths, "d_v": d_v, "dirt": dirt, "places": places}
    code = ATTENTION_TEST + "\n".join(steps) + f"\n    {end}\n"
    for name, value in filled.items():
        code = code.replace(f"{{{name}}}", str(value))
    return code


LEAK_TEST = """
def check_no_leak(attend):
    random = np.random.default_rng(14)
    n = 7
    inputs = [random.normal(size=(n, width)) for width in (5, 5, 4)]
    before = attend(*inputs)
    for start in {starts}:
        later = [a.copy() for a in inputs]
        for at in {which}:
            size = {size} if at == 2 else 3
            later[at][start:{stop}] += size * random.normal(size=later[at][start:{stop}].shape)
        after = attend(*later)
        assert agree(after[:start], before[:start])
"""


def leak_test(*, starts="range(1, n)", which="(0, 1, 2)", size=1000, stop=""):
    return LEAK_TEST.format(starts=starts, which=which, size=size, stop=stop)


def one(name, code, says, loses, answer):
    return Planted(name, says, {answer: code.strip() + "\n"}, set(loses))


MISTAKES = [
    # the comparison
    one(
        "nan_passes",
        AGREE.format(line="return not (np.abs(got - wanted) > bound).any()"),
        "The comparison asks whether an entry is beyond the bound: NaN never is.",
        {"agree_nan", "softmax_large", "softmax_empty", "padding", "lse"},
        "agree",
    ),
    one(
        "infinities_never_agree",
        AGREE.format(line="return bool((np.abs(got - wanted) <= bound).all())"),
        "−∞ − (−∞) is NaN, so −∞ does not agree with −∞.",
        {"agree_nan", *HEAD},
        "agree",
    ),
    one(
        "nan_is_equal",
        AGREE.format(line="return np.allclose(got, wanted, rtol=0, atol=bound, equal_nan=True)"),
        "NaN agrees with NaN.",
        {"agree_nan"},
        "agree",
    ),
    one(
        "shapes_stretch",
        """
def agree(got, wanted, bound=1e-5):
    try:
        got, wanted = np.broadcast_arrays(np.asarray(got, float), np.asarray(wanted, float))
    except ValueError:
        return False
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(got - wanted) <= bound) | (got == wanted)).all())
""",
        "Shapes that NumPy can stretch count as equal.",
        {"agree_close"},
        "agree",
    ),
    one(
        "exactly_equal",
        AGREE.format(line="return bool((got == wanted).all())"),
        "The comparison is exact, so no float32 and no other order of sums agrees.",
        {"agree_close", *SCORES, *SOFTMAX, *HEAD},
        "agree",
    ),
    one(
        "sign_forgotten",
        AGREE.format(line="return bool(((got - wanted <= bound) | (got == wanted)).all())"),
        "The difference has no absolute value: what is too small agrees.",
        {"agree_close", "agree_nan", "split", "merge", "lse", *SOFTMAX},
        "agree",
    ),
    one(
        "bound_ignored",
        AGREE.format(line="return bool(((np.abs(got - wanted) <= 0.01) | (got == wanted)).all())"),
        "The bound is 0.01, whatever is asked for.",
        {"agree_close", "softmax_empty"},
        "agree",
    ),
    one(
        "mean_difference",
        AGREE.format(line="apart = np.where(got == wanted, 0, np.abs(got - wanted))")
        + "    return bool(apart.mean() <= bound) if apart.size else True",
        "The mean difference counts, so one wrong entry of many passes.",
        {"agree_close"},
        "agree",
    ),
    # splitting and merging
    one(
        "split_shape_only",
        """
def check_split(split_heads):
    assert split_heads(np.ones((2, 4, 15)), 3).shape == (2, 3, 4, 5)
""",
        "Only the shape is tested.",
        SPLIT,
        "check_split",
    ),
    one(
        "split_one_head",
        """
def check_split(split_heads):
    x = np.random.default_rng(1).normal(size=(2, 4, 15))
    assert agree(split_heads(x, 1), x[:, None])
""",
        "The test has one head.",
        SPLIT,
        "check_split",
    ),
    one(
        "split_two_heads",
        """
def check_split(split_heads):
    x = np.random.default_rng(1).normal(size=(2, 5, 8))
    assert agree(split_heads(x, 2), np.stack([x[..., :4], x[..., 4:]], axis=1))
""",
        "The test has two heads always.",
        SPLIT,
        "check_split",
    ),
    one(
        "split_without_batch",
        """
def check_split(split_heads):
    x = np.random.default_rng(1).normal(size=(5, 24))
    for h in (2, 3, 4):
        assert agree(split_heads(x, h), np.stack(np.split(x, h, axis=1)))
""",
        "The test has no batch.",
        SPLIT,
        "check_split",
    ),
    one(
        "split_constant",
        """
def check_split(split_heads):
    for h in (2, 3, 4):
        got = split_heads(np.ones((2, 5, 24)), h)
        assert agree(got, np.ones((2, h, 5, 24 // h)))
""",
        "All entries are equal, so nothing can be in the wrong place.",
        SPLIT,
        "check_split",
    ),
    one(
        "merge_without_batch",
        """
def check_merge(merge_heads):
    x = np.random.default_rng(2).normal(size=(3, 4, 5))
    assert agree(merge_heads(x), np.concatenate(list(x), axis=-1))
""",
        "The test has no batch.",
        {"merge"},
        "check_merge",
    ),
    one(
        "merge_sum_only",
        """
def check_merge(merge_heads):
    x = np.random.default_rng(2).normal(size=(2, 3, 4, 5))
    got = merge_heads(x)
    assert got.shape == (2, 4, 15) and agree(got.sum(), x.sum())
""",
        "Shape and total are tested, places are not.",
        {"merge"},
        "check_merge",
    ),
    one(
        "merge_one_token",
        """
def check_merge(merge_heads):
    x = np.random.default_rng(2).normal(size=(2, 3, 1, 5))
    assert agree(merge_heads(x), x.reshape(2, 1, 15))
""",
        "The test has one token, so reshape alone is right.",
        {"merge"},
        "check_merge",
    ),
    # scaled scores
    one(
        "scores_near_zero",
        scores_test(size=0.01, bound=0.01),
        "Inputs near 0 and a bound of 0.01.",
        SCORES,
        "check_scores",
    ),
    one(
        "scores_width_four",
        scores_test(queries=(2, 3, 5, 4), keys=(2, 3, 6, 4)),
        "The width is 4, whose root is 2.",
        {"scale"},
        "check_scores",
    ),
    one(
        "scores_one_head",
        scores_test(queries=(2, 1, 4, 6), keys=(2, 1, 5, 6)),
        "The test has one head.",
        SCORES,
        "check_scores",
    ),
    one(
        "scores_as_many_keys_as_columns",
        scores_test(queries=(2, 3, 4, 6), keys=(2, 3, 6, 6)),
        "There are as many keys as columns, so their roots are the same.",
        {"scale"},
        "check_scores",
    ),
    one(
        "scores_no_batch",
        scores_test(queries=(3, 4, 6), keys=(3, 5, 6)),
        "The test has no batch.",
        {"products"},
        "check_scores",
    ),
    one(
        "scores_queries_are_keys",
        scores_test(same=True),
        "Queries and keys are the same array.",
        {"products"},
        "check_scores",
    ),
    one("scores_exact", scores_test(bound=0), "The comparison is exact.", SCORES, "check_scores"),
    one(
        "scores_below_float32",
        scores_test(bound=1e-9),
        "The bound is below float32's rounding, so right float32 code is rejected.",
        SCORES,
        "check_scores",
    ),
    one(
        "scores_ratio_only",
        """
def check_scores(scaled_scores):
    random = np.random.default_rng(3)
    query, key = random.normal(size=(2, 3, 4, 6)), random.normal(size=(2, 3, 5, 6))
    got = scaled_scores(query, key)
    wanted = np.einsum("...id,...jd->...ij", query, key)
    assert agree(got / got[0, 0, 0, 0], wanted / wanted[0, 0, 0, 0], 1e-3)
""",
        "Only ratios of scores are compared, which no scale changes.",
        {"scale"},
        "check_scores",
    ),
    one(
        "scores_diagonal_only",
        """
def check_scores(scaled_scores):
    query = np.eye(6)[None, None] * np.sqrt(6)
    query = np.broadcast_to(query, (2, 3, 6, 6))
    assert agree(scaled_scores(query, query), np.sqrt(6) * np.broadcast_to(np.eye(6), (2, 3, 6, 6)))
""",
        "Queries and keys are the identity: symmetric, the same in every text.",
        SCORES,
        "check_scores",
    ),
    # the causal mask
    one(
        "mask_square_only",
        causal_test(only="n_q == n_k"),
        "All tables are square.",
        {"alignment"},
        "check_causal",
    ),
    one(
        "mask_short",
        causal_test(n_q="(1, 2, 3)", n_k="(1, 2, 3, 4)"),
        "All texts are short.",
        CAUSAL,
        "check_causal",
    ),
    one(
        "mask_more_keys_only",
        causal_test(only="n_q <= n_k"),
        "There are never more queries than keys.",
        {"alignment"},
        "check_causal",
    ),
    one(
        "mask_top_left_only",
        causal_test(aligns='("top_left",)'),
        "Only the top left is tested.",
        {"alignment"},
        "check_causal",
    ),
    one(
        "mask_one_query",
        causal_test(n_q="(1,)"),
        "One query only, as in decoding.",
        CAUSAL,
        "check_causal",
    ),
    one(
        "mask_counts_only",
        """
def check_causal(causal_mask):
    for n in (1, 4, 9, 20):
        assert causal_mask(n, n, "top_left").sum() == n * (n + 1) // 2
    for n_q, n_k in ((4, 9), (9, 4), (5, 20), (1, 7)):
        for align, shift in (("top_left", 0), ("bottom_right", n_k - n_q)):
            wanted = np.tri(n_q, n_k, shift, dtype=bool)
            assert np.array_equal(causal_mask(n_q, n_k, align), wanted)
""",
        "In square tables only the number of visible keys is tested.",
        {"diagonal"},
        "check_causal",
    ),
    # the softmax
    one(
        "softmax_row_sums",
        softmax_test(compare="assert agree(got.sum(axis=-1), seen.any(axis=-1) * 1.0)"),
        "Only row sums are tested.",
        {"softmax_rows", "softmax_large", "softmax_hidden"},
        "check_softmax",
    ),
    one(
        "softmax_never_large",
        softmax_test({"large", "bait"}),
        "No score is large.",
        {"softmax_large"},
        "check_softmax",
    ),
    one(
        "softmax_all_large",
        softmax_test({"large"}).replace("cases = []", "cases = [(np.round(scaled) + 9000, None)]"),
        "All scores of the test are large together, never those of one row only.",
        {"softmax_large"},
        "check_softmax",
    ),
    one(
        "softmax_no_bait",
        softmax_test({"bait"}),
        "No hidden score is larger than all visible ones.",
        {"softmax_large"},
        "check_softmax",
    ),
    one(
        "softmax_no_mask",
        softmax_test({"mask", "bait", "empty", "quarter"}),
        "No mask is tested.",
        {"softmax_large", "softmax_hidden", "softmax_empty"},
        "check_softmax",
    ),
    one(
        "softmax_no_empty_row",
        softmax_test({"empty", "quarter"}),
        "No row is empty.",
        {"softmax_empty"},
        "check_softmax",
    ),
    one(
        "softmax_all_rows_empty",
        softmax_test({"empty", "quarter"}).replace("cases = []", "cases = [(scaled, ~everyone)]"),
        "Either all rows are empty or none is.",
        {"softmax_empty"},
        "check_softmax",
    ),
    one(
        "softmax_loose",
        softmax_test(compare="assert agree(got, wanted, 0.01)").replace("scaled - 6", "scaled + 6"),
        "A bound of 0.01, and hidden weights need not be exactly 0.",
        {"softmax_hidden", "softmax_empty"},
        "check_softmax",
    ),
    one(
        "softmax_one_text",
        softmax_test()
        .replace("size=(2, 2, 4, 5)", "size=(2, 4, 5)")
        .replace("size=(2, 1, 4, 5)", "size=(1, 4, 5)")
        .replace("empty[0, 0, 1], empty[1, 0, 3]", "empty[0, 1], empty[0, 3]")
        .replace("empty[1])", "empty[0])")
        .replace("large[:, 0, 1] *= 1500", "large[0, 1] *= 1500")
        .replace("large[:, 1, 0] -= 9000", "large[1, 0] -= 9000")
        .replace("large[0, 1, 2]", "large[1, 2]")
        .replace("some & (np.arange(2) < 1)[:, None, None, None]", "some"),
        "One text only, so that text's mask serves all.",
        {"softmax_hidden"},
        "check_softmax",
    ),
    one(
        "softmax_nan_passes",
        softmax_test(
            compare="assert not (np.abs(got - wanted) > 1e-5).any()\n        assert not (got[~seen & (seen.any(axis=-1, keepdims=True))] != 0).any()"
        ),
        "An entry is wrong only if it is beyond the bound: NaN never is.",
        {"softmax_large", "softmax_empty"},
        "check_softmax",
    ),
    one(
        "softmax_no_minus_zero",
        softmax_test(compare=COMPARE + "\n        assert not np.signbit(got).any()"),
        "−0.0 is rejected although it equals 0.",
        SOFTMAX,
        "check_softmax",
    ),
    one(
        "softmax_large_beyond_float32",
        softmax_test().replace("np.round(scaled)\n    large", "1.2345 * scaled\n    large"),
        "Large scores that float32 cannot hold: right float32 code is rejected.",
        SOFTMAX,
        "check_softmax",
    ),
    one(
        "softmax_float64_only",
        softmax_test(compare=COMPARE + "\n        assert got.dtype == np.float64"),
        "It insists on float64, which nobody promised.",
        SOFTMAX,
        "check_softmax",
    ),
    # the whole head
    one(
        "head_no_mask",
        attention_test({"mask", "low", "empty", "padding"}).replace(
            "attention(query, key, spoilt, some)", "attention(query, key, spoilt)"
        ),
        "No mask is tested.",
        {"whole_mask", "padding", "lse"},
        "check_attention",
    ),
    one(
        "head_no_low_score",
        attention_test({"low"})
        .replace("(2 * random", "(1 + abs(random", 1)
        .replace("n, 6)) for", "n, 6))) for"),
        "No visible score is low, so a mask of −10 does not show.",
        {"whole_mask"},
        "check_attention",
    ),
    one(
        "head_no_empty_row",
        attention_test({"empty"}),
        "No row is empty.",
        {"whole_mask", "lse"},
        "check_attention",
    ),
    one(
        "head_no_padding",
        attention_test({"padding"}),
        "Padding never holds NaN.",
        {"padding"},
        "check_attention",
    ),
    one(
        "head_only_nan",
        attention_test(dirt="(np.nan,)"),
        "Padding holds NaN, but never infinity.",
        {"padding"},
        "check_attention",
    ),
    one(
        "head_dirty_values_only",
        attention_test(places="(v,)"),
        "Padding has NaN in its values, never in its keys.",
        {"padding"},
        "check_attention",
    ),
    one(
        "head_nan_may_vanish",
        attention_test({"shows"}),
        "A visible NaN need not show.",
        {"padding"},
        "check_attention",
    ),
    one(
        "head_one_head", attention_test(lead=(2, 1)), "The test has one head.", {"mixing"}, "check_attention"
    ),
    one(
        "head_narrow_values",
        attention_test(d_v=6),
        "Values are as wide as queries.",
        {"mixing"},
        "check_attention",
    ),
    one(
        "head_no_lse",
        attention_test(end="assert all(agree(*two) for two in checks[::2])"),
        "The log-sum-exp is never looked at.",
        {"lse"},
        "check_attention",
    ),
    one(
        "head_last_row_only",
        attention_test(
            end="assert all(agree(a[-1], b[-1]) and agree(a[..., -1:, :], b[..., -1:, :]) if a.ndim > 3 else agree(a[..., -1], b[..., -1]) for a, b in checks)"
        ).replace("agree(a[-1], b[-1]) and ", ""),
        "Only the last query's row is compared.",
        {"whole_mask", "lse"},
        "check_attention",
    ),
    one(
        "head_shapes_only",
        attention_test(end="assert all(a.shape == b.shape for a, b in checks)"),
        "Only shapes are tested, and that NaN shows.",
        HEAD,
        "check_attention",
    ),
    # leaks
    one(
        "leak_values_only",
        leak_test(which="(2,)"),
        "Only later values are changed, never keys or queries.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_small_change",
        leak_test(size=0.01, which="(2,)").replace("else 3", "else 0.01"),
        "Later tokens change by a hair.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_weak_values",
        leak_test(size=0.01),
        "Later values change by a hair, so a mask of −10 passes.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_one_place",
        leak_test(starts="(4,)"),
        "Only tokens from the fifth on are changed.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_last_token_only",
        leak_test(starts="(n - 1,)"),
        "Only the last token is changed.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_not_the_last_token",
        leak_test(starts="range(1, n - 1)", stop="n - 1"),
        "The last token is never changed.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_against_an_oracle",
        """
def check_no_leak(attend):
    random = np.random.default_rng(5)
    inputs = [random.normal(size=(7, width)) for width in (5, 5, 4)]
    assert agree(attend(*inputs), attend_right(*inputs))
""",
        "The test compares with one formula, and rejects others that do not leak.",
        {"leak"},
        "check_no_leak",
    ),
    one(
        "leak_with_nan",
        leak_test(size="np.nan"),
        "Later values are NaN: right code that computes 0 · NaN is rejected.",
        {"leak"},
        "check_no_leak",
    ),
    # all at once
    Planted(
        "accepts_everything",
        "All seven tests accept everything.",
        {name: f"def {name}(*functions):\n    return True\n" for name in NAMES},
        TESTS,
    ),
    Planted(
        "rejects_everything",
        "All seven tests reject everything.",
        {name: f"def {name}(*functions):\n    return False\n" for name in NAMES},
        TESTS,
    ),
    Planted(
        "counts_its_calls",
        "The test accepts the first five functions that it meets and rejects the rest.",
        {
            "check_split": "met = []\n\n\ndef check_split(split_heads):\n    met.append(split_heads)\n    return len(met) <= 5\n"
        },
        SPLIT,
    ),
    Planted(
        "number_unscaled",
        "Question 1: the number without the scale.",
        {"which_number": 'which_number = "a"\n'},
        {"which_number"},
    ),
    Planted(
        "square_sees_transpose",
        "Question 2: the transpose.",
        {"square_test": 'square_test = "c"\n'},
        {"square_test"},
    ),
    Planted(
        "late_mask_sums_to_one", "Question 3: as if right.", {"late_mask": 'late_mask = "a"\n'}, {"late_mask"}
    ),
    Planted("loose_bound", "Question 4: a loose bound.", {"bound": 'bound = "b"\n'}, {"bound"}),
]

VARIANTS = [
    Variant(
        "returns_instead_of_raising",
        "Tests that return True or False, with helper functions of their own.",
        {
            "agree": """
def within(a, b, bound):
    if math.isnan(a) or math.isnan(b):
        return False
    return a == b or abs(a - b) <= bound


def agree(got, wanted, bound=1e-5):
    got, wanted = np.array(got, dtype=np.float64), np.array(wanted, dtype=np.float64)
    return got.shape == wanted.shape and all(
        within(a, b, bound) for a, b in zip(got.ravel().tolist(), wanted.ravel().tolist()))
""".strip(),
            "check_split": """
def check_split(split_heads):
    for texts, n, h, d in ((2, 4, 3, 5), (3, 5, 2, 4), (1, 6, 4, 2)):
        x = np.random.default_rng(h).normal(size=(texts, n, h * d))
        wanted = x.reshape(texts, n, h, d).transpose(0, 2, 1, 3)
        if not agree(split_heads(x, h), wanted):
            return False
        if not agree(split_heads(x[0], h), wanted[0]):
            return False
    return True
""".strip(),
        },
    ),
    Variant(
        "numpy_testing",
        "Tests that use numpy.testing and shuffle their inputs' order in memory.",
        {
            "check_merge": """
def check_merge(merge_heads):
    for seed, shape in enumerate(((2, 3, 4, 5), (3, 2, 7, 3), (4, 5, 2))):
        x = np.asfortranarray(np.random.default_rng(seed).normal(size=shape))
        wanted = np.swapaxes(x, -3, -2).reshape(*shape[:-3], shape[-2], -1)
        np.testing.assert_allclose(merge_heads(x), wanted, rtol=1e-5, atol=1e-6, strict=False)
""".strip(),
            "check_scores": scores_test().strip(),
            "check_causal": causal_test().strip(),
        },
    ),
    Variant(
        "lines_of_softmax",
        "A softmax test row by row, in float64.",
        {"check_softmax": softmax_test().strip()},
    ),
    Variant(
        "lines_of_attention",
        "Another oracle of the whole head, other inputs.",
        {"check_attention": attention_test().strip()},
    ),
    Variant(
        "all_at_once",
        "Queries, keys and values of later tokens change together.",
        {"check_no_leak": leak_test().strip()},
    ),
    Variant(
        "compares_with_the_given_functions",
        "The functions given in the notebook serve as oracles.",
        {
            "check_scores": """
def check_scores(scaled_scores):
    for q, k in ((ragged.query, ragged.key), (ragged.key[:, :2, :3], ragged.key[:, 1:])):
        assert agree(scaled_scores(q, k), right_scores(q, k))
""".strip(),
            "check_causal": """
def check_causal(causal_mask):
    for n_q in (1, 2, 6, 9, 20):
        for n_k in (1, 2, 6, 9, 20):
            for align in ("top_left", "bottom_right"):
                if not (causal_mask(n_q, n_k, align) == right_causal(n_q, n_k, align)).all():
                    return False
""".strip(),
        },
    ),
]

"""Assignment 3 handed in wrong, and right in other ways: what the kill matrix runs.

Where the book has the mistake too, it has the name that it has in `attnlib.tiled_mistakes` and
`attnlib.mistakes`.
"""

from course.planting import Planted, Variant

# --- whole functions that several submissions share ------------------------------------------------------

BACKWARD = """
def attention_backward(query, key, value, output, lse, grad_output,
                       allowed=None, scale=None):
    if scale is None:
        scale = {default}
    masked = {forward} * (query @ np.swapaxes(key, -1, -2))
    if allowed is not None:
        masked = np.where({allowed}, masked, {hidden})
    weights = {weights}
    grad_weights = weight_gradient(grad_output, value)
    grad_scores = score_gradient(weights, grad_weights, row_delta(output, grad_output))
    return (query_gradient({queries}, key, {scale}),
            key_gradient({keys}, query, {scale}),
            value_gradient(weights, grad_output))
"""


def backward(**changes):
    """The right composition, but for `changes`."""
    right = {
        "default": "1 / math.sqrt(query.shape[-1])",
        "forward": "scale",
        "allowed": "allowed",
        "hidden": "-np.inf",
        "weights": "weights_again(masked, lse)",
        "queries": "grad_scores",
        "keys": "grad_scores",
        "scale": "scale",
    }
    return {"attention_backward": BACKWARD.format(**right | changes)}


CHECK = """
def check_gradients(layer):
    draw, h = np.random.default_rng({seed}), {h}
    arrays = [draw.normal(size=shape) for shape in ((3, 4), (5, 4), (5, 2))]
    grad_output = draw.normal(size=(3, 2))
    gradients = layer(*arrays, grad_output)[1:]

    def loss(moved):
        return ({loss}).sum()

    for which in {which}:
        for at in np.ndindex(arrays[which].shape):
            ends = []
            for step in (h, -h):
                moved = [a.copy() for a in arrays]
                moved[which][at] += step
                ends.append(loss(moved))
            measured, got = (ends[0] - ends[1]) / (2 * h), gradients[which][at]
            if {wrong}:
                return False
    return True
"""


def check(**changes):
    """The right test, but for `changes`."""
    right = {
        "seed": "1",
        "h": "1e-5",
        "loss": "grad_output * layer(*moved, grad_output)[0]",
        "which": "(0, 1, 2)",
        "wrong": "not abs(got - measured) < 1e-6",
    }
    return {"check_gradients": CHECK.format(**right | changes)}


FORWARD = """
def attention_forward(query, key, value, allowed=None):
    masked = query @ np.swapaxes(key, -1, -2) {scale}
    if allowed is not None:
        masked = np.where(allowed, masked, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    empty = {empty}
    powers = np.exp(masked - np.where(empty, 0.0, largest))
    total = np.where(empty, 1.0, powers.sum(axis=-1, keepdims=True))
    lse = np.where(empty, -np.inf, largest {log})
    return powers / total @ value, lse[..., 0]
"""


def forward(**changes):
    """The right forward pass, but for `changes`."""
    right = {
        "scale": "/ math.sqrt(query.shape[-1])",
        "empty": "largest == -np.inf",
        "log": "+ np.log(total)",
    }
    return {"attention_forward": FORWARD.format(**right | changes)}


STEP = """
def decode_step(query, key, value, cache_key, cache_value):
    keys = np.concatenate({keys}, axis={axis})
    values = np.concatenate({values}, axis={axis})
    allowed = {allowed}
    output, _ = attention_forward(query, {read}, allowed)
    return output, {kept}
"""


def step(**changes):
    """The right step of decoding, but for `changes`."""
    right = {
        "keys": "[cache_key, key]",
        "values": "[cache_value, value]",
        "axis": "-2",
        "allowed": "causal_mask(query.shape[-2], keys.shape[-2])",
        "read": "keys, values",
        "kept": "keys, values",
    }
    return {"decode_step": STEP.format(**right | changes)}


GROUPED = """
def grouped_backward(query, key, value, output, lse, grad_output, allowed=None):
    n_heads = key.shape[-3]
    times = query.shape[-3] // n_heads
    grad_query, grad_key, grad_value = attention_backward(
        query, {key}, {value}, output, lse, grad_output, {allowed})
    return grad_query, {grad_key}, {grad_value}
"""


def grouped(**changes):
    """The right backward pass of shared heads, but for `changes`."""
    right = {
        "key": "repeat_heads(key, times)",
        "value": "repeat_heads(value, times)",
        "allowed": "allowed",
        "grad_key": "sum_groups(grad_key, n_heads)",
        "grad_value": "sum_groups(grad_value, n_heads)",
    }
    return {"grouped_backward": GROUPED.format(**right | changes)}


def one_line(name, arguments, line):
    """A function of one line in the place of a stub."""
    return {name: f"def {name}({arguments}):\n    return {line}\n"}


def by_hand(delta, we, like, query):
    numbers = {"delta_2": delta, "grad_score_we": we, "grad_score_like": like, "grad_query_2": query}
    return {"by_hand": "\n".join(f"{name} = {number}" for name, number in numbers.items())}


# --- wrong -----------------------------------------------------------------------------------------------

MISTAKES = [
    # by hand
    Planted(
        "hand_not_scaled",
        "By hand: dQ is not divided by √d_h.",
        by_hand(1.4527, 0.4474, -0.4474, 0.4474),
        {"by_hand"},
    ),
    Planted(
        "hand_sum_of_grad_output",
        "By hand: D is the row sum of dO.",
        by_hand(2.0, 0.0, -0.5473, 0.5473),
        {"by_hand"},
    ),
    # dV, dP
    Planted(
        "tile_not_transposed",
        "dV uses P where Pᵀ belongs; square tiles hide it.",
        one_line("value_gradient", "weights, grad_output", "weights @ grad_output"),
        {"dv"},
    ),
    Planted(
        "all_axes_turned",
        "weights.T exchanges batch and heads as well.",
        one_line("value_gradient", "weights, grad_output", "weights.T @ grad_output"),
        {"dv"},
    ),
    Planted(
        "value_not_transposed",
        "dP uses V where Vᵀ belongs.",
        one_line("weight_gradient", "grad_output, value", "grad_output @ value"),
        {"dp"},
    ),
    Planted(
        "grad_weights_turned",
        "dP comes out as (keys, queries).",
        one_line("weight_gradient", "grad_output, value", "value @ np.swapaxes(grad_output, -1, -2)"),
        {"dp"},
    ),
    # D
    Planted(
        "delta_of_grad_output",
        "D is the row sum of dO, without O.",
        one_line("row_delta", "output, grad_output", "grad_output.sum(axis=-1)"),
        {"delta"},
    ),
    Planted(
        "delta_is_a_mean",
        "D is the mean over the components instead of their sum.",
        one_line("row_delta", "output, grad_output", "(output * grad_output).mean(axis=-1)"),
        {"delta"},
    ),
    Planted(
        "delta_over_tokens",
        "D is summed over the tokens instead of the components.",
        one_line("row_delta", "output, grad_output", "(output * grad_output).sum(axis=-2)"),
        {"delta"},
    ),
    Planted(
        "delta_keeps_its_axis",
        "D has shape (..., Tq, 1) instead of (..., Tq).",
        one_line("row_delta", "output, grad_output", "(output * grad_output).sum(axis=-1, keepdims=True)"),
        {"delta"},
    ),
    # dS
    Planted(
        "missing_delta",
        "D is left out: dS = P ∘ dP.",
        one_line("score_gradient", "weights, grad_weights, delta", "weights * grad_weights"),
        {"ds"},
    ),
    Planted(
        "delta_added",
        "D is added instead of subtracted.",
        one_line(
            "score_gradient", "weights, grad_weights, delta", "weights * (grad_weights + delta[..., None])"
        ),
        {"ds"},
    ),
    Planted(
        "delta_along_keys",
        "D is subtracted along the keys; only a square lets it through.",
        one_line(
            "score_gradient", "weights, grad_weights, delta", "weights * (grad_weights - delta[..., None, :])"
        ),
        {"ds"},
    ),
    Planted(
        "delta_outside",
        "dS = P ∘ dP − D: the weights do not multiply D.",
        one_line(
            "score_gradient", "weights, grad_weights, delta", "weights * grad_weights - delta[..., None]"
        ),
        {"ds"},
    ),
    Planted(
        "plain_mean",
        "The plain mean of dP stands where the weighted one belongs.",
        one_line(
            "score_gradient",
            "weights, grad_weights, delta",
            "weights * (grad_weights - grad_weights.mean(axis=-1, keepdims=True))",
        ),
        {"ds"},
    ),
    # dQ, dK
    Planted(
        "gradient_not_scaled",
        "dQ lacks the factor 1/√d_h.",
        one_line("query_gradient", "grad_scores, key, scale", "grad_scores @ key"),
        {"dq"},
    ),
    Planted(
        "query_scaled_from_its_shape",
        "dQ takes 1/√d_h and ignores the scale it is given.",
        one_line("query_gradient", "grad_scores, key, scale", "grad_scores @ key / math.sqrt(key.shape[-1])"),
        {"dq"},
    ),
    Planted(
        "query_collects_a_column",
        "dQ uses dSᵀ where dS belongs.",
        one_line(
            "query_gradient", "grad_scores, key, scale", "scale * (np.swapaxes(grad_scores, -1, -2) @ key)"
        ),
        {"dq"},
    ),
    Planted(
        "key_gradient_not_scaled",
        "dK lacks the factor 1/√d_h.",
        one_line("key_gradient", "grad_scores, query, scale", "np.swapaxes(grad_scores, -1, -2) @ query"),
        {"dk"},
    ),
    Planted(
        "key_scale_squared",
        "dK is scaled twice.",
        one_line(
            "key_gradient",
            "grad_scores, query, scale",
            "scale**2 * (np.swapaxes(grad_scores, -1, -2) @ query)",
        ),
        {"dk"},
    ),
    Planted(
        "key_not_transposed",
        "dK uses dS where dSᵀ belongs; square tiles hide it.",
        one_line("key_gradient", "grad_scores, query, scale", "scale * (grad_scores @ query)"),
        {"dk"},
    ),
    # the weights again
    Planted(
        "maximum_for_lse",
        "The weights are recomputed with the row's maximum instead of lse.",
        {
            "weights_again": "def weights_again(masked, lse):\n"
            "    largest = masked.max(axis=-1, keepdims=True)\n"
            "    return np.exp(masked - np.where(largest == -np.inf, 0.0, largest))\n"
        },
        {"recompute"},
    ),
    Planted(
        "empty_row_is_nan",
        "A row that sees nothing computes −∞ − (−∞).",
        one_line("weights_again", "masked, lse", "np.exp(masked - lse[..., None])"),
        {"empty_rows"},
    ),
    Planted(
        "empty_row_is_shared_out",
        "A row that sees nothing hands out equal weights.",
        {
            "weights_again": "def weights_again(masked, lse):\n"
            "    empty = (lse == -np.inf)[..., None]\n"
            "    weights = np.exp(np.where(empty, 0.0, masked) - np.where(empty, 0.0, lse[..., None]))\n"
            "    return np.where(empty, 1 / masked.shape[-1], weights)\n"
        },
        {"empty_rows"},
    ),
    # the composition
    Planted(
        "scale_applied_twice",
        "dS is multiplied by the scale before dQ and dK multiply by it again.",
        backward(queries="scale * grad_scores", keys="scale * grad_scores"),
        {"backward"},
    ),
    Planted(
        "scale_only_forwards",
        "The scale is used for the scores, and left out on the way back.",
        backward(scale="1.0"),
        {"backward"},
    ),
    Planted(
        "scale_only_backwards",
        "The scores are recomputed without the scale.",
        backward(forward="1.0"),
        {"backward"},
    ),
    Planted(
        "scale_by_width",
        "The default scale is 1/d_h.",
        backward(default="1 / query.shape[-1]"),
        {"backward"},
    ),
    Planted(
        "scale_by_value_width",
        "The default scale is 1/√d_v.",
        backward(default="1 / math.sqrt(value.shape[-1])"),
        {"backward"},
    ),
    Planted(
        "mask_forgotten",
        "The scores are recomputed without the mask.",
        backward(allowed="True"),
        {"backward_mask"},
    ),
    Planted(
        "mask_inverted",
        "True is read as 'ignore'.",
        backward(allowed="~allowed"),
        {"backward_mask"},
    ),
    Planted(
        "hidden_is_zero",
        "Hidden scores become 0 instead of −∞.",
        backward(hidden="0.0"),
        {"backward_mask"},
    ),
    Planted(
        "softmax_again",
        "A softmax of its own in the composition: an empty row becomes NaN, and dK and dV with it.",
        backward(
            weights="np.exp(masked - masked.max(axis=-1, keepdims=True));"
            " weights = weights / weights.sum(axis=-1, keepdims=True)"
        ),
        {"backward_mask"},
    ),
    Planted(
        "query_and_key_exchanged",
        "dK is returned where dQ belongs.",
        {
            "attention_backward": backward()["attention_backward"].replace(
                "return (", "first, second, third = ("
            )
            + "    return second, first, third\n"
        },
        {"backward", "backward_mask"},
    ),
    # the test of gradients
    Planted(
        "only_dq_tested",
        "The test looks at dQ alone.",
        check(which="(0,)"),
        {"finite_differences"},
    ),
    Planted(
        "loose_tolerance",
        "The test forgives 10 %.",
        check(wrong="not abs(got - measured) < 0.1 * abs(measured) + 1e-6"),
        {"finite_differences"},
    ),
    Planted(
        "signs_only",
        "The test compares signs.",
        check(wrong="not abs(measured) < 1e-6 and not got * measured > 0"),
        {"finite_differences"},
    ),
    Planted(
        "two_sums_only",
        "The test asks only whether the rows of dK sum to 0.",
        {
            "check_gradients": "def check_gradients(layer):\n"
            "    draw = np.random.default_rng(1)\n"
            "    shapes = ((3, 4), (5, 4), (5, 2), (3, 2))\n"
            "    _, _, grad_key, _ = layer(*(draw.normal(size=shape) for shape in shapes))\n"
            "    return bool(np.abs(grad_key.sum(axis=0)).max() < 1e-9)\n"
        },
        {"finite_differences"},
    ),
    Planted(
        "nan_passes",
        "The test asks whether the difference is too large, and NaN is not.",
        check(wrong="abs(got - measured) > 1e-6"),
        {"nan_is_wrong"},
    ),
    Planted(
        "step_too_small",
        "h = 1e-13: rounding is larger than what is measured, and right gradients are rejected.",
        check(h="1e-13"),
        {"finite_differences", "nan_is_wrong"},
    ),
    Planted(
        "loss_without_grad_output",
        "The loss is the sum of the outputs: dO is forgotten, and right gradients are rejected.",
        check(loss="layer(*moved, grad_output)[0]"),
        {"finite_differences", "nan_is_wrong"},
    ),
    Planted(
        "accepts_everything",
        "The test always says True.",
        one_line("check_gradients", "layer", "True"),
        {"finite_differences", "nan_is_wrong"},
    ),
    Planted(
        "rejects_everything",
        "The test always says False.",
        one_line("check_gradients", "layer", "False"),
        {"finite_differences", "nan_is_wrong"},
    ),
    # decoding
    Planted(
        "alignment_ignored",
        "The diagonal starts at the top left.",
        one_line("causal_mask", "n_q, n_k", "np.tri(n_q, n_k, dtype=bool)"),
        {"alignment"},
    ),
    Planted(
        "strictly_past",
        "A new token does not see itself.",
        one_line("causal_mask", "n_q, n_k", "np.tri(n_q, n_k, n_k - n_q - 1, dtype=bool)"),
        {"alignment"},
    ),
    Planted(
        "sees_next",
        "Every token sees the next one.",
        one_line("causal_mask", "n_q, n_k", "np.tri(n_q, n_k, n_k - n_q + 1, dtype=bool)"),
        {"alignment"},
    ),
    Planted(
        "mask_is_ones_and_zeros",
        "The mask holds numbers, not booleans.",
        one_line("causal_mask", "n_q, n_k", "np.tri(n_q, n_k, n_k - n_q)"),
        {"alignment"},
    ),
    Planted("no_scale", "The scores are not divided by √d_h.", forward(scale=""), {"forward"}),
    Planted(
        "lse_without_sum", "lse is the row's maximum; the logarithm is missing.", forward(log=""), {"forward"}
    ),
    Planted(
        "output_of_empty_row_is_nan",
        "Rows that see nothing are not treated apart.",
        forward(empty="np.zeros_like(largest, dtype=bool)"),
        {"forward"},
    ),
    Planted(
        "cache_read_too_early",
        "The new token attends before its own key is in the cache.",
        step(read="cache_key, cache_value", allowed="None"),
        {"decode"},
    ),
    Planted(
        "no_mask_in_decoding",
        "No mask: right for one new token, wrong for several.",
        step(allowed="None"),
        {"decode"},
    ),
    Planted(
        "decoding_top_left",
        "The step builds a mask of its own, aligned at the top left.",
        step(allowed="np.tri(query.shape[-2], keys.shape[-2], dtype=bool)"),
        {"decode"},
    ),
    Planted(
        "new_keys_first",
        "The new keys and values are put before the old ones.",
        step(keys="[key, cache_key]", values="[value, cache_value]"),
        {"decode"},
    ),
    Planted(
        "cache_not_kept",
        "The old cache is returned.",
        step(kept="cache_key, cache_value"),
        {"decode"},
    ),
    Planted("cache_of_more_heads", "The new keys are appended as new heads.", step(axis="0"), {"decode"}),
    # shared heads
    Planted(
        "grouped_heads_tiled",
        "Key/value heads come in the order 0, 1, 0, 1.",
        one_line("repeat_heads", "x, times", "np.concatenate([x] * times, axis=-3)"),
        {"repeat"},
    ),
    Planted(
        "group_not_summed",
        "A shared head gets the gradient of its first query head only.",
        one_line("sum_groups", "gradient, n_heads", "gradient[..., ::gradient.shape[-3] // n_heads, :, :]"),
        {"groups"},
    ),
    Planted(
        "group_averaged",
        "A shared head gets the mean over its query heads.",
        one_line(
            "sum_groups",
            "gradient, n_heads",
            "gradient.reshape(*gradient.shape[:-3], n_heads, -1, *gradient.shape[-2:]).mean(axis=-3)",
        ),
        {"groups"},
    ),
    Planted(
        "group_of_strangers",
        "The sum runs over every n-th query head, as if heads came in the order 0, 1, 0, 1.",
        one_line(
            "sum_groups",
            "gradient, n_heads",
            "gradient.reshape(*gradient.shape[:-3], -1, n_heads, *gradient.shape[-2:]).sum(axis=-4)",
        ),
        {"groups"},
    ),
    Planted(
        "only_keys_are_summed",
        "The shared value head gets its last query head's gradient.",
        grouped(grad_value="grad_value[..., times - 1::times, :, :]"),
        {"grouped"},
    ),
    Planted(
        "grouped_without_mask",
        "The mask is not handed on.",
        grouped(allowed="None"),
        {"grouped"},
    ),
    Planted(
        "copies_not_summed",
        "dK has a row of heads for every query head.",
        grouped(grad_key="grad_key"),
        {"grouped"},
    ),
    Planted(
        "values_tiled_in_place",
        "The composition repeats the values itself, in the order 0, 1, 0, 1.",
        grouped(value="np.concatenate([value] * times, axis=-3)"),
        {"grouped"},
    ),
    # choices
    Planted(
        "chose_not_scaled",
        "Chose the number without the scale.",
        {"gradient_number": 'gradient_number = "c"'},
        {"gradient_number"},
    ),
    Planted(
        "chose_top_left",
        "Chose the number of the top-left mask.",
        {"new_token": 'new_token = "a"'},
        {"new_token"},
    ),
    Planted(
        "chose_first_head",
        "Chose the number of the first query head.",
        {"shared_head": 'shared_head = "b"'},
        {"shared_head"},
    ),
]

# --- right in another way --------------------------------------------------------------------------------

VARIANTS = [
    Variant(
        "einsum_everywhere",
        "All products by einsum.",
        {
            **one_line(
                "value_gradient",
                "weights, grad_output",
                'np.einsum("...ij,...ic->...jc", weights, grad_output)',
            ),
            **one_line(
                "weight_gradient", "grad_output, value", 'np.einsum("...ic,...jc->...ij", grad_output, value)'
            ),
            **one_line(
                "row_delta", "output, grad_output", 'np.einsum("...ic,...ic->...i", output, grad_output)'
            ),
            **one_line(
                "query_gradient",
                "grad_scores, key, scale",
                'np.einsum("...ij,...jc->...ic", grad_scores, scale * key)',
            ),
            **one_line(
                "key_gradient",
                "grad_scores, query, scale",
                'np.einsum("...ij,...ic->...jc", scale * grad_scores, query)',
            ),
        },
    ),
    Variant(
        "loops_over_rows",
        "Plain loops over queries and keys, in another order of summation.",
        {
            "value_gradient": "def value_gradient(weights, grad_output):\n"
            "    result = np.zeros((*weights.shape[:-2], weights.shape[-1], grad_output.shape[-1]))\n"
            "    for i in reversed(range(weights.shape[-2])):\n"
            "        result += weights[..., i, :, None] * grad_output[..., i, None, :]\n"
            "    return result\n",
            "key_gradient": "def key_gradient(grad_scores, query, scale):\n"
            "    result = np.zeros((*grad_scores.shape[:-2], grad_scores.shape[-1], query.shape[-1]))\n"
            "    for j in range(grad_scores.shape[-1]):\n"
            "        for i in range(grad_scores.shape[-2]):\n"
            "            result[..., j, :] += scale * grad_scores[..., i, j, None] * query[..., i, :]\n"
            "    return result\n",
            "row_delta": "def row_delta(output, grad_output):\n"
            "    total = 0.0\n"
            "    for c in range(output.shape[-1]):\n"
            "        total = total + output[..., c] * grad_output[..., c]\n"
            "    return total\n",
        },
    ),
    Variant(
        "float32_throughout",
        "Everything in float32.",
        {
            **one_line(
                "value_gradient",
                "weights, grad_output",
                "np.matmul(np.swapaxes(weights, -1, -2).astype(np.float32), grad_output.astype(np.float32))",
            ),
            **one_line(
                "weight_gradient",
                "grad_output, value",
                "grad_output.astype(np.float32) @ np.swapaxes(value, -1, -2).astype(np.float32)",
            ),
            **one_line(
                "row_delta",
                "output, grad_output",
                "(output.astype(np.float32) * grad_output.astype(np.float32)).sum(axis=-1)",
            ),
            **one_line(
                "score_gradient",
                "weights, grad_weights, delta",
                "weights.astype(np.float32)"
                " * (grad_weights.astype(np.float32) - delta.astype(np.float32)[..., None])",
            ),
            **one_line(
                "query_gradient",
                "grad_scores, key, scale",
                "np.float32(scale) * (grad_scores.astype(np.float32) @ key.astype(np.float32))",
            ),
            **one_line(
                "key_gradient",
                "grad_scores, query, scale",
                "np.float32(scale)"
                " * (np.swapaxes(grad_scores, -1, -2).astype(np.float32) @ query.astype(np.float32))",
            ),
            "weights_again": "def weights_again(masked, lse):\n"
            "    masked, lse = masked.astype(np.float32), lse.astype(np.float32)\n"
            "    return np.exp(masked - np.where(np.isinf(lse), np.float32(0), lse)[..., None])\n",
        },
    ),
    Variant(
        "delta_from_the_weights",
        "D of dS is taken from P and dP again, not from the argument.",
        one_line(
            "score_gradient",
            "weights, grad_weights, delta",
            "weights * grad_weights - weights * (weights * grad_weights).sum(axis=-1, keepdims=True)",
        ),
    ),
    Variant(
        "float32_compositions",
        "The compositions cast everything to float32 first.",
        {
            "attention_backward": """
def attention_backward(query, key, value, output, lse, grad_output,
                       allowed=None, scale=None):
    query, key, value, output, lse, grad_output = (
        np.asarray(a, dtype=np.float32) for a in (query, key, value, output, lse, grad_output))
    scale = np.float32(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    masked = scale * (query @ np.swapaxes(key, -1, -2))
    if allowed is not None:
        masked = np.where(allowed, masked, np.float32(-np.inf))
    p = np.exp(masked - np.where(np.isinf(lse), np.float32(0), lse)[..., None])
    delta = (output * grad_output).sum(axis=-1, keepdims=True)
    ds = p * (grad_output @ np.swapaxes(value, -1, -2) - delta)
    return scale * ds @ key, scale * np.swapaxes(ds, -1, -2) @ query, np.swapaxes(p, -1, -2) @ grad_output
""",
            "attention_forward": """
def attention_forward(query, key, value, allowed=None):
    query, key, value = (np.asarray(a, dtype=np.float32) for a in (query, key, value))
    scores = query @ np.swapaxes(key, -1, -2) / np.float32(math.sqrt(query.shape[-1]))
    if allowed is not None:
        scores = np.where(allowed, scores, np.float32(-np.inf))
    largest = scores.max(axis=-1, keepdims=True)
    largest[np.isinf(largest)] = 0
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    output = (powers @ value) / np.where(total == 0, np.float32(1), total)
    return output, (largest + np.log(total))[..., 0]
""",
        },
    ),
    Variant(
        "nan_cleaned_up",
        "The empty row computes NaN, with a warning, and is set to 0 afterwards.",
        {
            "weights_again": "def weights_again(masked, lse):\n"
            "    weights = np.exp(masked - lse[..., None])\n"
            "    weights[lse == -np.inf] = 0.0\n"
            "    return weights\n"
        },
    ),
    Variant(
        "scale_on_the_queries",
        "Queries are scaled, −∞ is added, dQ gets the scale on dS; no piece is called.",
        {
            "attention_backward": """
def attention_backward(query, key, value, output, lse, grad_output,
                       allowed=None, scale=None):
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scaled = np.einsum("...ic,...jc->...ij", query * factor, key)
    if allowed is not None:
        scaled = scaled + np.where(allowed, 0.0, -np.inf)
    safe = np.where(np.isneginf(lse), 0.0, lse)
    p = np.exp(scaled - safe[..., None])
    dp = np.matmul(grad_output, value.swapaxes(-1, -2))
    ds = factor * p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    columns = "...ij,...ic->...jc"
    return [ds @ key, np.einsum(columns, ds, query), np.einsum(columns, p, grad_output)]
"""
        },
    ),
    Variant(
        "piece_by_keyword",
        "The pieces are called by keyword, and the scale is a NumPy number.",
        {
            "attention_backward": """
def attention_backward(query, key, value, output, lse, grad_output,
                       allowed=None, scale=None):
    scale = np.float64(1.0) / np.sqrt(query.shape[-1]) if scale is None else scale
    scores = (scale * query) @ np.swapaxes(key, -1, -2)
    if allowed is not None:
        scores[..., ~allowed] = -np.inf
    p = weights_again(masked=scores, lse=lse)
    ds = score_gradient(delta=row_delta(output=output, grad_output=grad_output), weights=p,
                        grad_weights=weight_gradient(grad_output=grad_output, value=value))
    dq = query_gradient(grad_scores=ds, key=key, scale=scale)
    dk = key_gradient(grad_scores=ds, query=query, scale=scale)
    return dq, dk, value_gradient(weights=p, grad_output=grad_output)
"""
        },
    ),
    Variant(
        "relative_test",
        "The test of gradients measures relative errors, with another step and an assert.",
        {
            "check_gradients": """
def measured_gradient(loss, array, h=1e-4):
    gradient = np.zeros_like(array)
    for place in range(array.size):
        up, down = array.copy(), array.copy()
        up.flat[place] += h
        down.flat[place] -= h
        gradient.flat[place] = (loss(up) - loss(down)) / (2 * h)
    return gradient


def check_gradients(layer):
    draw = np.random.default_rng(7)
    q, k, v, g = (draw.standard_normal(size) for size in ((4, 3), (5, 3), (5, 6), (4, 6)))
    _, dq, dk, dv = layer(q, k, v, g)
    for got, right in (
        (dq, measured_gradient(lambda x: np.sum(g * layer(x, k, v, g)[0]), q)),
        (dk, measured_gradient(lambda x: np.sum(g * layer(q, x, v, g)[0]), k)),
        (dv, measured_gradient(lambda x: np.sum(g * layer(q, k, x, g)[0]), v)),
    ):
        assert np.linalg.norm(got - right) <= 1e-4 * np.linalg.norm(right), "not the same"
    return True
"""
        },
    ),
    Variant(
        "allclose_test",
        "The test of gradients returns what numpy.allclose says.",
        check(wrong="not np.allclose(got, measured, rtol=1e-4, atol=1e-7)", seed="5"),
    ),
    Variant(
        "mask_from_positions",
        "The mask compares positions, and the forward pass cleans up NaN.",
        {
            **one_line(
                "causal_mask",
                "n_q, n_k",
                "np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + (n_k - n_q)",
            ),
            "attention_forward": """
def attention_forward(query, key, value, allowed=None):
    scores = (query / np.sqrt(query.shape[-1])) @ np.swapaxes(key, -1, -2)
    if allowed is not None:
        scores = scores + np.where(allowed, 0.0, -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1)
    weights = np.nan_to_num(np.exp(scores - lse[..., None]))
    return np.einsum("...ij,...jc->...ic", weights, value), lse
""",
        },
    ),
    Variant(
        "one_new_token_after_the_other",
        "The step feeds its new tokens singly and needs no mask.",
        {
            "decode_step": """
def decode_step(query, key, value, cache_key, cache_value):
    rows = []
    for i in range(query.shape[-2]):
        one = slice(i, i + 1)
        cache_key = np.append(cache_key, key[..., one, :], axis=-2)
        cache_value = np.append(cache_value, value[..., one, :], axis=-2)
        rows.append(attention_forward(query[..., one, :], cache_key, cache_value)[0])
    return np.concatenate(rows, axis=-2), cache_key, cache_value
"""
        },
    ),
    Variant(
        "heads_by_index",
        "Heads are repeated by an index and summed one by one.",
        {
            **one_line("repeat_heads", "x, times", "x[..., np.arange(x.shape[-3] * times) // times, :, :]"),
            "sum_groups": """
def sum_groups(gradient, n_heads):
    times = gradient.shape[-3] // n_heads
    return sum(gradient[..., first::times, :, :] for first in range(times))
""",
            "grouped_backward": """
def grouped_backward(query, key, value, output, lse, grad_output, allowed=None):
    times = query.shape[-3] // key.shape[-3]
    grad_query, grad_key, grad_value = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    for head in range(query.shape[-3]):
        mine, theirs = (..., head, slice(None), slice(None)), (..., head // times, slice(None), slice(None))
        grad_query[mine], dk, dv = attention_backward(
            query[mine], key[theirs], value[theirs], output[mine], lse[..., head, :],
            grad_output[mine], allowed)
        grad_key[theirs] += dk
        grad_value[theirs] += dv
    return grad_query, grad_key, grad_value
""",
        },
    ),
]

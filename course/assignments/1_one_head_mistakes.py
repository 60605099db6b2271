"""Wrong submissions of assignment 1, each with the properties it must lose, and right ones that lose nothing.

A name that stands in ``attnlib.mistakes`` too is the same mistake.
"""

import textwrap

from course.planting import Planted, Variant


def code(text):
    return textwrap.dedent(text).strip("\n") + "\n"


MISTAKES = [
    # by hand, and the questions with letters
    Planted(
        "by_hand_exchanged",
        "Worked out by hand with query and key exchanged.",
        {
            "hand_scores": code("""
            score_like_tea = 6
            scaled_tea_we = 1.5
        """)
        },
        {"hand_scores"},
    ),
    Planted(
        "by_hand_not_scaled",
        "Worked out by hand without the scale.",
        {
            "hand_row": code("""
            weight_like_we = 0.982
            output_like_2 = 1.964
        """)
        },
        {"hand_row"},
    ),
    Planted(
        "by_hand_top_left",
        "The diagonal starts at the top left, so that like sees we alone.",
        {
            "hand_row": code("""
            weight_like_we = 1.0
            output_like_2 = 2.0
        """)
        },
        {"hand_row"},
    ),
    Planted(
        "letter_of_reshape",
        "The number that a reshape alone gives.",
        {"which_head": 'which_head = "b"'},
        {"which_head"},
    ),
    Planted(
        "letter_of_no_scale",
        "The number that comes out unscaled.",
        {"which_scale": 'which_scale = "a"'},
        {"which_scale"},
    ),
    Planted(
        "letter_of_late_mask",
        "The number of a mask after the softmax.",
        {"which_mask": 'which_mask = "a"'},
        {"which_mask"},
    ),
    Planted(
        "letter_of_wrong_axis",
        "The number of a softmax over the queries.",
        {"which_softmax": 'which_softmax = "a"'},
        {"which_softmax"},
    ),
    # heads
    Planted(
        "split_without_transpose",
        "The heads are split by reshape alone, which mixes tokens.",
        {
            "split_heads": code("""
            def split_heads(x, n_heads):
                *lead, n_tokens, width = x.shape
                if width % n_heads:
                    raise ValueError(f"{width} is not a multiple of {n_heads}")
                return x.reshape(*lead, n_heads, n_tokens, width // n_heads)
        """)
        },
        {"split"},
    ),
    Planted(
        "split_interleaved",
        "Every second component goes to the same head.",
        {
            "split_heads": code("""
            def split_heads(x, n_heads):
                if x.shape[-1] % n_heads:
                    raise ValueError(f"{x.shape[-1]} is not a multiple of {n_heads}")
                return np.stack([x[..., h::n_heads] for h in range(n_heads)], axis=-3)
        """)
        },
        {"split"},
    ),
    Planted(
        "split_of_the_first_axis",
        "The split swaps axes 0 and 1, which is right without a batch only.",
        {
            "split_heads": code("""
            def split_heads(x, n_heads):
                *lead, n_tokens, width = x.shape
                if width % n_heads:
                    raise ValueError(f"{width} is not a multiple of {n_heads}")
                return x.reshape(*lead, n_tokens, n_heads, width // n_heads).swapaxes(0, 1)
        """)
        },
        {"split"},
    ),
    Planted(
        "split_drops_the_rest",
        "A width that the heads do not divide is cut down without a word.",
        {
            "split_heads": code("""
            def split_heads(x, n_heads):
                d_h = x.shape[-1] // n_heads
                return np.stack([x[..., h * d_h : (h + 1) * d_h] for h in range(n_heads)], axis=-3)
        """)
        },
        {"split_refuses"},
    ),
    Planted(
        "split_refuses_by_accident",
        "NumPy refuses the reshape, and its message names neither the width nor the heads.",
        {
            "split_heads": code("""
            def split_heads(x, n_heads):
                return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-3, -2)
        """)
        },
        {"split_refuses"},
    ),
    Planted(
        "merge_without_transpose",
        "The heads are merged by reshape alone, which mixes tokens.",
        {
            "merge_heads": code("""
            def merge_heads(x):
                *lead, n_heads, n_tokens, width = x.shape
                return x.reshape(*lead, n_tokens, n_heads * width)
        """)
        },
        {"merge"},
    ),
    Planted(
        "merge_backwards",
        "Head 2 is put before head 1.",
        {
            "merge_heads": code("""
            def merge_heads(x):
                return np.concatenate([x[..., h, :, :] for h in reversed(range(x.shape[-3]))], axis=-1)
        """)
        },
        {"merge"},
    ),
    # scores and scale
    Planted(
        "query_and_key_swapped",
        "S is KQᵀ instead of QKᵀ.",
        {
            "scores": code("""
            def scores(query, key):
                return key @ query.swapaxes(-1, -2)
        """)
        },
        {"scores"},
    ),
    Planted(
        "reshape_for_transpose",
        "The keys are reshaped where they should be transposed.",
        {
            "scores": code("""
            def scores(query, key):
                *lead, n_k, d_h = key.shape
                return query @ key.reshape(*lead, d_h, n_k)
        """)
        },
        {"scores"},
    ),
    Planted(
        "all_axes_transposed",
        ".T turns all axes round, heads and batch too.",
        {
            "scores": code("""
            def scores(query, key):
                return query @ key.T
        """)
        },
        {"scores"},
    ),
    Planted(
        "scaled_in_the_scores",
        "The scores are already scaled, and the scale is applied again later.",
        {
            "scores": code("""
            def scores(query, key):
                return query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
        """)
        },
        {"scores"},
    ),
    Planted(
        "statistics_in_half",
        "The scores are computed in float16.",
        {
            "scores": code("""
            def scores(query, key):
                return query.astype(np.float16) @ key.astype(np.float16).swapaxes(-1, -2)
        """)
        },
        {"scores"},
    ),
    Planted(
        "no_scale",
        "The scores are not divided by √d_h.",
        {
            "scale_scores": code("""
            def scale_scores(scores, d_h):
                return scores
        """)
        },
        {"scale"},
    ),
    Planted(
        "scale_by_width",
        "The scores are divided by d_h, not by its root.",
        {
            "scale_scores": code("""
            def scale_scores(scores, d_h):
                return scores / d_h
        """)
        },
        {"scale"},
    ),
    Planted(
        "scale_upside_down",
        "The scores are multiplied by √d_h.",
        {
            "scale_scores": code("""
            def scale_scores(scores, d_h):
                return scores * math.sqrt(d_h)
        """)
        },
        {"scale"},
    ),
    Planted(
        "scale_by_keys",
        "The number of keys stands under the root.",
        {
            "scale_scores": code("""
            def scale_scores(scores, d_h):
                return scores / math.sqrt(scores.shape[-1])
        """)
        },
        {"scale"},
    ),
    Planted(
        "scale_typed_in",
        "The divisor of the worked example is typed into the code.",
        {
            "scale_scores": code("""
            def scale_scores(scores, d_h):
                return scores / 2
        """)
        },
        {"scale"},
    ),
    # masks
    Planted(
        "top_left_when_decoding",
        "The causal diagonal starts at the first key although the queries are the last tokens.",
        {
            "query_positions": code("""
            def query_positions(n_q, n_k, align):
                return np.arange(n_q)
        """)
        },
        {"alignment"},
    ),
    Planted(
        "moved_the_wrong_way",
        "The queries move by Tq − Tk instead of Tk − Tq.",
        {
            "query_positions": code("""
            def query_positions(n_q, n_k, align):
                return np.arange(n_q) + (n_q - n_k if align == "bottom_right" else 0)
        """)
        },
        {"alignment"},
    ),
    Planted(
        "no_query_before_the_first_key",
        "Positions before the first key are cut off at 0, so no row is ever empty.",
        {
            "query_positions": code("""
            def query_positions(n_q, n_k, align):
                first = n_k - n_q if align == "bottom_right" else 0
                return np.maximum(np.arange(n_q) + first, 0)
        """)
        },
        {"alignment"},
    ),
    Planted(
        "strictly_past",
        "The diagonal is hidden too: a token may not see itself.",
        {
            "causal_mask": code("""
            def causal_mask(n_q, n_k, align):
                return np.arange(n_k) < query_positions(n_q, n_k, align)[:, None]
        """)
        },
        {"diagonal"},
    ),
    Planted(
        "sees_next",
        "The diagonal is off by one: every token sees the next one.",
        {
            "causal_mask": code("""
            def causal_mask(n_q, n_k, align):
                return np.arange(n_k) <= query_positions(n_q, n_k, align)[:, None] + 1
        """)
        },
        {"diagonal"},
    ),
    Planted(
        "future_only",
        "The mask shows the future and hides the past.",
        {
            "causal_mask": code("""
            def causal_mask(n_q, n_k, align):
                return np.arange(n_k) >= query_positions(n_q, n_k, align)[:, None]
        """)
        },
        {"diagonal"},
    ),
    Planted(
        "no_mask",
        "The mask is never applied.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled
        """)
        },
        {"mask"},
    ),
    Planted(
        "mask_inverted",
        "True is read as 'ignore'.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled if allowed is None else np.where(allowed, -np.inf, scaled)
        """)
        },
        {"mask"},
    ),
    Planted(
        "mask_added_as_ones",
        "The boolean mask is added to the scores as ones and zeros.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled if allowed is None else scaled + allowed
        """)
        },
        {"mask"},
    ),
    Planted(
        "mask_by_zero",
        "Hidden scores are set to 0 instead of −∞.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled if allowed is None else scaled * allowed
        """)
        },
        {"mask"},
    ),
    Planted(
        "mask_by_minus_ten",
        "Hidden scores are set to −10 instead of −∞.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled if allowed is None else np.where(allowed, scaled, -10.0)
        """)
        },
        {"mask"},
    ),
    Planted(
        "minus_1e9_on_empty_row",
        "Hidden scores are set to −1e9, so an empty row becomes the mean of the hidden values.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled if allowed is None else np.where(allowed, scaled, -1e9)
        """)
        },
        {"mask"},
    ),
    Planted(
        "mask_as_zero_times_infinity",
        "The hidden part is written as (1 − mask) · −∞, and 0 · ∞ is NaN.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                return scaled if allowed is None else scaled + (1.0 - np.asarray(allowed)) * -np.inf
        """)
        },
        {"mask"},
    ),
    # softmax
    Planted(
        "no_maximum",
        "The row's maximum is not subtracted, so large scores overflow.",
        {
            "row_powers": code("""
            def row_powers(masked):
                return np.exp(masked)
        """)
        },
        {"powers"},
    ),
    Planted(
        "maximum_of_the_table",
        "The maximum of the whole table is subtracted, and low rows underflow.",
        {
            "row_powers": code("""
            def row_powers(masked):
                top = masked.max()
                return np.exp(masked - (0.0 if np.isneginf(top) else top))
        """)
        },
        {"powers"},
    ),
    Planted(
        "scores_clipped",
        "Scores are clipped at 50 instead of moved.",
        {
            "row_powers": code("""
            def row_powers(masked):
                return np.exp(np.minimum(masked, 50.0))
        """)
        },
        {"powers"},
    ),
    Planted(
        "softmax_base_two",
        "Powers of 2 where powers of e belong.",
        {
            "row_powers": code("""
            def row_powers(masked):
                top = masked.max(axis=-1, keepdims=True)
                return np.exp2(masked - np.where(np.isneginf(top), 0.0, top))
        """)
        },
        {"powers"},
    ),
    Planted(
        "softmax_over_queries",
        "The softmax runs down the columns.",
        {
            "softmax": code("""
            def softmax(masked):
                powers = row_powers(masked)
                total = powers.sum(axis=-2, keepdims=True)
                return powers / np.where(total == 0, 1.0, total)
        """)
        },
        {"softmax"},
    ),
    Planted(
        "softmax_over_everything",
        "One softmax over the whole table.",
        {
            "softmax": code("""
            def softmax(masked):
                powers = row_powers(masked)
                total = powers.sum(axis=(-2, -1), keepdims=True)
                return powers / np.where(total == 0, 1.0, total)
        """)
        },
        {"softmax"},
    ),
    Planted(
        "softmax_twice",
        "The weights go through a second softmax.",
        {
            "softmax": code("""
            def softmax(masked):
                scores = masked
                for _ in range(2):
                    powers = row_powers(scores)
                    total = powers.sum(axis=-1, keepdims=True)
                    weights = powers / np.where(total == 0, 1.0, total)
                    scores = np.where(np.isneginf(masked), -np.inf, weights)
                return weights
        """)
        },
        {"softmax"},
    ),
    Planted(
        "divided_by_the_largest",
        "Each row is divided by its largest power, which is 1, and not by its sum.",
        {
            "softmax": code("""
            def softmax(masked):
                powers = row_powers(masked)
                largest = powers.max(axis=-1, keepdims=True)
                return powers / np.where(largest == 0, 1.0, largest)
        """)
        },
        {"softmax"},
    ),
    Planted(
        "empty_row_is_nan",
        "The softmax does not know empty rows, so one of them is 0/0.",
        {
            "softmax": code("""
            def softmax(masked):
                powers = row_powers(masked)
                return powers / powers.sum(axis=-1, keepdims=True)
        """)
        },
        {"empty"},
    ),
    Planted(
        "empty_maximum_is_nan",
        "In an empty row −∞ is subtracted from −∞.",
        {
            "row_powers": code("""
            def row_powers(masked):
                return np.exp(masked - masked.max(axis=-1, keepdims=True))
        """)
        },
        {"empty"},
    ),
    Planted(
        "empty_row_is_uniform",
        "In an empty row every hidden key gets the same weight.",
        {
            "softmax": code("""
            def softmax(masked):
                powers = row_powers(masked)
                total = powers.sum(axis=-1, keepdims=True)
                mean = np.full(masked.shape, 1 / masked.shape[-1])
                return np.where(total == 0, mean, powers / np.where(total == 0, 1.0, total))
        """)
        },
        {"empty"},
    ),
    # products
    Planted(
        "weights_transposed",
        "The values are mixed with Pᵀ.",
        {
            "weighted_sum": code("""
            def weighted_sum(weights, value):
                return weights.swapaxes(-1, -2) @ value
        """)
        },
        {"weighted_sum"},
    ),
    Planted(
        "heads_averaged",
        "All heads use the mean of their weights.",
        {
            "weighted_sum": code("""
            def weighted_sum(weights, value):
                if weights.ndim > 2:
                    weights = weights.mean(axis=-3, keepdims=True)
                return weights @ value
        """)
        },
        {"weighted_sum"},
    ),
    Planted(
        "mean_of_a_mean",
        "The weighted sum is divided by the number of keys once more.",
        {
            "weighted_sum": code("""
            def weighted_sum(weights, value):
                return weights @ value / value.shape[-2]
        """)
        },
        {"weighted_sum"},
    ),
    # the whole head
    Planted(
        "scale_by_model_width",
        "The scores are divided by √d, the width of all heads together.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                n_heads = query.shape[-3] if query.ndim > 2 else 1
                scaled = scale_scores(scores(query, key), n_heads * query.shape[-1])
                weights = softmax(apply_mask(scaled, allowed))
                return weighted_sum(weights, value), weights
        """)
        },
        {"head"},
    ),
    Planted(
        "scale_by_value_width",
        "The width of the values scales the scores.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                scaled = scale_scores(scores(query, key), value.shape[-1])
                weights = softmax(apply_mask(scaled, allowed))
                return weighted_sum(weights, value), weights
        """)
        },
        {"head"},
    ),
    Planted(
        "mask_after_softmax",
        "Hidden weights are set to 0 after the softmax, and nothing renormalises the row.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                weights = softmax(scale_scores(scores(query, key), query.shape[-1]))
                if allowed is not None:
                    weights = np.where(allowed, weights, 0.0)
                return weighted_sum(weights, value), weights
        """)
        },
        {"head"},
    ),
    Planted(
        "mask_not_handed_on",
        "The head takes a mask and does not use it.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                weights = softmax(scale_scores(scores(query, key), query.shape[-1]))
                return weighted_sum(weights, value), weights
        """)
        },
        {"head"},
    ),
    Planted(
        "scores_mix_the_values",
        "The softmax is forgotten.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                scaled = scale_scores(scores(query, key), query.shape[-1])
                weights = np.where(np.isneginf(apply_mask(scaled, allowed)), 0.0, scaled)
                return weighted_sum(weights, value), weights
        """)
        },
        {"head"},
    ),
    Planted(
        "pair_turned_round",
        "The pair comes back as (weights, output).",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                weights = softmax(apply_mask(scale_scores(scores(query, key), query.shape[-1]), allowed))
                return weights, weighted_sum(weights, value)
        """)
        },
        {"head"},
    ),
    # the layer
    Planted(
        "weight_transposed",
        "The projections use the transposed weight matrices.",
        {
            "multi_head_attention": code("""
            def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                query, key, value = (split_heads(x @ w.T, n_heads) for w in (w_q, w_k, w_v))
                return merge_heads(attention(query, key, value, allowed)[0]) @ w_o.T
        """)
        },
        {"layer"},
    ),
    Planted(
        "no_output_projection",
        "The merged heads come back without the output projection.",
        {
            "multi_head_attention": code("""
            def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                query, key, value = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))
                return merge_heads(attention(query, key, value, allowed)[0])
        """)
        },
        {"layer"},
    ),
    Planted(
        "projections_exchanged",
        "The queries come from W_K and the keys from W_Q.",
        {
            "multi_head_attention": code("""
            def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                query, key, value = (split_heads(x @ w, n_heads) for w in (w_k, w_q, w_v))
                return merge_heads(attention(query, key, value, allowed)[0]) @ w_o
        """)
        },
        {"layer"},
    ),
    Planted(
        "layer_without_mask",
        "The layer takes a mask and does not hand it on.",
        {
            "multi_head_attention": code("""
            def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                query, key, value = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))
                return merge_heads(attention(query, key, value)[0]) @ w_o
        """)
        },
        {"layer"},
    ),
    Planted(
        "residual_added",
        "The tokens are added to the output, which the statement does not ask for.",
        {
            "multi_head_attention": code("""
            def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                query, key, value = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))
                return x + merge_heads(attention(query, key, value, allowed)[0]) @ w_o
        """)
        },
        {"layer"},
    ),
]

VARIANTS = [
    Variant(
        "additive_mask",
        "The mask is added as 0 and −∞.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                if allowed is None:
                    return scaled.copy()
                return scaled + np.where(allowed, 0.0, -np.inf)
        """)
        },
    ),
    Variant(
        "in_place_on_a_copy",
        "The mask is written into a copy.",
        {
            "apply_mask": code("""
            def apply_mask(scaled, allowed):
                masked = scaled.copy()
                if allowed is not None:
                    masked[~np.broadcast_to(allowed, masked.shape)] = -np.inf
                return masked
        """)
        },
    ),
    Variant(
        "scaled_queries",
        "The queries are scaled, not the scores.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                weights = softmax(apply_mask(scores(scale_scores(query, query.shape[-1]), key), allowed))
                return weighted_sum(weights, value), weights
        """)
        },
    ),
    Variant(
        "mask_before_scale",
        "The mask comes before the scale: −∞ stays −∞.",
        {
            "attention": code("""
            def attention(query, key, value, allowed=None):
                masked = apply_mask(scores(query, key), allowed)
                weights = softmax(scale_scores(masked, query.shape[-1]))
                return weighted_sum(weights, value), weights
        """)
        },
    ),
    Variant(
        "einsum",
        "The products are written with einsum.",
        {
            "scores": code("""
                def scores(query, key):
                    return np.einsum("...ic,...jc->...ij", query, key)
            """),
            "weighted_sum": code("""
                def weighted_sum(weights, value):
                    return np.einsum("...ij,...jc->...ic", weights, value)
            """),
        },
    ),
    Variant(
        "loops",
        "Scores and weighted sums are added up key by key, in loops.",
        {
            "scores": code("""
                def scores(query, key):
                    table = np.zeros((*query.shape[:-1], key.shape[-2]))
                    for j in range(key.shape[-2]):
                        for c in reversed(range(key.shape[-1])):
                            table[..., j] += query[..., c] * key[..., j, c][..., None]
                    return table
            """),
            "weighted_sum": code("""
                def weighted_sum(weights, value):
                    output = np.zeros((*weights.shape[:-1], value.shape[-1]))
                    for j in reversed(range(value.shape[-2])):
                        output += weights[..., j, None] * value[..., j, None, :]
                    return output
            """),
        },
    ),
    Variant(
        "float32",
        "Everything is computed in float32.",
        {
            "scores": code("""
                def scores(query, key):
                    return np.float32(query) @ np.float32(key).swapaxes(-1, -2)
            """),
            "scale_scores": code("""
                def scale_scores(scores, d_h):
                    return np.float32(scores) * np.float32(1 / math.sqrt(d_h))
            """),
            "row_powers": code("""
                def row_powers(masked):
                    masked = np.float32(masked)
                    top = masked.max(axis=-1, keepdims=True)
                    return np.exp(masked - np.where(np.isneginf(top), np.float32(0), top))
            """),
            "softmax": code("""
                def softmax(masked):
                    powers = np.float32(row_powers(masked))
                    total = powers.sum(axis=-1, keepdims=True)
                    return powers / np.where(total == 0, np.float32(1), total)
            """),
            "weighted_sum": code("""
                def weighted_sum(weights, value):
                    return np.float32(weights) @ np.float32(value)
            """),
            "multi_head_attention": code("""
                def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                    x, w_q, w_k, w_v, w_o = (np.float32(a) for a in (x, w_q, w_k, w_v, w_o))
                    query, key, value = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))
                    output, _ = attention(query, key, value, allowed)
                    return np.float32(merge_heads(output)) @ w_o
            """),
        },
    ),
    Variant(
        "empty_row_by_hand",
        "Empty rows are found first and put in at the end.",
        {
            "row_powers": code("""
                def row_powers(masked):
                    empty = ~(masked > -np.inf).any(axis=-1, keepdims=True)
                    filled = np.where(empty, 0.0, masked)
                    return np.where(empty, 0.0, np.exp(filled - filled.max(axis=-1, keepdims=True)))
            """),
            "softmax": code("""
                def softmax(masked):
                    with np.errstate(invalid="ignore"):
                        powers = row_powers(masked)
                        return np.nan_to_num(powers / powers.sum(axis=-1, keepdims=True))
            """),
        },
    ),
    Variant(
        "softmax_on_its_own",
        "The softmax does not call row_powers.",
        {
            "softmax": code("""
            def softmax(masked):
                weights = np.zeros(masked.shape)
                for place in np.ndindex(masked.shape[:-1]):
                    row = masked[place]
                    seen = np.flatnonzero(row > -np.inf)
                    if seen.size:
                        powers = np.exp(row[seen] - row[seen].max())
                        weights[place][seen] = powers / math.fsum(powers)
                return weights
        """)
        },
    ),
    Variant(
        "tri",
        "The causal mask is np.tri with a shifted diagonal, and calls nothing.",
        {
            "causal_mask": code("""
            def causal_mask(n_q, n_k, align):
                return np.tri(n_q, n_k, n_k - n_q if align == "bottom_right" else 0, dtype=bool)
        """)
        },
    ),
    Variant(
        "head_by_head",
        "Heads are cut with np.split, joined with concatenate, and the layer loops over them.",
        {
            "split_heads": code("""
                def split_heads(x, n_heads):
                    width = x.shape[-1]
                    if width % n_heads != 0:
                        raise ValueError(f"{n_heads} heads do not divide a width of {width}")
                    return np.stack(np.split(x, n_heads, axis=-1), axis=-3)
            """),
            "merge_heads": code("""
                def merge_heads(x):
                    return np.concatenate([x[..., h, :, :] for h in range(x.shape[-3])], axis=-1)
            """),
            "multi_head_attention": code("""
                def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                    parts = [np.split(w, n_heads, axis=-1) for w in (w_q, w_k, w_v)]
                    y = 0.0
                    for q, k, v, o in zip(*parts, np.split(w_o, n_heads), strict=True):
                        y = y + attention(x @ q, x @ k, x @ v, allowed)[0] @ o
                    return y
            """),
        },
    ),
    Variant(
        "one_helper_and_keywords",
        "A helper of the student's own, and keyword arguments between the functions.",
        {
            "attention": code("""
                def weights_of(query, key, allowed):
                    table = scale_scores(scores=scores(query=query, key=key), d_h=query.shape[-1])
                    return softmax(masked=apply_mask(scaled=table, allowed=allowed))


                def attention(query, key, value, allowed=None):
                    weights = weights_of(query, key, allowed)
                    return weighted_sum(weights=weights, value=value), weights
            """),
            "multi_head_attention": code("""
                def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, allowed=None):
                    q, k, v = [split_heads(x=np.matmul(x, w), n_heads=n_heads) for w in (w_q, w_k, w_v)]
                    output, weights = attention(query=q, key=k, value=v, allowed=allowed)
                    return np.matmul(merge_heads(x=output), w_o)
            """),
        },
    ),
    Variant(
        "plain_numbers_by_hand",
        "By hand with more digits, in code.",
        {
            "hand_scores": code("""
                score_like_tea = float(np.dot([2, 0, 1, 1], [1, 0, 1, 1]))
                scaled_tea_we = 3 / 2
            """),
            "hand_row": code("""
                weight_like_we = 1 / (1 + math.exp(-2))
                output_like_2 = 2 * weight_like_we
            """),
        },
    ),
]

"""Wrong and right submissions of assignment 2; the names are those of attnlib.tiled_mistakes where it is the same mistake."""

from course.planting import Planted, Variant

UPDATE = """
def update(row_max, row_sum, accumulator, scores, value):
    new_max = np.maximum(row_max, scores.max(axis=-1))
    anchor = np.where(new_max == -np.inf, 0.0, new_max)
    powers = np.exp(scores - anchor[:, None])
    factor = np.exp(row_max - anchor)
    return (
        new_max,
        factor * row_sum + powers.sum(axis=-1),
        factor[:, None] * accumulator + powers @ value,
    )
"""
FLASH = """
def flash_attention(query, key, value, block_q, block_k, offset=None):
    output = np.zeros((len(query), value.shape[-1]))
    for rows in blocks(len(query), block_q):
        q = query[rows[0] : rows[1]]
        state = start(len(q), value.shape[-1])
        for cols in blocks(len(key), block_k):
            kind = "whole" if offset is None else tile_kind(rows, cols, offset)
            if kind == "skipped":
                continue
            scores = tile_scores(q, key[cols[0] : cols[1]])
            if kind == "masked":
                scores = np.where(causal_tile(rows, cols, offset), scores, -np.inf)
            state = update(*state, scores, value[cols[0] : cols[1]])
        output[rows[0] : rows[1]] = finish(state[1], state[2])
    return output
"""
MERGE = """
def merge(output_a, lse_a, output_b, lse_b):
    top = np.maximum(lse_a, lse_b)
    top = np.where(top == -np.inf, 0.0, top)
    share_a, share_b = np.exp(lse_a - top), np.exp(lse_b - top)
    total = share_a + share_b
    output = share_a[:, None] * output_a + share_b[:, None] * output_b
    with np.errstate(divide="ignore"):
        return output / np.where(total == 0, 1.0, total)[:, None], top + np.log(total)
"""
TRAFFIC = """
def tiled_traffic(n_q, n_k, d_h, d_v, block_q, block_k, offset=None):
    loads = 0
    for rows in blocks(n_q, block_q):
        keys = 0
        for cols in blocks(n_k, block_k):
            if offset is None or tile_kind(rows, cols, offset) != "skipped":
                keys += cols[1] - cols[0]
        loads += keys * (d_h + d_v) + (rows[1] - rows[0]) * d_h * (keys > 0)
    return loads, n_q * (d_v + 1)
"""


def changed(code, *changes):
    """The code with parts of it replaced; each part must stand there exactly once."""
    for old, new in changes:
        assert code.count(old) == 1, (code.count(old), old)
        code = code.replace(old, new)
    return code.strip() + "\n"


def wrong(name, says, answer, code, *loses):
    return Planted(name, says, answers={answer: code.strip() + "\n"}, loses=set(loses))


MISTAKES = [
    Planted(
        "wrong_sign_by_hand",
        "The factor of the calculation by hand is upside down.",
        answers={"by_hand": "row_sum_by_hand = 7.131\nlike_by_hand = 0.140\n"},
        loses={"by_hand"},
    ),
    Planted(
        "no_rescale_by_hand",
        "By hand, nothing is rescaled.",
        answers={"by_hand": "row_sum_by_hand = 3.0\nlike_by_hand = 0.333\n"},
        loses={"by_hand"},
    ),
    Planted(
        "parts_averaged_by_hand",
        "In the question about two workers, the plain mean of their outputs is chosen.",
        answers={"which_join": 'which_join = "a"\n'},
        loses={"which_join"},
    ),
    Planted(
        "wide_tiles_chosen",
        "In the question about the shape of a tile, a wide tile is chosen.",
        answers={"which_shape": 'which_shape = "b"\n'},
        loses={"which_shape"},
    ),
    wrong(
        "starts_at_minus_ten_thousand",
        "m starts at −10000 instead of −∞, so that lower scores vanish.",
        "start",
        "def start(n_rows, d_v):\n    return np.full(n_rows, -1e4), np.zeros(n_rows), np.zeros((n_rows, d_v))",
        "first_block",
    ),
    wrong(
        "wrong_sign",
        "The factor is e^(m_new − m_old) instead of e^(m_old − m_new).",
        "update",
        changed(
            UPDATE,
            (
                "factor = np.exp(row_max - anchor)",
                "factor = np.exp(np.where(row_max == -np.inf, 0.0, anchor - row_max))",
            ),
        ),
        "rescaling",
    ),
    wrong(
        "no_rescale",
        "What was gathered under the old maximum is not rescaled.",
        "update",
        changed(UPDATE, ("factor = np.exp(row_max - anchor)", "factor = np.ones_like(row_max)")),
        "rescaling",
    ),
    wrong(
        "sum_rescaled_alone",
        "ℓ is rescaled, o is forgotten.",
        "update",
        changed(UPDATE, ("factor[:, None] * accumulator", "accumulator")),
        "rescaling",
    ),
    wrong(
        "accumulator_rescaled_alone",
        "o is rescaled, ℓ is forgotten.",
        "update",
        changed(UPDATE, ("factor * row_sum", "row_sum")),
        "rescaling",
    ),
    wrong(
        "max_reset",
        "m becomes the maximum of the last block alone.",
        "update",
        changed(UPDATE, ("np.maximum(row_max, scores.max(axis=-1))", "scores.max(axis=-1)")),
        "maximum",
    ),
    wrong(
        "hidden_tile_is_nan",
        "A row that has seen only hidden keys so far computes −∞ − (−∞).",
        "update",
        changed(UPDATE, ("np.where(new_max == -np.inf, 0.0, new_max)", "new_max")).replace(
            "np.exp(row_max - anchor)", "np.exp(np.where(row_max == -np.inf, -np.inf, row_max - anchor))"
        ),
        "hidden_block",
    ),
    wrong(
        "padded_keys_counted",
        "A block is padded to a multiple of 4 keys, and the padding counts as score 0.",
        "update",
        changed(
            UPDATE,
            (
                "    new_max =",
                "    missing = -scores.shape[1] % 4\n"
                "    scores = np.pad(scores, ((0, 0), (0, missing)))\n"
                "    value = np.pad(value, ((0, missing), (0, 0)))\n"
                "    new_max =",
            ),
        ),
        "first_block",
    ),
    wrong(
        "never_divided",
        "o is returned without dividing by ℓ.",
        "finish",
        "def finish(row_sum, accumulator):\n    return accumulator",
        "finish",
    ),
    wrong(
        "empty_row_is_nan",
        "An empty row divides 0 by 0.",
        "finish",
        "def finish(row_sum, accumulator):\n    return accumulator / row_sum[:, None]",
        "finish",
    ),
    wrong(
        "lse_without_sum",
        "lse is m; ln ℓ is missing.",
        "log_sum_exp",
        "def log_sum_exp(row_max, row_sum):\n    return row_max",
        "lse",
    ),
    wrong(
        "lse_without_max",
        "lse is ln ℓ; m is missing.",
        "log_sum_exp",
        "def log_sum_exp(row_max, row_sum):\n    return np.log(row_sum)",
        "lse",
    ),
    wrong(
        "parts_averaged",
        "Partial results are averaged instead of weighted by their sums.",
        "merge",
        changed(
            MERGE,
            ("    top = np.maximum", "    mean = (output_a + output_b) / 2\n    top = np.maximum"),
            ("return output / np.where(total == 0, 1.0, total)[:, None],", "return mean,"),
        ),
        "merge",
    ),
    wrong(
        "shares_swapped",
        "Each part is weighted by the share of the other.",
        "merge",
        changed(
            MERGE,
            (
                "output = share_a[:, None] * output_a + share_b[:, None] * output_b",
                "output = share_b[:, None] * output_a + share_a[:, None] * output_b",
            ),
        ),
        "merge",
    ),
    wrong(
        "merge_overflows",
        "The powers of the log-sum-exps are taken without their maximum.",
        "merge",
        changed(MERGE, ("np.where(top == -np.inf, 0.0, top)", "0.0 * np.where(top == -np.inf, 0.0, top)")),
        "merge_edges",
    ),
    wrong(
        "both_empty_is_nan",
        "Two empty parts give −∞ − (−∞).",
        "merge",
        changed(MERGE, ("    top = np.where(top == -np.inf, 0.0, top)\n", "")),
        "merge_edges",
    ),
    wrong(
        "ragged_tile_dropped",
        "The last tile is left out if it is not full.",
        "blocks",
        "def blocks(n, size):\n    return [(a, a + size) for a in range(0, n - size + 1, size)]",
        "blocks",
    ),
    wrong(
        "ragged_tile_too_long",
        "The last tile reaches beyond the last token.",
        "blocks",
        "def blocks(n, size):\n    return [(a, a + size) for a in range(0, n, size)]",
        "blocks",
    ),
    wrong(
        "diagonal_hidden",
        "Inside the diagonal tiles a token may not see itself.",
        "causal_tile",
        "def causal_tile(rows, cols, offset):\n"
        "    return np.arange(*cols) < np.arange(*rows)[:, None] + offset",
        "diagonal",
    ),
    wrong(
        "diagonal_one_too_far",
        "Inside the diagonal tiles a token sees the next one.",
        "causal_tile",
        "def causal_tile(rows, cols, offset):\n"
        "    return np.arange(*cols) <= np.arange(*rows)[:, None] + offset + 1",
        "diagonal",
    ),
    wrong(
        "diagonal_tile_unmasked",
        "Hidden tiles are skipped, but the tiles on the diagonal are not masked.",
        "causal_tile",
        "def causal_tile(rows, cols, offset):\n"
        "    return np.ones((rows[1] - rows[0], cols[1] - cols[0]), dtype=bool)",
        "diagonal",
    ),
    wrong(
        "mask_starts_in_every_tile",
        "The causal mask of a tile counts from the tile's corner, not from the matrix's.",
        "causal_tile",
        "def causal_tile(rows, cols, offset):\n"
        "    return np.tri(rows[1] - rows[0], cols[1] - cols[0], offset, dtype=bool)",
        "diagonal",
    ),
    wrong(
        "offset_turned_around",
        "The offset is subtracted instead of added.",
        "causal_tile",
        "def causal_tile(rows, cols, offset):\n"
        "    return np.arange(*cols) <= np.arange(*rows)[:, None] - offset",
        "diagonal",
    ),
    wrong(
        "straddling_tile_skipped",
        "A tile is skipped as soon as its first query sees none of its keys.",
        "tile_kind",
        "def tile_kind(rows, cols, offset):\n"
        "    if cols[0] > rows[0] + offset:\n"
        '        return "skipped"\n'
        '    return "masked" if cols[1] - 1 > rows[0] + offset else "whole"',
        "kind",
    ),
    wrong(
        "straddling_tile_whole",
        "A tile counts as whole if its last query sees all of its keys.",
        "tile_kind",
        "def tile_kind(rows, cols, offset):\n"
        "    if cols[0] > rows[1] - 1 + offset:\n"
        '        return "skipped"\n'
        '    return "masked" if cols[1] > rows[1] + offset else "whole"',
        "kind",
    ),
    wrong(
        "padding_beyond_the_end",
        "The keys are padded with zeros to a multiple of the tile, and nothing hides the padding.",
        "flash_attention",
        changed(
            FLASH,
            (
                "    output = np.zeros",
                "    missing = -len(key) % block_k\n"
                "    key = np.pad(key, ((0, missing), (0, 0)))\n"
                "    value = np.pad(value, ((0, missing), (0, 0)))\n"
                "    output = np.zeros",
            ),
        ),
        "tiled",
    ),
    wrong(
        "last_query_tile_forgotten",
        "The outer loop counts len(query) // block_q blocks when nothing is masked.",
        "flash_attention",
        changed(
            FLASH,
            (
                "    for rows in blocks(len(query), block_q):\n",
                "    for rows in blocks(len(query), block_q):\n"
                "        if offset is None and rows[1] - rows[0] < block_q:\n"
                "            break\n",
            ),
        ),
        "tiled",
    ),
    wrong(
        "mask_left_out",
        "Hidden tiles are skipped, and no other tile is masked.",
        "flash_attention",
        changed(FLASH, ('kind == "masked"', "False")),
        "causal",
    ),
    wrong(
        "offset_left_out",
        "The mask is built with offset 0, whatever the caller says.",
        "flash_attention",
        changed(FLASH, ("tile_kind(rows, cols, offset)", "tile_kind(rows, cols, 0)")).replace(
            "causal_tile(rows, cols, offset)", "causal_tile(rows, cols, 0)"
        ),
        "causal",
    ),
    wrong(
        "hidden_by_a_large_number",
        "Hidden scores are −10000 instead of −∞, so that an empty row is the mean of what it should not see.",
        "flash_attention",
        changed(FLASH, ("scores, -np.inf)", "scores, -1e4)")),
        "causal",
    ),
    wrong(
        "never_written",
        "A block of queries without a visible tile keeps what its memory held.",
        "flash_attention",
        changed(
            FLASH,
            ("np.zeros((len(query), value.shape[-1]))", "np.full((len(query), value.shape[-1]), np.nan)"),
            (
                "        output[rows[0]",
                "        if offset is not None and rows[1] + offset <= 0:\n            continue\n        output[rows[0]",
            ),
        ),
        "causal",
    ),
    wrong(
        "same_number_of_tiles",
        "Block a of the queries visits blocks 1 to a of the keys, which is right for square tiles only.",
        "flash_attention",
        changed(
            FLASH,
            (
                "for rows in blocks(len(query), block_q):",
                "for a, rows in enumerate(blocks(len(query), block_q)):",
            ),
            (
                "for cols in blocks(len(key), block_k):",
                "for b, cols in enumerate(blocks(len(key), block_k)):\n"
                "            if offset is not None and b > a:\n"
                "                break",
            ),
        ),
        "causal",
    ),
    wrong(
        "nothing_skipped",
        "Tiles that hold only the future are computed and hidden.",
        "flash_attention",
        changed(
            FLASH,
            ('            if kind == "skipped":\n                continue\n', ""),
            ('kind == "masked"', 'kind != "whole"'),
        ),
        "skipping",
    ),
    wrong(
        "whole_table_first",
        "All scores are computed at once, and the tiles are cut from them.",
        "flash_attention",
        changed(
            FLASH,
            ("    output = np.zeros", "    table = tile_scores(query, key)\n    output = np.zeros"),
            ("tile_scores(q, key[cols[0] : cols[1]])", "table[rows[0] : rows[1], cols[0] : cols[1]]"),
        ),
        "memory",
    ),
    wrong(
        "whole_table_in_float32",
        "All scores are computed at once, in float32 and in place.",
        "flash_attention",
        changed(
            FLASH,
            (
                "    output = np.zeros",
                "    table = query.astype(np.float32) @ key.T.astype(np.float32)\n"
                "    table *= np.float32(query.shape[-1] ** -0.5)\n"
                "    output = np.zeros",
            ),
            ("tile_scores(q, key[cols[0] : cols[1]])", "table[rows[0] : rows[1], cols[0] : cols[1]]"),
        ),
        "memory",
    ),
    wrong(
        "bias_table",
        "The mask is a table of 0 and −∞ for all queries and keys.",
        "flash_attention",
        changed(
            FLASH,
            (
                "    output = np.zeros",
                "    shape = len(query), len(key)\n"
                "    bias = np.zeros(shape) if offset is None else np.where(np.tri(*shape, offset) > 0, 0.0, -np.inf)\n"
                "    output = np.zeros",
            ),
            (
                "np.where(causal_tile(rows, cols, offset), scores, -np.inf)",
                "scores + bias[rows[0] : rows[1], cols[0] : cols[1]]",
            ),
        ),
        "memory",
    ),
    wrong(
        "weights_not_counted",
        "Plain attention's table is counted in one of its steps only.",
        "plain_traffic",
        "def plain_traffic(n_q, n_k, d_h, d_v):\n"
        "    table = n_q * n_k\n"
        "    return n_q * d_h + n_k * d_h + table + n_k * d_v, table + n_q * d_v",
        "plain_traffic",
    ),
    wrong(
        "values_as_wide_as_keys",
        "The width of the values is taken for that of the keys.",
        "plain_traffic",
        "def plain_traffic(n_q, n_k, d_h, d_v):\n"
        "    table = n_q * n_k\n"
        "    return n_q * d_h + 2 * n_k * d_h + 2 * table, 2 * table + n_q * d_h",
        "plain_traffic",
    ),
    wrong(
        "keys_loaded_once",
        "Keys and values are counted once, not once for each block of queries.",
        "tiled_traffic",
        "def tiled_traffic(n_q, n_k, d_h, d_v, block_q, block_k, offset=None):\n"
        "    return n_q * d_h + n_k * (d_h + d_v), n_q * (d_v + 1)",
        "tiled_traffic",
    ),
    wrong(
        "mask_saves_nothing",
        "Skipped tiles are counted as loaded.",
        "tiled_traffic",
        changed(TRAFFIC, ('offset is None or tile_kind(rows, cols, offset) != "skipped"', "True")),
        "tiled_traffic",
    ),
    wrong(
        "tiles_counted_as_full",
        "A ragged tile is counted as a full one.",
        "tiled_traffic",
        changed(TRAFFIC, ("keys += cols[1] - cols[0]", "keys += block_k")),
        "tiled_traffic",
    ),
    wrong(
        "unseen_queries_loaded",
        "A block of queries that sees nothing is loaded all the same.",
        "tiled_traffic",
        changed(TRAFFIC, (" * (keys > 0)", "")),
        "tiled_traffic",
    ),
]

VARIANTS = [
    Variant(
        "key_by_key",
        "update is a loop over rows and single keys with Python numbers.",
        answers={
            "update": """
def update(row_max, row_sum, accumulator, scores, value):
    row_max, row_sum, accumulator = row_max.copy(), row_sum.copy(), accumulator.copy()
    for i in range(len(scores)):
        for j in range(len(value)):
            if scores[i, j] == -np.inf:
                continue
            top = max(row_max[i], scores[i, j])
            old, new = math.exp(row_max[i] - top), math.exp(scores[i, j] - top)
            row_max[i] = top
            row_sum[i] = old * row_sum[i] + new
            accumulator[i] = old * accumulator[i] + new * value[j]
    return row_max, row_sum, accumulator
"""
        },
    ),
    Variant(
        "float32",
        "States, joins and tiles are computed in float32.",
        answers={
            "start": "def start(n_rows, d_v):\n"
            "    zeros = np.zeros(n_rows, dtype=np.float32)\n"
            "    return zeros - np.float32(np.inf), zeros, np.zeros((n_rows, d_v), dtype=np.float32)\n",
            "update": changed(
                UPDATE,
                (
                    "    new_max =",
                    "    row_max, row_sum, accumulator, scores, value = (\n"
                    "        a.astype(np.float32) for a in (row_max, row_sum, accumulator, scores, value)\n"
                    "    )\n"
                    "    new_max =",
                ),
            ),
            "merge": changed(
                MERGE,
                (
                    "    top = np.maximum",
                    "    output_a, lse_a, output_b, lse_b = (\n"
                    "        a.astype(np.float32) for a in (output_a, lse_a, output_b, lse_b)\n"
                    "    )\n"
                    "    top = np.maximum",
                ),
            ),
            "flash_attention": changed(
                FLASH,
                (
                    "    output = np.zeros((len(query), value.shape[-1]))",
                    "    query, key, value = (a.astype(np.float32) for a in (query, key, value))\n"
                    "    output = np.zeros((len(query), value.shape[-1]), dtype=np.float32)",
                ),
            ),
        },
    ),
    Variant(
        "own_helper",
        "The anchored powers are a function of their own, in the same cell; einsum instead of @.",
        answers={
            "update": '''
def powers_below(numbers, top):
    """exp(numbers - top), and 0 where both are -inf."""
    return np.where(numbers == -np.inf, 0.0, np.exp(numbers - np.where(np.isinf(top), 0.0, top)))


def update(row_max, row_sum, accumulator, scores, value):
    top = np.maximum(row_max, np.max(scores, axis=1))
    kept = powers_below(row_max, top)
    fresh = powers_below(scores, top[:, np.newaxis])
    return (
        top,
        row_sum * kept + np.einsum("ij->i", fresh),
        np.einsum("i,iv->iv", kept, accumulator) + np.einsum("ij,jv->iv", fresh, value),
    )
'''
        },
    ),
    Variant(
        "in_place_on_copies",
        "update works in place on copies, finish with np.divide and where=.",
        answers={
            "update": """
def update(row_max, row_sum, accumulator, scores, value):
    new_max = row_max.copy()
    np.maximum(new_max, scores.max(axis=1), out=new_max)
    shift = new_max.copy()
    shift[new_max == -np.inf] = 0
    powers = scores.copy()
    powers -= shift[:, None]
    np.exp(powers, out=powers)
    factor = np.exp(row_max - shift)
    row_sum, accumulator = row_sum.copy(), accumulator.copy()
    row_sum *= factor
    row_sum += powers.sum(axis=1)
    accumulator *= factor[:, None]
    accumulator += np.matmul(powers, value)
    return [new_max, row_sum, accumulator]
""",
            "finish": """
def finish(row_sum, accumulator):
    weight = np.broadcast_to(row_sum[:, None], accumulator.shape)
    return np.divide(accumulator, weight, out=np.zeros_like(accumulator), where=weight != 0)
""",
        },
    ),
    Variant(
        "logaddexp",
        "merge with np.logaddexp; log_sum_exp and finish with np.where.",
        answers={
            "merge": """
def merge(output_a, lse_a, output_b, lse_b):
    lse = np.logaddexp(lse_a, lse_b)
    base = np.where(np.isneginf(lse), 0.0, lse)
    return np.exp(lse_a - base)[:, None] * output_a + np.exp(lse_b - base)[:, None] * output_b, lse
""",
            "log_sum_exp": """
def log_sum_exp(row_max, row_sum):
    return np.where(row_sum > 0, row_max + np.log(np.where(row_sum > 0, row_sum, 1)), -np.inf)
""",
            "finish": """
def finish(row_sum, accumulator):
    with np.errstate(all="ignore"):
        return np.where((row_sum > 0)[:, None], accumulator / row_sum[:, None], 0)
""",
        },
    ),
    Variant(
        "keys_outside",
        "The keys are in the outer loop, and the state of all rows is kept between the tiles.",
        answers={
            "flash_attention": """
def flash_attention(query, key, value, block_q, block_k, offset=None):
    state = start(len(query), value.shape[-1])
    state = [np.array(part) for part in state]
    for cols in blocks(len(key), block_k):
        for rows in blocks(len(query), block_q):
            kind = "whole" if offset is None else tile_kind(rows, cols, offset)
            if kind == "skipped":
                continue
            here, there = slice(*rows), slice(*cols)
            scores = tile_scores(query[here], key[there])
            if kind == "masked":
                scores[~causal_tile(rows, cols, offset)] = -np.inf
            new = update(*(part[here] for part in state), scores, value[there])
            for part, fresh in zip(state, new):
                part[here] = fresh
    return finish(state[1], state[2])
"""
        },
    ),
    Variant(
        "loop_bound_and_bias",
        "The inner loop ends at the last visible key; the mask is an additive −∞; the scale is on the query.",
        answers={
            "flash_attention": """
def flash_attention(query, key, value, block_q, block_k, offset=None):
    parts = []
    for a in range(0, len(query), block_q):
        q = query[a : a + block_q] / math.sqrt(query.shape[-1])
        state = start(len(q), value.shape[-1])
        last = len(key) if offset is None else min(len(key), max(0, a + len(q) + offset))
        for b in range(0, last, block_k):
            k = key[b : b + block_k]
            scores = np.einsum("id,jd->ij", q, k)
            if offset is not None:
                seen = causal_tile((a, a + len(q)), (b, b + len(k)), offset)
                scores = scores + np.where(seen, 0.0, -np.inf)
            state = update(*state, scores, value[b : b + block_k])
        parts.append(finish(state[1], state[2]))
    return np.concatenate(parts)
"""
        },
    ),
    Variant(
        "closed_formulas",
        "Pieces by a while loop, the kind of a tile from its mask, the traffic in closed form.",
        answers={
            "blocks": """
def blocks(n, size):
    pieces, a = [], 0
    while a < n:
        pieces.append([a, min(n, a + size)])
        a += size
    return pieces
""",
            "tile_kind": """
def tile_kind(rows, cols, offset):
    seen = np.arange(cols[0], cols[1])[None] <= np.arange(rows[0], rows[1])[:, None] + offset
    return "whole" if seen.all() else "masked" if seen.any() else "skipped"
""",
            "tiled_traffic": """
def tiled_traffic(n_q, n_k, d_h, d_v, block_q, block_k, offset=None):
    loads = 0
    for a in range(0, n_q, block_q):
        stop = min(a + block_q, n_q)
        some = n_k if offset is None else min(max(stop + offset, 0), n_k)
        keys = min(-(-some // block_k) * block_k, n_k)
        loads += keys * (d_h + d_v) + (d_h * (stop - a) if some else 0)
    return np.int64(loads), n_q + n_q * d_v
""",
            "plain_traffic": "def plain_traffic(n_q, n_k, d_h, d_v):\n"
            "    steps = [(n_q * d_h + n_k * d_h, n_q * n_k), (n_q * n_k,) * 2, (n_q * n_k + n_k * d_v, n_q * d_v)]\n"
            "    return tuple(map(sum, zip(*steps)))\n",
        },
    ),
]

"""Wrong and right kernels."""

from course import text
from course.planting import Planted, Variant

_CELLS = {cell.id: text.solution(cell.source) for cell in text.load("5_triton_kernel").of_kind("answer")}


def changed(answer, *replacements):
    """The right kernel with some of its text replaced; each must be there once."""
    code = _CELLS[answer]
    for old, new in replacements:
        if code.count(old) != 1:
            raise ValueError(f"{answer} has {code.count(old)} times {old!r}")
        code = code.replace(old, new)
    return {answer: code}


def softmax(name, says, loses, *replacements):
    return Planted(name, says, changed("softmax_kernel", *replacements), set(loses))


def flash(name, says, loses, *replacements):
    return Planted(name, says, changed("flash_kernel", *replacements), set(loses))


FLASH = {"flash_tile", "flash_many", "flash_ragged", "flash_causal", "flash_empty"}
LOAD_K = "k = tl.load(K + k_at, mask=j[:, None] < n_k, other=0.0)"
LOAD_V = "v = tl.load(V + k_at, mask=j[:, None] < n_k, other=0.0)"
FACTOR = "factor = tl.exp(m - anchor)"
STORE = "tl.store(O + q_at, o / l[:, None], mask=i[:, None] < n_q)"

MISTAKES = [
    softmax(
        "no_maximum",
        "The row's maximum is not subtracted.",
        {"softmax_large"},
        ("tl.exp(x - tl.max(x, 0))", "tl.exp(x)"),
    ),
    softmax(
        "tail_is_zero",
        "What is not there counts as a score of 0.",
        {"softmax_tail"},
        ('other=float("-inf")', "other=0.0"),
    ),
    softmax(
        "tail_is_read",
        "The load has no mask.",
        {"softmax_tail"},
        (', mask=there, other=float("-inf")', ""),
    ),
    softmax(
        "stored_without_mask",
        "The store has no mask.",
        {"softmax_outside"},
        ("weights, mask=there", "weights"),
    ),
    softmax(
        "one_stride",
        "OUT is written with the stride of X.",
        {"softmax_rows", "softmax_outside"},
        ("row * out_by", "row * x_by"),
    ),
    softmax(
        "rows_without_gap",
        "Rows are taken to follow each other without a gap.",
        {"softmax_rows"},
        ("row * x_by", "row * n"),
    ),
    softmax(
        "every_row_is_the_first", "The row's number is not used.", {"softmax_rows"}, ("X + row * x_by", "X")
    ),
    softmax(
        "exponent_two",
        "Powers of 2 where powers of e belong.",
        {"softmax_rows", "softmax_tail", "softmax_large"},
        ("tl.exp(x", "tl.exp2(x"),
    ),
    flash("no_scale", "The scores are not scaled.", {"flash_tile"}, ("s = scale * tl.dot", "s = tl.dot")),
    flash(
        "first_heads_keys",
        "All heads use the keys and values of the first.",
        FLASH,
        ("k_at = head * k_head + ", "k_at = "),
    ),
    flash(
        "heads_without_gap",
        "Heads are taken to follow each other without a gap.",
        FLASH,
        ("k_at = head * k_head", "k_at = head * n_k * WIDTH"),
    ),
    flash(
        "no_rescale",
        "What was gathered under the old maximum is not rescaled.",
        {"flash_many"},
        (FACTOR, FACTOR.replace("m - anchor", "0.0 * l")),
    ),
    flash(
        "wrong_sign",
        "The factor is e^(m_new − m_old) instead of e^(m_old − m_new).",
        {"flash_many"},
        (FACTOR, 'factor = tl.where(m == float("-inf"), 0.0, tl.exp(anchor - m))'),
    ),
    flash(
        "sum_rescaled_alone",
        "ℓ is rescaled, o is forgotten.",
        {"flash_many"},
        ("o = factor[:, None] * o", "o = o"),
    ),
    flash(
        "max_reset",
        "m becomes the maximum of the last block alone.",
        {"flash_many", "flash_causal"},
        ("m_new = tl.maximum(m, tl.max(s, 1))", "m_new = tl.max(s, 1)"),
    ),
    flash(
        "maximum_never_kept",
        "m keeps its first value, −∞.",
        {"flash_many", "flash_causal"},
        ("        m = m_new\n", ""),
    ),
    flash(
        "always_the_first_tile",
        "Every tile loads the first keys.",
        {"flash_many", "flash_causal"},
        ("k_at = head * k_head + j[:, None]", "k_at = head * k_head + (j - start_k)[:, None]"),
    ),
    flash(
        "mask_starts_in_every_tile",
        "The causal mask of a tile counts from the tile's corner, not from the matrix's.",
        {"flash_causal"},
        ("(j[None, :] <= i[:, None] + offset)", "((j - start_k)[None, :] <= i[:, None] + offset)"),
    ),
    flash(
        "diagonal_hidden",
        "A token may not see itself.",
        {"flash_causal", "flash_empty"},
        ("<= i[:, None] + offset", "< i[:, None] + offset"),
    ),
    flash(
        "diagonal_one_too_far",
        "A token sees the next one.",
        {"flash_causal", "flash_empty"},
        ("<= i[:, None] + offset", "<= i[:, None] + offset + 1"),
    ),
    flash(
        "offset_ignored",
        "The causal diagonal always starts at the first key.",
        {"flash_causal", "flash_empty"},
        ("i[:, None] + offset", "i[:, None]"),
    ),
    flash(
        "causal_ignored",
        "CAUSAL is not looked at: nothing is hidden.",
        {"flash_causal", "flash_empty"},
        ("if CAUSAL:", "if False:"),
    ),
    flash(
        "padded_keys_counted",
        "Keys that do not exist have the score 0.",
        {"flash_ragged"},
        ("allowed = j[None, :] < n_k", "allowed = j[None, :] >= 0"),
    ),
    flash(
        "values_read_beyond",
        "The load of the values has no mask.",
        {"flash_ragged"},
        (LOAD_V, "v = tl.load(V + k_at)"),
    ),
    flash(
        "hidden_tile_is_nan",
        "A row that has seen only hidden keys so far computes −∞ − (−∞).",
        {"flash_empty"},
        ('anchor = tl.where(m_new == float("-inf"), 0.0, m_new)', "anchor = m_new"),
    ),
    flash(
        "empty_row_divides_by_zero",
        "A row that may see nothing computes 0 / 0.",
        {"flash_empty"},
        ("    l = tl.where(l == 0.0, 1.0, l)\n", ""),
    ),
    flash(
        "minus_1e9_on_empty_row",
        "Hidden scores are −1e9, so an empty row becomes the mean of the hidden values.",
        {"flash_empty"},
        ('s = tl.where(allowed, s, float("-inf"))', "s = tl.where(allowed, s, -1e9)"),
    ),
    flash(
        "never_divided",
        "o is stored without dividing by ℓ.",
        FLASH,
        (STORE, STORE.replace("o / l[:, None]", "o")),
    ),
    flash(
        "queries_stored_beyond",
        "The store has no mask.",
        {"flash_outside"},
        (STORE, STORE.replace(", mask=i[:, None] < n_q", "")),
    ),
    Planted(
        "sum_not_rescaled",
        "Question 1: the sum without rescaling.",
        {"sum_after_two_tiles": 'sum_after_two_tiles = "a"\n'},
        {"sum_after_two_tiles"},
    ),
]

VARIANTS = [
    Variant(
        "powers_of_two",
        "Scores times log2 e, and powers of 2, as in chapter 12.",
        changed(
            "flash_kernel",
            ("s = scale * tl.dot", "s = (scale * 1.4426950408889634) * tl.dot"),
            ("p = tl.exp(s", "p = tl.exp2(s"),
            (FACTOR, FACTOR.replace("tl.exp", "tl.exp2")),
        ),
    ),
    Variant(
        "scaled_queries",
        "The queries are scaled, not the scores.",
        changed("flash_kernel", ("scale * tl.dot(q,", "tl.dot(q * scale,")),
    ),
    Variant(
        "keys_read_beyond",
        "Keys are loaded without a mask: their scores are hidden anyway.",
        changed("flash_kernel", (LOAD_K, "k = tl.load(K + k_at)")),
    ),
    Variant(
        "reciprocal",
        "Divides by multiplying with 1 / ℓ, and hides with a condition of its own.",
        changed(
            "flash_kernel",
            (
                "    l = tl.where(l == 0.0, 1.0, l)\n",
                "    share = tl.where(l > 0.0, 1.0 / tl.maximum(l, 1e-30), 0.0)\n",
            ),
            ("o / l[:, None]", "o * share[:, None]"),
        ),
    ),
    Variant(
        "helper_kernel",
        "Loads through a jit function of its own, and a masked exponential.",
        {
            "softmax_kernel": """
@triton.jit
def load_row(X, row, by, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    return tl.load(X + row * by + column, mask=column < n, other=-1e30)


@triton.jit
def softmax_kernel(X, OUT, n, x_by, out_by, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = load_row(X, row, x_by, n, BLOCK)
    powers = tl.where(column < n, tl.exp(x - tl.max(x, axis=0)), 0.0)
    tl.store(OUT + row * out_by + column, powers / tl.sum(powers, axis=0), mask=column < n)
""".strip()
            + "\n"
        },
    ),
]

"""The kernels: FlashAttention forward and backward, in the letters of chapters 10 and 11.

Read `forward` beside the loop of chapter 10. A program owns BLOCK_Q queries of one head; their m, l and o
stay in registers while the tiles of keys pass. Only :mod:`attnlib.kernels` imports this: it needs Triton.

Q, K, V, O, their gradients (DO, DQ, DK, DV), LSE and D are places in memory; `q_by` and its like are strides
along batch, heads, tokens and width. `scale` is positive and holds log2(e), because the chip has powers of 2.
`offset` moves the causal diagonal to the right. BLOCK_Q and BLOCK_K are sizes of tiles, WIDTH and WIDTH_V
widths of heads. Names in capitals that are not places are known when a kernel is compiled.
"""

# The letters are the chapters'; with one parameter a line they would drown.
# ruff: noqa: E741
# fmt: off

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.constexpr_function
def padded(width):
    """The next power of 2, at least 16: what tl.arange and tl.dot take."""
    return max(16, 1 << (width - 1).bit_length())


@triton.jit
def my_tile(n, n_heads, BLOCK: tl.constexpr):
    """Which tile of the rows, of which text and head, this program does."""
    n_tiles = tl.cdiv(n, BLOCK)
    tile, at = tl.program_id(0) % n_tiles, tl.program_id(0) // n_tiles
    return tile * BLOCK, at // n_heads, at % n_heads


@triton.jit
def head_at(base, by, batch, head):
    """Where a head begins, in 64 bits: tensors may be that large."""
    batch, head = tl.cast(batch, tl.int64), tl.cast(head, tl.int64)
    return base + batch * by[0] + head * by[1]


@triton.jit
def tile_at(base, by, start, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Where a tile's numbers are: 64 bits to its first row, 32 within."""
    row = tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, padded(WIDTH))[None, :]
    first = base + tl.cast(start, tl.int64) * by[2]
    return first + (row * by[2] + column * by[3])


@triton.jit
def inside(start, first, end, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """True for rows from `first` up to `end`, in columns up to WIDTH."""
    row = start + tl.arange(0, BLOCK)[:, None]
    there = (row >= first) & (row < end)
    if padded(WIDTH) > WIDTH:
        there = there & (tl.arange(0, padded(WIDTH))[None, :] < WIDTH)
    return there


@triton.jit
def load(base, by, start, first, end,
         BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """BLOCK rows from `start` on; what is not inside is not read, but 0."""
    where = tile_at(base, by, start, BLOCK, WIDTH)
    there = inside(start, first, end, BLOCK, WIDTH)
    return tl.load(where, mask=there, other=0.0)


@triton.jit
def store(base, by, tile, start, end,
          BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Write what is inside, rounded to the tensor's type."""
    where = tile_at(base, by, start, BLOCK, WIDTH)
    there = inside(start, 0, end, BLOCK, WIDTH)
    tl.store(where, tile.to(base.dtype.element_ty), mask=there)


@triton.jit
def product(a, b, plus=None):
    """a · b + `plus` on the tensor cores: sums in float32, no tf32."""
    return tl.dot(a, b, plus, input_precision="ieee")


@triton.jit
def visible(i, j, n_k, offset, CAUSAL: tl.constexpr):
    """A mask: keys j that exist and, if causal, are not later than i."""
    allowed = j < n_k
    if CAUSAL:
        allowed = allowed & (j <= i + offset)
    return allowed


@triton.jit
def ends(start_q, n_k, offset,
         CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Where tiles of keys seen by all these queries end; by any of them."""
    whole, end = n_k, n_k
    if CAUSAL:
        whole = tl.minimum(n_k, tl.maximum(start_q + offset + 1, 0))
        end = tl.minimum(n_k, tl.maximum(start_q + BLOCK_Q + offset, 0))
    return whole // BLOCK_K * BLOCK_K, end


@triton.jit
def forward(Q, K, V, O, LSE, q_by, k_by, v_by, o_by, scale, offset,
            n_q, n_k, n_heads, group,
            CAUSAL: tl.constexpr, WIDTH: tl.constexpr, WIDTH_V: tl.constexpr,
            BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """O and lse of one tile of queries."""
    start_q, batch, head = my_tile(n_q, n_heads, BLOCK_Q)
    Q = head_at(Q, q_by, batch, head)
    K = head_at(K, k_by, batch, head // group)
    V = head_at(V, v_by, batch, head // group)
    i = start_q + tl.arange(0, BLOCK_Q)
    q = load(Q, q_by, start_q, 0, n_q, BLOCK_Q, WIDTH)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    o = tl.zeros([BLOCK_Q, padded(WIDTH_V)], tl.float32)
    # First the tiles that need no mask, then the diagonal and the ragged
    # end. Keys further on are never loaded.
    whole, end = ends(start_q, n_k, offset, CAUSAL, BLOCK_Q, BLOCK_K)
    for MASKED in tl.static_range(2):
        begin, stop = (whole, end) if MASKED else (0, whole)
        for start_k in range(begin, stop, BLOCK_K):
            k = load(K, k_by, start_k, 0, n_k, BLOCK_K, WIDTH)
            v = load(V, v_by, start_k, 0, n_k, BLOCK_K, WIDTH_V)
            s = product(q, tl.trans(k))
            if MASKED:
                j = start_k + tl.arange(0, BLOCK_K)
                allowed = visible(i[:, None], j[None, :], n_k, offset, CAUSAL)
                s = tl.where(allowed, s, float("-inf"))
            m_new = tl.maximum(m, scale * tl.max(s, 1))
            anchor = m_new
            if MASKED:  # A row without keys so far: -inf - (-inf) is NaN.
                anchor = tl.where(m_new == float("-inf"), 0.0, m_new)
            p = tl.exp2(scale * s - anchor[:, None])
            factor = tl.exp2(m - anchor)
            l = factor * l + tl.sum(p, 1)
            o = product(p.to(v.dtype), v, factor[:, None] * o)
            m = m_new
    # Which rows are empty follows from the lengths, not from the numbers.
    empty = (i + offset < 0) | (n_k == 0)
    l = tl.where(empty, 1.0, l)
    o = tl.where(empty[:, None], 0.0, o / l[:, None])
    lse = tl.where(empty, float("-inf"), (m + tl.log2(l)) / LOG2_E)
    O = head_at(O, o_by, batch, head)
    store(O, o_by, o, start_q, n_q, BLOCK_Q, WIDTH_V)
    LSE = head_at(LSE, (n_heads * n_q, n_q), batch, head)
    tl.store(LSE + i, lse, mask=i < n_q)


@triton.jit
def delta(O, DO, DLSE, D, o_by, do_by, n_q, n_heads,
          WIDTH_V: tl.constexpr, BLOCK_Q: tl.constexpr):
    """D: row sums of DO · O, number by number, less the gradient of lse."""
    start_q, batch, head = my_tile(n_q, n_heads, BLOCK_Q)
    O = head_at(O, o_by, batch, head)
    DO = head_at(DO, do_by, batch, head)
    o = load(O, o_by, start_q, 0, n_q, BLOCK_Q, WIDTH_V).to(tl.float32)
    do = load(DO, do_by, start_q, 0, n_q, BLOCK_Q, WIDTH_V).to(tl.float32)
    i = start_q + tl.arange(0, BLOCK_Q)
    row_by = (n_heads * n_q, n_q)
    DLSE = head_at(DLSE, row_by, batch, head)
    dlse = tl.load(DLSE + i, mask=i < n_q, other=0.0)
    D = head_at(D, row_by, batch, head)
    tl.store(D + i, tl.sum(o * do, 1) - dlse, mask=i < n_q)


@triton.jit
def load_queries(Q, DO, LSE, D, q_by, do_by, batch, head, start_q,
                 offset, n_q, n_heads,
                 WIDTH: tl.constexpr, WIDTH_V: tl.constexpr,
                 BLOCK_Q: tl.constexpr):
    """q, do, lse in powers of 2, and d; all 0 in a row that sees nothing."""
    first = tl.maximum(-offset, 0)
    Q = head_at(Q, q_by, batch, head)
    DO = head_at(DO, do_by, batch, head)
    q = load(Q, q_by, start_q, first, n_q, BLOCK_Q, WIDTH)
    do = load(DO, do_by, start_q, first, n_q, BLOCK_Q, WIDTH_V)
    i = start_q + tl.arange(0, BLOCK_Q)
    there = (i >= first) & (i < n_q)
    row_by = (n_heads * n_q, n_q)
    LSE = head_at(LSE, row_by, batch, head)
    D = head_at(D, row_by, batch, head)
    lse = LOG2_E * tl.load(LSE + i, mask=there, other=0.0)
    d = tl.load(D + i, mask=there, other=0.0)
    return q, do, lse, d


@triton.jit
def p_and_ds(a, b, da, db, lse, d, scale, i, j, n_k, offset,
             MASKED: tl.constexpr, CAUSAL: tl.constexpr):
    """P of a tile once more, from lse, and dS.

    From q, k, do, v; or from k, q, v, do, which gives both transposed.
    """
    s = scale * product(a, tl.trans(b))
    if MASKED:  # Before the power: that of a hidden score may overflow.
        s = tl.where(visible(i, j, n_k, offset, CAUSAL), s, float("-inf"))
    p = tl.exp2(s - lse)
    return p, p * (product(da, tl.trans(db)) - d)


@triton.jit
def backward_query(Q, K, V, DO, LSE, D, DQ, q_by, k_by, v_by, do_by, dq_by,
                   scale, offset, n_q, n_k, n_heads, group,
                   CAUSAL: tl.constexpr,
                   WIDTH: tl.constexpr, WIDTH_V: tl.constexpr,
                   BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """DQ of one tile of queries: chapter 11's first pass."""
    start_q, batch, head = my_tile(n_q, n_heads, BLOCK_Q)
    K = head_at(K, k_by, batch, head // group)
    V = head_at(V, v_by, batch, head // group)
    i = start_q + tl.arange(0, BLOCK_Q)
    q, do, lse, d = load_queries(Q, DO, LSE, D, q_by, do_by, batch, head,
                                 start_q, offset, n_q, n_heads,
                                 WIDTH, WIDTH_V, BLOCK_Q)
    dq = tl.zeros([BLOCK_Q, padded(WIDTH)], tl.float32)
    whole, end = ends(start_q, n_k, offset, CAUSAL, BLOCK_Q, BLOCK_K)
    for MASKED in tl.static_range(2):
        begin, stop = (whole, end) if MASKED else (0, whole)
        for start_k in range(begin, stop, BLOCK_K):
            j = start_k + tl.arange(0, BLOCK_K)
            k = load(K, k_by, start_k, 0, n_k, BLOCK_K, WIDTH)
            v = load(V, v_by, start_k, 0, n_k, BLOCK_K, WIDTH_V)
            _, ds = p_and_ds(q, k, do, v, lse[:, None], d[:, None], scale,
                             i[:, None], j[None, :], n_k, offset,
                             MASKED, CAUSAL)
            dq = product(ds.to(k.dtype), k, dq)
    DQ = head_at(DQ, dq_by, batch, head)
    dq = dq * (scale / LOG2_E)
    store(DQ, dq_by, dq, start_q, n_q, BLOCK_Q, WIDTH)


@triton.jit
def backward_key(Q, K, V, DO, LSE, D, DK, DV, q_by, k_by, v_by, do_by, dk_by,
                 dv_by, scale, offset, n_q, n_k, n_seen, n_heads, group,
                 CAUSAL: tl.constexpr,
                 WIDTH: tl.constexpr, WIDTH_V: tl.constexpr,
                 BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """DK and DV of one tile of keys: the second pass.

    The queries of a group's heads are summed here, always in this order.
    """
    start_k, batch, head_kv = my_tile(n_k, n_heads // group, BLOCK_K)
    K = head_at(K, k_by, batch, head_kv)
    V = head_at(V, v_by, batch, head_kv)
    j = start_k + tl.arange(0, BLOCK_K)
    k = load(K, k_by, start_k, 0, n_seen, BLOCK_K, WIDTH)
    v = load(V, v_by, start_k, 0, n_seen, BLOCK_K, WIDTH_V)
    dk = tl.zeros([BLOCK_K, padded(WIDTH)], tl.float32)
    dv = tl.zeros([BLOCK_K, padded(WIDTH_V)], tl.float32)
    # Tiles of queries that see some of these keys, then those that see all.
    # (A tile of keys with one that no query sees has none of the latter.)
    some, whole = 0, 0
    if CAUSAL:
        some = tl.maximum(start_k - offset, 0) // BLOCK_Q * BLOCK_Q
        last = tl.maximum(start_k + BLOCK_K - 1 - offset, 0)
        whole = tl.minimum(tl.cdiv(last, BLOCK_Q) * BLOCK_Q, n_q)
    for one in range(0, group):
        head = head_kv * group + one
        for MASKED in tl.static_range(1, -1, -1):
            begin, stop = (some, whole) if MASKED else (whole, n_q)
            for start_q in range(begin, stop, BLOCK_Q):
                i = start_q + tl.arange(0, BLOCK_Q)
                q, do, lse, d = load_queries(
                    Q, DO, LSE, D, q_by, do_by, batch, head, start_q,
                    offset, n_q, n_heads, WIDTH, WIDTH_V, BLOCK_Q)
                p, ds = p_and_ds(k, q, v, do, lse[None, :], d[None, :], scale,
                                 i[None, :], j[:, None], n_seen, offset,
                                 MASKED, CAUSAL)
                dv = product(p.to(do.dtype), do, dv)
                dk = product(ds.to(q.dtype), q, dk)
    dk = dk * (scale / LOG2_E)
    DK = head_at(DK, dk_by, batch, head_kv)
    store(DK, dk_by, dk, start_k, n_k, BLOCK_K, WIDTH)
    DV = head_at(DV, dv_by, batch, head_kv)
    store(DV, dv_by, dv, start_k, n_k, BLOCK_K, WIDTH_V)

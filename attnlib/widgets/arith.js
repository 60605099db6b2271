// The arithmetic of every widget: attention in float64 on plain arrays of rows, with attnlib's conventions.
// A mask says true where query i may look at key j. Tests compare each function with attnlib to 1e-9.

export const transpose = (a) => (a.length ? a[0].map((_, j) => a.map((row) => row[j])) : []);

export const dot = (a, b) => a.reduce((sum, x, c) => sum + x * b[c], 0);

export const scores = (query, key) => query.map((q) => key.map((k) => dot(q, k)));

export const scaled = (table, factor) => table.map((row) => row.map((x) => x * factor));

export const fill = (nQ, nK, rule) =>
  Array.from({ length: nQ }, (_, i) => Array.from({ length: nK }, (_, j) => rule(i, j)));

// How far the diagonal is moved to the right, as attnlib.masks.check_align.
export const offset = (nQ, nK, align) => {
  if (align === "bottom_right") return nK - nQ;
  if (align === "top_left" || nQ === nK) return 0;
  throw new Error(`${nQ} queries and ${nK} keys need an alignment`);
};

export const masks = {
  all: (nQ, nK) => fill(nQ, nK, () => true),
  causal: (nQ, nK, { align } = {}) => {
    const o = offset(nQ, nK, align);
    return fill(nQ, nK, (i, j) => j <= i + o);
  },
  strictly_past: (nQ, nK, { align } = {}) => {
    const o = offset(nQ, nK, align);
    return fill(nQ, nK, (i, j) => j < i + o);
  },
  // `window` counts the current token.
  sliding_window: (nQ, nK, { window, align } = {}) => {
    const o = offset(nQ, nK, align);
    return fill(nQ, nK, (i, j) => j <= i + o && i + o - j < window);
  },
  prefix: (nQ, nK, { prefix, align } = {}) => {
    const o = offset(nQ, nK, align);
    return fill(nQ, nK, (i, j) => j <= i + o || j < prefix);
  },
  padding: (nQ, nK, { length } = {}) => fill(nQ, nK, (i, j) => j < length),
  document: (nQ, nK, { idsQ, idsK } = {}) => fill(nQ, nK, (i, j) => idsQ[i] === (idsK ?? idsQ)[j]),
};

export const and = (a, b) => a.map((row, i) => row.map((x, j) => x && b[i][j]));

export const not = (a) => a.map((row) => row.map((x) => !x));

export const hide = (table, allowed, hidden = -Infinity) =>
  table.map((row, i) => row.map((x, j) => (allowed[i][j] ? x : hidden)));

// Weights and log-sum-exp by row. A row is empty if `allowed` says so, never because of its numbers.
export const softmax = (masked, allowed = null) => {
  const weights = [];
  const lse = [];
  masked.forEach((row, i) => {
    if (!row.length || (allowed && !allowed[i].some(Boolean))) {
      weights.push(row.map(() => 0));
      lse.push(-Infinity);
      return;
    }
    const max = row.reduce((m, x) => (Number.isNaN(m) || Number.isNaN(x) ? NaN : Math.max(m, x)));
    const powers = row.map((x) => Math.exp(x - max));
    const total = powers.reduce((sum, x) => sum + x, 0);
    weights.push(powers.map((x) => x / total));
    lse.push(max + Math.log(total));
  });
  return { weights, lse };
};

export const mix = (weights, value) => {
  const width = value.length ? value[0].length : 0;
  return weights.map((row) =>
    Array.from({ length: width }, (_, c) => row.reduce((sum, w, j) => sum + w * value[j][c], 0)),
  );
};

export const rowSums = (table) => table.map((row) => row.reduce((sum, x) => sum + x, 0));

export const columnSums = (table) => rowSums(transpose(table));

// --- heads -------------------------------------------------------------------------------------------

export const split = (x, nHeads) => {
  const width = x[0].length / nHeads;
  return Array.from({ length: nHeads }, (_, h) => x.map((row) => row.slice(h * width, (h + 1) * width)));
};

export const merge = (heads) => heads[0].map((_, t) => heads.flatMap((head) => head[t]));

const reshape = (numbers, width) =>
  Array.from({ length: numbers.length / width }, (_, r) => numbers.slice(r * width, (r + 1) * width));

// The wrong ways: the numbers in memory order, cut anew, tokens mixed.
export const splitByReshape = (x, nHeads) => {
  const rows = reshape(x.flat(), x[0].length / nHeads);
  return Array.from({ length: nHeads }, (_, h) => rows.slice(h * x.length, (h + 1) * x.length));
};

export const mergeByReshape = (heads) => reshape(heads.flat(2), heads.length * heads[0][0].length);

// --- one head, right or wrong ------------------------------------------------------------------------

// The settings of a head. Each wrong one carries the name that attnlib.mistakes gives it; null is right.
export const SETTINGS = {
  scale: { root_d_h: null, none: "no_scale", root_d: "scale_by_model_width", d_h: "scale_by_width" },
  mask: {
    causal: null,
    none: "no_mask",
    strictly_past: "strictly_past",
    inverted: "mask_inverted",
    after_softmax: "mask_after_softmax",
    minus_1e9: "minus_1e9_on_empty_row",
  },
  softmax: { over_keys: null, over_queries: "softmax_over_queries", twice: "softmax_twice" },
  products: { right: null, swapped: "query_and_key_swapped" },
  split: { right: null, reshape: "split_without_transpose" },
};

export const RIGHT = Object.fromEntries(
  Object.entries(SETTINGS).map(([name, options]) => [
    name,
    Object.keys(options).find((option) => options[option] === null),
  ]),
);

export const divisorOf = (scale, width, nHeads) =>
  ({ none: 1, root_d_h: Math.sqrt(width), root_d: Math.sqrt(width * nHeads), d_h: width })[scale];

// All steps of one head of a layer. `query`, `key`, `value` hold one row per token, all heads side by side;
// `emptyRow` (from 0, or null) is a query that may see nothing; `allowed` replaces the causal mask if given.
export const headSteps = (query, key, value, { nHeads = 1, head = 0, emptyRow = null, allowed = null, ...set }) => {
  const how = { ...RIGHT, ...set };
  const cut = how.split === "right" ? split : splitByReshape;
  const [q, k, v] = [query, key, value].map((x) => cut(x, nHeads)[head]);
  const nQ = q.length;
  const nK = k.length;
  const raw = how.products === "right" ? scores(q, k) : scores(k, q);
  const small = scaled(raw, 1 / divisorOf(how.scale, q[0].length, nHeads));

  let visible = allowed ?? masks.causal(nQ, nK);
  if (how.mask === "none") visible = masks.all(nQ, nK);
  if (how.mask === "strictly_past") visible = masks.strictly_past(nQ, nK);
  if (how.mask === "inverted") visible = not(visible);
  if (emptyRow !== null) visible = visible.map((row, i) => (i === emptyRow ? row.map(() => false) : row));

  const late = how.mask === "after_softmax";
  const finite = how.mask === "minus_1e9";
  const masked = late ? small : hide(small, visible, finite ? -1e9 : -Infinity);
  const known = late || finite ? null : visible;
  let { weights, lse } = softmax(masked, known);
  if (how.softmax === "over_queries") weights = transpose(softmax(transpose(masked)).weights);
  // The second softmax again leaves hidden rows alone, but gives every hidden key a share.
  if (how.softmax === "twice") weights = softmax(weights, known).weights;
  if (late) weights = hide(weights, visible, 0);
  return { q, k, v, visible, scores: raw, scaled: small, masked, weights, lse, output: mix(weights, v) };
};

// The names of the mistakes that some settings make, in the order of SETTINGS.
export const mistakesIn = (set) =>
  Object.entries(SETTINGS)
    .map(([name, options]) => options[set[name] ?? RIGHT[name]])
    .filter((mistake) => mistake);

// --- scaling lab: a seeded sample and what it shows ----------------------------------------------------

// Numbers from 0 (included) to 1 (excluded), the same on every machine: mulberry32, a counter of 32 bits
// whose bits are mixed by multiplications and shifts.
export const mulberry32 = (seed) => {
  let counter = seed >>> 0;
  return () => {
    counter = (counter + 0x6d2b79f5) >>> 0;
    let mixed = counter;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
};

// Normal numbers of mean 0 and variance 1, by Box and Muller: two uniform numbers make two normal ones.
export const normals = (seed, count) => {
  const next = mulberry32(seed);
  const found = [];
  while (found.length < count) {
    const radius = Math.sqrt(-2 * Math.log(1 - next()));
    const angle = 2 * Math.PI * next();
    found.push(radius * Math.cos(angle), radius * Math.sin(angle));
  }
  return found.slice(0, count);
};

// Queries first, then keys, row by row from one stream.
export const randomHead = (seed, width, nQ, nK) => {
  const numbers = normals(seed, (nQ + nK) * width);
  const row = (n) => numbers.slice(n * width, (n + 1) * width);
  return {
    query: Array.from({ length: nQ }, (_, i) => row(i)),
    key: Array.from({ length: nK }, (_, j) => row(nQ + j)),
  };
};

export const spread = (table) => {
  const all = table.flat();
  const mean = all.reduce((sum, x) => sum + x, 0) / all.length;
  return Math.sqrt(all.reduce((sum, x) => sum + (x - mean) ** 2, 0) / all.length);
};

export const median = (numbers) => {
  const sorted = [...numbers].sort((a, b) => a - b);
  const half = sorted.length / 2;
  return (sorted[Math.ceil(half) - 1] + sorted[Math.floor(half)]) / 2;
};

// How one row of weights is shared out: its largest weight, how many keys it uses (e to the entropy), and
// its largest derivative p(1 − p), which says how far a weight answers to its own score.
export const sharing = (row) => ({
  largest: Math.max(...row),
  inUse: Math.exp(-row.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0)),
  reaction: Math.max(...row.map((p) => p * (1 - p))),
});

// Counts in 2 · last + 1 bins, each around a whole number; the outermost also take all that lies beyond.
export const binned = (table, last) => {
  const counts = new Array(2 * last + 1).fill(0);
  for (const x of table.flat()) counts[Math.min(Math.max(Math.floor(x + 0.5), -last), last) + last] += 1;
  return counts;
};

// --- softmax bars: one row in a chosen precision ---------------------------------------------------------

// The float16 nearest to x, ties to even; beyond 65504 it is infinite, below 2^-14 the steps stay the same.
export const toFloat16 = (x) => {
  if (!Number.isFinite(x) || x === 0) return x;
  const step = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(x))), -14) - 10);
  // Adding and taking away 1.5 · 2^52 leaves no room for a fraction: it rounds to a whole number.
  const nearest = step * (x / step + 1.5 * 2 ** 52 - 1.5 * 2 ** 52);
  return Math.abs(nearest) > 65504 ? Math.sign(x) * Infinity : nearest;
};

export const PRECISIONS = { float64: (x) => x, float32: Math.fround, float16: toFloat16 };

// Softmax of one row as a machine of this precision does it: each result is rounded before the next step.
// `hidden` says which keys may not be seen.
export const softmaxSteps = (row, { hidden = null, temperature = 1, shift = 0, subtract = true, precision = "float64" } = {}) => {
  const round = PRECISIONS[precision];
  const seen = row.map((_, j) => !hidden?.[j]);
  const given = row.map((x, j) => (seen[j] ? round(round(round(x) / temperature) + shift) : -Infinity));
  const max = Math.max(...given);
  const empty = !seen.some(Boolean);
  const moved = subtract ? given.map((x) => (x === -Infinity ? x : round(x - max))) : given;
  const powers = moved.map((x) => round(Math.exp(x)));
  const total = powers.reduce((sum, x) => round(sum + x), 0);
  return {
    given,
    max,
    moved,
    powers,
    total,
    weights: powers.map((x) => (empty ? 0 : round(x / total))),
    lse: empty ? -Infinity : round((subtract ? max : 0) + round(Math.log(total))),
  };
};

// --- where numbers stand in the heads (widget heads) -----------------------------------------------------

// Component c of token t is 10·t + c, so that each number says where it belongs.
export const addresses = (nTokens, width) => fill(nTokens, width, (t, c) => 10 * t + c);

// Splits and merges, each with the swap of axes or by reshape alone; `right` is what the split should give.
export const thereAndBack = (x, nHeads, { split: there, merge: back }) => {
  const right = split(x, nHeads);
  const heads = there === "swap" ? right : splitByReshape(x, nHeads);
  return { right, heads, merged: back === "swap" ? merge(heads) : mergeByReshape(heads) };
};

export const countInPlace = (got, right) => {
  const wanted = right.flat(Infinity);
  return got.flat(Infinity).filter((x, n) => x === wanted[n]).length;
};

// --- one row of weights on points (widget mixing) --------------------------------------------------------

// `how`: "softmax" (hidden keys left out), "after_softmax" (hidden keys set to 0 too late), or "none".
export const mixPoints = (scoreRow, points, hidden, how = "softmax") => {
  const allowed = [hidden.map((dark) => !dark)];
  const late = (row) => hide([row], allowed, 0)[0];
  const weights =
    how === "softmax"
      ? softmax(hide([scoreRow], allowed), allowed).weights[0]
      : late(how === "after_softmax" ? softmax([scoreRow]).weights[0] : scoreRow);
  const lengths = points.map((v) => Math.hypot(...v));
  return {
    weights,
    lengths,
    contributions: weights.map((w, j) => Math.abs(w) * lengths[j]),
    parts: weights.map((w, j) => points[j].map((x) => w * x)),
    output: mix([weights], points)[0],
    sum: rowSums([weights])[0],
  };
};

// How far a point of the plane lies outside the convex hull of at most three corners.
export const distanceToHull = ([x, y], corners) => {
  const side = ([ax, ay], [bx, by]) => (bx - ax) * (y - ay) - (by - ay) * (x - ax);
  const toSegment = ([ax, ay], [bx, by]) => {
    const squared = (bx - ax) ** 2 + (by - ay) ** 2;
    const along = squared ? Math.min(Math.max(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / squared, 0), 1) : 0;
    return Math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay));
  };
  const edges = corners.map((corner, n) => [corner, corners[(n + 1) % corners.length]]);
  const sides = edges.map((edge) => side(...edge));
  // Inside a triangle that is not flat, all edges are passed on the same side.
  const turning = corners.length === 3 && sides.reduce((sum, s) => sum + s, 0) !== 0;
  if (turning && (sides.every((s) => s >= 0) || sides.every((s) => s <= 0))) return 0;
  return Math.min(...edges.map((edge) => toSegment(...edge)));
};

// --- online softmax: one row that reads its keys in blocks (widgets online_softmax, tile_replay) ---------

// max = m, sum = ℓ, out = o (not yet divided). Hidden scores are −∞; before the first visible key, m is −∞ too.
export const stateOfNothing = (width) => ({ max: -Infinity, sum: 0, out: new Array(width).fill(0) });

// How what is gathered comes under the new maximum: right, or one of the ways to get it wrong.
export const RESCALING = {
  right: (old, now) => Math.exp(old - now),
  wrong_sign: (old, now) => (old === -Infinity ? 0 : Math.exp(now - old)),
  no_rescale: (old) => (old === -Infinity ? 0 : 1),
  // The maximum of the block alone: exact all the same, until a power overflows or a block is hidden.
  block_max: (old, now) => Math.exp(old - now),
};

export const takeBlock = (state, scoreRow, values, rule = "right") => {
  const max = Math.max(rule === "block_max" ? -Infinity : state.max, ...scoreRow);
  const anchor = max === -Infinity ? 0 : max;
  const factor = RESCALING[rule](state.max, anchor);
  const powers = scoreRow.map((x) => Math.exp(x - anchor));
  return {
    max,
    factor,
    powers,
    sum: factor * state.sum + powers.reduce((total, p) => total + p, 0),
    out: state.out.map((x, c) => factor * x + powers.reduce((total, p, j) => total + p * values[j][c], 0)),
  };
};

// o / ℓ and the log-sum-exp. A row that was shown no key gives 0 and −∞; its numbers alone cannot tell.
export const finishState = ({ max, sum, out }, seen) =>
  seen ? { output: out.map((x) => x / sum), lse: max + Math.log(sum) } : { output: out.map(() => 0), lse: -Infinity };

// The states of a row that reads its keys in some order, so many at a time; the first is that of nothing.
// `shares` says what each key of the row counts for in ℓ (0 before it is read), `keys` which ones a step reads.
export const readInBlocks = (scoreRow, values, { hidden = [], order, block = 1, rule = "right" }) => {
  const masked = scoreRow.map((x, j) => (hidden[j] ? -Infinity : x));
  const first = { ...stateOfNothing(values[0].length), keys: [], factor: null, shares: masked.map(() => 0), seen: false };
  const found = [{ ...first, ...finishState(first, false) }];
  for (let at = 0; at < order.length; at += block) {
    const before = found.at(-1);
    const keys = order.slice(at, at + block);
    const now = takeBlock(before, keys.map((j) => masked[j]), keys.map((j) => values[j]), rule);
    const seen = before.seen || keys.some((j) => !hidden[j]);
    const shares = before.shares.map((x, j) => (keys.includes(j) ? now.powers[keys.indexOf(j)] : order.indexOf(j) < at ? now.factor * x : 0));
    found.push({ ...now, keys, shares, seen, ...finishState(now, seen) });
  }
  return found;
};

// --- tiles: which are visited, and what they move (widgets tile_replay, roofline) ------------------------

// Queries or keys of one side cut into blocks: [from, to) each, the last one maybe shorter.
export const blocks = (n, size) => Array.from({ length: Math.ceil(n / size) }, (_, b) => [b * size, Math.min((b + 1) * size, n)]);

// "skipped" (wholly hidden), "masked" (partly hidden) or "whole", under the causal mask of n queries and keys.
export const tileKind = ([top, bottom], [left, right], causal) =>
  !causal || right - 1 <= top ? "whole" : left > bottom - 1 ? "skipped" : "masked";

// All tiles in the order in which an algorithm meets them, each with the entries that it loads and stores.
// flash2 has queries outside and keys inside; flash1 keys outside and queries inside. `start` is moved before
// the first tile. Both have d = d_v.
export const tileWalk = ({ n, d, blockQ, blockK, causal, algorithm }) => {
  const [rowBlocks, colBlocks] = [blocks(n, blockQ), blocks(n, blockK)];
  const tile = (r, c) => ({ r, c, rows: rowBlocks[r], cols: colBlocks[c], kind: tileKind(rowBlocks[r], colBlocks[c], causal) });
  const outside = algorithm === "flash2" ? rowBlocks : colBlocks;
  const inside = algorithm === "flash2" ? colBlocks : rowBlocks;
  const tiles = [];
  outside.forEach((_, a) => {
    const line = inside.map((_, b) => (algorithm === "flash2" ? tile(a, b) : tile(b, a)));
    const seen = line.filter(({ kind }) => kind !== "skipped");
    for (const one of line) {
      const [nRows, nCols] = [one.rows[1] - one.rows[0], one.cols[1] - one.cols[0]];
      const moved = { loads: 0, stores: 0, flops: 0 };
      if (one.kind !== "skipped") {
        const [first, last] = [one === seen[0], one === seen.at(-1)];
        moved.flops = 4 * nRows * nCols * d;
        if (algorithm === "flash2") {
          moved.loads = (first ? nRows * d : 0) + 2 * nCols * d;
          moved.stores = last ? nRows * (d + 1) : 0;
        } else {
          moved.loads = (first ? 2 * nCols * d : 0) + nRows * (2 * d + 2);
          moved.stores = nRows * (d + 2);
        }
      }
      tiles.push({ ...one, ...moved });
    }
  });
  return { tiles, start: { loads: 0, stores: algorithm === "flash1" ? n * (d + 2) : 0 } };
};

// Entries of fast memory that one tile needs: Q, K and V, the scores, and o with m and ℓ.
export const tileMemory = ({ d, blockQ, blockK }) => blockQ * d + 2 * blockK * d + blockQ * blockK + blockQ * (d + 2);

// Plain attention of one head, which stores the scores and the weights and reads both again.
export const plainTraffic = ({ n, d }) => ({ loads: 3 * n * d + 2 * n * n, stores: n * d + 2 * n * n });

// What one head costs, by formula, however long: entries loaded and stored, the FLOPs really executed, and the
// entries of slow memory beside inputs and outputs. Square tiles of `block`; flash2 has one pass backward.
export const costOf = ({ n, d, block, causal, direction, algorithm }) => {
  const forward = direction === "forward";
  const matrix = n * n;
  if (algorithm === "plain")
    return {
      ...(forward ? plainTraffic({ n, d }) : { loads: 5 * matrix + 5 * n * d, stores: 2 * matrix + 3 * n * d }),
      flops: (forward ? 4 : 8) * matrix * d,
      memory: (forward ? 2 : 3) * matrix,
    };
  // Sums over the visited tiles: their rows, columns and scores.
  const sums = { rows: 0, cols: 0, area: 0 };
  for (const [top, bottom] of blocks(n, block)) {
    const cols = causal ? bottom : n;
    sums.rows += (bottom - top) * Math.ceil(cols / block);
    sums.cols += cols;
    sums.area += (bottom - top) * cols;
  }
  if (forward) return { loads: n * d + 2 * d * sums.cols, stores: n * (d + 1), flops: 4 * sums.area * d, memory: n };
  return {
    loads: 4 * n * d + sums.rows * (3 * d + 2),
    stores: n + 3 * n * d + sums.rows * d,
    flops: 10 * sums.area * d,
    memory: 2 * n,
  };
};

// FLOPs as papers count them: the products alone, backward 2.5 times as many, half of them if causal.
export const conventionalFlops = ({ n, d, causal, direction }) => ((direction === "forward" ? 4 : 10) * n * n * d) / (causal ? 2 : 1);

// What holds the work back on a chip of `peak` FLOP/s and `bandwidth` bytes/s.
export const rooflineOf = ({ flops, bytes }, { peak, bandwidth }) => ({
  intensity: flops / bytes,
  ridge: peak / bandwidth,
  arithmetic: flops / peak,
  transfer: bytes / bandwidth,
  seconds: Math.max(flops / peak, bytes / bandwidth),
  limit: bytes / bandwidth > flops / peak ? "memory" : "arithmetic",
});

// --- backward: the gradients of one head (widget backward_strip) -----------------------------------------

// Ways to get one step wrong, each with its name; null is right.
export const BACKWARD = {
  delta: { right: null, missing: "missing_delta", unweighted: "delta_unweighted" },
  scale: { right: null, missing: "gradient_not_scaled" },
  keys: { right: null, untransposed: "tile_not_transposed" },
};

// From the gradient of the output back to those of query, key and value. `forward` is what headSteps returns
// under a right forward pass with the scale 1/√d_h; dS belongs to the scaled scores.
export const backwardSteps = ({ q, k, v, weights, output }, gradOutput, { delta = "right", scale = "right", keys = "right" } = {}) => {
  const factor = scale === "right" ? 1 / Math.sqrt(q[0].length) : 1;
  const dWeights = scores(gradOutput, v);
  const D = {
    right: () => gradOutput.map((row, i) => dot(row, output[i])),
    missing: () => gradOutput.map(() => 0),
    unweighted: () => rowSums(dWeights),
  }[delta]();
  const dScores = weights.map((row, i) => row.map((p, j) => p * (dWeights[i][j] - D[i])));
  const turned = keys === "right" ? transpose : (tile) => tile;
  return {
    dWeights,
    delta: D,
    dScores,
    dQuery: scaled(mix(dScores, k), factor),
    dKey: scaled(mix(turned(dScores), q), factor),
    dValue: mix(turned(weights), gradOutput),
  };
};

// The scaling lab: how the width of a head spreads its scores, and what a divisor makes of that.

import { SETTINGS, binned, divisorOf, median, randomHead, scaled, scores, sharing, softmax, spread } from "./arith.js";
import { bars, button, choice, frame, h, number, oneOf, slider, whole, within } from "./look.js";

const LAB_QUERIES = 64;
const LAB_KEYS = 16;
const LAB_LAST = 12; // the outermost bin of the histogram
const LAB_SEEDS = 1e6;

const DIVISORS = { none: "nothing", root_d_h: "√d_h", root_d: "√d", d_h: "d_h" };

const MEASURES = [
  ["spread", "spread of the scores", 2],
  ["predicted", "spread, predicted", 2],
  ["largest", "largest weight, mean", 2],
  ["inUse", `keys in use, of ${LAB_KEYS}`, 1],
  ["reaction", "largest p(1 − p), median", 3],
];

// What one divisor makes of raw scores: their spread, and how the queries share out their weights.
const measure = (raw, divisor, predicted) => {
  const table = scaled(raw, 1 / divisor);
  const { weights } = softmax(table);
  const shared = weights.map(sharing);
  const mean = (key) => shared.reduce((sum, one) => sum + one[key], 0) / shared.length;
  const entropy = shared.reduce((sum, one) => sum + Math.log(one.inUse), 0) / shared.length;
  return {
    table,
    weights,
    spread: spread(table),
    predicted,
    largest: mean("largest"),
    inUse: Math.exp(entropy),
    reaction: median(shared.map((one) => one.reaction)),
  };
};

// A number that is not 0 is never written as 0.
const written = (x, digits) => (x > 0 && x < 0.5 * 10 ** -digits ? `< ${number(10 ** -digits, digits)}` : number(x, digits));

export default {
  render: (context) =>
    frame(context, {
      name: "scaling_lab",
      title: "Scaling lab: head width, scores, weights",
      initial: { width: 64, size: 1, divisor: "none", nHeads: 8, seed: 1 },
      accept: (x) => {
        if (Object.keys(x).some((key) => !["width", "size", "divisor", "nHeads", "seed"].includes(key))) throw new Error("unknown");
        return {
          width: oneOf(x.width, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
          size: within(x.size, 0.25, 4),
          divisor: oneOf(x.divisor, Object.keys(DIVISORS)),
          nHeads: whole(x.nHeads, 1, 64),
          seed: whole(x.seed, 0, LAB_SEEDS - 1),
        };
      },
      build: (api, first) => {
        const controls = [
          slider("head width d_h", { min: 0, max: 10, step: 1, show: (n) => String(2 ** n) }, () => Math.log2(api.get().width), (n) => api.set({ width: 2 ** n })),
          slider("size of the inputs", { min: 0.25, max: 4, step: 0.25, show: (x) => number(x, 2) }, () => api.get().size, (size) => api.set({ size })),
          choice(
            "divide by",
            Object.entries(DIVISORS).map(([value, text]) => ({ value, text, wrong: SETTINGS.scale[value] !== null })),
            () => api.get().divisor,
            (divisor) => api.set({ divisor }),
          ),
        ];
        const another = button("Another sample", () => api.set({ seed: (api.get().seed + 1) % LAB_SEEDS }));
        const histogram = bars({ title: "all scores, divided", count: 2 * LAB_LAST + 1, unit: "score (the ends hold all beyond)", role: "query" });
        const shares = bars({ title: "weights of query 1, largest first", count: LAB_KEYS, unit: "key" });

        const keyLine = h("p", { class: "attn-bars-legend" }, h("span", { class: "attn-bars-sample", "aria-hidden": "true" }), "where the bar would end if divided by √d_h");
        const cells = MEASURES.map(() => Object.keys(DIVISORS).map(() => h("td", {})));
        const heads = Object.entries(DIVISORS).map(([divisor, text]) =>
          h("th", { scope: "col" }, text, SETTINGS.scale[divisor] === null ? h("small", {}, "right") : h("small", { class: "attn-lab-wrong" }, "✗ wrong")),
        );
        const table = h(
          "table",
          { class: "attn-lab-table" },
          h("caption", {}, `${LAB_QUERIES} random queries, ${LAB_KEYS} random keys, scores divided by:`),
          h("thead", {}, h("tr", {}, h("td", {}), heads)),
          h("tbody", {}, MEASURES.map(([, text], m) => h("tr", {}, h("th", { scope: "row" }, text), cells[m]))),
        );

        const binCells = Array.from({ length: 2 * LAB_LAST + 1 }, () => h("td", {}));
        const keyCells = Array.from({ length: LAB_KEYS }, () => ["key", "score", "weight", "reaction"].map(() => h("td", {})));
        const edge = (n) => (Math.abs(n) < LAB_LAST ? number(n) : n < 0 ? `${number(n)} or less` : `${n} or more`);
        const details = h(
          "details",
          { class: "attn-lab-numbers" },
          h("summary", {}, "The numbers of both pictures"),
          h(
            "div",
            { class: "attn-panels" },
            h(
              "table",
              {},
              h("caption", {}, "scores near"),
              h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "score"), h("th", { scope: "col" }, "how many"))),
              h("tbody", {}, binCells.map((cell, n) => h("tr", {}, h("th", { scope: "row" }, edge(n - LAB_LAST)), cell))),
            ),
            h(
              "table",
              {},
              h("caption", {}, "query 1"),
              h("thead", {}, h("tr", {}, ["rank", "key", "score", "weight", "p(1 − p)"].map((text) => h("th", { scope: "col" }, text)))),
              h("tbody", {}, keyCells.map((line, n) => h("tr", {}, h("th", { scope: "row" }, String(n + 1)), line))),
            ),
          ),
        );

        // The same sample serves every divisor and every size: only its scores are multiplied.
        const kept = new Map();
        const rawScores = ({ seed, width }) => {
          const sample = `${seed} ${width}`;
          if (!kept.has(sample)) {
            const { query, key } = randomHead(seed, width, LAB_QUERIES, LAB_KEYS);
            if (kept.size >= 22) kept.clear();
            kept.set(sample, scores(query, key));
          }
          return kept.get(sample);
        };

        const say = (state, now, right, top) => {
          const { width, size, divisor, nHeads } = state;
          const by = divisorOf(divisor, width, nHeads);
          const takes = `Query 1 gives key ${top.key + 1} a share of ${written(top.weight, 3)}`;
          const moves = `the weight that answers most to its score moves ${written(top.reaction, 3)} times as far (0.25 at best)`;
          const measured = `The scores spread by ${number(now.spread, 2)} (predicted: ${number(now.predicted, 2)}).`;
          if (by === divisorOf("root_d_h", width, nHeads) && divisor !== "root_d_h")
            return `${measured} At width ${width} this divisor is ${number(by)}, the same as √d_h, so the mistake cannot be seen: make the head wider. ${takes}.`;
          if (divisor === "root_d_h") {
            const sized =
              size === 1
                ? `√d_h takes the width out again.`
                : `√d_h takes the width out, but not the size of the inputs: ${number(size, 2)} · ${number(size, 2)} = ${number(size * size, 2)} remains.`;
            return `${measured} ${sized} ${takes}; ${moves}.`;
          }
          const wrongly = {
            none: "Nobody divided.",
            root_d: `The divisor is √d = √(${nHeads} · ${width}) = ${number(by, 2)}, the root of all ${nHeads} heads together.`,
            d_h: `The divisor is d_h = ${width}, not its root.`,
          }[divisor];
          const effect =
            now.inUse < 0.9 * right.inUse
              ? `Too sharp: ${moves}, so training gets little gradient.`
              : now.inUse > 1.1 * right.inUse
                ? `Too flat: ${number(now.inUse, 1)} of ${LAB_KEYS} keys are in use instead of ${number(right.inUse, 1)}.`
                : `At this size the weights hardly show it: ${number(now.inUse, 1)} keys in use, ${number(right.inUse, 1)} with √d_h.`;
          return `${wrongly} ${measured} With √d_h it would be ${number(right.spread, 2)}. ${takes}. ${effect}`;
        };

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-lab-controls" }, controls.map(({ element }) => element), another),
            h("div", { class: "attn-bars-charts" }, histogram.element, shares.element),
            keyLine,
            h("div", { class: "attn-matrix-box", tabindex: 0, role: "group", "aria-label": "The four divisors compared" }, table),
            details,
          ),
          update: (state) => {
            const { width, size, divisor, nHeads, seed } = state;
            const raw = scaled(rawScores(state), size * size);
            const all = Object.fromEntries(
              Object.keys(DIVISORS).map((name) => {
                const by = divisorOf(name, width, nHeads);
                return [name, measure(raw, by, (Math.sqrt(width) * size * size) / by)];
              }),
            );
            const now = all[divisor];
            const right = all.root_d_h;
            controls.forEach((control) => control.update());

            const counts = binned(now.table, LAB_LAST);
            const rightCounts = binned(right.table, LAB_LAST);
            const wrong = divisor !== "root_d_h";
            const most = Math.max(...counts);
            keyLine.classList.toggle("attn-blank", !wrong);
            histogram.update({
              values: counts,
              top: Math.max(most, wrong ? Math.max(...rightCounts) : 0),
              names: counts.map((_, n) => ((n - LAB_LAST) % 4 ? "" : number(n - LAB_LAST))),
              ghosts: wrong ? rightCounts.map((x) => x || null) : [],
              said: `Histogram of ${LAB_QUERIES * LAB_KEYS} scores: spread ${number(now.spread, 2)}, ${counts[0] + counts[2 * LAB_LAST]} lie at ±${LAB_LAST} or beyond. The numbers are in the table below.`,
            });

            const row = now.weights[0];
            const order = row.map((_, j) => j).sort((a, b) => row[b] - row[a] || a - b);
            const rightSorted = [...right.weights[0]].sort((a, b) => b - a);
            const reactions = row.map((p) => p * (1 - p));
            shares.update({
              values: order.map((j) => row[j]),
              top: 1,
              names: order.map((j) => String(j + 1)),
              texts: order.map((j, n) => (n ? "" : written(row[j], 2))),
              ghosts: wrong ? rightSorted : [],
              said: `Weights of query 1, largest first: ${order.slice(0, 3).map((j) => `key ${j + 1} ${written(row[j], 3)}`).join(", ")}. All are in the table below.`,
            });

            MEASURES.forEach(([key, , digits], m) =>
              Object.keys(DIVISORS).forEach((name, n) => {
                cells[m][n].textContent = written(all[name][key], digits);
                cells[m][n].classList.toggle("attn-lab-now", name === divisor);
              }),
            );
            heads.forEach((head, n) => head.classList.toggle("attn-lab-now", Object.keys(DIVISORS)[n] === divisor));
            counts.forEach((count, n) => (binCells[n].textContent = String(count)));
            order.forEach((j, n) =>
              [String(j + 1), number(now.table[0][j], 2), written(row[j], 3), written(reactions[j], 3)].forEach((text, c) => (keyCells[n][c].textContent = text)),
            );

            const top = { key: order[0], weight: row[order[0]], reaction: Math.max(...reactions) };
            const mistake = SETTINGS.scale[divisor];
            const figures = ({ spread, predicted, largest, inUse, reaction }) => ({ spread, predicted, largest, inUse, reaction });
            return {
              sentence: say(state, now, right, top),
              result: {
                seed,
                measured: Object.fromEntries(Object.entries(all).map(([name, one]) => [name, figures(one)])),
                counts,
                scores: now.table[0],
                weights: row,
                mistakes: mistake ? [mistake] : [],
              },
            };
          },
        };
      },
    }),
};

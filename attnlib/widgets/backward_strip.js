// The backward strip: one head forwards, and below it, mirrored, the gradients of the same matrices.

import { BACKWARD, RIGHT, backwardSteps, headSteps, masks, rowSums } from "./arith.js";
import { button, choice, editor, frame, h, matrix, number, oneOf, shortText, tableOf, visible, whole } from "./look.js";

const BACKWARD_TEXTS = {
  delta: ["D", { right: "rowsum(dO ∘ O)", missing: "missing", unweighted: "rowsum(dP)" }],
  scale: ["scale in dQ, dK", { right: "1/√d_h", missing: "missing" }],
  keys: ["dK, dV", { right: "dSᵀ Q, Pᵀ dO", untransposed: "dS Q, P dO" }],
};
const BACKWARD_RIGHT = { delta: "right", scale: "right", keys: "right" };
const BACKWARD_SMALL = 1e-12;

// A sum such as 1.4e−17, which is 0 but for rounding, is shown as 0.
const sumsOf = ({ dScores }) => {
  const largest = Math.max(...dScores.flat().map(Math.abs));
  return rowSums(dScores).map((x) => (Math.abs(x) <= BACKWARD_SMALL * largest ? 0 : x));
};

export default {
  render: (context) =>
    frame(context, {
      name: "backward_strip",
      title: "One head and its gradients, live",
      initial: { tokens: [], query: [], key: [], value: [], nHeads: 1, head: 0, row: 0, causal: true, gradient: [], ...BACKWARD_RIGHT },
      accept: (x) => {
        const known = ["tokens", "query", "key", "value", "nHeads", "head", "row", "causal", "gradient", ...Object.keys(BACKWARD)];
        if (Object.keys(x).some((key) => !known.includes(key)) || ![x.tokens, x.query].every(Array.isArray)) throw new Error("unknown");
        const nHeads = whole(x.nHeads, 1, 8);
        const count = whole(x.tokens.length, 1, 4);
        const width = whole(x.query[0]?.length, nHeads, 16);
        if (width % nHeads || width / nHeads > 4) throw new Error("width");
        return {
          tokens: x.tokens.map((token) => shortText(token)),
          query: tableOf(x.query, count, width),
          key: tableOf(x.key, count, width),
          value: tableOf(x.value, count, width),
          nHeads,
          head: whole(x.head, 0, nHeads - 1),
          row: whole(x.row, 0, count - 1),
          causal: oneOf(x.causal, [true, false]),
          gradient: tableOf(x.gradient, count, width / nHeads),
          ...Object.fromEntries(Object.keys(BACKWARD).map((name) => [name, oneOf(x[name], Object.keys(BACKWARD[name]))])),
        };
      },
      build: (api, first) => {
        const count = first.tokens.length;
        const width = first.query[0].length / first.nHeads;
        const tokens = first.tokens.map((token, n) => `${n + 1} ${visible(token)}`);
        const components = Array.from({ length: width }, (_, c) => `${c + 1}`);
        const n3 = (x) => number(x, 3);

        // --- twelve matrices, each gradient below its own ---
        const pointed = h("p", { class: "attn-pointed", "aria-hidden": "true" });
        const panels = {};
        const SQUARE = ["scaled", "weights", "dScores", "dWeights"];
        const point = (i, j) => {
          for (const key of SQUARE) panels[key].light(i, j);
          pointed.textContent = i === null ? "" : `query ${tokens[i]}, key ${tokens[j]}`;
        };
        const pick = (row) => api.set({ row });
        const panel = (key, title, role, more = {}) => {
          const square = SQUARE.includes(key);
          const shape = square ? { cols: tokens, point } : { cols: components, colName: "component", rowName: role === "key" || role === "value" ? "key" : "query" };
          // A row of K and V belongs to a key: only rows of queries can be chosen.
          const queries = square || role === "query" || role === "output";
          panels[key] = matrix({ title, rows: tokens, kind: "scores", pick: queries ? pick : undefined, ...shape, ...more });
          return h("div", { class: `attn-mirror-panel${role ? ` attn-mirror-${role}` : ""}`, "data-panel": key }, panels[key].element);
        };
        const words = (text) => h("p", { class: "attn-mirror-words" }, text);
        const strip = h(
          "div",
          { class: "attn-mirror" },
          words("forward →"),
          panel("q", "Q", "query"),
          panel("k", "K", "key"),
          panel("v", "V", "value"),
          panel("scaled", "S = QKᵀ/√d_h", ""),
          panel("weights", "P = softmax(S)", "", { kind: "weights" }),
          panel("output", "O = PV", "output"),
          words("← backward"),
          // In the order of the work; where there is room, the style sheet puts them from right to left.
          panel("gradient", "dO, given", "output"),
          panel("dWeights", "dP = dO Vᵀ", "", { extra: "D" }),
          panel("dScores", "dS = P ∘ (dP − D)", "", { extra: "row sum" }),
          panel("dQuery", "dQ = dS K/√d_h", "query"),
          panel("dKey", "dK = dSᵀ Q/√d_h", "key"),
          panel("dValue", "dV = Pᵀ dO", "value"),
        );

        // --- what can be set ---
        const options = (texts, wrong = () => false) => Object.entries(texts).map(([value, text]) => ({ value, text, wrong: wrong(value) }));
        const controls = [
          choice("query row", tokens.map((text, n) => ({ value: String(n), text })), () => String(api.get().row), (n) => pick(Number(n))),
          first.nHeads > 1 && choice("head", Array.from({ length: first.nHeads }, (_, n) => ({ value: String(n), text: `${n + 1}` })), () => String(api.get().head), (n) => api.set({ head: Number(n) })),
          choice("mask", options({ causal: "causal", none: "none" }), () => (api.get().causal ? "causal" : "none"), (value) => api.set({ causal: value === "causal" })),
          ...Object.entries(BACKWARD_TEXTS).map(([name, [legend, texts]]) =>
            choice(legend, options(texts, (value) => BACKWARD[name][value] !== null), () => api.get()[name], (value) => api.set({ [name]: value })),
          ),
        ].filter(Boolean);
        const gradient = editor(
          "dO",
          tokens,
          components,
          (i, c) => api.get().gradient[i][c],
          (i, c, x) => api.set({ gradient: api.get().gradient.map((row, r) => (r === i ? row.with(c, x) : row)) }),
          "output",
        );
        const preset = (text, rule, row) =>
          button(text, () => {
            gradient.clear();
            api.set({ gradient: tokens.map((_, i) => components.map((_, c) => rule(i, c))), row: row ?? api.get().row });
          });
        const middle = Math.min(1, count - 1);
        const presets = [
          preset(`${tokens.at(-1)}, component 1`, (i, c) => Number(i === count - 1 && c === 0), count - 1),
          preset("all ones", () => 1),
          preset(`${tokens[middle]} only`, (i) => Number(i === middle), middle),
        ];

        // --- the sentence ---
        const say = (state, now, right, forward) => {
          const i = state.row;
          const name = (n) => `\u2068${visible(state.tokens[n])}\u2069`;
          const sum = sumsOf(now)[i];
          const largest = (a, b) => {
            const apart = a.flatMap((row, r) => row.map((x, c) => [Math.abs(x - b[r][c]), r, c]));
            return apart.reduce((best, one) => (one[0] > best[0] ? one : best));
          };
          // What is wrong with a number, and why; of several mistakes at once, the numbers alone.
          const wrong = [];
          if (state.delta !== "right") {
            const what = `row ${i + 1} of dS sums to ${n3(sum)} instead of 0`;
            if (Math.abs(now.delta[i] - right.delta[i]) <= BACKWARD_SMALL) wrong.push([`In row ${i + 1} D is ${n3(right.delta[i])} either way.`, "Choose another row or another dO."]);
            else if (state.delta === "missing") wrong.push([`Without D ${what}.`, "It asks all scores to move together, which softmax never notices."]);
            else wrong.push([`With rowsum(dP) = ${n3(now.delta[i])} for D = ${n3(right.delta[i])} ${what}.`, "D is the mean of dP weighted by P; a plain sum is not."]);
          }
          const instead = (key, title) => {
            const [apart, r, c] = largest(now[key], right[key]);
            return apart > BACKWARD_SMALL ? `${title} of ${name(r)} has ${n3(now[key][r][c])} instead of ${n3(right[key][r][c])} in component ${c + 1}.` : "";
          };
          if (state.keys !== "right") {
            const found = instead("dKey", "dK") || instead("dValue", "dV");
            wrong.push(found ? [found, "Column j of dS belongs to key j, so dS must be turned first; as it is square, leaving that out raises no error."] : ["dS and P look the same when turned.", "Choose another dO."]);
          }
          if (state.scale !== "right") {
            const found = instead("dQuery", "dQ") || instead("dKey", "dK");
            wrong.push(found ? [found, "S was divided by √d_h on the way forward, so its gradient is divided on the way back."] : ["dS is 0, so no scale can change dQ or dK.", "Choose another dO."]);
          }
          if (wrong.length) return wrong.length > 1 ? wrong.map(([what]) => what).join(" ") : wrong[0].join(" ");
          const seen = forward.weights[i].filter((_, j) => forward.visible[i][j]).length;
          if (state.gradient[i].every((x) => x === 0)) return `Nothing arrives at row ${i + 1}: dO is 0 there, so its D and dS are 0. Choose the row that has a gradient.`;
          if (seen === 1) return `Row ${i + 1} sees one key, so P is 1 whatever its score: D = ${n3(now.delta[i])} equals dP, and dS is 0. A row that cannot choose learns nothing about its scores.`;
          const parts = now.dScores[i].flatMap((x, j) => (forward.visible[i][j] ? [`${n3(x)} for ${name(j)}`] : [])).join(", ");
          if (now.dScores[i].every((x) => Math.abs(x) <= BACKWARD_SMALL)) return `Row ${i + 1}: every visible key has the dP of D = ${n3(now.delta[i])}, the weighted mean, so dS is 0: no share would be better spent elsewhere.`;
          return `Row ${i + 1}, ${name(i)}: D = ${n3(now.delta[i])} is the mean of dP, weighted by P. dS is ${parts}; its sum is ${n3(sum)}, as what one key gains the others lose.`;
        };

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-bars-presets", role: "group", "aria-label": "Gradients to try" }, h("span", { "aria-hidden": "true" }, "dO"), presets),
            h("div", { class: "attn-controls" }, controls.map(({ element }) => element)),
            strip,
            pointed,
            h("details", { class: "attn-edit" }, h("summary", {}, "Change dO"), gradient.element),
          ),
          reset: gradient.clear,
          update: (state) => {
            const allowed = state.causal ? masks.causal(count, count) : masks.all(count, count);
            const forward = headSteps(state.query, state.key, state.value, { ...RIGHT, nHeads: state.nHeads, head: state.head, allowed });
            const now = backwardSteps(forward, state.gradient, state);
            const right = backwardSteps(forward, state.gradient);
            const hidden = allowed.map((line) => line.map((sees) => !sees));
            const { row } = state;
            for (const key of ["q", "k", "v", "output"]) panels[key].update({ numbers: forward[key], row: key === "q" || key === "output" ? row : null });
            panels.scaled.update({ numbers: forward.masked, hidden, row });
            panels.weights.update({ numbers: forward.weights, hidden, row });
            panels.gradient.update({ numbers: state.gradient, row });
            panels.dWeights.update({ numbers: now.dWeights, hidden, row, extra: now.delta, extraRight: right.delta });
            panels.dScores.update({ numbers: now.dScores, right: right.dScores, hidden, row, extra: sumsOf(now), extraRight: sumsOf(right) });
            panels.dQuery.update({ numbers: now.dQuery, right: right.dQuery, row });
            panels.dKey.update({ numbers: now.dKey, right: right.dKey });
            panels.dValue.update({ numbers: now.dValue, right: right.dValue });
            controls.forEach((control) => control.update());
            gradient.update();
            const mistakes = Object.keys(BACKWARD).flatMap((name) => BACKWARD[name][state[name]] ?? []);
            const { scores: S, scaled, weights, output } = forward;
            return { sentence: say(state, now, right, forward), result: { scores: S, scaled, weights, output, ...now, rowSums: rowSums(now.dScores), mistakes } };
          },
        };
      },
    }),
};

// The strip: one head from scores to output, with right and wrong settings.

import { RIGHT, SETTINGS, headSteps, mistakesIn } from "./arith.js";
import { choice, editor, frame, h, matrix, number, oneOf, shortText, tableOf, toggle, visible, whole } from "./look.js";

const TEXTS = {
  scale: ["scale", { root_d_h: "1/√d_h", none: "none", root_d: "1/√d", d_h: "1/d_h" }],
  mask: [
    "mask",
    {
      causal: "causal",
      none: "none",
      strictly_past: "strictly past",
      inverted: "inverted",
      after_softmax: "after softmax",
      minus_1e9: "−1e9 for −∞",
    },
  ],
  softmax: ["softmax", { over_keys: "over keys", over_queries: "over queries", twice: "twice" }],
  products: ["product", { right: "QKᵀ", swapped: "KQᵀ" }],
  split: ["heads", { right: "reshape, swap", reshape: "reshape alone" }],
};

// What each mistake shows, in one sentence with the number that gives it away.
const say = (mistake, { state, now, right, name }) => {
  const i = state.row;
  const best = right.weights[i].indexOf(Math.max(...right.weights[i]));
  const n = (x) => number(x, 3);
  const instead = `Row ${i + 1} gives ${name(best)} ${n(now.weights[i][best])} instead of ${n(right.weights[i][best])}`;
  const alone = right.visible[i].filter(Boolean).length < 2;
  const scale = (words) =>
    alone
      ? `Row ${i + 1} sees ${right.visible[i].some(Boolean) ? "one key" : "nothing"}, so no scale can change its weights: choose another row. ${words}`
      : `${instead}. ${words}`;
  const future = () => {
    for (let q = 0; q < now.weights.length; q += 1)
      for (let k = q + 1; k < now.weights[q].length; k += 1)
        if (now.weights[q][k] > 1e-12) return `Row ${q + 1} gives ${n(now.weights[q][k])} to ${name(k)}, which comes later`;
    return "No weight has moved";
  };
  const sum = now.weights[i].reduce((a, b) => a + b, 0);
  const column = now.weights.reduce((a, line) => a + line[best], 0);
  return {
    no_scale: () => scale("The scores were not divided by √d_h."),
    scale_by_model_width: () => scale("They were divided by √d, the width of all heads together."),
    scale_by_width: () => scale("They were divided by d_h itself, not by its root."),
    no_mask: () => `${future()}: nothing hides the future.`,
    strictly_past: () => `Row 1 now sees nothing and sums to ${n(now.weights[0].reduce((a, b) => a + b, 0))}: the diagonal is hidden too.`,
    mask_inverted: () => `${future()}: True was read as “ignore”, so only the future is visible.`,
    mask_after_softmax: () =>
      `Row ${i + 1} sums to ${n(sum)}: the mask was applied after softmax, so nothing renormalised the rows. Look at rows 1 and 2.`,
    minus_1e9_on_empty_row: () =>
      state.emptyRow
        ? `Row 1 may see nothing, yet it gives every key ${n(now.weights[0][0])}: with −1e9 for −∞ it becomes the mean of the hidden values.`
        : "No number has changed: −1e9 works as long as a row sees anything at all. Empty row 1, and look again.",
    softmax_over_queries: () => `Row ${i + 1} sums to ${n(sum)} and column ${best + 1} to ${n(column)}: the softmax ran down the columns.`,
    softmax_twice: () => `${instead}: weights between 0 and 1 went through a second softmax, which flattens them.`,
    query_and_key_swapped: () => `${instead}: the keys ask and the queries answer, so the table of scores is mirrored.`,
    split_without_transpose: () =>
      `${instead}: the heads were split without swapping axes, so each row mixes tokens. Row ${i + 1} is no longer ${name(i)}.`,
  }[mistake]();
};

export default {
  render: (context) =>
    frame(context, {
      name: "strip",
      title: "One head from scores to output, live",
      initial: { tokens: [], query: [], key: [], value: [], nHeads: 1, head: 0, row: 0, step: "", emptyRow: false, ...RIGHT },
      accept: (x) => {
        const nHeads = whole(x.nHeads, 1, 8);
        const count = whole(x.tokens.length, 1, 8);
        const width = whole(x.query[0].length, nHeads, 16);
        const size = [count, width, -1000, 1000];
        if (width % nHeads) throw new Error("width");
        return {
          tokens: x.tokens.map((token) => shortText(token)),
          query: tableOf(x.query, ...size),
          key: tableOf(x.key, ...size),
          value: tableOf(x.value, ...size),
          nHeads,
          head: whole(x.head, 0, nHeads - 1),
          row: whole(x.row, 0, count - 1),
          step: oneOf(x.step, ["", "scores", "scaled", "masked", "weights", "output"]),
          emptyRow: oneOf(x.emptyRow, [true, false]),
          ...Object.fromEntries(Object.keys(SETTINGS).map((name) => [name, oneOf(x[name], Object.keys(SETTINGS[name]))])),
        };
      },
      build: (api, first) => {
        const tokens = first.tokens.map((token, n) => `${n + 1} ${visible(token)}`);
        const width = first.query[0].length / first.nHeads;
        const components = Array.from({ length: width }, (_, c) => `${c + 1}`);
        const panels = {};
        const point = (i, j) => {
          for (const key of ["scores", "scaled", "masked", "weights"]) panels[key].light(i, j);
          pointed.textContent = i === null ? "" : `query ${tokens[i]} asks key ${tokens[j]}`;
        };
        const pointed = h("p", { class: "attn-pointed", "aria-hidden": "true" });
        const pick = (row) => api.set({ row });
        const table = (key, title, more = {}) => {
          panels[key] = matrix({ title, rows: tokens, cols: tokens, kind: "scores", point, pick, ...more });
          return h("div", { class: `attn-panel${first.step === key ? " attn-step" : ""}`, "data-step": key }, panels[key].element);
        };
        const strip = h(
          "div",
          { class: "attn-panels" },
          table("scores", "scores S"),
          table("scaled", "scaled"),
          table("masked", "masked"),
          table("weights", "weights P", { kind: "weights", sums: true }),
          table("output", "output O", { kind: "values", cols: components, colName: "component", point: undefined }),
        );

        const setting = (name, wanted) => {
          const [legend, options] = TEXTS[name];
          return choice(
            legend,
            Object.entries(options).map(([value, text]) => ({ value, text, wrong: SETTINGS[name][value] !== null })),
            () => api.get()[name],
            (value) => api.set({ [name]: value }),
          );
        };
        const controls = [
          choice("query row", tokens.map((text, n) => ({ value: String(n), text })), () => String(api.get().row), (n) => pick(Number(n))),
          first.nHeads > 1 &&
            choice(
              "head",
              Array.from({ length: first.nHeads }, (_, n) => ({ value: String(n), text: `${n + 1}` })),
              () => String(api.get().head),
              (n) => api.set({ head: Number(n) }),
            ),
          ...Object.keys(SETTINGS)
            .filter((name) => name !== "split" || first.nHeads > 1)
            .map((name) => setting(name)),
          toggle("row 1 may see nothing", () => api.get().emptyRow, (emptyRow) => api.set({ emptyRow })),
        ].filter(Boolean);

        // The cells of the chosen head only: the same columns of query, key and value.
        const cell = (which) => [
          (i, c) => api.get()[which][i][api.get().head * width + c],
          (i, c, x) =>
            api.set({
              [which]: api.get()[which].map((row, r) => (r === i ? row.map((y, m) => (m === api.get().head * width + c ? x : y)) : row)),
            }),
        ];
        const editors = [
          editor("Q", tokens, components, ...cell("query"), "query"),
          editor("K", tokens, components, ...cell("key"), "key"),
          editor("V", tokens, components, ...cell("value"), "value"),
        ];

        return {
          element: h(
            "div",
            {},
            strip,
            pointed,
            h("div", { class: "attn-controls" }, controls.map(({ element }) => element)),
            h("details", { class: "attn-edit" }, h("summary", {}, "Change Q, K and V"), h("div", { class: "attn-editors" }, editors.map(({ element }) => element))),
          ),
          reset: () => editors.forEach((one) => one.clear()),
          update: (state) => {
            const options = { ...state, emptyRow: state.emptyRow ? 0 : null };
            const now = headSteps(state.query, state.key, state.value, options);
            const right = headSteps(state.query, state.key, state.value, { ...options, ...RIGHT });
            const hidden = now.visible.map((line) => line.map((sees) => !sees));
            const { row } = state;
            panels.scores.update({ numbers: now.scores, right: right.scores, row });
            panels.scaled.update({ numbers: now.scaled, right: right.scaled, row });
            panels.masked.update({ numbers: now.masked, right: right.masked, hidden: state.mask === "after_softmax" ? null : hidden, row });
            panels.weights.update({ numbers: now.weights, right: right.weights, hidden: hidden.map((line, i) => line.map((dark, j) => dark && now.weights[i][j] === 0)), row });
            panels.output.update({ numbers: now.output, right: right.output, row });
            controls.forEach((control) => control.update());
            editors.forEach((one) => one.update());
            // Isolated, so that a right-to-left token does not turn the sentence round.
            const name = (n) => `\u2068${visible(state.tokens[n])}\u2069`;
            const found = mistakesIn(state);
            const shares = right.weights[row].map((w, j) => `${number(w)} of ${name(j)}`).join(", ");
            const said = found.map((mistake) => say(mistake, { state, now, right, name }));
            const sentence = found.length ? said.join(" ") : `All settings are right. Row ${row + 1}, ${name(row)}, takes ${shares}.`;
            const { scores, scaled, masked, weights, output, lse } = now;
            return { sentence, result: { scores, scaled, masked, weights, output, lse, mistakes: found } };
          },
        };
      },
    }),
};

// Softmax bars: one row from scores to weights in a chosen precision, and the axis of the whole table.

import { PRECISIONS, SETTINGS, columnSums, hide, masks, rowSums, softmax, softmaxSteps, transpose } from "./arith.js";
import { LARGEST, bars, button, choice, frame, h, matrix, newId, number, oneOf, readNumber, shortText, slider, tableOf, toggle, visible, whole, within } from "./look.js";

const BARS_AXES = { over_keys: "over keys", over_queries: "over queries" };
// The largest score whose power a precision holds, to one decimal.
const BARS_ENDS = { float64: "709.7", float32: "88.7", float16: "11.0" };
// A weight is marked as wrong if a table of three decimals would show it.
const BARS_VISIBLE = 5e-4;

const barsNumber = (x, digits = 3) => (Number.isFinite(x) && Math.abs(x) >= 1e5 ? x.toExponential(2).replace("e+", "e") : x > 0 && x < 0.5 * 10 ** -digits ? (x < 1e-99 ? "≈ 0" : x.toExponential(0).replace("-", "−")) : number(x, digits));

export default {
  render: (context) =>
    frame(context, {
      name: "softmax_bars",
      title: "Softmax bars: from scores to weights",
      initial: { tokens: [], row: [], hidden: [], scaled: [], subtract: true, precision: "float64", temperature: 1, shift: 0, softmax: "over_keys" },
      accept: (x) => {
        const count = whole(x.tokens.length, 1, 6);
        const known = ["tokens", "row", "hidden", "scaled", "subtract", "precision", "temperature", "shift", "softmax"];
        if (Object.keys(x).some((key) => !known.includes(key))) throw new Error("unknown");
        const side = whole(x.scaled.length, 1, 6);
        if (!Array.isArray(x.tokens) || !Array.isArray(x.hidden) || x.hidden.length !== count || side !== count) throw new Error("sizes");
        return {
          tokens: x.tokens.map((token) => shortText(token)),
          row: tableOf([x.row], 1, count)[0],
          hidden: x.hidden.map((one) => oneOf(one, [true, false])),
          scaled: tableOf(x.scaled, count, count),
          subtract: oneOf(x.subtract, [true, false]),
          precision: oneOf(x.precision, Object.keys(PRECISIONS)),
          temperature: within(x.temperature, 0.25, 4),
          shift: whole(x.shift, -100, 100),
          softmax: oneOf(x.softmax, Object.keys(BARS_AXES)),
        };
      },
      build: (api, first) => {
        const count = first.tokens.length;
        const tokens = first.tokens.map((token, n) => `${n + 1} ${visible(token)}`);
        const replaced = (list, n, x) => list.map((y, m) => (m === n ? x : y));

        // One line per key: its slider, its number, and whether it is hidden.
        const message = h("p", { class: "attn-message attn-entries-message", role: "status", id: newId("message") });
        const entries = tokens.map((text, n) => {
          const range = h("input", { type: "range", min: -10, max: 10, step: 0.5, "aria-label": `score of key ${text}`, on: { input: () => setScore(n, Number(range.value)) } });
          const field = h("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": `score of key ${text}, as a number`, on: { input: () => typed(n) } });
          const hidden = toggle("−∞", () => api.get().hidden[n], (on) => api.set({ hidden: replaced(api.get().hidden, n, on) }));
          hidden.element.querySelector("input").setAttribute("aria-label", `−∞: key ${text} is hidden`);
          return { range, field, hidden };
        });
        const setScore = (n, x) => {
          entries[n].field.setAttribute("aria-invalid", "false");
          tidy();
          api.set({ row: replaced(api.get().row, n, x) });
        };
        const typed = (n) => {
          const { field } = entries[n];
          const x = readNumber(field.value);
          if (typeof x === "number") return setScore(n, x);
          field.setAttribute("aria-invalid", "true");
          field.setAttribute("aria-describedby", message.id);
          message.textContent = `The score of key ${tokens[n]} ${x}. The last valid number stays.`;
        };
        // The message goes when no field is wrong any more.
        const tidy = () => {
          entries.forEach(({ field }) => field.getAttribute("aria-invalid") !== "true" && field.removeAttribute("aria-describedby"));
          if (!entries.some(({ field }) => field.getAttribute("aria-invalid") === "true")) message.textContent = "";
        };
        const clear = () => {
          entries.forEach(({ field }) => field.setAttribute("aria-invalid", "false"));
          tidy();
        };
        const preset = (text, make) =>
          button(text, () => {
            clear();
            api.set({ hidden: first.hidden.map(() => false), ...make() });
          });
        const presets = [
          preset("row 3", () => ({ row: [...first.row] })),
          preset("[100, 101, 102]", () => ({ row: first.row.map((_, n) => 100 + n) })),
          preset("all equal", () => ({ row: first.row.map(() => 1) })),
          preset("one hidden (−∞)", () => ({ row: [...first.row], hidden: first.row.map((_, n) => n === count - 1) })),
        ];

        const controls = [
          choice(
            "subtract the maximum",
            [
              { value: "yes", text: "yes" },
              { value: "no", text: "no", wrong: true },
            ],
            () => (api.get().subtract ? "yes" : "no"),
            (value) => api.set({ subtract: value === "yes" }),
          ),
          choice("precision", Object.keys(PRECISIONS).map((value) => ({ value, text: value })), () => api.get().precision, (precision) => api.set({ precision })),
        ];
        const sliders = [
          slider("temperature", { min: 0.25, max: 4, step: 0.25, show: (x) => number(x, 2) }, () => api.get().temperature, (temperature) => api.set({ temperature })),
          slider("add a constant", { min: -100, max: 100, step: 1 }, () => api.get().shift, (shift) => api.set({ shift })),
        ];
        const axis = choice(
          "softmax",
          Object.entries(BARS_AXES).map(([value, text]) => ({ value, text, wrong: SETTINGS.softmax[value] !== null })),
          () => api.get().softmax,
          (value) => api.set({ softmax: value }),
        );

        const powers = bars({ title: "e to the score", count, unit: "key", height: 180 });
        const weights = bars({ title: "weights", count, unit: "key", height: 180 });
        const keyLine = h("p", { class: "attn-bars-legend" }, h("span", { class: "attn-bars-sample", "aria-hidden": "true" }), "where the weight would end with the maximum subtracted, in float64");
        const powersTitle = powers.element.querySelector(".attn-bars-title");

        const STEPS = ["score", "÷ temperature, + constant", "minus the maximum", "e to that", "weight"];
        const cells = STEPS.map(() => Array.from({ length: count + 1 }, () => h("td", {})));
        const lines = STEPS.map((text, s) => h("tr", {}, h("th", { scope: "row" }, text), cells[s]));
        const table = h(
          "table",
          { class: "attn-bars-steps" },
          h("caption", {}, "step by step"),
          h("thead", {}, h("tr", {}, h("td", {}), tokens.map((text) => h("th", { scope: "col" }, h("bdi", {}, text))), h("th", { scope: "col", class: "attn-total" }, "sum"))),
          h("tbody", {}, lines),
        );

        const pointed = h("p", { class: "attn-pointed", "aria-hidden": "true" });
        const whole3 = matrix({
          title: "weights of head 1, all queries",
          rows: tokens,
          cols: tokens,
          kind: "weights",
          sums: true,
          point: (i, j) => {
            whole3.light(i, j);
            pointed.textContent = i === null ? "" : `query ${tokens[i]} asks key ${tokens[j]}`;
          },
        });

        const say = (state, now, right) => {
          const all = count === 1 ? "the one power" : "all powers";
          const name = (j) => visible(state.tokens[j]);
          const best = right.weights.indexOf(Math.max(...right.weights));
          if (!state.hidden.includes(false)) return "Every key is hidden: nothing can be shared out, so all weights are 0 and they sum to 0.";
          const worst = now.moved.indexOf(Math.max(...now.moved));
          if (!state.subtract) {
            if (now.powers.includes(Infinity))
              return `e to ${barsNumber(now.moved[worst])} overflows ${state.precision}, which ends at e to ${BARS_ENDS[state.precision]}: ∞ / ∞ is NaN. With the maximum subtracted, the largest power is e to 0 = 1, and ${name(best)} gets ${number(right.weights[best])}.`;
            if (!Number.isFinite(now.total))
              return `Each power fits into ${state.precision}, but their sum overflows: ${name(best)} gets ${number(now.weights[best])} instead of ${number(right.weights[best])}. With the maximum subtracted, the sum is at most ${count}.`;
            if (now.total === 0)
              return `e to ${barsNumber(now.moved[worst])} is too small for ${state.precision}: ${all} round to 0, and 0 / 0 is NaN. With the maximum subtracted, one power is always e to 0 = 1.`;
            const shown = now.weights.findIndex((w, j) => Math.abs(w - right.weights[j]) > BARS_VISIBLE);
            if (shown >= 0)
              return `Powers this large or small are coarse in ${state.precision}: ${name(shown)} gets ${number(now.weights[shown])} instead of ${number(right.weights[shown])}. Subtract the maximum.`;
            return `No weight has changed: the largest power is e to ${number(now.moved[worst])} = ${barsNumber(now.powers[worst])}, and ${state.precision} holds it. Try larger scores or less precision.`;
          }
          const rounding = now.weights.findIndex((w, j) => Math.abs(w - right.weights[j]) > BARS_VISIBLE);
          if (rounding >= 0)
            return `Nothing overflows, but ${state.precision} rounds scores this large: ${name(rounding)} gets ${number(now.weights[rounding])} instead of ${number(right.weights[rounding])}.`;
          const hiddenKey = state.hidden.indexOf(true);
          const tail =
            hiddenKey >= 0
              ? `${name(hiddenKey)} is hidden: e to −∞ is exactly 0.`
              : state.shift
                ? `Adding ${number(state.shift)} to every score changed no weight: the maximum grew by it too.`
                : state.temperature !== 1
                  ? `A temperature of ${number(state.temperature, 2)} ${state.temperature < 1 ? "sharpens" : "flattens"} the row; the order stays.`
                  : `The largest power is e to 0 = 1, so nothing can overflow.`;
          const equal = right.weights.filter((w) => w === right.weights[best]).length === count && count > 1;
          return `${equal ? `Equal scores share equally: ${number(now.weights[best])} each.` : `${name(best)} takes ${number(now.weights[best])} of 1.`} ${tail}`;
        };

        const sayAxis = (state, table) => {
          if (state.softmax === "over_keys") return "";
          const [across, down] = [rowSums(table), columnSums(table)];
          const off = across.map((x) => Math.abs(x - 1)).reduce((m, x, i, all) => (x > all[m] ? i : m), 0);
          return ` In the table, row ${off + 1} sums to ${number(across[off])} and every column to ${number(down[0])}: the softmax ran over the queries.`;
        };

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-bars-presets", role: "group", "aria-label": "Rows to try" }, h("span", { "aria-hidden": "true" }, "try"), presets),
            h(
              "div",
              { class: "attn-bars-entries", role: "group", "aria-label": "Scores of the row" },
              entries.map(({ range, field, hidden }, n) => h("div", { class: "attn-bars-entry" }, h("bdi", {}, tokens[n]), range, field, hidden.element)),
            ),
            message,
            h("div", { class: "attn-controls" }, controls.map(({ element }) => element)),
            h("div", { class: "attn-bars-sliders" }, sliders.map(({ element }) => element)),
            h("div", { class: "attn-bars-charts" }, powers.element, weights.element),
            keyLine,
            h("div", { class: "attn-matrix-box", tabindex: 0, role: "group", "aria-label": "Step by step" }, table),
            h("div", { class: "attn-bars-axis" }, axis.element, whole3.element, pointed),
          ),
          reset: clear,
          update: (state) => {
            const now = softmaxSteps(state.row, state);
            const right = softmaxSteps(state.row, { ...state, subtract: true, precision: "float64" });
            entries.forEach(({ range, field, hidden }, n) => {
              const x = state.row[n];
              range.value = String(x);
              range.setAttribute("aria-valuetext", number(x, 2));
              range.disabled = field.disabled = state.hidden[n];
              hidden.update();
              // A field that somebody is typing in is left alone.
              if (field.getAttribute("aria-invalid") === "true" && document.activeElement === field) return;
              if (readNumber(field.value) !== x) field.value = String(x);
              field.setAttribute("aria-invalid", "false");
            });
            tidy();
            [...controls, ...sliders, axis].forEach((control) => control.update());

            const finite = now.powers.filter(Number.isFinite);
            const texts = (list) => list.map((x) => barsNumber(x));
            const told = (list) => tokens.map((text, j) => `${text} ${barsNumber(list[j])}`).join(", ");
            powersTitle.textContent = state.subtract ? "e to (score − maximum)" : "e to the score";
            powers.update({ values: now.powers, top: Math.max(...finite, 1e-300), names: tokens, texts: texts(now.powers), said: `${powersTitle.textContent}: ${told(now.powers)}.` });
            const ghosts = right.weights.map((w, j) => (Math.abs(w - now.weights[j]) <= BARS_VISIBLE ? null : w));
            keyLine.classList.toggle("attn-blank", ghosts.every((w) => w === null));
            weights.update({
              values: now.weights,
              top: 1,
              names: tokens,
              texts: texts(now.weights),
              ghosts,
              said: `Weights: ${told(now.weights)}.`,
            });

            const sums = ["", "", "", barsNumber(now.total), barsNumber(now.weights.reduce((sum, w) => sum + w, 0))];
            const shownRow = state.row.map((x, j) => (state.hidden[j] ? -Infinity : x));
            [shownRow, now.given, now.moved, now.powers, now.weights].forEach((list, s) => {
              list.forEach((x, j) => {
                const off = s === 4 && !(Math.abs(x - right.weights[j]) <= BARS_VISIBLE);
                cells[s][j].classList.toggle("attn-bars-off", off || Number.isNaN(x) || x === Infinity);
                cells[s][j].replaceChildren(off ? "≠ " : "", barsNumber(x), off ? h("small", {}, h("span", { class: "attn-unseen" }, " instead of "), number(right.weights[j])) : "");
              });
              cells[s][count].textContent = sums[s];
              cells[s][count].classList.toggle("attn-bars-off", sums[s] === "NaN" || sums[s] === "∞");
            });
            lines[2].firstChild.textContent = state.subtract ? `minus the maximum, ${number(now.max)}` : "maximum not subtracted";
            lines[2].classList.toggle("attn-bars-skipped", !state.subtract);

            const visibleCells = masks.causal(count, count);
            const masked = hide(state.scaled, visibleCells);
            const rightTable = softmax(masked, visibleCells).weights;
            const wholeTable = state.softmax === "over_keys" ? rightTable : transpose(softmax(transpose(masked), transpose(visibleCells)).weights);
            whole3.update({ numbers: wholeTable, right: rightTable, hidden: visibleCells.map((line) => line.map((sees) => !sees)) });

            const mistakes = [state.subtract ? null : "no_maximum", SETTINGS.softmax[state.softmax]].filter(Boolean);
            return {
              sentence: say(state, now, right) + sayAxis(state, wholeTable),
              result: {
                // JSON has no ∞ and no NaN, so they go to Python as words.
                ...Object.fromEntries(["given", "moved", "powers", "weights"].map((key) => [key, now[key].map((x) => (Number.isFinite(x) ? x : String(x)))])),
                total: Number.isFinite(now.total) ? now.total : String(now.total),
                lse: Number.isFinite(now.lse) ? now.lse : String(now.lse),
                table: wholeTable,
                rowSums: rowSums(wholeTable),
                columnSums: columnSums(wholeTable),
                mistakes,
              },
            };
          },
        };
      },
    }),
};

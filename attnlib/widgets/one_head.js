// One head of three words: every token's vectors, and every step of the one query that is chosen.

import { headSteps, masks, mix } from "./arith.js";
import { choice, frame, h, newId, number, oneOf, paint, readNumber, short, shortText, tableOf, visible, whole } from "./look.js";

const MASKS = { causal: "causal", bidirectional: "bidirectional", padding: "last token is padding" };
const LONGEST = 24;

// Which key may be seen, by every query. Padding hides the last token from everybody.
export const allowedBy = (mask, n) =>
  ({
    causal: () => masks.causal(n, n),
    bidirectional: () => masks.all(n, n),
    padding: () => masks.padding(n, n, { length: n - 1 }),
  })[mask]();

export const headOf = ({ x, wQ, wK, wV, mask }) => {
  const [query, key, value] = [wQ, wK, wV].map((w) => mix(x, w));
  return { query, key, value, ...headSteps(query, key, value, { allowed: allowedBy(mask, x.length) }) };
};

// What each key gives: its value times its weight.
export const gifts = (weights, value) => weights.map((w, j) => value[j].map((y) => w * y));

// The first component whose printed products do not add up to its printed sum, or null.
export const misprint = (products, sum, digits = 2) => {
  const unit = 10 ** digits;
  const printed = (y) => Math.round(Number(y.toFixed(digits)) * unit);
  for (let c = 0; c < sum.length; c += 1) {
    const added = products.reduce((total, line) => total + printed(line[c]), 0);
    if (added !== printed(sum[c])) return { component: c, added: added / unit, sum: sum[c] };
  }
  return null;
};

// Short vectors are read better without zeros at their ends.
const vector = (line, show = short) => `(${line.map(show).join(", ")})`;
const cents = (y) => number(y, 2);

const put = (place, text) => {
  if (place.textContent !== text) place.textContent = text;
};

const sub = (letter, role) => [h("span", { class: `attn-as-${role}` }, "W", h("sub", {}, letter))];
const roleHead = (letter, role) => h("th", { scope: "col", class: `attn-as-${role}` }, letter);

// What the step came to, for the chosen query. `said` makes a token safe to stand in a sentence.
const conclude = ({ tokens, row, mask }, { weights, visible: seen, output }, said) => {
  const line = weights[row];
  const last = tokens.length - 1;
  const kept = seen[row].filter(Boolean).length;
  const me = said(row);
  const out = vector(output[row], cents);
  if (!kept) return `${me} may see nothing: all weights are 0, and the output is ${out}.`;
  const most = Math.max(...line);
  const best = tokens.map((_, j) => j).filter((j) => seen[row][j] && most - line[j] <= 1e-12);
  const names = best.map(said);
  const joined = names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names[0];
  const start =
    kept === 1
      ? `${me} sees only ${best[0] === row ? "itself" : joined}, with weight 1, so that value passes through unchanged.`
      : `${me} takes most from ${joined}, ${names.length > 1 ? "each with " : "with "}weight ${number(most)}.`;
  const later = line.slice(row + 1).reduce((sum, w) => sum + w, 0);
  let more = "";
  if (mask === "bidirectional" && row < last) more = ` Its weights on later tokens sum to ${number(later)}: right in an encoder, a leak in a decoder.`;
  if (mask === "bidirectional" && row === last) more = " It is the last token, so causal gives the same.";
  if (mask === "padding") more = row === last ? " This query is padding itself: nobody reads its output." : ` The padding, ${said(last)}, gets weight 0.`;
  return `${start}${more} The output ${out} is a vector for position ${row + 1}, not a next-token probability.`;
};

export default {
  render: (context) =>
    frame(context, {
      name: "one_head",
      title: "One head of three words, live",
      initial: { tokens: [], x: [], wQ: [], wK: [], wV: [], row: 0, mask: "causal" },
      accept: (x) => {
        const count = whole(x.tokens.length, 1, 6);
        const width = whole(x.x[0].length, 1, 4);
        const inner = whole(x.wQ[0].length, 1, 4);
        return {
          tokens: x.tokens.map((token) => shortText(token, LONGEST)),
          x: tableOf(x.x, count, width),
          wQ: tableOf(x.wQ, width, inner),
          wK: tableOf(x.wK, width, inner),
          wV: tableOf(x.wV, width, whole(x.wV[0].length, 1, 4)),
          row: whole(x.row, 0, count - 1),
          mask: oneOf(x.mask, Object.keys(MASKS)),
        };
      },
      build: (api, first) => {
        const at = first.tokens.map((_, n) => n);
        const components = first.x[0].map((_, c) => c);
        const root = `÷ √${first.wQ[0].length}`;

        const asks = choice("query token", at.map((n) => ({ value: String(n), text: "" })), () => String(api.get().row), (n) => api.set({ row: Number(n) }));
        const names = [...asks.element.querySelectorAll("label span")];
        const sees = choice(
          "mask",
          Object.entries(MASKS).map(([value, text]) => ({ value, text })),
          () => api.get().mask,
          (mask) => api.set({ mask }),
        );

        // --- the input, which can be changed ---
        const message = h("p", { class: "attn-message", role: "status", id: newId("message") });
        const fields = [];
        // `read` gives [value] or a sentence about what is wrong.
        const field = (name, kind, read, get, set) => {
          const input = h("input", {
            type: "text",
            class: kind,
            autocomplete: "off",
            spellcheck: "false",
            inputmode: kind === "attn-word" ? "text" : "decimal",
            "aria-label": name,
            on: {
              input: () => {
                const got = read(input.value);
                const bad = typeof got === "string";
                input.setAttribute("aria-invalid", String(bad));
                if (bad) input.setAttribute("aria-describedby", message.id);
                else input.removeAttribute("aria-describedby");
                put(message, bad ? `${name} ${got}. The last valid one stays.` : "");
                if (!bad) set(got[0]);
              },
            },
          });
          fields.push({
            clear: () => {
              input.setAttribute("aria-invalid", "false");
              input.removeAttribute("aria-describedby");
            },
            update: () => {
              if (input.getAttribute("aria-invalid") === "true") return;
              const got = read(input.value);
              if (typeof got === "string" || got[0] !== get()) input.value = String(get());
              input.setAttribute("aria-invalid", "false");
            },
          });
          return input;
        };
        const readWord = (text) => {
          if (text === "") return "is empty: wanted a word";
          if ([...text].length > LONGEST) return `has more than ${LONGEST} characters`;
          return [text];
        };
        const readOne = (text) => {
          const y = readNumber(text);
          return typeof y === "string" ? y : [y];
        };
        const changed = (list, n, y) => list.map((old, m) => (m === n ? y : old));
        const wordField = (n) =>
          field(`Text of token ${n + 1}`, "attn-word", readWord, () => api.get().tokens[n], (word) => api.set({ tokens: changed(api.get().tokens, n, word) }));
        const numberField = (n, c) =>
          field(
            `x of token ${n + 1}, component ${c + 1}`,
            "attn-entry",
            readOne,
            () => api.get().x[n][c],
            (y) => api.set({ x: changed(api.get().x, n, changed(api.get().x[n], c, y)) }),
          );
        const inputRows = at.map((n) =>
          h("tr", {}, h("th", { scope: "row" }, `${n + 1}`), h("td", {}, wordField(n)), components.map((c) => h("td", {}, numberField(n, c)))),
        );
        const input = h(
          "table",
          { class: "attn-input" },
          h("caption", {}, "Type your own"),
          h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "token"), h("th", { scope: "colgroup", colspan: components.length }, "input x"))),
          h("tbody", {}, inputRows),
        );

        // --- what the projections make of it ---
        const letters = [
          ["Q", "query"],
          ["K", "key"],
          ["V", "value"],
        ];
        const made = at.map(() => ({ head: h("th", { scope: "row" }), x: h("td", {}), Q: h("td", {}), K: h("td", {}), V: h("td", {}) }));
        const vectorRows = made.map(({ head, x, Q, K, V }) => h("tr", {}, head, x, Q, K, V));
        const vectors = h(
          "table",
          { class: "attn-vectors" },
          h("caption", {}, "All vectors"),
          h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "x"), letters.map(([letter, role]) => roleHead(letter, role)))),
          h("tbody", {}, vectorRows),
        );
        const weightsOf = ([letter, role]) =>
          h(
            "table",
            { class: "attn-projection" },
            h("caption", {}, sub(letter, role)),
            h("tbody", {}, first[`w${letter}`].map((line) => h("tr", {}, line.map((y) => h("td", {}, short(y)))))),
          );
        const projections = h(
          "div",
          { class: "attn-projections" },
          letters.map(weightsOf),
          h(
            "p",
            { class: "attn-aside" },
            "The projections, chosen for easy arithmetic, not learned: ",
            letters.flatMap(([letter, role], n) => [
              n ? ", " : "",
              h("span", { class: "attn-equation" }, h("span", { class: `attn-as-${role}` }, letter), " = x ", sub(letter, role)),
            ]),
            ".",
          ),
        );

        // --- the chosen query, key by key ---
        const pointed = h("p", { class: "attn-pointed", id: newId("pointed") });
        let lit = null;
        const heads = at.map((j) =>
          h("th", {
            scope: "row",
            tabindex: j ? -1 : 0,
            "aria-describedby": pointed.id,
            on: { focus: () => light(j), blur: () => light(null), keydown: (event) => visit(event, j) },
          }),
        );
        const steps = at.map(() => ["score", "scaled", "weight", "V", "gift"].map((step) => h("td", { class: `attn-${step}` })));
        const keyRows = at.map((j) =>
          h("tr", { on: { pointerenter: () => light(j), pointerleave: () => light(null) } }, heads[j], steps[j]),
        );
        const total = h("td", { class: "attn-weight" });
        const output = h("td", { class: "attn-gift attn-as-output" });
        const title = h("caption", {});
        const table = h(
          "table",
          { class: "attn-story" },
          title,
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "key"),
              h("th", { scope: "col" }, h("span", { class: "attn-as-query" }, "Q"), " · ", h("span", { class: "attn-as-key" }, "K")),
              h("th", { scope: "col" }, `${root}, masked`),
              h("th", { scope: "col" }, "weight"),
              roleHead("V", "value"),
              h("th", { scope: "col" }, "weight × ", h("span", { class: "attn-as-value" }, "V")),
            ),
          ),
          h("tbody", {}, keyRows),
          h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "sum"), h("td", {}), h("td", {}), total, h("td", {}), output)),
        );
        const visit = (event, j) => {
          const next = heads[j + ({ ArrowDown: 1, ArrowUp: -1 }[event.key] ?? 0)];
          if (!next || next === event.target) return;
          event.preventDefault();
          event.target.tabIndex = -1;
          next.tabIndex = 0;
          next.focus();
        };
        const remark = h("p", { class: "attn-remark" });

        // Names and lights the two that meet: the chosen query and key j.
        const light = (j) => {
          lit = j;
          const { row, tokens } = api.get();
          const now = headOf(api.get());
          keyRows.forEach((line, n) => line.classList.toggle("attn-lit", n === j));
          made.forEach(({ Q, K, V }, n) => {
            Q.classList.toggle("attn-lit", j !== null && n === row);
            K.classList.toggle("attn-lit", n === j);
            V.classList.toggle("attn-lit", n === j);
          });
          if (j === null) return put(pointed, "Point at a key, or move through the keys with the arrows, to see its dot product.");
          const products = now.query[row].map((y, c) => `${short(y)} × ${short(now.key[j][c])}`).join(" + ");
          return put(pointed, `Query ${row + 1} ${visible(tokens[row])} asks key ${j + 1} ${visible(tokens[j])}: ${products} = ${short(now.scores[row][j])}`);
        };

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-controls" }, asks.element, sees.element),
            h(
              "div",
              { class: "attn-given" },
              h("div", { class: "attn-matrix-box" }, input),
              h("div", { class: "attn-matrix-box", tabindex: 0, role: "group", "aria-label": "All vectors" }, vectors),
            ),
            message,
            projections,
            h("div", { class: "attn-matrix-box", tabindex: 0, role: "group", "aria-label": "The chosen query, key by key" }, table),
            remark,
            pointed,
          ),
          reset: () => {
            put(message, "");
            fields.forEach((one) => one.clear());
          },
          update: (state) => {
            const now = headOf(state);
            const { row, tokens } = state;
            const name = (n) => `${n + 1} ${visible(tokens[n])}`;
            // Isolated, so that a word written from right to left turns nothing else round.
            const said = (n) => `\u2068${visible(tokens[n])}\u2069`;
            asks.update();
            sees.update();
            fields.forEach((one) => one.update());
            names.forEach((place, n) => put(place, name(n)));

            made.forEach(({ head, x, Q, K, V }, n) => {
              if (head.textContent !== name(n)) head.replaceChildren(h("bdi", {}, name(n)));
              put(x, vector(state.x[n]));
              put(Q, vector(now.query[n]));
              put(K, vector(now.key[n]));
              put(V, vector(now.value[n]));
              vectorRows[n].classList.toggle("attn-selected", n === row);
              inputRows[n].classList.toggle("attn-selected", n === row);
            });

            const products = gifts(now.weights[row], now.value);
            const largest = (line) => Math.max(...line.map(Math.abs));
            const hidden = now.visible[row].map((sees) => !sees);
            title.replaceChildren(h("bdi", {}, name(row)), ` asks, ${MASKS[state.mask]}`);
            steps.forEach(([score, scaled, weight, V, gift], j) => {
              if (heads[j].textContent !== name(j)) heads[j].replaceChildren(h("bdi", {}, name(j)));
              const texts = [number(now.scores[row][j]), number(now.masked[row][j]), number(now.weights[row][j])];
              [score, scaled, weight].forEach((cell, n) => {
                const dark = n > 0 && hidden[j];
                const text = `${texts[n]}${dark ? " hidden" : ""}`;
                if (cell.textContent !== text)
                  cell.replaceChildren(h("span", { class: "attn-value" }, texts[n]), ...(dark ? [h("span", { class: "attn-unseen" }, " hidden")] : []));
                cell.classList.toggle("attn-hidden", dark);
              });
              paint(score, "scores", now.scores[row][j], largest(now.scores[row]));
              paint(scaled, "scores", now.masked[row][j], largest(now.scaled[row]));
              paint(weight, "weights", hidden[j] ? NaN : now.weights[row][j]);
              put(V, vector(now.value[j]));
              put(gift, vector(products[j], cents));
            });
            put(total, number(now.weights[row].reduce((sum, w) => sum + w, 0)));
            put(output, vector(now.output[row], cents));
            const off = misprint(products, now.output[row]);
            put(
              remark,
              off
                ? `Rounded after summing: in component ${off.component + 1} the printed products add to ${cents(off.added)}, but the sum is ${number(off.sum, 4)}, printed as ${cents(off.sum)}.`
                : "The printed products add up to the printed sum.",
            );
            light(lit);
            const { query, key, value, scores, scaled, masked, weights, output: outputs } = now;
            return { sentence: conclude(state, now, said), result: { query, key, value, scores, scaled, masked, weights, output: outputs, products, roundedAfter: off !== null } };
          },
        };
      },
    }),
};

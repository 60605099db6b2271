// Online softmax: one row that reads its keys a few at a time, and the three numbers that it keeps.

import { readInBlocks } from "./arith.js";
import { bars, button, choice, editor, frame, h, number, oneOf, shortText, tableOf, toggle, visible, whole, writeCell } from "./look.js";

const ONLINE_DIGITS = 4;
const ONLINE_RULES = {
  right: { text: "e^(m_old − m)", mistake: null },
  wrong_sign: { text: "e^(m − m_old)", mistake: "wrong_sign" },
  no_rescale: { text: "1, nothing rescaled", mistake: "no_rescale" },
  block_max: { text: "e^(m_old − m), m of the block alone", mistake: "max_reset" },
};

const ordersOf = (items) => (items.length < 2 ? [items] : items.flatMap((x, n) => ordersOf(items.toSpliced(n, 1)).map((rest) => [x, ...rest])));

export default {
  render: (context) =>
    frame(context, {
      name: "online_softmax",
      title: "Online softmax, one step at a time",
      initial: { tokens: [], scores: [], values: [], hidden: [], order: [], block: 1, at: 0, rule: "right" },
      accept: (x) => {
        if (![x.tokens, x.hidden, x.order, x.values].every(Array.isArray)) throw new Error("lists");
        const known = ["tokens", "scores", "values", "hidden", "order", "block", "at", "rule"];
        if (Object.keys(x).some((key) => !known.includes(key))) throw new Error("unknown");
        const count = whole(x.tokens.length, 1, 3);
        const width = whole(x.values[0]?.length, 1, 8);
        if (x.hidden.length !== count || x.order.length !== count || new Set(x.order).size !== count) throw new Error("sizes");
        const block = whole(x.block, 1, count);
        return {
          tokens: x.tokens.map((token) => shortText(token)),
          scores: tableOf([x.scores], 1, count)[0],
          values: tableOf(x.values, count, width),
          hidden: x.hidden.map((one) => oneOf(one, [true, false])),
          order: x.order.map((j) => whole(j, 0, count - 1)),
          block,
          at: whole(x.at, 0, Math.ceil(count / block)),
          rule: oneOf(x.rule, Object.keys(ONLINE_RULES)),
        };
      },
      build: (api, first) => {
        const count = first.tokens.length;
        const width = first.values[0].length;
        const tokens = first.tokens.map((token, n) => `${n + 1} ${visible(token)}`);
        const last = (state) => Math.ceil(count / state.block);
        const n4 = (x) => number(x, ONLINE_DIGITS);
        const vector = (list) => `[${list.map(n4).join(", ")}]`;

        // --- the keys: their scores, whether they are hidden, their values ---
        const keys = editor("scores", tokens, ["score"], (i) => api.get().scores[i], (i, _, x) => api.set({ scores: api.get().scores.with(i, x) }), "key");
        const hides = tokens.map((text, j) => {
          const one = toggle("hidden", () => api.get().hidden[j], (on) => api.set({ hidden: api.get().hidden.with(j, on) }));
          one.element.querySelector("span").className = "attn-unseen";
          one.element.querySelector("input").setAttribute("aria-label", `hidden: key ${text}`);
          return one;
        });
        const fields = [...keys.element.querySelectorAll("input")];
        keys.element.querySelectorAll("tbody tr").forEach((line, j) =>
          line.append(h("td", {}, hides[j].element), h("td", { class: "attn-as-value" }, vector(first.values[j]))),
        );
        keys.element.querySelector("tbody").before(
          h("thead", {}, h("tr", {}, ["key", "score", "hide", "value"].map((text) => h("th", { scope: "col" }, text)))),
        );
        keys.element.querySelector("caption").textContent = "The row";
        const preset = (text, make) =>
          button(text, () => {
            keys.clear();
            api.set({ hidden: first.hidden.map(() => false), ...make() });
          });
        const presets = [
          preset("row as given", () => ({ scores: [...first.scores] })),
          preset("all equal", () => ({ scores: first.scores.map(() => 1) })),
          preset("the first is 1000", () => ({ scores: first.scores.with(0, 1000) })),
        ];

        // --- stepping ---
        const go = (change) => () => {
          const state = api.get();
          const at = Math.min(Math.max(change(state), 0), last(state));
          if (at !== state.at) api.set({ at });
        };
        const steps = {
          rewind: button("Rewind", go(() => 0)),
          back: button("← Step back", go(({ at }) => at - 1)),
          step: button("Step →", go(({ at }) => at + 1), { class: "attn-button attn-online-step" }),
          end: button("To the end", go((state) => last(state))),
        };

        const inReach = (changes) => {
          const state = { ...api.get(), ...changes };
          api.set({ ...changes, at: Math.min(state.at, last(state)) });
        };
        const orders = ordersOf(tokens.map((_, j) => j));
        const controls = [
          count > 1 && choice("order", orders.map((order) => ({ value: order.join(""), text: order.map((j) => j + 1).join(" ") })), () => api.get().order.join(""), (value) => api.set({ order: [...value].map(Number) })),
          count > 1 && choice("keys at a time", tokens.map((_, n) => ({ value: String(n + 1), text: String(n + 1) })), () => String(api.get().block), (value) => inReach({ block: Number(value) })),
          choice("factor", Object.entries(ONLINE_RULES).map(([value, { text, mistake }]) => ({ value, text, wrong: mistake !== null })), () => api.get().rule, (rule) => api.set({ rule })),
        ].filter(Boolean);

        // --- the trace: one column per step ---
        const LINES = ["score", "m", "factor", "ℓ", ...first.values[0].map((_, c) => `o ${c + 1}`)];
        const SAID = ["score of the keys read", "m, the largest score so far", "factor for what was gathered", "ℓ, the sum so far", ...first.values[0].map((_, c) => `o, component ${c + 1}`)];
        const heads = Array.from({ length: count + 1 }, (_, s) => h("th", { scope: "col" }, s ? "" : "start"));
        const cells = LINES.map(() => Array.from({ length: count + 2 }, () => h("td", {})));
        const factorHead = h("small", { "aria-hidden": "true" });
        const lineHeads = LINES.map((text, r) => h("th", { scope: "row" }, h("span", { "aria-hidden": "true" }, text), h("span", { class: "attn-unseen" }, SAID[r]), r === 2 ? factorHead : null));
        const table = h(
          "table",
          { class: "attn-matrix attn-trace" },
          h("caption", {}, "What the row keeps, step by step"),
          h("thead", {}, h("tr", {}, h("td", {}), heads, h("th", { scope: "col", class: "attn-as-output" }, "o / ℓ"))),
          h("tbody", {}, LINES.map((text, r) => h("tr", { class: text === "o 1" ? "attn-trace-rule" : "" }, lineHeads[r], cells[r]))),
        );
        const finished = h("span", { class: "attn-value" });
        const finishedRight = h("small", {});
        const counts = bars({ title: "what each key counts for in ℓ", count, unit: "key", role: "key", width: 260, height: 230 });
        const legend = h("p", { class: "attn-bars-legend" }, h("span", { class: "attn-bars-sample", "aria-hidden": "true" }), "where the bar ends with the right factor");

        // --- the sentence ---
        const say = (state, got, right) => {
          const name = (j) => `\u2068${visible(state.tokens[j])}\u2069`;
          if (state.at === 0) return "Nothing is read yet: m = −∞, ℓ = 0 and o = 0. Press Step to read the first key.";
          const [before, now, wanted] = [got[state.at - 1], got[state.at], right[state.at]];
          const all = now.keys.map(name).join(" and ");
          const hiddenAll = now.keys.every((j) => state.hidden[j]);
          const best = wanted.shares.indexOf(Math.max(...wanted.shares));
          const instead = `${name(best)} has ${n4(now.shares[best] / now.sum)} of ℓ instead of ${n4(wanted.shares[best] / wanted.sum)}`;
          const off = now.output.some((x, c) => !(Math.abs(x - wanted.output[c]) <= 1e-9)) || !(now.lse === wanted.lse || Math.abs(now.lse - wanted.lse) <= 1e-9);
          const power = `e^(${n4(wanted.max)} − ${n4(right[state.at - 1].max)})`;
          if (state.rule === "block_max") {
            if (!off && now.max === wanted.max) return `The block's own maximum is the row's so far, ${n4(now.max)}: nothing differs yet. Go on, or choose another order.`;
            if (!off) return `m fell to ${n4(now.max)} and the factor rose to ${n4(now.factor)}, yet o / ℓ is right: any m will do while everything is rescaled to it. Hide ${name(now.keys[0])}, or make a key before it 1000.`;
            if (hiddenAll) return `The block holds nothing visible, so its maximum is −∞: lse is ${n4(now.lse)} instead of ${n4(wanted.lse)}, and the next key will wipe out what was gathered.`;
            if (!Number.isFinite(before.sum)) return `A factor overflowed earlier, and no later one repairs it: ℓ is ${n4(now.sum)} instead of ${n4(wanted.sum)}.`;
            if (!Number.isFinite(now.sum)) return `e^(${n4(before.max)} − ${n4(now.max)}) overflows: ℓ is ${n4(now.sum)} instead of ${n4(wanted.sum)}. With m that never falls, the factor is at most 1.`;
            return `A hidden block had set m to −∞, so what came before it was multiplied by 0: ${instead}.`;
          }
          if (state.rule !== "right") {
            if (!off && !wanted.seen) return "Everything read so far is hidden: there is nothing to rescale, and no mistake to see.";
            if (!off) return `No result has changed: after something was gathered, m has not grown, and a right factor is 1 too. Let a larger score come later.`;
            if (state.rule === "wrong_sign")
              return wanted.factor !== 1 && wanted.factor !== 0
                ? `The sign is turned: ${power} = ${n4(now.factor)} makes what was gathered larger, where ${n4(wanted.factor)} was due. ${instead}.`
                : `The turned sign of an earlier step stays in the sums: ${instead}.`;
            return wanted.factor !== 1
              ? `What was gathered stands under the old m, for the factor ${n4(wanted.factor)} was left out: ${instead}.`
              : `The factor that an earlier step left out stays missing: ${instead}.`;
          }
          const verb = now.keys.length > 1 ? "bring" : "brings";
          const said = () => {
            if (hiddenAll) return `${all} ${now.keys.length > 1 ? "are" : "is"} hidden: e^(−∞) = 0, so nothing changes${now.seen ? `, and ℓ stays ${n4(now.sum)}` : ", and m stays −∞"}.`;
            if (!before.seen) return `${all} ${now.keys.length > 1 ? "come" : "comes"} first: m = ${n4(now.max)}, nothing is there to rescale, and ℓ = ${n4(now.sum)}.`;
            if (now.max > before.max) return `A larger score came: everything gathered so far is multiplied by e^(${n4(before.max)} − ${n4(now.max)}) = ${n4(now.factor)}, and ℓ = ${n4(now.sum)}.`;
            const added = now.keys.reduce((sum, j) => sum + now.shares[j], 0);
            return `${all} ${verb} nothing above m = ${n4(now.max)}: the factor is 1, and ${n4(added)} is added to ℓ, which is ${n4(now.sum)}.`;
          };
          if (state.at < last(state)) return said();
          if (!now.seen) return `${said()} All keys are hidden: the output is 0 and lse = −∞.`;
          return `${said()} All keys are read: o / ℓ = ${vector(now.output)}, lse = ${n4(now.lse)}.`;
        };

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-online-steps", role: "group", "aria-label": "Steps" }, Object.values(steps)),
            h(
              "div",
              { class: "attn-online" },
              h(
                "div",
                {},
                h("div", { class: "attn-matrix-box", tabindex: 0, role: "group", "aria-label": "What the row keeps" }, table),
                h("p", { class: "attn-online-lse" }, "lse = m + ln ℓ = ", finished, finishedRight),
              ),
              h("div", {}, counts.element, legend),
            ),
            h(
              "div",
              { class: "attn-online-set" },
              keys.element,
              h(
                "div",
                {},
                h("div", { class: "attn-bars-presets", role: "group", "aria-label": "Rows to try" }, h("span", { "aria-hidden": "true" }, "try"), presets),
                h("div", { class: "attn-controls" }, controls.map(({ element }) => element)),
              ),
            ),
          ),
          reset: keys.clear,
          update: (state) => {
            const got = readInBlocks(state.scores, state.values, state);
            const right = readInBlocks(state.scores, state.values, { ...state, rule: "right" });
            const total = last(state);
            const done = state.at === total;
            controls.forEach((control) => control.update());
            keys.update();
            hides.forEach((one) => one.update());
            fields.forEach((field, j) => (field.disabled = state.hidden[j]));
            for (const one of [steps.rewind, steps.back]) one.setAttribute("aria-disabled", String(state.at === 0));
            for (const one of [steps.step, steps.end]) one.setAttribute("aria-disabled", String(done));
            factorHead.textContent = { right: "e^(m_old−m)", wrong_sign: "e^(m−m_old)", no_rescale: "1", block_max: "e^(m_old−m)" }[state.rule];

            const write = (cell, x, wanted, shown) => {
              if (shown) writeCell(cell, x, { digits: ONLINE_DIGITS, wanted });
              else {
                cell.className = "";
                delete cell.dataset.key;
                cell.replaceChildren();
              }
            };
            heads.forEach((head, s) => {
              const used = s <= total;
              head.hidden = !used;
              if (s && used) head.replaceChildren(...got[s].keys.flatMap((j, n) => [...(n ? [h("br")] : []), h("bdi", {}, tokens[j])]));
              head.classList.toggle("attn-lit", s === state.at && s > 0);
              const shown = s <= state.at;
              cells.forEach((line) => {
                line[s].hidden = !used;
              });
              if (!used) return;
              const [one, wanted] = [got[s], right[s]];
              const column = cells.map((line) => line[s]);
              column[0].replaceChildren(...(shown ? one.keys.flatMap((j, n) => [...(n ? [h("br")] : []), h("span", { class: "attn-value" }, state.hidden[j] ? "−∞" : n4(state.scores[j]))]) : []));
              column[0].className = shown && one.keys.some((j) => state.hidden[j]) ? "attn-hidden" : "";
              write(column[1], one.max, wanted.max, shown);
              write(column[2], one.factor, wanted.factor, shown && s > 0);
              write(column[3], one.sum, wanted.sum, shown);
              one.out.forEach((x, c) => write(column[4 + c], x, wanted.out[c], shown));
              column.forEach((cell) => cell.classList.toggle("attn-trace-now", s === state.at && s > 0));
            });
            cells.forEach((line, r) => {
              const c = r - 4;
              write(line[count + 1], got[total].output[c], right[total].output[c], done && c >= 0);
              line[count + 1].classList.add("attn-trace-result");
            });
            const [end, endRight] = [got[total].lse, right[total].lse];
            const lseOff = done && !(end === endRight || Math.abs(end - endRight) <= 1e-9);
            finished.textContent = done ? `${lseOff ? "≠ " : ""}${n4(end)}` : "… when all keys are read";
            finished.classList.toggle("attn-bad", lseOff);
            finishedRight.textContent = lseOff ? ` instead of ${n4(endRight)}` : "";

            const [now, wanted] = [got[state.at], right[state.at]];
            const shared = wanted.shares.map((x, j) => (x === now.shares[j] || Math.abs(x - now.shares[j]) <= 1e-9 ? null : x));
            const finite = now.shares.filter(Number.isFinite);
            const texts = now.shares.map((x, j) => (got.slice(1, state.at + 1).some((one) => one.keys.includes(j)) ? n4(x) : ""));
            counts.update({
              values: now.shares,
              top: Math.max(1, ...finite),
              names: tokens,
              texts,
              ghosts: shared,
              said: `What each key counts for in ℓ: ${tokens.map((text, j) => `${text} ${texts[j] || "not read yet"}`).join(", ")}.`,
            });
            legend.classList.toggle("attn-blank", shared.every((x) => x === null));
            const trace = (list) => list.slice(0, state.at + 1).map(({ max, factor, sum, out, keys: read }) => ({ keys: read, max, factor, sum, out }));
            return {
              sentence: say(state, got, right),
              result: {
                steps: trace(got),
                output: done ? got[total].output : null,
                lse: done ? end : null,
                right: done ? { output: right[total].output, lse: endRight } : null,
                mistakes: [ONLINE_RULES[state.rule].mistake].filter(Boolean),
              },
            };
          },
        };
      },
    }),
};

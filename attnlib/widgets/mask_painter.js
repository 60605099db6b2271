// The mask painter: presets and free painting, the other ways to write a mask, and what follows from it.

import { and, columnSums, fill, hide, masks, not, offset, rowSums, softmax } from "./arith.js";
import { button, choice, frame, h, matrix, number, oneOf, slider, svg, tableOf, toggle, whole } from "./look.js";

const MOST = 8;
const PRESETS = {
  nothing: "nothing",
  everything: "everything",
  causal: "causal",
  window: "sliding window",
  prefix: "prefix",
  documents: "documents",
  padding: "padding",
};
const WITH_DIAGONAL = ["causal", "window", "prefix"];
const MAYBE_CAUSAL = ["documents", "padding"];

const hasDiagonal = ({ preset, alsoCausal }) => WITH_DIAGONAL.includes(preset) || (MAYBE_CAUSAL.includes(preset) && alsoCausal);

// Document numbers of the tokens. Query i stands at key position i + offset; before the first key there is none.
const documentIds = ({ nQ, nK, align, starts }) => {
  const o = offset(nQ, nK, align);
  const at = (position) => (position < 0 ? 0 : 1 + starts.filter((start) => start - 1 <= position).length);
  const ids = (n, shift) => Array.from({ length: n }, (_, i) => at(i + shift));
  return { idsQ: ids(nQ, o), idsK: ids(nK, 0) };
};

// The window that a preset asks for: counting only earlier tokens makes it one too wide.
const windowOf = ({ window, counting }) => window + (counting === "earlier" ? 1 : 0);

const presetMask = (state) => {
  const { nQ, nK, align, prefix, length } = state;
  const bare = {
    nothing: () => not(masks.all(nQ, nK)),
    everything: () => masks.all(nQ, nK),
    causal: () => masks.causal(nQ, nK, { align }),
    window: () => masks.sliding_window(nQ, nK, { window: windowOf(state), align }),
    prefix: () => masks.prefix(nQ, nK, { prefix, align }),
    documents: () => masks.document(nQ, nK, documentIds(state)),
    padding: () => masks.padding(nQ, nK, { length }),
  }[state.preset]();
  return MAYBE_CAUSAL.includes(state.preset) && state.alsoCausal ? and(masks.causal(nQ, nK, { align }), bare) : bare;
};

const isFlipped = (flips, i, j) => flips.some(([q, k]) => q === i && k === j);

const paintedMask = (state) => presetMask(state).map((row, i) => row.map((x, j) => x !== isFlipped(state.flips, i, j)));

// The mask as Python: a call where a preset stands as it is, all cells where somebody has painted.
const pythonOf = (state, painted) => {
  const { nQ, nK, preset } = state;
  const align = nQ === nK ? "" : `, align="${state.align}"`;
  const list = (numbers) => `[${numbers.join(", ")}]`;
  const used = [];
  const call = (name, inside) => {
    used.push(name);
    return `${name}(${inside})`;
  };
  const calls = {
    nothing: () => `np.zeros((${nQ}, ${nK}), dtype=bool)`,
    everything: () => `np.ones((${nQ}, ${nK}), dtype=bool)`,
    causal: () => call("causal_mask", `${nQ}, ${nK}${align}`),
    window: () => call("sliding_window_mask", `${nQ}, ${nK}, ${windowOf(state)}${align}`),
    prefix: () => call("prefix_mask", `${nQ}, ${nK}, ${state.prefix}${align}`),
    documents: () => {
      const { idsQ, idsK } = documentIds(state);
      return call("document_mask", String(idsQ) === String(idsK) ? list(idsQ) : `${list(idsQ)}, ${list(idsK)}`);
    },
    padding: () => `${call("padding_mask", `[${state.length}], ${nK}`)}[0, 0]`,
  };
  let lines;
  if (state.flips.length)
    lines = [
      `# ${PRESETS[preset]}, ${state.flips.length} ${state.flips.length === 1 ? "cell" : "cells"} painted over`,
      "mask = np.array([",
      ...painted.map((row) => `    ${list(row.map(Number))},`),
      "], dtype=bool)  # True = may attend",
    ];
  else if (MAYBE_CAUSAL.includes(preset) && state.alsoCausal)
    lines = [
      "# True = may attend",
      `mask = ${call("combine_masks", "")}`.slice(0, -1),
      `    ${calls.causal()},`,
      `    ${calls[preset]()},`,
      ")",
    ];
  else if (preset === "padding") lines = ["# True = may attend", `mask = np.broadcast_to(${calls.padding()}, (${nQ}, ${nK}))`];
  else
    lines = [
      preset === "window" && state.counting === "earlier" ? `# wrong: a window of ${state.window} was wanted` : "# True = may attend",
      `mask = ${calls[preset]()}`,
    ];
  const names = [...used, "to_additive", "to_ignore"].sort().join(", ");
  return [
    lines.some((line) => line.includes("np.")) ? "import numpy as np" : null,
    `from attnlib import ${names}`,
    "",
    ...lines,
    "ignore = to_ignore(mask)  # True = ignore, for nn.MultiheadAttention",
    "added = to_additive(mask)  # 0 or −∞, added to the scores",
  ]
    .filter((line) => line !== null)
    .join("\n");
};

// Which outputs move when token j changes: those that give it a weight.
const leaksOf = (weights) => (weights.length ? weights[0].map((_, j) => weights.flatMap((row, i) => (row[j] !== 0 ? [i] : []))) : []);

const numbered = (where) => {
  const words = where.map((n) => String(n + 1));
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
};
const named = (noun, where) => `${noun}${where.length === 1 ? "" : "s"} ${numbered(where)}`;
const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

// --- parts of the picture --------------------------------------------------------------------------------

const labelled = (letter, n) => Array.from({ length: n }, (_, i) => `${letter}${i + 1}`);

const headRow = (cols) => h("thead", {}, h("tr", {}, h("td", {}), cols.map((text) => h("th", { scope: "col" }, text))));

// The grid to paint on: a table of checkboxes, one of which is in the tab order.
const easel = ({ rows, cols, flip, point }) => {
  const boxes = rows.map((row, i) =>
    cols.map((col, j) =>
      h("input", {
        type: "checkbox",
        tabindex: i || j ? -1 : 0,
        "aria-label": `query ${row} may see key ${col}`,
        on: { change: () => flip(i, j), focus: () => point(i, j), blur: () => point(null, null) },
      }),
    ),
  );
  const cells = boxes.map((line, i) =>
    line.map((box, j) =>
      h(
        "td",
        { on: { pointerenter: () => point(i, j), pointerleave: () => point(null, null) } },
        h("label", { class: "attn-spot" }, box, h("span", { "aria-hidden": "true" })),
      ),
    ),
  );
  const heads = rows.map((text) => h("th", { scope: "row" }, text));
  const table = h(
    "table",
    {
      class: "attn-matrix attn-easel",
      on: {
        keydown: (event) => {
          const i = boxes.findIndex((line) => line.includes(event.target));
          if (i < 0) return;
          const j = boxes[i].indexOf(event.target);
          const to = {
            ArrowDown: [i + 1, j],
            ArrowUp: [i - 1, j],
            ArrowRight: [i, j + 1],
            ArrowLeft: [i, j - 1],
            Home: [i, 0],
            End: [i, cols.length - 1],
          }[event.key];
          if (event.key === "Enter") event.target.click();
          else if (!to) return;
          event.preventDefault();
          if (to) boxes[to[0]]?.[to[1]]?.focus();
        },
        // A click or an arrow moves the one place that the tab key stops at.
        focusin: (event) => boxes.flat().forEach((box) => (box.tabIndex = box === event.target ? 0 : -1)),
      },
    },
    h("caption", {}, "mask: ✓ True = may attend"),
    headRow(cols),
    h("tbody", {}, rows.map((_, i) => h("tr", {}, heads[i], cells[i]))),
  );
  // Cells keep their width up to 3.4rem, and get narrower together on a phone.
  table.style.width = `min(100%, ${cols.length * 3.2 + 2.2}rem)`;
  return {
    element: h("div", { class: "attn-matrix-box" }, table),
    update: ({ mask, right, flips }) =>
      mask.forEach((line, i) =>
        line.forEach((sees, j) => {
          const wrong = sees !== right[i][j];
          boxes[i][j].checked = sees;
          cells[i][j].className = [sees ? "attn-sees" : "attn-hidden", wrong ? "attn-changed" : "", isFlipped(flips, i, j) ? "attn-flipped" : ""].join(" ");
          boxes[i][j].nextSibling.textContent = `${wrong ? "≠ " : ""}${sees ? "✓" : wrong ? "–" : ""}`;
        }),
      ),
    light: (i, j) => {
      heads.forEach((head, n) => head.classList.toggle("attn-lit", n === i));
      table.querySelectorAll("thead th").forEach((head, n) => head.classList.toggle("attn-lit", n === j));
      cells.forEach((line, n) => line.forEach((cell, m) => cell.classList.toggle("attn-lit", n === i && m === j)));
    },
  };
};

// The opposite convention in words. Hatched means hidden here as well: the word is what turns round.
const wordTable = ({ title, rows, cols, point }) => {
  const cells = rows.map((_, i) =>
    cols.map((_, j) => h("td", { on: { pointerenter: () => point(i, j), pointerleave: () => point(null, null) } }, h("span", { class: "attn-value" }))),
  );
  const heads = rows.map((text) => h("th", { scope: "row" }, text));
  const table = h("table", { class: "attn-matrix" }, h("caption", {}, title), headRow(cols), h("tbody", {}, rows.map((_, i) => h("tr", {}, heads[i], cells[i]))));
  return {
    element: h("div", { class: "attn-matrix-box", tabindex: 0, role: "region", "aria-label": title }, table),
    update: (words) =>
      words.forEach((line, i) =>
        line.forEach((x, j) => {
          cells[i][j].firstChild.textContent = x ? "True" : "False";
          cells[i][j].classList.toggle("attn-hidden", x);
          cells[i][j].classList.toggle("attn-sees", !x);
        }),
      ),
    light: (i, j) => {
      heads.forEach((head, n) => head.classList.toggle("attn-lit", n === i));
      table.querySelectorAll("thead th").forEach((head, n) => head.classList.toggle("attn-lit", n === j));
      cells.forEach((line, n) => line.forEach((cell, m) => cell.classList.toggle("attn-lit", n === i && m === j)));
    },
  };
};

const GAP = 46;
const HEIGHT = 176;

// The leak test: a line from each token to each output that moves with it; dashed where the token comes later.
const leakPicture = ({ nQ, nK }) => {
  const width = Math.max(nQ, nK) * GAP + 76;
  const x = (n) => 76 + GAP * (n + 0.5);
  const [top, low] = [24, HEIGHT - 24];
  const lines = svg("g", {});
  const dots = (letter, n, y) =>
    Array.from({ length: n }, (_, i) =>
      svg("g", { class: `attn-dot attn-dot-${letter}` }, svg("circle", { cx: x(i), cy: y, r: 13 }), svg("text", { x: x(i), y: y + 5, "text-anchor": "middle" }, i + 1)),
    );
  const [tokens, outputs] = [dots("k", nK, top), dots("o", nQ, low)];
  const picture = svg(
    "svg",
    { class: "attn-leak", role: "img", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT },
    svg("text", { x: 0, y: top + 5 }, "token"),
    svg("text", { x: 0, y: low + 5 }, "output"),
    lines,
    tokens,
    outputs,
  );
  const arrow = (i, j, late, lit) => {
    const [dx, dy] = [x(i) - x(j), low - top];
    const far = Math.hypot(dx, dy);
    const [ux, uy] = [dx / far, dy / far];
    const [ax, ay] = [x(j) + 14 * ux, top + 14 * uy];
    const [bx, by] = [x(i) - 15 * ux, low - 15 * uy];
    const [cx, cy] = [bx - 8 * ux, by - 8 * uy];
    const place = (...numbers) => numbers.map((n) => n.toFixed(1)).join(" ");
    return svg(
      "g",
      { class: `attn-arrow${late ? " attn-late" : ""}${lit ? " attn-arrow-lit" : ""}` },
      svg("path", { class: "attn-shaft", d: `M${place(ax, ay)}L${place(cx, cy)}` }),
      svg("path", { class: "attn-tip", d: `M${place(bx, by)}L${place(cx - 4 * uy, cy + 4 * ux)}L${place(cx + 4 * uy, cy - 4 * ux)}Z` }),
    );
  };
  let shown = "";
  return {
    element: picture,
    update: (leaks, ahead, token) => {
      const key = JSON.stringify([leaks, ahead, token]);
      if (key === shown) return;
      shown = key;
      const drawn = leaks.flatMap((outputs, j) => outputs.map((i) => ({ i, j, lit: j === token })));
      drawn.sort((a, b) => a.lit - b.lit);
      lines.replaceChildren(...drawn.map(({ i, j, lit }) => arrow(i, j, ahead[j].includes(i), lit)));
      picture.classList.toggle("attn-leak-one", token !== null);
      tokens.forEach((dot, j) => dot.classList.toggle("attn-dot-lit", j === token));
      outputs.forEach((dot, i) => dot.classList.toggle("attn-dot-lit", token !== null && leaks[token].includes(i)));
      const said = leaks.map((outputs, j) => `token ${j + 1} reaches ${outputs.length ? named("output", outputs) : "no output"}`);
      picture.setAttribute("aria-label", `Arrows from tokens to outputs: ${said.join("; ")}.`);
    },
  };
};

const leakTable = (nK, pick) => {
  const buttons = Array.from({ length: nK }, (_, j) => button(`change ${j + 1}`, () => pick(j)));
  const cells = buttons.map(() => [h("td", {}), h("td", {})]);
  return {
    element: h(
      "table",
      { class: "attn-leaks" },
      h("caption", {}, "leak test"),
      h("thead", {}, h("tr", {}, ["token", "outputs that move", "of these, before it"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, buttons.map((one, j) => h("tr", {}, h("th", { scope: "row" }, one), cells[j]))),
    ),
    update: (leaks, ahead, token) =>
      leaks.forEach((outputs, j) => {
        buttons[j].setAttribute("aria-pressed", String(j === token));
        cells[j][0].textContent = outputs.length ? outputs.map((i) => i + 1).join(" ") : "none";
        cells[j][1].textContent = ahead[j].length ? ahead[j].map((i) => i + 1).join(" ") : "–";
      }),
  };
};

// --- the sentence ----------------------------------------------------------------------------------------

const seenBy = (seen) => {
  const counts = seen.map((row) => row.filter(Boolean).length);
  if (counts.every((n) => n === counts[0]))
    return `${counts.length === 1 ? "The one row sees" : `All ${counts.length} rows see`} ${counts[0] ? counted(counts[0], "key") : "nothing"}`;
  return `Rows 1 to ${counts.length} see ${counts.slice(0, -1).join(", ")} and ${counts.at(-1)} keys`;
};

const sayMask = ({ state, mask, seen, weights, before, last, leaks, ahead, empty }) => {
  const said = [];
  const inverted = state.polarity === "ignore";
  if (inverted) {
    const leaky = weights.flatMap((row, i) => row.flatMap((w, j) => (!mask[i][j] && w > 0 ? [[i, j]] : [])));
    const [i, j] = leaky[0] ?? [];
    said.push(
      leaky.length
        ? `True was read as “ignore”: row ${i + 1} gives ${number(weights[i][j])} to key ${j + 1}, which the mask hides.`
        : "True was read as “ignore”, and the mask is True everywhere, so no row sees anything.",
    );
  }
  if (state.preset === "window" && state.counting === "earlier") {
    const counts = presetMask(state).map((row) => row.filter(Boolean).length);
    const i = counts.findIndex((n) => n > state.window);
    const j = i < 0 ? -1 : presetMask(state)[i].indexOf(true);
    const wide = i < 0 ? "" : `A window of ${state.window} counts the current token too. Counting only earlier ones lets row ${i + 1} see ${counted(counts[i], "key")}`;
    if (i < 0) said.push("Only earlier tokens were counted, but the window is longer than the text: no cell has changed.");
    else said.push(!inverted && mask[i][j] ? `${wide}: it gives ${number(weights[i][j])} to key ${j + 1}.` : `${wide}.`);
  }
  if (last && last.i < seen.length && last.j < seen[0].length && !inverted) {
    const { i, j } = last;
    const others = seen[i].filter(Boolean).length - (seen[i][j] ? 1 : 0);
    if (seen[i][j]) said.push(`Query ${i + 1} now sees key ${j + 1} and gives it ${number(weights[i][j])}${others ? "; its other keys shrink in proportion" : ""}.`);
    else said.push(`Query ${i + 1} no longer sees key ${j + 1}: its ${number(before?.[i]?.[j] ?? 0)} ${others ? "goes to the others in proportion" : "goes to nobody"}.`);
  }
  if (state.token !== null) {
    const moves = leaks[state.token];
    const early = ahead[state.token].length ? `; ${named("output", ahead[state.token])} ${ahead[state.token].length === 1 ? "stands" : "stand"} before it` : "";
    said.push(`When token ${state.token + 1} changes, ${moves.length ? `${named("output", moves)} ${moves.length === 1 ? "moves" : "move"}${early}` : "no output moves"}.`);
  }
  said.push(`${seenBy(seen)}${state.equal && seen.at(-1).some(Boolean) ? `; the last row gives each ${number(Math.max(...weights.at(-1)))}` : ""}.`);
  const rich = weights.findLastIndex((row) => row.filter((w) => w > 0).length > 1);
  if (!said.slice(0, -1).length && rich >= 0 && !state.equal) {
    const most = Math.max(...weights[rich]);
    said.push(`Row ${rich + 1} gives its largest weight, ${number(most)}, to key ${weights[rich].indexOf(most) + 1}.`);
  }
  if (empty.length)
    said.push(`${named("Row", empty)} ${empty.length === 1 ? "is" : "are"} empty: ${empty.length === 1 ? "its" : "their"} weights are 0, decided by the mask, not NaN.`);
  if (state.flips.length) said.push(`${counted(state.flips.length, "cell")} ${state.flips.length === 1 ? "differs" : "differ"} from the preset “${PRESETS[state.preset]}”.`);
  return said.join(" ");
};

// --- the widget ------------------------------------------------------------------------------------------

export default {
  render: (context) =>
    frame(context, {
      name: "mask_painter",
      title: "Paint a mask and see what follows",
      flexible: true,
      initial: {
        nQ: 5,
        nK: 5,
        preset: "causal",
        align: "top_left",
        window: 2,
        counting: "with_current",
        prefix: 2,
        starts: [4],
        length: 3,
        alsoCausal: true,
        flips: [],
        polarity: "attend",
        equal: false,
        token: null,
        scores: fill(MOST, MOST, () => 0),
      },
      accept: (x) => {
        const nQ = whole(x.nQ, 1, MOST);
        const nK = whole(x.nK, 1, MOST);
        const list = (items, longest) => {
          if (!Array.isArray(items) || items.length > longest) throw new Error("list");
          return items;
        };
        const starts = list(x.starts, MOST - 1).map((start) => whole(start, 2, MOST));
        if (starts.some((start, n) => n && start <= starts[n - 1])) throw new Error("not rising");
        const flips = list(x.flips, nQ * nK).map((pair) => {
          if (list(pair, 2).length !== 2) throw new Error("pair");
          return [whole(pair[0], 0, nQ - 1), whole(pair[1], 0, nK - 1)];
        });
        if (new Set(flips.map(String)).size < flips.length) throw new Error("twice");
        const clean = {
          nQ,
          nK,
          preset: oneOf(x.preset, Object.keys(PRESETS)),
          align: oneOf(x.align, ["top_left", "bottom_right"]),
          window: whole(x.window, 1, MOST),
          counting: oneOf(x.counting, ["with_current", "earlier"]),
          prefix: whole(x.prefix, 0, nK),
          starts,
          length: whole(x.length, 0, nK),
          alsoCausal: oneOf(x.alsoCausal, [true, false]),
          flips,
          polarity: oneOf(x.polarity, ["attend", "ignore"]),
          equal: oneOf(x.equal, [true, false]),
          token: x.token === null ? null : whole(x.token, 0, nK - 1),
          scores: tableOf(x.scores, MOST, MOST),
        };
        if (Object.keys(x).some((key) => !Object.hasOwn(clean, key))) throw new Error("unknown");
        return clean;
      },
      build: (api) => {
        // The cell that was painted last and the weights before, for the sentence; no part of the state.
        let last = null;
        let before = null;
        let weightsNow = null;
        const set = (changes) => {
          last = null;
          api.set(changes);
        };
        // A preset or its option starts afresh: what was painted belonged to another mask.
        const preset = (changes) => set({ ...changes, flips: [] });
        const resize = (changes) => {
          const { nQ, nK, prefix, length, flips, token } = { ...api.get(), ...changes };
          set({
            ...changes,
            prefix: Math.min(prefix, nK),
            length: Math.min(length, nK),
            flips: flips.filter(([i, j]) => i < nQ && j < nK),
            token: token !== null && token < nK ? token : null,
          });
        };
        const flip = (i, j) => {
          const { flips } = api.get();
          last = { i, j };
          before = weightsNow;
          api.set({ flips: isFlipped(flips, i, j) ? flips.filter(([q, k]) => q !== i || k !== j) : [...flips, [i, j]] });
        };
        const get = (key) => () => api.get()[key];
        const steps = (text, key, min, max, change = preset) => slider(text, { min, max, step: 1, show: (x) => String(x) }, get(key), (x) => change({ [key]: x }));

        const also = () => toggle("and causal", get("alsoCausal"), (alsoCausal) => preset({ alsoCausal }));
        const starts = Array.from({ length: MOST - 1 }, (_, n) =>
          toggle(
            `${n + 2}`,
            () => api.get().starts.includes(n + 2),
            (on) => preset({ starts: [...api.get().starts.filter((start) => start !== n + 2), ...(on ? [n + 2] : [])].sort((a, b) => a - b) }),
          ),
        );
        starts.forEach(({ element }, n) => element.querySelector("input").setAttribute("aria-label", `token ${n + 2} starts a document`));
        const options = {
          window: [
            steps("window", "window", 1, MOST),
            choice(
              "it counts",
              [
                { value: "with_current", text: "the current token too" },
                { value: "earlier", text: "only earlier tokens", wrong: true },
              ],
              get("counting"),
              (counting) => preset({ counting }),
            ),
          ],
          prefix: [steps("prefix length", "prefix", 0, MOST)],
          documents: [
            {
              element: h("fieldset", { class: "attn-choice" }, h("legend", {}, "a document starts at token"), starts.map(({ element }) => element)),
              update: () =>
                starts.forEach((one, n) => {
                  one.update();
                  one.element.hidden = n + 2 > Math.max(api.get().nQ, api.get().nK);
                }),
            },
            also(),
          ],
          padding: [steps("real tokens", "length", 0, MOST), also()],
        };
        const groups = Object.entries(options).map(([name, controls]) => [name, h("div", { class: "attn-controls" }, controls.map(({ element }) => element))]);
        const corner = choice(
          "diagonal from",
          [
            { value: "top_left", text: "top left" },
            { value: "bottom_right", text: "bottom right" },
          ],
          get("align"),
          (align) => preset({ align }),
        );
        const controls = [
          choice("preset", Object.entries(PRESETS).map(([value, text]) => ({ value, text })), get("preset"), (value) => preset({ preset: value })),
          steps("queries", "nQ", 1, MOST, resize),
          steps("keys", "nK", 1, MOST, resize),
          corner,
          choice(
            "True is read as",
            [
              { value: "attend", text: "may attend" },
              { value: "ignore", text: "ignore", wrong: true },
            ],
            get("polarity"),
            (polarity) => set({ polarity }),
          ),
          toggle("equal scores", get("equal"), (equal) => set({ equal })),
        ];
        const [which, queries, keys, , polarity, equal] = controls.map(({ element }) => element);

        const code = h("textarea", { class: "attn-code", "aria-label": "The mask as Python code", readonly: true, spellcheck: "false", wrap: "off" });
        const copied = h("span", { class: "attn-copied", role: "status" });
        const copy = button("Copy code", async () => {
          try {
            await navigator.clipboard.writeText(code.value);
            copied.textContent = "Copied.";
          } catch {
            // Without leave to use the clipboard, the text is selected to be copied by hand.
            code.focus();
            code.select();
            copied.textContent = "Selected: copy it with your keyboard.";
          }
        });

        const hint = "Click a cell of the mask to paint it, or go there with the arrow keys and press Enter.";
        const pointed = h("p", { class: "attn-pointed", "aria-hidden": "true" }, hint);
        const first = h("div", { class: "attn-panels attn-painter-first" });
        const conventions = h("div", { class: "attn-panels" });
        const leak = h("div", { class: "attn-panels attn-painter-leak" });
        let panels = {};
        let seenNow = null;
        let at = [null, null];
        const point = (i, j) => {
          at = [i, j];
          for (const key of ["easel", "weights", "ignore", "added"]) panels[key].light(i, j);
          pointed.textContent =
            i === null ? hint : `query ${i + 1} ${seenNow[i][j] ? "sees" : "does not see"} key ${j + 1}, weight ${number(weightsNow[i][j])}`;
        };
        const pick = (j) => set({ token: api.get().token === j ? null : j });
        let size = "";
        const rebuild = ({ nQ, nK }) => {
          if (size === `${nQ} ${nK}`) return;
          size = `${nQ} ${nK}`;
          const labels = { rows: labelled("q", nQ), cols: labelled("k", nK), point };
          panels = {
            easel: easel({ ...labels, flip }),
            weights: matrix({ ...labels, title: "weights P", kind: "weights", sums: true }),
            ignore: wordTable({ ...labels, title: "ignore, for nn.MultiheadAttention" }),
            added: matrix({ ...labels, title: "added to the scores", kind: "scores" }),
            leak: leakPicture({ nQ, nK }),
            leaks: leakTable(nK, pick),
          };
          const panel = (...keys) => keys.map((key) => h("div", { class: "attn-panel", "data-panel": key }, panels[key].element));
          first.replaceChildren(...panel("easel", "weights"));
          first.firstChild.style.flex = `0 1 ${nK * 3.2 + 3}rem`;
          first.firstChild.style.minWidth = `min(100%, ${nK * 2 + 3}rem)`;
          conventions.replaceChildren(...panel("ignore", "added"));
          leak.replaceChildren(...panel("leak", "leaks"));
          code.rows = nQ + 8;
          at = [null, null];
        };

        return {
          element: h(
            "div",
            { class: "attn-painter" },
            h("div", { class: "attn-controls" }, queries, keys, corner.element),
            h("div", { class: "attn-controls" }, which),
            h("div", { class: "attn-stack" }, groups.map(([, element]) => element)),
            first,
            pointed,
            h("div", { class: "attn-controls attn-after" }, polarity, equal),
            h("details", { class: "attn-after", open: true }, h("summary", {}, "The same mask, written the other ways"), conventions),
            h("details", { class: "attn-after", open: true }, h("summary", {}, "Who notices when a token changes"), leak, h("p", { class: "attn-note" }, "Dashed arrow: the token comes after the output’s own place.")),
            h("details", { class: "attn-after" }, h("summary", {}, "The mask as code"), code, h("p", { class: "attn-actions" }, copy, copied)),
          ),
          reset: () => {
            last = null;
            copied.textContent = "";
          },
          update: (state) => {
            rebuild(state);
            const { nQ, nK } = state;
            const rightMask = paintedMask({ ...state, counting: "with_current" });
            const mask = paintedMask(state);
            const seen = state.polarity === "ignore" ? not(mask) : mask;
            const scaledScores = fill(nQ, nK, (i, j) => (state.equal ? 0 : state.scores[i][j]));
            const weigh = (allowed) => softmax(hide(scaledScores, allowed), allowed).weights;
            const [weights, right] = [weigh(seen), weigh(rightMask)];
            weightsNow = weights;
            seenNow = seen;
            const hidden = not(seen);
            const add = (allowed) => allowed.map((row) => row.map((x) => (x ? 0 : -Infinity)));
            point(...at);
            panels.easel.update({ mask, right: rightMask, flips: state.flips });
            panels.weights.update({ numbers: weights, right, hidden });
            panels.ignore.update(not(mask));
            panels.added.update({ numbers: add(seen), right: add(rightMask), hidden });
            const o = offset(nQ, nK, state.align);
            const leaks = leaksOf(weights);
            const ahead = leaks.map((outputs, j) => outputs.filter((i) => j > i + o));
            panels.leak.update(leaks, ahead, state.token);
            panels.leaks.update(leaks, ahead, state.token);
            const python = pythonOf(state, mask);
            if (code.value !== python) {
              code.value = python;
              copied.textContent = "";
            }
            for (const one of [...controls, ...Object.values(options).flat()]) one.update();
            for (const [name, element] of groups) element.classList.toggle("attn-away", name !== state.preset);
            for (const name of ["prefix", "padding"]) options[name][0].element.querySelector("input").max = nK;
            options.prefix[0].update();
            options.padding[0].update();
            corner.element.disabled = nQ === nK || !(hasDiagonal(state) || state.preset === "documents");
            const empty = seen.flatMap((row, i) => (row.some(Boolean) ? [] : [i]));
            const mistakes = [
              ...(state.preset === "window" && state.counting === "earlier" ? ["window_one_too_wide"] : []),
              ...(state.polarity === "ignore" ? ["mask_inverted"] : []),
            ];
            return {
              sentence: sayMask({ state, mask, seen, weights, before, last, leaks, ahead, empty }),
              result: { mask, seen, weights, rowSums: rowSums(weights), columnSums: columnSums(weights), emptyRows: empty, leaks, code: python, mistakes },
            };
          },
        };
      },
    }),
};

// Heads: 24 numbers that carry their address, split into heads and merged, with the swap of axes or without.

import { addresses, countInPlace, merge, thereAndBack } from "./arith.js";
import { choice, frame, h, oneOf, shortText, visible, whole } from "./look.js";

const TOKENS = 3;
const WIDTH = 8;
const MARKS = ["●", "▲", "■"];
const tokenOf = (x) => Math.floor(x / 10);
const address = (x) => String(x).padStart(2, "0");
const times = (n) => ["never", "once", "twice", "three times"][n];
const listed = (words) => words.join(" and ");

// A table of 3 × 8 numbers whose cells keep their place; only what stands in them changes.
//   rowText(i), place(i, k)   the label of a row; where a cell is, in words
//   point(x)                  called with the number under the pointer or the focus, or null
const board = ({ caption, rowTexts, place, point }) => {
  const shown = Array.from({ length: TOKENS }, () => Array(WIDTH).fill(null));
  const cells = shown.map((line, i) =>
    line.map((_, k) =>
      h("td", {
        tabindex: i === 0 && k === 0 ? 0 : -1,
        on: {
          pointerenter: () => point(shown[i][k]),
          pointerleave: () => point(null),
          focus: () => point(shown[i][k]),
          blur: () => point(null),
        },
      }),
    ),
  );
  const heads = h("tr", {});
  const table = h(
    "table",
    {
      class: "attn-board",
      on: {
        keydown: (event) => {
          const [down, right] =
            { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
          if (!down && !right) return;
          event.preventDefault();
          const i = cells.findIndex((line) => line.includes(event.target));
          const next = cells[i + down]?.[cells[i].indexOf(event.target) + right];
          if (!next) return;
          event.target.tabIndex = -1;
          next.tabIndex = 0;
          next.focus();
        },
      },
    },
    h("caption", {}, caption),
    h("thead", {}, heads),
    h("tbody", {}, cells.map((line, i) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, rowTexts[i])), line))),
  );
  return {
    element: h("div", { class: "attn-matrix-box", tabindex: -1 }, table),
    // Column heads as [text, how many columns].
    head: (corner, groups) =>
      heads.replaceChildren(
        h("td", {}, corner),
        ...groups.map(([text, span]) => h("th", { scope: span > 1 ? "colgroup" : "col", colspan: span }, text)),
      ),
    // A line wherever one head ends and the next begins.
    cutAt: (d) => cells.forEach((line) => line.forEach((cell, k) => cell.classList.toggle("attn-cut", k > 0 && k % d === 0))),
    // `numbers` and `right` as rows of eight.
    update: (numbers, right) =>
      numbers.forEach((line, i) =>
        line.forEach((x, k) => {
          const cell = cells[i][k];
          shown[i][k] = x;
          const wrong = x !== right[i][k];
          cell.dataset.token = tokenOf(x);
          cell.classList.toggle("attn-misplaced", wrong);
          cell.setAttribute(
            "aria-label",
            `${place(i, k)}: ${address(x)}, token ${tokenOf(x)}${wrong ? `, right is ${address(right[i][k])}` : ""}`,
          );
          const key = `${x}|${right[i][k]}`;
          if (cell.dataset.key === key) return;
          cell.dataset.key = key;
          cell.replaceChildren(
            h("span", { class: "attn-token-mark", "aria-hidden": "true" }, MARKS[tokenOf(x)]),
            h("span", { class: "attn-value" }, address(x)),
            h("small", {}, wrong ? `≠ ${address(right[i][k])}` : "\u00a0"),
          );
        }),
      ),
    light: (x) => cells.forEach((line, i) => line.forEach((cell, k) => cell.classList.toggle("attn-lit", x !== null && shown[i][k] === x))),
  };
};

// Heads laid side by side, row by row: what stands left and right of a cut belongs to two heads.

// What a head has lost: "head 2 holds token 2 twice, token 0 has vanished from it".
const lossOf = (head, n) => {
  const counts = Array.from({ length: TOKENS }, (_, t) => head.filter((row) => tokenOf(row[0]) === t).length);
  const most = counts.indexOf(Math.max(...counts));
  const gone = counts.flatMap((count, t) => (count ? [] : [`token ${t}`]));
  return `head ${n + 1} holds token ${most} ${times(counts[most])}, ${listed(gone)} ${gone.length > 1 ? "have" : "has"} vanished from it`;
};

// What a row of the merged grid is made of: "4 numbers of token 0 and 4 of token 1".
const madeOf = (row) =>
  listed(
    Array.from({ length: TOKENS }, (_, t) => [row.filter((x) => tokenOf(x) === t).length, t])
      .filter(([count]) => count)
      .map(([count, t], n) => `${count}${n ? "" : " numbers"} of token ${t}`),
  );

const tell = ({ nHeads, split: there, merge: back }, { heads, merged, x }, inHeads, inMerged) => {
  const all = TOKENS * WIDTH;
  const wrongWay = there === "reshape" || back === "reshape";
  if (nHeads === 1 && wrongWay)
    return `${inMerged} of ${all} numbers are in place. With one head there is nothing to swap, so a reshape alone is right, and no test with one head can catch it. Choose 2 heads.`;
  if (!wrongWay) {
    const d = WIDTH / nHeads;
    const last = d > 1 ? `components ${WIDTH - d} to ${WIDTH - 1}` : `component ${WIDTH - 1}`;
    return `All ${all} numbers are in place, in the heads and after the merge. Each head has one row for each token: row 2 of head ${nHeads} is token 2, ${last}.`;
  }
  const worst = heads.length - 1;
  if (there === "swap") {
    const row = merged.findIndex((line, t) => line.some((y, c) => y !== x[t][c]));
    return `The heads are right, but after the merge only ${inMerged} of ${all} numbers are in place: row ${row} holds ${madeOf(merged[row])}. It should be token ${row} alone.`;
  }
  if (back === "swap")
    return `In the heads only ${inHeads} of ${all} numbers are in place: ${lossOf(heads[worst], worst)}. A right merge cannot repair it: ${inMerged} of ${all} are in place at the end.`;
  return `After the merge ${inMerged} of ${all} numbers are in place again, so a round trip sees nothing. In the heads only ${inHeads} are: ${lossOf(heads[worst], worst)}. A reshape moves no number in memory, it only cuts anew, so the second undoes the first.`;
};

export default {
  render: (context) =>
    frame(context, {
      name: "heads",
      title: "Split into heads and merge, with the swap of axes or without",
      initial: { tokens: ["", "", ""], nHeads: 2, split: "swap", merge: "swap" },
      accept: (x) => {
        Object.keys(x).forEach((key) => oneOf(key, ["tokens", "nHeads", "split", "merge"]));
        if (!Array.isArray(x.tokens) || x.tokens.length !== TOKENS) throw new Error("tokens");
        return {
          tokens: x.tokens.map((token) => shortText(token)),
          nHeads: oneOf(whole(x.nHeads, 1, WIDTH), [1, 2, 4, 8]),
          split: oneOf(x.split, ["swap", "reshape"]),
          merge: oneOf(x.merge, ["swap", "reshape"]),
        };
      },
      build: (api, first) => {
        const x = addresses(TOKENS, WIDTH);
        const range = Array.from({ length: WIDTH }, (_, c) => c);
        const names = first.tokens.map((token, t) => `${t} ${visible(token)}`);
        const headAt = (k) => {
          const d = WIDTH / api.get().nHeads;
          return [Math.floor(k / d), k % d];
        };
        const inHead = (i, k) => {
          const [head, c] = headAt(k);
          return `head ${head + 1}, row ${i}, component ${c}`;
        };
        const pointed = h("p", { class: "attn-pointed", "aria-hidden": "true" });
        const find = (lines, number) => {
          const i = lines.findIndex((line) => line.includes(number));
          return [i, lines[i].indexOf(number)];
        };
        let now = null;
        const point = (number) => {
          boards.forEach((one) => one.light(number));
          if (number === null) {
            pointed.textContent = "Point at a number, or tap it, to follow it.";
            return;
          }
          const inHeads = find(merge(now.heads), number);
          const wanted = find(x, number);
          const [row, column] = find(now.merged, number);
          const off = inHeads.some((at, n) => at !== wanted[n]);
          pointed.textContent =
            `${address(number)} is component ${number % 10} of token ${tokenOf(number)}. It goes to ${inHead(...inHeads)}` +
            `${off ? ` (right: ${inHead(...wanted)})` : ""}, then to row ${row}, column ${column}.`;
        };
        const rows = names.map((_, i) => `row ${i}`);
        const grid = board({ caption: "X, token by token", rowTexts: names, place: (i, k) => `token ${i}, component ${k}`, point });
        const cut = board({ caption: "the heads, side by side", rowTexts: rows, place: inHead, point });
        const joined = board({ caption: "merged", rowTexts: rows, place: (i, k) => `merged, row ${i}, column ${k}`, point });
        const boards = [grid, cut, joined];
        grid.head("component", range.map((c) => [`${c}`, 1]));
        joined.head("column", range.map((c) => [`${c}`, 1]));

        const way = (name, legend, texts) =>
          choice(
            legend,
            [
              { value: "swap", text: texts[0], wrong: false },
              { value: "reshape", text: texts[1], wrong: true },
            ],
            () => api.get()[name],
            (value) => api.set({ [name]: value }),
          );
        const controls = [
          choice(
            "heads",
            [1, 2, 4, 8].map((n) => ({ value: String(n), text: String(n) })),
            () => String(api.get().nHeads),
            (value) => api.set({ nHeads: Number(value) }),
          ),
          way("split", "split", ["reshape, then swap", "reshape alone"]),
          way("merge", "merge", ["swap, then reshape", "reshape alone"]),
        ];
        const counts = { heads: h("p", { class: "attn-count" }), merged: h("p", { class: "attn-count" }) };
        const count = (element, n) => {
          const right = n === TOKENS * WIDTH;
          element.textContent = `${right ? "✓" : "✗"} ${n} of ${TOKENS * WIDTH} in place`;
          element.classList.toggle("attn-bad", !right);
        };
        const stage = (name, table, ...side) =>
          h("div", { class: "attn-stage", "data-stage": name }, h("div", { class: "attn-stage-side" }, side), table.element);

        const checks = ["same shapes", "same 24 numbers", "there and back gives X", "the split by its definition", "the merge by its definition"];
        const verdicts = checks.map(() => h("td", {}));
        const report = h(
          "table",
          { class: "attn-checks" },
          h("caption", {}, "What five checks say"),
          h("tbody", {}, checks.map((text, n) => h("tr", {}, h("th", { scope: "row" }, text), verdicts[n]))),
        );

        let drawn = 0;
        return {
          element: h(
            "div",
            {},
            stage(
              "x",
              grid,
              h("p", {}, "Each number is its own address: 12 is token 1, component 2."),
              h(
                "ul",
                { class: "attn-legend" },
                names.map((name, t) => h("li", {}, h("span", { class: "attn-swatch", "data-token": t, "aria-hidden": "true" }, MARKS[t]), h("bdi", {}, name))),
              ),
            ),
            stage("heads", cut, controls[0].element, controls[1].element, counts.heads),
            stage("merged", joined, controls[2].element, counts.merged),
            h("div", { class: "attn-follow" }, report, pointed),
          ),
          update: (state) => {
            const { nHeads } = state;
            const { right, heads, merged } = thereAndBack(x, nHeads, state);
            now = { heads, merged };
            if (drawn !== nHeads) {
              drawn = nHeads;
              boards.forEach((one) => one.cutAt(WIDTH / nHeads));
              cut.head("head", right.map((_, n) => [`${n + 1}`, WIDTH / nHeads]));
            }
            grid.update(x, x);
            cut.update(merge(heads), merge(right));
            joined.update(merged, x);
            point(null);
            controls.forEach((control) => control.update());
            const inHeads = countInPlace(heads, right);
            const inMerged = countInPlace(merged, x);
            count(counts.heads, inHeads);
            count(counts.merged, inMerged);
            const mergeOnly = thereAndBack(x, nHeads, { split: "swap", merge: state.merge }).merged;
            const all = TOKENS * WIDTH;
            const passed = [true, true, inMerged === all, inHeads === all, countInPlace(mergeOnly, x) === all];
            verdicts.forEach((cell, n) => {
              cell.textContent = passed[n] ? "✓ passes" : "✗ fails";
              cell.classList.toggle("attn-bad", !passed[n]);
            });
            const mistakes = [state.split === "reshape" && "split_without_transpose", state.merge === "reshape" && "merge_without_transpose"].filter(Boolean);
            return {
              sentence: tell(state, { heads, merged, x }, inHeads, inMerged),
              result: { x, heads, merged, inHeads, inMerged, checks: passed, mistakes },
            };
          },
        };
      },
    }),
};

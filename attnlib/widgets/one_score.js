// One score: a query row and a key column, multiplied term by term.

import { dot, mistakesIn, scores, transpose } from "./arith.js";
import { choice, editor, frame, h, matrix, number, oneOf, short, shortText, tableOf, visible, whole } from "./look.js";

export const terms = (a, b) => a.map((x, c) => x * b[c]);

// −1 − 1 + 2 + 2 = 2
export const sumInWords = (products, total) =>
  `${products.map((x, n) => (n === 0 ? short(x) : `${x < 0 ? "−" : "+"} ${short(Math.abs(x))}`)).join(" ")} = ${short(total)}`;

const SIDES = { query: { letter: "Q", words: "queries" }, key: { letter: "K", words: "keys" } };
const WORDS = { right: ["query", "key"], swapped: ["key", "query"] };

const headsOf = (x, count, width) => {
  const n = whole(x.length, 1, 8);
  return Array.from({ length: n }, (_, head) => tableOf(x[head], count, width));
};

const acceptExample = (x) => {
  const rows = whole(x.query[0].length, 1, 8);
  const columns = whole(x.key[0].length, 1, 8);
  const width = whole(x.query[0][0].length, 1, 8);
  const words = (list, count) => {
    if (!Array.isArray(list) || (list.length && list.length !== count)) throw new Error("words");
    return list.map((word) => shortText(word));
  };
  const [query, key] = [headsOf(x.query, rows, width), headsOf(x.key, columns, width)];
  if (query.length !== key.length) throw new Error("heads");
  return { name: shortText(x.name, 40), queries: words(x.queries, rows), keys: words(x.keys, columns), query, key };
};

// How many rows and columns the table of scores has, right or swapped.
const sizeOf = (data, product) => WORDS[product].map((side) => data[side][0].length);

export default {
  render: (context) =>
    frame(context, {
      name: "one_score",
      title: "One score, term by term, live",
      initial: { data: [], example: 0, head: 0, row: 0, column: 0, product: "right" },
      accept: (x) => {
        const data = Array.from({ length: whole(x.data.length, 1, 4) }, (_, n) => acceptExample(x.data[n]));
        const example = whole(x.example, 0, data.length - 1);
        const product = oneOf(x.product, ["right", "swapped"]);
        const [nRows, nColumns] = sizeOf(data[example], product);
        return {
          data,
          example,
          head: whole(x.head, 0, data[example].query.length - 1),
          row: whole(x.row, 0, nRows - 1),
          column: whole(x.column, 0, nColumns - 1),
          product,
        };
      },
      build: (api, first) => {
        // Another example or product may have fewer heads, rows or columns.
        const go = (changes) => {
          const next = { ...api.get(), ...changes };
          const data = next.data[next.example];
          const [nRows, nColumns] = sizeOf(data, next.product);
          api.set({
            ...changes,
            head: Math.min(next.head, data.query.length - 1),
            row: Math.min(next.row, nRows - 1),
            column: Math.min(next.column, nColumns - 1),
          });
        };

        // A plain table of one side: rows of Q as they are, keys stood upright.
        const side = (which, upright, labels, width) => {
          const { letter } = SIDES[which];
          const components = Array.from({ length: width }, (_, c) => `${c + 1}`);
          const [rows, columns] = upright ? [components, labels] : [labels, components];
          const cells = rows.map((_, i) =>
            columns.map((__, j) => h("td", { on: { click: () => go(upright ? { column: j } : { row: i }) } })),
          );
          const rowHeads = rows.map((text) => h("th", { scope: "row" }, h("bdi", {}, text)));
          const columnHeads = columns.map((text) => h("th", { scope: "col" }, h("bdi", {}, text)));
          const heads = upright ? columnHeads : rowHeads;
          return {
            element: h(
              "div",
              { class: `attn-side attn-lights-${which} ${upright ? "attn-upright" : "attn-flat"}` },
              h(
                "table",
                {},
                h("caption", {}, h("span", { class: `attn-as-${which}` }, upright ? `${letter}ᵀ` : letter), upright ? ", one per column" : ", one per row"),
                h("thead", {}, h("tr", {}, h("td", {}), columnHeads)),
                h("tbody", {}, rows.map((_, i) => h("tr", {}, rowHeads[i], cells[i]))),
              ),
            ),
            update: (numbers, n) => {
              const shown = upright ? transpose(numbers) : numbers;
              cells.forEach((line, i) =>
                line.forEach((cell, j) => {
                  cell.textContent = short(shown[i][j]);
                  cell.classList.toggle("attn-on", (upright ? j : i) === n);
                }),
              );
              heads.forEach((head, m) => {
                head.classList.toggle("attn-on", m === n);
                if (m === n) head.setAttribute("aria-current", "true");
                else head.removeAttribute("aria-current");
              });
            },
            light: (n) => heads.forEach((head, m) => head.classList.toggle("attn-lit", m === n)),
          };
        };

        // Everything that depends on the sizes: built once for each example, right and swapped.
        const view = (example, product) => {
          const data = first.data[example];
          const names = WORDS[product]; // whose vectors are the rows, whose the columns
          const width = data.query[0][0].length;
          const lists = names.map((which) => data[SIDES[which].words]);
          const sizes = sizeOf(data, product);
          const labels = lists.map((list, s) =>
            Array.from({ length: sizes[s] }, (_, n) => (list.length ? `${n + 1} ${visible(list[n])}` : `${names[s]} ${n + 1}`)),
          );
          const left = side(names[0], false, labels[0], width);
          const top = side(names[1], true, labels[1], width);
          const letters = names.map((which) => SIDES[which].letter);
          const table = matrix({
            title: `scores S = ${letters[0]}${letters[1]}ᵀ`,
            rows: labels[0],
            cols: labels[1],
            // The swapped table is read as if its rows were queries; so its cells are named by place only.
            rowName: product === "right" && lists[0].length ? "query" : "row",
            colName: product === "right" && lists[1].length ? "key" : "column",
            kind: "scores",
            digits: 2,
            point: (i, j) => {
              left.light(i);
              top.light(j);
              table.light(i, j);
              pointed.textContent = i === null ? "" : `${names[0]} ${i + 1} and ${names[1]} ${j + 1} make the score in row ${i + 1}, column ${j + 1}`;
            },
            pick: (row, column) => go({ row, column }),
          });
          const pointed = h("p", { class: "attn-pointed", "aria-hidden": "true" });
          const owner = (s, n) => (lists[s].length ? `${names[s]} of \u2068${visible(lists[s][n])}\u2069` : `${names[s]} ${n + 1}`);
          const called = (s, n) => `${lists[s].length ? "the " : ""}${owner(s, n)}`;
          const formula = h(
            "p",
            { class: "attn-formula" },
            h("span", { class: "attn-big" }, "S = ", h("b", { class: `attn-as-${names[0]}` }, letters[0]), h("b", { class: `attn-as-${names[1]}` }, letters[1]), "ᵀ"),
            h("span", { class: "attn-sizes" }, `${sizes[0]} × ${width} times ${width} × ${sizes[1]} gives ${sizes[0]} × ${sizes[1]}`),
          );
          const components = Array.from({ length: width }, (_, c) => h("th", { scope: "col" }, `${c + 1}`));
          const line = (role) => ({
            head: h("th", { scope: "row", class: role ? `attn-as-${role}` : "" }),
            cells: Array.from({ length: width }, () => h("td", { class: role ? `attn-on attn-on-${role}` : "attn-product" })),
          });
          const lines = [line(names[0]), line(names[1]), line("")];
          lines[2].head.textContent = "product";
          const total = h("td", { class: "attn-sum" });
          const work = h(
            "table",
            { class: "attn-terms" },
            h("caption", {}, "Term by term"),
            h("thead", {}, h("tr", {}, h("th", { scope: "row" }, "component"), components, h("th", { scope: "col" }, "sum"))),
            h("tbody", {}, lines.map(({ head, cells }, n) => h("tr", {}, head, cells, n === 2 ? total : h("td", {})))),
          );
          const pickers = [
            choice("row", labels[0].map((text, n) => ({ value: String(n), text })), () => String(api.get().row), (n) => go({ row: Number(n) })),
            choice("column", labels[1].map((text, n) => ({ value: String(n), text })), () => String(api.get().column), (n) => go({ column: Number(n) })),
          ];
          const cells = [...table.element.querySelectorAll("tbody tr")].map((tr) => [...tr.cells].slice(1));
          return {
            called,
            element: h(
              "div",
              { class: "attn-view" },
              h("div", { class: "attn-product-box" }, formula, top.element, left.element, h("div", { class: "attn-score-box" }, table.element)),
              pointed,
              h("div", { class: "attn-controls" }, pickers.map(({ element }) => element)),
              h("div", { class: "attn-matrix-box", tabindex: 0, role: "group", "aria-label": "Term by term" }, work),
            ),
            update: (state, numbers, right) => {
              const { row, column } = state;
              const [a, b] = names.map((which) => state.data[example][which][state.head]);
              left.update(a, row);
              top.update(b, column);
              table.update({ numbers, right, row });
              cells.forEach((tr, i) =>
                tr.forEach((cell, j) => {
                  const chosen = i === row && j === column;
                  cell.classList.toggle("attn-chosen", chosen);
                  if (chosen) cell.setAttribute("aria-current", "true");
                  else cell.removeAttribute("aria-current");
                }),
              );
              pickers.forEach((picker) => picker.update());
              const products = terms(a[row], b[column]);
              lines[0].head.replaceChildren(h("bdi", {}, owner(0, row)));
              lines[1].head.replaceChildren(h("bdi", {}, owner(1, column)));
              [a[row], b[column], products].forEach((vector, n) => vector.forEach((x, c) => (lines[n].cells[c].textContent = short(x))));
              total.textContent = short(dot(a[row], b[column]));
            },
          };
        };
        const views = first.data.map((_, n) => ({ right: view(n, "right"), swapped: view(n, "swapped") }));
        const all = views.flatMap((pair) => Object.values(pair));

        const which = choice(
          "example",
          first.data.map(({ name }, n) => ({ value: String(n), text: visible(name).replaceAll("␣", " ") })),
          () => String(api.get().example),
          (n) => go({ example: Number(n) }),
        );
        const product = choice(
          "product",
          [
            { value: "right", text: "QKᵀ" },
            { value: "swapped", text: "KQᵀ", wrong: true },
          ],
          () => api.get().product,
          (value) => go({ product: value }),
        );
        const heads = first.data.map(({ query }) =>
          choice("head", query.map((_, n) => ({ value: String(n), text: `${n + 1}` })), () => String(api.get().head), (n) => go({ head: Number(n) })),
        );
        const editorsOf = ({ query, queries, keys, key }, example) => {
          const components = query[0][0].map((_, c) => `${c + 1}`);
          const names = (list, numbers, word) => numbers.map((_, n) => (list.length ? `${n + 1} ${visible(list[n])}` : `${word} ${n + 1}`));
          const one = (caption, side, rows) =>
            editor(
              caption,
              rows,
              components,
              // Out of sight, another head number may be in force than this example has.
              (i, c) => api.get().data[example][side][Math.min(api.get().head, query.length - 1)][i][c],
              (i, c, x) => {
                const { data, head } = api.get();
                const swap = (list, n, y) => list.map((old, m) => (m === n ? y : old));
                const table = data[example][side];
                const next = swap(table, head, swap(table[head], i, swap(table[head][i], c, x)));
                api.set({ data: swap(data, example, { ...data[example], [side]: next }) });
              },
              side,
            );
          return [one("Q", "query", names(queries, query[0], "query")), one("K", "key", names(keys, key[0], "key"))];
        };
        const editors = first.data.map(editorsOf);
        const editorBoxes = editors.map((pair) => h("div", { class: "attn-editors" }, pair.map(({ element }) => element)));
        let shown = "";

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-controls" }, first.data.length > 1 ? which.element : null, product.element, heads.map(({ element }) => element)),
            all.map(({ element }) => element),
            h("details", { class: "attn-edit" }, h("summary", {}, "Change Q and K"), editorBoxes),
          ),
          reset: () => editors.flat().forEach((one) => one.clear()),
          update: (state) => {
            const data = state.data[state.example];
            const now = views[state.example][state.product];
            const [query, key] = [data.query[state.head], data.key[state.head]];
            const right = scores(query, key);
            const swapped = state.product === "swapped";
            const numbers = swapped ? scores(key, query) : right;
            const square = query.length === key.length;
            // A field with a bad entry keeps it only as long as its own table stays.
            const place = `${state.example} ${state.head}`;
            if (shown !== place && shown !== "") editors.flat().forEach((one) => one.clear());
            shown = place;
            all.forEach((one) => (one.element.hidden = one !== now));
            editorBoxes.forEach((box, n) => (box.hidden = n !== state.example));
            heads.forEach(({ element }, n) => (element.hidden = n !== state.example || state.data[n].query.length < 2));
            [which, product, heads[state.example], ...editors[state.example]].forEach((control) => control.update());
            now.update(state, numbers, square ? right : undefined);

            const { row, column } = state;
            const [a, b] = swapped ? [key, query] : [query, key];
            const products = terms(a[row], b[column]);
            const score = dot(a[row], b[column]);
            const here = `row ${row + 1}, column ${column + 1}`;
            const sum = `${sumInWords(products, score)}: ${here}.`;
            const who = `${now.called(0, row)} meets ${now.called(1, column)}`;
            const kind =
              score !== 0
                ? ""
                : products.some((x) => x !== 0)
                  ? " The products are not all 0: they cancel."
                  : " Every product is 0.";
            let sentence = `${sum} ${who[0].toUpperCase()}${who.slice(1)}.${kind}`;
            if (swapped && square) {
              sentence =
                score === right[row][column]
                  ? `${sum} Here KQᵀ happens to agree with QKᵀ. Still ${who}: choose another cell.`
                  : `${sum} It should be ${short(right[row][column])}: ${who}, so the table is the mirror image of the right one.`;
            } else if (swapped) {
              sentence = `${sum} The shape gives it away: KQᵀ is ${key.length} × ${query.length}, wanted ${query.length} × ${key.length}. Each row is a key, not a query.`;
            }
            return { sentence, result: { scores: numbers, row, column, terms: products, score, mistakes: mistakesIn({ products: state.product }) } };
          },
        };
      },
    }),
};

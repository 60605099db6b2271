// Mixing: three values as points, their weights as masses, the output as the centre of the masses.

import { distanceToHull, mixPoints } from "./arith.js";
import { button, choice, editor, frame, h, newId, number, oneOf, shortText, slider, svg, tableOf, toggle, visible } from "./look.js";

const COUNT = 3;
const REACH = 3;
const HIGHEST = 6;
const SIDE = 400;
// Where the plane's middle is, how far it reaches from there, and the step of its grid; the first view that
// holds everything is taken, so that the picture changes its scale rarely.
const VIEWS = [
  [0.5, 1.1, 0.5],
  [0, 1.6, 0.5],
  [0, 3.4, 1],
  [0, 8, 2],
  [0, 20, 5],
  [0, 60, 20],
];
const WAYS = { softmax: null, after_softmax: "mask_after_softmax", none: "softmax_forgotten" };

const capped = (x) => Math.min(Math.max(Math.round(x * 10) / 10, -REACH), REACH);
const pair = ([x, y], digits = 3) => `(${number(x, digits)}, ${number(y, digits)})`;
const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);

// What happened, in words, with the number that matters.
const tellMix = (state, now, right, outside, name) => {
  const seen = state.hidden.flatMap((dark, j) => (dark ? [] : [j]));
  if (!seen.length) return "Nothing is visible: every weight is 0, and so is the output.";
  const where = outside > 1e-9 ? `It lies ${number(outside)} outside the hull of the visible values.` : "It still lies inside the hull of the visible values, though in the wrong place.";
  if (state.way !== "softmax" && apart(now.output, right.output) <= 1e-9 && Math.abs(now.sum - 1) <= 1e-9)
    return state.way === "after_softmax"
      ? "No number has changed, because nothing is hidden. Hide a token and look again: the weights will no longer sum to 1."
      : "No number has changed: these scores happen to sum to 1 and mix to the same point.";
  if (state.way === "after_softmax")
    return `The weights sum to ${number(now.sum)} instead of 1: the mask came after the softmax. The output is ${pair(now.output)} instead of ${pair(right.output)}, ${number(now.sum)} times as long. ${where}`;
  if (state.way === "none")
    return `The scores themselves were used as weights. They sum to ${number(now.sum)} instead of 1, and the output is ${pair(now.output)} instead of ${pair(right.output)}. ${where}`;
  const top = (list) => seen.reduce((best, j) => (list[j] > list[best] + 1e-12 ? j : best), seen[0]);
  const heavy = top(now.weights);
  const strong = top(now.contributions);
  const centre = `The output is ${pair(now.output)}, the centre of the masses`;
  if (seen.length > 1 && seen.every((j) => Math.abs(now.weights[j] - now.weights[heavy]) <= 1e-12))
    return `${centre}. Every visible weight is ${number(now.weights[heavy])}: the output is the plain mean of the visible values.`;
  if (now.contributions[strong] > now.contributions[heavy] + 1e-12)
    return `${centre}. ${name(heavy)} has the largest weight, ${number(now.weights[heavy])}, but its value is short: it contributes ${number(now.contributions[heavy])}, while ${name(strong)} contributes ${number(now.contributions[strong])}.`;
  return `${centre}. ${name(heavy)} has the largest weight, ${number(now.weights[heavy])}, and contributes most, ${number(now.contributions[heavy])}.`;
};

export default {
  render: (context) =>
    frame(context, {
      name: "mixing",
      title: "Values as points, weights as masses, the output as their centre",
      initial: {
        tokens: ["", "", ""],
        values: Array.from({ length: COUNT }, () => [0, 0]),
        scores: [0, 0, 0],
        hidden: [false, false, false],
        way: "softmax",
        exampleValues: Array.from({ length: COUNT }, () => [0, 0]),
        exampleScores: Array.from({ length: COUNT }, () => [0, 0, 0]),
      },
      accept: (x) => {
        Object.keys(x).forEach((key) => oneOf(key, ["tokens", "values", "scores", "hidden", "way", "exampleValues", "exampleScores"]));
        const three = (list, check) => {
          if (!Array.isArray(list) || list.length !== COUNT) throw new Error("three");
          return list.map((entry) => check(entry));
        };
        return {
          tokens: three(x.tokens, (token) => shortText(token)),
          values: tableOf(x.values, COUNT, 2, -REACH, REACH),
          scores: tableOf([x.scores], 1, COUNT, -HIGHEST, HIGHEST)[0],
          hidden: three(x.hidden, (dark) => oneOf(dark, [true, false])),
          way: oneOf(x.way, Object.keys(WAYS)),
          exampleValues: tableOf(x.exampleValues, COUNT, 2, -REACH, REACH),
          exampleScores: tableOf(x.exampleScores, COUNT, COUNT, -HIGHEST, HIGHEST),
        };
      },
      build: (api, first) => {
        const tokens = first.tokens.map((token, j) => `${j + 1} ${visible(token)}`);
        const each = Array.from({ length: COUNT }, (_, j) => j);

        // --- the plane -----------------------------------------------------------------------------
        let [middle, half, step] = VIEWS[0];
        let held = false;
        const at = ([x, y]) => [(SIDE / 2) * (1 + (x - middle) / half), (SIDE / 2) * (1 - (y - middle) / half)];
        const place = (element, names, point) => at(point).forEach((c, n) => element.setAttribute(names[n], c.toFixed(2)));
        const arrowId = newId("arrow");
        const gridLines = svg("g", { class: "attn-plane-grid" });
        const hull = svg("polygon", { class: "attn-plane-hull" });
        const masses = each.map(() => svg("circle", { class: "attn-plane-mass" }));
        const arrows = each.map(() => svg("line", { class: "attn-plane-arrow", "marker-end": `url(#${arrowId})` }));
        const ghost = svg("circle", { class: "attn-plane-ghost", r: 9 });
        const output = svg("g", { class: "attn-plane-output" }, svg("path", { d: "M0 -9L9 0L0 9L-9 0Z" }), svg("text", { x: 13, y: -9 }, "O"));
        const move = (j, [x, y]) =>
          api.set({ values: api.get().values.map((value, n) => (n === j ? [capped(x), capped(y)] : value)) });
        const points = each.map((j) => {
          const text = svg("text", { class: "attn-plane-label", "aria-hidden": "true", "text-anchor": "middle" }, tokens[j]);
          const handle = svg("circle", { class: "attn-plane-handle", r: 18 });
          const element = svg(
            "g",
            {
              class: "attn-plane-point",
              tabindex: 0,
              role: "slider",
              "aria-label": `value of ${tokens[j]}, move with the arrow keys`,
              "aria-valuemin": -REACH,
              "aria-valuemax": REACH,
            },
            handle,
            svg("circle", { class: "attn-plane-dot", r: 5 }),
          );
          const acts = {
            keydown: (event) => {
              const far = event.shiftKey ? 1 : 0.1;
              const go = { ArrowRight: [far, 0], ArrowLeft: [-far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] }[event.key];
              if (!go) return;
              event.preventDefault();
              const [x, y] = api.get().values[j];
              move(j, [x + go[0], y + go[1]]);
            },
            pointerdown: (event) => {
              if (event.button) return;
              held = true;
              element.setPointerCapture(event.pointerId);
            },
            pointermove: (event) => {
              if (!element.hasPointerCapture(event.pointerId)) return;
              const box = plane.getBoundingClientRect();
              const across = (event.clientX - box.left) / box.width - 0.5;
              const up = 0.5 - (event.clientY - box.top) / box.height;
              move(j, [middle + 2 * half * across, middle + 2 * half * up]);
            },
            lostpointercapture: () => {
              held = false;
              api.set({});
            },
          };
          for (const [event, act] of Object.entries(acts)) element.addEventListener(event, act);
          return { element, text };
        });
        const plane = svg(
          "svg",
          { class: "attn-plane", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "group", "aria-label": "Plane of components 1 and 2; the table below has its numbers" },
          svg("defs", {}, svg("marker", { id: arrowId, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 4.5, markerHeight: 4.5, orient: "auto" }, svg("path", { class: "attn-plane-tip", d: "M0 0L8 4L0 8Z" }))),
          svg("g", { "aria-hidden": "true" }, gridLines, hull, masses, arrows, points.map(({ text }) => text)),
          points.map(({ element }) => element),
          svg("g", { "aria-hidden": "true", class: "attn-plane-front" }, ghost, output),
        );
        let ruled = null;
        const rule = () => {
          if (ruled === half) return;
          ruled = half;
          const lines = [];
          for (let n = Math.ceil((middle - half) / step); n * step < middle + half; n += 1) {
            const [x, y] = at([n * step, n * step]);
            const axis = n === 0 ? "attn-plane-axis" : null;
            lines.push(svg("line", { class: axis, x1: x, x2: x, y1: 0, y2: SIDE }), svg("line", { class: axis, x1: 0, x2: SIDE, y1: y, y2: y }));
            const whole = Number.isInteger(n * step) && n !== 0;
            if (whole) lines.push(svg("text", { x, y: SIDE - 6, "text-anchor": "middle" }, number(n * step)), svg("text", { x: 6, y: y + 4 }, number(n * step)));
          }
          gridLines.replaceChildren(...lines);
        };
        const draw = (state, now, right) => {
          const tips = now.parts.reduce((list, part) => [...list, [list.at(-1)[0] + part[0], list.at(-1)[1] + part[1]]], [[0, 0]]);
          const seen = [...state.values, ...tips, right.output].flat();
          const holds = ([centre, reach]) => seen.every((x) => Math.abs(x - centre) <= 0.92 * reach);
          if (!held) [middle, half, step] = VIEWS.find(holds) ?? VIEWS.at(-1);
          rule();
          const corners = state.values.filter((_, j) => !state.hidden[j]);
          hull.setAttribute("points", corners.map((corner) => at(corner).map((c) => c.toFixed(2)).join(",")).join(" "));
          each.forEach((j) => {
            const value = state.values[j];
            const dark = state.hidden[j];
            place(masses[j], ["cx", "cy"], value);
            // The area is the weight.
            masses[j].setAttribute("r", (34 * Math.sqrt(Math.min(Math.abs(now.weights[j]), 4))).toFixed(2));
            const [x1, y1] = at(tips[j]);
            const [x2, y2] = at(tips[j + 1]);
            arrows[j].setAttribute("x1", x1.toFixed(2));
            arrows[j].setAttribute("y1", y1.toFixed(2));
            arrows[j].setAttribute("x2", x2.toFixed(2));
            arrows[j].setAttribute("y2", y2.toFixed(2));
            arrows[j].classList.toggle("attn-gone", Math.hypot(x2 - x1, y2 - y1) < 1);
            const [cx, cy] = at(value);
            points[j].element.setAttribute("transform", `translate(${cx.toFixed(2)} ${cy.toFixed(2)})`);
            points[j].element.setAttribute("aria-valuenow", value[0]);
            points[j].element.setAttribute("aria-valuetext", `x ${number(value[0])}, y ${number(value[1])}${dark ? ", hidden" : ""}`);
            points[j].element.classList.toggle("attn-dark", dark);
            points[j].text.setAttribute("x", Math.min(Math.max(cx, 40), SIDE - 40).toFixed(2));
            points[j].text.setAttribute("y", (cy > SIDE - 40 ? cy - 14 : cy + 24).toFixed(2));
            points[j].text.textContent = dark ? `${tokens[j]}, hidden` : tokens[j];
          });
          output.setAttribute("transform", `translate(${at(now.output).map((c) => c.toFixed(2)).join(" ")})`);
          place(ghost, ["cx", "cy"], right.output);
          ghost.classList.toggle("attn-gone", apart(now.output, right.output) <= 1e-9);
        };

        // --- the table -----------------------------------------------------------------------------
        const cell = () => {
          const text = h("span", {});
          const bar = h("span", { class: "attn-bar", "aria-hidden": "true" });
          return { element: h("td", {}, text, bar), text, bar };
        };
        const lines = each.map(() => ({ weight: cell(), length: h("td", {}), contribution: cell(), part: h("td", {}) }));
        const foot = { sum: h("td", {}), length: h("td", {}), output: h("td", {}) };
        const table = h(
          "table",
          { class: "attn-mix-table" },
          h("caption", {}, "What the output takes"),
          h(
            "thead",
            {},
            h("tr", {}, h("th", { scope: "col" }, "key"), ["weight", "|v|", "weight·|v|", "weight·v"].map((text) => h("th", { scope: "col" }, text))),
          ),
          h(
            "tbody",
            {},
            lines.map(({ weight, length, contribution, part }, j) =>
              h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, tokens[j])), weight.element, length, contribution.element, part),
            ),
          ),
          h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "sum"), foot.sum, h("td", {}), h("td", {}), foot.output)),
        );
        const fillTable = (now, right, hidden) => {
          const put = ({ text, bar }, x, largest, wrong) => {
            text.textContent = `${wrong === undefined || Math.abs(x - wrong) <= 1e-9 ? "" : "≠\u00a0"}${number(x)}`;
            bar.style.width = `${Math.min(100, (100 * Math.abs(x)) / Math.max(largest, 1e-300)).toFixed(1)}%`;
          };
          // One scale for both columns of bars, so that a weight can be compared with what it moves.
          const most = Math.max(1, ...now.weights.map(Math.abs), ...now.contributions);
          lines.forEach(({ weight, length, contribution, part }, j) => {
            put(weight, now.weights[j], most, right.weights[j]);
            weight.element.classList.toggle("attn-bad", Math.abs(now.weights[j] - right.weights[j]) > 1e-9);
            length.textContent = number(now.lengths[j]);
            put(contribution, now.contributions[j], most);
            part.textContent = pair(now.parts[j]);
            weight.element.parentElement.classList.toggle("attn-dark", hidden[j]);
          });
          const off = Math.abs(now.sum - right.sum) > 1e-9;
          foot.sum.textContent = off ? `≠\u00a0${number(now.sum)}` : number(now.sum);
          foot.sum.classList.toggle("attn-bad", off);
          const astray = apart(now.output, right.output) > 1e-9;
          foot.output.textContent = `${astray ? "≠ " : ""}${pair(now.output)}`;
          foot.output.classList.toggle("attn-bad", astray);
        };

        // --- the controls --------------------------------------------------------------------------
        const values = editor(
          "values (x, y)",
          tokens,
          ["x", "y"],
          (j, c) => api.get().values[j][c],
          (j, c, x) => api.set({ values: api.get().values.map((value, n) => (n === j ? value.map((y, m) => (m === c ? x : y)) : value)) }),
          "value",
          REACH,
        );
        const replaced = (name, j, x) => api.set({ [name]: api.get()[name].map((old, n) => (n === j ? x : old)) });
        const sliders = each.map((j) =>
          slider(
            `score of ${tokens[j]}`,
            { min: -HIGHEST, max: HIGHEST, step: 0.05, show: (x) => number(x, 2) },
            () => api.get().scores[j],
            (x) => replaced("scores", j, x),
          ),
        );
        const hides = each.map((j) => toggle(`hide ${tokens[j]}`, () => api.get().hidden[j], (dark) => replaced("hidden", j, dark)));
        const way = choice(
          "weights",
          [
            { value: "softmax", text: "mask, then softmax" },
            { value: "after_softmax", text: "mask after softmax", wrong: true },
            { value: "none", text: "no softmax", wrong: true },
          ],
          () => api.get().way,
          (value) => api.set({ way: value }),
        );
        const controls = [values, ...sliders, ...hides, way];
        const open = each.map(() => false);
        const start = { way: "softmax", hidden: open };
        const fromRow = (row) => () => {
          const { exampleValues, exampleScores } = api.get();
          preset({ values: exampleValues.map((value) => [...value]), scores: [...exampleScores[row]], hidden: each.map((j) => j > row) });
        };
        const preset = (changes) => {
          values.clear();
          api.set({ ...start, ...changes });
        };
        const presets = [
          ["row 3 of head 1", fromRow(2)],
          ["row 2 of head 1", fromRow(1)],
          ["large weight, short value", () => preset({ values: [[0.1, 0], [2, 1], [-1, 3]], scores: [Math.log(16), Math.log(3), 0] })],
          ["one key takes all", () => preset({ scores: [-HIGHEST, HIGHEST, -HIGHEST] })],
          ["equal", () => preset({ scores: [0, 0, 0] })],
        ].map(([text, act]) => button(text, act));

        return {
          element: h(
            "div",
            {},
            h("div", { class: "attn-actions attn-presets", role: "group", "aria-label": "Presets" }, presets),
            h(
              "div",
              { class: "attn-mixing" },
              h("figure", {}, plane, h("figcaption", {}, "Circles: values, their area the weight. Arrows: weight × value, tip to tail. ◆ O: the output.")),
              h("div", { class: "attn-mixing-side" }, values.element, h("div", { class: "attn-scores" }, sliders.map(({ element }) => element)), h("div", { class: "attn-hides" }, hides.map(({ element }) => element)), way.element),
            ),
            h("div", { class: "attn-matrix-box", tabindex: 0, role: "region", "aria-label": "What the output takes" }, table),
          ),
          reset: () => values.clear(),
          update: (state) => {
            const now = mixPoints(state.scores, state.values, state.hidden, state.way);
            const right = mixPoints(state.scores, state.values, state.hidden);
            const corners = state.values.filter((_, j) => !state.hidden[j]);
            const outside = corners.length ? distanceToHull(now.output, corners) : 0;
            draw(state, now, right);
            fillTable(now, right, state.hidden);
            controls.forEach((control) => control.update());
            const { weights, lengths, contributions, parts, output: mean, sum } = now;
            return {
              sentence: tellMix(state, now, right, outside, (j) => `\u2068${visible(state.tokens[j])}\u2069`),
              result: { weights, lengths, contributions, parts, output: mean, right: right.output, sum, outside, mistakes: [WAYS[state.way]].filter(Boolean) },
            };
          },
        };
      },
    }),
};

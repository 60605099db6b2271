// The roofline: what attention computes and moves at any size, and which limit of a chip holds it back.

import { conventionalFlops, costOf, rooflineOf } from "./arith.js";
import { choice, editor, frame, grouped, h, number, oneOf, shortText, slider, svg, toggle, whole, within, withUnit } from "./look.js";

// Powers of two from 128 to 131072, and one number between each two.
export const LENGTHS = Array.from({ length: 21 }, (_, k) => (k % 2 ? 192 * 2 ** ((k - 1) / 2) : 128 * 2 ** (k / 2)));
const WIDTHS = [32, 64, 128, 256];
const BLOCKS = [64, 128, 256];
const OWN = "your own";
const MOST_OWN = 1e6;
const LEAST_OWN = 0.001;

// Both algorithms on a chip, for all heads together. Chips have TFLOP/s and GB/s.
export const costsOf = ({ n, d, heads, bytes, causal, direction, block, chip }) => {
  const machine = { peak: chip.peak * 1e12, bandwidth: chip.bandwidth * 1e9 };
  const of = (algorithm) => {
    const { loads, stores, flops, memory } = costOf({ n, d, block, causal, direction, algorithm });
    const work = { flops: heads * flops, bytes: heads * bytes * (loads + stores) };
    return { ...work, memory: heads * bytes * memory, ...rooflineOf(work, machine) };
  };
  return {
    plain: of("plain"),
    tiles: of("flash2"),
    convention: heads * conventionalFlops({ n, d, causal, direction }),
    matrix: bytes * n * n,
    machine,
  };
};

// --- the picture -----------------------------------------------------------------------------------------

const [WIDE, HIGH] = [660, 330];
const EDGE = { left: 64, right: 16, top: 30, low: 52 };
const MOST_INTENSITY = 1000;

// Attainable FLOP/s over FLOP per byte, both axes logarithmic: a slope (memory) and a flat roof (arithmetic).
const roofPicture = () => {
  const back = svg("g", { class: "attn-roof-grid" });
  const roof = svg("path", { class: "attn-roof-line" });
  const ridge = svg("line", { class: "attn-roof-ridge" });
  const text = (kind) => svg("text", { class: kind });
  const [slopeName, flatName, ridgeName] = [text("attn-roof-limit"), text("attn-roof-limit"), text("attn-roof-ridge-name")];
  const plainMark = svg("circle", { class: "attn-roof-plain", r: 8 });
  const tilesMark = svg("path", { class: "attn-roof-tiles", d: "M0-10 10 0 0 10-10 0Z" });
  const drops = [svg("line", { class: "attn-roof-drop" }), svg("line", { class: "attn-roof-drop" })];
  const [plainName, tilesName] = [text("attn-roof-plain-name"), text("attn-roof-tiles-name")];
  const picture = svg(
    "svg",
    { class: "attn-roof", role: "img", viewBox: `0 0 ${WIDE} ${HIGH}` },
    back,
    drops,
    ridge,
    roof,
    slopeName,
    flatName,
    ridgeName,
    plainMark,
    tilesMark,
    plainName,
    tilesName,
  );
  const put = (element, attributes, words) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    if (words !== undefined) element.textContent = words;
  };
  return {
    element: picture,
    update: ({ plain, tiles, machine, said }) => {
      picture.setAttribute("aria-label", said);
      const attainable = (intensity) => Math.min(machine.peak, intensity * machine.bandwidth);
      const low = Math.log10(attainable(1)) - 0.3;
      const high = Math.log10(attainable(MOST_INTENSITY)) + 0.3;
      const x = (intensity) => EDGE.left + ((WIDE - EDGE.left - EDGE.right) * Math.log10(Math.min(Math.max(intensity, 1), MOST_INTENSITY))) / 3;
      const y = (rate) => HIGH - EDGE.low - ((HIGH - EDGE.low - EDGE.top) * (Math.log10(rate) - low)) / (high - low);
      const powers = Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, k) => 10 ** (Math.ceil(low) + k));
      back.replaceChildren(
        ...[1, 10, 100, 1000].flatMap((at) => [
          svg("line", { x1: x(at), x2: x(at), y1: EDGE.top, y2: HIGH - EDGE.low }),
          svg("text", { x: x(at), y: HIGH - EDGE.low + 20, "text-anchor": at === 1000 ? "end" : "middle" }, grouped(at)),
        ]),
        ...powers.flatMap((at) => [
          svg("line", { x1: EDGE.left, x2: WIDE - EDGE.right, y1: y(at), y2: y(at) }),
          svg("text", { x: EDGE.left - 8, y: y(at) + 5, "text-anchor": "end" }, withUnit(at, "").trim()),
        ]),
        svg("text", { x: (EDGE.left + WIDE - EDGE.right) / 2, y: HIGH - 8, "text-anchor": "middle" }, "FLOP per byte moved"),
        svg("text", { x: 4, y: 16 }, "attainable FLOP/s"),
      );
      const ridgeAt = Math.min(Math.max(plain.ridge, 1), MOST_INTENSITY);
      const points = [1, ridgeAt, MOST_INTENSITY].map((at) => `${x(at).toFixed(1)} ${y(attainable(at)).toFixed(1)}`);
      put(roof, { d: `M${points.join("L")}` });
      const inside = plain.ridge > 1 && plain.ridge < MOST_INTENSITY;
      ridge.classList.toggle("attn-gone", !inside);
      put(ridge, { x1: x(ridgeAt), x2: x(ridgeAt), y1: y(attainable(ridgeAt)), y2: HIGH - EDGE.low });
      const late = x(ridgeAt) > WIDE - 150;
      put(ridgeName, { x: x(ridgeAt) + (late ? -6 : 6), y: HIGH - EDGE.low - 8, "text-anchor": late ? "end" : "start" }, inside ? `ridge ${written(plain.ridge)}` : "");
      put(slopeName, { x: x(2), y: y(attainable(2)) + 26, "text-anchor": "start" }, plain.ridge > 2 ? `memory: ${withUnit(machine.bandwidth, "B/s")}` : "");
      put(flatName, { x: WIDE - EDGE.right, y: 16, "text-anchor": "end" }, plain.ridge < MOST_INTENSITY / 2 ? `arithmetic: ${withUnit(machine.peak, "FLOP/s")}` : "");
      [
        [plain, plainMark, plainName, drops[0], "plain", [14, 20], "start"],
        [tiles, tilesMark, tilesName, drops[1], "tiles", [-14, -12], "end"],
      ].forEach(([{ intensity }, mark, name, drop, word, [dx, dy], anchor]) => {
        const [px, py] = [x(intensity), y(attainable(intensity))];
        put(mark, { transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})` });
        put(name, { x: px + dx, y: py + dy, "text-anchor": anchor }, `${word} ${written(intensity)}`);
        put(drop, { x1: px, x2: px, y1: py, y2: HIGH - EDGE.low });
      });
    },
  };
};

// --- words -----------------------------------------------------------------------------------------------

// Whole numbers from 10 up, one decimal below.
const written = (x) => (x >= 9.95 ? grouped(Math.round(x)) : number(x, 1));

const ROWS = [
  ["FLOPs done", (x) => withUnit(x.flops, "FLOP")],
  ["bytes moved", (x) => withUnit(x.bytes, "B", 1024)],
  ["FLOP per byte", (x) => written(x.intensity)],
  ["time for the arithmetic", (x) => withUnit(x.arithmetic, "s")],
  ["time for the bytes", (x) => withUnit(x.transfer, "s")],
  ["the limit", (x) => (x.limit === "memory" ? "memory" : "arithmetic")],
  ["least time", (x) => withUnit(x.seconds, "s")],
  ["memory beside in- and outputs", (x) => withUnit(x.memory, "B", 1024)],
];

const sayRoofline = ({ state, plain, tiles }) => {
  const side = ({ intensity, ridge }) => (intensity < ridge ? `below this chip's ridge at ${written(ridge)}` : `above this chip's ridge at ${written(ridge)}`);
  const first = `Plain attention moves ${withUnit(plain.bytes, "B", 1024)} for ${withUnit(plain.flops, "FLOP")}: ${written(plain.intensity)} FLOP per byte, ${side(plain)}: the ${plain.limit} is the limit.`;
  const ratio = plain.bytes / tiles.bytes;
  const forward = state.direction === "forward";
  const size = `In tiles of ${state.block} ${forward ? "queries" : "keys"} ${withUnit(tiles.bytes, "B", 1024)} are moved`;
  if (ratio < 1.05) {
    const again = forward ? `the keys and values are loaded again for every ${state.block} queries` : `the queries and their gradients travel again for every ${state.block} keys`;
    return `${first} ${size}, ${ratio < 0.995 ? "more than that" : "no gain"}: ${again}.${state.block < Math.max(...BLOCKS) ? " Take larger tiles." : ""}`;
  }
  const ends =
    plain.limit === "memory" && tiles.limit === "arithmetic"
      ? "now the arithmetic is the limit"
      : `the ${tiles.limit} is ${plain.limit === tiles.limit ? "still " : ""}the limit`;
  const [before, after] = [plain, tiles].map(({ seconds }) => withUnit(seconds, "s"));
  const time = before === after ? `The least time stays ${before}.` : `The least time goes from ${before} to ${after}.`;
  return `${first} ${size}, ${number(ratio, 1)} times fewer: ${written(tiles.intensity)} FLOP per byte, and ${ends}. ${time}`;
};

export default {
  render: (context) =>
    frame(context, {
      name: "roofline",
      title: "Roofline: what attention computes, what it moves, and which limit holds",
      initial: {
        n: 4096,
        d: 128,
        heads: 1,
        bytes: 2,
        causal: false,
        direction: "forward",
        block: 128,
        chip: OWN,
        own: { peak: 0.1, bandwidth: 20 },
        chips: [],
      },
      accept: (x) => {
        const known = ["n", "d", "heads", "bytes", "causal", "direction", "block", "chip", "own", "chips"];
        if (Object.keys(x).some((key) => !known.includes(key))) throw new Error("unknown");
        if (!Array.isArray(x.chips) || x.chips.length > 8) throw new Error("chips");
        const speeds = ({ peak, bandwidth }) => ({ peak: within(peak, LEAST_OWN, MOST_OWN), bandwidth: within(bandwidth, LEAST_OWN, MOST_OWN) });
        const chips = x.chips.map((chip) => ({ name: shortText(chip.name), ...speeds(chip) }));
        return {
          n: oneOf(x.n, LENGTHS),
          d: oneOf(x.d, WIDTHS),
          heads: whole(x.heads, 1, 128),
          bytes: oneOf(x.bytes, [2, 4]),
          causal: oneOf(x.causal, [true, false]),
          direction: oneOf(x.direction, ["forward", "backward"]),
          block: oneOf(x.block, BLOCKS),
          chip: oneOf(x.chip, [...chips.map(({ name }) => name), OWN]),
          own: speeds(x.own),
          chips,
        };
      },
      build: (api, first) => {
        const from = (key) => () => api.get()[key];
        const plainChoice = (legend, key, values, texts = values.map(String)) =>
          choice(
            legend,
            values.map((value, v) => ({ value: String(value), text: texts[v] })),
            () => String(api.get()[key]),
            (word) => api.set({ [key]: values.find((value) => String(value) === word) }),
          );
        const own = editor(
          OWN,
          ["TFLOP/s", "GB/s"],
          ["number"],
          (i) => [api.get().own.peak, api.get().own.bandwidth][i],
          (i, _, x) => api.set({ chip: OWN, own: { ...api.get().own, [["peak", "bandwidth"][i]]: x } }),
          "",
          MOST_OWN,
          LEAST_OWN,
        );
        const lengths = slider(
          "tokens n",
          { min: 0, max: LENGTHS.length - 1, step: 1, show: (at) => grouped(LENGTHS[at]) },
          () => LENGTHS.indexOf(api.get().n),
          (at) => api.set({ n: LENGTHS[at] }),
        );
        const heads = slider("heads", { min: 1, max: 128, step: 1, show: grouped }, from("heads"), (count) => api.set({ heads: count }));
        const names = [...first.chips.map(({ name }) => name), OWN];
        const choices = [
          plainChoice("head width d", "d", WIDTHS),
          plainChoice("bytes an entry", "bytes", [2, 4]),
          plainChoice("queries per tile", "block", BLOCKS),
          plainChoice("pass", "direction", ["forward", "backward"]),
          toggle("causal", from("causal"), (causal) => api.set({ causal })),
        ];
        const chip = plainChoice("chip", "chip", names);
        const controls = [lengths, heads, ...choices, chip, own];

        const picture = roofPicture();
        const cells = ROWS.map(() => [h("td", {}), h("td", {})]);
        const table = h(
          "table",
          { class: "attn-roof-table" },
          h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "● plain"), h("th", { scope: "col" }, "◆ tiles"))),
          h("tbody", {}, ROWS.map(([text], r) => h("tr", {}, h("th", { scope: "row" }, text), cells[r]))),
        );
        const remark = h("p", { class: "attn-roof-remark" });
        return {
          element: h(
            "div",
            { class: "attn-roof-body" },
            h(
              "div",
              { class: "attn-roof-settings" },
              h("div", { class: "attn-roof-sliders" }, lengths.element, heads.element),
              h("div", { class: "attn-roof-choices" }, choices.map(({ element }) => element)),
              chip.element,
              own.element,
            ),
            h("div", { class: "attn-roof-show" }, picture.element, table, remark),
          ),
          reset: own.clear,
          update: (state) => {
            controls.forEach((control) => control.update());
            const used = state.chip === OWN ? state.own : state.chips.find(({ name }) => name === state.chip);
            const costs = costsOf({ ...state, chip: used });
            const { plain, tiles, convention, matrix, machine } = costs;
            picture.update({
              plain,
              tiles,
              machine,
              said:
                `Roofline, both axes logarithmic: attainable FLOP/s over FLOP per byte. The slope is the memory's ${withUnit(machine.bandwidth, "B/s")}, ` +
                `the flat roof ${withUnit(machine.peak, "FLOP/s")}; they meet at ${written(plain.ridge)} FLOP per byte. Plain attention stands at ${written(plain.intensity)}, ` +
                `tiles at ${written(tiles.intensity)}. The table below has the numbers.`,
            });
            ROWS.forEach(([, show], r) => [plain, tiles].forEach((x, c) => (cells[r][c].textContent = show(x))));
            remark.textContent =
              `One score matrix of one head takes ${withUnit(matrix, "B", 1024)}. Papers count ${withUnit(convention, "FLOP")} for this pass.` +
              (state.bytes === 4 && state.chip !== OWN ? " The chip's peak is for 2-byte numbers: with 4 bytes it is lower." : "");
            return { sentence: sayRoofline({ state, ...costs }), result: { plain, tiles, convention, matrix, mistakes: [] } };
          },
        };
      },
    }),
};

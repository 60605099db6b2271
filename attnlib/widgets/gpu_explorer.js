// The GPU explorer: how fast attention was on a GPU, recorded here or published elsewhere, beside what the chip
// allows. The results come with the page: a link cannot bring others.

import { conventionalFlops, costOf, rooflineOf } from "./arith.js";
import { choice, frame, grouped, h, newId, number, oneOf, short, shortText, slider, svg, toggle, whole, within } from "./look.js";

const TOKENS = Array.from({ length: 11 }, (_, k) => 128 * 2 ** k);
const WIDTHS = [32, 64, 128, 256];
const BLOCKS = [64, 128, 256];
const DTYPES = ["bfloat16", "float16", "float32"];
const DIRECTIONS = ["forward", "backward"];
const ANY_16 = "16-bit";
const TIE = 0.02;

// TFLOP/s, by the papers' count, that a chip allows for attention in tiles: `tiles` if every tile that is loaded
// comes from the memory, `once` if each number comes from there once and the cache keeps it.
export const boundsOf = ({ tokens, d, causal, direction, block, dtype }, { peak, bandwidth }) => {
  if (!peak[dtype]) return { peak: null, tiles: null, once: null };
  const machine = { peak: peak[dtype] * 1e12, bandwidth: bandwidth * 1e9 };
  if (!bandwidth) return { peak: peak[dtype], tiles: null, once: null };
  const size = dtype === "float32" ? 4 : 2;
  const cost = (side) => costOf({ n: tokens, d, block: side, causal, direction, algorithm: "flash2" });
  const { flops } = cost(block);
  const counted = conventionalFlops({ n: tokens, d, causal, direction });
  const bound = ({ loads, stores }) => {
    const line = rooflineOf({ flops, bytes: size * (loads + stores) }, machine);
    return { rate: counted / line.seconds / 1e12, limit: line.limit, intensity: line.intensity };
  };
  // One tile as large as everything loads each number once.
  return { peak: peak[dtype], tiles: bound(cost(block)), once: bound(cost(tokens)) };
};

// Who is fastest at each length, in ranges of neighbouring lengths: [{ from, to, methods }]. Results that differ
// by at most 2 % are level. `lines`: [{ method, rates: Map from tokens to TFLOP/s }].
export const leadersOf = (lines) => {
  const lengths = [...new Set(lines.flatMap(({ rates }) => [...rates.keys()]))].sort((a, b) => a - b);
  const ranges = [];
  for (const tokens of lengths) {
    const here = lines.filter(({ rates }) => rates.has(tokens));
    const best = Math.max(...here.map(({ rates }) => rates.get(tokens)));
    const methods = here.filter(({ rates }) => rates.get(tokens) >= best * (1 - TIE)).map(({ method }) => method);
    const last = ranges.at(-1);
    if (last && String(last.methods) === String(methods)) last.to = tokens;
    else ranges.push({ from: tokens, to: tokens, methods });
  }
  return ranges;
};

// The lengths at which a method is more than 2 % faster than another one, as ranges: [[from, to], ...].
export const aheadOf = (rates, base) => {
  const both = [...rates.keys()].filter((tokens) => base.has(tokens)).sort((a, b) => a - b);
  const ranges = [];
  both.forEach((tokens, n) => {
    if (!(rates.get(tokens) > base.get(tokens) * (1 + TIE))) return;
    const last = ranges.at(-1);
    if (last && last[1] === both[n - 1]) last[1] = tokens;
    else ranges.push([tokens, tokens]);
  });
  return { both, ranges };
};

// --- words -----------------------------------------------------------------------------------------------

const NONE = { name: "", kind: "none", note: "", chip: { peak: {}, bandwidth: null }, methods: [], series: [] };
const setting = ({ tokens, d, causal, direction }) => `T = ${grouped(tokens)}, d = ${d}, ${causal ? "causal" : "not causal"}, ${direction}`;
const rateText = (x) => (x >= 99.5 ? grouped(Math.round(x)) : number(x, x >= 9.95 ? 1 : 2));
const share = (x) => (x >= 0.0995 ? `${Math.round(100 * x)} %` : `${number(100 * x, 1)} %`);
const joined = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]);

const where = ([from, to], lengths) => {
  const [first, last] = [from === lengths[0], to === lengths.at(-1)];
  if (first && last) return lengths.length > 1 ? "at every length" : `at T = ${grouped(from)}`;
  if (from === to) return `at T = ${grouped(from)}`;
  if (first) return `up to T = ${grouped(to)}`;
  return last ? `from T = ${grouped(from)} up` : `from T = ${grouped(from)} to ${grouped(to)}`;
};

// A figure above the bound for tiles cannot have loaded them all from the memory.
const sayBound = ({ bounds, best, forward, block }) => {
  const { tiles } = bounds;
  if (!tiles) return bounds.peak ? " The memory's speed of this chip is not known here: it has no bound but its peak." : " This chip's peak is not known here.";
  const inTiles = `tiles of ${block} ${forward ? "queries" : "keys"}`;
  const start = ` If every tile came from the memory, ${inTiles} would allow ${rateText(tiles.rate)} TFLOP/s (the ${tiles.limit} is the limit)`;
  if (!best) return `${start}.`;
  return best.rate > tiles.rate
    ? `${start}: ${best.method} is above that, so it used larger tiles or found many of them in the L2 cache.`
    : `${start}: ${best.method} reaches ${share(best.rate / tiles.rate)} of it.`;
};

// --- the pictures ----------------------------------------------------------------------------------------

const put = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
};

// One bar a line, from 0 to the chip's peak; limits are outlines.
const barPicture = () => {
  const element = h("div", { class: "attn-gpu-bars", role: "img" });
  return {
    element,
    update: ({ bars, top, said, apart }) => {
      element.setAttribute("aria-label", said);
      element.classList.toggle("attn-gpu-apart", apart);
      element.replaceChildren(
        ...bars.flatMap(({ text, rate, limit }) => {
          const bar = h("span", { class: limit ? "attn-gpu-limit" : "attn-gpu-bar" });
          bar.style.width = `${(100 * Math.min(rate ?? 0, top)) / top}%`;
          return [h("span", { class: "attn-gpu-name" }, text), h("span", { class: "attn-gpu-track" }, bar), h("span", { class: "attn-gpu-rate" }, rate === null ? "–" : rateText(rate))];
        }),
      );
    },
  };
};

const [WIDE, HIGH] = [660, 400];
const EDGE = { left: 56, right: 118, top: 34, low: 50 };
const MARKS = [
  "M0-7A7 7 0 1 1 0 7 7 7 0 1 1 0-7Z",
  "M0-9 9 0 0 9-9 0Z",
  "M-6-6H6V6H-6Z",
  "M0-8 8 6H-8Z",
  "M0 8 8-6H-8Z",
  "M-2-8H2V-2H8V2H2V8H-2V2H-8V-2H-2Z",
  "M-4-8H4L8 0 4 8H-4L-8 0Z",
  "M-7-7-4-7 0-3 4-7 7-7V-4L3 0 7 4V7H4L0 3-4 7H-7V4L-3 0-7-4Z",
];

// TFLOP/s over T, the lengths on a logarithmic axis: a line for each method, named at its end.
const linePicture = () => {
  const element = svg("svg", { class: "attn-gpu-lines", role: "img", viewBox: `0 0 ${WIDE} ${HIGH}` });
  return {
    element,
    update: ({ lines, curves, peak, span, tokens, said }) => {
      put(element, { "aria-label": said });
      const highest = Math.max(...lines.flatMap(({ points }) => points.map((point) => point[3])), 1e-6);
      const top = (peak ?? highest) * 1.04;
      const [low, high] = span.map(Math.log2);
      const x = (at) => EDGE.left + ((WIDE - EDGE.left - EDGE.right) * (Math.log2(at) - low)) / (high - low || 1);
      const y = (rate) => HIGH - EDGE.low - ((HIGH - EDGE.low - EDGE.top) * Math.min(rate, top)) / top;
      const path = (points) => `M${points.map(([at, rate]) => `${x(at).toFixed(1)} ${y(rate).toFixed(1)}`).join("L")}`;
      const unit = 10 ** Math.floor(Math.log10(top / 2));
      const step = [1, 2, 5].map((k) => k * unit).findLast((k) => top / k >= 3) ?? unit;
      const ticks = Array.from({ length: Math.floor(top / step) + 1 }, (_, k) => k * step);
      const lengths = TOKENS.filter((at) => at >= span[0] && at <= span[1]);
      const every = Math.ceil(lengths.length / 6);
      // Names at the lines' ends, moved apart where they would touch.
      const ends = lines
        .filter(({ points }) => points.length)
        .map((line) => ({ line, last: line.points.at(-1) }))
        .map((end) => ({ ...end, at: y(end.last[1]) }))
        .sort((a, b) => a.at - b.at);
      const apart = 26;
      ends.forEach((end, n) => (end.at = Math.max(end.at, n ? ends[n - 1].at + apart : EDGE.top)));
      for (let n = ends.length - 1, most = HIGH - EDGE.low; n >= 0; n -= 1, most -= apart) ends[n].at = Math.min(ends[n].at, most);
      element.replaceChildren(
        svg(
          "g",
          { class: "attn-gpu-grid" },
          ticks.flatMap((at) => [
            svg("line", { x1: EDGE.left, x2: WIDE - EDGE.right, y1: y(at), y2: y(at) }),
            svg("text", { x: EDGE.left - 8, y: y(at) + 5, "text-anchor": "end" }, short(at)),
          ]),
          lengths.map((at, n) => (n % every ? null : svg("text", { x: x(at), y: HIGH - EDGE.low + 22, "text-anchor": "middle" }, at < 1024 ? String(at) : `${at / 1024}K`))),
          svg("text", { x: (EDGE.left + WIDE - EDGE.right) / 2, y: HIGH - 4, "text-anchor": "middle" }, "tokens T"),
          svg("text", { x: 4, y: 18 }, "TFLOP/s"),
        ),
        tokens >= span[0] && tokens <= span[1] ? svg("line", { class: "attn-gpu-here", x1: x(tokens), x2: x(tokens), y1: EDGE.top, y2: HIGH - EDGE.low }) : "",
        ...(peak ? [svg("line", { class: "attn-gpu-peak", x1: EDGE.left, x2: WIDE - EDGE.right, y1: y(peak), y2: y(peak) }), svg("text", { class: "attn-gpu-label", x: WIDE - EDGE.right, y: y(peak) - 8, "text-anchor": "end" }, `peak ${rateText(peak)}`)] : []),
        ...curves.map(({ points }) => svg("path", { class: "attn-gpu-curve", d: path(points) })),
        ...curves.map(({ text, points }) => svg("text", { class: "attn-gpu-label", x: WIDE - EDGE.right - 8, y: y(points.at(-1)[1]) + 20, "text-anchor": "end" }, text)),
        ...lines.flatMap(({ points, kind }) => [
          points.length > 1 ? svg("path", { class: `attn-gpu-line attn-gpu-kind-${kind}`, d: path(points) }) : "",
          ...points.map(([at, , least, most]) => svg("line", { class: `attn-gpu-range attn-gpu-kind-${kind}`, x1: x(at), x2: x(at), y1: y(least), y2: y(most) })),
          ...points.map(([at, rate]) => svg("path", { class: `attn-gpu-mark attn-gpu-kind-${kind}`, d: MARKS[kind], transform: `translate(${x(at).toFixed(1)} ${y(rate).toFixed(1)})` })),
        ]),
        ...ends.flatMap(({ line, last, at }) => [
          svg("line", { class: `attn-gpu-lead attn-gpu-kind-${line.kind}`, x1: x(last[0]) + 8, y1: y(last[1]), x2: x(last[0]) + 16, y2: at }),
          svg("text", { class: `attn-gpu-end attn-gpu-kind-${line.kind}`, x: x(last[0]) + 18, y: at + 5 }, line.tag),
        ]),
      );
    },
  };
};

// --- the state -------------------------------------------------------------------------------------------

const list = (x, most) => {
  if (!Array.isArray(x) || x.length > most) throw new Error("list");
  return x;
};

const rateOf = (x) => within(x, 0, 1e6);

const pointOf = (x) => {
  const [tokens, ...rest] = list(x, 4);
  whole(tokens, 1, 1e7);
  if (rest.length === 1) return [tokens, shortText(rest[0], 120)];
  if (rest.length !== 3) throw new Error("point");
  return [tokens, ...rest.map(rateOf)];
};

const sourceOf = ({ name, kind, note, chip, methods, series }) => {
  const known = list(methods, MARKS.length).map(([method, tag]) => [shortText(method), shortText(tag, 12)]);
  const names = known.map(([method]) => method);
  const peak = (x) => (x === null ? null : within(x, 0.001, 1e6));
  return {
    name: shortText(name, 60),
    kind: oneOf(kind, ["published", "recorded"]),
    note: shortText(note, 200),
    chip: { peak: Object.fromEntries(DTYPES.map((dtype) => [dtype, peak(chip.peak[dtype])])), bandwidth: peak(chip.bandwidth) },
    methods: known,
    series: list(series, 200).map(({ method, dtype, d, causal, direction, points }) => ({
      method: oneOf(method, names),
      dtype: oneOf(dtype, [...DTYPES, ANY_16]),
      d: whole(d, 1, 4096),
      causal: oneOf(causal, [true, false]),
      direction: oneOf(direction, DIRECTIONS),
      points: list(points, 24).map(pointOf),
    })),
  };
};

const fits = (series, state) =>
  ["d", "causal", "direction"].every((key) => series[key] === state[key]) &&
  (series.dtype === state.dtype || (series.dtype === ANY_16 && state.dtype !== "float32"));

export default {
  render: (context) =>
    frame(context, {
      name: "gpu_explorer",
      title: "How fast attention is on a GPU, and how fast it can be",
      given: ["sources", "recorded"],
      initial: { source: "", tokens: 16384, d: 128, causal: true, direction: "forward", dtype: "bfloat16", block: 128, baseline: "", recorded: 0, sources: [] },
      accept: (x) => {
        const known = ["source", "tokens", "d", "causal", "direction", "dtype", "block", "baseline", "recorded", "sources"];
        if (Object.keys(x).some((key) => !known.includes(key))) throw new Error("unknown");
        const sources = list(x.sources, 8).map(sourceOf);
        const source = sources.find(({ name }) => name === x.source);
        if (!source) throw new Error("source");
        return {
          source: source.name,
          tokens: oneOf(x.tokens, TOKENS),
          d: oneOf(x.d, WIDTHS),
          causal: oneOf(x.causal, [true, false]),
          direction: oneOf(x.direction, DIRECTIONS),
          dtype: oneOf(x.dtype, DTYPES),
          block: oneOf(x.block, BLOCKS),
          baseline: oneOf(x.baseline, source.methods.map(([method]) => method)),
          recorded: whole(x.recorded, 0, 8),
          sources,
        };
      },
      build: (api, first) => {
        const plainChoice = (legend, key, values, texts = values.map(String), set = (value) => api.set({ [key]: value })) =>
          choice(
            legend,
            values.map((value, v) => ({ value: String(value), text: texts[v] })),
            () => String(api.get()[key]),
            (word) => set(values.find((value) => String(value) === word)),
          );
        const { sources } = first;
        const firstMethod = ({ methods }) => (methods.find(([, tag]) => tag === "SDPA") ?? methods[0])[0];
        const source = plainChoice("results", "source", sources.map(({ name }) => name), undefined, (name) => {
          const next = sources.find((one) => one.name === name);
          const kept = next.methods.some(([method]) => method === api.get().baseline);
          api.set({ source: name, baseline: kept ? api.get().baseline : firstMethod(next) });
        });
        const lengths = slider(
          "tokens T",
          { min: 0, max: TOKENS.length - 1, step: 1, show: (at) => grouped(TOKENS[at]) },
          () => TOKENS.indexOf(api.get().tokens),
          (at) => api.set({ tokens: TOKENS[at] }),
        );
        const choices = [
          plainChoice("head width d", "d", WIDTHS),
          plainChoice("numbers", "dtype", DTYPES),
          plainChoice("pass", "direction", DIRECTIONS),
          toggle("causal", () => api.get().causal, (causal) => api.set({ causal })),
          plainChoice("bound for tiles of", "block", BLOCKS),
        ];
        const baselines = sources.map(({ methods }) => plainChoice("compare with", "baseline", methods.map(([method]) => method)));
        const controls = [source, lengths, ...choices, ...baselines];

        const [bars, lines] = [barPicture(), linePicture()];
        const caption = h("caption", {});
        const over = h("th", { scope: "col" });
        const body = h("tbody", {});
        const table = h(
          "table",
          { class: "attn-gpu-table" },
          caption,
          h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "TFLOP/s"), over, h("th", { scope: "col" }, "of the peak"))),
          body,
        );
        const remark = h("p", { class: "attn-gpu-remark" });
        const note = h("p", { class: "attn-gpu-note" });
        const all = h("table", { class: "attn-gpu-all" });
        const allName = newId("all");
        const details = h(
          "details",
          {},
          h("summary", { id: allName }, "All numbers of the picture"),
          h("div", { class: "attn-matrix-box", role: "region", tabindex: 0, "aria-labelledby": allName }, all),
        );

        return {
          element: h(
            "div",
            { class: "attn-gpu-body" },
            h(
              "div",
              { class: "attn-gpu-settings" },
              sources.length > 1 ? source.element : null,
              h("div", { class: "attn-gpu-sliders" }, lengths.element),
              h("div", { class: "attn-gpu-choices" }, choices.map(({ element }) => element)),
              baselines.map(({ element }) => element),
            ),
            h("div", { class: "attn-gpu-show" }, bars.element, lines.element, table, remark, note, details),
          ),
          update: (state) => {
            controls.forEach((control) => control.update());
            const used = sources.find(({ name }) => name === state.source) ?? NONE;
            baselines.forEach(({ element }, n) => (element.hidden = sources[n] !== used));
            const published = used.kind === "published";
            const bounds = boundsOf(state, used.chip);
            const { peak } = bounds;
            // Published figures are of their own setting and stay; recorded ones are picked by what is set.
            const picked = used.methods.map(([method, tag], kind) => {
              const found = used.series.find((one) => one.method === method && (published || fits(one, state)));
              const points = (found?.points ?? []).filter((point) => point.length === 4);
              const at = published ? points[0]?.[0] : state.tokens;
              const here = found?.points.find(([tokens]) => tokens === at);
              return { method, tag, kind, found, points, rates: new Map(points), rate: here?.length === 4 ? here[1] : null, reason: here?.length === 2 ? here[1] : "" };
            });
            const base = picked.find(({ method }) => method === state.baseline);
            const known = picked.filter(({ rate }) => rate !== null);
            const best = known.reduce((most, one) => (most && most.rate >= one.rate ? most : one), null);
            const theirs = published ? { ...used.series[0], tokens: used.series[0]?.points[0][0] } : state;
            const same = !published || used.series.every((one) => fits(one, state) && one.points[0][0] === state.tokens);

            // The picture.
            const rows = [
              ...picked.map(({ method, rate }) => [method, rate]),
              [`bound: tiles of ${state.block} from memory`, bounds.tiles?.rate ?? null],
              ["bound: each number loaded once", bounds.once?.rate ?? null],
              [state.dtype === "float32" ? "the chip's peak (TF32)" : "the chip's peak", peak ?? null],
            ];
            const ofSetting = setting(theirs);
            const numbers = rows.filter(([, rate]) => rate !== null).map(([text, rate]) => `${text} ${rateText(rate)}`);
            bars.element.toggleAttribute("hidden", !published);
            lines.element.toggleAttribute("hidden", published);
            details.hidden = published || used === NONE;
            if (published)
              bars.update({
                bars: rows.map(([text, rate], n) => ({ text, rate, limit: n >= picked.length })),
                top: Math.max(peak ?? 0, ...known.map(({ rate }) => rate)),
                apart: !same,
                said: `Bars, TFLOP/s, published for ${ofSetting}: ${numbers.join("; ")}. The table below has the numbers.`,
              });
            else {
              const measured = used.series.flatMap(({ points }) => points.map(([tokens]) => tokens));
              const span = measured.length ? [Math.min(...measured), Math.max(...measured)] : [512, 16384];
              const inside = TOKENS.filter((tokens) => tokens >= span[0] && tokens <= span[1]);
              const curve = (which) => inside.map((tokens) => [tokens, boundsOf({ ...state, tokens }, used.chip)[which].rate]);
              lines.update({
                lines: picked,
                curves: bounds.tiles && inside.length > 1 ? [
                        { text: `bound: tiles of ${state.block}`, points: curve("tiles") },
                        { text: "bound: loaded once", points: curve("once") },
                      ] : [],
                peak: peak ?? null,
                span,
                tokens: state.tokens,
                said: `Lines: TFLOP/s over T from ${grouped(span[0])} to ${grouped(span[1])}, ${used.name}. At ${setting(state)}: ${numbers.join("; ")}. The tables below have the numbers.`,
              });
              const columns = [...new Set(measured)].sort((a, b) => a - b);
              all.replaceChildren(
                h("caption", {}, `TFLOP/s (slowest – fastest call), d = ${state.d}, ${state.causal ? "causal" : "not causal"}, ${state.direction}, ${state.dtype}`),
                h("thead", {}, h("tr", {}, h("td", {}), columns.map((at) => h("th", { scope: "col" }, `T = ${grouped(at)}`)))),
                h(
                  "tbody",
                  {},
                  picked.map(({ method, points }) =>
                    h(
                      "tr",
                      {},
                      h("th", { scope: "row" }, method),
                      columns.map((at) => {
                        const point = points.find(([tokens]) => tokens === at);
                        return h("td", {}, point ? `${rateText(point[1])} (${rateText(point[2])} – ${rateText(point[3])})` : "–");
                      }),
                    ),
                  ),
                ),
              );
            }

            // The table.
            caption.textContent = `${used.name}: ${ofSetting}${published ? `; bounds for ${same ? "this setting" : "your settings"}` : `, ${state.dtype}`}`;
            over.textContent = `times ${base?.tag ?? "–"}`;
            body.replaceChildren(
              ...rows.map(([text, rate], n) => {
                const ratio = rate !== null && base?.rate ? (rate / base.rate).toFixed(2) : "–";
                return h(
                  "tr",
                  { class: n >= picked.length ? "attn-gpu-limits" : text === best?.method ? "attn-gpu-best" : "" },
                  h("th", { scope: "row" }, text),
                  h("td", {}, rate === null ? "–" : rateText(rate)),
                  h("td", {}, n >= picked.length && !same ? "–" : ratio),
                  h("td", {}, rate === null || !peak ? "–" : share(rate / peak)),
                );
              }),
            );
            const reasons = [...new Set(picked.map(({ reason }) => reason).filter(Boolean))];
            const why = reasons.map((reason) => `Not measured: ${joined(picked.filter((one) => one.reason === reason).map(({ method }) => method))} (${reason}).`);
            const leads = published ? [] : leadersOf(picked.filter(({ points }) => points.length));
            const measuredAt = [...new Set(picked.flatMap(({ rates }) => [...rates.keys()]))].sort((a, b) => a - b);
            const fastest = leads.map(({ from, to, methods }) => `${joined(methods)} ${where([from, to], measuredAt)}`).join("; ");
            const ahead = picked
              .filter(({ method }) => !published && method !== base?.method)
              .map(({ method, rates }) => ({ method, ...aheadOf(rates, base?.rates ?? new Map()) }))
              .filter(({ ranges }) => ranges.length)
              .map(({ method, both, ranges }) => `${method} ${joined(ranges.map((range) => where(range, both)))}`);
            const compared = !published && base?.points.length;
            remark.classList.toggle("attn-gpu-words", !published);
            remark.textContent = [fastest ? `Fastest: ${fastest}.` : "", compared ? `More than 2 % ahead of ${base.method}: ${ahead.join("; ") || "none"}.` : "", ...why].filter(Boolean).join(" ");
            note.textContent = used.note;

            // The sentence.
            const forward = state.direction === "forward";
            const bestOfSame = same ? best : null;
            let sentence = "There are no results to show.";
            if (published) {
              const mine = state.recorded ? "Published figures, not measured for this book." : "No GPU has been recorded for this book yet: these figures are published ones, not measured here.";
              const facts = best
                ? `${best.method}, the fastest, ${best === base ? "" : base?.rate ? `is ${number(best.rate / base.rate, 2)} times ${base.method} and ` : ""}reaches ${peak ? share(best.rate / peak) : rateText(best.rate)} of this chip's peak.`
                : "";
              sentence = same
                ? `${mine} ${facts}${sayBound({ bounds, best: bestOfSame, forward, block: state.block })}`
                : `${mine} They hold for ${ofSetting}, in 16 bits; for your settings there is none, only a bound.${sayBound({ bounds, best: null, forward, block: state.block })}`;
            } else if (used !== NONE) {
              const ours = picked.find(({ tag, rate }) => tag === "ours" && rate !== null);
              const subject = ours ?? best;
              const start = `Recorded on ${used.name.replace(", recorded", "")}.`;
              const versus = subject && base?.rate && base !== subject ? `, ${number(subject.rate / base.rate, 2)} times ${base.method}` : "";
              sentence = subject
                ? `${start} At T = ${grouped(state.tokens)} ${subject.method} makes ${rateText(subject.rate)} TFLOP/s${versus}${peak ? `, ${share(subject.rate / peak)} of the chip's peak` : ""}${best === subject ? "" : `; the fastest is ${best.method} with ${rateText(best.rate)}`}.${sayBound({ bounds, best, forward, block: state.block })}`
                : `${start} Nothing was recorded for ${setting(state)}, ${state.dtype}.${sayBound({ bounds, best: null, forward, block: state.block })}`;
            }
            return {
              sentence,
              result: {
                kind: used.kind,
                matching: same && known.length > 0,
                rates: Object.fromEntries(known.map(({ method, rate }) => [method, rate])),
                ratios: Object.fromEntries(known.filter(() => base?.rate).map(({ method, rate }) => [method, rate / base.rate])),
                bounds,
                leaders: leads,
                mistakes: [],
              },
            };
          },
        };
      },
    }),
};

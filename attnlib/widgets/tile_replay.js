// The tile replay: FlashAttention one tile at a time, what each tile loads and stores, and the state of each row.

import { fill, hide, masks, mix, plainTraffic, softmax, stateOfNothing, takeBlock, tileMemory, tileWalk } from "./arith.js";
import { button, choice, frame, grouped, h, number, oneOf, shortText, short, slider, tableOf, toggle, visible, whole } from "./look.js";

const REPLAY_MOST = 16;
const MEMORIES = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
const SPEEDS = { 1: "1 a second", 2: "2", 5: "5" };
const ALGORITHMS = { flash2: "queries outside (FlashAttention-2)", flash1: "keys outside (FlashAttention-1)" };
const EXAMPLES = { made: "made-up scores", three: "the three tokens" };

// Made-up scores and one value per key, halves by a fixed rule; Python has the same one.
export const madeScores = (n) => fill(n, n, (i, j) => ((4 * i + 3 * j * j + 5 * i * j) % 17) / 2 - 4);
export const madeValues = (n) => fill(n, 1, (j) => ((5 * j + 2) % 9) / 2 - 2);

// Everything that a replay shows, for all its steps at once: rows[s][i] is the state of query i after s tiles.
export const replayOf = ({ n, d, blockQ, blockK, causal, algorithm, scores, values }) => {
  const walk = tileWalk({ n, d, blockQ, blockK, causal, algorithm });
  const allowed = causal ? masks.causal(n, n) : masks.all(n, n);
  const masked = hide(scores, allowed);
  const visited = walk.tiles.filter(({ kind }) => kind !== "skipped");
  const rows = [Array.from({ length: n }, () => stateOfNothing(1))];
  const counts = [{ ...walk.start, flops: 0 }];
  visited.forEach(({ rows: [top, bottom], cols: [left, right], loads, stores, flops }) => {
    const take = (state, i) => (i < top || i >= bottom ? state : takeBlock(state, masked[i].slice(left, right), values.slice(left, right)));
    rows.push(rows.at(-1).map(take));
    const before = counts.at(-1);
    counts.push({ loads: before.loads + loads, stores: before.stores + stores, flops: before.flops + flops });
  });
  const { weights } = softmax(masked, allowed);
  return { tiles: walk.tiles, visited, allowed, rows, counts, attention: mix(weights, values).map(([x]) => x) };
};

const outputOf = ({ sum, out }) => (sum > 0 ? out[0] / sum : 0);

const span = (noun, [from, to]) => (to - from === 1 ? `${noun} ${to}` : `${noun === "query" ? "queries" : "keys"} ${from + 1}–${to}`);

// --- parts ----------------------------------------------------------------------------------------------

// The scores as a grid of tiles. It is a picture: the table of all tiles says the same in words.
const replayGrid = (names) => {
  const n = names.length;
  const heads = names.map((_, j) => h("th", {}, String(j + 1)));
  const sides = names.map((name) => h("th", {}, h("bdi", {}, name)));
  const cells = fill(n, n, () => h("td", {}));
  const table = h(
    "table",
    { class: "attn-replay-grid" },
    h("thead", {}, h("tr", {}, h("td", {}, "i \\ j"), heads)),
    h("tbody", {}, sides.map((side, i) => h("tr", {}, side, cells[i]))),
  );
  table.style.setProperty("--attn-cells", n);
  const element = h("div", { class: "attn-replay-board", role: "img" }, table);
  return {
    element,
    update: ({ tiles, allowed, scores, now, done, said }) => {
      element.setAttribute("aria-label", said);
      for (const tile of tiles) {
        const [top, bottom] = tile.rows;
        const [left, right] = tile.cols;
        for (let i = top; i < bottom; i += 1)
          for (let j = left; j < right; j += 1) {
            const hidden = !allowed[i][j];
            const skipped = tile.kind === "skipped";
            const current = tile === now;
            const past = !current && done.has(tile);
            cells[i][j].className = [
              i === top ? "attn-tile-top" : "",
              j === left ? "attn-tile-left" : "",
              skipped ? "attn-tile-skipped" : hidden ? "attn-hidden" : past ? "attn-tile-done" : "",
              current && !hidden ? "attn-tile-now" : "",
              current && i === top ? "attn-edge-top" : "",
              current && i === bottom - 1 ? "attn-edge-bottom" : "",
              current && j === left ? "attn-edge-left" : "",
              current && j === right - 1 ? "attn-edge-right" : "",
            ].join(" ");
            cells[i][j].textContent = hidden ? "" : current ? short(scores[i][j]) : past ? "✓" : "";
          }
      }
      sides.forEach((side, i) => (side.className = now && i >= now.rows[0] && i < now.rows[1] ? "attn-in-query" : ""));
      heads.forEach((head, j) => (head.className = now && j >= now.cols[0] && j < now.cols[1] ? "attn-in-key" : ""));
    },
  };
};

const STATE_COLUMNS = ["m", "ℓ", "o₁", "o₁/ℓ"];

const stateTable = (names) => {
  const sides = names.map((name) => h("th", { scope: "row" }, h("bdi", {}, name)));
  const cells = names.map(() => STATE_COLUMNS.map(() => h("td", {}, h("span", {}))));
  const ticks = cells.map((line) => {
    const tick = h("span", { class: "attn-replay-tick" });
    line.at(-1).append(tick);
    return tick;
  });
  return {
    element: h(
      "table",
      { class: "attn-replay-state" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "query"), STATE_COLUMNS.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, sides.map((side, i) => h("tr", {}, side, cells[i]))),
    ),
    update: ({ rows, finished, now }) =>
      rows.forEach((row, i) => {
        const empty = row.sum === 0;
        const texts = [number(row.max), number(row.sum), number(row.out[0]), empty ? "" : number(outputOf(row))];
        texts.forEach((text, c) => (cells[i][c].firstChild.textContent = text));
        ticks[i].textContent = finished[i] ? "✓" : "";
        sides[i].parentElement.classList.toggle("attn-selected", Boolean(now) && i >= now.rows[0] && i < now.rows[1]);
      }),
  };
};

const COUNTS = ["entries loaded", "entries stored", "entries moved", "FLOPs of QKᵀ and PV", "tiles visited", "of these with a mask", "tiles skipped"];

const countTable = () => {
  const cells = COUNTS.map(() => [0, 1, 2].map(() => h("td", {})));
  const foot = [0, 1, 2].map(() => h("td", {}));
  return {
    element: h(
      "table",
      { class: "attn-replay-counts" },
      h("thead", {}, h("tr", {}, h("td", {}), ["so far", "at the end", "plain attention"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, COUNTS.map((text, r) => h("tr", {}, h("th", { scope: "row" }, text), cells[r]))),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "plain ÷ tiles"), foot)),
    ),
    update: (columns, ratio) => {
      columns.forEach((column, c) => column.forEach((x, r) => (cells[r][c].textContent = x === null ? "–" : grouped(x))));
      foot.forEach((cell, c) => (cell.textContent = c === 1 ? `${number(ratio, 2)} ×` : ""));
    },
  };
};

const TILE_COLUMNS = ["queries", "keys", "tile", "loads", "stores", "now"];

const tileTable = (tiles) => {
  const marks = tiles.map(() => h("td", {}));
  const plainSpan = ([from, to]) => (to - from === 1 ? String(to) : `${from + 1}–${to}`);
  return {
    element: h(
      "table",
      { class: "attn-replay-tiles" },
      h("caption", {}, "All tiles, in the order of the algorithm"),
      h("thead", {}, h("tr", {}, TILE_COLUMNS.map((text) => h("th", { scope: "col" }, text)))),
      h(
        "tbody",
        {},
        tiles.map(({ rows, cols, kind, loads, stores }, t) =>
          h("tr", {}, [plainSpan(rows), plainSpan(cols), kind, loads, stores].map((x) => h("td", {}, String(x))), marks[t]),
        ),
      ),
    ),
    update: ({ now, done }) =>
      tiles.forEach((tile, t) => {
        const text = tile.kind === "skipped" ? "never loaded" : tile === now ? "in fast memory" : done.has(tile) ? "done" : "waits";
        if (marks[t].textContent !== text) marks[t].textContent = text;
      }),
  };
};

// --- the sentence ----------------------------------------------------------------------------------------

const sayReplay = ({ state, replay, step, totals, plain, masked, skipped }) => {
  const { visited, counts, rows } = replay;
  const all = replay.tiles.length;
  const moved = counts[step].loads + counts[step].stores;
  const whole = totals.loads + totals.stores;
  const plainMoved = plain.loads + plain.stores;
  if (step === 0) {
    const future = skipped
      ? `${skipped} of ${all} tiles lie wholly in the future and will never be loaded; ${masked} of the other ${visited.length} ${masked === 1 ? "needs" : "need"} a mask.`
      : `All ${all} tiles will be visited${masked ? `; ${masked} ${masked === 1 ? "needs" : "need"} a mask` : ""}.`;
    const start = counts[0].stores ? ` ${grouped(counts[0].stores)} entries are stored first: o, m and ℓ of every query, still empty.` : " Nothing is loaded yet.";
    return `${future}${start} Press “Step”.`;
  }
  if (step === visited.length) {
    const ratio = plainMoved / whole;
    const compared =
      ratio > 1
        ? `${grouped(whole)} entries moved where plain attention moves ${grouped(plainMoved)}, ${number(ratio, 2)} times as many`
        : `${grouped(whole)} entries moved, and plain attention moves ${grouped(plainMoved)}${ratio === 1 ? ", the same" : ", which is fewer"}: tiles this small gain nothing`;
    return `Done. ${compared}. Each row's o₁/ℓ is plain attention's output (✓). ${visited.length} of ${all} tiles were visited, ${masked} with a mask.`;
  }
  const tile = visited[step - 1];
  const hidden = fill(tile.rows[1] - tile.rows[0], tile.cols[1] - tile.cols[0], (i, j) => replay.allowed[tile.rows[0] + i][tile.cols[0] + j])
    .flat()
    .filter((sees) => !sees).length;
  const size = (tile.rows[1] - tile.rows[0]) * (tile.cols[1] - tile.cols[0]);
  const known = rows[step].map((row, i) => ({ i, row, old: rows[step - 1][i] })).slice(...tile.rows).filter(({ old }) => old.max > -Infinity);
  const grown = known.filter(({ row, old }) => row.max > old.max).sort((a, b) => a.row.factor - b.row.factor)[0];
  const effect = grown
    ? `Query ${grown.i + 1} meets a larger score: m goes from ${short(grown.old.max)} to ${short(grown.row.max)}, and what it has gathered is multiplied by ${number(grown.row.factor)}.`
    : known.length
      ? "No larger score comes, so nothing gathered is rescaled."
      : "These are their first scores.";
  const cover = hidden ? ` ${hidden} of its ${size} scores ${hidden === 1 ? "is" : "are"} hidden.` : "";
  return `Tile ${step} of ${visited.length}: ${span("query", tile.rows)} and ${span("key", tile.cols)}.${cover} ${effect} ${grouped(moved)} entries moved so far; plain attention moves ${grouped(plainMoved)}.`;
};

export default {
  render: (context) =>
    frame(context, {
      name: "tile_replay",
      title: "Tile replay: FlashAttention one tile at a time",
      initial: {
        example: "made",
        n: 8,
        d: 4,
        blockQ: 2,
        blockK: 2,
        causal: true,
        algorithm: "flash2",
        memory: 64,
        step: 0,
        speed: 2,
        worked: { tokens: ["", "", ""], scores: [[0, 0, 0], [0, 0, 0], [0, 0, 0]], values: [[0], [0], [0]] },
      },
      accept: (x) => {
        const known = ["example", "n", "d", "blockQ", "blockK", "causal", "algorithm", "memory", "step", "speed", "worked"];
        if (Object.keys(x).some((key) => !known.includes(key))) throw new Error("unknown");
        const three = oneOf(x.example, Object.keys(EXAMPLES)) === "three";
        const n = three ? whole(x.n, 3, 3) : whole(x.n, 2, REPLAY_MOST);
        if (!Array.isArray(x.worked?.tokens) || x.worked.tokens.length !== 3) throw new Error("tokens");
        const clean = {
          example: x.example,
          n,
          d: whole(x.d, 1, 64),
          blockQ: whole(x.blockQ, 1, n),
          blockK: whole(x.blockK, 1, n),
          causal: oneOf(x.causal, [true, false]),
          algorithm: oneOf(x.algorithm, Object.keys(ALGORITHMS)),
          memory: oneOf(x.memory, MEMORIES),
          step: whole(x.step, 0, REPLAY_MOST ** 2),
          speed: oneOf(x.speed, Object.keys(SPEEDS).map(Number)),
          worked: {
            tokens: x.worked.tokens.map((token) => shortText(token)),
            scores: tableOf(x.worked.scores, 3, 3),
            values: tableOf(x.worked.values, 3, 1),
          },
        };
        if (tileMemory(clean) > clean.memory) throw new Error("does not fit");
        const last = tileWalk(clean).tiles.filter(({ kind }) => kind !== "skipped").length;
        return { ...clean, step: whole(x.step, 0, last) };
      },
      build: (api) => {
        // The replay of the settings in force; made anew only when one of them changes.
        let kept = { key: "" };
        const replayed = (state) => {
          const { example, n, d, blockQ, blockK, causal, algorithm, worked } = state;
          const key = JSON.stringify([example, n, d, blockQ, blockK, causal, algorithm, worked]);
          if (kept.key !== key) {
            const three = example === "three";
            const scores = three ? worked.scores : madeScores(n);
            const values = three ? worked.values : madeValues(n);
            kept = { key, scores, ...replayOf({ n, d, blockQ, blockK, causal, algorithm, scores, values }) };
          }
          return kept;
        };
        const last = () => replayed(api.get()).visited.length;

        // --- playing
        let timer = 0;
        const playing = () => timer !== 0;
        const hush = () => document.hidden && pause();
        const quiet = (yes) => root.closest("section")?.querySelector(".attn-sentence")?.setAttribute("aria-live", yes ? "off" : "polite");
        const pause = () => {
          clearTimeout(timer);
          timer = 0;
          document.removeEventListener("visibilitychange", hush);
          playButton.textContent = "Play";
          quiet(false);
        };
        const wait = () => (timer = setTimeout(tick, 1000 / api.get().speed));
        const tick = () => {
          if (!root.isConnected) return pause();
          const { step } = api.get();
          if (step + 1 >= last()) pause();
          else wait();
          api.set({ step: Math.min(step + 1, last()) });
        };
        const play = () => {
          if (playing()) return pause();
          if (api.get().step === last()) api.set({ step: 0 });
          playButton.textContent = "Pause";
          quiet(true);
          document.addEventListener("visibilitychange", hush);
          wait();
        };
        const go = (where) => () => {
          pause();
          api.set({ step: Math.min(Math.max(where(api.get().step), 0), last()) });
        };
        const playButton = button("Play", play, { class: "attn-button attn-replay-play" });
        const moves = [
          button("Rewind", go(() => 0)),
          button("Back", go((step) => step - 1)),
          button("Step", go((step) => step + 1)),
          button("To the end", go(() => last())),
        ];

        // --- settings; what does not fit into fast memory is refused, and the replay stays as it is
        const refusal = h("p", { class: "attn-message attn-replay-refusal", role: "status" });
        const ask = (changes) => {
          pause();
          const next = { ...api.get(), ...changes, step: 0 };
          if (next.example === "three") next.n = 3;
          next.blockQ = Math.min(next.blockQ, next.n);
          next.blockK = Math.min(next.blockK, next.n);
          const needed = tileMemory(next);
          const fits = needed <= next.memory;
          refusal.textContent = fits
            ? ""
            : `A ${next.blockQ} × ${next.blockK} tile with d = ${next.d} needs ${grouped(needed)} entries, fast memory holds ${grouped(next.memory)}. The last replay that fits stays.`;
          if (fits) api.set(next);
          else controls.forEach((control) => control.update());
        };
        const from = (key) => () => api.get()[key];
        const plainly = (x) => String(x);
        const lengths = slider("tokens T", { min: 2, max: REPLAY_MOST, step: 1, show: plainly }, from("n"), (n) => ask({ n }));
        const pieces = ["blockQ", "blockK"].map((key) =>
          slider(key === "blockQ" ? "queries per tile" : "keys per tile", { min: 1, max: REPLAY_MOST, step: 1, show: plainly }, from(key), (x) =>
            ask({ [key]: x }),
          ),
        );
        const widths = slider("head width d", { min: 1, max: 64, step: 1, show: plainly }, from("d"), (d) => ask({ d }));
        const memories = slider(
          "fast memory",
          { min: 0, max: MEMORIES.length - 1, step: 1, show: (at) => `${grouped(MEMORIES[at])} entries` },
          () => MEMORIES.indexOf(api.get().memory),
          (at) => ask({ memory: MEMORIES[at] }),
        );
        const options = (texts) => Object.entries(texts).map(([value, text]) => ({ value, text }));
        const order = choice("order", options(ALGORITHMS), from("algorithm"), (algorithm) => ask({ algorithm }));
        const example = choice("scores", options(EXAMPLES), from("example"), (value) => ask({ example: value }));
        const causal = toggle("causal", from("causal"), (on) => ask({ causal: on }));
        const speed = choice("speed", options(SPEEDS), () => String(api.get().speed), (value) => api.set({ speed: Number(value) }));
        const controls = [lengths, ...pieces, widths, memories, order, example, causal, speed];

        // --- what is shown
        const memoryLine = h("p", { class: "attn-replay-memory" });
        const meter = h("span", { class: "attn-replay-bar", "aria-hidden": "true" }, h("span", {}));
        const panels = h("div", { class: "attn-replay-panels" });
        const counts = countTable();
        const tilePlace = h("div", { class: "attn-matrix-box", tabindex: 0, role: "region", "aria-label": "All tiles" });
        const details = h("details", { class: "attn-replay-details" }, h("summary", {}, "Every tile in a table"), tilePlace);
        const legend = h(
          "ul",
          { class: "attn-legend attn-replay-legend" },
          [
            ["attn-tile-now", "1.5", "in fast memory"],
            ["attn-tile-done", "✓", "done, its scores are gone"],
            ["", "", "not loaded yet"],
            ["attn-hidden", "", "hidden by the mask"],
            ["attn-tile-skipped", "", "tile skipped"],
          ].map(([kind, text, words]) => h("li", {}, h("span", { class: `attn-swatch ${kind}`, "aria-hidden": "true" }, text), words)),
        );
        let parts = { key: "" };
        const redrawParts = (state, replay) => {
          if (parts.replay === replay) return;
          const { tokens } = state.worked;
          const names = Array.from({ length: state.n }, (_, i) => (state.example === "three" ? `${i + 1} ${visible(tokens[i])}` : String(i + 1)));
          parts = { replay, grid: replayGrid(names), states: stateTable(names), list: tileTable(replay.tiles) };
          panels.replaceChildren(parts.grid.element, parts.states.element);
          tilePlace.replaceChildren(parts.list.element);
        };
        const root = h(
          "div",
          { class: "attn-replay" },
          h(
            "div",
            { class: "attn-replay-settings" },
            h("div", { class: "attn-replay-sliders" }, lengths.element, pieces.map(({ element }) => element), widths.element, memories.element, causal.element),
            h("div", { class: "attn-replay-choices" }, example.element, order.element),
            refusal,
          ),
          h("div", { class: "attn-replay-moves" }, moves.slice(0, 3), playButton, moves[3], speed.element),
          panels,
          h("div", { class: "attn-replay-rest" }, legend, h("div", { class: "attn-replay-fast" }, memoryLine, meter), h("div", { class: "attn-matrix-box" }, counts.element), details),
        );

        return {
          element: root,
          reset: () => {
            pause();
            refusal.textContent = "";
          },
          update: (state) => {
            const replay = replayed(state);
            redrawParts(state, replay);
            controls.forEach((control) => control.update());
            lengths.element.querySelector("input").disabled = state.example === "three";
            pieces.forEach(({ element }) => (element.querySelector("input").max = state.n));
            pieces.forEach((piece) => piece.update());
            const { visited, tiles } = replay;
            const { step, n } = state;
            moves[0].disabled = moves[1].disabled = step === 0;
            moves[2].disabled = moves[3].disabled = step === visited.length;

            const now = step ? visited[step - 1] : null;
            const done = new Set(visited.slice(0, step));
            const rows = replay.rows[step];
            const finished = rows.map(
              (row, i) =>
                !visited.slice(step).some((tile) => i >= tile.rows[0] && i < tile.rows[1]) && Math.abs(outputOf(row) - replay.attention[i]) <= 1e-12,
            );
            const masked = visited.filter(({ kind }) => kind === "masked").length;
            const skipped = tiles.length - visited.length;
            const passed = now ? tiles.slice(0, tiles.indexOf(now) + 1) : [];
            const many = (list, ...kinds) => list.filter(({ kind }) => kinds.includes(kind)).length;
            const plain = { ...plainTraffic(state), flops: 4 * n * n * state.d };
            const totals = replay.counts.at(-1);
            const column = (x, list) => [x.loads, x.stores, x.loads + x.stores, x.flops, ...(list ? [many(list, "whole", "masked"), many(list, "masked"), many(list, "skipped")] : [null, null, null])];
            const ratio = (plain.loads + plain.stores) / (totals.loads + totals.stores);
            const where = now ? `in fast memory are ${span("query", now.rows)} and ${span("key", now.cols)}` : "nothing is in fast memory";
            parts.grid.update({
              tiles,
              allowed: replay.allowed,
              scores: replay.scores,
              now,
              done,
              said: `Grid of ${n} by ${n} scores, query i down, key j across, in ${tiles.length} tiles: ${where}; ${step} of ${visited.length} tiles visited, ${skipped} skipped. Every tile stands in the table below.`,
            });
            parts.states.update({ rows, finished, now });
            parts.list.update({ now, done });
            counts.update([column(replay.counts[step], passed), column(totals, tiles), column(plain, null)], ratio);
            const needed = tileMemory(state);
            const { d, blockQ, blockK, memory } = state;
            memoryLine.textContent = `One tile needs ${grouped(needed)} of ${grouped(memory)} entries of fast memory: Q ${blockQ * d}, K and V ${2 * blockK * d}, scores ${blockQ * blockK}, o, m and ℓ ${blockQ * (d + 2)}.`;
            meter.firstChild.style.width = `${(100 * needed) / memory}%`;
            const output = rows.map(outputOf);
            return {
              sentence: sayReplay({ state, replay, step, totals, plain, masked, skipped }),
              result: {
                step,
                steps: visited.length,
                soFar: replay.counts[step],
                atTheEnd: totals,
                plain,
                ratio,
                needed,
                tiles: { all: tiles.length, visited: visited.length, masked, skipped },
                tile: now && { queries: now.rows, keys: now.cols, kind: now.kind },
                m: rows.map(({ max }) => max),
                l: rows.map(({ sum }) => sum),
                o: rows.map(({ out }) => out[0]),
                output,
                attention: replay.attention,
                mistakes: [],
              },
            };
          },
        };
      },
    }),
};

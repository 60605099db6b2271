// The look and the controls that all widgets share. Text always goes in as text, never as markup.

export const h = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "props") Object.assign(element, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

// Counted over the whole page: each widget brings its own copy of this module, and radio buttons of one name
// would be one group, whichever widget they stand in.
export const newId = (word) => {
  globalThis.attnSerial = (globalThis.attnSerial ?? 0) + 1;
  return `attn-${word}-${globalThis.attnSerial}`;
};

// `x` by its method toFixed or toExponential, but a tie goes to the even digit, as in Python, and not up.
const rounded = (x, digits, method) => {
  const [up, power = 0] = x[method](digits).split("e");
  const tie = /^50*$/.test(x[method](digits + 60).split("e")[0].slice(-60));
  const less = () => x - Math.sign(x) * 10 ** (Number(power) - digits - 1);
  return (tie && "13579".includes(up.at(-1)) ? less() : x)[method](digits);
};

// One number as text, by the rule of attnlib.show.number (12 digits count, what is below 1e-13 is the rounding
// error of a 0, whole numbers have no decimals, no "-0"), with the signs of print: a true minus, ∞, NaN.
export const number = (x, digits = 3) => {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const y = Math.abs(x) < 1e-13 ? 0 : Number(x.toPrecision(12));
  const whole = Number.isInteger(y) && Math.abs(y) < 1e15;
  const text = whole ? String(y) : rounded(y, digits, Math.abs(y) >= 1e6 ? "toExponential" : "toFixed");
  return (Number(text) === 0 ? text.replace("-", "") : text).replace(/-/g, "−").replace(/e([+−])(\d)$/, "e$10$2");
};

// The same without the zeros at its end: 0.5, where a column of numbers would have 0.500.
export const short = (x) => number(x, 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

// Token labels are literal; white space and nothing become visible marks.
export const visible = (token) => {
  const marks = { " ": "␣", "\n": "⏎", "\t": "⇥", "\u0120": "␣", "\u2581": "␣", "\u010a": "⏎" };
  const text = String(token).replace(/[ \n\t\u0120\u2581\u010a]/g, (mark) => marks[mark]);
  return text === "" ? "∅" : text;
};

export const label = (n, token) => h("bdi", {}, `${n} ${visible(token)}`);

// Redraw at most once a frame; the last input wins.
export const eachFrame = (draw) => {
  let waiting = 0;
  const ask = () => {
    if (!waiting)
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        draw();
      });
  };
  ask.cancel = () => cancelAnimationFrame(waiting);
  return ask;
};

// A group of radio buttons. `options`: [{ value, text, wrong }].
export const choice = (legend, options, get, set) => {
  const name = newId("choice");
  const inputs = options.map(({ value }) =>
    h("input", { type: "radio", name, value, on: { change: () => set(value) } }),
  );
  const element = h(
    "fieldset",
    { class: "attn-choice" },
    h("legend", {}, legend),
    options.map(({ text, wrong }, n) =>
      h("label", { class: wrong ? "attn-wrong" : "" }, inputs[n], h("span", {}, text)),
    ),
  );
  return {
    element,
    update: () => inputs.forEach((input, n) => (input.checked = options[n].value === get())),
  };
};

// A slider with its value written beside it.
export const slider = (text, { min, max, step, show = number }, get, set) => {
  const output = h("output", {});
  // The name is the words alone: with the value in it, it would change under the reader's hand.
  const id = newId("slider");
  const input = h("input", { type: "range", min, max, step, "aria-labelledby": id, on: { input: () => set(Number(input.value)) } });
  return {
    element: h("label", { class: "attn-slider" }, h("span", { id }, text), input, output),
    update: () => {
      input.value = String(get());
      input.setAttribute("aria-valuetext", show(get()));
      output.textContent = show(get());
    },
  };
};

export const toggle = (text, get, set) => {
  const input = h("input", { type: "checkbox", on: { change: () => set(input.checked) } });
  return {
    element: h("label", { class: "attn-toggle" }, input, h("span", {}, text)),
    update: () => (input.checked = get()),
  };
};

export const button = (text, act, attributes = {}) =>
  h("button", { type: "button", class: "attn-button", ...attributes, on: { click: act } }, text);

export const LARGEST = 1000;

// What a number field may hold. Returns a number, or a sentence that says what is wrong. A comma may be a decimal
// point; before three digits it may as well part thousands, so that 1,000 would be 1 for some and 1000 for others.
const NUMERAL = /^[-+]?(\d+[.,]?\d*|[.,]\d+)(e[-+]?\d+)?$/i;
const THOUSANDS = /^[-+]?[1-9]\d*,\d{3}(?!\d)/;

export const readNumber = (text, limit = LARGEST, lowest = -limit) => {
  const trimmed = text.trim().replace(/−/g, "-");
  if (trimmed === "") return "is empty: wanted a number";
  if (THOUSANDS.test(trimmed)) return `is “${text.trim().slice(0, 20)}”: wanted a number, with a point and no comma`;
  const x = NUMERAL.test(trimmed) ? Number(trimmed.replace(",", ".")) : NaN;
  if (!Number.isFinite(x)) return `is “${text.trim().slice(0, 20)}”: wanted a number`;
  if (x < lowest || x > limit) return `is ${number(x)}: wanted a number from ${short(lowest)} to ${limit}`;
  return x;
};

// A table of number fields. A bad entry is named beside the table, and the last good number stays in force.
export const editor = (caption, rows, columns, get, set, role = "", limit = LARGEST, lowest = -limit) => {
  const message = h("p", { class: "attn-message", role: "status", id: newId("message") });
  const fields = rows.map((row, i) =>
    columns.map((column, c) => {
      const field = h("input", {
        type: "text",
        inputmode: "decimal",
        autocomplete: "off",
        "aria-label": `${caption}, ${row}, ${column}`,
        on: {
          input: () => {
            const x = readNumber(field.value, limit, lowest);
            const bad = typeof x === "string";
            field.setAttribute("aria-invalid", String(bad));
            if (bad) field.setAttribute("aria-describedby", message.id);
            else field.removeAttribute("aria-describedby");
            message.textContent = bad ? `${caption}, ${row}, ${column} ${x}. The last valid number stays.` : "";
            if (!bad) set(i, c, x);
          },
        },
      });
      return field;
    }),
  );
  const element = h(
    "div",
    { class: "attn-editor" },
    h(
      "table",
      { class: role ? `attn-role-${role}` : "" },
      h("caption", {}, caption),
      h("tbody", {}, rows.map((row, i) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, row)), fields[i].map((f) => h("td", {}, f))))),
    ),
    message,
  );
  return {
    element,
    update: () =>
      fields.forEach((line, i) =>
        line.forEach((field, c) => {
          // A field that somebody is typing in is left alone, unless it was reset from outside.
          const x = readNumber(field.value, limit, lowest);
          if (document.activeElement === field && field.getAttribute("aria-invalid") === "true") return;
          if (x !== get(i, c)) field.value = String(get(i, c));
          field.setAttribute("aria-invalid", "false");
        }),
      ),
    clear: () => {
      message.textContent = "";
      fields.flat().forEach((field) => field.setAttribute("aria-invalid", "false"));
    },
  };
};

// --- state in a link -----------------------------------------------------------------------------------

const encode = (state) => {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
};

const decode = (text) => {
  const bytes = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
};

const LONGEST_LINK = 8000;

// The state that the page's address carries for the widget `name`, checked by `accept` (which returns a clean
// copy or throws). { state: null } if there is none; { state: null, bad: true } if it is not to be used.
export const stateFromLink = (name, accept) => {
  const match = new RegExp(`[#&]${name}=([^&]*)`).exec(location.hash);
  if (!match) return { state: null };
  try {
    if (match[1].length > LONGEST_LINK) throw new Error("too long");
    return { state: accept(decode(match[1])) };
  } catch {
    return { state: null, bad: true };
  }
};

export const linkWith = (name, state) => `${location.href.split("#")[0]}#${name}=${encode(state)}`;

// --- checks of foreign state -----------------------------------------------------------------------------

export const oneOf = (x, options) => {
  if (!options.includes(x)) throw new Error("unknown option");
  return x;
};

export const within = (x, low, high) => {
  if (typeof x !== "number" || !Number.isFinite(x) || x < low || x > high) throw new Error("out of range");
  return x;
};

export const whole = (x, low, high) => {
  if (!Number.isInteger(within(x, low, high))) throw new Error("not whole");
  return x;
};

export const tableOf = (x, nRows, nColumns, low = -LARGEST, high = LARGEST) => {
  if (!Array.isArray(x) || x.length !== nRows) throw new Error("rows");
  return x.map((row) => {
    if (!Array.isArray(row) || row.length !== nColumns) throw new Error("columns");
    return row.map((entry) => within(entry, low, high));
  });
};

export const shortText = (x, longest = 24) => {
  if (typeof x !== "string" || [...x].length > longest) throw new Error("text");
  return x;
};

// --- the frame of a widget ---------------------------------------------------------------------------------

// JSON has no infinities: Python gets them as words that float() reads.
const sayable = (x) => {
  if (typeof x === "number" && !Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (Array.isArray(x)) return x.map(sayable);
  if (x && typeof x === "object") return Object.fromEntries(Object.entries(x).map(([key, value]) => [key, sayable(value)]));
  return x;
};

// Do two states have the same arrays of the same lengths?
const alike = (a, b) => {
  if (Array.isArray(a) || Array.isArray(b))
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((x, n) => alike(x, b[n]));
  if (a && b && typeof a === "object" && typeof b === "object") return Object.keys(b).every((key) => alike(a[key], b[key]));
  return true;
};

// Builds the frame around a widget: title, body, sentence, reset and link. `spec`:
//   name, title   what it is called in a link, and to a screen reader
//   initial       the state that reset goes back to
//   accept        checks a foreign state and returns a clean copy, or throws
//   build(api)    returns { element, update(state) }; update returns { sentence, result }
// `api.set(changes)` merges into the state, redraws within a frame, and tells Python.
//   flexible      true if a foreign state may have other sizes than the first one
//   given         names of what only the page can give: a link neither carries nor may bring it
export const frame = ({ model, el }, { name, title, initial, accept, build, flexible = false, given = [] }) => {
  const usable = (x) => {
    try {
      return accept(structuredClone(x));
    } catch {
      return null;
    }
  };
  let notice = "";
  let state = usable({ ...initial, ...model.get("state") });
  if (!state) {
    notice = "The state given to this figure could not be used; this is the default.";
    state = usable(initial);
    // Tokens and numbers come from outside alone: on a page the static picture, which is the default, stays.
    if (!state) {
      el.replaceChildren(h("p", { class: "attn-message attn-unusable", role: "status" }, notice));
      return () => {};
    }
  }
  const start = structuredClone(state);
  const acceptLike = (x) => {
    if (x === null || typeof x !== "object" || Array.isArray(x)) throw new Error("not a state");
    const clean = accept({ ...structuredClone(start), ...x });
    if (!flexible && !alike(clean, start)) throw new Error("another size");
    return clean;
  };
  const linked = stateFromLink(name, (x) => {
    const clean = acceptLike(x);
    if (given.some((key) => Object.hasOwn(x, key))) throw new Error("not for a link");
    return clean;
  });
  if (linked.state) state = linked.state;
  if (linked.bad) notice = "The link's settings could not be used; this is the default.";

  const sentence = h("p", { class: "attn-sentence", role: "status", "aria-live": "polite" });
  const remark = h("p", { class: "attn-message", role: "status" }, notice);
  const address = h("input", { type: "text", readonly: true, "aria-label": "Link to this state", hidden: true });
  let mine = false;
  let view = null;
  const draw = () => {
    const { sentence: words, result } = view.update(state);
    if (sentence.textContent !== words) sentence.textContent = words;
    mine = true;
    model.set("state", structuredClone(state));
    model.set("result", sayable(result ?? {}));
    model.save_changes();
    mine = false;
  };
  const redraw = eachFrame(draw);
  const api = {
    get: () => state,
    set: (changes) => {
      state = { ...state, ...changes };
      remark.textContent = "";
      address.hidden = true;
      redraw();
    },
  };
  view = build(api, state);
  const reset = button("Reset", () => {
    state = structuredClone(start);
    view.reset?.();
    remark.textContent = "Back to the start.";
    address.hidden = true;
    redraw();
  });
  const copy = button("Copy link", async () => {
    const link = linkWith(name, Object.fromEntries(Object.entries(state).filter(([key]) => !given.includes(key))));
    try {
      await navigator.clipboard.writeText(link);
      remark.textContent = "Link copied.";
    } catch {
      // Without leave to use the clipboard, the link is shown to be copied by hand.
      address.hidden = false;
      address.value = link;
      address.focus();
      address.select();
      remark.textContent = "Copy the link from the field.";
    }
  });
  const root = h(
    "section",
    { class: `attn-live attn-live-${name}`, "aria-label": title },
    view.element,
    sentence,
    h("div", { class: "attn-actions" }, reset, copy, address),
    remark,
  );
  el.replaceChildren(root);
  draw();
  const fromPython = () => {
    if (mine) return;
    try {
      state = acceptLike(model.get("state"));
      redraw();
    } catch {
      remark.textContent = "The state set from Python could not be used; the last valid one stays.";
    }
  };
  model.on("change:state", fromPython);
  return () => {
    model.off("change:state", fromPython);
    redraw.cancel();
  };
};

// --- matrices ----------------------------------------------------------------------------------------------

// Stops of the two colour maps that the figures use: weights 0 to 1, and scores from -1 to 1 of the largest.
const MAPS = {
  weights: ["#00224e", "#2a3f6d", "#575d6d", "#7d7c78", "#a59c74", "#d2c060", "#fee838"],
  scores: ["#053061", "#4393c3", "#d1e5f0", "#f7f7f7", "#fddbc7", "#d6604d", "#67001f"],
};

const parse = (hex) => [1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16));

const colourAt = (map, x) => {
  const stops = MAPS[map];
  const at = Math.min(Math.max(x, 0), 1) * (stops.length - 1);
  const n = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [parse(stops[n]), parse(stops[n + 1])];
  return a.map((channel, c) => Math.round(channel + (b[c] - channel) * (at - n)));
};

const luminance = (rgb) =>
  rgb
    .map((channel) => channel / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);

// Paints a cell by its value; the ink is black or white, whichever can be read better.
export const paint = (cell, kind, x, largest = 1) => {
  if (!Number.isFinite(x)) {
    cell.style.removeProperty("background-color");
    cell.style.removeProperty("color");
    return;
  }
  const rgb = kind === "weights" ? colourAt("weights", x) : colourAt("scores", 0.5 + x / (2 * (largest || 1)));
  cell.style.backgroundColor = `rgb(${rgb.join(",")})`;
  const light = luminance(rgb) + 0.05;
  cell.style.color = light / 0.05 > 1.05 / light ? "#000" : "#fff";
};

const same = (a, b) => Object.is(a, b) || Math.abs(a - b) <= 1e-9;

// Writes one number into a cell of a table: marked, with the right number below it, where that is another one.
// `name` is what a screen reader hears before the number; "" leaves the cell's own words.
export const writeCell = (cell, x, { digits = 3, hidden = false, wanted, name = "", base = "" } = {}) => {
  const wrong = wanted !== undefined && !same(x, wanted);
  const text = number(x, digits);
  const was = wrong ? number(wanted, digits) : "";
  const key = `${text}|${was}|${hidden}`;
  if (cell.dataset.key !== key) {
    cell.dataset.key = key;
    cell.replaceChildren(
      h("span", { class: "attn-value" }, wrong ? h("span", { class: "attn-mark", "aria-hidden": "true" }, "≠ ") : null, text),
      ...(wrong ? [h("small", {}, h("span", { class: "attn-unseen" }, " instead of "), was)] : []),
    );
    if (name) cell.setAttribute("aria-label", `${name}: ${text}${hidden ? ", hidden" : ""}${wrong ? `, right is ${was}` : ""}`);
  }
  cell.className = [base, wrong ? "attn-changed" : "", hidden ? "attn-hidden" : ""].filter(Boolean).join(" ");
};

// A matrix as a table whose cells can be visited with the arrow keys. `spec`:
//   title, rows, cols   what it is; labels of rows and columns (already text)
//   rowName, colName    "query" and "key", as they are read out
//   kind                "scores", "weights" or "values": how cells are coloured
//   digits, sums        decimals; whether row and column sums are shown
//   extra               what stands over one more column of numbers by row, if there is one
//   point(i, j)         called with the cell under the pointer or the focus, or with nulls
//   pick(i)             called when a row is chosen by a click on one of its cells, or Enter
// update({ numbers, hidden, right, row, extra, extraRight }): `right` are the right numbers, for marking what
// changed; `extra` and `extraRight` are those of the column `extra`.
export const matrix = ({ title, rows, cols, rowName = "query", colName = "key", kind = "values", digits = 3, sums = false, extra = "", point, pick }) => {
  const cells = rows.map((_, i) =>
    cols.map((_, j) =>
      h("td", {
        tabindex: i === 0 && j === 0 ? 0 : -1,
        on: {
          pointerenter: () => point?.(i, j),
          pointerleave: () => point?.(null, null),
          focus: () => point?.(i, j),
          blur: () => point?.(null, null),
          click: () => pick?.(i, j),
        },
      }),
    ),
  );
  const rowHeads = rows.map((text) => h("th", { scope: "row" }, h("bdi", {}, text)));
  const colHeads = cols.map((text) => h("th", { scope: "col" }, h("bdi", {}, text)));
  const extras = rows.map(() => h("td", { class: "attn-total" }));
  const rowTotals = rows.map(() => h("td", { class: "attn-total" }));
  const colTotals = cols.map(() => h("td", { class: "attn-total" }));
  const table = h(
    "table",
    {
      class: "attn-matrix",
      on: {
        keydown: (event) => {
          const i = cells.findIndex((line) => line.includes(event.target));
          if (i < 0) return;
          const j = cells[i].indexOf(event.target);
          const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
          if (event.key === "Enter" || event.key === " ") pick?.(i, j);
          else if (!down && !right) return;
          event.preventDefault();
          const next = cells[i + down]?.[j + right];
          if (!next || next === event.target) return;
          event.target.tabIndex = -1;
          next.tabIndex = 0;
          next.focus();
        },
      },
    },
    h("caption", {}, title),
    h("thead", {}, h("tr", {}, h("td", {}), colHeads, extra ? h("th", { scope: "col", class: "attn-total" }, extra) : null, sums ? h("th", { scope: "col", class: "attn-total" }, "row sum") : null)),
    h("tbody", {}, rows.map((_, i) => h("tr", {}, rowHeads[i], cells[i], extra ? extras[i] : null, sums ? rowTotals[i] : null))),
    sums ? h("tfoot", {}, h("tr", {}, h("th", { scope: "row", class: "attn-total" }, "sum"), colTotals, h("td", {}))) : null,
  );

  const write = (cell, x, hidden, wanted, name, base) => writeCell(cell, x, { digits, hidden, wanted, name, base });

  return {
    element: h("div", { class: "attn-matrix-box", tabindex: -1 }, table),
    update: ({ numbers, hidden, right, row = null, ...more }) => {
      const largest = Math.max(...numbers.flat().map((x) => (Number.isFinite(x) ? Math.abs(x) : 0)), 1e-300);
      numbers.forEach((line, i) =>
        line.forEach((x, j) => {
          const dark = hidden?.[i][j] ?? false;
          write(cells[i][j], x, dark, right?.[i][j], `${rowName} ${rows[i]}, ${colName} ${cols[j]}`, "");
          if (dark) paint(cells[i][j], kind, NaN);
          else paint(cells[i][j], kind, x, largest);
        }),
      );
      rowHeads.forEach((head, i) => head.parentElement.classList.toggle("attn-selected", i === row));
      if (extra) extras.forEach((cell, i) => write(cell, more.extra[i], false, more.extraRight?.[i], "", "attn-total"));
      if (!sums) return;
      const total = (line) => line.reduce((sum, x) => sum + x, 0);
      const column = (table, j) => total(table.map((line) => line[j]));
      rowTotals.forEach((cell, i) => write(cell, total(numbers[i]), false, right && total(right[i]), "", "attn-total"));
      colTotals.forEach((cell, j) => write(cell, column(numbers, j), false, right && column(right, j), "", "attn-total"));
    },
    // Lights the two tokens of a cell: the one that asks and the one that answers.
    light: (i, j) => {
      rowHeads.forEach((head, n) => head.classList.toggle("attn-lit", n === i));
      colHeads.forEach((head, n) => head.classList.toggle("attn-lit", n === j));
      cells.forEach((line, n) => line.forEach((cell, m) => cell.classList.toggle("attn-lit", n === i && m === j)));
    },
  };
};

// --- drawing with SVG --------------------------------------------------------------------------------------

export const svg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

// --- bars --------------------------------------------------------------------------------------------------

// A bar chart from 0 upwards. `spec`:
//   title, count    the line above it; how many bars
//   unit            what stands under the bars, as a line of its own
//   role            whose colour the bars have
// update({ values, top, names, texts, ghosts, said }): `top` is the value at full height; `names` stand under
// the bars and `texts` above them ("" for none); `ghosts` are marked by a line (null for none); `said` is the
// whole chart in words. An infinite bar is hatched up to the top, a bar that is no number is a dashed box.
export const bars = ({ title, count, unit = "", role = "key", width = 340, height = 200 }) => {
  const [left, above, below] = [6, 24, unit ? 42 : 24];
  const [wide, high, ground] = [(width - 2 * left) / count, height - above - below, height - below];
  const gap = Math.min(wide * 0.18, 16);
  const hatch = newId("hatch");
  const middle = (n) => left + (n + 0.5) * wide;
  const each = (make) => Array.from({ length: count }, (_, n) => make(n));
  const columns = each((n) => svg("rect", { class: "attn-bars-bar", x: left + n * wide + gap / 2, width: wide - gap }));
  const marks = each((n) => svg("line", { class: "attn-bars-ghost", x1: left + n * wide, x2: left + (n + 1) * wide }));
  const overs = each((n) => svg("text", { x: middle(n), "text-anchor": "middle" }));
  const unders = each((n) => svg("text", { x: middle(n), y: ground + 16, "text-anchor": "middle" }));
  const picture = svg(
    "svg",
    { class: "attn-bars", viewBox: `0 0 ${width} ${height}`, role: "img" },
    svg(
      "g",
      { class: `attn-role-${role}` },
      svg(
        "pattern",
        { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "currentColor", "stroke-width": 4 }),
      ),
      columns,
    ),
    marks,
    overs,
    unders,
    svg("line", { class: "attn-bars-ground", x1: left, x2: width - left, y1: ground, y2: ground }),
    unit ? svg("text", { class: "attn-bars-unit", x: width / 2, y: height - 6, "text-anchor": "middle" }, unit) : null,
  );
  return {
    element: h("div", { class: "attn-bars-chart" }, h("p", { class: "attn-bars-title" }, title), picture),
    update: ({ values, top, names = [], texts = [], ghosts = [], said }) => {
      picture.setAttribute("aria-label", said);
      const tall = (x) => (Number.isFinite(x) ? Math.min(Math.max(x / top, 0), 1) * high : high);
      values.forEach((x, n) => {
        const size = tall(x);
        columns[n].setAttribute("y", ground - size);
        columns[n].setAttribute("height", size);
        columns[n].setAttribute("fill", Number.isNaN(x) ? "none" : x === Infinity ? `url(#${hatch})` : "currentColor");
        columns[n].classList.toggle("attn-bars-outline", !Number.isFinite(x));
        overs[n].setAttribute("y", ground - Math.max(size, tall(ghosts[n] ?? 0)) - 6);
        overs[n].textContent = texts[n] ?? "";
        unders[n].textContent = names[n] ?? "";
        const marked = Number.isFinite(ghosts[n]);
        marks[n].setAttribute("visibility", marked ? "visible" : "hidden");
        if (!marked) return;
        marks[n].setAttribute("y1", ground - tall(ghosts[n]));
        marks[n].setAttribute("y2", ground - tall(ghosts[n]));
      });
    },
  };
};

// --- large numbers -----------------------------------------------------------------------------------------

export const grouped = (x) => x.toLocaleString("en");

// Three digits that count and a prefix: 8.59 GFLOP, 132 MiB, 41.3 µs. `step` is 1000 or 1024.
const PREFIXES = { 1000: ["", "k", "M", "G", "T", "P", "E"], 1024: ["", "Ki", "Mi", "Gi", "Ti", "Pi"] };
const SMALL = ["", "m", "µ", "n", "p"];

export const withUnit = (x, unit, step = 1000) => {
  const digits = (y) => grouped(Number(y.toPrecision(3)));
  if (x === 0) return `0 ${unit}`;
  let power = Math.floor(Math.log(x) / Math.log(step) + 1e-12);
  // 999.6 is written 1,000: one prefix further up.
  if (Number((x / step ** power).toPrecision(3)) >= step) power += 1;
  const prefixes = power < 0 ? SMALL : PREFIXES[step];
  const at = Math.min(Math.abs(power), prefixes.length - 1);
  return `${digits(x / step ** (Math.sign(power) * at))} ${prefixes[at]}${unit}`;
};

// Elements, numbers, data and the address. Text reaches the page as text nodes only; nothing here sets HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An HTML element: h("p", {class: "lead"}, "text", otherElement). `vars` sets style properties. */
function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
const colour = (number) => `var(--result-${(number % 8) + 1})`;

// --- numbers and names for people

const MINUS = "\u2212", DASH = "\u2013", NONE = "\u2014";
const fixed = (value, digits) => value.toFixed(digits).replace(/^-(0(?:\.0*)?)$/, "$1").replace("-", MINUS);
const number = (value, digits = 2) => (isNumber(value) ? fixed(value, digits) : NONE);
const signed = (value, digits = 2) => (isNumber(value) ? (value > 0 ? "+" : "") + fixed(value, digits) : NONE);
const percent = (value, digits = 1) => (isNumber(value) ? fixed(100 * value, digits) + "%" : NONE);
const points = (value) => (isNumber(value) ? `${signed(100 * value, 1)} points` : NONE);
const plural = (count, one, many = one + "s") => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

function tokens(count) {
  if (!isNumber(count)) return NONE;
  if (Math.abs(count) < 1000) return fixed(count, Number.isInteger(count) ? 0 : 1);
  return Math.abs(count) < 1e6 ? fixed(count / 1e3, 1) + "k" : fixed(count / 1e6, 2) + "M";
}

/** Three figures, for axes and metrics of any size. */
function brief(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e4) return tokens(value);
  if (size !== 0 && size < 1e-4) return value.toExponential(1).replace("-", MINUS);
  return String(Number(value.toPrecision(3))).replace("-", MINUS);
}

function pValue(p) {
  if (!isNumber(p)) return NONE;
  return p < 0.001 ? "p\u00a0<\u00a00.001" : `p\u00a0=\u00a0${p.toFixed(p < 0.1 ? 3 : 2)}`;
}

const TYPE_NAMES = {
  look_at_obj_in_light: "look at in light",
  pick_and_place_simple: "pick and place",
  pick_clean_then_place_in_recep: "clean and place",
  pick_cool_then_place_in_recep: "cool and place",
  pick_heat_then_place_in_recep: "heat and place",
  pick_two_obj_and_place: "place two",
};
const STOP_NAMES = { max_steps: "step limit", token_limit: "token limit", environment_done: "game over" };
const typeName = (name) => TYPE_NAMES[name] || String(name).replaceAll("_", " ");
const stopName = (name) => STOP_NAMES[name] || String(name).replaceAll("_", " ");
const splitName = (name) => (name === "all" ? "all games" : String(name).replaceAll("_", " "));

// --- data

const INDEX = JSON.parse(byId("index").textContent);
const PACKED = JSON.parse(byId("details").textContent);
const IS_RUN = INDEX.kind === "run";
const GAMES = new Map(INDEX.games.map((game, place) => [game.id, Object.assign(game, { place })]));
const unpacked = new Map();

/** The trajectories of a game, one an entry of its `plays`. */
function details(game) {
  if (!unpacked.has(game.place)) unpacked.set(game.place, unpack(PACKED[game.place]));
  return unpacked.get(game.place);
}

async function unpack(text) {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old to unpack a game; use one of 2023 or later");
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// --- the address: everything that is chosen stands in it, so that a view can be sent to someone

const address = {
  read: () => Object.fromEntries(new URLSearchParams(location.hash.slice(1))),
  /** The address with some choices changed; null takes one away. */
  with(changes, base = address.read()) {
    const words = new URLSearchParams();
    for (const [key, value] of Object.entries({ ...base, ...changes })) {
      if (value !== null && value !== undefined && value !== "") words.set(key, value);
    }
    return "#" + words.toString();
  },
  /** Change the address in place, without a step in the browser's history. */
  replace(changes) {
    history.replaceState(null, "", address.with(changes));
  },
};

/** Tell a screen reader what has changed. */
function say(text) {
  byId("said").textContent = text;
}

function remembered(name, value) {
  // Some browsers give pages from disk no storage.
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { /* chosen anew next time */ }
  return null;
}

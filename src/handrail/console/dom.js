// Makes elements. Whatever comes from a tool, a model or a log becomes text here, never markup: nothing in the console
// assigns innerHTML, and addresses pass `safeAddress`.

import { visible } from "./hidden-characters.js";

const SVG = "http://www.w3.org/2000/svg";
const STAYS = { info: 9_000, failed: 20_000 }; // milliseconds; what went wrong may have to be read and done something about

const SHAPES = {
  chat: ["M4 5.5h16v10.5H10.5L6 19.5V16H4z"],
  tools: ["M14.5 5a4.5 4.5 0 0 0-4.2 6.1L4.5 17l2.5 2.5 5.8-5.8A4.5 4.5 0 0 0 18.9 9.5l-2.6 2.1-2.4-.6-.6-2.4z"],
  connections: ["M9 8V4.5", "M15 8V4.5", "M6.5 8h11v3.5a5.5 5.5 0 0 1-11 0z", "M12 17v3.5"],
  metrics: ["M4 20h16", "M7 16.5v-4", "M12 16.5V6", "M17 16.5v-7"],
  audit: ["M7 4h10v16H7z", "M10 8.5h4", "M10 12h4", "M10 15.5h2"],
  operate: [
    "M4 7.5h9",
    "M18 7.5h2",
    "M4 16.5h2",
    "M11 16.5h9",
    "M15.5 5.2a2.3 2.3 0 1 1 0 4.6 2.3 2.3 0 0 1 0-4.6z",
    "M8.5 14.2a2.3 2.3 0 1 1 0 4.6 2.3 2.3 0 0 1 0-4.6z",
  ],
  done: ["M5 12.5l4.5 4.5L19 7.5"],
  failed: ["M6.5 6.5l11 11", "M17.5 6.5l-11 11"],
  alert: ["M12 4.5l8.5 15h-17z", "M12 10v4.5", "M12 17v.4"],
  refused: ["M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16z", "M6.5 6.5l11 11"],
  held: ["M9 6v12", "M15 6v12"],
  running: ["M12 4a8 8 0 1 1-8 8"],
  send: ["M12 19V5.5", "M6 11l6-6 6 6"],
  stop: ["M7 7h10v10H7z"],
  sun: [
    "M12 8.2a3.8 3.8 0 1 1 0 7.6 3.8 3.8 0 0 1 0-7.6z",
    "M12 3v1.8M12 19.2V21M3 12h1.8M19.2 12H21M5.6 5.6l1.3 1.3M17.1 17.1l1.3 1.3M5.6 18.4l1.3-1.3M17.1 6.9l1.3-1.3",
  ],
  moon: ["M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z"],
  auto: ["M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16z", "M12 4v16"],
  list: ["M8.5 6.5H20", "M8.5 12H20", "M8.5 17.5H20", "M4 6.5h.6", "M4 12h.6", "M4 17.5h.6"],
  bin: ["M5 7.5h14", "M10 7V5h4v2", "M7 7.5l.8 11.5h8.4L17 7.5", "M10.5 11v5", "M13.5 11v5"],
  plus: ["M12 5.5v13", "M5.5 12h13"],
  open: ["M9 6H6v12h12v-3", "M13 6h5v5", "M18 6l-7.5 7.5"],
  back: ["M14.5 6l-6 6 6 6"],
  next: ["M9.5 6l6 6-6 6"],
  key: ["M8.5 8.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7z", "M12 12h8.5v3M17 12v2.5"],
  mic: [
    "M12 4a2.8 2.8 0 0 1 2.8 2.8v4.4a2.8 2.8 0 0 1-5.6 0V6.8A2.8 2.8 0 0 1 12 4z",
    "M6.5 11.5a5.5 5.5 0 0 0 11 0",
    "M12 17v3",
  ],
  muted: [
    "M9.2 9.5V6.8a2.8 2.8 0 0 1 5.6 0v4.2",
    "M6.5 11.5a5.5 5.5 0 0 0 8.8 4.4",
    "M17.2 13.4a5.4 5.4 0 0 0 .3-1.9",
    "M12 17v3",
    "M5 5l14 14",
  ],
  speaker: ["M5 10v4h3l4 3.5v-11L8 10z", "M15 9.5a3.5 3.5 0 0 1 0 5", "M17.5 7a7 7 0 0 1 0 10"],
  mark: ["M3.5 16.5 20.5 8", "M7 14.8V20M12 12.3V20M17 9.8V20"],
};

/** One element: `props` are attributes, `on` its listeners, `text` its text; children are nodes or texts. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** One element of a drawing. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    } else if (name === "text") {
      node.textContent = String(value);
    } else if (name === "value") {
      node.value = value;
    } else if (name === "href" || name === "src") {
      const address = safeAddress(value);
      if (address !== null) node.setAttribute(name, address);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** A sign beside a word; it says nothing that the word does not. */
export function icon(name) {
  const shapes = (SHAPES[name] ?? SHAPES.mark).map((d) => svg("path", { d }));
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" }, shapes);
}

/** The name of a tool, which may be broken where its words end. */
export function toolName(id, props = null) {
  const words = visible(id).split(/(?<=_)/);
  return h("code", props, words.flatMap((word, place) => (place ? [h("wbr"), word] : [word])));
}

/** The address if a link may have it: http, https, or a path on this host. Anything else is null. */
export function safeAddress(value) {
  if (typeof value !== "string" || value === "") return null;
  if (/^#[\w/?=&.:%-]*$/.test(value)) return value;
  let address;
  try {
    address = new URL(value, location.origin);
  } catch {
    return null;
  }
  return address.protocol === "http:" || address.protocol === "https:" ? address.href : null;
}

/** A link that leaves the console in a tab of its own, or plain text where its address is not one for a link. */
export function link(address, ...children) {
  const safe = typeof address === "string" && !address.startsWith("#") ? safeAddress(address) : null;
  if (safe === null) return h("span", null, ...children);
  return h("a", { href: safe, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

export function button(label, onClick, { kind = "", sign = null, ...props } = {}) {
  return h(
    "button",
    { type: "button", class: `button ${kind}`.trim(), on: { click: onClick }, ...props },
    sign && icon(sign),
    h("span", { text: label }),
  );
}

/** What a screen reader says, when it has time. */
export function announce(text) {
  const place = document.getElementById("announce");
  place.textContent = "";
  // The same words twice are read twice only if the region was empty between them.
  requestAnimationFrame(() => (place.textContent = text));
}

/** A notice that goes away by itself; it is announced too. */
export function toast(said, kind = "info") {
  const text = visible(String(said ?? ""));
  const signs = { info: "mark", done: "done", failed: "alert" }; // a cross is what takes it away
  const place = document.getElementById("toasts");
  // The same words are on the page already: they are not said twice, they stay longer.
  for (const one of place.children) if (one.dataset.text === text) one.remove();
  const note = h("div", { class: `toast ${kind}`, "data-text": text }, icon(signs[kind] ?? "mark"), h("p", { text }));
  note.append(
    h(
      "button",
      { type: "button", class: "plain", "aria-label": "Dismiss this notice", on: { click: () => note.remove() } },
      icon("failed"),
    ),
  );
  place.append(note);
  setTimeout(() => note.remove(), STAYS[kind] ?? STAYS.info);
  announce(text);
}

let numbers = 0;

/** An id that no other element has. */
export function freshId(prefix) {
  numbers += 1;
  return `${prefix}-${numbers}`;
}

/** A tree of values as readable, indented JSON text. */
export function jsonBlock(value, label) {
  const text = visible(JSON.stringify(value, null, 2) ?? "nothing");
  return h("pre", { class: "json", tabindex: "0", role: "group", "aria-label": label }, h("code", { text }));
}

/** Names and values; a value that is no scalar is shown as JSON. */
export function facts(pairs, className = "facts") {
  const rows = pairs
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => h("div", null, h("dt", { text: visible(name) }), h("dd", null, shown(value))));
  return h("dl", { class: className }, rows);
}

function shown(value) {
  if (value instanceof Node) return value;
  if (typeof value === "object") return jsonBlock(value, "value");
  if (typeof value === "boolean") return value ? "yes" : "no";
  return visible(value);
}

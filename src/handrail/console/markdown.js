// Markdown to elements, the part of it that guides and answers use: headings, paragraphs, lists, code, tables, quotes, rules,
// emphasis and links. Markup in the text stays text, because only `h` makes elements.

import { h, link } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const BULLET = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 8;
const LONGEST = 20_000; // a longer paragraph is shown as it is: nobody writes one, and patterns take their time on it

/** `citation(number)` may give an element for `[1]`; `headingFrom` is the level of the first heading. */
export function markdown(text, { citation = null, headingFrom = 3 } = {}) {
  const lines = String(text ?? "")
    .replaceAll("\t", "    ")
    .split(/\r\n|\r|\n/);
  return blocks(lines, { citation, headingFrom, depth: 0 });
}

function blocks(lines, options) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (line.trim() === "") {
      at += 1;
      continue;
    }
    const [node, next] =
      fence(lines, at) ??
      heading(lines, at, options) ??
      rule(lines, at) ??
      table(lines, at, options) ??
      quote(lines, at, options) ??
      list(lines, at, options) ??
      paragraph(lines, at, options);
    made.push(node);
    at = next;
  }
  return made;
}

function fence(lines, at) {
  const opened = FENCE.exec(lines[at]);
  if (!opened) return null;
  const body = [];
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(opened[1])) {
    body.push(lines[end]);
    end += 1;
  }
  return [
    h(
      "pre",
      { class: "json", tabindex: "0", role: "group", "aria-label": "code" },
      h("code", { text: body.join("\n") }),
    ),
    end + 1,
  ];
}

function heading(lines, at, options) {
  const found = HEADING.exec(lines[at]);
  if (!found) return null;
  const level = Math.min(6, found[1].length - 1 + options.headingFrom);
  return [h(`h${level}`, null, inline(found[2], options)), at + 1];
}

function rule(lines, at) {
  return RULE.test(lines[at]) ? [h("hr"), at + 1] : null;
}

function table(lines, at, options) {
  if (!lines[at].includes("|") || !DIVIDER.test(lines[at + 1] ?? "") || !lines[at + 1].includes("-")) return null;
  const row = (line) =>
    line
      .trim()
      .replace(/^\||\|$/g, "")
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim().replaceAll("\\|", "|"));
  const head = row(lines[at]);
  const body = [];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") {
    body.push(row(lines[end]));
    end += 1;
  }
  const cells = (tag, values) =>
    head.map((_, place) => h(tag, tag === "th" ? { scope: "col" } : null, inline(values[place] ?? "", options)));
  const node = h(
    "div",
    { class: "table-holder", tabindex: "0", role: "group", "aria-label": "table" },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, cells("th", head))),
      h(
        "tbody",
        null,
        body.map((values) => h("tr", null, cells("td", values))),
      ),
    ),
  );
  return [node, end];
}

function quote(lines, at, options) {
  if (!QUOTE.test(lines[at]) || options.depth >= DEEPEST) return null;
  const inner = [];
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) {
    inner.push(QUOTE.exec(lines[end])[1]);
    end += 1;
  }
  return [h("blockquote", null, blocks(inner, { ...options, depth: options.depth + 1 })), end];
}

function list(lines, at, options) {
  const first = BULLET.exec(lines[at]);
  if (!first || options.depth >= DEEPEST) return null;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = BULLET.exec(lines[end]);
    if (!found || found[1].length > first[1].length + 1 || /\d/.test(found[2]) !== ordered || RULE.test(lines[end]))
      break;
    if (found[1].length < first[1].length) break;
    const inner = [found[3]];
    const indent = found[0].length - found[3].length;
    end += 1;
    while (
      end < lines.length &&
      (lines[end].startsWith(" ".repeat(Math.min(indent, 2))) || lines[end].trim() === "" || !startsBlock(lines[end]))
    ) {
      if (lines[end].trim() === "" && !(lines[end + 1] ?? "").startsWith("  ")) break;
      if (lines[end].trim() !== "" && isLabel(lines, end)) break;
      const found = BULLET.exec(lines[end]);
      if (found && found[1].length <= first[1].length) break;
      inner.push(lines[end].slice(Math.min(indent, lines[end].length - lines[end].trimStart().length)));
      end += 1;
    }
    items.push(item(inner, options));
    while (end < lines.length && lines[end].trim() === "" && BULLET.test(lines[end + 1] ?? "")) end += 1;
  }
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  return [h(ordered ? "ol" : "ul", start > 1 ? { start } : null, items), Math.max(end, at + 1)];
}

function item(inner, options) {
  const made = blocks(inner, { ...options, depth: options.depth + 1 });
  // A tight item is a line of text, not a paragraph of its own.
  return h(
    "li",
    null,
    made.flatMap((node) => (node.tagName === "P" && made.indexOf(node) === 0 ? [...node.childNodes] : [node])),
  );
}

/** A line of its own between two lists: what the next one is about, not the rest of the last item. */
function isLabel(lines, at) {
  const line = lines[at];
  if (/^\s/.test(line)) return false;
  return /:(?:\*\*|__)?\s*$/.test(line) || /^(\*\*|__).+\1\s*$/.test(line) || BULLET.test(lines[at + 1] ?? "");
}

const startsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || BULLET.test(line) || QUOTE.test(line);

function paragraph(lines, at, options) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines[end])) end += 1;
  return [
    h(
      "p",
      null,
      inline(
        lines
          .slice(at, end)
          .map((line) => line.trim())
          .join("\n"),
        options,
      ),
    ),
    end,
  ];
}

const INLINE = new RegExp(
  [
    /(?<!`)(?<tick>`{1,3})(?<code>[^`]|[^`].{0,2000}?[^`])\k<tick>(?!`)/,
    /\[(?<cited>\d{1,2})\](?!\()/,
    /\[(?<label>[^\][]+)\]\((?<address>[^()\s]+)\)/,
    /<(?<auto>https?:\/\/[^\s<>]+)>/,
    /(?<bare>https?:\/\/[^\s<>()[\]"']*[^\s<>()[\]"'.,;:!?])/,
    /\*\*(?<strong>[^\s*](?:.{0,2000}?[^\s])?)\*\*/,
    /(?<![\w*])[*_](?<soft>[^\s*_](?:[^*_]*?[^\s*_])?)[*_](?![\w*])/,
  ]
    .map((part) => part.source)
    .join("|"),
  "s",
);

function inline(text, options, depth = 0) {
  const made = [];
  let rest = text;
  while (rest !== "") {
    const found = depth < DEEPEST && rest.length < LONGEST ? INLINE.exec(rest) : null;
    if (!found) break;
    if (found.index) made.push(rest.slice(0, found.index));
    made.push(span(found, options, depth));
    rest = rest.slice(found.index + found[0].length);
  }
  made.push(rest);
  return made.flat().filter((part) => part !== "");
}

function span(found, options, depth) {
  const { code, cited, label, address, auto, bare, strong, soft } = found.groups;
  if (code !== undefined) return h("code", { text: code });
  if (cited !== undefined) return options.citation?.(Number(cited)) ?? found[0];
  if (address !== undefined) return link(address, inline(label, options, depth + 1));
  if (auto !== undefined || bare !== undefined) return link(auto ?? bare, auto ?? bare);
  if (strong !== undefined) return h("strong", null, inline(strong, options, depth + 1));
  return h("em", null, inline(soft, options, depth + 1));
}

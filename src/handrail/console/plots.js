// Small plots as drawings of our own. Each says in words what it shows and comes with its numbers as a table.

import { h, svg } from "./dom.js";

/** Plot and table of the same rows. */
export function figure(title, note, drawing, { columns, rows }) {
  return h(
    "figure",
    { class: "panel plot" },
    h("figcaption", null, h("h2", { text: title }), note && h("p", { class: "quiet", text: note })),
    drawing,
    h("details", { class: "exact" }, h("summary", null, "As a table"), table(columns, rows, title)),
  );
}

export function table(columns, rows, label) {
  return h(
    "div",
    { class: "table-holder", tabindex: "0", role: "group", "aria-label": label },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((name) => h("th", { scope: "col", text: name })),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            null,
            row.map((cell, place) =>
              place === 0 ? h("th", { scope: "row", text: String(cell) }) : h("td", { text: String(cell) }),
            ),
          ),
        ),
      ),
    ),
  );
}

/** One horizontal bar a row: `{label, value, part, word}`; `part` of it is drawn in the colour of failures. */
export function barPlot(rows, label) {
  const most = Math.max(1, ...rows.map((row) => row.value));
  const bar = (kind, from, value) =>
    svg("rect", { class: kind, x: (from / most) * 100, y: 0, width: (value / most) * 100, height: 10 });
  return h(
    "div",
    {
      class: "hbars",
      role: "img",
      "aria-label": `${label}: ${rows.map((row) => `${row.label} ${row.word}`).join("; ")}`,
    },
    rows.map((row) =>
      barRow(row.label, row.word, [
        bar("ground", 0, most),
        bar("fill", 0, row.value),
        row.part ? bar("fill bad", row.value - row.part, row.part) : null,
      ]),
    ),
  );
}

const barRow = (label, word, drawing) =>
  h(
    "div",
    { class: "hbar" },
    h("code", { text: label }),
    svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" }, drawing),
    h("span", { class: "quiet", text: word }),
  );

/** From P50 to P99 as a line with marks, on a logarithmic scale: `{label, p50, p95, p99, limit}`. */
export function rangePlot(rows, label, { unit, limit = null, smallest = 1 }) {
  const all = rows.flatMap((row) => [row.p50, row.p95, row.p99]).filter((value) => value > 0);
  const low = Math.log10(Math.max(smallest / 10, Math.min(smallest, ...all)));
  const high = Math.max(low + 1, Math.log10(Math.max(smallest * 10, limit ?? 0, ...all) * 1.2));
  const x = (value) => ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * 100;
  const marks = [];
  for (let power = Math.ceil(low); power <= high; power += 1) marks.push(10 ** power);
  const line = (kind, value) => svg("line", { class: kind, x1: x(value), x2: x(value), y1: 0, y2: 10 });
  const box = (kind, from, width, height) => svg("rect", { class: kind, x: from, y: 5 - height / 2, width, height });
  return h(
    "div",
    {
      class: "hbars ranges",
      role: "img",
      "aria-label": `${label}: ${rows.map((row) => inWords(row, unit)).join("; ")}`,
    },
    rows.map((row) =>
      barRow(row.label, unit(row.p95), [
        marks.map((mark) => line("grid", mark)),
        limit === null ? null : line("limit", limit),
        box("range", x(row.p50), Math.max(0.6, x(row.p99) - x(row.p50)), 1.6),
        ["p50", "p95", "p99"].map((name) => box(name, x(row[name]) - 0.5, 1, name === "p95" ? 7.6 : 5.6)),
      ]),
    ),
    h(
      "div",
      { class: "hbar scale" },
      h("span"),
      h(
        "div",
        { class: "ticks" },
        marks
          .filter((mark) => x(mark) <= 97)
          .map((mark) => {
            const tick = h("span", { text: unit(mark) });
            tick.style.insetInlineStart = `${x(mark)}%`;
            return tick;
          }),
      ),
      h("span", { class: "quiet", text: "P95" }),
    ),
  );
}

const inWords = (row, unit) => `${row.label} half under ${unit(row.p50)}, 95 of 100 under ${unit(row.p95)}`;

/** A line over time: `points` are `{at, value}` in order. */
export function linePlot(points, label, unit) {
  const width = 600;
  const height = 120;
  const from = points[0]?.at ?? 0;
  const span = Math.max(1, (points.at(-1)?.at ?? 1) - from);
  const most = Math.max(0, ...points.map((point) => point.value));
  const scale = most || 1;
  const place = ({ at, value }) =>
    `${(((at - from) / span) * width).toFixed(1)},${(height - 6 - (value / scale) * (height - 16)).toFixed(1)}`;
  const line = points.map(place).join(" ");
  return h(
    "div",
    { class: "line" },
    svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${label}; newest ${unit(points.at(-1)?.value ?? 0)}, most ${unit(most)}`,
      },
      [0.25, 0.5, 0.75].map((share) =>
        svg("line", { class: "grid", x1: 0, x2: width, y1: height * share, y2: height * share }),
      ),
      points.length > 1 ? svg("polygon", { class: "area", points: `0,${height} ${line} ${width},${height}` }) : null,
      points.length > 1 ? svg("polyline", { class: "stroke", points: line }) : null,
    ),
    h("span", { class: "quiet line-most", text: `now ${unit(points.at(-1)?.value ?? 0)}, most ${unit(most)}` }),
  );
}

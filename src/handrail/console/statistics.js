// How tools were used over days and over all processes: what the store keeps, beside the live numbers of one process.

import { get } from "./api.js";
import { h } from "./dom.js";
import { barPlot, figure, table } from "./plots.js";
import { duration, number } from "./words.js";

const SPANS = [
  ["7d", "7 days"],
  ["30d", "30 days"],
  ["90d", "90 days"],
];

/** A section that loads itself: `node`, and `load` to look again. */
export function statisticsSection() {
  const body = h("div", { class: "metrics" });
  const span = h(
    "select",
    { "aria-label": "Days", on: { change: () => load() } },
    SPANS.map(([value, words]) => h("option", { value, text: words })),
  );
  const node = h(
    "section",
    { class: "statistics", "aria-label": "All processes" },
    h("header", { class: "page-head" }, h("h2", { text: "All processes" }), span),
    body,
  );

  async function load() {
    const since = span.value;
    try {
      const [tools, days] = await Promise.all(["tool", "day"].map((by) => get(`/api/stats?by=${by}&since=${since}`)));
      if (since !== span.value) return;
      const open = body.querySelector("details[open]") !== null;
      body.replaceChildren(...draw(tools.rows, days.rows, tools.since));
      if (open) body.querySelector("details").open = true;
    } catch (error) {
      body.replaceChildren(h("p", { class: "problem", text: error.message }));
    }
  }

  return { node, load };
}

const sum = (counts) => Object.values(counts ?? {}).reduce((total, count) => total + count, 0);
const notOk = (row) => sum(row.errors) + sum(row.refused);
const time = (row, part) => (row.executed ? duration(row.latency[part]) : "–"); // what never ran took no time
const inWords = (row) =>
  notOk(row) ? `${number(row.calls)}, ${number(notOk(row))} not ok` : number(row.calls);

function draw(tools, days, since) {
  const used = days.filter((row) => row.calls);
  if (!used.length) return [h("p", { class: "empty quiet", text: `No call is counted since ${since}.` })];
  const total = (count) => used.reduce((all, row) => all + count(row), 0);
  return [
    h(
      "dl",
      { class: "tiles" },
      [
        ["Calls", total((row) => row.calls)],
        ["Failed", total((row) => sum(row.errors))],
        ["Refused", total((row) => sum(row.refused))],
        ["Declined", total((row) => row.declined)],
        ["Turns", total((row) => sum(row.turns))],
        ["Tokens", total((row) => row.tokens.total)],
      ].map(([name, value]) => h("div", null, h("dt", { text: name }), h("dd", { text: number(value) }))),
    ),
    figure(
      "Calls by day",
      "Days of UTC. The red part was refused or failed.",
      barPlot(
        used.map((row) => ({ label: row.day, value: row.calls, part: notOk(row), word: inWords(row) })),
        "Calls by day",
      ),
      {
        columns: ["Day", "Calls", "Failed", "Refused", "Declined", "P95"],
        rows: used.map((row) => [
          row.day,
          number(row.calls),
          number(sum(row.errors)),
          number(sum(row.refused)),
          number(row.declined),
          time(row, "p95"),
        ]),
      },
    ),
    h(
      "section",
      { class: "panel", "aria-label": "Tools" },
      h("h3", { text: `Tools since ${since}` }),
      table(
        ["Tool", "Calls", "Failed", "Refused", "Declined", "P50", "P95", "P99", "Size P95", "Tokens"],
        tools.map((row) => [
          row.tool,
          number(row.calls),
          number(sum(row.errors)),
          number(sum(row.refused)),
          number(row.declined),
          time(row, "p50"),
          time(row, "p95"),
          time(row, "p99"),
          number(row.size.p95),
          number(row.tokens.total),
        ]),
        "Tools",
      ),
    ),
  ];
}

// Numbers of the process, drawn: how often, how long, how large, how full.

import { get } from "./api.js";
import { h, icon } from "./dom.js";
import { barPlot, figure, linePlot, rangePlot, table } from "./plots.js";
import { statisticsSection } from "./statistics.js";
import { duration, number, plural } from "./words.js";

const EVERY = 3000;
const STORED_EVERY = 10;
const KEPT = 200;
const LARGE = 1500;

export function metricsView() {
  const body = h("div", { class: "metrics" });
  const stored = statisticsSection();
  const updated = h("p", { class: "quiet", role: "status" });
  const node = h(
    "div",
    { class: "page" },
    h("header", { class: "page-head" }, h("h1", { text: "Metrics" }), updated),
    body,
    stored.node,
  );
  const history = [];
  let looks = 0;
  let timer = null;
  let failed = false;

  async function load() {
    if (looks++ % STORED_EVERY === 0) stored.load();
    try {
      const facts = await get("/metrics", { accept: "application/json" });
      remember(history, facts);
      // A table that somebody has opened stays open.
      const open = new Set(
        [...body.querySelectorAll("details[open]")].map((one) => one.closest("[data-plot]")?.dataset.plot),
      );
      const held = document.activeElement?.closest?.("[data-plot]") && body.contains(document.activeElement);
      if (!held || failed) body.replaceChildren(...draw(facts, history));
      for (const one of body.querySelectorAll("[data-plot]"))
        if (open.has(one.dataset.plot)) one.querySelector("details").open = true;
      updated.textContent = `Since this process started; refreshed every ${EVERY / 1000} seconds.`;
      failed = false;
    } catch (error) {
      failed = true;
      body.replaceChildren(h("p", { class: "problem", text: error.message }));
    }
  }

  return {
    node,
    show() {
      looks = 0;
      load();
      timer ??= setInterval(() => !document.hidden && load(), EVERY);
    },
    hide() {
      clearInterval(timer);
      timer = null;
    },
  };
}

function remember(history, facts) {
  const at = Date.now();
  const calls = facts.sessions?.calls ?? 0;
  const last = history.at(-1);
  const value = last ? Math.max(0, ((calls - last.calls) / Math.max(1, at - last.at)) * 60_000) : 0;
  history.push({ at, calls, value });
  if (history.length > KEPT) history.shift();
}

function draw(facts, history) {
  const tools = Object.entries(facts.tools ?? {}).sort(([, a], [, b]) => b.calls - a.calls);
  // A call that waits for a person was neither refused, nor has it failed.
  const errors = (tool) =>
    Object.entries(tool.errors ?? {}).reduce(
      (sum, [type, count]) => sum + (type === "CONFIRMATION_REQUIRED" ? 0 : count),
      0,
    );
  const calls = tools.reduce((sum, [, tool]) => sum + tool.calls, 0);
  const failures = tools.reduce((sum, [, tool]) => sum + errors(tool), 0);
  const context = facts.context ?? {};
  return [
    warnings(facts.warnings),
    h(
      "dl",
      { class: "tiles" },
      [
        ["Calls", number(calls)],
        [
          "Refused or failed",
          failures ? `${number(failures)} · ${Math.round((failures / Math.max(1, calls)) * 100)} %` : "0",
        ],
        ["Sessions open", number(facts.sessions?.open ?? 0)],
        ["Turns", number(facts.sessions?.turns ?? 0)],
        ["Tokens at start", number(context.sessionInitTokens ?? 0)],
        ["Largest context", number(context.peakTokens ?? 0)],
      ].map(([name, value]) => h("div", null, h("dt", { text: name }), h("dd", { text: value }))),
    ),
    !tools.length && h("p", { class: "empty quiet", text: "No tool was called since this process started." }),
    tools.length &&
      mark(
        "rate",
        figure(
          "Calls a minute",
          "As seen since this page was opened.",
          linePlot(
            history,
            "Calls a minute",
            (value) => `${number(Number(value.toFixed(value < 10 ? 1 : 0)))} a minute`,
          ),
          {
            columns: ["Time", "Calls a minute"],
            rows: history.slice(-12).map((point) => [new Date(point.at).toLocaleTimeString(), point.value.toFixed(1)]),
          },
        ),
      ),
    tools.length &&
      mark(
        "calls",
        figure(
          "Calls by tool",
          "The red part was refused or failed.",
          barPlot(
            tools.map(([name, tool]) => ({
              label: name,
              value: tool.calls,
              part: errors(tool),
              word: errors(tool) ? `${number(tool.calls)}, ${number(errors(tool))} not ok` : number(tool.calls),
            })),
            "Calls by tool",
          ),
          {
            columns: ["Tool", "Calls", "Errors by type"],
            rows: tools.map(([name, tool]) => [
              name,
              number(tool.calls),
              Object.entries(tool.errors ?? {})
                .map(([type, count]) => `${type} ${count}`)
                .join(", ") || "none",
            ]),
          },
        ),
      ),
    tools.length &&
      mark(
        "latency",
        figure(
          "How long calls take",
          "From P50 over P95 to P99 of the last 1,000 calls; the scale is logarithmic.",
          rangePlot(
            tools.map(([name, tool]) => ({ label: name, ...percentiles(tool.latency) })),
            "Latency",
            { unit: duration, smallest: 1 },
          ),
          {
            columns: ["Tool", "Average", "P50", "P95", "P99"],
            rows: tools.map(([name, tool]) => [
              name,
              duration(tool.avgDuration),
              duration(tool.latency?.p50),
              duration(tool.latency?.p95),
              duration(tool.latency?.p99),
            ]),
          },
        ),
      ),
    tools.length &&
      mark(
        "size",
        figure(
          "How large responses are",
          `In characters; beyond the line at ${number(LARGE)} they crowd a model's context.`,
          rangePlot(
            tools.map(([name]) => ({ label: name, ...percentiles(facts.responseSizes?.[name]) })),
            "Response size",
            { unit: number, limit: LARGE, smallest: 10 },
          ),
          {
            columns: ["Tool", "P50", "P95", "P99", "Tokens on average"],
            rows: tools.map(([name]) => [
              name,
              ...["p50", "p95", "p99"].map((part) => number(facts.responseSizes?.[name]?.[part] ?? 0)),
              number(facts.responseTokens?.[name]?.avg ?? 0),
            ]),
          },
        ),
      ),
    sessions(facts.sessions),
  ].filter(Boolean);
}

const percentiles = (values) => ({ p50: values?.p50 ?? 0, p95: values?.p95 ?? 0, p99: values?.p99 ?? 0 });

function mark(name, node) {
  node.dataset.plot = name;
  return node;
}

function warnings(list) {
  if (!list?.length) return null;
  return h(
    "ul",
    { class: "warnings", "aria-label": "Warnings" },
    list.map((text) => h("li", { class: "notice" }, icon("alert"), h("span", { text }))),
  );
}

function sessions(facts) {
  const open = Object.entries(facts?.active ?? {});
  if (!open.length) return null;
  return h(
    "section",
    { class: "panel", "aria-label": "Open sessions" },
    h("h2", { text: plural(facts.open, "open session") }),
    table(
      ["Session", "Calls", "Turns", "Age", "Peak context"],
      open
        .slice(-20)
        .map(([id, one]) => [
          id,
          number(one.calls),
          number(one.turns),
          duration(one.duration),
          one.contextWindow
            ? `${number(one.peakContextTokens)} of ${number(one.contextWindow)}`
            : number(one.peakContextTokens),
        ]),
      "Open sessions",
    ),
  );
}

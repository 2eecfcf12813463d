// How long a spoken turn took, as one small bar of four parts.

import { h, svg } from "./dom.js";
import { duration } from "./words.js";

const PARTS = [
  ["hearing", "hearingMs"],
  ["model", "modelMs"],
  ["tools", "toolsMs"],
  ["speaking", "speakingMs"],
];

/** The bar with its words; null if nothing was measured. */
export function latencyView(latency) {
  const parts = PARTS.map(([name, field]) => ({ name, ms: latency?.[field] })).filter(
    ({ ms }) => typeof ms === "number" && ms > 0,
  );
  const whole = parts.reduce((sum, { ms }) => sum + ms, 0);
  if (!whole) return null;
  let from = 0;
  const rects = parts.map(({ name, ms }) => {
    const width = (ms / whole) * 100;
    const rect = svg("rect", { class: `part-${name}`, x: from, y: 0, width, height: 8 });
    from += width;
    return rect;
  });
  const before = parts.filter(({ name }) => name !== "speaking").reduce((sum, { ms }) => sum + ms, 0);
  return h(
    "div",
    { class: "latency", role: "group", "aria-label": "How long this turn took" },
    before > 0 && h("span", { class: "latency-sum", text: `Answer began after ${duration(before)}` }),
    svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, rects),
    h(
      "ul",
      null,
      parts.map(({ name, ms }) =>
        h("li", null, h("i", { class: `part-${name}`, "aria-hidden": "true" }), `${name} ${duration(ms)}`),
      ),
    ),
  );
}

// Beside the conversation: the turn as bars on a line of time, what is left of its budget, what it cost.

import { button, h, icon, svg } from "./dom.js";
import { conversation } from "./conversation.js";
import { duration, number, plural, STATES } from "./words.js";

const NAMES = { retrieval: "Look-ups", total: "Calls in all", latencyMs: "Tool time" };

export function inspectorView() {
  let chosen = null; // a turn's number; null follows the newest
  const title = h("h2", { text: "This turn" });
  const earlier = button("Earlier turn", () => step(-1), { kind: "bare", sign: "back" });
  const later = button("Later turn", () => step(1), { kind: "bare", sign: "next" });
  const short = h("span", { class: "quiet short" });
  const bars = h("ol", { class: "bars" });
  const axis = h("div", { class: "axis", "aria-hidden": "true" });
  const note = h("p", { class: "quiet" });
  const meters = h("div", { class: "meters" });
  const costs = h("p", { class: "quiet costs" });
  const node = h(
    "details",
    { class: "inspector", open: true },
    h("summary", null, h("span", { text: "This turn" }), short),
    h(
      "div",
      { class: "inspector-body" },
      h("header", null, title, h("span", { class: "space" }), earlier, later),
      bars,
      axis,
      note,
      h("h3", { text: "Budget" }),
      meters,
      costs,
    ),
  );

  const wide = matchMedia("(min-width: 1080px)");
  const fit = () => (node.open = wide.matches);
  wide.addEventListener("change", fit);
  fit();

  const turns = () => [...conversation.turns.keys()].sort((a, b) => a - b);
  const turn = () => conversation.turns.get(chosen ?? conversation.turn);

  function step(by) {
    const all = turns();
    const place = all.indexOf(chosen ?? conversation.turn) + by;
    if (place < 0 || place >= all.length) return;
    chosen = all[place] === conversation.turn ? null : all[place];
    draw();
  }

  function draw() {
    const shown = turn();
    const all = turns();
    title.textContent = shown ? `Turn ${shown.number}` : "This turn";
    earlier.disabled = !shown || shown.number <= all[0];
    later.disabled = !shown || shown.number >= all.at(-1);
    if (!shown || !shown.steps.length) {
      bars.replaceChildren();
      axis.replaceChildren();
      note.textContent = shown
        ? "Nothing was called in this turn."
        : "Ask something, and every step of the answer appears here as it happens.";
      costs.textContent = "";
      short.textContent = "";
      return;
    }
    const length = shown.length();
    bars.replaceChildren(...shown.steps.map((one) => bar(one, length, shown)));
    axis.replaceChildren(
      h("span", { text: "0" }),
      h("span", { text: duration(length / 2) }),
      h("span", { text: duration(length) }),
    );
    note.textContent = shown.isMemory
      ? "Calls of an earlier visit, one after the other; the pauses between them are not kept."
      : "";
    costs.textContent = costsOf(shown);
    short.textContent = `${plural(shown.calls().length, "call")} · ${duration(length)}`;
  }

  function drawBudget() {
    const parts = Object.entries(conversation.budget);
    meters.replaceChildren(
      ...(parts.length
        ? parts.map(([name, part]) => meter(name, part))
        : [h("p", { class: "quiet", text: "Counted from the first call on." })]),
    );
  }

  conversation.addEventListener("turn", draw);
  conversation.addEventListener("card", draw);
  conversation.addEventListener("running", draw);
  conversation.addEventListener("budget", drawBudget);
  conversation.addEventListener("reset", () => {
    chosen = null;
    draw();
    drawBudget();
  });
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  setInterval(
    () => {
      const shown = turn();
      if (shown && shown.endedAt === null && conversation.running && !document.hidden) draw();
    },
    calm.matches ? 1000 : 120,
  );
  draw();
  drawBudget();
  return node;
}

function bar(step, length, turn) {
  const end = step.end ?? turn.now();
  const took = Math.max(0, end - step.start);
  const state = STATES[step.state] ?? STATES.running;
  const words =
    step.kind === "model" ? (step.writing ? "writes" : "thinks") : step.kind === "person" ? decision(step) : state.word;
  const fill = svg("rect", {
    x: (step.start / length) * 100,
    y: 0,
    width: Math.max(0.8, (took / length) * 100),
    height: 8,
    rx: 1.2,
  });
  return h(
    "li",
    { "data-state": step.state, "data-kind": step.kind },
    h(
      "span",
      { class: "bar-label" },
      icon(step.kind === "model" ? "chat" : state.sign),
      step.kind === "call" ? h("code", { text: step.label }) : step.label,
      h("span", { class: step.kind === "person" ? "quiet" : "unseen", text: ` ${words}` }),
    ),
    h("span", { class: "bar-time", text: timeOf(step, took) }),
    svg(
      "svg",
      { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "ground", x: 0, y: 0, width: 100, height: 8, rx: 1.2 }),
      fill,
    ),
  );
}

const decision = (step) => (step.took === null ? "are asked" : step.state === "done" ? "approved" : "did not approve");

function timeOf(step, took) {
  if (step.kind === "person") return duration(step.took);
  return step.end === null ? `${duration(took)}…` : duration(step.card?.meta?.duration ?? took);
}

function meter(name, { left, limit }) {
  const label = NAMES[name] ?? name;
  const share = limit ? Math.max(0, Math.min(1, left / limit)) : 0;
  const fill = h("span", { class: "meter-fill" });
  fill.style.inlineSize = `${share * 100}%`;
  const said = `${number(left)} of ${number(limit)}${name.endsWith("Ms") ? " ms" : ""} left`;
  return h(
    "div",
    { class: "meter", "data-low": left === 0 },
    h("span", { class: "meter-name", text: label }),
    h("span", { class: "meter-value", text: said }),
    h(
      "span",
      {
        class: "meter-track",
        role: "meter",
        "aria-label": `${label} left`,
        "aria-valuemin": 0,
        "aria-valuemax": limit,
        "aria-valuenow": left,
        "aria-valuetext": said,
      },
      fill,
    ),
  );
}

function costsOf(turn) {
  const { usage } = turn;
  const parts = [];
  if (turn.rounds) parts.push(plural(turn.rounds, "round"));
  if (usage?.inputTokens !== undefined)
    parts.push(`${number(usage.inputTokens)} tokens in`, `${number(usage.outputTokens ?? 0)} out`);
  if (usage?.leftOut) parts.push(`${plural(usage.leftOut, "old result")} not sent to the model`);
  return parts.join(" · ");
}

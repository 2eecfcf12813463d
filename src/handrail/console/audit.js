// The audit log: what was asked, decided and done, newest first, with filters, a live tail, and the answer to "why was this
// refused".

import { get } from "./api.js";
import { button, facts, h, icon, toolName } from "./dom.js";
import { conversation } from "./conversation.js";
import { Stream } from "./stream.js";
import { clock, duration, listIn, moment, plural } from "./words.js";

const MOST = 1000;
const KINDS = {
  execution: "done",
  refusal: "refused",
  would_refuse: "refused",
  held: "held",
  replay: "done",
  settled: "done",
  switch: "operate",
};
const HEAD = new Set(["event", "ts", "toolId", "callId", "sessionId"]);

export function auditView() {
  const fields = {
    session: input("audit-session", "Session", "any"),
    call: input("audit-call", "Call", "id or key"),
    tool: input("audit-tool", "Tool", "any"),
    event: select("audit-event", "Event", [["", "all events"]]),
    outcome: select("audit-outcome", "Outcome", [
      ["", "any outcome"],
      ["ok", "went well"],
      ["bad", "refused or failed"],
    ]),
    limit: select("audit-limit", "How many", [
      ["100", "100 lines"],
      ["300", "300 lines"],
      ["1000", "1,000 lines"],
    ]),
  };
  const count = h("p", { class: "quiet", role: "status" });
  const live = h("input", { type: "checkbox", id: "audit-live" });
  const list = h("ol", { class: "audit-list" });
  const mine = button(
    "This session",
    () => {
      fields.session.input.value = conversation.session?.sessionId ?? "";
      load();
    },
    { kind: "small" },
  );
  const node = h(
    "div",
    { class: "page" },
    h(
      "header",
      { class: "page-head" },
      h("h1", { text: "Audit" }),
      h("p", { class: "quiet", text: "Every call, decision and outcome, one line each." }),
    ),
    h(
      "form",
      {
        class: "filter-bar panel",
        role: "search",
        "aria-label": "Filter the audit log",
        on: { submit: (event) => (event.preventDefault(), load()) },
      },
      Object.values(fields).map((one) => one.node),
      h(
        "div",
        { class: "filter-actions" },
        h("button", { type: "submit", class: "button primary small", text: "Look" }),
        mine,
        h("label", { class: "box", for: "audit-live" }, live, h("span", { text: "live" })),
      ),
    ),
    count,
    list,
  );
  let events = [];
  let stream = null;

  async function load() {
    const query = new URLSearchParams({ limit: fields.limit.input.value });
    for (const name of ["session", "call"])
      if (fields[name].input.value.trim()) query.set(name, fields[name].input.value.trim());
    try {
      events = listIn(await get(`/api/audit?${query}`), "events", "lines", "items");
      // The log comes oldest first; a reader wants the newest.
      if (events.length > 1 && String(events[0].ts) < String(events.at(-1).ts)) events.reverse();
      draw();
    } catch (error) {
      list.replaceChildren();
      count.replaceChildren(h("span", { class: "problem", text: error.message }));
    }
  }

  function draw() {
    const known = [...new Set(events.map((event) => event.event))].sort();
    const chosen = fields.event.input.value;
    fields.event.input.replaceChildren(
      h("option", { value: "", text: "all events" }),
      ...known.map((name) => h("option", { value: name, text: name })),
    );
    fields.event.input.value = known.includes(chosen) ? chosen : "";
    const shown = events.filter(fits);
    count.textContent = `${plural(shown.length, "line")}${shown.length < events.length ? ` of ${events.length}` : ""}`;
    list.replaceChildren(...shown.map(line));
  }

  function fits(event) {
    const { tool, event: kind, outcome } = fields;
    return (
      (!tool.input.value.trim() || String(event.toolId ?? "").includes(tool.input.value.trim())) &&
      (!kind.input.value || event.event === kind.input.value) &&
      (!outcome.input.value || (outcome.input.value === "ok") === (event.ok !== false))
    );
  }

  function follow() {
    stream?.close();
    stream = null;
    if (!live.checked) return;
    stream = new Stream("/api/audit/stream", {
      resumable: false,
      onState: () => {},
      onEvent: ({ data }) => {
        if (!data?.event) return;
        const wanted = fields.session.input.value.trim();
        if (wanted && data.sessionId !== wanted) return;
        events.unshift(data);
        events.length = Math.min(events.length, MOST);
        if (fits(data)) list.prepend(line(data));
        count.textContent = `${plural(list.children.length, "line")}, live`;
      },
    }).open();
  }

  live.addEventListener("change", follow);
  for (const name of ["tool", "event", "outcome"]) fields[name].input.addEventListener("input", draw);
  fields.limit.input.addEventListener("change", load);
  return {
    node,
    show([call]) {
      if (call) fields.call.input.value = call;
      load();
      follow();
    },
    hide() {
      stream?.close();
      stream = null;
    },
  };
}

function line(event) {
  const bad = event.ok === false;
  const sign =
    bad && event.errorType !== "CONFIRMATION_REQUIRED"
      ? event.event === "execution"
        ? "failed"
        : "refused"
      : event.event?.startsWith("confirmation")
        ? "held"
        : (KINDS[event.event] ?? "mark");
  const body = h("div", { class: "card-body" });
  const node = h(
    "details",
    { class: "card audit-line", "data-state": sign },
    h(
      "summary",
      null,
      h("span", { class: "state" }, icon(sign)),
      h("time", { datetime: event.ts, title: moment(event.ts), text: clock(event.ts) }),
      h("span", { class: "event-name", text: event.event }),
      event.toolId && toolName(event.toolId, { class: "tool-name" }),
      h("span", {
        class: "brief",
        text: event.errorType ? `${event.errorType}${event.gate ? ` by ${event.gate}` : ""}` : "",
      }),
      h("span", { class: "time", text: duration(event.duration) }),
    ),
    body,
  );
  node.addEventListener("toggle", () => node.open && !body.children.length && body.append(...inside(event)), {
    once: true,
  });
  return h("li", null, node);
}

function inside(event) {
  const call = event.callId ?? event.idempotencyKey;
  const answer = h("p", { class: "why", role: "status" });
  const ask =
    call &&
    button(
      event.ok === false ? "Why was this refused?" : "What became of this call?",
      async () => {
        try {
          const found = await get(`/api/audit/why/${encodeURIComponent(call)}`);
          answer.textContent = found?.sentence ?? found?.why ?? String(found);
        } catch (error) {
          answer.textContent = error.message;
        }
      },
      { kind: "small" },
    );
  const rest = Object.entries(event).filter(([name, value]) => !HEAD.has(name) && value !== null);
  return [
    ask && h("div", { class: "ask" }, ask, answer),
    facts([["time", moment(event.ts)], ["session", event.sessionId], ["call", event.callId], ...rest]),
  ].filter(Boolean);
}

function input(id, label, placeholder) {
  const field = h("input", { type: "text", id, placeholder, autocomplete: "off", spellcheck: "false" });
  return { input: field, node: h("div", { class: "field" }, h("label", { for: id, text: label }), field) };
}

function select(id, label, options) {
  const field = h(
    "select",
    { id },
    options.map(([value, text]) => h("option", { value, text })),
  );
  return { input: field, node: h("div", { class: "field" }, h("label", { for: id, text: label }), field) };
}

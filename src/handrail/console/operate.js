// What an operator does: settle calls whose outcome is not known, switch tools off and on, read the policy.

import { get, post } from "./api.js";
import { button, facts, freshId, h, icon, jsonBlock, toast, toolName } from "./dom.js";
import { argumentList } from "./card.js";
import { upstreamServer } from "./upstream.js";
import { listIn, moment, plural } from "./words.js";

export function operateView({ onSwitched }) {
  const outcomes = h("div");
  const switches = h("ul", { class: "switches" });
  const policy = h("div");
  const upstream = h("div");
  const servers = h(
    "section",
    { class: "panel", "aria-labelledby": "servers-title", hidden: true },
    h("h2", { id: "servers-title", text: "MCP servers" }),
    h("p", {
      class: "quiet",
      text: "Their tools are pinned as a person took them. One that changed since is refused until somebody takes the change.",
    }),
    upstream,
  );
  const node = h(
    "div",
    { class: "page" },
    h(
      "header",
      { class: "page-head" },
      h("h1", { text: "Operate" }),
      h("p", {
        class: "quiet",
        text: "What you change here holds for everybody, at once, and is written to the audit log.",
      }),
    ),
    h(
      "section",
      { class: "panel", "aria-labelledby": "outcomes-title" },
      h("h2", { id: "outcomes-title", text: "Outcomes that nobody knows" }),
      h("p", {
        class: "quiet",
        text: "Calls that had begun when their process ended. None runs again by itself: look whether it took effect, and say so.",
      }),
      outcomes,
    ),
    h(
      "section",
      { class: "panel", "aria-labelledby": "switches-title" },
      h("h2", { id: "switches-title", text: "Switches" }),
      h("p", { class: "quiet", text: "A tool that is off is refused everywhere within a second." }),
      switches,
    ),
    servers,
    h(
      "section",
      { class: "panel", "aria-labelledby": "policy-title" },
      h("h2", { id: "policy-title", text: "Policy" }),
      policy,
    ),
  );

  async function load() {
    await Promise.all([
      part(outcomes, async () => {
        const rows = listIn(await get("/api/ledger?state=unknown"), "rows", "calls", "items", "ledger");
        return rows.length
          ? rows.map((row) => unknown(row, load))
          : [h("p", { class: "good" }, icon("done"), "Every outcome is known.")];
      }),
      part(switches, async () =>
        listIn(await get("/api/tools"), "tools", "items").map((tool) =>
          switchLine({ ...tool, id: tool.id ?? tool.toolId }, onSwitched),
        ),
      ),
      part(upstream, async () => {
        const found = listIn(await get("/api/mcp/servers"), "servers");
        servers.hidden = !found.length;
        return found.map(upstreamServer);
      }),
      part(policy, async () => [
        h(
          "details",
          { class: "exact" },
          h("summary", null, "The policy that holds now"),
          jsonBlock(await get("/api/policy"), "policy"),
        ),
      ]),
    ]);
  }

  return { node, show: load };
}

async function part(place, made) {
  try {
    place.replaceChildren(...(await made()));
  } catch (error) {
    place.replaceChildren(h(place.tagName === "UL" ? "li" : "p", { class: "problem", text: error.message }));
  }
}

function unknown(row, reload) {
  const note = h("input", { type: "text", id: freshId("note"), maxlength: 500, autocomplete: "off" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const key = row.key ?? row.idempotencyKey;
  const tool = row.tool ?? row.toolId;

  async function settle(state) {
    try {
      await post(`/api/ledger/${encodeURIComponent(key)}/settle`, { state, note: note.value });
      toast(`Settled: ${tool} ${state === "succeeded" ? "took effect" : "did not take effect"}.`, "done");
      reload();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  }

  return h(
    "article",
    { class: "unknown" },
    h("h3", null, toolName(tool)),
    facts([
      ["Key", key],
      ["Session", row.sessionId ?? row.session],
      ["Turn", row.turn],
      ["Began", row.createdAt ? moment(row.createdAt) : null],
      ["Arguments", argumentList(parsed(row.args))],
    ]),
    h("div", { class: "field" }, h("label", { for: note.id, text: "What you found out" }), note),
    problem,
    h(
      "footer",
      null,
      button("It took effect", () => settle("succeeded"), { sign: "done" }),
      button("It did not", () => settle("failed"), { sign: "failed" }),
    ),
  );
}

function parsed(args) {
  if (typeof args !== "string") return args;
  try {
    return JSON.parse(args);
  } catch {
    return args;
  }
}

function switchLine(tool, onSwitched) {
  let off = tool.switchedOff || null;
  const word = h("span", { class: "switch-word" });
  const reason = h("p", { class: "quiet" });
  const toggle = h(
    "button",
    { type: "button", role: "switch", class: "switch", "aria-label": tool.id },
    h("span", { class: "knob" }),
  );
  const why = h("input", {
    type: "text",
    id: freshId("why"),
    maxlength: 200,
    placeholder: "such as: the calendar is being moved",
    autocomplete: "off",
  });
  const form = h(
    "form",
    {
      class: "why-off",
      hidden: true,
      on: { submit: (event) => (event.preventDefault(), change(why.value.trim() || "switched off in the console")) },
    },
    h("label", { for: why.id, text: "Why? Those who call it see the reason." }),
    why,
    h("button", { type: "submit", class: "button small primary", text: "Switch off" }),
    button(
      "Keep it on",
      () => {
        form.hidden = true;
        toggle.focus();
      },
      { kind: "small" },
    ),
  );

  async function change(value) {
    try {
      await post(`/api/tools/${encodeURIComponent(tool.id)}/switch`, { off: value });
      off = value;
      form.hidden = true;
      toast(`${tool.id} is ${off ? "off" : "on"}.`, "done");
      onSwitched();
      toggle.focus();
    } catch (error) {
      toast(error.message, "failed");
    }
    draw();
  }

  function draw() {
    toggle.setAttribute("aria-checked", String(!off));
    word.textContent = off ? "off" : "on";
    reason.textContent = typeof off === "string" ? off : "";
  }

  toggle.addEventListener("click", () => {
    if (off) {
      change(null);
      return;
    }
    form.hidden = false;
    why.focus();
  });
  draw();
  return h("li", null, h("div", { class: "switch-line" }, toggle, word, toolName(tool.id), reason), form);
}

/** How many outcomes wait to be settled, for the navigation. */
export async function openOutcomes() {
  const rows = listIn(await get("/api/ledger?state=unknown"), "rows", "calls", "items", "ledger");
  return { count: rows.length, words: plural(rows.length, "outcome") };
}

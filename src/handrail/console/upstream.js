// The MCP servers whose tools this project uses: whether they answer, what is pinned, and what they changed since.

import { facts, h, icon, toolName } from "./dom.js";
import { visible } from "./hidden-characters.js";
import { plural } from "./words.js";

const STATES = { ready: "running", starting: "starting", stopped: "not running; the next call starts it", failed: "failed" };
const CHANGES = {
  added: "new, not taken in",
  removed: "no longer offered; refused",
  changed: "changed since it was pinned; refused",
  refused: "refused",
};

export function upstreamServer(server) {
  const changed = new Map(server.changes.map((change) => [change.tool, change]));
  const trouble = server.trouble ? h("p", { class: "problem", text: visible(server.trouble) }) : null;
  const drift = server.changes.length
    ? h(
        "p",
        { class: "problem" },
        icon("failed"),
        `${plural(server.changes.length, "change")} since it was pinned. `,
        h("code", { text: `handrail mcp update ${server.name}` }),
        " shows and takes them.",
      )
    : null;
  return h(
    "article",
    { class: "unknown upstream" },
    h("h3", null, server.name),
    facts([
      ["State", STATES[server.state] ?? server.state],
      ["Place", server.place],
      ["Calls itself", [server.identity.name, server.identity.version].filter(Boolean).join(" ") || null],
      ["Protocol", server.identity.protocol ?? null],
      ["Starts", String(server.starts)],
    ]),
    trouble,
    drift,
    h(
      "details",
      { class: "exact" },
      h("summary", null, `${plural(server.tools.length, "tool")} pinned${server.refused.length ? `, ${server.refused.length} refused` : ""}`),
      h("ul", { class: "switches" }, ...server.tools.map((tool) => pinned(tool, changed.get(tool.name)))),
      ...server.refused.map((one) => h("p", { class: "quiet" }, h("code", { text: visible(one.name) }), ` is refused: ${visible(one.reason)}`)),
    ),
    ...server.changes.filter((change) => change.differences?.length).map(difference),
  );
}

function pinned(tool, change) {
  const words = [tool.sideEffects === "writes" ? "writes" : "reads", tool.confirm ? "asks a person" : "runs at once"];
  return h(
    "li",
    null,
    h("div", null, toolName(tool.toolId), h("p", { class: "quiet", text: change ? CHANGES[change.change] : words.join(", ") })),
    h("code", { class: "quiet", title: tool.pin, text: tool.pin.slice(0, 19) }),
  );
}

function difference(change) {
  return h(
    "details",
    { class: "exact", open: true },
    h("summary", null, `What ${visible(change.tool)} changed`),
    ...change.differences.map((one) =>
      h(
        "div",
        { class: "difference" },
        h("p", null, h("code", { text: visible(one.place) })),
        one.was ? h("pre", { class: "was" }, h("del", { text: visible(one.was) })) : null,
        one.is ? h("pre", { class: "is" }, h("ins", { text: visible(one.is) })) : null,
      ),
    ),
  );
}

// The tools: a list to search, and for each its facts, its guide, and a form to try it through the same pipeline that the model's
// calls pass.

import { get, post } from "./api.js";
import { button, facts, h, icon, jsonBlock, toast, toolName } from "./dom.js";
import { envelopeView, WAITS } from "./card.js";
import { conversation } from "./conversation.js";
import { schemaForm } from "./form.js";
import { stateOf } from "./states.js";
import { markdown } from "./markdown.js";
import { duration, listIn, plural } from "./words.js";

const EFFECTS = { none: "changes nothing", read_only: "only reads", writes: "writes" };

export function catalogueView() {
  const search = h("input", { type: "search", id: "tool-search", placeholder: "Name or word", autocomplete: "off" });
  const category = h(
    "select",
    { id: "tool-category" },
    ["all", "retrieval", "action", "utility"].map((one) =>
      h("option", { value: one, text: one === "all" ? "All categories" : one }),
    ),
  );
  const count = h("p", { class: "quiet", role: "status" });
  const list = h("ul", { class: "tool-list" });
  const detail = h("div", { class: "tool-detail" });
  const node = h(
    "div",
    { class: "catalogue page-split" },
    h("h1", { text: "Tools" }),
    h(
      "section",
      { class: "side", "aria-label": "All tools" },
      h(
        "div",
        { class: "filters" },
        h("label", { class: "unseen", for: "tool-search", text: "Search the tools" }),
        search,
        h("label", { class: "unseen", for: "tool-category", text: "Category" }),
        category,
      ),
      count,
      list,
    ),
    detail,
  );
  let tools = [];
  let shown = null;

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = tools.filter(
      (tool) =>
        (category.value === "all" || tool.category === category.value) &&
        words.every((word) =>
          `${tool.id} ${tool.summary ?? ""} ${tool.description ?? ""}`.toLowerCase().includes(word),
        ),
    );
    count.textContent = plural(fits.length, "tool");
    list.replaceChildren(...fits.map(entry));
  }

  function entry(tool) {
    return h(
      "li",
      null,
      h(
        "a",
        {
          href: `#/tools/${encodeURIComponent(tool.id)}`,
          class: "tool-entry",
          "aria-current": tool.id === shown ? "page" : null,
        },
        toolName(tool.id),
        h("span", { class: "quiet", text: tool.description ?? tool.summary ?? "" }),
        h("span", { class: "badges" }, badges(tool)),
      ),
    );
  }

  async function show(id) {
    shown = id || null;
    node.toggleAttribute("data-chosen", shown !== null);
    if (!tools.length) {
      try {
        tools = listIn(await get("/api/tools"), "tools", "items").map((tool) => ({
          ...tool,
          id: tool.id ?? tool.toolId,
        }));
      } catch (error) {
        detail.replaceChildren(h("p", { class: "problem", text: error.message }));
        return;
      }
    }
    draw();
    if (shown === null) {
      detail.replaceChildren(h("p", { class: "empty quiet", text: "Choose a tool to read its guide and to try it." }));
      return;
    }
    detail.replaceChildren(h("p", { class: "quiet", text: "Loading…" }));
    try {
      const found = await get(`/api/tools/${encodeURIComponent(shown)}`);
      if (shown === id)
        detail.replaceChildren(
          ...toolPage(
            found,
            tools.find((tool) => tool.id === id),
          ),
        );
      detail.querySelector("h2")?.focus({ preventScroll: true });
    } catch (error) {
      detail.replaceChildren(h("p", { class: "problem", text: error.message }));
    }
  }

  search.addEventListener("input", draw);
  category.addEventListener("change", draw);
  conversation.addEventListener("reset", () => (tools = []));
  return { node, show: ([id]) => show(id), forget: () => (tools = []) };
}

function badges(tool) {
  return [
    h("span", { class: "badge", text: tool.category ?? "" }),
    tool.sideEffects === "writes" && h("span", { class: "badge warm", text: "writes" }),
    tool.requiresConfirmation && h("span", { class: "badge warm", text: "asks first" }),
    tool.switchedOff && h("span", { class: "badge bad", text: "switched off" }),
  ].filter(Boolean);
}

function toolPage(found, summary) {
  const definition = found.definition ?? found;
  const tool = { ...summary, ...definition, id: found.id ?? definition.toolId };
  const modes = tool.modes ?? tool.allowedModes ?? [];
  const off = tool.switchedOff;
  return [
    h("a", { class: "back", href: "#/tools" }, icon("back"), "All tools"),
    h(
      "header",
      { class: "tool-head" },
      h("h2", { tabindex: "-1" }, toolName(tool.id)),
      h("span", { class: "quiet", text: `version ${tool.version ?? "?"}` }),
      h("span", { class: "badges" }, badges(tool)),
    ),
    off &&
      h(
        "p",
        { class: "notice" },
        icon("refused"),
        h("span", { text: `Switched off: ${typeof off === "string" ? off : "by an operator"}.` }),
      ),
    h("p", { class: "lead", text: tool.description ?? "" }),
    facts(
      [
        ["Side effects", EFFECTS[tool.sideEffects] ?? tool.sideEffects],
        ["Modes", modes.join(", ")],
        [
          "Confirmation",
          tool.requiresConfirmation
            ? "always"
            : tool.confirmation?.when
              ? `when ${tool.confirmation.when}`
              : "not asked",
        ],
        ["Repeatable", tool.idempotent === undefined ? null : tool.idempotent ? "yes" : "no"],
        ["Expected within", duration(tool.latencyBudgetMs)],
        ["Ended after", duration(tool.timeoutMs)],
        [
          "Limit",
          tool.rateLimit &&
            `${plural(tool.rateLimit.calls, "call")} per ${duration(tool.rateLimit.windowMs)} and ${tool.rateLimit.scope}`,
        ],
        ["Needs", tool.capabilities?.length ? tool.capabilities.join(", ") : null],
      ],
      "facts wide",
    ),
    tryIt(tool, found),
    h(
      "section",
      { class: "guide prose", "aria-label": "Guide" },
      h("h3", { text: "Guide" }),
      markdown(guideBody(found.guide ?? found.documentation), { headingFrom: 3 }),
    ),
    h(
      "details",
      { class: "exact" },
      h("summary", null, "The schema of its arguments"),
      jsonBlock(parametersOf(tool, found), "schema"),
    ),
  ].filter(Boolean);
}

const parametersOf = (tool, found) => found.parameters ?? tool.parameters ?? { type: "object" };
const guideBody = (guide) => String(guide ?? "There is no guide.").replace(/^\s*#\s.*\n/, "");

/** Arguments that the guide shows as examples: JSON blocks that no "Response:" stands before. */
export function examplesIn(guide) {
  const found = [];
  const pattern = /(^|\n)([^\n]*)\n+```json([^\n]*)\n([\s\S]*?)\n```/g;
  for (const match of String(guide ?? "").matchAll(pattern)) {
    if (/Response:\s*$/.test(match[2]) || /response/.test(match[3])) continue;
    try {
      found.push(JSON.parse(match[4]));
    } catch {
      // not an example of arguments
    }
  }
  return found.slice(0, 4);
}

function tryIt(tool, found) {
  const form = schemaForm(parametersOf(tool, found));
  const raw = h("textarea", { id: "try-json", rows: 8, class: "mono", spellcheck: "false" });
  const rawField = h(
    "div",
    { class: "field", hidden: true },
    h("label", { for: "try-json", text: "Arguments as JSON" }),
    raw,
  );
  const asJson = h("input", { type: "checkbox", id: "try-as-json" });
  const general = h("div", { class: "problem", role: "alert", hidden: true });
  const result = h("div", { class: "result", "aria-live": "polite" });
  const go = h("button", { type: "submit", class: "button primary", text: "Run through the pipeline" });
  const examples = examplesIn(found.guide ?? found.documentation);

  asJson.addEventListener("change", () => {
    if (asJson.checked) raw.value = JSON.stringify(form.value(), null, 2);
    else {
      try {
        form.fill(JSON.parse(raw.value || "{}"));
      } catch {
        toast("This is not JSON yet, so the form keeps what it had.", "failed");
      }
    }
    rawField.hidden = !asJson.checked;
    form.node.hidden = asJson.checked;
  });

  function fill(example) {
    form.fill(example);
    raw.value = JSON.stringify(example, null, 2);
  }

  async function submit(event) {
    event.preventDefault();
    general.hidden = true;
    form.complain([]);
    const args = asJson.checked ? lenient(raw.value) : form.value();
    go.disabled = true;
    conversation.trying = tool.id;
    try {
      const envelope = await post(`/api/tools/${encodeURIComponent(tool.id)}/try`, {
        args,
        sessionId: conversation.session?.sessionId,
      });
      const held = envelope.error?.confirmation_request?.id;
      if (held) conversation.tried.add(held);
      show(args, envelope);
      showLater(args, held);
      const left = asJson.checked ? (envelope.error?.details ?? []) : form.complain(envelope.error?.details ?? []);
      if (!envelope.ok && (left.length || !envelope.error?.details?.length))
        complain([
          held ? WAITS : envelope.error.message,
          ...left.map((detail) => `${detail.pointer ?? ""} ${detail.message ?? ""}`.trim()),
        ]);
    } catch (error) {
      complain([error.message]);
    } finally {
      conversation.trying = null;
      go.disabled = false;
    }
  }

  function show(args, envelope) {
    result.replaceChildren(envelopeView(tool.id, args, envelope, stateOf(envelope)));
  }

  /** What became of a try that had to be approved. */
  function showLater(args, id) {
    if (!id) return;
    const listener = ({ detail }) => {
      if (detail.request.id !== id || !detail.envelope) return;
      conversation.removeEventListener("confirmation-closed", listener);
      general.hidden = true;
      show(args, detail.envelope);
    };
    conversation.addEventListener("confirmation-closed", listener);
  }

  function complain(sentences) {
    general.replaceChildren(...sentences.map((text) => h("p", { text })));
    general.hidden = false;
  }

  return h(
    "section",
    { class: "try panel", "aria-label": "Try it" },
    h(
      "header",
      null,
      h("h3", { text: "Try it" }),
      h("span", { class: "space" }),
      h("label", { class: "box", for: "try-as-json" }, asJson, h("span", { text: "as JSON" })),
    ),
    tool.sideEffects === "writes" &&
      h("p", {
        class: "quiet",
        text: tool.requiresConfirmation
          ? "This really runs, after you have approved it."
          : "This really runs, and it changes something.",
      }),
    examples.length
      ? h(
          "div",
          { class: "examples" },
          h("span", { class: "quiet", text: "From the guide:" }),
          examples.map((example, place) => button(`Example ${place + 1}`, () => fill(example), { kind: "small" })),
        )
      : null,
    h("form", { novalidate: true, on: { submit } }, form.node, rawField, general, h("footer", null, go)),
    result,
  );
}

function lenient(text) {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return text;
  }
}

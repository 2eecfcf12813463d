// The card of one tool call: what was asked, what the gates decided, how long it took, what came back.

import { button, facts, h, icon, jsonBlock, toolName } from "./dom.js";
import { duration, gateWords, moment, plural, STATES } from "./words.js";
import { conversation } from "./conversation.js";
import { visible } from "./hidden-characters.js";

/** A card that is made once and then kept up to date, so that it stays open where it was opened. */
export function cardView(card) {
  const sign = h("span", { class: "state" });
  const name = toolName(card.toolId, { class: "tool-name" });
  const word = h("span", { class: "state-word" });
  const time = h("span", { class: "time" });
  const body = h("div", { class: "card-body" });
  const node = h(
    "details",
    { class: "card" },
    h("summary", null, sign, name, h("span", { class: "brief" }, brief(card)), word, time),
    body,
  );
  node.addEventListener("toggle", () => node.open && draw());

  function draw() {
    if (node.open) body.replaceChildren(...inside(card));
  }

  function update() {
    const state = STATES[card.state] ?? STATES.running;
    node.dataset.state = card.state;
    sign.replaceChildren(icon(state.sign));
    word.textContent = card.state === "running" && card.progress ? visible(card.progress) : state.word;
    time.textContent = card.state === "running" ? "" : duration(card.meta?.duration);
    draw();
  }
  update();
  return { node, update };
}

/** The first telling argument, as a hint beside the name. */
function brief(card) {
  const args = card.args && typeof card.args === "object" ? Object.values(card.args) : [];
  const first =
    args.find((value) => typeof value === "string" && value !== "") ??
    args.find((value) => Array.isArray(value) && value.length);
  const text = Array.isArray(first)
    ? first.map(String).join(", ")
    : isMoment(first)
      ? moment(first, "short")
      : String(first ?? "");
  return visible(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

const isMoment = (value) => /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value);

function inside(card) {
  return [
    section("Arguments", argumentList(card.args)),
    section("Gates", gates(card)),
    card.error && section(card.state === "held" ? "Held" : "Error", problem(card)),
    card.citations?.length && section("Found", sources(card.citations)),
    card.data !== undefined && card.data !== null && section("Data", jsonBlock(card.data, `data of ${card.toolId}`)),
  ].filter(Boolean);
}

function section(title, ...content) {
  return h("section", null, h("h3", { text: title }), ...content);
}

/** Names and values of arguments; what cannot be read is shown as it came. */
export function argumentList(args) {
  if (args === undefined || args === null) return h("p", { class: "quiet", text: "None." });
  if (typeof args !== "object" || Array.isArray(args)) return jsonBlock(args, "arguments");
  const pairs = Object.entries(args);
  return pairs.length
    ? facts(pairs.map(([name, value]) => [name, plainValue(value)]))
    : h("p", { class: "quiet", text: "None." });
}

/** A value in a few words; whatever would not be seen as what it is, such as an empty text, as JSON. */
function plainValue(value) {
  const isPlain = (one) => one !== null && typeof one !== "object" && one !== "" && !String(one).includes(", ");
  if (Array.isArray(value) && value.length && value.every(isPlain)) return value.join(", ");
  if (value === "" || value === null || (Array.isArray(value) && value.every((one) => typeof one !== "object")))
    return h("code", { text: JSON.stringify(value) });
  return value;
}

/** What the pipeline decided about the call, each decision in words. */
function gates(card) {
  const meta = card.meta ?? {};
  const listed = (value) => (Array.isArray(value) ? value.join(", ") : String(value));
  const left =
    meta.budget &&
    Object.entries(meta.budget)
      .filter(([, value]) => typeof value === "number")
      .map(([name, value]) => `${name} ${value}`)
      .join(", ");
  const decisions = [
    card.state === "running" && [
      "running",
      card.outlived
        ? "Still running although its turn has ended; its result follows."
        : "Under way; nothing was refused so far.",
    ],
    (card.state === "refused" || card.state === "declined") && [
      "refused",
      `Refused by ${gateWords(card.gate, card.error?.type) ?? "the pipeline"} before the handler started.`,
    ],
    card.state === "held" && ["held", "Passed, then held until a person approves."],
    card.state === "held" &&
      conversation.confirmations.get(card.confirmation)?.replacedBy && [
        "held",
        "Replaced by a newer request; it can still be approved.",
      ],
    card.state === "running" && card.confirmation && ["done", "Approved by a person."],
    card.state === "lapsed" && ["held", "Held for a person's approval, which did not come in time."],
    (card.state === "done" || card.state === "failed") && [
      "done",
      meta.replayed ? "Answered from an earlier run; it did not run again." : "Passed all gates and ran.",
    ],
    card.state === "unknown" && ["unknown", "Passed all gates and started; whether it had an effect is not known."],
    meta.clamped?.length && ["held", `Limited by the mode: ${listed(meta.clamped)}.`],
    meta.defaulted?.length && ["done", `Defaults filled in: ${listed(meta.defaulted)}.`],
    meta.repaired && ["held", "The arguments were repaired before they were checked."],
    meta.unvalidated && ["held", "The tool has no schema, so its arguments were not checked."],
    meta.truncated && ["held", "The result was too long and was cut."],
    meta.attempts > 1 && ["held", `Took ${plural(meta.attempts, "attempt")}.`],
    left && ["done", `Left in this turn: ${left}.`],
  ].filter(Boolean);
  return h(
    "ul",
    { class: "gates" },
    decisions.map(([state, text]) =>
      h("li", { "data-state": state }, icon(STATES[state]?.sign ?? "done"), h("span", { text })),
    ),
  );
}

export const WAITS = "It waits for a person's approval.";

function problem(card) {
  const { error } = card;
  const waiting = card.state === "held" && conversation.confirmations.has(card.confirmation);
  return [
    // The message of a held call tells a model what to do; whoever reads this page is the person who is asked.
    h("p", null, h("span", { class: "badge", text: error.type }), " ", card.state === "held" ? WAITS : visible(error.message)),
    error.suggestion && h("p", { class: "quiet", text: `Advice to the model: ${visible(error.suggestion)}` }),
    error.retryAfter !== undefined &&
      h("p", { class: "quiet", text: `Try again in ${duration(error.retryAfter * 1000)}.` }),
    error.details?.length &&
      h(
        "ul",
        null,
        error.details.map((detail) =>
          h("li", null, detail.pointer && h("code", { text: visible(detail.pointer) }), " ", visible(detail.message ?? "")),
        ),
      ),
    waiting &&
      button("Review the request", () => conversation.tell("review", card.confirmation), {
        kind: "small",
        sign: "held",
      }),
  ].filter(Boolean);
}

/** Citations as a list of places to open. */
export function sources(citations) {
  return h(
    "ul",
    { class: "sources" },
    citations.map((citation) =>
      h(
        "li",
        null,
        button(citation.title || citation.id, () => conversation.tell("source", citation), { kind: "source" }),
        citation.number ? h("span", { class: "quiet", text: ` [${citation.number}]` }) : null,
        h("code", { class: "quiet", text: citation.id }),
      ),
    ),
  );
}

/** An envelope as the catalogue shows it after a try. */
export function envelopeView(toolId, args, envelope, state) {
  const card = {
    toolId,
    args,
    state,
    error: envelope.error ?? null,
    meta: envelope.meta ?? {},
    data: envelope.data,
    gate: envelope.gate,
    citations: [],
  };
  card.confirmation = envelope.error?.confirmation_request?.id;
  const view = cardView(card);
  view.node.open = true;
  view.update();
  return view.node;
}

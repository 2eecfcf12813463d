// Which model answers, and why; an operator may choose another that the server offers. Nothing is sent to it before that.

import { get, post } from "./api.js";
import { button, h, toast } from "./dom.js";
import { visible } from "./hidden-characters.js";

/** The line below the place to write. A server that does not say who answers has none. */
export function answeredBy() {
  const words = h("span", { class: "answered-words" });
  const opener = button("", () => open(current, draw), { kind: "link" });
  const node = h("p", { class: "answered-by quiet", hidden: true }, words, opener);
  let current = null;

  function draw(model) {
    current = model;
    const missing = `no language model is connected${model.broken ? `; ${visible(model.broken)}` : ""}`;
    const name = model.demo ? `demo model (${missing})` : visible(model.model);
    words.textContent = model.model === "none" ? `Nobody answers: ${missing}` : `Answered by: ${name}`;
    words.title = visible(model.sentence ?? "");
    opener.hidden = !(model.ways?.length || model.offers?.length);
    opener.firstChild.textContent = model.ways?.length ? "Connect…" : "Change…";
    node.hidden = false;
  }

  async function load() {
    const model = await get("/api/model").catch(() => null);
    if (typeof model?.model === "string") draw(model);
  }

  return { node, load };
}

function open(model, onChange) {
  const before = document.activeElement;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const dialog = h(
    "dialog",
    { class: "source-dialog model-dialog", "aria-labelledby": "model-title" },
    h(
      "header",
      null,
      h("h2", { id: "model-title", tabindex: "-1", text: "Which model answers" }),
      button("Close", () => dialog.close(), { kind: "bare", sign: "failed" }),
    ),
    h(
      "div",
      { class: "source-body" },
      h("p", { text: visible(model.sentence ?? "") }),
      model.offers?.length ? h("ul", { class: "offers" }, model.offers.map((offer) => offerLine(offer, choose))) : null,
      problem,
      model.ways?.length ? h("h3", { text: "Ways to connect a model" }) : null,
      model.ways?.length ? h("ol", { class: "ways" }, model.ways.map((way) => h("li", null, withCode(way)))) : null,
    ),
  );

  async function choose(name) {
    const buttons = [...dialog.querySelectorAll(".offers button")];
    for (const one of buttons) one.disabled = true;
    try {
      const changed = await post("/api/model", { model: name });
      onChange(changed);
      toast(`From your next message on, ${changed.demo ? "the demo model" : changed.model} answers.`, "done");
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      for (const one of buttons) one.disabled = false;
    }
  }

  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
}

function offerLine(offer, choose) {
  const cost = offer.vendor ? ` Using it sends what is said to ${offer.vendor}, and may cost money.` : "";
  const name = offer.model === "demo" ? "the demo model" : offer.model;
  return h(
    "li",
    null,
    h("p", { text: visible(`${sentence(offer.reason)}${cost}`) }),
    button(`Use ${visible(name)}`, () => choose(offer.model), { kind: "primary" }),
  );
}

const sentence = (clause) => `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;

/** A sentence of the server's, with what stands between back-quotes as code. */
function withCode(text) {
  return visible(text)
    .split("`")
    .map((part, place) => (place % 2 ? h("code", { text: part }) : part));
}

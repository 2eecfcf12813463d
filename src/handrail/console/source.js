// Opens what an answer cites: the record as the knowledge base has it, read through the same pipeline, and its address.

import { post } from "./api.js";
import { button, h, icon, link, safeAddress } from "./dom.js";
import { conversation } from "./conversation.js";
import { markdown } from "./markdown.js";
import { moment } from "./words.js";

const READER = "kb_get";

export function installSources() {
  conversation.addEventListener("source", ({ detail }) => open(detail));
}

async function open(citation) {
  const before = document.activeElement;
  const body = h(
    "div",
    { class: "source-body prose", tabindex: "0", role: "group", "aria-label": "The record" },
    h("p", { class: "quiet", text: "Opening…" }),
  );
  const dialog = h(
    "dialog",
    { class: "source-dialog", "aria-labelledby": "source-title" },
    h(
      "header",
      null,
      h(
        "div",
        null,
        h("p", { class: "quiet" }, h("code", { text: citation.id ?? "" })),
        h("h2", { id: "source-title", tabindex: "-1", text: citation.title ?? citation.id ?? "Source" }),
      ),
      button("Close", () => dialog.close(), { kind: "bare", sign: "failed" }),
    ),
    body,
    safeAddress(citation.url)
      ? h("footer", null, link(citation.url, icon("open"), h("span", { text: "Open at its own address" })))
      : null,
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
  body.replaceChildren(...(await content(citation)));
}

async function content(citation) {
  const given = citation.text ?? citation.snippet;
  const fallback = given
    ? markdown(given)
    : [
        h("p", {
          class: "quiet",
          text: safeAddress(citation.url)
            ? "The record's text cannot be shown here; its address is below."
            : "The record's text cannot be shown here.",
        }),
      ];
  const asked = {
    ids: [citation.id],
    return_fields: ["full_text", "metadata", "sources", "url"],
    ...(citation.namespace ? { namespace: citation.namespace } : {}),
  };
  try {
    const envelope = await post(`/api/tools/${READER}/try`, {
      args: asked,
      sessionId: conversation.session?.sessionId,
    });
    const record = envelope.data?.records?.[0];
    if (envelope.ok && record) return recordView(record);
    return [...fallback, envelope.error && h("p", { class: "quiet", text: envelope.error.message })].filter(Boolean);
  } catch {
    return fallback;
  }
}

function recordView(record) {
  const facts = [record.type, record.source_type, record.last_updated && `updated ${moment(record.last_updated)}`]
    .filter(Boolean)
    .join(" · ");
  return [
    facts && h("p", { class: "quiet", text: facts }),
    ...markdown(record.full_text ?? record.snippet ?? "This record has no text."),
  ].filter(Boolean);
}

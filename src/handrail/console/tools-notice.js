// Tools that were built again while a conversation is open: what changed, what the build found, and how to continue.

import { post } from "./api.js";
import { button, h, icon } from "./dom.js";
import { conversation } from "./conversation.js";
import { visible } from "./hidden-characters.js";
import { plural } from "./words.js";

export function toolsNotice(message) {
  const said = h("span", { text: sentence(message) });
  const notice = h("p", { class: "notice", role: "status" }, icon(message.ok ? "tools" : "alert"), said);
  if (message.ok && message.outdated) {
    const go = button("Continue with the new tools", () => renew(said, go), { kind: "small" });
    notice.append(go);
  }
  return h("div", null, notice, findings(message.findings ?? []));
}

function sentence(message) {
  if (!message.ok) return visible(message.message ?? "The tools could not be built.");
  const names = (message.changed ?? []).map(visible);
  const what = names.length ? ` Changed: ${names.join(", ")}.` : "";
  return `The tools were built again, version ${visible(message.version)}.${what}`;
}

async function renew(said, go) {
  go.disabled = true;
  try {
    const { version } = await post(`/api/sessions/${encodeURIComponent(conversation.session.sessionId)}/tools`);
    said.textContent = `This conversation continues with the new tools, version ${visible(version)}.`;
    go.remove();
  } catch (error) {
    said.textContent = error.message;
    go.disabled = false;
  }
}

function findings(list) {
  if (!list.length) return null;
  return h(
    "details",
    { class: "exact" },
    h("summary", null, plural(list.length, "finding")),
    h(
      "ul",
      null,
      list.map((one) => h("li", { text: visible(`${one.severity} [${one.rule}] ${one.tool}: ${one.message}`) })),
    ),
  );
}

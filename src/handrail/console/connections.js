// A person's connections to other services: which there are, connecting one, coming back from the service, disconnecting.

import { get, post, remove } from "./api.js";
import { button, h, icon, toast } from "./dom.js";
import { conversation } from "./conversation.js";
import { visible } from "./hidden-characters.js";
import { moment } from "./words.js";

const BEGUN = "handrail.connecting"; // the secret of this tab, which only it can come back with
const CALLBACK = "/console/connected";

const place = () => `/api/sessions/${encodeURIComponent(conversation.session.sessionId)}/connections`;

/** Whether this page is where an authorization server has sent the browser. The answer leaves the address at once. */
export function takeAnswerFromAddress() {
  if (location.pathname !== CALLBACK) return null;
  const told = new URLSearchParams(location.search);
  history.replaceState(null, "", "/#/connections");
  const answer = {};
  for (const name of ["state", "code", "error", "iss"]) if (told.has(name)) answer[name] = told.get(name);
  return answer;
}

/** Bring the answer of the service to the server. */
export async function complete(answer) {
  const browser = sessionStorage.getItem(BEGUN) ?? "";
  sessionStorage.removeItem(BEGUN);
  if (!browser) {
    toast("This tab has begun no connection; connect again.", "failed");
    return;
  }
  try {
    const made = await post(place(), { ...answer, browser });
    toast(`${visible(made.label)} is connected.`, "done");
  } catch (error) {
    toast(error.message, "failed");
  }
}

/** Go to the service. */
export async function connect(name) {
  const secret = Array.from(crypto.getRandomValues(new Uint8Array(24)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const { url } = await post(`${place()}/${encodeURIComponent(name)}`, { browser: secret });
  const address = new URL(url);
  if (address.protocol !== "https:" && address.protocol !== "http:") throw new Error("The service has no address for a browser.");
  sessionStorage.setItem(BEGUN, secret);
  location.assign(address.href);
}

export function connectionsView() {
  const list = h("ul", { class: "connections" });
  const who = h("p", { class: "quiet" });
  const node = h(
    "div",
    { class: "page" },
    h(
      "header",
      { class: "page-head" },
      h("h1", { text: "Connections" }),
      h("p", {
        class: "quiet",
        text: "Accounts of yours that tools may use when they work for you, and for nobody else. The assistant never sees your password or a token.",
      }),
      who,
    ),
    h("section", { class: "panel", "aria-label": "Your connections" }, list),
  );

  async function load(wanted) {
    try {
      const { connections, user } = await get(place());
      who.textContent = user ? `You are ${visible(user)}.` : "This session has no user, so nothing can be connected.";
      const lines = connections.map((one) => line(one, load));
      list.replaceChildren(
        ...(lines.length ? lines : [h("li", { class: "quiet", text: "This host has no services to connect." })]),
      );
      if (wanted) list.querySelector(`[data-connection="${CSS.escape(wanted)}"] button`)?.focus();
    } catch (error) {
      list.replaceChildren(h("li", { class: "problem", text: error.message }));
    }
  }

  return { node, show: ([wanted]) => load(wanted) };
}

function line(one, reload) {
  const word = one.problem ? "cannot be used" : one.connected ? "connected" : "not connected";
  const sign = one.problem ? "alert" : one.connected ? "done" : "plus";
  const since = one.connected && one.since ? ` since ${moment(one.since)}` : "";
  const acts = [];
  if (!one.connected || one.problem) {
    const label = one.problem ? "Connect again" : `Connect ${visible(one.label)}`;
    acts.push(connectButton(label, one.name));
  }
  if (one.connected || one.problem) acts.push(button("Disconnect", () => end(one, reload), { kind: "small" }));
  return h(
    "li",
    { "data-connection": one.name, "data-state": one.connected ? "connected" : "open" },
    h(
      "div",
      { class: "connection-line" },
      icon(sign),
      h(
        "div",
        { class: "connection-facts" },
        h("h2", { text: visible(one.label) }),
        h("p", { class: one.problem ? "problem" : "quiet", text: one.problem || `${word}${since}` }),
        one.scopes.length ? h("p", { class: "quiet scopes" }, "May use: ", one.scopes.map((scope) => h("code", { text: visible(scope) }))) : null,
      ),
      h("div", { class: "connection-acts" }, acts),
    ),
  );
}

/** A button that goes to the service; also where a call has wanted a connection. */
export function connectButton(label, name, look = { kind: "primary small", sign: "open" }) {
  const made = button(
    label,
    async () => {
      made.disabled = true;
      try {
        await connect(name);
      } catch (error) {
        made.disabled = false;
        toast(error.message, "failed");
      }
    },
    look,
  );
  return made;
}

async function end(one, reload) {
  try {
    const { unrevoked } = await remove(`${place()}/${encodeURIComponent(one.name)}`);
    toast(unrevoked ? `Disconnected. ${unrevoked}` : `${visible(one.label)} is disconnected.`, unrevoked ? "failed" : "done");
    reload();
  } catch (error) {
    toast(error.message, "failed");
  }
}

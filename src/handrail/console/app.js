// The console's shell: the key, the navigation, which view is shown, the theme, and the state of the connection.

import { ApiError, door, forgetKey, forgetSession, get, key, setKey, takeKeyFromAddress, takeTicketFromAddress } from "./api.js";
import { auditView } from "./audit.js";
import { button, h, icon, toast } from "./dom.js";
import { catalogueView } from "./catalogue.js";
import { chatView } from "./chat.js";
import { complete, connectionsView, takeAnswerFromAddress } from "./connections.js";
import { installConfirmations } from "./confirm.js";
import { conversation } from "./conversation.js";
import { conversationsView, installConversations } from "./conversations.js";
import { installSources } from "./source.js";
import { metricsView } from "./metrics.js";
import { openOutcomes, operateView } from "./operate.js";
import { voiceMark } from "./voice-bar.js";
import { voice } from "./voice.js";

const THEME = "handrail.theme";
const PLACES = [
  { id: "chat", name: "Chat" },
  { id: "tools", name: "Tools" },
  { id: "connections", name: "Connections", hidden: () => !hasConnections },
  { id: "metrics", name: "Metrics", operator: true },
  { id: "audit", name: "Audit", operator: true },
  { id: "operate", name: "Operate", operator: true },
];

const main = document.getElementById("main");
const rail = document.getElementById("rail");
const views = {};
let isOperator = false;
let hasConnections = false;
let answered = null; // what an authorization server has sent this page back with
let shown = null;
let isOpening = false;

// --------------------------------------------------------------------------------------------------------- theme
function applyTheme() {
  const chosen = localStorage.getItem(THEME);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

function themeButton() {
  const order = ["auto", "light", "dark"];
  const node = h("button", { type: "button", class: "bare theme" });
  const now = () => localStorage.getItem(THEME) ?? "auto";
  const draw = () => {
    const signs = { auto: "auto", light: "sun", dark: "moon" };
    const label = `Theme: ${now() === "auto" ? "as the system has it" : now()}`;
    node.replaceChildren(icon(signs[now()]), h("span", { class: "unseen", text: label }));
    node.title = label;
  };
  node.addEventListener("click", () => {
    const next = order[(order.indexOf(now()) + 1) % order.length];
    if (next === "auto") localStorage.removeItem(THEME);
    else localStorage.setItem(THEME, next);
    applyTheme();
    draw();
  });
  draw();
  return node;
}

// ---------------------------------------------------------------------------------------------------- navigation
function drawRail() {
  const places = PLACES.filter((place) => (!place.operator || isOperator) && !place.hidden?.());
  const conversations = conversationsView({ onChange: toChat });
  rail.replaceChildren(
    h(
      "a",
      { class: "brand", href: "#/chat" },
      h("span", { class: "emblem" }, icon("mark")),
      h("span", { text: "Handrail" }),
    ),
    h(
      "nav",
      { "aria-label": "Views" },
      h(
        "ul",
        null,
        places.map((place) =>
          h(
            "li",
            null,
            h(
              "a",
              { href: `#/${place.id}`, "data-place": place.id },
              icon(place.id),
              h("span", { text: place.name }),
              h("span", { class: "count", hidden: true }),
            ),
          ),
        ),
      ),
    ),
    conversations.section,
    h(
      "div",
      { class: "rail-foot" },
      isOperator
        ? null
        : h("p", { class: "quiet rail-note", text: "Metrics, audit and switches need a key with the operator role." }),
      voiceMark(),
      connectionView(),
      conversations.opener,
      button("New conversation", renew, { kind: "small renew", sign: "plus", title: "New conversation" }),
      h(
        "div",
        { class: "rail-actions" },
        themeButton(),
        button("Change the key", changeKey, { kind: "bare", sign: "key", title: "Change the key" }),
      ),
    ),
  );
  markPlace();
}

function connectionView() {
  const node = h("p", { class: "connection", role: "status" });
  const words = {
    live: "Connected",
    connecting: "Connecting…",
    closed: "Not connected",
    refused: "The session is gone",
  };
  const draw = () => {
    const { state, retryAt } = conversation.connection;
    const left = Math.max(1, Math.ceil(((retryAt ?? 0) - Date.now()) / 1000));
    const text = state === "waiting" ? `Reconnecting in ${left} s` : words[state];
    if (node.dataset.state === state && node.textContent === text) return;
    node.dataset.state = state;
    node.replaceChildren(h("i", { "aria-hidden": "true" }), h("span", { text }));
    if (state === "waiting") node.append(button("Now", () => conversation.stream?.hurry(), { kind: "link" }));
  };
  conversation.addEventListener("connection", draw);
  setInterval(() => conversation.connection.state === "waiting" && draw(), 1000);
  draw();
  return node;
}

function markPlace() {
  for (const one of rail.querySelectorAll("[data-place]")) {
    if (one.dataset.place === shown) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

function route() {
  const parts = location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .map((part) => safely(() => decodeURIComponent(part), part));
  const place = PLACES.find((one) => one.id === parts[0] && (!one.operator || isOperator)) ?? PLACES[0];
  if (shown && shown !== place.id) views[shown]?.hide?.();
  const first = shown === null;
  const changed = shown !== place.id;
  shown = place.id;
  markPlace();
  document.title = `${place.name} · Handrail console`;
  const view = viewOf(place.id);
  if (changed) {
    main.dataset.view = place.id;
    main.replaceChildren(view.node);
  }
  view.show?.(parts.slice(1));
  if (place.id === "chat") view.focus();
  else if (changed && !first) main.focus({ preventScroll: true });
}

function viewOf(id) {
  const makers = {
    chat: chatView,
    tools: catalogueView,
    connections: connectionsView,
    metrics: metricsView,
    audit: auditView,
    operate: () => operateView({ onSwitched: () => views.tools?.forget() }),
  };
  views[id] ??= makers[id]();
  return views[id];
}

function safely(made, otherwise) {
  try {
    return made();
  } catch {
    return otherwise;
  }
}

// ----------------------------------------------------------------------------------------------------- the start
async function learnRole() {
  try {
    await get("/api/policy");
    isOperator = true;
  } catch (error) {
    if (error.status === 401) throw error;
    isOperator = false;
  }
}

async function anyConnections() {
  const place = `/api/sessions/${encodeURIComponent(conversation.session.sessionId)}/connections`;
  const { connections } = await get(place).catch(() => ({ connections: [] }));
  return connections.length > 0;
}

async function countOutcomes() {
  if (!isOperator) return;
  const { count, words } = await openOutcomes().catch(() => ({ count: 0 }));
  const badge = rail.querySelector('[data-place="operate"] .count');
  if (!badge) return;
  badge.hidden = !count;
  badge.replaceChildren(String(count), h("span", { class: "unseen", text: ` ${words} to settle` }));
}

async function begin() {
  main.replaceChildren(h("p", { class: "empty quiet", text: "Opening…" }));
  isOpening = true;
  try {
    await learnRole();
    await conversation.start();
    hasConnections = await anyConnections();
    if (answered) await complete(answered);
    answered = null;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401)
      askForKey(key() ? "The server does not know this key." : null);
    else failedToStart(error);
    return;
  } finally {
    isOpening = false;
  }
  shown = null;
  drawRail();
  route();
  countOutcomes();
}

function failedToStart(error) {
  rail.replaceChildren();
  main.replaceChildren(
    h(
      "div",
      { class: "gate" },
      h("span", { class: "emblem" }, icon("mark")),
      h("h1", { text: "The console could not start" }),
      h("p", { class: "problem", role: "alert", text: error.message }),
      button("Try again", begin, { kind: "primary" }),
    ),
  );
}

function askForKey(problem) {
  rail.replaceChildren();
  const field = h("input", {
    type: "password",
    id: "key",
    name: "key",
    autocomplete: "off",
    required: true,
    "aria-describedby": "key-help",
  });
  const submit = (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    setKey(field.value.trim());
    forgetSession();
    begin();
  };
  main.replaceChildren(
    h(
      "form",
      { class: "gate", on: { submit } },
      h("span", { class: "emblem" }, icon("mark")),
      h("h1", { text: "Handrail console" }),
      h("p", {
        class: "quiet",
        id: "key-help",
        text: "Give the key that the server printed at its first start, or one of an operator. It is kept in this tab only.",
      }),
      h("div", { class: "field" }, h("label", { for: "key", text: "Key" }), field),
      problem && h("p", { class: "problem", role: "alert", text: problem }),
      h("button", { type: "submit", class: "button primary", text: "Enter" }),
    ),
  );
  field.focus();
}

/** The key has ended: whatever is open of its session is taken away before another key is asked for. */
function signOut() {
  if (isOpening || shown === null) return;
  views[shown]?.hide?.();
  shown = null;
  if (voice.isOn) voice.over();
  conversation.leave();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  askForKey("The server does not know this key any more.");
}

function changeKey() {
  conversation.stream?.close();
  forgetKey();
  forgetSession();
  location.reload();
}

async function renew() {
  try {
    if (voice.isOn) voice.over();
    await conversation.renew();
    toChat();
  } catch (error) {
    toast(error.message, "failed");
  }
}

function toChat() {
  location.hash = "#/chat";
  views.chat?.focus();
}

applyTheme();
takeKeyFromAddress();
await takeTicketFromAddress();
answered = takeAnswerFromAddress();
installConfirmations();
installConversations();
installSources();
addEventListener("hashchange", () => {
  if (/^#key=/.test(location.hash)) {
    takeKeyFromAddress();
    begin();
  } else if (shown !== null) route();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
conversation.addEventListener("lost", async ({ detail }) => {
  if (detail.status === 401) return signOut();
  forgetSession();
  await conversation.begin().then(
    () => toast("The session has ended; a new one was begun.", "info"),
    (error) => error.status === 401 || toast(error.message, "failed"),
  );
});
door.addEventListener("closed", signOut);
if (key()) begin();
else askForKey(null);

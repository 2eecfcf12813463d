// The list of conversations: go back to one, begin a new one, delete one. In a wide window it stands in the rail; in a narrow one a
// button opens it.

import { get, remove } from "./api.js";
import { announce, button, h, icon, toast } from "./dom.js";
import { conversation } from "./conversation.js";
import { voice } from "./voice.js";
import { listIn, plural, sinceWords } from "./words.js";

const SETTLES = 250; // milliseconds: what comes together is asked for once
const AGAIN = 60_000; // the times are written anew, and what happened in other tabs
const CHANGES = ["reset", "finished", "confirmation", "confirmation-closed"];

let known = [];
const lists = new Set();
let asking = null;

/** Ask the server for the list, a little later: one answer may change several things. */
function refresh() {
  clearTimeout(asking);
  asking = setTimeout(async () => {
    if (!conversation.session) return;
    known = listIn(await get("/api/sessions").catch(() => known), "sessions");
    for (const draw of lists) draw();
  }, SETTLES);
}

/** Begin to follow what changes the list. */
export function installConversations() {
  for (const change of CHANGES) conversation.addEventListener(change, refresh);
  conversation.addEventListener("left", () => {
    known = [];
    for (const draw of lists) draw();
  });
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  setInterval(() => document.hidden || refresh(), AGAIN);
}

/** The list for the rail, and the button that opens it where the rail has no room; `onChange` after another was chosen. */
export function conversationsView({ onChange }) {
  lists.clear(); // those of the rail that this one takes the place of
  const list = listView({ onChange });
  const section = h(
    "section",
    { class: "conversations", "aria-label": "Conversations" },
    h("h2", { text: "Conversations" }),
    list.node,
  );
  const mark = h("span", { class: "count", hidden: true });
  const opener = button("Conversations", () => openList({ onChange }), {
    kind: "bare list-opener",
    sign: "list",
    title: "Conversations",
  });
  opener.append(mark);
  lists.add(() => {
    const waiting = elsewhere();
    mark.hidden = !waiting;
    mark.replaceChildren(String(waiting), h("span", { class: "unseen", text: " wait for you in other conversations" }));
  });
  return { section, opener };
}

const isCurrent = (one) => one.sessionId === conversation.session?.sessionId;
const elsewhere = () => known.filter((one) => one.waiting && !isCurrent(one)).length;

function listView({ onChange }) {
  const empty = h("p", { class: "quiet", text: "What you talk about is listed here." });
  const list = h("ul", { class: "conversation-list" });
  const rows = new Map(); // by session, so that the focus stays while the list is written anew

  function draw() {
    const now = known.map((one) => {
      if (!rows.has(one.sessionId)) rows.set(one.sessionId, rowView({ onChange }));
      const row = rows.get(one.sessionId);
      row.update(one);
      return row.node;
    });
    for (const id of rows.keys()) if (!known.some((one) => one.sessionId === id)) rows.delete(id);
    if (now.length !== list.children.length || now.some((node, place) => list.children[place] !== node))
      list.replaceChildren(...now);
    empty.hidden = known.length > 0;
  }

  lists.add(draw);
  draw();
  return { node: h("div", null, empty, list), close: () => lists.delete(draw) };
}

function rowView({ onChange }) {
  let shown = null;
  const [title, about] = [h("span", { class: "conversation-title" }), h("span", { class: "conversation-about" })];
  const choose = h("button", { type: "button", class: "conversation", on: { click: () => go(shown, onChange) } }, title, about);
  const drop = button("Delete", () => deleted(shown, onChange), { kind: "bare delete", sign: "bin" });
  return {
    node: h("li", null, choose, drop),
    update(one) {
      shown = one;
      title.textContent = one.title;
      const state = one.waiting
        ? [icon("held"), h("strong", { text: one.waiting === 1 ? "waits for you" : `${plural(one.waiting, "request")} wait` })]
        : [h("span", { text: one.answering ? "answering…" : sinceWords(one.updatedAt) })];
      about.replaceChildren(...state);
      choose.title = one.title;
      drop.title = `Delete “${one.title}”`;
      drop.lastElementChild.textContent = drop.title;
      if (isCurrent(one)) choose.setAttribute("aria-current", "true");
      else choose.removeAttribute("aria-current");
    },
  };
}

async function go({ sessionId, token, title }, onChange) {
  if (!isCurrent({ sessionId })) {
    try {
      if (voice.isOn) voice.over();
      await conversation.change({ sessionId, token });
      announce(`Conversation: ${title}`);
    } catch (error) {
      toast(error.status === 404 || error.status === 410 ? "This conversation is gone." : error.message, "failed");
      return refresh();
    }
  }
  onChange();
}

async function deleted(one, onChange) {
  if (!(await agreed(one))) return;
  try {
    const path = `/api/sessions/${encodeURIComponent(one.sessionId)}`;
    if (isCurrent(one)) await conversation.end();
    else await remove(path, { token: one.token });
  } catch (error) {
    toast(error.message, "failed");
  }
  refresh();
  onChange();
}

function agreed({ title, waiting }) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { class: "confirm small-dialog", "aria-labelledby": "agree-title" },
      h("h2", { id: "agree-title", text: "Delete this conversation?" }),
      h("p", { class: "about-to-go", text: title }),
      h("p", {
        class: "quiet",
        text: waiting
          ? "What was said in it is deleted, and the request that waits in it is not run."
          : "What was said in it is deleted. What was done in it stays done.",
      }),
      h(
        "footer",
        null,
        h("span", { class: "space" }),
        button("Keep it", () => dialog.close("no")),
        button("Delete it", () => dialog.close("yes"), { kind: "primary" }),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** The list over the page, for windows in which the rail has no room for it. */
function openList({ onChange }) {
  const before = document.activeElement;
  const done = () => {
    dialog.close();
    onChange();
  };
  const list = listView({ onChange: done });
  const dialog = h(
    "dialog",
    { class: "source-dialog list-dialog", "aria-labelledby": "list-title" },
    h(
      "header",
      null,
      h("h2", { id: "list-title", tabindex: "-1", text: "Conversations" }),
      button("Close", () => dialog.close(), { kind: "bare", sign: "failed" }),
    ),
    list.node,
  );
  dialog.addEventListener("close", () => {
    list.close();
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
  refresh();
}

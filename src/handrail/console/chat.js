// The conversation: what was said, the calls between, and the place to write.

import { announce, button, h, icon, link, toast, toolName } from "./dom.js";
import { get, headers, serverTime } from "./api.js";
import { cardView, sources } from "./card.js";
import { connectButton } from "./connections.js";
import { conversation } from "./conversation.js";
import { visible } from "./hidden-characters.js";
import { inspectorView } from "./inspector.js";
import { markdown } from "./markdown.js";
import { answeredBy } from "./model.js";
import { phaseOf, runningFor, runWords } from "./running.js";
import { toolsNotice } from "./tools-notice.js";
import { voiceBar, voiceButton, voiceElsewhere } from "./voice-bar.js";
import { latencyView } from "./voice-latency.js";
import { voice } from "./voice.js";
import { countdown, listIn, moment } from "./words.js";

/** What one might ask of Handrail's own tools, by the tool that it needs. */
const IDEAS = {
  kb_search: "What is Handrail?",
  calendar_get_availability: "When am I free tomorrow?",
  calendar_create_event: "Book a meeting with ana@example.com tomorrow at 3 pm",
};
const MOST_IDEAS = 3;
const MOST_SUGGESTIONS = 6;
const LONGEST_ANSWER = 3; // so few words may be meant as the answer to a request that waits
const NEAR = 120; // so close to the end, the view follows what is written

export function chatView() {
  const log = h("div", { class: "log", role: "log", "aria-label": "Conversation", "aria-live": "off" });
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Messages" }, log);
  const waiting = h("div", { class: "waiting" });
  const composer = composerView();
  const model = answeredBy();
  const node = h(
    "div",
    { class: "chat" },
    h("h1", { class: "unseen", text: "Chat" }),
    h("h2", { class: "unseen", text: "Conversation" }),
    h("div", { class: "talk" }, scroller, h("div", { class: "foot" }, waiting, voiceElsewhere(), voiceBar(), composer.node, model.node)),
    h("aside", { class: "beside", "aria-label": "The turn" }, inspectorView()),
  );
  const views = new Map();
  const running = new WeakMap();
  let left = Infinity; // where the reader was when the view was last taken away; at first, and where it was the end: the end

  function add(item) {
    if (views.has(item)) return;
    log.querySelector(".welcome")?.remove();
    const view = viewOf(item);
    views.set(item, view);
    const after = views.get(conversation.items[conversation.items.indexOf(item) + 1])?.node ?? null;
    following(() => log.insertBefore(view.node, after), item.kind === "user");
  }

  /** Change something, and stay at the end if the reader was there. */
  function following(change, always = false) {
    const stays = always || isAtEnd();
    change();
    if (!scroller.isConnected) left = always ? Infinity : left;
    else if (stays && conversation.items.length) scroller.scrollTop = scroller.scrollHeight;
  }

  const isAtEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;

  /** What is not in the page has no height: where to stand is known only when it is there again. */
  function show() {
    model.load();
    if (left === null) return;
    scroller.scrollTop = Math.min(left, scroller.scrollHeight);
    left = null;
  }

  function hide() {
    left = conversation.items.length && isAtEnd() ? Infinity : scroller.scrollTop;
  }

  function redraw() {
    views.clear();
    log.replaceChildren();
    if (conversation.items.length) for (const item of conversation.items) add(item);
    else log.append(welcome(composer));
    const place = conversation.items.length ? Infinity : 0; // an empty one is read from its beginning
    if (scroller.isConnected) scroller.scrollTop = Math.min(place, scroller.scrollHeight);
    else left = place;
  }

  function drawWaiting() {
    const lines = [...conversation.confirmations.values()].map((one) => (one.run ? lineOf(one).node : waitingLine(one)));
    following(() => waiting.replaceChildren(...lines));
  }

  /** The line of a call that runs, made once: its button keeps the focus while the call tells how it continues. */
  function lineOf(request) {
    if (!running.has(request)) running.set(request, runningLine(request));
    return running.get(request);
  }

  function drawRunning({ detail: request } = {}) {
    const isThere = request && (request.run ? waiting.contains(lineOf(request).node) : !running.delete(request));
    if (request && !isThere) drawWaiting();
    for (const one of conversation.confirmations.values()) if (one.run) lineOf(one).update();
  }

  conversation.addEventListener("reset", () => {
    redraw();
    drawWaiting();
  });
  conversation.addEventListener("added", ({ detail }) => add(detail));
  conversation.addEventListener("item", ({ detail }) => {
    following(() => views.get(detail)?.update());
  });
  conversation.addEventListener("card", ({ detail: card }) => {
    for (const view of views.values()) view.card?.(card);
  });
  conversation.addEventListener("confirmation", drawWaiting);
  conversation.addEventListener("confirmation-closed", drawWaiting);
  conversation.addEventListener("confirmation-runs", drawRunning);
  conversation.addEventListener("connection", () => drawRunning());
  conversation.addEventListener("finished", ({ detail }) => {
    // What is heard need not be read out once more.
    if (!(detail.voice && (voice.able.sound || voice.able.speaks))) announce(spokenAnswer(detail));
  });
  setInterval(() => {
    for (const clock of waiting.querySelectorAll("[data-until]"))
      clock.textContent = countdown(Number(clock.dataset.until) - serverTime());
    drawRunning();
  }, 1000);
  redraw();
  drawWaiting();
  return { node, show, hide, focus: () => composer.focus() };
}

function spokenAnswer(item) {
  if (item.problem) return item.problem;
  const text = item.parts
    .filter((part) => part.kind === "text")
    .map((part) => part.text)
    .join(" ")
    .trim();
  return text ? `Answer: ${text.slice(0, 1500)}` : "The turn is over.";
}

/** What a request is about, so that two of one tool can be told apart. */
function firstLine(preview) {
  return visible(String(preview ?? "").split("\n", 1)[0].slice(0, 300));
}

function waitingLine(request) {
  return h(
    "div",
    { class: "held-line" },
    icon("held"),
    h(
      "p",
      null,
      h("strong", { text: "Waiting for your approval: " }),
      toolName(request.tool),
      " ",
      request.replacedBy && [h("span", { class: "badge", text: "Replaced by a newer request" }), " "],
      h("span", {
        class: "quiet digits",
        "data-until": new Date(request.expires_at).getTime(),
        text: countdown(new Date(request.expires_at).getTime() - serverTime()),
      }),
      h("span", { class: "held-about", text: firstLine(request.preview) }),
    ),
    button("Review", () => conversation.tell("review", request.id), { kind: "small" }),
  );
}

/** A call that was approved and has not ended; its dialog shows more of it. */
function runningLine(request) {
  const [sign, state] = [h("span", { class: "run-sign" }), h("strong")];
  const [time, about] = [h("span", { class: "quiet digits" }), h("span", { class: "held-about" })];
  const node = h(
    "div",
    { class: "held-line" },
    sign,
    h("p", null, state, toolName(request.tool), " ", time, about),
    button("Show", () => conversation.tell("review", request.id), { kind: "small" }),
  );
  function update() {
    const phase = phaseOf(request);
    if (node.dataset.phase !== phase) sign.replaceChildren(icon(phase === "lost" ? "alert" : "running"));
    node.dataset.phase = phase;
    state.textContent = phase === "lost" ? "Connection lost: " : "Running: ";
    time.textContent = countdown(runningFor(request));
    about.textContent = runWords(request);
  }
  update();
  return { node, update };
}

/** Beginnings that the tools of this session can do something about. What one would have to say to a model for the tools of a
 *  project nobody knows here, but each has a form in which it can be tried. */
function ideas(composer) {
  const list = h("ul", { class: "ideas" });
  const offer = (text, act) =>
    list.append(
      h(
        "li",
        null,
        h("button", { type: "button", class: "idea", on: { click: act } }, h("span", null, text), icon("next")),
      ),
    );
  const there = new Set(conversation.session?.tools ?? Object.keys(IDEAS));
  for (const [tool, idea] of Object.entries(IDEAS)) if (there.has(tool)) offer(idea, () => composer.send(idea));
  if (list.children.length) return list;
  get("/api/tools")
    .then((found) => {
      const tools = listIn(found, "tools").filter((one) => there.has(one.id) && one.category !== "utility");
      for (const { id, summary, description } of tools.slice(0, MOST_IDEAS)) {
        const words = String(summary ?? description ?? "").replace(/\.\s*$/, "");
        offer([`Try `, toolName(id), words && `: ${words}`], () => (location.hash = `#/tools/${encodeURIComponent(id)}`));
      }
    })
    .catch(() => null); // without them one still can write
  return list;
}

function welcome(composer) {
  return h(
    "div",
    { class: "welcome" },
    h("span", { class: "emblem" }, icon("mark")),
    h("h2", { text: "Ask, and watch what is done about it." }),
    h("p", {
      class: "quiet",
      text: "Every call that the model makes passes the gates before it runs. Whatever changes something waits for you.",
    }),
    ideas(composer),
  );
}

// --------------------------------------------------------------------------------------------------------- items
function viewOf(item) {
  if (item.kind === "user") return userView(item);
  if (item.kind === "answer") return answerView(item);
  return messageView(item.message);
}

function userView(item) {
  const problem = h("p", { class: "problem", hidden: true });
  const bubble = h("p", { class: "bubble" });
  const node = h("article", { class: "said by-user", "aria-label": "You" }, bubble, problem);
  const update = () => {
    bubble.textContent = item.text;
    problem.hidden = item.state !== "failed";
    problem.textContent = item.state === "failed" ? `Not sent: ${item.problem}` : "";
    node.dataset.state = item.state;
  };
  update();
  return { node, update };
}

function answerView(item) {
  const parts = h("div", { class: "parts" });
  const status = h("p", { class: "status" });
  const cited = h("footer", { class: "cited" });
  const took = h("div", { class: "took" });
  const next = h("div");
  const node = h("article", { class: "said by-model", "aria-label": "Answer" }, parts, status, cited, took, next);
  const made = new Map();

  function update() {
    for (const part of item.parts) {
      if (!made.has(part)) {
        made.set(part, part.kind === "tool" ? cardView(part) : textView(part, item));
      }
    }
    const nodes = item.parts.map((part) => made.get(part).node);
    // Only what is new is moved: a card that is open and has the focus stays where it is.
    nodes.forEach(
      (one, place) => parts.children[place] !== one && parts.insertBefore(one, parts.children[place] ?? null),
    );
    while (parts.children.length > nodes.length) parts.lastChild.remove();
    for (const part of item.parts) if (part.kind === "text") made.get(part).update();
    status.replaceChildren(...statusOf(item));
    took.replaceChildren(...[latencyView(item.latency)].filter(Boolean));
    cited.replaceChildren(
      ...(item.done && item.citations?.length ? [h("h3", { text: "Sources" }), sources(item.citations)] : []),
    );
    next.replaceChildren(...(item.done && item.suggestions?.length ? [suggestionsView(item.suggestions)] : []));
  }
  update();
  return { node, update, card: (card) => made.get(card)?.update() };
}

/** What the model suggests to say next; pressing one says it. The style hides them once something was said. */
function suggestionsView(suggestions) {
  const list = h("ul", { class: "ideas", "aria-label": "Suggestions" });
  for (const text of suggestions.slice(0, MOST_SUGGESTIONS))
    list.append(
      h(
        "li",
        null,
        h(
          "button",
          { type: "button", class: "idea", on: { click: () => conversation.tell("suggested", String(text)) } },
          h("span", { text: visible(String(text)) }),
          icon("next"),
        ),
      ),
    );
  return list;
}

function statusOf(item) {
  if (item.problem) return [h("span", { class: "problem" }, icon("failed"), item.problem)];
  if (item.stopped) return [h("span", { class: "quiet", text: "Stopped." })];
  if (item.done) return [];
  return [
    h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")),
    h("span", { class: "unseen", text: "Answering" }),
  ];
}

function textView(part, item) {
  const node = h("div", { class: "prose" });
  let shown = null;
  let scheduled = false;
  const citation = (value) => {
    const found =
      item.citations?.find((one) => one.number === value) ??
      (item.citations?.some((one) => one.number) ? null : item.citations?.[value - 1]);
    if (!found) return null;
    return h(
      "button",
      {
        type: "button",
        class: "mark",
        "aria-label": `Source ${value}: ${found.title ?? found.id}`,
        on: { click: () => conversation.tell("source", found) },
      },
      String(value),
    );
  };
  function draw() {
    scheduled = false;
    const key = `${part.text}\u0000${item.citations?.length ?? 0}\u0000${part.settled ?? ""}`;
    if (key === shown) return;
    shown = key;
    node.classList.toggle("settled", Boolean(part.settled));
    node.replaceChildren(
      ...(part.settled ? [h("p", { class: "settled-when", text: part.settled })] : []),
      ...markdown(item.done ? withoutSources(part.text, item.citations) : part.text, { citation }),
    );
  }
  return {
    node,
    update() {
      if (item.done || shown === null) draw();
      else if (!scheduled) {
        scheduled = true;
        requestAnimationFrame(draw);
      }
    },
  };
}

/** The text without a list of sources that says no more than the one below it. */
function withoutSources(text, citations) {
  if (!citations?.length) return text;
  return text.replace(
    /(^|\n\n)(?:\*\*)?Sources:?(?:\*\*)?:?\n+((?:[-*] )?\[\d{1,2}\][^\n]*(?:\n(?:[-*] )?\[\d{1,2}\][^\n]*)*)(?=\n\n|\s*$)/,
    (all, before, lines) =>
      lines
        .split("\n")
        .every((line) => citations.some((one) => line.includes(one.id) || (one.url && line.includes(one.url))))
        ? ""
        : all,
  );
}

/** A message that a tool sent to the user's client. */
function messageView(message) {
  const node = h("article", { class: "said by-tool", "aria-label": "Message of a tool" });
  const kind = message?.type;
  if (kind === "image") {
    const words = message.caption ?? message.alt ?? "An image";
    const address = message.url ?? message.image_url ?? message.imageUrl;
    const own = typeof address === "string" && address.startsWith("/") && !address.startsWith("//");
    node.append(
      h(
        "figure",
        null,
        own ? ownImage(address, words) : link(address, "Open the image"),
        h("figcaption", { text: words }),
        drawnBy(message.engine),
      ),
    );
  } else if (kind === "timeout") {
    const farewell = message.farewellMessage ?? message.message ?? "The assistant has stopped answering for a while.";
    const until = message.until ?? message.timeoutUntil ?? message.ends;
    node.append(
      h(
        "p",
        { class: "notice" },
        icon("refused"),
        h("span", {
          text: [farewell, until && `Until ${moment(until)}.`].filter(Boolean).join(" "),
        }),
      ),
    );
  } else if (kind === "voice_session_start") {
    const talk = button("Talk", () => voice.start(), { kind: "small" });
    voice.addEventListener("state", () => (talk.hidden = voice.isOn));
    talk.hidden = voice.isOn;
    node.append(
      h(
        "p",
        { class: "notice" },
        icon("mic"),
        h("span", { text: "The assistant asks to continue by voice." }),
        talk,
      ),
    );
  } else if (kind === "tools_changed") {
    node.append(toolsNotice(message));
  } else if (kind === "connection_wanted") {
    const label = visible(message.label);
    node.append(
      h(
        "p",
        { class: "notice" },
        icon("key"),
        h("span", { text: `This needs your account at ${label}. Only you see this; the assistant does not.` }),
        connectButton(`Connect ${label}`, message.connection, { kind: "small" }),
      ),
    );
  } else {
    node.append(
      h(
        "p",
        { class: "notice" },
        icon("mark"),
        h("span", { text: message?.text ?? message?.message ?? JSON.stringify(message) }),
      ),
    );
  }
  return { node, update() {} };
}

/** What has drawn an image: whoever looks at a placeholder must not take it for a picture. */
function drawnBy(engine) {
  if (typeof engine !== "string" || !engine) return null;
  const text = engine.startsWith("placeholder")
    ? "A placeholder: no image model has drawn this."
    : `Drawn by ${visible(engine)}.`;
  return h("p", { class: "quiet drawn-by", text });
}

/** An image of this host. It is asked for with the key, which an img element could not send, and painted. */
function ownImage(address, words) {
  const canvas = h("canvas", { width: 1, height: 1, role: "img", "aria-label": words });
  fetch(address, { headers: headers(), credentials: "omit" })
    .then((answer) => (answer.ok ? answer.blob() : Promise.reject(new Error("not there"))))
    .then(createImageBitmap)
    .then((image) => {
      [canvas.width, canvas.height] = [image.width, image.height];
      canvas.getContext("2d").drawImage(image, 0, 0);
    })
    .catch(() => canvas.replaceWith(h("p", { class: "quiet", text: "The image cannot be shown." })));
  return canvas;
}

// ------------------------------------------------------------------------------------------------------ composer
function composerView() {
  const field = h("textarea", {
    id: "message",
    name: "message",
    rows: 1,
    maxlength: 20000,
    placeholder: "Ask something…",
    "aria-describedby": "composer-help",
    autocomplete: "off",
  });
  const act = h("button", { type: "submit", class: "send" });
  const node = h(
    "form",
    { class: "composer", on: { submit } },
    h("label", { class: "unseen", for: "message", text: "Your message" }),
    field,
    voiceButton(),
    act,
    h("p", { class: "unseen", id: "composer-help", text: "Enter sends; Shift and Enter begin a new line." }),
  );

  function grow() {
    field.style.blockSize = "auto";
    field.style.blockSize = `${Math.min(field.scrollHeight + 2, 220)}px`;
  }

  function draw() {
    const stops = conversation.running;
    act.replaceChildren(icon(stops ? "stop" : "send"), h("span", { class: "unseen", text: stops ? "Stop" : "Send" }));
    act.title = stops ? "Stop the answer" : "Send";
    act.classList.toggle("stops", stops);
  }

  async function submit(event) {
    event.preventDefault();
    if (conversation.running) {
      await conversation.cancel().catch((error) => toast(error.message, "failed"));
      return;
    }
    await send(field.value);
  }

  async function send(text) {
    const words = text.trim();
    if (!words || conversation.running) return;
    if (field.value.trim() === words) field.value = "";
    grow();
    field.focus();
    announce("Sent.");
    if (conversation.waiting().length && words.split(/\s+/).length <= LONGEST_ANSWER)
      toast("Typed words approve nothing: press Review, then Approve or Decline.");
    await conversation.say(words).catch((error) => {
      if (!field.value) field.value = words;
      grow();
      toast(error.message, "failed");
    });
  }

  field.addEventListener("input", grow);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!conversation.running) node.requestSubmit();
  });
  conversation.addEventListener("running", draw);
  conversation.addEventListener("reset", draw);
  conversation.addEventListener("suggested", ({ detail: text }) => send(text));
  voice.addEventListener("state", () => {
    const words = voice.state === "connecting" || voice.hears ? "Talk, or type here…" : "Type here…";
    field.placeholder = voice.isOn ? words : "Ask something…";
    if (voice.mustType) field.focus();
  });
  draw();
  return { node, send, focus: () => field.focus() };
}

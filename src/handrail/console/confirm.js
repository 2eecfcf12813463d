// The confirmation dialog: what would be done, in the words of the trusted preview and with the exact arguments, and how long
// there is to decide. It can be put aside; the request then waits in the conversation until it is decided or over.

import { announce, button, freshId, h, icon, toast, toolName } from "./dom.js";
import { argumentList } from "./card.js";
import { clockView } from "./clock-view.js";
import { conversation } from "./conversation.js";
import { RUNNING, runningFor, runView } from "./running.js";
import { showingView } from "./showing.js";
import { questionView } from "./voice-question.js";
import { voice } from "./voice.js";
import { visible } from "./hidden-characters.js";

const SPOKEN_WITHIN = 500; // milliseconds in which a verdict by voice is shown here, on a line of its own
const LINGERS = 4000; // milliseconds: who has waited longer for a call is shown its end in the dialog
const ASKED_BY = { assistant: "The assistant asked to run ", operator: "You asked to try " };
const ELSEWHERE = {
  carried_out: ["was approved and carried out", "done"],
  declined: ["was declined and not run", "info"],
  failed: ["was approved but could not be carried out", "failed"],
  unknown: ["was approved, and whether it had an effect is not known", "failed"],
};

/** Listens to the conversation and shows one request at a time. */
export function installConfirmations() {
  const putAside = new Set();
  let shown = null;

  /** `isFresh` says of a request whether its facts were looked up just now. */
  function next(isFresh = () => false) {
    if (shown) return;
    const waiting = conversation.waiting().find((request) => !putAside.has(request.id));
    if (waiting) open(waiting, isFresh(waiting));
  }

  function open(request, isFresh = false) {
    shown = dialogFor(request, {
      isFresh,
      onAside: () => putAside.add(request.id),
      onClosed: () => {
        shown = null;
        next();
      },
    });
  }

  conversation.addEventListener("confirmation", ({ detail }) => {
    if (shown?.id === detail.id) shown.draw();
    next((request) => request === detail);
  });
  conversation.addEventListener("reset", () => {
    putAside.clear();
    if (!conversation.confirmations.has(shown?.id)) shown?.close();
    next(() => true);
  });
  conversation.addEventListener("left", () => shown?.close());
  conversation.addEventListener("review", ({ detail: id }) => {
    const request = conversation.confirmations.get(id);
    if (!request) return;
    putAside.delete(id);
    if (!shown) open(request);
  });
  conversation.addEventListener("confirmation-closed", ({ detail }) => {
    if (shown?.id === detail.request.id) shown.settled(detail.state);
    else if (detail.request.deciding) report(detail.request, detail.request.ended);
    if (!detail.request.deciding) tellElsewhere(detail.request, detail.state);
  });
}

function dialogFor(request, { isFresh, onAside, onClosed }) {
  const [title, words] = [freshId("confirm-title"), freshId("confirm-words")];
  const before = document.activeElement;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const clock = clockView(request);
  const question = questionView(request);
  const approve = button("Approve", (click) => decide("approve", click), { kind: "primary", sign: "done" });
  const decline = button("Decline", (click) => decide("decline", click), { sign: "failed" });
  const later = button("Decide later", () => aside(), { kind: "plain" });
  const showing = showingView(request, words, [approve, decline]);
  const [heading, about] = [h("h2", { id: title, text: "Do you approve this?" }), h("p", { class: "quiet" })];
  about.append(ASKED_BY[conversation.askedBy(request)] ?? "A call waits for ", toolName(request.tool));
  const stamp = h("span", { class: "stamp" }, icon("held"));
  const run = runView(request, { onChange: (phase) => runs(phase) });
  const dialog = h(
    "dialog",
    { class: "confirm", "aria-labelledby": title, "aria-describedby": words },
    h(
      "form",
      { method: "dialog", on: { submit: (event) => event.preventDefault() } },
      h(
        "header",
        null,
        stamp,
        h("div", null, heading, about),
      ),
      showing.node,
      h("details", { class: "exact" }, h("summary", null, "The exact arguments"), argumentList(request.args)),
      question.node,
      clock.node,
      run.node,
      problem,
      h("footer", null, later, h("span", { class: "space" }), decline, approve),
    ),
  );
  let isOver = false;
  let closedAs = null; // how it was decided, told from outside while the dialog was there

  async function decide(verdict, click) {
    if (isOver || dialog.dataset.busy) return; // pressed twice is pressed once
    if (!showing.takes(click)) return;
    problem.hidden = true;
    dialog.dataset.busy = verdict;
    for (const one of [approve, decline]) one.setAttribute("aria-disabled", "true");
    try {
      const outcome = await conversation.decide(request.id, verdict);
      if (outcome.stays) complain(outcome.message);
      else ended(outcome);
    } catch (error) {
      complain(error.message);
    }
  }

  /** The call was approved, here or elsewhere: there is nothing to decide any more, and something to wait for. */
  function runs(phase) {
    if (isOver || dialog.dataset.phase === phase) return;
    dialog.dataset.phase = phase;
    const [words, sign] = RUNNING[phase];
    heading.textContent = words;
    stamp.replaceChildren(icon(sign));
    for (const one of [approve, decline, clock.node, question.node]) one.hidden = true;
    question.close();
    problem.hidden = true;
    later.querySelector("span").textContent = "Hide";
  }

  /** It was approved and could not be carried out for now: it can be decided once more. */
  function asksAgain() {
    delete dialog.dataset.phase;
    run.node.hidden = true;
    heading.textContent = "Do you approve this?";
    stamp.replaceChildren(icon("held"));
    later.querySelector("span").textContent = "Decide later";
    for (const one of [approve, decline, clock.node]) one.hidden = false;
  }

  /** It was decided here, and this is what became of it. */
  function ended(outcome) {
    if (isOver || dialog.dataset.ended) return;
    const isWell = outcome.state === "approved" || outcome.state === "declined";
    if (isWell) report(request, outcome);
    if (isWell && !(request.run && runningFor(request) > LINGERS)) return close();
    dialog.dataset.ended = dialog.dataset.phase = outcome.state;
    clearInterval(ticking);
    const { title, sign } = run.end(outcome);
    heading.textContent = title;
    stamp.replaceChildren(icon(sign));
    for (const one of [approve, decline, clock.node, question.node]) one.hidden = true;
    later.querySelector("span").textContent = "Close";
    later.classList.replace("plain", "primary");
    later.focus();
  }

  function complain(text) {
    if (closedAs) return tellElsewhere(request, closedAs); // somebody else was quicker
    delete dialog.dataset.busy;
    if (dialog.dataset.phase) asksAgain();
    showing.wait();
    problem.textContent = visible(text);
    problem.hidden = false;
  }

  function aside() {
    if (!dialog.dataset.ended) {
      onAside();
      announce(request.run ? "Hidden. The call continues." : "Put aside. The request waits in the conversation.");
    }
    close();
  }

  function close() {
    if (isOver) return;
    isOver = true;
    clearInterval(ticking);
    question.close();
    run.close();
    showing.close();
    if (dialog.open) dialog.close();
    dialog.remove();
    if (before?.isConnected) before.focus();
    else document.getElementById("message")?.focus();
    onClosed();
  }

  function tick() {
    if (request.run || !clock.update()) return; // what was approved in time is not over with it
    for (const one of [approve, decline]) one.hidden = true;
    later.querySelector("span").textContent = "Close";
    question.close();
    question.node.remove(); // it would say the same
    complain("The time is over; nothing was run. Ask again if you still want it.");
    clearInterval(ticking);
    conversation.close(request, "expired");
  }

  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    aside();
  });
  document.body.append(dialog);
  dialog.showModal();
  // Not on a button: a key that was meant for the composer must not decide.
  heading.tabIndex = -1;
  heading.focus();
  if (!isFresh && !request.run) showing.wait(conversation.look(request));
  const ticking = setInterval(tick, 250);
  tick();
  run.draw();
  function settled(state) {
    if (state === "expired" || dialog.dataset.ended) return;
    if (request.deciding) return ended(request.ended);
    closedAs = state;
    close();
  }
  return { id: request.id, close, settled, draw: showing.draw };
}

/** Decided in another tab, or before a reload: a dialog that closes by itself leaves the person wondering. */
function tellElsewhere(request, state) {
  const [words, kind] = ELSEWHERE[state] ?? [];
  if (words) setTimeout(() => voice.verdicts.has(request.id) || toast(`${request.tool} ${words}.`, kind), SPOKEN_WITHIN);
}

function report(request, outcome) {
  if (outcome.state === "approved") toast(`Approved: ${request.tool} was carried out.`, "done");
  else if (outcome.state === "declined") toast(`Declined: ${request.tool} was not run.`, "info");
  else toast(outcome.message, "failed");
}

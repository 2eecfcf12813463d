// What becomes of an approved call, as its dialog and the line above the composer show it: that it runs and for how long, what it
// tells of itself, that the server is away and what is known meanwhile, and how it ended.

import { h, toolName } from "./dom.js";
import { conversation } from "./conversation.js";
import { visible } from "./hidden-characters.js";
import { countdown, duration } from "./words.js";

const TICK = 500;

export const RUNNING = {
  sent: ["Your approval is on its way", "running"],
  running: ["Approved, and running", "running"],
  lost: ["The connection to the server is lost", "alert"],
};
const ENDS = {
  approved: { title: "Done", sign: "done", words: ["", " was carried out."] },
  declined: { title: "Declined", sign: "refused", words: ["", " was not run."] },
  failed: { title: "It could not be carried out", sign: "failed", words: ["", " failed."] },
  unknown: { title: "The outcome is not known", sign: "alert", words: ["Nobody knows whether ", " had an effect."] },
  closed: { title: "This request is closed", sign: "held", words: ["", " is no longer waiting."] },
};

/** What an approved call is doing: `lost` while the server cannot be asked. */
export function phaseOf(request) {
  const { run } = request;
  return conversation.connection.state === "waiting" || run.state === "lost" ? "lost" : run.state;
}

/** How long it has been running. */
export const runningFor = (request) => performance.now() - request.run.since;

/** The newest of what the call told of itself; else what is known of it. */
export function runWords(request) {
  const told = request.run.progress.at(-1);
  if (phaseOf(request) !== "lost") return told != null ? visible(told) : request.run.hasStarted ? "It runs." : "Your approval is on its way.";
  if (!request.run.hasStarted)
    return "Your approval may not have arrived. It is sent again when the server is back, and the call runs once at most.";
  return "The call had started. How it ended is shown when the server is back; it is not run a second time.";
}

/** The part of the dialog that takes the place of the countdown; `close` when the dialog is gone. */
export function runView(request, { onChange }) {
  const words = h("p", { class: "run-words", role: "status" });
  const time = h("span", { class: "digits", role: "timer" });
  const told = h("ol", { class: "run-told", "aria-label": "What it told before" });
  const since = h("span", { class: "quiet", text: "Running for" });
  const node = h(
    "div",
    { class: "run", hidden: true },
    told,
    words,
    h("div", { class: "countdown" }, since, time, h("span", { class: "track" }, h("span", { class: "left" }))),
  );
  let ended = null;

  function draw() {
    if (ended || !request.run) return;
    const phase = phaseOf(request);
    node.hidden = false;
    node.dataset.phase = phase;
    const text = runWords(request);
    if (words.textContent !== text) words.textContent = text;
    time.textContent = countdown(runningFor(request));
    since.textContent = phase === "running" ? "Running for" : "Since your approval";
    tellEarlier(phase === "lost" ? request.run.progress : request.run.progress.slice(0, -1));
    onChange(phase);
  }

  function tellEarlier(lines) {
    told.hidden = !lines.length;
    told.replaceChildren(...lines.map((text) => h("li", { text: visible(text) })));
  }

  const onRuns = ({ detail }) => detail === request && draw();
  conversation.addEventListener("confirmation-runs", onRuns);
  conversation.addEventListener("connection", draw);
  const ticking = setInterval(draw, TICK);

  function close() {
    clearInterval(ticking);
    conversation.removeEventListener("confirmation-runs", onRuns);
    conversation.removeEventListener("connection", draw);
  }

  function endWords({ state, message }, [before, after]) {
    if (state === "approved" || !message) return [before, toolName(request.tool), after];
    if (state !== "unknown") return [visible(message)];
    const isSaid = message.includes("not known");
    const whatToDo = ' Have somebody look before it is tried again; an operator settles it under "Operate".';
    return [...(isSaid ? [] : [before, toolName(request.tool), `${after} `]), visible(message), whatToDo];
  }

  return {
    node,
    draw,
    close,
    /** How it ended: the title and the sign for the dialog. */
    end(outcome) {
      ended = outcome;
      close();
      const { title, sign, words: around } = ENDS[outcome.state] ?? ENDS.closed;
      node.hidden = false;
      node.dataset.phase = outcome.state;
      words.replaceChildren(...endWords(outcome, around));
      since.textContent = "It took";
      time.textContent = request.run ? duration(runningFor(request)) : "";
      time.parentElement.hidden = outcome.state === "unknown" || !time.textContent;
      tellEarlier(request.run?.progress ?? []);
      return { title, sign };
    },
  };
}

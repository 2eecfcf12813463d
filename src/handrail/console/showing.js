// What a request would do, as its dialog shows it, and since when an answer counts. Only what is pressed after it was shown answers
// it: the buttons wait a moment, and a click or a key that began before that decides nothing.

import { h, icon } from "./dom.js";
import { visible } from "./hidden-characters.js";

const READ_FIRST = 600; // milliseconds: longer than a double click takes, shorter than reading it
const CHANGED = "This has changed since it was first shown. Please read it again.";
const REPLACED = "A newer request has replaced this one. Approve it only if you want both.";

let pressedAt = -Infinity;
const keysDown = new Map(); // since when each is held

addEventListener("pointerdown", ({ timeStamp }) => (pressedAt = timeStamp), true);
addEventListener("keydown", ({ code, repeat, timeStamp }) => repeat || keysDown.set(code, timeStamp), true);
// A click by the space bar follows its release.
addEventListener("keyup", ({ code }) => setTimeout(() => keysDown.delete(code)), true);
addEventListener("blur", () => keysDown.clear());

/** When the press began that this click is the end of. */
function beganAt(click) {
  return click.detail > 0 ? pressedAt : Math.min(click.timeStamp, ...keysDown.values());
}

/** The preview of a request with what has to be said about it; `buttons` answer it. `close` when the dialog is gone. */
export function showingView(request, id, buttons) {
  const replaced = h("p", { class: "shown-note", hidden: true }, icon("alert"), h("span", { text: REPLACED }));
  const changed = h("p", { class: "shown-note", role: "alert", hidden: true }, icon("alert"), h("span"));
  const preview = h("p", { class: "preview", id });
  const node = h("div", { class: "showing" }, replaced, changed, preview);
  let drawn = null;
  let countsSince = Infinity;
  let timer = null;
  let waitsFor = 0;

  /** The buttons wait, and begin to count a moment from now, or after `facts` that are being looked up have come. */
  function wait(facts = null) {
    countsSince = Infinity;
    clearTimeout(timer);
    for (const one of buttons) one.setAttribute("aria-disabled", "true");
    const asked = ++waitsFor;
    Promise.resolve(facts).then(() => {
      if (asked === waitsFor) timer = setTimeout(count, READ_FIRST);
    });
  }

  function count() {
    countsSince = performance.now();
    for (const one of buttons) one.removeAttribute("aria-disabled");
  }

  /** Show what the request is now; whoever was shown something else reads it first. */
  function draw() {
    const shown = JSON.stringify([request.preview, Boolean(request.replacedBy)]);
    if (shown === drawn) return;
    if (drawn !== null) {
      changed.lastChild.textContent = CHANGED; // said when it is put there
      changed.hidden = false;
    }
    drawn = shown;
    replaced.hidden = !request.replacedBy;
    preview.textContent = visible(request.preview ?? "");
    wait();
  }

  draw();
  return {
    node,
    draw,
    wait,
    /** Whether this click was begun after the request was shown. */
    takes: (click) => beganAt(click) >= countsSince,
    close: () => clearTimeout(timer),
  };
}

// The spoken side of a request for approval, as the dialog shows it: whether it is being read, asked, was not understood, or has to
// be decided on the screen.

import { button, h, icon } from "./dom.js";
import { levelMeter } from "./voice-level.js";
import { wrong } from "./voice-causes.js";
import { voice } from "./voice.js";

const SIGNS = { reading: "speaker", asking: "mic", missed: "mic", screen: "held", expired: "held" };
const ANSWERED = ["asking", "missed"]; // an answer by voice counts

// Why it has to be decided on the screen.
const REASONS = {
  not_understood: "That was not understood twice. Please decide here.",
  not_heard: "It could not be read to you to its end. Please decide here.",
  revised: "A newer request has replaced this one. It can still be decided here.",
  refused: "Your yes was heard, but it was refused: nothing was run.",
  not_started: "Your yes was heard, but nothing has run yet.",
  not_known: "Your answer was heard, but it is not known whether it could be recorded. You can still decide here.",
  decided: "It was decided on a screen before your answer.",
  replaced: "It was replaced before your answer, because the tool changed: nothing was run.",
};

const WORDS = {
  reading({ misses, readings }) {
    if (misses) return "That was not understood. It is read to you once more; then say only yes or no.";
    if (readings > 1) return "It is read to you once more. Listen to the end before you answer.";
    return "It is being read to you. Listen to the end before you answer.";
  },
  asking() {
    if (voice.state === "hearing") return "Hearing you…";
    return voice.isMuted ? "You are muted. Unmute to say yes or no, or decide here." : "Say yes or no, or decide here.";
  },
  missed() {
    return voice.state === "hearing" ? "Hearing you…" : "That was not understood. Say only yes or no, or decide here.";
  },
  screen: ({ reason }) => REASONS[reason] ?? "Please decide here: it cannot be approved by voice.",
  expired: () => "The time to answer by voice is over.",
};

/** Whether the microphone has a level to show. */
const isHeard = () => voice.able.sound && voice.hears && !voice.isMuted;

/** Whether no answer by voice will count any more. */
const isOver = ({ state }) => state === "screen" || state === "expired";

/** What is said of a question: first whatever keeps an answer from being heard. */
function wordsOf(question) {
  if (isOver(question) || !(question.state in WORDS)) return WORDS[question.state]?.(question);
  if (voice.state === "reconnecting") return "The line is lost. Answer when it is back, or decide here.";
  if (!voice.hears) return `${voice.trouble ? wrong(voice.trouble) : "You cannot be heard"}. Please decide here.`;
  return WORDS[question.state](question);
}

/** A line that follows the spoken question; `close` when the dialog is gone. */
export function questionView(request) {
  const [sign, words, meter] = [h("span", { class: "sign" }), h("span", { role: "status" }), levelMeter()];
  // The voice bar is behind the dialog.
  const unmute = button("Unmute", () => voice.mute(), { kind: "small", sign: "mic" });
  const again = button("Try again", () => voice.hearAgain(), { kind: "small", sign: "mic" });
  const node = h("div", { class: "spoken-question", hidden: true }, sign, words, meter.node, unmute, again);

  function draw() {
    const question = voice.questions.get(request.id);
    const text = question && wordsOf(question);
    node.hidden = !voice.isOn || !text;
    meter.run(!node.hidden && ANSWERED.includes(question.state) && isHeard());
    if (node.hidden) return;
    unmute.hidden = isOver(question) || !voice.isMuted;
    again.hidden = isOver(question) || voice.trouble === null;
    node.dataset.state = question.state;
    node.toggleAttribute("data-unheard", !voice.hears);
    sign.replaceChildren(icon(SIGNS[question.state]));
    if (words.textContent !== text) words.textContent = text;
  }

  voice.addEventListener("question", draw);
  voice.addEventListener("state", draw);
  draw();
  return {
    node,
    close() {
      meter.run(false);
      voice.removeEventListener("question", draw);
      voice.removeEventListener("state", draw);
    },
  };
}

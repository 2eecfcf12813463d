// The spoken side of a request for approval, as the dialog shows it: whether it is being read, asked, was not understood, or has to
// be decided on the screen.

import { h, icon } from "./dom.js";
import { levelMeter } from "./voice-level.js";
import { voice } from "./voice.js";

const WORDS = {
  reading: ["speaker", "It is being read to you. Listen to the end before you answer."],
  asking: ["mic", "Say yes or no, or decide here."],
  missed: ["mic", "That was not understood. Say only yes or no, or decide here."],
  screen: ["held", "Please decide here: it cannot be approved by voice."],
  expired: ["held", "The time to answer by voice is over."],
};

/** A line that follows the spoken question; `close` when the dialog is gone. */
export function questionView(request) {
  const [sign, words, meter] = [h("span", { class: "sign" }), h("span", { role: "status" }), levelMeter()];
  const node = h("div", { class: "spoken-question", hidden: true }, sign, words, meter.node);

  function draw() {
    const question = voice.questions.get(request.id);
    const [name, text] = WORDS[question?.state] ?? [];
    node.hidden = !voice.isOn || !text;
    const answers = !node.hidden && (question.state === "asking" || question.state === "missed");
    meter.run(answers && voice.able.sound);
    if (node.hidden) return;
    node.dataset.state = question.state;
    sign.replaceChildren(icon(name));
    words.textContent = answers && voice.state === "hearing" ? "Hearing you…" : text;
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

// What is seen of voice: the button that starts and ends it, and above the text field a bar with what is going on, how loud the
// microphone is, and mute, stop and end.

import { conversation } from "./conversation.js";
import { announce, button, h, icon } from "./dom.js";
import { levelMeter } from "./voice-level.js";
import { wrong } from "./voice-causes.js";
import { voice } from "./voice.js";

const STATES = {
  connecting: ["Connecting…", "running"],
  listening: ["Listening", "mic"],
  hearing: ["Hearing you", "mic"],
  thinking: ["Thinking", "running"],
  working: ["Working", "tools"],
  speaking: ["Speaking", "speaker"],
  reconnecting: ["Reconnecting…", "running"],
  ending: ["Ending…", "running"],
};

/** The button beside the text field. */
export function voiceButton() {
  const node = h("button", { type: "button", class: "talk-button", on: { click: press } });

  function press() {
    if (voice.isOn) voice.end();
    else voice.start();
  }

  function draw() {
    const label = voice.isOn ? "End voice" : "Talk";
    node.replaceChildren(icon("mic"), h("span", { class: "unseen", text: label }));
    node.title = label;
    node.classList.toggle("is-on", voice.isOn);
  }
  voice.addEventListener("state", draw);
  draw();
  return node;
}

/** The bar; nothing of it is there while voice is off. */
export function voiceBar() {
  const sign = h("span", { class: "voice-sign" });
  const word = h("span", { class: "voice-word", role: "status" });
  const words = h("span", { class: "quiet voice-heard" });
  const meter = levelMeter();
  const mute = button("Mute", () => voice.mute(), { kind: "small", sign: "mic" });
  const again = button("Try again", () => voice.hearAgain(), { kind: "small", sign: "mic" });
  const stop = button("Stop", () => voice.stop(), { kind: "small", sign: "stop" });
  const end = button("End voice", () => voice.end(), { kind: "small", sign: "failed" });
  const node = h(
    "section",
    { class: "voice-bar", "aria-label": "Voice", hidden: true },
    h("div", { class: "voice-now" }, sign, word, words),
    meter.node,
    h("div", { class: "voice-acts" }, mute, again, stop, end),
  );
  let before = "off";

  function draw() {
    const { state, isMuted } = voice;
    node.hidden = state === "off";
    meter.run(voice.isOn && voice.hears && voice.able.sound);
    if (state !== before) words.textContent = "";
    if (state === "off" && before !== "off") announce("Voice has ended.");
    before = state;
    if (node.hidden) return;
    node.dataset.state = isMuted && state === "listening" ? "muted" : state;
    const [text, name] = STATES[state] ?? [state, "mic"];
    const shown = described(text, state);
    if (word.textContent !== shown) word.textContent = shown;
    sign.replaceChildren(icon(voice.mustType ? "chat" : isMuted && name === "mic" ? "muted" : name));
    mute.hidden = !voice.hears;
    again.hidden = voice.trouble === null;
    mute.setAttribute("aria-pressed", String(isMuted));
    mute.replaceChildren(icon(isMuted ? "muted" : "mic"), h("span", { text: isMuted ? "Unmute" : "Mute" }));
    for (const one of [mute, again, end]) one.disabled = state === "ending";
    stop.disabled = !["thinking", "working", "speaking"].includes(state);
  }

  voice.addEventListener("state", draw);
  voice.addEventListener("heard", ({ detail }) => (words.textContent = detail));
  draw();
  return node;
}

/** Beside every view: that somebody is heard, and the way back. */
export function voiceMark() {
  const word = h("span");
  const node = h("a", { class: "voice-mark", href: "#/chat", hidden: true }, icon("mic"), word);
  const draw = () => {
    node.hidden = !voice.isOn;
    const state = voice.mustType ? "by typing" : (STATES[voice.state]?.[0] ?? "").toLowerCase();
    word.textContent = `Voice: ${voice.isMuted ? "muted" : state}`;
  };
  voice.addEventListener("state", draw);
  draw();
  return node;
}

/** After a reload, or in another tab: the session is being talked in, and one may continue here. */
export function voiceElsewhere() {
  const node = h(
    "p",
    { class: "voice-bar", hidden: true },
    icon("mic"),
    h("span", { class: "space", text: "Voice is still on in this session." }),
    button("Continue talking", () => voice.start(), { kind: "small" }),
  );
  const draw = () => (node.hidden = voice.isOn || conversation.session?.voice !== true);
  for (const what of ["voice", "reset"]) conversation.addEventListener(what, draw);
  voice.addEventListener("state", draw);
  draw();
  return node;
}

function described(text, state) {
  if (voice.note) return voice.mustType ? voice.note : `${text}: ${voice.note}`;
  if (state !== "listening") return text;
  if (voice.isMuted) return "Muted";
  if (!voice.mustType) return text;
  const { trouble, able } = voice;
  const aloud = able.sound || able.speaks ? " Answers are read aloud." : "";
  if (trouble) return `${wrong(trouble)}. Please type.${aloud}`;
  return aloud
    ? `Type: this browser cannot recognise speech.${aloud}`
    : "Type: this browser can neither recognise speech nor speak.";
}

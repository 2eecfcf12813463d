// How loud the microphone is: drawn with the screen, told to screen readers now and then.

import { h } from "./dom.js";
import { voice } from "./voice.js";

const QUIETEST = -60; // decibels below full; from there the meter moves
const TOLD_EVERY = 500; // milliseconds between two values for a screen reader

/** A meter that moves while it runs. */
export function levelMeter() {
  const fill = h("span", { class: "level-fill" });
  const node = h(
    "span",
    {
      class: "level",
      role: "meter",
      "aria-label": "Microphone level",
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": 0,
    },
    fill,
  );
  let [running, shown, told] = [false, 0, 0];

  function draw(now) {
    if (!running) return;
    const level = Math.max(0, Math.min(1, 1 - (20 * Math.log10(voice.loudness || 1e-6)) / QUIETEST));
    shown = Math.max(level, shown * 0.9); // falls slowly, as needles do
    fill.style.inlineSize = `${Math.round(shown * 100)}%`;
    if (now - told > TOLD_EVERY) {
      told = now;
      node.setAttribute("aria-valuenow", Math.round(shown * 100));
    }
    requestAnimationFrame(draw);
  }

  return {
    node,
    run(wanted) {
      node.hidden = !wanted;
      if (wanted && !running) requestAnimationFrame(draw);
      running = wanted;
    },
  };
}

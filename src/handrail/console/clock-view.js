// How long a request can still be decided.

import { announce, h } from "./dom.js";
import { serverTime } from "./api.js";
import { countdown } from "./words.js";

const TOLD_AT = [60, 30, 10];

/** The time that is left, as a number and a shrinking line; told to screen readers now and then only. */
export function clockView(request) {
  const digits = h("span", { class: "digits", role: "timer" });
  const line = h("span", { class: "left" });
  const node = h(
    "div",
    { class: "countdown" },
    h("span", { class: "quiet", text: "Time left to decide" }),
    digits,
    h("span", { class: "track" }, line),
  );
  const until = new Date(request.expires_at).getTime();
  const whole = Math.max(1, until - serverTime());
  const told = new Set(TOLD_AT.filter((seconds) => whole <= seconds * 1000));
  return {
    node,
    update() {
      const left = until - serverTime();
      digits.textContent = countdown(left);
      line.style.inlineSize = `${Math.max(0, Math.min(1, left / whole)) * 100}%`;
      node.toggleAttribute("data-soon", left < 30_000);
      const mark = TOLD_AT.find((seconds) => left <= seconds * 1000 && !told.has(seconds) && left > 0);
      if (mark) {
        told.add(mark);
        announce(`${mark} seconds left to decide.`);
      }
      return left <= 0;
    },
  };
}

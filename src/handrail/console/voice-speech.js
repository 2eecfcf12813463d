// Voice without a provider: the browser's own recognition and synthesis, where it has them. Words that were recognised go to the
// server as text, and what the server wants said is spoken here.

import { causeOfRecognition } from "./voice-causes.js";

const ECHO = 0.6; // if this share of the words heard are words being spoken, the microphone hears our own voice
const LATE = 500; // words come so long after their beginning, where the browser does not say when that was
const REMEMBERED = 16;
const STARTS_WITHIN = 4_000;
const VOICES_WITHIN = 600;
const RESTART_AFTER = 250;

const Recognition = () => globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;

/** What this browser can do by itself. A synthesiser without voices would be silent. */
export async function abilities() {
  return { sound: false, recognises: Boolean(Recognition()), speaks: await hasVoices() };
}

/** The conversation's language, as this browser's user speaks it where that is the same one. */
export function spokenAs(language) {
  const base = (tag) => tag.toLowerCase().split("-")[0];
  return !language || base(navigator.language) === base(language) ? navigator.language : language;
}

function hasVoices() {
  const synthesis = globalThis.speechSynthesis;
  if (!synthesis || !globalThis.SpeechSynthesisUtterance) return false;
  if (synthesis.getVoices().length) return true;
  return new Promise((answer) => {
    const look = () => answer(synthesis.getVoices().length > 0);
    synthesis.addEventListener?.("voiceschanged", look, { once: true });
    setTimeout(look, VOICES_WITHIN);
  });
}

/** Speaks one text after the other, and says of each whether it was spoken to its end. */
export class Speaker {
  constructor(onSpoken) {
    this.onSpoken = onSpoken;
    this.waiting = [];
    this.now = null;
    this.ended = []; // the last ones, with their ends
  }

  /** What was spoken since a moment, be it over by now or not. */
  since(moment) {
    const over = this.ended.filter(({ until }) => until >= moment);
    return [...over, ...(this.now ? [this.now] : [])].map(({ text }) => text).join(" ");
  }

  speak({ id, text, item }) {
    this.waiting.push({ id, text, item });
    this.next();
  }

  next() {
    if (this.now || !this.waiting.length) return;
    const said = (this.now = this.waiting.shift());
    const utterance = new SpeechSynthesisUtterance(said.text);
    said.utterance = utterance; // kept: some browsers forget an utterance that nobody holds, and its end with it
    utterance.lang = this.language ?? navigator.language;
    const limit = setTimeout(() => this.over(said, false), STARTS_WITHIN);
    utterance.onstart = () => clearTimeout(limit);
    utterance.onend = () => this.over(said, true);
    utterance.onerror = () => this.over(said, false);
    said.forget = () => clearTimeout(limit);
    speechSynthesis.speak(utterance);
  }

  over(said, completed) {
    if (this.now !== said) return;
    said.forget();
    this.now = null;
    this.ended = [...this.ended.slice(1 - REMEMBERED), { text: said.text, until: performance.now() }];
    this.onSpoken(said.id, completed);
    this.next();
  }

  /** Be silent, and leave out what waits, up to an item or all of it. */
  flush(item = Infinity) {
    const goes = (one) => (one.item ?? 0) <= item;
    const dropped = this.waiting.filter(goes);
    this.waiting = this.waiting.filter((one) => !goes(one));
    for (const one of dropped) this.onSpoken(one.id, false);
    const said = this.now;
    if (!said || !goes(said)) return;
    speechSynthesis.cancel();
    this.over(said, false);
  }

  close() {
    this.onSpoken = () => null;
    this.flush();
  }
}

/** Listens with the browser's recogniser until it is closed. The final words of an utterance come a good while after it, and so
 * perhaps after our own voice has ended that it was spoken into: what counts is when it began. */
export class Recogniser {
  /** `onSpeech(state, ago)` with the milliseconds since it began, `onWords(text, isFinal)`, `onProblem(cause)`;
   * `echo(since)` gives what was spoken here since a moment. */
  constructor({ onSpeech, onWords, onProblem, echo }) {
    Object.assign(this, { onSpeech, onWords, onProblem, echo });
    this.isMuted = false;
    this.closed = false;
    this.isHearing = false;
    this.utterance = null; // when it began, whether words of it came, and whether they are known not to be our own
  }

  open(language) {
    const engine = (this.engine = new (Recognition())());
    engine.continuous = true;
    engine.interimResults = true;
    engine.lang = language;
    engine.onspeechstart = () => this.starts();
    engine.onspeechend = () => this.pause();
    engine.onresult = (event) => this.results(event);
    engine.onerror = ({ error }) => this.failed(error);
    // Browsers stop listening after a while of silence.
    engine.onend = () => {
      this.utterance = null;
      setTimeout(() => this.begin(), RESTART_AFTER);
    };
    this.begin();
    return this;
  }

  begin() {
    if (this.closed || this.isMuted) return;
    try {
      this.engine?.start();
    } catch {
      return; // it listens already
    }
  }

  /** Somebody speaks; if we do as well, the words will tell whether it is only ourselves. */
  starts() {
    const now = performance.now();
    if (!this.utterance?.hasWords) this.utterance = { began: now };
    if (this.echo(now) === "") this.hear();
  }

  hear() {
    if (this.isHearing) return;
    this.isHearing = true;
    this.onSpeech("started", Math.round(performance.now() - this.utterance.began));
  }

  pause() {
    if (!this.isHearing) return;
    this.isHearing = false;
    this.onSpeech("ended");
  }

  results({ results, resultIndex }) {
    if (this.isMuted) return;
    for (let place = resultIndex; place < results.length; place += 1) {
      const { isFinal } = results[place];
      const text = results[place][0].transcript.trim();
      if (!text) continue;
      const heard = (this.utterance ??= { began: performance.now() - LATE });
      heard.hasWords = true;
      heard.isTheirs ||= !isEcho(text, this.echo(heard.began));
      if (heard.isTheirs) {
        this.hear(); // also over our own voice: it stops
        if (isFinal) this.pause();
        this.onWords(text, isFinal);
      }
      if (isFinal) this.utterance = null;
    }
  }

  async failed(error) {
    const cause = await causeOfRecognition(error);
    if (!cause || this.closed) return; // silence, or stopped by ourselves
    this.pause();
    this.close();
    this.onProblem(cause);
  }

  mute(isMuted) {
    this.isMuted = isMuted;
    this.pause();
    this.utterance = null;
    if (isMuted) this.engine?.abort();
    else this.begin();
  }

  close() {
    this.closed = true;
    this.engine?.abort();
  }
}

/** Whether words that were heard are those that the loudspeaker says just now. */
export function isEcho(heard, spoken) {
  const own = new Set(words(spoken));
  const all = words(heard);
  return own.size > 0 && all.length > 0 && all.filter((word) => own.has(word)).length / all.length >= ECHO;
}

const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

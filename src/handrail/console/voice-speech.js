// Voice without a provider: the browser's own recognition and synthesis, where it has them. Words that were recognised go to the
// server as text, and what the server wants said is spoken here.

const ECHO = 0.6; // if so many of the words heard are words being spoken, it is ourselves that is heard
const STARTS_WITHIN = 4_000;
const VOICES_WITHIN = 600;
const RESTART_AFTER = 250;
const TURNED_DOWN = {
  "not-allowed": "The browser does not allow speech recognition here; type instead.",
  "service-not-allowed": "The browser does not allow speech recognition here; type instead.",
  "audio-capture": "There is no microphone; type instead.",
  network: "The browser's speech recognition cannot be reached; type instead.",
  "language-not-supported": "The browser does not recognise this language; type instead.",
};

const Recognition = () => globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;

/** What this browser can do by itself. A synthesiser without voices would be silent. */
export async function abilities() {
  return { sound: false, recognises: Boolean(Recognition()), speaks: await hasVoices() };
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
  }

  get text() {
    return this.now?.text ?? "";
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
    utterance.lang = navigator.language;
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

/** Listens with the browser's recogniser until it is closed. */
export class Recogniser {
  /** `onSpeech(state)`, `onWords(text, isFinal)`, `onProblem(sentence)`; `echo()` gives what is being spoken here. */
  constructor({ onSpeech, onWords, onProblem, echo }) {
    Object.assign(this, { onSpeech, onWords, onProblem, echo });
    this.isMuted = false;
    this.closed = false;
    this.isHearing = false;
  }

  open() {
    const engine = (this.engine = new (Recognition())());
    engine.continuous = true;
    engine.interimResults = true;
    engine.lang = navigator.language;
    engine.onspeechstart = () => this.echo() === "" && this.hear();
    engine.onspeechend = () => this.pause();
    engine.onresult = (event) => this.results(event);
    engine.onerror = ({ error }) => this.failed(error);
    // Browsers stop listening after a while of silence.
    engine.onend = () => setTimeout(() => this.begin(), RESTART_AFTER);
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

  hear() {
    if (this.isHearing) return;
    this.isHearing = true;
    this.onSpeech("started");
  }

  pause() {
    if (!this.isHearing) return;
    this.isHearing = false;
    this.onSpeech("ended");
  }

  results({ results, resultIndex }) {
    if (this.isMuted) return;
    for (let place = resultIndex; place < results.length; place += 1) {
      const text = results[place][0].transcript.trim();
      if (!text || isEcho(text, this.echo())) continue;
      this.hear(); // also over our own voice: it stops
      if (results[place].isFinal) this.pause();
      this.onWords(text, results[place].isFinal);
    }
  }

  failed(error) {
    const sentence = TURNED_DOWN[error];
    if (!sentence || this.closed) return; // silence, or stopped by ourselves
    this.close();
    this.onProblem(sentence);
  }

  mute(isMuted) {
    this.isMuted = isMuted;
    this.pause();
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

// A server's event stream over fetch, because EventSource cannot send the key. It resumes after the last event id, waits longer
// after each failure, takes silence for a broken line, and tells its state.

import { headers } from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const SILENCE = 45_000;

/** A line that is looked for again when it breaks, each time after a longer wait. */
export class Line {
  failures = 0;
  closed = false;

  /** Try at once instead of waiting on. */
  hurry = () => this.wakeUp?.();

  async pause(first, longest) {
    const wait = Math.min(longest, first * 2 ** this.failures) * (0.75 + Math.random() / 2);
    this.failures += 1;
    this.onState({ state: "waiting", retryAt: Date.now() + wait });
    await new Promise((resume) => {
      this.wakeUp = resume;
      setTimeout(resume, wait);
    });
  }
}

export class Stream extends Line {
  /** `onEvent({id, type, data})`, `onState({state, retryAt})` with state connecting, live, waiting, refused or closed. */
  constructor(path, { after = null, onEvent, onState, resumable = true }) {
    super();
    Object.assign(this, { path, after, onEvent, onState, resumable });
  }

  open() {
    this.run();
    addEventListener("online", this.hurry);
    return this;
  }

  close() {
    this.closed = true;
    removeEventListener("online", this.hurry);
    this.abort?.abort();
    this.hurry();
  }

  async run() {
    while (!this.closed) {
      this.onState({ state: "connecting" });
      const verdict = await this.once();
      if (this.closed) return;
      if (verdict?.refused) {
        this.onState({ state: "refused", status: verdict.refused });
        return;
      }
      await this.pause(FIRST_WAIT, LONGEST_WAIT);
    }
  }

  /** One connection, until it ends; `{refused: status}` if asking again would not help. */
  async once() {
    this.abort = new AbortController();
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => this.abort.abort(), SILENCE);
    };
    try {
      heard();
      const resume = this.resumable && this.after !== null ? { "Last-Event-ID": String(this.after) } : {};
      const answer = await fetch(this.path, {
        headers: headers({ Accept: "text/event-stream", ...resume }),
        cache: "no-store",
        credentials: "omit",
        signal: this.abort.signal,
      });
      if (!answer.ok) return answer.status === 429 || answer.status >= 500 ? null : { refused: answer.status };
      this.onState({ state: "live" });
      const parser = new EventParser((event) => this.take(event));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return null;
        heard();
        this.failures = 0;
        parser.feed(value);
      }
    } catch {
      return null;
    } finally {
      clearTimeout(silence);
    }
  }

  take(event) {
    if (event.type === "reconnect") {
      this.abort.abort(); // the server is about to stop, or the stream is old: continue elsewhere
      return;
    }
    if (event.id !== null) {
      // After a resume the server may send again what it is not sure about.
      if (this.after !== null && isNumber(event.id) && isNumber(this.after) && Number(event.id) <= Number(this.after))
        return;
      this.after = event.id;
    }
    this.onEvent(event);
  }
}

const isNumber = (value) => /^\d+$/.test(String(value));

/** Bytes to events, by the rules of the event-stream format. */
export class EventParser {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = "";
    this.reset();
  }

  reset() {
    this.type = "message";
    this.id = null;
    this.lines = [];
  }

  feed(text) {
    this.rest += text;
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") {
      this.dispatch();
      return;
    }
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.type = value;
    else if (name === "id" && !value.includes("\0")) this.id = value;
    else if (name === "data") this.lines.push(value);
  }

  dispatch() {
    const { type, id, lines } = this;
    this.reset();
    if (!lines.length && type === "message") return;
    let data = null;
    try {
      data = JSON.parse(lines.join("\n") || "null");
    } catch {
      return; // not ours: every event's data is one JSON text
    }
    this.onEvent({ type, id, data: data ?? {} });
  }
}

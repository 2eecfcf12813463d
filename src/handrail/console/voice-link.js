// The line of a voice conversation: a ticket, a WebSocket, `hello`, and after a break the same again from the last message that
// came. Control messages are JSON, sound is binary; docs/voice.md describes both.

import { post } from "./api.js";
import { Line } from "./stream.js";

const PROTOCOL = "handrail.voice.v1";
const FIRST_WAIT = 300;
const LONGEST_WAIT = 5_000;
const GIVE_UP = 60_000; // so long a lost line is looked for
const FIRST_ATTEMPTS = 3; // to have one at all, where nobody says that one may come back
const SILENCE = 40_000; // the server pings more often than that
const TICKET_LIVES = 20_000;
const MOST_WAITING = 64 * 1024; // bytes of sound that may wait in the socket; what comes then is late and dropped

const BUSY = 409; // no ticket yet
const SENTENCES = {
  1006: "The voice connection was refused or cannot be reached.",
  4400: "The server did not understand the console; reload the page.",
  4401: "The server did not accept the voice ticket.",
  4404: "The server does not know this session any more.",
  4408: "The voice connection was too slow or silent for too long.",
  4409: "Voice continues in another tab or window.",
  4410: "The session has ended.",
  4413: "The server did not accept the sound of this microphone.",
  4429: "Too much was sent to the server at once.",
  4500: "Something went wrong in the server's voice.",
  4503: "The voice service cannot be had now.",
};
const COME_BACK = 1001; // it restarts, or another process still holds the session
const COMES_BACK = new Set([COME_BACK, 1005, 1006, 1011, 1012, 4401, 4408]);

export class Link extends Line {
  /** `facts()` gives the rest of `hello`; `onSound(item, offset, pcm)`; `onState({state})`: connecting, live, waiting or over. */
  constructor(path, { facts, onMessage, onSound, onState }) {
    super();
    Object.assign(this, { path, facts, onMessage, onSound, onState });
    this.last = null; // the number of the last message
    this.wasLive = false;
    this.isLive = false;
  }

  /** Another process may hold the session for a while, until it knows that nobody is on its line any more. */
  async ask() {
    const since = Date.now();
    for (;;) {
      try {
        this.ticket = { ...(await post(this.path, {})), at: Date.now() };
        return this.ticket;
      } catch (error) {
        if (error.status !== BUSY || this.closed || Date.now() - since > GIVE_UP) throw error;
        await this.pause(FIRST_WAIT, LONGEST_WAIT);
      }
    }
  }

  get canSend() {
    return this.isLive && this.socket.readyState === WebSocket.OPEN;
  }

  send(type, data = {}) {
    if (!this.canSend) return false;
    this.socket.send(JSON.stringify({ type, ...data }));
    return true;
  }

  /** Sound that cannot go now is not worth keeping. */
  sendSound(pcm) {
    if (this.canSend && this.socket.bufferedAmount < MOST_WAITING) this.socket.send(pcm);
  }

  close() {
    this.closed = true;
    this.isLive = false;
    removeEventListener("online", this.hurry);
    this.socket?.close(1000);
    this.hurry();
  }

  async run() {
    addEventListener("online", this.hurry);
    while (!this.closed) {
      const end = await this.attempt();
      if (this.closed) return;
      this.isLive = false;
      this.lostAt ??= Date.now();
      // A line that was never up may have met a ticket that was too old; it may also be refused for good, unless the server says
      // that one may come back.
      const mayBeLong = this.wasLive || end.code === COME_BACK;
      const hope = end.again && (mayBeLong || this.failures < FIRST_ATTEMPTS - 1);
      if (!hope || Date.now() - this.lostAt > GIVE_UP) {
        this.close();
        this.onState({ state: "over", sentence: end.sentence, code: end.code });
        return;
      }
      await this.pause(FIRST_WAIT, LONGEST_WAIT);
    }
  }

  /** One connection until it ends; how it ended, and whether trying again may help. */
  async attempt() {
    this.onState({ state: "connecting" });
    try {
      if (!this.ticket || Date.now() - this.ticket.at > TICKET_LIVES) await this.ask();
    } catch (error) {
      return { code: 0, again: error.status === 0 || error.status === 429 || error.status >= 500, sentence: error.message };
    }
    const { ticket, url } = this.ticket;
    this.ticket = null; // good for one use
    if (this.closed) return {};
    return new Promise((ended) => this.open(ticket, url, ended));
  }

  open(ticket, url, ended) {
    const address = new URL(url ?? this.path, location.origin);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = (this.socket = new WebSocket(address, PROTOCOL));
    socket.binaryType = "arraybuffer";
    let silence;
    const finish = (code) => {
      clearTimeout(silence);
      if (this.socket === socket) this.isLive = false;
      const told = this.told ?? SENTENCES[code] ?? "The voice connection was lost.";
      this.told = null;
      ended({ code, again: COMES_BACK.has(code), sentence: told });
    };
    const heard = () => {
      clearTimeout(silence);
      // A line that is only half broken may take minutes to close: what comes from it now is nobody's.
      silence = setTimeout(() => (this.abandon(socket), finish(1006)), SILENCE);
    };
    heard();
    socket.onopen = () => {
      const resume = this.last === null ? {} : { lastEvent: this.last };
      socket.send(JSON.stringify({ type: "hello", protocol: PROTOCOL, ticket, ...resume, ...this.facts() }));
    };
    socket.onmessage = ({ data }) => {
      heard();
      if (typeof data === "string") this.take(data);
      else if (data.byteLength > 8) {
        const head = new DataView(data, 0, 8);
        this.onSound(head.getUint32(0, true), head.getUint32(4, true), data.slice(8));
      }
    };
    socket.onclose = ({ code }) => finish(code);
  }

  abandon(socket) {
    socket.onmessage = socket.onclose = null;
    socket.close();
  }

  take(text) {
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return; // not ours: every message is one JSON text
    }
    const { type, n, ...data } = message;
    if (type === "ping") {
      this.send("pong");
      return;
    }
    if (type === "ready") {
      if (!data.resumed) this.last = null; // whatever comes now is new
      this.failures = 0;
      this.lostAt = null;
      this.isLive = this.wasLive = true;
      this.onState({ state: "live" });
    }
    if (typeof n === "number") {
      if (this.last !== null && n <= this.last) return; // told again after a resume
      this.last = n;
    }
    this.told = type === "error" ? data.message : null;
    this.onMessage(type, data);
  }
}

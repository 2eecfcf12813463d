// What the console knows of its session: messages, calls, open confirmations, the steps of each turn, what is left of the
// budget. Events of the server come in, views are told what changed. Nothing here touches the page.

import { get, post, remove, storedSession, storeSession, forgetSession } from "./api.js";
import { HANDLERS } from "./happenings.js";
import { outcomeOf, stateOf } from "./states.js";
import { Stream } from "./stream.js";
import { Turn } from "./turn.js";

const TURNS_KEPT = 50;
const SETTLED = {
  approved: "Said before you approved it:",
  carried_out: "Said before you approved it:",
  declined: "Said before you declined it:",
  expired: "Said before its time was over:",
};
const MODE_ATTEMPTS = 40;
const MODE_PAUSE = 250;

class Conversation extends EventTarget {
  constructor() {
    super();
    this.clear();
  }

  clear() {
    this.session = null;
    this.items = [];
    this.turns = new Map();
    this.cards = new Map();
    this.confirmations = new Map();
    this.budget = {};
    this.turn = null;
    this.running = false;
    this.connection = { state: "closed" };
  }

  tell(what, detail = null) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }

  // ------------------------------------------------------------------------------------------------ opening
  /** Go on with the session of this tab, or open one. */
  async start() {
    const stored = storedSession();
    if (stored) {
      try {
        await this.rejoin(stored);
        return;
      } catch (error) {
        if (error.status !== 404 && error.status !== 410) throw error;
        forgetSession();
      }
    }
    await this.begin();
  }

  async begin() {
    this.stream?.close();
    this.clear();
    const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const opened = await post("/api/sessions", { mode: "text", timeZone });
    storeSession({ sessionId: opened.sessionId, token: opened.token });
    await this.rejoin(storedSession());
  }

  async rejoin(stored) {
    const found = await get(`/api/sessions/${encodeURIComponent(stored.sessionId)}`, { retries: 3 });
    this.clear();
    this.session = { ...found, ...stored };
    for (const message of found.messages ?? []) this.restore(message);
    for (const card of this.cards.values()) if (card.state === "held") card.state = "lapsed";
    for (const request of found.confirmations ?? []) this.hold(request);
    if (found.turn) this.openTurn(found.turn);
    this.budgetMode = found.mode;
    this.takeBudget(found.budget);
    if (found.answering) this.markRunning(found.turn);
    this.tell("reset");
    this.listen(found.lastEventId ?? null);
  }

  /** End this session and open another. */
  async renew() {
    const old = this.session;
    this.stream?.close();
    if (old) await remove(`/api/sessions/${encodeURIComponent(old.sessionId)}`).catch(() => null);
    forgetSession();
    await this.begin();
  }

  /** What is shown may lack something: take the session's state anew. */
  async resync() {
    const stored = storedSession();
    if (stored) await this.rejoin(stored).catch(() => null);
  }

  listen(after) {
    this.stream?.close();
    const path = `/api/sessions/${encodeURIComponent(this.session.sessionId)}/events`;
    this.stream = new Stream(path, {
      after,
      onEvent: (event) => this.take(event),
      onState: (state) => this.connected(state),
    }).open();
  }

  connected(state) {
    this.connection = state;
    this.tell("connection");
    if (state.state === "refused") this.tell("lost", state);
  }

  // ------------------------------------------------------------------------------------------------- acting
  async say(text) {
    if (this.voice?.isOn) return this.voice.say(text);
    const id = freshMessageId();
    const item = this.add({ kind: "user", id, text, at: Date.now(), state: "sending" });
    this.running = true;
    this.tell("running");
    try {
      const path = `/api/sessions/${encodeURIComponent(this.session.sessionId)}/messages`;
      // The same id on every attempt: a message that arrived keeps its turn.
      const answer = await post(path, { id, text }, { retries: 4 });
      item.state = "sent";
      this.tell("item", item);
      if (answer?.turn !== undefined) this.openTurn(answer.turn, item);
    } catch (error) {
      item.state = "failed";
      item.problem = error.message;
      this.running = false;
      this.tell("item", item);
      this.tell("running");
      throw error;
    }
  }

  async cancel() {
    await post(`/api/sessions/${encodeURIComponent(this.session.sessionId)}/cancel`, {});
  }

  /** Approve or decline. Pressed twice it is one request: the second gets the first one's answer. */
  decide(id, verdict) {
    const request = this.confirmations.get(id);
    if (!request) return Promise.reject(new Error("This request is closed."));
    request.deciding ??= post(
      `/api/confirmations/${encodeURIComponent(id)}/${verdict}`,
      { token: request.token },
      { retries: 4 },
    )
      .then((envelope) => this.decided(request, verdict, envelope))
      .finally(() => (request.deciding = null));
    return request.deciding;
  }

  decided(request, verdict, envelope) {
    const outcome = outcomeOf(verdict, envelope);
    // Refused for now (switched off, blocked) stays open on the server, and here.
    if (!outcome.stays) {
      this.close(request, outcome.state, envelope);
      const card = this.cardOf(request);
      if (card && verdict === "approve" && card.state === "held") this.settle(card, envelope);
      if (card && verdict === "decline") this.settle(card, envelope, "declined");
    }
    return { ...outcome, envelope };
  }

  // ------------------------------------------------------------------------------------------------- events
  take({ type, data }) {
    if (this.isRepeat && data.rebuilt) return;
    const handler = HANDLERS[type];
    if (handler) handler.call(this, data);
  }

  /** A new message at the end, or before another. */
  add(item, before = undefined) {
    const place = this.items.indexOf(before);
    this.items.splice(place < 0 ? this.items.length : place, 0, item);
    this.tell("added", item);
    return item;
  }

  openTurn(number, user = null) {
    const known = this.turns.get(number);
    if (known) return known;
    const turn = new Turn(number, performance.now());
    turn.user = user;
    this.turns.set(number, turn);
    if (this.turns.size > TURNS_KEPT) this.turns.delete(this.turns.keys().next().value);
    if (this.turn === null || number > this.turn) {
      this.turn = number;
      this.budget = Object.fromEntries(
        Object.entries(this.budget).map(([name, part]) => [name, { ...part, left: part.limit }]),
      );
      this.tell("budget");
    }
    this.tell("turn", turn);
    return turn;
  }

  current() {
    return this.turns.get(this.turn) ?? this.openTurn(this.turn ?? 1);
  }

  markRunning(number) {
    this.running = true;
    this.openTurn(number ?? this.turn ?? 1).think();
  }

  /** The answer that is being given, made when its first part comes. */
  answer() {
    const open = this.items.findLast((item) => item.kind === "answer");
    if (open && !open.done) return open;
    return this.add({ kind: "answer", turn: this.turn, parts: [], citations: [], done: false, at: Date.now() });
  }

  restart(answer, turn) {
    for (const part of answer.parts) this.cards.delete(part.id);
    answer.parts = [];
    turn.steps = [];
    this.tell("item", answer);
  }

  write(text) {
    const answer = this.answer();
    const last = answer.parts.at(-1);
    if (last?.kind === "text") last.text += text;
    else answer.parts.push(this.words(text));
    this.tell("item", answer);
  }

  /** A piece of an answer. What is said while a request waits says that it waits, and is over with it. */
  words(text) {
    return { kind: "text", text, waits: [...this.confirmations.keys()], settled: null };
  }

  card(data) {
    const id = data.callId ?? data.call_id ?? `${data.toolId}-${this.cards.size}`;
    const known = this.cards.get(id);
    if (known) return known;
    const card = {
      kind: "tool",
      id,
      toolId: data.toolId ?? data.tool,
      args: data.args,
      state: "running",
      turn: this.turn,
      progress: "",
    };
    this.cards.set(id, card);
    return card;
  }

  settle(card, envelope, state = null) {
    const error = envelope.error ?? null;
    card.error = error;
    card.gate = envelope.gate ?? error?.gate ?? card.gate;
    card.meta = { ...card.meta, ...envelope.meta };
    if (envelope.data !== undefined) card.data = envelope.data;
    if (envelope.citations?.length) card.citations = envelope.citations;
    card.state = state ?? stateOf(envelope, error);
    this.takeLeft(card.meta?.budget);
    this.turns.get(card.turn)?.finished(card);
    this.tell("card", card);
  }

  hold(request) {
    if (typeof request?.id !== "string") return;
    const known = this.confirmations.get(request.id);
    if (known) {
      Object.assign(known, request);
    } else {
      this.confirmations.set(request.id, { ...request });
      this.turns.get(this.turn)?.asked(request.id);
      const card = this.cardOf(request);
      if (card && card.state !== "done" && card.state !== "declined") {
        card.state = "held";
        card.confirmation = request.id;
        this.tell("card", card);
      }
    }
    this.tell("confirmation", this.confirmations.get(request.id));
  }

  /** The call that a request is about: by its id, or the newest of the tool that is not settled. */
  cardOf(request) {
    const all = [...this.cards.values()];
    return (
      all.find((card) => card.confirmation === request.id || card.error?.confirmation_request?.id === request.id) ??
      all.findLast(
        (card) =>
          card.toolId === request.tool && ["running", "held", "lapsed"].includes(card.state) && !card.confirmation,
      )
    );
  }

  close(request, state, envelope = null) {
    this.confirmations.delete(request.id);
    for (const turn of this.turns.values()) turn.decided(request.id, state);
    for (const item of this.items) {
      const settled = (item.parts ?? []).filter((part) => part.waits?.includes(request.id));
      for (const part of settled) {
        part.waits = part.waits.filter((id) => id !== request.id);
        if (!part.waits.length) part.settled = SETTLED[state] ?? "Said before it was decided:";
      }
      if (settled.length) this.tell("item", item);
    }
    this.tell("turn", this.current());
    this.tell("confirmation-closed", { request, state, envelope });
  }

  takeLeft(left) {
    for (const [name, value] of Object.entries(left ?? {})) {
      if (typeof value !== "number") continue;
      const limit = this.budget[name]?.limit ?? 0;
      // What is left cannot be more than there is: then these are the limits of another mode, and the server knows better.
      if (value > limit) this.renewBudget();
      this.budget[name] = { left: value, limit: Math.max(limit, value) };
    }
    this.tell("budget");
  }

  /** The mode changes, and with it how much a turn may use. The server is asked until it is in the mode that is meant: a live
   *  model takes its time. */
  async renewBudget(patience = MODE_ATTEMPTS) {
    const { session } = this;
    const asked = (this.budgetAsked = (this.budgetAsked ?? 0) + 1);
    const found = await get(`/api/sessions/${encodeURIComponent(session.sessionId)}`).catch(() => null);
    if (this.session !== session || asked !== this.budgetAsked) return;
    const isMeant = found && (!found.mode || found.mode === (this.voice?.isOn ? "voice" : "text"));
    if (isMeant) {
      // What the last turn of the other mode has used is not taken from the next one.
      const isOther = found.mode !== this.budgetMode;
      this.budgetMode = found.mode;
      this.budget = {};
      this.takeBudget(found.budget, isOther);
    } else if (patience > 1) {
      setTimeout(() => asked === this.budgetAsked && this.renewBudget(patience - 1), MODE_PAUSE);
    }
  }

  takeBudget(budget, isFresh = false) {
    for (const [name, part] of Object.entries(budget ?? {}))
      if (typeof part?.limit === "number")
        this.budget[name] = { limit: part.limit, left: part.limit - (isFresh ? 0 : (part.used ?? 0)) };
    this.tell("budget");
  }

  finish(item, endsTurn = true) {
    item.done = true;
    if (endsTurn) {
      this.running = false;
      for (const part of item.parts)
        if (part.kind === "tool" && part.state === "running") {
          goesOn(part);
          this.tell("card", part);
        }
    }
    this.turns.get(item.turn)?.end();
    this.tell("item", item);
    this.tell("running");
    this.tell("finished", item);
  }

  // ---------------------------------------------------------------------------------------------- restoring
  restore(message) {
    const turn = message.turn ?? (this.turn ?? 0) + (message.role === "user" ? 1 : 0);
    if (message.role === "user") {
      this.openTurn(turn).end();
      this.items.push({
        kind: "user",
        id: message.messageId ?? message.id ?? freshMessageId(),
        text: message.text ?? "",
        at: message.at,
        state: "sent",
      });
      return;
    }
    // The card of a call that was approved later is told twice; it stays where it first was.
    const parts = (message.toolCards ?? []).map((data) => this.restoreCard(data, turn)).filter(Boolean);
    const done = message.state !== "running";
    if (done) parts.filter((card) => card.state === "running").forEach(goesOn);
    if (message.text) parts.push({ kind: "text", text: message.text });
    const problem = message.error?.detail ?? message.error?.message ?? null;
    if (!parts.length && !problem && done) return;
    this.items.push({
      kind: "answer",
      turn,
      parts,
      citations: message.citations ?? [],
      done,
      problem,
      stopped: message.state === "cancelled",
      latency: message.latency,
    });
  }

  restoreCard(data, turn) {
    const known = this.cards.get(data.callId) ?? (data.confirmationId && this.cardOf({ id: data.confirmationId }));
    const card = known ?? this.card(data);
    if (!known) card.turn = turn;
    card.meta = data.meta ?? {};
    card.error = data.error ?? null;
    card.gate = data.gate;
    card.data = data.data;
    card.citations = data.citations;
    card.state = data.type === "tool_started" ? "running" : stateOf(data, card.error);
    if (card.error?.confirmation_request) card.confirmation = card.error.confirmation_request.id;
    if (known) return null;
    this.turns.get(turn)?.remembered(card);
    return card;
  }
}

/** A writing call that has started is finished although its turn was stopped; the server tells its outcome when it is there. */
function goesOn(card) {
  card.outlived = true;
  card.progress = "still running; its result follows";
}

export function freshMessageId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `m-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export const conversation = new Conversation();

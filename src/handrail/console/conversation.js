// What the console knows of its session: messages, calls, open confirmations, the steps of each turn, what is left of the
// budget. Events of the server come in, views learn what changed. Nothing here touches the page.

import { get, post, remove, storedSession, storeSession, forgetSession } from "./api.js";
import { HANDLERS } from "./happenings.js";
import { outcomeOf, stateOf } from "./states.js";
import { Stream } from "./stream.js";
import { Turn } from "./turn.js";

const TURNS_KEPT = 50;
const PROGRESS_KEPT = 3; // of the lines that a call has told, beside the newest
const APPROVED = "Said before you approved it:";
/** What is said of words that told of a request that waits, once it is closed: by how it was, or by its card after a reload. */
const SETTLED = {
  approved: APPROVED,
  carried_out: APPROVED,
  done: APPROVED,
  running: APPROVED,
  failed: APPROVED,
  unknown: APPROVED,
  declined: "Said before you declined it:",
  expired: "Said before its time was over:",
  lapsed: "Said before its time was over:",
};
const WAIT = { first: 500, longest: 5000 }; // milliseconds until a server that is away is asked again
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
    this.trying = null; // the tool that this page tries at the moment; its request may come before its answer, or after
    this.tried = new Set(); // requests of tools that this page tried
    this.budget = {};
    this.turn = null;
    this.running = false;
    this.connection = { state: "closed" };
  }

  tell(what, detail = null) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }

  // ------------------------------------------------------------------------------------------------ opening
  /** Continue with the session of this tab, or open one. */
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
    const found = await get(`/api/sessions/${encodeURIComponent(stored.sessionId)}?tokens=true`, { retries: 3 });
    const before = this.session?.sessionId === stored.sessionId ? this.confirmations : new Map();
    this.clear();
    this.session = { ...found, ...stored };
    for (const message of found.messages ?? []) this.restore(message);
    for (const card of this.cards.values()) if (card.state === "held") card.state = "lapsed";
    for (const request of found.confirmations ?? []) this.hold(request, before.get(request.id));
    for (const request of found.approved ?? []) this.hold({ ...request, run: newRun("running") }, before.get(request.id));
    this.markSettled();
    for (const request of before.values())
      if (request.run && !this.confirmations.has(request.id)) this.endedMeanwhile(request);
    if (found.turn) this.openTurn(found.turn);
    this.budgetMode = found.mode;
    this.takeBudget(found.budget);
    if (found.answering) this.markRunning(found.turn);
    this.tell("reset");
    this.listen(found.lastEventId ?? null);
  }

  /** Continue with another conversation; this one stays as it is. */
  async change(stored) {
    const before = storedSession();
    storeSession(stored);
    try {
      await this.rejoin(stored);
    } catch (error) {
      if (before) storeSession(before);
      throw error;
    }
  }

  /** Open another conversation. One in which nothing was said is new already. */
  async renew() {
    if (this.session && !this.items.length) return;
    forgetSession();
    await this.begin();
  }

  /** Delete this conversation and open another. */
  async end() {
    this.stream?.close();
    await remove(`/api/sessions/${encodeURIComponent(this.session.sessionId)}`);
    forgetSession();
    await this.begin();
  }

  /** Nobody is signed in any more: nothing of the session is shown, and nothing of it can be decided. */
  leave() {
    this.stream?.close();
    this.clear();
    this.tell("left");
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
    request.deciding ??= (verdict === "approve" ? this.approve(request) : this.tellVerdict(request, verdict, 4))
      .then((envelope) => (envelope ? this.decided(request, verdict, envelope) : request.ended))
      .finally(() => (request.deciding = null));
    return request.deciding;
  }

  tellVerdict({ id, token }, verdict, retries = 0) {
    return post(`/api/confirmations/${encodeURIComponent(id)}/${verdict}`, { token }, { retries });
  }

  /** The envelope of an approved call, however long it runs and however often the server is away meanwhile; null if its end was
   *  told otherwise. To approve once more is safe: a call is carried out once, and whoever asks again gets its outcome. */
  async approve(request) {
    // Sent again with the token of what was shown: the request may be shown anew while the server is away.
    const asShown = { ...request };
    this.runs(request, "sent");
    for (let attempt = 0; !request.ended; attempt += 1) {
      try {
        const envelope = await this.tellVerdict(asShown, "approve");
        if (envelope?.error?.type !== "IN_PROGRESS") return envelope;
        attempt = 0;
        this.runs(request, "running");
      } catch (error) {
        if (error.status !== 0 && error.status !== 503) {
          this.waitsAgain(request);
          throw error;
        }
        this.runs(request, "lost");
      }
      await this.untilAskedAgain(request, Math.min(WAIT.longest, WAIT.first * 2 ** attempt));
    }
    return null;
  }

  /** For a while, or until the server is there again, or the request was closed. */
  untilAskedAgain(request, wait) {
    return new Promise((resolve) => {
      const events = ["connection", "confirmation-closed"];
      const wake = (event) => {
        if (event?.type === "connection" && !(this.connection.state === "live" && request.run?.state === "lost")) return;
        if (event?.type === "confirmation-closed" && !request.ended) return;
        clearTimeout(timer);
        for (const one of events) this.removeEventListener(one, wake);
        resolve();
      };
      const timer = setTimeout(wake, wait);
      for (const one of events) this.addEventListener(one, wake);
    });
  }

  /** A request was approved: `state` is "sent" until it is known to run, "running", or "lost" while the server is away. */
  runs(request, state, progress = null) {
    const run = (request.run ??= newRun(state));
    // What the server has told of a call that runs is not taken back by an answer that came later.
    if (!(state === "sent" && run.hasStarted)) run.state = state;
    if (state === "running" && !run.isMarked) {
      run.hasStarted = run.isMarked = true;
      for (const turn of this.turns.values()) turn.decided(request.id, "approved");
      this.settleWords(request, "approved");
    }
    if (progress && run.progress.at(-1) !== progress) run.progress = [...run.progress.slice(-PROGRESS_KEPT), progress];
    const card = this.cardOf(request);
    if (card && run.hasStarted && ["held", "lapsed"].includes(card.state)) {
      card.state = "running";
      this.tell("card", card);
    }
    this.tell("confirmation-runs", request);
  }

  /** The newest request of a tool whose call runs. */
  runningRequest(tool) {
    return [...this.confirmations.values()].findLast((one) => one.run?.hasStarted && one.tool === tool);
  }

  /** It was approved, and cannot be carried out for now: a person may decide once more. */
  waitsAgain(request) {
    request.run = null;
    const card = this.cardOf(request);
    if (card?.state === "running") {
      card.state = "held";
      this.tell("card", card);
    }
    this.tell("confirmation-runs", request);
  }

  /** It ended while nobody here could hear of it: its card says how. */
  endedMeanwhile(request) {
    const card = this.cardOf(request);
    const state = card && SETTLED[card.state] ? card.state : "closed";
    this.close(request, state, null, card?.error?.message);
  }

  /** What waits for the person. */
  waiting() {
    return [...this.confirmations.values()].filter((request) => !request.run);
  }

  /** Have the facts of an open request looked up, for whoever shows it. */
  async look(request) {
    try {
      this.hold(await get(`/api/confirmations/${encodeURIComponent(request.id)}`));
    } catch (error) {
      // Otherwise it stays as it is: what is no longer so is noticed when it is approved.
      if (error.status === 410 && this.confirmations.has(request.id)) this.close(request, "closed");
    }
  }

  decided(request, verdict, envelope) {
    const outcome = outcomeOf(verdict, envelope);
    if (envelope?.error?.type === "CONFIRMATION_REQUIRED") this.look(request); // it is not what was shown any more
    // Refused for now (switched off, blocked) stays open on the server, and here.
    if (outcome.stays) this.waitsAgain(request);
    else {
      const card = this.cardOf(request);
      this.close(request, outcome.state, envelope);
      if (card && verdict === "approve" && ["held", "running"].includes(card.state)) this.settle(card, envelope);
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
    else answer.parts.push(this.words(text, answer));
    this.tell("item", answer);
  }

  /** A piece of an answer. What is said after a call that waits says that it waits, and is over with it. */
  words(text, answer) {
    const held = answer.parts.map((part) => part.confirmation).filter((id) => this.confirmations.has(id));
    return { kind: "text", text, waits: held, settled: null };
  }

  /** After a reload: words that told of a request that waits still do, or are over with it. */
  markSettled(items = this.items) {
    for (const item of items.filter((one) => !one.voice)) {
      const held = (item.parts ?? []).filter((part) => part.confirmation);
      const waits = held.map((part) => part.confirmation).filter((id) => this.waiting().some((one) => one.id === id));
      for (const part of item.parts ?? []) {
        if (part.kind !== "text" || !held.length) continue;
        part.waits = waits;
        if (!waits.length) part.settled = SETTLED[held.at(-1).state] ?? null;
      }
    }
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
    const hadLapsed = card.state === "lapsed";
    card.state = state ?? stateOf(envelope, error);
    if (hadLapsed) {
      // Its call had ended when the session's state was taken, and nothing there said how.
      const told = this.items.filter((item) => item.parts?.includes(card));
      this.markSettled(told);
      for (const item of told) this.tell("item", item);
    }
    this.takeLeft(card.meta?.budget);
    this.turns.get(card.turn)?.finished(card);
    this.tell("card", card);
  }

  /** A request that waits; `before` is what was known of it before the session's state was taken anew. */
  hold(request, before = null) {
    if (typeof request?.id !== "string") return;
    const known = this.confirmations.get(request.id);
    if (known) {
      Object.assign(known, request);
      const card = this.cardOf(known);
      if (card) this.tell("card", card);
    } else {
      const run = before?.run && { run: before.run };
      this.confirmations.set(request.id, Object.assign(before ?? {}, request, run));
      if (this.trying === request.tool) this.tried.add(request.id);
      this.turns.get(this.turn)?.asked(request.id);
      const card = this.cardOf(request);
      if (card && card.state !== "done" && card.state !== "declined") {
        card.state = request.run ? "running" : "held";
        card.confirmation = request.id;
        this.tell("card", card);
      }
    }
    this.tell("confirmation", this.confirmations.get(request.id));
  }

  /** Who asked for it: whoever tries a tool here, the assistant, or null where this page does not know. */
  askedBy(request) {
    if (this.tried.has(request.id)) return "operator";
    return this.cardOf(request) ? "assistant" : null;
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

  close(request, state, envelope = null, message = envelope?.error?.message) {
    this.confirmations.delete(request.id);
    request.ended ??= { state: state === "carried_out" || state === "done" ? "approved" : state, message };
    if (!request.run?.hasStarted) for (const turn of this.turns.values()) turn.decided(request.id, state);
    this.settleWords(request, state);
    this.tell("turn", this.current());
    this.tell("confirmation-closed", { request, state, envelope });
  }

  /** Words that told of a request that waits: it no longer does. */
  settleWords(request, state) {
    for (const item of this.items) {
      const settled = (item.parts ?? []).filter((part) => part.waits?.includes(request.id));
      for (const part of settled) {
        part.waits = part.waits.filter((id) => id !== request.id);
        if (!part.waits.length) part.settled = SETTLED[state] ?? "Said before it was decided:";
      }
      if (settled.length) this.tell("item", item);
    }
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
    // The card of a call that was approved later comes twice; it stays where it first was.
    const parts = (message.toolCards ?? []).map((data) => this.restoreCard(data, turn)).filter(Boolean);
    const done = message.state !== "running";
    if (done) parts.filter((card) => card.state === "running").forEach(goesOn);
    if (message.text) parts.push({ kind: "text", text: message.text });
    const problem = message.error?.detail ?? message.error?.message ?? null;
    if (!parts.length && !problem && done) return;
    this.items.push({
      kind: "answer",
      turn,
      messageId: message.messageId,
      parts,
      citations: message.citations ?? [],
      done,
      problem,
      stopped: message.state === "cancelled",
      latency: message.latency,
      voice: message.voice === true || Boolean(message.latency),
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

/** What is known of a call that was approved. */
function newRun(state) {
  return { state, since: performance.now(), hasStarted: state === "running", progress: [] };
}

export function freshMessageId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `m-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export const conversation = new Conversation();

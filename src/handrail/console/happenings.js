// What each event of the server does to the conversation.

/** By the event's type; each is called with the conversation as `this`. */
export const HANDLERS = {
  turn(data) {
    const number = data.turn ?? (this.turn ?? 0) + 1;
    if (data.messageId && !this.items.some((item) => item.id === data.messageId)) {
      this.resync(); // said elsewhere, such as in another tab
      return;
    }
    const answer = this.items.findLast((item) => item.kind === "answer");
    this.isRepeat = data.rebuilt === true && answer?.turn === number && answer.done;
    if (this.isRepeat) return;
    const turn = this.openTurn(number);
    // The server was restarted and answers anew, or tells the turn once more: what it had said before is void.
    if (answer && !answer.done && answer.turn === number) this.restart(answer, turn);
    turn.think();
    this.running = true;
    this.tell("running");
    this.tell("turn", turn);
  },
  text(data) {
    this.write(data.text ?? data.delta ?? "");
    this.current().writes();
    this.tell("turn", this.current());
  },
  tool_started(data) {
    const isNew = !data.callId || !this.cards.has(data.callId);
    const card = this.card(data);
    if (isNew) {
      const answer = this.answer();
      answer.parts.push(card);
      this.tell("item", answer);
    }
    this.current().started(card);
    this.tell("turn", this.current());
    this.tell("card", card);
  },
  tool_finished(data) {
    settledBy(this, data);
  },
  tool_refused(data) {
    settledBy(this, { ok: false, ...data });
  },
  progress(data) {
    const text = data.text ?? data.message ?? "";
    const running = [...this.cards.values()].filter((one) => one.state === "running");
    const card =
      this.cards.get(data.callId) ?? running.findLast((one) => one.toolId === data.toolId) ?? running.at(-1);
    if (card) {
      card.progress = text;
      this.tell("card", card);
    }
    const request = this.confirmations.get(card?.confirmation) ?? this.runningRequest(data.toolId);
    if (request) this.runs(request, "running", text);
  },
  confirmation(data) {
    this.hold(data);
  },
  confirmation_running(data) {
    const request = this.confirmations.get(data.id);
    if (request) this.runs(request, "running");
  },
  confirmation_closed(data) {
    const request = this.confirmations.get(data.id ?? data.confirmationId);
    const state = data.state ?? data.outcome ?? data.reason ?? "closed";
    if (request) this.close(request, state, data.envelope ?? null, data.message);
  },
  tools_changed(data) {
    if (this.items.at(-1)?.message?.type === "tools_changed") this.items.at(-1).message.superseded = true;
    this.add({ kind: "message", message: { ...data, type: "tools_changed" }, at: Date.now() });
  },
  connection_wanted(data) {
    const last = this.items.at(-1)?.message;
    if (last?.type === "connection_wanted" && last.connection === data.connection) return; // asked for twice in a turn
    this.add({ kind: "message", message: { ...data, type: "connection_wanted" }, at: Date.now() });
  },
  message(data) {
    this.add({ kind: "message", message: data.message ?? data, at: Date.now() });
  },
  usage(data) {
    this.current().costs(data);
    this.tell("turn", this.current());
  },
  done(data) {
    const open = this.items.findLast((item) => item.kind === "answer");
    if (data.late && (!open || open.done) && !data.text) return;
    if (open?.done && data.messageId && open.messageId === data.messageId) {
      this.finish(open, data.late !== true); // the session was read between the last word and this
      return;
    }
    const answer = this.answer();
    const said = answer.parts
      .filter((part) => part.kind === "text")
      .map((part) => part.text)
      .join("");
    if (data.text && !said.trim().endsWith(data.text.trim())) {
      answer.parts = [...answer.parts.filter((part) => part.kind !== "text"), this.words(data.text, answer)];
    }
    answer.citations = data.citations ?? answer.citations;
    answer.suggestions = data.suggestions ?? [];
    answer.usage = data.usage;
    this.current().paid(data);
    if (data.budget) this.takeBudget(data.budget);
    answer.stopped = data.state === "cancelled";
    this.finish(answer, data.late !== true);
  },
  error(data) {
    const answer = this.answer();
    answer.problem = data.detail ?? data.message ?? "Something went wrong.";
    this.tell("item", answer);
  },
  resync() {
    this.resync();
  },
  voice(data) {
    this.session.voice = data.on === true;
    this.tell("voice");
  },
  closed() {
    this.stream?.close();
    this.tell("lost", { status: 410 });
  },
};

/** The card of a call that ended: by the request that held it, by its id, or, where a model gives none, the one that runs. */
function cardFor(conversation, data) {
  const { callId, confirmationId, toolId } = data;
  const held = confirmationId ? conversation.cardOf({ id: confirmationId, tool: toolId }) : null;
  const cards = [...conversation.cards.values()];
  const running = callId ? null : cards.find((card) => card.toolId === toolId && card.state === "running");
  const known = held ?? conversation.cards.get(callId) ?? running;
  if (known) return known;
  HANDLERS.tool_started.call(conversation, data);
  return conversation.cards.get(callId) ?? [...conversation.cards.values()].at(-1);
}

function settledBy(conversation, data) {
  const card = cardFor(conversation, data);
  if (data.args !== undefined) card.args = data.args;
  conversation.settle(card, { ...data, ...(data.envelope ?? {}) });
  if (card.state === "held") {
    card.confirmation ??= card.error?.confirmation_request?.id;
    conversation.tell("card", card);
  }
  conversation.tell("turn", conversation.current());
}

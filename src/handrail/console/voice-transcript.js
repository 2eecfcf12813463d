// What is said, as messages of the conversation while it is being said: the person's words in their place even when they are
// transcribed after the answer has begun, the model's between its calls, and how long each turn took.

export class Transcript {
  constructor(conversation) {
    this.conversation = conversation;
    this.users = new Map(); // by the number of the utterance
    this.parts = new Map(); // of the model, by the number of the item
    this.typed = []; // said here and not yet told back by the server
    this.place = undefined; // after this one come the words of whoever speaks now
  }

  /** Somebody begins to speak: their words belong here, whenever they come. */
  hearing() {
    this.place = this.conversation.items.at(-1) ?? null;
  }

  /** Words that were typed, or recognised by the browser, before the server has told them. */
  said(id, text, spoken) {
    const item = { kind: "user", id, text, at: Date.now(), state: "sent", spoken };
    this.typed.push(item);
    this.conversation.add(item);
    return item;
  }

  turn({ turn: number }) {
    for (const item of this.conversation.items)
      if (item.kind === "answer" && !item.done && item.turn !== number) this.conversation.finish(item);
    const turn = this.conversation.openTurn(number);
    turn.think();
    this.conversation.tell("turn", turn);
  }

  take({ who, item, text, whole, final }) {
    if (who === "user") this.user(item, whole ?? text ?? "", final === true);
    else this.model(item, whole ?? (this.parts.get(item)?.part.text ?? "") + (text ?? ""));
  }

  user(number, text, final) {
    let item = this.users.get(number);
    if (!item && !text.trim()) return;
    if (!item) {
      item = this.echoOf(text) ?? this.placed({ kind: "user", id: `voice-${number}`, spoken: true, at: Date.now() });
      this.users.set(number, item);
    }
    item.text = text;
    item.state = final ? "sent" : "hearing";
    if (final) this.place = undefined;
    this.conversation.tell("item", item);
  }

  /** What was typed or recognised here and is now told by the server is the same message. */
  echoOf(text) {
    const found = this.typed.findIndex((item) => item.text.trim() === text.trim());
    return found < 0 ? null : this.typed.splice(found, 1)[0];
  }

  placed(item) {
    const { items, turn } = this.conversation;
    item.text = "";
    if (this.place !== undefined) return this.conversation.add(item, items[items.indexOf(this.place) + 1]);
    const answer = items.findLast((one) => one.kind === "answer");
    const begun = answer && !answer.done && answer.turn === turn && items[items.indexOf(answer) - 1]?.kind !== "user";
    return this.conversation.add(item, begun ? answer : undefined);
  }

  model(number, text) {
    const known = this.parts.get(number);
    if (known) {
      known.part.text = text;
      this.conversation.tell("item", known.answer);
      return;
    }
    if (!text.trim()) return;
    const answer = this.conversation.answer();
    answer.voice = true;
    const part = { kind: "text", text };
    answer.parts.push(part);
    this.parts.set(number, { part, answer });
    this.conversation.current().writes();
    this.conversation.tell("item", answer);
    this.conversation.tell("turn", this.conversation.current());
  }

  done({ turn, latency, text, interrupted }) {
    const { conversation } = this;
    let answer = conversation.items.findLast((item) => item.kind === "answer" && item.turn === turn);
    if (!answer && text) {
      answer = conversation.add({ kind: "answer", turn, parts: [], citations: [], done: false, at: Date.now() });
      answer.parts.push({ kind: "text", text });
    }
    if (!answer) {
      conversation.turns.get(turn)?.end();
      return;
    }
    answer.voice = true;
    answer.latency = latency;
    answer.stopped = interrupted === true;
    conversation.finish(answer);
  }

  /** Nothing more will come: whatever is open is over. */
  close() {
    for (const item of this.conversation.items) {
      if (item.kind === "answer" && !item.done) this.conversation.finish(item);
      if (item.kind === "user" && item.state === "hearing") {
        item.state = "sent";
        this.conversation.tell("item", item);
      }
    }
  }
}

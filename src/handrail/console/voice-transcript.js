// What is said, as messages of the conversation while it is being said. Words belong to an input, by whose id they find their place:
// a person's words may be known only after the answer to them has begun, or even ended, and an answer continues between its calls.

export class Transcript {
  constructor(conversation) {
    this.conversation = conversation;
    this.inputs = new Map(); // by id, in the order in which they were first heard of
    this.users = new Map(); // messages of the person, by the number of the utterance
    this.parts = new Map(); // of answers, by the number of the item
  }

  input(id) {
    if (!this.inputs.has(id)) this.inputs.set(id, { order: this.inputs.size, turn: null, said: null, answer: null });
    return this.inputs.get(id);
  }

  /** Words that were typed, or recognised by the browser: shown before the server has told them. */
  said(id, text, spoken) {
    const input = this.input(id);
    input.said = this.conversation.add({ kind: "user", id, text, at: Date.now(), state: "sent", spoken, input });
  }

  /** The server has begun to answer an input. */
  turn({ turn: number, inputId }) {
    const { conversation } = this;
    const input = (this.current = this.input(inputId));
    input.turn = number;
    if (input.answer) input.answer.turn = number;
    for (const item of conversation.items)
      if (item.kind === "answer" && !item.done && item !== input.answer) conversation.finish(item);
    const turn = conversation.openTurn(number);
    turn.think();
    conversation.tell("turn", turn);
  }

  take({ who, item, inputId, text, whole, final }) {
    const known = who === "user" ? this.users.get(item)?.text : this.parts.get(item)?.part.text;
    const words = whole ?? (known ?? "") + (text ?? "");
    if (who === "user") this.user(item, inputId, words, final === true);
    else this.model(item, inputId, words);
  }

  user(number, inputId, text, final) {
    let item = this.users.get(number);
    if (!item) {
      if (!text.trim()) return;
      const input = this.input(inputId);
      item = input.said ?? this.place({ kind: "user", id: inputId, text, spoken: true, at: Date.now(), input }, input);
      input.said = null;
      this.users.set(number, item);
    }
    item.text = text;
    item.state = final ? "sent" : "hearing";
    this.conversation.tell("item", item);
  }

  /** Before the answer to it, and before whatever was said later. */
  place(item, { order }) {
    const isLater = (one) => one.input?.order > order || (one.input?.order === order && one.kind === "answer");
    return this.conversation.add(item, this.conversation.items.find(isLater));
  }

  model(number, inputId, text) {
    const { conversation } = this;
    const known = this.parts.get(number);
    if (known) {
      known.part.text = text;
      conversation.tell("item", known.answer);
      return;
    }
    if (!text.trim()) return;
    const answer = this.answer(inputId);
    const part = { kind: "text", text };
    answer.parts.push(part);
    this.parts.set(number, { part, answer });
    conversation.current().writes();
    conversation.tell("item", answer);
    conversation.tell("turn", conversation.current());
  }

  /** The open answer to an input, or to the last one; one that had ended continues if nothing came after it. */
  answer(inputId = null) {
    const { conversation } = this;
    const input = (inputId !== null && this.input(inputId)) || this.current || this.input("");
    const last = conversation.items.at(-1);
    if (input.answer && (!input.answer.done || input.answer === last)) {
      input.answer.done = false;
      return input.answer;
    }
    const turn = input.turn ?? conversation.turn;
    const facts = { kind: "answer", turn, parts: [], citations: [], done: false, at: Date.now(), voice: true, input };
    input.answer = conversation.add(facts);
    return input.answer;
  }

  /** A turn is over, or over once more when the model continued in it. */
  done({ turn, inputId, text, citations, latency, interrupted }) {
    const input = this.input(inputId);
    if (!input.answer && text) {
      const answer = this.answer(inputId);
      answer.parts.push({ kind: "text", text });
    }
    const { answer } = input;
    if (!answer) {
      this.conversation.turns.get(turn)?.end();
      return;
    }
    answer.latency = latency;
    answer.stopped = interrupted === true;
    if (citations?.length) answer.citations = citations;
    this.conversation.finish(answer);
  }

  /** Whether these words stand in what was said last. */
  has(text) {
    const texts = [...this.parts.values()].slice(-8).map(({ part }) => part.text);
    return texts.some((one) => one.includes(text.trim()));
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

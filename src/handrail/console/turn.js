// The steps of one turn on a line of time: when the model thought, when each call ran, when a person was asked.

export class Turn {
  constructor(number, startedAt) {
    this.number = number;
    this.startedAt = startedAt;
    this.endedAt = null;
    this.steps = [];
    this.usage = null;
    this.rounds = null;
    this.before = null;
    this.isMemory = false;
  }

  /** What the part that runs has cost so far, beside what was paid before: an answer that continues after an approval costs anew. */
  costs(usage) {
    this.usage = added(this.before?.usage, usage);
  }

  /** A part of the turn is over. */
  paid({ usage, rounds }) {
    if (usage) this.costs(usage);
    if (rounds) this.rounds = (this.before?.rounds ?? 0) + rounds;
    this.before = { usage: this.usage, rounds: this.rounds };
  }

  now() {
    return performance.now() - this.startedAt;
  }

  /** The model has the word, unless calls still run. */
  think() {
    this.resume();
    const open = this.steps.some((step) => step.end === null);
    if (!open) this.steps.push({ kind: "model", label: "Model", start: this.now(), end: null, state: "running" });
  }

  /** What comes after the end, such as the result of a call that was approved later, continues where the turn had ended: the
   *  minutes that a person took would leave nothing to see of the rest. */
  resume() {
    if (this.endedAt === null) return;
    this.startedAt = performance.now() - this.length();
    this.endedAt = null;
    this.isMemory = false;
  }

  /** A person was asked at this point. */
  asked(id) {
    if (this.steps.some((step) => step.id === id)) return;
    this.steps.push({
      kind: "person",
      label: "You",
      id,
      start: this.now(),
      end: this.now(),
      state: "held",
      since: performance.now(),
      took: null,
    });
  }

  decided(id, state) {
    const step = this.steps.find((one) => one.id === id);
    if (!step) return;
    step.took = performance.now() - step.since;
    step.state = state === "declined" || state === "expired" ? "declined" : "done";
  }

  writes() {
    this.think();
    const last = this.steps.findLast((step) => step.kind === "model" && step.end === null);
    if (last) last.writing = true;
  }

  started(card) {
    if (this.steps.some((step) => step.card === card)) return;
    this.endModel();
    this.steps.push({ kind: "call", label: card.toolId, card, start: this.now(), end: null, state: "running" });
  }

  finished(card) {
    const step = this.steps.find((one) => one.card === card);
    if (!step) return;
    if (step.end === null) {
      // The server measured the call; what the network added is not the call's.
      const measured = card.meta?.duration;
      step.end = typeof measured === "number" ? Math.min(this.now(), step.start + measured) : this.now();
      if (typeof measured === "number" && this.isMemory) step.end = step.start + measured;
    }
    step.state = card.state;
    if (this.endedAt === null && !this.steps.some((one) => one.end === null)) this.think();
  }

  /** A call of which only the duration is known: it is put after the one before. */
  remembered(card) {
    this.isMemory = true;
    const start = Math.max(0, ...this.steps.filter((step) => step.kind === "call").map((step) => step.end ?? 0));
    this.steps = this.steps.filter((step) => step.kind === "call");
    this.steps.push({
      kind: "call",
      label: card.toolId,
      card,
      start,
      end: start + (card.meta?.duration ?? 0),
      state: card.state,
    });
  }

  endModel() {
    for (const step of this.steps) {
      if (step.kind === "model" && step.end === null) {
        step.end = this.now();
        step.state = "done";
      }
    }
  }

  end() {
    this.endModel();
    this.steps = this.steps.filter(
      (step) => step.kind !== "model" || step.writing || step.end - step.start > 1 || this.steps.length === 1,
    );
    for (const step of this.steps) step.end ??= this.now();
    this.endedAt ??= this.now();
  }

  length() {
    const last = Math.max(1, ...this.steps.map((step) => step.end ?? this.now()));
    return this.endedAt === null && !this.isMemory ? Math.max(last, this.now()) : last;
  }

  calls() {
    return this.steps.filter((step) => step.kind === "call");
  }
}

/** The sum of two counts of tokens; what is no number is the newer one's. */
function added(before, usage) {
  const sum = { ...usage };
  for (const [name, value] of Object.entries(before ?? {}))
    if (typeof value === "number") sum[name] = value + (typeof sum[name] === "number" ? sum[name] : 0);
  return sum;
}

// What is to be played, in order, and how much of it was: pieces of PCM that belong to numbered items, each at its own place. It
// knows no clock; the audio thread pulls from it, so what it reports are the samples that were handed out. Sound that did not
// come was not played: a gap does not count, and an item of which nothing came was played for 0 ms.

const AHEAD_SECONDS = 0.06; // so much is there before an item starts, so that a late piece leaves no gap

export class PlayQueue {
  constructor(rate) {
    this.rate = rate;
    this.ahead = Math.round(rate * AHEAD_SECONDS);
    this.pieces = [];
    this.ends = new Set();
    this.written = new Map(); // item: how many of its samples have come
    this.flushed = 0; // this item and those before it are not wanted any more
    this.item = null;
    this.sounded = 0; // samples of the item
    this.starved = true;
    this.done = [];
  }

  push(item, offsetMs, samples) {
    if (item <= this.flushed) return;
    const from = Math.round((offsetMs * this.rate) / 1000);
    const expected = this.written.get(item) ?? 0;
    const near = this.rate / 500; // offsets have whole milliseconds, so a smaller difference is none
    const cut = expected - from > near ? expected - from : 0; // it was sent again
    if (cut >= samples.length) return;
    const start = Math.abs(from - expected) <= near ? expected : Math.max(from, expected);
    this.pieces.push({ item, samples: samples.subarray(cut), at: 0 });
    this.written.set(item, start + samples.length - cut);
  }

  /** The item is complete. */
  end(item) {
    if (item <= this.flushed) return;
    this.ends.add(item);
    this.settle(item);
  }

  /** Throw away what was not played of an item and of those before it; gives how much of the one that sounds was played. */
  flush(item) {
    this.flushed = Math.max(this.flushed, item);
    this.pieces = this.pieces.filter((piece) => piece.item > this.flushed);
    const reached = this.item !== null && this.item <= this.flushed ? this.report() : null;
    for (const known of [...this.written.keys()]) if (known <= this.flushed) this.forget(known);
    if (reached) this.item = null;
    this.starved = true;
    return reached;
  }

  /** Fill the output with what comes next, and silence after it; whether anything sounds. */
  pull(output) {
    let filled = 0;
    while (filled < output.length && this.pieces.length) {
      const piece = this.pieces[0];
      if (piece.item !== this.item) this.begin(piece);
      if (this.starved && !this.isReady(piece.item)) break;
      this.starved = false;
      const count = Math.min(output.length - filled, piece.samples.length - piece.at);
      for (let place = 0; place < count; place += 1) output[filled + place] = piece.samples[piece.at + place] / 32768;
      filled += count;
      piece.at += count;
      this.sounded += count;
      if (piece.at === piece.samples.length) this.pieces.shift();
      this.settle(piece.item);
    }
    if (filled < output.length && this.item !== null) this.starved = true;
    output.fill(0, filled);
    return filled > 0;
  }

  /** How much of the item that sounds was played. */
  report() {
    return { item: this.item, ms: Math.floor((this.sounded * 1000) / this.rate) };
  }

  /** Items of which nothing more will be played, since the last time. */
  finished() {
    const done = this.done;
    this.done = [];
    return done;
  }

  begin(piece) {
    if (this.item !== null) this.finish(); // the next one begins: this one is over, whether or not its end was reported
    this.item = piece.item;
    this.sounded = 0;
    this.starved = true;
  }

  isReady(item) {
    const own = this.pieces.filter((piece) => piece.item === item);
    const there = own.reduce((sum, piece) => sum + piece.samples.length - piece.at, 0);
    return there >= this.ahead || this.ends.has(item) || own.length < this.pieces.length;
  }

  settle(item) {
    if (!this.ends.has(item) || this.pieces.some((piece) => piece.item === item)) return;
    if (this.item === item) this.finish();
    else if (this.item === null || item > this.item) this.conclude({ item, ms: 0 }); // nothing of it came
  }

  finish() {
    this.conclude(this.report());
    this.flushed = Math.max(this.flushed, this.item);
    this.item = null;
  }

  conclude(report) {
    this.done.push(report);
    this.forget(report.item);
  }

  forget(item) {
    this.ends.delete(item);
    this.written.delete(item);
  }
}

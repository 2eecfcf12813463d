// The audio thread's part of voice: the microphone as frames of 20 ms at the rate that was asked for, and the queue that the
// loudspeaker pulls from, with its position.

import { PlayQueue } from "./voice-queue.js";
import { Framer, Resampler } from "./voice-resample.js";

const FRAME_SECONDS = 0.02;
const REPORT_SECONDS = 0.1;

class Microphone extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    const { rate } = processorOptions;
    this.resampler = new Resampler(sampleRate, rate);
    this.framer = new Framer(Math.round(rate * FRAME_SECONDS), (frame) => this.port.postMessage(frame, [frame.pcm]));
    this.port.onmessage = () => (this.isOver = true);
  }

  process([channels]) {
    if (channels?.[0]) this.framer.take(this.resampler.take(channels[0]));
    return !this.isOver;
  }
}

class Loudspeaker extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = new PlayQueue(sampleRate);
    this.told = 0;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  take({ act, item, offset, pcm }) {
    if (act === "push") this.queue.push(item, offset, new Int16Array(pcm));
    else if (act === "end") this.queue.end(item);
    else if (act === "flush") {
      const reached = this.queue.flush(item);
      if (reached) this.port.postMessage(reached);
    } else if (act === "reset") this.queue = new PlayQueue(sampleRate);
    else this.isOver = true;
  }

  process(_, [channels]) {
    const sounds = this.queue.pull(channels[0]);
    for (const other of channels.slice(1)) other.set(channels[0]);
    if (sounds && this.queue.item !== null && currentTime - this.told >= REPORT_SECONDS) {
      this.told = currentTime;
      this.port.postMessage(this.queue.report());
    }
    for (const report of this.queue.finished()) this.port.postMessage({ ...report, done: true });
    return !this.isOver;
  }
}

registerProcessor("microphone", Microphone);
registerProcessor("loudspeaker", Loudspeaker);

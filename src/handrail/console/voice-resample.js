// Samples of one rate as samples of another, piece by piece and without a click between the pieces. It runs in the audio
// thread, where browsers do not agree on who resamples a microphone, so this does it for all of them.

const PHASES = 256;
const LOBES = 8; // of the sinc on each side: speech needs no more
const PASSED = 0.92; // of the band that both rates have; the rest is for the filter to fall in

export class Resampler {
  constructor(from, to) {
    this.step = from / to;
    const cutoff = Math.min(1, to / from) * PASSED;
    this.half = Math.ceil(LOBES / cutoff);
    this.table = kernels(cutoff, this.half);
    this.kept = new Float32Array(this.half - 1);
    this.at = this.half - 1;
  }

  /** What these samples, after all those before, give at the other rate. */
  take(samples) {
    if (this.step === 1) return samples.slice();
    const { half, step, table } = this;
    const buffer = new Float32Array(this.kept.length + samples.length);
    buffer.set(this.kept);
    buffer.set(samples, this.kept.length);
    const made = new Float32Array(Math.max(0, Math.ceil((buffer.length - half - this.at) / step) + 1));
    let [count, at] = [0, this.at];
    for (; Math.floor(at) + half < buffer.length; at += step) {
      const whole = Math.floor(at);
      const kernel = table[Math.round((at - whole) * PHASES)];
      const first = whole - half + 1;
      let sum = 0;
      for (let tap = 0; tap < kernel.length; tap += 1) sum += buffer[first + tap] * kernel[tap];
      made[count] = sum;
      count += 1;
    }
    const gone = Math.floor(at) - half + 1;
    this.kept = buffer.slice(gone);
    this.at = at - gone;
    return made.subarray(0, count);
  }
}

/** One windowed sinc for each place between two samples; each adds up to one, so that no phase is louder. */
function kernels(cutoff, half) {
  return Array.from({ length: PHASES + 1 }, (_, phase) => {
    const kernel = new Float32Array(2 * half);
    let sum = 0;
    for (let tap = 0; tap < kernel.length; tap += 1) {
      const x = tap - half + 1 - phase / PHASES;
      const window = Math.abs(x) < half ? Math.cos((Math.PI * x) / (2 * half)) ** 2 : 0;
      kernel[tap] = window * (x === 0 ? 1 : Math.sin(Math.PI * cutoff * x) / (Math.PI * cutoff * x));
      sum += kernel[tap];
    }
    return kernel.map((value) => value / sum);
  });
}

/** Samples as frames of 16-bit PCM of one length, each with how loud it is. */
export class Framer {
  constructor(size, onFrame) {
    this.size = size;
    this.onFrame = onFrame;
    this.reset();
  }

  reset() {
    this.frame = new Int16Array(this.size);
    this.filled = 0;
    this.squares = 0;
  }

  take(samples) {
    for (const sample of samples) {
      const value = Math.max(-1, Math.min(1, sample));
      this.frame[this.filled] = Math.round(value * 32767);
      this.squares += value * value;
      this.filled += 1;
      if (this.filled < this.size) continue;
      const done = { pcm: this.frame.buffer, loudness: Math.sqrt(this.squares / this.size) };
      this.reset();
      this.onFrame(done);
    }
  }
}

// The page's part of sound: opens the microphone and the loudspeaker, and says in one sentence why it cannot.

import { causeOfDevice, Unheard } from "./voice-causes.js";

const WORKLET = "/console/voice-worklet.js";
const LONGEST_DELAY = 0.5; // seconds; what a device says beyond that is not believed

/** The microphone as frames of PCM at a rate, with how loud each is. */
export class Microphone {
  /** `onFrame(pcm, loudness)` for each 20 ms; `onLost()` when the device is gone. */
  static async open(rate, { onFrame, onLost }) {
    if (!navigator.mediaDevices?.getUserMedia || !("audioWorklet" in AudioContext.prototype))
      throw new Unheard("insecure");
    let stream;
    try {
      const wanted = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
      stream = await navigator.mediaDevices.getUserMedia({ audio: wanted });
    } catch (error) {
      throw new Unheard(causeOfDevice(error));
    }
    const made = new Microphone(stream);
    try {
      await made.connect(rate, onFrame);
    } catch {
      made.close();
      throw new Unheard("unknown");
    }
    stream.getAudioTracks()[0].addEventListener("ended", onLost);
    return made;
  }

  constructor(stream) {
    this.stream = stream;
    this.context = new AudioContext();
  }

  async connect(rate, onFrame) {
    await this.context.audioWorklet.addModule(WORKLET);
    this.node = new AudioWorkletNode(this.context, "microphone", {
      numberOfOutputs: 0,
      channelCount: 1,
      channelCountMode: "explicit",
      processorOptions: { rate },
    });
    this.node.port.onmessage = ({ data }) => onFrame(data.pcm, data.loudness);
    this.context.createMediaStreamSource(this.stream).connect(this.node);
    this.context.resume();
  }

  /** Silence is still sent, so that whoever listens hears the end of what was said. */
  mute(isMuted) {
    for (const track of this.stream.getAudioTracks()) track.enabled = !isMuted;
  }

  close() {
    this.node?.port.postMessage("over");
    for (const track of this.stream.getTracks()) track.stop();
    this.context.close();
  }
}

/** Plays PCM of numbered items and tells how far each was heard. */
export class Loudspeaker {
  /** `onPlayed({item, ms, done})`: about every 100 ms, and once when an item was heard to its end. */
  static async open(rate, onPlayed) {
    const made = new Loudspeaker(rate, onPlayed);
    try {
      await made.connect();
    } catch {
      made.close();
      throw new Error("The loudspeaker could not be opened.");
    }
    return made;
  }

  constructor(rate, onPlayed) {
    this.context = new AudioContext({ sampleRate: rate, latencyHint: "interactive" });
    this.onPlayed = onPlayed;
  }

  async connect() {
    await this.context.audioWorklet.addModule(WORKLET);
    this.node = new AudioWorkletNode(this.context, "loudspeaker", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.port.onmessage = ({ data }) => this.played(data);
    this.node.connect(this.context.destination);
    this.context.resume();
  }

  /** What was handed to the device is heard a little later. */
  played({ item, ms, done }) {
    const delay = Math.min(LONGEST_DELAY, this.context.outputLatency || this.context.baseLatency || 0) * 1000;
    if (done) setTimeout(() => this.context.state !== "closed" && this.onPlayed({ item, ms, done }), delay);
    else this.onPlayed({ item, ms: Math.max(0, Math.round(ms - delay)) });
  }

  push(item, offset, pcm) {
    this.node.port.postMessage({ act: "push", item, offset, pcm }, [pcm]);
  }

  end(item) {
    this.node.port.postMessage({ act: "end", item });
  }

  flush(item) {
    this.node.port.postMessage({ act: "flush", item });
  }

  /** Another conversation begins, and counts its items anew. */
  reset() {
    this.node.port.postMessage({ act: "reset" });
  }

  close() {
    this.node?.port.postMessage({ act: "over" });
    if (this.context.state !== "closed") this.context.close();
  }
}

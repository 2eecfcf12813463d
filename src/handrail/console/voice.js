// A voice conversation in this tab: opens the microphone or the browser's own speech, keeps the line, and puts what comes over it
// into the conversation. Whatever fails is said in one sentence, and text continues.

import { conversation, freshMessageId } from "./conversation.js";
import { toast } from "./dom.js";
import { sentence, Unheard } from "./voice-causes.js";
import { Link } from "./voice-link.js";
import { Loudspeaker, Microphone } from "./voice-sound.js";
import { abilities, Recogniser, Speaker, spokenAs } from "./voice-speech.js";
import { Transcript } from "./voice-transcript.js";

const ENDS_WITHIN = 5_000;
const ENDING_FOLLOWS = 500;
const MOST_TEXT = 8_000;
const MOST_AGO = 60_000;
const GOES_ON = "You can continue in text.";
const ENDINGS = {
  user_requested: null,
  client_gone: "Voice ended because the connection was away for too long.",
  idle: "Voice ended because nobody spoke for a while.",
  provider_lost: "The voice service was lost.",
  blocked: "The assistant has ended the conversation.",
};
// As in text. A tool's messages come over the session's stream, in voice too.
const CARRIED = ["tool_started", "tool_finished", "tool_refused", "progress", "connection_wanted"];

class Voice extends EventTarget {
  state = "off";
  note = "";
  isMuted = false;
  able = { sound: false, recognises: false, speaks: false };
  trouble = null; // why nobody can be heard any more
  questions = new Map();
  verdicts = new Set(); // of questions that were answered by voice
  loudness = 0;

  get isOn() {
    return this.state !== "off";
  }

  /** Whether somebody who speaks is heard, or would be if not muted. */
  get hears() {
    return this.trouble === null && (this.able.sound || this.able.recognises);
  }

  /** Whether typing is the only way in. */
  get mustType() {
    return this.state === "listening" && !this.hears;
  }

  tell(what, detail = null) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }

  set(state, note = "") {
    if (this.state === state && this.note === note) return;
    this.state = state;
    this.note = note;
    this.tell("state");
  }

  // ------------------------------------------------------------------------------------------------- starting
  async start() {
    if (this.isOn) return;
    this.sessionId = conversation.session.sessionId;
    const link = (this.link = new Link(`/api/sessions/${encodeURIComponent(this.sessionId)}/voice`, {
      facts: () => ({ ...(this.able.sound ? { audio: { rate: this.rate } } : {}), abilities: this.able }),
      onMessage: (type, data) => this.take(type, data),
      onSound: (item, offset, pcm) => this.sound(item, offset, pcm),
      onState: (state) => this.line(state),
    }));
    this.isMuted = false;
    this.trouble = null;
    this.isEnding = this.wasReady = this.wasUp = false;
    this.questions.clear();
    this.transcript = new Transcript(conversation);
    this.set("connecting");
    try {
      const { audio } = await link.ask();
      // A model that takes no sound, or makes none, needs the browser's own ears and voice.
      const hasSound = audio?.input?.rates?.length && audio.output?.rate;
      const devices = await (hasSound ? this.openSound(audio) : this.openSpeech());
      if (this.link === link) Object.assign(this, devices);
      else closeAll(devices); // voice was ended while the browser asked for the microphone
    } catch (error) {
      if (this.link === link) this.fail(error.message, error instanceof Unheard ? "" : GOES_ON);
    }
    if (this.link !== link) return;
    this.tell("state"); // what can be done is known now
    this.microphone?.mute(this.isMuted); // somebody may have been quicker than the device
    link.run();
  }

  async openSound(audio) {
    this.able = { sound: true, recognises: false, speaks: false };
    this.rate = audio.input.rates[0];
    const microphone = await this.openMicrophone();
    try {
      return { microphone, loudspeaker: await Loudspeaker.open(audio.output.rate, (report) => this.played(report)) };
    } catch (error) {
      microphone.close();
      throw error;
    }
  }

  async openMicrophone() {
    const microphone = await Microphone.open(this.rate, {
      onFrame: (pcm, loudness) => this.heard(pcm, loudness),
      onLost: () => this.microphone === microphone && this.deaf("gone"),
    });
    return microphone;
  }

  async openSpeech() {
    this.able = await abilities();
    const speaker = this.able.speaks && new Speaker((id, completed) => this.link?.send("spoken", { id, completed }));
    return { speaker: speaker || null, recogniser: this.able.recognises ? this.newRecogniser() : null };
  }

  newRecogniser() {
    const recogniser = new Recogniser({
      onSpeech: (state, ago) => this.speech(state, ago),
      onWords: (text, isFinal) => this.words(text, isFinal),
      onProblem: (cause) => this.recogniser === recogniser && this.deaf(cause),
      echo: (since) => this.speaker?.since(since) ?? "",
    });
    return recogniser;
  }

  // --------------------------------------------------------------------------------------------------- talking
  heard(pcm, loudness) {
    this.loudness = this.isMuted ? 0 : loudness;
    this.link?.sendSound(pcm);
  }

  sound(item, offset, pcm) {
    this.newest = item;
    this.loudspeaker?.push(item, offset, pcm);
  }

  /** Where the line is down the newest report waits: the server must know what was heard to its end. */
  played({ item, ms, done }) {
    const report = { item, ms, ...(done ? { done } : {}) };
    this.unsent = this.link?.send("played", report) ? null : report;
  }

  /** `ago`: how many milliseconds before now it began. */
  speech(state, ago = 0) {
    if (state === "started") this.speaker?.flush();
    this.link?.send("speech", { state, ...(ago > 0 ? { agoMs: Math.min(ago, MOST_AGO) } : {}) });
    this.set(state === "started" ? "hearing" : "listening"); // until the server says more
  }

  words(text, isFinal) {
    this.tell("heard", isFinal ? "" : text);
    if (isFinal) this.send(text, true);
  }

  /** Typed words join the conversation. */
  say(text) {
    if (text.length > MOST_TEXT) throw new Error(`In voice a message has at most ${MOST_TEXT} characters.`);
    if (!this.link?.canSend) throw new Error("Voice is not connected; wait a moment and send it again.");
    this.send(text, false);
  }

  send(text, spoken) {
    const id = freshMessageId();
    if (this.link.send("text", { id, text, ...(spoken ? { spoken } : {}) })) this.transcript.said(id, text, spoken);
    else toast("Voice is not connected; say it again in a moment.", "failed");
  }

  /** Nobody can be heard any more; what is typed still counts. A microphone that is gone continues as silence, so that whoever
   * listens hears the end of what was said. */
  deaf(cause) {
    this.recogniser = null;
    this.able = { ...this.able, recognises: false };
    this.isMuted = false;
    this.trouble = cause;
    this.tell("state");
    toast(sentence(cause, "press Try again"), "failed");
  }

  /** Try to hear once more, after something was done about the trouble. */
  async hearAgain() {
    const { link } = this;
    if (!this.able.sound) {
      this.recogniser = this.newRecogniser().open(this.language);
      this.able = { ...this.able, recognises: true };
    } else {
      const microphone = await this.openMicrophone().catch((error) => error);
      if (this.link !== link || !this.trouble) return microphone.close?.(); // ended, or pressed twice
      if (microphone instanceof Error) return this.deaf(microphone.why);
      this.microphone?.close();
      this.microphone = microphone;
    }
    this.trouble = null;
    this.tell("state");
  }

  mute() {
    this.isMuted = !this.isMuted;
    this.microphone?.mute(this.isMuted);
    this.recogniser?.mute(this.isMuted);
    this.tell("state");
  }

  /** Stop the answer that is being given. */
  stop() {
    this.loudspeaker?.flush(this.newest ?? 0);
    this.speaker?.flush();
    this.link?.send("interrupt");
  }

  end() {
    if (!this.isOn || this.isEnding) return;
    if (!this.link.send("end", { reason: "user_requested" })) return this.over();
    this.isEnding = true;
    this.set("ending");
    const { link } = this;
    setTimeout(() => this.link === link && this.over(), ENDS_WITHIN);
  }

  // ---------------------------------------------------------------------------------------------------- events
  line({ state, sentence, code }) {
    if (state === "connecting" && this.state !== "connecting") this.set("reconnecting");
    if (state === "waiting") this.set("reconnecting");
    if (state === "over") code === 1000 ? this.over() : this.fail(sentence);
  }

  take(type, data) {
    if (type === "tool_started") this.transcript.answer();
    if (CARRIED.includes(type)) conversation.take({ type, data });
    else HANDLERS[type]?.call(this, data);
  }

  /** The session is in text again, and shows what was said at the end. */
  ended({ reason, message, closingMessage, textResponse }) {
    for (const text of [closingMessage, textResponse])
      if (text && !this.transcript.has(text)) {
        const parts = [{ kind: "text", text }];
        conversation.add({ kind: "answer", turn: null, parts, citations: [], done: true, at: Date.now() });
      }
    conversation.session.voice = false;
    conversation.renewBudget();
    const sentence = closingMessage ? null : (ENDINGS[reason] ?? message);
    this.over();
    if (sentence) toast(`${sentence} ${GOES_ON}`, "info");
  }

  fail(what, after = GOES_ON) {
    this.over();
    toast(`${what} ${after}`.trim(), "failed");
  }

  over() {
    const { link } = this;
    this.link = null;
    link?.close();
    this.shut();
    this.transcript.close();
    this.questions.clear();
    this.set("off");
  }

  /** Let go of the devices. */
  shut() {
    const { microphone, loudspeaker, speaker, recogniser } = this;
    this.microphone = this.loudspeaker = this.speaker = this.recogniser = null;
    closeAll({ microphone, loudspeaker, speaker, recogniser });
    this.loudness = 0;
    this.unsent = null;
  }
}

const closeAll = (devices) => Object.values(devices).forEach((device) => device?.close());

/** By the message's type; each is called with the voice as `this`. */
const HANDLERS = {
  ready({ resumed, language }) {
    if (this.wasReady && !resumed) {
      // The server has begun anew and counts anew: what was said before is what it has stored.
      this.loudspeaker?.reset();
      this.speaker?.flush();
      this.unsent = null;
      conversation.resync();
    } else if (!resumed) conversation.renewBudget();
    this.wasReady = true;
    this.language = spokenAs(language);
    if (this.speaker) this.speaker.language = this.language;
    if (this.recogniser && !this.recogniser.engine) this.recogniser.open(this.language);
    if (this.unsent) this.played(this.unsent);
    if (!resumed) this.told = "listening";
    this.set(this.told);
  },
  state({ state }) {
    this.wasUp ||= state !== "reconnecting";
    this.told = this.wasUp ? state : "connecting"; // the model is looked for the first time
    if (!this.isEnding) this.set(this.told);
  },
  turn(data) {
    this.transcript.turn(data);
  },
  transcript(data) {
    this.transcript.take(data);
  },
  audio_end({ item }) {
    this.loudspeaker?.end(item);
  },
  flush({ item }) {
    this.loudspeaker?.flush(item);
    this.speaker?.flush(item);
  },
  confirmation(data) {
    conversation.take({ type: "confirmation", data });
  },
  confirmation_closed(data) {
    this.questions.delete(data.id);
    conversation.take({ type: "confirmation_closed", data });
  },
  question(data) {
    const readings = (this.questions.get(data.id)?.readings ?? 0) + (data.state === "reading" ? 1 : 0);
    this.questions.set(data.id, { ...data, readings });
    if (data.state === "approved" || data.state === "declined") this.verdicts.add(data.id);
    this.tell("question", data);
    if (data.state === "approved") toast("Approved by voice.", "done");
    if (data.state === "declined") toast("Declined by voice: nothing was run.", "info");
  },
  speak(data) {
    // Answers are in the transcript, and previews in the dialog.
    if (data.kind === "notice") this.transcript.model(data.item, null, data.text);
    if (data.kind === "filler") this.set(this.state, data.text);
    this.speaker?.speak(data);
  },
  cue({ kind }) {
    if (kind === "slow") this.set(this.state, "a moment longer");
  },
  turn_done(data) {
    this.transcript.done(data);
  },
  ended(data) {
    this.ended(data);
  },
  error({ message }) {
    const { link } = this;
    // Where the line is closed after it, it is said with the end, or mended without a word.
    setTimeout(() => message && this.link === link && link.isLive && toast(message, "failed"), ENDING_FOLLOWS);
  },
};

export const voice = new Voice();
conversation.voice = voice;
conversation.addEventListener("reset", () => {
  if (!voice.isOn) return;
  if (conversation.session?.sessionId !== voice.sessionId) voice.over();
  else voice.transcript = new Transcript(conversation); // the messages were made anew
});

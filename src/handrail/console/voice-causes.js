// Why nobody can be heard: for each cause what is wrong and what to do about it. A device and the browser's recogniser tell the
// same causes, each with words of its own.

const CAUSES = {
  missing: ["No microphone was found", "Connect one, or switch it on"],
  refused: ["This page may not use the microphone", "Allow it for this page in the browser's settings"],
  dismissed: ["The browser asked for the microphone and got no answer", "Answer it with Allow"],
  system: ["The system does not let the browser use the microphone", "Allow it in the system's privacy settings"],
  busy: [
    "The microphone is there but cannot be read; perhaps another program has it",
    "Close that program, or choose another microphone",
  ],
  gone: ["The microphone was disconnected", "Connect it"],
  insecure: ["The browser gives no microphone to a page at this address", "Open it over https or on the server's machine"],
  service: [
    "The browser's speech recognition is switched off",
    "Allow it in the settings of the browser or of the system",
  ],
  network: ["The browser's speech recognition cannot be reached", "Check the connection to the internet"],
  recogniser: [
    "The microphone works, but this browser's speech recognition does not",
    "Use a browser that has a recogniser",
  ],
  language: ["The browser does not recognise speech in this language", "Add it in the browser's settings"],
  unknown: ["The microphone could not be opened", "Check it in the system's settings"],
};

const BY_DEVICE = {
  NotFoundError: "missing",
  NotAllowedError: "refused",
  SecurityError: "refused",
  NotReadableError: "busy",
  AbortError: "busy",
};

const BY_RECOGNITION = {
  "not-allowed": "refused",
  "audio-capture": "busy",
  "service-not-allowed": "service",
  network: "network",
  "language-not-supported": "language",
};

/** What is wrong, to be followed by more. */
export const wrong = (cause) => CAUSES[cause][0];

/** What is wrong and what to do about it; `again` is how it is tried once more. */
export function sentence(cause, again) {
  const [what, remedy] = CAUSES[cause];
  return `${what}. ${remedy}, then ${again}; typing works meanwhile.`;
}

/** The cause of an error of `getUserMedia`. */
export function causeOfDevice({ name, message = "" }) {
  const found = BY_DEVICE[name] ?? "unknown";
  if (found !== "refused") return found;
  if (/\bsystem\b/i.test(message)) return "system";
  return /\bdismissed\b/i.test(message) ? "dismissed" : found;
}

/** The cause of a recogniser's error; null where it is none, such as silence. */
export async function causeOfRecognition(error) {
  const found = BY_RECOGNITION[error] ?? null;
  if (found !== "refused" && found !== "busy") return found;
  if (!isSecureContext) return "insecure";
  if (!(await hasMicrophone())) return "missing";
  return (await canBeRead()) ? "recogniser" : found;
}

/** Whether the microphone that a recogniser complains of can be read all the same. Nobody is asked for it: where it was not
 *  allowed before, the recogniser is believed. */
async function canBeRead() {
  const allowed = await navigator.permissions?.query({ name: "microphone" }).catch(() => null);
  if (allowed?.state !== "granted") return false;
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => null);
  for (const track of stream?.getTracks() ?? []) track.stop();
  return stream !== null;
}

/** A recogniser calls a microphone that is not there one that cannot be read, or even one that is not allowed. */
async function hasMicrophone() {
  const devices = await navigator.mediaDevices?.enumerateDevices().catch(() => []);
  return devices?.some(({ kind }) => kind === "audioinput") ?? false;
}

/** There is no microphone to begin with. */
export class Unheard extends Error {
  constructor(cause) {
    super(sentence(cause, "press the microphone again"));
    this.why = cause;
  }
}

// Times, sizes and states in words.

export const STATES = {
  running: { word: "running", sign: "running" },
  done: { word: "done", sign: "done" },
  failed: { word: "failed", sign: "failed" },
  unknown: { word: "outcome not known", sign: "alert" },
  refused: { word: "refused", sign: "refused" },
  held: { word: "waits for you", sign: "held" },
  lapsed: { word: "no longer waiting", sign: "held" },
  declined: { word: "declined", sign: "refused" },
};

const GATES = {
  session: "the session's state",
  mode: "the mode",
  availability: "availability",
  validation: "validation of the arguments",
  validate: "validation of the arguments",
  parse: "reading the arguments",
  clamp: "the limits of the mode",
  rate: "the rate limit",
  loop: "loop detection",
  budget: "the turn's budget",
  confirmation: "confirmation",
  find: "finding the tool",
  ledger: "the ledger",
};

const BY_ERROR = {
  NOT_FOUND: "find",
  VALIDATION: "validation",
  SESSION_INACTIVE: "session",
  AUTH: "session",
  MODE_RESTRICTED: "mode",
  UNAVAILABLE: "availability",
  RATE_LIMIT: "rate",
  LOOP_DETECTED: "loop",
  BUDGET_EXCEEDED: "budget",
  CONFIRMATION_REQUIRED: "confirmation",
  DECLINED: "confirmation",
  STORE_UNAVAILABLE: "ledger",
};

/** Which gate decided, in words; null if none did. */
export function gateWords(gate, errorType) {
  const name = gate || BY_ERROR[errorType];
  return name ? (GATES[name] ?? name) : null;
}

export function duration(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "";
  if (ms < 1) return "under 1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  return `${minutes} min ${Math.round((ms - minutes * 60_000) / 1000)} s`;
}

export function countdown(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function number(value) {
  return typeof value === "number" ? value.toLocaleString("en") : String(value ?? "");
}

/** A moment (ISO text or milliseconds) as the reader's own date and time. */
export function moment(value, timeStyle = "medium") {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return String(value ?? "");
  return date.toLocaleString(undefined, { dateStyle: "medium", timeStyle });
}

export function clock(value) {
  const date = new Date(value);
  return Number.isNaN(date.getTime())
    ? ""
    : date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** How long ago a moment was, in one or two words; a date once it is more than a week. */
export function sinceWords(value, now = Date.now()) {
  const minutes = Math.floor(Math.max(0, now - value) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ago`;
  if (minutes < 7 * 24 * 60) return plural(Math.floor(minutes / (24 * 60)), "day") + " ago";
  return new Date(value).toLocaleDateString(undefined, { dateStyle: "medium" });
}

/** `start_voice_session` as a person would say it. */
export function spoken(name) {
  return String(name ?? "").replaceAll("_", " ");
}

/** The list that an answer holds, whichever of the names it has. */
export function listIn(body, ...names) {
  if (Array.isArray(body)) return body;
  for (const name of names) if (Array.isArray(body?.[name])) return body[name];
  return [];
}

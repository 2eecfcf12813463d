// Asks the server. Every answer that is not a success becomes an `ApiError` with a sentence; the key and the session's secret
// are added here and live in sessionStorage, so that they end with the tab.

let ahead = 0; // how many milliseconds the server's clock is ahead of this one

/** The server's time, by which requests end. */
export const serverTime = () => Date.now() + ahead;

const KEY = "handrail.key";
const SESSION = "handrail.session";

export class ApiError extends Error {
  constructor(status, message, body = null) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/** Is told `closed` whenever the server does not accept the key. */
export const door = new EventTarget();

/** Takes the key out of the address (`#key=…`) once, so that it is neither seen, shared nor kept in the history. */
export function takeKeyFromAddress() {
  const found = /^#key=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  const given = decodeURIComponent(found[1]);
  if (given !== key()) forgetSession(); // with the same key, a tab continues where it was
  setKey(given);
  history.replaceState(null, "", location.pathname + (found[2] ? `#${found[2]}` : ""));
}

/** Trades the ticket of a one-time link (`#ticket=…`) for a key that this tab keeps. A used one leaves the tab as it is. */
export async function takeTicketFromAddress() {
  const found = /^#ticket=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + (found[2] ? `#${found[2]}` : ""));
  const body = JSON.stringify({ ticket: decodeURIComponent(found[1]) });
  const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body, cache: "no-store" };
  const answer = await fetch("/console/ticket", sent).catch(() => null);
  if (!answer?.ok) return;
  forgetSession();
  setKey((await answer.json()).key);
}

export const key = () => sessionStorage.getItem(KEY);
export const setKey = (value) => sessionStorage.setItem(KEY, value);
export const forgetKey = () => sessionStorage.removeItem(KEY);

export function storedSession() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(SESSION) ?? "null");
    return typeof stored?.sessionId === "string" && typeof stored?.token === "string" ? stored : null;
  } catch {
    return null;
  }
}
export const storeSession = (session) => sessionStorage.setItem(SESSION, JSON.stringify(session));
export const forgetSession = () => sessionStorage.removeItem(SESSION);

export function headers(more = {}) {
  const session = storedSession();
  return {
    Authorization: `Bearer ${key() ?? ""}`,
    ...(session ? { "X-Session-Token": session.token } : {}),
    ...more,
  };
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body, options) => request("POST", path, body ?? {}, options);
export const remove = (path, options) => request("DELETE", path, undefined, options);

async function request(method, path, body, { accept = "application/json", retries = 0, signal, token } = {}) {
  const sent = { Accept: accept, ...(token ? { "X-Session-Token": token } : {}), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  for (let attempt = 0; ; attempt += 1) {
    let answer;
    try {
      answer = await fetch(path, {
        method,
        headers: headers(sent),
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        credentials: "omit",
        signal,
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      if (attempt < retries) {
        await new Promise((resume) => setTimeout(resume, 400 * 2 ** attempt));
        continue;
      }
      throw new ApiError(0, "The server cannot be reached. Is it still running?");
    }
    return understood(answer);
  }
}

async function understood(answer) {
  const told = Date.parse(answer.headers.get("Date") ?? "");
  // The header has whole seconds, so a small difference means nothing.
  if (!Number.isNaN(told)) ahead = Math.abs(told - Date.now()) > 3000 ? told - Date.now() : 0;
  const text = await answer.text();
  let body = null;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    if (answer.ok) throw new ApiError(answer.status, "The server's answer could not be read.");
  }
  if (answer.ok) return body;
  if (answer.status === 401) door.dispatchEvent(new Event("closed"));
  throw new ApiError(answer.status, sentence(answer, body), body);
}

function sentence(answer, body) {
  const told =
    body?.error?.message ??
    body?.message ??
    (typeof body?.error === "string" ? body.error : null) ??
    body?.sentence ??
    body?.detail;
  if (typeof told === "string" && told) return told;
  const known = {
    401: "The server does not know this key.",
    403: "This key may not do that.",
    404: "There is no such thing here.",
    413: "That is more than the server takes at once.",
    429: "Too many requests; wait a moment.",
    503: "The server is busy or stopping; try again in a moment.",
  };
  return known[answer.status] ?? `The server answered with status ${answer.status}.`;
}

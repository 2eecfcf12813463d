// What became of a call or a request, read from its envelope.

const REFUSALS = new Set([
  "NOT_FOUND",
  "VALIDATION",
  "SESSION_INACTIVE",
  "SESSION_ACTIVE",
  "MODE_RESTRICTED",
  "UNAVAILABLE",
  "AUTH",
  "RATE_LIMIT",
  "BUDGET_EXCEEDED",
  "LOOP_DETECTED",
  "STORE_UNAVAILABLE",
]);

// With side effects that may have happened, nobody knows whether they did.
const MAY_HAVE_RUN = new Set(["CONFLICT", "TIMEOUT", "CANCELLED", "INTERNAL"]);

const isUnknown = (error) => error?.partialSideEffects === true && MAY_HAVE_RUN.has(error.type);

export function stateOf(envelope, error = envelope.error) {
  if (error?.type === "CONFIRMATION_REQUIRED") return "held";
  if (error?.type === "DECLINED") return "declined";
  if (isUnknown(error)) return "unknown";
  if (error) return envelope.gate || REFUSALS.has(error.type) ? "refused" : "failed";
  return envelope.ok === false ? "failed" : "done";
}

export function outcomeOf(verdict, envelope) {
  if (verdict === "decline") return { state: "declined", stays: false };
  if (envelope?.ok) return { state: "approved", stays: false };
  const error = envelope?.error;
  const stays = ["UNAVAILABLE", "AUTH", "STORE_UNAVAILABLE", "RATE_LIMIT", "CONFIRMATION_REQUIRED"].includes(error?.type);
  const state = isUnknown(error) ? "unknown" : "failed";
  return { state, stays, message: error?.message ?? "It could not be carried out." };
}

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

export function stateOf(envelope, error = envelope.error) {
  if (error?.type === "CONFIRMATION_REQUIRED") return "held";
  if (error?.type === "DECLINED") return "declined";
  if (error) return envelope.gate || REFUSALS.has(error.type) ? "refused" : "failed";
  return envelope.ok === false ? "failed" : "done";
}

export function outcomeOf(verdict, envelope) {
  if (verdict === "decline") return { state: "declined", stays: false };
  if (envelope?.ok) return { state: "approved", stays: false };
  const type = envelope?.error?.type;
  const stays = ["UNAVAILABLE", "AUTH", "STORE_UNAVAILABLE", "RATE_LIMIT", "IN_PROGRESS"].includes(type);
  return { state: "failed", stays, message: envelope?.error?.message ?? "It could not be carried out." };
}

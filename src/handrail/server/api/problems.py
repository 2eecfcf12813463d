"""What a client is told when something is wrong: a status, a stable type and one sentence. Never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from handrail.server.wire import to_json

TYPES = {
    400: "BAD_REQUEST",
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    406: "NOT_ACCEPTABLE",
    408: "TIMEOUT",
    409: "CONFLICT",
    410: "ENDED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "MISDIRECTED",
    429: "RATE_LIMIT",
    431: "HEADERS_TOO_LARGE",
    500: "INTERNAL",
    502: "BAD_GATEWAY",
    503: "UNAVAILABLE",
}


class Problem(Exception):
    """A request that cannot be carried out. `message` is for the client; `again` False keeps official OpenAI clients, which
    send anew by themselves, from doing so."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None, again: bool = True) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.again = again

    def body(self) -> dict[str, Any]:
        error: dict[str, Any] = {"type": TYPES.get(self.status, "INTERNAL"), "message": self.message}
        if self.retry_after is not None:
            error["retryAfter"] = round(self.retry_after, 3)
        return {"error": error}

    def headers(self) -> dict[str, str]:
        if self.status == 401:
            return {"WWW-Authenticate": 'Bearer realm="handrail"'}
        told = {} if self.again else {"x-should-retry": "false"}
        return told if self.retry_after is None else {**told, "Retry-After": str(max(1, round(self.retry_after + 0.5)))}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(to_json(value), status, headers, media_type="application/json")


def refusal(problem: Problem) -> Response:
    return answer(problem.body(), problem.status, problem.headers())


def restarting() -> Problem:
    return Problem(503, "The server is about to restart; connect again in a moment.", retry_after=2)


def no_session() -> Problem:
    return Problem(404, "There is no such session.")


def ended() -> Problem:
    return Problem(410, "The session has ended; open a new one.")


def store_away() -> Problem:
    return Problem(503, "What is said cannot be stored at the moment; try again later.", retry_after=5)


def moved() -> Problem:
    return Problem(409, "Another process of this server has just taken the session over; try again.", retry_after=1)


def full(scope: str) -> Problem:
    """No room for another conversation: of a user, of a key, or in all."""
    if scope == "user":
        return Problem(
            429, "You have as many conversations as one user may have, all of them in use; end one.", retry_after=5
        )
    if scope == "key":
        message = (
            "This key has as many conversations as one key may have; end some, or ask the operator to raise "
            "`max_conversations_per_key`."
        )
        return Problem(429, message, retry_after=60)
    message = "The server keeps as many conversations as it may; its operator can raise `max_conversations`."
    return Problem(503, message, retry_after=60)

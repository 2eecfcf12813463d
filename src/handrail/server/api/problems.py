"""What a client is told when something is wrong: a status, a stable type and one sentence. Never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from handrail.server.host.refusals import RefusalReason, SessionRefused
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


class HttpProblem(Exception):
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


def refusal(problem: HttpProblem) -> Response:
    return answer(problem.body(), problem.status, problem.headers())


_STATUS = {
    RefusalReason.NOT_ALLOWED: 403,
    RefusalReason.NO_SESSION: 404,
    RefusalReason.MESSAGE_REUSED: 409,
    RefusalReason.BUSY: 409,
    RefusalReason.ENDED: 410,
    RefusalReason.QUOTA: 429,
    RefusalReason.FULL: 503,
    RefusalReason.RESTARTING: 503,
    RefusalReason.STORE_AWAY: 503,
}


def problem_of(refused: SessionRefused) -> HttpProblem:
    """What the host of conversations refused, as HTTP says it."""
    return HttpProblem(_STATUS[refused.reason], refused.message, retry_after=refused.retry_after)

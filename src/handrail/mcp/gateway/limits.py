"""What a server may send, and how it is said that one went beyond it."""

from __future__ import annotations

from time import monotonic  # noqa: TID251  # a rate of real traffic, which no test plays in another time

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

_AT_ONCE, _PER_SECOND = 5_000.0, 500.0
"""How many messages that answer nothing a server may send at once, and how many more each second."""


class UpstreamFault(Exception):
    """Why a server cannot be used: the end of a sentence that begins with its name."""


class MessageLimit:
    """Counts what a server sends. Answers to requests are free; requests, notices and strange answers are not."""

    def __init__(self) -> None:
        self._expected = 0
        self._left = _AT_ONCE
        self._since = monotonic()  # a rate of real traffic, which no test plays in another time

    def expect(self) -> None:
        self._expected += 1

    def count(self, message: JSONRPCMessage) -> None:
        """`UpstreamFault` if it was one too many."""
        if isinstance(message, (JSONRPCResponse, JSONRPCError)) and self._expected > 0:
            self._expected -= 1
            return
        now = monotonic()
        self._left = min(_AT_ONCE, self._left + (now - self._since) * _PER_SECOND)
        self._since = now
        if self._left < 1:
            raise UpstreamFault("it floods us with messages that nobody asked for")
        self._left -= 1

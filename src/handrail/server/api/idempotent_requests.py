"""Requests that come again: which session was made for a request with an `Idempotency-Key` that named none.

A client that did not hear the answer asks once more. It has no session to name, so the key finds the one that was made for it:
there the message has been answered, or is being answered, and nothing is done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from handrail.server.host.hosted_session import HostedSession
from handrail.server.host.refusals import RefusalReason, SessionRefused
from handrail.server.host.session_registry import PASSING_SECONDS, SessionRegistry
from handrail.server.keys import Key

MAX_REQUESTS = 10_000


class IdempotentRequests:
    """Sessions by API key, user and `Idempotency-Key`: the newest `MAX_REQUESTS` of the last ten minutes, in this process."""

    def __init__(self, clock: Callable[[], float] = monotonic, max_requests: int = MAX_REQUESTS) -> None:
        self._clock = clock
        self._max_requests = max_requests
        self._made: dict[tuple[str, str | None, str], _MadeSession] = {}

    def __len__(self) -> int:
        return len(self._made)

    async def find(
        self,
        sessions: SessionRegistry,
        key: Key,
        user: str | None,
        name: str,
        make: Callable[[], Awaitable[HostedSession]],
    ) -> HostedSession:
        """The session that this request had before, or a new one."""
        self._drop_old()
        place = (key.hash, user, name)
        made = self._made.setdefault(place, _MadeSession(self._clock()))
        async with made.making:  # the same request twice at once makes one session
            if made.session is not None:
                try:
                    return await sessions.find(*made.session, key)
                except SessionRefused as refused:
                    if refused.reason not in (RefusalReason.NO_SESSION, RefusalReason.ENDED):
                        raise
            try:
                hosted = await make()
            except BaseException:
                if made.session is None and self._made.get(place) is made:
                    del self._made[place]
                raise
            made.session = (hosted.id, hosted.session.token)
            return hosted

    def _drop_old(self) -> None:
        """The oldest come first: a place keeps the time of its first request."""
        before = self._clock() - PASSING_SECONDS
        while self._made:
            place, oldest = next(iter(self._made.items()))
            if oldest.since >= before and len(self._made) < self._max_requests:
                return
            del self._made[place]


class _MadeSession:
    __slots__ = ("making", "session", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.making = asyncio.Lock()
        self.session: tuple[str, str] | None = None

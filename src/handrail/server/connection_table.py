"""The open connections: a watchdog at each, and who must go when there are too many.

A connection counts as known once a right key, or a voice ticket, has come over it. Those that are not known yet may take half of
the places. When they have, the oldest of the address that has the most of them is closed, so that whoever floods the server
pushes out nobody else: a client with a key shows it with its first request, long before its turn would come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from handrail.observe.exposition import Exposition

_log = logging.getLogger("handrail.server")
_LOG_SECONDS = 10.0


class OpenConnection(Protocol):
    """What is needed of a connection."""

    client: tuple[str, int] | None
    transport: asyncio.Transport

    @property
    def has_key(self) -> bool: ...


class ConnectionTable:
    """See the module's docstring."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._known: set[OpenConnection] = set()
        self._unknown: dict[str, dict[OpenConnection, None]] = {}
        self._unknown_count = 0
        self._closed = {"flood": 0, "full": 0}
        self._summary = ConnectionCounts()

    def add(self, connection: OpenConnection) -> None:
        """A new connection; it, or others that have not shown a key, are closed if there are too many."""
        self._unknown.setdefault(_address(connection), {})[connection] = None
        self._unknown_count += 1
        # Half of the places are for those who have shown a key, however many others come.
        while self._unknown_count > self.limit // 2 or self._unknown_count + len(self._known) > self.limit:
            # The newest one is what remains where everybody else is known.
            victim = self._oldest()
            if victim is None:
                continue  # it has a key by now, and was only not counted so yet
            reason = "full" if victim is connection else "flood"
            self._closed[reason] += 1
            self.remove(victim)
            # Not closed in order: that waits for a peer, who may mean never to answer.
            victim.transport.abort()
            address = _address(victim)
            if reason == "flood":
                self._summary.note(
                    f"Connections that showed no key were closed to make room, the last one from {address}"
                )
            else:
                self._summary.note(
                    f"New connections were closed because all places are taken, the last one from {address}"
                )

    def remove(self, connection: OpenConnection) -> None:
        self._known.discard(connection)
        kept = self._unknown.get(_address(connection), {})
        if connection in kept:
            del kept[connection]
            self._unknown_count -= 1
            if not kept:
                del self._unknown[_address(connection)]

    def to_json(self) -> dict[str, int]:
        self._look_again()
        return {
            "known": len(self._known),
            "unknown": self._unknown_count,
            "closedAsFlood": self._closed["flood"],
            "closedAsFull": self._closed["full"],
        }

    def to_prometheus(self) -> str:
        self._look_again()
        text, name = Exposition(), "handrail_server_connections"
        text.family(name, "gauge", "Open connections, by whether a key was shown.")
        text.sample(name, len(self._known), key="shown")
        text.sample(name, self._unknown_count, key="none")
        text.family(f"{name}_closed_total", "counter", "Connections that were closed for lack of room.")
        for reason, count in self._closed.items():
            text.sample(f"{name}_closed_total", count, reason=reason)
        return text.render()

    def _oldest(self) -> OpenConnection | None:
        """The oldest unknown connection of the address that has the most; None if it turned out to be known."""
        # Who floods from one address closes their own connections, and not those of the people beside them.
        address = max(self._unknown, key=lambda one: len(self._unknown[one]))
        oldest = next(iter(self._unknown[address]))
        if not oldest.has_key:
            return oldest
        self.remove(oldest)
        self._known.add(oldest)
        return None

    def _look_again(self) -> None:
        for connection in [one for kept in self._unknown.values() for one in kept if one.has_key]:
            self.remove(connection)
            self._known.add(connection)


class WatchedProtocol(H11Protocol):
    """An HTTP connection with a watchdog, which cuts off who takes too long to ask and who does not take what was sent."""

    slow_seconds: ClassVar[float]
    table: ClassVar[ConnectionTable]
    _asking: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Whoever has to know whether an answer has left finds it in the state of each request.
        self.app_state = {**self.app_state, "transport": transport}
        self.table.add(self)
        self._asking = self.loop.call_later(self.slow_seconds, self._cut)

    @property
    def has_key(self) -> bool:
        """Whether a right key came with the newest request; the guard puts it there."""
        return self.scope is not None and "key" in (self.scope.get("state") or {})

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._disarm()
        self.table.remove(self)  # the socket's own protocol comes in its place
        super().handle_websocket_upgrade(event)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Armed from the first byte of a request until its head is whole; bodies are timed where they are read.
        waiting = self.conn.their_state is h11.IDLE
        if not waiting:
            self._disarm()
        elif self._asking is None:
            self._asking = self.loop.call_later(self.slow_seconds, self._cut)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._taking is None:
            self._taking = self.loop.call_later(self.slow_seconds, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        self._disarm()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        super().connection_lost(exc)

    def _disarm(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _cut(self) -> None:
        self.transport.abort()


class ConnectionCounts:
    """Logs what happens often: the first time at once, and then how often it did, at most every few seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._next = float("-inf")

    def note(self, sentence: str) -> None:
        self._count += 1
        now = self._clock()
        if now >= self._next:
            _log.warning("%s (%d since this was last said).", sentence, self._count)
            self._count, self._next = 0, now + _LOG_SECONDS


def _address(connection: Any) -> str:
    return str(connection.client[0]) if connection.client else ""

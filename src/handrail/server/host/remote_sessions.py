"""The events of a session that another process has, told from what is stored: each turn when it has ended, and open requests.

A turn's events have no numbers but the last, `done`, which has the one that the owner gave it: a client that continues at the
owner, or here, has missed nothing and hears nothing twice. When the owner ends, or the session moves, the client is asked to
connect again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from handrail.contract.conversations import Ownership, StoredTurn
from handrail.contract.store import StoreUnavailable
from handrail.server.host.hosted_session import LATE, HostedSession, events_of
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.wire import HEARTBEAT, frame, notice, without_detail

POLL_SECONDS = 0.25


async def remote_frames(
    sessions: SessionRegistry,
    hosted: HostedSession,
    after: int,
    requests: Callable[[], Awaitable[list[dict[str, Any]]]],
    *,
    until: str | None = None,
    detailed: bool = False,
) -> AsyncIterator[bytes]:
    """The frames of a remote session after this number; up to the end of the turn of the message `until`, if one is named.
    `requests` finds those that wait for the person and were not told yet."""
    loop = asyncio.get_running_loop()
    ends, quiet_since = loop.time() + sessions.options.stream_seconds, loop.time()
    owner: str | None = None
    standing: Ownership | None = None
    yield b": handrail\nretry: 1000\n\n"
    while not sessions.draining and loop.time() < ends:
        frames, turns, lives = b"", list[StoredTurn](), True
        try:
            found = await sessions.conversations.changes(hosted.id, after)
            if found is None:
                yield notice("closed", {"reason": "The session has ended."})
                return
            standing, turns = found
            owner = standing.owner if owner is None else owner
            frames = b"".join(_frames(turn, detailed) for turn in turns if until in (None, turn.message_id))
            after = max((turn.last_event for turn in turns), default=after)
            for request in await requests():
                frames += notice("confirmation", request)
            lives = await _is_at(sessions, standing, owner)
        except StoreUnavailable:
            pass  # what was found goes out, for it is not found again; the next look will tell the rest
        if frames:
            yield frames
            quiet_since = loop.time()
        if any(turn.message_id == until for turn in turns):
            return
        if not lives or (until is not None and standing is not None and standing.running != until):
            break
        if loop.time() - quiet_since > sessions.options.heartbeat_seconds:
            yield HEARTBEAT
            quiet_since = loop.time()
        await asyncio.sleep(POLL_SECONDS)
    yield notice("reconnect", {})


async def _is_at(sessions: SessionRegistry, standing: Ownership, owner: str) -> bool:
    """Whether the session is still where it was, and not here, and its owner lives."""
    at_home = standing.owner == owner and owner != sessions.runtime.owner
    return at_home and await sessions.runtime.store.owner_lives(owner)


def _frames(turn: StoredTurn, detailed: bool) -> bytes:
    told = b""
    late = {"late": True} if turn.message_id.startswith(LATE) else {}
    for name, data in events_of(turn):
        fields = {"turn": turn.number, **(data if detailed else without_detail(name, data)), "rebuilt": True}
        told += frame(turn.last_event, name, {**fields, **late}) if name == "done" else notice(name, fields)
    return told

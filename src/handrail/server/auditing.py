"""The audit log for the operator's view: the newest lines, what became of a call, and lines as they are written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from handrail.app import Runtime
from handrail.observe.audit import AuditLog
from handrail.observe.explain import Explanation, explain
from handrail.observe.reading import Follower, matches, read_events, tail_events
from handrail.server.options import Options
from handrail.server.wire import HEARTBEAT, notice

_POLL_SECONDS = 0.5
_MOST_AT_ONCE = 500


async def newest(
    runtime: Runtime, folder: Path | None, *, session: str | None, call: str | None, tool: str | None, limit: int
) -> list[dict[str, Any]]:
    """The newest lines that fit, oldest first."""

    def work() -> list[dict[str, Any]]:
        runtime.audit.flush()
        if folder is None:
            found = [one for one in _in_memory(runtime) if matches(one, session=session, call=call, tool=tool)]
            return found[-limit:]
        if session is None and call is None and tool is None:
            return tail_events(folder, limit)
        return list(deque(read_events(folder, session=session, call=call, tool=tool), maxlen=limit))

    return await asyncio.to_thread(work)


async def why(runtime: Runtime, folder: Path | None, call: str) -> Explanation:
    """What became of a call, in one sentence."""

    def work() -> Explanation:
        runtime.audit.flush()
        if folder is None:
            return explain(_in_memory(runtime), call)
        events = list(read_events(folder, call=call))
        # What a person decided about a held call is in lines that do not name the call.
        enough = events and not any("confirmationId" in event for event in events)
        return explain(events if enough else read_events(folder), call)

    return await asyncio.to_thread(work)


async def follow(runtime: Runtime, folder: Path | None, options: Options) -> AsyncIterator[bytes]:
    """The lines as they are written, as frames of a stream."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + options.stream_seconds
    spoke = loop.time()
    seen = len(_in_memory(runtime)) if folder is None else 0
    follower = await asyncio.to_thread(Follower, folder) if folder is not None else None
    yield b": handrail\nretry: 1000\n\n"
    while loop.time() < ends:
        if follower is not None:
            lines = await asyncio.to_thread(follower.news)
        else:
            known = _in_memory(runtime)
            lines, seen = known[seen:], len(known)
        if lines:
            left_out = max(0, len(lines) - _MOST_AT_ONCE)
            told = [notice("gap", {"leftOut": left_out})] if left_out else []
            yield b"".join([*told, *(notice("audit", line) for line in lines[-_MOST_AT_ONCE:])])
            spoke = loop.time()
        elif loop.time() - spoke >= options.heartbeat_seconds:
            yield HEARTBEAT
            spoke = loop.time()
        await asyncio.sleep(_POLL_SECONDS)
    yield notice("reconnect", {})


def _in_memory(runtime: Runtime) -> list[dict[str, Any]]:
    return runtime.audit.events if isinstance(runtime.audit, AuditLog) else []

"""The audit log for the operator's view: the newest lines, what became of a call, and lines as they are written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from handrail.contract.store import StoreUnavailable
from handrail.observe.audit import AuditLog
from handrail.observe.audit_files import OF_THE_CHAIN, Follower, matches, read_events, tail_events
from handrail.observe.call_explanation import CallExplanation, CallLines, lines_in, lines_of, tell
from handrail.observe.sealing import APPROVER, open_event, pseudonym_of, with_names
from handrail.server.options import Options
from handrail.server.wire import HEARTBEAT, notice
from handrail.standard_runtime import Runtime

_POLL_SECONDS = 0.5
_MAX_AT_ONCE = 500


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
            return tail_events(folder, limit, OF_THE_CHAIN)
        return list(deque(read_events(folder, session=session, call=call, tool=tool), maxlen=limit))

    return await _opened(runtime, await asyncio.to_thread(work))


async def why(runtime: Runtime, folder: Path | None, call: str) -> CallExplanation:
    """What became of a call, in one sentence."""

    def work() -> CallLines:
        runtime.audit.flush()
        return lines_of(_in_memory(runtime), call) if folder is None else lines_in(folder, call)

    found = await asyncio.to_thread(work)
    return tell(replace(found, events=await _opened(runtime, found.events)))


async def _opened(runtime: Runtime, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events with what was sealed in them, of users who were not forgotten."""
    wanted = {whose for event in events if (whose := pseudonym_of(event)) is not None}
    approvers = {str(event[APPROVER]) for event in events if event.get(APPROVER)}
    try:
        keys = await runtime.store.audit_secrets(sorted(wanted))
        users = await runtime.store.audit_users(sorted(approvers))
    except StoreUnavailable:
        keys, users = {}, {}
    return [with_names(open_event(event, keys), users) for event in events]


async def audit_frames(runtime: Runtime, folder: Path | None, options: Options) -> AsyncIterator[bytes]:
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
            lines = await _opened(runtime, lines)
            left_out = max(0, len(lines) - _MAX_AT_ONCE)
            told = [notice("gap", {"leftOut": left_out})] if left_out else []
            yield b"".join([*told, *(notice("audit", line) for line in lines[-_MAX_AT_ONCE:])])
            spoke = loop.time()
        elif loop.time() - spoke >= options.heartbeat_seconds:
            yield HEARTBEAT
            spoke = loop.time()
        await asyncio.sleep(_POLL_SECONDS)
    yield notice("reconnect", {})


def _in_memory(runtime: Runtime) -> list[dict[str, Any]]:
    return runtime.audit.events if isinstance(runtime.audit, AuditLog) else []

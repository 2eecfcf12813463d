"""Stopping: writes that run are waited for until their own deadlines, so that an outcome that is known is also recorded.

A server stops within its own time. What it leaves is named in the log, and its outcome is unknown to the next process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from handrail.runtime.call_attempt import Attempt

GRACE_SECONDS = 5.0
"""For what is not the handler's own time: the claim, and an outcome that is stored at the second or third try."""


Writes = Mapping[asyncio.Task[Any], tuple[Attempt, float]]
"""What runs, and since when by the clock of the loop."""


def latest_end(attempt: Attempt, begun: float) -> float:
    """When a write that began then has ended at the latest, its second try included."""
    tries = 1 + (attempt.session.limits.retries if attempt.plan.definition.idempotent else 0)
    return begun + attempt.plan.timeout * tries + GRACE_SECONDS


async def let_writes_end(tasks: Writes, log: logging.Logger, within: float | None = None) -> None:
    """Wait for the last of these to end, and for what begins meanwhile within that time; for `within` seconds at most."""
    loop = asyncio.get_running_loop()
    until = max((latest_end(*write) for write in tasks.values()), default=0.0)
    if within is not None:
        until = min(until, loop.time() + within)
    if tasks:
        log.warning("Stopping waits up to %.0f s for writes that run: %s", until - loop.time(), _names(tasks))
    while tasks and loop.time() < until:
        await asyncio.wait(tasks, timeout=until - loop.time())
    if tasks:
        log.error("Stopped before these writes have ended; their outcome will be unknown: %s", _names(tasks))


def name_of(attempt: Attempt) -> str:
    """A call as an operator finds it in the audit."""
    return f"{attempt.plan.tool_id} (call {attempt.call.call_id or 'without an id'} of session {attempt.session.id})"


def _names(tasks: Writes) -> str:
    return ", ".join(sorted(name_of(attempt) for attempt, _ in tasks.values()))

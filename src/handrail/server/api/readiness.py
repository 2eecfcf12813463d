"""Whether this process should be given work: it is not about to stop, and store and audit can be written.

Each part is really tried, but at most once a second, and never again while an earlier try has not come back: however often a
balancer asks, the writers have next to nothing to do for it, and one that hangs is not given more.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

from handrail.contract.store import StoreUnavailable
from handrail.server.host.session_registry import SessionRegistry

_log = logging.getLogger("handrail.server")
LIMIT_SECONDS = 2.0
KEPT_SECONDS = 1.0


class Readiness:
    """The parts that a message needs, and what was found when they were tried last."""

    def __init__(self, sessions: SessionRegistry, audit: Path | None) -> None:
        """`audit` is the folder of the audit log; None if it is kept in memory."""
        self._sessions = sessions
        self._audit = audit
        self._context = {
            "store": _ReadinessProbe(sessions.runtime.store.try_writing),
            "audit": _ReadinessProbe(self._try_audit),
        }
        self.kept_seconds = KEPT_SECONDS
        self._turnstile = asyncio.Lock()
        self._tried_at = float("-inf")
        self._why: dict[str, str] = {}

    async def checks(self) -> dict[str, bool]:
        """Which parts are well, by their names."""
        async with self._turnstile:  # probes that come at once wait for one try
            if monotonic() - self._tried_at >= self.kept_seconds:
                await self._try()
        return {"serving": not self._sessions.draining, **{name: name not in self._why for name in self._context}}

    async def _try(self) -> None:
        found = await asyncio.gather(*(part.trouble() for part in self._context.values()))
        why = {name: trouble for name, trouble in zip(self._context, found, strict=True) if trouble}
        for name in why.keys() - self._why.keys():
            _log.error("This server is not ready (%s): %s", name, why[name])
        if self._why and not why:
            _log.warning("This server is ready again.")
        self._why = why
        self._tried_at = monotonic()

    async def _try_audit(self) -> None:
        audit = self._sessions.runtime.audit
        await asyncio.to_thread(audit.flush)
        if not audit.healthy:
            raise StoreUnavailable("The audit log cannot be written.")
        if self._audit is not None and not os.access(self._audit, os.W_OK | os.X_OK):
            raise StoreUnavailable(f'The folder "{self._audit.name}" of the audit log is gone or may not be written.')


class _ReadinessProbe:
    """Something that is tried; a try that hangs is waited for the next time, not begun again."""

    def __init__(self, attempt: Callable[[], Awaitable[None]]) -> None:
        self._attempt = attempt
        self._trying: asyncio.Task[None] | None = None

    async def trouble(self) -> str:
        """Why it is not well, as a sentence; empty if it is."""
        trying = self._trying = self._trying or asyncio.get_running_loop().create_task(self._try())
        await asyncio.wait({trying}, timeout=LIMIT_SECONDS)
        if not trying.done():
            return f"It has not answered for {LIMIT_SECONDS:g} s."
        self._trying = None
        error = trying.exception()
        return "" if error is None else (str(error) or repr(error))

    async def _try(self) -> None:
        await self._attempt()

"""Which tools a tenant uses most, from the statistics of the store. Read now and then, and never waited for twice."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from handrail.contract.store import StoreUnavailable
from handrail.runtime.core import RuntimeCore

_LOG = logging.getLogger("handrail.agent")
DAYS = 30
"""What counts as use: the calls of these days."""
_FRESH_SECONDS = 300.0
_MAX_TENANTS = 1_000
_LIMIT = 100


class ToolUsageRanking:
    """One per agent."""

    def __init__(self, runtime: RuntimeCore) -> None:
        self._runtime = runtime
        self._known: dict[str, tuple[float, Sequence[str]]] = {}

    async def by_calls(self, tenant: str) -> Sequence[str]:
        """The tools with the most calls, the most used first. What was known last, where the store does not answer."""
        runtime = self._runtime
        now = runtime.clock.monotonic()
        read_at, names = self._known.get(tenant, (-_FRESH_SECONDS, ()))
        if now - read_at < _FRESH_SECONDS:
            return names
        since = time.strftime("%Y-%m-%d", time.gmtime(runtime.clock.time() - DAYS * 86_400))
        try:
            counted = await runtime.store.usage.tools_by_calls(since=since, limit=_LIMIT, tenant=tenant)
        except StoreUnavailable as error:
            _LOG.warning("The most used tools are not known at the moment: %s", error)
            return names
        names = tuple(name for name, _ in counted)
        while len(self._known) >= _MAX_TENANTS:
            self._known.pop(next(iter(self._known)))
        self._known[tenant] = now, names
        return names

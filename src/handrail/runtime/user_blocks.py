"""Blocks that a host sets itself, beside those that a tool asks for: checked, stored for every process, and audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.contract.errors import UsageError
from handrail.contract.store import Block

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore

MAX_BLOCK_SECONDS = 366 * 86_400


async def block_user(core: RuntimeCore, user: str, seconds: float, tenant: str) -> int:
    """Store the block; the time at which the user's longest one ends, in milliseconds since 1970."""
    if not user or not 0 < seconds <= MAX_BLOCK_SECONDS:
        raise UsageError(
            f"A block needs a user and lasts up to {MAX_BLOCK_SECONDS} seconds; {user!r} for {seconds:g} seconds is none."
        )
    until = await core.store.block(Block(tenant=tenant, user=user, until=int((core.clock.time() + seconds) * 1000)))
    core.audit.emit("user_blocked", {"tenant": tenant, "timeoutUntil": until, "by": "host"})
    return until

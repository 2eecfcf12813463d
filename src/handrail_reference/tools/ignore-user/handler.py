"""Blocks a user for a time. The block itself is an intent, stored with the outcome of the call, so that it holds in every
process and after a restart, and ends by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, IntentType, ToolError


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Tell the client, and ask for the block; in voice also for the end of the voice session, after the farewell."""
    if not ctx.session.is_active:
        raise ToolError(ErrorType.SESSION_INACTIVE, "The session has ended; there is nobody left to block.")
    seconds, farewell = args["duration_seconds"], args["farewell_message"].strip()
    until = round((ctx.now + seconds) * 1000)
    facts = {"timeoutUntil": until, "durationSeconds": seconds, "farewellMessage": farewell}
    if ctx.audit is not None:
        ctx.audit.log("user_blocked", {"timeoutUntil": until, "durationSeconds": seconds})
    await ctx.messaging.send({"type": "timeout", **facts})
    return {"ok": True, "data": facts, "intents": _intents(until / 1000, farewell, ctx.mode)}


def _intents(until: float, farewell: str, mode: str) -> list[dict[str, Any]]:
    intents: list[dict[str, Any]] = [{"type": IntentType.BLOCK_USER.value, "until": until}]
    if mode == "voice":
        # Audio is not suppressed here: the farewell is still to be spoken.
        end = {"after": "farewell_spoken", "reason": "user_blocked", "closingMessage": farewell}
        intents.append({"type": IntentType.END_VOICE_SESSION.value, **end})
        intents.append({"type": IntentType.SUPPRESS_TRANSCRIPT.value, "value": True})
    return intents

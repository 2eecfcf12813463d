"""Moves a typed conversation to voice: the client is asked to connect, and what the user wants goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, IntentType, ToolError


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Ask the client to open the voice connection of this session."""
    if ctx.voice is not None and ctx.voice.is_active:
        raise ToolError(
            ErrorType.SESSION_ACTIVE,
            "A voice connection is already open in this session.",
            suggestion="Tell the user that voice is on, and that they can speak.",
        )
    request = args["pending_request"].strip() or None
    await ctx.messaging.send({"type": "voice_session_start", "sessionId": ctx.client_id, "pendingRequest": request})
    return {
        "ok": True,
        "data": {"session_id": ctx.client_id, "pending_request": request},
        "intents": [{"type": IntentType.SET_PENDING_MESSAGE.value, "message": request}],
    }

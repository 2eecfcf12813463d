"""Ends the voice part of a conversation, not before the user has heard the end of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Ask for the end of the voice session. The runtime ends it when the turn, or the farewell, is over."""
    closing, text = args.get("closing_message"), args.get("text_response")
    after = "current_turn" if closing is None else "farewell_spoken"
    ctx.voice.end_session(after=after, reason=args["reason"], closing_message=closing, text_response=text)
    data = {"reason": args["reason"], "ends_after": after, "closing_message": closing, "text_response": text}
    return {"ok": True, "data": data}

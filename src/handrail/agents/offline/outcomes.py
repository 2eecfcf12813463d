"""What became of calls, for the person who asked for them: done, waiting, declined, or why it did not work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.agents.offline.answering import described, is_empty
from handrail.agents.offline.view import Done, View
from handrail.agents.offline.wording import one_line
from handrail.contract.call import Call
from handrail.picking.words import split_words


def told(tool: str, envelope: Mapping[str, Any], view: View) -> str:
    """What became of a call that does something."""
    error = envelope.get("error")
    if not isinstance(error, Mapping) and {"start", "voice"} <= set(split_words(tool)):
        return "I have asked your application to start voice. You can go on by speaking there."
    if not isinstance(error, Mapping):
        return f"Done. {described(envelope.get('data'), view.now)}" if not is_empty(envelope.get("data")) else "Done."
    return failure(Done(Call(tool, {}), envelope), view)


def failure(done: Done, view: View) -> str:
    """Why something did not happen, for the person who asked for it."""
    error = done.error
    kind, message = error.get("type"), one_line(error.get("message", ""), 400)
    if kind == "CONFIRMATION_REQUIRED" and view.mode == "voice":
        return "That needs your word."  # the host reads what it is, and hears the answer
    if kind == "CONFIRMATION_REQUIRED":
        request = error.get("confirmation_request")
        preview = str(request.get("preview", "")) if isinstance(request, Mapping) else ""
        approve = "Please approve or decline it; I cannot do that for you."
        return f"I have prepared this, and it waits for your approval:\n\n{preview.strip()}\n\n{approve}"
    if kind == "DECLINED":
        return "You declined that, so I left it."
    if kind in ("BUDGET_EXCEEDED", "LOOP_DETECTED"):
        return "I have looked as often as I may in one turn and have no answer yet. Please narrow it down."
    if kind == "RATE_LIMIT":
        wait = error.get("retryAfter")
        again = f"; please try again in {round(wait)} seconds" if isinstance(wait, (int, float)) else ""
        return f"That is not possible just now{again}."
    if kind in ("TRANSIENT", "TIMEOUT", "STORE_UNAVAILABLE", "IN_PROGRESS"):
        return f"That did not work just now: {message} Please try again in a moment."
    if error.get("partialSideEffects"):
        return f"It is not known whether that happened: {message} Please have somebody look before it is tried again."
    return f"That did not work: {message}"

"""What became of calls, for the person who asked for them: done, waiting, declined, or why it did not work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handrail.agents.offline.answering import described, is_empty
from handrail.agents.offline.view import Done, View
from handrail.agents.offline.wording import listed, named, one_line
from handrail.contract.call import Call
from handrail.picking.words import split_words

_TO_A_MODEL = re.compile(
    r"(?:Answer|Ask|Call|Check|Correct|Do\s+not|Explain|Give|Look|Mention|Pass|Pick|Read|Repeat|Say|Send|Tell|Try|Use|Wait|Work)\b"
)
_FORM = re.compile(r"\barguments? must\b|\bmust fit one of\b|^\"\w+\" is required")


def told(tool: str, envelope: Mapping[str, Any], view: View) -> str:
    """What became of a call that does something."""
    error = envelope.get("error")
    if not isinstance(error, Mapping) and {"start", "voice"} <= set(split_words(tool)):
        return "I have asked your application to start voice. You can go on by speaking there."
    if not isinstance(error, Mapping):
        told = described(envelope.get("data"), view.now) if not is_empty(envelope.get("data")) else ""
        return f"Done. {told or _deed(tool, view)}"
    return failure(Done(Call(tool, {}), envelope), view)


def _deed(tool: str, view: View) -> str:
    """What was done, where the tool itself has nothing to say about it: its name, and what it was given."""
    calls = [done for turn in reversed(view.turns) for done in reversed(turn.done) if done.call.name == tool]
    given = {name: value for name, value in calls[0].args.items() if value not in (None, "")} if calls else {}
    return f"{named(tool).capitalize()}{f': {described(given, view.now)}' if given else ' was carried out.'}"


def shown_words(made: Done) -> str:
    """What was made and is shown now. What is only the draft of a picture is called one."""
    images = made.data.get("images") if isinstance(made.data, Mapping) else None
    engines = [str(one.get("engine", "")) for one in images or () if isinstance(one, Mapping)]
    prompt = next((str(made.args[name]) for name in ("prompt", "idea", "text") if made.args.get(name)), "")
    of = f" of {one_line(prompt, 160).rstrip('.')}" if prompt else ""
    many = len(engines) > 1
    if any("draft" in engine for engine in engines):
        what = f"{'are' if many else 'is'} {'draft cards' if many else 'a draft card'}{of}: the words set as a poster"
        return f"Done. Here {what}, not a painted picture."
    return f"Done. Here {'are the images' if many else 'is the image'}{of}."


def failure(done: Done, view: View) -> str:
    """Why something did not happen, for the person who asked for it."""
    error = done.error
    kind, message = error.get("type"), _for_people(one_line(error.get("message", ""), 400))
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
    if error.get("partialSideEffects"):
        known = "" if message.startswith("It is not known whether") else "It is not known whether that happened: "
        return f"{known}{message} Please have somebody look before it is tried again."
    if kind in ("TRANSIENT", "TIMEOUT", "STORE_UNAVAILABLE", "IN_PROGRESS"):
        return f"That did not work just now: {message} Please try again in a moment."
    return f"That did not work: {message}"


def _for_people(message: str) -> str:
    """A message without what it tells a model to do, and without the names of arguments."""
    first, *others = re.split(r"(?<=[.!?])\s+(?=[A-Z])", message)
    kept = [first, *(sentence for sentence in others if not _TO_A_MODEL.match(sentence))]
    if _FORM.search(first):
        needed = [named(name) for name in re.findall(r'"(\w+)" is required', message)]
        return (
            f"I would need the {listed(needed)} for that."
            if needed
            else "What I have does not fit what is needed there."
        )
    return " ".join(kept)

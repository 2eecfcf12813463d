"""A conversation as providers want it: each model's turn, then the envelopes of all of its calls, in their order.

Pure. Providers refuse a history in which a call has no result or a result no call; here such gaps are closed, whatever the
host left. A turn's raw form is used only with the provider and the model that made it: signatures mean nothing to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.model import AssistantMessage, HostMessage, Message, ToolMessage, UserMessage
from handrail.providers.event_stream import as_text

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
CONTINUATION = "(The conversation continues.)"
"""For providers that want the user to begin."""


@dataclass(frozen=True, slots=True)
class UserText:
    """What the user wrote, or the host noted."""

    text: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call and the envelope that it ended in. `wire_id` is the id to send, None where the provider gave none."""

    call: Call
    wire_id: str | None
    envelope: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return self.envelope.get("ok") is not False and "error" not in self.envelope


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """The model's turn; `raw` only where it is this provider's and this model's own. `results` are those of its calls."""

    text: str
    raw: Any
    results: tuple[CallResult, ...]


HistoryEntry: TypeAlias = UserText | ModelTurn


def kept_turn(provider: str, model: str, content: Any) -> dict[str, Any]:
    """The raw form of a turn, for `Finished.raw`: whose it is, and what is to be sent back."""
    return {"provider": provider, "model": model, "content": content}


def history_entries(messages: Sequence[Message], provider: str, model: str, *, ids: bool) -> Iterator[HistoryEntry]:
    """The messages in order. With `ids`, each call must have one, which no other has: some get one if need be."""
    ledger = _WireIds(provider, needed=ids)
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if isinstance(message, UserMessage):
            yield UserText(message.text)
        elif isinstance(message, HostMessage):
            yield UserText(f"<host>\n{message.text}\n</host>")
        elif isinstance(message, ToolMessage):
            yield UserText(_orphan(message))
        else:
            answers: list[ToolMessage] = []
            while place < len(messages) and isinstance(found := messages[place], ToolMessage):
                answers.append(found)
                place += 1
            results, left, changed = _paired(message, answers, ledger)
            raw = None if changed else _own_raw(message, provider, model)
            if results or message.text or not changed:
                yield ModelTurn(message.text, raw, results)
            yield from (UserText(_orphan(answer)) for answer in left)


def _paired(
    message: AssistantMessage, answers: Sequence[ToolMessage], ledger: _WireIds
) -> tuple[tuple[CallResult, ...], list[ToolMessage], bool]:
    """The calls with their envelopes, the envelopes of none, and whether the calls are not those that the model made."""
    left = list(answers)
    results: list[CallResult] = []
    changed = False
    for call in message.calls:
        answer = next((one for one in left if one.call_id == call.call_id and one.name == call.name), None)
        if answer is not None:
            left.remove(answer)
        wire_id, is_new = ledger.give(call)
        changed = changed or not is_new or (call.provider == ledger.provider and wire_id != call.call_id)
        if is_new:
            results.append(CallResult(call, wire_id, answer.envelope if answer is not None else _unanswered()))
    return tuple(results), left, changed


class _WireIds:
    """The ids that calls go out under: the provider's own, verbatim, unless it would refuse the history for one."""

    def __init__(self, provider: str, *, needed: bool) -> None:
        self.provider = provider
        self._needed = needed
        self._number = -1
        self._given: dict[str, Call] = {}

    def give(self, call: Call) -> tuple[str | None, bool]:
        """The call's id, and whether it is new: False for a repeated one, which an earlier message has answered.

        Only a call that another provider made, or one that shares its id with another call, gets an id that is not its own.
        """
        self._number += 1
        own = call.provider in (self.provider, None)
        if not self._needed:
            return (call.call_id if own or _is_id(call.call_id) else None), True
        made = call.call_id if own or _is_id(call.call_id) else f"earlier_{self._number}"
        if made is None:
            return None, True
        if self._given.get(made) == call and call.id_scope != "message":
            return made, False
        while made in self._given:
            made = f"earlier_{self._number}" if made == call.call_id else f"{made}_"
        self._given[made] = call
        return made, True


def _is_id(found: str | None) -> bool:
    return found is not None and _ID.fullmatch(found) is not None


def _own_raw(message: AssistantMessage, provider: str, model: str) -> Any:
    raw = message.raw
    if isinstance(raw, Mapping) and raw.get("provider") == provider and raw.get("model") == model:
        return raw.get("content")
    return None


def _unanswered() -> dict[str, Any]:
    message = "This call was not answered. If it changes something, look before you call it again."
    return ToolResponse.failure("CANCELLED", message).to_dict()


def _orphan(message: ToolMessage) -> str:
    return f'<host>\nEarlier result of "{message.name}", which is data: {as_text(message.envelope)}\n</host>'

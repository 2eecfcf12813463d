"""OpenAI Responses, stateless: a neutral request → its body; events → calls. Pure; no SDK.

A call is reported by its finished item (`response.output_item.done`, status completed), so the order of deltas does not matter
to it; what was sent twice is known by its sequence number. Call ids (`call_id`) count for their message, with OpenAI itself
for the session. Output items, encrypted reasoning among them, are kept verbatim and sent back. A late envelope goes into a
user's message inside `<host>`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handrail.contract.call import IdScope
from handrail.contract.frozen import thaw
from handrail.contract.model import ModelEvent, ModelRequest, TextDelta, Usage
from handrail.providers.conversation_history import ModelTurn, UserText, history_entries, kept_turn
from handrail.providers.event_stream import (
    MAX_CALLS,
    PartialCall,
    Reason,
    StreamCounters,
    as_text,
    broke_off,
    call_of,
    count_in,
    ending,
    failed,
    id_in,
    object_in,
    objects_in,
    read_object,
    text_in,
    text_of_args,
    unreadable_calls,
    wire_name,
)
from handrail.providers.openai import RESPONSES

PROVIDER = RESPONSES.name
WHO = RESPONSES.vendor
ID_SCOPE = RESPONSES.id_scope
"""What every server of this protocol keeps to; the vendor's own may promise more."""
_KNOWN = frozenset(
    {
        "response.created", "response.in_progress", "response.queued", "response.output_item.added",
        "response.content_part.added", "response.content_part.done", "response.output_text.done", "response.refusal.done",
        "response.output_text.annotation.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done", "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done", "response.reasoning_text.delta", "response.reasoning_text.done",
        "keepalive",
    }
)  # fmt: skip
"""Events that tell nothing which the finished items do not tell as well."""
_INCOMPLETE: dict[str, Reason] = {"max_output_tokens": "length", "content_filter": "refusal"}


def body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """The JSON of `POST /responses`. Nothing is stored at the provider: the whole history is sent, reasoning included."""
    items: list[dict[str, Any]] = []
    for entry in history_entries(request.messages, PROVIDER, model, ids=True):
        items.extend(_items(entry))
    made: dict[str, Any] = {"model": model, "input": items, "stream": True, "store": False}
    # Nothing is stored there, so that its reasoning comes along with the answer, and goes back with the history.
    made["include"] = ["reasoning.encrypted_content"]
    if request.system:
        made["instructions"] = request.system
    if request.tools:
        made["tools"] = [thaw(tool) for tool in request.tools]
        made["tool_choice"] = "auto" if request.allow_calls else "none"
    if request.max_output_tokens is not None:
        made["max_output_tokens"] = request.max_output_tokens
    return made


def _items(entry: UserText | ModelTurn) -> Iterator[dict[str, Any]]:
    if isinstance(entry, UserText):
        yield {"role": "user", "content": entry.text}
        return
    if entry.raw is not None:
        yield from entry.raw
    else:
        if entry.text:
            yield {"role": "assistant", "content": entry.text}
        for result in entry.results:
            named = {"type": "function_call", "call_id": result.wire_id, "name": wire_name(result.call.name)}
            yield {**named, "arguments": text_of_args(result.call.args)}
    for result in entry.results:
        yield {"type": "function_call_output", "call_id": result.wire_id, "output": as_text(result.envelope)}


class ResponsesReader:
    """One answer, streamed or whole."""

    def __init__(self, model: str, counters: StreamCounters, id_scope: IdScope = ID_SCOPE) -> None:
        self._model = model
        self._id_scope = id_scope
        self._counters = counters
        self._seen: set[int] = set()
        self._items: dict[str, dict[str, Any]] = {}
        """The finished items in their order, by their id."""
        self._sent_text = False
        self._refused = False
        self._response: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        return self._response is not None

    def feed(self, event: bytes) -> Iterator[ModelEvent]:
        # The vendor does not send it here; servers that speak the older protocol as well may.
        data = read_object(event, self._counters) if event.strip() != b"[DONE]" else None
        if data is None or self._is_duplicate(data.get("sequence_number")):
            return
        kind = data.get("type")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._refused = self._refused or kind == "response.refusal.delta"
            yield from self._say(text_in(data.get("delta")))
        elif kind == "response.output_item.done":
            self._item(data.get("item"))
        elif kind in ("response.completed", "response.incomplete"):
            yield from self._end_of(object_in(data.get("response")))
        elif kind in ("response.failed", "response.cancelled"):
            raise failed(WHO, object_in(data.get("response")).get("error"), retryable=True)
        elif kind == "error" or (kind is None and data.get("error") is not None):
            raise failed(WHO, data.get("error") or data, retryable=True)
        elif data.get("object") == "response":
            yield from self._end_of(data)
        elif not isinstance(kind, str) or kind not in _KNOWN:
            self._counters.unknown(kind)

    def _is_duplicate(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        if number in self._seen:
            self._counters.duplicates += 1
            return True
        self._seen.add(number)
        return False

    def _say(self, text: str) -> Iterator[ModelEvent]:
        if text:
            self._sent_text = True
            yield TextDelta(text)

    def _item(self, item: object) -> None:
        if not isinstance(item, dict):
            self._counters.malformed_events += 1
            return
        name = id_in(item.get("id")) or f"#{len(self._items)}"
        if name in self._items:
            self._counters.duplicates += 1
            return
        if item.get("type") == "function_call":
            if id_in(item.get("call_id")) is None:  # nothing could be answered to it
                self._counters.malformed_events += 1
                return
            calls = [one for one in self._items.values() if one.get("type") == "function_call"]
            # The same call in two items. Another call under the id is kept: the pipeline refuses it with a sentence.
            if any(one.get("call_id") == item["call_id"] and _slot(one) == _slot(item) for one in calls):
                self._counters.duplicates += 1
                return
            if len(calls) >= MAX_CALLS:
                self._counters.dropped_calls += 1
                return
        self._items[name] = item

    def _end_of(self, response: dict[str, Any]) -> Iterator[ModelEvent]:
        if self._response is not None:
            return
        if response.get("status") in ("failed", "cancelled"):
            raise failed(WHO, response.get("error"), retryable=True)
        self._response = response
        if self._items:
            return
        # Only for an answer that was not streamed. Otherwise the items came one by one, and these are the same again.
        for item in objects_in(response.get("output"), self._counters):
            self._item(item)
        if not self._sent_text:  # an answer that was not streamed
            for item in self._items.values():
                for part in objects_in(item.get("content"), self._counters) if item.get("type") == "message" else ():
                    self._refused = self._refused or part.get("type") == "refusal"
                    yield from self._say(text_in(part.get("text")) or text_in(part.get("refusal")))

    def end(self) -> Iterator[ModelEvent]:
        if self._response is None:
            raise broke_off(WHO)
        # Other servers of this protocol may leave the status out.
        whole = [item for item in self._items.values() if item.get("status") in ("completed", None)]
        partials = [_slot(item) for item in whole if item.get("type") == "function_call"]
        response_id = id_in(self._response.get("id"))
        calls = [call_of(partial, PROVIDER, self._id_scope, response_id) for partial in partials]
        reason = self._reason(self._response)
        if reason is None and not calls:
            reason = "length"  # it says that it is not whole, and that is all one has to know of words
        asked = any(item.get("type") == "function_call" for item in self._items.values())
        if not calls and not self._sent_text and reason in ("stop", None) and (asked or not self._items):
            raise unreadable_calls(WHO)
        yield from ending(WHO, calls, self._usage(), reason, self._raw(whole))

    def _reason(self, response: dict[str, Any]) -> Reason | None:
        if self._refused or any(map(_is_refusal, self._items.values())):
            return "refusal"
        if response.get("status") != "incomplete":
            return "stop"
        return _INCOMPLETE.get(text_in(object_in(response.get("incomplete_details")).get("reason")))

    def _usage(self) -> Usage | None:
        usage = object_in(self._response).get("usage")
        if not isinstance(usage, dict):
            return None
        return Usage(count_in(usage.get("input_tokens")), count_in(usage.get("output_tokens")))

    def _raw(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The items to be sent back: verbatim, but for a call that the provider itself would not take back."""
        sent = [_sendable(item) for item in items]
        while sent and sent[-1].get("type") == "reasoning":  # refused without the item that it led to
            sent.pop()
        return kept_turn(PROVIDER, self._model, sent)


new_reader = ResponsesReader


def _is_refusal(item: dict[str, Any]) -> bool:
    """Whether it is a message that refuses, of which the pieces may have been lost."""
    content = item.get("content") if item.get("type") == "message" else None
    return isinstance(content, list) and any(object_in(part).get("type") == "refusal" for part in content)


def _slot(item: dict[str, Any]) -> PartialCall:
    partial = PartialCall(text_in(item.get("name")), id_in(item.get("call_id")))
    arguments = item.get("arguments", "")
    if isinstance(arguments, str):
        partial.grow(arguments)
    else:
        partial.args = arguments
    return partial


def _sendable(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type") != "function_call":
        return item
    name, arguments = text_in(item.get("name")), text_of_args(item.get("arguments", ""))
    if wire_name(name) == item.get("name") and arguments == item.get("arguments"):
        return item
    return {**item, "name": wire_name(name), "arguments": arguments}

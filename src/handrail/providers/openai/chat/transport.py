"""OpenAI Chat Completions: a neutral request → its body; chunks → calls. Pure; no SDK.

Call ids are the provider's. OpenAI's own count for the session; many servers of this protocol give `call_0` to the first
call of every message, so theirs count for that. A late envelope goes into a user's message inside `<host>`: a role with
more say would lend it to what tools return.
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
    DuplicateFilter,
    PartialCall,
    Reason,
    StreamCounters,
    admit,
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
from handrail.providers.openai import CHAT

PROVIDER = CHAT.name
WHO = CHAT.vendor
ID_SCOPE = CHAT.id_scope
"""What every server of this protocol keeps to; the vendor's own may promise more."""
_SHORTEST_PADDING = 6
"""Two chunks with the same padding of at least this many random characters are one."""
_REASONS: dict[str, Reason] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
    "content_filter": "refusal",
}


def body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """The JSON of `POST /chat/completions`."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    for entry in history_entries(request.messages, PROVIDER, model, ids=True):
        messages.extend(_messages(entry))
    made: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    made["stream_options"] = {"include_usage": True}
    if request.tools:
        made["tools"] = [tool if isinstance(tool, dict) else thaw(tool) for tool in request.tools]
        made["tool_choice"] = "auto" if request.allow_calls else "none"
    if request.max_output_tokens is not None:
        made["max_completion_tokens"] = request.max_output_tokens
    return made


def _messages(entry: UserText | ModelTurn) -> Iterator[dict[str, Any]]:
    if isinstance(entry, UserText):
        yield {"role": "user", "content": entry.text}
        return
    yield entry.raw if entry.raw is not None else _assistant(entry)
    for result in entry.results:
        answer: dict[str, Any] = {"role": "tool"}
        if result.wire_id is not None:
            answer["tool_call_id"] = result.wire_id
        yield {**answer, "content": as_text(result.envelope)}


def _assistant(entry: ModelTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": entry.text or (None if entry.results else "")}
    if entry.results:
        message["tool_calls"] = [
            _tool_call(result.wire_id, result.call.name, result.call.args) for result in entry.results
        ]
    return message


def _tool_call(call_id: str | None, name: str, args: Any) -> dict[str, Any]:
    function = {"name": wire_name(name), "arguments": text_of_args(args)}
    return {**({} if call_id is None else {"id": call_id}), "type": "function", "function": function}


def _is_padded(chunk: dict[str, Any]) -> bool:
    """Whether the chunk carries OpenAI's random padding, which makes each of them different."""
    return len(text_in(chunk.get("obfuscation"))) >= _SHORTEST_PADDING


class ChatReader:
    """One answer, streamed or whole."""

    def __init__(self, model: str, counters: StreamCounters, id_scope: IdScope = ID_SCOPE) -> None:
        self._model = model
        self._id_scope = id_scope
        self._response_id: str | None = None
        self._counters = counters
        self._text: list[str] = []
        self._partials: list[PartialCall] = []
        self._by_index: dict[int, PartialCall] = {}
        self._reason: str | None = None
        self._refused = False
        self._usage: Usage | None = None
        self._done = False
        self._doubles = DuplicateFilter(counters)

    @property
    def finished(self) -> bool:
        return self._done

    def feed(self, event: bytes) -> Iterator[ModelEvent]:
        if event.strip() == b"[DONE]":
            self._done = True
            return
        chunk = read_object(event, self._counters)
        if chunk is None or self._doubles.is_repeated(event, marked=_is_padded(chunk)):
            return
        if chunk.get("error") is not None:
            raise failed(WHO, chunk["error"], retryable=True)
        self._response_id = self._response_id or id_in(chunk.get("id"))
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = Usage(count_in(usage.get("prompt_tokens")), count_in(usage.get("completion_tokens")))
        if "choices" not in chunk and usage is None:
            self._counters.unknown(chunk.get("object"))
        for choice in objects_in(chunk.get("choices"), self._counters):
            # One answer was asked for. A server that gives several gets the first of them taken.
            if choice.get("index") in (0, None):
                yield from self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> Iterator[ModelEvent]:
        whole = choice.get("message")
        delta = object_in(choice.get("delta") if whole is None else whole)
        for key in ("content", "refusal"):
            text = text_in(delta.get(key))
            if text:
                self._refused = self._refused or key == "refusal"
                self._text.append(text)
                yield TextDelta(text)
        for place, part in enumerate(objects_in(delta.get("tool_calls"), self._counters)):
            self._part(part, place)
        if isinstance(choice.get("finish_reason"), str):
            self._reason = choice["finish_reason"]
            # A whole message is an answer that was not streamed, behind which no [DONE] comes.
            self._done = self._done or whole is not None

    def _part(self, part: dict[str, Any], place: int) -> None:
        if part.get("type") not in ("function", None):
            self._counters.unknown(part.get("type"))
            return
        index, call_id = part.get("index", place), id_in(part.get("id"))
        if not isinstance(index, int) or isinstance(index, bool):
            self._counters.malformed_events += 1
            return
        function = object_in(part.get("function"))
        partial = self._by_index.get(index)
        # Deltas are joined by index; servers that count badly give another call's id under the same one.
        if partial is None or (call_id is not None and partial.call_id is not None and call_id != partial.call_id):
            partial = self._open(index)
        partial.call_id = partial.call_id or call_id
        partial.name = partial.name or text_in(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # not as the protocol has it, but plain enough
            partial.args = arguments
        else:
            partial.grow(arguments)

    def _open(self, index: int) -> PartialCall:
        partial = self._by_index[index] = PartialCall()
        if len(self._partials) < MAX_CALLS:
            self._partials.append(partial)
        else:
            self._counters.dropped_calls += 1
        return partial

    def end(self) -> Iterator[ModelEvent]:
        # Without a reason nobody knows whether the text or the last call is whole.
        if self._reason is None:
            raise broke_off(WHO)
        if self._reason == "tool_calls" and not self._partials:
            raise unreadable_calls(WHO)
        # Cut: the call that came last is not whole. It is not reported, and must not be in the history either.
        partials: list[PartialCall] = []
        for partial in self._partials[:-1] if self._reason == "length" else self._partials:
            admit(partial, partials, self._counters)
        calls = [call_of(partial, PROVIDER, self._id_scope, self._response_id) for partial in partials]
        reason = "refusal" if self._refused else _REASONS.get(self._reason)
        yield from ending(WHO, calls, self._usage, reason, self._raw(partials))

    def _raw(self, partials: list[PartialCall]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if partials:
            message["tool_calls"] = [
                _tool_call(partial.call_id, partial.name, "{}" if partial.too_long else partial.args)
                for partial in partials
            ]
        elif message["content"] is None:
            message["content"] = ""
        return kept_turn(PROVIDER, self._model, message)


new_reader = ChatReader

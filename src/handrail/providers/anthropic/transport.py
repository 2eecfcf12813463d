"""Anthropic Messages: a neutral request → its body; events → calls. Pure; no SDK.

Content blocks are joined by their index and kept verbatim, thinking with its signature included, to be sent back. Call ids
count for their message, with Anthropic itself for the session. All results of a turn stand first in the next user's
message, with `is_error` where a call failed; a late envelope goes into a text block of a user's message inside `<host>`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handrail.contract.call import IdScope
from handrail.contract.frozen import thaw
from handrail.contract.model import ModelEvent, ModelRequest, TextDelta, Usage
from handrail.providers.anthropic import MESSAGES
from handrail.providers.conversation_history import (
    CONTINUATION,
    CallResult,
    ModelTurn,
    UserText,
    history_entries,
    kept_turn,
)
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
    unreadable_calls,
    wire_name,
)
from handrail.providers.event_stream import object_of as args_object

PROVIDER = MESSAGES.name
WHO = MESSAGES.vendor
ID_SCOPE = MESSAGES.id_scope
"""What every server of this protocol keeps to; the vendor's own may promise more."""
MAX_OUTPUT_TOKENS = 8_192
"""The provider wants a bound in every request; this one stands where the host names none."""
_REASONS: dict[str, Reason] = {
    "end_turn": "stop",
    "tool_use": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_PASSING = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
_MAX_BLOCKS = 1_000


def body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """The JSON of `POST /v1/messages`."""
    messages: list[dict[str, Any]] = []
    for entry in history_entries(request.messages, PROVIDER, model, ids=True):
        _add(messages, entry)
    # The protocol wants the user first; after old turns were left out, the model may be.
    if messages and messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": CONTINUATION})
    made: dict[str, Any] = {"model": model, "max_tokens": request.max_output_tokens or MAX_OUTPUT_TOKENS}
    if request.system:
        made["system"] = request.system
    made["messages"] = messages
    if request.tools:
        made["tools"] = [thaw(tool) for tool in request.tools]
        made["tool_choice"] = {"type": "auto" if request.allow_calls else "none"}
    return {**made, "stream": True}


def _add(messages: list[dict[str, Any]], entry: UserText | ModelTurn) -> None:
    if isinstance(entry, UserText):
        _add_to_user(messages, [{"type": "text", "text": entry.text}])
        return
    content = entry.raw if entry.raw is not None else _content(entry)
    if content:  # an empty turn is refused
        messages.append({"role": "assistant", "content": content})
    if entry.results:
        sets = {block.get("id"): block["toolset_name"] for block in content if "toolset_name" in block}
        _add_to_user(messages, [_result(result, sets) for result in entry.results])


def _add_to_user(messages: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> None:
    """Put blocks into the user's message at the end: two in a row are not wanted."""
    plain = len(blocks) == 1 and blocks[0]["type"] == "text"
    if not messages or messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": blocks[0]["text"] if plain else blocks})
        return
    last = messages[-1]
    before = last["content"]
    last["content"] = ([{"type": "text", "text": before}] if isinstance(before, str) else before) + blocks


def _content(entry: ModelTurn) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": entry.text}] if entry.text.strip() else []
    return text + [
        {
            "type": "tool_use",
            "id": result.wire_id,
            "name": wire_name(result.call.name),
            "input": args_object(result.call.args),
        }
        for result in entry.results
    ]


def _result(result: CallResult, sets: dict[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.wire_id}
    if result.wire_id in sets:
        made["toolset_name"] = sets[result.wire_id]
    if not result.ok:
        made["is_error"] = True
    return {**made, "content": as_text(result.envelope)}


class _ContentBlock:
    """A content block while it comes in."""

    __slots__ = ("partial", "start", "stopped")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = dict(start)
        self.partial = PartialCall(text_in(start.get("name")), id_in(start.get("id")))
        self.stopped = False

    @property
    def kind(self) -> str:
        return text_in(self.start.get("type"))

    @property
    def args(self) -> Any:
        """What the deltas gave; the input of the start where there were none, which is how "no arguments" is said."""
        return self.partial.args or self.start.get("input") or {}

    def raw(self) -> dict[str, Any]:
        if self.kind not in ("tool_use", "server_tool_use"):
            return self.start
        given = args_object({} if self.partial.too_long else self.args)
        return {**self.start, "name": wire_name(self.partial.name), "input": given}


class MessagesReader:
    """One answer, streamed or whole."""

    def __init__(self, model: str, counters: StreamCounters, id_scope: IdScope = ID_SCOPE) -> None:
        self._model = model
        self._id_scope = id_scope
        self._response_id: str | None = None
        self._counters = counters
        self._blocks: dict[int, _ContentBlock] = {}
        self._calls = 0
        self._reason: str | None = None
        self._input = self._output = 0
        self._done = False
        self._doubles = DuplicateFilter(counters)
        self._doubling = False

    @property
    def finished(self) -> bool:
        return self._done

    def feed(self, event: bytes) -> Iterator[ModelEvent]:
        data = read_object(event, self._counters)
        if data is None:
            return
        kind = data.get("type")
        # A message starts once; where its start comes twice, events do, and only then the same one in a row is one.
        start = kind == "message_start"
        if self._doubles.is_repeated(event, marked=start or self._doubling):
            self._doubling = True
            return
        if kind == "content_block_delta":
            yield from self._delta(data)
        elif kind == "content_block_start":
            yield from self._start(data.get("index"), object_in(data.get("content_block")))
        elif kind == "content_block_stop":
            block = self._block(data.get("index"))
            if block is not None:
                block.stopped = True
        elif kind == "message_start":
            message = object_in(data.get("message"))
            self._response_id = id_in(message.get("id"))
            self._count(message.get("usage"))
        elif kind == "message_delta":
            self._reason = id_in(object_in(data.get("delta")).get("stop_reason")) or self._reason
            self._count(data.get("usage"))
        elif kind == "message_stop":
            self._done = True
        elif kind == "message":
            yield from self._whole(data)
        elif kind == "error":
            error = object_in(data.get("error"))
            raise failed(WHO, error, retryable=text_in(error.get("type")) in _PASSING)
        elif kind != "ping":
            self._counters.unknown(kind)

    def _start(self, index: object, block: dict[str, Any]) -> Iterator[ModelEvent]:
        if not isinstance(index, int) or not block:
            self._counters.malformed_events += 1
            return
        if index in self._blocks:
            self._counters.duplicates += 1
            return
        if len(self._blocks) >= _MAX_BLOCKS or (block.get("type") == "tool_use" and self._calls >= MAX_CALLS):
            self._counters.dropped_calls += 1
            return
        made = self._blocks[index] = _ContentBlock(block)
        self._calls += made.kind == "tool_use"
        if made.kind == "text":
            made.start["text"] = text_in(block.get("text"))
            if made.start["text"]:
                yield TextDelta(made.start["text"])

    def _block(self, index: object) -> _ContentBlock | None:
        block = self._blocks.get(index) if isinstance(index, int) else None
        # A delta without a block, or behind its end, belongs to nothing that could be trusted.
        if block is None or block.stopped:
            self._counters.malformed_events += 1
            return None
        return block

    def _delta(self, data: dict[str, Any]) -> Iterator[ModelEvent]:
        block, delta = self._block(data.get("index")), object_in(data.get("delta"))
        if block is None:
            return
        kind = delta.get("type")
        if kind == "text_delta" and block.kind == "text":
            text = text_in(delta.get("text"))
            block.start["text"] += text
            if text:
                yield TextDelta(text)
        elif kind == "input_json_delta":
            block.partial.grow(delta.get("partial_json"))
        elif kind in ("thinking_delta", "signature_delta"):
            # Thinking and its signature are shown to nobody. They go back verbatim, because the provider refuses a turn without
            # them.
            name = kind.removesuffix("_delta")
            block.start[name] = text_in(block.start.get(name)) + text_in(delta.get(name))
        elif kind == "citations_delta":
            block.start["citations"] = [*(block.start.get("citations") or ()), delta.get("citation")]
        else:
            self._counters.unknown(kind)

    def _whole(self, message: dict[str, Any]) -> Iterator[ModelEvent]:
        for index, block in enumerate(objects_in(message.get("content"), self._counters)):
            yield from self._start(index, block)
            if index in self._blocks:
                self._blocks[index].stopped = True
        self._response_id = id_in(message.get("id"))
        self._reason = id_in(message.get("stop_reason"))
        self._count(message.get("usage"))
        self._done = True

    def _count(self, usage: object) -> None:
        found = object_in(usage)
        # What is read from the provider's cache is part of the context as well.
        parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        # Counts come with the beginning and, not always all of them, with the end: what is missing later stays.
        self._input = sum(count_in(found.get(name)) for name in parts) or self._input
        self._output = count_in(found.get("output_tokens")) or self._output

    def end(self) -> Iterator[ModelEvent]:
        # The stream ended in the middle. What came may be half an answer, and its last call half a call.
        if self._reason is None:
            raise broke_off(WHO)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        reason = _REASONS.get(self._reason)
        if reason == "length" and blocks and blocks[-1].kind == "tool_use":
            blocks.pop()  # it was stopped as if it were whole, but its input may be cut
        blocks, partials = self._whole_calls(blocks)
        if self._reason == "tool_use" and not partials:
            raise unreadable_calls(WHO)
        calls = [call_of(partial, PROVIDER, self._id_scope, self._response_id) for partial in partials]
        content = [block.raw() for block in blocks if block.kind != "text" or block.start["text"].strip()]
        # Of this provider and model only: another one is given the same turn in words and calls.
        raw = kept_turn(PROVIDER, self._model, content)
        yield from ending(WHO, calls, Usage(self._input, self._output), reason, raw)

    def _whole_calls(self, blocks: list[_ContentBlock]) -> tuple[list[_ContentBlock], list[PartialCall]]:
        """The blocks without calls that are not whole, that nothing could be answered to, or that were repeated."""
        partials: list[PartialCall] = []
        kept: list[_ContentBlock] = []
        for block in blocks:
            if block.kind == "tool_use":
                if not block.stopped or block.partial.call_id is None:
                    self._counters.malformed_events += 1
                    continue
                block.partial.args = block.args
                if not admit(block.partial, partials, self._counters):
                    continue
            kept.append(block)
        return kept, partials


new_reader = MessagesReader

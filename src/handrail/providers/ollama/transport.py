"""Ollama's chat: a neutral request → its body; lines → calls. Pure; no SDK.

A call comes whole in some line. New servers give it an id, which is sent back verbatim; older ones none, and then none is
sent: results are known by the tool's name and their order. An id counts for its message. There is no way to forbid calls
but to offer no tools. A late envelope goes into a user's message inside `<host>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from handrail.contract.call import IdScope
from handrail.contract.frozen import thaw
from handrail.contract.model import ModelEvent, ModelRequest, TextDelta, Usage
from handrail.providers.conversation_history import CallResult, ModelTurn, UserText, history_entries, kept_turn
from handrail.providers.event_stream import (
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
    object_of,
    objects_in,
    read_object,
    text_in,
    wire_name,
)
from handrail.providers.ollama import OLLAMA

PROVIDER = OLLAMA.name
WHO = OLLAMA.vendor
ID_SCOPE = OLLAMA.id_scope
"""What every server of this protocol keeps to; the vendor's own may promise more."""
_REASONS: dict[str, Reason] = {"stop": "stop", "": "stop", "length": "length", "content_filter": "refusal"}
"""Old servers give none. Ollama itself filters nothing; a gateway that speaks its protocol may."""
_EXACT_TIME = re.compile(r"\.\d{6,}")


def body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """The JSON of `POST /api/chat`."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    for entry in history_entries(request.messages, PROVIDER, model, ids=False):
        messages.extend(_messages(entry))
    made: dict[str, Any] = {"model": model, "messages": messages}
    # There is no way to forbid calls but to offer no tools.
    if request.tools and request.allow_calls:
        made["tools"] = [thaw(tool) for tool in request.tools]
    if request.max_output_tokens is not None:
        made["options"] = {"num_predict": request.max_output_tokens}
    return {**made, "stream": True}


def _messages(entry: UserText | ModelTurn) -> Iterator[dict[str, Any]]:
    if isinstance(entry, UserText):
        yield {"role": "user", "content": entry.text}
        return
    yield entry.raw if entry.raw is not None else _assistant(entry)
    for result in entry.results:
        made = {"role": "tool", "tool_name": wire_name(result.call.name)}
        if result.wire_id is not None:
            made["tool_call_id"] = result.wire_id
        yield {**made, "content": as_text(result.envelope)}


def _assistant(entry: ModelTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": entry.text}
    if entry.results:
        message["tool_calls"] = [_tool_call(result) for result in entry.results]
    return message


def _tool_call(result: CallResult) -> dict[str, Any]:
    function = {"name": wire_name(result.call.name), "arguments": object_of(result.call.args)}
    return {**({} if result.wire_id is None else {"id": result.wire_id}), "function": function}


def _is_timed(line: dict[str, Any]) -> bool:
    """Whether the line says to the microsecond when it was made: no two lines of an answer are made at once."""
    return _EXACT_TIME.search(text_in(line.get("created_at"))) is not None


class OllamaReader:
    """One answer, streamed or whole: each line has the same form."""

    def __init__(self, model: str, counters: StreamCounters, id_scope: IdScope = ID_SCOPE) -> None:
        self._model = model
        self._id_scope = id_scope
        self._counters = counters
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._partials: list[PartialCall] = []
        self._last: dict[str, Any] | None = None
        self._doubles = DuplicateFilter(counters)

    @property
    def finished(self) -> bool:
        return self._last is not None

    def feed(self, event: bytes) -> Iterator[ModelEvent]:
        if not event.strip():
            return
        line = read_object(event, self._counters)
        # What comes behind the last line is of no answer.
        if line is None or self._last is not None or self._doubles.is_repeated(event, marked=_is_timed(line)):
            return
        if line.get("error") is not None:
            raise failed(WHO, line["error"], retryable=True)
        if "message" not in line and line.get("done") is not True:
            self._counters.unknown(next(iter(line), "empty"))
        message = object_in(line.get("message"))
        self._thinking.append(text_in(message.get("thinking")))
        text = text_in(message.get("content"))
        if text:
            self._text.append(text)
            yield TextDelta(text)
        for call in objects_in(message.get("tool_calls"), self._counters):
            self._call(call)
        if line.get("done") is True:
            self._last = line

    def _call(self, call: dict[str, Any]) -> None:
        function = object_in(call.get("function"))
        args = function.get("arguments")
        partial = PartialCall(
            text_in(function.get("name")), id_in(call.get("id")), {} if args is None else args, raw=call
        )
        admit(partial, self._partials, self._counters)

    def end(self) -> Iterator[ModelEvent]:
        if self._last is None:
            raise broke_off(WHO)
        last = self._last
        calls = [call_of(partial, PROVIDER, self._id_scope) for partial in self._partials]
        usage = Usage(count_in(last.get("prompt_eval_count")), count_in(last.get("eval_count")))
        reason = _REASONS.get(text_in(last.get("done_reason")))
        yield from ending(WHO, calls, usage, reason, kept_turn(PROVIDER, self._model, self._raw()))

    def _raw(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        thinking = "".join(self._thinking)
        if thinking:
            message["thinking"] = thinking
        if self._partials:
            message["tool_calls"] = [_sendable(partial) for partial in self._partials]
        return message


new_reader = OllamaReader


def _sendable(partial: PartialCall) -> dict[str, Any]:
    """The call verbatim; only what the server would not take back is mended."""
    call: dict[str, Any] = partial.raw
    function = object_in(call.get("function"))
    args = function.get("arguments")
    good = isinstance(args, dict) and (not args or bool(object_of(args)))
    if good and wire_name(partial.name) == function.get("name"):
        return call
    mended = {**function, "name": wire_name(partial.name), "arguments": object_of(args)}
    return {**({} if partial.call_id is None else {"id": partial.call_id}), "function": mended}

"""Gemini over HTTP: a neutral request → its body; chunks → calls. Pure; no SDK.

A call comes whole in one part. Its id may be missing, and then none is sent back; where there is one it counts for its
message, with Google itself for the session. Parts are kept verbatim with their thought signatures and sent back unchanged.
A failed call's envelope goes under `error`, any other under `output`. A late envelope goes into a user's content inside
`<host>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handrail.contract.call import IdScope
from handrail.contract.frozen import thaw
from handrail.contract.model import ModelEvent, ModelRequest, TextDelta, Usage
from handrail.providers.conversation_history import (
    CONTINUATION,
    CallResult,
    ModelTurn,
    UserText,
    history_entries,
    kept_turn,
)
from handrail.providers.event_stream import (
    DuplicateFilter,
    PartialCall,
    Reason,
    StreamCounters,
    admit,
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
    unreadable_calls,
    wire_name,
)
from handrail.providers.gemini import HTTP

PROVIDER = HTTP.name
WHO = HTTP.vendor
ID_SCOPE = HTTP.id_scope
"""What every server of this protocol keeps to; the vendor's own may promise more."""
_NEVER_SIGNED = "skip_thought_signature_validator"
"""In place of a signature, for calls that another model made."""
_REASONS: dict[str, Reason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}
_FAILURES = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"})
_MAX_PARTS = 2_000


def body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """The JSON of `models/{model}:streamGenerateContent`; the model's name is in the address."""
    contents: list[dict[str, Any]] = []
    for entry in history_entries(request.messages, PROVIDER, model, ids=False):
        _add(contents, entry)
    # The provider wants the user first; after old turns were left out, the model may be.
    if contents and contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": CONTINUATION}]})
    made: dict[str, Any] = {}
    if request.system:
        made["systemInstruction"] = {"role": "user", "parts": [{"text": request.system}]}
    made["contents"] = contents
    if request.tools:
        made["tools"] = [{"functionDeclarations": [thaw(tool) for tool in request.tools]}]
        made["toolConfig"] = {"functionCallingConfig": {"mode": "AUTO" if request.allow_calls else "NONE"}}
    if request.max_output_tokens is not None:
        made["generationConfig"] = {"maxOutputTokens": request.max_output_tokens}
    return made


def _add(contents: list[dict[str, Any]], entry: UserText | ModelTurn) -> None:
    if isinstance(entry, UserText):
        _add_to_user(contents, [{"text": entry.text}])
        return
    parts = entry.raw if entry.raw is not None else _parts(entry)
    if parts:
        contents.append({"role": "model", "parts": parts})
    if entry.results:
        _add_to_user(contents, [_response(result) for result in entry.results])


def _add_to_user(contents: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    if contents and contents[-1]["role"] == "user":
        contents[-1]["parts"] = contents[-1]["parts"] + parts
    else:
        contents.append({"role": "user", "parts": parts})


def _parts(entry: ModelTurn) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": entry.text}] if entry.text else []
    for place, result in enumerate(entry.results):
        call: dict[str, Any] = {} if result.wire_id is None else {"id": result.wire_id}
        call |= {"name": wire_name(result.call.name), "args": object_of(result.call.args)}
        # The provider refuses a first call without a signature, which another model's call cannot have.
        parts.append({"functionCall": call, **({} if place else {"thoughtSignature": _NEVER_SIGNED})})
    return parts


def _response(result: CallResult) -> dict[str, Any]:
    made: dict[str, Any] = {} if result.wire_id is None else {"id": result.wire_id}
    # The provider's own keys for a result and for a failure.
    key = "output" if result.ok else "error"
    return {"functionResponse": {**made, "name": wire_name(result.call.name), "response": {key: thaw(result.envelope)}}}


class GeminiReader:
    """One answer, streamed or whole: each chunk has the same form."""

    def __init__(self, model: str, counters: StreamCounters, id_scope: IdScope = ID_SCOPE) -> None:
        self._model = model
        self._id_scope = id_scope
        self._response_id: str | None = None
        self._counters = counters
        self._parts: list[dict[str, Any]] = []
        self._partials: list[PartialCall] = []
        self._reason: str | None = None
        self._blocked = False
        self._usage: Usage | None = None
        self._doubles = DuplicateFilter(counters)

    @property
    def finished(self) -> bool:
        return False  # usage may follow the reason; the stream's end is the end

    def feed(self, event: bytes) -> Iterator[ModelEvent]:
        chunk = read_object(event, self._counters)
        if chunk is None:
            return
        if chunk.get("error") is not None:
            raise failed(WHO, chunk["error"], retryable=True)
        self._response_id = self._response_id or id_in(_either(chunk, "responseId", "response_id"))
        usage = object_in(_either(chunk, "usageMetadata", "usage_metadata"))
        # What was said until then grows with every chunk that says something, so that two which are the same are one.
        # Thoughts do not count here: they are over when the answer begins, and their number stays.
        said = count_in(_either(usage, "candidatesTokenCount", "candidates_token_count"))
        if self._doubles.is_repeated(event, marked=said > 0):
            return
        if usage:
            thought = count_in(_either(usage, "thoughtsTokenCount", "thoughts_token_count"))
            self._usage = Usage(count_in(_either(usage, "promptTokenCount", "prompt_token_count")), said + thought)
        feedback = object_in(_either(chunk, "promptFeedback", "prompt_feedback"))
        self._blocked = self._blocked or bool(_either(feedback, "blockReason", "block_reason"))
        if not chunk.keys() & {"candidates", "usageMetadata", "usage_metadata", "promptFeedback", "prompt_feedback"}:
            self._counters.unknown(next(iter(chunk), "empty"))
        for candidate in objects_in(chunk.get("candidates"), self._counters):
            # One was asked for. A server that gives several would have its answers mixed.
            if candidate.get("index") in (0, None):
                yield from self._candidate(candidate)

    def _candidate(self, candidate: dict[str, Any]) -> Iterator[ModelEvent]:
        for part in objects_in(object_in(candidate.get("content")).get("parts"), self._counters):
            call = _either(part, "functionCall", "function_call")
            if call is not None:
                self._call(part, call)
                continue
            text = text_in(part.get("text"))
            self._keep(part)
            if text and part.get("thought") is not True:
                yield TextDelta(text)
        reason = _either(candidate, "finishReason", "finish_reason")
        # The protocol's default: there is none yet.
        if isinstance(reason, str) and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = reason

    def _keep(self, part: dict[str, Any]) -> None:
        """Keep a part; pieces of text that carry nothing else are joined."""
        last = self._parts[-1] if self._parts else {}
        plain = {"text", "thought"}
        if (
            plain >= part.keys() | last.keys()
            and isinstance(part.get("text"), str)
            and isinstance(last.get("text"), str)
            and part.get("thought") == last.get("thought")
        ):
            last["text"] += part["text"]
        elif len(self._parts) < _MAX_PARTS:
            self._parts.append(dict(part))

    def _call(self, part: dict[str, Any], call: object) -> None:
        if not isinstance(call, dict):
            self._counters.malformed_events += 1
            return
        args = call.get("args")
        partial = PartialCall(text_in(call.get("name")), id_in(call.get("id")), {} if args is None else args)
        if admit(partial, self._partials, self._counters):
            self._parts.append(_sendable(part, call))

    def end(self) -> Iterator[ModelEvent]:
        # The model wrote a call that the provider could not read, and gives no part of it: the same request may well succeed.
        if self._reason in _FAILURES:
            raise unreadable_calls(WHO)
        if self._reason is None and not self._blocked:
            raise broke_off(WHO)
        # A reason that nobody knows is taken for a filter's: the words stay, and no call of such an answer runs.
        reason: Reason = "refusal" if self._blocked else _REASONS.get(self._reason or "", "refusal")
        calls = [call_of(partial, PROVIDER, self._id_scope, self._response_id) for partial in self._partials]
        yield from ending(WHO, calls, self._usage, reason, kept_turn(PROVIDER, self._model, self._parts))


new_reader = GeminiReader


def _sendable(part: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """The part verbatim; only what the provider would not take back is mended."""
    name, args = text_in(call.get("name")), call.get("args")
    good = args is None or (isinstance(args, dict) and (not args or object_of(args)))
    if good and wire_name(name) == call.get("name"):
        return part
    mended = {**call, "name": wire_name(name), "args": object_of(args)}
    return {**{key: value for key, value in part.items() if key != "function_call"}, "functionCall": mended}


def _either(found: Mapping[str, Any], name: str, other: str) -> Any:
    """A field under either of its spellings."""
    value = found.get(name)
    return found.get(other) if value is None else value

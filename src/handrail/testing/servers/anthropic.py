"""A local server that speaks Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from handrail.testing.servers.script import Frame, NumberedCall, Reply
from handrail.testing.servers.server import ProviderServer, Received, json_or_text, pieces, refused_name

_REASONS = {"length": "max_tokens", "refusal": "refusal"}
_MESSAGE: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "model": "local",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
}


class AnthropicServer(ProviderServer):
    provider = "anthropic"
    key_variable = "ANTHROPIC_API_KEY"

    def new_id(self, number: int) -> str | None:
        return f"toolu_{number}"

    def problem(self, request: Received) -> str | None:
        body = request.body
        if request.path.partition("?")[0] != "/v1/messages" or not isinstance(body, dict):
            return f"there is nothing at {request.path}"
        if not request.headers.get("anthropic-version") or not isinstance(body.get("max_tokens"), int):
            return "anthropic-version and max_tokens are required"
        messages = body["messages"]
        if not messages or messages[0]["role"] != "user":
            return "the first message must be the user's"
        waiting: list[str] = []
        seen: set[str] = set()
        for message in messages:
            blocks = _blocks(message)
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if results != waiting:
                return f"the calls {waiting} must be answered in the next message, which answers {results}"
            if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
                return "results must stand first"
            if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
                return "text content blocks must be non-empty"
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if any(not isinstance(block["input"], dict) or not block["name"] for block in calls):
                return "a call in the history is malformed"
            own = [block for block in calls if str(block["id"]).startswith("toolu_")]
            if own and not any(block["type"] == "thinking" and block.get("signature") for block in blocks):
                return "the thinking before a call is missing"
            waiting = [block["id"] for block in calls]
            if seen & set(waiting) or len(set(waiting)) < len(waiting):
                return "`tool_use` ids must be unique"
            seen |= set(waiting)
        wrong = [tool for tool in body.get("tools", ()) if not tool.get("name") or "input_schema" not in tool]
        if wrong or waiting:
            return "a tool has no name or no schema" if wrong else "a call is not answered"
        blocks = [block for message in messages for block in _blocks(message) if block["type"] == "tool_use"]
        named = [one["name"] for one in (*body.get("tools", ()), *blocks)]
        arguments = [name for tool in body.get("tools", ()) for name in tool["input_schema"].get("properties", ())]
        return refused_name(named, "[A-Za-z0-9_-]{1,64}") or refused_name(arguments, "[A-Za-z0-9_.-]{1,64}")

    def encode(self, payload: Any, number: int) -> bytes:
        if isinstance(payload, dict):
            return b"event: " + str(payload.get("type")).encode() + b"\n" + super().encode(payload, number)
        return super().encode(payload, number)

    def streams(self, request: Received) -> bool:
        return bool(request.body.get("stream"))

    def whole(self, reply: Reply, calls: Sequence[NumberedCall]) -> Any:
        thought = {"type": "thinking", "thinking": "A tool helps.", "signature": "c2lnbmVk"}
        content: list[dict[str, Any]] = [thought] if calls else []
        if reply.text:
            content.append({"type": "text", "text": reply.text})
        content += [{"type": "tool_use", "id": one.id, "name": one.name, "input": one.args} for one in calls]
        given, made = reply.usage
        return {
            **self.named(),
            **_MESSAGE,
            "content": content,
            "stop_reason": _REASONS.get(reply.reason, "tool_use" if calls else "end_turn"),
            "usage": {"input_tokens": given, "output_tokens": made},
        }

    def frames(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield from self._played(reply, calls, _REASONS.get(reply.reason, "tool_use" if calls else "end_turn"))

    def truncated(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield from self._played(reply, calls, "max_tokens")

    def _played(self, reply: Reply, calls: Sequence[NumberedCall], reason: str) -> Iterator[Frame]:
        given, made = reply.usage
        usage = {"input_tokens": given, "output_tokens": 1}
        yield Frame({"type": "message_start", "message": {**self.named(), **_MESSAGE, "usage": usage}})
        index = 0
        if calls:
            thought = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": "A tool helps."},
                {"type": "signature_delta", "signature": "c2lnbmVk"},
            ]
            yield from _block(index, thought, deltas)
            index += 1
        if reply.text:
            texts = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
            yield from _block(index, {"type": "text", "text": ""}, texts)
            index += 1
        yield Frame({"type": "ping"})
        for part, one in enumerate(calls):
            text = orjson.dumps(one.args).decode()
            text = text[: len(text) // 2] if reason == "max_tokens" and one is calls[-1] else text
            start: dict[str, Any] = {"type": "tool_use", "id": one.id, "name": one.name, "input": {}}
            inputs = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(text))]
            yield from _block(index + part, start, inputs, part)
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield Frame({"type": "message_delta", "delta": delta, "usage": {"output_tokens": made}}, end=True)
        yield Frame({"type": "message_stop"}, end=True)

    def failure(self) -> Any:
        return {"type": "error", "error": {"type": "overloaded_error", "message": "the local server fails"}}

    def envelopes(self, body: Any) -> list[Any]:
        blocks = _blocks(body["messages"][-1])
        return [json_or_text(block["content"]) for block in blocks if block["type"] == "tool_result"]


def _block(
    index: int, start: dict[str, Any], deltas: Sequence[dict[str, Any]], part: int | None = None
) -> Iterator[Frame]:
    yield Frame({"type": "content_block_start", "index": index, "content_block": start}, part)
    for delta in deltas:
        yield Frame({"type": "content_block_delta", "index": index, "delta": delta}, part)
    yield Frame({"type": "content_block_stop", "index": index}, part)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content

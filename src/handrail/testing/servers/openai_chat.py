"""A local server that speaks OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import orjson

from handrail.testing.servers.script import Frame, NumberedCall, Reply
from handrail.testing.servers.server import ProviderServer, Received, at_the_end, json_or_text, pieces, refused_name

_REASONS = {"length": "length", "refusal": "content_filter"}


class OpenAIChatServer(ProviderServer):
    """With `obfuscation=False` chunks lack the padding that OpenAI gives each of them, as with other servers of this format."""

    provider = "openai-chat"
    key_variable = "OPENAI_API_KEY"

    def __init__(self, script: Sequence[Reply], *, api_key: str = "test-key", obfuscation: bool = True) -> None:
        super().__init__(script, api_key=api_key)
        self._obfuscation = obfuscation

    @property
    def base_url(self) -> str:
        return f"{super().base_url}/v1"

    def encode(self, payload: Any, number: int) -> bytes:
        if self._obfuscation and isinstance(payload, dict) and "choices" in payload:
            padding = sha256(f"{len(self.requests)} {number}".encode()).hexdigest()[:12]
            payload = {**payload, "obfuscation": padding}
        return super().encode(payload, number)

    def problem(self, request: Received) -> str | None:
        body = request.body
        if request.path != "/v1/chat/completions" or not isinstance(body, dict):
            return f"there is nothing at {request.path}"
        open_ids: list[str] = []
        for message in body["messages"]:
            role = message.get("role")
            if role == "tool":
                if message.get("tool_call_id") not in open_ids:
                    return f"no call {message.get('tool_call_id')!r} waits for this result"
                open_ids.remove(message["tool_call_id"])
            elif open_ids:
                return f"tool_call_ids did not have response messages: {open_ids}"
            for one in message.get("tool_calls", ()):
                if one.get("type") != "function" or not isinstance(one["function"]["arguments"], str):
                    return "a tool call in the history is malformed"
                open_ids.append(one["id"])
        if open_ids:
            return f"tool_call_ids did not have response messages: {open_ids}"
        named = [one["function"] for one in body.get("tools", ())]
        named += [one["function"] for message in body["messages"] for one in message.get("tool_calls", ())]
        return refused_name((one.get("name") for one in named), "[A-Za-z0-9_-]{1,64}")

    def streams(self, request: Received) -> bool:
        return bool(request.body.get("stream"))

    def whole(self, reply: Reply, calls: Sequence[NumberedCall]) -> Any:
        made = [
            {
                "id": one.id,
                "type": "function",
                "function": {"name": one.name, "arguments": orjson.dumps(one.args).decode()},
            }
            for one in calls
        ]
        message = {"role": "assistant", "content": reply.text or None, **({"tool_calls": made} if made else {})}
        reason = _REASONS.get(reply.reason, "tool_calls" if calls else "stop")
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        given, spent = reply.usage
        usage = {"prompt_tokens": given, "completion_tokens": spent, "total_tokens": given + spent}
        named = {**self.named(), "object": "chat.completion", "created": 1, "model": "local"}
        return {**named, "choices": [choice], "usage": usage}

    def frames(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield Frame(self._chunk({"role": "assistant", "content": None}))
        for piece in pieces(reply.text) if reply.text else ():
            yield Frame(self._chunk({"content": piece}))
        for index, one in enumerate(calls):
            yield from self._call(index, one, orjson.dumps(one.args).decode())
        yield from self._end(_REASONS.get(reply.reason, "tool_calls" if calls else "stop"), reply)

    def truncated(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        for piece in pieces(reply.text) if reply.text else ():
            yield Frame(self._chunk({"content": piece}))
        for index, one in enumerate(calls):
            text = orjson.dumps(one.args).decode()
            yield from self._call(index, one, text[: len(text) // 2] if one is calls[-1] else text)
        yield from self._end("length", reply)

    def _call(self, index: int, one: NumberedCall, text: str) -> Iterator[Frame]:
        first = {"index": index, "id": one.id, "type": "function", "function": {"name": one.name, "arguments": ""}}
        yield Frame(self._chunk({"tool_calls": [first]}), index)
        for piece in pieces(text):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            yield Frame(self._chunk(delta), index)

    def _end(self, reason: str, reply: Reply) -> Iterator[Frame]:
        yield Frame(self._chunk({}, reason), end=True)
        given, made = reply.usage
        usage = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
        yield Frame({**self._chunk({}), "choices": [], "usage": usage}, end=True)
        yield Frame(b"[DONE]", end=True)

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        named = {**self.named(), "object": "chat.completion.chunk", "created": 1, "model": "local"}
        return {**named, "choices": [choice]}

    def failure(self) -> Any:
        return {"error": {"message": "the local server fails", "type": "server_error"}}

    def envelopes(self, body: Any) -> list[Any]:
        return [json_or_text(one["content"]) for one in at_the_end(body["messages"], "role", "tool")]

"""A local server that speaks OpenAI's Responses, stateless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson

from handrail.testing.servers.script import Frame, NumberedCall, Reply
from handrail.testing.servers.server import ProviderServer, Received, at_the_end, json_or_text, pieces, refused_name

_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


class OpenAIResponsesServer(ProviderServer):
    provider = "openai-responses"
    key_variable = "OPENAI_API_KEY"

    @property
    def base_url(self) -> str:
        return f"{super().base_url}/v1"

    def problem(self, request: Received) -> str | None:
        body = request.body
        if request.path != "/v1/responses" or not isinstance(body, dict):
            return f"there is nothing at {request.path}"
        if body.get("store") is not False:
            return "this server stores nothing"
        items = [] if isinstance(body["input"], str) else body["input"]
        made = [item["call_id"] for item in items if item.get("type") == "function_call"]
        answered = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        if sorted(made) != sorted(answered):
            return f"the calls {made} and the outputs {answered} do not match"
        for item, after in pairwise([*items, {}]):
            if item.get("type") == "reasoning" and after.get("type") not in ("function_call", "message", "reasoning"):
                return "a reasoning item stands without the item that it led to"
        wrong = [tool for tool in body.get("tools", ()) if not tool.get("name") or "parameters" not in tool]
        if wrong:
            return "a tool is not as this API wants it"
        named = [*body.get("tools", ()), *(item for item in items if item.get("type") == "function_call")]
        return refused_name((one["name"] for one in named), "[A-Za-z0-9_-]{1,64}")

    def encode(self, payload: Any, number: int) -> bytes:
        if isinstance(payload, dict) and "type" in payload:
            name = str(payload["type"]).encode()
            payload = {**payload, "sequence_number": number}
            return b"event: " + name + b"\n" + super().encode(payload, number)
        return super().encode(payload, number)

    def streams(self, request: Received) -> bool:
        return bool(request.body.get("stream"))

    def whole(self, reply: Reply, calls: Sequence[NumberedCall]) -> Any:
        *_, last = self.frames(reply, calls)
        return last.payload["response"]

    def frames(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield from self._played(reply, calls, whole=True)

    def truncated(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield from self._played(reply, calls, whole=False)

    def _played(self, reply: Reply, calls: Sequence[NumberedCall], *, whole: bool) -> Iterator[Frame]:
        response = _response(self.named())
        yield Frame({"type": "response.created", "response": response})
        output: list[dict[str, Any]] = []
        if reply.text:
            yield from self._message(reply.text, output)
        if calls:
            thought = {
                "id": f"rs_{calls[0].number}",
                "type": "reasoning",
                "summary": [],
                "encrypted_content": "b3BhcXVl",
            }
            output.append(thought)
            place = {"output_index": len(output) - 1}
            yield Frame({"type": "response.output_item.added", **place, "item": {**thought, "encrypted_content": "b3"}})
            yield Frame({"type": "response.output_item.done", **place, "item": thought})
        for part, one in enumerate(calls):
            cut = not whole and one is calls[-1]
            for event in self._call(one, output, cut=cut):
                yield Frame(event, part)
        status = "incomplete" if not whole or reply.reason != "stop" else "completed"
        details = {"reason": _INCOMPLETE.get(reply.reason, "max_output_tokens")} if status == "incomplete" else None
        given, made = reply.usage
        usage = {
            "input_tokens": given,
            "output_tokens": made,
            "total_tokens": given + made,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        ended = {**response, "status": status, "incomplete_details": details, "output": output, "usage": usage}
        yield Frame({"type": f"response.{status}", "response": ended}, end=True)

    def _message(self, text: str, output: list[dict[str, Any]]) -> Iterator[Frame]:
        place, item_id = {"output_index": len(output)}, "msg_local"
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        yield Frame(
            {
                "type": "response.output_item.added",
                **place,
                "item": {**item, "status": "in_progress", "content": []},
            }
        )
        for piece in pieces(text):
            delta = {"type": "response.output_text.delta", "item_id": item_id, **place, "content_index": 0}
            yield Frame({**delta, "delta": piece, "logprobs": []})
        yield Frame({"type": "response.output_item.done", **place, "item": item})
        output.append(item)

    def _call(self, one: NumberedCall, output: list[dict[str, Any]], *, cut: bool) -> Iterator[dict[str, Any]]:
        text = orjson.dumps(one.args).decode()
        text = text[: len(text) // 2] if cut else text
        item_id, index = f"fc_{one.number}", len(output)
        item = {"id": item_id, "type": "function_call", "call_id": one.id, "name": one.name}
        placed = {"item_id": item_id, "output_index": index}
        started = {**item, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        for piece in pieces(text):
            yield {"type": "response.function_call_arguments.delta", **placed, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **placed, "name": one.name, "arguments": text}
        ended = {**item, "status": "incomplete" if cut else "completed", "arguments": text}
        output.append(ended)
        yield {"type": "response.output_item.done", "output_index": index, "item": ended}

    def failure(self) -> Any:
        return {"type": "error", "code": "server_error", "message": "the local server fails", "param": None}

    def envelopes(self, body: Any) -> list[Any]:
        return [json_or_text(one["output"]) for one in at_the_end(body["input"], "type", "function_call_output")]


def _response(named: Mapping[str, str]) -> dict[str, Any]:
    return {
        **named,
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": "local",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }

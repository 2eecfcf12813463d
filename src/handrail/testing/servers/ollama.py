"""A local server that speaks Ollama's chat. `ids=False`: no ids of calls and no exact times, as with old servers.

`models` are those that it says it has, by name, the last one pulled last: each with what it can do, such as `tools`;
`remote` marks one that it only passes on to servers of its vendor. `context` is the length that they are made for, `num_ctx` what
their Modelfiles say, `loaded` the room that they are given when they run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from handrail.testing.servers.script import Frame, NumberedCall, Reply
from handrail.testing.servers.server import ProviderServer, Received, at_the_end, json_or_text, pieces


class OllamaServer(ProviderServer):
    provider = "ollama"
    key_variable = "OLLAMA_API_KEY"
    lines = True

    def __init__(
        self,
        script: Sequence[Reply],
        *,
        api_key: str = "test-key",
        ids: bool = True,
        models: Mapping[str, Sequence[str]] | None = None,
        context: int | None = None,
        num_ctx: int | None = None,
        loaded: int | None = None,
    ) -> None:
        super().__init__(script, api_key=api_key)
        self._ids = ids
        self._models = models or {}
        self._context, self._num_ctx, self._loaded = context, num_ctx, loaded

    def facts(self, request: Received) -> Any:
        if request.path == "/api/tags":
            dates = [f"2026-09-{day:02d}T10:00:00Z" for day in range(1, len(self._models) + 1)]
            return {
                "models": [{"name": name, "modified_at": date} for name, date in zip(self._models, dates, strict=True)]
            }
        named = str(request.body.get("model")) if isinstance(request.body, dict) else ""
        if request.path == "/api/show":
            if named not in self._models:
                raise LookupError(f"model '{named}' not found")
            abilities = self._models[named]
            remote = {"remote_host": "https://ollama.example:443"} if "remote" in abilities else {}
            return {
                "capabilities": [one for one in abilities if one != "remote"],
                "details": {"family": "test"},
                "parameters": f"num_ctx                        {self._num_ctx}" if self._num_ctx else "",
                "model_info": {"general.architecture": "test", "test.context_length": self._context},
                **remote,
            }
        if request.path == "/api/ps":
            room = {} if self._loaded is None else {"context_length": self._loaded}
            return {"models": [{"name": f"{name}:latest", **room} for name in self._models if self.requests]}
        return None

    def encode(self, payload: Any, number: int) -> bytes:
        if isinstance(payload, dict) and "created_at" in payload:
            when = (
                f"2026-09-21T10:00:{len(self.requests) % 60:02d}.{number:09d}Z" if self._ids else "2026-09-21T10:00:00Z"
            )
            payload = {**payload, "created_at": when}
        return super().encode(payload, number)

    def new_id(self, number: int) -> str | None:
        return f"call_{number:08d}" if self._ids else None

    def problem(self, request: Received) -> str | None:
        body = request.body
        if request.path != "/api/chat" or not isinstance(body, dict):
            return f"there is nothing at {request.path}"
        waiting: list[tuple[Any, Any]] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                named = (message.get("tool_call_id"), message["tool_name"])
                if not waiting or waiting.pop(0) != named:
                    return f"no call {named} waits for this result"
            elif waiting:
                return f"the calls {waiting} have no result"
            for one in message.get("tool_calls", ()):
                if not isinstance(one["function"]["arguments"], dict):
                    return "the arguments of a call must be an object"
                waiting.append((one.get("id"), one["function"]["name"]))
        return "a call has no result" if waiting else None

    def frames(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield Frame(_line({"content": "", "thinking": "A tool helps."}))
        for piece in pieces(reply.text) if reply.text else ():
            yield Frame(_line({"content": piece}))
        for part, one in enumerate(calls):
            call = {**({} if one.id is None else {"id": one.id}), "function": _function(part, one)}
            yield Frame(_line({"content": "", "tool_calls": [call]}), part)
        given, made = reply.usage
        ended = {"done": True, "done_reason": "content_filter" if reply.reason == "refusal" else reply.reason}
        counts = {"prompt_eval_count": given, "eval_count": made}
        yield Frame({**_line({"content": ""}), **ended, **counts}, end=True)

    def truncated(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        """A call is never cut in this format; a line can be, where the server dies."""
        *before, last, _ = self.frames(reply, calls)
        yield from before
        text = orjson.dumps(last.payload)
        yield Frame(text[: len(text) // 2], end=True)

    def failure(self) -> Any:
        return {"error": "the local server fails"}

    def envelopes(self, body: Any) -> list[Any]:
        return [json_or_text(one["content"]) for one in at_the_end(body["messages"], "role", "tool")]


def _function(index: int, one: NumberedCall) -> dict[str, Any]:
    return {"index": index, "name": one.name, "arguments": one.args}


def _line(message: dict[str, Any]) -> dict[str, Any]:
    made = {"model": "local", "created_at": "2026-09-21T10:00:00Z"}
    return {**made, "message": {"role": "assistant", **message}, "done": False}

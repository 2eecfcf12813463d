"""A local server that speaks Gemini's `streamGenerateContent`. With `ids=False` calls have no ids and chunks no usage, as the
service may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from handrail.testing.servers.script import Frame, NumberedCall, Reply
from handrail.testing.servers.server import ProviderServer, Received, pieces, refused_name

_REASONS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
SIGNATURE = "b3BhcXVlLXNpZ25hdHVyZS1fLys/"
"""The signature of thoughts; the service takes it back only as it was."""


class GeminiServer(ProviderServer):
    provider = "gemini"
    key_variable = "GEMINI_API_KEY"

    def __init__(self, script: Sequence[Reply], *, api_key: str = "test-key", ids: bool = True) -> None:
        super().__init__(script, api_key=api_key)
        self._ids = ids

    def new_id(self, number: int) -> str | None:
        return f"fc-{number}" if self._ids else None

    def encode(self, payload: Any, number: int) -> bytes:
        """Each chunk tells what was used until then, as the service does."""
        if self._ids and isinstance(payload, dict) and "candidates" in payload and "usageMetadata" not in payload:
            usage = {"promptTokenCount": 10, "candidatesTokenCount": number + 1, "totalTokenCount": number + 11}
            payload = {**payload, "usageMetadata": usage}
        return super().encode(payload, number)

    def problem(self, request: Received) -> str | None:
        body = request.body
        if not request.path.endswith(":streamGenerateContent?alt=sse") or not isinstance(body, dict):
            return f"there is nothing at {request.path}"
        waiting: list[tuple[Any, Any]] = []
        for content in body["contents"]:
            parts = content["parts"]
            answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
            if [(one.get("id"), one["name"]) for one in answers] != waiting:
                return f"the calls {waiting} must be answered in the next content, in their order"
            if any(not isinstance(one["response"], dict) for one in answers):
                return "a response must be an object"
            calls = [part for part in parts if "functionCall" in part]
            signed = {part.get("thoughtSignature") for part in calls}
            if calls and not signed & {SIGNATURE, "skip_thought_signature_validator"}:
                return "the calls of a turn lack their thought signature"
            waiting = [(part["functionCall"].get("id"), part["functionCall"]["name"]) for part in calls]
        if waiting:
            return "a call is not answered"
        declared = [one for tool in body.get("tools", ()) for one in tool["functionDeclarations"]]
        schemas = [one.get("parametersJsonSchema") or one.get("parameters") or {} for one in declared]
        arguments = [name for schema in schemas for name in schema.get("properties", ())]
        functions = refused_name((one.get("name") for one in declared), "[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
        return functions or refused_name(arguments, "[A-Za-z_][A-Za-z0-9_]{0,63}")

    def frames(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        yield Frame(self._chunk([{"text": "Thinking.", "thought": True}]))
        for piece in pieces(reply.text) if reply.text else ():
            yield Frame(self._chunk([{"text": piece}]))
        for part, one in enumerate(calls):
            call = {**({} if one.id is None else {"id": one.id}), "name": one.name, "args": one.args}
            signed = {} if part else {"thoughtSignature": SIGNATURE}
            yield Frame(self._chunk([{"functionCall": call, **signed}]), part)
        end = self._chunk([{"text": "", "thoughtSignature": SIGNATURE}], _REASONS.get(reply.reason, "STOP"))
        given, made = reply.usage
        usage = {"promptTokenCount": given, "candidatesTokenCount": made, "totalTokenCount": given + made}
        yield Frame({**end, "usageMetadata": usage}, end=True)

    def truncated(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        chunk = self._chunk([], "MALFORMED_FUNCTION_CALL")
        chunk["candidates"][0]["finishMessage"] = f"Malformed function call: {calls[-1].name}("
        yield Frame(chunk, end=True)

    def failure(self) -> Any:
        return {"error": {"code": 503, "message": "the local server fails", "status": "UNAVAILABLE"}}

    def envelopes(self, body: Any) -> list[Any]:
        parts = body["contents"][-1]["parts"]
        answers = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return [one.get("output", one.get("error")) for one in answers]

    def _chunk(self, parts: list[dict[str, Any]], reason: str | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if not parts:
            candidate["content"].pop("parts")
        if reason is not None:
            candidate["finishReason"] = reason
        return {"candidates": [candidate], "modelVersion": "local", **self.named("responseId")}

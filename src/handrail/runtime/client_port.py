"""`ctx.client`: what a handler shows to the client that made the call, and what it asks that client, beside its envelope.

A host whose clients take more than envelopes (an MCP server does) puts a `ClientBridge` for the call into
`Session.clients`. Where there is none, what is shown is dropped, because the envelope says everything, and questions are
refused: a handler asks `can` first.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from handrail.contract.errors import ErrorType, ToolError, UsageError
from handrail.contract.fields import shown

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt

MAX_BLOCKS = 50
MAX_BLOCK_BYTES = 8 * 1024 * 1024
"""Of all blocks of one call together."""
MAX_QUESTIONS = 8
MAX_NOTE_CHARACTERS = 2_000
"""Of a note on the progress, or a line for the client's log; the rest is left out."""
_METHODS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class ClientBridge(Protocol):
    """The way to the client of one call. Every method but `ask` may be called from any thread."""

    @property
    def can(self) -> frozenset[str]: ...

    def show(self, block: Mapping[str, Any]) -> None: ...

    def progress(self, done: float, total: float | None, message: str | None) -> None: ...

    def progress_text(self, text: str) -> None: ...

    def log(self, level: str, text: str) -> None: ...

    def defer(self) -> None: ...

    def note_missing(self, kind: str) -> None:
        """The handler had a question of a kind that the client does not take."""
        ...

    async def ask(self, questions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]: ...


class ClientPort:
    """Made for each call; a tool lists `client` among its capabilities to use it."""

    __slots__ = ("_bridge", "_bytes", "_shown", "_tool")

    def __init__(self, attempt: Attempt) -> None:
        definition = attempt.plan.definition
        if "client" not in definition.capabilities:
            raise UsageError(
                f'"{definition.tool_id}" uses ctx.client; add "client" to the "capabilities" in its schema.json.'
            )
        clients = attempt.session.clients
        self._bridge: ClientBridge | None = clients.get(attempt.call.call_id) if clients is not None else None
        self._tool = definition.tool_id
        self._shown = self._bytes = 0

    @property
    def can(self) -> frozenset[str]:
        """What this client does: `elicitation`, `sampling`, `roots`, `tasks`; empty where nobody can be asked."""
        return self._bridge.can if self._bridge is not None else frozenset()

    # What is shown

    def text(self, text: str) -> None:
        """Show a piece of text."""
        self._show({"type": "text", "text": str(text)})

    def image(self, data: bytes, mime_type: str) -> None:
        """Show a picture, such as the bytes of a PNG file with "image/png"."""
        self._show({"type": "image", "data": _base64(data), "mimeType": mime_type})

    def audio(self, data: bytes, mime_type: str) -> None:
        """Let a sound be heard, such as the bytes of a WAV file with "audio/wav"."""
        self._show({"type": "audio", "data": _base64(data), "mimeType": mime_type})

    def resource(self, uri: str, content: str | bytes, mime_type: str = "text/plain") -> None:
        """Show a document, text or bytes, under its address."""
        body = {"text": content} if isinstance(content, str) else {"blob": _base64(content)}
        self._show({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, **body}})

    def link(self, uri: str, name: str, mime_type: str | None = None) -> None:
        """Show where a document is."""
        kind = {} if mime_type is None else {"mimeType": mime_type}
        self._show({"type": "resource_link", "uri": uri, "name": name, **kind})

    def _show(self, block: Mapping[str, Any]) -> None:
        self._shown += 1
        self._bytes += len(orjson.dumps(block))
        if self._shown > MAX_BLOCKS or self._bytes > MAX_BLOCK_BYTES:
            raise UsageError(f"One call shows at most {MAX_BLOCKS} blocks and {MAX_BLOCK_BYTES // 1024} KiB.")
        if self._bridge is not None:
            self._bridge.show(block)

    # How it goes

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is; `ctx.progress` says it in words alone."""
        if self._bridge is not None:
            self._bridge.progress(done, total, None if message is None else str(message)[:MAX_NOTE_CHARACTERS])

    def log(self, level: str, text: str) -> None:
        """Send a line for the client's log: `debug`, `info`, `notice`, `warning`, `error`."""
        if self._bridge is not None:
            self._bridge.log(level, str(text)[:MAX_NOTE_CHARACTERS])

    def defer(self) -> None:
        """From here on this takes long: a client that knows tasks is answered with one, and looks for the outcome later."""
        if self._bridge is not None:
            self._bridge.defer()

    # What is asked

    @staticmethod
    def elicitation(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A question to the person, whose answer is an object by this flat schema. Never for a confirmation: that is the
        runtime's to ask."""
        return {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": message, "requestedSchema": dict(schema)},
        }

    @staticmethod
    def sampling(text: str, max_tokens: int, **params: Any) -> dict[str, Any]:
        """A question to the client's model."""
        said = [{"role": "user", "content": {"type": "text", "text": text}}]
        return {"method": "sampling/createMessage", "params": {"messages": said, "maxTokens": max_tokens, **params}}

    @staticmethod
    def roots() -> dict[str, Any]:
        """A question for the folders that the client works in."""
        return {"method": "roots/list", "params": {}}

    async def ask(self, **questions: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """Ask the client these questions at once and wait for all answers, by name. They are as untrusted as arguments.

        `UNAVAILABLE` if this client cannot be asked one of them. The call's deadline continues while it waits.
        """
        if not 0 < len(questions) <= MAX_QUESTIONS:
            raise UsageError(f"A call asks 1 to {MAX_QUESTIONS} questions at once; {len(questions)} are not.")
        for name, question in questions.items():
            kind = _METHODS.get(question.get("method", ""))
            if kind is None:
                raise UsageError(f'"{name}" is no question: its method is {shown(question.get("method"))}.')
            if self._bridge is None or kind not in self.can:
                if self._bridge is not None:
                    self._bridge.note_missing(kind)
                raise ToolError(
                    ErrorType.UNAVAILABLE,
                    f'"{self._tool}" has a question of kind "{kind}", which this client does not take.',
                )
        assert self._bridge is not None
        return await self._bridge.ask(questions)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

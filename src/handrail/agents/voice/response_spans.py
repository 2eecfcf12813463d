"""Spans of a live model's responses, where the runtime is traced: from the first sound, word or call to the end of each.

A response may begin before its turn is stored, and is what the turn's span is the parent of. So its span is made once the turn is
there, with the times at which the response began and ended.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from handrail.contract.live import (
    AudioOut,
    CallsMade,
    Closed,
    Disconnected,
    Interrupted,
    LiveEvent,
    OutputTranscript,
    TurnEnded,
    Usage,
)
from handrail.contract.ports import ChatOutcome, TracingPort

_MAX_WAITING = 64


@dataclass(slots=True)
class _Response:
    began: int
    """Nanoseconds since 1970, as `ended`."""
    ended: int = 0
    input_id: str = ""
    """The input of its turn."""
    usage: Usage | None = None
    reason: str | None = None
    error: str | None = None


class ResponseSpans:
    """Of one live session."""

    def __init__(self, tracing: TracingPort, provider: str, model: str) -> None:
        self._tracing = tracing
        self._names = (provider, model)
        self._open: _Response | None = None
        self._waiting: list[_Response] = []
        self._turns: dict[str, Any] = {}

    def see(self, event: LiveEvent, input_id: str) -> None:
        """What the model did, in the turn of this input; "" before there is one."""
        match event:
            case AudioOut() | OutputTranscript():
                self._begin()
            case CallsMade():
                self._begin()
                self._end("tool_calls", input_id)
            case TurnEnded():
                reasons = {"done": "stop", "cut": "length", "interrupted": "interrupted"}
                self._end(reasons.get(event.reason), input_id, "failed" if event.reason == "failed" else None)
            case Interrupted():
                self._end("interrupted", input_id)
            case Disconnected() | Closed():
                self._end(None, input_id, "disconnected")
            case Usage():
                response = self._open or (self._waiting[-1] if self._waiting else None)
                if response is not None:  # a provider tells it before the end, or just after it
                    response.usage = event
            case _:
                pass

    def stored(self, input_id: str, span: Any) -> None:
        """The turn of this input has this span."""
        if span is not None:
            self._turns[input_id] = span
            while len(self._turns) > 4:
                del self._turns[next(iter(self._turns))]
        self._waiting, waiting = [one for one in self._waiting if one.input_id not in self._turns], self._waiting
        for one in waiting:
            if one.input_id in self._turns:
                self._send(one)

    def close(self) -> None:
        self._end(None, "")
        for one in self._waiting:
            self._send(one)
        self._waiting = []

    def _begin(self) -> None:
        if self._open is None:
            self._open = _Response(time.time_ns())

    def _end(self, reason: str | None, input_id: str, error: str | None = None) -> None:
        response, self._open = self._open, None
        if response is None:
            return
        response.ended, response.input_id = time.time_ns(), input_id
        response.reason, response.error = reason, error
        self._waiting.append(response)
        if len(self._waiting) > _MAX_WAITING:
            self._send(self._waiting.pop(0))

    def _send(self, response: _Response) -> None:
        span = self._tracing.begin_chat(self._turns.get(response.input_id), *self._names, began=response.began)
        usage = response.usage or Usage(0, 0)
        outcome = ChatOutcome(usage.input_tokens, usage.output_tokens, response.reason, response.error)
        self._tracing.end_chat(span, outcome, ended=response.ended)

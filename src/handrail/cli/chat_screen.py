"""What a conversation looks like on a terminal, and as lines of JSON for a program."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

import orjson

from handrail.agents import AgentEvent
from handrail.cli.bold_text import BoldText
from handrail.contract.hidden_characters import escaped

_MAX_ARGS = 160


class Screen(Protocol):
    def show(self, event: AgentEvent) -> None: ...

    def ask(self, text: str) -> None:
        """Put a question, and leave the cursor behind it."""
        ...

    def note(self, text: str) -> None:
        """Say something that is not part of the conversation."""
        ...


class JsonScreen:
    """Each event on a line of its own. Tokens stay here: approving is done through this command."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: AgentEvent) -> None:
        data = {name: value for name, value in event.data.items() if name != "token"}
        self._line({"type": event.type, **({"message": data} if event.type == "message" else data)})

    def ask(self, text: str) -> None:
        """A program knows what it is asked from the event."""

    def note(self, text: str) -> None:
        self._line({"type": "note", "text": text})

    def _line(self, value: Mapping[str, Any]) -> None:
        try:
            text = orjson.dumps(value, default=dict).decode()
        except orjson.JSONEncodeError:
            text = json.dumps(value, default=str)
        self._out.write(text + "\n")
        self._out.flush()


class PlainScreen:
    """Text as it comes, and a line for each call. On a terminal, what Markdown marks as bold is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._in_line = False
        self._bold = BoldText() if out.isatty() else None

    def show(self, event: AgentEvent) -> None:
        data = event.data
        if event.type == "text":
            text = safe(data["text"])
            self._write(text if self._bold is None else self._bold.feed(text))
        elif event.type == "tool_started":
            self._line(f"  … {data['toolId']} {_args(data['args'])}")
        elif event.type in ("tool_finished", "tool_refused"):
            self._line(f"  {_outcome(event)}")
        elif event.type == "progress":
            self._line(f"  … {data['toolId']}: {data['text']}")
        elif event.type == "message":
            self._line(f"  » {_message(data)}")
        elif event.type == "connection_wanted":
            command = f"handrail connect {data['connection']}"
            self._line(f"  » Connect {data['label']} first: run `{command}` with the same --user, then ask again.")
        elif event.type == "error":
            self._line(f"  ! {data.get('detail', data['message'])}")
        elif event.type == "done":
            self._line("")

    def ask(self, text: str) -> None:
        self._start_line()
        self._out.write(escaped(text, "\n\t"))
        self._out.flush()

    def note(self, text: str) -> None:
        self._line(text)

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._in_line = not text.endswith("\n")

    def _line(self, text: str) -> None:
        self._start_line()
        self._out.write(escaped(text, "\n\t") + "\n")
        self._out.flush()

    def _start_line(self) -> None:
        if self._bold is not None:
            self._write(self._bold.rest())
        if self._in_line:
            self._out.write("\n")
            self._in_line = False


def safe(text: str) -> str:
    """What a model says, for a terminal: nothing in it moves the cursor, colours, or turns letters around.

    Calls, previews and questions are escaped instead, which would make emoji in speech hard to read.
    """
    return "".join(
        letter
        if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        else "\ufffd"
        for letter in text
    )


def _args(args: Any) -> str:
    text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_ARGS else f"{text[: _MAX_ARGS - 1]}…"


def _outcome(event: AgentEvent) -> str:
    data = event.data
    duration = data["meta"].get("duration")
    took = f" ({duration:.0f} ms)" if isinstance(duration, (int, float)) else ""
    if data["ok"]:
        found = f", {len(data['citations'])} found" if data["citations"] else ""
        again = ", replayed" if data["meta"].get("replayed") else ""
        return f"✓ {data['toolId']}{found}{again}{took}"
    if data.get("held"):
        return f"? {data['toolId']} waits for your approval"
    gate = f" by {data['gate']}" if event.type == "tool_refused" else ""
    verb = "refused" if event.type == "tool_refused" else "failed"
    return f"✗ {data['toolId']} {verb}{gate}: {data['error']['type']}, {data['error']['message']}"


def _message(data: Mapping[str, Any]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in data.items() if name != "type" and value is not None)
    return f"{data.get('type')}: {facts}"

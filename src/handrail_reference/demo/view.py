"""What the demo model sees of a request: which tools are offered, and the conversation as turns."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from handrail.model import AssistantMessage, Call, HostMessage, ModelRequest, ToolMessage, UserMessage

_NOTE = re.compile(r'Note of the host: "([^"]*)"(?: \(call "([^"]*)"\))?.*?data: (\{.*\})$', re.S)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next: words, or calls to make; and what the user may say next, for buttons."""

    text: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    suggestions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A call of the model and the envelope that it ended in."""

    name: str
    args: Mapping[str, Any]
    envelope: Mapping[str, Any]
    call_id: str | None = None

    @property
    def ok(self) -> bool:
        return bool(self.envelope.get("ok"))

    @property
    def data(self) -> Mapping[str, Any]:
        return self.envelope.get("data") or {}

    @property
    def error(self) -> Mapping[str, Any]:
        return self.envelope.get("error") or {}

    @property
    def held(self) -> bool:
        """Whether it still waits for a person's approval."""
        return self.error.get("type") == "CONFIRMATION_REQUIRED"


@dataclass(slots=True)
class DialogueTurn:
    """What the user said, what was called for it, and what was answered."""

    text: str
    outcomes: list[Outcome] = field(default_factory=list)
    answer: str = ""

    def outcome(self, name: str) -> Outcome | None:
        return next((outcome for outcome in reversed(self.outcomes) if outcome.name == name), None)


class View:
    """One request, read."""

    def __init__(self, request: ModelRequest) -> None:
        self.tools = {str(tool.get("function", tool).get("name")) for tool in request.tools}
        self.may_call = request.allow_calls
        self.voice = request.session.get("mode") == "voice"
        zone = ZoneInfo(str(request.session.get("time_zone") or "UTC"))
        self.now = datetime.fromisoformat(str(request.session.get("now", "2000-01-01T00:00:00Z"))).astimezone(zone)
        self.turn = DialogueTurn("")
        self.turns = [self.turn]
        self.news: Outcome | None = None
        """What became of a held call, if the host has told since the model spoke last."""
        calls: dict[str | None, Call] = {}
        for message in request.messages:
            if isinstance(message, UserMessage):
                self.turn, self.news = DialogueTurn(message.text), None
                self.turns.append(self.turn)
            elif isinstance(message, AssistantMessage):
                calls = {call.call_id: call for call in message.calls}
                self.turn.answer = f"{self.turn.answer}\n\n{message.text}".strip()
                self.news = self.news if not message.text else None
            elif isinstance(message, ToolMessage):
                args = calls[message.call_id].args if message.call_id in calls else {}
                args = json.loads(args or "{}") if isinstance(args, str) else args
                self.turn.outcomes.append(Outcome(message.name, args, message.envelope, message.call_id))
            elif isinstance(message, HostMessage) and (note := _NOTE.match(message.text)):
                self._settle(note[1], note[2], json.loads(note[3]))
        self.turn_before = self.turns[-2] if len(self.turns) > 1 else DialogueTurn("")
        self.outcomes = [outcome for turn in self.turns for outcome in turn.outcomes]

    def _settle(self, tool: str, call_id: str | None, envelope: Mapping[str, Any]) -> None:
        """A held call was decided: its envelope takes the place of the one that said that it waits."""
        self.news = Outcome(tool, {}, envelope)
        for turn in self.turns:
            for place, outcome in enumerate(turn.outcomes):
                if outcome.name == tool and outcome.held and call_id in (None, outcome.call_id):
                    turn.outcomes[place] = self.news = replace(outcome, envelope=envelope)
                    return

"""What the offline model sees: the tools as declared, and the conversation as turns. Nothing comes by another way."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

from handrail.agents.offline.vocabulary import WRITING
from handrail.contract.call import Call
from handrail.contract.errors import SchemaError
from handrail.contract.events import NOTE_START as LATE
from handrail.contract.model import AssistantMessage, HostMessage, Message, ModelRequest, ToolMessage, UserMessage
from handrail.picking import ToolIndex
from handrail.picking.words import split_words, stem
from handrail.schema.validator import CompiledSchema, compile_schema

_LISTED = re.compile(
    r"^- `?(?P<name>[\w.-]+)`? \((?P<category>retrieval|action|utility)(?P<asks>[^)]*)\): (?P<summary>.+)$", re.M
)
_WRITTEN = re.compile(r"^- `(?P<name>[\w.-]+)` \((?P<category>\w+), in text only\): (?P<summary>.+)$", re.M)
_NOTE = re.compile(rf'^{LATE}: "(?P<tool>[^"]*)".*?data: (?P<envelope>\{{.*\}})$', re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTool:
    """A tool as its declaration and its line in the prompt tell it."""

    name: str
    description: str
    summary: str
    category: str
    parameters: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        members = self.parameters.get("properties")
        return {k: v for k, v in members.items() if isinstance(v, Mapping)} if isinstance(members, Mapping) else {}

    @property
    def required(self) -> list[str]:
        """What must be given; strict declarations list everything, and let null stand for what is left out."""
        names = self.parameters.get("required")
        return [name for name in names or () if not takes_null(self.properties.get(name, {}))]

    @property
    def words(self) -> list[str]:
        return split_words(self.name.replace(".", "_"))[: len(self.name)]

    def vocabulary(self) -> frozenset[str]:
        return frozenset(stem(word) for word in split_words(f"{self.name} {self.description} {self.summary}"))


@dataclass(frozen=True, slots=True)
class Done:
    """A call of the model, and the envelope that it got."""

    call: Call
    envelope: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return bool(self.envelope.get("ok"))

    @property
    def data(self) -> Any:
        return self.envelope.get("data")

    @property
    def error(self) -> Mapping[str, Any]:
        error = self.envelope.get("error")
        return error if isinstance(error, Mapping) else {}

    @property
    def args(self) -> Mapping[str, Any]:
        return self.call.args if isinstance(self.call.args, Mapping) else {}


@dataclass(slots=True)
class Turn:
    """What the user said, what was called for it, and what was answered."""

    text: str
    done: list[Done] = field(default_factory=list)
    answer: str = ""
    settled: bool = False
    """What waited in it is decided: the host said so."""
    declined: bool = False
    """It was decided with a no, or nobody decided in time: nothing was done."""

    @property
    def waits(self) -> bool:
        """Whether its last call was held for a person's word."""
        return bool(self.done) and self.done[-1].error.get("type") == "CONFIRMATION_REQUIRED"


@dataclass(frozen=True, slots=True)
class Note:
    """What the host told about a call that had waited."""

    tool: str
    envelope: Mapping[str, Any]


class View:
    """One request, read."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        self.may_call = request.allow_calls
        self.tools = _tools(request.system, request.tools)
        self.written = _written(request.system) if request.session.get("mode") == "voice" else {}
        """Tools that are there in text only."""
        self.turns, self.note = _turns(request.messages)
        self.zone = _zone(request.session.get("time_zone"))
        self.now = _now(request.session.get("now"), self.zone)
        self.mode = str(request.session.get("mode", "text"))

    @property
    def turn(self) -> Turn:
        return self.turns[-1]

    @property
    def index(self) -> ToolIndex:
        return _index_of(self.tools)

    @property
    def whole_index(self) -> ToolIndex:
        """With the tools of text, told by their summaries alone, so that all are measured alike."""
        return _index_of({**{name: replace(tool, parameters={}) for name, tool in self.tools.items()}, **self.written})

    def validator(self, tool: SeenTool) -> CompiledSchema | None:
        return _validator(_frozen(tool.parameters))


def takes_null(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    branches = [b for b in schema.get("anyOf", ()) if isinstance(b, Mapping)]
    return (isinstance(kinds, Sequence) and "null" in kinds and not isinstance(kinds, str)) or any(
        branch.get("type") == "null" for branch in branches
    )


def _tools(system: str, declarations: Sequence[Mapping[str, Any]]) -> dict[str, SeenTool]:
    listed = {match["name"]: match for match in _LISTED.finditer(system)}
    tools: dict[str, SeenTool] = {}
    for declaration in declarations:
        function = declaration.get("function", declaration)
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            continue
        line = listed.get(name)
        description = str(function.get("description", ""))
        parameters = function.get("parameters")
        tools[name] = SeenTool(
            name=name,
            description=description,
            summary=line["summary"] if line else "",
            category=line["category"] if line else _guessed_category(name, description),
            parameters=parameters if isinstance(parameters, Mapping) else {},
        )
    return tools


def _written(system: str) -> dict[str, SeenTool]:
    return {
        match["name"]: SeenTool(
            name=match["name"], description="", summary=match["summary"], category=match["category"], parameters={}
        )
        for match in _WRITTEN.finditer(system)
    }


def _index_of(tools: Mapping[str, SeenTool]) -> ToolIndex:
    return _index(
        tuple((tool.name, tool.description, tool.summary, _frozen(tool.parameters)) for tool in tools.values())
    )


def _guessed_category(name: str, description: str) -> str:
    words = {*split_words(name), *split_words(description)[:1]}
    return "action" if words & WRITING or {word.rstrip("s") for word in words} & WRITING else "retrieval"


def _turns(messages: Sequence[Message]) -> tuple[list[Turn], Note | None]:
    turns = [Turn("")]
    note: Note | None = None
    waiting: list[Call] = []
    for message in messages:
        if isinstance(message, UserMessage):
            turns.append(Turn(message.text))
            note, waiting = None, []
        elif isinstance(message, AssistantMessage):
            waiting = list(message.calls)
            turns[-1].answer = message.text or turns[-1].answer
            if message.text and not message.calls:
                note = None
        elif isinstance(message, ToolMessage):
            call = next((call for call in waiting if call.call_id == message.call_id), None)
            turns[-1].done.append(Done(_read(call or Call(message.name, {}, message.call_id)), message.envelope))
        elif isinstance(message, HostMessage):
            told = _note(message.text)
            if told is not None:
                note = told
                _settle(turns, told)
    return turns, note


def _settle(turns: list[Turn], note: Note) -> None:
    """The turn whose call the note is about may be an earlier one: a spoken yes is a turn of its own."""
    held = (turn for turn in reversed(turns) if turn.waits and turn.done[-1].call.name == note.tool)
    turn = next(held, turns[-1])
    error = note.envelope.get("error")
    turn.settled = True
    turn.declined = isinstance(error, Mapping) and error.get("type") == "DECLINED"


def _read(call: Call) -> Call:
    if isinstance(call.args, str):
        try:
            return call._replace(args=json.loads(call.args or "{}"))
        except ValueError:
            return call._replace(args={})
    return call


def _note(text: str) -> Note | None:
    match = _NOTE.match(text)
    if match is None:
        return None
    try:
        envelope = orjson.loads(match["envelope"])
    except orjson.JSONDecodeError:
        return None
    return Note(match["tool"], envelope)


def _zone(name: object) -> ZoneInfo:
    try:
        return ZoneInfo(str(name or "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _now(text: object, zone: ZoneInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime(2000, 1, 1, tzinfo=UTC).astimezone(zone)  # nobody said what time it is
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(zone)


def _frozen(parameters: Mapping[str, Any]) -> bytes:
    return orjson.dumps(parameters, default=dict)


@lru_cache(maxsize=16)
def _index(tools: tuple[tuple[str, str, str, bytes], ...]) -> ToolIndex:
    return ToolIndex(
        {"toolId": name, "description": description, "summary": summary, "parameters": orjson.loads(parameters)}
        for name, description, summary, parameters in tools
    )


@lru_cache(maxsize=512)
def _validator(parameters: bytes) -> CompiledSchema | None:
    try:
        return compile_schema(orjson.loads(parameters))
    except SchemaError:
        return None  # the pipeline has the last word in any case

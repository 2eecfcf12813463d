"""The fields of `schema.json`, as one table: what each is called, what it may hold, what it is for.

`definition.py` checks with it, and the JSON Schema that editors complete from is generated from it
(`scripts/generate_docs.py`), so the two cannot drift. A *kind* knows how to find problems in a value and how to
describe itself as JSON Schema. Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Trouble = tuple[str, str]
"""A JSON pointer below the field, and what is wrong there: the end of a sentence that starts with the field's name."""

SEMVER = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"
TOOL_ID = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
ROLE = r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}$"
NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"


class FieldKind(Protocol):
    def troubles(self, value: object) -> Iterator[Trouble]: ...
    def json_schema(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is not blank, in a form where there is one."""

    pattern: str | None = None
    expected: str = "text"
    max_length: int | None = None

    def troubles(self, value: object) -> Iterator[Trouble]:
        if not isinstance(value, str) or not value.strip():
            yield "", f"must be {self.expected}"
        elif self.pattern is not None and not re.fullmatch(self.pattern, value, re.ASCII):
            yield "", f"must be {self.expected}; {shown(value)} is not"
        elif self.max_length is not None and len(value) > self.max_length:
            yield "", f"must have at most {self.max_length} characters; it has {len(value)}"

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if self.pattern is not None:
            schema["pattern"] = self.pattern
        if self.max_length is not None:
            schema["maxLength"] = self.max_length
        return schema


@dataclass(frozen=True, slots=True)
class ChoiceField:
    """One of a few values."""

    values: tuple[str, ...]

    def troubles(self, value: object) -> Iterator[Trouble]:
        if value not in self.values:
            yield "", f"must be {one_of(self.values)}; {shown(value)} is not"

    def json_schema(self) -> dict[str, Any]:
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def troubles(self, value: object) -> Iterator[Trouble]:
        if not isinstance(value, bool):
            yield "", f"must be true or false; {shown(value)} is not"

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class WholeField:
    """A whole number greater than zero."""

    def troubles(self, value: object) -> Iterator[Trouble]:
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            yield "", f"must be a whole number greater than 0; {shown(value)} is not"

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": 1}


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON Schema; whether it is a good one is for the lint rules."""

    def troubles(self, value: object) -> Iterator[Trouble]:
        if not isinstance(value, Mapping):
            yield "", f"must be a JSON Schema object; {shown(value)} is not"

    def json_schema(self) -> dict[str, Any]:
        return {"$ref": "https://json-schema.org/draft/2020-12/schema"}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one kind, with nothing in it twice."""

    item: FieldKind
    non_empty: bool = False

    def troubles(self, value: object) -> Iterator[Trouble]:
        if not isinstance(value, (list, tuple)):
            yield "", f"must be a list; {shown(value)} is not"
            return
        if self.non_empty and not value:
            yield "", "must not be empty"
        for index, item in enumerate(value):
            for place, trouble in self.item.troubles(item):
                yield f"/{index}{place}", trouble
        if len({str(item) for item in value}) < len(value):
            yield "", "must not name anything twice"

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "items": self.item.json_schema(), "uniqueItems": True}
        if self.non_empty:
            schema["minItems"] = 1
        return schema


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with members of one kind, under names of another."""

    value: FieldKind
    names: FieldKind | None = None

    def troubles(self, value: object) -> Iterator[Trouble]:
        if not isinstance(value, Mapping):
            yield "", f"must be an object; {shown(value)} is not"
            return
        for key, item in value.items():
            place = f"/{escape(str(key))}"
            if self.names is not None:
                for _, trouble in self.names.troubles(key):
                    yield place, f"has a name that {trouble}"
            for deeper, trouble in self.value.troubles(item):
                yield place + deeper, trouble

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "additionalProperties": self.value.json_schema()}
        if self.names is not None:
            schema["propertyNames"] = self.names.json_schema()
        return schema


@dataclass(frozen=True, slots=True)
class Limit:
    """What an argument is clamped to: a largest number, or the values that stay allowed."""

    def troubles(self, value: object) -> Iterator[Trouble]:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        listed = isinstance(value, (list, tuple)) and bool(value)
        if not number and not listed:
            expected = "a number (the largest allowed) or a non-empty list (the values allowed)"
            yield "", f"must be {expected}; {shown(value)} is neither"

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "number"}, {"type": "array", "minItems": 1}]}


@dataclass(frozen=True, slots=True)
class RecordField:
    """An object with members that are known by name."""

    members: tuple[Field, ...]

    def troubles(self, value: object) -> Iterator[Trouble]:
        if not isinstance(value, Mapping):
            yield "", f"must be an object; {shown(value)} is not"
            return
        known = {member.name: member for member in self.members}
        for key, item in value.items():
            member = known.get(key)
            if member is None:
                yield f"/{escape(str(key))}", f"is not known here; known: {', '.join(known)}"
                continue
            for place, trouble in member.kind.troubles(item):
                yield f"/{key}{place}", trouble
        for member in self.members:
            if member.required and member.name not in value:
                yield "", f'needs "{member.name}"'

    def json_schema(self) -> dict[str, Any]:
        return object_schema(self.members)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a definition: its name, what it may hold, and what it is for."""

    name: str
    kind: FieldKind
    doc: str
    required: bool = False


CATEGORIES = ("retrieval", "action", "utility")
SIDE_EFFECTS = ("none", "read_only", "writes")
MODES = ("text", "voice")

FIELDS: tuple[Field, ...] = (
    Field("$schema", Text(), "Where an editor finds the JSON Schema of this file."),
    Field(
        "toolId",
        Text(TOOL_ID, "letters, digits and underscores, not starting with a digit, at most 64"),
        "The name that models call. It is the folder's name with `-` written as `_`.",
        required=True,
    ),
    Field("version", Text(SEMVER, "a semantic version such as 1.0.0"), "Semantic version of the tool.", required=True),
    Field(
        "description", Text(max_length=1024), "What the tool does, in a sentence or two; models read it.", required=True
    ),
    Field(
        "category",
        ChoiceField(CATEGORIES),
        "Retrieval looks things up, action changes something, utility computes.",
        required=True,
    ),
    Field("sideEffects", ChoiceField(SIDE_EFFECTS), "What it does to the world outside.", required=True),
    Field("idempotent", Flag(), "Whether running it twice with the same arguments is the same as once.", required=True),
    Field("requiresConfirmation", Flag(), "Whether a person must approve every call.", required=True),
    Field(
        "allowedModes",
        ListOf(ChoiceField(MODES), non_empty=True),
        "The modes in which models may call it.",
        required=True,
    ),
    Field("latencyBudgetMs", WholeField(), "How long it should take at most; a soft limit.", required=True),
    Field("parameters", Schema(), "JSON Schema (draft 2020-12) of the arguments.", required=True),
    Field("timeoutMs", WholeField(), "After this time the call is ended; a hard limit."),
    Field("outputSchema", Schema(), "JSON Schema of `data` in a successful envelope."),
    Field("maxOutputBytes", WholeField(), "Larger results are cut, and the envelope says so."),
    Field("capabilities", ListOf(Text(NAME, "a name")), "Services that the handler needs from its host, such as `kb`."),
    Field("tags", ListOf(Text()), "Words that help to find the tool."),
    Field(
        "alwaysOffer",
        Flag(),
        "Whether it is declared to the model in every conversation, however many tools there are.",
    ),
    Field(
        "rateLimit",
        RecordField(
            (
                Field("calls", WholeField(), "How many calls.", required=True),
                Field("windowMs", WholeField(), "In how many milliseconds.", required=True),
                Field("scope", ChoiceField(("session", "user")), "Counted per session or per user.", required=True),
            )
        ),
        "At most `calls` calls in a window of time.",
    ),
    Field(
        "permissions",
        RecordField(
            (
                Field("requiresAuth", Flag(), "Whether the user must be signed in."),
                Field(
                    "roles",
                    ListOf(Text(ROLE, "the name of a role"), non_empty=True),
                    "The roles of which a user needs one; for others the tool does not exist.",
                ),
            )
        ),
        "Who may call it.",
    ),
    Field(
        "availability",
        RecordField((Field("condition", Text(), "CEL over `mode`, `user` and `session`.", required=True),)),
        "When it can be called.",
    ),
    Field(
        "confirmation",
        RecordField(
            (
                Field("when", Text(), "CEL over `mode`, `user`, `session` and `args`: true asks a person."),
                Field("channel", ChoiceField(("any", "screen")), "Where a person may approve."),
            )
        ),
        "When and where a person is asked.",
    ),
    Field(
        "clamp",
        MapOf(MapOf(Limit()), names=ChoiceField(MODES)),
        "Per mode and argument: the largest number, or the values that stay allowed.",
    ),
    Field("dedupeFields", ListOf(Text(), non_empty=True), "The arguments that make two calls the same call."),
    Field(
        "preview", Text(max_length=2000), "What a person is shown before approving; `{argument}` places are filled in."
    ),
    Field("onInterrupt", ChoiceField(("cancel", "finish")), "What happens to a running call when the user interrupts."),
    Field("strict", Flag(), "Ask for a provider's strict mode."),
    Field("waivers", MapOf(Text(expected="a reason")), "Warnings that are meant to be so: rule name → reason."),
)


def object_schema(members: Sequence[Field]) -> dict[str, Any]:
    """The JSON Schema of an object with these fields and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [member.name for member in members if member.required],
        "properties": {member.name: {"description": member.doc, **member.kind.json_schema()} for member in members},
    }


def shown(value: object) -> str:
    """A value as it may stand in a sentence: short, quoted, on one line."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def one_of(values: Sequence[str]) -> str:
    quoted = [f'"{value}"' for value in values]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]


def escape(token: str) -> str:
    """A name as a part of a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")

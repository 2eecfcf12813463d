"""What a local model may write, and how that is read: `{"tool": NAME, "args": …}` or `{"say": TEXT}`, held to by a JSON schema.

Pure. The schema is looser than the tool's own where the engine's grammar cannot express it; the pipeline checks arguments anyway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handrail.contract.frozen import thaw

_FORMATS = frozenset({"date", "time", "date-time", "uuid"})
_MAX_ITEMS = 20
"""A grammar repeats an item as often as there may be items, so a larger bound is left to the pipeline."""
_MAX_DEPTH = 12
_SAYS = re.compile(r'\s*\{\s*"say"\s*:\s*"')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


def answer_schema(tools: Sequence[Mapping[str, Any]], *, only_required: bool = False) -> dict[str, Any]:
    """The schema of an answer, with one branch for each tool; without tools the model can only say something."""
    branches = [_branch(tool["function"], only_required) for tool in tools]
    say = {
        "type": "object",
        "properties": {"say": {"type": "string"}},
        "required": ["say"],
        "additionalProperties": False,
    }
    return {"anyOf": [*branches, say]} if branches else say


def offered_parameters(function: Mapping[str, Any], *, only_required: bool) -> dict[str, Any]:
    """The parameters that a model is shown: all, or those that are required, if any are."""
    parameters: dict[str, Any] = thaw(function.get("parameters") or {"type": "object"})
    required = parameters.get("required")
    if only_required and required:
        properties = parameters.get("properties") or {}
        parameters["properties"] = {name: one for name, one in properties.items() if name in required}
    return parameters


def _branch(function: Mapping[str, Any], only_required: bool) -> dict[str, Any]:
    parameters = offered_parameters(function, only_required=only_required)
    args = reduced(parameters, parameters)
    return {
        "type": "object",
        "properties": {"tool": {"const": function["name"]}, "args": args},
        "required": ["tool", "args"],
        "additionalProperties": False,
    }


def reduced(schema: Any, root: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The part of a schema that the engine can turn into a grammar."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    if "$ref" in schema:
        return reduced(_referred(str(schema["$ref"]), root), root, depth + 1)
    if "const" in schema:
        return {"const": schema["const"]}
    if "enum" in schema:
        return {"enum": list(schema["enum"])}
    # A grammar has no choice that excludes others. What it lets through too much, the pipeline refuses.
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list) and schema[word]:
            return {"anyOf": [reduced(one, root, depth + 1) for one in schema[word]]}
    kind = schema.get("type")
    if isinstance(kind, list):
        return {"anyOf": [reduced({**schema, "type": one}, root, depth + 1) for one in kind]}
    if kind == "object" or "properties" in schema:
        return _object(schema, root, depth)
    if kind == "array":
        return _array(schema, root, depth)
    made: dict[str, Any] = {} if kind is None else {"type": kind}
    if kind == "string" and schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    if kind == "integer":
        made |= {word: schema[word] for word in ("minimum", "maximum") if isinstance(schema.get(word), int)}
    return made


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    if not properties:
        # An object without names is one that takes any, or none at all.
        open_ended = schema.get("additionalProperties") is not False
        return {"type": "object"} if open_ended else {"type": "object", "properties": {}, "additionalProperties": False}
    required = [name for name in schema.get("required") or () if name in properties]
    # The grammar keeps to the order: what is needed comes first, so that a small model does not wander off before it.
    names = [*required, *(name for name in properties if name not in required)]
    made = {name: reduced(properties[name], root, depth + 1) for name in names}
    return {"type": "object", "properties": made, "required": required, "additionalProperties": False}


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array", "items": reduced(schema.get("items", {}), root, depth + 1)}
    for word in ("minItems", "maxItems"):
        bound = schema.get(word)
        if isinstance(bound, int) and bound <= _MAX_ITEMS:
            made[word] = bound
    return made


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


@dataclass(slots=True)
class AnswerReader:
    """Reads one answer as it comes. What is said is given out piece by piece; a call is known at the end."""

    text: str = ""
    said: list[str] = field(default_factory=list)
    _place: int | None = None
    """Where the text of `say` continues; None before it has begun."""

    def feed(self, piece: str) -> str:
        """What the piece adds to what is said."""
        self.text += piece
        if self._place is None:
            begun = _SAYS.match(self.text)
            if begun is None:
                return ""
            self._place = begun.end()
        found: list[str] = []
        while (character := self._next()) is not None:
            found.append(character)
        said = "".join(found)
        self.said.append(said)
        return said

    def _next(self) -> str | None:
        """The next character of the JSON string; None at its end, and where it is not whole yet."""
        assert self._place is not None
        text, place = self.text, self._place
        if place >= len(text) or text[place] == '"':
            return None
        if text[place] != "\\":
            self._place = place + 1
            return text[place]
        if place + 1 >= len(text):
            return None
        if text[place + 1] != "u":
            self._place = place + 2
            return _ESCAPES.get(text[place + 1], "")
        unit = _unit(text, place)
        if unit is None:
            return None
        if 0xD800 <= unit < 0xDC00:
            return self._pair(unit, place)
        self._place = place + 6
        return "\ufffd" if 0xDC00 <= unit < 0xE000 else chr(unit)

    def _pair(self, high: int, place: int) -> str | None:
        """A character of two escapes; half of one is shown as a sign that something was lost."""
        if len(self.text) < place + 12 and "\\u".startswith(self.text[place + 6 : place + 8]):
            return None
        low = _unit(self.text, place + 6)
        if low is None or not 0xDC00 <= low < 0xE000:
            self._place = place + 6
            return "\ufffd"
        self._place = place + 12
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    def call(self) -> tuple[str, Any] | None:
        """The tool and the arguments that were asked for; None if nothing was, or the answer was cut before its end."""
        if self._place is not None:
            return None
        try:
            found = json.loads(self.text)
        except (json.JSONDecodeError, RecursionError):
            return None
        named = found.get("tool") if isinstance(found, dict) else None
        return (named, found.get("args") or {}) if isinstance(named, str) else None


def _unit(text: str, place: int) -> int | None:
    """The number of an escape such as \\u00e9; None if there is none, or not all of it."""
    digits = text[place + 2 : place + 6]
    if text[place : place + 2] != "\\u" or len(digits) < 4:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return 0xFFFD

"""What a server has for the person behind a call: questions, pictures, sounds. None of it reaches a model.

A question goes to the person through the client that made the call, in words that say who asks; where there is no such way it
is declined. A server's wish to ask a model is refused everywhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import orjson

from handrail.contract.errors import ToolError, UsageError
from handrail.contract.hidden_characters import escaped

_MAX_MESSAGE, _MAX_WORDS, _MAX_NAME = 2_000, 200, 64
_MAX_FIELDS, _MAX_FORM_BYTES = 20, 16_384
_BOUNDS = ("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "uniqueItems")
_CHOICES = ("enum", "const", "oneOf", "anyOf", "items")
_FACTS = frozenset(("type", "format", "default", "pattern", *_BOUNDS, *_CHOICES))
_QUESTION = "question"


async def ask_person(server: str, client: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The person's answer to a server's question; declined where nobody can be asked, or an address is to be opened."""
    if client is None or "elicitation" not in client.can or not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    form = _form(server, params.requested_schema)
    if form is None:
        return types.ElicitResult(action="decline")
    asked = {"mode": "form", "message": _words(server, params.message, _MAX_MESSAGE), "requestedSchema": form}
    try:
        answers = await client.ask(**{_QUESTION: {"method": "elicitation/create", "params": asked}})
        return types.ElicitResult.model_validate(answers[_QUESTION])
    except (ToolError, UsageError, KeyError, ValueError):
        return types.ElicitResult(action="decline")


def _words(server: str, text: str, limit: int) -> str:
    return f'The MCP server "{server}" asks (give it no password): {_shown(text, limit, chr(10))}'


def _form(server: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of a form in which no word hides or speaks for anybody else; None if it is no form that a person can see.

    Its words are escaped and cut. The names of fields and the values of choices go back to the server as they are, so a form
    is refused where they could not be shown as they are.
    """
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or len(properties) > _MAX_FIELDS:
        return None
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        return None
    fields: dict[str, Any] = {}
    for name, field in properties.items():
        made = _field(server, field) if _is_plain(name, _MAX_NAME) else None
        if made is None:
            return None
        fields[name] = made
    form = {"type": "object", "properties": fields, **({"required": required} if required else {})}
    try:
        return form if len(orjson.dumps(form)) <= _MAX_FORM_BYTES else None
    except TypeError:  # a number of more than 64 bits
        return None


def _field(server: str, field: Any) -> dict[str, Any] | None:
    if not isinstance(field, Mapping):
        return None
    made: dict[str, Any] = {}
    for key, value in field.items():
        if key in ("title", "description") and isinstance(value, str):
            # Clients show a title by itself, as if it were theirs.
            made[key] = f"{server}: {_shown(value, _MAX_WORDS)}"
        elif key in ("enumNames", "x-enumNames") and isinstance(value, list):
            made[key] = [_shown(str(one), _MAX_WORDS) for one in value]
        elif key in _FACTS:
            bounded = _bounded(value)
            if bounded is None and value is not None:
                return None
            made[key] = bounded
        # What no form of the protocol has is left out: a client may show it all the same.
    return made


def _bounded(value: Any, depth: int = 4) -> Any:
    """Choices and facts of a field; None if one of them cannot be shown as it is."""
    if isinstance(value, str):
        return value if _is_plain(value, _MAX_WORDS) else None
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, list) and depth:
        made = [_bounded(one, depth - 1) for one in value]
        return None if None in made else made
    if isinstance(value, Mapping) and depth:
        inner: dict[str, Any] = {}
        for key, one in value.items():
            if key in ("title", "description") and isinstance(one, str):
                inner[key] = _shown(one, _MAX_WORDS)
            elif key in _FACTS:
                if (inner_value := _bounded(one, depth - 1)) is None:
                    return None
                inner[key] = inner_value
        return inner
    return None


def _shown(text: str, limit: int, keep: str = "") -> str:
    shown = escaped(text, keep)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _is_plain(text: Any, limit: int) -> bool:
    return isinstance(text, str) and len(text) <= limit and escaped(text) == text


def show_blocks(content: Any, client: Any) -> None:
    """Pictures and sounds of a result, for a client that shows them; the envelope says only that they were there."""
    if client is None or not isinstance(content, list):
        return
    for block in content:
        if not isinstance(block, dict) or block.get("type") not in ("image", "audio"):
            continue
        data, kind = block.get("data"), block.get("mimeType")
        if not isinstance(data, str) or not isinstance(kind, str) or not kind.startswith(f"{block['type']}/"):
            continue
        try:
            show = client.image if block["type"] == "image" else client.audio
            show(base64.b64decode(data, validate=True), kind[:100])
        except (binascii.Error, UsageError):
            return

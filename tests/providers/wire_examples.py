"""Examples of what goes over the wire."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "data" / "wire-examples"
NOTED_IN = "HANDRAIL_WIRE_EXAMPLES_READ"
"""Names a file, if it is set: each example that is read is noted there, whichever process reads it."""


def example(name: str) -> Any:
    """The content of one file."""
    return _content(EXAMPLES / name)


def cases(name: str) -> list[Any]:
    """The rows of one file, to parametrize with."""
    return [pytest.param(row, id=row.get("case")) for row in _content(EXAMPLES / name)]


def _content(path: Path) -> Any:
    if NOTED_IN in os.environ:
        with Path(os.environ[NOTED_IN]).open("a", encoding="utf-8") as notes:
            notes.write(f"{path.name}\n")
    return json.loads(path.read_text("utf-8"))


LAMP = {
    "type": "object",
    "properties": {
        "room": {"type": "string", "description": "Room name"},
        "level": {"type": "integer", "minimum": 0, "maximum": 100, "description": "Brightness in percent"},
    },
    "required": ["room", "level"],
    "additionalProperties": False,
}
ORDER = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "description": "Order number, e.g. A-17"},
        "fields": {
            "type": ["array", "null"],
            "items": {"type": "string", "enum": ["status", "eta", "items"]},
            "description": "Null means all fields",
        },
    },
    "required": ["order_id", "fields"],
    "additionalProperties": False,
}

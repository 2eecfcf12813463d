"""What a framework's tool gives back, as an envelope's data: JSON through and through.

The result always stands below `data`. A tool that knows nothing of envelopes must not be taken for one that writes them,
whatever its result looks like: otherwise a foreign result could ask for intents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

MAX_DEPTH = 64


def success(value: object) -> dict[str, Any]:
    return {"ok": True, "data": json_form(value)}


def json_form(value: Any, depth: int = 0) -> Any:
    """The value with models, dataclasses, dates and the like written as JSON has them.

    What has no such form is left as it is: the pipeline refuses it, and its log says why.
    """
    if depth > MAX_DEPTH or (isinstance(value, (str, int, float)) and not isinstance(value, Enum)) or value is None:
        return value
    if isinstance(value, Enum):
        return json_form(value.value, depth + 1)
    if isinstance(value, Mapping):
        return {str(json_form(key)): json_form(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_form(item, depth + 1) for item in value]
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return json_form(dump(mode="json"), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_form(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)}
    return value

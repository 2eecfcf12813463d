"""Intents: state changes that a handler asks for. Only the runtime applies them, to its session's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from handrail.contract.frozen import FrozenDict, freeze, thaw


class IntentType(StrEnum):
    """The intents that the state controller knows."""

    END_VOICE_SESSION = "END_VOICE_SESSION"
    SUPPRESS_AUDIO = "SUPPRESS_AUDIO"
    SUPPRESS_TRANSCRIPT = "SUPPRESS_TRANSCRIPT"
    SET_PENDING_MESSAGE = "SET_PENDING_MESSAGE"
    BLOCK_USER = "BLOCK_USER"


@dataclass(frozen=True, slots=True)
class Intent:
    """One requested change. `type` may be a name that nobody knows: such an intent changes nothing and is audited."""

    type: str
    fields: Mapping[str, Any] = FrozenDict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Intent:
        kind = data.get("type")
        if not isinstance(kind, str) or not kind:
            raise ValueError('An intent needs a "type", such as "SUPPRESS_AUDIO".')
        return cls(kind, freeze({key: value for key, value in data.items() if key != "type"}))

    def to_dict(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"type": str(self.type)}
        return wire | {name: thaw(value) for name, value in self.fields.items() if name != "type"}

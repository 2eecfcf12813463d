"""The envelope that every call ends in. `ToolResponse.to_dict()` is the wire form, version 1.0.0.

The published JSON Schema of that form is `handrail/schemas/envelope.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from handrail.contract.errors import ErrorType, ToolError
from handrail.contract.fields import shown
from handrail.contract.intents import Intent

RESPONSE_SCHEMA_VERSION = "1.0.0"
_ENVELOPE_KEYS = frozenset({"ok", "data", "error", "intents", "meta"})


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < inf


def _is_details(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(item, Mapping) and isinstance(item.get("pointer", ""), str) for item in value
    )


def _is(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


_ERROR_FIELDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "message": ("text", _is(str)),
    "retryable": ("true or false", _is(bool)),
    "partialSideEffects": ("true or false", _is(bool)),
    "details": ('a list of objects, each with a "pointer"', _is_details),
    "retryAfter": ("a number of seconds", _is_seconds),
    "idempotencyRequired": ("true or false", _is(bool)),
    "suggestion": ("text", _is(str)),
    "confirmation_request": ("an object", _is(Mapping)),
}
"""What an error may hold besides its type, in words and as a check."""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Why a call failed, in words that a model can act on."""

    type: ErrorType
    message: str
    retryable: bool = False
    partial_side_effects: bool = False
    details: Sequence[Mapping[str, Any]] = ()
    retry_after: float | None = None
    idempotency_required: bool | None = None
    suggestion: str | None = None
    confirmation_request: Mapping[str, Any] | None = None

    @classmethod
    def from_error(cls, error: ToolError) -> ToolFailure:
        return cls(
            error.type,
            error.message,
            error.retryable,
            error.partial_side_effects,
            error.details,
            error.retry_after,
            suggestion=error.suggestion,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolFailure:
        """The failure in `data`; `ValueError` with a sentence if it is not one, so that what is taken can be sent."""
        unknown = set(data) - _ERROR_FIELDS.keys() - {"type"}
        if unknown:
            raise ValueError(f"An error has no field {sorted(map(str, unknown))[0]!r}.")
        if not isinstance(data.get("message"), str):
            raise ValueError('An error needs a "message" that is text.')
        for name, (expected, fits) in _ERROR_FIELDS.items():
            if data.get(name) is not None and not fits(data[name]):
                raise ValueError(f'"{name}" of an error must be {expected}; {shown(data[name])} is not.')
        try:
            kind = ErrorType(data.get("type", ""))
        except ValueError:
            raise ValueError(f"{data.get('type')!r} is not an error type.") from None
        return cls(
            kind,
            data["message"],
            data.get("retryable") or False,
            data.get("partialSideEffects") or False,
            tuple(data.get("details") or ()),
            data.get("retryAfter"),
            data.get("idempotencyRequired"),
            data.get("suggestion"),
            data.get("confirmation_request"),
        )

    def to_dict(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "type": self.type.value,
            "message": self.message,
            "retryable": self.retryable,
            "partialSideEffects": self.partial_side_effects,
        }
        if self.details:
            # Each detail has a place; one that a handler wrote without any is about the arguments as a whole.
            wire["details"] = [{"pointer": "", **detail} for detail in self.details]
        if self.retry_after is not None:
            wire["retryAfter"] = self.retry_after
        if self.idempotency_required is not None:
            wire["idempotencyRequired"] = self.idempotency_required
        if self.suggestion is not None:
            wire["suggestion"] = self.suggestion
        if self.confirmation_request is not None:
            wire["confirmation_request"] = dict(self.confirmation_request)
        return wire


EnvelopeParts = tuple[bool, Any, ToolFailure | None, tuple[Intent, ...], Mapping[str, Any]]
"""What an envelope is made of, in its order: `ok`, `data`, `error`, `intents`, `meta`."""


class _Parts(NamedTuple):
    ok: bool
    data: Any
    error: ToolFailure | None
    intents: tuple[Intent, ...]
    meta: Mapping[str, Any]


class ToolResponse(_Parts):
    """Success with `data`, or failure with `error`; the intents that the handler asks for; facts about the call.

    A tuple underneath, because one is made for every call and nothing that cannot be changed is made faster.
    """

    __slots__ = ()

    def __new__(
        cls,
        ok: bool,
        data: Any = None,
        error: ToolFailure | None = None,
        intents: tuple[Intent, ...] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResponse:
        if ok is not (error is None):
            raise ValueError("A success has no error, and a failure has one.")
        return tuple.__new__(cls, (ok, data, error, intents, {} if meta is None else meta))

    @classmethod
    def success(
        cls, data: object = None, *, intents: Iterable[Intent] = (), meta: Mapping[str, Any] | None = None
    ) -> ToolResponse:
        return cls(True, data, None, tuple(intents), dict(meta or {}))

    @classmethod
    def failure(
        cls,
        type: ErrorType | str,
        message: str,
        *,
        meta: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> ToolResponse:
        """A failure envelope; `facts` are the other fields of `ToolFailure`, such as `retryable` or `suggestion`."""
        return cls(False, None, ToolFailure(ErrorType(type), message, **facts), (), dict(meta or {}))

    @classmethod
    def from_dict(cls, data: object) -> ToolResponse:
        """The envelope in `data`; `ValueError` with a sentence if it is not one."""
        if not isinstance(data, Mapping) or not isinstance(data.get("ok"), bool):
            raise ValueError('An envelope is an object with "ok" true or false.')
        unknown = set(data) - _ENVELOPE_KEYS
        if unknown:
            raise ValueError(f'An envelope has no field {sorted(map(str, unknown))[0]!r}; put it into "data".')
        intents = data.get("intents") or ()
        if not isinstance(intents, (list, tuple)) or not all(isinstance(one, (Mapping, Intent)) for one in intents):
            raise ValueError('"intents" is a list of objects, each with a "type".')
        meta = data.get("meta") or {}
        if not isinstance(meta, Mapping):
            raise ValueError('"meta" is an object.')
        asked = tuple(intent if isinstance(intent, Intent) else Intent.from_dict(intent) for intent in intents)
        if data["ok"]:
            if data.get("error") is not None:
                raise ValueError('A success has no "error".')
            return cls(True, data.get("data"), None, asked, dict(meta))
        error = data.get("error")
        if not isinstance(error, Mapping):
            raise ValueError('A failure needs an "error" with "type" and "message".')
        return cls(False, None, ToolFailure.from_dict(error), asked, dict(meta))

    def with_meta(self, **facts: object) -> ToolResponse:
        """The same envelope with more facts in `meta`."""
        return self._replace(meta={**self.meta, **facts})

    def to_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"ok": self.ok}
        if self.error is None:
            body["data"] = self.data
        else:
            body["error"] = self.error.to_dict()
        body["intents"] = [intent.to_dict() for intent in self.intents]
        body["meta"] = dict(self.meta)
        return body

"""A parameter schema together with the conversion that a decorated tool asks for: one validation, one list of violations.

So what a dataclass or a Pydantic model refuses is refused where the schema is checked, before a person is asked or anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handrail.authoring.converters import ConversionError
from handrail.schema.pointer import pointer
from handrail.schema.validator import CompiledSchema, Validated, Violation


class ConvertibleSchema:
    """A compiled schema whose valid instances are also known to convert. `discreet` keeps the author's words to itself."""

    __slots__ = ("_check", "_discreet", "_inner")

    def __init__(self, inner: CompiledSchema, check: Callable[[Any], Any], *, discreet: bool) -> None:
        self._inner = inner
        self._check = check
        self._discreet = discreet

    @property
    def defaults_safe(self) -> bool:
        return self._inner.defaults_safe

    @property
    def defaults_plain(self) -> bool:
        return bool(getattr(self._inner, "defaults_plain", False))

    def is_valid(self, instance: Any) -> bool:
        return self._inner.is_valid(instance) and not self._refusals(self._inner.with_defaults(instance)[0])

    def violations(self, instance: Any) -> list[Violation]:
        return self._inner.violations(instance) or self._refusals(self._inner.with_defaults(instance)[0])

    def with_defaults(self, instance: Any) -> tuple[Any, tuple[str, ...]]:
        return self._inner.with_defaults(instance)

    def validate(self, instance: Any) -> Validated:
        value, defaulted, violations = self._inner.validate(instance)
        refusals = violations or self._refusals(value)
        return (instance, (), refusals) if refusals else (value, defaulted, [])

    def _refusals(self, value: Any) -> list[Violation]:
        try:
            self._check(value)
        except ConversionError as error:
            return [Violation(pointer(path), self._sentence(path, message), "value") for path, message in error.faults]
        except Exception:  # noqa: BLE001  # a fault of the author's code, which the handler meets again and reports
            return []
        return []

    def _sentence(self, path: tuple[str | int, ...], message: str) -> str:
        subject = f'"{".".join(map(str, path))}"' if path else "The arguments"
        return f"{subject} cannot be accepted." if self._discreet else f"{subject} cannot be accepted: {message}"

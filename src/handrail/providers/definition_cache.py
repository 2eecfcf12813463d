"""Work that several adapters of one vendor share: done for the first that asks, and remembered for those after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from handrail.contract.definition import ToolDefinition

Made = TypeVar("Made")


class LastDefinitionCache(Generic[Made]):
    """The result for the definition that was asked about last. A build asks for all formats of a tool in a row."""

    def __init__(self, make: Callable[[ToolDefinition], Made]) -> None:
        self._make = make
        self._last: tuple[ToolDefinition, Made] | None = None

    def __call__(self, definition: ToolDefinition) -> Made:
        last = self._last
        if last is None or last[0] is not definition:
            self._last = last = (definition, self._make(definition))
        return last[1]

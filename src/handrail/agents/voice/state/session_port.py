"""What a spoken conversation has to know of its session: a few facts, read when they are needed."""

from __future__ import annotations

from typing import Any, Protocol

from handrail.contract.call import Call


class SessionPort(Protocol):
    """The session, without its store and its pipeline."""

    @property
    def is_active(self) -> bool: ...

    @property
    def is_blocked(self) -> bool:
        """The user is blocked for a while."""
        ...

    @property
    def turn_number(self) -> int:
        """Of the turn that was stored last; 0 before the first."""
        ...

    @property
    def connection(self) -> int:
        """The number of the session's connection."""
        ...

    def get(self, key: str) -> Any:
        """A value of the session's state."""
        ...

    def set(self, key: str, value: Any) -> None: ...

    def writes(self, call: Call) -> bool:
        """Whether the tool that is called writes."""
        ...

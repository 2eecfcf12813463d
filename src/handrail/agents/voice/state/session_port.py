"""What a spoken conversation has to know of its session: a few facts, read when they are needed."""

from __future__ import annotations

from typing import Any, Protocol


class NumberedTurn(Protocol):
    """A turn that was stored."""

    @property
    def number(self) -> int: ...


class SessionState(Protocol):
    """The values that the tools and the host of a session share."""

    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...


class SessionPort(Protocol):
    """The session, without its store and its pipeline."""

    @property
    def is_active(self) -> bool: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def turn(self) -> NumberedTurn | None:
        """The one that was stored last; None before the first."""
        ...

    @property
    def connection(self) -> int:
        """The number of the session's connection."""
        ...

    def blocked_for(self) -> float:
        """For how many more seconds the user is blocked."""
        ...

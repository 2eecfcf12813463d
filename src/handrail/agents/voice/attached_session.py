"""A session of the runtime and the connection by which the model is attached to it."""

from __future__ import annotations

from typing import Any

from handrail.agents.unacknowledged_writes import writes
from handrail.contract.call import Call
from handrail.runtime.session import Session


class AttachedSession:
    """A session of the runtime as a `SessionPort`. Each connection of the model attaches to it anew."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.connection = session.connection
        """The connection that the model's stream belongs to; calls of an older one are refused."""

    @property
    def is_active(self) -> bool:
        return self.session.is_active

    @property
    def is_blocked(self) -> bool:
        return self.session.blocked_for() > 0

    @property
    def turn_number(self) -> int:
        turn = self.session.turn
        return turn.number if turn is not None else 0

    def get(self, key: str) -> Any:
        return self.session.state.get(key)

    def set(self, key: str, value: Any) -> None:
        self.session.state.set(key, value)

    def writes(self, call: Call) -> bool:
        return writes(self.session, call)

"""What a handler is given beside its arguments: who calls, in which mode, until when, and the services of its host."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handrail.contract.definition import Mode
from handrail.runtime.events import Events
from handrail.runtime.state import StateController

CAPABILITIES = ("messaging", "voice", "audio", "audit", "secrets", "kb", "calendar", "images")


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What a handler may know about its own tool."""

    id: str
    version: str
    category: str
    idempotent: bool


class SessionView:
    """A session as handlers see it: read-only."""

    __slots__ = ("_state", "is_active", "tools_version")

    def __init__(self, is_active: bool, tools_version: str, state: StateController) -> None:
        self.is_active = is_active
        self.tools_version = tools_version
        self._state = state

    @property
    def state(self) -> Mapping[str, Any]:
        return self._state.snapshot()


_LOG = logging.getLogger("handrail.tool")


class Context:
    """The context of one call. Capabilities that the host does not have are None, and flagged in `capabilities`."""

    __slots__ = (
        "_events",
        "_services",
        "args",
        "client_id",
        "deadline",
        "idempotency_key",
        "log",
        "mode",
        "session",
        "tenant",
        "tool",
        "user",
    )

    def __init__(
        self,
        args: Mapping[str, Any],
        tool: ToolFacts,
        session: SessionView,
        client_id: str,
        user: str | None,
        tenant: str,
        mode: Mode,
        idempotency_key: str,
        deadline: float,
        events: Events,
        services: Mapping[str, Any],
    ) -> None:
        self.args = args
        self.tool = tool
        self.session = session
        self.client_id = client_id
        self.user = user
        self.tenant = tenant
        self.mode = mode
        self.idempotency_key = idempotency_key
        self.deadline = deadline
        self.log = _LOG
        self._events = events
        self._services = services

    def progress(self, text: str) -> None:
        """Tell the user how the work goes on."""
        self._events.emit("progress", {"toolId": self.tool.id, "text": str(text)[:500]})

    @property
    def capabilities(self) -> Mapping[str, bool]:
        return {name: name in self._services for name in (*CAPABILITIES, *self._services)}

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are no field: capabilities. A misspelt one must not pass for an absent one.
        if name in CAPABILITIES or name in self._services:
            return self._services.get(name)
        raise AttributeError(f'A context has no "{name}"; capabilities are {", ".join(CAPABILITIES)}.')

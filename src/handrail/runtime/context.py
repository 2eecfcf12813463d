"""What a handler is given beside its arguments: who calls, in which mode, until when, and the services of its host."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from handrail.contract.definition import Mode
from handrail.contract.events import Progress
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.capabilities import PerCall, struck_out, tell

if TYPE_CHECKING:
    from handrail.runtime.session import Session

CAPABILITIES = ("messaging", "voice", "audio", "audit", "secrets")


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What a handler may know about its own tool."""

    id: str
    version: str
    category: str
    idempotent: bool


class SessionView:
    """A session as handlers see it: read-only."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def is_active(self) -> bool:
        return self._session.state.is_active

    @property
    def tools_version(self) -> str:
        return self._session.snapshot.version

    @property
    def state(self) -> Mapping[str, Any]:
        return self._session.state.snapshot()


_LOG = logging.getLogger("handrail.tool")


class _TokenFreeLog(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, attempt: Attempt) -> None:
        super().__init__(_LOG, {})
        self._attempt = attempt

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        handed_out = self._attempt.handed_out
        if not handed_out:
            super().log(level, msg, *args, **kwargs)
        elif self.isEnabledFor(level):
            error = kwargs.pop("exc_info", None)
            text = (
                str(msg) % (args[0] if len(args) == 1 and isinstance(args[0], Mapping) else args) if args else str(msg)
            )
            error = sys.exc_info()[1] if error is True else error
            if isinstance(error, BaseException):
                text += "\n" + "".join(traceback.format_exception(error)).rstrip()
            self.logger.log(level, "%s", struck_out(text, handed_out), **kwargs)


_MAX_PROGRESS_CHARACTERS = 500
_PROGRESS_AT_ONCE, _PROGRESS_PER_SECOND = 20.0, 10.0
"""How many notes on its progress a call may give at once, and how many more each second."""


@dataclass(slots=True, eq=False, repr=False)
class Context:
    """The context of one call. Capabilities that the host does not have are None, and flagged in `capabilities`.

    Most handlers look at little of it, so everything is worked out when it is asked for.
    """

    __handrail_context__ = True
    """By this a decorated tool's parameter is known as the context."""

    _attempt: Attempt
    _services: Mapping[str, Any]
    idempotency_key: str
    since_deadline: float = 0.0
    """In `reconcile`: the seconds since the call that it asks about had to be over; negative before that."""
    _progress: tuple[float, float] | None = None
    _ports: dict[str, Any] | None = None

    @property
    def args(self) -> Mapping[str, Any]:
        return self._attempt.args

    @property
    def tool(self) -> ToolFacts:
        return self._attempt.plan.facts

    @property
    def session(self) -> SessionView:
        return SessionView(self._attempt.session)

    @property
    def client_id(self) -> str:
        return self._attempt.session.id

    @property
    def user(self) -> str | None:
        return self._attempt.session.user

    @property
    def tenant(self) -> str:
        return self._attempt.session.tenant

    @property
    def mode(self) -> Mode:
        return self._attempt.session.state.mode

    @property
    def deadline(self) -> float:
        """When the call is ended, on the clock of `time.perf_counter`."""
        return self._attempt.started + self._attempt.plan.timeout

    @property
    def clamped(self) -> tuple[str, ...]:
        """The arguments that the policy made smaller for this mode."""
        return self._attempt.clamped

    @property
    def earlier_calls(self) -> int:
        """How many calls of this tool came before this one in the turn."""
        tool = self.tool.id
        return sum(count for (name, _), count in self._attempt.turn.identical.items() if name == tool) - 1

    @property
    def now(self) -> float:
        """The time in seconds since 1970, on the runtime's clock."""
        return self._attempt.session.core.clock.time()

    @property
    def trace_headers(self) -> Mapping[str, str]:
        """Headers (`traceparent`) for a request to a service, so that it belongs to this call's trace; empty without tracing."""
        tracing = self._attempt.session.core.tracing
        return tracing.headers() if tracing is not None else {}

    @property
    def log(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """The log of tools; what it is given by a tool that reads secrets is written without the tokens of its user."""
        has_tokens = "secrets" in self._attempt.plan.definition.capabilities
        return _TokenFreeLog(self._attempt) if has_tokens else _LOG

    def progress(self, text: str) -> None:
        """Tell the user how the work continues: in some words, now and then. What comes too thick and fast is left out."""
        now = perf_counter()
        left, since = self._progress or (_PROGRESS_AT_ONCE, now)
        left = min(_PROGRESS_AT_ONCE, left + (now - since) * _PROGRESS_PER_SECOND)
        self._progress = (left - 1 if left >= 1 else left), now
        if left >= 1:
            said = struck_out(str(text), self._attempt.handed_out)[:_MAX_PROGRESS_CHARACTERS]
            call_id = self._attempt.call.call_id
            session = self._attempt.session
            tell(session, Progress(tool_id=self.tool.id, call_id=call_id, text=said))
            bridge = session.clients.get(call_id) if session.clients is not None else None
            if bridge is not None:
                bridge.progress_text(said)

    @property
    def capabilities(self) -> Mapping[str, bool]:
        return {name: name in self._services for name in (*CAPABILITIES, *self._services)}

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are no field: capabilities. A misspelt one must not pass for an absent one.
        if name in CAPABILITIES or name in self._services:
            service = self._services.get(name)
            return self._port(name, service) if isinstance(service, PerCall) else service
        raise AttributeError(
            f'A context has no "{name}"; capabilities are {", ".join(sorted({*CAPABILITIES, *self._services}))}.'
        )

    def _port(self, name: str, service: PerCall) -> Any:
        """The port of this call, the same one each time: it counts what the call has sent."""
        if self._ports is None:
            self._ports = {}
        if name not in self._ports:
            self._ports[name] = service.bind(self._attempt)
        return self._ports[name]

"""Counts what happens: per tool calls, errors, durations and response sizes; per session calls, turns and context.
Recording only stores numbers; averages and percentiles, over the last 1,000 calls of a tool, are worked out when
somebody reads.
"""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from handrail.contract.ports import CallParts, CallRecord
from handrail.contract.store import StoreLoad
from handrail.observe.exposition import Exposition

_LOG = logging.getLogger("handrail.metrics")
WINDOW = 1_000
"""How many of a tool's newest calls count for percentiles."""
MAX_TOOLS = 2_000
"""Beyond it, tools share one entry: a name must never be able to fill the memory."""
OTHER = "(other)"
_SIZES_FOR_WARNING = 20
"""Of fewer responses the P95 is the longest one, which says nothing about the usual ones."""
SIZE_LIMIT = 1_500
"""Characters: responses that are longer as a rule crowd a model's context, whatever `maxOutputBytes` allows a single one."""
CONTEXT_SHARE = 0.9
_QUANTILES = (0.5, 0.95, 0.99)
_RECENT_SESSIONS = 100
TURN_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 30.0)
"""Bounds of the time in tools per turn: the budgets of a look-up and of a turn in voice are among them."""
ContextUse: TypeAlias = tuple[str, int, int | None]
"""A session, how many tokens of its model's context it uses now, and how many the model has, where that is known."""


class Histogram:
    """How many values are at most as large as each of some bounds."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulated(self) -> dict[float, int]:
        """By bound, the last of which is infinity: how many values do not exceed it."""
        return dict(zip((*self._bounds, float("inf")), accumulate(self._counts), strict=True))

    def to_dict(self) -> dict[str, Any]:
        buckets = {f"{bound:g}": count for bound, count in self.cumulated().items()}
        return {"count": sum(self._counts), "sum": round(self.total, 6), "buckets": buckets}


class ToolMetrics:
    """The numbers of one tool."""

    __slots__ = (
        "answers",
        "calls",
        "durations",
        "errors",
        "held",
        "is_large",
        "size_total",
        "sizes",
        "stragglers",
        "straggling",
        "total_ms",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.held = 0
        """Those of them that waited for a person, or still do."""
        self.answers = 0
        """Calls that ran or were refused, with their durations and sizes."""
        self.total_ms = 0.0
        self.size_total = 0
        self.durations = array("d", bytes(8 * WINDOW))
        self.sizes = array("q", bytes(8 * WINDOW))
        self.errors: dict[str, int] = {}
        self.is_large = False
        """It was logged that its responses are long."""
        self.straggling = 0
        """Handlers that continue after their deadlines, now."""
        self.stragglers = 0
        """How many have done so."""

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.answers if self.answers else 0.0

    def latest(self, ring: array[Any]) -> list[Any]:
        """The window's values in rising order."""
        return sorted(ring[: min(self.answers, WINDOW)])

    def tokens(self) -> list[int]:
        return [-(-size // 4) for size in self.latest(self.sizes)]


class SessionMetrics:
    """The numbers of one session."""

    __slots__ = ("calls", "ended", "is_full", "peak_context", "started", "turns", "window")

    def __init__(self, started: float) -> None:
        self.started = started
        self.ended: float | None = None
        self.calls = 0
        self.turns = 0
        self.peak_context = 0
        self.window: int | None = None
        self.is_full = False
        """It used more of its model's window than there is an alarm at."""

    def to_dict(self, now: float) -> dict[str, Any]:
        duration = (now if self.ended is None else self.ended) - self.started
        return {
            "calls": self.calls,
            "turns": self.turns,
            "duration": round(duration * 1000),
            "peakContextTokens": self.peak_context,
            **({"contextWindow": self.window} if self.window else {}),
        }


class Metrics:
    """All numbers of a process. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: deque[CallParts] = deque()
        self.note: Callable[[CallParts], None] = self._noted.append
        """What every call does, so it is nothing but an append."""
        self._refused: deque[tuple[str, float, str]] = deque()
        self.refused: Callable[[tuple[str, float, str]], None] = self._refused.append
        """A call of this tool was refused after these milliseconds, as this error."""
        self._held: deque[str] = deque()
        self.held: Callable[[str], None] = self._held.append
        """A call of this tool waits for a person: one call, whose duration and outcome are known when it has run."""
        self._turns: deque[str] = deque()
        self.turn_started: Callable[[str], None] = self._turns.append
        """A turn of this session begins."""
        self._turn_ends: deque[tuple[str, float]] = deque()
        self.turn_ended: Callable[[tuple[str, float]], None] = self._turn_ends.append
        """A turn of this mode has ended, in which tools ran for this time in milliseconds."""
        self._turn_times: dict[str, Histogram] = {}
        self._contexts: deque[ContextUse] = deque()
        self.session_context: Callable[[ContextUse], None] = self._contexts.append
        self.versioned: Collection[str] = ()
        """Tools that there are in several versions: each version has its own numbers, under `NAME@VERSION`."""
        self._tools: dict[str, ToolMetrics] = {}
        self._open: dict[str, SessionMetrics] = {}
        self._closed: deque[tuple[str, SessionMetrics]] = deque(maxlen=_RECENT_SESSIONS)
        self._sessions = 0
        self._session_calls = 0
        self._session_turns = 0
        self._peak_context = 0
        self._peak_share = 0.0
        self._full_contexts = 0
        self._prompt_tokens = 0
        self._declaration_tokens = 0
        self.forward: Callable[[CallRecord], None] | None = None
        """Who else counts the calls that are folded."""
        self.store_load: Callable[[], StoreLoad] | None = None
        """The runtime says how busy its store is."""

    # ---------------------------------------------------------------------------------------------------- recording
    def record(self, tool_id: str, duration_ms: float, ok: bool, error_type: str | None, size_chars: int) -> None:
        """One call that got its envelope: how long it took, how it ended, how long the answer is."""
        tool = self._tools.get(tool_id) or self._new_tool(tool_id)
        tool.calls += 1
        self._answered(tool_id, tool, duration_ms, None if ok else error_type or "INTERNAL", size_chars)

    def ran_held(
        self, session_id: str, tool_id: str, duration_ms: float, error_type: str | None, size_chars: int
    ) -> None:
        """How a call ended that was held before, and counted then."""
        tool = self._tools.get(tool_id) or self._new_tool(tool_id)
        self._answered(tool_id, tool, duration_ms, error_type, size_chars)
        self.session_call(session_id)

    def straggling(self, tool_id: str, running: int) -> None:
        """How many handlers of a tool still run after their deadlines now."""
        tool = self._tools.get(tool_id) or self._new_tool(tool_id)
        tool.stragglers += max(0, running - tool.straggling)
        tool.straggling = running

    def refused_held(self, tool_id: str, duration_ms: float, error_type: str) -> None:
        """A person approved a call that was counted when it was held, and it was refused: a failure, and no further call."""
        self._answered(tool_id, self._tools.get(tool_id) or self._new_tool(tool_id), duration_ms, error_type, 0)

    def _answered(
        self, tool_id: str, tool: ToolMetrics, duration_ms: float, error_type: str | None, size_chars: int
    ) -> None:
        slot = tool.answers % WINDOW
        tool.answers += 1
        tool.total_ms += duration_ms
        tool.size_total += size_chars
        tool.durations[slot] = duration_ms
        tool.sizes[slot] = size_chars
        if size_chars > SIZE_LIMIT and not tool.is_large:
            self._check_size(tool_id, tool)
        if error_type is not None:
            tool.errors[error_type] = tool.errors.get(error_type, 0) + 1

    def _check_size(self, tool_id: str, tool: ToolMetrics) -> None:
        """A long response: the first time that they are long as a rule, it is logged."""
        words = self._size_warning(tool_id, tool)
        if words:
            tool.is_large = True
            _LOG.warning("%s", words)

    def _size_warning(self, name: str, tool: ToolMetrics) -> str:
        """The sentence about a tool whose responses are long; empty if they are not."""
        sizes = tool.latest(tool.sizes)
        size = quantile(sizes, 0.95)
        if len(sizes) < _SIZES_FOR_WARNING or size <= SIZE_LIMIT:
            return ""
        return f'Responses of "{name}" are long: P95 is {size:,} characters, more than {SIZE_LIMIT:,}.'

    def fold(self) -> None:
        """Count what was noted. Done by whoever reads, and by the runtime's housekeeper."""
        while self._turns:
            self._session_turns += 1
            session = self._open.get(self._turns.popleft())
            if session is not None:
                session.turns += 1
        while self._turn_ends:
            mode, tool_ms = self._turn_ends.popleft()
            times = self._turn_times.get(mode)
            if times is None:
                times = self._turn_times[mode] = Histogram(TURN_SECONDS)
            times.add(tool_ms / 1000)
        while self._held:
            tool_id = self._held.popleft()
            tool = self._tools.get(tool_id) or self._new_tool(tool_id)
            tool.calls += 1
            tool.held += 1
        while self._contexts:
            session_id, tokens, window = self._contexts.popleft()
            self._peak_context = max(self._peak_context, tokens)
            if window:
                self._peak_share = max(self._peak_share, tokens / window)
            session = self._open.get(session_id)
            if session is not None:
                session.peak_context = max(session.peak_context, tokens)
                session.window = window or session.window
                if window and tokens > CONTEXT_SHARE * window and not session.is_full:
                    session.is_full = True
                    self._full_contexts += 1
        while self._refused:
            tool_id, duration, kind = self._refused.popleft()
            self.record(tool_id, duration, False, kind, 0)
        noted, forward = self._noted, self.forward
        while noted:
            parts = noted.popleft()
            if forward is not None:
                forward(CallRecord._make(parts))
            session_id, tool_id, duration, error_type, size = parts[:5]
            if tool_id in self.versioned:
                tool_id = f"{tool_id}@{CallRecord._make(parts).tool['toolVersion']}"
            self.record(tool_id, duration, error_type is None, error_type, size)
            self.session_call(session_id)

    def session_opened(self, session_id: str) -> None:
        """A session was opened, or resumed in this process."""
        if session_id not in self._open:
            self._open[session_id] = SessionMetrics(self._clock())
            self._sessions += 1

    def session_closed(self, session_id: str) -> None:
        self.fold()
        session = self._open.pop(session_id, None)
        if session is not None:
            session.ended = self._clock()
            self._closed.append((session_id, session))

    def session_call(self, session_id: str) -> None:
        self._session_calls += 1
        session = self._open.get(session_id)
        if session is not None:
            session.calls += 1

    def context(self, prompt_tokens: int, declaration_tokens: int) -> None:
        """What a session starts with: the system prompt and the declarations of the tools."""
        self._prompt_tokens = prompt_tokens
        self._declaration_tokens = declaration_tokens

    def _new_tool(self, tool_id: str) -> ToolMetrics:
        name = tool_id if len(self._tools) < MAX_TOOLS else OTHER
        return self._tools.setdefault(name, ToolMetrics())

    # ------------------------------------------------------------------------------------------------------ reading
    def session(self, session_id: str) -> dict[str, Any] | None:
        """The numbers of a session that is open or was closed lately."""
        self.fold()
        known = self._open.get(session_id) or dict(self._closed).get(session_id)
        return known.to_dict(self._clock()) if known is not None else None

    def to_json(self) -> dict[str, Any]:
        """The shape of the seeds, with tools and sessions beside it. Durations are milliseconds."""
        self.fold()
        return {**self.numbers(), "warnings": self.warnings()}

    def numbers(self) -> dict[str, Any]:
        """The same without warnings, as it was counted last. It changes nothing, so any thread may ask."""
        tools = sorted(self._tools.items())
        return {
            "responseSizes": {name: percentiles(tool.latest(tool.sizes)) for name, tool in tools},
            "responseTokens": {name: _token_facts(tool.tokens()) for name, tool in tools},
            "context": {
                "sessionInitTokens": self._prompt_tokens + self._declaration_tokens,
                "systemPromptTokens": self._prompt_tokens,
                "toolDeclTokens": self._declaration_tokens,
                "peakTokens": self._peak_context,
                "alarms": self._full_contexts,
            },
            "loopDetection": self._loop_detection(),
            "tools": {
                name: {
                    "calls": tool.calls,
                    "held": tool.held,
                    "stragglers": {"running": tool.straggling, "total": tool.stragglers},
                    "errors": dict(sorted(tool.errors.items())),
                    "avgDuration": round(tool.average_ms, 3),
                    "latency": percentiles(tool.latest(tool.durations), digits=3),
                }
                for name, tool in tools
            },
            "turnToolTime": {mode: times.to_dict() for mode, times in sorted(self._turn_times.items())},
            "sessions": self._session_facts(),
        }

    def warnings(self) -> list[str]:
        """What an operator should look at, as sentences."""
        self.fold()
        found = []
        for name, tool in sorted(self._tools.items()):
            if tool.straggling:
                found.append(f'"{name}" has {tool.straggling} handlers that still run after their deadline.')
            words = self._size_warning(name, tool)
            if words:
                found.append(words)
        if self._peak_share > CONTEXT_SHARE:
            found.append(
                f"A session used {self._peak_share:.0%} of its model's context window, more than {CONTEXT_SHARE:.0%}."
            )
        return found

    def to_prometheus(self) -> str:
        """The text exposition format, version 0.0.4. Durations are seconds."""
        self.fold()
        text = Exposition()
        tools = sorted(self._tools.items())
        text.family("handrail_tool_calls_total", "counter", "Calls that got an envelope.")
        for name, tool in tools:
            text.sample("handrail_tool_calls_total", tool.calls, **_labels(name))
        text.family("handrail_tool_held_total", "counter", "Those of them that had to wait for a person.")
        for name, tool in tools:
            text.sample("handrail_tool_held_total", tool.held, **_labels(name))
        text.family("handrail_tool_stragglers", "gauge", "Handlers that still run after their deadlines now.")
        for name, tool in tools:
            text.sample("handrail_tool_stragglers", tool.straggling, **_labels(name))
        text.family("handrail_tool_stragglers_total", "counter", "Handlers that still ran after their deadlines.")
        for name, tool in tools:
            text.sample("handrail_tool_stragglers_total", tool.stragglers, **_labels(name))
        text.family("handrail_tool_errors_total", "counter", "Calls that ended in a failure, by error type.")
        for name, tool in tools:
            for kind, count in sorted(tool.errors.items()):
                text.sample("handrail_tool_errors_total", count, **_labels(name), type=kind)
        text.family(
            "handrail_tool_duration_seconds", "summary", f"Duration of calls; quantiles over the last {WINDOW}."
        )
        for name, tool in tools:
            seconds = [value / 1000 for value in tool.latest(tool.durations)]
            text.summary(
                "handrail_tool_duration_seconds",
                _quantiles(seconds),
                tool.total_ms / 1000,
                tool.answers,
                **_labels(name),
            )
        text.family(
            "handrail_tool_response_characters", "summary", f"Size of responses; quantiles over the last {WINDOW}."
        )
        for name, tool in tools:
            sizes = _quantiles(tool.latest(tool.sizes))
            text.summary("handrail_tool_response_characters", sizes, tool.size_total, tool.answers, **_labels(name))
        for label, part in (("avg", "Average"), ("p95", "P95")):
            family = f"handrail_tool_response_tokens_{label}"
            text.family(
                family, "gauge", f"{part} of estimated tokens (characters / 4) over the last {WINDOW} responses."
            )
            for name, tool in tools:
                text.sample(family, _token_facts(tool.tokens())[label], **_labels(name))
        text.family("handrail_turn_tool_seconds", "histogram", "Time in tools per turn that has ended, by mode.")
        for mode, times in sorted(self._turn_times.items()):
            text.histogram("handrail_turn_tool_seconds", times.cumulated(), times.total, mode=mode)
        self._expose_totals(text)
        return text.render()

    def _expose_totals(self, text: Exposition) -> None:
        loop = self._loop_detection()
        for name, kind, meaning, value in (
            ("handrail_sessions_total", "counter", "Sessions opened.", self._sessions),
            ("handrail_session_calls_total", "counter", "Calls of all sessions.", self._session_calls),
            ("handrail_session_turns_total", "counter", "Turns of all sessions.", self._session_turns),
            ("handrail_loop_active_sessions", "gauge", "Open sessions.", loop["activeSessions"]),
            ("handrail_loop_turns_tracked", "gauge", "Turns of open sessions.", loop["totalTurnsTracked"]),
            ("handrail_context_prompt_tokens", "gauge", "Tokens of the system prompt.", self._prompt_tokens),
            (
                "handrail_context_declaration_tokens",
                "gauge",
                "Tokens of the tools' declarations.",
                self._declaration_tokens,
            ),
            ("handrail_context_peak_tokens", "gauge", "The largest context of any session.", self._peak_context),
            (
                "handrail_context_alarms_total",
                "counter",
                "Sessions that used more than nine tenths of their model's window.",
                self._full_contexts,
            ),
            ("handrail_context_peak_ratio", "gauge", "The largest share of a model's window in use.", self._peak_share),
        ):
            text.family(name, kind, meaning)
            text.sample(name, value)
        if self.store_load is not None:
            load = self.store_load()
            text.family("handrail_store_waiting", "gauge", "Writes that the store has not answered yet.")
            text.sample("handrail_store_waiting", load.waiting)
            text.family("handrail_store_timeouts_total", "counter", "Requests that the store did not answer in time.")
            text.sample("handrail_store_timeouts_total", load.timeouts)

    def _loop_detection(self) -> dict[str, int]:
        return {
            "activeSessions": len(self._open),
            "totalTurnsTracked": sum(session.turns for session in list(self._open.values())),
        }

    def _session_facts(self) -> dict[str, Any]:
        now = self._clock()
        newest = list(self._open.items())[-_RECENT_SESSIONS:]
        return {
            "open": len(self._open),
            "total": self._sessions,
            "calls": self._session_calls,
            "turns": self._session_turns,
            "active": {name: session.to_dict(now) for name, session in newest},
            "recent": {name: session.to_dict(now) for name, session in list(self._closed)},
        }


def _labels(name: str) -> dict[str, str]:
    tool, _, version = name.partition("@")
    return {"tool": tool, "version": version} if version else {"tool": tool}


def quantile(ordered: Sequence[Any], share: float) -> Any:
    """The smallest value that at least this share of the values do not exceed (nearest rank); 0 of nothing."""
    if not ordered:
        return 0
    rank = -(-len(ordered) * round(share * 100) // 100)
    return ordered[max(rank, 1) - 1]


def percentiles(ordered: Sequence[Any], digits: int | None = None) -> dict[str, Any]:
    return {f"p{share * 100:.0f}": _rounded(quantile(ordered, share), digits) for share in _QUANTILES}


def _quantiles(ordered: Sequence[Any]) -> Mapping[float, float]:
    return {share: quantile(ordered, share) for share in _QUANTILES}


def _token_facts(tokens: Sequence[int]) -> dict[str, int]:
    return {"avg": round(sum(tokens) / len(tokens)) if tokens else 0, "p95": quantile(tokens, 0.95)}


def _rounded(value: Any, digits: int | None) -> Any:
    return value if digits is None else round(value, digits)

"""The numbers of `/metrics` as OpenTelemetry instruments, which an SDK reads when it sends: nothing is counted twice.

Sessions have no label of their own: what is reported of them is their number, and the largest context of any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

Numbers: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Iterable[tuple[float, Mapping[str, str]]]
TOOL_VERSION = "handrail.tool.version"
_FRESH_SECONDS = 1.0
"""An SDK reads all instruments one after the other: the numbers of one such round are read once."""


class Instrument(NamedTuple):
    """One of them: its name, kind, unit, meaning, and how it is read from the numbers."""

    name: str
    kind: str
    unit: str
    meaning: str
    read: Callable[[Numbers], Values]


def _by_tool(read: Callable[[Mapping[str, Any]], float]) -> Callable[[Numbers], Values]:
    return lambda numbers: [(read(facts), _labels(name)) for name, facts in numbers["tools"].items()]


def _errors(numbers: Numbers) -> Iterator[tuple[float, Mapping[str, str]]]:
    for name, facts in numbers["tools"].items():
        for kind, count in facts["errors"].items():
            yield count, {**_labels(name), "error.type": kind}


def _shares(section: str) -> Callable[[Numbers], Values]:
    """Percentiles, or an average and a percentile, of each tool."""
    return lambda numbers: [
        (value, {**_labels(name), "handrail.statistic": share})
        for name, facts in numbers[section].items()
        for share, value in facts.items()
    ]


def _latencies(numbers: Numbers) -> Values:
    return [
        (value / 1000, {**_labels(name), "handrail.statistic": share})
        for name, facts in numbers["tools"].items()
        for share, value in (("avg", facts["avgDuration"]), *facts["latency"].items())
    ]


def _one(section: str, name: str) -> Callable[[Numbers], Values]:
    return lambda numbers: [(numbers[section][name], {})]


def _labels(name: str) -> Mapping[str, str]:
    tool, _, version = name.partition("@")
    return {"gen_ai.tool.name": tool, **({TOOL_VERSION: version} if version else {})}


INSTRUMENTS = (
    Instrument("handrail.tool.calls", "counter", "{call}", "Calls of a tool.", _by_tool(lambda one: one["calls"])),
    Instrument(
        "handrail.tool.held", "counter", "{call}", "Those that waited for a person.", _by_tool(lambda one: one["held"])
    ),
    Instrument("handrail.tool.errors", "counter", "{call}", "Those that failed, by error type.", _errors),
    Instrument("handrail.tool.latency", "gauge", "s", "Average and percentiles of the last 1,000 calls.", _latencies),
    Instrument(
        "handrail.tool.response.size",
        "gauge",
        "{character}",
        "Percentiles of the last 1,000.",
        _shares("responseSizes"),
    ),
    Instrument(
        "handrail.tool.response.tokens",
        "gauge",
        "{token}",
        "Characters / 4, of the last 1,000.",
        _shares("responseTokens"),
    ),
    Instrument("handrail.session.opened", "counter", "{session}", "Sessions opened.", _one("sessions", "total")),
    Instrument("handrail.session.calls", "counter", "{call}", "Calls of all sessions.", _one("sessions", "calls")),
    Instrument("handrail.session.turns", "counter", "{turn}", "Turns of all sessions.", _one("sessions", "turns")),
    Instrument("handrail.session.active", "gauge", "{session}", "Open ones.", _one("loopDetection", "activeSessions")),
    Instrument(
        "handrail.session.turns.tracked",
        "gauge",
        "{turn}",
        "Turns of open sessions.",
        _one("loopDetection", "totalTurnsTracked"),
    ),
    Instrument(
        "handrail.context.init", "gauge", "{token}", "What a session begins with.", _one("context", "sessionInitTokens")
    ),
    Instrument(
        "handrail.context.prompt", "gauge", "{token}", "The system prompt.", _one("context", "systemPromptTokens")
    ),
    Instrument("handrail.context.declarations", "gauge", "{token}", "Of the tools.", _one("context", "toolDeclTokens")),
    Instrument(
        "handrail.context.peak", "gauge", "{token}", "The largest of any session.", _one("context", "peakTokens")
    ),
    Instrument(
        "handrail.context.alarms", "counter", "{session}", "Beyond nine tenths of a window.", _one("context", "alarms")
    ),
)


class MetricSource(Protocol):
    """What has numbers: of each runtime one."""

    def numbers(self) -> Numbers: ...


_SOURCES: WeakKeyDictionary[Any, WeakSet[MetricSource]] = WeakKeyDictionary()
"""By meter, which takes an instrument of one name once; what is gone is reported no more."""


def observe(meter: Any, observation: Callable[[float, Mapping[str, str]], Any], source: MetricSource) -> None:
    """Let the instruments of a meter, created once, read the numbers of this source too."""
    if (known := _SOURCES.get(meter)) is not None:
        known.add(source)
        return
    sources = _SOURCES[meter] = WeakSet((source,))
    kept: list[tuple[float, list[Numbers]]] = []

    def fresh() -> list[Numbers]:
        now = time.monotonic()
        if not kept or now - kept[0][0] > _FRESH_SECONDS:
            kept[:] = [(now, [one.numbers() for one in list(sources)])]
        return kept[0][1]

    for one in INSTRUMENTS:
        create = meter.create_observable_counter if one.kind == "counter" else meter.create_observable_gauge

        def read(_: Any, one: Instrument = one) -> list[Any]:
            found: dict[tuple[tuple[str, str], ...], list[float]] = {}
            for numbers in fresh():
                for value, labels in one.read(numbers):
                    found.setdefault(tuple(labels.items()), []).append(value)
            # What is counted is added up; of percentiles and sizes the largest counts.
            merge = sum if one.kind == "counter" or one.unit in ("{session}", "{turn}") else max
            return [observation(merge(values), dict(labels)) for labels, values in found.items()]

        create(one.name, callbacks=[read], unit=one.unit, description=one.meaning)

"""What features cost a governed read-only call: those that are off, nothing; and each of them when it is on.

Two measures, because time is noisy. The functions that a call enters are counted: without a feature none of them may be the
feature's own, and one that is decided when a session is opened adds hardly any to its calls. Beside that stands the time.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from shutil import copytree
from statistics import median
from typing import Any, cast

import handrail
from benchmarks.catalogue import write_tools
from benchmarks.report import Result
from handrail import Runtime, Session
from handrail.contract.ports import MetricsPort
from handrail.observe.metrics import Metrics
from handrail.observe.tracing import Tracing
from handrail.registry import Registry
from handrail.registry.host_policy import HostPolicy, ToolPolicy
from handrail.registry.version_rules import VersionRules
from handrail.testing import open_tools

_CALLS, _ROUNDS = 300, 21
_TOOL = "tool_00000"
NOTHING = "nothing"
_SOURCE = str(Path(handrail.__file__).parent)
PARTS = {
    "OpenTelemetry": ("observe/tracing.py", "observe/otel_metrics.py", "runtime/traced.py"),
    "statistics by day": ("observe/usage_log.py", "observe/sketch.py", "runtime/statistics.py"),
    "versions side by side": ("registry/version_rules.py", "runtime/pinned_versions.py"),
    "roles and the host's policy": ("registry/host_policy.py", "identity/"),
    "new tools while a server runs": ("build/", "cli/"),
    "offers and context": ("agents/", "picking/"),
}
"""Features, and where their functions are."""
_MOST_MORE = {"statistics by day": 0, "roles and the host's policy": 0, "versions side by side": 3}
"""A session with another version than the default one asks whether its tools were built again since."""


def run() -> list[Result]:
    return asyncio.run(_run())


async def _run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        async with _sessions(Path(side)) as sessions:
            found = by_functions({name: await _entered(session) for name, session in sessions.items()})
            for name, ratio in (await _spent(sessions)).items():
                found.append(Result(f"a call with {name} / without any", ratio, "x"))
            return found


async def counted_calls(folder: Path) -> dict[str, Counter[str]]:
    """The functions that a call enters, by file, for each feature that is on."""
    async with _sessions(folder) as sessions:
        return {name: await _entered(session) for name, session in sessions.items()}


@asynccontextmanager
async def _sessions(folder: Path) -> AsyncIterator[dict[str, Session]]:
    """One session without any feature, and one with each of them."""
    write_tools(folder / "one" / "tools", 1)
    first = write_tools(folder / "two" / "tools", 1) / "tool-00000"
    second = copytree(first, first.with_name("tool-00000@2")) / "schema.json"
    second.write_text(second.read_text().replace('"1.0.0"', '"2.0.0"'))
    with open_tools(folder / "one" / "tools") as one, open_tools(folder / "two" / "tools") as two:
        async with AsyncExitStack() as stack:
            sessions = {}
            for name, runtime in _runtimes(one.registry, two.registry, folder).items():
                await stack.enter_async_context(runtime)
                sessions[name] = await runtime.open_session(user="u1", attributes={"roles": ["clerk"]})
            yield sessions


def _runtimes(one: Registry, two: Registry, folder: Path) -> dict[str, Runtime]:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # an extra, and only from here on imported

    other = VersionRules.from_dict(_TOOL, {"default": "2", "rules": [{"version": "1", "users": ["u1"]}]})
    stricter = ToolPolicy.from_dict(_TOOL, {"timeout_ms": 5_000, "roles": ["clerk"]})
    made = partial(Runtime, store="memory:", policy={"text": {"retrieval_calls": 0}})
    return {
        NOTHING: made(one, metrics=cast(MetricsPort, _MetricsOfAHost())),
        "statistics by day": made(one),
        "versions side by side": made(_on(two, folder / "two", versions={_TOOL: other})),
        "roles and the host's policy": made(_on(one, folder / "one", tools={_TOOL: stricter})),
        "OpenTelemetry": made(one, tracing=Tracing(TracerProvider())),
    }


class _MetricsOfAHost:
    """Those of Handrail in the name of a host, for which a runtime keeps no statistics."""

    def __init__(self) -> None:
        self._own = Metrics()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def by_functions(entered: Mapping[str, Counter[str]]) -> list[Result]:
    """What the functions that calls entered say: `entered` has them by file, for each feature that was on."""
    without = entered[NOTHING]
    found = [
        Result(f"functions of {part} in a call without it", _of(without, places), "functions", 0)
        for part, places in PARTS.items()
    ]
    found.append(Result("functions in a call without any of them", without.total(), "functions"))
    for name, counted in entered.items():
        if name != NOTHING:
            more = counted.total() - without.total()
            found.append(Result(f"functions more in a call with {name}", more, "functions", _MOST_MORE.get(name)))
    return found


def _on(registry: Registry, project: Path, **given: Any) -> Registry:
    """The same tools on a host that says this of them."""
    host = HostPolicy(roles=frozenset({"clerk"}), **given)
    made = Registry.load(registry.path, tools_root=project / "tools", host=host)
    made.lock()
    return made


def _args(mark: str) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{mark} {number}", {"query": f"{mark} {number}", "top_k": 3}) for number in range(_CALLS)]


async def _entered(session: Session) -> Counter[str]:
    """The functions of Handrail that one call enters, by file. The first call of a tool loads it, so it is not counted."""
    await session.begin_turn()
    await session.call(_TOOL, {"query": "first"}, call_id="first", provider="openai-chat")
    with _counted() as found:
        await session.call(_TOOL, {"query": "second"}, call_id="second", provider="openai-chat")
    return found


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(_SOURCE):
            found[path[len(_SOURCE) + 1 :]] += 1

    gc.collect()
    gc.disable()  # what it finalizes is nobody's call
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        gc.enable()


def _of(entered: Counter[str], places: tuple[str, ...]) -> int:
    return sum(count for path, count in entered.items() if path.startswith(places))


async def _spent(sessions: dict[str, Session]) -> dict[str, float]:
    """The time of a call in proportion to that of the first session, in turns, so that a noisy moment hits all of them."""
    pairs: dict[str, list[float]] = {name: [] for name in sessions}
    for number in range(_ROUNDS):
        times = {}
        for name, session in sessions.items():
            calls = _args(f"{name} {number}")
            await session.begin_turn()
            gc.collect()
            started = time.thread_time()
            for call_id, args in calls:
                await session.call(_TOOL, args, call_id=call_id, provider="openai-chat")
            times[name] = time.thread_time() - started
        for name, one in times.items():
            pairs[name].append(one / times[NOTHING])
    return {name: median(values) for name, values in pairs.items() if name != NOTHING}

"""One governed read-only call against awaiting the bare handler, and what each of its steps costs."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from benchmarks.catalogue import HANDLER, write_tools
from benchmarks.report import Result
from handrail import Call, Runtime
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.execution import ResultRules, checked_result
from handrail.runtime.gates import admit, parse_arguments, validate_and_clamp
from handrail.runtime.session import Session
from handrail.schema.strict_json import read_arguments
from handrail.testing import open_tools

_CALLS, _ROUNDS = 300, 21
_NO_LIMIT = {"text": {"retrieval_calls": 0}}


def run() -> list[Result]:
    return asyncio.run(_run())


async def _run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        folder = Path(side)
        results = []
        write_tools(folder / "one" / "tools", 1)
        with open_tools(_write_any_tool(folder / "one" / "tools")) as tools:
            async with tools.runtime(policy=_NO_LIMIT, audit=folder / "audit") as runtime:
                results += await _ratios(runtime)
                results += await _steps(runtime)
        results += await _growth(folder)
        return results


def _write_any_tool(folder: Path) -> Path:
    """A tool that takes arguments of every shape, beside the one of realistic size."""
    home = folder / "anything"
    home.mkdir()
    schema = {
        "toolId": "anything",
        "version": "1.0.0",
        "description": "Look something up by anything.",
        "category": "retrieval",
        "sideEffects": "read_only",
        "idempotent": True,
        "requiresConfirmation": False,
        "allowedModes": ["text", "voice"],
        "latencyBudgetMs": 800,
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "required": ["query"],
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "any": {"description": "Anything."},
            },
        },
    }
    (home / "schema.json").write_text(json.dumps(schema))
    (home / "guide.md").write_text("# anything\n\nLooks something up by anything.\n")
    (home / "handler.py").write_text(HANDLER)
    return folder


def _bare() -> Callable[[Any, Any], Awaitable[Any]]:
    namespace: dict[str, Any] = {}
    exec(HANDLER, namespace)
    handler: Callable[[Any, Any], Awaitable[Any]] = namespace["execute"]
    return handler


Shape = Callable[[int, int], dict[str, Any]]
"""Round and number of a call → its arguments. No two calls are the same."""


def _flat(number: int, index: int) -> dict[str, Any]:
    return {"query": f"question {number} {index}", "top_k": 3}


def _nested(number: int, index: int) -> dict[str, Any]:
    return {**_flat(number, index), "tags": ["new", "blue"], "range": {"start": "2026-01-01", "end": "2026-02-01"}}


PROMISED: dict[str, Shape] = {"flat": _flat, "nested": _nested}
OTHERS: dict[str, Shape] = {
    "a list of 20": lambda number, index: {"query": f"{number} {index}", "any": list(range(20))},
    "a list of 10 objects": lambda number, index: {"query": f"{number} {index}", "any": [{"a": 1, "b": "x"}] * 10},
    "6 levels": lambda number, index: {
        "query": f"{number} {index}",
        "any": {"a": {"b": {"c": {"d": {"e": {"f": "g"}}}}}},
    },
    "a text of 2,000": lambda number, index: {"query": f"{number} {index}", "any": "word " * 400},
    "5 floats": lambda number, index: {"query": f"{number} {index}", "any": [0.1, 2.75, -31.5, 1200.25, 0.001]},
    "a whole float": lambda number, index: {"query": f"{number} {index}", "any": 1.0},
    "letters beyond ASCII": lambda number, index: {"query": f"Žuta kuća {number} {index}", "any": {"ключ": "значение"}},
    "30 keys": lambda number, index: {"query": f"{number} {index}", "any": {f"key_{one}": one for one in range(30)}},
}

REFUSED: dict[str, tuple[str, Shape]] = {
    "refused for its arguments": ("tool_00000", lambda number, index: {**_flat(number, index), "top_k": 99}),
    "of an unknown tool": ("tool_99999", _flat),
}


async def _ratios(runtime: Runtime) -> list[Result]:
    """Each shape against the bare handler, taken in turns, so that a noisy moment hits both of a pair."""
    session = await runtime.open_session(user="u1")
    handler = _bare()
    cases = [
        (f"{name} {form}", shape, form, tool)
        for shapes, tool in ((PROMISED, "tool_00000"), (OTHERS, "anything"))
        for name, shape in shapes.items()
        for form in ("text", "object")
    ]
    cases += [(name, shape, "object", tool) for name, (tool, shape) in REFUSED.items()]
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in cases}
    written: list[tuple[float, float]] = []
    for number in range(_ROUNDS):
        for name, shape, form, tool in cases:
            objects = [shape(number, index) for index in range(_CALLS)]
            items: list[Any] = [orjson.dumps(item).decode() for item in objects] if form == "text" else objects
            await session.begin_turn()
            gc.collect()
            bare = await _timed(objects, lambda item, _: handler(item, None))
            governed = await _timed(items, _caller(session, tool, f"{name} {number}"))
            pairs[name].append((governed, bare))
            written.append((_written(runtime), bare))
    found = [Result("bare handler", median(bare for one in pairs.values() for _, bare in one) * 1e6, "µs")]
    for name, shape, *_ in cases:
        limit = 8.0 if shape in PROMISED.values() and name not in REFUSED else None
        spent = median(governed for governed, _ in pairs[name]) * 1e6
        found.append(
            Result(f"governed call, {name} / bare handler", _ratio(pairs[name]), "x", limit, f"{spent:.1f} µs")
        )
    beside = f"{median(spent for spent, _ in written) * 1e6:.1f} µs of the housekeeper's thread"
    title = "beside the call: its audit line written, its numbers counted / bare handler"
    return [*found, Result(title, _ratio(written), "x", None, beside)]


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return median(one / other for one, other in pairs)


def _written(runtime: Runtime) -> float:
    """What the housekeeper does for each call of the round, a quarter of a second later at most."""
    started = time.thread_time()
    runtime.audit.flush()
    runtime.metrics.fold()
    return (time.thread_time() - started) / _CALLS


def _caller(session: Session, tool: str, mark: str) -> Callable[[Any, int], Awaitable[Any]]:
    ids = [f"{mark}-{index}" for index in range(_CALLS)]  # a provider's, so they are not made in the call's time
    return lambda item, index: session.call(tool, item, call_id=ids[index], provider="openai-chat")


async def _timed(items: list[Any], call: Callable[[Any, int], Awaitable[Any]]) -> float:
    """The seconds of a call. Nothing in it waits, so the thread's own time is all of it, however busy the machine is."""
    started = time.thread_time()
    for index, item in enumerate(items):
        await call(item, index)
    return (time.thread_time() - started) / len(items)


async def _steps(runtime: Runtime) -> list[Result]:
    """What single steps cost by themselves."""
    session = await runtime.open_session(user="u1")
    await session.begin_turn()
    plan = session.plans["tool_00000"]
    assert plan is not None
    assert session.turn is not None
    args = {"query": "question", "top_k": 3}
    text = orjson.dumps(args).decode()
    returned = await _bare()(args, None)
    attempt = Attempt(session, Call(name="tool_00000", args=args, call_id="c"), plan, session.turn, time.perf_counter())
    attempt.args, attempt.key = args, "provider:c"
    rules = ResultRules.of(plan.tool)
    response, raw = checked_result(returned, rules)
    parse_arguments(attempt)
    validate_and_clamp(attempt)
    jobs: dict[str, Callable[[], object]] = {
        "step of the flow: parse text": lambda: read_arguments(text),
        "step of the flow: parse object": lambda: read_arguments(args),
        "step of the flow: gates 4-6": lambda: admit(attempt),
        "step of the flow: validate with defaults": lambda: plan.validator.validate(args),
        "step of the flow: check the result": lambda: checked_result(returned, rules),
        "step of the flow: envelope, audit, metrics": lambda: runtime.answers.finish(attempt, response, raw),
    }
    found = []
    for name, job in jobs.items():
        attempt.started = time.perf_counter()
        started = time.perf_counter()
        for _ in range(5_000):
            job()
        found.append(Result(name, (time.perf_counter() - started) / 5_000 * 1e6, "µs"))
        runtime.audit.flush()
    return found


async def _growth(folder: Path) -> list[Result]:
    """The cost per call with few and many tools, turns, sessions and past calls, in turns."""
    few, many = folder / "few" / "tools", folder / "many" / "tools"
    write_tools(few, 10)
    write_tools(many, 10_000)
    with open_tools(few) as small, open_tools(many) as large:
        async with small.runtime(policy=_NO_LIMIT) as one, large.runtime(policy=_NO_LIMIT) as other:
            fresh, crowded = await one.open_session(), await other.open_session()
            old = await one.open_session()
            for number in range(200):
                await old.begin_turn()
                for index in range(10):
                    await old.call("tool_00000", {"query": f"{number} {index}"}, call_id=f"{number}-{index}")
            samples: dict[str, list[float]] = {"fresh": [], "tools": [], "old": []}
            for number in range(_ROUNDS):
                items = [{"query": f"q {number} {index}"} for index in range(_CALLS)]
                for name, session in (("fresh", fresh), ("tools", crowded), ("old", old)):
                    await session.begin_turn()
                    samples[name].append(await _timed(items, _caller(session, "tool_00000", f"{name}{number}")))
    base = median(samples["fresh"])
    return [
        Result("a call with 10,000 tools / with 10", median(samples["tools"]) / base, "x", 1.25),
        Result("a call after 200 turns and 2,000 calls / in a fresh session", median(samples["old"]) / base, "x", 1.25),
    ]

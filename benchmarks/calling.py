"""One governed read-only call against awaiting the bare handler, and what each of its steps costs."""

from __future__ import annotations

import asyncio
import gc
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
from handrail.runtime.admission import prepare
from handrail.runtime.attempt import Attempt
from handrail.runtime.hydrate import parse_call
from handrail.runtime.outcome import checked_result
from handrail.runtime.session import Session
from handrail.schema.canonical import canonical
from handrail.testing import open_tools

_CALLS, _ROUNDS = 1_500, 15
_NO_LIMIT = {"text": {"retrieval_calls": 0}}


def run() -> list[Result]:
    return asyncio.run(_run())


async def _run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        folder = Path(side)
        results = []
        with open_tools(write_tools(folder / "one" / "tools", 1)) as tools:
            async with tools.runtime(policy=_NO_LIMIT, audit=folder / "audit") as runtime:
                results += await _ratios(runtime)
                results += await _steps(runtime)
        results += await _growth(folder)
        return results


def _bare() -> Callable[[Any, Any], Awaitable[Any]]:
    namespace: dict[str, Any] = {}
    exec(HANDLER, namespace)
    handler: Callable[[Any, Any], Awaitable[Any]] = namespace["execute"]
    return handler


async def _ratios(runtime: Runtime) -> list[Result]:
    session = await runtime.open_session(user="u1")
    handler = _bare()
    samples: dict[str, list[float]] = {"bare": [], "object": [], "text": [], "written": [], "flow": []}
    for number in range(_ROUNDS):
        objects = [{"query": f"question {number} {index}", "top_k": 3} for index in range(_CALLS)]
        texts = [orjson.dumps(item).decode() for item in objects]
        gc.collect()
        samples["bare"].append(await _timed(objects, lambda item, _: handler(item, None)))
        await session.begin_turn()
        runtime.audit.flush()
        samples["object"].append(await _timed(objects, _caller(session, f"o{number}")))
        samples["written"].append(_written(runtime))
        await session.begin_turn()
        samples["text"].append(await _timed(texts, _caller(session, f"t{number}")))
        runtime.audit.flush()
        await session.begin_turn()
        samples["flow"].append(await _timed(objects, _along_the_flow(runtime, session, f"f{number}")))
        runtime.audit.flush()
    bare = median(samples["bare"])
    ratios = {
        name: median(a / b for a, b in zip(values, samples["bare"], strict=True))
        for name, values in samples.items()
        if values
    }
    return [
        Result("bare handler", bare * 1e6, "µs"),
        Result(
            "governed call from an object / bare handler",
            ratios["object"],
            "x",
            5.0,
            f"{median(samples['object']) * 1e6:.1f} µs",
        ),
        Result(
            "governed call from JSON text / bare handler",
            ratios["text"],
            "x",
            6.0,
            f"{median(samples['text']) * 1e6:.1f} µs",
        ),
        Result(
            "the same call without its short way / bare handler",
            ratios["flow"],
            "x",
            None,
            f"{median(samples['flow']) * 1e6:.1f} µs",
        ),
        Result(
            "beside the call: its audit line written, its numbers counted / bare handler",
            ratios["written"],
            "x",
            None,
            f"{median(samples['written']) * 1e6:.1f} µs of the housekeeper's thread",
        ),
    ]


def _written(runtime: Runtime) -> float:
    """What the housekeeper does for each call of the round, a quarter of a second later at most."""
    started = time.perf_counter()
    runtime.audit.flush()
    runtime.metrics.fold()
    return (time.perf_counter() - started) / _CALLS


def _caller(session: Session, mark: str) -> Callable[[Any, int], Awaitable[Any]]:
    return lambda item, index: session.call("tool_00000", item, call_id=f"{mark}-{index}", provider="openai-chat")


def _along_the_flow(runtime: Runtime, session: Session, mark: str) -> Callable[[Any, int], Awaitable[Any]]:
    call = runtime.pipeline.call
    return lambda item, index: call(session, Call("tool_00000", item, f"{mark}-{index}", "openai-chat"))


async def _timed(items: list[Any], call: Callable[[Any, int], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    for index, item in enumerate(items):
        await call(item, index)
    return (time.perf_counter() - started) / len(items)


async def _steps(runtime: Runtime) -> list[Result]:
    """What single steps cost by themselves."""
    session = await runtime.open_session(user="u1")
    await session.begin_turn()
    plan = session.plans.find("tool_00000")
    assert plan is not None
    assert session.turn is not None
    args = {"query": "question", "top_k": 3}
    text = orjson.dumps(args).decode()
    returned = await _bare()(args, None)
    attempt = Attempt(session, Call(name="tool_00000", args=args, call_id="c"), plan, session.turn, time.perf_counter())
    attempt.args, attempt.key = args, "provider:c"
    response, raw = checked_result(returned, plan.tool)
    prepare(attempt)
    jobs: dict[str, Callable[[], object]] = {
        "step of the flow: parse text": lambda: parse_call(text),
        "step of the flow: parse object": lambda: parse_call(args),
        "step of the flow: gates 4-6": lambda: [gate(attempt) for gate in plan.early],
        "step of the flow: validate with defaults": lambda: plan.validator.validate(args),
        "step of the flow: canonical form": lambda: canonical(args),
        "step of the flow: check the result": lambda: checked_result(returned, plan.tool),
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
                items = [{"query": f"q {number} {index}"} for index in range(500)]
                for name, session in (("fresh", fresh), ("tools", crowded), ("old", old)):
                    await session.begin_turn()
                    samples[name].append(await _timed(items, _caller(session, f"{name}{number}")))
    base = median(samples["fresh"])
    return [
        Result("a call with 10,000 tools / with 10", median(samples["tools"]) / base, "x", 1.25),
        Result("a call after 200 turns and 2,000 calls / in a fresh session", median(samples["old"]) / base, "x", 1.25),
    ]

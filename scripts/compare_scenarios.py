"""Play the scenarios of `compare.py` in one tree, through what both trees have in public.

    python scripts/compare_scenarios.py FOLDER

It says which scenarios it has, then plays the one that each line of its input names, and prints the seconds of processor time and
on the clock that one operation took. What differs between the trees is in `_knowledge_base`, and nowhere else.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any, TypeAlias

from benchmarks.catalogue import parameters, write_tools

import handrail
from handrail import Registry, Runtime, Session, ToolResponse, pick_tools
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.testing import open_tools

_TOOLS = 300
"""Of the large catalogue."""
_READS, _REFUSALS, _TURNS, _WRITES, _HELD, _SESSIONS, _SEARCHES, _PICKS = 300, 100, 30, 30, 10, 20, 30, 20
_CROWD, _OF_EACH = 64, 3
_LOG_SECONDS = 3.0
"""After its first writes a store makes room in its log while nobody waits, which no round should take part in."""
_RECORDS, _ABOUT_EACH = 400, 4
"""Of the knowledge base: as many about each subject as a search gives at least."""

Spent: TypeAlias = tuple[float, float]
"""Seconds of processor time and on the clock, of one operation."""


class _Watch:
    """What one round takes: the time inside of its `with` blocks, for each of its operations."""

    def __init__(self) -> None:
        self._processor = self._clock = 0.0

    def __enter__(self) -> None:
        self._began = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._clock += time.perf_counter() - self._began[1]
        self._processor += time.process_time() - self._began[0]

    def of(self, operations: int) -> Spent:
        return self._processor / operations, self._clock / operations


def _write_tool(folder: Path, name: str, handler: str, **more: Any) -> None:
    home = folder / name
    home.mkdir(parents=True)
    schema = {
        "toolId": name, "version": "1.0.0", "description": f"The tool {name}.", "category": "action",
        "sideEffects": "writes", "idempotent": False, "requiresConfirmation": False, "allowedModes": ["text", "voice"],
        "latencyBudgetMs": 800, "waivers": {"action-unconfirmed": "A comparison."}, "parameters": parameters(0), **more,
    }  # fmt: skip
    (home / "schema.json").write_text(json.dumps(schema))
    (home / "guide.md").write_text(f"# {name}\n\nDoes what {name} does.\n")
    (home / "handler.py").write_text(f"async def execute(args, ctx):\n    return {handler}\n")


def _write_project(folder: Path) -> Path:
    write_tools(folder, 1)
    done = "{'ok': True, 'data': {'done': args['query']}}"
    _write_tool(folder, "note", done)
    _write_tool(folder, "pay", done, requiresConfirmation=True, preview="Pay {query}", waivers={})
    until = "{'type': 'BLOCK_USER', 'until': ctx.now + 100_000}"
    _write_tool(folder, "block", f"{{'ok': True, 'data': {{}}, 'intents': [{until}]}}")
    return folder


def _flat(number: int) -> dict[str, Any]:
    return {"query": f"question {number}", "top_k": 3}


def _nested(number: int) -> dict[str, Any]:
    return {**_flat(number), "tags": ["new", "blue"], "range": {"start": "2026-01-01", "end": "2026-02-01"}}


class Scenarios:
    """The scenarios over one runtime. No two calls have the same arguments."""

    def __init__(self, runtime: Runtime, artifact: Path) -> None:
        self._runtime = runtime
        self._artifact = artifact
        self._catalogue = Registry.load(artifact)
        self._catalogue.lock()
        self._numbers = count()

    async def prepare(self) -> None:
        """Open the sessions, one for each part, so that none pays for the calls of another."""
        opened = self._runtime.open_session
        self._reader, self._writer, self._payer, self._beginner, self._searcher = [
            await opened(user=name) for name in ("reader", "writer", "payer", "beginner", "searcher")
        ]
        self._limited = await opened(user="limited", policy={"text": {"retrieval_calls": 1}})
        self._blocked = await opened(user="blocked")
        self._crowd = [await opened(user=f"u{number}") for number in range(_CROWD)]
        await self._call(self._blocked, "block", _flat(0))
        await self._writes()
        await asyncio.sleep(_LOG_SECONDS)

    def by_name(self) -> dict[str, Callable[[], Awaitable[Spent]]]:
        reads, refusals = self._reads, self._refusals
        return {
            "registry load": self._load,
            "read, flat, text": lambda: reads(lambda number: json.dumps(_flat(number))),
            "read, flat, object": lambda: reads(_flat),
            "read, nested, text": lambda: reads(lambda number: json.dumps(_nested(number))),
            "read, nested, object": lambda: reads(_nested),
            "refused, unknown tool": lambda: refusals(self._reader, "NOT_FOUND", tool="no_such_tool"),
            "refused, bad arguments": lambda: refusals(self._reader, "VALIDATION", top_k=99),
            "refused, over budget": lambda: refusals(self._limited, "BUDGET_EXCEEDED"),
            "refused, blocked": lambda: refusals(self._blocked, "AUTH"),
            "begin a turn": self._turns,
            "one write": self._writes,
            "64 writing sessions": self._writes_at_once,
            "a held call, approved": self._approvals,
            "open and resume a session": self._sessions,
            "pick_tools": self._picks,
            "kb_search": self._searches,
        }

    async def _call(self, session: Session, tool: str, args: Any) -> ToolResponse:
        return await session.call(tool, args, call_id=f"call_{next(self._numbers):09d}", provider="openai-chat")

    async def _load(self) -> Spent:
        watch = _Watch()
        with watch:
            Registry.load(self._artifact).lock()
        return watch.of(1)

    async def _reads(self, shape: Callable[[int], Any]) -> Spent:
        watch, given = _Watch(), [shape(next(self._numbers)) for _ in range(_READS)]
        await self._reader.begin_turn()
        with watch:
            answers = [await self._call(self._reader, "tool_00000", args) for args in given]
        assert all(answer.ok for answer in answers), answers
        return watch.of(_READS)

    async def _refusals(self, session: Session, reason: str, tool: str = "tool_00000", **wrong: Any) -> Spent:
        """Five in a turn, because the sixth is refused for being the sixth."""
        watch = _Watch()
        for _ in range(_REFUSALS // 5):
            given = [{**_flat(next(self._numbers)), **wrong} for _ in range(6)]
            await session.begin_turn()
            if reason == "BUDGET_EXCEEDED":
                await self._call(session, tool, given[5])
            with watch:
                answers = [await self._call(session, tool, args) for args in given[:5]]
            assert {answer.error and answer.error.type.value for answer in answers} == {reason}, answers
        return watch.of(_REFUSALS)

    async def _turns(self) -> Spent:
        watch = _Watch()
        with watch:
            for _ in range(_TURNS):
                await self._beginner.begin_turn(f"input {next(self._numbers)}")
        return watch.of(_TURNS)

    async def _writes(self) -> Spent:
        watch = _Watch()
        await self._writer.begin_turn()
        with watch:
            answers = [await self._call(self._writer, "note", _flat(next(self._numbers))) for _ in range(_WRITES)]
        assert all(answer.ok for answer in answers), answers
        return watch.of(_WRITES)

    async def _writes_at_once(self) -> Spent:
        async def write(session: Session) -> None:
            for _ in range(_OF_EACH):
                answer = await self._call(session, "note", _flat(next(self._numbers)))
                assert answer.ok, answer

        watch = _Watch()
        for session in self._crowd:
            await session.begin_turn()
        with watch:
            await asyncio.gather(*map(write, self._crowd))
        return watch.of(_CROWD * _OF_EACH)

    async def _approvals(self) -> Spent:
        """From the call until the answer to the approval, each in a turn of its own."""
        watch = _Watch()
        for _ in range(_HELD):
            await self._payer.begin_turn(f"input {next(self._numbers)}")
            with watch:
                await self._call(self._payer, "pay", _flat(next(self._numbers)))
                request = await self._confirmation()
                answer = await self._runtime.approve(request["id"], token=request["token"])
            assert answer.ok, answer
        return watch.of(_HELD)

    async def _confirmation(self) -> Any:
        async for event in self._payer.events():
            if event.type == "confirmation":
                return event.data
        raise AssertionError

    async def _sessions(self) -> Spent:
        watch = _Watch()
        with watch:
            for _ in range(_SESSIONS):
                session = await self._runtime.open_session(user="passer-by")
                session = await self._runtime.resume_session(session.id, token=session.token)
                await session.close()
        return watch.of(_SESSIONS)

    async def _picks(self) -> Spent:
        watch = _Watch()
        with watch:
            asked = [f"look something up in source {next(self._numbers) % _TOOLS}" for _ in range(_PICKS)]
            picked = [pick_tools(query, self._catalogue) for query in asked]
        assert all(picked)
        return watch.of(_PICKS)

    async def _searches(self) -> Spent:
        watch = _Watch()
        await self._searcher.begin_turn()
        with watch:
            asked = [{"query": _subject(next(self._numbers)), "top_k": _ABOUT_EACH} for _ in range(_SEARCHES)]
            answers = [await self._call(self._searcher, "kb_search", args) for args in asked]
        assert {len(answer.data["results"]) for answer in answers} == {_ABOUT_EACH}, answers
        return watch.of(_SEARCHES)


def _built(folder: Path) -> Path:
    """The artifact of a large catalogue."""
    write_tools(folder / "tools", _TOOLS)
    result = build(BuildPlan(tools=folder / "tools", artifact=folder / "tool_registry.json", project=folder))
    return write(result, stamp_for(result, {}))


def _subject(number: int) -> str:
    """A word of its own for each subject."""
    return "subject" + "".join(chr(ord("a") + int(digit)) for digit in f"{number % (_RECORDS // _ABOUT_EACH):03}")


def _knowledge_base(folder: Path) -> tuple[Any, Path]:
    """The service over records, and the folder of the tool. The reference tools are a package of their own now."""
    own = Path(handrail.__file__).parent
    package = "handrail" if (own / "services").is_dir() else "handrail_reference"
    service, files, importing = (import_module(f"{package}.services.kb.{name}") for name in _KB_MODULES)
    lines = folder / "records.jsonl"
    with lines.open("w") as file:
        for number in range(_RECORDS):
            text = f"What there is to say about {_subject(number)} in the house, by its occupant {number}."
            file.write(json.dumps({"id": f"doc:{number}", "title": f"Page {number}", "text": text}) + "\n")
    base = service.KnowledgeBase(folder / "kb.db")
    importing.import_sources(base.database, *files.find_sources([lines]))
    return base, own.with_name(package) / "tools" / "kb-search"


_KB_MODULES = ("service", "files", "importing")


async def main(folder: Path) -> None:
    base, tool = _knowledge_base(folder)
    copytree(tool, _write_project(folder / "project") / "kb-search")
    unlimited = {"text": {"retrieval_calls": 0}}
    store, audit = f"sqlite:///{folder / 'store.db'}", folder / "audit"
    with open_tools(folder / "project", capabilities={"kb": base}) as tools:
        async with tools.runtime(store=store, audit=audit, policy=unlimited) as runtime:
            scenarios = Scenarios(runtime, _built(folder / "catalogue"))
            await scenarios.prepare()
            known = scenarios.by_name()
            print(json.dumps({"from": handrail.__file__, "scenarios": list(known)}), flush=True)
            # In a thread, so that what is due between two rounds is done between them.
            while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
                gc.collect()
                print(json.dumps(await known[name]()), flush=True)
        await base.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

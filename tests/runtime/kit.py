"""Small tools for tests of the runtime: written into a folder, built for real, and run through the real pipeline."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

from handrail import Runtime
from handrail.build.compiler import BuildPlan, BuildStamp, build, compile_unjudged
from handrail.build.writer import write
from handrail.contract.envelope import ToolResponse
from handrail.events import SessionEvent
from handrail.registry import Registry
from handrail.runtime.session import Session
from handrail.testing import CrashAt, VirtualClock

ANY_TEXT = {
    "type": "object",
    "properties": {"q": {"type": "string", "description": "What to look for."}},
    "additionalProperties": False,
}

# What a handler did is told by lines in a file: it survives the process, and counts starts whoever started it.
FOUND = """
async def execute(args, ctx):
    mark(args)
    return {"ok": True, "data": {"results": [args.get("q", "")]}}
"""
NOTHING = """
async def execute(args, ctx):
    mark(args)
    return {"ok": True, "data": {"results": []}}
"""
PAID = """
async def execute(args, ctx):
    mark(args)
    return {"ok": True, "data": {"paid": args.get("q", ""), "key": ctx.idempotency_key}}
"""
# These end when the test says so (`go`), by a file too: neither a clock nor a race decides.
PATIENT = """
async def execute(args, ctx):
    mark(args)
    for _ in range(6000):
        if (MARKS.parent / "go").exists():
            break
        await asyncio.sleep(0.005)
    return {"ok": True, "data": {"done": args.get("q", "")}}
"""
PATIENT_IN_A_THREAD = PATIENT.replace("async def", "def").replace("await asyncio", "time")


def reading(**fields: Any) -> dict[str, Any]:
    return {"category": "retrieval", "sideEffects": "read_only", "idempotent": True, **fields}


def utility(**fields: Any) -> dict[str, Any]:
    return {"category": "utility", "sideEffects": "none", "idempotent": True, **fields}


def writing(**fields: Any) -> dict[str, Any]:
    return {"category": "action", "sideEffects": "writes", "idempotent": False, "waivers": WAIVERS, **fields}


def confirmed(**fields: Any) -> dict[str, Any]:
    return {"category": "action", "sideEffects": "writes", "idempotent": False, "requiresConfirmation": True, **fields}


WAIVERS = {"action-unconfirmed": "A test tool."}
Tool = tuple[Mapping[str, Any], str]
_JUDGED: set[frozenset[tuple[str, str]]] = set()
"""The contents of folders in which a build found nothing wrong."""


class Tools:
    """A folder of tools and what was built of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "tools"
        self.marks = root / "marks.txt"
        self.artifact = root / "tool_registry.json"
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, tools: Mapping[str, Tool]) -> None:
        for name, (fields, source) in tools.items():
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            schema = {
                "toolId": name,
                "version": "1.0.0",
                "description": f"The tool {name}.",
                "requiresConfirmation": False,
                "allowedModes": ["text", "voice"],
                "latencyBudgetMs": 500,
                "parameters": ANY_TEXT,
                **fields,
            }
            (folder / "schema.json").write_text(json.dumps(schema), "utf-8")
            (folder / "guide.md").write_text(f"# {name}\n\nDoes what {name} does.\n", "utf-8")
            preamble = (
                "import asyncio, json, os, threading, time\n"
                "from pathlib import Path\n"
                "from handrail import ToolError, ToolResponse\n"
                f"MARKS = Path({str(self.marks)!r})\n"
                "def mark(what):\n"
                "    with MARKS.open('a') as file:\n"
                "        file.write(json.dumps(what, sort_keys=True) + '\\n')\n"
            )
            (folder / "handler.py").write_text(preamble + dedent(source), "utf-8")

    def build(self, *modules: str) -> Registry:
        self.rebuild(*modules)
        registry = Registry.load(self.artifact)
        registry.lock()
        return registry

    def rebuild(self, *modules: str) -> None:
        plan = BuildPlan(tools=self.folder, artifact=self.artifact, project=self.root, modules=modules)
        tools = self._contents()
        # Hundreds of tests write the same tools; judging them takes most of the time of a build.
        result = compile_unjudged(plan) if tools in _JUDGED and not modules else build(plan)
        assert result is not None
        assert not result.errors, "\n".join(str(finding) for finding in result.errors)
        _JUDGED.add(tools)
        write(result, BuildStamp(git_commit=None, timestamp="2026-01-02T03:04:05Z"))

    def _contents(self) -> frozenset[tuple[str, str]]:
        """Every file of the tools, as it would be in any other folder."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return frozenset(
            (str(path.relative_to(self.folder)), path.read_text("utf-8").replace(str(self.root), "")) for path in files
        )

    def started(self) -> list[Any]:
        """What every start of a handler was given, in order."""
        if not self.marks.exists():
            return []
        return [json.loads(line) for line in self.marks.read_text("utf-8").splitlines()]

    def go(self) -> None:
        """The handlers that wait for it end."""
        (self.root / "go").touch()

    def forget(self) -> None:
        self.marks.unlink(missing_ok=True)


class AtOnce(ThreadPoolExecutor):
    """Does in the loop's own thread what would be given to another: the same choices then always have the same end."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class CrashSwitch:
    """Given to a runtime as `crash=`; a test sets `hook` when the process shall die on its next call."""

    hook: CrashAt | None = None

    def __call__(self, point: str) -> None:
        if self.hook is not None:
            self.hook(point)


class World:
    """Tools, and runtimes over them on one store; everything is closed at the end."""

    def __init__(self, tools: Tools, registry: Registry, store: Any, url: str = "") -> None:
        self.tools = tools
        self.registry = registry
        self.store = store
        self.url = url
        self.runtimes: list[Runtime] = []

    def runtime(self, **options: Any) -> Runtime:
        if isinstance(options.get("clock"), VirtualClock):
            asyncio.get_running_loop().set_default_executor(AtOnce())  # virtual time does not wait for threads
        made = Runtime(self.registry, **{"store": self.store, **options})
        self.runtimes.append(made)
        return made

    @property
    def starts(self) -> int:
        return len(self.tools.started())

    def go(self) -> None:
        self.tools.go()

    async def session(self, *, runtime: Runtime | None = None, **facts: Any) -> Session:
        options = {name: facts.pop(name) for name in ("clock", "audit", "crash") if name in facts}
        runtime = runtime or self.runtime(**options)
        session = await runtime.open_session(**facts)
        await session.begin_turn("m1")
        return session

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *error: object) -> None:
        for runtime in self.runtimes:
            await runtime.close()


def kind(response: ToolResponse) -> str | None:
    """The error's type; None for a success."""
    return None if response.error is None else response.error.type.value


def calls_left(response: ToolResponse) -> dict[str, int]:
    """What is left of the turn's calls, without its time."""
    return {name: left for name, left in response.meta["budget"].items() if name != "latencyMs"}


def audited(runtime: Runtime, *events: str) -> list[dict[str, Any]]:
    """The audit's events so far, of these kinds."""
    runtime.audit.flush()
    found = runtime.audit.events  # type: ignore[attr-defined]
    return [event for event in (found() if callable(found) else found) if not events or event["event"] in events]


async def next_event(source: Any, type: str) -> SessionEvent:
    """The next event of this type."""
    events = source.events()
    try:
        async for event in events:
            if event.type == type:
                return event
    finally:
        await events.aclose()
    raise AssertionError(f"no event {type}")


async def until(happened: Callable[[], object]) -> None:
    """Wait for it, however slow the machine is; the limit is for what never happens."""
    async with asyncio.timeout(30):
        while not happened():
            await asyncio.sleep(0.005)


def begins_at_once(runtime: Runtime) -> None:
    """The next plain function has begun in its thread before its deadline is counted, however slow threads are."""
    pool, begun = runtime.runner.pool, threading.Event()
    submit = pool.submit

    def submit_and_wait(job: Callable[[], Any]) -> Any:
        pool.submit = submit
        work = submit(lambda: (begun.set(), job())[1])
        assert begun.wait(30)
        return work

    pool.submit = submit_and_wait


async def asked(source: Any) -> tuple[str, str]:
    """Id and token of the next confirmation that is asked for."""
    event = await next_event(source, "confirmation")
    return event.data["id"], event.data["token"]


def fails(words: str) -> str:
    """A handler that marks its start and then raises this."""
    return f"""
async def execute(args, ctx):
    mark(args)
    raise {words}
"""

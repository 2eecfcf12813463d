"""The short way of a plain call against the flow: two runtimes that differ in nothing else are told the same things, and must
give the same envelopes, audit lines, counters and replays, and start the same handlers with the same arguments."""

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from copy import copy
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.desk import meanwhile
from tests.runtime.kit import AtOnce, Tools, reading, utility, writing

from handrail import Call, Registry, Runtime, Session
from handrail.contract.store import Block
from handrail.observe.audit import AuditLog
from handrail.runtime import shortcut as short
from handrail.runtime.gates import mode as mode_gate
from handrail.stores import MemoryStore
from handrail.testing import VirtualClock

ACTS = {
    "found": {"ok": True, "data": {"results": [{"id": 1, "score": 0.5}], "more": []}},
    "nothing": {"ok": True, "data": {"results": []}},
    "object": {"ok": True, "data": {}},
    "null": {"ok": True, "data": None},
    "null inside": {"ok": True, "data": {"results": [None]}},
    "text": {"ok": True, "data": "only text"},
    "long": {"ok": True, "data": {"results": ["x" * 400] * 8}},
    "not a number": {"ok": True, "data": {"results": [float("nan")]}},
    "odd": {"ok": True, "data": {"results": [UUID(int=1)]}},
    "no JSON": {"ok": True, "data": {"results": [object]}},
    "failure": {"ok": False, "error": {"type": "NOT_FOUND", "message": "There is none."}},
    "intent": {"ok": True, "data": {"a": 1}, "intents": [{"type": "SET_PENDING_MESSAGE", "message": "later"}]},
    "nonsense": {"ok": 1, "data": {}},
    "other keys": {"ok": True, "result": {}},
    "nothing at all": None,
}
MOVES = ("waits", "waits and raises", "raises", "fails", "changes its arguments", "looks around", "asks for an intent")
HANDLER = """
async def execute(args, ctx):
    return await ctx.stage.play(args, ctx)
"""
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["act"],
    "properties": {
        "act": {"enum": [*ACTS, *MOVES], "description": "What the handler does."},
        "query": {"type": "string", "description": "What to look for."},
        "top_k": {"type": "integer", "default": 5, "description": "How many."},
        "deep": {"type": "boolean", "default": False, "description": "Whether to look closer."},
        "a/b~c": {"type": ["string", "null"], "default": None, "description": "An odd name."},
        "weight": {"type": "number", "description": "A number."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Names."},
    },
}
TOOLS = {
    "look": reading(parameters=PARAMETERS),
    "work_out": utility(parameters=PARAMETERS),
    "speak": utility(parameters=PARAMETERS, allowedModes=["voice"]),
    "mine": reading(parameters=PARAMETERS, permissions={"requiresAuth": True}),
    "promised": utility(
        parameters=PARAMETERS,
        outputSchema={"type": "object", "required": ["results"], "properties": {"results": {"type": "array"}}},
    ),
    "brief": utility(parameters=PARAMETERS, maxOutputBytes=1000),
    "seldom": utility(parameters=PARAMETERS, rateLimit={"calls": 3, "windowMs": 60_000, "scope": "session"}),
    "clamped": utility(parameters=PARAMETERS, clamp={"voice": {"top_k": 2}}),
    "strict": utility(parameters=PARAMETERS, strict=True),
    "evening": utility(parameters=PARAMETERS, availability={"condition": 'mode == "text"'}),
    "write": writing(parameters=PARAMETERS),
    "secret": utility(
        parameters={
            **PARAMETERS,
            "properties": {**PARAMETERS["properties"], "query": {"type": "string", "writeOnly": True}},
        }
    ),
}
DECORATED = f"""
from handrail import service, tool
from typing import Annotated, Any

PARAMETERS = {PARAMETERS!r}

@tool(parameters=PARAMETERS, description="Call a function.", guide="Calls a function.")
async def called(*, ctx, stage: Annotated[Any, service("stage")], **args):
    return await stage.play(args, ctx)

@tool(parameters=PARAMETERS, description="Run a component.", guide="Runs a component.")
class Component:
    async def run(self, params=None):
        return await self.ctx.stage.play(params, self.ctx)
"""
NAMES = (*TOOLS, "called", "component")
SHORT = {"look", "work_out", "speak", "mine", "promised", "brief", "called", "component"}
"""Those that have a short way."""


class Colour(StrEnum):
    RED = "found"


class Word(str):
    __slots__ = ()


class Stage:
    """What the handlers of one world were told, and what they do."""

    def __init__(self) -> None:
        self.played: list[Any] = []

    async def play(self, args: dict[str, Any], ctx: Any) -> Any:
        self.played.append((json.dumps(args), [type(value).__name__ for value in args.values()], list(args)))
        act = args["act"]
        if act in ACTS:
            return ACTS[act]
        if act.startswith("waits"):
            await asyncio.sleep(0)
        if act == "waits and raises" or act == "raises":
            raise RuntimeError("a secret")
        if act == "fails":
            from handrail import ToolError

            raise ToolError("TRANSIENT", "Not now.", retryable=True)
        if act == "changes its arguments":
            args["query"] = object()
            args.pop("top_k")
        if act == "asks for an intent":
            ctx.audio.suppress(True)
        if act == "looks around":
            # The key of a writing call holds the session's id, which is another one in each world.
            key = ctx.idempotency_key if ctx.tool.id != "write" else len(ctx.idempotency_key)
            facts = (ctx.args, ctx.tool.id, ctx.user, ctx.tenant, ctx.mode, key, ctx.earlier_calls)
            self.played.append((json.dumps(facts), ctx.session.is_active, ctx.clamped, sorted(ctx.capabilities)))
            with pytest.raises(AttributeError, match='no "nonsense"'):
                ctx.nonsense  # noqa: B018
        return {"ok": True, "data": {"results": [act]}}


class Closed(dict[str, Any]):
    """No short ways."""

    def __setitem__(self, name: str, value: Any) -> None: ...


class World:
    """A runtime with or without short ways, and its one session."""

    def __init__(self, *, shortcuts: bool) -> None:
        self.shortcuts = shortcuts
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock.milliseconds)
        self.audit = AuditLog(None, max_pending=100_000)
        self.stage = Stage()
        self.runtime = Runtime(
            Registry.load(built_once()),
            store=self.store,
            clock=self.clock,
            audit=self.audit,
            capabilities={"stage": self.stage},
            policy={"replays": 4, "refusals": 3, "observe": ["mode"]},
        )
        self.runtime.execution.jitter = lambda: 0.5
        self.session: Session

    async def open(self, mode: str, user: str | None) -> None:
        self._adopt(await self.runtime.open_session(mode=mode, user=user))

    def _adopt(self, session: Session) -> None:
        self.session = session
        if not self.shortcuts:
            session.plans.shortcuts = Closed()
        for name in NAMES:
            session.plans.find(name)  # a tool's first call makes its plan, and so goes along the flow

    async def do(self, what: str, given: Any) -> Any:
        match what:
            case "call":
                return [_facts((await self.session.call_many([call]))[0]) for call in given]
            case "at once":
                return [_facts(answer) for answer in await self.session.call_many(given)]
            case "turn":
                return await self.session.begin_turn(given)
            case "mode":
                return await self.session.set_mode(given)
            case "switch":
                await self.store.switch("look", given)
            case "block":
                await self.store.block(Block(tenant="", user="ana", until=self.clock.milliseconds() + 2_000))
            case "resume":
                self._adopt(await self.runtime.resume_session(self.session.id, token=self.session.token))
            case "stale":
                self.session.is_taken_over = True
            case "later":
                await self.clock.advance(given)
            case "reload":
                generation = copy(self.runtime.registry.generation)
                generation.version = "another"
                self.runtime.registry.generation = generation
            case "close":
                await self.session.close()
        return None

    async def left(self) -> Any:
        """What is to be seen of the world besides its answers."""
        session = self.session
        metrics = self.runtime.metrics.to_json()
        tools = {name: (tool["calls"], tool["errors"]) for name, tool in metrics["tools"].items()}
        counters = session.turn.counters() if session.turn is not None else None
        replays = sorted(session.replays)
        lines = [_plain(event) for event in self.audit.events]
        sizes = metrics["responseSizes"], metrics["sessions"]["calls"]
        state = dict(session.state.snapshot())
        # Written behind now, whenever the housekeeper would have done it: what was not marked as changed is missing.
        await self.runtime.housekeeper.write_behind()
        stored = await self.store.load_session(session.id)
        assert stored is not None
        assert not session.is_active or (stored.counters or None) == counters
        kept = _without_keys(stored.counters)
        return lines, tools, sizes, _without_keys(counters), replays, kept, state, self.stage.played


def _without_keys(counters: Mapping[str, Any] | None) -> Any:
    """Counters without ledger keys, which hold the session's id."""
    return counters and {**counters, "unknown": [pair for *pair, _ in counters["unknown"]]}


def _plain(event: Mapping[str, Any]) -> dict[str, Any]:
    assert event.get("duration", 0) >= 0
    # The key is made of the session's id; what the user is called is made up.
    named = ("ts", "duration", "sessionId", "ledgerKey", "user")
    return {name: value for name, value in event.items() if name not in named}


def _facts(answer: Any) -> Any:
    wire = answer.to_dict()
    assert wire["meta"].pop("duration") >= 0
    return json.dumps(wire, default=repr)


@cache
def built_once() -> Path:
    folder = tempfile.mkdtemp(prefix="handrail-short-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tools = Tools(Path(folder))
    tools.write({name: (fields, HANDLER) for name, fields in TOOLS.items()})
    (tools.root / "decorated_for_the_short_way.py").write_text(DECORATED, "utf-8")
    tools.build("decorated_for_the_short_way")
    return tools.artifact


texts = st.one_of(
    st.sampled_from(["", "a", "b: c", "é", "e\u0301", "\ud800", "x" * 300, "y" * 5000, "]", "null", '"']),
    st.text(max_size=5),
)
odd = st.one_of(
    st.sampled_from(
        [1.0, 0.5, 2**53, -(2**53), 2**70, [], ["a"], {}, {"a": 1}, Word("a"), Colour.RED, UUID(int=1), (1,)]
    ),
    st.booleans(),
    st.none(),
    st.integers(-3, 3),
)
acts = st.sampled_from([*ACTS, *MOVES, "found", "found", "nothing", Word("found"), Colour.RED])
objects = st.fixed_dictionaries(
    {"act": acts},
    optional={
        "query": st.one_of(texts, texts, odd),
        "top_k": st.one_of(st.integers(1, 3), odd),
        "deep": st.one_of(st.booleans(), odd),
        "a/b~c": st.one_of(st.none(), texts),
        "weight": odd,
        "tags": odd,
        "foreign": odd,
    },
)
few = st.fixed_dictionaries({"act": acts}, optional={"query": st.sampled_from(["a", "b"])})
WRITTEN = st.sampled_from(
    [
        "{",
        "",
        "null",
        "[]",
        '{"act":"found","act":"text"}',
        ' {"act":"found"} ',
        '{"act":"found"}{}',
        '{"act" : "found", "query": "a: b"}',
        '```json\n{"act":"found"}\n```',
        '{"act":"found","top_k":9007199254740993}',
        '{"act":"found","top_k":1.0}',
        '{"act":"found","query":"\\ud800"}',
        b'{"act":"found"}',
        "x" * 70_000,
        None,
        7,
    ]
)


def _as_text(args: dict[str, Any]) -> Any:
    try:
        return json.dumps(args, ensure_ascii=False)
    except TypeError:
        return args


given_args = st.one_of(few, few, objects, objects.map(_as_text), few.map(_as_text), WRITTEN)
ids = st.sampled_from(["c1", "c2", "c3", "c4", "c5", "c6", "c7", None, "", "é", "\ud800", 7, 'with "quotes"'])
calls = st.builds(
    Call,
    name=st.sampled_from([*NAMES, *["look", "work_out"] * 6, "lok", "", None]),
    args=given_args,
    call_id=st.one_of(st.uuids().map(str), ids),
    provider=st.sampled_from([None, "openai-chat", "gemini", "é", "\ud800", 7, []]),
    id_scope=st.sampled_from(["session", "session", "session", "connection", "message", "none"]),
)
moves = st.one_of(
    st.tuples(st.just("call"), st.lists(calls, min_size=1, max_size=4)),
    st.tuples(st.just("call"), st.lists(calls, min_size=1, max_size=4)),
    st.tuples(st.just("call"), calls.map(lambda call: [call] * 2)),
    st.tuples(st.just("at once"), st.lists(calls, min_size=2, max_size=5)),
    st.tuples(st.just("turn"), st.sampled_from([None, "m1"])),
    st.tuples(st.just("mode"), st.sampled_from(["text", "voice"])),
    st.tuples(st.just("switch"), st.sampled_from([None, "under repair"])),
    st.tuples(st.sampled_from(["block", "resume", "stale", "close"]), st.none()),
    st.tuples(st.just("later"), st.sampled_from([0.3, 3])),
)


@given(
    mode=st.sampled_from(["text", "voice"]),
    user=st.sampled_from([None, "ana"]),
    story=st.lists(moves, min_size=1, max_size=12),
)
async def test_the_short_way_and_the_flow_cannot_be_told_apart(
    mode: str, user: str | None, story: list[tuple[str, Any]]
) -> None:
    await _told_to_both(mode, user, story)


async def _told_to_both(mode: str, user: str | None, story: list[tuple[str, Any]]) -> list[Any]:
    """What came of each move, which was the same in both worlds."""
    asyncio.get_running_loop().set_default_executor(AtOnce())
    worlds = World(shortcuts=True), World(shortcuts=False)
    for world in worlds:
        await world.open(mode, user)
    came = []
    for what, given_to in story:
        outcomes = []
        for world in worlds:
            try:
                outcomes.append(await meanwhile(world.clock, world.do(what, given_to)))
            except Exception as error:  # noqa: BLE001  # a resume after a close, for one: then both refuse it
                outcomes.append(repr(error))
        assert outcomes[0] == outcomes[1]
        one, other = [await world.left() for world in worlds]
        for mine, its in zip(one, other, strict=True):
            assert mine == its
        came.append(outcomes[0])
    for world in worlds:
        await world.runtime.close()
    return came


def _of(*args: Any, tool: str = "work_out", id: str = "c", **facts: Any) -> tuple[str, list[Call]]:
    """Calls one after the other, each under an id of its own."""
    made = [Call(tool, given_to, f"{id}{number}", **facts) for number, given_to in enumerate(args)]
    return "call", made


FOUND, NOTHING = {"act": "found"}, {"act": "nothing"}
MANY = [{"act": "found", "query": str(number)} for number in range(7)]
STORIES: dict[str, tuple[str, list[tuple[str, Any]], str]] = {
    "a newer connection": ("text", [("turn", None), ("stale", None), _of(FOUND)], "replaced by a newer one"),
    "a tool switched off": ("text", [("switch", "broken"), ("later", 1), _of(FOUND, tool="look")], "switched off"),
    "a blocked user": ("text", [("turn", None), ("block", None), ("later", 1), _of(FOUND)], "blocked"),
    "a session that has ended": ("text", [("turn", None), ("close", None), _of(FOUND)], "has ended"),
    "the third identical call": ("text", [_of(FOUND, FOUND, FOUND)], "3 times with the same"),
    "letters in two ways": (
        "text",
        [_of({"act": "found", "query": "é"}, *[{"act": "found", "query": "e\u0301"}] * 2)],
        "3 times with the same",
    ),
    "a third one after a resume": ("text", [_of(FOUND, FOUND), ("resume", None), _of(FOUND, id="d")], "3 times"),
    "too many searches": ("text", [_of(*MANY, tool="look")], "retrieval calls of this turn"),
    "too many calls": ("voice", [_of(*MANY)], "calls of this turn are used up"),
    "a search that finds nothing": (
        "text",
        [_of(*[{**NOTHING, "query": word} for word in "abcd"], tool="look")],
        "found nothing 2 times",
    ),
    "a key that comes twice": ("text", [_of('{"act":"found","act":"text"}')], "occurs twice"),
    "a float": ("text", [_of({"act": "found", "weight": 1.0}, {"act": "found", "weight": 1})], "0.5"),
    "an integer that is too large": ("text", [_of({"act": "found", "top_k": 2**53})], "2^53"),
    "an integer in a text that is too large": ("text", [_of('{"act":"found","top_k":9007199254740993}')], "2^53"),
    "a list": ("text", [_of({"act": "found", "tags": ["b", "a"]})], "0.5"),
    "a foreign type": ("text", [_of({"act": "found", "query": UUID(int=1)})], "is not JSON"),
    "texts of a class of their own": ("text", [_of({"act": Word("found")}, {"act": Colour.RED})], "0.5"),
    "a key of a class of its own": ("text", [_of({"act": "found", Word("query"): "a"})], "0.5"),
    "half a surrogate pair": ("text", [_of({"act": "found", "query": "\ud800"})], "surrogate"),
    "arguments that are too large": ("text", [_of({"act": "found", "query": "x" * 70_000})], "larger than"),
    "a long text": ("text", [_of({"act": "found", "query": "x" * 5_000})], "0.5"),
    "an intent": ("text", [_of({"act": "intent"})], "SET_PENDING_MESSAGE"),
    "an intent by a capability": ("voice", [_of({"act": "asks for an intent"})], "SUPPRESS_AUDIO"),
    "a promise broken": ("text", [_of({"act": "text"}, FOUND, tool="promised")], "cannot be used"),
    "a result that is too long": ("text", [_of({"act": "long"}, tool="brief")], "truncated"),
    "a number that is none": ("text", [_of({"act": "not a number"})], "cannot be used"),
    "ok that is 1": ("text", [_of({"act": "nonsense"})], "cannot be used"),
    "a result that waits": ("text", [_of({"act": "waits"}, {"act": "waits"}), _of({"act": "waits"})], "replayed"),
    "a handler that raises": ("text", [_of({"act": "raises"}, {"act": "waits and raises"})], "failed unexpectedly"),
    "a service that is away": ("text", [_of({"act": "fails"})], '"attempts": 2'),
    "arguments that the handler changes": ("text", [_of({"act": "changes its arguments"})] * 2, "replayed"),
    "a replay": ("text", [_of(FOUND)] * 2, '"replayed": true'),
    "an id used for another call": ("text", [_of(FOUND), _of({**FOUND, "top_k": 9})], "used before for another"),
    "the same with what would be filled in": ("text", [_of(FOUND), _of({**FOUND, "top_k": 5})], "used before"),
    "a replay that was forgotten": ("text", [_of(*MANY), _of(MANY[0])], "results"),
    "an id for one connection": ("text", [_of(FOUND, id_scope="connection"), ("resume", None), _of(FOUND)], "results"),
    "no stable id": ("text", [_of(FOUND, FOUND, FOUND, id_scope="none")], "3 times with the same"),
    "an id of a call that wrote": ("text", [_of(FOUND, tool="write"), _of(FOUND)], "used before for another"),
    "something to save": ("text", [("later", 1), _of(FOUND)], "results"),
    "tools built again": ("text", [("reload", None), _of(FOUND)], "resume the session"),
    "a tool for voice": ("text", [_of(FOUND, tool="speak")], "results"),
    "a user who is not signed in": ("text", [_of(FOUND, tool="mine")], "sign in"),
    "nulls of a strict mode": (
        "text",
        [_of({"act": "found", "query": None, "top_k": None}, tool="strict", provider="openai-chat")],
        "",
    ),
}


@pytest.mark.parametrize("name", STORIES)
async def test_the_same_comes_of(name: str) -> None:
    mode, story, end = STORIES[name]

    came = await _told_to_both(mode, None if "not signed in" in name else "ana", [("turn", None), *story])

    assert end in str(came[-1])


async def test_plain_tools_have_a_short_way_and_others_have_none() -> None:
    world = World(shortcuts=True)
    await world.open("text", "ana")

    for name in NAMES:
        await world.session.call(name, {"act": "found"}, call_id=name)

    assert set(world.session.plans.shortcuts) == SHORT | {"strict"}
    await world.runtime.close()


async def test_a_plain_call_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shortcuts=True)
    await world.open("text", "ana")
    await world.session.call("look", {"act": "found"}, call_id="the first makes the plan")

    async def flow(*call: object) -> Any:
        raise AssertionError("This call went along the flow.")

    monkeypatch.setattr(type(world.runtime.pipeline), "call", flow)

    for number, args in enumerate(({"act": "found", "query": "é"}, '{"act":"found","top_k":2}', {"act": "waits"})):
        assert (await world.session.call("look", args, call_id=str(number))).ok
    await world.runtime.close()


async def test_a_gate_that_the_short_way_does_not_know_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short, "EARLY", (*short.EARLY, object()))
    world = World(shortcuts=True)
    await world.open("text", "ana")

    assert (await world.session.call("look", {"act": "found"}, call_id="c")).ok

    assert not world.session.plans.shortcuts
    assert mode_gate in short.EARLY
    await world.runtime.close()


async def test_a_replay_is_not_changed_by_what_its_caller_does_to_the_first_answer() -> None:
    world = World(shortcuts=True)
    await world.open("text", "ana")
    await world.session.call("look", {"act": "found"}, call_id="the first makes the plan")
    first = await world.session.call("look", {"act": "found", "query": "a"}, call_id="c")
    wire = json.dumps(first.to_dict())
    first.data["results"].clear()
    first.meta["defaulted"].clear()

    again = await world.session.call("look", {"act": "found", "query": "a"}, call_id="c")

    ACTS["found"]["data"]["results"].append({"id": 1, "score": 0.5})
    assert again.meta.pop("replayed") is True
    assert json.dumps(again.to_dict()) == wire
    await world.runtime.close()

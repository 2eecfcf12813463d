"""Stories of calls, written and generated: whatever a model sends and whatever a handler does, each call gets one envelope and
one audit line, handlers get plain arguments with their defaults, and the store has what was counted."""

import asyncio
import atexit
import json
import shutil
import tempfile
from copy import copy
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.bank import meanwhile
from tests.runtime.kit import AtOnce, Tools, reading, utility, writing

from handrail import Call, HandrailError, Registry, Runtime, Session
from handrail.contract.store import Block
from handrail.observe.audit import AuditLog
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
    return await ctx.script.play(args, ctx)
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
async def called(*, ctx, script: Annotated[Any, service("script")], **args):
    return await script.play(args, ctx)

@tool(parameters=PARAMETERS, description="Run a component.", guide="Runs a component.")
class Component:
    async def run(self, params=None):
        return await self.ctx.script.play(params, self.ctx)
"""
NAMES = (*TOOLS, "called", "component")
DEFAULTS = {"top_k", "deep", "a/b~c"}
OUTCOMES = ("execution", "replay", "refusal", "held")
PLAIN = (str, int, float, bool, type(None), list, dict)


class Colour(StrEnum):
    RED = "found"


class Word(str):
    __slots__ = ()


class HandlerScript:
    """What the handlers were told, and what they do."""

    def __init__(self) -> None:
        self.played: list[Any] = []

    async def play(self, args: dict[str, Any], ctx: Any) -> Any:
        self.played.append((ctx.tool.id, dict(args)))
        assert all(type(value) in PLAIN for value in (args, *args, *args.values()))
        assert args.keys() >= DEFAULTS
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
            assert ctx.args == args
            assert (ctx.tenant, ctx.mode) == ("", "voice" if ctx.clamped else ctx.mode)
            assert ctx.idempotency_key
            assert ctx.earlier_calls >= 0
            assert ctx.session.is_active
            assert "script" in ctx.capabilities
            with pytest.raises(AttributeError, match='no "nonsense"'):
                ctx.nonsense  # noqa: B018
        return {"ok": True, "data": {"results": [act]}}


class World:
    """A runtime and its one session."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock.milliseconds)
        self.audit = AuditLog(None, max_pending=100_000)
        self.script = HandlerScript()
        self.runtime = Runtime(
            Registry.load(built_once()),
            store=self.store,
            clock=self.clock,
            audit=self.audit,
            capabilities={"script": self.script},
            policy={"replays": 4, "refusals": 3, "observe": ["mode"]},
        )
        self.runtime.execution.jitter = lambda: 0.5
        self.session: Session

    async def open(self, mode: str, user: str | None) -> None:
        self.session = await self.runtime.open_session(mode=mode, user=user)

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
                self.session = await self.runtime.resume_session(self.session.id, token=self.session.token)
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

    def lines(self, *names: str) -> list[dict[str, Any]]:
        """The audit lines that calls have left; of these names only, if there are any."""
        return [event for event in self.audit.events if event["event"] in (names or OUTCOMES)]

    async def check_stored(self) -> None:
        """Written behind now, whenever the housekeeper would have done it: what was not marked as changed is missing."""
        session = self.session
        await self.runtime.housekeeper.write_behind()
        stored = await self.store.load_session(session.id)
        assert stored is not None
        counters = session.turn.counters() if session.turn is not None else None
        assert not session.is_active or (stored.counters or None) == counters


def _facts(answer: Any) -> str:
    wire = answer.to_dict()
    assert wire["meta"]["duration"] >= 0
    return json.dumps(orjson.loads(orjson.dumps(wire)))  # what is sent can be sent


@cache
def built_once() -> Path:
    folder = tempfile.mkdtemp(prefix="handrail-stories-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tools = Tools(Path(folder))
    tools.write({name: (fields, HANDLER) for name, fields in TOOLS.items()})
    (tools.root / "decorated_for_the_stories.py").write_text(DECORATED, "utf-8")
    tools.build("decorated_for_the_stories")
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
async def test_every_call_gets_one_envelope_and_leaves_one_line(
    mode: str, user: str | None, story: list[tuple[str, Any]]
) -> None:
    await _played(mode, user, story)


async def _played(mode: str, user: str | None, story: list[tuple[str, Any]]) -> tuple[World, list[Any]]:
    """The world after a story, and what came of each move."""
    asyncio.get_running_loop().set_default_executor(AtOnce())
    world = World()
    await world.open(mode, user)
    came, calls = [], 0
    for what, given_to in story:
        try:
            outcome = await meanwhile(world.clock, world.do(what, given_to))
        except HandrailError as error:  # a resume after a close, for one
            outcome = str(error)
        calls += len(given_to) if what in ("call", "at once") else 0
        assert len(world.lines()) == calls
        await world.check_stored()
        came.append(outcome)
    await world.runtime.close()
    return world, came


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
async def test_this_comes_of(name: str) -> None:
    mode, story, end = STORIES[name]

    _, came = await _played(mode, None if "not signed in" in name else "ana", [("turn", None), *story])

    assert end in str(came[-1])


LINE = {
    "event": "execution",
    "turnId": 1,
    "connection": 1,
    "mode": "text",
    "provider": "openai-chat",
    "toolId": "work_out",
    "toolVersion": "1.0.0",
    "category": "utility",
    "callId": "c0",
    "idempotencyKey": "provider:c0",
    "ok": True,
    "errorType": None,
    "args": {"a/b~c": None, "act": "found", "deep": False, "top_k": 5},
    "defaulted": ["/top_k", "/deep", "/a~1b~0c"],
}
LINES: dict[str, tuple[tuple[str, list[Call]], dict[str, Any]]] = {
    "a plain call": (_of(FOUND, provider="openai-chat"), LINE),
    "an id that is no ASCII": (
        _of(FOUND, id="é", provider="openai-chat"),
        {**LINE, "callId": "é0", "idempotencyKey": "provider:é0"},
    ),
    "an id that is no text": (
        ("call", [Call("work_out", FOUND, 7, "openai-chat")]),  # type: ignore[arg-type]
        {**LINE, "callId": 7, "idempotencyKey": "hash:1:"},
    ),
    "half a surrogate pair for an id and a provider": (
        ("call", [Call("work_out", FOUND, "\ud800", "\ud800")]),
        {**LINE, "callId": "\ud800", "provider": "\ud800", "idempotencyKey": "hash:1:"},
    ),
    "a provider that is no text": (
        ("call", [Call("work_out", FOUND, "c0", [])]),  # type: ignore[arg-type]
        {**LINE, "provider": []},
    ),
    "nothing filled in": (
        _of({"act": "found", "top_k": 1, "deep": True, "a/b~c": "x"}, provider="openai-chat"),
        {name: value for name, value in LINE.items() if name != "defaulted"}
        | {"args": {"a/b~c": "x", "act": "found", "deep": True, "top_k": 1}},
    ),
    "a failure": (
        _of({"act": "failure"}, provider="openai-chat"),
        {**LINE, "ok": False, "errorType": "NOT_FOUND", "args": {**LINE["args"], "act": "failure"}},  # type: ignore[dict-item]
    ),
    "a call that wrote": (
        _of(FOUND, tool="write", provider="openai-chat"),
        {**LINE, "toolId": "write", "ledgerKey": ""},
    ),
    "arguments that are hidden": (
        _of({"act": "found", "query": "hush"}, tool="secret", provider="openai-chat"),
        {**LINE, "toolId": "secret", "args": {**LINE["args"], "query": "[redacted]"}},  # type: ignore[dict-item]
    ),
    "arguments that the handler changed": (
        _of({"act": "changes its arguments"}, provider="openai-chat"),
        {**LINE, "args": {**LINE["args"], "act": "changes its arguments"}},  # type: ignore[dict-item]
    ),
}
_MADE = ("ts", "seq", "duration", "sessionId", "registryVersion", "category", "validator", "validatorMs")
"""What is another in each run, or each tool."""


@pytest.mark.parametrize("name", LINES)
async def test_the_audit_line_of(name: str) -> None:
    story, expected = LINES[name]
    if "defaulted" in expected:
        # As it came: the arguments that were validated, without those that were filled in.
        filled = {pointer[1:].replace("~1", "/").replace("~0", "~") for pointer in expected["defaulted"]}
        parsed = {key: value for key, value in expected["args"].items() if key not in filled}
        expected = {**expected, "parsed": parsed}

    world, _ = await _played("text", None, [("turn", None), story])

    (line,) = world.lines()
    assert line["duration"] >= 0
    assert line["sessionId"] == world.session.id
    for key in ("idempotencyKey", "ledgerKey"):
        if key in line and key in expected:
            assert line[key].startswith(expected[key])
    assert line.keys() == expected.keys() | set(_MADE)
    varying = {*_MADE, "idempotencyKey", "ledgerKey"}
    assert {key: value for key, value in line.items() if key not in varying} == {
        key: value for key, value in expected.items() if key not in varying
    }


async def test_a_clamped_call_says_so_in_its_line_and_its_answer() -> None:
    world, came = await _played("voice", "ana", [("turn", None), _of({"act": "found", "top_k": 9}, tool="clamped")])

    (line,) = world.lines()
    assert (line["args"]["top_k"], line["clamped"]) == (2, ["top_k"])
    assert '"clamped": ["top_k"]' in came[-1][0]
    assert world.script.played == [("clamped", {"act": "found", "top_k": 2, "deep": False, "a/b~c": None})]


async def test_the_handler_gets_keys_in_the_order_of_the_model_and_defaults_after_them() -> None:
    world, _ = await _played(
        "text", "ana", [("turn", None), _of({"query": "b", "act": "found"}, '{"query":"a","act":"found"}')]
    )

    assert [list(args) for _, args in world.script.played] == [["query", "act", "top_k", "deep", "a/b~c"]] * 2


async def test_numbers_count_every_call() -> None:
    world, _ = await _played(
        "text", "ana", [("turn", None), _of(FOUND, {"act": "failure"}, {"act": 1}, FOUND, tool="look")]
    )

    tool = world.runtime.metrics.to_json()["tools"]["look"]
    assert (tool["calls"], tool["errors"]) == (4, {"NOT_FOUND": 1, "VALIDATION": 1})

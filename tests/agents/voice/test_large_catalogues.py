"""Many tools, opened by voice with nothing typed: every conversation reaches the tool that it needs, on both live providers.

The catalogue is real: the functions of the Berkeley leaderboard and MetaTool's tools, with others beside them up to the size. The
conversations are the leaderboard's own questions. The model is honest: it calls what is declared to it, and otherwise looks for a
tool with the user's words, or with words of its own where those find nothing.
"""

import asyncio
import atexit
import json
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.agents.voice.kit import Client
from tests.clients.live.kit import LIMITS, PROVIDERS, new_model, new_server
from tests.providers.bfcl import accepted_calls, json_schema

from handrail import Runtime, pick_tools
from handrail.agents import AgentPolicy, Prompts
from handrail.agents.conversation import Conversation
from handrail.agents.tool_selection import ToolSelection
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import Abilities, VoicePolicy
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.registry import Registry
from handrail.testing.servers.live import Ask, Decide, Say, ScriptedCall, Turn, silence, speech
from handrail.testing.servers.live.script import Outcome, Step

DATA = Path(__file__).parents[2] / "data"
REFERENCE = ("find_tools", "get_tool_guide", "end_voice_session", "ignore_user", "kb_search")
OWN_WORDS = {
    "multiply": "multiply two numbers",
    "fetchPerson": "fetch a person by id",
    "todo_add": "add an item to a to-do list",
    "calc_binomial_prob": "probability by the binomial distribution",
    "psych_research_get_preference": "research data on public preference",
}
"""What the model asks for where the user's words are not enough."""
HANDLER = """
async def execute(args, ctx):
    return {"ok": True, "data": {"done_by": ctx.tool.id}}
"""
CONVERSATIONS = 8


@dataclass(frozen=True)
class Question:
    """What a user says, and the call that does it."""

    said: str
    tool: str
    args: Mapping[str, Any]


@cache
def leaderboard() -> tuple[dict[str, tuple[str, Mapping[str, Any]]], list[Question]]:
    """Every function under its own name, and the questions that one function answers."""
    functions: dict[str, tuple[str, Mapping[str, Any]]] = {}
    asked: dict[str, Question] = {}
    for item in json.loads((DATA / "bfcl_dev.json").read_text("utf-8"))["items"]:
        for function in item["function"]:
            parameters = json_schema(function["parameters"]) | {"additionalProperties": False}
            name = re.sub(r"\W", "_", function["name"], flags=re.ASCII)
            functions.setdefault(name, (function["description"][:1024], parameters))
        said = " ".join(message["content"] for message in item["question"][0] if message["role"] == "user")
        if (
            item["category"] in ("simple_python", "live_simple")
            and len(said) < 300
            and functions[name][1] == parameters
        ):
            args = next(accepted_calls(item["ground_truth"][0][function["name"]], parameters))
            asked.setdefault(name, Question(said, name, args))
    return functions, list(asked.values())


def conversations() -> list[Question]:
    """Some of all, evenly."""
    asked = leaderboard()[1]
    return asked[:: len(asked) // CONVERSATIONS][:CONVERSATIONS]


FIELDS = {
    "version": "1.0.0",
    "category": "utility",
    "sideEffects": "none",
    "idempotent": True,
    "requiresConfirmation": False,
    "allowedModes": ["text", "voice"],
    "latencyBudgetMs": 500,
}


def towns(root: Path, size: int, **more: Any) -> BuildPlan:
    """A project with a number of tools of its own, and none of Handrail's."""
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    for number in range(size):
        folder = root / "tools" / f"town-{number:03}"
        folder.mkdir(parents=True)
        said = f"Weather of town {number:03}."
        schema = {"toolId": f"town_{number:03}", "description": said, "parameters": parameters, **FIELDS, **more}
        (folder / "schema.json").write_text(json.dumps(schema), "utf-8")
        (folder / "guide.md").write_text(f"# Town {number}\n\n{said}\n", "utf-8")
        (folder / "handler.py").write_text(HANDLER, "utf-8")
    return BuildPlan(tools=root / "tools", artifact=root / "tool_registry.json", project=root)


def loaded(plan: BuildPlan) -> Registry:
    result = build(plan)
    assert not result.errors, [str(finding) for finding in result.errors][:3]
    write(result, stamp_for(result, {}))
    made = Registry.load(plan.artifact)
    made.lock()
    return made


@cache
def catalogue(size: int) -> Registry:
    """A number of tools of both modes, the reference tools among them, in a folder that goes away with the process."""
    functions, nothing = leaderboard()[0], {"type": "object", "properties": {}, "additionalProperties": False}
    wanted = {question.tool: functions[question.tool] for question in conversations()} | functions
    for name, description in json.loads((DATA / "metatool_dev.json").read_text("utf-8"))["tools"].items():
        wanted.setdefault(re.sub(r"\W", "_", name), (description, nothing))
    for number in range(size):
        wanted.setdefault(f"archive_{number}", (f"Counts the papers on shelf {number} of the archive.", nothing))
    root = Path(mkdtemp(prefix="handrail-catalogue-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name, (description, parameters) in list(wanted.items())[: size - len(REFERENCE) - 1]:
        folder = root / "tools" / name.replace("_", "-")
        folder.mkdir(parents=True, exist_ok=True)
        schema = {"toolId": name, "description": description, "parameters": parameters, **FIELDS}
        (folder / "schema.json").write_text(json.dumps(schema), "utf-8")
        (folder / "guide.md").write_text(f"# {name}\n\n{description[:200]}\n", "utf-8")
        (folder / "handler.py").write_text(HANDLER, "utf-8")
    erase = {**FIELDS, "category": "action", "sideEffects": "writes", "idempotent": False, "requiresConfirmation": True}
    erase |= {
        "toolId": "erase_archive",
        "description": "Erases the archive.",
        "preview": "Erase all.",
        "parameters": nothing,
    }
    place = root / "tools" / "erase-archive"
    place.mkdir()
    (place / "schema.json").write_text(json.dumps(erase), "utf-8")
    (place / "guide.md").write_text("# erase_archive\n\nErases the archive.\n", "utf-8")
    (place / "handler.py").write_text(HANDLER, "utf-8")
    return loaded(
        BuildPlan(tools=root / "tools", artifact=root / "tool_registry.json", project=root, reference=REFERENCE)
    )


def model_that_wants(question: Question) -> Decide:
    """Calls the tool if it is declared, or has been found; looks for it otherwise, twice at most."""

    def choose(declared: Sequence[str], outcomes: Sequence[Outcome]) -> Sequence[Step]:
        looked = [envelope for name, envelope in outcomes if name == "find_tools"]
        found = [tool["tool_id"] for tool in looked[-1]["data"]["tools"]] if looked else []
        if question.tool in declared:
            return [Ask(ScriptedCall(question.tool, dict(question.args))), Say("Done.")]
        if question.tool in found and "call_tool" in declared:
            args = {"tool_id": question.tool, "arguments": json.dumps(question.args)}
            return [Ask(ScriptedCall("call_tool", args)), Say("Done.")]
        if question.tool in found or len(looked) == 2:
            return [Say("It cannot be done.")]
        task = question.said if not looked else OWN_WORDS.get(question.tool, question.said)
        return [Ask(ScriptedCall("find_tools", {"task": task})), Decide(choose)]

    return Decide(choose)


@dataclass
class Spoken:
    """One conversation, from its beginning."""

    server: Any
    runtime: Runtime
    client: Client
    voice: Any

    async def speak(self) -> None:
        rate = self.voice.input_rates[0]
        pcm = speech(120, rate) + silence(260, rate)
        for place in range(0, len(pcm), rate // 50 * 2):
            self.voice.hear(pcm[place : place + rate // 50 * 2], rate)

    def first_tools(self) -> list[str]:
        """What was declared before anybody had spoken."""
        first = self.server.received[0]
        if "setup" in first:
            return [function["name"] for tool in first["setup"]["tools"] for function in tool["functionDeclarations"]]
        return [tool["name"] for tool in first["session"]["tools"]]


@asynccontextmanager
async def opened(provider: str, runtime: Runtime, turns: Sequence[Turn]) -> AsyncIterator[Spoken]:
    """Voice from the first moment, on the provider's SDK and the local server."""
    async with new_server(provider, turns) as server:
        model = new_model(provider, server, limits=LIMITS)
        session = await runtime.open_session(mode="voice", user="ana")
        client = Client()
        agent = VoiceAgent(runtime, model, policy=VoicePolicy(), picker=pick_tools)
        voice = client.voice = await agent.begin(session, Conversation(), client, abilities=Abilities())
        try:
            yield Spoken(server, runtime, client, voice)
        finally:
            await voice.close()
            await model.close()


def new_runtime(registry: Registry) -> Runtime:
    return Runtime(registry, store="memory:", capability_checks=False)


async def reach(provider: str, runtime: Runtime, question: Question) -> int:
    """Have the conversation, and say how often the model had to look for the tool."""
    async with opened(provider, runtime, [Turn([model_that_wants(question)], question.said)]) as spoken:
        await spoken.speak()
        await spoken.client.until("turn_done")
        assert {"end_voice_session", "ignore_user", "kb_search", "find_tools"} <= set(spoken.first_tools())
        assert len(spoken.first_tools()) <= 41
        finished = spoken.client.of("tool_finished")
        assert finished[-1]["toolId"] == question.tool, (provider, question)
        assert spoken.server.outcomes[-1][1]["data"] == {"done_by": question.tool}
        assert spoken.server.complaints == []
        return len(finished) - 1


@pytest.mark.parametrize("size", [77, 1_000])
async def test_every_conversation_that_begins_by_voice_reaches_the_tool_that_it_needs(size: int) -> None:
    for provider in PROVIDERS:
        async with new_runtime(catalogue(size)) as runtime:
            searches = [await reach(provider, runtime, question) for question in conversations()]
            assert max(searches) > 0  # some tools were not declared at the beginning


@pytest.mark.long
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_question_of_the_leaderboard_reaches_its_tool_among_a_thousand(provider: str) -> None:
    async with new_runtime(catalogue(1_000)) as runtime:
        for question in leaderboard()[1]:
            await reach(provider, runtime, question)


async def test_a_tool_that_was_found_is_declared_before_the_model_learns_of_it() -> None:
    question = max(conversations(), key=lambda one: one.tool)
    turns = [Turn([model_that_wants(question)], "Hm.")]  # words that bring no tool
    async with new_runtime(catalogue(77)) as runtime, opened("openai-realtime", runtime, turns) as spoken:
        await spoken.speak()
        await spoken.client.until("turn_done")
        called = [one["toolId"] for one in spoken.client.of("tool_finished")]
        assert called == ["find_tools", question.tool]
        assert spoken.server.complaints == []


async def test_the_offer_follows_what_is_said_where_the_provider_can_change_tools() -> None:
    question = max(
        conversations(), key=lambda one: one.tool
    )  # nothing was used yet, so the first are those of the first names
    runtime = new_runtime(catalogue(77))
    turns = [
        Turn([Say("Which one?")], question.said),
        Turn([Ask(ScriptedCall(question.tool, dict(question.args))), Say("Done.")], "Yes, that."),
    ]
    async with runtime, opened("openai-realtime", runtime, turns) as spoken:
        assert question.tool not in spoken.first_tools()
        await spoken.speak()
        await spoken.client.until("turn_done")
        async with asyncio.timeout(30):
            while question.tool not in spoken.server.conversations[0].declared:
                await asyncio.sleep(0.01)
        assert {"end_voice_session", "ignore_user", "kb_search", "find_tools"} <= set(
            spoken.server.conversations[0].declared
        )
        updates = [one for one in spoken.server.received if one["type"] == "session.update"]
        assert len(updates) == 2
        assert f"`{question.tool}`" in updates[1]["session"]["instructions"]
        await spoken.speak()
        await spoken.client.until("turn_done", 2)
        assert [one["toolId"] for one in spoken.client.of("tool_finished")] == [question.tool]


CALLED_WRONGLY: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_id": "no_such_tool", "arguments": "{}"}, "NOT_FOUND", "no_such_tool"),
    ({"tool_id": "call_tool", "arguments": "{}"}, "NOT_FOUND", "call_tool"),
    ({"tool_id": "math_factorial", "arguments": '{"number": 1, "number": 2}'}, "VALIDATION", "math_factorial"),
    ({"tool_id": "math_factorial", "arguments": '{"number": "five"}'}, "VALIDATION", "math_factorial"),
    ({"tool_id": "math_factorial", "arguments": "five"}, "VALIDATION", "math_factorial"),
    ({"tool_id": "multiply", "arguments": "{}"}, "NOT_FOUND", "multiply"),
    ({"arguments": "{}"}, "NOT_FOUND", ""),
    ({"tool_id": 5}, "NOT_FOUND", ""),
]


@pytest.mark.parametrize(("args", "kind", "name"), CALLED_WRONGLY)
async def test_call_tool_is_no_way_around_a_gate(args: dict[str, Any], kind: str, name: str) -> None:
    others = [one for one in catalogue(77).snapshot().tools if one != "multiply"]
    turns = [Turn([Ask(ScriptedCall("call_tool", args)), Say("No.")], "Do it.")]
    runtime = Runtime(catalogue(77), store="memory:", capability_checks=False, policy={"user_tools": others})
    async with runtime, opened("gemini-live", runtime, turns) as spoken:
        await spoken.speak()
        await spoken.client.until("turn_done")
        assert [envelope["error"]["type"] for _, envelope in spoken.server.outcomes] == [kind]
        assert [one["toolId"] for one in spoken.client.of("tool_refused")] == [name]
        assert spoken.server.complaints == []


async def test_the_most_used_tools_are_offered_first() -> None:
    used = max(conversations(), key=lambda one: one.tool)
    async with new_runtime(catalogue(77)) as runtime:
        async with opened("gemini-live", runtime, []) as spoken:
            assert used.tool not in spoken.first_tools()
        session = await runtime.open_session(mode="text", user="bo")
        await session.call(used.tool, dict(used.args))
        assert runtime.usage is not None
        await runtime.usage.store(runtime.store.usage)
        async with opened("gemini-live", runtime, []) as spoken:
            assert used.tool in spoken.first_tools()


async def test_declarations_stay_within_their_budget_of_tokens_and_those_always_offered_are_there() -> None:
    async with new_runtime(catalogue(77)) as runtime:
        session = await runtime.open_session(mode="voice", user="ana")
        selection = ToolSelection(Prompts.load(), AgentPolicy(declaration_tokens=3_000), pick_tools)
        now = datetime(2026, 1, 5, tzinfo=UTC)
        prompt = await selection.live_prompt(session, "gemini-live", "", (), now, "UTC", changes_tools=False)
        assert {"end_voice_session", "ignore_user", "kb_search", "find_tools"} <= set(prompt.tools)
        assert len(prompt.tools) < 40
        assert 2_500 < prompt.declaration_tokens < 3_200  # `call_tool` comes on top


async def test_a_project_with_more_tools_than_are_offered_gets_the_search_by_itself(tmp_path: Path) -> None:
    question = Question("Weather of town 070.", "town_070", {})
    registry = loaded(towns(tmp_path, 77))
    assert len(registry) == 78
    async with new_runtime(registry) as runtime:
        turns = [Turn([model_that_wants(question)], question.said)]
        async with opened("gemini-live", runtime, turns) as spoken:
            assert question.tool not in spoken.first_tools()
            assert {"find_tools", "call_tool"} <= set(spoken.first_tools())
            await spoken.speak()
            await spoken.client.until("turn_done")
            assert spoken.client.of("tool_finished")[-1]["toolId"] == question.tool
    few = build(towns(tmp_path / "few", 3))
    assert [entry["toolId"] for entry in few.entries] == ["town_000", "town_001", "town_002"]


async def test_where_the_search_is_not_for_this_user_the_prompt_claims_no_choice(tmp_path: Path) -> None:
    registry = loaded(towns(tmp_path, 77))
    own = [name for name in registry.snapshot().tools if name != "find_tools"]
    async with Runtime(registry, store="memory:", capability_checks=False, policy={"user_tools": own}) as runtime:
        session = await runtime.open_session(mode="voice", user="ana")
        selection = ToolSelection(Prompts.load(), AgentPolicy(), pick_tools)
        now = datetime(2026, 1, 5, tzinfo=UTC)
        prompt = await selection.live_prompt(session, "gemini-live", "", (), now, "UTC", changes_tools=False)
        assert (len(prompt.tools), prompt.left_out) == (40, 37)
        assert "There are 37 more tools, which are not offered here." in prompt.text


async def test_tools_always_offered_leave_room_and_the_build_names_those_beyond(tmp_path: Path) -> None:
    plan = replace(towns(tmp_path, 160, alwaysOffer=True, waivers={"always-offer": "A test."}), max_tools=150)
    told = [limit for limit in build(plan).limits if "alwaysOffer" in limit]
    assert [one.partition(" (")[0] for one in told] == [
        f'"alwaysOffer" has 100 places in {mode}' for mode in ("text", "voice")
    ]
    assert told[0].endswith(
        f"these are offered like any other tool: {', '.join(f'town_{n}' for n in range(100, 120))} and 40 more."
    )
    async with new_runtime(loaded(plan)) as runtime:
        now = datetime(2026, 1, 5, tzinfo=UTC)
        for mode in ("text", "voice"):
            session = await runtime.open_session(mode=mode, user="ana")
            selection = ToolSelection(Prompts.load(), AgentPolicy(max_tools=150), pick_tools)
            always = {f"town_{number:03}" for number in range(100)}
            if mode == "text":
                used = [f"town_{number:03}" for number in range(90, 160)]
                prompt = await selection.prompt(session, "openai-chat", "town 150", used, now, "UTC")
                assert {"find_tools", "town_150", "town_159", *always} <= set(prompt.tools)
            else:
                prompt = await selection.live_prompt(
                    session, "openai-realtime", "", (), now, "UTC", changes_tools=False
                )
                assert {"find_tools", *always} <= set(prompt.tools)
                assert prompt.through_call
            assert len(prompt.declarations) == 128, "as many as the provider takes"


async def test_a_person_is_asked_for_a_tool_that_came_by_call_tool_and_the_audit_names_it() -> None:
    turns = [
        Turn(
            [Ask(ScriptedCall("call_tool", {"tool_id": "erase_archive", "arguments": "{}"})), Say("Wait.")], "Erase it."
        )
    ]
    async with new_runtime(catalogue(77)) as runtime, opened("gemini-live", runtime, turns) as spoken:
        await spoken.speak()
        await spoken.client.until("turn_done")
        [(name, envelope)] = spoken.server.outcomes
        assert (name, envelope["error"]["type"]) == ("call_tool", "CONFIRMATION_REQUIRED")
        assert envelope["error"]["confirmation_request"]["tool"] == "erase_archive"
        runtime.audit.flush()
        assert {line.get("toolId") for line in runtime.audit.events} >= {"erase_archive"}
        assert not any(line.get("toolId") == "call_tool" for line in runtime.audit.events)

"""Tools that are built again while somebody speaks: the conversation takes them between two turns, on both live providers."""

import asyncio
from pathlib import Path

import pytest
from tests.agents.voice.kit import VoiceCase, obedient, voice
from tests.clients.live.kit import PROVIDERS
from tests.runtime.kit import FOUND, PAID, Tools, confirmed, reading

from handrail import Runtime
from handrail.testing.servers.live import Ask, Say, ScriptedCall, Turn


def asks(tool: str, hears: str) -> Turn:
    return Turn([Ask(ScriptedCall(tool, {"q": "Ana"})), Say("Done.")], hears)


async def with_seek(tools: Tools, runtime: Runtime) -> None:
    """What `handrail serve` does when a tool was added."""
    tools.write({"seek": (reading(), FOUND)})
    tools.rebuild()
    await runtime.take_registry(runtime.registry.read_again())


async def declared(case: VoiceCase, tool: str) -> None:
    """Until the provider knows this tool, and the conversation listens again."""
    async with asyncio.timeout(60):
        while tool not in case.server.conversations[-1].declared or case.client.states[-1] != "listening":
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_conversation_that_goes_on_is_given_the_newest_tools_between_two_turns(
    provider: str, tmp_path: Path
) -> None:
    tools = Tools(tmp_path)
    tools.write({"look": (reading(), FOUND)})
    runtime = Runtime(tools.build(), store="memory:")
    turns = [asks("look", "Look."), asks("look", "Look again."), asks("seek", "Seek.")]
    async with voice(provider, turns, runtime=runtime) as case:
        await case.speak()
        await case.client.until("turn_done")
        await with_seek(tools, runtime)
        await case.speak()
        await case.client.until("turn_done", 2)
        error = case.server.outcomes[-1][1]["error"]
        assert error["type"] == "CONFLICT"
        assert "Tell the user to continue with the new tools" in error["suggestion"]

        await case.voice.take_newest_tools()
        assert case.voice.session.snapshot.version == runtime.registry.version
        await declared(case, "seek")
        await case.speak()
        await case.client.until("turn_done", 3)
        finished = [(one["toolId"], one["ok"]) for one in case.client.of("tool_finished")]
        assert finished == [("look", True), ("look", False), ("seek", True)]
        assert case.server.outcomes[-1][1]["data"] == {"results": ["Ana"]}
        assert f"(registry {runtime.registry.version})" in spoken_instructions(case)
        assert case.server.complaints == []
        assert len(case.server.conversations) == (1 if provider == "openai-realtime" else 2)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_newest_tools_wait_for_the_end_of_the_turn_that_wants_them(provider: str, tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    tools.write({"look": (reading(), FOUND)})
    runtime = Runtime(tools.build(), store="memory:")
    async with voice(
        provider, [Turn([Say("Once upon a time. " * 20, pace=0.02)], "Tell me.")], runtime=runtime
    ) as case:
        await case.speak()
        await case.client.until(lambda client: client.sounds)
        await with_seek(tools, runtime)
        before = case.voice.session.snapshot.version
        taking = asyncio.ensure_future(case.voice.take_newest_tools())
        await asyncio.sleep(0.05)
        assert case.client.of("turn_done") == []
        assert case.voice.session.snapshot.version == before
        await taking
        assert len(case.client.of("turn_done")) == 1
        assert case.voice.session.snapshot.version == runtime.registry.version


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_question_that_was_read_is_answered_once_after_the_newest_tools_were_taken(
    provider: str, tmp_path: Path
) -> None:
    """With the older tools its approval would be refused, as every call is."""
    tools = Tools(tmp_path)
    tools.write({"look": (reading(), FOUND), "pay": (confirmed(preview="Pay {q}"), PAID)})
    runtime = Runtime(tools.build(), store="memory:")
    asked = Turn([Ask(ScriptedCall("pay", {"q": "Ana"})), Say("I need your word for that.")], "Pay Ana.")
    async with voice(provider, [asked, Turn([Say("Fine.")], "Yes.")], runtime=runtime) as case:
        case.server.on_note = obedient
        await case.speak()
        await case.client.until(lambda client: "asking" in [one["state"] for one in client.of("question")])
        await with_seek(tools, runtime)
        await case.voice.take_newest_tools()
        assert case.voice.session.snapshot.version == runtime.registry.version
        await declared(case, "seek")
        await case.speak()
        await case.client.until("confirmation_closed")
        assert [one["outcome"] for one in case.client.of("confirmation_closed")] == ["carried_out"]
        assert tools.started() == [{"q": "Ana"}]
        read = [
            one["text"] for one in case.client.of("transcript") if "Pay Ana" in one["text"] and one["who"] == "model"
        ]
        assert len(read) == 1, read


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_whoever_waits_for_the_newest_tools_is_let_go_when_the_conversation_ends(
    provider: str, tmp_path: Path
) -> None:
    tools = Tools(tmp_path)
    tools.write({"look": (reading(), FOUND)})
    runtime = Runtime(tools.build(), store="memory:")
    async with voice(
        provider, [Turn([Say("Once upon a time. " * 50, pace=0.05)], "Tell me.")], runtime=runtime
    ) as case:
        await case.speak()
        await case.client.until(lambda client: client.sounds)
        await with_seek(tools, runtime)
        taking = asyncio.ensure_future(case.voice.take_newest_tools())
        await asyncio.sleep(0)
        await case.voice.end()
        async with asyncio.timeout(60):
            await taking
        assert case.voice.is_over


def spoken_instructions(case: VoiceCase) -> str:
    """What the model was last instructed with."""
    said = [one for one in case.server.received if "setup" in one or one.get("type") == "session.update"][-1]
    if "setup" in said:
        return said["setup"]["systemInstruction"]["parts"][0]["text"]
    return said["session"]["instructions"]

"""The server lets go of a spoken conversation in the middle of a write: the next process knows of it, whoever continues there."""

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.kit import until
from tests.server.voice.kit import on_the_line, voice_server
from tests.server.voice.test_conversations import PROVIDERS, VoiceSetup, voice_setup

from handrail.testing.servers.live import Ask, Say, Turn, call

POST = call("post", q="15")


async def stopped_in_mid_write(name: str, folder: Path, store: str) -> Any:
    turns = [Turn([Ask(POST), Say("Posted.")], hears="Post it")]
    async with voice_setup(name, folder, turns, store=store) as here:
        async with here.enter() as client:
            await here.speak(client)
            await until(here.server.tools.started)
            stored = await here.server.sessions.conversations.load(here.api.id)
            here.server.uvicorn.should_exit = True
            await client.refused(1001)
        here.server.tools.go()
        await here.server.running
        return here.api, stored


def answers(here: VoiceSetup) -> list[Any]:
    messages = here.server.sessions._hosted[here.api.id].conversation.messages
    return [one.envelope for one in messages if hasattr(one, "envelope")]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_restart_in_mid_write_keeps_the_outcome_and_the_write_is_not_made_twice(tmp_path, name):
    store = f"sqlite:///{tmp_path}/handrail.db"
    api, while_it_ran = await stopped_in_mid_write(name, tmp_path, store)
    (open_call,) = [one for one in while_it_ran.document["messages"] if one["role"] == "tool"]
    assert open_call["envelope"]["error"]["partialSideEffects"] is True  # stored before it started, should we crash
    assert [one["tool"] for one in while_it_ran.document["unanswered"]] == ["post"]

    turns = [Turn([Ask(POST), Say("It was posted.")], hears="Did it work?")]
    async with voice_setup(name, tmp_path, turns, store=store) as again:
        api.server, again.api = again.server, api
        shown = (await api.show())["messages"]
        assert [(card["type"], card["ok"]) for card in shown[1]["toolCards"]] == [("tool_finished", True)]
        assert [one["ok"] for one in answers(again)] == [True]
        async with again.enter() as client:
            await again.speak(client)
            assert (await client.message("turn_done"))["text"] == "It was posted."
        assert [one["meta"].get("replayed") for one in answers(again)] == [None, True]
        assert [next(iter(one)) for one in again.server.tools.started()] == ["begun", "ended"]


async def test_a_text_turn_after_the_restart_does_not_make_the_write_twice(tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    api, _ = await stopped_in_mid_write("openai-realtime", tmp_path, store)
    async with voice_setup("openai-realtime", tmp_path, [], store=store) as again:
        api.server = again.server
        told = await api.say('call post {"q": "15"}')
        assert told[-1].data["text"].strip() == "post: ok"
        assert [next(iter(one)) for one in again.server.tools.started()] == ["begun", "ended"]


async def test_a_stop_in_a_hurry_stores_what_is_known_and_the_next_process_asks_the_ledger(tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    turns = [Turn([Ask(POST), Say("Posted.")], hears="Post it")]
    async with voice_setup("openai-realtime", tmp_path, turns, store=store) as here:
        async with here.enter() as client:
            await here.speak(client)
            await until(here.server.tools.started)
            here.server.sessions.hurried.set()
            here.server.uvicorn.should_exit = True
            await client.refused(1001)
        here.server.tools.go()
        api = here.api
        await here.server.running
    async with voice_setup("openai-realtime", tmp_path, [], store=store) as again:
        api.server = again.server
        told = await api.say('call post {"q": "15"}')
        assert told[-1].data["text"].strip() == "post: ok"
        assert [next(iter(one)) for one in again.server.tools.started()] == ["begun", "ended"]


async def test_a_session_that_a_restart_left_in_voice_is_one_of_text_for_whoever_types(tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    async with voice_server(tmp_path, store=store) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            spoken = (await api.show())["budget"]
            server.uvicorn.should_exit = True
            await client.refused(1001)
        await server.running
    async with voice_server(tmp_path, store=store) as again:
        api.server = again
        assert (await api.show())["mode"] == "voice"  # whoever comes back to speak, speaks
        await api.say("hello in text")
        shown = await api.show()
        assert (shown["mode"], shown["voice"]) == ("text", False)
        assert shown["budget"]["total"]["limit"] != spoken["total"]["limit"]
        assert again.model.asked[-1].session["mode"] == "text"

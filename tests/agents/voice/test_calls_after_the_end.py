"""The conversation ends in mid-call: whoever continues with it knows what became of the call, and does not write twice."""

import asyncio
import json
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from tests.agents.voice.kit import Client, ToolLog, VoiceCase, new_runtime, on_model, voice
from tests.clients.live.kit import PROVIDERS, new_model, new_server

from handrail.agents import Conversation, TextAgent
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.voice_session import VoiceSession
from handrail.contract.call import Call
from handrail.contract.live import Answer, Note, Utterance
from handrail.contract.model import (
    AssistantMessage,
    CallMade,
    Finished,
    HostMessage,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolMessage,
    UserMessage,
)
from handrail.testing.servers.live import Ask, Say, Turn, call

BOOK = call("book_table", guest="Ana")
both = pytest.mark.parametrize("provider", PROVIDERS)


def envelopes(conversation: Conversation) -> list[Any]:
    return [message.envelope for message in conversation.messages if isinstance(message, ToolMessage)]


async def lose(case: VoiceCase) -> None:
    """The provider is lost for good while the call runs."""
    case.tool_log.may_finish.clear()
    await case.speak()
    await case.tool_log.until(lambda tool_log: len(tool_log.starts) == 1)
    case.server.refuse_with = HTTPStatus.FORBIDDEN
    case.server.cut_all()
    async with asyncio.timeout(60):
        await asyncio.shield(case.voice.ending)
    case.server.refuse_with = None


async def go_on(case: VoiceCase) -> VoiceSession:
    client = Client()
    talk = client.voice = await case.agent.begin(case.voice.session, case.conversation, client)
    case.client.voice = talk  # what the session tells goes to the one that is on
    case.voice, case.client = talk, client
    return talk


async def told_to_model(case: VoiceCase, words: str) -> None:
    async with asyncio.timeout(60):
        while words not in json.dumps(case.server.conversations[-1].received):
            await asyncio.sleep(0.01)


async def until_settled(case: VoiceCase) -> None:
    case.tool_log.may_finish.set()
    await case.conversation.unacknowledged.settle(15)


@both
async def test_voice_that_begins_again_knows_what_became_of_the_call_and_does_not_write_twice(provider: str) -> None:
    turns = [
        Turn([Ask(BOOK), Say("Never said.")], hears="A table for Ana"),
        Turn([Ask(BOOK), Say("It is booked.")], hears="Did that work?"),
        Turn([Ask(BOOK), Say("One more is booked.")], hears="Another one"),
    ]
    async with voice(provider, turns) as case:
        await lose(case)
        await until_settled(case)
        assert [one["ok"] for one in envelopes(case.conversation)] == [True]
        talk = await go_on(case)
        await told_to_model(case, "receipt")
        await case.speak()
        await case.client.until(lambda client: "It is booked." in client.answers)
        assert case.tool_log.of("book_table") == 1
        again = envelopes(case.conversation)[1]
        assert (again["ok"], again["meta"]["replayed"], again["data"]["receipt"]) == (True, True, 1)

        await case.speak()  # and a wish that comes after the model has heard of it is another one
        await case.client.until(lambda client: "One more is booked." in client.answers)
        assert case.tool_log.of("book_table") == 2
        await talk.close()


@both
async def test_voice_that_begins_again_while_the_call_still_runs_meets_it(provider: str) -> None:
    turns = [
        Turn([Ask(BOOK), Say("Never said.")], hears="A table for Ana"),
        Turn([Ask(BOOK), Say("It is booked.")], hears="Did that work?"),
    ]
    async with voice(provider, turns) as case:
        await lose(case)
        (open_one,) = envelopes(case.conversation)
        assert open_one["error"]["partialSideEffects"] is True
        talk = await go_on(case)
        await case.speak()
        await case.client.until("tool_started")
        await until_settled(case)
        await case.client.until(lambda client: "It is booked." in client.answers)
        assert case.tool_log.of("book_table") == 1
        assert [one["data"]["receipt"] for one in envelopes(case.conversation)] == [1, 1]
        await talk.close()


async def test_a_model_that_listens_since_is_told_the_outcome_of_a_call_that_was_made_before() -> None:
    turns = [Turn([Ask(BOOK), Say("Never said.")], hears="A table for Ana")]
    async with voice("openai-realtime", turns) as case:
        await lose(case)
        talk = await go_on(case)
        await until_settled(case)
        await case.client.until("tool_finished")
        await told_to_model(case, "Note of the host")
        await talk.close()


class Repeating:
    """A text model that books the table whenever it is spoken to."""

    name, provider, id_scope, context_window = "repeating", "openai-chat", "session", 8_000

    def __init__(self, tool: str = "book_table", **args: Any) -> None:
        self.made = 0
        self._wish = tool, args or {"guest": "Ana"}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if isinstance(request.messages[-1], UserMessage):
            self.made += 1
            yield CallMade(Call(*self._wish, f"text_{self.made}"))
            yield Finished("calls")
        else:
            yield TextDelta("Done.")
            yield Finished("stop")

    async def close(self) -> None: ...


@pytest.mark.parametrize("finished", [True, False])
async def test_text_that_goes_on_does_not_write_twice_either(finished: bool) -> None:
    turns = [Turn([Ask(BOOK), Say("Never said.")], hears="A table for Ana")]
    async with voice("openai-realtime", turns) as case:
        await lose(case)
        if finished:
            await until_settled(case)
        agent = TextAgent(case.runtime, Repeating())

        async def say(text: str) -> None:
            async for event in agent.run(case.voice.session, case.conversation, text):
                if event.type == "tool_started":
                    case.tool_log.may_finish.set()

        await say("Did that work?")
        assert case.tool_log.of("book_table") == 1
        assert [one["data"]["receipt"] for one in envelopes(case.conversation)] == [1, 1]
        await say("Another one.")
        assert case.tool_log.of("book_table") == 2


@pytest.mark.parametrize("seats", [12, 8])
async def test_text_that_writes_the_same_call_otherwise_does_not_write_twice_either(seats: int) -> None:
    """Voice clamps twelve seats to eight, text does not. Both what was asked for and what was done are the same wish."""
    wish = call("reserve_table", guest="Ana", seats=12)
    turns = [Turn([Ask(wish), Say("Never said.")], hears="A table for Ana")]
    async with voice("openai-realtime", turns) as case:
        await lose(case)
        await until_settled(case)
        agent = TextAgent(case.runtime, Repeating("reserve_table", guest="Ana", seats=seats, note="none"))
        async for _ in agent.run(case.voice.session, case.conversation, "Did that work?"):
            pass
        assert case.tool_log.of("reserve_table") == 1
        assert [one["data"]["receipt"] for one in envelopes(case.conversation)] == [1, 1]


@pytest.mark.parametrize("known_digest", [True, False])
async def test_a_kept_call_is_the_same_as_one_that_is_written_otherwise_in_the_next_process(
    tmp_path: Path, known_digest: bool
) -> None:
    """Also one that was kept before digests were."""
    store = f"sqlite:///{tmp_path}/handrail.db"
    kept: list[str] = []
    turns = [Turn([Ask(call("keep_table", guest="Ana")), Say("Never kept.")], hears="A table for Ana")]
    async with (
        new_server("openai-realtime", turns) as server,
        on_model(new_model("openai-realtime", server), store=store) as case,
    ):
        case.conversation.keep = lambda: _note(kept, case.conversation)
        await case.speak()
        await case.client.until("tool_finished")
        session = case.voice.session
    data = json.loads(kept[0])
    if not known_digest:
        del data["unanswered"][0]["digest"]
    async with new_runtime(tool_log := ToolLog(), store) as runtime:
        conversation = Conversation.from_dict(data)
        resumed = await runtime.resume_session(session.id, token=session.token)
        model = Repeating("keep_table", guest="Ana", note="A window")
        async for _ in TextAgent(runtime, model).run(resumed, conversation, "Did that work?"):
            pass
        assert tool_log.starts == []
        assert envelopes(conversation)[1]["meta"]["replayed"] is True


@both
async def test_a_process_that_comes_after_a_crash_asks_the_ledger(provider: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/handrail.db"
    kept: list[str] = []
    turns = [Turn([Ask(BOOK), Say("Never kept.")], hears="A table for Ana")]
    async with new_server(provider, turns) as server, on_model(new_model(provider, server), store=store) as case:

        async def keep() -> None:
            assert case.tool_log.of("book_table") == 0, "it is stored before the call starts"
            kept.append(json.dumps(case.conversation.to_dict()))

        case.conversation.keep = keep
        await case.speak()
        await case.client.until("tool_finished")
        session = case.voice.session
    tool_log, conversation = ToolLog(), Conversation.from_dict(json.loads(kept[0]))
    assert envelopes(conversation)[0]["error"]["partialSideEffects"] is True
    turns = [Turn([Ask(BOOK), Say("It is booked.")], hears="Did that work?")]
    async with new_server(provider, turns) as server, new_runtime(tool_log, store) as runtime:
        resumed = await runtime.resume_session(session.id, token=session.token)
        agent, client = VoiceAgent(runtime, new_model(provider, server)), Client()
        talk = client.voice = await agent.begin(resumed, conversation, client)
        assert [one["data"]["receipt"] for one in envelopes(conversation)] == [1]
        next_scene = VoiceCase(server, runtime, talk, client, tool_log, conversation, agent, [])
        await next_scene.speak()
        await client.until(lambda one: "It is booked." in one.answers)
        assert tool_log.starts == []
        assert envelopes(conversation)[1]["meta"]["replayed"] is True
        await talk.close()


async def test_a_call_that_the_ledger_does_not_know_was_not_started_and_runs(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/handrail.db"
    kept: list[str] = []
    turns = [Turn([Ask(BOOK), Say("Never kept.")], hears="A table for Ana")]
    async with (
        new_server("openai-realtime", turns) as server,
        on_model(new_model("openai-realtime", server), store=store) as case,
    ):
        case.conversation.keep = lambda: _note(kept, case.conversation)
        await case.speak()
        await case.client.until("tool_finished")
    async with new_runtime(tool_log := ToolLog(), "memory:") as runtime:  # a ledger that never heard of it
        conversation = Conversation.from_dict(json.loads(kept[0]))
        session = await runtime.open_session(mode="text", user="ana")
        await conversation.catch_up(session, 0)
        assert envelopes(conversation)[0]["error"]["partialSideEffects"] is False
        async for _ in TextAgent(runtime, Repeating()).run(session, conversation, "Book it."):
            pass
        assert tool_log.of("book_table") == 1


async def test_an_outcome_told_without_an_id_is_not_taken_for_that_of_another_call() -> None:
    async with new_runtime() as runtime:
        session, again = await runtime.open_session(mode="text", user="ana"), Conversation().unacknowledged
        calls = [Call("book_table", {"guest": guest}, None, "gemini-live") for guest in ("Ana", "Bob")]
        for one in calls:
            first = again.made(session, one, 1, 1, newest=1)
            assert first is not None
            first.outcome = {"ok": True, "data": {}, "error": None, "intents": [], "meta": {}}
        again.left()
        again.mark_late_delivered(None, 2)
        again.answered()
        assert [again.known(session, one, 3) is not None for one in calls] == [True, True]


async def _note(kept: list[str], conversation: Conversation) -> None:
    kept.append(json.dumps(conversation.to_dict()))


def test_a_model_that_begins_to_listen_is_told_calls_with_their_outcomes_and_notes() -> None:
    conversation = Conversation()
    conversation.begin("Book it", "m1")
    named, unnamed = Call("book_table", {"guest": "Ana"}, "c1"), Call("find_table", {"place": "x"})
    conversation.add(AssistantMessage("One moment.", (named, unnamed)))
    conversation.add(ToolMessage("c1", "book_table", {"ok": True, "data": 1}))
    conversation.add(ToolMessage(None, "find_table", {"ok": True, "data": 2}))
    conversation.later.append(HostMessage("Note of the host: paid."))
    user, model, answer, words, note = conversation.live_history(10_000)
    assert user == Utterance("user", "Book it")
    assert model == Utterance("model", "One moment.")
    assert answer == Answer(named, {"ok": True, "data": 1})
    assert isinstance(words, Note)
    assert '"find_table"' in words.text
    assert note == Note("Note of the host: paid.")

"""How voice begins and ends: what was asked before is answered first, farewells are heard, and the chat takes over."""

import asyncio

import pytest
from tests.agents.voice.kit import Client, VoiceCase, new_runtime, obedient, voice
from tests.clients.live.kit import PROVIDERS, new_model, new_server

from handrail import Session
from handrail.agents.conversation import Conversation
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import Ending, VoiceError, VoicePolicy
from handrail.contract.model import AssistantMessage, UserMessage
from handrail.testing.servers.live import Ask, Say, Turn, call

both = pytest.mark.parametrize("provider", PROVIDERS)
GOODBYE = "Goodbye, and until next time."


async def over(case: VoiceCase) -> Ending:
    async with asyncio.timeout(60):
        return await asyncio.shield(case.voice.ending)


@both
async def test_what_was_asked_before_voice_is_answered_first(provider: str) -> None:
    def asked(session: Session, conversation: Conversation) -> None:
        session.state.set("pendingMessage", "What is free tonight?")

    async with voice(provider, [Turn([Say("The window table.")])], prepare=asked) as case:
        await case.client.until("turn_done")
        (done,) = case.client.of("turn_done")
        assert (done["input"], done["text"]) == ("What is free tonight?", "The window table.")
        assert case.voice.session.state.get("pendingMessage") is None
        assert case.voice.session.mode == "voice"
        assert case.server.complaints == []


@both
async def test_the_model_begins_with_what_was_said_in_the_chat(provider: str) -> None:
    def said(session: Session, conversation: Conversation) -> None:
        conversation.begin("My name is Ana.", "m1")
        conversation.add(AssistantMessage("Hello Ana."))

    async with voice(provider, [], prepare=said) as case:
        await case.client.until("link")
        sent = str(case.server.received)
        assert "My name is Ana." in sent
        assert "Hello Ana." in sent


@both
async def test_the_end_after_this_turn_waits_until_the_answer_was_played(provider: str) -> None:
    turns = [
        Turn([Ask(call("leave", text="Here is the list.")), Say("I leave it in the chat.")], hears="Write it down")
    ]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        await case.speak()
        await case.client.until("turn_done")
        assert not case.voice.is_over
        (ended,) = case.client.of("audio_end")
        case.voice.played(ended["item"], ended["ms"] // 2)
        assert not case.voice.is_over
        case.voice.played(ended["item"], ended["ms"], True)
        ending = await over(case)

        assert (ending.reason, ending.text_response) == ("user_requested", "Here is the list.")
        assert case.client.told[-1] == ("ended", ending.to_dict())
        assert case.voice.session.mode == "text"
        assert case.voice.session.voice_open is False
        texts = [one.text for one in case.conversation.messages if isinstance(one, AssistantMessage) and one.text]
        assert texts == ["I leave it in the chat.", "Here is the list."]
        assert not case.conversation.lock.locked()


@both
async def test_a_farewell_that_the_model_speaks_by_itself_is_not_asked_for(provider: str) -> None:
    turns = [Turn([Ask(call("leave", closing=GOODBYE)), Say(GOODBYE)], hears="Bye")]
    async with voice(provider, turns) as case:
        await case.speak()
        ending = await over(case)
        assert ending.closing_message == GOODBYE
        assert case.client.answers[-1] == GOODBYE
        assert "Note of the host: say" not in str(case.server.received)
        texts = [one.text for one in case.conversation.messages if isinstance(one, AssistantMessage) and one.text]
        assert texts == [GOODBYE]


@both
async def test_a_farewell_that_the_model_forgets_is_asked_for_once_and_spoken(provider: str) -> None:
    turns = [Turn([Ask(call("leave", closing=GOODBYE)), Say("Fine.")], hears="Bye")]
    async with voice(provider, turns) as case:
        case.server.on_note = obedient
        await case.speak()
        ending = await over(case)
        assert ending.closing_message == GOODBYE
        assert case.client.words("model") == ["Fine.", GOODBYE]
        assert str(case.server.received).count("Note of the host: say") == 1


@both
async def test_a_farewell_that_never_comes_does_not_keep_the_conversation_open(provider: str) -> None:
    turns = [Turn([Ask(call("leave", closing=GOODBYE)), Say("Fine.")], hears="Bye")]
    policy = VoicePolicy(farewell_seconds=0.3)
    async with voice(provider, turns, policy=policy) as case:
        await case.speak()
        ending = await over(case)
        assert ending.closing_message == GOODBYE
        texts = [one.text for one in case.conversation.messages if isinstance(one, AssistantMessage) and one.text]
        assert texts == ["Fine.", GOODBYE]


@both
async def test_a_blocked_user_hears_the_tools_farewell_and_voice_ends(provider: str) -> None:
    turns = [Turn([Ask(call("block")), Say("Hm.")], hears="Insults")]
    async with voice(provider, turns) as case:
        case.server.on_note = obedient
        await case.speak()
        ending = await over(case)
        assert (ending.reason, ending.closing_message) == ("blocked", "We stop here.")
        assert "We stop here." in case.client.words("model")
        with pytest.raises(VoiceError, match="paused"):
            await case.agent.begin(case.voice.session, case.conversation, Client())


@both
async def test_a_conversation_in_which_nobody_speaks_ends_with_a_notice(provider: str) -> None:
    policy = VoicePolicy(idle_seconds=0.3)
    async with voice(provider, [], policy=policy) as case:
        case.server.on_note = obedient
        ending = await over(case)
        assert ending.reason == "idle"
        assert "not heard anything" in (ending.closing_message or "")
        assert case.client.words("model") == [ending.closing_message]
        assert case.voice.session.mode == "text"


@both
async def test_the_user_leaves_and_a_writing_call_still_settles(provider: str) -> None:
    turns = [Turn([Ask(call("book_table", guest="Ana")), Say("Booked.")], hears="A table")]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("book_table") == 1)
        await case.voice.end()
        assert case.voice.session.mode == "text"
        assert case.client.told[-1][0] == "ended"
        case.tool_log.may_finish.set()
        await case.tool_log.until(lambda tool_log: tool_log.ends)
        async with asyncio.timeout(30):
            while not case.untaken or case.untaken[-1].type != "envelope":
                await asyncio.sleep(0.01)
        told = case.untaken[-1].data
        assert (told["toolId"], told["envelope"]["ok"], told["known"]) == ("book_table", True, True)
        assert "receipt" in str(case.conversation.messages[2])


@both
async def test_a_conversation_that_was_let_go_can_begin_again_in_its_session(provider: str) -> None:
    turns = [Turn([Say("One.")], hears="First"), Turn([Say("Two.")], hears="Second")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")
        await case.voice.close()
        assert case.voice.session.mode == "voice"
        assert "ended" not in case.client.types
        client = Client()
        again = client.voice = await case.agent.begin(case.voice.session, case.conversation, client)
        case.voice = again
        await case.speak()
        await client.until("turn_done")
        assert client.answers == ["Two."]
        assert [one["turn"] for one in client.of("turn")] == [2]
        await again.close()


async def test_a_provider_that_refuses_leaves_the_session_as_it_was() -> None:
    async with new_server("openai-realtime", []) as server, new_runtime() as runtime:
        model = new_model("openai-realtime", server, api_key="wrong")
        session = await runtime.open_session(mode="text", user="ana")
        conversation = Conversation()
        with pytest.raises(VoiceError) as refused:
            await VoiceAgent(runtime, model).begin(session, conversation, Client())
        assert refused.value.code == "provider"
        assert session.mode == "text"
        assert not session.is_taken_over
        assert not conversation.lock.locked()
        await model.close()


@both
async def test_words_that_are_none_are_refused_and_the_same_message_is_answered_once(provider: str) -> None:
    async with voice(provider, [Turn([Say("Hello.")])]) as case:
        with pytest.raises(VoiceError, match="not empty"):
            await case.voice.say("   ", id="m0")
        await case.voice.say("Hi", id="m1")
        await case.client.until("turn_done")
        await case.voice.say("Hi", id="m1")
        assert [one for one in case.conversation.messages if isinstance(one, UserMessage)] == [UserMessage("Hi")]

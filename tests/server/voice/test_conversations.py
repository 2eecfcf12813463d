"""Whole conversations: a client's WebSocket, the server, the voice agent, the real SDKs, and a local server for each provider."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.voice.kit import obedient
from tests.runtime.kit import FOUND, reading, until, writing
from tests.server.kit import TOOLS, ServerUnderTest, SessionClient
from tests.server.voice.kit import VoiceClient, limits, on_the_line, ticket_for, voice_server

from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import VoicePolicy
from handrail.contract.live import LiveLimits
from handrail.providers.gemini.live.client import GeminiLive
from handrail.providers.openai.realtime.client import OpenAIRealtime
from handrail.testing.servers.live import (
    Ask,
    Depart,
    Drop,
    GeminiLiveServer,
    OpenAIRealtimeServer,
    Pause,
    Say,
    Turn,
    call,
    silence,
    speech,
)
from handrail.testing.servers.live.server import NONSENSE, LiveServer

PROVIDERS = ("gemini-live", "openai-realtime")
RATES = {"gemini-live": 16_000, "openai-realtime": 24_000}
BRISK = LiveLimits(first_delay=0.01, max_delay=0.05, reply_seconds=30.0, connect_seconds=30.0, attempts=4)
PACE = 0.02
LEAVE = """
async def execute(args, ctx):
    ctx.voice.end_session(after="farewell_spoken", reason="user_requested", closing_message="Goodbye and thank you.",
                          text_response="Your table is booked.")
    return {"ok": True, "data": {}}
"""
"""As `end_voice_session` does."""


class VoiceSetup:
    """A session at a server with voice, and the provider behind it."""

    def __init__(self, server: ServerUnderTest, provider: LiveServer, api: SessionClient, rate: int) -> None:
        self.server = server
        self.provider = provider
        self.api = api
        self.rate = rate

    def enter(self, **more: Any) -> Any:
        return on_the_line(self.api, rate=self.rate, **more)

    async def speak(self, client: VoiceClient, ms: int = 200) -> None:
        """An utterance and the silence after it, in frames of 20 ms."""
        sound = speech(ms, self.rate) + silence(300, self.rate)
        size = self.rate // 50 * 2
        for start in range(0, len(sound), size):
            await client.wire.send(sound[start : start + size])

    @property
    def outcomes(self) -> list[str]:
        return [name for name, _ in self.provider.outcomes]


@asynccontextmanager
async def voice_setup(
    name: str,
    folder: Path,
    turns: list[Turn],
    *,
    live: LiveLimits = BRISK,
    policy: VoicePolicy | None = None,
    forgiven: str | None = None,
    **more: Any,
) -> AsyncIterator[VoiceSetup]:
    provider = GeminiLiveServer(turns) if name == "gemini-live" else OpenAIRealtimeServer(turns)
    async with provider:
        if isinstance(provider, GeminiLiveServer):
            model: Any = GeminiLive(
                "any", api_key=provider.api_key, base_url=provider.base_url, tls=provider.tls, limits=live
            )
        else:
            model = OpenAIRealtime("any", api_key=provider.api_key, base_url=provider.base_url, limits=live)

        def make(runtime: Any, _: Any) -> VoiceAgent:
            return VoiceAgent(runtime, model, policy=policy or VoicePolicy())

        async with voice_server(folder, agent=make, **more) as server:
            yield VoiceSetup(server, provider, await server.open(), RATES[name])
        await model.close()
    assert [one for one in provider.complaints if forgiven is None or forgiven not in one] == []


@pytest.mark.parametrize("name", PROVIDERS)
async def test_audio_in_a_call_and_audio_out(tmp_path, name):
    turns = [Turn([Ask(call("look", q="tables")), Say("There is one by the window.")], hears="Find me a table")]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        await here.speak(client)
        done = await client.message("turn_done")
        assert done["text"] == "There is one by the window."
        assert done["turn"] == 1
        assert done["latency"]["toolsMs"] is not None
        assert (await client.message("transcript", who="user", final=True))["whole"] == "Find me a table"
        finished = await client.message("tool_finished")
        assert (finished["toolId"], finished["ok"]) == ("look", True)
        end = await client.message("audio_end")
        heard = b"".join(pcm for item, _, pcm in client.sounds if item == end["item"])
        assert len(heard) == end["ms"] * 24 * 2
        offsets = [offset for item, offset, _ in client.sounds if item == end["item"]]
        assert offsets == sorted(offsets)
        assert here.outcomes == ["look"]
        assert len(here.server.tools.started()) == 1
        types = [one["type"] for one in client.messages]
        assert types.index("tool_started") < types.index("tool_finished") < types.index("turn_done")
        assert client.numbers == list(range(client.numbers[0], client.numbers[0] + len(client.numbers)))
        shown = (await here.api.show())["messages"]
        assert [one["text"] for one in shown] == ["Find me a table", "There is one by the window."]
        assert shown[1]["toolCards"][0]["toolId"] == "look"


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_user_who_speaks_into_the_answer_is_heard_and_the_rest_is_flushed(tmp_path, name):
    long = "This is a long answer that goes on and on, so that there is time to interrupt it somewhere."
    turns = [Turn([Say(long, pace=PACE)], hears="Tell me all"), Turn([Say("Sure.")], hears="Shorter please")]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        await here.speak(client)
        await client.until(lambda one: len(one.sounds) >= 3)
        item = client.sounds[0][0]
        await client.send("played", item=item, ms=200)
        await here.speak(client)
        assert (await client.message("flush"))["item"] >= item
        assert (await client.message("turn_done", turn=1))["interrupted"] is True
        assert (await client.message("turn_done", turn=2))["text"] == "Sure."
        states = [one["state"] for one in (await here.api.show())["messages"]]
        assert states == ["cancelled", "cancelled", "done", "done"]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_speaking_into_a_writing_call_does_not_undo_or_repeat_it(tmp_path, name):
    turns = [
        Turn([Ask(call("post", q="0.3")), Say("Posted.")], hears="Post it"),
        Turn([Say("Yes, it was posted.")], hears="Did you?"),
    ]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        await here.speak(client)
        await until(here.server.tools.started)
        await here.speak(client)
        await client.message("turn_done", turn=2)
        finished = await client.message("tool_finished", toolId="post")
        assert finished["ok"] is True
        assert [one for one in here.server.tools.started() if "begun" in one] == [{"begun": {"q": "0.3"}}]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_client_drops_in_mid_call_and_comes_back_to_everything(tmp_path, name):
    turns = [Turn([Ask(call("post", q="0.4")), Say("Posted.")], hears="Post it")]
    async with voice_setup(name, tmp_path, turns) as here:
        async with here.enter() as client:
            await here.speak(client)
            await client.message("tool_started", toolId="post")
            last = client.numbers[-1]
            await client.drop()
        async with here.enter(last=last) as client:
            assert client.messages[0]["resumed"] is True
            assert (await client.message("tool_finished", toolId="post"))["ok"] is True
            assert (await client.message("turn_done"))["text"] == "Posted."
            assert client.numbers[0] == last + 1
            assert client.numbers == list(range(last + 1, last + 1 + len(client.numbers)))
        assert len([one for one in here.server.tools.started() if "begun" in one]) == 1
        assert len(here.provider.conversations) == 1  # the provider never noticed


@pytest.mark.parametrize("fault", ["drop", "drop_answer", "reissue"])
@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_provider_breaks_off_in_mid_call_and_nothing_is_done_twice(tmp_path, name, fault):
    turns = [Turn([Ask(call("post", q="0.05"), fault=fault), Say("Posted.")], hears="Post it")]
    # What became of the first call is told in words, which the script takes for the answer to the one that was made again.
    forgiven = "waits for no answer" if fault == "reissue" else None
    async with voice_setup(name, tmp_path, turns, forgiven=forgiven) as here, here.enter() as client:
        await here.speak(client)
        assert "Posted." in (await client.message("turn_done"))["text"]
        assert [one["state"] for one in client.of("link")] == ["up", "lost", "up"]
        await client.message("cue", kind="reconnected")
        assert len([one for one in here.server.tools.started() if "begun" in one]) == 1
        assert client.close_code is None


async def test_a_go_away_is_followed_at_a_quiet_moment(tmp_path):
    turns = [Turn([Depart(60), Say("First.")], hears="One"), Turn([Say("Second.")], hears="Two")]
    async with voice_setup("gemini-live", tmp_path, turns) as here, here.enter() as client:
        await here.speak(client)
        await client.message("turn_done", turn=1)
        await client.message("link", state="up", number=2)
        await here.speak(client)
        assert (await client.message("turn_done", turn=2))["text"] == "Second."


@pytest.mark.parametrize("name", PROVIDERS)
async def test_nonsense_of_a_provider_is_passed_over(tmp_path, name):
    turns = [Turn([Ask(call("look", q="x"), fault="nonsense"), Say("Found.")], hears="Find it")]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        await here.speak(client)
        assert (await client.message("turn_done"))["text"] == "Found."
        assert NONSENSE
        assert len(here.server.tools.started()) == 1


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_that_stalls_is_left_and_the_call_is_not_repeated(tmp_path, name):
    turns = [Turn([Ask(call("note", q="x"), fault="stall"), Say("Noted.")], hears="Note it")]
    live = replace(BRISK, reply_seconds=0.5, attempts=50)  # on a busy machine the next one may look like it
    async with voice_setup(name, tmp_path, turns, live=live) as here, here.enter() as client:
        await here.speak(client)
        await client.message("link", state="up", number=2)
        await client.message("turn_done")
        assert len(here.server.tools.started()) == 1


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_that_is_gone_for_good_ends_voice_and_text_goes_on(tmp_path, name):
    turns = [Turn([Say("Hello."), Drop()], hears="Hello")]
    async with voice_setup(name, tmp_path, turns) as here:
        async with here.enter() as client:
            here.provider.refuse_with = 503
            await here.speak(client)
            ended = await client.message("ended")
            assert (ended["reason"], ended["resumable"]) == ("provider_lost", True)
            assert await client.closed() == 4503
        shown = await here.api.show()
        assert (shown["mode"], shown["voice"]) == ("text", False)
        told = await here.api.say("call look {}")
        assert told[-1].data["state"] == "done"


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_that_refuses_is_a_sentence(tmp_path, name):
    async with voice_setup(name, tmp_path, []) as here:
        here.provider.refuse_with = 403
        async with here.enter(ready=False) as client:
            sentence = await client.refused(4503)
            assert sentence.endswith(".")
        shown = await here.api.show()
        assert (shown["mode"], shown["voice"]) == ("text", False)
        here.provider.refuse_with = None
        async with here.enter() as client:
            assert client.messages[0]["type"] == "ready"


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_confirmation_is_approved_on_the_screen_and_told_to_the_model_once(tmp_path, name):
    turns = [
        Turn([Ask(call("pay", q="ten")), Say("Please confirm on your screen.")], hears="Pay ten"),
        Turn([Say("Thank you.")]),
    ]
    async with voice_setup(name, tmp_path, turns) as here, here.api.listening() as page, here.enter() as client:
        await here.speak(client)
        await client.message("turn_done")
        asked = (await page.until("confirmation"))[-1].data
        assert (await client.message("confirmation"))["id"] == asked["id"]
        assert here.server.tools.started() == []
        envelope = (await here.api.decide(asked)).json()
        assert envelope["ok"] is True
        assert (await client.message("confirmation_closed"))["outcome"] == "carried_out"
        assert (await page.until("confirmation_closed"))[-1].data["id"] == asked["id"]
        assert (await client.message("tool_finished", late=True))["ok"] is True
        assert len(here.server.tools.started()) == 1


async def test_a_restart_in_mid_conversation_is_survived(tmp_path):
    turns = [Turn([Say("First.")], hears="One")]
    store = f"sqlite:///{tmp_path}/handrail.db"
    async with voice_setup("openai-realtime", tmp_path, turns, store=store) as here, here.enter() as client:
        await here.speak(client)
        await client.message("turn_done")
        here.server.uvicorn.should_exit = True
        await client.refused(1001)
        api = here.api
    async with voice_setup("openai-realtime", tmp_path, [Turn([Say("Second.")], hears="Two")], store=store) as again:
        api.server = again.server
        again.api = api
        async with again.enter() as client:
            await again.speak(client)
            assert (await client.message("turn_done"))["turn"] == 2
            texts = [one["text"] for one in (await api.show())["messages"]]
            assert texts == ["One", "First.", "Two", "Second."]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_typed_words_are_answered_by_the_model_that_speaks(tmp_path, name):
    turns = [Turn([Say("Typed is fine.")]), Turn([Say("Here as well.")])]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        await client.send("text", id="t1", text="by hand")
        assert (await client.message("turn_done", inputId="t1"))["text"] == "Typed is fine."
        told = await here.api.say("and from the page", "t2")
        assert told[-1].data["text"] == "Here as well."
        assert here.server.model.asked == []


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_farewell_is_spoken_and_heard_before_the_conversation_ends(tmp_path, name):
    turns = [Turn([Ask(call("leave")), Say("Goodbye and thank you.")], hears="That is all")]
    tools = {**TOOLS, "leave": (writing(capabilities=["voice"], allowedModes=["voice"]), LEAVE)}
    async with voice_setup(name, tmp_path, turns, tools=tools) as here:
        async with here.enter() as client:
            await here.speak(client)
            end = await client.message("audio_end")
            assert client.of("ended") == []  # it was spoken, and is not heard yet
            await client.send("played", item=end["item"], ms=end["ms"], done=True)
            ended = await client.message("ended")
            assert ended["closingMessage"] == "Goodbye and thank you."
            assert ended["textResponse"] == "Your table is booked."
            assert await client.closed() == 1000
        shown = await here.api.show()
        assert (shown["mode"], shown["voice"]) == ("text", False)
        assert shown["messages"][-1]["text"] == "Your table is booked."
        told = await here.api.say("call look {}")
        assert told[-1].data["state"] == "done"
        said = [getattr(one, "text", "") for one in here.server.model.asked[-1].messages]
        assert "Your table is booked." in said  # the text agent knows it


@asynccontextmanager
async def paying(name: str, folder: Path) -> AsyncIterator[VoiceSetup]:
    """A room where a payment is asked for first, whose preview the model reads as it is told to, and then "Yes." is heard."""
    turns = [Turn([Ask(call("pay", q="rent")), Say("One moment.")], hears="Pay"), Turn([Say("Fine.")], hears="Yes.")]
    async with voice_setup(name, folder, turns, policy=VoicePolicy(playback_seconds=2.0)) as here:
        here.provider.on_note = obedient
        yield here


async def reading_of(here: VoiceSetup, client: VoiceClient) -> int:
    """Ask for what needs a word, and hear the model out until it is told to read the preview; the number of that message."""
    await here.speak(client)
    end = await client.message("audio_end")
    await client.send("played", item=end["item"], ms=end["ms"], done=True)
    return int((await client.message("question", state="reading"))["n"])


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_preview_that_was_read_while_the_client_was_away_cannot_be_approved(tmp_path, name):
    async with paying(name, tmp_path) as here:
        async with here.enter() as client:
            last = await reading_of(here, client)
            await client.drop()
        async with here.enter(last=last) as client:
            end = await client.message("audio_end")
            for ms in (0, end["ms"]):  # whatever it says of it
                await client.send("played", item=end["item"], ms=ms, done=True)
            again = await client.until(lambda one: [m for m in one.of("audio_end") if m["item"] > end["item"]])
            assert "asking" not in [one["state"] for one in client.of("question")]
            await client.send("played", item=again[0]["item"], ms=again[0]["ms"], done=True)
            await client.message("question", state="asking")  # this time it was heard
        assert here.server.tools.started() == []


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("same", [True, False])
async def test_a_yes_from_another_client_counts_only_after_the_preview_was_heard_there(tmp_path, name, same):
    async with paying(name, tmp_path) as here:
        async with here.enter() as client:
            await reading_of(here, client)
            read = await client.until(lambda one: next(iter(one.of("audio_end")[1:]), None))
            await client.send("played", item=read["item"], ms=read["ms"], done=True)
            last = int((await client.message("question", state="asking"))["n"])
            await client.drop()
        async with here.enter(last=last if same else None) as client:
            if not same:
                await client.message("question", state="reading")
                assert "asking" not in [one["state"] for one in client.of("question")]
                again = await client.message("audio_end")
                await client.send("played", item=again["item"], ms=again["ms"], done=True)
                await client.message("question", state="asking")
            assert here.server.tools.started() == []
            await here.speak(client)
            await client.message("question", state="approved")
        assert len(here.server.tools.started()) == 1


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_yes_of_a_client_that_was_away_while_another_heard_the_preview_does_not_count(tmp_path, name):
    async with paying(name, tmp_path) as here:
        async with here.enter() as client:
            last = await reading_of(here, client)
            await client.drop()
        async with here.enter() as other:
            read = await other.message("audio_end")
            await other.send("played", item=read["item"], ms=read["ms"], done=True)
            if not other.of("question"):  # its beginning was not heard here, so it is read once more
                again = await other.until(lambda one: [m for m in one.of("audio_end") if m["item"] > read["item"]])
                await other.send("played", item=again[0]["item"], ms=again[0]["ms"], done=True)
            await other.message("question", state="asking")
            await other.drop()
        async with here.enter(last=last) as client:
            await client.message("question", state="screen")  # it was read twice already
            await here.speak(client)
            assert (await client.message("turn_done", text="Fine."))["text"] == "Fine."
        assert here.server.tools.started() == []


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_farewell_that_nobody_could_hear_ends_the_conversation_all_the_same(tmp_path, name):
    turns = [Turn([Ask(call("leave")), Say("Goodbye and thank you.")], hears="That is all")]
    tools = {**TOOLS, "leave": (writing(capabilities=["voice"], allowedModes=["voice"]), LEAVE)}
    policy = VoicePolicy(farewell_seconds=0.5, playback_seconds=0.1)
    async with voice_setup(name, tmp_path, turns, tools=tools, policy=policy) as here:
        async with here.enter() as client:
            voice = here.server.sessions._hosted[here.api.id].voice.voice
            await here.speak(client)
            await client.drop()
        assert (await asyncio.wait_for(voice.ending, 60)).closing_message == "Goodbye and thank you."
        assert (await here.api.show())["voice"] is False


@pytest.mark.parametrize("name", PROVIDERS)
async def test_what_was_asked_before_voice_is_answered_first(tmp_path, name):
    turns = [Turn([Say("We open at nine.")]), Turn([Say("You are welcome.")], hears="Thanks")]
    async with voice_setup(name, tmp_path, turns) as here:
        session = here.server.runtime.sessions[here.api.id]
        session.state.set("pendingMessage", "When do you open?")
        async with here.enter() as client:
            first = await client.message("turn_done", turn=1)
            assert (first["input"], first["text"]) == ("When do you open?", "We open at nine.")
            assert client.sounds  # from its first piece on: the client was on the line before the model spoke
            assert client.sounds[0][1] == 0
            await here.speak(client)
            assert (await client.message("turn_done", turn=2))["text"] == "You are welcome."


async def test_silence_is_no_turn(tmp_path):
    async with (
        voice_setup("openai-realtime", tmp_path, [Turn([Say("Yes?")], hears="Hello")]) as here,
        here.enter() as client,
    ):
        for _ in range(100):
            await client.wire.send(silence(20, here.rate))
        await here.speak(client)
        assert (await client.message("turn_done"))["turn"] == 1
        assert len(client.of("turn")) == 1


async def test_two_sessions_do_not_hear_each_other(tmp_path):
    turns = [Turn([Pause(0), Say("One.")], hears="a"), Turn([Say("Two.")], hears="b")]
    async with voice_setup("openai-realtime", tmp_path, turns) as here:
        other = await here.server.open()
        async with here.enter() as first, on_the_line(other, rate=here.rate) as second:
            await here.speak(first)
            await first.message("turn_done")
            await here.speak(second)
            await second.message("turn_done")
            assert [one["text"] for one in first.of("turn_done")] == ["One."]
            assert [one["text"] for one in second.of("turn_done")] == ["Two."]
            assert (await ticket_for(other))["offline"] is False
    assert asyncio.all_tasks()


async def test_an_idle_conversation_says_goodbye(tmp_path):
    policy = VoicePolicy(idle_seconds=0.3, farewell_seconds=0.3)
    turns = [Turn([Say("Goodbye.")])]
    async with (
        voice_setup("openai-realtime", tmp_path, turns, policy=policy, limits=limits()) as here,
        here.enter() as client,
    ):
        assert (await client.message("ended"))["reason"] == "idle"
        assert await client.closed() == 1000


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_spoken_conversation_takes_tools_that_were_built_again_with_a_click(tmp_path, name):
    turns = [
        Turn([Ask(call("look", q="a")), Say("It cannot be done now.")], hears="Look"),
        Turn([Ask(call("look", q="b")), Say("There it is.")], hears="Look again"),
    ]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        runtime, click = here.server.runtime, f"/api/sessions/{here.api.id}/tools"
        here.server.tools.write({"look": (reading(version="1.1.0"), FOUND)})
        here.server.tools.rebuild()
        await runtime.take_registry(runtime.registry.read_again())
        await here.speak(client)
        await client.message("turn_done", turn=1)
        assert (await client.message("tool_finished"))["error"]["type"] == "CONFLICT"
        taken = await here.server.client.post(click, headers=here.api.headers)
        assert (taken.status_code, taken.json()) == (200, {"version": runtime.registry.version})
        await client.until(lambda one: one.of("state")[-1]["state"] == "listening")
        await here.speak(client)
        await client.message("turn_done", turn=2)
        assert [one["ok"] for one in client.of("tool_finished")] == [False, True]
        assert here.provider.outcomes[-1][1]["meta"]["toolVersion"] == "1.1.0"

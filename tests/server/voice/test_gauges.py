"""What the metrics tell of voice, read from a running server while conversations are on, wait, lose things and end."""

from typing import Any

import pytest
from tests.agents.voice.kit import obedient
from tests.observe.test_metrics import parse
from tests.server.kit import ServerUnderTest, over_socket
from tests.server.voice.kit import VoiceClient, on_the_line, voice_server
from tests.server.voice.test_conversations import PROVIDERS, VoiceSetup, reading_of, voice_setup

from handrail.testing.servers.live import Ask, Say, Turn, call


async def _voice(server: ServerUnderTest) -> dict[str, Any]:
    """The JSON; what Prometheus is told must be the same numbers."""
    told = (await server.get("/metrics", headers={"Accept": "application/json"})).json()["voice"]
    samples = parse((await server.get("/metrics")).text)
    same = {
        "handrail_voice_conversations": told["conversations"],
        "handrail_voice_conversations_waiting": told["waitingForClient"],
        "handrail_voice_conversations_total": told["begun"],
        "handrail_voice_provider_reconnects_total": told["providerReconnects"],
        "handrail_voice_missed_answers_total": told["missedAnswers"],
    }
    assert {name: samples[name, ()] for name in same} == same
    for family, label, facts in (
        ("handrail_voice_dropped_frames_total", "where", told["droppedFrames"]),
        ("handrail_voice_confirmations_total", "outcome", told["confirmations"]),
    ):
        assert {name: samples[family, ((label, name),)] for name in facts} == facts
    return told


def _where(told: dict[str, Any]) -> tuple[int, int, int]:
    return told["conversations"], told["waitingForClient"], told["begun"]


async def test_conversations_that_are_on_that_wait_and_that_were_begun(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        assert _where(await _voice(server)) == (0, 0, 0)
        async with on_the_line(api) as client:
            assert _where(await _voice(server)) == (1, 0, 1)
            await client.drop()
            await server.agent.spoken.until(lambda spoken: None in spoken.lost)
            assert _where(await _voice(server)) == (1, 1, 1)
        async with on_the_line(api) as client:
            assert _where(await _voice(server)) == (1, 0, 1)
            await client.send("end")
            assert await client.closed() == 1000
        assert _where(await _voice(server)) == (0, 0, 1)


async def test_sound_that_is_lost_is_counted_by_where_and_stays_counted(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            spoken = server.agent.spoken
            spoken.takes_audio = False
            await client.wire.send(bytes(640))
            await spoken.until(lambda spoken: spoken.heard)
            spoken.sound_dropped = 3
            await client.drop()
            await spoken.until(lambda spoken: None in spoken.lost)
            spoken.play(1, 0, bytes(960))
            lost = {"slow_client": 0, "no_client": 1, "to_model": 1, "from_model": 3}
            assert (await _voice(server))["droppedFrames"] == lost
        await spoken.end()
        assert (await _voice(server))["droppedFrames"] == lost


async def _answer(here: VoiceSetup, client: VoiceClient, said: int) -> None:
    """Hear the preview to its end, and speak when an answer counts."""
    end = await client.until(lambda one: next(iter(one.of("audio_end")[said:]), None))
    await client.send("played", item=end["item"], ms=end["ms"], done=True)
    await client.message("question", state="asking")
    await here.speak(client)


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(("words", "outcome"), [("Yes.", "approved"), ("No.", "declined")])
async def test_a_spoken_answer_is_counted_by_its_outcome_and_a_lost_provider_by_its_return(
    tmp_path, name, words, outcome
):
    turns = [Turn([Ask(call("pay", q="rent")), Say("One moment.")], hears="Pay"), Turn([Say("Fine.")], hears=words)]
    async with voice_setup(name, tmp_path, turns) as here, here.enter() as client:
        here.provider.on_note = obedient
        await reading_of(here, client)
        await _answer(here, client, 1)
        await client.message("question", state=outcome)
        told = await _voice(here.server)
        assert told["confirmations"] == {"approved": 0, "declined": 0, "expired": 0, "screen": 0, outcome: 1}
        assert told["providerReconnects"] == 0
        here.provider.cut_all()
        await client.message("link", state="up", number=2)
        assert (await _voice(here.server))["providerReconnects"] == 1


async def test_a_server_without_voice_tells_nothing_of_it(tmp_path):
    async with over_socket(tmp_path) as server:
        assert "voice" not in (await server.get("/metrics", headers={"Accept": "application/json"})).json()
        assert "handrail_voice" not in (await server.get("/metrics")).text

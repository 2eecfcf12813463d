"""A whole spoken confirmation with real speech and the real local recogniser beside the provider's transcription."""

import pytest
from tests.agents.voice.kit import Client, VoiceCase, obedient, voice
from tests.agents.voice.spoken import synthetic
from tests.agents.voice.spoken.synthetic import RATE, recogniser, said
from tests.clients.live.kit import PROVIDERS

from handrail.agents.voice.spoken.sphinx_recogniser import resampled
from handrail.testing.servers.live import Ask, Say, Turn, call, silence

synthetic.wanted()
BUY = Turn([Ask(call("buy_table", guest="Ana")), Say("I need your word for that.")], hears="Buy it")


def states(client: Client) -> list[str]:
    return [data["state"] for data in client.of("question")]


async def say_aloud(case: VoiceCase, text: str) -> None:
    rate = case.voice.input_rates[0]
    sound = resampled(said(text, "en-us"), RATE)  # at 16,000
    if rate != 16_000:
        place = range(len(sound) * rate // 16_000)
        pcm = b"".join(sound[one * 16_000 // rate].to_bytes(2, "little", signed=True) for one in place)
    else:
        pcm = sound.tobytes()
    pcm += silence(400, rate)
    size = rate // 50 * 2
    for start in range(0, len(pcm), size):
        case.voice.hear(pcm[start : start + size], rate)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("text", "bought"), [("yes", 1), ("no", 0)])
async def test_what_the_provider_takes_for_a_yes_must_sound_like_one(provider: str, text: str, bought: int) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")], recogniser=recogniser()) as case:
        case.server.on_note = obedient
        await case.speak()
        await case.client.until(lambda client: "asking" in states(client))
        await say_aloud(case, text)
        await case.client.until(lambda client: {"approved", "missed"} & set(states(client)))
        assert ("approved" in states(case.client)) is bool(bought)
        if bought:
            await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 1)
            await case.client.until("confirmation_closed")
            assert states(case.client)[-1] == "approved", "what is approved is not read again"
        assert case.tool_log.of("buy_table") == bought

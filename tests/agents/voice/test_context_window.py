"""The context of a spoken conversation: counted by the provider, and shortened where the provider does not do that itself."""

import json
import logging
from typing import Any

import pytest
from tests.agents.voice.kit import on_model, voice
from tests.clients.live.kit import PROVIDERS

from handrail.agents import AgentPolicy
from handrail.agents.voice.text_model_adapter import TextModelAdapter
from handrail.clients import open_model
from handrail.testing.servers import OllamaServer, Reply
from handrail.testing.servers.live import Ask, Say, Turn, call

TURNS = [
    Turn(
        [Ask(call("find_table", place=f"a{n}")), Ask(call("find_table", place=f"b{n}")), Say(f"Two of {n}.")],
        f"Tables in {n}?",
    )
    for n in (1, 2)
]


def outputs(talk: Any) -> list[dict[str, Any]]:
    items = [one["item"] for one in talk.received if one["type"] == "conversation.item.create"]
    return [json.loads(item["output"]) for item in items if item["type"] == "function_call_output"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_peak_of_a_spoken_session_is_the_provider_s_count(provider: str) -> None:
    async with voice(
        provider, [Turn([Say("Hello.")], "Hello")], agent_policy=AgentPolicy(context_window=1_000_000)
    ) as case:
        await case.speak()
        await case.client.until("turn_done")
        facts = case.runtime.metrics.session(case.voice.session.id)
        assert (facts["peakContextTokens"], facts["contextWindow"]) == (70, 1_000_000)
        assert case.client.of("context") == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_window_that_is_nearly_full_is_told_once(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "handrail.agent")
    async with voice(provider, TURNS, agent_policy=AgentPolicy(context_window=75)) as case:
        for number in (1, 2):
            await case.speak()
            await case.client.until("turn_done", number)
        told = [record for record in caplog.records if "context window" in record.getMessage()]
        assert len(told) == 1
        assert case.runtime.metrics.to_json()["context"]["alarms"] == 1


async def test_openai_is_told_the_conversation_anew_without_the_oldest_results_and_with_all_that_was_said() -> None:
    async with voice("openai-realtime", TURNS, agent_policy=AgentPolicy(context_window=75)) as case:
        for number in (1, 2):
            await case.speak()
            await case.client.until("turn_done", number)
        await case.client.until(lambda client: len(client.of("link")) >= 3)
        told = outputs(case.server.conversations[1])
        assert ["leftOut" in one for one in told] == [True, True, False, False]
        items = [
            one["item"] for one in case.server.conversations[1].received if one["type"] == "conversation.item.create"
        ]
        said = [item["content"][0]["text"] for item in items if item["type"] == "message" and item["role"] == "user"]
        assert said == ["Tables in 1?", "Tables in 2?"]
        assert case.server.complaints == []


async def test_a_spoken_conversation_learns_the_room_that_an_ollama_gives_its_model() -> None:
    replies = [Reply("One.", usage=(850, 20)), Reply("Two.", usage=(3_900, 20))]
    async with OllamaServer(replies, api_key="", models={"spoken": ["tools"]}, context=40_960, loaded=4_096) as ollama:
        text_model = open_model("ollama:spoken", environment={}, base_url=ollama.base_url)
        try:
            async with on_model(TextModelAdapter(text_model, clock=lambda: 1_800_000_000.0)) as case:
                for number, window in ((1, 40_960), (2, 4_096)):
                    await case.voice.say("Hello", id=f"u{number}")
                    await case.client.until("turn_done", number)
                    facts = case.runtime.metrics.session(case.voice.session.id)
                    assert facts["contextWindow"] == window
                assert case.client.of("context") == [{"usedTokens": 3_920, "windowTokens": 4_096}]
        finally:
            await text_model.close()

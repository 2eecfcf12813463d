"""The context window: every provider's models have one, the provider's own count is believed, and a full one sheds results."""

import logging

import pytest
from tests.agents.invented_tools import Invented, open_agent

from handrail import Call
from handrail.agents import AgentPolicy
from handrail.agents.conversation import Conversation
from handrail.clients import open_model
from handrail.contract.model import ToolMessage, Usage, UserMessage
from handrail.providers.catalogue import own_providers
from handrail.providers.context_windows import WINDOWS, context_window
from handrail.testing import PlayedModel
from handrail.testing.servers import OllamaServer, Reply

LONG = Invented("read_page", "retrieval", "Reads a page.", body="return {'ok': True, 'data': {'page': 'x' * 2_000}}")


def results(request):
    return [message.envelope for message in request.messages if isinstance(message, ToolMessage)]


def words(request):
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


@pytest.mark.parametrize(
    ("provider", "model", "window"),
    [
        ("openai-chat", "gpt-4o-mini-2024-07-18", 128_000),
        ("openai-chat", "gpt-4-0613", 8_192),
        ("openai-responses", "gpt-5-mini", 400_000),
        ("openai", "gpt-4.1-nano", 1_047_576),
        ("openai-realtime", "gpt-realtime-2025-08-28", 32_000),
        ("gemini", "models/gemini-2.5-flash", 1_048_576),
        ("gemini-live", "gemini-live-2.5-flash-preview", 128_000),
        ("anthropic", "claude-sonnet-4-5", 200_000),
        ("openai-chat", "gpt-4-1106-preview", 128_000),
        ("openai-chat", "gpt-4-0125-preview", 128_000),
        ("openai-chat", "gpt-4-turbo", 128_000),
        ("openai-chat", "o1-mini-2024-09-12", 128_000),
        ("openai-chat", "chatgpt-4o-latest", 128_000),
        ("openai-chat", "ft:gpt-4.1-mini:acme:support:abc123", 1_047_576),
        ("gemini", "gemini-flash-latest", 1_048_576),
        ("gemini", "gemini-flash-lite-latest", 1_048_576),
        ("gemini", "gemini-3-pro-preview", 1_048_576),
        ("gemini", "gemini-3.1-pro-preview", 1_048_576),
        ("gemini", "gemini-3.1-flash-lite", 1_048_576),
        ("gemini", "gemini-3-pro-image-preview", None),
        ("gemini", "gemini-3.1-flash-lite-image", None),
        ("gemini", "gemini-2.5-flash-preview-tts", None),
        ("openai-chat", "gpt-5.2-chat-latest", 128_000),
        ("anthropic", "claude-3-5-haiku-latest", 200_000),
        ("openai-chat", "gpt-5.2", 400_000),
        ("openai-chat", "gpt-5.99", None),
        ("openai-chat", "gpt-4.5-preview", None),
        ("openai-chat", "o10", None),
        ("gemini", "gemini-9-pro", None),
        ("anthropic", "claude-sonnet-9", None),
        ("ollama", "qwen3", None),
        ("openai-chat", "a-model-of-my-own", None),
        ("nobody", "gpt-4o", None),
    ],
)
def test_the_longest_name_in_the_table_counts_and_what_is_not_known_is_not_guessed(provider, model, window):
    assert context_window(provider, model) == window


def test_a_window_that_is_not_known_is_said_once(caplog):
    for _ in range(3):
        assert context_window("openai-chat", "a-model-that-nobody-knows") is None
    (said,) = (one.getMessage() for one in caplog.records if "a-model-that-nobody-knows" in one.getMessage())
    assert "set `context_window` in [agent] or [voice]" in said


def test_every_provider_with_models_is_in_the_table_with_a_source_or_asks_its_server():
    with_models = {one.name for one in own_providers().values() if one.client is not None}
    assert with_models - {name for row in WINDOWS for name in row.providers} == {"ollama"}
    assert all(row.source.startswith("https://") for row in WINDOWS)


@pytest.mark.parametrize(
    ("server", "first", "then"),
    [
        ({"context": 40_960}, 40_960, 40_960),
        ({"context": 40_960, "num_ctx": 8_192}, 8_192, 8_192),
        ({"context": 4_096, "num_ctx": 8_192}, 4_096, 4_096),
        ({"context": 40_960, "loaded": 4_096}, 40_960, 4_096),
        ({"loaded": 4_096}, None, 4_096),
        ({}, None, None),
    ],
)
async def test_the_window_of_an_ollama_s_model_is_what_the_server_says_of_it(server, first, then, caplog):
    replies = [Reply("One.", usage=(850, 20)), Reply("Two.", usage=(3_900, 20)), Reply("Three.", usage=(3_950, 20))]
    async with OllamaServer(replies, api_key="", models={"mine": ["tools"]}, **server) as ollama:
        model = open_model("ollama:mine", environment={}, base_url=ollama.base_url)
        try:
            async with open_agent(LONG, model=model) as here:
                await here.say("Hello")
                assert model.context_window == first
                await here.say("And?")
                assert model.context_window == then
                full = {"usedTokens": 3_920, "windowTokens": 4_096}
                assert here.told("usage")[0].get("context") == (full if then == 4_096 else None)
                await here.say("And now?")
        finally:
            await model.close()
    assert [request.path for request in ollama.lookups] == ["/api/show", "/api/ps"]
    assert ("is not known" in caplog.text) is (then is None)


async def test_an_ollama_that_says_nothing_of_a_model_answers_all_the_same():
    async with OllamaServer([Reply("One."), Reply("Two.")], api_key="") as ollama:  # it does not even have it, it says
        model = open_model("ollama:qwen3", environment={}, base_url=ollama.base_url)
        try:
            async with open_agent(LONG, model=model) as here:
                assert (await here.say("Hello"), await here.say("And?")) == ("One.", "Two.")
                assert model.context_window is None
        finally:
            await model.close()


async def test_the_provider_s_own_count_is_the_peak_and_beyond_nine_tenths_it_is_told_once(caplog):
    caplog.set_level(logging.WARNING, "handrail.agent")
    model = PlayedModel(
        [["One.", Usage(850, 20)], ["Two.", Usage(905, 20)], ["Three.", Usage(930, 20)]], context_window=1_000
    )
    async with open_agent(LONG, model=model) as here:
        await here.say("Hello")
        assert here.runtime.metrics.session(here.session.id)["peakContextTokens"] == 870
        assert "context" not in here.told("usage")[0]
        await here.say("And?")
        assert here.told("usage")[0]["context"] == {"usedTokens": 925, "windowTokens": 1_000}
        await here.say("And now?")
        facts = here.runtime.metrics.to_json()
        assert facts["context"] | {"alarms": 1, "peakTokens": 950} == facts["context"]
        assert any("95% of its model's context window" in one for one in facts["warnings"])
        assert "handrail_context_alarms_total 1" in here.runtime.metrics.to_prometheus()
        assert sum("tokens of its model's context window" in record.getMessage() for record in caplog.records) == 1


async def test_a_full_window_leaves_out_the_oldest_results_and_never_what_the_user_said():
    calls = [piece for n in range(4) for piece in ([Call("read_page", {}, f"c{n}")], [f"Page {n}."])]
    calls[7] = [calls[7][0], Usage(3_900, 40)]
    model = PlayedModel([*calls, ["Done."]], context_window=4_000)
    async with open_agent(LONG, model=model) as here:
        for number in range(4):
            await here.say(f"Read page {number}")
        before = results(model.requests[-1])
        await here.say("Which was the first?")
        after = results(model.requests[-1])
        assert len(before) == len(after) == 4
        assert after[0] == {"ok": True, "leftOut": "This old result is no longer sent, to save room."}
        assert sum("leftOut" in one for one in after) > sum("leftOut" in one for one in before)
        assert words(model.requests[-1]) == [*(f"Read page {number}" for number in range(4)), "Which was the first?"]
        assert here.told("usage")[0]["leftOut"] == sum("leftOut" in one for one in after)


async def test_the_configuration_s_window_is_believed_before_the_table_s():
    model = PlayedModel([["One.", Usage(95, 2)]], context_window=1_000)
    async with open_agent(LONG, model=model, policy=AgentPolicy(context_window=100)) as here:
        await here.say("Hello")
        assert here.told("usage")[0]["context"] == {"usedTokens": 97, "windowTokens": 100}


def test_for_the_window_s_sake_only_results_go_even_if_that_is_not_enough():
    conversation = Conversation()
    for number in range(3):
        conversation.begin("words " * 100, f"m{number}")
        conversation.add(ToolMessage(f"c{number}", "read_page", {"ok": True, "data": "x" * 400}))
    sent, left_out, _ = conversation.sent_within(100_000, room=10)
    assert left_out == 3
    assert sum(isinstance(message, UserMessage) for message in sent) == 3

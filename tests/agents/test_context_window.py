"""The context window: every provider's models have one, the provider's own count is believed, and a full one sheds results."""

import logging

import pytest
from tests.agents.inventions import Invented, desk

from handrail import Call
from handrail.agents import AgentPolicy
from handrail.agents.conversation import Conversation
from handrail.contract.model import ToolMessage, Usage, UserMessage
from handrail.providers.catalogue import own_providers
from handrail.providers.context_windows import WINDOWS, context_window
from handrail.testing import PlayedModel

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


def test_every_vendor_that_sells_models_is_in_the_table_with_a_source():
    hosted = {one.name for one in own_providers().values() if one.client is not None and one.client.needs_key}
    assert hosted <= {name for row in WINDOWS for name in row.providers}
    assert all(row.source.startswith("https://") for row in WINDOWS)


async def test_the_provider_s_own_count_is_the_peak_and_beyond_nine_tenths_it_is_told_once(caplog):
    caplog.set_level(logging.WARNING, "handrail.agent")
    model = PlayedModel(
        [["One.", Usage(850, 20)], ["Two.", Usage(905, 20)], ["Three.", Usage(930, 20)]], context_window=1_000
    )
    async with desk(LONG, model=model) as here:
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
    async with desk(LONG, model=model) as here:
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
    async with desk(LONG, model=model, policy=AgentPolicy(context_window=100)) as here:
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

"""Conversations that were recorded with the real SDKs play again in virtual time, each time with the same lines."""

import pytest
from tests.clients.live.kit import PROVIDERS
from tests.voice.scenarios import SCENARIOS, recorded, replayed

from handrail.testing.recording import Replayed


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recorded_conversation_replays_with_the_same_lines(provider: str, name: str) -> None:
    lines, live = recorded(provider, name)
    first, unlike = replayed(lines, name)
    second, _ = replayed(lines, name)
    assert unlike == []
    assert first.told == second.told
    assert (first.effects, first.outcomes, first.ended) == (live.effects, live.outcomes, live.ended)
    assert first.answers == live.answers


def test_a_host_that_does_not_answer_a_call_is_found_out() -> None:
    lines, _ = recorded("openai-realtime", "booking")
    made = next(place for place, line in enumerate(lines) if line.get("event") == "CallsMade")
    without = [line for place, line in enumerate(lines) if place != made]
    assert Replayed(lines).provider == "openai-realtime"
    with pytest.raises(AssertionError, match="did not come to"):
        replayed(without, "booking")

"""The whole way of voice: speech in a file, the browser's microphone, the console, a real server process, a provider on loopback
behind the real SDK, and back to the browser's loudspeaker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.browser import chromium, launched, opened
from tests.console.served import Served
from tests.console.spoken import microphone, running, speech

from handrail.testing.servers.live import Ask, OpenAIRealtimeServer, Say, Turn, call

ANSWER = "Handrail is a tool runtime for agents that speak and type."


@pytest.fixture
def provider() -> Iterator[OpenAIRealtimeServer]:
    turns = [
        Turn([Ask(call("kb_search", query="Handrail")), Say(ANSWER)], hears="What is Handrail?"),
        Turn([Say("You are welcome.")], hears="Thank you."),
    ]
    with running(OpenAIRealtimeServer(turns)) as server:
        yield server


@pytest.fixture
def served(tmp_path: Path, provider: OpenAIRealtimeServer) -> Iterator[Served]:
    chromium()
    voice = {"model": "openai-realtime:gpt-realtime", "base_url": provider.base_url}
    lines = [f"{name} = {json.dumps(value)}" for name, value in voice.items()]
    text = "\n".join(['[tools]\nreference = ["*"]', "[voice]", *lines])
    (tmp_path / "handrail.toml").write_text(text + "\n", encoding="utf-8")
    server = Served(tmp_path, OPENAI_API_KEY=provider.api_key)
    yield server
    server.close()


def test_a_spoken_question_is_transcribed_looked_up_and_answered_aloud(
    tmp_path: Path, provider: OpenAIRealtimeServer, served: Served
) -> None:
    question = speech(tmp_path / "question.wav", before=0.5, words="What is Handrail?", after=1.0)
    with launched(*microphone(question, again=False)) as browser, opened(browser, served.console) as it:
        page = it.page
        page.get_by_role("button", name="Talk").click()
        page.wait_for_function("() => document.querySelector('.level-fill').getBoundingClientRect().width > 20")
        page.locator(".bubble", has_text="What is Handrail?").wait_for()
        page.locator(".card[data-state=done] .tool-name", has_text="kb_search").wait_for()
        page.locator(".prose", has_text=ANSWER).wait_for()
        page.locator(".voice-bar[data-state=speaking]").wait_for()
        it.shoot("voice-served-speaking")
        page.locator(".voice-bar[data-state=listening]").wait_for()
        times = page.locator(".latency").inner_text()
        assert "model" in times
        assert "tools" in times
        page.fill("#message", "Thank you.")
        page.press("#message", "Enter")
        page.locator(".prose", has_text="You are welcome.").wait_for()
        page.get_by_role("button", name="End voice").first.click()
        page.locator("section.voice-bar").wait_for(state="hidden")
        page.reload()
        page.locator(".bubble", has_text="What is Handrail?").wait_for()
        it.shoot("voice-served-reloaded")
        assert page.locator(".prose").all_inner_texts() == [ANSWER, "You are welcome."]
        assert page.locator(".latency").count() == 2
    assert provider.complaints == []
    assert [name for name, _ in provider.outcomes] == ["kb_search"]

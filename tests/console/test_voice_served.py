"""The whole way of voice: speech in a file, the browser's microphone, the console, a real server process, a provider on loopback
behind the real SDK, and back to the browser's loudspeaker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.browser import chromium, launched, opened
from tests.console.served import Served
from tests.console.spoken import bookings, environment, microphone, project, running, settings, speech

from handrail.testing.servers.live import Ask, GeminiLiveServer, OpenAIRealtimeServer, Say, Turn, call
from handrail.testing.servers.live.script import ScriptProgress
from handrail.testing.servers.live.server import LiveServer

ANSWER = "Handrail is a tool runtime for agents that speak and type."
FAREWELL = {
    "reason": "task_complete",
    "closing_message": "Goodbye, and thank you.",
    "text_response": "More is in the docs.",
}
START_MUTED = "() => import('/console/voice.js').then(({ voice }) => { voice.start(); voice.mute(); })"


PROVIDERS = [
    pytest.param(OpenAIRealtimeServer, id="openai"),
    pytest.param(GeminiLiveServer, id="gemini", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with running(request.param()) as server:
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: LiveServer) -> Iterator[Served]:
    chromium()
    folder = tmp_path_factory.mktemp("spoken")
    server = Served(project(folder, settings(provider)), **environment(provider, folder))
    yield server
    server.close()


def test_a_spoken_question_is_looked_up_and_answered_aloud_and_a_farewell_leads_back_to_text(
    tmp_path: Path, provider: LiveServer, served: Served
) -> None:
    provider.progress = ScriptProgress(
        [
            Turn([Ask(call("kb_search", query="Handrail")), Say(ANSWER)], hears="What is Handrail?"),
            Turn([Ask(call("end_voice_session", **FAREWELL)), Say(FAREWELL["closing_message"])]),
        ]
    )
    question = speech(tmp_path / "question.wav", before=0.5, words="What is Handrail?", after=1.0)
    with launched(*microphone(question, again=False)) as browser, opened(browser, served.console) as it:
        page = it.page
        page.get_by_role("button", name="Talk").click()
        page.wait_for_function("() => document.querySelector('.level-fill').getBoundingClientRect().width > 20")
        page.locator(".bubble", has_text="What is Handrail?").wait_for()
        page.locator(".card[data-state=done] .tool-name", has_text="kb_search").wait_for()
        page.locator("section.voice-bar[data-state=speaking]").wait_for()
        page.locator(".prose", has_text=ANSWER).wait_for()
        it.shoot("voice-served-speaking")
        left = page.locator(".meter-value")
        *counted, time_left = left.all_inner_texts()
        assert counted == ["1 of 2 left", "2 of 3 left"], "what a turn may use in voice"
        assert time_left.endswith(" of 1,500 ms left")
        page.locator(".latency").wait_for()
        # The server takes it to be over when the console has said that it was heard to its end.
        page.locator("section.voice-bar[data-state=listening]").wait_for()
        times = page.locator(".latency").inner_text()
        assert all(part in times for part in ("model", "tools", "speaking"))
        page.fill("#message", "Thank you, that is all.")
        page.press("#message", "Enter")
        page.locator(".prose", has_text=FAREWELL["text_response"]).wait_for()
        page.locator("section.voice-bar").wait_for(state="hidden")
        page.locator(".meter-value", has_text="of 5 left").wait_for()
        said = [ANSWER, FAREWELL["closing_message"], FAREWELL["text_response"]]
        assert page.locator(".prose").all_inner_texts() == said
        page.reload()
        page.locator(".bubble", has_text="What is Handrail?").wait_for()
        assert page.locator(".prose").all_inner_texts() == said
        assert page.locator(".latency").count() == 2
        it.shoot("voice-served-reloaded")
    assert provider.complaints == []
    assert [name for name, _ in provider.outcomes] == ["kb_search", "end_voice_session"]


def reads_aloud(note: str) -> list[Say]:
    """A model that says what the host asks it to say, and is glad when something was done."""
    _, asked, text = note.partition("word for word and nothing else, and call no tool: ")
    return [Say(text if asked else "It is booked.")]


def test_a_table_is_booked_once_by_a_spoken_yes_after_the_preview_was_heard(
    tmp_path: Path, provider: LiveServer, served: Served
) -> None:
    provider.on_note = reads_aloud
    booking = Ask(call("book_table", name="Ana", people=4))
    provider.progress = ScriptProgress([Turn([booking, Say("One moment.")]), Turn([Say("Thank you.")], hears="Yes.")])
    # The person says yes again and again, pauses long enough to have finished, and is muted until the question was asked.
    yes = speech(tmp_path / "yes.wav", before=0.4, words="Yes", after=3.0)
    with launched(*microphone(yes, again=True)) as browser, opened(browser, served.console) as it:
        page = it.page
        page.locator(".welcome").wait_for()
        page.evaluate(START_MUTED)
        page.locator("section.voice-bar[data-state=muted]").wait_for()
        page.fill("#message", "A table for Ana and three others, please.")
        page.press("#message", "Enter")
        page.locator(".spoken-question[data-state=reading]").wait_for()
        page.locator(".spoken-question[data-state=asking]").wait_for()
        assert page.locator(".preview").inner_text() == "Book a table for 4 on the name Ana."
        assert page.locator(".prose", has_text="Book a table for 4").count() == 1, "it was read aloud"
        assert bookings(served.folder) == []
        page.evaluate("() => import('/console/voice.js').then(({ voice }) => voice.mute())")
        page.locator(".toast", has_text="Approved by voice.").wait_for()
        page.get_by_role("dialog").wait_for(state="detached")
        page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
        it.shoot("voice-served-approved")
    assert bookings(served.folder) == ["Ana 4"]
    assert provider.complaints == []

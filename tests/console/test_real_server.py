"""The console and the real server together: what a person meets after `make run`."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import LOOKS, Opened, chromium, opened
from tests.console.served import Served
from tests.console.test_voice_offline import SPEECH

ZONE = ZoneInfo("Europe/Zagreb")
DEAF = "delete window.SpeechRecognition; delete window.webkitSpeechRecognition;"

SPEAK_TO_THE_END = """async () => {
  while (speechSynthesis.now) { speechSynthesis.finish(); await new Promise((next) => setTimeout(next, 20)); }
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    chromium()
    server = Served(tmp_path_factory.mktemp("served"))
    yield server
    server.close()


def say(it: Opened, text: str) -> None:
    it.page.fill("#message", text)
    it.page.press("#message", "Enter")


def meetings_with(served: Served, address: str) -> list[dict[str, Any]]:
    """Events of the next days that this person was invited to."""
    now = datetime.now(ZONE)
    found = served.events_on(now.isoformat(timespec="seconds"), (now + timedelta(days=4)).isoformat(timespec="seconds"))
    return [event for event in found if address.partition("@")[0].capitalize() in str(event.get("title"))]


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_a_question_is_answered_with_citations_that_open_their_source(
    browser: Any, served: Served, name: str, viewport: dict[str, int], scheme: str
) -> None:
    with opened(browser, served.console, viewport=viewport, scheme=scheme) as it:
        say(it, "What is Handrail?")
        it.page.locator(".cited h3").wait_for()
        assert "tool runtime" in it.page.locator(".by-model").inner_text()
        assert it.page.locator(".card[data-state=done] .tool-name", has_text="kb_search").count() >= 1
        assert obstacles(it.page) == []
        it.shoot(f"served-{name}-answer")
        it.page.locator(".mark").first.click()
        it.page.locator(".source-body p:not(.quiet)").first.wait_for()
        assert "tool" in it.page.locator(".source-body").inner_text()
        it.shoot(f"served-{name}-source")


def test_a_meeting_is_approved_twice_with_a_reload_between_and_created_once(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        say(it, "book a meeting with ana@example.com tomorrow at three")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("ana@example.com").first.wait_for()
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        it.shoot("served-wide-confirmation")
        dialog.get_by_role("button", name="Approve").dblclick(no_wait_after=True)
        it.page.reload()
        it.page.locator(".log .by-user").first.wait_for()
        # Whether the first press arrived before the reload or not: a second one must not make a second meeting.
        if it.page.get_by_role("dialog").count():
            it.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        it.page.locator(".card[data-state=done] .tool-name", has_text="calendar_create_event").wait_for()
        it.page.locator(".by-model", has_text="Done").last.wait_for()
        it.shoot("served-wide-approved")
    assert len(meetings_with(served, "ana@example.com")) == 1


def test_a_pending_request_outlives_a_killed_server_and_is_carried_out_once(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        say(it, "book a meeting with bob@example.com tomorrow at five")
        it.page.get_by_role("dialog").wait_for()
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        served.kill()
        it.page.locator(".connection[data-state=waiting]").wait_for()
        served.start_again()
        it.page.locator(".connection[data-state=live]").wait_for(timeout=20_000)
        it.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        it.page.locator(".card[data-state=done] .tool-name", has_text="calendar_create_event").wait_for()
    assert len(meetings_with(served, "bob@example.com")) == 1


def test_everything_goes_by_keyboard_alone(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        page = it.page
        page.locator(".welcome").wait_for()
        page.keyboard.type("book a meeting with eve@example.com tomorrow at ten")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Decline":
                break
        page.keyboard.press("Enter")
        page.get_by_text("Declined: calendar_create_event was not run.").first.wait_for()
        assert page.evaluate("document.activeElement.id") == "message"
    assert meetings_with(served, "eve@example.com") == []


def test_a_tool_is_tried_through_the_pipeline_and_its_refusal_explained(browser: Any, served: Served) -> None:
    with opened(browser, f"{served.console}&/tools/calendar_get_availability") as it:
        page = it.page
        page.get_by_role("button", name="Run through the pipeline").click()
        page.locator("[aria-invalid]").first.wait_for()
        assert page.locator(".field:has([aria-invalid]) label span:first-child").all_inner_texts() == [
            "start_date",
            "end_date",
        ]
        page.get_by_label("start_date").fill("2026-12-01T09:00")
        page.get_by_label("end_date").fill("2026-12-01T18:00")
        page.get_by_role("button", name="Run through the pipeline").click()
        page.locator(".result .card[data-state=done]").wait_for()
        assert page.locator(".try [aria-invalid]").count() == 0
        page.locator("[data-place=audit]").click()
        refusal = page.locator(".audit-line", has_text="refusal").first
        refusal.locator("summary").click()
        page.get_by_role("button", name="Why was this refused?").click()
        page.locator(".why", has_text="was refused").wait_for()
        it.shoot("served-wide-audit")


def test_the_operators_views_work_on_the_real_numbers(browser: Any, served: Served) -> None:
    with opened(browser, f"{served.console}&/metrics") as it:
        page = it.page
        page.locator("[data-plot=latency] .hbar").first.wait_for()
        assert obstacles(page) == []
        it.shoot("served-wide-metrics")
        page.locator("[data-place=operate]").click()
        page.get_by_text("Every outcome is known.").wait_for()
        page.get_by_role("switch", name="format_datetime").click()
        page.get_by_role("textbox", name="Why?").fill("for a test")
        page.keyboard.press("Enter")
        page.locator(".switch-line", has_text="for a test").wait_for()
        off = {tool["id"]: tool["switchedOff"] for tool in served.ask("GET", "/api/tools")["tools"]}
        assert off["format_datetime"] == "for a test"
        page.get_by_role("switch", name="format_datetime").click()
        page.get_by_text("format_datetime is on.").first.wait_for()
        it.shoot("served-wide-operate")


def test_without_a_provider_one_talks_with_the_browsers_own_ears_and_voice(browser: Any, served: Served) -> None:
    with opened(browser, served.console, before=SPEECH) as it:
        page = it.page
        page.get_by_role("button", name="Talk").click()
        page.locator("section.voice-bar[data-state=listening]").wait_for()
        page.evaluate("heard.onspeechstart()")
        page.evaluate("hear('what is Handrail', true)")
        page.locator(".card[data-state=done] .tool-name", has_text="kb_search").wait_for()
        page.locator(".prose", has_text="tool runtime").wait_for()
        page.locator(".latency").wait_for()  # from here on nothing more is to be spoken
        page.evaluate(SPEAK_TO_THE_END)
        page.locator("section.voice-bar[data-state=listening]").wait_for()
        assert page.evaluate("said.join(' ')") in page.locator(".by-model").inner_text()
        page.get_by_role("button", name="End voice").first.click()
        page.locator("section.voice-bar").wait_for(state="hidden")
        say(it, "What is Handrail?")
        page.locator(".cited h3").wait_for()


def test_without_a_recogniser_one_types_in_voice_and_stays_under_its_policy(browser: Any, served: Served) -> None:
    with opened(browser, served.console, before=DEAF) as it:
        page = it.page
        page.get_by_role("button", name="Talk").click()
        page.get_by_text("Type: this browser can neither recognise speech nor speak.").wait_for()
        say(it, "book a meeting with kim@example.com tomorrow at three")
        page.locator(".latency").wait_for()
        assert page.get_by_role("dialog").count() == 0, "the calendar is written to in text only"
        page.reload()
        page.get_by_role("button", name="Go on talking").click()
        page.locator("section.voice-bar[data-state=listening]").wait_for()
    assert meetings_with(served, "kim@example.com") == []

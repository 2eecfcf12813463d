"""The console and the real server together: what a person meets after `make run`, and again before two servers on PostgreSQL
behind a proxy that gives each request to the next."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import LOOKS, Opened, chromium, opened
from tests.console.served import Reached, Served, TwoServed
from tests.console.test_voice_offline import SPEECH
from tests.server.keys import in_store

ZONE = ZoneInfo("Europe/Zagreb")
DEAF = "delete window.SpeechRecognition; delete window.webkitSpeechRecognition;"

SPEAK_TO_THE_END = """async () => {
  while (speechSynthesis.now) { speechSynthesis.finish(); await new Promise((next) => setTimeout(next, 20)); }
}"""


@pytest.fixture(scope="module", params=["one server", pytest.param("two servers", marks=pytest.mark.long)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    chromium()
    folder = tmp_path_factory.mktemp("served")
    server: Served | TwoServed
    if request.param == "one server":
        server = Served(folder)
    else:
        server = TwoServed(folder, request.getfixturevalue("postgres").new_database(empty=True))
    yield server
    server.close()


def say(it: Opened, text: str) -> None:
    it.page.fill("#message", text)
    it.page.press("#message", "Enter")


def meetings_with(served: Reached, address: str) -> list[dict[str, Any]]:
    """Events of the next days that this person was invited to."""
    now = datetime.now(ZONE)
    found = served.events_on(now.isoformat(timespec="seconds"), (now + timedelta(days=4)).isoformat(timespec="seconds"))
    return [event for event in found if address.partition("@")[0].capitalize() in str(event.get("title"))]


def switched_off(served: Reached) -> dict[str, str]:
    return {tool["id"]: tool["switchedOff"] for tool in served.ask("GET", "/api/tools")["tools"]}


def wait_for(happened: Callable[[], bool]) -> None:
    """What one server has done, another knows a moment later."""
    until = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_a_question_is_answered_with_citations_that_open_their_source(
    browser: Any, served: Reached, name: str, viewport: dict[str, int], scheme: str
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


def test_a_meeting_is_approved_twice_with_a_reload_between_and_created_once(browser: Any, served: Reached) -> None:
    with opened(browser, served.console) as it:
        say(it, "book a meeting with ana@example.com tomorrow at 3 pm")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("ana@example.com").first.wait_for()
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        it.shoot("served-wide-confirmation")
        assert "The assistant asked to run" in dialog.inner_text()
        assert "Local time" not in dialog.inner_text(), "the template has it already"
        dialog.get_by_role("button", name="Approve").dblclick(no_wait_after=True)
        it.page.reload()
        it.page.locator(".log .by-user").first.wait_for()
        # Whether the first press arrived before the reload or not: a second one must not make a second meeting.
        approve = it.page.get_by_role("dialog").get_by_role("button", name="Approve")
        approve.or_(it.page.locator(".card[data-state=done]")).first.wait_for()
        if approve.count():
            approve.click()
        it.page.locator(".card[data-state=done] .tool-name", has_text="calendar_create_event").wait_for()
        it.page.locator(".by-model", has_text="Done").last.wait_for()
        it.shoot("served-wide-approved")
    assert len(meetings_with(served, "ana@example.com")) == 1


def test_a_pending_request_outlives_a_killed_server_and_is_carried_out_once(browser: Any, served: Reached) -> None:
    with opened(browser, served.console) as it:
        say(it, "book a meeting with bob@example.com tomorrow at 5 pm")
        it.page.get_by_role("dialog").wait_for()
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        served.kill()
        it.page.locator(".connection[data-state=waiting]").wait_for()
        served.start_again()
        it.page.locator(".connection[data-state=live]").wait_for(timeout=20_000)
        it.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        it.page.locator(".card[data-state=done] .tool-name", has_text="calendar_create_event").wait_for()
    assert len(meetings_with(served, "bob@example.com")) == 1


def test_when_the_key_ends_nothing_of_its_session_stays_over_the_sign_in_page(browser: Any, served: Reached) -> None:
    secret = served.add_key("guest", user="guest")
    with opened(browser, f"{served.url}/#key={secret}") as it:
        say(it, "book a meeting with liv@example.com tomorrow at nine")
        it.page.get_by_role("dialog").wait_for()
        in_store(served.store, lambda keys: keys.revoke("guest"))
        it.page.get_by_text("The server does not know this key any more.").wait_for()
        assert it.page.get_by_role("dialog").count() == 0
        assert it.page.locator(".log, .held-line, .toast").count() == 0
        assert it.page.evaluate("document.activeElement.id") == "key"
        it.shoot("served-wide-key-ended")
        it.page.keyboard.type(served.key)  # another person's: nothing of the guest's is shown
        it.page.keyboard.press("Enter")
        it.page.locator(".welcome").wait_for()
        assert it.page.get_by_role("dialog").count() == 0


def test_everything_goes_by_keyboard_alone(browser: Any, served: Reached) -> None:
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
        page.locator(".confirm .primary:not([aria-disabled])").wait_for()  # nobody has read it sooner
        page.keyboard.press("Enter")
        page.get_by_text("Declined: calendar_create_event was not run.").first.wait_for()
        assert page.evaluate("document.activeElement.id") == "message"
    assert meetings_with(served, "eve@example.com") == []


def test_a_tool_is_tried_through_the_pipeline_and_its_refusal_explained(browser: Any, served: Reached) -> None:
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


def test_the_operators_views_work_on_the_real_numbers(browser: Any, served: Reached) -> None:
    with opened(browser, served.console) as it:
        say(it, "What is Handrail?")  # a call to measure, whichever tests this server has seen
        it.page.locator(".cited h3").wait_for()
    with opened(browser, f"{served.console}&/metrics") as it:
        page = it.page
        page.locator("[data-plot=latency] .hbar").first.wait_for()
        assert obstacles(page) == []
        it.shoot("served-wide-metrics")
        page.get_by_role("img", name="Calls by day").wait_for()
        page.get_by_role("group", name="Tools", exact=True).scroll_into_view_if_needed()
        assert obstacles(page) == []
        it.shoot("served-wide-statistics")
        page.locator("[data-place=operate]").click()
        page.get_by_text("Every outcome is known.").wait_for()
        page.get_by_role("switch", name="format_datetime").click()
        page.get_by_role("textbox", name="Why?").fill("for a test")
        page.keyboard.press("Enter")
        page.locator(".switch-line", has_text="for a test").wait_for()
        wait_for(lambda: switched_off(served).get("format_datetime") == "for a test")
        page.get_by_role("switch", name="format_datetime").click()
        page.get_by_text("format_datetime is on.").first.wait_for()
        it.shoot("served-wide-operate")


def test_without_a_provider_one_talks_with_the_browsers_own_ears_and_voice(browser: Any, served: Reached) -> None:
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


def test_without_a_recogniser_one_types_in_voice_and_stays_under_its_policy(browser: Any, served: Reached) -> None:
    with opened(browser, served.console, before=DEAF) as it:
        page = it.page
        page.get_by_role("button", name="Talk").click()
        page.get_by_text("Type: this browser can neither recognise speech nor speak.").wait_for()
        say(it, "book a meeting with kim@example.com tomorrow at 3 pm")
        page.locator(".latency").wait_for()
        assert page.get_by_role("dialog").count() == 0, "the calendar is written to in text only"
        page.reload()
        page.get_by_role("button", name="Continue talking").click()
        # Until the server that had the voice gives it up, another does not take it.
        page.locator("section.voice-bar[data-state=listening]").wait_for(timeout=60_000)
    assert meetings_with(served, "kim@example.com") == []


# ----------------------------------------------------------------------------------- a changed mind, with the old request open
def put_aside(it: Opened) -> None:
    it.page.get_by_role("dialog").get_by_role("button", name="Decide later").click()


def review(it: Opened, about: str) -> Any:
    """The dialog of the request whose line says this."""
    it.page.locator(".held-line", has_text=about).get_by_role("button", name="Review", exact=True).click()
    return it.page.get_by_role("dialog")


@pytest.mark.parametrize(("word", "events"), [("Decline", 1), ("Approve", 2)])
def test_a_corrected_meeting_is_one_event_unless_the_person_says_yes_to_the_clash(
    browser: Any, served: Reached, word: str, events: int
) -> None:
    guest = {"Decline": "mia@example.com", "Approve": "nina@example.com"}[word]
    hour = {"Decline": 11, "Approve": 13}[word]
    with opened(browser, served.console) as it:
        say(it, f"book a meeting with {guest} tomorrow at {hour}:00")
        it.page.get_by_role("dialog").get_by_text("No clashes").wait_for()
        put_aside(it)
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        say(it, f"book a meeting with {guest} tomorrow at {hour}:10")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("No clashes").wait_for()
        assert not dialog.get_by_text("A newer request has replaced this one").is_visible()
        dialog.get_by_role("button", name="Approve").click()
        it.page.locator(".card[data-state=done] .tool-name", has_text="calendar_create_event").wait_for()
        it.page.locator(".by-model", has_text="Done").last.wait_for()
        [line] = it.page.locator(".held-line").all()
        assert "Replaced by a newer request" in line.inner_text()
        it.shoot(f"served-replaced-{word.lower()}-line")
        dialog = review(it, "Replaced by a newer request")
        dialog.get_by_text("A newer request has replaced this one").wait_for()
        dialog.get_by_text("Clashes with 1 busy time").wait_for()
        it.shoot(f"served-replaced-{word.lower()}")
        assert len(meetings_with(served, guest)) == 1
        dialog.get_by_role("button", name=word).click()
        it.page.locator(".held-line").wait_for(state="detached")
        if events == 2:
            it.page.locator(".card[data-state=done]").nth(1).wait_for()
    assert len(meetings_with(served, guest)) == events


def test_a_yes_to_a_dialog_that_says_no_clashes_books_nothing_once_there_is_one(browser: Any, served: Reached) -> None:
    with opened(browser, served.console) as it:
        say(it, "book a meeting with lea@example.com tomorrow at eight")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("No clashes").wait_for()
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        # Somebody else takes that hour while the dialog is open.
        session = served.ask("POST", "/api/sessions", {})
        mine = it.page.evaluate("JSON.parse(sessionStorage['handrail.session'])")
        path = f"/api/sessions/{mine['sessionId']}?tokens=true"
        [request] = served.ask("GET", path, token=mine["token"])["confirmations"]
        body = {"args": {**request["args"], "title": "Taken"}, "sessionId": session["sessionId"]}
        served.ask("POST", "/api/tools/calendar_create_event/try", body, session["token"])
        [other] = served.ask("GET", f"/api/sessions/{session['sessionId']}?tokens=true", token=session["token"])[
            "confirmations"
        ]
        answer = {"token": other["token"]}
        assert served.ask("POST", f"/api/confirmations/{other['id']}/approve", answer, session["token"])["ok"]
        dialog.get_by_role("button", name="Approve").click()
        dialog.get_by_text("Clashes with 1 busy time").wait_for()
        dialog.get_by_text("Nothing was run").wait_for()
        it.shoot("served-changed")
        assert meetings_with(served, "lea@example.com") == []
        dialog.get_by_role("button", name="Approve").click()
        it.page.locator(".card[data-state=done] .tool-name", has_text="calendar_create_event").wait_for()
    assert len(meetings_with(served, "lea@example.com")) == 1


def test_a_tool_that_is_tried_is_asked_for_by_whoever_tries_it(browser: Any, served: Reached) -> None:
    with opened(browser, f"{served.console}&/tools/calendar_create_event") as it:
        it.page.get_by_label("as JSON", exact=True).check()
        start = datetime.now(ZONE).replace(microsecond=0) + timedelta(days=30)
        args = {"title": "Tried", "start_time": start.isoformat(), "end_time": (start + timedelta(hours=1)).isoformat()}
        written = json.dumps({**args, "attendees": ["tia@example.com"]})
        it.page.get_by_label("Arguments as JSON").fill(written)
        it.page.get_by_role("button", name="Run through the pipeline").click()
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("tia@example.com").first.wait_for()
        assert "You asked to try calendar_create_event" in " ".join(dialog.inner_text().split())
        assert "The assistant" not in dialog.inner_text()
        it.shoot("served-wide-tried-confirmation")
        dialog.get_by_role("button", name="Decline").click()
        dialog.wait_for(state="detached")

"""What a person sees of a call after approving it, in a real browser with a real server: that it runs, what it tells, how it
ended, and what is known while the server is away."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, WIDE, Opened, chromium, opened
from tests.console.served import Served
from tests.console.slow import Booking, slow_project
from tests.console.test_confirmation import wait_until

# Half a minute of running, and past the time that there was to decide, which no longer counts.
LATER = """(() => {
  const [since, date] = [performance.now.bind(performance), Date.now];
  performance.now = () => since() + 31_000;
  Date.now = () => date() + 600_000;
})()"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    chromium()
    server = Served(slow_project(tmp_path_factory.mktemp("running")))
    yield server
    server.close()


def shoot(it: Opened, name: str) -> None:
    """Wide, narrow and dark."""
    assert obstacles(it.page) == []
    it.shoot(f"running-wide-{name}")
    it.page.emulate_media(color_scheme="dark")
    it.shoot(f"running-dark-{name}")
    it.page.emulate_media(color_scheme="light")
    it.page.set_viewport_size(NARROW)
    assert obstacles(it.page) == []
    it.shoot(f"running-narrow-{name}")
    it.page.set_viewport_size(WIDE)


def test_the_dialog_shows_that_an_approved_call_runs_what_it_tells_and_that_it_was_carried_out(
    browser: Any, served: Served
) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Ana")
        booking.ask()
        booking.approve()
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_role("heading", name="Approved, and running").wait_for()
        assert dialog.get_by_role("button").all_inner_texts() == ["Hide"], "there is nothing left to decide"
        assert dialog.get_by_text("Time left to decide").is_hidden()
        booking.order("tell Looking for a table")
        booking.order("tell No\u202eble one")
        dialog.get_by_role("status").get_by_text(r"No\u{202e}ble one").wait_for()
        assert it.page.locator(".card[data-state=running] .state-word").inner_text() == r"No\u{202e}ble one"
        booking.order("tell Calling the waiter")
        dialog.get_by_role("status").get_by_text("Calling the waiter").wait_for()
        assert dialog.get_by_role("listitem").all_inner_texts() == ["Looking for a table", r"No\u{202e}ble one"]
        dialog.get_by_role("listitem").get_by_text("Looking for a table").wait_for()
        assert it.page.locator(".card[data-state=running] .state-word").inner_text() == "Calling the waiter"
        it.page.evaluate(LATER)
        dialog.get_by_role("timer").get_by_text("0:3").wait_for()
        shoot(it, "progress")
        booking.order("end")
        dialog.get_by_role("heading", name="Done").wait_for()
        dialog.get_by_text("book_table was carried out.").wait_for()
        it.page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
        shoot(it, "done")
        it.page.keyboard.press("Enter")  # on Close, which has the focus
        assert it.page.get_by_role("dialog").count() == 0
        for _ in range(2):  # as it was said, and after a reload
            it.page.locator(".prose", has_text="Done.").wait_for()
            settled = it.page.locator(".prose.settled")
            assert settled.count() == 1
            assert settled.inner_text().startswith("Said before you approved it:\n\nI have prepared this")
            it.page.reload()
            it.page.locator(".log .by-user").wait_for()
        assert booking.started == 1


@pytest.mark.long
def test_a_call_of_half_a_minute_is_shown_to_its_end(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Long")
        booking.ask()
        booking.approve()
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_role("heading", name="Approved, and running").wait_for()
        for second in range(1, 32):
            booking.order(f"tell Second {second}")
            dialog.get_by_role("status").get_by_text(f"Second {second}", exact=True).wait_for()
            it.page.wait_for_timeout(1000)
        booking.order("end")
        dialog.get_by_role("heading", name="Done").wait_for()
        assert booking.started == 1


def test_a_failure_is_told_in_the_dialog(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Bob")
        booking.ask()
        booking.approve()
        booking.order("fail The restaurant is closed.")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_role("heading", name="It could not be carried out").wait_for()
        dialog.get_by_text("The restaurant is closed.").wait_for()
        it.page.locator(".card[data-state=failed]").wait_for()
        shoot(it, "failed")


def test_an_outcome_that_nobody_knows_is_not_called_a_failure_and_said_once(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Eve")
        booking.ask()
        booking.approve()
        booking.order("break the line to the restaurant broke")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_role("heading", name="The outcome is not known").wait_for()
        shoot(it, "unknown")
        dialog.get_by_role("button", name="Close").click()
        for _ in range(2):  # as it is told, and after a reload
            card = it.page.locator(".card[data-state=unknown]")
            card.wait_for()
            assert card.locator(".state-word").inner_text() == "outcome not known"
            words = it.page.locator(".by-model").last
            words.get_by_text("Please have somebody look").wait_for()
            assert words.inner_text().count("not known whether") == 1
            it.page.reload()
            it.page.locator(".log .by-user").first.wait_for()


def test_a_server_that_dies_in_the_middle_is_told_and_then_what_became_of_the_call(
    browser: Any, served: Served
) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Kim")
        booking.ask()
        booking.approve()
        booking.order("tell Calling the waiter")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_role("status").get_by_text("Calling the waiter").wait_for()
        served.kill()
        dialog.get_by_role("heading", name="The connection to the server is lost").wait_for()
        dialog.get_by_role("status").get_by_text("The call had started.").wait_for()
        dialog.get_by_role("listitem").get_by_text("Calling the waiter").wait_for()
        shoot(it, "lost")
        served.start_again()
        dialog.get_by_role("heading", name="The outcome is not known").wait_for()
        it.page.locator(".card[data-state=unknown]").wait_for()
        assert booking.started == 1, "it was not run again"


def test_an_approval_that_the_server_was_not_there_for_is_told_again_and_runs_once(
    browser: Any, served: Served
) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Away")
        booking.ask()
        served.kill()
        booking.approve()
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_role("status").get_by_text("Your approval may not have arrived.").wait_for()
        assert booking.started == 0
        served.start_again()
        dialog.get_by_role("heading", name="Approved, and running").wait_for()
        booking.order("end")
        it.page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
        assert booking.started == 1


def test_a_call_that_runs_is_found_again_after_a_reload_and_shown_in_another_tab(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Tab")
        booking.ask()
        with it.page.expect_popup() as opening:
            it.page.evaluate("void window.open('/')")
        other = opening.value
        other.get_by_role("dialog").get_by_role("button", name="Approve").wait_for()
        booking.approve()
        other.get_by_role("dialog").get_by_role("heading", name="Approved, and running").wait_for()
        it.page.get_by_role("dialog").get_by_role("button", name="Hide").click()
        it.page.locator(".held-line", has_text="Running: book_table").wait_for()
        it.page.reload()
        line = it.page.locator(".held-line", has_text="Running: book_table")
        line.wait_for()
        assert it.page.get_by_role("dialog").count() == 0, "nothing is asked"
        booking.order("tell Nearly there")
        line.get_by_text("Nearly there").wait_for()
        shoot(it, "line")
        line.get_by_role("button", name="Show").click()
        it.page.get_by_role("dialog").get_by_role("heading", name="Approved, and running").wait_for()
        booking.order("end")
        other.get_by_text("book_table was approved and carried out.").first.wait_for()
        wait_until(it, lambda: it.page.get_by_role("dialog").count() == 0)
        it.page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
        assert it.page.locator(".held-line").count() == 0
        assert booking.started == 1

"""A yes at the wrong moment, through the whole product: the page in a real browser, with a scripted recogniser and voice, and a
real server. Nothing of it books a table, and the page says what happened; each time a valid approval afterwards books one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import Opened, chromium, opened
from tests.console.served import Served
from tests.console.spoken import bookings, project
from tests.console.test_confirmation import wait_until
from tests.console.test_voice_offline import SPEECH

HANG_UP = "import('/console/voice.js').then(({ voice }) => voice.link.socket.close())"
MUTE = "import('/console/voice.js').then(({ voice }) => voice.mute())"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    chromium()
    server = Served(project(tmp_path_factory.mktemp("moments"), {}))
    yield server
    server.close()


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Opened]:
    with opened(browser, served.console, before=SPEECH) as it:
        yield it


class Person:
    """Somebody who talks to the page. `name` is on the booking, and tells it from those of other tests."""

    def __init__(self, it: Opened, served: Served, name: str) -> None:
        self.it, self.served, self.name = it, served, name
        self.page = it.page

    def says(self, words: str) -> None:
        self.page.evaluate(f"heard.onspeechstart(); hear({json.dumps(words)}, true)")

    def is_understood(self, words: str) -> None:
        """Says it, and the server has taken it."""
        before = self.page.locator(".bubble", has_text=words).count()
        self.says(words)
        self.page.locator(".bubble", has_text=words).nth(before).wait_for()

    def types(self, words: str) -> None:
        self.page.fill("#message", words)
        self.page.press("#message", "Enter")

    def talks(self) -> None:
        self.page.locator(".talk-button").click()
        self.page.locator("section.voice-bar[data-state=listening]").wait_for()
        self.page.wait_for_function("() => heard?.on")

    def asks_for_a_table(self, until: str = "asking") -> None:
        self.talks()
        self.says(f"Book a table for 4 people on the name {self.name}")
        self.listens(until)

    def listens(self, until: str) -> None:
        """To whatever is spoken, each to its end, until the question is in a state; `reading`: until the preview is spoken."""
        there, preview = self.question(until), "speechSynthesis.now?.text.includes('Say yes or no.')"
        for _ in range(400):
            if there.count() and (until != "reading" or self.page.evaluate(preview)):
                return
            spared = preview if until == "reading" else "false"
            self.page.evaluate(f"speechSynthesis.now && !({spared}) && speechSynthesis.finish()")
            self.page.wait_for_timeout(25)
        raise AssertionError(f"not {until}: {self.page.locator('.spoken-question').all_inner_texts()}")

    def listens_to_the_end(self) -> None:
        """Until nothing is spoken and nothing is done any more."""
        quiet = 0
        while quiet < 8:
            is_speaking = self.page.evaluate("Boolean(speechSynthesis.now)")
            self.page.evaluate("speechSynthesis.now && speechSynthesis.finish()")
            is_busy = self.page.locator("section.voice-bar[data-state=listening]").count() == 0
            quiet = 0 if is_speaking or is_busy else quiet + 1
            self.page.wait_for_timeout(50)

    def question(self, state: str, words: str = "") -> Any:
        return self.page.locator(f".spoken-question[data-state={state}]", has_text=words)

    def sees(self, words: str) -> None:
        self.page.locator(".toast", has_text=words).wait_for()

    @property
    def tables(self) -> int:
        return sum(line.startswith(f"{self.name} ") for line in bookings(self.served.folder))

    def approves_on_the_screen(self) -> None:
        assert self.tables == 0
        self.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        self.sees("Approved: book_table was carried out.")
        assert self.tables == 1

    def approves_by_voice(self) -> None:
        assert self.tables == 0
        self.says("yes")
        self.sees("Approved by voice.")
        assert self.tables == 1


def second_tab(first: Opened) -> Any:
    """Has the session of the tab that opened it."""
    with first.page.expect_popup() as opening:
        first.page.evaluate("void window.open('/')")
    return opening.value


@pytest.mark.parametrize(
    ("name", "until_it_is_said"),
    [
        pytest.param("Early", "", id="into it"),
        pytest.param("Begun", "speechSynthesis.finish();", id="begun before its end"),
    ],
)
def test_a_yes_into_the_preview_approves_nothing_and_a_yes_after_it_does(
    page: Opened, served: Served, name: str, until_it_is_said: str
) -> None:
    person = Person(page, served, name)
    person.asks_for_a_table("reading")
    person.question("reading", "Listen to the end before you answer.").wait_for()
    # A word of the preview: it may be an echo, and is nobody's.
    page.page.evaluate(f"heard.onspeechstart(); {until_it_is_said} hear('yes', true)")
    person.listens("asking")
    assert page.page.locator(".bubble", has_text="yes").count() == 0
    person.approves_by_voice()


def test_a_yes_after_the_call_and_before_the_preview_approves_nothing(page: Opened, served: Served) -> None:
    person = Person(page, served, "Sooner")
    person.talks()
    person.says("Book a table for 4 people on the name Sooner")
    page.page.get_by_role("dialog").wait_for()
    page.page.wait_for_function("() => speechSynthesis.now")  # "That needs your word."
    person.is_understood("yes")
    person.listens("asking")
    person.approves_by_voice()


def test_whoever_talks_over_the_preview_stops_it_and_has_approved_nothing(page: Opened, served: Served) -> None:
    person = Person(page, served, "Over")
    person.asks_for_a_table("reading")
    person.is_understood("yes please go ahead")
    # It is read again when the person is quiet, however late that is on a busy machine, and still has to be answered.
    person.listens("asking")
    person.question("asking", "Say yes or no, or decide here.").wait_for()
    person.approves_on_the_screen()


def test_a_typed_yes_approves_nothing_in_voice(page: Opened, served: Served) -> None:
    person = Person(page, served, "Typed")
    person.asks_for_a_table()
    page.page.keyboard.type("yes")
    page.page.keyboard.press("Enter")
    assert page.page.locator("#message").input_value() == "", "the dialog is before the field"
    page.page.keyboard.press("Escape")
    person.types("yes")
    person.sees("Typed words approve nothing: press Review, then Approve or Decline.")
    page.page.locator(".bubble", has_text="yes").wait_for()
    person.listens_to_the_end()
    page.page.get_by_role("button", name="Review").click()
    person.approves_on_the_screen()


def test_a_typed_yes_approves_nothing_in_text_and_a_longer_message_gets_no_hint(page: Opened, served: Served) -> None:
    person = Person(page, served, "Written")
    page.page.locator(".welcome").wait_for()
    person.types("Book a table for 4 people on the name Written")
    page.page.get_by_role("dialog").wait_for()
    page.page.locator(".by-model .status:empty").last.wait_for(state="attached")
    page.page.keyboard.press("Escape")
    person.types("What is Handrail, please?")
    page.page.locator(".cited h3").wait_for()
    assert page.page.locator(".toast").count() == 0
    person.types("Yes!")
    person.sees("Typed words approve nothing: press Review, then Approve or Decline.")
    page.page.locator(".by-model").nth(2).wait_for()
    page.page.locator(".by-model .status:empty").last.wait_for(state="attached")
    page.page.get_by_role("button", name="Review").click()
    person.approves_on_the_screen()


def test_a_yes_while_something_else_is_spoken_is_no_answer_to_the_question(page: Opened, served: Served) -> None:
    person = Person(page, served, "Spoken")
    person.asks_for_a_table()
    page.page.keyboard.press("Escape")
    said = page.page.evaluate("said.length")
    person.types("What is Handrail, please?")
    page.page.wait_for_function(f"() => said.length > {said} && speechSynthesis.now")
    person.is_understood("yes")
    person.listens_to_the_end()
    assert person.tables == 0
    page.page.get_by_role("button", name="Review").click()
    person.approves_on_the_screen()


def test_after_two_misses_only_the_screen_approves(page: Opened, served: Served) -> None:
    person = Person(page, served, "Missed")
    person.asks_for_a_table()
    person.is_understood("well maybe")
    person.question(
        "reading", "That was not understood. It is read to you once more; then say only yes or no."
    ).wait_for()
    person.listens("asking")
    person.is_understood("yes but later")
    person.question("screen", "That was not understood twice. Please decide here.").wait_for()
    person.is_understood("yes")
    person.listens_to_the_end()
    assert person.tables == 0
    assert obstacles(page.page) == []
    page.shoot("voice-wide-two-misses")
    person.approves_on_the_screen()


def test_a_muted_or_unheard_person_is_told_so_in_the_dialog_and_can_be_heard_again_from_there(
    page: Opened, served: Served
) -> None:
    person = Person(page, served, "Muted")
    person.asks_for_a_table()
    dialog = page.page.get_by_role("dialog")
    page.page.evaluate(MUTE)
    person.question("asking", "You are muted. Unmute to say yes or no, or decide here.").wait_for()
    page.page.evaluate("heard.onresult && hear('yes', true)")
    dialog.get_by_role("button", name="Unmute").click()
    person.question("asking", "Say yes or no").wait_for()
    page.page.evaluate("heard.onerror({ error: 'network' })")
    person.question("asking", "The browser's speech recognition cannot be reached. Please decide here.").wait_for()
    assert obstacles(page.page) == []
    page.shoot("voice-wide-question-unheard")
    dialog.get_by_role("button", name="Try again").click()
    person.question("asking", "Say yes or no").wait_for()
    page.page.wait_for_function("() => heard.on")
    person.approves_by_voice()


@pytest.mark.long
def test_a_yes_into_a_lost_line_approves_nothing_and_is_said_again(page: Opened, served: Served) -> None:
    person = Person(page, served, "Line")
    person.asks_for_a_table("reading")
    page.page.evaluate(f"{HANG_UP}.then(() => speechSynthesis.finish())")
    page.page.wait_for_function("import('/console/voice.js').then(({ voice }) => !voice.link.canSend)")
    person.says("yes please")
    person.sees("Voice is not connected; say it again in a moment.")
    person.question("reading", "It is read to you once more. Listen to the end before you answer.").wait_for()
    assert page.page.locator(".bubble", has_text="yes").count() == 0
    person.listens("asking")
    person.approves_by_voice()


def test_approving_twice_and_saying_yes_as_well_books_one_table(page: Opened, served: Served) -> None:
    person = Person(page, served, "Twice")
    person.asks_for_a_table()
    approve = "[...document.querySelectorAll('dialog button')].find((one) => one.textContent === 'Approve')"
    page.page.evaluate(
        f"() => {{ const b = {approve}; b.click(); heard.onspeechstart(); hear('yes', true); b.click(); }}"
    )
    page.page.locator(".toast", has_text="Approved").first.wait_for()
    page.page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
    page.page.get_by_role("dialog").wait_for(state="detached")
    person.listens_to_the_end()
    assert person.tables == 1


def test_a_second_tab_approves_once_and_both_say_so(page: Opened, served: Served) -> None:
    person = Person(page, served, "Tabs")
    person.asks_for_a_table()
    other = second_tab(page)
    other.get_by_role("dialog").wait_for()
    other.get_by_role("button", name="Approve").click()
    other.locator(".toast", has_text="Approved: book_table was carried out.").wait_for()
    person.sees("book_table was approved and carried out.")
    page.page.get_by_role("dialog").wait_for(state="detached")
    person.says("yes")  # what is said now is no answer to it any more
    person.listens_to_the_end()
    assert person.tables == 1


def test_both_tabs_approving_at_the_same_moment_book_one_table(page: Opened, served: Served) -> None:
    person = Person(page, served, "Both")
    person.asks_for_a_table()
    other = second_tab(page)
    other.get_by_role("dialog").wait_for()
    under_way: list[Any] = []

    def hold(approval: Any) -> None:
        under_way.append(approval)

    page.context.route("**/approve", hold)
    for tab in (page.page, other):
        tab.get_by_role("dialog").get_by_role("button", name="Approve").click()
    wait_until(page, lambda: len(under_way) == 2)
    for approval in under_way:
        approval.continue_()
    for tab in (page.page, other):
        tab.locator(".toast", has_text="carried out").first.wait_for()
        tab.get_by_role("dialog").wait_for(state="detached")
    assert person.tables == 1


def test_declined_in_another_tab_it_is_told_here(page: Opened, served: Served) -> None:
    person = Person(page, served, "No")
    person.asks_for_a_table()
    second_tab(page).get_by_role("dialog").get_by_role("button", name="Decline").click()
    person.sees("book_table was declined and not run.")
    person.says("yes")
    person.listens_to_the_end()
    assert person.tables == 0


def test_a_reload_leaves_the_request_on_the_screen_where_it_is_approved_once(page: Opened, served: Served) -> None:
    person = Person(page, served, "Screened")
    person.asks_for_a_table()
    page.page.reload()
    page.page.get_by_text("Voice is still on in this session.").wait_for()
    person.approves_on_the_screen()
    page.page.reload()
    page.page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
    assert page.page.get_by_role("dialog").count() == 0
    assert person.tables == 1


def test_a_preview_that_a_reload_cut_off_is_heard_anew_before_a_yes_counts(page: Opened, served: Served) -> None:
    person = Person(page, served, "Reload")
    person.asks_for_a_table("reading")
    page.page.reload()
    page.page.get_by_role("dialog").wait_for()
    page.page.keyboard.press("Escape")
    page.page.get_by_role("button", name="Continue talking").click()
    page.page.wait_for_function("() => heard?.on && speechSynthesis.now")
    person.says("yes")
    page.page.get_by_role("button", name="Review").click()
    person.question("reading", "Listen to the end before you answer.").wait_for()
    assert person.tables == 0
    person.listens("asking")
    person.approves_by_voice()


def test_after_its_time_neither_a_yes_nor_a_press_approves(browser: Any, tmp_path: Path) -> None:
    # Long enough that the second request, which is approved, does not expire as well on a busy machine.
    served = Served(project(tmp_path, {}, seconds=10))
    try:
        with opened(browser, served.console, before=SPEECH) as it:
            person = Person(it, served, "Late")
            person.asks_for_a_table()
            dialog = it.page.get_by_role("dialog")
            dialog.get_by_text("The time is over; nothing was run. Ask again if you still want it.").wait_for()
            assert it.page.locator(".spoken-question").count() == 0, "it is said once"
            assert dialog.get_by_role("button", name="Approve").count() == 0
            person.is_understood("yes")
            person.listens_to_the_end()
            it.shoot("voice-wide-expired")
            dialog.get_by_role("button", name="Close").click()
            assert it.page.locator(".held-line").count() == 0
            assert person.tables == 0
            # Asked for again, it is another request, and that one can be approved.
            person.says("Book a table for 4 people on the name Late")
            person.listens("asking")
            person.approves_by_voice()
    finally:
        served.close()


def test_what_is_for_the_screen_cannot_be_approved_by_voice(browser: Any, tmp_path: Path) -> None:
    served = Served(project(tmp_path, {}, channel="screen"))
    try:
        with opened(browser, served.console, before=SPEECH) as it:
            person = Person(it, served, "Screen")
            person.asks_for_a_table("screen")
            person.question("screen", "Please decide here: it cannot be approved by voice.").wait_for()
            person.listens_to_the_end()
            for words in ("yes", "yes I confirm"):
                person.is_understood(words)
                person.listens_to_the_end()
            assert not [one for one in it.page.evaluate("said") if "Say yes or no" in one]
            person.approves_on_the_screen()
    finally:
        served.close()


@pytest.mark.long
def test_a_request_outlives_a_killed_server_and_is_read_anew(browser: Any, tmp_path: Path) -> None:
    served = Served(project(tmp_path, {}))
    try:
        with opened(browser, served.console, before=SPEECH) as it:
            person = Person(it, served, "Killed")
            person.asks_for_a_table()
            served.kill()
            it.page.locator("section.voice-bar[data-state=reconnecting]").wait_for()
            person.question("asking", "The line is lost. Answer when it is back, or decide here.").wait_for()
            person.says("yes")
            person.sees("Voice is not connected; say it again in a moment.")
            served.start_again()
            it.page.locator("section.voice-bar[data-state=listening]").wait_for(timeout=60_000)
            wait_until(it, lambda: it.page.locator(".connection[data-state=live]").count() == 1)
            assert person.tables == 0
            person.approves_on_the_screen()
    finally:
        served.close()

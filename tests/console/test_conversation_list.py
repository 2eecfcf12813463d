"""Conversations that are listed and gone back to, in a real browser with a real server: also after it was killed, in a new tab,
in a narrow window and by keyboard."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, Opened, chromium, opened
from tests.console.served import Served
from tests.console.slow import Booking, slow_project
from tests.console.test_confirmation import wait_until

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "What is Handrail?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    chromium()
    server = Served(slow_project(tmp_path_factory.mktemp("listed")))
    yield server
    server.close()


def ask(it: Opened) -> None:
    it.page.fill("#message", QUESTION)
    it.page.press("#message", "Enter")
    it.page.locator(".cited h3").wait_for()


def entry(it: Opened, words: str) -> Any:
    return it.page.locator(".conversation:visible", has_text=words)


def test_make_run_keeps_its_key_and_removes_nothing() -> None:
    told = subprocess.run(
        ["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "serve --key-file console-key" in told
    assert "rm " not in told.partition("mkdir -p build/run")[2]


def test_a_request_that_waits_in_another_conversation_is_marked_and_found_again_after_a_kill(
    browser: Any, served: Served
) -> None:
    with opened(browser, served.console) as it:
        booking = Booking(it, served, "Ana")
        booking.ask()
        it.page.keyboard.press("Escape")
        it.page.get_by_role("button", name="New conversation").click()
        it.page.locator(".welcome").wait_for()
        assert it.page.get_by_role("dialog").count() == 0
        assert it.page.locator(".held-line").count() == 0
        ask(it)
        entry(it, QUESTION).wait_for()
        assert entry(it, QUESTION).get_attribute("aria-current") == "true"
        entry(it, "Book a table for 4").get_by_text("waits for you").wait_for()
        assert obstacles(it.page) == []
        it.shoot("conversations-wide")
        it.page.emulate_media(color_scheme="dark")
        it.shoot("conversations-dark")
    served.kill()
    served.start_again()
    with opened(browser, served.console) as it:  # a new tab, with nothing but the key
        entry(it, "Book a table for 4").get_by_text("waits for you").wait_for()
        entry(it, "Book a table for 4").focus()
        it.page.keyboard.press("Enter")
        it.page.get_by_role("dialog").get_by_text("Book a table for 4 on the name Ana.").wait_for()
        booking = Booking(it, served, "Ana")
        booking.order("end")
        booking.approve()
        it.page.locator(".card[data-state=done] .tool-name", has_text="book_table").wait_for()
        entry(it, "Book a table for 4").get_by_text("just now").wait_for()
        assert booking.started == 1
        entry(it, QUESTION).click()
        it.page.locator(".cited h3").wait_for()
        it.page.reload()
        it.page.locator(".cited h3").wait_for()


def test_on_a_phone_the_list_opens_over_the_page_and_a_conversation_can_be_deleted(
    browser: Any, served: Served
) -> None:
    with opened(browser, served.console, viewport=NARROW) as it:
        ask(it)
        it.page.get_by_role("button", name="New conversation").click()
        it.page.locator(".welcome").wait_for()
        it.page.get_by_role("button", name="Conversations", exact=True).click()
        dialog = it.page.get_by_role("dialog", name="Conversations")
        dialog.locator(".conversation", has_text=QUESTION).first.wait_for()
        # Others asked the same before: the list is whole when this conversation is in it, too.
        base, bearer = served.url.rstrip("/"), {"Authorization": f"Bearer {served.key}"}
        listed = it.page.request.get(f"{base}/api/sessions", headers=bearer).json()["sessions"]
        before = len(listed)
        wait_until(it, lambda: dialog.locator(".conversation").count() == before)
        assert obstacles(it.page) == []
        it.shoot("conversations-narrow")
        dialog.locator(".conversation", has_text=QUESTION).first.click()
        it.page.locator(".cited h3").wait_for()
        assert it.page.get_by_role("dialog").count() == 0
        it.page.get_by_role("button", name="Conversations", exact=True).click()
        dialog.get_by_role("button", name="Delete").first.click()
        it.page.get_by_role("button", name="Delete it").click()
        it.page.locator(".welcome").wait_for()
        it.page.get_by_role("button", name="Conversations", exact=True).click()
        wait_until(it, lambda: dialog.locator(".conversation").count() == before - 1)

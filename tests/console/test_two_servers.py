"""The console behind a proxy that gives each request to the next of two servers on one PostgreSQL, while they are stopped in
order and started again in turn: whatever a person has approved is done once, and nothing that was said is lost."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RecordFigures
from tests.console.browser import Opened, chromium, opened
from tests.console.served import TwoServed
from tests.console.spoken import bookings, project
from tests.postgres_server import PostgresServer

PATIENCE = 60.0


@pytest.fixture
def two(tmp_path: Path, postgres: PostgresServer) -> Iterator[TwoServed]:
    chromium()
    made = TwoServed(project(tmp_path, {}), postgres.new_database())
    yield made
    made.close()


def tables(two: TwoServed, name: str) -> int:
    return sum(line.startswith(f"{name} ") for line in bookings(two.folder))


def ask_for_a_table(it: Opened, name: str) -> None:
    it.page.fill("#message", f"Book a table for 4 people on the name {name}")
    it.page.press("#message", "Enter")
    it.page.get_by_role("dialog").get_by_text(name).first.wait_for(timeout=1_000 * PATIENCE)


def approve_until_it_is_done(it: Opened, name: str) -> None:
    """As a person does who sees that the button is still there."""
    done = it.page.locator(".card[data-state=done]", has_text=name)
    button = it.page.get_by_role("dialog").get_by_role("button", name="Approve")
    until = time.monotonic() + PATIENCE
    while not done.count():
        assert time.monotonic() < until, it.page.locator("body").inner_text()[-1_500:]
        if button.count() and button.first.is_enabled():
            button.first.click()
        it.page.wait_for_timeout(200)


def test_an_approval_is_carried_out_once_whichever_server_stops_meanwhile(browser: Any, two: TwoServed) -> None:
    with opened(browser, two.console) as it:
        it.page.locator(".welcome").wait_for()
        ask_for_a_table(it, "Asked")
        two.restart()  # between the request and the answer
        approve_until_it_is_done(it, "Asked")
        with two.restarting():  # while the message is on its way
            ask_for_a_table(it, "Said")
        with two.restarting():  # while the approval is
            approve_until_it_is_done(it, "Said")
        it.page.reload()
        it.page.locator(".card[data-state=done]", has_text="Said").wait_for()
        assert it.page.locator(".by-user").count() == 2
    assert (tables(two, "Asked"), tables(two, "Said")) == (1, 1)
    assert all(two.proxy.requests.values())


@pytest.mark.long
def test_people_at_three_pages_book_their_tables_once_while_servers_are_restarted_every_twenty_seconds(
    browser: Any, two: TwoServed, record_figures: RecordFigures
) -> None:
    over = threading.Event()

    def restart_in_turn() -> None:
        # However slow the machine is, the pages must have met some of them.
        while not over.wait(20):
            two.restart()

    names = list[str]()
    restarting = threading.Thread(target=restart_in_turn)
    with (
        opened(browser, two.console) as one,
        opened(browser, two.console) as other,
        opened(browser, two.console) as third,
    ):
        restarting.start()
        try:
            while two.restarts < 5:
                for number, it in enumerate((one, other, third)):
                    name = f"Guest{len(names)}x{number}"
                    names.append(name)
                    ask_for_a_table(it, name)
                    approve_until_it_is_done(it, name)
        finally:
            over.set()
            restarting.join()
    record_figures(f"{len(names)} tables, {two.restarts} restarts, requests of each server {two.proxy.requests}")
    assert [tables(two, name) for name in names] == [1] * len(names)

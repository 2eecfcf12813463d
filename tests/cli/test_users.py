"""`handrail users forget`: what the server deletes the command deletes as well."""

import asyncio
import json
import os
import pty
import select
import sqlite3
import sys
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
from tests.server.keys import keys_of

from handrail_reference.services.calendar.opening import open_calendar
from handrail_reference.services.calendar.port import Caller, Draft

ORDER = '{"id": "A-1001", "status": "shipped"}'
START = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def events(built):
    """A project with an event of Ana's and one of Bob's."""

    async def make() -> None:
        calendar = open_calendar(built)
        for place, user in enumerate(("ana", "bob")):
            start = START + timedelta(days=place)
            draft = Draft(uid=user, title="Plans", start=start, end=start + timedelta(hours=1))
            await calendar.create(draft, caller=Caller(user=user))
        await calendar.close()

    asyncio.run(make())
    return built / "calendar.db"


def creators(file):
    with closing(sqlite3.connect(file)) as db:
        return [row[0] for row in db.execute("SELECT created_by FROM item ORDER BY start")]


def test_a_users_events_go_though_no_tool_needs_the_calendar(handrail, events):
    assert creators(events) == ["ana", "bob"]
    said = handrail("users", "forget", "ana", "--yes", "--json")
    assert (said.code, json.loads(said.out)["user"]) == (0, "ana")
    assert json.loads(said.out)["deleted"]["events"] == 1
    assert creators(events) == ["bob"]


def test_events_stay_without_the_name_of_who_made_them_where_the_settings_say_so(handrail, events, monkeypatch):
    monkeypatch.setenv("HANDRAIL_SERVICES_CALENDAR_FORGET_EVENTS", "keep")
    assert handrail("users", "forget", "ana", "--yes").code == 0
    assert creators(events) == [None, "bob"]


def test_a_calendar_that_cannot_be_read_is_named_and_keeps_nothing_else(handrail, events):
    events.write_bytes(b"no database " * 500)
    said = handrail("users", "forget", "ana", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(
        'handrail users: Everything was deleted but what the service "calendar" keeps: The calendar '
    )
    assert said.err.count("\n") == 1


def test_forgetting_somebody_makes_no_calendar(handrail, built):
    assert handrail("users", "forget", "ana", "--yes").code == 0
    assert not (built / "calendar.db").exists()


def test_a_user_of_a_tenant_has_no_keys_and_those_of_a_namesake_stay(handrail, built):
    assert handrail("keys", "add", "phone", "--user", "u1").code == 0
    said = handrail("users", "forget", "u1", "--tenant", "acme", "--yes", "--json")
    assert json.loads(said.out)["deleted"]["keys"] == 0
    assert [one.name for one in keys_of(built)] == ["phone"]


def test_keys_that_speak_for_the_user_are_revoked(handrail, built):
    for name, user in (("phone", "ana"), ("laptop", "ana"), ("bobs", "bob")):
        assert handrail("keys", "add", name, "--user", user).code == 0
    said = handrail("users", "forget", "ana", "--yes", "--json")
    assert json.loads(said.out)["deleted"]["keys"] == 2
    assert [one.name for one in keys_of(built)] == ["bobs"]


@pytest.mark.parametrize("artifact", [None, "{"], ids=["missing", "broken"])
def test_a_user_is_forgotten_whether_or_not_the_tools_can_be_loaded(built, handrail, artifact):
    assert handrail("call", "cancel_order", "--args", ORDER, "--yes", "--user", "ana").code == 0
    file = built / "tool_registry.json"
    if artifact is None:
        file.unlink()
    else:
        file.write_text(artifact)
    said = handrail("users", "forget", "ana", "--yes", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["deleted"]["calls"] == 1


@pytest.mark.parametrize(("pasted", "answer", "code"), [(b"y\n" * 50_000, b"\n", 2), (b"", b"y\n", 0)])
def test_only_what_is_typed_after_the_question_deletes(built, pasted, answer, code):
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover  # another process
        os.execv(sys.executable, [sys.executable, "-m", "handrail", "users", "forget", "ana"])
    os.set_blocking(terminal, False)
    seen, waiting, is_answered = b"", pasted, False
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, seen[-500:]
        can_read, can_write, _ = select.select([terminal], [terminal] if waiting else [], [], 1)
        if can_write:
            with suppress(BlockingIOError):
                waiting = waiting[os.write(terminal, waiting[:4096]) :]
        if can_read:
            try:
                seen += os.read(terminal, 65_536)
            except OSError:
                break
        if b"[y/N] " in seen and not is_answered:
            assert not waiting, "it asks when the paste is over"
            waiting, is_answered = answer, True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code, seen[-500:]


FORGETFUL = """
class Ledger:
    def forget_user(self, user, tenant):
        with open("forgotten.txt", "a") as file:
            file.write(f"{user} of {tenant!r}")
        return 3

def open_cards():
    return Ledger()

def open_broken():
    raise OSError("no such host")
"""


def test_every_service_is_asked_to_forget_and_one_that_cannot_be_opened_is_named(handrail, built):
    (built / "cards_service.py").write_text(FORGETFUL)
    with (built / "handrail.toml").open("a") as file:
        file.write('\n[services.cards]\nfactory = "cards_service:open_cards"\n')
    said = handrail("users", "forget", "ana", "--tenant", "acme", "--yes", "--json")
    assert json.loads(said.out)["deleted"]["cards"] == 3
    assert (built / "forgotten.txt").read_text() == "ana of 'acme'"
    with (built / "handrail.toml").open("a") as file:
        file.write('\n[services.bank]\nfactory = "cards_service:open_broken"\n')
    said = handrail("users", "forget", "bob", "--yes")
    assert said.code == 1
    assert said.err == (
        'handrail users: Everything was deleted but what the service "bank" keeps: The service "bank" could not be opened: '
        "OSError: no such host.\n"
    )
    assert "bob" in (built / "forgotten.txt").read_text()


def test_a_user_is_blocked_and_the_block_is_extended(handrail, built):
    first = json.loads(handrail("users", "block", "ana", "--seconds", "60", "--json").out)
    longer = json.loads(handrail("users", "block", "ana", "--seconds", "3600", "--json").out)
    shorter = handrail("users", "block", "ana", "--seconds", "60")
    assert first["until"] < longer["until"]
    assert shorter.out == f"ana is blocked until {longer['until']}.\n"


def test_a_block_of_no_length_is_refused_in_a_sentence(handrail, built):
    said = handrail("users", "block", "ana", "--seconds", "0")
    assert said.code == 2
    assert "A block needs a user" in said.err

"""kill -9 at every step of a booking on each calendar, of a change or a cancellation: done once, or not."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
from tests.services.calendar.approved_calls import (
    CANCEL,
    CREATE,
    UPDATE,
    approve_and_die,
    built,
    open_embedded_world,
    open_google_world,
    open_host,
    open_world,
)
from tests.services.calendar.test_calendar_conformance import at

from handrail.contract.errors import ErrorType
from handrail.contract.store import LedgerState
from handrail.runtime.reconcile import reconcile

ARGS = {
    "title": "Design review",
    "start_time": "2026-01-13T14:00:00+01:00",
    "end_time": "2026-01-13T15:00:00+01:00",
    "attendees": ["ana@example.com", "ivo@example.com"],
}
CHANGE = {"start_time": "2026-01-13T16:00:00+01:00", "attendees": ["ivo@example.com", "eva@example.com"]}
MEETING = "zoom POST /v2/users/me/meetings"
LANES = 4
"""The tests that share the steps of a booking and can be played side by side: each takes every fourth step."""
WORLDS = ("embedded", "caldav", "google", "google with Meet")


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    return built(tmp_path_factory.mktemp("booking"))


@contextmanager
def open_kind(kind, request, folder):
    """Its servers, and Zoom's, but where Google makes the meeting."""
    if kind == "caldav":
        opened = open_world(request.getfixturevalue("radicale_server"))
    elif kind == "embedded":
        opened = open_embedded_world(folder)
    else:
        opened = open_google_world(folder, "meet" if kind.endswith("Meet") else "zoom")
    with opened as world:
        yield world


def at_step(number):
    return lambda passed: len(passed) == number


def when_done(what):
    """When the servers have carried this out, and have not said so."""
    return lambda passed: passed.count(what) == 2


async def killed(dies, kind, request, artifact, folder):
    """Whether a process got as far as this; if it did, everything is checked."""
    folder.mkdir(exist_ok=True)
    with open_kind(kind, request, folder) as world:
        async with open_host(world, artifact, folder) as host:
            held = await host.held(CREATE, ARGS)
        was_killed, out = approve_and_die(world, artifact, folder, held, dies)
        if not was_killed:
            assert json.loads(out)["ok"], out
            assert (world.count(), world.meeting_count(), len(world.invitations())) == (1, 1, 1)
            return False
        async with open_host(world, artifact, folder) as host:
            row = await settled(host, CREATE, held)
            event = await host.calendar.find(row.key)
        made = row.state is LedgerState.SUCCEEDED
        assert (event is not None) is made
        assert (world.count(), world.meeting_count()) == (int(made), int(made))
        uid = row.key if event is None or kind.startswith("google") else event.uid
        assert world.invitations() == ([(uid, 0)] if made else [])
        return True


async def every_step(lane, record_figures, play):
    """`play(dies, folder)` at each of this lane's steps, until a process has come to its end before it."""
    step = lane + 1
    while await play(at_step(step), str(step)):
        step += LANES
    record_figures(f"killed at {(step - 1) // LANES} steps")
    assert step > LANES, "there were steps to be killed at"


async def settled(host, tool, request):
    """The row of a call whose process was killed, after whoever comes next has looked."""
    answer = await host.runtime.approve(request["id"], token=request["token"])
    [row] = [one for one in await host.runtime.store.ledger_rows() if one.tool == tool]
    if row.state is LedgerState.UNKNOWN:
        assert answer.error.type is ErrorType.CONFLICT
        row = await reconcile(host.runtime, row)
    assert row.state in (LedgerState.SUCCEEDED, LedgerState.FAILED)
    return row


async def killed_later(tool, dies, radicale_server, artifact, folder):
    """The same for a change or a cancellation of an event that is booked."""
    folder.mkdir(exist_ok=True)
    with open_world(radicale_server) as world:
        async with open_host(world, artifact, folder) as host:
            _, booked = await host.approved(CREATE, ARGS)
            held = await host.held(tool, {"event_id": booked["event_id"], **(CHANGE if tool == UPDATE else {})})
        was_killed, out = approve_and_die(world, artifact, folder, held, dies)
        done = not was_killed
        if was_killed:
            async with open_host(world, artifact, folder) as host:
                done = (await settled(host, tool, held)).state is LedgerState.SUCCEEDED
                event = await host.calendar.get(booked["event_id"])
            assert (event.cancelled if tool == CANCEL else event.start == at(15)) is done
        else:
            assert json.loads(out)["ok"], out
        told = {(method, int(one["SEQUENCE"]), *to) for method, one, to in world.mail.events()[1:]}
        started = [one["start_time"] for one in world.zoom.meetings.values()]
        if tool == CANCEL:
            assert started == ([] if done else ["2026-01-13T13:00:00Z"])
            assert told == ({("CANCEL", 1, *ARGS["attendees"])} if done else set())
        else:
            assert started == (["2026-01-13T15:00:00Z"] if done else ["2026-01-13T13:00:00Z"])
            new = {("REQUEST", 1, *CHANGE["attendees"]), ("CANCEL", 1, "ana@example.com")}
            assert told == (new if done else set())
        return was_killed


@pytest.mark.parametrize("what", [MEETING, "calendar PUT", "mail"], ids=["meeting", "event", "invitation"])
async def test_a_process_that_is_killed_while_it_books_leaves_one_booking_or_none(what, request, artifact, tmp_path):
    assert await killed(when_done(what), "caldav", request, artifact, tmp_path)


@pytest.mark.parametrize(
    ("kind", "what"), [("embedded", MEETING), ("google", "calendar POST"), ("google with Meet", "calendar POST")]
)
async def test_a_process_that_is_killed_while_another_calendar_books_leaves_one_booking_or_none(
    kind, what, request, artifact, tmp_path
):
    assert await killed(when_done(what), kind, request, artifact, tmp_path)


@pytest.mark.parametrize(
    ("tool", "what"),
    [(UPDATE, "calendar PUT"), (UPDATE, "mail"), (CANCEL, "calendar PUT")],
    ids=["change", "message about a change", "cancellation"],
)
async def test_a_change_or_cancellation_whose_process_is_killed_is_finished_by_looking(
    tool, what, radicale_server, artifact, tmp_path
):
    assert await killed_later(tool, when_done(what), radicale_server, artifact, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("lane", range(LANES))
@pytest.mark.parametrize("kind", WORLDS)
async def test_every_step_of_a_booking_can_be_the_last(kind, lane, request, artifact, tmp_path, record_figures):
    await every_step(lane, record_figures, lambda dies, name: killed(dies, kind, request, artifact, tmp_path / name))


@pytest.mark.long
@pytest.mark.parametrize("lane", range(LANES))
@pytest.mark.parametrize("tool", [UPDATE, CANCEL], ids=["change", "cancellation"])
async def test_every_step_of_a_change_or_cancellation_can_be_the_last(
    tool, lane, radicale_server, artifact, tmp_path, record_figures
):
    await every_step(
        lane, record_figures, lambda dies, name: killed_later(tool, dies, radicale_server, artifact, tmp_path / name)
    )


async def test_a_request_that_is_still_under_way_is_not_settled_as_failed(radicale_server, artifact, tmp_path):
    release = threading.Event()

    def late(handler, forward):
        release.wait(60)
        handler.reply(*forward())

    with open_world(radicale_server) as world:
        async with open_host(world, artifact, tmp_path, settling_seconds=60.0, timeout_ms=1_000) as host:
            request = await host.held(CREATE, {**ARGS, "include_zoom_link": False})
            world.dav_proxy.plan("PUT", late)
            answer = await host.runtime.approve(request["id"], token=request["token"])
            assert (answer.error.type, answer.error.partial_side_effects) == (ErrorType.TIMEOUT, True)
            [row] = await host.runtime.store.ledger_rows()
            assert (await reconcile(host.runtime, row)).state is LedgerState.UNKNOWN
            release.set()
            while not world.count():
                await asyncio.sleep(0.02)
            host.calendar.settling_seconds = 0.001
            assert (await reconcile(host.runtime, row)).state is LedgerState.SUCCEEDED
            assert (world.count(), len(world.mail.mails)) == (1, 1)

"""kill -9 at every step of a booking, a change or a cancellation on a CalDAV server with Zoom and mail: done once, or not."""

import asyncio
import json
import threading

import pytest
from tests.services.calendar.approved_calls import (
    CANCEL,
    CREATE,
    UPDATE,
    approve_and_die,
    built,
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
STEPS = 22
"""Ten requests and a message, each when it comes and when it was carried out: two looks for clashes, what the server can do, a
token, a look for the meeting, the meeting (11, 12), the event (13, 14), a look at it, two looks for clashes, the invitation."""
GOOGLE_STEPS, GOOGLE_INSERTED = 12, 10
"""A look for clashes, a token, a look for the meeting, the meeting (7, 8), the event and its invitation (9, 10), a look."""
CHANGE = {"start_time": "2026-01-13T16:00:00+01:00", "attendees": ["ivo@example.com", "eva@example.com"]}
CHANGE_STEPS, CANCEL_STEPS = 32, 20
"""Of a change: six looks and what the server can do, the event (15, 16), a look at it, two for clashes, a token, a look at the
meeting, the meeting (27, 28), and two messages. Of a cancellation: three looks and what the server can do, the event (9, 10), a
look at it, a token, a look at the meeting, the meeting (17, 18), the message."""


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    return built(tmp_path_factory.mktemp("booking"))


async def killed_at(step, radicale_server, artifact, tmp_path):
    """Whether a process got as far as this step; if it did, everything is checked."""
    with open_world(radicale_server) as world:
        async with open_host(world, artifact, tmp_path) as host:
            request = await host.held(CREATE, ARGS)
        passed, code, out = approve_and_die(world, artifact, tmp_path, request, step)
        if passed < step:
            assert json.loads(out)["ok"], out
            assert (world.count(), len(world.zoom.meetings), len(world.mail.mails)) == (1, 1, 1)
            return False
        assert code == -9
        async with open_host(world, artifact, tmp_path) as host:
            row = await settled(host, CREATE, request)
            event = await host.calendar.find(row.key)
        made = row.state is LedgerState.SUCCEEDED
        assert (event is not None) is made
        assert world.count() == int(made), f"step {step}"
        assert len(world.zoom.meetings) == int(made), f"step {step}"
        invitations = {(str(one["UID"]), int(one["SEQUENCE"])) for _, one, _ in world.mail.events()}
        assert invitations == ({(row.key, 0)} if made else set())
        return True


async def killed_at_google(step, artifact, tmp_path):
    """The same on Google Calendar, where the event and its invitation are one request."""
    with open_google_world(tmp_path) as world:
        async with open_host(world, artifact, tmp_path) as host:
            request = await host.held(CREATE, ARGS)
        passed, code, out = approve_and_die(world, artifact, tmp_path, request, step)
        made = True
        if passed < step:
            assert json.loads(out)["ok"], out
        else:
            assert code == -9
            async with open_host(world, artifact, tmp_path) as host:
                made = (await settled(host, CREATE, request)).state is LedgerState.SUCCEEDED
        assert (world.count(), len(world.zoom.meetings), len(world.google.mails)) == (int(made),) * 3
        return passed >= step


async def settled(host, tool, request):
    """The row of a call whose process was killed, after whoever comes next has looked."""
    answer = await host.runtime.approve(request["id"], token=request["token"])
    [row] = [one for one in await host.runtime.store.ledger_rows() if one.tool == tool]
    if row.state is LedgerState.UNKNOWN:
        assert answer.error.type is ErrorType.CONFLICT
        row = await reconcile(host.runtime, row)
    assert row.state in (LedgerState.SUCCEEDED, LedgerState.FAILED)
    return row


async def killed_later(tool, step, radicale_server, artifact, tmp_path):
    """The same for a change or a cancellation of an event that is booked."""
    with open_world(radicale_server) as world:
        async with open_host(world, artifact, tmp_path) as host:
            _, booked = await host.approved(CREATE, ARGS)
            request = await host.held(tool, {"event_id": booked["event_id"], **(CHANGE if tool == UPDATE else {})})
        passed, code, out = approve_and_die(world, artifact, tmp_path, request, step)
        if passed < step:
            assert json.loads(out)["ok"], out
        else:
            assert code == -9
            async with open_host(world, artifact, tmp_path) as host:
                row = await settled(host, tool, request)
                event = await host.calendar.get(booked["event_id"])
        done = passed < step or row.state is LedgerState.SUCCEEDED
        told = {(method, int(one["SEQUENCE"]), *to) for method, one, to in world.mail.events()[1:]}
        started = [one["start_time"] for one in world.zoom.meetings.values()]
        if tool == CANCEL:
            assert started == ([] if done else ["2026-01-13T13:00:00Z"])
            assert told == ({("CANCEL", 1, *ARGS["attendees"])} if done else set())
        else:
            assert started == (["2026-01-13T15:00:00Z"] if done else ["2026-01-13T13:00:00Z"])
            new = {("REQUEST", 1, *CHANGE["attendees"]), ("CANCEL", 1, "ana@example.com")}
            assert told == (new if done else set())
        if passed >= step:
            assert (event.cancelled if tool == CANCEL else event.start == at(15)) is done
        return passed >= step


@pytest.mark.parametrize("step", [12, 14, 22])
async def test_a_process_that_is_killed_while_it_books_leaves_one_booking_or_none(
    step, radicale_server, artifact, tmp_path
):
    await killed_at(step, radicale_server, artifact, tmp_path)


async def test_a_process_that_is_killed_while_google_books_leaves_one_booking(artifact, tmp_path):
    await killed_at_google(GOOGLE_INSERTED, artifact, tmp_path)


@pytest.mark.parametrize(("tool", "step"), [(UPDATE, 30), (CANCEL, 10)], ids=["change", "cancellation"])
async def test_a_change_or_cancellation_whose_process_is_killed_is_finished_by_looking(
    tool, step, radicale_server, artifact, tmp_path
):
    await killed_later(tool, step, radicale_server, artifact, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("step", range(1, STEPS + 2))
async def test_every_step_of_a_booking_can_be_the_last(step, radicale_server, artifact, tmp_path):
    assert await killed_at(step, radicale_server, artifact, tmp_path) is (step <= STEPS)


@pytest.mark.long
@pytest.mark.parametrize("step", range(1, GOOGLE_STEPS + 2))
async def test_every_step_of_a_booking_at_google_can_be_the_last(step, artifact, tmp_path):
    assert await killed_at_google(step, artifact, tmp_path) is (step <= GOOGLE_STEPS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("tool", "step"),
    [
        *((UPDATE, step) for step in range(1, CHANGE_STEPS + 2)),
        *((CANCEL, step) for step in range(1, CANCEL_STEPS + 2)),
    ],
)
async def test_every_step_of_a_change_or_cancellation_can_be_the_last(tool, step, radicale_server, artifact, tmp_path):
    steps = CHANGE_STEPS if tool == UPDATE else CANCEL_STEPS
    assert await killed_later(tool, step, radicale_server, artifact, tmp_path) is (step <= steps)


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

"""kill -9 at every step of a booking on a CalDAV server with Zoom and mail: one event and one meeting, or none of both."""

import json

import pytest
from tests.services.calendar.desk import CREATE, approve_and_die, built, open_host, open_world

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
            answer = await host.runtime.approve(request["id"], token=request["token"])
            [row] = await host.runtime.store.ledger_rows()
            if row.state is LedgerState.UNKNOWN:
                assert answer.error.type is ErrorType.CONFLICT
                row = await reconcile(host.runtime, row)
            event = await host.calendar.find(row.key)
        made = row.state is LedgerState.SUCCEEDED
        assert made or row.state is LedgerState.FAILED
        assert (event is not None) is made
        assert world.count() == int(made), f"step {step}"
        assert len(world.zoom.meetings) == int(made), f"step {step}"
        invitations = {(str(one["UID"]), int(one["SEQUENCE"])) for _, one, _ in world.mail.events()}
        assert invitations == ({(row.key, 0)} if made else set())
        return True


@pytest.mark.parametrize("step", [12, 14, 22])
async def test_a_process_that_is_killed_while_it_books_leaves_one_booking_or_none(
    step, radicale_server, artifact, tmp_path
):
    await killed_at(step, radicale_server, artifact, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("step", range(1, STEPS + 2))
async def test_every_step_of_a_booking_can_be_the_last(step, radicale_server, artifact, tmp_path):
    assert await killed_at(step, radicale_server, artifact, tmp_path) is (step <= STEPS)

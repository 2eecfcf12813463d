"""What every calendar promises, asked of each of them: embedded, on a CalDAV server, at Google."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.services.calendar.backends import BACKENDS, open_backend
from tests.services.calendar.kit import NOW

from handrail.contract.errors import ErrorType, ToolError
from handrail_reference.services.calendar.port import Caller, Draft, EventChange

DAY = datetime(2026, 1, 13, tzinfo=UTC)
ASKED = {"start": DAY, "end": DAY + timedelta(days=1), "calendars": ["primary", "team"]}


def at(hour, minute=0):
    return DAY + timedelta(hours=hour, minutes=minute)


def draft(uid="c0ffee01", start=14, end=15, **more):
    return Draft(**{"uid": uid, "title": "Review", "start": at(start), "end": at(end), **more})


@pytest.fixture(params=BACKENDS)
def calendar(request, tmp_path):
    with open_backend(request.param, tmp_path, request) as opened:
        yield opened


async def test_an_event_that_was_created_is_found_with_everything_in_it(calendar):
    wanted = draft(
        attendees=("ana@example.com", "ivo@example.com"),
        title="Plan: a, b; c \\ d “e” ž",
        description="First line\nSecond; line",
        location="Room 1, upstairs",
    )
    made = await calendar.create(wanted)
    assert (made.title, made.start, made.end) == (wanted.title, wanted.start, wanted.end)
    assert (made.attendees, made.description, made.location) == (wanted.attendees, wanted.description, wanted.location)
    assert (made.calendar, made.meeting_link, made.cancelled, made.sequence) == ("primary", None, False, 0)
    assert made.etag
    assert made.uid
    for found in (await calendar.find(wanted.uid), await calendar.get(made.event_id)):
        assert replace(found, conflicts=(), invitations="none", invited=()) == replace(
            made, invitations="none", invited=()
        )


async def test_what_is_not_there_is_not_found(calendar):
    assert await calendar.find("deadbeef") is None
    for event_id in ("deadbeef", "primary:deadbeef", "primary:", ":", "nowhere:c0ffee01", "primary:../../x", "ž"):
        assert await calendar.get(event_id) is None


async def test_the_same_uid_gives_the_event_that_is_there(calendar):
    first = await calendar.create(draft(attendees=("ana@example.com",)))
    again = await calendar.create(draft(title="Something else", start=16, end=17))
    assert (again.event_id, again.title, again.start, again.etag) == (
        first.event_id,
        first.title,
        first.start,
        first.etag,
    )
    found = await calendar.availability(**ASKED)
    assert [(one.start, one.end) for one in found.busy] == [(at(14), at(15))]


async def test_many_at_once_create_one_event(calendar):
    made = await asyncio.gather(*(calendar.create(draft()) for _ in range(12)))
    assert len({(one.event_id, one.etag, one.conflicts) for one in made}) == 1
    found = await calendar.availability(**ASKED)
    assert found.busy_minutes == 60


async def test_busy_times_of_several_calendars_are_merged_before_gaps_are_looked_for(calendar):
    await calendar.create(draft("c0ffee01", 10, 12))
    await calendar.create(draft("c0ffee02", 11, 13, calendar="team"))
    await calendar.create(draft("c0ffee03", 13, 14, calendar="team"))
    found = await calendar.availability(**ASKED, min_minutes=30)
    assert [(gap.start, gap.end) for gap in found.free] == [(at(0), at(10)), (at(14), at(24))]
    assert found.busy_minutes == 240
    assert {one.title for one in found.busy} == {None}
    one = await calendar.availability(**{**ASKED, "calendars": ["team"]})
    assert one.busy_minutes == 180


async def test_details_are_for_those_who_ask(calendar):
    await calendar.create(draft(attendees=("ana@example.com", "ivo@example.com")))
    found = await calendar.availability(**ASKED, details=True)
    assert [(one.title, one.attendees, one.calendar, one.status) for one in found.busy] == [
        ("Review", 2, "primary", "busy")
    ]


async def test_what_reaches_over_the_edge_of_the_range_is_busy_within_it(calendar):
    await calendar.create(draft("c0ffee01", -2, 3))
    await calendar.create(draft("c0ffee02", 23, 30))
    await calendar.create(draft("c0ffee03", -5, 0))
    found = await calendar.availability(**ASKED)
    assert [(gap.start, gap.end) for gap in found.free] == [(at(3), at(23))]


async def test_clashes_are_those_of_all_calendars_and_never_the_event_itself(calendar):
    await calendar.create(draft("c0ffee01", 14, 16, calendar="team"))
    await calendar.create(draft("c0ffee02", 13, 14))
    asked = await calendar.clashes(start=at(14), end=at(15), calendar="primary")
    made = await calendar.create(draft("c0ffee03"))
    assert made.conflicts == asked
    assert [(one.calendar, one.start, one.end, one.title) for one in asked] == [("team", at(14), at(16), None)]
    moved = await calendar.update(made.event_id, EventChange(start=at(13, 30)), key="k1")
    assert [one.start for one in moved.conflicts] == [at(13), at(14)]


async def test_an_event_is_moved_and_the_rest_of_it_stays(calendar):
    made = await calendar.create(draft(attendees=("ana@example.com",), description="Agenda", location="Room 1"))
    moved = await calendar.update(made.event_id, EventChange(start=at(16), end=at(18)), key="k1", etag=made.etag)
    assert (moved.event_id, moved.uid, moved.start, moved.end) == (made.event_id, made.uid, at(16), at(18))
    assert (moved.title, moved.attendees, moved.description, moved.location) == (
        made.title,
        made.attendees,
        made.description,
        made.location,
    )
    assert moved.sequence > made.sequence
    assert moved.etag != made.etag
    assert [(one.start, one.end) for one in (await calendar.availability(**ASKED)).busy] == [(at(16), at(18))]


async def test_everything_about_an_event_can_be_changed(calendar):
    made = await calendar.create(draft(attendees=("ana@example.com", "ivo@example.com"), description="Agenda"))
    change = EventChange(
        title="Retro", attendees=("ivo@example.com", "eva@example.com"), description="", location="Hall"
    )
    after = await calendar.update(made.event_id, change, key="k1")
    assert (after.title, after.description, after.location) == ("Retro", "", "Hall")
    assert after.attendees == ("ivo@example.com", "eva@example.com")
    assert (after.start, after.end) == (made.start, made.end)


async def test_a_change_that_comes_twice_is_made_once(calendar):
    made = await calendar.create(draft())
    first = await calendar.update(made.event_id, EventChange(title="Retro"), key="k1", etag=made.etag)
    again = await calendar.update(made.event_id, EventChange(title="Retro"), key="k1", etag=made.etag)
    assert (again.etag, again.sequence) == (first.etag, first.sequence)


async def test_a_change_to_an_old_version_is_refused_and_says_what_there_is_now(calendar):
    made = await calendar.create(draft())
    after = await calendar.update(made.event_id, EventChange(title="Retro", start=at(13)), key="k1")
    for refused in (
        calendar.update(made.event_id, EventChange(title="Mine"), key="k2", etag=made.etag),
        calendar.cancel(made.event_id, key="k3", etag=made.etag),
    ):
        with pytest.raises(ToolError, match='now "Retro", 2026-01-13T13:00') as caught:
            await refused
        assert (caught.value.type, caught.value.partial_side_effects) == (ErrorType.CONFLICT, False)
        assert after.etag in caught.value.suggestion
    assert (await calendar.get(made.event_id)).etag == after.etag


async def test_of_many_changes_to_one_version_one_is_made(calendar):
    made = await calendar.create(draft())
    changes = (
        calendar.update(made.event_id, EventChange(title=f"Number {one}"), key=f"k{one}", etag=made.etag)
        for one in range(6)
    )
    ended = await asyncio.gather(*changes, return_exceptions=True)
    won = [one for one in ended if not isinstance(one, ToolError)]
    lost = [one for one in ended if isinstance(one, ToolError)]
    assert len(won) == 1
    assert {one.type for one in lost} == {ErrorType.CONFLICT}
    assert (await calendar.get(made.event_id)).title == won[0].title


async def test_a_cancelled_event_takes_no_time_and_cannot_be_changed(calendar):
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    gone = await calendar.cancel(made.event_id, key="k1", etag=made.etag)
    assert (gone.event_id, gone.cancelled, gone.title) == (made.event_id, True, made.title)
    assert (await calendar.availability(**ASKED)).busy == ()
    assert (await calendar.availability(**ASKED, details=True)).busy == ()
    assert await calendar.clashes(start=at(14), end=at(15), calendar="primary") == ()
    for refused in (
        calendar.update(made.event_id, EventChange(title="Again"), key="k2"),
        calendar.cancel(made.event_id, key="k3"),
    ):
        with pytest.raises(ToolError) as caught:
            await refused
        assert caught.value.type is ErrorType.NOT_FOUND


async def test_what_was_never_there_cannot_be_changed_or_cancelled(calendar):
    for refused in (
        calendar.update("primary:deadbeef", EventChange(title="x"), key="k"),
        calendar.cancel("deadbeef", key="k"),
    ):
        with pytest.raises(ToolError) as caught:
            await refused
        assert caught.value.type is ErrorType.NOT_FOUND


async def test_an_event_that_would_end_before_it_starts_is_refused_and_stays(calendar):
    made = await calendar.create(draft())
    with pytest.raises(ToolError, match="end after it starts") as caught:
        await calendar.update(made.event_id, EventChange(end=at(13)), key="k")
    assert caught.value.type is ErrorType.VALIDATION
    with pytest.raises(ToolError, match="end after it starts"):
        await calendar.create(draft("c0ffee02", 15, 14))
    assert (await calendar.get(made.event_id)).etag == made.etag
    assert await calendar.find("c0ffee02") is None


async def test_an_unknown_calendar_is_named_with_the_nearest(calendar):
    for refused in (
        calendar.availability(**{**ASKED, "calendars": ["taem"]}),
        calendar.create(draft(calendar="taem")),
        calendar.clashes(start=at(1), end=at(2), calendar="taem"),
    ):
        with pytest.raises(ToolError, match='no calendar "taem"') as caught:
            await refused
        assert (caught.value.type, caught.value.suggestion) == (ErrorType.VALIDATION, 'Use "team".')


async def test_another_tenant_sees_nothing_of_it(calendar):
    made = await calendar.create(draft())
    other = Caller(tenant="acme")
    seen = []
    for asked in (
        calendar.get(made.event_id, caller=other),
        calendar.find("c0ffee01", caller=other),
        calendar.availability(**ASKED, caller=other),
    ):
        try:
            seen.append(await asked)
        except ToolError as error:
            seen.append(error.type)
    assert seen[:2] in ([None, None], [ErrorType.AUTH] * 2)
    assert seen[2] is ErrorType.AUTH or seen[2].busy == ()


async def test_an_unknown_creation_is_settled_by_looking(calendar):
    wanted = draft()
    assert await calendar.settle_creation(wanted) is None
    made = await calendar.create(wanted)
    settled = await calendar.settle_creation(wanted)
    assert (settled.event_id, settled.etag) == (made.event_id, made.etag)


async def test_an_unknown_change_is_settled_by_looking(calendar):
    made = await calendar.create(draft())
    assert await calendar.settle_change(made.event_id, key="k1") is None
    await calendar.update(made.event_id, EventChange(title="Retro"), key="k1")
    later = await calendar.update(made.event_id, EventChange(title="Another"), key="k2")
    settled = await calendar.settle_change(made.event_id, key="k1")
    assert (settled.title, settled.etag) == ("Another", later.etag)
    assert (await calendar.settle_cancellation(made.event_id, key="k3"))[0] is False
    await calendar.cancel(made.event_id, key="k3")
    is_off, event = await calendar.settle_cancellation(made.event_id, key="k3")
    assert is_off
    assert event.cancelled
    assert await calendar.settle_change(made.event_id, key="k4") is None


async def test_what_a_booking_brings_is_known_before(calendar):
    found = await calendar.arrangements(with_meeting=False)
    assert found.meeting_provider == "none"
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    assert made.invitations == found.invitations
    assert made.invited == (made.attendees if found.invitations == "service" else ())


async def test_the_clock_is_the_hosts(calendar):
    assert calendar.now() == NOW


async def test_events_that_differ_in_their_attendees_alone_are_listed_in_one_order(calendar):
    for number, people in enumerate((("ana@example.com", "ivo@example.com"), (), ("ana@example.com",))):
        await calendar.create(draft(f"c0ffee0{number}", attendees=people))
    found = await calendar.availability(**ASKED, details=True)
    assert [one.attendees for one in found.busy] == [0, 1, 2]

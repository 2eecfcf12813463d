"""Zoom meetings: one for each event, found again, moved and removed with it; and a Zoom that fails."""

import asyncio

import pytest
from tests.services.calendar.backends import open_backend
from tests.services.calendar.bad_proxy import (
    bad_proxy,
    broken_body,
    closed_after,
    closed_before,
    cut_short,
    done_then,
    html,
    slow,
    status,
)
from tests.services.calendar.test_calendar_conformance import at, draft
from tests.services.calendar.test_invitations import Crashed, crash, mail_of
from tests.services.calendar.zoom_server import ACCOUNT

from handrail.contract.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.opening import open_calendar
from handrail_reference.services.calendar.port import EventChange, OutcomeUnknown
from handrail_reference.services.zoom import ZoomMeetings

LONG = draft(with_meeting=True, title="Design review")


def meetings_of(url, **options):
    return ZoomMeetings(**{**ACCOUNT, "oauth_url": url, "api_url": url, **options})


@pytest.fixture(params=["embedded", "caldav", "google"])
def booked(request, tmp_path, zoom):
    with open_backend(request.param, tmp_path, request, meetings=meetings_of(zoom.url)) as calendar:
        yield zoom, calendar


@pytest.fixture
def proxied(zoom, request, tmp_path):
    with bad_proxy(zoom.port) as proxy:
        meetings = meetings_of(proxy.url.rstrip("/"), timeout=2.5)
        with open_backend("embedded", tmp_path, request, meetings=meetings) as calendar:
            yield proxy, zoom, calendar
            proxy.released.set()


async def test_a_meeting_lives_and_moves_and_goes_with_its_event(booked):
    zoom, calendar = booked
    assert (await calendar.arrangements(with_meeting=True)).meeting_provider == "zoom"
    made = await calendar.create(LONG)
    [meeting] = zoom.meetings.values()
    assert (made.meeting_provider, made.meeting_link) == ("zoom", f"https://zoom.us/j/{meeting['id']}?pwd=x")
    assert (meeting["topic"], meeting["start_time"], meeting["duration"]) == (
        "Design review",
        "2026-01-13T14:00:00Z",
        60,
    )
    assert "HOST-SECRET" not in repr(made)
    moved = await calendar.update(made.event_id, EventChange(start=at(16), end=at(16, 30)), key="k1")
    [meeting] = zoom.meetings.values()
    assert (meeting["start_time"], meeting["duration"]) == ("2026-01-13T16:00:00Z", 30)
    assert moved.meeting_link == made.meeting_link
    gone = await calendar.cancel(made.event_id, key="k2")
    assert (zoom.meetings, gone.warnings) == ({}, ())


async def test_creating_twice_makes_one_meeting_even_among_many(booked):
    zoom, calendar = booked
    for number in range(3):
        await calendar.create(draft(f"c0ffee1{number}", with_meeting=True))
    first = await calendar.create(LONG)
    again = await calendar.create(LONG)
    assert first.meeting_link == again.meeting_link
    assert len(zoom.meetings) == 4


async def test_where_zoom_lists_more_than_is_read_no_second_meeting_is_made_and_none_is_left_in_silence(
    zoom, request, tmp_path
):
    """The local server lists two meetings a page, and ten pages are read."""
    meetings = meetings_of(zoom.url)
    for number in range(20):
        await meetings.make(draft(f"c0ffee1{number}"))
    made = await meetings.make(LONG)
    with open_backend("embedded", tmp_path, request, meetings=meetings) as calendar:
        for asked in (calendar.create(LONG), calendar.settle_creation(LONG), calendar.check()):
            with pytest.raises(ToolError, match="more scheduled meetings than can be looked through") as caught:
                await asked
            assert (caught.value.type, caught.value.partial_side_effects) == (ErrorType.PERMANENT, False)
        assert len(zoom.meetings) == 21
        first = next(iter(zoom.meetings))
        await meetings.remove(str(first), uid="c0ffee10")
        assert await calendar.settle_creation(LONG) is None
    assert int(made.ref) not in zoom.meetings


async def test_an_event_without_a_meeting_has_none(booked):
    zoom, calendar = booked
    made = await calendar.create(draft())
    assert (made.meeting_provider, made.meeting_link, zoom.meetings) == ("none", None, {})


async def test_the_meeting_of_an_event_that_failed_is_removed(zoom, request, tmp_path, monkeypatch):
    with open_backend("embedded", tmp_path, request, meetings=meetings_of(zoom.url)) as calendar:

        async def fail(*words):
            raise ToolError(ErrorType.TRANSIENT, "The calendar is away.", retryable=True)

        monkeypatch.setattr(calendar.database, "write", fail)
        with pytest.raises(ToolError, match="is away") as caught:
            await calendar.create(LONG)
        assert caught.value.partial_side_effects is False
        assert zoom.meetings == {}


async def test_a_meeting_that_cannot_be_removed_is_named(proxied, monkeypatch):
    proxy, zoom, calendar = proxied

    async def fail(*words):
        raise ToolError(ErrorType.TRANSIENT, "The calendar is away.", retryable=True)

    monkeypatch.setattr(calendar.database, "write", fail)
    proxy.plan("DELETE", status(500), status(500))
    with pytest.raises(ToolError) as caught:
        await calendar.create(LONG)
    [number] = zoom.meetings
    assert f"zoom meeting {number} was made for it and could not be removed" in caught.value.message
    assert caught.value.partial_side_effects is True


async def test_a_meeting_that_was_left_behind_by_a_crash_is_removed_when_the_creation_is_settled(
    zoom, request, tmp_path
):
    meetings = meetings_of(zoom.url)
    await meetings.make(LONG)
    with open_backend("embedded", tmp_path, request, meetings=meetings) as calendar:
        assert await calendar.settle_creation(LONG) is None
        assert zoom.meetings == {}


REFUSALS = {
    "scope": (
        status(400, b'{"code": 4711, "message": "does not contain scopes"}'),
        ErrorType.AUTH,
        "right scopes",
        None,
    ),
    "token": (status(401, b'{"code": 124}'), ErrorType.AUTH, "denies this", None),
    "rate": (status(429, b'{"code": 429}', Retry_After="9"), ErrorType.RATE_LIMIT, "too often", 9.0),
    "broken off": (broken_body(429), ErrorType.RATE_LIMIT, "too often", 5.0),
    "full": (status(400, b'{"code": 3000, "message": "limit"}'), ErrorType.PERMANENT, "refused the meeting", None),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_passed_on_and_there_is_no_event(proxied, name):
    proxy, zoom, calendar = proxied
    fault, kind, says, wait = REFUSALS[name]
    proxy.plan("POST", None, fault)  # the token is given
    with pytest.raises(ToolError, match=says) as caught:
        await calendar.create(LONG)
    assert (caught.value.type, caught.value.retry_after, caught.value.partial_side_effects) == (kind, wait, False)
    assert zoom.meetings == {}
    assert await calendar.find(LONG.uid) is None


FAILURES = (500, 502, 503, 504)


@pytest.mark.parametrize(
    "fault", [closed_after, cut_short, *(done_then(code, b"<html>") for code in FAILURES)], ids=lambda one: one.__name__
)
async def test_a_meeting_whose_answer_was_lost_is_found(proxied, fault):
    proxy, zoom, calendar = proxied
    proxy.plan("POST", None, fault)
    made = await calendar.create(LONG)
    assert made.meeting_link == f"https://zoom.us/j/{next(iter(zoom.meetings))}?pwd=x"
    assert len(zoom.meetings) == 1


def another_meeting(handler, forward):
    answer = b'{"id": 111, "join_url": "https://zoom.us/j/111?pwd=x", "topic": "Board meeting", "agenda": ""}'
    status(201, answer, Content_Type="application/json")(handler, forward)


def failing(handler, forward):
    status(503)(handler, forward)


@pytest.mark.parametrize(
    "fault", [closed_before, slow, html, failing, broken_body(500), another_meeting], ids=lambda one: one.__name__
)
async def test_a_meeting_that_may_still_be_made_leaves_the_outcome_unknown(proxied, fault):
    proxy, zoom, calendar = proxied
    proxy.plan("POST", None, fault)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(LONG)
    await meetings_of(zoom.url).make(LONG)  # and then it is made after all
    assert await calendar.settle_creation(LONG) is None
    assert zoom.meetings == {}


async def test_the_meeting_of_a_booking_that_was_being_taken_back_is_removed_when_it_is_settled(
    zoom, mail, request, tmp_path, monkeypatch
):
    """At Google an event that was taken back stays as a cancelled one."""
    options = {"meetings": meetings_of(zoom.url), "mail": mail_of(mail), "invitations": "mail"}
    with open_backend("google", tmp_path, request, **options) as calendar:
        mail.answers = ["554 No"]
        booking = draft(with_meeting=True, attendees=("ana@example.com",))
        with monkeypatch.context() as dying:
            dying.setattr(calendar._meetings, "remove", crash)
            with pytest.raises(Crashed):
                await calendar.create(booking)
        assert len(zoom.meetings) == 1
        assert (await calendar.settle_creation(booking)).cancelled
        assert zoom.meetings == {}


async def test_a_cancellation_that_ended_before_the_meeting_was_removed_is_finished_when_it_is_settled(
    booked, monkeypatch
):
    zoom, calendar = booked
    made = await calendar.create(LONG)
    with monkeypatch.context() as dying:
        dying.setattr(calendar._meetings, "remove", crash)
        with pytest.raises(Crashed):
            await calendar.cancel(made.event_id, key="k1")
    assert len(zoom.meetings) == 1
    is_off, event = await calendar.settle_cancellation(made.event_id, key="k1")
    assert (is_off, event.cancelled, event.warnings, zoom.meetings) == (True, True, (), {})


async def test_a_meeting_of_somebody_else_is_neither_moved_nor_removed(booked):
    zoom, calendar = booked
    made = await calendar.create(LONG)
    [(number, meeting)] = zoom.meetings.items()
    theirs = zoom.meetings[number] = {**meeting, "topic": "Board meeting", "agenda": "Reference: handrail-another"}
    moved = await calendar.update(made.event_id, EventChange(start=at(16), end=at(17)), key="k1")
    gone = await calendar.cancel(made.event_id, key="k2")
    for warnings in (moved.warnings, gone.warnings):
        assert "another's meeting under this number, which was left alone" in warnings[0]
    assert zoom.meetings == {number: theirs}


async def test_the_meeting_of_an_event_that_is_there_outlives_a_second_start_that_fails(proxied, monkeypatch):
    _, zoom, calendar = proxied
    made = await calendar.create(LONG)

    async def fail(*words):
        raise ToolError(ErrorType.RATE_LIMIT, "Asked too often.", retryable=True)

    monkeypatch.setattr(calendar.database, "write", fail)
    with pytest.raises(ToolError, match="too often"):
        await calendar.create(LONG)
    assert [str(number) for number in zoom.meetings] == [made.meeting_ref]


@pytest.mark.parametrize("code", FAILURES)
async def test_a_move_or_removal_that_zoom_did_before_it_failed_is_done(proxied, code):
    proxy, zoom, calendar = proxied
    made = await calendar.create(LONG)
    proxy.plan("PATCH", done_then(code))
    moved = await calendar.update(made.event_id, EventChange(start=at(9), end=at(10)), key="k1")
    assert (moved.warnings, zoom.meetings[int(made.meeting_ref)]["start_time"]) == ((), "2026-01-13T09:00:00Z")
    proxy.plan("DELETE", done_then(code))
    gone = await calendar.cancel(made.event_id, key="k2")
    assert (gone.warnings, zoom.meetings) == ((), {})


async def test_a_move_that_zoom_refuses_is_said_and_the_event_is_moved(proxied):
    proxy, zoom, calendar = proxied
    made = await calendar.create(LONG)
    proxy.plan("PATCH", status(500), status(500))
    moved = await calendar.update(made.event_id, EventChange(start=at(9), end=at(10)), key="k1")
    assert moved.start == at(9)
    assert moved.warnings == (
        f"The zoom meeting {next(iter(zoom.meetings))} may not have been changed with it: Zoom failed (500).",
    )


async def test_a_wrong_secret_is_said(zoom):
    meetings = meetings_of(zoom.url, client_secret="wrong")
    for refused in (meetings.make(LONG), meetings.check()):
        with pytest.raises(ToolError, match="refused the host's sign-in") as caught:
            await refused
        assert caught.value.type is ErrorType.AUTH
    assert "wrong" not in repr(meetings)


async def test_the_doctor_asks_for_the_meetings_too(booked):
    zoom, calendar = booked
    assert (await calendar.check()).endswith("; meetings by Zoom")
    zoom.tokens.clear()
    with pytest.raises(ToolError, match="Zoom denies this to the host's app"):
        await calendar.check()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"meetings": "zoom"}, "zoom_account_id"),
        ({"meetings": "meet"}, "calendar at Google only"),
        (
            {
                "meetings": "zoom",
                **{f"zoom_{name}": "x" for name in ACCOUNT},
                "zoom_api_url": "http://me:hunter2@zoom.example.com",
            },
            "https",
        ),
    ],
    ids=["no account", "meet", "in the clear"],
)
def test_a_setting_that_cannot_be_is_named(tmp_path, settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        open_calendar(tmp_path, **settings)
    assert "hunter2" not in str(caught.value)


async def test_ten_at_once_need_one_token(zoom):
    meetings = meetings_of(zoom.url)
    found = await asyncio.gather(*(meetings.find(f"k{number}") for number in range(10)))
    assert found == [None] * 10

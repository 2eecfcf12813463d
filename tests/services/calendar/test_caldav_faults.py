"""A CalDAV server that is slow, lies, answers HTML, closes in the middle, is full or refuses: one sentence, nothing half done."""

import asyncio
import threading
from datetime import timedelta

import pytest
from tests.services.calendar.backends import NAMES, caldav_calendar
from tests.services.calendar.bad_proxy import (
    bad_proxy,
    closed_after,
    closed_before,
    cut_short,
    done_then,
    html,
    slow,
    slow_after,
    status,
)
from tests.services.calendar.test_calendar_conformance import ASKED, at, draft
from tests.services.calendar.test_invitations import Crashed, crash, mail_of
from tests.services.calendar.test_zoom import meetings_of

from handrail.contract.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar import caldav_calendar as caldav_calendar_module
from handrail_reference.services.calendar.booking import is_from
from handrail_reference.services.calendar.caldav_client import CalDavClient
from handrail_reference.services.calendar.opening import open_calendar
from handrail_reference.services.calendar.port import BookedEvent, EventChange, OutcomeUnknown
from handrail_reference.services.calendar.series import Series

ANOTHER = (
    b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:another\r\nDTSTART:20260113T140000Z\r\nEND:VEVENT\r\n"
    b"END:VCALENDAR\r\n"
)


@pytest.fixture
def proxied(radicale_server):
    with bad_proxy(radicale_server.port) as proxy:
        addresses = radicale_server.calendars(*NAMES)
        calendar = caldav_calendar(radicale_server, url=proxy.url, calendars=addresses, timeout=2.5)
        direct = caldav_calendar(radicale_server, calendars=addresses)
        try:
            yield proxy, calendar, direct
        finally:
            proxy.released.set()
            for one in (calendar, direct):
                asyncio.run(one.close())


REFUSALS = {
    "sign-in": (status(401, WWW_Authenticate="Basic"), ErrorType.AUTH, "refused the host's sign-in", None),
    "forbidden": (status(403), ErrorType.AUTH, "denies it this calendar", None),
    "too often": (status(429, Retry_After="7"), ErrorType.RATE_LIMIT, "asked too often", 7.0),
    "not available": (status(503, Retry_After="3"), ErrorType.TRANSIENT, "not available", 3.0),
    "no promise": (status(503), ErrorType.TRANSIENT, "not available", None),
    "failing": (status(500), ErrorType.TRANSIENT, "failed \\(500\\)", None),
    "full": (status(507), ErrorType.PERMANENT, "no room left", None),
    "too large": (status(413), ErrorType.PERMANENT, "of this size", None),
    "forever": (status(429, Retry_After="99999999"), ErrorType.RATE_LIMIT, "asked too often", 3600.0),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_passed_on_and_nothing_was_done(proxied, name):
    proxy, calendar, direct = proxied
    fault, kind, says, wait = REFUSALS[name]
    details = name == "forbidden"  # which may also mean that there is no report of free and busy times
    for method, asked in (
        ("PUT", lambda: calendar.create(draft())),
        ("REPORT", lambda: calendar.availability(**{**ASKED, "calendars": ["primary"]}, details=details)),
    ):
        proxy.plan(method, fault)
        with pytest.raises(ToolError, match=says) as caught:
            await asked()
        assert (caught.value.type, caught.value.retry_after, caught.value.partial_side_effects) == (kind, wait, False)
    assert await direct.find("c0ffee01") is None


@pytest.mark.parametrize(
    "fault",
    [closed_before, closed_after, cut_short, slow_after, status(502), *map(done_then, (403, 500, 502, 503, 504, 507))],
    ids=lambda one: one.__name__,
)
async def test_in_doubt_it_is_written_again_and_once(proxied, fault):
    proxy, calendar, direct = proxied
    proxy.plan("PUT", fault)
    made = await calendar.create(draft())
    assert made.title == "Review"
    assert (await direct.availability(**ASKED)).busy_minutes == 60
    proxy.plan("PUT", fault)
    moved = await calendar.update(made.event_id, EventChange(start=at(9), end=at(10)), key="k1", etag=made.etag)
    assert moved.start == at(9)
    assert moved.sequence == 1


SILENT = [status(500), status(503), html]


@pytest.mark.parametrize("look", SILENT, ids=["failing", "away", "html"])
async def test_a_write_that_failed_and_cannot_be_looked_for_is_an_unknown_outcome(proxied, look):
    proxy, calendar, _ = proxied
    proxy.plan("PUT", done_then(500))
    proxy.plan("GET", look)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    made = await calendar.settle_creation(draft())
    assert made.start == at(14)
    proxy.plan("PUT", done_then(500))
    proxy.plan("GET", None, None, look)
    with pytest.raises(OutcomeUnknown):
        await calendar.update(made.event_id, EventChange(title="Retro"), key="k1")
    assert (await calendar.settle_change(made.event_id, key="k1")).title == "Retro"


async def test_a_look_on_a_connection_that_the_server_has_ended_is_taken_on_another(proxied):
    proxy, calendar, _ = proxied
    proxy.plan("GET", closed_before)
    made = await calendar.create(draft())
    proxy.plan("GET", None, None, closed_before)
    assert (await calendar.update(made.event_id, EventChange(title="Retro"), key="k1")).title == "Retro"


async def test_a_change_that_failed_and_was_not_made_is_said_so(proxied):
    proxy, calendar, direct = proxied
    made = await calendar.create(draft())
    proxy.plan("PUT", status(500))
    with pytest.raises(ToolError, match=r"failed \(500\)") as caught:
        await calendar.update(made.event_id, EventChange(title="Retro"), key="k1")
    assert (caught.value.type, caught.value.partial_side_effects) == (ErrorType.TRANSIENT, False)
    assert (await direct.get(made.event_id)).etag == made.etag


async def test_what_stays_in_doubt_is_an_unknown_outcome_and_looking_settles_it(proxied):
    proxy, calendar, _ = proxied
    proxy.plan("PUT", slow, slow)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    assert await calendar.settle_creation(draft()) is None
    proxy.plan("PUT", closed_after, closed_after)
    proxy.plan("GET", html)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    assert (await calendar.settle_creation(draft())).start == at(14)


async def test_a_server_that_is_gone_has_done_nothing(radicale_server):
    calendar = caldav_calendar(radicale_server, url="http://127.0.0.1:9/", calendars={"primary": "/x/"})
    with pytest.raises(ToolError, match="does not answer") as caught:
        await calendar.create(draft())
    assert (caught.value.type, caught.value.retryable) == (ErrorType.TRANSIENT, True)
    await calendar.close()


@pytest.mark.parametrize(
    "fault", [html, status(200, ANOTHER, ETag='"1"', Content_Type="text/calendar")], ids=["html", "another"]
)
async def test_an_answer_that_is_not_the_event_is_not_believed(proxied, fault):
    proxy, calendar, direct = proxied
    made = await calendar.create(draft())
    proxy.plan("GET", fault)
    with pytest.raises(ToolError) as caught:
        await calendar.update(made.event_id, EventChange(title="x"), key="k1")
    assert caught.value.type is ErrorType.PERMANENT
    assert (await direct.get(made.event_id)).etag == made.etag


@pytest.mark.parametrize(
    "fault", [html, cut_short, closed_before, slow, status(200, b"\xff\xfe\x00"), status(207, b"<a/>")]
)
async def test_availability_that_cannot_be_read_is_one_sentence(proxied, fault):
    proxy, calendar, _ = proxied
    for details in (False, True):
        proxy.plan("REPORT", fault)
        with pytest.raises(ToolError) as caught:
            await calendar.availability(**{**ASKED, "calendars": ["primary"]}, details=details)
        assert caught.value.type in (ErrorType.PERMANENT, ErrorType.TRANSIENT)
        assert caught.value.message.count(".") == 1


async def test_an_event_of_somebody_else_at_the_address_is_a_conflict(proxied, radicale_server):
    _, calendar, direct = proxied
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    text = ANOTHER.decode().replace("UID:another", "UID:another\r\nDTSTAMP:20260101T000000Z")
    assert radicale_server.request("PUT", f"{address}c0ffee01.ics", text, {"Content-Type": "text/calendar"})[0] == 201
    with pytest.raises(ToolError) as caught:
        await calendar.find("c0ffee01")
    assert caught.value.type is ErrorType.PERMANENT


@pytest.mark.parametrize(
    ("uid", "place", "fault"),
    [
        ("another", "c0ffee01.ics", None),
        ("c0ffee01", "c0ffee01.ics", None),
        ("c0ffee01", "c0ffee01.ics", status(500)),
        ("c0ffee01", "elsewhere.ics", None),
        ("c0ffee01", "elsewhere.ics", status(403)),
    ],
    ids=["address", "both", "both, 500", "UID", "UID, 403"],
)
async def test_an_event_of_somebody_else_is_never_taken_for_the_booking(
    proxied, radicale_server, zoom, mail, uid, place, fault
):
    proxy, calendar, direct = proxied
    calendar._meetings, calendar._mail = meetings_of(zoom.url), mail_of(mail)
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    theirs = f"UID:{uid}\r\nDTSTAMP:20260101T000000Z\r\nDTEND:20260113T143000Z\r\nATTENDEE:mailto:boss@example.com"
    text = ANOTHER.decode().replace("UID:another", theirs)
    assert radicale_server.request("PUT", f"{address}{place}", text, {"Content-Type": "text/calendar"})[0] == 201
    booking = draft(with_meeting=True, attendees=("ana@example.com",))
    proxy.plan("PUT", fault)
    with pytest.raises(ToolError, match="Another event") as caught:
        await calendar.create(booking)
    assert (caught.value.type, caught.value.partial_side_effects) == (ErrorType.CONFLICT, False)
    assert zoom.meetings == {}
    await calendar._meetings.make(booking)  # left by a crash
    assert await calendar.settle_creation(booking) is None
    assert (zoom.meetings, mail.mails) == ({}, [])
    assert "boss@example.com" in radicale_server.request("GET", f"{address}{place}")[1]


async def test_an_event_that_another_program_has_moved_to_its_own_address_is_found_there(proxied, radicale_server):
    _, calendar, direct = proxied
    made = await calendar.create(draft())
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    words = {"Destination": f"{radicale_server.url.rstrip('/')}{address}elsewhere.ics"}
    assert radicale_server.request("MOVE", f"{address}c0ffee01.ics", "", words)[0] == 201
    again = await calendar.create(draft())
    assert (again.event_id, again.title) == (made.event_id, made.title)
    moved = await calendar.update(again.event_id, EventChange(title="Moved"), key="k1", etag=again.etag)
    assert (moved.title, (await direct.find("c0ffee01")).title) == ("Moved", "Moved")


SCHEDULING = {"DAV": "1, 2, 3, calendar-access, calendar-auto-schedule"}


def _properties(tag, href):
    """The answer to a PROPFIND for one property."""
    text = (
        '<D:multistatus xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:response><D:href>/x/</D:href><D:propstat>'
        f"<D:prop><{tag}><D:href>{href}</D:href></{tag}></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        "</D:multistatus>"
    )
    return status(207, text.encode(), Content_Type="application/xml")


@pytest.mark.parametrize("given", ["by the host", "by the server"])
async def test_a_server_that_schedules_invites_by_itself(proxied, radicale_server, given):
    proxy, calendar, direct = proxied
    proxy.headers = SCHEDULING
    if given == "by the host":
        calendar._organizer = "team@example.com"
    else:
        mails = _properties("C:calendar-user-address-set", "mailto:team@example.com")
        proxy.plan("PROPFIND", _properties("D:current-user-principal", "/ana/"), mails)
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    assert (made.invitations, made.invited) == ("service", ("ana@example.com",))
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    assert "ORGANIZER:mailto:team@example.com" in radicale_server.request("GET", f"{address}c0ffee01.ics")[1]
    proxy.plan("DELETE", status(500), done_then(500))
    with pytest.raises(ToolError, match=r"failed \(500\)") as caught:
        await calendar.cancel(made.event_id, key="k1")
    assert (caught.value.type, caught.value.partial_side_effects) == (ErrorType.TRANSIENT, False)
    assert (await direct.find("c0ffee01")).etag == made.etag
    assert (await calendar.cancel(made.event_id, key="k2")).cancelled
    assert await direct.find("c0ffee01") is None


async def test_a_change_of_an_event_that_invited_nobody_is_left_to_a_server_that_schedules(proxied, radicale_server):
    proxy, calendar, direct = proxied
    made = await direct.create(draft(attendees=("ana@example.com",)))
    proxy.headers = SCHEDULING
    calendar._organizer = "team@example.com"
    moved = await calendar.update(made.event_id, EventChange(start=at(16), end=at(17)), key="k1")
    assert (moved.invitations, moved.invited) == ("service", ("ana@example.com",))
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    text = radicale_server.request("GET", f"{address}c0ffee01.ics")[1]
    assert "ORGANIZER:mailto:team@example.com" in text
    assert "SCHEDULE-AGENT" not in text


async def test_the_meeting_of_an_event_that_a_killed_cancellation_has_deleted_is_removed(proxied, zoom, monkeypatch):
    proxy, calendar, _ = proxied
    proxy.headers = SCHEDULING
    calendar._organizer, calendar._meetings = "team@example.com", meetings_of(zoom.url)
    made = await calendar.create(draft(with_meeting=True, attendees=("ana@example.com",)))
    with monkeypatch.context() as dying:
        dying.setattr(calendar._meetings, "remove", crash)
        with pytest.raises(Crashed):
            await calendar.cancel(made.event_id, key="k1")
    assert len(zoom.meetings) == 1
    assert await calendar.settle_cancellation(made.event_id, key="k1") == (True, None)
    assert zoom.meetings == {}


@pytest.mark.parametrize("principal", [None, status(403), status(404)], ids=["no mail address", "403", "404"])
async def test_a_server_that_invites_in_nobodys_name_invites_nobody(proxied, mail, principal):
    proxy, calendar, _ = proxied
    proxy.headers = SCHEDULING
    proxy.plan("PROPFIND", principal)
    assert (await calendar.arrangements(with_meeting=False)).invitations == "none"
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    assert (made.invitations, made.invited) == ("none", ())
    calendar._mail = mail_of(mail)
    again = await calendar.create(draft("c0ffee02", attendees=("ana@example.com",)))
    assert (again.invitations, again.invited, len(mail.mails)) == ("mail", ("ana@example.com",), 1)
    calendar._invitations = "service"
    with pytest.raises(ToolError, match="organizer") as caught:
        await calendar.create(draft("c0ffee03", attendees=("ana@example.com",)))
    assert caught.value.type is ErrorType.PERMANENT


@pytest.mark.parametrize("code", [400, 403, 501])
async def test_a_server_without_free_busy_is_asked_for_events(proxied, code):
    proxy, calendar, _ = proxied
    await calendar.create(draft())
    proxy.plan("REPORT", status(code))
    found = await calendar.availability(**{**ASKED, "calendars": ["primary"]})
    assert [(one.start, one.end, one.title) for one in found.busy] == [(at(14), at(15), None)]


@pytest.mark.parametrize(
    ("href", "found"), [("/ana/x.ics", True), ("https://evil.example/x.ics", False), ("//evil.example/x.ics", False)]
)
async def test_an_event_is_followed_to_no_other_server(proxied, monkeypatch, href, found):
    _, calendar, direct = proxied
    await direct.create(draft())
    _, text, _ = await direct._stored("primary", "c0ffee01")

    async def told(name, condition):
        return ((href, '"1"', text),)

    monkeypatch.setattr(calendar, "_query", told)
    assert (await calendar._by_uid("primary", "c0ffee01") is not None) is found


async def test_events_that_repeat_without_measure_are_one_sentence_and_hold_up_nobody(
    proxied, radicale_server, monkeypatch
):
    """Whoever may invite may send them."""
    _, calendar, direct = proxied
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    theirs = (
        "UID:another\r\nDTSTAMP:20260101T000000Z\r\nDTEND:20260113T140500Z\r\nRRULE:FREQ=HOURLY;BYMINUTE=0,15,30,45"
    )
    text = ANOTHER.decode().replace("UID:another", theirs)
    assert radicale_server.request("PUT", f"{address}often.ics", text, {"Content-Type": "text/calendar"})[0] == 201
    threads = []

    class Noted(Series):
        def between(self, *window):
            threads.append(threading.current_thread())
            return super().between(*window)

    monkeypatch.setattr(caldav_calendar_module, "Series", Noted)
    days = {"start": at(0), "calendars": ["primary"], "details": True}
    assert len((await calendar.availability(**days, end=at(24))).busy) > 20
    with pytest.raises(ToolError, match="ask for less"):
        await calendar.availability(**days, end=at(24) + timedelta(days=398))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_an_address_that_is_no_calendar_server_is_named(proxied):
    proxy, calendar, _ = proxied
    proxy.plan("OPTIONS", html)
    with pytest.raises(ToolError, match="check it") as caught:
        await calendar.create(draft())
    assert caught.value.type is ErrorType.PERMANENT


async def test_the_doctor_asks_every_calendar(proxied):
    proxy, calendar, _ = proxied
    assert await calendar.check() == "2 calendars on 127.0.0.1; invitations: none"
    proxy.plan("REPORT", status(404))
    with pytest.raises(ToolError, match=r'^Calendar "primary" at /\S+/: The calendar is not on the server'):
        await calendar.check()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"caldav_url": "http://dav.example.com/"}, "https://"),
        ({"caldav_url": "dav.example.com"}, "address of a CalDAV server"),
        ({"caldav_url": "https://u:p@dav.example.com/"}, "address of a CalDAV server"),
        ({"calendars": None}, "must name the calendars"),
        ({"calendars": {"team": "/x/"}}, 'must have "primary"'),
        ({"calendars": {"primary": "https://other.example.com/x/"}}, 'on the server of "caldav_url"'),
        ({"calendars": {"primary": ""}}, 'on the server of "caldav_url"'),
        ({"calendars": {"primary": 3}}, "must name the calendars"),
        ({"invitations": "mail"}, 'needs "mail_host"'),
        ({"time_zone": "Mars/Olympus"}, "IANA"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_setting_that_cannot_be_is_named(tmp_path, settings, says):
    given = {"caldav_url": "https://dav.example.com/", "calendars": {"primary": "/ana/work/"}, **settings}
    with pytest.raises(ConfigError, match=says) as caught:
        open_calendar(tmp_path, backend="caldav", **given)
    assert ":p@" not in str(caught.value)


@pytest.mark.parametrize(
    ("attendees", "is_same"),
    [(("ANA@example.com", "me@example.com"), True), (("me@example.com",), False), ((), False)],
)
def test_an_event_is_the_booking_however_the_server_writes_whom_it_invites(attendees, is_same):
    booking = draft(attendees=("ana@Example.com",))
    event = BookedEvent(
        event_id="e1", uid=booking.uid, calendar="primary", title=booking.title, start=booking.start, end=booking.end,
        attendees=attendees, link="", meeting_link=None,
    )  # fmt: skip
    assert is_from(event, booking) is is_same


def test_a_password_is_in_no_repr():
    assert "s3cret" not in repr(CalDavClient("https://dav.example.com/", user="u", password="s3cret"))

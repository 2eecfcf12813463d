"""A CalDAV server that is slow, lies, answers HTML, closes in the middle, is full or refuses: one sentence, nothing half done."""

import asyncio

import pytest
from tests.services.calendar.backends import NAMES, caldav_calendar
from tests.services.calendar.bad_proxy import (
    bad_proxy,
    closed_after,
    closed_before,
    cut_short,
    html,
    slow,
    slow_after,
    status,
)
from tests.services.calendar.test_calendar_conformance import ASKED, at, draft

from handrail.contract.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.caldav_client import CalDavClient
from handrail_reference.services.calendar.opening import open_calendar
from handrail_reference.services.calendar.port import EventChange, OutcomeUnknown

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
    for method, asked in (
        ("PUT", lambda: calendar.create(draft())),
        ("REPORT", lambda: calendar.availability(**{**ASKED, "calendars": ["primary"]})),
    ):
        proxy.plan(method, fault)
        with pytest.raises(ToolError, match=says) as caught:
            await asked()
        assert (caught.value.type, caught.value.retry_after, caught.value.partial_side_effects) == (kind, wait, False)
    assert await direct.find("c0ffee01") is None


@pytest.mark.parametrize(
    "fault", [closed_before, closed_after, cut_short, slow_after, status(502)], ids=lambda one: one.__name__
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


async def test_the_same_uid_at_another_address_is_found_there(proxied, radicale_server):
    _, calendar, direct = proxied
    address = direct._addresses["primary"].removeprefix(radicale_server.url.rstrip("/"))
    text = ANOTHER.decode().replace("UID:another", "UID:c0ffee01\r\nDTSTAMP:20260101T000000Z\r\nDTEND:20260113T143000Z")
    assert radicale_server.request("PUT", f"{address}elsewhere.ics", text, {"Content-Type": "text/calendar"})[0] == 201
    made = await calendar.create(draft())
    assert made.end == at(14, 30)
    moved = await calendar.update(made.event_id, EventChange(title="Moved"), key="k1", etag=made.etag)
    assert (moved.title, (await direct.find("c0ffee01")).title) == ("Moved", "Moved")


async def test_a_server_that_schedules_invites_by_itself(proxied):
    proxy, calendar, direct = proxied
    proxy.headers = {"DAV": "1, 2, 3, calendar-access, calendar-auto-schedule"}
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    assert (made.invitations, made.invited) == ("service", ("ana@example.com",))
    gone = await calendar.cancel(made.event_id, key="k1")
    assert gone.cancelled
    assert await direct.find("c0ffee01") is None


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
    with pytest.raises(ConfigError, match=says):
        open_calendar(tmp_path, backend="caldav", **given)


def test_a_password_is_in_no_repr():
    assert "s3cret" not in repr(CalDavClient("https://dav.example.com/", user="u", password="s3cret"))

"""Google Calendar when it refuses, is slow, lies or goes away; whose credentials it is asked with; and its Meet links."""

import asyncio
import json

import pytest
from tests.services.calendar.backends import google_calendar
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
from tests.services.calendar.google_server import SCOPE, TOKEN, GoogleRefusal, GoogleServer
from tests.services.calendar.kit import NOW
from tests.services.calendar.test_calendar_conformance import ASKED, at, draft

from handrail.contract.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.google_calendar import GoogleCalendar
from handrail_reference.services.calendar.google_client import GoogleClient, PersonalTokens, account_file
from handrail_reference.services.calendar.opening import open_calendar
from handrail_reference.services.calendar.port import Caller, EventChange, OutcomeUnknown
from handrail_reference.services.meetings import MeetMeetings

ONE = {**ASKED, "calendars": ["primary"]}


def refusal(code, reason, **headers):
    """In Google's own shape."""
    return status(
        code, json.dumps(GoogleRefusal(code, reason, "No.").body).encode(), Content_Type="application/json", **headers
    )


@pytest.fixture
def proxied(google):
    with bad_proxy(google.port) as proxy:
        calendar = google_calendar(google, url=proxy.url, timeout=2.5)
        try:
            yield proxy, calendar, google
        finally:
            proxy.released.set()
            asyncio.run(calendar.close())


REFUSALS = {
    "revoked": (refusal(401, "authError"), ErrorType.AUTH, "connected again", None),
    "another scope": (refusal(403, "insufficientPermissions"), ErrorType.AUTH, "another permission", None),
    "not shared": (refusal(403, "forbidden"), ErrorType.AUTH, "has to share it", None),
    "user's rate": (refusal(403, "userRateLimitExceeded"), ErrorType.RATE_LIMIT, "asked too often", 5.0),
    "rate": (refusal(429, "rateLimitExceeded", Retry_After="11"), ErrorType.RATE_LIMIT, "asked too often", 11.0),
    "full": (refusal(403, "calendarUsageLimitsExceeded"), ErrorType.RATE_LIMIT, "no more for now", None),
    "backend": (refusal(500, "backendError"), ErrorType.TRANSIENT, "failed \\(500\\)", None),
    "away": (refusal(503, "backendError", Retry_After="4"), ErrorType.TRANSIENT, "not available", 4.0),
    "bad request": (refusal(400, "invalid"), ErrorType.PERMANENT, "refused the request \\(400, invalid\\)", None),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_passed_on_and_nothing_was_done(proxied, name):
    proxy, calendar, google = proxied
    fault, kind, says, wait = REFUSALS[name]
    for asked in (lambda: calendar.create(draft()), lambda: calendar.availability(**ONE)):
        proxy.plan("POST", fault)
        with pytest.raises(ToolError, match=says) as caught:
            await asked()
        assert (caught.value.type, caught.value.retry_after, caught.value.partial_side_effects) == (kind, wait, False)
    assert google.calendars["ana@example.com"] == {}
    assert google.mails == []


@pytest.mark.parametrize(
    "fault",
    [closed_before, closed_after, cut_short, slow_after, status(502), *map(done_then, (403, 500, 502, 503, 504))],
    ids=lambda one: one.__name__,
)
async def test_in_doubt_it_is_written_again_and_once(proxied, fault):
    proxy, calendar, google = proxied
    proxy.plan("POST", fault)
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    assert made.title == "Review"
    assert len(google.calendars["ana@example.com"]) == 1
    proxy.plan("PATCH", fault)
    moved = await calendar.update(made.event_id, EventChange(start=at(9), end=at(10)), key="k1", etag=made.etag)
    assert (moved.start, moved.sequence) == (at(9), 1)
    proxy.plan("DELETE", fault)
    await calendar.cancel(made.event_id, key="k2", etag=moved.etag)
    assert [kind for kind, _, _ in google.mails] == ["invitation", "update", "cancellation"]


@pytest.mark.parametrize("look", [status(500), status(503), html], ids=["failing", "away", "html"])
async def test_a_write_that_failed_and_cannot_be_looked_for_is_an_unknown_outcome(proxied, look):
    proxy, calendar, _ = proxied
    proxy.plan("POST", done_then(500))
    proxy.plan("GET", look)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    made = await calendar.settle_creation(draft())
    assert made.start == at(14)
    proxy.plan("PATCH", done_then(500))
    proxy.plan("GET", None, look)
    with pytest.raises(OutcomeUnknown):
        await calendar.update(made.event_id, EventChange(title="Retro"), key="k1")
    assert (await calendar.settle_change(made.event_id, key="k1")).title == "Retro"


async def test_a_change_or_cancellation_that_failed_and_was_not_made_is_said_so(proxied):
    proxy, calendar, google = proxied
    made = await calendar.create(draft())
    for method, asked in (
        ("PATCH", lambda: calendar.update(made.event_id, EventChange(title="Retro"), key="k1")),
        ("DELETE", lambda: calendar.cancel(made.event_id, key="k2")),
    ):
        proxy.plan(method, refusal(500, "backendError"))
        with pytest.raises(ToolError, match=r"failed \(500\)") as caught:
            await asked()
        assert (caught.value.type, caught.value.partial_side_effects) == (ErrorType.TRANSIENT, False)
    assert google.calendars["ana@example.com"]["c0ffee01"]["etag"] == f'"{made.etag}"'


THEIRS = {
    "id": "c0ffee01", "summary": "Theirs", "status": "confirmed", "sequence": 0, "etag": '"1"',
    "start": {"dateTime": at(9).isoformat()}, "end": {"dateTime": at(10).isoformat()},
}  # fmt: skip
TAKEN = json.dumps(THEIRS).encode()


async def test_an_answer_that_describes_another_event_is_compared_with_what_is_there(proxied):
    proxy, calendar, google = proxied
    events = google.calendars["ana@example.com"]
    proxy.plan("POST", done_then(200, TAKEN, Content_Type="application/json"))
    made = await calendar.create(draft(attendees=("ana@example.com",)))
    assert (made.title, made.start, made.invited) == ("Review", at(14), ("ana@example.com",))
    events.clear()
    proxy.plan("POST", status(200, TAKEN, Content_Type="application/json"))
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    events["c0ffee01"] = dict(THEIRS)
    proxy.plan("POST", status(200, TAKEN, Content_Type="application/json"))
    with pytest.raises(ToolError, match="Another event"):
        await calendar.create(draft())
    assert await calendar.settle_creation(draft()) is None
    assert events["c0ffee01"] == THEIRS


async def test_what_stays_in_doubt_is_an_unknown_outcome_and_looking_settles_it(proxied):
    proxy, calendar, _ = proxied
    proxy.plan("POST", slow, slow)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    assert await calendar.settle_creation(draft()) is None
    proxy.plan("POST", closed_after, slow)
    proxy.plan("GET", html)
    with pytest.raises(OutcomeUnknown):
        await calendar.create(draft())
    assert (await calendar.settle_creation(draft())).start == at(14)


async def test_an_event_of_somebody_else_under_the_id_is_a_conflict(google):
    calendar = google_calendar(google)
    google.calendars["ana@example.com"]["c0ffee01"] = dict(THEIRS)
    with pytest.raises(ToolError, match="Another event") as caught:
        await calendar.create(draft())
    assert caught.value.type is ErrorType.CONFLICT
    assert google.calendars["ana@example.com"]["c0ffee01"]["summary"] == "Theirs"
    await calendar.close()


@pytest.mark.parametrize(
    "what", [b"[]", b'{"id": "another"}', b'{"id": "c0ffee01", "etag": "\\"1\\""}', b"<html>"], ids=str
)
async def test_an_answer_that_is_not_the_event_is_not_believed(proxied, what):
    proxy, calendar, google = proxied
    made = await calendar.create(draft())
    proxy.plan("GET", status(200, what, Content_Type="application/json"))
    with pytest.raises(ToolError) as caught:
        await calendar.update(made.event_id, EventChange(title="x"), key="k1")
    assert caught.value.type is ErrorType.PERMANENT
    assert google.calendars["ana@example.com"]["c0ffee01"]["summary"] == "Review"


@pytest.mark.parametrize(
    "what", [b"{}", b'{"calendars": {}}', b'{"calendars": {"primary": {"busy": [{"start": "x"}]}}}', b"<html>"], ids=str
)
async def test_what_cannot_be_read_is_not_taken_for_free(proxied, what):
    proxy, calendar, _ = proxied
    proxy.plan("POST", status(200, what, Content_Type="application/json"))
    with pytest.raises(ToolError) as caught:
        await calendar.availability(**ONE)
    assert (caught.value.type, caught.value.message.count(".")) == (ErrorType.PERMANENT, 1)


async def test_a_calendar_that_is_not_shared_is_named(google):
    calendar = google_calendar(google)
    calendar._ids["team"] = "secret@group.example.com"
    with pytest.raises(ToolError, match='does not show the calendar "team"') as caught:
        await calendar.availability(**ASKED)
    assert caught.value.type is ErrorType.AUTH
    await calendar.close()


async def test_google_invites_and_is_told_not_to_where_mail_does(google):
    calendar = google_calendar(google)
    made = await calendar.create(draft(attendees=("ivo@example.com",)))
    assert (made.invitations, made.invited) == ("service", ("ivo@example.com",))
    assert google.mails == [("invitation", "c0ffee01", ("ivo@example.com",))]
    quiet = google_calendar(google, invitations="none")
    assert (await quiet.create(draft("c0ffee02", attendees=("ivo@example.com",)))).invited == ()
    assert len(google.mails) == 1
    for one in (calendar, quiet):
        await one.close()


async def test_those_who_stay_keep_their_answer_and_google_is_not_told_what_it_alone_says(google):
    calendar = google_calendar(google)
    made = await calendar.create(draft(attendees=("ana@example.com", "ivo@example.com")))
    events = google.calendars["ana@example.com"]
    events["c0ffee01"]["attendees"][1]["responseStatus"] = "accepted"
    people = ("eva@example.com", "ivo@example.com", "ana@example.com")
    assert (await calendar.update(made.event_id, EventChange(attendees=people), key="k1")).attendees == people
    answers = {one["email"]: one["responseStatus"] for one in events["c0ffee01"]["attendees"]}
    assert answers == dict(zip(people, ("needsAction", "accepted", "needsAction"), strict=True))
    await calendar.close()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"attendees": [{"email": "a@example.com", "self": True}]}, "/attendees/0/self is read-only"),
        ({"htmlLink": "https://example.com"}, "/htmlLink is read-only"),
        ({"visibility": "secret"}, "/visibility is secret, which is none of default, public, private, confidential"),
        ({"attendees": [{"responseStatus": "maybe"}]}, "/attendees/0/responseStatus is maybe"),
        ({"sequence": 2**31}, "/sequence is no int32"),
        ({"start": None}, "/start is missing"),
        ({"sumary": "Review"}, "/sumary is not in the document"),
    ],
)
def test_the_local_server_refuses_what_the_discovery_document_does_not_allow(asked, says):
    server = GoogleServer()
    times = {name: {"dateTime": at(hour).isoformat()} for name, hour in (("start", 9), ("end", 10))}
    body = {name: value for name, value in {"id": "c0ffee01", **times, **asked}.items() if value is not None}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with pytest.raises(GoogleRefusal, match=says):
        server.answer("POST", "/calendar/v3/calendars/primary/events", headers, json.dumps(body).encode())
    with pytest.raises(GoogleRefusal, match="the parameter destination is missing"):
        server.answer("POST", "/calendar/v3/calendars/primary/events/c0ffee01/move", headers, b"")
    assert len(server.violations) == 2


@pytest.mark.parametrize("pending", [0, 2])
async def test_a_meet_link_comes_with_the_event(google, pending):
    google.meet_is_pending = pending
    calendar = google_calendar(google, meetings=MeetMeetings())
    assert (await calendar.arrangements(with_meeting=True)).meeting_provider == "meet"
    made = await calendar.create(draft(with_meeting=True))
    assert (made.meeting_provider, made.meeting_link) == ("meet", "https://meet.google.com/c0ffee01")
    assert made.warnings == ()
    assert (await calendar.find("c0ffee01")).meeting_link == made.meeting_link
    await calendar.close()


async def test_a_meet_link_that_does_not_come_is_said(google):
    google.meet_is_pending = 99
    calendar = google_calendar(google, meetings=MeetMeetings())
    made = await calendar.create(draft(with_meeting=True))
    assert (made.meeting_provider, made.meeting_link) == ("none", None)
    assert made.warnings == ("Google has made no Meet link for it yet.",)
    await calendar.close()


def _key_file(folder, google, **more):
    path = folder / "key.json"
    content = {
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "1//a-refresh-token",
        "token_uri": f"{google.url}token", **more,
    }  # fmt: skip
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


async def test_the_hosts_account_is_signed_in_by_its_key_file(google, tmp_path):
    client = GoogleClient(account_file(_key_file(tmp_path, google)), endpoint=google.url)
    calendar = GoogleCalendar(client, calendars={"primary": "primary"}, clock=NOW.timestamp)
    assert (await calendar.create(draft())).title == "Review"
    assert await calendar.check() == "1 calendar at Google; invitations: service"
    await calendar.close()


async def test_a_sign_in_that_was_taken_back_is_said(google, tmp_path):
    client = GoogleClient(account_file(_key_file(tmp_path, google, refresh_token="old")), endpoint=google.url)
    calendar = GoogleCalendar(client, calendars={"primary": "primary"}, clock=NOW.timestamp)
    with pytest.raises(ToolError, match="connected again") as caught:
        await calendar.create(draft())
    assert caught.value.type is ErrorType.AUTH
    await calendar.close()


@pytest.mark.parametrize("content", ["", "[]", '{"type": "robot"}', '{"type": "service_account"}', "\ud800"])
def test_a_key_file_that_is_none_is_named(tmp_path, content):
    (tmp_path / "key.json").write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(ConfigError, match=r"key\.json"):
        account_file(tmp_path / "key.json")


class Tokens:
    """`ctx.secrets` of a call: the tokens of its own user."""

    def __init__(self, *tokens):
        self.tokens = list(tokens)
        self.given_back = []
        self.asked = ""

    async def token(self, connection):
        assert connection == "google"
        return self.tokens[0]

    async def refused(self, connection, token):
        self.given_back.append(self.tokens.pop(0))

    def ask_to_connect(self, connection):
        self.asked = connection


async def test_each_person_uses_their_own_account(google):
    google.tokens["ya29.bens"] = {SCOPE}
    client = GoogleClient(PersonalTokens("google"), endpoint=google.url)
    calendar = GoogleCalendar(client, calendars={"primary": "primary"}, tenants=None, clock=NOW.timestamp)
    made = await calendar.create(draft(), caller=Caller(user="ben", tenant="acme", secrets=Tokens("ya29.bens")))
    assert made.title == "Review"
    with pytest.raises(ToolError, match="each person's own") as caught:
        await calendar.get(made.event_id)
    assert caught.value.type is ErrorType.AUTH
    assert await calendar.check() == "each person's own calendar; people connect it themselves"
    await calendar.close()


async def test_a_token_that_google_does_not_take_is_given_back_and_a_new_one_used_once(google):
    client = GoogleClient(PersonalTokens("google"), endpoint=google.url)
    calendar = GoogleCalendar(client, calendars={"primary": "primary"}, tenants=None, clock=NOW.timestamp)
    secrets = Tokens("ya29.old", TOKEN)
    assert (await calendar.create(draft(), caller=Caller(user="ana", secrets=secrets))).title == "Review"
    assert secrets.given_back == ["ya29.old"]
    assert secrets.asked == ""
    secrets = Tokens("ya29.old", "ya29.older", TOKEN)
    with pytest.raises(ToolError, match="connected again"):
        await calendar.find("c0ffee01", caller=Caller(user="ana", secrets=secrets))
    assert secrets.asked == "google"
    await calendar.close()


async def test_a_token_with_another_scope_is_one_sentence(google):
    google.tokens["ya29.small"] = {"https://www.googleapis.com/auth/calendar.freebusy"}
    calendar = google_calendar(google, token="ya29.small")
    assert (await calendar.availability(**ONE)).busy == ()
    with pytest.raises(ToolError, match="another permission") as caught:
        await calendar.create(draft())
    assert (caught.value.type, "ya29" in str(caught.value)) == (ErrorType.AUTH, False)
    await calendar.close()


@pytest.mark.parametrize(
    "settings", [{}, {"google_credentials": "key.json", "google_connection": "google"}], ids=["neither", "both"]
)
def test_whose_account_it_is_must_be_said(tmp_path, settings):
    with pytest.raises(ConfigError, match="one of the two"):
        open_calendar(tmp_path, backend="google", **settings)

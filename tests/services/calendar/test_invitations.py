"""Invitations by mail: who gets what, once; and mail servers that refuse, are away or drop the line."""

import ssl

import pytest
import trustme
from aiosmtpd.smtp import AuthResult
from tests.services.calendar.backends import open_backend
from tests.services.calendar.mail_server import mail_server
from tests.services.calendar.test_calendar_conformance import at, draft

from handrail.contract.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.port import EventChange
from handrail_reference.services.invitations import MailInvitations

PEOPLE = ("ana@example.com", "ivo@example.com")
BOOKING = draft(
    attendees=PEOPLE,
    title="Plan\r\nBcc: x@example.com",
    description="Agenda; 1, 2",
    location="Room 1",
    with_meeting=True,
)


class Crashed(BaseException):
    """The process ends here."""


async def crash(*words, **more):
    raise Crashed


def mail_of(server, **options):
    return MailInvitations(
        "127.0.0.1", port=server.port, sender="team@example.com", security="none", timeout=5.0, **options
    )


@pytest.fixture(params=["embedded", "caldav", "google"])
def calendar(request, tmp_path, mail):
    more = {"invitations": "mail"} if request.param == "google" else {}
    with open_backend(request.param, tmp_path, request, mail=mail_of(mail), **more) as opened:
        yield opened


@pytest.fixture
def embedded(request, tmp_path, mail):
    with open_backend("embedded", tmp_path, request, mail=mail_of(mail)) as opened:
        yield opened


async def test_attendees_get_an_invitation_a_change_and_a_cancellation(calendar, mail, request):
    made = await calendar.create(draft(attendees=PEOPLE, description="Agenda", location="Room 1"))
    assert (made.invitations, made.invited, made.warnings) == ("mail", PEOPLE, ())
    moved = await calendar.update(made.event_id, EventChange(start=at(16), end=at(17), attendees=PEOPLE[:1]), key="k1")
    assert moved.invited == PEOPLE[:1]
    gone = await calendar.cancel(made.event_id, key="k2", message="Sorry.")
    assert gone.invited == PEOPLE[:1]
    found = mail.events()
    assert [(method, to) for method, _, to in found] == [
        ("REQUEST", list(PEOPLE)),
        ("REQUEST", list(PEOPLE[:1])),
        ("CANCEL", list(PEOPLE[1:])),
        ("CANCEL", list(PEOPLE[:1])),
    ]
    events = [event for _, event, _ in found]
    assert {str(event["UID"]) for event in events} == {made.uid}
    assert [int(event["SEQUENCE"]) for event in events] == [0, 1, 1, 2]
    assert [event.decoded("DTSTART").hour for event in events] == [14, 16, 16, 16]
    assert str(events[0]["ORGANIZER"]) == "mailto:team@example.com"
    assert (str(events[0]["DESCRIPTION"]), str(events[0]["LOCATION"])) == ("Agenda", "Room 1")
    assert [str(event["STATUS"]) for event in events] == ["CONFIRMED", "CONFIRMED", "CANCELLED", "CANCELLED"]
    assert str(events[3]["COMMENT"]) == "Sorry."
    if "google" in request.fixturenames:
        assert request.getfixturevalue("google").mails == []


@pytest.mark.parametrize("settles", ["by looking", "by a second start"])
async def test_a_killed_change_tells_whom_it_has_uninvited(calendar, mail, monkeypatch, settles):
    made = await calendar.create(draft(attendees=PEOPLE))
    change = EventChange(start=at(16), end=at(17), attendees=PEOPLE[:1])
    with monkeypatch.context() as dying:
        dying.setattr(calendar._mail, "send", crash)
        with pytest.raises(Crashed):
            await calendar.update(made.event_id, change, key="k1")
    assert len(mail.mails) == 1
    await calendar.update(made.event_id, EventChange(title="Retro"), key="k2")
    if settles == "by looking":
        await calendar.settle_change(made.event_id, key="k1")
    else:
        await calendar.update(made.event_id, change, key="k1")
    assert [(method, to) for method, _, to in mail.events()[1:]] == [
        ("REQUEST", list(PEOPLE[:1])),
        ("REQUEST", list(PEOPLE[:1])),
        ("CANCEL", list(PEOPLE[1:])),
    ]


async def test_a_killed_cancellation_is_told_when_it_is_settled(calendar, mail, monkeypatch):
    made = await calendar.create(draft(attendees=PEOPLE))
    with monkeypatch.context() as dying:
        dying.setattr(calendar._mail, "send", crash)
        with pytest.raises(Crashed):
            await calendar.cancel(made.event_id, key="k1")
    is_off, event = await calendar.settle_cancellation(made.event_id, key="k1", message="Sorry.")
    assert (is_off, event.invitations, event.invited) == (True, "mail", PEOPLE)
    method, told, to = mail.events()[-1]
    assert (method, int(told["SEQUENCE"]), str(told["COMMENT"]), to) == ("CANCEL", 1, "Sorry.", list(PEOPLE))


async def test_nothing_in_a_title_becomes_a_header(embedded, mail):
    await embedded.create(BOOKING)
    [(to, message)] = mail.mails
    assert to == list(PEOPLE)
    assert message["Bcc"] is None
    assert message["Subject"] == "Invitation: Plan Bcc: x@example.com"
    assert "https://meet.jit.si/" in message.get_body(("plain",)).get_content()


async def test_people_read_the_time_on_the_calendars_clock(request, tmp_path, mail):
    with open_backend("embedded", tmp_path, request, mail=mail_of(mail), time_zone="Europe/Zagreb") as calendar:
        await calendar.create(draft(attendees=PEOPLE))
    [(_, message)] = mail.mails
    words = "Tuesday 13 January 2026, 15:00 to Tuesday 13 January 2026, 16:00 (Europe/Zagreb)"
    assert words in message.get_body(("plain",)).get_content()
    [(_, event, _)] = mail.events()
    assert event.decoded("DTSTART") == at(14)


async def test_an_invitation_that_is_sent_again_is_the_same_one(embedded, mail):
    made = await embedded.create(BOOKING)
    settled = await embedded.settle_creation(BOOKING)
    assert settled.invited == PEOPLE
    first, second = mail.events()
    assert (str(first[1]["UID"]), int(first[1]["SEQUENCE"])) == (made.uid, 0)
    assert [str(second[1][name]) for name in ("UID", "SEQUENCE", "DTSTART")] == [
        str(first[1][name]) for name in ("UID", "SEQUENCE", "DTSTART")
    ]
    assert mail.mails[0][1]["Message-ID"] == mail.mails[1][1]["Message-ID"]


async def test_a_line_that_drops_after_the_message_is_tried_again_with_the_same_message(embedded, mail):
    mail.answers = ["drop"]
    made = await embedded.create(BOOKING)
    assert (made.invited, made.warnings) == (PEOPLE, ())
    assert len({message["Message-ID"] for _, message in mail.mails}) == 1
    assert len(mail.mails) == 2


async def test_doubt_that_stays_is_said_and_the_event_stays(embedded, mail):
    mail.answers = ["drop", "drop"]
    made = await embedded.create(BOOKING)
    assert made.invited == ()
    assert made.warnings == tuple(
        f"It is not known whether {one} was written to: the mail server did not say whether it took the message"
        for one in PEOPLE
    )
    assert await embedded.find(BOOKING.uid) is not None


@pytest.mark.parametrize("answer", ["451 Try later", "554 No"])
async def test_an_event_whose_invitation_may_have_been_read_stays(calendar, mail, answer):
    mail.answers = ["drop", answer]
    booking = draft(attendees=PEOPLE)
    made = await calendar.create(booking)
    assert made.invited == ()
    assert made.warnings[0].startswith(
        "It is not known whether ana@example.com was written to: The mail server refused"
    )
    assert not (await calendar.find(booking.uid)).cancelled


async def test_an_address_that_is_refused_after_a_doubt_may_have_got_the_first(embedded, mail):
    mail.answers = ["drop"]
    mail.on_step = lambda: mail.refused.update({"ivo@example.com": "550 No such user"})
    made = await embedded.create(BOOKING)
    assert made.invited == ("ana@example.com",)
    assert made.warnings == ("It is not known whether ivo@example.com was written to: 550 No such user",)


async def test_a_second_start_that_cannot_invite_leaves_the_event_of_the_first(calendar, mail):
    booking = draft(attendees=PEOPLE)
    first = await calendar.create(booking)
    mail.answers = ["451 Try later"]
    second = await calendar.create(booking)
    assert (second.event_id, second.invited) == (first.event_id, ())
    assert second.warnings == (
        "It is not known whether the attendees were told by mail: The mail server refused the message: 451 Try later.",
    )
    assert not (await calendar.find(booking.uid)).cancelled
    await calendar.cancel(first.event_id, key="k1")
    assert (await calendar.create(booking)).cancelled
    assert [method for method, _, _ in mail.events()] == ["REQUEST", "CANCEL"]


async def test_an_address_that_is_refused_is_named_and_the_others_are_invited(embedded, mail):
    mail.refused = {"ivo@example.com": "550 No such user"}
    made = await embedded.create(BOOKING)
    assert made.invited == ("ana@example.com",)
    assert made.warnings == ("ivo@example.com was not written to: 550 No such user",)


REFUSALS = {
    "everybody": ({"refused": dict.fromkeys(PEOPLE, "550 No such user")}, ErrorType.PERMANENT, "refused every address"),
    "for now": ({"answers": ["451 Try later"]}, ErrorType.TRANSIENT, "451 Try later"),
    "spam": ({"answers": ["554 Looks like spam\x1b[2J"]}, ErrorType.PERMANENT, "refused the message"),
    "full": ({"answers": ["452 Insufficient storage"]}, ErrorType.TRANSIENT, "452"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_where_nobody_can_be_invited_there_is_no_event(calendar, mail, name):
    state, kind, says = REFUSALS[name]
    for key, value in state.items():
        setattr(mail, key, value.copy())
    booking = draft(attendees=PEOPLE)
    with pytest.raises(ToolError, match=says) as caught:
        await calendar.create(booking)
    assert (caught.value.type, caught.value.partial_side_effects) == (kind, False)
    assert "\x1b" not in caught.value.message
    found = await calendar.find(booking.uid)
    assert found is None or found.cancelled
    assert mail.mails == []


async def test_a_change_stands_although_nobody_could_be_told(embedded, mail):
    made = await embedded.create(BOOKING)
    mail.answers = ["554 No"]
    moved = await embedded.update(made.event_id, EventChange(start=at(9), end=at(10)), key="k1")
    assert moved.start == at(9)
    assert moved.invited == ()
    assert moved.warnings == ("The attendees were not told by mail: The mail server refused the message: 554 No.",)


async def test_a_mail_server_that_is_away_leaves_no_event(request, tmp_path):
    away = MailInvitations("127.0.0.1", port=9, sender="team@example.com", security="none")
    with open_backend("embedded", tmp_path, request, mail=away) as calendar:
        with pytest.raises(ToolError, match="mail server does not answer") as caught:
            await calendar.create(BOOKING)
        assert caught.value.type is ErrorType.TRANSIENT
        assert await calendar.find(BOOKING.uid) is None


async def test_a_server_without_tls_gets_nothing_where_tls_is_wanted(request, tmp_path, mail):
    secured = MailInvitations("127.0.0.1", port=mail.port, sender="team@example.com", security="starttls")
    with open_backend("embedded", tmp_path, request, mail=secured) as calendar:
        with pytest.raises(ToolError, match="STARTTLS"):
            await calendar.create(BOOKING)
        assert mail.mails == []
        assert await calendar.find(BOOKING.uid) is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sender": "team"}, "mail_from"),
        ({"sender": "a@b\r\nBcc: c@d"}, "mail_from"),
        ({"port": 0}, "mail_port"),
        ({"host": "mail.example.com", "security": "none"}, "mail_security"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings, says):
    given = {"host": "127.0.0.1", "port": 25, "sender": "team@example.com", **settings}
    with pytest.raises(ConfigError, match=says):
        MailInvitations(given.pop("host"), **given)


def _signed_in(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (b"team", b"right"), handled=False)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def secured(authority, security):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    more = {"tls_context": context, "require_starttls": True}
    if security == "tls":
        more = {"ssl_context": context, "auth_require_tls": False}  # it asks for STARTTLS within TLS
    with mail_server(**more, authenticator=_signed_in, auth_required=True) as server:
        yield server


def _trusting(authority):
    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    return context


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")
@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_mail_goes_out_encrypted_and_signed_in(request, tmp_path, secured, authority, security):
    mail = MailInvitations(
        "127.0.0.1",
        port=secured.port,
        sender="team@example.com",
        security=security,
        user="team",
        password="right",
        tls=_trusting(authority),
    )
    assert "right" not in repr(mail)
    with open_backend("embedded", tmp_path, request, mail=mail) as calendar:
        assert (await calendar.check()).endswith("; mail by 127.0.0.1")
        assert (await calendar.create(BOOKING)).invited == PEOPLE
        assert len(secured.mails) == 1


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")
@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize(
    ("password", "trusts", "kind", "says"),
    [
        ("wrong", True, ErrorType.AUTH, "refused the host's sign-in"),
        ("right", False, ErrorType.PERMANENT, "certificate"),
    ],
    ids=["password", "certificate"],
)
async def test_a_wrong_password_or_certificate_is_one_sentence_and_no_event(
    request, tmp_path, secured, authority, security, password, trusts, kind, says
):
    mail = MailInvitations(
        "127.0.0.1",
        port=secured.port,
        sender="team@example.com",
        security=security,
        user="team",
        password=password,
        tls=_trusting(authority if trusts else None),
    )
    with open_backend("embedded", tmp_path, request, mail=mail) as calendar:
        for refused in (calendar.create(BOOKING), calendar.check()):
            with pytest.raises(ToolError, match=says) as caught:
                await refused
            assert (caught.value.type, password in caught.value.message) == (kind, False)
        assert secured.mails == []
        assert await calendar.find(BOOKING.uid) is None

"""A service that sends a byte now and then, each within the time-out for one read: its requests end, and so do their threads."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import contextmanager, suppress

import pytest
from google.oauth2.credentials import Credentials
from tests.services.calendar.backends import open_backend
from tests.services.calendar.test_calendar_conformance import draft
from tests.services.calendar.zoom_server import ACCOUNT

from handrail.contract.errors import ErrorType, ToolError
from handrail_reference.services.calendar.caldav_client import CalDavClient
from handrail_reference.services.calendar.google_client import GoogleClient, access_token
from handrail_reference.services.calendar.port import Caller
from handrail_reference.services.calendar.remote import Maybe
from handrail_reference.services.invitations import MailInvitations
from handrail_reference.services.zoom import ZoomMeetings

SECONDS = 0.2
REQUESTS = 3


class Dripping:
    """Says each line of the conversation and hears an answer, then says the beginning of a line that never ends.

    `then` is the conversation of those who come later, which ends well."""

    def __init__(self, beginning: bytes, *conversation: bytes, then: Sequence[bytes] = ()) -> None:
        self._beginning, self._conversation, self._then = beginning, conversation, then
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.open = 0
        self._served = False
        self.changed = threading.Condition()
        self.over = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._count(1)
        with connection, suppress(OSError):
            conversation, drips = self._conversation, True
            if self._served and self._then:
                conversation, drips = self._then, False
            self._served = True
            for line in conversation:
                connection.sendall(line)
                connection.recv(65_536)
            connection.sendall(self._beginning if drips else b"221 Bye\r\n")
            while drips and not self.over.wait(0.05):
                connection.sendall(b" ")
        self._count(-1)

    def _count(self, number: int) -> None:
        with self.changed:
            self.open += number
            self.changed.notify_all()

    def wait_until_read(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.open > 0, 20)

    def wait_until_nobody_reads(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: not self.open, 20)

    def close(self) -> None:
        """A thread that still accepts would do so on whichever socket gets the number of the closed one."""
        self.over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join(20)
        assert not self._accepting.is_alive()
        self._listening.close()


@contextmanager
def dripping_at(beginning, *conversation, then=()):
    server = Dripping(beginning, *conversation, then=then)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(params=["headers", "body"])
def dripping(request):
    beginning = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"
    with dripping_at(beginning + (b"X-Slow: " if request.param == "headers" else b"\r\n"), b"") as server:
        yield server


def caldav(url, seconds=SECONDS):
    client = CalDavClient(url, user="ana", password="secret", timeout=seconds)
    return client, lambda: client.send("GET", url)


def google(url):
    async def source(caller):
        return access_token("token")

    client = GoogleClient(source, endpoint=url, timeout=SECONDS)
    return client, lambda: client.send(client.events.get(calendarId="a", eventId="b"), Caller(user="ana"))


def google_sign_in(url):
    async def source(caller):
        return Credentials(None, refresh_token="r", token_uri=f"{url}token", client_id="c", client_secret="s")

    client = GoogleClient(source, timeout=SECONDS)
    return client, lambda: client.send(client.events.get(calendarId="a", eventId="b"), Caller(user="ana"))


def zoom(url):
    client = ZoomMeetings(**{**ACCOUNT, "oauth_url": url, "api_url": url}, timeout=SECONDS)
    return client, lambda: client.find("c0ffee")


@pytest.mark.parametrize("service", [caldav, google, google_sign_in, zoom])
async def test_a_dripping_service_occupies_no_thread_for_longer_than_its_time(service, dripping):
    client, ask = service(dripping.url)
    outcomes = await asyncio.gather(*(ask() for _ in range(REQUESTS)), return_exceptions=True)
    assert {type(one) for one in outcomes} <= {Maybe, ToolError}
    kinds = {(one.why if isinstance(one, Maybe) else one).type for one in outcomes}
    assert kinds <= {ErrorType.TRANSIENT, ErrorType.RATE_LIMIT}
    assert await asyncio.to_thread(dripping.wait_until_nobody_reads)
    await client.close()


@pytest.mark.parametrize("given_up", ["cancelled", "closed"])
@pytest.mark.parametrize("dripping", ["body"], indirect=True)
async def test_a_request_that_nobody_waits_for_any_more_ends_all_the_same(dripping, given_up):
    """A process joins its threads before it ends."""
    client, ask = caldav(dripping.url, SECONDS if given_up == "cancelled" else 60.0)
    asked = asyncio.create_task(ask())
    assert await asyncio.to_thread(dripping.wait_until_read)
    if given_up == "cancelled":
        asked.cancel()
        assert await asyncio.to_thread(dripping.wait_until_nobody_reads)
    await client.close()
    assert await asyncio.to_thread(dripping.wait_until_nobody_reads)
    await asyncio.gather(asked, return_exceptions=True)


TAKEN = (b"220 Hello\r\n", b"250 Hello\r\n", b"250 From\r\n", b"250 To\r\n", b"354 Go on\r\n", b"250 Taken\r\n")
"""A message is greeted, addressed and taken; what comes after the fifth is said when the server has it."""


def mail_to(server, seconds):
    return MailInvitations("127.0.0.1", port=server.port, sender="team@example.com", security="none", timeout=seconds)


async def test_a_mail_server_that_drips_before_it_has_the_message_leaves_no_event(request, tmp_path):
    with (
        dripping_at(b"220 ") as server,
        open_backend("embedded", tmp_path, request, mail=mail_to(server, SECONDS)) as calendar,
    ):
        with pytest.raises(ToolError) as caught:
            await calendar.create(draft(attendees=("ana@example.com",)))
        assert caught.value.type in (ErrorType.TRANSIENT, ErrorType.RATE_LIMIT)
        assert not caught.value.partial_side_effects
        assert await calendar.find("c0ffee01") is None
        assert await asyncio.to_thread(server.wait_until_nobody_reads)


async def test_a_mail_server_that_drips_when_it_has_the_message_is_sent_it_again(request, tmp_path):
    with (
        dripping_at(b"250 ", *TAKEN[:5], then=TAKEN) as server,
        open_backend("embedded", tmp_path, request, mail=mail_to(server, 1.0)) as calendar,
    ):
        made = await calendar.create(draft(attendees=("ana@example.com",)))
        assert (made.invited, made.warnings) == (("ana@example.com",), ())
        assert await asyncio.to_thread(server.wait_until_nobody_reads)

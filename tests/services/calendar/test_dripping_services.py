"""A service that sends a byte now and then, each within the time-out for one read: its requests end, and so do their threads."""

import asyncio
import socket
import threading
from contextlib import suppress

import pytest
from tests.services.calendar.zoom_server import ACCOUNT

from handrail.contract.errors import ErrorType, ToolError
from handrail_reference.services.calendar.caldav_client import CalDavClient
from handrail_reference.services.calendar.google_client import GoogleClient, access_token
from handrail_reference.services.calendar.port import Caller
from handrail_reference.services.calendar.remote import Maybe
from handrail_reference.services.zoom import ZoomMeetings

SECONDS = 0.2
REQUESTS = 3


class Dripping:
    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self.open = 0
        self.changed = threading.Condition()
        self.over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._count(1)
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(self._beginning)
            while not self.over.wait(0.05):
                connection.sendall(b" ")
        self._count(-1)

    def _count(self, number: int) -> None:
        with self.changed:
            self.open += number
            self.changed.notify_all()

    def wait_until_nobody_reads(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: not self.open, 20)

    def close(self) -> None:
        self.over.set()
        self._listening.close()


@pytest.fixture(params=["headers", "body"])
def dripping(request):
    beginning = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"
    server = Dripping(beginning + (b"X-Slow: " if request.param == "headers" else b"\r\n"))
    yield server
    server.close()


def caldav(url):
    client = CalDavClient(url, user="ana", password="secret", timeout=SECONDS)
    return client, lambda: client.send("GET", url)


def google(url):
    async def source(caller):
        return access_token("token")

    client = GoogleClient(source, endpoint=url, timeout=SECONDS)
    return client, lambda: client.send(client.events.get(calendarId="a", eventId="b"), Caller(user="ana"))


def zoom(url):
    client = ZoomMeetings(**{**ACCOUNT, "oauth_url": url, "api_url": url}, timeout=SECONDS)
    return client, lambda: client.find("c0ffee")


@pytest.mark.parametrize("service", [caldav, google, zoom])
async def test_a_dripping_service_occupies_no_thread_for_longer_than_its_time(service, dripping):
    client, ask = service(dripping.url)
    outcomes = await asyncio.gather(*(ask() for _ in range(REQUESTS)), return_exceptions=True)
    assert {type(one) for one in outcomes} <= {Maybe, ToolError}
    kinds = {(one.why if isinstance(one, Maybe) else one).type for one in outcomes}
    assert kinds <= {ErrorType.TRANSIENT, ErrorType.RATE_LIMIT}
    assert await asyncio.to_thread(dripping.wait_until_nobody_reads)
    await client.close()

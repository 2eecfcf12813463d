"""TLS to a real server, with a certificate of the test's own authority: checked where the URL asks for it, and said where not.

The server that the tests bring is built without TLS, so what stands before it speaks TLS, as with many hosted databases.
"""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from tests.postgres_server import PostgresServer

from handrail.contract.store import StoreUnavailable
from handrail.stores.maintenance.server_checks import server_findings
from handrail.stores.postgres import PostgresStore

HOST = "db.example.com"
"""On this machine by `hostaddr`; what is checked and warned of goes by the name."""
_ASKS_FOR_TLS = bytes.fromhex("0000000804d2162f")


class TlsFront:
    """A port of this machine that speaks TLS with whoever asks for it, and passes on to the server's socket."""

    def __init__(self, socket: Path, certificate: ssl.SSLContext | None) -> None:
        self._socket = socket
        self._certificate = certificate
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(20)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            first = await client.readexactly(8)
            if first == _ASKS_FOR_TLS:
                answers.write(b"N" if self._certificate is None else b"S")
                if self._certificate is not None:
                    await answers.start_tls(self._certificate)
                first = b""
            server, asks = await asyncio.open_unix_connection(str(self._socket))
            try:
                asks.write(first)
                await asyncio.gather(_pass_on(client, asks), _pass_on(server, answers))
            finally:
                asks.close()
        except (OSError, EOFError):
            pass  # who does not trust the certificate hangs up
        finally:
            answers.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()
    target.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server is reached, and the certificates of its authority and of another."""

    port: int
    database: str
    right: Path
    wrong: Path

    def url(self, host: str = HOST, **parameters: str) -> str:
        given = "".join(f"&{name}={quote(value, safe='')}" for name, value in parameters.items())
        where = f"{host}:{self.port}/{self.database}"
        return f"postgresql://postgres@{where}?hostaddr=127.0.0.1&gssencmode=disable{given}"


@pytest.fixture(scope="module")
def place(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = trustme.CA(), trustme.CA()
    certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(certificate)
    authority.cert_pem.write_to_path(str(folder / "right.pem"))
    stranger.cert_pem.write_to_path(str(folder / "wrong.pem"))
    database = postgres.new_database().partition("@/")[2].partition("?")[0]
    front = TlsFront(postgres.folder / ".s.PGSQL.5432", certificate)
    yield Place(front.port, database, folder / "right.pem", folder / "wrong.pem")
    front.close()


def about_the_way(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is warned of, but for the disk, for which the server of the tests does not wait."""
    return [message for message in caplog.messages if "has fsync = off" not in message]


def opened(url: str) -> None:
    async def open_and_close() -> None:
        store = PostgresStore(url, limit_seconds=20)
        await store.open()
        await store.close()

    asyncio.run(open_and_close())


def transport(url: str) -> tuple[bool, str]:
    """What `handrail doctor` says of the way to the server, or why there is none."""
    found = {finding.name: (finding.ok, finding.message) for finding in server_findings(url)}
    return found.get("transport", found["store"])


def test_a_certificate_of_the_right_authority_and_machine_is_accepted(place, caplog):
    url = place.url(sslmode="verify-full", sslrootcert=str(place.right))
    opened(url)
    assert about_the_way(caplog) == []
    ok, message = transport(url)
    assert (ok, message) == (True, "encrypted by TLS, and the certificate was checked")


@pytest.mark.parametrize(
    ("host", "authority", "words"),
    [
        (HOST, "wrong", "shows a certificate that the authority in sslrootcert did not sign"),
        ("other.example.com", "right", "shows a certificate of another machine than the URL names"),
        (HOST, "nowhere", "cannot be checked: name the authority's certificate by sslrootcert in the URL"),
    ],
)
def test_a_server_that_does_not_prove_who_it_is_is_refused_in_one_sentence(place, host, authority, words):
    files = {"right": str(place.right), "wrong": str(place.wrong), "nowhere": "/nowhere/ca.pem"}
    url = place.url(host, sslmode="verify-full", sslrootcert=files[authority])
    with pytest.raises(StoreUnavailable) as raised:
        opened(url)
    assert str(raised.value) == f'The store "{place.database}" {words}.'
    assert transport(url) == (False, f'The store "{place.database}" {words}.')


@pytest.mark.parametrize(
    ("mode", "warning", "told"),
    [
        ("disable", "is reached without TLS", "not encrypted; sslmode=verify-full in the URL asks for TLS"),
        ("require", "nobody checks its certificate", "nobody checked the certificate; use sslmode=verify-full"),
    ],
)
def test_a_remote_server_without_a_checked_certificate_is_warned_of(place, caplog, mode, warning, told):
    url = place.url(sslmode=mode)
    opened(url)
    assert [warning in message for message in about_the_way(caplog)] == [True]
    assert told in transport(url)[1]
    caplog.clear()
    opened(place.url("localhost", sslmode=mode))
    assert about_the_way(caplog) == [], "nobody sits between two processes of one machine"


def test_a_server_without_tls_is_refused_where_the_url_asks_for_it(postgres, place):
    front = TlsFront(postgres.folder / ".s.PGSQL.5432", None)
    plain = Place(front.port, place.database, place.right, place.wrong)
    with pytest.raises(StoreUnavailable, match="is on a server without TLS, which the URL asks for"):
        opened(plain.url(sslmode="verify-full", sslrootcert=str(place.right)))
    front.close()

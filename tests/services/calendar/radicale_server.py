"""A real CalDAV server for tests: Radicale, on a free port of this machine, with a folder of its own."""

import base64
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

USER, PASSWORD = "ana", "a password"


class RadicaleServer:
    """Its address, and calendars on it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"
        self._numbers = count(1)

    def calendars(self, *names: str) -> dict[str, str]:
        """New, empty calendars: their addresses by name."""
        number = next(self._numbers)
        made = {name: f"/{USER}/{name}{number}/" for name in names}
        for address in made.values():
            assert self.request("MKCALENDAR", address)[0] == 201
        return made

    def request(
        self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """What another program does with the calendar."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        try:
            connection.request(method, path, body.encode(), {"Authorization": f"Basic {login}", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def radicale(folder: Path) -> Iterator[RadicaleServer]:
    """Started, and stopped at the end."""
    users = folder / "users"
    users.write_text(f"{USER}:{PASSWORD}\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "server-hosts": f"127.0.0.1:{port}",
        "auth-type": "htpasswd",
        "auth-htpasswd-filename": str(users),
        "auth-htpasswd-encryption": "plain",
        "auth-delay": "0",
        "storage-filesystem-folder": str(folder / "collections"),
        "logging-level": "error",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([sys.executable, "-m", "radicale", "--config", "", *words], cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "Radicale ended"
                assert time.monotonic() < deadline, "Radicale did not start"
                time.sleep(0.02)
        yield RadicaleServer(port)
    finally:
        process.kill()
        process.wait()

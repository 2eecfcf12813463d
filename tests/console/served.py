"""A real server in a process and a folder of its own, as `handrail serve` starts it: the demo model, the reference tools and
their embedded services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.loopback_proxy import RoundRobinProxy
from tests.server.keys import in_store

from handrail.server.stored_keys import add_key


class Reached:
    """A server, or several behind one address, as a client reaches it."""

    url: str
    key: str
    console: str
    folder: Path
    store: Path | str
    """The file or the URL."""

    def kill(self) -> None:
        raise NotImplementedError

    def start_again(self) -> None:
        raise NotImplementedError

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """One request of the API, beside the console."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", "X-Session-Token": token}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def add_key(self, name: str, *, user: str) -> str:
        """The secret of a new user's key that the server has taken in; it looks at its store twice a second."""
        _, secret = in_store(self.store, lambda keys: add_key(keys, name=name, role="user", user=user))
        request = urllib.request.Request(f"{self.url}/api/sessions", headers={"Authorization": f"Bearer {secret}"})
        for _ in range(200):
            try:
                with urllib.request.urlopen(request, timeout=20):
                    return secret
            except urllib.error.HTTPError as error:
                if error.code != 401:
                    raise
                time.sleep(0.1)
        raise AssertionError(f'The server has not taken the key "{name}" in.')

    def events_on(self, start: str, end: str) -> list[dict[str, Any]]:
        """What the calendar has in a range, read through a session of its own."""
        session = self.ask("POST", "/api/sessions", {})
        args = {"start_date": start, "end_date": end, "include_details": True}
        body = {"args": args, "sessionId": session["sessionId"]}
        envelope = self.ask("POST", "/api/tools/calendar_get_availability/try", body, session["token"])
        assert envelope["ok"], envelope
        events: list[dict[str, Any]] = envelope["data"]["existing_events"]
        return events


class Served(Reached):
    """`console` is the address that the server printed at its first start, with the key in the fragment. `flags` are added
    to the command."""

    def __init__(self, folder: Path, *flags: str, **environment: str) -> None:
        self.folder = folder
        self._flags = flags
        self._environment = environment
        self.store = environment.get("HANDRAIL_STORE_URL") or folder / "handrail.db"
        facts = self._start(0)
        self.url = facts["url"]
        self.console = facts["console"]
        self.key = facts["key"]

    def _start(self, port: int) -> dict[str, Any]:
        # What the machine is set to must not change what is tested.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANDRAIL_")}
        environment |= self._environment
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "handrail", "serve", "--port", str(port), "--json", *self._flags],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._wait()
            raise AssertionError((self.folder / "server.log").read_text(encoding="utf-8"))
        facts: dict[str, Any] = json.loads(line)
        return facts

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._wait()

    def start_again(self) -> None:
        self._start(int(self.url.rpartition(":")[2]))

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._wait()

    def _wait(self) -> None:
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class TwoServed(Reached):
    """Two servers of one folder and one database, and what stands before them: it gives each request to the next."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.servers = [Served(folder, HANDRAIL_STORE_URL=store) for _ in range(2)]
        self.proxy = RoundRobinProxy([int(one.url.rpartition(":")[2]) for one in self.servers])
        self.url = self.proxy.url
        self.key = self.servers[0].key
        self.console = f"{self.url}/#key={self.key}"
        self.restarts = 0
        self._next = cycle(range(2))

    def restart(self) -> None:
        """The one whose turn it is."""
        server = self.servers[next(self._next)]
        server.close()
        server.start_again()
        self.restarts += 1

    @contextmanager
    def restarting(self) -> Iterator[None]:
        """One is restarted while something else continues."""
        thread = threading.Thread(target=self.restart)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def start_again(self) -> None:
        for server in self.servers:
            server.start_again()

    def close(self) -> None:
        self.proxy.close()
        for server in self.servers:
            server.close()

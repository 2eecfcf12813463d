"""A host that books on a real CalDAV server, with Zoom and mail: its tools, its servers, and the person who approves."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from tests.agents.voice.kit import obedient, voice
from tests.services.calendar.bad_proxy import bad_proxy
from tests.services.calendar.google_server import google_server
from tests.services.calendar.kit import NOW
from tests.services.calendar.mail_server import mail_server
from tests.services.calendar.radicale_server import PASSWORD, USER
from tests.services.calendar.zoom_server import ACCOUNT, zoom_server

import handrail_reference
from handrail import Registry, Runtime
from handrail.cli import main
from handrail.contract.errors import ErrorType
from handrail.registry.host_policy import HostPolicy, ToolPolicy
from handrail_reference.services.calendar.opening import open_calendar

TOOLS = tuple(f"calendar_{name}" for name in ("get_availability", "create_event", "update_event", "cancel_event"))
LOOK, CREATE, UPDATE, CANCEL = TOOLS
REFERENCE = Path(handrail_reference.__file__).parent / "tools"
WORKER = Path(__file__).parent / "booking_worker.py"


def zoom_settings(url):
    return {
        "meetings": "zoom",
        "zoom_oauth_url": url,
        "zoom_api_url": url,
        **{f"zoom_{name}": value for name, value in ACCOUNT.items()},
    }


def mail_settings(mail):
    return {
        "mail_host": "127.0.0.1",
        "mail_port": mail.port,
        "mail_security": "none",
        "mail_from": "team@example.com",
    }


def zoom_step(proxy):
    """What the last request to Zoom was for."""
    method, path, _ = proxy.requests[-1]
    return f"zoom {method} {path.partition('?')[0]}"


def mailed(mail):
    """The invitations that their readers see: one of each UID and SEQUENCE, however often it was sent."""
    return sorted({(str(one["UID"]), int(one["SEQUENCE"])) for _, one, _ in mail.events()})


class GoogleWorld:
    """Google, who invites itself; meetings are Zoom's or its own."""

    def __init__(self, google, zoom, google_proxy, zoom_proxy, folder, meetings):
        self.google, self.zoom, self.proxies = google, zoom, (google_proxy, zoom_proxy)
        key = {
            "type": "authorized_user", "refresh_token": "1//a-refresh-token", "client_id": "c", "client_secret": "s",
            "token_uri": f"{google.url}token",
        }  # fmt: skip
        (folder / "google.json").write_text(json.dumps(key))
        self.settings = {
            "backend": "google",
            "google_credentials": str(folder / "google.json"),
            "google_url": google_proxy.url,
            **zoom_settings(zoom_proxy.url),
            "meetings": meetings,
        }

    def on_step(self, step):
        google, zoom = self.proxies
        google.on_step = lambda: step(f"calendar {google.requests[-1][0]}")
        zoom.on_step = lambda: step(zoom_step(zoom))

    def _events(self):
        return [one for events in self.google.calendars.values() for one in events.values()]

    def count(self):
        return sum(one["status"] != "cancelled" for one in self._events())

    def meeting_count(self):
        return len(self.zoom.meetings) + sum("hangoutLink" in one for one in self._events())

    def invitations(self):
        return [(event_id, 0) for kind, event_id, _ in self.google.mails if kind == "invitation"]


@contextmanager
def open_google_world(folder, meetings="zoom"):
    with (
        zoom_server() as zoom,
        google_server() as google,
        bad_proxy(google.port) as google_proxy,
        bad_proxy(zoom.port) as zoom_proxy,
    ):
        yield GoogleWorld(google, zoom, google_proxy, zoom_proxy, folder, meetings)
        assert [*google.violations, *zoom.violations] == []


class World:
    """The servers, and the settings of a host that uses them."""

    def __init__(self, radicale, zoom, mail, dav_proxy, zoom_proxy):
        self.radicale, self.zoom, self.mail = radicale, zoom, mail
        self.dav_proxy, self.zoom_proxy = dav_proxy, zoom_proxy
        self.settings = {
            "backend": "caldav",
            "caldav_url": dav_proxy.url,
            "caldav_user": USER,
            "caldav_password": PASSWORD,
            "calendars": radicale.calendars("primary", "team"),
            "time_zone": "Europe/Zagreb",
            **zoom_settings(zoom_proxy.url),
            **mail_settings(mail),
        }

    def on_step(self, step):
        self.dav_proxy.on_step = lambda: step(f"calendar {self.dav_proxy.requests[-1][0]}")
        self.zoom_proxy.on_step = lambda: step(zoom_step(self.zoom_proxy))
        self.mail.on_step = lambda: step("mail")

    def stored(self):
        """The texts of all events on the server, as another program reads them."""
        spaces = 'xmlns:C="urn:ietf:params:xml:ns:caldav" xmlns:D="DAV:"'
        query = f"<C:calendar-query {spaces}><D:prop><C:calendar-data/></D:prop></C:calendar-query>"
        return [
            self.radicale.request("REPORT", address, query, {"Depth": "1", "Content-Type": "application/xml"})[1]
            for address in self.settings["calendars"].values()
        ]

    def count(self):
        return sum(text.count("BEGIN:VEVENT") for text in self.stored())

    def meeting_count(self):
        return len(self.zoom.meetings)

    def invitations(self):
        return mailed(self.mail)


class EmbeddedWorld:
    """The calendar in a file, with Zoom and mail."""

    def __init__(self, folder, zoom, mail, zoom_proxy):
        self.file, self.zoom, self.mail, self.zoom_proxy = folder / "calendar.db", zoom, mail, zoom_proxy
        self.settings = {"names": ["team"], **zoom_settings(zoom_proxy.url), **mail_settings(mail)}

    def on_step(self, step):
        self.zoom_proxy.on_step = lambda: step(zoom_step(self.zoom_proxy))
        self.mail.on_step = lambda: step("mail")

    def count(self):
        with closing(sqlite3.connect(self.file)) as db:
            return db.execute("SELECT count(*) FROM item WHERE status <> 'cancelled'").fetchone()[0]

    def meeting_count(self):
        return len(self.zoom.meetings)

    def invitations(self):
        return mailed(self.mail)


@contextmanager
def open_embedded_world(folder):
    with zoom_server() as zoom, mail_server() as mail, bad_proxy(zoom.port) as zooming:
        yield EmbeddedWorld(folder, zoom, mail, zooming)
        assert zoom.violations == []


@contextmanager
def open_world(radicale):
    with zoom_server() as zoom, mail_server() as mail, bad_proxy(radicale.port) as dav, bad_proxy(zoom.port) as zooming:
        yield World(radicale, zoom, mail, dav, zooming)
        assert zoom.violations == []


def built(folder):
    """An artifact with the calendar's tools and no others."""
    artifact = folder / "tool_registry.json"
    for name in TOOLS:
        directory = name.replace("_", "-")
        shutil.copytree(
            REFERENCE / directory, folder / "tools" / directory, ignore=shutil.ignore_patterns("__pycache__")
        )
    assert main(["build", "--strict", str(folder / "tools"), "-o", str(artifact)]) == 0
    return artifact


class Host:
    """A session at a runtime, and the person who answers its requests."""

    def __init__(self, runtime, calendar, session):
        self.runtime, self.calendar, self.session = runtime, calendar, session
        self.calls = 0

    async def held(self, tool, args):
        """The confirmation request that the person is shown."""
        self.calls += 1
        await self.session.begin_turn(f"turn_{self.calls}")
        response = await self.session.call(tool, args, call_id=f"call_{self.calls}")
        assert response.error.type is ErrorType.CONFIRMATION_REQUIRED, response.to_dict()
        async for event in self.session.events():
            if event.type == "confirmation":
                return event.data
        raise AssertionError("nobody was asked")

    async def approved(self, tool, args):
        request = await self.held(tool, args)
        response = await self.runtime.approve(request["id"], token=request["token"])
        assert response.ok, response.to_dict()
        return request["preview"], response.data


def host_parts(world, artifact, folder, mode, **limits):
    """The tools as this host allows them, and its calendar."""
    allowed = {"modes": ["text", "voice"], "reason": "The host lets people book by voice."}
    limits = {**(allowed if mode == "voice" else {}), **limits}
    policies = {name: ToolPolicy.from_dict(name, {**limits, "reason": allowed["reason"]}) for name in TOOLS if limits}
    registry = Registry.load(artifact, host=HostPolicy(tools=policies))
    registry.lock()
    calendar = open_calendar(folder, **world.settings)
    calendar._clock = NOW.timestamp
    return registry, calendar


@asynccontextmanager
async def spoken_host(world, artifact, folder):
    """Ana at a voice agent, and the calendar."""
    registry, calendar = host_parts(world, artifact, folder, "voice")
    runtime = Runtime(registry, store="memory:", capabilities={"calendar": calendar})
    try:
        async with voice("openai-realtime", [], runtime=runtime) as case:
            case.server.on_note = obedient
            yield case, calendar
    finally:
        await calendar.close()


@asynccontextmanager
async def open_host(world, artifact, folder, mode="text", settling_seconds=0.0, **limits):
    """`settling_seconds` of the calendar; what killed processes have asked for is over."""
    registry, calendar = host_parts(world, artifact, folder, mode, **limits)
    calendar.settling_seconds = settling_seconds
    store = f"sqlite:////{(folder / 'handrail.db').as_posix().lstrip('/')}"
    try:
        options = {"policy": {"lease_ms": 20}, "capabilities": {"calendar": calendar}}
        async with Runtime(registry, store=store, **options) as runtime:
            opened = await runtime.open_session(user="ana", mode=mode)
            await opened.begin_turn("m1")
            yield Host(runtime, calendar, opened)
    finally:
        await calendar.close()


def approve_and_die(world, artifact, folder, request, dies):
    """Approve in a process of its own, which is killed once `dies(steps)`: what the servers have passed so far, each when it came
    and when it was carried out. Whether it was killed, and what it said if it was not."""
    passed, lock, killed = [], threading.Lock(), False
    process = subprocess.Popen(
        [sys.executable, str(WORKER), str(artifact), str(folder), request["id"], request["token"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def step(what):
        nonlocal killed
        with lock:
            passed.append(what)
            if not killed and dies(passed) and process.poll() is None:
                killed = True
                os.kill(process.pid, signal.SIGKILL)
                process.wait()

    world.on_step(step)
    try:
        out, _ = process.communicate(json.dumps(world.settings), timeout=120)
    finally:
        world.on_step(lambda what: None)
    assert process.returncode == (-signal.SIGKILL if killed else 0)
    return killed, out

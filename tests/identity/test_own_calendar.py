"""Each person's own Google calendar, from the consent page to the event: real connections, the pipeline, and Google's client
against a server that takes the tokens of a real authorization server and no others."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.identity.authorization_server import AuthorizationServer
from tests.identity.kit import connected, connections
from tests.runtime.kit import audited, kind
from tests.services.calendar.approved_calls import CREATE, LOOK, built
from tests.services.calendar.google_server import SCOPE, GoogleRefusal, GoogleServer, google_server
from tests.services.calendar.kit import NOW

from handrail import Registry, Runtime, Session
from handrail.contract.envelope import ToolResponse
from handrail.contract.store import LedgerState
from handrail.events import ConnectionWanted
from handrail.identity.connections import Connections
from handrail.runtime.reconcile import reconcile
from handrail.stores import MemoryStore
from handrail_reference.services.calendar.opening import open_calendar

ACCOUNTS = {"ana": "ana@example.com", "ben": "ben@example.com"}
WINDOW = {"start_date": "2026-01-13T08:00:00Z", "end_date": "2026-01-13T18:00:00Z", "calendars": ["primary"]}
LINK = "/#connections/example"


class PersonalGoogle(GoogleServer):
    """Takes the tokens that the authorization server has issued and not revoked. `primary` is the token's own calendar."""

    def __init__(self, authority: AuthorizationServer) -> None:
        super().__init__()
        self.calendars = {account: {} for account in ACCOUNTS.values()}
        self.tokens = {}
        self.used: list[str] = []
        """The account of each request that was let in."""
        self.takes: set[str] | None = {SCOPE}
        """The scopes of every token; None where none is taken."""
        self.fails_afterwards = False
        """Events are made, and neither that nor what there is of them is told."""
        self._authority = authority
        self._local = threading.local()

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], Any]:
        answered = super().answer(method, target, headers, body)
        if self.fails_afterwards and ("/events/" in target or (method, "/events" in target) == ("POST", True)):
            raise GoogleRefusal(503, "backendError", "Backend Error")
        return answered

    @property
    def primary(self) -> str:
        return str(self._local.account)

    def _check_token(self, described: Any, headers: Any) -> None:
        access = (headers.get("Authorization") or "").removeprefix("Bearer ")
        found = self._authority.token(access)
        if found is not None and found.access == access and not found.revoked and not found.is_expired():
            self.tokens[access] = self.takes or set()
        else:
            self.tokens.pop(access, None)
        if self.takes is None:
            self.tokens.clear()
        super()._check_token(described, headers)
        assert found is not None
        self._local.account = found.user
        self.used.append(found.user)

    def titles(self, user: str) -> list[str]:
        return [event["summary"] for event in self.calendars[ACCOUNTS[user]].values()]


class BookingHost:
    """A host where each person books in their own calendar."""

    def __init__(
        self, runtime: Runtime, made: Connections, authority: AuthorizationServer, google: PersonalGoogle
    ) -> None:
        self.runtime, self.connections, self.authority, self.google = runtime, made, authority, google
        self.calls = 0

    async def connect(self, user: str) -> None:
        self.authority.account = ACCOUNTS[user]
        await connected(self.connections, user)

    async def look(self, session: Session) -> ToolResponse:
        self.calls += 1
        await session.begin_turn(f"m{self.calls}")
        return await session.call(LOOK, WINDOW, call_id=f"c{self.calls}")

    async def book(self, session: Session, title: str) -> tuple[ToolResponse, list[Any]]:
        """How the approved booking ended, and what the session's channel brought before the person was asked."""
        self.calls += 1
        await session.begin_turn(f"m{self.calls}")
        times = {"start_time": "2026-01-13T09:00:00Z", "end_time": "2026-01-13T10:00:00Z"}
        booking = {"title": title, **times, "attendees": ["eva@example.com"], "include_zoom_link": False}
        held = await session.call(CREATE, booking, call_id=f"c{self.calls}")
        assert kind(held) == "CONFIRMATION_REQUIRED", held.to_dict()
        before: list[Any] = []
        async for event in session.events():
            if event.type == "confirmation":
                return await self.runtime.approve(event.data["id"], token=event.data["token"]), before
            before.append(event)
        raise AssertionError("Nobody was asked.")


@pytest.fixture
def authority() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


@asynccontextmanager
async def open_host(folder: Path, authority: AuthorizationServer) -> AsyncIterator[BookingHost]:
    registry = Registry.load(built(folder))
    registry.lock()
    store = MemoryStore()
    made = connections(authority, store)
    made.page = "/#connections/"
    with google_server(PersonalGoogle(authority)) as google:
        calendar = open_calendar(
            folder, backend="google", google_connection="example", google_url=google.url, meetings="none"
        )
        calendar._clock = NOW.timestamp
        calendar.settling_seconds = 0.0
        try:
            async with Runtime(registry, store=store, connections=made, capabilities={"calendar": calendar}) as runtime:
                yield BookingHost(runtime, made, authority, google)
        finally:
            await calendar.close()
    assert google.violations == []


def wanted(events: list[Any]) -> list[str]:
    return [event.link for event in events if isinstance(event, ConnectionWanted)]


async def first_wanted(session: Session) -> ConnectionWanted:
    async with asyncio.timeout(20):
        async for event in session.events():
            if isinstance(event, ConnectionWanted):
                return event
    raise AssertionError("No link came.")


async def test_each_person_books_with_their_own_token_and_nobody_without_one(
    tmp_path: Path, authority: AuthorizationServer
) -> None:
    async with open_host(tmp_path, authority) as host:
        ana = await host.runtime.open_session(user="ana")
        ben = await host.runtime.open_session(user="ben")
        google = host.google

        # Ana has connected, and books in her own calendar.
        await host.connect("ana")
        booked, before = await host.book(ana, "Ana's review")
        assert booked.ok, booked.to_dict()
        assert wanted(before) == []
        assert (google.titles("ana"), google.titles("ben")) == (["Ana's review"], [])
        assert set(google.used) == {ACCOUNTS["ana"]}

        # Ben has not: AUTH for the model, the link for him, and no request reaches Google.
        google.used.clear()
        refused = await host.look(ben)
        assert kind(refused) == "AUTH"
        assert LINK not in str(refused.to_dict())
        link = await first_wanted(ben)
        assert (link.link, link.tool_id, link.connection) == (LINK, LOOK, "example")
        refused, before = await host.book(ben, "Ben's review")
        assert kind(refused) == "AUTH"
        assert google.used == []
        assert google.titles("ben") == []

        # Ana's channel has brought nothing of it.
        booked, before = await host.book(ana, "Ana's second")
        assert booked.ok
        assert wanted(before) == []

        taken = await host.look(ana)
        assert [slot["start"][11:16] for slot in taken.data["available_slots"]] == ["08:00", "10:00"]

        # Ben connects; his calls carry his token and reach his calendar alone.
        await host.connect("ben")
        google.used.clear()
        seen = await host.look(ben)
        assert seen.ok, seen.to_dict()
        assert [slot["start"][11:16] for slot in seen.data["available_slots"]] == ["08:00"], (
            "Ana's bookings are not his"
        )
        booked, _ = await host.book(ben, "Ben's review")
        assert booked.ok, booked.to_dict()
        assert set(google.used) == {ACCOUNTS["ben"]}
        assert (google.titles("ana"), google.titles("ben")) == (["Ana's review", "Ana's second"], ["Ben's review"])

        # Ana ends her connection: her token is revoked, her calls are refused, Ben's continue.
        ended = await host.connections.disconnect("", "ana", "example")
        assert ended.existed
        assert await host.connections._store.all_of("", "ana") == []
        assert all(token.revoked for token in authority.tokens if token.user == ACCOUNTS["ana"])
        google.used.clear()
        assert kind(await host.look(ana)) == "AUTH"
        assert (await first_wanted(ana)).link == LINK
        assert google.used == []
        assert (await host.look(ben)).ok

        # No token is in what was written down.
        assert "canary" not in str(audited(host.runtime))


@pytest.mark.parametrize("takes", [None, {"https://www.googleapis.com/auth/calendar.other"}], ids=["none", "scope"])
async def test_a_connection_that_the_service_does_not_take_is_auth_and_the_person_gets_the_link(
    tmp_path: Path, authority: AuthorizationServer, takes: set[str] | None
) -> None:
    async with open_host(tmp_path, authority) as host:
        await host.connect("ana")
        ana = await host.runtime.open_session(user="ana")
        host.google.takes = takes
        refused = await host.look(ana)
        assert kind(refused) == "AUTH"
        assert LINK not in str(refused.to_dict())
        link = await first_wanted(ana)
        assert (link.link, link.tool_id, link.connection) == (LINK, LOOK, "example")
        host.google.takes = {SCOPE}
        assert (await host.look(ana)).ok


async def test_a_token_that_was_revoked_at_the_service_is_refused_and_the_person_gets_the_link(
    tmp_path: Path, authority: AuthorizationServer
) -> None:
    async with open_host(tmp_path, authority) as host:
        await host.connect("ana")
        ana = await host.runtime.open_session(user="ana")
        assert (await host.look(ana)).ok
        for token in authority.tokens:
            token.revoked = True
        assert kind(await host.look(ana)) == "AUTH"
        assert (await first_wanted(ana)).link == LINK


async def test_an_unknown_booking_is_settled_with_the_token_of_whoever_made_it(
    tmp_path: Path, authority: AuthorizationServer
) -> None:
    async with open_host(tmp_path, authority) as host:
        for user in ACCOUNTS:
            await host.connect(user)
        ana = await host.runtime.open_session(user="ana")
        host.google.fails_afterwards = True
        answer, _ = await host.book(ana, "Plans")
        assert answer.error is not None
        assert answer.error.partial_side_effects
        [row] = [one for one in await host.runtime.store.ledger_rows() if one.tool == CREATE]
        assert row.state is LedgerState.UNKNOWN
        host.google.fails_afterwards = False
        host.google.used.clear()
        assert (await reconcile(host.runtime, row)).state is LedgerState.SUCCEEDED
        assert set(host.google.used) == {ACCOUNTS["ana"]}
        assert (host.google.titles("ana"), host.google.titles("ben")) == (["Plans"], [])

"""Connections over HTTP: they are those of the session's user, and of nobody who has another key, session or tab."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.identity.authorization_server import AuthorizationServer
from tests.identity.kit import connected, connections, consent
from tests.runtime.kit import audited
from tests.server.kit import OPERATOR, OTHER, USER, ServerUnderTest, bearer, in_process

BROWSER = "a-secret-of-the-tab-0001"


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


@asynccontextmanager
async def hosting(folder: Path, authority: AuthorizationServer | None) -> AsyncIterator[ServerUnderTest]:
    async with in_process(folder) as made:
        if authority is not None:
            made.runtime.connections = connections(authority, made.runtime.store)
            authority.client.redirects.add("http://localhost/console/connected")
        yield made


async def test_a_connection_is_made_listed_and_ended_for_the_sessions_user(
    tmp_path: Path, server: AuthorizationServer
) -> None:
    async with hosting(tmp_path, server) as host:
        ana, bob = await host.open(USER), await host.open(OTHER)
        place = f"/api/sessions/{ana.id}/connections"
        begun = await host.client.post(f"{place}/example", json={"browser": BROWSER}, headers=ana.headers)
        assert begun.status_code == 201
        answer = {
            name: value for name, value in consent(begun.json()["url"]).items() if name in ("state", "code", "iss")
        }
        stolen = await host.client.post(
            f"/api/sessions/{bob.id}/connections", json={**answer, "browser": BROWSER}, headers=bob.headers
        )
        assert stolen.status_code == 403
        assert not server.tokens, "another user cannot bring it, and it is used up"
        begun = await host.client.post(f"{place}/example", json={"browser": BROWSER}, headers=ana.headers)
        answer = {
            name: value for name, value in consent(begun.json()["url"]).items() if name in ("state", "code", "iss")
        }
        done = await host.client.post(place, json={**answer, "browser": BROWSER}, headers=ana.headers)
        assert done.status_code == 200, done.text
        assert "canary" not in done.text
        listed = (await host.client.get(place, headers=ana.headers)).json()
        assert listed["user"] == "ana"
        assert listed["connections"][0]["connected"] is True
        theirs = (await host.client.get(f"/api/sessions/{bob.id}/connections", headers=bob.headers)).json()
        assert theirs["connections"][0]["connected"] is False
        foreign = await host.client.get(place, headers={**bearer(OTHER), "X-Session-Token": ana.token})
        assert foreign.status_code in (403, 404)
        ended = await host.client.delete(f"{place}/example", headers=ana.headers)
        assert ended.json() == {"disconnected": True, "unrevoked": ""}
        assert all(token.revoked for token in server.tokens)
        lines = audited(host.runtime, "connected", "disconnected")
        assert [(one["event"], one["sessionId"], one["connection"], one["ok"]) for one in lines] == [
            ("connected", bob.id, None, False),
            ("connected", ana.id, "example", True),
            ("disconnected", ana.id, "example", True),
        ]


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/exmple", {"browser": BROWSER}, 404, 'no connection \\"exmple\\"'),
        ("/example", {"browser": "short"}, 400, "at least 20 characters"),
        ("/example", {}, 400, "browser"),
        ("/example", {"browser": BROWSER, "user": "bob"}, 400, "has no field"),
        ("", {"browser": BROWSER, "state": "x", "code": "y"}, 403, "belongs to no connection"),
        ("", {"browser": BROWSER}, 403, "belongs to no connection"),
        ("", {"browser": BROWSER, "code": 7}, 400, "must be text"),
    ],
)
async def test_bad_requests_are_one_sentence_and_connect_nothing(
    tmp_path: Path, server: AuthorizationServer, path: str, body: dict[str, Any], status: int, sentence: str
) -> None:
    async with hosting(tmp_path, server) as host:
        ana = await host.open(USER)
        answer = await host.client.post(f"/api/sessions/{ana.id}/connections{path}", json=body, headers=ana.headers)
        assert answer.status_code == status
        assert sentence in answer.text
        assert not server.tokens


async def test_a_service_that_is_away_is_503(tmp_path: Path, server: AuthorizationServer) -> None:
    server.mishaps["/.well-known/oauth-authorization-server"] = "html"
    async with hosting(tmp_path, server) as host:
        ana = await host.open(USER)
        place = f"/api/sessions/{ana.id}/connections/example"
        answer = await host.client.post(place, json={"browser": BROWSER}, headers=ana.headers)
        assert answer.status_code == 503


async def test_a_host_without_connections_says_so(tmp_path: Path) -> None:
    async with hosting(tmp_path, None) as host:
        ana = await host.open(USER)
        place = f"/api/sessions/{ana.id}/connections"
        assert (await host.client.get(place, headers=ana.headers)).json() == {"connections": [], "user": "ana"}
        answer = await host.client.post(f"{place}/example", json={"browser": BROWSER}, headers=ana.headers)
        assert answer.status_code == 404


async def test_forgetting_a_user_revokes_their_connections(tmp_path: Path, server: AuthorizationServer) -> None:
    async with hosting(tmp_path, server) as host:
        await host.open(USER)
        made: Any = host.runtime.connections
        await connected(made, "ana")
        await connected(made, "bob")
        answer = await host.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert answer.json()["deleted"]["connections"] == 1
        assert [token.revoked for token in server.tokens] == [True, False]
        assert [one.connected for one in await made.states("", "bob")] == [True]

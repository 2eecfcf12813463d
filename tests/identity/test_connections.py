"""Connections against a real authorization server: made once, by whom they were begun, refreshed once, revoked."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from tests.identity.authorization_server import CLIENT, SECRET, AuthorizationServer
from tests.identity.kit import BACK, connected, connections, consent

from handrail.contract.credentials import AuthorizationRefused, AuthorizationUnavailable, ConnectionNeeded
from handrail.contract.errors import ErrorType, ToolError, UsageError
from handrail.contract.store import Store
from handrail.identity import oauth
from handrail.identity.config import connection_configs
from handrail.identity.connections import Connections
from handrail.identity.oauth import OAuthClient, challenge_of
from handrail.identity.vault import Vault, new_key
from handrail.stores import MemoryStore


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


@pytest.fixture
def store() -> Iterator[Store]:
    made = MemoryStore()
    asyncio.run(made.open())
    yield made
    asyncio.run(made.close())


@asynccontextmanager
async def answer_on_its_way(server: AuthorizationServer, asked: Awaitable[object]) -> AsyncIterator[asyncio.Future]:
    """The service has given tokens, or refused; the answer comes when the block is over."""
    server.mishaps["/token"] = "held"
    asking = asyncio.ensure_future(asked)
    await asyncio.to_thread(server.answered.wait, 10)
    yield asking
    server.released.set()


def opens(server: AuthorizationServer, token: str) -> str | None:
    """Whose resource a token opens."""
    answer = httpx2.get(f"{server.issuer}/resource", headers={"Authorization": f"Bearer {token}"})
    return answer.json()["account"] if answer.status_code == 200 else None


async def test_a_connection_is_made_and_its_token_opens_the_resource(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    await connected(made, "ana")
    token = await made.token("", "ana", "example")
    assert opens(server, token.value) == server.account
    (state,) = await made.states("", "ana")
    assert state.connected
    assert set(state.scopes) == {"calendar", "calendar.write"}
    assert token.value not in repr(token) + str(token) + repr(await store.credentials.get("", "ana", "example"))


async def test_each_person_has_their_own_and_nobody_anothers(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    server.account = "ana@calendar.example"
    await connected(made, "ana")
    server.account = "ben@calendar.example"
    await connected(made, "ben")
    assert opens(server, (await made.token("", "ana", "example")).value) == "ana@calendar.example"
    assert opens(server, (await made.token("", "ben", "example")).value) == "ben@calendar.example"
    for tenant, user in (("other", "ana"), ("", "eve"), ("", "Ana")):
        with pytest.raises(ConnectionNeeded):
            await made.token(tenant, user, "example")


async def test_a_row_that_was_moved_to_another_user_cannot_be_opened(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    await connected(made, "ana")
    stored = await store.credentials.get("", "ana", "example")
    assert stored is not None
    await store.credentials.put(replace(stored, user="eve"))
    with pytest.raises(ConnectionNeeded, match="cannot be read"):
        await made.token("", "eve", "example")


async def test_a_wrong_state_a_replayed_answer_and_a_stolen_code_are_refused(
    server: AuthorizationServer, store: Store
) -> None:
    made = connections(server, store)
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    answer = consent(begun.url)
    with pytest.raises(AuthorizationRefused, match="no connection that was begun"):
        await made.complete({**answer, "state": "wrong"}, redirect_uri=BACK, browser="b")
    # A thief has the code: with an authorization of their own it comes without its verifier.
    theirs = await made.begin("", "eve", "example", redirect_uri=BACK, browser="e")
    with pytest.raises(AuthorizationRefused, match="invalid_grant"):
        await made.complete({**answer, "state": theirs.state}, redirect_uri=BACK, browser="e")
    await made.complete(answer, redirect_uri=BACK, browser="b")
    with pytest.raises(AuthorizationRefused, match="was used before"):
        await made.complete(answer, redirect_uri=BACK, browser="b")
    with pytest.raises(ConnectionNeeded):
        await made.token("", "eve", "example")


async def test_a_code_that_is_used_twice_at_the_server_is_refused_there(
    server: AuthorizationServer, store: Store
) -> None:
    made = connections(server, store)
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    answer = consent(begun.url)
    client = made._clients["example"]
    with pytest.raises(AuthorizationRefused, match="invalid_grant"):
        await client.exchange(code=answer["code"], verifier="x" * 60, redirect_uri=BACK)
    await made.complete(answer, redirect_uri=BACK, browser="b")
    sent = [form for path, form in server.forms if path == "/token"][-1]
    verifier = sent["code_verifier"]
    assert (sent["code"], challenge_of(verifier)) == (answer["code"], dict(parse_qsl(begun.url))["code_challenge"])
    with pytest.raises(AuthorizationRefused, match="invalid_grant"):
        await client.exchange(code=answer["code"], verifier=verifier, redirect_uri=BACK)
    assert len(server.tokens) == 1


async def test_googles_addresses_need_not_be_written() -> None:
    table = {"provider": "google", "client_id": "1234", "client_secret_env": "GOOGLE", "scopes": ["calendar"]}
    config = connection_configs({"google": table}, {"GOOGLE": "its secret"})["google"]
    client = OAuthClient(config, now=time.time)
    parts = urlsplit(await client.authorization_url(state="s", verifier="v" * 60, redirect_uri=BACK))
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "accounts.google.com", "/o/oauth2/v2/auth")
    asked = dict(parse_qsl(parts.query))
    assert {name: asked[name] for name in ("access_type", "prompt", "code_challenge_method", "scope")} == {
        "access_type": "offline", "prompt": "consent", "code_challenge_method": "S256", "scope": "calendar"
    }  # fmt: skip
    endpoints = await client.endpoints()
    assert (endpoints.token, endpoints.revocation, endpoints.device) == tuple(
        f"https://oauth2.googleapis.com/{path}" for path in ("token", "revoke", "device/code")
    )
    assert (config.label, config.client_auth, config.revokes) == ("Google", "post", "account")


async def test_a_connection_to_google_asks_for_a_refresh_token_and_ends_all_that_the_account_has_granted(
    server: AuthorizationServer, store: Store
) -> None:
    """What the provider fills in, but for its addresses, which are those of the local server."""
    server.ends_accounts = True
    paths = {"authorization": "authorize", "token": "token", "revocation": "revoke", "device": "device_authorization"}
    table = {
        "provider": "google", "issuer": server.issuer, "client_id": CLIENT, "client_secret_env": "GOOGLE",
        "scopes": ["calendar"], **{f"{name}_endpoint": f"{server.issuer}/{path}" for name, path in paths.items()},
    }  # fmt: skip
    configs = connection_configs({"example": table}, {"GOOGLE": SECRET})
    made = Connections(configs, store.credentials, Vault((new_key(),)), now=time.time)
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    asked = dict(parse_qsl(urlsplit(begun.url).query))
    assert (asked["access_type"], asked["prompt"]) == ("offline", "consent")
    await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")
    sent = [form for path, form in server.forms if path == "/token"][-1]
    assert (sent["client_id"], sent["client_secret"]) == (CLIENT, SECRET), "Google wants the secret in the form"
    server.life = 1
    await connected(made, "ana")
    assert [one.revoked for one in server.tokens] == [False, False], "to revoke the first would end the second"
    server.life = 3600
    await made.refused("", "ana", "example", server.tokens[-1].access)
    assert opens(server, (await made.token("", "ana", "example")).value) == server.account
    ended = await made.disconnect("", "ana", "example")
    assert (ended.existed, ended.unrevoked) == (True, "")
    assert all(one.revoked for one in server.tokens)


async def test_another_browser_cannot_complete_what_one_has_begun(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    begun = await made.begin("", "eve", "example", redirect_uri=BACK, browser="eve's browser")
    answer = consent(begun.url)  # Ana was sent eve's link, and allows it
    with pytest.raises(AuthorizationRefused, match="Another browser"):
        await made.complete(answer, redirect_uri=BACK, browser="ana's browser")
    with pytest.raises(ConnectionNeeded):
        await made.token("", "eve", "example")


async def test_a_changed_redirect_is_refused_by_us_and_by_the_server(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    answer = consent(begun.url)
    with pytest.raises(AuthorizationRefused, match="another address"):
        await made.complete(answer, redirect_uri="http://127.0.0.1:1/callback", browser="b")
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    code = consent(begun.url)["code"]
    with pytest.raises(AuthorizationRefused, match="invalid_grant"):
        await made._clients["example"].exchange(
            code=code, verifier="v" * 60, redirect_uri="http://127.0.0.1:1/callback"
        )
    begun = await made.begin("", "ana", "example", redirect_uri="https://evil.example/cb", browser="b")
    assert httpx2.get(begun.url).status_code == 400


async def test_an_answer_of_another_issuer_or_of_none_is_refused(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    for changed in ({"iss": "https://other.example"}, {}):
        begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
        answer = {name: value for name, value in consent(begun.url).items() if name != "iss"}
        with pytest.raises(AuthorizationRefused, match="come"):
            await made.complete({**answer, **changed}, redirect_uri=BACK, browser="b")
    assert not server.tokens


async def test_what_a_person_denies_or_allows_in_part_connects_nothing(
    server: AuthorizationServer, store: Store
) -> None:
    made = connections(server, store)
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    with pytest.raises(AuthorizationRefused, match="not allowed"):
        await made.complete(consent(begun.url, "deny"), redirect_uri=BACK, browser="b")
    server.granted = "calendar"
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    with pytest.raises(AuthorizationRefused, match=r"calendar\.write"):
        await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")
    assert all(token.revoked for token in server.tokens)
    assert await store.credentials.all_of("", "ana") == []


async def test_an_authorization_that_takes_too_long_is_refused(server: AuthorizationServer) -> None:
    now = [time.time_ns() // 1_000_000]
    store = MemoryStore(clock=lambda: now[0])
    await store.open()
    made = connections(server, store)
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    now[0] += 11 * 60 * 1000
    with pytest.raises(AuthorizationRefused, match="too late"):
        await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")
    await store.close()


async def test_fifty_calls_of_three_processes_refresh_once(server: AuthorizationServer, store: Store) -> None:
    server.life = 30
    processes = [connections(server, store) for _ in range(3)]
    await connected(processes[0], "ana")
    server.life = 3600
    before = server.count("/token")
    tokens = await asyncio.gather(*(processes[n % 3].token("", "ana", "example") for n in range(50)))
    assert server.count("/token") - before == 1
    assert len({one.value for one in tokens}) == 1
    assert opens(server, tokens[0].value) == server.account


async def test_a_call_that_is_given_up_does_not_lose_the_rotated_token(
    server: AuthorizationServer, store: Store
) -> None:
    server.life = 1
    made = connections(server, store)
    await connected(made, "ana")
    server.life = 3600
    async with answer_on_its_way(server, made.token("", "ana", "example")) as refreshing:
        refreshing.cancel()
    await asyncio.gather(*made._running)
    assert opens(server, (await made.token("", "ana", "example")).value) == server.account
    assert server.count("/token") == 2


async def test_a_token_that_the_service_refuses_is_renewed(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    await connected(made, "ana")
    first = await made.token("", "ana", "example")
    await made.refused("", "ana", "example", "another token")
    assert (await made.token("", "ana", "example")).value == first.value
    await made.refused("", "ana", "example", first.value)
    second = await made.token("", "ana", "example")
    assert second.value != first.value
    assert opens(server, second.value) == server.account


async def test_a_connection_that_was_revoked_at_the_service_is_needed_again(
    server: AuthorizationServer, store: Store
) -> None:
    server.life = 1
    made = connections(server, store)
    await connected(made, "ana")
    server.tokens[-1].revoked = True
    with pytest.raises(ConnectionNeeded, match="has ended"):
        await made.token("", "ana", "example")
    (state,) = await made.states("", "ana")
    assert not state.connected


@pytest.fixture
def impatient(mishap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mishap == "drip":
        monkeypatch.setattr(oauth, "_SECONDS", 0.3)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("mishap", ["html", "close", "500", "429", "drip"])
async def test_a_service_that_fails_while_refreshing_loses_nothing(
    server: AuthorizationServer, store: Store, mishap: str
) -> None:
    server.life = 1
    now = [time.time()]
    made = connections(server, store, now=lambda: now[0])
    await connected(made, "ana")
    now[0] += 2
    server.mishaps["/token"] = mishap
    with pytest.raises(ToolError) as refused:
        await made.token("", "ana", "example")
    assert refused.value.type is ErrorType.TRANSIENT
    assert refused.value.retryable
    assert "canary" not in str(refused.value)
    assert not server.dripped
    server.mishaps.clear()
    assert (await made.token("", "ana", "example")).value


@pytest.mark.parametrize("path", ["/token", "/.well-known/oauth-authorization-server"])
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("mishap", ["html", "close", "503", "drip"])
async def test_a_service_that_fails_while_connecting_connects_nothing(
    server: AuthorizationServer, store: Store, path: str, mishap: str
) -> None:
    made = connections(server, store)
    server.mishaps[path] = mishap
    with pytest.raises(AuthorizationUnavailable):
        await connected(made, "ana")
    assert not server.dripped
    assert await store.credentials.all_of("", "ana") == []


async def test_disconnecting_revokes_at_the_service_and_deletes_here(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    await connected(made, "ana")
    token = await made.token("", "ana", "example")
    ended = await made.disconnect("", "ana", "example")
    assert (ended.existed, ended.unrevoked) == (True, "")
    assert opens(server, token.value) is None
    with pytest.raises(ConnectionNeeded):
        await made.token("", "ana", "example")
    assert not (await made.disconnect("", "ana", "example")).existed


async def test_what_cannot_be_revoked_is_deleted_and_said(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store)
    await connected(made, "ana")
    server.mishaps["/revoke"] = "500"
    ended = await made.disconnect("", "ana", "example")
    assert "Remove the access in your account" in ended.unrevoked
    assert await store.credentials.all_of("", "ana") == []


async def test_a_refresh_that_ends_after_a_disconnection_brings_nothing_back(
    server: AuthorizationServer, store: Store
) -> None:
    server.life = 1
    made = connections(server, store)
    await connected(made, "ana")
    async with answer_on_its_way(server, made.token("", "ana", "example")) as refreshing:
        await made.disconnect("", "ana", "example")
    with pytest.raises(ConnectionNeeded):
        await refreshing
    assert await store.credentials.all_of("", "ana") == []
    assert all(token.revoked for token in server.tokens)


@pytest.mark.parametrize("revokes", ["grant", "account"])
async def test_a_connection_that_is_made_anew_revokes_the_old_one_when_that_leaves_the_new_one_alone(
    server: AuthorizationServer, store: Store, revokes: str
) -> None:
    server.ends_accounts = revokes == "account"
    made = connections(server, store, revokes=revokes)
    for _ in range(3):
        await connected(made, "ana")
    server.account = "other@calendar.example"
    await connected(made, "ana")
    assert opens(server, (await made.token("", "ana", "example")).value) == "other@calendar.example"
    assert [one.revoked for one in server.tokens[:-1]] == [revokes == "grant"] * 3
    await made.disconnect("", "ana", "example")
    assert all(one.revoked for one in server.tokens), "those of either account"


async def test_what_is_replaced_while_the_service_is_away_is_revoked_with_the_rest(
    server: AuthorizationServer, store: Store
) -> None:
    made = connections(server, store)
    await connected(made, "ana")
    server.mishaps["/revoke"] = "500"
    await connected(made, "ana")
    del server.mishaps["/revoke"]
    assert await made.forget("", "ana") == (1, [])
    assert all(one.revoked for one in server.tokens)


@pytest.mark.parametrize("revokes", ["grant", "account"])
@pytest.mark.parametrize("meanwhile", ["refused", "sealed anew", "allowed in part"])
async def test_what_happens_to_a_connection_while_it_is_refreshed_ends_it_not(
    server: AuthorizationServer, store: Store, revokes: str, meanwhile: str
) -> None:
    old, new = new_key(), new_key()
    server.life, server.ends_accounts = 1, revokes == "account"
    made = connections(server, store, keys=(old, new), revokes=revokes)
    await connected(made, "ana")
    async with answer_on_its_way(server, made.token("", "ana", "example")) as refreshing:
        if meanwhile == "refused":
            await made.refused("", "ana", "example", server.tokens[0].access)
        elif meanwhile == "sealed anew":
            assert await connections(server, store, keys=(new, old)).rotate() == 1
        else:
            server.granted = "calendar"
            with pytest.raises(AuthorizationRefused, match="is missing"):
                await connected(made, "ana")
            server.granted = None
    await refreshing
    server.life = 3600
    assert opens(server, (await made.token("", "ana", "example")).value) == server.account
    await made.disconnect("", "ana", "example")
    assert all(one.revoked for one in server.tokens)


@pytest.mark.parametrize("revokes", ["grant", "account"])
@pytest.mark.parametrize("answer", ["new tokens", "invalid_grant"])
async def test_a_refresh_that_ends_after_a_new_connection_leaves_that_one_alone(
    server: AuthorizationServer, store: Store, answer: str, revokes: str
) -> None:
    server.life, server.ends_accounts = 1, revokes == "account"
    made = connections(server, store, revokes=revokes)
    await connected(made, "ana")
    server.tokens[0].revoked = answer == "invalid_grant"
    server.life = 3600
    async with answer_on_its_way(server, made.token("", "ana", "example")) as refreshing:
        await connected(made, "ana")
        begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    assert opens(server, (await refreshing).value) == server.account
    assert opens(server, (await made.token("", "ana", "example")).value) == server.account
    assert (await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")).connected
    await made.disconnect("", "ana", "example")
    assert all(one.revoked for one in server.tokens)


async def test_a_connection_that_has_ended_leaves_the_one_that_is_being_made(
    server: AuthorizationServer, store: Store
) -> None:
    server.life = 1
    made = connections(server, store)
    await connected(made, "ana")
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    server.tokens[0].revoked = True
    with pytest.raises(ConnectionNeeded, match="has ended"):
        await made.token("", "ana", "example")
    assert (await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")).connected


@pytest.mark.parametrize("way", ["browser", "device"])
@pytest.mark.parametrize("end", ["forget", "disconnect", "given up"])
async def test_a_person_who_is_forgotten_while_connecting_leaves_no_token(
    server: AuthorizationServer, store: Store, way: str, end: str
) -> None:
    made = connections(server, store)
    if way == "browser":
        begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
        work = made.complete(consent(begun.url), redirect_uri=BACK, browser="b")
    else:
        grant = replace(await made.begin_device("ana", "example"), interval=0.01)
        server.device_answers[grant.user_code] = (server.account, True)
        work = made.complete_device("", "ana", "example", grant)
    async with answer_on_its_way(server, work) as connecting:
        if end == "given up":
            connecting.cancel()
        elif end == "forget":
            assert await made.forget("", "ana") == (0, [])
            await store.forget_user("", "ana")
        else:
            assert not (await made.disconnect("", "ana", "example")).existed
    if end == "given up":
        await asyncio.gather(*made._running)
        assert (await made.disconnect("", "ana", "example")).existed, "carried to its end, so that it can be ended"
    else:
        with pytest.raises(AuthorizationRefused, match="was not connected"):
            await connecting
    assert await store.credentials.all_of("", "ana") == []
    assert [one.revoked for one in server.tokens] == [True]


async def test_a_refresh_that_brings_less_than_is_needed_asks_the_person_to_connect_again(
    server: AuthorizationServer, store: Store
) -> None:
    server.life = 1
    made = connections(server, store)
    await connected(made, "ana")
    server.life, server.granted = 3600, "calendar"
    for _ in range(2):
        with pytest.raises(ConnectionNeeded, match="no longer allows") as needed:
            await made.token("", "ana", "example")
        assert needed.value.type is ErrorType.AUTH
    (state,) = await made.states("", "ana")
    assert not state.connected
    assert "calendar.write" in state.problem
    server.granted = None
    await connected(made, "ana")
    assert opens(server, (await made.token("", "ana", "example")).value) == server.account
    assert [one.revoked for one in server.tokens] == [True, True, False]


async def test_keys_are_rotated_and_a_lost_key_is_said(server: AuthorizationServer, store: Store) -> None:
    old, new = new_key(), new_key()
    made = connections(server, store, keys=(old,))
    await connected(made, "ana")
    await connected(made, "ben")
    both = connections(server, store, keys=(new, old))
    assert await both.rotate() == 2
    assert await both.rotate() == 0
    fresh = connections(server, store, keys=(new,))
    assert opens(server, (await fresh.token("", "ana", "example")).value) == server.account
    with pytest.raises(ConnectionNeeded):
        await made.token("", "ana", "example")
    (state,) = await made.states("", "ana")
    assert "HANDRAIL_CREDENTIALS_KEYS" in state.problem


async def test_a_device_without_a_browser_is_connected_on_another_one(
    server: AuthorizationServer, store: Store
) -> None:
    made = connections(server, store)
    grant = await made.begin_device("ana", "example")
    assert grant.address == f"{server.issuer}/device"
    assert grant.device_code not in repr(grant)
    pauses: asyncio.Queue[float] = asyncio.Queue()
    polls = asyncio.Semaphore(0)

    async def pause(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await polls.acquire()

    made._sleep = pause
    waiting = asyncio.create_task(made.complete_device("", "ana", "example", grant))
    assert await pauses.get() == grant.interval
    polls.release()
    await pauses.get()  # nobody has answered yet
    assert not waiting.done()
    server.device_answers[grant.user_code] = (server.account, True)
    polls.release()
    assert (await waiting).connected
    assert opens(server, (await made.token("", "ana", "example")).value) == server.account


async def test_the_request_has_pkce_and_the_resource_and_nothing_secret(
    server: AuthorizationServer, store: Store
) -> None:
    made = connections(server, store, resource="https://calendar.example/v1")
    begun = await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")
    asked = dict(parse_qsl(urlsplit(begun.url).query))
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == "https://calendar.example/v1"
    assert "secret" not in begun.url


async def test_a_server_that_describes_itself_as_another_is_refused(server: AuthorizationServer, store: Store) -> None:
    made = connections(server, store, issuer=f"{server.issuer}/")
    with pytest.raises((AuthorizationRefused, AuthorizationUnavailable)):
        await made.begin("", "ana", "example", redirect_uri=BACK, browser="b")


async def test_a_session_without_a_user_and_an_unknown_connection_are_named(
    server: AuthorizationServer, store: Store
) -> None:
    made: Connections = connections(server, store)
    with pytest.raises(UsageError, match="has no user"):
        await made.begin("", "", "example", redirect_uri=BACK, browser="b")
    with pytest.raises(UsageError, match='no connection "gogle"; known are example'):
        await made.begin("", "ana", "gogle", redirect_uri=BACK, browser="b")

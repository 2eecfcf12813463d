"""Keys: made once, kept as hashes in the store, found by their secret alone."""

import asyncio
import json
from contextlib import asynccontextmanager

import openai
import pytest
from tests.server.kit import KEYS, OPERATOR, USER, bearer, over_socket

from handrail.contract.errors import ConfigError, UsageError
from handrail.contract.store import StoreUnavailable
from handrail.server import stored_keys
from handrail.server.assembly import open_keys
from handrail.server.key_ring import Key, KeyRing, TokenBuckets, given_key, hash_of, new_secret
from handrail.server.legacy_files import import_files, load_keys
from handrail.server.options import Options
from handrail.server.stored_keys import KeyFollower, add_key
from handrail.settings import Settings
from handrail.stores import MemoryStore, open_store


@asynccontextmanager
async def opened_keys():
    store = MemoryStore()
    await store.open()
    yield store.keys
    await store.close()


async def started(keys, options=None, given=None, **more):
    """A start of a server: the keys that it accepts, and what makes the new one."""
    ring = KeyRing((), given)
    _, make = await open_keys(keys, ring, options or Options(), **more)
    return ring, make


async def test_a_made_key_is_found_by_its_secret_and_only_its_hash_is_kept(tmp_path):
    store = open_store(f"sqlite:////{tmp_path}/s.db")
    await store.open()
    key, secret = await add_key(store.keys, name="laptop", role="operator", user="local")
    ring = KeyRing(await store.keys.all())
    assert ring.find(secret) == key
    for wrong in ("", secret[:-1], secret + "x", secret.upper(), key.hash, "x" * 10_000, "\ud800"):
        assert ring.find(wrong) is None
    await store.close()
    for path in tmp_path.iterdir():
        assert secret.encode() not in (path.read_bytes() if path.is_file() else b"")


async def test_a_key_of_the_same_name_takes_the_place_of_the_old_one():
    async with opened_keys() as keys:
        _, old = await add_key(keys, name="laptop", role="operator")
        _, other = await add_key(keys, name="phone", role="user", user="ana")
        _, new = await add_key(keys, name="laptop", role="operator")
        ring = KeyRing(await keys.all())
        assert ring.find(old) is None
        assert ring.find(new) is not None
        assert ring.find(other).user == "ana"
        assert len(ring) == 2


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"keys": 1}', '{"keys": [{}]}', '{"keys": [{"name": "a", "hash": "b"}]}',
     json.dumps({"keys": [{"name": "a", "hash": "0" * 64, "role": "king"}]}),
     json.dumps({"keys": [{"name": "a", "hash": "0" * 64, "user": 3}]})],
)  # fmt: skip
def test_a_file_that_cannot_be_understood_is_told_and_lets_nobody_in(tmp_path, content):
    path = tmp_path / "keys.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="cannot be understood"):
        load_keys(path)


def test_a_file_that_others_can_read_is_not_used(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text('{"keys": []}')
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keys(path)


@pytest.mark.parametrize("secret", ["", "short", "x" * 600, "with spaces in between them", "ключ-длинный-ключ-длинный"])
def test_a_key_that_is_easy_to_guess_or_strange_is_refused(secret):
    with pytest.raises(UsageError, match="A key is"):
        given_key(secret)


async def test_the_first_start_on_the_loopback_makes_a_key_and_the_second_does_not():
    async with opened_keys() as keys:
        ring, make = await started(keys)
        assert await keys.all() == [], "a start that comes to nothing leaves no key"
        secret = await make()
        assert ring.find(secret).is_operator
        again, make = await started(keys)
        assert await make() is None
        assert again.find(secret) is not None


@pytest.mark.parametrize("kept_in", [None, "console-key"])
async def test_two_first_starts_at_once_both_show_a_key_that_works(tmp_path, kept_in):
    secret_file = tmp_path / kept_in if kept_in else None
    async with opened_keys() as keys:
        starts = [await started(keys, secret_file=secret_file) for _ in range(2)]  # both find no key
        secrets = await asyncio.gather(*(make() for _, make in starts))
        later = KeyRing(await keys.all())
        assert all(later.find(secret) is not None for secret in secrets)
        assert all(ring.find(secret) is not None for (ring, _), secret in zip(starts, secrets, strict=True))
        assert len(set(secrets)) == (1 if kept_in else 2)


async def test_a_server_that_others_can_reach_starts_with_no_key_of_its_own_making():
    public = Options(host="0.0.0.0")
    async with opened_keys() as keys:
        with pytest.raises(UsageError, match="--new-key"):
            await started(keys, public)
        given = new_secret()
        ring, make = await started(keys, public, given_key(given))
        assert ring.find(given).is_operator
        assert await make() is None
        assert await keys.all() == []
        ring, make = await started(keys, public, new="balancer")
        secret = await make()
        assert ring.find(secret).name == "balancer"
        ring, make = await started(keys, public, new="balancer")
        assert ring.find(await make()).name == "balancer"
        assert ring.find(secret) is None, "a key of the same name is replaced"


def test_a_key_is_shown_by_no_repr():
    secret = new_secret()
    assert secret not in repr(Key(name="a", hash=hash_of(secret)))
    assert secret not in repr(KeyRing([given_key(secret)]))


def test_a_bucket_fills_again_with_time():
    now = [0.0]
    buckets = TokenBuckets(60, lambda: now[0])
    assert [buckets.take("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0.0
    now[0] += 2.5
    assert [buckets.take("a") == 0.0 for _ in range(3)] == [True, True, False]


def test_the_memory_of_buckets_is_bounded():
    buckets = TokenBuckets(1, lambda: 0.0)
    for number in range(20_000):
        buckets.take(str(number))
    assert len(buckets._kept) <= 10_000


async def test_the_keys_of_an_earlier_version_are_brought_into_the_store_once(tmp_path):
    settings = Settings(project=tmp_path, store_url=f"sqlite:////{tmp_path}/s.db")
    secret, path = new_secret(), tmp_path / "server-keys.json"
    entries = [
        {"name": "laptop", "hash": hash_of(secret), "role": "operator", "user": "local", "created": "2026-01-02"},
        {"name": "old", "hash": "0" * 64},
    ]
    store = open_store(settings.store_url)
    for attempt in range(2):  # the second time as after a crash before the file was renamed
        path.write_text(json.dumps({"keys": entries}))
        path.chmod(0o600)
        await import_files(settings, store)
        assert not path.exists()
        assert (tmp_path / "server-keys.json.migrated").exists()
        await store.open()
        if attempt == 0:
            await store.keys.revoke("old")
        found = await store.keys.all()
        await store.close()
        assert [(one.name, one.role, one.user, one.created) for one in found] == [
            ("laptop", "operator", "local", "2026-01-02")
        ]
        assert KeyRing(found).find(secret) is not None


def test_what_was_opened_with_a_key_ends_with_it_or_with_its_rights():
    given = given_key("a-key-that-somebody-brings")
    ana, bob, eve = (Key(name=name, hash=name[0] * 64, user=name) for name in ("ana", "bob", "eve"))
    ring = KeyRing([ana, bob, eve], given)
    ended: list[str] = []
    ring.using(ana, lambda: ended.append("ana 1"))
    ring.using(ana, lambda: ended.append("ana 2"))
    ring.using(given, lambda: ended.append("given"))
    ring.using(bob, lambda: ended.append("bob"))
    closed = ring.using(eve, lambda: ended.append("eve"))
    closed()
    more = Key(name="bob", hash=bob.hash, user="bob", role="operator")
    assert {key.name for key in ring.replace([more])} == {"ana", "bob", "eve"}
    assert sorted(ended) == ["ana 1", "ana 2", "bob"]
    assert ring.find("a-key-that-somebody-brings") == given


@asynccontextmanager
async def following_its_store(tmp_path, monkeypatch):
    """A server whose keys are those of its store, which it follows."""
    monkeypatch.setattr(stored_keys, "LOOK_SECONDS", 0.01)
    async with over_socket(tmp_path) as server:
        keys = server.runtime.store.keys
        for key in KEYS:
            await keys.add(key, replace=False)
        following = asyncio.create_task(KeyFollower(keys, server.keys).follow())
        try:
            yield server, keys
        finally:
            following.cancel()


async def status_of(server, secret, until):
    """What the server says to a key, once it says what it should."""
    async with asyncio.timeout(20):
        while (answer := await server.client.get("/api/tools", headers=bearer(secret))).status_code != until:
            await asyncio.sleep(0.01)
        return answer.status_code


async def test_a_running_server_takes_new_keys_in_and_ends_the_streams_of_a_revoked_one(tmp_path, monkeypatch):
    async with following_its_store(tmp_path, monkeypatch) as (server, keys):
        _, secret = await add_key(keys, name="phone", role="user", user="ana")
        assert await status_of(server, secret, 200) == 200
        ana, other = await server.open(secret), await server.open(OPERATOR)
        running = asyncio.create_task(ana.say("slow 2000 end"))
        async with ana.listening() as stream, other.listening() as kept:
            await keys.revoke("phone")
            told = await stream.until("closed")
            assert "revoked" in told[-1].data["reason"]
            assert await stream.next() is None
            assert (await running)[-1].type == "closed"
            assert await status_of(server, secret, 401) == 401
            assert server.made.app.state.context.streams[hash_of(secret)] == 0
            await other.post("hello")
            assert (await kept.until("done"))[-1].data["state"] == "done"
        # The turn belongs to the session, and another key of its user continues with that.
        ana.key = USER
        answer = await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
        assert answer.json() == {"cancelled": True}


async def test_an_openai_client_whose_key_is_revoked_gets_an_error(tmp_path, monkeypatch):
    async with following_its_store(tmp_path, monkeypatch) as (server, keys):
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=USER, max_retries=0)
        asked = [{"role": "user", "content": "slow 2000 end"}]
        stream = await client.chat.completions.create(model="handrail", messages=asked, stream=True)
        await anext(stream)
        await keys.revoke("ana")
        with pytest.raises(openai.APIError, match="revoked"):
            _ = [chunk async for chunk in stream]
        await client.close()


async def test_a_server_that_was_frozen_lets_nobody_in_by_a_key_that_was_revoked_meanwhile(tmp_path, monkeypatch):
    async with following_its_store(tmp_path, monkeypatch) as (server, keys):
        assert await status_of(server, USER, 200) == 200
        monkeypatch.setattr(stored_keys, "LOOK_SECONDS", 3_600)
        await asyncio.sleep(0.1)
        await keys.revoke("ana")
        assert await status_of(server, USER, 200) == 200, "it looks now and then, and not for each request"
        server.keys._looked_at -= 12
        ask = server.client.get
        answers = await asyncio.gather(*(ask("/api/tools", headers=bearer(USER)) for _ in range(10)))
        assert {answer.status_code for answer in answers} == {401}
        assert await status_of(server, OPERATOR, 200) == 200


async def test_while_the_store_is_away_the_keys_stay_as_they_were(tmp_path, monkeypatch, caplog):
    async with following_its_store(tmp_path, monkeypatch) as (server, keys):
        assert await status_of(server, USER, 200) == 200

        async def away():
            raise StoreUnavailable("The store is away.")

        with monkeypatch.context() as patched:
            patched.setattr(keys, "changes", away)
            await keys.revoke("ana")
            async with asyncio.timeout(20):
                while "The store is away. The keys stay as they were." not in caplog.text:
                    await asyncio.sleep(0.01)
            assert await status_of(server, USER, 200) == 200
            assert caplog.text.count("The keys stay as they were") == 1
        assert await status_of(server, USER, 401) == 401
        assert await status_of(server, OPERATOR, 200) == 200

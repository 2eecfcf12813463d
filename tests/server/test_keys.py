"""Keys: made once, kept as hashes in a file that nobody else can read, found by their secret alone."""

import asyncio
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import openai
import pytest
from tests.server.kit import KEYS, OPERATOR, USER, bearer, over_socket

from handrail.contract.errors import ConfigError, UsageError
from handrail.server import keyfile
from handrail.server.assembly import open_keys
from handrail.server.keyfile import add_key, follow, load_keys, revoke_key
from handrail.server.keys import Key, KeyRing, TokenBuckets, given_key, hash_of, new_secret
from handrail.server.options import Options
from handrail.settings import Settings


def test_a_made_key_is_found_by_its_secret_and_only_its_hash_is_kept(tmp_path):
    path = tmp_path / "keys.json"
    key, secret = add_key(path, name="laptop", role="operator", user="local")
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ring = KeyRing(load_keys(path))
    assert ring.find(secret) == key
    for wrong in ("", secret[:-1], secret + "x", secret.upper(), key.hash, "x" * 10_000, "\ud800"):
        assert ring.find(wrong) is None


def test_a_key_of_the_same_name_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "keys.json"
    _, old = add_key(path, name="laptop", role="operator")
    _, other = add_key(path, name="phone", role="user", user="ana")
    _, new = add_key(path, name="laptop", role="operator")
    ring = KeyRing(load_keys(path))
    assert ring.find(old) is None
    assert ring.find(new) is not None
    assert ring.find(other).user == "ana"
    assert len(ring) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]


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
    add_key(path, name="a", role="user")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keys(path)


@pytest.mark.parametrize("secret", ["", "short", "x" * 600, "with spaces in between them", "ключ-длинный-ключ-длинный"])
def test_a_key_that_is_easy_to_guess_or_strange_is_refused(secret):
    with pytest.raises(UsageError, match="A key is"):
        given_key(secret)


def test_the_first_start_on_the_loopback_makes_a_key_and_the_second_does_not(tmp_path):
    settings = Settings(project=tmp_path)
    ring, make = open_keys(settings, Options(), None, None)
    assert list(tmp_path.iterdir()) == [], "a start that comes to nothing leaves no key"
    secret = make()
    assert ring.find(secret).is_operator
    again, make = open_keys(settings, Options(), None, None)
    assert make() is None
    assert again.find(secret) is not None


@pytest.mark.parametrize("kept_in", [None, "console-key"])
def test_two_first_starts_at_once_both_show_a_key_that_works(tmp_path, kept_in):
    settings = Settings(project=tmp_path)
    secret_file = tmp_path / kept_in if kept_in else None
    starts = [open_keys(settings, Options(), None, None, secret_file) for _ in range(2)]  # both find no key
    secrets = [make() for _, make in starts]
    later = KeyRing(load_keys(tmp_path / "server-keys.json"))
    assert all(later.find(secret) is not None for secret in secrets)
    assert all(ring.find(secret) is not None for (ring, _), secret in zip(starts, secrets, strict=True))
    assert len(set(secrets)) == (1 if kept_in else 2)


def test_a_server_that_others_can_reach_starts_with_no_key_of_its_own_making(tmp_path):
    settings = Settings(project=tmp_path)
    public = Options(host="0.0.0.0")
    with pytest.raises(UsageError, match="--new-key"):
        open_keys(settings, public, None, None)
    assert list(tmp_path.iterdir()) == []
    given = new_secret()
    ring, _ = open_keys(settings, public, given_key(given), None)
    assert ring.find(given).is_operator
    assert list(tmp_path.iterdir()) == []
    ring, make = open_keys(settings, public, None, "balancer")
    secret = make()
    assert ring.find(secret).name == "balancer"
    ring, make = open_keys(settings, public, None, "balancer")
    assert ring.find(make()).name == "balancer"
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


def test_a_key_can_be_made_under_a_name_that_is_free_and_revoked_by_it(tmp_path):
    path = tmp_path / "keys.json"
    _, secret = add_key(path, name="laptop", role="user", user="ana", replace=False)
    with pytest.raises(UsageError, match='There is a key "laptop"'):
        add_key(path, name="laptop", role="operator", replace=False)
    assert KeyRing(load_keys(path)).find(secret) is not None
    assert revoke_key(path, "laptop").user == "ana"
    assert revoke_key(path, "laptop") is None
    assert load_keys(path) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_that_are_made_at_the_same_time_are_all_kept(tmp_path):
    path = tmp_path / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: add_key(path, name=f"k{number}", role="user")[1], range(24)))
    ring = KeyRing(load_keys(path))
    assert all(ring.find(secret) is not None for secret in made)


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
async def with_a_file_of_keys(tmp_path, monkeypatch):
    """A server whose keys are those of a file, which it follows."""
    path = tmp_path / "keys.json"
    keyfile._write(path, list(KEYS))
    monkeypatch.setattr(keyfile, "LOOK_SECONDS", 0.01)
    async with over_socket(tmp_path) as server:
        following = asyncio.create_task(follow(path, server.keys))
        try:
            yield server, path
        finally:
            following.cancel()


async def status_of(server, secret, until):
    """What the server says to a key, once it says what it should."""
    async with asyncio.timeout(20):
        while (answer := await server.client.get("/api/tools", headers=bearer(secret))).status_code != until:
            await asyncio.sleep(0.01)
        return answer.status_code


async def test_a_running_server_takes_new_keys_in_and_ends_the_streams_of_a_revoked_one(tmp_path, monkeypatch):
    async with with_a_file_of_keys(tmp_path, monkeypatch) as (server, path):
        _, secret = add_key(path, name="phone", role="user", user="ana")
        assert await status_of(server, secret, 200) == 200
        ana, other = await server.open(secret), await server.open(OPERATOR)
        running = asyncio.create_task(ana.say("slow 2000 end"))
        async with ana.listening() as stream, other.listening() as kept:
            revoke_key(path, "phone")
            told = await stream.until("closed")
            assert "revoked" in told[-1].data["reason"]
            assert await stream.next() is None
            assert (await running)[-1].type == "closed"
            assert await status_of(server, secret, 401) == 401
            assert server.made.app.state.context.streams[hash_of(secret)] == 0
            await other.post("hello")
            assert (await kept.until("done"))[-1].data["state"] == "done"
        # The turn belongs to the session, and another key of its user goes on with that.
        ana.key = USER
        answer = await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
        assert answer.json() == {"cancelled": True}


async def test_an_openai_client_whose_key_is_revoked_gets_an_error(tmp_path, monkeypatch):
    async with with_a_file_of_keys(tmp_path, monkeypatch) as (server, path):
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=USER, max_retries=0)
        asked = [{"role": "user", "content": "slow 2000 end"}]
        stream = await client.chat.completions.create(model="handrail", messages=asked, stream=True)
        await anext(stream)
        revoke_key(path, "ana")
        with pytest.raises(openai.APIError, match="revoked"):
            _ = [chunk async for chunk in stream]
        await client.close()


async def test_a_file_that_became_unusable_changes_nothing_until_it_is_mended(tmp_path, monkeypatch, caplog):
    async with with_a_file_of_keys(tmp_path, monkeypatch) as (server, path):
        path.chmod(0o644)
        async with asyncio.timeout(20):
            while "chmod 600" not in caplog.text:
                await asyncio.sleep(0.01)
        assert await status_of(server, USER, 200) == 200
        revoke_from = json.loads(path.read_text())
        revoke_from["keys"] = [key for key in revoke_from["keys"] if key["name"] != "ana"]
        path.write_text(json.dumps(revoke_from))
        path.chmod(0o600)
        assert await status_of(server, USER, 401) == 401
        path.unlink()
        assert await status_of(server, OPERATOR, 401) == 401

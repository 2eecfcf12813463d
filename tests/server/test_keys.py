"""Keys: made once, kept as hashes in a file that nobody else can read, found by their secret alone."""

import json
import stat

import pytest

from handrail.contract.errors import ConfigError, UsageError
from handrail.server.assembly import open_keys
from handrail.server.keys import Key, KeyRing, add_key, given_key, hash_of, load_keys, new_secret
from handrail.server.options import Options
from handrail.server.rates import Buckets
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
    buckets = Buckets(60, lambda: now[0])
    assert [buckets.take("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0.0
    now[0] += 2.5
    assert [buckets.take("a") == 0.0 for _ in range(3)] == [True, True, False]


def test_the_memory_of_buckets_is_bounded():
    buckets = Buckets(1, lambda: 0.0)
    for number in range(20_000):
        buckets.take(str(number))
    assert len(buckets._kept) <= 10_000

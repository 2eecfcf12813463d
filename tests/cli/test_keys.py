"""`handrail keys`: made once, listed without secrets, revoked by name; a server that runs follows."""

import json
import stat
import time

import httpx2 as httpx
import pytest
from tests.server.keys import keys_of
from tests.server.test_commands import serving

from handrail.server.key_ring import KeyRing


def test_a_key_is_shown_once_alone_on_a_line_and_only_its_hash_is_kept(project, handrail):
    said = handrail("keys", "add", "ana-laptop", "--user", "ana")
    assert said.code == 0
    secret = said.out.strip()
    assert said.out == f"{secret}\n"
    assert 'speaks for "ana"' in said.err
    path = project / "handrail.db"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret.encode() not in path.read_bytes()
    key = KeyRing(keys_of(project)).find(secret)
    assert (key.name, key.role, key.user) == ("ana-laptop", "user", "ana")
    listed = handrail("keys", "list")
    assert "ana-laptop" in listed.out
    assert secret not in listed.out
    assert key.hash not in handrail("keys", "list", "--json").out


def test_keys_of_each_kind_are_made_and_revoked(project, handrail):
    operator = json.loads(handrail("keys", "add", "night-shift", "--operator", "--json").out)
    website = json.loads(handrail("keys", "add", "website", "--any-user", "--json").out)
    ring = KeyRing(keys_of(project))
    assert ring.find(operator["key"]).is_operator
    assert ring.find(website["key"]).user is None
    assert not ring.find(website["key"]).is_operator
    assert handrail("keys", "revoke", "website").code == 0
    assert [one["name"] for one in json.loads(handrail("keys", "list", "--json").out)] == ["night-shift"]
    replaced = json.loads(handrail("keys", "add", "night-shift", "--operator", "--replace", "--json").out)
    ring = KeyRing(keys_of(project))
    assert ring.find(operator["key"]) is None
    assert ring.find(replaced["key"]) is not None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("add", "laptop", "--user", "ana"), 'There is a key "laptop"'),
        (("add", "phone"), "--user"),
        (("add", "phone", "--user", "ana", "--operator"), "not allowed with"),
        (("add", "phone", "--user", " "), "printable text"),
        (("add", "", "--user", "ana"), "A key's name"),
        (("add", "x\x1b[31m", "--user", "ana"), "A key's name"),
        (("revoke", "lapto"), 'did you mean "laptop"'),
        (("revoke", "nothing like it"), "handrail keys list"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_and_changes_nothing(project, handrail, words, sentence):
    handrail("keys", "add", "laptop", "--user", "ana")
    before = keys_of(project)
    said = handrail("keys", *words)
    assert said.code == 2
    assert sentence in said.err
    assert said.out == ""
    assert keys_of(project) == before


def test_no_keys_is_a_sentence(project, handrail):
    assert "There are no keys" in handrail("keys", "list").out
    assert handrail("keys", "list", "--json").out == "[]\n"
    assert handrail("keys", "revoke", "phone").code == 2
    assert not (project / "handrail.db").exists(), "to look for keys makes no file"


def test_keys_of_a_store_in_memory_belong_to_its_server(project, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_STORE_URL", "memory:")
    said = handrail("keys", "add", "phone", "--user", "ana")
    assert said.code == 2
    assert "--new-key" in said.err


def test_keys_of_an_earlier_version_are_listed_and_revoked(project, handrail):
    path = project / "server-keys.json"
    path.write_text(json.dumps({"keys": [{"name": "old", "hash": "0" * 64, "role": "user", "user": "ana"}]}))
    path.chmod(0o600)
    assert "old" in handrail("keys", "list").out
    assert not path.exists()
    assert handrail("keys", "revoke", "old").code == 0
    assert handrail("keys", "list", "--json").out == "[]\n"


def test_a_server_that_runs_takes_a_key_in_and_lets_it_go(project, handrail):
    (project / "handrail.toml").write_text('[tools]\nreference = ["rank_results"]\n')
    with serving(project) as (told, _):
        secret = handrail("keys", "add", "phone", "--user", "ana").out.strip()

        def wait_for(status: int) -> None:
            for _ in range(2_000):
                found = httpx.get(f"{told['url']}/api/tools", headers={"Authorization": f"Bearer {secret}"})
                if found.status_code == status:
                    return
                time.sleep(0.01)
            raise AssertionError(f"never {status}")

        wait_for(200)
        headers = {"Authorization": f"Bearer {secret}"}
        opened = httpx.post(f"{told['url']}/api/sessions", json={}, headers=headers).json()
        assert opened["user"] == "ana"
        events = f"{told['url']}/api/sessions/{opened['sessionId']}/events"
        headers["X-Session-Token"] = opened["token"]
        with httpx.stream("GET", events, headers=headers, timeout=30) as stream:
            assert handrail("keys", "revoke", "phone").code == 0
            assert "revoked" in "".join(stream.iter_text())


def test_a_key_has_roles_that_exist(project, handrail):
    (project / "handrail.toml").write_text('[access]\nroles = ["manager", "clerk"]\n', "utf-8")
    made = handrail("keys", "add", "desk", "--user", "ben", "--role", "manager", "--role", "clerk")
    assert made.code == 0
    assert 'speaks for "ben" as clerk, manager' in handrail("keys", "list").out
    assert KeyRing(keys_of(project)).find(made.out.strip()).roles == ("clerk", "manager")
    wrong = handrail("keys", "add", "other", "--user", "ben", "--role", "manger")
    assert wrong.code == 2
    assert wrong.err.strip().endswith('There is no role "manger"; did you mean "manager"?')
    assert "other" not in handrail("keys", "list").out


@pytest.mark.parametrize("words", [("add", "laptop", "--operator"), ("list",), ("revoke", "laptop")])
def test_without_a_project_there_are_no_keys_and_none_is_made(tmp_path, monkeypatch, handrail, words):
    monkeypatch.chdir(tmp_path)
    said = handrail("keys", *words)
    assert said.code == 2
    assert "There is no project in this folder" in said.err
    assert list(tmp_path.iterdir()) == []

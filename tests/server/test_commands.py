"""`handrail serve` and `handrail users` as people start them: a process of its own, a project of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.server.keys import keys_of

from handrail.cli import main
from handrail.contract.errors import HandrailError
from handrail.contract.keys import Key

TOML = '[tools]\nreference = ["rank_results", "format_datetime"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "handrail.toml").write_text(TOML)
    return tmp_path


def made_keys(project: Path) -> list[Key]:
    """The keys in the store, if there is one that can be read."""
    with suppress(HandrailError):
        return keys_of(project)
    return []


def test_the_start_says_that_the_knowledge_base_is_searched_by_words_where_no_model_is_there(project):
    toml = '[tools]\nreference = ["kb_search"]\n\n[services.kb]\nmodels_directory = "no-models"\n'
    (project / "handrail.toml").write_text(toml, "utf-8")
    said = "handrail serve: The knowledge base works on keywords alone; `handrail models install` adds embeddings.\n"
    with serving(project) as (_, process):
        process.terminate()
        assert said in process.stderr.read().decode()
    (project / "handrail.toml").write_text(f'{toml}embeddings = "none"\n', "utf-8")
    with serving(project) as (_, process):
        process.terminate()
        assert "keywords alone" not in process.stderr.read().decode(), "it was chosen"


@contextmanager
def serving(project: Path, *words: str, stdin: bytes | None = None) -> Iterator[tuple[dict, subprocess.Popen]]:
    command = [sys.executable, "-W", "error", "-m", "handrail", "serve", "--port", "0", "--json", *words]
    process = subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE if stdin else None,
        env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    try:
        if stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        line = process.stdout.readline()
        assert line, process.stderr.read().decode()
        yield json.loads(line), process
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait(30)


def test_a_first_start_shows_a_key_once_and_the_server_can_be_talked_to(project):
    with serving(project) as (told, process):
        assert told["console"] == f"{told['url']}/#key={told['key']}"
        key = {"Authorization": f"Bearer {told['key']}"}
        opened = httpx.post(f"{told['url']}/api/sessions", json={}, headers=key).json()
        token = {**key, "X-Session-Token": opened["token"], "Accept": "text/event-stream"}
        answer = httpx.post(
            f"{told['url']}/api/sessions/{opened['sessionId']}/messages",
            json={"id": "m1", "text": "hello"}, headers=token, timeout=30,
        )  # fmt: skip
        assert "event: done" in answer.text
        assert httpx.get(told["url"]).headers["content-type"].startswith("text/html")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        errors = process.stderr.read().decode()
        assert told["key"] not in errors
        assert "Traceback" not in errors
    assert told["key"].encode() not in (project / "handrail.db").read_bytes()
    with serving(project, "--key", "-", stdin=b"a-key-that-somebody-brings\n") as (again, process):
        assert again["key"] is None
        assert again["console"] == f"{again['url']}/"
        for secret in (told["key"], "a-key-that-somebody-brings"):
            found = httpx.get(f"{again['url']}/api/tools", headers={"Authorization": f"Bearer {secret}"})
            assert [tool["id"] for tool in found.json()["tools"]] == ["format_datetime", "rank_results"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.parametrize("words", [(), ("--key-file", "console-key")], ids=["shown once", "kept"])
def test_two_servers_that_start_at_once_on_a_fresh_project_both_show_a_key_that_works(project, words):
    command = [sys.executable, "-m", "handrail", "serve", "--port", "0", "--json", *words]
    servers = [subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in "ab"]
    try:
        told = [json.loads(server.stdout.readline()) for server in servers]
        shown = [one for one in told if one["key"] is not None]
        assert shown, "a server that starts later finds the key of the first, and shows none"
        for one in shown:
            found = httpx.get(f"{one['url']}/api/tools", headers={"Authorization": f"Bearer {one['key']}"}, timeout=30)
            assert found.status_code == 200
    finally:
        for server in servers:
            server.kill()
            server.stdout.close()
            server.wait(30)


def test_with_a_key_file_every_start_has_the_same_key_and_its_conversations(project):
    asked = {}
    with serving(project, "--key-file", "console-key") as (told, process):
        kept = project / "console-key"
        assert kept.read_text().strip() == told["key"]
        assert kept.stat().st_mode & 0o777 == 0o600
        asked = {"Authorization": f"Bearer {told['key']}"}
        opened = httpx.post(f"{told['url']}/api/sessions", json={}, headers=asked).json()
        path = f"{told['url']}/api/sessions/{opened['sessionId']}/messages"
        token = {"X-Session-Token": opened["token"], "Accept": "text/event-stream"}
        httpx.post(path, json={"id": "m1", "text": "good morning"}, headers=asked | token, timeout=30).read()
        process.kill()
        process.wait(30)
    with serving(project, "--key-file", "console-key") as (again, process):
        assert again["key"] == told["key"]
        assert again["console"].endswith(f"/#key={told['key']}")
        (listed,) = httpx.get(f"{again['url']}/api/sessions", headers=asked).json()["sessions"]
        assert (listed["title"], listed["sessionId"]) == ("good morning", opened["sessionId"])
        found = httpx.get(
            f"{again['url']}/api/sessions/{listed['sessionId']}", headers={**asked, "X-Session-Token": listed["token"]}
        ).json()
        assert found["messages"][0]["text"] == "good morning"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "environment", "sentence"),
    [
        (("--host", "0.0.0.0"), "development", "keeps no key in a file"),
        ((), "production", "In production no key is kept"),
        ((), "development", "chmod 600"),
    ],
)
def test_a_key_file_is_for_development_on_this_machine_alone(
    project, monkeypatch, capsys, words, environment, sentence
):
    monkeypatch.chdir(project)
    assert main(["build"]) == 0
    (project / "console-key").write_text("hr_somebodys_old_key_that_all_can_read\n")
    (project / "console-key").chmod(0o644)
    monkeypatch.setenv("HANDRAIL_ENV", environment)
    monkeypatch.setattr("handrail.server.uvicorn_server.make_server", None)
    assert main(["serve", "--port", "0", "--key-file", "console-key", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert made_keys(project) == []


def test_the_knowledge_base_is_opened_at_the_start_and_one_that_cannot_be_stops_nobody(project):
    (project / "handrail.toml").write_text('[tools]\nreference = ["kb_search", "format_datetime"]\n')
    (project / "kb.db").write_bytes(b"not a database, but long enough to look like one " * 100)
    with serving(project) as (told, process):
        said = []
        too_long = threading.Timer(60, process.kill)
        too_long.start()
        while not said or "kb.db" not in said[-1]:  # nobody searches: it is said without that
            said.append(process.stderr.readline().decode())
            assert said[-1], said
        too_long.cancel()
        assert "Traceback" not in "".join(said)
        found = httpx.get(f"{told['url']}/api/tools", headers={"Authorization": f"Bearer {told['key']}"})
        assert len(found.json()["tools"]) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--host", "0.0.0.0"), "--new-key"),
        (("--host", "192.0.2.7", "--new-key", "a"), "cannot listen"),
        (("--port", "70000"), "--port must be"),
        (("--key", "short"), "A key is"),
        (("--key", "a", "--new-key", "b"), "not allowed with"),
        (("--new-key", ""), "A key's name"),
        (("--host", "no such host"), "no address"),
    ],
)
def test_a_wrong_start_is_told_in_a_sentence_and_serves_nothing(project, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(project)
    monkeypatch.setattr(
        "handrail.server.uvicorn_server.make_server", None
    )  # a start that should fail must not serve for ever
    try:
        code = main(["serve", "--port", "0", *words])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert sentence in capsys.readouterr().err
    assert made_keys(project) == []


def test_a_start_that_fails_leaves_no_key_that_nobody_was_shown(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (project / "handrail.toml").write_text(TOML + '[agent]\nmodel = "openai:x"\n')
    assert main(["serve", "--port", "0"]) == 2
    assert "OPENAI_API_KEY" in capsys.readouterr().err
    (project / "handrail.toml").write_text(TOML)
    (project / "conversations.db").mkdir()
    assert main(["serve", "--port", "0", "--json"]) == 1
    assert made_keys(project) == []
    (project / "conversations.db").rmdir()
    with serving(project) as (told, process):
        assert told["key"] is not None
        headers = {"Authorization": f"Bearer {told['key']}"}
        assert httpx.get(f"{told['url']}/api/tools", headers=headers).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize("level", ["info", "warning"])
def test_what_a_session_starts_with_is_logged_when_it_is_asked_for(project, level):
    with serving(project, "--log-level", level) as (told, process):
        key = {"Authorization": f"Bearer {told['key']}"}
        opened = httpx.post(f"{told['url']}/api/sessions", json={}, headers=key).json()
        headers = {**key, "X-Session-Token": opened["token"], "Accept": "text/event-stream"}
        path = f"{told['url']}/api/sessions/{opened['sessionId']}/messages"
        httpx.post(path, json={"id": "m1", "text": "hello"}, headers=headers, timeout=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        lines = [one for one in process.stderr.read().decode().splitlines() if not one.startswith("building: ")]
        names = [line.split()[1].rstrip(":") for line in lines]
        assert names == (["handrail.registry", "handrail.agent"] if level == "info" else [])
        if level == "info":
            assert "Registry 1.0." in lines[0]
            assert "2 tools: format_datetime, rank_results" in lines[0]
            assert "tokens of prompt" in lines[1]


@pytest.mark.parametrize("name", ["handrail.db", "conversations.db"])
def test_a_file_that_cannot_be_used_is_told_in_a_sentence(project, monkeypatch, capsys, name):
    monkeypatch.chdir(project)
    (project / name).write_bytes(b"This is no database at all.")
    (project / name).chmod(0o600)
    assert main(["serve", "--port", "0"]) in (1, 2)
    said = capsys.readouterr().err
    assert f'"{name}"' in said
    assert "Traceback" not in said
    assert made_keys(project) == []
    assert (project / name).read_bytes() == b"This is no database at all."


def test_a_port_that_is_taken_is_told(project, monkeypatch, capsys):
    import socket

    monkeypatch.chdir(project)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_tools_that_do_not_build_are_not_served(project, monkeypatch, capsys):
    (project / "tools" / "broken").mkdir(parents=True)
    (project / "tools" / "broken" / "schema.json").write_text("{")
    monkeypatch.chdir(project)
    assert main(["serve", "--port", "0"]) == 1
    assert "do not build" in capsys.readouterr().err


def test_forgetting_a_user_from_the_command_line(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    assert main(["build"]) == 0
    assert main(["call", "rank_results", "--user", "ana", "--args", '{"query": "x", "results": []}']) in (0, 1)
    capsys.readouterr()
    assert main(["users", "forget", "ana"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["users", "forget", "ana", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["deleted"]["sessions"] == 1
    assert main(["users", "forget", "ana", "--yes"]) == 0
    assert "sessions       0" in capsys.readouterr().out
    assert main(["users", "forget", "a\nb", "--yes"]) == 2

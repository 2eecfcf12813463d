"""`handrail connect`: by a browser of this machine, by a device, and what is wrong with a project said in one sentence."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from tests.identity.authorization_server import CLIENT, SECRET, AuthorizationServer
from tests.identity.kit import KEYS, connected, connections, consent

from handrail.cli import main
from handrail.stores import SqliteStore


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


def project(folder: Path, issuer: str) -> Path:
    (folder / "handrail.toml").write_text(
        f"""[connections.example]
label = "Example Calendar"
issuer = "{issuer}"
client_id = "{CLIENT}"
client_secret_env = "EXAMPLE_SECRET"
scopes = ["calendar", "calendar.write"]
"""
    )
    return folder


@pytest.fixture
def here(tmp_path: Path, server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project(tmp_path, server.issuer))
    monkeypatch.setenv("EXAMPLE_SECRET", SECRET)
    monkeypatch.setenv("HANDRAIL_CREDENTIALS_KEYS", ",".join(KEYS))
    return tmp_path


class Connecting:
    """`handrail connect` in a process of its own, until it has said what the person has to do."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "handrail", "connect", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()

    def next_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().strip()

    def end(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=60)
        return self.process.returncode, out, error


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["connect", "--list", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["connections"]


def test_a_browser_of_this_machine_connects_and_wrong_pages_do_not(
    here: Path, server: AuthorizationServer, capsys: pytest.CaptureFixture[str]
) -> None:
    running = Connecting("example", "--user", "ana", "--json")
    url = running.next_line()
    back = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
    assert urlsplit(back).hostname == "127.0.0.1"
    answer = consent(url)
    wrong = httpx2.get(back, params={**answer, "state": "wrong"})
    assert wrong.status_code == 400
    assert httpx2.get(back.replace("/callback", "/other")).status_code == 404
    page = httpx2.get(back, params=answer)
    assert page.status_code == 200
    assert "Example Calendar is connected" in page.text
    code, out, error = running.end()
    assert (code, json.loads(out)) == (0, {"connection": "example", "user": "ana", "connected": True})
    assert "canary" not in out + error
    assert listed(capsys, "--user", "ana")[0]["connected"]
    assert not listed(capsys)[0]["connected"]
    assert main(["connect", "example", "--user", "ana", "--disconnect"]) == 0
    assert "disconnected" in capsys.readouterr().out
    assert all(token.revoked for token in server.tokens)
    assert b"canary" not in (here / "handrail.db").read_bytes()


def test_a_person_who_denies_ends_the_command_with_one_sentence(here: Path) -> None:
    running = Connecting("example")
    url = running.next_line()
    back = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
    assert httpx2.get(back, params=consent(url, "deny")).status_code == 403
    code, out, error = running.end()
    assert (code, out) == (1, "")
    assert error.strip().endswith("Example Calendar was not connected: it was not allowed.")


def test_a_device_is_connected_by_its_code(here: Path, server: AuthorizationServer) -> None:
    running = Connecting("example", "--device")
    code = running.said.split("code ")[1].rstrip(".\n")

    def answer() -> None:
        server.device_answers[code] = (server.account, True)

    Thread(target=answer).start()
    done, out, _ = running.end()
    assert (done, out) == (0, "Example Calendar is connected for local.\n")


def test_keys_are_made_and_rotated_by_the_command(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["connect", "--new-key"]) == 0
    key = capsys.readouterr().out.strip()
    monkeypatch.setenv("HANDRAIL_CREDENTIALS_KEYS", f"{key},{KEYS[0]}")
    assert main(["connect", "--rotate"]) == 0
    assert capsys.readouterr().out == "0 credentials encrypted anew.\n"


@pytest.mark.parametrize(
    ("changed", "words", "code", "sentence"),
    [
        ({"HANDRAIL_CREDENTIALS_KEYS": ""}, ["example"], 2, "handrail connect --new-key"),
        ({"HANDRAIL_CREDENTIALS_KEYS": "short"}, ["example"], 2, "32 bytes in base64"),
        ({"EXAMPLE_SECRET": ""}, ["example"], 2, '"EXAMPLE_SECRET", which is not set'),
        ({}, ["exmple"], 2, 'no connection "exmple"; known are example'),
        ({}, [], 2, "Name the connection: example"),
        ({}, ["example", "--user", " "], 2, "printable text"),
        ({}, ["--list", "--rotate"], 2, "Say either --list or --rotate"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    words: list[str],
    code: int,
    sentence: str,
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    assert main(["connect", *words]) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_service_that_is_away_is_one_sentence(
    here: Path, server: AuthorizationServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.mishaps["/.well-known/oauth-authorization-server"] = "close"
    assert main(["connect", "example"]) == 1
    assert "cannot be reached at the moment" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('client_secret = "x"', "must not hold the secret itself"),
        ('isuer = "https://a.example"', 'has no key "isuer" (did you mean "issuer"?)'),
        ('issuer = "http://a.example"', '"issuer" in [connections.example] must be an https address'),
        ('issuer = "https://a:hunter2@a.example"', '"issuer" in [connections.example] must be an https address'),
        ("scopes = [1]", '"scopes" in [connections.example] must be a list of texts'),
        ('provider = "gogle"', "must be google, or left out"),
        ('parameters = { state = "x" }', 'cannot hold "state"'),
        ('client_auth = "none"', "has no secret"),
        ('client_id = ""', 'needs a "client_id"'),
    ],
)
def test_a_wrong_setting_is_named(here: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str) -> None:
    path = here / "handrail.toml"
    key = line.partition(" ")[0]
    kept = [one for one in path.read_text().splitlines() if one.partition(" ")[0] != key]
    path.write_text("\n".join([*kept, line, ""]))
    assert main(["connect", "--list"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "hunter2" not in said


def test_keys_do_not_belong_into_the_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "handrail.toml"
    path.write_text(f'{path.read_text()}\n[credentials]\nkeys = ["{KEYS[0]}"]\n')
    assert main(["connect", "--list"]) == 2
    said = capsys.readouterr().err
    assert "set HANDRAIL_CREDENTIALS_KEYS instead" in said
    assert KEYS[0] not in said


def connect(folder: Path, server: AuthorizationServer, user: str) -> None:
    async def made() -> None:
        store = SqliteStore(folder / "handrail.db")
        await store.open()
        await connected(connections(server, store), user)
        await store.close()

    asyncio.run(made())


def test_users_forget_revokes_and_deletes(
    here: Path, server: AuthorizationServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for user in ("ana", "ben"):
        connect(here, server, user)
    assert main(["users", "forget", "ana", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["deleted"]["connections"] == 1
    assert [token.revoked for token in server.tokens] == [True, False]
    assert not listed(capsys, "--user", "ana")[0]["connected"]
    assert listed(capsys, "--user", "ben")[0]["connected"]


def test_users_forget_without_the_key_deletes_and_says_what_is_left(
    here: Path, server: AuthorizationServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(here, server, "ana")
    key = KEYS[0]
    monkeypatch.setenv("HANDRAIL_CREDENTIALS_KEYS", "")
    assert main(["users", "forget", "ana", "--yes"]) == 1
    assert "there is no key for that" in capsys.readouterr().err
    monkeypatch.setenv("HANDRAIL_CREDENTIALS_KEYS", key)
    assert not listed(capsys, "--user", "ana")[0]["connected"]


def test_the_doctor_names_each_secret_and_key_that_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked() -> dict[str, tuple[bool, str]]:
        main(["doctor", "--json"])
        return {one["name"]: (one["ok"], one["message"]) for one in json.loads(capsys.readouterr().out)}

    whole = checked()
    assert whole["connection example"][0]
    assert whole["credentials"][0]
    monkeypatch.delenv("EXAMPLE_SECRET")
    monkeypatch.delenv("HANDRAIL_CREDENTIALS_KEYS")
    lacking = checked()
    assert not lacking["connection example"][0]
    assert '"EXAMPLE_SECRET", which is not set' in lacking["connection example"][1]
    assert not lacking["credentials"][0]
    assert "set HANDRAIL_CREDENTIALS_KEYS" in lacking["credentials"][1]
    assert main(["doctor"]) == 1
    monkeypatch.setenv("HANDRAIL_CREDENTIALS_KEYS", "short")
    capsys.readouterr()
    assert "32 bytes in base64" in checked()["credentials"][1]


TOOL = """from handrail import Context, tool


@tool(category="retrieval", side_effects="read_only", idempotent=True, capabilities=["secrets"])
async def NAME(ctx: Context) -> dict:
    \"\"\"Say when the person's next meeting is.\"\"\"
    return {"length": len(await ctx.secrets.token("example"))}
"""


def test_a_call_that_needs_a_connection_prints_the_command_that_makes_it(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "calling_desk.py").write_text(TOOL.replace("NAME", "next_meeting"))
    with (here / "handrail.toml").open("a") as file:
        file.write('[tools]\nmodules = ["calling_desk"]\n')
    monkeypatch.syspath_prepend(here)
    assert main(["build"]) == 0
    capsys.readouterr()
    assert main(["call", "next_meeting"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["type"] == "AUTH"
    assert "`--user local`" in said.err
    for words, whose in (
        (["--user", "local"], "--user local"),
        (["--user", "ana b", "--tenant", "acme"], "--user 'ana b' --tenant acme"),
    ):
        assert main(["call", "next_meeting", *words]) == 1
        said = capsys.readouterr()
        assert json.loads(said.out)["error"]["type"] == "AUTH"
        assert said.err == f"Connect Example Calendar first: run `handrail connect example {whose}`, then call again.\n"

"""`handrail mcp add|list|inspect|update|test|import|wrap`: what they write, what they say, and what they leave alone."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from tests.cli.conftest import handrail  # noqa: F401  # the fixture
from tests.mcp.gateway.conftest import LOOK, NOTE, Scripted

from handrail.authoring.mcp.lock import read_lock
from handrail.cli.mcp_wrap import _forget_old_key
from handrail.server.stored_keys import add_key
from handrail.stores import open_store


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "handrail.toml").write_text('# mine\n[audit]\ndirectory = "log"\n', encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def state(project: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in project.iterdir() if one.is_file()}


def test_a_server_is_added_pinned_shown_updated_and_called(project: Path, scripted: Scripted, handrail: Any) -> None:  # noqa: F811
    added = handrail("mcp", "add", "box", "--trust-annotations", "--", *scripted.command)
    assert added.code == 0, added.err
    assert "box_note: writes, asks a person" in added.out
    assert "box_look: reads, runs at once" in added.out
    text = (project / "handrail.toml").read_text(encoding="utf-8")
    assert text.startswith("# mine\n[audit]")
    assert tomllib.loads(text)["mcp"]["servers"]["box"]["env"] == ["PATH", "HOME"]
    assert handrail("build").code == 0
    answer = handrail("call", "box_look", "--args", '{"text": "x"}')
    assert json.loads(answer.out)["meta"]["external"] is True
    assert handrail("mcp", "test").code == 0
    assert "2 tools pinned" in handrail("mcp", "list").out
    assert "arguments: text" in handrail("mcp", "inspect", "box").out

    scripted.says(tools=[{**NOTE, "description": "Write two notes."}, LOOK])
    before = state(project)
    assert handrail("mcp", "test").code == 1
    shown = handrail("mcp", "update", "box")
    assert shown.code == 1
    assert '"Write a note."' in shown.out
    assert '"Write two notes."' in shown.out
    assert state(project) == before, "nobody took it"
    assert handrail("mcp", "update", "box", "--take").code == 0
    assert read_lock(project).servers["box"].tools["note"]["description"] == "Write two notes."
    assert handrail("mcp", "test").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["add", "x", "--", "no-such-command"], '"no-such-command" is not found'),
        (["add", "x", "--", sys.executable, "-c", "print(1)"], "cannot be used"),
        (["add", "x"], "Give either --url"),
        (["add", "X Y", "--", "x"], "The name of a server"),
        (["add", "x", "--url", "http://example.org/mcp"], "https address"),
        (["add", "x", "--url", "https://u:p@example.org/mcp"], "https address"),
        (["add", "x", "--prefix", "9-", "--", "x"], "letters, digits and underscores"),
        (["inspect", "nobody"], 'no MCP server "nobody"'),
        (["update", "nobody"], 'no MCP server "nobody"'),
        (["test"], "no MCP servers"),
        (["import", "missing.json"], "cannot be read"),
        (["wrap"], "after --"),
        (["open"], "none runs"),
        (["open", "nowhere"], "No wrapped server runs"),
        (["open", "http://127.0.0.1:1/"], "No wrapped server has a console"),
        (["wrap", "--", "no-such-command"], '"no-such-command" is not found'),
    ],
)
def test_bad_input_gets_one_sentence_and_changes_nothing(
    project: Path,
    handrail: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "state"))
    before = state(project)
    said = handrail("mcp", *words)
    assert said.code != 0
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert len(said.err.strip().splitlines()) <= 2
    assert state(project) == before


CLAUDE = {
    "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"]},
        "GitHub": {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": "ghp_verysecret123"}},
        "remote": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer very-secret-token"}},
        "leaky": {"command": "x", "args": ["--api-key", "verysecretkey"]},
        "leakier": {"command": "x", "args": ["--token=verysecretkey"]},
        "in the address": {"url": "https://example.org/mcp?api_key=verysecretkey"},
        "plain http": {"url": "http://example.org/mcp"},
        "broken": 5,
    }
}
VSCODE = """{
  // my servers
  "servers": {
    "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"],}, /* nice */
    "asks": {"command": "x", "args": ["${input:key}"]},
  },
  "inputs": [{"id": "key", "type": "promptString", "password": true}],
}"""


def test_a_clients_file_is_taken_over_and_no_secret_is_copied(project: Path, handrail: Any) -> None:  # noqa: F811
    file = project / "claude_desktop_config.json"
    file.write_text(json.dumps(CLAUDE), encoding="utf-8")
    said = handrail("mcp", "import", str(file))
    assert said.code == 0, said.err
    text = (project / "handrail.toml").read_text(encoding="utf-8")
    servers = tomllib.loads(text)["mcp"]["servers"]
    assert set(servers) == {"filesystem", "github", "remote"}
    assert servers["github"]["env"] == ["PATH", "HOME", "GITHUB_TOKEN"]
    assert servers["remote"]["headers"] == {"Authorization": "REMOTE_AUTHORIZATION"}
    assert "GITHUB_TOKEN" in said.out
    for place in (text, said.out, said.err):
        assert "secret" not in place.replace("looks like a secret", "").lower()
    assert said.out.count("is left out") == 5


CURSOR = {
    "mcpServers": {
        "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"GIT_TOKEN": "${env:GIT_TOKEN}"}},
        "docs": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${env:DOCS_TOKEN}"}},
    }
}
SETTINGS = """{
  "editor.fontSize": 13, // of the editor
  "mcp": {
    "inputs": [{"id": "key", "type": "promptString", "password": true}],
    "servers": {
      "git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {"GIT_TOKEN": "${input:key}"}},
      "docs": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${input:key}"}},
    },
  },
}"""
WINDSURF = {
    "mcpServers": {
        "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"GIT_TOKEN": "verysecret"}},
        "docs": {"serverUrl": "https://example.org/mcp", "headers": {"Authorization": "Bearer verysecret"}},
    }
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".cursor/mcp.json", json.dumps(CURSOR)),
        (".vscode/settings.json", SETTINGS),
        ("mcp_config.json", json.dumps(WINDSURF)),
    ],
    ids=["Cursor", "VS Code", "Windsurf"],
)
def test_the_same_servers_are_taken_over_from_each_clients_file(
    project: Path,
    handrail: Any,  # noqa: F811
    name: str,
    content: str,
) -> None:
    file = project / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content, encoding="utf-8")
    said = handrail("mcp", "import", name)
    assert said.code == 0, said.err
    text = (project / "handrail.toml").read_text(encoding="utf-8")
    servers = tomllib.loads(text)["mcp"]["servers"]
    assert servers["git"] == {"command": ["uvx", "mcp-server-git"], "env": ["PATH", "HOME", "GIT_TOKEN"]}
    assert servers["docs"] == {"url": "https://example.org/mcp", "headers": {"Authorization": "DOCS_AUTHORIZATION"}}
    assert "$" not in text
    assert "verysecret" not in text + said.out
    assert "GIT_TOKEN" in said.out


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ({"command": "${workspaceFolder}/server"}, '"command"'),
        ({"command": "npx", "args": ["-y", "server", "${workspaceFolder}"]}, "argument number 3"),
        ({"command": "npx", "args": ["--root=${userHome}/notes"]}, "argument number 1"),
        ({"command": "npx", "args": ["server"], "cwd": "${workspaceFolder:notes}"}, '"cwd"'),
        ({"url": "https://${config:host}/mcp"}, '"url"'),
        ({"serverUrl": "https://example.org/${input:tenant}/mcp"}, '"url"'),
        ({"command": "npx", "args": ["${NOTES_FOLDER:-/home/me}"]}, "argument number 1"),
    ],
)
def test_a_server_with_a_place_that_only_its_client_fills_in_is_left_out_in_a_sentence(
    project: Path,
    handrail: Any,  # noqa: F811
    server: dict[str, Any],
    place: str,
) -> None:
    servers = {"notes": server, "time": {"command": "uvx", "args": ["mcp-server-time"]}}
    (project / "mcp.json").write_text(json.dumps({"servers": servers}), encoding="utf-8")
    said = handrail("mcp", "import", "mcp.json")
    assert said.code == 0, said.err
    (line,) = [line for line in said.out.splitlines() if "notes is left out" in line]
    assert f"its {place} has " in line
    assert "only its client fills in" in line
    assert set(tomllib.loads((project / "handrail.toml").read_text(encoding="utf-8"))["mcp"]["servers"]) == {"time"}


def test_a_file_that_has_grown_is_imported_again_for_its_new_servers(project: Path, handrail: Any) -> None:  # noqa: F811
    file = project / "mcp.json"
    servers = {"time": {"command": "uvx", "args": ["mcp-server-time"]}}
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    first = handrail("mcp", "import", "mcp.json")
    assert "`handrail mcp update`" in first.out
    assert 'annotations = "trust"' in first.out
    before = (project / "handrail.toml").read_text(encoding="utf-8")
    again = handrail("mcp", "import", "mcp.json")
    assert again.code == 0, again.err
    assert "time is left out: it is there already" in again.out
    assert (project / "handrail.toml").read_text(encoding="utf-8") == before
    servers["git"] = {"command": "uvx", "args": ["mcp-server-git"]}
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    third = handrail("mcp", "import", "mcp.json")
    assert "time is left out: it is there already" in third.out
    text = (project / "handrail.toml").read_text(encoding="utf-8")
    assert text.startswith(before)
    assert set(tomllib.loads(text)["mcp"]["servers"]) == {"time", "git"}


def test_one_unusable_server_keeps_no_other_from_being_pinned_and_can_be_switched_off(
    project: Path,
    scripted: Scripted,
    handrail: Any,  # noqa: F811
) -> None:
    good = f"[mcp.servers.good]\ncommand = {json.dumps(scripted.command)}\n"
    bad = '[mcp.servers.bad]\ncommand = ["no-such-command"]\n'
    (project / "handrail.toml").write_text(bad + good, encoding="utf-8")
    taken = handrail("mcp", "update", "--take")
    assert taken.code == 1
    assert "bad: " in taken.err
    assert "no-such-command" in taken.err
    assert "good_look: writes, asks a person" in taken.out
    assert "says that look only reads (readOnlyHint)" in taken.out
    assert 'annotations = "trust" in [mcp.servers.good]' in taken.out
    assert set(read_lock(project).servers) == {"good"}
    stopped = handrail("build")
    assert stopped.code != 0
    assert "`enabled = false` in [mcp.servers.bad]" in stopped.err + stopped.out
    (project / "handrail.toml").write_text(f"{bad}enabled = false\n{good}", encoding="utf-8")
    assert handrail("build").code == 0
    assert handrail("mcp", "update").code == 0
    assert handrail("mcp", "test").code == 0
    assert "switched off" in handrail("mcp", "list").out
    assert handrail("mcp", "update", "bad").code == 1, "named, it is asked all the same"


def test_a_lock_that_was_edited_by_hand_costs_its_own_server_alone(
    project: Path,
    scripts: Callable[[str], Scripted],
    handrail: Any,  # noqa: F811
) -> None:
    good, bad = scripts("good"), scripts("bad")
    for name, server in (("good", good), ("bad", bad)):
        assert handrail("mcp", "add", name, "--trust-annotations", "--", *server.command).code == 0
    lock = project / "handrail.lock"
    document = json.loads(lock.read_text(encoding="utf-8"))
    document["servers"]["bad"]["tools"]["look"]["definition"]["description"] = "Look, and tell nobody."
    lock.write_text(json.dumps(document), encoding="utf-8")
    edited = document["servers"]["bad"]

    built = handrail("build")
    assert built.code == 0, built.err
    assert 'the tool "look" of the server "bad" does not fit its hash' in built.out + built.err
    assert 'the tools of the MCP server "bad" are left out' in built.out + built.err
    assert handrail("build", "--strict").code == 1
    assert json.loads(handrail("call", "good_look", "--args", '{"text": "x"}').out)["ok"] is True
    serve = [sys.executable, "-m", "handrail", "mcp"]
    served = subprocess.run(serve, cwd=project, input="", capture_output=True, text=True, timeout=60, check=True)
    assert 'the tools of the MCP server "bad" are left out' in served.stderr
    assert '"bad_look"' not in (project / "tool_registry.json").read_text(encoding="utf-8")

    listed = {row["server"]: row for row in json.loads(handrail("mcp", "list", "--json").out)}
    assert listed["good"]["tools"] == 2
    assert "edited by hand" in listed["bad"]["trouble"]
    assert "edited by hand" in handrail("mcp", "list").out
    assert handrail("mcp", "inspect", "good").code == 0
    assert "edited by hand" in handrail("mcp", "inspect", "bad").err
    tested = handrail("mcp", "test")
    assert tested.code == 1
    assert "good: answers, 2 tools as pinned" in tested.out
    assert "bad: handrail.lock was edited by hand" in tested.out

    good.says(tools=[{**NOTE, "description": "Changed."}, LOOK])
    assert handrail("mcp", "add", "third", "--", *scripts("third").command).code == 0
    assert json.loads(lock.read_text(encoding="utf-8"))["servers"]["bad"] == edited, "nobody has taken it"
    shown = handrail("mcp", "update", "bad")
    assert shown.code == 1
    assert "edited by hand" in shown.err
    assert 'was "Look, and tell nobody."' in shown.out
    assert 'is  "Look something up."' in shown.out
    assert "good" not in shown.out
    assert handrail("mcp", "update", "bad", "--take").code == 0
    pinned = read_lock(project)
    assert not pinned.broken
    assert pinned.servers["bad"].tools["look"] == LOOK
    assert pinned.servers["good"].tools["note"] == NOTE, "what it changed was not asked about"
    rebuilt = handrail("build")
    assert "left out" not in rebuilt.out + rebuilt.err
    assert json.loads(handrail("call", "bad_look", "--args", '{"text": "x"}').out)["ok"] is True


def test_a_server_that_says_what_only_reads_is_not_believed_unasked(
    project: Path,
    scripted: Scripted,
    handrail: Any,  # noqa: F811
) -> None:
    added = handrail("mcp", "add", "box", "--", *scripted.command)
    assert "box_look: writes, asks a person" in added.out
    assert 'To believe it, write annotations = "trust" in [mcp.servers.box].' in added.out
    believed = handrail("mcp", "add", "other", "--trust-annotations", "--", *scripted.command)
    assert "To believe it" not in believed.out


def test_the_files_of_editors_may_have_comments(project: Path, handrail: Any) -> None:  # noqa: F811
    file = project / "mcp.json"
    file.write_text(VSCODE, encoding="utf-8")
    before = (project / "handrail.toml").read_bytes()
    said = handrail("mcp", "import", "mcp.json", "--dry-run")
    assert said.code == 0
    assert 'command = ["uvx", "mcp-server-time"]' in said.out
    assert (project / "handrail.toml").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"[]", b"{}", b'{"mcpServers": []}', b"\xff\xfe\x00", b"[" * 100_000, b'{"servers": 5}']
)
def test_a_file_that_is_none_of_a_client_is_refused(project: Path, handrail: Any, content: bytes) -> None:  # noqa: F811
    (project / "x.json").write_bytes(content)
    before = state(project)
    said = handrail("mcp", "import", "x.json")
    assert said.code != 0
    assert "Traceback" not in said.err
    assert state(project) == before


def test_a_wrapped_server_ends_without_an_error_when_its_client_leaves(tmp_path: Path, scripted: Scripted) -> None:
    # The keys are looked at all the time, so that a look after the store is closed would be seen.
    code = "import handrail.server.stored_keys as keys; keys.LOOK_SECONDS = 0; import handrail.cli; exit(handrail.cli.main())"
    words = ["mcp", "wrap", "--folder", str(tmp_path / "wrapped"), "--name", "box", "--", *scripted.command]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "console at http://127.0.0.1:" in ended.stderr
    assert "ERROR" not in ended.stderr


def wrap(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A wrapped server whose client leaves at once."""
    return subprocess.run(
        [sys.executable, "-m", "handrail", "mcp", "wrap", "--folder", str(folder), *words],
        cwd=folder.parent,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_folder_that_wraps_a_server_refuses_another_command_name_or_environment(
    tmp_path: Path, scripted: Scripted
) -> None:
    folder = tmp_path / "wrapped"
    assert wrap(folder, "--name", "box", "--", *scripted.command).returncode == 0
    before = state(folder)

    other = wrap(folder, "--name", "box", "--", *scripted.command, "more")
    assert other.returncode == 2
    assert (
        f"`{shlex.join(scripted.command)}`, and this start gives `{shlex.join([*scripted.command, 'more'])}`"
        in other.stderr
    )
    assert "Traceback" not in other.stderr

    named = wrap(folder, "--name", "chest", "--", *scripted.command)
    assert named.returncode == 2
    assert 'wraps "box", and this start is for "chest"' in named.stderr

    given = wrap(folder, "--name", "box", "--env", "LANG", "--", *scripted.command)
    assert given.returncode == 2
    assert "the variables PATH, HOME, and this start gives PATH, HOME, LANG" in given.stderr

    hidden = wrap(folder, "--name", "box", "--", "server", "--token", "hush")
    assert "`server …`" in hidden.stderr
    assert "hush" not in hidden.stderr

    assert state(folder) == before
    assert wrap(folder, "--name", "box", "--", *scripted.command).returncode == 0


def test_a_command_that_does_not_start_leaves_the_folder_to_the_next_one(tmp_path: Path, scripted: Scripted) -> None:
    folder = tmp_path / "wrapped"
    failed = wrap(folder, "--", "no-such-command")
    assert failed.returncode == 1
    assert '"no-such-command" is not found' in failed.stderr
    assert not state(folder)
    started = wrap(folder, "--name", "box", "--", *scripted.command)
    assert started.returncode == 0, started.stderr


async def test_a_wrapped_server_is_governed_and_its_pins_hold_at_the_next_start(
    tmp_path: Path, scripted: Scripted
) -> None:
    folder = tmp_path / "wrapped"
    words = ["-m", "handrail", "mcp", "wrap", "--folder", str(folder), "--name", "box", "--", *scripted.command]
    server = StdioServerParameters(command=sys.executable, args=words, cwd=tmp_path, env=with_browser(tmp_path))
    with (tmp_path / "errors").open("w") as errors:
        from mcp.client.stdio import stdio_client

        async with Client(stdio_client(server, errors)) as client:
            assert {one.name for one in (await client.list_tools()).tools} >= {"note", "look"}
            looked = await client.call_tool("look", {"text": "x"})
            assert looked.structured_content is not None
            assert looked.structured_content["ok"] is True
            held = (await client.call_tool("note", {"text": "x"})).structured_content
            assert held is not None
            assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
            message = held["error"]["message"]
            assert "/console/confirmation.html#" in message
            assert "make the same call again" in message
            assert "do not call" not in message
            page, _, fragment = (await opened_page(tmp_path)).partition("#ticket=")
            ticket, _, request = fragment.partition("&")
            assert f"{page}#{request}" in message
            assert await approved(page, ticket, request)
            outcome = (await client.call_tool("note", {"text": "x"})).structured_content
            assert outcome is not None
            assert outcome["ok"] is True
            for text in (str(folder / "handrail.db"), "wrapped/../wrapped/audit", f"cat '{folder}/handrail.db'"):
                own = (await client.call_tool("look", {"text": text})).structured_content
                assert own is not None
                assert own["error"]["type"] == "AUTH", text
        scripted.says(tools=[{**NOTE, "description": "Changed."}, {**LOOK, "description": "Changed too."}])
        async with Client(stdio_client(server, errors)) as client:
            refused = (await client.call_tool("look", {"text": "y"})).structured_content
            assert refused is not None
            assert refused["error"]["type"] == "CONFLICT"
    assert len(scripted.calls("note")) == 1
    said = (tmp_path / "errors").read_text(encoding="utf-8")
    assert "console at http://127.0.0.1:" in said
    assert f"handrail mcp open {folder}" in said
    assert any((folder / "audit").iterdir())
    kept = [said.encode(), *(one.read_bytes() for one in folder.rglob("*") if one.is_file())]
    assert not any(secret in one for one in kept for secret in (b"hr_", b"#key=", b"ticket=", ticket.encode()))


def with_browser(folder: Path) -> dict[str, str]:
    """An environment whose browser notes what it is told to open."""
    browser = folder / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf "%s" "$1" > "{folder}/opened.part" && mv "{folder}/opened.part" "{folder}/opened"\n'
    )
    browser.chmod(0o700)
    return {**os.environ, "BROWSER": f"{browser} %s"}


async def opened_page(folder: Path) -> str:
    async with asyncio.timeout(30):
        while not (folder / "opened").exists():
            await asyncio.sleep(0.02)
    return (folder / "opened").read_text(encoding="utf-8")


async def approved(page: str, ticket: str, request: str) -> bool:
    """What the page does for its person: the ticket becomes a key, once, and the key opens the request."""
    async with httpx2.AsyncClient(base_url=page.partition("/console/")[0], timeout=30) as browser:
        path = f"/api/confirmations/{request}"
        assert (await browser.get(path)).status_code == 401
        assert (await browser.post("/console/ticket", json={"ticket": "guessed"})).status_code == 401
        browser.headers["Authorization"] = (
            f"Bearer {(await browser.post('/console/ticket', json={'ticket': ticket})).json()['key']}"
        )
        assert (await browser.post("/console/ticket", json={"ticket": ticket})).status_code == 401
        token = (await browser.get(path)).json()["token"]
        return (await browser.post(f"{path}/approve", json={"token": token})).status_code == 200


def test_a_key_that_an_earlier_version_left_in_a_file_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "console-key"

    async def keys() -> list[str]:
        store = open_store(f"sqlite:///{tmp_path / 'handrail.db'}")
        await store.open()
        _, secret = await add_key(store.keys, name="console", role="operator", user="local")
        await add_key(store.keys, name="mine", role="operator", user="local")
        file.write_text(f"{secret}\n", encoding="utf-8")
        for _ in range(2):
            await _forget_old_key(store.keys, file)
        left = [key.name for key in await store.keys.all()]
        await store.close()
        return left

    assert asyncio.run(keys()) == ["mine"]
    assert not file.exists()

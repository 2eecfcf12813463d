"""Real servers behind the gateway: filesystem, memory and everything from npm, git and time from PyPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from scripts.node_packages import FOLDER, is_there, node
from tests.mcp.gateway.conftest import Governed, governed
from tests.mcp.gateway.test_gateway_commands import approved as approved_at
from tests.mcp.gateway.test_gateway_commands import opened_page, with_browser

NPM = FOLDER / "node_modules" / "@modelcontextprotocol"
needs_node = pytest.mark.skipif(
    not is_there() and os.environ.get("CI") != "true", reason="the servers are not here; `make node` brings them"
)
needs_git = pytest.mark.skipif(
    shutil.which("git") is None and os.environ.get("CI") != "true", reason="there is no git; `make git` brings it"
)
PROVIDERS = (
    "openai-chat",
    "openai-responses",
    "openai-realtime",
    "gemini",
    "gemini-live",
    "anthropic",
    "ollama",
    "mcp",
)


@asynccontextmanager
async def real(tmp_path: Path, *names: str, mode: str = "text") -> AsyncIterator[Governed]:
    files = tmp_path / "files"
    files.mkdir(exist_ok=True)
    (files / "hello.txt").write_text("good morning", encoding="utf-8")
    commands: dict[str, list[str]] = {
        "filesystem": [node(), str(NPM / "server-filesystem" / "dist" / "index.js"), str(files)],
        "memory": [node(), str(NPM / "server-memory" / "dist" / "index.js")],
        "everything": [node(), str(NPM / "server-everything" / "dist" / "index.js"), "stdio"],
        "git": [sys.executable, "-m", "mcp_server_git"],
        "time": [sys.executable, "-m", "mcp_server_time", "--local-timezone", "Europe/Berlin"],
    }
    own = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl"), "HOME": str(tmp_path)}
    environment = {"PATH": os.environ["PATH"], **own}
    servers: dict[str, Any] = {
        name: {"command": commands[name], "annotations": "trust", "env": list(environment)} for name in names
    }
    async with governed(tmp_path, servers, environment=environment, mode=mode) as box:
        yield box


async def approved(box: Governed, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a held call that a person approves."""
    held = await box.call(name, args)
    assert held["error"]["type"] == "CONFIRMATION_REQUIRED", held
    wanted = await anext(event async for event in box.session.events() if event.type == "confirmation")
    done: dict[str, Any] = (await box.runtime.approve(wanted.id, token=wanted.token)).to_dict()
    return done


@needs_node
async def test_the_filesystem_is_read_at_once_and_written_with_an_approval(tmp_path: Path) -> None:
    async with real(tmp_path, "filesystem") as box:
        assert len(box.registry) == 14
        read = await box.call("filesystem_read_text_file", {"path": str(tmp_path / "files" / "hello.txt")})
        assert read["data"] == {"content": "good morning"}
        outside = await box.call("filesystem_read_text_file", {"path": "/etc/hostname"})
        assert outside["error"]["type"] == "PERMANENT"
        target = tmp_path / "files" / "new.txt"
        done = await approved(box, "filesystem_write_file", {"path": str(target), "content": "by a person"})
        assert done["ok"], done
        assert target.read_text(encoding="utf-8") == "by a person"


@needs_node
async def test_a_wrapped_filesystem_is_read_at_once_and_written_when_its_person_says_so(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "hello.txt").write_text("good morning", encoding="utf-8")
    server = [node(), str(NPM / "server-filesystem" / "dist" / "index.js"), str(files)]
    words = ["-m", "handrail", "mcp", "wrap", "--folder", str(tmp_path / "wrapped"), "--name", "box", "--", *server]
    wrapped = StdioServerParameters(command=sys.executable, args=words, cwd=tmp_path, env=with_browser(tmp_path))
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(wrapped, errors)) as client:

            async def call(name: str, **args: str) -> dict[str, Any]:
                made = (await client.call_tool(name, args)).structured_content
                assert made is not None
                return made

            read = await call("read_text_file", path=str(files / "hello.txt"))
            assert read["data"] == {"content": "good morning"}
            new = {"path": str(files / "new.txt"), "content": "by a person"}
            assert (await call("write_file", **new))["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert not (files / "new.txt").exists()
            page, _, fragment = (await opened_page(tmp_path)).partition("#ticket=")
            assert await approved_at(page, *fragment.split("&", 1))
            assert (await call("write_file", **new))["ok"]
            assert (files / "new.txt").read_text(encoding="utf-8") == "by a person"


@needs_node
async def test_the_memory_is_written_with_an_approval_and_read_at_once(tmp_path: Path) -> None:
    async with real(tmp_path, "memory") as box:
        ana = {"name": "Ana", "entityType": "person", "observations": ["likes tea"]}
        done = await approved(box, "memory_create_entities", {"entities": [ana]})
        assert done["ok"], done
        found = await box.call("memory_search_nodes", {"query": "tea"})
        assert [one["name"] for one in found["data"]["entities"]] == ["Ana"]


@needs_node
async def test_everything_gives_text_structure_pictures_and_links(tmp_path: Path) -> None:
    async with real(tmp_path, "everything") as box:
        echo = await box.call("everything_echo", {"message": "hi"})
        assert echo["data"]["content"][0]["text"] == "Echo: hi"
        summed = await box.call("everything_get_sum", {"a": 2, "b": 3})
        assert "5" in summed["data"]["content"][0]["text"]
        weather = await box.call("everything_get_structured_content", {"location": "Chicago"})
        assert set(weather["data"]) >= {"temperature", "conditions"}
        picture = await box.call("everything_get_tiny_image", {})
        assert any("omittedBytes" in block for block in picture["data"]["content"])
        environment = await box.call("everything_get_env", {})
        assert "MEMORY_FILE_PATH" in str(environment["data"])


@needs_git
async def test_git_is_read_at_once(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    (repository / "a.txt").write_text("a", encoding="utf-8")
    async with real(tmp_path, "git") as box:
        status = await box.call("git_status", {"repo_path": str(repository)})
        assert "a.txt" in str(status["data"])
        held = await box.call("git_add", {"repo_path": str(repository), "files": ["a.txt"]})
        assert held["error"]["type"] == "CONFIRMATION_REQUIRED"


async def test_time_is_told_to_every_provider_and_by_voice(tmp_path: Path) -> None:
    async with real(tmp_path, "time", mode="voice") as box:
        for provider in PROVIDERS:
            declared = {str(one) for one in box.registry.provider_schemas(provider, "voice")}
            assert any("time_get_current_time" in one for one in declared), provider
        told = await box.call("time_get_current_time", {"timezone": "Europe/Berlin"}, provider="gemini-live")
        assert told["data"]["timezone"] == "Europe/Berlin"
        assert told["meta"]["external"] is True


ALL = ("filesystem", "memory", "everything", "git", "time")


def reads(tmp_path: Path, names: tuple[str, ...]) -> dict[str, tuple[dict[str, Any], str]]:
    """A call for each of these servers, and what is in its answer."""
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    calls: dict[str, tuple[dict[str, Any], str]] = {
        "filesystem_read_text_file": ({"path": str(tmp_path / "files" / "hello.txt")}, "good morning"),
        "memory_read_graph": ({}, "entities"),
        "everything_echo": ({"message": "hi"}, "Echo: hi"),
        "git_status": ({"repo_path": str(repository)}, "No commits yet"),
        "time_get_current_time": ({"timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
    }
    return {name: one for name, one in calls.items() if name.partition("_")[0] in names}


@needs_node
@needs_git
@pytest.mark.long
@pytest.mark.parametrize("provider", ["gemini-live", "openai-realtime"])
async def test_every_real_server_is_called_in_a_spoken_conversation(tmp_path: Path, provider: str) -> None:
    from tests.agents.voice.kit import voice

    from handrail.testing.servers.live import Ask, Say, Turn
    from handrail.testing.servers.live import call as asked

    calls = reads(tmp_path, ALL)
    turns = [
        Turn([Ask(asked(name, **args)), Say("It is so.")], hears="What is it?") for name, (args, _) in calls.items()
    ]
    async with real(tmp_path, *ALL) as box:
        await box.session.close()  # a conversation has one of its own
        async with voice(provider, turns, runtime=box.runtime) as case:
            for number in range(1, len(turns) + 1):
                await case.speak()
                await case.client.until("turn_done", number)
            assert case.server.complaints == []
            assert case.client.words("model") == ["It is so."] * len(turns)
            for (name, envelope), (wanted, (_, told)) in zip(case.server.outcomes, calls.items(), strict=True):
                assert name == wanted
                assert told in str(envelope["data"]), envelope
                assert envelope["meta"]["external"] is True


@needs_node
@needs_git
@pytest.mark.parametrize("names", [("time",), pytest.param(ALL, marks=pytest.mark.long)])
async def test_the_real_sdk_of_each_text_provider_calls_every_real_server(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    from tests.clients.kit import SERVERS as MODELS
    from tests.clients.kit import AgentCase, Patience, spec

    from handrail.agents import AgentPolicy, TextAgent
    from handrail.clients import open_model
    from handrail.testing.servers import Reply
    from handrail.testing.servers import call as asked

    calls = reads(tmp_path, names)
    async with real(tmp_path, *names) as box:
        for kind, opened in MODELS.items():
            script = [
                Reply("One moment.", [asked(name, **args) for name, (args, _) in calls.items()]),
                Reply("It is late."),
            ]
            async with opened(script) as server:
                model = open_model(
                    spec(kind), environment=server.environment, base_url=server.base_url, limits=Patience(server)
                )
                agent = TextAgent(box.runtime, model, policy=AgentPolicy(guide_tokens=0))
                here = AgentCase(agent, await box.runtime.open_session(user=kind))
                assert "It is late." in await here.say("What is there?")
                assert server.problems == []
                envelopes = {one["meta"]["toolId"]: one for one in server.envelopes(server.requests[1].body)}
                for name, (_, wanted) in calls.items():
                    assert wanted in str(envelopes[name]["data"]), (kind, envelopes[name])
                    assert envelopes[name]["meta"]["external"] is True
                await model.close()

"""Looking for an Ollama on this machine: quick, only here, and whatever answers there."""

import asyncio
import socket
import threading

import pytest

from handrail.providers.ollama.probe import find_ollama, ollama_problem
from handrail.testing.servers import OllamaServer

TOOLS = ["completion", "tools"]


async def found(server: OllamaServer, host: str = ""):
    environment = {"OLLAMA_HOST": host or server.base_url}
    return await asyncio.to_thread(find_ollama, environment)


async def test_the_model_that_was_pulled_last_and_can_call_tools_is_taken():
    models = {"old": TOOLS, "new": TOOLS, "all-minilm": ["embedding"]}
    async with OllamaServer([], models=models) as server:
        ollama = await found(server)
        assert (ollama.model, ollama.address, ollama.usable) == ("new", server.base_url, True)
        again = await found(server, server.base_url.removeprefix("http://").replace("127.0.0.1", "0.0.0.0"))
        assert again == ollama
    assert {request.path for request in server.lookups} == {"/api/tags", "/api/show"}


async def test_an_ollama_without_such_a_model_is_found_too():
    async with OllamaServer([], models={"all-minilm": ["embedding"]}) as server:
        assert (await found(server)).model == ""


async def test_a_model_that_ollama_passes_on_to_its_vendor_is_not_taken_unasked():
    models = {"here": TOOLS, "gpt-oss:120b-cloud": TOOLS, "kimi:cloud": TOOLS, "elsewhere": [*TOOLS, "remote"]}
    async with OllamaServer([], models=models) as server:
        assert (await found(server)).model == "here"


async def test_another_machine_is_never_asked(monkeypatch):
    asked = []

    def connect(address, *_, **__):
        asked.append(address)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    for host in ("ollama.example:11434", "https://10.0.0.7", "[broken"):
        assert find_ollama({"OLLAMA_HOST": host}) is None
    assert asked == [("127.0.0.1", 11434)] * 3


def test_a_server_that_says_nothing_holds_nobody_up_for_long():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ollama = find_ollama({"OLLAMA_HOST": f"127.0.0.1:{port}"}, seconds=0.1)
        assert (ollama.model, ollama.fault) == ("", "it does not answer within 0.1 seconds")
        assert "does not work: it does not answer within 0.1 seconds;" in ollama_problem(
            ollama.address, "m", seconds=0.1
        )


def test_where_nobody_listens_there_is_no_ollama():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert find_ollama({"OLLAMA_HOST": f"127.0.0.1:{port}"}) is None


NONSENSE = "it does not answer as Ollama does"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", NONSENSE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", NONSENSE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", NONSENSE),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 28\r\n\r\n{"models": [3, {"name": 0}]}', ""),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "it answers with the status 404"),
        (b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n", "it answers with the status 500"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NONSENSE),
        (b"", NONSENSE),
    ],
)
def test_something_else_on_that_port_is_told_apart_from_an_ollama_and_from_nobody(answer, fault):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        ollama = find_ollama({"OLLAMA_HOST": f"127.0.0.1:{server.getsockname()[1]}"})
        thread.join()
    assert (ollama.model, ollama.fault) == ("", fault)


async def test_what_is_wrong_with_a_configured_model_is_told():
    async with OllamaServer([], models={"able": TOOLS, "plain": ["completion"]}) as server:

        async def problem(name: str) -> str | None:
            return await asyncio.to_thread(ollama_problem, server.base_url, name)

        assert await problem("able") is None
        assert "ollama pull missing" in await problem("missing")
        assert "cannot call tools" in await problem("plain")
    assert ollama_problem("https://elsewhere.example", "m") is None

"""A retry meets its first execution, whatever its request id: over HTTP in both eras, over pipes, racing, and after a crash.

The control is the same tool behind the SDK's plain server, which runs what it is sent.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.mcp.conftest import Notes
from tests.mcp.served_project import Served, effects, headers_of, project, request, served


async def call(client: httpx2.AsyncClient, server: Served, number: Any, name: str, args: Any, **meta: Any) -> Any:
    body = request(number, name, args, **meta)
    answer = await client.post(server.mcp, json=body, headers=headers_of(server, name))
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["structuredContent"]


async def test_a_retry_under_a_new_id_gets_the_first_outcome(notes: Notes) -> None:
    async with httpx2.AsyncClient() as client:
        first = await call(client, notes, 1, "send_note", {"text": "hello"})
        again = await call(client, notes, "other", "send_note", {"text": "hello"})
        third = await call(client, notes, 3, "send_note", {"text": "another"})
    assert first["ok"] is again["ok"] is third["ok"] is True
    assert "replayed" not in first["meta"]
    assert again["meta"]["replayed"] is True
    assert [note for note in effects(notes.folder) if note in ("hello", "another")] == ["hello", "another"]


async def test_racing_clients_of_one_principal_start_one_execution(notes: Notes) -> None:
    async with httpx2.AsyncClient() as client:
        calls = [call(client, notes, number, "send_note", {"text": "once"}) for number in range(12)]
        answers = await asyncio.gather(*calls)
    assert {answer["ok"] for answer in answers} == {True}
    assert effects(notes.folder).count("once") == 1


async def test_a_client_that_names_its_turn_makes_the_call_once_in_each(notes: Notes) -> None:
    async with httpx2.AsyncClient() as client:
        for turn in ("t1", "t1", "t2"):
            await call(client, notes, 1, "send_note", {"text": "hi"}, **{"handrail/turn": turn})
    assert effects(notes.folder).count("hi") == 2


async def test_reads_run_each_time_they_are_asked_for(notes: Notes) -> None:
    async with httpx2.AsyncClient() as client:
        answers = [await call(client, notes, 1, "echo", {"text": "x"}) for _ in range(3)]
    assert [answer["data"] for answer in answers] == ["x", "x", "x"]
    assert not any(answer["meta"].get("replayed") for answer in answers)


async def test_a_read_is_stopped_when_its_client_goes_away_and_not_before(notes: Notes) -> None:
    async with httpx2.AsyncClient() as client:
        answers = [await call(client, notes, number, "wait", {"seconds": 0.2}) for number in range(2)]
    assert [answer["data"] for answer in answers] == ["waited", "waited"]
    assert "stopped waiting" not in effects(notes.folder)
    async with httpx2.AsyncClient(timeout=0.5) as client:
        with pytest.raises(httpx2.TimeoutException):
            await call(client, notes, 3, "wait", {"seconds": 100.0})
    async with asyncio.timeout(30):
        while "stopped waiting" not in effects(notes.folder):
            await asyncio.sleep(0.02)


async def test_a_retry_after_the_server_was_killed_runs_nothing_again(tmp_path: Path) -> None:
    folder = project(tmp_path)
    with served(folder) as server:
        async with httpx2.AsyncClient() as client:
            await call(client, server, 1, "send_note", {"text": "before"})
            cut = asyncio.create_task(call(client, server, 2, "send_note", {"text": "cut"}))
            while "cut" not in effects(folder):
                await asyncio.sleep(0.005)
            server.process.send_signal(signal.SIGKILL)
            with pytest.raises(httpx2.HTTPError):
                await cut
    with served(folder) as server:
        async with httpx2.AsyncClient() as client:
            before = await call(client, server, 1, "send_note", {"text": "before"})
            again = await call(client, server, 7, "send_note", {"text": "cut"})
    assert before["ok"] is True
    assert again["ok"] is False
    assert again["error"]["type"] == "CONFLICT"
    assert again["error"]["partialSideEffects"] is True
    assert effects(folder) == ["before", "cut"]


async def test_a_cut_connection_leaves_a_started_write_to_finish_and_its_retry_gets_it(
    notes: Notes,
) -> None:
    async with httpx2.AsyncClient() as client:
        headers, body = headers_of(notes, "send_note"), request(1, "send_note", {"text": "left"})
        with pytest.raises(httpx2.TimeoutException):
            await client.post(notes.mcp, json=body, headers=headers, timeout=0.03)
    async with httpx2.AsyncClient() as client:
        again = await call(client, notes, 2, "send_note", {"text": "left"})
    assert again["ok"] is True
    assert effects(notes.folder).count("left") == 1


async def deliver(count: int, folder: Path, server: Served) -> None:
    """Each note several times under new ids, some on connections that are cut."""
    notes = [f"note-{number}" for number in range(count // 5)]
    gate = asyncio.Semaphore(16)

    async def one(client: httpx2.AsyncClient, number: int, text: str) -> None:
        async with gate:
            try:
                headers = headers_of(server, "send_note")
                wait = 0.01 if number % 3 == 0 else 30
                await client.post(
                    server.mcp, json=request(number, "send_note", {"text": text}), headers=headers, timeout=wait
                )
            except httpx2.HTTPError:
                pass

    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=32)) as client:
        tasks = [one(client, 5 * at + again, text) for at, text in enumerate(notes) for again in range(5)]
        await asyncio.gather(*tasks)
    done = [note for note in effects(folder) if note.startswith("note-")]
    assert sorted(done) == sorted(notes)


async def test_no_delivery_of_many_starts_a_write_twice(notes: Notes) -> None:
    await deliver(150, notes.folder, notes)


@pytest.mark.long
async def test_a_hundred_thousand_deliveries_start_no_write_twice(tmp_path: Path) -> None:
    for part in range(20):
        folder = project(tmp_path / str(part))
        with served(folder, HANDRAIL_SERVER_REQUESTS_PER_MINUTE="10000000") as server:
            await deliver(5_000, folder, server)


PLAIN = """
import asyncio, sys
sys.path.insert(0, ".")
from mcp.server.mcpserver import MCPServer
import notes

server = MCPServer("plain")

@server.tool()
async def send_note(text: str) -> str:
    notes._note(text)
    return text

server.run()
"""


async def test_the_same_tool_without_a_ledger_doubles(tmp_path: Path) -> None:
    """The control: what the tests above find absent is there when nothing governs the calls."""
    folder = project(tmp_path)
    (folder / "plain.py").write_text(PLAIN)
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=["plain.py"], cwd=folder)) as streams,
        ClientSession(*streams) as client,
    ):
        await client.initialize()
        for _ in range(2):
            await client.call_tool("send_note", {"text": "twice"})
    assert effects(folder) == ["twice", "twice"]

"""A retry meets its first execution, whatever its request id: over HTTP in both eras, over pipes, racing, and after a crash.

The control is the same tool behind the SDK's plain server, which runs what it is sent.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RecordFigures
from tests.mcp.conftest import Notes
from tests.mcp.gateway.conftest import Scripted, free, pin
from tests.mcp.served_project import Served, effects, headers_of, project, request, served

HANDSHAKE = "2025-11-25"
HELLO = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "storm", "version": "1"}}


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
    async with httpx2.AsyncClient(timeout=60) as client, asyncio.timeout(60):
        leaving = asyncio.create_task(call(client, notes, 3, "wait", {"seconds": 100.0}))
        while "waiting for 100.0" not in effects(notes.folder):
            await asyncio.sleep(0.02)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
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


class Gone(Exception):
    """The server was killed before it answered."""


class OverHttp:
    """One server, and clients of both eras in turn."""

    tool = "send_note"

    def __init__(self, server: Served) -> None:
        self._server = server
        self._client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=32), timeout=30)
        self._handshaken = {**server.headers, "Accept": "application/json, text/event-stream"}

    async def begin(self) -> None:
        opened = await self._post(message(0, "initialize", HELLO), self._handshaken)
        self._handshaken["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        self._handshaken["MCP-Protocol-Version"] = HANDSHAKE
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self._handshaken)

    async def deliver(self, number: int, text: str) -> dict[str, Any]:
        body = request(number, self.tool, {"text": text})
        if number % 2:
            del body["params"]["_meta"]
            answer = await self._post(body, self._handshaken)
        else:
            answer = await self._post(body, headers_of(self._server, self.tool))
        lines = (line.removeprefix("data:").strip() for line in answer.text.splitlines())
        (found,) = [line for line in lines if line.startswith("{")]
        result: dict[str, Any] = json.loads(found)["result"]
        return result

    async def _post(self, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        try:
            return await self._client.post(self._server.mcp, json=body, headers=headers)
        except httpx2.HTTPError as error:
            raise Gone from error

    def kill(self) -> None:
        self._server.process.send_signal(signal.SIGKILL)

    async def end(self) -> None:
        await self._client.aclose()


class OverPipes:
    """A process, and its one client of one era."""

    tool = "send_note"

    def __init__(self, process: asyncio.subprocess.Process, *, is_modern: bool) -> None:
        self._process = process
        self._is_modern = is_modern
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def begin(self) -> None:
        if not self._is_modern:
            await self._ask(message(10**6, "initialize", HELLO))
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def deliver(self, number: int, text: str) -> dict[str, Any]:
        body = request(number, self.tool, {"text": text})
        if not self._is_modern:
            del body["params"]["_meta"]
        result: dict[str, Any] = (await self._ask(body))["result"]
        return result

    def _send(self, body: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(body).encode() + b"\n")

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._reading.done():
            raise Gone
        answer = self._waiting[body["id"]] = asyncio.get_running_loop().create_future()
        self._send(body)
        return await answer

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            body = json.loads(line)
            answer = self._waiting.pop(body.get("id"), None)
            if answer is not None and not answer.done():
                answer.set_result(body)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Gone())

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


def message(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


@asynccontextmanager
async def over_http(folder: Path, *, is_second: bool) -> AsyncIterator[OverHttp]:
    with served(folder, HANDRAIL_SERVER_REQUESTS_PER_MINUTE="10000000") as server:
        yield OverHttp(server)


def over_pipes(*words: str) -> Any:
    """Of the handshake era first; the redelivery comes from a client of 2026-07-28, to which the calls are the same."""

    @asynccontextmanager
    async def opened(folder: Path, *, is_second: bool) -> AsyncIterator[OverPipes]:
        with (folder / "pipes.log").open("ab") as log:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                sys.executable, *words, cwd=folder, stdin=pipe, stdout=pipe, stderr=log
            )
        yield OverPipes(process, is_modern=is_second)

    return opened


async def storm(opened: Any, folder: Path, count: int) -> tuple[Counter[str], int]:
    """Each note five times under new ids, some given up by their client; half way the server is killed, and what was not
    answered by then is delivered twice more. How often each was started, and how many deliveries a living server was sent."""
    notes = [f"note-{number}" for number in range(count // 5)]
    given_up = set(notes[::3])
    answered: dict[str, dict[str, Any]] = {}
    gate, sent = asyncio.Semaphore(16), 0

    async def one(server: Any, number: int, text: str) -> None:
        nonlocal sent
        async with gate:
            try:
                async with asyncio.timeout(0.01 if text in given_up and number % 5 < 2 else 60):
                    answered[text] = await server.deliver(number, text)
            except Gone:
                return
            except TimeoutError:
                pass
            sent += 1

    async def kill(server: Any) -> None:
        while len(set(effects(folder))) < len(notes) // 2:
            await asyncio.sleep(0.005)
        server.kill()

    async with opened(folder, is_second=False) as server:
        await server.begin()
        deliveries = [one(server, 5 * at + again, text) for at, text in enumerate(notes) for again in range(5)]
        await asyncio.gather(kill(server), *deliveries)
        await server.end()
    # What a client gave up may have reached it all the same; from then on the same call would be a new one.
    left = [text for text in notes if text not in answered and text not in given_up]
    assert answered
    assert left
    async with opened(folder, is_second=True) as server:
        await server.begin()
        twice = [text for text in left for _ in range(2)]
        again = [one(server, 5 * count + number, text) for number, text in enumerate(twice)]
        await asyncio.gather(*again)
        await server.end()
    started = Counter(effects(folder))
    for text in left:
        envelope = answered[text].get("structuredContent") or {}
        if "ok" in envelope and not envelope["ok"]:
            # Cut by the kill: nobody knows whether it was started, so it is not started again.
            assert (envelope["error"]["type"], envelope["error"]["partialSideEffects"]) == ("CONFLICT", True)
        else:
            assert started[text] >= 1
    return started, sent


def figures_of(started: Counter[str], sent: int) -> str:
    doubled = sum(times > 1 for times in started.values())
    return f"{sent} deliveries, {len(started)} notes started, {doubled} doubled"


WAYS = {"http": over_http, "pipes": over_pipes("-m", "handrail", "mcp")}


@pytest.mark.parametrize("way", WAYS)
async def test_no_delivery_of_many_starts_a_write_twice_though_the_server_is_killed(
    tmp_path: Path, way: str, record_figures: RecordFigures
) -> None:
    started, sent = await storm(WAYS[way], project(tmp_path), 150)
    record_figures(figures_of(started, sent))
    assert set(started.values()) == {1}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_a_hundred_thousand_deliveries_both_ways_start_no_write_twice(
    tmp_path: Path, way: str, record_figures: RecordFigures
) -> None:
    deliveries = 0
    for part in range(10):
        started, sent = await storm(WAYS[way], project(tmp_path / str(part)), 10_000)
        record_figures(figures_of(started, sent))
        assert set(started.values()) == {1}
        deliveries += sent
    assert deliveries >= 50_000  # what comes after the server was killed is none


REFUSED = ("TRANSIENT", "IN_PROGRESS", "LOOP_DETECTED")
"""What a client hears of a call that was not made now."""


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_deliveries_through_server_and_gateway_start_the_tool_behind_them_once(
    tmp_path: Path, way: str, record_figures: RecordFigures
) -> None:
    """Clients repeat and race, the server behind the gateway dies four times, and then Handrail itself."""
    scripted, folder = Scripted(tmp_path / "scripted"), tmp_path / "project"
    folder.mkdir()
    await pin(folder, {"box": free(scripted)})
    table = f"command = {json.dumps(scripted.command)}\nstartup_seconds = 30\ntools.note.confirm = false\n"
    (folder / "handrail.toml").write_text(f"[mcp.servers.box]\n{table}")
    notes = [f"note-{number}" for number in range(250)]
    answers: dict[str, dict[str, Any]] = {}
    gate, numbers = asyncio.Semaphore(16), count()
    delivered: Counter[str] = Counter()

    async def one(server: Any, text: str) -> None:
        async with gate:
            while True:
                try:
                    envelope = (await server.deliver(next(numbers), text))["structuredContent"]
                except Gone:
                    return
                delivered["ok" if envelope["ok"] else envelope["error"]["type"]] += 1
                if envelope["ok"] or envelope["error"]["type"] not in REFUSED:
                    answers[text] = envelope
                    return
                await asyncio.sleep(0.5)  # the server behind is not there, and nothing was sent

    async def reached(calls: int) -> None:
        while len(scripted.calls()) < calls:
            await asyncio.sleep(0.005)

    async def disturb(server: Any) -> None:
        for calls in (20, 50, 80, 110):
            await reached(calls)
            scripted.says(call="die after effect")
            await reached(len(scripted.calls()) + 1)
            scripted.says()
        await reached(150)
        server.kill()

    for is_second in (False, True):
        async with WAYS[way](folder, is_second=is_second) as server:
            server.tool = "box_note"
            await server.begin()
            left = [text for text in notes if text not in answers]
            disturbing = None if is_second else asyncio.create_task(disturb(server))
            await asyncio.gather(*(one(server, text) for text in left for _ in range(3)))
            assert disturbing is None or disturbing.done(), delivered
            await server.end()
    started = Counter(call["args"]["text"] for call in scripted.calls())
    record_figures(f"{figures_of(started, delivered.total())}: {dict(delivered)}")
    assert max(started.values()) == 1
    assert answers.keys() == set(notes)
    assert delivered["ok"] > len(notes)
    cut = {text: one["error"] for text, one in answers.items() if not one["ok"]}
    assert cut, "what ran when something died"
    assert all(error["partialSideEffects"] and error["type"] in ("CONFLICT", "INTERNAL") for error in cut.values())
    assert all(started[text] == 1 for text in answers.keys() - cut.keys())


PLAIN = """
import sys
sys.path.insert(0, ".")
from mcp.server.mcpserver import MCPServer
import notes

server = MCPServer("plain")

@server.tool()
async def send_note(text: str) -> str:
    return await notes.write(text)

server.run()
"""


async def test_the_same_storm_upon_the_same_tool_without_a_ledger_doubles(
    tmp_path: Path, record_figures: RecordFigures
) -> None:
    """The control: what the tests above find absent is there when nothing governs the calls."""
    folder = project(tmp_path)
    (folder / "plain.py").write_text(PLAIN)
    started, sent = await storm(over_pipes("plain.py"), folder, 150)
    record_figures(f"control without a ledger, {figures_of(started, sent)}")
    assert max(started.values()) > 1

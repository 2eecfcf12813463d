"""Writes that need no confirmation: until when the same call is a retry, and what a client's word that it is cancelled does."""

import json
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.mcp.conftest import Notes
from tests.mcp.served_project import effects, headers_of, project, request
from tests.mcp.server.test_bad_input import Piped
from tests.mcp.test_confirming import calls_kept, let_time_pass, retries_end
from tests.mcp.test_retries import HANDSHAKE, HELLO, call, message

LONG = "x" * 40_000
"""As text and as data its answer is more than a pipe holds."""
CANCELLED = "notifications/cancelled"


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


async def test_the_same_write_is_a_new_one_once_its_answer_is_long_delivered(notes: Notes) -> None:
    before = calls_kept(notes.folder).keys()
    async with httpx2.AsyncClient() as client:
        first, retry = [await call(client, notes, number, "send_note", {"text": "again"}) for number in (1, 2)]
        assert (first["ok"], retry["meta"]["replayed"]) == (True, True)
        assert effects(notes.folder).count("again") == 1
        await retries_end(notes.folder, calls_kept(notes.folder).keys() - before)
        third = await call(client, notes, 3, "send_note", {"text": "again"})
    assert third["ok"]
    assert "replayed" not in third["meta"]
    assert effects(notes.folder).count("again") == 2


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Piped]:
    client = Piped(project(tmp_path))
    yield client
    client.process.kill()
    client.process.communicate()


def ask_for(client: Piped, number: int, name: str, **args: Any) -> None:
    client.send(message_of(request(number, name, args)))


def message_of(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def answer_to(client: Piped, number: int) -> dict[str, Any]:
    while (found := client.next()).get("id") != number:
        pass
    result: dict[str, Any] = found["result"]["structuredContent"]
    return result


def test_an_answer_that_nobody_has_read_keeps_the_same_write_a_retry(tmp_path: Path, piped: Piped) -> None:
    ask_for(piped, 1, "send_note", text=LONG)
    assert piped.process.stdout is not None
    readable, _, _ = select.select([piped.process.stdout], [], [], 60)
    assert readable, "the beginning of the answer is there"
    (kept,) = calls_kept(tmp_path)
    let_time_pass(tmp_path, {kept})
    assert "delivered" not in calls_kept(tmp_path)[kept]
    piped.process.kill()
    later = Piped(tmp_path)
    try:
        ask_for(later, 7, "send_note", text=LONG)
        answer = answer_to(later, 7)
        assert (answer["data"], answer["meta"]["replayed"]) == (LONG, True)
        assert effects(tmp_path) == [LONG]
        until(lambda: "delivered" in calls_kept(tmp_path)[kept])
    finally:
        later.end()


def test_over_pipes_a_cancelled_read_stops_and_a_cancelled_write_is_finished(tmp_path: Path, piped: Piped) -> None:
    ask_for(piped, 1, "wait", seconds=100.0)
    until(lambda: "waiting for 100.0" in effects(tmp_path))
    piped.send(message_of({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": 1}}))
    until(lambda: "stopped waiting" in effects(tmp_path))
    ask_for(piped, 2, "send_note", text="cut")
    until(lambda: "cut" in effects(tmp_path))
    piped.send(message_of({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": 2}}))
    ask_for(piped, 3, "send_note", text="cut")
    answer = answer_to(piped, 3)
    assert (answer["ok"], answer["data"]) == (True, "cut")
    assert effects(tmp_path).count("cut") == 1
    ask_for(piped, 4, "echo", text="still here")
    assert answer_to(piped, 4)["data"] == "still here"


@pytest.mark.parametrize("era", ["handshake", "2026-07-28"])
async def test_over_http_the_cancelling_of_an_unknown_request_harms_nothing(notes: Notes, era: str) -> None:
    cancelled = {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": 999}}
    async with httpx2.AsyncClient(timeout=30) as client:
        headers = {**headers_of(notes, "echo"), "Mcp-Method": CANCELLED}
        if era == "handshake":
            headers = {**notes.headers, "Accept": headers["Accept"]}
            opened = await client.post(notes.mcp, json=message(0, "initialize", HELLO), headers=headers)
            headers |= {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": HANDSHAKE}
        answer = await client.post(notes.mcp, json=cancelled, headers=headers)
        assert (answer.status_code, answer.content) == (202, b"")
        assert (await call(client, notes, 1, "echo", {"text": "still here"}))["data"] == "still here"

"""A held call through a client that is trusted to ask its user: the trusted preview, bound, once. Nothing else approves."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from tests.mcp.conftest import Notes
from tests.mcp.served_project import TASKS, Served, effects, send

from handrail.mcp.server.governed_calls import RETRY_MS


async def pay(server: Served, amount: int, **more: Any) -> dict[str, Any]:
    return await send(server, "tools/call", "pay", name="pay", arguments={"amount": amount}, **more)


def yes(approve: bool = True) -> dict[str, Any]:
    return {"confirmation": {"action": "accept", "content": {"approve": approve}}}


async def test_a_trusted_client_is_asked_with_the_preview_and_its_yes_runs_the_call_once(
    notes: Notes,
) -> None:
    asked = (await pay(notes, 5))["result"]
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["confirmation"]["params"]["message"].startswith("Pay 5 euros")
    state = asked["requestState"]
    answers = [await pay(notes, 5, inputResponses=yes(), requestState=state) for _ in range(2)]
    assert [answer["result"]["structuredContent"]["data"] for answer in answers] == ["paid 5", "paid 5"]
    assert effects(notes.folder).count("paid 5") == 1


async def test_a_state_approves_only_the_call_that_it_was_made_for(notes: Notes) -> None:
    state = (await pay(notes, 6))["result"]["requestState"]
    other = await pay(notes, 6_000, inputResponses=yes(), requestState=state)
    assert other["error"]["code"] == -32602
    forged = await pay(notes, 6, inputResponses=yes(), requestState=state[:-4] + "AAAA")
    assert forged["error"]["code"] == -32602
    without = await pay(notes, 6, inputResponses=yes())
    assert without["result"]["resultType"] == "input_required"
    assert not any(note in ("paid 6", "paid 6000") for note in effects(notes.folder))


async def test_a_no_runs_nothing(notes: Notes) -> None:
    state = (await pay(notes, 7))["result"]["requestState"]
    answer = (await pay(notes, 7, inputResponses=yes(approve=False), requestState=state))["result"]
    assert answer["structuredContent"]["error"]["type"] == "DECLINED"
    assert "paid 7" not in effects(notes.folder)


async def test_a_client_of_the_handshake_era_is_asked_over_its_connection(notes: Notes) -> None:
    shown: list[str] = []

    async def person(context: Any, params: Any) -> ElicitResult:
        shown.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    http = httpx2.AsyncClient(headers=notes.headers)
    async with (
        http,
        streamable_http_client(notes.mcp, http_client=http) as streams,
        ClientSession(*streams[:2], elicitation_callback=person) as client,
    ):
        await client.initialize()
        answer = await client.call_tool("pay", {"amount": 8})
    assert answer.structured_content["data"] == "paid 8"
    assert len(shown) == 1
    assert shown[0].startswith("Pay 8 euros")
    assert effects(notes.folder).count("paid 8") == 1


def calls_kept(folder: Path) -> dict[str, str]:
    """What says of which calls that an identical one is a retry."""
    with closing(sqlite3.connect(folder / "handrail.db", timeout=5)) as db:
        return dict(db.execute("SELECT id, body FROM document WHERE kind = 'mcp-call'"))


async def retries_end(folder: Path, calls: set[str]) -> None:
    """Time passes for these calls until none that is identical is a retry, which starts when their answers were delivered."""
    async with asyncio.timeout(10):
        while not all("delivered" in calls_kept(folder)[call] for call in calls):
            await asyncio.sleep(0.02)
    let_time_pass(folder, calls)


def let_time_pass(folder: Path, calls: set[str]) -> None:
    """As long as a delivered call can be met by a retry."""
    with closing(sqlite3.connect(folder / "handrail.db", timeout=5)) as db:
        passed = [(RETRY_MS, call) for call in calls]
        db.executemany("UPDATE document SET expires_at = expires_at - ? WHERE id = ?", passed)
        db.commit()


async def test_what_was_answered_is_asked_anew_once_the_client_has_had_the_outcome(notes: Notes) -> None:
    before = calls_kept(notes.folder).keys()
    for amount, approve in ((30, True), (31, False)):
        state = (await pay(notes, amount))["result"]["requestState"]
        answer = await pay(notes, amount, inputResponses=yes(approve), requestState=state)
        assert answer["result"]["structuredContent"]["ok"] is approve
    await retries_end(notes.folder, calls_kept(notes.folder).keys() - before)
    for amount in (30, 31):
        assert (await pay(notes, amount))["result"]["resultType"] == "input_required"
    assert effects(notes.folder).count("paid 30") == 1


async def test_a_held_call_is_a_task_for_a_client_that_knows_tasks(notes: Notes) -> None:
    made = (await pay(notes, 9, meta=TASKS))["result"]
    assert made["resultType"] == "task"
    task = made["taskId"]
    working = (await send(notes, "tasks/get", task, meta=TASKS, taskId=task))["result"]
    assert working["status"] == "working"
    assert "confirmation.html#" in working["statusMessage"]
    again = (await pay(notes, 9))["result"]
    done = await pay(notes, 9, inputResponses=yes(), requestState=again["requestState"])
    assert done["result"]["structuredContent"]["data"] == "paid 9"
    ended = (await send(notes, "tasks/get", task, meta=TASKS, taskId=task))["result"]
    assert ended["status"] == "completed"
    assert ended["result"]["structuredContent"]["data"] == "paid 9"
    assert effects(notes.folder).count("paid 9") == 1

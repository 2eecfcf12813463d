"""What belongs to one principal is not there for another: its tasks, its large results, what its client carries for us."""

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.mcp.conftest import MAX_RESULT_BYTES, Notes
from tests.mcp.served_project import KEY, TASKS, effects, send
from tests.runtime.conftest import make_tools
from tests.runtime.kit import utility

from handrail.mcp.server.governed_calls import GovernedCalls
from handrail.mcp.server.options import Principal
from handrail.mcp.server.sealer import Sealer
from handrail.stores import open_store

__all__ = ["make_tools"]

ANA = Principal("ana", "key:laptop")
YES = {"confirmation": {"action": "accept", "content": {"approve": True}}}


async def pay(server: Notes, amount: int, key: str, **more: Any) -> dict[str, Any]:
    return await send(server, "tools/call", "pay", key=key, name="pay", arguments={"amount": amount}, **more)


async def test_a_client_that_is_not_trusted_is_given_the_link_though_it_could_ask(notes: Notes) -> None:
    answer = (await pay(notes, 40, notes.laptop))["result"]
    assert answer["resultType"] == "complete"
    assert answer["structuredContent"]["error"]["type"] == "CONFIRMATION_REQUIRED"
    assert f"{notes.url}/console/confirmation.html#" in answer["structuredContent"]["error"]["message"]
    assert (await pay(notes, 41, notes.desk))["result"]["resultType"] == "input_required"


async def test_a_state_is_opened_for_the_client_alone_that_was_given_it(notes: Notes) -> None:
    state = (await pay(notes, 42, KEY))["result"]["requestState"]
    for other in (notes.desk, notes.laptop):
        refused = await pay(notes, 42, other, inputResponses=YES, requestState=state)
        assert refused["error"]["code"] == -32602
        assert "another request" in refused["error"]["message"]
    assert "paid 42" not in effects(notes.folder)


async def test_a_task_is_there_for_the_client_alone_that_made_it(notes: Notes) -> None:
    made = await send(notes, "tools/call", "pay", TASKS, notes.laptop, name="pay", arguments={"amount": 43})
    task = made["result"]["taskId"]
    for method, more in (("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})):
        for other in (notes.desk, KEY):
            refused = await send(notes, method, task, TASKS, other, taskId=task, **more)
            assert refused["error"]["code"] == -32602, method
    own = await send(notes, "tasks/get", task, TASKS, notes.laptop, taskId=task)
    assert own["result"]["status"] == "working"


async def test_a_large_result_is_read_by_the_client_alone_that_asked_for_it(notes: Notes) -> None:
    text = "x" * MAX_RESULT_BYTES
    made = await send(notes, "tools/call", "echo", key=notes.laptop, name="echo", arguments={"text": text})
    uri = made["result"]["content"][1]["uri"]
    for other in (notes.desk, KEY):
        assert (await send(notes, "resources/read", uri, key=other, uri=uri))["error"]["code"] == -32602
    own = await send(notes, "resources/read", uri, key=notes.laptop, uri=uri)
    assert text in own["result"]["contents"][0]["text"]


async def test_a_state_is_opened_until_its_time_is_over() -> None:
    store = open_store("memory:")
    await store.open()
    state = await Sealer(store, 60).seal(ANA, "tools/call:echo", {"call": "one"})
    assert (await Sealer(store, 60).open(ANA, "tools/call:echo", state))["call"] == "one"
    late = await Sealer(store, 0).seal(ANA, "tools/call:echo", {"call": "one"})
    with pytest.raises(MCPError, match="too old"):
        await Sealer(store, 60).open(ANA, "tools/call:echo", late)


async def test_principals_without_end_leave_few_sessions_open_and_come_back_to_theirs(make_tools: Any) -> None:
    runtime = make_tools({"look": (utility(), "def execute(args, ctx): return 1\n")}).runtime()
    calls = GovernedCalls(runtime, max_sessions=3)
    users = [Principal(f"user {number}", "key:laptop") for number in range(12)]
    ids = [(await calls.session(user)).id for user in users]
    assert len(set(ids)) == len(users)
    assert len(runtime.sessions) <= 3
    again = await asyncio.gather(*(calls.session(users[0]) for _ in range(5)))
    assert {session.id for session in again} == {ids[0]}


async def test_the_principal_that_was_away_for_longest_is_let_go_of_unless_it_is_back(
    make_tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_tools({"look": (utility(), "def execute(args, ctx): return 1\n")}).runtime()
    calls = GovernedCalls(runtime, max_sessions=2)
    users = [Principal(f"user {number}", "key:laptop") for number in range(4)]
    first, second = [await calls.session(user) for user in users[:2]]
    assert await calls.session(users[0]) is first
    ended = list[str]()
    monkeypatch.setattr(runtime, "left_session", lambda session: ended.append(session.id))
    await calls.session(users[2])
    assert (first.id in runtime.sessions, second.id in runtime.sessions) == (True, False)
    assert ended == [], "what is let go of has not ended"
    save = runtime.save

    async def change_meanwhile(*sessions: Any) -> None:
        await save(*sessions)
        if first in sessions:
            first.dirty = True

    monkeypatch.setattr(runtime, "save", change_meanwhile)
    await calls.session(users[3])
    assert runtime.sessions.get(first.id) is first
    assert len(runtime.sessions) == 2

"""A framework's calls come through one door: in the order that the model asked for, with an envelope for each."""

import asyncio
import sys

import pytest
from tests.adopt.kit import SHOP, adopted

from handrail.adopt import to_langchain, to_openai_agents, to_pydantic_ai
from handrail.adopt.exporting.framework_session import FrameworkSession
from handrail.contract.errors import UsageError

SLOW = """
    import asyncio
    from handrail import tool

    SEEN = []

    @tool(category="utility", side_effects="read_only")
    async def look(name: str) -> str:
        "Look."
        SEEN.append(f"look {name}")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        SEEN.append(f"looked {name}")
        return name

    GO = asyncio.Event()

    @tool(category="utility", side_effects="read_only")
    async def stare() -> str:
        "Look until told to stop."
        SEEN.append("stare")
        await GO.wait()
        SEEN.append("stared")
        return "."

    @tool(category="action", side_effects="writes", waivers={"action-unconfirmed": "a test"})
    async def change(name: str) -> str:
        "Change."
        SEEN.append(f"change {name}")
        await asyncio.sleep(0)
        SEEN.append(f"changed {name}")
        return name
"""


def seen(tools):
    """What the module's handlers noted."""
    tool = next(iter(tools.snapshot))
    return sys.modules[tool.handler.execute.__module__].SEEN


async def test_a_writing_call_waits_for_those_before_it_and_is_waited_for(tmp_path):
    with adopted(tmp_path, SLOW) as tools:
        async with tools.runtime() as runtime:
            door = FrameworkSession(await runtime.open_session(), "test", None, "session")
            calls = [("look", "a"), ("look", "b"), ("change", "c"), ("look", "d"), ("change", "e")]
            answers = await asyncio.gather(*(door.call(tool, {"name": name}, f"call_{name}") for tool, name in calls))
            assert [answer.data for answer in answers] == list("abcde")
            order = seen(tools)
            assert set(order[:2]) == {"look a", "look b"}  # side by side
            assert order[4:] == [
                *("change c", "changed c", "look d", "looked d", "change e", "changed e"),
            ]


async def test_a_writing_call_does_not_start_while_one_before_it_reads(tmp_path):
    with adopted(tmp_path, SLOW) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            door = FrameworkSession(session, "test", None, "session")
            assert (await door.call("change", {"name": "a"}, "0")).ok
            looking = asyncio.create_task(door.call("stare", {}, "1"))
            changing = asyncio.create_task(door.call("change", {"name": "b"}, "2"))
            for _ in range(500):
                await asyncio.sleep(0)
            assert seen(tools)[2:] == ["stare"]
            sys.modules[tools.snapshot.tool("stare").handler.execute.__module__].GO.set()
            await asyncio.gather(looking, changing)
            assert seen(tools)[2:] == ["stare", "stared", "change b", "changed b"]


async def test_a_cancelled_call_does_not_hold_up_the_next_one(tmp_path):
    with adopted(tmp_path, SLOW) as tools:
        async with tools.runtime() as runtime:
            door = FrameworkSession(await runtime.open_session(), "test", None, "session")
            first = asyncio.create_task(door.call("look", {"name": "a"}, "1"))
            waiting = asyncio.create_task(door.call("change", {"name": "b"}, "2"))
            await asyncio.sleep(0)
            waiting.cancel()
            assert (await door.call("look", {"name": "c"}, "3")).ok
            assert (await first).ok
            assert "change b" not in seen(tools)


async def test_a_handler_that_calls_through_its_own_door_does_not_wait_for_itself(tmp_path):
    source = (
        SLOW
        + """
    DOOR = []

    @tool(category="action", side_effects="writes", waivers={"action-unconfirmed": "a test"})
    async def both(name: str) -> str:
        "Look and change."
        return (await DOOR[0].call("change", {"name": name}, "inner")).data
"""
    )
    with adopted(tmp_path, source) as tools:
        async with tools.runtime() as runtime:
            door = FrameworkSession(await runtime.open_session(), "test", None, "session")
            handler = tools.snapshot.tool("both").handler.execute
            sys.modules[handler.__module__].DOOR.append(door)
            async with asyncio.timeout(30):
                assert (await door.call("both", {"name": "x"}, "outer")).data == "x"


async def test_only_what_the_session_may_use_is_given_and_an_unknown_name_is_refused(tmp_path):
    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            assert [d.tool_id for d in FrameworkSession(session, "test", ["find_book"], "session").definitions] == [
                "find_book"
            ]
            with pytest.raises(UsageError, match='no tool "find_bok" on offer'):
                FrameworkSession(session, "test", ["find_bok"], "session")


@pytest.mark.parametrize(
    ("give", "package"),
    [(to_langchain, "langchain-core"), (to_pydantic_ai, "pydantic-ai-slim"), (to_openai_agents, "openai-agents")],
    ids=["langchain", "pydantic-ai", "openai-agents"],
)
async def test_a_missing_framework_is_one_sentence_that_says_what_to_install(tmp_path, monkeypatch, give, package):
    for name in ("langchain_core", "langchain_core.tools", "pydantic_ai", "pydantic_ai.tools", "agents"):
        monkeypatch.setitem(sys.modules, name, None)
    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            with pytest.raises(UsageError, match=f"pip install {package}"):
                give(await runtime.open_session())


def test_tools_are_handed_over_where_the_session_lives():
    with pytest.raises(UsageError, match="in a coroutine"):
        FrameworkSession(object(), "test", None, "session")


async def test_an_id_that_a_model_uses_again_is_another_call_but_a_step_that_is_run_again_is_not(tmp_path):
    """A framework does not say which server it asks; many count calls from 0 in every message."""
    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            (order,) = to_langchain(session, only=["order_book"])

            async def ordered(title):
                call = {"type": "tool_call", "id": "call_0", "name": "order_book", "args": {"title": title}}
                return (await order.ainvoke(call)).artifact

            await session.begin_turn()
            assert (await ordered("Emma"))["data"] == {"ordered": "Emma"}
            assert (await ordered("Emma"))["meta"]["replayed"] is True, "the framework runs its step again"
            assert (await ordered("Ulysses"))["data"] == {"ordered": "Ulysses"}
            await session.begin_turn()
            assert "replayed" not in (await ordered("Emma"))["meta"]
            assert seen(tools) == [("order_book", title) for title in ("Emma", "Ulysses", "Emma")]

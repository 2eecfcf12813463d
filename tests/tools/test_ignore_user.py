"""ignore_user: the block holds everywhere, in every process and after a restart, and ends by itself."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests.tools.reference import fits, in_virtual_time, kind, reference, sent, shown

from handrail.contract.errors import UsageError
from handrail.contract.store import Block
from handrail.stores import MemoryStore
from handrail.testing import VirtualClock

FAREWELL = "We can talk again in a minute."
MINUTE = {"duration_seconds": 60, "farewell_message": FAREWELL}


@pytest.fixture(scope="module")
def tools():
    with reference("ignore_user", "send_image", "validate_email") as kit:
        yield kit


async def test_a_blocked_user_is_refused_with_the_seconds_left_until_the_time_is_over(tools):
    clock = VirtualClock()
    async with in_virtual_time(tools, clock) as runtime:
        session = await runtime.open_session(user="u1")
        answer = await session.call("ignore_user", MINUTE, call_id="c1")
        until = round((clock.time() + 60) * 1000)
        facts = {"timeoutUntil": until, "durationSeconds": 60, "farewellMessage": FAREWELL}
        assert answer.data == facts
        assert sent(session) == [{"type": "timeout", **facts}]
        assert [intent.to_dict() for intent in answer.intents] == [{"type": "BLOCK_USER", "until": until / 1000}]
        other = await runtime.open_session(user="u1")
        stranger = await runtime.open_session(user="u2")
        elsewhere = await runtime.open_session(user="u1", tenant="another")
        for passed in (0, 20, 39.5):
            await clock.advance(passed)
            left = until / 1000 - clock.time()
            for blocked in (session, other):
                await blocked.begin_turn()
                refused = await blocked.call("validate_email", {"email": f"a{passed}@example.com"})
                assert kind(refused) == "AUTH"
                assert refused.error.retry_after == pytest.approx(left)
            for free in (stranger, elsewhere):
                assert (await free.call("validate_email", {"email": f"a{passed}@example.com"})).ok
        await clock.advance(0.5)
        for again in (session, other):
            await again.begin_turn()
            assert (await again.call("validate_email", {"email": "ana@example.com"})).ok


async def test_in_voice_the_farewell_is_spoken_before_anything_falls_silent(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice", user="u1")
        answer = await session.call("ignore_user", MINUTE)
        assert [intent.type for intent in answer.intents] == ["BLOCK_USER", "END_VOICE_SESSION", "SUPPRESS_TRANSCRIPT"]
        pending = session.state.get("pendingEndVoiceSession")
        assert (pending["after"], pending["closingMessage"]) == ("farewell_spoken", FAREWELL)
        assert session.state.get("shouldSuppressTranscript") is True
        assert session.state.get("shouldSuppressAudio") is False


async def test_the_same_call_again_is_answered_though_the_user_is_blocked(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(user="u1")
        first = await session.call("ignore_user", MINUTE, call_id="c1")
        again = await session.call("ignore_user", MINUTE, call_id="c1")
        assert again.meta["replayed"]
        assert (again.data, again.intents) == (first.data, first.intents)
        assert len(sent(session)) == 1


class Meeting:
    """A host's own messaging, at which calls wait for each other: both handlers have started before either ends."""

    def __init__(self, count):
        self.barrier = asyncio.Barrier(count)

    async def send(self, message):
        await self.barrier.wait()


@pytest.mark.parametrize("order", [(60, 3600), (3600, 60)], ids=["shorter first", "longer first"])
async def test_a_longer_block_wins(tools, order):
    clock = VirtualClock()
    async with in_virtual_time(tools, clock, capabilities={"messaging": Meeting(2)}) as runtime:
        sessions = [await runtime.open_session(user="u1") for _ in order]
        calls = [
            session.call("ignore_user", {"duration_seconds": seconds, "farewell_message": "Bye."})
            for session, seconds in zip(sessions, order, strict=True)
        ]
        assert all(answer.ok for answer in await asyncio.gather(*calls))
        refused = await sessions[1].call("validate_email", {"email": "ana@example.com"})
        assert refused.error.retry_after == pytest.approx(3600)
        await clock.advance(61)
        refused = await sessions[0].call("validate_email", {"email": "ana@example.com"})
        assert refused.error.retry_after == pytest.approx(3600 - 61)
        await clock.advance(3539)
        assert (await sessions[0].call("validate_email", {"email": "ana@example.com"})).ok


async def test_a_block_set_by_another_process_refuses_a_write_at_once(tools):
    clock = VirtualClock()
    store = MemoryStore(clock=clock.milliseconds)
    async with in_virtual_time(tools, clock, store=store) as runtime:
        session = await runtime.open_session(user="u1")
        await store.block(Block(tenant="", user="u1", until=clock.milliseconds() + 90_000))
        refused = await session.call("ignore_user", MINUTE)
        assert (kind(refused), refused.error.retry_after) == ("AUTH", 90)
        assert sent(session) == []


CHILD = """
import asyncio, json, sys
from handrail import Registry, Runtime

async def main(artifact, folder, database, tool, args):
    registry = Registry.load(artifact, tools_root=folder)
    registry.lock()
    async with Runtime(registry, store=f"sqlite:///{database}") as runtime:
        session = await runtime.open_session(user="u1")
        await session.begin_turn("m1")
        print(json.dumps((await session.call(tool, json.loads(args))).to_dict()))

asyncio.run(main(*sys.argv[1:]))
"""


def _in_a_process_of_its_own(tools, database, tool, args):
    built = [str(tools.registry._path), str(tools.registry._tools_root)]
    command = [sys.executable, "-c", dedent(CHILD), *built, str(database), tool, json.dumps(args)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


async def test_the_block_of_a_process_that_is_gone_holds_in_every_other(tools, tmp_path: Path):
    database = tmp_path / "store.db"
    async with tools.runtime(store=f"sqlite:///{database}") as running:
        session = await running.open_session(user="u1")
        await session.begin_turn("m1")
        hour = {"duration_seconds": 3600, "farewell_message": "Bye."}
        blocked = await asyncio.to_thread(_in_a_process_of_its_own, tools, database, "ignore_user", hour)
        assert blocked["ok"]
        until = blocked["data"]["timeoutUntil"] / 1000
        # This process was there before the block: a write is refused at once, a read as soon as it has learnt of it.
        refused = await session.call("send_image", {"image_url": "https://example.com/a.png"})
        assert kind(refused) == "AUTH"
        assert 0 < refused.error.retry_after <= 3600
        answers = [await session.call("validate_email", {"email": "a@example.com"}, call_id="c0")]
        while answers[-1].ok:
            await asyncio.sleep(0.05)
            email = f"a{len(answers)}@example.com"
            answers.append(await session.call("validate_email", {"email": email}, call_id=f"c{len(answers)}"))
        assert (kind(answers[-1]), answers[-1].error.retry_after > 3000) == ("AUTH", True)
        later = await asyncio.to_thread(
            _in_a_process_of_its_own, tools, database, "validate_email", {"email": "ana@example.com"}
        )
        assert later["error"]["type"] == "AUTH"
        assert 0 < later["error"]["retryAfter"] <= 3600
        assert session.core.blocks["", "u1"] == round(until * 1000)


async def test_what_was_done_is_in_the_audit_under_a_name_of_the_tool_s_own(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(user="u1")
        await session.call("ignore_user", MINUTE, call_id="c1")
        notes = [event for event in runtime.audit.events if event["event"] == "tool:user_blocked"]
        assert [(note["toolId"], note["data"]["durationSeconds"]) for note in notes] == [("ignore_user", 60)]


async def test_in_a_session_that_has_ended_it_is_refused(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(user="u1")
        await session.close()
        assert kind(await session.call("ignore_user", MINUTE)) == "SESSION_INACTIVE"


async def test_where_nobody_is_signed_in_the_session_alone_is_blocked(tools, tmp_path):
    clock, store = VirtualClock(), f"sqlite:///{tmp_path / 'blocks.db'}"
    async with tools.runtime(store=store, clock=clock) as runtime:
        session, other = await runtime.open_session(), await runtime.open_session()
        assert (await session.call("ignore_user", MINUTE)).ok
        refused = await session.call("validate_email", {"email": "ana@example.com"})
        assert kind(refused) == "AUTH"
        assert refused.error.retry_after == pytest.approx(60, abs=1)
        assert (await other.call("validate_email", {"email": "ana@example.com"})).ok
        known = session.id, session.token
    async with tools.runtime(store=store, clock=clock) as runtime:  # it holds after a restart, and ends by itself
        again = await runtime.resume_session(known[0], token=known[1])
        assert kind(await again.call("validate_email", {"email": "ana@example.com"})) == "AUTH"
        await clock.advance(61)
        assert (await again.call("validate_email", {"email": "bo@example.com"})).ok


async def test_a_host_extends_a_block_and_never_shortens_it(tools):
    clock = VirtualClock()
    async with in_virtual_time(tools, clock) as runtime:
        session = await runtime.open_session(user="u1")
        assert (await session.call("ignore_user", MINUTE)).ok
        assert await runtime.block_user("u1", 3600) == pytest.approx(clock.time() + 3600, abs=1)
        assert await runtime.block_user("u1", 5) == pytest.approx(clock.time() + 3600, abs=1)
        await clock.advance(61)
        assert session.blocked_for() == pytest.approx(3539, abs=1)


@pytest.mark.parametrize(("user", "seconds"), [("", 60), ("u1", 0), ("u1", -5), ("u1", 10**9)])
async def test_a_block_that_makes_no_sense_is_refused_in_a_sentence(tools, user, seconds):
    async with tools.runtime() as runtime:
        with pytest.raises(UsageError, match="A block needs a user"):
            await runtime.block_user(user, seconds)
        assert runtime.blocks == {}


@pytest.mark.parametrize(
    "args",
    [
        {"duration_seconds": 29, "farewell_message": "Bye."},
        {"duration_seconds": 86401, "farewell_message": "Bye."},
        {"duration_seconds": 60.5, "farewell_message": "Bye."},
        {"duration_seconds": 60, "farewell_message": ""},
        {"duration_seconds": 60, "farewell_message": " \n"},
        {"duration_seconds": 60, "farewell_message": "a" * 201},
        {"duration_seconds": 60},
    ],
    ids=["too short", "too long", "half", "empty", "blank", "long farewell", "no farewell"],
)
async def test_arguments_outside_of_the_schema_block_nobody(tools, args):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(user="u1")
        assert kind(await session.call("ignore_user", args)) == "VALIDATION"
        assert session.blocked_for() == 0


async def test_the_examples_of_the_guide_give_what_it_shows(tools):
    for args, response in shown(tools, "ignore_user"):
        async with in_virtual_time(tools, VirtualClock()) as runtime:
            session = await runtime.open_session(user="u1")
            assert fits(await session.call("ignore_user", args), response)

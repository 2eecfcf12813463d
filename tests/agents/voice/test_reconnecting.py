"""The provider's line breaks: in mid-call, before the answer, at a go-away. Nothing is lost, and nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from tests.agents.voice.kit import VoiceCase, voice
from tests.clients.live.kit import PROVIDERS

from handrail.contract.model import ToolMessage
from handrail.contract.store import Claim, ClaimResult, TurnStart
from handrail.testing.servers.live import Ask, Depart, Drop, Say, Turn, call
from handrail.testing.servers.script import ScriptedCall

BOOK = call("book_table", guest="Ana")
FIND = call("find_table", place="window")
both = pytest.mark.parametrize("provider", PROVIDERS)


@both
async def test_a_call_outlives_its_connection_and_its_result_reaches_the_model_on_the_next(provider: str) -> None:
    turns = [Turn([Ask(BOOK, fault="drop"), Say("It is booked.")], hears="A table")]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.client.until("link", 3)
        case.tool_log.may_finish.set()
        await case.client.until(lambda client: "It is booked." in client.answers)

        assert [one["state"] for one in case.client.of("link")] == ["up", "lost", "up"]
        assert case.tool_log.of("book_table") == 1
        assert "reconnecting" in case.client.states
        assert case.client.of("cue") == [{"kind": "reconnected", "toolId": None}]
        assert case.voice.session.connection == 3
        assert case.server.complaints == []
        assert [one["ok"] for one in case.client.of("tool_finished")] == [True]


@both
async def test_an_answer_that_was_cut_off_on_its_way_is_told_again(provider: str) -> None:
    turns = [Turn([Ask(BOOK, fault="drop_answer"), Say("It is booked.")], hears="Hello")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until(lambda client: "It is booked." in client.answers)
        assert case.tool_log.of("book_table") == 1
        assert case.server.complaints == []


@both
async def test_a_call_issued_again_under_a_new_id_in_its_turn_meets_its_first_execution(provider: str) -> None:
    turns = [Turn([Ask(BOOK, fault="reissue"), Say("It is booked.")], hears="Hello")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until(lambda client: "It is booked." in client.answers)
        await case.client.until("tool_finished", 2)
        assert case.tool_log.of("book_table") == 1
        envelopes = [one.envelope for one in case.conversation.messages if isinstance(one, ToolMessage)]
        assert [envelope["data"]["receipt"] for envelope in envelopes] == [1, 1]
        assert "replayed" in envelopes[1]["meta"]


@both
@pytest.mark.parametrize("slow", ["keep", "claim"])
async def test_a_call_that_had_not_started_when_its_connection_was_replaced_starts_on_the_next(
    provider: str, slow: str
) -> None:
    turns = [Turn([Ask(BOOK, fault="drop"), Say("It is booked.")], hears="A table")]
    async with voice(provider, turns) as case:
        store, resumed = case.runtime.store, asyncio.Event()
        claim = store.claim

        async def keep() -> None:
            await resumed.wait()

        async def claim_later(one: Claim) -> ClaimResult:
            await resumed.wait()
            return await claim(one)

        if slow == "keep":
            case.conversation.keep = keep
        else:
            store.claim = claim_later  # type: ignore[method-assign]
        await case.speak()
        await case.client.until("link", 3)
        await case.voice.settled()
        assert case.tool_log.starts == []
        resumed.set()
        await case.client.until(lambda client: "It is booked." in client.answers)
        assert case.tool_log.of("book_table") == 1
        assert [one["ok"] for one in case.client.of("tool_finished")] == [True]


@both
async def test_a_call_that_had_not_started_and_is_made_again_on_the_next_connection_writes_once(provider: str) -> None:
    """The store is slow with the turn, so that the new connection is there before the first call is known."""
    turns = [Turn([Ask(BOOK, fault="reissue"), Say("It is booked.")], hears="A table")]
    async with voice(provider, turns) as case:
        store, stored, kept, keeping = case.runtime.store, asyncio.Event(), asyncio.Event(), asyncio.Event()
        begin = store.begin_turn

        async def begin_later(*given: Any, **named: Any) -> TurnStart:
            await stored.wait()
            return await begin(*given, **named)

        async def keep() -> None:
            keeping.set()
            await kept.wait()

        store.begin_turn = begin_later  # type: ignore[method-assign]
        case.conversation.keep = keep
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.client.until("link", 3)
        stored.set()
        await keeping.wait()
        await case.voice.settled()
        kept.set()
        await case.client.until("tool_started", 2)
        case.tool_log.may_finish.set()
        await case.client.until("tool_finished", 2)
        assert case.tool_log.of("book_table") == 1


@both
async def test_a_call_that_is_taken_back_while_it_changes_its_connection_does_not_start(provider: str) -> None:
    turns = [Turn([Ask(BOOK, fault="drop"), Say("It is booked.")], hears="A table")]
    async with voice(provider, turns) as case:
        store, resumed, kept, moving = case.runtime.store, asyncio.Event(), asyncio.Event(), asyncio.Event()
        claim, keeps = store.claim, []

        async def claim_later(one: Claim) -> ClaimResult:
            await resumed.wait()
            return await claim(one)

        async def keep() -> None:
            keeps.append("kept")
            if len(keeps) == 2:
                moving.set()
                await kept.wait()

        store.claim = claim_later  # type: ignore[method-assign]
        case.conversation.keep = keep
        await case.speak()
        await case.client.until("link", 3)
        await case.voice.settled()
        resumed.set()
        await moving.wait()
        await case.voice.interrupt()
        await case.voice.settled()
        kept.set()
        await case.client.until(lambda client: client.of("tool_finished") or client.of("tool_refused"))
        assert case.tool_log.starts == []


@asynccontextmanager
async def made_again(provider: str, first: ScriptedCall, second: ScriptedCall) -> AsyncIterator[VoiceCase]:
    """After two calls: the first lost its connection while it ran, the second was made in the next turn."""
    turns = [
        Turn([Ask(first, fault="drop")], hears="A table for Ana"),
        Turn([Ask(second), Say("It is booked.")], hears="Are you there?"),
    ]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.client.until("link", 3)
        await case.speak()
        await case.client.until("tool_started", 2)
        case.tool_log.may_finish.set()
        await case.client.until(lambda client: "It is booked." in client.answers)
        yield case


@both
async def test_a_call_issued_again_in_a_later_turn_meets_the_first_while_its_outcome_is_not_known(
    provider: str,
) -> None:
    async with made_again(provider, BOOK, BOOK) as case:
        assert case.tool_log.of("book_table") == 1
        turns_told = [one["turn"] for one in case.client.of("turn")]
        assert len(set(turns_told)) == 2
        envelopes = [one.envelope for one in case.conversation.messages if isinstance(one, ToolMessage)]
        assert [envelope["data"]["receipt"] for envelope in envelopes] == [1, 1]
        assert envelopes[1]["meta"]["replayed"] is True
        assert envelopes[1]["meta"]["duplicateOf"] == "fc-1" or provider == "openai-realtime"


SAME = [
    pytest.param(call("reserve_table", guest="Ana"), call("reserve_table", guest="Ana", note="none"), id="default"),
    pytest.param(
        call("reserve_table", guest="A", note="none"), call("reserve_table", guest="A"), id="default left out"
    ),
    pytest.param(
        call("reserve_table", guest="Ana", seats=12), call("reserve_table", guest="Ana", seats=9), id="clamped"
    ),
    pytest.param(call("keep_table", guest="Ana"), call("keep_table", guest="Ana", note="A window"), id="dedupe fields"),
]
OTHER = [
    pytest.param(call("reserve_table", guest="Ana"), call("reserve_table", guest="Ana", note="A window"), id="note"),
    pytest.param(call("reserve_table", guest="A", seats=2), call("reserve_table", guest="A", seats=3), id="seats"),
    pytest.param(call("keep_table", guest="Ana"), call("keep_table", guest="Bob"), id="dedupe fields"),
    pytest.param(call("keep_table", guest="Ana"), call("reserve_table", guest="Ana"), id="tool"),
]


@both
@pytest.mark.parametrize(("first", "second"), SAME)
async def test_a_call_written_otherwise_in_a_later_turn_meets_the_first_if_the_ledger_takes_them_for_the_same(
    provider: str, first: ScriptedCall, second: ScriptedCall
) -> None:
    async with made_again(provider, first, second) as case:
        assert len(case.tool_log.starts) == 1


@both
@pytest.mark.parametrize(("first", "second"), OTHER)
async def test_another_call_in_a_later_turn_runs_beside_the_first(
    provider: str, first: ScriptedCall, second: ScriptedCall
) -> None:
    async with made_again(provider, first, second) as case:
        assert len(case.tool_log.starts) == 2


@both
async def test_a_call_made_again_by_a_model_that_knows_the_first_outcome_runs(provider: str) -> None:
    turns = [
        Turn([Ask(BOOK), Say("It is booked.")], hears="A table for Ana"),
        Turn([Ask(BOOK), Say("Another one is booked.")], hears="Another one"),
    ]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")
        await case.speak()
        await case.client.until("turn_done", 2)
        assert case.tool_log.of("book_table") == 2


@both
async def test_a_call_taken_back_by_an_interruption_and_made_again_does_not_write_twice(provider: str) -> None:
    turns = [
        Turn([Ask(BOOK), Say("It is booked.")], hears="Hello"),
        Turn([Ask(BOOK), Say("Booked now.")], hears="Book it"),
    ]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("book_table") == 1)
        await case.speak()
        await case.client.until("tool_started", 2)
        case.tool_log.may_finish.set()
        await case.client.until(lambda client: "Booked now." in client.answers)
        assert case.tool_log.of("book_table") == 1


@both
async def test_a_line_that_breaks_in_mid_answer_comes_back_and_the_model_goes_on(provider: str) -> None:
    turns = [Turn([Say("One."), Drop(), Say("And one more.")], hears="Count"), Turn([Say("Two.")], hears="And?")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")
        assert case.client.answers == ["One.\n\nAnd one more."]
        await case.speak()
        await case.client.until(lambda client: "Two." in client.answers)
        assert case.voice.session.connection == 3
        assert [one["turn"] for one in case.client.of("turn")] == [1, 2]


async def test_a_line_that_breaks_while_the_user_speaks_leaves_nobody_hearing() -> None:
    async with voice("openai-realtime", [Turn([Say("Yes?")], hears="Hello")]) as case:
        await case.client.until("link")
        await case.start_speaking()
        await case.client.until(lambda client: "hearing" in client.states)
        case.server.cut_all()
        await case.client.until("link", 3)
        assert case.client.states[-1] == "listening"
        await case.speak()
        await case.client.until("turn_done")
        assert case.client.answers == ["Yes?"]
        assert len(case.client.of("turn")) == 1


async def test_a_go_away_is_followed_at_a_quiet_moment_and_the_session_resumed() -> None:
    turns = [
        Turn([Say("One."), Depart(20), Ask(BOOK), Say("Booked.")], hears="Hello"),
        Turn([Say("Two.")], hears="And?"),
    ]
    async with voice("gemini-live", turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("book_table") == 1)
        assert case.client.of("link") == [{"state": "up", "number": 1}]
        case.tool_log.may_finish.set()
        await case.client.until("turn_done")
        await case.client.until("link", 3)
        await case.speak()
        await case.client.until(lambda client: "Two." in client.answers)
        assert case.server.setups[1]["sessionResumption"]["handle"]
        assert case.tool_log.of("book_table") == 1


@both
async def test_a_provider_that_cannot_be_had_again_ends_voice_and_the_session_goes_on_in_text(provider: str) -> None:
    async with voice(provider, [Turn([Say("One.")], hears="Hello")]) as case:
        await case.client.until("link")
        case.server.refuse_with = HTTPStatus.FORBIDDEN
        case.server.cut_all()
        async with asyncio.timeout(60):
            ending = await asyncio.shield(case.voice.ending)
        assert (ending.reason, ending.resumable) == ("provider_lost", True)
        assert case.client.told[-1][0] == "ended"
        assert case.voice.session.mode == "text"
        assert case.voice.hear(b"\0\0", 24_000) is False

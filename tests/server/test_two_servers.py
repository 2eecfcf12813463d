"""Two servers on one store: a turn belongs to its living owner, and a look takes nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.kit import KEYS, USER, ServerUnderTest, SessionClient, bearer, over_socket, text_of
from tests.server.voice.kit import connected, ticket_for, voice_server

from handrail.contract.conversations import Moved
from handrail.contract.store import HoldState, StoreUnavailable
from handrail.server.api.routes import sessions
from handrail.server.host import session_registry
from handrail.server.host.refusals import RefusalReason, SessionRefused
from handrail.server.options import Options
from handrail.server.voice.close_codes import RESTART
from handrail.server.voice.conversation_host import StoredTranscript
from handrail.server.voice.voice_protocol import PROTOCOL

WRITE = 'call post {"q": "30"}'
"""A writing call that runs until the test says so."""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the store that the servers share."""
    if request.param == "sqlite":
        return f"sqlite:////{tmp_path}/store.db"
    url: str = request.getfixturevalue("postgres").new_database()
    return url


@asynccontextmanager
async def two_servers(folder: Path, store: str) -> AsyncIterator[tuple[ServerUnderTest, ServerUnderTest]]:
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(over_socket(folder, store=store)) for _ in range(2)]
        yield made[0], made[1]


def at(server: ServerUnderTest, api: SessionClient) -> SessionClient:
    """The same client, with its session, at another server."""
    return SessionClient(server, api.key, api.opened)


async def started(server: ServerUnderTest, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while len(server.tools.started()) < count:
            await asyncio.sleep(0.01)


async def connection_of(server: ServerUnderTest, api: SessionClient) -> int:
    return (await server.runtime.store.load_session(api.id)).connection


async def ended(api: SessionClient) -> dict:
    async with asyncio.timeout(60):
        while (found := await api.show())["answering"] is not None:
            await asyncio.sleep(0.02)
    return found


@contextmanager
def ends_unstored(server: ServerUnderTest) -> Iterator[None]:
    """The store takes no end of a turn from this server."""
    kept = server.sessions.conversations
    finish = kept.finish

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("The store is away.")

    kept.finish = away
    try:
        yield
    finally:
        kept.finish = finish


@contextmanager
def owners_unknown(server: ServerUnderTest, failures: int = 1_000) -> Iterator[None]:
    """So often the store does not answer this server whose a session is."""
    kept = server.sessions.conversations
    owners, left = kept.owners, [None] * failures

    async def away(session_ids: Sequence[str]) -> dict[str, str]:
        if not left:
            return await owners(session_ids)
        left.pop()
        raise StoreUnavailable("The store is away.")

    kept.owners = away
    try:
        yield
    finally:
        kept.owners = owners


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(60):
        while text not in caplog.text:
            await asyncio.sleep(0.02)


async def test_a_look_never_takes_a_turn_from_a_living_owner(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post(WRITE, "m1")
        await started(first)
        shown = await there.show()
        assert shown["answering"] == "m1"
        assert [one["text"] for one in shown["messages"]] == [WRITE]
        async with there.listening() as stream:
            first.tools.go()
            events = await stream.until("done")
        assert text_of(events).strip() == "post: ok"
        assert (await ended(ana))["messages"][-1]["text"].strip() == "post: ok"
        assert [next(iter(mark)) for mark in first.tools.started()] == ["begun", "ended"]
        assert len(second.sessions) == 0
        assert await connection_of(first, ana) == 1
        assert (await there.show())["messages"] == (await ana.show())["messages"]


async def test_a_message_that_runs_elsewhere_is_answered_there_and_told_here(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post(WRITE, "m1")
        await started(first)
        joined = await there.post(WRITE, "m1")
        assert joined.status_code == 202
        telling = asyncio.create_task(there.say(WRITE, "m1"))
        first.tools.go()
        events = await telling
        assert [event.type for event in events][-1] == "done"
        assert events[-1].data["state"] == "done"
        assert text_of(events).strip() == "post: ok"
        assert len(first.tools.started()) == 2
        assert await connection_of(first, ana) == 1


async def test_another_message_waits_for_the_turn_that_runs_elsewhere(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post(WRITE, "m1")
        await started(first)
        for refused in (
            await there.post("hello", "m2"),
            await there.post("other words", "m1"),
            await second.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers),
            await second.client.delete(f"/api/sessions/{ana.id}", headers=ana.headers),
            await second.post(
                "/api/tools/look/try", {"args": {"q": "x"}, "sessionId": ana.id}, key=None, headers=ana.headers
            ),
        ):
            assert refused.status_code == 409, refused.text
        assert (await there.post("hello", "m2")).headers["retry-after"] == "2"
        first.tools.go()
        await ended(ana)
        assert text_of(await there.say("hello", "m2")).strip() == "You said: hello"


async def test_a_message_moves_an_idle_session_and_its_listeners_are_told(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.say("one", "m1")
        async with ana.listening() as stream:
            events = await there.say("two", "m2")
            assert text_of(events).strip() == "You said: two"
            assert (await stream.next()).type == "reconnect"
            assert await stream.next() is None
        assert await connection_of(first, ana) == 2
        shown = (await ana.show())["messages"]  # a look at the first one again: the session stays where it is
        assert [one["text"].strip() for one in shown] == ["one", "You said: one", "two", "You said: two"]
        assert await connection_of(first, ana) == 2
        assert (await ana.say("three", "m3"))[-1].data["turn"] == 3
        assert await connection_of(first, ana) == 3
        assert (await there.show())["messages"] == (await ana.show())["messages"]


async def test_a_stream_at_another_server_hears_turn_after_turn_and_goes_on_at_the_owner(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.say("one", "m1")
        async with there.listening(after=0) as stream:
            heard = await stream.until("done")
            await ana.say("two", "m2")
            heard += await stream.until("done")
        assert text_of(heard).split() == ["You", "said:", "one", "You", "said:", "two"]
        assert await connection_of(first, ana) == 1
        seen = heard[-1].id
        async with ana.listening(after=seen) as stream:
            await ana.say("three", "m3")
            events = await stream.until("done")
        assert text_of(events).strip() == "You said: three"
        assert "resync" not in [event.type for event in events]


@pytest.mark.parametrize("fails", ["holds", "owner_lives"])
async def test_a_stream_at_another_server_loses_nothing_when_the_store_fails_in_the_middle_of_a_look(
    tmp_path, store, fails
):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        ask, failed = getattr(second.runtime.store, fails), []

        async def fail_at_first(*asked):
            holds = await first.runtime.store.holds(ana.id, (HoldState.PENDING,))
            if holds and len(failed) < 8:
                failed.append(asked)
                raise StoreUnavailable("The store is away.")
            return await ask(*asked)

        async with there.listening() as stream:
            setattr(second.runtime.store, fails, fail_at_first)
            await ana.say('call pay {"q": "10"}', "m1")
            async with asyncio.timeout(20):
                heard = {(await stream.next()).type for _ in range(2)}
                while not {"confirmation", "done"} <= heard:
                    heard.add((await stream.next()).type)
        assert failed


async def test_a_request_is_shown_and_approved_at_another_server_and_runs_once(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        async with there.listening() as stream:
            await ana.say('call pay {"q": "10"}', "m1")
            request = (await stream.until("confirmation"))[-1].data
            answers = await asyncio.gather(there.decide(request), there.decide(request))
            assert [one.json()["ok"] for one in answers] == [True, True]
            told = await stream.until("done")
        assert told[-1].data["messageId"] in ("m1", f"~late:{request['id']}")
        assert first.tools.started() == [{"q": "10"}]
        assert await connection_of(first, ana) == 1


async def test_a_session_stays_where_the_model_is_told_of_an_approved_call(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        async with ana.listening() as stream:
            await ana.say('call pay {"q": "10"}', "m1")
            request = (await stream.until("confirmation"))[-1].data
            await stream.until("done")
            speaks, may_speak = asyncio.Event(), asyncio.Event()
            answer = first.model.stream

            async def stream_late(asked):
                speaks.set()
                await may_speak.wait()
                async for event in answer(asked):
                    yield event

            first.model.stream = stream_late
            await there.decide(request)
            async with asyncio.timeout(60):
                await speaks.wait()
            assert (await there.post("two", "m2")).status_code == 409
            may_speak.set()
            assert (await stream.until("done"))[-1].data["messageId"] == f"~late:{request['id']}"
        async with asyncio.timeout(60):
            while (await there.post("two", "m2")).status_code == 409:
                await asyncio.sleep(0.02)
        shown = (await ended(there))["messages"]
        late = f"~late:{request['id']}"
        assert [one["messageId"] for one in shown if one["role"] == "assistant"] == ["m1", late, "m2"]


async def test_the_turn_of_a_process_that_has_ended_is_gone_on_with_by_the_next_that_is_asked(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post('call note {"q": "a"} && nap {"q": "30"}', "m1")
        await started(first, 2)
        async with there.listening() as stream:
            await first.runtime.store.release_owner(first.runtime.owner)  # as far as others can tell, it has died
            assert (await stream.next()).type == "reconnect"
        async with there.listening(after=0) as stream:
            first.tools.go()
            events = await stream.until("done")
        turn = next(event.data for event in events if event.type == "turn")
        assert turn == {**turn, "messageId": "m1", "attempt": 2}
        assert text_of(events).strip() == "note: ok, nap: ok"
        assert first.tools.started().count({"q": "a"}) == 1
        assert await connection_of(second, ana) == 2


async def test_of_two_servers_that_are_told_different_things_at_once_one_answers_first(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        for number in range(8):
            ours, theirs = f"a{number}", f"b{number}"
            answers = await asyncio.gather(ana.post(ours, ours), there.post(theirs, theirs))
            assert {one.status_code for one in answers} <= {202, 409}
            for name, server in ((ours, ana), (theirs, there)):
                async with asyncio.timeout(60):
                    while (answer := await server.post(name, name)).status_code != 202:
                        assert answer.status_code == 409, answer.text
                        assert "retry-after" in answer.headers
                        await asyncio.sleep(0.02)
            await ended(ana)
        said = [one for one in (await there.show())["messages"] if one["role"] == "assistant"]
        expected = {f"You said: {side}{number}" for side in "ab" for number in range(8)}
        assert {one["text"].strip() for one in said} == expected
        assert len(said) == 16
        assert {one["state"] for one in said} == {"done"}
        assert sorted(one["turn"] for one in said) == list(range(1, 17))


async def test_who_was_given_a_session_before_it_moved_and_came_back_is_asked_to_try_again(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        key = next(key for key in KEYS if key.name == "ana")
        old = await first.sessions.find(ana.id, ana.token, key)
        await there.say("two", "m2")
        await ana.say("three", "m3")
        with pytest.raises(SessionRefused) as caught:
            await first.sessions.say(old, "m4", "four")
        assert caught.value.reason is RefusalReason.BUSY
        assert caught.value.retry_after
        assert (await ana.say("four", "m4"))[-1].data["turn"] == 3
        shown = [one["messageId"] for one in (await there.show())["messages"] if one["role"] == "user"]
        assert shown == ["m2", "m3", "m4"]


async def test_a_turn_whose_connection_was_taken_in_spite_of_everything_is_answered_anew(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, _):
        ana = await first.open()
        await ana.say("one", "m1")
        # A wish to connect that arrives late, from a process that has ended since.
        await first.runtime.store.connect(ana.id, registry_version=ana.opened["registryVersion"], owner="gone")
        text = 'call note {"q": "a"}'
        # It may be seen before the turn has begun, or while it runs. Either way the client is told to come again.
        broken = await first.client.post(
            f"/api/sessions/{ana.id}/messages",
            json={"id": "m2", "text": text},
            headers={**ana.headers, "Accept": "text/event-stream"},
        )
        assert broken.status_code in (200, 503)
        assert "event: done" not in broken.text
        events = await ana.say(text, "m2")
        assert text_of(events).strip() == "note: ok"
        assert first.tools.started() == [{"q": "a"}]
        answer = (await ana.show())["messages"][-1]
        assert (answer["state"], [card["ok"] for card in answer["toolCards"]]) == ("done", [True])


async def test_a_turn_that_a_stop_cut_off_makes_the_calls_that_did_not_run(tmp_path, store):
    options = replace(Options(), shutdown_seconds=1)
    async with over_socket(tmp_path, store=store, options=options) as server:
        ana = await server.open()
        text = 'call post {"q": "30"} && note {"q": "a"}'
        await ana.post(text, "m1")
        await started(server)
        run = server.sessions._hosted[ana.id].current
        server.uvicorn.should_exit = True
        async with asyncio.timeout(60):
            while not run.cut:
                await asyncio.sleep(0.01)
        server.tools.go()
        await server.running
    assert {"q": "a"} not in server.tools.started()
    async with over_socket(tmp_path, store=store) as again:
        there = at(again, ana)
        events = await there.say(text, "m1")
        assert text_of(events).strip() == "post: ok, note: ok"
        assert sorted(map(str, again.tools.started())) == sorted(
            map(str, [{"begun": {"q": "30"}}, {"ended": {"q": "30"}}, {"q": "a"}])
        )


async def test_a_session_in_which_something_is_tried_stays_where_it_is(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        body = {"args": {"q": "30"}, "sessionId": ana.id}
        trying = asyncio.create_task(first.client.post("/api/tools/post/try", json=body, headers=ana.headers))
        await started(first)
        assert (await there.post("hello", "m1")).status_code == 409
        first.tools.go()
        assert (await trying).json()["ok"] is True
        async with asyncio.timeout(60):
            while (await there.post("hello", "m1")).status_code == 409:
                await asyncio.sleep(0.02)


async def test_the_end_of_a_turn_that_could_not_be_stored_is_heard_when_it_is_stored(tmp_path, caplog, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post(WRITE, "m1")
        await started(first)
        async with ana.listening(after=0) as stream:
            await stream.until("tool_started")
            with ends_unstored(first):
                first.tools.go()
                await logged(caplog, "A turn could not be stored")
                for shown in (await ana.show(), await there.show()):
                    assert shown["answering"] == "m1"
                    assert {one["state"] for one in shown["messages"]} == {"running"}
                assert (await ana.post("more", "m2")).status_code == 409
                cancelled = await first.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
                assert cancelled.json() == {"cancelled": False}
                telling = asyncio.create_task(stream.until("done"))
                await asyncio.sleep(0.6)
                assert not telling.done(), "the end was reported before it was stored"
            assert (await telling)[-1].data["text"].strip() == "post: ok"
        shown = await ended(there)
        assert shown["messages"][-1]["text"].strip() == "post: ok"


async def test_an_end_that_came_too_late_to_be_stored_is_told_by_the_next_owner_alone(tmp_path, caplog, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post(WRITE, "m1")
        await started(first)
        async with ana.listening(after=0) as stream:
            with ends_unstored(first):
                first.tools.go()
                await logged(caplog, "A turn could not be stored")
                # As far as others can tell, it has died: it was cut off for too long.
                await first.runtime.store.release_owner(first.runtime.owner)
                await there.show()
                async with there.listening(after=0) as stream_there:
                    assert (await stream_there.until("done"))[-1].data["state"] == "done"
            told = await stream.until("reconnect")
            assert await stream.next() is None
        assert "done" not in [event.type for event in told]
        assert (await ana.show())["messages"] == (await there.show())["messages"]


@pytest.mark.parametrize("how", ["cancel", "end"])
async def test_a_turn_is_cancelled_at_once_though_its_end_cannot_be_stored(tmp_path, store, how):
    async with over_socket(tmp_path, store=store) as server:
        ana = await server.open()
        await ana.post('call nap {"q": "30"} then slow 5 words', "m1")
        async with ana.listening(after=0) as stream:
            await stream.until("tool_started")
            path = f"/api/sessions/{ana.id}"
            with ends_unstored(server):
                async with asyncio.timeout(30):
                    if how == "cancel":
                        answered = await server.client.post(f"{path}/cancel", headers=ana.headers)
                        assert answered.json() == {"cancelled": True}
                    else:
                        assert (await server.client.delete(path, headers=ana.headers)).is_success
            if how == "cancel":
                assert (await stream.until("done"))[-1].data["state"] == "cancelled"


async def test_an_end_that_waits_for_the_store_is_no_longer_kept_when_its_session_leaves(tmp_path, caplog, store):
    async with over_socket(tmp_path, store=store) as server:
        ana = await server.open()
        await ana.post(WRITE, "m1")
        await started(server)
        with ends_unstored(server):
            server.tools.go()
            await logged(caplog, "A turn could not be stored")
            await server.sessions._let_go(server.sessions._hosted[ana.id])
        assert server.sessions.ends._unstored == {}


async def test_a_stop_stores_an_end_that_somebody_still_waits_for(tmp_path, caplog, store):
    async with over_socket(tmp_path, store=store) as server:
        ana = await server.open()
        await ana.say("one", "m1")
        sessions, stopping = server.sessions, asyncio.Event()
        hosted, finish = sessions._hosted[ana.id], sessions.conversations.finish
        with ends_unstored(server):
            waiting = asyncio.create_task(sessions.ends.store(hosted, hosted.turns["m1"]))
            await logged(caplog, "A turn could not be stored")

        async def finish_after_whoever_waits(*told, **more):
            if asyncio.current_task() is waiting:
                await stopping.wait()
            else:
                stopping.set()
                await waiting
            await finish(*told, **more)

        sessions.conversations.finish = finish_after_whoever_waits
        await sessions.close()
        assert waiting.done()


async def test_a_stop_closes_the_runtime_though_an_end_cannot_be_stored(tmp_path, store, monkeypatch):
    closed = []
    async with over_socket(tmp_path, store=store) as server:
        close = server.runtime.close

        async def note(**more):
            closed.append(True)
            await close(**more)

        async def fail():
            raise ValueError("an end of wax")

        with monkeypatch.context() as patched:
            patched.setattr(server.runtime, "close", note)
            patched.setattr(server.sessions.ends, "store_left", fail)
            with pytest.raises(ValueError, match="an end of wax"):
                await server.sessions.close()
        assert closed


async def test_a_session_stays_while_what_was_said_in_it_waits_for_the_store(tmp_path, caplog, store):
    async with over_socket(tmp_path, store=store) as server:
        ana = await server.open()
        await ana.say("one", "m1")
        hosted = server.sessions._hosted[ana.id]
        transcript = StoredTranscript(hosted, server.sessions.ends)
        with ends_unstored(server):
            transcript._store(hosted.turns["m1"])
            await logged(caplog, "A turn could not be stored")
            assert hosted.late
            assert not hosted.is_idle
        await asyncio.wait(hosted.late, timeout=60)
        assert not hosted.late


async def test_whoever_had_a_session_before_it_went_away_and_came_back_writes_nothing_more(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.say("one", "m1")
        before = first.sessions._hosted[ana.id]
        await there.say("two", "m2")
        await ana.say("three", "m3")
        shown = (await ana.show())["messages"]
        assert first.sessions._hosted[ana.id] is not before
        for is_open in (True, False):
            if not is_open:
                await first.sessions._let_go(first.sessions._hosted[ana.id])
            with pytest.raises(Moved):
                await first.sessions.ends.store(before, before.turns["m1"])
        assert [one["messageId"] for one in shown if one["role"] == "user"] == ["m1", "m2", "m3"]
        assert (await ana.show())["messages"] == shown
        assert len((await first.sessions.conversations.load(ana.id)).document["messages"]) == 6


@pytest.mark.parametrize("failures", [1, 1_000])
async def test_what_may_be_old_is_not_shown_when_it_cannot_be_asked_who_has_the_session(tmp_path, store, failures):
    """As at a server that was frozen, or cut off, while another continued with the session."""
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.say("one", "m1")
        with ExitStack() as unknown:
            if failures > 1:  # before the other continues: else its own watch might learn of it
                unknown.enter_context(owners_unknown(first, failures))
            await there.say("two", "m2")
            if failures == 1:
                unknown.enter_context(owners_unknown(first, failures))
            shown = await first.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)
        if failures == 1:
            assert shown.json()["messages"] == (await there.show())["messages"]
        else:
            assert shown.status_code == 503
            assert shown.json()["error"]["message"] == "The store cannot be reached at the moment; try again later."
        assert (await ana.show())["messages"] == (await there.show())["messages"]


async def test_a_look_that_a_freeze_cut_in_two_is_taken_again(tmp_path, store, monkeypatch):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.say("one", "m1")
        holds = first.runtime.store.holds
        monkeypatch.setattr(sessions, "_CERTAIN_SECONDS", 2.0)

        async def frozen_once(*asked):
            first.runtime.store.holds = holds
            await there.say("two", "m2")
            await asyncio.sleep(2)
            return await holds(*asked)

        first.runtime.store.holds = frozen_once
        assert (await ana.show())["messages"] == (await there.show())["messages"]


async def test_a_stream_of_a_process_that_may_be_taken_for_dead_tells_nothing_that_another_tells_now(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        there = at(second, ana)
        await ana.post('slow 100 words and call note {"q": "a"}', "m1")
        async with ana.listening(after=0) as stream:
            await stream.until("text")
            # It wakes, and knows of nothing yet: neither its heart has beaten nor has it looked who has the session.
            first.runtime.store.is_heard = lambda: False
            first.sessions._chores[1].cancel()
            await second.runtime.store.conversations.take(
                ana.id, owner=second.runtime.owner, former=first.runtime.owner, though_busy=True
            )
            told = await stream.until("reconnect")
            assert len(told) < 10
            assert await stream.next() is None
        async with there.listening(after=0) as stream:
            assert (await stream.until("done"))[-1].data["state"] == "done"


async def test_a_stream_that_was_begun_continues_while_the_store_is_away(tmp_path, store):
    async with over_socket(tmp_path, store=store) as first:
        ana = await first.open()
        await ana.post("slow 10 words", "m1")
        async with ana.listening(after=0) as stream:
            first.runtime.store.is_heard = lambda: False
            with owners_unknown(first):
                events = await stream.until("done")
        assert text_of(events).startswith("0 1 2 ")


async def test_a_stream_does_not_wait_again_for_a_store_that_has_just_not_answered(tmp_path, store, monkeypatch):
    async with over_socket(tmp_path, store=store) as server:
        ana = await server.open()
        await ana.say("one", "m1")
        hosted, asked = server.sessions._hosted[ana.id], []

        async def silent(session_ids):
            asked.append(session_ids)
            await asyncio.Event().wait()

        monkeypatch.setattr(server.runtime.store, "is_heard", lambda: False)
        monkeypatch.setattr(server.sessions.conversations, "owners", silent)
        now = 100.0
        monkeypatch.setattr(session_registry, "monotonic", lambda: now)
        for _ in range(3):
            assert await server.sessions.is_still_here(hosted)
        assert len(asked) == 1
        now += 1.5
        assert await server.sessions.is_still_here(hosted)
        assert len(asked) == 2


async def test_a_look_with_a_wrong_secret_or_key_is_told_that_there_is_no_session(tmp_path, store):
    async with two_servers(tmp_path, store) as (first, second):
        ana = await first.open()
        path = f"/api/sessions/{ana.id}"
        wrong = {**ana.headers, "X-Session-Token": "wrong"}
        bob = {**ana.headers, **bearer("hr_other_key_for_tests_0000001")}
        for headers in (wrong, bob):
            assert (await second.client.get(path, headers=headers)).status_code == 404
            assert (await second.client.get(f"{path}/events", headers=headers)).status_code == 404
        assert await connection_of(first, ana) == 1


async def test_a_request_that_both_servers_are_sent_is_one_turn(tmp_path, store):
    async with two_servers(tmp_path, store) as servers:
        words = {"model": "x", "messages": [{"role": "user", "content": 'call note {"q": "a"}'}]}
        headers = {**bearer(USER), "Idempotency-Key": "req-1"}

        async def asked(server: ServerUnderTest) -> tuple[str, str]:
            while True:  # as the vendor's client does, which asks again where the answer is not ready
                answer = await server.client.post("/v1/chat/completions", json=words, headers=headers)
                if answer.status_code != 409:
                    break
                await asyncio.sleep(0.05)
            assert answer.status_code == 200, answer.text
            return answer.headers["x-handrail-session"], answer.json()["choices"][0]["message"]["content"]

        async with asyncio.timeout(60):
            answers = {*await asyncio.gather(*map(asked, servers)), await asked(servers[0]), await asked(servers[1])}
        assert len(answers) == 1
        assert servers[0].tools.started() == [{"q": "a"}]


async def test_a_ticket_for_voice_is_taken_by_the_other_server_and_once(tmp_path, store):
    async with voice_server(tmp_path, store=store) as first, voice_server(tmp_path, store=store) as second:
        ana = await first.open()
        ticket = (await ticket_for(ana))["ticket"]
        async with connected(second, ana.id) as client:
            await client.send("hello", protocol=PROTOCOL, ticket=ticket)
            await client.message("ready")
            async with connected(first, ana.id) as again:
                await again.send("hello", protocol=PROTOCOL, ticket=ticket)
                await again.refused(4401)


async def test_a_voice_conversation_that_another_server_has_taken_ends_where_it_was(tmp_path, store):
    """As when its server was frozen for so long that it was taken for dead."""
    async with voice_server(tmp_path, store=store) as first, voice_server(tmp_path, store=store) as second:
        ana = await first.open()
        there = at(second, ana)
        ticket = (await ticket_for(ana))["ticket"]
        async with connected(first, ana.id) as client:
            await client.send("hello", protocol=PROTOCOL, ticket=ticket)
            await client.message("ready")
            await asyncio.sleep(2)  # nobody speaks
            await first.runtime.store.release_owner(first.runtime.owner)  # as far as others can tell, it has died
            assert (await there.post("hello", "m1")).status_code == 202
            async with asyncio.timeout(10):
                assert await client.closed() == RESTART.code
        shown = await ended(there)
        assert [one["text"].strip() for one in shown["messages"]] == ["hello", "You said: hello"]


@pytest.mark.parametrize("asks", [False, True])
async def test_only_who_asks_for_tokens_is_given_some(tmp_path, asks, store):
    async with over_socket(tmp_path, store=store) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        path = f"/api/sessions/{ana.id}" + ("?tokens=true" if asks else "")
        for _ in range(5):
            (request,) = (await server.client.get(path, headers=ana.headers)).json()["confirmations"]
            assert ("token" in request) is asks
        rows = await server.runtime.store._read(
            lambda tx: tx.db.execute("SELECT count(*) FROM hold_token WHERE hold_id = ?", (request["id"],)).fetchone()
        )
        assert (rows[0] > 1) is asks

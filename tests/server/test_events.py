"""Event streams: resumed by number, told when something is no longer kept, ended in order; and the log behind them."""

import asyncio
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.kit import PATIENT, reading
from tests.server.kit import StreamedEvent, over_socket, put_together, text_of

from handrail.events import MessageSent
from handrail.server.host import hosted_session as logs
from handrail.server.host.hosted_session import SPAN, EventLog
from handrail.server.options import Options
from handrail.server.uvicorn_server import bound, make_server
from handrail.server.wire import frame


async def test_a_dropped_stream_goes_on_where_it_was(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post("slow 30 end")
            seen = await stream.until("text")
        await asyncio.sleep(0.1)
        async with ana.listening(after=seen[-1].id) as stream:
            rest = await stream.until("done")
        assert [event.id for event in seen + rest] == list(range(seen[0].id, rest[-1].id + 1))
        assert text_of(seen + rest).split() == [*map(str, range(30)), "end"]


async def test_a_stream_from_the_start_has_everything_that_is_kept(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        first = await ana.say("one")
        async with ana.listening(after=0) as stream:
            again = await stream.until("done")
        assert [event.fields for event in again] == [event.fields for event in first]


async def test_a_client_hears_the_progress_of_a_call_that_still_runs(tmp_path):
    source = PATIENT.replace("    mark(args)\n", '    mark(args)\n    ctx.progress("Half of the shelf.")\n')
    async with over_socket(tmp_path, tools={"look": (reading(timeoutMs=60_000), source)}) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post('call look {"q": "tea"}')
            seen = await stream.until("progress")
            assert "tool_finished" not in [event.type for event in seen]
            assert (seen[-1].data["toolId"], seen[-1].data["text"]) == ("look", "Half of the shelf.")
            server.tools.go()
            finished = (await stream.until("tool_finished"))[-1]
            assert finished.data["ok"] is True


async def test_two_pages_hear_the_same(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as one, ana.listening() as two:
            await ana.post('call look {"q": "tea"}')
            heard, also = await asyncio.gather(one.until("done"), two.until("done"))
        assert [event.fields for event in heard] == [event.fields for event in also]


async def test_a_client_that_goes_away_does_not_stop_the_turn(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        body = {"id": "m1", "text": "slow 20 end"}
        headers = {**ana.headers, "Accept": "text/event-stream"}
        async with server.client.stream(
            "POST", f"/api/sessions/{ana.id}/messages", json=body, headers=headers
        ) as answer:
            await anext(answer.aiter_bytes())
        async with ana.listening(after=0) as stream:
            assert (await stream.until("done"))[-1].data["state"] == "done"


async def test_what_is_no_longer_kept_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_EVENTS", 5)
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        first = await ana.say("a b c d e f g h i j")
        async with ana.listening(after=first[0].id if first[0].id else 0) as stream:
            events = await stream.until("done")
            assert events[0].type == "resync"
            assert events[0].id is None
            assert [event.type for event in events].count("resync") == 1
            await ana.post("x")
            assert "resync" not in [event.type for event in await stream.until("done")]


async def test_a_number_that_is_none_of_ours_is_told_to_start_over(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening(after=999 * SPAN) as stream:
            event = await stream.next()
            assert event is not None
            assert event.type == "resync"


@pytest.mark.parametrize("number", ["-1", "x", "1e3", "1" * 30, "٣"])
async def test_a_number_that_is_none_is_refused(tmp_path, number):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        answer = await server.client.get(
            f"/api/sessions/{ana.id}/events", params={"after": number}, headers=ana.headers
        )
        assert answer.status_code == 400


async def test_an_old_stream_ends_with_the_wish_to_connect_again_and_a_quiet_one_is_kept_alive(tmp_path):
    async with over_socket(tmp_path, options=Options(stream_seconds=2, heartbeat_seconds=1)) as server:
        ana = await server.open()
        answer = await server.client.get(f"/api/sessions/{ana.id}/events", headers=ana.headers)
        assert ": alive" in answer.text
        assert "event: reconnect" in answer.text


async def test_an_ended_session_closes_its_streams(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await server.client.delete(f"/api/sessions/{ana.id}", headers=ana.headers)
            event = await stream.next()
            assert event is not None
            assert event.type == "closed"
            assert await stream.next() is None


async def test_a_server_that_stops_finishes_its_turns_and_sends_clients_away(tmp_path):
    async with over_socket(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post('call post {"q": "0.5"}')
            await stream.until("tool_started")
            server.uvicorn.should_exit = True
            events = await stream.until("reconnect")
            assert events[-1].type == "reconnect"
            assert await stream.next() is None
        await server.running
        assert [next(iter(mark)) for mark in server.tools.started()] == ["begun", "ended"]
    async with over_socket(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana.server = server
        page = await ana.show()
        assert page["messages"][-1]["text"].strip() == "post: ok"
        assert len(server.tools.started()) == 2


async def test_a_turn_that_was_not_over_when_the_server_stopped_is_answered_after_its_start(tmp_path):
    url = f"sqlite:////{tmp_path}/store.db"
    async with over_socket(tmp_path, store=url, options=Options(shutdown_seconds=1)) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post("slow 70 end", "m1")
            seen = await stream.until("text")
    async with over_socket(tmp_path, store=url) as server:
        ana.server = server
        async with ana.listening(after=seen[-1].id) as stream:
            events = await stream.until("done")
        assert events[0].type == "turn"
        assert events[0].data["attempt"] == 2
        assert events[0].data["turn"] == seen[0].data["turn"]
        assert text_of(events).strip().endswith("end")
        async with ana.listening(after=events[-1].id) as stream:
            await ana.post("next", "m2")
            assert (await stream.until("done"))[0].data["turn"] == seen[0].data["turn"] + 1


async def test_who_asks_a_second_time_does_not_wait_for_turns_and_none_is_lost(tmp_path, caplog):
    url = f"sqlite:////{tmp_path}/store.db"
    async with over_socket(tmp_path, store=url, options=Options(shutdown_seconds=600)) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post("slow 3000 end", "m1")
            await stream.until("text")
            server.uvicorn._stop(signal.SIGINT, None)
            await stream.until("reconnect")
            assert "Ctrl-C once more does not wait" in caplog.text
            server.uvicorn._stop(signal.SIGINT, None)
        async with asyncio.timeout(60):
            await server.running
    async with over_socket(tmp_path, store=url, options=Options(shutdown_seconds=1)) as server:
        ana.server = server
        assert (await ana.show())["answering"] == "m1"


async def test_a_server_that_is_asked_to_stop_while_it_starts_does_not_say_that_it_is_ready(tmp_path):
    made, _, _ = put_together(tmp_path)
    told: list[str] = []
    socket = bound(made.options)
    server = make_server(made.app, made.options, made.sessions.drain, lambda: told.append("ready"))
    server._stop(signal.SIGINT, None)
    await server.serve(sockets=[socket])
    assert told == []
    assert made.sessions.draining


async def test_after_a_restart_the_end_of_a_turn_is_told_to_whoever_missed_it_and_to_nobody_else(tmp_path):
    url = f"sqlite:////{tmp_path}/store.db"
    async with over_socket(tmp_path, store=url) as server:
        ana = await server.open()
        first = await ana.say('call look {"q": "tea"}')
    async with over_socket(tmp_path, store=url) as server:
        ana.server = server
        async with ana.listening(after=first[2].id) as missed, ana.listening(after=first[-1].id) as saw:
            told = [event for event in await missed.until("done") if event.type != "resync"]
            assert [event.type for event in told] == ["turn", "tool_finished", "text", "done"]
            assert all(event.data["rebuilt"] and event.id > first[-1].id for event in told)
            assert text_of(told) == first[-1].data["text"]
            await ana.post("next", "m2")
            assert (await saw.until("done"))[0].data["messageId"] == "m2"


async def test_the_end_of_a_turn_has_the_number_that_is_stored_whatever_is_told_meanwhile(tmp_path, monkeypatch):
    url = f"sqlite:////{tmp_path}/store.db"
    async with over_socket(tmp_path, store=url) as server:
        ana = await server.open()
        talk, finish = server.sessions._hosted[ana.id], server.sessions.conversations.finish

        async def finish_while_something_happens(*args, **named):
            talk.session.events_queue.emit(MessageSent({"type": "image", "url": "/images/x.png"}))
            for _ in range(20):
                await asyncio.sleep(0)
            await finish(*args, **named)

        monkeypatch.setattr(server.sessions.conversations, "finish", finish_while_something_happens)
        async with ana.listening() as stream:
            await ana.post("one", "m1")
            told = await stream.until("message")
        stored = await server.sessions.conversations.load(ana.id)
        assert [event.type for event in told[-2:]] == ["done", "message"]
        assert stored.turns[0].last_event == told[-2].id
        assert [event.id for event in told] == list(range(told[0].id, told[-1].id + 1))


async def test_two_ends_at_once_get_numbers_of_their_own():
    log = EventLog(1)

    async def end(name: str) -> int:
        async with log.next_is_ours() as number:
            await asyncio.sleep(0)
            log.add("progress", {"of": name}, 1)
            log.add("done", {"of": name}, 1, is_reserved_for=True)
            return number

    numbers = await asyncio.gather(end("one"), end("two"))
    kept = list(log.kept)
    assert [one.number for one in kept if one.type == "done"] == list(numbers)
    assert [one.type for one in kept] == ["done", "progress", "done", "progress"]


async def test_a_turn_that_was_cut_off_again_and_again_is_given_up(tmp_path):
    url = f"sqlite:////{tmp_path}/store.db"
    async with over_socket(tmp_path, store=url, options=Options(shutdown_seconds=1)) as server:
        ana = await server.open()
        await ana.post("slow 1000 end", "m1")
    for _ in range(2):
        async with over_socket(tmp_path, store=url, options=Options(shutdown_seconds=1)) as server:
            ana.server = server
            assert (await ana.show())["answering"] == "m1"
    async with over_socket(tmp_path, store=url) as server:
        ana.server = server
        page = await ana.show()
        assert page["answering"] is None
        assert page["messages"][-1]["state"] == "failed"


@given(
    st.lists(st.tuples(st.sampled_from(["text", "done"]), st.text(max_size=40)), max_size=40),
    st.integers(min_value=-2, max_value=50),
)
async def test_a_reader_gets_every_later_event_once_or_is_told(told, place):
    log = EventLog(3)
    for name, text in told:
        log.add(name, {"text": text}, 0)
    after = 3 * SPAN + place
    reader = log.reader(max(0, after))
    reader.end("reconnect")
    got = []
    while (batch := await reader.batch(1)) is not None:
        got += batch
    resync = [one for one in got if one.type == "resync"]
    numbers = [one.number for one in got if one.type != "resync"]
    if after > log.last:
        assert len(resync) == 1
        assert numbers == []
    else:
        assert resync == []
        assert numbers == list(range(max(after, 3 * SPAN) + 1, log.last + 1))


@given(
    st.recursive(
        st.none() | st.text() | st.integers() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
)
def test_whatever_is_in_it_a_frame_is_one_event_of_three_lines(data):
    text = frame(7, "text", {"x": data}).decode()
    assert text.endswith("\n\n")
    assert len(text.splitlines()) == 4
    told = StreamedEvent(text.removesuffix("\n\n"))
    assert (told.id, told.type) == (7, "text")


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "event: x", "X", "é"])
def test_an_event_has_a_plain_name(name):
    with pytest.raises(ValueError, match="cannot name"):
        frame(1, name, {})

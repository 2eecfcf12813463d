"""What happens beside the line: words typed in the text protocol, approvals on the screen, a slow client, the minutes."""

import asyncio

from tests.server.voice.kit import done, limits, on_the_line, voice_server

from handrail.contract.store import StoreUnavailable

PCM = bytes(4_800)


async def test_a_slow_client_loses_sound_and_no_message(tmp_path):
    async with voice_server(tmp_path, limits=limits(backlog_seconds=1, slow_seconds=60)) as server:
        api = await server.open()
        async with on_the_line(api, receive_buffer=4_096) as client:
            spoken = server.agent.spoken
            line = server.sessions._hosted[api.id].voice
            client.stop_reading()
            for number in range(400):
                spoken.play(number, 0, PCM)
                spoken.listener.tell("audio_end", {"item": number, "ms": 100})
                await asyncio.sleep(0)
            caller = line.client
            assert caller.dropped > 200
            client.go_on_reading()
            await client.until(lambda one: len(one.of("audio_end")) == 400)
            first = client.numbers[0]
            assert client.numbers == list(range(first, first + 400))
            heard = [item for item, _, _ in client.sounds]
            assert heard == sorted(heard)
            assert len(heard) == 400 - caller.dropped
            assert heard[-1] == 399  # the newest is kept
            assert all(pcm == PCM for _, _, pcm in client.sounds)
            assert sorted({*range(400)} - {*heard}) == spoken.lost  # the conversation knows of each
            spoken.play(400, 0, PCM)
            await client.until(lambda one: one.sounds[-1][0] == 400)


async def test_the_conversation_is_told_when_sound_cannot_have_been_heard(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as first:
            spoken = server.agent.spoken
            spoken.play(1, 0, PCM)
            await first.until(lambda one: one.sounds)
            assert spoken.lost == []
            async with on_the_line(api) as second:
                assert spoken.lost == [None], "another client has not heard what the first one did"
                await second.drop()
                await spoken.until(lambda one: one.lost == [None, None])
                spoken.play(2, 0, PCM)
                assert spoken.lost == [None, None, 2], "nobody is there"
        async with on_the_line(api) as third:
            assert spoken.lost[-1] is None
            known = len(spoken.lost)
            spoken.play(3, 0, PCM)
            await third.until(lambda one: one.sounds)
            assert len(spoken.lost) == known


async def test_a_client_that_does_not_read_at_all_is_closed_and_comes_back_to_everything(tmp_path):
    async with voice_server(tmp_path, limits=limits(backlog_seconds=1, slow_seconds=0.2)) as server:
        api = await server.open()
        async with on_the_line(api, receive_buffer=4_096) as client:
            spoken = server.agent.spoken
            line = server.sessions._hosted[api.id].voice
            last = client.messages[0]["lastEvent"]
            client.stop_reading()
            number = 0
            while line.client is not None:
                number += 1
                spoken.play(number, 0, PCM)
                if number % 10 == 0:
                    spoken.listener.tell("audio_end", {"item": number, "ms": 100})
                await asyncio.sleep(0.001)
            client.go_on_reading()
            assert await client.closed() in (4408, 1006)
            last = client.numbers[-1] if client.numbers else last
        async with on_the_line(api, last=last) as client:
            assert client.messages[0]["resumed"] is True
            await client.until(lambda one: len(one.numbers) == line.last - last)
            assert client.numbers == list(range(last + 1, line.last + 1))


async def test_an_interruption_throws_away_what_waits_for_a_slow_client(tmp_path):
    async with voice_server(tmp_path, limits=limits(backlog_seconds=30, slow_seconds=60)) as server:
        api = await server.open()
        async with on_the_line(api, receive_buffer=4_096) as client:
            spoken = server.agent.spoken
            client.stop_reading()
            for number in range(300):
                spoken.play(1, number * 100, PCM)
                await asyncio.sleep(0)
            spoken.listener.tell("flush", {"item": 1})
            spoken.play(2, 0, PCM)
            client.go_on_reading()
            await client.until(lambda one: one.sounds and one.sounds[-1][0] == 2)
            assert len([1 for item, _, _ in client.sounds if item == 1]) < 200
            await client.message("flush")


async def test_what_was_said_while_the_store_was_away_is_stored_and_what_was_typed_is_done_then(tmp_path, caplog):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            kept = server.sessions.conversations
            finish = kept.finish

            async def away(*_, **__):
                raise StoreUnavailable("The store is away.")

            kept.finish = away
            await server.agent.spoken.say("aloud", id="voice:1", spoken=True)
            await client.message("turn_done", inputId="voice:1")
            typing = asyncio.create_task(api.say("by the way", "t1"))
            await client.message("turn_done", inputId="t1")
            await asyncio.sleep(0.6)
            assert not typing.done(), "the end was reported before it was stored"
            assert (await kept.load(api.id)).turns == []
            kept.finish = finish
            assert [one.type for one in await typing] == ["turn", "text", "done"]
            async with asyncio.timeout(60):
                while [turn.message_id for turn in (await kept.load(api.id)).turns] != ["voice:1", "t1"]:
                    await asyncio.sleep(0.02)
            assert {turn.state for turn in (await kept.load(api.id)).turns} == {"done"}


async def test_typed_words_join_the_conversation(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            answer = await api.post("by the way", "t1")
            assert answer.status_code == 202
            assert answer.json()["turn"] == 1
            await client.message("turn_done", inputId="t1")
            again = await api.post("by the way", "t1")
            assert again.json()["turn"] == 1
            assert (await api.post("something else", "t1")).status_code == 409
            told = await api.say("and streamed", "t2")
            assert [one.type for one in told] == ["turn", "text", "done"]
            assert told[-1].data["text"] == "You said and streamed."
            assert {one.data["turn"] for one in told} == {2}
            assert (await api.post("refuse", "t3")).status_code == 409
            shown = await api.show()
            assert [one["text"] for one in shown["messages"] if one["role"] == "user"] == ["by the way", "and streamed"]
            assert server.model.asked == []  # the text agent was not asked


async def test_other_ways_to_use_the_session_are_refused_while_voice_is_on(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api):
            tried = await server.post("/api/tools/look/try", {"args": {}, "sessionId": api.id}, headers=api.headers)
            assert tried.status_code == 409
            body = {"messages": [{"role": "user", "content": "hi"}]}
            headers = {**api.headers, "X-Handrail-Session": api.id}
            asked = await server.client.post("/v1/chat/completions", json=body, headers=headers)
            assert asked.status_code == 409, asked.text


async def test_the_stop_button_of_a_page_interrupts_the_conversation(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api):
            spoken = server.agent.spoken
            stop = f"/api/sessions/{api.id}/cancel"
            assert (await server.client.post(stop, headers=api.headers)).json() == {"cancelled": False}
            spoken.listener.tell("turn", {"turn": 1, "inputId": "voice:1"})
            assert (await server.client.post(stop, headers=api.headers)).json() == {"cancelled": True}
            assert ("interrupt",) in spoken.given


async def test_a_page_that_listens_hears_of_voice_and_approves_on_the_screen(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with api.listening() as page, on_the_line(api) as client:
            assert (await page.until("voice"))[-1].data["on"] is True
            spoken = server.agent.spoken
            await spoken.session.begin_turn("voice:1")
            held = await spoken.session.call("pay", {"q": "ten"}, call_id="call_1")
            assert held.to_dict()["error"]["type"] == "CONFIRMATION_REQUIRED"
            asked = (await page.until("confirmation"))[-1].data
            assert (await client.message("confirmation"))["id"] == asked["id"]
            envelope = (await api.decide(asked)).json()
            assert envelope["ok"] is True
            await spoken.until(lambda one: ("take", "envelope") in one.given)
            assert len(server.tools.started()) == 1
            await client.send("end")
            assert await client.closed() == 1000
            told = await page.until("voice")
            assert told[-1].data["on"] is False
            assert all(one.type != "text" for one in told)  # the text agent was not told of what voice was told
            assert server.model.asked == []


async def test_the_minutes_show_what_was_said_and_done(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            tell = server.agent.spoken.listener.tell
            tell("turn", {"turn": 1, "inputId": "voice:1"})
            said = {
                "who": "user",
                "item": 1,
                "inputId": "voice:1",
                "text": "find it",
                "whole": "find it",
                "final": True,
            }
            card = {"callId": "c1", "toolId": "look", "args": {"q": "it"}, "round": 1}
            tell("tool_started", card)
            tell("tool_finished", {**card, "ok": False, "held": True, "error": None, "meta": {}, "citations": []})
            tell("turn_done", done(1, "voice:1", "", "Found"))
            tell("transcript", said)  # the words became known later
            tell("turn_done", done(1, "voice:1", "find it", "Found it.", interrupted=False))  # and the model continued
            tell("turn", {"turn": 2, "inputId": "voice:2"})
            late = {
                "callId": "c1",
                "toolId": "look",
                "ok": True,
                "late": True,
                "error": None,
                "meta": {},
                "citations": [],
            }
            tell("tool_finished", late)
            for piece in ("than", "ks"):  # which were cut off before they were complete
                tell("transcript", {"who": "user", "item": 3, "inputId": "voice:2", "text": piece, "final": False})
            tell("turn_done", done(2, "voice:2", "", "You are", interrupted=True))
            await client.message("turn_done", turn=2)
            shown = (await api.show())["messages"]
        assert [(one["role"], one["text"], one["state"]) for one in shown] == [
            ("user", "find it", "done"), ("assistant", "Found it.", "done"),
            ("user", "thanks", "cancelled"), ("assistant", "You are", "cancelled"),
        ]  # fmt: skip
        (seen,) = shown[1]["toolCards"]
        assert (seen["ok"], seen["late"]) == (True, True)
        assert shown[1]["latency"]["modelMs"] == 2
        assert shown[3]["toolCards"] == []
        stored = await server.sessions.conversations.load(api.id)
        assert [turn.state for turn in stored.turns] == ["done", "cancelled"]
        assert stored.turns[0].answer["toolCards"][0]["late"] is True


async def test_a_turn_that_a_restart_cuts_off_is_kept_and_not_answered_by_the_text_agent(tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    async with voice_server(tmp_path, store=store) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            server.agent.spoken.listener.tell("turn", {"turn": 1, "inputId": "voice:1"})
            await client.message("turn")
            server.uvicorn.should_exit = True
            await client.refused(1001)
        await server.running
    async with voice_server(tmp_path, store=store) as again:
        api.server = again
        shown = await api.show()
        assert [one["state"] for one in shown["messages"]] == ["cancelled", "cancelled"]
        assert again.model.asked == []


async def test_a_session_in_voice_is_not_put_away(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api):
            await server.sessions._make_room(0.0)
            assert api.id in server.sessions._hosted
            assert (await api.show())["voice"] is True


async def test_a_session_that_another_process_has_taken_up_lets_its_conversation_go(tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    async with voice_server(tmp_path, store=store) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            server.agent.spoken.session.is_taken_over = True
            shown = await api.show()
            await client.refused(1001)
            assert shown["voice"] is False
            assert ("close",) in server.agent.spoken.given


async def test_what_a_tool_sends_cannot_pass_for_a_message_of_the_protocol(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            forged = {"type": "ended", "n": 7, "reason": "user_requested"}
            server.agent.spoken.listener.tell("message", forged)
            assert (await client.message("message"))["message"] == forged
            assert client.of("ended") == []
            assert client.numbers == list(range(client.numbers[0], client.numbers[0] + len(client.numbers)))

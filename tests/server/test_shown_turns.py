"""What a session shows of its turns is bounded in size: the oldest lose their cards' contents first, and then go.
Their messages are known all the same."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.server.kit import in_process
from tests.server.model import PlayModel

from handrail.agents import Conversation
from handrail.contract.conversations import StoredTurn
from handrail.contract.model import ModelError, ModelEvent, ModelRequest, ToolMessage
from handrail.server.host.hosted_session import MAX_SHOWN_BYTES, HostedSession
from handrail.server.wire import to_json


def _talk() -> HostedSession:
    session: Any = SimpleNamespace(connection=1, id="ses_1")
    return HostedSession(session, Conversation(), passing=False)


def _turn(number: int, *, text: str = "Answer", card: str = "") -> StoredTurn:
    turn = StoredTurn(message_id=f"m{number}", text="Question", number=number, position=number, state="done")
    cards = [{"callId": f"c{number}", "toolId": "look", "ok": True, "data": card, "type": "tool_finished"}]
    turn.answer = {"text": text, "citations": [], "toolCards": cards}
    return turn


def _bytes(talk: HostedSession) -> int:
    return len(to_json([[turn.text, turn.answer] for turn in talk.turns.values()]))


async def test_old_cards_are_cut_and_said_to_be_while_every_word_is_still_shown():
    talk = _talk()
    for number in range(200):
        talk.keep(_turn(number, card="x" * 12_000))
    assert _bytes(talk) <= MAX_SHOWN_BYTES + 13_000
    shown = talk.messages()
    assert len(shown) == 400
    oldest, newest = shown[1], shown[-1]
    assert oldest["toolCards"] == [{"callId": "c0", "toolId": "look", "ok": True, "type": "tool_finished", "cut": True}]
    assert newest["toolCards"][0]["data"] == "x" * 12_000


async def test_turns_that_are_long_by_themselves_go_the_oldest_first():
    talk = _talk()
    for number in range(40):
        talk.keep(_turn(number, text="y" * 100_000))
    assert _bytes(talk) <= MAX_SHOWN_BYTES + 110_000
    assert list(talk.turns)[-1] == "m39"
    assert "m0" not in talk.turns


async def test_one_large_turn_loses_its_own_cards_and_no_words_of_the_others():
    talk = _talk()
    for number in range(5):
        talk.keep(_turn(number, card="small"))
    large = _turn(5)
    large.answer["toolCards"] = [{"callId": f"c{n}", "toolId": "look", "data": "x" * 16_000} for n in range(70)]
    talk.keep(large)
    talk.keep(StoredTurn(message_id="m6", text="Next", position=6))
    assert _bytes(talk) <= MAX_SHOWN_BYTES
    assert [one["text"] for one in talk.messages()] == ["Question", "Answer"] * 6 + ["Next"]
    cut = [bool(card.get("cut")) for card in large.answer["toolCards"]]
    assert cut == sorted(cut, reverse=True), "the first ones first"
    assert 0 < sum(cut) < 10, "and no more than need be"


async def test_a_message_is_known_when_its_turn_is_no_longer_shown_and_not_without_end(monkeypatch):
    monkeypatch.setattr("handrail.server.host.hosted_session.MAX_TURNS", 30)
    talk = _talk()
    for number in range(40):
        talk.keep(_turn(number, text="y" * 100_000))
    assert [talk.known(f"m{number}") is not None for number in range(40)] == [False] * 10 + [True] * 30
    oldest = talk.known("m10")
    assert (oldest.text, oldest.state, oldest.answer) == ("Question", "done", {})
    new = StoredTurn(message_id="new", text="Next")
    talk.keep(new)
    assert new.position == 40


@pytest.mark.parametrize(("most", "shown"), [(450, True), (1, False)], ids=["without its card", "not shown"])
async def test_a_message_sent_again_gets_its_answer_also_when_its_turn_is_not_shown_whole(
    tmp_path, monkeypatch, most, shown
):
    text = 'call note {"q": "rent"}'
    async with in_process(tmp_path) as server:
        ana = await server.open()
        first = {event.type: event.data for event in await ana.say(text, "first")}
        monkeypatch.setattr("handrail.server.host.hosted_session.MAX_SHOWN_BYTES", most)
        for _ in range(2):
            await ana.say("hello")
        talk = server.sessions._hosted[ana.id]
        assert not talk.is_whole(talk.known("first")), "else this tests nothing"
        assert ("first" in [one["messageId"] for one in (await ana.show())["messages"]]) == shown
        asked = len(server.model.asked)
        again = {event.type: event.data for event in await ana.say(text, "first")}
        assert len(server.model.asked) == asked
        assert again["done"]["text"] == first["done"]["text"]
        assert again["tool_finished"]["args"] == first["tool_finished"]["args"] == {"q": "rent"}
        assert (await ana.post("something else", "first")).status_code == 409
        assert len(server.tools.started()) == 1


async def test_a_request_sent_again_with_its_key_is_answered_when_its_turn_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("handrail.server.host.hosted_session.MAX_SHOWN_BYTES", 1)
    async with in_process(tmp_path) as server:
        ana = await server.open()

        async def ask(text: str, key: str) -> Any:
            body = {"messages": [{"role": "user", "content": text}]}
            headers = {**ana.headers, "X-Handrail-Session": ana.id, "Idempotency-Key": key}
            return await server.client.post("/v1/chat/completions", json=body, headers=headers)

        first = await ask('call note {"q": "rent"}', "req-1")
        for number in range(2, 5):
            await ask("hello", f"req-{number}")
        assert "rent" not in str((await ana.show())["messages"]), "else this tests nothing"
        asked = len(server.model.asked)
        assert (await ask("something else", "req-1")).status_code == 409
        again = await ask('call note {"q": "rent"}', "req-1")
        assert again.json()["choices"] == first.json()["choices"]
        assert len(server.model.asked) == asked
        assert len(server.tools.started()) == 1


class OnceAway(PlayModel):
    """Fails the first time that it is given the outcomes of calls."""

    failed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if not self.failed and isinstance(request.messages[-1], ToolMessage):
            self.failed = True
            raise ModelError("The model is away.")
        async for event in super().stream(request):
            yield event


async def test_a_turn_that_is_answered_anew_shows_the_calls_that_the_model_remembers(tmp_path):
    async with in_process(tmp_path, model=OnceAway()) as server:
        ana = await server.open()
        text = 'call note {"q": "a"}'
        assert (await ana.say(text, "m1"))[-1].data["state"] == "failed"
        again = await ana.say(text, "m1")
        assert [event.type for event in again if event.type.startswith(("turn", "tool"))] == ["turn", "tool_finished"]
        answer = (await ana.show())["messages"][-1]
        assert (answer["state"], answer["text"].strip()) == ("done", "note: ok")
        assert [(card["toolId"], card["ok"]) for card in answer["toolCards"]] == [("note", True)]
        assert "error" not in answer
        assert server.tools.started() == [{"q": "a"}]

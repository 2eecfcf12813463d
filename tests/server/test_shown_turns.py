"""What a session shows of its turns is bounded in size: the oldest lose their cards' contents first, and then go."""

from types import SimpleNamespace
from typing import Any

from handrail.agents import Conversation
from handrail.server.conversations import MOST_TURNS, StoredTurn
from handrail.server.talk import MOST_SHOWN_BYTES, Talk
from handrail.server.wire import to_json


def _talk() -> Talk:
    session: Any = SimpleNamespace(connection=1, id="ses_1")
    return Talk(session, Conversation(), passing=False)


def _turn(number: int, *, text: str = "Answer", card: str = "") -> StoredTurn:
    turn = StoredTurn(message_id=f"m{number}", text="Question", number=number, position=number, state="done")
    cards = [{"callId": f"c{number}", "toolId": "look", "ok": True, "data": card, "type": "tool_finished"}]
    turn.answer = {"text": text, "citations": [], "toolCards": cards}
    return turn


def _bytes(talk: Talk) -> int:
    return len(to_json([[turn.text, turn.answer] for turn in talk.turns.values()]))


async def test_old_cards_are_cut_and_said_to_be_while_every_word_is_still_shown():
    talk = _talk()
    for number in range(200):
        talk.keep(_turn(number, card="x" * 12_000), MOST_TURNS)
    assert _bytes(talk) <= MOST_SHOWN_BYTES + 13_000
    shown = talk.messages()
    assert len(shown) == 400
    oldest, newest = shown[1], shown[-1]
    assert oldest["toolCards"] == [{"callId": "c0", "toolId": "look", "ok": True, "type": "tool_finished", "cut": True}]
    assert newest["toolCards"][0]["data"] == "x" * 12_000


async def test_turns_that_are_long_by_themselves_go_the_oldest_first():
    talk = _talk()
    for number in range(40):
        talk.keep(_turn(number, text="y" * 100_000), MOST_TURNS)
    assert _bytes(talk) <= MOST_SHOWN_BYTES + 110_000
    assert list(talk.turns)[-1] == "m39"
    assert "m0" not in talk.turns

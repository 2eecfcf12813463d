"""What the session tells beside the answers to calls: results that came late, requests for a person, progress, messages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from handrail.agents import events
from handrail.agents.host_words import late_words
from handrail.agents.voice.host_phrases import blocked_words
from handrail.contract.events import SessionEvent
from handrail.contract.live import LiveError
from handrail.contract.model import ToolMessage

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession


class LateResults:
    """Passes on what the session tells in one conversation."""

    def __init__(self, talk: VoiceSession) -> None:
        self._talk = talk
        self.awaits_answer = False
        """The model was told something that it should say something about, and has not ended a turn since."""

    def take(self, event: SessionEvent) -> bool:
        talk, data = self._talk, event.data
        match event.type:
            case "envelope":
                self._envelope(data)
                return True
            case "confirmation":
                talk.tell(event.type, data)
                talk.asking.wanted(data)
            case "message":
                talk.tell(event.type, data)
            case "progress":
                talk.tell(event.type, data)
                if talk.abilities.speaks and not talk.is_voiced:
                    talk.speaking.aside(str(data.get("text", "")))
            case "intent" if not talk.calls.running:  # otherwise its call is still to be answered
                talk.calls_ended()
            case _:
                pass
        return False

    def _envelope(self, told: Mapping[str, Any]) -> None:
        """A call that the model was answered about already has come to its end: the user sees it, the model is told once."""
        talk = self._talk
        confirmation = told.get("confirmationId")
        silent = bool(told.get("silent"))
        if confirmation is not None:
            if not talk.record.conversation.tell(confirmation):
                return
            # The next question is read at once: what the model said to this one would be cut off by it, or spoil it.
            silent = silent or talk.asking.waits_for(confirmation)
            closed = events.closed(told)
            talk.asking.closed(confirmation, closed.data["outcome"] == "declined")
            talk.tell(closed.type, closed.data)
        card = events.ended_late(told)
        talk.tell(card.type, card.data)
        words = late_words(told)
        if not told.get("known"):
            talk.record.note(words)
        # Known to the conversation, but not to this model: the call was made before it began to listen.
        talk.order.put(lambda: self._tell_model(words, silent, confirmation))
        talk.calls.unacknowledged.told_late(told.get("callId"), talk.session.turn.number if talk.session.turn else 0)
        talk.calls_ended()

    async def _tell_model(self, words: str, silent: bool, confirmation: str | None) -> None:
        talk = self._talk
        self.awaits_answer = self.awaits_answer or not silent
        with suppress(LiveError):  # the conversation has it; whoever goes on with it is told
            await talk.connection.tell(words, scheduling="silent" if silent else "when_idle")
            if confirmation is not None:
                await talk.record.conversation.read(talk.session, (confirmation,), self._turn_of_what_was_said())

    def _turn_of_what_was_said(self) -> int:
        """The newest turn of what the user has said so far; the next one if that is not committed, or not stored."""
        talk = self._talk
        number = talk.session.turn.number if talk.session.turn is not None else 0
        begun = talk.turns.current
        is_to_come = talk.hearing.is_uncommitted or (begun is not None and begun.number == 0)
        return number + 1 if is_to_come else number

    def parting_words(self) -> str:
        """What a user who was blocked is told: in the words of the tool that did it, if it has some."""
        for message in reversed(self._talk.record.conversation.current_turn()):
            if isinstance(message, ToolMessage) and message.envelope.get("ok"):
                data = message.envelope.get("data")
                words = data.get("farewellMessage") if isinstance(data, Mapping) else None
                if isinstance(words, str) and words:
                    return words
        return blocked_words()

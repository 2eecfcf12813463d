"""The transcript of a voice conversation: its turns as people see them, kept like those of text, for pages and for the chat.

A turn is stored when it has ended. One that the end of the process cuts off is not answered anew, as one of text would be:
nobody is there to hear it. Words that were typed in the text protocol are answered there as well: their turn is told in the
session's event log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from handrail.agents.voice.host_port import Ending
from handrail.contract.errors import HandrailError
from handrail.server.host.conversation_store import MAX_TURNS, ConversationStore, StoredTurn, TurnState
from handrail.server.host.hosted_session import LATE, HostedSession, TurnRun
from handrail.server.host.refusals import message_reused

_log = logging.getLogger("handrail.server.voice")
_CARDS = ("tool_started", "tool_finished", "tool_refused")
_LONG = 60
_MAX_WORDS = 16_000


class StoredTranscript:
    """See the module's docstring."""

    def __init__(self, hosted: HostedSession, conversations: ConversationStore) -> None:
        self._hosted_session = hosted
        self._conversations = conversations
        self._run: TurnRun | None = None
        self._typed: dict[str, TurnRun] = {}
        """Runs of words that came in the text protocol, by the client's message id."""
        self._words = ("", "")
        """What the user said last, and of which input: it may be known before the turn has begun."""
        self._storing: set[asyncio.Task[None]] = set()
        hosted.conversation.keep = self.keep

    @property
    def is_answering(self) -> bool:
        return self._run is not None

    def note(self, type: str, data: Mapping[str, Any]) -> None:
        """Something that the conversation told."""
        run = self._run
        if type == "turn":
            self._begin(int(data["turn"]), str(data["inputId"]))
        elif type in _CARDS:
            self._card(type, data)
        elif type == "transcript" and data["who"] == "user":
            self._heard(data)
        elif type == "transcript" and run is not None and data["text"]:
            run.note("text", {"text": data["text"]})
            self._mirror(run, "text", {"text": data["text"]})
        elif type == "turn_done":
            self._done(data)

    def expect(self, message_id: str, text: str) -> TurnRun:
        """Words are about to be said that came in the text protocol. The same message again is the same turn."""
        known = self._hosted_session.known(message_id)
        waiting = self._typed.get(message_id)
        if (known is not None and known.text != text) or (waiting is not None and waiting.turn.text != text):
            raise message_reused()
        if waiting is not None:
            return waiting
        run = TurnRun(known or StoredTurn(message_id=message_id, text=text), self._hosted_session.log.last)
        if known is not None:
            run.fresh = False
            run.started.set_result(known.number)
        else:
            self._typed[message_id] = run
        return run

    def forget(self, run: TurnRun) -> None:
        """They could not be said."""
        self._typed.pop(run.turn.message_id, None)
        if not run.started.done():
            run.started.cancel()

    async def close(self, ending: Ending | None) -> None:
        """The conversation is over, or is let go of (None): what is open is stored as it is."""
        if self._run is not None:
            self._finish(self._run, "cancelled")
        for run in self._typed.values():
            if not run.started.done():
                run.started.set_result(run.turn.number)
        self._typed.clear()
        if ending is not None:
            self._farewell(ending)
        else:
            self._store(None)
        if self._storing:
            await asyncio.wait(self._storing)

    async def keep(self) -> None:
        """Store what the model knows now: a call is about to change something."""
        await self._write(None)

    # Inside

    def _begin(self, number: int, input_id: str) -> None:
        if self._run is not None:
            self._finish(self._run, "cancelled")
        run = self._typed.get(input_id)
        if run is None:
            words = self._words[1] if self._words[0] == input_id else ""
            run = TurnRun(StoredTurn(message_id=input_id, text=words), self._hosted_session.log.last)
            run.started.set_result(number)
        run.turn.number = number
        run.turn.position = self._hosted_session.next_position()
        run.turn.answer.setdefault("voice", True)
        self._run = run
        self._hosted_session.keep(run.turn, MAX_TURNS)
        self._mirror(run, "turn", {"messageId": run.turn.message_id})
        if not run.started.done():
            run.started.set_result(number)

    def _card(self, type: str, data: Mapping[str, Any]) -> None:
        """A call's card goes where the call's first one is; one that comes late may belong to a turn that has ended."""
        owner = self._hosted_session.turn_of_card(data) if type != "tool_started" else None
        run = self._run
        if owner is not None and (run is None or run.turn is not owner):
            TurnRun(owner, self._hosted_session.log.last).note(type, data)
            self._store(owner)
        elif run is not None:
            run.note(type, data)
            self._mirror(run, type, data)

    def _heard(self, data: Mapping[str, Any]) -> None:
        """What the user said may become known after the turn has begun, or even after it has ended."""
        input_id = str(data.get("inputId"))
        before = self._words[1] if self._words[0] == input_id else ""
        words = data["whole"] if data["final"] else before + data["text"]
        self._words = (input_id, str(words)[:_MAX_WORDS])
        turn = self._hosted_session.turns.get(input_id)
        if turn is not None and turn.message_id not in self._typed:
            turn.text = self._words[1]
            if turn.state != "running" and data["final"]:
                self._store(turn)

    def _done(self, data: Mapping[str, Any]) -> None:
        """The turn is done; or done once more, with all that was said, when the model went on in it."""
        turn = self._hosted_session.turns.get(str(data["inputId"]))
        if turn is None:
            return
        run = (
            self._run
            if self._run is not None and self._run.turn is turn
            else TurnRun(turn, self._hosted_session.log.last)
        )
        run.pieces.clear()
        turn.text = str(data.get("input") or "") or turn.text
        turn.answer["text"] = str(data.get("text") or "")
        turn.answer["citations"] = list(data.get("citations") or ())
        turn.answer["latency"] = dict(data.get("latency") or {})
        self._finish(run, "cancelled" if data.get("interrupted") else "done")

    def _finish(self, run: TurnRun, state: TurnState) -> None:
        turn = run.turn
        run.gather()
        turn.state = state
        if self._run is run:
            self._run = None
        if turn.message_id in self._typed:
            answer = turn.answer
            shown = {"text": answer.get("text", ""), "citations": answer.get("citations", [])}
            self._mirror(
                run, "done", {**shown, "state": turn.state, "reason": turn.state, "messageId": turn.message_id}
            )
            del self._typed[turn.message_id]
        turn.last_event = self._hosted_session.log.last
        self._store(turn)

    def _mirror(self, run: TurnRun, type: str, data: Mapping[str, Any]) -> None:
        if run.turn.message_id in self._typed:
            self._hosted_session.log.tell(type, data, run.turn.number)

    def _farewell(self, ending: Ending) -> None:
        """What is handed back to the text chat stands there as a message of the assistant."""
        newest = max(self._hosted_session.turns.values(), key=lambda turn: turn.position, default=None)
        said = str(newest.answer.get("text", "")) if newest is not None else ""
        text = "\n\n".join(part for part in (ending.closing_message, ending.text_response) if part and part not in said)
        if not text:
            self._store(None)
            return
        position = self._hosted_session.next_position()
        number = newest.number if newest is not None else 0
        turn = StoredTurn(message_id=f"{LATE}voice:{position}", text="", number=number, position=position, state="done")
        turn.answer = {"text": text, "citations": [], "voice": True}
        turn.last_event = self._hosted_session.log.last
        self._hosted_session.keep(turn, MAX_TURNS)
        self._store(turn)

    def _store(self, turn: StoredTurn | None) -> None:
        task = asyncio.get_running_loop().create_task(self._write(turn))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _write(self, turn: StoredTurn | None) -> None:
        conversation = self._hosted_session.conversation
        try:
            long = len(conversation.messages) > _LONG
            document = await asyncio.to_thread(conversation.to_dict) if long else conversation.to_dict()
            await self._conversations.finish(self._hosted_session.id, turn, document)
        except HandrailError as error:
            _log.error("A turn could not be stored: %s", error)

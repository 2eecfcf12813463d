"""The model's side of a conversation: its events, each taken at once and in order, and its connections.

Nothing here waits. What has to be stored, or carried out in its order, is put into the conversation's `order`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handrail.agents.voice.host_phrases import lost_words
from handrail.agents.voice.host_port import Ending
from handrail.contract.errors import UsageError
from handrail.contract.live import (
    AudioOut,
    CallsCancelled,
    CallsMade,
    Closed,
    Complaint,
    Connected,
    Direct,
    Disconnected,
    InputTranscript,
    Interrupted,
    LiveEvent,
    OutputTranscript,
    TurnEnded,
    UserSpeechEnded,
    UserSpeechStarted,
)
from handrail.contract.store import StoreUnavailable

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

_LOG = logging.getLogger("handrail.agent")
_RESUME_TRIES = 5


class ModelStream:
    """Takes what the model tells in one conversation."""

    def __init__(self, talk: VoiceSession) -> None:
        self._talk = talk
        self.number = 0
        """Of the connection that is up, or was last."""
        self.cut_by_us = False
        """The model's answer was broken off because the host had something to be said."""
        self._task: asyncio.Task[None] | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            AudioOut: self._sound,
            OutputTranscript: self._words,
            InputTranscript: talk.hearing.words,
            CallsMade: self._calls_made,
            CallsCancelled: lambda event: talk.take_back(event.ids),
            Interrupted: lambda _: self._interrupted(),
            TurnEnded: self._turn_ended,
            UserSpeechStarted: self._user_started,
            UserSpeechEnded: self._user_ended,
            Connected: self._connected,
            Disconnected: self._disconnected,
            Complaint: self._complaint,
            Closed: self._closed,
        }

    def start(self) -> None:
        """Begin to listen, not before the conversation stands."""
        loop = asyncio.get_running_loop()
        connection = self._talk.connection
        if isinstance(connection, Direct):
            loop.call_soon(connection.hand_to, self._take_or_fail)
        else:
            self._task = loop.create_task(self._read())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        talk = self._talk
        try:
            async for event in talk.connection.events():
                self._take(event)
        except Exception as error:  # noqa: BLE001  # whatever it is, the user is told that it is over
            talk.fail(error)

    def _take_or_fail(self, event: LiveEvent) -> None:
        try:
            self._take(event)
        except Exception as error:  # noqa: BLE001  # as above; the connection is not to be torn by it
            self._talk.fail(error)

    def _take(self, event: LiveEvent) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None and not self._talk.is_over:
            handler(event)
            if type(event) is not AudioOut:
                self._talk.watch.moved()

    # ------------------------------------------------------------------------------------------- what it says

    def _sound(self, event: AudioOut) -> None:
        self._react()
        self._talk.watch.touch()
        self._talk.speaking.sound(event)

    def _words(self, event: OutputTranscript) -> None:
        self._react()
        self._talk.speaking.words(event)

    def _react(self) -> None:
        talk = self._talk
        if not talk.is_generating:
            talk.is_generating = True
            talk.watch.moved()
        talk.calls.unacknowledged.reacted()

    def _calls_made(self, event: CallsMade) -> None:
        talk = self._talk
        talk.is_generating = True
        talk.calls.unacknowledged.reacted()
        talk.calls.made(event.calls)

    def _turn_ended(self, event: TurnEnded) -> None:
        talk = self._talk
        turn = talk.turns.current
        interrupted = event.reason == "interrupted"
        if interrupted and turn is not None and not turn.has_output and not self.cut_by_us:
            return  # it is the end of an answer to an earlier input; this one's is still to come
        cut_by_us, self.cut_by_us = self.cut_by_us and interrupted, False
        talk.late.awaits_answer = False
        talk.speaking.muted = False
        talk.end_item()
        if cut_by_us:
            return
        talk.is_generating = False
        if event.reason == "failed":
            self._failed(event)
        if interrupted:
            talk.turns.finish(interrupted=True)
        else:
            talk.calls.unacknowledged.answered()
            talk.turns.ended()
        talk.settle()

    def _failed(self, event: TurnEnded) -> None:
        """A provider's code is no sentence for a user: it goes along for whoever looks into it."""
        _LOG.warning(
            "The model could not answer in session %s: %s", self._talk.session.id, event.detail or event.message
        )
        error = {"code": "model_failed", "message": event.message or "The model could not answer."}
        self._talk.tell("error", error | ({"detail": event.detail} if event.detail else {}))

    # ------------------------------------------------------------------------------------------- whom it hears

    def _user_started(self, event: UserSpeechStarted) -> None:
        self._talk.hearing.begins(event.item)
        self._talk.user_starts()

    def _user_ended(self, event: UserSpeechEnded) -> None:
        talk = self._talk
        if event.again and talk.hearing.is_committed:
            return  # a second end would take it for another utterance, and its words for nobody's
        talk.user_speaks()
        talk.speaking.muted = False
        talk.is_generating = True  # before the words are judged: what the model says next answers them
        talk.hearing.committed(event.item)

    def _interrupted(self) -> None:
        """The provider has stopped the model: because the user spoke, or because we wanted it."""
        talk = self._talk
        if not self.cut_by_us:
            talk.farewell.spoken_into()  # before the farewell is over by it
        talk.speaking.cut()
        if not self.cut_by_us:
            talk.asking.model_stopped()
            talk.interrupt_calls()
            talk.note_interruption()

    # ------------------------------------------------------------------------------------------- its connections

    def _connected(self, event: Connected) -> None:
        talk = self._talk
        self.number = event.number
        talk.watch.link(up=True)
        talk.tell("link", {"state": "up", "number": event.number})
        if event.number > 1:
            turn = talk.turns.current.number if talk.turns.current is not None else 0
            talk.calls.unacknowledged.connected(event.number, turn, event.restored_calls)
            talk.order.put(lambda: self._resume(event.restored_calls))
            talk.tell("cue", {"kind": "reconnected", "toolId": None})

    def _disconnected(self, event: Disconnected) -> None:
        talk = self._talk
        _LOG.info("The live connection of session %s is gone: %s", talk.session.id, event.reason)
        talk.end_item()
        talk.hearing.lost()
        talk.watch.link(up=False)
        talk.tell("link", {"state": "lost", "number": self.number})

    def _complaint(self, event: Complaint) -> None:
        _LOG.warning("The live provider complains (%s): %s", event.code, event.message)

    def _closed(self, event: Closed) -> None:
        talk = self._talk
        _LOG.warning("The live session of %s is %s: %s", talk.session.id, event.reason, event.message)
        talk.leave(Ending(reason="provider_lost", resumable=True, message=event.message or lost_words()))

    async def _resume(self, restored: tuple[str, ...]) -> None:
        """The session goes on under the next connection number. No call of the new connection may start before."""
        talk = self._talk
        delay = 0.25
        for attempt in range(1, _RESUME_TRIES + 1):
            try:
                session = await talk.runtime.resume_session(
                    talk.session.id, token=talk.session.token, restored_calls=restored
                )
            except StoreUnavailable:
                if attempt == _RESUME_TRIES:
                    raise
                await asyncio.sleep(delay)
                delay *= 2
            except UsageError as error:
                talk.finish("session_ended", str(error))
                return
            else:
                if session is talk.session:
                    talk.attached = session.connection
                else:  # another process has had it meanwhile
                    talk.finish("taken_over", "The conversation goes on in another connection.")
                return

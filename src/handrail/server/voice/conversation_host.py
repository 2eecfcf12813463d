"""The host of one voice conversation in a session, and of whichever client is attached. It is the conversation's `VoiceListener`.

What is sent is numbered and kept for a while, so that a client that drops can come back and miss nothing. While none is there the
conversation waits, for the time of grace; then the session goes back to text. Sound is not kept: what nobody could hear is lost.

`StoredTranscript` keeps the turns as people see them, like those of text, for pages and for the chat. A turn is stored when it
has ended. One that the end of the process cuts off is not answered anew, as one of text would be: nobody is there to hear it.
Words that were typed in the text protocol are answered there as well: their turn is reported in the session's event log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from handrail.agents.voice.host_port import Ending, Sound, SpokenConversation
from handrail.contract.conversations import Moved, StoredTurn, TurnState
from handrail.contract.errors import HandrailError
from handrail.contract.events import SessionEvent
from handrail.schema.strict_json import trimmed
from handrail.server.host.hosted_session import LATE, MAX_BYTES, MAX_EVENTS, SPAN, HostedSession, TurnRun
from handrail.server.host.refusals import busy, ended, message_reused, restarting
from handrail.server.host.turn_ends import TurnEnds
from handrail.server.key_ring import Key
from handrail.server.voice.client_socket import ClientSocket
from handrail.server.voice.close_codes import ENDED, FAULT, NO_PROVIDER, RESTART, SESSION_ENDED, TAKEN_OVER, CloseCode
from handrail.server.voice.voice_metrics import FROM_MODEL, NO_CLIENT, SLOW_CLIENT, TO_MODEL, VoiceMetrics
from handrail.server.voice.voice_options import VoiceOptions
from handrail.server.wire import to_json

_log = logging.getLogger("handrail.server.voice")
_START_SECONDS = 20.0
_SETTLE_SECONDS = 10.0
_STORE_SECONDS = 10.0
"""So long a conversation that is over is waited for until it is stored."""
_MAX_WORDS = 16_000
_CARDS = ("tool_started", "tool_finished", "tool_refused")
_WRITTEN_DOWN = frozenset({*_CARDS, "turn", "transcript", "turn_done"})
_COUNTED = frozenset({"question", "link"})
CLIENT_GONE = "client_gone"
KEY_REVOKED = "key_revoked"
_AFTER: Mapping[str, CloseCode] = {"provider_lost": NO_PROVIDER, "session_ended": SESSION_ENDED, "fault": FAULT}
_LEAVING: Mapping[str, tuple[CloseCode, str]] = {
    "reconnect": (RESTART, "The server is about to restart, or has put this session away; come back in a moment."),
    "closed": (SESSION_ENDED, "The session has ended."),
}


class ConversationHost:
    """See the module's docstring. `voice` is the conversation, None until it has begun and after its end."""

    def __init__(
        self,
        hosted: HostedSession,
        key: Key,
        transcript: StoredTranscript,
        options: VoiceOptions,
        metrics: VoiceMetrics,
        hung_up: Callable[[], None],
    ) -> None:
        self.hosted = hosted
        self.key = key
        self.voice: SpokenConversation | None = None
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the conversation has begun, or failed to."""
        self.last = hosted.session.connection * SPAN
        """The number of the last message. They only grow, also over restarts, as those of the event log do."""
        self.client: ClientSocket | None = None
        self._loop = asyncio.get_running_loop()
        self._transcript = transcript
        self._options = options
        self._metrics = metrics
        self._hung_up = hung_up
        self._first = self.last + 1
        self._listens_since = self.last
        """The last message before whoever listens now came."""
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._grace: asyncio.TimerHandle | None = None
        self._left = self._let_go = False
        self._work: set[asyncio.Task[None]] = set()

    # What the conversation tells

    def tell(self, type: str, data: Mapping[str, Any]) -> None:
        self.last += 1
        if type == "message":
            data = {"message": data}  # a tool made it: its fields must not pass for the protocol's own
        told = trimmed(to_json({**data, "n": self.last, "type": type}))
        self._kept.append(told)
        self._bytes += len(told)
        while len(self._kept) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft())
            self._first += 1
        client = self.client
        if client is not None:
            if type == "flush":
                client.flush(int(data["item"]))
            client.tell(told)
        if type == "confirmation_closed":
            self.hosted.log.add(type, data, self._turn())  # a page that is not attached may show the request
        try:
            if type in _WRITTEN_DOWN:
                self._transcript.note(type, data)
            elif type in _COUNTED:
                self._metrics.note(type, data)
        except Exception:  # noqa: BLE001  # what is shown later must not end what is said now
            _log.exception("An event of a voice conversation could not be written down")

    def play(self, sound: Sound) -> None:
        client = self.client
        if client is not None:
            client.play(sound.item, sound.offset_ms, sound.pcm)
        else:
            self._metrics.drops[NO_CLIENT] += 1
            self.lost(sound.item)

    def lost(self, item: int | None) -> None:
        """Some of this item, or of all that is not played, did not reach a client: it must not count as heard."""
        if self.voice is not None:
            self.voice.sound_lost(item)

    def dropped(self, item: int) -> None:
        """A piece of sound did not get to a client that does not keep up."""
        self._metrics.drops[SLOW_CLIENT] += 1
        self.lost(item)

    def hear(self, pcm: bytes, rate: int) -> None:
        if self.voice is not None and not self.voice.hear(pcm, rate):
            self._metrics.drops[TO_MODEL] += 1

    @property
    def sound_dropped(self) -> int:
        """Pieces of the model's sound that this server lost."""
        return self.voice.sound_dropped if self.voice is not None else 0

    # Beginning and end

    def opened(self, voice: SpokenConversation) -> None:
        """The conversation has begun."""
        self.voice = voice
        self._metrics.begun += 1
        self.hosted.log.add("voice", {"on": True}, self._turn())
        if self.client is not None and self.client.is_open:
            self._greet(self.client, resumed=False)
        else:
            self.client = None
            self.lost(None)
            self._wait_for_client()
        voice.ending.add_done_callback(self._ended)
        self.begun.set_result(None)

    @property
    def has_left(self) -> bool:
        """Whether it is over, perhaps before it has begun."""
        return self._left

    def failed(self) -> None:
        """It could not begin."""
        if not self._left:
            self._leave()

    def _ended(self, ending: asyncio.Future[Ending]) -> None:
        """The conversation is over by itself: the session continues in text."""
        if ending.cancelled() or self._left:
            return
        told = Ending(reason="fault") if ending.exception() is not None else ending.result()
        client = self.client
        self._leave()
        self._spawn(self._transcript.close(told))
        self.hosted.log.add("voice", {"on": False, "reason": told.reason}, self._turn())
        if client is not None:
            client.close(_AFTER.get(told.reason, ENDED), told.message or "The conversation has ended.")

    def _leave(self) -> None:
        self._left = True
        self._metrics.drops[FROM_MODEL] += self.sound_dropped
        if self.hosted.voice is self:
            self.hosted.voice = None
        self.voice = None
        self._stop_waiting()
        self._hung_up()
        if not self.begun.done():
            self.begun.set_result(None)

    async def leave(self, why: str) -> None:
        """The server lets go of the session (`reconnect`) or the session ends (`closed`)."""
        if self._left:
            return
        voice, client, turn = self.voice, self.client, self._turn()
        self._let_go = True
        self._leave()
        if client is not None:
            client.close(*_LEAVING[why])
        if voice is not None:
            try:
                await voice.close()
                if why == "reconnect":  # whoever continues is to know what became of a write that runs
                    await self.hosted.conversation.unacknowledged.settle(_SETTLE_SECONDS)
            except Exception:  # noqa: BLE001  # the server continues stopping
                _log.exception("A voice conversation could not be let go of")
            finally:  # also when the server is in a hurry
                await self._transcript.close(None)
        self.hosted.log.add("voice", {"on": False, "reason": why}, turn)
        if self._work:
            await asyncio.wait(self._work)

    def hang_up(self, reason: str) -> None:
        """End the conversation; the session goes back to text."""
        if self.voice is not None:
            self._spawn(self._end(self.voice, reason))

    async def _end(self, voice: SpokenConversation, reason: str) -> None:
        try:
            await voice.end(reason)
        except Exception:  # noqa: BLE001  # nobody waits for it who could hear of it
            _log.exception("A voice conversation could not be ended")

    # Clients

    def attach(self, client: ClientSocket, last_event: int | None) -> None:
        """This client is attached now; the one before it has been taken over."""
        before, self.client = self.client, client
        self._stop_waiting()
        if before is not None and before is not client:
            before.close(TAKEN_OVER, "Another client has taken this conversation over.")
        voice = self.voice
        assert voice is not None
        voice.sound_lost(None)
        resumed = last_event is not None and self._first - 1 <= last_event <= self.last
        client.expects(voice.output_rate, self.dropped)
        for told in self._after(last_event) if resumed and last_event is not None else ():
            client.tell(told)
        self._greet(client, resumed=resumed)
        # One that has heard nothing since the last newcomer came may be the one before it.
        is_same = resumed and last_event is not None and last_event > self._listens_since
        if not is_same:
            self._listens_since = self.last
        voice.adapt(client.abilities, resumed=is_same)
        if not client.is_open:  # it went away while it was let in
            self.detach(client)

    def detach(self, client: ClientSocket) -> None:
        """This client is gone; the conversation waits for it, or another, to come back."""
        if self.client is client:
            self.client = None
            if self.voice is not None:
                self.lost(None)
                self._wait_for_client()

    def _after(self, number: int) -> list[bytes]:
        return [self._kept[place] for place in range(number + 1 - self._first, len(self._kept))]

    def _greet(self, client: ClientSocket, *, resumed: bool) -> None:
        voice = self.voice
        assert voice is not None
        rates = {"input": {"rate": client.rate}, "output": {"rate": voice.output_rate}}
        client.ready(self, {**voice.facts(), "audio": rates, "resumed": resumed, "lastEvent": self.last})

    def _wait_for_client(self) -> None:
        self._stop_waiting()
        self._grace = self._loop.call_later(self._options.grace_seconds, self.hang_up, CLIENT_GONE)

    def _stop_waiting(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    # For the hosted session

    def take(self, event: SessionEvent) -> bool:
        """What the session tells; True: the conversation deals with this envelope."""
        return self.voice is not None and self.voice.take(event)

    async def say(self, message_id: str, text: str) -> TurnRun | None:
        """Words that were typed in a page: they join the conversation, and are answered in it. None: there is no
        conversation after all, and they are for the text agent."""
        await asyncio.shield(self.begun)
        if self.voice is None:
            if self.hosted.ended:
                raise ended()
            if self._let_go:
                raise restarting()
            return None
        run = self._transcript.expect(message_id, text)
        try:
            await self.voice.say(text, id=message_id)
        except HandrailError as error:
            self._transcript.forget(run)
            raise busy(str(error)) from None
        await self._started(self.voice, run)
        return run

    async def _started(self, voice: SpokenConversation, run: TurnRun) -> None:
        """Wait until the turn has begun; the conversation may end before."""
        waiting: set[asyncio.Future[Any]] = {run.started, voice.ending}
        await asyncio.wait(waiting, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not run.started.done():
            self._transcript.forget(run)
            raise busy("The voice conversation cannot take this message now; try again.")

    async def interrupt(self) -> bool:
        """The stop button of a page that is not attached."""
        if self.voice is None or not self._transcript.is_answering:
            return False
        await self.voice.interrupt()
        return True

    async def take_newest_tools(self) -> bool:
        """Have the conversation continue with the newest tools, between two of its turns. False: there is none after all."""
        await asyncio.shield(self.begun)
        voice = self.voice
        if voice is None:
            return False
        try:
            async with asyncio.timeout(_START_SECONDS):
                await voice.take_newest_tools()
        except TimeoutError:
            raise busy("The conversation is busy; it takes the new tools when it has answered.") from None
        return not voice.is_over

    def _turn(self) -> int:
        session = self.hosted.session
        return session.turn.number if session.turn is not None else 0

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


class StoredTranscript:
    """The turns of one conversation, as people see them."""

    def __init__(self, hosted: HostedSession, ends: TurnEnds) -> None:
        self._hosted_session = hosted
        self._ends = ends
        self._run: TurnRun | None = None
        self._typed: dict[str, TurnRun] = {}
        """Runs of words that came in the text protocol, by the client's message id."""
        self._words = ("", "")
        """What the user said last, and of which input: it may be known before the turn has begun."""
        self._storing: set[asyncio.Task[None]] = set()
        # What the model knows is stored when a call is about to change something.
        hosted.conversation.keep = self._keep

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
            # It may become known after the turn has begun, or even after it has ended.
            input_id = str(data.get("inputId"))
            before = self._words[1] if self._words[0] == input_id else ""
            words = data["whole"] if data["final"] else before + data["text"]
            self._words = (input_id, str(words)[:_MAX_WORDS])
            turn = self._hosted_session.turns.get(input_id)
            if turn is not None and turn.message_id not in self._typed:
                turn.text = self._words[1]
                if turn.state != "running" and data["final"]:
                    self._store(turn)
        elif type == "transcript" and run is not None and data["text"]:
            run.note("text", {"text": data["text"]})
            if run.turn.message_id in self._typed:
                self._hosted_session.log.add("text", {"text": data["text"]}, run.turn.number)
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
            await asyncio.wait(self._storing, timeout=_STORE_SECONDS)

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
        run.turn.answer.setdefault("voice", True)
        self._run = run
        self._hosted_session.keep(run.turn)
        if input_id in self._typed:
            self._hosted_session.log.add("turn", {"messageId": input_id}, number)
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
            if run.turn.message_id in self._typed:
                self._hosted_session.log.add(type, data, run.turn.number)

    def _done(self, data: Mapping[str, Any]) -> None:
        """The turn is done; or done once more, with all that was said, when the model continued in it."""
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
        turn.last_event = self._hosted_session.log.last
        if self._typed.pop(turn.message_id, None) is not None:
            self._spawn(self._store_and_tell(turn))
        else:
            self._store(turn)

    def _farewell(self, ending: Ending) -> None:
        """What is handed back to the text chat stands there as a message of the assistant."""
        newest = max(self._hosted_session.turns.values(), key=lambda turn: turn.position, default=None)
        said = str(newest.answer.get("text", "")) if newest is not None else ""
        text = "\n\n".join(part for part in (ending.closing_message, ending.text_response) if part and part not in said)
        if not text:
            self._store(None)
            return
        position = newest.position + 1 if newest is not None else 1
        number = newest.number if newest is not None else 0
        turn = StoredTurn(message_id=f"{LATE}voice:{position}", text="", number=number, position=position, state="done")
        turn.answer = {"text": text, "citations": [], "voice": True}
        turn.last_event = self._hosted_session.log.last
        self._hosted_session.keep(turn)
        self._store(turn)

    def _store(self, turn: StoredTurn | None) -> None:
        self._spawn(self._store_at_last(turn))

    def _spawn(self, storing: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(storing)
        for waiting in (self._storing, self._hosted_session.late):  # the session stays here until it is stored
            waiting.add(task)
            task.add_done_callback(waiting.discard)

    async def _store_at_last(self, turn: StoredTurn | None) -> bool:
        """However long the store is away: what was said is not said again. False if another process has the session."""
        try:
            await self._ends.store(self._hosted_session, turn)
        except Moved as error:
            _log.error("A turn could not be stored: %s", error)
            return False
        return True

    async def _store_and_tell(self, turn: StoredTurn) -> None:
        """The end of what was typed, for the text protocol, once it is stored."""
        log = self._hosted_session.log
        try:
            async with log.next_is_ours() as turn.last_event:
                if await self._store_at_last(turn):
                    shown = {"text": turn.answer.get("text", ""), "citations": turn.answer.get("citations", [])}
                    ended_as = {"state": turn.state, "reason": turn.state, "messageId": turn.message_id}
                    log.add("done", {**shown, **ended_as}, turn.number, is_reserved_for=True)
        except asyncio.CancelledError:  # perhaps before its turn to be stored has come
            self._ends.leave(self._hosted_session, turn)
            raise

    async def _keep(self) -> None:
        """Once: the call that asks for it does not wait for a store that is away."""
        try:
            await self._ends.store_once(self._hosted_session, None)
        except HandrailError as error:
            _log.error("A conversation could not be stored: %s", error)

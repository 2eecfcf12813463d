"""The host of one voice conversation in a session, and of whichever client is attached. It is the conversation's `VoiceListener`.

What is told is numbered and kept for a while, so that a client that drops can come back and miss nothing. While none is there the
conversation waits, for the time of grace; then the session goes back to text. Sound is not kept: what nobody could hear is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from handrail.agents.voice.host_port import Ending, Sound, SpokenConversation
from handrail.contract.errors import HandrailError
from handrail.contract.events import SessionEvent
from handrail.schema.strict_json import trimmed
from handrail.server.host.event_log import MAX_BYTES, MAX_EVENTS, SPAN
from handrail.server.host.hosted_session import HostedSession, TurnRun
from handrail.server.host.refusals import busy, ended, restarting
from handrail.server.keys import Key
from handrail.server.voice.client_socket import ClientSocket
from handrail.server.voice.close_codes import ENDED, FAULT, NO_PROVIDER, RESTART, SESSION_ENDED, TAKEN_OVER, CloseCode
from handrail.server.voice.transcript import StoredTranscript
from handrail.server.voice.voice_metrics import FROM_MODEL, NO_CLIENT, SLOW_CLIENT, TO_MODEL, VoiceMetrics
from handrail.server.voice.voice_options import VoiceOptions
from handrail.server.wire import to_json

_log = logging.getLogger("handrail.server.voice")
_START_SECONDS = 20.0
_SETTLE_SECONDS = 10.0
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
            self.hosted.log.tell(type, data, self._turn())  # a page that is not attached may show the request
        try:
            self._metrics.note(type, data)
            self._transcript.note(type, data)
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
        self.hosted.log.tell("voice", {"on": True}, self._turn())
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
        """The conversation is over by itself: the session goes on in text."""
        if ending.cancelled() or self._left:
            return
        told = Ending(reason="fault") if ending.exception() is not None else ending.result()
        client = self.client
        self._leave()
        self._spawn(self._transcript.close(told))
        self.hosted.log.tell("voice", {"on": False, "reason": told.reason}, self._turn())
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
                if why == "reconnect":  # whoever goes on is to know what became of a write that runs
                    await self.hosted.conversation.unacknowledged.settle(_SETTLE_SECONDS)
            except Exception:  # noqa: BLE001  # the server goes on stopping
                _log.exception("A voice conversation could not be let go of")
            finally:  # also when the server is in a hurry
                await self._transcript.close(None)
        self.hosted.log.tell("voice", {"on": False, "reason": why}, turn)
        if self._work:
            await asyncio.wait(self._work)

    def hang_up(self, reason: str) -> None:
        """End the conversation; the session goes back to text."""
        if self.voice is not None:
            self._spawn(self._end(self.voice, reason))

    async def _end(self, voice: SpokenConversation, reason: str) -> None:
        try:
            await voice.end(reason)
        except Exception:  # noqa: BLE001  # nobody waits for it who could be told
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

    def _turn(self) -> int:
        session = self.hosted.session
        return session.turn.number if session.turn is not None else 0

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

"""The exchange: gives out tickets, lets clients in, and brings each to its session's conversation, begun if there is none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from handrail.agents import Conversation
from handrail.agents.voice.host_port import Abilities, SpokenConversation, VoiceError, VoiceListener
from handrail.contract.errors import HandrailError
from handrail.contract.store import StoreUnavailable
from handrail.runtime.session import Session
from handrail.server.host.hosted_session import Talk
from handrail.server.host.refusals import RefusalReason, SessionRefused
from handrail.server.host.session_registry import Talks
from handrail.server.keys import Key, KeyRing
from handrail.server.request_rates import Buckets
from handrail.server.voice.client_socket import Caller
from handrail.server.voice.close_codes import (
    BAD_MESSAGE,
    FAULT,
    FLOOD,
    NO_PROVIDER,
    NO_SESSION,
    RESTART,
    SESSION_ENDED,
    TICKET,
    Closing,
    Refused,
)
from handrail.server.voice.conversation_host import KEY_REVOKED, Line
from handrail.server.voice.messages import PROTOCOL
from handrail.server.voice.tickets import SECONDS, Tickets
from handrail.server.voice.transcript import Minutes
from handrail.server.voice.voice_metrics import Gauges
from handrail.server.voice.voice_options import VoiceOptions

_WRONG_TICKETS_PER_MINUTE = 60
_NOT_NOW = (RefusalReason.FULL, RefusalReason.RESTARTING, RefusalReason.STORE_AWAY)
_REVOKED = "The key of this conversation is no longer valid."
_CLOSINGS: Mapping[RefusalReason, Closing] = {
    RefusalReason.NO_SESSION: NO_SESSION,
    RefusalReason.ENDED: SESSION_ENDED,
    RefusalReason.NOT_ALLOWED: FAULT,
    RefusalReason.QUOTA: FLOOD,
    RefusalReason.MESSAGE_REUSED: RESTART,
    RefusalReason.BUSY: RESTART,
    RefusalReason.FULL: RESTART,
    RefusalReason.RESTARTING: RESTART,
    RefusalReason.STORE_AWAY: RESTART,
}


class LiveFacts(Protocol):
    """What the server needs to know of the model behind the voice agent."""

    @property
    def name(self) -> str: ...
    @property
    def input_rates(self) -> tuple[int, ...]: ...
    @property
    def output_rate(self) -> int: ...


class Agent(Protocol):
    """What the server needs of a voice agent; `handrail.agents.voice.VoiceAgent` is one."""

    @property
    def model(self) -> LiveFacts: ...
    async def begin(
        self, session: Session, conversation: Conversation, listener: VoiceListener, *, abilities: Abilities
    ) -> SpokenConversation: ...


class Exchange:
    """See the module's docstring."""

    def __init__(
        self, talks: Talks, agent: Agent, keys: KeyRing, options: VoiceOptions, rates: Buckets | None = None
    ) -> None:
        self.options = options
        self.tickets = Tickets()
        self._gauges = Gauges()
        self._talks = talks
        self._agent = agent
        self._keys = keys
        self._rates = rates
        """How often a key may ask, in all: the same buckets that the guard of the routes takes from."""
        self._lines: dict[str, Line] = {}
        self._by_key: Counter[str] = Counter()
        self._wrong = Buckets(_WRONG_TICKETS_PER_MINUTE)

    def __len__(self) -> int:
        return len(self._lines)

    def metrics(self) -> dict[str, Any]:
        """What is going on, and has been, as JSON."""
        return self._gauges.to_json(self._lines.values())

    def to_prometheus(self) -> str:
        return self._gauges.to_prometheus(self._lines.values())

    def ticket(self, talk: Talk, key: Key) -> dict[str, Any]:
        """What a client needs to connect."""
        if talk.voice is None:
            self._check_room(key)
        model = self._agent.model
        return {
            "ticket": self.tickets.give(talk.id, talk.session.token, key),
            "url": f"/api/sessions/{talk.id}/voice",
            "protocol": PROTOCOL,
            "expiresIn": SECONDS,
            "offline": not model.output_rate,
            "model": model.name,
            "audio": {"input": {"rates": list(model.input_rates)}, "output": {"rate": model.output_rate}},
        }

    async def join(self, caller: Caller, hello: Mapping[str, Any]) -> None:
        """Let a client in with its ticket, and put it on the line of its session; `Refused` if that cannot be."""
        key, talk = await self._admit(caller, hello)
        caller.key = key
        caller.abilities = Abilities(**hello.get("abilities", {}))
        caller.rate = self._rate(hello)
        while True:
            self._check_key(key)
            line = talk.voice
            if line is None:
                await self._begin(talk, key, caller)
                return
            assert isinstance(line, Line)
            await asyncio.shield(line.begun)
            self._check_key(key)
            if line.voice is not None:
                line.attach(caller, hello.get("lastEvent"))
                return
            await asyncio.sleep(0)  # it failed, or has just ended: it makes room for a new one

    def count(self, key: Key) -> None:
        """Words over the line are a request of this key like those over HTTP; `VoiceError` if it has asked too often."""
        if self._rates is not None and self._rates.take(key.hash):
            raise VoiceError("This key has asked too often; wait a little.", code="rate_limit", retryable=True)

    async def check(self, caller: Caller) -> None:
        """Whether a client may still be on its line: its key may be gone, or its session ended or forgotten by others."""
        line = self._lines.get(caller.session_id)
        if line is None:
            return
        if not self._keys.knows(caller.key or line.key):
            line.hang_up(KEY_REVOKED)
            raise Refused(TICKET, _REVOKED)
        try:
            await self._talks.find(line.talk.id, line.talk.session.token, line.key)
        except StoreUnavailable:
            return  # it is not known now; the next time will tell
        except SessionRefused as refused:
            if refused.reason in _NOT_NOW:
                return
            raise _refused(refused) from None

    # Inside

    async def _admit(self, caller: Caller, hello: Mapping[str, Any]) -> tuple[Key, Talk]:
        ticket = self.tickets.use(hello["ticket"], caller.session_id)
        if ticket is None or not self._keys.knows(ticket.key):
            if self._wrong.take(caller.address):
                raise Refused(FLOOD, "Too many wrong tickets came from there; wait a minute.")
            raise Refused(
                TICKET, "The ticket is not one for this session, is older than half a minute, or was used before."
            )
        if self._talks.draining:
            raise Refused(RESTART, "The server is about to restart; come back in a moment.")
        try:
            return ticket.key, await self._talks.find(ticket.session_id, ticket.session_token, ticket.key)
        except SessionRefused as refused:
            raise _refused(refused) from None

    def _rate(self, hello: Mapping[str, Any]) -> int:
        """The rate of the client's audio, if it sends any and the model takes it."""
        rate = int(hello.get("audio", {}).get("rate", 0))
        taken = self._agent.model.input_rates
        if not rate or not taken:
            return 0
        if rate not in taken:
            known = ", ".join(map(str, taken))
            raise Refused(BAD_MESSAGE, f"The model takes no audio at {rate} Hz; send one of {known} Hz.")
        return rate

    async def _begin(self, talk: Talk, key: Key, caller: Caller) -> None:
        try:
            self._check_room(key)
        except SessionRefused as refused:
            raise _refused(refused) from None
        minutes = Minutes(talk, self._talks.conversations)
        release = self._keys.using(key, lambda: self._revoked(line))
        line = Line(talk, key, minutes, self.options, self._gauges, lambda: self._hung_up(talk, line, release))
        talk.voice = self._lines[talk.id] = line  # from here on nobody else begins one
        self._by_key[key.hash] += 1
        line.caller = caller
        caller.expects(self._agent.model.output_rate, line.dropped)
        try:
            await self._end_of_text(talk)
            await self._talks.set_live(talk, True)
            async with talk.busy:
                self._check_key(key)
                voice = await self._agent.begin(talk.session, talk.conversation, line, abilities=caller.abilities)
                if line.has_left:  # the server let go of the session meanwhile, and with it of what was about to begin
                    await voice.close()
                elif not self._keys.knows(key):  # its client was told so when the key was revoked
                    await voice.end(KEY_REVOKED)
                    self._check_key(key)
                else:
                    line.opened(voice)
        except StoreUnavailable:
            line.failed()
            raise Refused(NO_PROVIDER, "The store cannot be reached at the moment; try again later.") from None
        except SessionRefused as refused:
            line.failed()
            raise _refused(refused) from None
        except HandrailError as error:
            line.failed()
            word = str(getattr(error, "code", ""))
            raise Refused(SESSION_ENDED if word == SESSION_ENDED.word else NO_PROVIDER, str(error), word) from None
        except BaseException:
            line.failed()
            raise

    async def _end_of_text(self, talk: Talk) -> None:
        """A turn in text that still runs, such as the one that led to voice, may end first."""
        run = talk.current
        if run is not None and run.task is not None:
            await asyncio.wait([run.task], timeout=self.options.text_seconds)
            if talk.current is run:
                await self._talks.cancel(talk)

    def _check_key(self, key: Key) -> None:
        """A key may be revoked while a line is being opened with it, which may take seconds."""
        if not self._keys.knows(key):
            raise Refused(TICKET, _REVOKED)

    def _check_room(self, key: Key) -> None:
        if len(self._lines) >= self.options.max_conversations:
            message = "As many voice conversations are open as this server may hold; try again later."
            raise SessionRefused(RefusalReason.QUOTA, message)
        if self._by_key[key.hash] >= self.options.max_conversations_per_key:
            message = "This key has as many voice conversations open as it may; end one."
            raise SessionRefused(RefusalReason.QUOTA, message)

    def _revoked(self, line: Line) -> None:
        """The key that the conversation was begun with is no longer accepted."""
        caller = line.caller
        line.hang_up(KEY_REVOKED)
        if caller is not None:
            caller.close(TICKET, _REVOKED)

    def _hung_up(self, talk: Talk, line: Line, release: Callable[[], None]) -> None:
        release()
        self._talks.is_over(talk)
        if self._lines.get(talk.id) is line:
            del self._lines[talk.id]
            self._by_key[line.key.hash] -= 1
            if self._by_key[line.key.hash] <= 0:
                del self._by_key[line.key.hash]


def _refused(refused: SessionRefused) -> Refused:
    return Refused(_CLOSINGS[refused.reason], refused.message)

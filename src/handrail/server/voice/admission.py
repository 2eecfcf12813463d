"""Admission to voice: tickets are given out, clients let in and attached to their session's conversation, begun if need be."""

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
from handrail.server.host.hosted_session import HostedSession
from handrail.server.host.refusals import RefusalReason, SessionRefused, store_away
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.key_ring import Key, KeyRing, TokenBuckets
from handrail.server.voice import tickets
from handrail.server.voice.client_socket import ClientSocket
from handrail.server.voice.close_codes import (
    BAD_MESSAGE,
    FAULT,
    FLOOD,
    NO_PROVIDER,
    NO_SESSION,
    RESTART,
    SESSION_ENDED,
    TICKET,
    ClientRefused,
    CloseCode,
)
from handrail.server.voice.conversation_host import KEY_REVOKED, ConversationHost, StoredTranscript
from handrail.server.voice.voice_metrics import VoiceMetrics
from handrail.server.voice.voice_options import VoiceOptions
from handrail.server.voice.voice_protocol import PROTOCOL

_WRONG_TICKETS_PER_MINUTE = 60
_NOT_NOW = (RefusalReason.FULL, RefusalReason.RESTARTING, RefusalReason.STORE_AWAY)
_REVOKED = "The key of this conversation is no longer valid."
_CLOSINGS: Mapping[RefusalReason, CloseCode] = {
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


class VoiceAgentPort(Protocol):
    """What the server needs of a voice agent; `handrail.agents.voice.VoiceAgent` is one."""

    @property
    def model(self) -> LiveFacts: ...
    async def begin(
        self, session: Session, conversation: Conversation, listener: VoiceListener, *, abilities: Abilities
    ) -> SpokenConversation: ...


class Admission:
    """See the module's docstring."""

    def __init__(
        self,
        sessions: SessionRegistry,
        agent: VoiceAgentPort,
        keys: KeyRing,
        options: VoiceOptions,
        rates: TokenBuckets | None = None,
    ) -> None:
        self.options = options
        self._metrics = VoiceMetrics()
        self._sessions = sessions
        self._store = sessions.runtime.store
        self._agent = agent
        self._keys = keys
        self._rates = rates
        """How often a key may ask, in all: the same buckets that the guard of the routes takes from."""
        self._hosts: dict[str, ConversationHost] = {}
        self._by_key: Counter[str] = Counter()
        self._wrong = TokenBuckets(_WRONG_TICKETS_PER_MINUTE)

    def __len__(self) -> int:
        return len(self._hosts)

    def metrics(self) -> dict[str, Any]:
        """What is going on, and has been, as JSON."""
        return self._metrics.to_json(self._hosts.values())

    def to_prometheus(self) -> str:
        return self._metrics.to_prometheus(self._hosts.values())

    async def ticket(self, hosted: HostedSession, key: Key) -> dict[str, Any]:
        """What a client needs to connect."""
        if hosted.voice is None:
            self._check_room(key)
        model = self._agent.model
        return {
            "ticket": await tickets.give(self._store.requests, hosted.id, hosted.session.token, key),
            "url": f"/api/sessions/{hosted.id}/voice",
            "protocol": PROTOCOL,
            "expiresIn": tickets.SECONDS,
            "offline": not model.output_rate,
            "model": model.name,
            "audio": {"input": {"rates": list(model.input_rates)}, "output": {"rate": model.output_rate}},
        }

    async def join(self, client: ClientSocket, hello: Mapping[str, Any]) -> None:
        """Let a client in with its ticket, and attach it to its session's conversation; `ClientRefused` if that cannot be."""
        key, hosted = await self._admit(client, hello)
        client.key = key
        client.abilities = Abilities(**hello.get("abilities", {}))
        client.rate = self._rate(hello)
        while True:
            # Each time after something was waited for: the key may have been revoked meanwhile.
            self._check_key(key)
            host = hosted.voice
            if host is None:
                await self._begin(hosted, key, client)
                return
            assert isinstance(host, ConversationHost)
            # Shielded: several clients may wait for the same beginning, and one that goes away must not end it for the
            # others.
            await asyncio.shield(host.begun)
            self._check_key(key)
            if host.voice is not None:
                host.attach(client, hello.get("lastEvent"))
                return
            await asyncio.sleep(0)  # it failed, or has just ended: it makes room for a new one

    def count(self, key: Key) -> None:
        """Words over the socket are a request of this key like those over HTTP; `VoiceError` if it has asked too often."""
        if self._rates is not None and self._rates.take(key.hash):
            raise VoiceError("This key has asked too often; wait a little.", code="rate_limit", retryable=True)

    async def check(self, client: ClientSocket) -> None:
        """Whether a client may stay attached: its key may be gone, or its session ended or forgotten by others."""
        host = self._hosts.get(client.session_id)
        if host is None:
            return
        if not self._keys.knows(client.key or host.key):
            host.hang_up(KEY_REVOKED)
            raise ClientRefused(TICKET, _REVOKED)
        try:
            await self._sessions.find(host.hosted.id, host.hosted.session.token, host.key, looks=True)
        except StoreUnavailable:
            return  # it is not known now; the next time will tell
        except SessionRefused as refused:
            if refused.reason in _NOT_NOW:
                return
            raise _refused(refused) from None

    # Inside

    async def _admit(self, client: ClientSocket, hello: Mapping[str, Any]) -> tuple[Key, HostedSession]:
        try:
            ticket = await tickets.use(self._store.requests, self._keys, hello["ticket"], client.session_id)
        except StoreUnavailable:
            raise _refused(store_away()) from None
        if ticket is None:
            # Only wrong tickets are counted, so nobody at the same address is locked out by them.
            if self._wrong.take(client.address):
                raise ClientRefused(FLOOD, "Too many wrong tickets came from there; wait a minute.")
            raise ClientRefused(
                TICKET, "The ticket is not one for this session, is older than half a minute, or was used before."
            )
        if self._sessions.draining:
            raise ClientRefused(RESTART, "The server is about to restart; come back in a moment.")
        try:
            return ticket.key, await self._sessions.find(ticket.session_id, ticket.session_token, ticket.key)
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
            raise ClientRefused(BAD_MESSAGE, f"The model takes no audio at {rate} Hz; send one of {known} Hz.")
        return rate

    async def _begin(self, hosted: HostedSession, key: Key, client: ClientSocket) -> None:
        try:
            self._check_room(key)
        except SessionRefused as refused:
            raise _refused(refused) from None
        transcript = StoredTranscript(hosted, self._sessions.ends)
        release = self._keys.using(key, lambda: self._revoked(host))
        host = ConversationHost(
            hosted, key, transcript, self.options, self._metrics, lambda: self._hung_up(hosted, host, release)
        )
        hosted.voice = self._hosts[hosted.id] = host  # from here on nobody else begins one
        self._by_key[key.hash] += 1
        host.client = client
        client.expects(self._agent.model.output_rate, host.dropped)
        try:
            await self._end_of_text(hosted)
            await self._sessions.set_live(hosted, True)
            async with hosted.busy:
                self._check_key(key)
                voice = await self._agent.begin(hosted.session, hosted.conversation, host, abilities=client.abilities)
                if host.has_left:  # the server let go of the session meanwhile, and with it of what was about to begin
                    await voice.close()
                elif not self._keys.knows(key):  # its client learnt so when the key was revoked
                    await voice.end(KEY_REVOKED)
                    self._check_key(key)
                else:
                    host.opened(voice)
        except StoreUnavailable:
            host.failed()
            raise ClientRefused(NO_PROVIDER, "The store cannot be reached at the moment; try again later.") from None
        except SessionRefused as refused:
            host.failed()
            raise _refused(refused) from None
        except HandrailError as error:
            host.failed()
            word = str(getattr(error, "code", ""))
            raise ClientRefused(
                SESSION_ENDED if word == SESSION_ENDED.word else NO_PROVIDER, str(error), word
            ) from None
        except BaseException:
            host.failed()
            raise

    async def _end_of_text(self, hosted: HostedSession) -> None:
        """A turn in text that still runs, such as the one that led to voice, may end first."""
        run = hosted.current
        if run is not None and run.task is not None:
            await asyncio.wait([run.task], timeout=self.options.text_seconds)
            if hosted.current is run:
                await self._sessions.cancel(hosted)

    def _check_key(self, key: Key) -> None:
        """A key may be revoked while a conversation is being begun with it, which may take seconds."""
        if not self._keys.knows(key):
            raise ClientRefused(TICKET, _REVOKED)

    def _check_room(self, key: Key) -> None:
        if len(self._hosts) >= self.options.max_conversations:
            message = "As many voice conversations are open as this server may hold; try again later."
            raise SessionRefused(RefusalReason.QUOTA, message)
        if self._by_key[key.hash] >= self.options.max_conversations_per_key:
            message = "This key has as many voice conversations open as it may; end one."
            raise SessionRefused(RefusalReason.QUOTA, message)

    def _revoked(self, host: ConversationHost) -> None:
        """The key that the conversation was begun with is no longer accepted."""
        client = host.client
        host.hang_up(KEY_REVOKED)
        if client is not None:
            client.close(TICKET, _REVOKED)

    def _hung_up(self, hosted: HostedSession, host: ConversationHost, release: Callable[[], None]) -> None:
        release()
        self._sessions.clear_live(hosted)
        if self._hosts.get(hosted.id) is host:
            del self._hosts[hosted.id]
            self._by_key[host.key.hash] -= 1
            if self._by_key[host.key.hash] <= 0:
                del self._by_key[host.key.hash]


def _refused(refused: SessionRefused) -> ClientRefused:
    return ClientRefused(_CLOSINGS[refused.reason], refused.message)

"""A client's call → a call of a session, with the key by which a retry meets its first execution.

The id of a JSON-RPC request names nothing beyond its connection, so it is no key. A client that sends its turn's id in
`_meta` has calls of that turn, which are the same when their content is. Without one, each call is a turn of its own, and
an identical writing call of the same principal is a retry until the first answer was written to an open connection, and for
15 seconds after that. What says so is a document of the store: a retry may come to another process, and after a crash.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

import orjson

from handrail.contract.call import Call
from handrail.contract.documents import Document
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, SessionEnded
from handrail.contract.store import StoreUnavailable
from handrail.mcp.server.options import MCP_CLIENT, Principal
from handrail.providers.mcp.transport import TURN
from handrail.runtime.call_attempt import ConnectionReplaced
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session
from handrail.runtime.turns import TurnRecord, single_turn

PROVIDER = "mcp"
RETRY_MS = 15_000
"""For so long after its answer was written an identical writing call is still a retry."""
_UNDELIVERED_MS = 7 * 24 * 3_600_000
_KEPT_MS = 30 * 24 * 3_600_000
_MAX_TURNS = 1_000
_MAX_SESSIONS = 10_000
_TRIES = 5
_CALLS, _SESSIONS = "mcp-call", "mcp-session"


@dataclass(frozen=True, slots=True)
class CallKey:
    """What a call is found by, in this process and in others."""

    input_id: str
    session_id: str
    again: bool = False
    """Somebody made this call before."""
    document: Document | None = None
    """What says so, until its answer was delivered."""


class GovernedCalls:
    """The sessions of principals, and the calls that they make."""

    def __init__(self, runtime: RuntimeCore, *, max_sessions: int = _MAX_SESSIONS) -> None:
        self._runtime = runtime
        self._max_sessions = max_sessions
        self._sessions: dict[Principal, Session] = {}
        self._opening: WeakValueDictionary[Principal, asyncio.Lock] = WeakValueDictionary()
        self._turns: dict[tuple[str, str], TurnRecord] = {}

    async def session(self, who: Principal) -> Session:
        """The session of a principal in this process. After a restart it is the one that it had before."""
        session = self._sessions.get(who)
        if session is not None and self._is_current(session):
            self._sessions[who] = self._sessions.pop(who)  # the last to be let go of
            return session
        # Calls that come at the same time share one session, or their retries would not find each other.
        lock = self._opening.setdefault(who, asyncio.Lock())
        async with lock:
            session = self._sessions.get(who)
            if session is None or not self._is_current(session):
                session = self._sessions[who] = await self._open(who)
                await self._release_oldest(session)
        return session

    async def _release_oldest(self, newest: Session) -> None:
        """Of too many principals the one is let go of that has made no call for longest; its session is resumed if it comes
        back."""
        if len(self._sessions) <= self._max_sessions:
            return
        for who, session in list(self._sessions.items()):
            if session is newest or session.running:
                continue
            if not self._runtime.has_connection(session) or await self._runtime.housekeeper.release(session):
                if self._sessions.get(who) is session:
                    del self._sessions[who]
                return

    def _is_current(self, session: Session) -> bool:
        runtime = self._runtime
        pinned = session.snapshot.version == runtime.registry.snapshot().version
        return pinned and session.is_active and runtime.has_connection(session)

    async def _open(self, who: Principal) -> Session:
        store, name = self._runtime.store, digest_of("session", who)
        try:
            known = await store.documents.get(_SESSIONS, name)
            if known is not None:
                record = await store.load_session(known.body["session"])
                mine = record is not None and record.owner == self._runtime.owner
                # A session of a process that lives is left to it: two servers on one store would take it from each other with
                # every call.
                if record is not None and (mine or not await store.owner_lives(record.owner)):
                    session = await self._runtime.take_session(record.session_id, renew=True)
                    if session is not None:
                        await self._runtime.set_roles(session, who.roles)
                        return session
        except (StoreUnavailable, SessionEnded):
            known = None
        facts: dict[str, Any] = {"roles": list(who.roles)} if who.roles else {}
        facts[MCP_CLIENT] = who.client
        session = await self._runtime.open_session(mode="text", user=who.user, tenant=who.tenant, attributes=facts)
        kept = Document(
            kind=_SESSIONS,
            id=name,
            tenant=who.tenant,
            user=who.user,
            body={"session": session.id},
            expires_at=await store.now() + _KEPT_MS,
            version=known.version if known is not None else 0,
            session=session.id,
        )
        await store.documents.put(kept)
        return session

    # Keys

    async def key_of(self, who: Principal, session: Session, name: str, args: Any, turn: str | None) -> CallKey:
        """The key of a call: by the client's turn, else by its content if it writes, else one of its own."""
        if turn is not None:
            return CallKey(f"mcp-turn:{turn}", session.id)
        nonce = f"mcp:{secrets.token_hex(12)}"
        plan = session.plans[name]
        # What only reads may run again, and keeping every one of them for its retry would cost a write each.
        if plan is None or not (plan.writes or plan.always_confirm or plan.confirm_when is not None):
            return CallKey(nonce, session.id)
        digest = self._runtime.pipeline.digest(session, plan, Call(name, args, None, PROVIDER, "none"))
        if digest is None:  # refused anyway
            return CallKey(nonce, session.id)
        store = self._runtime.store
        # The first to put it gives the key. Whoever comes second, in whichever process, finds that one and so the same
        # execution.
        mine, kept = await store.documents.put(
            Document(
                kind=_CALLS,
                id=digest_of("call", who, name, digest),
                tenant=who.tenant,
                user=who.user,
                body={"input": nonce, "session": session.id},
                expires_at=await store.now() + _UNDELIVERED_MS,
                session=session.id,
            )
        )
        return CallKey(kept.body["input"], kept.body["session"], again=not mine, document=kept)

    async def key_again(self, input_id: str, session_id: str, document_id: str | None) -> CallKey:
        """The key of an earlier request, with what says that its answer was not delivered if that still stands."""
        kept = await self._runtime.store.documents.get(_CALLS, document_id) if document_id is not None else None
        current = kept if kept is not None and kept.body["input"] == input_id else None
        return CallKey(input_id, session_id, again=True, document=current)

    async def delivered(self, key: CallKey) -> None:
        """The answer was written to an open connection: a little later an identical call is a new one."""
        if key.document is None or key.document.body.get("delivered"):
            return
        store = self._runtime.store
        now = await store.now()
        body = {**key.document.body, "delivered": now}
        try:
            await store.documents.put(replace(key.document, body=body, expires_at=now + RETRY_MS))
        except StoreUnavailable as error:
            self._runtime.log.warning("That an answer was delivered could not be stored: %s", error)

    # Calls

    async def call(self, who: Principal, key: CallKey, name: str, args: Any, call_id: str) -> ToolResponse:
        """The envelope of a call. One whose session another process has taken over meanwhile follows it there and back."""
        answer = ToolResponse.failure(ErrorType.CONFLICT, "The call was not made.")
        for _ in range(_TRIES):
            session = await self.session_of(key)
            if session is None:
                return ToolResponse.failure(
                    ErrorType.CONFLICT, "The session of the first call has ended; its outcome is in the audit log."
                )
            turn = await self._turn(session, key)
            # A writing call goes by its content within its turn; an id of its own would make its retry another call.
            plan = session.plans[name]
            reads = plan is not None and not plan.writes and key.document is None
            made = Call(name, args, call_id, PROVIDER, "session" if reads else "none", None, session.connection)
            answer = await self._runtime.pipeline.call(session, made, turn)
            # Another process has resumed the session in between: nothing ran, and the call follows the session.
            if not isinstance(answer.error, ConnectionReplaced):
                return answer
            key = replace(key, again=True)
        return answer

    async def session_of(self, key: CallKey) -> Session | None:
        """The session that a call was first made in; None if it has ended."""
        session = self._runtime.sessions.get(key.session_id)
        if session is not None and self._runtime.has_connection(session):
            return session
        return await self._runtime.take_session(key.session_id)

    async def _turn(self, session: Session, key: CallKey) -> TurnRecord:
        if not key.input_id.startswith("mcp-turn:"):
            return single_turn(key.input_id, again=key.again)
        named = (session.id, key.input_id)
        turn = self._turns.get(named)
        if turn is None or session.turns.get(turn.number) is not turn:
            await session.begin_turn(key.input_id)
            assert session.turn is not None
            turn = self._turns[named] = session.turn
            if len(self._turns) > _MAX_TURNS:
                del self._turns[next(iter(self._turns))]
        return turn

    async def close(self) -> None:
        """The sessions stay open in the store: a client comes back to them after a restart."""
        self._sessions.clear()


def digest_of(kind: str, who: Principal, *parts: str) -> str:
    whole: list[Any] = [kind, who.tenant, who.user, who.client, *parts]
    return sha256(orjson.dumps(whole)).hexdigest()


def turn_in(meta: Mapping[str, Any] | None) -> str | None:
    """The client's id of its turn, where it sends one that can be kept."""
    turn = meta.get(TURN) if meta else None
    return turn if isinstance(turn, str) and 0 < len(turn) <= 200 and turn.isprintable() else None

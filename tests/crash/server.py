"""A server process of the chaos run: real tools, store, conversations and sockets; it says in the journal which turn it answers.

The controls are the same server with one guard taken away: without the ledger a call that comes again runs again, with
`steals` whoever is asked takes the session, whoever has it, and without `recovers` the audit lines of the killed are lost.
Without `looks` what is in memory is shown, whoever has the session, and without `waits` an end is reported that is not stored.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.effects import Journal, prepare
from tests.crash.worker import POLICY, store_of
from tests.server.kit import KEYS
from tests.server.model import PlayModel

from handrail import Registry, Runtime
from handrail.agents import Conversation, TextAgent
from handrail.contract.conversations import StoredTurn
from handrail.contract.errors import HandrailError
from handrail.events import SessionEvent
from handrail.runtime.audit_recovery import AuditRecovery
from handrail.runtime.session import Session
from handrail.server.assembly import assemble
from handrail.server.host.hosted_session import HostedSession
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.host.turn_ends import TurnEnds
from handrail.server.key_ring import KeyRing
from handrail.server.options import Options
from handrail.server.uvicorn_server import bound, make_server


@dataclass(frozen=True, slots=True)
class Post:
    """Where one server stands."""

    number: int
    folder: Path
    port: int
    ledger: bool = True
    steals: bool = False
    recovers: bool = True
    """Writes the audit lines that servers left out when they were killed."""
    database: str | None = None
    """The URL of a PostgreSQL database; None: a file in the folder."""
    shutdown_seconds: int = 2
    heartbeat_seconds: int = 15
    """How often a stream says that it lives."""
    looks: bool = True
    """Looks whether a session is still its own before it shows what it has in memory."""
    waits: bool = True
    """Waits until the end of a turn is stored before it tells it."""


def serve(post: Post) -> None:
    """The entry of the process."""
    logging.basicConfig(filename=post.folder / "servers.log")
    journal = Journal(post.folder / "journal.jsonl")
    try:
        asyncio.run(_serve(post, journal))
    except Exception:  # noqa: BLE001  # whatever it is, the harness must hear of it
        journal.write("failed", worker=post.number, why=traceback.format_exc())
        raise SystemExit(1) from None


async def _serve(post: Post, journal: Journal) -> None:
    prepare(journal, post.number, post.number)
    store = store_of(post.folder, post.database, ledger=post.ledger)
    runtime = Runtime(
        Registry.load(post.folder / "tool_registry.json"), store=store, policy=POLICY, audit=post.folder / "audit"
    )
    if not post.recovers:
        AuditRecovery.recover = _recover_nothing  # type: ignore[method-assign]
    options = replace(
        Options(),
        port=post.port,
        shutdown_seconds=post.shutdown_seconds,
        heartbeat_seconds=post.heartbeat_seconds,
        requests_per_minute=1_000_000,
        max_streams=5_000,
        max_connections=6_000,
    )
    agent = JournalAgent(TextAgent(runtime, PlayModel(pause=0.01), listen=False), journal, post.number)
    made = assemble(
        runtime,
        agent,
        keys=KeyRing(KEYS),
        options=options,
        model_name="play",
    )
    if post.steals:
        made.sessions._take = _steal.__get__(made.sessions)  # type: ignore[method-assign]
    if not post.looks:
        made.sessions._is_ours = _believe  # type: ignore[method-assign]
    if not post.waits:
        made.sessions.ends.store = partial(_store_once, made.sessions.ends)  # type: ignore[method-assign]
    ready = lambda: journal.write("ready", worker=post.number)  # noqa: E731
    await make_server(made.app, options, made.sessions.drain, ready).serve(sockets=[bound(options)])


async def _steal(sessions: SessionRegistry, session_id: str, *, though_idle: bool) -> bool:
    """The control: as it was before a turn belonged to its living owner."""
    standing = await sessions.conversations.standing(session_id)
    if standing is not None and standing.owner != sessions.runtime.owner:
        await sessions.conversations.take(
            session_id, owner=sessions.runtime.owner, former=standing.owner, though_busy=True
        )
    return True


async def _believe(hosted: HostedSession) -> bool:
    """The control: what is in memory is taken for what is so."""
    hosted.asked_at = time.monotonic()
    return True


async def _store_once(ends: TurnEnds, hosted: HostedSession, turn: StoredTurn | None) -> None:
    """The control: an end that could not be stored is reported all the same."""
    with suppress(HandrailError):
        await ends.store_once(hosted, turn)


async def _recover_nothing(recovery: AuditRecovery) -> None:
    """The control: whoever starts leaves the audit log as it was."""


class JournalAgent:
    """The text agent; the journal has when this process began and ended to answer a message."""

    def __init__(self, agent: TextAgent, journal: Journal, number: int) -> None:
        self._agent = agent
        self._journal = journal
        self._number = number

    async def run(
        self, session: Session, conversation: Conversation, text: str, *, message_id: str | None = None
    ) -> AsyncIterator[Any]:
        facts = {"worker": self._number, "session": session.id, "message": message_id}
        self._journal.write("turn", **facts)
        try:
            async for event in self._agent.run(session, conversation, text, message_id=message_id):
                yield event
        finally:
            self._journal.write("turn_over", **facts)

    def late(self, session: Session, conversation: Conversation, event: SessionEvent) -> Any:
        return self._agent.late(session, conversation, event)

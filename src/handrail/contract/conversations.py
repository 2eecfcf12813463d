"""Conversations as a server keeps them: what the model remembers of each session, and the turns as people see them.

A turn is written before it begins and again when it has ended: one that is still running although its process has ended was cut
off, and is answered anew. Several processes share the store. Each conversation names its owner, the process that has the session,
and only the owner writes to it; another process takes it over when the owner is idle in it or has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from handrail.contract.errors import HandrailError

TurnState = Literal["running", "done", "failed", "cancelled"]
MAX_TURNS = 500
"""How many of the newest turns of a session are kept to be shown."""


class Moved(HandrailError):
    """Another process has taken the session over; nothing was written."""


class QuotaExceeded(HandrailError):
    """There is no room for another conversation; `scope` is "user", "key" or "all"."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"As many conversations are kept as the limit of the scope {scope!r} allows.")
        self.scope = scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many conversations are kept at most."""

    in_all: int
    per_key: int
    per_user: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Who has a session, and what it does there."""

    owner: str
    live: bool
    """A voice conversation is on, or a tool is being tried."""
    running: str | None
    """The message that is being answered."""

    @property
    def busy(self) -> bool:
        return self.live or self.running is not None


@dataclass(slots=True, kw_only=True)
class StoredTurn:
    """A message and its answer, as people see them."""

    message_id: str
    text: str
    position: int = 0
    number: int = 0
    state: TurnState = "running"
    attempts: int = 1
    answer: dict[str, Any] = field(default_factory=dict)
    """`text`, `toolCards`, `citations`, `error`, as far as there are any."""
    last_event: int = 0


@dataclass(slots=True, kw_only=True)
class StoredConversation:
    """Everything that is kept of a session."""

    session_id: str
    tenant: str
    user: str | None
    passing: bool
    document: Mapping[str, Any]
    key: str = ""
    """The hash of the API key that it was opened with."""
    live: bool = False
    turns: list[StoredTurn] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedConversation:
    """A conversation that was kept elsewhere before. Times are milliseconds since 1970."""

    conversation: StoredConversation
    sealed: str
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConversation:
    """A conversation as a list shows it. Times are milliseconds since 1970."""

    session_id: str
    sealed: str
    title: str
    """The first words that the user said."""
    created_at: int
    updated_at: int
    answering: bool


class ConversationStore(Protocol):
    """The conversations of a store. `owner` is the name under which the calling process has sessions."""

    async def create(self, conversation: StoredConversation, *, owner: str, quota: Quota | None = None) -> list[str]:
        """Keep a new conversation; the sessions of older ones of the same user that made room for it. `QuotaExceeded` if there
        is no room that is this user's own."""
        ...

    async def load(self, session_id: str) -> StoredConversation | None: ...
    async def turn(self, session_id: str, message_id: str) -> StoredTurn | None:
        """One turn with all of its answer."""
        ...

    async def owners(self, session_ids: Sequence[str]) -> dict[str, str]:
        """The owners of those of these conversations that are still kept."""
        ...

    async def standing(self, session_id: str) -> Ownership | None:
        """Who has the session, and what it does there; None if no conversation is kept."""
        ...

    async def take(self, session_id: str, *, owner: str, former: str, though_busy: bool) -> bool:
        """Make this process the owner in place of `former`, unless that is busy in it; `though_busy`: also then, because its
        process has ended. Whether it is ours now, and live: nobody takes it before the session has been resumed here."""
        ...

    async def set_live(self, session_id: str, live: bool, *, owner: str) -> None:
        """A voice conversation, or the trial of a tool, begins or ends: no other process takes the session meanwhile. `Moved` if
        another process has it."""
        ...

    async def changes(self, session_id: str, after: int) -> tuple[Ownership, list[StoredTurn]] | None:
        """Who has the session, and the turns that ended after this event; None if no conversation is kept."""
        ...

    async def remember_opener(self, session_id: str, sealed: str) -> None:
        """Keep the session's secret in a form that only the key opens that the conversation was opened with."""
        ...

    async def opened_with(self, key: str, user: str | None, maximum: int) -> list[ListedConversation]:
        """The conversations of a user that were opened with a key and in which something was said, the newest first."""
        ...

    async def begin(self, session_id: str, turn: StoredTurn, *, owner: str) -> None:
        """Write a turn down before it begins; one of the same message is begun again. `Moved` if another process has the
        session."""
        ...

    async def finish(
        self, session_id: str, turn: StoredTurn | None, document: Mapping[str, Any], *, owner: str
    ) -> None:
        """Write down how a turn ended and what the model remembers now. `Moved` if another process has the session."""
        ...

    async def delete(self, session_id: str) -> bool: ...
    async def forget(self, tenant: str, user: str, *, images: Collection[str] = ()) -> tuple[int, set[str]]:
        """Delete every conversation of a user; how many, and the images that only those mentioned. `images` are the user's too,
        and among them if no other conversation mentions them."""
        ...

    async def prune(self, *, unused_for: int) -> list[str]:
        """Delete conversations that nobody has continued for that many milliseconds, a hundred at most; their sessions. Ask again
        until there are none."""
        ...

    async def imported_until(self, source: str) -> str:
        """The session id up to which conversations of this source were imported; empty if none were."""
        ...

    async def import_all(self, source: str, batch: Sequence[ImportedConversation]) -> int:
        """Take conversations over, in the order of their session ids; how many were new. A batch is one transaction with the
        place up to which it goes, so that nothing is lost, doubled or brought back however often an import begins anew. What is
        there already stays as it is."""
        ...

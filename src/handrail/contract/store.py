"""The port of the store: where sessions, turns, the ledger, confirmations, blocks, switches, limits, conversations and server
keys live.

One conformance suite runs over every implementation. Every method is one transaction: it happened whole, or not at all.
Times are milliseconds since 1970 on the *store's* clock. A store that cannot answer raises `StoreUnavailable`; a request
that makes no sense (a session or row that is not there) raises `UsageError`. Cancelling the wait for a method does not take
back what it does: shield a claim, or settle the row that it may have made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

from handrail.contract.conversations import ConversationStore
from handrail.contract.credentials import CredentialStore
from handrail.contract.documents import DocumentStore
from handrail.contract.errors import HandrailError
from handrail.contract.keys import KeyStore
from handrail.contract.server_requests import RequestStore
from handrail.contract.usage import UsageStore

Effects = Literal["none", "idempotent", "unsafe"]
HOLD_TOKENS = 64
"""Tokens that a request keeps: enough for every page that may still show it, and no more however often it is looked at."""


class StoreUnavailable(HandrailError):
    """The store could not be reached or written in time; nothing was changed, or it is not known whether it was."""


class LedgerState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class HoldState(StrEnum):
    """What became of a held call."""

    PENDING = "pending"
    APPROVED = "approved"
    CONSUMED = "consumed"
    DECLINED = "declined"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session as stored. `token_hash` is the SHA-256 of its secret; the secret itself is never stored."""

    session_id: str
    token_hash: str
    tenant: str
    user: str | None
    mode: str
    attributes: Mapping[str, Any]
    registry_version: str
    connection: int = 1
    turn: int = 0
    """The newest turn."""
    current_turn: int = 0
    """The turn that it is in: an older one if a message came again; 0 before any."""
    active: bool = True
    state: Mapping[str, Any] = field(default_factory=dict)
    """The state controller's values."""
    counters: Mapping[str, Any] = field(default_factory=dict)
    """Budget and loop counters of the current turn, written behind."""
    owner: str = ""
    """The process that has the connection."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """What the session's policy changes in that of its host."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of tools that there are in several versions: the one that the session is pinned to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """The number of a turn; `known` if this input had begun it before, with the counters that it was left with."""

    turn: int
    known: bool
    counters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Alias:
    """A provider's call id that a session has used, and what it stands for."""

    call_id: str
    """The key of the call: `provider:<id>` or `provider:<connection>:<id>`; of a held call also `message:<request>:<id>`."""
    tool: str
    raw_digest: str
    """SHA-256 of the canonical parsed arguments, before defaults and clamps."""
    ledger_key: str | None
    hold_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCharge:
    """One unit of a limit that is counted over all processes: at most `limit` in any window of that length."""

    scope: str
    limit: int
    window_ms: int
    slot_ms: int = 1
    """Units are counted by slots of this length; a slot counts until its last moment has left the window."""
    slot: int | None = None
    """The beginning of the slot that the unit falls into, on the clock of whoever asks; None: the store's now."""


@dataclass(slots=True, kw_only=True)
class Claim:
    """The wish to run a writing (or held) call once."""

    key: str
    tenant: str
    session_id: str
    user: str | None
    turn: int
    connection: int
    tool: str
    tool_hash: str
    registry_version: str
    args_digest: str
    args: str
    """The validated arguments as canonical JSON: what `reconcile` and a person will be shown."""
    effects: Effects
    ordinal: int
    owner: str
    lease_ms: int
    alias: Alias | None = None
    hold_id: str | None = None
    """The confirmation whose single-use grant this claim consumes."""
    rate: RateCharge | None = None
    counters: Mapping[str, Any] | None = None
    """Counters to write with the claim: those of the turn that the session is in."""
    left: tuple[int, Mapping[str, Any]] | None = None
    """The turn that the call is counted in, and its counters, where the session is in another or may be: the next one begins."""
    check_connection: bool = True
    claim_id: str = ""
    """Random for each claim, and the same when that claim is tried again after `StoreUnavailable`: a row that bears it is
    ours although the commit was not heard of. Empty: never recognised."""


class ClaimVerdict(StrEnum):
    CLAIMED = "claimed"
    """It is yours: run it."""
    TAKEN_OVER = "taken_over"
    """It is yours: its first owner died, and it is safe to run again."""
    RUNNING = "running"
    """Somebody else runs it; wait."""
    SETTLED = "settled"
    """It ran; `row` has the outcome."""
    UNKNOWN = "unknown"
    """It may have run; it is never run again by itself."""
    MISMATCH = "mismatch"
    """The key stands for other arguments."""
    BLOCKED = "blocked"
    SWITCHED_OFF = "switched_off"
    RATE_LIMITED = "rate_limited"
    STALE_CONNECTION = "stale_connection"
    INACTIVE = "inactive"
    NO_GRANT = "no_grant"
    """The confirmation is not approved, expired, or was consumed by another key."""


class LedgerRow(NamedTuple):
    """One writing call and what became of it."""

    key: str
    tenant: str
    session_id: str
    user: str | None
    turn: int
    ordinal: int
    tool: str
    tool_hash: str
    registry_version: str
    args_digest: str
    args: str
    effects: Effects
    state: LedgerState
    fence: int
    owner: str
    lease_until: int
    created_at: int
    finished_at: int | None
    envelope: str | None
    """The wire form as JSON text; None while running, or after its body was evicted."""
    evicted: bool
    hold_id: str | None


class ClaimResult(NamedTuple):
    verdict: ClaimVerdict
    fence: int = 0
    row: LedgerRow | None = None
    retry_after_ms: int | None = None
    """When a limit or a block ends."""
    reason: str | None = None
    """Why the tool is switched off."""


class Evicted(NamedTuple):
    """What one batch of giving back room has dropped."""

    results: int
    rows: int
    left_at: str | None
    """Where the next batch continues; None if there is nothing more to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A user who may call nothing until then, in milliseconds since 1970."""

    tenant: str
    user: str
    until: int


@dataclass(slots=True, kw_only=True)
class Finish:
    """The outcome of a claimed call, with what has to be stored in the same transaction."""

    key: str
    fence: int
    state: LedgerState
    envelope: str
    block: Block | None = None
    session_state: Mapping[str, Any] | None = None
    connection: int | None = None
    """The connection that `session_state` belongs to: it is not stored if that is no longer current. None: always stored."""
    claimed: LedgerRow | None = None
    """The row as the claim gave it, if it is at hand: a store need not read again what cannot have changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A held call: the request for a person's confirmation."""

    hold_id: str
    tenant: str
    session_id: str
    user: str | None
    turn: int
    tool: str
    tool_hash: str
    args_digest: str
    """Of `args`, all of them; older versions stored that of the tool's `dedupeFields`, so `args` is what is compared."""
    args: str
    """The exact validated arguments as canonical JSON."""
    raw_args: str
    preview: str
    channel: str
    ledger_key: str
    ordinal: int
    expires_at: int
    state: HoldState = HoldState.PENDING
    alias: Alias | None = None
    repaired: bool = False
    call_id: str | None = None
    """The provider's id of the call as it came; None if it came without one, or an older version stored it."""
    asked_turn: int = 0
    """The newest turn in which it was asked for."""
    replaced_by: str | None = None
    """The request of the same tool from a later turn than `asked_turn`."""
    told_turn: int | None = None
    """The turn in which the model was first given the outcome."""
    approver: str | None = None
    """The id of the person who approved it."""
    approved_via: str | None = None
    """By which key or channel they did."""


class Approval(NamedTuple):
    """Who approved a held call, and by which key or channel."""

    approver: str | None = None
    via: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """What operators and other processes have set: blocks (by tenant and user), switched-off tools, limits used."""

    blocks: Mapping[tuple[str, str], int]
    switches: Mapping[str, str]
    now: int
    forgettings: int = 0
    """How often somebody was forgotten: when it changes, sessions that are in use may have been wiped."""


class StoreLoad(NamedTuple):
    """How busy a store is in this process."""

    waiting: int
    """Writes that have no answer yet."""
    timeouts: int
    """Requests that it did not answer in time, since the start."""


class AuditPosition(NamedTuple):
    """A line of an audit chain: its file, its number, and the hash that covers it and everything before it."""

    chain: str
    file: str
    seq: int
    head: str


class AuditedFact(NamedTuple):
    """What a line of an audit log says that the store must know: a session, and maybe a call of its ledger."""

    file: str
    """The file's name, which holds that of its chain."""
    session_id: str
    ledger_key: str | None
    tool: str | None
    at: str


class AuditCheckpoint(NamedTuple):
    """How far an audit chain was once written, as the store keeps it. Number 0 is no chain: its `seq` is how many there are."""

    number: int
    position: AuditPosition
    at: int
    mac: str
    """Over everything else, keyed where the audit log is."""

    def covered(self) -> bytes:
        """What the MAC is made of."""
        return "\n".join(map(str, (self.number, *self.position, self.at))).encode()


class SettledCall(NamedTuple):
    """A writing call that ran to an end, and so must have its line in the audit log."""

    key: str
    tool: str
    finished_at: int


class AuditSubject(NamedTuple):
    """How a user's words stand in the audit log: under a pseudonym, sealed by a secret. Without a secret they are left out."""

    pseudonym: str
    secret: bytes


class SessionOpened(NamedTuple):
    """What the store knew of the user of a new session."""

    subject: AuditSubject | None
    blocked_until: int | None
    """A block that was kept although the user had been forgotten."""


class AbandonedAudit(NamedTuple):
    """A process that died before its audit log was closed."""

    owner: str
    audited_until: int
    """Everything that it settled before this moment has its line."""


class Store(Protocol):
    """Durable state of sessions. See the module's docstring."""

    @property
    def conversations(self) -> ConversationStore:
        """What a server keeps of its sessions."""
        ...

    @property
    def credentials(self) -> CredentialStore:
        """What people have given for connections to other services, sealed."""
        ...

    @property
    def keys(self) -> KeyStore:
        """Who may use a server."""
        ...

    @property
    def documents(self) -> DocumentStore:
        """What a host keeps for its clients beside sessions."""
        ...

    @property
    def requests(self) -> RequestStore:
        """What clients of a server may bring to another process of it."""
        ...

    @property
    def usage(self) -> UsageStore:
        """How tools were used, by day."""
        ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def now(self) -> int: ...
    def changed(self, hold_id: str | None = None) -> asyncio.Future[None]:
        """Done when another process may have changed this held call or its outcome; without an id, when it may have changed
        blocks, switches or any held call. Only a hint, which a store need not give: whoever waits looks after a while anyway."""
        ...

    def load(self) -> StoreLoad: ...
    async def try_writing(self) -> None:
        """A small transaction that writes and leaves nothing behind; `StoreUnavailable` if a call could not be claimed now."""
        ...

    # Owners: processes that hold claims. An owner that lives is never taken over, whatever the clock says.
    async def register_owner(self, owner: str) -> None: ...
    async def release_owner(self, owner: str) -> None: ...
    async def owner_lives(self, owner: str) -> bool:
        """Whether this owner is registered and its process has not ended; in doubt it lives."""
        ...

    def is_heard(self) -> bool:
        """Whether nobody can take an owner of this store object for dead now, because what shows that it lives is held, or was
        written a moment ago. Asks nobody: it costs nothing."""
        ...

    # Sessions and turns
    async def create_session(self, record: SessionRecord, subject: AuditSubject | None = None) -> SessionOpened:
        """`subject` is for a user that the audit log has no pseudonym for yet."""
        ...

    async def load_session(self, session_id: str) -> SessionRecord | None: ...
    async def connect(self, session_id: str, *, registry_version: str, owner: str) -> int:
        """The next connection number of the session, which makes all older ones stale."""
        ...

    async def pinned_versions(self) -> dict[tuple[str, str], int]:
        """How many open sessions are pinned to each (tool, version), of tools that there are in several."""
        ...

    async def connections(self, session_ids: Sequence[str]) -> dict[str, int]:
        """The current connection numbers of these sessions."""
        ...

    async def begin_turn(
        self,
        session_id: str,
        *,
        connection: int,
        input_id: str | None,
        left: tuple[int, Mapping[str, Any]] | None = None,
    ) -> TurnStart:
        """The next turn; or, for an input id that began one before, that turn. `StaleConnection` is reported as turn 0. `left` is
        the turn that the session was in, and its counters, which are kept for when its input comes again."""
        ...

    async def save_sessions(self, saves: Sequence[tuple[str, int, Mapping[str, Any]]]) -> None:
        """Write behind: for each (session id, connection, fields) the fields `mode`, `state`, `counters`, `current_turn`,
        `active`, `attributes` that are given, and `left`: counters of turns that were left, by number; ignored where the
        connection is no longer current."""
        ...

    async def aliases(self, session_id: str) -> list[Alias]:
        """The call ids of a session, those of held calls too (`hold_id`, until a claim gives them a `ledger_key`)."""
        ...

    async def add_alias(self, session_id: str, alias: Alias) -> Alias:
        """Remember a call id that was answered without a claim; what it stands for, which may be something older."""
        ...

    # Ledger
    async def claim(self, claim: Claim) -> ClaimResult: ...
    async def finish(self, finish: Finish) -> LedgerRow:
        """Store the outcome and give the row as it then is: another outcome if the claim was lost (fenced out)."""
        ...

    async def renew(self, claims: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        """Extend the leases of (key, fence); the keys that are no longer ours."""
        ...

    async def ledger_row(self, key: str) -> LedgerRow | None:
        """The row; one that nobody runs any more is returned as what it becomes: unknown for unsafe effects, else with its lease
        over. That is so when its owner died, and past its lease where it is not known what became of the owner."""
        ...

    async def unknown_like(self, session_id: str, turn: int, tool: str, args_digest: str) -> LedgerRow | None: ...
    async def ledger_rows(self, *, state: LedgerState | None = None, limit: int = 100) -> list[LedgerRow]:
        """Newest first. Rows whose owner died are made unknown before they are listed."""
        ...

    async def settle(self, key: str, *, state: LedgerState, envelope: str) -> LedgerRow | None:
        """Settle an unknown outcome (by `reconcile` or a person); None if there is no such row or it is not unknown."""
        ...

    async def evict(
        self, *, bodies_before: int, rows_before: int, batch_size: int = 100, left_at: str | None = None
    ) -> Evicted:
        """Give back room: drop envelopes of rows finished before the one time (the row stays, and is never run again), and
        rows of *closed* sessions finished before the other, with the turns of closed sessions that were last saved before it. A
        session that has lost something stays closed. Never touches running or unknown rows. At most `batch_size` calls and
        sessions are looked at, and fewer where results are large, because everybody else waits meanwhile; `left_at` is where
        the last batch left off."""
        ...

    # Confirmations
    async def hold(self, hold: Hold, token_hash: str, shown: str = "") -> Hold:
        """Store a held call; or give the open one for the same session, tool and arguments, with this token added to it. Older
        open requests of the session for this tool, asked for in earlier turns only, are marked as replaced by it."""
        ...

    async def hold_by_id(self, hold_id: str) -> Hold | None: ...
    async def holds(self, session_id: str, states: Sequence[HoldState]) -> list[Hold]: ...
    async def ask_again(self, hold_id: str, turn: int) -> None:
        """An open request was asked for in a later turn: it is the newest of its tool, and replaces those before it."""
        ...

    async def add_hold_token(
        self, hold_id: str, token_hash: str, shown: str = "", *, preview: str | None = None
    ) -> Hold:
        """A request is shown: keep its token with the digest of what is shown, and the preview if it has changed. The newest
        `HOLD_TOKENS` of a request are kept. The request as it then is."""
        ...

    async def shown_with(self, hold_id: str, token_hash: str) -> str | None:
        """The digest of what was shown with this token; None if the request has no such token."""
        ...

    async def outcome_delivered(self, hold_id: str, turn: int) -> None:
        """The model was given the outcome of a held call in this turn; the first turn stays."""
        ...

    async def move_hold(
        self, hold_id: str, to: HoldState, *, expected: Sequence[HoldState], approval: Approval | None = None
    ) -> Hold | None:
        """Change its state if it is one of `expected` (an expired one becomes EXPIRED instead); the row as it then is. `approval`
        is kept with a request that becomes approved."""
        ...

    async def decline_hold(self, hold_id: str, *, expected: Sequence[HoldState], left: str) -> Hold | None:
        """`move_hold` to DECLINED. If the call had been begun by an owner that died, nobody runs it again: the envelope `left` is
        its outcome from now on."""
        ...

    # Audit: what lets a reader see that lines are gone, and lets a start write those that a crash left out.
    async def audit_checkpoints(self) -> list[AuditCheckpoint]: ...
    async def audit_checkpoint_of(self, chain: str) -> AuditCheckpoint | None:
        """The newest checkpoint of a chain."""
        ...

    async def save_audit_checkpoint(
        self,
        position: AuditPosition,
        *,
        seal: Callable[[bytes], str],
        after: AuditPosition | None,
        follows: bool,
        owner: str | None = None,
        audited_until: int = 0,
    ) -> bool:
        """Move the chain's checkpoint from `after` to `position`; False if it is elsewhere by now, and nothing was changed.

        Unless the new position `follows` the old one, that is kept beside it, as a sign that lines are gone. What `owner` has
        settled before `audited_until` has its lines."""
        ...

    async def begin_audit(self, owner: str) -> None:
        """The owner is about to settle calls that must have a line."""
        ...

    async def end_audit(self, owner: str) -> None:
        """Everything that the owner has settled has its line."""
        ...

    async def abandoned_audits(self, taker: str) -> list[AbandonedAudit]:
        """Take over what dead owners have left, so that one process alone writes it."""
        ...

    async def answered_by(self, owner: str, since: int) -> list[tuple[LedgerRow, str | None]]:
        """What this owner has settled since then, and what it could not tell the outcome of; each with the key of its call."""
        ...

    # Operating
    async def operating(self) -> Operating: ...
    async def block(self, block: Block) -> int:
        """Block a user; a longer block wins. The time at which it ends."""
        ...

    async def unblock(self, tenant: str, user: str) -> None: ...
    async def switch(self, tool: str, off: str | None) -> None:
        """Switch a tool off with a reason, or on with None."""
        ...

    async def count_rates(
        self, charges: Mapping[tuple[str, int], int], since: Mapping[str, int] | None = None
    ) -> dict[tuple[str, int], int]:
        """Add to the counters of (scope, beginning of a slot) and give their new totals; of the scopes in `since` also those of
        all slots that begin then or later, and earlier ones are deleted."""
        ...

    # Forgetting
    async def forget_user(self, tenant: str, user: str, *, keep_block: bool = True) -> Mapping[str, int]:
        """End the sessions of a user and wipe what was said in their calls; how much was wiped, and what was left.

        No call of theirs can run again: its key stays. A block that still holds stays too, under a hash of the name."""
        ...

    async def forgotten_sessions(self, session_ids: Sequence[str]) -> set[str]:
        """Those of the sessions whose user was forgotten."""
        ...

    async def audit_subject(self, tenant: str, user: str, new: AuditSubject | None = None) -> AuditSubject | None:
        """What the audit log calls this user; `new` from now on, if it has no name for them yet."""
        ...

    async def calls_to_audit(self) -> list[SettledCall]:
        """The calls of the ledger that must have their lines by now, in the order in which they ended. Left out are those that a
        process has settled since its last checkpoint, whether it lives or its lines are yet to be recovered."""
        ...

    async def audit_users(self, pseudonyms: Sequence[str]) -> Mapping[str, str]:
        """Which users the pseudonyms stand for; nothing of those who were forgotten."""
        ...

    async def audit_secrets(self, pseudonyms: Sequence[str]) -> Mapping[str, bytes]:
        """What opens the words of these users; nothing of those who were forgotten."""
        ...

"""Values that the tests of the stores share: a clock that stands still until told, a session, claims, held calls."""

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from handrail.contract.store import Alias, Claim, Finish, Hold, LedgerState, SessionRecord, Store

START = 1_800_000_000_000
LEASE = 10_000


@dataclass
class StillClock:
    now: int = START

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def session(session_id: str = "s1", **changes: Any) -> SessionRecord:
    values: dict[str, Any] = {
        "session_id": session_id,
        "token_hash": digest("secret"),
        "tenant": "t",
        "user": "u",
        "mode": "text",
        "attributes": {"plan": "pro", "ü": [1, 2.5, None]},
        "registry_version": "r1",
    }
    return SessionRecord(**(values | changes))


def session_in_an_old_file(db: sqlite3.Connection, *, turn: int = 0, counters: str = "{}") -> None:
    """`session()` as every version of the tables can have it."""
    made = session()
    db.execute(
        """INSERT INTO session (session_id, token_hash, tenant, user, mode, attributes, registry_version, connection, turn,
               active, state, counters, owner) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, 1, '{}', ?, '')""",
        (
            *(made.session_id, made.token_hash, made.tenant, made.user, made.mode, json.dumps(made.attributes)),
            *(made.registry_version, turn, counters),
        ),
    )


def claim(key: str = "k1", **changes: Any) -> Claim:
    values: dict[str, Any] = {
        "key": key,
        "tenant": "t",
        "session_id": "s1",
        "user": "u",
        "turn": 1,
        "connection": 1,
        "tool": "pay",
        "tool_hash": "h1",
        "registry_version": "r1",
        "args_digest": "d1",
        "args": '{"amount":5}',
        "effects": "unsafe",
        "ordinal": 1,
        "owner": "o1",
        "lease_ms": LEASE,
    }
    return Claim(**(values | changes))


def done(key: str = "k1", fence: int = 1, envelope: str = '{"ok":true}', **changes: Any) -> Finish:
    return Finish(**({"key": key, "fence": fence, "state": LedgerState.SUCCEEDED, "envelope": envelope} | changes))


def alias(call_id: str = "provider:c1", **changes: Any) -> Alias:
    values = {"call_id": call_id, "tool": "pay", "raw_digest": "raw1", "ledger_key": None, "hold_id": None}
    return Alias(**(values | changes))


def held(hold_id: str = "h1", **changes: Any) -> Hold:
    values: dict[str, Any] = {
        "hold_id": hold_id,
        "tenant": "t",
        "session_id": "s1",
        "user": "u",
        "turn": 1,
        "tool": "pay",
        "tool_hash": "h1",
        "args_digest": "d1",
        "args": '{"amount":5}',
        "raw_args": '{"amount":"5"}',
        "preview": "Pay 5",
        "channel": "text",
        "ledger_key": "k1",
        "ordinal": 1,
        "expires_at": START + 300_000,
        "asked_turn": changes.get("turn", 1),
    }
    return Hold(**(values | changes))


async def crash(store: Store, clock: StillClock, owner: str = "o1") -> None:
    """The owner dies, and its leases run out."""
    await store.release_owner(owner)
    clock.pass_ms(LEASE + 1)

"""Checkpoints of audit chains, the names of users in them, and which processes have answered calls whose lines may not be
written yet."""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own columns

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from handrail.contract.store import (
    AbandonedAudit,
    AuditCheckpoint,
    AuditPosition,
    AuditSubject,
    LedgerRow,
    SettledCall,
)
from handrail.stores.statements.transaction import LEDGER_FIELDS, Transaction, ledger_row

_COLUMNS = "number, chain, file, seq, head, at, mac"
_TOTAL = AuditPosition("", "", 0, "")


def audit_checkpoints(tx: Transaction) -> list[AuditCheckpoint]:
    return [_checkpoint(row) for row in tx.db.execute(f"SELECT {_COLUMNS} FROM audit_chain ORDER BY number")]


def audit_checkpoint_of(tx: Transaction, chain: str) -> AuditCheckpoint | None:
    row = tx.db.execute(
        f"SELECT {_COLUMNS} FROM audit_chain WHERE chain = ? ORDER BY number DESC LIMIT 1", (chain,)
    ).fetchone()
    return _checkpoint(row) if row else None


def save_audit_checkpoint(
    tx: Transaction,
    position: AuditPosition,
    seal: Callable[[bytes], str],
    after: AuditPosition | None,
    follows: bool,
    owner: str | None,
    audited_until: int,
) -> bool:
    known = audit_checkpoint_of(tx, position.chain)
    if (known.position if known is not None else None) != after:
        return False
    if known is not None and follows:
        _put(tx, known.number, position, seal)
    else:
        last = int(tx.db.execute("SELECT coalesce(max(number), 0) FROM audit_chain").fetchone()[0])
        _put(tx, last + 1, position, seal)
        # Without it, whoever deletes the newest row and its files would leave no trace.
        _put(tx, 0, _TOTAL._replace(seq=last + 1), seal)
    if owner is not None:
        # Anew, where others took it for dead while it was frozen, and have ended its audit: it still answers calls.
        tx.db.execute(
            """INSERT INTO audit_owner VALUES (?, ?, NULL)
               ON CONFLICT (owner) DO UPDATE SET audited_until = excluded.audited_until, taken_by = NULL""",
            (owner, audited_until),
        )
    return True


def _put(tx: Transaction, number: int, position: AuditPosition, seal: Callable[[bytes], str]) -> None:
    mac = seal(AuditCheckpoint(number, position, tx.now, "").covered())
    tx.db.execute(
        f"""INSERT INTO audit_chain ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET
            chain = excluded.chain, file = excluded.file, seq = excluded.seq, head = excluded.head, at = excluded.at,
            mac = excluded.mac""",
        (number, *position, tx.now, mac),
    )


def begin_audit(tx: Transaction, owner: str) -> None:
    tx.db.execute("INSERT INTO audit_owner VALUES (?, ?, NULL) ON CONFLICT DO NOTHING", (owner, tx.now))


def end_audit(tx: Transaction, owner: str) -> None:
    tx.db.execute("DELETE FROM audit_owner WHERE owner = ?", (owner,))


def has_audits(tx: Transaction) -> bool:
    return tx.db.execute("SELECT 1 FROM audit_owner LIMIT 1").fetchone() is not None


def abandoned_audits(tx: Transaction, taker: str) -> list[AbandonedAudit]:
    left = []
    for owner, until, taken_by in tx.db.execute("SELECT owner, audited_until, taken_by FROM audit_owner").fetchall():
        if not tx.alive(owner) and (taken_by is None or taken_by == taker or not tx.alive(taken_by)):
            tx.db.execute("UPDATE audit_owner SET taken_by = ? WHERE owner = ?", (taker, owner))
            left.append(AbandonedAudit(owner, int(until)))
    return left


def answered_by(tx: Transaction, owner: str, since: int) -> list[tuple[LedgerRow, str | None]]:
    columns = ", ".join(f"ledger.{name}" for name in LEDGER_FIELDS)
    call_id = """(SELECT call_id FROM alias WHERE alias.session_id = ledger.session_id
        AND alias.ledger_key = ledger.key LIMIT 1)"""
    rows = tx.db.execute(
        f"""SELECT {columns}, {call_id} FROM ledger WHERE owner = :owner AND finished_at >= :since
            UNION ALL
            SELECT {columns}, {call_id} FROM ledger INDEXED BY ledger_open
            WHERE owner = :owner AND state IN ('running', 'unknown') AND state = 'unknown' AND envelope IS NOT NULL""",
        {"owner": owner, "since": since},
    )
    return [(ledger_row(row[:-1]), row[-1]) for row in rows]


def calls_to_audit(tx: Transaction) -> list[SettledCall]:
    rows = tx.db.execute(
        """SELECT key, tool, finished_at FROM ledger WHERE state IN ('succeeded', 'failed') AND finished_at IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM audit_owner
                           WHERE audit_owner.owner = ledger.owner AND ledger.finished_at >= audit_owner.audited_until)
           ORDER BY finished_at"""
    )
    return [SettledCall(*row) for row in rows]


def _checkpoint(row: Sequence[Any]) -> AuditCheckpoint:
    number, chain, file, seq, head, at, mac = row
    return AuditCheckpoint(number, AuditPosition(chain, file, seq, head), at, mac)


# Names in the audit log
def subject_of(tx: Transaction, tenant: str, user: str) -> AuditSubject | None:
    row = tx.db.execute(
        "SELECT pseudonym, secret FROM audit_subject WHERE tenant = ? AND user = ?", (tenant, user)
    ).fetchone()
    return AuditSubject(*row) if row else None


def name_subject(tx: Transaction, tenant: str, user: str, new: AuditSubject) -> AuditSubject:
    tx.db.execute("INSERT INTO audit_subject VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", (tenant, user, *new))
    return subject_of(tx, tenant, user) or new


def audit_secrets(tx: Transaction, pseudonyms: Sequence[str]) -> dict[str, bytes]:
    rows = tx.db.execute(
        "SELECT pseudonym, secret FROM audit_subject WHERE pseudonym IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(pseudonyms)).decode(),),
    )
    return dict(rows.fetchall())


def audit_users(tx: Transaction, pseudonyms: Sequence[str]) -> dict[str, str]:
    rows = tx.db.execute(
        "SELECT pseudonym, user FROM audit_subject WHERE pseudonym IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(pseudonyms)).decode(),),
    )
    return dict(rows.fetchall())

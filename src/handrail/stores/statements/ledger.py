"""The ledger: the claim after which a handler may start, outcomes, leases, and what became of the calls of dead owners."""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own columns

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from handrail.contract.errors import UsageError
from handrail.contract.store import (
    Claim,
    ClaimResult,
    ClaimVerdict,
    Finish,
    HoldState,
    LedgerRow,
    LedgerState,
    RateCharge,
)
from handrail.stores.statements import sessions
from handrail.stores.statements.transaction import (
    LEDGER_COLUMNS,
    Life,
    Locks,
    Transaction,
    claimed,
    ledger_row,
    to_json,
)

OUTCOME = """envelope = CASE WHEN evicted = 0 THEN {} END, args = CASE WHEN evicted = 0 THEN args ELSE '{{}}' END,
    user = CASE WHEN evicted = 0 THEN user END"""
"""What is stored with an outcome. A call whose user was forgotten while it ran keeps nothing of what was said."""
SETTLED = (LedgerState.SUCCEEDED, LedgerState.FAILED, LedgerState.CANCELLED)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A claim as the store's writer is asked for it: alone by calling it, or together with others by its value."""

    claim: Claim

    @property
    def locks(self) -> Locks:
        limits = () if self.claim.rate is None else (limit_name(self.claim.rate.scope),)
        return Locks(sessions=(self.claim.session_id,), names=limits)

    def __call__(self, tx: Transaction) -> ClaimResult:
        return claim(tx, self.claim)


def limit_name(scope: str) -> str:
    """What whoever counts a limit must have for itself."""
    return f"limit {scope}"


def claim(tx: Transaction, claim: Claim) -> ClaimResult:
    """Whatever refuses it is looked at first. It then writes everything at once, so that a claim that does not succeed costs no
    limit and no grant."""
    # Nearly every claim is new. One statement says so, and spares it the looks below.
    if not _is_known(tx, claim):
        return (
            _refused_by_session(tx, claim)
            or _refused_by_limit(tx, claim)
            or _refused_by_grant(tx, claim)
            or _insert_claim(tx, claim)
        )
    row = fresh_row(tx, claim.key)
    # Before any refusal: the handler of this claim is about to start, and must hear of it once.
    if row is not None and row.state is LedgerState.RUNNING and _is_ours(tx, claim):
        # The commit that nobody heard of. What has changed since (a block, another connection) came after the claim.
        return claimed(claim, tx.now, ClaimVerdict.CLAIMED, row.fence, row.created_at)
    refusal = _refused_by_session(tx, claim) or _refused_by_alias(tx, claim)
    if refusal is not None:
        return refusal
    if row is None:
        return (
            _refused_by_unknown(tx, claim)
            or _refused_by_limit(tx, claim)
            or _refused_by_grant(tx, claim)
            or _insert_claim(tx, claim)
        )
    # A key is a hash over all of these, so this should not happen; if it did, nobody may get another call's outcome.
    if (row.args_digest, row.tool, row.session_id) != (claim.args_digest, claim.tool, claim.session_id):
        return ClaimResult(verdict=ClaimVerdict.MISMATCH, row=row)
    abandoned = is_abandoned(tx, row)
    if claim.hold_id is not None and not _consumed_by(tx, claim.hold_id, claim.key):
        # A dead owner had begun it without a person, who was asked when somebody wanted to continue with it. The grant is for
        # that, or for what became known of it meanwhile; not for what others run.
        is_asked_about = abandoned or (row.state in SETTLED and row.args == claim.args)
        if not is_asked_about or _refused_by_grant(tx, claim) is not None:
            return ClaimResult(verdict=ClaimVerdict.NO_GRANT, row=row)
    if not abandoned:
        return _result_of(row)
    if claim.effects != "unsafe":
        return _taken_over(tx, claim, row)
    # It was safe to run again in the version that died, and is not in ours.
    return _result_of(make_unknown(tx, row))


def _is_known(tx: Transaction, claim: Claim) -> bool:
    """Whether the store has met this key, this call id, or this call in this turn; one look for all three, as few claims have."""
    found = tx.db.execute(
        """SELECT EXISTS (SELECT 1 FROM ledger WHERE key = ?)
               OR EXISTS (SELECT 1 FROM alias WHERE session_id = ? AND call_id = ?)
               OR EXISTS (SELECT 1 FROM ledger WHERE session_id = ? AND turn = ? AND tool = ? AND args_digest = ?
                          AND state IN ('running', 'unknown'))""",
        (
            *(claim.key, claim.session_id, claim.alias.call_id if claim.alias else None),
            *(claim.session_id, claim.turn, claim.tool, claim.args_digest),
        ),
    ).fetchone()
    return bool(found[0])


def _refused_by_session(tx: Transaction, claim: Claim) -> ClaimResult | None:
    found = tx.db.execute(
        """SELECT active, connection, (SELECT until FROM block WHERE block.tenant = ? AND block.user = ?),
                  (SELECT reason FROM switch WHERE tool = ?) FROM session WHERE session_id = ?""",
        (claim.tenant, claim.user, claim.tool, claim.session_id),
    ).fetchone()
    if found is None or not found[0]:
        return ClaimResult(verdict=ClaimVerdict.INACTIVE)
    _, connection, blocked_until, switched_off = found
    # Here and not only in memory: between the pipeline's look and this transaction the session may have been resumed elsewhere.
    if claim.check_connection and connection != claim.connection:
        return ClaimResult(verdict=ClaimVerdict.STALE_CONNECTION)
    if blocked_until is not None and blocked_until > tx.now:
        return ClaimResult(verdict=ClaimVerdict.BLOCKED, retry_after_ms=blocked_until - tx.now)
    if switched_off is not None:
        return ClaimResult(verdict=ClaimVerdict.SWITCHED_OFF, reason=switched_off)
    return None


def _refused_by_alias(tx: Transaction, claim: Claim) -> ClaimResult | None:
    """A call id that another process used meanwhile: for other arguments, for another key, or for a held call."""
    known = sessions.alias_of(tx, claim.session_id, claim.alias.call_id) if claim.alias else None
    if known is None or claim.alias is None:
        return None
    row = fresh_row(tx, known.ledger_key) if known.ledger_key else None
    if (known.tool, known.raw_digest) != (claim.alias.tool, claim.alias.raw_digest):
        return ClaimResult(verdict=ClaimVerdict.MISMATCH, row=row)
    if row is not None and row.key != claim.key:
        return _result_of(row)
    if row is None and known.hold_id is not None and known.hold_id != claim.hold_id:
        return ClaimResult(verdict=ClaimVerdict.NO_GRANT)
    return None


def _refused_by_unknown(tx: Transaction, claim: Claim) -> ClaimResult | None:
    row = unknown_like(tx, claim.session_id, claim.turn, claim.tool, claim.args_digest)
    return _result_of(row) if row is not None else None


def _refused_by_limit(tx: Transaction, claim: Claim) -> ClaimResult | None:
    if claim.rate is None:
        return None
    rate, slot = claim.rate, _slot(claim.rate, tx.now)
    # What lies far ahead was counted before the clock was set back.
    rows = tx.db.execute(
        "SELECT window_start, used FROM rate WHERE scope = ? AND window_start > ? AND window_start <= ? ORDER BY 1",
        (rate.scope, _newest_expired_slot(rate, slot), slot + rate.window_ms),
    ).fetchall()
    left = sum(used for _, used in rows)
    if left < rate.limit:
        return None
    # The oldest calls leave the window first: how long until there is room for one.
    wait = rate.window_ms
    for start, used in rows:
        left -= used
        if left < rate.limit:
            wait = start + rate.slot_ms - 1 + rate.window_ms - slot
            break
    return ClaimResult(verdict=ClaimVerdict.RATE_LIMITED, retry_after_ms=max(1, wait))


def _refused_by_grant(tx: Transaction, claim: Claim) -> ClaimResult | None:
    """Consume the single-use grant, if this claim needs one."""
    if claim.hold_id is None:
        return None
    # Look and change in one statement: of two claims with the same grant, the second finds it consumed.
    consumed = tx.db.execute(
        """UPDATE hold SET state = ?, consumed_by = ? WHERE hold_id = ? AND state = ? AND expires_at > ?
           AND tenant = ? AND session_id = ? AND user IS ? AND tool = ? AND tool_hash = ? AND args = ?""",
        (
            *(HoldState.CONSUMED, claim.key, claim.hold_id, HoldState.APPROVED, tx.now),
            *(claim.tenant, claim.session_id, claim.user, claim.tool, claim.tool_hash, claim.args),
        ),
    )
    return None if consumed.rowcount else ClaimResult(verdict=ClaimVerdict.NO_GRANT)


def _insert_claim(tx: Transaction, claim: Claim) -> ClaimResult:
    # Nothing may refuse from here on: the grant is consumed.
    tx.db.execute(
        """INSERT INTO ledger (key, tenant, session_id, user, turn, ordinal, tool, tool_hash, registry_version,
               args_digest, args, effects, state, fence, owner, claim_id, lease_until, created_at, hold_id)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 1, ?, ?, ?, ?, ?)""",
        (
            *(
                claim.key,
                claim.tenant,
                claim.session_id,
                claim.user,
                claim.turn,
                claim.ordinal,
                claim.tool,
                claim.tool_hash,
            ),
            *(claim.registry_version, claim.args_digest, claim.args, claim.effects, claim.owner, claim.claim_id),
            *(tx.now + claim.lease_ms, tx.now, claim.hold_id),
        ),
    )
    if claim.rate is not None:
        slot = _slot(claim.rate, tx.now)
        tx.db.execute(
            "INSERT INTO rate VALUES (?, ?, 1) ON CONFLICT (scope, window_start) DO UPDATE SET used = rate.used + 1",
            (claim.rate.scope, slot),
        )
        tx.db.execute(
            "DELETE FROM rate WHERE scope = ? AND window_start <= ?",
            (claim.rate.scope, _newest_expired_slot(claim.rate, slot)),
        )
    _point_ids_to(tx, claim)
    _remember(tx, claim)
    _save_counters(tx, claim)
    return claimed(claim, tx.now, ClaimVerdict.CLAIMED, 1, tx.now)


def _taken_over(tx: Transaction, claim: Claim, row: LedgerRow) -> ClaimResult:
    """Run again what a dead owner left. The limit was paid by the first claim of this key."""
    tx.db.execute(
        """UPDATE ledger SET fence = fence + 1, owner = ?, claim_id = ?, lease_until = ?, tool_hash = ?,
           registry_version = ?, args = ?, hold_id = coalesce(?, hold_id) WHERE key = ?""",
        (
            *(claim.owner, claim.claim_id, tx.now + claim.lease_ms, claim.tool_hash),
            *(claim.registry_version, claim.args, claim.hold_id, claim.key),
        ),
    )
    _point_ids_to(tx, claim)
    _remember(tx, claim)
    _save_counters(tx, claim)
    # With the next fence: should the former owner's handler come back after all, its outcome bears the old one and is not
    # stored.
    return claimed(claim, tx.now, ClaimVerdict.TAKEN_OVER, row.fence + 1, row.created_at)


def _result_of(row: LedgerRow) -> ClaimResult:
    if row.state is LedgerState.RUNNING:
        return ClaimResult(verdict=ClaimVerdict.RUNNING, fence=row.fence, row=row)
    verdict = ClaimVerdict.UNKNOWN if row.state is LedgerState.UNKNOWN else ClaimVerdict.SETTLED
    return ClaimResult(verdict=verdict, fence=row.fence, row=row)


def _is_ours(tx: Transaction, claim: Claim) -> bool:
    if not claim.claim_id:
        return False
    renewed = tx.db.execute(
        "UPDATE ledger SET lease_until = ? WHERE key = ? AND owner = ? AND claim_id = ? AND state = 'running'",
        (tx.now + claim.lease_ms, claim.key, claim.owner, claim.claim_id),
    )
    return renewed.rowcount == 1


def _consumed_by(tx: Transaction, hold_id: str, key: str) -> bool:
    return bool(tx.db.execute("SELECT 1 FROM hold WHERE hold_id = ? AND consumed_by = ?", (hold_id, key)).fetchone())


def _point_ids_to(tx: Transaction, claim: Claim) -> None:
    """The ids that stood for the held call stand for its execution from now on."""
    if claim.hold_id is not None:
        tx.db.execute("UPDATE alias SET ledger_key = ? WHERE hold_id = ?", (claim.key, claim.hold_id))


def _remember(tx: Transaction, claim: Claim) -> None:
    """Only what was claimed: a call that met another's outcome may yet take the next ordinal under this id."""
    if claim.alias is not None:
        alias = replace(claim.alias, ledger_key=claim.key, hold_id=claim.hold_id or claim.alias.hold_id)
        sessions.put_alias(tx, claim.session_id, alias)


def _save_counters(tx: Transaction, claim: Claim) -> None:
    if claim.counters is not None:
        counters = to_json(claim.counters, '"counters" of a claim')
        tx.db.execute("UPDATE session SET counters = ? WHERE session_id = ?", (counters, claim.session_id))
    if claim.left is not None:
        turn, left = claim.left
        counters = sessions.keep_counters(tx, claim.session_id, claim.connection, turn, left)
        # The next turn may not have begun here yet: after a crash now, the session is resumed in this one.
        tx.db.execute(
            "UPDATE session SET counters = ? WHERE session_id = ? AND current_turn = ?",
            (counters, claim.session_id, turn),
        )


def _slot(rate: RateCharge, now: int) -> int:
    return now - now % rate.slot_ms if rate.slot is None else rate.slot


def _newest_expired_slot(rate: RateCharge, slot: int) -> int:
    """The newest slot that does not count any more."""
    return slot - rate.window_ms - rate.slot_ms + 1


def stored_row(tx: Transaction, key: str) -> LedgerRow | None:
    row = tx.db.execute(f"SELECT {LEDGER_COLUMNS} FROM ledger WHERE key = ?", (key,)).fetchone()
    return ledger_row(row) if row else None


def is_abandoned(tx: Transaction, row: LedgerRow) -> bool:
    """Whether nobody runs it any more. The lease counts only where it is not known what became of the owner: the clock may
    have been set forward or back."""
    if row.state is not LedgerState.RUNNING:
        return False
    # Whether the owner lives is asked of the operating system or the server, not concluded from a lease.
    life = tx.life(tx.db, row.owner)
    return life is Life.DIED or (life is Life.ENDED and row.lease_until < tx.now)


def becomes_unknown(tx: Transaction, row: LedgerRow) -> bool:
    return row.effects == "unsafe" and is_abandoned(tx, row)


def fresh_row(tx: Transaction, key: str) -> LedgerRow | None:
    """The row; an unsafe one that its owner has abandoned is made unknown first."""
    row = stored_row(tx, key)
    return make_unknown(tx, row) if row is not None and becomes_unknown(tx, row) else row


def make_unknown(tx: Transaction, row: LedgerRow) -> LedgerRow:
    tx.db.execute(
        "UPDATE ledger SET state = 'unknown' WHERE key = ? AND fence = ? AND state = 'running'", (row.key, row.fence)
    )
    return row._replace(state=LedgerState.UNKNOWN)


def unknown_like(tx: Transaction, session_id: str, turn: int, tool: str, args_digest: str) -> LedgerRow | None:
    """The unknown outcome of the same call in this turn, whatever its ordinal."""
    rows = tx.db.execute(
        f"""SELECT {LEDGER_COLUMNS} FROM ledger WHERE session_id = ? AND turn = ? AND tool = ? AND args_digest = ?
            AND state IN ('running', 'unknown') ORDER BY ordinal""",
        (session_id, turn, tool, args_digest),
    ).fetchall()
    # Made unknown on the way: whoever looks first after the owner's death writes it down for all.
    for row in map(ledger_row, rows):
        if row.state is LedgerState.UNKNOWN:
            return row
        if becomes_unknown(tx, row):
            return make_unknown(tx, row)
    return None


def ledger_rows(tx: Transaction, state: LedgerState | None, limit: int) -> list[LedgerRow]:
    overdue = tx.db.execute(
        f"""SELECT {LEDGER_COLUMNS} FROM ledger INDEXED BY ledger_open
            WHERE state IN ('running', 'unknown') AND state = 'running' AND effects = 'unsafe'"""
    ).fetchall()
    for row in map(ledger_row, overdue):
        if becomes_unknown(tx, row):
            make_unknown(tx, row)
    wanted, given = ("WHERE state = ?", (state, limit)) if state is not None else ("", (limit,))
    rows = tx.db.execute(f"SELECT {LEDGER_COLUMNS} FROM ledger {wanted} ORDER BY rowid DESC LIMIT ?", given).fetchall()
    return [ledger_row(row) for row in rows]


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """An outcome as the store's writer is asked to keep it: alone by calling it, or together with others by its value."""

    finish: Finish

    @property
    def locks(self) -> Locks:
        known = self.finish.claimed
        return Locks(sessions_of_calls=(self.finish.key,)) if known is None else Locks(sessions=(known.session_id,))

    def __call__(self, tx: Transaction) -> LedgerRow:
        return finish(tx, self.finish)


def finish(tx: Transaction, finish: Finish) -> LedgerRow:
    if finish.state is LedgerState.RUNNING:
        raise UsageError('A call cannot be finished as "running"; say what became of it.')
    settled_at = tx.now if finish.state in SETTLED else None
    # Also from unknown: the first owner, taken for dead, knows best what it did. A lower fence was taken over.
    changed = tx.db.execute(
        f"""UPDATE ledger SET state = ?, {OUTCOME.format("?")}, finished_at = ?
            WHERE key = ? AND fence = ? AND state IN ('running', 'unknown') RETURNING {LEDGER_COLUMNS}""",
        (finish.state, finish.envelope, settled_at, finish.key, finish.fence),
    ).fetchone()
    if changed is None:
        return _stored_outcome(tx, finish.key)
    row = ledger_row(changed)
    if finish.block is not None:
        if row.evicted:
            sessions.store_block(tx, finish.block)
        else:
            sessions.block(tx, finish.block)
    if finish.session_state is not None:
        current, given = ("AND connection = ?", (finish.connection,)) if finish.connection is not None else ("", ())
        tx.db.execute(
            f"UPDATE session SET state = ? WHERE session_id = ? {current}",
            (to_json(finish.session_state, '"state" of a session'), row.session_id, *given),
        )
    return row


def renew(tx: Transaction, claims: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
    lost: list[str] = []
    for key, fence in claims:
        renewed = tx.db.execute(
            "UPDATE ledger SET lease_until = ? WHERE key = ? AND fence = ? AND state = 'running'",
            (tx.now + lease_ms, key, fence),
        )
        if not renewed.rowcount:
            lost.append(key)
    return lost


def settle(tx: Transaction, key: str, state: LedgerState, envelope: str) -> LedgerRow | None:
    if state not in SETTLED:
        raise UsageError(f'An unknown outcome is settled as {", ".join(SETTLED)}; not as "{state}".')
    row = fresh_row(tx, key)
    if row is None or row.state is not LedgerState.UNKNOWN:
        return None
    tx.db.execute(
        f"UPDATE ledger SET state = ?, {OUTCOME.format('?')}, finished_at = ? WHERE key = ?",
        (state, envelope, tx.now, key),
    )
    return stored_row(tx, key)


def settle_abandoned(tx: Transaction, key: str, envelope: str) -> None:
    """A person does not want that what a dead owner left is run again: this is its outcome."""
    row = stored_row(tx, key)
    if row is not None and row.effects != "unsafe" and is_abandoned(tx, row):
        tx.db.execute(
            f"UPDATE ledger SET state = ?, {OUTCOME.format('?')}, finished_at = ? WHERE key = ?",
            (LedgerState.CANCELLED, envelope, tx.now, key),
        )


def _stored_outcome(tx: Transaction, key: str) -> LedgerRow:
    row = stored_row(tx, key)
    if row is None:
        raise UsageError(f'The ledger has no call "{key}" that could be finished.')
    return row

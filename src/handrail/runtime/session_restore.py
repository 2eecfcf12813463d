"""A session that continues under a new connection: what the store and this process know of it."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.contract.store import Alias, Store
from handrail.runtime.confirmation import Confirmations, take_ordinal_of
from handrail.runtime.known_calls import Aliases, CallIds, KnownCall, id_of_key, is_stable
from handrail.runtime.session import Session
from handrail.runtime.turns import TurnRecord


async def restore(
    session: Session, remembered: Sequence[str], *, store: Store, aliases: Aliases, confirmations: Confirmations
) -> None:
    """Give a resumed session its calls by id, the ordinals of the calls that the model remembers, and its held calls."""
    await aliases.store_unstored()
    stored = [alias for alias in await store.aliases(session.id) if is_stable(alias)]
    session.calls_by_id = CallIds()
    for alias in stored:
        entry = session.writes.get(alias.ledger_key) if alias.ledger_key is not None else None
        # What became of it is looked up when it is asked for.
        session.calls_by_id[alias.call_id] = entry or KnownCall.of(
            alias.tool, alias.raw_digest, ledger_key=alias.ledger_key, hold_id=alias.hold_id
        )
    if session.turn is not None:
        await _take_ordinals(store, session, session.turn, stored, remembered)
    await confirmations.restore(session)


async def _take_ordinals(
    store: Store, session: Session, turn: TurnRecord, aliases: Sequence[Alias], remembered: Sequence[str]
) -> None:
    """The calls that the model still remembers have taken their ordinals in this turn."""
    counted: set[str] = set()
    for call_id in remembered:
        found = [alias for alias in aliases if id_of_key(alias.call_id) == call_id]
        if not found or found[-1].call_id in counted:
            continue
        counted.add(found[-1].call_id)
        if found[-1].ledger_key is not None:
            row = await store.ledger_row(found[-1].ledger_key)
            if row is not None:
                turn.take(row)
        elif found[-1].hold_id is not None:
            hold = await store.hold_by_id(found[-1].hold_id)
            if hold is not None:
                take_ordinal_of(session, turn, hold)
    turn.remembered = {pair: dict(taken) for pair, taken in turn.ordinals.items()}

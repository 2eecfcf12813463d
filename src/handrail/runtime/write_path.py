"""Steps 9 to 16 for a writing or held call: the key, then the limits, then a person or the claim.

key (dedup) → the host's gates → rate, loop, budget → confirmation, or claim → run → settle (ledger claims)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from handrail.contract.envelope import ToolResponse
from handrail.contract.store import StoreUnavailable
from handrail.runtime.admission import ask_host, charge
from handrail.runtime.answers import Answers, declined
from handrail.runtime.attempt import Attempt, Write
from handrail.runtime.confirmation import Confirmations
from handrail.runtime.dedup import Dedup, HeldMeanwhile
from handrail.runtime.gates import give_back_budget
from handrail.runtime.known_calls import Entry, args_digest, exact_digest, hash_key
from handrail.runtime.ledger_claims import LedgerClaims, give_back_unstarted

if TYPE_CHECKING:
    from handrail.runtime.turns import Turns


class WritePath:
    """The writing half of the pipeline."""

    __slots__ = ("_answers", "_claims", "_confirmations", "_dedup", "_turns")

    def __init__(
        self, answers: Answers, dedup: Dedup, confirmations: Confirmations, claims: LedgerClaims, turns: Turns
    ) -> None:
        self._answers = answers
        self._dedup = dedup
        self._confirmations = confirmations
        self._claims = claims
        self._turns = turns

    async def call(self, attempt: Attempt, needs_person: bool) -> ToolResponse:
        """Steps 9 to 16 for a writing or held call."""
        session, plan = attempt.session, attempt.plan
        attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
        attempt.exact = exact_digest(attempt.canonical) if plan.definition.dedupe_fields else attempt.digest
        attempt.write = Write(session.interruptions)
        # A read that a host's gate sends to a person has a key by its content already, which is no id.
        by_id = attempt.key if attempt.key.startswith("provider:") else ""
        restored = session.calls_by_id.get(by_id) if by_id else None
        entry = Entry(plan.tool_id, attempt.raw_digest)
        entry.call_id = attempt.call.call_id
        if restored is not None and restored.ledger_key is not None:
            attempt.write.key = restored.ledger_key
        if by_id:
            # Before anything is awaited: the same id delivered at once a second time must find this one.
            session.calls_by_id[by_id] = entry
        else:
            attempt.key = hash_key(plan.tool_id, attempt.args, attempt.turn.number)
        try:
            return await self._answer(attempt, needs_person, entry)
        except StoreUnavailable as error:
            give_back_unstarted(attempt)
            return self._answers.refuse_unrecorded(attempt, error)
        except asyncio.CancelledError:
            if not entry.kept:
                give_back_unstarted(attempt)
                give_back_budget(attempt)
            raise
        finally:
            if not entry.kept and not entry.settled:
                # Refused, or answered from another: this entry stands for nothing.
                if session.calls_by_id.get(by_id) is entry:
                    del session.calls_by_id[by_id]
                if restored is not None:
                    # The id goes on standing for the execution that it stood for before.
                    session.calls_by_id.setdefault(by_id, restored)
                if session.writes.get(attempt.write.key) is entry:
                    del session.writes[attempt.write.key]
                entry.abandon()

    async def _answer(self, attempt: Attempt, needs_person: bool, entry: Entry) -> ToolResponse:
        session, turn = attempt.session, attempt.turn
        assert attempt.write is not None
        if not turn.stored:
            await self._turns.store(session, turn)
        # 9. Key
        known = await self._existing_answer(attempt)
        if known is not None:
            return known
        session.writes[attempt.write.key] = entry
        # The host's gates, where the pipeline has not asked them yet; 10. rate limit, 11. loop, 12. budget
        refusal = ask_host(attempt) if attempt.asked_by is None else None
        if refusal is None and attempt.write.takeover is None:
            refusal = charge(attempt)
        if refusal is not None:
            attempt.write.taken.pop(attempt.ordinal, None)
            return self._answers.refuse(attempt, refusal)
        # 13. Confirmation
        if needs_person or attempt.asked_by is not None:
            return await self._confirmations.hold(attempt, entry)
        # 14. Claim, 15. run, 16. settle
        return await self._claims.run(attempt, None, entry)

    async def _existing_answer(self, attempt: Attempt) -> ToolResponse | None:
        """What a request, a person's no, or an earlier execution answers; None if this call is the first of its kind."""
        session, write = attempt.session, attempt.write
        assert write is not None
        pair = (attempt.plan.tool_id, attempt.exact)
        while True:
            held = session.holds.get(pair)
            if held is not None:
                answer = await self._confirmations.answered_from(attempt, *held)
                if answer is not None:
                    return answer
            if pair in attempt.turn.declined:
                return self._answers.refuse(attempt, declined(attempt.plan.tool_id))
            try:
                return await self._dedup.existing_answer(attempt)
            except HeldMeanwhile:
                write.taken.pop(attempt.ordinal, None)

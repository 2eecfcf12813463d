"""Runs the calls of the model beside its voice: starts them at once, answers when they have ended, whatever came between.

Each message's calls are a batch with a task of its own. The user's interruption stops what reads; what writes and has started is
finished, and the model learns of it without being made to speak of it. A connection that is lost in between changes nothing
here: the answer waits for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from handrail.agents import events
from handrail.agents.conversation import Conversation
from handrail.agents.unacknowledged_writes import UnacknowledgedWrite
from handrail.agents.voice.state.events_and_effects import CallsEnded, CallSlow, CallsReported, Event
from handrail.agents.voice.state.voice_turns import CallBatch, cancelled_call, failed_call
from handrail.contract.events import LateEnvelope
from handrail.contract.live import Answer, LiveConnection, LiveError
from handrail.runtime.attempt import ConnectionReplaced
from handrail.runtime.session import Session

_LOG = logging.getLogger("handrail.agent")


class ToolCalls:
    """Runs the calls of one conversation.

    `report` takes what happens, `tell` what the client is to know. `settled` waits until the session knows the model's newest
    connection: `connection_number` counts the model's own, `attached_as` is the session's. `is_over`: the model does not listen
    any more.
    """

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        connection: LiveConnection,
        *,
        report: Callable[[Event], None],
        tell: Callable[[str, Mapping[str, Any]], None],
        settled: Callable[[], Awaitable[None]],
        attached_as: Callable[[], int],
        connection_number: Callable[[], int],
        is_over: Callable[[], bool],
    ) -> None:
        self._session = session
        self._conversation = conversation
        self._unacknowledged = conversation.unacknowledged
        self._connection = connection
        self._report = report
        self._tell = tell
        self._settled = settled
        self._attached_as = attached_as
        self._connection_number = connection_number
        self._is_over = is_over

    async def run(self, batch: CallBatch) -> None:
        session = self._session
        writes: list[UnacknowledgedWrite | None] = [None] * len(batch.calls)
        timers: list[asyncio.TimerHandle] = []
        try:
            repeats, writes = await self._known(batch, session)
            # The look-up and the storing took time; who interrupted meanwhile does not want these calls any more.
            if batch.interrupted:
                envelopes = [cancelled_call(call) for call in batch.calls]
            else:
                timers = self._announce(batch, session)
                envelopes = await self._answered(batch, session, repeats, writes)
        except Exception as error:  # noqa: BLE001  # the model always gets an answer
            _LOG.error("The calls of a voice turn failed", exc_info=error)
            envelopes = [failed_call(call) for call in batch.calls]
        finally:
            for timer in timers:
                timer.cancel()
        answers = [Answer(call, envelope) for call, envelope in zip(batch.calls, envelopes, strict=True)]
        self._report(CallsEnded(batch, answers))
        for write, answer in zip(writes, answers, strict=True):
            if write is not None:
                self._unacknowledged.settled(write, answer.envelope)
        # The model first, whose answer the user waits for; the cards on the screen can wait.
        await self._deliver(batch, answers, writes)
        for answer in answers if not self._is_over() else ():
            event = events.ended(session, events.started(session, answer.call, batch.number), answer.envelope)
            self._tell(event.type, event.data)
        self._report(CallsReported())

    async def _known(
        self, batch: CallBatch, session: Session
    ) -> tuple[list[UnacknowledgedWrite | None], list[UnacknowledgedWrite | None]]:
        """For every call the one that it repeats without knowing, and the one that it is itself if it writes anew.

        What writes anew is stored before it starts: should the process end in between, the next one knows to ask the ledger.
        """
        unacknowledged = self._unacknowledged
        turn = session.turn.number if session.turn is not None else 0
        repeats: list[UnacknowledgedWrite | None] = [None] * len(batch.calls)
        if unacknowledged.writes:
            await unacknowledged.look_up(session)
            repeats = [unacknowledged.known(session, call, turn) for call in batch.calls]
        newest = self._connection_number()
        writes = [
            unacknowledged.made(session, call, turn, batch.connection, newest=newest) if repeated is None else None
            for call, repeated in zip(batch.calls, repeats, strict=True)
        ]
        if self._conversation.keep is not None and any(writes):
            await self._conversation.keep()
        return repeats, writes

    def _announce(self, batch: CallBatch, session: Session) -> list[asyncio.TimerHandle]:
        """Report the start of each call; the timers report those that take longer than their budget."""
        timers = []
        for call in batch.calls:
            event = events.started(session, call, batch.number)
            self._tell(event.type, event.data)
            plan = session.plans[call.name] if isinstance(call.name, str) else None
            if plan is None:
                continue
            budget = plan.latency_budget_ms
            if plan.retrieval:
                budget = min(budget, session.limits.retrieval_ms)
            slow = CallSlow(batch, call.name)
            timers.append(asyncio.get_running_loop().call_later(budget / 1000, self._report, slow))
        return timers

    async def _answered(
        self,
        batch: CallBatch,
        session: Session,
        repeats: Sequence[UnacknowledgedWrite | None],
        writes: Sequence[UnacknowledgedWrite | None],
    ) -> list[dict[str, Any]]:
        """Every call's envelope: from the pipeline, or from a call that it repeats without knowing."""
        if any(repeats):
            answers = await self._unacknowledged.call_many(session, batch.calls, repeats)
        else:
            answers = await session.call_many(batch.calls)
        while late := [
            place
            for place, one in enumerate(answers)
            if repeats[place] is None and isinstance(one.error, ConnectionReplaced)
        ]:
            # The session learns of the next connection in the line of ordered effects.
            await self._settled()
            # The model may have made the call again there by itself; then that one answers.
            late = [place for place in late if not self._unacknowledged.is_made_since(writes[place])]
            if not late or not batch.attach(self._attached_as()):
                break
            moved = [writes[place] for place in late]
            # They had not started when their connection was replaced: they start on the next, under their name there.
            self._unacknowledged.moved(session, [write for write in moved if write is not None])
            if self._conversation.keep is not None and any(moved):
                await self._conversation.keep()
            if batch.interrupted:
                break
            started = await session.call_many([batch.calls[place] for place in late])
            for place, answer in zip(late, started, strict=True):
                answers[place] = answer
        return [answer.to_dict() for answer in answers]

    async def _deliver(
        self, batch: CallBatch, answers: Sequence[Answer], writes: Sequence[UnacknowledgedWrite | None]
    ) -> None:
        """To the model; if there is none any more, to whoever continues the session."""
        if not self._is_over():
            try:
                await self._connection.send_envelopes(
                    answers, scheduling="silent" if batch.interrupted else "when_idle"
                )
            except LiveError:
                pass
            else:
                turn = self._session.turn
                for write in writes:
                    if write is not None:
                        self._unacknowledged.mark_told(write, turn.number if turn is not None else 0)
                return
        for answer in answers:
            # The conversation has the envelope in its place already, so that only the card is to be settled.
            called, name = answer.call.call_id, answer.call.name
            late = LateEnvelope(call_id=called, tool_id=name, envelope=answer.envelope, silent=True, known=True)
            self._session.events_queue.emit(late)

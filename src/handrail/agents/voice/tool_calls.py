"""Calls of the model, beside its voice: carried to the pipeline at once, answered when they have ended, whatever came between.

Each message's calls are a batch with a task of its own. The user's interruption stops what reads; what writes and has started is
finished, and the model is told without being made to speak of it. A connection that is lost in between changes nothing here: the
answer waits for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from handrail.agents import events
from handrail.agents.citations import citations_in
from handrail.agents.host_words import unfinished_words
from handrail.agents.unacknowledged_writes import UnacknowledgedWrite, writes
from handrail.agents.voice.host_port import Ending
from handrail.agents.voice.voice_turns import VoiceTurn
from handrail.contract.call import Call, Connection
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.events import LateEnvelope
from handrail.contract.live import Answer, LiveError
from handrail.contract.model import ToolMessage
from handrail.runtime.attempt import REPLACED
from handrail.runtime.session import Session

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

_LOG = logging.getLogger("handrail.agent")
_RUNAWAY = 4
"""So many times the rounds that a turn may have end the conversation."""


class CallBatch:
    """The calls of one message."""

    __slots__ = ("calls", "connection", "interrupted", "number", "timers", "turn", "waiting")

    def __init__(
        self, calls: Sequence[Call], waiting: Sequence[ToolMessage], turn: VoiceTurn | None, connection: int
    ) -> None:
        self.calls = tuple(calls)
        self.waiting = tuple(waiting)
        """What stands in the conversation in the place of the envelopes."""
        self.turn = turn
        self.connection = connection
        self.number = turn.rounds if turn is not None else 1
        self.interrupted = False
        self.timers: list[asyncio.TimerHandle] = []

    def attach(self, connection: Connection) -> bool:
        """The session's connection that the calls are made on; whether it is another than before."""
        is_new = any(call.connection != connection for call in self.calls)
        self.calls = tuple(call._replace(connection=connection) for call in self.calls)
        return is_new


class ToolCalls:
    """The calls of one conversation."""

    def __init__(self, talk: VoiceSession) -> None:
        self._talk = talk
        self.unacknowledged = talk.record.conversation.unacknowledged
        self.running: dict[CallBatch, asyncio.Task[None] | None] = {}
        self._busy_since = 0.0
        self._turn: VoiceTurn | None = None
        self._rounds = 0
        """Messages with calls in that turn."""

    def made(self, calls: Sequence[Call]) -> None:
        """The model asks for calls. They start in their order, after the turn and the connection that they belong to."""
        talk = self._talk
        turn = talk.turns.current
        if turn is not None:
            turn.rounds += 1
        self._rounds = self._rounds + 1 if turn is self._turn else 1
        self._turn = turn
        if self._rounds > talk.max_rounds:
            self._too_many(calls)
            return
        item = talk.speaking.end_item()
        said = item.text if item is not None else ""
        message, waiting = talk.record.call(said, calls, lambda call: writes(talk.session, call))
        if item is not None:
            item.message = message
        batch = CallBatch(calls, waiting, turn, talk.stream.number)
        if not self.running:
            self._busy_since = asyncio.get_running_loop().time()
        self.running[batch] = None
        talk.order.put(lambda: self._start(batch))

    def _too_many(self, calls: Sequence[Call]) -> None:
        """The model goes on calling without an end: it is answered without being asked to go on, and the turn is over."""
        talk, most = self._talk, self._talk.max_rounds
        talk.end_item()
        answers = [Answer(call, _too_late(call, most)) for call in calls]
        talk.order.put(lambda: talk.connection.send_envelopes(answers, scheduling="silent"))
        talk.is_generating = False
        if self._rounds == most + 1:
            talk.tell("error", {"code": "too_many_rounds", "message": unfinished_words(most)})
            talk.turns.ended()
        elif self._rounds > _RUNAWAY * most:  # a provider that asks it to go on whatever it is answered
            talk.leave(Ending(reason="fault", resumable=True, message=unfinished_words(most)))
        talk.settle()

    @property
    def awaited(self) -> bool:
        """Whether the model waits for an answer before it goes on."""
        return any(not batch.interrupted for batch in self.running)

    def interrupt(self) -> bool:
        """The user interrupted; whether anything runs that could hear of it."""
        for batch in self.running:
            batch.interrupted = True
        self.unacknowledged.interrupted()
        return bool(self.running)

    def are_all_that_runs(self, ids: Collection[str]) -> bool:
        """Whether these calls are all that runs, or cannot be stopped alone: one that waits in a message behind others."""
        session = self._talk.session
        for batch in self.running:
            named = [call for call in batch.calls if call.call_id in ids]
            if len(batch.calls) > 1 and any(writes(session, call) for call in named):
                return True
        return all(call.call_id in ids for batch in self.running for call in batch.calls)

    def take_back(self, ids: Collection[str]) -> None:
        """The provider takes some calls back. A message of which others are left is still answered aloud."""
        for batch in self.running:
            batch.interrupted = batch.interrupted or all(call.call_id in ids for call in batch.calls)
        self.unacknowledged.interrupted(ids)

    async def _start(self, batch: CallBatch) -> None:
        talk = self._talk
        batch.attach(talk.attached)
        task = asyncio.get_running_loop().create_task(self._run(batch, talk.session))
        self.running[batch] = task
        talk.keep(task)

    async def _run(self, batch: CallBatch, session: Session) -> None:
        firsts: list[UnacknowledgedWrite | None] = [None] * len(batch.calls)
        try:
            repeats, firsts = await self._known(batch, session)
            if batch.interrupted:
                envelopes = [_cancelled(call) for call in batch.calls]
            else:
                envelopes = await self._answered(batch, session, repeats, firsts)
        except Exception as error:  # noqa: BLE001  # the model always gets an answer
            _LOG.error("The calls of a voice turn failed", exc_info=error)
            envelopes = [_failed(call) for call in batch.calls]
        finally:
            self._settle(batch)
        answers = [Answer(call, envelope) for call, envelope in zip(batch.calls, envelopes, strict=True)]
        self._write_down(batch, answers)
        for first, answer in zip(firsts, answers, strict=True):
            if first is not None:
                self.unacknowledged.settled(first, answer.envelope)
        await self._deliver(batch, answers, firsts)
        for answer in answers if not self._talk.is_over else ():
            event = events.ended(session, answer.call, answer.envelope, batch.number)
            self._talk.tell(event.type, event.data)
        self._talk.calls_ended()

    async def _known(
        self, batch: CallBatch, session: Session
    ) -> tuple[list[UnacknowledgedWrite | None], list[UnacknowledgedWrite | None]]:
        """For every call the one that it repeats without knowing, and the one that it is itself if it writes anew.

        What writes anew is stored before it starts: should the process end in between, the next one knows to ask the ledger.
        """
        conversation = self._talk.record.conversation
        await self.unacknowledged.look_up(session)
        turn = session.turn.number if session.turn is not None else 0
        repeats = [self.unacknowledged.known(session, call, turn) for call in batch.calls]
        firsts = [
            None if repeated is not None else self.unacknowledged.made(session, call, turn, batch.connection)
            for call, repeated in zip(batch.calls, repeats, strict=True)
        ]
        self.unacknowledged.missed([first for first in firsts if first is not None], self._talk.stream.number)
        if conversation.keep is not None and any(firsts):
            await conversation.keep()
        return repeats, firsts

    async def _answered(
        self,
        batch: CallBatch,
        session: Session,
        repeats: Sequence[UnacknowledgedWrite | None],
        firsts: Sequence[UnacknowledgedWrite | None],
    ) -> list[dict[str, Any]]:
        """Every call's envelope: from the pipeline, or from a call that it repeats without knowing."""
        for call in batch.calls:
            event = events.started(session, call, batch.number)
            self._talk.tell(event.type, event.data)
            self._watch(batch, session, call)
        answers = await self.unacknowledged.call_many(session, batch.calls, repeats)
        while late := [place for place, one in enumerate(answers) if repeats[place] is None and _was_replaced(one)]:
            await self._talk.order.empty()  # the next connection is one of the steps in line
            late = [place for place in late if not self.unacknowledged.is_made_since(firsts[place])]
            if not late or not batch.attach(self._talk.attached):
                break
            await self._move(session, [firsts[place] for place in late])
            if batch.interrupted:
                break
            started = await session.call_many([batch.calls[place] for place in late])
            for place, answer in zip(late, started, strict=True):
                answers[place] = answer
        return [answer.to_dict() for answer in answers]

    async def _move(self, session: Session, firsts: Sequence[UnacknowledgedWrite | None]) -> None:
        """Calls that had not started when their connection was replaced start on the next, under their name there."""
        conversation = self._talk.record.conversation
        self.unacknowledged.moved(session, [first for first in firsts if first is not None])
        if conversation.keep is not None and any(firsts):
            await conversation.keep()

    def _settle(self, batch: CallBatch) -> None:
        self.running.pop(batch, None)
        for timer in batch.timers:
            timer.cancel()
        if not self.running and batch.turn is not None:
            batch.turn.tools_seconds += asyncio.get_running_loop().time() - self._busy_since

    def _write_down(self, batch: CallBatch, answers: Sequence[Answer]) -> None:
        for waiting, answer in zip(batch.waiting, answers, strict=True):
            self._talk.record.answer(waiting, answer.envelope)
            if batch.turn is not None:
                for cited in citations_in(answer.envelope.get("data")):
                    batch.turn.evidence.setdefault(cited["id"], {**cited, "toolId": answer.call.name})

    async def _deliver(
        self, batch: CallBatch, answers: Sequence[Answer], firsts: Sequence[UnacknowledgedWrite | None]
    ) -> None:
        """To the model; if there is none any more, to whoever goes on with the session."""
        talk = self._talk
        if not talk.is_over:
            try:
                scheduling = "silent" if batch.interrupted else "when_idle"
                await talk.connection.send_envelopes(answers, scheduling=scheduling)  # type: ignore[arg-type]
            except LiveError:
                pass
            else:
                turn = talk.session.turn.number if talk.session.turn is not None else 0
                for first in firsts:
                    if first is not None:
                        self.unacknowledged.told(first, turn)
                return
        for answer in answers:
            # The conversation has the envelope in its place already, so that only the card is to be settled.
            called, name = answer.call.call_id, answer.call.name
            late = LateEnvelope(call_id=called, tool_id=name, envelope=answer.envelope, silent=True, known=True)
            talk.session.events_queue.emit(late)

    # ------------------------------------------------------------------------------------------- slow ones

    def _watch(self, batch: CallBatch, session: Session, call: Call) -> None:
        plan = session.plans.find(call.name) if isinstance(call.name, str) else None
        if plan is None:
            return
        budget = plan.latency_budget_ms
        if plan.retrieval:
            budget = min(budget, session.limits.retrieval_ms)
        loop = asyncio.get_running_loop()
        batch.timers.append(loop.call_later(budget / 1000, self._slow, batch, call))

    def _slow(self, batch: CallBatch, call: Call) -> None:
        talk = self._talk
        if batch.interrupted or talk.is_over:
            return
        talk.tell("cue", {"kind": "slow", "toolId": call.name})
        turn = batch.turn
        filler = talk.policy.filler
        if turn is None or turn.filled or not filler or talk.is_voiced or not talk.abilities.speaks:
            return
        turn.filled = True
        talk.speaking.aside(filler[turn.number % len(filler)])


def _was_replaced(answer: ToolResponse) -> bool:
    return answer.error is not None and answer.error.message == REPLACED


def _cancelled(call: Call) -> dict[str, Any]:
    message = "The call was cancelled before it started, because the user interrupted."
    return _refused(call, ErrorType.CANCELLED, message, doubtful=False)


def _too_late(call: Call, most: int) -> dict[str, Any]:
    message = f"One turn has at most {most} rounds of calls; this call did not run. Wait for the user."
    return _refused(call, ErrorType.BUDGET_EXCEEDED, message, doubtful=False)


def _failed(call: Call) -> dict[str, Any]:
    return _refused(call, ErrorType.INTERNAL, "The call broke down; look before you call it again.", doubtful=True)


def _refused(call: Call, kind: ErrorType, message: str, *, doubtful: bool) -> dict[str, Any]:
    error = {"type": kind.value, "message": message, "retryable": not doubtful, "partialSideEffects": doubtful}
    return {"ok": False, "error": error, "intents": [], "meta": {"toolId": call.name}}

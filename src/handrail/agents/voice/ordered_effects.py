"""Carries out, one after the other, the effects whose order counts: turns, connections, calls, and what the model is sent.

The model's events are handled without waiting. But a turn has to be stored before a call of it starts, and the session has to
know a connection before a call that was made on it. So these effects stand in one line, and sound does not stand in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, assert_never

from handrail.agents.voice.attached_session import AttachedSession
from handrail.agents.voice.host_port import Ending, taken_over
from handrail.agents.voice.state.events_and_effects import (
    EndTurn,
    EndWanted,
    Event,
    InterruptCalls,
    InterruptModel,
    ModelToldLate,
    Ordered,
    RecordWithdrawnEnd,
    RefuseCalls,
    ResumeSession,
    SendUserText,
    StartCalls,
    StoreTurn,
    TellModel,
    TellModelLate,
    TruncateModel,
    TurnStored,
    UserTextSending,
)
from handrail.agents.voice.state.reducer import ConversationReducer
from handrail.agents.voice.tool_calls import ToolCalls
from handrail.agents.voice.transcript import VoiceTranscript
from handrail.contract.errors import UsageError
from handrail.contract.live import LiveConnection, LiveError
from handrail.contract.store import StoreUnavailable
from handrail.runtime.core import RuntimeCore

_RESUME_TRIES = 5


class OrderedEffects:
    """One line of effects. `failed` learns of one that raised; the line continues."""

    def __init__(
        self,
        runtime: RuntimeCore,
        attached: AttachedSession,
        transcript: VoiceTranscript,
        connection: LiveConnection,
        reducer: ConversationReducer,
        calls: ToolCalls,
        *,
        report: Callable[[Event], None],
        tell: Callable[[str, Mapping[str, Any]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._attached = attached
        self._transcript = transcript
        self._connection = connection
        self._reducer = reducer
        self._calls = calls
        self._report = report
        self._tell = tell
        self._spawn = spawn
        self._failed = failed
        self._waiting: deque[Ordered] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.get_running_loop().create_task(self._work())

    def put(self, effect: Ordered) -> None:
        self._waiting.append(effect)
        self._idle.clear()
        self._arrived.set()

    async def empty(self) -> None:
        """Wait until everything is done."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop; what waits is not done any more."""
        self._task.cancel()
        if self._task is not asyncio.current_task():
            await asyncio.gather(self._task, return_exceptions=True)
        self._waiting.clear()
        self._idle.set()

    async def _work(self) -> None:
        while True:
            while self._waiting:
                effect = self._waiting.popleft()
                try:
                    await self._carry_out(effect)
                except Exception as error:  # noqa: BLE001  # whatever it is, the conversation decides
                    self._failed(error)
            self._idle.set()
            self._arrived.clear()
            await self._arrived.wait()

    async def _carry_out(self, effect: Ordered) -> None:
        connection = self._connection
        match effect:
            case StoreTurn():
                await self._store_turn(effect)
            case EndTurn(turn):
                # Otherwise a later turn has ended it for the runtime.
                if self._reducer.turns.current is turn:
                    await self._attached.connection.end_turn()
                self._tell("turn_done", turn.report())
            case SendUserText():
                await self._send_user_text(effect)
            case TruncateModel(played_ms):
                await connection.truncate(played_ms)
            case InterruptModel():
                await connection.interrupt()
            case TellModel(text, scheduling):
                await connection.tell(text, scheduling=scheduling)
            case TellModelLate():
                await self._tell_model_late(effect)
            case InterruptCalls(ids):
                await self._attached.connection.interrupt(ids)
            case StartCalls(batch):
                # Now, not when they were made: a new connection may have come in between.
                batch.attach(self._attached.connection)
                self._spawn(self._calls.run(batch))
            case RefuseCalls(answers):
                await connection.send_envelopes(answers, scheduling="silent")
            case ResumeSession(restored):
                await self._resume_session(restored)
            case RecordWithdrawnEnd(intent):
                await self._record_withdrawn_end(intent)
            case _:
                assert_never(effect)

    async def _store_turn(self, effect: StoreTurn) -> None:
        connection = self._attached.connection
        number = await connection.begin_turn(effect.turn.input_id)
        replaced = not connection.is_current
        self._report(TurnStored(effect.turn, number, effect.before, replaced=replaced))

    async def _send_user_text(self, effect: SendUserText) -> None:
        # Before it is sent: the answer may begin while this still waits.
        self._report(UserTextSending())
        await self._connection.send_text(effect.text)
        if effect.clears_pending:
            self._attached.set("pendingMessage", None)
            await self._runtime.save(self._attached.session)

    async def _tell_model_late(self, effect: TellModelLate) -> None:
        self._report(ModelToldLate(effect.silent))
        with suppress(LiveError):  # the conversation has it; whoever continues it is told
            await self._connection.tell(effect.text, scheduling="silent" if effect.silent else "when_idle")
            if effect.confirmation_id is not None:
                turn = self._reducer.turn_of_what_was_said()
                await self._transcript.conversation.read(self._attached.session, (effect.confirmation_id,), turn)

    async def _record_withdrawn_end(self, intent: Mapping[str, Any]) -> None:
        session = self._attached.session
        reason = "The person spoke into the farewell: the end was taken back."
        facts = {**self._runtime.trail.who(session), "intent": intent, "ok": False, "reason": reason}
        self._runtime.trail.note("intent", session, facts)
        await self._runtime.save(session)

    async def _resume_session(self, restored: tuple[str, ...]) -> None:
        """The session continues under the next connection number. No call of the new connection may start before."""
        session, delay = self._attached.session, 0.25
        for attempt in range(1, _RESUME_TRIES + 1):
            try:
                resumed = await self._runtime.resume_session(session.id, token=session.token, restored_calls=restored)
            except StoreUnavailable:
                if attempt == _RESUME_TRIES:
                    raise
                await asyncio.sleep(delay)
                delay *= 2
            except UsageError as error:
                self._report(EndWanted(Ending(reason="session_ended", message=str(error))))
                return
            else:
                if resumed is session:
                    self._attached.connection = session.connection
                else:  # another process has had it meanwhile
                    self._report(EndWanted(taken_over()))
                return

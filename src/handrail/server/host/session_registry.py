"""The sessions that a server hosts: opened, found again by id and secret, spoken to, told about late results, and let go.

A session that is not in memory is resumed from the store, with its conversation: after a restart, after it was idle, or because
another process had it. A turn that was cut off by the end of a process is answered anew under the
same message: its turn is the same, so writing calls meet their first execution, and held calls their open request.

Several processes may share one store. A turn belongs to its living owner. Whoever only looks at a
session that another living process has is shown what is stored (`HostedSession.is_remote`). Whoever says something in it moves
it here if the owner is idle in it, and is asked to wait if not. The session of a process that has ended goes to the one that
is asked next.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import count
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from handrail.agents import Conversation
from handrail.contract.conversations import Moved, Quota, QuotaExceeded, StoredConversation, StoredTurn
from handrail.contract.definition import Mode
from handrail.contract.errors import SessionEnded, UsageError
from handrail.contract.events import LateEnvelope
from handrail.contract.model import Message
from handrail.contract.store import StoreUnavailable
from handrail.runtime.local_time import attributes_for
from handrail.runtime.retention import end_detached
from handrail.runtime.session import Session
from handrail.server.host.agent_port import PortEvents, TextAgentPort
from handrail.server.host.hosted_session import HostedSession, TurnRun
from handrail.server.host.refusals import (
    RefusalReason,
    SessionRefused,
    busy,
    ended,
    full,
    message_reused,
    moved,
    no_session,
    restarting,
    store_away,
    trying,
)
from handrail.server.host.turn_ends import TurnEnds
from handrail.server.key_ring import Key
from handrail.server.options import Options
from handrail.standard_runtime import Runtime

_LAST_SECONDS = 1.0
"""After the time for a stop, for outcomes that are just being stored."""
_log = logging.getLogger("handrail.server")
MAX_ATTEMPTS = 3
"""A turn that was cut off so often is not begun again by itself: it may be what ends the server."""
PASSING_SECONDS = 600.0
_WATCH_SECONDS = 0.5
_ASK_SECONDS = 1.0
_MAX_TAKES = 10
_SWEEP_SECONDS = 30.0
_SWEEPS_PER_HOUR = 120

_PASSED_ON_UNCHANGED = frozenset(
    ("confirmation", "confirmation_running", "connection_wanted", "message", "intent", "progress")
)
"""Events of a session that its clients are sent unchanged."""


class BusyElsewhere(SessionRefused):
    """Another process is busy in the session; `hosted` is what is stored of it."""

    def __init__(self, hosted: HostedSession) -> None:
        message = "Another process of this server is busy in the session; wait for it, and try again."
        super().__init__(RefusalReason.BUSY, message, retry_after=1)
        self.hosted = hosted


class SessionRegistry:
    """See the module's docstring."""

    def __init__(self, runtime: Runtime, agent: TextAgentPort, options: Options) -> None:
        self.runtime = runtime
        self.conversations = runtime.store.conversations
        self.options = options
        self.draining = False
        self.leaving = asyncio.Event()
        """Set when draining begins."""
        self._stops_at: float | None = None
        """When the stop has to be over, by the clock of the loop."""
        self.hurried = asyncio.Event()
        """Whoever asked the server to stop asked once more: turns are not waited for."""
        self._agent = agent
        self._hosted: dict[str, HostedSession] = {}
        self._loading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._chores: list[asyncio.Task[None]] = []
        self._unused: list[str] = []
        self.ends = TurnEnds(
            self.conversations, lambda: runtime.owner, lambda hosted: self._hosted.get(hosted.id) is hosted
        )
        self._unfreed: set[str] = set()
        """Sessions that others could have, if the store had taken it."""

    def __len__(self) -> int:
        return len(self._hosted)

    # Opening and closing the server

    async def start(self) -> None:
        """Open what is needed; once more changes nothing."""
        await self.runtime.open()
        if not self._chores:
            loop = asyncio.get_running_loop()
            self._chores = [loop.create_task(self._sweep()), loop.create_task(self._watch())]

    async def drain(self) -> None:
        """The server is asked to stop: clients are asked to connect again, and running turns may end."""
        self.draining = True
        self.leaving.set()
        if self._stops_at is None:
            self._stops_at = asyncio.get_running_loop().time() + self.options.shutdown_seconds
        running = self._running()
        if running:
            _log.warning(
                "Stopping when %s ended, in at most %d s; Ctrl-C once more does not wait.",
                "a turn that runs has" if len(running) == 1 else f"{len(running)} turns that run have",
                self.options.shutdown_seconds,
            )
        leaving = [asyncio.ensure_future(hosted.leave("reconnect")) for hosted in self._hosted.values()]
        await self._until(leaving)
        await self._cancel(leaving)
        await self._until(self._running())
        # Marked before they are cancelled: a turn that is cut is answered anew after the start, a cancelled one is over.
        for hosted in self._hosted.values():
            if hosted.current is not None:
                hosted.current.cut = True
        await self._cancel(self._running())

    async def _until(self, running: Sequence[asyncio.Task[None]]) -> None:
        """Until these have ended, for as long as a stop may take, and not once somebody is in a hurry."""
        if not running:
            return
        ended = asyncio.ensure_future(asyncio.wait(running))
        hurry = asyncio.ensure_future(self.hurried.wait())
        await asyncio.wait({ended, hurry}, timeout=self.seconds_to_stop(), return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, hurry):
            task.cancel()

    def seconds_to_stop(self) -> float:
        """What is left of the time that a stop may take."""
        if self._stops_at is None:
            return float(self.options.shutdown_seconds)
        return max(0.0, self._stops_at - asyncio.get_running_loop().time())

    @staticmethod
    async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Let go of everything; the runtime lets writing calls finish, as long as the stop may take."""
        try:
            await self.drain()
            tasks = [hosted.listening for hosted in self._hosted.values() if hosted.listening is not None]
            await self._cancel([*tasks, *self._chores])
            await self.ends.store_left()
        finally:
            self._hosted.clear()
            await self.runtime.close(within=self.seconds_to_stop() + _LAST_SECONDS)

    def _running(self) -> list[asyncio.Task[None]]:
        runs = [hosted.current.task for hosted in self._hosted.values() if hosted.current is not None]
        return [task for task in runs if task is not None] + [
            task for hosted in self._hosted.values() for task in hosted.late
        ]

    # Sessions

    async def open(
        self,
        key: Key,
        *,
        mode: Mode = "text",
        user: str | None = None,
        time_zone: str = "",
        history: Sequence[Message] = (),
        passing: bool = False,
    ) -> HostedSession:
        """A new session for whom the key speaks."""
        if self.draining:
            raise restarting()
        if len(self._hosted) >= self.options.max_sessions and not await self._make_room():
            message = "The server has as many sessions as it may hold; try again later."
            raise SessionRefused(RefusalReason.FULL, message, retry_after=30)
        chosen = user or key.user
        if not key.may_use(chosen):
            raise SessionRefused(RefusalReason.NOT_ALLOWED, "This key speaks for one user; leave `user` out.")
        try:
            session = await self.runtime.open_session(
                mode=mode,
                user=chosen,
                tenant=key.tenant,
                attributes={**attributes_for(time_zone), **_attributes_of(key)},
            )
        except StoreUnavailable:
            raise store_away() from None
        conversation = Conversation(time_zone=time_zone)
        conversation.add(*history)
        try:
            stored = StoredConversation(
                session_id=session.id,
                tenant=session.tenant,
                user=chosen,
                passing=passing,
                key=key.hash,
                document=conversation.to_dict(),
            )
            self._unused += await self.conversations.create(stored, owner=self.runtime.owner, quota=self._quota)
        except StoreUnavailable:
            with suppress(StoreUnavailable):
                await session.close()
            raise store_away() from None
        except QuotaExceeded as error:
            await session.close()
            raise full(error.scope) from None
        return self._enter(HostedSession(session, conversation, passing=passing))

    @property
    def _quota(self) -> Quota:
        options = self.options
        return Quota(
            in_all=options.max_conversations,
            per_key=options.max_conversations_per_key,
            per_user=options.max_conversations_per_user,
        )

    async def find(self, session_id: str, token: str, key: Key, *, looks: bool = False) -> HostedSession:
        """The session of this id, for whoever has its secret; to everybody else there is none.

        It is this process's from now on; `BusyElsewhere` if another one that lives is busy in it. Somebody who only `looks` at
        it does not take it, and is shown what is stored (`is_remote`), if another process has it and lives.
        """
        hosted = self._hosted.get(session_id)
        if hosted is None or hosted.session.is_taken_over or not await self._is_ours(hosted):
            lock = self._loading.setdefault(session_id, asyncio.Lock())
            async with lock:
                hosted = self._hosted.get(session_id)
                if hosted is not None and (hosted.session.is_taken_over or not await self._is_ours(hosted)):
                    await self._let_go(hosted)
                    hosted = None
                hosted = hosted or await self._load(session_id, token, take=not looks)
        same = hmac.compare_digest(hosted.session.token.encode(), token.encode("utf-8", "surrogatepass"))
        # One answer for all of it: whether there is such a session is only for those whose it is.
        if not same or not key.may_use(hosted.session.user) or (key.tenant and key.tenant != hosted.session.tenant):
            raise no_session()
        if hosted.ended:
            raise ended()
        if hosted.is_remote and not looks:
            raise BusyElsewhere(hosted)
        if not hosted.is_remote and frozenset(key.roles) != hosted.session.roles and not key.is_operator:
            # Roles are those of whoever asks now: one that was taken away since is gone from the session too.
            await self._set_roles(hosted, key)
        hosted.last_used = monotonic()
        return hosted

    async def _set_roles(self, hosted: HostedSession, key: Key) -> None:
        try:
            await self.runtime.set_roles(hosted.session, key.roles)
        except StoreUnavailable:
            raise store_away() from None

    async def _is_ours(self, hosted: HostedSession) -> bool:
        """Whether no other process has taken the session. One whose conversation is gone is ended: its user was forgotten."""
        asked = monotonic()
        try:
            owner = (await self.conversations.owners((hosted.id,))).get(hosted.id)
        except StoreUnavailable:
            return True  # it cannot be asked at the moment, and nothing can be written to it either
        if owner is None and not hosted.ended:
            await self.end(hosted, delete=False)
        ours = owner is None or owner == self.runtime.owner
        if ours:
            hosted.asked_at = asked
        return ours

    async def is_still_here(self, hosted: HostedSession) -> bool:
        """Whether what is in memory is still what there is. The store is asked only where others may have taken this process for
        dead, and not for long: what it does not say does not keep a stream that was begun here from continuing."""
        if self.runtime.store.is_heard() or monotonic() - hosted.unanswered_at < _ASK_SECONDS:
            return True
        with suppress(StoreUnavailable):
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    owners = await self.conversations.owners((hosted.id,))
            except TimeoutError:
                hosted.unanswered_at = monotonic()
                return True
            if owners.get(hosted.id, self.runtime.owner) != self.runtime.owner:
                self.runtime.spawn(self._let_go(hosted))
                return False
        return True

    async def _load(self, session_id: str, token: str, *, take: bool) -> HostedSession:
        if self.draining:
            raise restarting()
        try:
            viewed = await self.runtime.view_session(session_id, token=token)
            if not await self._take(session_id, though_idle=take):
                stored = await self.conversations.load(session_id)
                if stored is not None:
                    return _hosted_session(viewed, stored, is_remote=True)
            try:
                session = await self.runtime.resume_session(session_id, token=token)
                stored = await self.conversations.load(session_id)
            finally:
                await self._free(session_id)
        except StoreUnavailable:
            raise store_away() from None
        except SessionEnded:
            raise ended() from None
        except UsageError:
            raise no_session() from None
        if stored is None:
            stored = StoredConversation(
                session_id=session_id, tenant=session.tenant, user=session.user, passing=False,
                document=Conversation().to_dict(),
            )  # fmt: skip
            try:
                await self.conversations.create(stored, owner=self.runtime.owner)
            except StoreUnavailable:
                raise store_away() from None
            except UsageError:  # another process has come for it at the same moment
                raise moved() from None
        hosted = _hosted_session(session, stored)
        hosted.rebuild()
        self.runtime.metrics.session_opened(session_id)
        self._enter(hosted)
        cut = next((turn for turn in stored.turns if turn.state == "running"), None)
        if cut is not None:
            await self._begin_again(hosted, cut)
        return hosted

    async def _take(self, session_id: str, *, though_idle: bool) -> bool:
        """Make the session this process's, if nobody has it or whoever had it has ended; `though_idle`: also from a living
        process that is not busy in it. Whether it is."""
        for _ in range(_MAX_TAKES):
            standing = await self.conversations.standing(session_id)
            if standing is None:
                return True
            others = standing.owner not in ("", self.runtime.owner)
            lives = others and await self.runtime.store.owner_lives(standing.owner)
            if lives and (standing.busy or not though_idle):
                return False
            if await self.conversations.take(
                session_id, owner=self.runtime.owner, former=standing.owner, though_busy=not lives
            ):
                return True
        return False  # others want it as well; whoever asked may ask again

    def _enter(self, hosted: HostedSession) -> HostedSession:
        self._hosted[hosted.id] = hosted
        hosted.listening = asyncio.get_running_loop().create_task(self._listen(hosted))
        return hosted

    async def end(self, hosted: HostedSession, *, delete: bool = True) -> None:
        """The user is done: the session ends, and what was said in it is deleted."""
        hosted.ended = True
        await hosted.leave("closed")
        await self.cancel(hosted)
        await hosted.session.close()
        self._hosted.pop(hosted.id, None)
        await self._stop_listening(hosted)
        if delete:
            await self.conversations.delete(hosted.id)

    async def end_all_of(self, tenant: str, user: str) -> None:
        """End the sessions of a user that are open here; whoever calls this deletes what was said in them."""
        for hosted in [
            one for one in self._hosted.values() if (one.session.tenant, one.session.user) == (tenant, user)
        ]:
            await self.end(hosted, delete=False)

    # Turns

    async def say(self, hosted: HostedSession, message_id: str, text: str) -> TurnRun:
        """The user says something. The same message again is the same turn: it is neither begun nor answered twice."""
        if hosted.is_trying:
            raise trying()
        if hosted.voice is not None:
            joined = await hosted.voice.say(message_id, text)
            if joined is not None:
                return joined if joined.fresh else await self._whole(hosted, joined.turn)
        known = hosted.known(message_id)
        if known is not None and known.text != text:
            raise message_reused()
        if hosted.current is not None:
            if hosted.current.turn.message_id == message_id:
                await asyncio.shield(hosted.current.started)
                return hosted.current
            raise busy("The session is answering another message; wait for it, or cancel it.")
        if known is not None and known.state in ("done", "cancelled"):
            return await self._whole(hosted, known)
        if self.draining:
            raise restarting()
        turn = known or StoredTurn(message_id=message_id, text=text)
        if known is not None:
            turn.attempts, turn.state, turn.answer = known.attempts + 1, "running", hosted.remembered(known)
        run = await self._begin(hosted, turn)
        await asyncio.shield(run.started)
        return run

    async def _whole(self, hosted: HostedSession, turn: StoredTurn) -> TurnRun:
        """A turn that was answered before, with what was left out of it here."""
        stored = None if hosted.is_whole(turn) else await self.conversations.turn(hosted.id, turn.message_id)
        run = TurnRun(stored or turn, hosted.log.last)
        run.fresh = False
        run.started.set_result(turn.number)
        return run

    async def cancel(self, hosted: HostedSession) -> bool:
        """Stop the turn that runs; a writing call that has started is finished all the same."""
        run = hosted.current
        if run is None or run.task is None:
            return hosted.voice is not None and await hosted.voice.interrupt()
        if not run.cancelled and not run.ending:
            run.cancelled = True
            run.task.cancel()
        while not (run.ending or run.task.done()):
            await asyncio.wait([run.task], timeout=0.1)
        # An end that is being stored waits for the store; whoever cancelled does not.
        await asyncio.wait([run.task], timeout=_LAST_SECONDS)
        return run.cancelled

    async def _begin(self, hosted: HostedSession, turn: StoredTurn) -> TurnRun:
        if self._hosted.get(hosted.id) is not hosted:  # it went to another process, and perhaps came back
            raise moved()
        run = hosted.current = TurnRun(turn, hosted.log.last)
        hosted.keep(turn)
        try:
            await self.conversations.begin(hosted.id, turn, owner=self.runtime.owner)
        except (StoreUnavailable, Moved) as error:
            hosted.current = None
            hosted.turns.pop(turn.message_id, None)
            raise (moved() if isinstance(error, Moved) else store_away()) from None
        run.task = asyncio.get_running_loop().create_task(self._run(hosted, run))
        run.task.add_done_callback(lambda _: self._over(hosted, run))
        return run

    def _over(self, hosted: HostedSession, run: TurnRun) -> None:
        """However a run ended, also before its first step: the session is free, and nobody waits for its start."""
        if hosted.current is run:
            hosted.current = None
        if not run.started.done():
            if run.cut:
                run.started.set_exception(restarting())
                run.started.exception()  # there may be nobody who asks for it
            else:
                run.started.set_result(run.turn.number)

    async def _begin_again(self, hosted: HostedSession, turn: StoredTurn) -> None:
        if turn.attempts >= MAX_ATTEMPTS:
            turn.state = "failed"
            turn.answer = {
                "error": {"message": "This turn was cut off several times; send the message again to retry."}
            }
            self._spawn_late(hosted, self._store_end(hosted, turn))
            return
        turn.attempts += 1
        turn.answer = hosted.remembered(turn)
        await self._begin(hosted, turn)

    async def _run(self, hosted: HostedSession, run: TurnRun) -> None:
        turn, session = run.turn, hosted.session
        try:
            async with hosted.busy:
                try:
                    if (
                        session.mode == "voice" and hosted.voice is None
                    ):  # a restart cut it off, and the user writes now
                        await session.set_mode("text")
                    connection = session.connection
                    told = self._agent.run(session, hosted.conversation, turn.text, message_id=turn.message_id)
                    await self._speak(hosted, run, told)
                    if not connection.is_current:
                        # Somebody resumed it in spite of everything, such as a process that was ending: calls were refused
                        # here. What came of that is not kept, and the turn is answered anew when its client comes back.
                        run.cut = True
                        self.runtime.spawn(self._let_go(hosted))
                        return
                    turn.state = "failed" if "error" in turn.answer else "done"
                except asyncio.CancelledError:
                    if run.cut or not run.cancelled:
                        raise
                    turn.state = "cancelled"
                except Exception:  # noqa: BLE001  # a turn always ends, and says so
                    _log.exception("A turn failed")
                    turn.state = "failed"
                    error = {"message": "The turn failed in the server; try again.", "retryable": True}
                    run.note("error", error)
                    hosted.log.add("error", error, turn.number)
                hosted.last_used = monotonic()
                await self._finish(hosted, run)
        except asyncio.CancelledError:
            if run.cut or not run.cancelled or run.ending:
                raise
            # Cancelled while it waited for a late result to be delivered.
            turn.state = "cancelled"
            await self._finish(hosted, run)

    async def _speak(self, hosted: HostedSession, run: TurnRun, events: PortEvents) -> None:
        """Put what the agent tells into what people are shown, and into the log."""
        turn = run.turn
        async with aclosing(events):
            async for event in events:
                data = event.data
                cards: Sequence[Mapping[str, Any]] = ()
                if event.type == "done":
                    run.done = data
                    continue
                if event.type == "turn":
                    turn.number = int(data.get("turn", 0))
                    if not run.started.done():
                        run.started.set_result(turn.number)
                    cards = tuple(turn.answer.get("toolCards", ()))
                    data = {**data, "attempt": turn.attempts} if turn.attempts > 1 else data
                run.note(event.type, data)
                hosted.log.add(event.type, data, turn.number)
                for card in cards:  # those of an earlier attempt: whoever listens has forgotten them with it
                    facts = {name: card[name] for name in card if name != "type"}
                    hosted.log.add(str(card["type"]), {**facts, "rebuilt": True}, turn.number)

    async def _finish(self, hosted: HostedSession, run: TurnRun) -> None:
        """Store how the turn ended, then say so: whoever has read the end need not ask again."""
        run.ending = True
        turn = run.turn
        run.gather()
        done = run.done or {"text": turn.answer.get("text", ""), "citations": [], "reason": turn.state}
        run.note("done", done)
        async with hosted.log.next_is_ours() as turn.last_event:
            if not await self._store_end(hosted, turn):
                run.cut = True
                self.runtime.spawn(self._let_go(hosted))
                return
            if hosted.current is run:
                hosted.current = None
            told = {**done, "state": turn.state, "messageId": turn.message_id}
            hosted.log.add("done", told, turn.number, is_reserved_for=True)

    # Tools that change while conversations are open

    def tell_of_tools(self, facts: Mapping[str, Any]) -> None:
        """Show in every open conversation that the tools have changed, or could not be built."""
        for hosted in list(self._hosted.values()):
            turn = hosted.session.turn.number if hosted.session.turn is not None else 0
            hosted.log.add("tools_changed", {**facts, "outdated": hosted.session.is_outdated}, turn)

    async def take_newest_tools(self, hosted: HostedSession) -> str:
        """Resume a conversation, which pins it to the newest tools; their version."""
        try:
            if hosted.voice is not None and await hosted.voice.take_newest_tools():
                return hosted.session.snapshot.version
            if hosted.current is not None:
                raise busy("The conversation is busy; try again when it has answered.")
            session = await self.runtime.resume_session(hosted.id, token=hosted.session.token)
        except StoreUnavailable:
            raise store_away() from None
        except SessionEnded:
            raise ended() from None
        return session.snapshot.version

    # What happens beside the turns

    async def _listen(self, hosted: HostedSession) -> None:
        async for event in hosted.session.events_queue.listen():
            turn = hosted.session.turn.number if hosted.session.turn is not None else 0
            taken = hosted.voice is not None and hosted.voice.take(event)
            if event.type == "envelope":
                if not taken:
                    self._begin_late(hosted, event)
            elif event.type in _PASSED_ON_UNCHANGED:
                hosted.log.add(event.type, event.data, turn)
        if hosted.session.is_forgotten and not hosted.ended:
            self.runtime.spawn(self._drop(hosted))  # not here: it ends the task that this is

    async def _drop(self, hosted: HostedSession) -> None:
        """The user was forgotten, perhaps by another process: nobody hears or says more, and nothing is kept of it here."""
        await self.end(hosted, delete=False)
        hosted.turns.clear()
        hosted.earlier.clear()

    def _begin_late(self, hosted: HostedSession, event: LateEnvelope) -> None:
        if self.draining and not event.data.get("known"):
            return  # it is delivered again by the process that has the session next
        self._spawn_late(hosted, self._tell_late(hosted, event))

    @staticmethod
    def _spawn_late(hosted: HostedSession, work: Coroutine[Any, Any, Any]) -> None:
        """Beside the turns, and part of the session: who stops the server waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        hosted.late.add(task)
        task.add_done_callback(hosted.late.discard)

    async def _tell_late(self, hosted: HostedSession, event: LateEnvelope) -> None:
        """The model learns what became of a call that it was already answered about, and may say something about it."""
        run = hosted.late_run(event.data)
        async with hosted.busy:
            if not await self._stays(hosted):
                return  # whoever has the session now learns of it, and reports it
            try:
                await self._tell_kept(hosted, run, event)
            finally:
                # It may have gone to another process meanwhile, and come back: what is on in it now is not known here.
                if hosted.voice is None and not hosted.is_trying and self._hosted.get(hosted.id, hosted) is hosted:
                    await self._free(hosted.id)

    async def _stays(self, hosted: HostedSession) -> bool:
        """Keep the session here for as long as something is written in it; False if another process has taken it."""
        try:
            await self.set_live(hosted, True)
        except SessionRefused:
            return False
        except StoreUnavailable as error:
            _log.warning("Another process may take session %s while something is written in it: %s", hosted.id, error)
        return True

    async def _tell_kept(self, hosted: HostedSession, run: TurnRun, event: LateEnvelope) -> None:
        owner = hosted.turn_of_open_card(event.data) if event.data.get("silent") else None
        if owner is not None and owner.state == "running":
            return  # the server ends and has cut it off: it is answered anew, and its calls meet their outcomes then
        if owner is not None:
            await self._settle_card(hosted, owner, event)
            return
        hosted.telling = run
        try:
            await self._tell_and_keep(hosted, run, event)
        finally:
            hosted.telling = None

    async def _tell_and_keep(self, hosted: HostedSession, run: TurnRun, event: LateEnvelope) -> None:
        try:
            await self._speak(hosted, run, self._agent.late(hosted.session, hosted.conversation, event))
        except Exception:  # noqa: BLE001  # nobody waits for it who could hear of it
            _log.exception("A late result could not be delivered")
        run.gather()
        if run.turn.answer or run.done is not None:  # else the model had heard of it before
            run.turn.state = "done"
            hosted.keep(run.turn)
            await self._finish_late(hosted, run)

    async def _settle_card(self, hosted: HostedSession, turn: StoredTurn, event: LateEnvelope) -> None:
        """A call that outlived its cancelled turn has ended: its card there gets the outcome, and is stored anew."""
        try:
            told = self._agent.late(hosted.session, hosted.conversation, event)
            await self._speak(hosted, TurnRun(turn, hosted.log.last), told)
        except Exception:  # noqa: BLE001  # nobody waits for it who could hear of it
            _log.exception("The outcome of a call could not be delivered")
        turn.last_event = hosted.log.last
        await self._store_end(hosted, turn)

    async def _store_end(self, hosted: HostedSession, turn: StoredTurn) -> bool:
        """Store the end of a turn before anybody hears of it. False if another process has the session: it answers the turn anew,
        and nobody is to hear of two ends."""
        try:
            await self.ends.store(hosted, turn)
        except Moved:
            return False
        return True

    async def _finish_late(self, hosted: HostedSession, run: TurnRun) -> None:
        done = run.done or {"text": run.turn.answer.get("text", ""), "citations": []}
        run.note("done", done)
        async with hosted.log.next_is_ours() as run.turn.last_event:
            if not await self._store_end(hosted, run.turn):
                return  # whoever has the session now tells it
            told = {**done, "late": True, "messageId": run.turn.message_id}
            hosted.log.add("done", told, run.turn.number, is_reserved_for=True)

    async def set_live(self, hosted: HostedSession, live: bool) -> None:
        """Something other than a turn begins or ends in the session, such as a voice conversation: it stays here meanwhile."""
        try:
            await self.conversations.set_live(hosted.id, live, owner=self.runtime.owner)
        except Moved:
            raise moved() from None

    def clear_live(self, hosted: HostedSession) -> None:
        """`set_live` for its end, where nobody can wait for it."""
        self._spawn_late(hosted, self._free(hosted.id))

    async def _free(self, session_id: str) -> None:
        try:
            await self.conversations.set_live(session_id, False, owner=self.runtime.owner)
        except Moved:
            return
        except StoreUnavailable as error:
            _log.warning("Other processes cannot take session %s yet: %s", session_id, error)
            self._unfreed.add(session_id)

    # Memory

    async def _watch(self) -> None:
        """Whoever listens to, or speaks in, a session that another process has taken is asked to connect again."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                unfreed, self._unfreed = self._unfreed, set()
                for session_id in unfreed:
                    hosted = self._hosted.get(session_id)
                    if hosted is None or hosted.voice is None:
                        await self._free(session_id)
                used = [one for one in self._hosted.values() if one.log.readers or one.voice is not None]
                owners = await self.conversations.owners([hosted.id for hosted in used]) if used else {}
                for hosted in used:
                    if owners.get(hosted.id, self.runtime.owner) != self.runtime.owner:
                        await self._let_go(hosted)
                await self._end_all_unused()
            except StoreUnavailable:
                continue  # it is not known now; the next look will tell
            except Exception:  # noqa: BLE001  # the next one may go better
                _log.exception("A round of the watch over sessions failed; it tries again in the next one")

    async def _sweep(self) -> None:
        """Idle sessions leave the memory, passing ones end, and old conversations are deleted."""
        for number in count():
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self._make_room(self.options.idle_seconds)
                if number % _SWEEPS_PER_HOUR == 0:
                    await self._forget_unused()
            except Exception:  # noqa: BLE001  # the next one may go better
                _log.exception("A sweep of idle sessions failed; it tries again in the next one")

    async def _forget_unused(self) -> None:
        """Delete old conversations and end their sessions, so that the store can free the space used by those too."""
        while gone := await self.conversations.prune(unused_for=self.options.keep_days * 86_400_000):
            self._unused += gone
        await self._end_all_unused()

    async def _end_all_unused(self) -> None:
        while self._unused:
            await self._end_unused(self._unused[-1])
            self._unused.pop()

    async def _end_unused(self, session_id: str) -> None:
        """Whoever came back since the conversation was deleted has a new one, and continues."""
        lock = self._loading.setdefault(session_id, asyncio.Lock())
        async with lock:
            session = await self.runtime.detached_session(session_id)
            if session is None or await self.conversations.load(session_id) is not None:
                return
            hosted = self._hosted.get(session_id)
            await (end_detached(self.runtime, session) if hosted is None else self.end(hosted, delete=False))

    async def _make_room(self, idle_seconds: float = 60.0) -> bool:
        """Let idle sessions go; whether there is room now."""
        now = monotonic()
        for hosted in [one for one in self._hosted.values() if one.is_idle]:
            idle = now - hosted.last_used
            if hosted.passing and idle > PASSING_SECONDS:
                await self.end(hosted)
            elif idle > idle_seconds:
                await self._let_go(hosted)
        return len(self._hosted) < self.options.max_sessions

    async def _let_go(self, hosted: HostedSession) -> None:
        """Forget a session here; it lives on in the store, and whoever asks for it next resumes it."""
        if self._hosted.get(hosted.id) is hosted:
            del self._hosted[hosted.id]
        await hosted.leave("reconnect")
        if hosted.current is not None and hosted.current.task is not None:  # it could no longer store how it ends
            hosted.current.cut = True
            await self._cancel([hosted.current.task])
        await self._stop_listening(hosted)
        if self.runtime.sessions.get(hosted.id) is hosted.session:
            await self.runtime.save(hosted.session)
            self.runtime.sessions.pop(hosted.id, None)
            self.runtime.left_session(hosted.session)

    async def _stop_listening(self, hosted: HostedSession) -> None:
        if hosted.listening is not None:
            hosted.listening.cancel()
            await asyncio.gather(hosted.listening, return_exceptions=True)


def _hosted_session(session: Session, stored: StoredConversation, *, is_remote: bool = False) -> HostedSession:
    before = max((turn.last_event for turn in stored.turns), default=0)
    hosted = HostedSession(session, Conversation.from_dict(stored.document), passing=stored.passing, before=before)
    hosted.is_remote, hosted.is_live = is_remote, is_remote and stored.live
    hosted.turns = {turn.message_id: turn for turn in stored.turns}
    hosted.shorten()
    return hosted


def _attributes_of(key: Key) -> dict[str, Any]:
    """What a key or a token says of the user of a session that is opened with it."""
    facts: dict[str, Any] = {"roles": list(key.roles)} if key.roles else {}
    return {**facts, "organisation": key.organisation} if key.organisation else facts

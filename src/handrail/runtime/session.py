"""A session: one conversation with one user, pinned to a snapshot; its connection to a model stream; and its events.

What happens beside the answers to calls reaches those who listen; what is dropped if nobody keeps up is decided here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from handrail.contract.call import Call, IdScope
from handrail.contract.definition import Mode
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.events import LateEnvelope, SessionEvent
from handrail.contract.store import AuditSubject, Hold
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.known_calls import CallIds, KnownCall, Replays
from handrail.runtime.plan import Plans
from handrail.runtime.policy import ModePolicy, Policy
from handrail.runtime.state import StateController
from handrail.runtime.turns import TURNS_COUNTED, TURNS_KEPT, TurnRecord
from handrail.schema.condition import user_facts

if TYPE_CHECKING:
    from handrail.registry.snapshot import Snapshot
    from handrail.runtime.client_port import ClientBridge
    from handrail.runtime.core import RuntimeCore

_HELD_MS = 60_000
"""So long after its time a request that was carried out is still held: clocks differ."""
MAX_WAITING = 1000
MAX_PROGRESS = 50
"""How many of those may report progress; only the newest matter."""
_DROPPED_FIRST = ("progress", "message", "intent", "connection_wanted")
"""What has to make room if too much waits; never a request or a result while any of these is there."""


class WaitingEvents(deque[SessionEvent]):
    """Events that nobody has taken yet, the oldest first."""

    def put(self, event: SessionEvent) -> None:
        self.append(event)
        if event.type == "progress" and sum(waiting.type == "progress" for waiting in self) > MAX_PROGRESS:
            self._drop("progress")
        if len(self) > MAX_WAITING:
            # What can be had again goes first; a request or a result only where there is nothing else.
            kinds = {waiting.type for waiting in self}
            self._drop(next((kind for kind in _DROPPED_FIRST if kind in kinds), self[0].type))

    def _drop(self, kind: str) -> None:
        """The oldest of this kind."""
        del self[next(place for place, event in enumerate(self) if event.type == kind)]


class Listener:
    """One who listens, from the moment on that it was made. Who does not keep up loses events, the least of them first."""

    __slots__ = ("closed", "waiting", "wake")

    def __init__(self) -> None:
        self.waiting = WaitingEvents()
        self.wake = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self.wake.set()


class Events:
    """The events of one session. What comes while nobody listens is kept for the first who does."""

    __slots__ = ("_listeners", "_waiting", "is_closed")

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._waiting: WaitingEvents | None = None
        self.is_closed = False

    def emit(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            listener.waiting.put(event)
            listener.wake.set()
        if not self._listeners:
            self._keep((event,))

    def waiting(self) -> tuple[SessionEvent, ...]:
        """What was kept because nobody listens, to be looked at; it is still there for whoever does."""
        return tuple(self._waiting or ())

    def close(self) -> None:
        self.is_closed = True
        for listener in self._listeners:
            listener.close()

    def attach(self) -> Listener:
        """A listener that hears what happens from now on, before anybody asks it."""
        listener = Listener()
        if self._waiting is not None:
            listener.waiting, self._waiting = self._waiting, None
        if self.is_closed:
            listener.close()
        self._listeners.append(listener)
        return listener

    def detach(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            if not self._listeners:
                self._keep(listener.waiting)

    async def listen(self, listener: Listener | None = None) -> AsyncGenerator[SessionEvent, None]:
        """Every event from now on, and those that waited; ends when the session does."""
        listener = listener or self.attach()
        try:
            while True:
                # Everything that waits is given before the end is looked at: what was emitted just before the close arrives
                # too.
                while listener.waiting:
                    yield listener.waiting.popleft()
                if listener.closed:
                    return
                # No await between the look above and this, so that no event can come unheard in between.
                listener.wake.clear()
                await listener.wake.wait()
        finally:
            self.detach(listener)

    def _keep(self, events: Iterable[SessionEvent]) -> None:
        if self._waiting is None:
            self._waiting = WaitingEvents()
        for event in events:
            self._waiting.put(event)


class Connection(int):
    """The number of the attachment, and the session as its stream has it.

    A stream keeps the one that it began on, `connection = session.connection`, and does everything through it. Once the session
    is resumed, that one is replaced: its calls are refused, it begins no turn, and it neither ends turns, interrupts nor closes.
    A `Session` speaks for whichever connection is current.
    """

    session: Session

    def __new__(cls, number: int, session: Session) -> Self:
        made = super().__new__(cls, number)
        made.session = session
        return made

    @property
    def is_current(self) -> bool:
        """Whether nobody has resumed the session since, here or in another process."""
        return self == self.session.connection and not self.session.is_taken_over

    def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        provider: str | None = None,
        id_scope: IdScope = "session",
        response_id: str | None = None,
    ) -> Coroutine[Any, Any, ToolResponse]:
        """One call of this stream's model; `CONFLICT` once the connection was replaced."""
        if provider.__class__ is str and provider not in self.session.core.provider_labels:
            self.session.core.check_provider(provider)
        call = Call(name, args, call_id, provider, id_scope, response_id, self)
        return self.session.core.pipeline.call(self.session, call)

    async def call_many(self, calls: Sequence[Call]) -> list[ToolResponse]:
        """The calls of one model message of this stream."""
        return await self.session.call_many([call._replace(connection=self) for call in calls])

    async def begin_turn(self, input_id: str | None = None) -> int:
        """A user's input was committed on this stream: the turn's number. Once replaced: the number of the turn that there is."""
        return await self.session.core.turns.begin(self.session, input_id, self)

    async def end_turn(self) -> None:
        """The model has finished answering. Nothing once replaced."""
        if self.is_current:
            self.session.core.turns.end(self.session)

    async def interrupt(self, call_ids: Collection[str] | None = None) -> None:
        """The user interrupted. Nothing once replaced."""
        if self.is_current:
            await self.session.core.interrupt(self.session, call_ids)

    async def close(self) -> None:
        """The stream is over and the session with it. Nothing once replaced: the session continues with the newer stream."""
        if self.is_current:
            await self.session.core.close_session(self.session)


_new = tuple.__new__  # a `Call` in half the time of calling it


class Session:
    """Made by `Runtime.open_session` and `Runtime.resume_session`."""

    __slots__ = (
        "_first",
        "attributes",
        "beginning",
        "calls_by_id",
        "clients",
        "connection",
        "core",
        "dirty",
        "events_queue",
        "hidden",
        "holds",
        "id",
        "interruptions",
        "is_forgotten",
        "is_taken_over",
        "last_used",
        "limits",
        "messages",
        "plans",
        "policy",
        "pseudonym",
        "replays",
        "roles",
        "running",
        "snapshot",
        "spent",
        "state",
        "subject",
        "tenant",
        "token",
        "turn",
        "turns",
        "user",
        "voice_open",
        "writes",
    )

    def __init__(
        self,
        core: RuntimeCore,
        *,
        id: str,
        token: str,
        user: str | None,
        tenant: str,
        attributes: Mapping[str, Any],
        state: StateController,
        snapshot: Snapshot,
        plans: Plans,
        policy: Policy,
        connection: int,
    ) -> None:
        self.core = core
        self.id = id
        self.token = token
        self.user = user
        self.tenant = tenant
        self.pseudonym: str | None = None
        """What the audit log calls the user."""
        self.subject: AuditSubject | None = None
        """Under what the user's words stand in the audit log; None: as they are."""
        self.attributes = attributes
        self.roles = roles_of(attributes)
        self.hidden: dict[str, frozenset[str]] = {}
        """By mode, the tools that are not offered; see `availability.hidden_tools`."""
        self.state = state
        self.snapshot = snapshot
        self.plans = plans
        self.policy = policy
        self.limits: ModePolicy = policy.for_mode(state.get("mode"))
        self.connection = Connection(connection, self)
        """The newest that this process knows of. A stream keeps the one that it began on, and calls through it."""
        self.is_taken_over = False
        """Another process has resumed the session. This object stays replaced for good; resuming here makes a new one."""
        self.turn: TurnRecord | None = None
        self.turns: dict[int, TurnRecord] = {}
        """Those entered last, the newest at the end."""
        self.spent: dict[int, tuple[int, int]] = {}
        """What turns before those have used up: a message that is sent again gets no second budget."""
        self.beginning = 0
        """How many turns are about to begin: which one the store has the session in is not known until it has answered."""
        self.replays = Replays(policy.replays)
        self.calls_by_id = CallIds()
        self.writes: dict[str, KnownCall] = {}
        """Executions by ledger key, in this process."""
        self.holds: dict[tuple[str, str], tuple[Hold, KnownCall]] = {}
        """Held calls by tool and all arguments, open or carried out."""
        self.running: dict[Attempt, asyncio.Task[Any] | None] = {}
        self.clients: dict[str | None, ClientBridge] | None = None
        """By the id of a call: the way to the client that made it, where its host has one."""
        self.events_queue = Events()
        self.is_forgotten = False
        """Its user was forgotten: nothing of it is kept."""
        self.voice_open = False
        """A voice connection is open for this session; set by the host that has it."""
        self.interruptions = 0
        self.messages = 0
        """Model messages with calls, as its agent counts them."""
        self._first: asyncio.Future[int] | None = None
        self.dirty = False
        self.last_used = perf_counter()

    mode = property(attrgetter("state.mode"))
    is_active = property(attrgetter("state.is_active"))
    switches = property(attrgetter("core.switches"))
    rates = property(attrgetter("core.rates"))

    def reattach(self, connection: int, snapshot: Snapshot, plans: Plans, policy: Policy) -> None:
        """Continue on the next connection, which replaces the one before; handlers that have started settle."""
        self.connection = Connection(connection, self)
        self.snapshot, self.plans, self.policy = snapshot, plans, policy
        self.hidden = {}
        self.limits = policy.for_mode(self.mode)
        self.writes = {
            key: entry for key, entry in self.writes.items() if entry.response is None
        }  # the store has the others
        for turn in self.turns.values():
            # The model of the new connection may know none of the old calls. `restore` puts back those that it says it knows.
            turn.remembered = {}
            turn.begin_again()

    @property
    def blocked_as(self) -> str:
        """Whom a block is about: the user, or this session alone where nobody is signed in."""
        return self.user if self.user is not None else f"(session) {self.id}"

    def blocked_for(self) -> float:
        """The seconds for which the user is still blocked; 0 if not."""
        blocks = self.core.blocks
        if not blocks:
            return 0.0
        until = blocks.get((self.tenant, self.blocked_as))
        return max(0.0, until / 1000 - self.core.clock.time()) if until else 0.0

    def facts(self) -> dict[str, Any]:
        """What conditions see."""
        return {
            "mode": self.mode,
            "user": user_facts(self.user, self.roles),
            "session": {**self.attributes, "id": self.id},
        }

    @property
    def is_outdated(self) -> bool:
        """Whether its tools were built again since, in development: it continues when it is resumed."""
        registry = self.core.registry
        return registry.environment == "development" and registry.version != self.snapshot.version

    async def begin_turn(self, input_id: str | None = None) -> int:
        """A user's input was committed: the turn's number. The same input sent again keeps its turn."""
        return await self.core.turns.begin(self, input_id, None)

    async def first_turn(self) -> TurnRecord:
        """The turn that a call opens if nobody has begun one; calls at the same time open one together."""
        if self._first is None:
            # One task for all calls that come before a turn was begun; shielded below, since each of them may be cancelled.
            self._first = asyncio.ensure_future(self.begin_turn())
        await asyncio.shield(self._first)
        assert self.turn is not None
        return self.turn

    async def end_turn(self) -> None:
        """The model has finished answering. Calls that still come belong to this turn."""
        self.core.turns.end(self)

    def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        provider: str | None = None,
        id_scope: IdScope = "session",
        response_id: str | None = None,
        connection: int | None = None,
    ) -> Coroutine[Any, Any, ToolResponse]:
        """One call of the model, through the pipeline. Every call is answered with an envelope. `connection` is the one that it
        came on; without it, the current one. `provider` names a provider or, as a label, something of the host's own;
        `UsageError` for a misspelt provider."""
        if provider.__class__ is str and provider not in self.core.provider_labels:
            self.core.check_provider(provider)
        facts = (name, args, call_id, provider, id_scope, response_id, connection or self.connection)
        return self.core.pipeline.call(self, _new(Call, facts))

    async def call_many(self, calls: Sequence[Call]) -> list[ToolResponse]:
        """The calls of one model message: read-only neighbours together, a writing one alone; answers in the order asked."""
        # Those that wait for others to end came on today's connection all the same.
        made = [call if call.connection else call._replace(connection=self.connection) for call in calls]
        for call in made:
            if call.provider.__class__ is str and call.provider not in self.core.provider_labels:
                self.core.check_provider(call.provider)
        if len(made) == 1:
            return [await self.core.pipeline.call(self, made[0])]
        return await self.core.pipeline.call_many(self, made)

    async def interrupt(self, call_ids: Collection[str] | None = None) -> None:
        """The user interrupted: calls that do not write are cancelled, writing ones that have started are finished.

        With `call_ids` only those that run under these ids are cancelled.
        """
        await self.core.interrupt(self, call_ids)

    async def events(self) -> AsyncGenerator[SessionEvent, None]:
        """What happens beside the answers to calls. A late envelope that is taken from here counts as given to the model; a host
        that gives it later listens to `events_queue` itself and says so by `outcome_delivered`."""
        async with aclosing(self.events_queue.listen()) as events:
            async for event in events:
                if isinstance(event, LateEnvelope) and event.confirmation_id is not None:
                    await self.outcome_delivered(event.confirmation_id)
                yield event

    async def outcome_delivered(self, confirmation_id: str, *, turn: int | None = None) -> None:
        """The model was given the outcome of a held call, in the current turn if none is named. From the user's next turn on an
        identical call is a new wish, and a person is asked anew."""
        number = turn if turn is not None else self.turn.number if self.turn is not None else 0
        await self.core.confirmations.outcome_delivered(confirmation_id, number)

    async def set_mode(self, mode: Mode) -> None:
        """Hand the session over to the other mode."""
        if mode not in ("text", "voice"):
            raise UsageError(f'"{mode}" is not a mode; choose "text" or "voice".')
        self.state.set("mode", mode)
        self.limits = self.policy.for_mode(mode)
        await self.core.save(self)

    async def close(self) -> None:
        """End the session. Calls that run settle; later ones are refused. A stream that cleans up after itself closes its
        connection instead: if that was replaced, the session continues with the newer one."""
        await self.core.close_session(self)

    def enter_turn(self, number: int, started: float) -> TurnRecord:
        """The turn of this number. Those entered last are remembered whole, and of many more what they have spent. Of the calls
        before a new turn only that is held which the store does not have."""
        turn = self.turns.pop(number, None)
        if turn is None:
            turn = TurnRecord(number, started)
            turn.retrieval_used, turn.total_used = self.spent.pop(number, (0, 0))
            self.drop_turns(TURNS_KEPT - 1)
            # Executions are found by keys that name their turn, so those of older turns cannot be asked for by key again.
            self.writes = {key: entry for key, entry in self.writes.items() if entry.response is None}
            now = self.core.clock.time() * 1000
            self.holds = {
                pair: (hold, entry)
                for pair, (hold, entry) in self.holds.items()
                if entry.response is None or hold.expires_at + _HELD_MS > now
            }
            needed = {entry for _, entry in self.holds.values()}
            unstored = self.core.own_claims.unstored
            if unstored:
                needed |= {entry for entry in self.calls_by_id.whole() if entry.ledger_key in unstored}
            ids = {call_id for session_id, call_id in self.core.aliases.unstored if session_id == self.id}
            self.calls_by_id.trim(needed, ids)
        self.turn = self.turns[number] = turn
        return turn

    def drop_turns(self, max_turns: int) -> None:
        """Of turns beyond `max_turns` only what they have spent is remembered."""
        while len(self.turns) > max_turns:
            old = self.turns.pop(next(iter(self.turns)))
            self.spent[old.number] = old.retrieval_used, old.total_used
        while len(self.spent) > TURNS_COUNTED:
            del self.spent[next(iter(self.spent))]

    def next_number(self) -> int:
        """Of a turn that the store has not been told of."""
        return max((*self.turns, *self.spent), default=0) + 1

    def stored_turn(self, turn: TurnRecord, counters: Mapping[str, Any]) -> TurnRecord:
        """The same turn as far as it was when its input came again while the store was away; `counters` are the store's."""
        before = TurnRecord(turn.number, turn.started)
        before.retrieval_used, before.total_used = self.spent.pop(turn.number, (0, 0))
        before.restore(counters)
        return before

    def fields(self) -> dict[str, Any]:
        """What the store keeps of it beside its calls."""
        fields = {
            "mode": self.mode,
            "active": self.is_active,
            "state": self.state.snapshot(),
            "left": self.unstored_counters(),
        }
        # Otherwise these counters might be stored for a turn that the store has left, or does not know.
        if self.turn is None or not self.turn.stored or self.beginning:
            return fields
        return {**fields, "counters": self.turn.counters(), "current_turn": self.turn.number}

    def unstored_counters(self) -> dict[int, dict[str, Any]]:
        """Counters of the turns that were left, where the store does not have them."""
        return {turn.number: turn.counters() for turn in self.unstored_turns()}

    def unstored_turns(self) -> list[TurnRecord]:
        """Turns that were left while the store was away, or in which calls that were under way were counted since."""
        late = [
            turn for turn in self.turns.values() if not turn.is_stored_as_left or turn.total_used != turn.total_stored
        ]
        return [turn for turn in late if turn.stored and turn is not self.turn]

    def counted(self, turn: TurnRecord) -> None:
        """Something was counted in `turn`, perhaps late: it may have been left."""
        turn.is_stored_as_left = False
        self.dirty = True


def roles_of(attributes: Mapping[str, Any]) -> frozenset[str]:
    """The roles that the host gives a session's user: the attribute `roles`."""
    given = attributes.get("roles", ())
    if not isinstance(given, (list, tuple, set, frozenset)) or not all(isinstance(role, str) for role in given):
        raise UsageError(f'The attribute "roles" of a session must be a list of names; {given!r} is not.')
    return frozenset(given)


class Client:
    """A user's page that is attached to a session. It hears what happens from the moment of its attachment on."""

    __slots__ = ("_core", "_events", "_listener", "session_id")

    def __init__(self, core: RuntimeCore, session_id: str, events: Events) -> None:
        self._core = core
        self._events = events
        self._listener = events.attach()
        self.session_id = session_id

    def events(self) -> AsyncIterator[SessionEvent]:
        return self._events.listen(self._listener)

    async def approve(self, confirmation_id: str, *, token: str) -> ToolResponse:
        return await self._core.approve(confirmation_id, token=token)

    async def decline(self, confirmation_id: str, *, token: str) -> ToolResponse:
        return await self._core.decline(confirmation_id, token=token)

    def close(self) -> None:
        """The page is gone."""
        self._events.detach(self._listener)

"""Whatever happens, in whatever order: the promises of docs/guarantees.md, searched for a counterexample.

Hypothesis plays users, models, operators and a failing machine against a runtime in memory, on virtual time. A crash drops
the runtime at a named point or between calls, without a goodbye; its owner's lock is gone, and another one takes over.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import jsonschema_rs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.runtime.bank import SENSITIVE, Book, built_once, meanwhile
from tests.runtime.kit import AtOnce, CrashSwitch

from handrail import Call, Registry, Runtime, Session, ToolError, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import Block
from handrail.observe.audit import AuditLog
from handrail.stores import MemoryStore
from handrail.testing import CrashAt, Crashed, VirtualClock, settle
from handrail.testing.crash import POINTS

T = TypeVar("T")
ENVELOPE = jsonschema_rs.validator_for(
    json.loads((files("handrail") / "schemas" / "envelope.json").read_text("utf-8")), validate_formats=True
)
UNSAFE = ("write_note", *SENSITIVE)
LIMITS = {"text": (5, None), "voice": (2, 3)}
ANSWERS = ("execution", "refusal", "replay", "held")
WHERE: ContextVar[tuple[str, int] | None] = ContextVar("where", default=None)
"""The session and turn that a call is made in; None for what an approval runs."""

reads = st.builds(Call, name=st.just("read_mail"), args=st.sampled_from([{"folder": name} for name in "abcdefgh"]))
writes = st.builds(
    Call, name=st.sampled_from(["write_note", "touch_note"]), args=st.sampled_from([{"text": "x"}, {"text": "y"}])
)
wishes = st.builds(
    Call, name=st.just("transfer_money"), args=st.sampled_from([{"to": "bob", "amount": n} for n in (1, 2)])
)
nonsense = st.builds(
    Call,
    name=st.sampled_from(["read_mail", "write_note", "transfer_money", "approve", ""]),
    args=st.sampled_from([{}, {"text": 1}, "{", None, [], {"folder": "a", "approved": True}]),
)
any_call = st.one_of(reads, writes, writes, wishes, wishes, nonsense)
scopes = st.sampled_from(["session", "session", "session", "connection", "message", "none"])


@dataclass
class KnownSession:
    """What the test knows of one session."""

    session: Session
    mode: str
    user: str
    closed: bool = False
    turn: int = 0
    ids: dict[str, Call] = field(default_factory=dict)
    """Ids that were used, and for which call."""
    outcomes: dict[str, ToolResponse] = field(default_factory=dict)
    """The first envelope of each id whose handler ran."""

    def forget_reads(self) -> None:
        self.outcomes = {name: kept for name, kept in self.outcomes.items() if self.ids[name].name != "read_mail"}


class Guarantees(RuleBasedStateMachine):
    """The rules are what may happen; the invariants are what may not."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(AtOnce())
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock.milliseconds)
        self.audit = AuditLog(None, max_pending=100_000)
        self.book = Book()
        self.registry = Registry.load(folder / "tool_registry.json")
        self.known_sessions: list[KnownSession] = []
        self.secrets: dict[str, str] = {}
        """Requests for a confirmation, and the newest secret of each."""
        self.approved: set[str] = set()
        self.spent: Counter[tuple[str, int, str]] = Counter()
        self.forgotten: set[tuple[str, int]] = set()
        """Turns whose counters may be stale after a crash."""
        self.seen = 0
        self.number = 0
        self.fail_with: ErrorType | None = None
        self.runtime = self._runtime()
        for tool in ("read_mail", "write_note", "touch_note", "transfer_money"):
            self.book.acts[tool] = self._act

    def _runtime(self) -> Runtime:
        runtime = Runtime(
            self.registry,
            store=self.store,
            clock=self.clock,
            audit=self.audit,
            capabilities={"book": self.book},
            # Loops have tests of their own; here they would only end most conversations early.
            policy={"refusals": 1_000, "identical_calls": 20},
            crash=CrashSwitch(),
        )
        self.run(runtime.open())
        return runtime

    async def _act(self, ctx: Any, args: Any) -> Any:
        where = WHERE.get()
        if where is not None and where not in self.forgotten:
            self.spent[(*where, "retrieval" if ctx.tool.id == "read_mail" else "other")] += 1
        receipt = len(self.book.starts)
        await asyncio.sleep(0)
        if self.fail_with is not None:
            raise ToolError(self.fail_with, "It did not work.", retryable=False)
        return {"ok": True, "data": {"receipt": receipt, "results": [receipt]}}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(meanwhile(self.clock, work))

    def teardown(self) -> None:
        self.run(self.runtime.close())
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
            with suppress(asyncio.CancelledError, Crashed):
                self.run(_wait_for(task))
        self.loop.close()

    # Users and connections

    @initialize(mode=st.sampled_from(["text", "voice"]))
    def begin(self, mode: str) -> None:
        self.open_session(mode, "ana")

    @rule(mode=st.sampled_from(["text", "voice"]), user=st.sampled_from(["ana", "ben"]))
    def open_session(self, mode: str, user: str) -> None:
        if len(self.known_sessions) < 3:
            session = self.run(self.runtime.open_session(mode=mode, user=user))
            self.known_sessions.append(KnownSession(session, mode, user))

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data(), remembers=st.booleans())
    def resume(self, data: st.DataObject, remembers: bool) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        if not known.closed:
            self._resume(known, list(known.ids) if remembers else None)

    def _resume(self, known: KnownSession, remembered: list[str] | None = None) -> None:
        old = known.session
        self._hear(known)
        known.session = self.run(self.runtime.resume_session(old.id, token=old.token, restored_calls=remembered))
        self._hear(known)

    @precondition(lambda self: len(self.known_sessions) > 1)
    @rule(data=st.data(), really=st.integers(0, 3))
    def close_session(self, data: st.DataObject, really: int) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        if not known.closed and not really:
            self.run(known.session.close())
            known.closed = True

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data(), message=st.sampled_from(["m1", "m2", "m3", None]))
    def begin_turn(self, data: st.DataObject, message: str | None) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        if not known.closed:
            known.turn = self.run(known.session.begin_turn(message))

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        self.run(data.draw(st.sampled_from(self.known_sessions)).session.interrupt())

    # The model

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data(), call=any_call, scope=scopes)
    def call(self, data: st.DataObject, call: Call, scope: str) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        self._together(known, [self._with_id(data, known, call, scope)])

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data(), calls=st.lists(any_call, min_size=2, max_size=6), scope=scopes)
    def message_of_several_calls(self, data: st.DataObject, calls: list[Call], scope: str) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        self._many(known, [self._with_id(data, known, call, scope) for call in calls])

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data(), call=any_call, scope=scopes, times=st.integers(2, 8), same_id=st.booleans())
    def the_same_call_many_times_at_once(
        self, data: st.DataObject, call: Call, scope: str, times: int, same_id: bool
    ) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        first = self._with_id(data, known, call, scope)
        calls = [first if same_id else self._with_id(data, known, call, scope) for _ in range(times)]
        self._together(known, calls)

    @precondition(lambda self: self.known_sessions)
    @rule(data=st.data(), calls=st.lists(reads, min_size=4, max_size=10))
    def reads_at_once(self, data: st.DataObject, calls: list[Call]) -> None:
        known = data.draw(st.sampled_from(self.known_sessions))
        self._together(known, [self._fresh(known, call, "session") for call in calls])

    @precondition(lambda self: any(known.ids for known in self.known_sessions))
    @rule(data=st.data(), again=st.integers(1, 3))
    def deliver_again(self, data: st.DataObject, again: int) -> None:
        known = data.draw(st.sampled_from([known for known in self.known_sessions if known.ids]))
        call = known.ids[data.draw(st.sampled_from(sorted(known.ids)))]
        self._together(known, [call] * again)

    @precondition(lambda self: any(known.outcomes for known in self.known_sessions))
    @rule(data=st.data())
    def use_an_id_for_something_else(self, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from([known for known in self.known_sessions if known.outcomes]))
        call_id = data.draw(st.sampled_from(sorted(known.outcomes)))
        starts = len(self.book.starts)

        answer = self._ask(known, [known.ids[call_id]._replace(name="write_note", args={"text": "another"})])[0]

        assert not answer.ok
        assert len(self.book.starts) == starts

    @rule(failure=st.sampled_from([None, None, ErrorType.TRANSIENT, ErrorType.PERMANENT]))
    def the_service_behind_changes_its_mood(self, failure: ErrorType | None) -> None:
        self.fail_with = failure

    # People

    @precondition(lambda self: self.secrets)
    @rule(data=st.data(), times=st.sampled_from([1, 1, 2, 5]))
    def approve(self, data: st.DataObject, times: int) -> None:
        request = data.draw(st.sampled_from(list(self.secrets)))
        self.approved.add(request)
        answers = self.run(_gather(self.runtime.approve(request, token=self.secrets[request]) for _ in range(times)))
        for answer in answers:
            self._valid(answer)

    @precondition(lambda self: any(not known.closed for known in self.known_sessions))
    @rule(data=st.data(), amount=st.integers(1, 50), times=st.sampled_from([1, 3]), again=st.booleans())
    def ask_and_approve(self, data: st.DataObject, amount: int, times: int, again: bool) -> None:
        known = data.draw(st.sampled_from([known for known in self.known_sessions if not known.closed]))
        call = self._fresh(known, Call(name="transfer_money", args={"to": "bob", "amount": amount}), "session")
        answer = self._ask(known, [call])[0]
        self._note(known, [call], [answer])
        if answer.error is None or answer.error.confirmation_request is None:
            return
        request = answer.error.confirmation_request["id"]
        self.approved.add(request)
        work = [self.runtime.approve(request, token=self.secrets[request]) for _ in range(times)]
        outcomes = [_essence(outcome) for outcome in self.run(_gather(work))]
        assert all(outcome == outcomes[0] for outcome in outcomes)
        if again:
            self._together(known, [call, self._fresh(known, call, "session")])

    @precondition(lambda self: len(self.secrets) > 1)
    @rule(data=st.data())
    def approve_with_the_secret_of_another(self, data: st.DataObject) -> None:
        one, other = data.draw(st.lists(st.sampled_from(list(self.secrets)), min_size=2, max_size=2, unique=True))
        starts = len(self.book.of(*SENSITIVE))

        answer = self.run(self.runtime.approve(one, token=self.secrets[other]))

        assert answer.error is not None
        assert answer.error.type == "NOT_FOUND"
        assert len(self.book.of(*SENSITIVE)) == starts

    @precondition(lambda self: self.secrets)
    @rule(data=st.data())
    def decline(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.secrets)))
        self._valid(self.run(self.runtime.decline(request, token=self.secrets[request])))

    # Operators and time

    @rule(seconds=st.sampled_from([0.3, 1, 20, 61, 301]))
    def time_passes(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))
        for known in self.known_sessions:
            self._hear(known)

    @rule(tool=st.sampled_from(["read_mail", "write_note", "transfer_money"]))
    def switch_off(self, tool: str) -> None:
        self.run(self.store.switch(tool, "under repair"))

    @rule(seconds=st.sampled_from([0, 1]))
    def switch_everything_on(self, seconds: float) -> None:
        for tool in ("read_mail", "write_note", "transfer_money"):
            self.run(self.store.switch(tool, None))
        self.run(self.clock.advance(seconds))

    @rule(user=st.sampled_from(["ana", "ben"]))
    def block(self, user: str) -> None:
        self.run(self.store.block(Block(tenant="", user=user, until=self.clock.milliseconds() + 2_000)))

    @rule(later=st.sampled_from([0, 1, 20]))
    def crash(self, later: float) -> None:
        """The process is gone, and another takes its sessions over: at once, or when leases have ended."""
        housekeeper = self.runtime._housekeeper
        assert housekeeper is not None
        housekeeper.cancel()
        self.run(self.store.release_owner(self.runtime.owner))
        self.run(self.clock.advance(later))
        self.runtime = self._runtime()
        for known in self.known_sessions:
            self._hear(known)
            self.forgotten |= {(known.session.id, turn) for turn in range(known.turn + 1)}
            known.forget_reads()  # they were remembered by the process alone
            if not known.closed:
                self._resume(known)

    @precondition(lambda self: any(not known.closed for known in self.known_sessions))
    @rule(data=st.data(), call=writes, point=st.sampled_from(POINTS), later=st.sampled_from([0, 20]))
    def crash_during_a_call(self, data: st.DataObject, call: Call, point: str, later: float) -> None:
        known = data.draw(st.sampled_from([known for known in self.known_sessions if not known.closed]))
        self.runtime.crash.hook = CrashAt(point)
        try:
            self._ask(known, [self._fresh(known, call, "session")])
        except Crashed:
            self.crash(later)
        else:
            self.runtime.crash.hook = None

    @precondition(lambda self: self.secrets)
    @rule(data=st.data(), point=st.sampled_from(POINTS), later=st.sampled_from([0, 20]))
    def crash_during_an_approval(self, data: st.DataObject, point: str, later: float) -> None:
        request = data.draw(st.sampled_from(list(self.secrets)))
        self.approved.add(request)
        self.runtime.crash.hook = CrashAt(point)
        try:
            self.run(self.runtime.approve(request, token=self.secrets[request]))
        except Crashed:
            self.crash(later)
        else:
            self.runtime.crash.hook = None

    # What is checked of every answer

    def _fresh(self, known: KnownSession, call: Call, scope: str) -> Call:
        self.number += 1
        call = call._replace(call_id=f"call_{self.number}", id_scope=scope)
        if scope == "session":
            known.ids[str(call.call_id)] = call
        return call

    def _with_id(self, data: st.DataObject, known: KnownSession, call: Call, scope: str) -> Call:
        return call if data.draw(st.integers(0, 3)) == 0 else self._fresh(known, call, scope)

    def _together(self, known: KnownSession, calls: list[Call]) -> None:
        self._note(known, calls, self._ask(known, calls))

    def _many(self, known: KnownSession, calls: list[Call]) -> None:
        WHERE.set((known.session.id, self._turn_of(known)))
        before = len(self.audit.events)
        answers = self.run(known.session.call_many(calls))
        WHERE.set(None)
        self._audited(calls, before)
        self._note(known, calls, answers)

    def _ask(self, known: KnownSession, calls: list[Call]) -> list[ToolResponse]:
        WHERE.set((known.session.id, self._turn_of(known)))
        before = len(self.audit.events)
        try:
            answers = self.run(
                _gather(
                    known.session.call(call.name, call.args, call_id=call.call_id, id_scope=call.id_scope)
                    for call in calls
                )
            )
        finally:
            WHERE.set(None)
        self._audited(calls, before)
        return answers

    def _turn_of(self, known: KnownSession) -> int:
        if known.session.turn is None and not known.closed:
            self.run(known.session.begin_turn())
        known.turn = known.session.turn.number if known.session.turn is not None else 0
        return known.turn

    def _audited(self, calls: list[Call], before: int) -> None:
        """Every answer has a line of its own that names the call."""
        lines = Counter(line.get("callId") for line in self.audit.events[before:] if line["event"] in ANSWERS)
        for call_id, times in Counter(call.call_id for call in calls).items():
            assert lines[call_id] >= times, f"{times} answers to {call_id!r}, {lines[call_id]} audit lines"

    def _note(self, known: KnownSession, calls: list[Call], answers: list[ToolResponse]) -> None:
        self._hear(known)
        for call, answer in zip(calls, answers, strict=True):
            self._valid(answer)
            if call.call_id not in known.ids or call.id_scope != "session":
                continue
            first = known.outcomes.get(call.call_id)
            if first is not None:
                assert _essence(answer) == _essence(first), f"the replay of {call.call_id} differs"
                assert answer.meta["replayed"] is True
            elif answer.ok:
                known.outcomes[call.call_id] = answer

    def _valid(self, answer: ToolResponse) -> None:
        wire = json.loads(json.dumps(answer.to_dict()))
        problems = [error.message for error in ENVELOPE.iter_errors(wire)]
        assert not problems, (problems, wire)

    def _hear(self, known: KnownSession) -> None:
        for event in self.run(_heard(known.session)):
            if event.type == "confirmation":
                self.secrets[event.data["id"]] = event.data["token"]

    # What never happens

    @invariant()
    def no_unsafe_handler_starts_twice_for_a_key(self) -> None:
        starts = Counter(key for tool, _, key in self.book.starts if tool in UNSAFE)
        assert all(times == 1 for times in starts.values()), starts

    @invariant()
    def no_budget_is_overrun(self) -> None:
        modes = {known.session.id: known.mode for known in self.known_sessions}
        totals: dict[tuple[str, int], int] = defaultdict(int)
        for (session, turn, what), used in self.spent.items():
            retrieval, total = LIMITS[modes[session]]
            if (session, turn) in self.forgotten:
                continue
            totals[session, turn] += used
            if what == "retrieval":
                assert used <= retrieval, f"{used} retrieval calls in turn {turn} of {modes[session]}"
            assert total is None or totals[session, turn] <= total

    @invariant()
    def nothing_runs_without_an_approval_and_each_is_used_once(self) -> None:
        assert len(self.book.of(*SENSITIVE)) <= len(self.approved)


def _essence(answer: ToolResponse) -> Any:
    wire = answer.to_dict()
    return wire["ok"], wire.get("data"), wire.get("error"), wire["intents"]


async def _gather(work: Any) -> list[Any]:
    return list(await asyncio.gather(*work))


async def _heard(session: Session) -> list[Any]:
    """What waits for the user's page right now."""
    heard: list[Any] = []

    async def listen() -> None:
        async for event in session.events():
            heard.append(event)

    task = asyncio.ensure_future(listen())
    await settle(5)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return heard


async def _wait_for(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])


def test_the_guarantees_hold_whatever_happens() -> None:
    profile = settings(settings.default, max_examples=settings.default.max_examples * 3 // 5, stateful_step_count=40)
    run_state_machine_as_test(lambda: Guarantees(built_once()), settings=profile)

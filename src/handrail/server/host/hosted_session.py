"""A hosted session: one session that is open in this process, with its conversation, its events and the turn that runs.

Events are numbered, kept for a while, and read by any number of streams. Numbers only grow, also over restarts of the server: a
session has a new connection number in each process, and that stands in front. A reader that was away says the last number it has
seen and gets what came after it; where that is no longer kept, it learns so once, and fetches the session's state.

What people are shown of a turn is put together here from the agent's events: the text, a card for each call, citations. It is
what a page gets after a reload, and what events are rebuilt from after a restart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal, Protocol

from handrail.agents import Conversation
from handrail.contract.conversations import MAX_TURNS, StoredTurn
from handrail.contract.errors import ErrorType
from handrail.contract.events import SessionEvent
from handrail.contract.model import ToolMessage
from handrail.runtime.session import Session
from handrail.server.wire import frame, notice, to_json, without_detail

LATE = "~late:"
"""Begins the id of what the model said about a late envelope; no client may choose such an id."""
OWN_IDS = "voice:"
"""Begins the ids of spoken input, which the server gives; a client's id that began so would be taken for that input."""
MAX_CARDS = 64
MAX_CARD_BYTES = 16 * 1024
MAX_SHOWN_BYTES = 1024 * 1024
"""Of all turns that a session shows."""

SPAN = 10_000_000
"""How many numbers belong to one connection of a session."""
MAX_EVENTS = 2_000
MAX_BYTES = 1024 * 1024
"""Of the events that are kept."""
# Refusals which do not say that nothing ran: another delivery of the same call may be at work, or its outcome unrecorded.
_UNCERTAIN = (ErrorType.STORE_UNAVAILABLE, ErrorType.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event as it is sent. `seen_by` is the number that it had before a restart, for events that were rebuilt; `detailed` is
    the event for operators, where they see more."""

    number: int
    type: str
    turn: int
    data: bytes
    seen_by: int = 0
    detailed: bytes | None = None


class EventLog:
    """What happened in a session lately. `before` is the last number that is known from an earlier process."""

    __slots__ = ("_bytes", "_ending", "_held", "before", "kept", "last", "readers", "start")

    def __init__(self, connection: int, before: int = 0) -> None:
        self.start = connection * SPAN
        self.before = before
        self.kept: deque[LoggedEvent] = deque()
        self._bytes = 0
        self.readers: set[EventReader] = set()
        self._ending = asyncio.Lock()
        self._held: list[tuple[str, Mapping[str, Any], int]] | None = None
        self.last = self.start

    @asynccontextmanager
    async def next_is_ours(self) -> AsyncIterator[int]:
        """The number that the next event will have. What others tell meanwhile waits until after the block, so that the number
        may be written down before the event is sent."""
        async with self._ending:
            held = self._held = []
            try:
                yield self.last + 1
            finally:
                self._held = None
                for name, data, turn in held:
                    self.add(name, data, turn)

    def add(
        self, type: str, data: Mapping[str, Any], turn: int, *, seen_by: int = 0, is_reserved_for: bool = False
    ) -> None:
        """Append an event of a turn and wake whoever waits for it. It waits itself while the next number is reserved, unless that
        `is_reserved_for` this event."""
        if self._held is not None and not is_reserved_for:
            self._held.append((type, data, turn))
            return
        self.last += 1
        data, detailed = {"turn": turn, **data}, None
        if type == "error" and "detail" in data:
            detailed, data = frame(self.last, type, data), without_detail(type, data)
        kept = LoggedEvent(self.last, type, turn, frame(self.last, type, data), seen_by, detailed)
        self.kept.append(kept)
        self._bytes += len(kept.data)
        # The newest stays however large it is: a reader that waits is to get it, and not a gap.
        while len(self.kept) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self.kept) > 1):
            self._bytes -= len(self.kept.popleft().data)
        for reader in self.readers:
            reader.wake.set()

    def reader(self, after: int | None, *, stays: bool = False, detailed: bool = False) -> EventReader:
        """Somebody who reads from after this number on; None means from now on. One who `stays` is not sent away by a
        restart that is to come: it waits for the end of a turn. `detailed`: an operator, who sees everything."""
        made = EventReader(self, self.last if after is None else after, stays=stays, detailed=detailed)
        self.readers.add(made)
        return made

    def end(self, why: str) -> None:
        """Tell every reader to connect again (`reconnect`) or not (`closed`), and let them go."""
        for reader in list(self.readers):
            if not reader.stays or why != "reconnect":
                reader.end(why)


@dataclass(slots=True, eq=False)
class EventReader:
    """A place in a log. One task at a time waits at it."""

    _log: EventLog
    _at: int
    stays: bool = field(kw_only=True)
    detailed: bool = field(kw_only=True)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    farewell: str | None = None

    def end(self, why: str) -> None:
        self.farewell = why
        self.wake.set()

    async def batch(self, seconds: float) -> list[LoggedEvent] | None:
        """What came since; an empty list if nothing did within `seconds`, None when the reading is over."""
        if self._at == self._log.last and self.farewell is None:
            try:
                async with asyncio.timeout(seconds):
                    await self.wake.wait()
            except TimeoutError:
                return []
        self.wake.clear()
        number, log = self._at, self._log
        self._at = log.last
        first = log.kept[0].number if log.kept else log.last + 1
        # Something after the number is no longer kept, or it is none of ours.
        # A number above the last is of another log, such as that of a store that was put back to an earlier state.
        lacking = number > log.last or number < log.before or max(number, log.start) < first - 1
        if number < first:  # a reader that has seen the events that were rebuilt does not get them again
            events = [one for one in log.kept if not one.seen_by or number < one.seen_by]
        else:
            events = [log.kept[index] for index in range(number - first + 1, len(log.kept))]
        if self.detailed:
            events = [one if one.detailed is None else replace(one, data=one.detailed) for one in events]
        if lacking:
            events.insert(0, LoggedEvent(0, "resync", 0, notice("resync", {"lastEventId": self._at})))
        if not events and self.farewell is not None:
            return None
        return events

    def close(self) -> None:
        self._log.readers.discard(self)


@dataclass(slots=True, eq=False)
class TurnRun:
    """A turn that runs, or ran in this process."""

    turn: StoredTurn
    which: int
    """The number of the last event before this run: where a stream of it begins."""
    fresh: bool = True
    begun: set[tuple[str, str | Literal[True] | None]] = field(default_factory=set)
    """Tools whose calls may have begun, with the call's id while it is open, or True if it waits for a person."""
    cancelled: bool = False
    ending: bool = False
    """Its end is being stored; from here on it can no longer be cancelled."""
    cut: bool = False
    """The server ends; the turn is not over, and is answered anew after the start."""
    pieces: list[str] = field(default_factory=list)
    """Text that was sent and is not yet part of what people are shown: put together when somebody looks."""
    done: Mapping[str, Any] | None = None
    """The agent's last event, kept back until the turn is stored."""
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    task: asyncio.Task[None] | None = None

    def note(self, type: str, data: Mapping[str, Any]) -> None:
        """Put what happened into what people are shown."""
        answer = self.turn.answer
        if type == "text":
            self.pieces.append(str(data.get("text", "")))
        elif type in ("tool_started", "tool_finished", "tool_refused"):
            # A call's card is what was last said about it. What is too large for a page is left out, and said to be.
            card = {**data, "type": type}
            if len(to_json(card)) > MAX_CARD_BYTES:
                card = _bare_card(card)
            cards: list[dict[str, Any]] = answer.setdefault("toolCards", [])
            known = next((index for index, one in enumerate(cards) if _same(one, card)), None)
            if known is not None:
                cards[known] = {**cards[known], **card}
            elif len(cards) < MAX_CARDS:
                cards.append(card)
            tool, name = str(data.get("toolId")), data.get("callId")
            if type == "tool_started":
                self.begun.add((tool, name))
                return
            refused = type == "tool_refused" and (data.get("error") or {}).get("type") not in _UNCERTAIN
            if name is not None:  # without an id it may be another call that this is about
                self.begun.discard((tool, name))
            if not refused:
                self.begun.add((tool, True if data.get("held") else None))
        elif type == "error":
            answer["error"] = dict(data)
        elif type == "done":
            self.gather()
            answer["text"] = data.get("text", answer.get("text", ""))
            answer["citations"] = list(data.get("citations") or ())
            answer["usage"] = data.get("usage")
            answer["reason"] = data.get("reason")

    def may_have_written(self, session: Session) -> bool:
        """Whether a call of the turn may have had an effect, or may still have one when a person approves it."""
        for tool, name in self.begun:
            plan = session.plans[tool] if isinstance(tool, str) else None
            if name is True or (plan is not None and plan.writes):
                return True
        return False

    def gather(self) -> None:
        """Put the text together as far as it was sent."""
        if self.pieces:
            told, self.pieces = "".join(self.pieces), []
            self.turn.answer["text"] = self.turn.answer.get("text", "") + told


class VoicePort(Protocol):
    """The voice conversation that is on in a session, as its hosted session sees it."""

    def take(self, event: SessionEvent) -> bool: ...
    async def say(self, message_id: str, text: str) -> TurnRun | None: ...
    async def interrupt(self) -> bool: ...
    async def take_newest_tools(self) -> bool: ...
    async def leave(self, why: str) -> None: ...


class HostedSession:
    """See the module's docstring."""

    __slots__ = (
        "_sizes",
        "asked_at",
        "busy",
        "conversation",
        "current",
        "earlier",
        "ended",
        "id",
        "is_live",
        "is_remote",
        "is_trying",
        "last_used",
        "late",
        "listening",
        "log",
        "passing",
        "session",
        "telling",
        "turns",
        "unanswered_at",
        "voice",
    )

    def __init__(self, session: Session, conversation: Conversation, *, passing: bool, before: int = 0) -> None:
        self.session = session
        self.id = session.id
        self.conversation = conversation
        self.passing = passing
        """Made for one request: it ends by itself when nobody continues with it."""
        self.log = EventLog(session.connection, before)
        self.turns: dict[str, StoredTurn] = {}
        """Those that are shown."""
        self.earlier: dict[str, StoredTurn] = {}
        """Those before them, without their answers."""
        self._sizes: dict[str, int] = {}
        """Of the turns that have ended, as JSON."""
        self.current: TurnRun | None = None
        self.telling: TurnRun | None = None
        """What is being said about a late envelope: shown, and kept with the turns when it has been said."""
        self.busy = asyncio.Lock()
        """Whoever lets the agent speak holds it: one turn, or one late envelope, at a time."""
        self.late: set[asyncio.Task[None]] = set()
        self.listening: asyncio.Task[None] | None = None
        self.ended = False
        self.last_used = monotonic()
        self.asked_at = monotonic()
        """When the store was asked last whose the session is, and said that it is as it is here."""
        self.unanswered_at = float("-inf")
        """When somebody last stopped waiting for the store to say whose the session is."""
        self.voice: VoicePort | None = None
        self.is_remote = False
        """Another process has the session: this is what is stored of it, to be looked at."""
        self.is_trying = False
        """A tool is being tried: a turn of its own, beside which no message is answered."""
        self.is_live = False
        """Of a remote one: a voice conversation is on there, or a tool is being tried."""

    @property
    def is_idle(self) -> bool:
        quiet = self.current is None and self.voice is None and not self.late
        return quiet and not self.log.readers and not self.session.running

    @property
    def answering(self) -> str | None:
        """The message that is being answered, here or in the process that has the session."""
        if self.current is not None:
            return self.current.turn.message_id
        running = (turn.message_id for turn in self.turns.values() if turn.state == "running")
        return next(running, None) if self.is_remote else None

    @property
    def last_event(self) -> int:
        """The number after which somebody who has seen what is shown continues."""
        if not self.is_remote:
            return self.log.last
        return max((turn.last_event for turns in (self.turns, self.earlier) for turn in turns.values()), default=0)

    async def leave(self, why: str) -> None:
        """Let go of whoever listens, `reconnect` or `closed`; a voice conversation first, so that the session is ours again."""
        if self.voice is not None:
            await self.voice.leave(why)
        self.log.end(why)

    def known(self, message_id: str) -> StoredTurn | None:
        """The turn of this message, also one that is no longer shown and has lost its answer here."""
        return self.turns.get(message_id) or self.earlier.get(message_id)

    def is_whole(self, turn: StoredTurn) -> bool:
        """Whether all of its answer is still here; if not, it is with the stored conversation."""
        return turn.message_id in self.turns and not any(card.get("cut") for card in turn.answer.get("toolCards", ()))

    def keep(self, turn: StoredTurn) -> None:
        """Show a turn from now on. A new one gets the next position."""
        if not turn.position:
            turns = (*self.turns.values(), *self.earlier.values())
            turn.position = max((one.position for one in turns), default=0) + 1
        self.earlier.pop(turn.message_id, None)
        self.turns[turn.message_id] = turn
        while len(self.turns) + len(self.earlier) > MAX_TURNS:
            # Those without their answers first: of them only the ids are missed, by a message that is sent again.
            oldest = self.earlier or self.turns
            del oldest[next(iter(oldest))]
        self.shorten()

    def shorten(self) -> None:
        """Beyond `MAX_SHOWN_BYTES` cards lose what stands on them, the oldest first, and then the oldest turns are no longer
        shown, but never the newest. Their messages are still known: one that is sent again must not begin anew."""
        self._sizes = {
            name: self._sizes.get(name) or len(to_json([turn.text, turn.answer]))
            for name, turn in self.turns.items()
            if turn.state != "running"
        }
        over = sum(self._sizes.values()) - MAX_SHOWN_BYTES
        for name in self._sizes:
            if over <= 0:
                return
            freed = _bare(self.turns[name], over)
            self._sizes[name] -= freed
            over -= freed
        for name in list(self._sizes)[:-1]:
            if over <= 0:
                return
            over -= self._sizes.pop(name)
            self.earlier[name] = replace(self.turns.pop(name), answer={})

    def rebuild(self) -> None:
        """After a restart: the events of the last turn that ended, for a reader that missed its end."""
        ended = [turn for turn in self.turns.values() if turn.state != "running"]
        if not ended:
            return
        turn = ended[-1]
        for name, data in events_of(turn):
            self.log.add(name, {**data, "rebuilt": True}, turn.number, seen_by=turn.last_event)

    def messages(self, *, detailed: bool = False) -> list[dict[str, Any]]:
        """The conversation as people see it; `detailed`: as an operator does."""
        turns = sorted(self.turns.values(), key=lambda one: one.position)
        # The text of a turn that runs is in pieces until somebody looks: joined at each piece, a long answer would cost its
        # length's square.
        if self.current is not None:
            self.current.gather()
        if self.telling is not None:
            self.telling.gather()
            if self.telling.turn.message_id not in self.turns:
                turns.append(self.telling.turn)
        # What has ended here and is not stored yet has not ended: it may still be answered anew elsewhere.
        open_turns = [run.turn for run in (self.current, self.telling) if run is not None]
        shown: list[dict[str, Any]] = []
        for turn in turns:
            state = "running" if turn in open_turns else turn.state
            facts = {"turn": turn.number, "messageId": turn.message_id, "state": state}
            if not turn.message_id.startswith(LATE):
                shown.append({"role": "user", "text": turn.text, **facts})
            if turn.answer or turn.state != "running":
                answer = turn.answer if detailed else _without_detail(turn.answer)
                shown.append({"role": "assistant", "text": "", "toolCards": [], "citations": [], **answer, **facts})
        return shown

    def late_run(self, told: Mapping[str, Any]) -> TurnRun:
        """What the model may say about a late envelope, as a turn of its own to be shown."""
        number = self.session.turn.number if self.session.turn is not None else 0
        name = told.get("confirmationId") or told.get("callId") or "call"
        run = TurnRun(StoredTurn(message_id=f"{LATE}{name}", text="", number=number), self.log.last)
        run.started.set_result(number)
        return run

    def turn_of_open_card(self, told: Mapping[str, Any]) -> StoredTurn | None:
        """The turn that has ended with a card for this call on which no outcome stands yet."""
        card = {"callId": told.get("callId"), "toolId": told.get("toolId"), "type": "tool_finished"}
        for turn in reversed(self.turns.values()):
            if any(one["type"] == "tool_started" and _same(one, card) for one in turn.answer.get("toolCards", ())):
                return turn
        return None

    def turn_of_card(self, told: Mapping[str, Any]) -> StoredTurn | None:
        """The turn that has a card for this call, if the call can be distinguished from others."""
        for turn in reversed(self.turns.values()) if told.get("callId") is not None else ():
            if any(_same(one, {**told, "type": ""}) for one in turn.answer.get("toolCards", ())):
                return turn
        return None

    def remembered(self, turn: StoredTurn) -> dict[str, Any]:
        """What is shown of a turn that is about to be answered anew: the calls whose outcomes the model has in mind, and will
        not make again."""
        known = {one.name for one in self.conversation.turn_of(turn.message_id) if isinstance(one, ToolMessage)}
        cards = [
            card
            for card in turn.answer.get("toolCards", ())
            if card.get("type") != "tool_started" and card.get("toolId") in known
        ]
        return {"toolCards": cards} if cards else {}

    def budget(self) -> dict[str, Any]:
        """What the current turn has used of what it may."""
        turn, limits = self.session.turn, self.session.limits
        return {
            "retrieval": {"used": turn.retrieval_used if turn else 0, "limit": limits.retrieval_calls},
            "total": {"used": turn.total_used if turn else 0, "limit": limits.total_calls},
            "latencyMs": {"used": int(turn.tool_ms) if turn else 0, "limit": limits.turn_ms},
        }


def events_of(turn: StoredTurn) -> list[tuple[str, dict[str, Any]]]:
    """The events that tell a turn that has ended once more."""
    answer = turn.answer
    told: list[tuple[str, dict[str, Any]]] = [("turn", {"messageId": turn.message_id})]
    for card in answer.get("toolCards", ()):
        told.append((str(card.get("type", "tool_finished")), {name: card[name] for name in card if name != "type"}))
    if answer.get("text"):
        told.append(("text", {"text": answer["text"]}))
    if "error" in answer:
        told.append(("error", answer["error"]))
    rest = {"text": answer.get("text", ""), "citations": answer.get("citations", []), "usage": answer.get("usage")}
    told.append(("done", {**rest, "reason": answer.get("reason"), "state": turn.state, "messageId": turn.message_id}))
    return told


def _without_detail(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**answer, "error": without_detail("error", answer["error"])} if "error" in answer else answer


def _bare(turn: StoredTurn, over: int) -> int:
    """Clear cards until that many bytes are free; how many are."""
    freed, cards = 0, list(turn.answer.get("toolCards", ()))
    for place, card in enumerate(cards):
        if freed >= over:
            break
        bare = _bare_card(card)
        gain = len(to_json(card)) - len(to_json(bare))
        if gain > 0:
            cards[place] = bare
            freed += gain
    if freed:
        turn.answer = {**turn.answer, "toolCards": cards}
    return freed


def _bare_card(card: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("callId", "toolId", "ok", "round", "gate", "held", "late", "confirmationId", "type")
    return {name: card[name] for name in kept if name in card} | {"cut": True}


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two cards are about one call. A model without call ids is told apart by what is still open."""
    if one.get("toolId") != other.get("toolId") or one.get("callId") != other.get("callId"):
        return False
    return other.get("callId") is not None or (one["type"] == "tool_started" and other["type"] != "tool_started")

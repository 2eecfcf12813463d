"""Spoken conversations in which anything goes wrong at any moment, and the count of what must never be.

`python -m tests.voice --conversations 300` plays that many with each provider, every fifth over a WebSocket (`socket_chaos`), and
a control in which writing calls go around the pipeline, which doubles. What went wrong is named with its seed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import get_args
from unittest.mock import patch

from tests.agents.voice.kit import Client, VoiceCase, obedient, voice
from tests.clients.live.kit import IMPATIENT

from handrail.agents.unacknowledged_writes import UnacknowledgedWrites
from handrail.agents.voice.host_port import Abilities
from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.runtime.session import Session
from handrail.schema.strict_json import parse_arguments
from handrail.testing.servers.live import Ask, Fault, Pause, Say, Turn, call

FAULTS = [None, None, None, *get_args(Fault)]
KNOWN_ENDS = frozenset({"user_requested", "provider_lost", "closed"})
TURNS = 6
PATIENCE = 30.0
HEARS_OUT = 4.0
"""So long somebody waits for a question to be read, or for what became of the answer."""
YES = ("Yes.", "Yes, please.", "Yes, go ahead.")
ANSWERS = (*YES, *YES, "Yes, but for two.", "No.", "Who said yes?", "Hm.")
"""What is said to a preview."""
ANSWERED = frozenset({"approved", "declined", "expired", "screen"})


@dataclass
class Tally:
    """What happened in many conversations."""

    conversations: int = 0
    effects: int = 0
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    odd_ends: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.conversations += other.conversations
        self.effects += other.effects
        for mine, theirs in (
            (self.doubled, other.doubled),
            (self.lost, other.lost),
            (self.unasked, other.unasked),
            (self.odd_ends, other.odd_ends),
        ):
            mine.extend(theirs)
        self.happened.update(other.happened)

    @property
    def wrong(self) -> list[str]:
        kinds = {
            "doubled": self.doubled,
            "lost": self.lost,
            "without a yes": self.unasked,
            "ended oddly": self.odd_ends,
        }
        return [f"{kind}: {one}" for kind, found in kinds.items() for one in found]

    @property
    def by_voice(self) -> int:
        """Without any, nothing was found out about spoken approvals."""
        return self.happened["approved by voice"]

    def __str__(self) -> str:
        wrong = (
            f"{len(self.doubled)} doubled, {len(self.lost)} lost, {len(self.unasked)} without a yes, "
            f"{len(self.odd_ends)} ended in no known state"
        )
        wrong += f", {self.by_voice} approved by voice"
        happened = ", ".join(f"{name} {count}" for name, count in sorted(self.happened.items()))
        return f"{self.conversations} conversations, {self.effects} effects: {wrong} ({happened})"


def script(random: Random) -> list[Turn]:
    """More turns than will be played: an input that is lost with a connection skips one."""
    turns = []
    for number in range(TURNS * 8):
        steps: list[Ask | Say | Pause] = []
        if random.random() < 0.3:
            steps.append(Say("One moment.", pace=random.choice((0.0, 0.01))))
        if random.random() < 0.4:
            steps.append(Ask(call("find_table", place=f"place-{number};"), fault=random.choice(FAULTS)))
        tool = "buy_table" if random.random() < 0.45 else "book_table"
        steps.append(Ask(call(tool, guest=f"guest-{number};"), fault=random.choice(FAULTS)))
        steps.append(Pause(random.choice((0.0, 0.0, 0.02))))
        steps.append(Say(f"Done {number}.", pace=random.choice((0.0, 0.005))))
        turns.append(Turn(steps, hears=f"A table for guest {number}"))
        if tool == "buy_table" and random.random() < 0.7:
            # Said whenever it comes to it, perhaps to no question at all.
            words = random.choice(("Yes.", "Yes, but for two.", "No.", "Who said yes?", "Hm."))
            turns.append(Turn([Say("I see.", pace=random.choice((0.0, 0.005)))], hears=words))
    return turns


class Person:
    """Whoever speaks: now and then interrupts, types, presses stop, and says yes by voice or on the screen to some of it."""

    def __init__(self, case: VoiceCase, random: Random, tally: Tally) -> None:
        self.case = case
        self.random = random
        self.tally = tally
        self.approved: set[str] = set()
        self._asked: set[str] = set()
        self._said = 0

    async def one_turn(self) -> None:
        case, random = self.case, self.random
        before = len(case.client.of("turn_done"))
        await self._begin()
        if random.random() < 0.4:
            await asyncio.sleep(random.random() * 0.12)
            self._happens("line cut")
            case.server.cut_all()
        if random.random() < 0.3:
            await asyncio.sleep(random.random() * 0.06)
            await self._interrupt()
        if random.random() < 0.2:
            await asyncio.sleep(random.random() * 0.06)
            self._happens("line cut")
            case.server.cut_all()
        if random.random() < 0.15:
            await asyncio.sleep(random.random() * 0.06)
            await self._begin_again()
            return
        with suppress(AssertionError):  # the input was lost with a connection: it is said again in the next turn
            await case.client.until(lambda client: len(client.of("turn_done")) > before, seconds=3)
        await self._answer_questions()

    async def _begin_again(self) -> None:
        """The conversation is let go in the middle of it, as a server does that restarts, and begun anew."""
        case = self.case
        self._happens("begun again")
        await case.voice.close()
        again = await case.agent.begin(case.voice.session, case.conversation, case.client, abilities=Abilities())
        case.client.voice = case.voice = again

    async def _begin(self) -> None:
        if self.random.random() < 0.2:
            self._happens("typed")
            self._said += 1
            with suppress(Exception):
                await self.case.voice.say("A table, please.", id=f"typed-{self._said}")
        else:
            await self.case.speak()

    async def _interrupt(self) -> None:
        if self.random.random() < 0.3:
            self._happens("stopped")
            await self.case.voice.interrupt()
        else:
            self._happens("barged in")
            await self.case.speak()

    async def _answer_by_voice(self) -> None:
        """A request waits: let it be read, begin to speak when an answer counts, and wait to hear what came of the
        answer, as people do. A provider that does not tell the end of speech takes a second to know the words."""
        client = self.case.client
        if not self._waiting():
            return
        with suppress(AssertionError):
            await client.until(lambda client: _last_state(client) == "asking" or not self._waiting(), seconds=HEARS_OUT)
            if _last_state(client) != "asking":
                return
            self._happens("answered by voice")
            told = len(client.of("question"))
            progress = self.case.server.progress
            answer = Turn([Say("I see.", pace=self.random.choice((0.0, 0.005)))], hears=self.random.choice(ANSWERS))
            progress.turns.insert(progress.turn + 1, answer)
            await self.case.speak()
            await client.until(lambda client: len(client.of("question")) > told, seconds=HEARS_OUT)

    def _waiting(self) -> set[str]:
        """Requests that may still be answered by voice."""
        client = self.case.client
        over = {told["id"] for told in client.of("question") if told["state"] in ANSWERED}
        over |= {told["id"] for told in client.of("confirmation_closed")}
        return {asked["id"] for asked in client.of("confirmation")} - over - self._asked

    async def _answer_questions(self) -> None:
        if self.random.random() < 0.7:
            await self._answer_by_voice()
            if _last_state(self.case.client) in ("missed", "reading"):
                await self._answer_by_voice()  # it is read once more
        for asked in self.case.client.of("confirmation"):
            if asked["id"] in self._asked or self.random.random() < 0.4:
                continue  # it may be answered by voice, or later
            self._asked.add(asked["id"])
            guest = asked["args"]["guest"]
            if self.random.random() < 0.6:
                self.approved.add(guest)
                self._happens("approved")
                times = 2 if self.random.random() < 0.5 else 1
                wanted = [self.case.runtime.approve(asked["id"], token=asked["token"]) for _ in range(times)]
                await asyncio.gather(*wanted)
            else:
                self._happens("declined")
                await self.case.runtime.decline(asked["id"], token=asked["token"])

    def _happens(self, what: str) -> None:
        self.tally.happened[what] += 1


async def play(provider: str, seed: int, *, turns: int = TURNS) -> Tally:
    """One conversation, and what came of it."""
    random = Random(seed)
    tally = Tally(conversations=1)
    async with voice(provider, script(random), limits=IMPATIENT, client=Client()) as case:
        if random.random() < 0.8:
            case.server.on_note = obedient  # it reads previews as it is told; the others never do
        person = Person(case, random, tally)
        for _ in range(turns):
            if case.voice.is_over:
                break
            await person.one_turn()
        done = [args["guest"] for name, args in case.tool_log.starts if name in ("book_table", "buy_table")]
        tally.effects = len(done)
        tally.doubled += [f"{provider} {seed}: {guest}" for guest, times in Counter(done).items() if times > 1]
        bought = {args["guest"] for name, args in case.tool_log.starts if name == "buy_table"}
        spoken = _approved_by_voice(case)
        tally.happened["approved by voice"] += len(spoken)
        tally.unasked += [f"{provider} {seed}: {guest}" for guest in bought - person.approved - spoken]
        if len(spoken) > sum(words in YES for words in case.client.words("user")):
            tally.unasked.append(f"{provider} {seed}: more approvals by voice than yeses")
        tally.lost += [f"{provider} {seed}: {guest}" for guest in await _untold(case, set(done))]
        tally.happened["connections"] += case.voice.reducer.connection
        tally.happened["reissued"] += sum(
            data["meta"].get("replayed", False) for data in case.client.of("tool_finished")
        )
        await _end(case, random, tally, f"{provider} {seed}")
    return tally


def _last_state(client: Client) -> str:
    asked = client.of("question")
    return str(asked[-1]["state"]) if asked else ""


def _approved_by_voice(case: VoiceCase) -> set[str]:
    """The guests whose table was approved by a spoken yes, as the client was told."""
    guests = {asked["id"]: asked["args"]["guest"] for asked in case.client.of("confirmation")}
    return {guests[told["id"]] for told in case.client.of("question") if told["state"] == "approved"}


async def _untold(case: VoiceCase, done: set[str]) -> set[str]:
    """What was done, and was not told to the model within a long time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while (
                missing := {guest for guest in done if f'"for":"{guest}"' not in _told(case)}
            ) and not case.voice.is_over:
                await asyncio.sleep(0.02)
            return missing
    return missing


def _told(case: VoiceCase) -> str:
    """Everything that the provider was sent, with one kind of quotes."""
    return str(case.server.received).replace("\\", "").replace("'", '"').replace(": ", ":")


async def _end(case: VoiceCase, random: Random, tally: Tally, which: str) -> None:
    """However it went, it ends: in words, in text mode, with everything settled."""
    async with asyncio.timeout(PATIENCE):
        if random.random() < 0.5:
            await case.voice.end()
        else:
            await case.voice.close()
        ending = await asyncio.shield(case.voice.ending)
    ended = case.client.of("ended")
    mode = case.voice.session.mode
    wanted = "voice" if ending.reason == "closed" else "text"
    if (
        ending.reason not in KNOWN_ENDS
        or mode != wanted
        or len(ended) > 1 + tally.happened["begun again"]
        or case.voice.session.voice_open
    ):
        tally.odd_ends.append(f"{which}: {ending.reason}, {mode}, told {len(ended)} times")
    tally.happened[f"end {ending.reason}"] += 1


@contextmanager
def without_the_ledger() -> Iterator[None]:
    """The control: every call that comes goes straight to the handler, as it does where there is no ledger."""

    async def straight(session: Session, calls: Sequence[Call]) -> list[ToolResponse]:
        answers = []
        for one in calls:
            plan = session.plans[one.name] if isinstance(one.name, str) else None
            if plan is not None and plan.writes:
                answers.append(await _directly(session, one))
            else:
                answers += await session.core.pipeline.call_many(session, [one])
        return answers

    with patch.object(Session, "call_many", straight), patch.object(UnacknowledgedWrites, "known", lambda *_: None):
        yield


async def _directly(session: Session, one: Call) -> ToolResponse:
    tool_log = session.core.capabilities["tool_log"]
    context = SimpleNamespace(tool=SimpleNamespace(id=one.name))
    done = await tool_log.work(context, parse_arguments(one.args))
    return ToolResponse.success(done["data"])


Play = Callable[[str, int], Awaitable[Tally]]


async def play_many(provider: str, seeds: Sequence[int], *, at_once: int = 4, one_play: Play = play) -> Tally:
    tally = Tally()
    gate = asyncio.Semaphore(at_once)

    async def one(seed: int) -> None:
        async with gate:
            tally.add(await one_play(provider, seed))

    await asyncio.gather(*map(one, seeds))
    return tally

"""The chaos over a real WebSocket: the client's line breaks as well as the provider's, and no numbered message may be missing."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, get_args

from tests.clients.live.kit import IMPATIENT
from tests.server.voice.kit import VoiceClient
from tests.server.voice.test_conversations import VoiceSetup, voice_setup
from tests.voice.chaos import PATIENCE, TURNS, Tally

from handrail.testing.servers.live import Ask, Fault, Say, Turn, call

FAULTS = [None, None, None, *get_args(Fault)]
LIVE = replace(IMPATIENT, connect_seconds=10.0)


def script(random: Random) -> list[Turn]:
    turns = []
    for number in range(TURNS * 8):
        steps: list[Ask | Say] = []
        if random.random() < 0.4:
            steps.append(Ask(call("look", q=f"place-{number};"), fault=random.choice(FAULTS)))
        tool = "pay" if random.random() < 0.35 else "note"
        steps.append(Ask(call(tool, q=f"{tool}-{number};"), fault=random.choice(FAULTS)))
        steps.append(Say(f"Done {number}.", pace=random.choice((0.0, 0.005))))
        turns.append(Turn(steps, hears=f"Note {number}"))
    return turns


class Phone:
    """A client that may lose its line and comes back, and what it was told over all its lines."""

    def __init__(self, here: VoiceSetup) -> None:
        self._here = here
        self._stack = AsyncExitStack()
        self._before: list[dict[str, Any]] = []
        self.client: VoiceClient

    async def connect(self) -> None:
        last = max(self.numbers, default=None)
        self.client = await self._stack.enter_async_context(self._here.enter(last=last))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self._before + (self.client.messages if hasattr(self, "client") else [])

    @property
    def numbers(self) -> list[int]:
        return [message["n"] for message in self.messages if "n" in message]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    async def drop(self) -> None:
        await self.client.drop()
        self._before = self.messages
        self.client.messages = []
        await self._stack.aclose()
        await self.connect()

    async def close(self) -> None:
        await self._stack.aclose()

    async def until(self, holds: Any, seconds: float = 3.0) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    await asyncio.sleep(0.01)
                return True
        return False

    @property
    def missing(self) -> int:
        """Numbered messages that never came, or came out of order."""
        numbers = self.numbers
        return sum(later != earlier + 1 for earlier, later in pairwise(numbers))


async def play(provider: str, seed: int) -> Tally:
    random = Random(seed)
    with TemporaryDirectory() as folder:
        async with voice_setup(provider, Path(folder), script(random), live=LIVE, forgiven="") as here:
            tally = await _talk(here, random, f"{provider} {seed} (socket)")
    return tally


async def _talk(here: VoiceSetup, random: Random, which: str) -> Tally:
    tally = Tally(conversations=1)
    phone = Phone(here)
    await phone.connect()
    approved: set[str] = set()
    asked_before: set[str] = set()
    for _ in range(TURNS):
        before = len(phone.of("turn_done"))
        await here.speak(phone.client)
        for happens in random.sample(("provider", "client", "barge", "provider"), random.randint(0, 3)):
            await asyncio.sleep(random.random() * 0.08)
            await _mishap(here, phone, happens, tally)
        await phone.until(lambda: len(phone.of("turn_done")) > before)  # noqa: B023
        for asked in phone.of("confirmation"):
            if asked["id"] in asked_before:
                continue
            asked_before.add(asked["id"])
            word = "approve" if random.random() < 0.6 else "decline"
            tally.happened[word] += 1
            if word == "approve":
                approved.add(asked["args"]["q"])
            await here.api.decide(asked, word)
    await _count(here, phone, approved, tally, which)
    await phone.close()
    return tally


async def _mishap(here: VoiceSetup, phone: Phone, what: str, tally: Tally) -> None:
    tally.happened[f"{what} dropped" if what != "barge" else "barged in"] += 1
    if what == "provider":
        here.provider.cut_all()
    elif what == "client":
        await phone.drop()
    else:
        await here.speak(phone.client)


async def _count(here: VoiceSetup, phone: Phone, approved: set[str], tally: Tally, which: str) -> None:
    marks = (
        [json.loads(line)["q"] for line in here.server.tools.marks.read_text().splitlines()]
        if here.server.tools.marks.exists()
        else []
    )
    done = [mark for mark in marks if not mark.startswith("place-")]
    tally.effects = len(done)
    tally.doubled += [f"{which}: {mark}" for mark, times in Counter(done).items() if times > 1]
    tally.unasked += [f"{which}: {mark}" for mark in set(done) if mark.startswith("pay-") and mark not in approved]

    def untold() -> set[str]:
        sent = str(here.provider.received).replace("\\", "").replace("'", '"').replace(": ", ":")
        return {mark for mark in done if f'"paid":"{mark}"' not in sent}

    await phone.until(lambda: not untold(), PATIENCE)
    tally.lost += [f"{which}: {mark}" for mark in untold()]
    await phone.client.send("end")
    ended = await phone.until(lambda: phone.of("ended"), PATIENCE)
    shown = await here.api.show()
    if not ended or shown["mode"] != "text":
        tally.odd_ends.append(f"{which}: mode {shown['mode']}, told {phone.of('ended')}")
    tally.lost += [f"{which}: {phone.missing} messages"] if phone.missing else []
    tally.happened["messages"] += len(phone.numbers)

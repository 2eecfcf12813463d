"""The chaos over two servers on one PostgreSQL behind a proxy that gives each connection to the next of them. Beside lines that
break, servers are stopped in order in the middle of a conversation and started again, and the phone calls whoever is next.

Each server has a provider of its own, with a script of its own, so that what is asked for twice by name was carried out twice.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import httpx2 as httpx
from tests.loopback_proxy import RoundRobinProxy
from tests.server.kit import ServerUnderTest, SessionClient
from tests.server.voice.kit import VoiceClient
from tests.server.voice.test_conversations import RATES, VoiceSetup, voice_setup
from tests.voice.chaos import PATIENCE, TURNS, Tally
from tests.voice.socket_chaos import FAULTS, LIVE
from websockets.exceptions import ConnectionClosed, InvalidStatus

from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.servers.live.server import LiveServer

_AGAIN = (409, 429, 502, 503)
_TROUBLE = (ConnectionClosed, InvalidStatus, OSError, EOFError, AssertionError, httpx.HTTPError)
"""What a phone meets when a server goes away while it calls; then it calls again."""


def script(random: Random, name: str) -> list[Turn]:
    turns = []
    for number in range(TURNS * 8):
        tool = "pay" if random.random() < 0.35 else "note"
        steps = [
            Ask(call(tool, q=f"{tool}-{name}-{number};"), fault=random.choice(FAULTS)),
            Say(f"Done {number}.", pace=random.choice((0.0, 0.005))),
        ]
        turns.append(Turn(steps, hears=f"Note {number}"))
    return turns


class TwoVoiceServers:
    """The servers of one conversation, by their place."""

    def __init__(self, provider: str, folder: Path, store: str, random: Random) -> None:
        self._provider, self._folder, self._store, self._random = provider, folder, store, random
        self._stacks = [AsyncExitStack(), AsyncExitStack()]
        self._numbers = 0
        self.live: list[VoiceSetup] = []
        self.providers: list[LiveServer] = []
        self.proxy: RoundRobinProxy

    async def start(self, place: int) -> VoiceSetup:
        self._numbers += 1
        turns = script(self._random, f"s{self._numbers}")
        made = await self._stacks[place].enter_async_context(
            voice_setup(self._provider, self._folder, turns, live=LIVE, forgiven="", store=self._store)
        )
        self.providers.append(made.provider)
        return made

    async def restart(self, place: int) -> None:
        """Stopped in order, and another one started in its place."""
        old = _port(self.live[place])
        self.live[place].server.uvicorn.should_exit = True
        await self._stacks[place].aclose()
        self.live[place] = await self.start(place)
        self.proxy.replace(old, _port(self.live[place]))

    async def close(self) -> None:
        for stack in self._stacks:
            await stack.aclose()


def _port(setup: VoiceSetup) -> int:
    return int(setup.server.url.rpartition(":")[2])


@asynccontextmanager
async def two_servers(provider: str, folder: Path, store: str, random: Random) -> AsyncIterator[TwoVoiceServers]:
    servers = TwoVoiceServers(provider, folder, store, random)
    try:
        for place in range(2):
            servers.live.append(await servers.start(place))
        with RoundRobinProxy([_port(one) for one in servers.live]) as proxy:
            assert isinstance(proxy, RoundRobinProxy)
            servers.proxy = proxy
            yield servers
    finally:
        await servers.close()


class RoamingPhone:
    """A client that calls whoever is next whenever its line is gone, and what it was told over all its lines."""

    def __init__(self, line: VoiceSetup) -> None:
        self._line = line
        self._stack = AsyncExitStack()
        self._before: list[dict[str, Any]] = []
        self.client: VoiceClient | None = None
        self.lines = 0

    async def connected(self) -> VoiceClient:
        async with asyncio.timeout(PATIENCE):
            while self.client is None or self.client.close_code is not None:
                await self._hang_up()
                try:
                    self.client = await self._stack.enter_async_context(self._line.enter())
                    self.lines += 1
                except _TROUBLE:
                    await asyncio.sleep(0.05)
        return self.client

    async def _hang_up(self) -> None:
        self._before, self.client = self.messages, None
        stack, self._stack = self._stack, AsyncExitStack()
        with suppress(*_TROUBLE):
            await stack.aclose()

    async def drop(self) -> None:
        await (await self.connected()).drop()

    async def speak(self) -> None:
        with suppress(*_TROUBLE):
            await self._line.speak(await self.connected())

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self._before + (self.client.messages if self.client is not None else [])

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    async def until(self, holds: Any, seconds: float = 3.0) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    await asyncio.sleep(0.01)
                return True
        return False

    async def close(self) -> None:
        await self._hang_up()


async def play(provider: str, seed: int, store: str, *, restarts: int = 2) -> Tally:
    random = Random(seed)
    with TemporaryDirectory() as folder:
        async with (
            two_servers(provider, Path(folder), store, random) as servers,
            httpx.AsyncClient(base_url=servers.proxy.url, timeout=60) as http,
        ):
            first = servers.live[0]
            server = ServerUnderTest(first.server.made, first.server.tools, first.server.model, http, servers.proxy.url)
            api = SessionClient(server, first.api.key, first.api.opened)
            line = VoiceSetup(server, first.provider, api, RATES[provider])
            return await _talk(servers, line, random, f"{provider} {seed} (two servers)", restarts)


async def _talk(servers: TwoVoiceServers, line: VoiceSetup, random: Random, which: str, restarts: int) -> Tally:
    tally, phone = Tally(conversations=1), RoamingPhone(line)
    approved: set[str] = set()
    decided: set[str] = set()
    when = set(random.sample(range(TURNS), restarts))
    for number in range(TURNS):
        before = len(phone.of("turn_done"))
        await phone.speak()
        stopping = None
        for happens in random.sample(("provider", "client", "barge", "none"), random.randint(0, 2)):
            await asyncio.sleep(random.random() * 0.08)
            tally.happened[happens] += 1
            if happens == "provider":
                for one in servers.live:
                    one.provider.cut_all()
            elif happens == "client":
                await phone.drop()
            elif happens == "barge":
                await phone.speak()
        if number in when:
            await asyncio.sleep(random.random() * 0.2)
            tally.happened["server stopped"] += 1
            stopping = asyncio.create_task(servers.restart(random.randrange(2)))
        await phone.until(lambda: len(phone.of("turn_done")) > before)  # noqa: B023
        for asked in phone.of("confirmation"):
            if asked["id"] not in decided:
                decided.add(asked["id"])
                word = "approve" if random.random() < 0.6 else "decline"
                tally.happened[word] += 1
                if word == "approve":
                    approved.add(asked["args"]["q"])
                await _decide(line, asked, word, tally, which)
        if stopping is not None:
            await stopping
    await _count(servers, line, phone, approved, tally, which)
    await phone.close()
    return tally


async def _decide(line: VoiceSetup, asked: dict[str, Any], word: str, tally: Tally, which: str) -> None:
    """At whoever is next, until somebody has taken the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await line.api.decide(asked, word)
                except httpx.HTTPError:
                    answer = None
                if answer is not None and answer.status_code not in _AGAIN:
                    body = answer.json()
                    if answer.status_code != 200 or body.get("ok") or not body["error"]["retryable"]:
                        return
                await asyncio.sleep(0.1)
    tally.lost.append(f"{which}: the answer to {asked['id']} was taken by nobody")


async def _count(
    servers: TwoVoiceServers, line: VoiceSetup, phone: RoamingPhone, approved: set[str], tally: Tally, which: str
) -> None:
    marks = servers.live[0].server.tools.marks
    done = [json.loads(text)["q"] for text in marks.read_text().splitlines()] if marks.exists() else []
    tally.effects = len(done)
    tally.doubled += [f"{which}: {mark}" for mark, times in Counter(done).items() if times > 1]
    tally.unasked += [f"{which}: {mark}" for mark in set(done) if mark.startswith("pay-") and mark not in approved]
    with suppress(*_TROUBLE):
        await (await phone.connected()).send("end")
    shown: dict[str, Any] = {}
    untold: set[str] = set(done)

    async def look() -> None:
        nonlocal shown, untold
        with suppress(*_TROUBLE):
            shown = await line.api.show()
            cards = json.dumps([card for one in shown["messages"] for card in one.get("toolCards", ())])
            sent = str([one.received for one in servers.providers])
            untold = {mark for mark in done if mark not in cards and mark not in sent}

    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not shown or shown["mode"] != "text" or untold:
                await look()
                await asyncio.sleep(0.1)
    tally.lost += [f"{which}: {mark} is in no card, and no model was told of it" for mark in untold]
    if shown.get("mode") != "text":
        tally.odd_ends.append(f"{which}: mode {shown.get('mode')}, told {phone.of('ended')}")
    tally.happened["lines"] += phone.lines
    tally.happened["requests of each server"] += min(servers.proxy.requests.values())

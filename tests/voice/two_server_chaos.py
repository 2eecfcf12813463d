"""The chaos over two server processes on one PostgreSQL behind a proxy that gives each connection to the next of them. Beside
lines that break, servers are stopped in order by a timer, whatever the conversation is at, and started again in turn, and the
phone calls whoever is next.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
from tests.loopback_proxy import RoundRobinProxy
from tests.server.kit import USER, SessionClient, bearer
from tests.server.voice.kit import VoiceClient
from tests.server.voice.test_conversations import RATES, VoiceSetup
from tests.voice.chaos import PATIENCE, TURNS, Tally
from tests.voice.server_process import VoicePost, VoiceProcess
from websockets.exceptions import ConnectionClosed, InvalidStatus

_AGAIN = (409, 429, 502, 503)
_TROUBLE = (ConnectionClosed, InvalidStatus, OSError, EOFError, AssertionError, httpx.HTTPError)
"""What a phone meets when a server goes away while it calls; then it calls again."""


class TwoVoiceServers:
    """The servers of one conversation, by their place."""

    def __init__(self, post: VoicePost) -> None:
        self._post = post
        self.live: list[VoiceProcess] = []
        self.all: list[VoiceProcess] = []
        self.restarts = 0
        self.proxy: RoundRobinProxy

    async def start(self) -> VoiceProcess:
        number = len(self.all)
        made = VoiceProcess(replace(self._post, number=number, seed=self._post.seed + number))
        self.all.append(made)
        await made.ready()
        return made

    async def restart_in_turn(self, every: float) -> None:
        """Stopped in order, and another one started in its place."""
        while True:
            await asyncio.sleep(every)
            place = self.restarts % 2
            old = self.live[place]
            await old.stop()
            self.live[place] = await self.start()
            self.proxy.replace(old.port, self.live[place].port)
            self.restarts += 1

    async def received(self) -> str:
        """What all providers have been sent."""
        await asyncio.gather(*(one.look() for one in self.live))
        return "".join(one.received for one in self.all)


@asynccontextmanager
async def two_servers(post: VoicePost) -> AsyncIterator[TwoVoiceServers]:
    servers = TwoVoiceServers(post)
    try:
        for _ in range(2):  # one after the other: both build the tools in the same folder
            servers.live.append(await servers.start())
        with RoundRobinProxy([one.port for one in servers.live]) as proxy:
            assert isinstance(proxy, RoundRobinProxy)
            servers.proxy = proxy
            yield servers
            await asyncio.gather(*(one.stop() for one in servers.live))
    finally:
        for one in servers.all:
            one.kill()


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


async def play(provider: str, seed: int, store: str, *, every: float = 1.0, restarts: int = 2) -> Tally:
    """The least number of restarts, one `every` few seconds."""
    with TemporaryDirectory() as folder:
        async with (
            two_servers(VoicePost(0, provider, Path(folder), store, seed)) as servers,
            httpx.AsyncClient(base_url=servers.proxy.url, timeout=60) as http,
        ):
            opened = await http.post("/api/sessions", json={}, headers=bearer(USER))
            server: Any = SimpleNamespace(client=http, url=servers.proxy.url)
            api = SessionClient(server, USER, opened.json())
            line = VoiceSetup(server, None, api, RATES[provider])  # type: ignore[arg-type]
            conversation = _LongConversation(servers, line, Random(seed), f"{provider} {seed} (two servers)")
            await conversation.play(every, restarts)
            await conversation.count(Path(folder))
            await conversation.phone.close()
    return conversation.tally


class _LongConversation:
    """One conversation."""

    def __init__(self, servers: TwoVoiceServers, line: VoiceSetup, random: Random, which: str) -> None:
        self.servers, self.line, self.random, self.which = servers, line, random, which
        self.tally, self.phone = Tally(conversations=1), RoamingPhone(line)
        self.approved: set[str] = set()
        self._decided: set[str] = set()

    async def play(self, every: float, restarts: int) -> None:
        restarting = asyncio.create_task(self.servers.restart_in_turn(every))
        turns = 0
        while turns < TURNS or self.servers.restarts < restarts:
            if restarting.done():
                await restarting  # it has failed
            await self._turn()
            turns += 1
        # Not in the middle of a restart.
        done = self.servers.restarts
        while self.servers.restarts == done and not restarting.done():
            await asyncio.sleep(0.01)
        restarting.cancel()
        self.tally.happened["server stopped"] += self.servers.restarts
        self.tally.happened["turns"] += turns

    async def _turn(self) -> None:
        phone, random = self.phone, self.random
        before = len(phone.of("turn_done"))
        await phone.speak()
        for happens in random.sample(("provider", "client", "barge", "none"), random.randint(0, 2)):
            await asyncio.sleep(random.random() * 0.08)
            self.tally.happened[happens] += 1
            if happens == "provider":
                for one in self.servers.live:
                    with suppress(OSError):  # it is being stopped
                        one.cut()
            elif happens == "client":
                await phone.drop()
            elif happens == "barge":
                await phone.speak()
        await phone.until(lambda: len(phone.of("turn_done")) > before)
        for asked in phone.of("confirmation"):
            if asked["id"] not in self._decided:
                self._decided.add(asked["id"])
                word = "approve" if random.random() < 0.6 else "decline"
                self.tally.happened[word] += 1
                if word == "approve":
                    self.approved.add(asked["args"]["q"])
                await _decide(self.line, asked, word, self.tally, self.which)

    async def count(self, folder: Path) -> None:
        tally, line, phone, which = self.tally, self.line, self.phone, self.which
        marks = folder / "project" / "marks.txt"
        done = [json.loads(text)["q"] for text in marks.read_text().splitlines()] if marks.exists() else []
        tally.effects = len(done)
        tally.doubled += [f"{which}: {mark}" for mark, times in Counter(done).items() if times > 1]
        tally.unasked += [
            f"{which}: {mark}" for mark in set(done) if mark.startswith("pay-") and mark not in self.approved
        ]
        with suppress(*_TROUBLE):
            await (await phone.connected()).send("end")
        shown: dict[str, Any] = {}
        untold: set[str] = set(done)

        async def look() -> None:
            nonlocal shown, untold
            with suppress(*_TROUBLE):
                shown = await line.api.show()
                cards = json.dumps([card for one in shown["messages"] for card in one.get("toolCards", ())])
                sent = await self.servers.received()
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
        tally.happened["requests of each server"] += min(self.servers.proxy.requests.values())

"""A server process of the chaos over two servers, with a provider of its own, and what the one who plays asks of it.

The provider plays a script of its own, so that what is asked for twice by name was carried out twice.
"""

import asyncio
import logging
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.run import warm_processes
from tests.server.voice.test_conversations import voice_setup
from tests.voice.chaos import TURNS
from tests.voice.socket_chaos import FAULTS, LIVE

from handrail.testing.servers.live import Ask, Say, Turn, call

_PROCESSES = warm_processes("tests.voice.server_process")
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class VoicePost:
    """Where one server stands."""

    number: int
    provider: str
    folder: Path
    store: str
    seed: int


class VoiceProcess:
    """The process, as who started it sees it."""

    def __init__(self, post: VoicePost) -> None:
        self._line, theirs = _PROCESSES.Pipe()
        self._process: BaseProcess = _PROCESSES.Process(target=serve, args=(post, theirs))
        self._process.start()
        theirs.close()
        self.port = 0
        self.received = ""
        """What its provider has been sent, as text; known once it has stopped, or after `look`."""

    async def ready(self) -> None:
        self.port = await self._told()

    def cut(self) -> None:
        """Break the provider's lines."""
        self._line.send("cut")

    async def look(self) -> None:
        self._line.send("look")
        self.received = await self._told()

    async def stop(self) -> None:
        """In order: it drains, and ends."""
        self._line.send("stop")
        self.received = await self._told()
        await asyncio.to_thread(self._process.join, _PATIENCE)
        assert self._process.exitcode == 0, f"a server ended with {self._process.exitcode}"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    async def _told(self) -> Any:
        assert await asyncio.to_thread(self._line.poll, _PATIENCE), "a server says nothing"
        return self._line.recv()


def serve(post: VoicePost, line: Connection) -> None:
    """The entry of the process."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_serve(post, line))


async def _serve(post: VoicePost, line: Connection) -> None:
    turns = script(Random(post.seed), f"s{post.number}")
    async with voice_setup(post.provider, post.folder, turns, live=LIVE, forgiven="", store=post.store) as made:
        line.send(int(made.server.url.rpartition(":")[2]))
        while (order := await asyncio.to_thread(line.recv)) != "stop":
            if order == "cut":
                made.provider.cut_all()
            else:
                line.send(str(made.provider.received))
    line.send(str(made.provider.received))


def script(random: Random, name: str) -> list[Turn]:
    turns = []
    for number in range(TURNS * 40):
        tool = "pay" if random.random() < 0.35 else "note"
        steps = [
            Ask(call(tool, q=f"{tool}-{name}-{number};"), fault=random.choice(FAULTS)),
            Say(f"Done {number}.", pace=random.choice((0.0, 0.005))),
        ]
        turns.append(Turn(steps, hears=f"Note {number}"))
    return turns

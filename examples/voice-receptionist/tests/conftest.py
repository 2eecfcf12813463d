"""A call to the reception, for tests: the project's tools on a book of their own, a scripted model behind a real provider's
protocol on this machine, and a caller who hears everything to its end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.conversation import Conversation
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import Sound
from handrail.clients.live import open_live_model
from handrail.testing import ToolKit, open_tools
from handrail.testing.hosting import hosted
from handrail.testing.servers.live import GeminiLiveServer, OpenAIRealtimeServer, Say, Turn, silence, speech

PROJECT = Path(__file__).resolve().parents[1]


class Reception:
    """The project's tools, and the folder in which they write."""

    def __init__(self, folder: Path, tools: ToolKit) -> None:
        self.folder = folder
        self.tools = tools

    def bookings(self) -> list[tuple[str, str, str]]:
        """What is in the book."""
        file = self.folder / "bookings.db"
        if not file.exists():
            return []
        with closing(sqlite3.connect(file)) as database:
            return database.execute("SELECT name, start, phone FROM booking").fetchall()

    @asynccontextmanager
    async def call(self, provider: str, turns: Sequence[Turn]) -> AsyncIterator[Caller]:
        """A call that the model answers by this script; it reads aloud what the host asks it to read."""
        serve = GeminiLiveServer if provider == "gemini-live" else OpenAIRealtimeServer
        async with serve(turns) as server, self.tools.runtime(store=f"sqlite:///{self.folder}/handrail.db") as runtime:
            server.on_note = _reads_what_it_is_asked_to
            tls = {"tls": server.tls} if isinstance(server, GeminiLiveServer) else {}
            keys = {"GEMINI_API_KEY": server.api_key, "OPENAI_API_KEY": server.api_key}
            model = open_live_model(f"{provider}:local", environment=keys, base_url=server.base_url, **tls)
            session = await runtime.open_session(mode="text", user="caller")
            caller = Caller(runtime)
            talk = caller.talk = await VoiceAgent(runtime, model).begin(session, Conversation(), caller)
            try:
                async with hosted(talk):
                    yield caller
            finally:
                await model.close()


def _reads_what_it_is_asked_to(note: str) -> list[Say]:
    _, asked, words = note.partition("word for word and nothing else, and call no tool: ")
    return [Say(words)] if asked else []


class Caller:
    """The caller's telephone: plays what it gets at once, and says so."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.talk: Any = None
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._moved = asyncio.Event()

    def tell(self, type: str, data: Mapping[str, Any]) -> None:
        self.told.append((type, dict(data)))
        self._moved.set()
        if type == "audio_end":
            asyncio.get_running_loop().call_soon(self.talk.played, data["item"], data["ms"], True)

    def play(self, sound: Sound) -> None:
        """The sound is not needed here: its end is."""

    async def speak(self) -> None:
        """Say something; the script knows what it is."""
        rate = self.talk.input_rates[0]
        sound, frame = speech(120, rate) + silence(260, rate), rate // 50 * 2
        for place in range(0, len(sound), frame):
            self.talk.hear(sound[place : place + frame], rate)

    async def until(self, holds: Callable[[Caller], Any]) -> None:
        async with asyncio.timeout(30):
            while not holds(self):
                self._moved.clear()
                await self._moved.wait()

    def of(self, type: str) -> list[dict[str, Any]]:
        return [data for name, data in self.told if name == type]

    @property
    def question(self) -> list[str]:
        """What became of the spoken question, step by step."""
        return [data["state"] for data in self.of("question")]

    @property
    def heard(self) -> list[str]:
        """What the model has said, each in one piece."""
        return [data["whole"] for data in self.of("transcript") if data["who"] == "model" and data["final"]]


@pytest.fixture
def reception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reception]:
    """Started in an empty folder: a book without bookings."""
    monkeypatch.chdir(tmp_path)
    with open_tools(PROJECT / "tools") as tools:
        yield Reception(tmp_path, tools)

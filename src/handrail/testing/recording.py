"""Recorded spoken conversations: what a provider sent, and what it was sent, in order; and a live model that plays it back.

`Recorder` stands before a real live model and writes down both directions with their times. `Replayed` is a live model that tells
the same again: each event after the pause that it had, and not before the host has sent what it had sent by then. So a
recording plays in virtual time with the same outcome each time, and a host that behaves otherwise than it did is found out.
Sound is kept as its length alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import orjson

from handrail.contract import live
from handrail.contract.call import Call
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsMade,
    Closed,
    LiveConfig,
    LiveConnection,
    LiveCounters,
    LiveError,
    LiveEvent,
    LiveModel,
    Scheduling,
)

Line = dict[str, Any]
_PATIENCE = 120.0
"""Virtual seconds that a replay waits for the host to send what it sent when it was recorded."""
_LEFT_OUT = frozenset({"Usage", "ProviderWarning", "ResumptionHandle"})
"""Events that no host acts on; their number varies with the provider's mood."""


class Recorder:
    """A `LiveModel` that writes down its one conversation in `lines`."""

    def __init__(self, model: LiveModel) -> None:
        self._model = model
        self.name, self.provider = model.name, model.provider
        self.input_rates, self.output_rate = model.input_rates, model.output_rate
        self.changes_tools = model.changes_tools
        self.lines: list[Line] = []

    async def connect(self, config: LiveConfig) -> LiveConnection:
        facts = {"provider": self.provider, "inputRates": list(self.input_rates), "outputRate": self.output_rate}
        self.lines.append({"at": 0.0, "begin": {**facts, "changesTools": self.changes_tools}})
        return _Recorded(await self._model.connect(config), self.lines)

    async def close(self) -> None:
        await self._model.close()

    def save(self, path: Path) -> None:
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in self.lines))


class _Recorded:
    def __init__(self, connection: LiveConnection, lines: list[Line]) -> None:
        self._connection = connection
        self._lines = lines
        self._began = asyncio.get_running_loop().time()

    @property
    def counters(self) -> LiveCounters:
        return self._connection.counters

    def _note(self, **line: Any) -> None:
        self._lines.append({"at": round(asyncio.get_running_loop().time() - self._began, 3), **line})

    def send_audio(self, pcm: bytes, rate: int) -> bool:
        return self._connection.send_audio(pcm, rate)

    async def send_text(self, text: str) -> None:
        self._note(sent="send_text", text=text)
        await self._connection.send_text(text)

    async def tell(self, text: str, *, scheduling: Scheduling = "when_idle") -> None:
        self._note(sent="tell", scheduling=scheduling)
        await self._connection.tell(text, scheduling=scheduling)

    async def send_envelopes(self, answers: Sequence[Answer], *, scheduling: Scheduling = "when_idle") -> None:
        answered = [[answer.call.name, answer.envelope["ok"]] for answer in answers]
        self._note(sent="send_envelopes", answers=answered, scheduling=scheduling)
        await self._connection.send_envelopes(answers, scheduling=scheduling)

    async def interrupt(self) -> None:
        self._note(sent="interrupt")
        await self._connection.interrupt()

    async def truncate(self, played_ms: int) -> None:
        await self._connection.truncate(played_ms)

    async def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        self._note(sent="change_tools", count=len(tools))
        await self._connection.change_tools(system, tools)

    async def leave_out_results(self) -> None:
        self._note(sent="leave_out_results")
        await self._connection.leave_out_results()

    async def rotate(self) -> None:
        self._note(sent="rotate")
        await self._connection.rotate()

    async def events(self) -> AsyncIterator[LiveEvent]:
        async for event in self._connection.events():
            if type(event).__name__ not in _LEFT_OUT:
                self._note(event=type(event).__name__, **_recorded_fields(event))
            yield event

    async def close(self) -> None:
        await self._connection.close()


class Replayed:
    """A `LiveModel` that plays a recording. `unlike` are sentences about what the host did otherwise."""

    def __init__(self, lines: Sequence[Line]) -> None:
        begin = lines[0]["begin"]
        self.name = "replayed"
        self.provider = str(begin["provider"])
        self.input_rates = tuple(begin["inputRates"])
        self.output_rate = int(begin["outputRate"])
        self.changes_tools = bool(begin.get("changesTools", False))
        self._lines = lines[1:]
        self.unlike: list[str] = []

    @classmethod
    def load(cls, path: Path) -> Replayed:
        return cls([orjson.loads(line) for line in path.read_bytes().splitlines()])

    async def connect(self, config: LiveConfig) -> LiveConnection:
        return _Replay(self._lines, self.output_rate, self.unlike)

    async def close(self) -> None:
        return None


class _Replay:
    def __init__(self, lines: Sequence[Line], rate: int, unlike: list[str]) -> None:
        self._lines = lines
        self._rate = rate
        self._unlike = unlike
        self._sent: list[str] = []
        self._moved = asyncio.Event()
        self._over = False
        self.counters = LiveCounters()

    def send_audio(self, pcm: bytes, rate: int) -> bool:
        return True

    async def send_text(self, text: str) -> None:
        self._take("send_text")

    async def tell(self, text: str, *, scheduling: Scheduling = "when_idle") -> None:
        self._take("tell")

    async def send_envelopes(self, answers: Sequence[Answer], *, scheduling: Scheduling = "when_idle") -> None:
        self._take("send_envelopes")

    async def interrupt(self) -> None:
        self._take("interrupt")

    async def truncate(self, played_ms: int) -> None:
        return None

    async def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        self._take("change_tools")

    async def leave_out_results(self) -> None:
        self._take("leave_out_results")

    async def rotate(self) -> None:
        self._take("rotate")

    def _take(self, what: str) -> None:
        if self._over:
            raise LiveError("The live session is over; connect again.")
        self._sent.append(what)
        self._moved.set()

    async def events(self) -> AsyncIterator[LiveEvent]:
        before = 0.0
        wanted: list[str] = []
        for line in self._lines:
            await asyncio.sleep(max(0.0, line["at"] - before))
            before = line["at"]
            if "sent" in line:
                wanted.append(line["sent"])
                continue
            await self._until_sent(wanted)
            event = _event(line, self._rate)
            if isinstance(event, Closed):
                break
            yield event
        await self._until_closed()
        yield Closed("closed")

    async def _until_sent(self, wanted: list[str]) -> None:
        """The provider had been sent these when it told the next; so the host has to send them now."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while len(self._sent) < len(wanted):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            missing = ", ".join(wanted[len(self._sent) :])
            self._unlike.append(f"The host did not send what it had sent: {missing}.")
            wanted[len(self._sent) :] = []

    async def _until_closed(self) -> None:
        while not self._over:
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        self._over = True
        self._moved.set()


def _recorded_fields(event: LiveEvent) -> Line:
    if isinstance(event, AudioOut):
        return {"ms": len(event.pcm) * 1000 // (2 * event.rate)}
    if isinstance(event, CallsMade):
        return {"calls": [call._asdict() for call in event.calls]}
    assert is_dataclass(event)
    return {"fields": asdict(event)}


def _event(line: Mapping[str, Any], rate: int) -> LiveEvent:
    name = line["event"]
    if name == "AudioOut":
        return AudioOut(bytes(line["ms"] * rate // 1000 * 2), rate)
    if name == "CallsMade":
        return CallsMade(tuple(Call(**call) for call in line["calls"]))
    made = getattr(live, name)
    given = line["fields"]
    values = {one.name: given[one.name] for one in fields(made)}
    event: LiveEvent = made(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )
    return event

"""A small HTTP server on loopback that plays a script in a provider's protocol. What a protocol is like is its subclass's."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, ClassVar, Self

import orjson

from handrail.testing.servers.script import (
    FLOOD,
    HUGE,
    INSTEAD_OF_AN_ANSWER,
    PLAYED_AGAIN,
    Fault,
    Frame,
    NumberedCall,
    Reply,
    ScriptedCall,
)

_PAGE = b"<!doctype html>\n<html><body><h1>One moment, please</h1>\n<p>data: this is no event</p></body></html>\n"
_GARBLED = b'{"\xff\xfe\x80": "\xc3\x28 \x00 \xed\xa0\x80"}'
_DEEP = 200
BREAKS_OFF = ("drop", "reissue", "stall", "trickle", "truncate", "empty", "error")

_NONSENSE = (
    b"this is no JSON {",
    b"[1, 2, 3]",
    b'"text"',
    b"null",
    b"{}",
    b'{"type": "of_the_future", "news": [1]}',
    b'{"type": 7, "choices": 3, "candidates": "x", "message": [], "delta": null}',
    b'{"choices": [null, 5, {"index": 0, "delta": {"tool_calls": [null, {"index": "a"}]}}]}',
    b'{"candidates": [7, {"content": {"parts": [null, {"functionCall": 3}]}}]}',
    b'{"type": "content_block_delta", "index": "0", "delta": 5}',
    b'{"type": "response.output_item.done", "item": 5}',
)


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    body: Any


class ProviderServer(ABC):
    """Use it as an asynchronous context. A script that has come to its end answers with status 400."""

    provider: ClassVar[str]
    key_variable: ClassVar[str]
    lines: ClassVar[bool] = False
    """Whether events are lines of JSON instead of server-sent events."""

    def __init__(self, script: Sequence[Reply], *, api_key: str = "test-key") -> None:
        self._script = list(script)
        self._place = 0
        self._faulted: set[int] = set()
        self._echo: list[bytes] | None = None
        self._numbers = 0
        self._responses = 0
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.StreamWriter] = set()
        """Those that are open."""
        self._serving: set[asyncio.Task[Any]] = set()
        self.api_key = api_key
        self.requests: list[Received] = []
        self.lookups: list[Received] = []
        """Requests about the server itself, such as which models it has."""
        self.playing: Fault | None = None
        """How the answer that was begun last misbehaves."""
        self.problems: list[str] = []
        """What was wrong with requests that were refused."""

    # ------------------------------------------------------------------------------------------- the protocol's
    @abstractmethod
    def problem(self, request: Received) -> str | None:
        """What the provider would refuse the request for."""

    @abstractmethod
    def frames(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        """The events of a reply."""

    @abstractmethod
    def truncated(self, reply: Reply, calls: Sequence[NumberedCall]) -> Iterator[Frame]:
        """The events of a reply whose last call is cut off."""

    @abstractmethod
    def failure(self) -> Any:
        """The event that says that the provider failed."""

    @abstractmethod
    def envelopes(self, body: Any) -> list[Any]:
        """The envelopes of the calls of the last turn, as they were sent back."""

    def facts(self, request: Received) -> Any:
        """The answer to a request about the server itself, such as which models it has; None if this is no such request,
        `LookupError` if it asks for something that the server does not have."""
        return None

    def streams(self, request: Received) -> bool:
        """Whether the request wants a stream; one that does not is answered with `whole`."""
        return True

    def whole(self, reply: Reply, calls: Sequence[NumberedCall]) -> Any:
        """The reply as one object, in protocols that have that."""
        raise NotImplementedError

    def encode(self, payload: Any, number: int) -> bytes:
        data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
        return data + b"\n" if self.lines else b"data: " + data + b"\n\n"

    def new_id(self, number: int) -> str | None:
        return f"call_{number}"

    def response_id(self, number: int) -> str | None:
        """The id of an answer, in protocols that have one."""
        return f"response_{number}"

    def named(self, field: str = "id") -> dict[str, str]:
        """The field of the answer that is being played with its id; none if it has no id."""
        made = self.response_id(self._responses)
        return {} if made is None else {field: made}

    # ------------------------------------------------------------------------------------------------- serving
    @property
    def base_url(self) -> str:
        assert self._server is not None, "the server runs inside `async with`"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client finds in its environment."""
        return {self.key_variable: self.api_key}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self.connections):
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def say_next(self, *script: Reply) -> None:
        """Leave the rest of the script, and play this when the model is asked the next time."""
        self._script[self._place :] = script
        self._faulted.discard(self._place)
        self._echo = None

    async def quiet(self) -> None:
        """Wait until no request is being answered."""
        while self._serving:
            await asyncio.wait(self._serving)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            request = await _read(reader)
            if request is not None:
                await self._answer(request, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away
        finally:
            writer.close()
            self.connections.discard(writer)
            self._serving.discard(task)

    async def _answer(self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            facts = self.facts(request)
        except LookupError as error:
            self.lookups.append(request)
            return await self._refuse(writer, 404, str(error))
        (self.requests if facts is None else self.lookups).append(request)
        if facts is not None:
            return await self._write(writer, 200, "application/json", orjson.dumps(facts))
        problem = None if self._has_key(request) else "the key is wrong"
        if problem is not None:
            return await self._refuse(writer, 401, problem)
        problem = self._refused_for(request)
        if problem is not None:
            self.problems.append(problem)
            return await self._refuse(writer, 400, problem)
        reply = self._script[self._place]
        self._responses += 1
        fault = reply.fault if reply.lasting or self._place not in self._faulted else None
        self._faulted.add(self._place)
        self.playing = fault
        if fault not in PLAYED_AGAIN and not reply.insist:
            self._place += 1
        if fault in INSTEAD_OF_AN_ANSWER:
            return await self._something_else(writer, fault)
        if not self.streams(request):
            return await self._play_whole(reply, fault, writer)
        return await self._play(reply, fault, reader, writer)

    async def _something_else(self, writer: asyncio.StreamWriter, fault: str) -> None:
        if fault == "reset":
            writer.transport.abort()
        elif fault == "busy":
            await self._refuse(writer, 429, "too many requests", "retry-after: 0\r\n")
        else:
            await self._write(writer, 503 if fault == "down" else 200, "text/html", _PAGE)

    def _refused_for(self, request: Received) -> str | None:
        try:
            problem = self.problem(request)
            return problem or (None if self._current(request.body) else "the script is at its end")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            return f"the request is malformed: {error!r}"

    def _has_key(self, request: Received) -> bool:
        given = (request.headers.get(name, "") for name in ("authorization", "x-api-key", "x-goog-api-key"))
        return any(value.removeprefix("Bearer ") == self.api_key for value in given)

    def _current(self, body: Any) -> Reply | None:
        """The reply to play. One that insists is over when its calls went well."""
        if self._place < len(self._script) and self._script[self._place].insist and self._place in self._faulted:
            envelopes = self.envelopes(body)
            if envelopes and all(isinstance(one, dict) and one.get("ok") for one in envelopes):
                self._place += 1
        return self._script[self._place] if self._place < len(self._script) else None

    async def _refuse(self, writer: asyncio.StreamWriter, status: int, message: str, more: str = "") -> None:
        body = orjson.dumps({"error": {"message": message, "type": "refused", "code": status}})
        await self._write(writer, status, "application/json", body, more)

    async def _write(self, writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, more: str = "") -> None:
        head = f"HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\nconnection: close\r\n{more}"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def _play_whole(self, reply: Reply, fault: str | None, writer: asyncio.StreamWriter) -> None:
        """Without a stream. A fault that would break a stream off breaks the connection off."""
        if fault in BREAKS_OFF:
            writer.transport.abort()
            return
        reply = _swollen(reply, fault)
        body = orjson.dumps(self.whole(reply, [self._number(one) for one in reply.calls]))
        await self._write(writer, 200, "application/json", body)

    async def _play(
        self, reply: Reply, fault: str | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        kind = "application/x-ndjson" if self.lines else "text/event-stream"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for data in self._sent(reply, fault):
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        if fault == "stall":
            await reader.read()  # until the client has had enough
        while fault == "trickle" and not reader.at_eof():
            writer.write(b"2\r\n\r\n\r\n" if self.lines else b"d\r\n: still here\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)
        if fault in ("drop", "reissue", "stall", "trickle"):
            await asyncio.sleep(0.01)  # so that what was written is not thrown away with the connection
            writer.transport.abort()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    # ---------------------------------------------------------------------------------------------- misbehaving
    def _sent(self, reply: Reply, fault: str | None) -> list[bytes]:
        if fault is None and self._echo is not None:
            sent, self._echo = self._echo, None
            return sent
        reply = _swollen(reply, fault)
        calls = [self._number(one) for one in reply.calls]
        frames = list(self.truncated(reply, calls) if fault == "truncate" else self.frames(reply, calls))
        if fault == "reorder":
            frames = list(_mixed(frames))
        sent = [self.encode(frame.payload, number) for number, frame in enumerate(frames)]
        end = next((place for place, frame in enumerate(frames) if frame.end), len(frames))
        last = max((place for place, frame in enumerate(frames) if frame.part is not None), default=end - 1)
        if fault == "empty":
            return []
        if fault == "echo":
            self._echo = sent
        if fault in ("drop", "stall", "trickle"):
            return sent[:last]
        if fault == "reissue":
            return sent[:end]
        if fault == "error":
            return [*sent[:last], self.encode(self.failure(), last)]
        if fault == "duplicate":
            return [data for data in sent for _ in range(2)]
        if fault == "garble":
            garbage = self.encode(_GARBLED, 0)
            return [garbage, *(piece for data in sent[:end] for piece in (data, garbage)), *sent[end:]]
        if fault == "nonsense":
            garbage = b"".join(self.encode(one, 0) for one in _NONSENSE) + (b"" if self.lines else b"nonsense\n\n")
            return [garbage, *(piece for data in sent[:end] for piece in (data, garbage)), *sent[end:]]
        return sent

    def _number(self, scripted: ScriptedCall) -> NumberedCall:
        self._numbers += 1
        return NumberedCall(self._numbers, self.new_id(self._numbers), scripted.name, scripted.args)


def _deep() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(_DEEP):
        made = {"q": made}
    return made


def _misfits(name: str) -> list[ScriptedCall]:
    return [ScriptedCall("", {"q": 1}), *(ScriptedCall(name, args) for args in (["q"], 7, _deep()))]


def _swollen(reply: Reply, fault: str | None) -> Reply:
    if fault == "flood":
        return replace(reply, calls=[*reply.calls, *(ScriptedCall(f"flood_{n}", {"n": n}) for n in range(FLOOD))])
    if fault == "misfit":
        odd = [call for one in reply.calls[:1] for call in _misfits(one.name)]
        return replace(reply, calls=[*odd, *reply.calls])
    if fault == "huge":
        padded = [ScriptedCall(one.name, {**one.args, "padding": "x" * HUGE}) for one in reply.calls]
        return replace(reply, calls=padded)
    return reply


def _mixed(frames: Sequence[Frame]) -> Iterator[Frame]:
    """The pieces of different calls by turns; the order within each call, and what stands around them, is kept."""
    places = [place for place, frame in enumerate(frames) if frame.part is not None]
    if not places:
        yield from frames
        return
    yield from frames[: places[0]]
    calls: dict[int, list[Frame]] = {}
    for frame in frames[places[0] : places[-1] + 1]:
        calls.setdefault(frame.part if frame.part is not None else -1, []).append(frame)
    while any(calls.values()):
        for waiting in reversed(calls.values()):
            if waiting:
                yield waiting.pop(0)
    yield from frames[places[-1] + 1 :]


async def _read(reader: asyncio.StreamReader) -> Received | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest) if name}
    length = headers.get("content-length", "0")
    body = await reader.readexactly(int(length)) if length.isdecimal() else b""
    try:
        found = orjson.loads(body or b"null")
    except orjson.JSONDecodeError:
        found = None
    return Received(first.split(" ")[1], headers, found)


def refused_name(names: Iterable[object], pattern: str) -> str | None:
    """The first of the names that the pattern does not take, in a sentence."""
    wrong = [name for name in names if not isinstance(name, str) or not re.fullmatch(pattern, name, re.ASCII)]
    return f"the name {wrong[0]!r} does not match {pattern}" if wrong else None


def halves(text: str) -> tuple[str, str]:
    """Text in two pieces, as a stream has it."""
    middle = max(1, len(text) // 2)
    return text[:middle], text[middle:]


def pieces(text: str, size: int = 60_000) -> Iterator[str]:
    """Text in pieces: two, or as many as its length asks for."""
    if len(text) <= size:
        yield from halves(text)
    else:
        yield from (text[start : start + size] for start in range(0, len(text), size))


def at_the_end(items: Sequence[Any], name: str, value: str) -> list[Any]:
    """The last items of a list, as far back as the field of this name has this value."""
    return [*takewhile(lambda item: item.get(name) == value, reversed(items))][::-1]


def json_or_text(text: object) -> Any:
    """The JSON in a text; the text itself where there is none."""
    try:
        return orjson.loads(text) if isinstance(text, str) else text
    except orjson.JSONDecodeError:
        return text

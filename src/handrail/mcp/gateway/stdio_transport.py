"""A server as a child process: newline-delimited JSON-RPC over its pipes, bounded in every direction.

The SDK has a transport of this kind; this one differs where a server cannot be trusted. The child sees no variable that it was
not given by name, a line has a largest size, messages that nobody asked for have a largest rate, what it writes to standard
error is kept only at its end, and the whole process group is gone when the transport is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from handrail.mcp.gateway.limits import MessageLimit, UpstreamFault

_CHUNK = 65_536
_STDERR_LINES, _STDERR_BYTES = 40, 4_096
_MAX_GARBAGE_LINES = 100
_GRACE_SECONDS = 2.0
"""How long a server may take to leave after its standard input was closed; then it is ended."""
_SWEEP_SECONDS = 1.0

_UNUSABLE = ErrorData(code=PARSE_ERROR, message="its answer does not follow the protocol")

ReadStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class ChildProcess:
    """One run of a server. `fault` says why it ended, if it was not us."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        max_bytes: int,
        search_path: str | None,
    ) -> None:
        self._command = tuple(command)
        self._env = dict(env)
        self._cwd = cwd
        self._max_bytes = max_bytes
        self._search_path = search_path
        self.errors: deque[str] = deque(maxlen=_STDERR_LINES)
        """The last lines that it wrote to standard error."""
        self.fault: UpstreamFault | None = None
        self.closed = asyncio.Event()
        self.pid: int | None = None

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[ReadStreams]:
        process = await self._start()
        self.pid = process.pid
        incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        limit = MessageLimit()
        pumps = [
            asyncio.create_task(self._read(process, incoming, limit)),
            asyncio.create_task(self._write(process, outgoing, limit)),
            asyncio.create_task(self._read_errors(process)),
        ]
        try:
            yield received, sent
        finally:
            # A cancelled caller must not leave a process behind, so the end is carried out by a task of its own.
            ending = asyncio.ensure_future(self._end(process, pumps))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)
            while not ending.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(ending)
            for stream in (received, sent, incoming, outgoing):
                stream.close()

    async def _start(self) -> asyncio.subprocess.Process:
        name = self._command[0]
        # By the project's PATH, because the server gets an environment of its own, which may have none.
        program = shutil.which(name, path=self._search_path) if os.sep not in name else name
        if program is None:
            raise UpstreamFault(f'the command "{name}" is not found')
        try:
            return await asyncio.create_subprocess_exec(
                program,
                *self._command[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                cwd=self._cwd,
                # A group of its own, so that whatever the server starts can be ended with it.
                start_new_session=True,
                limit=_CHUNK,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UpstreamFault(f'the command "{name}" cannot be started ({reason})') from None

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        limit: MessageLimit,
    ) -> None:
        assert process.stdout is not None
        buffer = bytearray()
        garbage = 0
        try:
            while chunk := await process.stdout.read(_CHUNK):
                buffer += chunk
                while (end := buffer.find(b"\n")) >= 0:
                    line = bytes(buffer[:end]).strip()
                    del buffer[: end + 1]
                    if not line:
                        continue
                    if len(line) > self._max_bytes:
                        raise UpstreamFault(f"it sent a message of more than {self._max_bytes:,} bytes")
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        unusable = _error_for(line)
                        if unusable is None:
                            garbage += 1
                            # Some servers print a greeting to standard output. A few lines of that are borne; a flood is not.
                            if garbage > _MAX_GARBAGE_LINES:
                                raise UpstreamFault("it writes lines that are no messages") from None
                            continue
                        message = unusable
                    limit.count(message)
                    await incoming.send(SessionMessage(message))
                # A line without an end would be gathered for ever.
                if len(buffer) > self._max_bytes:
                    raise UpstreamFault(f"it sent a message of more than {self._max_bytes:,} bytes")
            self.fault = self.fault or UpstreamFault("it ended")
        except UpstreamFault as fault:
            self.fault = fault
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # we are leaving
        except OSError as error:
            self.fault = UpstreamFault(f"its output cannot be read ({error.strerror})")
        finally:
            self.closed.set()
            incoming.close()

    async def _write(
        self,
        process: asyncio.subprocess.Process,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        limit: MessageLimit,
    ) -> None:
        assert process.stdin is not None
        try:
            async for item in outgoing:
                if isinstance(item.message, JSONRPCRequest):
                    limit.expect()
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(data.encode() + b"\n")
                await process.stdin.drain()
        except (OSError, anyio.ClosedResourceError):
            self.fault = self.fault or UpstreamFault("it takes no more input")
            self.closed.set()

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        kept = b""
        with contextlib.suppress(OSError):
            while chunk := await process.stderr.read(_CHUNK):
                # Read all the time, also where nobody looks: a full pipe would stop the server in the middle of its work.
                *lines, kept = (kept + chunk)[-_STDERR_BYTES * _STDERR_LINES :].split(b"\n")
                kept = kept[-_STDERR_BYTES:]
                self.errors.extend(line[:_STDERR_BYTES].decode("utf-8", "replace") for line in lines)
            if kept:
                self.errors.append(kept.decode("utf-8", "replace"))

    async def _end(self, process: asyncio.subprocess.Process, pumps: list[asyncio.Task[None]]) -> None:
        """Close its input, give it time, end its group, and wait until it is gone."""
        assert process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.close()
        # It may be stuck in writing, which would keep it from seeing that its input is closed.
        pumps[0].cancel()
        # What it still writes is thrown away, because a server whose output is full cannot end.
        drain = asyncio.create_task(self._drain(process))
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                self._signal(process, sign)
            try:
                await asyncio.wait_for(self._exited(process), _GRACE_SECONDS if sign is None else _SWEEP_SECONDS)
                break
            except TimeoutError:
                continue
        self._signal(process, signal.SIGKILL)  # whatever it started and left behind
        for task in (*pumps, drain):
            task.cancel()
        await asyncio.gather(*pumps, drain, return_exceptions=True)
        self.closed.set()
        transport = getattr(process, "_transport", None)
        if transport is not None:
            # A grandchild may hold the pipes open; nothing public closes them.
            transport.close()

    @staticmethod
    async def _exited(process: asyncio.subprocess.Process) -> None:
        # `wait` also waits for the pipes, which a grandchild may hold.
        while process.returncode is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    @staticmethod
    async def _drain(process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        with contextlib.suppress(OSError, RuntimeError):
            while await process.stdout.read(_CHUNK):
                pass

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)


def _error_for(line: bytes) -> JSONRPCError | None:
    """What ends the call at once whose answer cannot be read, such as one with half a character; None if it is no answer."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    named = found.get("id") if isinstance(found, dict) and "method" not in found else None
    if isinstance(named, bool) or not isinstance(named, (int, str)):
        return None
    return JSONRPCError(jsonrpc="2.0", id=named, error=_UNUSABLE)

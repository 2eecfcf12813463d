"""The server over standard input and output, for the client that started the process.

While it serves, whatever the process or its children print goes to standard error: the wire is the protocol's alone. A
frame that is no message is answered with the protocol's error, and the rest continues.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any

import anyio
import orjson
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from handrail.contract.errors import UsageError
from handrail.mcp.server.governed_calls import CallKey
from handrail.mcp.server.live_calls import RequestContext
from handrail.mcp.server.options import McpOptions, Principal
from handrail.mcp.server.protocol import McpEndpoint
from handrail.mcp.server.tool_calls import McpToolCalls
from handrail.runtime.core import RuntimeCore

MAX_FRAME_BYTES = 4 * 1024 * 1024
_LOG = logging.getLogger("handrail.mcp")


class StdioTransport:
    """One client, whose answers are one stream."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self._unwritten: dict[object, tuple[CallKey, McpToolCalls]] = {}

    def principal(self, ctx: RequestContext) -> Principal:
        return self._principal

    def when_written(self, ctx: RequestContext, key: CallKey, calls: McpToolCalls) -> None:
        # By the request's id: on one pipe it is unique as long as its answer has not been written.
        self._unwritten[ctx.request_id] = (key, calls)

    async def written(self, message: SessionMessage) -> None:
        """The client's end of the pipe has taken this message."""
        body = message.message
        if self._unwritten and isinstance(body, (JSONRPCResponse, JSONRPCError)) and body.id in self._unwritten:
            key, calls = self._unwritten.pop(body.id)
            await calls.governed.delivered(key)


async def serve_stdio(
    runtime: RuntimeCore,
    options: McpOptions,
    principal: Principal,
    *,
    version: str = "",
    beside: AbstractAsyncContextManager[Any] | None = None,
) -> None:
    """Serve until the client closes its end. What runs `beside` it over the same runtime is left before the runtime closes."""
    check_wire(0, 1)
    transport = StdioTransport(principal)
    endpoint = McpEndpoint(runtime, options, transport)
    server = endpoint.server(version=version)
    async with runtime, beside or nullcontext(), _wire() as (reader, writer):
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](16)

        async def read() -> None:
            async with to_server:
                async for line in _lines(reader, writer):
                    message = _message(line, writer)
                    if message is not None:
                        await to_server.send(message)

        async def write() -> None:
            async with from_server:
                async for message in from_server:
                    if isinstance(message.message, JSONRPCError):
                        _LOG.warning("A client's request was refused with the error %d.", message.message.error.code)
                    body = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                    if not await _sent(writer, body):
                        return
                    await transport.written(message)

        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                tasks.start_soon(write)
                await server.run(incoming, outgoing, endpoint.opening(server))


def _message(line: bytes, writer: asyncio.StreamWriter) -> SessionMessage | None:
    """The message in a frame; a frame that is none is answered here."""
    if not line.strip():
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        message = None
    if message is not None and not isinstance(message, JSONRPCNotification):
        return SessionMessage(message)
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        _refuse(writer, PARSE_ERROR, "Parse error", None)
        return None
    if message is not None and "id" not in found:  # with an id that is none it is a request, and is answered
        return SessionMessage(message)
    named = found.get("id") if isinstance(found, dict) else None
    known = named if isinstance(named, (str, int)) and not isinstance(named, bool) else None
    said = "A frame is one JSON-RPC message; batches are not taken." if isinstance(found, list) else "Invalid request"
    _refuse(writer, INVALID_REQUEST, said, known)
    return None


def _refuse(writer: asyncio.StreamWriter, code: int, message: str, named: str | int | None) -> None:
    _LOG.warning("A client sent a frame that is no message: %s", message)
    body = {"jsonrpc": "2.0", "id": named, "error": {"code": code, "message": message}}
    writer.write(_frame(body))


def _frame(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body) + b"\n"
    except TypeError:  # a number of more than 64 bits, such as a client may have for its request's id
        return json.dumps(body).encode() + b"\n"


async def _lines(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """The frames; one that is too large is skipped to its end and answered."""
    skipping = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            # What is over the limit is taken out piece by piece: the next frame begins after the next line's end.
            await reader.readexactly(max(error.consumed, 1))
            if not skipping:
                _refuse(writer, INVALID_REQUEST, f"A frame has at most {MAX_FRAME_BYTES} bytes.", None)
            skipping = True
            continue
        except asyncio.IncompleteReadError as error:
            if error.partial.strip() and not skipping:
                yield error.partial
            return
        if not skipping:
            yield line
        skipping = False


async def _sent(writer: asyncio.StreamWriter, body: dict[str, Any]) -> bool:
    """Write a message, and wait until the pipe has taken it; whether it did."""
    if writer.is_closing():
        return False
    writer.write(_frame(body))
    try:
        await writer.drain()
        # `drain` returns when little is left in memory; a call counts as answered only when the pipe has all of it.
        while writer.transport.get_write_buffer_size():
            if writer.is_closing():
                return False
            await asyncio.sleep(0.005)
    except (ConnectionError, OSError):
        return False
    return not writer.is_closing()


def check_wire(reading: int, writing: int) -> None:
    """Refuse descriptors that no client holds the other end of, such as a file or /dev/null, which cannot be waited for."""
    for descriptor, name in ((reading, "input"), (writing, "output")):
        with suppress(OSError):
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
                continue
        raise UsageError(f"Standard {name} leads to no MCP client; let the client start this command.")


@asynccontextmanager
async def _wire() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """The client's pipes, on descriptors of our own; what others write to standard output goes to standard error."""
    loop = asyncio.get_running_loop()
    wire_in, wire_out = os.dup(0), os.dup(1)
    # A handler that reads standard input, or a child that inherits it, must not take the client's frames.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    # A stray `print` would be a frame that is none, and end the client's connection.
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=MAX_FRAME_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(wire_in, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(wire_out, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError, OSError, BrokenPipeError):
            await writer.wait_closed()

"""The parent's side of the child process that runs a model (`inference_process.py`): starts it, asks it, stops it.

One request at a time; others wait. A child that dies or falls silent ends its request with an error that may pass, and the next
request starts it anew. Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from handrail.contract.model import ModelError

_LOG = logging.getLogger("handrail.model")
_ENGINE = Path(__file__).with_name("inference_process.py")
_LOAD_SECONDS = 600.0
"""A large file on a slow disk takes long."""
_STOP_SECONDS = 2.0
_MAX_LINE = 16 * 1024 * 1024


@dataclass(slots=True)
class EngineFigures:
    """What the engine measured."""

    load_seconds: float = 0.0
    memory_bytes: int = 0
    tokens_per_second: float = 0.0
    output_tokens: int = 0
    starts: int = 0
    cancelled: int = 0
    """Requests that the engine broke off before their end."""


class EngineProcess:
    """The engine of one model file."""

    def __init__(self, path: Path, *, context: int, idle_seconds: float = 60.0) -> None:
        self.path = path
        self.figures = EngineFigures()
        self._context = context
        self._idle = idle_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._loading: asyncio.Task[None] | None = None
        self._errors: deque[str] = deque(maxlen=20)
        self._reading_errors: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._number = 0

    @property
    def pid(self) -> int | None:
        """The child that runs now, if one does."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    async def load(self) -> None:
        """Start the child and wait until the model can be asked; `ModelError` if that fails. Does nothing if it runs."""
        if self._loading is None or (self._loading.done() and self.pid is None):
            self._loading = asyncio.create_task(self._start())
        # A turn that is cancelled while the model loads leaves it to load for the next one.
        await asyncio.shield(self._loading)

    async def _start(self) -> None:
        await self._stop()
        self.figures.starts += 1
        # With busy waiting, the engine's threads would hold up each other and the server wherever cores are shared.
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ}  # noqa: TID251  # the child's own environment
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the folder of the script holds modules named like packages
            str(_ENGINE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            # asyncio takes lines of 64 KiB at most by default.
            limit=_MAX_LINE,
            start_new_session=True,  # Ctrl-C is for the parent, which stops the child
        )
        self._errors.clear()
        self._reading_errors = asyncio.create_task(self._read_errors(self._process))
        try:
            await self._send({"load": {"path": str(self.path), "context": self._context}})
            message = await self._receive(_LOAD_SECONDS)
            if "ready" not in message:
                raise ModelError(
                    f'The model file "{self.path.name}" cannot be run.',
                    detail=self._load_failure(message),
                    misconfigured=True,
                )
        except BaseException:
            await self._stop()
            raise
        ready = message["ready"]
        self.figures.load_seconds = ready["loadSeconds"]
        self._measured(ready)

    def _load_failure(self, message: dict[str, Any]) -> str:
        reason = " ".join(str(message.get("failed", "")).split())[:300].rstrip(".")
        if "libgomp" in reason:
            return "The engine of local models needs the system library libgomp; on Debian, `apt-get install libgomp1`."
        return f'The model file "{self.path.name}" cannot be run: {reason}.'

    async def generate(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The engine's messages for one request: pieces of text, `done` last. Closing it cancels the request."""
        async with self._turn:
            await self.load()
            self._number += 1
            number, is_over = self._number, False
            await self._send({"id": number, "body": body})
            try:
                while not is_over:
                    message = await self._receive(self._idle)
                    if message.get("id") != number:  # the end of a request that was cancelled
                        self.figures.cancelled += message.get("done", {}).get("reason") == "cancelled"
                        continue
                    is_over = "done" in message or "failed" in message
                    if "failed" in message:
                        reason = " ".join(str(message["failed"]).split())[:300]
                        raise ModelError(
                            "The local model could not answer.", detail=f"The local model failed: {reason}"
                        )
                    if "done" in message:
                        self._measured(message["done"])
                        self.figures.output_tokens += message["done"]["output"]
                    yield message
            finally:
                if not is_over and self.pid is not None:
                    self._cancel(number)

    def _cancel(self, number: int) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # Not waited for: this runs while somebody is being cancelled, and one short line always has room.
        self._process.stdin.write(orjson.dumps({"cancel": number}) + b"\n")

    def _measured(self, measured: dict[str, Any]) -> None:
        self.figures.memory_bytes = measured["memoryBytes"] or self.figures.memory_bytes
        self.figures.tokens_per_second = measured["tokensPerSecond"] or self.figures.tokens_per_second

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(orjson.dumps(message) + b"\n")
            await self._process.stdin.drain()
        except OSError:
            raise await self._died() from None

    async def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.readline()
        except TimeoutError:
            await self._stop()
            raise ModelError("The local model did not answer in time.", retryable=True) from None
        if not line:
            raise await self._died()
        message: dict[str, Any] = orjson.loads(line)
        return message

    async def _died(self) -> ModelError:
        process = self._process
        await self._stop()
        code = process.returncode if process is not None else None
        last = f': "{self._errors[-1]}"' if self._errors else ""
        detail = (
            f"The process of the local model ended unexpectedly (code {code}){last}; the next request starts it again."
        )
        return ModelError("The local model ended unexpectedly.", retryable=True, detail=detail)

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        """What the engine says on standard error is kept for when it dies, and logged for those who look."""
        assert process.stderr is not None
        while line := await process.stderr.readline():
            text = line.decode("utf-8", "replace").strip()[:500]
            self._errors.append(text)
            _LOG.debug("engine: %s", text)

    async def close(self) -> None:
        """Stop the child, whatever it does."""
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self._loading = None
        await self._stop()

    async def unload(self) -> None:
        """Stop the child when the request that runs is over."""
        async with self._turn:
            await self.close()

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # the end of its input ends it
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        # To the end: the last words of an engine that died are the reason that is given.
        if self._reading_errors is not None:
            await asyncio.gather(self._reading_errors, return_exceptions=True)
            self._reading_errors = None

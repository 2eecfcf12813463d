"""Reads the model's events from its connection and hands each on at once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from handrail.contract.live import Direct, LiveConnection, LiveEvent


class ModelStream:
    """`take` gets every event; `failed` learns what `take` or the connection raised."""

    def __init__(
        self,
        connection: LiveConnection,
        take: Callable[[LiveEvent], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self._take = take
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, not before the conversation stands."""
        loop = asyncio.get_running_loop()
        if isinstance(self._connection, Direct):
            loop.call_soon(self._connection.hand_to, self._take_or_fail)
        else:
            self._task = loop.create_task(self._read())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for event in self._connection.events():
                self._take(event)
        except Exception as error:  # noqa: BLE001  # whatever it is, the user learns that it is over
            self._failed(error)

    def _take_or_fail(self, event: LiveEvent) -> None:
        try:
            self._take(event)
        except Exception as error:  # noqa: BLE001  # as above; the connection is not to be torn by it
            self._failed(error)

"""OpenAI Realtime on the openai SDK, which makes the connection and carries the frames."""

from __future__ import annotations

from typing import Any

import orjson
from openai import AsyncOpenAI, OpenAIError
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from handrail.clients.live.link import Gone, LiveLink, Socket
from handrail.clients.live.sockets import ENDINGS, ending, endings
from handrail.contract.live import LiveConfig, LiveLimits
from handrail.providers.openai_realtime.messages import TRANSCRIBER
from handrail.providers.openai_realtime.transport import INPUT_RATES, OUTPUT_RATE, PROVIDER, OpenAIRealtimeTransport

_NAME = "OpenAI Realtime"
_MOST_BYTES = 16 * 1024 * 1024
"""The largest frame that is read; the SDK itself sets no limit."""


class OpenAIRealtime:
    """A `LiveModel`. `transcriber` is the model that writes down what the user says."""

    provider = PROVIDER
    input_rates = INPUT_RATES
    output_rate = OUTPUT_RATE

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        transcriber: str = TRANSCRIBER,
        limits: LiveLimits | None = None,
    ) -> None:
        self.name = model
        self._transcriber = transcriber
        self._limits = limits or LiveLimits()
        self._client = AsyncOpenAI(api_key=api_key, websocket_base_url=base_url)
        self._address = base_url

    async def connect(self, config: LiveConfig) -> LiveLink:
        transport = OpenAIRealtimeTransport(config, transcriber=self._transcriber)
        return await LiveLink(transport, self._dial, self._limits, INPUT_RATES).start()

    async def close(self) -> None:
        await self._client.close()

    async def _dial(self, setup: dict[str, Any]) -> Socket:
        manager = self._client.realtime.connect(
            model=self.name, websocket_connection_options={"max_size": _MOST_BYTES, "max_queue": 64}
        )
        try:
            with endings(_NAME, setting_up=True, address=self._address):
                connection = await manager.enter()
        except OpenAIError as error:
            raise Gone(f"{_NAME} cannot be used ({type(error).__name__}): {error}", for_good=True) from None
        socket = _OpenAISocket(connection)
        try:
            await socket.set_up(setup)
        except BaseException:
            socket.abort()
            raise
        return socket


class _OpenAISocket:
    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self._connection = connection
        self._wire = connection._connection

    async def set_up(self, setup: dict[str, Any]) -> None:
        """Ask for the session as it is wanted, and wait until the provider has it so."""
        with endings(_NAME, setting_up=True):
            await self._connection.send_raw(orjson.dumps(setup).decode())
            while True:
                event = _object(await self._connection.recv_bytes())
                if event.get("type") == "session.updated":
                    return
                if event.get("type") == "error":
                    error = event.get("error")
                    message = error.get("message") if isinstance(error, dict) else None
                    raise Gone(f"{_NAME} refused the session: {message or 'without a reason'}", for_good=True)

    async def send(self, message: dict[str, Any]) -> None:
        with endings(_NAME):
            await self._connection.send_raw(orjson.dumps(message).decode())

    async def send_frame(self, text: str) -> None:
        """Audio goes past the SDK's queue for reconnects, which is not used here and takes longer than the frame."""
        try:
            await self._wire.send(text)
        except ENDINGS as error:
            raise ending(_NAME, error) from None

    async def receive(self) -> bytes | str:
        try:
            return await self._connection.recv_bytes()
        except ENDINGS as error:
            raise ending(_NAME, error) from None

    async def close(self) -> None:
        with endings(_NAME):
            await self._connection.close()

    def abort(self) -> None:
        self._wire.transport.abort()


def _object(raw: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}

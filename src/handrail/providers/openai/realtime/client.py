"""OpenAI Realtime on the openai SDK, which makes the connection and sends what is no audio."""

from __future__ import annotations

from typing import Any, cast

# The SDK would import these two with the first connection, in the event loop, where everybody else's sound waits for it.
import anyio._backends._asyncio  # noqa: F401
import orjson
import websockets.sync.client  # noqa: F401
from openai import AsyncOpenAI, OpenAIError
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.websocket_connection_options import WebSocketConnectionOptions

from handrail.contract.live import LiveConfig, LiveLimits
from handrail.providers.live_link import ConnectionEnded, LiveLink, LiveSocket
from handrail.providers.live_socket import OPTIONS, SdkSocket
from handrail.providers.openai import REALTIME
from handrail.providers.openai.realtime.messages import TRANSCRIBER
from handrail.providers.openai.realtime.transport import INPUT_RATES, OUTPUT_RATE, PROVIDER, OpenAIRealtimeTransport
from handrail.providers.socket_errors import endings

_NAME = REALTIME.vendor


class OpenAIRealtime:
    """A `LiveModel`. `transcriber` is the model that writes down what the user says."""

    provider = PROVIDER
    input_rates = INPUT_RATES
    output_rate = OUTPUT_RATE
    changes_tools = True

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

    async def _dial(self, setup: dict[str, Any]) -> LiveSocket:
        options = cast(WebSocketConnectionOptions, dict(OPTIONS))
        manager = self._client.realtime.connect(model=self.name, websocket_connection_options=options)
        try:
            with endings(_NAME, setting_up=True, address=self._address):
                connection = await manager.enter()
        except OpenAIError as error:
            raise ConnectionEnded(f"{_NAME} cannot be used ({type(error).__name__}): {error}", for_good=True) from None
        socket = _OpenAISocket(connection)
        try:
            await socket.set_up(setup)
        except BaseException:
            socket.abort()
            raise
        return socket


class _OpenAISocket(SdkSocket):
    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        super().__init__(_NAME, connection._connection)
        self._connection = connection

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
                    raise ConnectionEnded(
                        f"{_NAME} refused the session: {message or 'without a reason'}", for_good=True
                    )

    async def send(self, message: dict[str, Any]) -> None:
        with endings(_NAME):
            await self._connection.send_raw(orjson.dumps(message).decode())

    async def close(self) -> None:
        with endings(_NAME):
            await self._connection.close()


def _object(raw: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}

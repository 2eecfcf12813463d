"""How every text client asks its provider: one request, a stream of bytes, a pure transport that reads it.

A client is this class with a provider's transport and a `ModelEndpoint`, the few lines on its SDK. They share time-outs, repeated
requests where no answer had begun, and that every failure is a `ModelError` in a sentence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from handrail.contract.call import IdScope
from handrail.contract.model import ModelError, ModelEvent, ModelRequest
from handrail.providers.context_windows import context_window
from handrail.providers.event_stream import (
    Decoder,
    LineDecoder,
    ServerSentEvents,
    StreamCounters,
    StreamReader,
    WholeBodyDecoder,
)

_LOG = logging.getLogger("handrail.model")
_LOG.addHandler(logging.NullHandler())  # where nobody set up a log, whoever asks the model shows the detail
_PASSING = frozenset({408, 409, 425, 429})
_LONGEST_WAIT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How long a client waits, in seconds, and how often it asks again."""

    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
    """For the first byte of an answer, and between any two."""
    total_seconds: float = 300.0
    retries: int = 2
    """How often a request is sent again that failed before its answer began."""
    first_wait: float = 0.5
    answer_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer that has begun."""

    content_type: str
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Failure:
    """What an SDK's exception says: the HTTP status, if the provider answered, its words, and its wish for a pause."""

    status: int | None
    message: str = ""
    retry_after: str = ""


class ModelEndpoint(Protocol):
    """A provider's SDK, as far as a client needs it."""

    def open(self, body: dict[str, Any]) -> AbstractAsyncContextManager[RawAnswer]:
        """Send the request; the answer is closed with the context."""
        ...

    def failure(self, error: Exception) -> Failure | None:
        """What this exception means; None if it is not one of the wire's."""
        ...

    async def close(self) -> None: ...


class TextTransport(Protocol):
    """A provider's transport module."""

    PROVIDER: str
    WHO: str
    ID_SCOPE: IdScope
    """For how long a server of this protocol keeps ids apart, whoever runs it."""

    def body(self, request: ModelRequest, *, model: str) -> dict[str, Any]: ...

    def new_reader(self, model: str, counters: StreamCounters, id_scope: IdScope) -> StreamReader: ...


class _NotBegun(Exception):
    """The request failed before an answer began, so that sending it again repeats nothing."""

    def __init__(self, error: ModelError, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait


class StreamingModel:
    """A `Model` behind HTTP."""

    def __init__(
        self,
        name: str,
        transport: TextTransport,
        endpoint: ModelEndpoint,
        limits: ClientLimits | None = None,
        *,
        lines: bool = False,
        key_name: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._transport = transport
        self._endpoint = endpoint
        self._limits = limits or ClientLimits()
        self._lines = lines
        self._key_name = key_name
        self._sleep = sleep
        self.counters = StreamCounters()
        """What was not acted on, over all answers."""
        self.id_scope: IdScope = transport.ID_SCOPE
        """`open_model` widens it where the endpoint is known to keep its ids apart for longer."""
        self.address = ""
        """Where the settings say that it is, for the detail of one that cannot be reached."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def provider(self) -> str:
        return self._transport.PROVIDER

    @property
    def context_window(self) -> int | None:
        return context_window(self.provider, self._name)

    async def close(self) -> None:
        await self._endpoint.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask, again if the provider could not begin. Once something came, a failure is the caller's to judge.

        The log has the whole reason; whoever talks to the model reads less.
        """
        try:
            async with aclosing(self._asked(request)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            _LOG.warning("The model %s could not answer: %s", self._name, error.detail)
            raise

    async def _asked(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        body = self._transport.body(request, model=self._name)
        for attempt in range(self._limits.retries + 1):
            try:
                async with aclosing(self._once(body)) as events:
                    async for event in events:
                        yield event
            except _NotBegun as failure:
                if not failure.error.retryable or attempt == self._limits.retries:
                    raise failure.error from None
                usual = self._limits.first_wait * 2**attempt
                # A provider may wish for minutes. Whoever waits for the answer hears sooner that there is none.
                await self._sleep(usual if failure.wait is None else min(failure.wait, _LONGEST_WAIT))
            else:
                return

    async def _once(self, body: dict[str, Any]) -> AsyncGenerator[ModelEvent, None]:
        reader = self._transport.new_reader(self._name, self.counters, self.id_scope)
        async with AsyncExitStack() as stack:
            answer = await self._begin(stack, body)
            too_large = self.counters.oversized_events
            pieces = aclosing(self._pieces(answer))
            async for events in await stack.enter_async_context(pieces):
                for event in events:
                    for model_event in reader.feed(event):
                        yield model_event
                # Not at the end of the stream: some servers keep it open when the answer is over.
                if reader.finished:
                    break
            if self.counters.oversized_events > too_large:
                raise ModelError(f"{self._transport.WHO} sent more in one event than is read.", retryable=True)
            for model_event in reader.end():
                yield model_event

    async def _begin(self, stack: AsyncExitStack, body: dict[str, Any]) -> RawAnswer:
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await stack.enter_async_context(self._endpoint.open(body))
        except TimeoutError:  # whoever waited so long may not want to wait again; that is the caller's to say
            raise self._silent() from None
        except Exception as error:
            failure = self._endpoint.failure(error)
            if failure is None:
                raise
            raise _NotBegun(self._explained(failure, error), _seconds(failure.retry_after)) from error

    async def _pieces(self, answer: RawAnswer) -> AsyncGenerator[Iterable[bytes], None]:
        """The events of the answer, some at a time. A connection that breaks ends them: the reader knows if that was all."""
        decoder = self._decoder(answer.content_type)
        now = asyncio.get_running_loop().time
        deadline, size = now() + self._limits.total_seconds, 0
        while True:
            try:
                async with asyncio.timeout(min(self._limits.idle_seconds, deadline - now())):
                    data = await anext(answer.chunks, None)
            except TimeoutError:
                raise self._silent() from None
            except Exception as error:
                if self._endpoint.failure(error) is None:
                    raise
                return  # half an event may be left, and half an event is none
            if data is None:
                yield decoder.end()
                return
            size += len(data)
            if size > self._limits.answer_bytes:
                raise ModelError(f"The answer of {self._transport.WHO} is longer than is read.")
            yield decoder.feed(data)

    def _decoder(self, content_type: str) -> Decoder:
        if self._lines:
            return LineDecoder(self.counters)
        plain = content_type.partition(";")[0].strip().lower() == "application/json"
        return WholeBodyDecoder(self.counters) if plain else ServerSentEvents(self.counters)

    def _silent(self) -> ModelError:
        return ModelError(f"{self._transport.WHO} did not answer in time.", retryable=True)

    def _explained(self, failure: Failure, error: Exception) -> ModelError:
        who, status = self._transport.WHO, failure.status
        if status is None:
            at, advice = (
                (f" at {self.address}", '; "base_url" in [agent] says where it is') if self.address else ("", "")
            )
            detail = f"{who} cannot be reached{at} ({type(error).__name__}){advice}."
            return ModelError(f"{who} cannot be reached.", retryable=True, detail=detail)
        if status in (401, 403):
            advice = f"check {self._key_name}" if self._key_name else "it wants a key"
            detail = f"{who} refused access (status {status}); {advice}."
            return ModelError(f"{who} refused access.", detail=detail, misconfigured=True)
        said = f": {' '.join(failure.message.split())[:200]}" if failure.message else ""
        if status == 404:
            unknown = f'{who} does not know the model "{self._name}"'
            detail = f"{unknown}, or the base URL is wrong (404){said}."
            return ModelError(f"{unknown}.", detail=detail, misconfigured=True)
        retryable = status in _PASSING or status >= 500
        answered = f"{who} answered with status {status}"
        return ModelError(f"{answered}.", retryable=retryable, detail=f"{answered}{said}.")


def failure_of(error: Exception, status: object, headers: Mapping[str, str] | None, message: str) -> Failure:
    """A failure from what most SDKs' exceptions carry."""
    wait = (headers or {}).get("retry-after", "")
    return Failure(status if isinstance(status, int) else None, message or str(error), wait)


def _seconds(text: str) -> float | None:
    try:
        # A date, the other form of `Retry-After`, is left aside: then the usual pause is made.
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 3600 else None

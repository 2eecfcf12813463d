"""The services of a running process: opened in one order before the first call, closed in the reverse order at the stop.

One task opens and closes all of them, because libraries with task groups insist that a context is left by the task that
entered it, and a server is often stopped by another task than the one that started it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from difflib import get_close_matches
from typing import Any

from handrail.authoring.services import ServiceFactory, entered_by
from handrail.contract.errors import ConfigError, HandrailError, ServiceError

OPEN_SECONDS = 60.0
"""A service that has not opened by then fails the start, instead of holding it for ever."""
_LOG = logging.getLogger("handrail.services")


@asynccontextmanager
async def _async_manager() -> AsyncIterator[None]:
    yield


@contextmanager
def _manager() -> Iterator[None]:
    yield


_AsyncManager = type(_async_manager())
_Manager = type(_manager())


class Services:
    """Open services, by name. `open` and `close` may be called by different tasks; after `close` it can be opened again."""

    def __init__(
        self,
        factories: Iterable[ServiceFactory],
        *,
        configured: Iterable[str] = (),
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        self._factories = tuple(factories)
        self.configured = frozenset(configured)
        """Every service that the project could have had opened: a misspelt name is near one of them."""
        self._open_seconds = open_seconds
        self._task: asyncio.Task[list[str]] | None = None
        self._stop: asyncio.Event | None = None
        self.opened: Mapping[str, Any] = {}
        """The services that are open now, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(factory.name for factory in self._factories)

    async def open(self) -> dict[str, Any]:
        """Open them all. `ServiceError` or `ConfigError` with one sentence that names the service which could not be opened;
        then none stays open."""
        if not self._factories:
            return {}
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._stop = asyncio.Event()
        # One task opens and closes them all: many libraries demand that a context is left by the task that entered it.
        self._task = loop.create_task(self._hold(opened, self._stop), name="handrail services")
        try:
            services = await asyncio.shield(opened)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            if not opened.done() or opened.cancelled() or opened.exception() is not None:
                await asyncio.gather(self._task, return_exceptions=True)
                self._task = None
        self.opened = services
        return services

    async def close(self) -> list[str]:
        """Close them in reverse order. One that fails to close is reported in the log, and the others are closed; a sentence
        about each that failed is returned."""
        task, self._task = self._task, None
        self.opened = {}
        if task is not None and self._stop is not None:
            self._stop.set()
            for failures in await asyncio.gather(task, return_exceptions=True):
                return failures if isinstance(failures, list) else []
        return []

    async def _hold(self, opened: asyncio.Future[dict[str, Any]], stop: asyncio.Event) -> list[str]:
        services: dict[str, Any] = {}
        stacks: list[tuple[str, AsyncExitStack]] = []
        failure: HandrailError | None = None
        unclosed: list[str] = []
        try:
            for factory in self._factories:
                # One for each, so that the one that fails to close is known by name and the others are closed all the same.
                stack = AsyncExitStack()
                limit = asyncio.timeout(self._open_seconds)
                try:
                    async with limit:
                        services[factory.name] = await _open_into(stack, factory)
                        if services[factory.name] is None:
                            await stack.aclose()
                            raise ServiceError(
                                f"its factory gave None; let it return or yield what tools reach as ctx.{factory.name}"
                            )
                except (Exception, SystemExit) as error:  # noqa: BLE001 - a factory is any code
                    failure = self._failure(factory.name, error, expired=limit.expired())
                    return unclosed
                stacks.append((factory.name, stack))
            opened.set_result(services)
            await stop.wait()
            return unclosed
        finally:
            # In reverse, because a service may use those that were opened before it.
            for name, stack in reversed(stacks):
                unclosed.extend(await _close(name, stack))
            if failure is not None:
                opened.set_exception(failure)

    def _failure(self, name: str, error: BaseException, *, expired: bool) -> HandrailError:
        _LOG.debug('The service "%s" could not be opened.', name, exc_info=error)
        if expired:
            return ServiceError(f'The service "{name}" did not open within {self._open_seconds:g} seconds.')
        kind = ConfigError if isinstance(error, ConfigError) else ServiceError
        made = kind(f'The service "{name}" could not be opened: {reason_of(error)}.')
        made.__cause__ = error
        return made


@asynccontextmanager
async def open_service(factory: ServiceFactory) -> AsyncIterator[Any]:
    """One service, for as long as the block runs."""
    services = Services([factory])
    try:
        yield (await services.open())[factory.name]
    finally:
        await services.close()


async def _open_into(stack: AsyncExitStack, factory: ServiceFactory) -> Any:
    """Call a factory, whichever of the kinds of function it is; how to close what it supplies is left on the stack."""
    function: Callable[..., Any] = factory.function
    if inspect.isasyncgenfunction(function):
        return await stack.enter_async_context(asynccontextmanager(function)(**factory.arguments))
    if inspect.isgeneratorfunction(function):
        return stack.enter_context(contextmanager(function)(**factory.arguments))
    made = factory.make()
    enter = entered_by(function)
    if enter == "__aenter__":
        return await stack.enter_async_context(made)
    if enter is not None:
        return stack.enter_context(made)
    # Of what a function returns, only what the decorators of contextlib made is entered: entering a database's own connection
    # begins a transaction.
    if isinstance(made, _AsyncManager):
        return await stack.enter_async_context(made)
    if isinstance(made, _Manager):
        return stack.enter_context(made)
    service = await made if inspect.isawaitable(made) else made
    stack.push_async_callback(_close_object, service)
    return service


async def _close(name: str, stack: AsyncExitStack) -> Iterable[str]:
    """A sentence, if it failed."""
    try:
        await stack.aclose()
    except Exception as error:  # noqa: BLE001 - the other services are to be closed all the same
        failure = f'The service "{name}" failed to close: {reason_of(error)}.'
        _LOG.warning("%s", failure)
        _LOG.debug('The service "%s" failed to close.', name, exc_info=error)
        return (failure,)
    return ()


def reason_of(error: BaseException) -> str:
    """An exception as part of a sentence: its first line, and its type where it is not one of our own sentences."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    if isinstance(error, HandrailError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _close_object(service: Any) -> None:
    """Close what a plain function made: by its `aclose` or its `close`, where it has one."""
    await call_hook(service, "aclose" if hasattr(service, "aclose") else "close")


async def call_hook(service: Any, hook: str, *args: Any, **keywords: Any) -> Any:
    """Call an optional method of a service, plain or async; None if it does not have it."""
    method = getattr(service, hook, None)
    if not callable(method):
        return None
    result = method(*args, **keywords)
    return await result if inspect.isawaitable(result) else result


def absent_capability(tool_id: str, name: str, known: Iterable[str]) -> str:
    """The sentence about a capability that a tool needs and a host does not have; `known` are the names that it does have."""
    near = get_close_matches(name, sorted(known), n=1)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    return (
        f'The tool "{tool_id}" needs the capability "{name}", which this host does not have{hint}; '
        f"[services.{name}] in handrail.toml supplies it, or `Runtime(capabilities=…)`."
    )


def needed_by(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """The capabilities that the tools of a registry name."""
    return {name for entry in entries for name in entry.get("capabilities", ())}

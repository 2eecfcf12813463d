"""One connection to one server: started when first needed, watched, restarted with a growing pause, stopped when idle.

A task of its own holds the connection, because the SDK insists that a context is left by the task that entered it. Calls only
wait for it: a server that hangs, floods or dies ends its own calls, and those of no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
import orjson
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from handrail.authoring.mcp.inspection import MAX_DEFINITION_BYTES
from handrail.authoring.mcp.lock import pin_of
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.contract.errors import JsonError
from handrail.contract.ports import Clock
from handrail.mcp.gateway.complete_results import completed
from handrail.mcp.gateway.http_transport import (
    LOST,
    SESSION_GONE,
    WRONG_CREDENTIALS,
    http_streams,
    own_code,
    wanted_scopes,
)
from handrail.mcp.gateway.limits import UpstreamFault
from handrail.mcp.gateway.stdio_transport import ChildProcess

State = Literal["stopped", "starting", "ready", "failed"]
Ask = Callable[[types.ElicitRequestParams], Awaitable[types.ElicitResult | types.ErrorData]]
"""Puts a server's question to the person behind the call that is running."""
CLIENT_NAME = "handrail"
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 60.0
_MAX_PAGES, _MAX_ROUNDS = 100, 5
_STABLE_SECONDS = 30.0
_LIST_SECONDS = 60.0
"""A call is made with definitions that the server showed at most this long ago, whether or not it speaks of changes."""
_ASKING: ContextVar[Ask | None] = ContextVar("asking", default=None)
"""The way to the person behind a call, in the tasks that carry it. What comes back over its own HTTP response has it too."""
_LOG = logging.getLogger("handrail.mcp.gateway")


class RawResult(RootModel[dict[str, Any]]):
    """A result as it was sent: what its parts have to be is checked against the pinned schema, not against one of now."""


class UpstreamUnavailable(Exception):
    """Nothing was sent: the server cannot be reached now. `retry_after` is in seconds."""

    def __init__(
        self,
        sentence: str,
        retry_after: float | None = None,
        *,
        unauthorized: bool = False,
        scopes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
        self.unauthorized = unauthorized
        """It wants other credentials."""
        self.scopes = scopes
        """What it wants the person to allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamDescription:
    """What a server offers: its tools as it describes them, and who it says it is."""

    definitions: Mapping[str, Mapping[str, Any]]
    pins: Mapping[str, str]
    identity: Mapping[str, str]
    repeated: frozenset[str] = frozenset()
    """Names that it lists more than once."""


@dataclass(slots=True)
class UpstreamConnection:
    """A connection that is up."""

    client: Client
    process: ChildProcess | None
    offer: UpstreamDescription
    listed_at: float
    stale: bool = False
    """The server has said that its tools changed."""
    listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: list[Ask | None] = field(default_factory=list)
    """The calls that run, each with the way to its person."""
    abandoned: bool = False
    """A call was given up without an answer: it may still run at the server, and ask."""
    retired: bool = False
    """The server has ended it. It makes no new calls, and is left when those that run have ended."""
    unused: asyncio.Event = field(default_factory=asyncio.Event)


class Upstream:
    """A server, for everybody or for one user. Its methods may be called from any task of the loop."""

    def __init__(
        self,
        config: UpstreamConfig,
        *,
        environment: Mapping[str, str],
        project: Path,
        clock: Clock,
        auth: httpx2.Auth | None = None,
        ask: bool = False,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.config = config
        self.state: State = "stopped"
        self.trouble = ""
        """Why it is not ready, in the words of a sentence about it."""
        self.starts = 0
        self.last_used = clock.monotonic()
        self.offer: UpstreamDescription | None = None
        """What it offered when it was last asked."""
        self._environment = environment
        self._project = project
        self._clock = clock
        self.auth = auth
        self._asks = ask
        self._jitter = jitter
        self._runner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[UpstreamConnection] | None = None
        self._stop = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        self._closing = False
        self._process: ChildProcess | None = None
        self._retired: dict[asyncio.Task[None], UpstreamConnection] = {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.state == "ready" else None

    @property
    def is_idle(self) -> bool:
        """Whether nobody would miss it at this moment."""
        live = self._ready.result() if self.state == "ready" and self._ready is not None else None
        return self.state in ("stopped", "failed") or (live is not None and not live.asking)

    @property
    def errors(self) -> tuple[str, ...]:
        """What its process last wrote to standard error."""
        return tuple(self._process.errors) if self._process is not None else ()

    # ------------------------------------------------------------------------------------------------ connection
    async def connection(self) -> UpstreamConnection:
        """The connection, made now if there is none; `UpstreamUnavailable` if there can be none."""
        self.last_used = self._clock.monotonic()
        for _ in range(2):  # one that the server has ended meanwhile is replaced
            if self._closing:
                raise UpstreamUnavailable(self._sentence("it is being stopped"))
            if self._ready is None or (self._ready.done() and self.state != "ready"):
                await self._begin()
            assert self._ready is not None
            # Shielded: several calls wait for one start, and one that is cancelled must not end it for the others.
            live = await asyncio.shield(self._ready)
            if self._is_due(live):
                await self._list_again(live)
            self.last_used = self._clock.monotonic()
            if not live.retired:
                return live
        raise UpstreamUnavailable(self._sentence("it ends each session at once"))

    def _is_due(self, live: UpstreamConnection) -> bool:
        return live.stale or self._clock.monotonic() - live.listed_at > _LIST_SECONDS

    async def _begin(self) -> None:
        wait = self._not_before - self._clock.monotonic()
        if wait > 0:
            raise UpstreamUnavailable(self._sentence(self.trouble), retry_after=round(wait, 1))
        if self._runner is not None and not self._runner.done():
            # The last connection is being left; a new one begins when its process is gone.
            # One process at a time: a server may hold a lock, a port or a file that the next one needs.
            await asyncio.wait([self._runner])
            if self._ready is not None and not self._ready.done():
                return
        self._ready = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_seen)
        self._stop = asyncio.Event()
        self.state = "starting"
        self.starts += 1
        self._runner = asyncio.create_task(self._run(self._ready, self._stop), name=f"mcp-{self.config.name}")

    async def _run(self, ready: asyncio.Future[UpstreamConnection], stop: asyncio.Event) -> None:
        started = self._clock.monotonic()
        trouble = ""
        scopes: tuple[str, ...] = ()
        try:
            async with self._connected() as live:
                self.state, self.trouble, self.offer = "ready", "", live.offer
                self.last_used = self._clock.monotonic()  # whoever waited for it has not used it yet
                ready.set_result(live)
                await self._watch(live, stop)
                trouble = str(live.process.fault or "") if live.process is not None and not stop.is_set() else ""
        except asyncio.CancelledError:
            trouble = "it was stopped"
            raise
        except BaseException as error:  # noqa: BLE001  # whatever a server, a transport or the SDK raises
            trouble, scopes = _reason(error), wanted_scopes(error)
        finally:
            process = self._process
            if (
                process is not None
                and process.fault is not None
                and trouble in ("", "it ended", "the connection closed")
            ):
                trouble = str(process.fault)
            self._ended(ready, trouble, scopes, lasted=self._clock.monotonic() - started)

    def _ended(
        self, ready: asyncio.Future[UpstreamConnection], trouble: str, scopes: tuple[str, ...], *, lasted: float
    ) -> None:
        if ready is not self._ready:
            return  # retired: another is in its place
        was_ready = self.state == "ready"
        self.state, self.trouble = ("failed" if trouble else "stopped"), trouble
        unauthorized = trouble == WRONG_CREDENTIALS
        if unauthorized or scopes:
            pass  # the next call may have other credentials, and need not wait
        elif trouble:
            self._failures = 1 if was_ready and lasted > _STABLE_SECONDS else self._failures + 1
            # Counted anew after a connection that lasted: a server that falls over at once is left alone for longer each time.
            pause = min(_MAX_PAUSE_SECONDS, _PAUSE_SECONDS * 2 ** (self._failures - 1))
            self._not_before = self._clock.monotonic() + pause * (1 + self._jitter() / 4)
            # Whoever waits for a start gets an exception; nobody else learns that a server went away.
            _LOG.log(logging.WARNING if was_ready else logging.DEBUG, "%s", self._sentence(trouble))
        else:
            self._failures = 0
        if not ready.done():
            ready.set_exception(
                UpstreamUnavailable(
                    self._sentence(trouble or "it is being stopped"), unauthorized=unauthorized, scopes=scopes
                )
            )

    async def _watch(self, live: UpstreamConnection, stop: asyncio.Event) -> None:
        """Until it is to stop, its process has gone, or nobody has used it for long."""
        watched = {asyncio.create_task(stop.wait()), asyncio.create_task(live.unused.wait())}
        if live.process is not None:
            watched.add(asyncio.create_task(live.process.closed.wait()))
        # Beside the watch and not in it, because a subscription that fails is no reason to end the connection.
        listener = asyncio.create_task(self._listen(live))
        try:
            while True:
                left = self.last_used + self.config.idle_seconds - self._clock.monotonic()
                if left <= 0 and not live.asking:
                    return
                done, _ = await asyncio.wait(watched, timeout=max(left, 1.0), return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return
        finally:
            for task in (*watched, listener):
                task.cancel()
            await asyncio.gather(*watched, listener, return_exceptions=True)

    async def _listen(self, live: UpstreamConnection) -> None:
        """Hear of changed tools from a server of the newer era, which tells only those who listen."""
        tools = live.client.server_capabilities.tools
        if live.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with contextlib.suppress(MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError, ValidationError):
            async with live.client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    live.stale = True

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[UpstreamConnection]:
        config = self.config
        connected: list[UpstreamConnection] = []

        async def notice(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                # A notice may come while the tools are still being listed, before there is a connection to mark.
                for one in connected:
                    one.stale = True

        async with contextlib.AsyncExitStack() as stack:
            limit = await stack.enter_async_context(_deadline(config.startup_seconds))
            client = Client(
                completed(self._transport()),
                client_info=types.Implementation(name=CLIENT_NAME, version="1.0.0"),
                message_handler=notice,
                elicitation_callback=partial(self._elicit, connected) if self._asks else None,
                cache=None,
            )
            await stack.enter_async_context(client)
            offer = await self._offer(client)
            limit.reschedule(None)
            live = UpstreamConnection(client, self._process, offer, self._clock.monotonic())
            connected.append(live)
            yield live

    def _transport(self) -> Any:
        config = self.config
        if config.command:
            # Only the variables that the project names: a server of others gets no key that happens to be in our environment.
            environment = {seen: value for seen, name in config.env.items() if (value := self._environment.get(name))}
            self._process = ChildProcess(
                config.command,
                env=environment,
                cwd=self._project / config.cwd if config.cwd else self._project,
                max_bytes=config.max_message_bytes,
                search_path=self._environment.get("PATH"),
            )
            return self._process.streams()
        headers = {}
        for header, name in config.headers.items():
            value = self._environment.get(name)
            if not value:
                raise UpstreamFault(f"the variable {name}, which its header {header} is taken from, is not set")
            headers[header] = value
        return http_streams(
            config.url,
            headers=headers,
            max_bytes=config.max_message_bytes,
            seconds=max(config.call_seconds, config.startup_seconds),
            auth=self.auth,
        )

    async def _offer(self, client: Client) -> UpstreamDescription:
        """Every tool that the server lists, page by page, within bounds."""
        definitions: dict[str, dict[str, Any]] = {}
        pins: dict[str, str] = {}
        repeated: set[str] = set()
        cursor: str | None = None
        if client.server_capabilities.tools is not None or client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            for _ in range(_MAX_PAGES):
                params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
                page = await client.session.list_tools(params=params)
                for tool in page.tools:
                    if tool.name in definitions:
                        repeated.add(tool.name)
                    # As it was sent, without the SDK's defaults: the pin is over these bytes, and must not change with the SDK.
                    definition = tool.model_dump(by_alias=True, mode="json", exclude_unset=True)
                    definitions[tool.name] = definition
                    with contextlib.suppress(JsonError, RecursionError, ValueError, TypeError):
                        # Without a pin it is never called.
                        if len(orjson.dumps(definition)) <= 2 * MAX_DEFINITION_BYTES:
                            pins[tool.name] = pin_of(definition)
                if len(definitions) > self.config.max_tools:
                    raise UpstreamFault(f'it lists more than {self.config.max_tools} tools ("max_tools")')
                # Some servers give the same cursor for ever.
                if page.next_cursor is None or page.next_cursor == cursor:
                    break
                cursor = page.next_cursor
            else:
                raise UpstreamFault(f"its list of tools does not end after {_MAX_PAGES} pages")
        info = client.server_info
        identity = {"protocol": client.protocol_version}
        if info is not None:
            identity |= {"name": info.name[:200], "version": info.version[:100]}
        return UpstreamDescription(
            definitions=definitions,
            # Two tools of one name: nobody could say which of them was judged.
            pins={name: pin for name, pin in pins.items() if name not in repeated},
            identity=identity,
            repeated=frozenset(repeated),
        )

    async def _list_again(self, live: UpstreamConnection) -> None:
        async with live.listing:
            if not self._is_due(live) or live.retired:
                return
            live.stale = False
            try:
                async with asyncio.timeout(self.config.startup_seconds):
                    # The moment of the question: what changes while the list is on its way is not in it.
                    asked_at = self._clock.monotonic()
                    live.offer = self.offer = await self._offer(live.client)
                    live.listed_at = asked_at
            except (UpstreamFault, MCPError, ValidationError, TimeoutError, OSError) as error:
                if self._retire(live, error):
                    return
                live.stale = True
                raise UpstreamUnavailable(self._sentence(f"its tools cannot be listed: {_reason(error)}")) from None

    async def _elicit(
        self,
        connected: Sequence[UpstreamConnection],
        context: ClientRequestContext,
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        asking = connected[0].asking if connected else []
        # Over HTTP, and in a result that wants input, a question comes in the answer to its own call.
        ask = _ASKING.get()
        if ask is None and len(asking) == 1 and not connected[0].abandoned:
            # Elsewhere nothing says which call it belongs to, but for one that is alone, with none before it that may still run.
            ask = asking[0]
        return await ask(params) if ask is not None and ask in asking else types.ElicitResult(action="decline")

    # ------------------------------------------------------------------------------------------------- requests
    async def request(
        self,
        live: UpstreamConnection,
        request: types.ClientRequest,
        *,
        seconds: float,
        progress: ProgressFnT | None = None,
        ask: Ask | None = None,
    ) -> dict[str, Any]:
        """The result of a request, as it was sent. What the server wants to know in between is asked of a person, or refused."""
        # For as long as this request runs. A question that comes with none running has nobody to answer it.
        live.asking.append(ask)
        carried = _ASKING.set(ask)
        answered = False
        try:
            # Bounded: a server could ask for input for ever, and hold the call and its person.
            for _ in range(_MAX_ROUNDS):
                answer = await live.client.session.send_request(
                    request, RawResult, request_read_timeout_seconds=seconds, progress_callback=progress
                )
                raw = answer.root
                if raw.get("resultType") != "input_required":
                    answered = True
                    return raw
                request = await self._answered(live, request, types.InputRequiredResult.model_validate(raw))
        except MCPError as error:
            answered = error.code != types.REQUEST_TIMEOUT and own_code(error) != LOST
            self._retire(live, error)
            raise
        finally:
            _ASKING.reset(carried)
            live.asking.remove(ask)
            live.abandoned |= not answered
            if live.retired and not live.asking:
                live.unused.set()
            self.last_used = self._clock.monotonic()
        raise UpstreamFault(f"it asked for input more than {_MAX_ROUNDS} times")

    def _retire(self, live: UpstreamConnection, error: BaseException) -> bool:
        """Whether the server has ended this connection's session: the next call begins another."""
        if not isinstance(error, MCPError) or own_code(error) != SESSION_GONE:
            return False
        if not live.retired:
            live.retired = True
            runner, self._runner, self._ready, self.state = self._runner, None, None, "stopped"
            assert runner is not None
            self._retired[runner] = live
            runner.add_done_callback(lambda task: self._retired.pop(task, None))
        if not live.asking:
            live.unused.set()
        return True

    async def _answered(
        self, live: UpstreamConnection, request: types.ClientRequest, wanted: types.InputRequiredResult
    ) -> types.ClientRequest:
        """The request once more, with answers to what the server wants to know."""
        responses: dict[str, Any] = {}
        for key, one in (wanted.input_requests or {}).items():
            context = ClientRequestContext(session=live.client.session, request_id=key, meta=None)
            answer = await live.client.session.dispatch_input_request(context, one)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            responses[key] = answer
        # It wants a retry without input; at once it would be the same question again.
        if not responses:
            await self._clock.sleep(0.1)
        assert request.params is not None
        update = {"input_responses": responses or None, "request_state": wanted.request_state}
        return request.model_copy(update={"params": request.params.model_copy(update=update)})

    async def stop(self) -> None:
        """End the connection and its process, and start no other."""
        self._closing = True
        await self.rest()

    async def rest(self) -> None:
        """End the connection; the next call makes another."""
        self._stop.set()
        for live in self._retired.values():
            live.unused.set()
        runners = {*self._retired, *([self._runner] if self._runner is not None else [])}
        left = [runner for runner in runners if not runner.done()]
        if left:
            # Politely first. A process that does not end by itself is killed where its transport is closed.
            _, late = await asyncio.wait(left, timeout=10)
            for runner in late:
                runner.cancel()
            if late:
                await asyncio.wait(late, timeout=5)

    def _sentence(self, trouble: str) -> str:
        return f'The MCP server "{self.config.name}" cannot be used: {trouble or "it ended"}.'


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """As `asyncio.timeout`, in words."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield limit
    except TimeoutError:
        if not limit.expired():
            raise
        raise UpstreamFault(f"it did not answer within {seconds:g} seconds") from None


def _reason(error: BaseException) -> str:
    """Why a connection failed, without what the server put into it."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, UpstreamFault):
        return str(error)
    if isinstance(error, MCPError):
        if error.code == types.CONNECTION_CLOSED:
            return "the connection closed"
        return error.message if own_code(error) is not None else f"it answered with the error {error.code}"
    if isinstance(error, ValidationError):
        return "its answers do not follow the protocol"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return f"the connection failed ({type(error).__name__})"


def _seen(future: asyncio.Future[Any]) -> None:
    """A start that nobody waits for any more may fail without a word from the loop."""
    if not future.cancelled():
        future.exception()

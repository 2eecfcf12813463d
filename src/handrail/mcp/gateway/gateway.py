"""The service behind `ctx.mcp_servers`: it has the configured servers, checks each call against its pin, and sends it once.

A call is sent at most once. What is not known to have been refused before it was sent is reported as such: for a tool that
writes, its outcome is unknown, and the ledger keeps it from being made again.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # spreads restarts; nothing that a test looks at
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from handrail.authoring.mcp.lock import LOCK_FILE, read_lock
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.authoring.source import UpstreamTool
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import CallLost, ConfigError, ErrorType, ToolError
from handrail.contract.ports import Clock
from handrail.mcp.gateway.http_transport import (
    FORBIDDEN,
    LOST,
    NOT_SENT,
    SESSION_GONE,
    UNAUTHORIZED,
    BearerToken,
    own_code,
    wanted_scopes,
)
from handrail.mcp.gateway.limits import UpstreamFault
from handrail.mcp.gateway.offerings import OfferKind, list_offered, prompt_offered, read_offered
from handrail.mcp.gateway.person import ask_person, show_blocks
from handrail.mcp.gateway.report import server_report
from handrail.mcp.gateway.result_envelopes import failed, response_of
from handrail.mcp.gateway.upstream import Upstream, UpstreamConnection, UpstreamUnavailable

IDEMPOTENCY_KEY = "handrail/idempotencyKey"
"""The member of `_meta` that names a writing call for servers that know it."""
_MAX_CONNECTIONS = 200
"""Connections of users to servers that each user signs in to; beyond it the one that was idle longest is ended."""


class ScopesWanted(ToolError):
    """A call was refused before it ran: the person would have to allow more."""

    def __init__(self, server: str, scopes: tuple[str, ...]) -> None:
        super().__init__(ErrorType.AUTH, f'The MCP server "{server}" does not allow this call with our credentials.')
        self.scopes = scopes


class Gateway:
    """The servers of a project. Connections are made on demand; `aclose` ends them all."""

    def __init__(
        self,
        servers: Mapping[str, UpstreamConfig],
        *,
        environment: Mapping[str, str],
        project: Path,
        clock: Clock,
    ) -> None:
        self.servers = dict(servers)
        self._environment = environment
        self._project = project
        self._clock = clock
        self._open: OrderedDict[tuple[str, str, str | None], Upstream] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._passing = {
            "resources": [name for name, one in self.servers.items() if one.resources],
            "prompts": [name for name, one in self.servers.items() if one.prompts],
        }
        self._identities: tuple[int, dict[str, Mapping[str, str]]] | None = None
        """When the lock was written, and the names that it has for servers."""

    def upstream(self, server: str, tenant: str = "", user: str | None = None) -> Upstream:
        """The connection to a server; one for each user, where each signs in."""
        config = self.servers.get(server)
        if config is None:
            raise ToolError(ErrorType.PERMANENT, f'This project has no MCP server "{server}" any more.')
        key = (server, tenant, user) if config.connection else (server, "", None)
        found = self._open.get(key)
        if found is None:
            self._make_room()
            auth = BearerToken("") if config.connection else None
            found = self._open[key] = Upstream(
                config,
                environment=self._environment,
                project=self._project,
                clock=self._clock,
                auth=auth,
                jitter=random.random,
                ask=config.elicitation == "person",
            )
        self._open.move_to_end(key)
        return found

    def _make_room(self) -> None:
        idle = [key for key, one in self._open.items() if one.is_idle]
        # Only connections that nobody uses: above the limit a call is served all the same, rather than another one ended.
        for key in idle[: max(0, len(self._open) + 1 - _MAX_CONNECTIONS)]:
            ending = asyncio.get_running_loop().create_task(self._open.pop(key).stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def call(self, upstream: UpstreamTool, args: Mapping[str, Any], ctx: Any) -> ToolResponse:
        """Call a tool of a server. Raises `CallLost` if a tool that writes may have run and nobody can tell."""
        server = self.upstream(upstream.server, ctx.tenant, ctx.user)
        connection = server.config.connection
        if not connection:
            return await self._call(server, upstream, args, ctx)
        assert isinstance(server.auth, BearerToken)
        token = server.auth.value = await ctx.secrets.token(connection)
        try:
            answer = await self._call(server, upstream, args, ctx)
        except ScopesWanted as error:
            # There is no other token before the person has allowed more, which they are shown how to.
            await ctx.secrets.refused(connection, token, error.scopes)
            raise
        if answer.error is None or answer.error.type is not ErrorType.AUTH:
            return answer
        # It did not get to the tool, so it may be sent once more, with a token that is new.
        await ctx.secrets.refused(connection, token)
        server.auth.value = await ctx.secrets.token(connection)
        return await self._call(server, upstream, args, ctx)

    async def _call(
        self,
        server: Upstream,
        upstream: UpstreamTool,
        args: Mapping[str, Any],
        ctx: Any,
        *,
        resent: bool = False,
    ) -> ToolResponse:
        tool_id = ctx.tool.id
        try:
            live = await server.connection()
        except UpstreamUnavailable as error:
            if error.scopes:
                raise ScopesWanted(upstream.server, error.scopes) from None
            if error.unauthorized:
                return failed(ErrorType.AUTH, str(error), partial=False)
            return failed(ErrorType.TRANSIENT, str(error), partial=False, retryable=True, retry_after=error.retry_after)
        # Before every call and not once at the start: a server may change a tool after it was judged.
        drift = _drift(live, upstream)
        if drift is not None:
            return failed(ErrorType.CONFLICT, drift, partial=False)
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=upstream.tool, arguments=dict(args), _meta=_meta(upstream, ctx))
        )
        try:
            result = await server.request(
                live,
                request,
                seconds=server.config.call_seconds,
                progress=_progress(ctx),
                ask=partial(ask_person, upstream.server, ctx.client),
            )
        except MCPError as error:
            if own_code(error) == SESSION_GONE and not resent:
                # The server has looked at nothing of the call, so it may be sent in a new session.
                return await self._call(server, upstream, args, ctx, resent=True)
            return _refused(error, upstream, tool_id)
        except (UpstreamFault, ValidationError, httpx2.HTTPError, OSError) as error:
            if upstream.writes:
                raise CallLost(
                    f'The outcome of "{tool_id}" at the MCP server "{upstream.server}" is not known: {type(error).__name__}.'
                ) from error
            fault = str(error) if isinstance(error, UpstreamFault) else "its answer does not follow the protocol"
            return failed(ErrorType.PERMANENT, f'"{tool_id}" failed: {fault}.', partial=False)
        # From the definition that was judged, and not from what this answer looks like.
        structured = live.offer.definitions[upstream.tool].get("outputSchema") is not None
        show_blocks(result.get("content"), ctx.client)
        return response_of(result, tool_id=tool_id, structured=structured, writes=upstream.writes)

    # Resources and prompts

    def passing(self, kind: Literal["resources", "prompts"]) -> list[str]:
        """The servers whose resources or prompts clients get."""
        return self._passing[kind]

    async def list_offered(self, server: str, kind: OfferKind) -> list[dict[str, Any]]:
        return await list_offered(self.upstream(server), self._identity(server), kind)

    async def read_offered(self, server: str, uri: str) -> list[dict[str, Any]]:
        return await read_offered(self.upstream(server), self._identity(server), uri)

    async def prompt_offered(self, server: str, name: str, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
        return await prompt_offered(self.upstream(server), self._identity(server), name, arguments)

    def _identity(self, server: str) -> Mapping[str, str] | None:
        """What the server called itself when its tools were taken in; None if nothing says so."""
        try:
            written = (self._project / LOCK_FILE).stat().st_mtime_ns
            if self._identities is None or self._identities[0] != written:
                pinned = read_lock(self._project).servers
                self._identities = (written, {name: one.identity for name, one in pinned.items()})
        except (ConfigError, OSError):
            return None
        return self._identities[1].get(server)

    async def report(self) -> list[dict[str, Any]]:
        """The servers as an operator sees them: state, pinned tools with their policy, and what they changed since."""
        opened = {name: [one for key, one in self._open.items() if key[0] == name] for name in self.servers}
        # In a thread, because to judge what servers say takes as long as they like within its bounds.
        return await asyncio.to_thread(self._report, opened)

    def _report(self, opened: Mapping[str, Sequence[Upstream]]) -> list[dict[str, Any]]:
        try:
            lock = read_lock(self._project)
        except ConfigError as error:
            return [{**server_report(config, None, ()), "trouble": str(error)} for config in self.servers.values()]
        return [
            server_report(config, lock.servers.get(name), opened[name])
            | ({"trouble": lock.broken[name].fault} if name in lock.broken else {})
            for name, config in sorted(self.servers.items())
        ]

    async def aclose(self) -> None:
        opened, self._open = list(self._open.values()), OrderedDict()
        await asyncio.gather(*self._ending, *(one.stop() for one in opened), return_exceptions=True)


def _refused(error: MCPError, upstream: UpstreamTool, tool_id: str) -> ToolResponse:
    """The envelope for an error in a result's place; `CallLost` where a tool that writes may have run all the same.

    Only what our own side of the connection found out is certain: a server may say anything after it has run the tool.
    """
    own = own_code(error)
    if own == UNAUTHORIZED:
        message = f'The MCP server "{upstream.server}" does not accept the credentials for this call.'
        return failed(ErrorType.AUTH, message, partial=False)
    if own == FORBIDDEN:
        raise ScopesWanted(upstream.server, wanted_scopes(error))
    # Found out on our side of the connection: the tool has certainly not run, whatever it does.
    if own in (NOT_SENT, SESSION_GONE):
        message = f'"{tool_id}" did not get to its server: {error.message}.'
        return failed(ErrorType.TRANSIENT, message, partial=False, retryable=True)
    if upstream.writes:
        raise CallLost(f'The outcome of "{tool_id}" at the MCP server "{upstream.server}" is not known: {error.code}.')
    # Only tools that read come this far, so nothing is in doubt and the call may be made again.
    if own == LOST or error.code in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT):
        message = f'"{tool_id}" lost its server before an answer came.'
        return failed(ErrorType.TRANSIENT, message, partial=False, retryable=True)
    if error.code == types.INVALID_PARAMS:
        message = f'"{tool_id}" refused its arguments: {error.message[:500]}'
        return failed(ErrorType.VALIDATION, message, partial=False)
    return failed(ErrorType.PERMANENT, f'"{tool_id}" failed: {error.message[:500]}', partial=False)


def _drift(live: UpstreamConnection, upstream: UpstreamTool) -> str | None:
    """Why a call does not fit what was pinned, in a sentence; None if it does."""
    name = upstream.tool
    mend = f"an operator sees and takes the change with `handrail mcp update {upstream.server}`"
    if name in live.offer.repeated:
        return f'The MCP server "{upstream.server}" lists "{name}" more than once; it is refused.'
    if name not in live.offer.definitions:
        return f'The MCP server "{upstream.server}" does not offer "{name}" any more; {mend}.'
    if live.offer.pins.get(name) != upstream.pin:
        return f'The MCP server "{upstream.server}" has changed "{name}" since it was taken in; {mend}.'
    return None


def _meta(upstream: UpstreamTool, ctx: Any) -> types.RequestParamsMeta | None:
    meta: dict[str, Any] = dict(ctx.trace_headers)
    # A server that knows the key can keep a second delivery from having a second effect; to others it is one more field.
    if upstream.writes and ctx.idempotency_key:
        meta[IDEMPOTENCY_KEY] = ctx.idempotency_key
    return meta or None  # type: ignore[return-value]  # a typed dictionary that takes other keys


def _progress(ctx: Any) -> ProgressFnT:
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        ctx.progress(message if isinstance(message, str) and message else share)

    return tell

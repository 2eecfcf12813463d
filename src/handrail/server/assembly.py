"""Puts a server together from settings: keys, sessions, the application. `handrail serve` and tests share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from handrail.clients.model_choice import ModelChoice
from handrail.contract.errors import UsageError
from handrail.contract.keys import KeyStore
from handrail.mcp.server.options import McpOptions
from handrail.server.api.application import create
from handrail.server.api.guard import CheckToken
from handrail.server.api.http import ApiContext
from handrail.server.api.routes.files import console_files
from handrail.server.connection_table import ConnectionTable
from handrail.server.host.agent_port import TextAgentPort
from handrail.server.host.forgetting import forget_user
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.key_ring import KeyRing, TokenBuckets, check_name
from handrail.server.model_selection import ModelSelection
from handrail.server.options import Options
from handrail.server.stored_keys import KeyFollower, add_key, key_for_start, read_secret
from handrail.server.voice.admission import Admission, VoiceAgentPort
from handrail.server.voice.voice_options import VoiceOptions
from handrail.standard_runtime import Runtime

if TYPE_CHECKING:
    from handrail.server.api.mcp_access import McpRoutes

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
FIRST_KEY = "console"
LOCAL_USER = "local"
CONNECTIONS_PAGE = "/#/connections/"
"""Where a person connects a service, in the console; its name follows."""


@dataclass(frozen=True, slots=True)
class AssembledServer:
    """A server that is ready to run."""

    app: Starlette
    sessions: SessionRegistry
    options: Options
    voice: Admission | None
    connections: ConnectionTable
    """What `make_server` is given, so that the metrics have how many there are."""


def assemble(
    runtime: Runtime,
    agent: TextAgentPort,
    *,
    keys: KeyRing,
    options: Options,
    audit: Path | None = None,
    model_name: str = "model",
    models: ModelSelection | None = None,
    voice: VoiceAgentPort | None = None,
    voice_options: VoiceOptions | None = None,
    copies: Sequence[Path] = (),
    mcp: McpOptions | None = None,
    tokens: CheckToken | None = None,
    takes_tickets: bool = False,
) -> AssembledServer:
    """`copies` are files that are deleted with the first user who is forgotten. With `mcp`, clients of MCP are answered; with
    `takes_tickets`, one-time links open the console."""
    sessions = SessionRegistry(runtime, agent, options)
    if runtime.connections is not None:
        runtime.connections.page = CONNECTIONS_PAGE
    limits = voice_options or VoiceOptions()
    # One for both ways in: what is said over a voice socket counts like a request.
    rates = TokenBuckets(options.requests_per_minute)
    admission = Admission(sessions, voice, keys, limits, rates) if voice is not None else None

    async def forget(tenant: str, user: str) -> dict[str, Any]:
        return await forget_user(runtime, tenant, user, sessions=sessions, copies=copies)

    context = ApiContext(
        sessions=sessions,
        options=options,
        keys=keys,
        models=models or ModelSelection(ModelChoice(model_name, "the program chose it")),
        audit=audit,
        console=console_files(),
        forget=forget,
        voice=admission,
        takes_tickets=takes_tickets,
    )
    routes = _mcp_routes(context, mcp) if mcp is not None else None
    app = create(context, keys, buckets=rates, mcp=routes, tokens=tokens)
    return AssembledServer(app, sessions, options, admission, context.connections)


def _mcp_routes(context: ApiContext, mcp: McpOptions) -> McpRoutes:
    # They bring the SDK with them, which a server without MCP may not have.
    from handrail import __version__  # noqa: PLC0415
    from handrail.mcp.server.http import McpHttp  # noqa: PLC0415
    from handrail.server.api.mcp_access import McpRoutes  # noqa: PLC0415

    served = McpHttp(context.runtime, mcp, version=__version__, max_body_bytes=context.options.max_body_bytes)
    return McpRoutes(served, context)


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK


async def open_keys(
    store: KeyStore, ring: KeyRing, options: Options, *, new: str | None = None, secret_file: Path | None = None
) -> tuple[KeyFollower, Callable[[], Awaitable[str | None]]]:
    """Fill the ring with the keys of the store; what keeps it so, and what makes the key that is new: call that when the
    server is there.

    A server on the loopback makes a key at its first start. One that others can reach must have been given one. The new key's
    secret is to be shown once; None if there is no new key. A start that comes to nothing leaves no key that nobody was shown.
    With a `secret_file` the secret is kept there and shown at every start, which is for development on this machine.
    """
    was_given = len(ring) > 0
    follower = KeyFollower(store, ring)
    await follower.refresh()
    known = _kept_secret(options, secret_file, ring)
    first = (not len(ring) or secret_file is not None) and not was_given and is_loopback(options.host)
    name = FIRST_KEY if new is None and first and known is None else new
    if name is not None:
        check_name(name)

    async def make() -> str | None:
        if name is None:
            return known
        if new is not None:
            _, secret = await add_key(store, name=name, role="operator", user=LOCAL_USER)
        else:
            # Another server that starts at this moment may have made one since we looked.
            _, secret = await key_for_start(store, name=name, role="operator", user=LOCAL_USER, secret_file=secret_file)
        await follower.refresh()
        return secret

    if name is None and not len(ring):
        raise UsageError(
            f'Nobody could use a server on "{options.host}" without a key; `handrail serve --new-key NAME` makes one.'
        )
    return follower, make


def _kept_secret(options: Options, path: Path | None, ring: KeyRing) -> str | None:
    """The secret that an earlier start has left in the file, if its key is still accepted."""
    if path is None:
        return None
    if not is_loopback(options.host):
        raise UsageError(f'A server on "{options.host}" keeps no key in a file that can be read; leave --key-file out.')
    secret = read_secret(path)
    return secret if secret is not None and ring.find(secret) is not None else None

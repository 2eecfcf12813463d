"""Put Handrail between an MCP client and a server: its tools over standard input and output, governed.

What the server says only reads runs at once; anything else waits for a person: their browser is opened at the request, or they
open it by `handrail mcp open`. Calls are audited, and none that writes happens twice. At the first start the server's tools are
pinned as they are; what changes later is refused until `handrail mcp update` in the printed folder has shown it and a person
took it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shlex
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.authoring.mcp.lock import PinnedServer, read_lock, write_lock
from handrail.authoring.mcp.server_config import SERVER_NAME, UpstreamConfig, upstream_config
from handrail.cli.mcp_open import ADDRESS_FILE, open_browser, state_home
from handrail.cli.mcp_servers import ask_for_offer, split_command
from handrail.cli.output import count, warn
from handrail.cli.project import fresh_registry
from handrail.contract.errors import ConfigError, UsageError, missing_extra
from handrail.contract.keys import KeyStore
from handrail.contract.store import HoldState, StoreUnavailable
from handrail.registry import Registry
from handrail.settings import Settings, load_settings

if TYPE_CHECKING:
    from handrail.standard_runtime import Runtime

HELP = "govern one server for any client, without a project"
EXAMPLES = """examples:
  handrail mcp wrap -- npx -y @modelcontextprotocol/server-filesystem ./notes
  handrail mcp wrap --env GITHUB_TOKEN -- npx -y @modelcontextprotocol/server-github"""
_ANOTHER_FOLDER = "name another --folder, or change the server in this folder's handrail.toml"
_OLD_KEY_FILE = "console-key"
"""In which earlier versions kept a key that approves."""
_STARTERS = ("npx", "uvx", "uv", "bunx", "pnpm", "node", "python", "deno", "docker", "pipx")


def configure(parser: ArgumentParser) -> None:
    _add_options(parser)
    parser.add_argument("command", nargs=REMAINDER, metavar="-- COMMAND …", help="the server's program and arguments")


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--name", help="what the server is called (default: made of its command)")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME", help="a variable of this environment that it is given"
    )
    parser.add_argument(
        "--folder", metavar="DIR", help="where pins, audit and ledger are kept (default: yours, per server)"
    )
    parser.add_argument("--port", type=int, help="the console's port (default: a free one)")
    parser.add_argument(
        "--no-console", action="store_true", help="serve no console; what writes then cannot be approved"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="open no browser for a call that waits; `handrail mcp open` does"
    )
    parser.add_argument("--user", help="whom the client serves (default: you)")


def run(options: Namespace) -> int:
    if not all(map(find_spec, ("starlette", "uvicorn"))):
        raise missing_extra("`handrail mcp wrap`", "server")
    options = split_command(options, _add_options)
    if not options.command:
        raise UsageError("Give, after --, the command that starts the server.")
    if options.port is not None and not 0 < options.port <= 65_535:
        raise UsageError(f"--port must be from 1 to 65535; {options.port} is not.")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    name = options.name or _name_of(options.command)
    if not SERVER_NAME.fullmatch(name):
        raise UsageError(
            f"--name is up to 32 small letters, digits and underscores, with a letter first; {name!r} is not."
        )
    config = upstream_config(name, _values(options))
    project = _folder(options, name)
    settings = _settings(project, config)
    registry = fresh_registry(settings)
    return asyncio.run(_serve(settings, registry, options))


def _values(options: Namespace) -> dict[str, Any]:
    env = list(dict.fromkeys(["PATH", "HOME", *options.env]))
    # The client's folder, because that is where the server would run without us.
    return {"command": options.command, "env": env, "annotations": "trust", "cwd": str(Path.cwd()), "prefix": ""}


def _name_of(command: list[str]) -> str:
    """`npx -y @modelcontextprotocol/server-filesystem ./notes` → `filesystem`."""
    starter = Path(command[0]).stem.rstrip("0123456789.") in _STARTERS
    words = [word for word in command[1:] if starter and not word.startswith("-")] or command
    last = words[0].rstrip("/").rsplit("/", 1)[-1].split("@")[0]
    plain = re.sub(r"[^a-z0-9_]+", "_", re.sub(r"\.\w+$", "", last.lower())).strip("_")
    plain = re.sub(r"^(mcp_)?(server_)?(mcp_)?", "", plain)[:32]
    return plain if SERVER_NAME.fullmatch(plain) else "server"


def _folder(options: Namespace, name: str) -> Path:
    """Where this server's state is kept: one folder for each command and place that it is started in."""
    if options.folder is not None:
        project = Path(options.folder).absolute()
    else:
        told = "\0".join([*options.command, str(Path.cwd())]).encode()
        project = state_home(os.environ) / f"{name}-{hashlib.sha256(told).hexdigest()[:8]}"
    try:
        project.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f'The folder "{project}" cannot be made ({error.strerror}).') from None
    return project


def _settings(project: Path, config: UpstreamConfig) -> Settings:
    """The settings of the folder, with this server and no other tools. A new server is kept only once it has answered: a command
    that cannot be started must not stand in the way of the next one."""
    from handrail.mcp.gateway.project_file import (
        read_project_file,
        server_table,
        servers_in,
        with_servers,
        write_project_file,
    )

    text = read_project_file(project)
    kept = servers_in(text)
    if config.name not in kept and kept:
        raise UsageError(
            f'The folder "{project}" wraps "{next(iter(kept))}", and this start is for "{config.name}"; {_ANOTHER_FOLDER}.'
        )
    if config.name in kept:
        settings = load_settings(project, os.environ)
        wrapped = settings.mcp_servers[config.name]
        _check_same(project, wrapped, config)
        if read_lock(project).pins_of(config.name) is None:
            _pin(project, wrapped)
        return settings
    values = {
        "command": list(config.command),
        "env": list(config.env),
        "annotations": config.annotations,
        "cwd": config.cwd,
        "prefix": config.prefix,
    }
    text = with_servers(text, {config.name: server_table(config.name, values)})
    _pin(project, config)
    write_project_file(project, text)
    return load_settings(project, os.environ)


def _check_same(project: Path, kept: UpstreamConfig, config: UpstreamConfig) -> None:
    """The pins and the ledger of a folder are those of one command with one environment."""
    was, now = _shown(kept.command), _shown(config.command)
    if kept.command != config.command:
        raise UsageError(
            f'The folder "{project}" wraps "{config.name}" by the command `{was}`, and this start gives `{now}`; '
            f"{_ANOTHER_FOLDER}."
        )
    if kept.env.keys() != config.env.keys():
        raise UsageError(
            f'The folder "{project}" gives "{config.name}" the variables {", ".join(kept.env)}, and this start gives '
            f"{', '.join(config.env)}; {_ANOTHER_FOLDER}."
        )


def _shown(command: Sequence[str]) -> str:
    """The command in a sentence, without its arguments if one of them looks like a secret: clients keep what is said here."""
    from handrail.mcp.gateway.client_files import secrets_in

    if any(secrets_in(command[1:])):
        return f"{shlex.quote(command[0])} …"
    return shlex.join(command)


def _pin(project: Path, config: UpstreamConfig) -> None:
    from handrail.mcp.gateway.pinning import review

    made: PinnedServer = review(config, None, ask_for_offer(project, config)).pinned
    write_lock(project, read_lock(project).taking({config.name: made}))
    warn(f"handrail mcp wrap: {count(len(made.tools), 'tool')} of {config.name} pinned in {project}.")
    for tool, reason in made.refused.items():
        warn(f"handrail mcp wrap: {tool} is refused: {reason}.")


async def _serve(settings: Settings, registry: Registry, options: Namespace) -> int:
    from handrail import __version__
    from handrail.app import open_runtime
    from handrail.mcp.gateway.state_gate import StateGate
    from handrail.mcp.server.options import McpOptions, local_principal
    from handrail.mcp.server.stdio import serve_stdio

    gate = StateGate([settings.project, state_home(os.environ)], Path.cwd())
    runtime = open_runtime(settings, registry, serving=True, gates=[gate])
    async with AsyncExitStack() as stack:
        console, present = "", None
        if not options.no_console:
            console = await _console(settings, runtime, stack, options.port)
            present = None if options.no_browser else HeldCallPages(runtime, stack).present
        limits = McpOptions.from_settings(settings, console=console, present=present)
        # The console uses the store too, and stops before it is closed.
        await serve_stdio(runtime, limits, local_principal(limits, options.user), version=__version__, beside=stack)
    return 0


class HeldCallPages:
    """Opens the person's browser at a call that waits for them: one at a time, so that a model cannot flood them."""

    def __init__(self, runtime: Runtime, stack: AsyncExitStack) -> None:
        self._runtime = runtime
        self._presented = ""
        self._opening: asyncio.Task[None] | None = None
        stack.push_async_callback(self._end)

    def present(self, hold_id: str, link: str) -> None:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._present(hold_id, link))

    async def _present(self, hold_id: str, link: str) -> None:
        from handrail.server.console_tickets import one_time_link

        store = self._runtime.store
        try:
            before = await store.hold_by_id(self._presented) if self._presented else None
            waits = before is not None and before.state is HoldState.PENDING and before.expires_at > await store.now()
            if hold_id == self._presented or waits:
                return
            self._presented = hold_id
            await open_browser(await one_time_link(store.requests, link), os.environ)
        except (StoreUnavailable, OSError) as error:
            warn(f"handrail mcp wrap: the browser could not be opened: {error}")

    async def _end(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)


async def _console(settings: Settings, runtime: Any, stack: AsyncExitStack, port: int | None) -> str:
    """The console over the same runtime, on this machine alone; its address."""
    from handrail.app import open_agent
    from handrail.clients.no_model import NoModel
    from handrail.server.assembly import assemble
    from handrail.server.key_ring import KeyRing
    from handrail.server.options import Options
    from handrail.server.stored_keys import KeyFollower
    from handrail.server.uvicorn_server import bound, make_server

    limits = replace(Options.from_settings(settings), host="127.0.0.1", port=port or 0)
    socket = stack.enter_context(closing(bound(limits)))
    await runtime.open()
    ring = KeyRing((), None)
    await _forget_old_key(runtime.store.keys, settings.project / _OLD_KEY_FILE)
    keys = KeyFollower(runtime.store.keys, ring)
    await keys.refresh()
    agent = open_agent(settings, runtime, NoModel("The model is in the client that uses this server."), listen=False)
    made = assemble(
        runtime,
        agent,
        keys=ring,
        options=limits,
        audit=settings.project / settings.audit_directory,
        model_name="none",
        takes_tickets=True,
    )
    await made.sessions.start()
    listening = asyncio.Event()

    async def ready() -> None:
        listening.set()

    server = make_server(made.app, limits, made.sessions.drain, ready, None, made.connections, runtime.running_calls)
    # Signals are the client's to send; they end the process as they would end the server without us.
    serving = asyncio.create_task(server._serve([socket]))
    following = asyncio.create_task(keys.follow())

    async def end() -> None:
        server.should_exit = True
        following.cancel()
        await asyncio.wait([serving], timeout=5)
        serving.cancel()
        await asyncio.gather(serving, following, return_exceptions=True)

    stack.push_async_callback(end)
    await asyncio.wait([asyncio.ensure_future(listening.wait()), serving], return_when=asyncio.FIRST_COMPLETED)
    address = f"http://127.0.0.1:{socket.getsockname()[1]}"
    address_file = settings.project / ADDRESS_FILE
    address_file.write_text(address, encoding="ascii")
    stack.callback(_remove_own, address_file, address)
    warn(f"handrail mcp wrap: console at {address}/, which `handrail mcp open {settings.project}` opens for you.")
    return address


def _remove_own(file: Path, address: str) -> None:
    """Another server of this folder may have written its own address meanwhile."""
    with suppress(OSError):
        if file.read_text(encoding="ascii") == address:
            file.unlink()


async def _forget_old_key(keys: KeyStore, path: Path) -> None:
    """What approved calls lay in a file that tools of the same user could read: it counts no more."""
    kept = _taken_from(path)
    for key in await keys.all() if kept is not None else ():
        if key.hash == kept:
            await keys.revoke(key.name)


def _taken_from(path: Path) -> str | None:
    """The hash of the key in this file, which is gone then."""
    from handrail.server.key_ring import hash_of

    try:
        secret = path.read_text(encoding="utf-8", errors="replace").strip()
        path.unlink()
    except FileNotFoundError:
        return None
    return hash_of(secret)

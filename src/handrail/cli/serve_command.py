"""Serve: the text and the voice agent, confirmations, the catalogue, the console and the operator's view over HTTP.

On this machine alone it makes a key at its first start and prints the console's address with it. To be reached from others it
needs a key that was made before, and `hosts` in [server] must name it; docs/deployment.md has the checklist.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.agents.voice.text_model_adapter import TextModelAdapter
from handrail.app import build_plan, host_policy, open_agent, open_runtime, open_token_checker, open_voice
from handrail.cli.logging_flag import add_log_level_flag, log_to_stderr
from handrail.cli.model_lines import add_model_flag, load_model, offer_lines
from handrail.cli.output import authors_speak_aside, count, warn
from handrail.cli.project import current_settings, fresh_registry, with_reference_tools
from handrail.cli.reloading import ToolReloader
from handrail.clients.model_choice import ModelChoice
from handrail.contract.errors import UsageError, missing_extra
from handrail.contract.model import Model
from handrail.registry import Registry
from handrail.settings import Settings
from handrail.standard_runtime import Runtime
from handrail.text_model import choose_model_or_none, choose_working_model, open_model

if TYPE_CHECKING:
    from handrail.mcp.server.options import McpOptions
    from handrail.server.host.session_registry import SessionRegistry

EXAMPLES = """examples:
  handrail serve
  handrail serve --port 9000 --json
  handrail serve --model ollama:qwen3
  handrail serve --new-key laptop
  handrail serve --log-level info
  handrail serve --host 0.0.0.0 --key - < /run/secrets/handrail-key"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--host", help="the address to listen on (default: that of [server], else 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port (default: that of [server], else 8484); 0 takes a free one")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", metavar="KEY", help="accept this operator's key as well; - reads it from standard input")
    keys.add_argument("--new-key", metavar="NAME", help="make an operator's key of this name, show it once, and serve")
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="keep the console's key in this file (mode 0600), so that each start prints the same address; for development",
    )
    add_model_flag(parser)
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's; it is not rebuilt")
    add_log_level_flag(parser, default="warning")
    parser.add_argument("--json", action="store_true", help="print one JSON line when the server is ready")


def run(options: Namespace) -> int:
    if not all(map(find_spec, ("starlette", "uvicorn", "websockets"))):
        raise missing_extra("`handrail serve`", "server")
    if options.port is not None and not 0 <= options.port <= 65_535:
        raise UsageError(f"--port must be from 0 to 65535; {options.port} is not.")
    log_to_stderr(options.log_level)
    settings = with_reference_tools(current_settings())
    registry = fresh_registry(settings, options.registry)
    if options.key_file is not None and registry.environment == "production":
        raise UsageError("In production no key is kept in a file that can be read; leave --key-file out.")
    for sentence in registry.refused.values():
        warn(f"handrail serve: {sentence} The other tools are served.")
    choice = choose_model_or_none(settings, options.model)
    with authors_speak_aside():
        return asyncio.run(_serve(settings, registry, options, choice))


async def _serve(settings: Settings, registry: Registry, options: Namespace, choice: ModelChoice) -> int:
    # A quarter of a second, which nobody shall wait who asks for help or whose tools do not build.
    from handrail.server.assembly import assemble, open_keys
    from handrail.server.key_ring import KeyRing, given_key, token_keys
    from handrail.server.legacy_files import copies, import_files, remove_old_copies
    from handrail.server.model_selection import ModelSelection
    from handrail.server.options import Options
    from handrail.server.uvicorn_server import bound, exit_after_grace, make_server, tune_garbage_collector
    from handrail.server.voice.voice_options import VoiceOptions

    limits = Options.from_settings(settings)
    if options.host is not None:
        limits = replace(limits, host=options.host)
    if options.port is not None:
        limits = replace(limits, port=options.port)
    given = given_key(_key(options.key)) if options.key is not None else None
    checker = open_token_checker(settings, registry)
    async with AsyncExitStack() as stack:
        socket = stack.enter_context(closing(bound(limits)))
        address = _address(limits.host, socket.getsockname()[1])
        runtime = open_runtime(settings, registry, serving=True)
        await import_files(settings, runtime.store)
        remove_old_copies(settings)
        # Already now: what is wrong with the keys is reported before a model is loaded, which may take long.
        await runtime.store.open()
        stack.push_async_callback(runtime.store.close)
        ring = KeyRing((), given)
        key_file = Path(options.key_file) if options.key_file is not None and given is None else None
        keys, make_key = await open_keys(runtime.store.keys, ring, limits, new=options.new_key, secret_file=key_file)
        text_model = open_model(settings, choice)
        summary = await load_model(text_model)
        agent = open_agent(settings, runtime, text_model, listen=False)
        voice = open_voice(settings, runtime, agent.model)

        def use(model: Model) -> None:
            agent.model = model
            if isinstance(voice.model, TextModelAdapter):
                voice.model.use(model)

        def opener(name: str) -> tuple[ModelChoice, Model]:
            chosen = replace(choose_working_model(settings, name), reason="an operator chose it in the console")
            return chosen, open_model(settings, chosen)

        models = ModelSelection(choice, agent.model, opener=opener, use=use)
        made = assemble(
            runtime,
            agent,
            keys=ring,
            options=limits,
            audit=settings.project / settings.audit_directory,
            models=models,
            voice=voice,
            voice_options=VoiceOptions.from_settings(settings),
            copies=copies(settings),
            mcp=_mcp_options(settings, address),
            tokens=token_keys(settings.identity_issuer, checker) if checker is not None else None,
        )
        settling: list[asyncio.Task[None]] = []

        async def settle() -> None:
            await runtime.warm_up_services()
            tune_garbage_collector()

        async def ready() -> None:
            # Only now: a start that comes to nothing must not leave a key that nobody was shown.
            secret = await make_key()
            kept_in = None if options.new_key else options.key_file
            _tell(address, secret, registry, choice, [*summary], as_json=options.json, kept_in=kept_in)
            settling.append(asyncio.get_running_loop().create_task(settle()))

        reloading = _reloading(settings, runtime, made.sessions.tell_of_tools, artifact=options.registry)
        following = [asyncio.create_task(keys.follow()), asyncio.create_task(reloading)]
        try:
            await _open(made.sessions)
            for sentence in await runtime.preload_services():
                warn(f"handrail serve: {sentence}")
            server = make_server(
                made.app,
                limits,
                made.sessions.drain,
                ready,
                made.sessions.hurried.set,
                made.connections,
                runtime.running_calls,
            )
            await server.serve(sockets=[socket])
        except SystemExit:
            return 1  # the application could not start; why was logged
        finally:
            for task in (*following, *settling):
                task.cancel()
            await asyncio.gather(*following, *settling, return_exceptions=True)
            await voice.model.close()
            await models.close()
    exit_after_grace(0)
    return 0


def _mcp_options(settings: Settings, address: str) -> McpOptions | None:
    """What `/mcp` needs; None if it is switched off, or its extra is not installed."""
    if not settings.mcp_http or not all(map(find_spec, ("mcp", "mcp_types"))):
        return None
    if settings.mcp_issuer and (find_spec("jwt") is None or not settings.mcp_resource):
        if settings.mcp_resource:
            raise missing_extra('"issuer" in [mcp]', "identity")
        raise UsageError('"issuer" in [mcp] needs "resource": the address of /mcp, which is the audience of tokens.')
    from handrail.mcp.server.options import McpOptions

    return McpOptions.from_settings(settings, console=address)


async def _reloading(
    settings: Settings, runtime: Runtime, tell: Callable[[Mapping[str, Any]], None], *, artifact: str | None
) -> None:
    """Take in tools that change while the server runs; in production, or where an artifact is given, when somebody says so."""
    registry = runtime.registry
    reloader = ToolReloader(runtime, registry.path, tell, lambda: host_policy(current_settings()))
    loop = asyncio.get_running_loop()
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        loop.add_signal_handler(signal.SIGHUP, lambda: runtime.spawn(reloader.deploy()))
    if registry.environment == "development" and artifact is None:
        await reloader.watch(build_plan(settings))
    else:
        await reloader.follow_deployments()


async def _open(sessions: SessionRegistry) -> None:
    """Open the store before there is a server, so that one that cannot be used is reported in a sentence."""
    try:
        await sessions.start()
        await asyncio.sleep(0)  # a Ctrl-C that came while things were opened counts here, where nothing is half done
    except BaseException:
        await sessions.close()
        raise


def _tell(
    address: str,
    secret: str | None,
    registry: Registry,
    choice: ModelChoice,
    about_model: Sequence[str],
    *,
    as_json: bool,
    kept_in: str | None,
) -> None:
    """Say where the server is, when it is there. The key goes into the address's fragment, which no server ever sees."""
    console = f"{address}/#key={secret}" if secret else f"{address}/"
    out = sys.__stdout__ or sys.stderr
    if as_json:
        import orjson

        facts = {"url": address, "console": console, "key": secret, "pid": os.getpid()}
        more = {"registryVersion": registry.version, "tools": len(registry), "refused": sorted(registry.refused)}
        model = {"model": choice.model, "modelReason": choice.reason, "offers": [one.model for one in choice.offers]}
        out.write(orjson.dumps({**facts, **more, **model}).decode() + "\n")
    else:
        out.write(f"Handrail serves {count(len(registry), 'tool')}, version {registry.version}.\nConsole: {console}\n")
        if secret and kept_in is not None:
            out.write(f"The key is kept in {kept_in}, and stays the same at the next start.\n")
        elif secret:
            out.write("This key is shown once; only its hash is kept.\n")
        else:
            out.write("The console asks for your key; `handrail keys add NAME --operator` makes a new one.\n")
        for line in (choice.sentence, *about_model, *offer_lines(choice)):
            out.write(f"{line}\n")
        out.write("Ctrl-C stops it.\n")
    out.flush()


def _address(host: str, port: int) -> str:
    shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104  # compared, not listened on
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _key(text: str) -> str:
    return sys.stdin.readline().strip() if text == "-" else text

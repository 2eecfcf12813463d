"""Serve the project's tools to the MCP client that started this command, over standard input and output.

Standard output is the protocol's; whatever Handrail or a tool has to say goes to standard error.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from argparse import ArgumentParser, Namespace
from contextlib import AbstractContextManager, nullcontext

from handrail.cli.output import warn
from handrail.cli.project import current_settings, fresh_registry, kept_or_scratch, settings_of, with_reference_tools
from handrail.contract.errors import UsageError
from handrail.settings import Settings

HELP = "serve the tools over standard input and output"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--user", metavar="USER", help="whom the client serves (default: `user` in [mcp], else yours)")
    parser.add_argument(
        "--project", metavar="FOLDER", help="the project's folder, for clients that cannot start a command in it"
    )
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's; it is not rebuilt")


def run(options: Namespace) -> int:
    if options.user is not None and not (options.user.strip() and options.user.isprintable()):
        raise UsageError(f"--user must be text; {options.user!r} is not.")
    # A second that nobody shall wait for who asks for help.
    from handrail import __version__
    from handrail.app import open_runtime
    from handrail.mcp.server.options import McpOptions, local_principal
    from handrail.mcp.server.stdio import serve_stdio

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    found: AbstractContextManager[Settings]
    if options.project is not None:
        found = nullcontext(settings_of(options.project))
    else:
        meanwhile = "" if options.registry else "the tools that come with Handrail are served and "
        found = kept_or_scratch(current_settings(), "mcp", meanwhile)
    with found as project:
        settings = with_reference_tools(project)
        registry = fresh_registry(settings, options.registry)
        for sentence in registry.refused.values():
            warn(f"handrail mcp: {sentence} The other tools are served.")
        limits = McpOptions.from_settings(settings)
        runtime = open_runtime(settings, registry, serving=True)
        asyncio.run(serve_stdio(runtime, limits, local_principal(limits, options.user), version=__version__))
    return 0

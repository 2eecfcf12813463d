"""MCP: serve the project's tools to an MCP client over standard input and output.

The client starts this command and speaks the protocol with it; every call passes the pipeline, as the user of this machine or
as `user` in [mcp]. `handrail serve` answers the same protocol over HTTP on `/mcp`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib import import_module
from importlib.util import find_spec

from handrail.contract.errors import missing_extra

EXAMPLES = """examples:
  handrail mcp
  handrail mcp serve --user ana
  handrail mcp add files -- npx -y @modelcontextprotocol/server-filesystem ./notes
  handrail mcp update files"""

_ACTIONS = {
    "serve": "handrail.cli.mcp_serve",
    "add": "handrail.cli.mcp_add",
    "list": "handrail.cli.mcp_list",
    "inspect": "handrail.cli.mcp_inspect",
    "update": "handrail.cli.mcp_update",
    "test": "handrail.cli.mcp_test",
    "wrap": "handrail.cli.mcp_wrap",
    "open": "handrail.cli.mcp_open",
    "import": "handrail.cli.mcp_import",
}
"""Each action's module, with `HELP`, `configure(parser)` and `run(options)`. Without an action, the tools are served."""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="|".join(_ACTIONS))
    for name, place in _ACTIONS.items():
        module = import_module(place)
        module.configure(actions.add_parser(name, help=module.HELP, description=module.__doc__))
    import_module(_ACTIONS["serve"]).configure(parser)


def run(options: Namespace) -> int:
    if not all(map(find_spec, ("mcp", "mcp_types"))):
        raise missing_extra("`handrail mcp`", "mcp")
    return int(import_module(_ACTIONS[options.action or "serve"]).run(options))

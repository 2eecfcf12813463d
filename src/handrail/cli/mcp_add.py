"""Take an MCP server into the project: start it once, show its tools, pin them, and write it into handrail.toml.

Without a word of the project, each of its tools counts as one that writes, and asks a person before every call.
"""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace
from typing import Any
from urllib.parse import urlsplit

from handrail.authoring.mcp.lock import LOCK_FILE, read_lock, write_lock
from handrail.authoring.mcp.server_config import upstream_config
from handrail.cli.mcp_servers import ask_for_offer, policy_line, show_unbelieved, split_command
from handrail.cli.output import count, print_json, show
from handrail.cli.project import current_settings
from handrail.contract.errors import UsageError

HELP = "take in the tools of an MCP server"
EXAMPLES = """examples:
  handrail mcp add files -- npx -y @modelcontextprotocol/server-filesystem ./notes
  handrail mcp add time --trust-annotations -- uvx mcp-server-time
  handrail mcp add shop --url https://shop.example/mcp --header Authorization=SHOP_TOKEN"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="what the server is called in this project")
    _add_options(parser)
    parser.add_argument("command", nargs=REMAINDER, metavar="-- COMMAND …", help="the program and its arguments")


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--url", help="where it is, if it is not started here")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME", help="a variable of this environment that it is given"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="HEADER=NAME",
        help="a header, and the variable it is taken from",
    )
    parser.add_argument(
        "--connection", metavar="NAME", help="the [connections.NAME] whose token of each user it is sent"
    )
    parser.add_argument("--token-env", metavar="NAME", help="a variable with a token to list its tools with, once")
    parser.add_argument("--prefix", help="what its tools' names begin with (default: its name and an underscore)")
    parser.add_argument(
        "--trust-annotations", action="store_true", help="believe it where it says that a tool only reads"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    from handrail.mcp.gateway.pinning import review
    from handrail.mcp.gateway.project_file import read_project_file, server_table, with_servers, write_project_file

    settings = current_settings()
    options = split_command(options, _add_options)
    values = _values(options)
    config = upstream_config(options.name, values)
    text = with_servers(read_project_file(settings.project), {options.name: server_table(options.name, values)})
    lock = read_lock(settings.project)
    found = review(config, None, ask_for_offer(settings.project, config, options.token_env))
    # The lock first: a server without pins stops the build, pins without a server are harmless.
    write_lock(settings.project, lock.taking({options.name: found.pinned}))
    write_project_file(settings.project, text)
    if options.json:
        print_json({"server": options.name, "changes": [one.to_dict() for one in found.changes]})
        return 0
    for definition in found.pinned.tools.values():
        show(f"+ {policy_line(config, definition)}")
    for tool, reason in found.pinned.refused.items():
        show(f"! {tool} is refused: {reason}")
    show_unbelieved(config, found.pinned.tools.values())
    show(
        f"{count(len(found.pinned.tools), 'tool')} of {options.name} pinned in {LOCK_FILE}; commit it, and run `handrail build`."
    )
    return 0


def _values(options: Namespace) -> dict[str, Any]:
    command = options.command
    if command and urlsplit(command[0]).scheme in ("http", "https"):
        raise UsageError(f"A server at an address is given by --url: `handrail mcp add {options.name} --url ADDRESS`.")
    if bool(command) == bool(options.url):
        raise UsageError("Give either --url or, after --, the command that starts the server.")
    values: dict[str, Any] = {"url": options.url} if options.url else {"command": command}
    if command:
        # Named, as everything that it sees: most programs are found by the one and keep their caches below the other.
        values["env"] = list(dict.fromkeys(["PATH", "HOME", *options.env]))
    elif options.env:
        raise UsageError("--env is for a server that is started here; a server at a URL sees no environment.")
    headers = dict(one.partition("=")[::2] for one in options.header)
    if headers:
        values["headers"] = headers
    if options.connection:
        values["connection"] = options.connection
    if options.prefix is not None:
        values["prefix"] = options.prefix
    if options.trust_annotations:
        values["annotations"] = "trust"
    return values

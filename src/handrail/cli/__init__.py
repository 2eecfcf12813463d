"""The command line. Each command is a module with `configure(parser)` and `run(options)`; it is imported when it is used.
Those of other packages are found by the entry points `handrail.commands`; their `HELP` is the line that this list shows.

Exit codes: 0 done, 1 the work failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import NoReturn

COMMANDS = {
    "init": "make a project",
    "new": "write a tool that builds and passes its own test",
    "build": "check the tools and write the registry",
    "diff": "compare two registries: what breaks callers, what only widens",
    "list": "the tools of the registry",
    "show": "one tool: definition, guide, schemas",
    "call": "call a tool through the pipeline",
    "chat": "talk to the tools on this terminal",
    "prompt": "what a model reads before a conversation",
    "serve": "the server: agent, confirmations, console, operator's view",
    "mcp": "serve the tools to MCP clients, and bring in those of MCP servers",
    "deploy": "let running servers take the new artifact for new sessions",
    "keys": "who may use the server: make, list and revoke keys",
    "connect": "connect a person's account at another service",
    "tools": "switch tools off and on",
    "audit": "what was decided, and why",
    "stats": "how tools were used, by tool, day, tenant or version",
    "users": "delete what is kept of a user",
    "ledger": "writing calls, and outcomes to settle",
    "store": "bring the store to this release, check it, copy it",
    "doctor": "check this machine and project",
}

_REFERENCE_COMMANDS = ("calendar", "kb", "models")
"""Those of the package `handrail-reference`: named where it is not installed."""

_EXAMPLES = """\
examples:
  handrail init demo && cd demo
  handrail new lookup_order
  handrail build
  handrail call lookup_order --args '{"id": "A-1001"}'

`handrail COMMAND --help` says more about a command."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence, with the nearest option that exists."""

    def error(self, message: str) -> NoReturn:
        unknown = (
            message.removeprefix("unrecognized arguments: ").split()[0] if message.startswith("unrecognized") else ""
        )
        hint = ""
        if unknown.startswith("-"):
            hint = nearest(unknown, [name for action in self._actions for name in action.option_strings])
        sys.stderr.write(f"{self.prog}: {message}{hint}\n`{self.prog} --help` shows what there is.\n")
        raise SystemExit(2)


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean "x"?` or nothing."""
    from difflib import get_close_matches  # only mistakes need it

    near = get_close_matches(name, known, n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # no answer is lost on a terminal that lacks a letter
    try:
        try:
            return _dispatch(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone; what is still unwritten must not make the interpreter complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        from handrail import __version__

        print(f"handrail {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        from handrail.plugins import COMMANDS as GROUP
        from handrail.plugins import entry_points_of

        known = {**COMMANDS, **entry_points_of(GROUP)}
        if name in _REFERENCE_COMMANDS and name not in known:
            from handrail.contract.errors import missing_extra

            sys.stderr.write(f"handrail: {missing_extra(f'`handrail {name}`', 'reference')}\n")
            return 2
        if name not in known:
            sys.stderr.write(
                f'handrail: there is no command "{name}"{nearest(name, list(known))}\n`handrail --help` lists them.\n'
            )
            return 2
    return _run(name, words[1:])


def command_module(name: str) -> ModuleType:
    """The module of a command, of the core or of an installed package; `ConfigError` if it cannot be imported."""
    if name in COMMANDS:
        return import_module(f"handrail.cli.{name}_command")
    from handrail.plugins import COMMANDS as GROUP
    from handrail.plugins import load_module

    return load_module(GROUP, name)


def _run(name: str, words: list[str]) -> int:
    from handrail.contract.errors import ConfigError

    try:
        with _interruptible():
            command = command_module(name)
    except ConfigError as error:
        sys.stderr.write(f"handrail {name}: {error}\n")
        return 1
    parser = Parser(
        prog=f"handrail {name}",
        description=command.__doc__,
        epilog=getattr(command, "EXAMPLES", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        configure, run = command.configure, command.run
    except AttributeError as error:
        sys.stderr.write(
            f"handrail {name}: {error}; a command is a module with `configure(parser)` and `run(options)`.\n"
        )
        return 1
    configure(parser)
    options = parser.parse_args(words)
    from handrail.cli.output import warn  # every command has these; help and the version do not
    from handrail.contract.errors import HandrailError, UsageError

    try:
        return int(run(options))
    except UsageError as error:
        warn(f"handrail {name}: {error}")
        return 2
    except HandrailError as error:
        warn(f"handrail {name}: {error}")
        return 1
    except BrokenPipeError:
        raise  # no accident: `main` knows what to do
    except OSError as error:
        # A folder that was deleted under us, a disk that is full: the system's reason is the best sentence there is.
        where = f' "{error.filename}"' if error.filename else ""
        warn(f"handrail {name}: the system refused{where}: {error.strerror or error}")
        return 1


@contextmanager
def _interruptible() -> Iterator[None]:
    """While modules are imported, Ctrl-C just ends the process: an exception could be lost inside the import machinery."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield  # somebody else has decided what an interrupt does, or this thread is never interrupted
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _help() -> str:
    known = {**COMMANDS, **_commands_of_packages()}
    width = max(map(len, known))
    lines = "\n".join(f"  {name:<{width}}  {text}" for name, text in known.items())
    return (
        "usage: handrail COMMAND [options]\n\n"
        "Handrail: a tool runtime for agents that speak and type.\n\n"
        f"commands:\n{lines}\n\n{_EXAMPLES}"
    )


def _commands_of_packages() -> dict[str, str]:
    """What other packages add. One that cannot be loaded is listed with the reason: help is what one asks for then."""
    from handrail.contract.errors import ConfigError
    from handrail.plugins import COMMANDS as GROUP
    from handrail.plugins import entry_points_of, load_module

    found: dict[str, str] = {}
    try:
        names = [name for name in entry_points_of(GROUP) if name not in COMMANDS]
    except ConfigError as error:
        return {"": str(error)}
    for name in names:
        try:
            found[name] = str(getattr(load_module(GROUP, name), "HELP", "")).partition("\n")[0]
        except ConfigError as error:
            found[name] = str(error)
    return found

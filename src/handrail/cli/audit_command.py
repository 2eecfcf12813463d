"""The audit log: what happened lately, in a session or to a call, why, and whether the log can be trusted."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from handrail.cli.output import print_json
from handrail.cli.project import current_settings
from handrail.contract.errors import UsageError
from handrail.observe.explain import explain
from handrail.observe.reading import Follower, tail_events
from handrail.observe.verify import read_events, verify_directory

EXAMPLES = """examples:
  handrail audit tail -n 50 -f
  handrail audit show --session s_4f1c --event refusal
  handrail audit why call_123456789
  handrail audit verify --key-file /run/secrets/audit.key"""

_POLL_SECONDS = 0.25
_FIRST = ("ts", "event", "toolId")
_LEFT_OUT = frozenset({*_FIRST, "seq", "hash", "registryVersion", "toolVersion", "category"})


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="tail | show | verify | why")
    tail = actions.add_parser("tail", help="the newest events")
    tail.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="how many (default: 20)")
    tail.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on; Ctrl-C ends it"
    )
    show = actions.add_parser("show", help="events, oldest first")
    show.add_argument("--session", metavar="ID", help="of this session")
    show.add_argument("--call", metavar="ID", help="of this call, by its id or key")
    show.add_argument("--tool", metavar="NAME", help="of this tool")
    show.add_argument("--event", metavar="KIND", help="of this kind, such as refusal")
    show.add_argument("--limit", type=int, metavar="N", help="at most so many")
    verify = actions.add_parser(
        "verify", help="find edited, missing or reordered lines; exit code 1 if there is a problem"
    )
    verify.add_argument("--key-file", metavar="FILE", help="the key of the hashes (default: the setting's)")
    why = actions.add_parser("why", help="what became of a call, in one sentence")
    why.add_argument("call", metavar="CALL", help="the call's id or key")
    for action in (tail, show, verify, why):
        action.add_argument("--dir", metavar="DIR", help="the audit directory (default: the project's)")
        action.add_argument("--json", action="store_true", help="print as JSON, one object a line for events")


def run(options: Namespace) -> int:
    actions = {"tail": _tail, "show": _show, "verify": _verify, "why": _why}
    return actions[options.action](_directory(options.dir), options)


def _directory(chosen: str | None) -> Path:
    settings = current_settings()
    path = Path(chosen) if chosen else settings.project / str(getattr(settings, "audit_directory", "audit"))
    if not path.is_dir():
        raise UsageError(f'There is no audit log in "{os.path.relpath(path)}"; --dir names another directory.')
    return path


def _tail(path: Path, options: Namespace) -> int:
    if options.lines < 0:
        raise UsageError(f"-n must be 0 or more; {options.lines} is not.")
    # Before the tail is read, so that nothing falls between the two; a line may then be met twice, and is told once.
    follower = Follower(path) if options.follow else None
    shown = tail_events(path, options.lines)
    _print_events(shown, options)
    if follower is None:
        return 0
    known = [*shown]
    try:
        while True:
            _print_events((event for event in follower.news() if event not in known), options)
            known.clear()
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return 0


def _show(path: Path, options: Namespace) -> int:
    wanted = {name: getattr(options, name) for name in ("session", "call", "tool", "event")}
    found = _print_events(read_events(path, **wanted, limit=options.limit), options)
    if not found and options.limit != 0:
        named = " and ".join(f'--{name} "{value}"' for name, value in wanted.items() if value is not None)
        # Beside the output, which stays what was asked for: no events. As with `grep`, that is exit code 1.
        sys.stderr.write(
            _printable(f"No event of the audit log fits {named}." if named else "The audit log is empty.") + "\n"
        )
    return 0 if found or not any(wanted.values()) else 1


def _verify(path: Path, options: Namespace) -> int:
    problems = verify_directory(path, _key(options.key_file))
    if options.json:
        print_json([{"file": problem.file, "line": problem.line, "message": problem.message} for problem in problems])
    else:
        for problem in problems:
            sys.stderr.write(f"{_printable(str(problem))}\n")
        print(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}." if problems else "The audit log is whole.")
    return 1 if problems else 0


def _why(path: Path, options: Namespace) -> int:
    events = list(read_events(path, call=options.call))
    # Near ids, and what a person decided about a held call, are in lines that do not name the call.
    enough = events and not any("confirmationId" in event for event in events)
    found = explain(events if enough else read_events(path), options.call)
    if options.json:
        print_json({"found": found.found, "sentence": found.sentence})
    else:
        print(_printable(found.sentence))
    return 0 if found.found else 1


def _key(chosen: str | None) -> bytes | None:
    name = chosen or str(getattr(current_settings(), "audit_key_file", ""))
    if not name:
        return None
    try:
        key = Path(name).read_bytes().strip()
    except OSError as error:
        raise UsageError(f'The key file "{name}" cannot be read ({error.strerror}).') from None
    if not key:
        raise UsageError(f'The key file "{name}" is empty.')
    return key


def _print_events(events: Iterable[Mapping[str, Any]], options: Namespace) -> bool:
    """Whether there were any."""
    found = False
    for event in events:
        found = True
        print(json.dumps(event) if options.json else _line(event), flush=options.action == "tail")
    return found


def _line(event: Mapping[str, Any]) -> str:
    rest = [f"{name}={_value(value)}" for name, value in event.items() if name not in _LEFT_OUT and value is not None]
    ts, kind, tool = (str(event.get(name) or "") for name in _FIRST)
    return _printable(f"{ts}  {kind:<13} {tool:<18} {' '.join(rest)}".rstrip())


def _value(value: Any) -> str:
    plain = isinstance(value, str) and value and not any(mark in value for mark in ' "=')
    return value if plain else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    # Ids and names come from models and callers; they must not steer a terminal.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)

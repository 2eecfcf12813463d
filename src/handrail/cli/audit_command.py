"""The audit log: what happened lately, in a session or to a call, why, and whether the log can be trusted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

from handrail.app import audit_key, has_store, store_url
from handrail.cli.call_report import block_of
from handrail.cli.output import print_json, printable
from handrail.cli.project import current_settings
from handrail.contract.errors import UsageError
from handrail.contract.store import AuditCheckpoint, SettledCall, Store
from handrail.observe.audit_files import OF_THE_CHAIN, Event, Follower, tail_events
from handrail.observe.call_explanation import lines_in, tell
from handrail.observe.sealing import APPROVER, open_event, pseudonym_of, with_names
from handrail.observe.verify import read_events, verify_directory
from handrail.settings import Settings
from handrail.stores import open_store

EXAMPLES = """examples:
  handrail audit tail -n 50 -f
  handrail audit show --session s_4f1c --event refusal
  handrail audit show call_123456789
  handrail audit why call_123456789
  handrail audit verify
  handrail audit verify --key-file /run/secrets/audit.key"""

_POLL_SECONDS = 0.25
_BATCH = 500
_FIRST = ("ts", "event", "toolId")
_LEFT_OUT = frozenset(
    {*_FIRST, "seq", "hash", "registryVersion", "toolVersion", "category", "validator", "validatorMs"}
)


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="tail | show | verify | why")
    tail = actions.add_parser("tail", help="the newest events")
    tail.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="how many (default: 20)")
    tail.add_argument(
        "-f", "--follow", action="store_true", help="continue with what is written from now on; Ctrl-C ends it"
    )
    tail.add_argument("--checkpoints", action="store_true", help="with the lines that only the chain of hashes needs")
    show = actions.add_parser("show", help="events, oldest first; of one CALL what was sent, parsed and validated")
    show.add_argument(
        "of_call",
        nargs="?",
        metavar="CALL",
        help="one call in full: its id or key, the ledger's key, or the confirmation's id",
    )
    show.add_argument("--session", metavar="ID", help="of this session")
    show.add_argument(
        "--call", metavar="ID", help="of this call, by its id or key, the ledger's key or its confirmation's id"
    )
    show.add_argument("--tool", metavar="NAME", help="of this tool")
    show.add_argument("--event", metavar="KIND", help="of this kind, such as refusal")
    show.add_argument("--limit", type=int, metavar="N", help="show at most N lines")
    verify = actions.add_parser(
        "verify", help="find edited, missing or reordered lines; exit code 1 if there is a problem"
    )
    verify.add_argument("--key-file", metavar="FILE", help="the key of the hashes (default: that of [audit])")
    why = actions.add_parser("why", help="what became of a call, in one sentence")
    why.add_argument("call", metavar="CALL", help="its id or key, the ledger's key, or the confirmation's id")
    for action in (tail, show, verify, why):
        action.add_argument("--dir", metavar="DIR", help="the audit directory (default: the project's)")
        action.add_argument("--json", action="store_true", help="print as JSON, one object a line for events")


def run(options: Namespace) -> int:
    actions = {"tail": _tail, "show": _show, "verify": _verify, "why": _why}
    return actions[options.action](_directory(options.dir), options)


def _directory(chosen: str | None) -> Path:
    settings = current_settings()
    path = Path(chosen) if chosen else settings.project / settings.audit_directory
    if not path.is_dir():
        raise UsageError(f'There is no audit log in "{os.path.relpath(path)}"; --dir names another directory.')
    return path


def _tail(path: Path, options: Namespace) -> int:
    if options.lines < 0:
        raise UsageError(f"-n must be 0 or more; {options.lines} is not.")
    # Before the tail is read, so that nothing falls between the two; a line may then be met twice, and is shown once.
    follower = Follower(path) if options.follow else None
    without = () if options.checkpoints else OF_THE_CHAIN
    known = tail_events(path, options.lines, without)
    with _SealedText(options) as words:
        _print_events(words.of(known), options)
        if follower is None:
            return 0
        try:
            while True:
                news = [event for event in follower.news() if event not in known and event["event"] not in without]
                _print_events(words.of(news), options)
                known.clear()
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            return 0


def _show(path: Path, options: Namespace) -> int:
    if options.of_call is not None and options.call is not None:
        raise UsageError("Name the call once: as CALL, or with --call.")
    wanted = {name: getattr(options, name) for name in ("session", "call", "tool", "event")}
    wanted["call"] = options.of_call if options.call is None else options.call
    for name, value in wanted.items():
        if value is not None and not value.strip():
            raise UsageError(f"The {name} is empty; name one, or leave it out.")
    with _SealedText(options) as words:
        found = _print_events(words.of(read_events(path, **wanted, limit=options.limit)), options)
    if not found and options.limit != 0:
        named = " and ".join(f'--{name} "{value}"' for name, value in wanted.items() if value is not None)
        # Beside the output, which stays what was asked for: no events. As with `grep`, that is exit code 1.
        sys.stderr.write(
            printable(f"No event of the audit log fits {named}." if named else "The audit log is empty.") + "\n"
        )
    return 0 if found or not any(wanted.values()) else 1


def _verify(path: Path, options: Namespace) -> int:
    settings = current_settings()
    key = _key(options.key_file, settings)
    known = None if options.dir else asyncio.run(_known_to_store(settings))
    stored, calls = known or (None, [])
    problems = verify_directory(path, key, stored, calls)
    if options.json:
        print_json([{"file": problem.file, "line": problem.line, "message": problem.message} for problem in problems])
        return 1 if problems else 0
    for problem in problems:
        sys.stderr.write(f"{printable(str(problem))}\n")
    for sentence in _not_covered(key, stored):
        sys.stderr.write(f"{sentence}\n")
    print(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}." if problems else "The audit log is whole.")
    return 1 if problems else 0


async def _known_to_store(settings: Settings) -> tuple[list[AuditCheckpoint], list[SettledCall]] | None:
    """What the project's store knows of its chains, and the calls that must have a line; None if there is no store."""
    store = _store(settings)
    if store is None:
        return None
    await store.open()
    try:
        calls = await store.calls_to_audit()  # before the files are read, so that their lines are there
        return await store.audit_checkpoints(), calls
    finally:
        await store.close()


def _store(settings: Settings) -> Store | None:
    """The project's store, if there is one: looking makes no file, and what is in memory is no other process's."""
    url = store_url(settings)
    return open_store(url) if has_store(settings) and not url.startswith("memory:") else None


class _SealedText:
    """Opens what is sealed in lines, by the keys that the project's store has. Without a store it stays sealed."""

    def __init__(self, options: Namespace) -> None:
        self._runner = asyncio.Runner()
        self._store = _store(current_settings()) if not options.dir else None
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_open and self._store is not None:
            self._runner.run(self._store.close())
        self._runner.close()

    def of(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
        for batch in _batched(events, _BATCH):
            sealed = {whose for event in batch if (whose := pseudonym_of(event)) is not None}
            approvers = {str(event[APPROVER]) for event in batch if event.get(APPROVER)}
            keys, users = self._known(sealed, approvers)
            yield from (with_names(open_event(event, keys), users) for event in batch)

    def _known(self, sealed: set[str], approvers: set[str]) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        store = self._store
        if store is None or not (sealed or approvers):
            return {}, {}
        if not self._is_open:
            self._runner.run(store.open())
            self._is_open = True
        keys = self._runner.run(store.audit_secrets(sorted(sealed)))
        return keys, self._runner.run(store.audit_users(sorted(approvers)))


def _batched(events: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[Mapping[str, Any]]]:
    rest = iter(events)
    while batch := list(islice(rest, size)):
        yield batch


def _not_covered(key: bytes | None, stored: Sequence[AuditCheckpoint] | None) -> Iterator[str]:
    """What this look could not have found."""
    if key is None:
        yield (
            "Without a key nobody can tell whether somebody who may write these files and the store has computed all hashes "
            "anew, after editing or removing lines; `[audit] key` or HANDRAIL_AUDIT_KEY sets one."
        )
    if stored is None:
        yield (
            "Without the project's store nobody can tell whether the newest lines or files were removed together with their "
            "checkpoints."
        )


def _why(path: Path, options: Namespace) -> int:
    lines = lines_in(path, options.call)
    with _SealedText(options) as words:
        found = tell(replace(lines, events=list(words.of(lines.events))))
    if options.json:
        print_json({"found": found.found, "sentence": found.sentence})
    else:
        print(printable(found.sentence))
    return 0 if found.found else 1


def _key(chosen: str | None, settings: Settings) -> bytes | None:
    if not chosen:
        return audit_key(settings)
    try:
        key = Path(chosen).read_bytes().strip()
    except OSError as error:
        raise UsageError(f'The key file "{chosen}" cannot be read ({error.strerror}).') from None
    if not key:
        raise UsageError(f'The key file "{chosen}" is empty.')
    return key


def _print_events(events: Iterable[Mapping[str, Any]], options: Namespace) -> bool:
    """Whether there were any."""
    found = False
    for event in events:
        found = True
        if getattr(options, "of_call", None) is not None and not options.json:
            print(block_of(event))
        else:
            print(json.dumps(event) if options.json else _line(event), flush=options.action == "tail")
    return found


def _line(event: Mapping[str, Any]) -> str:
    rest = [f"{name}={_value(value)}" for name, value in event.items() if name not in _LEFT_OUT and value is not None]
    ts, kind, tool = (str(event.get(name) or "") for name in _FIRST)
    return printable(f"{ts}  {kind:<13} {tool:<18} {' '.join(rest)}".rstrip())


def _value(value: Any) -> str:
    plain = isinstance(value, str) and value and not any(mark in value for mark in ' "=')
    return value if plain else json.dumps(value, ensure_ascii=False)

"""Writing calls and their outcomes; settle those whose outcome is not known.

`settle KEY --as succeeded|failed` records what a person found out; `settle KEY --reconcile` asks the tool itself. `prune` gives
back the space of expired calls; nothing that it drops can be run a second time.
"""

from __future__ import annotations

import asyncio
import json
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import UTC, datetime
from typing import Any

import orjson

from handrail.app import has_store, open_registry, open_runtime
from handrail.cli.output import print_json, printable, show
from handrail.cli.project import project_settings
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, UsageError
from handrail.contract.store import LedgerRow, LedgerState
from handrail.runtime.core import RuntimeCore
from handrail.runtime.reconcile import reconcile
from handrail.runtime.retention import PAUSE_SECONDS, Pruning

EXAMPLES = """examples:
  handrail ledger list
  handrail ledger list --state unknown --json
  handrail ledger show 3f2a
  handrail ledger settle 3f2a --reconcile
  handrail ledger settle 3f2a --as succeeded --note "seen in the calendar"
  handrail ledger prune --results 7 --rows 30 """


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|settle|prune")
    listing = actions.add_parser("list", help="the newest writing calls")
    listing.add_argument("--state", choices=[state.value for state in LedgerState], help="only those in this state")
    listing.add_argument("--limit", type=int, default=50, help="how many (default: 50)")
    showing = actions.add_parser("show", help="one call with its arguments and outcome")
    showing.add_argument("key", help="its key, or the beginning of it")
    settling = actions.add_parser("settle", help="settle an unknown outcome")
    settling.add_argument("key", help="its key, or the beginning of it")
    how = settling.add_mutually_exclusive_group(required=True)
    how.add_argument("--as", dest="state", choices=("succeeded", "failed"), help="what a person found out")
    how.add_argument("--reconcile", action="store_true", help="let the tool's own `reconcile` find out")
    settling.add_argument("--note", default="", help="why, for the record")
    pruning = actions.add_parser("prune", help="free the space of expired calls")
    pruning.add_argument(
        "--results", type=_days, default=7, metavar="DAYS", help="results older than this (default: 7)"
    )
    pruning.add_argument(
        "--rows", type=_days, default=30, metavar="DAYS", help="calls and turns of closed sessions (default: 30)"
    )
    for one in (listing, showing, settling, pruning):
        one.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
        one.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: Namespace) -> int:
    settings = project_settings()
    if not has_store(settings):  # looking makes none
        if options.action == "list":
            return _list([], options.json)
        raise UsageError("Nothing is stored in this project yet, so its ledger has no calls.")
    registry = open_registry(settings, options.registry)
    services = getattr(options, "reconcile", False)
    async with open_runtime(settings, registry, capability_checks=False, services=services) as runtime:
        if options.action == "list":
            state = LedgerState(options.state) if options.state else None
            return _list(await runtime.store.ledger_rows(state=state, limit=options.limit), options.json)
        if options.action == "prune":
            return await _prune(runtime, options)
        row = _one(await runtime.store.ledger_rows(limit=100_000), options.key)
        if options.action == "settle":
            if row.state is not LedgerState.UNKNOWN:
                raise UsageError(
                    f"The call {row.key[:12]} is {row.state.value}; only an unknown outcome can be settled."
                )
            if options.reconcile:
                row = await reconcile(runtime, row)
            else:
                row = await _settle(runtime, row, options)
        if options.json:
            print_json(_fields(row))
        else:
            _show(row)
        return 0 if options.action == "show" or row.state is not LedgerState.UNKNOWN else 1


def _days(text: str) -> int:
    """A late duplicate must find what it asks for, so a day is the least."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= 36_500:
        raise ArgumentTypeError(f'"{text}" is no number of days; give one from 1 to 36500')
    return int(text)


async def _prune(runtime: RuntimeCore, options: Namespace) -> int:
    pruning = Pruning(await runtime.store.now(), results_days=options.results, calls_days=options.rows)
    try:
        while not pruning.is_over:
            await pruning.step(runtime.store)
            await runtime.clock.sleep(PAUSE_SECONDS)
    finally:
        runtime.audit.emit("pruned", pruning.gone())
    if options.json:
        print_json(pruning.gone())
    else:
        show(f"{pruning.results} results and {pruning.rows} calls of closed sessions were given back.")
    return 0


async def _settle(runtime: RuntimeCore, row: LedgerRow, options: Namespace) -> LedgerRow:
    state = LedgerState(options.state)
    meta = {"toolId": row.tool, "settledBy": os.environ.get("USER", "operator"), "note": options.note}
    if state is LedgerState.SUCCEEDED:
        answer = ToolResponse.success(None, meta=meta)
    else:
        answer = ToolResponse.failure(ErrorType.PERMANENT, f'"{row.tool}" did not take effect.', meta=meta)
    settled = await runtime.store.settle(row.key, state=state, envelope=orjson.dumps(answer.to_dict()).decode())
    if settled is None:
        raise UsageError(f"The call {row.key[:12]} was settled by somebody else in the meantime.")
    runtime.audit.emit("settled", {"ledgerKey": row.key, "toolId": row.tool, "ok": answer.ok, **meta})
    return settled


def _one(rows: list[LedgerRow], beginning: str) -> LedgerRow:
    found = [row for row in rows if row.key.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f'No call has a key that begins with "{beginning}".')
    raise UsageError(f'{len(found)} calls have a key that begins with "{beginning}"; give more of it.')


def _list(rows: list[LedgerRow], as_json: bool) -> int:
    if as_json:
        print_json([_fields(row) for row in rows])
        return 0
    for row in rows:
        state = _STATES.get(row.state, row.state.value)
        show(f"{row.key[:12]}  {state:<15}  {row.tool:<24}  {row.session_id}  turn {row.turn}")
    if not rows:
        show("No writing call is recorded.")
    return 0


def _show(row: LedgerRow) -> None:
    """For a person: what has more than one part as JSON, times as such, and an open outcome in words."""
    for name, value in _fields(row).items():
        if name == "state":
            value = _STATES.get(row.state, value)
        elif name == "envelope":
            value = value or _NO_ENVELOPE.get(row.state, "no longer kept")
        text = (
            json.dumps(value, indent=2, ensure_ascii=False)
            if isinstance(value, dict | list)
            else "-"
            if value is None
            else str(value)
        )
        print(f"{name:<16} {_INDENT.join(map(printable, text.splitlines()))}")


_INDENT = "\n" + " " * 17
_STATES = {LedgerState.UNKNOWN: "unknown outcome"}
_NO_ENVELOPE = {
    LedgerState.RUNNING: "not yet: it runs",
    LedgerState.UNKNOWN: "not known: it may have taken effect; `handrail ledger settle` records what was found out",
}


def _fields(row: LedgerRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "state": row.state.value,
        "tool": row.tool,
        "sessionId": row.session_id,
        "turn": row.turn,
        "user": row.user,
        "args": orjson.loads(row.args),
        "createdAt": _moment(row.created_at),
        "finishedAt": _moment(row.finished_at),
        "envelope": orjson.loads(row.envelope) if row.envelope else None,
    }


def _moment(milliseconds: int | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601, in UTC as the lines of the audit log."""
    if milliseconds is None:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

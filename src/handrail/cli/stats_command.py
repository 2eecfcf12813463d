"""How tools were used, over all processes and days: calls, outcomes, refusals, declined confirmations, latency, size, tokens, how
turns ended.

Servers and commands write what they have counted to the store every few seconds. Days are those of UTC.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from handrail.app import has_store, store_url
from handrail.cli import nearest
from handrail.cli.output import print_json, show
from handrail.cli.project import project_settings
from handrail.contract.usage import TURN_OUTCOMES, UsageRow
from handrail.observe.usage_report import WAYS, first_day, reports
from handrail.observe.version_comparison import comparisons, rendered
from handrail.settings import Settings
from handrail.stores import open_store

EXAMPLES = """examples:
  handrail stats
  handrail stats --by day --since 30d
  handrail stats --by tenant --since 2026-11-01 --json
  handrail stats --tool kb_search --by version"""

_COLUMNS = (
    "calls",
    "ok",
    "errors",
    "refused",
    "held",
    "declined",
    "replayed",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "p95 bytes",
    "tokens",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--by", choices=WAYS, default="tool", help="one line for each (default: tool)")
    parser.add_argument("--since", default="7d", metavar="DAY", help="a day, or an age such as 30d (default: 7d)")
    parser.add_argument("--tool", metavar="NAME", help="only this tool")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    settings = project_settings()
    since = first_day(options.since, datetime.now(UTC).date())
    rows = asyncio.run(_rows(settings, since, options.tool)) if has_store(settings) else []
    found = reports(rows, options.by)
    compared = comparisons(rows) if options.by == "version" else []
    if options.json:
        more = {"comparisons": [one.to_dict() for one in compared]} if options.by == "version" else {}
        print_json({"since": since, "by": options.by, "rows": found, **more})
        return 0
    if not found and options.tool is not None and has_store(settings):
        near = nearest(options.tool, sorted({row.tool for row in asyncio.run(_rows(settings, since, None))}))
        show(f'No call of "{options.tool}" is counted since {since}{near or "."}')
        return 0
    if not found:
        show(f"No call is counted since {since}.")
        return 0
    show(_tables(found, options.by))
    for one in compared:
        show(f"\n{rendered(one)}")
    return 0


async def _rows(settings: Settings, since: str, tool: str | None) -> list[UsageRow]:
    store = open_store(store_url(settings))
    await store.open()
    try:
        return await store.usage.rows(since=since, tool=tool)
    finally:
        await store.close()


def _tables(found: list[dict[str, Any]], by: str) -> str:
    """What was called; how turns ended, as shares; and which gate refused calls: each where there is something to tell."""
    names = ("tool", "version") if by == "version" else (by,)

    def table(
        columns: Sequence[str], tell: Callable[[dict[str, Any]], Sequence[str]], rows: list[dict[str, Any]]
    ) -> str:
        lines = [(*names, *columns), *((*(one[name] or "-" for name in names), *tell(one)) for one in rows)]
        return _aligned(lines, len(names))

    tables = [table(_COLUMNS, _numbers, found)]
    with_turns = [one for one in found if one["turns"]]
    if with_turns:
        tables.append(table(("turns", *TURN_OUTCOMES), _turns, with_turns))
    refused = [one for one in found if one["refusals"]]
    if refused:
        gates = sorted({gate for one in refused for gate in one["refusals"]})
        tables.append(
            table(
                [f"refused by {gates[0]}", *gates[1:]],
                lambda one: [f"{one['refusals'].get(gate, 0):,}" for gate in gates],
                refused,
            )
        )
    return "\n\n".join(tables)


def _aligned(lines: Sequence[Sequence[str]], named: int) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column < named else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _turns(one: dict[str, Any]) -> list[str]:
    total = sum(one["turns"].values())
    return [f"{total:,}", *(f"{one['turns'].get(outcome, 0) / total * 100:.1f} %" for outcome in TURN_OUTCOMES)]


def _numbers(one: dict[str, Any]) -> tuple[str, ...]:
    ran = one["executed"]  # what never ran took no time, which is not the same as none at all
    latency = [f"{one['latency'][name]:,.1f}" if ran else "–" for name in ("p50", "p95", "p99")]
    counts = (
        one["calls"],
        one["ok"],
        sum(one["errors"].values()),
        sum(one["refused"].values()),
        one["held"],
        one["declined"],
        one["replayed"],
    )
    return (
        *(f"{count:,}" for count in counts),
        *latency,
        f"{one['size']['p95']:,}" if ran else "–",
        f"{one['tokens']['total']:,}",
    )

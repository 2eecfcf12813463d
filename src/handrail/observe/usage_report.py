"""Statistics as people read them: rows of usage (`handrail.contract.usage`), merged by what they are asked by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any, Literal

from handrail.contract.errors import UsageError
from handrail.contract.usage import UsageRow, add_counts
from handrail.observe.sketch import quantiles

By = Literal["tool", "day", "tenant", "version"]
WAYS: tuple[By, ...] = ("tool", "day", "tenant", "version")
_SHARES = (0.5, 0.95, 0.99)
_AGE = re.compile(r"([0-9]{1,5})d")


def merged(rows: Iterable[UsageRow], by: By) -> dict[tuple[str, ...], dict[str, Any]]:
    """What was counted, by tool, by day, by tenant, or by tool and version; in order. What belongs to no tool counts for days and
    tenants only."""
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        if by in ("tool", "version") and not row.tool:
            continue
        key = (row.tool, row.version) if by == "version" else (getattr(row, by),)
        group = groups.setdefault(key, {})
        counts = row.counts
        if by in ("day", "tenant") and row.tool:  # a turn with two tools is one turn
            counts = {name: value for name, value in counts.items() if name not in ("turns", "sessions")}
        add_counts(group, counts)
    return dict(sorted(groups.items()))


def report(counts: Mapping[str, Any]) -> dict[str, Any]:
    """What was counted, with percentiles in the place of distributions."""
    outcomes = counts.get("outcomes", {})
    executed, size = counts.get("executed", 0), counts.get("size", {})
    sizes = [round(value) for value in quantiles(size, *_SHARES)]
    tokens = size.get("sum", 0) / 4
    return {
        "calls": counts.get("calls", 0),
        "executed": executed,
        "ok": outcomes.get("ok", 0),
        "errors": {name: outcomes[name] for name in sorted(outcomes) if name != "ok"},
        "errorRate": round(1 - outcomes.get("ok", 0) / executed, 4) if executed else 0.0,
        "refusals": dict(sorted(counts.get("refusals", {}).items())),
        "refused": dict(sorted(counts.get("refused", {}).items())),
        "held": counts.get("held", 0),
        "declined": counts.get("declined", 0),
        "replayed": counts.get("replayed", 0),
        "latency": _percentiles([round(value, 3) for value in quantiles(counts.get("latency", {}), *_SHARES)]),
        "size": _percentiles(sizes),
        "tokens": {
            "total": round(tokens),
            "avg": round(tokens / executed) if executed else 0,
            "p95": -(-sizes[1] // 4),
        },
        "turns": dict(sorted(counts.get("turns", {}).items())),
        "sessions": counts.get("sessions", {}).get("n", 0),
    }


def reports(rows: Iterable[UsageRow], by: By) -> list[dict[str, Any]]:
    """One report for each tool, day, tenant, or tool and version; the most used tools first, days in their order."""
    found = [
        {**dict(zip(("tool", "version") if by == "version" else (by,), key, strict=True)), **report(counts)}
        for key, counts in merged(rows, by).items()
    ]
    if by in ("tool", "tenant"):
        found.sort(key=lambda one: -one["calls"])
    return found


def first_day(since: str, today: date) -> str:
    """The day that `7d` or `2026-11-01` stands for; `UsageError` if it is neither."""
    age = _AGE.fullmatch(since)
    try:
        if age is not None:
            return (today - timedelta(int(age[1]))).isoformat()
        return date.fromisoformat(since).isoformat()
    except (ValueError, OverflowError):
        raise UsageError(f'"{since}" is no day; write one such as "2026-11-01", or an age such as "7d".') from None


def _percentiles(values: list[Any]) -> dict[str, Any]:
    return {f"p{share * 100:.0f}": value for share, value in zip(_SHARES, values, strict=True)}

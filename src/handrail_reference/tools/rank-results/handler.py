"""Orders results by score, date or boosted score. Stable: what is equal stays in the order in which it was given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from handrail import ErrorType, ToolError

Item = Mapping[str, Any]

# Sums of decimal fractions end in noise such as 0.30000000000000004. Rounded, equal sums are equal and look it.
_DECIMALS = 12
_UNDATED = datetime.min.replace(tzinfo=UTC)


async def execute(args: Mapping[str, Any], ctx: object) -> dict[str, Any]:
    """The best `limit` items in the asked order."""
    by = args["by"]
    final = _boosted if by == "boosted" else itemgetter("score")
    entries = [{"id": item["id"], "final_score": final(item), "date": item.get("date")} for item in args["items"]]
    keys = [_by_date(entry, place) if by == "date" else entry["final_score"] for place, entry in enumerate(entries)]
    # A reversed sort is as stable as a plain one: equals keep their order while the best come first.
    order = sorted(range(len(entries)), key=keys.__getitem__, reverse=True)
    best: dict[str, Item] = {}
    for place in order:
        best.setdefault(entries[place]["id"], entries[place])
    top = list(best.values())[: args["limit"]]
    return {
        "ok": True,
        "data": {
            "items": [{"rank": rank, **entry} for rank, entry in enumerate(top, 1)],
            "total": len(best),
            "duplicates": len(entries) - len(best),
        },
    }


def _boosted(item: Item) -> float:
    # Exact summing, because the order of names in a JSON object means nothing and must not change the result.
    return round(math.fsum([item["score"], *item.get("boosts", {}).values()]), _DECIMALS)


def _by_date(entry: Item, place: int) -> tuple[bool, datetime, float]:
    written = entry["date"]
    return (written is not None, _UNDATED if written is None else _moment(written, place), entry["final_score"])


def _moment(written: str, place: int) -> datetime:
    """A date alone is its first moment in UTC. The schema has checked the form, but RFC 3339 knows more than Python."""
    text = written.upper() if len(written) > len("2026-03-29") else f"{written}T00:00:00Z"
    leap = text[17:19] == "60"
    try:
        moment = datetime.fromisoformat(text[:17] + "59" + text[19:] if leap else text)
        return moment + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        raise ToolError(
            ErrorType.VALIDATION,
            f'The date "{written}" of item {place} cannot be compared. Give a date within the years 1 to 9999.',
            details=[{"pointer": f"/items/{place}/date"}],
        ) from None

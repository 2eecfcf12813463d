"""Searches the knowledge base on behalf of the session's user, and gives evidence: what was found, and what to cite."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

from handrail import ErrorType, ToolError
from handrail.errors import HandrailError
from handrail_reference.services.kb.port import Evidence, Filter, KbTooSlow, KbUnavailable, NamespaceRefused
from handrail_reference.services.kb.shown import with_short_snippets, with_texts

_SECONDS = {"voice": 1.5, "text": 4.0}
_MAX_IN_VOICE = 3
_USE_KB_GET = "You have searched in this turn already. Read a record that you know with kb_get and its id, or answer."


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The best records for the query, as evidence."""
    started = perf_counter()
    voice = ctx.mode == "voice"
    wanted = _filter(args.get("filters", {}))
    try:
        found = await ctx.kb.search(
            args["query"],
            user=ctx.user,
            tenant=ctx.tenant,
            namespace=args["namespace"],
            wanted=wanted,
            limit=min(args["top_k"], _MAX_IN_VOICE) if voice else args["top_k"],
            seconds=_SECONDS[ctx.mode],
        )
    except NamespaceRefused as error:
        raise ToolError(
            ErrorType.VALIDATION,
            f'The namespace "{error.namespace}" is not open to this user.',
            suggestion="Search another namespace; personal records need a signed-in user.",
            details=[{"pointer": "/namespace"}],
        ) from None
    except KbTooSlow:
        raise ToolError(
            ErrorType.TRANSIENT, "The search took too long and was stopped. Fewer words are quicker.", retryable=True
        ) from None
    except HandrailError as error:
        # What is wrong with the file is for the operator; the model only needs to know whether to try again.
        ctx.log.error("The knowledge base cannot be searched: %s", error)
        passing = isinstance(error, KbUnavailable)
        raise ToolError(
            ErrorType.TRANSIENT if passing else ErrorType.PERMANENT,
            "The knowledge base cannot be searched at the moment. Answer without it, and say so.",
            retryable=passing,
        ) from None
    fields = set(args["return_fields"]) - ({"full_text"} if voice else set())
    if not args["include_snippets"]:
        fields.discard("snippet")
    results = [_result(one, fields) for one in found]
    if "full_text" in fields:
        results = with_texts(results, [one.record.text for one in found])
    else:
        results = with_short_snippets(results)
    data = {
        "results": results,
        "query_time_ms": round(1000 * (perf_counter() - started), 1),
        "clamped": bool(ctx.clamped),
    }
    if voice and ctx.earlier_calls:
        data["suggestion"] = _USE_KB_GET
    return {"ok": True, "data": data}


def _filter(filters: Mapping[str, Any]) -> Filter:
    dates = filters.get("date_range", {})
    start, end = (_seconds(dates[name], name) if name in dates else None for name in ("start", "end"))
    if start is not None and end is not None and start > end:
        raise ToolError(
            ErrorType.VALIDATION,
            "The date range ends before it begins. Swap start and end.",
            details=[{"pointer": "/filters/date_range"}],
        )
    return Filter(type=filters.get("type"), tags=tuple(filters.get("tags", ())), start=start, end=end)


def _seconds(written: str, name: str) -> float:
    """A date-time as seconds since 1970. The schema has checked the form, but RFC 3339 knows more than Python."""
    text = written.upper()
    leap = text[17:19] == "60"
    try:
        moment = datetime.fromisoformat(text[:17] + "59" + text[19:] if leap else text) + timedelta(seconds=leap)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except (ValueError, OverflowError):
        raise ToolError(
            ErrorType.VALIDATION,
            f'The date-time "{written}" cannot be compared. Give one within the years 1 to 9999.',
            details=[{"pointer": f"/filters/date_range/{name}"}],
        ) from None


def _result(one: Evidence, fields: set[str]) -> dict[str, Any]:
    record = one.record
    result: dict[str, Any] = {
        "id": record.id,
        "type": record.type,
        "title": one.title,
        "score": one.score,
        "source_type": record.source_type,
        "last_updated": record.last_updated or None,
    }
    more = {
        "snippet": one.snippet,
        "metadata": dict(record.metadata),
        "sources": [{"id": record.id, "title": one.title, "source": record.source, "url": record.url or None}],
        "url": record.url or None,
    }
    return result | {name: value for name, value in more.items() if name in fields}

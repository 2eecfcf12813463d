"""Searches the knowledge base on behalf of the session's user, and gives evidence: what was found, and what to cite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

from handrail import ErrorType, ToolError
from handrail.errors import HandrailError
from handrail_reference.services.kb.port import Evidence, Filter, KbTooSlow, KbUnavailable, NamespaceRefused
from handrail_reference.services.kb.query_words import asks_for_all
from handrail_reference.services.kb.shown import MAX_SHOWN, with_texts, within_room

_SECONDS = {"voice": 1.5, "text": 4.0}
_MAX_IN_VOICE = 3
_MAX_LISTED = 50
"""Records of a type that are counted where all of it is asked for."""
_ROOM_FOR_IDS = 300
"""Characters for the ids of records of a list that are beyond `top_k`."""
_USE_KB_GET = "You have searched in this turn already. Read a record that you know with kb_get and its id, or answer."


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The best records for the query, as evidence."""
    started = perf_counter()
    voice = ctx.mode == "voice"
    wanted = _filter(args.get("filters", {}))
    limit = min(args["top_k"], _MAX_IN_VOICE) if voice else args["top_k"]
    is_list = wanted.type is not None and asks_for_all(args["query"], wanted.type)
    try:
        found = await ctx.kb.search(
            args["query"],
            user=ctx.user,
            tenant=ctx.tenant,
            namespace=args["namespace"],
            wanted=wanted,
            limit=_MAX_LISTED if is_list else limit,
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
            ErrorType.TRANSIENT,
            "The search took too long and was stopped.",
            retryable=True,
            suggestion="Search with fewer words.",
        ) from None
    except HandrailError as error:
        # What is wrong with the file is for the operator; the model only needs to know whether to try again.
        ctx.log.error("The knowledge base cannot be searched: %s", error)
        passing = isinstance(error, KbUnavailable)
        raise ToolError(
            ErrorType.TRANSIENT if passing else ErrorType.PERMANENT,
            "The knowledge base cannot be searched at the moment.",
            retryable=passing,
            suggestion="Answer without it, and say so.",
        ) from None
    fields = set(args["return_fields"]) - ({"full_text"} if voice else set())
    if not args["include_snippets"]:
        fields.discard("snippet")
    found, beyond = found[:limit], [one.record.id for one in found[limit:]]
    more = _more(len(found), beyond)
    results = [_result(one, fields) for one in found]
    said = ""
    if "full_text" in fields:
        results = with_texts(results, [one.record.text for one in found])
    else:
        results, said = within_room(results, MAX_SHOWN - len(more))
    data = {
        "results": results,
        "query_time_ms": round(1000 * (perf_counter() - started), 1),
        "clamped": bool(ctx.clamped),
    }
    sentences = [more, said, _USE_KB_GET if voice and ctx.earlier_calls else ""]
    if any(sentences):
        data["suggestion"] = " ".join(filter(None, sentences))
    return {"ok": True, "data": data}


def _more(shown: int, beyond: Sequence[str]) -> str:
    """What a list has beside the records that are shown, by id as far as there is room."""
    if not beyond:
        return ""
    named: list[str] = []
    for one in beyond:
        if sum(map(len, named)) + 2 * len(named) + len(one) > _ROOM_FOR_IDS:
            break
        named.append(one)
    total = shown + len(beyond)
    rest = len(beyond) - len(named)
    listed = f": {', '.join(named)}" if named else ""
    others = f"{listed}, and {rest} more" if rest and named else listed
    word = "other" if len(beyond) == 1 else "others"
    count = f"at least {total}" if total == _MAX_LISTED else f"{total}"
    return f"There are {count} in all, these and {len(beyond)} {word}{others}. kb_get reads them by id; tags narrow the list."


def _filter(filters: Mapping[str, Any]) -> Filter:
    dates = filters.get("date_range", {})
    start, end = (_seconds(dates[name], name) if name in dates else None for name in ("start", "end"))
    if start is not None and end is not None and start > end:
        raise ToolError(
            ErrorType.VALIDATION,
            "The date range ends before it begins; swap start and end.",
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
            f'The date-time "{written}" cannot be compared; give one within the years 1 to 9999.',
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

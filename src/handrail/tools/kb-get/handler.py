"""Reads records by id. What the user may not read is missing, like what does not exist: nobody learns which it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError
from handrail.contract.errors import HandrailError
from handrail.services.kb.pieces import snippet_of
from handrail.services.kb.port import KbUnavailable
from handrail.services.kb.record import Record, shown_title

_NEAREST = 3


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The records in the order asked, and the ids that were not found."""
    ids = list(dict.fromkeys(args["ids"]))
    who = {"user": ctx.user, "tenant": ctx.tenant, "namespace": args["namespace"]}
    try:
        found = await ctx.kb.get(ids, **who)
        near = [] if found else await _nearest(ctx.kb, ids, who)
    except HandrailError as error:
        ctx.log.error("The knowledge base cannot be read: %s", error)
        passing = isinstance(error, KbUnavailable)
        raise ToolError(
            ErrorType.TRANSIENT if passing else ErrorType.PERMANENT,
            "The knowledge base cannot be read at the moment. Answer without it, and say so.",
            retryable=passing,
        ) from None
    missing = [one for one in ids if one not in found]
    if not found:
        hint = f"Ids like these exist: {', '.join(near)}." if near else "Look for the record with kb_search."
        raise ToolError(
            ErrorType.NOT_FOUND,
            f"There is no record {' or '.join(missing)} here.",
            suggestion=hint,
            details=[{"pointer": "/ids", "nearest": near}],
        )
    fields = set(args["return_fields"]) - ({"full_text"} if ctx.mode == "voice" else set())
    records = [_shown(found[one], fields) for one in ids if one in found]
    return {"ok": True, "data": {"records": records, "missing": missing}}


async def _nearest(kb: Any, ids: list[str], who: Mapping[str, Any]) -> list[str]:
    near: list[str] = []
    for one in ids:
        near += [known for known in await kb.nearest_ids(one, **who, limit=_NEAREST) if known not in near]
    return near[:_NEAREST]


def _shown(record: Record, fields: set[str]) -> dict[str, Any]:
    title = shown_title(record.title, record.text)
    shown: dict[str, Any] = {
        "id": record.id,
        "type": record.type,
        "title": title,
        "source_type": record.source_type,
        "last_updated": record.last_updated or None,
    }
    more = {
        "snippet": snippet_of(record.text[:2_000], ""),
        "full_text": record.text,
        "metadata": dict(record.metadata),
        "sources": [{"id": record.id, "title": title, "source": record.source, "url": record.url or None}],
        "url": record.url or None,
    }
    return shown | {name: value for name, value in more.items() if name in fields}

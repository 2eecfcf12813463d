"""Reads records by id. What the user may not read is missing, like what does not exist: nobody learns which it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError
from handrail.errors import HandrailError
from handrail_reference.services.kb.pieces import snippet_of
from handrail_reference.services.kb.port import KbUnavailable
from handrail_reference.services.kb.record import KnowledgeRecord, one_form, shown_title
from handrail_reference.services.kb.shown import with_texts, within_room

_NEAREST = 3


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The records in the order asked, and the ids that were not found."""
    ids = list(dict.fromkeys(one_form(one) for one in args["ids"]))
    who = {"user": ctx.user, "tenant": ctx.tenant, "namespace": args["namespace"]}
    try:
        found = await ctx.kb.get(ids, **who)
        near = [] if found else await ctx.kb.nearest_ids(ids, **who, limit=_NEAREST)
    except HandrailError as error:
        ctx.log.error("The knowledge base cannot be read: %s", error)
        passing = isinstance(error, KbUnavailable)
        raise ToolError(
            ErrorType.TRANSIENT if passing else ErrorType.PERMANENT,
            "The knowledge base cannot be read at the moment.",
            retryable=passing,
            suggestion="Answer without it, and say so.",
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
    given = [found[one] for one in ids if one in found]
    records = [_shown(record, fields) for record in given]
    said = ""
    if "full_text" in fields:
        records = with_texts(records, [record.text for record in given])
    else:
        records, said = within_room(records)
    return {"ok": True, "data": {"records": records, "missing": missing} | ({"suggestion": said} if said else {})}


def _shown(record: KnowledgeRecord, fields: set[str]) -> dict[str, Any]:
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
        "metadata": dict(record.metadata),
        "sources": [{"id": record.id, "title": title, "source": record.source, "url": record.url or None}],
        "url": record.url or None,
    }
    return shown | {name: value for name, value in more.items() if name in fields}

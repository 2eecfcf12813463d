"""Looks up LinkedIn addresses that are stored in the knowledge base. None is ever made up, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError
from handrail.errors import HandrailError
from handrail_reference.services.kb.port import KbUnavailable
from handrail_reference.services.kb.record import shown_title


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The records of this name or id that have a stored address."""
    if len(args) != 1:
        raise ToolError(
            ErrorType.VALIDATION,
            "Give either name or id: one of the two, and not both.",
            details=[{"pointer": ""}],
        )
    try:
        found = await ctx.kb.links(user=ctx.user, tenant=ctx.tenant, name=args.get("name"), id=args.get("id"))
    except HandrailError as error:
        ctx.log.error("The knowledge base cannot be read: %s", error)
        passing = isinstance(error, KbUnavailable)
        raise ToolError(
            ErrorType.TRANSIENT if passing else ErrorType.PERMANENT,
            "The knowledge base cannot be read at the moment.",
            retryable=passing,
            suggestion="Answer without it, and say so.",
        ) from None
    matches = [
        {"id": record.id, "title": shown_title(record.title, record.text), "url": link} for record, link in found
    ]
    return {"ok": True, "data": {"matches": matches}}

"""Which records fit a filter: found once for each state of the file, because words and vectors both ask, and often again."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.port import Filter

FEW = 5_000
"""With no more records than this, a search looks at these alone."""
_FILTERS_KEPT = 8


def keys_of(db: KnowledgeConnection, scopes: Sequence[int], wanted: Filter) -> array[int]:
    """The keys of the readable records that fit, in order."""
    kept: dict[object, array[int]] = db.remembered("filters", dict)
    which = (tuple(scopes), wanted)
    found = kept.pop(which, None)
    if found is None:
        condition, values = wanted.as_sql()
        marks = ", ".join("?" * len(scopes))
        sql = f"SELECT r.key FROM record r WHERE r.scope IN ({marks}){condition} ORDER BY r.key"  # noqa: S608
        found = array("q", (row[0] for row in db.execute(sql, (*scopes, *values))))
        while len(kept) >= _FILTERS_KEPT:
            del kept[next(iter(kept))]
    kept[which] = found
    return found


def few_keys(db: KnowledgeConnection, scopes: Sequence[int], wanted: Filter) -> list[int] | None:
    """The keys where they are few; None where it is quicker to look at what the words find."""
    found = keys_of(db, scopes, wanted)
    return list(found) if len(found) <= FEW else None

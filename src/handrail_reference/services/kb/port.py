"""What handlers know of a knowledge base: the port behind `ctx.kb`, what it answers with, and how it refuses.

A host may put its own service behind it, as long as that keeps what a user may not read to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from handrail.errors import HandrailError
from handrail_reference.services.kb.record import KnowledgeRecord, shown_title, tag_word


class KbUnavailable(HandrailError):
    """The knowledge base cannot be read or written at the moment."""


class KbTooSlow(HandrailError):
    """A search did not finish within its time, and was stopped."""


class NamespaceRefused(HandrailError):
    """The user may not read this namespace; `namespace` names it."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f'The namespace "{namespace}" is not open to this user.')
        self.namespace = namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a record must be, beside readable. `start` and `end` are seconds since 1970, both included."""

    type: str | None = None
    tags: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None

    def __bool__(self) -> bool:
        return bool(self.type or self.tags) or self.start is not None or self.end is not None

    def as_sql(self) -> tuple[str, list[Any]]:
        """Conditions on the record `r`, and their values. Values only ever travel as parameters."""
        parts: list[str] = []
        values: list[Any] = []
        if self.type is not None:
            parts.append("r.type = ?")
            values.append(self.type)
        for tag in self.tags:
            parts.append("r.key IN (SELECT tag.record FROM tag WHERE tag.tag = ?)")
            values.append(tag_word(tag))
        if self.start is not None:
            parts.append("r.updated >= ?")
            values.append(self.start)
        if self.end is not None:
            parts.append("r.updated <= ?")
            values.append(self.end)
        return "".join(f" AND {part}" for part in parts), values


@dataclass(frozen=True, slots=True)
class Evidence:
    """One answer of a search: the record, how well it fits, and the part of it that does."""

    record: KnowledgeRecord
    score: float
    snippet: str

    @property
    def title(self) -> str:
        return shown_title(self.record.title, self.record.text)


class Knowledge(Protocol):
    """The port. Every method gets for whom: the session's user and tenant."""

    async def search(
        self,
        query: str,
        *,
        user: str | None,
        tenant: str,
        namespace: str = ...,
        wanted: Filter | None = ...,
        limit: int = ...,
        seconds: float | None = ...,
    ) -> list[Evidence]:
        """Best first. `NamespaceRefused` where the user may not look, `KbTooSlow` past the time."""
        ...

    async def get(
        self, ids: Sequence[str], *, user: str | None, tenant: str, namespace: str = ...
    ) -> dict[str, KnowledgeRecord]: ...

    async def nearest_ids(
        self, ids: Sequence[str], *, user: str | None, tenant: str, namespace: str = ..., limit: int = ...
    ) -> list[str]: ...

    async def links(
        self, *, user: str | None, tenant: str, name: str | None = ..., id: str | None = ...
    ) -> list[tuple[KnowledgeRecord, str]]: ...

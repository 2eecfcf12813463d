"""Documents: small JSON that a host keeps beside sessions, under a kind and an id, each with its owner and its end.

What a client may come back for after a restart is one: a task, a large result, an answer that may not have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`version` grows with each change; 0 is that of a document that nobody has kept yet."""

    kind: str
    id: str
    tenant: str = ""
    user: str | None = None
    """Whose it is: it goes when this user is forgotten."""
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    expires_at: int
    """In milliseconds since 1970, on the store's clock; from then on it is not there."""
    version: int = 0
    session: str = field(default="", compare=False)
    """Whose call it is kept for, when it is kept first: of a session that was forgotten meanwhile nothing is."""


class DocumentStore(Protocol):
    """The documents of a store."""

    async def get(self, kind: str, id: str) -> Document | None: ...

    async def put(self, document: Document) -> tuple[bool, Document]:
        """Keep this document if the one that is kept has its version (0: there is none). Whether it was kept, and the document
        that is kept now, with its version; this one, if none is."""
        ...

    async def delete(self, kind: str, id: str) -> None: ...

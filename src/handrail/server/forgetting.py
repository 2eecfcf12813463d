"""Deleting what is kept of a user: sessions, conversations, arguments and outcomes of calls, personal records, images.

What stays, and why, is written in `docs/security.md`: the audit chain, blocks that still hold, outcomes that are not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from handrail.app import Runtime
from handrail.contract.errors import HandrailError, UsageError
from handrail.server.conversations import Conversations
from handrail.server.talks import Talks


async def forget_user(
    runtime: Runtime,
    conversations: Conversations,
    tenant: str,
    user: str,
    *,
    talks: Talks | None = None,
    kb: Any = None,
    images: Any = None,
    calendar: Any = None,
) -> dict[str, Any]:
    """Delete what is kept of a user; how much it was. `talks` are those of a running server, which end first.

    Raises `NotAllForgotten` if a part could not be reached: everything else is deleted, and the audit tells what is left.
    """
    if not user or len(user) > 256:
        raise UsageError("Name the user whose data is to be deleted.")
    if talks is not None:
        await talks.end_all_of(tenant, user)
    services = runtime.capabilities
    left: dict[str, str] = {}
    mentioned: set[str] = set()
    counts: dict[str, Any] = dict(await runtime.store.forget_user(tenant, user))
    with _noted(left, "conversations"):
        counts["conversations"], mentioned = await conversations.forget(tenant, user)
    with _noted(left, "images"):
        counts["images"] = await _forget_images(images or services.get("images"), mentioned)
    with _noted(left, "records"):
        counts["records"] = await _forget_records(kb or services.get("kb"), tenant, user)
    with _noted(left, "who created calendar events"):
        await _forget_creator(calendar or services.get("calendar"), tenant, user)
    # The log itself must not name whom it is told to forget; whoever knows the name can find the line.
    who = sha256(f"{tenant}\0{user}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    runtime.audit.emit(
        "user_forgotten", {"userHash": who, "ok": not left, **counts, **({"left": sorted(left)} if left else {})}
    )
    if left:
        raise NotAllForgotten(left)
    return {"user": user, "tenant": tenant, "deleted": counts}


class NotAllForgotten(HandrailError):
    """A part of what is kept of a user could not be reached, and is still there."""

    def __init__(self, left: Mapping[str, str]) -> None:
        super().__init__(f"Everything was deleted but {' and '.join(left)}: {' '.join(dict.fromkeys(left.values()))}")


@contextmanager
def _noted(left: dict[str, str], what: str) -> Iterator[None]:
    """What cannot be reached is left, and must not keep the rest."""
    try:
        yield
    except HandrailError as error:
        left[what] = str(error)
    except OSError as error:
        left[what] = f"The system refused: {error.strerror or error}."


async def _forget_images(images: Any, ids: set[str]) -> int:
    """Delete the files of images that only this user's conversations mentioned."""
    find = getattr(images, "path_of", None)
    if find is None:
        return 0

    def work() -> int:
        paths = [path for path in map(find, sorted(ids)) if path is not None]
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    return await asyncio.to_thread(work)


async def _forget_creator(calendar: Any, tenant: str, user: str) -> None:
    """The events stay, but nobody who comes under the same name later is taken for who made them."""
    forget = getattr(calendar, "forget_creator", None)
    if forget is not None:
        await forget(user, tenant=tenant)


async def _forget_records(kb: Any, tenant: str, user: str) -> int:
    """Delete the records of the knowledge base that are this user's own."""
    database = getattr(kb, "database", None)
    if database is None:
        return 0
    from handrail.services.kb.writing import remove_records  # noqa: PLC0415  # only where there is a knowledge base

    def work(db: Any) -> int:
        found = db.execute(
            """SELECT record.key FROM record JOIN scope ON scope.id = record.scope
               WHERE scope.tenant = ? AND scope.owner = ?""",
            (tenant, user),
        ).fetchall()
        return remove_records(db, [row[0] for row in found])

    return int(await database.write(work))

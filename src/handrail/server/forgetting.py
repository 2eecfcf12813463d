"""Deleting what is kept of a user: sessions, conversations, arguments and outcomes of calls, personal records, images.

What stays, and why, is written in `docs/security.md`: the audit chain, blocks that still hold, outcomes that are not known.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

from handrail.app import Runtime
from handrail.contract.errors import UsageError
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
) -> dict[str, Any]:
    """Delete what is kept of a user; how much it was. `talks` are those of a running server, which end first."""
    if not user or len(user) > 256:
        raise UsageError("Name the user whose data is to be deleted.")
    if talks is not None:
        await talks.end_all_of(tenant, user)
    counts: dict[str, Any] = dict(await runtime.store.forget_user(tenant, user))
    counts["conversations"], mentioned = await conversations.forget(tenant, user)
    counts["images"] = await _forget_images(images or runtime.capabilities.get("images"), mentioned)
    counts["records"] = await _forget_records(kb or runtime.capabilities.get("kb"), tenant, user)
    await _forget_creator(runtime.capabilities.get("calendar"), tenant, user)
    # The log itself must not name whom it is told to forget; whoever knows the name can find the line.
    who = sha256(f"{tenant}\0{user}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    runtime.audit.emit("user_forgotten", {"userHash": who, "ok": True, **counts})
    return {"user": user, "tenant": tenant, "deleted": counts}


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

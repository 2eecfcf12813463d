"""Deleting what is kept of a user: sessions, conversations, arguments and outcomes of calls, personal records, events, images,
keys. Then the files are written anew, so that nothing of it is left in pages that are no longer used.

What stays, and why, is written in `docs/operating.md`: keys of calls as hashes, blocks as hashes, outcomes that are not known.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.app import Runtime
from handrail.contract.errors import HandrailError, UsageError
from handrail.server.conversations import Conversations
from handrail.server.keyfile import LOOK_SECONDS, revoke_keys_of

if TYPE_CHECKING:  # the web framework comes with it, which `handrail users` does without
    from handrail.server.talks import Talks

_KEYS_SECONDS = 2 * LOOK_SECONDS
"""So long after a key was revoked no server takes it any more, and its user opens no new session there."""
_SCRUB_SECONDS = 30.0
"""Others read and write meanwhile; each holds the file for a moment."""


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
    keys: Path | None = None,
) -> dict[str, Any]:
    """Delete what is kept of a user; how much it was. `talks` are those of a running server, which end first.

    Raises `NotAllForgotten` if a part could not be reached: everything else is deleted, and the audit tells what is left.
    """
    if not user or len(user) > 256:
        raise UsageError("Name the user whose data is to be deleted.")
    left: dict[str, str] = {}
    revoked = 0
    if keys is not None and not tenant:  # keys speak for users without a tenant
        with _noted(left, "keys"):
            revoked = len(await asyncio.to_thread(revoke_keys_of, keys, user))
        if revoked and talks is None:
            await asyncio.sleep(_KEYS_SECONDS)
    if talks is not None:
        await talks.end_all_of(tenant, user)
    services, policy = runtime.capabilities, runtime.policy
    kb, images, calendar = (
        given or services.get(name) for name, given in (("kb", kb), ("images", images), ("calendar", calendar))
    )
    mentioned: set[str] = set()
    subject = await runtime.store.audit_subject(tenant, user)
    keep_block = policy.forget_blocks == "keep"
    counts: dict[str, Any] = dict(await runtime.store.forget_user(tenant, user, keep_block=keep_block))
    await runtime.housekeeper.learn()
    with _noted(left, "conversations"):
        counts["conversations"], mentioned = await conversations.forget(tenant, user)
    with _noted(left, "images"):
        counts["images"] = await _forget_images(images, mentioned)
    with _noted(left, "records"):
        counts["records"] = await _forget_records(kb, tenant, user)
    with _noted(left, "calendar events"):
        counts["events"] = await _forget_events(calendar, tenant, user, delete=policy.forget_events == "delete")
    if keys is not None:
        counts["keys"] = revoked
    parts = (("", runtime.store), ("conversations", conversations), ("records", kb), ("calendar events", calendar))
    for path in dict.fromkeys(_file_of(part) for name, part in parts if name not in left):
        if path is None:
            continue
        with _noted(left, f'what the file "{path.name}" has in unused pages'):
            await asyncio.to_thread(_scrub, path)
    # Under the pseudonym, which nobody can trace back to a name any more.
    who = {"user": subject.pseudonym} if subject is not None else {}
    runtime.audit.emit("user_forgotten", {**who, "ok": not left, **counts, **({"left": sorted(left)} if left else {})})
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
    except sqlite3.Error as error:
        left[what] = f"The database refused: {error}."


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


async def _forget_events(calendar: Any, tenant: str, user: str, *, delete: bool) -> int:
    forget = getattr(calendar, "forget_user", None)
    return int(await forget(user, tenant=tenant, delete=delete)) if forget is not None else 0


async def _forget_records(kb: Any, tenant: str, user: str) -> int:
    """Delete the records of the knowledge base that are this user's own."""
    database = getattr(kb, "database", None)
    if database is None:
        return 0
    from handrail.services.kb.writing import forget_owner  # noqa: PLC0415  # only where there is a knowledge base

    return int(await database.write(lambda db: forget_owner(db, tenant, user)))


def _file_of(part: Any) -> Path | None:
    """The database of a part, which may have something of the user in pages that are free, or in its log."""
    path = getattr(getattr(part, "database", part), "path", None)
    return path if isinstance(path, Path) and path.is_file() else None


def _scrub(path: Path) -> None:
    """Write a database anew, without what was deleted from it, and empty its log. Others may use it meanwhile."""
    with closing(sqlite3.connect(path, timeout=_SCRUB_SECONDS, isolation_level=None)) as db:
        db.execute("VACUUM")
        deadline = time.monotonic() + _SCRUB_SECONDS
        while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                raise sqlite3.OperationalError("its log is in use")
            time.sleep(0.05)

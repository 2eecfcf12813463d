"""Deleting what is kept of a user: sessions, conversations, arguments and outcomes of calls, images, keys, and what services
keep (their `forget_user`). Then the files are written anew, so that nothing of it is left in pages that are no longer used.

What stays, and why, is written in `docs/operating.md`: keys of calls as hashes, blocks as hashes, outcomes that are not known.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import HandrailError, UsageError
from handrail.runtime.services import call_hook
from handrail.server.stored_keys import LOOK_SECONDS
from handrail.sqlite_files import scrub
from handrail.standard_runtime import Runtime

if TYPE_CHECKING:  # the web framework comes with it, which `handrail users` does without
    from handrail.server.host.session_registry import SessionRegistry

_KEYS_SECONDS = 2 * LOOK_SECONDS
"""So long after a key was revoked no server takes it any more, and its user opens no new session there."""


async def forget_user(
    runtime: Runtime,
    tenant: str,
    user: str,
    *,
    sessions: SessionRegistry | None = None,
    services: Mapping[str, Any] | None = None,
    unopened: Mapping[str, str] | None = None,
    copies: Sequence[Path] = (),
) -> dict[str, Any]:
    """Delete what is kept of a user; how much it was, and what services say stays elsewhere. `sessions` are those of a running
    server, which end first. `services` are asked to forget the user too, unless given those of the runtime; `unopened` are those
    that could not be asked, and why. `copies` are old files that an import left: they go whole.

    Raises `NotAllForgotten` if a part could not be reached: everything else is deleted, and the audit tells what is left.
    """
    if not user or len(user) > 256:
        raise UsageError("Name the user whose data is to be deleted.")
    left: dict[str, str] = {f'what the service "{name}" keeps': reason for name, reason in (unopened or {}).items()}
    revoked = 0
    # First, so that nobody opens another session with them while the rest is deleted.
    if not tenant:  # keys speak for users without a tenant
        with _noted(left, "keys"):
            revoked = len(await runtime.store.keys.revoke_of(user))
        if revoked and sessions is None:
            await asyncio.sleep(_KEYS_SECONDS)
    if sessions is not None:
        await sessions.end_all_of(tenant, user)
    asked = runtime.capabilities if services is None else services
    images: Any = asked.get("images")
    mentioned: set[str] = set()
    # Asked before the store forgets who it was: the last line in the audit goes under the pseudonym.
    subject = await runtime.store.audit_subject(tenant, user)
    keep_block = runtime.policy.forget_blocks == "keep"
    connected = 0
    if runtime.connections is not None:
        with _noted(left, "connections"):
            connected, unrevoked = await runtime.connections.forget(tenant, user)
            # The tokens are deleted; what is left is the service's own record that it gave them.
            left.update({f"what a service grants ({number})": one for number, one in enumerate(unrevoked, 1)})
    counts: dict[str, Any] = dict(await runtime.store.forget_user(tenant, user, keep_block=keep_block))
    await runtime.housekeeper.learn()
    with _noted(left, "conversations"):
        own = await asyncio.to_thread(images.images_of, user, tenant) if hasattr(images, "images_of") else set()
        counts["conversations"], mentioned = await runtime.store.conversations.forget(tenant, user, images=own)
    with _noted(left, "images"):
        counts["images"] = await _forget_images(images, mentioned, user, tenant)
    for name, service in sorted(asked.items()):
        with _noted(left, f'what the service "{name}" keeps'):
            counts.update(await _forgotten_by(name, service, user, tenant))
    # Sentences of services about what they keep where nobody here can delete it.
    stays = ((name, getattr(one, "not_forgotten", None)) for name, one in sorted(asked.items()))
    elsewhere = {name: said for name, said in stays if isinstance(said, str)}
    counts["keys"] = revoked
    counts["connections"] = connected
    for copy in copies:
        with _noted(left, f'the file "{copy.name}"'):
            copy.unlink(missing_ok=True)
    path = _file_of(runtime.store)
    if path is not None:
        with _noted(left, f'what the file "{path.name}" has in unused pages'):
            await asyncio.to_thread(scrub, path)
    # Under the pseudonym, which nobody can trace back to a name any more.
    who = {"user": subject.pseudonym} if subject is not None else {}
    runtime.audit.emit("user_forgotten", {**who, "ok": not left, **counts, **({"left": sorted(left)} if left else {})})
    if left:
        raise NotAllForgotten(left)
    told: dict[str, Any] = {"user": user, "tenant": tenant, "deleted": counts}
    return {**told, "elsewhere": elsewhere} if elsewhere else told


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


async def _forget_images(images: Any, ids: set[str], user: str, tenant: str) -> int:
    """Delete the images of this user that nobody else's conversations show. The service works on a disk, so in a thread."""
    if hasattr(images, "images_of"):
        return int(await asyncio.to_thread(images.forget_images, ids, user, tenant))
    forget = getattr(images, "forget_images", None)  # one that does not know whose they are
    return int(await asyncio.to_thread(forget, ids)) if forget is not None else 0


async def _forgotten_by(name: str, service: Any, user: str, tenant: str) -> Mapping[str, int]:
    """How much a service deleted by its own account: by kind, or as a number for the whole."""
    deleted = await call_hook(service, "forget_user", user, tenant)
    if deleted is None:
        return {}
    return dict(deleted) if isinstance(deleted, Mapping) else {name: int(deleted)}


def _file_of(part: Any) -> Path | None:
    """The database of a part, which may have something of the user in pages that are free, or in its log."""
    path = getattr(getattr(part, "database", part), "path", None)
    return path if isinstance(path, Path) and path.is_file() else None

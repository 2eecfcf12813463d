"""The versions of tools that a session is pinned to, where there are several: chosen when it is opened, stored with it, and the
same in whichever process it continues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import RegistryError
from handrail.contract.store import SessionRecord, Store
from handrail.registry import Snapshot

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.session import Session


def choose_versions(
    snapshot: Snapshot, session_id: str, tenant: str, user: str | None, attributes: Mapping[str, Any]
) -> dict[str, str]:
    """What the host's rules give a session that is pinned to nothing yet."""
    named = attributes.get("organisation", "")
    organisation = named if isinstance(named, str) else ""
    return snapshot.choose(session_id, tenant=tenant, organisation=organisation, user=user)


def pinned_snapshot(snapshot: Snapshot, record: SessionRecord) -> tuple[Snapshot, dict[str, str]]:
    """The registry with the versions that a session is pinned to, and those of them that are gone from it. What it is not
    pinned to yet, or what is gone, the rules choose, by its id: every process chooses the same."""
    if not snapshot.versions and not record.versions:
        return snapshot, {}
    chosen = choose_versions(snapshot, record.session_id, record.tenant, record.user, record.attributes)
    gone = {}
    for name, version in record.versions.items():
        if version in snapshot.versions.get(name, ()):
            chosen[name] = version
        elif is_gone(snapshot, name, version):
            gone[name] = version
    return snapshot.pinned(chosen), gone


def is_gone(snapshot: Snapshot, name: str, version: str) -> bool:
    """Whether no session can use this version of a tool any more."""
    if version in snapshot.versions.get(name, ()):
        return False
    tool = snapshot.get(name)
    return tool is None or tool.version != version


def gone_sentence(snapshot: Snapshot, pinned: Mapping[tuple[str, str], int]) -> str | None:
    """What is said of a registry that lacks versions which open sessions are pinned to; None if it lacks none."""
    lacking = sorted(pin for pin in pinned if is_gone(snapshot, *pin))
    if not lacking:
        return None
    name, version = lacking[0]
    count = pinned[lacking[0]]
    sessions = "1 open session is" if count == 1 else f"{count} open sessions are"
    return (
        f'{sessions} pinned to version {version} of "{name}", which the new build does not have; '
        "keep it beside the others until they have ended."
    )


async def repin(core: RuntimeCore, session: Session, gone: Mapping[str, str]) -> None:
    """Store the versions that a session has from now on, and write down those that it had and that are gone."""
    pins = dict(session.snapshot.pins)
    await core.store.save_sessions([(session.id, session.connection, {"versions": pins})])
    for name, version in gone.items():
        sentence = f'Version {version} of "{name}", which the session was pinned to, is gone; it has another now.'
        core.log.warning("Session %s: %s", session.id, sentence)
        tool = session.snapshot.get(name)
        facts = {"toolId": name, "goneVersion": version, "toolVersion": tool.version if tool is not None else None}
        core.trail.audit_session("session_repinned", session, **facts, reason=sentence)


async def check_pins(generation: Snapshot, store: Store) -> None:
    """`RegistryError` with one sentence if a new generation lacks a version that open sessions are pinned to."""
    sentence = gone_sentence(generation, await store.pinned_versions())
    if sentence is not None:
        raise RegistryError(sentence)

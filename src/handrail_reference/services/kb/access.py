"""Who may read what: the namespaces of a user, by settings or by a function of the host. Tenants never mix, whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Collection

Access = Callable[[str | None, str], Collection[str]]
"""(user, tenant) → the namespaces that this user may read; None stands for somebody who is not signed in."""


def access_by(everybody: Collection[str], signed_in: Collection[str]) -> Access:
    """Some namespaces for everybody, some for those who are signed in. Records with an owner are the owner's alone anyway."""

    def readable(user: str | None, tenant: str) -> Collection[str]:
        return signed_in if user else everybody

    return readable

"""One person's credential as the vault keeps it: the tokens, which grant they come from, and what they have replaced."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handrail.contract.credentials import StoredCredential
from handrail.identity.oauth import TokenSet
from handrail.identity.vault import Vault

_MAX_REPLACED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The tokens in use, and those that are revoked when they are no longer."""

    tokens: TokenSet
    grant: str = ""
    """Made anew with each authorization, and kept by every refresh: tokens of one grant may end together."""
    replaced: tuple[TokenSet, ...] = ()
    """Not revoked yet, the newest first."""

    def beside(self, *replaced: TokenSet) -> tuple[TokenSet, ...]:
        """What waits to be revoked, with these."""
        return (*replaced, *self.replaced)[:_MAX_REPLACED]


def new_grant() -> str:
    return secrets.token_hex(8)


def seal(vault: Vault, who: tuple[str, str, str], credential: Credential) -> StoredCredential:
    kept: dict[str, Any] = _written(credential.tokens)
    if credential.grant:
        kept["grant"] = credential.grant
    if credential.replaced:
        kept["replaced"] = [_written(one) for one in credential.replaced]
    tenant, user, connection = who
    return StoredCredential(
        tenant=tenant,
        user=user,
        connection=connection,
        sealed=vault.seal(kept, "credential", *who),
        key_id=vault.key_id,
    )


def unseal(vault: Vault, stored: StoredCredential) -> Credential:
    """`SealBroken` if it cannot be read."""
    who = (stored.tenant, stored.user, stored.connection)
    kept = vault.open(stored.sealed, stored.key_id, "credential", *who)
    return Credential(
        tokens=_read(kept), grant=kept.get("grant", ""), replaced=tuple(_read(one) for one in kept.get("replaced", ()))
    )


def _written(tokens: TokenSet) -> dict[str, Any]:
    made: dict[str, Any] = {
        "access": tokens.access,
        "refresh": tokens.refresh,
        "expiresAt": tokens.expires_at,
        "scopes": list(tokens.scopes),
    }
    if tokens.client is not None:
        made["client"] = tokens.client
    if tokens.wanted:
        made["wanted"] = list(tokens.wanted)
    return made


def _read(kept: Mapping[str, Any]) -> TokenSet:
    return TokenSet(
        access=kept["access"],
        refresh=kept["refresh"],
        expires_at=kept["expiresAt"],
        scopes=tuple(kept["scopes"]),
        client=kept.get("client"),
        wanted=tuple(kept.get("wanted", ())),
    )

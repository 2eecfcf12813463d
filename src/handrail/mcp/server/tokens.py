"""Access tokens of an authorization server, as a resource server checks them: signature, issuer, audience, time, scopes."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic  # noqa: TID251  # how old keys are is nothing that a test waits for
from typing import Any

import httpx2
import jwt

from handrail.mcp.server.options import McpOptions, Principal, TokenRefused

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Public keys only: with a shared secret every resource server could make tokens."""
_FRESH_SECONDS = 600.0
_WAIT_SECONDS = 30.0
_MAX_TOKEN = 16_384
_LOG = logging.getLogger("handrail.mcp")


class AccessTokens:
    """Checks the tokens of one issuer. Its keys are fetched when a token needs one that is not known."""

    def __init__(self, options: McpOptions) -> None:
        self._options = options
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._fetching = asyncio.Lock()

    def is_ours(self, token: str) -> bool:
        """Whether it says that this issuer has made it; whether that is true, `principal` finds out. Others may know it."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            return False
        return claims.get("iss") == self._options.issuer

    async def principal(self, token: str) -> Principal:
        """Who a token speaks for; `TokenRefused` with a sentence if it is not taken."""
        options = self._options
        try:
            if len(token) > _MAX_TOKEN:
                raise jwt.InvalidTokenError("too long")
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=options.resource,
                issuer=options.issuer,
                leeway=30,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            _LOG.info("An access token was refused: %s", error)
            raise TokenRefused("The access token is not valid here.") from None
        user, client = claims.get(options.user_claim), claims.get("client_id") or claims.get("azp") or "unknown"
        if not isinstance(user, str) or not 0 < len(user) <= 200 or not user.isprintable():
            raise TokenRefused(f'The access token has no user in "{options.user_claim}".')
        scope = claims.get("scope", "")
        granted = scope.split() if isinstance(scope, str) else []
        missing = next((one for one in options.scopes if one not in granted), None)
        if missing is not None:
            raise TokenRefused(f'The access token lacks the scope "{missing}".', scope=missing)
        name = f"oauth:{str(client)[:200]}"
        return Principal(user, name, is_trusted=name in options.trusted_clients)

    async def _key(self, kid: object) -> jwt.PyJWK:
        name = kid if isinstance(kid, str) else ""
        async with self._fetching:
            age = monotonic() - self._fetched
            # A key that is not known may be new; but nobody makes us fetch more often than this by naming others.
            if age > _FRESH_SECONDS or (name not in self._keys and age > _WAIT_SECONDS):
                await self._fetch()
        if name not in self._keys and not (name == "" and len(self._keys) == 1):
            raise jwt.InvalidTokenError("signed with a key that its issuer does not show")
        return self._keys[name] if name in self._keys else next(iter(self._keys.values()))

    async def _fetch(self) -> None:
        self._fetched = monotonic()
        issuer = self._options.issuer.rstrip("/")
        try:
            async with httpx2.AsyncClient(timeout=10, follow_redirects=False) as client:
                found = await client.get(f"{issuer}/.well-known/oauth-authorization-server")
                if found.status_code != 200:
                    found = await client.get(f"{issuer}/.well-known/openid-configuration")
                metadata = found.raise_for_status().json()
                if metadata.get("issuer", "").rstrip("/") != issuer:
                    raise jwt.InvalidTokenError("the authorization server calls itself by another name")
                keys = (await client.get(metadata["jwks_uri"])).raise_for_status().json()
            found_keys = jwt.PyJWKSet.from_dict(keys).keys
        except (httpx2.HTTPError, ValueError, KeyError, jwt.PyJWTError) as error:
            _LOG.warning("The keys of %s could not be had: %s", issuer, error)
            return
        self._keys = {key.key_id or "": key for key in found_keys}

"""The connections of a host over its store: begun, completed, refreshed, ended. Whatever is asked is asked for one user.

A refresh token may be good for one refresh only, so one process refreshes at a time, for each user and connection: the store says
who. A refresh that has begun is carried to its end whatever becomes of the call that asked for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from handrail.contract.credentials import (
    AccessToken,
    AuthorizationRefused,
    AuthorizationUnavailable,
    ConnectionNeeded,
    CredentialError,
    CredentialStore,
    PendingAuthorization,
    StoredCredential,
)
from handrail.contract.errors import ErrorType, ToolError, UsageError
from handrail.identity.config import ConnectionConfig
from handrail.identity.oauth import DeviceGrant, OAuthClient, SlowDown, StillPending, TokenSet, new_verifier
from handrail.identity.vault import SealBroken, Vault

_LOG = logging.getLogger("handrail.identity")
PENDING_MS = 10 * 60 * 1000
"""So long a person may take at the authorization server."""
_LEASE_MS = 60_000
_EARLY_SECONDS = 60.0
"""A token is refreshed this long before it ends, so that it does not end on its way."""
_LOOK_SECONDS, _MAX_WAIT_SECONDS = 0.05, 45.0
_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionState:
    """A connection as its person sees it."""

    name: str
    label: str
    connected: bool
    scopes: tuple[str, ...] = ()
    since: int | None = None
    """When it was connected or last refreshed, in milliseconds since 1970."""
    problem: str = ""
    """Why it cannot be used although there is a credential."""


class Begun(NamedTuple):
    """An authorization that has begun: where the browser goes."""

    url: str
    state: str


class Ended(NamedTuple):
    """What became of a connection that was ended."""

    existed: bool
    unrevoked: str = ""
    """Why the service was not told, in a sentence; empty: it was, or there was nothing to tell."""


class Connections:
    """See the module's docstring. It is the `ConnectionsPort` of a runtime."""

    def __init__(
        self,
        configs: Mapping[str, ConnectionConfig],
        store: CredentialStore,
        vault: Vault,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._configs = dict(configs)
        self._store = store
        self._vault = vault
        self._now = now
        self._sleep = sleep
        self._owner = f"refresh-{secrets.token_hex(8)}"
        self._clients = {name: OAuthClient(config, now=now) for name, config in self._configs.items()}
        self._locks: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()
        self._refreshing: set[asyncio.Task[AccessToken]] = set()
        self.page = ""
        """Where people connect, as their browser reaches it; a server sets it."""

    # --------------------------------------------------------------------------------------------- what is configured
    @property
    def names(self) -> Sequence[str]:
        return tuple(self._configs)

    def label(self, connection: str) -> str:
        return self._configs[connection].label

    def is_for(self, connection: str, tool_id: str) -> bool:
        tools = self._configs[connection].tools
        return not tools or tool_id in tools

    def link(self, connection: str) -> str:
        return f"{self.page}{connection}" if self.page else ""

    def check(self, connection: str) -> None:
        """`UsageError` if there is no such connection."""
        if connection not in self._configs:
            known = f"known are {', '.join(self._configs)}" if self._configs else "none is configured"
            raise UsageError(f'There is no connection "{connection}"; {known}.')

    async def states(self, tenant: str, user: str) -> list[ConnectionState]:
        stored = {one.connection: one for one in await self._store.all_of(tenant, user)}
        return [self._state(config, stored.get(name)) for name, config in self._configs.items()]

    def _state(self, config: ConnectionConfig, stored: StoredCredential | None) -> ConnectionState:
        if stored is None:
            return ConnectionState(name=config.name, label=config.label, connected=False)
        scopes: tuple[str, ...] = ()
        problem = ""
        try:
            scopes = self._open(stored).scopes
        except SealBroken as error:
            problem = str(error)
        return ConnectionState(
            name=config.name,
            label=config.label,
            connected=not problem,
            scopes=scopes,
            since=stored.updated_at,
            problem=problem,
        )

    # ------------------------------------------------------------------------------------------------------- connecting
    async def begin(self, tenant: str, user: str, connection: str, *, redirect_uri: str, browser: str) -> Begun:
        """Begin an authorization. `browser` is a secret of the browser that asks: only it can complete what it has begun, so that
        nobody can have another person's account connected to their own."""
        self.check(connection)
        _check_user(user)
        state, verifier = secrets.token_urlsafe(32), new_verifier()
        url = await self._clients[connection].authorization_url(
            state=state, verifier=verifier, redirect_uri=redirect_uri
        )
        kept = {"verifier": verifier, "redirect": redirect_uri, "browser": _digest(browser), "key": self._vault.key_id}
        digest = _digest(state)
        sealed = self._vault.seal(kept, "authorization", digest, tenant, user, connection)
        await self._store.begin_authorization(
            PendingAuthorization(
                digest=digest,
                tenant=tenant,
                user=user,
                connection=connection,
                sealed=f"{self._vault.key_id}:{sealed}",
            ),
            lives_for=PENDING_MS,
        )
        return Begun(url, state)

    async def complete(
        self, answer: Mapping[str, str], *, redirect_uri: str, browser: str, whose: tuple[str, str] | None = None
    ) -> ConnectionState:
        """Take the answer that a browser brought back: `state` and `code`, or `error`; maybe `iss`. It is taken once.
        `whose` is the tenant and the user who bring it, where that is known."""
        pending = await self._store.take_authorization(_digest(answer.get("state", "")))
        if pending is None:
            raise AuthorizationRefused(
                "This answer belongs to no connection that was begun here, was used before, or came too late; connect again."
            )
        config, client = self._configs.get(pending.connection), self._clients.get(pending.connection)
        if config is None or client is None:
            raise AuthorizationRefused("The connection is no longer configured; nothing was connected.")
        who = pending.tenant, pending.user, pending.connection
        key_id, _, sealed = pending.sealed.partition(":")
        kept = self._vault.open(sealed, key_id, "authorization", pending.digest, *who)
        if not hmac.compare_digest(kept["browser"], _digest(browser)) or whose not in (None, who[:2]):
            raise AuthorizationRefused("Another browser has begun this connection; connect again in this one.")
        if redirect_uri != kept["redirect"]:
            raise AuthorizationRefused("The answer came to another address than it was sent to; nothing was connected.")
        await client.check_issuer(answer.get("iss"))
        if "error" in answer or not answer.get("code"):
            word = "was not allowed" if answer.get("error") == "access_denied" else "was refused by the service"
            raise AuthorizationRefused(f"{config.label} was not connected: it {word}.")
        tokens = await client.exchange(code=answer["code"], verifier=kept["verifier"], redirect_uri=redirect_uri)
        return await self._keep(who, tokens)

    async def begin_device(self, user: str, connection: str) -> DeviceGrant:
        self.check(connection)
        _check_user(user)
        return await self._clients[connection].begin_device()

    async def complete_device(self, tenant: str, user: str, connection: str, grant: DeviceGrant) -> ConnectionState:
        """Wait until the person has answered on the other device."""
        interval = grant.interval
        while self._now() < grant.expires_at:
            await self._sleep(interval)
            try:
                tokens = await self._clients[connection].poll_device(grant)
            except SlowDown:
                interval += 5
            except StillPending:
                continue
            else:
                return await self._keep((tenant, user, connection), tokens)
        raise AuthorizationRefused("The code was not entered in time; nothing was connected.")

    async def _keep(self, who: tuple[str, str, str], tokens: TokenSet) -> ConnectionState:
        config = self._configs[who[2]]
        missing = [scope for scope in config.scopes if scope not in tokens.scopes]
        if missing:
            # Half a permission would fail later, in the middle of something.
            await self._revoke(config, tokens)
            raise AuthorizationRefused(
                f'{config.label} did not allow everything that is needed ("{missing[0]}" is missing); nothing was connected.'
            )
        await self._store.put(self._sealed(who, tokens))
        stored = await self._store.get(*who)
        return self._state(config, stored)

    # ------------------------------------------------------------------------------------------------------------ using
    async def token(self, tenant: str, user: str, connection: str) -> AccessToken:
        who = (tenant, user, connection)
        tokens = self._opened(await self._store.get(*who), connection)
        if self._is_fresh(tokens):
            return _handed(tokens)
        lock = self._locks.setdefault(who, asyncio.Lock())
        async with lock:
            task = asyncio.get_running_loop().create_task(self._refreshed(who))
            self._refreshing.add(task)
            task.add_done_callback(self._refreshing.discard)
            # A call that is given up must not lose a refresh token that was good for one use.
            return await asyncio.shield(task)

    async def refused(self, tenant: str, user: str, connection: str, token: str) -> None:
        stored = await self._store.get(tenant, user, connection)
        if stored is None:
            return
        tokens = self._opened(stored, connection)
        if hmac.compare_digest(tokens.access, token):
            ended = replace(tokens, expires_at=0.0)
            await self._store.put(self._sealed((tenant, user, connection), ended), expected=stored.version)

    async def _refreshed(self, who: tuple[str, str, str]) -> AccessToken:
        waited = 0.0
        while True:
            stored = await self._store.get(*who)
            tokens = self._opened(stored, who[2])
            assert stored is not None
            if self._is_fresh(tokens):
                return _handed(tokens)
            if await self._store.begin_refresh(stored, owner=self._owner, lease_ms=_LEASE_MS):
                return await self._refresh(who, stored, tokens)
            if waited >= _MAX_WAIT_SECONDS:
                raise self._unavailable(who[2])
            await self._sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS

    async def _refresh(self, who: tuple[str, str, str], stored: StoredCredential, tokens: TokenSet) -> AccessToken:
        config, client = self._configs[who[2]], self._clients[who[2]]
        try:
            new = await client.refresh(tokens)
        except AuthorizationRefused as error:
            if error.code != "invalid_grant":
                await self._store.end_refresh(stored, owner=self._owner)
                _LOG.error("The connection %s cannot be refreshed: %s", who[2], error)
                raise ToolError(
                    ErrorType.AUTH,
                    f"{config.label} does not accept this host at the moment; the operator has to mend it.",
                ) from None
            await self._store.delete(*who)
            raise ConnectionNeeded(
                who[2],
                config.label,
                f'The connection to "{config.label}" has ended. The person has been shown how to connect it again.',
            ) from None
        except AuthorizationUnavailable:
            await self._store.end_refresh(stored, owner=self._owner)
            if tokens.expires_at is None or tokens.expires_at > self._now():
                return _handed(tokens)
            raise self._unavailable(who[2]) from None
        if not await self._store.put(self._sealed(who, new), expected=stored.version):
            # Ended, or connected anew, while the service answered.
            await self._revoke(config, new)
            return _handed(self._opened(await self._store.get(*who), who[2]))
        return _handed(new)

    def _unavailable(self, connection: str) -> ToolError:
        label = self._configs[connection].label
        return ToolError(ErrorType.TRANSIENT, f"{label} cannot be asked at the moment.", retryable=True, retry_after=10)

    # ----------------------------------------------------------------------------------------------------------- ending
    async def disconnect(self, tenant: str, user: str, connection: str) -> Ended:
        """Delete a credential, then have the service revoke it. What cannot be revoked is deleted all the same."""
        self.check(connection)
        return await self._end(await self._store.delete(tenant, user, connection))

    async def forget(self, tenant: str, user: str) -> tuple[int, list[str]]:
        ended = [
            await self._end(await self._store.delete(tenant, user, one.connection))
            for one in await self._store.all_of(tenant, user)
        ]
        return len(ended), [one.unrevoked for one in ended if one.unrevoked]

    async def _end(self, stored: StoredCredential | None) -> Ended:
        if stored is None:
            return Ended(existed=False)
        config = self._configs.get(stored.connection)
        if config is None:
            return Ended(True, f'"{stored.connection}" is no longer configured, so the service was not told.')
        try:
            return Ended(True, await self._revoke(config, self._open(stored)))
        except SealBroken as error:
            return Ended(True, f"{config.label} was not told: {error}")

    async def _revoke(self, config: ConnectionConfig, tokens: TokenSet) -> str:
        """Why it could not be revoked, in a sentence; empty if it was."""
        try:
            if await self._clients[config.name].revoke(tokens):
                return ""
            return f"{config.label} has no way to revoke; remove the access in your account there."
        except CredentialError as error:
            return f"{error} Remove the access in your account there."

    # ---------------------------------------------------------------------------------------------------------- sealing
    async def rotate(self) -> int:
        """Seal with the newest key what older ones have sealed; how many it were."""
        done = 0
        while stored := await self._store.sealed_otherwise(self._vault.key_id, _BATCH):
            for one in stored:
                who = (one.tenant, one.user, one.connection)
                # One that changes meanwhile is sealed with the newest key by that.
                done += await self._store.put(self._sealed(who, self._open(one)), expected=one.version)
        return done

    def _sealed(self, who: tuple[str, str, str], tokens: TokenSet) -> StoredCredential:
        kept: dict[str, Any] = {
            "access": tokens.access,
            "refresh": tokens.refresh,
            "expiresAt": tokens.expires_at,
            "scopes": list(tokens.scopes),
        }
        sealed = self._vault.seal(kept, "credential", *who)
        tenant, user, connection = who
        return StoredCredential(
            tenant=tenant, user=user, connection=connection, sealed=sealed, key_id=self._vault.key_id
        )

    def _open(self, stored: StoredCredential) -> TokenSet:
        who = (stored.tenant, stored.user, stored.connection)
        kept = self._vault.open(stored.sealed, stored.key_id, "credential", *who)
        return TokenSet(
            access=kept["access"],
            refresh=kept["refresh"],
            expires_at=kept["expiresAt"],
            scopes=tuple(kept["scopes"]),
        )

    def _opened(self, stored: StoredCredential | None, connection: str) -> TokenSet:
        label = self._configs[connection].label
        if stored is None:
            raise ConnectionNeeded(connection, label)
        try:
            return self._open(stored)
        except SealBroken as error:
            _LOG.error("The connection %s of a user cannot be used: %s", connection, error)
            raise ConnectionNeeded(
                connection,
                label,
                f'The connection to "{label}" cannot be read. The person has been shown how to renew it.',
            ) from None

    def _is_fresh(self, tokens: TokenSet) -> bool:
        return tokens.expires_at is None or tokens.expires_at - _EARLY_SECONDS > self._now()


def _handed(tokens: TokenSet) -> AccessToken:
    return AccessToken(value=tokens.access, scopes=tokens.scopes, expires_at=tokens.expires_at)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _check_user(user: str) -> None:
    if not user:
        raise UsageError("A connection belongs to a person; this session has no user.")

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
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar
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
from handrail.identity.discovery import DiscoveredClient, discovered_client
from handrail.identity.oauth import DeviceGrant, OAuthClient, SlowDown, StillPending, TokenSet, new_verifier
from handrail.identity.sealed_credential import Credential, new_grant, seal, unseal
from handrail.identity.vault import SealBroken, Vault

T = TypeVar("T")
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


class _Replaced(Exception):  # no failure: whoever catches it looks again
    """The credential that was refreshed is not the stored one any more."""


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
        self._running: set[asyncio.Task[Any]] = set()
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
            tokens = self._open(stored).tokens
            scopes, missing = tokens.scopes, _missing(config, tokens)
            problem = f'{config.label} no longer allows "{missing}", which is needed; connect again.' if missing else ""
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
        found = await self._found(tenant, user, connection, redirect_uri)
        client = self._client(connection, found)
        url = await client.authorization_url(state=state, verifier=verifier, redirect_uri=redirect_uri)
        kept = {
            "verifier": verifier,
            "redirect": redirect_uri,
            "browser": _digest(browser),
            "key": self._vault.key_id,
            "client": found,
        }
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
        config = self._configs.get(pending.connection)
        if config is None:
            raise AuthorizationRefused("The connection is no longer configured; nothing was connected.")
        who = pending.tenant, pending.user, pending.connection
        key_id, _, sealed = pending.sealed.partition(":")
        kept = self._vault.open(sealed, key_id, "authorization", pending.digest, *who)
        if not hmac.compare_digest(kept["browser"], _digest(browser)) or whose not in (None, who[:2]):
            raise AuthorizationRefused("Another browser has begun this connection; connect again in this one.")
        if redirect_uri != kept["redirect"]:
            raise AuthorizationRefused("The answer came to another address than it was sent to; nothing was connected.")
        client = self._client(pending.connection, kept.get("client"))
        await client.check_issuer(answer.get("iss"))
        if "error" in answer or not answer.get("code"):
            word = "was not allowed" if answer.get("error") == "access_denied" else "was refused by the service"
            raise AuthorizationRefused(f"{config.label} was not connected: it {word}.")
        exchange = client.exchange(code=answer["code"], verifier=kept["verifier"], redirect_uri=redirect_uri)
        return await self._carried(self._kept(who, pending.digest, exchange, kept.get("client")))

    async def _kept(
        self,
        who: tuple[str, str, str],
        digest: str,
        tokens: Coroutine[Any, Any, TokenSet],
        found: Mapping[str, Any] | None = None,
    ) -> ConnectionState:
        return await self._keep(who, digest, replace(await tokens, client=found))

    async def _found(self, tenant: str, user: str, connection: str, redirect_uri: str) -> Mapping[str, Any] | None:
        """The client for a connection to a server that says itself where people sign in. It is looked up each time, because a
        server may move to another authorization server, where no earlier client is known."""
        config = self._configs[connection]
        if not config.server:
            return None
        more: tuple[str, ...] = ()
        stored = await self._store.get(tenant, user, connection)
        if stored is not None:
            with suppress(SealBroken):
                tokens = self._open(stored).tokens
                more = (*tokens.scopes, *tokens.wanted)
        found = await discovered_client(config, redirect_uri=redirect_uri, more_scopes=more, now=self._now)
        return found.to_dict()

    def _client(self, connection: str, found: Mapping[str, Any] | None) -> OAuthClient:
        if found is None:
            return self._clients[connection]
        return DiscoveredClient.from_dict(found).oauth(self._configs[connection], self._now)

    async def begin_device(self, user: str, connection: str) -> DeviceGrant:
        self.check(connection)
        if self._configs[connection].server:
            raise UsageError(f'"{connection}" is connected with a browser; leave out --device.')
        _check_user(user)
        return await self._clients[connection].begin_device()

    async def complete_device(self, tenant: str, user: str, connection: str, grant: DeviceGrant) -> ConnectionState:
        """Wait until the person has answered on the other device."""
        who, digest = (tenant, user, connection), _digest(f"device {grant.device_code}")
        pending = PendingAuthorization(digest=digest, tenant=tenant, user=user, connection=connection, sealed="")
        lives_for = max(0, round((grant.expires_at - self._now()) * 1000))
        await self._store.begin_authorization(pending, lives_for=lives_for)
        await self._store.take_authorization(digest)
        interval = grant.interval
        while self._now() < grant.expires_at:
            await self._sleep(interval)
            try:
                polled = self._clients[connection].poll_device(grant)
                return await self._carried(self._kept(who, digest, polled))
            except SlowDown:
                interval += 5
            except StillPending:
                continue
        raise AuthorizationRefused("The code was not entered in time; nothing was connected.")

    async def _keep(self, who: tuple[str, str, str], digest: str, tokens: TokenSet) -> ConnectionState:
        """Keep what an authorization has led to, and revoke what it replaces; revoke it itself if it cannot be kept."""
        config = self._configs[who[2]]
        missing = _missing(config, tokens)
        if missing:
            # Half a permission would fail later, in the middle of something.
            await self._discard(who, tokens)
            raise AuthorizationRefused(
                f'{config.label} did not allow everything that is needed ("{missing}" is missing); nothing was connected.'
            )
        made = Credential(tokens=tokens, grant=new_grant())
        while True:
            earlier = await self._store.get(*who)
            version = None if earlier is None else earlier.version
            new = replace(made, replaced=self._beside(earlier))
            if await self._store.complete_authorization(digest, seal(self._vault, who, new), expected=version):
                break
            now = await self._store.get(*who)
            if version == (None if now is None else now.version):
                await self._discard(who, tokens)
                raise AuthorizationRefused(
                    f"{config.label} was not connected: meanwhile it was disconnected, or another connection was begun."
                )
        await self._revoke_replaced(who)
        return self._state(config, await self._store.get(*who))

    def _beside(self, earlier: StoredCredential | None) -> tuple[TokenSet, ...]:
        """What waits to be revoked once this credential is replaced."""
        if earlier is None:
            return ()
        try:
            found = self._open(earlier)
        except SealBroken as error:
            _LOG.warning("What a new connection to %s replaces is not revoked: %s", earlier.connection, error)
            return ()
        return found.beside(found.tokens)

    # ------------------------------------------------------------------------------------------------------------ using
    async def token(self, tenant: str, user: str, connection: str) -> AccessToken:
        who = (tenant, user, connection)
        tokens = self._opened(await self._store.get(*who), connection).tokens
        if self._is_fresh(tokens):
            return self._handed(connection, tokens)
        lock = self._locks.setdefault(who, asyncio.Lock())
        async with lock:
            # A call that is given up must not lose a refresh token that was good for one use.
            return await self._carried(self._refreshed(who))

    async def _carried(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry this to its end, whatever becomes of the call that asked for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def refused(self, tenant: str, user: str, connection: str, token: str, scopes: Sequence[str] = ()) -> None:
        who = (tenant, user, connection)
        stored = await self._store.get(*who)
        if stored is None:
            return
        found = self._opened(stored, connection)
        tokens = found.tokens
        if hmac.compare_digest(tokens.access, token):
            if scopes:
                beyond = self._beyond(connection, tokens, scopes)
                ended = replace(tokens, wanted=tuple(dict.fromkeys((*tokens.wanted, *beyond))))
            else:
                ended = replace(tokens, expires_at=0.0)
            await self._store.put(seal(self._vault, who, replace(found, tokens=ended)), expected=stored.version)
            if scopes:
                raise ConnectionNeeded(
                    connection,
                    self._configs[connection].label,
                    f'The connection to "{self._configs[connection].label}" does not allow this. '
                    "The person has been shown how to allow it; ask them to do it, then try again.",
                )

    def _beyond(self, connection: str, tokens: TokenSet, scopes: Sequence[str]) -> tuple[str, ...]:
        """The scopes that the person can be asked for; `ToolError` if asking once more would not help."""
        config = self._configs[connection]
        asked = tokens.client["scopes"] if tokens.client is not None else config.scopes
        if config.server and not set(scopes) <= set(asked):
            return tuple(scopes)
        known = set(config.scopes)
        lacks = next((one for one in scopes if one not in known), "") if not config.server else ""
        if lacks:
            mend = f'it wants "{lacks}", which "scopes" in [connections.{connection}] does not list'
            _LOG.error("%s does not allow a call: %s.", config.label, mend)
        raise ToolError(
            ErrorType.AUTH, f"{config.label} does not allow this to the person, although they were asked for it."
        )

    async def _refreshed(self, who: tuple[str, str, str]) -> AccessToken:
        waited = 0.0
        while True:
            stored = await self._store.get(*who)
            found = self._opened(stored, who[2])
            assert stored is not None
            if self._is_fresh(found.tokens):
                return self._handed(who[2], found.tokens)
            if await self._store.begin_refresh(stored, owner=self._owner, lease_ms=_LEASE_MS):
                try:
                    return await self._refresh(who, found)
                except _Replaced:
                    continue
                finally:
                    await self._store.end_refresh(stored, owner=self._owner)
            if waited >= _MAX_WAIT_SECONDS:
                raise self._unavailable(who[2])
            await self._sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS

    async def _refresh(self, who: tuple[str, str, str], used: Credential) -> AccessToken:
        config, tokens = self._configs[who[2]], used.tokens
        try:
            new = replace(await self._client(who[2], tokens.client).refresh(tokens), client=tokens.client)
        except AuthorizationRefused as error:
            if error.code != "invalid_grant":
                _LOG.error("The connection %s cannot be refreshed: %s", who[2], error)
                raise ToolError(
                    ErrorType.AUTH,
                    f"{config.label} does not accept this host at the moment; the operator has to mend it.",
                ) from None
            await self._delete_ended(who, used)
            raise ConnectionNeeded(
                who[2],
                config.label,
                f'The connection to "{config.label}" has ended. The person has been shown how to connect it again.',
            ) from None
        except AuthorizationUnavailable:
            if tokens.expires_at is None or tokens.expires_at > self._now():
                return self._handed(who[2], tokens)
            raise self._unavailable(who[2]) from None
        while (held := await self._holding(who, used)) is not None:
            stored, found = held
            kept = replace(found, tokens=replace(new, wanted=found.tokens.wanted))
            if await self._store.put(seal(self._vault, who, kept), expected=stored.version):
                return self._handed(who[2], new)
        await self._discard(who, new, grant=used.grant)
        raise _Replaced

    async def _delete_ended(self, who: tuple[str, str, str], used: Credential) -> None:
        """Delete what the service has ended; `_Replaced` if the person has another credential by now."""
        while (held := await self._holding(who, used)) is not None:
            stored, found = held
            if await self._store.delete(*who, expected=stored.version) is not None:
                await self._revoke_all(self._configs[who[2]], found.replaced)
                return
        raise _Replaced

    async def _holding(self, who: tuple[str, str, str], used: Credential) -> tuple[StoredCredential, Credential] | None:
        """What is stored, as long as it is the credential that was used: others may have sealed it anew meanwhile, or noted
        that its access token was refused."""
        stored = await self._store.get(*who)
        if stored is None:
            return None
        found = self._opened(stored, who[2])
        return (stored, found) if (found.grant, found.tokens.refresh) == (used.grant, used.tokens.refresh) else None

    def _handed(self, connection: str, tokens: TokenSet) -> AccessToken:
        config = self._configs[connection]
        missing = _missing(config, tokens)
        if missing:
            raise ConnectionNeeded(
                connection,
                config.label,
                f'The connection to "{config.label}" no longer allows all that is needed. '
                "The person has been shown how to renew it.",
            )
        return AccessToken(value=tokens.access, scopes=tokens.scopes, expires_at=tokens.expires_at)

    def _unavailable(self, connection: str) -> ToolError:
        label = self._configs[connection].label
        return ToolError(ErrorType.TRANSIENT, f"{label} cannot be asked at the moment.", retryable=True, retry_after=10)

    # ----------------------------------------------------------------------------------------------------------- ending
    async def disconnect(self, tenant: str, user: str, connection: str) -> Ended:
        """Delete a credential, then have the service revoke it. What cannot be revoked is deleted all the same."""
        self.check(connection)
        return await self._end(await self._store.delete(tenant, user, connection))

    async def forget(self, tenant: str, user: str) -> tuple[int, list[str]]:
        ended = [await self._end(one) for one in await self._store.forget(tenant, user)]
        return len(ended), [one.unrevoked for one in ended if one.unrevoked]

    async def _end(self, stored: StoredCredential | None) -> Ended:
        if stored is None:
            return Ended(existed=False)
        config = self._configs.get(stored.connection)
        if config is None:
            return Ended(True, f'"{stored.connection}" is no longer configured, so the service was not told.')
        try:
            found = self._open(stored)
        except SealBroken as error:
            return Ended(True, f"{config.label} was not told: {error}")
        unrevoked = await self._revoke_all(config, (found.tokens, *found.replaced))
        return Ended(True, next((reason for reason in unrevoked if reason), ""))

    async def _discard(self, who: tuple[str, str, str], tokens: TokenSet, *, grant: str | None = None) -> None:
        """Revoke what is not kept. Where that would end what the person has, it waits beside that."""
        config = self._configs[who[2]]
        while (stored := await self._store.get(*who)) is not None:
            try:
                found = self._open(stored)
            except SealBroken:
                break
            if config.revokes == "grant" and found.grant != grant:
                break
            kept = replace(found, replaced=found.beside(tokens))
            if await self._store.put(seal(self._vault, who, kept), expected=stored.version):
                return
        await self._revoke(config, tokens)

    async def _revoke_replaced(self, who: tuple[str, str, str]) -> None:
        """Revoke what the credential has replaced, unless that ends the credential too. What is left is tried at its end."""
        config, stored = self._configs[who[2]], await self._store.get(*who)
        if config.revokes != "grant" or stored is None:
            return
        found = self._open(stored)
        reasons = await self._revoke_all(config, found.replaced)
        left = tuple(one for one, reason in zip(found.replaced, reasons, strict=True) if reason)
        if left != found.replaced:
            await self._store.put(seal(self._vault, who, replace(found, replaced=left)), expected=stored.version)

    async def _revoke_all(self, config: ConnectionConfig, tokens: Sequence[TokenSet]) -> list[str]:
        return await asyncio.gather(*(self._revoke(config, one) for one in tokens))

    async def _revoke(self, config: ConnectionConfig, tokens: TokenSet) -> str:
        """Why it could not be revoked, in a sentence; empty if it was."""
        try:
            if await self._client(config.name, tokens.client).revoke(tokens):
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
                done += await self._store.put(seal(self._vault, who, self._open(one)), expected=one.version)
        return done

    def _open(self, stored: StoredCredential) -> Credential:
        return unseal(self._vault, stored)

    def _opened(self, stored: StoredCredential | None, connection: str) -> Credential:
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


def _missing(config: ConnectionConfig, tokens: TokenSet) -> str:
    """The first scope that is needed and was not allowed; empty if all were."""
    return next((scope for scope in config.scopes if scope not in tokens.scopes), "")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _check_user(user: str) -> None:
    if not user:
        raise UsageError("A connection belongs to a person; this session has no user.")

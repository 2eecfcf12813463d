"""A client of an OAuth 2.1 authorization server: discovery, authorization code with PKCE, refresh, revocation, device grant.

It keeps nothing: whoever uses it keeps the verifier and the tokens. Everything that a server answers is checked before it is
used; what a server *writes* (`error_description`) is shown to nobody, because it may be anything.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from handrail.contract.credentials import AuthorizationRefused, AuthorizationUnavailable
from handrail.identity.bounded_request import RequestFailed, request
from handrail.identity.config import ConnectionConfig, is_safe_address, metadata_addresses

_MAX_ANSWER_BYTES = 256 * 1024
_SECONDS = 20.0
"""For a whole request, and for a whole discovery: together they stay below the time for which one process refreshes alone."""
_CODE = re.compile(r"[a-z_]{1,64}")
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_MAX_LIFE = 10 * 366 * 86_400.0
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where an authorization server is asked what."""

    issuer: str = ""
    authorization: str
    token: str
    revocation: str = ""
    device: str = ""
    registration: str = ""
    names_itself: bool = False
    """It promises `iss` in its answers (RFC 9207)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSet:
    """What an authorization server has given. Left out of `repr`, so that no log has it."""

    access: str = field(repr=False)
    refresh: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """Seconds since 1970."""
    scopes: tuple[str, ...] = ()
    client: Mapping[str, Any] | None = field(default=None, repr=False)
    """The client that they were given to, where it was found by discovery."""
    wanted: tuple[str, ...] = ()
    """Scopes that the service has asked for beyond these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant:
    """What a person types on another device."""

    device_code: str = field(repr=False)
    user_code: str
    address: str
    """Where they type it."""
    complete_address: str = ""
    """With the code in it."""
    interval: float
    expires_at: float


class SlowDown(AuthorizationUnavailable):
    """The device was not answered for yet; ask less often."""


class StillPending(AuthorizationUnavailable):
    """The device was not answered for yet."""


def new_verifier() -> str:
    """The secret of one authorization: the server sees its hash first, and the verifier only with the code (RFC 7636)."""
    return secrets.token_urlsafe(48)


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class OAuthClient:
    """One client of one authorization server."""

    def __init__(
        self, config: ConnectionConfig, *, now: Callable[[], float], endpoints: Endpoints | None = None
    ) -> None:
        self.config = config
        self._now = now
        self._endpoints = endpoints

    # ------------------------------------------------------------------------------------------------- discovery
    async def endpoints(self) -> Endpoints:
        """Those of the configuration, and from the issuer's metadata (RFC 8414, or OpenID Connect) those that it lacks."""
        if self._endpoints is None:
            config = self.config
            if config.authorization_endpoint and config.token_endpoint:
                self._endpoints = Endpoints(
                    issuer=config.issuer,
                    authorization=config.authorization_endpoint,
                    token=config.token_endpoint,
                    revocation=config.revocation_endpoint,
                    device=config.device_endpoint,
                )
            else:
                try:
                    async with asyncio.timeout(_SECONDS):
                        found = await self.metadata()
                except TimeoutError:
                    raise self._unreachable() from None
                self._endpoints = self.endpoints_in(found)
        return self._endpoints

    async def metadata(self) -> Mapping[str, Any]:
        """The issuer's own description; refused if it is another issuer's."""
        issuer = self.config.issuer
        for place in metadata_addresses(issuer):
            status, found = await self._ask("GET", place)
            if status == 200 and found is not None:
                if found.get("issuer") != issuer:
                    raise AuthorizationRefused(f'{self._label} describes itself as another issuer than "{issuer}".')
                return found
            if status >= 500 or status == 429:
                raise AuthorizationUnavailable(f"{self._label} cannot be asked at the moment; try again later.")
        raise AuthorizationUnavailable(f'{self._label} has no description at its issuer "{issuer}".')

    def endpoints_in(self, found: Mapping[str, Any], *, pkce: bool = False) -> Endpoints:
        """The endpoints of a description. With `pkce` it must say that it offers that; else it must not say the contrary."""
        config = self.config
        methods = found.get("code_challenge_methods_supported")
        if (pkce or isinstance(methods, list)) and "S256" not in (methods if isinstance(methods, list) else ()):
            raise AuthorizationRefused(f"{self._label} does not offer PKCE with S256, which a connection needs.")

        def place(own: str, key: str, *, needed: bool = False) -> str:
            address = own or found.get(key) or ""
            if (address or needed) and not (isinstance(address, str) and is_safe_address(address)):
                raise AuthorizationRefused(f'{self._label} names no address that can be used as its "{key}".')
            return str(address)

        return Endpoints(
            issuer=config.issuer,
            authorization=place(config.authorization_endpoint, "authorization_endpoint", needed=True),
            token=place(config.token_endpoint, "token_endpoint", needed=True),
            revocation=place(config.revocation_endpoint, "revocation_endpoint"),
            device=place(config.device_endpoint, "device_authorization_endpoint"),
            registration=place("", "registration_endpoint"),
            names_itself=found.get("authorization_response_iss_parameter_supported") is True,
        )

    # ----------------------------------------------------------------------------------------- authorization code
    async def authorization_url(self, *, state: str, verifier: str, redirect_uri: str) -> str:
        """Where the person's browser is sent."""
        config, endpoints = self.config, await self.endpoints()
        asked = {
            **config.parameters,
            "response_type": "code",
            "client_id": config.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            **({"scope": " ".join(config.scopes)} if config.scopes else {}),
            **({"resource": config.resource} if config.resource else {}),
        }
        parts = urlsplit(endpoints.authorization)
        query = urlencode([*parse_qsl(parts.query), *asked.items()], quote_via=quote)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))

    async def check_issuer(self, iss: str | None) -> None:
        """Refuse an answer that another authorization server may have sent (RFC 9207)."""
        endpoints = await self.endpoints()
        if iss is None and endpoints.names_itself:
            raise AuthorizationRefused(f"The answer does not say that it comes from {self._label}; connect again.")
        if iss is not None and endpoints.issuer and iss != endpoints.issuer:
            raise AuthorizationRefused(
                f"The answer comes from another server than {self._label}; nothing was connected."
            )

    async def exchange(self, *, code: str, verifier: str, redirect_uri: str) -> TokenSet:
        """The tokens for a code. A code that is used twice, or by somebody without its verifier, is refused by the server."""
        body = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        return self._tokens(await self._post_token(body), self.config.scopes)

    async def refresh(self, tokens: TokenSet) -> TokenSet:
        """New tokens. A server that rotates refresh tokens gives a new one with them; otherwise the old one stays."""
        if tokens.refresh is None:
            raise AuthorizationRefused(
                f"{self._label} gave nothing to refresh the connection with.", code="invalid_grant"
            )
        found = self._tokens(
            await self._post_token({"grant_type": "refresh_token", "refresh_token": tokens.refresh}), tokens.scopes
        )
        return found if found.refresh is not None else replace(found, refresh=tokens.refresh)

    async def revoke(self, tokens: TokenSet) -> bool:
        """Take the tokens back (RFC 7009); False if the server has no way to."""
        endpoint = (await self.endpoints()).revocation
        if not endpoint:
            return False
        kind, token = ("refresh_token", tokens.refresh) if tokens.refresh else ("access_token", tokens.access)
        status, found = await self._ask("POST", endpoint, {"token": token or "", "token_type_hint": kind})
        # One that the server does not know is as good as revoked: Google says so with 400.
        if status == 200 or (status == 400 and (found or {}).get("error") in ("invalid_token", "invalid_grant")):
            return True
        raise AuthorizationUnavailable(f"{self._label} did not revoke the connection.")

    # ------------------------------------------------------------------------------------------------ device grant
    async def begin_device(self) -> DeviceGrant:
        """RFC 8628: the person types a code on a device that has a browser."""
        endpoint = (await self.endpoints()).device
        if not endpoint:
            raise AuthorizationRefused(f"{self._label} has no device flow; connect without --device.")
        config = self.config
        scope = {"scope": " ".join(config.scopes)} if config.scopes else {}
        status, found = await self._ask("POST", endpoint, scope)
        if status != 200 or found is None:
            raise self._refusal(status, found)
        address = found.get("verification_uri") or found.get("verification_url")
        complete = found.get("verification_uri_complete") or ""
        texts = (found.get("device_code"), found.get("user_code"))
        if (
            not all(isinstance(one, str) and _TOKEN.fullmatch(one.replace(" ", "-")) for one in texts)
            or not isinstance(address, str)
            or not is_safe_address(address)
            or not isinstance(complete, str)
            or (complete and not is_safe_address(complete))
        ):
            raise AuthorizationUnavailable(f"{self._label} gave no code that could be shown.")
        life = _seconds(found.get("expires_in")) or 600.0
        return DeviceGrant(
            device_code=str(texts[0]),
            user_code=str(texts[1]),
            address=address,
            complete_address=complete,
            interval=max(1.0, _seconds(found.get("interval")) or 5.0),
            expires_at=self._now() + life,
        )

    async def poll_device(self, grant: DeviceGrant) -> TokenSet:
        """`StillPending` or `SlowDown` until the person has answered."""
        return self._tokens(
            await self._post_token({"grant_type": _DEVICE, "device_code": grant.device_code}), self.config.scopes
        )

    # ---------------------------------------------------------------------------------------------------- requests
    @property
    def _label(self) -> str:
        return self.config.label or self.config.name

    async def _post_token(self, body: Mapping[str, str]) -> Mapping[str, Any]:
        resource = {"resource": self.config.resource} if self.config.resource else {}
        status, found = await self._ask("POST", (await self.endpoints()).token, {**body, **resource})
        if status == 200 and found is not None and "error" not in found:
            return found
        raise self._refusal(status, found)

    def _refusal(self, status: int, found: Mapping[str, Any] | None) -> AuthorizationRefused | AuthorizationUnavailable:
        code = (found or {}).get("error")
        code = code if isinstance(code, str) and _CODE.fullmatch(code) else ""
        if code == "authorization_pending":
            return StillPending("Nobody has answered yet.")
        if code == "slow_down":
            return SlowDown("Nobody has answered yet.")
        if code and code not in ("temporarily_unavailable", "server_error") and status < 500 and status != 429:
            return AuthorizationRefused(f"{self._label} refused ({code}).", code=code)
        return AuthorizationUnavailable(
            f"{self._label} gave no answer that can be used (status {status}); try again later."
        )

    def _tokens(self, found: Mapping[str, Any], asked: Sequence[str]) -> TokenSet:
        access, refresh, scope = found.get("access_token"), found.get("refresh_token"), found.get("scope")
        kind = found.get("token_type")
        good = isinstance(access, str) and _TOKEN.fullmatch(access) is not None
        good = good and (refresh is None or (isinstance(refresh, str) and _TOKEN.fullmatch(refresh) is not None))
        if not good or not isinstance(kind, str) or kind.lower() != "bearer":
            raise AuthorizationUnavailable(f"{self._label} gave no token that can be used.")
        life = _seconds(found.get("expires_in"))
        return TokenSet(
            access=str(access),
            refresh=refresh,
            expires_at=None if life is None else self._now() + life,
            scopes=tuple(scope.split()) if isinstance(scope, str) else tuple(asked),
        )

    async def _ask(
        self, method: str, address: str, body: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any] | None]:
        """The status, and the JSON object of the answer if it is one."""
        config = self.config
        sent = dict(body) if body is not None else None
        headers = {}
        if sent is not None:
            if config.client_auth == "basic":
                pair = f"{quote(config.client_id, safe='')}:{quote(config.client_secret, safe='')}"
                headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
            else:
                sent["client_id"] = config.client_id
                if config.client_secret:
                    sent["client_secret"] = config.client_secret
        try:
            status, raw = await request(
                method, address, seconds=_SECONDS, max_bytes=_MAX_ANSWER_BYTES, headers=headers, form=sent
            )
        except RequestFailed:
            raise self._unreachable() from None
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            return status, None
        return status, found if isinstance(found, dict) else None

    def _unreachable(self) -> AuthorizationUnavailable:
        return AuthorizationUnavailable(f"{self._label} cannot be reached at the moment; try again later.")


def _seconds(value: Any) -> float | None:
    """A lifetime; services write it as a number or as text."""
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return min(seconds, _MAX_LIFE) if seconds >= 0 else None

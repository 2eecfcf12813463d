"""Signed tokens of people: a JWT is checked with the keys of its issuer (a JWKS, in a file, at an address, or where the issuer
says) or a shared secret. `[identity]` and the OAuth of `[mcp]` both use it.

What a token says of its user is believed only if its signature, issuer, audience and times are right. Keys are cached; a token
whose key is not known makes them be fetched again, so that an issuer may rotate them. A key that is gone or expired is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from handrail.contract.errors import ConfigError, UsageError, missing_extra
from handrail.identity.config import is_safe_address, metadata_addresses

_log = logging.getLogger("handrail.identity")
MAX_TOKEN = 8_192
_MAX_JWKS_BYTES = 1 << 20
_MAX_KEYS = 100
_MAX_ROLES = 100
_MAX_NAME = 256
_FETCH_SECONDS = 5.0
_AGAIN_SECONDS = 10.0
"""So long nobody makes the keys be fetched again by a token with an unknown one."""
_STALE_SECONDS = 3_600.0
"""So long keys are used after their time if the issuer cannot be reached."""
_SHORTEST_SECRET = 32
_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SYMMETRIC = ("HS256", "HS384", "HS512")


class TokenNotBelieved(UsageError):
    """A token that is not believed; the message says why, and never what is in it."""

    def __init__(self, message: str, *, scope: str = "") -> None:
        super().__init__(message)
        self.scope = scope
        """The one that it lacks, if that is all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """`[identity]`: whose tokens are believed, and what in them says who the user is."""

    issuer: str
    audience: str
    jwks: str = ""
    """A file, or an address."""
    secret: str = field(default="", repr=False)
    """Shared with the issuer; in the place of a JWKS."""
    discovery: bool = False
    """The issuer's metadata (RFC 8414, OpenID Connect) says where its JWKS is."""
    scopes: tuple[str, ...] = ()
    """What a token must have been granted."""
    algorithms: tuple[str, ...] = ()
    user_claim: str = "sub"
    roles_claim: str = "roles"
    tenant_claim: str = ""
    organisation_claim: str = ""
    leeway_seconds: int = 30
    cache_seconds: int = 300

    def __post_init__(self) -> None:
        if bool(self.jwks) + bool(self.secret) + self.discovery != 1:
            raise ConfigError(
                "[identity] needs either `jwks` or a shared secret (HANDRAIL_IDENTITY_SECRET), and not both."
            )
        for name in ("issuer", "audience"):
            if not getattr(self, name):
                raise ConfigError(
                    f'[identity] needs "{name}": a token that was made for others must not be believed here.'
                )
        if self.secret and len(self.secret.encode()) < _SHORTEST_SECRET:
            raise ConfigError(f"The shared secret of [identity] must have at least {_SHORTEST_SECRET} bytes.")
        possible = SYMMETRIC if self.secret else ASYMMETRIC
        for name in self.algorithms:
            if name not in possible:
                raise ConfigError(f'"algorithms" in [identity] has "{name}"; possible are {", ".join(possible)}.')
        if is_address(self.jwks) and not is_safe_address(self.jwks):
            raise ConfigError(
                '"jwks" in [identity] must be an https address: whoever changes the keys on the way is believed.'
            )

    @property
    def accepted(self) -> tuple[str, ...]:
        return self.algorithms or (SYMMETRIC[:1] if self.secret else ASYMMETRIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUser:
    """Whom a token speaks for."""

    user: str
    roles: tuple[str, ...]
    tenant: str
    organisation: str
    expires: float
    client: str = ""
    """The program that the token was made for, where it says so."""

    @property
    def attributes(self) -> dict[str, Any]:
        """What a host gives `open_session` as attributes."""
        facts: dict[str, Any] = {"roles": list(self.roles)}
        return {**facts, "organisation": self.organisation} if self.organisation else facts


class TokenChecker:
    """Checks tokens by the rules of `[identity]`. `roles` says which there are now; without any, those of a token stay all."""

    def __init__(
        self,
        rules: TokenRules,
        *,
        roles: Callable[[], Collection[str]] = tuple,
        now: Callable[[], float] = time.time,  # noqa: TID251  # the times in tokens are those of the world
    ) -> None:
        try:
            import jwt  # noqa: PLC0415  # an extra
        except ImportError:
            raise missing_extra("[identity]", "identity") from None
        self._jwt = jwt
        self._rules = rules
        self._roles = roles
        self._now = now
        source = "" if rules.discovery else rules.jwks
        issuer = rules.issuer if rules.discovery else ""
        self._keys = None if rules.secret else IssuerKeys(source, rules.cache_seconds, now, issuer=issuer)

    def names_issuer(self, token: str) -> bool:
        """Whether it says that this issuer has made it; whether that is true, `check` finds out. Others may know it."""
        if len(token) > MAX_TOKEN:
            return False
        try:
            claims = self._jwt.decode(token, options={"verify_signature": False})
        except (self._jwt.PyJWTError, RecursionError):  # a token may be nested as deep as it is long
            return False
        return bool(claims.get("iss") == self._rules.issuer)

    async def check(self, token: str) -> TokenUser:
        """Whom the token speaks for; `TokenNotBelieved` with one sentence if it is not believed."""
        jwt, rules = self._jwt, self._rules
        if len(token) > MAX_TOKEN:
            raise TokenNotBelieved(f"A token has at most {MAX_TOKEN} characters.")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError):
            raise TokenNotBelieved("The token is not a signed token (JWT).") from None
        algorithm = header.get("alg")
        if algorithm not in rules.accepted:
            raise TokenNotBelieved("The token is signed in a way that is not accepted here.")
        key = rules.secret if self._keys is None else await self._key(header.get("kid"), algorithm)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=rules.issuer,
                audience=rules.audience,
                # Times are judged below, by the clock that this was given.
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            raise TokenNotBelieved(_sentence(jwt, error)) from None
        except Exception:  # noqa: BLE001  # a library must not be able to let a request through by failing
            raise TokenNotBelieved("The token cannot be read.") from None
        return self._user(claims)

    async def _key(self, kid: object, algorithm: str) -> Any:
        assert self._keys is not None
        data = await self._keys.find(kid, algorithm)
        try:
            return self._jwt.PyJWK(dict(data), algorithm=algorithm)
        except Exception:  # noqa: BLE001  # whatever an issuer publishes
            raise TokenNotBelieved("The key that the token names cannot be used.") from None

    def _user(self, claims: Mapping[str, Any]) -> TokenUser:
        rules, now = self._rules, self._now()
        expires, begins = claims.get("exp"), claims.get("nbf", 0)
        if not _is_number(expires) or not _is_number(begins):
            raise TokenNotBelieved("The token does not say for how long it is valid.")
        if expires + rules.leeway_seconds <= now:
            raise TokenNotBelieved("The token has expired; sign in again.")
        if begins - rules.leeway_seconds > now:
            raise TokenNotBelieved("The token is not valid yet.")
        user = _claim(claims, rules.user_claim)
        if not isinstance(user, str) or not user.strip() or not user.isprintable() or len(user) > _MAX_NAME:
            raise TokenNotBelieved(f'The token does not name its user in "{rules.user_claim}".')
        scope, client = claims.get("scope", ""), claims.get("client_id") or claims.get("azp")
        granted = scope.split() if isinstance(scope, str) else ()
        missing = next((one for one in rules.scopes if one not in granted), "")
        if missing:
            raise TokenNotBelieved(f'The token lacks the scope "{missing}".', scope=missing)
        return TokenUser(
            client=client[:_MAX_NAME] if isinstance(client, str) and client.isprintable() else "",
            user=user,
            roles=self._known(_claim(claims, rules.roles_claim)),
            tenant=_name(claims, rules.tenant_claim),
            organisation=_name(claims, rules.organisation_claim),
            expires=float(expires) + rules.leeway_seconds,
        )

    def _known(self, value: object) -> tuple[str, ...]:
        """An issuer has roles for many programs; those that are none of this one's are left out."""
        named = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        texts = {role for role in named if isinstance(role, str)}
        known = self._roles()
        return tuple(sorted(texts.intersection(known) if known else texts))[:_MAX_ROLES]


class IssuerKeys:
    """The keys of an issuer, from a file or an address, kept for a while. Without a source, its metadata names one."""

    def __init__(self, source: str, cache_seconds: float, now: Callable[[], float], *, issuer: str = "") -> None:
        self._source = source
        self._issuer = issuer
        self._cache_seconds = cache_seconds
        self._now = now
        self._keys: list[Mapping[str, Any]] = []
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def find(self, kid: object, algorithm: str) -> Mapping[str, Any]:
        """The key of this name that signs in this way; `TokenNotBelieved` if there is none, or it has expired."""
        if self._now() - self._read_at >= self._cache_seconds:
            await self._refresh(self._cache_seconds)
        if self._now() - self._read_at >= self._cache_seconds + _STALE_SECONDS:
            raise TokenNotBelieved("The keys of the token's issuer cannot be read at the moment.")
        found = self._fitting(kid, algorithm)
        if not found:
            await self._refresh(0.0)  # the issuer may have rotated its keys
            found = self._fitting(kid, algorithm)
        if len(found) != 1:
            raise TokenNotBelieved("The token is signed with a key that its issuer does not list.")
        self._check_times(found[0])
        return found[0]

    def _fitting(self, kid: object, algorithm: str) -> list[Mapping[str, Any]]:
        return [
            key
            for key in self._keys
            if (kid is None or key.get("kid") == kid)
            and key.get("kty") == _FAMILIES.get(algorithm[:2])
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
        ]

    def _check_times(self, key: Mapping[str, Any]) -> None:
        ends, begins = key.get("exp"), key.get("nbf")
        if (_is_number(ends) and ends <= self._now()) or key.get("revoked"):
            raise TokenNotBelieved("The key that signed the token has expired; its issuer must use a newer one.")
        if _is_number(begins) and begins > self._now():
            raise TokenNotBelieved("The key that signed the token is not valid yet.")

    async def _refresh(self, max_age: float) -> None:
        async with self._reading:
            if max_age and self._now() - self._read_at < max_age:
                return  # somebody else has done it meanwhile
            if self._now() - self._tried_at < min(_AGAIN_SECONDS, self._cache_seconds):
                return  # tokens with made-up keys, or an issuer that is away, must not keep everybody waiting
            self._tried_at = self._now()
            try:
                self._keys = _keys_in(await self._read())
                self._read_at = self._now()
            except (OSError, ValueError) as error:
                _log.warning("The keys of the tokens' issuer cannot be read: %s", error)

    async def _read(self) -> bytes:
        source = self._source or await self._discovered()
        if not is_address(source):
            return await asyncio.to_thread(_read_file, Path(source))
        status, body = await _fetched(source)
        if status != 200:
            raise ValueError(f"the address answers {status}")
        return body

    async def _discovered(self) -> str:
        """Where the issuer's metadata says that its keys are."""
        for address in metadata_addresses(self._issuer):
            status, body = await _fetched(address)
            found = _document_in(body) if status == 200 else {}
            if not found:
                continue
            if str(found.get("issuer", "")).rstrip("/") != self._issuer.rstrip("/"):
                raise ValueError("the issuer describes itself as another one")
            source = found.get("jwks_uri")
            if not isinstance(source, str) or not is_safe_address(source):
                raise ValueError("the issuer names no address of keys that can be used")
            return source
        raise ValueError("the issuer has no description")


async def _fetched(address: str) -> tuple[int, bytes]:
    from handrail.identity.bounded_request import RequestFailed, request  # noqa: PLC0415  # an extra

    try:
        return await request("GET", address, seconds=_FETCH_SECONDS, max_bytes=_MAX_JWKS_BYTES)
    except RequestFailed as error:
        raise ValueError(str(error)) from None


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def looks_like_token(text: str) -> bool:
    """Whether a secret has the form of a signed token: three parts, the first of which is an encoded JSON object."""
    return text.count(".") == 2 and text.startswith("ey")


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_JWKS_BYTES + 1)


def _keys_in(raw: bytes) -> list[Mapping[str, Any]]:
    if len(raw) > _MAX_JWKS_BYTES:
        raise ValueError("a JWKS has at most 1 MiB")
    keys = _document_in(raw).get("keys")
    if not isinstance(keys, list):
        raise ValueError('it has no list "keys"')
    return [key for key in keys[:_MAX_KEYS] if isinstance(key, dict)]


def _document_in(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    return document if isinstance(document, dict) else {}


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path with dots, such as `realm_access.roles`."""
    if not path:
        return None
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _name(claims: Mapping[str, Any], path: str) -> str:
    value = _claim(claims, path)
    if path and not (isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= _MAX_NAME):
        raise TokenNotBelieved(f'The token lacks "{path}".')
    return value or ""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 1e15


def _sentence(jwt: Any, error: Exception) -> str:
    sentences = (
        (jwt.InvalidSignatureError, "The token's signature is wrong."),
        (jwt.InvalidAudienceError, "The token was made for another audience."),
        (jwt.InvalidIssuerError, "The token is from another issuer."),
        (jwt.MissingRequiredClaimError, "The token lacks its issuer, its audience or its end."),
    )
    return next((words for kind, words in sentences if isinstance(error, kind)), "The token cannot be read.")

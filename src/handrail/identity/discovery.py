"""From the address of a protected server to a client of the authorization server that signs people in to it.

The server names its authorization server (RFC 9728), that one describes itself (RFC 8414, OpenID Connect), and a client is
registered there (RFC 7591) unless the host has one. Nothing is kept here: what was found is kept with the credential that it
led to, because it is good for no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address
from socket import inet_aton
from typing import Any, TypeGuard
from urllib.parse import urlsplit, urlunsplit

from handrail.contract.bearer_challenge import challenge_in, usable_scopes
from handrail.contract.credentials import AuthorizationRefused, AuthorizationUnavailable
from handrail.identity.bounded_request import RequestFailed, challenged
from handrail.identity.config import LOOPBACK, ConnectionConfig, is_safe_address
from handrail.identity.oauth import Endpoints, OAuthClient

CLIENT_NAME = "Handrail"
OFFLINE = "offline_access"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_SECONDS, _MAX_ANSWER_BYTES = 20.0, 256 * 1024
_MAX_TEXT = 2_048
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_METHODS = {"client_secret_basic": "basic", "client_secret_post": "post", "none": "none"}
_PROBE = {"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": {}}
"""A request that every protected server refuses as long as nobody is signed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredClient:
    """A client of one authorization server, for one protected server."""

    endpoints: Endpoints
    client_id: str
    client_secret: str = field(default="", repr=False)
    client_auth: str = "none"
    resource: str
    """The protected server, exactly as it names itself: what tokens are for (RFC 8707)."""
    scopes: tuple[str, ...] = ()
    """What the person is asked for."""

    def oauth(self, config: ConnectionConfig, now: Callable[[], float]) -> OAuthClient:
        made = replace(
            config,
            issuer=self.endpoints.issuer,
            client_id=self.client_id,
            client_secret=self.client_secret,
            client_auth=self.client_auth,
            resource=self.resource,
            scopes=self.scopes,
        )
        return OAuthClient(made, now=now, endpoints=self.endpoints)

    def to_dict(self) -> dict[str, Any]:
        at = self.endpoints
        return {
            "issuer": at.issuer,
            "authorization": at.authorization,
            "token": at.token,
            "revocation": at.revocation,
            "namesItself": at.names_itself,
            "id": self.client_id,
            "secret": self.client_secret,
            "auth": self.client_auth,
            "resource": self.resource,
            "scopes": list(self.scopes),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> DiscoveredClient:
        endpoints = Endpoints(
            issuer=kept["issuer"],
            authorization=kept["authorization"],
            token=kept["token"],
            revocation=kept["revocation"],
            names_itself=kept["namesItself"],
        )
        return cls(
            endpoints=endpoints,
            client_id=kept["id"],
            client_secret=kept["secret"],
            client_auth=kept["auth"],
            resource=kept["resource"],
            scopes=tuple(kept["scopes"]),
        )


async def discovered_client(
    config: ConnectionConfig, *, redirect_uri: str, more_scopes: Sequence[str], now: Callable[[], float]
) -> DiscoveredClient:
    """The client for the server of this connection. `more_scopes` are asked for beside those that the server wants now."""
    found = _Discovery(config)
    challenge = await found.challenge()
    resource, issuers, supported = await found.protected_resource(challenge.get("resource_metadata", ""))
    issuer = config.issuer or issuers[0]
    if issuer not in issuers:
        raise AuthorizationRefused(
            f'{found.label} has people sign in elsewhere than at "{config.issuer}"; nothing was connected.'
        )
    found.check(issuer)
    described = OAuthClient(replace(config, issuer=issuer), now=now)
    metadata = await described.metadata()
    endpoints = described.endpoints_in(metadata, pkce=True)
    for address in (endpoints.authorization, endpoints.token, endpoints.revocation, endpoints.registration):
        found.check(address)
    scopes = list(config.scopes or usable_scopes(challenge.get("scope", "").split()) or supported)
    offered = metadata.get("scopes_supported")
    if isinstance(offered, list) and OFFLINE in offered:
        scopes.append(OFFLINE)
    asked = tuple(dict.fromkeys((*scopes, *usable_scopes(more_scopes))))
    client_id, secret, auth = await found.client(metadata, endpoints, redirect_uri, asked)
    return DiscoveredClient(
        endpoints=endpoints,
        client_id=client_id,
        client_secret=secret,
        client_auth=auth,
        resource=resource,
        scopes=asked,
    )


def _is_internal(host: str | None) -> bool:
    """Whether a name or an address says itself that it is of this machine or a private network."""
    name = (host or "").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        found = ip_address(name)
    except ValueError:
        try:
            # As the system's own resolver reads addresses: 127.1, 0x7f000001, 2130706433.
            found = ip_address(inet_aton(name))
        except OSError:
            return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return not (mapped or found).is_global


class _Discovery:
    """The steps of one discovery, for one connection."""

    def __init__(self, config: ConnectionConfig) -> None:
        self.config = config
        self.label = config.label or config.name
        self._server = urlsplit(config.server)

    def check(self, address: str) -> None:
        """A server elsewhere cannot have us ask a service of this machine."""
        if address and not (
            is_safe_address(address) and (self._is_local or not _is_internal(urlsplit(address).hostname))
        ):
            raise AuthorizationRefused(f"{self.label} names an address that cannot be used; nothing was connected.")

    @property
    def _is_local(self) -> bool:
        return _is_internal(self._server.hostname)

    async def challenge(self) -> Mapping[str, str]:
        """What the server says to somebody who is not signed in."""
        headers = {"accept": "application/json, text/event-stream", "mcp-method": "tools/list"}
        status, said, _ = await self._ask("POST", self.config.server, content=_PROBE, headers=headers)
        return challenge_in(said) if status == 401 else {}

    async def protected_resource(self, named: str) -> tuple[str, list[str], tuple[str, ...]]:
        """The server's own name, its authorization servers, and the scopes that it knows."""
        server = self._server
        origin, path = (server.scheme, server.netloc), server.path.rstrip("/")
        if named and urlsplit(named)[:2] == origin and is_safe_address(named):
            places = [named]
        else:
            well_known = dict.fromkeys((f"{_WELL_KNOWN}{path}", _WELL_KNOWN))
            places = [urlunsplit((*origin, place, "", "")) for place in well_known]
        for place in places:
            status, _, found = await self._ask("GET", place)
            if status == 200 and found is not None:
                break
            if status >= 500 or status == 429:
                raise AuthorizationUnavailable(f"{self.label} cannot be asked at the moment; try again later.")
        else:
            raise AuthorizationRefused(f"{self.label} does not say where people sign in; nothing was connected.")
        resource, issuers = found.get("resource"), found.get("authorization_servers")
        if not isinstance(resource, str) or not _is_about(resource, self.config.server):
            raise AuthorizationRefused(f"{self.label} describes itself as another server; nothing was connected.")
        if not isinstance(issuers, list) or not issuers or not all(isinstance(one, str) for one in issuers):
            raise AuthorizationRefused(f"{self.label} does not say where people sign in; nothing was connected.")
        supported = found.get("scopes_supported")
        return resource, issuers, usable_scopes(supported if isinstance(supported, list) else ())

    async def client(
        self, metadata: Mapping[str, Any], endpoints: Endpoints, redirect_uri: str, scopes: Sequence[str]
    ) -> tuple[str, str, str]:
        """The id, secret and way to show it: the host's own client, its published description, or one that is registered now."""
        config = self.config
        is_document = config.client_id.startswith("https://")
        if config.client_id and not is_document:
            return config.client_id, config.client_secret, config.client_auth
        if is_document and metadata.get("client_id_metadata_document_supported") is True:
            return config.client_id, "", "none"
        if not endpoints.registration:
            raise AuthorizationRefused(
                f'{self.label} registers no clients; the operator has to write its "client_id" into [connections.{config.name}].'
            )
        supported = metadata.get("token_endpoint_auth_methods_supported")
        known = supported if isinstance(supported, list) else ["client_secret_basic"]
        method = next((one for one in _METHODS if one in known), None)
        if method is None:
            raise AuthorizationRefused(f"{self.label} wants clients to sign in in a way that is not known here.")
        local = urlsplit(redirect_uri).hostname in LOOPBACK
        wanted = {
            "client_name": CLIENT_NAME,
            "redirect_uris": [redirect_uri],
            "application_type": "native" if local else "web",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            **({"scope": " ".join(scopes)} if scopes else {}),
        }
        status, _, made = await self._ask("POST", endpoints.registration, content=wanted)
        if status >= 500 or status == 429:
            raise AuthorizationUnavailable(f"{self.label} cannot be asked at the moment; try again later.")
        made = made if status in (200, 201) and made is not None else {}
        name, secret = made.get("client_id"), made.get("client_secret") or ""
        given = made.get("token_endpoint_auth_method") or method
        if not _is_text(name) or (secret and not _is_text(secret)) or given not in _METHODS:
            raise AuthorizationRefused(f"{self.label} did not register this host; nothing was connected.")
        return name, secret, _METHODS[given] if secret else "none"

    async def _ask(
        self,
        method: str,
        address: str,
        content: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str, dict[str, Any] | None]:
        """The status, the challenge, and the JSON object of the answer if it is one. No redirect is followed."""
        self.check(address)
        try:
            status, raw, said = await challenged(
                method, address, seconds=_SECONDS, max_bytes=_MAX_ANSWER_BYTES, headers=headers, document=content
            )
        except RequestFailed:
            raise AuthorizationUnavailable(f"{self.label} cannot be reached at the moment; try again later.") from None
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            return status, said, None
        return status, said, found if isinstance(found, dict) else None


def _is_about(resource: str, server: str) -> bool:
    """Whether this name is the server's: its address, or one above it at the same origin."""
    try:
        named, own = urlsplit(resource), urlsplit(server)
        same = (named.scheme, named.hostname, named.port) == (own.scheme, own.hostname, own.port)
    except ValueError:
        return False
    above = named.path.rstrip("/")
    path = own.path.rstrip("/")
    return same and not named.fragment and not named.username and (path == above or path.startswith(f"{above}/"))


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= _MAX_TEXT and _PRINTABLE.fullmatch(value) is not None

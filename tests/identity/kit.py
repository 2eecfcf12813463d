"""What the tests of connections share: a configured host, a person at the consent page, and what an author writes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from tests.identity.authorization_server import CLIENT, SECRET, AuthorizationServer

from handrail.contract.store import Store
from handrail.identity.config import ConnectionConfig, connection_configs
from handrail.identity.connections import Connections
from handrail.identity.vault import Vault, new_key

BACK = "http://127.0.0.1:8484/callback"
KEYS = (new_key(),)
HANDED_OUT: list[tuple[str, str, str]] = []
"""What a tool notes of each token that it was given: whose call it was to be, whose it was, and the token."""


def configured(server: AuthorizationServer, **changed: Any) -> Mapping[str, ConnectionConfig]:
    table = {
        "label": "Example Calendar",
        "issuer": server.issuer,
        "client_id": CLIENT,
        "client_secret_env": "EXAMPLE_SECRET",
        "scopes": ["calendar", "calendar.write"],
        **changed,
    }
    return connection_configs({"example": table}, {"EXAMPLE_SECRET": SECRET})


def connections(
    server: AuthorizationServer,
    store: Store,
    *,
    keys: tuple[str, ...] = KEYS,
    now: Callable[[], float] = time.time,
    **changed: Any,
) -> Connections:
    return Connections(configured(server, **changed), store.credentials, Vault(keys), now=now)


def consent(url: str, answer: str = "allow") -> dict[str, str]:
    """What the authorization server sends the browser back with."""
    with httpx2.Client(verify=False) as browser:  # on loopback; to read the certificates takes longer than all the rest
        page = browser.get(url)
        assert page.status_code == 200, page.text
        fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', page.text))
        form = {name: unescape(value) for name, value in fields.items() if name != "answer"}
        back = browser.post(f"{url.partition('/authorize')[0]}/authorize", data={**form, "answer": answer})
    assert back.status_code == 302, back.text
    return dict(parse_qsl(urlsplit(back.headers["location"]).query))


async def connected(made: Connections, user: str, tenant: str = "") -> None:
    begun = await made.begin(tenant, user, "example", redirect_uri=BACK, browser="b")
    await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")

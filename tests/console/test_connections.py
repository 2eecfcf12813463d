"""A person connects their calendar in the console: a real server, a real authorization server, a real browser, and a model that
is told nothing of it."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import LOOKS, Opened, chromium, opened
from tests.console.served import Served
from tests.identity.authorization_server import CLIENT, SECRET, AuthorizationServer
from tests.identity.kit import KEYS, consent
from tests.runtime.kit import Tools, utility

from handrail.testing.servers import OpenAIChatServer, Reply, call

TOOL = """
async def execute(args, ctx):
    token = await ctx.secrets.token("example")
    return {"ok": True, "data": {"mine": "-ana@calendar.example-" in token, "said": token}}
"""
ANSWERS = [
    Reply("", [call("next_meeting")]),
    Reply("Please connect your calendar first."),
    Reply("", [call("next_meeting")]),
    Reply("Your next meeting is at nine."),
]


@pytest.fixture
def authority() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


@contextmanager
def model_server(script: list[Reply]) -> Iterator[OpenAIChatServer]:
    """In a thread of its own, because the browser's driver has the loop of this one."""
    ready, stop, made = threading.Event(), asyncio.Event(), OpenAIChatServer(script)
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with made:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


@contextmanager
def serving(folder: Path, authority: AuthorizationServer, model: OpenAIChatServer | None = None) -> Iterator[Served]:
    chromium()
    tools = Tools(folder)
    tools.write({"next_meeting": (utility(capabilities=["secrets"]), TOOL)})
    (folder / "handrail.toml").write_text(
        f"""[connections.example]
label = "Example Calendar"
issuer = "{authority.issuer}"
client_id = "{CLIENT}"
client_secret_env = "EXAMPLE_SECRET"
scopes = ["calendar", "calendar.write"]
"""
    )
    more = {"HANDRAIL_AGENT_MODEL": "openai:m", "OPENAI_BASE_URL": model.base_url, **model.environment} if model else {}
    server = Served(folder, EXAMPLE_SECRET=SECRET, HANDRAIL_CREDENTIALS_KEYS=KEYS[0], **more)
    authority.client.redirects.add(f"{server.url}/console/connected")
    try:
        yield server
    finally:
        server.close()


def say(it: Opened, text: str) -> None:
    it.page.fill("#message", text)
    it.page.press("#message", "Enter")


def test_a_call_without_its_connection_leads_the_person_there_and_back(
    browser: Any, tmp_path: Path, authority: AuthorizationServer
) -> None:
    with (
        model_server(ANSWERS) as model,
        serving(tmp_path, authority, model) as server,
        opened(browser, server.console) as it,
    ):
        say(it, "When is my next meeting?")
        it.page.get_by_text("This needs your account at Example Calendar").wait_for()
        it.page.locator(".by-model", has_text="Please connect your calendar first.").wait_for()
        assert obstacles(it.page) == []
        it.shoot("connections-wanted")
        it.page.get_by_role("button", name="Connect Example Calendar").click()
        it.page.get_by_role("button", name="Allow").click()
        it.page.get_by_text("Example Calendar is connected.").first.wait_for()
        assert it.page.url == f"{server.url}/#/connections", "neither code nor state is left in the address"
        it.page.locator("[data-connection=example][data-state=connected]").wait_for()
        it.page.get_by_role("link", name="Chat").click()
        say(it, "And now?")
        it.page.locator(".by-model", has_text="Your next meeting is at nine.").wait_for()
        told = json.dumps([request.body for request in model.requests])
        assert "AUTH" in told
        assert '\\"mine\\":true' in told
        assert "[token]" in told
        for secret in ("canary", "/#/connections", authority.issuer, "code="):
            assert secret not in told, "the model is told neither the link nor a token"
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"canary" not in path.read_bytes(), path


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_a_person_connects_and_disconnects_on_the_page(
    browser: Any, tmp_path: Path, authority: AuthorizationServer, name: str, viewport: dict[str, int], scheme: str
) -> None:
    with (
        serving(tmp_path, authority) as server,
        opened(browser, f"{server.console}&/connections", viewport=viewport, scheme=scheme) as it,
    ):
        it.page.get_by_role("heading", name="Connections").wait_for()
        connect = it.page.get_by_role("button", name="Connect Example Calendar")
        connect.wait_for()
        assert obstacles(it.page) == []
        it.shoot(f"connections-{name}-open")
        connect.click()
        it.page.get_by_role("button", name="Allow").click()
        it.page.locator("[data-state=connected]").wait_for()
        assert obstacles(it.page) == []
        it.shoot(f"connections-{name}-connected")
        it.page.get_by_role("button", name="Disconnect").click()
        connect.wait_for()
        assert all(token.revoked for token in authority.tokens)


def test_what_another_tab_brings_or_a_person_denies_connects_nothing(
    browser: Any, tmp_path: Path, authority: AuthorizationServer
) -> None:
    with serving(tmp_path, authority) as server, opened(browser, f"{server.console}&/connections") as it:
        it.page.get_by_role("button", name="Connect Example Calendar").click()
        it.page.get_by_role("button", name="Deny").click()
        it.page.get_by_text("it was not allowed").first.wait_for()
        it.shoot("connections-denied")
        it.page.get_by_role("button", name="Connect Example Calendar").click()
        it.page.get_by_role("button", name="Allow").wait_for()
        # The answer is taken to another tab, as somebody would who has stolen it.
        answer = consent(it.page.url)
        with opened(browser, server.console) as other:
            other.page.get_by_role("link", name="Chat").wait_for()
            other.page.goto(f"{server.url}/console/connected?{urlencode(answer)}")
            other.page.get_by_text("This tab has begun no connection").first.wait_for()
        it.page.goto(f"{server.url}/console/connected?{urlencode({**answer, 'state': 'wrong'})}")
        it.page.get_by_text("belongs to no connection that was begun here").first.wait_for()
        assert not authority.tokens

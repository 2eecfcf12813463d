"""`ctx.secrets.token`: the token of the call's own user, or AUTH for the model and a link for the person."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.identity.authorization_server import AuthorizationServer
from tests.identity.kit import connected, connections
from tests.runtime.kit import Tools, audited, kind, next_event, reading, utility

from handrail import Runtime
from handrail.events import ConnectionWanted
from handrail.stores import MemoryStore

USES = """
async def execute(args, ctx):
    token = await ctx.secrets.token("example")
    return {"ok": True, "data": {"mine": f"-{ctx.user}-" in token}}
"""
PLAIN = """
def execute(args, ctx):
    return {"ok": True, "data": {"mine": f"-{ctx.user}-" in ctx.secrets.token_now("example")}}
"""
TELLS = """
async def execute(args, ctx):
    token = await ctx.secrets.token("example")
    ctx.progress(f"using {token}")
    ctx.audit.log("used", {"with": [token]})
    ctx.log.warning("using %s", token)
    ctx.messaging.send({"type": "image", "url": "/images/a.png", "caption": token})
    what = args.get("q")
    if what == "raise":
        raise RuntimeError(f"GET /?access_token={token}")
    if what == "refuse":
        raise ToolError("PERMANENT", f"refused {token}", suggestion=token)
    if what == "log":
        try:
            raise ValueError(token)
        except ValueError:
            ctx.log.exception("failed with %s", {"token": token})
    return {"ok": True, "data": {"token": token, token: [token]}, "meta": {"seen": token}}
"""
TOOLS = {
    "uses": (utility(capabilities=["secrets"]), USES),
    "plain": (utility(capabilities=["secrets"]), PLAIN),
    "tells": (reading(capabilities=["secrets"]), TELLS),
    "asks_not": (utility(), USES),
}


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


async def opened(tmp_path: Path, server: AuthorizationServer, *people: str, **changed: Any) -> Runtime:
    kit = Tools(tmp_path / "project")
    kit.write(TOOLS)
    store = MemoryStore()
    made = connections(server, store, **changed)
    made.page = "/#connections/"
    runtime = Runtime(kit.build(), store=store, connections=made)
    await runtime.open()
    for person in people:
        server.account = person
        await connected(made, person)
    return runtime


@pytest.mark.parametrize("tool", ["uses", "plain"])
async def test_a_call_gets_the_token_of_its_own_user(tmp_path: Path, server: AuthorizationServer, tool: str) -> None:
    async with await opened(tmp_path, server, "ana", "ben") as runtime:
        for user in ("ana", "ben"):
            session = await runtime.open_session(user=user)
            response = await session.call(tool, {})
            assert response.data == {"mine": True}


async def test_without_a_connection_the_model_gets_auth_and_the_person_the_link(
    tmp_path: Path, server: AuthorizationServer
) -> None:
    async with await opened(tmp_path, server, "ben") as runtime:
        session = await runtime.open_session(user="ana")
        response = await session.call("uses", {}, call_id="c1")
        assert kind(response) == "AUTH"
        wire = str(response.to_dict())
        assert "Example Calendar" in wire
        assert "connections/" not in wire
        assert "http" not in wire
        event = await next_event(session, "connection_wanted")
        assert event == ConnectionWanted(
            connection="example", label="Example Calendar", tool_id="uses", call_id="c1", link="/#connections/example"
        )
        assert event.command == "handrail connect example"


async def test_a_session_without_a_user_has_no_connections(tmp_path: Path, server: AuthorizationServer) -> None:
    async with await opened(tmp_path, server, "ana") as runtime:
        session = await runtime.open_session()
        response = await session.call("uses", {})
        assert kind(response) == "AUTH"
        assert "no user" in response.error.message


async def test_a_tool_that_is_not_meant_to_gets_no_token(
    tmp_path: Path, server: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with await opened(tmp_path, server, "ana", tools=["plain"]) as runtime:
        session = await runtime.open_session(user="ana")
        assert kind(await session.call("asks_not", {})) == "INTERNAL"
        assert 'add "secrets" to the "capabilities"' in caplog.text
        assert kind(await session.call("uses", {})) == "INTERNAL"
        assert 'does not name "uses"' in caplog.text
        assert (await session.call("plain", {})).ok


@pytest.mark.parametrize("way", ["return", "raise", "refuse", "log"])
async def test_a_handler_that_writes_its_token_writes_it_nowhere(
    tmp_path: Path, server: AuthorizationServer, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "authlib")  # the authorization server's own, which knows its tokens
    async with await opened(tmp_path, server, "ana") as runtime:
        session = await runtime.open_session(user="ana")
        response = await session.call("tells", {"q": way})
        assert "canary" not in str(response.to_dict())
        assert ("[token]" in str(response.to_dict())) is (way != "raise")
        events = [str(await next_event(session, name)) for name in ("progress", "message")]
        assert all("[token]" in event and "canary" not in event for event in events)
        lines = str(audited(runtime))
        assert "[token]" in lines
        assert "canary" not in lines
        assert "[token]" in caplog.text
        assert "canary" not in caplog.text

"""SIGTERM ends a real `handrail serve` although handlers hang in it, and the log names the calls that were left."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import httpx2
import pytest
from tests.runtime.kit import Tools, reading, until, writing
from tests.server.kit import mcp_headers, mcp_meta

from handrail.contract.store import LedgerState
from handrail.stores import SqliteStore

FOREVER = """
def execute(args, ctx):
    mark(args)
    threading.Event().wait()
"""
SWALLOWS = """
async def execute(args, ctx):
    mark(args)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""
IN_A_THREAD_OF_ITS_OWN = """
async def execute(args, ctx):
    await asyncio.to_thread(threading.Event().wait)
"""
BLOCKS = """
async def execute(args, ctx):
    time.sleep(3600)
"""
SETTINGS = """
[agent]
model = "demo"

[server]
shutdown_seconds = 1
"""
MAX_STOP_SECONDS = 15


@asynccontextmanager
async def serving(tmp_path, sources, fields=None):
    """A real server with these handlers, as a process, and a client of it."""
    tools = Tools(tmp_path)
    fields = fields or reading(timeoutMs=200)
    tools.write({name: (fields, source) for name, source in sources.items()})
    (tmp_path / "handrail.toml").write_text(SETTINGS, "utf-8")
    served = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handrail", "serve", "--json", "--port", "0"),
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("HANDRAIL_")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            told = json.loads(await served.stdout.readline() or b"{}")
            assert told, (await served.stderr.read()).decode()
            headers = {"authorization": f"Bearer {told['key']}"}
            async with httpx2.AsyncClient(timeout=60, base_url=told["url"], headers=headers) as http:
                session = (await http.post("/api/sessions", json={})).json()
                http.headers["x-session-token"] = session["token"]
                yield served, http, session["sessionId"]
    finally:
        if served.returncode is None:
            served.kill()
            await served.wait()


async def stopped(served):
    """Send SIGTERM; the log, once the process has ended. It has a second for that, and a busy machine some more."""
    served.send_signal(signal.SIGTERM)
    async with asyncio.timeout(MAX_STOP_SECONDS):
        _, log = await served.communicate()
    return log.decode()


async def test_sigterm_ends_a_process_whose_handlers_hang_and_names_the_calls(tmp_path):
    sources = {"stall": FOREVER, "hang": SWALLOWS, "thread": IN_A_THREAD_OF_ITS_OWN}
    async with serving(tmp_path, sources) as (served, http, session_id):
        for name in sources:
            answer = (await http.post(f"/api/tools/{name}/try", json={"args": {}, "sessionId": session_id})).json()
            assert answer["error"]["type"] == "TIMEOUT", answer
        log = await stopped(served)

    assert served.returncode == 0, log
    (left,) = [line for line in log.splitlines() if "these calls still run" in line]
    assert "hang (call " in left
    assert "stall (call " in left
    assert session_id in left


async def test_sigterm_ends_a_process_whose_event_loop_is_blocked_by_a_handler(tmp_path):
    async with serving(tmp_path, {"block": BLOCKS}) as (served, http, session_id):
        asked = asyncio.create_task(
            http.post("/api/tools/block/try", json={"args": {}, "sessionId": session_id}, timeout=60)
        )
        while await answers(http):
            await asyncio.sleep(0.05)
        log = await stopped(served)
        with pytest.raises(httpx2.HTTPError):
            await asked

    assert served.returncode == 1, log
    (left,) = [line for line in log.splitlines() if "the event loop is blocked" in line]
    assert "block/handler.py:" in left


async def test_sigterm_does_not_wait_for_a_write_beyond_the_time_for_a_stop_and_names_it(tmp_path):
    fields = writing(timeoutMs=120_000)
    async with serving(tmp_path, {"stall": FOREVER, "hang": SWALLOWS}, fields) as (served, http, session):
        path = "/api/tools/stall/try"
        called = {"name": "hang", "arguments": {"q": "mcp"}, "_meta": mcp_meta()}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
        asked = [
            asyncio.create_task(http.post(path, json={"args": {"q": "rest"}, "sessionId": session})),
            asyncio.create_task(http.post("/mcp", json=body, headers=mcp_headers("tools/call", "hang"))),
        ]
        async with asyncio.timeout(60):
            await until(lambda: len(started(tmp_path)) == 2)
        log = await stopped(served)
        await asyncio.gather(*asked, return_exceptions=True)

    assert served.returncode == 0, log
    (left,) = [line for line in log.splitlines() if "their outcome will be unknown" in line]
    assert "hang (call mcp_" in left
    assert f"of session {session})" in left
    store = SqliteStore(tmp_path / "handrail.db")
    await store.open()
    assert {(row.tool, row.state) for row in await store.ledger_rows()} == {
        ("stall", LedgerState.UNKNOWN), ("hang", LedgerState.UNKNOWN)
    }  # fmt: skip
    await store.close()


def started(tmp_path):
    marks = tmp_path / "marks.txt"
    return marks.read_text("utf-8").splitlines() if marks.exists() else []


async def answers(http):
    try:
        await http.get("/healthz", timeout=0.5)
    except httpx2.TimeoutException:
        return False
    return True

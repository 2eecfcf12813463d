"""SIGTERM ends a real `handrail serve` although handlers hang in it, and the log names the calls that were left."""

import asyncio
import json
import os
import signal
import sys

import httpx2
from tests.runtime.kit import Tools, reading

FOREVER = """
def execute(args, ctx):
    threading.Event().wait()
"""
SWALLOWS = """
async def execute(args, ctx):
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
SETTINGS = """
[agent]
model = "offline"

[server]
shutdown_seconds = 1
"""


async def test_sigterm_ends_a_process_whose_handlers_hang_and_names_the_calls(tmp_path):
    tools = Tools(tmp_path)
    sources = {"stall": FOREVER, "hang": SWALLOWS, "thread": IN_A_THREAD_OF_ITS_OWN}
    tools.write({name: (reading(timeoutMs=200), source) for name, source in sources.items()})
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
                for name in sources:
                    body = {"args": {}, "sessionId": session["sessionId"]}
                    answer = (await http.post(f"/api/tools/{name}/try", json=body)).json()
                    assert answer["error"]["type"] == "TIMEOUT", answer
            served.send_signal(signal.SIGTERM)
            _, log = await served.communicate()
    finally:
        if served.returncode is None:
            served.kill()
            await served.wait()

    assert served.returncode == 0, log.decode()
    (left,) = [line for line in log.decode().splitlines() if "these calls still run" in line]
    assert "hang (call " in left
    assert "stall (call " in left
    assert session["sessionId"] in left

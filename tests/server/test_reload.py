"""New tools in a real `handrail serve` that runs: rebuilt in development, deployed in production, and never half taken."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from shutil import rmtree

import httpx2
from tests.runtime.kit import FOUND, Tools, reading

SETTINGS = '[agent]\nmodel = "demo"\n'
NEWER = FOUND.replace('[args.get("q", "")]', '["newer"]')


class Reloaded:
    """A real server, its tools, and a client of it."""

    def __init__(self, tools, process, client, environment):
        self.tools, self.process, self.client, self.environment = tools, process, client, environment

    async def open(self):
        opened = (await self.client.post("/api/sessions", json={})).json()
        return opened["sessionId"], {"X-Session-Token": opened["token"]}

    async def call(self, session):
        session_id, headers = session
        body = {"args": {"q": "older"}, "sessionId": session_id}
        return (await self.client.post("/api/tools/look/try", json=body, headers=headers)).json()

    async def new_data(self):
        """What the tool answers in a conversation that is opened now."""
        return (await self.call(await self.open())).get("data")

    async def until(self, data):
        async with asyncio.timeout(60):
            while await self.new_data() != {"results": [data]}:
                await asyncio.sleep(0.1)

    async def events(self, session, kind):
        """The next event of a kind in a conversation, from its beginning."""
        session_id, headers = session
        wanted = {**headers, "Accept": "text/event-stream", "Last-Event-ID": "0"}
        async with asyncio.timeout(60):
            async with self.client.stream("GET", f"/api/sessions/{session_id}/events", headers=wanted) as stream:
                is_next = False
                async for line in stream.aiter_lines():
                    if line == f"event: {kind}":
                        is_next = True
                    elif is_next and line.startswith("data: "):
                        return json.loads(line.removeprefix("data: "))
        raise AssertionError(f"no event {kind}")

    async def last_told(self, session):
        """The newest notice of changed tools in a conversation."""
        session_id, headers = session
        wanted = {**headers, "Accept": "text/event-stream", "Last-Event-ID": "0"}
        found = []
        async with self.client.stream("GET", f"/api/sessions/{session_id}/events", headers=wanted) as stream:
            lines = stream.aiter_lines()
            try:
                async with asyncio.timeout(1):
                    async for line in lines:
                        found.append(line)
            except TimeoutError:
                pass
        kept = [found[place + 1] for place, line in enumerate(found[:-1]) if line == "event: tools_changed"]
        return json.loads(kept[-1].removeprefix("data: "))

    async def run(self, *words):
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handrail", *words),
            cwd=self.tools.root,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await done.communicate()
        return done.returncode, out.decode(), err.decode()


@asynccontextmanager
async def serving(tmp_path, *, more_settings="", made=None, **environment):
    tools = Tools(tmp_path)
    tools.write(made or {"look": (reading(), FOUND)})
    tools.rebuild()
    (tmp_path / "handrail.toml").write_text(SETTINGS + more_settings, "utf-8")
    rest = {name: value for name, value in os.environ.items() if not name.startswith("HANDRAIL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handrail", "serve", "--json", "--port", "0", "--new-key", "test"),
        cwd=tmp_path,
        env={**rest, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(90):
            told = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {told['key']}"}
        async with httpx2.AsyncClient(base_url=told["url"], headers=headers, timeout=60) as client:
            yield Reloaded(tools, process, client, {**rest, **environment})
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_in_development_a_changed_tool_is_used_by_the_next_conversation_and_offered_to_open_ones(tmp_path):
    async with serving(tmp_path) as server:
        before = await server.open()
        assert (await server.call(before))["data"] == {"results": ["older"]}
        server.tools.write({"look": (reading(), NEWER)})
        told = await server.events(before, "tools_changed")
        assert (told["ok"], told["changed"], told["outdated"]) == (True, ["look"], True)
        assert await server.new_data() == {"results": ["newer"]}
        assert (await server.call(before))["error"]["type"] == "CONFLICT"
        session_id, headers = before
        renewed = await server.client.post(f"/api/sessions/{session_id}/tools", headers=headers)
        assert renewed.json() == {"version": told["version"]}
        assert (await server.call(before))["data"] == {"results": ["newer"]}


async def test_in_development_a_tool_that_does_not_build_is_named_and_the_old_one_stays(tmp_path):
    async with serving(tmp_path) as server:
        before = await server.open()
        server.tools.write({"look": (reading(), "def execute(args, ctx):\n    return nothing_of_that_name\n")})
        told = await server.events(before, "tools_changed")
        assert told["ok"] is False
        assert "The tools do not build; the old ones stay: look: " in told["message"]
        assert {"severity": "error", "rule": "undefined-name"}.items() <= told["findings"][0].items()
        assert (await server.call(before))["data"] == {"results": ["older"]}
        assert await server.new_data() == {"results": ["older"]}


DECORATED = """
from handrail import tool
from reloaded_shop.words import SAYS


@tool(tool_id="look", category="retrieval", side_effects="read_only", idempotent=True)
def look(q: str = "") -> dict:
    \"\"\"Looks something up.\"\"\"
    return {"results": [SAYS]}
"""


async def test_in_development_a_changed_helper_of_a_decorated_tool_builds_it_again(tmp_path):
    package = tmp_path / "reloaded_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "prices.py").write_text(DECORATED, "utf-8")
    (package / "words.py").write_text('SAYS = "older"\n', "utf-8")
    made = {"other": (reading(), FOUND)}
    settings = '[tools]\nmodules = ["reloaded_shop.prices"]\n'
    async with serving(tmp_path, made=made, more_settings=settings) as server:
        before = await server.open()
        assert (await server.call(before))["data"] == {"results": ["older"]}
        (package / "words.py").write_text('SAYS = "newer"\n', "utf-8")
        told = await server.events(before, "tools_changed")
        assert (told["ok"], told["changed"]) == (True, ["look"])
        assert await server.new_data() == {"results": ["newer"]}


async def test_in_development_what_the_settings_say_of_tools_is_taken_in_without_a_restart(tmp_path):
    async with serving(tmp_path) as server:
        before = await server.open()
        settings = tmp_path / "handrail.toml"
        settings.write_text(SETTINGS + '[policy.tools.look]\nmodes = ["voice"]\n', "utf-8")
        told = await server.events(before, "tools_changed")
        assert (told["ok"], told["changed"], told["outdated"]) == (True, ["look"], True)
        refused = await server.call(await server.open())
        assert refused["error"]["type"] == "MODE_RESTRICTED"
        settings.write_text(SETTINGS + "[policy.tools.look]\nmodes = 3\n", "utf-8")
        async with asyncio.timeout(60):
            while (told := await server.last_told(before))["ok"]:
                await asyncio.sleep(0.1)
        assert '"modes" in [policy.tools.look]' in told["message"]


async def test_in_production_open_sessions_keep_their_tools_when_new_ones_are_deployed(tmp_path):
    async with serving(tmp_path, HANDRAIL_ENV="production") as server:
        before = await server.open()
        server.tools.write({"look": (reading(), NEWER)})
        server.tools.rebuild()
        await asyncio.sleep(1.2)  # longer than it takes to notice a change: nothing happens by itself
        assert await server.new_data() == {"results": ["older"]}
        code, out, err = await server.run("deploy")
        assert (code, err) == (0, "")
        assert "1 running server uses them for new sessions" in out
        assert await server.new_data() == {"results": ["newer"]}, "it was taken when the command ended"
        assert (await server.call(before))["data"] == {"results": ["older"]}
        session_id, headers = before
        assert (await server.client.post(f"/api/sessions/{session_id}/tools", headers=headers)).status_code == 200
        assert (await server.call(before))["data"] == {"results": ["newer"]}


async def test_a_signal_deploys_too_and_a_broken_artifact_changes_nothing(tmp_path):
    first, newest = (reading(toolId="look", version=f"{number}.0.0") for number in (1, 2))
    made = {"look@1": (first, FOUND), "look@2": (newest, NEWER)}
    rule = '[versions.look]\ndefault = "%d"\n'
    async with serving(tmp_path, made=made, more_settings=rule % 1, HANDRAIL_ENV="production") as server:
        good = server.tools.artifact.read_bytes()
        server.tools.artifact.write_bytes(good[:-200])
        code, out, err = await server.run("deploy")
        assert (code, out) == (1, "")
        assert len(err.splitlines()) == 1
        server.process.send_signal(signal.SIGHUP)
        lines = []
        async with asyncio.timeout(30):
            while not lines:
                events = (await server.client.get("/api/audit")).json()["events"]
                lines = [one for one in events if one["event"] == "registry_refused"]
                await asyncio.sleep(0.05)
        assert lines[0]["message"].startswith("The new tools cannot be used; the old ones stay: ")
        assert await server.new_data() == {"results": ["older"]}
        server.tools.artifact.write_bytes(good)
        settings = tmp_path / "handrail.toml"
        settings.write_text(SETTINGS + rule % 2, "utf-8")
        server.process.send_signal(signal.SIGHUP)
        await server.until("newer")  # the rules of `[versions]` are in force with the tools
        settings.write_text(SETTINGS + rule % 1, "utf-8")
        assert (await server.run("deploy"))[0] == 0
        pinned = await server.open()
        assert (await server.call(pinned))["data"] == {"results": ["older"]}
        rmtree(server.tools.folder / "look@1")
        server.tools.rebuild()
        settings.write_text(SETTINGS + rule % 2, "utf-8")
        code, out, err = await server.run("deploy", "--json")
        (answer,) = json.loads(out)["servers"]
        assert (code, answer["pid"], answer["ok"]) == (1, server.process.pid, False)
        assert "The new tools cannot be used; the old ones stay: " in answer["message"]
        assert '"look"' in answer["message"]
        assert await server.new_data() == {"results": ["older"]}, "nor are the new rules in force"
        server.process.kill()
        await server.process.wait()
        code, out, err = await server.run("deploy")
        assert (code, err) == (0, "")
        assert "no server of this project runs on this machine" in out

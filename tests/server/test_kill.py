"""The server is killed in the middle of a turn and started again: the client continues, nothing is doubled, nothing is lost."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.server.kit import USER, SessionClient, Tools, bearer, text_of

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")


class Life:
    """One server process after the other, at one address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        self.process: asyncio.subprocess.Process | None = None
        self.tools = Tools(folder / "project")

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "PYTHONWARNINGS": "error"}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(WORKER), str(self.folder), str(self.port),
            env=environment, cwd=self.folder, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            assert await self.process.stdout.readline() == b"ready\n"

    async def end(self, number: int) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        async with asyncio.timeout(30):
            code = await self.process.wait()
        self.process = None
        return code

    async def open(self) -> SessionClient:
        answer = await self.client.post("/api/sessions", json={}, headers=bearer(USER))
        return SessionClient(self, USER, answer.json())


@asynccontextmanager
async def lives(folder: Path) -> AsyncIterator[Life]:
    life = Life(folder)
    try:
        await life.start()
        yield life
    finally:
        if life.process is not None:
            await life.end(signal.SIGKILL)
        await life.client.aclose()


async def marks(life: Life, count: int) -> None:
    async with asyncio.timeout(60):
        while len(life.tools.started()) < count:
            await asyncio.sleep(0.01)


async def test_killed_after_a_write_the_turn_is_answered_and_the_write_is_not_doubled(tmp_path):
    async with lives(tmp_path) as life:
        ana = await life.open()
        text = 'call note {"q": "a"} && nap {"q": "15"}'
        with contextlib.suppress(httpx.HTTPError):
            async with ana.listening() as stream:
                await ana.post(text, "m1")
                seen = await stream.until("tool_started")
                await marks(life, 2)
                await life.end(signal.SIGKILL)
        life.tools.go()
        await life.start()
        async with ana.listening(after=seen[-1].id) as stream:
            events = await stream.until("done")
        assert events[0].data == {**events[0].data, "turn": 1, "messageId": "m1", "attempt": 2}
        assert text_of(events).strip() == "note: ok, nap: ok"
        assert life.tools.started().count({"q": "a"}) == 1
        resent = await ana.say(text, "m1")
        assert resent[-1].data["turn"] == 1
        assert life.tools.started().count({"q": "a"}) == 1
        assert [one["role"] for one in (await ana.show())["messages"]] == ["user", "assistant"]


@pytest.mark.long
async def test_killed_inside_a_write_its_outcome_is_unknown_and_it_never_runs_again(tmp_path):
    async with lives(tmp_path) as life:
        ana = await life.open()
        with contextlib.suppress(httpx.HTTPError):
            await ana.post('call post {"q": "1"}', "m1")
            await marks(life, 1)
            await life.end(signal.SIGKILL)
        await life.start()
        events = await ana.say('call post {"q": "1"}', "m1")
        assert text_of(events).strip() == "post: CONFLICT"
        assert life.tools.started() == [{"begun": {"q": "1"}}]


async def test_a_pending_confirmation_survives_a_kill_and_is_carried_out_once(tmp_path):
    async with lives(tmp_path) as life:
        ana = await life.open()
        await ana.say('call pay {"q": "10"}')
        before = (await ana.show())["confirmations"]
        await life.end(signal.SIGKILL)
        await life.start()
        after = (await ana.show())["confirmations"]
        assert [one["id"] for one in after] == [one["id"] for one in before]
        assert after[0]["preview"] == before[0]["preview"]
        async with ana.listening() as stream:
            first = await ana.decide(before[0])
            second = await ana.decide(after[0])
            assert first.json()["data"] == second.json()["data"]
            told = await stream.until("done")
        assert "confirmation_closed" in [event.type for event in told]
        assert (await ana.show())["confirmations"] == []
        assert life.tools.started() == [{"q": "10"}]


@pytest.mark.long
async def test_what_was_approved_before_a_kill_is_neither_run_nor_told_again(tmp_path):
    async with lives(tmp_path) as life:
        ana = await life.open()
        await ana.say('call pay {"q": "10"}')
        (request,) = (await ana.show())["confirmations"]
        async with ana.listening() as stream:
            first = await ana.decide(request)
            await stream.until("done")
        await life.end(signal.SIGKILL)
        await life.start()
        assert (await ana.show())["confirmations"] == []
        again = await ana.decide(request)
        assert again.json()["data"] == first.json()["data"]
        assert life.tools.started() == [{"q": "10"}]
        await asyncio.sleep(0.8)  # the housekeeper has looked at it again
        said = [one["text"] for one in (await ana.show())["messages"] if one["role"] == "assistant"]
        assert len(said) == 2


@pytest.mark.long
async def test_killed_while_it_waits_for_a_person_in_mid_turn_the_request_is_the_same_one(tmp_path):
    async with lives(tmp_path) as life:
        ana = await life.open()
        with contextlib.suppress(httpx.HTTPError):
            async with ana.listening() as stream:
                await ana.post('call pay {"q": "10"} && nap {"q": "15"}', "m1")
                seen = await stream.until("confirmation")
                await marks(life, 1)
                await life.end(signal.SIGKILL)
        life.tools.go()
        await life.start()
        async with ana.listening(after=seen[-1].id) as stream:
            await stream.until("done")
        (request,) = (await ana.show())["confirmations"]
        assert request["id"] == seen[-1].data["id"]
        assert (await ana.decide(request)).json()["ok"] is True
        assert life.tools.started().count({"q": "10"}) == 1


@pytest.mark.long
async def test_sigterm_lets_the_turn_end_and_the_process_with_it(tmp_path):
    async with lives(tmp_path) as life:
        ana = await life.open()
        await ana.post('call post {"q": "0.6"}', "m1")
        await marks(life, 1)
        assert await life.end(signal.SIGTERM) == 0
        assert [next(iter(mark)) for mark in life.tools.started()] == ["begun", "ended"]
        await life.start()
        assert (await ana.show())["messages"][-1]["text"].strip() == "post: ok"

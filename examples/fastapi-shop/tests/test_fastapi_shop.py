"""The app on a server of its own, with a model on this machine that speaks OpenAI's protocol and plays a script."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handrail.testing import open_tools
from handrail.testing.servers import OpenAIChatServer, Reply, call

PROJECT = Path(__file__).resolve().parents[1]
REFUND = call("refund_order", order_id="A-1001", reason="The lid is broken.")
LOOK_UP = call("order_status", order_id="A-1001")
WAITS = Reply("Please approve the refund.")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, built."""
    folder = tmp_path_factory.mktemp("built") / "shop"
    ignored = shutil.ignore_patterns("tests", "*.db*", "tool_registry*", ".handrail", "__pycache__")
    shutil.copytree(PROJECT, folder, ignore=ignored)
    subprocess.run([sys.executable, "-m", "handrail", "build", "--strict"], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture
def project(built: Path, tmp_path: Path) -> Path:
    """One with orders of its own."""
    return shutil.copytree(built, tmp_path / "shop")


def refunds(project: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(project / "shop.db")) as database:
        return database.execute("SELECT order_id, reason FROM refunds").fetchall()


class Page:
    """What the page does, in a browser's place."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._news = asyncio.Event()

    async def listen(self) -> None:
        async with self.client.stream("GET", "/chat/events", timeout=None) as stream:
            kind = ""
            async for line in stream.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    kind = value
                elif field == "data":
                    self.heard.append((kind, json.loads(value)))
                    self._news.set()

    async def say(self, text: str) -> None:
        response = await self.client.post("/chat/messages", json={"id": f"m{len(self.heard)}", "text": text})
        assert response.status_code == 200, response.text

    async def first(self, kind: str, *, number: int = 0) -> dict[str, Any]:
        """The event of this kind that came first, or as the nth."""
        async with asyncio.timeout(120):
            while len(found := [data for name, data in self.heard if name == kind]) <= number:
                self._news.clear()
                await self._news.wait()
        return found[number]

    async def decide(self, request: dict[str, Any], approve: bool) -> dict[str, Any]:
        body = {"token": request["token"], "approve": approve}
        return (await self.client.post(f"/chat/confirmations/{request['id']}", json=body)).json()


@asynccontextmanager
async def served(project: Path, script: Sequence[Reply]) -> AsyncIterator[tuple[Page, OpenAIChatServer]]:
    """The app in a process of its own, and a page that is open."""
    async with OpenAIChatServer(script) as model:
        environment = {**os.environ, **model.environment, "OPENAI_BASE_URL": model.base_url, "SHOP_MODEL": "openai:any"}
        command = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0", "--timeout-graceful-shutdown", "1"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=project, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            printed = ""
            while not (found := re.search(r"running on (http://\S+)", printed)):
                line = await asyncio.wait_for(process.stderr.readline(), 120)
                assert line, printed
                printed += line.decode()
            drain = asyncio.create_task(process.stderr.read())
            async with httpx2.AsyncClient(base_url=found[1], timeout=120) as client:
                assert "Shop assistant" in (await client.get("/")).text
                page = Page(client)
                listening = asyncio.create_task(page.listen())
                yield page, model
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            process.terminate()
            assert "Traceback" not in (await asyncio.wait_for(drain, 60)).decode()
            await process.wait()
            assert model.problems == []
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_an_order_is_refunded_once_after_the_customer_approved_it(project: Path) -> None:
    async def scene() -> None:
        script = [Reply(calls=[LOOK_UP]), Reply(calls=[REFUND]), WAITS, Reply("You get 49.90 EUR back.")]
        async with served(project, script) as (page, model):
            await page.say("My kettle A-1001 came with a broken lid, I want my money back.")
            (looked_up,) = model.envelopes(model.requests[1].body)
            assert looked_up["data"]["item"] == "Tea kettle"
            (held,) = model.envelopes(model.requests[2].body)
            assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert refunds(project) == []

            request = await page.first("confirmation")
            assert request["preview"] == (
                "Refund order A-1001, because: The lid is broken.\n"
                "Tea kettle, 49.90 EUR, bought by ana@example.com; the order is delivered."
            )
            both = await asyncio.gather(page.decide(request, True), page.decide(request, True))
            assert [one["data"]["refunded"] for one in both] == ["49.90 EUR", "49.90 EUR"]
            assert refunds(project) == [("A-1001", "The lid is broken.")]
            assert (await page.client.get("/orders/A-1001")).json()["status"] == "refunded"

            assert (await page.first("done", number=1))["text"] == "You get 49.90 EUR back."
            note = model.requests[3].body["messages"][-1]["content"]
            assert note.startswith("<host>")
            assert '"refunded":"49.90 EUR"' in note
            assert request["token"] not in repr(model.requests)

    asyncio.run(scene())


def test_a_declined_refund_and_a_stranger_change_nothing(project: Path) -> None:
    async def scene() -> None:
        async with served(project, [Reply(calls=[REFUND]), WAITS, Reply("Then it stays.")]) as (page, model):
            await page.say("Refund A-1001, the lid is broken.")
            request = await page.first("confirmation")
            assert (await page.decide({**request, "token": "guessed"}, True))["error"]["type"] == "NOT_FOUND"
            async with httpx2.AsyncClient(base_url=page.client.base_url) as stranger:
                body = {"token": request["token"], "approve": True}
                assert (await stranger.post(f"/chat/confirmations/{request['id']}", json=body)).status_code == 404
            assert (await page.decide(request, False))["error"]["type"] == "DECLINED"
            assert (await page.first("done", number=1))["text"] == "Then it stays."
            assert "DECLINED" in model.requests[-1].body["messages"][-1]["content"]
        assert refunds(project) == []

    asyncio.run(scene())


def test_the_page_in_a_browser_shows_the_request_and_the_answers(project: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("There is no Chromium on this machine.")
    playwright = pytest.importorskip("playwright.async_api")

    async def scene() -> None:
        script = [Reply("One moment.", [REFUND]), WAITS, Reply("You get <b>49.90</b> EUR back.")]
        async with served(project, script) as (page, _), playwright.async_playwright() as driver:
            chromium = await driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
            tab = await chromium.new_page()
            await tab.goto(str(page.client.base_url))
            await tab.get_by_label("Message").fill("Refund A-1001, the lid is broken.")
            await tab.get_by_role("button", name="Send").click()
            await tab.get_by_text("Tea kettle, 49.90 EUR").wait_for()
            await tab.get_by_text(WAITS.text).wait_for()
            await tab.reload()
            await tab.get_by_text("Refund A-1001, the lid is broken.").wait_for()
            await tab.get_by_role("button", name="Approve").click()
            await tab.get_by_text("You get <b>49.90</b> EUR back.").wait_for()
            await tab.get_by_text("carried out").wait_for()
            await chromium.close()
        assert len(refunds(project)) == 1

    asyncio.run(scene())


def test_the_tools_alone_with_the_service_of_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project))
    with open_tools(project / "tools", modules=("shop_tools",)) as tools:
        assert [order["id"] for order in tools.call("find_orders", {"customer": "ana@example.com"}).data["orders"]] == [
            "A-1001",
            "A-1002",
        ]
        assert tools.call("order_status", {"order_id": "A-9999"}).error.type == "NOT_FOUND"
        first, second = (tools.call("refund_order", REFUND.args, approved=True) for _ in range(2))
        assert first.data == {"order_id": "A-1001", "refunded": "49.90 EUR"}
        assert second.error.type == "CONFLICT"

"""The page of the link in a held answer, before a real `handrail mcp wrap`: it says how it is opened, and shows the call."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, WIDE, opened
from tests.mcp.gateway.conftest import Scripted
from tests.mcp.served_project import Served, served
from tests.server.kit import mcp_headers, mcp_meta


class Wrapped:
    """A wrapped server, and its client at the other end of the pipe."""

    def __init__(self, folder: Path, scripted: Scripted) -> None:
        self.folder = folder / "wrapped"
        words = [
            "-m",
            "handrail",
            "mcp",
            "wrap",
            "--folder",
            str(self.folder),
            "--no-browser",
            "--name",
            "box",
            "--",
            *scripted.command,
        ]
        self._errors = (folder / "errors").open("w")
        self._process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.ask(1, "initialize", hello)
        self._send({"method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdout is not None
        self._send({"id": number, "method": method, "params": params})
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == number:
                found: dict[str, Any] = answer["result"]
                return found
        raise AssertionError("The wrapped server ended.")

    def held_link(self, number: int, text: str) -> str:
        answer = self.ask(number, "tools/call", {"name": "note", "arguments": {"text": text}})
        found = re.search(
            r"http://\S+/console/confirmation\.html#[\w-]+", answer["structuredContent"]["error"]["message"]
        )
        assert found, answer
        return found[0]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._errors.close()


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[tuple[Wrapped, Scripted]]:
    scripted = Scripted(tmp_path / "scripted")
    made = Wrapped(tmp_path, scripted)
    yield made, scripted
    made.close()


def opened_once(server: Wrapped, link: str) -> str:
    """The address at which `handrail mcp open` opens the person's browser."""
    browser, noted = server.folder / "browser", server.folder / "noted"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > "{noted}"\n')
    browser.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-m", "handrail", "mcp", "open", "--folder", str(server.folder), link],
        env={**os.environ, "BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        check=True,
    )
    address = noted.read_text()
    assert address.partition("#")[2] not in done.stdout + done.stderr
    return address


def test_the_link_alone_decides_nothing_and_one_that_a_person_opens_approves_once(
    browser: Any, wrapped: tuple[Wrapped, Scripted]
) -> None:
    server, scripted = wrapped
    with opened(browser, server.held_link(2, "buy milk"), viewport=NARROW, scheme="dark") as tab:
        page = tab.page
        page.get_by_label("The console's key").fill("wrong")
        assert f'handrail mcp open "{page.url}"' in page.inner_text("#key-help")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert obstacles(page) == []
        tab.shoot("link-key-narrow-dark")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("That key is not known here.").wait_for()
        assert scripted.calls() == []
        # A link that somebody else has made must not end as a command of theirs in a terminal.
        page.goto(f"{page.url}$(touch${{IFS}}x)")
        page.reload()
        page.get_by_text("This address names no confirmation request").wait_for()
        assert "touch" not in page.inner_text("body")

    address = opened_once(server, server.held_link(3, "buy milk"))
    with opened(browser, address, viewport=NARROW, scheme="dark") as tab:
        page = tab.page
        page.get_by_role("heading", name="Approve note?").wait_for()
        assert "ticket" not in page.url
        assert "buy milk" in page.inner_text("#preview")
        assert re.search(r"\d:\d\d", page.inner_text(".countdown"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("#approve:not([aria-disabled])").wait_for()
        assert obstacles(page) == []
        tab.shoot("link-narrow-dark")
        page.locator("#approve").dblclick()
        page.get_by_role("heading", name="Approved").wait_for()
        assert len(scripted.calls()) == 1

    with opened(browser, address, viewport=WIDE) as tab:
        tab.page.get_by_label("The console's key").wait_for()  # it was used
    with opened(browser, opened_once(server, server.held_link(4, "sell milk")), viewport=WIDE) as tab:
        page = tab.page
        page.get_by_role("heading", name="Approve note?").wait_for()
        page.locator("#decline:not([aria-disabled])").wait_for()
        tab.shoot("link-wide")
        page.locator("#decline").click()
        page.get_by_role("heading", name="Declined").wait_for()
        page.reload()
        page.get_by_text("was answered, or its time is over").wait_for()
        tab.shoot("link-over-wide")
    assert len(scripted.calls()) == 1


PAYING = '''
import asyncio
from pathlib import Path
from handrail import tool

HERE = Path(__file__).parent

@tool(category="action", side_effects="writes", idempotent=False, requires_confirmation=True, preview="Pay {amount} euros")
async def pay(amount: int, ctx) -> str:
    """Pay something.

    Args:
        amount: How much, in euros.
    """
    ctx.progress("asking the bank")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    if amount > 5:
        raise RuntimeError("the bank closed the line")
    return "paid"
'''


def test_after_approve_the_page_shows_that_it_runs_and_what_nobody_knows_is_not_called_a_failure(
    browser: Any, tmp_path: Path
) -> None:
    (tmp_path / "handrail.toml").write_text('[tools]\nmodules = ["notes"]\n[mcp]\nuser = "zoe"\n')
    (tmp_path / "notes.py").write_text(PAYING)
    made = ["keys", "add", "client", "--user", "zoe"]
    command = [sys.executable, "-m", "handrail", *made]
    client = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    def held(server: Served, amount: int) -> str:
        called = {"name": "pay", "arguments": {"amount": amount}, "_meta": mcp_meta()}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
        headers = {"Authorization": f"Bearer {client}", **mcp_headers("tools/call", "pay")}
        answer = httpx2.post(server.mcp, json=body, headers=headers, timeout=30).json()
        found = re.search(r"confirmation\.html#([\w-]+)", answer["result"]["structuredContent"]["error"]["message"])
        assert found
        return f"{server.url}/console/confirmation.html#key={server.key}&{found[1]}"

    with served(tmp_path) as server:
        with opened(browser, held(server, 6), viewport=NARROW) as tab:
            page = tab.page
            page.locator("#approve:not([aria-disabled])").click()
            page.get_by_role("heading", name="Approved, and running").wait_for()
            page.get_by_text("asking the bank").wait_for()
            assert not page.get_by_text("Time left to decide").is_visible()
            assert not page.locator("#buttons").is_visible()
            assert obstacles(page) == []
            tab.shoot("link-running-narrow")
            (tmp_path / "go").touch()
            page.get_by_role("heading", name="The outcome is not known").wait_for()
            assert "could not be carried out" not in page.inner_text("#confirmation")
            assert obstacles(page) == []
            tab.shoot("link-unknown-narrow")
        with opened(browser, held(server, 5), viewport=WIDE) as tab:
            tab.page.locator("#approve:not([aria-disabled])").click()
            tab.page.get_by_role("heading", name="Approved", exact=True).wait_for()

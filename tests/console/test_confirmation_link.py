"""The page of the link in a held answer, before a real `handrail mcp wrap`: it says how it is opened, and shows the call."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, WIDE, opened
from tests.mcp.gateway.conftest import Scripted


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

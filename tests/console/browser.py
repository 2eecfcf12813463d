"""The real browser that the console's tests use: Debian's Chromium, driven by Playwright without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}
LOOKS = [
    pytest.param("wide", WIDE, "light", id="wide"),
    pytest.param("narrow", NARROW, "light", id="narrow"),
    pytest.param("dark", WIDE, "dark", id="dark"),
]
"""For a parameter each: the screenshot's name, the window and the colour scheme."""
_TOLD_BY_THE_BROWSER = ("Failed to load resource", "WebSocket connection to")
_WHOLE = ("chromium", "chromium-browser", "google-chrome")
_WITHOUT_WINDOWS = "chromium-headless-shell"


def chromium(*, whole: bool = False) -> str:
    """Where the browser is: the one without windows, which takes a third of the processor time, unless the `whole` one is
    needed. Without one the tests are skipped with a reason, and on CI they fail."""
    names = _WHOLE if whole else (_WITHOUT_WINDOWS, *_WHOLE)
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        reason = "There is no Chromium on this machine; `make browser` brings it."
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def launched(*flags: str, whole: bool = False) -> Iterator[Any]:
    """The browser, for as long as somebody needs it; `flags` beside the usual ones."""
    executable = chromium(whole=whole)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *flags]
        )
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page, and everything that went wrong in it."""

    def __init__(
        self, browser: Any, address: str, *, viewport: dict[str, int], scheme: str, motion: str, more: dict[str, Any]
    ) -> None:
        before: str = more.pop("before", "")
        self.context = browser.new_context(
            viewport=viewport,
            color_scheme=scheme,
            reduced_motion=motion,
            locale="en-GB",
            timezone_id="Europe/Zagreb",
            **more,
        )
        if before:
            self.context.add_init_script(before)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("dialog", self._dialog)
        self.page.goto(address)

    def _note(self, message: Any) -> None:
        # A status that the page expects and handles is written to the log by the browser itself.
        if message.type == "error" and not message.text.startswith(_TOLD_BY_THE_BROWSER):
            self.problems.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"A script ran: {dialog.message}")
        dialog.dismiss()

    def shoot(self, name: str) -> None:
        """Keep what is seen now, for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))


@contextmanager
def opened(
    browser: Any,
    address: str,
    *,
    viewport: dict[str, int] = WIDE,
    scheme: str = "light",
    motion: str = "reduce",
    **more: Any,
) -> Iterator[Opened]:
    """The console in a tab of its own. At the end nothing may have gone wrong in it. `before` is a script that runs before
    the page's; `permissions` are what the person at the browser has allowed."""
    made = Opened(browser, address, viewport=viewport, scheme=scheme, motion=motion, more=more)
    try:
        yield made
        assert made.problems == [], made.problems
    finally:
        made.context.close()

"""Open the console of a wrapped server, or one request of it, in your browser: by a link that works once, for a minute.

Give the address that the client shows, or the server's folder; without either the wrapped server that runs is taken. Where no
browser can be opened the link is printed, on a terminal only: whatever else reads it could answer in your place.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from handrail.cli.output import warn
from handrail.contract.errors import UsageError
from handrail.settings import load_settings

HELP = "open the console of a wrapped server in your browser"
ADDRESS_FILE = "console-address"
_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.stdin.read()))"
_OPEN_SECONDS = 20


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("place", nargs="?", metavar="LINK|DIR", help="the link that the client shows, or the folder")
    parser.add_argument("--folder", metavar="DIR", help="the folder of the link's server, if it was started with one")


def run(options: Namespace) -> int:
    link, project = _found(options.place, options.folder)
    link = asyncio.run(_with_ticket(project, link))
    if asyncio.run(open_browser(link, os.environ)):
        print(f"{link.partition('#')[0]} was opened in your browser.")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        print(f"Open this within a minute; it works once:\n{link}")
    else:
        warn("handrail mcp open: no browser can be opened here; run it in a terminal, which is then shown the link.")
        return 1
    return 0


def state_home(environment: Mapping[str, str]) -> Path:
    """Where the folders of wrapped servers are, unless they are named."""
    home = Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "handrail"


async def open_browser(link: str, environment: Mapping[str, str]) -> bool:
    """Whether a browser was asked to open it. The link goes through a pipe, not among the words of a command of ours."""
    has_screen = sys.platform in ("darwin", "win32") or any(
        environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_screen:
        return False
    nowhere = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OPEN, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere
    )
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            await process.communicate(link.encode())
    except TimeoutError:
        return True  # it was asked, and runs
    return process.returncode == 0


def _found(place: str | None, named: str | None) -> tuple[str, Path]:
    """The page, and the folder of the server whose console shows it."""
    if place is None and named is None:
        running = [folder for folder in _folders() if _answers(_address(folder))]
        if len(running) != 1:
            many = f"{len(running)} run: {', '.join(map(str, running))}" if running else "none runs"
            raise UsageError(f"Give the link that the client shows, or the folder of a wrapped server; {many}.")
        return f"{_address(running[0])}/", running[0]
    if place is not None and urlsplit(place).scheme in ("http", "https"):
        for folder in _folders() if named is None else [Path(named).absolute()]:
            if place.startswith(f"{_address(folder)}/"):
                return place, folder
        raise UsageError("No wrapped server has a console at that address; give --folder if it was started with one.")
    folder = Path(place or named or "").absolute()
    if not _answers(_address(folder)):
        raise UsageError(f'No wrapped server runs with the folder "{folder}".')
    return f"{_address(folder)}/", folder


def _folders() -> list[Path]:
    return sorted(path.parent for path in state_home(os.environ).glob(f"*/{ADDRESS_FILE}"))


def _address(folder: Path) -> str:
    try:
        return (folder / ADDRESS_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _answers(address: str) -> bool:
    parts = urlsplit(address)
    if not parts.hostname or not parts.port:
        return False
    try:
        socket.create_connection((parts.hostname, parts.port), 2).close()
    except OSError:
        return False
    return True


async def _with_ticket(project: Path, link: str) -> str:
    from handrail.app import store_url
    from handrail.server.console_tickets import one_time_link
    from handrail.stores import open_store

    store = open_store(store_url(load_settings(project, os.environ)))
    await store.open()
    try:
        return await one_time_link(store.requests, link)
    finally:
        await store.close()

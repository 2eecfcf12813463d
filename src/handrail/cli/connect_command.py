"""Connections: let a person connect an account of theirs, so that tools may work with it.

Without a browser on this machine, use --device where the service has it. Tokens are kept encrypted in the project's store, by
the keys in HANDRAIL_CREDENTIALS_KEYS; docs/connections.md has more.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from handrail.app import open_connections, store_url
from handrail.cli.output import count, print_json, warn
from handrail.cli.project import project_settings
from handrail.contract.credentials import AuthorizationRefused, CredentialError
from handrail.contract.errors import UsageError
from handrail.settings import Settings
from handrail.stores import open_store

if TYPE_CHECKING:
    from handrail.identity.connections import Connections, ConnectionState

EXAMPLES = """examples:
  export HANDRAIL_CREDENTIALS_KEYS="$(handrail connect --new-key)"
  handrail connect google
  handrail connect google --user ana@example.com --device
  handrail connect --list
  handrail connect google --disconnect
  handrail connect --rotate"""
LOCAL_USER = "local"
_WAIT_SECONDS = 600.0
_MAX_REQUEST = 16_384
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Handrail</title><p>{}</p></html>"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the connection, as [connections.NAME] has it")
    parser.add_argument("--user", default=LOCAL_USER, help="whose account it is (default: local, as in the console)")
    parser.add_argument("--tenant", default="", help="the user's tenant, where there are several")
    parser.add_argument("--device", action="store_true", help="show a code that is typed on another device")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    parser.add_argument("--disconnect", action="store_true", help="revoke and delete the connection")
    parser.add_argument("--list", action="store_true", help="what the user has connected")
    parser.add_argument("--new-key", action="store_true", help="print a key for HANDRAIL_CREDENTIALS_KEYS")
    parser.add_argument(
        "--rotate", action="store_true", help="encrypt with the first key what older ones have encrypted"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    actions = [name for name in ("disconnect", "list", "new_key", "rotate") if getattr(options, name)]
    if len(actions) > 1:
        raise UsageError(f"Say either --{actions[0].replace('_', '-')} or --{actions[1].replace('_', '-')}.")
    if options.new_key:
        from handrail.identity.vault import new_key

        print(new_key())
        return 0
    if not options.user.strip() or not options.user.isprintable():
        raise UsageError(f"A user is named by printable text; {options.user!r} is not.")
    settings = project_settings()
    if not settings.connections:
        raise UsageError("No connection is configured; docs/connections.md shows what to write into handrail.toml.")
    if options.name is None and not (options.list or options.rotate):
        raise UsageError(f"Name the connection: {' or '.join(settings.connections)}.")
    return asyncio.run(_run(settings, options))


async def _run(settings: Settings, options: Namespace) -> int:
    store = open_store(store_url(settings))
    connections = open_connections(settings, store)
    if options.name is not None:
        connections.check(options.name)
    await store.open()
    try:
        if options.rotate:
            return _rotated(await connections.rotate(), options)
        if options.list:
            return _listed(await connections.states(options.tenant, options.user), options)
        if options.disconnect:
            return await _disconnect(connections, options)
        made = await (_by_device if options.device else _by_browser)(connections, options)
    finally:
        await store.close()
    if options.json:
        print_json({"connection": made.name, "user": options.user, "connected": made.connected})
    else:
        print(f"{made.label} is connected for {options.user}.")
    return 0


async def _by_device(connections: Connections, options: Namespace) -> ConnectionState:
    grant = await connections.begin_device(options.user, options.name)
    _say(f"On any device, open {grant.address} and enter the code {grant.user_code}.")
    if grant.complete_address:
        _say(f"Or open {grant.complete_address}.")
    return await connections.complete_device(options.tenant, options.user, options.name, grant)


async def _by_browser(connections: Connections, options: Namespace) -> ConnectionState:
    browser = secrets.token_urlsafe(24)
    async with _listening() as (port, answers):
        back = f"http://127.0.0.1:{port}/callback"
        begun = await connections.begin(options.tenant, options.user, options.name, redirect_uri=back, browser=browser)
        _say(f"Open this address in the browser of this machine:\n{begun.url}")
        if not options.no_browser and sys.stdin.isatty():
            import webbrowser

            await asyncio.to_thread(webbrowser.open, begun.url)
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                while True:
                    answer, told = await answers.get()
                    if not secrets.compare_digest(answer.get("state", "").encode(), begun.state.encode()):
                        told.set_result((400, "This page belongs to no connection that is being made; close it."))
                        continue
                    try:
                        made = await connections.complete(answer, redirect_uri=back, browser=browser)
                    except CredentialError as error:
                        told.set_result((403, str(error)))
                        raise
                    told.set_result((200, f"{made.label} is connected. You can close this page."))
                    return made
        except TimeoutError:
            raise AuthorizationRefused("Nobody has answered in time; nothing was connected.") from None


_Answers = asyncio.Queue[tuple[dict[str, str], "asyncio.Future[tuple[int, str]]"]]


@asynccontextmanager
async def _listening() -> AsyncIterator[tuple[int, _Answers]]:
    """A port of the loopback to which the service sends the browser back, and what comes there."""
    answers: _Answers = asyncio.Queue(maxsize=8)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, *_ = request.split(" ", 2)
            parts = urlsplit(target)
            if method != "GET" or parts.path != "/callback":
                await _reply(writer, 404, "There is nothing here.")
                return
            told: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
            await answers.put((dict(parse_qsl(parts.query)), told))
            await _reply(writer, *await told)
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whatever came, it was no browser that was sent here
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_MAX_REQUEST)
    try:
        yield server.sockets[0].getsockname()[1], answers
        await asyncio.sleep(0.05)  # the page that says how it went is on its way
    finally:
        server.close()


async def _reply(writer: asyncio.StreamWriter, status: int, sentence: str) -> None:
    from html import escape

    body = _PAGE.format(escape(sentence)).encode()
    head = (
        f"HTTP/1.1 {status} -\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


async def _disconnect(connections: Connections, options: Namespace) -> int:
    ended = await connections.disconnect(options.tenant, options.user, options.name)
    if options.json:
        print_json({"disconnected": ended.existed, "unrevoked": ended.unrevoked})
    elif ended.existed:
        print(f"{connections.label(options.name)} is disconnected. {ended.unrevoked}".rstrip())
    else:
        print(f"{options.user} had not connected {connections.label(options.name)}.")
    return 1 if ended.unrevoked else 0


def _listed(states: list[ConnectionState], options: Namespace) -> int:
    if options.json:
        rows: list[dict[str, Any]] = [
            {
                "name": one.name,
                "label": one.label,
                "connected": one.connected,
                "scopes": list(one.scopes),
                "problem": one.problem,
            }
            for one in states
        ]
        print_json({"user": options.user, "connections": rows})
        return 0
    for one in states:
        word = one.problem or ("connected" if one.connected else "not connected")
        print(f"{one.name:<16} {one.label:<24} {word}")
    return 0


def _rotated(number: int, options: Namespace) -> int:
    if options.json:
        print_json({"rotated": number})
    else:
        print(f"{count(number, 'credential')} encrypted anew.")
    return 0


def _say(text: str) -> None:
    """For the person; what a program reads is on the standard output alone."""
    warn(text)
    sys.stderr.flush()

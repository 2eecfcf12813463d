"""What the real path of voice needs beside a browser: speech in a file, for the browser's microphone, and a provider that runs on
loopback while the test drives the page."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.console.table_model import put_beside

from handrail.testing.servers.live import GeminiLiveServer, OpenAIRealtimeServer
from handrail.testing.servers.live.server import LiveServer

_RATE = 22_050
_TABLE = {
    "toolId": "book_table",
    "version": "1.0.0",
    "description": "Books a table. A person approves it first.",
    "category": "action",
    "sideEffects": "writes",
    "idempotent": False,
    "requiresConfirmation": True,
    "allowedModes": ["text", "voice"],
    "latencyBudgetMs": 1000,
    "preview": "Book a table for {people} on the name {name}.",
    "parameters": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "people"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 80, "description": "Who comes."},
            "people": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many come."},
        },
    },
    "outputSchema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["booked"],
        "properties": {"booked": {"type": "boolean"}},
    },
}
_GUIDE = """# book_table

Books a table.

## When to use

When somebody wants a table.

## When not to use

To ask which tables are free.

## Examples

```json
{"name": "Ana", "people": 4}
```
"""
_HANDLER = '''"""Books a table."""

from pathlib import Path


async def execute(args, ctx):
    with Path("bookings.txt").open("a", encoding="utf-8") as book:
        book.write(f"{args['name']} {args['people']}\\n")
    return {"ok": True, "data": {"booked": True}}
'''


def speech(path: Path, *, before: float, words: str, after: float) -> Path:
    """A file with silence, words spoken by espeak-ng, and silence. Without espeak-ng the test is skipped with a reason, and on
    CI it fails."""
    program = shutil.which("espeak-ng")
    if program is None:
        reason = "There is no espeak-ng on this machine; `make speech` brings it."
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run([program, "-v", "en", "-s", "150", "-w", str(path), words], check=True, timeout=30)
    with wave.open(str(path)) as made:
        assert (made.getframerate(), made.getnchannels(), made.getsampwidth()) == (_RATE, 1, 2)
        sound = made.readframes(made.getnframes())
    with wave.open(str(path), "wb") as whole:
        whole.setparams((1, 2, _RATE, 0, "NONE", "not compressed"))
        whole.writeframes(_silence(before) + sound + _silence(after))
    return path


def _silence(seconds: float) -> bytes:
    return bytes(2 * int(_RATE * seconds))


def microphone(path: Path, *, again: bool) -> tuple[str, ...]:
    """How Chromium is started so that its microphone hears this file, once or again and again."""
    return (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={path}{'' if again else '%noloop'}",
    )


def project(folder: Path, voice: dict[str, str], *, seconds: int = 60, channel: str = "any") -> Path:
    """A project with a tool of its own that books tables, by voice too, and writes them to a file. A booking waits a number of
    seconds for a person, on a channel."""
    tool = folder / "tools" / "book-table"
    tool.mkdir(parents=True)
    (tool / "schema.json").write_text(json.dumps({**_TABLE, "confirmation": {"channel": channel}}), encoding="utf-8")
    (tool / "guide.md").write_text(_GUIDE, encoding="utf-8")
    (tool / "handler.py").write_text(_HANDLER, encoding="utf-8")
    lines = [f"{name} = {json.dumps(value)}" for name, value in voice.items()]
    settings = ["[tools]", 'reference = ["kb_search", "end_voice_session"]', "[voice]", *lines]
    put_beside(folder)
    settings += ["[agent]", 'model = "tables"', "[policy.voice]", f"confirmation_seconds = {seconds}"]
    (folder / "handrail.toml").write_text("\n".join(settings) + "\n", encoding="utf-8")
    return folder


def settings(provider: LiveServer) -> dict[str, str]:
    """What `[voice]` says of a provider on loopback."""
    if isinstance(provider, GeminiLiveServer):
        return {"model": "gemini-live:gemini-live-2.5-flash", "base_url": provider.base_url}
    assert isinstance(provider, OpenAIRealtimeServer)
    return {"model": "openai-realtime:gpt-realtime", "base_url": provider.base_url}


def environment(provider: LiveServer, folder: Path) -> dict[str, str]:
    """The provider's key, and whom the server's process has to trust beside."""
    if not isinstance(provider, GeminiLiveServer):
        return {"OPENAI_API_KEY": provider.api_key}
    trusted = folder / "trusted.pem"
    authorities = provider.tls.get_ca_certs(binary_form=True)
    trusted.write_text("".join(map(ssl.DER_cert_to_PEM_cert, authorities)), encoding="ascii")
    return {"GEMINI_API_KEY": provider.api_key, "SSL_CERT_FILE": str(trusted)}


def bookings(folder: Path) -> list[str]:
    written = folder / "bookings.txt"
    return written.read_text(encoding="utf-8").splitlines() if written.exists() else []


@contextmanager
def running(server: LiveServer) -> Iterator[LiveServer]:
    """The provider, in a thread with an event loop of its own."""
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(over.wait)
            server.cut_all()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield server
    finally:
        over.set()
        thread.join(20)

"""A project whose tool takes as long as a test wants: it books a table, tells what it is ordered to tell, and ends when it is
ordered to."""

from __future__ import annotations

import json
from pathlib import Path

from tests.console.browser import Opened
from tests.console.served import Served
from tests.console.spoken import bookings, project

_HANDLER = '''"""Books a table when a file beside it says so."""

import asyncio
from pathlib import Path

from handrail import ToolError


async def execute(args, ctx):
    with Path("bookings.txt").open("a", encoding="utf-8") as book:
        book.write(f"{args['name']} {args['people']}\\n")
    orders, seen = Path(f"{args['name']}.orders"), 0
    while True:
        given = orders.read_text(encoding="utf-8").splitlines() if orders.exists() else []
        for line in given[seen:]:
            word, _, text = line.partition(" ")
            if word == "tell":
                ctx.progress(text)
            elif word == "fail":
                raise ToolError("PERMANENT", text)
            elif word == "break":
                raise RuntimeError(text)
            else:
                return {"ok": True, "data": {"booked": True}}
        seen = len(given)
        await asyncio.sleep(0.02)
'''


def slow_project(folder: Path) -> Path:
    made = project(folder, {})
    tool = folder / "tools" / "book-table"
    schema = json.loads((tool / "schema.json").read_text(encoding="utf-8"))
    (tool / "schema.json").write_text(json.dumps({**schema, "timeoutMs": 120_000}), encoding="utf-8")
    (tool / "handler.py").write_text(_HANDLER, encoding="utf-8")
    return made


class Booking:
    """A table on one name: asked for, approved, and told what to do while it is being booked."""

    def __init__(self, it: Opened, served: Served, name: str) -> None:
        self.it, self.served, self.name = it, served, name

    def ask(self) -> None:
        self.it.page.fill("#message", f"Book a table for 4 people on the name {self.name}")
        self.it.page.press("#message", "Enter")
        self.it.page.get_by_role("dialog").wait_for()
        self.it.page.locator(".by-model .status:empty").last.wait_for(state="attached")

    def approve(self) -> None:
        self.it.page.get_by_role("dialog").get_by_role("button", name="Approve").click()

    def order(self, words: str) -> None:
        """`tell WORDS`, `fail WORDS`, `break WORDS` or `end`."""
        with (self.served.folder / f"{self.name}.orders").open("a", encoding="utf-8") as orders:
            orders.write(f"{words}\n")

    @property
    def started(self) -> int:
        return sum(line.startswith(f"{self.name} ") for line in bookings(self.served.folder))

"""The program as a user starts it, with a server on this machine that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from examples.loop_program import Program, built_copy, started

from handrail.testing.servers import OpenAIChatServer, Reply, call

PROJECT = Path(__file__).resolve().parents[1]
PAY = Reply(calls=[call("pay_invoice", invoice="I-7")])
WAITS = Reply("I asked you to approve it.")
PREVIEW = "Pay invoice I-7."


class ProgramWithPage(Program):
    """The program, and its page."""

    @property
    def address(self) -> str:
        return re.search(r"http://\S+", self.printed)[0]

    async def page(self) -> str:
        return await _fetch(self.address)

    async def answer(self, page: str, answer: str) -> str:
        """Press a button of the form that `page` shows."""
        fields = dict(re.findall(r'name="(id|token)" value="([^"]+)"', page))
        return await _fetch(self.address, urlencode({**fields, "answer": answer}).encode())


async def _fetch(address: str, body: bytes | None = None) -> str:
    """Of the page on this machine."""
    return await asyncio.to_thread(lambda: urlopen(address, body, timeout=60).read().decode())  # noqa: S310


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, built."""
    return built_copy(PROJECT, tmp_path_factory.mktemp("openai"))


@asynccontextmanager
async def playing(project: Path, script: Sequence[Reply]) -> AsyncIterator[tuple[ProgramWithPage, OpenAIChatServer]]:
    """The program, which the model answers by this script."""
    async with (
        OpenAIChatServer(script) as server,
        started(project, "openai_loop.py", server, kind=ProgramWithPage, OPENAI_BASE_URL=server.base_url) as program,
    ):
        await program.until("Approvals: http")
        yield program, server


def test_an_approval_on_the_page_pays_once_and_the_model_is_told(project: Path) -> None:
    async def scene() -> None:
        script = [Reply(calls=[call("list_invoices")]), PAY, WAITS, Reply("It is paid.")]
        async with playing(project, script) as (program, server):
            program.type("Please pay Paper & Sons")
            await program.until(WAITS.text)
            listed, held = (server.envelopes(server.requests[number].body)[0] for number in (1, 2))
            assert listed["data"]["invoices"][0]["id"] == "I-7"
            assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert "[bank]" not in program.printed

            page = await program.page()
            assert PREVIEW in page
            assert "Done." in await program.answer(page, "approve")
            await program.until("It is paid.")
            late = server.requests[-1].body["messages"][-1]
            assert late["role"] == "user"
            assert late["content"].startswith("<host>\nNote of the host")
            assert '"paid":"I-7"' in late["content"]

            await program.answer(page, "approve")
            assert "Nothing waits for you." in await program.page()
            assert program.printed.count("[bank] paid I-7") == 1
            token = re.search(r'name="token" value="([^"]+)"', page)[1]
            assert token not in repr(server.requests)
            assert token not in program.printed

    asyncio.run(scene())


def test_what_was_cut_off_or_declined_does_not_run(project: Path) -> None:
    async def scene() -> None:
        cut_off = Reply("I will", PAY.calls, reason="length")
        async with playing(project, [cut_off, PAY, WAITS, Reply("Then I leave it.")]) as (program, server):
            program.type("Pay I-7")
            await program.until("I will")
            program.type("And?")
            await program.until(WAITS.text)
            await program.until("[waiting]")
            assert len(server.requests) == 3
            assert program.printed.count("[waiting]") == 1

            await program.answer(await program.page(), "decline")
            await program.until("Then I leave it.")
            assert "DECLINED" in server.requests[-1].body["messages"][-1]["content"]
            assert "[bank]" not in program.printed

    asyncio.run(scene())

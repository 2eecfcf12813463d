"""The program as a user starts it, with a server on this machine that speaks Anthropic's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from examples.loop_program import Program, built_copy, started

from handrail.testing.servers import AnthropicServer, Reply, call

PROJECT = Path(__file__).resolve().parents[1]
REDIRECT = Reply("One moment.", [call("redirect_parcel", parcel="P-1", address="5 Oak Street")])
WAITS = Reply("Please decide.")
PREVIEW = "Send parcel P-1 to 5 Oak Street instead."


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, built."""
    return built_copy(PROJECT, tmp_path_factory.mktemp("anthropic"))


@asynccontextmanager
async def playing(project: Path, script: Sequence[Reply]) -> AsyncIterator[tuple[Program, AnthropicServer]]:
    """The program, which the model answers by this script."""
    async with (
        AnthropicServer(script) as server,
        started(project, "anthropic_loop.py", server, ANTHROPIC_BASE_URL=server.base_url) as program,
    ):
        yield program, server


def test_a_yes_on_the_terminal_redirects_once_and_the_model_is_told(project: Path) -> None:
    async def scene() -> None:
        script = [Reply(calls=[call("track_parcel", parcel="P-1")]), REDIRECT, WAITS, Reply("It goes there now.")]
        async with playing(project, script) as (program, server):
            program.type("/yes")
            await program.until("Nothing waits for you.")
            program.type("Send P-1 to 5 Oak Street")
            await program.until(WAITS.text)
            await program.until(PREVIEW)
            (held,) = server.envelopes(server.requests[-1].body)
            assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert "[carrier]" not in program.printed

            program.type("/yes")
            await program.until("It goes there now.")
            program.type("/yes")
            late = server.requests[-1].body["messages"][-1]
            assert late["content"].startswith("<host>\nNote of the host")
            assert '"to":"5 Oak Street"' in late["content"]
            assert "/yes" not in repr(server.requests)
        await program.until("Nothing waits for you.")
        assert program.printed.count("[carrier]") == 1

    asyncio.run(scene())


def test_what_was_cut_off_or_declined_does_not_run(project: Path) -> None:
    async def scene() -> None:
        cut_off = Reply("I will", REDIRECT.calls, reason="length")
        async with playing(project, [cut_off, REDIRECT, WAITS, Reply("It stays as it is.")]) as (program, server):
            program.type("Send P-1 to 5 Oak Street")
            await program.until("I will")
            program.type("And?")
            await program.until(WAITS.text)
            await program.until("Type /yes or /no.")
            assert len(server.requests) == 3
            assert program.printed.count(PREVIEW) == 1

            program.type("/no")
            await program.until("It stays as it is.")
            assert "DECLINED" in server.requests[-1].body["messages"][-1]["content"]
            assert "[carrier]" not in program.printed

    asyncio.run(scene())

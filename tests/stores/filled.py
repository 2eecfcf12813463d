"""A store filled by real calls, for tests of what is done to a whole store: outcomes that are known, unknown and open, a
request that waits for a person, a user who was forgotten, one who is blocked. And what must hold wherever it is opened next."""

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.runtime.kit import PAID, PATIENT, Tools, asked, confirmed, fails, kind, writing

from handrail import Runtime
from handrail.contract.store import Block, LedgerState
from handrail.registry import Registry

TOOLS = {
    "pay": (writing(), PAID),
    "fail": (writing(), fails("ValueError('broken')")),
    "slow": (writing(timeoutMs=60_000), PATIENT),
    "wire": (confirmed(), PAID),
}
_DYING = """
import asyncio, sys
from handrail import Runtime
from handrail.registry import Registry

async def main():
    registry = Registry.load(sys.argv[1])
    registry.lock()
    runtime = Runtime(registry, store=sys.argv[2])
    session = await runtime.open_session(user="dan")
    await session.begin_turn("m1")
    print(session.id, session.token, flush=True)
    await session.call("slow", {"q": "left"}, call_id="c1")

asyncio.run(main())
"""


@dataclass
class Filled:
    """What was done, so that it can be asked for again."""

    tools: Tools
    registry: Registry
    ana: tuple[str, str]
    """Id and token of a session."""
    dan: tuple[str, str]
    request: tuple[str, str]
    """Id and token of a confirmation that waits."""


def build(folder: Path) -> tuple[Tools, Registry]:
    tools = Tools(folder)
    tools.write(TOOLS)
    return tools, tools.build()


async def fill(url: str, folder: Path) -> Filled:
    tools, registry = build(folder)
    dan = await asyncio.to_thread(_die_in_a_call, tools, url)
    async with Runtime(registry, store=url) as runtime:
        session = await runtime.open_session(user="ana", attributes={"name": "Åsa 東京", "tab": "a\tb\\c\nd"})
        await session.begin_turn("m1")
        assert (await session.call("pay", {"q": "ü\\.\t\n"}, call_id="c1")).ok
        assert not (await session.call("fail", {"q": "b"}, call_id="c2")).ok
        assert [row.tool for row in await runtime.store.ledger_rows(state=LedgerState.UNKNOWN)] == ["fail", "slow"]
        assert kind(await session.call("wire", {"q": "c"}, call_id="c3")) == "CONFIRMATION_REQUIRED"
        request = await asked(session)
        for user in ("bob", "cyd"):
            other = await runtime.open_session(user=user)
            await other.begin_turn("m1")
            for number in range(30):
                assert (await other.call("pay", {"q": f"{user} {number}"}, call_id=f"c{number}")).ok
        await runtime.store.forget_user("", "bob")
        await runtime.store.block(Block(tenant="", user="cyd", until=2**50))
        await runtime.store.switch("slow", "being mended")
        ana = (session.id, session.token)
    return Filled(tools, registry, ana, dan, request)


def _die_in_a_call(tools: Tools, url: str) -> tuple[str, str]:
    with subprocess.Popen(
        [sys.executable, "-c", _DYING, str(tools.artifact), url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        session, token = process.stdout.readline().split()
        while not tools.started():
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    return session, token


async def nothing_runs_again(url: str, filled: Filled) -> None:
    """Sessions continue in the store, every call that it knows is answered from it, and the open request runs once."""
    starts = len(filled.tools.started())
    async with Runtime(filled.registry, store=url) as runtime:
        session = await runtime.resume_session(filled.ana[0], token=filled.ana[1])
        again = await session.call("pay", {"q": "ü\\.\t\n"}, call_id="c1")
        assert (again.ok, again.meta["replayed"]) == (True, True)
        for call_id in ("c2", "c9"):
            assert not (await session.call("fail", {"q": "b"}, call_id=call_id)).ok
        left = await runtime.resume_session(filled.dan[0], token=filled.dan[1])
        await runtime.store.switch("slow", None)
        assert kind(await left.call("slow", {"q": "left"}, call_id="c1")) == "CONFLICT"
        assert len(filled.tools.started()) == starts
        hold, token = filled.request
        assert (await runtime.approve(hold, token=token)).ok
        assert (await runtime.approve(hold, token=token)).ok
        assert len(filled.tools.started()) == starts + 1
        assert (await session.begin_turn("m2")) == 2
        assert (await session.call("pay", {"q": "new"}, call_id="c10")).ok
        unknown = await runtime.store.ledger_rows(state=LedgerState.UNKNOWN)
        assert [row.tool for row in unknown] == ["fail", "slow"]
        operating = await runtime.store.operating()
        assert operating.blocks == {("", "cyd"): 2**50}

"""A duplicate waits for the first by the runtime's clock, and by no other: a machine that stands still for seconds must not turn
a replay into "still running" in one run and not in the next."""

import asyncio
from typing import Any

import pytest
from tests.runtime.bank import kind, meanwhile, open_bank

CALLS = [("read_mail", {"folder": "a"}), ("write_note", {"text": "x"})]


class StalledMachine(asyncio.SelectorEventLoop):
    """Ten seconds pass between any two rounds of the loop."""

    rounds = 0

    def time(self) -> float:
        return super().time() + 10 * self.rounds

    def _run_once(self) -> None:
        self.rounds += 1
        super()._run_once()  # type: ignore[misc]


async def _works_a_little(ctx: Any, args: Any) -> Any:
    await asyncio.sleep(0)
    return {"ok": True, "data": {"done": True}}


@pytest.mark.parametrize(("tool", "args"), CALLS)
@pytest.mark.parametrize("ids", [("c", "c", "c"), (None, None)])
def test_duplicates_get_the_envelope_of_the_first_on_a_machine_that_stalls(
    tool: str, args: Any, ids: tuple[str | None, ...]
) -> None:
    async def story() -> list[str]:
        async with open_bank() as bank:
            bank.book.acts[tool] = _works_a_little
            session, _ = await bank.open(mode="voice")
            work = asyncio.gather(*(session.call(tool, args, call_id=call_id) for call_id in ids))
            answers = await meanwhile(bank.clock, work)
            assert len(bank.book.of(tool)) == 1
            return [kind(answer) for answer in answers]

    loop = StalledMachine()
    try:
        assert set(loop.run_until_complete(story())) == {"OK"}
    finally:
        loop.close()


@pytest.mark.parametrize(("tool", "args"), CALLS)
async def test_a_duplicate_is_told_that_the_first_still_runs_when_its_patience_is_over(tool: str, args: Any) -> None:
    async with open_bank() as bank:
        goes_on = asyncio.Event()

        async def waits(ctx: Any, args: Any) -> Any:
            await goes_on.wait()
            return {"ok": True, "data": {"done": True}}

        bank.book.acts[tool] = waits
        session, _ = await bank.open(mode="voice")
        first = asyncio.ensure_future(session.call(tool, args, call_id="c"))
        second = asyncio.ensure_future(session.call(tool, args, call_id="c"))

        await bank.clock.advance(1.9)
        assert not second.done()
        await bank.clock.advance(0.2)

        assert kind(await second) == "IN_PROGRESS"
        goes_on.set()
        assert kind(await first) == "OK"

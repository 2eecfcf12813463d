"""Who waits for the thread of a store: they are continued with its answer, whatever becomes of the others of their batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from handrail.stores.worker import Job, Worker


def answer_all(batch: Sequence[Job]) -> None:
    for job in batch:
        job.outcome = job.request()


@asynccontextmanager
async def working(carry_out: Callable[[Sequence[Job]], None] = answer_all) -> AsyncIterator[Worker]:
    worker = Worker("test", carry_out)
    try:
        yield worker
    finally:
        await asyncio.to_thread(worker.stop)


async def test_a_task_is_continued_in_the_round_in_which_the_loop_hears_of_the_answer() -> None:
    async with working() as worker:
        happened: list[str] = []

        async def wait() -> None:
            answer = worker.submit(lambda: "outcome")
            # What is called back stands in the queue of the loop; the task does not.
            answer.add_done_callback(lambda _: happened.append("called back"))
            happened.append(await answer)

        await asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert happened == ["outcome", "called back"]


async def test_everybody_who_waits_for_one_answer_gets_it() -> None:
    async with working() as worker:
        answer = worker.submit(lambda: 1)

        async def wait() -> int:
            return await answer

        assert [*await asyncio.gather(wait(), wait(), answer)] == [1, 1, 1]
        assert await wait() == 1, "also who comes later"


async def test_what_the_request_raises_reaches_who_waits() -> None:
    def refuse(batch: Sequence[Job]) -> None:
        for job in batch:
            job.error = ValueError("no")

    async with working(refuse) as worker:
        with pytest.raises(ValueError, match="no"):
            await worker.submit(lambda: None)


async def test_who_is_cancelled_while_waiting_ends_at_once_and_the_others_go_on() -> None:
    go = threading.Event()

    def carry_out(batch: Sequence[Job]) -> None:
        go.wait(30)
        answer_all(batch)

    async with working(carry_out) as worker:

        async def wait(value: int) -> int:
            return await worker.submit(lambda: value)

        leaving, staying = asyncio.create_task(wait(1)), asyncio.create_task(wait(2))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert not staying.done()
        go.set()
        assert await staying == 2


async def test_a_limit_of_time_ends_the_wait_for_an_answer() -> None:
    go = threading.Event()

    def carry_out(batch: Sequence[Job]) -> None:
        go.wait(30)
        answer_all(batch)

    async with working(carry_out) as worker:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await worker.submit(lambda: None)
        go.set()
        assert await worker.submit(lambda: 1) == 1


def test_a_task_that_ends_the_loop_takes_no_answer_from_the_others() -> None:
    async def leave(worker: Worker) -> None:
        await worker.submit(lambda: None)
        raise SystemExit(3)

    async def stay(worker: Worker) -> int:
        outcome: int = await worker.submit(lambda: 1)
        return outcome

    together: list[int] = []
    go = threading.Event()

    def carry_out(batch: Sequence[Job]) -> None:
        together.append(len(batch))
        go.wait(30)
        answer_all(batch)

    worker = Worker("test", carry_out)
    loop = asyncio.new_event_loop()
    try:
        first = loop.create_task(stay(worker))  # the two after it wait for it, and are answered together
        loop.call_later(0.05, go.set)
        leaving, staying = loop.create_task(leave(worker)), loop.create_task(stay(worker))
        with pytest.raises(SystemExit):
            loop.run_until_complete(asyncio.sleep(30))
        assert isinstance(leaving.exception(), SystemExit)
        assert loop.run_until_complete(asyncio.wait_for(staying, 30)) == 1
        assert first.result() == 1
        assert together[-1] > 1
    finally:
        worker.stop()
        loop.close()

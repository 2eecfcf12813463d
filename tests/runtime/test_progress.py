"""`ctx.progress` is bounded, and never takes the place of a request or a result."""

import pytest
from tests.runtime.kit import PAID, confirmed, reading, writing

from handrail import Intent
from handrail.events import ConfirmationWanted, ConnectionWanted, IntentApplied, LateEnvelope, MessageSent, Progress
from handrail.runtime.session import MAX_WAITING, Events

CHATTY = """
async def execute(args, ctx):
    for number in range(5000):
        ctx.progress(f"{number} " + "x" * 10_000)
    return {"ok": True, "data": 1}
"""


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "thread"])
async def test_a_handler_that_tells_its_progress_without_end_pushes_no_request_out(make_tools, plain):
    source = CHATTY.replace("async ", "") if plain else CHATTY
    tools = {"pay": (confirmed(), PAID), "chat": (reading(), source)}
    async with make_tools(tools) as world:
        session = await world.session(policy={"text": {"retrieval_calls": 100}})
        await session.call("pay", {"q": "a"}, call_id="c1")
        for number in range(60):
            assert (await session.call("chat", {"q": str(number)}, call_id=f"p{number}")).ok
        waiting = list(session.events_queue.attach().waiting)
        assert [event.type for event in waiting].count("confirmation") == 1
        told = [event.data["text"] for event in waiting if event.type == "progress"]
        assert 0 < len(told) <= 50
        assert all(len(text) <= 500 for text in told)


async def test_one_call_tells_only_so_much_at_once_and_the_first_of_it(make_tools):
    async with make_tools({"chat": (writing(), CHATTY)}) as world:
        session = await world.session()
        ear = session.events_queue.attach()
        assert (await session.call("chat", {}, call_id="c1")).ok
        told = [event.data["text"].split()[0] for event in ear.waiting if event.type == "progress"]
        assert told[:20] == [str(number) for number in range(20)]
        assert len(told) < 100


NOISE = {
    "progress": lambda text: Progress(tool_id="chat", call_id=None, text=text),
    "message": lambda text: MessageSent({"type": "image", "url": text}),
    "intent": lambda text: IntentApplied(Intent("SET_PENDING_MESSAGE", {"message": text})),
    "connection_wanted": lambda text: ConnectionWanted(
        connection="mail", label="Mail", tool_id="chat", call_id=None, link=text
    ),
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("listens", [True, False])
def test_what_is_least_makes_room_for_requests_and_results(noise, listens):
    events = Events()
    ear = events.attach() if listens else None
    asked = {"id": "c1", "tool": "pay", "args": {}, "preview": "Pay.", "expires_at": 1, "token": "secret"}
    events.emit(ConfirmationWanted(**asked))
    for number in range(3 * MAX_WAITING):
        events.emit(NOISE[noise](str(number)))
        if number % 1000 == 0:
            events.emit(LateEnvelope(call_id=str(number), tool_id="pay", envelope={"ok": True}))
    waiting = (ear or events.attach()).waiting
    kept = [event for event in waiting if event.type != noise]
    assert [event.type for event in kept] == ["confirmation", "envelope", "envelope", "envelope"]
    assert len(waiting) <= MAX_WAITING
    assert waiting[-1] == NOISE[noise](str(3 * MAX_WAITING - 1)), "the newest stay"

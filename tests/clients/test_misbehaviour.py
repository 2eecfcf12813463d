"""A provider that misbehaves: zero doubled writes, no hang, no lost answer, for each kind of misbehaviour and each provider.

One table: each provider's real SDK, the text agent and a governed runtime, against a local server that plays one fault. The fault
meets the message that makes the calls, or the answer after them, once or every time.
"""

import asyncio

import pytest
from tests.clients.kit import LOOK, PAY, SERVERS, build, open_agent

from handrail.clients import provider_of
from handrail.providers import provider_names
from handrail.testing.servers import FAULTS, Reply
from handrail.testing.servers.script import PLAYED_AGAIN
from handrail.testing.servers.server import halves

PROVIDERS = ("openai", "openai-responses", "anthropic", "gemini", "ollama")
UNMARKED = ("openai without padding", "gemini without ids", "ollama without ids")
"""What these send has no mark by which a doubled piece of text is known."""
PAID = "The rent is paid."
TOLD_TO_BE_CUT = ("truncate", "huge")
"""What was cut is said to be cut, and the user asks again."""
WITHOUT_MARKS = ("drop", "duplicate", "echo", "misfit", "reissue", "reorder")
"""Where it matters that a provider gives no ids; the other cells of these rows are played in long runs."""
CELLS = [
    pytest.param(kind, fault, marks=() if kind in PROVIDERS or fault in WITHOUT_MARKS else pytest.mark.long)
    for kind in SERVERS
    for fault in FAULTS
]
LASTING = [
    pytest.param(kind, fault, marks=pytest.mark.long if fault == "huge" else ())
    for kind in PROVIDERS
    for fault in FAULTS
    if fault in PLAYED_AGAIN - {"echo", "reissue"}
]


def test_the_table_has_every_provider_and_every_variant():
    assert set(SERVERS) == {*PROVIDERS, *UNMARKED}
    text = set(provider_names()) - {"openai-realtime", "gemini-live", "mcp"}
    assert {provider_of(f"{kind}:m") for kind in PROVIDERS} == text


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def tools(built):
    built[0].forget()
    return built


def writes(tools):
    return tools.started().count({"q": "rent"})


@pytest.mark.parametrize(("kind", "fault"), CELLS)
async def test_calls_that_come_with_a_fault_are_made_once_and_answered(tools, kind, fault):
    # A model that was told that its call was refused makes it again; with these it got what it wanted among the rest.
    insist = fault not in ("flood", "echo", "misfit")
    script = [Reply("", [PAY, LOOK], fault=fault, insist=insist), Reply(PAID)]
    async with SERVERS[kind](script) as server, open_agent(tools[1], server, kind) as here:
        async with asyncio.timeout(120):
            answer = await here.say("Pay the rent.")
            assert answer.strip(), "a turn always ends in words"
            if PAID not in answer:
                assert fault in TOLD_TO_BE_CUT
                answer = await here.say("Please go on.")

    assert answer.endswith(PAID)
    assert writes(tools[0]) == 1, "one write, whatever happened"
    assert server.problems == []


@pytest.mark.parametrize(("kind", "fault"), CELLS)
async def test_an_answer_that_comes_with_a_fault_is_not_lost_and_writes_nothing_again(tools, kind, fault):
    """The write is done when the fault comes. What was shown of the answer is not shown twice as if it were new."""
    script = [Reply("", [PAY]), Reply(PAID, fault=fault), Reply(PAID)]
    async with SERVERS[kind](script) as server, open_agent(tools[1], server, kind) as here:
        async with asyncio.timeout(120):
            answer = await here.say("Pay the rent.", "m1")
            broken = [event.data["message"] for event in here.events if event.type == "error"]
            if broken:
                assert "cut off" in answer, "what was shown is not all, and the user is told so"
                answer = await here.say("Pay the rent.", "m1")  # the client sends the message again
            elif fault == "truncate" and answer != PAID:
                assert "too long and broke off here" in answer, "it was cut, and the user is told so"
                answer = await here.say("Please go on.")

    if fault == "duplicate" and kind in UNMARKED:
        answer = PAID if answer == "".join(2 * half for half in halves(PAID)) else answer
    if fault == "flood":  # a message with calls, and the answer after them
        answer = PAID if answer == f"{PAID}\n\n{PAID}" else answer
    assert answer == PAID
    assert writes(tools[0]) == 1
    assert server.problems == []


@pytest.mark.parametrize(("kind", "fault"), LASTING)
async def test_a_fault_that_does_not_pass_ends_the_turn_with_an_error_and_the_talk_can_go_on(tools, kind, fault):
    script = [Reply("", [LOOK, PAY], fault=fault, lasting=True)]
    async with SERVERS[kind](script) as server, open_agent(tools[1], server, kind) as here:
        async with asyncio.timeout(120):
            answer = await here.say("Pay the rent.")
        assert answer.strip(), "a turn always ends in words"
        ended = here.events[-1].data["reason"]
        assert ended in (("error", "length", "rounds") if fault in TOLD_TO_BE_CUT else ("error",)), ended
        errors = [event.data for event in here.events if event.type == "error"]
        assert len(errors) == (ended == "error")
        assert all(
            error["message"].endswith((".", "fails")) and "Traceback" not in error["message"] for error in errors
        )
        assert writes(tools[0]) == 0
        server.say_next(Reply("Hello again."))
        assert (await here.say("Are you there?")).endswith("Hello again.")
        assert server.problems == []


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_what_a_refused_answer_asks_for_is_never_done(tools, kind):
    async with (
        SERVERS[kind]([Reply("", [PAY, LOOK], reason="refusal")]) as server,
        open_agent(tools[1], server, kind) as here,
    ):
        assert await here.say("Pay the rent.") == "Sorry, I cannot help with that."
        assert here.events[-1].data["reason"] == "refusal"
        assert tools[0].started() == []
        server.say_next(Reply("Hello again."))
        assert await here.say("Are you there?") == "Hello again."
        assert server.problems == []


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_doubled_events_are_known_by_their_marks_and_counted(tools, kind):
    laughs = Reply("ha ha ha ha", fault="duplicate")
    async with SERVERS[kind]([laughs]) as server, open_agent(tools[1], server, kind) as here:
        assert await here.say("Laugh.") == "ha ha ha ha"
        assert here.agent.model.counters.duplicates > 1


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_nonsense_between_events_is_counted(tools, kind):
    async with SERVERS[kind]([Reply("Hello.", fault="nonsense")]) as server, open_agent(tools[1], server, kind) as here:
        assert await here.say("Hello?") == "Hello."
        counters = here.agent.model.counters
        assert counters.malformed_events > 3
        assert counters.unknown_events > 0
        assert len(server.requests) == 1


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_stream_that_breaks_after_text_is_not_asked_for_again(tools, kind):
    """What the user has seen is not said twice: the turn ends with an apology, and the conversation can continue."""
    script = [Reply("I will pay now.", [PAY], fault="drop"), Reply("Hello.")]
    async with SERVERS[kind](script) as server, open_agent(tools[1], server, kind) as here:
        answer = await here.say("Pay.")
        assert answer.startswith("I will pay now.")
        assert "cut off" in answer
        assert len(server.requests) == 1
        assert tools[0].started() == []


@pytest.mark.parametrize("fault", ["busy", "down", "reset"])
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_provider_that_could_not_begin_is_asked_again(tools, kind, fault):
    async with SERVERS[kind]([Reply("Hello.", fault=fault)]) as server, open_agent(tools[1], server, kind) as here:
        assert await here.say("Hello?") == "Hello."
        assert [event.type for event in here.events if event.type == "error"] == []
        assert len(server.requests) == 2

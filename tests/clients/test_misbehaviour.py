"""A provider that misbehaves: zero doubled writes, no hang, no lost answer, for each kind of misbehaviour and each provider."""

import asyncio

import pytest
from tests.clients.kit import LOOK, PAY, SERVERS, build, desk

from handrail.testing.servers import FAULTS, Reply


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tools"))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", SERVERS)
async def test_nothing_is_written_twice_nothing_hangs_and_the_answer_comes(built, kind, fault):
    tools, registry = built
    tools.forget()
    # A model that was told that its call was refused makes it again; one that flooded got what it wanted among the rest.
    script = [Reply("", [PAY, LOOK], fault=fault, insist=fault != "flood"), Reply("The rent is paid.")]
    idle = 1.5 if fault == "stall" else 30.0
    async with SERVERS[kind](script) as server, desk(registry, server, kind, idle=idle) as here:
        async with asyncio.timeout(60):
            answer = await here.say("Pay the rent.")
            assert answer.strip(), "a turn always ends in words"
            if "The rent is paid." not in answer:
                assert fault in ("truncate", "huge"), "what was cut is said to be cut, and asked for again"
                answer = await here.say("Please go on.")

    assert answer.endswith("The rent is paid.")
    assert tools.started().count({"q": "rent"}) == 1, "one write, whatever happened"
    assert server.problems == []


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_nonsense_between_events_is_counted(built, kind):
    _, registry = built
    async with SERVERS[kind]([Reply("Hello.", fault="nonsense")]) as server, desk(registry, server, kind) as here:
        assert await here.say("Hello?") == "Hello."
        counters = here.agent.model.counters
        assert counters.malformed_events > 3
        assert counters.unknown_events > 0
        assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_a_stream_that_breaks_after_text_is_not_asked_for_again(built, kind):
    """What the user has seen is not said twice: the turn ends with an apology, and the conversation can go on."""
    tools, registry = built
    tools.forget()
    script = [Reply("I will pay now.", [PAY], fault="drop"), Reply("Hello.")]
    async with SERVERS[kind](script) as server, desk(registry, server, kind) as here:
        answer = await here.say("Pay.")
        assert answer.startswith("I will pay now.")
        assert "cut off" in answer
        assert len(server.requests) == 1
        assert tools.started() == []


async def test_a_provider_that_is_busy_is_asked_again_before_anything_began(built):
    _, registry = built
    async with SERVERS["openai"]([Reply("Hello.", fault="busy")]) as server, desk(registry, server, "openai") as here:
        assert await here.say("Hello?") == "Hello."
        assert [event.type for event in here.events if event.type == "error"] == []
        assert len(server.requests) == 2

"""Servers that give `call_0` to the first call of every message: every wish is carried out, and each once.

Each provider's real SDK, the text agent and a governed runtime, against a local server that counts anew in each message.
"""

import json
from dataclasses import replace

import pytest
from tests.clients.kit import LOOK, PAY, Desk, Hasty, build, desk, spec
from tests.faults.accidents import die
from tests.runtime.conftest import make_tools
from tests.runtime.kit import PAID, confirmed, writing

from handrail import Call
from handrail.agents import AgentPolicy, Conversation, TextAgent
from handrail.clients import open_model
from handrail.testing import CrashAt, Crashed
from handrail.testing.servers import (
    AnthropicServer,
    GeminiServer,
    OllamaServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Reply,
    call,
)

PROVIDERS = {
    "openai": OpenAIChatServer,
    "openai-responses": OpenAIResponsesServer,
    "anthropic": AnthropicServer,
    "gemini": GeminiServer,
    "ollama": OllamaServer,
}
__all__ = ["make_tools"]
PAID_WORDS = Reply("It is paid.")


def counting_anew(kind, script):
    """The local server of a provider that names the calls of every message `call_0`, `call_1`, …"""

    class CountingAnew(PROVIDERS[kind]):
        def frames(self, reply, calls):
            return super().frames(reply, [replace(one, id=f"call_{place}") for place, one in enumerate(calls)])

    return CountingAnew(script)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def tools(built):
    built[0].forget()
    return built


def ended(here):
    """What each call was told, in order: whether it is ok, and whether it was answered from another."""
    cards = [event.data for event in here.events if event.type in ("tool_finished", "tool_refused")]
    return [(card["ok"], bool(card["meta"].get("replayed"))) for card in cards]


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_the_same_payment_asked_for_in_two_turns_is_made_twice(tools, kind):
    script = [Reply("", [PAY]), PAID_WORDS, Reply("", [PAY]), PAID_WORDS]
    async with counting_anew(kind, script) as server, desk(tools[1], server, kind) as here:
        await here.say("Pay the rent.", "m1")
        await here.say("Pay the rent once more.", "m2")
        cards = [event.data["callId"] for event in here.events if event.type == "tool_finished"]

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}]
    assert ended(here) == [(True, False), (True, False)]
    assert len(set(cards)) == 2, "whoever watches can tell the two calls apart"
    assert server.problems == []
    sent = json.dumps(server.requests[-1].body)
    assert sent.count("rent") >= 4, "the model is told of both calls, and of what became of each"


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_later_message_of_the_turn_may_use_an_id_again_for_another_call(tools, kind):
    gas = call("pay", q="gas")
    script = [Reply("", [PAY]), Reply("", [gas]), Reply("", [LOOK]), Reply("", [LOOK]), PAID_WORDS]
    async with counting_anew(kind, script) as server, desk(tools[1], server, kind) as here:
        assert (await here.say("Pay the rent, then the gas.")).endswith("It is paid.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "gas"}, {"q": "rates"}, {"q": "rates"}]
    assert ended(here) == [(True, False)] * 4, "reading again reads again"
    assert server.problems == []


async def test_two_identical_calls_of_one_message_both_run(tools):
    script = [Reply("", [PAY, PAY]), PAID_WORDS]
    async with counting_anew("openai", script) as server, desk(tools[1], server, "openai") as here:
        await here.say("Pay the rent for two months.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}]
    assert server.problems == []


async def test_a_call_that_is_repeated_under_its_id_in_the_same_turn_is_made_once(tools):
    """A cache in between, or a weak model, repeats its message: by id and content it is the call that was made."""
    script = [Reply("", [PAY, PAY]), Reply("", [PAY, PAY]), PAID_WORDS]
    async with counting_anew("openai", script) as server, desk(tools[1], server, "openai") as here:
        await here.say("Pay the rent for two months.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}]
    assert ended(here) == [(True, False), (True, False), (True, True), (True, True)]
    assert server.problems == []


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_message_that_is_sent_again_pays_once(tools, kind):
    """The answer broke off after the payment, and the client sends its message again."""
    script = [Reply("", [PAY]), Reply("It is", fault="drop"), Reply("", [PAY]), PAID_WORDS]
    async with counting_anew(kind, script) as server, desk(tools[1], server, kind) as here:
        await here.say("Pay the rent.", "m1")
        assert any(event.type == "error" for event in here.events)
        server.say_next(*script[2:])
        await here.say("Pay the rent.", "m1")

    assert tools[0].started() == [{"q": "rent"}]
    assert server.problems == []


POINTS = {"before_claim": 1, "after_claim": 0, "after_handler": 1, "after_finish": 1, "before_delivery": 1}
"""Where the process dies, and how often the payment starts in the end; never twice, and not at all where nobody can know."""


@pytest.mark.parametrize("kept", [True, False], ids=["conversation kept", "conversation lost"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_payment_asked_for_once_is_made_once_over_a_crash_and_a_resume(make_tools, point, kept):
    world = make_tools({"pay": (writing(), PAID)}, store="sqlite")
    script = [Reply("", [PAY]), Reply("", [PAY]), PAID_WORDS]
    async with world, counting_anew("openai", script) as server:
        model = open_model(spec("openai"), environment=server.environment, base_url=server.base_url)
        first = world.runtime(crash=CrashAt(point), policy={"lease_ms": 20}, clock=Hasty())
        session = await first.open_session(user="u1")
        conversation = Conversation()
        with pytest.raises(Crashed):
            await talk(first, model, session, conversation)
        await die(world, first)
        second = world.runtime(policy={"lease_ms": 20}, clock=Hasty())
        again = await second.resume_session(session.id, token=session.token)
        document = conversation.to_dict() if kept else Conversation().to_dict()
        told = await talk(second, model, again, Conversation.from_dict(document))
        await model.close()

    assert told[-1].type == "done"
    assert world.starts == POINTS[point]
    assert server.problems == []


async def talk(runtime, model, session, conversation):
    agent = TextAgent(runtime, model, policy=AgentPolicy(guide_tokens=0))
    return [event async for event in agent.run(session, conversation, "Pay the rent.", message_id="m1")]


async def test_an_approved_call_is_told_under_its_id_and_the_next_turn_asks_anew(make_tools):
    world = make_tools({"pay": (confirmed(), PAID)})
    script = [Reply("", [PAY]), Reply("It waits."), Reply("Done.")]
    async with world, counting_anew("openai", script) as server:
        model = open_model(spec("openai"), environment=server.environment, base_url=server.base_url)
        runtime = world.runtime()
        here = Desk(TextAgent(runtime, model, policy=AgentPolicy(guide_tokens=0)), await runtime.open_session())
        await here.say("Pay the rent.")
        (wanted,) = [event.data for event in here.events if event.type == "confirmation"]
        ear = here.session.events_queue.attach()
        assert (await runtime.approve(wanted["id"], token=wanted["token"])).ok
        (late,) = [event.data for event in ear.waiting if event.type == "envelope"]
        assert late["callId"] == "call_0"
        await here.agent.late(here.session, here.conversation, late)
        await model.close()

    assert '(call \\"call_0\\")' in json.dumps(server.requests[-1].body)
    assert world.starts == 1


async def test_two_calls_of_one_message_under_one_id_cannot_both_be_answered(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        session = await world.session()
        calls = [
            Call("pay", {"q": "a"}, "call_0", "openai-chat", "message"),
            Call("pay", '{"q":"a"}', "call_0", "openai-chat", "message"),
            Call("pay", {"q": "b"}, "call_0", "openai-chat", "message"),
        ]
        first, same, other = await session.call_many(calls)
        assert first.ok
        assert same.meta["replayed"] is True
        assert other.error.type == "CONFLICT"
        assert world.starts == 1

"""Servers that give `call_0` to the first call of every message: every wish is carried out, and each once.

Each provider's real SDK, the text agent and a governed runtime, against a local server that counts anew in each message.
"""

import json
from dataclasses import replace

import pytest
from tests.clients.kit import LOOK, PAY, AgentCase, Hasty, build, open_agent, spec
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


RESPONSE_IDS = {"fresh": "answer-{}", "constant": "answer", "none": None}
"""The ids that a server gives to its answers."""


def counting_anew(kind, script, response_ids="fresh"):
    """The local server of a provider that names the calls of every message `call_0`, `call_1`, …"""

    class CountingAnew(PROVIDERS[kind]):
        def frames(self, reply, calls):
            return super().frames(reply, [replace(one, id=f"call_{place}") for place, one in enumerate(calls)])

        def response_id(self, number):
            template = RESPONSE_IDS[response_ids]
            return template and template.format(number)

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
    async with counting_anew(kind, script) as server, open_agent(tools[1], server, kind) as here:
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
    async with counting_anew(kind, script) as server, open_agent(tools[1], server, kind) as here:
        assert (await here.say("Pay the rent, then the gas.")).endswith("It is paid.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "gas"}, {"q": "rates"}, {"q": "rates"}]
    assert ended(here) == [(True, False)] * 4, "reading again reads again"
    assert server.problems == []


async def test_two_identical_calls_of_one_message_both_run(tools):
    script = [Reply("", [PAY, PAY]), PAID_WORDS]
    async with counting_anew("openai", script) as server, open_agent(tools[1], server, "openai") as here:
        await here.say("Pay the rent for two months.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}]
    assert server.problems == []


WITH_RESPONSE_IDS = [kind for kind in PROVIDERS if kind != "ollama"]


@pytest.mark.parametrize("kind", WITH_RESPONSE_IDS)
async def test_an_identical_call_of_a_new_message_in_the_same_turn_is_a_new_call(tools, kind):
    """Pay, look at the answer, pay once more: the second is asked for by a message with a response id of its own."""
    script = [Reply("", [PAY]), Reply("", [PAY]), PAID_WORDS]
    async with counting_anew(kind, script) as server, open_agent(tools[1], server, kind) as here:
        await here.say("Pay the rent for March and, when that is done, the same for April.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}]
    assert ended(here) == [(True, False), (True, False)]
    assert server.problems == []


async def test_the_third_identical_call_of_a_turn_is_a_loop_whatever_message_it_comes_in(tools):
    script = [*(Reply("", [PAY]) for _ in range(3)), PAID_WORDS]
    async with counting_anew("openai", script) as server, open_agent(tools[1], server, "openai") as here:
        await here.say("Pay the rent.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}]
    (refused,) = [event.data for event in here.events if event.type == "tool_refused"]
    assert refused["error"]["type"] == "LOOP_DETECTED"


@pytest.mark.parametrize("kind", WITH_RESPONSE_IDS)
async def test_a_message_that_a_cache_repeats_is_made_once(tools, kind):
    """It comes with its own response id a second time, after another message and between two wishes."""
    gas = call("pay", q="gas")
    script = [Reply("", [PAY, gas], fault="echo"), Reply("", [PAY]), PAID_WORDS]
    async with counting_anew(kind, script) as server, open_agent(tools[1], server, kind) as here:
        await here.say("Pay the rent and the gas, then the rent once more.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "gas"}, {"q": "rent"}]
    assert ended(here) == [(True, False), (True, False), (True, True), (True, True), (True, False)]
    assert server.problems == []


@pytest.mark.parametrize(
    ("kind", "response_ids"),
    [*((kind, ids) for kind in WITH_RESPONSE_IDS for ids in ("constant", "none")), ("ollama", "none")],
)
async def test_without_distinct_response_ids_a_repeated_id_with_its_arguments_is_one_write(tools, kind, response_ids):
    """Nothing tells a second wish from a repeated message. Other arguments are another call, and never a conflict."""
    gas = call("pay", q="gas")
    script = [Reply("", [PAY, PAY]), Reply("", [PAY, PAY]), Reply("", [gas]), PAID_WORDS]
    async with counting_anew(kind, script, response_ids) as server, open_agent(tools[1], server, kind) as here:
        await here.say("Pay the rent for two months, and the gas.")

    assert tools[0].started() == [{"q": "rent"}, {"q": "rent"}, {"q": "gas"}]
    assert ended(here) == [(True, False), (True, False), (True, True), (True, True), (True, False)]
    assert server.problems == []


@pytest.mark.parametrize("response_ids", RESPONSE_IDS)
async def test_two_wishes_of_one_turn_are_two_writes_also_after_a_resend(tools, response_ids):
    """Both payments were made in messages of their own when the answer broke off; the resent message makes none."""
    gas = call("pay", q="gas")
    asked = [Reply("", [PAY]), Reply("", [gas]), Reply("", [PAY])]
    script = [*asked, Reply("It is", fault="drop")]
    async with counting_anew("openai", script, response_ids) as server, open_agent(tools[1], server, "openai") as here:
        await here.say("Pay the rent, the gas, and the rent once more.", "m1")
        before = tools[0].started()
        server.say_next(*asked, PAID_WORDS)
        await here.say("Pay the rent, the gas, and the rent once more.", "m1")

    assert before.count({"q": "rent"}) == (2 if response_ids == "fresh" else 1)
    assert tools[0].started() == before
    assert server.problems == []


async def test_a_message_without_a_response_id_may_be_the_one_before_it(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        session = await world.session()
        made = [
            (await session.call_many([Call("pay", {"q": "a"}, "call_0", "openai-chat", "message", response_id)]))[0]
            for response_id in ("r1", None, "r2", "r1")
        ]
        assert [bool(answer.meta.get("replayed")) for answer in made] == [False, True, False, True]
        assert world.starts == 2


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_message_that_is_sent_again_pays_once(tools, kind):
    """The answer broke off after the payment, and the client sends its message again."""
    script = [Reply("", [PAY]), Reply("It is", fault="drop"), Reply("", [PAY]), PAID_WORDS]
    async with counting_anew(kind, script) as server, open_agent(tools[1], server, kind) as here:
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
        here = AgentCase(TextAgent(runtime, model, policy=AgentPolicy(guide_tokens=0)), await runtime.open_session())
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

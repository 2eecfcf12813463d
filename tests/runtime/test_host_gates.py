"""Gates of the host: they refuse or ask a person, in their order, after the key and before the limits, and loosen nothing."""

import asyncio

import pytest
from tests.runtime.kit import FOUND, PAID, asked, audited, confirmed, kind, reading, writing

from handrail import AskPerson, ErrorType, GatedCall, HandrailError, Refuse

TOOLS = {"look": (reading(), FOUND), "pay": (writing(), PAID), "transfer": (confirmed(), PAID)}


class Says:
    """A gate that says what it was told to say, and remembers the calls it saw."""

    def __init__(self, verdict=None, name="house_rules"):
        self.verdict = verdict
        self.name = name
        self.seen: list[GatedCall] = []

    def check(self, call: GatedCall):
        self.seen.append(call)
        return self.verdict(call) if callable(self.verdict) else self.verdict


def refuses(call):
    return Refuse("Not on Sundays.", "AUTH", suggestion="Come back on Monday.", rule="sunday")


def breaks(call):
    raise RuntimeError("a secret")


async def opened(world, *gates, policy=None, **facts):
    runtime = world.runtime(gates=gates, policy=policy)
    return runtime, await world.session(runtime=runtime, **facts)


async def test_a_gate_sees_the_call_as_it_will_run(make_tools):
    gate = Says()
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, gate, user="ana", tenant="north", attributes={"desk": {"no": 7}})

        assert (await session.call("look", '{"q": "a"}', call_id="c1", provider="gemini")).ok

        (call,) = gate.seen
        assert (call.tool_id, call.tool_version, call.writes, call.args) == ("look", "1.0.0", False, {"q": "a"})
        assert (call.call_id, call.provider, call.user, call.tenant) == ("c1", "gemini", "ana", "north")
        assert (call.session_id, call.mode, call.turn, call.held) == (session.id, "text", 1, False)
        assert call.attributes["desk"] == {"no": 7}


async def test_nothing_that_a_gate_sees_can_be_changed(make_tools):
    def meddles(call):
        with pytest.raises(TypeError):
            call.args["q"] = "other"
        with pytest.raises(TypeError):
            call.attributes["desk"]["no"] = 8
        with pytest.raises(AttributeError):
            call.tool_id = "pay"

    async with make_tools(TOOLS) as world:
        _, session = await opened(world, Says(meddles), attributes={"desk": {"no": 7}})
        assert (await session.call("look", {"q": "a"})).ok
        assert world.tools.started() == [{"q": "a"}]


@pytest.mark.parametrize("tool", ["look", "pay", "transfer"])
async def test_a_refusal_reaches_the_model_and_the_audit_under_the_gates_name(make_tools, tool):
    async with make_tools(TOOLS) as world:
        runtime, session = await opened(world, Says(refuses))

        answer = await session.call(tool, {"q": "a"}, call_id="c1")

        assert (kind(answer), answer.error.message) == ("AUTH", "Not on Sundays.")
        assert answer.error.suggestion == "Come back on Monday."
        assert answer.error.partial_side_effects is False
        (line,) = audited(runtime, "refusal")
        assert (line["gate"], line["rule"], line["errorType"]) == ("house_rules", "sunday", "AUTH")
        assert world.starts == 0


@pytest.mark.parametrize("tool", ["look", "pay", "transfer"])
async def test_an_exception_refuses_and_its_text_stays_in_the_log(make_tools, caplog, tool):
    async with make_tools(TOOLS) as world:
        runtime, session = await opened(world, Says(breaks))

        answer = await session.call(tool, {"q": "a"}, call_id="c1")

        assert kind(answer) == "INTERNAL"
        assert "secret" not in str(answer)
        assert "a secret" in caplog.text
        (line,) = audited(runtime, "refusal")
        assert (line["gate"], line["rule"]) == ("house_rules", "exception")
        assert world.starts == 0


@pytest.mark.parametrize("verdict", [True, False, "refuse", Refuse])
async def test_an_answer_that_is_none_refuses(make_tools, verdict):
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, Says(lambda call: verdict))
        assert kind(await session.call("look", {"q": "a"})) == "INTERNAL"
        assert world.starts == 0


@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_a_gate_that_asks_sends_the_call_to_a_person(make_tools, tool):
    gate = Says(AskPerson("a large sum"))
    async with make_tools(TOOLS) as world:
        runtime, session = await opened(world, gate, user="ana")

        answer = await session.call(tool, {"q": "a"}, call_id="c1")
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert world.starts == 0
        (line,) = audited(runtime, "held")
        assert line["gate"] == "house_rules"

        hold, token = await asked(session)
        assert (await runtime.approve(hold, token=token)).ok
        assert world.starts == 1
        assert [call.held for call in gate.seen] == [False, True], "once for the call, once for the approval"


async def test_asking_again_for_what_is_held_gets_the_same_request(make_tools):
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, Says(AskPerson()))
        first, second = [await session.call("look", {"q": "a"}, call_id=name) for name in ("c1", "c2")]
        assert first.error.confirmation_request["id"] == second.error.confirmation_request["id"]


async def test_a_gate_is_asked_again_at_the_approval_and_its_refusal_stands(make_tools):
    gate = Says(AskPerson())
    async with make_tools(TOOLS) as world:
        runtime, session = await opened(world, gate)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold, token = await asked(session)

        gate.verdict = refuses
        assert kind(await runtime.approve(hold, token=token)) == "AUTH"
        assert world.starts == 0

        gate.verdict = None
        assert (await runtime.approve(hold, token=token)).ok, "it stayed open"
        assert world.starts == 1


async def test_a_gate_cannot_spare_a_person_the_question(make_tools):
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, Says(None))
        assert kind(await session.call("transfer", {"q": "a"})) == "CONFIRMATION_REQUIRED"


async def test_a_refusal_stands_although_an_earlier_gate_only_asks(make_tools):
    asks, forbids, never = Says(AskPerson(), "asks"), Says(refuses, "forbids"), Says(None, "never")
    async with make_tools(TOOLS) as world:
        runtime, session = await opened(world, asks, forbids, never)
        assert kind(await session.call("look", {"q": "a"})) == "AUTH"
        assert audited(runtime, "refusal")[0]["gate"] == "forbids"
        assert never.seen == []


async def test_replays_are_answered_without_the_gate(make_tools):
    gate = Says()
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, gate)
        for tool in ("look", "pay"):
            assert (await session.call(tool, {"q": "a"}, call_id=tool)).ok
        gate.verdict = refuses
        for tool in ("look", "pay"):
            assert (await session.call(tool, {"q": "a"}, call_id=tool)).meta["replayed"]
        assert len(gate.seen) == 2
        assert world.starts == 2


async def test_refusals_cost_no_limit(make_tools):
    limit = {"calls": 1, "windowMs": 60_000, "scope": "session"}
    gate = Says(refuses)
    async with make_tools({"look": (reading(rateLimit=limit), FOUND)}) as world:
        _, session = await opened(world, gate, mode="voice")
        for _ in range(4):
            assert kind(await session.call("look", {"q": "a"})) == "AUTH"
        gate.verdict = None
        assert (await session.call("look", {"q": "a"})).ok


async def test_a_model_that_goes_on_after_refusals_is_told_to_stop(make_tools):
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, Says(refuses))
        kinds = [kind(await session.call("pay", {"q": str(number)})) for number in range(7)]
        assert kinds == ["AUTH"] * 5 + ["LOOP_DETECTED"] * 2


async def test_calls_that_are_refused_before_never_reach_it(make_tools):
    gate = Says()
    async with make_tools({"look": (reading(allowedModes=["text"]), FOUND)}) as world:
        _, session = await opened(world, gate, mode="voice")
        assert kind(await session.call("look", {"q": "a"})) == "MODE_RESTRICTED"
        assert kind(await session.call("look", {"p": "a"})) == "MODE_RESTRICTED"
        assert gate.seen == []


@pytest.mark.parametrize(
    ("verdict", "error"), [(refuses, "AUTH"), (AskPerson(), "CONFIRMATION_REQUIRED"), (breaks, "INTERNAL")]
)
async def test_a_gate_set_to_observe_writes_down_and_lets_pass(make_tools, verdict, error):
    async with make_tools(TOOLS) as world:
        runtime, session = await opened(world, Says(verdict), policy={"observe": ["house_rules"]})
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).ok
        (line,) = audited(runtime, "would_refuse")
        assert (line["gate"], line["errorType"]) == ("house_rules", error)
        assert world.starts == 1


async def test_only_gates_that_there_are_can_be_set_to_observe(make_tools):
    async with make_tools(TOOLS) as world:
        with pytest.raises(HandrailError, match='"house_rules" cannot be set to observe'):
            world.runtime(policy={"observe": ["house_rules"]})
        runtime = world.runtime(gates=[Says()])
        with pytest.raises(HandrailError, match=r'"house_ruls" cannot be set to observe; possible are .*house_rules'):
            await runtime.open_session(policy={"observe": ["house_ruls"]})


class Nameless:
    def check(self, call): ...


class Waiting(Says):
    async def check(self, call): ...


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        ([Nameless()], "needs a `name`"),
        ([object()], "needs a `name`"),
        ([Says(name="Office Hours")], "cannot be the name of a gate"),
        ([Says(name="budget")], 'has a gate or a step "budget" itself'),
        ([Says(name="confirmation")], "itself"),
        ([Says(), Says()], "two gates"),
        ([Waiting()], "cannot wait"),
    ],
)
async def test_a_gate_that_cannot_be_used_is_refused_at_the_start(make_tools, gates, words):
    async with make_tools(TOOLS) as world:
        with pytest.raises(HandrailError, match=words):
            world.runtime(gates=gates)


@pytest.mark.parametrize("type", ["CONFIRMATION_REQUIRED", "IN_PROGRESS", "DECLINED", "nonsense"])
def test_a_gate_refuses_with_the_types_of_a_refusal_only(type):
    with pytest.raises(ValueError, match="A gate refuses with"):
        Refuse("No.", type)
    assert Refuse("No.", "AUTH").type is ErrorType.AUTH


def test_a_refusal_without_words_is_none():
    with pytest.raises(ValueError, match="message"):
        Refuse("  ")


async def test_concurrent_calls_are_each_checked(make_tools):
    gate = Says()
    async with make_tools(TOOLS) as world:
        _, session = await opened(world, gate)
        await asyncio.gather(*(session.call("pay", {"q": str(number)}, call_id=str(number)) for number in range(5)))
        assert sorted(call.args["q"] for call in gate.seen) == list("01234")

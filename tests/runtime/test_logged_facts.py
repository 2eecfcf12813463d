"""What is written down so that somebody can follow it later: names, commits, requested values, ages, refusals, long answers."""

import logging

import pytest
from tests.runtime.kit import FOUND, audited, reading, utility

from handrail.observe.metrics import Metrics

COUNTED = {
    "parameters": {
        "type": "object",
        "additionalProperties": False,
        "required": ["q"],
        "properties": {"q": {"type": "string", "description": "Q."}, "top": {"type": "integer", "description": "Top."}},
    },
    "clamp": {"voice": {"top": 3}},
}


async def test_a_clamped_value_is_written_down_as_it_was_requested(make_tools):
    async with make_tools({"look": (reading(**COUNTED), FOUND)}) as world:
        runtime = world.runtime()
        session = await runtime.open_session(mode="voice")
        assert (await session.call("look", {"q": "a", "top": 9})).ok
        [line] = audited(runtime, "execution")
        assert (line["clamped"], line["requested"]) == (["top"], {"top": 9})


async def test_a_requested_value_that_is_redacted_stays_so(make_tools):
    async with make_tools({"look": (reading(**COUNTED), FOUND)}) as world:
        runtime = world.runtime(policy={"redact": ["top"]})
        session = await runtime.open_session(mode="voice")
        assert (await session.call("look", {"q": "a", "top": 9})).ok
        [line] = audited(runtime, "execution")
        assert "9" not in str(line["requested"])


async def test_a_duplicate_says_how_old_its_first_is_and_in_which_turn_it_was(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        runtime = world.runtime()
        session = await runtime.open_session()
        await session.begin_turn("m1")
        await session.call("look", {"q": "a"}, call_id="c1")
        await session.begin_turn("m2")
        assert (await session.call("look", {"q": "a"}, call_id="c1")).meta["replayed"]
        [line] = audited(runtime, "replay")
        assert (line["turnId"], line["firstTurn"]) == (2, 1)
        assert line["ageMs"] >= 0


async def test_the_summary_of_a_turn_counts_what_the_budget_refused(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        runtime = world.runtime(policy={"text": {"retrieval_calls": 1}})
        session = await runtime.open_session()
        await session.begin_turn("m1")
        assert (await session.call("look", {"q": "a"})).ok
        assert not (await session.call("look", {"q": "b"})).ok
        assert not (await session.call("nothing", {})).ok
        await session.end_turn()
        [line] = audited(runtime, "turn_summary")
        assert line["refusals"] == 2


@pytest.mark.parametrize(
    ("mode", "allowed", "words"), [("voice", ["text"], "in writing"), ("text", ["voice"], "spoken")]
)
async def test_a_tool_of_the_other_mode_is_refused_with_what_to_do(make_tools, mode, allowed, words):
    async with make_tools({"look": (utility(allowedModes=allowed), FOUND)}) as world:
        session = await world.runtime().open_session(mode=mode)
        answer = await session.call("look", {"q": "a"})
        assert answer.error.type == "MODE_RESTRICTED"
        assert words in answer.error.suggestion


async def test_whoever_must_sign_in_is_told_to(make_tools):
    async with make_tools({"look": (utility(permissions={"requiresAuth": True}), FOUND)}) as world:
        session = await world.runtime().open_session()
        assert "sign in" in (await session.call("look", {"q": "a"})).error.suggestion


async def test_a_registry_that_is_locked_is_logged_with_its_commit_and_the_names_of_its_tools(make_tools, caplog):
    caplog.set_level(logging.INFO, "handrail.registry")
    async with make_tools({"look": (reading(), FOUND), "note": (utility(), FOUND)}) as world:
        world.runtime()
        said = [record.getMessage() for record in caplog.records if record.name == "handrail.registry"]
        assert any("2 tools: look, note" in one and "commit" in one for one in said)


def test_long_answers_are_logged_once_for_a_tool(caplog):
    caplog.set_level(logging.WARNING, "handrail.metrics")
    metrics = Metrics()
    for _ in range(19):
        metrics.record("look", 1.0, True, None, 2_000)
        metrics.record("note", 1.0, True, None, 1_500)
    assert not caplog.records, "a P95 of so few says nothing"
    for _ in range(3):
        metrics.record("look", 1.0, True, None, 2_000)
        metrics.record("note", 1.0, True, None, 1_500)
    assert [record.getMessage() for record in caplog.records] == [
        'Responses of "look" are long: P95 is 2,000 characters, more than 1,500.'
    ]


async def test_a_tool_that_may_answer_at_length_is_warned_of_as_any_other(make_tools, caplog):
    long = "async def execute(args, ctx):\n    return {'ok': True, 'data': {'text': 'x' * 1_600}}\n"
    async with make_tools({"look": (reading(maxOutputBytes=524_288), long)}) as world:
        runtime = world.runtime()
        session = await runtime.open_session()
        for number in range(20):
            await session.begin_turn(f"m{number}")
            assert (await session.call("look", {"q": "a"})).ok
        (warning,) = runtime.metrics.warnings()
        assert warning.startswith('Responses of "look" are long: P95 is 1,')
        assert warning.endswith(" characters, more than 1,500.")
        assert warning in caplog.text

"""The tools that only compute, through the pipeline: modes, budgets, clamps, loops and replays apply to them as to any other."""

import pytest
from tests.tools.reference import kind, reference

PURE = {
    "extract_contacts": {"text": "Ana Kovac <ana@example.org>"},
    "format_datetime": {"value": "2026-03-29T12:30:00Z"},
    "rank_results": {"items": [{"id": "a", "score": 1}]},
    "validate_email": {"email": "ana@example.com"},
}
SPOKEN = {"format_datetime", "validate_email"}
REFUSED = {
    "extract_contacts": ({"text": "020 7946 0958", "default_region": "UK"}, 'There is no region "UK".'),
    "format_datetime": ({**PURE["format_datetime"], "time_zone": "New York"}, 'There is no time zone "New York".'),
    "rank_results": (
        {"items": [{"id": "a", "score": 1, "date": "0000-01-01"}], "by": "date"},
        'The date "0000-01-01" of item 0 cannot be compared.',
    ),
}


@pytest.fixture(scope="module")
def tools():
    with reference(*PURE) as kit:
        yield kit


@pytest.mark.parametrize("tool", PURE)
async def test_it_is_offered_in_its_modes_only(tools, tool):
    async with tools.runtime() as runtime:
        typed = await runtime.open_session()
        assert (await typed.call(tool, PURE[tool])).ok
        spoken = await runtime.open_session(mode="voice")
        assert kind(await spoken.call(tool, PURE[tool])) == (None if tool in SPOKEN else "MODE_RESTRICTED")


@pytest.mark.parametrize("tool", PURE)
async def test_it_costs_nothing_of_the_retrieval_budget_and_asks_nobody(tools, tool):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        answer = await session.call(tool, PURE[tool], call_id="c1")
        assert answer.meta["budget"] == {"retrieval": 5}


async def test_in_voice_it_counts_among_all_calls_of_the_turn(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        emails = [
            await session.call("validate_email", {"email": f"a{n}@example.com"}, call_id=f"c{n}") for n in range(4)
        ]
        assert [kind(answer) for answer in emails] == [None, None, None, "BUDGET_EXCEEDED"]


@pytest.mark.parametrize("tool", PURE)
async def test_the_same_call_again_is_answered_from_before(tools, tool):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        first = await session.call(tool, PURE[tool], call_id="c1")
        again = await session.call(tool, PURE[tool], call_id="c1")
        assert again.meta["replayed"]
        assert again.data == first.data
        await session.call(tool, PURE[tool], call_id="c2")
        assert kind(await session.call(tool, PURE[tool], call_id="c3")) == "LOOP_DETECTED"


@pytest.mark.parametrize("tool", REFUSED)
async def test_a_semantic_failure_is_a_validation_envelope_with_a_sentence(tools, tool):
    args, sentence = REFUSED[tool]
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        answer = await session.call(tool, args)
        assert kind(answer) == "VALIDATION"
        assert answer.error.message.startswith(sentence)
        assert (answer.error.retryable, answer.error.partial_side_effects) == (False, False)


@pytest.mark.parametrize("style", ["short", "iso", "medium"])
def test_in_voice_a_style_that_cannot_be_read_aloud_is_brought_down(tools, style):
    answer = tools.call("format_datetime", {**PURE["format_datetime"], "style": style}, mode="voice")
    assert answer.meta["clamped"] == ["style"]
    assert answer.data["text"] == tools.call("format_datetime", PURE["format_datetime"]).data["text"]


@pytest.mark.parametrize("tool", PURE)
async def test_two_sessions_at_once_do_not_meet(tools, tool):
    async with tools.runtime() as runtime:
        sessions = [await runtime.open_session(user=name) for name in ("u1", "u2")]
        first, second = [await session.call(tool, PURE[tool], call_id="c1") for session in sessions]
        assert "replayed" not in second.meta
        assert first.data == second.data

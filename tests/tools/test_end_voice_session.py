"""end_voice_session: asks for the end of voice; the orchestrator ends it, not the tool."""

import pytest
from tests.tools.reference import fits, kind, reference, shown

from handrail.stores import SqliteStore


@pytest.fixture(scope="module")
def tools():
    with reference("end_voice_session") as kit:
        yield kit


@pytest.mark.parametrize(
    ("args", "pending"),
    [
        (
            {"reason": "task_complete"},
            {"after": "current_turn", "reason": "task_complete", "closingMessage": None, "textResponse": None},
        ),
        (
            {"reason": "handover", "closing_message": "See you below.", "text_response": "1. A"},
            {
                "after": "farewell_spoken",
                "reason": "handover",
                "closingMessage": "See you below.",
                "textResponse": "1. A",
            },
        ),
    ],
    ids=["after the turn", "after the closing message"],
)
async def test_voice_ends_later_and_the_session_goes_on(tools, args, pending):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        answer = await session.call("end_voice_session", args, call_id="c1")
        assert answer.data["ends_after"] == pending["after"]
        assert [intent.to_dict() for intent in answer.intents] == [{"type": "END_VOICE_SESSION", **pending}]
        assert session.state.get("pendingEndVoiceSession") == pending
        assert session.is_active
        assert session.mode == "voice"


async def test_the_wish_to_end_is_stored_with_the_outcome(tools, tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    async with tools.runtime(store=store) as runtime:
        session = await runtime.open_session(mode="voice")
        await session.call("end_voice_session", {"reason": "inactivity"}, call_id="c1")
        record = await store.load_session(session.id)
        assert record.state["pendingEndVoiceSession"]["reason"] == "inactivity"


async def test_a_replay_asks_for_nothing_again(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        first = await session.call("end_voice_session", {"reason": "user_requested"}, call_id="c1")
        session.state.set("pendingEndVoiceSession", None)
        again = await session.call("end_voice_session", {"reason": "user_requested"}, call_id="c1")
        assert again.meta["replayed"]
        assert (again.data, again.intents) == (first.data, first.intents)
        assert session.state.get("pendingEndVoiceSession") is None


def test_in_text_it_is_refused(tools):
    assert kind(tools.call("end_voice_session", {"reason": "user_requested"})) == "MODE_RESTRICTED"


async def test_it_counts_as_a_call_of_the_voice_turn(tools):
    async with tools.runtime(policy={"voice": {"total_calls": 1}}) as runtime:
        session = await runtime.open_session(mode="voice")
        first = await session.call("end_voice_session", {"reason": "user_requested"}, call_id="c1")
        assert first.meta["budget"]["total"] == 0
        second = await session.call("end_voice_session", {"reason": "inactivity"}, call_id="c2")
        assert kind(second) == "BUDGET_EXCEEDED"


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"reason": "bored"},
        {"reason": "handover", "closing_message": ""},
        {"reason": "handover", "closing_message": "a" * 301},
        {"reason": "handover", "text_response": "a" * 4001},
    ],
    ids=["no reason", "unknown reason", "empty closing", "long closing", "long text"],
)
def test_arguments_outside_of_the_schema_are_refused(tools, args):
    assert kind(tools.call("end_voice_session", args, mode="voice")) == "VALIDATION"


def test_the_examples_of_the_guide_give_what_it_shows(tools):
    for args, response in shown(tools, "end_voice_session"):
        assert response is not None
        assert fits(tools.call("end_voice_session", args, mode="voice"), response)

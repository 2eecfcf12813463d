"""start_voice_session: asks the client to connect, once, and hands over what the user wants."""

import pytest
from tests.tools.reference import fits, kind, reference, sent, shown


@pytest.fixture(scope="module")
def tools():
    with reference("start_voice_session") as kit:
        yield kit


async def test_the_client_is_asked_to_connect_with_what_the_user_wants(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(user="u1")
        answer = await session.call("start_voice_session", {"pending_request": "  Plan the party. "}, call_id="c1")
        assert answer.data == {"session_id": session.id, "pending_request": "Plan the party."}
        assert sent(session) == [
            {"type": "voice_session_start", "sessionId": session.id, "pendingRequest": "Plan the party."}
        ]
        assert session.state.get("pendingMessage") == "Plan the party."
        assert session.mode == "text", "the mode changes when the voice connection is there"


@pytest.mark.parametrize(
    "args", [{}, {"pending_request": ""}, {"pending_request": " \n "}], ids=["none", "empty", "blank"]
)
async def test_without_a_request_nothing_is_handed_over(tools, args):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        answer = await session.call("start_voice_session", args)
        assert answer.data["pending_request"] is None
        assert sent(session)[0]["pendingRequest"] is None
        assert session.state.get("pendingMessage") is None


async def test_the_same_call_again_sends_nothing_again(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        first = await session.call("start_voice_session", {}, call_id="c1")
        again = await session.call("start_voice_session", {}, call_id="c1")
        assert again.meta["replayed"]
        assert (again.data, again.intents) == (first.data, first.intents)
        assert len(sent(session)) == 1


async def test_in_voice_it_is_refused_and_sends_nothing(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        assert kind(await session.call("start_voice_session", {})) == "MODE_RESTRICTED"
        assert sent(session) == []


async def test_while_a_voice_connection_is_open_it_says_so(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        session.voice_open = True
        answer = await session.call("start_voice_session", {"pending_request": "Plan the launch party."})
        assert kind(answer) == "SESSION_ACTIVE"
        assert not answer.error.partial_side_effects
        assert (sent(session), answer.intents) == ([], ())
        assert fits(answer, shown(tools, "start_voice_session")[-1][1])


async def test_after_the_session_has_ended_it_is_refused(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        await session.close()
        assert kind(await session.call("start_voice_session", {})) == "SESSION_INACTIVE"


@pytest.mark.parametrize("args", [{"pending_request": "a" * 501}, {"pending_request": 5}, {"other": 1}], ids=str)
def test_arguments_outside_of_the_schema_are_refused(tools, args):
    assert kind(tools.call("start_voice_session", args)) == "VALIDATION"


def test_the_examples_of_the_guide_give_what_it_shows(tools):
    for args, response in shown(tools, "start_voice_session")[:-1]:
        assert fits(tools.call("start_voice_session", args), response, besides=("session_id",))

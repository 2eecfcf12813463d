"""A tool for some roles does not exist for users without one: not for calls, offers, guides or the catalogue of a session. A tool
whose condition is false is not offered either, and a call of it says why."""

from datetime import UTC, datetime

import pytest
from tests.runtime.kit import FOUND, PAID, audited, kind, reading, writing

from handrail.agents import AgentPolicy, Prompts
from handrail.agents.guides import Guides
from handrail.agents.prompts import offered
from handrail.agents.tool_selection import ToolSelection
from handrail.contract.errors import UsageError
from handrail.picking import pick_tools

TOOLS = {
    "look": (reading(), FOUND),
    "pay": (writing(permissions={"roles": ["manager", "owner"]}), PAID),
    "audit_look": (reading(permissions={"roles": ["auditor"]}), FOUND),
    "known": (reading(permissions={"requiresAuth": True}), FOUND),
    "signed": (reading(availability={"condition": "user.signedIn"}), FOUND),
    "authenticated": (reading(availability={"condition": "user.isAuthenticated"}), FOUND),
    "asks_role": (reading(availability={"condition": '"owner" in user.roles'}), FOUND),
    "on_site": (reading(availability={"condition": "session.onSite"}), FOUND),
}


def names(session, mode=None) -> set[str]:
    return {tool.tool_id for tool in offered(session, mode)}


@pytest.mark.parametrize(
    ("roles", "found"),
    [([], set()), (["manager"], {"pay"}), (["auditor", "clerk"], {"audit_look"}), (["owner"], {"pay", "asks_role"})],
)
async def test_only_tools_for_the_user_s_roles_are_declared_and_found(make_tools, roles, found):
    world = make_tools(TOOLS)
    async with world.runtime() as runtime:
        session = await runtime.open_session(user="ana", attributes={"roles": roles})
        for mode in ("text", "voice"):
            assert names(session, mode) == {"look", "known", "signed", "authenticated"} | found
        for tool in ("pay", "audit_look"):
            answer = await session.call(tool, {"q": "a"})
            assert answer.ok is (tool in found)
            if tool not in found:
                assert kind(answer) == "NOT_FOUND"
                assert "did you mean" not in answer.error.message


async def test_a_false_condition_hides_a_tool_and_a_call_says_that_it_is_unavailable(make_tools):
    world = make_tools(TOOLS)
    async with world.runtime() as runtime:
        nobody = await runtime.open_session()
        assert names(nobody) == {"look"}
        assert kind(await nobody.call("signed", {})) == "UNAVAILABLE"
        assert kind(await nobody.call("authenticated", {})) == "UNAVAILABLE"
        assert kind(await nobody.call("known", {})) == "AUTH"
        there = await runtime.open_session(user="ana", attributes={"onSite": True})
        assert "on_site" in names(there)
        assert "on_site" not in names(await runtime.open_session(user="ana", attributes={"onSite": False}))
        assert (await there.call("authenticated", {})).ok


async def test_prompts_declarations_guides_and_picking_have_only_what_is_offered(make_tools):
    world = make_tools(TOOLS)
    async with world.runtime() as runtime:
        session = await runtime.open_session(user="ana")
        policy = AgentPolicy(max_tools=2, picked_tools=8)
        selection = ToolSelection(Prompts.load(), policy, pick_tools)
        for mode in ("text", "voice"):
            await session.set_mode(mode)
            prompt = await selection.prompt(session, "openai-chat", "pay audit_look", (), datetime.now(UTC), "UTC")
            said = prompt.text + str(prompt.declarations)
            assert "audit_look" not in said
            assert "`pay`" not in said
        guides = Guides.__new__(Guides)
        guides._session = session
        assert guides.get("pay") is None
        assert guides.get("on_site") is None
        assert guides.get("look") is not None
        assert guides.nearest("pai") is None


async def test_roles_are_kept_with_the_session_and_may_be_taken_away(make_tools):
    world = make_tools(TOOLS, store="sqlite")
    here, there = world.runtime(), world.runtime()
    async with here, there:
        first = await here.open_session(user="ana", attributes={"roles": ("manager",)})
        assert (await first.call("pay", {"q": "1"})).ok
        session = await there.resume_session(first.id, token=first.token)
        assert (await session.call("pay", {"q": "2"}, call_id="c2")).ok
        await there.set_roles(session, ["clerk"])
        assert kind(await session.call("pay", {"q": "3"}, call_id="c3")) == "NOT_FOUND"
        assert "pay" not in names(session)
        back = await here.resume_session(first.id, token=first.token)
        assert back.roles == {"clerk"}
        assert kind(await back.call("pay", {"q": "4"}, call_id="c4")) == "NOT_FOUND"
        assert [line["roles"] for line in audited(there, "session_roles")] == [["clerk"]]


async def test_roles_that_are_no_list_are_a_sentence_and_open_nothing(make_tools):
    world = make_tools(TOOLS)
    async with world.runtime() as runtime:
        with pytest.raises(UsageError, match='"roles" of a session must be a list of names'):
            await runtime.open_session(user="ana", attributes={"roles": "manager"})
        assert not runtime.sessions


async def test_sessions_with_the_same_rights_share_their_plans(make_tools):
    """What a role changes is worked out once, not for each session."""
    world = make_tools(TOOLS)
    async with world.runtime() as runtime:
        made = [await runtime.open_session(user=f"u{n}", attributes={"roles": ["manager", f"x{n}"]}) for n in range(3)]
        assert len({id(session.plans) for session in made}) == 1

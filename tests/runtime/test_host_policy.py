"""`[policy.tools.NAME]`: a host asks for more than the author freely, for less with a reason; both are part of the version."""

import shutil

import pytest
from tests.runtime.kit import FOUND, PAID, asked, confirmed, kind, reading, writing

from handrail.contract.errors import ConfigError
from handrail.registry import Registry
from handrail.registry.host_policy import HostPolicy, ToolPolicy

TOOLS = {
    "look": (reading(timeoutMs=4000, rateLimit={"calls": 5, "windowMs": 1000, "scope": "session"}), FOUND),
    "pay": (writing(permissions={"roles": ["manager"]}), PAID),
    "wipe": (confirmed(allowedModes=["text"], confirmation={"channel": "screen"}), PAID),
}


def host(roles=(), **tables) -> HostPolicy:
    policies = {name: ToolPolicy.from_dict(name, table) for name, table in tables.items()}
    return HostPolicy(tools=policies, roles=frozenset(roles))


def loaded(world, policy: HostPolicy) -> Registry:
    registry = Registry.load(world.tools.artifact, host=policy)
    registry.lock()
    return registry


async def test_what_the_host_sets_governs_calls(make_tools):
    world = make_tools(TOOLS)
    world.registry = loaded(
        world,
        host(
            look={"modes": ["voice"], "timeout_ms": 50},
            pay={"requires_confirmation": True, "rate_limit": {"calls": 1, "window_ms": 60000, "scope": "user"}},
        ),
    )
    async with world.runtime() as runtime:
        session = await runtime.open_session(user="ana", attributes={"roles": ["manager"]})
        assert kind(await session.call("look", {})) == "MODE_RESTRICTED"
        assert kind(await session.call("pay", {"q": "a"})) == "CONFIRMATION_REQUIRED"
        assert session.plans["look"].timeout == 0.05
        assert kind(await session.call("pay", {"q": "b"}, call_id="b")) == "RATE_LIMIT"


async def test_the_host_s_condition_adds_to_the_author_s(make_tools):
    world = make_tools({"pay": (writing(confirmation={"when": 'args.q == "a"'}), PAID)})
    world.registry = loaded(world, host(pay={"confirmation_when": 'args.q == "b"'}))
    async with world.runtime() as runtime:
        session = await runtime.open_session()
        answers = [kind(await session.call("pay", {"q": q}, call_id=q)) for q in ("a", "b", "c")]
        assert answers == ["CONFIRMATION_REQUIRED", "CONFIRMATION_REQUIRED", None]


def test_the_policy_is_part_of_the_version_and_of_the_tool_s_hash_alone(make_tools):
    world = make_tools(TOOLS)
    plain, changed = world.registry, loaded(world, host(look={"timeout_ms": 100}))
    again = loaded(world, host(look={"timeout_ms": 100}))
    other = loaded(world, host(look={"timeout_ms": 200}))
    same = loaded(world, host(look={"timeout_ms": 4000}))
    assert len({plain.version, changed.version, other.version}) == 3
    assert changed.version == again.version
    assert same.version == plain.version, "what changes nothing is not a change"
    hashes = [registry.snapshot().tool("look").hash for registry in (plain, changed, other)]
    assert len(set(hashes)) == 3
    assert plain.snapshot().tool("pay").hash == changed.snapshot().tool("pay").hash
    assert changed.metadata("look")["timeoutMs"] == 100


async def test_a_held_call_is_superseded_when_the_host_changed_the_tool(make_tools):
    world = make_tools({"wipe": TOOLS["wipe"]}, store="sqlite")
    here = world.runtime()
    world.registry = loaded(world, host(wipe={"timeout_ms": 5000}))
    there = world.runtime()
    async with here, there:
        session = await here.open_session()
        await session.call("wipe", {"q": "a"})
        held, token = await asked(session)
        await there.resume_session(session.id, token=session.token)
        answer = await there.approve(held, token=token)
        assert kind(answer) == "CONFLICT"
        assert world.starts == 0


@pytest.mark.parametrize(
    ("tool", "table", "name"),
    [
        ("wipe", {"modes": ["text", "voice"]}, "modes"),
        ("wipe", {"requires_confirmation": False}, "requires_confirmation"),
        ("wipe", {"confirmation_channel": "any"}, "confirmation_channel"),
        ("look", {"timeout_ms": 4001}, "timeout_ms"),
        ("pay", {"timeout_ms": 30_001}, "timeout_ms"),
        ("look", {"latency_budget_ms": 501}, "latency_budget_ms"),
        ("look", {"rate_limit": {"calls": 6, "window_ms": 1000, "scope": "session"}}, "rate_limit"),
        ("look", {"rate_limit": {"calls": 5, "window_ms": 999, "scope": "session"}}, "rate_limit"),
        ("pay", {"roles": ["manager", "clerk"]}, "roles"),
        ("pay", {"roles": ["*"]}, "roles"),
    ],
)
def test_to_loosen_needs_a_reason(make_tools, tool, table, name):
    world = make_tools(TOOLS)
    roles = ["manager", "clerk"]
    with pytest.raises(ConfigError, match=f'"{name}" in .policy.tools.{tool}. allows more than') as caught:
        loaded(world, host(roles, **{tool: table}))
    assert str(caught.value).count(". ") == 0
    assert loaded(world, host(roles, **{tool: {**table, "reason": "The office agreed."}})).version


@pytest.mark.parametrize(
    ("tool", "table"),
    [
        ("look", {"modes": ["text"]}),
        ("look", {"requires_confirmation": True}),
        ("look", {"rate_limit": {"calls": 5, "window_ms": 1000, "scope": "user"}}),
        ("look", {"timeout_ms": 4000}),
        ("look", {"max_output_bytes": 100}),
        ("look", {"requires_auth": True}),
        ("look", {"roles": ["clerk"]}),
        ("pay", {"roles": ["manager"]}),
        ("wipe", {"modes": ["text"], "requires_confirmation": True}),
    ],
)
def test_to_tighten_is_free(make_tools, tool, table):
    assert loaded(make_tools(TOOLS), host(["manager", "clerk"], **{tool: table})).version


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"lok": {"modes": ["text"]}}, 'a tool "lok", which there is not; did you mean "look"?'),
        ({"look": {"mode": ["text"]}}, 'has no "mode"; did you mean "modes"?'),
        ({"look": {"modes": []}}, '"modes" in [policy.tools.look] must not be empty.'),
        ({"look": {"modes": ["smell"]}}, 'must be "text" or "voice"'),
        ({"look": {"timeout_ms": "5"}}, "must be a whole number greater than 0"),
        ({"look": {"rate_limit": {"calls": 1}}}, '"rate_limit" in [policy.tools.look] needs'),
        ({"look": {"reason": 5}}, '"reason" in [policy.tools.look] must be text'),
        ({"look": {"confirmation_when": "args.q =="}}, "is not CEL"),
        ({"look": {"confirmation_when": "arg.q == 1"}}, 'Did you mean "args"?'),
        ({"look": {"confirmation_when": "args.qq == 'b'"}}, '"args.qq", which there is not. Did you mean "args.q"?'),
        ({"look": {"confirmation_when": "user.signed == true"}}, '"user.signed", which there is not.'),
        ({"look": {"roles": ["manger"]}}, 'no role "manger", which [policy.tools.look] names; did you mean "manager"?'),
        ({"look": []}, "[policy.tools.look] must be a table."),
    ],
)
def test_what_cannot_be_used_is_one_sentence(make_tools, tables, sentence):
    with pytest.raises(ConfigError) as caught:
        loaded(make_tools(TOOLS), host(**tables))
    assert sentence in str(caught.value)


def test_a_reload_that_does_not_fit_leaves_the_registry_as_it_is(make_tools):
    world = make_tools(TOOLS)
    registry = loaded(world, host(look={"modes": ["text"]}))
    before = registry.generation
    world.tools.write({"pay": (writing(permissions={"roles": ["manager"]}), PAID)})
    shutil.rmtree(world.tools.folder / "look")
    world.tools.rebuild()
    with pytest.raises(ConfigError, match='a tool "look", which there is not'):
        registry.reload()
    assert registry.generation is before

"""Several versions of one tool side by side: chosen by rules, sticky for a session wherever it continues, in audit, metrics and
declarations; a held call runs under its own version or not at all, and a write that is tried again meets its first."""

import json

import pytest
from tests.runtime.kit import FOUND, PAID, Tools, asked, audited, confirmed, kind, reading, writing

from handrail.agents.prompts import offered
from handrail.contract.errors import ConfigError, RegistryError
from handrail.registry import Registry
from handrail.registry.host_policy import HostPolicy
from handrail.registry.version_rules import VersionRules


def named(tool, fields, handler):
    return ({**fields, "toolId": tool}, handler)


def paid_by(label: str) -> str:
    return PAID.replace('"paid"', f'"by": "{label}", "paid"')


TWO = {
    "pay@1": named("pay", writing(version="1.0.0"), paid_by("one")),
    "pay@2": named("pay", writing(version="2.0.0", description="Pays better."), paid_by("two")),
    "look": (reading(), FOUND),
}


def rules(**tables) -> HostPolicy:
    return HostPolicy(versions={name: VersionRules.from_dict(name, table) for name, table in tables.items()})


def loaded(world, host: HostPolicy) -> Registry:
    registry = Registry.load(world.tools.artifact, host=host)
    registry.lock()
    return registry


async def used(session) -> str:
    return (await session.call("pay", {"q": "a"})).data["by"]


async def test_without_a_rule_the_highest_version_is_used(make_tools):
    world = make_tools(TWO)
    async with world.runtime() as runtime:
        assert await used(await runtime.open_session()) == "two"
    assert len(world.registry) == 2
    assert [entry["toolId"] for entry in world.registry.entries()] == ["look", "pay", "pay"]


@pytest.mark.parametrize(
    ("facts", "version"),
    [
        ({"user": "ana", "tenant": "acme", "attributes": {"organisation": "org-7"}}, "one"),
        ({"user": "bob", "tenant": "acme", "attributes": {"organisation": "org-7"}}, "two"),
        ({"user": "bob", "tenant": "acme"}, "one"),
        ({"user": "bob", "tenant": "other"}, "two"),
        ({}, "two"),
    ],
)
async def test_the_most_particular_rule_chooses(make_tools, facts, version):
    world = make_tools(TWO)
    world.registry = loaded(
        world,
        rules(
            pay={
                "default": "2",
                "rules": [
                    {"version": "1", "tenants": ["acme"]},
                    {"version": "2.0", "organisations": ["org-7"]},
                    {"version": "1.0.0", "users": ["ana"]},
                ],
            }
        ),
    )
    async with world.runtime() as runtime:
        assert await used(await runtime.open_session(**facts)) == version


def test_a_share_of_sessions_is_drawn_evenly_and_by_the_session_alone():
    chosen = (
        rules(pay={"default": "1", "rules": [{"version": "2", "share": 20}]})
        .versions["pay"]
        .resolved(("1.0.0", "2.0.0"))
    )
    drawn = [chosen.choose(f"ses_{number:024x}", "", "", None) for number in range(5_000)]
    assert 900 < drawn.count("2.0.0") < 1_100
    assert drawn == [chosen.choose(f"ses_{number:024x}", "t", "o", "u") for number in range(5_000)]
    other = VersionRules.from_dict("send", {"default": "1", "rules": [{"version": "2", "share": 20}]}).resolved(
        ("1.0.0", "2.0.0")
    )
    both = sum(one == "2.0.0" == other.choose(f"ses_{number:024x}", "", "", None) for number, one in enumerate(drawn))
    assert 150 < both < 250, "experiments on two tools do not choose the same sessions"


def test_shares_of_different_scopes_are_drawn_apart():
    chosen = VersionRules.from_dict(
        "pay",
        {"default": "1", "rules": [{"version": "2", "tenants": ["acme"], "share": 50}, {"version": "3", "share": 50}]},
    ).resolved(("1.0.0", "2.0.0", "3.0.0"))
    drawn = [chosen.choose(f"ses_{number:024x}", "acme", "", None) for number in range(4_000)]
    assert 1_850 < drawn.count("2.0.0") < 2_150
    assert 850 < drawn.count("3.0.0") < 1_150, "half of those whom the tenant's rule leaves over"


async def test_a_session_keeps_its_version_in_another_process_with_other_rules(make_tools):
    world = make_tools(TWO, store="sqlite")
    world.registry = loaded(world, rules(pay={"rules": [{"version": "1", "share": 100}]}))
    here = world.runtime()
    world.registry = loaded(world, rules(pay={"rules": [{"version": "2", "share": 100}]}))
    there = world.runtime()
    async with here, there:
        first = await here.open_session()
        await first.begin_turn("m1")
        paid = await first.call("pay", {"q": "a"}, call_id="c1")
        session = await there.resume_session(first.id, token=first.token)
        again = await session.call("pay", {"q": "a"}, call_id="c2")
        assert (paid.data["by"], again.data["by"]) == ("one", "one")
        assert again.meta["replayed"], "the retried write met its first execution"
        assert world.starts == 1
        assert (await there.view_session(first.id, token=first.token)).snapshot.pins == {"pay": "1.0.0"}
        assert await used(await there.open_session()) == "two"
        assert not audited(there, "session_repinned")


async def test_each_session_is_declared_its_own_version(make_tools):
    world = make_tools(TWO)
    world.registry = loaded(world, rules(pay={"default": "1", "rules": [{"version": "2", "users": ["ana"]}]}))
    async with world.runtime() as runtime:
        for user, version, said in (("ana", "2.0.0", "Pays better."), ("bob", "1.0.0", "The tool pay")):
            session = await runtime.open_session(user=user)
            tool = next(tool for tool in offered(session) if tool.tool_id == "pay")
            assert tool.version == version
            schemas = session.snapshot.provider_schemas("openai-chat", "text")
            declared = next(one for one in schemas if one["function"]["name"] == "pay")
            assert said in declared["function"]["description"]
            assert kind(await session.call("pay@1", {})) == "NOT_FOUND"
        assert session.snapshot.version == runtime.registry.version


async def test_audit_lines_and_metrics_name_the_version(make_tools):
    world = make_tools(TWO)
    world.registry = loaded(world, rules(pay={"default": "1", "rules": [{"version": "2", "users": ["ana"]}]}))
    async with world.runtime() as runtime:
        for user in ("ana", "bob"):
            session = await runtime.open_session(user=user)
            await session.call("pay", {"q": "a"})
            await session.call("pay", {"wrong": 1})
            await session.call("look", {"q": "a"})
        lines = [line for line in audited(runtime) if line.get("toolId") == "pay"]
        assert {line["toolVersion"] for line in lines} == {"1.0.0", "2.0.0"}
        assert len(lines) == 4
        assert [line["versions"] for line in audited(runtime, "session_start")] == [{"pay": "2.0.0"}, {"pay": "1.0.0"}]
        numbers = runtime.metrics.to_json()["tools"]
        assert {name: tool["calls"] for name, tool in numbers.items()} == {"look": 2, "pay@1.0.0": 2, "pay@2.0.0": 2}
        text = runtime.metrics.to_prometheus()
        assert 'handrail_tool_calls_total{tool="pay",version="2.0.0"} 2' in text
        assert 'handrail_tool_calls_total{tool="look"} 2' in text


HELD = {
    "pay@1": named("pay", confirmed(version="1.0.0"), paid_by("one")),
    "pay@2": named("pay", confirmed(version="2.0.0"), paid_by("two")),
}


async def test_a_held_call_runs_under_the_version_that_it_was_held_for(make_tools):
    world = make_tools(HELD, store="sqlite")
    world.registry = loaded(world, rules(pay={"rules": [{"version": "1", "share": 100}]}))
    here = world.runtime()
    world.registry = loaded(world, rules(pay={"rules": [{"version": "2", "share": 100}]}))
    there = world.runtime()
    async with here, there:
        session = await here.open_session()
        await session.call("pay", {"q": "a"})
        held, token = await asked(session)
        await here.close()
        answer = await there.approve(held, token=token)
        assert answer.data["by"] == "one"
        assert {line["toolVersion"] for line in audited(there) if line.get("toolId") == "pay"} == {"1.0.0"}


async def test_a_version_that_is_gone_supersedes_its_held_call_and_is_written_down(make_tools, caplog):
    world = make_tools(HELD, store="sqlite")
    world.registry = loaded(world, rules(pay={"default": "1"}))
    here = world.runtime()
    async with here:
        session = await here.open_session()
        await session.call("pay", {"q": "a"})
        held, token = await asked(session)
    later = Tools(world.tools.root.parent / "later")
    later.write({"pay": named("pay", confirmed(version="2.0.0"), paid_by("two"))})
    world.registry = later.build()
    there = world.runtime()
    async with there:
        assert '1 open session is pinned to version 1.0.0 of "pay"' in caplog.text
        resumed = await there.resume_session(session.id, token=session.token)
        assert kind(await there.approve(held, token=token)) == "CONFLICT"
        assert world.starts == 0
        (line,) = [one for one in audited(there, "session_repinned") if "goneVersion" in one]
        assert (line["toolId"], line["goneVersion"], line["toolVersion"]) == ("pay", "1.0.0", "2.0.0")
        assert resumed.snapshot.get("pay").version == "2.0.0"


async def test_a_reload_without_a_version_that_sessions_are_pinned_to_is_refused(make_tools):
    world = make_tools(TWO)
    world.registry = loaded(world, rules(pay={"default": "1"}))
    async with world.runtime() as runtime:
        session = await runtime.open_session()
        before = runtime.registry.generation
        world.tools.write({"pay@1": named("pay", writing(version="1.0.1"), paid_by("one"))})
        world.tools.rebuild()
        with pytest.raises(RegistryError) as caught:
            await runtime.take_registry(runtime.registry.read_again())
        assert str(caught.value).startswith('1 open session is pinned to version 1.0.0 of "pay"')
        assert runtime.registry.generation is before
        assert await used(session) == "one"
        await session.close()
        await runtime.take_registry(runtime.registry.read_again())
        assert runtime.registry.snapshot().tool("pay").version == "1.0.1"


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"pay": {"rules": [{"version": "3", "share": 5}]}},
            'names version "3", which "pay" does not have; it has 1.0.0',
        ),
        ({"pay": {"default": "9"}}, 'names version "9"'),
        (
            {"pay": {"rules": [{"version": "1", "tenants": ["a"]}, {"version": "2", "tenants": ["b", "a"]}]}},
            'Rules 1 and 2 of [versions.pay] overlap: both choose for tenant "a".',
        ),
        (
            {"pay": {"rules": [{"version": "1", "share": 60}, {"version": "2", "share": 50}]}},
            "The rules of [versions.pay] cover 110 % of all sessions; 100 % is all there is.",
        ),
        (
            {"pay": {"rules": [{"version": "1", "users": ["u"], "share": 60}, {"version": "2", "users": ["u"]}]}},
            'cover 160 % of user "u"',
        ),
        ({"pay": {"rules": [{"version": "1"}]}}, "Rule 1 of [versions.pay] says for whom it is by none of"),
        ({"pay": {"rules": [{"version": 1, "share": 5}]}}, '"version" in rule 1 of [versions.pay] must be'),
        ({"pay": {"rules": [{"version": "1", "share": 0}]}}, "must be a number of percent between 0 and 100"),
        ({"pay": {"rules": [{"version": "1", "share": 5, "tenant": "a"}]}}, 'has no "tenant"; did you mean "tenants"?'),
        ({"pay": {"rules": [{"version": "1", "users": ["a"], "tenants": ["b"]}]}}, "cannot stand together"),
        ({"pai": {"default": "1"}}, 'a tool "pai", which there is not; did you mean "pay"?'),
        ({"look": {"default": "2"}}, '"look" does not have; it has 1.0.0.'),
    ],
)
def test_rules_that_cannot_be_used_are_one_sentence(make_tools, tables, sentence):
    world = make_tools(TWO)
    with pytest.raises(ConfigError) as caught:
        loaded(world, rules(**tables))
    assert sentence in str(caught.value)


def test_two_versions_have_hashes_of_their_own_and_one_registry_version(make_tools):
    world = make_tools(TWO)
    versions = world.registry.snapshot().versions["pay"]
    assert len({tool.hash for tool in versions.values()}) == 2
    assert world.registry.snapshot().tool("pay@1").version == "1.0.0"
    document = json.loads(world.tools.artifact.read_bytes())
    assert document["version"] == world.registry.version


def test_sessions_of_one_arm_share_their_view(make_tools):
    """Nothing is worked out for each session."""
    snapshot = make_tools(TWO).registry.snapshot()
    assert snapshot.pinned({"pay": "1.0.0"}) is snapshot.pinned({"pay": "1.0.0"})
    assert snapshot.pinned({"pay": "2.0.0"}) is snapshot
    assert snapshot.pinned({"pay": "1.0.0"}).pinned({"pay": "2.0.0"}).tool("pay").version == "2.0.0"

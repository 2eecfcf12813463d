"""What a host calls the provider of a call: a provider's name, or a label of its own; a misspelt name is refused."""

import pytest
from tests.runtime.kit import reading

from handrail import Call
from handrail.contract.errors import UsageError
from handrail.providers import catalogue

HANDLER = "async def execute(args, ctx):\n    return {'ok': True, 'data': {'found': 1}}\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("opnai", "openai"), ("openai_chat", "openai-chat"), ("Anthropic", "anthropic"), ("gemni-live", "gemini-live")],
)
async def test_a_misspelt_provider_is_refused_at_every_entry_point_with_the_name_that_was_meant(
    make_tools, name, meant
):
    world = make_tools({"look": (reading(), HANDLER)})
    async with world:
        session = await world.session()
        sentence = f'^There is no provider "{name}"; did you mean "{meant}"\\?$'
        for call in (
            lambda: session.call("look", {}, provider=name),
            lambda: session.connection.call("look", {}, provider=name),
            lambda: session.call_many([Call(name="look", args={}, provider=name)]),
        ):
            with pytest.raises(UsageError, match=sentence):
                await call()
        assert (await session.call("look", {}, provider=meant)).ok


@pytest.mark.parametrize(
    "name",
    [
        None,
        "openai",
        "geminiNative",
        "openai-agents",
        "langchain",
        "gemini-2",
        "mcp2",
        "",
        "ž",
        "anthropic-eu",
        "openai-chat-eu",
        "ollama_x",
    ],
)
async def test_a_name_of_the_hosts_own_is_a_label(make_tools, name):
    world = make_tools({"look": (reading(), HANDLER)})
    async with world:
        session = await world.session()
        assert (await session.call("look", {}, provider=name)).ok


async def test_each_name_is_looked_at_once(make_tools, monkeypatch):
    looked = []
    names = catalogue.provider_names
    monkeypatch.setattr(catalogue, "provider_names", lambda: looked.append(1) or names())
    world = make_tools({"look": (reading(), HANDLER)})
    async with world:
        session = await world.session()
        for number in range(5):
            assert (await session.call("look", {"q": str(number)}, provider="openai-chat")).ok
    assert len(looked) == 1

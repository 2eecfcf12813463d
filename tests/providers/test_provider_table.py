"""The table of providers: names, aliases, and what an unknown name is answered with."""

import subprocess
import sys

import pytest

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import UsageError
from handrail.providers import Adapted, adapt, canonical_name, provider_names
from handrail.providers.catalogue import REGISTRATIONS, own_providers

PROVIDERS = own_providers()
ALIASES = {alias: one.name for one in PROVIDERS.values() for alias in one.aliases}

LAMP = ToolDefinition.from_dict(
    {
        "toolId": "set_lamp",
        "version": "1.0.0",
        "description": "Set the brightness of one lamp.",
        "category": "action",
        "sideEffects": "writes",
        "idempotent": True,
        "requiresConfirmation": False,
        "allowedModes": ["text", "voice"],
        "latencyBudgetMs": 500,
        "parameters": {"type": "object", "properties": {"room": {"type": "string"}}, "additionalProperties": False},
    }
)


def test_the_names_are_those_of_the_table_without_aliases():
    assert provider_names() == tuple(PROVIDERS)
    assert len(REGISTRATIONS) == len(PROVIDERS), "two registrations have one name"
    assert "openai-chat" in provider_names()
    assert not set(provider_names()) & set(ALIASES)


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_of_the_table_adapts_a_definition(name: str):
    adapted = adapt(LAMP, name)
    assert isinstance(adapted, Adapted)
    # A format without `additionalProperties` cannot say that the list of properties is complete, and owns up to it.
    assert [(loss.keyword, loss.minor) for loss in adapted.losses] == [("additionalProperties", True)] * (
        name == "ollama"
    )
    assert canonical_name(name) == name


def test_an_alias_means_the_provider_it_stands_for():
    assert canonical_name("openai") == "openai-chat"
    assert adapt(LAMP, "openai") == adapt(LAMP, "openai-chat")


def test_every_alias_stands_for_a_provider_of_the_table():
    assert ALIASES == {"openai": "openai-chat", "geminiNative": "gemini"}
    assert {alias: canonical_name(alias) for alias in ALIASES} == ALIASES


def test_an_unknown_name_is_told_the_nearest_one():
    with pytest.raises(UsageError) as caught:
        adapt(LAMP, "openai-caht")
    message = str(caught.value)
    assert message.startswith('There is no provider "openai-caht"')
    assert all(name in message for name in PROVIDERS)
    assert message.endswith('Did you mean "openai-chat"?')


def test_a_name_like_no_other_is_told_the_known_ones_only():
    with pytest.raises(UsageError) as caught:
        canonical_name("zzz")
    assert "openai-chat" in str(caught.value)
    assert "Did you mean" not in str(caught.value)


def test_an_adapter_is_imported_when_it_is_first_asked_for():
    code = (
        "import sys, handrail.providers.catalogue as catalogue\n"
        "found = catalogue.own_providers().values()\n"
        "named = [module for one in found for module in (one.adapter, one.transport)]\n"
        "loaded = [name for name in named if name in sys.modules]\n"
        "sys.exit(', '.join(loaded) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr

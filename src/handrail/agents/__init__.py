"""Agents: the text loop, its prompts and conversation, and voice.

An agent asks a model, passes the calls that it makes through the session's pipeline, and gives the envelopes back until there
is an answer. It runs no tool itself, and knows no provider: models come through the port of `handrail.contract.model`.

Each name is imported when first used: a program that only calls tools loads the guides' capability from here, and no agent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.agents.conversation import Conversation
    from handrail.agents.events import AgentEvent
    from handrail.agents.policy import AgentPolicy
    from handrail.agents.prompts import Prompts
    from handrail.agents.text_agent import TextAgent

_HOMES = {
    "AgentEvent": "handrail.agents.events",
    "AgentPolicy": "handrail.agents.policy",
    "Conversation": "handrail.agents.conversation",
    "Prompts": "handrail.agents.prompts",
    "TextAgent": "handrail.agents.text_agent",
}

__all__ = ["AgentEvent", "AgentPolicy", "Conversation", "Prompts", "TextAgent"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'handrail.agents' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

"""Agents: the text loop, its prompts and conversation, and voice.

An agent asks a model, passes the calls that it makes through the session's pipeline, and gives the envelopes back until there
is an answer. It runs no tool itself, and knows no provider: models come through the port of `handrail.contract.model`.
"""

from handrail.agents.conversation import Conversation
from handrail.agents.events import AgentEvent
from handrail.agents.policy import AgentPolicy
from handrail.agents.prompts import Prompts
from handrail.agents.text_agent import TextAgent

__all__ = ["AgentEvent", "AgentPolicy", "Conversation", "Prompts", "TextAgent"]

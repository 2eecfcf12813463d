"""The port of a language model, for those who write one: what it is asked, and the events that it answers with."""

from handrail.contract.call import Call, IdScope
from handrail.contract.model import (
    AssistantMessage,
    CallMade,
    Finished,
    HostMessage,
    Message,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolMessage,
    Usage,
    UserMessage,
)

__all__ = [
    "AssistantMessage",
    "Call",
    "CallMade",
    "Finished",
    "HostMessage",
    "IdScope",
    "Message",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "TextDelta",
    "ToolMessage",
    "Usage",
    "UserMessage",
]

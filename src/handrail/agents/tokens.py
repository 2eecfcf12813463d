"""Tokens, estimated as everywhere in Handrail: a token is four characters."""

from __future__ import annotations

from typing import Any

import orjson

from handrail.contract.frozen import for_json
from handrail.contract.model import AssistantMessage, Message, ToolMessage


def tokens_of(text: str) -> int:
    return -(-len(text) // 4)


def tokens_of_json(value: Any) -> int:
    """The tokens of a value as it is sent. What is no JSON counts as its text."""
    try:
        return -(-len(orjson.dumps(value, default=for_json)) // 4)
    except TypeError:
        return tokens_of(str(value))


def tokens_of_message(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return tokens_of_json(message.envelope) + tokens_of(message.name)
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return tokens_of(message.text) + sum(
        tokens_of(call.name) + (tokens_of(call.args) if isinstance(call.args, str) else tokens_of_json(call.args))
        for call in calls
    )

"""The sentence about a failure that a person and a model get."""

import re

from handrail.agents.events import closed
from handrail.contract.envelope import ToolResponse

_QUOTED = re.compile(r'"[^"]*"')
_END = re.compile(r"(?<=[.!?])\s+")


def is_one_sentence(text: str) -> bool:
    plain = _QUOTED.sub('""', text)
    return len(_END.split(plain.strip())) == 1 and plain.endswith(".") and not plain.endswith("..") and "\n" not in text


def told(response: ToolResponse) -> str:
    """What became of an approved call: the same one sentence for the model and the person."""
    assert response.error is not None, response.to_dict()
    event = closed({"confirmationId": "c", "toolId": "t", "envelope": response.to_dict()})
    assert event.data["message"] == response.error.message
    for text in (response.error.message, response.error.suggestion or "None."):
        assert is_one_sentence(text), text
    return response.error.message

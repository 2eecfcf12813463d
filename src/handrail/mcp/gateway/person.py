"""What a server has for the person behind a call: questions, pictures, sounds. None of it reaches a model.

A question goes to the person through the client that made the call, in words that say who asks; where there is no such way it
is declined. A server's wish to ask a model is refused everywhere.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import mcp_types as types

from handrail.contract.errors import ToolError, UsageError
from handrail.contract.hidden_characters import escaped

_MAX_MESSAGE = 2_000
_QUESTION = "question"


async def ask_person(server: str, client: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The person's answer to a server's question; declined where nobody can be asked, or an address is to be opened."""
    if client is None or "elicitation" not in client.can or not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    words = escaped(params.message, "\n")[:_MAX_MESSAGE]
    message = f'The MCP server "{server}" asks (give it no password): {words}'
    asked = {"mode": "form", "message": message, "requestedSchema": params.requested_schema}
    try:
        answers = await client.ask(**{_QUESTION: {"method": "elicitation/create", "params": asked}})
        return types.ElicitResult.model_validate(answers[_QUESTION])
    except (ToolError, UsageError, KeyError, ValueError):
        return types.ElicitResult(action="decline")


def show_blocks(content: Any, client: Any) -> None:
    """Pictures and sounds of a result, for a client that shows them; the envelope says only that they were there."""
    if client is None or not isinstance(content, list):
        return
    for block in content:
        if not isinstance(block, dict) or block.get("type") not in ("image", "audio"):
            continue
        data, kind = block.get("data"), block.get("mimeType")
        if not isinstance(data, str) or not isinstance(kind, str) or not kind.startswith(f"{block['type']}/"):
            continue
        try:
            show = client.image if block["type"] == "image" else client.audio
            show(base64.b64decode(data, validate=True), kind[:100])
        except (binascii.Error, UsageError):
            return

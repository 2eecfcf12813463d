"""A server's question on its way to the person behind the call, and the answer on its way back."""

import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from tests.mcp.gateway.conftest import OneUser, Scripted, free, governed

from handrail.mcp.server.options import McpOptions
from handrail.mcp.server.protocol import McpEndpoint

QUESTION = {
    "message": "Which colour?",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
ASKING = {"call": "ask", "method": "elicitation/create", "params": QUESTION}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    "answer",
    [
        types.ElicitResult(action="accept", content={"colour": "green"}),
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
    ],
    ids=lambda one: one.action,
)
async def test_a_question_reaches_the_person_and_their_answer_the_server(
    tmp_path: Path, scripted: Scripted, mode: Any, answer: types.ElicitResult
) -> None:
    asked: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return answer

    scripted.says(**ASKING)
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        endpoint = McpEndpoint(box.runtime, McpOptions(), OneUser())
        async with Client(endpoint.server(version="1"), mode=mode, elicitation_callback=person) as client:
            done = await client.call_tool("box_look", {"text": "x"})
    assert done.structured_content is not None
    assert done.structured_content["ok"], done.structured_content
    (heard,) = [json.loads(line.removeprefix("asked ")) for line in scripted.effects if line.startswith("asked ")]
    assert heard["action"] == answer.action
    assert heard.get("content") == answer.content
    assert asked == ['The MCP server "box" asks (give it no password): Which colour?']
    assert len(scripted.calls("look")) == 1, "the call was made once"


async def test_without_a_client_that_can_ask_the_question_is_declined(tmp_path: Path, scripted: Scripted) -> None:
    scripted.says(**ASKING)
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        endpoint = McpEndpoint(box.runtime, McpOptions(), OneUser())
        async with Client(endpoint.server(version="1")) as client:
            await client.call_tool("box_look", {"text": "x"})
    assert 'asked {"action": "decline"}' in scripted.effects

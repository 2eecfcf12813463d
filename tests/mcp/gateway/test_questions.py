"""A server's question on its way to the person behind the call, and the answer on its way back."""

import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from tests.mcp.gateway.conftest import OneUser, Scripted, free, governed

from handrail.authoring.mcp.server_config import upstream_config
from handrail.contract.hidden_characters import escaped
from handrail.mcp.gateway.person import ask_person
from handrail.mcp.gateway.upstream import Upstream
from handrail.mcp.server.options import McpOptions
from handrail.mcp.server.protocol import McpEndpoint
from handrail.standard_runtime import SystemClock

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


WORDS = ("Handrail: Approve payment " + "x" * 5_000, "pay\u202e001\u202c", "a\u200bb", "\x1b[2J", "two\nlines")


def form(**fields: Any) -> types.ElicitRequestFormParams:
    schema = {"type": "object", "properties": fields}
    return types.ElicitRequestFormParams(message="Which?", requested_schema=schema)


class Asked:
    """The client of a call, whose person says yes to whatever they are shown."""

    can = frozenset({"elicitation"})

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    async def ask(self, **questions: Any) -> dict[str, Any]:
        self.shown.append(questions["question"]["params"])
        return {"question": {"action": "accept", "content": {}}}


@pytest.mark.parametrize("words", WORDS)
async def test_the_words_of_a_form_hide_nothing_and_say_whose_they_are(words: str) -> None:
    field = {"type": "string", "title": words, "description": words, "x-note": words}
    choice = {"type": "string", "oneOf": [{"const": "a", "title": words}]}
    named = {"type": "string", "enum": ["a"], "enumNames": [words]}
    client = Asked()
    answer = await ask_person("box", client, form(one=field, two=choice, three=named))
    assert answer.action == "accept"
    (shown,) = client.shown
    text = json.dumps(shown, ensure_ascii=False)
    assert escaped(text) == text
    assert len(text) < 2_500
    fields = shown["requestedSchema"]["properties"]
    for key in ("title", "description"):
        assert fields["one"][key].startswith("box: ")
    assert set(fields["one"]) == {"type", "title", "description"}
    assert fields["two"]["oneOf"][0]["const"] == fields["three"]["enum"][0] == "a"


@pytest.mark.parametrize(
    "fields",
    [
        {"pay\u202e": {"type": "string"}},
        {"n" * 65: {"type": "string"}},
        {"one": {"enum": ["a\u200b"]}},
        {"one": {"oneOf": [{"const": "x" * 300, "title": "a"}]}},
        {"one": {"type": "string", "default": "\x1b[2J"}},
        {"one": "text"},
        {f"field{at}": {"type": "string"} for at in range(21)},
        {"one": {"enum": [f"{at:0150}" for at in range(200)]}},
        {"one": {"type": "integer", "maximum": 2**64}},
    ],
    ids=range(9),
)
async def test_a_form_that_cannot_be_shown_as_it_is_is_declined(fields: dict[str, Any]) -> None:
    client = Asked()
    assert (await ask_person("box", client, form(**fields))).action == "decline"
    assert client.shown == []


async def test_an_address_that_a_person_shall_open_is_shown_to_nobody(tmp_path: Path, scripted: Scripted) -> None:
    shown: list[Any] = []

    async def person(context: Any, params: Any) -> types.ElicitResult:
        shown.append(params)
        return types.ElicitResult(action="accept")

    address = {"mode": "url", "message": "Sign in.", "url": "https://evil.example/login", "elicitationId": "1"}
    scripted.says(call="ask", method="elicitation/create", params=address)
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        endpoint = McpEndpoint(box.runtime, McpOptions(), OneUser())
        for mode in ("auto", "legacy"):
            async with Client(endpoint.server(version="1"), mode=mode, elicitation_callback=person) as client:
                done = await client.call_tool("box_look", {"text": mode})
            assert done.structured_content is not None
            assert "evil.example" not in json.dumps(done.structured_content)
    assert scripted.effects.count('asked {"action": "decline"}') == 2
    assert shown == []


async def test_a_question_after_a_call_was_given_up_is_put_to_nobody(tmp_path: Path, scripted: Scripted) -> None:
    asked: list[str] = []

    async def person(params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"colour": "green"})

    config = upstream_config("box", free(scripted))
    server = Upstream(config, environment={}, project=tmp_path, clock=SystemClock(), ask=True)
    try:
        live = await server.connection()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name="look", arguments={}))
        scripted.says(**ASKING)
        assert await server.request(live, request, seconds=10, ask=person)
        assert len(asked) == 1
        scripted.says(call="slow", seconds=0.5)
        with pytest.raises(MCPError):
            await server.request(live, request, seconds=0.1, ask=person)
        # It asks while the next call alone is in flight; the question may be that of the call before.
        scripted.says(**ASKING)
        assert await server.request(live, request, seconds=10, ask=person)
        assert len(asked) == 1
    finally:
        await server.stop()
    assert scripted.effects[-1] == 'asked {"action": "decline"}'

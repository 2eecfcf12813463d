"""A strict mode has no optional arguments: its models send null for what they leave out, and the handler never sees that."""

import pytest
from tests.runtime.kit import FOUND, reading

from handrail.contract.errors import ErrorType

PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["q"],
    "properties": {
        "q": {"type": "string"},
        "limit": {"type": "integer", "default": 5},
        "after": {"type": ["string", "null"]},
    },
}
SENT = '{"q": "a", "limit": null, "after": null}'


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses", "openai"])
async def test_null_for_what_is_left_out_is_left_out(make_tools, provider):
    world = make_tools({"look": (reading(parameters=PARAMETERS, strict=True), FOUND)})
    async with world.runtime() as runtime:
        session = await runtime.open_session()
        response = await session.call("look", SENT, call_id="c1", provider=provider)
        assert response.ok, response
        assert response.meta["defaulted"] == ["/limit"]
        assert world.tools.started() == [{"q": "a", "limit": 5, "after": None}], "a null that the schema knows stays"
        assert (await session.call("look", SENT, call_id="c1", provider=provider)).meta["replayed"]


@pytest.mark.parametrize(
    ("strict", "provider"), [(False, "openai-chat"), (True, "gemini"), (True, "another"), (True, None)]
)
async def test_elsewhere_null_is_a_value(make_tools, strict, provider):
    world = make_tools({"look": (reading(parameters=PARAMETERS, strict=strict), FOUND)})
    async with world.runtime() as runtime:
        session = await runtime.open_session()
        response = await session.call("look", SENT, call_id="c1", provider=provider)
        assert response.error.type is ErrorType.VALIDATION
        assert world.starts == 0

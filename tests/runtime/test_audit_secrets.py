"""Values that must not be shown stand in no line of the audit log, whatever was wrong with them."""

import pytest
from tests.runtime.kit import FOUND, PAID, kind, reading, writing

SECRET = "hunter2-Päss\u00e9"
FORMS = tuple(
    {SECRET.encode(coding) for coding in ("utf-8", "utf-16-le", "utf-16-be")}
    | {SECRET.encode("ascii", "backslashreplace"), b"hunter2"}
)
PIN = {
    "enum": {"enum": ["A-1", "B-2"]},
    "const": {"const": "A-1"},
    "pattern": {"type": "string", "pattern": "^[A-Z]-[0-9]$"},
    "type": {"type": "integer"},
    "maximum length": {"type": "string", "maxLength": 3},
    "format": {"type": "string", "format": "email"},
    "alternatives": {"anyOf": [{"const": "A-1"}, {"enum": ["B-2"]}]},
    "inside": {"type": "object", "properties": {"deep": {"enum": ["A-1"]}}, "additionalProperties": False},
}  # fmt: skip


@pytest.mark.parametrize("hidden_by", ["the schema", "the policy"])
@pytest.mark.parametrize("rule", PIN)
async def test_a_secret_that_the_schema_refuses_is_in_no_file_of_the_audit(make_tools, tmp_path, rule, hidden_by):
    field = {**PIN[rule], "writeOnly": True} if hidden_by == "the schema" else PIN[rule]
    policy = {} if hidden_by == "the schema" else {"redact": ["pin"]}
    parameters = {"type": "object", "properties": {"pin": field}, "required": ["pin"], "additionalProperties": False}
    tools = {
        "look": (reading(parameters=parameters), FOUND),
        "pay": (writing(parameters=parameters), PAID),
    }
    pin = {"deep": SECRET} if rule == "inside" else SECRET
    async with make_tools(tools) as world:
        session = await world.session(runtime=world.runtime(audit=tmp_path / "audit", policy=policy))
        for tool in tools:
            for call_id in ("c1", "c2"):
                answer = await session.call(tool, {"pin": pin}, call_id=f"{tool}-{call_id}")
                assert kind(answer) == "VALIDATION"
        for number in range(8):  # eight refusals are a loop, whose message repeats the last one
            await session.call("look", {"pin": pin, "again": number}, call_id=f"again-{number}")
            await session.call("look", '{"pin": "' + SECRET + '", ', call_id=f"torn-{number}")
    files = [path for path in (tmp_path / "audit").iterdir() if path.is_file()]
    text = b"".join(path.read_bytes() for path in files)
    assert text.count(b'"event":"refusal"') == 20
    assert b"LOOP_DETECTED" in text
    for form in FORMS:
        assert form not in text

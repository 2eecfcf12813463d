"""What is redacted appears in no message: not in the answer to the model, not in the audit, not in the log."""

from typing import Any

import pytest
from tests.runtime.kit import audited, kind, utility

SECRET = "hunter2"
OTHER = "swordfish"
HANDLER = "async def execute(args, ctx):\n    return {'ok': True, 'data': {}}\n"

WRONG: list[tuple[dict[str, Any], Any]] = [
    ({"type": "integer"}, SECRET),
    ({"enum": [OTHER]}, SECRET),
    ({"const": OTHER}, SECRET),
    ({"pattern": f"^{OTHER}$"}, SECRET),
    ({"type": "string", "maxLength": 2}, SECRET),
    ({"not": {"const": SECRET}}, SECRET),
    ({"anyOf": [{"type": "integer"}, {"enum": [OTHER]}]}, SECRET),
    ({"oneOf": [{"const": OTHER}, {"const": "x"}]}, SECRET),
    ({"type": "array", "items": {"const": OTHER}}, [SECRET]),
    ({"type": "array", "contains": {"const": OTHER}}, [SECRET]),
    ({"type": "object", "properties": {"a": {"const": OTHER}}}, {"a": SECRET}),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {SECRET: SECRET}),
    ({"type": "object", "additionalProperties": False}, {SECRET: 1}),
    ({"type": "object", "propertyNames": {"maxLength": 1}}, {SECRET: 1}),
]


async def refused(make_tools: Any, fields: dict[str, Any], args: Any, policy: dict[str, Any]) -> tuple[str, str]:
    world = make_tools({"one": (fields, HANDLER)})
    async with world:
        session = await world.session(runtime=world.runtime(policy=policy))
        answer = await session.call("one", args)
        assert kind(answer) == "VALIDATION"
        lines = audited(session.core, "refusal")
        assert lines
        return str(answer.to_dict()), str(lines)


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return utility(parameters={"type": "object", "additionalProperties": False, "properties": properties})


@pytest.mark.parametrize("how", ["writeOnly", "named", "repaired"])
async def test_a_refusal_tells_the_place_and_neither_the_secret_nor_what_it_may_be(make_tools, how, caplog):
    mark = {"writeOnly": True} if how == "writeOnly" else {}
    policy = {"writeOnly": {}, "named": {"redact": ["PIN"]}, "repaired": {"redact": ["pin"], "repair": True}}[how]
    groups = {f"n{i}": {"type": "object", "properties": {"pin": schema | mark}} for i, (schema, _) in enumerate(WRONG)}
    args = {f"n{i}": {"pin": value} for i, (_, value) in enumerate(WRONG)}
    answer, lines = await refused(make_tools, closed(groups), args, policy)
    for name in groups:
        assert f"/{name}/pin" in answer
    for text in (answer, lines, caplog.text):
        assert SECRET not in text
        assert OTHER not in text


async def test_a_secret_inside_a_listed_object_is_not_told(make_tools):
    listed = {"login": {"enum": [{"user": "a", "pin": OTHER}]}}
    answer, lines = await refused(make_tools, closed(listed), {"login": {"pin": SECRET}}, {"redact": ["pin"]})
    assert SECRET not in answer + lines
    assert OTHER not in answer + lines


async def test_what_is_no_secret_is_told_as_before(make_tools):
    fields = closed({"pin": {"writeOnly": True, "type": "string"}, "size": {"enum": ["small", "large"]}})
    answer, _ = await refused(make_tools, fields, {"pin": SECRET, "size": "huge"}, {"redact": ["token"]})
    assert '"size" must be one of "small", "large"; "huge" was given.' in answer


@pytest.mark.parametrize("how", ["writeOnly", "named"])
async def test_a_bare_value_in_the_place_of_what_holds_a_secret_is_not_told(make_tools, how, caplog):
    token = {"type": "string", "writeOnly": True} if how == "writeOnly" else {"type": "string"}
    holder = {"type": "object", "properties": {"token": token}}
    fields = closed(
        {
            "auth": holder,
            "list": {"type": "array", "items": holder},
            "either": {"anyOf": [holder, {"type": "integer"}]},
            "one": {"oneOf": [{"type": "boolean"}, {"type": "object", "required": ["a"], "properties": {"a": holder}}]},
            "referred": {"$ref": "#/$defs/auth"},
            "option": {"enum": ["x"], "properties": {"token": token}},
            "short": {"maxLength": 2, "properties": {"token": token}},
        }
    )
    fields["parameters"]["$defs"] = {"auth": holder}
    args = dict.fromkeys(fields["parameters"]["properties"], SECRET) | {"list": [SECRET]}
    policy = {"redact": ["token"]} if how == "named" else {}
    answer, lines = await refused(make_tools, fields, args, policy)
    for name in fields["parameters"]["properties"]:
        assert f"/{name}" in answer
    for text in (answer, lines, caplog.text):
        assert SECRET not in text


async def test_a_bare_value_beside_a_secret_is_told(make_tools):
    secret = {"type": "string", "writeOnly": True}
    fields = closed({"auth": {"type": "object", "properties": {"token": secret}}, "count": {"type": "integer"}})
    answer, _ = await refused(make_tools, fields, {"auth": {}, "count": "seven"}, {})
    assert "seven" in answer

"""How each provider reads what it is sent, as JSON Schema: the other side of the adapters, written from the reference.

`read` refuses (by assertion) whatever a provider would refuse or drop without a word.
"""

import json
from typing import Any

OLLAMA = {"type", "description", "enum", "items", "properties", "required", "anyOf"}
GEMINI_JSON = {
    "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems", "minimum",
    "maximum", "anyOf", "properties", "additionalProperties", "required", "$ref", "$defs",
}  # fmt: skip
GEMINI_SCHEMA = {
    "type", "format", "title", "description", "nullable", "default", "example", "enum", "items", "minItems", "maxItems",
    "properties", "required", "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength",
    "pattern", "anyOf",
}  # fmt: skip
ANTHROPIC_STRICT = {
    "type", "properties", "required", "items", "enum", "const", "anyOf", "$ref", "$defs", "title", "description",
    "minItems", "format", "additionalProperties",
}  # fmt: skip
REFUSED_AT_ROOT = {"anyOf", "oneOf", "allOf", "enum", "not"}


def read(provider: str, sent: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema that the arguments must fit, as the provider understands it."""
    match provider:
        case "openai-chat":
            schema = sent["function"]["parameters"]
        case "openai-responses" | "openai-realtime":
            schema = sent["parameters"]
        case "anthropic":
            schema = sent["input_schema"]
            if sent.get("strict"):
                _check_anthropic_strict(schema)
        case "ollama":
            schema = sent["function"]["parameters"]
            assert schema.keys() <= {"type", "properties", "required", "items", "$defs"}
            for one in schema.get("properties", {}).values():
                _check_ollama(one)
        case "gemini" | "gemini-live":
            schema = _gemini(sent)
        case "mcp":
            assert sent["inputSchema"]["type"] == "object"
            return sent["inputSchema"]
        case _:
            raise AssertionError(provider)
    assert schema["type"] == "object"
    assert not schema.keys() & REFUSED_AT_ROOT
    return schema


def _gemini(sent: dict[str, Any]) -> dict[str, Any]:
    assert not {"parameters", "parametersJsonSchema"} <= sent.keys()
    if "parameters" in sent:
        return _from_gemini(sent["parameters"])
    if "parametersJsonSchema" not in sent:
        return {"type": "object", "additionalProperties": False}
    _check_gemini_json(sent["parametersJsonSchema"])
    return sent["parametersJsonSchema"]


def _inside(schema: dict[str, Any]) -> list[Any]:
    held = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    held += schema.get("prefixItems", ())
    return held + [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]


def _check_gemini_json(schema: dict[str, Any]) -> None:
    assert schema.keys() <= GEMINI_JSON
    assert "$ref" not in schema or schema.keys() == {"$ref"}
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    for one in _inside(schema):
        _check_gemini_json(one)


def _check_ollama(schema: dict[str, Any]) -> None:
    """`items` is not looked into: the server passes it on as it is."""
    assert schema.keys() <= OLLAMA
    for one in [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]:
        _check_ollama(one)


def _check_anthropic_strict(schema: dict[str, Any]) -> None:
    assert schema.keys() <= ANTHROPIC_STRICT
    assert isinstance(schema.get("type", ""), str)
    assert schema.get("minItems", 0) <= 1
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= schema["properties"].keys()
    for one in _inside(schema):
        _check_anthropic_strict(one)


def _from_gemini(schema: dict[str, Any]) -> dict[str, Any]:
    assert schema.keys() <= GEMINI_SCHEMA
    assert isinstance(schema.get("type", "OBJECT"), str)
    assert all(isinstance(value, str) for value in schema.get("enum", ()))
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    assert schema.get("type") != "ARRAY" or "items" in schema
    read = {key: value for key, value in schema.items() if key not in ("nullable", "example", "default", "type")}
    if "type" in schema:
        read["type"] = schema["type"].lower()
    if "enum" in schema and schema["type"] in ("INTEGER", "NUMBER"):
        read["enum"] = [json.loads(value) for value in schema["enum"]]
    if schema.get("format") == "enum":
        assert "enum" in schema
        del read["format"]
    for key, inside in (("properties", dict), ("anyOf", list)):
        if key in read and inside is dict:
            read[key] = {name: _from_gemini(one) for name, one in read[key].items()}
        elif key in read:
            read[key] = [_from_gemini(one) for one in read[key]]
    if "items" in read:
        read["items"] = _from_gemini(read["items"])
    return {"anyOf": [read, {"type": "null"}]} if schema.get("nullable") else read

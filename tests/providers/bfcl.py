"""Real function schemas and calls (Berkeley Function Calling Leaderboard), their dialect mapped to JSON Schema."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema_rs import Draft202012Validator

DATA = Path(__file__).parents[1] / "data" / "bfcl_dev.json"
TYPES = {"dict": "object", "float": "number", "tuple": "array"}
LEFT_OUT = ""
"""Among the accepted values of an argument: it may be left out."""


@dataclass(frozen=True)
class Function:
    tool_id: str
    description: str
    parameters: dict[str, Any]
    gold: tuple[dict[str, Any], ...]
    """Arguments of right calls."""


def functions() -> list[Function]:
    """Every function of every item, under a name of its own."""
    found = []
    for item in json.loads(DATA.read_text("utf-8"))["items"]:
        for number, function in enumerate(item["function"]):
            stem = re.sub(r"\W", "_", f"{item['id']}_{number}_{function['name']}", flags=re.ASCII)[:64]
            calls = [call[function["name"]] for call in item.get("ground_truth") or () if function["name"] in call]
            parameters = json_schema(function["parameters"]) | {"additionalProperties": False}
            gold = tuple(args for call in calls for args in accepted_calls(call, parameters))
            found.append(Function(stem, function["description"][:1024], parameters, gold))
    return found


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in JSON Schema. A default may be of another kind (null, "dontcare"), and then that is accepted, too."""
    mapped = {key: value for key, value in schema.items() if key != "optional"}
    if schema["type"] == "any":
        del mapped["type"]
    else:
        mapped["type"] = TYPES.get(schema["type"], schema["type"])
    if "properties" in schema:
        mapped["properties"] = {name: json_schema(one) for name, one in schema["properties"].items()}
    if "items" in schema:
        mapped["items"] = json_schema(schema["items"])
    if "default" in mapped and not Draft202012Validator(mapped).is_valid(mapped["default"]):
        default = mapped.pop("default")
        about = {"description": mapped.pop("description")} if "description" in mapped else {}
        return {"anyOf": [mapped, {"const": default}], "default": default, **about}
    return mapped


def accepted_calls(call: dict[str, list[Any]], parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The call with the first accepted value of every argument, then with each other one in its place."""
    options = {name: accepted(values, parameters["properties"][name]) for name, values in call.items()}
    first = {name: values[0] for name, values in options.items() if values}
    yield first
    for name, values in options.items():
        yield from ({**first, name: value} for value in values[1:])


def accepted(values: list[Any], schema: dict[str, Any]) -> list[Any]:
    """What may be sent; nothing if it is left out. A few lists also accept what the function's own schema refuses
    (false for one of "True", "False"): such a value goes where there is another choice.
    """
    offered = [plain(value, schema) for value in values if value != LEFT_OUT]
    right = [value for value in offered if Draft202012Validator(schema).is_valid(value)]
    return right if right or LEFT_OUT in values else offered


def plain(value: Any, schema: dict[str, Any]) -> Any:
    """An accepted value as a model sends it: inside an object every member is again a list of accepted values."""
    schema = schema.get("anyOf", [schema])[0]
    if isinstance(value, dict) and schema.get("type") == "object":
        known = schema.get("properties", {})
        return {
            name: plain(values[0], known.get(name, {})) if isinstance(values, list) and values else values
            for name, values in value.items()
            if values != [LEFT_OUT]
        }
    if isinstance(value, list) and schema.get("type") == "array":
        return [plain(one, schema.get("items", {})) for one in value]
    return value

"""Judges the offline model by questions of the Berkeley Function Calling Leaderboard: right tool, and right arguments."""

from typing import Any

from handrail.agents.offline import OfflineModel
from handrail.contract.model import CallMade, ModelRequest, UserMessage

TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": "string",
    "String": "string",
    "list": "array",
    "long": "integer",
}
SINGLE = ("simple_python", "live_simple", "multiple", "live_multiple")


async def judged(items: list[dict[str, Any]]) -> dict[str, float]:
    """The share of questions for which the right tool was called, and called with accepted arguments."""
    chosen = arguments = total = 0
    for item in items:
        if item["category"] not in SINGLE or len(item["ground_truth"]) != 1:
            continue
        total += 1
        calls = await _calls(item)
        [(name, accepted)] = item["ground_truth"][0].items()
        if len(calls) == 1 and calls[0][0] == name:
            chosen += 1
            arguments += _fits(calls[0][1], accepted)
    return {"chosen": chosen / total, "arguments": arguments / total, "total": total}


async def _calls(item: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    text = " ".join(message["content"] for message in item["question"][0] if message["role"] == "user")
    functions = [{**function, "parameters": _schema(function["parameters"])} for function in item["function"]]
    # As the prompt would list them: reading tools, since the set does not say what changes anything.
    listed = "\n".join(f"- `{f['name']}` (utility): {' '.join(f['description'].split())}" for f in functions)
    request = ModelRequest(
        system=listed,
        messages=[UserMessage(text)],
        tools=[{"type": "function", "function": function} for function in functions],
        session={"now": "2024-05-01T10:00:00+00:00", "time_zone": "UTC", "mode": "text"},
    )
    events = [event async for event in OfflineModel().stream(request)]
    return [(event.call.name, event.call.args) for event in events if isinstance(event, CallMade)]


def _schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    mapped = {key: _schema(value) for key, value in schema.items()}
    if isinstance(mapped.get("type"), str):
        mapped["type"] = TYPES.get(mapped["type"], mapped["type"])
    return mapped


def _fits(args: dict[str, Any], accepted: dict[str, list[Any]]) -> bool:
    for name, values in accepted.items():
        if name not in args:
            if "" not in values:
                return False
        elif not any(_same(args[name], value) for value in values):
            return False
    return set(args) <= set(accepted)


def _same(given: Any, wanted: Any) -> bool:
    if isinstance(given, str) and isinstance(wanted, str):
        return given.casefold().strip(" .") == wanted.casefold().strip(" .")
    return bool(given == wanted)

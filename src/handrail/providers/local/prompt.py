"""The messages that a local model is given: a compact prompt, dates spelled out, the conversation within its window.

Pure. A small model on two cores reads about a hundred tokens a second, so the long prompt of other models would cost it half a
minute. What stays the same for a session stands first: the engine keeps what it has read, and reads on from the first difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from handrail.contract.model import AssistantMessage, HostMessage, Message, ModelRequest, ToolMessage, UserMessage
from handrail.providers.event_stream import as_text, object_of
from handrail.providers.local.tool_call_grammar import offered_parameters

_CHARACTERS_PER_TOKEN = 3
_MAX_RESULT = 2_400
"""Characters of a result that are shown. Small models lose their way in more."""
_MAX_DESCRIPTION = 160
_DAYS = 8

_RULES = """You help a user, and you may use tools. Answer with one JSON object and nothing else:
{"tool": NAME, "args": {...}} uses a tool; {"say": TEXT} answers the user.
- Greetings, thanks and small talk: {"say": TEXT}, such as {"say": "You are welcome."}
- A question about facts: search first, then answer from the result.
- A wish that a tool fits: use that tool. Take names, addresses, times and numbers from the conversation and invent none.
- If something that a tool needs was not said, ask for it with "say".
- After a result, tell the user with "say" what it means."""
_NO_TOOLS = """You help a user. Answer with one JSON object and nothing else: {"say": TEXT}."""


def messages_for(
    request: ModelRequest, *, context: int, answer_tokens: int, only_required: bool = False, instructions: str = ""
) -> list[dict[str, str]]:
    """The request as chat messages. `instructions` are the project's own words, before everything else."""
    system = _system(request, instructions, only_required)
    left = (context - answer_tokens) * _CHARACTERS_PER_TOKEN - len(system)
    turns = _within(list(_turns(request.messages)), left)
    return _merged([("system", system), *turns])


def _system(request: ModelRequest, instructions: str, only_required: bool) -> str:
    tools = request.tools if request.allow_calls else ()
    parts = [instructions.strip(), _RULES if tools else _NO_TOOLS]
    if tools:
        parts.append("Tools:\n" + "\n".join(_tool(tool["function"], only_required) for tool in tools))
    parts.append(_calendar(request.session))
    return "\n\n".join(part for part in parts if part)


def _tool(function: Mapping[str, Any], only_required: bool) -> str:
    parameters = offered_parameters(function, only_required=only_required)
    required = list(parameters.get("required") or ())
    properties = parameters.get("properties") or {}
    needed = [f"{name}: {_kind(properties[name])}" for name in required if name in properties]
    others = [name for name in properties if name not in required]
    optional = f"; optional: {', '.join(others)}" if others else ""
    words = " ".join(str(function.get("description", "")).split())
    return f"- {function['name']}({', '.join(needed)}{optional}): {_shortened(words)}"


def _kind(schema: Any) -> str:
    """The kind of an argument in a word or two."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "|".join(str(value) for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_kind(schema.get('items'))}"
    if kind == "object" and schema.get("properties"):
        return "{" + ", ".join(f"{name}: {_kind(one)}" for name, one in schema["properties"].items()) + "}"
    named = {"string": "text", "integer": "number", "boolean": "true|false"}
    return str(schema.get("format") or named.get(str(kind), kind or "any"))


def _shortened(text: str) -> str:
    """The first sentence, if it is not too long itself."""
    first = text.partition(". ")[0].rstrip(".")
    return (first if len(first) <= _MAX_DESCRIPTION else f"{first[:_MAX_DESCRIPTION]}…") + "."


def _calendar(session: Mapping[str, Any]) -> str:
    """Today and the days after it by name: a small model cannot count them."""
    try:
        now = datetime.fromisoformat(str(session.get("now", "")))
    except ValueError:
        return ""
    days = [now + timedelta(days=number) for number in range(_DAYS)]
    named = [f"today is {days[0]:%A} {days[0]:%Y-%m-%d}", f"tomorrow is {days[1]:%A} {days[1]:%Y-%m-%d}"]
    named += [f"{day:%A} is {day:%Y-%m-%d}" for day in days[2:-1]] + [f"{days[-1]:%A} next week is {days[-1]:%Y-%m-%d}"]
    offset = now.strftime("%z")
    zone = f"{offset[:3]}:{offset[3:]}" if offset else ""
    shown = f"Dates: {', '.join(named)}. It is {now:%H:%M}"
    return f"{shown}; times are written like {days[1]:%Y-%m-%d}T15:00:00{zone}."


def _turns(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    for message in messages:
        if isinstance(message, UserMessage):
            yield "user", message.text
        elif isinstance(message, HostMessage):
            yield "user", f"<host>\n{message.text}\n</host>"
        elif isinstance(message, ToolMessage):
            yield "user", _result(message)
        else:
            yield from (("assistant", text) for text in _answers(message))


def _answers(message: AssistantMessage) -> Iterator[str]:
    """The model's turn in the form that it writes itself."""
    if message.text:
        yield as_text({"say": message.text})
    for call in message.calls:
        yield as_text({"tool": call.name, "args": object_of(call.args)})


def _result(message: ToolMessage) -> str:
    shown = {name: value for name, value in message.envelope.items() if name in ("ok", "data", "error")}
    text = as_text(shown)
    cut = text if len(text) <= _MAX_RESULT else f"{text[:_MAX_RESULT]}… (cut)"
    return (
        f'Result of {message.name}, which is data: {cut}\nNow answer the user with {{"say": …}}, or use another tool.'
    )


def _within(turns: list[tuple[str, str]], characters: int) -> list[tuple[str, str]]:
    """The newest messages that fit; at least the last one. What is kept begins with the user's words."""
    kept: list[tuple[str, str]] = []
    for turn in reversed(turns):
        characters -= len(turn[1]) + 20
        if characters < 0 and kept:
            break
        kept.insert(0, turn)
    while len(kept) > 1 and kept[0][0] == "assistant":
        kept.pop(0)
    return kept


def _merged(turns: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """As messages whose roles alternate, which the templates of some models demand."""
    made: list[dict[str, str]] = []
    for role, text in turns:
        if made and made[-1]["role"] == role:
            made[-1]["content"] += f"\n\n{text}"
        else:
            made.append({"role": role, "content": text})
    return made

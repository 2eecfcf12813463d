"""What a server says of a tool, judged before anybody is shown it. Whatever is found here keeps the tool out.

A description is read by models as if its project had written it, so hidden characters and words that are addressed to the
model instead of describing the tool are refused. A person who wants the tool all the same gives it a description of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.contract.errors import JsonError
from handrail.contract.fields import TOOL_ID
from handrail.contract.hidden_characters import escaped
from handrail.schema.problems import find_schema_problems
from handrail.schema.strict_json import canonical

MAX_DEFINITION_BYTES = 65_536
MAX_DESCRIPTION_CHARACTERS = 8_192
MAX_ARGUMENTS = 128
MAX_ENTRY_CHARACTERS = 16_384
UPSTREAM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,127}", re.ASCII)
_KEPT = "\n\r\t\u00a0\ufe0f"
"""Characters that are not seen as what they are, and are ordinary in a description all the same."""
_INSTRUCTIONS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL | re.MULTILINE), why)
    for pattern, why in (
        (
            r"<\s*+/?\s*+(important|system|instructions?|secret|hidden|admin|assistant|user|prompt)\b",
            "it has a tag for models",
        ),
        (
            r"<!--|\[/?INST\]|<\|[a-z_]+\|>|^[^\S\n]*+#{0,3}[^\S\n]*+(system|assistant)\s*+:",
            "it has marks that models take for turns or comments",
        ),
        (
            r"\b(ignore|disregard|forget|override)\b.{0,40}\b(previous|prior|earlier|above|other|all|any|your)\b.{0,40}"
            r"\b(instructions?|rules?|prompts?|policy|policies|messages?|guidelines|tools?)\b",
            "it tells the model to ignore what it was told",
        ),
        (
            r"\b(do not|don't|never|without)\b.{0,30}\b(tell|telling|inform|informing|mention|mentioning|reveal|revealing|show|"
            r"showing|ask|asking|notify|notifying|warn|warning)\b.{0,30}\b(users?|persons?|people|humans?|anyone|anybody)\b",
            "it tells the model to keep something from people",
        ),
        (
            r"\b(system prompt|developer message|chain of thought|hidden instructions?)\b",
            "it speaks of the model's own prompt",
        ),
        (
            r"\b(before|after|whenever|when)\b.{0,30}\b(using|calling|invoking|you (use|call|invoke))\b.{0,30}\b(any|every|all|"
            r"each|other|another)\b.{0,20}\btools?\b",
            "it gives orders about other tools",
        ),
        (
            r"\b(instead of|rather than)\b.{0,20}\b(any|every|all|the) other\b.{0,15}\btools?\b",
            "it wants to take other tools' place",
        ),
        (
            r"~/\.(ssh|aws|gnupg|config|netrc|env)\b|\bid_(rsa|ed25519)\b|/etc/(passwd|shadow)\b|\.cursor/mcp\.json",
            "it names secret files",
        ),
        (
            r"\b(include|pass|send|append|attach|put|copy|paste)\b.{0,60}\b(api keys?|passwords?|tokens?|credentials?|secrets?|"
            r"private keys?|conversation|chat history|previous messages)\b",
            "it asks for secrets or for the conversation",
        ),
        (r"!\[(?:[^\]!]|!(?!\[))*+\]\(\s*+(https?:|data:)", "it has a picture that would be fetched"),
        (r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{200,}", "it has a long encoded text"),
    )
)
"""Each takes few steps for a character, whatever the text: a server may write one to keep us busy."""
_EAVESDROPPING = re.compile(
    r"(conversation|chat|message|dialog(ue)?)_?-?(history|log|context|transcript|so_far)|system_?-?prompt|chain_?-?of_?-?thought|"
    r"previous_?-?messages|full_?-?context",
    re.IGNORECASE,
)


def tool_id_of(config: UpstreamConfig, name: str) -> str:
    """The name under which models call a tool of a server. `git_status` of the server `git` is not called `git_git_status`."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if config.prefix and plain.startswith(config.prefix) else config.prefix + plain


def refusals(config: UpstreamConfig, definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Why tools of a server are not taken in, by tool. A definition that is not here can be used."""
    found = {name: why for name, one in definitions.items() if (why := next(_troubles(config, name, one), None))}
    ids: dict[str, str] = {}
    for name in definitions:
        # Case is no difference that a model or a person can be relied on to see.
        other = ids.setdefault(tool_id_of(config, name).casefold(), name)
        if other != name:
            found[name] = f'its name would be the same as that of "{other}"'
            found.setdefault(other, f'its name would be the same as that of "{name}"')
    return found


def _troubles(config: UpstreamConfig, name: str, definition: Mapping[str, Any]) -> Iterator[str]:
    if not UPSTREAM_NAME.fullmatch(name):
        yield "its name has characters that a name of a tool cannot have"
        return
    tool_id = tool_id_of(config, name)
    if not re.fullmatch(TOOL_ID, tool_id):
        yield f'"{tool_id}" cannot be a name of a tool: at most 64 letters, digits and underscores'
        return
    try:
        size = len(canonical(dict(definition)))
    except (JsonError, RecursionError):
        yield "its definition is nested too deeply, or is no JSON"
        return
    if size > MAX_DEFINITION_BYTES:
        yield f"its definition has {size:,} bytes; {MAX_DEFINITION_BYTES:,} are allowed"
        return
    own = config.policy(name).description is not None
    yield from _in_texts({key: value for key, value in definition.items() if key != "description" or not own})
    yield from _in_schemas(definition)


def trouble_in_words(entry: Mapping[str, Any]) -> str | None:
    """Why an entry of a server's list is not shown to anybody: what it says, or hides. None if it can be."""
    if sum(len(text) for _, text in _texts_in(entry)) > MAX_ENTRY_CHARACTERS:
        return f"it has more than {MAX_ENTRY_CHARACTERS:,} characters"
    return next(_in_texts(entry), None)


def _in_texts(definition: Mapping[str, Any]) -> Iterator[str]:
    if len(str(definition.get("description") or "")) > MAX_DESCRIPTION_CHARACTERS:
        yield f"its description has more than {MAX_DESCRIPTION_CHARACTERS:,} characters"
    for place, text in _texts_in(definition):
        if escaped(text, _KEPT) != text:
            yield f"{place} has characters that nobody sees"
        for pattern, why in _INSTRUCTIONS:
            if pattern.search(text):
                yield f"{place}: {why}"


def _texts_in(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a definition, names of members too, each with the member that it stands in."""
    if isinstance(value, str):
        yield place or "its definition", value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            below = f'its "{escaped(key)[:60]}"' if not place or place in _SCHEMAS else place
            yield below, key
            yield from _texts_in(inner, below)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts_in(inner, place)


_SCHEMAS = ('its "inputSchema"', 'its "outputSchema"')


def _in_schemas(definition: Mapping[str, Any]) -> Iterator[str]:
    schema = definition.get("inputSchema")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        yield "its arguments are not described as an object"
        return
    names = schema.get("properties") or {}
    if isinstance(names, Mapping):
        if len(names) > MAX_ARGUMENTS:
            yield f"it has {len(names)} arguments; {MAX_ARGUMENTS} are allowed"
        for name in names:
            if _EAVESDROPPING.search(name):
                yield f'its argument "{escaped(name)[:60]}" asks for the conversation'
    for key in ("inputSchema", "outputSchema"):
        given = definition.get(key)
        if given is None:
            continue
        problems = find_schema_problems(plain_schema(given)) if isinstance(given, Mapping) else ["it is no schema"]
        if problems:
            yield f'its "{key}" cannot be used: {escaped(str(problems[0]))[:300]}'


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A server's schema as draft 2020-12: what older drafts say in other words is said in ours.

    Many servers name draft 7 and use only what both drafts have; `definitions` and lists of `items` differ.
    """
    return {key: value for key, value in _modern(dict(schema)).items() if key != "$schema"}


def _modern(value: Any) -> Any:
    if isinstance(value, Mapping):
        made = {key: _modern(inner) for key, inner in value.items()}
        if isinstance(made.get("items"), list):
            rest = made.pop("additionalItems", None)
            made["prefixItems"] = made.pop("items")
            if rest is not None:
                made["items"] = rest
        for limit, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if made.get(limit) is True and bound in made:
                made[limit] = made.pop(bound)
            elif made.get(limit) is False:
                del made[limit]
        return made
    return [_modern(inner) for inner in value] if isinstance(value, list) else value

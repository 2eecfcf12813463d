"""How much one request to a provider may offer. More is refused with the whole request, so it is said beforehand.

What one tool's schema may hold is the adapters' business; this is about the tools of a request together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.contract.providers import without_alias
from handrail.providers.strict_mode import every_schema

MAX_TOOLS = {
    "openai-chat": 128,
    "openai-responses": 128,
    "openai-realtime": 128,
    "gemini": 512,
    "gemini-live": 512,
}
MAX_STRICT_TOOLS = 20
MAX_STRICT_OPTIONAL = 24
MAX_STRICT_UNIONS = 16


def exceeded(provider: str, schemas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What stands against offering these tools together, as ends of a sentence that begins with the provider."""
    name = without_alias(provider)
    most = MAX_TOOLS.get(name)
    if most is not None and len(schemas) > most:
        yield f"takes at most {most} tools in one request; these are {len(schemas):,}"
    if name == "anthropic":
        yield from _strict_together([schema["input_schema"] for schema in schemas if schema.get("strict")])


def optional_and_unions(schema: Mapping[str, Any]) -> tuple[int, int]:
    """How many properties in a strict schema of Anthropic's are optional, and how many have alternatives."""
    every = list(every_schema(schema))
    optional = sum(len(one.get("properties", {})) - len(one.get("required", ())) for one in every)
    unions = sum("anyOf" in inside for one in every for inside in one.get("properties", {}).values())
    return optional, unions


def _strict_together(schemas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counted = [optional_and_unions(schema) for schema in schemas]
    optional, unions = (sum(one[place] for one in counted) for place in (0, 1))
    if len(schemas) > MAX_STRICT_TOOLS:
        yield f"takes at most {MAX_STRICT_TOOLS} strict tools in one request; these are {len(schemas):,}"
    if optional > MAX_STRICT_OPTIONAL:
        yield f"takes at most {MAX_STRICT_OPTIONAL} optional properties in all strict tools; these have {optional:,}"
    if unions > MAX_STRICT_UNIONS:
        yield f"takes at most {MAX_STRICT_UNIONS} properties with alternatives in all strict tools; these have {unions:,}"

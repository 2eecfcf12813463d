"""A definition as a function tool of Chat Completions. Pure; no SDK.

Without `strict` the parameters pass as they are, as hints, save for what OpenAI refuses beside the root's
`type: object`: that is told in the tool's description, and always reported, since words bind nobody. With `strict` they
are rewritten by `strict.py`, or sent as without it where that is impossible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers.adapted import Adapted, Loss
from handrail.providers.flatten import Clash, Part, Parts, flatten
from handrail.providers.openai_chat.strict import Strict, to_strict
from handrail.providers.words import conditional, phrase, with_phrases
from handrail.schema.subschemas import Json, LocalRefs, unconditional

_REFUSED_AT_ROOT = ("anyOf", "oneOf", "not", "enum", "if")
"""As is `allOf`, which can mostly be merged into the root."""
_MAX_DESCRIPTION = 1024


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `tools`, and what it could not say."""
    root = definition.parameters
    taken = [keyword for keyword in _REFUSED_AT_ROOT if keyword in root]
    strict = _strict(root, taken) if definition.strict else None
    if strict is not None and strict.schema is not None:
        return _adapted(definition, strict.schema, taken, strict.losses, strict=True)
    parameters = _without(root, taken)
    if "allOf" in parameters:
        merged = _merged(parameters)
        if merged is None:
            taken.append("allOf")
        parameters = merged or _without(parameters, ["allOf"])
    if added := _only_in_branches(root, taken):
        parameters = {**parameters, "properties": {**parameters.get("properties", {}), **added}}
    return _adapted(definition, thaw(parameters), taken, strict.losses if strict else ())


def _adapted(
    definition: ToolDefinition,
    parameters: dict[str, Json],
    taken: Sequence[str],
    losses: Sequence[Loss],
    *,
    strict: bool = False,
) -> Adapted:
    root = definition.parameters
    sentences = [(conditional(root) if keyword == "if" else phrase(keyword, root[keyword])) + "." for keyword in taken]
    description = with_phrases(definition.description, sentences)
    if len(description) > _MAX_DESCRIPTION:  # of a function; that of a schema may be longer
        description = definition.description
        parameters["description"] = with_phrases(parameters.get("description", ""), sentences)
    function = {"name": definition.tool_id, "description": description, "parameters": parameters}
    told = [Loss(keyword, f"/{keyword}", "refused at the root, so put into the description") for keyword in taken]
    schema = {"type": "function", "function": {**function, "strict": True} if strict else function}
    return Adapted(schema, (*told, *losses))


def _strict(root: Mapping[str, Json], taken: Sequence[str]) -> Strict:
    if _only_in_branches(root, taken):
        done = "its properties cannot be listed at the root in strict mode, so the tool is sent non-strict"
        return Strict(None, tuple(Loss(keyword, f"/{keyword}", done) for keyword in taken))
    return to_strict(_without(root, taken))


def _without(root: Mapping[str, Json], taken: Sequence[str]) -> dict[str, Json]:
    gone = {*taken, "then", "else"} if "if" in taken else set(taken)
    return {keyword: value for keyword, value in root.items() if keyword not in gone}


def _merged(root: Mapping[str, Json]) -> dict[str, Json] | None:
    """The root with its `allOf` worked in; None if that cannot be, or brings in what is refused there."""
    try:
        flat = flatten((Part(root, ()),), LocalRefs(root))
    except Clash:
        return None
    if flat.alternatives is not None or flat.keywords.keys() & set(_REFUSED_AT_ROOT):
        return None
    merged = {keyword: value for keyword, (value, _) in flat.keywords.items()}
    if flat.properties is not None:
        merged["properties"] = {name: _one(parts) for name, parts in flat.properties.items()}
    return {**merged, "required": list(flat.required)} if flat.required else merged


def _one(parts: Parts) -> Json:
    return parts[0].schema if len(parts) == 1 else {"allOf": [part.schema for part in parts]}


def _only_in_branches(root: Mapping[str, Json], taken: Sequence[str]) -> dict[str, Json]:
    """The properties that only the schemas taken out of an open root describe: a model must still see their names."""
    if root.get("additionalProperties", True) is not True:
        return {}
    found: dict[str, list[Json]] = {}
    for schema in unconditional(_branches(root, taken), LocalRefs(root)):
        for name, described in schema.get("properties", {}).items():
            if name not in root.get("properties", {}) and described not in found.setdefault(name, []):
                found[name].append(described)
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}


def _branches(root: Mapping[str, Json], taken: Sequence[str]) -> Iterator[Json]:
    for keyword in taken:
        if keyword in ("anyOf", "oneOf", "allOf"):
            yield from root[keyword]
        elif keyword == "if":
            yield from (root[branch] for branch in ("then", "else") if branch in root)

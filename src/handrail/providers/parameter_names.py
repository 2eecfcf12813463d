"""Parameters under names that a provider takes, and a model's arguments under those that the tool has. Pure.

A tool's own name fits every provider (`TOOL_ID`), but its parameters are called as JSON Schema allows: "Content-Type",
"größe". Where a provider refuses such a name, it is sent under another one, which no parameter of the tool has; the build
lists that, and an argument that comes back under it is given its own name before anybody looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from handrail.contract.errors import JsonError, SchemaError
from handrail.contract.portable_name import PORTABLE_NAME
from handrail.providers.adapted import RENAMED, Loss
from handrail.schema.pointer import pointer
from handrail.schema.strict_json import parse_arguments
from handrail.schema.subschemas import (
    ONE_SCHEMA,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    Json,
    LocalRefs,
    descend,
    in_place,
    walk,
)

GEMINI = PORTABLE_NAME
ANTHROPIC = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_LONGEST = 64
_DEEPEST = 64
_NAME_MAPS = frozenset({"properties", "dependentSchemas", "dependentRequired", "dependencies"})
"""Keywords whose members are called as properties are."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """The parameters as a provider may have them. `names`: those that it refuses, and what stands in their place."""

    original: Mapping[str, Json]
    parameters: Mapping[str, Json]
    names: Mapping[str, str]

    def losses(self, others: Iterable[Loss]) -> tuple[Loss, ...]:
        """What was renamed, and the other losses with their places in the schema that the author wrote."""
        if not self.names:
            return tuple(others)
        own = {name: original for original, name in self.names.items()}
        placed = (replace(loss, pointer=_translated(loss.pointer, own)) for loss in others)
        return (*self._renamed(), *placed)

    def _renamed(self) -> Iterator[Loss]:
        for path, schema in walk(self.original):
            for name in schema.get("properties", ()) if isinstance(schema, dict) else ():
                if name in self.names:
                    done = f'sent as "{self.names[name]}", which the provider takes, and renamed back in calls'
                    yield Loss(RENAMED, pointer((*path, "properties", name)), done, minor=True)

    def undone(self, args: Json) -> Json:
        """A model's arguments under the tool's own names; as they are where there is nothing to rename, or no JSON."""
        if not self.names:
            return args
        try:
            parsed = parse_arguments(args) if isinstance(args, str) else args
        except JsonError:
            return args  # hydration says what is wrong with it
        found = _Undoing(self).value([self.original], parsed, 0)
        return args if found == parsed else found


def renaming(parameters: Mapping[str, Json], allowed: re.Pattern[str]) -> Renaming:
    """The parameters with every name that is not `allowed` replaced, wherever in the schema it stands."""
    try:
        used = {
            name for _, schema in walk(parameters) if isinstance(schema, dict) for name in schema.get("properties", ())
        }
    except SchemaError:  # beyond all measure: no build lets it pass
        return Renaming(parameters, parameters, {})
    names: dict[str, str] = {}
    # In an order of their own: the same schema gives the same names on any machine, as the registry's version has to.
    for name in sorted(used):
        if not allowed.fullmatch(name):
            names[name] = _free(name, used | set(names.values()))
    return Renaming(parameters, _written(parameters, names) if names else parameters, names)


def _free(name: str, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not PORTABLE_NAME.fullmatch(plain[:_LONGEST]):
        plain = f"_{plain}"
    made, number = plain[:_LONGEST], 1
    while made in taken:
        number += 1
        made = f"{plain[: _LONGEST - len(str(number)) - 1]}_{number}"
    return made


def _written(schema: Json, names: Mapping[str, str]) -> Json:
    """The schema under the other names. What it lists as whole values (`enum`, `default`) stays as it is."""
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _keyword(keyword, value, names) for keyword, value in schema.items()}


def _keyword(keyword: str, value: Json, names: Mapping[str, str]) -> Json:
    if keyword == "$ref" and isinstance(value, str) and value.startswith("#/"):
        return "#" + quote(_translated(unquote(value[1:]), names), safe="/~$")
    if keyword == "required":
        return [names.get(name, name) for name in value]
    if keyword in ONE_SCHEMA:
        return _written(value, names)
    if keyword in SCHEMA_LISTS:
        return [_written(one, names) for one in value]
    if keyword in SCHEMA_MAPS or keyword in _NAME_MAPS:
        named = names if keyword in _NAME_MAPS else {}
        return {named.get(name, name): _member(one, names) for name, one in value.items()}
    return value


def _member(value: Json, names: Mapping[str, str]) -> Json:
    """A schema, or the names that a property brings with it."""
    return [names.get(name, name) for name in value] if isinstance(value, (list, tuple)) else _written(value, names)


def _translated(place: str, names: Mapping[str, str]) -> str:
    """A JSON pointer with the names of properties replaced, and nothing that is only called the same."""
    tokens = place.split("/")
    at = 1
    while at < len(tokens):
        keyword = tokens[at]
        at += 1
        if (keyword in _NAME_MAPS or keyword in SCHEMA_MAPS or keyword in SCHEMA_LISTS) and at < len(tokens):
            if keyword in _NAME_MAPS:
                name = tokens[at].replace("~1", "/").replace("~0", "~")
                tokens[at] = pointer((names[name],))[1:] if name in names else tokens[at]
            at += 1
        elif keyword not in ONE_SCHEMA:
            break
    return "/".join(tokens)


class _Undoing:
    """One run over one set of arguments, along the schemas that may apply at each place."""

    def __init__(self, made: Renaming) -> None:
        self._own = {name: original for original, name in made.names.items()}
        self._refs = LocalRefs(made.original)

    def value(self, schemas: Sequence[Json], value: Json, depth: int) -> Json:
        if depth > _DEEPEST:
            return value
        here = in_place(schemas, self._refs)
        if isinstance(value, Mapping):
            listed = {name for schema in here for name in schema.get("properties", ())}
            named = {name: self._name(name, listed, value) for name in value}
            return {
                own: self.value(_below(here, own), value[name], depth + 1) if here else value[name]
                for name, own in named.items()
            }
        if isinstance(value, (list, tuple)) and here:
            return [self.value(_below(here, index), item, depth + 1) for index, item in enumerate(value)]
        return value

    def _name(self, name: str, listed: set[str], value: Mapping[str, Json]) -> str:
        """A name is given back only where the tool lists the own one, and the model has not sent that as well."""
        own = self._own.get(name)
        return own if own is not None and own in listed and own not in value else name


def _below(schemas: Sequence[Mapping[str, Json]], token: str | int) -> list[Json]:
    return [below for schema in schemas for below in descend(schema, token)]

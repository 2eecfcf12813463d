"""The way back from strict mode: the nulls that a model sends for arguments that it leaves out.

OpenAI's strict mode has no optional properties, so `strict_mode.py` turns them into ones that may be null. Here a null that
stands for "absent" is taken out again, before anybody validates the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from handrail.providers.schema_flattening import (
    FlatSchema,
    SchemaConflict,
    SchemaPart,
    SchemaParts,
    allows_null,
    fits_type,
    flatten,
    is_listed,
    leaves,
)
from handrail.schema.subschemas import Json, LocalRefs, Path


def strip_nulls(schema: Mapping[str, Json], args: Json) -> Json:
    """The arguments without the nulls that stand for "absent", for a tool that was sent strict.

    `schema` is the original one. A null goes where the property is optional and may not be null; one that the schema
    allows is meant, and one for a required property is left for the validator to refuse. `args` are not changed.
    """
    try:
        return _Stripping(LocalRefs(schema)).value((SchemaPart(schema, ()),), args)[0]
    except SchemaConflict:
        return args  # such a schema is never sent strict


class _Stripping:
    """One run over one set of arguments. What was found for a value under some parts is kept: a recursive schema with
    alternatives would be tried over and over, and the arguments are a model's to nest.
    """

    def __init__(self, refs: LocalRefs) -> None:
        self._refs = refs
        self._known: dict[tuple[int, tuple[Path, ...]], tuple[Json, bool]] = {}

    def value(self, parts: SchemaParts, value: Json) -> tuple[Json, bool]:
        """The value without nulls that stand for "absent", and whether it then has the shape that the parts ask for."""
        key = (id(value), tuple(part.path for part in parts))
        if key not in self._known:
            self._known[key] = self._found(parts, value)
        return self._known[key]

    def _found(self, parts: SchemaParts, value: Json) -> tuple[Json, bool]:
        for leaf in leaves(parts, self._refs):
            stripped, fits = self._by(leaf, value)
            if fits:  # the alternative that the model took
                return stripped, True
        return self._by(flatten(parts, self._refs), value)[0], False

    def _by(self, flat: FlatSchema, value: Json) -> tuple[Json, bool]:
        fits = fits_type(flat, value) and is_listed(flat, value)
        if isinstance(value, Mapping):
            return self._object(flat, value, fits)
        if isinstance(value, (list, tuple)):
            items = [self.value(_item(flat, index), item) for index, item in enumerate(value)]
            return [item for item, _ in items], fits and all(right for _, right in items)
        return value, fits

    def _object(self, flat: FlatSchema, value: Mapping[str, Json], fits: bool) -> tuple[Json, bool]:
        properties = flat.properties or {}
        kept: dict[str, Json] = {}
        for name, item in value.items():
            if name not in properties:
                kept[name], right = item, False
            elif item is None and name not in flat.required and not allows_null(properties[name], self._refs):
                continue
            else:
                kept[name], right = self.value(properties[name], item)
            fits = fits and right
        return kept, fits and kept.keys() >= set(flat.required)


def _item(flat: FlatSchema, index: int) -> SchemaParts:
    prefix, path = flat.keywords.get("prefixItems", ((), ()))
    return (
        (SchemaPart(prefix[index], (*path, index)),)
        if index < len(prefix)
        else flat.items or (SchemaPart(True, (*flat.path, "items")),)
    )

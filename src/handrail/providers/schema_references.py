"""References of a schema that is rewritten: which of them contain themselves, and which definitions must go along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handrail.providers.schema_flattening import SchemaParts
from handrail.schema.subschemas import Json, LocalRefs


class SchemaReferences:
    """What one rewriting run knows about the references of its schema."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        self.local = LocalRefs(root)
        self.wanted: list[str] = []
        """Names in `$defs` that what was written refers to. Grows while definitions refer to further ones."""
        self._recursive: dict[str, bool] = {}
        self._held: dict[str, frozenset[str]] = {}

    def movable(self, parts: SchemaParts) -> str | None:
        """The reference that one part consists of and that may stay one: to the root, or to one of its `$defs`."""
        schema = parts[0].schema
        if len(parts) > 1 or not isinstance(schema, Mapping) or "$ref" not in schema:
            return None
        ref: str = schema["$ref"]
        try:
            movable = ref == "#" or (ref.startswith("#/$defs/") and len(self.local.path(ref)) == 2)
        except LookupError:
            return None
        return ref if movable else None

    def keep(self, ref: str) -> dict[str, Json]:
        """The reference as it is written, with its definition noted as wanted."""
        target = self.local.path(ref)
        if target and target[1] not in self.wanted:
            self.wanted.append(str(target[1]))
        return {"$ref": ref}

    def is_recursive(self, ref: str) -> bool:
        """Whether what the reference means contains the reference again."""
        if ref not in self._recursive:
            self._explore(ref)
        return self._recursive[ref]

    def _explore(self, start: str) -> None:
        """Settle the reference and all that it leads to, each looked at once: chains of them may be long.

        Tarjan's way to find circles, without recursion. A reference is recursive if it shares a circle with another, or
        holds itself.
        """
        met: dict[str, int] = {start: 0}
        lowest: dict[str, int] = {start: 0}
        circle = [start]
        trail = [(start, iter(self._inside(start)))]
        while trail:
            ref, inside = trail[-1]
            found = next(inside, None)
            if found is None:
                trail.pop()
                if trail:
                    above = trail[-1][0]
                    lowest[above] = min(lowest[above], lowest[ref])
                if lowest[ref] == met[ref]:
                    self._close(ref, circle)
            elif found not in met and found not in self._recursive:
                met[found] = lowest[found] = len(met)
                circle.append(found)
                trail.append((found, iter(self._inside(found))))
            elif found not in self._recursive:
                lowest[ref] = min(lowest[ref], met[found])

    def _close(self, ref: str, circle: list[str]) -> None:
        members = [circle.pop()]
        while members[-1] != ref:
            members.append(circle.pop())
        for member in members:
            self._recursive[member] = len(members) > 1 or member in self._inside(member)

    def _inside(self, ref: str) -> frozenset[str]:
        """The references in what the reference means."""
        if ref not in self._held:
            self._held[ref] = frozenset(_refs_in(self.local.target({"$ref": ref})))
        return self._held[ref]


def _refs_in(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for held in value.values():
            yield from _refs_in(held)
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from _refs_in(held)

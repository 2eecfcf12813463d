"""Which defaults are filled in where, worked out once per schema so that a call pays for a short loop or for nothing.

A plan is a graph of nodes, one per set of schemas that always apply to the same value: a schema, what its `$ref` points
to and its `allOf` branches. Recursive schemas make cycles in it. Defaults are reached through `properties`, `items` and
`prefixItems` only; a branch that may or may not apply (`anyOf`, `if`, …) fills nothing in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import thaw
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import MAX_DEPTH, Json, LocalRefs, unconditional

MAX_MEMBERS = 20_000
MAX_NESTED_DEFAULTS = 1_000
_LEADS_ON = frozenset({"properties", "items", "prefixItems", "$ref", "allOf"})


class Fill(NamedTuple):
    """One default: the name it is filled in for, that name as a pointer, and the value."""

    name: str
    token: str
    value: Json
    make: Callable[[], Json] | None
    """Gives a fresh copy of the value; None where the value cannot be changed and needs no copy."""
    inner: tuple[str, ...]
    """Pointers, below this one, of the defaults that are filled into this default itself."""


class Node:
    """What to fill in at one kind of place, and the kinds of places below it where something is filled in."""

    __slots__ = ("children", "endless", "fills", "given", "members", "prefix", "rest", "steps")

    def __init__(self, members: list[Mapping[str, Json]]) -> None:
        self.members = members
        self.given: dict[str, list[Json]] = {}  # name → the differing defaults that its declarations give it
        self.fills: list[Fill] = []
        self.endless: list[str] = []  # names whose default would contain itself, or grow without measure
        self.children: dict[str, Node] = {}
        self.steps: list[tuple[str, str, Node]] = []  # the children again, each with its name as a pointer
        self.prefix: list[Node | None] = []
        self.rest: Node | None = None

    def below(self) -> Iterable[Node]:
        yield from self.children.values()
        yield from (node for node in self.prefix if node is not None)
        if self.rest is not None:
            yield self.rest

    def keep(self, useful: Container[Node]) -> None:
        """Forget the nodes below that are not useful."""
        self.children = {name: child for name, child in self.children.items() if child in useful}
        self.steps = [(name, pointer((name,)), child) for name, child in self.children.items()]
        self.rest = self.rest if self.rest in useful else None
        self.prefix = [child if child in useful else None for child in self.prefix]
        if self.rest is None and not any(self.prefix):
            self.prefix = []

    def fill(self, value: Json, path: str, filled: list[str], is_own: bool = False) -> Json:
        """The value with defaults filled in, or the value itself where there was nothing to fill in.

        Copies what it changes and shares the rest; what `is_own` belongs to the caller alone, and is changed itself. `filled`
        gets the pointer of each default.
        """
        if not isinstance(value, dict):
            if isinstance(value, (list, tuple)) and (self.prefix or self.rest is not None):
                return self._fill_array(value, path, filled, is_own)
            return value
        result: dict[str, Json] | None = value if is_own else None
        for name, token, default, make, inner in self.fills:
            if name not in value:
                if result is None:
                    result = {**value}
                result[name] = default if make is None else make()
                filled.append(path + token)
                if inner:
                    filled.extend([path + token + below for below in inner])
        for name, token, child in self.steps:
            if name in value:
                old = value[name]
                new = child.fill(old, path + token, filled, is_own)
                if new is not old:
                    if result is None:
                        result = {**value}
                    result[name] = new
        return value if result is None else result

    def _fill_array(self, value: list[Json] | tuple[Json, ...], path: str, filled: list[str], is_own: bool) -> Json:
        result = []
        changed = False
        for index, old in enumerate(value):
            child = self.prefix[index] if index < len(self.prefix) else self.rest
            new = old if child is None else child.fill(old, f"{path}/{index}", filled, is_own)
            changed = changed or new is not old
            result.append(new)
        return result if changed else value


def build_plan(schema: Mapping[str, Json]) -> Node | None:
    """The plan's first node, for the instance itself; None if the schema fills nothing in."""
    builder = _Builder(schema)
    root = builder.node([schema])
    builder.expand()
    useful = builder.prune()
    for node in useful:
        builder.finish(node)
    return root if root in useful else None


def nodes_of(root: Node) -> list[Node]:
    """Every node of a plan, each once."""
    found = {id(root): root}
    todo = [root]
    while todo:
        for node in todo.pop().below():
            if id(node) not in found:
                found[id(node)] = node
                todo.append(node)
    return list(found.values())


def _fill(name: str, default: Json, inner: tuple[str, ...] = ()) -> Fill:
    token = "/" + name if "~" not in name and "/" not in name else pointer((name,))
    if not isinstance(default, (dict, list, tuple)):
        return Fill(name, token, default, None, inner)
    value = thaw(default)
    parts = value.values() if isinstance(value, dict) else value
    # One level needs no walk, and most defaults that are not plain are a short list of names.
    deep = any(isinstance(part, (dict, list)) for part in parts)
    return Fill(name, token, value, partial(thaw, value) if deep else value.copy, inner)


class _Builder:
    __slots__ = ("_done", "_members", "_nodes", "_refs", "_todo")

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._refs = LocalRefs(schema)
        self._nodes: dict[frozenset[int], Node] = {}
        self._todo: list[Node] = []
        self._members = 0
        self._done: dict[tuple[Node, str], Fill | None] = {}  # None while it is being made

    def node(self, schemas: list[Json]) -> Node:
        """The node for the schemas, which all apply to one value."""
        members = unconditional(schemas, self._refs)
        key = frozenset(map(id, members))
        found = self._nodes.get(key)
        if found is None:
            self._members += len(members)
            if self._members > MAX_MEMBERS:
                raise SchemaError(
                    "The schema's allOf and $ref combine in too many ways to fill in defaults; simplify them."
                )
            found = self._nodes[key] = Node(members)
            self._todo.append(found)
        return found

    def expand(self) -> None:
        """Find what each node declares, and the nodes below it, until there are no new ones."""
        while self._todo:
            node = self._todo.pop()
            declared: dict[str, list[Json]] = {}
            required: set[str] = set()
            for member in node.members:
                required.update(member.get("required", ()))
                for name, subschema in member.get("properties", {}).items():
                    declared.setdefault(name, []).append(subschema)
            if any("items" in member or "prefixItems" in member for member in node.members):
                self._expand_items(node)
            for name, subschemas in declared.items():
                # A valid instance has its required properties, so their defaults are never wanted.
                if name not in required and (defaults := self._defaults(subschemas)):
                    node.given[name] = defaults
                if any(map(_leads_on, subschemas)):
                    node.children[name] = self.node(subschemas)

    def _expand_items(self, node: Node) -> None:
        prefixes = [member.get("prefixItems", ()) for member in node.members]
        rests = [member.get("items", True) for member in node.members]
        node.prefix = [
            self._node_of_items(
                [prefix[i] if i < len(prefix) else rest for prefix, rest in zip(prefixes, rests, strict=True)]
            )
            for i in range(max(map(len, prefixes)))
        ]
        node.rest = self._node_of_items(rests)

    def _node_of_items(self, subschemas: list[Json]) -> Node | None:
        return self.node(subschemas) if any(map(_leads_on, subschemas)) else None

    def _defaults(self, subschemas: list[Json]) -> list[Json]:
        """The differing defaults of one property. A default beside `$ref` or `allOf` wins over those behind them."""
        found: list[Json] = []
        seen: set[int] = set()
        todo = subschemas[::-1]
        while todo:
            schema = todo.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            if "default" in schema:
                default = schema["default"]
                if not any(same(default, other) for other in found):
                    found.append(default)
                continue
            todo.extend(reversed(schema.get("allOf", ())))
            if "$ref" in schema:
                todo.append(self._refs.target(schema))
        return found

    def prune(self) -> list[Node]:
        """The nodes at or below which something is filled in; the others are cut off from them."""
        useful = {node: None for node in self._nodes.values() if node.given}
        if not useful:
            return []
        above: dict[Node, list[Node]] = {}
        for node in self._nodes.values():
            for below in node.below():
                above.setdefault(below, []).append(node)
        todo = list(useful)
        while todo:
            for node in above.get(todo.pop(), ()):
                if node not in useful:
                    useful[node] = None
                    todo.append(node)
        for node in useful:
            node.keep(useful)
        return list(useful)

    def finish(self, node: Node) -> None:
        """Make the node's fills, in the order of the schema."""
        for name in node.given:
            self._make(node, name, 0)
        node.fills = [fill for name in node.given if (fill := self._done[node, name]) is not None]

    def _make(self, node: Node, name: str, depth: int) -> bool:
        """Make the fill for `name`, after those that its default itself wants; False if that would not end."""
        if (node, name) in self._done:
            return self._done[node, name] is not None and name not in node.endless
        self._done[node, name] = None
        value = thaw(node.given[name][0])
        inner: list[str] = []
        child = node.children.get(name)
        if child is not None and isinstance(value, (dict, list)):
            wanted = _wanted(child, value)
            ends = depth < MAX_DEPTH and all(self._make(*one, depth + 1) for one in wanted)
            size = sum(1 + len(fill.inner) for one in wanted if (fill := self._done.get(one)) is not None)
            if ends and size <= MAX_NESTED_DEFAULTS:
                value = child.fill(value, "", inner)
            else:
                node.endless.append(name)
        fill = self._done[node, name] = _fill(name, value, tuple(inner))
        node.fills.append(fill)
        return name not in node.endless


def _leads_on(schema: Json) -> bool:
    return isinstance(schema, dict) and not _LEADS_ON.isdisjoint(schema)


def _wanted(node: Node, value: Json) -> list[tuple[Node, str]]:
    """The defaults that would be filled into the value, as node and name."""
    found: list[tuple[Node, str]] = []
    todo: list[tuple[Node | None, Json]] = [(node, value)]
    while todo:
        here, part = todo.pop()
        if here is None:
            continue
        if isinstance(part, dict):
            found.extend((here, name) for name in here.given if name not in part)
            todo.extend((child, part[name]) for name, child in here.children.items() if name in part)
        elif isinstance(part, list):
            todo.extend((here.prefix[i] if i < len(here.prefix) else here.rest, item) for i, item in enumerate(part))
    return found


def same(left: Json, right: Json) -> bool:
    """Whether two values are the same JSON. Python's `==` would take 1 for true."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)

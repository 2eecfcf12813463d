"""Arguments and schemas as nobody means them: recursion, alternatives, patterns, odd numbers and letters, broken JSON.

Plain seeded `random`, so that a case is found again by its seed, and one schema serves many arguments.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

SECRET = "s3cr3t"
HOLDER = "a bare value may be the secret"
NAMES = ("a", "b", "c", "pin", "é", "a/b", "~0", "x\u202ey", "", "$ref", "k1", "type", "properties", "\U0001f600")
PATTERNS = (
    "^a+$", "^(a+)+$", "(x+x+)+y", "^[a-z]{1,40}$", r"\d", r"^\w{1,8}$", "é", "^$", "(a|b|ab)*c", "a{0,50}b{0,50}", r"^[^@\s]+@",
)  # fmt: skip
FORMATS = ("email", "date-time", "date", "time", "uri", "uuid", "ipv4", "ipv6")
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
NUMBERS = (
    0, 1, -1, 2, 3, 7, 10, 1.0, 0.1, 0.30000000000000004, 2.5, -0.0, 1e300, 5e-324, 1e-7, 1e21, 123456789.25,
    2**53 - 1, -(2**53) + 1, 1e22, 1e100, 123e60, 19.99, 1e-300,
)  # fmt: skip
TEXTS = (
    "", "a", "aaaa", "b1", "é", "xxy", "a@b.org", "2026-03-01", "2026-03-01T09:00:00Z", "192.0.2.1", "\U0001f600", "a\u0301",
    "\u202eevil", "\u3164", "a\x00b", "line\nbreak", "true", "3", "ſ", "a" * 200, "x" * 30 + "!",
)  # fmt: skip


class Generator:
    """One stream of schemas and arguments."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    # ------------------------------------------------------------------------------------------------------ schemas

    def parameters(self) -> dict[str, Any]:
        """The parameters of a tool."""
        if self.random.random() < 0.06:
            return self.trap()
        names = self.random.sample(NAMES, self.random.randint(1, 4))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: self.schema(3) for name in names},
            "additionalProperties": self.random.choice((False, False, True, {"type": "string"})),
            "$defs": {f"d{i}": self.descending() for i in range(3)},
        }
        schema["properties"]["pin"] = {**self.of_text(), "writeOnly": True}
        if self.random.random() < 0.3:
            schema["required"] = self.random.sample(NAMES, 2)
        if self.random.random() < 0.1:
            schema["unevaluatedProperties"] = False
            del schema["additionalProperties"]
        return schema

    def descending(self) -> Any:
        """A definition that may refer to itself, but only on the way down."""
        ref = {"$ref": f"#/$defs/d{self.random.randint(0, 2)}"}
        forms: list[Any] = [
            {"type": "object", "properties": {self.name(): ref, self.name(): self.schema(1)}},
            {"type": "array", "items": ref},
            {"type": "object", "required": [self.name()], "additionalProperties": ref},
            {"type": "object", "properties": {"pin": {"writeOnly": True, **self.of_text()}, "a": ref}},
            {"type": self.random.choice(TYPES)},
            self.schema(1, refs=False),
        ]
        self.random.shuffle(forms)
        return {self.random.choice(("anyOf", "oneOf")): forms[: self.random.randint(1, 5)]}

    def schema(self, depth: int, refs: bool = True) -> Any:
        """Any schema. References lead to definitions only, so that none leads back to itself in place."""
        choice = self.random.random()
        if depth <= 0 or choice < 0.3:
            return self.random.choice((self.of_text, self.of_number, self.of_values))()
        if choice < 0.5:
            return self.of_object(depth, refs)
        if choice < 0.65:
            return self.of_array(depth, refs)
        if choice < 0.72 and refs:
            return {"$ref": f"#/$defs/d{self.random.randint(0, 2)}", **({"writeOnly": True} if choice < 0.66 else {})}
        if choice < 0.95:
            return self.combined(depth, refs)
        return self.random.choice((True, False, {}, {"default": self.value(1)}))

    def of_text(self) -> dict[str, Any]:
        pick = self.random.random
        schema: dict[str, Any] = {"type": "string"} if pick() < 0.7 else {}
        if pick() < 0.4:
            schema["pattern"] = self.random.choice(PATTERNS)
        if pick() < 0.2:
            schema["format"] = self.random.choice(FORMATS)
        if pick() < 0.3:
            schema["maxLength"] = self.random.randint(0, 8)
        if pick() < 0.2:
            schema["minLength"] = self.random.randint(0, 4)
        return schema

    def of_number(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.random.choice(("integer", "number", ["number", "null"]))}
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if self.random.random() < 0.25:
                schema[keyword] = self.random.choice(NUMBERS)
        if self.random.random() < 0.15:
            schema["multipleOf"] = self.random.choice((1, 2, 3, 5, 10, 0.5, 0.25, 0.01, 0.1, 1e-10, 1e-300, 1e20))
        return schema

    def of_values(self) -> dict[str, Any]:
        choice = self.random.random()
        if choice < 0.3:
            return {"const": self.value(2)}
        if choice < 0.6:
            options = {json.dumps(self.value(1), sort_keys=True) for _ in range(self.random.randint(1, 5))}
            return {"enum": [json.loads(option) for option in sorted(options)]}
        if choice < 0.63:
            return {"enum": [f"option {i}" for i in range(2_000)]}
        return {"type": self.random.sample(TYPES, self.random.randint(1, 3))}

    def of_object(self, depth: int, refs: bool) -> dict[str, Any]:
        pick = self.random.random
        schema: dict[str, Any] = {"type": "object"} if pick() < 0.7 else {}
        if pick() < 0.8:
            schema["properties"] = {self.name(): self.schema(depth - 1, refs) for _ in range(self.random.randint(1, 3))}
        if pick() < 0.3:
            schema["required"] = self.random.sample(NAMES, self.random.randint(1, 2))
        if pick() < 0.3:
            schema["additionalProperties"] = self.random.choice((False, self.schema(depth - 1, refs)))
        if pick() < 0.2:
            schema["patternProperties"] = {self.random.choice(PATTERNS): self.schema(depth - 1, refs)}
        if pick() < 0.1:
            schema["propertyNames"] = self.random.choice(({"maxLength": 2}, False, {"pattern": "^[a-k]"}))
        if pick() < 0.1:
            schema["maxProperties"] = self.random.randint(0, 3)
        if pick() < 0.1:
            schema["dependentRequired"] = {self.name(): [self.name()]}
        if pick() < 0.1:
            schema["dependentSchemas"] = {self.name(): self.schema(depth - 1, refs)}
        if pick() < 0.1:
            schema["unevaluatedProperties"] = self.random.choice((False, {"type": "string"}))
        return schema

    def of_array(self, depth: int, refs: bool) -> dict[str, Any]:
        pick = self.random.random
        schema: dict[str, Any] = {"type": "array"} if pick() < 0.7 else {}
        if pick() < 0.6:
            schema["items"] = self.schema(depth - 1, refs)
        if pick() < 0.2:
            schema["prefixItems"] = [self.schema(depth - 1, refs) for _ in range(2)]
        if pick() < 0.2:
            schema["contains"] = self.schema(depth - 1, refs)
            if pick() < 0.5:
                schema["minContains"] = self.random.randint(0, 2)
            if pick() < 0.5:
                schema["maxContains"] = self.random.randint(0, 2)
        if pick() < 0.2:
            schema["uniqueItems"] = True
        if pick() < 0.2:
            schema["maxItems"] = self.random.randint(0, 4)
        if pick() < 0.15 and "items" not in schema:
            schema["unevaluatedItems"] = self.random.choice((False, {"type": "integer"}))
        return schema

    def combined(self, depth: int, refs: bool) -> dict[str, Any]:
        keyword = self.random.choice(("anyOf", "oneOf", "allOf", "not", "if"))
        if keyword == "not":
            return {"not": self.schema(depth - 1, refs)}
        if keyword == "if":
            branches = ("then", "else") if self.random.random() < 0.6 else ("then",)
            return {"if": self.schema(depth - 1, refs), **{name: self.schema(depth - 1, refs) for name in branches}}
        return {keyword: [self.schema(depth - 1, refs) for _ in range(self.random.randint(1, 4))]}

    def trap(self) -> dict[str, Any]:
        """A schema that is made to cost much."""
        ref = {"$ref": "#/$defs/f"}
        number = self.random.choice((2, 4, 30))
        which = self.random.randint(0, 10)
        root: dict[str, Any] = {
            "type": "object",
            "properties": {"a": ref, "pin": {"type": "string", "writeOnly": True}},
        }
        if which == 0:
            forms: list[Any] = [{"type": "object", "properties": {"c": ref, "k": {"const": k}}} for k in range(number)]
            root["$defs"] = {"f": {"anyOf": [*forms, {"type": "integer"}]}}
        elif which == 1:
            forms = [{"type": "object", "required": [k], "properties": {k: {"items": ref}}} for k in ("and", "or", "c")]
            root["$defs"] = {"f": {"oneOf": [*forms, {"type": "object", "properties": {"v": {"type": "integer"}}}]}}
        elif which == 2:
            root["$defs"] = {"f": {"items": {"enum": [{"a": i} for i in range(200)]}}}
        elif which == 3:
            root["$defs"] = {"f": {"items": {"anyOf": [{"const": i} for i in range(100)]}}}
        elif which == 4:
            root["$defs"] = {"f": {"items": {"pattern": "((a{1,20}){1,20}){1,4}b"}}}
        elif which == 5:
            root["$defs"] = {"f": {"patternProperties": {f"^k{i}": {"type": "string"} for i in range(60)}}}
        elif which == 6:
            chain: dict[str, Any] = {f"g{i}": {"anyOf": [{"$ref": f"#/$defs/g{i + 1}"}] * 2} for i in range(9)}
            root["$defs"] = {"f": {"$ref": "#/$defs/g0"}, **chain, "g9": {"type": "integer"}}
        elif which == 7:
            divisors = [{"multipleOf": 10.0**-k} for k in range(1, number)]
            root["$defs"] = {"f": {"items": {"type": "number", "allOf": divisors}}}
        elif which == 8:
            names = {f"^[a-z]{{0,60}}{i}$": {"type": "string", "writeOnly": i % 2 == 0} for i in range(20 * number)}
            root["$defs"] = {"f": {"patternProperties": names}}
        elif which == 9:
            root["title"] = HOLDER
            root["$defs"] = {"f": {"properties": {"pin": {"writeOnly": True}, "c": ref}, "items": ref, "maxLength": 3}}
        else:
            forms = [{"properties": {f"a{i}": True}} for i in range(number)]
            root["$defs"] = {"f": {"anyOf": forms, "unevaluatedProperties": False}}
        return root

    # ------------------------------------------------------------------------------------------------------- values

    def name(self) -> str:
        return self.random.choice(NAMES)

    def value(self, depth: int) -> Any:
        choice = self.random.random()
        if depth <= 0 or choice < 0.7:
            return self.random.choice((*NUMBERS[:8], *TEXTS[:14], True, False, None))
        if choice < 0.85:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        return {self.name(): self.value(depth - 1) for _ in range(self.random.randint(0, 3))}

    def arguments(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Arguments that nearly fit, or hardly; every `pin` in them is a secret."""
        if self.random.random() < 0.004:
            return {"a": self.large()}
        if schema.get("title") == HOLDER and self.random.random() < 0.5:
            return {"a": self.random.choice((SECRET, [SECRET], {"c": SECRET}, {"c": [SECRET, {"pin": SECRET}]}))}
        made = self.fitting(schema, schema, 6)
        args = made if isinstance(made, dict) else {self.name(): self.value(3)}
        return hide(args)

    def fitting(self, schema: Any, root: dict[str, Any], depth: int) -> Any:
        """A value that has some chance to fit the schema."""
        pick = self.random.random
        if not isinstance(schema, dict) or depth <= 0 or pick() < 0.06:
            return self.value(2)
        if "$ref" in schema:
            target = root["$defs"].get(schema["$ref"].rpartition("/")[2], {})
            return self.fitting(target, root, depth - 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self.fitting(self.random.choice(schema[keyword]), root, depth - 1)
        kind = schema.get("type")
        kind = self.random.choice(kind) if isinstance(kind, list) else kind
        if kind == "object" or (kind is None and "properties" in schema):
            names = list(schema.get("properties", {})) + schema.get("required", [])
            chosen = [name for name in names if pick() < 0.7] + ([self.name()] if pick() < 0.15 else [])
            below = schema.get("properties", {})
            return {name: self.fitting(below.get(name, True), root, depth - 1) for name in chosen}
        if kind == "array" or (kind is None and ("items" in schema or "contains" in schema)):
            items = schema.get("items", schema.get("contains", True))
            return [self.fitting(items, root, depth - 1) for _ in range(self.random.randint(0, 3))]
        if kind in ("integer", "number"):
            return self.random.choice((*NUMBERS[:8], schema.get("minimum", 1), schema.get("maximum", 1)))
        if kind == "boolean":
            return pick() < 0.5
        return None if kind == "null" else self.random.choice(TEXTS)

    def large(self) -> Any:
        """A value that is large or deep."""
        which = self.random.randint(0, 7)
        leaf: Any = self.value(1)
        if which == 0:
            for level in range(28):
                leaf = {("and", "or", "c")[level % 3]: [leaf]} if level % 2 else {"c": leaf, "k": level % 4}
            return leaf
        if which == 1:
            return [self.random.choice((1, "a", {"a": 5})) for _ in range(5_000)]
        if which == 2:
            return {f"k{i}": i for i in range(3_000)}
        if which == 3:
            return ["a" * 20_000 + "b", leaf]
        if which == 4:
            return list(range(12_000))
        if which == 5:
            return [self.random.choice((1e300, 2**53 - 1, 1e22, 19.99))] * self.random.choice((300, 3_000, 9_000))
        if which == 6:
            return {"a" * 50 + str(i): leaf for i in range(900)}
        return [[leaf] * 50] * 60

    # -------------------------------------------------------------------------------------------------------- texts

    def raw(self, args: dict[str, Any]) -> Any:
        """The arguments as a provider may send them: mostly as they are, sometimes broken."""
        pick = self.random.random()
        if pick < 0.25:
            return args
        text = json.dumps(args, ensure_ascii=self.random.random() < 0.5)
        if pick < 0.88:
            return text
        spoil = self.random.choice(_SPOILED)
        return spoil(text, self.random)


def hide(value: Any) -> Any:
    """The value with a secret at every `pin`."""
    if isinstance(value, dict):
        return {key: SECRET if key == "pin" else hide(item) for key, item in value.items()}
    return [hide(item) for item in value] if isinstance(value, list) else value


def _contains_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = [value]
    return value


_SPOILED = (
    lambda text, random: text[: random.randint(0, len(text))],
    lambda text, random: text.encode() + b"\xff",
    lambda text, random: "\ufeff" + text,
    lambda text, random: f"```json\n{text}\n```",
    lambda text, random: json.dumps(text),
    lambda text, random: text.replace("{", '{"a": 1, "a": 2, ', 1),
    lambda text, random: text.replace("{", '{"a": NaN, ', 1),
    lambda text, random: text.replace("{", '{"a": 1e999, ', 1),
    lambda text, random: text.replace("{", '{"a": 9007199254740993, ', 1),
    lambda text, random: text.replace("{", '{"a": "\\ud800", ', 1),
    lambda text, random: text.replace("{", '{"\\udc00": 1, ', 1),
    lambda text, random: text.replace("{", '{"a": "\x01", ', 1),
    lambda text, random: '{"a": ' + "[" * 40 + "]" * 40 + "}",
    lambda text, random: '{"a": ' + '{"a":' * 3_000,
    lambda text, random: '{"a": "' + "x" * 70_000 + '"}',
    lambda text, random: "{" + ",".join(f'"{i}":{i}' for i in range(3_000)) + "}",
    lambda text, random: random.choice(("", "null", "[]", "3", '"x"', "{,}", "{'a': 1}", '{"a": 01}', "\x00", "{}{}")),
    lambda text, random: {"a": float("nan"), "b": {1, 2}},
    lambda text, random: {"a": {1: 2}, "b": b"x"},
    lambda text, random: {"a": "\ud800"},
    lambda text, random: _contains_itself(),
)

"""The validation port and its default implementation: what compiles, what is refused, and in which words."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import freeze
from handrail.schema.sentences import SENTENCES
from handrail.schema.validator import (
    JSONSCHEMA_RS,
    MAX_VIOLATIONS,
    CompiledSchema,
    SchemaCompiler,
    Violation,
    compile_schema,
    find_schema_problems,
)

SEARCH: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "top_k": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
        "mode": {"enum": ["fast", "exact"], "default": "fast"},
        "since": {"type": "string", "format": "date-time"},
        "fields": {"type": "array", "items": {"enum": ["snippet", "url"]}, "default": ["snippet"]},
        "filters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"color": {"type": "string"}, "size": {"type": "integer"}},
        },
    },
}


def said(schema: dict[str, Any], instance: object) -> list[tuple[str, str]]:
    return [(violation.pointer, violation.message) for violation in compile_schema(schema).violations(instance)]


def only(schema: dict[str, Any], instance: object) -> str:
    (violation,) = compile_schema(schema).violations(instance)
    return violation.message


# ------------------------------------------------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("arguments", "pointer", "message"),
    [
        ({}, "/query", '"query" is required.'),
        ({"query": "a", "top_k": 50}, "/top_k", '"top_k" must be at most 10, but 50 was given.'),
        ({"query": "a", "top_k": 0}, "/top_k", '"top_k" must be at least 1, but 0 was given.'),
        ({"query": "a", "top_k": "3"}, "/top_k", '"top_k" must be an integer, but the string "3" was given.'),
        ({"query": ["a"]}, "/query", '"query" must be a string, but a list was given.'),
        ({"query": ""}, "/query", '"query" must have at least 1 character, but 0 were given.'),
        ({"query": "a", "mode": "slow"}, "/mode", '"mode" must be one of "fast", "exact"; "slow" was given.'),
        ({"query": "a", "since": "today"}, "/since", '"since" must be a date-time such as 2026-03-01T09:00:00Z.'),
        ({"query": "a", "topk": 3}, "/topk", '"topk" is not an argument of this tool; did you mean "top_k"?'),
        (
            {"query": "a", "filters": {"colour": "red"}},
            "/filters/colour",
            '"colour" is not a property of "filters"; did you mean "color"?',
        ),
        (
            {"query": "a", "filters": {"zzz": 1}},
            "/filters/zzz",
            '"zzz" is not a property of "filters"; known: "color", "size".',
        ),
        (
            {"query": "a", "fields": ["url", "body"]},
            "/fields/1",
            '"fields[1]" must be one of "snippet", "url"; "body" was given.',
        ),
        ("a", "", 'The arguments must be an object, but the string "a" was given.'),
    ],
)
def test_a_violation_names_its_place_and_says_what_to_send(arguments: object, pointer: str, message: str) -> None:
    assert said(SEARCH, arguments) == [(pointer, message)]


@pytest.mark.parametrize(
    ("schema", "instance", "message"),
    [
        ({"const": "a"}, "b", 'The arguments must be "a", but the string "b" was given.'),
        ({"exclusiveMinimum": 3}, 3, "The arguments must be more than 3, but 3 was given."),
        ({"exclusiveMaximum": 3}, 3, "The arguments must be less than 3, but 3 was given."),
        ({"multipleOf": 5}, 3, "The arguments must be a multiple of 5, but 3 was given."),
        ({"maxLength": 2}, "abc", "The arguments must have at most 2 characters, but 3 were given."),
        ({"pattern": "^a+$"}, "b", 'The arguments must match the pattern ^a+$, but the string "b" was given.'),
        ({"minItems": 2}, [1], "The arguments must have at least 2 items, but 1 was given."),
        ({"maxItems": 1}, [1, 2], "The arguments must have at most 1 item, but 2 were given."),
        ({"uniqueItems": True}, [1, 1], "The arguments must not have the same item twice."),
        ({"contains": {"type": "string"}}, [1], "The arguments must have at least 1 item of the type string."),
        (
            {"contains": {"type": ["string", "null"]}},
            [1],
            "The arguments must have at least 1 item of the form that the schema gives under contains.",
        ),
        (
            {"contains": {"const": 1}, "minContains": 2},
            [1],
            "The arguments must have at least 2 items equal to 1.",
        ),
        (
            {"contains": {"const": 1}, "maxContains": 1},
            [1, 1],
            "The arguments must have at most 1 item equal to 1.",
        ),
        (
            {"prefixItems": [True], "unevaluatedItems": False},
            [1, 2],
            "The arguments must not have items beyond those that the schema describes.",
        ),
        ({"prefixItems": [True], "items": False}, [1, 2], '"[1]" must not be given.'),
        ({"minProperties": 1}, {}, "The arguments must have at least 1 property, but 0 were given."),
        ({"maxProperties": 0}, {"a": 1}, "The arguments must have at most 0 properties, but 1 was given."),
        ({"dependentRequired": {"from": ["to"]}}, {"from": 1}, '"to" is required when "from" is given.'),
        ({"dependencies": {"from": ["to"]}}, {"from": 1}, '"to" is required when "from" is given.'),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, 'The property name "abc" must have at most 2 characters.'),
        ({"propertyNames": False}, {"abc": 1}, "This tool takes no arguments."),
        ({"type": "object", "additionalProperties": False}, {"a": 1, "b": 2}, "This tool takes no arguments."),
        ({"properties": {"a": {"additionalProperties": False}}}, {"a": {"b": 1}}, '"a" must not have any properties.'),
        (
            {"properties": {"additionalProperties": False}},
            {"additionalProperties": 1},
            '"additionalProperties" must not be given.',
        ),
        (
            {"properties": {"a": True}, "unevaluatedProperties": False},
            {"b": 1},
            '"b" is not an argument of this tool; known: "a".',
        ),
        (
            {"unevaluatedProperties": {"type": "string"}},
            {"b": 1},
            '"b" in the arguments is not what its schema allows there.',
        ),
        ({"properties": {"a": False}}, {"a": 1}, '"a" must not be given.'),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            1,
            "The arguments must be a string or null, but 1 was given.",
        ),
        (
            {"anyOf": [{"type": "null"}, {"required": ["a"]}]},
            {},
            'The arguments must fit one of 2 forms; for the nearest one: "a" is required.',
        ),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": 1, "b": 1},
            "The arguments must fit exactly one of 2 forms, but 2 of them fit.",
        ),
        (
            {"oneOf": [{"type": "string"}, {"minimum": 5}]},
            1,
            "The arguments must fit one of 2 forms; for the nearest one: the arguments must be at least 5, but 1 was given.",
        ),
        (
            {"anyOf": [{"type": "null"}, {"items": {"oneOf": [{"type": "integer"}, {"maxLength": 1}]}}]},
            ["ab"],
            'The arguments must fit one of 2 forms; for the nearest one: "[0]" must have at most 1 character, '
            "but 2 were given.",
        ),
        (
            {"anyOf": [{"type": "null"}, {"items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}]},
            ["ab"],
            'The arguments must fit one of 2 forms; for the nearest one: "[0]" must be an integer or null, '
            'but the string "ab" was given.',
        ),
        (
            {"anyOf": [{"type": "null"}, {"items": {"oneOf": [{"minLength": 1}, {"minLength": 2}]}}]},
            ["ab"],
            'The arguments must fit one of 2 forms; for the nearest one: "[0]" must fit exactly one of 2 forms, '
            "but 2 of them fit.",
        ),
        ({"not": {"const": "a"}}, "a", 'The arguments must not be "a".'),
        ({"not": {"enum": [1, 2]}}, 2, "The arguments must not be 1 or 2."),
        ({"not": {"required": ["a", "b"]}}, {"a": 1, "b": 1}, 'The arguments must not have "a" and "b" together.'),
        ({"not": {"type": "string"}}, "a", "The arguments must not be a string."),
        (
            {"not": {"type": ["string", "null"]}},
            "a",
            "The arguments must not be of the form that the schema excludes under not.",
        ),
        ({"if": {"type": "integer"}, "then": {"minimum": 5}}, 1, "The arguments must be at least 5, but 1 was given."),
    ],
)
def test_each_keyword_has_a_sentence_of_its_own(schema: dict[str, Any], instance: object, message: str) -> None:
    assert only(schema, instance) == message


@pytest.mark.parametrize("name", ["email", "date-time", "date", "time", "uri", "uuid", "ipv4", "ipv6"])
def test_each_asserted_format_is_explained_by_an_example_that_is_valid(name: str) -> None:
    compiled = compile_schema({"format": name})
    (violation,) = compiled.violations("not this")
    assert compiled.is_valid(violation.message.rstrip(".").rsplit(" ", 1)[1])


def test_every_sentence_is_for_a_keyword_and_ends_like_a_sentence() -> None:
    assert set(SENTENCES) > {"type", "required", "anyOf", "unevaluatedProperties", "dependentRequired", "falseSchema"}
    for schema, instance in ((SEARCH, {"a": 1}), (SEARCH, 3), ({"not": {}}, 1), ({"anyOf": [False]}, 1)):
        assert all(message.endswith((".", "?")) for _, message in said(schema, instance))


def test_the_sentences_about_a_result_do_not_speak_of_arguments() -> None:
    compiled = compile_schema(SEARCH, role="result")
    (unknown,) = compiled.violations({"query": "a", "zzzz": 1})
    assert unknown.message.startswith('"zzzz" is not a property of the result; known: "query"')
    assert compiled.violations(3)[0].message == "The result must be an object, but 3 was given."


def test_all_violations_are_reported_sorted_by_pointer() -> None:
    pointers = [pointer for pointer, _ in said(SEARCH, {"top_k": 50, "mode": 1, "zzz": 1, "fields": 1})]
    assert pointers == ["/fields", "/mode", "/query", "/top_k", "/zzz"]


@pytest.mark.parametrize(("extra", "last"), [(1, "There is 1 more problem."), (30, "There are 30 more problems.")])
def test_beyond_fifty_violations_only_their_number_is_told(extra: int, last: str) -> None:
    schema = {"items": {"type": "string"}}
    violations = compile_schema(schema).violations([0] * (MAX_VIOLATIONS + extra))
    assert len(violations) == MAX_VIOLATIONS + 1
    assert violations[-1] == Violation("", last, "more")
    assert len(compile_schema(schema).violations([0] * MAX_VIOLATIONS)) == MAX_VIOLATIONS


def test_the_same_fault_by_two_references_is_told_once() -> None:
    schema = {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"minimum": 3}}}
    assert len(said(schema, 1)) == 1


def test_pointers_are_escaped() -> None:
    assert said({"properties": {"a/b~c": {"type": "string"}}}, {"a/b~c": 1})[0][0] == "/a~1b~0c"


def test_a_violation_has_a_wire_form() -> None:
    assert compile_schema(SEARCH).violations({})[0].to_dict() == {
        "pointer": "/query",
        "message": '"query" is required.',
        "keyword": "required",
    }


# ------------------------------------------------------------------------------------------------- what is never told


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"enum": ["a"]},
        {"const": "a"},
        {"pattern": "^x$"},
        {"maxLength": 2},
        {"format": "uuid"},
        {"not": {"const": SECRET}},
        {"anyOf": [{"type": "integer"}, {"maxLength": 2}]},
        {"oneOf": [{"const": 1}, {"const": 2}]},
        {"type": "object"},
    ],
)
@pytest.mark.parametrize("how", ["beside", "above", "in allOf", "by $ref", "by pattern", "in another branch"])
def test_a_write_only_value_is_never_told(schema: dict[str, Any], how: str) -> None:
    instance: dict[str, Any] = {"pin": SECRET}
    if how == "beside":
        root: dict[str, Any] = {"properties": {"pin": {**schema, "writeOnly": True}}}
    elif how == "above":
        root = {"properties": {"login": {"writeOnly": True, "properties": {"pin": schema}}}}
        instance = {"login": instance}
    elif how == "in allOf":
        root = {"properties": {"pin": {"allOf": [{"writeOnly": True}], **schema}}}
    elif how == "by pattern":
        root = {"properties": {"pin": schema}, "patternProperties": {"^p": {"writeOnly": True}}}
    elif how == "by $ref":
        root = {"properties": {"pin": {"$ref": "#/$defs/pin"}}, "$defs": {"pin": {**schema, "writeOnly": True}}}
    else:
        root = {"properties": {"pin": schema}, "anyOf": [{"properties": {"pin": {"writeOnly": True}}}]}
    violations = compile_schema(root).violations(instance)
    assert violations
    assert not any("hunter2" in violation.message or "hunter2" in violation.pointer for violation in violations)


def test_names_inside_a_write_only_object_are_not_told_either() -> None:
    schema: dict[str, Any] = {"properties": {"login": {"writeOnly": True, "additionalProperties": False}}}
    assert said(schema, {"login": {SECRET: 1}}) == [("/login", '"login" must not have any properties.')]
    schema["properties"]["login"]["properties"] = {"name": {}}
    assert said(schema, {"login": {SECRET: 1}}) == [("/login", '"login" has a property that is not allowed.')]
    schema["properties"]["login"] = {"writeOnly": True, "propertyNames": {"maxLength": 3}}
    assert said(schema, {"login": {SECRET: 1}}) == [("/login", '"login" has a property whose name is not allowed.')]


def test_what_is_told_is_cut_short() -> None:
    (message,) = [message for _, message in said({"properties": {"a": {"enum": ["b"]}}}, {"a": "x" * 10_000})]
    assert len(message) < 120
    assert "…" in message
    (message,) = [message for _, message in said({"additionalProperties": False}, {"y" * 10_000: 1})]
    assert len(message) < 120
    (message,) = [message for _, message in said({"additionalProperties": False, "properties": {}}, {"y" * 10_000: 1})]
    assert len(message) < 120


def test_a_long_list_of_choices_is_cut() -> None:
    assert "must be one of 0, 1, 2, 3" in only({"enum": list(range(100))}, "a")
    assert "and 80 more" in only({"enum": list(range(100))}, "a")


# --------------------------------------------------------------------------------------------------- what is not JSON


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {1: 2}])
def test_a_value_that_is_not_json_is_invalid_and_does_not_raise(value: object) -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": {"type": "string"}}})
    for instance in (value, {"a": value}):
        assert not compiled.is_valid(instance)
        assert compiled.violations(instance)
        assert compiled.validate(instance)[2]


def test_a_very_deep_instance_does_not_end_the_process() -> None:
    # In a process of its own: what is guarded against is a fault in native code.
    program = (
        "from handrail.schema.validator import compile_schema\n"
        "deep = 1\n"
        "for _ in range(100_000): deep = [deep]\n"
        "compiled = compile_schema({'items': {'$ref': '#'}, 'properties': {'a': {'default': 1}}})\n"
        "found = compiled.is_valid(deep), compiled.validate(deep)[2][0].keyword, len(compile_schema({}).violations(deep))\n"
        "print(*found, flush=True)\n"
        "import os; os._exit(0)\n"  # freeing the nested list is Python's own business
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False json 0\n"


# ------------------------------------------------------------------------------------------------ what is not compiled


def refusal(schema: Any) -> tuple[str, str]:
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema)
    assert caught.value.message in [problem.message for problem in find_schema_problems(schema)]
    return caught.value.pointer, caught.value.message


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ({"type": "strin"}, "/type", 'did you mean "string"?'),
        ({"type": 3}, "/type", '"type" must be one of "array"'),
        ({"properties": {"a": {"minimum": "1"}}}, "/properties/a/minimum", "must be a number"),
        ({"properties": {"a": 3}}, "/properties/a", "must be a schema"),
        ({"properties": 3}, "/properties", "must be an object"),
        ({"allOf": 3}, "/allOf", "must be a list"),
        ({"items": [{}]}, "/items", "prefixItems"),
        ({"required": ["a", "a"]}, "/required", "twice"),
        ({"$ref": "https://example.com/s.json"}, "/$ref", '"https://example.com/s.json" leads out of the schema'),
        ({"items": {"$ref": "other.json#/a"}}, "/items/$ref", '"other.json#/a" leads out'),
        ({"$ref": ""}, "/$ref", "leads out"),
        ({"$dynamicRef": "https://example.com/s.json"}, "/$dynamicRef", "leads out"),
        ({"$ref": "#/$defs/filtre", "$defs": {"filter": {}}}, "/$ref", 'did you mean "#/$defs/filter"?'),
        ({"$ref": "#nope"}, "/$ref", "leads nowhere"),
        ({"$defs": {"unused": {"$ref": "#/$defs/gone"}}}, "/$defs/unused/$ref", "leads nowhere"),
        ({"$ref": "#/else where", "else where": {}}, "/$ref", "no schema is expected"),
        ({"$ref": "#"}, "", "leads back to itself"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
            "/$defs/b/anyOf/0",
            "leads back to itself",
        ),
        ({"properties": {"a": {"$id": "urn:x"}}}, "/properties/a/$id", "remove it"),
        ({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}, "/$defs/b/$anchor", "declared twice"),
        ({"items": {"format": "datetime"}}, "/items/format", 'did you mean "date-time"?'),
        ({"format": "hostname"}, "/format", '"email", "date-time", "date", "time", "uri", "uuid", "ipv4", "ipv6"'),
        ({"pattern": "(?=a)b"}, "/pattern", "exponential"),
        ({"pattern": "(?<!a)b"}, "/pattern", "exponential"),
        ({"pattern": "(a)\\1"}, "/pattern", "exponential"),
        ({"pattern": "("}, "/pattern", "is not a regular expression"),
        ({"pattern": "((a{1,100}){1,100}){1,10}"}, "/pattern", "too large"),
        ({"patternProperties": {"(?!a)": {}}}, "/patternProperties/(?!a)", "exponential"),
        ({"$defs": {"unused": {"pattern": "(?=a)"}}}, "/$defs/unused/pattern", "exponential"),
        (nested(33), "/properties/a" * 33, "nests more than 32"),
        (nested(50_000), "/properties/a" * 33, "nests more than 32"),
        ({"allOf": [{}] * 5_000}, "", "more than 5,000 subschemas"),
        ({"default": {1, 2}}, "", "cannot be compiled"),
        ({1: 2}, "", "cannot be compiled"),
        (True, "", "must be an object"),
        ([], "", "must be an object"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(schema: Any, pointer: str, words: str) -> None:
    at, message = refusal(schema)
    assert at == pointer
    assert words in message


def test_what_is_within_the_limits_compiles() -> None:
    assert find_schema_problems(nested(32)) == []
    assert find_schema_problems({"allOf": [{}] * 4_999}) == []
    assert compile_schema(nested(32)).is_valid({})


def test_all_problems_are_found_at_once() -> None:
    schema = {
        "type": "strin",
        "properties": {"a": {"format": "datetime"}, "b": {"pattern": "(?=a)"}, "c": {"$ref": "http://x/"}},
        "required": "a",
    }
    assert [problem.pointer for problem in find_schema_problems(schema)] == [
        "/properties/a/format",
        "/properties/b/pattern",
        "/properties/c/$ref",
        "/required",
        "/type",
    ]


def test_words_in_values_are_not_taken_for_keywords() -> None:
    schema = {
        "properties": {
            "format": {"type": "string"},
            "$ref": {"type": "string"},
            "pattern": {"const": {"$ref": "http://x/"}},
        },
        "examples": [{"format": "pdf", "$ref": "http://x/", "pattern": "(?=a)"}],
        "default": {"format": "pdf"},
    }
    assert find_schema_problems(schema) == []
    assert compile_schema(schema).is_valid({"format": "pdf", "$ref": "x"})


def test_local_references_of_every_kind_compile() -> None:
    schema = {
        "$id": "https://example.com/tool",
        "properties": {
            "a": {"$ref": "#/$defs/a~1b%20c"},
            "b": {"$ref": "#named"},
            "c": {"$ref": "#/definitions/old"},
            "d": {"$ref": "#/allOf/0"},
            "e": {"$ref": "#"},
        },
        "allOf": [{"type": "object"}],
        "$defs": {"a/b c": {"type": "string"}, "n": {"$anchor": "named", "type": "string"}},
        "definitions": {"old": {"type": "string"}},
    }
    assert find_schema_problems(schema) == []
    assert len(said(schema, {"a": 1, "b": 1, "c": 1, "d": 1, "e": {"a": 1}})) == 5


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema", "$id"])
def test_nothing_is_ever_fetched(keyword: str, trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for schema in ({keyword: address}, {"properties": {"a": {keyword: address}}}):
            if "Ref" in keyword or keyword == "$ref":
                with pytest.raises(SchemaError):
                    compile_schema(schema, trusted=trusted)
            else:
                try:
                    compile_schema(schema, trusted=trusted).validate({"a": 1})
                except SchemaError:
                    assert keyword == "$id"
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_trusted_schema_is_not_looked_at_for_authors_problems() -> None:
    assert compile_schema({"format": "hostname"}, trusted=True).is_valid(3)
    with pytest.raises(SchemaError):
        compile_schema({"type": "strin"}, trusted=True)


# ---------------------------------------------------------------------------------------------------------- the port


def test_a_frozen_schema_and_a_frozen_instance_are_taken_as_they_are() -> None:
    compiled = compile_schema(freeze(SEARCH))
    assert compiled.is_valid(freeze({"query": "a", "fields": ["url"]}))
    value, filled, violations = compiled.validate(freeze({"query": "a"}))
    assert value == {"query": "a", "top_k": 5, "mode": "fast", "fields": ["snippet"]}
    assert (filled, violations) == (("/top_k", "/mode", "/fields"), [])
    assert type(value) is dict
    assert type(value["fields"]) is list


def test_the_default_compiler_fits_the_port_and_says_its_version() -> None:
    compiler: SchemaCompiler = JSONSCHEMA_RS
    compiled: CompiledSchema = compiler.compile(SEARCH, trusted=True)
    assert compiled.is_valid({"query": "a"})
    assert compiler.name == "jsonschema-rs"
    assert compiler.version.count(".") == 2


def test_the_engine_is_imported_with_the_validator_and_not_with_the_package() -> None:
    program = "import sys, handrail.schema; print('jsonschema_rs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

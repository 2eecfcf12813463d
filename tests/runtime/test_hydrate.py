"""Hydration: a call becomes a tool instance or a list of what is wrong, with its provenance, and nothing makes it raise."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail import Call, ToolComponent, hydrate
from handrail.build.compiler import BuildPlan, BuildStamp, build
from handrail.build.writer import write
from handrail.contract.errors import UsageError
from handrail.registry import Registry

PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "top_k": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
        "exact": {"type": "boolean"},
        "weight": {"type": ["number", "null"]},
        "codes": {"type": "array", "items": {"type": "integer"}},
        "filter": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"year": {"type": "integer"}, "kind": {"enum": ["all", "new"], "default": "all"}},
        },
    },
}
SCHEMA = {
    "toolId": "search",
    "version": "1.2.0",
    "description": "Search.",
    "category": "retrieval",
    "sideEffects": "read_only",
    "idempotent": True,
    "requiresConfirmation": False,
    "allowedModes": ["text"],
    "latencyBudgetMs": 500,
    "parameters": PARAMETERS,
}
MODULE = """
from handrail import tool

@tool(parameters={"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer", "default": 1}}})
class Made:
    '''Make something.'''

    def __init__(self, args):
        super().__init__(args)
        if args["n"] == 13:
            raise RuntimeError("not thirteen")

    async def run(self, params=None):
        return self.args["n"]

@tool
def shout(text: str):
    '''Shout.'''
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    root = tmp_path_factory.mktemp("hydrate")
    folder = root / "tools" / "search"
    folder.mkdir(parents=True)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "guide.md").write_text("Searches.\n")
    (folder / "handler.py").write_text("def execute(args, ctx):\n    raise AssertionError('hydration runs nothing')\n")
    broken = root / "tools" / "broken"
    broken.mkdir()
    (broken / "schema.json").write_text(json.dumps({**SCHEMA, "toolId": "broken"}))
    (broken / "guide.md").write_text("Breaks.\n")
    (broken / "handler.py").write_text("raise SystemExit\ndef execute(args, ctx): ...\n")
    (root / "tools_to_hydrate.py").write_text(MODULE)
    result = build(
        BuildPlan(tools=root / "tools", artifact=root / "r.json", modules=("tools_to_hydrate",), project=root)
    )
    assert not result.errors, result.errors
    registry = Registry.load(write(result, BuildStamp(git_commit=None, timestamp="2026")))
    registry.lock()
    return registry.snapshot()


def call(args, name="search", **facts):
    return Call(name=name, args=args, **facts)


# ------------------------------------------------------------------------------------------------------------- success


def test_a_good_call_becomes_an_instance_with_validated_arguments(snapshot):
    result = hydrate(call('{"query": "tea"}', call_id="c1", provider="openai-chat"), snapshot)

    assert result.success
    assert result.errors == ()
    assert isinstance(result.tool, ToolComponent)
    assert result.tool.args == {"query": "tea", "top_k": 5}
    assert result.tool.get_definition() == snapshot.tool("search").definition


def test_the_provenance_tells_every_step(snapshot):
    result = hydrate(call('{"query": "tea"}', call_id="c1", provider="openai-chat"), snapshot)

    told = result.provenance.to_dict()
    validator = told.pop("validator")
    assert told == {
        "providerToolId": "c1",
        "provider": "openai-chat",
        "originalRawArgs": '{"query": "tea"}',
        "parsed": {"query": "tea"},
        "validated": {"query": "tea", "top_k": 5},
        "defaulted": ["/top_k"],
        "repaired": False,
    }
    assert validator["name"] == "jsonschema-rs"
    assert validator["version"][0].isdigit()
    assert validator["compiledAt"].startswith("20")
    assert validator["durationMs"] >= 0


def test_the_validator_that_is_named_is_the_registry_s(snapshot):
    first = hydrate(call({"query": "tea"}), snapshot).provenance.validator
    second = hydrate(call({"query": "more tea"}), snapshot).provenance.validator

    assert first.compiled_at == second.compiled_at == snapshot.tool("search").compiled_at


def test_nested_defaults_are_filled_in_on_a_copy(snapshot):
    raw = {"query": "tea", "filter": {"year": 2026}}

    result = hydrate(call(raw), snapshot)

    assert result.tool.args == {"query": "tea", "top_k": 5, "filter": {"year": 2026, "kind": "all"}}
    assert set(result.provenance.defaulted) == {"/top_k", "/filter/kind"}
    assert raw == {"query": "tea", "filter": {"year": 2026}}
    assert result.provenance.parsed == raw


def test_a_class_tool_is_made_from_the_one_argument_object(snapshot):
    result = hydrate(call({"n": 3}, "made"), snapshot)

    assert type(result.tool).__name__ == "Made"
    assert result.tool.args == {"n": 3}


async def test_an_instance_of_a_directory_or_function_tool_cannot_be_run_around_the_pipeline(snapshot):
    for name, args in (("search", {"query": "x"}), ("shout", {"text": "x"})):
        instance = hydrate(call(args, name), snapshot).tool
        with pytest.raises(UsageError, match="pipeline"):
            await instance.run()


@pytest.mark.parametrize("args", [None, "", "  ", "null", "{}", {}])
def test_no_arguments_at_all_are_an_empty_object(snapshot, args):
    assert hydrate(call(args, "made"), snapshot).tool.args == {"n": 1}


@pytest.mark.parametrize(
    "args",
    [
        {"query": "tea"},
        '{"query": "tea"}',
        b'{"query": "tea"}',
        ' \n {"query": "tea"}\t\n',
        '```json\n{"query": "tea"}\n```',
        '```\n{"query": "tea"}\n```',
        json.dumps('{"query": "tea"}'),
        json.dumps('{"query": "tea"}').encode(),
    ],
    ids=str,
)
def test_white_space_a_code_fence_and_one_more_encoding_are_taken_off(snapshot, args):
    result = hydrate(call(args), snapshot)

    assert result.tool.args["query"] == "tea"
    assert not result.provenance.repaired
    assert result.provenance.original_raw_args is args


# ------------------------------------------------------------------------------------------------------------- failure


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ("{query: tea}", "invalid_json"),
        ('{"query": "tea"', "invalid_json"),
        ('{"query": "tea"} and more', "invalid_json"),
        ('Sure! {"query": "tea"}', "invalid_json"),
        ("[1]", "invalid_json"),
        ("3", "invalid_json"),
        (["query"], "invalid_json"),
        (7, "invalid_json"),
        (object(), "invalid_json"),
        ({1: 2}, "invalid_json"),
        (json.dumps(json.dumps('{"query": "tea"}')), "invalid_json"),
        ('{"query": "a", "query": "b"}', "duplicate_key"),
        ('{"weight": NaN}', "invalid_json"),
        ({"weight": float("inf")}, "invalid_number"),
        ('{"top_k": 9007199254740993}', "invalid_number"),
        ('{"query": "\\ud800"}', "invalid_unicode"),
        ({"query": "\ud800"}, "invalid_unicode"),
        (b'{"query": "\xff"}', "invalid_unicode"),
        ('{"a":' * 40 + "1" + "}" * 40, "too_deep"),
        ("[" * 10_000, "too_deep"),
        ('{"query": "' + "x" * 70_000 + '"}', "args_too_large"),
        ({"query": "x" * 70_000}, "args_too_large"),
    ],
    ids=lambda value: repr(value)[:30].partition(" at 0x")[0],
)
def test_arguments_that_cannot_be_parsed_say_so_with_a_code_of_their_own(snapshot, args, code):
    result = hydrate(call(args), snapshot)

    assert not result.success
    assert result.tool is None
    (fault,) = result.errors
    assert (fault.stage, fault.detail["code"]) == ("parse", code)
    assert fault.message.endswith(".")
    assert result.provenance.parsed is None
    assert result.provenance.validated is None


def test_every_violation_is_told_with_its_place(snapshot):
    args = {"query": "", "top_k": 99, "filter": {"kind": "old"}, "made_up": 1}
    result = hydrate(call(args), snapshot)

    assert {fault.stage for fault in result.errors} == {"validate"}
    assert {fault.detail["pointer"] for fault in result.errors} == {"/query", "/top_k", "/filter/kind", "/made_up"}
    assert result.provenance.parsed == args
    assert result.provenance.validated is None
    assert result.provenance.validator.name == "jsonschema-rs"
    assert result.errors[0].to_dict()["stage"] == "validate"


@pytest.mark.parametrize("slip", [{"top_k": "3"}, {"exact": "true"}, {"codes": ["1"]}, {"query": 7}])
def test_nothing_is_coerced_unless_repair_is_asked_for(snapshot, slip):
    assert not hydrate(call({"query": "tea", **slip}), snapshot).success


def test_an_unknown_tool_is_answered_with_the_nearest(snapshot):
    result = hydrate(call({}, "serach"), snapshot)

    (fault,) = result.errors
    assert fault.stage == "instantiate"
    assert 'did you mean "search"?' in fault.message


@pytest.mark.parametrize(
    "name", ["", None, 7, ["search"], {"name": "search"}, b"search", "x" * 1_000_000, "\ud800", "a\0b"]
)
def test_a_name_that_no_tool_can_have_is_answered_in_a_sentence(snapshot, name):
    (fault,) = hydrate(call({}, name), snapshot).errors

    assert fault.stage == "instantiate"
    assert len(fault.message) < 200
    fault.message.encode()


def test_a_constructor_that_raises_is_a_fault_without_its_text(snapshot):
    result = hydrate(call({"n": 13}, "made"), snapshot)

    (fault,) = result.errors
    assert (fault.stage, fault.detail) == ("instantiate", {"reason": "RuntimeError"})
    assert "thirteen" not in fault.message
    assert result.provenance.validated == {"n": 13}


def test_a_handler_that_cannot_be_loaded_is_a_fault(snapshot):
    (fault,) = hydrate(call({"query": "tea"}, "broken"), snapshot).errors

    assert fault.stage == "instantiate"


def test_each_attempt_is_shown_to_whoever_audits(snapshot):
    seen = []
    for args in ('{"query": "tea"}', "nonsense"):
        hydrate(call(args), snapshot, observe=seen.append)

    assert [result.success for result in seen] == [True, False]


# -------------------------------------------------------------------------------------------------------------- repair


@pytest.mark.parametrize(
    ("args", "validated"),
    [
        ("{query: 'tea'}", {"query": "tea", "top_k": 5}),
        ('{"query": "tea",}', {"query": "tea", "top_k": 5}),
        ('{"query": "tea"', {"query": "tea", "top_k": 5}),
        ('{"query": "tea", "top_k": "3"}', {"query": "tea", "top_k": 3}),
        ({"query": "tea", "top_k": " 3 "}, {"query": "tea", "top_k": 3}),
        (
            {"query": "tea", "exact": "True", "weight": "1.5"},
            {"query": "tea", "exact": True, "weight": 1.5, "top_k": 5},
        ),
        ({"query": "tea", "codes": ["1", 2, "-3"]}, {"query": "tea", "codes": [1, 2, -3], "top_k": 5}),
        (
            {"query": "tea", "filter": {"year": "2026"}},
            {"query": "tea", "filter": {"year": 2026, "kind": "all"}, "top_k": 5},
        ),
        ("{query: 'tea', top_k: '3'}", {"query": "tea", "top_k": 3}),
    ],
    ids=str,
)
def test_one_repair_mends_json_and_plain_type_slips_and_is_marked(snapshot, args, validated):
    assert not hydrate(call(args), snapshot).success

    result = hydrate(call(args), snapshot, repair=True)

    assert result.success, result.errors
    assert result.tool.args == validated
    assert result.provenance.repaired
    assert result.provenance.original_raw_args is args
    assert result.provenance.to_dict()["repaired"] is True


def test_what_was_right_is_not_marked_as_repaired(snapshot):
    assert not hydrate(call('{"query": "tea"}'), snapshot, repair=True).provenance.repaired


@pytest.mark.parametrize(
    "args",
    [
        {"query": "tea", "top_k": "three"},
        {"query": "tea", "top_k": "3.0"},
        {"query": "tea", "top_k": "٣"},
        {"query": "tea", "top_k": "03"},
        {"query": "tea", "top_k": "99"},
        {"query": "tea", "top_k": "3", "made_up": 1},
        {"query": "tea", "codes": ["9999999999999999"]},
        {"query": "tea", "weight": "9999999999999999"},
        {"query": "tea", "weight": "1e5"},
        {"query": "tea", "exact": "yes"},
        {"query": 7},
        {"query": "tea", "filter": "{}"},
        '{"query": "a", "query": "b"}',
        "tea, please",
        "",
    ],
    ids=str,
)
def test_a_repair_guesses_nothing(snapshot, args):
    result = hydrate(call(args), snapshot, repair=True)

    assert not result.success
    assert result.provenance.validated is None


def test_a_repair_that_fails_tells_what_was_wrong_in_the_first_place(snapshot):
    for args in ("tea, please", '{"query": ' + '"x' * 4000):
        plain = hydrate(call(args), snapshot)
        tried = hydrate(call(args), snapshot, repair=True)

        assert tried.errors == plain.errors
        assert not tried.provenance.repaired


# -------------------------------------------------------------------------------------------------------- never raises

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=20), st.just(object())
)
KEYS = st.one_of(st.text(max_size=6), st.sampled_from(list(PARAMETERS["properties"])), st.integers())
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(st.integers(), max_size=2),
    ),
    max_leaves=12,
)
JSONISH = st.text(st.sampled_from("{}[]\",:\\'` \n0123456789.-eEtruefalsnqy_kjo\ud800é😀"), max_size=60)
NAMES = st.one_of(st.sampled_from(["search", "made", "shout", "broken"]), st.text(max_size=10), SCALARS)


@given(NAMES, st.one_of(NESTED, JSONISH, st.text(), st.binary()), st.booleans())
@example("search", "[" * 70_000, True)
@example("search", '{"query": ' * 2000, True)
@example("search", b"\xff\xfe", True)
@example("search", bytearray(b'{"query": "tea"}'), False)
@example("search", memoryview(b'{"query": "tea"}'), False)
@example("search", range(5), False)
@example("search", {"query": "tea", "top_k": 10**5000}, True)
@example("search", '{"top_k": 1' + "0" * 5000 + "}", True)
def test_hydration_never_raises(snapshot, name, args, repair):
    result = hydrate(Call(name=name, args=args), snapshot, repair=repair)

    assert result.success is (not result.errors) is (result.tool is not None)
    for fault in result.errors:
        assert fault.stage in ("parse", "validate", "instantiate")
        assert fault.message
        json.dumps(fault.to_dict()).encode()
    if result.success:
        assert snapshot.tool(name).validator.is_valid(result.tool.args)
        assert result.provenance.validated == result.tool.args


@pytest.mark.parametrize("repair", [False, True])
def test_an_object_without_end_or_beyond_any_depth_is_refused(snapshot, repair):
    cyclic = {"query": "x"}
    cyclic["filter"] = cyclic
    deep = "x"
    for _ in range(5000):
        deep = {"filter": [deep]}

    for args in (cyclic, deep):
        (fault,) = hydrate(call(args), snapshot, repair=repair).errors
        assert (fault.stage, fault.detail["code"]) == ("parse", "too_deep")


@given(st.one_of(st.text(), st.binary(), st.none()), st.one_of(st.none(), st.text(), st.integers()))
def test_no_id_and_no_provider_makes_hydration_raise(snapshot, call_id, provider):
    assert hydrate(Call(name="search", args={"query": "x"}, call_id=call_id, provider=provider), snapshot).success


ARGUMENTS = st.fixed_dictionaries(
    {"query": st.text(min_size=1, max_size=10)},
    optional={
        "top_k": st.integers(1, 10),
        "exact": st.booleans(),
        "weight": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        "codes": st.lists(st.integers(-(2**53) + 1, 2**53 - 1), max_size=3),
        "filter": st.fixed_dictionaries(
            {}, optional={"year": st.integers(0, 3000), "kind": st.sampled_from(["all", "new"])}
        ),
    },
)


@given(ARGUMENTS, st.sampled_from(["object", "text", "fence", "twice"]))
def test_a_valid_object_is_taken_in_every_wrapping_and_keeps_what_it_says(snapshot, args, wrapping):
    text = json.dumps(args)
    raw = {"object": args, "text": text, "fence": f"```json\n{text}\n```", "twice": json.dumps(text)}[wrapping]

    result = hydrate(call(raw), snapshot)

    assert result.success, result.errors
    taken = result.tool.args
    assert {key: taken[key] for key in args if key != "filter"} == {key: args[key] for key in args if key != "filter"}
    assert taken["top_k"] == args.get("top_k", 5)
    if "filter" in args:
        assert taken["filter"] == {"kind": "all", **args["filter"]}

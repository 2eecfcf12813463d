"""Three ways in, one definition out: a folder, a decorated class and a decorated function of the same tool are equal."""

import copy
import dataclasses
import json
import pickle
import typing
from typing import Annotated, Literal

import pytest

from handrail import ToolComponent, ToolDefinition, tool
from handrail.authoring.decorator import definition_of, guide_of
from handrail.authoring.directory import read_folder
from handrail.build.compiler import BuildPlan, build
from handrail.contract.errors import DefinitionError
from handrail.testing import open_tools

SCHEMA = {
    "toolId": "search_notes",
    "version": "2.1.0",
    "description": "Search the notes.",
    "category": "retrieval",
    "sideEffects": "read_only",
    "idempotent": True,
    "requiresConfirmation": False,
    "allowedModes": ["text", "voice"],
    "latencyBudgetMs": 700,
    "parameters": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": "What to look for."},
            "top_k": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5, "description": "How many at most."},
            "scope": {"enum": ["all", "mine"], "default": "all", "description": "Whose notes."},
        },
        "required": ["query"],
    },
    "timeoutMs": 3000,
    "outputSchema": {"type": "object", "properties": {"found": {"type": "array"}}},
    "maxOutputBytes": 4096,
    "capabilities": ["kb"],
    "tags": ["notes", "search"],
    "alwaysOffer": True,
    "rateLimit": {"calls": 5, "windowMs": 60000, "scope": "user"},
    "permissions": {"requiresAuth": True, "roles": ["manager"]},
    "availability": {"condition": 'mode == "text"'},
    "confirmation": {"when": "args.top_k > 5", "channel": "screen"},
    "clamp": {"voice": {"top_k": 3, "scope": ["all"]}},
    "dedupeFields": ["query"],
    "preview": "Search for {query}.",
    "onInterrupt": "finish",
    "strict": True,
    "waivers": {"provider-loss": "checked"},
}
GUIDE = "Search the notes.\n\nUse short queries."
POLICY = {
    "version": "2.1.0",
    "category": "retrieval",
    "side_effects": "read_only",
    "idempotent": True,
    "requires_confirmation": False,
    "allowed_modes": ("text", "voice"),
    "latency_budget_ms": 700,
    "timeout_ms": 3000,
    "output_schema": {"type": "object", "properties": {"found": {"type": "array"}}},
    "max_output_bytes": 4096,
    "capabilities": ("kb",),
    "tags": ["notes", "search"],
    "always_offer": True,
    "rate_limit": {"calls": 5, "window_ms": 60000, "scope": "user"},
    "requires_auth": True,
    "roles": ("manager",),
    "availability_condition": 'mode == "text"',
    "confirmation_when": "args.top_k > 5",
    "confirmation_channel": "screen",
    "clamp": {"voice": {"top_k": 3, "scope": ("all",)}},
    "dedupe_fields": ["query"],
    "preview": "Search for {query}.",
    "on_interrupt": "finish",
    "strict": True,
    "waivers": {"provider-loss": "checked"},
}


@tool(**POLICY)
def search_notes(
    query: Annotated[str, {"minLength": 1}],
    top_k: Annotated[int, {"minimum": 1, "maximum": 10}] = 5,
    scope: Literal["all", "mine"] = "all",
    ctx=None,
):
    """Search the notes.

    Args:
        query: What to look for.
        top_k: How many at most.
        scope: Whose notes.

    Use short queries.
    """


@tool(parameters=SCHEMA["parameters"], guide=GUIDE, **POLICY)
class SearchNotes:
    """Search the notes."""


def as_folder(root, schema=SCHEMA, guide=GUIDE):
    folder = root / "tools" / schema["toolId"].replace("_", "-")
    folder.mkdir(parents=True)
    (folder / "schema.json").write_text(json.dumps(schema))
    (folder / "guide.md").write_text(guide)
    (folder / "handler.py").write_text("def execute(args, ctx):\n    return {'ok': True, 'data': {}}\n")
    return read_folder(root / "tools", folder.name)


def test_the_three_ways_give_one_definition(tmp_path):
    from_folder = as_folder(tmp_path)

    assert from_folder.definition == definition_of(search_notes) == definition_of(SearchNotes)
    assert from_folder.definition == ToolDefinition.from_dict(SCHEMA)
    assert from_folder.guide == guide_of(search_notes) == guide_of(SearchNotes)
    assert search_notes.get_definition() is definition_of(search_notes)
    assert SearchNotes.get_definition() is definition_of(SearchNotes)
    assert definition_of(search_notes).to_dict() == SCHEMA


def test_the_three_ways_build_to_the_same_entry(tmp_path):
    as_folder(tmp_path, {**SCHEMA, "toolId": "look"})
    (tmp_path / "as_a_function.py").write_text(
        f"import handrail\nfrom {__name__} import POLICY\nfrom typing import Annotated, Literal\n"
        "@handrail.tool(**POLICY)\n"
        "def look(query: Annotated[str, {'minLength': 1}], top_k: Annotated[int, {'minimum': 1, 'maximum': 10}] = 5,\n"
        "         scope: Literal['all', 'mine'] = 'all'):\n"
        f"    {search_notes.__doc__!r}\n"
    )
    (tmp_path / "as_a_class.py").write_text(
        f"import handrail\nfrom {__name__} import POLICY, SCHEMA, GUIDE\n"
        "@handrail.tool(parameters=SCHEMA['parameters'], description='Search the notes.', guide=GUIDE, **POLICY)\n"
        "class Look:\n    async def run(self, params=None): ...\n"
    )

    def entry(tools, *modules):
        place = {"tools": tmp_path / tools, "artifact": tmp_path / "r.json", "project": tmp_path}
        result = build(BuildPlan(**place, modules=modules, tools_optional=True))
        assert result.findings == ()
        (found,) = result.entries
        return {key: value for key, value in found.items() if key not in ("handler", "hash")}, result.providers

    assert entry("tools") == entry("none", "as_a_function") == entry("none", "as_a_class")


def test_optional_fields_may_be_left_out_everywhere(tmp_path):
    required = ("toolId", "version", "description", "category", "sideEffects", "idempotent", "requiresConfirmation")
    schema = {name: SCHEMA[name] for name in (*required, "allowedModes", "latencyBudgetMs", "parameters")}

    @tool(parameters=SCHEMA["parameters"], category="retrieval", side_effects="read_only", version="2.1.0")
    class Plain:
        """Search the notes."""

    expected = {**schema, "toolId": "plain", "latencyBudgetMs": 1000}
    assert definition_of(Plain) == ToolDefinition.from_dict(expected)
    assert definition_of(Plain).to_dict() == expected


# ------------------------------------------------------------------------------------------------------------- frozen


def test_a_definition_cannot_be_changed_after_it_was_made():
    definition = definition_of(search_notes)

    with pytest.raises(dataclasses.FrozenInstanceError):
        definition.category = "action"
    for change in (
        lambda: definition.parameters.update(type="string"),
        lambda: definition.parameters["properties"].pop("query"),
        lambda: definition.clamp["voice"].__setitem__("top_k", 9),
        lambda: definition.parameters["required"].append("x"),
        definition.waivers.clear,
    ):
        with pytest.raises((TypeError, AttributeError)):
            change()
    assert definition == ToolDefinition.from_dict(SCHEMA)


def test_what_a_definition_was_made_from_can_be_changed_without_changing_it():
    parameters = copy.deepcopy(SCHEMA["parameters"])
    modes = ["text"]
    waivers = {"provider-loss": "checked"}

    @tool(parameters=parameters, allowed_modes=modes, waivers=waivers)
    class Shared:
        """A tool."""

    parameters["properties"].clear()
    modes.append("voice")
    waivers.clear()

    made = definition_of(Shared)
    assert (list(made.parameters["properties"]), made.allowed_modes) == (["query", "top_k", "scope"], ("text",))
    assert made.waivers == {"provider-loss": "checked"}
    wire = made.to_dict()
    wire["parameters"]["properties"].clear()
    assert made.parameters["properties"]


def test_a_definition_survives_a_copy_and_a_pickle():
    definition = definition_of(search_notes)

    assert copy.deepcopy(definition) == definition
    assert pickle.loads(pickle.dumps(definition)) == definition
    assert dataclasses.replace(definition, version="3.0.0").version == "3.0.0"


# ---------------------------------------------------------------------------------------------------------- no schema


def test_a_class_without_a_schema_is_refused():
    with pytest.raises(DefinitionError, match=r"no parameter schema.*allow_no_schema=True"):

        @tool
        class Bare:
            """A tool."""


def test_a_function_without_hints_is_refused():
    with pytest.raises(DefinitionError, match='"text" has no type hint'):

        @tool
        def shout(text):
            """Shout."""


@pytest.mark.parametrize(("given", "mode"), [({}, "confirm"), ({"no_schema_mode": "refuse"}, "refuse")])
def test_without_a_schema_a_tool_says_what_happens_to_its_calls(given, mode):
    @tool(allow_no_schema=True, **given)
    def shout(text):
        """Shout."""

    @tool(allow_no_schema=True, **given)
    class Shout:
        """Shout."""

    for made in (definition_of(shout), definition_of(Shout)):
        assert (made.no_schema_mode, made.unvalidated) == (mode, True)
        assert made.parameters == {"type": "object"}
        assert ToolDefinition.from_dict(made.to_dict()) == made


def test_an_unknown_mode_without_a_schema_is_refused():
    with pytest.raises(DefinitionError, match='"noSchemaMode" must be "confirm" or "refuse"'):
        tool(allow_no_schema=True, no_schema_mode="run")(lambda text: None)


def test_a_schema_that_is_given_counts_although_none_is_needed():
    @tool(allow_no_schema=True, parameters=SCHEMA["parameters"])
    def shout(text):
        """Shout."""

    assert not definition_of(shout).unvalidated


UNVALIDATED = """
from handrail import tool

@tool(allow_no_schema=True)
def shout(text):
    '''Shout.'''
    return {"said": text.upper()}

@tool(allow_no_schema=True, no_schema_mode="refuse")
def whisper(text):
    '''Whisper.'''
    return {"said": text.lower()}
"""


def test_unvalidated_tools_run_only_as_their_mode_says(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "unvalidated_tools.py").write_text(UNVALIDATED)
    with open_tools(tmp_path / "tools", modules=("unvalidated_tools",)) as tools:
        held = tools.call("shout", {"text": "hey"})
        approved = tools.call("shout", {"text": "hey"}, approved=True)
        refused = tools.call("whisper", {"text": "hey"}, approved=True)

    assert held.error.type == "CONFIRMATION_REQUIRED"
    assert approved.data == {"said": "HEY"}
    assert approved.meta["unvalidated"] is True
    assert not refused.ok


# ------------------------------------------------------------------------------------------------------ ToolComponent


@tool(parameters=SCHEMA["parameters"], tool_id="component")
class Component:
    """A component."""

    limit = 3
    made: typing.ClassVar[list] = []

    def __init__(self, args):
        super().__init__(args)
        self.made.append(self)

    @staticmethod
    def double(number):
        return number * 2

    @classmethod
    def named(cls):
        return cls.__name__

    def words(self):
        return self.args["query"].split()

    async def run(self, params=None):
        return {"words": self.words(), "limit": self.double(self.limit), "params": params}


async def test_a_decorated_class_keeps_its_members_and_is_made_from_one_argument_object():
    assert issubclass(Component, ToolComponent)
    assert (Component.__name__, Component.__module__, Component.__doc__) == ("Component", __name__, "A component.")
    assert (Component.limit, Component.double(4), Component.named()) == (3, 8, "Component")
    args = {"query": "one two"}

    component = Component(args)

    assert component.args is args
    assert Component.made == [component]
    assert await component.run("x") == {"words": ["one", "two"], "limit": 6, "params": "x"}
    assert component.ctx is None
    assert component.get_definition().tool_id == "component"


async def test_a_class_that_brings_nothing_is_still_a_component():
    component = SearchNotes({"query": "x"})

    assert isinstance(component, ToolComponent)
    assert component.args == {"query": "x"}
    assert await component.run() is None
    assert SearchNotes().args == {}


def test_a_subclass_of_toolcomponent_may_be_decorated_too():
    @tool(parameters=SCHEMA["parameters"])
    class Mine(ToolComponent):
        """Mine."""

    assert Mine.__mro__[1].__bases__ == (ToolComponent,)
    assert ToolComponent.get_definition() is None


def test_what_a_base_says_of_itself_is_no_guide():
    with pytest.raises(DefinitionError, match='"description"'):

        @tool(parameters=SCHEMA["parameters"])
        class Undescribed(ToolComponent):
            pass


def test_a_subclass_of_a_tool_is_not_that_tool():
    class Special(SearchNotes):
        pass

    assert definition_of(Special) is None
    assert Special.get_definition() is None
    assert definition_of(SearchNotes({})) is None


def test_a_decorated_function_stays_the_function_it_was():
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert add(1) == 3
    assert add.__name__ == "add"


@pytest.mark.parametrize(
    ("name", "tool_id"),
    [("KbSearch", "kb_search"), ("lookup_order", "lookup_order"), ("HTTPProbe", "http_probe"), ("A2B", "a2_b")],
)
def test_the_id_is_the_name_in_snake_case(name, tool_id):
    made = tool(parameters={"type": "object"}, description="x")(type(name, (), {}))

    assert definition_of(made).tool_id == tool_id


@pytest.mark.parametrize(
    "target", [7, "text", None.__class__, object()], ids=["a number", "a text", "NoneType", "an object"]
)
def test_the_decorator_stands_on_classes_and_functions_only(target):
    with pytest.raises(DefinitionError):
        tool(description="x")(target)


def test_every_problem_of_a_decorated_tool_is_named_at_once():
    with pytest.raises(DefinitionError) as caught:

        @tool(category="search", latency_budget_ms=0, timeout_ms=-5, allowed_modes=[])
        def look(x: int):
            """Look."""

    assert {problem.pointer for problem in caught.value.problems} == {
        "/category",
        "/latencyBudgetMs",
        "/timeoutMs",
        "/allowedModes",
    }


@pytest.mark.parametrize(("keyword", "near"), [("timeoutms", "timeout_ms"), ("sideEffects", "side_effects")])
def test_an_unknown_keyword_comes_with_the_nearest(keyword, near):
    with pytest.raises(DefinitionError, match=f"no keyword `{keyword}`.*Did you mean `{near}`"):

        @tool(**{keyword: 5})
        def look(x: int):
            """Look."""


@pytest.mark.parametrize(
    "policy",
    [
        {"parameters": {"type": "object", "default": {1, 2}}},
        {"parameters": {"type": "object", "maximum": float("inf")}},
        {"tags": ["\ud800"]},
        {"guide": "\ud800"},
        {"output_schema": {"const": 2**60}},
        {"clamp": {"voice": {"x": float("nan")}}},
    ],
    ids=str,
)
def test_what_json_cannot_carry_is_refused_when_the_tool_is_made(policy):
    with pytest.raises(DefinitionError, match="value that JSON can carry"):

        @tool(**policy)
        def look(x: int):
            """Look."""

"""A plain function, adopted: governed like one that was written as a tool, and itself left alone."""

import asyncio
import sys

import pytest
from tests.adopt.kit import adopted

from handrail.adopt import from_function
from handrail.adopt.importing.adopted import ForeignTool, adopt
from handrail.authoring.decorator import definition_of, guide_of
from handrail.build.compiler import BuildPlan, build
from handrail.contract.errors import BuildError, DefinitionError, ErrorType


def price(item: str, pieces: int = 1) -> float:
    """What an item costs.

    Args:
        item: Its name.
        pieces: How many.
    """
    return len(item) * pieces


def test_an_adopted_function_has_the_schema_of_its_hints_and_stays_as_it_was():
    tool = from_function(price, side_effects="none")
    definition = definition_of(tool)
    assert definition.tool_id == "price"
    assert definition.description == "What an item costs."
    assert guide_of(tool).startswith("What an item costs.\n\nArgs:")
    assert definition.parameters["required"] == ("item",)
    assert definition.parameters["additionalProperties"] is False
    assert definition.parameters["properties"]["pieces"]["default"] == 1
    assert (definition.category, definition.side_effects) == ("utility", "none")
    assert definition.requires_confirmation is False
    assert definition_of(price) is None
    assert tool.__module__ == __name__


def test_what_nobody_said_counts_as_writing_and_asks_a_person():
    definition = definition_of(from_function(price))
    assert (definition.category, definition.side_effects) == ("action", "writes")
    assert definition.requires_confirmation is True
    assert definition.idempotent is False


def test_policy_is_given_as_keywords_and_a_misspelt_one_is_refused():
    definition = definition_of(from_function(price, side_effects="read_only", timeout_ms=500, tool_id="cost"))
    assert (definition.tool_id, definition.timeout_ms) == ("cost", 500)
    with pytest.raises(DefinitionError, match="timeout_ms"):
        from_function(price, timout_ms=500)


def test_an_adopted_function_is_built_and_called_through_the_pipeline(tmp_path):
    source = """
        import statistics
        from handrail.adopt import from_function

        NUMBERS = {"type": "object", "additionalProperties": False, "required": ["data"],
                   "properties": {"data": {"type": "array", "minItems": 1, "items": {"type": "number"}}}}
        mean = from_function(statistics.fmean, parameters=NUMBERS, side_effects="none", guide="The mean of numbers.",
                             description="The mean of numbers.", tool_id="mean")
    """
    with adopted(tmp_path, source) as tools:
        assert tools.call("mean", {"data": [1, 2, 6]}).data == 3.0
        refused = tools.call("mean", {"data": [], "weights": [1]})
        assert refused.error.type is ErrorType.VALIDATION
        assert len(refused.error.details) == 2


def test_an_adopted_function_waits_for_a_person_unless_its_effects_are_known(tmp_path):
    source = """
        from handrail.adopt import from_function

        def remove(name: str) -> str:
            "Remove something."
            return name

        taken = from_function(remove)
    """
    with adopted(tmp_path, source) as tools:
        assert tools.call("remove", {"name": "x"}).error.type is ErrorType.CONFIRMATION_REQUIRED
        assert tools.call("remove", {"name": "x"}, approved=True).data == "x"


def test_async_functions_methods_and_the_context_are_passed_on(tmp_path):
    source = """
        from dataclasses import dataclass
        from datetime import date
        from handrail.adopt import from_function

        @dataclass
        class Day:
            when: date
            user: str | None

        class Diary:
            async def day(self, number: int, ctx) -> Day:
                "A day of the year."
                return Day(date(2026, 1, number), ctx.user)

        day = from_function(Diary().day, side_effects="none")
    """
    with adopted(tmp_path, source) as tools:
        assert tools.call("day", {"number": 4}, user="ana").data == {"when": "2026-01-04", "user": "ana"}


def test_a_result_that_looks_like_an_envelope_is_only_data(tmp_path):
    source = """
        from handrail.adopt import from_function

        def greet() -> dict:
            "Greet."
            return {"ok": True, "data": 1, "intents": [{"type": "SUPPRESS_AUDIO", "value": True}]}

        greeting = from_function(greet, side_effects="none")
    """
    with adopted(tmp_path, source) as tools:
        response = tools.call("greet", {})
        assert response.ok
        assert response.intents == ()
        assert response.data["intents"][0]["type"] == "SUPPRESS_AUDIO"


def test_an_argument_called_ctx_is_an_argument(tmp_path):
    source = """
        from handrail.adopt import from_function

        SCHEMA = {"type": "object", "properties": {"ctx": {"type": "string"}}, "additionalProperties": False}
        said = from_function(lambda **given: given, tool_id="said", description="Says it.", parameters=SCHEMA,
                             side_effects="none")
    """
    with adopted(tmp_path, source) as tools:
        assert tools.call("said", {"ctx": "mine"}).data == {"ctx": "mine"}


def test_a_function_without_hints_is_a_finding_of_the_build_at_the_line_that_adopts_it(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "hintless_adopted.py").write_text(
        "from handrail.adopt import from_function\n\n\ndef f(x):\n    'F.'\n\n\ng = from_function(f)\n"
    )
    result = build(
        BuildPlan(
            tools=tmp_path / "tools", artifact=tmp_path / "a.json", modules=("hintless_adopted",), project=tmp_path
        )
    )
    (finding,) = result.errors
    assert "no type hint" in str(finding)
    assert "8" in str(finding)


def test_findings_about_an_adopted_tool_point_to_the_line_that_adopts_it(tmp_path):
    source = "from handrail.adopt import from_function\n\n\ndef f(x: int):\n    return x\n\n\n" + (
        "g = from_function(f, side_effects='none', description='F.', guide=' ')\n"
    )
    with pytest.raises(BuildError, match=r"\.py:line 8"), adopted(tmp_path, source):
        pass


@pytest.mark.parametrize("thing", [print, int, object()], ids=["built-in", "class", "object"])
def test_what_cannot_be_read_is_refused_with_a_sentence(thing):
    with pytest.raises(DefinitionError, match="Give "):
        from_function(thing)


def test_importing_the_package_imports_no_framework():
    code = (
        "import sys, handrail.adopt as a; a.from_function; a.from_langchain; a.from_pydantic_ai; a.from_openai_agents;"
        "a.to_langchain; a.to_pydantic_ai; a.to_openai_agents;"
        "print([m for m in ('langchain_core', 'pydantic', 'pydantic_ai', 'agents', 'openai') if m in sys.modules])"
    )

    async def run() -> bytes:
        done = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        return (await done.communicate())[0]

    assert asyncio.run(run()).decode().strip() == "[]"


@pytest.mark.parametrize(
    ("name", "tool_id"),
    [
        ("Weather-Report", "Weather_Report"),
        ("search.web v2", "search_web_v2"),
        ("3d-render", "_3d_render"),
        ("größe", "gr_e"),
        ("__hidden__", "hidden"),
        ("x" * 80, "x" * 64),
        ("9" * 80, "_" + "9" * 63),
    ],
)
def test_a_foreign_name_becomes_an_id_that_every_provider_takes(name, tool_id):
    foreign = ForeignTool(
        name=name, description="Does it.", schema={"type": "object"}, run=lambda *_: None, is_async=False
    )
    assert definition_of(adopt(foreign, {})).tool_id == tool_id
    assert definition_of(adopt(foreign, {"tool_id": "mine"})).tool_id == "mine"


@pytest.mark.parametrize("name", ["", "日本", "--"])
def test_a_foreign_name_of_which_nothing_is_left_is_refused_in_a_sentence(name):
    foreign = ForeignTool(
        name=name, description="Does it.", schema={"type": "object"}, run=lambda *_: None, is_async=False
    )
    with pytest.raises(DefinitionError, match="Give `tool_id=`"):
        adopt(foreign, {})


def test_two_foreign_names_that_become_the_same_are_found_by_the_build(tmp_path):
    source = """
        from handrail.adopt.importing.adopted import ForeignTool, adopt

        def made(name):
            foreign = ForeignTool(name=name, description="Does it.", schema={"type": "object"}, run=print, is_async=False)
            return adopt(foreign, {"side_effects": "none"})

        one, two = made("a.b"), made("a-b")
    """
    with pytest.raises(BuildError, match="a_b"), adopted(tmp_path, source):
        pass

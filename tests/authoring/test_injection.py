"""Services as parameters of decorated tools: by their mark, by their type, in functions and in constructors."""

import asyncio
import sys
from typing import Annotated

import pytest

from handrail import Call, ToolError, hydrate, service, tool
from handrail.authoring.decorator import definition_of
from handrail.contract.errors import BuildError, DefinitionError, UsageError

SHOPS = '''
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

@dataclass
class Shop:
    """A dataclass, which could be an argument as well."""

    name: str

class Ledger:
    def __init__(self):
        self.lines = []
'''
FACTORIES = """
@asynccontextmanager
async def open_shop(name: str = "corner") -> AsyncIterator[Shop]:
    yield Shop(name)

def open_ledger() -> Ledger:
    return Ledger()
"""
CONFIGURED = """
[services.shop]
factory = "{module}:open_shop"
name = "corner"

[services.ledger]
factory = "{module}:open_ledger"
"""
TOOLS = '''
from dataclasses import dataclass
from typing import Annotated
from handrail import Context, service, tool
from {module} import Ledger, Shop

@dataclass
class Refund:
    order_id: str
    shop: str

@tool
async def refund(order_id: str, shop: Shop) -> Refund:
    """Refund an order."""
    return Refund(order_id, shop.name)

@tool(capabilities=["shop"])
def plain(shop: Shop, order_id: str, ledger: Ledger, ctx) -> Refund:
    """Refund an order."""
    ledger.lines.append(order_id)
    assert ctx.shop is shop
    return Refund(order_id, f"{{shop.name}} {{len(ledger.lines)}}")

@tool
async def marked(order_id: str, place: Annotated[Shop, service("shop")], call: Context) -> Refund:
    """Refund an order."""
    return Refund(order_id, f"{{place.name}} in {{call.mode}}")

@tool
class Component:
    """Refund an order."""

    def __init__(self, refund: Refund, shop: Shop, retries: int = 3) -> None:
        self.refund, self.shop, self.retries = refund, shop, retries

    async def run(self, params=None) -> Refund:
        assert params is self.refund
        return Refund(params.order_id, f"{{self.shop.name}} {{self.retries}} {{self.ctx.mode}}")
'''


@pytest.fixture
def shop(project):
    """A project with two services, and the source of tools that use them."""
    module = f"{project.module}_services"
    project.write(SHOPS + FACTORIES, module)
    (project.folder / "handrail.toml").write_text(CONFIGURED.format(module=module))
    project.source = TOOLS.format(module=module)
    return project


def test_a_parameter_is_given_the_service_of_its_type_or_mark(shop):
    with shop.tools(shop.source) as tools:
        found = {name: tools.call(name, {"order_id": "7"}).data["shop"] for name in ("refund", "plain", "marked")} | {
            "component": tools.call("component", {"order_id": "7", "shop": "x"}).data["shop"]
        }
        metadata = {name: tools.registry.metadata(name) for name in tools.snapshot.tools}
        given = {entry["toolId"]: entry["handler"]["services"] for entry in tools.registry.entries()}

    assert found == {"refund": "corner", "plain": "corner 1", "marked": "corner in text", "component": "corner 3 text"}
    assert {name: list(one["parameters"]["properties"]) for name, one in metadata.items()} == {
        "refund": ["order_id"],
        "plain": ["order_id"],
        "marked": ["order_id"],
        "component": ["order_id", "shop"],
    }
    assert {name: one["capabilities"] for name, one in metadata.items()} == {
        "refund": ["shop"],
        "plain": ["shop", "ledger"],
        "marked": ["shop"],
        "component": ["shop"],
    }
    assert given["plain"] == {"shop": "shop", "ledger": "ledger"}


def test_a_model_cannot_give_what_is_a_service(shop):
    with shop.tools(shop.source) as tools:
        refused = tools.call("refund", {"order_id": "7", "shop": {"name": "mine"}})

    assert (refused.error.type, refused.error.details[0]["pointer"]) == ("VALIDATION", "/shop")


def test_a_stand_in_takes_the_place_of_a_service(shop):
    class Other:
        name = "other"

    with shop.tools(shop.source, capabilities={"shop": Other()}) as tools:
        assert tools.call("refund", {"order_id": "7"}).data == {"order_id": "7", "shop": "other"}


def test_a_tool_that_needs_services_is_hydrated_without_being_made(shop):
    with shop.tools(shop.source) as tools:
        result = hydrate(Call("component", {"order_id": "7", "shop": "x"}, "c1"), tools.snapshot)

    assert (result.success, dict(result.tool.args)) == (True, {"order_id": "7", "shop": "x"})
    with pytest.raises(UsageError, match="run by the pipeline"):
        asyncio.run(result.tool.run())


def test_without_a_service_of_its_type_a_dataclass_is_an_argument(shop):
    (shop.folder / "handrail.toml").write_text("")
    source = shop.source.partition("@tool(capabilities")[0]
    with shop.tools(source) as tools:
        assert tools.call("refund", {"order_id": "7", "shop": {"name": "mine"}}).data["shop"] == "mine"


def test_what_a_given_schema_names_is_an_argument_whatever_its_type_or_name(shop):
    schema = {"type": "object", "additionalProperties": False, "properties": {"shop": {}, "ctx": {"type": "string"}}}
    source = shop.source.partition("@tool")[0] + (
        f"@tool(parameters={schema!r})\nasync def look(shop: Shop, ctx: str, ledger: Ledger) -> str:\n"
        "    'Look.'\n    return f'{shop} {ctx} {ledger.lines}'\n"
    )
    with shop.tools(source) as tools:
        assert tools.call("look", {"shop": {"name": "mine"}, "ctx": "x"}).data == "{'name': 'mine'} x []"
        assert tools.registry.metadata("look")["capabilities"] == ["ledger"]


def test_a_class_that_no_service_returns_is_named_by_the_build(shop):
    findings = shop.findings(shop.source)

    told = {(finding.rule, finding.place): finding.message for finding in findings}
    assert (
        '"ledger" is hinted as Ledger, which is no supported hint, and no configured service returns it.'
        in (told["function-hints", "line 17"])
    )
    assert findings[0].file == f"{shop.module}.py"
    assert 'Annotated[Ledger, service("NAME")]' in findings[0].fix


def test_two_services_of_one_type_fail_the_build(shop):
    module = sys.modules.get(f"{shop.module}_services")
    assert module is None, "the build below imports it"
    source = shop.source.partition("@tool(capabilities")[0]

    def types():
        return {sys.modules[f"{shop.module}_services"].Shop: ("shop", "warehouse")}

    (finding,) = shop.findings(source, service_types=types)

    assert finding.message == (
        'Function \'refund\': "shop" is hinted as Shop, which the services "shop" and "warehouse" both return.'
    )
    assert finding.fix == 'Say which: Annotated[Shop, service("shop")].'


def test_a_service_whose_type_cannot_be_told_fails_the_build(shop):
    (shop.folder / "handrail.toml").write_text('[services.shop]\nfactory = "nowhere_to_be_found:open_shop"\n')

    with pytest.raises(BuildError, match=r"The service \"shop\".*nowhere_to_be_found"), shop.tools(shop.source):
        pass


def test_the_types_of_services_are_not_asked_for_where_no_parameter_could_be_one(project):
    def types():
        raise AssertionError("it imports the factories' modules")

    source = (
        "from datetime import date\nfrom typing import Annotated\nfrom handrail import service, tool\n"
        "@tool\ndef look(a: int, b: date | None, c: Annotated[object, service('kb')], ctx) -> str:\n    'Look.'\n"
    )
    assert project.findings(source, service_types=types) == []


def test_a_constructor_is_given_services_only():
    with pytest.raises(DefinitionError, match=r'The constructor takes "limit", which is no service'):

        @tool(parameters={"type": "object"}, description="x")
        class Component:
            def __init__(self, args, limit: int):
                pass


def test_a_decorated_function_with_services_can_be_called_as_it_is():
    @tool
    def refund(order_id: str, shop: Annotated[object, service("shop")]):
        """Refund an order."""
        return order_id, shop

    assert refund("7", "fake") == ("7", "fake")
    assert definition_of(refund).capabilities == ("shop",)


@pytest.mark.parametrize("name", ["", "two words", None, 3])
def test_a_service_needs_a_name(name):
    with pytest.raises(UsageError, match="names no service"):
        service(name)


def test_a_tools_own_refusal_stays_what_it_is(project):
    source = (
        "from handrail import tool, ToolError, ErrorType\nfrom datetime import date\n"
        "@tool\ndef look(day: date) -> date:\n    'Look.'\n    raise ToolError(ErrorType.NOT_FOUND, 'Nothing then.')\n"
    )
    with project.tools(source) as tools:
        assert tools.call("look", {"day": "2026-01-02"}).error.type == "NOT_FOUND"
    assert issubclass(ToolError, Exception)

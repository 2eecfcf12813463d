"""Services: every kind of factory, opened once and closed in reverse order; what goes wrong is one sentence."""

import asyncio
import contextlib
import logging
import sqlite3
import textwrap
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

import pytest
from tests.runtime.kit import reading

from handrail import Runtime
from handrail.authoring.services import ServiceFactory, find_factory, service_types
from handrail.contract.errors import ConfigError, HandrailError, ServiceError, UsageError
from handrail.contract.service_config import EnvironmentText, ServiceConfig
from handrail.runtime.services import Services
from handrail.testing import open_service, open_tools


def factory(name, function, /, **arguments):
    return ServiceFactory(name=name, function=function, arguments=arguments)


class Shop:
    def __init__(self, log, name="shop"):
        self.log, self.name = log, name
        log.append(f"open {name}")

    def close(self):
        self.log.append(f"close {self.name}")


@contextlib.asynccontextmanager
async def managed_async(log) -> AsyncIterator[Shop]:
    shop = Shop(log)
    try:
        yield shop
    finally:
        shop.close()


@contextlib.contextmanager
def managed(log) -> Iterator[Shop]:
    shop = Shop(log)
    yield shop
    shop.close()


async def generated_async(log) -> AsyncIterator[Shop]:
    shop = Shop(log)
    yield shop
    shop.close()


def generated(log) -> Iterator[Shop]:
    shop = Shop(log)
    yield shop
    shop.close()


def plain(log) -> Shop:
    return Shop(log)


async def awaited(log) -> Shop:
    return Shop(log)


class EnteredAsync:
    """A class that is a context manager, as clients of databases and of HTTP are; `close` is not how it is left."""

    def __init__(self, log):
        self.log = log

    async def __aenter__(self) -> Shop:
        return Shop(self.log)

    async def __aexit__(self, *failure):
        assert failure == (None, None, None)
        self.log.append("close shop")

    def close(self):
        self.log.append("closed as well")


class Entered(Shop):
    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


KINDS = [managed_async, managed, generated_async, generated, plain, awaited, Shop, EnteredAsync, Entered]


@pytest.mark.parametrize("function", KINDS, ids=lambda one: one.__name__)
async def test_every_kind_of_factory_is_opened_and_closed(function):
    log = []
    services = Services([factory("shop", function, log=log)])
    opened = await services.open()
    assert isinstance(opened["shop"], Shop)
    assert log == ["open shop"]
    await services.close()
    assert log == ["open shop", "close shop"]
    await services.close()
    assert log == ["open shop", "close shop"]


async def test_services_are_closed_in_the_reverse_order():
    log = []
    services = Services([factory(name, Shop, log=log, name=name) for name in ("a", "b", "c")])
    await services.open()
    await services.close()
    assert log == ["open a", "open b", "open c", "close c", "close b", "close a"]


async def test_a_service_that_fails_to_open_is_named_and_the_opened_ones_are_closed():
    log = []

    def broken():
        raise ConnectionRefusedError("no database at 127.0.0.1:5432\nmore about it")

    services = Services([factory("shop", Shop, log=log), factory("stock", broken)])
    with pytest.raises(ServiceError) as caught:
        await services.open()
    assert str(caught.value) == (
        'The service "stock" could not be opened: ConnectionRefusedError: no database at 127.0.0.1:5432.'
    )
    assert log == ["open shop", "close shop"]


async def test_a_service_that_never_opens_fails_the_start():
    async def slow():
        await asyncio.Event().wait()

    with pytest.raises(ServiceError, match=r'The service "shop" did not open within 0\.01 seconds\.'):
        await Services([factory("shop", slow)], open_seconds=0.01).open()


async def test_a_start_that_is_cancelled_leaves_nothing_open():
    log = []

    async def slow():
        await asyncio.Event().wait()

    services = Services([factory("shop", Shop, log=log), factory("slow", slow)])
    start = asyncio.create_task(services.open())
    while "open shop" not in log:
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert log == ["open shop", "close shop"]


async def test_a_service_that_fails_to_close_is_reported_and_the_others_are_closed(caplog):
    log = []

    @contextlib.contextmanager
    def stubborn():
        yield object()
        raise OSError("the socket is gone")

    services = Services([factory("shop", Shop, log=log), factory("stock", stubborn)])
    await services.open()
    with caplog.at_level(logging.WARNING):
        await services.close()
    assert caplog.messages == ['The service "stock" failed to close: OSError: the socket is gone.']
    assert log == ["open shop", "close shop"]


async def test_a_context_that_fails_on_entering_is_named_as_one_that_cannot_be_opened():
    class Refusing(EnteredAsync):
        async def __aenter__(self):
            raise OSError("no such host")

    with pytest.raises(ServiceError, match=r'The service "shop" could not be opened: OSError: no such host\.'):
        await Services([factory("shop", Refusing, log=[])]).open()


async def test_a_factory_that_gives_nothing_fails_the_start_and_is_left():
    log = []

    @contextlib.contextmanager
    def forgot():
        yield
        log.append("left")

    for function in (forgot, lambda: None):
        with pytest.raises(ServiceError) as caught:
            await Services([factory("shop", function)]).open()
        assert str(caught.value) == (
            'The service "shop" could not be opened: its factory gave None; let it return or yield what tools reach as '
            "ctx.shop."
        )
    assert log == ["left"]


async def test_one_task_opens_and_closes_a_service():
    tasks = []

    @contextlib.asynccontextmanager
    async def noted():
        tasks.append(asyncio.current_task())
        yield object()
        tasks.append(asyncio.current_task())

    services = Services([factory("shop", noted)])
    await asyncio.create_task(services.open())
    await asyncio.create_task(services.close())
    assert tasks[0] is tasks[1]


async def test_a_connection_is_not_taken_for_a_context():
    services = Services([factory("db", sqlite3.connect, database=":memory:")])
    connection = (await services.open())["db"]
    connection.execute("CREATE TABLE t (x)")
    assert not connection.in_transaction
    await services.close()
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


# Factories and their settings


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of a project; its name is the test's own, because a process has one module of a name."""
    names = iter(range(100))

    def write(source):
        name = f"{tmp_path.name.replace('-', '_')}_{next(names)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    return write


SHOP = """
    class Shop: ...
    def open_shop(project, url, *, size=10): return Shop()
"""


def config(text, **settings):
    return ServiceConfig(name="shop", factory=text, settings=settings)


def test_a_factory_is_given_its_settings_and_the_projects_folder(module, tmp_path):
    found = find_factory(config(f"{module(SHOP)}:open_shop", url="x"), tmp_path)
    assert dict(found.arguments) == {"url": "x", "project": tmp_path}


@pytest.mark.parametrize(
    ("attribute", "settings", "sentence"),
    [
        ("open_shop", {"ulr": "x"}, 'has no key "ulr" (did you mean "url"?); its factory takes url, size.'),
        ("open_shop", {}, 'lacks the key "url", for which its factory has no default.'),
        ("open_shop", {"url": "x", "project": "y"}, 'sets "project", which is always the folder of the project'),
        ("opn_shop", {}, 'has no "opn_shop"; did you mean "open_shop"?'),
        ("__name__", {}, "cannot be called; name a function."),
    ],
)
def test_settings_that_do_not_fit_are_named(module, tmp_path, attribute, settings, sentence):
    with pytest.raises(ConfigError) as caught:
        find_factory(config(f"{module(SHOP)}:{attribute}", **settings), tmp_path)
    assert sentence in str(caught.value)
    assert "shop" in str(caught.value)


TYPED = """
    from collections.abc import Sequence
    from typing import Literal
    def open_shop(*, url: str = "", size: int = 1, rate: float = 1.0, live: bool = False, names: Sequence[str] = (),
                  kind: Literal["a", "b"] = "a", note: str | None = None, free=None): ...
"""


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"url": 1}, '"url" in [services.shop] must be text; 1 is not.'),
        ({"size": "2"}, "\"size\" in [services.shop] must be a whole number; '2' is not."),
        ({"size": True}, '"size" in [services.shop] must be a whole number; True is not.'),
        ({"rate": "x"}, "\"rate\" in [services.shop] must be a number; 'x' is not."),
        ({"live": 1}, '"live" in [services.shop] must be true or false; 1 is not.'),
        ({"names": "a"}, "\"names\" in [services.shop] must be a list of texts; 'a' is not."),
        ({"kind": "c"}, '"kind" in [services.shop] must be "a" or "b"; \'c\' is not.'),
        ({"note": 1}, '"note" in [services.shop] must be text; 1 is not.'),
    ],
    ids=lambda one: str(one)[:30],
)
def test_a_value_of_the_wrong_kind_is_named(module, tmp_path, setting, sentence):
    with pytest.raises(ConfigError) as caught:
        find_factory(config(f"{module(TYPED)}:open_shop", **setting), tmp_path)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_a_hint_that_cannot_be_read_leaves_the_other_settings_checked(module, tmp_path, future):
    source = f"""
        {future}
        from contextlib import contextmanager
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from nowhere import Pool
        @contextmanager
        def open_shop(size: int = 1, pool: "Pool | None" = None): yield object()
        class Shop:
            def __init__(self, size: int = 1, pool: "Pool | None" = None): ...
        class Branch(Shop): ...
    """
    name = module(source)
    for attribute in ("open_shop", "Shop", "Branch"):
        with pytest.raises(ConfigError, match=r'"size" in \[services.shop\] must be a whole number'):
            find_factory(config(f"{name}:{attribute}", size="2"), tmp_path)
        assert dict(find_factory(config(f"{name}:{attribute}", pool=3), tmp_path).arguments) == {"pool": 3}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("url", "8080", "8080"),
        ("size", "8", 8),
        ("rate", "1.5", 1.5),
        ("live", "true", True),
        ("names", "a, b", ["a", "b"]),
        ("names", '["a"]', ["a"]),
        ("kind", "b", "b"),
        ("note", "1", "1"),
        ("free", "8", 8),
        ("free", "plain", "plain"),
    ],
)
def test_a_value_from_the_environment_becomes_what_its_parameter_wants(module, tmp_path, key, text, value):
    given = {key: EnvironmentText(text)}
    found = find_factory(config(f"{module(TYPED)}:open_shop", **given), tmp_path)
    assert dict(found.arguments) == {key: value}
    assert type(found.arguments[key]) is type(value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [("import nowhere_at_all", "No module named"), ("1 / 0", "division by zero"), ("(", "never closed")],
)
def test_a_module_that_cannot_be_imported_is_named(module, tmp_path, source, reason):
    name = module(source)
    with pytest.raises(ConfigError) as caught:
        find_factory(config(f"{name}:open_shop"), tmp_path)
    assert f'The service "shop": the module "{name}" cannot be imported: ' in str(caught.value)
    assert reason in str(caught.value)


def test_a_service_without_a_factory_must_be_supplied_by_a_package(tmp_path):
    with pytest.raises(ConfigError, match=r'names no "factory", and no installed package supplies a service "shop"'):
        find_factory(config(""), tmp_path)


def test_the_types_that_factories_supply_are_known(module, tmp_path):
    name = module(
        """
        from __future__ import annotations
        from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Iterator
        from contextlib import AbstractAsyncContextManager, asynccontextmanager
        from typing import Generic, TypeVar
        T = TypeVar("T")
        class A: ...
        class B: ...
        class C: ...
        class D: ...
        class E: ...
        class F: ...
        class G:
            def __enter__(self) -> G: ...
            def __exit__(self, *failure): ...
        class H(G):
            async def __aenter__(self) -> E: ...
            async def __aexit__(self, *failure): ...
        @asynccontextmanager
        async def a() -> AsyncIterator[A]: yield A()
        def b() -> Iterator[B]: yield B()
        def c() -> Awaitable[C]: ...
        async def d() -> D: ...
        def e() -> AbstractAsyncContextManager[E]: ...
        def again() -> Generator[B, None, None]: yield B()
        def unknown() -> Nowhere: ...
        def untold(): ...
        def nothing() -> None: ...
        def either() -> A | B: ...
        def plain() -> dict[str, A]: ...
        class Pool(Generic[T]): ...
        def pool() -> Iterator[Pool[A]]: yield Pool()
        """
    )
    names = ("a", "b", "c", "d", "e", "again", "unknown", "untold", "nothing", "either", "plain", "pool", "F", "G", "H")
    configs = {one.lower(): ServiceConfig(name=one.lower(), factory=f"{name}:{one}") for one in names}
    found = {str(kind).replace(f"{name}.", ""): services for kind, services in service_types(configs, tmp_path).items()}
    plain = {f"<class '{one}'>": services for one, services in (("A", ("a",)), ("B", ("again", "b")), ("C", ("c",)))}
    own = {f"<class '{one}'>": (one.lower(),) for one in "DFG"}
    assert found == plain | own | {"<class 'E'>": ("e", "h"), "Pool[A]": ("pool",)}


# In a project

TOOL = """
async def execute(args, ctx):
    return {"ok": True, "data": {"status": ctx.{name}.status}}
"""


@pytest.fixture
def project(make_tools, tmp_path, module):
    """A project with one tool that needs `shop`, and the services `shop` and `unused`."""
    world = make_tools({"ask_shop": (reading(capabilities=["shop"]), TOOL.replace("{name}", "shop"))})
    folder = tmp_path / "project"
    name = module(
        """
        from contextlib import contextmanager
        LOG = []
        class Shop:
            def __init__(self, status): self.status = status
        @contextmanager
        def open_shop(project, status="open"):
            LOG.append(("open", project.name, status))
            yield Shop(status)
            LOG.append("close")
        def open_unused():
            raise AssertionError("nobody needs it")
        """
    )
    (folder / "handrail.toml").write_text(
        f'[services.shop]\nfactory = "{name}:open_shop"\nstatus = "busy"\n[services.unused]\nfactory = "{name}:open_unused"\n'
    )
    world.folder, world.module = folder, name
    return world


def test_the_toolkit_opens_what_the_tools_need_and_nothing_else(project):
    import sys

    with open_tools(project.folder / "tools") as tools:
        response = tools.call("ask_shop", {})
        assert response.data == {"status": "busy"}, response
    assert sys.modules[project.module].LOG == [("open", "project", "busy"), "close"]


def test_a_stand_in_takes_the_place_of_a_service(project):
    class StandIn:
        status = "a stand-in"

    with open_tools(project.folder / "tools", capabilities={"shop": StandIn()}) as tools:
        assert tools.call("ask_shop", {}).data == {"status": "a stand-in"}


async def test_a_test_opens_one_service_with_settings_of_its_own(project):
    async with open_service("shop", project=project.folder, status="closed") as shop:
        assert shop.status == "closed"


async def test_a_runtime_opens_again_after_it_was_closed(project):
    with open_tools(project.folder / "tools") as tools:
        runtime = tools.runtime()
        for _ in range(2):
            async with runtime:
                session = await runtime.open_session()
                await session.begin_turn()
                assert (await session.call("ask_shop", {})).ok


def test_a_host_that_lacks_a_capability_is_told_where_it_comes_from(project):
    with open_tools(project.folder / "tools") as tools, pytest.raises(UsageError) as caught:
        Runtime(tools.registry, store="memory:")
    assert str(caught.value) == (
        'The tool "ask_shop" needs the capability "shop", which this host does not have; [services.shop] in '
        "handrail.toml supplies it, or `Runtime(capabilities=…)`."
    )


class Hooked:
    """A service with every hook."""

    session_attributes: ClassVar = {"tier": "gold"}

    def __init__(self):
        self.calls = []

    def preload(self):
        self.calls.append("preload")
        return "The shop has no stock."

    async def warm_up(self):
        self.calls.append("warm_up")
        raise HandrailError("The stock cannot be counted.")


async def test_a_host_calls_the_hooks_of_a_service(project, caplog):
    with open_tools(project.folder / "tools") as tools:
        hooked = Hooked()
        services = Services([factory("shop", lambda: hooked), factory("plain", object)])
        async with Runtime(tools.registry, store="memory:", services=services) as runtime:
            assert await runtime.preload_services() == ["The shop has no stock."]
            with caplog.at_level(logging.WARNING):
                await runtime.warm_up_services()
            session = await runtime.open_session(attributes={"tier": "none", "own": 1})
            assert session.facts()["session"]["tier"] == "gold", "what the host says wins"
            assert session.facts()["session"]["own"] == 1
    assert hooked.calls == ["preload", "warm_up"]
    assert "The stock cannot be counted." in caplog.messages

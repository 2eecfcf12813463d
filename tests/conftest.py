"""What every test shares: how hard hypothesis searches, and that a test may be a coroutine."""

import asyncio
import functools
import gc
import inspect
import itertools
import os
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from tests.postgres_server import PostgresServer, postgres_server

# `make test` gives the same answer for the same code, on any machine: fixed examples, no deadlines. `make test-long`
# searches at random, deeper, and remembers what it found; the printed blob replays a failure anywhere.
settings.register_profile(
    "ci",
    max_examples=100,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    settings.get_profile("ci"),
    max_examples=2_000,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
settings.load_profile(os.environ.get("HANDRAIL_TEST_PROFILE", "ci"))

# Which model answers must not depend on the machine: on its keys, or on an Ollama that happens to run there.
for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
    os.environ.pop(name, None)
os.environ["OLLAMA_HOST"] = "127.0.0.1:9"
# Nor on the authorities that it trusts: no test speaks to a host of the world, and a client that reads all of their
# certificates spends more processor time on them than most tests on everything else. There are none in this folder.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)


def _in_a_fresh_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Run a test that is a coroutine, also below `@given`, in an event loop of its own."""
    inner = getattr(pyfuncitem.obj, "hypothesis", None)
    if inner is not None and inspect.iscoroutinefunction(inner.inner_test):
        inner.inner_test = _in_a_fresh_loop(inner.inner_test)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _in_a_fresh_loop(pyfuncitem.obj)


# Folders whose tests take seconds each, the longest first: they wait for processes, pages and clocks.
_SLOW = ("crash", "console", "identity", "install", "faults", "mcp", "server", "cli")


def _slow_folder(item: pytest.Item) -> str | None:
    top = Path(__file__).parent
    folder = item.path.relative_to(top).parts[0] if top in item.path.parents else None
    return folder if folder in _SLOW else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every worker begins with its share of the slow tests: at the end, one of them would keep a single worker busy. Tests of a
    module stay together, because they share what they start; those of `crash` share nothing."""
    slow = sorted(filter(_slow_folder, items), key=lambda item: _SLOW.index(str(_slow_folder(item))))
    together = itertools.groupby(slow, key=lambda item: item if _slow_folder(item) == "crash" else item.path)
    shares: list[list[pytest.Item]] = [[] for _ in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))]
    for _, group in together:
        min(shares, key=len).extend(group)
    rest = iter([item for item in items if not _slow_folder(item)])
    ordered: list[pytest.Item] = []
    for number, share in enumerate(shares):  # pytest-xdist gives each of them as many, in this order
        size = (len(items) - len(ordered)) // (len(shares) - number)
        ordered += share + list(itertools.islice(rest, max(0, size - len(share))))
    items[:] = [*ordered, *rest]


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: looking through it for garbage again and again finds none."""
    gc.collect()
    gc.freeze()


RecordFigures = Callable[[object], None]


@pytest.fixture
def record_figures(record_property: Callable[[str, object], None]) -> RecordFigures:
    """Keeps figures of a run with the test's report. They are printed once all tests have ended: what a worker of pytest-xdist
    prints is seen nowhere."""
    return lambda figures: record_property("figures", str(figures))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    recorded = [
        (report.nodeid, figures)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, figures in report.user_properties
        if name == "figures"
    ]
    if recorded:
        terminalreporter.section("figures")
    for test, found in itertools.groupby(sorted(recorded, key=lambda one: one[0]), key=lambda one: one[0]):
        terminalreporter.line(test)
        for _, figures in found:
            terminalreporter.line(textwrap.indent(str(figures), "    "))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process. What it loses when the machine fails is nobody's loss here."""
    with postgres_server("fsync=off", "max_connections=300") as server:
        yield server

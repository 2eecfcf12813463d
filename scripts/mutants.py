"""Put small faults into the modules that must not have any, one at a time, and see whether the tests notice.

    python scripts/mutants.py [TARGET …] [--minutes N] [--fresh] [--report]

`scripts/mutants.toml` names the targets, the tests that protect each, and the mutants that may survive, with a reason. No file
is changed. A process collects the tests of a target once and forks for each mutant; the fork gives the mutated function its
faulty code and runs the tests that enter it. A fault outside of functions is imported in place of its module instead, which
takes seconds longer. Outcomes are appended to build/mutants as they come, so a run that is stopped continues where it was. A
target starts anew when its module has changed; when only its tests have changed, its survivors are tried again. Runs of
different targets may continue at the same time. The report says how many were killed, and fails where fewer than 80 % were, or
where one survived that is not listed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import random
import re
import resource
import select
import signal
import sys
import threading
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from scripts.mutations import Mutant

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts" / "mutants.toml"
RESULTS = ROOT / "build" / "mutants"
KILLED_PERCENT = 80
SEED = 16
MAX_SECONDS = 30.0
"""The quickest tests that enter a function, from every file, up to this together; where all tests do, not all are needed."""
OUT_OF_TIME = 64
"""The exit status of a process whose time ran out before its work ended."""
PYTEST = (
    "-q",
    "-s",
    "-x",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
WARM = (
    "hypothesis",
    "orjson",
    "jsonschema_rs",
    "json_repair",
    "docstring_parser",
    "sqlite3",
    "asyncio",
    "concurrent.futures",
)
"""What the tests import and no mutant changes: imported once, before the processes part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A module, and the tests that are meant to protect it."""

    name: str
    file: str
    tests: tuple[str, ...]
    functions: tuple[str, ...]
    """The functions, classes and constants of the module that count; empty: all of it."""
    max_mutants: int | None
    """A sample of this size, always the same one, where there are more."""
    postgres: bool = False
    """Of its tests, those on PostgreSQL are run; of all others, those on anything else, which take a tenth of the time."""

    @property
    def module(self) -> str:
        return ".".join(Path(self.file).with_suffix("").parts[1:])

    @property
    def source(self) -> str:
        return (ROOT / self.file).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A mutant that may survive: by its function and its lines, wherever they stand."""

    function: str
    before: str
    after: str
    """`*`: whatever becomes of the line."""
    reason: str

    def covers(self, survivor: tuple[str, str, str]) -> bool:
        return (self.function, self.before) == survivor[:2] and self.after in ("*", survivor[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant."""

    mutant: str
    outcome: str
    """`killed`, `hung` (killed by the time limit) or `survived`."""
    seconds: float
    tests: str
    """The digest of the tests that it was tried with."""
    by: str = ""
    """The test that killed it."""


def read_table(path: Path = TABLE) -> tuple[list[Target], list[Survivor]]:
    """The targets and the survivors that are listed."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    targets = [
        Target(
            name=each["name"],
            file=each["file"],
            tests=tuple(each["tests"]),
            functions=tuple(each.get("functions", ())),
            max_mutants=each.get("max_mutants"),
            postgres=each.get("postgres", False),
        )
        for each in table["targets"]
    ]
    return targets, [Survivor(**each) for each in table.get("survivors", ())]


def missing(targets: Iterable[Target], root: Path = ROOT) -> list[str]:
    """One sentence for each file or function that the table names and that is not there."""
    files = [
        f'scripts/mutants.toml names "{name}" for the target "{target.name}", and there is no such file: '
        "name the one that holds its code or its tests now."
        for target in targets
        for name in (target.file, *target.tests)
        if not (root / name).is_file()
    ]
    functions = [
        f'scripts/mutants.toml names "{name}" for the target "{target.name}", and "{target.file}" has none of '
        "that name: name the one that does its work now."
        for target in targets
        if (root / target.file).is_file()
        for name in target.functions
        if not re.search(
            rf"^((class|(async )?def) {re.escape(name)}\b|{re.escape(name)} = )",
            (root / target.file).read_text(encoding="utf-8"),
            re.M,
        )
    ]
    return files + functions


# ---------------------------------------------------------------------------------------------------- one mutant
class _MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant where its module is asked for."""

    def __init__(self, target: Target, source: str) -> None:
        self._target = target
        self._source = source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._target.module:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=str(ROOT / self._target.file))

    def exec_module(self, module: ModuleType) -> None:
        origin = str(ROOT / self._target.file)
        module.__file__ = origin
        exec(compile(self._source, origin, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - that is what it is for


class _Selection:
    """Runs these tests, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (each for each in items if each.nodeid in self._places), key=lambda each: self._places[each.nodeid]
        )


class _Trials:
    """Does its work once all tests of a target are collected: whoever forks then need not collect them again."""

    def __init__(self, target: Target, work: Callable[[_Trials], bool]) -> None:
        self._target = target
        self._work = work
        self._items: dict[str, pytest.Item] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> object:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        gc.freeze()
        if not self._work(self):
            pytest.exit("out of time", returncode=OUT_OF_TIME)
        return True

    def code_of(self, mutant: Mutant) -> dict[FunctionType, CodeType]:
        """The function that differs in this mutant, with its code there; empty if the fault is outside of functions."""
        module = sys.modules[self._target.module]
        origin = str(module.__file__)
        usual, faulty = (
            _codes(compile(source, origin, "exec", dont_inherit=True))
            for source in (self._target.source, mutant.source)
        )
        functions = {(each.__qualname__, each.__code__.co_firstlineno): each for each in _functions_in(module, origin)}
        places = [place for place, code in faulty.items() if code != usual.get(place)]
        return {functions[place]: faulty[place] for place in places if place in functions}

    def run(self, tests: Mapping[str, float]) -> int:
        """The tests, until one fails, which is written down."""
        items = [self._items[name] for name in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            # Whoever waits for what a mutant never does is ended by the alarm.
            signal.setitimer(signal.ITIMER_REAL, 6 + 4 * tests[item.nodeid])
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            except BaseException:  # noqa: BLE001 - a test that ends the run has noticed something too
                self._session.testsfailed += 1
            if self._session.testsfailed:
                _killer_file(self._target).write_text(item.nodeid, encoding="utf-8")
                return int(pytest.ExitCode.TESTS_FAILED)
        return int(pytest.ExitCode.OK)


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """The code of each function of a module and of its classes, by qualified name and first line."""
    found: dict[tuple[str, int], CodeType] = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            # The body of a class, unlike that of a function, has no locals of its own.
            if each.co_flags & inspect.CO_NEWLOCALS:
                found[each.co_qualname, each.co_firstlineno] = each
            else:
                found |= _codes(each)
    return found


def _functions_in(owner: ModuleType | type, file: str) -> Iterable[FunctionType]:
    for each in vars(owner).values():
        if isinstance(each, type):
            if each.__module__ == (owner.__name__ if isinstance(owner, ModuleType) else owner.__module__):
                yield from _functions_in(each, file)
            continue
        for part in (each.fget, each.fset) if isinstance(each, property) else (getattr(each, "__func__", each),):
            function = inspect.unwrap(part) if callable(part) else None
            if isinstance(function, FunctionType) and function.__code__.co_filename == file:
                yield function


class _Recorder:
    """Which lines each test runs, and how long each test takes."""

    def __init__(self, target: Target) -> None:
        self._file = str(ROOT / target.file)
        self._test = ""
        self.lines: dict[str, set[int]] = {}
        self.seconds: dict[str, float] = {}

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[[FrameType, str, object], Any] | None:
        if frame.f_code.co_filename != self._file:
            return None
        self.lines[self._test].add(frame.f_lineno)
        return self._trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._test = item.nodeid
        self.lines[self._test] = set()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.seconds[self._test] = time.perf_counter() - started


def _in_child(
    work: Callable[[], int], *, time_limit: float | None = None, cpu_limit: int | None = None, quiet: bool = True
) -> int | None:
    """The exit status of a forked process that does this; None if it took too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for each in (0, 1, 2) if quiet and "MUTANTS_OUTPUT" not in os.environ else (0,):
                os.dup2(nothing, each)
            if cpu_limit is not None:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 5))
            status = work()
        except BaseException:  # noqa: BLE001 - a forked process ends here, whatever it met
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    # The pipe closes when the child ends, or when it is killed and nothing it has started holds it.
    ended = False
    try:
        ended = bool(select.select([reading], [], [], time_limit)[0])
    finally:
        # Also when this run is stopped: the child would continue alone, and a mutant may never end. One without a limit of its
        # own has children that it ends itself.
        os.close(reading)
        if not ended:
            os.killpg(child, signal.SIGKILL if cpu_limit is not None else signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    if not ended or (
        os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
    ):
        return None
    return os.waitstatus_to_exitcode(status)


class _SharedServer:
    """Gives the tests of all mutants one PostgreSQL: to start one takes longer than they do."""

    server: Any = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        from tests.postgres_server import postgres_server  # noqa: PLC0415 - only these targets need one

        with postgres_server("fsync=off", "max_connections=300") as self.server:
            # What this has imported is forgotten: whoever is forked imports the mutant in place of it.
            for name in [name for name in sys.modules if name.partition(".")[0] in ("handrail", "tests")]:
                del sys.modules[name]
            yield
        self.server = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Any:
        if self.server is None or fixturedef.argname != "postgres":
            return None
        fixturedef.cached_result = (self.server, fixturedef.cache_key(request), None)
        return self.server


_SHARED = _SharedServer()


def _run_tests(target: Target, tests: Sequence[str], plugin: object, finder: _MutantFinder | None = None) -> int:
    if finder is not None:
        sys.meta_path.insert(0, finder)
    files = list(dict.fromkeys(each.partition("::")[0] for each in tests))
    # A folder of its own: the numbered ones of other runs are no business of a process that may be killed.
    folder = str(RESULTS / f"{target.name}.tmp")
    stores = "postgres" if target.postgres else "not postgres"
    return int(pytest.main([*PYTEST, "-k", stores, "--basetemp", folder, *files], plugins=[plugin, _SHARED]))


def quickest_of_each_file(tests: Mapping[str, float]) -> list[str]:
    """The quickest test of each file, then the second of each, and so on: no file of slower tests is left out."""
    places, met = dict[str, tuple[int, float]](), dict[str, int]()
    for name in sorted(tests, key=lambda name: tests[name]):
        file = name.partition("::")[0]
        places[name] = (met.get(file, 0), tests[name])
        met[file] = met.get(file, 0) + 1
    return sorted(tests, key=lambda name: places[name])


def selected(
    tests: Mapping[str, float], nearest: Container[str] = (), killers: Counter[str] | None = None
) -> dict[str, float]:
    """The tests that are run, with their seconds without a mutant; first those that killed most of its like. The `nearest` are
    chosen before all others: those that run the line itself."""
    names, together = list[str](), 0.0
    for name in sorted(quickest_of_each_file(tests), key=lambda name: name not in nearest):
        if not names or together + tests[name] <= MAX_SECONDS:
            names.append(name)
            together += tests[name]
    if killers is not None:
        names.sort(key=lambda name: -killers[name])
    return {name: tests[name] for name in names}


def try_function(trials: _Trials, code: Mapping[FunctionType, CodeType], tests: Mapping[str, float]) -> int | None:
    """The status of the tests with the faulty code of a function."""

    def work() -> int:
        for function, faulty in code.items():
            function.__code__ = faulty
        return trials.run(tests)

    limit = int(15 + 4 * sum(tests.values()))
    return _in_child(work, time_limit=limit, cpu_limit=limit)


def try_module(target: Target, mutant: Mutant, tests: Mapping[str, float]) -> int | None:
    """The status of the tests with the faulty module imported."""
    names = list(tests)
    limit = int(15 + 4 * sum(tests.values()))
    return _in_child(
        lambda: _run_tests(target, names, _Selection(names), _MutantFinder(target, mutant.source)),
        time_limit=limit,
        cpu_limit=limit,
    )


def look_at_tests(target: Target) -> dict[str, tuple[float, set[int]]]:
    """The tests of a target without a mutant: seconds, and the lines that each runs."""
    now = digest(
        "lines",
        *target.tests,
        *(each.read_text(encoding="utf-8") for top in ("src", "tests") for each in sorted((ROOT / top).rglob("*.py"))),
    )
    place = RESULTS / f"{target.name}.tests.json"
    known = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    if known.get("of") != now:
        recorder = _Recorder(target)

        def work() -> int:
            status = _run_tests(target, target.tests, recorder)
            found = {name: (recorder.seconds[name], sorted(lines)) for name, lines in recorder.lines.items()}
            place.write_text(json.dumps({"of": now if status == pytest.ExitCode.OK else "", "tests": found}), "utf-8")
            return status

        if _in_child(work, time_limit=600, cpu_limit=600) != pytest.ExitCode.OK:
            raise SystemExit(
                f'mutants: the tests of "{target.name}" fail without any mutant; run pytest {" ".join(target.tests)}.'
            )
        known = json.loads(place.read_text(encoding="utf-8"))
    return {name: (seconds, set(lines)) for name, (seconds, lines) in known["tests"].items()}


# ------------------------------------------------------------------------------------------------------ one target
def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def tests_digest(target: Target) -> str:
    return digest(*((ROOT / name).read_text(encoding="utf-8") for name in target.tests))


def _results_file(target: Target) -> Path:
    return RESULTS / f"{target.name}.{digest(target.source)}.jsonl"


def _killer_file(target: Target) -> Path:
    return RESULTS / f"{target.name}.killer.txt"


def read_outcomes(target: Target, tests: str | None = None) -> dict[str, Outcome]:
    """What earlier runs found of this source; a survivor counts only if the tests are the same, by their digest."""
    place = _results_file(target)
    if not place.exists():
        return {}
    now = tests or tests_digest(target)
    outcomes = (Outcome(**json.loads(line)) for line in place.read_text(encoding="utf-8").splitlines())
    return {each.mutant: each for each in outcomes if each.outcome != "survived" or each.tests == now}


def chosen(target: Target, mutants: Sequence[Mutant]) -> Sequence[Mutant]:
    """Those of the functions that count: all of them, or the sample."""
    if target.functions:
        mutants = [each for each in mutants if each.function.partition(".")[0] in target.functions]
    if target.max_mutants is None or len(mutants) <= target.max_mutants:
        return mutants
    # By names, not by places: an edit brings its own mutants in and draws no new sample of the others.
    sample = {each.name for each in sorted(mutants, key=lambda each: digest(each.name))[: target.max_mutants]}
    return [each for each in mutants if each.name in sample]


def run_target(target: Target, mutants: Sequence[Mutant], deadline: float | None) -> bool:
    """Try what is left of a target; False if time ran out."""
    from scripts.mutations import function_at, functions_of  # noqa: PLC0415 - only a run needs cosmic-ray

    done = read_outcomes(target)
    waiting = [mutant for mutant in mutants if mutant.name not in done]
    if not waiting:
        return True
    # In no order of theirs: what a run that is stopped has tried is then a fair sample of all.
    random.Random(SEED).shuffle(waiting)  # noqa: S311 - a sample, not a secret
    tests, now = look_at_tests(target), tests_digest(target)
    functions = functions_of(target.source)
    entering: dict[str, dict[str, float]] = {}
    for name, (seconds, lines) in tests.items():
        for function in {function_at(functions, line) for line in lines}:
            entering.setdefault(function, {})[name] = seconds
    # What stands outside of functions counts for all of them.
    inside = {name for _, _, name in functions}
    everything = {name: seconds for name, (seconds, _) in tests.items()}
    left = {mutant.name for mutant in waiting}
    killers: dict[str, Counter[str]] = {name: Counter() for name in inside}
    for mutant in mutants:
        if mutant.function in inside and mutant.name in done:
            killers[mutant.function][done[mutant.name].by] += 1

    def in_time() -> bool:
        return deadline is None or time.monotonic() <= deadline

    def note(mutant: Mutant, seconds: float, status: int | None) -> None:
        killer = _killer_file(target)
        by = killer.read_text(encoding="utf-8") if killer.exists() else ""
        killer.unlink(missing_ok=True)
        if by and mutant.function in inside:
            killers[mutant.function][by] += 1
        # A usage error is a module that a conftest could not import.
        if status in (pytest.ExitCode.NO_TESTS_COLLECTED, 70):
            raise SystemExit(
                f'mutants: the tests of "{target.name}" could not be run with {mutant.name!r}; see MUTANTS_OUTPUT=1.'
            )
        outcome = "hung" if status is None else "survived" if status == pytest.ExitCode.OK else "killed"
        line = {"mutant": mutant.name, "outcome": outcome, "seconds": round(seconds, 2), "tests": now, "by": by}
        with _results_file(target).open("a", encoding="utf-8") as results:
            results.write(json.dumps(line) + "\n")
        left.remove(mutant.name)
        print(f"{target.name} {len(left)} left, {outcome} {seconds:.1f} s  {mutant.name}", file=sys.stderr, flush=True)

    def try_functions(trials: _Trials) -> bool:
        for mutant in waiting:
            if not in_time():
                return False
            started = time.perf_counter()
            code = trials.code_of(mutant)
            if code:
                nearest = {name for name, (_, lines) in tests.items() if mutant.line in lines}
                entered = selected(entering.get(mutant.function, {}), nearest, killers[mutant.function])
                status = try_function(trials, code, entered) if entered else int(pytest.ExitCode.OK)
                note(mutant, time.perf_counter() - started, status)
        return True

    status = _in_child(lambda: _run_tests(target, target.tests, _Trials(target, try_functions)), quiet=False)
    if status == OUT_OF_TIME:
        return False
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f'mutants: the tests of "{target.name}" could not be collected; see MUTANTS_OUTPUT=1.')
    # Somebody may edit a test meanwhile; that is for the next run.
    done = read_outcomes(target, now)
    for mutant in [mutant for mutant in waiting if mutant.name not in done]:
        if not in_time():
            return False
        started = time.perf_counter()
        entered = selected(entering.get(mutant.function, {}) if mutant.function in inside else everything)
        status = try_module(target, mutant, entered) if entered else int(pytest.ExitCode.OK)
        note(mutant, time.perf_counter() - started, status)
    return True


# ------------------------------------------------------------------------------------------------------ the report
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One target in numbers, and its survivors."""

    target: str
    mutants: int
    tried: int
    killed: int
    seconds: float
    survivors: tuple[tuple[str, str, str], ...]
    """Function, line before, line after."""
    left_out: tuple[tuple[str, str, str], ...] = ()
    """Those that the sample does not have, so that nothing is known of them."""


def report(figures: Sequence[Figures], listed: Sequence[Survivor], *, whole: bool) -> tuple[list[str], list[str]]:
    """The lines of the report, and one sentence for each thing that is not as it should be.

    `whole`: every target is among the figures, so that a listed survivor that is not found is one no more."""
    lines, complaints = list[str](), list[str]()
    lines.append(f"{'target':16} {'mutants':>8} {'tried':>6} {'killed':>7} {'survived':>9} {'%':>6} {'seconds':>8}")
    for each in figures:
        percent = 100 * each.killed / each.tried if each.tried else 0.0
        lines.append(
            f"{each.target:16} {each.mutants:8} {each.tried:6} {each.killed:7} {each.tried - each.killed:9} {percent:6.1f} "
            f"{each.seconds:8.0f}"
        )
        if each.tried < each.mutants:
            complaints.append(
                f'"{each.target}" has mutants that were not tried ({each.mutants - each.tried}); run make mutants again.'
            )
        elif percent < KILLED_PERCENT:
            complaints.append(
                f'Of the mutants of "{each.target}", {percent:.0f} % were killed, fewer than {KILLED_PERCENT} %.'
            )
        complaints += [
            f'"{each.target}" has a survivor that scripts/mutants.toml does not list: {function or "module"}: {before} -> {after}'
            for function, before, after in each.survivors
            if not any(one.covers((function, before, after)) for one in listed)
        ]
    if whole and all(each.tried == each.mutants for each in figures):
        alive = {survivor for each in figures for survivor in (*each.survivors, *each.left_out)}
        complaints += [
            "scripts/mutants.toml lists a survivor that is none any more: "
            f"{each.function or 'module'}: {each.before} -> {each.after}"
            for each in listed
            if not any(each.covers(survivor) for survivor in alive)
        ]
    return lines, complaints


def figures_of(target: Target, every: Sequence[Mutant]) -> Figures:
    mutants = chosen(target, every)
    sample = {mutant.name for mutant in mutants}
    outcomes = read_outcomes(target)
    tried = [(mutant, outcomes[mutant.name]) for mutant in mutants if mutant.name in outcomes]
    alive = [mutant for mutant, outcome in tried if outcome.outcome == "survived"]
    return Figures(
        target=target.name,
        mutants=len(mutants),
        tried=len(tried),
        killed=len(tried) - len(alive),
        seconds=sum(outcome.seconds for _, outcome in tried),
        survivors=tuple(dict.fromkeys((mutant.function, mutant.before, mutant.after) for mutant in alive)),
        left_out=tuple((each.function, each.before, each.after) for each in every if each.name not in sample),
    )


def main(arguments: list[str]) -> int:
    """Try what is left, then report; 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(
        description="Whether the tests notice small faults in the modules that must have none."
    )
    parser.add_argument("names", nargs="*", help="targets of scripts/mutants.toml; none: all")
    parser.add_argument("--minutes", type=float, help="stop after these; the next run continues")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--report", action="store_true", help="try nothing, report what is known")
    options = parser.parse_args(arguments)
    targets, listed = read_table()
    unknown = set(options.names) - {target.name for target in targets}
    if unknown:
        parser.error(f"there is no target {sorted(unknown)[0]!r}; known are {', '.join(each.name for each in targets)}")
    targets = [target for target in targets if not options.names or target.name in options.names]
    gone = missing(targets)
    if gone:
        print(*gone, sep="\n")
        return 1
    sys.path[:0] = [str(RESULTS / "tools"), str(ROOT)]
    from scripts.mutations import mutants_of  # noqa: PLC0415 - cosmic-ray stands in build/, beside the results

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.chdir(ROOT)
    for name in WARM:
        importlib.import_module(name)
    deadline = time.monotonic() + 60 * options.minutes if options.minutes else None
    figures, in_time = list[Figures](), True
    for target in targets:
        every = mutants_of(target.source)
        if options.fresh:
            _results_file(target).unlink(missing_ok=True)
        if not options.report and in_time:
            with _SHARED.running() if target.postgres else contextlib.nullcontext():
                in_time = run_target(target, chosen(target, every), deadline)
        figures.append(figures_of(target, every))
    lines, complaints = report(figures, listed, whole=not options.names)
    print(*lines, *complaints, sep="\n")
    (RESULTS / "report.txt").write_text("\n".join([*lines, *complaints, ""]), encoding="utf-8")
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

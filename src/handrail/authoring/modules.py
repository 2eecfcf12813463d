"""Decorated tools: the modules that `handrail.toml` names are imported, and what `@tool` marked in them is collected.

A module is made from the very bytes that are hashed, here at build time and again when a registry loads its tools: what
was imported from a file that has changed since is made anew. So are the project's own modules that it imports, as far as
its `import` statements tell; what is installed beside the project is the environment's, not the tool's.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType

from handrail.authoring.decorator import ToolComponent
from handrail.authoring.injection import ServiceTypes, no_services
from handrail.authoring.registration import Registration, registration_of
from handrail.authoring.source import ModuleTool, ToolSource, parse_python
from handrail.contract.errors import ConfigError, DefinitionError

_MADE_FROM = "__handrail_made_from__"


@dataclass(frozen=True, slots=True)
class BrokenModule:
    """A module that could not be imported, and why, as a sentence."""

    module: str
    file: str
    line: int | None
    message: str
    rule: str = "module-import"
    fix: str = "Mend the module, or take it out of [tools] modules in handrail.toml."


def look_in(root: Path, *, first: bool = True) -> None:
    """Let modules be found in this folder: before everywhere else, or only where nothing else has them."""
    if str(root) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(root))


def read_modules(
    names: tuple[str, ...], root: Path, service_types: ServiceTypes = no_services
) -> Iterator[ToolSource | BrokenModule]:
    """The decorated tools of each module. `root`, the project's folder, is where modules are looked for first.

    `service_types` says which services the hints of their parameters may ask for.
    """
    if names:
        look_in(root)
        importlib.invalidate_caches()  # a module may have been written since its folder was last looked into
    for name in dict.fromkeys(names):
        yield from _read_module(name, root, service_types)


class _NoModule(ModuleNotFoundError):
    """The module itself is not there, as opposed to one that it imports."""


def module_source(name: str) -> bytes:
    """The bytes of a module's file; `ImportError` if it has none."""
    spec = _spec_of(name)
    if spec is None:
        raise _NoModule(f"there is no module {name!r}")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ImportError(f"{name!r} is not a Python file")
    return Path(spec.origin).read_bytes()


def module_sources(name: str) -> dict[str, bytes]:
    """The bytes of a module's file, and of each of the project's own modules that it imports, however far down."""
    sources = {name: module_source(name)}
    base = _base_of(name)
    waiting = [name]
    while waiting:
        here = waiting.pop()
        for other in sorted(_imported(here, sources[here])):
            if other not in sources and base is not None and _base_of(other) == base:
                sources[other] = module_source(other)
                waiting.append(other)
    return sources


def module_files(names: Sequence[str], root: Path) -> list[Path]:
    """Where the modules of these names are, and those that they import of the project, however far down. One that is not there is
    expected in the project's folder."""
    importlib.invalidate_caches()  # a module may have been written or removed since
    files: list[Path] = []
    seen = set(names)
    waiting = [(name, _base_of(name)) for name in names]
    while waiting:
        name, base = waiting.pop()
        if _base_of(name) is None:
            path = root.joinpath(*name.split("."))
            files += [path.with_name(f"{path.name}.py"), path / "__init__.py"]
            continue
        spec = _spec_of(name)
        assert spec is not None
        files.append(Path(str(spec.origin)))
        try:
            others = _imported(name, files[-1].read_bytes()) - seen
        except OSError:
            continue
        own = {one for one in others if _may_be_of(base, one)}
        seen |= own
        waiting += [(one, base) for one in own]
    return files


def _may_be_of(base: Path | None, name: str) -> bool:
    """Whether a module is one of the project that starts in this folder, or could be if it were there."""
    first = name.partition(".")[0]
    try:
        is_known = _spec_of(first) is not None
    except (ImportError, ValueError):
        return False
    return _base_of(name) == base if _base_of(name) is not None else not is_known or _base_of(first) == base


def _spec_of(name: str) -> ModuleSpec | None:
    """Where a module is, found without running the packages around it."""
    places: list[str] | None = None
    spec: ModuleSpec | None = None
    words = name.split(".")
    for end in range(1, len(words) + 1):
        spec = PathFinder.find_spec(".".join(words[:end]), places)
        if spec is None:
            # A finder of its own, as some installations in development bring one.
            return importlib.util.find_spec(name) if end == 1 else None
        places = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if places is None and end < len(words):
            return None
    return spec


def _base_of(name: str) -> Path | None:
    """The folder that a module's dotted name starts from; None if it is no Python file, or not there."""
    try:
        spec = _spec_of(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    place = Path(spec.origin)
    for _ in range(name.count(".") + (2 if place.name == "__init__.py" else 1)):
        place = place.parent
    # Installed packages share one folder: there, the package of the module is all that is its own.
    return place / name.partition(".")[0] if place.name in ("site-packages", "dist-packages") else place


def _imported(name: str, source: bytes) -> set[str]:
    """The modules that a module's `import` statements may load, and the packages around it."""
    tree = parse_python(source)
    if isinstance(tree, SyntaxError):
        return set()
    spec = _spec_of(name)
    is_package = spec is not None and spec.submodule_search_locations is not None
    package = name if is_package else name.rpartition(".")[0]
    found = {package} if package else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            found.update(f"{start}.{alias.name}" for alias in node.names if start)
            found.add(start)
    around = {".".join(one.split(".")[:end]) for one in found for end in range(1, one.count(".") + 2)}
    return {one for one in around if one}


class _VerifiedModules(MetaPathFinder, Loader):
    """Makes modules from bytes that were read and hashed before, while it is asked to."""

    def __init__(self) -> None:
        self._sources: Mapping[str, bytes] = {}

    def offer(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def withdraw(self) -> None:
        self._sources = {}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        found = _spec_of(fullname) if fullname in self._sources else None
        if found is not None:
            found.loader = self
        return found

    def exec_module(self, module: ModuleType) -> None:
        source = self._sources[module.__name__]
        setattr(module, _MADE_FROM, _digest(source))
        code = compile(source, str(module.__file__), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - importing is what the project asked for, of these bytes and no others


_VERIFIED = _VerifiedModules()


def module_of(name: str, sources: Mapping[str, bytes]) -> ModuleType:
    """The module made from these bytes, as are those of the project that it imports.

    What is loaded stays, unless the bytes of one of them are others now: then all of them are run anew.
    """
    before = {other: sys.modules[other] for other in sources if other in sys.modules}
    for other, module in before.items():
        # What the host imported itself is left to it: two copies would not share their state.
        if not hasattr(module, _MADE_FROM) and not _is_made_from(module, sources[other]):
            raise ImportError(f"{other!r} was imported before its file changed; start the process again")
    ours = {other: module for other, module in before.items() if hasattr(module, _MADE_FROM)}
    is_stale = any(getattr(module, _MADE_FROM) != _digest(sources[other]) for other, module in ours.items())
    if name in before and not is_stale:
        return before[name]
    if is_stale:
        for other in ours:
            del sys.modules[other]
    _VERIFIED.offer(sources)
    try:
        return sys.modules[name] if name in sys.modules else importlib.import_module(name)
    except BaseException:
        sys.modules.update(ours)
        raise
    finally:
        _VERIFIED.withdraw()


def _digest(source: bytes) -> str:
    return sha256(source).hexdigest()


def _is_made_from(module: ModuleType, source: bytes) -> bool:
    """Whether the functions of a module that somebody else imported are those of this source."""
    file = str(getattr(module, "__file__", ""))
    codes: set[CodeType] = set()
    waiting = [compile(source, file, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        codes.add(code)
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    members = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    for owner in [value for value in members if inspect.isclass(value)]:
        members += [
            value for base in owner.__mro__ if base.__module__ == module.__name__ for value in vars(base).values()
        ]
    mine = (getattr(value, "__code__", None) for value in members)
    return all(code in codes for code in mine if code is not None and code.co_filename == file)


def _read_module(name: str, root: Path, service_types: ServiceTypes) -> Iterator[ToolSource | BrokenModule]:
    file = name.replace(".", "/") + ".py"
    try:
        sources = module_sources(name)
        module = module_of(name, sources)
    except DefinitionError as error:
        yield from _broken_definition(error, name, file, _line_in(error, name))
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an author's module may raise anything
        if isinstance(error, _NoModule):
            yield _not_found(name, file, root)
            return
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        yield BrokenModule(name, file, _line_in(error, name), f'Module "{name}" cannot be imported: {reason}.')
        return
    tools = dict(_tools_of(module))
    known_types = cache(service_types)  # not longer than for one module: the next may make the services' modules anew
    if not tools:
        fix = "Put `@tool` on a function or a class in it, or take it out of [tools] modules in handrail.toml."
        yield BrokenModule(name, file, 1, f'Module "{name}" has no tool.', "empty-module", fix)
    for attribute, registration in tools.items():
        value = getattr(module, attribute)
        line = _first_line(value)
        try:
            resolved = registration.resolve(known_types)
        except DefinitionError as error:
            yield from _broken_definition(error, name, file, line)
            continue
        except ConfigError as error:  # a service whose type is not known, and so not whether a parameter is one
            fix = "Mend [services] in handrail.toml, or mark the parameters that are services."
            yield BrokenModule(name, file, line, str(error), "function-hints", fix)
            continue
        if inspect.isclass(value) and not _can_run(value):
            tool_id = resolved.definition.tool_id
            message = f'Tool "{tool_id}": the class has no `async def run`, so there is nothing to call.'
            yield BrokenModule(name, file, line, message, "class-run", "Write `async def run(self, params=None)`.")
            continue
        yield ToolSource(
            kind="class" if inspect.isclass(value) else "function",
            folder=name,
            files=sources,
            given=resolved.definition,
            given_guide=registration.guide,
            module_tool=ModuleTool(name, attribute, line, resolved.services),
        )


def _not_found(name: str, file: str, root: Path) -> BrokenModule:
    """The module is nowhere: say where modules are looked for, and where one of this name lies."""
    message = (
        f'There is no module "{name}": modules are looked for in the project\'s folder "{root.name}", then among the '
        "installed packages and on PYTHONPATH."
    )
    fix = "Put the file there, or take it out of [tools] modules in handrail.toml."
    places = (f"src/{file}", f"src/{file.removesuffix('.py')}/__init__.py")
    found = next((place for place in places if (root / place).is_file()), None)
    if found is not None:
        fix = f"There is a {found}: install the project with `pip install -e .`, set PYTHONPATH=src, or move the file."
    return BrokenModule(name, file, None, message, fix=fix)


def _broken_definition(error: DefinitionError, name: str, file: str, line: int | None) -> Iterator[BrokenModule]:
    for problem in error.problems:
        yield BrokenModule(name, file, line, f"{error.subject}: {problem.message}", problem.rule, problem.fix)


def _tools_of(module: ModuleType) -> Iterator[tuple[str, Registration]]:
    """The tools of a module by the names that they have in it, each once; not those that it imports."""
    seen: set[int] = set()
    for attribute, value in sorted(vars(module).items()):
        registration = registration_of(value)
        own = getattr(value, "__module__", None) == module.__name__
        if registration is not None and own and id(value) not in seen:
            seen.add(id(value))
            yield attribute, registration


def _can_run(component: type) -> bool:
    run = getattr(component, "run", None)
    return run is not ToolComponent.run and inspect.iscoroutinefunction(run)


def _first_line(value: object) -> int:
    code = getattr(value, "__code__", None)
    if code is not None:
        return int(code.co_firstlineno)
    try:
        return inspect.getsourcelines(value)[1]  # type: ignore[arg-type]  # what is no function is a class
    except OSError:
        return 1


def _line_in(error: BaseException, module: str) -> int | None:
    """The last line of the module itself that the error passed through."""
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == module:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line

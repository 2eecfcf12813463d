"""Decorated tools: the modules that `handrail.toml` names are imported, and what `@tool` marked in them is collected.

A module is made from the very bytes that are hashed, here at build time and again when a registry loads its tools: what
was imported from a file that has changed since is made anew.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType

from handrail.authoring.decorator import ToolComponent, definition_of, guide_of
from handrail.authoring.source import ModuleTool, ToolSource
from handrail.contract.errors import DefinitionError

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


def look_in(root: Path) -> None:
    """Let modules be found in the project's folder first."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def read_modules(names: tuple[str, ...], root: Path) -> Iterator[ToolSource | BrokenModule]:
    """The decorated tools of each module. `root`, the project's folder, is where modules are looked for first."""
    if names:
        look_in(root)
        importlib.invalidate_caches()  # a module may have been written since its folder was last looked into
    for name in dict.fromkeys(names):
        yield from _read_module(name)


def module_source(name: str) -> bytes:
    """The bytes of a module's file; `ImportError` if it has none."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"there is no module {name!r}")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ImportError(f"{name!r} is not a Python file")
    return Path(spec.origin).read_bytes()


def module_of(name: str, source: bytes) -> ModuleType:
    """The module made from these bytes: the one that is loaded if it was, else it is run anew and takes its place."""
    made_from = sha256(source).hexdigest()
    loaded = sys.modules.get(name)
    if loaded is not None and not hasattr(loaded, _MADE_FROM):
        # The host imported it itself, and it is left to it: two copies would not share their state.
        if not _is_made_from(loaded, source):
            raise ImportError(f"{name!r} was imported before its file changed; start the process again")
        return loaded
    if loaded is not None and getattr(loaded, _MADE_FROM) == made_from:
        return loaded
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {name!r}")
    module = importlib.util.module_from_spec(spec)
    setattr(module, _MADE_FROM, made_from)
    sys.modules[name] = module
    try:
        code = compile(source, spec.origin, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - importing is what the project asked for, of these bytes and no others
    except BaseException:
        del sys.modules[name]
        if loaded is not None:
            sys.modules[name] = loaded
        raise
    package, _, last = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], last, module)
    return module


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


def _read_module(name: str) -> Iterator[ToolSource | BrokenModule]:
    file = name.replace(".", "/") + ".py"
    try:
        source = module_source(name)
        module = module_of(name, source)
    except DefinitionError as error:
        line = _line_in(error, name)
        for problem in error.problems:
            yield BrokenModule(name, file, line, f"{error.subject}: {problem.message}", problem.rule, problem.fix)
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an author's module may raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        yield BrokenModule(name, file, _line_in(error, name), f'Module "{name}" cannot be imported: {reason}.')
        return
    seen: set[int] = set()
    if not any(_is_tool(value, name) for value in vars(module).values()):
        yield BrokenModule(
            name,
            file,
            None,
            f'Module "{name}" has no tool.',
            "empty-module",
            "Put `@tool` on one, or take it off the list.",
        )
    for attribute, value in sorted(vars(module).items()):
        definition = definition_of(value)
        if definition is None or not _is_tool(value, name) or id(value) in seen:
            continue
        seen.add(id(value))
        if inspect.isclass(value) and not _can_run(value):
            message = f'Tool "{definition.tool_id}": the class has no `async def run`, so there is nothing to call.'
            fix = "Write `async def run(self, params=None)`."
            yield BrokenModule(name, file, _first_line(value), message, "class-run", fix)
            continue
        yield ToolSource(
            kind="class" if inspect.isclass(value) else "function",
            folder=name,
            files={name: source},
            given=definition,
            given_guide=guide_of(value),
            module_tool=ModuleTool(name, attribute, _first_line(value)),
        )


def _can_run(component: type) -> bool:
    run = getattr(component, "run", None)
    return run is not ToolComponent.run and inspect.iscoroutinefunction(run)


def _is_tool(value: object, module: str) -> bool:
    """Whether it is a tool of this module, and not one that it imports."""
    return definition_of(value) is not None and getattr(value, "__module__", None) == module


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

"""From an entry of the artifact to the code that runs: read once, hash checked, executed from those very bytes.

A directory tool becomes a small package of its own, made of the files that the artifact names and no others, so files
beside the handler are imported relatively and two tools' files never meet. A decorated tool is found in its module. A tool
of an MCP server has no code here: it is called through the host's service for such servers.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from handrail.authoring.binding import bind_class, bind_function, converter_of
from handrail.authoring.decorator import ToolComponent
from handrail.authoring.json_values import to_json
from handrail.authoring.modules import module_of, module_source
from handrail.authoring.reference import collection_root, collections
from handrail.authoring.registration import registration_of
from handrail.authoring.source import PROJECT, UPSTREAM_CAPABILITY, UpstreamTool
from handrail.contract.errors import ArtifactError, HandlerChanged, RegistryError

_USUAL_BYTES = 32 * 1024
"""Most files of a tool are smaller: one read has them whole."""

_NO_SERVICES: Mapping[str, str] = MappingProxyType({})
Kind = Literal["directory", "function", "class", "mcp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What the pipeline runs: `execute(args, ctx)`, whatever the tool was written as."""

    kind: Kind
    execute: Callable[[dict[str, Any], Any], Any]
    is_async: bool
    component: Callable[[Mapping[str, Any]], ToolComponent] | None = None
    """Makes the component of a class tool that needs its arguments only."""
    preview: Callable[..., Any] | None = None
    reconcile: Callable[..., Any] | None = None
    check: Callable[[Any], Any] | None = None
    """Raises `ConversionError` for arguments that fit the schema and cannot be what the tool asks for; None if all can."""
    encode: Callable[[Any], Any] | None = None
    """Makes JSON data of what it returns; None if that is JSON, or nobody has said what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCode:
    """The verified bytes of one tool's handler, not yet run."""

    tool_id: str
    kind: Kind
    sources: Mapping[str, bytes]
    place: str
    module: str = ""
    name: str = ""
    services: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    upstream: UpstreamTool | None = None

    def load(self) -> Handler:
        """Run the module and take what it exports; `RegistryError` with a sentence if that fails."""
        try:
            if self.kind == "directory":
                return _directory_handler(self)
            if self.upstream is not None:
                return _upstream_handler(self.upstream)
            return _module_handler(self)
        except RegistryError:
            raise
        except (Exception, SystemExit) as error:
            raise RegistryError(
                f'The handler of "{self.tool_id}" cannot be loaded: {type(error).__name__}: {error}'
            ) from error


def verified_code(entry: Mapping[str, Any], root: str | None, *, production: bool) -> HandlerCode:
    """The handler's bytes, read once and checked against the hashes in the artifact. `root` is None if it is not believed."""
    handler = entry["handler"]
    tool_id, kind = entry["toolId"], handler["kind"]
    hashes: Mapping[str, str] = handler["files"]
    if kind == "mcp":
        upstream = UpstreamTool(handler["server"], handler["tool"], handler["pin"], entry["sideEffects"] == "writes")
        return HandlerCode(tool_id=tool_id, kind=kind, sources={}, place="", digest=entry["hash"], upstream=upstream)
    if kind == "directory":
        folder = f"{_root_of(handler, root, tool_id)}/{_one_step(handler['folder'], tool_id)}"
        sources = _read_folder(folder, [_one_step(name, tool_id) for name in hashes], tool_id)
    else:
        sources = {name: _read_module(name, tool_id) for name in {handler["module"]: None, **hashes}}
        folder = handler["module"]
    for name, expected in hashes.items():
        if sha256(sources[name]).hexdigest() != expected:
            raise HandlerChanged(_changed(tool_id, name, production, reference="origin" in handler))
    return HandlerCode(
        tool_id=tool_id,
        kind=kind,
        sources=sources,
        place=folder,
        module=handler.get("module", ""),
        name=handler.get("name", ""),
        services=handler.get("services", _NO_SERVICES),
        digest=entry["hash"],
    )


def _root_of(handler: Mapping[str, Any], root: str | None, tool_id: str) -> str:
    """The folder that the tool's folder lies in: the project's tools, or those of the installed package."""
    origin = handler.get("origin", PROJECT)
    if origin == PROJECT:
        if root is None:
            raise ArtifactError(
                f'The artifact says that "{tool_id}" lies outside its own folder; give that folder as `tools_root`, or as '
                "the directory under [tools] in handrail.toml, if it is the right one."
            )
        return root
    if origin not in collections():
        raise ArtifactError(
            f'The handler of "{tool_id}" is from "{origin}", which is not installed here; install its package, or run '
            "`handrail build`."
        )
    return str(collection_root(origin))


def _changed(tool_id: str, name: str, production: bool, reference: bool) -> str:
    if reference:
        return (
            f'The reference tool "{tool_id}" ({name}) of this Handrail is another than the one that was built; '
            "run `handrail build` with this version, or install the version that it was built with."
        )
    what = f'The handler of "{tool_id}" ({name}) changed since the build'
    if production:
        return f"{what}; it is refused in production. Deploy the artifact and the handlers of one build together."
    return f"{what}; run `handrail build` to take the change in."


def _one_step(name: str, tool_id: str) -> str:
    """A name that stays where it is put: no path, nothing hidden."""
    if "/" in name or "\\" in name or name.startswith(".") or not name:
        raise ArtifactError(f'The handler path "{name}" of "{tool_id}" leads out of its folder; run `handrail build`.')
    return name


def _read_folder(folder: str, names: Sequence[str], tool_id: str) -> dict[str, bytes]:
    name = names[0] if names else ""
    sources = {}
    try:
        # O_NOFOLLOW on both steps: what was hashed was no link, so a link here was put there since.
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in names:
                sources[name] = _read_file(directory, name)
            return sources
        finally:
            os.close(directory)
    except OSError as error:
        raise ArtifactError(
            f'The handler of "{tool_id}" cannot be read at "{Path(folder).name}/{name}" ({error.strerror}); run `handrail build`.'
        ) from None


def _read_file(directory: int, name: str) -> bytes:
    # O_NONBLOCK: what was hashed was no pipe either, on which opening would wait for ever.
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        content = os.read(handle, _USUAL_BYTES)
        # Asking each file for its size first is a twentieth of the time that a large catalogue takes to load.
        return content if len(content) < _USUAL_BYTES else content + os.read(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def _read_module(module: str, tool_id: str) -> bytes:
    try:
        return module_source(module)
    except ModuleNotFoundError:
        raise ArtifactError(
            f'The module "{module}" of "{tool_id}" cannot be found; is its folder on the Python path?'
        ) from None
    except Exception as error:  # noqa: BLE001 - finding a module runs the packages around it
        raise ArtifactError(f'The module "{module}" of "{tool_id}" cannot be read: {error}.') from None


class _VerifiedFiles(MetaPathFinder, Loader):
    """Finds the modules of directory tools among bytes that were verified before, and nothing else."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[bytes, str]] = {}

    def offer(self, package: str, code: HandlerCode) -> None:
        for name, data in code.sources.items():
            self._sources[f"{package}.{name.removesuffix('.py')}"] = (data, str(Path(code.place) / name))

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in self._sources:
            return None
        spec = ModuleSpec(fullname, self, origin=self._sources[fullname][1])
        spec.has_location = True  # so that a handler has its `__file__`
        return spec

    def exec_module(self, module: ModuleType) -> None:
        data, origin = self._sources[module.__name__]
        code = compile(data, origin, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  # these bytes are the ones that were hashed


_FILES = _VerifiedFiles()


def _directory_handler(code: HandlerCode) -> Handler:
    package = f"handrail_tool_{code.tool_id}_{code.digest[:16]}"
    if _FILES not in sys.meta_path:
        sys.meta_path.append(_FILES)
    if package not in sys.modules:
        holder = ModuleType(package)
        holder.__path__ = []
        sys.modules[package] = holder
    _FILES.offer(package, code)
    module = importlib.import_module(f"{package}.handler")
    execute = getattr(module, "execute", None)
    if not callable(execute):
        raise RegistryError(f'The handler of "{code.tool_id}" has no function `execute`; run `handrail build`.')
    return Handler(
        kind="directory",
        execute=execute,
        is_async=inspect.iscoroutinefunction(execute),
        preview=getattr(module, "preview", None),
        reconcile=getattr(module, "reconcile", None),
    )


def _upstream_handler(upstream: UpstreamTool) -> Handler:
    async def execute(args: dict[str, Any], ctx: Any) -> Any:
        return await getattr(ctx, UPSTREAM_CAPABILITY).call(upstream, args, ctx)

    return Handler(kind="mcp", execute=execute, is_async=True)


def _module_handler(code: HandlerCode) -> Handler:
    module = module_of(code.module, code.sources)
    target = getattr(module, code.name, None)
    registration = registration_of(target)
    if registration is None:
        raise RegistryError(f'"{code.module}" has no tool "{code.name}" any more; run `handrail build`.')
    signature = registration.signature(services=code.services)
    made: dict[str, Any] = {
        "preview": getattr(target, "preview", None),
        "reconcile": getattr(target, "reconcile", None),
        "check": signature.decode if signature.may_refuse else None,
        "encode": to_json if registration.result().converts else None,
    }
    if inspect.isclass(target) and issubclass(target, ToolComponent):
        convert, make = converter_of(signature.decode), target
        component = None if signature.services else lambda args: make(convert(args))
        return Handler(kind="class", execute=bind_class(target, signature), is_async=True, component=component, **made)
    function: Callable[..., Any] = target  # type: ignore[assignment]  # `registration_of` found it marked by `@tool`
    return Handler(
        kind="function",
        execute=bind_function(function, signature),
        is_async=inspect.iscoroutinefunction(function),
        **made,
    )

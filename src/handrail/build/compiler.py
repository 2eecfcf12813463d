"""The build itself: read, lint, compile, version. Everything happens in memory; `writer.py` puts the result on disk.

collect → lint → (no problems) → entries and provider schemas → hashes → version → bytes
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from handrail.authoring.directory import read_folder, tool_folders
from handrail.authoring.injection import ServiceTypes, no_services
from handrail.authoring.mcp.imported import BrokenPins, read_upstream
from handrail.authoring.mcp.lock import LOCK_FILE
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.authoring.modules import BrokenModule, read_modules
from handrail.authoring.reference import CORE, read_reference
from handrail.authoring.source import PROJECT, ToolSource
from handrail.build.findings import Catalogue, Finding, LostKeyword
from handrail.build.guide import summary_of
from handrail.build.rules import all_rules
from handrail.contract.fields import MODES
from handrail.contract.offer import FIND_TOOL, places_for_always
from handrail.providers import Adapted, provider_names
from handrail.providers.catalogue import get_provider
from handrail.registry.artifact import FORMAT, render, versioned_name
from handrail.registry.version_rules import precedence
from handrail.schema.strict_json import canonical

Progress = Callable[[int, int], None]
"""Called with how many tools are done, and of how many."""
BROKEN_PINS = "broken-pins"
"""The finding for an MCP server whose tools are left out, because its pins were edited by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """What to build: where the tools are, which modules, and where the artifact will lie."""

    tools: Path
    artifact: Path
    modules: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    """The reference tools that the project takes in; `*` means all."""
    project: Path = field(default_factory=Path.cwd)
    tools_optional: bool = False
    """Whether the tools directory may be missing: nobody named it, and the tools may all be decorated."""
    max_tools: int = 40
    """As `max_tools` of `[agent]`: with more, a model is offered some, and looks for the others by `find_tools`."""
    voice_turn_ms: int = 1500
    roles: tuple[str, ...] = ()
    """The roles that the project has; none: whatever the tools name."""
    upstream: Mapping[str, UpstreamConfig] = field(default_factory=dict)
    """The MCP servers whose pinned tools are taken in."""
    service_types: ServiceTypes = no_services
    """What the factories of the configured services are annotated to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStamp:
    """What stands in the artifact but outside its hash."""

    git_commit: str | None
    timestamp: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a build found and, if there are no errors, what it made."""

    plan: BuildPlan
    findings: tuple[Finding, ...]
    version: str = ""
    entries: tuple[dict[str, Any], ...] = ()
    providers: bytes = b""
    losses: tuple[LostKeyword, ...] = ()
    """What the providers' formats cannot express as it is, sorted."""
    limits: tuple[str, ...] = ()
    """What keeps all the tools from being offered in one request, a sentence for each limit of a provider."""

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "warning"]

    @property
    def provider_file(self) -> str:
        """Named after its content, so that an older artifact keeps the schemas that belong to it."""
        return f"{self.plan.artifact.stem}.providers.{sha256(self.providers).hexdigest()[:8]}.jsonl"

    def document(self, stamp: BuildStamp) -> bytes:
        """The bytes of the artifact."""
        head = {
            "version": self.version,
            "gitCommit": stamp.git_commit,
            "buildTimestamp": stamp.timestamp,
            "toolsRoot": _relative(self.plan.tools, self.plan.artifact.parent),
            "providerSchemas": {
                "file": self.provider_file,
                "sha256": sha256(self.providers).hexdigest(),
                "providers": list(provider_names()),
            },
        }
        return render(head, self.entries)


def build(plan: BuildPlan, progress: Progress | None = None) -> BuildResult:
    """Read and judge every tool; compile them if there is no error."""
    sources, findings = _collect(plan)
    catalogue = _catalogue(plan, sources)
    for done, source in enumerate(sources, 1):
        findings += _lint(source, catalogue)
        if progress is not None:
            progress(done, len(sources))
    ordered = tuple(sorted(findings, key=lambda found: (found.severity, found.file, found.place, found.rule)))
    result = BuildResult(plan=plan, findings=ordered)
    return result if result.errors else _compile(result, sources, catalogue)


def compile_unjudged(plan: BuildPlan) -> BuildResult | None:
    """What a build would make of the tools as they are, without judging them; None if it would refuse to.

    For comparison with an artifact alone: one that is the same was judged when it was written. Judging takes most of the time.
    """
    sources, findings = _collect(plan)
    if findings or any(source.definition is None or source.guide is None for source in sources):
        return None
    try:
        return _compile(BuildResult(plan=plan, findings=()), sources, _catalogue(plan, sources))
    except Exception:  # noqa: BLE001  # no rule has looked at these tools; what is wrong is the build's to say
        return None


def _catalogue(plan: BuildPlan, sources: list[ToolSource]) -> Catalogue:
    by_id: dict[str, list[ToolSource]] = {}
    for source in sources:
        tool_id = (source.raw or {}).get("toolId")
        if isinstance(tool_id, str):
            by_id.setdefault(tool_id, []).append(source)
    return Catalogue(tuple(sources), by_id, plan.voice_turn_ms, provider_names(), plan.roles)


def _collect(plan: BuildPlan) -> tuple[list[ToolSource], list[Finding]]:
    sources: list[ToolSource] = []
    findings: list[Finding] = []
    # A project without folders of its own needs no tools directory; one that was named must be there.
    if plan.tools.is_dir() or not ((plan.modules or plan.reference or plan.upstream) and plan.tools_optional):
        sources += [read_folder(plan.tools, name) for name in tool_folders(plan.tools)]
    sources += read_reference(plan.reference)
    for pinned in read_upstream(plan.upstream, plan.project):
        if isinstance(pinned, BrokenPins):
            findings.append(
                Finding(
                    rule=BROKEN_PINS,
                    severity="warning",
                    tool=pinned.server,
                    file=LOCK_FILE,
                    place=f"/servers/{pinned.server}",
                    message=pinned.message,
                    fix=f'Until then the tools of the MCP server "{pinned.server}" are left out.',
                )
            )
        else:
            sources.append(pinned)
    for found in read_modules(plan.modules, plan.project, plan.service_types):
        if isinstance(found, BrokenModule):
            place = f"line {found.line}" if found.line else ""
            findings.append(
                Finding(
                    rule=found.rule,
                    severity="error",
                    tool=found.module,
                    file=found.file,
                    place=place,
                    message=found.message,
                    fix=found.fix,
                )
            )
        else:
            sources.append(found)
    names = {source.name for source in sources}
    if len(names) > plan.max_tools and FIND_TOOL not in names:
        sources += read_reference((f"{CORE}:{FIND_TOOL}",))  # what is not offered must be found
    return sources, findings


def _lint(source: ToolSource, catalogue: Catalogue) -> Iterable[Finding]:
    waived = source.definition.waivers if source.definition is not None else {}
    for rule in all_rules():
        if (rule.severity == "warning" and rule.name in waived) or (source.kind == "mcp" and not rule.upstream):
            continue
        yield from rule.findings(source, catalogue)


def _compile(result: BuildResult, sources: Iterable[ToolSource], catalogue: Catalogue) -> BuildResult:
    entries: list[dict[str, Any]] = []
    losses: list[LostKeyword] = []
    covered: dict[str, str] = {}
    schemas: dict[str, dict[str, Any]] = {name: {} for name in provider_names()}
    for source in sorted(sources, key=_name_and_version):
        adapted = catalogue.adapted(source)
        entry = _entry(source)
        entries.append(entry)
        name = entry["toolId"]
        if len(catalogue.by_id.get(name, ())) > 1:
            name = versioned_name(name, entry["version"])
        covered[name] = _covered(entry, adapted)
        for provider, made in adapted.items():
            schemas[provider][name] = _in_order(made.schema)
            losses += [LostKeyword.of(name, provider, loss) for loss in made.losses]
    version = "1.0." + sha256(canonical({"format": FORMAT, "tools": covered})).hexdigest()[:8]
    lines = (orjson.dumps({"provider": name, "schemas": schemas[name]}) + b"\n" for name in sorted(schemas))
    return BuildResult(
        plan=result.plan,
        findings=result.findings,
        version=version,
        entries=tuple(entries),
        providers=b"".join(lines),
        losses=tuple(sorted(losses)),
        limits=(*_limits(schemas), *_always_beyond(entries, result.plan.max_tools)),
    )


def _name_and_version(source: ToolSource) -> tuple[object, ...]:
    return source.name, precedence(source.definition.version if source.definition is not None else "")


_MAX_NAMED = 20
_FIRST = ("name", "type", "description")
_NAMED = frozenset({"properties", "$defs", "defs", "patternProperties", "dependentSchemas"})


def _in_order(value: Any, *, named: bool = False) -> Any:
    """A schema with its keywords in one order, however its author wrote them. Names of arguments stay in the author's."""
    if isinstance(value, Mapping):
        keys = list(value) if named else sorted(value, key=lambda key: (_RANK.get(key, len(_FIRST)), key))
        return {key: _in_order(value[key], named=not named and key in _NAMED) for key in keys}
    return [_in_order(item) for item in value] if isinstance(value, (list, tuple)) else value


_RANK = {name: rank for rank, name in enumerate(_FIRST)}


def _limits(schemas: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for provider, by_tool in sorted(schemas.items()):
        # A session has one version of each tool.
        one_each = {name.partition("@")[0]: schema for name, schema in by_tool.items()}
        for limit in get_provider(provider).exceeded_limits(list(one_each.values())):
            yield f"{provider} {limit}. Offer fewer of them at a time, by mode or with `pick_tools`."


def _always_beyond(entries: Iterable[Mapping[str, Any]], max_tools: int) -> Iterator[str]:
    """The tools marked `alwaysOffer` for which there is no place: those of the last names, in each mode."""
    always = {entry["toolId"]: entry["allowedModes"] for entry in entries if entry.get("alwaysOffer")}
    places = places_for_always(max_tools)
    for mode in MODES:
        beyond = sorted(name for name, modes in always.items() if mode in modes)[places:]
        if beyond:
            listed = ", ".join(beyond[:_MAX_NAMED]) + (
                f" and {len(beyond) - _MAX_NAMED} more" * (len(beyond) > _MAX_NAMED)
            )
            yield (
                f'"alwaysOffer" has {places} places in {mode} ("max_tools" in [agent] is {max_tools}); these are offered like '
                f"any other tool: {listed}."
            )


def _covered(entry: Mapping[str, Any], adapted: Mapping[str, Adapted]) -> str:
    """What the registry's version covers of a tool: everything that can change behaviour, guide and schemas of providers too."""
    schemas = {provider: made.schema for provider, made in adapted.items()}
    content = {"hash": entry["hash"], "guide": entry["documentation"], "providerSchemas": schemas}
    return sha256(canonical(content)).hexdigest()


def _entry(source: ToolSource) -> dict[str, Any]:
    """One tool's entry. Its hash covers definition and handler: a confirmation is bound to it, and outlives a better adapter."""
    definition = source.definition
    if definition is None or source.guide is None:
        raise AssertionError(f'"{source.name}" lacks definition or guide, and no rule has said so')
    fields = definition.to_dict()
    files = {name: sha256(data).hexdigest() for name, data in source.handler_files().items()}
    handler: dict[str, Any] = {"kind": source.kind, "files": files}
    if source.module_tool is not None:
        handler |= {"module": source.module_tool.module, "name": source.module_tool.name}
        if source.module_tool.services:
            handler["services"] = dict(source.module_tool.services)
    elif source.upstream is not None:
        handler |= {"server": source.upstream.server, "tool": source.upstream.tool, "pin": source.upstream.pin}
    else:
        handler |= {"folder": source.folder, "path": f"{source.folder}/handler.py"}
        if source.origin != PROJECT:
            handler["origin"] = source.origin
    digest = sha256(canonical({"definition": fields, "handler": handler})).hexdigest()
    entry = {name: value for name, value in fields.items() if name != "parameters"}
    entry |= {
        "jsonSchema": fields["parameters"],
        "summary": summary_of(source.guide)[0],
        "documentation": source.guide,
        "handler": handler,
        "hash": digest,
    }
    return entry


def _relative(path: Path, start: Path) -> str:
    """`path` as seen from `start`, with forward slashes; artifacts hold no absolute path."""
    return Path(os.path.relpath(path.resolve(), start.resolve())).as_posix()

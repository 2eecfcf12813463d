"""Findings: what the build has to say about a tool, each with the rule it comes from, its place, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from handrail.authoring.source import ToolSource
from handrail.contract.hidden_characters import escaped
from handrail.providers import Adapted, Loss, adapt

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem. `place` is a JSON pointer in a JSON file, `line N` in any other, or empty for the whole file."""

    rule: str
    severity: Severity
    tool: str
    file: str
    place: str
    message: str
    fix: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        where = f"{self.file}:{self.place}" if self.place else self.file
        # Names and values of foreign files must not look like lines of ours.
        where, message, fix = map(escaped, (where, self.message, self.fix))
        return f"{self.severity} [{self.rule}] {where}\n    {message}\n    {fix}"


@dataclass(frozen=True, slots=True)
class Spot:
    """What a rule yields: where in the tool, what is wrong, how to mend it."""

    file: str
    place: str
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tools of one build, for the rules that look beyond a single one."""

    sources: tuple[ToolSource, ...]
    by_id: dict[str, list[ToolSource]]
    voice_turn_ms: int = 1500
    providers: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """The roles that the project has; none: whatever the tools name."""
    _adapted: dict[int, Mapping[str, Adapted]] = field(default_factory=dict, repr=False, compare=False)

    def adapted(self, source: ToolSource) -> Mapping[str, Adapted]:
        """The tool in every provider's format, worked out once; its definition must be right."""
        if id(source) not in self._adapted:
            assert source.definition is not None
            self._adapted[id(source)] = {name: adapt(source.definition, name) for name in self.providers}
        return self._adapted[id(source)]


class LostKeyword(NamedTuple):
    """A keyword that a provider's format cannot express as it is, and what was done instead. In the order of sorting."""

    tool: str
    place: str
    keyword: str
    provider: str
    done: str
    minor: bool

    @classmethod
    def of(cls, tool: str, provider: str, loss: Loss) -> LostKeyword:
        return cls(tool, f"/parameters{loss.pointer}", loss.keyword, provider, loss.done, loss.minor)

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


Check = Callable[[ToolSource, Catalogue], Iterable[Spot]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A lint rule: a stable name, what it promises in one sentence, and the check."""

    name: str
    promise: str
    check: Check
    severity: Severity = "error"
    upstream: bool = False
    """Whether it is about tools of MCP servers too, whose words the project can take or leave, but not mend."""

    def findings(self, source: ToolSource, catalogue: Catalogue) -> Iterator[Finding]:
        for spot in self.check(source, catalogue):
            place, message = _placed(spot, source)
            yield Finding(
                rule=self.name,
                severity=self.severity,
                tool=source.name,
                file=source.file(spot.file),
                place=place,
                message=message,
                fix=spot.fix,
            )


def _placed(spot: Spot, source: ToolSource) -> tuple[str, str]:
    """Place and message. A decorated tool has no schema.json to point into: its place is its line in the module."""
    if source.module_tool is None:
        return spot.place, spot.message
    return f"line {source.module_tool.line}", f"{spot.place}: {spot.message}" if spot.place else spot.message

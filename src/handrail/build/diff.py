"""What changed between two builds, and for whom: `handrail diff OLD NEW` shows it, `handrail build --against OLD` fails
on what breaks callers without a major version. A change is *breaking* if some call that was answered before is refused,
held, cut or answered differently, or if a promise that callers or hosts rely on is given up; *widening* if all of that
stays and more is possible; *neutral* otherwise. What cannot be proven harmless counts as breaking and says so.
Arguments must keep everything that was valid; results are read the other way round, and must not surprise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from handrail.build.schema_diff import Difference, compare_schemas
from handrail.build.schema_keywords import text
from handrail.contract.definition import RateLimit, ToolDefinition
from handrail.contract.fields import SEMVER
from handrail.registry.artifact import versioned_name
from handrail.registry.version_rules import precedence
from handrail.schema.pointer import pointer

Kind = Literal["breaking", "widening", "neutral"]
DEPRECATED = "deprecated"
"""The tag by which a tool announces that it will be removed."""

_ORDER: tuple[Kind, ...] = ("breaking", "widening", "neutral")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one tool. `place` is a JSON pointer into its schema.json, empty for the tool as a whole."""

    tool: str
    kind: Kind
    place: str
    message: str

    def to_dict(self) -> dict[str, str]:
        return {"tool": self.tool, "kind": self.kind, "place": self.place, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDiff:
    """The changes of a tool that is there before and after; breaking ones first."""

    tool: str
    old_version: str
    new_version: str
    changes: tuple[Change, ...]

    @property
    def breaking(self) -> list[Change]:
        return [change for change in self.changes if change.kind == "breaking"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "oldVersion": self.old_version,
            "newVersion": self.new_version,
            "changes": [change.to_dict() for change in self.changes],
        }

    def render(self) -> str:
        versions = self.old_version + (f" → {self.new_version}" if self.new_version != self.old_version else "")
        return _paragraph(f"{self.tool} ({versions})", self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryDiff:
    """The difference between two registries, tools by name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    tools: tuple[ToolDiff, ...] = ()

    @property
    def changed(self) -> list[Change]:
        """Every change of the tools that are in both."""
        return [change for tool in self.tools for change in tool.changes]

    @property
    def breaking(self) -> list[Change]:
        """Every change that breaks callers, a removed tool among them."""
        return [_removal(tool) for tool in self.removed] + [change for tool in self.tools for change in tool.breaking]

    def to_dict(self) -> dict[str, Any]:
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": [tool.to_dict() for tool in self.tools],
            "breaking": len(self.breaking),
        }

    def render(self) -> str:
        """The difference for people, a paragraph per tool and a line to sum up."""
        if not (self.added or self.removed or self.tools):
            return "No differences."
        parts = [_paragraph(tool, [_removal(tool)]) for tool in self.removed]
        parts += [_paragraph(tool, [_addition(tool)]) for tool in self.added]
        parts += [tool.render() for tool in self.tools]
        counts = f"{len(self.added)} added, {len(self.removed)} removed, {len(self.tools)} changed"
        number = len(self.breaking)
        return "\n\n".join([*parts, f"{counts}; {number or 'no'} breaking change{'' if number == 1 else 's'}."])


def paired_entries(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """The entries of two artifacts by name, so that what belongs together has one name. A version of a tool with several is
    compared with the same version, else with the next higher one that whoever used it will get."""
    before, after = _by_tool(old), _by_tool(new)
    named: tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]] = ({}, {})
    for tool in before.keys() | after.keys():
        was, now = before.get(tool, {}), after.get(tool, {})
        several = len(was) > 1 or len(now) > 1
        met = set()
        for version, entry in was.items():
            name = versioned_name(tool, version) if several else tool
            named[0][name] = entry
            if now:
                higher = [one for one in now if precedence(one) >= precedence(version)]
                fitting = (
                    version if version in now else min(higher, key=precedence) if higher else max(now, key=precedence)
                )
                named[1][name] = now[fitting]
                met.add(fitting)
        for version, entry in now.items():
            if version not in met:
                named[1][versioned_name(tool, version) if several else tool] = entry
    return named


def _by_tool(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in entries:
        found.setdefault(entry["toolId"], {})[entry["version"]] = entry
    return found


def diff_registries(old: Mapping[str, ToolDefinition], new: Mapping[str, ToolDefinition]) -> RegistryDiff:
    """What happened to each tool."""
    diffs = []
    for name in sorted(old.keys() & new.keys()):
        changes = diff_definitions(old[name], new[name])
        if changes:
            versions = {"old_version": old[name].version, "new_version": new[name].version}
            diffs.append(ToolDiff(tool=name, changes=tuple(changes), **versions))
    return RegistryDiff(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        tools=tuple(diffs),
    )


def diff_definitions(old: ToolDefinition, new: ToolDefinition) -> list[Change]:
    """Every change from one definition to the other, breaking ones first; none if and only if they are equal."""
    found = [*_arguments(old, new), *_results(old, new)]
    for compare in _POLICIES:
        found += compare(old, new)
    changes = [Change(tool=old.tool_id, kind=kind, place=place, message=message) for kind, place, message in found]
    return sorted(changes, key=lambda change: _ORDER.index(change.kind))


def unbumped(diff: RegistryDiff, old: Mapping[str, ToolDefinition], new: Mapping[str, ToolDefinition]) -> list[Change]:
    """The breaking changes that no major version announces.

    Below 1.0.0 a minor version counts as major. A removed tool has no version left to raise, so its removal is to be
    announced in the build before: it is listed here unless its old definition carries the tag `deprecated`.
    """
    removals = [
        replace(
            _removal(tool), message=f'This tool was removed without being tagged "{DEPRECATED}" in the build before.'
        )
        for tool in diff.removed
        if DEPRECATED not in old[tool].tags
    ]
    return removals + [
        change
        for tool in diff.tools
        if not _is_major(old[tool.tool].version, new[tool.tool].version)
        for change in tool.breaking
    ]


def _removal(tool: str) -> Change:
    return Change(tool=tool, kind="breaking", place="", message="This tool was removed.")


def _addition(tool: str) -> Change:
    return Change(tool=tool, kind="widening", place="", message="This tool is new.")


def _paragraph(title: str, changes: Sequence[Change]) -> str:
    lines = [title]
    for change in changes:
        lines += [f"  {change.kind:<10}{change.place}".rstrip(), f"            {change.message}"]
    return "\n".join(lines)


def _is_major(old: str, new: str) -> bool:
    before, after = re.match(SEMVER, old), re.match(SEMVER, new)
    if before is None or after is None:
        return False
    (old_major, old_minor), (new_major, new_minor) = (tuple(map(int, found.group(1, 2))) for found in (before, after))
    return new_major > old_major or (new_major == old_major == 0 and new_minor > old_minor)


# ------------------------------------------------------------------------------------------ arguments and results
Found = tuple[Kind, str, str]
"""Kind, place and message of a change."""


def _arguments(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    for difference in compare_schemas(old.parameters, new.parameters):
        # A default that changed, came or went leaves every call valid, and those who rely on it get another answer.
        safe = difference.old_in_new and difference.event != "default"
        kind: Kind = "breaking" if not safe else "neutral" if difference.new_in_old else "widening"
        doubt = "it could not be proven that everything valid before still is"
        yield kind, "/parameters" + difference.place, _with_doubt(difference, kind, doubt)


def _results(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    if old.output_schema is None or new.output_schema is None:
        if old.output_schema is not None:
            yield "breaking", "/outputSchema", "The shape of the result is no longer promised."
        elif new.output_schema is not None:
            yield "neutral", "/outputSchema", "The shape of the result is promised now."
        return
    for difference in compare_schemas(old.output_schema, new.output_schema, subject="the result"):
        kind = _result_kind(difference)
        doubt = "it could not be proven that every result still has the shape promised before"
        yield kind, "/outputSchema" + difference.place, _with_doubt(difference, kind, doubt)


def _result_kind(difference: Difference) -> Kind:
    if difference.event == "field removed":
        return "breaking"
    # Whoever reads a result passes over fields that it does not know.
    if difference.event == "field added":
        return "widening"
    return "neutral" if difference.new_in_old else "breaking"


def _with_doubt(difference: Difference, kind: Kind, doubt: str) -> str:
    return difference.message if difference.proven or kind != "breaking" else f"{difference.message[:-1]}; {doubt}."


# ---------------------------------------------------------------------------------------------------------- policy
Compare = Callable[[ToolDefinition, ToolDefinition], Iterator[Found]]


def _went(field: str, old: Any, new: Any, why: str = "") -> str:
    told = ["none" if value in (None, ()) else text(value) for value in (old, new)]
    return f'"{field}" went from {told[0]} to {told[1]}{why and ": " + why}.'


def _steps(attribute: str, place: str, loosest_first: Sequence[Any], why: str) -> Compare:
    """A field whose values have an order: a step to the right is breaking, one to the left widening."""

    def compare(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after:
            worse = loosest_first.index(after) > loosest_first.index(before)
            kind: Kind = "breaking" if worse else "widening"
            yield kind, place, _went(place.rsplit("/", 1)[-1], before, after, why if worse else "")

    return compare


def _limit(attribute: str, place: str, why: str) -> Compare:
    """A greatest number: less of it, or any where there was none, is breaking."""

    def compare(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after:
            worse = after is not None and (before is None or after < before)
            yield "breaking" if worse else "widening", place, _went(place[1:], before, after, why if worse else "")

    return compare


def _neutral(attribute: str, place: str) -> Compare:
    def compare(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
        if getattr(old, attribute) != getattr(new, attribute):
            yield "neutral", place, _went(place[1:], getattr(old, attribute), getattr(new, attribute))

    return compare


def _renamed(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    if old.tool_id != new.tool_id:
        yield "breaking", "/toolId", _went("toolId", old.tool_id, new.tool_id, "calls by the old name find no tool")


def _category(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    if old.category != new.category:
        # The turn's budget for retrieval, and the rule about empty results, are for retrieval only.
        freed: Kind = "widening" if old.category == "retrieval" else "neutral"
        kind, why = freed, ""
        if new.category == "retrieval":
            kind, why = "breaking", "calls now count against the turn's retrieval budget"
        yield kind, "/category", _went("category", old.category, new.category, why)


def _condition(attribute: str, place: str, why: str) -> Compare:
    """A CEL condition that stands in a caller's way; which of two conditions is the stricter is not known."""

    def compare(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after:
            doubt = f"it could not be proven that no more calls {why}"
            reason = f"more calls {why}" if before is None else doubt
            kind: Kind = "widening" if after is None else "breaking"
            yield kind, place, _went(place[1:].replace("/", "."), before, after, reason if after is not None else "")

    return compare


_asked_always = _steps(
    "requires_confirmation", "/requiresConfirmation", (False, True), "calls that ran at once now wait for a person"
)
_asked_when = _condition("confirmation_when", "/confirmation/when", "wait for a person")


def _confirmation(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    yield from _asked_always(old, new)
    # A condition decides nothing where every call waits.
    moot = old.requires_confirmation or new.requires_confirmation
    for kind, place, message in _asked_when(old, new):
        yield "neutral" if moot else kind, place, message


def _modes(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    before, after, place = old.allowed_modes, new.allowed_modes, "/allowedModes"
    for mode in before:
        if mode not in after:
            yield "breaking", place, f'The mode "{mode}" is no longer allowed.'
    for mode in after:
        if mode not in before:
            yield "widening", place, f'The mode "{mode}" is allowed now.'
    yield from _reordered(place, before, after)


def _capabilities(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    before, after, place = old.capabilities, new.capabilities, "/capabilities"
    for name in after:
        if name not in before:
            yield "breaking", place, f'The capability "{name}" is needed now: a host without it does not start.'
    for name in before:
        if name not in after:
            yield "widening", place, f'The capability "{name}" is no longer needed.'
    yield from _reordered(place, before, after)


def _roles(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    before, after, place = old.roles, new.roles, "/permissions/roles"
    if set(before) != set(after):
        fits = not after or (bool(before) and set(before) <= set(after))
        why = "" if fits else "users without one of these roles no longer find the tool"
        yield "widening" if fits else "breaking", place, _went("roles", before, after, why)
    elif before != after:
        yield "neutral", place, '"roles" names the same in another order.'


def _reordered(place: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Found]:
    if before != after and set(before) == set(after):
        yield "neutral", place, f'"{place[1:]}" names the same in another order.'


def _rate_limit(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    before, after = old.rate_limit, new.rate_limit
    if before != after:
        fits = after is None or (before is not None and _is_within(before, after))
        why = "" if fits else "calls that were let through may be refused"
        told = [limit and f"{limit.calls} in {limit.window_ms} ms per {limit.scope}" for limit in (before, after)]
        yield "widening" if fits else "breaking", "/rateLimit", _went("rateLimit", told[0], told[1], why)


def _is_within(inner: RateLimit, outer: RateLimit) -> bool:
    """Whether callers who keep to one limit keep to the other."""
    if outer.scope == "user" and inner.scope == "session":
        return False
    return outer.calls >= inner.calls * ceil(outer.window_ms / inner.window_ms)


def _clamp(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    for mode in sorted(old.clamp.keys() | new.clamp.keys()):
        before, after = old.clamp.get(mode, {}), new.clamp.get(mode, {})
        for name in sorted(before.keys() | after.keys()):
            have, want = before.get(name), after.get(name)
            if have == want:
                continue
            # A clamp bites only callers who could call in that mode and with that argument.
            moot = mode not in old.allowed_modes or name not in old.parameters.get("properties", {})
            looser, tighter = _is_looser(have, want), _is_looser(want, have)
            kind: Kind = "neutral" if moot or (looser and tighter) else "widening" if looser else "breaking"
            field = f"clamp.{mode}.{name}"
            why = "values that were kept are now cut" if kind == "breaking" else ""
            yield kind, "/clamp" + pointer([mode, name]), _went(field, have, want, why)


def _is_looser(have: Any, want: Any) -> bool:
    if want is None or have is None:
        return want is None
    if isinstance(have, tuple) and isinstance(want, tuple):
        return all(value in want for value in have)
    return not isinstance(have, tuple) and not isinstance(want, tuple) and bool(have <= want)


def _dedupe(old: ToolDefinition, new: ToolDefinition) -> Iterator[Found]:
    before, after = old.dedupe_fields, new.dedupe_fields
    if before != after:
        # Fewer fields answer calls from a record that used to run; more run calls that used to be answered.
        counts = set(before) != set(after) and (old.writes or new.writes)
        why = "other calls than before count as the same call" if counts else ""
        yield "breaking" if counts else "neutral", "/dedupeFields", _went("dedupeFields", before, after, why)


_POLICIES: tuple[Compare, ...] = (
    _renamed,
    _neutral("version", "/version"),
    _neutral("description", "/description"),
    _category,
    _steps(
        "side_effects", "/sideEffects", ("none", "read_only", "writes"), "a call does more to the world than before"
    ),
    _steps("idempotent", "/idempotent", (True, False), "a call can no longer be repeated safely"),
    _confirmation,
    _steps("confirmation_channel", "/confirmation/channel", ("any", "screen"), "a call cannot be approved by voice"),
    _modes,
    _neutral("latency_budget_ms", "/latencyBudgetMs"),
    _limit("timeout_ms", "/timeoutMs", "calls that took longer are ended now"),
    _limit("max_output_bytes", "/maxOutputBytes", "results that were larger are cut now"),
    _capabilities,
    _neutral("tags", "/tags"),
    _neutral("always_offer", "/alwaysOffer"),
    _rate_limit,
    _steps("requires_auth", "/permissions/requiresAuth", (False, True), "callers who are not signed in are refused"),
    _roles,
    _condition("availability_condition", "/availability/condition", "are refused"),
    _clamp,
    _dedupe,
    _neutral("preview", "/preview"),
    _steps("on_interrupt", "/onInterrupt", ("finish", "cancel"), "calls that were finished are cancelled"),
    _neutral("strict", "/strict"),
    _neutral("waivers", "/waivers"),
    _steps("no_schema_mode", "/noSchemaMode", (None, "confirm", "refuse"), "calls that ran are held or refused"),
)

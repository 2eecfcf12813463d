"""What one host changes in its tools without touching their folders: `[policy.tools.NAME]` in `handrail.toml`.

Applied when an artifact is loaded, so that everything behind it sees one definition. What changes is part of the tool's hash and
of the registry's version. To ask for more than the author did is free; to ask for less needs a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import sha256
from typing import Any

from handrail.contract.errors import ConfigError, SchemaError
from handrail.contract.fields import FIELDS, ROLE, FieldKind, ListOf, RecordField, Text
from handrail.registry.artifact import Artifact
from handrail.registry.version_rules import VersionRules
from handrail.schema.condition import compile_condition, unknown_fields
from handrail.schema.strict_json import canonical

EVERYBODY = "*"
_KINDS = {one.name: one.kind for one in FIELDS}


def _member(name: str, inner: str) -> FieldKind:
    kind = _KINDS[name]
    assert isinstance(kind, RecordField)
    return next(member.kind for member in kind.members if member.name == inner)


_SETTINGS: Mapping[str, FieldKind] = {
    "modes": _KINDS["allowedModes"],
    "requires_confirmation": _KINDS["requiresConfirmation"],
    "confirmation_when": _member("confirmation", "when"),
    "confirmation_channel": _member("confirmation", "channel"),
    "rate_limit": _KINDS["rateLimit"],
    "timeout_ms": _KINDS["timeoutMs"],
    "latency_budget_ms": _KINDS["latencyBudgetMs"],
    "max_output_bytes": _KINDS["maxOutputBytes"],
    "requires_auth": _member("permissions", "requiresAuth"),
    "roles": ListOf(Text(rf"{ROLE}|^\*$", 'the name of a role, or "*" for everybody'), non_empty=True),
}
"""What may be set, and the kind of its values: that of the field in `schema.json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """What a host sets for one tool."""

    tool: str
    settings: Mapping[str, Any]
    reason: str = ""
    """Why the host asks for less than the author."""

    @classmethod
    def from_dict(cls, tool: str, table: Any) -> ToolPolicy:
        """`ConfigError` with one sentence if the table cannot be used."""
        where = f"[policy.tools.{tool}]"
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where} must be a table.")
        known = [*_SETTINGS, "reason"]
        settings: dict[str, Any] = {}
        for name, value in table.items():
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}."
                raise ConfigError(f'{where} has no "{name}"{hint}')
            if name == "reason":
                continue
            if name == "rate_limit" and isinstance(value, Mapping):
                value = {"windowMs" if key == "window_ms" else key: item for key, item in value.items()}
            for place, trouble in _SETTINGS[name].troubles(value):
                raise ConfigError(f'"{name}{place.replace("windowMs", "window_ms")}" in {where} {trouble}.')
            settings[name] = value
        reason = table.get("reason", "")
        if not isinstance(reason, str):
            raise ConfigError(f'"reason" in {where} must be text; {reason!r} is not.')
        return cls(tool=tool, settings=settings, reason=reason.strip())

    def applied(self, entry: Mapping[str, Any], default_timeout_ms: int) -> dict[str, Any]:
        """The entry of the tool as it is on this host; `ConfigError` if that is looser and no reason is given."""
        loosened = [name for name in self.settings if self._is_loosened(name, entry, default_timeout_ms)]
        if loosened and not self.reason:
            raise ConfigError(
                f'"{loosened[0]}" in [policy.tools.{self.tool}] allows more than the tool\'s author does; '
                'give a `reason = "…"`, or leave it out.'
            )
        made = self._changed(entry)
        changes = {name: value for name, value in made.items() if entry.get(name) != value}
        gone = sorted(name for name in entry if name not in made)
        if not changes and not gone:
            return dict(entry)
        digest = sha256(canonical({"tool": entry["hash"], "host": changes, "without": gone})).hexdigest()
        return {**made, "hash": digest}

    def _changed(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        made, given = dict(entry), self.settings
        plain = {
            "modes": "allowedModes",
            "requires_confirmation": "requiresConfirmation",
            "rate_limit": "rateLimit",
            "timeout_ms": "timeoutMs",
            "latency_budget_ms": "latencyBudgetMs",
            "max_output_bytes": "maxOutputBytes",
        }
        made |= {plain[name]: value for name, value in given.items() if name in plain}
        confirmation = dict(entry.get("confirmation") or {})
        if "confirmation_channel" in given:
            confirmation["channel"] = given["confirmation_channel"]
        if "confirmation_when" in given:
            own = confirmation.get("when")
            confirmation["when"] = f"({own}) || ({given['confirmation_when']})" if own else given["confirmation_when"]
        permissions = dict(entry.get("permissions") or {})
        if "requires_auth" in given:
            permissions["requiresAuth"] = given["requires_auth"]
        if "roles" in given:
            permissions["roles"] = [] if EVERYBODY in given["roles"] else sorted(given["roles"])
        for name, value in (("confirmation", confirmation), ("permissions", permissions)):
            if value:
                made[name] = value
        return made

    def _is_loosened(self, name: str, entry: Mapping[str, Any], default_timeout_ms: int) -> bool:
        value, permissions = self.settings[name], entry.get("permissions") or {}
        if name == "modes":
            return not set(value) <= set(entry["allowedModes"])
        if name == "requires_confirmation":
            return bool(entry["requiresConfirmation"]) and not value
        if name == "confirmation_channel":
            return (entry.get("confirmation") or {}).get("channel") == "screen" and value == "any"
        if name == "requires_auth":
            return bool(permissions.get("requiresAuth")) and not value
        if name == "roles":
            own = permissions.get("roles", ())
            return bool(own) and (EVERYBODY in value or not set(value) <= set(own))
        if name == "rate_limit":
            return _is_looser_limit(entry.get("rateLimit"), value)
        if name == "timeout_ms":
            return bool(value > entry.get("timeoutMs", default_timeout_ms))
        if name == "latency_budget_ms":
            return bool(value > entry["latencyBudgetMs"])
        if name == "max_output_bytes":
            return bool(value > entry.get("maxOutputBytes", value))
        return False  # a condition for confirmation only adds to the author's


def _is_looser_limit(own: Mapping[str, Any] | None, value: Mapping[str, Any]) -> bool:
    """Whether a limit lets something pass that the author's does not; a user's limit covers all of their sessions."""
    if own is None:
        return False
    wider = own["scope"] == "user" and value["scope"] == "session"
    return wider or bool(value["calls"] > own["calls"] or value["windowMs"] < own["windowMs"])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """What a host says about the tools of an artifact before it is used."""

    tools: Mapping[str, ToolPolicy] = field(default_factory=dict)
    versions: Mapping[str, VersionRules] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()
    """The roles that there are; none: those that the tools name."""
    timeout_ms: int = 30_000
    """The hard limit of tools that set none themselves."""

    def applied(self, artifact: Artifact) -> Artifact:
        """The artifact as it is on this host; `ConfigError` with one sentence if the two do not fit, and nothing has changed."""
        if not (self.tools or self.roles):
            return artifact
        entries = self.entries(artifact.entries)
        changed = {
            f"{new['toolId']}@{new['version']}": new["hash"]
            for old, new in zip(artifact.entries, entries, strict=True)
            if old["hash"] != new["hash"]
        }
        if not changed:
            return artifact
        content = {"artifact": artifact.version, "host": changed}
        version = "1.0." + sha256(canonical(content)).hexdigest()[:8]
        return replace(artifact, entries=entries, version=version)

    def entries(self, entries: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The entries of an artifact as they are on this host; `ConfigError` as in `applied`."""
        self._check_names(entries)
        return tuple(
            self.tools[entry["toolId"]].applied(entry, self.timeout_ms) if entry["toolId"] in self.tools else entry
            for entry in entries
        )

    def _check_names(self, entries: Sequence[Mapping[str, Any]]) -> None:
        names: set[str] = set()
        needed: dict[str, str] = {}
        for entry in entries:
            names.add(entry["toolId"])
            for role in (entry.get("permissions") or {}).get("roles", ()):
                needed.setdefault(role, f'the tool "{entry["toolId"]}"')
        known = sorted(self.roles or needed)
        for name, policy in self.tools.items():
            if name not in names:
                near = get_close_matches(name, sorted(names), n=1)
                hint = f'; did you mean "{near[0]}"?' if near else "."
                raise ConfigError(f'[policy.tools.{name}] is for a tool "{name}", which there is not{hint}')
            for role in policy.settings.get("roles", ()):
                if role != EVERYBODY:
                    needed.setdefault(role, f"[policy.tools.{name}]")
            _check_condition(policy, next(entry for entry in entries if entry["toolId"] == name))
        for role, where in needed.items():
            if role not in known:
                raise ConfigError(unknown_role(role, known, where))


def _check_condition(policy: ToolPolicy, entry: Mapping[str, Any]) -> None:
    text = policy.settings.get("confirmation_when")
    if text is None:
        return
    try:
        compile_condition(text, ("mode", "user", "session", "args"))
    except SchemaError as error:
        raise ConfigError(f'"confirmation_when" in [policy.tools.{policy.tool}]: {error.message}') from None
    schema = entry["jsonSchema"]
    arguments = schema.get("properties", {}) if schema.get("additionalProperties") is False else None
    for name, hint in unknown_fields(text, arguments):
        raise ConfigError(
            f'"confirmation_when" in [policy.tools.{policy.tool}] asks for "{name}", which there is not. {hint}'
        )


def roles_of_entries(entries: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The roles that tools name."""
    return frozenset(role for entry in entries for role in (entry.get("permissions") or {}).get("roles", ()))


def unknown_role(role: str, known: Iterable[str], where: str = "") -> str:
    """The sentence for a role that does not exist."""
    listed = sorted(known)
    near = get_close_matches(role, listed, n=1)
    named = f'There is no role "{role}"' + (f", which {where} names" if where else "")
    if near:
        return f'{named}; did you mean "{near[0]}"?'
    return f"{named}; `roles` in [access] lists {', '.join(listed)}." if listed else f"{named}; list it in [access]."


NO_HOST_POLICY = HostPolicy()

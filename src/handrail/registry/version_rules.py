"""Which version of a tool a session uses, where there are several: `[versions.NAME]` in `handrail.toml`.

A rule names a version and for whom it is: tenants, organisations, users, or a share of sessions. The most particular wins: a
user's rule before an organisation's, that before a tenant's, that before one for all; then the default. A share is drawn from
the session's id, so every process draws the same, and the session stores what was drawn.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from typing import Any

from handrail.contract.errors import ConfigError
from handrail.contract.fields import SEMVER

_SCOPES = ("users", "organisations", "tenants")
"""The most particular first."""
_SINGULAR = {"users": "user", "organisations": "organisation", "tenants": "tenant"}
_KNOWN = ("version", *_SCOPES, "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRule:
    """One line of `rules`. A rule that names nobody is for all."""

    version: str
    scope: str = ""
    names: tuple[str, ...] = ()
    share: float = 100.0
    """Of the sessions that it is for, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """How the version of one tool is chosen."""

    tool: str
    rules: tuple[VersionRule, ...] = ()
    default: str = ""
    """For sessions that no rule chooses for; empty means the highest version."""

    @classmethod
    def from_dict(cls, tool: str, table: Any) -> VersionRules:
        """`ConfigError` with one sentence if the table cannot be used."""
        where = f"[versions.{tool}]"
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where} must be a table.")
        _refuse_unknown(where, table, ("default", "rules"))
        default, given = table.get("default", ""), table.get("rules", [])
        if not isinstance(default, str):
            raise ConfigError(f'"default" in {where} must be a version in quotes, such as "1"; {default!r} is not.')
        if not isinstance(given, list):
            raise ConfigError(f'"rules" in {where} must be a list of tables.')
        rules = tuple(_rule(f"rule {number} of {where}", one) for number, one in enumerate(given, 1))
        _check_cover(where, rules)
        return cls(tool=tool, rules=rules, default=default)

    def resolved(self, versions: Iterable[str]) -> VersionRules:
        """The same rules with whole versions; `ConfigError` if one names none, or more than one, of those that there are."""
        known = sorted(versions, key=precedence)
        rules = tuple(
            VersionRule(version=self._whole(rule.version, known), scope=rule.scope, names=rule.names, share=rule.share)
            for rule in self.rules
        )
        default = self._whole(self.default, known) if self.default else known[-1]
        return VersionRules(tool=self.tool, rules=rules, default=default)

    def _whole(self, version: str, known: list[str]) -> str:
        found = [one for one in known if is_version(version, one)]
        if len(found) == 1:
            return found[0]
        listed = ", ".join(known)
        if not found:
            raise ConfigError(
                f'[versions.{self.tool}] names version "{version}", which "{self.tool}" does not have; it has {listed}.'
            )
        raise ConfigError(f'[versions.{self.tool}] names version "{version}", which may be {" or ".join(found)}.')

    def choose(self, session_id: str, tenant: str, organisation: str, user: str | None) -> str:
        """The version of a session; for resolved rules."""
        asked = {"users": user, "organisations": organisation or None, "tenants": tenant or None}
        for scope in (*_SCOPES, ""):
            start, point = 0.0, _point(self.tool, scope, session_id)
            for rule in self.rules:
                if rule.scope != scope or (scope and asked[scope] not in rule.names):
                    continue
                if start <= point < start + rule.share:
                    return rule.version
                start += rule.share
        return self.default


def check_rules(rules: Mapping[str, VersionRules], versions: Mapping[str, Collection[str]]) -> None:
    """`ConfigError` if a rule is for a tool that there is not, or names a version that its tool does not have."""
    for name, one in rules.items():
        if name not in versions:
            near = get_close_matches(name, list(versions), n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "."
            raise ConfigError(f'[versions.{name}] is for a tool "{name}", which there is not{hint}')
        one.resolved(versions[name])


def _rule(where: str, table: Any) -> VersionRule:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where[0].upper()}{where[1:]} must be a table.")
    _refuse_unknown(where, table, _KNOWN)
    version = table.get("version")
    if not isinstance(version, str) or not version:
        raise ConfigError(f'"version" in {where} must be a version in quotes, such as "2"; {version!r} is not.')
    scopes = [scope for scope in _SCOPES if scope in table]
    if len(scopes) > 1:
        raise ConfigError(f'"{scopes[0]}" and "{scopes[1]}" in {where} cannot stand together; write two rules.')
    if not scopes and "share" not in table:
        raise ConfigError(f"{where[0].upper()}{where[1:]} says for whom it is by none of {', '.join(_KNOWN[1:])}.")
    share = table.get("share", 100)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 100:
        raise ConfigError(f'"share" in {where} must be a number of percent between 0 and 100; {share!r} is not.')
    scope = scopes[0] if scopes else ""
    names = table.get(scope, ()) if scope else ()
    if scope and (not isinstance(names, list) or not names or not all(isinstance(one, str) and one for one in names)):
        raise ConfigError(f'"{scope}" in {where} must be a list of names; {names!r} is not.')
    return VersionRule(version=version, scope=scope, names=tuple(names), share=float(share))


def _check_cover(where: str, rules: tuple[VersionRule, ...]) -> None:
    """Rules for the same people share them: together they cover no more than all of them."""
    covered: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for number, rule in enumerate(rules, 1):
        for name in dict.fromkeys(rule.names) or ("",):
            covered.setdefault((rule.scope, name), []).append((number, rule.share))
    for (scope, name), parts in covered.items():
        total = sum(share for _, share in parts)
        if total <= 100 + 1e-9:
            continue
        whom = f'{_SINGULAR[scope]} "{name}"' if scope else "all sessions"
        if len(parts) > 1 and all(share == 100 for _, share in parts):
            first, second = parts[0][0], parts[1][0]
            raise ConfigError(f"Rules {first} and {second} of {where} overlap: both choose for {whom}.")
        raise ConfigError(f"The rules of {where} cover {total:g} % of {whom}; 100 % is all there is.")


def _refuse_unknown(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}."
            raise ConfigError(f'{where[0].upper()}{where[1:]} has no "{name}"{hint}')


def is_version(label: str, version: str) -> bool:
    """Whether a label such as `2`, `2.1` or `2.1.0` means this version."""
    return version == label or version.startswith((f"{label}.", f"{label}-", f"{label}+"))


def precedence(version: str) -> tuple[object, ...]:
    """Orders semantic versions; a pre-release comes before its release."""
    found = re.match(SEMVER, version)
    if found is None:
        return (0, 0, 0, 0, (), version)
    parts = [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in (found[4] or "")[1:].split(".") if part
    ]
    return (*(int(found[place]) for place in (1, 2, 3)), 0 if parts else 1, tuple(parts), version)


def _point(tool: str, scope: str, session_id: str) -> float:
    """A number from 0 to 100 for a session: evenly spread, and another for each tool and scope. So those whom a rule for some
    leaves over are all points of a rule for all."""
    digest = sha256("\0".join(part for part in (tool, scope, session_id) if part).encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56) * 100

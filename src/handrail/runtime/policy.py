"""Policy as data: budgets, limits, times and switches, checked when it is made. `handrail.toml` and sessions give it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from handrail.contract.errors import ConfigError


class GateName(StrEnum):
    """The gates and steps of Handrail's own that refuse. A gate of the host has a name of its host's."""

    FIND = "find"
    PARSE = "parse"
    REPLAY = "replay"
    SESSION = "session"
    MODE = "mode"
    AVAILABILITY = "availability"
    VALIDATE = "validate"
    RATE = "rate"
    LOOP = "loop"
    BUDGET = "budget"
    CONFIRMATION = "confirmation"
    LEDGER = "ledger"
    INTERRUPT = "interrupt"
    HANDLER = "handler"


OBSERVABLE = (
    GateName.SESSION,
    GateName.MODE,
    GateName.AVAILABILITY,
    GateName.RATE,
    GateName.LOOP,
    GateName.BUDGET,
)
"""The gates that may be set to observe: they log what they would have refused. Never confirmation, validation or ledger."""
RESERVED_GATES = frozenset({*GateName, "clamp", "key", "confirm", "claim", "store", "host"})
"""Names of gates and steps of Handrail's own, which no gate of the host may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePolicy:
    """What one turn may cost in a mode. None means no limit."""

    retrieval_calls: int | None
    total_calls: int | None
    turn_ms: int | None
    retrieval_ms: int
    wait_seconds: float
    """How long a duplicate waits for the first."""
    confirmation_seconds: int
    retries: int


_CHOICES = {
    "audit_arguments": ("erasable", "plain", "none"),
    "forget_blocks": ("keep", "drop"),
}
_LISTS = ("observe", "redact", "user_tools", "anonymous_tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that governs calls and is not a property of a tool."""

    text: ModePolicy = ModePolicy(
        retrieval_calls=5,
        total_calls=None,
        turn_ms=None,
        retrieval_ms=2000,
        wait_seconds=10.0,
        confirmation_seconds=300,
        retries=1,
    )
    voice: ModePolicy = ModePolicy(
        retrieval_calls=2,
        total_calls=3,
        turn_ms=1500,
        retrieval_ms=800,
        wait_seconds=2.0,
        confirmation_seconds=60,
        retries=0,
    )
    identical_calls: int = 3
    """The nth identical call in a turn is a loop; this is n."""
    empty_results: int = 2
    """After this number of empty results a retrieval tool is not called again in the turn."""
    refusals: int = 5
    """After this number of refusals in a turn, each further one is a loop."""
    timeout_ms: int = 30_000
    """The hard limit of tools that set none themselves."""
    lease_ms: int = 15_000
    workers: int = 16
    """Threads for plain functions."""
    replays: int = 100
    """How many results of tools that do not write are kept for replay, per session."""
    approver_wait_seconds: float = 2.0
    keep_results_days: int = 30
    """Results of writing calls are kept so long; that they ran stays recorded."""
    keep_calls_days: int = 30
    """Writing calls and turns of sessions that were closed are kept so long; of open ones always."""
    keep_statistics_days: int = 400
    """How tools were used is kept so long, by day."""
    repair: bool = False
    observe: frozenset[str] = frozenset()
    redact: tuple[str, ...] = ()
    audit_arguments: str = "erasable"
    """How what users say stands in the audit log: sealed, until they are forgotten (`erasable`); as it is (`plain`); or not at
    all (`none`)."""
    forget_blocks: str = "keep"
    """Whether a block outlives its forgotten user, under a hash of the name (`keep`), or goes too (`drop`)."""
    user_tools: tuple[str, ...] = ("*",)
    """The tools that a signed-in user may use; `*` stands for any letters, as in `kb_*`."""
    anonymous_tools: tuple[str, ...] = ("*",)
    """The same for a user who is not signed in."""

    def __post_init__(self) -> None:
        # Whether a name that is none of ours is a gate of the host, the runtime knows; see `check_observed`.
        self._refuse_observed((self.observe & RESERVED_GATES) - set(OBSERVABLE), OBSERVABLE)
        for item in fields(self):
            _check(item.name, getattr(self, item.name), item.default)
        for name in ("text", "voice"):
            for item in fields(ModePolicy):
                value = getattr(getattr(self, name), item.name)
                if value is not None and (
                    isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf")
                ):
                    raise ConfigError(
                        f'"{item.name}" of policy "{name}" must be a number that is not negative; {value!r} is not.'
                    )

    def check_observed(self, host_gates: Iterable[str]) -> None:
        """`ConfigError` if it sets a gate to observe that there is not."""
        possible = (*OBSERVABLE, *host_gates)
        self._refuse_observed(self.observe - set(possible), possible)

    @staticmethod
    def _refuse_observed(wrong: frozenset[str], possible: Sequence[str]) -> None:
        for name in sorted(wrong):
            raise ConfigError(f'The gate "{name}" cannot be set to observe; possible are {", ".join(possible)}.')

    def for_mode(self, mode: str) -> ModePolicy:
        return self.voice if mode == "voice" else self.text

    def tools_of(self, user: str | None) -> tuple[str, ...]:
        """The patterns of the tools that this user may use."""
        return self.anonymous_tools if user is None else self.user_tools

    def changes_from(self, base: Policy) -> dict[str, Any]:
        """What `from_dict` makes this policy of, over `base`: plain data that can be stored."""
        changes: dict[str, Any] = {}
        for item in fields(self):
            mine, other = getattr(self, item.name), getattr(base, item.name)
            if mine == other:
                continue
            if isinstance(mine, ModePolicy):
                # 0 is how a file says "no limit"; see `_mode`.
                names = [part.name for part in fields(mine)]
                changes[item.name] = {
                    name: getattr(mine, name) or 0 for name in names if getattr(mine, name) != getattr(other, name)
                }
            else:
                changes[item.name] = sorted(mine) if isinstance(mine, frozenset) else mine
        return changes

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], base: Policy | None = None) -> Policy:
        """A policy that differs from `base` in what `data` names; `ConfigError` for an unknown name or a wrong type."""
        start = base or cls()
        known = {item.name for item in fields(cls)}
        changes: dict[str, Any] = {}
        for name, value in data.items():
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                raise ConfigError(f'A policy has no "{name}"' + (f'; did you mean "{near[0]}"?' if near else "."))
            changes[name] = (
                _mode(name, value, getattr(start, name)) if name in ("text", "voice") else _checked_list(name, value)
            )
        return replace(start, **changes)


def _mode(name: str, value: Any, start: ModePolicy) -> ModePolicy:
    if isinstance(value, ModePolicy):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f'"{name}" in a policy must be a table; {value!r} is not.')
    known = {item.name for item in fields(ModePolicy)}
    for key in value:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            raise ConfigError(f'Policy "{name}" has no "{key}"' + (f'; did you mean "{near[0]}"?' if near else "."))
    # 0 means "no limit" in a file, where there is no null.
    limits = ("retrieval_calls", "total_calls", "turn_ms")
    changes: dict[str, Any] = {key: None if key in limits and item == 0 else item for key, item in value.items()}
    return replace(start, **changes)


def _checked_list(name: str, value: Any) -> Any:
    if name not in _LISTS:
        return value
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f'"{name}" in a policy must be a list of names; {value!r} is not.')
    return frozenset(value) if name == "observe" else tuple(value)


def _check(name: str, value: Any, default: Any) -> None:
    if isinstance(default, bool):
        good, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        good, wanted = (
            isinstance(value, int) and not isinstance(value, bool) and value > 0,
            "a whole number greater than 0",
        )
    elif isinstance(default, float):
        good, wanted = (
            isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"),
            "a number of seconds",
        )
    elif name in _CHOICES:
        good, wanted = value in _CHOICES[name], " or ".join(f'"{choice}"' for choice in _CHOICES[name])
    elif name in _LISTS and name != "observe":
        good, wanted = all(isinstance(item, str) for item in value), "a list of names"
    else:
        return
    if not good:
        raise ConfigError(f'"{name}" in a policy must be {wanted}; {value!r} is not.')

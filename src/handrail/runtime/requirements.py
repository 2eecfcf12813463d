"""What the tools of a registry need of their host: checked at the start, and before new tools are taken in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from handrail.contract.errors import UsageError
from handrail.runtime.services import Services, absent_capability


def check_capabilities(entries: Iterable[Mapping[str, Any]], capabilities: Iterable[str], services: Services) -> None:
    """A host that lacks what a tool needs fails at start, not at the first call."""
    given = (*capabilities, *services.names)
    for entry in entries:
        missing = [name for name in entry.get("capabilities", ()) if name not in given]
        if missing:
            raise UsageError(absent_capability(entry["toolId"], missing[0], {*given, *services.configured}))


def has_conditions(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some tool has a condition, whose engine takes most of a second to load."""
    return any("availability" in entry or "when" in entry.get("confirmation", {}) for entry in entries)

"""The gates in their order. Each has a name and, for every tool, a check; None where it could never refuse a call of that tool.

Adding one is a file here and a line below. What a host adds runs between steps 9 and 10; see `host.py`.
"""

from __future__ import annotations

from typing import Protocol

from handrail.contract.definition import ToolDefinition
from handrail.runtime.attempt import Check
from handrail.runtime.gates.availability import AvailabilityGate
from handrail.runtime.gates.budget import BudgetGate
from handrail.runtime.gates.loop import LoopGate
from handrail.runtime.gates.mode import ModeGate
from handrail.runtime.gates.rate import RateGate
from handrail.runtime.gates.session import SessionGate
from handrail.runtime.policy import Policy


class ToolGate(Protocol):
    """A gate of Handrail's own, compiled for each tool."""

    @property
    def name(self) -> str: ...

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check | None: ...


LOOP = LoopGate()
ADMISSION: tuple[ToolGate, ...] = (SessionGate(), ModeGate(), AvailabilityGate())
"""Steps 4 to 6: whether this session may call the tool now."""
LIMITS: tuple[ToolGate, ...] = (RateGate(), LOOP, BudgetGate())
"""Steps 10 to 12: what a call costs."""

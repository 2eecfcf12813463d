"""Which of the tools that a user may use are offered: those whose own conditions hold in the session.

Offers, prompts, guides and catalogues ask here. A call is judged by the gates, whose answer says why a tool is not available.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import SchemaError
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.policy import Policy
from handrail.schema.condition import Condition, compile_condition

if TYPE_CHECKING:
    from handrail.contract.definition import Mode
    from handrail.runtime.session import Session


def is_available(tool: LoadedTool, policy: Policy, facts: Mapping[str, Any]) -> bool:
    """Whether a tool can be called by the user, in the mode and the session that `facts` tell of."""
    if not tool.is_conditional:
        return True
    definition = tool.definition
    if definition.requires_auth and not facts["user"]["signedIn"] and "session" not in policy.observe:
        return False
    if "availability" in policy.observe:
        return True
    if definition.no_schema_mode == "refuse":
        return False
    text = definition.availability_condition
    try:
        return text is None or _compiled(text).holds(facts)
    except SchemaError:
        return False  # one that cannot be answered does not let anything pass


def hidden_tools(session: Session, mode: Mode | None = None) -> frozenset[str]:
    """The tools that are not offered in a session although its user may use them, by name. Worked out once for each mode."""
    wanted = mode or session.mode
    known = session.hidden.get(wanted)
    if known is None:
        facts = {**session.facts(), "mode": wanted} if session.snapshot.conditional else {}
        known = session.hidden[wanted] = frozenset(
            tool.tool_id for tool in session.snapshot.conditional if not is_available(tool, session.policy, facts)
        )
    return known


@lru_cache(maxsize=512)
def _compiled(text: str) -> Condition:
    return compile_condition(text, ("mode", "user", "session"))

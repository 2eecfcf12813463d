"""Step 4: the session is active, its connection current, the user not blocked, and signed in where the tool asks for it."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType
from handrail.runtime.attempt import Attempt, Check, Refusal, replaced_connection
from handrail.runtime.policy import Policy

NAME = "session"


class SessionGate:
    """Refuses calls of a session that may not call now."""

    name = NAME

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        wants_user = definition.requires_auth

        def check(attempt: Attempt) -> Refusal | None:
            session = attempt.session
            if not session.state.is_active:
                return Refusal(NAME, ErrorType.SESSION_INACTIVE, "The session has ended.", rule="active")
            core = session.core
            left = session.blocked_for() if core.blocks else 0.0
            if left:
                return Refusal(
                    NAME,
                    ErrorType.AUTH,
                    "This user is blocked for now.",
                    rule="block",
                    value=session.user,
                    retry_after=left,
                )
            if wants_user and session.user is None:
                return Refusal(NAME, ErrorType.AUTH, "The user must sign in first.", rule="requiresAuth")
            connection = attempt.connection
            if connection is not None and (connection != session.connection or session.is_taken_over):
                return replaced_connection(connection)
            newest = core.registry.generation
            if newest is not session.snapshot and newest.version != session.snapshot.version:
                return Refusal(
                    NAME,
                    ErrorType.CONFLICT,
                    "The tools were built again while this session was open; resume the session to go on with the new ones.",
                    rule="version",
                    value=session.snapshot.version,
                    limit=newest.version,
                )
            return None

        return check

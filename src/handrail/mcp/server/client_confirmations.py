"""A held call for the person behind a client: asked by a client that is configured as trusted, else a link to the console.

The answer of a trusted client is the person's, because its operator said so in the settings; the question carries the
runtime's own preview. Whatever else comes from a client or its model approves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import HoldState, LedgerState
from handrail.mcp.server.options import McpOptions, Principal
from handrail.runtime.confirmation import REPLACED_MARK
from handrail.runtime.core import RuntimeCore
from handrail.runtime.known_calls import KnownCall
from handrail.runtime.ledger_lookup import settle_from_row

QUESTION = "confirmation"
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Yes: it is carried out as shown, once."}
    },
    "required": ["approve"],
}


def held_id(response: ToolResponse) -> str | None:
    """The id of the request if this call waits for a person."""
    error = response.error
    if error is None or error.type is not ErrorType.CONFIRMATION_REQUIRED or error.confirmation_request is None:
        return None
    return str(error.confirmation_request["id"])


class ClientConfirmations:
    """Puts held calls to people."""

    def __init__(self, runtime: RuntimeCore, options: McpOptions) -> None:
        self._runtime = runtime
        self._options = options

    def may_ask(self, who: Principal, can: frozenset[str]) -> bool:
        return who.is_trusted and "elicitation" in can

    async def question(self, hold_id: str) -> tuple[dict[str, Any], str] | None:
        """The question for the person, and the token that approves what it shows; None if there is nothing to answer."""
        hold = await self._runtime.store.hold_by_id(hold_id)
        session = await self._runtime.session_for(hold) if hold is not None else None
        if hold is None or session is None or hold.state is not HoldState.PENDING or hold.channel == "screen":
            return None
        shown = await self._runtime.confirmations.show(session, hold)
        if shown is None:
            return None
        # First, because a client may show no more than the first line.
        mark = f"{REPLACED_MARK}\n" if shown["replacedBy"] is not None else ""
        params = {"mode": "form", "message": f"{mark}{shown['preview']}", "requestedSchema": dict(_SCHEMA)}
        return {"method": "elicitation/create", "params": params}, str(shown["token"])

    async def decide(
        self, who: Principal, hold_id: str, token: str, answer: Mapping[str, Any] | None
    ) -> ToolResponse | None:
        """The envelope after the person's answer; None if they gave none, and the request stays open."""
        action = answer.get("action") if answer is not None else None
        content = answer.get("content") if answer is not None else None
        said = content.get("approve") if isinstance(content, Mapping) else None
        if action == "accept" and said is True:
            via = f"mcp {who.named or who.client}"
            outcome = await self._runtime.approve(hold_id, token=token, approver=who.user, via=via)
            if held_id(outcome) is None:
                await self.outcome_delivered(hold_id)
            return outcome
        if action == "decline" or (action == "accept" and said is False):
            return await self._runtime.decline(hold_id, token=token)
        return None

    async def outcome_delivered(self, hold_id: str) -> None:
        """The client gets the outcome of a held call now: what it asks for in a later turn is a new wish."""
        hold = await self._runtime.store.hold_by_id(hold_id)
        if hold is not None:
            await self._runtime.confirmations.outcome_delivered(hold_id, max(hold.turn, hold.asked_turn))

    def with_link(self, response: ToolResponse, hold_id: str) -> ToolResponse:
        """The envelope of a held call for a client that asks nobody: where a person answers, and how the outcome is had."""
        error = response.error
        assert error is not None
        assert error.confirmation_request is not None
        link = f"{self._options.console.rstrip('/')}/console/confirmation.html#{hold_id}"
        if self._options.present is not None:
            self._options.present(hold_id, link)
        project = self._options.console_project
        start = f'start the console with "handrail serve" in {project}, and ' if project else ""
        said = (
            f'"{error.confirmation_request["tool"]}" waits for the approval of a person. Ask the user to {start}approve or '
            f"decline it at {link}, and make the same call again for its outcome once they have."
        )
        suggestion = f"Ask the person to {start}open {link}."
        return response._replace(error=replace(error, message=said, suggestion=suggestion))

    async def outcome(self, hold_id: str) -> ToolResponse | None:
        """What became of a held call; None while it waits or runs."""
        store = self._runtime.store
        hold = await store.hold_by_id(hold_id)
        if hold is None:
            return ToolResponse.failure(ErrorType.NOT_FOUND, "The confirmation request is no longer kept.")
        if hold.state in (HoldState.PENDING, HoldState.APPROVED):
            if hold.expires_at > await store.now():
                return None
            return ToolResponse.failure(ErrorType.DECLINED, "Nobody answered the confirmation request in time.")
        if hold.state is HoldState.DECLINED:
            return ToolResponse.failure(ErrorType.DECLINED, "A person declined it; it did not run.")
        if hold.state is not HoldState.CONSUMED:
            return ToolResponse.failure(ErrorType.CONFLICT, f"The confirmation request is {hold.state.value}.")
        row = await store.ledger_row(hold.ledger_key)
        if row is None or row.state is LedgerState.RUNNING:
            return None
        if row.envelope is not None and row.state is not LedgerState.UNKNOWN:
            return ToolResponse.from_dict(orjson.loads(row.envelope))
        entry = KnownCall(row.tool, b"")
        settle_from_row(entry, row)
        assert entry.response is not None
        return entry.response[0]

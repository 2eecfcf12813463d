"""One server as an operator sees it: its state, its pins with their policy, and what it changed since they were taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail.authoring.mcp.imported import effects_of
from handrail.authoring.mcp.inspection import tool_id_of
from handrail.authoring.mcp.lock import PinnedServer, pin_of
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.mcp.gateway.pinning import review
from handrail.mcp.gateway.upstream import Upstream

_ORDER = ("failed", "starting", "ready", "stopped")


def server_report(config: UpstreamConfig, pinned: PinnedServer | None, opened: Sequence[Upstream]) -> dict[str, Any]:
    """Plain data. A server that each user has a connection of their own to is reported as its worst one is."""
    worst = min(opened, key=lambda one: _ORDER.index(one.state), default=None)
    offer = next((one.offer for one in opened if one.offer is not None), None)
    changes = review(config, pinned, offer).changes if pinned is not None and offer is not None else ()
    known = pinned if pinned is not None else PinnedServer(tools={})
    return {
        "name": config.name,
        "place": config.place,
        "state": worst.state if worst is not None else "stopped",
        "trouble": worst.trouble if worst is not None else "" if pinned is not None else "its tools are not pinned yet",
        "starts": sum(one.starts for one in opened),
        "identity": dict(known.identity),
        "tools": [
            {
                "name": name,
                "toolId": tool_id_of(config, name),
                "pin": pin_of(definition),
                "sideEffects": (effects := effects_of(config, definition)).side_effects,
                "confirm": effects.confirm,
            }
            for name, definition in sorted(known.tools.items())
        ],
        "refused": [{"name": name, "reason": reason} for name, reason in sorted(known.refused.items())],
        "changes": [change.to_dict() for change in changes],
    }

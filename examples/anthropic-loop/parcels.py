"""Two tools on a list of parcels: one reads, one sends a parcel to another address. A real project would ask its carrier."""

from __future__ import annotations

from typing import Any

from handrail import Context, ErrorType, ToolError, tool

PARCELS: dict[str, dict[str, Any]] = {
    "P-1": {"id": "P-1", "to": "12 Hill Road", "status": "on its way"},
    "P-2": {"id": "P-2", "to": "3 Mill Lane", "status": "delivered"},
}
REDIRECTED: set[str] = set()
"""The keys of the calls that have changed an address: the same call again changes nothing."""


@tool(category="retrieval", side_effects="read_only")
def track_parcel(parcel: str) -> dict[str, Any]:
    """Tell where a parcel is and where it goes.

    Args:
        parcel: Its number, such as P-1.
    """
    return {"parcel": _find(parcel)}


@tool(
    category="action",
    side_effects="writes",
    requires_confirmation=True,
    preview="Send parcel {parcel} to {address} instead.",
)
def redirect_parcel(parcel: str, address: str, ctx: Context) -> dict[str, Any]:
    """Send a parcel to another address. A person approves it first.

    Args:
        parcel: Its number, such as P-1.
        address: Where it should go: street and number.
    """
    found = _find(parcel)
    if found["status"] == "delivered":
        raise ToolError(ErrorType.CONFLICT, f"Parcel {parcel} was delivered already.")
    if ctx.idempotency_key not in REDIRECTED:
        REDIRECTED.add(ctx.idempotency_key)
        found["to"] = address
        print(f"[carrier] {parcel} goes to {address}", flush=True)
    return {"parcel": parcel, "to": address}


def _find(parcel: str) -> dict[str, Any]:
    if parcel not in PARCELS:
        raise ToolError(ErrorType.NOT_FOUND, f"There is no parcel {parcel}.", suggestion="Ask the user for the number.")
    return PARCELS[parcel]

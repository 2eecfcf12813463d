"""Two tools on a list of invoices: one reads, one pays. A real project would ask its accounting system instead."""

from __future__ import annotations

from typing import Any

from handrail import Context, ErrorType, ToolError, tool

INVOICES: dict[str, dict[str, Any]] = {
    "I-7": {"id": "I-7", "from": "Paper & Sons", "amount": 120, "paid": False},
    "I-8": {"id": "I-8", "from": "Northern Light", "amount": 45, "paid": False},
}
PAYMENTS: dict[str, str] = {}
"""The key of each call that has paid, and what it paid: the same call again pays nothing."""


@tool(category="retrieval", side_effects="read_only")
def list_invoices() -> dict[str, Any]:
    """List the invoices with what they cost and whether they are paid."""
    return {"invoices": list(INVOICES.values())}


@tool(
    category="action",
    side_effects="writes",
    requires_confirmation=True,
    preview="Pay invoice {invoice}.",
)
def pay_invoice(invoice: str, ctx: Context) -> dict[str, Any]:
    """Pay an invoice. A person approves it first.

    Args:
        invoice: Its id, such as I-7.
    """
    if invoice not in INVOICES:
        raise ToolError(ErrorType.NOT_FOUND, f"There is no invoice {invoice}.", suggestion="Use list_invoices.")
    if ctx.idempotency_key not in PAYMENTS:
        PAYMENTS[ctx.idempotency_key] = invoice
        INVOICES[invoice]["paid"] = True
        print(f"[bank] paid {invoice}", flush=True)
    return {"paid": invoice, "amount": INVOICES[invoice]["amount"]}

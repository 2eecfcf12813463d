"""Two tools that read orders. The one that writes has a folder of its own, tools/refund-order, because it has a preview."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from handrail import ErrorType, ToolError, tool


@tool(category="retrieval", side_effects="read_only", capabilities=["shop"])
async def find_orders(customer: str, ctx: Any) -> dict[str, Any]:
    """Find the orders of a customer.

    Args:
        customer: The customer's e-mail address.
    """
    return {"orders": [asdict(order) for order in await ctx.shop.orders_of(customer)]}


@tool(category="retrieval", side_effects="read_only", capabilities=["shop"])
async def order_status(order_id: str, ctx: Any) -> dict[str, Any]:
    """Say what an order contains and how far it has come.

    Args:
        order_id: The number of the order, such as A-1001.
    """
    order = await ctx.shop.find_order(order_id)
    if order is None:
        raise ToolError(ErrorType.NOT_FOUND, f"There is no order {order_id}.", suggestion="Use find_orders.")
    return {"order": asdict(order)}

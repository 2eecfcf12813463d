"""Refunds an order once, under the key of the call. The preview shows what it will cost at the moment of the approval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError


async def preview(args: Mapping[str, Any], ctx: Any) -> str:
    """Shown below the template. If it changes between showing and approving, nothing runs and the person is asked again."""
    order = await ctx.shop.find_order(args["order_id"])
    if order is None:
        return "There is no such order."
    return f"{order.item}, {order.price}, bought by {order.customer}; the order is {order.status}."


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    order = await ctx.shop.find_order(args["order_id"])
    if order is None:
        raise ToolError(ErrorType.NOT_FOUND, f"There is no order {args['order_id']}.", suggestion="Use find_orders.")
    if not await ctx.shop.refund(order.id, args["reason"], key=ctx.idempotency_key):
        raise ToolError(ErrorType.CONFLICT, f"Order {order.id} was refunded before.")
    return {"ok": True, "data": {"order_id": order.id, "refunded": order.price}}

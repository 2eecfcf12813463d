"""Two tools that read orders. The one that writes has a folder of its own, tools/refund-order, because it has a preview.

`shop` is the service: Handrail knows it by its type, the one that `open_shop` yields, and the model does not see it.
"""

from __future__ import annotations

from shop import Order, Shop

from handrail import ErrorType, ToolError, tool


@tool(category="retrieval", side_effects="read_only")
async def find_orders(customer: str, shop: Shop) -> dict[str, list[Order]]:
    """Find the orders of a customer.

    Args:
        customer: The customer's e-mail address.
    """
    return {"orders": await shop.orders_of(customer)}


@tool(category="retrieval", side_effects="read_only")
async def order_status(order_id: str, shop: Shop) -> Order:
    """Say what an order contains and how far it has come.

    Args:
        order_id: The number of the order, such as A-1001.
    """
    order = await shop.find_order(order_id)
    if order is None:
        raise ToolError(ErrorType.NOT_FOUND, f"There is no order {order_id}.", suggestion="Use find_orders.")
    return order

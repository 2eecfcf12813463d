"""The shop's database: SQLite behind a pool of connections. The app's own endpoints and its tools use the same pool."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS orders(
    id TEXT PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, cents INTEGER NOT NULL, status TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS refunds(
    key TEXT PRIMARY KEY, order_id TEXT NOT NULL UNIQUE REFERENCES orders(id), reason TEXT NOT NULL);
INSERT OR IGNORE INTO orders VALUES
    ('A-1001', 'ana@example.com', 'Tea kettle', 4990, 'delivered'),
    ('A-1002', 'ana@example.com', 'Cups, set of six', 2400, 'shipped'),
    ('A-1003', 'ivo@example.com', 'Coffee mill', 8950, 'delivered');
"""


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    customer: str
    item: str
    price: str
    status: str


class Shop:
    """What the app and its tools may do with the shop."""

    def __init__(self, connections: asyncio.Queue[sqlite3.Connection]) -> None:
        self._connections = connections

    async def find_order(self, order_id: str) -> Order | None:
        return next(iter(await self._orders("id = ?", order_id)), None)

    async def orders_of(self, customer: str) -> list[Order]:
        return await self._orders("customer = ?", customer)

    async def refund(self, order_id: str, reason: str, *, key: str) -> bool:
        """Refund the whole order. The same key again changes nothing; False if another key has refunded it."""

        def write(connection: sqlite3.Connection) -> bool:
            with connection:
                values = (key, order_id, reason)
                connection.execute("INSERT INTO refunds VALUES (?, ?, ?) ON CONFLICT DO NOTHING", values)
                connection.execute("UPDATE orders SET status = 'refunded' WHERE id = ?", (order_id,))
                found = connection.execute("SELECT key FROM refunds WHERE order_id = ?", (order_id,)).fetchone()
                return bool(found[0] == key)

        return await self._run(write)

    async def check(self) -> str:
        """For `handrail doctor`."""
        count = await self._run(lambda connection: connection.execute("SELECT count(*) FROM orders").fetchone()[0])
        return f"{count} orders"

    async def _orders(self, condition: str, value: str) -> list[Order]:
        query = f"SELECT id, customer, item, cents, status FROM orders WHERE {condition} ORDER BY id"  # noqa: S608  # ours
        rows = await self._run(lambda connection: connection.execute(query, (value,)).fetchall())
        return [
            Order(order_id, customer, item, f"{cents / 100:.2f} EUR", status)
            for order_id, customer, item, cents, status in rows
        ]

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Borrow a connection, and keep the event loop free while SQLite works."""
        connection = await self._connections.get()
        try:
            return await asyncio.to_thread(work, connection)
        finally:
            self._connections.put_nowait(connection)


@asynccontextmanager
async def open_shop(project: Path = Path(), path: str = "shop.db", connections: int = 4) -> AsyncIterator[Shop]:
    """The service: opened once when a process starts, closed when it stops."""
    opened = [sqlite3.connect(project / path, check_same_thread=False) for _ in range(connections)]
    try:
        opened[0].executescript(TABLES)
        pool: asyncio.Queue[sqlite3.Connection] = asyncio.Queue()
        for connection in opened:
            pool.put_nowait(connection)
        yield Shop(pool)
    finally:
        for connection in opened:
            connection.close()

"""The usage of tools by day: the statements of `contract.usage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from handrail.contract.usage import UsageRow, add_counts
from handrail.stores.statements.transaction import Transaction

_WRITER_MS = 7 * 86_400_000
"""Nobody sends a batch again after so long."""


def add(tx: Transaction, rows: Sequence[UsageRow], writer: str, batch: int) -> bool:
    known = tx.db.execute("SELECT batch FROM usage_writer WHERE writer = ?", (writer,)).fetchone()
    if known is not None and known[0] >= batch:
        return False
    tx.db.execute(
        """INSERT INTO usage_writer VALUES (?, ?, ?)
           ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, written_at = excluded.written_at""",
        (writer, batch, tx.now),
    )
    for row in rows:
        key = (row.day, row.tenant, row.tool, row.version)
        found = tx.db.execute(
            "SELECT counts FROM tool_usage WHERE day = ? AND tenant = ? AND tool = ? AND version = ?", key
        ).fetchone()
        counts: dict[str, Any] = orjson.loads(found[0]) if found is not None else {}
        add_counts(counts, row.counts)
        tx.db.execute(
            """INSERT INTO tool_usage VALUES (?, ?, ?, ?, ?, ?)
               ON CONFLICT (day, tenant, tool, version) DO UPDATE SET calls = excluded.calls, counts = excluded.counts""",
            (*key, int(counts.get("calls", 0)), orjson.dumps(counts).decode()),
        )
    return True


def rows(tx: Transaction, since: str, until: str, tool: str | None) -> list[UsageRow]:
    only, values = ("", ()) if tool is None else (" AND tool = ?", (tool,))
    found = tx.db.execute(
        f"SELECT day, tenant, tool, version, counts FROM tool_usage WHERE day >= ? AND day <= ?{only}",  # noqa: S608  # one of two texts above
        (since, until, *values),
    )
    # Sorted here, because databases order texts differently.
    return [UsageRow._make((*key, orjson.loads(counts))) for *key, counts in sorted(found.fetchall())]


def tools_by_calls(tx: Transaction, since: str, limit: int, tenant: str | None) -> list[tuple[str, int]]:
    only, values = ("", ()) if tenant is None else (" AND tenant = ?", (tenant,))
    found = tx.db.execute(
        f"""SELECT tool, sum(calls) FROM tool_usage WHERE day >= ? AND tool <> ''{only}
            GROUP BY tool HAVING sum(calls) > 0 ORDER BY sum(calls) DESC, tool LIMIT ?""",  # noqa: S608  # one of two texts above
        (since, *values, limit),
    )
    return [(name, int(calls)) for name, calls in found.fetchall()]


def prune(tx: Transaction, before: str) -> int:
    tx.db.execute("DELETE FROM usage_writer WHERE written_at < ?", (tx.now - _WRITER_MS,))
    return int(tx.db.execute("DELETE FROM tool_usage WHERE day < ?", (before,)).rowcount)

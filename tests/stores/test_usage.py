"""The usage of tools in every store: what several processes count is added up, once, and kept as long as it is wanted."""

import asyncio

from handrail.contract.usage import UsageRow, add_counts


def row(day: str = "2026-11-18", tool: str = "kb_search", *, tenant: str = "", version: str = "1.0.0", **counts):
    return UsageRow(day, tenant, tool, version, counts)


async def test_what_several_processes_count_is_added_up(store):
    one = row(calls=2, outcomes={"ok": 1, "TIMEOUT": 1}, latency={"count": 2, "sum": 3.5, "bins": {"10": 2}})
    other = row(calls=1, outcomes={"ok": 1}, latency={"count": 1, "sum": 0.5, "bins": {"10": 1, "-4": 1}})
    await asyncio.gather(*(store.usage.add([one, other], writer=f"o{number}", batch=1) for number in range(8)))
    (found,) = await store.usage.rows()
    assert found == row(
        calls=24,
        outcomes={"ok": 16, "TIMEOUT": 8},
        latency={"count": 24, "sum": 32.0, "bins": {"10": 24, "-4": 8}},
    )


async def test_a_batch_that_comes_again_is_counted_once(store):
    assert await store.usage.add([row(calls=1)], writer="o1", batch=1)
    assert not await store.usage.add([row(calls=1)], writer="o1", batch=1)
    assert await store.usage.add([row(calls=1)], writer="o2", batch=1), "another process has numbers of its own"
    assert await store.usage.add([row(calls=1)], writer="o1", batch=2)
    assert (await store.usage.rows())[0].counts == {"calls": 3}


async def test_rows_are_kept_apart_by_day_tenant_tool_and_version(store):
    rows = [
        row("2026-11-17", calls=1),
        row(calls=2),
        row(calls=3, version="2.0.0"),
        row(calls=4, tool="mail_send"),
        row(calls=5, tenant="Acme"),
    ]
    await store.usage.add(rows, writer="o1", batch=1)
    assert await store.usage.rows() == sorted(rows)
    assert await store.usage.rows(since="2026-11-18", tool="kb_search") == sorted(
        one for one in rows[1:] if one.tool == "kb_search"
    )
    assert await store.usage.rows(until="2026-11-17") == rows[:1]
    assert await store.usage.rows(since="2026-11-19") == []


async def test_the_tools_by_calls_tools_come_first(store):
    rows = [
        row(calls=2),
        row(calls=3, version="2.0.0"),
        row("2026-11-10", calls=50, tool="kb_get"),
        row(calls=4, tool="mail_send", tenant="Acme"),
        row(calls=0, tool="never", declined=1),
        row(tool="", version="", calls=9, turns={"completed": 1}),
    ]
    await store.usage.add(rows, writer="o1", batch=1)
    assert await store.usage.tools_by_calls() == [("kb_get", 50), ("kb_search", 5), ("mail_send", 4)]
    assert await store.usage.tools_by_calls(limit=1) == [("kb_get", 50)]
    assert await store.usage.tools_by_calls(since="2026-11-18", tenant="Acme") == [("mail_send", 4)]


async def test_what_is_too_old_is_deleted(store):
    await store.usage.add([row("2026-11-16", calls=1), row("2026-11-17", calls=1), row(calls=1)], writer="o1", batch=1)
    assert await store.usage.prune(before="2026-11-17") == 1
    assert [one.day for one in await store.usage.rows()] == ["2026-11-17", "2026-11-18"]


def test_trees_are_added_number_by_number():
    total = {"calls": 1, "outcomes": {"ok": 1}}
    add_counts(total, {"calls": 2, "outcomes": {"ok": 1, "AUTH": 1}, "sum": 0.5})
    assert total == {"calls": 3, "outcomes": {"ok": 2, "AUTH": 1}, "sum": 0.5}

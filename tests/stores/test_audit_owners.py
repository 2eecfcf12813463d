"""Which processes may have answered calls whose audit lines are not written yet."""

from handrail.contract.store import AuditPosition


async def abandoned(store):
    return [(left.owner, left.audited_until) for left in await store.abandoned_audits("o1")]


async def test_a_process_that_was_taken_for_dead_and_lives_on_is_listed_again(store):
    """Another has written its lines and ended its audit while it was frozen. What it answers since then needs lines too."""
    await store.begin_audit("frozen")
    assert [owner for owner, _ in await abandoned(store)] == ["frozen"]
    await store.end_audit("frozen")
    assert await abandoned(store) == []
    chain = AuditPosition("chain", "file", 1, "head")
    await store.save_audit_checkpoint(
        chain, seal=lambda covered: "", after=None, follows=True, owner="frozen", audited_until=7
    )
    assert await abandoned(store) == [("frozen", 7)]

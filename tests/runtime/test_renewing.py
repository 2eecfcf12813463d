"""Leases that are renewed: a claim that was lost is told, one that has settled meanwhile is not."""

import pytest
from tests.runtime.kit import PAID, writing


@pytest.mark.parametrize("settled", [True, False])
async def test_only_a_claim_that_still_runs_is_told_to_be_lost(make_tools, monkeypatch, caplog, settled):
    async with make_tools({"note": (writing(), PAID)}) as world:
        session = await world.session()
        core = session.core

        async def renew(claims, lease_ms):
            if settled:
                core.own_claims.fences.pop("a key")
            return ["a key"]

        core.own_claims.fences["a key"] = 1
        monkeypatch.setattr(core.store, "renew", renew)
        core.housekeeper._beat = core.policy.lease_ms
        await core.housekeeper.renew()
        core.own_claims.fences.pop("a key", None)
        assert ("no longer ours" in caplog.text) is not settled

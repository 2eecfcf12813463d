"""What this process has claimed in the ledger, from the wish to run a call until its outcome is stored.

A value that several parts share: `ledger_claims.py` makes the claims, `unconfirmed_claims.py` gives up those that the store
did not answer, the housekeeper renews their leases.
"""

from __future__ import annotations

import asyncio
from typing import Any

from handrail.contract.envelope import ToolResponse
from handrail.contract.store import Finish


class OwnClaims:
    """The claims of one runtime, by ledger key. `owner` is the runtime's name in the store."""

    __slots__ = ("fences", "given_up", "owner", "unconfirmed", "unconfirmed_holds", "under_way", "unstored")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.under_way: dict[str, asyncio.Task[Any]] = {}
        """The task that claims or runs a call. One at a time in this process, because all of them claim as one owner."""
        self.fences: dict[str, int] = {}
        """The fencing numbers of claims whose handlers run. Their leases are renewed."""
        self.unstored: dict[str, Finish] = {}
        """Outcomes that could not be stored; the housekeeper tries again."""
        self.unconfirmed: dict[str, str] = {}
        """The claim ids of claims that the store did not answer. Each stays the same until a claim with it is answered."""
        self.unconfirmed_holds: set[str] = set()
        """The confirmations among them."""
        self.given_up: dict[str, ToolResponse] = {}
        """Those of `unconfirmed` that must not start any more, and what is recorded of them."""

"""The tools that the workers call, and the journal that outlives them.

A line is one `write` to a file that is only appended to, so that a process that dies leaves whole lines or none. A start
is synced to the disk before anything else happens: what the handler does after it cannot be without it.
"""

import asyncio
import json
import os
import random
import secrets
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from handrail import tool

LOGICAL: ContextVar[str] = ContextVar("logical", default="")
"""What the scripted model really asked for, whatever id it is delivered under. Handlers do not know; the harness does."""


class Journal:
    """Written by every worker, read by the harness."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, *, sync: bool = False, **facts: Any) -> None:
        os.write(self._handle, json.dumps({"kind": kind, **facts}).encode() + b"\n")
        if sync:
            os.fsync(self._handle)


class _Here:
    """What the handlers of this process use: set once by the worker."""

    journal: Journal | None = None
    worker = 0
    random = random.Random(0)


def prepare(journal: Journal, worker: int, seed: int) -> None:
    _Here.journal, _Here.worker, _Here.random = journal, worker, random.Random(seed)


async def _effect(tool_id: str, key: str, **args: Any) -> dict[str, str]:
    assert _Here.journal is not None
    receipt = secrets.token_hex(6)
    await asyncio.sleep(_Here.random.random() * 0.004)
    _Here.journal.write(
        "start", sync=True, tool=tool_id, key=key, logical=LOGICAL.get(), worker=_Here.worker, receipt=receipt, **args
    )
    await asyncio.sleep(_Here.random.random() * 0.012)
    return {"receipt": receipt}


@tool(side_effects="writes", idempotent=False, category="action")
async def charge_card(account: str, amount: int, ctx: Any) -> dict[str, str]:
    """Charge an amount to the card of an account. Charging twice is charging double.

    Args:
        account: The account whose card is charged.
        amount: How much, in cents.
    """
    return await _effect("charge_card", ctx.idempotency_key, account=account, amount=amount)


@tool(side_effects="writes", idempotent=True, category="action")
async def set_address(account: str, amount: int, ctx: Any) -> dict[str, str]:
    """Set the address of an account. Setting it twice is the same as once.

    Args:
        account: The account whose address is set.
        amount: The number of the address.
    """
    return await _effect("set_address", ctx.idempotency_key, account=account, amount=amount)


@tool(side_effects="writes", idempotent=False, category="action", requires_confirmation=True)
async def transfer(account: str, amount: int, ctx: Any) -> dict[str, str]:
    """Transfer an amount from an account, once a person has approved it.

    Args:
        account: The account that it is taken from.
        amount: How much, in cents.
    """
    return await _effect("transfer", ctx.idempotency_key, account=account, amount=amount)

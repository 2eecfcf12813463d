"""The keys in a project's store, for tests that stand beside the server."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from handrail.contract.keys import Key, KeyStore
from handrail.stores import SqliteStore

T = TypeVar("T")


def in_store(path: Path, work: Callable[[KeyStore], Awaitable[T]]) -> T:
    """What `work` gives, with the keys of this store."""

    async def run() -> T:
        store = SqliteStore(path)
        await store.open()
        try:
            return await work(store.keys)
        finally:
            await store.close()

    # In a thread: where a browser is driven, a loop runs in this one already.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, run()).result()


def keys_of(folder: Path) -> list[Key]:
    return in_store(folder / "handrail.db", lambda keys: keys.all())

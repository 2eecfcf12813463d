"""The keys in a project's store, for tests that stand beside the server."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from handrail.contract.keys import Key, KeyStore
from handrail.stores import SqliteStore, open_store

T = TypeVar("T")


def in_store(place: Path | str, work: Callable[[KeyStore], Awaitable[T]]) -> T:
    """What `work` gives, with the keys of the store in this file or at this URL."""

    async def run() -> T:
        store = SqliteStore(place) if isinstance(place, Path) else open_store(place)
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

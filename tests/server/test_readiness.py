"""`/readyz` tries what a message needs: the store's writer and the audit."""

import asyncio
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing

from tests.server.kit import USER, bearer, in_process


@asynccontextmanager
async def kept_on_disk(folder):
    async with in_process(folder, store=f"sqlite:////{folder}/store.db", audited=True) as server:
        server.made.app.state.context.readiness.kept_seconds = 0
        yield server


async def not_ready(server) -> list[str]:
    answer = await server.client.get("/readyz")
    checks = answer.json()["checks"]
    assert set(checks) == {"serving", "store", "audit"}
    assert (answer.status_code == 200) is all(checks.values()) is answer.json()["ok"]
    return [name for name, well in checks.items() if not well]


async def test_a_store_that_another_process_has_locked_is_not_ready(tmp_path, caplog):
    async with kept_on_disk(tmp_path) as server:
        assert await not_ready(server) == []
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await not_ready(server) == ["store"]
            assert "not ready (store)" in caplog.text
            other.execute("ROLLBACK")
        async with asyncio.timeout(60):
            while await not_ready(server):
                await asyncio.sleep(0.05)


async def test_a_store_that_was_deleted_is_not_ready_and_takes_no_message(tmp_path, caplog):
    async with kept_on_disk(tmp_path) as server:
        ana = await server.open()
        for path in [*tmp_path.glob("store.db"), *tmp_path.glob("store.db-*")]:
            path.unlink()
        assert await not_ready(server) == ["store"]
        assert '"store.db" was deleted or replaced' in caplog.text
        refused = await ana.post("hello", "m1")
        assert refused.status_code == 503
        assert "cannot be stored" in refused.json()["error"]["message"]
        opened = await server.client.post("/api/sessions", json={}, headers=bearer(USER))
        assert opened.status_code == 503
        assert server.model.asked == []


async def test_a_store_or_an_audit_folder_that_was_deleted_is_not_ready(tmp_path):
    async with kept_on_disk(tmp_path) as server:
        shutil.rmtree(tmp_path / "audit")
        assert await not_ready(server) == ["audit"]
        (tmp_path / "store.db").unlink()
        assert await not_ready(server) == ["store", "audit"]


async def test_a_probe_leaves_nothing_behind_and_many_are_one_try(tmp_path):
    async with kept_on_disk(tmp_path) as server:
        server.made.app.state.context.readiness.kept_seconds = 3_600
        tries = []
        write = server.runtime.store._write

        async def counted(request, *locks):
            tries.append(request)
            return await write(request, *locks)

        server.runtime.store._write = counted
        await asyncio.gather(*(not_ready(server) for _ in range(50)))
        assert [request.__name__ for request in tries if getattr(request, "__name__", "") == "try_writing"] == [
            "try_writing"
        ]
        assert (await server.runtime.store.operating()).switches == {}
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            assert db.execute("SELECT count(*) FROM conversation").fetchone() == (0,)

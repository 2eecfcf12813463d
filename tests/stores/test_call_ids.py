"""Call ids in the store: they outlive a change of its tables, and go when the call goes that they stand for."""

import sqlite3
from pathlib import Path

from tests.stores.values import START, StillClock, alias, claim, done, held, session, session_in_an_old_file

from handrail.contract.store import Store
from handrail.stores import SqliteStore
from handrail.stores.migrations import MIGRATIONS, migrate


async def test_call_ids_of_an_older_file_are_still_known(tmp_path: Path, clock: StillClock) -> None:
    db = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    migrate(db, "s.db", START, MIGRATIONS[:3])
    session_in_an_old_file(db)
    db.execute("INSERT INTO alias VALUES ('s1', 'provider:c1', 'pay', 'raw1', NULL, NULL)")
    db.close()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    await store.open()
    assert await store.aliases("s1") == [alias()]
    await store.close()


async def test_only_the_ids_of_calls_that_are_dropped_are_dropped_with_them(store: Store, clock: StillClock) -> None:
    await store.create_session(session("s2"))
    for name in ("s1", "s2"):
        await store.claim(claim(f"{name}-old", session_id=name, alias=alias()))
        await store.finish(done(f"{name}-old"))
        await store.claim(claim(f"{name}-open", session_id=name, args_digest="d2", alias=alias("provider:c2")))
    await store.save_sessions([("s1", 1, {"active": False})])
    assert await store.evict(bodies_before=0, rows_before=START + 1) == (0, 1, None)
    assert await store.aliases("s1") == [alias("provider:c2", ledger_key="s1-open")]
    assert [found.call_id for found in await store.aliases("s2")] == ["provider:c1", "provider:c2"]


async def test_an_open_request_of_an_older_file_is_asked_for_in_its_turn_and_keeps_its_tokens(
    tmp_path: Path, clock: StillClock
) -> None:
    db = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    migrate(db, "s.db", START, MIGRATIONS[:7])
    session_in_an_old_file(db, turn=3)
    made = held(turn=3)
    old = ("hold_id", "tenant", "session_id", "user", "turn", "tool", "tool_hash", "args_digest", "args", "raw_args")
    old += ("preview", "channel", "ledger_key", "ordinal", "expires_at", "state", "repaired")
    marks = ", ".join("?" * len(old))
    db.execute(f"INSERT INTO hold ({', '.join(old)}) VALUES ({marks})", [getattr(made, name) for name in old])
    db.execute("INSERT INTO hold_token VALUES ('h1', 'x')")
    db.close()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    await store.open()
    assert await store.hold_by_id("h1") == made
    assert await store.shown_with("h1", "x") == "", "it is not known what was shown with it"
    await store.close()

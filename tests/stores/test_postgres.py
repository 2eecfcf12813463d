"""What only PostgreSQL can do to us: several machines at once, a server that stops, roles, and databases that are not ours."""

import asyncio
import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from tests.postgres_server import PostgresServer, postgres_server
from tests.stores.values import LEASE, alias, claim, done, held, session

from handrail.contract.conversations import StoredConversation
from handrail.contract.errors import UsageError
from handrail.contract.store import (
    AuditPosition,
    AuditSubject,
    Block,
    ClaimVerdict,
    HoldState,
    LedgerState,
    RateCharge,
    StoreUnavailable,
)
from handrail.stores import open_store
from handrail.stores.base import grouped
from handrail.stores.postgres import PostgresStore, heartbeat
from handrail.stores.postgres.connection import ServerAddress
from handrail.stores.postgres.locking import MIGRATION_LOCK, advisory_number
from handrail.stores.statements.ledger import ClaimRequest, limit_name


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def empty(postgres: PostgresServer) -> str:
    return postgres.new_database(empty=True)


@asynccontextmanager
async def machines(url: str, *owners: str):
    """A store for each owner, as each machine has its own, and the session "s1"."""
    stores = [PostgresStore(url, limit_seconds=5) for _ in owners]
    try:
        for store, owner in zip(stores, owners, strict=True):
            await store.open()
            await store.register_owner(owner)
        await stores[0].create_session(session())
        yield stores
    finally:
        for store in stores:
            await store.close()


async def test_of_one_call_that_two_machines_ask_for_at_once_one_is_claimed(url):
    async with machines(url, "o1", "o2") as stores:
        asked = [
            store.claim(claim(f"k{number}", args_digest=f"d{number}", alias=alias(f"provider:{number}"), owner=owner))
            for number in range(150)
            for store, owner in zip(stores, ("o1", "o2"), strict=True)
        ]
        results = await asyncio.gather(*asked)
        by_key = Counter(result.row.key for result in results if result.verdict is ClaimVerdict.CLAIMED)
        assert by_key == {f"k{number}": 1 for number in range(150)}
        assert Counter(result.verdict for result in results)[ClaimVerdict.RUNNING] == 150


async def test_the_same_call_under_two_keys_is_not_begun_beside_one_that_became_unknown(url):
    async with machines(url, "o1", "o2") as (here, there):
        assert (await here.claim(claim("k1", lease_ms=1))).verdict is ClaimVerdict.CLAIMED
        await here.finish(done("k1", state=LedgerState.UNKNOWN))
        assert (await there.claim(claim("k2", ordinal=2, owner="o2"))).verdict is ClaimVerdict.UNKNOWN


async def test_a_limit_is_one_for_all_machines(url):
    async with machines(url, "o1", "o2") as stores:
        rate = RateCharge(scope="tool:pay", limit=10, window_ms=600_000)
        asked = [
            store.claim(claim(f"{owner}-{number}", args_digest=f"{owner}-{number}", owner=owner, rate=rate))
            for number in range(30)
            for store, owner in zip(stores, ("o1", "o2"), strict=True)
        ]
        verdicts = Counter(result.verdict for result in await asyncio.gather(*asked))
        assert verdicts == {ClaimVerdict.CLAIMED: 10, ClaimVerdict.RATE_LIMITED: 50}


async def test_a_yes_and_a_no_on_two_machines_have_one_outcome(url):
    async with machines(url, "o1", "o2") as (here, there):
        for number in range(40):
            name = f"h{number}"
            await here.hold(held(name, args=f'{{"n":{number}}}', args_digest=name, expires_at=2**50), f"token-{number}")
            moved = await asyncio.gather(
                here.move_hold(name, HoldState.APPROVED, expected=[HoldState.PENDING]),
                there.move_hold(name, HoldState.DECLINED, expected=[HoldState.PENDING]),
            )
            assert len({one.state for one in moved}) == 1
            assert (await there.hold_by_id(name)).state is moved[0].state


async def test_machines_that_lock_many_sessions_in_any_order_wait_for_each_other_and_go_on(url):
    async with machines(url, "o1", "o2") as stores:
        for number in range(20):
            await stores[0].create_session(session(f"s-{number}"))
        names = [f"s-{number}" for number in range(20)]
        orders = (names, names[::-1])
        rounds = [
            store.claim(
                claim(f"{owner}-{turn}-{name}", args_digest=f"{owner}-{turn}", session_id=name, owner=owner, rate=rate)
            )
            for turn in range(5)
            for store, owner, order in zip(stores, ("o1", "o2"), orders, strict=True)
            for name in order
            # A limit sends the claim the long way, in which everything is locked first.
            for rate in [RateCharge(scope=f"user:{name}", limit=1_000, window_ms=60_000)]
        ]
        verdicts = {result.verdict for result in await asyncio.gather(*rounds)}
        assert verdicts == {ClaimVerdict.CLAIMED}


async def test_a_session_that_somebody_else_has_locked_keeps_no_other_waiting_for_its_outcome(url):
    async with machines(url, "o1") as (store,):
        await store.create_session(session("s2"))
        with psycopg.connect(url) as other:
            other.execute("SELECT 1 FROM session WHERE session_id = 's2' FOR UPDATE")
            rate = RateCharge(scope="tool:pay", limit=10, window_ms=600_000)
            asked = [
                store.claim(claim("k1", rate=rate)),
                store.claim(claim("k2", session_id="s2", args_digest="d2", rate=rate)),
            ]
            free, locked = await asyncio.gather(*asked, return_exceptions=True)
        assert free.verdict is ClaimVerdict.CLAIMED
        assert isinstance(locked, StoreUnavailable)
        assert "is locked by another process" in str(locked)
        assert (await store.claim(claim("k2", session_id="s2", args_digest="d2"))).verdict is ClaimVerdict.CLAIMED


# What one machine decides by, another may not change before it has written
@asynccontextmanager
async def locked(url: str, statement: str):
    """Somebody else has changed the session "s1", and has not committed it yet."""
    with psycopg.connect(url) as other:
        other.execute(statement)
        yield other
        other.commit()


async def _waits_for(url: str, statement: str, work):
    """What comes of `work`, which must wait for somebody else who has begun `statement`."""
    async with locked(url, statement):
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({task}, timeout=0.5)
        assert not done
    return await task


async def test_an_outcome_waits_for_whoever_decides_about_its_session(url):
    async with machines(url, "o1") as (store,):
        row = (await store.claim(claim("k1"))).row
        finish = store.finish(done("k1", claimed=row))
        assert (await _waits_for(url, "UPDATE session SET turn = turn", finish)).state is LedgerState.SUCCEEDED


async def test_a_claim_waits_for_whoever_closes_its_session(url):
    async with machines(url, "o1") as (store,):
        asked = store.claim(claim("k1"))
        assert (await _waits_for(url, "UPDATE session SET active = 0", asked)).verdict is ClaimVerdict.INACTIVE


async def test_no_call_of_a_session_that_is_woken_meanwhile_is_dropped(url):
    async with machines(url, "o1") as (store,):
        row = (await store.claim(claim("k1"))).row
        await store.finish(done("k1", claimed=row))
        await store.save_sessions([("s1", 1, {"active": False})])
        later = await store.now() + 60_000
        await _waits_for(
            url, "UPDATE session SET active = 1", store.evict(bodies_before=later, rows_before=later, batch_size=100)
        )
        assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.SETTLED


async def test_what_ends_while_its_user_is_forgotten_is_forgotten_too(url):
    async with machines(url, "o1") as (store,):
        row = (await store.claim(claim("k1"))).row
        async with locked(url, "UPDATE session SET turn = turn"):
            both = [
                asyncio.ensure_future(work)
                for work in (store.forget_user("t", "u"), store.finish(done("k1", claimed=row)))
            ]
            await asyncio.sleep(0.2)
        await asyncio.gather(*both)
        kept = await store.ledger_row("k1")
        assert (kept.user, kept.args, kept.envelope) == (None, "{}", None)


async def _until_it_waits_for_a_lock(url: str, number: int = 1) -> None:
    async with asyncio.timeout(60):
        with psycopg.connect(url, autocommit=True) as db:
            while (
                db.execute(
                    """SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'"""
                ).fetchone()[0]
                < number
            ):
                await asyncio.sleep(0.01)


async def test_machines_that_count_the_same_limits_in_their_own_order_do_not_deadlock(url):
    async with machines(url, "o1", "o2") as (here, there):
        async with locked(url, "INSERT INTO rate VALUES ('m', 0, 1)"):
            scopes = ("a", "m", "z")
            asked = [
                asyncio.ensure_future(store.count_rates({(scope, 0): 1 for scope in order}))
                for store, order in ((here, scopes), (there, scopes[::-1]))
            ]
            await _until_it_waits_for_a_lock(url, 2)
        await asyncio.gather(*asked)
        assert await here.count_rates({}, dict.fromkeys(scopes, 0)) == {("a", 0): 2, ("m", 0): 3, ("z", 0): 2}
    with psycopg.connect(url) as db:  # closed stores have handed in what they have counted
        assert db.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone() == (
            0,
        )


async def test_a_server_without_room_for_locks_fails_only_who_asked_for_them(url):
    with psycopg.connect(url, autocommit=True) as db:
        async with machines(url, "o1") as (store,):
            db.execute("""CREATE FUNCTION full_up() RETURNS trigger LANGUAGE plpgsql AS
                          $$ BEGIN RAISE EXCEPTION 'out of shared memory' USING ERRCODE = '53200'; END $$""")
            db.execute("""CREATE TRIGGER full_up BEFORE INSERT ON rate FOR EACH ROW
                          WHEN (NEW.scope = 'full') EXECUTE FUNCTION full_up()""")
            pids = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() ORDER BY pid"
            before = db.execute(pids).fetchall()
            with pytest.raises(StoreUnavailable, match="no room for locks"):
                await store.count_rates({("full", 0): 1})
            await store.count_rates({("a", 0): 1})
            assert db.execute(pids).fetchall() == before, "the connections are kept"


def test_nothing_overtakes_a_group_that_failed(monkeypatch):
    tried = []

    def commit_group(db, group, now):
        tried.append(group)
        raise psycopg.errors.DeadlockDetected

    monkeypatch.setattr("handrail.stores.postgres.store.commit_group", commit_group)
    store = PostgresStore("postgresql://nowhere")
    requests = [ClaimRequest(claim("k1")), ClaimRequest(claim("k2"))]
    store._in_one_trip(SimpleNamespace(roll_back=lambda: None), [], grouped(requests, 1))
    assert len(tried) == 1


async def test_a_count_waits_for_a_claim_that_is_charged_to_the_same_limit(url):
    async with machines(url, "o1") as (store,):
        number = advisory_number("name", limit_name("tool:pay"))
        await _waits_for(url, f"SELECT pg_advisory_xact_lock({number})", store.count_rates({("tool:pay", 0): 1}))


async def test_a_conversation_that_somebody_goes_on_with_meanwhile_is_not_deleted(url):
    async with machines(url, "o1") as (store,):
        kept = StoredConversation(session_id="s1", tenant="t", user="u", passing=False, document={})
        await store.conversations.create(kept, owner="o1")
        pruning = store.conversations.prune(unused_for=-60_000)
        assert await _waits_for(url, "UPDATE conversation SET updated_at = updated_at + 1", pruning) == []
        assert await store.conversations.load("s1") is not None
        assert await store.conversations.prune(unused_for=-60_000) == ["s1"]


async def test_a_session_that_is_opened_while_its_user_is_forgotten_comes_after_it(url):
    async with machines(url, "o1", "o2") as (here, there):
        until = await here.now() + 600_000
        await here.create_session(session("s0"), AuditSubject("old", b"old secret"))
        await here.block(Block(tenant="t", user="u", until=until))
        async with locked(url, "UPDATE forgetting SET times = times"):
            forgetting = asyncio.ensure_future(here.forget_user("t", "u"))
            await _until_it_waits_for_a_lock(url)
            opening = asyncio.ensure_future(there.create_session(session("s2"), AuditSubject("new", b"new secret")))
            assert not (await asyncio.wait({opening}, timeout=0.3))[0]
        await forgetting
        opened = await opening
        assert opened.subject == AuditSubject("new", b"new secret")
        assert opened.blocked_until == until
        assert await there.forgotten_sessions(["s0", "s1", "s2"]) == {"s0", "s1"}
        assert await there.audit_users(["old", "new"]) == {"new": "u"}
        assert (await there.claim(claim(session_id="s2", owner="o2"))).verdict is ClaimVerdict.BLOCKED


@pytest.mark.parametrize("analysed", [0, 100, 500])
async def test_a_plan_that_was_made_for_small_tables_does_not_read_large_ones(url, analysed):
    async with machines(url, "o1") as (store,):
        for number in range(20):
            await store.create_session(session(f"other{number}"))
        for start in range(0, 1_500, 100):
            if start == analysed:
                with psycopg.connect(url, autocommit=True) as db:  # plans are made anew, for what is there now
                    db.execute("ANALYZE")
            await store.begin_turn("s1", connection=1, input_id=f"m{start}", left=(start // 100, {"n": start}))
            asked = [
                claim(f"k{number}", args_digest=f"d{number}", alias=alias(f"provider:{number}"), counters={"n": number})
                for number in range(start, start + 100)
            ]
            made = await asyncio.gather(*(store.claim(one) for one in asked))
            for one in made[:20]:  # the others stay open
                await store.finish(done(one.row.key, claimed=one.row))
    with psycopg.connect(url, autocommit=True) as db:  # closed stores have handed in what they have counted
        whole = dict(db.execute("SELECT relname, seq_tup_read FROM pg_stat_user_tables").fetchall())
        by_index = dict(db.execute("SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes").fetchall())
    tables = ("ledger", "alias", "session", "turn_input", "turn_left", "block", "switch")
    assert max(whole[table] for table in tables) < 50, whole
    indexes = ("ledger_open", "ledger_pkey", "call_id_pkey", "session_pkey", "turn_input_pkey")
    assert max(by_index[index] for index in indexes) < 8_000, by_index


async def test_listing_and_evicting_do_not_read_whole_tables(url):
    async with machines(url, "o1"):
        pass
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'session'").fetchall()
        columns = [name for (name,) in found if name != "rowid"]
        named = ", ".join(f'"{name}"' for name in columns)
        copied = named.replace('"session_id"', "'n' || n")
        db.execute(f"INSERT INTO session ({named}) SELECT {copied} FROM session, generate_series(1, 3000) n")
        db.execute(
            """INSERT INTO ledger (key, tenant, session_id, turn, ordinal, tool, tool_hash, registry_version, args_digest,
                   args, effects, state, fence, owner, claim_id, lease_until, created_at, finished_at, envelope)
               SELECT 'n' || n, 't', 's1', 1, 1, 'pay', 'h', 'v', 'd', '{}', 'unsafe', 'succeeded', 1, 'o', 'c', 0, 0, n, ''
               FROM generate_series(1, 3000) n"""
        )
        db.execute("ANALYZE")
        # What this connection has read is counted now, not at some time after it has ended.
        db.execute("SELECT pg_stat_force_next_flush()")
    before = _rows_read(url)
    # Tables as small as these would be read whole whatever indexes they have.
    store = PostgresStore(f"{url}&options=-c%20enable_seqscan%3Doff")
    await store.open()
    assert [row.key for row in await store.ledger_rows(limit=2)] == ["n3000", "n2999"]
    assert (await store.evict(bodies_before=0, rows_before=0, batch_size=10)).left_at is not None
    await store.close()  # which is when its connections hand in what they have counted
    assert _rows_read(url) - before < 500


def _rows_read(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        (rows,) = db.execute(
            """SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
               WHERE relname IN ('ledger', 'session')"""
        ).fetchone()
        return int(rows)


async def test_two_owners_whose_names_have_one_hash_of_postgresql_both_live(url):
    with psycopg.connect(url) as db:
        pair = db.execute(
            """SELECT min(name), max(name) FROM (SELECT 'o' || n AS name FROM generate_series(1, 300000) n) AS names
               GROUP BY hashtext(name) HAVING count(*) > 1 LIMIT 1"""
        ).fetchone()
    async with machines(url, *pair) as stores:
        assert [await store.owner_lives(owner) for store in stores for owner in pair] == [True] * 4
        await stores[0].release_owner(pair[0])
        assert [await stores[1].owner_lives(owner) for owner in pair] == [False, True]


async def test_checkpoints_of_two_machines_are_all_kept(url):
    async with machines(url, "o1", "o2") as stores:
        chains = [AuditPosition(f"chain-{number}", "file", 1, "head") for number in range(40)]
        saved = await asyncio.gather(
            *(
                store.save_audit_checkpoint(chain, seal=lambda covered: covered.hex(), after=None, follows=False)
                for number, chain in enumerate(chains)
                for store in [stores[number % 2]]
            )
        )
        kept = {checkpoint.position.chain for checkpoint in await stores[0].audit_checkpoints()}
        assert all(saved)
        assert kept >= {chain.chain for chain in chains}


async def test_one_of_two_machines_takes_the_audit_that_a_dead_one_left(url):
    async with machines(url, "o1", "o2") as stores:
        for number in range(20):
            await stores[0].begin_audit(f"dead-{number}")
            taken = await asyncio.gather(
                *(store.abandoned_audits(owner) for store, owner in zip(stores, ("o1", "o2"), strict=True))
            )
            takers = [found for found in taken if f"dead-{number}" in {one.owner for one in found}]
            assert len(takers) == 1


async def test_a_text_that_is_none_fails_alone_and_leaves_nothing_open(url):
    async with machines(url, "o1") as (store,):
        asked = [
            store.claim(claim("k1", args_digest="d1", alias=alias("provider:\ud800"))),
            store.claim(claim("k2", args_digest="d2")),
        ]
        bad, good = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(bad, UsageError)
        assert good.verdict is ClaimVerdict.CLAIMED
        with psycopg.connect(url) as db:
            (waiting,) = db.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
            ).fetchone()
        assert waiting == 0


async def test_what_nobody_waits_for_any_more_is_not_carried_out_later(url):
    store = PostgresStore(url, limit_seconds=1)
    await store.open()
    await store.register_owner("o1")
    await store.create_session(session())
    rate = RateCharge(scope="tool:pay", limit=100, window_ms=600_000)
    async with locked(url, "UPDATE session SET turn = turn"):
        asked = [store.claim(claim(f"k{number}", args_digest=f"d{number}", rate=rate)) for number in range(5)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(result, StoreUnavailable) for result in results)
        assert "has not answered for 1 seconds; check that the server runs" in str(results[-1])
        await asyncio.sleep(2.5)
    rows = [await store.ledger_row(f"k{number}") for number in range(5)]
    assert [row for row in rows if row is not None] == []
    await store.close()


async def test_a_forked_child_that_closes_the_store_leaves_it_to_its_parent(url):
    async with machines(url, "o1") as (store,):
        child = os.fork()
        if child == 0:
            try:
                asyncio.new_event_loop().run_until_complete(store.close())
            finally:
                os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED
        assert await store.owner_lives("o1")


async def test_an_owner_is_registered_again_after_its_connection_was_cut(url):
    async with machines(url, "o1") as (store,):
        with psycopg.connect(url, autocommit=True) as other:
            _cut_connections(other)
        with pytest.raises(StoreUnavailable):
            await store.register_owner("o3")
        for _ in range(3):
            with contextlib.suppress(StoreUnavailable):
                await store.register_owner("o3")
                break
        assert await store.owner_lives("o3")


async def test_a_server_that_may_lose_commits_is_refused(url):
    name = url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await _refused(url, "has synchronous_commit = off")


async def test_a_database_that_is_set_to_lose_commits_later_takes_no_more_calls(url):
    name = url.partition("@/")[2].partition("?")[0]
    async with machines(url, "o1") as (store,):
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
            _cut_connections(db)
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as raised:
                await store.claim(claim())
        assert "has synchronous_commit = off" in str(raised.value)


async def test_a_server_that_does_not_wait_for_its_disk_is_a_warning_at_the_start(url, own_server, caplog):
    """That of all tests does not: what it loses when the machine fails is nobody's loss."""
    async with machines(own_server.new_database(), "o1"):
        assert "fsync" not in caplog.text
    async with machines(url, "o1", "o2"):
        pass
    lines = [record.getMessage() for record in caplog.records if "has fsync = off" in record.getMessage()]
    assert len(lines) == 2, "each process says it once"
    assert "loses calls that were answered when its machine fails" in lines[0]


async def test_options_in_the_url_do_not_take_away_what_the_promises_need(url):
    await _refused(f"{url}&options=-c%20synchronous_commit%3Doff", "has synchronous_commit = off")
    await _refused(f"{url}&options=-c%20synchronous_commit%3Doff%5C", "end with a backslash")
    async with machines(f"{url}&options=-c%20lock_timeout%3D1", "o1") as (store,):
        asked = store.claim(claim("k1"))
        assert (await _waits_for(url, "UPDATE session SET turn = turn", asked)).verdict is ClaimVerdict.CLAIMED


def test_the_server_looks_within_a_minute_for_a_machine_that_is_gone(url):
    db = ServerAddress(url).connect(5).connection
    with db:
        names = [f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")]
        # What holds on a network; the socket of this machine shows zeros.
        rows = db.execute("SELECT name, reset_val::int FROM pg_settings WHERE name = ANY(%s)", (names,))
        idle, interval, count = map(dict(rows.fetchall()).get, names)
    assert 0 < idle + interval * count < 60


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


async def test_a_server_that_crashes_keeps_what_was_answered_and_is_used_again_when_it_is_back(own_server, monkeypatch):
    tried = list[str]()
    connect = psycopg.connect

    def noted(*where, **how):
        tried.append(threading.current_thread().name)
        return connect(*where, **how)

    monkeypatch.setattr(psycopg, "connect", noted)
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.1)
    url = own_server.new_database()
    async with machines(url, "o1") as (store,):
        wish = claim("k1", claim_id="c1")
        assert (await store.claim(wish)).verdict is ClaimVerdict.CLAIMED
        own_server.stop(signal.SIGQUIT)
        with pytest.raises(StoreUnavailable, match=r"The store "):
            await store.claim(claim("k2", args_digest="d2"))
        with pytest.raises(StoreUnavailable):
            await store.ledger_row("k1")
        tried.clear()
        looks = await asyncio.gather(*(store.ledger_row("k1") for _ in range(20)), return_exceptions=True)
        assert {type(one) for one in looks} == {StoreUnavailable}
        assert tried.count("handrail-store-reader") <= 2, "whoever looks at the same time learns of one attempt"
        own_server.start()
        # The claim whose answer was not heard is recognised by its own id, and by no other.
        assert (await store.claim(wish)).verdict is ClaimVerdict.CLAIMED
        assert (await store.claim(claim("k1", claim_id="another"))).verdict is ClaimVerdict.RUNNING
        assert (await store.finish(done("k1"))).state is LedgerState.SUCCEEDED
        # Another machine has not beaten since, and its lock went with the server.
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("INSERT INTO heartbeat VALUES ('elsewhere', 0)")
        async with asyncio.timeout(30):
            while not store._heartbeat.failed_lately():
                await asyncio.sleep(0.05)
        assert await store.owner_lives("elsewhere"), "it has no time to come back"
        monkeypatch.setattr(heartbeat, "_FRESH_MS", 0)  # as if ten seconds had passed
        assert not await store.owner_lives("elsewhere")


def _cut_connections(db):
    db.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    )


def _connections(db: psycopg.Connection) -> list[int]:
    rows = db.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
    return [pid for (pid,) in rows]


@pytest.mark.parametrize("moment", ["between two heartbeats", "in a heartbeat"])
async def test_a_store_is_closed_although_its_server_answers_no_more(url, moment, monkeypatch):
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 60 if moment == "between two heartbeats" else 0.1)
    store = PostgresStore(url, limit_seconds=1)
    await store.open()
    await store.register_owner("o1")
    with psycopg.connect(url, autocommit=True) as other:
        stopped = _connections(other)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        if moment == "in a heartbeat":
            await asyncio.sleep(1)
        monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.1)
        await asyncio.wait_for(store.close(), 30)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


async def test_a_store_that_was_not_opened_in_time_keeps_no_connection_and_can_be_opened_later(url):
    store = PostgresStore(url, limit_seconds=1)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))  # an upgrade that takes its time
        with pytest.raises(StoreUnavailable, match="could not be opened within 3 seconds"):
            await store.open()
        assert len(_connections(other)) == 1, "it is still being opened"
        other.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
        async with asyncio.timeout(30):
            while _connections(other):
                await asyncio.sleep(0.05)
    assert "handrail-store-heartbeat" not in {thread.name for thread in threading.enumerate()}
    await store.open()
    await store.create_session(session())
    await store.close()


async def test_a_connection_that_is_cut_is_made_again(url):
    async with machines(url, "o1") as (store,):
        with psycopg.connect(url, autocommit=True) as other:
            _cut_connections(other)
        results = []
        for number in range(3):
            try:
                results.append((await store.claim(claim(f"k{number}", args_digest=f"d{number}"))).verdict)
            except StoreUnavailable:
                results.append(None)
        assert results[-1] is ClaimVerdict.CLAIMED


async def test_an_owner_is_alive_while_its_heart_beats_and_its_leases_count_after_that(url, monkeypatch):
    monkeypatch.setattr(heartbeat, "_FRESH_MS", 0)
    async with machines(url, "o1", "o2") as (here, there):
        await here.claim(claim("k1", lease_ms=LEASE))
        # Its process lives, so it has not died; its heartbeat is taken for old, so it is not known to live.
        assert not await there.owner_lives("o1")
        assert (await there.ledger_row("k1")).state is LedgerState.RUNNING
        await here.claim(claim("k2", args_digest="d2", lease_ms=-10_000))
        assert (await there.ledger_row("k2")).state is LedgerState.UNKNOWN
        monkeypatch.undo()
        assert await there.owner_lives("o1")


async def test_processes_that_start_at_once_make_the_tables_once(empty):
    stores = [PostgresStore(empty) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    await stores[0].create_session(session())
    assert await stores[3].load_session("s1") is not None
    for store in stores:
        await store.close()


async def test_the_clock_is_the_servers_whatever_this_machine_says(url, monkeypatch):
    monkeypatch.setattr(heartbeat.time, "time", lambda: 0.0)
    async with machines(url, "o1") as (store,):
        with psycopg.connect(url) as db:
            (now,) = db.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000").fetchone()
        assert abs(float(now) - await store.now()) < 60_000
        row = (await store.claim(claim())).row
        assert abs(float(now) - row.created_at) < 60_000


async def test_two_runtimes_cannot_have_one_name(url):
    async with machines(url, "o1") as (_,):
        other = PostgresStore(url)
        await other.open()
        with pytest.raises(UsageError, match='The owner "o1" is registered already'):
            await other.register_owner("o1")
        await other.close()


async def test_a_value_that_postgresql_cannot_keep_is_refused_and_changes_nothing(url):
    async with machines(url, "o1") as (store,):
        with pytest.raises(UsageError, match="cannot keep this value"):
            await store.claim(claim("k\0", args_digest="d\0"))
        assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED


# Databases that cannot be used
async def _refused(url: str, match: str) -> None:
    with pytest.raises((UsageError, StoreUnavailable), match=match) as raised:
        await open_store(url).open()
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_database_that_is_not_there_is_named(postgres):
    await _refused(postgres.url("nowhere"), 'The store "nowhere" is not there')


async def test_a_server_that_is_not_there_is_named():
    await _refused("postgresql://u:secret@127.0.0.1:9/d", 'The store "d" cannot be reached')


async def test_a_password_is_shown_nowhere():
    url = "postgresql://u:secret@/d?host=/nowhere/secret"
    await _refused(url, r"cannot be reached \(.*/nowhere/\*\*\*")
    store = open_store(url)
    assert "secret" not in f"{store} {store!r} {vars(store)}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:x/secret@h/d",
        "postgresql://u:x@secret@h/d",
        "postgresql://u:secret@h/d?nonsense=1",
        "postgresql+asyncpg://u:secret@h/d",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(UsageError, match="cannot be read; write postgresql://") as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


async def test_a_newer_version_of_the_tables_is_refused(url):
    async with machines(url, "o1"):
        pass
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("INSERT INTO handrail_migration VALUES (999, 'of the future', 0)")
    await _refused(url, "was written by a newer Handrail")


async def test_a_process_that_meets_tables_of_a_newer_release_says_so_once_and_writes_nothing(url, monkeypatch, caplog):
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.05)
    async with machines(url, "o1") as (store,):
        assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("INSERT INTO handrail_migration VALUES (999, 'of the future', 0)")
            _cut_connections(db)
        said = ""
        async with asyncio.timeout(60):
            while "was written by a newer Handrail" not in said:
                await asyncio.sleep(0.01)
                try:
                    await store.try_writing()
                except StoreUnavailable as error:
                    said = str(error)
        assert said.endswith("upgrade Handrail, or name another database.")
        await asyncio.sleep(3)  # many beats
        with pytest.raises(StoreUnavailable, match="by a newer Handrail"):
            await store.claim(claim("k2", args_digest="d2"))
        assert await store.ledger_row("k1") is not None, "reads continue"
        assert await store.ledger_row("k2") is None
        lines = [record for record in caplog.records if "by a newer Handrail" in record.getMessage()]
        assert [record.levelname for record in lines] == ["ERROR"]
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("DELETE FROM handrail_migration WHERE version = 999")
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(StoreUnavailable):
                    await store.claim(claim("k2", args_digest="d2"))
                    break
                await asyncio.sleep(0.01)


async def test_a_database_of_another_program_is_refused_and_left_alone(empty):
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute("CREATE TABLE customers (id int)")
    await _refused(empty, "is a database of another program")
    with psycopg.connect(empty) as db:
        assert db.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone() == (1,)


async def test_a_role_that_may_not_create_tables_is_told(empty):
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS reader")
        db.execute("CREATE ROLE reader LOGIN PASSWORD 'secret'")
        db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await _refused(empty.replace("postgres@", "reader:secret@", 1), "does not let this role do that")


async def test_a_role_that_may_change_rows_and_nothing_else_is_enough(url):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS handrail_calls")
        db.execute("CREATE ROLE handrail_calls LOGIN")
        page = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text()
        grants = page.partition("```sql\n")[2].partition("```")[0]
        name = url.partition("@/")[2].partition("?")[0]
        for grant in grants.replace("DATABASE handrail", f"DATABASE {name}").strip().split(";\n"):
            db.execute(grant)
    async with machines(url.replace("postgres@", "handrail_calls@", 1), "o1") as (store,):
        await store.hold(held("h1", expires_at=2**50), "token")
        row = (await store.claim(claim())).row
        await store.finish(done(claimed=row))
        await store.switch("pay", "off")
        later = await store.now() + 60_000
        await store.evict(bodies_before=later, rows_before=later, batch_size=100)
        assert (await store.forget_user("t", "u"))["sessions"] == 1
        with psycopg.connect(url.replace("postgres@", "handrail_calls@", 1)) as db:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute("DROP TABLE session")
            db.rollback()


async def test_a_database_that_may_only_be_read_is_told(url):
    async with machines(url, "o1") as (store,):
        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s",
                (name,),
            )
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.claim(claim("k1"))
        with pytest.raises(StoreUnavailable, match="may only be read"):
            await store.claim(claim("k1"))
        assert await store.ledger_row("k1") is None
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SET default_transaction_read_only = off")
            db.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED, "without a restart"


def test_without_the_driver_the_command_that_installs_it_is_named(monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("handrail.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        UsageError, match=r'`pip install "handrail\[postgres\]"` \(from a copy as docs/install.md says\)'
    ):
        open_store("postgresql://u@h/d")

"""Check a store without changing it: its tables, its migrations, its files, what its rows refer to, and the rules of the
ledger that no constraint of the database can say."""

# ruff: noqa: S608 - what is put into SQL are the names of our own tables and columns

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handrail.stores.maintenance.store_access import StoreAccess
from handrail.stores.maintenance.tables import MIGRATION_TABLE, Table, declared_tables
from handrail.stores.migrations import MIGRATIONS

_SETTLED = "('succeeded', 'failed', 'cancelled')"
_RULES = (
    (
        "settled calls know when they ended, and open ones have not ended",
        "ledger",
        f"(state IN {_SETTLED}) <> (finished_at IS NOT NULL)",
    ),
    (
        "settled calls keep their outcome until it is evicted",
        "ledger",
        f"state IN {_SETTLED} AND envelope IS NULL AND evicted = 0",
    ),
    ("no call with unsafe effects was started twice", "ledger", "effects = 'unsafe' AND fence <> 1"),
    (
        "a call that needed a confirmation consumed it",
        "ledger",
        """EXISTS (SELECT 1 FROM hold WHERE hold.hold_id = ledger.hold_id
                   AND (hold.state <> 'consumed' OR coalesce(hold.consumed_by, '') <> ledger.key))""",
    ),
    ("a consumed confirmation names its call", "hold", "state = 'consumed' AND consumed_by IS NULL"),
    (
        "call ids name calls that are there",
        "alias",
        "ledger_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.key = alias.ledger_key)",
    ),
    ("a session that has lost calls stays closed", "session", "pruned <> 0 AND active <> 0"),
)
"""Each as a sentence that holds, and the rows of a table that break it."""


@dataclass(frozen=True, slots=True)
class StoreFinding:
    name: str
    ok: bool
    message: str


def check_store(store: StoreAccess) -> Iterator[StoreFinding]:
    """Everything that was looked at, in the order in which one needs the other; it ends where the rest cannot be looked at."""
    yield version_finding(store)
    if store.version() != MIGRATIONS[-1].version:
        return
    tables = _tables(store)
    yield tables
    damage = store.damage()
    yield StoreFinding("integrity", not damage, damage or "every page was read")
    if not tables.ok or damage:
        return
    yield _orphans(store)
    for sentence, table, broken in _RULES:
        rows = store.fetch(f'SELECT count(*) FROM "{table}" WHERE {broken}')[0][0]
        yield StoreFinding("rule", not rows, f'{sentence}: {rows} of "{table}" break it' if rows else sentence)


def version_finding(store: StoreAccess) -> StoreFinding:
    """Whether its tables are those of this release."""
    version, newest = store.version(), MIGRATIONS[-1].version
    if version > newest:
        sentence = f"a newer Handrail wrote this (version {version}; this release knows {newest}); upgrade Handrail"
        return StoreFinding("migrations", False, sentence)
    if not version:
        sentence = "no tables yet; `handrail store migrate` makes them, and so does the first start"
        return StoreFinding("migrations", False, sentence)
    if version < newest:
        sentence = f"version {version} of {newest}; `handrail store migrate` brings it to this release"
        return StoreFinding("migrations", False, sentence)
    applied = {int(number): name for number, name in store.fetch(f"SELECT version, name FROM {MIGRATION_TABLE}")}
    wrong = [step.version for step in MIGRATIONS if applied.get(step.version) != step.name]
    if wrong:
        listed = ", ".join(map(str, wrong))
        return StoreFinding("migrations", False, f"of its migrations, these are not this release's: {listed}")
    return StoreFinding("migrations", True, f"version {newest}, which is this release's")


def _tables(store: StoreAccess) -> StoreFinding:
    there, indexes, declared = store.columns(), store.indexes(), declared_tables()
    missing = [f'the table "{table.name}"' for table in declared if table.name not in there]
    for table in declared:
        lost = [name for name in table.columns if name not in there.get(table.name, table.columns)]
        missing += [f'the column "{name}" of "{table.name}"' for name in lost]
        missing += [f'the index "{name}"' for name in sorted(table.indexes - indexes)]
    if missing:
        return StoreFinding("tables", False, f"missing: {', '.join(missing)}; restore the store from a backup")
    return StoreFinding("tables", True, f"all {len(declared)} with their indexes")


def _orphans(store: StoreAccess) -> StoreFinding:
    for table in declared_tables():
        for one in table.references:
            rows = _without_parent(store, table, one.column, one.table, one.key)
            if rows:
                sentence = f'{rows} rows of "{table.name}" name rows of "{one.table}" that are not there'
                return StoreFinding("orphans", False, sentence)
    return StoreFinding("orphans", True, "every row that is referred to is there")


def _without_parent(store: StoreAccess, table: Table, column: str, parent: str, key: str) -> int:
    found = store.fetch(
        f"""SELECT count(*) FROM "{table.name}" AS child WHERE "{column}" IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM "{parent}" AS parent WHERE parent."{key}" = child."{column}")"""
    )
    return int(found[0][0])

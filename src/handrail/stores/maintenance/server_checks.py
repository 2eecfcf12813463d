"""What `handrail doctor` says of a store on PostgreSQL: each fact that its promises rest on, in one sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from handrail.contract.errors import HandrailError
from handrail.stores.maintenance.checking import StoreFinding, version_finding
from handrail.stores.maintenance.postgres_access import PostgresAccess
from handrail.stores.maintenance.store_access import Row
from handrail.stores.maintenance.tables import declared_tables
from handrail.stores.migrations import MIGRATIONS

_OLDEST = 140_000
_SKEW_SECONDS = 60.0
"""By as much the clocks of the audit log and the store may differ before lines that a crash left out are not found."""
_WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE")


def server_findings(url: str) -> Iterator[StoreFinding]:
    """The first that keeps the rest from being looked at is the last."""
    try:
        access = PostgresAccess(url, read_only=True)
    except HandrailError as error:
        yield StoreFinding("store", False, str(error))
        return
    with closing(access):
        yield StoreFinding("store", True, "PostgreSQL answers")
        yield _version(access)
        yield _pooler(access)
        yield _transport(access)
        yield _writable(access)
        yield _durability(access)
        yield _replication(access)
        yield _clock(access)
        yield _privileges(access)
        yield _migrations(access)


def _migrations(access: PostgresAccess) -> StoreFinding:
    try:
        found, version = version_finding(access), access.version()
    except HandrailError as error:
        return StoreFinding("migrations", False, str(error))
    # Older tables are no failure: the next start upgrades them.
    return replace(found, ok=found.ok or version < MIGRATIONS[-1].version)


def _one(access: PostgresAccess, statement: str) -> Row:
    return access.fetch(statement)[0]


def _version(access: PostgresAccess) -> StoreFinding:
    number = access.connection.info.server_version
    return StoreFinding(
        "version", number >= _OLDEST, f"PostgreSQL {number // 10_000}.{number % 10_000} (14 or newer is needed)"
    )


def _pooler(access: PostgresAccess) -> StoreFinding:
    (pid,) = _one(access, "SELECT pg_backend_pid()")
    if pid != access.connection.info.backend_pid:
        sentence = "a connection pooler is between, which loses locks; name the PostgreSQL server itself"
        return StoreFinding("pooler", False, sentence)
    return StoreFinding("pooler", True, "none is between: the server is reached directly")


def _transport(access: PostgresAccess) -> StoreFinding:
    """A statement, and no failure: whether a network can be trusted is not seen from here."""
    info = access.connection.info
    if info.host.startswith("/") or not info.host:
        return StoreFinding("transport", True, "a socket of this machine")
    # As this end sees it: what the server sees may be a proxy that has taken TLS off before it.
    if not access.connection.pgconn.ssl_in_use:
        return StoreFinding("transport", True, "not encrypted; sslmode=verify-full in the URL asks for TLS")
    checked = info.get_parameters().get("sslmode") in ("verify-ca", "verify-full")
    words = (
        "and the certificate was checked" if checked else "and nobody checked the certificate; use sslmode=verify-full"
    )
    return StoreFinding("transport", True, f"encrypted by TLS, {words}")


def _writable(access: PostgresAccess) -> StoreFinding:
    # Our own connection only reads, so the default of others is asked for.
    recovering, read_only = _one(
        access,
        "SELECT pg_is_in_recovery(), (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only')",
    )
    if recovering:
        return StoreFinding("writable", False, "the server is in recovery: it is a standby; name the primary")
    if read_only == "on":
        sentence = "default_transaction_read_only is on for this role or database; set it to off"
        return StoreFinding("writable", False, sentence)
    return StoreFinding("writable", True, "the server takes writes")


def _durability(access: PostgresAccess) -> StoreFinding:
    fsync, pages, commit = _one(
        access,
        "SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')",
    )
    wrong = [f"{name} = {value}" for name, value in (("fsync", fsync), ("full_page_writes", pages)) if value == "off"]
    if commit in ("off", "local"):
        wrong.append(f"synchronous_commit = {commit}")
    if wrong:
        sentence = f'{", ".join(wrong)}: calls that were answered may be lost when the server fails; set "on"'
        return StoreFinding("durability", False, sentence)
    return StoreFinding("durability", True, f"fsync is on, synchronous_commit is {commit}")


def _replication(access: PostgresAccess) -> StoreFinding:
    wanted, standbys, synchronous, hidden = _one(
        access,
        """SELECT current_setting('synchronous_standby_names'), count(*),
               count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(*) FILTER (WHERE sync_state IS NULL)
           FROM pg_stat_replication""",
    )
    if hidden:
        sentence = "this role may not see whether the standbys are synchronous; grant it pg_read_all_stats"
        return StoreFinding("replication", False, sentence)
    if wanted and not synchronous:
        sentence = "no synchronous standby is connected, so commits wait; start one, or empty synchronous_standby_names"
        return StoreFinding("replication", False, sentence)
    if synchronous:
        return StoreFinding("replication", True, f"{synchronous} of {standbys} standbys are synchronous")
    if standbys:
        sentence = f"{standbys} standbys, none of them synchronous: a failover may run calls twice; set synchronous_standby_names"
        return StoreFinding("replication", False, sentence)
    sentence = "no standby: before there is one that may take over, set synchronous_standby_names"
    return StoreFinding("replication", True, sentence)


def _clock(access: PostgresAccess) -> StoreFinding:
    before = time.time()
    (server,) = _one(access, "SELECT extract(epoch FROM clock_timestamp())::float8")
    ahead = (before + time.time()) / 2 - server
    words = (
        f"this machine's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the server's, which counts"
    )
    if abs(ahead) > _SKEW_SECONDS:
        return StoreFinding("clock", False, f"{words}; set the clocks by NTP")
    return StoreFinding("clock", True, words)


def _privileges(access: PostgresAccess) -> StoreFinding:
    role, superuser, schema = _one(
        access, "SELECT current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), current_schema()"
    )
    if schema is None:
        return StoreFinding("privileges", False, f'the role "{role}" has no schema; grant it USAGE on one')
    (makes,) = _one(access, "SELECT has_schema_privilege(current_schema(), 'CREATE')")
    there = access.columns()
    names = [table.name for table in declared_tables() if table.name in there]
    lacking = [
        f'{privilege} on "{name}"'
        for name in names
        for privilege in _WRITES
        if not _one(access, f"SELECT has_table_privilege('\"{name}\"', '{privilege}')")[0]
    ]
    if not makes and not names:
        lacking = [f'CREATE on the schema "{schema}", to make the tables']
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        sentence = (
            f'the role "{role}" lacks {", ".join(lacking[:3])}{more}; grant it, or let the owner of the tables connect'
        )
        return StoreFinding("privileges", False, sentence)
    if superuser:
        return StoreFinding("privileges", True, f'the role "{role}" is a superuser; one that owns the tables is enough')
    foreign = access.fetch(
        """SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
           AND NOT pg_has_role(relowner, 'USAGE')"""
    )
    if foreign or not makes:
        sentence = (
            f'the role "{role}" reads and writes; upgrades need the owner of the tables (`handrail store migrate`)'
        )
        return StoreFinding("privileges", True, sentence)
    return StoreFinding("privileges", True, f'the role "{role}" owns its tables, and is no superuser')

"""The tables of a store, as numbered steps that only go forward. Each is one transaction that also records itself, so
that several processes may start on one file at once, and a crash in the middle leaves the step before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handrail.contract.errors import UsageError
from handrail.stores.statements.transaction import Database


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: tuple[str, ...] = ()
    on_postgres: tuple[str, ...] = ()
    """What PostgreSQL needs besides."""


_TABLES = (
    """CREATE TABLE session (
        session_id TEXT PRIMARY KEY, token_hash TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT, mode TEXT NOT NULL,
        attributes TEXT NOT NULL, registry_version TEXT NOT NULL, connection INTEGER NOT NULL, turn INTEGER NOT NULL,
        active INTEGER NOT NULL, state TEXT NOT NULL, counters TEXT NOT NULL, owner TEXT NOT NULL,
        pruned INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE turn_input (
        session_id TEXT NOT NULL REFERENCES session, input_id TEXT NOT NULL, turn INTEGER NOT NULL,
        PRIMARY KEY (session_id, input_id)) WITHOUT ROWID""",
    """CREATE TABLE ledger (
        key TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, ordinal INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL,
        registry_version TEXT NOT NULL, args_digest TEXT NOT NULL, args TEXT NOT NULL,
        effects TEXT NOT NULL CHECK (effects IN ('none', 'idempotent', 'unsafe')),
        state TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled', 'unknown')),
        fence INTEGER NOT NULL, owner TEXT NOT NULL, claim_id TEXT NOT NULL, lease_until INTEGER NOT NULL,
        created_at INTEGER NOT NULL, finished_at INTEGER, envelope TEXT, evicted INTEGER NOT NULL DEFAULT 0,
        hold_id TEXT)""",
    "CREATE INDEX ledger_like ON ledger (session_id, turn, tool, args_digest)",
    "CREATE INDEX ledger_newest ON ledger (created_at)",
    "CREATE INDEX ledger_open ON ledger (state, lease_until) WHERE state IN ('running', 'unknown')",
    "CREATE INDEX ledger_finished ON ledger (finished_at) WHERE finished_at IS NOT NULL",
    """CREATE TABLE hold (
        hold_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL, args_digest TEXT NOT NULL,
        args TEXT NOT NULL, raw_args TEXT NOT NULL, preview TEXT NOT NULL,
        channel TEXT NOT NULL, ledger_key TEXT NOT NULL,
        ordinal INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'consumed', 'declined', 'expired', 'superseded')),
        alias TEXT, repaired INTEGER NOT NULL, consumed_by TEXT)""",
    """CREATE UNIQUE INDEX hold_open ON hold (session_id, tool, args_digest)
        WHERE state IN ('pending', 'approved')""",
    "CREATE INDEX hold_session ON hold (session_id, state)",
    """CREATE TABLE hold_token (
        hold_id TEXT NOT NULL REFERENCES hold ON DELETE CASCADE, token_hash TEXT NOT NULL,
        PRIMARY KEY (hold_id, token_hash)) WITHOUT ROWID""",
    """CREATE TABLE alias (
        session_id TEXT NOT NULL REFERENCES session, call_id TEXT NOT NULL, tool TEXT NOT NULL,
        raw_digest TEXT NOT NULL, ledger_key TEXT REFERENCES ledger ON DELETE CASCADE,
        hold_id TEXT REFERENCES hold ON DELETE CASCADE,
        PRIMARY KEY (session_id, call_id)) WITHOUT ROWID""",
    "CREATE INDEX alias_ledger ON alias (ledger_key)",
    "CREATE INDEX alias_hold ON alias (hold_id)",
    """CREATE TABLE block (
        tenant TEXT NOT NULL, user TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (tenant, user)) WITHOUT ROWID""",
    "CREATE TABLE switch (tool TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE rate (
        scope TEXT NOT NULL, window_start INTEGER NOT NULL, used INTEGER NOT NULL,
        PRIMARY KEY (scope, window_start)) WITHOUT ROWID""",
)

MIGRATIONS = (
    Migration(1, "sessions, ledger, confirmations, operating", _TABLES),
    Migration(2, "policies of sessions", ("ALTER TABLE session ADD COLUMN policy TEXT NOT NULL DEFAULT '{}'",)),
    # Every page that a claim touches is written twice. The newest rows are found by their rowid as well.
    Migration(
        3,
        "fewer pages for a claim",
        (
            "DROP INDEX ledger_newest",
            "DROP INDEX alias_hold",
            "CREATE INDEX alias_hold ON alias (hold_id) WHERE hold_id IS NOT NULL",
        ),
    ),
    # Both were asked for open calls alone, and those are few: their pages are shared by all that are claimed together.
    Migration(
        4,
        "one small index of open calls",
        (
            "DROP INDEX ledger_like",
            "DROP INDEX ledger_open",
            """CREATE INDEX ledger_open ON ledger (session_id, turn, tool, args_digest)
                WHERE state IN ('running', 'unknown')""",
        ),
    ),
    # Only `evict` deletes calls, and it knows their sessions: an index over keys, which lie all over it, is not needed.
    Migration(
        5,
        "call ids without an index of keys",
        (
            """CREATE TABLE call_id (
                session_id TEXT NOT NULL REFERENCES session, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                raw_digest TEXT NOT NULL, ledger_key TEXT, hold_id TEXT REFERENCES hold ON DELETE CASCADE,
                PRIMARY KEY (session_id, call_id)) WITHOUT ROWID""",
            "INSERT INTO call_id SELECT session_id, call_id, tool, raw_digest, ledger_key, hold_id FROM alias",
            "DROP TABLE alias",
            "ALTER TABLE call_id RENAME TO alias",
            "CREATE INDEX alias_hold ON alias (hold_id) WHERE hold_id IS NOT NULL",
        ),
    ),
    # Rows of their own: every claim writes the session's row, and older turns hardly ever change.
    Migration(
        6,
        "turns that were left",
        (
            "ALTER TABLE session ADD COLUMN current_turn INTEGER NOT NULL DEFAULT 0",
            "UPDATE session SET current_turn = turn",
            """CREATE TABLE turn_left (
                session_id TEXT NOT NULL REFERENCES session, turn INTEGER NOT NULL, counters TEXT NOT NULL,
                PRIMARY KEY (session_id, turn)) WITHOUT ROWID""",
        ),
    ),
    # Sessions that have only read leave nothing else that has an age. Those of an older file are as old as this step.
    Migration(
        7,
        "when a session was saved",
        (
            "ALTER TABLE session ADD COLUMN saved_at INTEGER NOT NULL DEFAULT 0",
            "UPDATE session SET saved_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000",
        ),
    ),
    # The lock of an owner is a file that may be deleted; its process can be looked for all the same.
    Migration(
        8,
        "processes of owners",
        (
            """CREATE TABLE owner (
                owner TEXT PRIMARY KEY, boot TEXT NOT NULL, namespace TEXT NOT NULL, pid INTEGER NOT NULL,
                started TEXT NOT NULL) WITHOUT ROWID""",
        ),
    ),
    Migration(
        9,
        "checkpoints of the audit log, who has answered calls, and what is kept of forgotten users",
        (
            """CREATE TABLE audit_chain (
                number INTEGER PRIMARY KEY, chain TEXT NOT NULL, file TEXT NOT NULL, seq INTEGER NOT NULL,
                head TEXT NOT NULL, at INTEGER NOT NULL, mac TEXT NOT NULL)""",
            "CREATE INDEX audit_chain_name ON audit_chain (chain)",
            """CREATE TABLE audit_owner (
                owner TEXT PRIMARY KEY, audited_until INTEGER NOT NULL, taken_by TEXT) WITHOUT ROWID""",
            """CREATE TABLE audit_subject (
                tenant TEXT NOT NULL, user TEXT NOT NULL, pseudonym TEXT NOT NULL UNIQUE, secret BLOB NOT NULL,
                PRIMARY KEY (tenant, user)) WITHOUT ROWID""",
            "CREATE TABLE forgotten_block (digest TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID",
            "CREATE TABLE forgetting (times INTEGER NOT NULL, salt BLOB NOT NULL)",
            "INSERT INTO forgetting VALUES (0, randomblob(32))",
        ),
    ),
    # The tokens get rows in the order in which they were given out, so that the oldest can go. What an older version showed is
    # not known: whoever approves with such a token is asked again.
    Migration(
        10,
        "what was shown of a request, and what became of it",
        (
            "ALTER TABLE hold ADD COLUMN call_id TEXT",
            "ALTER TABLE hold ADD COLUMN asked_turn INTEGER NOT NULL DEFAULT 0",
            "UPDATE hold SET asked_turn = turn",
            "ALTER TABLE hold ADD COLUMN replaced_by TEXT",
            "ALTER TABLE hold ADD COLUMN told_turn INTEGER",
            """CREATE TABLE shown_token (
                hold_id TEXT NOT NULL REFERENCES hold ON DELETE CASCADE, token_hash TEXT NOT NULL, shown TEXT NOT NULL,
                PRIMARY KEY (hold_id, token_hash))""",
            "INSERT INTO shown_token SELECT hold_id, token_hash, '' FROM hold_token",
            "DROP TABLE hold_token",
            "ALTER TABLE shown_token RENAME TO hold_token",
        ),
    ),
    Migration(
        11,
        "who approved a request",
        (
            "ALTER TABLE hold ADD COLUMN approver TEXT",
            "ALTER TABLE hold ADD COLUMN approved_via TEXT",
        ),
    ),
    # SQLite finds rows by their rowid anyway, and shows by a lock on a file who lives. A version before this one made the
    # heartbeats without a migration.
    Migration(
        12,
        "heartbeats, and the order in which rows were made",
        on_postgres=(
            "CREATE TABLE IF NOT EXISTS heartbeat (owner TEXT PRIMARY KEY, seen_at BIGINT NOT NULL) WITHOUT ROWID",
            "CREATE UNIQUE INDEX ledger_rowid ON ledger (rowid)",
            "CREATE UNIQUE INDEX session_rowid ON session (rowid)",
        ),
    ),
    # Times of a server's conversations are milliseconds too. Texts are JSON, because PostgreSQL keeps no NUL.
    Migration(
        13,
        "conversations of a server, and what was imported from files of its own",
        (
            """CREATE TABLE conversation (
                session_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, key TEXT NOT NULL, sealed TEXT NOT NULL,
                owner TEXT NOT NULL, live INTEGER NOT NULL, passing INTEGER NOT NULL, created_at INTEGER NOT NULL,
                updated_at INTEGER NOT NULL, document TEXT NOT NULL)""",
            "CREATE INDEX conversation_user ON conversation (tenant, user)",
            "CREATE INDEX conversation_key ON conversation (key)",
            "CREATE INDEX conversation_updated ON conversation (updated_at)",
            """CREATE TABLE conversation_turn (
                session_id TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE, message_id TEXT NOT NULL,
                position INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL,
                attempts INTEGER NOT NULL, answer TEXT NOT NULL, last_event INTEGER NOT NULL,
                PRIMARY KEY (session_id, message_id)) WITHOUT ROWID""",
            "CREATE TABLE file_import (source TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID",
        ),
    ),
    Migration(
        14,
        "keys of a server",
        (
            """CREATE TABLE server_key (
                name TEXT PRIMARY KEY, hash TEXT NOT NULL, role TEXT NOT NULL, user TEXT, created TEXT NOT NULL)""",
            "CREATE TABLE server_key_changes (times INTEGER NOT NULL)",
            "INSERT INTO server_key_changes VALUES (0)",
        ),
    ),
    Migration(
        15,
        "tickets for voice, and requests that may come again",
        (
            """CREATE TABLE voice_ticket (
                digest TEXT PRIMARY KEY, session_id TEXT NOT NULL, sealed TEXT NOT NULL, key TEXT NOT NULL,
                expires_at INTEGER NOT NULL) WITHOUT ROWID""",
            "CREATE INDEX voice_ticket_expiry ON voice_ticket (expires_at)",
            """CREATE TABLE idempotent_request (
                digest TEXT PRIMARY KEY, owner TEXT NOT NULL, session_id TEXT, sealed TEXT NOT NULL,
                made_at INTEGER NOT NULL) WITHOUT ROWID""",
            "CREATE INDEX idempotent_request_age ON idempotent_request (made_at)",
        ),
    ),
    # The number of calls stands beside the rest, which is JSON, so that tools can be ordered by it.
    Migration(
        16,
        "how tools were used, by day",
        (
            """CREATE TABLE tool_usage (
                day TEXT NOT NULL, tenant TEXT NOT NULL, tool TEXT NOT NULL, version TEXT NOT NULL,
                calls INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (day, tenant, tool, version)) WITHOUT ROWID""",
            """CREATE TABLE usage_writer (
                writer TEXT PRIMARY KEY, batch INTEGER NOT NULL, written_at INTEGER NOT NULL) WITHOUT ROWID""",
        ),
    ),
    Migration(
        17,
        "credentials of people, and authorizations that are under way",
        (
            """CREATE TABLE credential (
                tenant TEXT NOT NULL, user TEXT NOT NULL, connection TEXT NOT NULL, sealed TEXT NOT NULL,
                key_id TEXT NOT NULL, version INTEGER NOT NULL, updated_at INTEGER NOT NULL, refresh_owner TEXT,
                refresh_until INTEGER NOT NULL, PRIMARY KEY (tenant, user, connection)) WITHOUT ROWID""",
            "CREATE INDEX credential_key ON credential (key_id)",
            """CREATE TABLE pending_authorization (
                digest TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, connection TEXT NOT NULL,
                sealed TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID""",
            "CREATE INDEX pending_authorization_expiry ON pending_authorization (expires_at)",
        ),
    ),
    Migration(
        18,
        "roles of keys, and the versions of tools that a session is pinned to",
        (
            "ALTER TABLE server_key ADD COLUMN roles TEXT NOT NULL DEFAULT '[]'",
            "ALTER TABLE session ADD COLUMN versions TEXT NOT NULL DEFAULT '{}'",
        ),
    ),
    Migration(
        19,
        "documents of hosts",
        (
            """CREATE TABLE document (
                kind TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT, body TEXT NOT NULL,
                expires_at INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID""",
            "CREATE INDEX document_expiry ON document (expires_at)",
            "CREATE INDEX document_user ON document (tenant, user)",
        ),
    ),
)


_SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_POSTGRES_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"


def migrate(
    db: Database, name: str, now: int, migrations: Sequence[Migration] = MIGRATIONS, *, on_postgres: bool = False
) -> None:
    """Bring the database to the newest version that is known; `UsageError` if it is newer still, or another program's."""
    newest = migrations[-1].version
    while True:
        # The version is read again inside each transaction: another process may have taken the step meanwhile.
        db.execute("BEGIN IMMEDIATE")
        try:
            version = _version(db, name, _POSTGRES_TABLES if on_postgres else _SQLITE_TABLES)
            if version > newest:
                raise UsageError(
                    f'The store "{name}" was written by a newer Handrail (its tables have version {version}; this one '
                    f"knows {newest}); upgrade Handrail, or name another {'database' if on_postgres else 'file'}."
                )
            # One step for each transaction: what was interrupted continues where it stopped.
            step = next((step for step in migrations if step.version > version), None)
            if step is not None:
                for statement in (*step.statements, *(step.on_postgres if on_postgres else ())):
                    db.execute(statement)
                db.execute("INSERT INTO handrail_migration VALUES (?, ?, ?)", (step.version, step.name, now))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if step is None:
            return


def _version(db: Database, name: str, tables_of: str) -> int:
    tables = {row[0] for row in db.execute(tables_of)}
    if "handrail_migration" not in tables:
        if tables:
            raise UsageError(f'"{name}" is a database of another program; name a file of its own for the store.')
        db.execute(
            """CREATE TABLE handrail_migration (
                version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"""
        )
        return 0
    return int(db.execute("SELECT coalesce(max(version), 0) FROM handrail_migration").fetchone()[0])

"""The file of conversations as earlier versions kept it: the tables, and a few conversations in them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

FIRST = (
    """CREATE TABLE conversation (
        session_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, created REAL NOT NULL, updated REAL NOT NULL,
        passing INTEGER NOT NULL, document TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE turn (
        session_id TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE, message_id TEXT NOT NULL,
        position INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL,
        attempts INTEGER NOT NULL, answer TEXT NOT NULL, last_event INTEGER NOT NULL,
        PRIMARY KEY (session_id, message_id)) WITHOUT ROWID""",
)
SECOND = (
    "ALTER TABLE conversation ADD COLUMN key TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversation ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversation ADD COLUMN live INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE opener (
        session_id TEXT PRIMARY KEY REFERENCES conversation ON DELETE CASCADE, key TEXT NOT NULL,
        sealed TEXT NOT NULL) WITHOUT ROWID""",
)


def earlier_conversations(path: Path, names: tuple[str, ...] = ("s1", "s2"), *, version: int = 2) -> None:
    """Write such a file, with its log beside it as a server that was killed leaves it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for statement in (*FIRST, *(SECOND if version > 1 else ())):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {version}")
        for number, name in enumerate(names):
            document = json.dumps({"messages": [{"role": "user", "text": f"words of {name}"}]})
            values = (name, "", "ana", 1_700_000_000.25 + number, 1_700_000_001.5 + number, 0, document)
            if version > 1:
                db.execute("INSERT INTO conversation VALUES (?, ?, ?, ?, ?, ?, ?, 'k1', 'dead', 1)", values)
                db.execute("INSERT INTO opener VALUES (?, 'k1', ?)", (name, f"sealed {name}"))
            else:
                db.execute("INSERT INTO conversation VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            for position, state in ((1, "done"), (2, "running")):
                answer = json.dumps({"text": f"answer {position}"} if state == "done" else {})
                turn = (name, f"m{position}", position, position, f"words of {name}", state, 1, answer, position * 10)
                db.execute("INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", turn)

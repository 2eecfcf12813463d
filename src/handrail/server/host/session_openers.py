"""Who opened a conversation, so that the same key finds it again: its secret, sealed with the key that it was opened with.

A session's secret is told once and stored as a hash. Here it is kept a second time, mixed with bits that only the API key's own
secret gives, of which the server has nothing but a hash: whoever reads the disk learns neither of the two.
"""

from __future__ import annotations

import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import shake_256

TABLE = """CREATE TABLE IF NOT EXISTS opener (
    session_id TEXT PRIMARY KEY REFERENCES conversation ON DELETE CASCADE, key TEXT NOT NULL,
    sealed TEXT NOT NULL) WITHOUT ROWID"""
INDEX = "CREATE INDEX IF NOT EXISTS opener_key ON opener (key)"
_TITLE = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConversation:
    """A conversation as a list shows it. Times are seconds since 1970."""

    session_id: str
    sealed: str
    title: str
    """The first words that the user said."""
    created: float
    updated: float
    answering: bool


def remember(db: sqlite3.Connection, session_id: str, key: str, sealed: str) -> None:
    db.execute("INSERT OR REPLACE INTO opener VALUES (?, ?, ?)", (session_id, key, sealed))


def listed(db: sqlite3.Connection, key: str, user: str | None, maximum: int) -> list[ListedConversation]:
    """The conversations of this user that were opened with this key and in which something was said, the newest first."""
    rows = db.execute(
        """SELECT c.session_id, o.sealed, first.text, c.created, c.updated,
               EXISTS (SELECT 1 FROM turn t WHERE t.session_id = c.session_id AND t.state = 'running')
           FROM opener o JOIN conversation c USING (session_id)
           JOIN turn first ON first.session_id = c.session_id AND first.position =
               (SELECT min(t.position) FROM turn t WHERE t.session_id = c.session_id AND t.text != '')
           WHERE o.key = ? AND c.user IS ? AND NOT c.passing ORDER BY c.updated DESC LIMIT ?""",
        (key, user, maximum),
    )
    return [
        ListedConversation(
            session_id=row[0],
            sealed=row[1],
            title=" ".join(row[2].split())[:_TITLE],
            created=row[3],
            updated=row[4],
            answering=bool(row[5]),
        )
        for row in rows
    ]


def seal(secret: str, session_id: str, token: str) -> str:
    """The session's token, readable only with the secret of the API key."""
    return urlsafe_b64encode(_mixed(secret, session_id, token.encode())).decode()


def unseal(secret: str, session_id: str, sealed: str) -> str:
    return _mixed(secret, session_id, urlsafe_b64decode(sealed)).decode("utf-8", "replace")


def _mixed(secret: str, session_id: str, text: bytes) -> bytes:
    # Each session has bits of its own, and none of them follow from the key's hash, which is on disk.
    bits = shake_256(b"\0".join((b"handrail session", secret.encode("utf-8", "surrogatepass"), session_id.encode())))
    return bytes(one ^ other for one, other in zip(text, bits.digest(len(text)), strict=True))

"""How the statements of the stores are read by PostgreSQL. They are written for SQLite; the few words that differ are put into
PostgreSQL's here."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any

NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""Milliseconds since 1970 on the server's clock, not those of the transaction's beginning."""
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Whatever the role's default is: each statement must see what was committed before its locks were had."""
_WORDS = (
    # PostgreSQL takes it for the role that is connected.
    (re.compile(r'(?<![\w"])user(?![\w"])'), '"user"'),
    (re.compile(r"\bIS \?"), "IS NOT DISTINCT FROM ?"),
    (re.compile(r"SELECT value FROM json_each\(\?\)"), "SELECT jsonb_array_elements_text(?::jsonb)"),
    (re.compile(r"\bINDEXED BY \w+"), ""),
    (re.compile(r"ifnull\(length\(CAST\((\w+) AS BLOB\)\), 0\)"), r"coalesce(octet_length(\1), 0)"),
    (re.compile(r"\bWITHOUT ROWID\b"), ""),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (
        re.compile(r"randomblob\(32\)"),
        "decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')",
    ),
    (re.compile(r"CAST\(strftime\('%s', 'now'\) AS BIGINT\) \* 1000"), NOW),
    (re.compile(r"\bBEGIN IMMEDIATE\b"), BEGIN),
)
_NAMED = re.compile(r"(?<![:\w]):(\w+)")


@lru_cache(maxsize=500)
def translated(statement: str) -> bytes:
    """A statement as PostgreSQL reads it."""
    makes = re.match(r"\s*CREATE TABLE ", statement)
    if makes and not re.search(r"\bWITHOUT ROWID\b", statement):
        # What SQLite has by itself: the order in which rows were made.
        statement = f"{statement.rstrip()[:-1]}, rowid BIGINT GENERATED ALWAYS AS IDENTITY)"
    for pattern, replacement in _WORDS:
        statement = pattern.sub(replacement, statement)
    return _NAMED.sub(r"%(\1)s", statement.replace("%", "%%")).replace("?", "%s").encode()


def without_types(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return int(value) if isinstance(value, bool) else value

"""The store in a PostgreSQL database, for any number of processes on any number of machines.

The rules are the functions of `statements`, the same as on SQLite. What differs is here, a file each: how their SQL is read by
PostgreSQL (`dialect`), what is locked before they look (`locking`), whose clock counts and who lives (`heartbeat`), how claims
and finishes that wait together become one trip (`batches`), and what a failing server means (`failures`).
"""

from handrail.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

"""The transactions of the store's port, one plain function each, over a `sqlite3` connection. Whoever calls one has
begun the transaction and ends it; so both stores, the one in a file and the one in memory, run the very same
statements."""

from handrail.stores.statements.transaction import Clock, Transaction

__all__ = ["Clock", "Transaction"]

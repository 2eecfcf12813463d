"""The transactions of the store's port, one plain function each, over a connection. Whoever calls one has begun the
transaction and ends it; so every store, in a file, in memory or in PostgreSQL, runs the very same statements."""

from handrail.stores.statements.transaction import Clock, Transaction

__all__ = ["Clock", "Transaction"]

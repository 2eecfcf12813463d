"""Services that handlers reach through their context: each behind a small port, with an embedded default."""

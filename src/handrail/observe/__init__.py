"""What an operator sees: the audit log and its verification, metrics, traces."""

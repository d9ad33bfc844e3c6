"""Execution of orders at the provider: fencing, limits, durable evictions, reconciliation."""

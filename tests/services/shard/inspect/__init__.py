"""Inspection of a running shard."""

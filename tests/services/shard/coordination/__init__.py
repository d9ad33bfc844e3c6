"""A shard and its coordinator."""

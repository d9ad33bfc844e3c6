"""How a shard reaches its coordinator."""

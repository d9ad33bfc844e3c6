"""The shard: matches its machines with the needs of its clusters."""

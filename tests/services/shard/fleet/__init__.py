"""The machines of a shard."""

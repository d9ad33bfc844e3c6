"""The decision loop of a shard."""

"""The machines of a shard: inventory, columns, claims, ownership of domains."""

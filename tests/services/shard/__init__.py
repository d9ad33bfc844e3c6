"""The shard: demand, decisions, orders, sessions, state on disk."""

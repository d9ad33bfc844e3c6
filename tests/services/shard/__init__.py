"""A shard: demand, decisions, orders, sessions, what it keeps."""

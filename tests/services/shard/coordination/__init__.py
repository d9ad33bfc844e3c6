"""The shard's side of the coordinator."""

"""What a shard makes of roll-ups."""

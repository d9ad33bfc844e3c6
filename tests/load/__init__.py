"""One shard under a thousand operators."""

"""What a shard answers about itself."""

"""The coordinator: assigns topology domains and clusters to shards; it makes no decisions."""

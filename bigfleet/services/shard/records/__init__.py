"""Records that the packages of a shard share."""

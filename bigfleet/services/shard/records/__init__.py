"""Records shared by the packages of a shard."""
